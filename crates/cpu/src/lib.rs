//! Kernels for the processor: for each operation the implementations that win somewhere.
//!
//! Folders are families of operations; each ends in a function `kernels` that lists what it offers, and
//! [`kernels`] is all of them. Around them: [`isa`] (proof that an instruction set is there), `pool` (threads), `gemm` (the packed product that
//! matmul and convolution share).
//!
//! Unsafe code is confined to kernels, the tokens of [`isa`] and the pieces that `pool` makes.

pub mod isa;

mod conv;
mod declare;
mod elementwise;
mod fft;
mod gemm;
mod index;
mod matmul;
mod movement;
mod pool;
mod pooling;
mod reduce;
mod rows;
mod sort;
#[cfg(test)]
mod tests;
mod vector_math;

use std::sync::Arc;

use kernelwise_backend::HostKernel;
use kernelwise_types::InvalidKernelId;

use isa::Level;

/// Every kernel this processor can run, in a fixed order.
pub fn kernels() -> Result<Vec<Arc<dyn HostKernel>>, InvalidKernelId> {
    let levels = Level::all();
    let families = [
        matmul::kernels(&levels)?,
        conv::kernels(&levels)?,
        elementwise::kernels(&levels)?,
        movement::kernels(&levels)?,
        reduce::kernels(&levels)?,
        rows::kernels(&levels)?,
        pooling::kernels(&levels)?,
        sort::kernels(&levels)?,
        index::kernels(&levels)?,
        fft::kernels(&levels)?,
    ];
    Ok(families.into_iter().flatten().collect())
}
