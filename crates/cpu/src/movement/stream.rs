//! Stores past the caches.
//!
//! An ordinary store fetches the line it is about to overwrite, and pushes out of the caches what was there.
//! A result larger than the last-level cache pays for both and gains nothing; a streaming store writes whole
//! lines straight to memory. For results that fit a cache it is the wrong choice: the next reader finds
//! them there no longer.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use kernelwise_backend::Axis;
use kernelwise_types::Machine;

use crate::gemm::Caches;
use crate::isa::Level;

/// Proof that this processor has streaming stores of a level's width, and how many pages they go to at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    level: Level,
    pages: usize,
}

/// Streaming stores combine into lines of this size.
pub(crate) const LINE: usize = 64;

impl Stream {
    /// Streaming stores of this level, if it has any.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn on(level: Level) -> Option<Self> {
        level.has_avx2().then_some(Self { level, pages: 1 })
    }

    /// Streaming stores of this level, if it has any.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn on(_level: Level) -> Option<Self> {
        None
    }

    /// The level.
    pub(crate) fn level(self) -> Level {
        self.level
    }

    /// The same, working on so many pages side by side, at most [`MOST_PAGES`].
    pub(crate) fn side_by_side(self, pages: u32) -> Self {
        let pages = (pages as usize).clamp(1, MOST_PAGES);
        Self { pages, ..self }
    }

    /// Pages that are worked on side by side.
    pub(crate) fn pages(self) -> usize {
        self.pages
    }

    /// Copies a slice; what is no whole line goes the ordinary way. [`finish`](Self::finish) must follow on the
    /// same thread before another may look.
    #[inline]
    pub(crate) fn copy<T: Copy>(self, from: &[T], to: &mut [T]) {
        let len = from.len().min(to.len());
        let (from, to) = (from[..len].as_ptr(), to[..len].as_mut_ptr());
        let bytes = len * size_of::<T>();
        #[cfg(target_arch = "x86_64")]
        // SAFETY: both slices hold `bytes` bytes and cannot overlap, one being exclusive; bytes of a `T` copied
        // in order are that `T`. The instructions are there: `on` asked the level.
        unsafe {
            if self.level.has_avx512() {
                avx512(from.cast(), to.cast(), bytes, self.pages);
            } else {
                avx2(from.cast(), to.cast(), bytes, self.pages);
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        // SAFETY: as above.
        unsafe {
            std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), bytes);
        }
    }

    /// Copies whole lines, from a line's beginning to a line's beginning; otherwise as [`copy`](Self::copy). For
    /// inlining into loops of a level that has streaming stores.
    #[inline(always)]
    pub(crate) fn copy_lines<T: Copy>(self, from: &[T], to: &mut [T]) {
        let bytes = size_of_val(from);
        let whole = bytes.is_multiple_of(LINE) && bytes == size_of_val(to);
        #[cfg(target_arch = "x86_64")]
        if whole
            && from.as_ptr().addr().is_multiple_of(LINE)
            && to.as_ptr().addr().is_multiple_of(LINE)
        {
            for at in (0..bytes).step_by(size_of::<__m256i>()) {
                // SAFETY: inside both slices and aligned, as was just asked; every level that streams has AVX.
                unsafe {
                    let value = _mm256_load_si256(from.as_ptr().byte_add(at).cast());
                    _mm256_stream_si256(to.as_mut_ptr().byte_add(at).cast(), value);
                }
            }
            return;
        }
        let _ = whole;
        self.copy(from, to);
    }

    /// Waits until streamed stores are as visible as ordinary ones.
    #[allow(unused_unsafe)] // newer compilers call the instruction safe
    pub(crate) fn finish(self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction belongs to SSE, which every x86-64 processor has.
        unsafe {
            _mm_sfence();
        }
    }

    /// Elements of `slice` before its first whole line, none if elements and lines never meet.
    pub(crate) fn before_line<T>(slice: &[T]) -> usize {
        let bytes = slice.as_ptr().addr().wrapping_neg() % LINE;
        if bytes.is_multiple_of(size_of::<T>()) {
            (bytes / size_of::<T>()).min(slice.len())
        } else {
            0
        }
    }
}

