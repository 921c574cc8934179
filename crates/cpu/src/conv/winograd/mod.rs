//! Convolution with 3x3 filters in fewer products (Winograd): tiles of the input and the filters are transformed, multiplied
//! point by point, which over all channels is one small matrix product per point, and transformed back.
//!
//! F(2x2) needs 4 products where the definition needs 9, F(4x4) 2.25; both add and subtract on the way, so errors are
//! larger than those of a sum in another order, and what is not finite spreads over its tile (it is computed again).
//!
//! Scratch memory, in elements, with p = 16 or 36 points: p·k·c for the filters of one group, rounded up to vectors,
//! p·(k + c)·t for the tiles of one block, with t about the parameter `tiles` (at least one row of tiles), and one
//! padded band of an image for each thread.
#![allow(unsafe_code)]

mod transform;

use std::marker::PhantomData;
use std::sync::Arc;

use kernelwise_backend::{
    Axis, Call, Carver, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Space, knobs,
};
use kernelwise_types::units::Bytes;
use kernelwise_types::{
    DType, InvalidKernelId, KernelSpec, Machine, Numerics, Refusal, Technique, Workload,
};

use super::geometry::Geometry;
use super::mend;
use super::product::Failure;
use super::tensors::{Shared, Tensors};
use super::vector::{MOST_LANES, Vector, Vectorised, vectorised};
use crate::declare::{Needing, spec};
use crate::gemm::{self, Destination, ProductError, Strided, Tiles};
use crate::isa::Level;
use crate::pool::{self, Schedule, most_pieces, share};
use transform::{Algorithm, MOST_OUTPUTS, MOST_POINTS};

knobs! {
    /// How the work is cut.
    struct WinogradKnobs {
        /// Threads, over filters, channels and points by turns.
        threads,
        /// Tiles transformed and multiplied together, rounded to rows of tiles.
        tiles,
        /// 0 cuts the work evenly, 1 finer.
        schedule,
    }
}

struct Winograd<A> {
    spec: KernelSpec,
    level: Level,
    algorithm: PhantomData<fn() -> A>,
}

/// The kernels for one level.
pub(super) fn kernels(level: Level) -> Result<[Arc<dyn HostKernel>; 2], InvalidKernelId> {
    Ok([
        kernel::<transform::Two>(level)?,
        kernel::<transform::Four>(level)?,
    ])
}

fn kernel<A: Algorithm>(level: Level) -> Result<Arc<dyn HostKernel>, InvalidKernelId> {
    let variant = format!("{}-{}", A::NAME, level.name());
    let technique = Technique::Algorithmic;
    let numerics = Numerics::ReducedPrecision;
    let spec = spec("conv2d", &[DType::F32], &variant, technique, numerics)?;
    Ok(Arc::new(Winograd::<A> {
        spec: spec.on(level),
        level,
        algorithm: PhantomData,
    }))
}

fn accepts(geometry: &Geometry) -> Result<(), Refusal> {
    let suits = geometry.axes[1..]
        .iter()
        .all(|axis| (axis.taps, axis.stride, axis.dilation) == (3, 1, 1));
    if !suits {
        return Err(Refusal::Shape {
            condition: "needs a 3x3 filter at stride 1 without dilation".to_owned(),
        });
    }
    // Distances inside a band of the image are counted in 32 bits.
    let width = geometry.axes[2].output + 2 * MOST_POINTS;
    if width.saturating_mul(geometry.axes[1].output + MOST_POINTS) < i32::MAX as usize {
        return Ok(());
    }
    Err(Refusal::Shape {
        condition: "needs output channels of less than 2^31 elements, rounded up to whole tiles"
            .to_owned(),
    })
}

/// Sizes of one call.
struct Plan<A> {
    level: Level,
    geometry: Geometry,
    threads: usize,
    schedule: Schedule,
    /// Tiles down and across an image.
    down: usize,
    across: usize,
    /// Rows of tiles in a block.
    rows: usize,
    /// Channels and tiles of a block, rounded up to whole vectors.
    channels: usize,
    tiles: usize,
    /// Columns of a padded band of the image.
    width: usize,
    algorithm: PhantomData<fn() -> A>,
}

/// Distance kept between the matrices of different points, so that they do not compete for the same cache lines.
const APART: usize = 3 * MOST_LANES;

