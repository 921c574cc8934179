//! The packed product: `c = a · b` or `c += a · b` for matrices that need not exist in memory.
//!
//! The product is cut so that each cache holds what is reused most often out of it (Goto and van de Geijn,
//! "Anatomy of high-performance matrix multiplication"):
//!
//! 1. columns in blocks of [`Tiles::nc`], depth in blocks of [`Tiles::kc`]: that block of `b` is packed into
//!    *panels*, a few vectors wide, each read in one direction by the innermost loop;
//! 2. rows in blocks of [`Tiles::mc`]: that block of `a` is packed too, or read where it lies;
//! 3. panel by panel, tile by tile: a tile of `c` stays in registers over the whole depth of the block.
//!
//! Vector lanes run along the columns of `c`; values of `a` are broadcast. A column-major `c` is computed as
//! the transposed product, any other layout through a tile on the stack.
//!
//! Operands are [`Source`]s: a strided matrix, or anything that can fill panels, such as an image seen as the
//! matrix of its windows. Threads share nothing: each computes a rectangle of `c` and packs for itself.
//! Nothing is allocated here; [`scratch_len`] says how much memory [`multiply`] wants.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod blocks;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod source;
mod tile;
mod tiles;

#[cfg(test)]
mod tests;

use std::marker::PhantomData;

pub(crate) use portable::Array;
pub(crate) use source::{Source, Strided};
pub(crate) use tile::{Real, Vector};
pub(crate) use tiles::{Caches, Tiles};

use crate::isa::Level;

/// Why a product was refused. Nothing has been written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProductError {
    /// Less scratch memory than [`scratch_len`] asks for.
    #[error("the product needs {needed} elements of scratch memory, not {given}")]
    Scratch {
        /// Elements needed.
        needed: usize,
        /// Elements given.
        given: usize,
    },
    /// An operand smaller than the product.
    #[error("operand `{operand}` of the product ends before {lanes} x {depth}")]
    Extent {
        /// `a`, `b` or `c`.
        operand: &'static str,
        /// Rows or columns needed.
        lanes: usize,
        /// Depth (or columns of `c`) needed.
        depth: usize,
    },
    /// An operand that is to be read where it lies, but cannot.
    #[error("operand `{operand}` cannot be read in place: pack it")]
    InPlace {
        /// `a` or `b`.
        operand: &'static str,
    },
}

/// The matrix that receives the product.
#[derive(Debug)]
pub(crate) struct Destination<'a, T> {
    ptr: *mut T,
    rows: usize,
    columns: usize,
    row_stride: isize,
    column_stride: isize,
    accumulate: bool,
    borrow: PhantomData<&'a mut T>,
}

impl<'a, T: Real> Destination<'a, T> {
    /// A `rows` x `columns` matrix at `ptr` with strides in elements; with `accumulate` the product is
    /// added to what it holds.
    ///
    /// # Safety
    /// For every row and column inside, the element at `ptr + row * row_stride + column * column_stride` is
    /// valid for reads and writes for `'a`, no two are the same, and nobody else uses them during `'a`.
    pub(crate) unsafe fn new(
        ptr: *mut T,
        (rows, columns): (usize, usize),
        (row_stride, column_stride): (isize, isize),
        accumulate: bool,
    ) -> Self {
        Self {
            ptr,
            rows,
            columns,
            row_stride,
            column_stride,
            accumulate,
            borrow: PhantomData,
        }
    }

    /// The same elements with rows and columns exchanged.
    fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// Whether a destination of so many columns with these strides is computed as the transposed product, so that
/// vectors are stored along its columns. Then the rows of `a`, not the columns of `b`, have to be neighbours to
/// be read in place.
pub(crate) fn transposes(columns: usize, row_stride: isize, column_stride: isize) -> bool {
    columns > 1 && row_stride == 1 && column_stride != 1
}

/// Elements of scratch memory that [`multiply`] needs for an `m` x `k` by `k` x `n` product, wherever its
/// destination lies.
pub(crate) fn scratch_len<T: Real>(
    level: Level,
    (m, n, k): (usize, usize, usize),
    tiles: &Tiles,
    threads: usize,
) -> usize {
    let plan = |size, tiles| blocks::Plan::new(T::kernels(level), size, tiles, threads).scratch();
    plan((m, n, k), tiles).max(plan((n, m, k), &tiles.transposed()))
}

/// Computes `c = a · b`, or `c += a · b`, where lanes of `a` are its `m` rows, lanes of `b` its `n` columns and
/// both have depth `k`. `scratch` has at least [`scratch_len`] elements.
#[allow(clippy::too_many_arguments)]
pub(crate) fn multiply<T: Real>(
    level: Level,
    (m, n, k): (usize, usize, usize),
    a: &impl Source<T>,
    b: &impl Source<T>,
    c: Destination<'_, T>,
    tiles: &Tiles,
    threads: usize,
    scratch: &mut [T],
) -> Result<(), ProductError> {
    if c.rows < m || c.columns < n {
        return Err(ProductError::Extent {
            operand: "c",
            lanes: m,
            depth: n,
        });
    }
    if transposes(n, c.row_stride, c.column_stride) {
        let tiles = tiles.transposed();
        let plan = blocks::Plan::new(T::kernels(level), (n, m, k), &tiles, threads);
        return plan.run(("b", b), ("a", a), c.transposed(), scratch);
    }
    let plan = blocks::Plan::new(T::kernels(level), (m, n, k), tiles, threads);
    plan.run(("a", a), ("b", b), c, scratch)
}
