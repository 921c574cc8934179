//! Convolution in which each filter sees one channel: no sum over channels, so nothing for a product to reuse.
//!
//! At stride 1 the channel is copied into a padded plane. There the window of tap (r, s) lies at a fixed distance from
//! that of tap (0, 0) for all pixels at once, rows running into each other: the sums are formed over the whole plane
//! as if it were one long row, and what lies between the rows is left out at the end. Other strides go row by row.

use std::marker::PhantomData;
use std::sync::Arc;

use kernelwise_backend::{
    Axis, Call, Carver, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Space, knobs,
};
use kernelwise_types::units::Bytes;
use kernelwise_types::{
    InvalidKernelId, KernelSpec, Machine, Numerics, Refusal, Technique, Workload,
};

use super::geometry::Geometry;
use super::tensors::{Sharing, Tensors};
use super::{Float, mend};
use crate::declare::{Needing, spec};
use crate::isa::{Body, Level};
use crate::pool;

knobs! {
    /// How the channels are shared.
    struct DepthwiseKnobs {
        /// Threads, over the channels of all images.
        threads,
        /// 0 cuts the channels evenly, 1 finer.
        schedule,
    }
}

struct Depthwise<T> {
    spec: KernelSpec,
    level: Level,
    element: PhantomData<fn() -> T>,
}

/// The kernel for one element type and level.
pub(super) fn depthwise<T: Float>(level: Level) -> Result<Arc<dyn HostKernel>, InvalidKernelId> {
    let variant = format!("depthwise-{}", level.name());
    let technique = Technique::Vector;
    let spec = spec(
        "conv2d",
        &[T::DTYPE],
        &variant,
        technique,
        Numerics::Reordered,
    )?;
    Ok(Arc::new(Depthwise::<T> {
        spec: spec.on(level),
        level,
        element: PhantomData,
    }))
}

fn accepts(geometry: &Geometry) -> Result<(), Refusal> {
    if geometry.group_channels() == 1 {
        return geometry.fits_padded();
    }
    Err(Refusal::Shape {
        condition: "needs as many groups as channels".to_owned(),
    })
}

/// Sums formed together: several vectors of any level.
const TOGETHER: usize = 64;

/// The padded plane of one channel, and the sums over it.
#[derive(Clone, Copy)]
struct Plane {
    /// Columns of the padded plane.
    width: usize,
    /// Its elements, and as many again as a last, incomplete block of sums reads beyond it.
    len: usize,
    /// Sums, those between the rows included.
    sums: usize,
}

impl Plane {
    /// `None` for other strides than 1.
    fn of(geometry: &Geometry) -> Option<Self> {
        let [_, rows, columns] = geometry.axes;
        if rows.stride != 1 || columns.stride != 1 {
            return None;
        }
        let width = columns.input + 2 * columns.pad;
        let sums = ((rows.output - 1) * width + columns.output).next_multiple_of(TOGETHER);
        let reach = (rows.taps - 1) * rows.dilation * width + (columns.taps - 1) * columns.dilation;
        Some(Self {
            width,
            len: sums + reach,
            sums,
        })
    }
}

/// Elements of scratch memory for one channel.
fn scratch_len(geometry: &Geometry) -> usize {
    Plane::of(geometry).map_or(0, |plane| plane.len + plane.sums)
}

impl<T: Float> Kernel for Depthwise<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        Geometry::of(workload).map_or(Ok(()), |geometry| accepts(&geometry))
    }

    fn space(&self, _workload: &Workload, machine: &Machine) -> Space {
        let threads = Axis::threads(machine);
        let schedule = if threads.values().len() > 1 {
            Axis::switch(false)
        } else {
            Axis::new(0, [])
        };
        Space::of::<DepthwiseKnobs, 2>([threads, schedule])
            .with_constraint(pool::SHARED_ONLY, |knobs: DepthwiseKnobs| {
                knobs.threads > 1 || knobs.schedule == 0
            })
    }

    fn workspace(&self, workload: &Workload, setting: &Setting) -> Bytes {
        let knobs = DepthwiseKnobs::of(setting);
        Geometry::of(workload)
            .filter(|geometry| accepts(geometry).is_ok())
            .map_or(Bytes(0), |geometry| {
                let sharing = Sharing::new(&geometry, knobs.threads, knobs.schedule);
                Carver::room::<T>(sharing.scratch_len(scratch_len(&geometry)))
            })
    }

    fn hint(&self) -> Hint {
        Hint::percent(40)
    }
}

