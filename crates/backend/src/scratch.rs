//! Scratch memory: owned by the caller, asked for by kernels, reused from call to call.
//!
//! The memory is zero when it is first used and keeps whatever the last kernel left in it. Fresh memory is
//! not touched here, so on a machine with several memory nodes each page lands next to the thread that
//! writes it first, which is the one that works on it.
#![allow(unsafe_code)]

use std::alloc::{self, Layout};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use half::{bf16, f16};
use kernelwise_types::Element;
use kernelwise_types::units::Bytes;
use num_complex::Complex;

use crate::fault::Fault;
use crate::large_pages;

/// Alignment of every slice: a cache line, and a vector register of 512 bits.
const ALIGNMENT: usize = 64;

/// Element types for which every pattern of bits is a value. Sealed by being a list of element types.
pub trait Plain: Element {}

macro_rules! plain {
    ($($t:ty),*) => { $(impl Plain for $t {})* };
}

plain!(
    f16,
    bf16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
    Complex<f32>,
    Complex<f64>
);

/// A block of scratch memory that grows on demand and never shrinks.
///
/// ```
/// use kernelwise_backend::Scratch;
/// use kernelwise_types::units::Bytes;
///
/// let mut scratch = Scratch::new();
/// scratch.reserve(Bytes(4096))?;
/// let mut pieces = scratch.carve();
/// let sums: &mut [f64] = pieces.take(100)?;
/// let counts: &mut [u32] = pieces.take(100)?;
/// assert_eq!((sums.len(), counts[99]), (100, 0));
/// assert!(pieces.take::<f64>(1000).is_err(), "more than was reserved");
/// # Ok::<(), kernelwise_backend::Fault>(())
/// ```
#[derive(Debug)]
pub struct Scratch {
    /// `None` while empty.
    block: Option<Block>,
    large_pages: bool,
}

/// An allocation, and how many bytes of it are skipped because they are not aligned.
#[derive(Debug, Clone, Copy)]
struct Block {
    start: NonNull<u8>,
    layout: Layout,
    skipped: usize,
}

impl Block {
    /// Bytes that can be used.
    fn len(&self) -> usize {
        self.layout.size() - self.skipped
    }

    /// The first of them.
    fn first(&self) -> *mut u8 {
        self.start.as_ptr().wrapping_add(self.skipped)
    }
}

// SAFETY: the block is owned memory, reached only through `&mut self`.
unsafe impl Send for Scratch {}
// SAFETY: as above; a shared `Scratch` gives out its size only.
unsafe impl Sync for Scratch {}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Scratch {
    /// Empty.
    pub const fn new() -> Self {
        Self {
            block: None,
            large_pages: false,
        }
    }

    /// The same, asking the system for large pages from the next growth on. Fewer address translations
    /// for big workspaces; a request only, and without effect where the system has no such pages.
    pub const fn with_large_pages(mut self) -> Self {
        self.large_pages = true;
        self
    }

    /// How many bytes a kernel can use.
    pub fn len(&self) -> Bytes {
        Bytes(self.block.map_or(0, |block| block.len()) as u64)
    }

    /// Whether nothing was reserved yet.
    pub fn is_empty(&self) -> bool {
        self.block.is_none()
    }

    fn alignment(&self) -> usize {
        if self.large_pages {
            return large_pages::SIZE;
        }
        ALIGNMENT
    }

    /// Makes room for this many bytes. What was in it is gone if it grows; nothing happens if there is
    /// enough. Every slice taken from it may need up to 63 bytes for alignment.
    pub fn reserve(&mut self, bytes: Bytes) -> Result<(), Fault> {
        if bytes <= self.len() {
            return Ok(());
        }
        let refused = || Fault::OutOfMemory {
            device: "the host".to_owned(),
            bytes,
        };
        let size = usize::try_from(bytes.0)
            .ok()
            .and_then(|size| size.checked_add(self.alignment()))
            .ok_or_else(refused)?;
        // The allocator hands out fresh zero pages for a small alignment only; for a larger one it would
        // write them all here, on this thread. The rest is skipped at the front.
        let layout = Layout::from_size_align(size, 16).map_err(|_| refused())?;
        // SAFETY: the size is not zero, it includes the alignment.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or_else(refused)?;
        let block = Block {
            start,
            layout,
            skipped: start.align_offset(self.alignment()).min(size),
        };
        self.release();
        self.block = Some(block);
        if self.large_pages {
            // SAFETY: the range lies in the allocation just made, which nobody else knows yet.
            let room = unsafe {
                std::slice::from_raw_parts_mut(block.first().cast::<MaybeUninit<u8>>(), block.len())
            };
            large_pages::ask(room);
        }
        Ok(())
    }

    /// One slice of it. Shorthand for a single piece.
    pub fn slice<T: Plain>(&mut self, len: usize) -> Result<&mut [T], Fault> {
        self.carve().take(len)
    }

    /// Hands out pieces that do not overlap.
    pub fn carve(&mut self) -> Carver<'_> {
        let rest: &mut [u8] = match self.block {
            None => &mut [],
            // SAFETY: the block has so many bytes from its first on, initialised (zeroed when allocated,
            // written by kernels since), and `&mut self` makes this the only way to them.
            Some(block) => unsafe { std::slice::from_raw_parts_mut(block.first(), block.len()) },
        };
        Carver { rest }
    }

    fn release(&mut self) {
        if let Some(block) = self.block.take() {
            // SAFETY: allocated in `reserve` with this layout, and no piece outlives `&mut self`.
            unsafe { alloc::dealloc(block.start.as_ptr(), block.layout) };
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.release();
    }
}

