//! Layer, RMS and batch normalisation.
//!
//! Layer and RMS normalisation take the rows of the last axis one by one. Batch normalisation takes a channel over the whole batch:
//! where a channel is an image, its pixels are runs of memory; where it is one number for each sample, channels are worked on side by
//! side. How mean and variance are found stands in `moments`.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use kernelwise_backend::{Call, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Space};
use kernelwise_types::op::{Norm, NormKind, Operation};
use kernelwise_types::{
    InvalidKernelId, KernelSpec, Machine, Numerics, Refusal, Technique, TensorView, TensorViewMut,
    Workload,
};

use super::float::Float;
use super::lines::{ABREAST, Lines, Parts, Strip};
use super::moments::Moments;
use super::{Method, RowKnobs, of_another_operation};
use crate::declare::{Needing, spec};
use crate::isa::Level;
use crate::pool::{Schedule, share, share_slice};
use crate::reduce::fold::{Squares, fold_run};
use crate::reduce::lanes::{Job, Vector};

/// Keeps the root away from zero; `op/norm.rs` fixes it.
const EPSILON: f64 = 1e-5;

pub(super) struct NormRows<T> {
    spec: KernelSpec,
    method: Method,
    level: Level,
    element: PhantomData<fn(T)>,
}

pub(super) fn kernel<T: Float>(
    method: Method,
    level: Level,
) -> Result<Arc<dyn HostKernel>, InvalidKernelId> {
    let variant = format!("{}-{}", method.name(), level.name());
    let spec = spec(
        "norm",
        &[T::DTYPE],
        &variant,
        Technique::Vector,
        Numerics::Reordered,
    )?;
    Ok(Arc::new(NormRows::<T> {
        spec: spec.on(level),
        method,
        level,
        element: PhantomData,
    }))
}

/// Whether mean and variance are to be found, so that there are two ways.
fn has_moments(op: &Norm) -> bool {
    op.kind != NormKind::Rms && !op.inference
}

impl<T: Float> Kernel for NormRows<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        match workload.operation() {
            Operation::Norm(op) if self.method == Method::Online && !has_moments(op) => {
                Err(Refusal::Shape {
                    condition: "needs a mean and a variance to find".to_owned(),
                })
            }
            _ => Ok(()),
        }
    }

    fn space(&self, _workload: &Workload, machine: &Machine) -> Space {
        RowKnobs::space(machine)
    }

    fn hint(&self) -> Hint {
        match (self.method, self.level) {
            (_, Level::PORTABLE) => Hint::percent(30),
            (Method::TwoPass, _) => Hint::percent(60),
            (Method::Online, _) => Hint::percent(60).best_for(1 << 18..=u64::MAX),
        }
    }
}

impl<T: Float> HostKernel for NormRows<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        _scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (workload, inputs, outputs) = call.parts();
        let Operation::Norm(op) = workload.operation() else {
            return Err(of_another_operation(&self.spec, workload));
        };
        self.accepts(workload).map_err(|refusal| Fault::Refused {
            kernel: self.spec.id.to_string(),
            refusal,
        })?;
        let crew = RowKnobs::of(setting).crew();
        match op.kind {
            NormKind::Batch => self.batch(op, inputs, outputs, crew),
            NormKind::Layer | NormKind::Rms => self.rows(op, inputs, outputs, crew),
        }
    }
}

impl<T: Float> NormRows<T> {
    fn unfit(&self) -> Fault {
        Fault::kernel(&self.spec.id, "the tensors do not fit the shape")
    }