impl<T: Float> HostKernel for Depthwise<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let tensors = Tensors::<T>::of(call, &self.spec, accepts)?;
        let geometry = tensors.geometry;
        let knobs = DepthwiseKnobs::of(setting);
        let sharing = Sharing::new(&geometry, knobs.threads, knobs.schedule);
        let scratch = scratch
            .carve()
            .take(sharing.scratch_len(scratch_len(&geometry)))?;
        sharing.each(tensors, scratch, |part, scratch| {
            let (image, weights) = (part.image, part.weights);
            self.level.run(Channel {
                geometry: &geometry,
                image,
                weights,
                output: &mut *part.output,
                scratch,
            });
            mend::padding(&geometry, image, weights, part.output);
        });
        Ok(())
    }
}

/// One channel under all its filters.
struct Channel<'a, T> {
    geometry: &'a Geometry,
    image: &'a [T],
    weights: &'a [T],
    output: &'a mut [T],
    scratch: &'a mut [T],
}

impl<T: Float> Body for Channel<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        match (Plane::of(self.geometry), self.geometry.axes[2].stride) {
            (Some(plane), _) => self.whole_plane(plane),
            (None, 1) => self.by_rows::<1>(),
            (None, 2) => self.by_rows::<2>(),
            (None, _) => self.by_rows::<0>(),
        }
    }
}

impl<T: Float> Channel<'_, T> {
    #[inline(always)]
    fn whole_plane(self, plane: Plane) {
        let [_, rows, columns] = self.geometry.axes;
        let (padded, sums) = self.scratch.split_at_mut(plane.len);
        padded.fill(T::default());
        for (y, row) in self.image.chunks_exact(columns.input).enumerate() {
            let first = (rows.pad + y) * plane.width + columns.pad;
            // Padding may reach so far that no window sees the last rows.
            let seen = padded.len().saturating_sub(first).min(row.len());
            if seen > 0 {
                padded[first..first + seen].copy_from_slice(&row[..seen]);
            }
        }
        let filters = self.weights.chunks_exact(self.geometry.taps());
        let outputs = self.output.chunks_exact_mut(self.geometry.windows());
        for (filter, output) in filters.zip(outputs) {
            for (block, sums) in sums.chunks_exact_mut(TOGETHER).enumerate() {
                let mut totals = [T::default(); TOGETHER];
                for (r, filter) in filter.chunks_exact(columns.taps).enumerate() {
                    let row = &padded[block * TOGETHER + r * rows.dilation * plane.width..];
                    for (s, &weight) in filter.iter().enumerate() {
                        let pixels = &row[s * columns.dilation..][..TOGETHER];
                        for (total, &pixel) in totals.iter_mut().zip(pixels) {
                            *total = *total + pixel * weight;
                        }
                    }
                }
                sums.copy_from_slice(&totals);
            }
            for (y, row) in output.chunks_exact_mut(columns.output).enumerate() {
                row.copy_from_slice(&sums[y * plane.width..][..columns.output]);
            }
        }
    }

    /// Row by row, tap by tap; `STRIDE` is that along the rows, 0 for one only known at run time.
    #[inline(always)]
    fn by_rows<const STRIDE: usize>(self) {
        let [_, rows, columns] = self.geometry.axes;
        let stride = if STRIDE == 0 { columns.stride } else { STRIDE };
        let filters = self.weights.chunks_exact(self.geometry.taps());
        let outputs = self.output.chunks_exact_mut(self.geometry.windows());
        for (filter, output) in filters.zip(outputs) {
            for (y, output) in output.chunks_exact_mut(columns.output).enumerate() {
                output.fill(T::default());
                for (r, filter) in filter.chunks_exact(columns.taps).enumerate() {
                    if !rows.inside(r).contains(&y) {
                        continue;
                    }
                    let first = rows.under(y, r) * columns.input;
                    let row = &self.image[first..first + columns.input];
                    for (s, &weight) in filter.iter().enumerate() {
                        let inside = columns.inside(s);
                        if inside.is_empty() {
                            continue;
                        }
                        let pixels = &row[columns.under(inside.start, s)..];
                        for (i, total) in output[inside].iter_mut().enumerate() {
                            *total = *total + pixels[i * stride] * weight;
                        }
                    }
                }
            }
        }
    }
}
