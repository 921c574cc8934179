//! The matrices of a call for kernels that follow any strides, and the tiles they are cut into.
#![allow(unsafe_code)]

use kernelwise_backend::{Axis, Call, Fault};
use kernelwise_types::op::{Matmul, Operation};
use kernelwise_types::{Element, KernelId, LayoutKind, Machine, Refusal, Workload};

use crate::gemm::{Caches, Destination, Real, Strided, Tiles, transposes};
use crate::isa::Level;
use crate::pool::MAX_THREADS;

/// A stack of matrices in memory: an element lies at `first + matrix * step + row * rows + column * columns`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stack<P> {
    pub(super) first: P,
    pub(super) step: isize,
    pub(super) rows: isize,
    pub(super) columns: isize,
}

/// What one call multiplies: `c = a · b`, `m` x `k` by `k` x `n`, `batch` times. Transposed operands are seen the
/// right way round.
///
/// As long as the call it was read from is borrowed, `a` and `b` are readable, and `c` is writable by nobody else, at
/// every index inside these sizes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Product<T> {
    pub(super) batch: usize,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) a: Stack<*const T>,
    pub(super) b: Stack<*const T>,
    pub(super) c: Stack<*mut T>,
}

/// The answer of a kernel to a call that is not for it.
pub(super) fn refused(id: &KernelId, condition: &str) -> Fault {
    Fault::Refused {
        kernel: id.to_string(),
        refusal: Refusal::Shape {
            condition: condition.to_owned(),
        },
    }
}

/// Reads a call, whatever the strides.
pub(super) fn read<T: Element>(
    call: &mut Call<'_, '_>,
    id: &KernelId,
) -> Result<Product<T>, Fault> {
    let (workload, inputs, outputs) = call.parts();
    let (Operation::Matmul(product), [a, b], [c]) = (workload.operation(), inputs, outputs) else {
        return Err(refused(id, "computes a matrix product"));
    };
    let strides = [a.layout(), b.layout(), c.layout()].map(|layout| match *layout.strides() {
        [rows, columns] => Some([0, rows, columns]),
        [step, rows, columns] => Some([step, rows, columns]),
        _ => None,
    });
    let [Some(a_strides), Some(b_strides), Some(c_strides)] = strides else {
        return Err(refused(id, "needs matrices, or stacks of them"));
    };
    Ok(Product {
        batch: product.batch,
        m: product.m,
        n: product.n,
        k: product.k,
        a: stack(a.as_ptr()?, a_strides, product.trans_a),
        b: stack(b.as_ptr()?, b_strides, product.trans_b),
        c: stack(c.as_mut_ptr()?, c_strides, false),
    })
}

fn stack<P>(first: P, [step, rows, columns]: [isize; 3], transposed: bool) -> Stack<P> {
    let (rows, columns) = if transposed {
        (columns, rows)
    } else {
        (rows, columns)
    };
    Stack {
        first,
        step,
        rows,
        columns,
    }
}

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

/// The threads a knob stands for: more than there can be are the caller alone, as in the pool.
pub(super) fn threads(knob: u32) -> usize {
    match knob as usize {
        threads @ 2..=MAX_THREADS => threads,
        _ => 1,
    }
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
