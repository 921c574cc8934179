//! Convolution as a product of spectra: for filters so large that the transforms cost less than the sums.
//!
//! Images with their padding and filters are put on a grid of at least the size of the padded image, so nothing that
//! wraps around is ever kept. Rows are transformed as real numbers, then columns; over the channels of a group the
//! spectra are multiplied and added up, and one transform back gives an output channel. Errors grow with the largest value
//! of an image, not with that under the window.
//!
//! Scratch memory: with s the elements of a spectrum, about half those of the grid, (c·i + t·(i + 1))·s complex
//! numbers for i images at once (parameter `images`), c channels of a group and t pieces of work at once, and a row and
//! the transforms' own needs for each piece.
#![allow(unsafe_code)]

use std::sync::{Arc, PoisonError, RwLock};

use kernelwise_backend::{
    Axis, Call, Carver, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Space, knobs,
};
use kernelwise_types::units::Bytes;
use kernelwise_types::{
    DType, InvalidKernelId, KernelSpec, Machine, Numerics, Refusal, Technique, Workload,
};
use num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::{Fft, FftPlanner};

use super::geometry::{Geometry, Line};
use super::mend;
use super::tensors::{Shared, Tensors};
use crate::declare::spec;
use crate::isa::{Body, Level};
use crate::pool::{self, Schedule, most_pieces, share};

knobs! {
    /// How the work is cut.
    struct FourierKnobs {
        /// Threads, over channels and then over filters.
        threads,
        /// Images whose spectra are kept at once: each filter is transformed once for all of them.
        images,
        /// 0 cuts the work evenly, 1 finer.
        schedule,
    }
}

struct Fourier {
    spec: KernelSpec,
    level: Level,
    /// The newest last.
    plans: RwLock<Vec<Arc<Plans>>>,
}

/// Longest axis of an image with its padding: plans hold tables as long as the axis.
const MOST_ALONG: usize = 1 << 16;

/// Most sizes of grid whose transforms are kept. When there are more, the oldest go.
const MOST_PLANS: usize = 32;

/// The kernel; sums of spectra are formed with the instructions of a level, transforms find their own.
pub(super) fn fourier(level: Level) -> Result<Arc<dyn HostKernel>, InvalidKernelId> {
    let (technique, numerics) = (Technique::Algorithmic, Numerics::ReducedPrecision);
    Ok(Arc::new(Fourier {
        spec: spec("conv2d", &[DType::F32], "fft", technique, numerics)?,
        level,
        plans: RwLock::default(),
    }))
}

fn accepts(geometry: &Geometry) -> Result<(), Refusal> {
    if geometry.axes.iter().any(|axis| axis.stride != 1) {
        return Err(Refusal::Shape {
            condition: "needs stride 1".to_owned(),
        });
    }
    geometry.fits_padded()?;
    let long = |axis: &Line| axis.input + 2 * axis.pad > MOST_ALONG;
    if geometry.axes.iter().any(long) {
        return Err(Refusal::Shape {
            condition: "needs at most 2^16 rows and columns, padding included".to_owned(),
        });
    }
    Ok(())
}

/// The transforms for one size of grid.
struct Plans {
    height: usize,
    width: usize,
    across: Arc<dyn RealToComplex<f32>>,
    back: Arc<dyn ComplexToReal<f32>>,
    down: Arc<dyn Fft<f32>>,
    up: Arc<dyn Fft<f32>>,
}

/// Memory of one piece of work.
struct Bench<'a> {
    line: &'a mut [f32],
    half: &'a mut [Complex<f32>],
    scratch: &'a mut [Complex<f32>],
}

/// Values and where they go on the grid.
struct Placed<'a> {
    values: &'a [f32],
    /// Values in a row.
    columns: usize,
    /// Row and column of the first value.
    first: [usize; 2],
    /// Distances of neighbouring values.
    step: [usize; 2],
}

impl Plans {
    fn new(height: usize, width: usize) -> Self {
        let (mut real, mut complex) = (RealFftPlanner::new(), FftPlanner::new());
        Self {
            height,
            width,
            across: real.plan_fft_forward(width),
            back: real.plan_fft_inverse(width),
            down: complex.plan_fft_forward(height),
            up: complex.plan_fft_inverse(height),
        }
    }

