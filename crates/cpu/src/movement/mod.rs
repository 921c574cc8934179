//! Moving elements: copy, reshape, transpose.
//!
//! Nothing is computed, so an element is a number of bytes: one body per size serves all element types, and
//! every kernel gives the same bits as the reference. What differs is the way through memory: whole blocks, lines,
//! tiles, or past the caches.

use std::sync::Arc;

use half::{bf16, f16};
use kernelwise_backend::{Fault, HostKernel};
use kernelwise_types::{Element, InvalidKernelId, KernelSpec, Refusal, Workload};
use num_complex::Complex;

use crate::isa::Level;

mod axes;
mod copy;
pub(crate) mod stream;
mod tile;
mod transpose;
pub(crate) mod walk;

#[cfg(test)]
mod tests;

use copy::{Move, Way};
use stream::Stream;
use transpose::{Path, Turn};

/// The kernels, for the instruction sets this processor has.
pub(crate) fn kernels(levels: &[Level]) -> Result<Vec<Arc<dyn HostKernel>>, InvalidKernelId> {
    let mut kernels = Vec::new();
    macro_rules! of_each {
        ($($element:ty),*) => { $(of_one::<$element>(levels, &mut kernels)?;)* };
    }
    of_each!(
        f16,
        bf16,
        f32,
        f64,
        i8,
        i16,
        i32,
        i64,
        u8,
        u16,
        u32,
        u64,
        bool,
        Complex<f32>,
        Complex<f64>
    );
    Ok(kernels)
}

fn of_one<T: Element>(
    levels: &[Level],
    kernels: &mut Vec<Arc<dyn HostKernel>>,
) -> Result<(), InvalidKernelId> {
    for operation in ["copy", "reshape"] {
        let streams = levels.iter().filter_map(|level| Stream::on(*level));
        for way in [Way::Memcpy, Way::Strided]
            .into_iter()
            .chain(streams.map(Way::Streaming))
        {
            kernels.push(Arc::new(Move::<T>::new(operation, way)?));
        }
    }
    let registers = levels
        .iter()
        .filter_map(|level| Path::registers::<T>(*level));
    for path in [Path::Naive, Path::Blocked].into_iter().chain(registers) {
        kernels.push(Arc::new(Turn::<T>::new(path)?));
    }
    Ok(())
}

/// Something that is done to elements of any type of some size.
trait Units {
    /// Does it; `U` stands for the element.
    fn with<U: Copy>(self);
}

/// Does it with an unsigned integer of as many bytes. Element types have 1, 2, 4, 8 or 16.
fn with_units(bytes: usize, units: impl Units) {
    match bytes {
        1 => units.with::<u8>(),
        2 => units.with::<u16>(),
        4 => units.with::<u32>(),
        8 => units.with::<u64>(),
        _ => units.with::<u128>(),
    }
}

/// The fault of a kernel that was called with another operation than its own.
fn of_another_operation(spec: &KernelSpec, workload: &Workload) -> Fault {
    Fault::Refused {
        kernel: spec.id.to_string(),
        refusal: Refusal::Operation {
            kernel: spec.id.operation().to_owned(),
            workload: workload.operation().to_string(),
        },
    }
}
