//! One element after the other, along any strides. Sums and products of `f32` are kept in `f64`.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use kernelwise_backend::{Call, Fault, Hint, HostKernel, Kernel, Scratch, Setting};
use kernelwise_types::op::{Scan, ScanKind};
use kernelwise_types::{
    InvalidKernelId, KernelSpec, LayoutKind, Refusal, Technique, TensorView, TensorViewMut,
    Workload,
};

use super::Kinds;
use crate::declare::{Needing, spec};
use crate::reduce::fold::{Fold, Largest, Product, Smallest, Sum};
use crate::reduce::lanes::Number;

pub(super) struct SequentialScan<T> {
    spec: KernelSpec,
    kinds: &'static Kinds,
    element: PhantomData<fn(T)>,
}

pub(super) fn kernel<T: Number>(
    kinds: &'static Kinds,
) -> Result<Arc<dyn HostKernel>, InvalidKernelId> {
    let spec = spec(
        kinds.operation,
        &[T::DTYPE],
        "sequential",
        Technique::Scalar,
        kinds.numerics,
    )?;
    Ok(Arc::new(SequentialScan::<T> {
        spec: spec.following(LayoutKind::Strided),
        kinds,
        element: PhantomData,
    }))
}

impl<T: Number> Kernel for SequentialScan<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        self.kinds.of(workload).map(drop)
    }

    fn hint(&self) -> Hint {
        Hint::percent(15)
    }
}

impl<T: Number> HostKernel for SequentialScan<T> {
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
        match op.kind {
            ScanKind::Sum => scan::<T, _>(Sum, op, x, out),
            ScanKind::Prod => scan::<T, _>(Product, op, x, out),
            ScanKind::Max => scan::<T, _>(Largest, op, x, out),
            ScanKind::Min => scan::<T, _>(Smallest, op, x, out),
        }
    }
}

fn scan<T: Number, F: Fold<T::Wide>>(
    fold: F,
    op: &Scan,
    x: &TensorView<'_>,
    out: &mut TensorViewMut<'_>,
) -> Result<(), Fault> {
    let (from, to) = (x.as_ptr::<T>()?, out.as_mut_ptr::<T>()?);
    let dims = op.shape.dims();
    let (x_strides, out_strides) = (x.layout().strides(), out.layout().strides());
    let (Some(&length), Some(&x_step), Some(&out_step)) = (
        dims.get(op.axis),
        x_strides.get(op.axis),
        out_strides.get(op.axis),
    ) else {
        return Ok(());
    };
    let lines = op.shape.elements() / length.max(1);
    for line in 0..lines {
        let (mut rest, mut x_offset, mut out_offset) = (line, 0, 0);
        for axis in (0..dims.len()).rev().filter(|&axis| axis != op.axis) {
            let index = (rest % dims[axis]) as isize;
            x_offset += index * x_strides[axis];
            out_offset += index * out_strides[axis];
            rest /= dims[axis];
        }
        let mut so_far = F::START;
        for place in 0..length {
            let place = if op.reverse {
                length - 1 - place
            } else {
                place
            } as isize;
            // SAFETY: the index of the line, and a place on its axis: inside the shape, which both views have.
            unsafe {
                let element = *from.offset(x_offset + place * x_step);
                let before = so_far;
                so_far = fold.take(so_far, element.widen());
                let value = if op.exclusive { before } else { so_far };
                to.offset(out_offset + place * out_step)
                    .write(T::narrow(value));
            }
        }
    }
    Ok(())
}