    /// Columns of a spectrum; each is `height` long, one after the other.
    fn columns(&self) -> usize {
        self.width / 2 + 1
    }

    fn spectrum(&self) -> usize {
        self.columns() * self.height
    }

    fn scratch(&self) -> usize {
        self.across
            .get_scratch_len()
            .max(self.back.get_scratch_len())
            .max(self.down.get_inplace_scratch_len())
            .max(self.up.get_inplace_scratch_len())
    }

    /// The spectrum of some values among zeros.
    fn forward(&self, placed: &Placed<'_>, spectrum: &mut [Complex<f32>], bench: &mut Bench<'_>) {
        spectrum.fill(Complex::default());
        for (i, values) in placed.values.chunks_exact(placed.columns).enumerate() {
            let row = placed.first[0] + i * placed.step[0];
            bench.line.fill(0.0);
            let places = bench.line[placed.first[1]..]
                .iter_mut()
                .step_by(placed.step[1]);
            for (place, value) in places.zip(values) {
                *place = *value;
            }
            let done = self
                .across
                .process_with_scratch(bench.line, bench.half, bench.scratch);
            debug_assert!(done.is_ok(), "{done:?}");
            let places = spectrum[row..].iter_mut().step_by(self.height);
            for (place, value) in places.zip(bench.half.iter()) {
                *place = *value;
            }
        }
        self.down.process_with_scratch(spectrum, bench.scratch);
    }

    /// The leading rows and columns of the grid that a spectrum belongs to.
    fn inverse(
        &self,
        spectrum: &mut [Complex<f32>],
        output: &mut [f32],
        columns: usize,
        bench: &mut Bench<'_>,
    ) {
        self.up.process_with_scratch(spectrum, bench.scratch);
        let scale = 1.0 / (self.height * self.width) as f32;
        for (row, output) in output.chunks_exact_mut(columns).enumerate() {
            for (value, from) in bench
                .half
                .iter_mut()
                .zip(spectrum[row..].iter().step_by(self.height))
            {
                *value = *from;
            }
            // Real numbers have no imaginary part here; rounding left a little.
            bench.half[0].im = 0.0;
            if self.width.is_multiple_of(2) {
                bench.half[self.width / 2].im = 0.0;
            }
            let done = self
                .back
                .process_with_scratch(bench.half, bench.line, bench.scratch);
            debug_assert!(done.is_ok(), "{done:?}");
            for (output, value) in output.iter_mut().zip(bench.line.iter()) {
                *output = value * scale;
            }
        }
    }
}

/// The next size that has small factors only, which transforms are quick for.
fn smooth(least: usize) -> usize {
    let is_smooth = |n: &usize| {
        let mut rest = *n;
        for factor in [2, 3, 5] {
            while rest.is_multiple_of(factor) {
                rest /= factor;
            }
        }
        rest == 1
    };
    (least.max(1)..).find(is_smooth).unwrap_or(least)
}

/// How one call is cut.
struct Cut {
    images: usize,
    threads: usize,
    schedule: Schedule,
    pieces: usize,
}

impl Cut {
    fn new(geometry: &Geometry, setting: &Setting) -> Self {
        let knobs = FourierKnobs::of(setting);
        let (threads, schedule) = (pool::threads(knobs.threads), Schedule::of(knobs.schedule));
        Self {
            images: (knobs.images as usize).clamp(1, geometry.n.max(1)),
            threads,
            schedule,
            pieces: most_pieces(threads, schedule),
        }
    }

    /// Complex numbers of scratch memory: kept spectra, and those of each piece.
    fn complex(&self, geometry: &Geometry, plans: &Plans) -> [usize; 2] {
        let piece = (self.images + 1)
            .saturating_mul(plans.spectrum())
            .saturating_add(plans.columns() + plans.scratch());
        [
            self.images
                .saturating_mul(geometry.group_channels())
                .saturating_mul(plans.spectrum()),
            self.pieces.saturating_mul(piece),
        ]
    }
}

