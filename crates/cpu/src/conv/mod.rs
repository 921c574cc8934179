//! Convolutions of images and volumes.
//!
//! | variant | for | how |
//! |---|---|---|
//! | `im2col` | anything | product of the filters and the matrix of windows, packed panel by panel from the image |
//! | `1x1` | filters of one tap, no padding | the same, but the image is the matrix |
//! | `direct` | few channels, many output channels | a block of the result in registers, filters turned first |
//! | `depthwise` | one channel in each group | sums over whole padded planes |
//! | `winograd-2x2`, `winograd-4x4` | 3x3, stride 1 | fewer products, larger errors |
//! | `fft` | large filters, stride 1 | product of spectra, larger errors |
//!
//! Images and volumes share their code ([`geometry`]). Kernels that multiply by zeros where there is padding, or that mix
//! neighbouring windows, leave what is not finite to [`mend`].

mod depthwise;
mod direct;
mod fourier;
mod geometry;
mod im2col;
mod mend;
mod product;
mod tensors;
#[cfg(test)]
mod tests;
mod vector;
mod windows;
mod winograd;

use std::sync::Arc;

use kernelwise_backend::{HostKernel, Plain};
use kernelwise_types::InvalidKernelId;

use crate::gemm::Real;
use crate::isa::Level;

/// The kernels, for the instruction sets this processor has.
pub(crate) fn kernels(levels: &[Level]) -> Result<Vec<Arc<dyn HostKernel>>, InvalidKernelId> {
    let mut kernels = Vec::new();
    for &level in levels {
        for operation in ["conv2d", "conv3d"] {
            kernels.push(im2col::im2col::<f32>(operation, level)?);
            kernels.push(im2col::im2col::<f64>(operation, level)?);
            kernels.push(direct::direct(operation, level)?);
        }
        kernels.extend(winograd::kernels(level)?);
        kernels.extend([
            im2col::one_tap::<f32>("conv2d", level)?,
            im2col::one_tap::<f64>("conv2d", level)?,
            depthwise::depthwise::<f32>(level)?,
            depthwise::depthwise::<f64>(level)?,
        ]);
    }
    if let Some(&widest) = levels.last() {
        kernels.push(fourier::fourier(widest)?);
    }
    Ok(kernels)
}

/// The element types of these kernels.
trait Float: Real + Plain + PartialEq {
    fn is_nan(self) -> bool;

    fn is_finite(self) -> bool;

    /// Lanes of a level whose vectors are so wide that half-empty ones matter; `None` for the others.
    fn wide_lanes(level: Level) -> Option<usize> {
        #[cfg(target_arch = "x86_64")]
        if level.has_avx512() {
            return Some(64 / size_of::<Self>());
        }
        let _ = level;
        None
    }

    /// Copies runs of pixels into a panel, with the best there is for this type and level.
    fn copy_runs(level: Level, copy: &windows::Copy<'_>, image: &[Self], into: &mut [Self]) {
        let _ = level;
        windows::copy_runs(copy, image, into);
    }
}

impl Float for f32 {
    fn is_nan(self) -> bool {
        f32::is_nan(self)
    }

    fn is_finite(self) -> bool {
        f32::is_finite(self)
    }

    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code)]
    fn copy_runs(level: Level, copy: &windows::Copy<'_>, image: &[f32], into: &mut [f32]) {
        if level.has_avx512() && windows::avx512::serves(copy.stride) {
            // SAFETY: a level with AVX-512 exists only on a processor with AVX-512.
            unsafe { windows::avx512::copy_runs(copy, image, into) }
        } else {
            windows::copy_runs(copy, image, into);
        }
    }
}

impl Float for f64 {
    fn is_nan(self) -> bool {
        f64::is_nan(self)
    }

    fn is_finite(self) -> bool {
        f64::is_finite(self)
    }
}
