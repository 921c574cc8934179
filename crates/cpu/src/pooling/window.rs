//! 2x2 and 3x3 windows at stride 2, as most networks have them: rows are joined in registers and parted into even and odd
//! places there; nothing is stored but results. They are for calls without the scratch memory that `separable` joins rows in.
//! A third tap takes a column beyond the vectors, which is joined by itself; whether that still pays is for measuring to say.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use kernelwise_backend::{Call, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Space};
use kernelwise_types::op::{Operation, Pool2d, PoolKind};
use kernelwise_types::{InvalidKernelId, KernelSpec, Machine, Refusal, Technique, Workload};

use super::plane::{PlaneKnobs, fits, name, numerics, problem, seen, store_some};
use crate::declare::{Needing, spec};
use crate::isa::Level;
use crate::pool::share_slice;
use crate::reduce::fold::{Fold, Largest, Sum};
use crate::reduce::lanes::{Job, MOST_LANES, Number, Vector};

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
        match (SIDE, self.level) {
            (_, Level::PORTABLE) => Hint::percent(35),
            (3, _) => Hint::percent(45),
            _ => Hint::percent(55),
        }
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
        let average = op.kind == PoolKind::Avg;
        let share = T::narrow(1.0 / (SIDE * SIDE) as f64);
        for (row, out) in (first..).zip(out.chunks_exact_mut(q)) {
            let plane = &x[row / p * h * w..][..h * w];
            let rows = seen(row % p, 2, SIDE, op.pad[0], h);
            let rows = plane[rows.start * w..rows.end * w].chunks_exact(w);
            for (number, out) in out.chunks_mut(V::LANES).enumerate() {
                let left = 2 * number * V::LANES;
                // SAFETY: the caller vouches for the instructions.
                unsafe {
                    let mut result = windows::<V, F, SIDE>(fold, rows.clone(), left, pad);
                    if average {
                        result = result.times(V::splat(share));
                    }
                    store_some(result, out);
                }
            }
        }
    }
}

/// A vector of windows, the first of which begins at `left` in the padded rows.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn windows<'a, V: Vector, F: Fold<V::Scalar>, const SIDE: usize>(
    fold: F,
    rows: impl Iterator<Item = &'a [V::Scalar]>,
    left: usize,
    pad: usize,
) -> V {
    // Two vectors of columns, and one column more for the third tap of the last window.
    let reach = 2 * V::LANES + if SIDE == 3 { 1 } else { 0 };
    // SAFETY: the caller vouches for the instructions; where memory is read, `reach` elements were found to be there.
    unsafe {
        let mut joined = [V::splat(F::START); 2];
        let mut last = F::START;
        let mut join = |from: *const V::Scalar| {
            for (half, joined) in joined.iter_mut().enumerate() {
                *joined = fold.take_all(*joined, V::load(from.add(half * V::LANES)));
            }
            if SIDE == 3 {
                last = fold.take(last, *from.add(2 * V::LANES));
            }
        };
        for row in rows {
            let inside = left
                .checked_sub(pad)
                .and_then(|left| row.get(left..left + reach));
            if let Some(inside) = inside {
                join(inside.as_ptr());
                continue;
            }
            // At an edge: what there is, between paddings.
            let mut edge = [F::START; 2 * MOST_LANES + 1];
            let skipped = pad.saturating_sub(left).min(edge.len());
            let from = left.saturating_sub(pad).min(row.len());
            let length = (row.len() - from).min(reach - skipped.min(reach));
            edge[skipped..skipped + length].copy_from_slice(&row[from..from + length]);
            join(edge.as_ptr());
        }
        let (even, odd) = joined[0].parted(joined[1]);
        let result = fold.join_all(even, odd);
        if SIDE == 2 {
            return result;
        }
        // The third tap of a window is the first of the next: the even columns, moved down by one.
        let third = even.reversed().moved_up(1, V::splat(last)).reversed();
        fold.join_all(result, third)
    }
}
