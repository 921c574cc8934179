//! Window by window, along any strides. Sums are kept in `f64`.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use kernelwise_backend::{Call, Fault, Hint, HostKernel, Kernel, Scratch, Setting};
use kernelwise_types::op::PoolKind;
use kernelwise_types::{InvalidKernelId, KernelSpec, LayoutKind, Technique};

use super::plane::{name, numerics, problem, seen};
use crate::declare::{Needing, spec};
use crate::reduce::lanes::Number;

pub(super) struct ScalarPool<T> {
    spec: KernelSpec,
    kind: PoolKind,
    element: PhantomData<fn(T)>,
}

pub(super) fn kernel<T: Number<Wide = f64>>(
    kind: PoolKind,
) -> Result<Arc<dyn HostKernel>, InvalidKernelId> {
    let spec = spec(
        name(kind),
        &[T::DTYPE],
        "scalar",
        Technique::Scalar,
        numerics(kind),
    )?;
    Ok(Arc::new(ScalarPool::<T> {
        spec: spec.following(LayoutKind::Strided),
        kind,
        element: PhantomData,
    }))
}

impl<T: Number<Wide = f64>> Kernel for ScalarPool<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn hint(&self) -> Hint {
        Hint::percent(8)
    }
}

impl<T: Number<Wide = f64>> HostKernel for ScalarPool<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        _setting: &Setting,
        _scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (workload, inputs, outputs) = call.parts();
        let (op, [p, q]) = problem(&self.spec, self.kind, workload)?;
        let ([x], [out]) = (inputs, outputs) else {
            return Err(Fault::kernel(
                &self.spec.id,
                "takes one input and one output",
            ));
        };
        let (from, to) = (x.as_ptr::<T>()?, out.as_mut_ptr::<T>()?);
        let (&[xn, xc, xh, xw], &[on, oc, oh, ow]) = (x.layout().strides(), out.layout().strides())
        else {
            return Err(Fault::kernel(&self.spec.id, "takes images"));
        };
        let taps = (op.r * op.s) as f64;
        for plane in 0..op.n * op.c {
            let (image, channel) = ((plane / op.c) as isize, (plane % op.c) as isize);
            let (x_plane, out_plane) = (image * xn + channel * xc, image * on + channel * oc);
            for (top, left) in (0..p).flat_map(|top| (0..q).map(move |left| (top, left))) {
                let (mut most, mut sum) = (T::LOWEST, 0.0);
                for row in seen(top, op.stride[0], op.r, op.pad[0], op.h) {
                    for column in seen(left, op.stride[1], op.s, op.pad[1], op.w) {
                        let offset = x_plane + row as isize * xh + column as isize * xw;
                        // SAFETY: image, channel, row and column are inside the input's shape.
                        let element = unsafe { *from.offset(offset) };
                        match self.kind {
                            PoolKind::Max => most = most.larger(element),
                            PoolKind::Avg => sum += element.widen(),
                        }
                    }
                }
                let value = match self.kind {
                    PoolKind::Max => most,
                    PoolKind::Avg => T::narrow(sum / taps),
                };
                let offset = out_plane + top as isize * oh + left as isize * ow;
                // SAFETY: image, channel, top and left are inside the output's shape.
                unsafe { to.offset(offset).write(value) };
            }
        }
        Ok(())
    }
}