/// Asks for the line of an address that will be read; a wrong address is no harm.
#[inline(always)]
pub(crate) fn expect_read(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that reads nothing and never faults.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Bytes of a page, within which the processor fetches ahead.
pub(crate) const PAGE: usize = 4096;

/// Most pages that are worked on side by side.
pub(crate) const MOST_PAGES: usize = 4;

/// The pages to choose from, the first to begin with.
///
/// Each of several pages is fetched ahead by itself, so more of the memory is at work. But large tensors often begin at
/// the same place in a page; then what is fetched for several pages of several operands meets in the same few places of the
/// first cache, which needs more than the usual eight ways (of a page each) to hold it.
pub(crate) fn pages(machine: &Machine) -> Axis {
    const WAYS: usize = 8;
    let first = if Caches::of(machine).l1 > WAYS * PAGE {
        MOST_PAGES as u32
    } else {
        1
    };
    Axis::new(first, [1, 2, MOST_PAGES as u32])
}

/// Lines that the plain loop moves between two looks at where it is.
#[cfg(target_arch = "x86_64")]
const LINES: usize = 8;

/// One function per width: ordinary copies up to the first line and after the last, streaming stores between.
#[cfg(target_arch = "x86_64")]
macro_rules! streaming_copy {
    ($name:ident, $features:literal, $vector:ty, $load:ident, $store:ident) => {
        /// # Safety
        ///
        /// Both pointers are good for `bytes` bytes, which do not overlap; at least one page is worked on; the processor has
        /// the instructions.
        #[target_feature(enable = $features)]
        unsafe fn $name(from: *const u8, to: *mut u8, bytes: usize, side_by_side: usize) {
            const WIDTH: usize = size_of::<$vector>();
            let head = (to.addr().wrapping_neg() % LINE).min(bytes);
            let tail = bytes - (bytes - head) % LINE;
            // One page at a time is a plain loop: what it does besides moving lines costs bandwidth.
            let together = match side_by_side {
                1 => head,
                _ => tail - (tail - head) % (side_by_side * PAGE),
            };
            let blocks = tail - (tail - together) % (LINES * LINE);
            let line = |at: usize| {
                // SAFETY: below, `at` is a multiple of a line from `head`, with a whole line before `tail`; from
                // `head` on, `to` is aligned to a line and so to a vector, which the streaming store needs.
                unsafe {
                    let (from, to) = (from.add(at), to.add(at));
                    for part in 0..LINE / WIDTH {
                        let value = $load(from.cast::<$vector>().add(part).cast());
                        $store(to.cast::<$vector>().add(part).cast(), value);
                    }
                }
            };
            for pages in (head..together).step_by(side_by_side * PAGE) {
                for at in (pages..pages + PAGE).step_by(LINE) {
                    for page in 0..side_by_side {
                        line(at + page * PAGE);
                    }
                }
            }
            for block in (together..blocks).step_by(LINES * LINE) {
                for part in 0..LINES {
                    line(block + part * LINE);
                }
            }
            for at in (blocks..tail).step_by(LINE) {
                line(at);
            }
            // SAFETY: `head` and `tail` are at most `bytes`.
            unsafe {
                std::ptr::copy_nonoverlapping(from, to, head);
                std::ptr::copy_nonoverlapping(from.add(tail), to.add(tail), bytes - tail);
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
streaming_copy!(
    avx512,
    "avx512f",
    __m512i,
    _mm512_loadu_si512,
    _mm512_stream_si512
);
#[cfg(target_arch = "x86_64")]
streaming_copy!(
    avx2,
    "avx2",
    __m256i,
    _mm256_loadu_si256,
    _mm256_stream_si256
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_is_copied_and_nothing_more() {
        let from: Vec<u8> = (0..400u32).map(|i| (i % 251) as u8 + 1).collect();
        for stream in Level::all().into_iter().filter_map(Stream::on) {
            for offset in [0, 1, 31, 63, 64] {
                for len in [0, 1, 63, 64, 65, 127, 128, 129, 300] {
                    let mut to = vec![0u8; 400];
                    stream.copy(&from[3..3 + len], &mut to[offset..offset + len]);
                    stream.finish();
                    assert_eq!(to[offset..offset + len], from[3..3 + len]);
                    let touched = to.iter().filter(|byte| **byte != 0).count();
                    assert_eq!(touched, len, "offset {offset}");
                }
            }
        }
    }

    #[test]
    fn pages_side_by_side_are_all_copied() {
        let from: Vec<u32> = (1..=20_000).collect();
        for stream in Level::all().into_iter().filter_map(Stream::on) {
            for len in [4095, 4096, 4111, 8192, 19_990] {
                let mut to = vec![0u32; 20_000];
                for pages in [1, 2, 4] {
                    to.fill(0);
                    let stream = stream.side_by_side(pages);
                    stream.copy(&from[5..5 + len], &mut to[3..3 + len]);
                    stream.finish();
                    assert_eq!(to[3..3 + len], from[5..5 + len]);
                    assert_eq!((to[2], to[3 + len]), (0, 0));
                }
            }
        }
    }

    #[test]
    fn pages_are_one_at_least_and_few() {
        for stream in Level::all().into_iter().filter_map(Stream::on) {
            let pages = [0, 1, 3, 99].map(|pages| stream.side_by_side(pages).pages());
            assert_eq!(pages, [1, 1, 3, MOST_PAGES]);
        }
    }

    #[test]
    fn lines_begin_where_addresses_say() {
        let floats = vec![0f64; 64];
        for start in 0..20 {
            let slice = &floats[start..];
            let before = Stream::before_line(slice);
            assert!(before < 8);
            assert_eq!(slice[before..].as_ptr().addr() % LINE, 0);
        }
        assert_eq!(Stream::before_line(&floats[..0]), 0);
    }
}
