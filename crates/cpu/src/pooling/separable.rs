//! Windows in two steps: the rows that a row of results sees are joined into one, then each result joins its columns of it.
//!
//! The joined row stands in scratch memory between paddings, so that no window needs to know where the image ends. Results are
//! neighbours in vectors; at stride 2 two vectors are parted into even and odd places.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use kernelwise_backend::{
    Call, Carver, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Space,
};
use kernelwise_types::op::{Operation, Pool2d, PoolKind};
use kernelwise_types::units::Bytes;
use kernelwise_types::{InvalidKernelId, KernelSpec, Machine, Technique, Workload};

use super::plane::{PlaneKnobs, fits, name, numerics, problem, seen, store_some};
use crate::declare::{Needing, spec};
use crate::isa::Level;
use crate::pool::{most_pieces, share};
use crate::reduce::fold::{Fold, Largest, Sum};
use crate::reduce::lanes::{Job, MOST_LANES, Number, Vector};
use crate::rows::lines::Parts;

pub(super) struct SeparablePool<T> {
    spec: KernelSpec,
    kind: PoolKind,
    level: Level,
    element: PhantomData<fn(T)>,
}

pub(super) fn kernel<T: Number<Wide = f64>>(
    kind: PoolKind,
    level: Level,
) -> Result<Arc<dyn HostKernel>, InvalidKernelId> {
    let variant = format!("separable-{}", level.name());
    let spec = spec(
        name(kind),
        &[T::DTYPE],
        &variant,
        Technique::Algorithmic,
        numerics(kind),
    )?;
    Ok(Arc::new(SeparablePool::<T> {
        spec: spec.on(level),
        kind,
        level,
        element: PhantomData,
    }))
}

/// Elements of the joined row with its paddings, and room to read two vectors from any place in it.
fn joined_width(op: &Pool2d) -> usize {
    let padded = op.pad[1].saturating_mul(2).saturating_add(op.w);
    padded.saturating_add(2 * MOST_LANES)
}

impl<T: Number<Wide = f64>> Kernel for SeparablePool<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn space(&self, _workload: &Workload, machine: &Machine) -> Space {
        PlaneKnobs::space(machine)
    }

    /// A joined row for each piece of the work.
    fn workspace(&self, workload: &Workload, setting: &Setting) -> Bytes {
        let Operation::Pool2d(op) = workload.operation() else {
            return Bytes(0);
        };
        let (threads, schedule) = PlaneKnobs::of(setting).crew();
        Carver::room::<T>(joined_width(op).saturating_mul(most_pieces(threads, schedule)))
    }

    fn hint(&self) -> Hint {
        let percent = if self.level == Level::PORTABLE {
            30
        } else {
            55
        };
        Hint::percent(percent)
    }
}

impl<T: Number<Wide = f64>> HostKernel for SeparablePool<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (workload, inputs, outputs) = call.parts();
        let (op, size) = problem(&self.spec, self.kind, workload)?;
        let ([x], [out]) = (inputs, outputs) else {
            return Err(Fault::kernel(
                &self.spec.id,
                "takes one input and one output",
            ));
        };
        let (x, out) = (x.as_slice::<T>()?, out.as_mut_slice::<T>()?);
        if !fits(&op, size, x.len(), out.len()) {
            return Err(Fault::kernel(
                &self.spec.id,
                "the tensors do not fit the images",
            ));
        }
        let (threads, schedule) = PlaneKnobs::of(setting).crew();
        let width = joined_width(&op);
        let pieces = most_pieces(threads, schedule);
        let room = width.checked_mul(pieces);
        let joined = Parts::new(scratch.slice::<T>(room.unwrap_or(usize::MAX))?);
        let out = Parts::new(out);
        let [p, q] = size;
        // Rows of results rather than planes: there may be few planes.
        share(threads, schedule, op.n * op.c * p, 1, |piece, rows| {
            // SAFETY: the number of a piece is its own, and so are its rows of results.
            let (joined, out) = unsafe {
                (
                    joined.part(piece * width, width),
                    out.part(rows.start * q, rows.len() * q),
                )
            };
            let job = Rows {
                op: &op,
                p,
                q,
                first: rows.start,
                x,
                joined,
                out,
            };
            match self.kind {
                PoolKind::Max => T::on(
                    self.level,
                    Pooled {
                        fold: Largest,
                        rows: job,
                    },
                ),
                PoolKind::Avg => T::on(
                    self.level,
                    Pooled {
                        fold: Sum,
                        rows: job,
                    },
                ),
            }
        });
        Ok(())
    }
}

