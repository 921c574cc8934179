//! Convolution as it is defined, a block of the result in registers: a few vectors of output channels by a row of
//! windows.
//!
//! Filters are turned for this, a block of output channels at a time, so that a vector of them is read at once; pixels
//! are broadcast, so any stride and dilation costs the same. Images with padding are copied with zeros around them.
//! Best where there are few input channels, or so few windows that panels of them would be mostly empty.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use kernelwise_backend::{
    Axis, Call, Carver, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Space, knobs,
};
use kernelwise_types::units::Bytes;
use kernelwise_types::{
    InvalidKernelId, KernelSpec, Machine, Numerics, Refusal, Technique, Workload,
};

use super::geometry::Geometry;
use super::mend;
use super::tensors::{Shared, Sharing, Tensors};
use super::vector::{MOST_LANES, Vector, Vectorised, lanes, vectorised};
use crate::declare::{Needing, spec};
use crate::isa::{Level, opaque};
use crate::pool::{self, Schedule, most_pieces, share};

knobs! {
    /// How the work is cut.
    struct DirectKnobs {
        /// Threads: over images and groups if there are enough, else over output channels and rows.
        threads,
        /// Windows in registers at once.
        windows,
        /// 0 cuts the work evenly, 1 finer.
        schedule,
    }
}

/// Vectors of output channels in a block.
const VECTORS: usize = 2;

/// Most windows in a block: with two vectors each, sums enough to keep the multipliers busy.
const MOST_WINDOWS: usize = 8;

/// Depths turned together: a cache line of every filter.
const TURN: usize = 16;

struct Direct {
    spec: KernelSpec,
    level: Level,
}

/// The kernel for one operation and level.
pub(super) fn direct(
    operation: &str,
    level: Level,
) -> Result<Arc<dyn HostKernel>, InvalidKernelId> {
    use kernelwise_types::DType::F32;
    let variant = format!("direct-{}", level.name());
    let spec = spec(
        operation,
        &[F32],
        &variant,
        Technique::Vector,
        Numerics::Reordered,
    )?;
    Ok(Arc::new(Direct {
        spec: spec.on(level),
        level,
    }))
}

/// What one part needs and how it is cut.
struct Plan {
    level: Level,
    geometry: Geometry,
    /// Sizes of the image with its padding.
    padded: [usize; 3],
    /// Output channels in a block.
    channels: usize,
    /// Windows in a block.
    windows: usize,
    /// Threads that share one part, and their schedule.
    threads: usize,
    schedule: Schedule,
}

impl Plan {
    fn new(level: Level, geometry: &Geometry, knobs: &DirectKnobs, sharing: &Sharing) -> Self {
        Self {
            level,
            geometry: *geometry,
            padded: geometry.axes.map(|axis| axis.input + 2 * axis.pad),
            channels: VECTORS * lanes(level),
            windows: (knobs.windows as usize).clamp(1, MOST_WINDOWS),
            threads: sharing.inside,
            schedule: Schedule::of(knobs.schedule),
        }
    }

    /// Elements of the padded copy of one group of one image.
    fn copied(&self) -> usize {
        if self.geometry.padded() {
            self.geometry.group_channels() * self.padded.iter().product::<usize>()
        } else {
            0
        }
    }

    /// Elements of a block of filters, turned.
    fn turned(&self) -> usize {
        self.geometry.depth().saturating_mul(self.channels)
    }

    fn scratch_len(&self) -> usize {
        most_pieces(self.threads, self.schedule)
            .saturating_mul(self.turned())
            .saturating_add(self.copied())
    }

    /// Computes one group of one image.
    fn run(&self, image: &[f32], weights: &[f32], output: &mut [f32], scratch: &mut [f32]) {
        let (copied, turned) = scratch.split_at_mut(self.copied());
        let (source, size) = if copied.is_empty() {
            (image, self.geometry.axes.map(|axis| axis.input))
        } else {
            self.copy(image, copied);
            (&*copied, self.padded)
        };
        let [slices, rows, _] = self.geometry.axes;
        let lines = slices.output * rows.output;
        let blocks = self.geometry.group_filters().div_ceil(self.channels);
        // Rows are cut only as far as needed to make as many pieces as the schedule wants: each turns its filters.
        let pieces = most_pieces(self.threads, self.schedule);
        let bands = pieces.div_ceil(blocks.max(1)).min(lines).max(1);
        let (turned, output) = (Shared::new(turned), Shared::new(output));
        share(
            self.threads,
            self.schedule,
            blocks * bands,
            1,
            |piece, items| {
                // SAFETY: pieces have numbers of their own, and there is room for as many.
                let turned = unsafe { turned.part(piece * self.turned(), self.turned()) };
                let mut ready = None;
                for item in items {
                    let (block, band) = (item / bands, item % bands);
                    let first = block * self.channels;
                    let filters = first..self.geometry.group_filters().min(first + self.channels);
                    if ready != Some(block) {
                        self.turn(weights, filters.clone(), turned);
                        ready = Some(block);
                    }
                    vectorised(
                        self.level,
                        Band {
                            plan: self,
                            source,
                            size,
                            turned,
                            lines: lines * band / bands..lines * (band + 1) / bands,
                            filters,
                            output: &output,
                        },
                    );
                }
            },
        );
    }