impl<A: Algorithm> Plan<A> {
    fn new(level: Level, geometry: &Geometry, setting: &Setting) -> Self {
        let knobs = WinogradKnobs::of(setting);
        let [_, rows, columns] = geometry.axes;
        let (down, across) = (
            rows.output.div_ceil(A::OUTPUTS),
            columns.output.div_ceil(A::OUTPUTS),
        );
        let block = (knobs.tiles as usize / across).clamp(1, down);
        // Even blocks, and rows of tiles at an odd number of vectors, which spreads them over the cache.
        let block = down.div_ceil(down.div_ceil(block));
        let vectors = (block * across).div_ceil(MOST_LANES);
        Self {
            level,
            geometry: *geometry,
            threads: pool::threads(knobs.threads),
            schedule: Schedule::of(knobs.schedule),
            down,
            across,
            rows: block,
            channels: geometry.group_channels().next_multiple_of(MOST_LANES),
            tiles: (vectors | 1) * MOST_LANES,
            width: across * A::OUTPUTS + 2,
            algorithm: PhantomData,
        }
    }

    const POINTS: usize = A::POINTS * A::POINTS;

    /// Distances between the matrices of neighbouring points: filters, tiles, products.
    fn apart(&self) -> [usize; 3] {
        let filters = self.geometry.group_filters();
        [
            (filters, self.channels),
            (self.geometry.group_channels(), self.tiles),
            (filters, self.tiles),
        ]
        .map(|(rows, columns)| rows.saturating_mul(columns).saturating_add(APART))
    }

    /// Elements of one padded band.
    fn band(&self) -> usize {
        (self.rows * A::OUTPUTS + 2) * self.width
    }

    /// Elements of scratch memory: filters, tiles, products, bands.
    fn scratch(&self) -> [usize; 4] {
        let [filters, tiles, products] =
            self.apart().map(|apart| apart.saturating_mul(Self::POINTS));
        let bands = most_pieces(self.threads, self.schedule).saturating_mul(self.band());
        [filters, tiles, products, bands]
    }

    fn run(
        &self,
        tensors: Tensors<'_, f32>,
        [filters, tiles, products, bands]: [&mut [f32]; 4],
    ) -> Result<(), ProductError> {
        let geometry = &self.geometry;
        let image = geometry.group_channels() * geometry.plane();
        let weights = geometry.group_filters() * geometry.depth();
        let block = geometry.group_filters() * geometry.windows();
        for group in 0..geometry.groups {
            let weights = &tensors.weights[group * weights..][..weights];
            self.filters(weights, filters);
            for n in 0..geometry.n {
                let part = n * geometry.groups + group;
                let image = &tensors.input[part * image..][..image];
                let output = &mut tensors.output[part * block..][..block];
                for first in (0..self.down).step_by(self.rows) {
                    let rows = self.rows.min(self.down - first);
                    self.tiles(image, (first, rows), tiles, bands);
                    self.products(rows * self.across, filters, tiles, products)?;
                    self.outputs((first, rows), products, output);
                }
                self.mend(image, weights, output);
            }
        }
        Ok(())
    }

    /// Transforms the filters of a group.
    fn filters(&self, weights: &[f32], into: &mut [f32]) {
        let into = Shared::new(into);
        let filters = self.geometry.group_filters();
        share(self.threads, self.schedule, filters, 1, |_, filters| {
            vectorised(
                self.level,
                Filters {
                    plan: self,
                    weights,
                    filters,
                    into: &into,
                },
            );
        });
    }

    /// Transforms some rows of tiles of an image.
    fn tiles(&self, image: &[f32], rows: (usize, usize), into: &mut [f32], bands: &mut [f32]) {
        let (into, bands) = (Shared::new(into), Shared::new(bands));
        let channels = self.geometry.group_channels();
        share(
            self.threads,
            self.schedule,
            channels,
            1,
            |piece, channels| {
                // SAFETY: pieces have numbers of their own, and there is a band for each.
                let band = unsafe { bands.part(piece * self.band(), self.band()) };
                for channel in channels {
                    let plane = self.geometry.plane();
                    self.fill_band(&image[channel * plane..][..plane], rows, band);
                    vectorised(
                        self.level,
                        Inputs {
                            plan: self,
                            band,
                            tiles: rows.1 * self.across,
                            channel,
                            into: &into,
                        },
                    );
                }
            },
        );
    }

