//! The matrices of a call as the packed product wants them, and the tiles they are cut into.
#![allow(unsafe_code)]

use kernelwise_backend::Axis;
use kernelwise_types::op::{Matmul, Operation};
use kernelwise_types::{LayoutKind, Machine, Workload};

use super::operands::Product;

use crate::gemm::{Caches, Destination, Real, Strided, Tiles, transposes};
use crate::isa::Level;

/// The product of a workload that is one.
pub(super) fn problem(workload: &Workload) -> Option<&Matmul> {
    match workload.operation() {
        Operation::Matmul(product) => Some(product),
        _ => None,
    }
}

impl<T: Real> Product<T> {
    /// Rows of `a` as lanes, from depth `from` on, in one matrix of the batch.
    ///
    /// # Safety
    /// The call this was read from is still borrowed, the index is below the batch, `from` not beyond `k`.
    pub(super) unsafe fn left<'a>(
        &self,
        level: Level,
        index: usize,
        from: usize,
    ) -> Strided<'a, T> {
        let offset = index as isize * self.a.step + from as isize * self.a.columns;
        let first = self.a.first.wrapping_offset(offset);
        let size = (self.m, self.k - from);
        // SAFETY: `a` is readable at every row and depth of every matrix of the batch.
        unsafe { Strided::new(level, first, size, (self.a.rows, self.a.columns)) }
    }

    /// Columns of `b` as lanes, likewise.
    ///
    /// # Safety
    /// As for [`left`](Self::left).
    pub(super) unsafe fn right<'a>(
        &self,
        level: Level,
        index: usize,
        from: usize,
    ) -> Strided<'a, T> {
        let offset = index as isize * self.b.step + from as isize * self.b.rows;
        let first = self.b.first.wrapping_offset(offset);
        let size = (self.n, self.k - from);
        // SAFETY: `b` is readable at every column and depth of every matrix of the batch.
        unsafe { Strided::new(level, first, size, (self.b.columns, self.b.rows)) }
    }

    /// One matrix of the result.
    ///
    /// # Safety
    /// As for [`left`](Self::left), and no other destination for this index is in use.
    pub(super) unsafe fn target<'a>(&self, index: usize) -> Destination<'a, T> {
        let first = self.c.first.wrapping_offset(index as isize * self.c.step);
        let strides = (self.c.rows, self.c.columns);
        // SAFETY: `c` is writable by nobody else at every row and column of every matrix of the batch.
        unsafe { Destination::new(first, (self.m, self.n), strides, false) }
    }

    /// The same tiles, but with that operand packed which the engine cannot read where it lies: the one whose
    /// lanes run along the vectors must have them side by side.
    pub(super) fn packing(&self, mut tiles: Tiles) -> Tiles {
        if transposes(self.n, self.c.rows, self.c.columns) {
            tiles.pack_a |= self.a.rows != 1 && self.m > 1;
        } else {
            tiles.pack_b |= self.b.columns != 1 && self.n > 1;
        }
        tiles
    }
}

/// What may have to be packed, judged without the tensors: what [`Product::packing`] packs is among it.
pub(super) fn worst_packing(workload: &Workload, product: &Matmul, mut tiles: Tiles) -> Tiles {
    let strided = workload.layout() == LayoutKind::Strided;
    tiles.pack_a |= strided;
    tiles.pack_b |= strided || product.trans_b;
    tiles
}

/// The tiles to begin with.
pub(super) fn first_tiles<T: Real>(
    level: Level,
    workload: &Workload,
    product: &Matmul,
    machine: &Machine,
) -> Tiles {
    let neighbours = !product.trans_b && workload.layout() != LayoutKind::Strided;
    let row_bytes = neighbours.then(|| product.n.saturating_mul(size_of::<T>()));
    let size = (product.m, product.n, product.k);
    Tiles::for_product::<T>(level, &Caches::of(machine), size, row_bytes)
}

/// Block sizes to choose from for a dimension: one that holds all of it is enough.
pub(super) fn sizes(default: usize, choices: &[u32], dimension: usize) -> Axis {
    let whole = choices
        .iter()
        .copied()
        .find(|size| *size as usize >= dimension)
        .unwrap_or(u32::MAX);
    let default = u32::try_from(default).unwrap_or(u32::MAX).min(whole);
    Axis::new(
        default,
        choices.iter().copied().filter(|size| *size <= whole),
    )
}

/// Whether an operand may be packed or not: a choice only where it can be read in place.
pub(super) fn packs(default: bool, in_place: bool) -> Axis {
    if in_place {
        Axis::switch(default)
    } else {
        Axis::new(1, [])
    }
}