    fn rows(
        &self,
        op: &Norm,
        inputs: &[TensorView<'_>],
        outputs: &mut [TensorViewMut<'_>],
        (threads, schedule): (usize, Schedule),
    ) -> Result<(), Fault> {
        let (x, scale, shift, out) = match (inputs, outputs) {
            ([x, scale], [out]) => (x, scale, None, out),
            ([x, scale, shift], [out]) => (x, scale, Some(shift.as_slice::<T>()?), out),
            _ => return Err(self.unfit()),
        };
        let (x, scale, out) = (
            x.as_slice::<T>()?,
            scale.as_slice::<T>()?,
            out.as_mut_slice::<T>()?,
        );
        let length = op.shape.dims().last().copied().unwrap_or(0);
        let fits = length > 0
            && x.len() == out.len()
            && scale.len() == length
            && shift.is_none_or(|shift| shift.len() == length)
            && shift.is_none() == (op.kind == NormKind::Rms);
        if !fits {
            return Err(self.unfit());
        }
        share_slice(threads, schedule, out, length, |first, out| {
            let job = Rows {
                method: self.method,
                x: &x[first..][..out.len()],
                scale,
                shift,
                out,
            };
            T::on(self.level, job);
        });
        Ok(())
    }

    fn batch(
        &self,
        op: &Norm,
        inputs: &[TensorView<'_>],
        outputs: &mut [TensorViewMut<'_>],
        (threads, schedule): (usize, Schedule),
    ) -> Result<(), Fault> {
        let ([x, scale, shift, learned @ ..], [out, found @ ..]) = (inputs, outputs) else {
            return Err(self.unfit());
        };
        let (x, scale, shift) = (x.as_slice::<T>()?, scale.as_slice()?, shift.as_slice()?);
        let lines = Lines::along(&op.shape, 1);
        let learned = match learned {
            [] => None,
            [mean, variance] => Some((mean.as_slice::<T>()?, variance.as_slice::<T>()?)),
            _ => return Err(self.unfit()),
        };
        let found = match found {
            [] => None,
            [mean, variance] => Some((mean.as_mut_slice::<T>()?, variance.as_mut_slice::<T>()?)),
            _ => return Err(self.unfit()),
        };
        let out = out.as_mut_slice::<T>()?;
        let channels = |length: usize| length == lines.length;
        let fits = lines.elements() == x.len()
            && x.len() == out.len()
            && channels(scale.len())
            && channels(shift.len())
            && learned.is_some() == op.inference
            && found.is_none() == op.inference
            && learned
                .is_none_or(|(mean, variance)| channels(mean.len()) && channels(variance.len()))
            && found
                .as_ref()
                .is_none_or(|(mean, variance)| channels(mean.len()) && channels(variance.len()));
        if !fits {
            return Err(self.unfit());
        }
        let out = Parts::new(out);
        let found = found.map(|(mean, variance)| (Parts::new(mean), Parts::new(variance)));
        let batch = Batch {
            method: self.method,
            lines,
            x,
            scale,
            shift,
            learned,
            found: &found,
            out: &out,
        };
        if lines.inner == 1 {
            share(threads, schedule, lines.length, ABREAST, |_, range| {
                let mut first = range.start;
                while first < range.end {
                    let width = ABREAST.min(range.end - first);
                    T::on(
                        self.level,
                        Samples {
                            batch,
                            first,
                            width,
                        },
                    );
                    first += width;
                }
            });
        } else {
            share(threads, schedule, lines.length, 1, |_, range| {
                range.for_each(|channel| T::on(self.level, Channel { batch, channel }));
            });
        }
        Ok(())
    }
}

/// What is done to each element of a group: `((x − centre) · root + rest) · scale + shift`, where `root` is one over the
/// deviation and `rest` what the centre, being rounded, misses of the mean.
#[derive(Clone, Copy)]
struct Unit<T> {
    centre: T,
    root: T,
    rest: T,
}

impl<T: Float> Unit<T> {
    #[inline(always)]
    fn new(mean: f64, variance: f64) -> Self {
        let centre = T::narrow(mean);
        let root = (variance + EPSILON).sqrt().recip();
        // An infinite mean that was learned is exact, too.
        let missed = centre.widen() != mean;
        let rest = if missed {
            (centre.widen() - mean) * root
        } else {
            0.0
        };
        Self {
            centre,
            root: T::narrow(root),
            rest: T::narrow(rest),
        }
    }

    #[inline(always)]
    fn apply(self, x: T, scale: T, shift: T) -> T {
        let unit = x.minus(self.centre).times(self.root).plus(self.rest);
        unit.times(scale).plus(shift)
    }
}

/// Rows of the last axis.
struct Rows<'a, T> {
    method: Method,
    x: &'a [T],
    scale: &'a [T],
    /// None for RMS.
    shift: Option<&'a [T]>,
    out: &'a mut [T],
}

impl<T: Float> Job<T> for Rows<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let length = self.scale.len();
        for (x, out) in self.x.chunks(length).zip(self.out.chunks_mut(length)) {
            let elements = out.iter_mut().zip(x).zip(self.scale);
            let Some(shift) = self.shift else {
                // SAFETY: the caller vouches for the instructions.
                let squares = unsafe { fold_run::<V, _, 4>(Squares { centre: T::ZERO }, x) };
                let mean = squares.widen() / length as f64;
                let root = T::narrow((mean + EPSILON).sqrt().recip());
                for ((out, &x), &scale) in elements {
                    *out = x.times(root).times(scale);
                }
                continue;
            };
            // SAFETY: as above.
            let moments = unsafe {
                match self.method {
                    Method::TwoPass => Moments::two_pass::<V>(std::iter::once(x)),
                    Method::Online => Moments::online::<V>(std::iter::once(x)),
                }
            };
            let unit = Unit::new(moments.mean(), moments.variance());
            for (((out, &x), &scale), &shift) in elements.zip(shift) {
                *out = unit.apply(x, scale, shift);
            }
        }
    }
}

/// Means and variances of the channels, where they are written.
type Found<'a, T> = Option<(Parts<'a, T>, Parts<'a, T>)>;

/// A batch: samples x channels x pixels.
#[derive(Clone, Copy)]
struct Batch<'a, T> {
    method: Method,
    lines: Lines,
    x: &'a [T],
    scale: &'a [T],
    shift: &'a [T],
    learned: Option<(&'a [T], &'a [T])>,
    found: &'a Found<'a, T>,
    out: &'a Parts<'a, T>,
}