/// Some rows of results.
struct Rows<'a, T> {
    op: &'a Pool2d,
    p: usize,
    q: usize,
    /// The first of them, counted through all planes.
    first: usize,
    x: &'a [T],
    joined: &'a mut [T],
    out: &'a mut [T],
}

struct Pooled<'a, T, F> {
    fold: F,
    rows: Rows<'a, T>,
}

impl<T: Number<Wide = f64>, F: Fold<T>> Job<T> for Pooled<'_, T, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let fold = self.fold;
        let Rows {
            op,
            p,
            q,
            first,
            x,
            joined,
            out,
        } = self.rows;
        joined.fill(F::START);
        let pad = op.pad[1];
        for (row, out) in (first..).zip(out.chunks_exact_mut(q)) {
            let plane = &x[row / p * op.h * op.w..][..op.h * op.w];
            let image = &mut joined[pad..pad + op.w];
            let mut rows = seen(row % p, op.stride[0], op.r, op.pad[0], op.h);
            if let Some(first) = rows.next() {
                image.copy_from_slice(&plane[first * op.w..][..op.w]);
            }
            for row in rows {
                for (joined, &element) in image.iter_mut().zip(&plane[row * op.w..][..op.w]) {
                    *joined = fold.take(*joined, element);
                }
            }
            // SAFETY: the caller vouches for the instructions; windows end inside the padded row, beyond
            // which there is room for two vectors.
            unsafe { across::<V, F>(fold, op.stride[1], op.s, joined, out) };
            if op.kind == PoolKind::Avg {
                let taps = T::narrow(1.0 / (op.r * op.s) as f64);
                for out in out {
                    *out = out.times(taps);
                }
            }
        }
    }
}

/// Joins `taps` neighbours in `joined` for each result, results `stride` apart.
///
/// # Safety
/// The processor has the instructions of `V`. The last window ends at least two vectors before the end of `joined`.
#[inline(always)]
unsafe fn across<V: Vector, F: Fold<V::Scalar>>(
    fold: F,
    stride: usize,
    taps: usize,
    joined: &[V::Scalar],
    out: &mut [V::Scalar],
) {
    if stride > 2 {
        for (at, out) in out.iter_mut().enumerate() {
            let window = &joined[at * stride..][..taps];
            *out = window
                .iter()
                .fold(F::START, |so_far, &x| fold.take(so_far, x));
        }
        return;
    }
    let mut at = 0;
    while at < out.len() {
        // SAFETY: the first window begins at `at · stride` and ends two vectors before the end of `joined`; what is
        // read from each of its taps on is less.
        let result: V = unsafe {
            let from = joined.as_ptr().add(at * stride);
            debug_assert!(at * stride + taps - 1 + stride * V::LANES <= joined.len());
            let load = |tap: usize| V::load(from.add(tap));
            let mut result = V::splat(F::START);
            if stride == 1 {
                for tap in 0..taps {
                    result = fold.take_all(result, load(tap));
                }
            } else {
                for tap in (0..taps).step_by(2) {
                    let (even, odd) = load(tap).parted(load(tap + V::LANES));
                    result = fold.take_all(result, even);
                    if tap + 1 < taps {
                        result = fold.take_all(result, odd);
                    }
                }
            }
            result
        };
        // SAFETY: the caller vouches for the instructions.
        unsafe { store_some(result, &mut out[at..]) };
        at += V::LANES;
    }
}
