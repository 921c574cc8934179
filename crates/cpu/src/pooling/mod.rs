//! Pooling of images: the largest or the mean of each window.
//!
//! | kernel | serves | how |
//! |---|---|---|
//! | `scalar` | any strides | window by window |
//! | `separable-…` | any window | rows of the window first, then columns: `r + s` steps for each result in place of `r · s` |
//! | `window2-…`, `window3-…` | 2x2 and 3x3 windows at stride 2 | both at once, in registers |
//!
//! Rows of results are shared out among threads, whichever image and channel they belong to: there may be few of those.

mod plane;
mod scalar;
mod separable;
mod window;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use kernelwise_backend::HostKernel;
use kernelwise_types::InvalidKernelId;

use crate::isa::Level;
use crate::reduce::lanes::distinct;

/// The kernels, for the instruction sets this processor has.
pub(crate) fn kernels(levels: &[Level]) -> Result<Vec<Arc<dyn HostKernel>>, InvalidKernelId> {
    use kernelwise_types::op::PoolKind::{Avg, Max};
    let mut kernels = Vec::new();
    for kind in [Max, Avg] {
        kernels.push(scalar::kernel::<f32>(kind)?);
        kernels.push(scalar::kernel::<f64>(kind)?);
        for level in distinct(levels) {
            kernels.push(separable::kernel::<f32>(kind, level)?);
            kernels.push(separable::kernel::<f64>(kind, level)?);
            kernels.push(window::kernel::<f32, 2>(kind, level)?);
            kernels.push(window::kernel::<f64, 2>(kind, level)?);
            kernels.push(window::kernel::<f32, 3>(kind, level)?);
            kernels.push(window::kernel::<f64, 3>(kind, level)?);
        }
    }
    Ok(kernels)
}
