//! OpenBLAS, where it is installed. It is found when the kernels are listed and never linked; without it there is
//! nothing to offer.
//!
//! Its products run on the threads of [`pool`](crate::pool), as all kernels do, and not on its own: those have one number for
//! the whole process, over which two callers would quarrel, and keep turning for a while after a product, in the way of whoever
//! computes next.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::{Arc, OnceLock};

use kernelwise_backend::{Call, Fault, Hint, HostKernel, Kernel, Scratch, Setting, Space};
use kernelwise_rivals::{OpenBlas, Operand};
use kernelwise_types::{
    Element, InvalidKernelId, KernelSpec, Machine, Numerics, Refusal, Workload,
};

use super::library::{Function, Library, Matrix, Single};
use super::operands::refused;
use super::product::problem;

/// The library, looked for once.
fn library() -> Option<&'static OpenBlas> {
    static LIBRARY: OnceLock<Option<OpenBlas>> = OnceLock::new();
    LIBRARY.get_or_init(|| OpenBlas::load().ok()).as_ref()
}

/// The kernels; none where the library is not installed, or may not be called by several threads.
pub(super) fn kernels() -> Result<Vec<Arc<dyn HostKernel>>, InvalidKernelId> {
    Ok(match library().filter(|blas| blas.is_shareable()) {
        None => Vec::new(),
        Some(_) => vec![
            Arc::new(Blas::<f32>::new(sgemm)?),
            Arc::new(Blas::<f64>::new(dgemm)?),
        ],
    })
}

/// The kernel for one element type.
struct Blas<T>(Library<T>);

impl<T: Element> Blas<T> {
    fn new(function: Function<T>) -> Result<Self, InvalidKernelId> {
        Library::new("openblas", Numerics::Reordered, function, 80).map(Self)
    }
}

/// The C interface takes sizes as 32-bit integers.
fn narrow(workload: &Workload) -> bool {
    problem(workload).is_some_and(|product| {
        let sizes = [product.m, product.n, product.k];
        sizes.iter().all(|size| c_int::try_from(*size).is_ok())
    })
}

const TOO_LONG: &str = "needs sides below 2^31";

impl<T: Element> Kernel for Blas<T> {
    fn spec(&self) -> &KernelSpec {
        self.0.spec()
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        match narrow(workload) {
            true => Ok(()),
            false => Err(Refusal::Shape {
                condition: TOO_LONG.to_owned(),
            }),
        }
    }

    fn space(&self, workload: &Workload, machine: &Machine) -> Space {
        self.0.space(workload, machine)
    }

    fn hint(&self) -> Hint {
        self.0.hint()
    }
}

impl<T: Element> HostKernel for Blas<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (workload, inputs, outputs) = call.parts();
        if !narrow(workload) {
            return Err(refused(&self.spec().id, TOO_LONG));
        }
        // It has no word for gaps within a row and between rows at once.
        for input in inputs {
            input.as_slice::<T>()?;
        }
        for output in outputs {
            output.as_mut_slice::<T>()?;
        }
        self.0.execute(call, setting, scratch)
    }
}

/// A contiguous matrix of so many rows and columns, or a part of one, as OpenBLAS is told of it.
fn operand<T>((first, row, column): Matrix<*const T>, rows: usize, columns: usize) -> Operand<T> {
    let transposed = column != 1 && columns > 1;
    Operand {
        first,
        lead: match transposed {
            true => lead(column, columns, rows),
            false => lead(row, rows, columns),
        },
        transposed,
    }
}

/// From one of so many rows to the next, each of a length. Where there is one only, its stride says nothing.
fn lead(stride: isize, rows: usize, length: usize) -> c_int {
    match rows {
        0 | 1 => length as c_int,
        _ => stride as c_int,
    }
}

/// The product in one element type.
macro_rules! product {
    ($name:ident, $element:ty, $gemm:ident) => {
        /// # Safety
        /// As for [`Function`]; besides, no side is 2^31 or longer.
        unsafe fn $name(part: Single<$element>) {
            let (Some(blas), (m, n, k)) = (library(), part.size) else {
                return;
            };
            let (a, b) = (operand(part.a, m, k), operand(part.b, k, n));
            let (first, row, _) = part.c;
            let c = (first, lead(row, m, n));
            // One is a legal number of threads: there is no error to pass on.
            let _ = blas.set_threads(1);
            // SAFETY: as the caller promises; whole operands are contiguous.
            unsafe { blas.$gemm([m, n, k].map(|side| side as c_int), a, b, c) };
        }
    };
}

product!(sgemm, f32, sgemm_at);
product!(dgemm, f64, dgemm_at);