impl Fourier {
    /// The transforms for a convolution that is accepted, made on first use, while others go on with theirs.
    fn plans(&self, geometry: &Geometry) -> Arc<Plans> {
        let [_, height, width] = geometry.axes.map(|axis| smooth(axis.input + 2 * axis.pad));
        let find = |kept: &[Arc<Plans>]| {
            let found = kept.iter().find(|p| (p.height, p.width) == (height, width));
            found.map(Arc::clone)
        };
        if let Some(known) = find(&self.plans.read().unwrap_or_else(PoisonError::into_inner)) {
            return known;
        }
        let made = Arc::new(Plans::new(height, width));
        let mut kept = self.plans.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been faster.
        if let Some(known) = find(&kept) {
            return known;
        }
        if kept.len() >= MOST_PLANS {
            kept.remove(0);
        }
        kept.push(Arc::clone(&made));
        made
    }
}

impl Kernel for Fourier {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        Geometry::of(workload).map_or(Ok(()), |geometry| accepts(&geometry))
    }

    fn space(&self, workload: &Workload, machine: &Machine) -> Space {
        let n = Geometry::of(workload).map_or(1, |geometry| geometry.n);
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        let threads = Axis::threads(machine);
        let schedule = if threads.values().len() > 1 {
            Axis::switch(false)
        } else {
            Axis::new(0, [])
        };
        let images = [1, 2, 4, 8, 16].into_iter().filter(|&images| images < n);
        Space::of::<FourierKnobs, 3>([threads, Axis::new(n.min(8), images), schedule])
            .with_constraint(pool::SHARED_ONLY, |knobs: FourierKnobs| {
                knobs.threads > 1 || knobs.schedule == 0
            })
    }

    fn workspace(&self, workload: &Workload, setting: &Setting) -> Bytes {
        Geometry::of(workload)
            .filter(|geometry| accepts(geometry).is_ok())
            .map_or(Bytes(0), |geometry| {
                let (plans, cut) = (self.plans(&geometry), Cut::new(&geometry, setting));
                let complex = cut
                    .complex(&geometry, &plans)
                    .map(|len| Carver::room::<Complex<f32>>(len).0);
                let lines = Carver::room::<f32>(cut.pieces.saturating_mul(plans.width)).0;
                Bytes(complex.into_iter().fold(lines, u64::saturating_add))
            })
    }

    fn hint(&self) -> Hint {
        Hint::percent(5)
    }
}

impl HostKernel for Fourier {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let tensors = Tensors::<f32>::of(call, &self.spec, accepts)?;
        let geometry = tensors.geometry;
        let (plans, cut) = (self.plans(&geometry), Cut::new(&geometry, setting));
        let [kept, own] = cut.complex(&geometry, &plans);
        let mut pieces = scratch.carve();
        let run = Run {
            level: self.level,
            geometry,
            plans: &plans,
            kept: pieces.take(kept)?,
            own: Shared::new(pieces.take(own)?),
            lines: Shared::new(pieces.take(cut.pieces.saturating_mul(plans.width))?),
            cut,
        };
        run.all(tensors);
        Ok(())
    }
}

/// One call with its memory.
struct Run<'a> {
    level: Level,
    geometry: Geometry,
    plans: &'a Plans,
    cut: Cut,
    kept: &'a mut [Complex<f32>],
    own: Shared<'a, Complex<f32>>,
    lines: Shared<'a, f32>,
}

