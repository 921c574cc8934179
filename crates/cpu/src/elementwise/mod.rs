//! Element by element: chains of steps and activation functions.
//!
//! A chain costs what its operands cost to move, so all its steps are done to a block of elements before the
//! next block is looked at: memory is read and written once, and what lies between two steps never leaves the
//! nearest cache. Blocks are vector code over slices ([`loops`]); frequent pairs of steps are one loop, and so is any
//! chain of light steps whose results go past the caches ([`light`]). An activation is a chain of one step.
//!
//! | variant | operands | arithmetic |
//! |---|---|---|
//! | `scalar` | any strides | in `f64`, rounded at the end: the bits of the reference |
//! | a level | without gaps | in the element type, rounded at every step |
//! | a level with `-stream` | without gaps | the same, results past the caches |

use std::sync::Arc;

use half::{bf16, f16};
use kernelwise_backend::{Fault, HostKernel};
use kernelwise_types::op::{Operation, Step, Steps};
use kernelwise_types::{InvalidKernelId, KernelSpec, Refusal, Shape, Workload};

use crate::isa::Level;
use crate::movement::stream::Stream;

mod chain;
mod float;
mod fused;
mod integer;
mod light;
mod loops;
mod past;
mod scalar;

#[cfg(test)]
mod tests;

use fused::{Fused, Stores};
use loops::Stepped;
use scalar::{Single, Wide};

/// The kernels, for the instruction sets this processor has.
pub(crate) fn kernels(levels: &[Level]) -> Result<Vec<Arc<dyn HostKernel>>, InvalidKernelId> {
    let mut kernels = Vec::new();
    scalar_of::<f16>(&mut kernels)?;
    scalar_of::<bf16>(&mut kernels)?;
    floats::<f32>(levels, &mut kernels)?;
    floats::<f64>(levels, &mut kernels)?;
    // Integers: what every processor has, and the best of this one.
    let widest = &levels[levels.len().saturating_sub(1)..];
    let few: Vec<Level> = match widest {
        [level] if *level != Level::PORTABLE => vec![Level::PORTABLE, *level],
        _ => vec![Level::PORTABLE],
    };
    macro_rules! integers {
        ($($integer:ty),*) => {
            $(
                scalar_of::<$integer>(&mut kernels)?;
                vector_of::<$integer>(few.iter().map(|level| (*level, Stores::Plain)), &mut kernels)?;
            )*
        };
    }
    integers!(i8, i16, i32, i64, u8, u16, u32, u64);
    Ok(kernels)
}

fn floats<T: Stepped + Wide>(
    levels: &[Level],
    kernels: &mut Vec<Arc<dyn HostKernel>>,
) -> Result<(), InvalidKernelId> {
    scalar_of::<T>(kernels)?;
    let plain = levels.iter().map(|level| (*level, Stores::Plain));
    let streaming = levels.iter().filter_map(|level| {
        let stream = Stream::on(*level)?;
        Some((*level, Stores::Streaming(stream)))
    });
    vector_of::<T>(plain.chain(streaming), kernels)
}

fn scalar_of<T: Wide>(kernels: &mut Vec<Arc<dyn HostKernel>>) -> Result<(), InvalidKernelId> {
    for operation in operations_on(T::DTYPE) {
        kernels.push(Arc::new(Single::<T>::new(operation)?));
    }
    Ok(())
}

fn vector_of<T: Stepped>(
    ways: impl Iterator<Item = (Level, Stores)> + Clone,
    kernels: &mut Vec<Arc<dyn HostKernel>>,
) -> Result<(), InvalidKernelId> {
    for operation in operations_on(T::DTYPE) {
        for (level, stores) in ways.clone() {
            kernels.push(Arc::new(Fused::<T>::new(operation, level, stores)?));
        }
    }
    Ok(())
}

/// Unsigned integers have no activation functions.
fn operations_on(dtype: kernelwise_types::DType) -> &'static [&'static str] {
    match dtype.class() {
        kernelwise_types::DTypeClass::Unsigned => &["elementwise"],
        _ => &["elementwise", "activation"],
    }
}

/// The steps and the shape of a chain or of an activation; `None` for other operations.
fn steps_of(workload: &Workload) -> Option<(Steps, Shape)> {
    match workload.operation() {
        Operation::Elementwise(chain) => Some((chain.steps, chain.shape)),
        Operation::Activation(activation) => {
            let step = Step::Activation(activation.kind);
            Some((Steps::new(&[step]).ok()?, activation.shape))
        }
        _ => None,
    }
}

/// The fault of a kernel that was called with an operation, or a step of it, that is not its own.
fn of_another_operation(spec: &KernelSpec, workload: &Workload) -> Fault {
    Fault::Refused {
        kernel: spec.id.to_string(),
        refusal: Refusal::Operation {
            kernel: spec.id.operation().to_owned(),
            workload: workload.operation().to_string(),
        },
    }
}