    /// Copies what some rows of tiles see of one channel, with zeros around it.
    fn fill_band(&self, plane: &[f32], (first, rows): (usize, usize), band: &mut [f32]) {
        let [_, lines, columns] = self.geometry.axes;
        let lines_needed = rows * A::OUTPUTS + 2;
        for (line, band) in band
            .chunks_exact_mut(self.width)
            .take(lines_needed)
            .enumerate()
        {
            let padded = first * A::OUTPUTS + line;
            let Some(y) = padded.checked_sub(lines.pad).filter(|&y| y < lines.input) else {
                band.fill(0.0);
                continue;
            };
            let row = &plane[y * columns.input..][..columns.input];
            let before = columns.pad.min(band.len());
            let (left, rest) = band.split_at_mut(before);
            let (middle, right) = rest.split_at_mut(row.len().min(rest.len()));
            left.fill(0.0);
            middle.copy_from_slice(&row[..middle.len()]);
            right.fill(0.0);
        }
    }

    /// Multiplies filters and tiles, point by point.
    fn products(
        &self,
        count: usize,
        filters: &[f32],
        tiles: &[f32],
        into: &mut [f32],
    ) -> Result<(), ProductError> {
        let [filter_apart, tile_apart, product_apart] = self.apart();
        let (k, c) = (
            self.geometry.group_filters(),
            self.geometry.group_channels(),
        );
        let (row, column) = (self.channels as isize, self.tiles as isize);
        let into = Shared::new(into);
        let failure = Failure::default();
        share(self.threads, self.schedule, Self::POINTS, 1, |_, points| {
            for point in points {
                let filters = &filters[point * filter_apart..][..filter_apart];
                let tiles = &tiles[point * tile_apart..][..tile_apart];
                // SAFETY: each point is visited once.
                let into = unsafe { into.part(point * product_apart, product_apart) };
                if into.len() < product_apart {
                    return failure.note(Err(ProductError::Extent {
                        operand: "c",
                        lanes: k,
                        depth: count,
                    }));
                }
                let cut = Tiles {
                    mc: k,
                    kc: c,
                    nc: count,
                    pack_a: false,
                    pack_b: false,
                };
                // SAFETY: `filters` holds k rows of c neighbours, `channels` apart; `tiles` c rows of as many
                // neighbours as tiles, `tiles` apart.
                let (a, b) = unsafe {
                    (
                        Strided::new(self.level, filters.as_ptr(), (k, c), (row, 1)),
                        Strided::new(self.level, tiles.as_ptr(), (count, c), (1, column)),
                    )
                };
                // SAFETY: `into` holds k such rows and is ours alone.
                let products =
                    unsafe { Destination::new(into.as_mut_ptr(), (k, count), (column, 1), false) };
                let size = (k, count, c);
                let done = gemm::multiply(self.level, size, &a, &b, products, &cut, 1, &mut []);
                failure.note(done);
            }
        });
        failure.result()
    }

    /// Transforms products back into some rows of tiles.
    fn outputs(&self, (first, rows): (usize, usize), products: &[f32], output: &mut [f32]) {
        let windows = self.geometry.windows();
        let filters = self.geometry.group_filters();
        let output = Shared::new(output);
        share(self.threads, self.schedule, filters, 1, |_, filters| {
            for filter in filters {
                vectorised(
                    self.level,
                    Outputs {
                        plan: self,
                        products: &products[filter * self.tiles..],
                        first,
                        tiles: rows * self.across,
                        // SAFETY: each filter is visited once, and its channel is its own.
                        output: unsafe { output.part(filter * windows, windows) },
                    },
                );
            }
        });
    }

    /// Computes again what is not finite.
    fn mend(&self, image: &[f32], weights: &[f32], output: &mut [f32]) {
        let output = Shared::new(output);
        let (depth, windows) = (self.geometry.depth(), self.geometry.windows());
        let filters = self.geometry.group_filters();
        share(self.threads, self.schedule, filters, 1, |_, filters| {
            for filter in filters {
                // SAFETY: each filter is visited once.
                let output = unsafe { output.part(filter * windows, windows) };
                mend::everything(
                    &self.geometry,
                    image,
                    &weights[filter * depth..][..depth],
                    output,
                );
            }
        });
    }
}

/// Filters to be transformed, channels in the lanes.
struct Filters<'a, A> {
    plan: &'a Plan<A>,
    weights: &'a [f32],
    filters: std::ops::Range<usize>,
    into: &'a Shared<'a, f32>,
}

/// Taps of a filter in one channel.
const TAPS: usize = 9;

