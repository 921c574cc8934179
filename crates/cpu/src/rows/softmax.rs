//! Softmax and its logarithm.
//!
//! *Two-pass* finds the largest element first, then writes exponentials and sums them, then divides: the input is read twice
//! and the output written twice. *Online* keeps a running maximum and a sum that is scaled down whenever the maximum grows
//! (Milakov and Gimelshein, "Online normalizer calculation for softmax"), block by block; then every exponential is computed again:
//! more arithmetic, one reading and one writing less. It is there for machines whose memory is slow against their arithmetic;
//! measuring decides.
//!
//! Lines that are not runs of memory are worked on side by side, vector lanes across them.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use kernelwise_backend::{Call, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Space};
use kernelwise_types::op::{Operation, SoftmaxKind};
use kernelwise_types::{InvalidKernelId, KernelSpec, Machine, Numerics, Technique, Workload};

use super::float::{Float, exp};
use super::lines::{ABREAST, Lines, Parts, Strip};
use super::{Method, RowKnobs, of_another_operation};
use crate::declare::{Needing, spec};
use crate::isa::Level;
use crate::pool::{share, share_slice};
use crate::reduce::fold::{Largest, Sum, fold_run};
use crate::reduce::lanes::{Job, Vector};

/// Elements of a row that are worked on while they are in the nearest cache.
const BLOCK: usize = 512;

pub(super) struct SoftmaxRows<T> {
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
        "softmax",
        &[T::DTYPE],
        &variant,
        Technique::Vector,
        Numerics::Reordered,
    )?;
    Ok(Arc::new(SoftmaxRows::<T> {
        spec: spec.on(level),
        method,
        level,
        element: PhantomData,
    }))
}

impl<T: Float> Kernel for SoftmaxRows<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn space(&self, _workload: &Workload, machine: &Machine) -> Space {
        RowKnobs::space(machine)
    }

    fn hint(&self) -> Hint {
        match (self.method, self.level) {
            (_, Level::PORTABLE) => Hint::percent(15),
            (Method::TwoPass, _) => Hint::percent(45).best_for(0..=1 << 20),
            (Method::Online, _) => Hint::percent(35).best_for(1 << 20..=u64::MAX),
        }
    }
}

impl<T: Float> HostKernel for SoftmaxRows<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        _scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (workload, inputs, outputs) = call.parts();
        let Operation::Softmax(op) = workload.operation() else {
            return Err(of_another_operation(&self.spec, workload));
        };
        let ([x], [out]) = (inputs, outputs) else {
            return Err(Fault::kernel(
                &self.spec.id,
                "takes one input and one output",
            ));
        };
        let (x, out) = (x.as_slice::<T>()?, out.as_mut_slice::<T>()?);
        let lines = Lines::along(&op.shape, op.axis);
        if lines.elements() != x.len() || x.len() != out.len() {
            return Err(Fault::kernel(
                &self.spec.id,
                "the tensors do not fit the shape",
            ));
        }
        let (kind, method) = (op.kind, self.method);
        let (threads, schedule) = RowKnobs::of(setting).crew();
        if lines.inner == 1 {
            share_slice(threads, schedule, out, lines.length, |first, out| {
                let x = &x[first..][..out.len()];
                let length = lines.length;
                T::on(
                    self.level,
                    Rows {
                        kind,
                        method,
                        length,
                        x,
                        out,
                    },
                );
            });
        } else {
            let out = Parts::new(out);
            share(threads, schedule, lines.strips(), 1, |_, strips| {
                for strip in strips.map(|number| lines.strip(number)) {
                    let out = &out;
                    T::on(
                        self.level,
                        Columns {
                            kind,
                            method,
                            strip,
                            x,
                            out,
                        },
                    );
                }
            });
        }
        Ok(())
    }
}

/// Lines that are runs of memory.
struct Rows<'a, T> {
    kind: SoftmaxKind,
    method: Method,
    length: usize,
    x: &'a [T],
    out: &'a mut [T],
}

impl<T: Float> Job<T> for Rows<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let rows = self.x.chunks(self.length);
        for (x, out) in rows.zip(self.out.chunks_mut(self.length)) {
            // SAFETY: the caller vouches for the instructions.
            let (most, total) = unsafe {
                match (self.method, self.kind) {
                    (Method::TwoPass, SoftmaxKind::Plain) => {
                        let most = fold_run::<V, _, 4>(Largest, x);
                        (most, exponentials::<V>(x, most, out))
                    }
                    (Method::TwoPass, SoftmaxKind::Log) => {
                        let most = fold_run::<V, _, 4>(Largest, x);
                        let blocks = x.chunks(BLOCK);
                        (most, blocks.map(|x| block_total::<V>(x, most)).sum())
                    }
                    (Method::Online, _) => running::<V>(x),
                }
            };
            // The largest is taken off each element; where it is not finite, nothing is left.
            if !most.is_finite() {
                out.fill(T::NAN);
                continue;
            }
            match (self.kind, self.method) {
                (SoftmaxKind::Log, _) => {
                    let total = T::narrow(total.ln());
                    for (out, &x) in out.iter_mut().zip(x) {
                        *out = x.minus(most).minus(total);
                    }
                }
                (SoftmaxKind::Plain, Method::TwoPass) => {
                    let share = T::narrow(total.recip());
                    for out in out {
                        *out = out.times(share);
                    }
                }
                (SoftmaxKind::Plain, Method::Online) => {
                    let share = T::narrow(total.recip());
                    for (out, &x) in out.iter_mut().zip(x) {
                        *out = exp::<V>(x.minus(most)).times(share);
                    }
                }
            }
        }
    }
}

