//! The products of the crates `gemm` and `matrixmultiply`.
//!
//! Both run on one thread here; threads share out the longer side of the result. They take memory for packing by
//! themselves: `gemm` keeps it, `matrixmultiply` asks for it on every call.
#![allow(unsafe_code)]

use std::ops::Range;

use half::f16;
use kernelwise_backend::{
    Axis, Call, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Space, knobs,
};
use kernelwise_types::{
    Element, InvalidKernelId, KernelSpec, LayoutKind, Machine, Numerics, Technique, Workload,
};

use super::operands::Product;
use crate::declare::{Needing, spec};
use crate::pool::{Schedule, share, threads};

knobs! {
    /// How the result is shared out.
    pub(crate) struct LibraryKnobs {
        /// Threads that work at once.
        threads,
    }
}

/// Rows or columns that a thread takes at the least.
const GRAIN: usize = 16;

/// One matrix of a product: `m` x `k` by `k` x `n`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Single<T> {
    size: (usize, usize, usize),
    a: Matrix<*const T>,
    b: Matrix<*const T>,
    c: Matrix<*mut T>,
}

/// Address, row stride and column stride.
type Matrix<P> = (P, isize, isize);

/// A library's product. Safe to call where all three matrices are valid at their sizes, `c` for writing.
type Function<T> = unsafe fn(Single<T>);

/// The kernel around a library's product.
#[derive(Debug)]
pub(super) struct Library<T> {
    spec: KernelSpec,
    function: Function<T>,
    percent: u8,
}

impl<T: Element> Library<T> {
    fn new(
        variant: &str,
        numerics: Numerics,
        function: Function<T>,
        percent: u8,
    ) -> Result<Self, InvalidKernelId> {
        let spec = spec("matmul", &[T::DTYPE], variant, Technique::Library, numerics)?;
        Ok(Self {
            spec: spec.following(LayoutKind::Strided),
            function,
            percent,
        })
    }
}

impl Library<f32> {
    pub(super) fn gemm() -> Result<Self, InvalidKernelId> {
        Self::new("gemm", Numerics::Reordered, gemm_f32, 85)
    }

    pub(super) fn matrixmultiply() -> Result<Self, InvalidKernelId> {
        let function = sgemm;
        Self::new("matrixmultiply", Numerics::Reordered, function, 70)
    }
}

impl Library<f64> {
    pub(super) fn gemm() -> Result<Self, InvalidKernelId> {
        Self::new("gemm", Numerics::Reordered, gemm_f64, 85)
    }

    pub(super) fn matrixmultiply() -> Result<Self, InvalidKernelId> {
        let function = dgemm;
        Self::new("matrixmultiply", Numerics::Reordered, function, 65)
    }
}

impl Library<f16> {
    /// Sums are f32 within a block of the depth, and f16 from one block to the next.
    pub(super) fn gemm() -> Result<Self, InvalidKernelId> {
        Self::new("gemm", Numerics::ReducedPrecision, gemm_f16, 75)
    }
}

impl<T: Element> Kernel for Library<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn space(&self, _workload: &Workload, machine: &Machine) -> Space {
        Space::of::<LibraryKnobs, _>([Axis::threads(machine)])
    }

    fn hint(&self) -> Hint {
        Hint::percent(self.percent)
    }
}

impl<T: Element> HostKernel for Library<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        _scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let product = Product::<T>::read(call, &self.spec.id)?;
        let threads = threads(LibraryKnobs::of(setting).threads);
        let shared = Shared(product);
        if threads == 1 {
            for index in 0..product.batch {
                let whole = shared.part(index, true, 0..product.m);
                // SAFETY: the call is borrowed; the part is one whole matrix.
                unsafe { (self.function)(whole) };
            }
            return Ok(());
        }
        let by_rows = product.m >= product.n;
        let longer = if by_rows { product.m } else { product.n };
        for index in 0..product.batch {
            share(threads, Schedule::Static, longer, GRAIN, |_, range| {
                let part = shared.part(index, by_rows, range);
                // SAFETY: the call is borrowed until all parts are done; a part lies inside its matrices, and
                // no two parts have an element of the result in common.
                unsafe { (self.function)(part) };
            });
        }
        Ok(())
    }
}

/// A product whose parts are computed by several threads.
struct Shared<T>(Product<T>);

// SAFETY: threads read `a` and `b`, and each writes its own rows or columns of `c`.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Some rows or columns of one matrix of the batch.
    #[inline]
    fn part(&self, index: usize, by_rows: bool, range: Range<usize>) -> Single<T> {
        let Self(product) = self;
        let (a, b, c) = (&product.a, &product.b, &product.c);
        let index = index as isize;
        let (row, column) = if by_rows {
            (range.start as isize, 0)
        } else {
            (0, range.start as isize)
        };
        Single {
            size: if by_rows {
                (range.len(), product.n, product.k)
            } else {
                (product.m, range.len(), product.k)
            },
            a: (
                a.first.wrapping_offset(index * a.step + row * a.rows),
                a.rows,
                a.columns,
            ),
            b: (
                b.first.wrapping_offset(index * b.step + column * b.columns),
                b.rows,
                b.columns,
            ),
            c: (
                c.first
                    .wrapping_offset(index * c.step + row * c.rows + column * c.columns),
                c.rows,
                c.columns,
            ),
        }
    }
}

/// The product of crate `gemm` in one element type.
macro_rules! gemm {
    ($name:ident, $scalar:ty, $zero:expr, $one:expr) => {
        /// # Safety
        /// As for [`Function`].
        unsafe fn $name(part: Single<$scalar>) {
            let (m, n, k) = part.size;
            let ((a, a_row, a_column), (b, b_row, b_column), (c, c_row, c_column)) =
                (part.a, part.b, part.c);
            // SAFETY: as the caller promises; `c` is not read.
            unsafe {
                gemm::gemm(
                    m,
                    n,
                    k,
                    c,
                    c_column,
                    c_row,
                    false,
                    a,
                    a_column,
                    a_row,
                    b,
                    b_column,
                    b_row,
                    $zero,
                    $one,
                    false,
                    false,
                    false,
                    gemm::Parallelism::None,
                );
            }
        }
    };
}

gemm!(gemm_f32, f32, 0.0, 1.0);
gemm!(gemm_f64, f64, 0.0, 1.0);
gemm!(gemm_f16, f16, f16::ZERO, f16::ONE);

/// The product of crate `matrixmultiply` in one element type.
macro_rules! matrixmultiply {
    ($name:ident, $scalar:ty) => {
        /// # Safety
        /// As for [`Function`].
        unsafe fn $name(part: Single<$scalar>) {
            let (m, n, k) = part.size;
            let ((a, a_row, a_column), (b, b_row, b_column), (c, c_row, c_column)) =
                (part.a, part.b, part.c);
            // SAFETY: as the caller promises; with a factor of zero `c` is not read.
            unsafe {
                matrixmultiply::$name(
                    m, k, n, 1.0, a, a_row, a_column, b, b_row, b_column, 0.0, c, c_row, c_column,
                );
            }
        }
    };
}

matrixmultiply!(sgemm, f32);
matrixmultiply!(dgemm, f64);