impl Run<'_> {
    fn all(mut self, tensors: Tensors<'_, f32>) {
        let geometry = self.geometry;
        let weights = geometry.group_filters() * geometry.depth();
        let output = Shared::new(tensors.output);
        for first in (0..geometry.n).step_by(self.cut.images) {
            let images = first..geometry.n.min(first + self.cut.images);
            for group in 0..geometry.groups {
                let part = |image: usize| image * geometry.groups + group;
                let channels = |image: usize| {
                    let len = geometry.group_channels() * geometry.plane();
                    &tensors.input[part(image) * len..][..len]
                };
                self.keep(images.len(), |image| channels(first + image));
                let weights = &tensors.weights[group * weights..][..weights];
                let planes = |image: usize, filter: usize| {
                    let plane = part(first + image) * geometry.group_filters() + filter;
                    // SAFETY: each filter of each image is asked for once.
                    unsafe { output.part(plane * geometry.windows(), geometry.windows()) }
                };
                self.filters(
                    images.len(),
                    weights,
                    |image| channels(first + image),
                    planes,
                );
            }
        }
    }

    /// The memory of a piece of work: room for spectra, and for the transforms.
    ///
    /// # Safety
    /// No two pieces at work have the same number.
    #[allow(
        clippy::mut_from_ref,
        reason = "each piece has a part of its own, which the caller vouches for"
    )]
    unsafe fn bench(&self, piece: usize) -> (&mut [Complex<f32>], Bench<'_>) {
        let plans = self.plans;
        let spectra = (self.cut.images + 1) * plans.spectrum();
        let len = spectra + plans.columns() + plans.scratch();
        // SAFETY: the caller keeps pieces apart.
        let own = unsafe { self.own.part(piece * len, len) };
        let (spectra, rest) = own.split_at_mut(spectra);
        let (half, scratch) = rest.split_at_mut(plans.columns());
        // SAFETY: as above.
        let line = unsafe { self.lines.part(piece * plans.width, plans.width) };
        (
            spectra,
            Bench {
                line,
                half,
                scratch,
            },
        )
    }

    /// Transforms the channels of some images.
    fn keep<'t>(&mut self, images: usize, image: impl Fn(usize) -> &'t [f32] + Sync) {
        let (geometry, len) = (self.geometry, self.plans.spectrum());
        let [_, rows, columns] = geometry.axes;
        let memory = std::mem::take(&mut self.kept);
        let kept = Shared::new(&mut *memory);
        let count = geometry.group_channels();
        share(
            self.cut.threads,
            self.cut.schedule,
            images * count,
            1,
            |piece, items| {
                // SAFETY: pieces have numbers of their own.
                let (_, mut bench) = unsafe { self.bench(piece) };
                for item in items {
                    let plane =
                        &image(item / count)[item % count * geometry.plane()..][..geometry.plane()];
                    let placed = Placed {
                        values: plane,
                        columns: columns.input,
                        first: [rows.pad, columns.pad],
                        step: [1, 1],
                    };
                    // SAFETY: each item is visited once.
                    let spectrum = unsafe { kept.part(item * len, len) };
                    self.plans.forward(&placed, spectrum, &mut bench);
                }
            },
        );
        self.kept = memory;
    }

    /// Multiplies with every filter of a group and transforms back.
    fn filters<'t, 'o>(
        &self,
        images: usize,
        weights: &[f32],
        image: impl Fn(usize) -> &'t [f32] + Sync,
        plane: impl Fn(usize, usize) -> &'o mut [f32] + Sync,
    ) {
        let (geometry, len) = (&self.geometry, self.plans.spectrum());
        let [_, rows, columns] = geometry.axes;
        let count = geometry.group_channels();
        let filters = geometry.group_filters();
        share(
            self.cut.threads,
            self.cut.schedule,
            filters,
            1,
            |piece, filters| {
                // SAFETY: pieces have numbers of their own.
                let (spectra, mut bench) = unsafe { self.bench(piece) };
                let (of_filter, sums) = spectra.split_at_mut(len);
                for filter in filters {
                    let taps = &weights[filter * geometry.depth()..][..geometry.depth()];
                    sums.fill(Complex::default());
                    for (channel, taps) in taps.chunks_exact(geometry.taps()).enumerate() {
                        let placed = Placed {
                            values: taps,
                            columns: columns.taps,
                            first: [0, 0],
                            step: [rows.dilation, columns.dilation],
                        };
                        self.plans.forward(&placed, of_filter, &mut bench);
                        for (n, sums) in sums.chunks_exact_mut(len).take(images).enumerate() {
                            self.level.run(AddProduct {
                                sums,
                                image: &self.kept[(n * count + channel) * len..][..len],
                                filter: of_filter,
                            });
                        }
                    }
                    for (n, sums) in sums.chunks_exact_mut(len).take(images).enumerate() {
                        let output = plane(n, filter);
                        self.plans.inverse(sums, output, columns.output, &mut bench);
                        mend::everything(geometry, image(n), taps, output);
                    }
                }
            },
        );
    }
}