/// Hands out pieces of a [`Scratch`].
#[derive(Debug)]
pub struct Carver<'a> {
    rest: &'a mut [u8],
}

impl<'a> Carver<'a> {
    /// The next piece, aligned to 64 bytes. Its contents are whatever was there.
    pub fn take<T: Plain>(&mut self, len: usize) -> Result<&'a mut [T], Fault> {
        let given = Bytes(self.rest.len() as u64);
        let padding = self.rest.as_ptr().align_offset(ALIGNMENT);
        let size = len.checked_mul(size_of::<T>());
        let end = size.and_then(|size| size.checked_add(padding));
        let Some(end) = end.filter(|end| *end <= self.rest.len()) else {
            let needs = Bytes(size.map_or(u64::MAX, |size| size as u64));
            return Err(Fault::Workspace { needs, given });
        };
        let (piece, rest) = std::mem::take(&mut self.rest).split_at_mut(end);
        self.rest = rest;
        let piece = &mut piece[padding..];
        // SAFETY: `piece` holds `len * size_of::<T>()` initialised bytes at a multiple of 64, which suits
        // every element type; every pattern of bits is a `T` (`Plain`); exclusive for 'a.
        Ok(unsafe { std::slice::from_raw_parts_mut(piece.as_mut_ptr().cast(), len) })
    }

    /// Bytes a piece of `len` elements may take, alignment included: what to add up when saying how
    /// much a kernel needs.
    pub fn room<T: Plain>(len: usize) -> Bytes {
        Bytes(
            (len as u64)
                .saturating_mul(size_of::<T>() as u64)
                .saturating_add(ALIGNMENT as u64),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned_apart_and_within_the_room_they_said() {
        let mut scratch = Scratch::new();
        let needs = Carver::room::<f32>(3).0 + Carver::room::<f64>(5).0 + Carver::room::<u8>(7).0;
        scratch.reserve(Bytes(needs)).unwrap();
        let mut pieces = scratch.carve();
        let a: &mut [f32] = pieces.take(3).unwrap();
        let b: &mut [f64] = pieces.take(5).unwrap();
        let c: &mut [u8] = pieces.take(7).unwrap();
        a.fill(1.0);
        b.fill(2.0);
        c.fill(3);
        assert_eq!((a[2], b[0], b[4], c[0]), (1.0, 2.0, 2.0, 3));
        for address in [a.as_ptr().addr(), b.as_ptr().addr(), c.as_ptr().addr()] {
            assert_eq!(address % ALIGNMENT, 0);
        }
    }

    #[test]
    fn too_little_is_an_error_and_loses_nothing() {
        let mut scratch = Scratch::new();
        scratch.reserve(Bytes(128)).unwrap();
        let mut pieces = scratch.carve();
        let error = pieces.take::<f32>(1000).unwrap_err();
        assert!(
            matches!(
                error,
                Fault::Workspace {
                    needs: Bytes(4000),
                    ..
                }
            ),
            "{error}"
        );
        assert!(pieces.take::<f32>(16).is_ok(), "the rest is still there");
        assert!(pieces.take::<f64>(usize::MAX).is_err());
        assert!(matches!(
            Scratch::new().reserve(Bytes(u64::MAX)),
            Err(Fault::OutOfMemory { .. })
        ));
    }

    #[test]
    fn memory_is_reused_while_it_is_enough() {
        let mut scratch = Scratch::new();
        scratch.reserve(Bytes(1 << 16)).unwrap();
        let first = scratch.slice::<u32>(4).unwrap().as_ptr();
        scratch.reserve(Bytes(100)).unwrap();
        assert_eq!(scratch.slice::<u32>(4).unwrap().as_ptr(), first);
        assert!(scratch.len().0 >= 1 << 16);
    }

    #[test]
    fn large_pages_wanted_later_leave_what_there_is() {
        let mut scratch = Scratch::new();
        scratch.reserve(Bytes(4096)).unwrap();
        let before = scratch.len();
        let mut scratch = scratch.with_large_pages();
        assert_eq!(scratch.len(), before);
        assert!(scratch.slice::<u8>(1 << 20).is_err());
        assert_eq!(scratch.slice::<u8>(4096).unwrap().len(), 4096);
    }

    /// The kernel marks memory for which large pages were asked with `hg`.
    #[cfg(target_os = "linux")]
    #[test]
    fn large_pages_are_asked_for() {
        let mut scratch = Scratch::new().with_large_pages();
        scratch.reserve(Bytes(8 << 20)).unwrap();
        let address = scratch.slice::<u8>(1).unwrap().as_ptr().addr();
        assert_eq!(address % large_pages::SIZE, 0);
        let Ok(maps) = std::fs::read_to_string("/proc/self/smaps") else {
            return kernelwise_testing::skip("proc", "/proc/self/smaps is not readable");
        };
        assert!(maps.contains("VmFlags"), "no flags in smaps");
        let mut inside = false;
        let flags = maps.lines().find_map(|line| {
            let range = line
                .split_whitespace()
                .next()
                .and_then(|range| range.split_once('-'));
            if let Some((low, high)) = range
                && let (Ok(low), Ok(high)) = (
                    usize::from_str_radix(low, 16),
                    usize::from_str_radix(high, 16),
                )
            {
                inside = (low..high).contains(&address);
            }
            line.strip_prefix("VmFlags:").filter(|_| inside)
        });
        let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        match enabled {
            Ok(text) if !text.contains("[never]") => {
                let flags = flags.unwrap_or_default();
                assert!(flags.split_whitespace().any(|flag| flag == "hg"), "{flags}");
            }
            _ => kernelwise_testing::skip("large_pages", "the system offers none"),
        }
    }
}
