//! Reductions: sums, products, extremes and where they are, over any axes.
//!
//! | kernel | serves | how |
//! |---|---|---|
//! | `scalar` | every kind, any strides | one element after the other, `f32` summed in `f64` |
//! | `portable`, `avx2`, `avx512` | every kind | several vectors of partial results, several threads |
//! | `pairwise` | sums, means and lengths of floats | vectors in leaves, leaves in pairs: the smallest error |
//!
//! [`lanes`] and [`fold`] serve the other families that walk along rows, too.

pub(crate) mod fold;
mod frame;
mod kinds;
pub(crate) mod lanes;
mod pairwise;
mod place;
mod scalar;
mod vector;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod trial;

use std::sync::Arc;

use kernelwise_backend::HostKernel;
use kernelwise_types::InvalidKernelId;

use crate::isa::Level;

/// The kernels, for the instruction sets this processor has.
pub(crate) fn kernels(levels: &[Level]) -> Result<Vec<Arc<dyn HostKernel>>, InvalidKernelId> {
    let levels = lanes::distinct(levels);
    let widest = levels.last().copied().unwrap_or(Level::PORTABLE);
    let mut kernels = Vec::new();
    kernels.extend(scalar::kernels::<f32>()?);
    kernels.extend(scalar::kernels::<f64>()?);
    kernels.extend(scalar::kernels::<i32>()?);
    kernels.extend(scalar::kernels::<i64>()?);
    kernels.push(pairwise::kernel::<f32>(widest)?);
    kernels.push(pairwise::kernel::<f64>(widest)?);
    for level in levels {
        kernels.extend(vector::kernels::<f32>(level)?);
        kernels.extend(vector::kernels::<f64>(level)?);
        kernels.extend(vector::kernels::<i32>(level)?);
        kernels.extend(vector::kernels::<i64>(level)?);
    }
    Ok(kernels)
}