    /// Copies the channels with zeros around them.
    fn copy(&self, image: &[f32], into: &mut [f32]) {
        let [slices, rows, columns] = self.geometry.axes;
        into.fill(0.0);
        let planes = image.chunks_exact(self.geometry.plane());
        let copies = into.chunks_exact_mut(self.padded.iter().product());
        for (plane, copy) in planes.zip(copies) {
            for (line, row) in plane.chunks_exact(columns.input).enumerate() {
                let z = slices.pad + line / rows.input;
                let y = rows.pad + line % rows.input;
                let first = (z * self.padded[1] + y) * self.padded[2] + columns.pad;
                copy[first..first + row.len()].copy_from_slice(row);
            }
        }
    }

    /// Puts filters side by side: for each depth one weight of each. Missing filters are zero.
    fn turn(&self, weights: &[f32], filters: Range<usize>, into: &mut [f32]) {
        let depth = self.geometry.depth();
        if filters.len() < self.channels {
            into.fill(0.0);
        }
        // A few depths at a time, so that the lines written to are still there when the next filter comes.
        for (first, into) in (0..depth)
            .step_by(TURN)
            .zip(into.chunks_mut(TURN * self.channels))
        {
            for (lane, filter) in filters.clone().enumerate() {
                let taps = &weights[filter * depth + first..][..TURN.min(depth - first)];
                for (into, tap) in into.chunks_exact_mut(self.channels).zip(taps) {
                    into[lane] = *tap;
                }
            }
        }
    }
}

/// Cuts a row into blocks of at most so many windows, as even as possible: 7 and 7 rather than 8 and 6. Yields the
/// first window of each block and how many there are.
#[inline(always)]
fn blocks(columns: usize, most: usize) -> impl DoubleEndedIterator<Item = (usize, usize)> {
    let blocks = columns.div_ceil(most.max(1));
    let (each, more) = (columns / blocks.max(1), columns % blocks.max(1));
    // The first few have one more. A position is never beyond the row, so nothing overflows on the way to it.
    let at = move |block: usize| block * each + block.min(more);
    (0..blocks).map(move |block| (at(block), at(block + 1) - at(block)))
}

/// Some rows of the output, for one block of output channels.
struct Band<'a> {
    plan: &'a Plan,
    source: &'a [f32],
    size: [usize; 3],
    turned: &'a [f32],
    lines: Range<usize>,
    filters: Range<usize>,
    output: &'a Shared<'a, f32>,
}

impl Vectorised for Band<'_> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let geometry = &self.plan.geometry;
        let columns = geometry.axes[2];
        let source = geometry.group_channels() * self.size.iter().product::<usize>();
        if self.turned.len() < self.plan.turned() || self.source.len() < source {
            debug_assert!(false, "less memory than the plan asked for");
            return;
        }
        for line in self.lines.clone() {
            for (first, count) in blocks(columns.output, self.plan.windows) {
                // SAFETY: the caller has the level of V; windows `first` to `first + count` lie in the row; source
                // and filters are whole.
                unsafe {
                    match columns.taps {
                        3 => self.windows::<V, 3>(line, first, count),
                        _ => self.windows::<V, 0>(line, first, count),
                    }
                }
            }
        }
    }
}

