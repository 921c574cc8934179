//! The product of filters and windows, for one group of one image.
//!
//! Vectors run along the windows. When there are just a few more windows than lanes (49 of a 7 x 7 image in vectors of
//! 16), the last vector would be nearly empty; then the few are left out of the product and computed as sums along the
//! depth, while the filters they need are still in the second cache.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::Float;
use super::geometry::Geometry;
use super::tensors::Shared;
use crate::gemm::{self, Destination, ProductError, Source, Strided, Tiles};
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

/// Filters that threads share are cut at multiples of this.
const GRAIN: usize = 8;

/// How many of so many windows fill whole vectors, if only a few are left over and they are worth the trouble. Then
/// windows are always packed, all of them together.
pub(super) fn narrow<T: Float>(level: Level, windows: usize) -> Option<usize> {
    let lanes = T::wide_lanes(level)?;
    let vectors = windows / lanes;
    let rest = windows % lanes;
    ((1..=VECTORS).contains(&vectors) && (1..=FEW).contains(&rest)).then_some(vectors * lanes)
}

/// What went wrong on any of the threads that share the products of a call.
#[derive(Debug, Default)]
pub(super) struct Failure(Mutex<Option<ProductError>>);

impl Failure {
    /// Keeps an error, the last if there are several.
    pub(super) fn note(&self, done: Result<(), ProductError>) {
        if let Err(error) = done {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }

    /// The error, if there was one.
    pub(super) fn result(self) -> Result<(), ProductError> {
        let failure = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        failure.map_or(Ok(()), Err)
    }
}

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

    /// Filters in one step of the narrow product: few enough to stay in the second cache until they are used again.
    fn step(&self) -> usize {
        (FILTER_BLOCK / 2 / self.depth.max(1)).clamp(GRAIN, 512) / GRAIN * GRAIN
    }

    /// Every number of filters that a step of the narrow product can have, and a few that none has: steps of what
    /// [`share`] makes of the filters, for as many threads as there should be and for the caller alone.
    fn steps(&self) -> impl Iterator<Item = usize> {
        let step = self.step();
        let grains = self.filters.div_ceil(GRAIN);
        let pieces = most_pieces(self.cut.threads, Schedule::Static)
            .min(grains)
            .max(1);
        // The last grain may not be full.
        let missing = grains * GRAIN - self.filters;
        [grains, grains / pieces, grains.div_ceil(pieces)]
            .into_iter()
            .flat_map(move |grains| {
                let full = grains * GRAIN;
                [full, full.saturating_sub(missing)]
            })
            .flat_map(move |filters| [filters.min(step), filters % step])
    }

    /// Scratch memory for any step. Fewer filters may need more of it, because blocks are made even.
    fn step_scratch<T: Float>(&self, windows: usize) -> usize {
        let tiles = self.tiles(false);
        self.steps()
            .map(|filters| {
                let size = (filters, windows, self.depth);
                gemm::scratch_len::<T>(self.level, size, &tiles, 1)
            })
            .fold(0, usize::max)
    }

    /// Elements of scratch memory.
    pub(super) fn scratch_len<T: Float>(&self) -> usize {
        match narrow::<T>(self.level, self.windows) {
            Some(windows) => {
                let pieces = most_pieces(self.cut.threads, Schedule::Static);
                let steps = pieces.saturating_mul(self.step_scratch::<T>(windows));
                self.windows
                    .saturating_mul(self.depth)
                    .saturating_add(steps)
            }
            None => {
                let size = (self.filters, self.windows, self.depth);
                let tiles = self.tiles(self.cut.pack_windows);
                gemm::scratch_len::<T>(self.level, size, &tiles, self.cut.threads)
            }
        }
    }

    /// Computes one group of one image; an error if the slices are too short.
    pub(super) fn run<T: Float>(
        &self,
        windows: &impl Source<T>,
        weights: &[T],
        output: &mut [T],
        scratch: &mut [T],
    ) -> Result<(), ProductError> {
        let fits = [
            ("a", weights.len() >= self.filters * self.depth),
            ("b", windows.extent() == (self.windows, self.depth)),
            ("c", output.len() >= self.filters * self.windows),
        ];
        if let Some((operand, _)) = fits.into_iter().find(|(_, fits)| !fits) {
            let (lanes, depth) = match operand {
                "a" => (self.filters, self.depth),
                "b" => (self.windows, self.depth),
                _ => (self.filters, self.windows),
            };
            return Err(ProductError::Extent {
                operand,
                lanes,
                depth,
            });
        }
        if let Some(main) = narrow::<T>(self.level, self.windows) {
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
            )
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
    ) -> Result<(), ProductError> {
        let (depth, count) = (self.depth, filters.len());
        let weights = &weights[filters.start * depth..filters.end * depth];
        // SAFETY: the caller keeps these rows for us.
        let output = unsafe { output.part(filters.start * self.windows, count * self.windows) };
        if output.len() < count * self.windows {
            return Err(ProductError::Extent {
                operand: "c",
                lanes: count,
                depth: self.windows,
            });
        }
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
        gemm::multiply(self.level, size, &a, source, c, tiles, threads, scratch)
    }

