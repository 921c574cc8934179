//! Fourier transforms of rows.
//!
//! | variant | how | best for |
//! |---|---|---|
//! | `rustfft`, `realfft` | the libraries of that name, their plans kept from call to call | rows of any length |
//! | `direct-…` | real rows up to 16 as products with a small matrix, many at a time in vector registers | batches of tiny real rows |
//!
//! Rows are shared among threads, each with scratch memory of its own.
#![allow(unsafe_code)]

mod complex;
mod direct;
mod plans;
mod real;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::sync::Arc;

use kernelwise_backend::{Fault, HostKernel, knobs};
use kernelwise_types::op::{Fft, Operation};
use kernelwise_types::{InvalidKernelId, KernelSpec, Refusal, Workload};
use num_complex::Complex;

use crate::isa::Level;
use complex::ComplexKernel;
use direct::DirectKernel;
use real::RealKernel;

/// The kernels, for the instruction sets this processor has.
pub(crate) fn kernels(levels: &[Level]) -> Result<Vec<Arc<dyn HostKernel>>, InvalidKernelId> {
    let widest = levels.last().copied().unwrap_or(Level::PORTABLE);
    Ok(vec![
        Arc::new(ComplexKernel::<f32>::new()?),
        Arc::new(ComplexKernel::<f64>::new()?),
        Arc::new(RealKernel::<f32>::new()?),
        Arc::new(RealKernel::<f64>::new()?),
        Arc::new(DirectKernel::<f32>::new(widest)?),
        Arc::new(DirectKernel::<f64>::new(widest)?),
    ])
}

knobs! {
    /// How rows are shared out.
    struct FftKnobs {
        /// Threads that transform rows at once.
        threads,
    }
}

/// The numbers transforms are made of.
trait Real: rustfft::FftNum + kernelwise_backend::Plain + std::ops::MulAssign + Default {
    /// Two of them.
    type Complex: kernelwise_backend::Plain;

    /// Complex numbers as the libraries name them.
    fn pairs(values: &[Self::Complex]) -> &[Complex<Self>];

    /// The same for writing.
    fn pairs_mut(values: &mut [Self::Complex]) -> &mut [Complex<Self>];

    /// The nearest to a number.
    fn near(value: f64) -> Self;

    /// `a * b + c`, rounded once.
    fn fused(a: Self, b: Self, c: Self) -> Self;
}

macro_rules! real {
    ($($real:ty),*) => { $(
        impl Real for $real {
            type Complex = Complex<$real>;

            fn pairs(values: &[Complex<$real>]) -> &[Complex<$real>] {
                values
            }

            fn pairs_mut(values: &mut [Complex<$real>]) -> &mut [Complex<$real>] {
                values
            }

            fn near(value: f64) -> Self {
                value as $real
            }

            #[inline(always)]
            fn fused(a: Self, b: Self, c: Self) -> Self {
                a.mul_add(b, c)
            }
        }
    )* };
}

real!(f32, f64);

/// The transform of a workload with the number and length of its rows.
fn problem(workload: &Workload) -> Option<(&Fft, usize, usize)> {
    let Operation::Fft(op) = workload.operation() else {
        return None;
    };
    let &len = op.shape.dims().last()?;
    Some((op, op.shape.elements().checked_div(len)?, len))
}

/// The fault of a call that is not for this kernel.
fn unfit(spec: &KernelSpec) -> Fault {
    Fault::Refused {
        kernel: spec.id.to_string(),
        refusal: Refusal::Shape {
            condition: "needs a Fourier transform of its own element types".to_owned(),
        },
    }
}

/// Memory that threads share, because each keeps to rows of its own.
struct Rows<'a, T> {
    first: *mut T,
    /// Elements of all rows.
    len: usize,
    memory: PhantomData<&'a mut [T]>,
}

// SAFETY: it stands for an exclusive borrow of the rows, of which each thread takes its own.
unsafe impl<T: Send> Sync for Rows<'_, T> {}

impl<'a, T> Rows<'a, T> {
    fn new(rows: &'a mut [T]) -> Self {
        Self {
            first: rows.as_mut_ptr(),
            len: rows.len(),
            memory: PhantomData,
        }
    }

    /// A part of the memory. What lies beyond the end is left out: such a part is shorter than asked for, or empty.
    ///
    /// # Safety
    ///
    /// Nobody else uses that part while the slice lives.
    #[expect(
        clippy::mut_from_ref,
        reason = "threads take parts of one piece of memory"
    )]
    unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        let start = start.min(self.len);
        let len = len.min(self.len - start);
        // SAFETY: inside the memory, which is borrowed for as long; the caller says that this part is theirs.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(start), len) }
    }
}
