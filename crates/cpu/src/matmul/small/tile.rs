//! A block of the result held in registers over the whole depth, its operands read where they lie.
//!
//! Lanes of a vector run along a row of the result; values of `a` are broadcast, so `a` may have any strides,
//! while rows of `b` are loaded as they are.

use kernelwise_types::Element;

use super::square::{self, SquareFn};
use crate::gemm::Vector;
use crate::isa::{Level, opaque};

/// The numbers that are multiplied here.
pub(in crate::matmul) trait Real: Element {
    /// The tiles of a level.
    fn tiles(level: Level) -> &'static Tiles<Self>;
}

/// The tiles of one level for one element type.
#[derive(Debug)]
pub(in crate::matmul) struct Tiles<T: 'static> {
    /// Values in a vector are two to this.
    pub(super) lanes_log2: u32,
    /// For tiles one, two, … vectors wide: those of one, two, … rows, each for whole vectors and for a last one
    /// that is cut short. None of the lists is empty.
    pub(super) by_width: &'static [&'static [[TileFn<T>; 2]]],
    /// Whole products of size one, two, ….
    pub(super) squares: [SquareFn<T>; square::MOST],
}

impl<T> Tiles<T> {
    /// Values in a vector.
    #[inline(always)]
    pub(super) fn lanes(&self) -> usize {
        1 << self.lanes_log2
    }
}

/// Computes a tile. To be called where the promises of [`Tile`] hold, on a processor that has the level.
pub(super) type TileFn<T> = unsafe fn(&Tile<T>);

/// A block of the result and what it is made of.
///
/// Promises, for a tile of `R` rows and `C` vectors: `a` is readable at `row * a_row + depth * a_depth` and `b` at
/// `depth * b_depth + column`, `c` is writable at `row * c_row + column`, for rows below `R`, depths below `depth` and
/// columns inside `C` vectors, of which the last may count `last` lanes only.
#[derive(Debug)]
pub(super) struct Tile<T> {
    pub(super) depth: usize,
    pub(super) a: *const T,
    pub(super) a_row: isize,
    pub(super) a_depth: isize,
    pub(super) b: *const T,
    pub(super) b_depth: isize,
    pub(super) c: *mut T,
    pub(super) c_row: isize,
    pub(super) last: usize,
}

/// Rows reached from one address: with more, offsets would not stay in registers.
const ROWS_PER_ADDRESS: usize = 8;

/// The body of all tiles, to be inlined into a function that is compiled for the level.
///
/// # Safety
/// The promises of [`Tile`] and [`Vector`] hold.
#[inline(always)]
pub(super) unsafe fn tile<V: Vector, const R: usize, const C: usize, const EDGE: bool>(
    tile: &Tile<V::Scalar>,
) {
    // SAFETY: rows, depths and columns are those of the tile; the last vector is masked where it is cut short.
    unsafe {
        let mask = V::mask(if EDGE { tile.last } else { V::LANES });
        let mut offsets = [0isize; ROWS_PER_ADDRESS];
        for (i, offset) in offsets.iter_mut().enumerate().take(R).skip(1) {
            *offset = opaque(i as isize * tile.a_row);
        }
        let mut a = [tile.a, tile.a];
        if R > ROWS_PER_ADDRESS {
            a[1] = tile
                .a
                .wrapping_offset(opaque(ROWS_PER_ADDRESS as isize * tile.a_row));
        }
        let mut b = tile.b;
        let mut sums = [[V::zero(); C]; R];
        for _ in 0..tile.depth {
            let mut columns = [V::zero(); C];
            for (v, column) in columns.iter_mut().enumerate() {
                let from = b.wrapping_add(v * V::LANES);
                *column = if EDGE && v + 1 == C {
                    V::load_part(from, mask)
                } else {
                    V::load(from)
                };
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let from = a[i / ROWS_PER_ADDRESS].wrapping_offset(offsets[i % ROWS_PER_ADDRESS]);
                let factor = V::splat(from);
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = column.multiply_add(factor, *sum);
                }
            }
            a = a.map(|a| a.wrapping_offset(tile.a_depth));
            b = b.wrapping_offset(tile.b_depth);
        }
        let mut to = tile.c;
        for sums in sums {
            for (v, sum) in sums.into_iter().enumerate() {
                let to = to.wrapping_add(v * V::LANES);
                if EDGE && v + 1 == C {
                    sum.store_part(to, mask);
                } else {
                    sum.store(to);
                }
            }
            to = to.wrapping_offset(tile.c_row);
        }
    }
}

/// The tiles of one width, for each of the row counts.
macro_rules! by_rows {
    ($compiled:ident, $vector:ty, $width:literal; $($rows:literal)+) => {
        &[$([$compiled::<$vector, $rows, $width, false>, $compiled::<$vector, $rows, $width, true>]),+]
    };
}
pub(super) use by_rows;