impl Band<'_> {
    /// Computes `count` neighbouring windows of a row; `TAPS` is how wide the filters are, 0 if it is only known at run
    /// time. Rows of three taps are so short that a loop over them costs as much as what it repeats.
    ///
    /// # Safety
    /// The processor has the level of `V`, there are so many windows from `first` on, and `source` and `turned` are as
    /// long as the plan says.
    #[inline(always)]
    unsafe fn windows<V: Vector, const TAPS: usize>(
        &self,
        line: usize,
        first: usize,
        count: usize,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            match count {
                1 => self.block::<V, TAPS, 1>(line, first),
                2 => self.block::<V, TAPS, 2>(line, first),
                3 => self.block::<V, TAPS, 3>(line, first),
                4 => self.block::<V, TAPS, 4>(line, first),
                5 => self.block::<V, TAPS, 5>(line, first),
                6 => self.block::<V, TAPS, 6>(line, first),
                7 => self.block::<V, TAPS, 7>(line, first),
                _ => self.block::<V, TAPS, 8>(line, first),
            }
        }
    }

    /// Computes `WINDOWS` neighbouring windows of a row.
    ///
    /// # Safety
    /// As for [`windows`](Self::windows).
    #[inline(always)]
    unsafe fn block<V: Vector, const TAPS: usize, const WINDOWS: usize>(
        &self,
        line: usize,
        first: usize,
    ) {
        let geometry = &self.plan.geometry;
        let [slices, rows, columns] = geometry.axes;
        let [depth, height, width] = self.size;
        let (z, y) = (line / rows.output, line % rows.output);
        let corner =
            (z * slices.stride * height + y * rows.stride) * width + first * columns.stride;
        let taps = if TAPS == 0 { columns.taps } else { TAPS };
        // Left to itself the compiler walks from window to window by repeated addition.
        let mut windows = [0isize; WINDOWS];
        for (i, window) in windows.iter_mut().enumerate().skip(1) {
            *window = opaque((i * columns.stride) as isize);
        }
        // SAFETY: the caller has the level of V.
        let mut sums = [[unsafe { V::splat(0.0) }; VECTORS]; WINDOWS];
        let mut filters = self.turned.as_ptr();
        let mut channel = self.source.as_ptr().wrapping_add(corner);
        for _ in 0..geometry.group_channels() {
            let mut slice = channel;
            for _ in 0..slices.taps {
                let mut row = slice;
                for _ in 0..rows.taps {
                    let mut from = row;
                    for _ in 0..taps {
                        // SAFETY: with padding copied, all taps of a window lie inside the source; `turned`
                        // has one block of channels for every channel and tap, in this order.
                        unsafe {
                            let mut lanes = [V::load(filters); VECTORS];
                            for (v, lanes) in lanes.iter_mut().enumerate().skip(1) {
                                *lanes = V::load(filters.add(v * V::LANES));
                            }
                            filters = filters.wrapping_add(VECTORS * V::LANES);
                            for (sums, window) in sums.iter_mut().zip(windows) {
                                let pixel = V::splat(from.offset(window).read());
                                for (sum, lanes) in sums.iter_mut().zip(lanes) {
                                    *sum = lanes.multiply_add(pixel, *sum);
                                }
                            }
                        }
                        from = from.wrapping_add(columns.dilation);
                    }
                    row = row.wrapping_add(rows.dilation * width);
                }
                slice = slice.wrapping_add(slices.dilation * height * width);
            }
            channel = channel.wrapping_add(depth * height * width);
        }
        let mut turned = [[0f32; VECTORS * MOST_LANES]; WINDOWS];
        for (turned, sums) in turned.iter_mut().zip(sums) {
            for (v, sum) in sums.into_iter().enumerate() {
                // SAFETY: room for all vectors.
                unsafe { sum.store(turned.as_mut_ptr().add(v * V::LANES)) };
            }
        }
        let windows = geometry.windows();
        for (lane, filter) in self.filters.clone().enumerate() {
            let start = filter * windows + line * columns.output + first;
            // SAFETY: each window of each channel belongs to one band, and to one block of it.
            let output = unsafe { self.output.part(start, WINDOWS) };
            for (output, turned) in output.iter_mut().zip(&turned) {
                *output = turned[lane];
            }
        }
    }
}

impl Direct {
    fn plan(&self, geometry: &Geometry, setting: &Setting) -> (Plan, Sharing) {
        let knobs = DirectKnobs::of(setting);
        let sharing = Sharing::new(geometry, knobs.threads, knobs.schedule);
        (Plan::new(self.level, geometry, &knobs, &sharing), sharing)
    }
}