/// Adds the product of a spectrum and of another, mirrored: filters are not flipped.
struct AddProduct<'a> {
    sums: &'a mut [Complex<f32>],
    image: &'a [Complex<f32>],
    filter: &'a [Complex<f32>],
}

impl Body for AddProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for ((sum, x), w) in self.sums.iter_mut().zip(self.image).zip(self.filter) {
            sum.re += x.re * w.re + x.im * w.im;
            sum.im += x.im * w.re - x.re * w.im;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_have_sizes_with_small_factors() {
        let sizes = [1, 2, 7, 11, 31, 61, 97].map(smooth);
        assert_eq!(sizes, [1, 2, 8, 12, 32, 64, 100]);
    }

    fn kernel() -> Fourier {
        let (technique, numerics) = (Technique::Algorithmic, Numerics::ReducedPrecision);
        Fourier {
            spec: spec("conv2d", &[DType::F32], "fft", technique, numerics).unwrap(),
            level: Level::PORTABLE,
            plans: RwLock::default(),
        }
    }

    #[test]
    fn transforms_are_made_once_for_each_size() {
        let kernel = kernel();
        let plans = |sizes: &str| {
            let workload: Workload = format!("conv2d f32 n1 c1 k1 {sizes}").parse().unwrap();
            kernel.plans(&Geometry::of(&workload).unwrap())
        };
        let first = plans("h9 w9 r3 s3");
        assert!(Arc::ptr_eq(&first, &plans("h7 w7 r3 s3 pad1")));
        assert!(!Arc::ptr_eq(&first, &plans("h7 w17 r3 s3 pad1")));
        assert_eq!(kernel.plans.read().unwrap().len(), 2);
        // Two heights by these widths are sizes that no other is rounded up to.
        for width in [
            20, 24, 30, 32, 36, 40, 48, 60, 64, 72, 80, 96, 100, 120, 128, 144,
        ] {
            plans(&format!("h10 w{width} r3 s3"));
            plans(&format!("h12 w{width} r3 s3"));
        }
        assert_eq!(kernel.plans.read().unwrap().len(), MOST_PLANS);
        assert!(
            !Arc::ptr_eq(&first, &plans("h9 w9 r3 s3")),
            "the oldest goes"
        );
    }

    /// Two taps far apart make a tiny image with padding that no table should be made for.
    #[test]
    fn long_axes_are_refused_without_a_plan() {
        let kernel = kernel();
        for sizes in [
            "h1 w2 r1 s2 pad0x17179869184 dil1x34359738368",
            "h1 w65537 r1 s2",
            "h65537 w1 r2 s1",
        ] {
            let text = format!("conv2d f32 n1 c1 k1 {sizes}");
            let workload: Workload = text.parse().unwrap();
            let refusal = kernel.accepts(&workload);
            assert!(
                matches!(&refusal, Err(Refusal::Shape { condition }) if condition.contains("2^16")),
                "{text}: {refusal:?}"
            );
            assert_eq!(kernel.workspace(&workload, &Setting::NONE), Bytes(0));
        }
        assert!(kernel.plans.read().unwrap().is_empty());
    }

    /// The spectra of all images are more than can be counted.
    #[test]
    fn more_memory_than_can_be_counted_stays_more() {
        let text = "conv2d f32 n4294967296 c512 h32 w32 k1 r2 s2 pad4080 dil8191";
        let workload: Workload = text.parse().unwrap();
        let kernel = kernel();
        assert_eq!(kernel.accepts(&workload), Ok(()));
        let setting = Setting::new([1, u32::MAX, 0]);
        assert_eq!(kernel.workspace(&workload, &setting), Bytes(u64::MAX));
    }
}
