//! 2x2 and 3x3 windows at stride 2, as most networks have them: rows are joined in registers and parted into even and odd
//! places there; nothing is stored but results.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use kernelwise_backend::{Call, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Space};
use kernelwise_types::op::{Operation, Pool2d, PoolKind};
use kernelwise_types::{InvalidKernelId, KernelSpec, Machine, Refusal, Technique, Workload};

use super::plane::{PlaneKnobs, fits, name, numerics, problem, seen};
use crate::declare::{Needing, spec};
use crate::isa::Level;
use crate::pool::share_slice;
use crate::reduce::fold::{Fold, Largest, Sum};
use crate::reduce::lanes::{Job, Number, Vector};

/// Windows of `SIDE` x `SIDE`: 2 or 3.
pub(super) struct WindowPool<T, const SIDE: usize> {
    spec: KernelSpec,
    kind: PoolKind,
    level: Level,
    element: PhantomData<fn(T)>,
}

pub(super) fn kernel<T: Number<Wide = f64>, const SIDE: usize>(
    kind: PoolKind,
    level: Level,
) -> Result<Arc<dyn HostKernel>, InvalidKernelId> {
    const {
        assert!(
            SIDE == 2 || SIDE == 3,
            "two taps are even and odd, a third is even again"
        )
    };
    let variant = format!("window{SIDE}-{}", level.name());
    let spec = spec(
        name(kind),
        &[T::DTYPE],
        &variant,
        Technique::Vector,
        numerics(kind),
    )?;
    Ok(Arc::new(WindowPool::<T, SIDE> {
        spec: spec.on(level),
        kind,
        level,
        element: PhantomData,
    }))
}

/// Whether it is the window this kernel is made for.
fn suits<const SIDE: usize>(op: &Pool2d) -> Result<(), Refusal> {
    if [op.r, op.s] == [SIDE; 2] && op.stride == [2; 2] {
        return Ok(());
    }
    Err(Refusal::Shape {
        condition: format!("needs a {SIDE}x{SIDE} window at stride 2"),
    })
}

impl<T: Number<Wide = f64>, const SIDE: usize> Kernel for WindowPool<T, SIDE> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        match workload.operation() {
            Operation::Pool2d(op) => suits::<SIDE>(op),
            _ => Ok(()),
        }
    }

    fn space(&self, _workload: &Workload, machine: &Machine) -> Space {
        PlaneKnobs::space(machine)
    }

    fn hint(&self) -> Hint {
        let percent = if self.level == Level::PORTABLE {
            40
        } else {
            75
        };
        Hint::percent(percent)
    }
}

impl<T: Number<Wide = f64>, const SIDE: usize> HostKernel for WindowPool<T, SIDE> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        _scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (workload, inputs, outputs) = call.parts();
        let (op, size) = problem(&self.spec, self.kind, workload)?;
        suits::<SIDE>(&op).map_err(|refusal| Fault::Refused {
            kernel: self.spec.id.to_string(),
            refusal,
        })?;
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
        let [p, q] = size;
        // Rows of results rather than planes: there may be few planes.
        share_slice(threads, schedule, out, q, |position, out| {
            let rows = Rows {
                op: &op,
                p,
                q,
                first: position / q,
                x,
                out,
            };
            match self.kind {
                PoolKind::Max => T::on(self.level, Windows::<_, _, SIDE>(Largest, rows)),
                PoolKind::Avg => T::on(self.level, Windows::<_, _, SIDE>(Sum, rows)),
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
    out: &'a mut [T],
}

struct Windows<'a, T, F, const SIDE: usize>(F, Rows<'a, T>);

impl<T: Number<Wide = f64>, F: Fold<T>, const SIDE: usize> Job<T> for Windows<'_, T, F, SIDE> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let Self(
            fold,
            Rows {
                op,
                p,
                q,
                first,
                x,
                out,
            },
        ) = self;
        let Pool2d { h, w, .. } = *op;
        let pad = op.pad[1];
        let share = match op.kind {
            PoolKind::Max => T::ONE,
            PoolKind::Avg => T::narrow(1.0 / (SIDE * SIDE) as f64),
        };
        let average = op.kind == PoolKind::Avg;
        for (row, out) in (first..).zip(out.chunks_exact_mut(q)) {
            let plane = &x[row / p * h * w..][..h * w];
            let rows = seen(row % p, 2, SIDE, op.pad[0], h);
            let mut at = 0;
            while at < q {
                let left = (2 * at).wrapping_sub(pad);
                // A vector of windows reads two vectors, and for a third tap two more, shifted by two places.
                let reach = 2 * V::LANES + if SIDE == 3 { 2 } else { 0 };
                let inside = 2 * at >= pad && left + reach <= w && at + V::LANES <= q;
                if inside {
                    // SAFETY: all reads are inside a row of the plane, all writes inside the row of results,
                    // as was just asked; the caller vouches for the instructions.
                    unsafe {
                        let mut lanes = [V::splat(F::START); 3];
                        let mut next = V::splat(F::START);
                        for row in rows.clone() {
                            let from = plane.as_ptr().add(row * w + left);
                            lanes[0] = fold.take_all(lanes[0], V::load(from));
                            lanes[1] = fold.take_all(lanes[1], V::load(from.add(V::LANES)));
                            if SIDE == 3 {
                                lanes[2] = fold.take_all(lanes[2], V::load(from.add(2)));
                                next = fold.take_all(next, V::load(from.add(V::LANES + 2)));
                            }
                        }
                        let (even, odd) = lanes[0].parted(lanes[1]);
                        let mut result = fold.join_all(even, odd);
                        if SIDE == 3 {
                            result = fold.join_all(result, lanes[2].parted(next).0);
                        }
                        if average {
                            result = result.times(V::splat(share));
                        }
                        result.store(out.as_mut_ptr().add(at));
                    }
                    at += V::LANES;
                    continue;
                }
                let mut result = F::START;
                for row in rows.clone() {
                    let columns = seen(at, 2, SIDE, pad, w);
                    for &element in &plane[row * w..][..w][columns] {
                        result = fold.take(result, element);
                    }
                }
                out[at] = if average { result.times(share) } else { result };
                at += 1;
            }
        }
    }
}