impl<A: Algorithm> Vectorised for Filters<'_, A> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let channels = self.plan.geometry.group_channels();
        let [apart, ..] = self.plan.apart();
        let distances: [i32; MOST_LANES] = std::array::from_fn(|lane| (lane * TAPS) as i32);
        for k in self.filters {
            let filter = &self.weights[k * channels * TAPS..][..channels * TAPS];
            for (vector, taps) in filter.chunks(V::LANES * TAPS).enumerate() {
                // The last channels may not fill a vector.
                let mut last = [0f32; MOST_LANES * TAPS];
                let from = if taps.len() < V::LANES * TAPS {
                    last[..taps.len()].copy_from_slice(taps);
                    last.as_ptr()
                } else {
                    taps.as_ptr()
                };
                // SAFETY: the caller has the level of V; nine taps for each lane lie at `from`; this filter's row of
                // transformed filters is ours alone, and a vector is stored only where there is one.
                unsafe {
                    let mut square = [[V::splat(0.0); 3]; 3];
                    for (r, row) in square.iter_mut().enumerate() {
                        for (s, tap) in row.iter_mut().enumerate() {
                            *tap = V::gather(from.add(3 * r + s), distances.as_ptr());
                        }
                    }
                    let points = transform::filter::<A, V>(square);
                    for (y, row) in points.iter().enumerate().take(A::POINTS) {
                        for (x, point) in row.iter().enumerate().take(A::POINTS) {
                            let start = (y * A::POINTS + x) * apart
                                + k * self.plan.channels
                                + vector * V::LANES;
                            let to = self.into.part(start, V::LANES);
                            if to.len() == V::LANES {
                                (*point).store(to.as_mut_ptr());
                            }
                        }
                    }
                }
            }
        }
    }
}

/// One channel to be transformed, tiles in the lanes.
struct Inputs<'a, A> {
    plan: &'a Plan<A>,
    band: &'a [f32],
    tiles: usize,
    channel: usize,
    into: &'a Shared<'a, f32>,
}

impl<A: Algorithm> Vectorised for Inputs<'_, A> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Plan {
            across,
            width,
            tiles: row,
            ..
        } = *self.plan;
        let [_, apart, _] = self.plan.apart();
        if self.band.len() < self.plan.band() {
            debug_assert!(false, "a band of {} elements", self.band.len());
            return;
        }
        let (mut y, mut x) = (0, 0);
        for first in (0..self.tiles).step_by(V::LANES) {
            // Lanes beyond the last tile repeat the first one.
            let mut distances = [0i32; MOST_LANES];
            for distance in distances.iter_mut().take(V::LANES.min(self.tiles - first)) {
                *distance = ((y * width + x) * A::OUTPUTS) as i32;
                x += 1;
                if x == across {
                    (y, x) = (y + 1, 0);
                }
            }
            // SAFETY: the caller has the level of V; tiles lie inside the band, which has two rows and columns
            // more than they have outputs; a vector is stored only where there is one, in this channel's row.
            unsafe {
                let mut square = [[V::splat(0.0); MOST_POINTS]; MOST_POINTS];
                for (i, line) in square.iter_mut().enumerate().take(A::POINTS) {
                    for (j, point) in line.iter_mut().enumerate().take(A::POINTS) {
                        let from = self.band.as_ptr().add(i * width + j);
                        *point = V::gather(from, distances.as_ptr());
                    }
                }
                let points = transform::input::<A, V>(square);
                for (i, line) in points.iter().enumerate().take(A::POINTS) {
                    for (j, point) in line.iter().enumerate().take(A::POINTS) {
                        let start = (i * A::POINTS + j) * apart + self.channel * row + first;
                        let to = self.into.part(start, V::LANES);
                        if to.len() == V::LANES {
                            point.store(to.as_mut_ptr());
                        }
                    }
                }
            }
        }
    }
}

/// One output channel to be transformed back, tiles in the lanes.
struct Outputs<'a, A> {
    plan: &'a Plan<A>,
    /// From the row of this filter on.
    products: &'a [f32],
    first: usize,
    tiles: usize,
    output: &'a mut [f32],
}

