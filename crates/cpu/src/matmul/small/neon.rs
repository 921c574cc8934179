//! Tiles in NEON: 32 registers of 128 bits. There are no masks; short vectors go through the stack.

use std::arch::aarch64::*;

use super::square::{self, by_size};
use super::tile::{self, Tile, Tiles, by_rows};
use crate::gemm::Vector;

/// Tiles of f32.
pub(super) static F32: Tiles<f32> = Tiles {
    lanes_log2: 2,
    by_width: &[
        by_rows!(compiled, float32x4_t, 1; 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16),
        by_rows!(compiled, float32x4_t, 2; 1 2 3 4 5 6 7 8 9 10 11 12),
        by_rows!(compiled, float32x4_t, 3; 1 2 3 4 5 6 7 8),
        by_rows!(compiled, float32x4_t, 4; 1 2 3 4 5 6),
    ],
    squares: by_size!(
        squared, float32x4_t;
        1: 1 x 1, 2: 1 x 2, 3: 1 x 3, 4: 1 x 4, 5: 2 x 5, 6: 2 x 6, 7: 2 x 7, 8: 2 x 8,
        9: 3 x 5, 10: 3 x 5, 11: 3 x 6, 12: 3 x 6, 13: 4 x 5, 14: 4 x 5, 15: 4 x 5, 16: 4 x 6
    ),
};

/// Tiles of f64.
pub(super) static F64: Tiles<f64> = Tiles {
    lanes_log2: 1,
    by_width: &[
        by_rows!(compiled, float64x2_t, 1; 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16),
        by_rows!(compiled, float64x2_t, 2; 1 2 3 4 5 6 7 8 9 10 11 12),
        by_rows!(compiled, float64x2_t, 3; 1 2 3 4 5 6 7 8),
        by_rows!(compiled, float64x2_t, 4; 1 2 3 4 5 6),
    ],
    squares: by_size!(
        squared, float64x2_t;
        1: 1 x 1, 2: 1 x 2, 3: 2 x 3, 4: 2 x 4, 5: 3 x 5, 6: 3 x 6, 7: 4 x 4, 8: 4 x 4,
        9: 5 x 3, 10: 5 x 4, 11: 6 x 4, 12: 6 x 4, 13: 7 x 3, 14: 7 x 3, 15: 8 x 2, 16: 8 x 2
    ),
};

/// # Safety
/// As for [`tile::tile`], on a processor with NEON.
#[target_feature(enable = "neon")]
unsafe fn compiled<V: Vector, const R: usize, const C: usize, const EDGE: bool>(
    tile: &Tile<V::Scalar>,
) {
    // SAFETY: the caller keeps the promises.
    unsafe { tile::tile::<V, R, C, EDGE>(tile) }
}

/// # Safety
/// As for [`square::square`], on a processor with NEON.
#[target_feature(enable = "neon")]
unsafe fn squared<V: Vector, const S: usize, const C: usize, const R: usize>(
    a: *const V::Scalar,
    b: *const V::Scalar,
    c: *mut V::Scalar,
) {
    // SAFETY: the caller keeps the promises.
    unsafe { square::square::<V, S, C, R>(a, b, c) }
}