impl Kernel for Direct {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        Geometry::of(workload).map_or(Ok(()), |geometry| geometry.fits_padded())
    }

    fn space(&self, workload: &Workload, machine: &Machine) -> Space {
        let columns = Geometry::of(workload).map_or(1, |geometry| geometry.axes[2].output);
        let most = u32::try_from(columns)
            .unwrap_or(u32::MAX)
            .min(MOST_WINDOWS as u32);
        let default = if lanes(self.level) == 16 { 8 } else { 6 };
        let threads = Axis::threads(machine);
        let schedule = if threads.values().len() > 1 {
            Axis::switch(false)
        } else {
            Axis::new(0, [])
        };
        Space::of::<DirectKnobs, 3>([
            threads,
            Axis::new(
                default.min(most),
                [2, 4, 6, 8].into_iter().filter(|&w| w < most),
            ),
            schedule,
        ])
        .with_constraint(pool::SHARED_ONLY, |knobs: DirectKnobs| {
            knobs.threads > 1 || knobs.schedule == 0
        })
    }

    fn workspace(&self, workload: &Workload, setting: &Setting) -> Bytes {
        Geometry::of(workload)
            .filter(|geometry| geometry.fits_padded().is_ok())
            .map_or(Bytes(0), |geometry| {
                let (plan, sharing) = self.plan(&geometry, setting);
                Carver::room::<f32>(sharing.scratch_len(plan.scratch_len()))
            })
    }

    fn hint(&self) -> Hint {
        Hint::percent(self.level.part_of(75))
    }
}

impl HostKernel for Direct {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let tensors = Tensors::<f32>::of(call, &self.spec, Geometry::fits_padded)?;
        let geometry = tensors.geometry;
        let (plan, sharing) = self.plan(&geometry, setting);
        let len = sharing.scratch_len(plan.scratch_len());
        let scratch = scratch.carve().take(len)?;
        sharing.each(tensors, scratch, |part, scratch| {
            plan.run(part.image, part.weights, part.output, scratch);
            mend::padding(&geometry, part.image, part.weights, part.output);
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cut_into_even_blocks_of_the_windows_asked_for() {
        let cut = |columns, most| blocks(columns, most).collect::<Vec<_>>();
        assert_eq!(cut(14, 8), [(0, 7), (7, 7)]);
        assert_eq!(cut(14, 4), [(0, 4), (4, 4), (8, 3), (11, 3)]);
        assert_eq!(cut(3, 8), [(0, 3)]);
        assert_eq!(cut(0, 8), []);
        let last = blocks(1 << 40, 1).next_back();
        assert_eq!(last, Some(((1 << 40) - 1, 1)), "of a long row");
    }

    #[test]
    fn the_windows_of_a_setting_are_those_of_the_plan() {
        let workload: Workload = "conv2d f32 n1 c1 h9 w19 k1 r3 s3".parse().unwrap();
        let geometry = Geometry::of(&workload).unwrap();
        let sharing = Sharing::new(&geometry, 1, 0);
        for (asked, used) in [(2, 2), (6, 6), (0, 1), (99, MOST_WINDOWS)] {
            let knobs = DirectKnobs {
                threads: 1,
                windows: asked,
                schedule: 0,
            };
            let plan = Plan::new(Level::PORTABLE, &geometry, &knobs, &sharing);
            assert_eq!(plan.windows, used);
        }
    }

    /// At every level there are fewer blocks of filters than pieces in a finer schedule, so rows are cut too.
    #[test]
    fn a_finer_schedule_makes_more_pieces() {
        let text = "conv3d f32 n1 c4 d8 h8 w8 k32 t3 r3 s3 stride1 pad1";
        let workload: Workload = text.parse().unwrap();
        let geometry = Geometry::of(&workload).unwrap();
        for level in Level::all() {
            let asked = [0, 1].map(|schedule| {
                let knobs = DirectKnobs {
                    threads: 2,
                    windows: 8,
                    schedule,
                };
                let sharing = Sharing::new(&geometry, knobs.threads, schedule);
                let plan = Plan::new(level, &geometry, &knobs, &sharing);
                let image = vec![1f32; geometry.c * geometry.plane()];
                let weights = vec![1f32; geometry.k * geometry.depth()];
                let mut output = vec![0f32; geometry.k * geometry.windows()];
                let mut scratch = vec![0f32; plan.scratch_len()];
                pool::trace::take();
                plan.run(&image, &weights, &mut output, &mut scratch);
                pool::trace::take()
            });
            assert_eq!(asked, [[(2, 2)], [(2, 16)]], "{}", level.name());
        }
    }
}