impl<A: Algorithm> Vectorised for Outputs<'_, A> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let [_, rows, columns] = self.plan.geometry.axes;
        let across = self.plan.across;
        let [.., apart] = self.plan.apart();
        let last = (A::POINTS * A::POINTS - 1) * apart;
        if self.tiles > self.plan.tiles || self.products.len() < last + self.plan.tiles {
            debug_assert!(false, "{} products", self.products.len());
            return;
        }
        let (mut row, mut column) = (self.first * A::OUTPUTS, 0);
        for first in (0..self.tiles).step_by(V::LANES) {
            let mut tiles = [[[0f32; MOST_LANES]; MOST_OUTPUTS]; MOST_OUTPUTS];
            // SAFETY: the caller has the level of V; rows of products are whole vectors, also the last, as seen above.
            unsafe {
                let mut square = [[V::splat(0.0); MOST_POINTS]; MOST_POINTS];
                for (i, line) in square.iter_mut().enumerate().take(A::POINTS) {
                    for (j, point) in line.iter_mut().enumerate().take(A::POINTS) {
                        let start = (i * A::POINTS + j) * apart + first;
                        *point = V::load(self.products.as_ptr().add(start));
                    }
                }
                let outputs = transform::output::<A, V>(square);
                for (to, from) in tiles.iter_mut().zip(outputs) {
                    for (to, from) in to.iter_mut().zip(from) {
                        from.store(to.as_mut_ptr());
                    }
                }
            }
            for lane in 0..V::LANES.min(self.tiles - first) {
                for (y, tile) in tiles
                    .iter()
                    .enumerate()
                    .take(A::OUTPUTS.min(rows.output - row))
                {
                    let start = (row + y) * columns.output + column;
                    let count = A::OUTPUTS.min(columns.output - column);
                    for (to, from) in self.output[start..start + count].iter_mut().zip(tile) {
                        *to = from[lane];
                    }
                }
                column += A::OUTPUTS;
                if column >= across * A::OUTPUTS {
                    (row, column) = (row + A::OUTPUTS, 0);
                }
            }
        }
    }
}

impl<A: Algorithm> Kernel for Winograd<A> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        Geometry::of(workload).map_or(Ok(()), |geometry| accepts(&geometry))
    }

    fn space(&self, workload: &Workload, machine: &Machine) -> Space {
        let tiles = Geometry::of(workload).map_or(1, |geometry| {
            let [_, rows, columns] = geometry.axes;
            rows.output.div_ceil(A::OUTPUTS) * columns.output.div_ceil(A::OUTPUTS)
        });
        let whole = u32::try_from(tiles).unwrap_or(u32::MAX);
        let threads = Axis::threads(machine);
        let schedule = if threads.values().len() > 1 {
            Axis::switch(false)
        } else {
            Axis::new(0, [])
        };
        let smaller = [48, 96, 192, 384]
            .into_iter()
            .filter(|&tiles| tiles < whole);
        Space::of::<WinogradKnobs, 3>([threads, Axis::new(whole.min(192), smaller), schedule])
            .with_constraint(pool::SHARED_ONLY, |knobs: WinogradKnobs| {
                knobs.threads > 1 || knobs.schedule == 0
            })
    }

    fn workspace(&self, workload: &Workload, setting: &Setting) -> Bytes {
        Geometry::of(workload)
            .filter(|geometry| accepts(geometry).is_ok())
            .map_or(Bytes(0), |geometry| {
                let plan = Plan::<A>::new(self.level, &geometry, setting);
                let pieces = plan.scratch().map(|len| Carver::room::<f32>(len).0);
                Bytes(pieces.into_iter().fold(0, u64::saturating_add))
            })
    }

    fn hint(&self) -> Hint {
        // Of the products by definition, of which it leaves some out.
        Hint::percent(self.level.part_of(90)).best_for(20_000..=u64::MAX)
    }
}

impl<A: Algorithm> HostKernel for Winograd<A> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let tensors = Tensors::<f32>::of(call, &self.spec, accepts)?;
        let plan = Plan::<A>::new(self.level, &tensors.geometry, setting);
        let [filters, tiles, products, bands] = plan.scratch();
        let mut pieces = scratch.carve();
        let scratch = [
            pieces.take(filters)?,
            pieces.take(tiles)?,
            pieces.take(products)?,
            pieces.take(bands)?,
        ];
        plan.run(tensors, scratch)
            .map_err(|error| Fault::kernel(&self.spec.id, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_condition_that_fails() {
        let condition = |sizes: &str| {
            let workload: Workload = format!("conv2d f32 n1 c1 k1 {sizes}").parse().unwrap();
            match accepts(&Geometry::of(&workload).unwrap()) {
                Err(Refusal::Shape { condition }) => condition,
                other => panic!("{sizes}: {other:?}"),
            }
        };
        assert!(condition("h9 w9 r3 s5").contains("3x3"));
        let large = condition("h65536 w65536 r3 s3");
        assert!(large.contains("2^31") && !large.contains("3x3"), "{large}");
    }
}
