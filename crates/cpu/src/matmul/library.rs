//! Products of libraries: of the crates `gemm` and `matrixmultiply`, and of OpenBLAS (`openblas.rs`).
//!
//! They run on one thread here; threads share out the result, cut so that each reads as little of both sides as possible. They
//! take memory for packing by themselves: `gemm` keeps it, `matrixmultiply` asks for it on every call.
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

/// Rows and columns that a thread takes at the least.
const GRAIN: usize = 16;

/// One matrix of a product: `m` x `k` by `k` x `n`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Single<T> {
    pub(super) size: (usize, usize, usize),
    pub(super) a: Matrix<*const T>,
    pub(super) b: Matrix<*const T>,
    pub(super) c: Matrix<*mut T>,
}

/// Address, row stride and column stride.
pub(super) type Matrix<P> = (P, isize, isize);

/// A library's product. Safe to call where all three matrices are valid at their sizes, `c` for writing.
pub(super) type Function<T> = unsafe fn(Single<T>);

/// The kernel around a library's product.
#[derive(Debug)]
pub(super) struct Library<T> {
    spec: KernelSpec,
    function: Function<T>,
    percent: u8,
}

impl<T: Element> Library<T> {
    pub(super) fn new(
        variant: &str,
        numerics: Numerics,
        function: Function<T>,
        percent: u8,
    ) -> Result<Self, InvalidKernelId> {
        Ok(Self {
            spec: spec("matmul", &[T::DTYPE], variant, Technique::Library, numerics)?,
            function,
            percent,
        })
    }

    /// The same for a product that takes any strides.
    fn strided(self) -> Self {
        Self {
            spec: self.spec.following(LayoutKind::Strided),
            ..self
        }
    }
}

impl Library<f32> {
    pub(super) fn gemm() -> Result<Self, InvalidKernelId> {
        Ok(Self::new("gemm", Numerics::Reordered, gemm_f32, 85)?.strided())
    }

    pub(super) fn matrixmultiply() -> Result<Self, InvalidKernelId> {
        let function = sgemm;
        Ok(Self::new("matrixmultiply", Numerics::Reordered, function, 70)?.strided())
    }
}

impl Library<f64> {
    pub(super) fn gemm() -> Result<Self, InvalidKernelId> {
        Ok(Self::new("gemm", Numerics::Reordered, gemm_f64, 85)?.strided())
    }

    pub(super) fn matrixmultiply() -> Result<Self, InvalidKernelId> {
        let function = dgemm;
        Ok(Self::new("matrixmultiply", Numerics::Reordered, function, 65)?.strided())
    }
}

impl Library<f16> {
    /// Sums are f32 within a block of the depth, and f16 from one block to the next.
    pub(super) fn gemm() -> Result<Self, InvalidKernelId> {
        Ok(Self::new("gemm", Numerics::ReducedPrecision, gemm_f16, 75)?.strided())
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
                let whole = shared.part(index, 0..product.m, 0..product.n);
                // SAFETY: the call is borrowed; the part is one whole matrix.
                unsafe { (self.function)(whole) };
            }
            return Ok(());
        }
        let (high, wide) = cut(threads, product.m, product.n);
        for index in 0..product.batch {
            share(threads, Schedule::Static, high * wide, 1, |_, parts| {
                for part in parts {
                    let rows = stretch(product.m, part / wide, high);
                    let columns = stretch(product.n, part % wide, wide);
                    let part = shared.part(index, rows, columns);
                    // SAFETY: the call is borrowed until all parts are done; a part lies inside its matrices, and
                    // no two parts have an element of the result in common.
                    unsafe { (self.function)(part) };
                }
            });
        }
        Ok(())
    }
}

/// Into how many parts the result is cut, from top to bottom and from side to side: as many as threads, or as there are
/// grains. A thread reads, and packs, the rows and the columns of its part, so their sum is to be small.
fn cut(threads: usize, m: usize, n: usize) -> (usize, usize) {
    let ways = (1..=threads).filter(|high| threads.is_multiple_of(*high));
    let ways = ways.map(|high| (high, threads / high));
    let (high, wide) = ways
        .min_by_key(|&(high, wide)| m.div_ceil(high) + n.div_ceil(wide))
        .unwrap_or((1, 1));
    (
        high.min(m.div_ceil(GRAIN)).max(1),
        wide.min(n.div_ceil(GRAIN)).max(1),
    )
}

/// Part `number` of so many of a side, cut at grains.
fn stretch(side: usize, number: usize, parts: usize) -> Range<usize> {
    let grains = side.div_ceil(GRAIN);
    let at = |part: usize| (part * grains / parts * GRAIN).min(side);
    at(number)..at(number + 1)
}

/// A product whose parts are computed by several threads.
struct Shared<T>(Product<T>);

// SAFETY: threads read `a` and `b`, and each writes its own rectangles of `c`.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Some rows and columns of one matrix of the batch.
    #[inline]
    fn part(&self, index: usize, rows: Range<usize>, columns: Range<usize>) -> Single<T> {
        let Self(product) = self;
        let (a, b, c) = (&product.a, &product.b, &product.c);
        let (index, row, column) = (index as isize, rows.start as isize, columns.start as isize);
        Single {
            size: (rows.len(), columns.len(), product.k),
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
