//! An image as the matrix of its windows: one column per window, one row per channel and tap. It never exists as a
//! whole; the product asks for panels of it, which are copied straight from the image.
//!
//! A panel is filled in *chunks* of lanes. The windows of a chunk lie in one or more rows of the output; each of them
//! is a run of pixels at a fixed distance, cut where a tap falls on padding. Runs are the same for all channels, so they
//! are found once per chunk and tap.

use std::ops::Range;

use super::Float;
use super::geometry::Geometry;
use crate::gemm::Source;
use crate::isa::Level;

/// Lanes in a chunk: a vector of 512 bits.
pub(super) const CHUNK: usize = 16;

/// The windows of some channels of one image.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows<'a, T> {
    level: Level,
    geometry: &'a Geometry,
    image: &'a [T],
}

impl<'a, T: Float> Windows<'a, T> {
    /// The windows over the channels of one group; `image` holds exactly these.
    pub(super) fn new(level: Level, geometry: &'a Geometry, image: &'a [T]) -> Self {
        Self {
            level,
            geometry,
            image,
        }
    }
}

impl<T: Float> Source<T> for Windows<'_, T> {
    fn pack(&self, lanes: Range<usize>, depth: Range<usize>, width: usize, into: &mut [T]) {
        let (all_lanes, all_depth) = self.extent();
        let panels = lanes.len().div_ceil(width.max(1));
        let room = into.len() >= panels * width * depth.len();
        if width == 0 || lanes.end > all_lanes || depth.end > all_depth || !room {
            debug_assert!(lanes.is_empty() || depth.is_empty(), "packing outside");
            return;
        }
        for (panel, first) in lanes.clone().step_by(width).enumerate() {
            let into = &mut into[panel * width * depth.len()..][..width * depth.len()];
            let end = lanes.end.min(first + width);
            for at in (0..width).step_by(CHUNK) {
                let chunk = Chunk {
                    at,
                    lanes: CHUNK.min(width - at),
                    width,
                    rows: Rows::of(
                        self.geometry,
                        end.min(first + at)..end.min(first + at + CHUNK),
                    ),
                };
                self.fill(&chunk, depth.clone(), into);
            }
        }
    }

    fn extent(&self) -> (usize, usize) {
        let channels = self.image.len() / self.geometry.plane().max(1);
        (self.geometry.windows(), channels * self.geometry.taps())
    }
}

impl<T: Float> Windows<'_, T> {
    /// Fills the lanes of one chunk of a panel.
    fn fill(&self, chunk: &Chunk, depth: Range<usize>, into: &mut [T]) {
        let [slices, rows, columns] = self.geometry.axes;
        let (taps, plane) = (self.geometry.taps(), self.geometry.plane());
        let mut runs = Runs::default();
        let mut tap = 0;
        for t in 0..slices.taps {
            let in_slices = slices.inside(t);
            for r in 0..rows.taps {
                let in_rows = rows.inside(r);
                for s in 0..columns.taps {
                    // The channels for which this tap is among the depths asked for.
                    let before = |end: usize| end.saturating_sub(tap).div_ceil(taps);
                    let channels = before(depth.start)..before(depth.end);
                    let first_depth = channels.start * taps + tap;
                    tap += 1;
                    if channels.is_empty() {
                        continue;
                    }
                    let in_columns = columns.inside(s);
                    runs.clear();
                    for row in chunk.rows.iter() {
                        let x = row.x.start.max(in_columns.start)..row.x.end.min(in_columns.end);
                        if x.is_empty() || !in_slices.contains(&row.z) || !in_rows.contains(&row.y)
                        {
                            continue;
                        }
                        let line = slices.under(row.z, t) * rows.input + rows.under(row.y, r);
                        runs.push(Run {
                            lane: row.lane + x.start - row.x.start,
                            lanes: x.len(),
                            from: line * columns.input + columns.under(x.start, s),
                        });
                    }
                    let image = &self.image[channels.start * plane..channels.end * plane];
                    let into = &mut into[(first_depth - depth.start) * chunk.width + chunk.at..];
                    let copy = Copy {
                        runs: runs.as_slice(),
                        stride: columns.stride,
                        lanes: chunk.lanes,
                        plane,
                        step: taps * chunk.width,
                    };
                    T::copy_runs(self.level, &copy, image, into);
                }
            }
        }
    }
}

