//! The product of filters and windows, for one group of one image.
//!
//! Vectors run along the windows. When there are just a few more windows than lanes (49 of a 7 x 7 image in vectors of
//! 16), the last vector would be nearly empty; then the few are left out of the product and computed as sums along the
//! depth, while the filters they need are still in the second cache.
#![allow(unsafe_code)]

use std::ops::Range;

use super::Float;
use super::geometry::Geometry;
use super::tensors::Shared;
use crate::gemm::{self, Destination, Source, Strided, Tiles};
use crate::isa::{Body, Level};
use crate::pool::{Schedule, most_pieces, share};

/// How the product is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// Windows in a block.
    pub(super) windows: usize,
    /// Depth of a block.
    pub(super) depth: usize,
    /// Pack the filters too.
    pub(super) pack_filters: bool,
    /// Pack the windows; otherwise they are read where they lie.
    pub(super) pack_windows: bool,
    /// Threads that share the product.
    pub(super) threads: usize,
}

/// Weights in one block of filters: they come back for every panel of windows, so they should stay in the second
/// cache next to it.
const FILTER_BLOCK: usize = 256 << 10;

/// Most windows that are left out of the vectors.
const FEW: usize = 3;

/// Most vectors across a tile of the product.
const VECTORS: usize = 3;

/// A product whose sizes are known.
pub(super) struct Product {
    level: Level,
    cut: Cut,
    filters: usize,
    windows: usize,
    depth: usize,
}

impl Product {
    pub(super) fn new(level: Level, geometry: &Geometry, cut: Cut) -> Self {
        Self {
            level,
            cut,
            filters: geometry.group_filters(),
            windows: geometry.windows(),
            depth: geometry.depth(),
        }
    }

    fn tiles(&self, pack_b: bool) -> Tiles {
        Tiles {
            mc: (FILTER_BLOCK / self.cut.depth.max(1)).max(16),
            kc: self.cut.depth,
            nc: self.cut.windows,
            pack_a: self.cut.pack_filters,
            pack_b,
        }
    }

    /// How many windows fill whole vectors, if only a few are left over and they are worth the trouble.
    fn narrow<T: Float>(&self) -> Option<usize> {
        let lanes = T::wide_lanes(self.level)?;
        let vectors = self.windows / lanes;
        let rest = self.windows % lanes;
        ((1..=VECTORS).contains(&vectors) && (1..=FEW).contains(&rest)).then_some(vectors * lanes)
    }

    /// Filters in one step of the narrow product: few enough to stay in the second cache until they are used again.
    fn step(&self) -> usize {
        (FILTER_BLOCK / 2 / self.depth.max(1)).clamp(8, 512) / 8 * 8
    }

    /// The largest product of one step.
    fn step_scratch<T: Float>(&self, windows: usize) -> usize {
        let size = (self.step().min(self.filters), windows, self.depth);
        gemm::scratch_len::<T>(self.level, size, &self.tiles(false), 1)
    }

    /// Elements of scratch memory.
    pub(super) fn scratch_len<T: Float>(&self) -> usize {
        match self.narrow::<T>() {
            Some(windows) => {
                let pieces = most_pieces(self.cut.threads, Schedule::Static);
                self.windows * self.depth + pieces * self.step_scratch::<T>(windows)
            }
            None => {
                let size = (self.filters, self.windows, self.depth);
                let tiles = self.tiles(self.cut.pack_windows);
                gemm::scratch_len::<T>(self.level, size, &tiles, self.cut.threads)
            }
        }
    }

    /// Computes one group of one image. Nothing happens if the slices are too short.
    pub(super) fn run<T: Float>(
        &self,
        windows: &impl Source<T>,
        weights: &[T],
        output: &mut [T],
        scratch: &mut [T],
    ) {
        let fits = weights.len() >= self.filters * self.depth
            && output.len() >= self.filters * self.windows
            && scratch.len() >= self.scratch_len::<T>()
            && windows.extent() == (self.windows, self.depth);
        debug_assert!(fits, "slices too short for the product");
        if !fits {
            return;
        }
        if let Some(main) = self.narrow::<T>() {
            return self.run_narrow(main, windows, weights, output, scratch);
        }
        let tiles = self.tiles(self.cut.pack_windows);
        let threads = self.cut.threads;
        let output = Shared::new(output);
        // SAFETY: nobody else has a part of the output.
        unsafe {
            self.multiply(
                0..self.filters,
                self.windows,
                windows,
                weights,
                &output,
                (&tiles, threads),
                scratch,
            );
        }
    }