impl<T: Float> Batch<'_, T> {
    /// What normalises a channel, whose moments are written down if they are outputs.
    #[inline(always)]
    fn unit(&self, channel: usize, (mean, variance): (f64, f64)) -> Unit<T> {
        if let Some((means, variances)) = self.found {
            // SAFETY: one element, of a channel that one thread works on.
            let (to_mean, to_variance) =
                unsafe { (means.part(channel, 1), variances.part(channel, 1)) };
            to_mean.fill(T::narrow(mean));
            to_variance.fill(T::narrow(variance));
        }
        Unit::new(mean, variance)
    }
}

/// A channel of images: its pixels are runs.
struct Channel<'a, T> {
    batch: Batch<'a, T>,
    channel: usize,
}

impl<T: Float> Job<T> for Channel<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let Self { batch, channel } = self;
        let Lines {
            outer,
            length,
            inner,
        } = batch.lines;
        let start = |sample: usize| (sample * length + channel) * inner;
        let runs = (0..outer).map(|sample| &batch.x[start(sample)..][..inner]);
        let moments = match batch.learned {
            Some((mean, variance)) => (mean[channel].widen(), variance[channel].widen()),
            None => {
                // SAFETY: the caller vouches for the instructions.
                let moments = unsafe {
                    match batch.method {
                        Method::TwoPass => Moments::two_pass::<V>(runs.clone()),
                        Method::Online => Moments::online::<V>(runs.clone()),
                    }
                };
                (moments.mean(), moments.variance())
            }
        };
        let unit = batch.unit(channel, moments);
        let (scale, shift) = (batch.scale[channel], batch.shift[channel]);
        for (sample, x) in runs.enumerate() {
            // SAFETY: the pixels of a channel, which one thread works on.
            let out = unsafe { batch.out.part(start(sample), inner) };
            for (out, &x) in out.iter_mut().zip(x) {
                *out = unit.apply(x, scale, shift);
            }
        }
    }
}

/// Channels of one number for each sample, side by side.
struct Samples<'a, T> {
    batch: Batch<'a, T>,
    first: usize,
    width: usize,
}

impl<T: Float> Job<T> for Samples<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let Self {
            batch,
            first,
            width,
        } = self;
        let strip = Strip {
            start: first,
            stride: batch.lines.length,
            length: batch.lines.outer,
            width: width.min(ABREAST),
        };
        let row = |sample| strip.row(batch.x, sample);
        // Few numbers, read often: as `f64`, so that sums over samples keep their digits.
        let (mut means, mut squares) = ([0f64; ABREAST], [0f64; ABREAST]);
        let (means, squares) = (&mut means[..strip.width], &mut squares[..strip.width]);
        let count = strip.length as f64;
        match (batch.learned, batch.method) {
            (Some((mean, _)), _) => {
                for (to, from) in means.iter_mut().zip(&mean[first..]) {
                    *to = from.widen();
                }
            }
            (None, Method::TwoPass) => {
                for sample in 0..strip.length {
                    for (mean, x) in means.iter_mut().zip(row(sample)) {
                        *mean += x.widen();
                    }
                }
                means.iter_mut().for_each(|mean| *mean /= count);
                for sample in 0..strip.length {
                    for ((squares, &mean), x) in squares.iter_mut().zip(&*means).zip(row(sample)) {
                        let off = x.widen() - mean;
                        *squares += off * off;
                    }
                }
            }
            (None, Method::Online) => {
                // Welford's recurrence, all channels in step.
                for sample in 0..strip.length {
                    let weight = ((sample + 1) as f64).recip();
                    let lanes = squares.iter_mut().zip(&mut *means).zip(row(sample));
                    for ((squares, mean), x) in lanes {
                        let off = x.widen() - *mean;
                        *mean += off * weight;
                        *squares += off * (x.widen() - *mean);
                    }
                }
                for (lane, mean) in means
                    .iter_mut()
                    .enumerate()
                    .filter(|lane| !lane.1.is_finite())
                {
                    let sum: f64 = (0..strip.length)
                        .map(|sample| row(sample)[lane].widen())
                        .sum();
                    *mean = sum / count;
                }
            }
        }
        let none = Unit::new(0.0, 0.0);
        let mut units = [none; ABREAST];
        for (lane, unit) in units[..strip.width].iter_mut().enumerate() {
            let variance = match batch.learned {
                Some((_, variance)) => variance[first + lane].widen(),
                None => squares[lane] / count,
            };
            *unit = batch.unit(first + lane, (means[lane], variance));
        }
        let (scale, shift) = (&batch.scale[first..], &batch.shift[first..]);
        for sample in 0..strip.length {
            // SAFETY: the channels of a strip, which one thread works on.
            let out = unsafe { batch.out.part(first + sample * strip.stride, strip.width) };
            let lanes = out.iter_mut().zip(row(sample)).zip(&units);
            for (((out, &x), unit), (&scale, &shift)) in lanes.zip(scale.iter().zip(shift)) {
                *out = unit.apply(x, scale, shift);
            }
        }
    }
}
