//! Small products, without packing: operands are read where they lie, a block of the result stays in registers.
//!
//! `micro` is for products that are one block or two; `unpacked` for those that fit the nearest caches as they are,
//! where copying an operand costs more than it saves. Both run the same tiles (`tile`), of which there are as many as
//! a level has registers for: nothing is computed that does not exist, and no edge is left to slow code.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod blocks;
mod micro;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod square;
#[cfg(test)]
pub(super) mod tests;
pub(super) mod tile;
mod unpacked;

use std::sync::Arc;

use kernelwise_backend::HostKernel;
use kernelwise_types::InvalidKernelId;

use crate::isa::Level;
use micro::Micro;
use tile::{Real, Tiles};
use unpacked::Unpacked;

/// The kernels, for the instruction sets this processor has.
pub(super) fn kernels(levels: &[Level]) -> Result<Vec<Arc<dyn HostKernel>>, InvalidKernelId> {
    let mut kernels: Vec<Arc<dyn HostKernel>> = Vec::new();
    for &level in levels {
        kernels.push(Arc::new(Micro::<f32>::new(level)?));
        kernels.push(Arc::new(Micro::<f64>::new(level)?));
        kernels.push(Arc::new(Unpacked::<f32>::new(level)?));
        kernels.push(Arc::new(Unpacked::<f64>::new(level)?));
    }
    Ok(kernels)
}

/// The tiles of the widest instruction set that a level includes.
macro_rules! tiles {
    ($scalar:ty, $table:ident) => {
        impl Real for $scalar {
            fn tiles(level: Level) -> &'static Tiles<Self> {
                #[cfg(target_arch = "x86_64")]
                if level.has_avx512() {
                    return &avx512::$table;
                } else if level.has_avx2() {
                    return &avx2::$table;
                }
                #[cfg(target_arch = "aarch64")]
                if level != Level::PORTABLE {
                    return &neon::$table;
                }
                let _ = level;
                &portable::$table
            }
        }
    };
}

tiles!(f32, F32);
tiles!(f64, F64);