    /// Multiplies some filters with the leading windows.
    ///
    /// # Safety
    /// Nobody else uses the output of these filters.
    #[allow(clippy::too_many_arguments)]
    unsafe fn multiply<T: Float>(
        &self,
        filters: Range<usize>,
        windows: usize,
        source: &impl Source<T>,
        weights: &[T],
        output: &Shared<'_, T>,
        (tiles, threads): (&Tiles, usize),
        scratch: &mut [T],
    ) {
        let (depth, count) = (self.depth, filters.len());
        let weights = &weights[filters.start * depth..filters.end * depth];
        // SAFETY: the caller keeps these rows for us.
        let output = unsafe { output.part(filters.start * self.windows, count * self.windows) };
        // SAFETY: `weights` holds `count` rows of `depth` neighbours.
        let a = unsafe {
            Strided::new(
                self.level,
                weights.as_ptr(),
                (count, depth),
                (depth as isize, 1),
            )
        };
        // SAFETY: `output` holds `count` rows of all windows, of which the leading ones are written.
        let c = unsafe {
            Destination::new(
                output.as_mut_ptr(),
                (count, windows),
                (self.windows as isize, 1),
                false,
            )
        };
        let size = (count, windows, depth);
        let done = gemm::multiply(self.level, size, &a, source, c, tiles, threads, scratch);
        debug_assert!(done.is_ok(), "{done:?}");
    }

    /// The same when `main` windows fill whole vectors and a few more do not.
    fn run_narrow<T: Float>(
        &self,
        main: usize,
        windows: &impl Source<T>,
        weights: &[T],
        output: &mut [T],
        scratch: &mut [T],
    ) {
        let (all, depth) = (0..self.depth, self.depth);
        let (panel, rest) = scratch.split_at_mut(main * depth);
        windows.pack(0..main, all.clone(), main, panel);
        let (few, rest) = rest.split_at_mut((self.windows - main) * depth);
        windows.pack(main..self.windows, all, 1, few);
        let (panel, few) = (&*panel, &*few);
        let tiles = self.tiles(false);
        let each = self.step_scratch::<T>(main);
        let (output, rest) = (Shared::new(output), Shared::new(rest));
        share(
            self.cut.threads,
            Schedule::Static,
            self.filters,
            8,
            |piece, filters| {
                // SAFETY: pieces have numbers of their own, and room for as many was asked for.
                let scratch = unsafe { rest.part(piece * each, each) };
                // SAFETY: the panel holds `main` neighbours for each depth.
                let b = unsafe {
                    Strided::new(
                        self.level,
                        panel.as_ptr(),
                        (main, depth),
                        (1, main as isize),
                    )
                };
                for first in filters.clone().step_by(self.step()) {
                    let step = first..filters.end.min(first + self.step());
                    // SAFETY: pieces are ranges of filters that do not meet.
                    unsafe {
                        self.multiply(
                            step.clone(),
                            main,
                            &b,
                            weights,
                            &output,
                            (&tiles, 1),
                            scratch,
                        );
                    }
                    // SAFETY: as above, and the product is done.
                    let rows = unsafe {
                        output.part(step.start * self.windows, step.len() * self.windows)
                    };
                    self.level.run(Sums {
                        weights: &weights[step.start * depth..step.end * depth],
                        columns: few,
                        depth,
                        output: rows,
                        row: self.windows,
                        first: main,
                    });
                }
            },
        );
    }
}

/// Sums along the depth, for the windows left out of the vectors.
struct Sums<'a, T> {
    weights: &'a [T],
    /// One column after the other.
    columns: &'a [T],
    depth: usize,
    output: &'a mut [T],
    /// Windows of an output channel, and the first of those to compute.
    row: usize,
    first: usize,
}

impl<T: Float> Body for Sums<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let filters = self.weights.chunks_exact(self.depth);
        for (filter, output) in filters.zip(self.output.chunks_exact_mut(self.row)) {
            let columns = self.columns.chunks_exact(self.depth);
            for (column, output) in columns.zip(&mut output[self.first..]) {
                *output = dot(filter, column);
            }
        }
    }
}