/// Neighbouring lanes of a panel.
struct Chunk {
    /// The first lane in its panel.
    at: usize,
    /// Lanes, those beyond the last window included.
    lanes: usize,
    /// Lanes of the panel.
    width: usize,
    rows: Rows,
}

/// The windows of a chunk, by row of the output.
struct Rows {
    rows: [Row; CHUNK],
    len: usize,
}

#[derive(Clone, Default)]
struct Row {
    /// The lane of the first window.
    lane: usize,
    z: usize,
    y: usize,
    x: Range<usize>,
}

impl Rows {
    fn of(geometry: &Geometry, windows: Range<usize>) -> Self {
        let [_, rows, columns] = geometry.axes;
        let mut found = Self {
            rows: std::array::from_fn(|_| Row::default()),
            len: 0,
        };
        let (mut line, mut x) = (
            windows.start / columns.output,
            windows.start % columns.output,
        );
        let mut window = windows.start;
        for row in &mut found.rows {
            if window >= windows.end {
                break;
            }
            let end = columns.output.min(x + windows.end - window);
            *row = Row {
                lane: window - windows.start,
                z: line / rows.output,
                y: line % rows.output,
                x: x..end,
            };
            found.len += 1;
            window += end - x;
            (line, x) = (line + 1, 0);
        }
        found
    }

    fn iter(&self) -> impl Iterator<Item = &Row> {
        self.rows[..self.len].iter()
    }
}

/// Lanes that are filled from pixels at a fixed distance.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Run {
    /// The first lane in its chunk.
    pub(super) lane: usize,
    pub(super) lanes: usize,
    /// The first pixel in its channel.
    pub(super) from: usize,
}

/// Runs of one chunk, at most one per lane.
#[derive(Default)]
struct Runs {
    runs: [Run; CHUNK],
    len: usize,
}

impl Runs {
    fn clear(&mut self) {
        self.len = 0;
    }

    fn push(&mut self, run: Run) {
        self.runs[self.len] = run;
        self.len += 1;
    }

    fn as_slice(&self) -> &[Run] {
        &self.runs[..self.len]
    }
}

/// The same runs, copied from each channel of an image in turn.
pub(super) struct Copy<'a> {
    pub(super) runs: &'a [Run],
    /// Distance of the pixels of a run.
    pub(super) stride: usize,
    /// Lanes to write, those that no run fills as zero.
    pub(super) lanes: usize,
    /// Elements of a channel.
    pub(super) plane: usize,
    /// Distance of the chunks of neighbouring channels in the panel.
    pub(super) step: usize,
}

/// Copies runs element by element.
pub(super) fn copy_runs<T: Float>(copy: &Copy<'_>, image: &[T], into: &mut [T]) {
    for (channel, into) in image.chunks(copy.plane).zip(into.chunks_mut(copy.step)) {
        let into = &mut into[..copy.lanes];
        into.fill(T::default());
        for run in copy.runs {
            let into = &mut into[run.lane..run.lane + run.lanes];
            let from = channel[run.from..].iter().step_by(copy.stride);
            for (into, from) in into.iter_mut().zip(from) {
                *into = *from;
            }
        }
    }
}

