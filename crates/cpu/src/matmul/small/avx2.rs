//! Tiles in AVX2 with fused multiply-add: 16 registers of 256 bits.

use std::arch::x86_64::*;

use super::square::{self, by_size};
use super::tile::{self, Tile, Tiles, by_rows};
use crate::gemm::Vector;

/// Tiles of f32.
pub(super) static F32: Tiles<f32> = Tiles {
    lanes_log2: 3,
    by_width: &[
        by_rows!(compiled, __m256, 1; 1 2 3 4 5 6 7 8 9 10 11 12),
        by_rows!(compiled, __m256, 2; 1 2 3 4 5 6),
    ],
    squares: by_size!(
        squared, __m256;
        1: 1 x 1, 2: 1 x 2, 3: 1 x 3, 4: 1 x 4, 5: 1 x 5, 6: 1 x 6, 7: 1 x 7, 8: 1 x 8,
        9: 2 x 3, 10: 2 x 4, 11: 2 x 4, 12: 2 x 4, 13: 2 x 4, 14: 2 x 4, 15: 2 x 4, 16: 2 x 4
    ),
};

/// Tiles of f64.
pub(super) static F64: Tiles<f64> = Tiles {
    lanes_log2: 2,
    by_width: &[
        by_rows!(compiled, __m256d, 1; 1 2 3 4 5 6 7 8 9 10 11 12),
        by_rows!(compiled, __m256d, 2; 1 2 3 4 5 6),
    ],
    squares: by_size!(
        squared, __m256d;
        1: 1 x 1, 2: 1 x 2, 3: 1 x 3, 4: 1 x 4, 5: 2 x 3, 6: 2 x 3, 7: 2 x 4, 8: 2 x 4,
        9: 3 x 3, 10: 3 x 3, 11: 3 x 3, 12: 3 x 3, 13: 4 x 2, 14: 4 x 2, 15: 4 x 2, 16: 4 x 2
    ),
};

/// # Safety
/// As for [`tile::tile`], on a processor with AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
unsafe fn compiled<V: Vector, const R: usize, const C: usize, const EDGE: bool>(
    tile: &Tile<V::Scalar>,
) {
    // SAFETY: the caller keeps the promises.
    unsafe { tile::tile::<V, R, C, EDGE>(tile) }
}

/// # Safety
/// As for [`square::square`], on a processor with AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
unsafe fn squared<V: Vector, const S: usize, const C: usize, const R: usize>(
    a: *const V::Scalar,
    b: *const V::Scalar,
    c: *mut V::Scalar,
) {
    // SAFETY: the caller keeps the promises.
    unsafe { square::square::<V, S, C, R>(a, b, c) }
}