/// Sums kept side by side: enough to keep two vectors of any level busy.
const SIDE_BY_SIDE: usize = 64;

#[inline(always)]
fn dot<T: Float>(a: &[T], b: &[T]) -> T {
    let mut sums = [T::default(); SIDE_BY_SIDE];
    let (a, b) = (a.chunks_exact(SIDE_BY_SIDE), b.chunks_exact(SIDE_BY_SIDE));
    let rest = a.remainder().iter().zip(b.remainder());
    let mut total = rest.fold(T::default(), |sum, (&a, &b)| sum + a * b);
    for (a, b) in a.zip(b) {
        for ((sum, &a), &b) in sums.iter_mut().zip(a).zip(b) {
            *sum = *sum + a * b;
        }
    }
    for sum in sums {
        total = total + sum;
    }
    total
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::conv::windows::Windows;
    use kernelwise_types::Workload;

    /// Lanes, depths and width of a block that was packed.
    type Block = (Range<usize>, Range<usize>, usize);

    /// Windows that remember how they were asked for.
    struct Watched<'a> {
        windows: Windows<'a, f32>,
        blocks: Mutex<Vec<Block>>,
    }

    impl Source<f32> for Watched<'_> {
        fn pack(&self, lanes: Range<usize>, depth: Range<usize>, width: usize, into: &mut [f32]) {
            let block = (lanes.clone(), depth.clone(), width);
            self.blocks.lock().unwrap().push(block);
            self.windows.pack(lanes, depth, width, into);
        }

        fn extent(&self) -> (usize, usize) {
            self.windows.extent()
        }
    }

    /// Runs a product and says in which blocks it was packed: lanes, depths, width of a panel.
    fn packed(workload: &str, level: Level, cut: Cut) -> Vec<(Range<usize>, Range<usize>, usize)> {
        let workload: Workload = workload.parse().unwrap();
        let geometry = Geometry::of(&workload).unwrap();
        let image = vec![1f32; geometry.c * geometry.plane()];
        let weights = vec![1f32; geometry.k * geometry.depth()];
        let mut output = vec![0f32; geometry.k * geometry.windows()];
        let windows = Watched {
            windows: Windows::new(level, &geometry, &image),
            blocks: Mutex::default(),
        };
        let product = Product::new(level, &geometry, cut);
        let mut scratch = vec![0f32; product.scratch_len::<f32>()];
        product.run(&windows, &weights, &mut output, &mut scratch);
        assert!(output.iter().all(|&sum| sum == geometry.depth() as f32));
        windows.blocks.into_inner().unwrap()
    }

    const CUT: Cut = Cut {
        windows: 100,
        depth: 30,
        pack_filters: false,
        pack_windows: true,
        threads: 1,
    };

    #[test]
    fn blocks_are_as_large_as_the_cut_says() {
        let text = "conv2d f32 n1 c8 h20 w20 k5 r3 s3";
        for level in Level::all() {
            let blocks = packed(text, level, CUT);
            assert!(blocks.iter().all(|(_, depth, _)| depth.len() <= 30));
            // Blocks are rounded up to whole panels, of 64 lanes at the most.
            assert!(blocks.iter().all(|(lanes, ..)| lanes.len() < 100 + 64));
            let deep = Cut { depth: 72, ..CUT };
            let depths = packed(text, level, deep)
                .into_iter()
                .map(|(_, depth, _)| depth);
            assert!(depths.clone().all(|depth| depth == (0..72)));
            let wide = Cut {
                windows: 324,
                ..CUT
            };
            assert!(packed(text, level, wide).len() < blocks.len());
        }
    }

    /// 49 windows: three vectors of 16 and one left over, which is packed as a column of its own.
    #[test]
    fn a_few_windows_too_many_are_left_out_of_the_vectors() {
        let text = "conv2d f32 n1 c70 h9 w9 k37 r3 s3";
        for level in Level::all() {
            let blocks = packed(text, level, CUT);
            let expected = [(0..48, 0..630, 48), (48..49, 0..630, 1)];
            let wide = <f32 as Float>::wide_lanes(level).is_some();
            assert_eq!(blocks == expected, wide, "{}: {blocks:?}", level.name());
            let threads = Cut { threads: 2, ..CUT };
            assert_eq!(packed(text, level, threads) == expected, wide);
        }
    }
}
