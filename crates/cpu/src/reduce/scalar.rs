//! One element after the other, along any strides. Sums of `f32` are kept in `f64`.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use kernelwise_backend::{Call, Fault, Hint, HostKernel, Kernel, Scratch, Setting};
use kernelwise_types::op::{Reduce, ReduceKind};
use kernelwise_types::{
    Element, InvalidKernelId, KernelSpec, LayoutKind, MAX_RANK, Refusal, Technique, TensorView,
    TensorViewMut, Workload,
};

use super::fold::{Fold, Largest, Product, Smallest, Squares, Sum};
use super::kinds::{Kinds, Reducible, finished, is_place};
use super::lanes::Number;
use super::place::{Order, goes_before};
use crate::declare::{Needing, spec};

/// A scalar reduction of elements of type `T`.
pub(super) struct ScalarReduce<T> {
    spec: KernelSpec,
    kinds: &'static Kinds,
    element: PhantomData<fn(T)>,
}

/// One kernel for each group of kinds.
pub(super) fn kernels<T: Reducible>() -> Result<Vec<Arc<dyn HostKernel>>, InvalidKernelId> {
    let kernel = |kinds: &'static Kinds| {
        let spec = spec(
            kinds.operation,
            kinds.dtypes,
            "scalar",
            Technique::Scalar,
            kinds.numerics,
        )?;
        Ok(Arc::new(ScalarReduce::<T> {
            spec: spec.following(LayoutKind::Strided),
            kinds,
            element: PhantomData,
        }) as Arc<dyn HostKernel>)
    };
    T::KINDS.iter().map(kernel).collect()
}

impl<T: Reducible> Kernel for ScalarReduce<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        self.kinds.of(workload).map(drop)
    }

    fn hint(&self) -> Hint {
        Hint::percent(10).best_for(0..=64)
    }
}

impl<T: Reducible> HostKernel for ScalarReduce<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        _setting: &Setting,
        _scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (workload, inputs, outputs) = call.parts();
        let op = self.kinds.of(workload).map_err(|refusal| Fault::Refused {
            kernel: self.spec.id.to_string(),
            refusal,
        })?;
        let ([x], [out]) = (inputs, outputs) else {
            return Err(Fault::kernel(
                &self.spec.id,
                "takes one input and one output",
            ));
        };
        use ReduceKind::{ArgMax, ArgMin, L2, Max, Mean, Min, Prod, Sum as Total};
        let kind = op.kind;
        match kind {
            Total | Mean => each::<T, T>(op, x, out, |row| folded(kind, Sum, row)),
            Prod => each::<T, T>(op, x, out, |row| folded(kind, Product, row)),
            Max => each::<T, T>(op, x, out, |row| folded(kind, Largest, row)),
            Min => each::<T, T>(op, x, out, |row| folded(kind, Smallest, row)),
            L2 => {
                let fold = Squares {
                    centre: T::Wide::ZERO,
                };
                each::<T, T>(op, x, out, |row| folded(kind, fold, row))
            }
            ArgMax => each::<T, i64>(op, x, out, |row| place(Order::Largest, row)),
            ArgMin => each::<T, i64>(op, x, out, |row| place(Order::Smallest, row)),
        }
    }
}

/// The elements of one result.
struct Row<'a, T> {
    first: *const T,
    /// Size and stride of the reduced axes, outermost first.
    axes: &'a [(usize, isize)],
}

impl<T: Copy> Row<'_, T> {
    /// Calls `body` on each element in order.
    #[inline(always)]
    fn for_each(&self, mut body: impl FnMut(T)) {
        let (&(inner, stride), outer) = self.axes.split_last().unwrap_or((&(1, 0), &[]));
        let steps: usize = outer.iter().map(|axis| axis.0).product();
        for step in 0..steps {
            let mut rest = step;
            let mut offset = 0;
            for &(size, stride) in outer.iter().rev() {
                offset += (rest % size) as isize * stride;
                rest /= size;
            }
            for position in 0..inner {
                // SAFETY: the offsets are those of an index inside the shape of the view that `each` took
                // the pointer from.
                body(unsafe { *self.first.offset(offset + position as isize * stride) });
            }
        }
    }

    fn len(&self) -> usize {
        self.axes.iter().map(|axis| axis.0).product()
    }
}

fn folded<T: Number, F: Fold<T::Wide>>(kind: ReduceKind, fold: F, row: &Row<'_, T>) -> T {
    let mut so_far = F::START;
    row.for_each(|element| so_far = fold.take(so_far, element.widen()));
    T::narrow(finished(kind, so_far, row.len()))
}

fn place<T: Number>(order: Order, row: &Row<'_, T>) -> i64 {
    let (mut best, mut place, mut position) = (None, 0, 0);
    row.for_each(|element| {
        if best.is_none_or(|best| goes_before(order, best, element)) {
            (best, place) = (Some(element), position);
        }
        position += 1;
    });
    place
}

/// Makes one result of each row.
fn each<T: Element, R: Element>(
    op: &Reduce,
    x: &TensorView<'_>,
    out: &mut TensorViewMut<'_>,
    make: impl Fn(&Row<'_, T>) -> R,
) -> Result<(), Fault> {
    let from = x.as_ptr::<T>()?;
    let to = out.as_mut_ptr::<R>()?;
    let mut reduced = [(1, 0); MAX_RANK];
    let mut kept = [(1, 0, 0); MAX_RANK];
    let (mut goes, mut stays) = (0, 0);
    let (dims, strides) = (x.shape().dims(), x.layout().strides());
    for (axis, (&size, &stride)) in dims.iter().zip(strides).enumerate() {
        if op.axes.contains(axis) {
            reduced[goes] = (size, stride);
            goes += 1;
        } else {
            let out_stride = out.layout().strides().get(stays).copied();
            kept[stays] = (size, stride, out_stride.unwrap_or(0));
            stays += 1;
        }
    }
    debug_assert!(out.shape().rank() == stays && !is_place(op.kind) | (R::DTYPE == i64::DTYPE));
    let results: usize = kept[..stays].iter().map(|axis| axis.0).product();
    for result in 0..results {
        let (mut rest, mut offset, mut out_offset) = (result, 0, 0);
        for &(size, stride, out_stride) in kept[..stays].iter().rev() {
            let index = (rest % size) as isize;
            offset += index * stride;
            out_offset += index * out_stride;
            rest /= size;
        }
        let row = Row {
            // SAFETY: the offset of an index inside the shape of `x`, zero along the reduced axes.
            first: unsafe { from.offset(offset) },
            axes: &reduced[..goes],
        };
        let value = make(&row);
        // SAFETY: the axes that stay are those of `out`, so this is an index inside its shape.
        unsafe { to.offset(out_offset).write(value) };
    }
    Ok(())
}
