//! Matrix products.
//!
//! | variant | where it wins |
//! |---|---|
//! | `packed-…` | everywhere but at the extremes: the engine of [`gemm`](crate::gemm), every tile size a knob |
//! | `batched-…` | stacks of products on several threads |
//! | `splitk-…` | small results of deep products, on several threads |
//! | `micro-…`, `unpacked-…` | small products, where packing costs more than it saves |
//! | `gemv-…` | a matrix by a vector |
//! | `gemm`, `matrixmultiply`, `openblas` | the work of others, to be measured against |

mod batched;
mod gemv;
mod halves;
mod library;
#[cfg(feature = "openblas")]
mod openblas;
mod operands;
mod packed;
mod product;
mod small;
mod split;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use half::{bf16, f16};
use kernelwise_backend::HostKernel;
use kernelwise_types::InvalidKernelId;

use crate::isa::Level;
use batched::Batched;
use halves::PackedHalf;
use library::Library;
use packed::Packed;
use split::SplitDepth;

/// The kernels, for the instruction sets this processor has.
pub(crate) fn kernels(levels: &[Level]) -> Result<Vec<Arc<dyn HostKernel>>, InvalidKernelId> {
    let mut kernels: Vec<Arc<dyn HostKernel>> = Vec::new();
    for &level in levels {
        kernels.push(Arc::new(Packed::<f32>::new(level)?));
        kernels.push(Arc::new(Packed::<f64>::new(level)?));
        kernels.push(Arc::new(PackedHalf::<f16>::new(level)?));
        kernels.push(Arc::new(PackedHalf::<bf16>::new(level)?));
        kernels.push(Arc::new(Batched::<f32>::new(level)?));
        kernels.push(Arc::new(Batched::<f64>::new(level)?));
        kernels.push(Arc::new(SplitDepth::<f32>::new(level)?));
        kernels.push(Arc::new(SplitDepth::<f64>::new(level)?));
    }
    kernels.extend(small::kernels(levels)?);
    kernels.extend(gemv::kernels(levels)?);
    kernels.push(Arc::new(Library::<f32>::gemm()?));
    kernels.push(Arc::new(Library::<f64>::gemm()?));
    kernels.push(Arc::new(Library::<f16>::gemm()?));
    kernels.push(Arc::new(Library::<f32>::matrixmultiply()?));
    kernels.push(Arc::new(Library::<f64>::matrixmultiply()?));
    #[cfg(feature = "openblas")]
    kernels.extend(openblas::kernels()?);
    Ok(kernels)
}