    /// The same when `main` windows fill whole vectors and a few more do not.
    fn run_narrow<T: Float>(
        &self,
        main: usize,
        windows: &impl Source<T>,
        weights: &[T],
        output: &mut [T],
        scratch: &mut [T],
    ) -> Result<(), ProductError> {
        let (all, depth) = (0..self.depth, self.depth);
        let each = self.step_scratch::<T>(main);
        let pieces = most_pieces(self.cut.threads, Schedule::Static);
        let needed = self.windows * depth + pieces * each;
        if scratch.len() < needed {
            return Err(ProductError::Scratch {
                needed,
                given: scratch.len(),
            });
        }
        let (panel, rest) = scratch.split_at_mut(main * depth);
        windows.pack(0..main, all.clone(), main, panel);
        let (few, rest) = rest.split_at_mut((self.windows - main) * depth);
        windows.pack(main..self.windows, all, 1, few);
        let (panel, few) = (&*panel, &*few);
        let tiles = self.tiles(false);
        let (output, rest) = (Shared::new(output), Shared::new(rest));
        let failure = Failure::default();
        share(
            self.cut.threads,
            Schedule::Static,
            self.filters,
            GRAIN,
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
                    let done = unsafe {
                        self.multiply(
                            step.clone(),
                            main,
                            &b,
                            weights,
                            &output,
                            (&tiles, 1),
                            scratch,
                        )
                    };
                    failure.note(done);
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
        failure.result()
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
        let done = product.run(&windows, &weights, &mut output, &mut scratch);
        assert_eq!(done, Ok(()));
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

    /// Scratch memory is sized by these.
    #[test]
    fn every_step_of_every_piece_was_counted() {
        for (filters, channels) in [(1, 8), (8, 8), (44, 8), (45, 500), (513, 8), (1000, 3000)] {
            let text = format!("conv2d f32 n1 c{channels} h9 w9 k{filters} r3 s3");
            let geometry = Geometry::of(&text.parse::<Workload>().unwrap()).unwrap();
            for threads in [1, 2, 3, 5] {
                let product = Product::new(Level::PORTABLE, &geometry, Cut { threads, ..CUT });
                let counted: Vec<usize> = product.steps().collect();
                for alone in [1, threads] {
                    let schedule = Schedule::Static;
                    share(alone, schedule, filters, GRAIN, |_, filters| {
                        for first in filters.clone().step_by(product.step()) {
                            let step = product.step().min(filters.end - first);
                            assert!(counted.contains(&step), "{step} of {text}: {counted:?}");
                        }
                    });
                }
            }
        }
    }

    /// Blocks are made even, so 20 filters may take larger ones than 44.
    #[test]
    fn scratch_memory_is_enough_for_the_smaller_steps_too() {
        let text = "conv2d f32 n1 c8 h9 w9 k44 r3 s3";
        let geometry = Geometry::of(&text.parse::<Workload>().unwrap()).unwrap();
        for level in Level::all() {
            let cut = Cut {
                windows: 1,
                depth: 16384,
                pack_filters: true,
                threads: 2,
                ..CUT
            };
            let product = Product::new(level, &geometry, cut);
            let tiles = product.tiles(false);
            for filters in [44, 24, 20] {
                let size = (filters, 48, product.depth);
                let needed = gemm::scratch_len::<f32>(level, size, &tiles, 1);
                assert!(product.step_scratch::<f32>(48) >= needed, "{filters}");
            }
        }
    }

    #[test]
    fn slices_that_are_too_short_are_errors() {
        let text = "conv2d f32 n1 c4 h9 w9 k5 r3 s3";
        let geometry = Geometry::of(&text.parse::<Workload>().unwrap()).unwrap();
        for level in Level::all() {
            let product = Product::new(level, &geometry, CUT);
            let image = vec![1f32; geometry.c * geometry.plane()];
            let weights = vec![1f32; geometry.k * geometry.depth()];
            let mut output = vec![7f32; geometry.k * geometry.windows()];
            let mut scratch = vec![0f32; product.scratch_len::<f32>()];
            let windows = Windows::new(level, &geometry, &image);
            let fewer = Windows::new(level, &geometry, &image[..geometry.plane()]);
            let none = &mut [][..];
            let done = product.run(&windows, &weights, &mut output, none);
            assert!(matches!(done, Err(ProductError::Scratch { .. })));
            let done = product.run(&windows, &weights[1..], &mut output, &mut scratch);
            assert!(matches!(done, Err(ProductError::Extent { operand, .. }) if operand == "a"));
            let done = product.run(&fewer, &weights, &mut output, &mut scratch);
            assert!(matches!(done, Err(ProductError::Extent { operand, .. }) if operand == "b"));
            let done = product.run(&windows, &weights, &mut output[1..], &mut scratch);
            assert!(matches!(done, Err(ProductError::Extent { operand, .. }) if operand == "c"));
            assert!(output.iter().all(|&value| value == 7.0));
        }
    }

    #[test]
    fn an_error_of_any_thread_is_the_error_of_all() {
        let failure = Failure::default();
        let error = ProductError::InPlace { operand: "a" };
        failure.note(Err(error.clone()));
        failure.note(Ok(()));
        assert_eq!(failure.result(), Err(error));
        assert_eq!(Failure::default().result(), Ok(()));
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