/// Copies runs of a vector: one masked load for each run and one store for all of them.
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512 {
    #![allow(unsafe_code)]

    use std::arch::x86_64::*;

    use super::{CHUNK, Copy};

    /// A run as the loads want it: which lanes, and the pixel that lane 0 would have.
    #[derive(Clone, Copy, Default)]
    struct Masked {
        lanes: __mmask16,
        from: isize,
    }

    /// Whether this copies runs at such a distance.
    pub(in super::super) fn serves(stride: usize) -> bool {
        stride <= 2
    }

    /// Copies the runs. The processor has AVX-512 (`has_avx512` of the level said so), and the stride is
    /// one that [`serves`].
    ///
    /// # Safety
    /// The processor has AVX-512.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(in super::super) unsafe fn copy_runs(copy: &Copy<'_>, image: &[f32], into: &mut [f32]) {
        let channels = image.len() / copy.plane;
        let reach = |lanes: usize| (lanes - 1) * copy.stride;
        let read = copy.runs.iter().all(|r| {
            r.lanes > 0 && r.lane + r.lanes <= CHUNK && r.from + reach(r.lanes) < copy.plane
        });
        let written = channels == 0
            || (channels - 1) * copy.step + copy.lanes <= into.len() && copy.lanes <= CHUNK;
        if !read || !written {
            debug_assert!(false, "runs outside the image or the panel");
            return;
        }
        let mut masked = [Masked::default(); CHUNK];
        for (masked, run) in masked.iter_mut().zip(copy.runs) {
            *masked = Masked {
                lanes: (((1u32 << run.lanes) - 1) << run.lane) as __mmask16,
                from: run.from as isize - (run.lane * copy.stride) as isize,
            };
        }
        let runs = &masked[..copy.runs.len().min(CHUNK)];
        let whole = ((1u32 << copy.lanes) - 1) as __mmask16;
        // SAFETY: as was just checked, every lane of every run lies in each of the channels, which are
        // `plane` apart, and `lanes` values fit `into` at each of the steps.
        unsafe {
            let (from, to) = (image.as_ptr(), into.as_mut_ptr());
            match (copy.stride, runs) {
                (1, [a]) => side_by_side([*a], from, to, channels, copy, whole),
                (1, [a, b]) => side_by_side([*a, *b], from, to, channels, copy, whole),
                (1, [a, b, c]) => side_by_side([*a, *b, *c], from, to, channels, copy, whole),
                (1, [a, b, c, d]) => {
                    side_by_side([*a, *b, *c, *d], from, to, channels, copy, whole)
                }
                (1, _) => {
                    for channel in 0..channels {
                        let from = from.add(channel * copy.plane);
                        let mut lanes = _mm512_setzero_ps();
                        for run in runs {
                            let at = from.wrapping_offset(run.from);
                            lanes = _mm512_mask_loadu_ps(lanes, run.lanes, at);
                        }
                        _mm512_mask_storeu_ps(to.add(channel * copy.step), whole, lanes);
                    }
                }
                _ => every_second(runs, from, to, channels, copy, whole),
            }
        }
    }

    /// # Safety
    /// As for [`copy_runs`], with pointers that were checked.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn side_by_side<const RUNS: usize>(
        runs: [Masked; RUNS],
        from: *const f32,
        to: *mut f32,
        channels: usize,
        copy: &Copy<'_>,
        whole: __mmask16,
    ) {
        // SAFETY: `copy_runs` checked that each channel has the lanes of all runs and a chunk to go to.
        unsafe {
            for channel in 0..channels {
                let from = from.add(channel * copy.plane);
                let mut lanes = _mm512_setzero_ps();
                for run in runs {
                    lanes = _mm512_mask_loadu_ps(lanes, run.lanes, from.wrapping_offset(run.from));
                }
                _mm512_mask_storeu_ps(to.add(channel * copy.step), whole, lanes);
            }
        }
    }

    /// Each bit at twice its position.
    fn spread_out(bits: __mmask16) -> u32 {
        [
            (8, 0x00ff_00ff),
            (4, 0x0f0f_0f0f),
            (2, 0x3333_3333),
            (1, 0x5555_5555),
        ]
        .into_iter()
        .fold(u32::from(bits), |bits, (by, keep)| {
            (bits | bits << by) & keep
        })
    }

    /// # Safety
    /// As for [`copy_runs`], with pointers that were checked.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn every_second(
        runs: &[Masked],
        from: *const f32,
        to: *mut f32,
        channels: usize,
        copy: &Copy<'_>,
        whole: __mmask16,
    ) {
        // SAFETY: only pixels of the runs are in the masks, see `side_by_side`.
        unsafe {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let mut spread = [(0, 0, 0isize); CHUNK];
            for (spread, run) in spread.iter_mut().zip(runs) {
                let pixels = spread_out(run.lanes);
                *spread = (pixels as __mmask16, (pixels >> 16) as __mmask16, run.from);
            }
            for channel in 0..channels {
                let from = from.add(channel * copy.plane);
                let (mut low, mut high) = (_mm512_setzero_ps(), _mm512_setzero_ps());
                for &(in_low, in_high, first) in &spread[..runs.len()] {
                    let at = from.wrapping_offset(first);
                    low = _mm512_mask_loadu_ps(low, in_low, at);
                    high = _mm512_mask_loadu_ps(high, in_high, at.wrapping_add(16));
                }
                let lanes = _mm512_permutex2var_ps(low, even, high);
                _mm512_mask_storeu_ps(to.add(channel * copy.step), whole, lanes);
            }
        }
    }
}