/// Writes the exponentials of a row, and sums them.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn exponentials<V: Vector<Scalar: Float>>(
    x: &[V::Scalar],
    most: V::Scalar,
    out: &mut [V::Scalar],
) -> f64 {
    use crate::reduce::lanes::Number;
    let mut total = 0.0;
    for (x, out) in x.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
        for (out, &x) in out.iter_mut().zip(x) {
            *out = exp::<V>(x.minus(most));
        }
        // SAFETY: the caller vouches for the instructions.
        total += unsafe { fold_run::<V, _, 4>(Sum, out) }.widen();
    }
    total
}

/// The sum of the exponentials of a block.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn block_total<V: Vector<Scalar: Float>>(x: &[V::Scalar], most: V::Scalar) -> f64 {
    use crate::reduce::lanes::Number;
    let mut powers = [V::Scalar::ZERO; BLOCK];
    let powers = &mut powers[..x.len().min(BLOCK)];
    for (power, &x) in powers.iter_mut().zip(x) {
        *power = exp::<V>(x.minus(most));
    }
    // SAFETY: the caller vouches for the instructions.
    unsafe { fold_run::<V, _, 4>(Sum, powers) }.widen()
}

/// The largest element and the sum of exponentials below it, in one reading.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn running<V: Vector<Scalar: Float>>(x: &[V::Scalar]) -> (V::Scalar, f64) {
    use crate::reduce::lanes::Number;
    let (mut most, mut total) = (V::Scalar::LOWEST, 0.0);
    for x in x.chunks(BLOCK) {
        // SAFETY: the caller vouches for the instructions.
        let larger = most.larger(unsafe { fold_run::<V, _, 4>(Largest, x) });
        if larger == V::Scalar::LOWEST {
            // Nothing but −∞ so far, and exponentials of zero.
            continue;
        }
        if !larger.is_finite() {
            return (larger, total);
        }
        if larger > most {
            total *= (most.widen() - larger.widen()).exp();
            most = larger;
        }
        // SAFETY: as above.
        total += unsafe { block_total::<V>(x, most) };
    }
    (most, total)
}

/// Lines side by side.
struct Columns<'a, T> {
    kind: SoftmaxKind,
    method: Method,
    strip: Strip,
    x: &'a [T],
    out: &'a Parts<'a, T>,
}

impl<T: Float> Job<T> for Columns<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let Self {
            kind,
            method,
            strip,
            x,
            out,
        } = self;
        let row = |row| strip.row(x, row);
        // SAFETY: strips do not overlap, and each is worked on by one thread, row by row.
        let out = |row| unsafe { out.part(strip.start + row * strip.stride, strip.width) };
        let mut most = [T::LOWEST; ABREAST];
        let mut total = [T::ZERO; ABREAST];
        let most = &mut most[..strip.width];
        let total = &mut total[..strip.width];
        if method == Method::TwoPass {
            for r in 0..strip.length {
                for (most, &x) in most.iter_mut().zip(row(r)) {
                    *most = most.larger(x);
                }
            }
            for r in 0..strip.length {
                let sums = total.iter_mut().zip(&*most).zip(row(r));
                if kind == SoftmaxKind::Log {
                    for ((total, &most), &x) in sums {
                        *total = total.plus(exp::<V>(x.minus(most)));
                    }
                } else {
                    for (((total, &most), &x), out) in sums.zip(out(r)) {
                        *out = exp::<V>(x.minus(most));
                        *total = total.plus(*out);
                    }
                }
            }
        } else {
            for r in 0..strip.length {
                for ((total, most), &x) in total.iter_mut().zip(&mut *most).zip(row(r)) {
                    let larger = most.larger(x);
                    // While there is nothing but −∞, exponentials are zero whatever is taken off.
                    let off = if larger == T::LOWEST { T::ZERO } else { larger };
                    let before = total.times(exp::<V>(most.minus(off)));
                    *total = before.plus(exp::<V>(x.minus(off)));
                    *most = larger;
                }
            }
        }
        for total in &mut *total {
            *total = match kind {
                SoftmaxKind::Plain => T::narrow(total.widen().recip()),
                SoftmaxKind::Log => T::narrow(total.widen().ln()),
            };
        }
        for r in 0..strip.length {
            let lanes = out(r).iter_mut().zip(row(r)).zip(most.iter().zip(&*total));
            match (kind, method) {
                (SoftmaxKind::Log, _) => {
                    for ((out, &x), (&most, &total)) in lanes {
                        *out = x.minus(most).minus(total);
                    }
                }
                (SoftmaxKind::Plain, Method::TwoPass) => {
                    for ((out, _), (_, &share)) in lanes {
                        *out = out.times(share);
                    }
                }
                (SoftmaxKind::Plain, Method::Online) => {
                    for ((out, &x), (&most, &share)) in lanes {
                        *out = exp::<V>(x.minus(most)).times(share);
                    }
                }
            }
        }
    }
}
