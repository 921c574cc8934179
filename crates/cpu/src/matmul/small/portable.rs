//! Tiles for any processor: plain arrays, four or two lanes long, which compilers turn into the 128-bit vectors
//! that every 64-bit architecture has.

use super::square::{self, by_size};
use super::tile::{self, Tile, Tiles, by_rows};
use crate::gemm::{Array, Vector};

/// Tiles of f32.
pub(super) static F32: Tiles<f32> = Tiles {
    lanes_log2: 2,
    by_width: &[
        by_rows!(compiled, Array<f32, 4>, 1; 1 2 3 4 5 6 7 8),
        by_rows!(compiled, Array<f32, 4>, 2; 1 2 3 4),
    ],
    squares: by_size!(
        squared, Array<f32, 4>;
        1: 1 x 1, 2: 1 x 2, 3: 1 x 3, 4: 1 x 4, 5: 2 x 3, 6: 2 x 3, 7: 2 x 4, 8: 2 x 4,
        9: 3 x 3, 10: 3 x 3, 11: 3 x 3, 12: 3 x 3, 13: 4 x 2, 14: 4 x 2, 15: 4 x 2, 16: 4 x 2
    ),
};

/// Tiles of f64.
pub(super) static F64: Tiles<f64> = Tiles {
    lanes_log2: 1,
    by_width: &[
        by_rows!(compiled, Array<f64, 2>, 1; 1 2 3 4 5 6 7 8),
        by_rows!(compiled, Array<f64, 2>, 2; 1 2 3 4),
    ],
    squares: by_size!(
        squared, Array<f64, 2>;
        1: 1 x 1, 2: 1 x 2, 3: 2 x 3, 4: 2 x 4, 5: 3 x 3, 6: 3 x 3, 7: 4 x 2, 8: 4 x 2,
        9: 5 x 2, 10: 5 x 2, 11: 6 x 1, 12: 6 x 1, 13: 7 x 1, 14: 7 x 1, 15: 8 x 1, 16: 8 x 1
    ),
};

/// # Safety
/// As for [`tile::tile`].
unsafe fn compiled<V: Vector, const R: usize, const C: usize, const EDGE: bool>(
    tile: &Tile<V::Scalar>,
) {
    // SAFETY: the caller keeps the promises.
    unsafe { tile::tile::<V, R, C, EDGE>(tile) }
}

/// # Safety
/// As for [`square::square`].
unsafe fn squared<V: Vector, const S: usize, const C: usize, const R: usize>(
    a: *const V::Scalar,
    b: *const V::Scalar,
    c: *mut V::Scalar,
) {
    // SAFETY: the caller keeps the promises.
    unsafe { square::square::<V, S, C, R>(a, b, c) }
}
