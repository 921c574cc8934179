//! Copies and reshapes: the same elements in the same order.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use kernelwise_backend::{
    Axis, Call, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Space, knobs,
};
use kernelwise_types::op::Operation;
use kernelwise_types::{
    Element, InvalidKernelId, KernelSpec, Layout, LayoutKind, Machine, Numerics, Technique,
    TensorView, TensorViewMut, ViewError, Workload,
};

use super::stream::{LINE, Stream, pages};
use super::walk::move_elements;
use super::{Units, of_another_operation, with_units};
use crate::declare::{Needing, spec};
use crate::pool::{self, Schedule, Start, share, share_slice};

knobs! {
    /// How the elements are shared out.
    pub(super) struct Sharing {
        /// Threads that work at once.
        threads,
        /// 0: one piece per thread; 1: more pieces, for whoever is free.
        schedule,
    }
}

impl Sharing {
    /// Any number of threads, either schedule; the schedule of one thread is static.
    pub(super) fn space(machine: &Machine) -> Space {
        Space::of::<Self, 2>([Axis::threads(machine), Axis::switch(false)])
            .with_constraint(pool::SHARED_ONLY, |knobs: Self| {
                knobs.threads > 1 || knobs.schedule == 0
            })
    }

    /// What [`share`] wants to know.
    pub(super) fn of_setting(setting: &Setting) -> (usize, Schedule) {
        let knobs = Self::of(setting);
        (pool::threads(knobs.threads), Schedule::of(knobs.schedule))
    }
}

knobs! {
    /// How the elements are shared out and streamed.
    struct Streaming {
        /// Threads that work at once.
        threads,
        /// 0: one piece per thread; 1: more pieces, for whoever is free.
        schedule,
        /// Pages that a thread works on side by side.
        pages,
    }
}

impl Streaming {
    fn space(machine: &Machine) -> Space {
        let axes = [Axis::threads(machine), Axis::switch(false), pages(machine)];
        Space::of::<Self, 3>(axes).with_constraint(pool::SHARED_ONLY, |knobs: Self| {
            knobs.threads > 1 || knobs.schedule == 0
        })
    }
}

/// Pieces begin at multiples of so many bytes: a page, so that threads do not write to each other's.
const GRAIN: usize = 4096;

/// How the elements move.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way {
    /// As one block of memory.
    Memcpy,
    /// Line by line, whatever the strides.
    Strided,
    /// As one block, past the caches.
    Streaming(Stream),
}

/// A copy or a reshape of one element type.
pub(super) struct Move<T> {
    spec: KernelSpec,
    way: Way,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> Move<T> {
    /// For an operation, `copy` or `reshape`.
    pub(super) fn new(operation: &str, way: Way) -> Result<Self, InvalidKernelId> {
        let made = |variant: &str, technique| {
            spec(
                operation,
                &[T::DTYPE],
                variant,
                technique,
                Numerics::BitIdentical,
            )
        };
        let spec = match way {
            Way::Memcpy => made("memcpy", Technique::Vector)?,
            Way::Strided => made("strided", Technique::Scalar)?.following(LayoutKind::Strided),
            Way::Streaming(stream) => {
                let variant = format!("{}-stream", stream.level().name());
                made(&variant, Technique::Vector)?.on(stream.level())
            }
        };
        Ok(Self {
            spec,
            way,
            element: PhantomData,
        })
    }
}

impl<T: Element> Kernel for Move<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn space(&self, _workload: &Workload, machine: &Machine) -> Space {
        match self.way {
            Way::Memcpy | Way::Strided => Sharing::space(machine),
            Way::Streaming(_) => Streaming::space(machine),
        }
    }

    fn hint(&self) -> Hint {
        // Streaming pays from about where results outgrow the caches of most machines.
        let outgrown = ((32 << 20) / size_of::<T>()) as u64;
        match self.way {
            Way::Memcpy => Hint::percent(80).best_for(0..=outgrown),
            Way::Strided => Hint::percent(25),
            Way::Streaming(_) => Hint::percent(90).best_for(outgrown..=u64::MAX),
        }
    }
}

impl<T: Element> HostKernel for Move<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        _scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (workload, inputs, outputs) = call.parts();
        let (Operation::TensorCopy(_) | Operation::Reshape(_), [input], [output]) =
            (workload.operation(), inputs, outputs)
        else {
            return Err(of_another_operation(&self.spec, workload));
        };
        let (threads, schedule) = Sharing::of_setting(setting);
        let grain = (GRAIN / size_of::<T>()).max(1);
        match self.way {
            Way::Strided => {
                let source = *input.layout();
                // SAFETY: its own layout.
                unsafe { move_all::<T>((input, &source), output, (threads, schedule)) }?
            }
            Way::Memcpy => {
                let (from, to) = (input.as_slice::<T>()?, output.as_mut_slice::<T>()?);
                share_slice(threads, schedule, to, grain, |position, piece| {
                    piece.copy_from_slice(&from[position..position + piece.len()]);
                });
            }
            Way::Streaming(stream) => {
                let stream = stream.side_by_side(Streaming::of(setting).pages);
                let (from, to) = (input.as_slice::<T>()?, output.as_mut_slice::<T>()?);
                share_slice(threads, schedule, to, grain, |position, piece| {
                    stream.copy(&from[position..position + piece.len()], piece);
                    stream.finish();
                });
            }
        }
        Ok(())
    }
}

/// Element by element in the order of both tensors' indices, whatever their strides.
///
/// # Safety
///
/// Every element that `source` reaches from the first of the input is one of the input's.
pub(super) unsafe fn move_all<T: Element>(
    (input, source): (&TensorView<'_>, &Layout),
    output: &mut TensorViewMut<'_>,
    (threads, schedule): (usize, Schedule),
) -> Result<(), ViewError> {
    let elements = output.shape().elements().min(source.shape().elements());
    let target = *output.layout();
    let from = Start::new(input.as_ptr::<T>()?.cast_mut());
    let to = Start::new(output.as_mut_ptr::<T>()?);
    struct Lines<'a, T> {
        from: (Start<T>, &'a Layout),
        to: (Start<T>, &'a Layout),
        range: std::ops::Range<usize>,
    }
    impl<T> Units for Lines<'_, T> {
        fn with<U: Copy>(self) {
            let from = (self.from.0.at(0).cast::<U>().cast_const(), self.from.1);
            let to = (self.to.0.at(0).cast::<U>(), self.to.1);
            // SAFETY: the layouts stay inside the memory of the views, which do not overlap (`Call`), the
            // range is inside both shapes, and `U` has the size of the element type.
            unsafe { move_elements(from, to, self.range) }
        }
    }
    share(threads, schedule, elements, GRAIN / LINE, |_, range| {
        with_units(
            size_of::<T>(),
            Lines {
                from: (from, source),
                to: (to, &target),
                range,
            },
        );
    });
    Ok(())
}
