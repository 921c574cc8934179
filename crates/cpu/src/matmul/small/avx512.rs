//! Tiles in AVX-512: 32 registers of 512 bits, and masks for what is narrower.

use std::arch::x86_64::*;

use super::square::{self, by_size};
use super::tile::{self, Tile, Tiles, by_rows};
use crate::gemm::Vector;

/// Tiles of f32.
pub(super) static F32: Tiles<f32> = Tiles {
    lanes_log2: 4,
    by_width: &[
        by_rows!(compiled, __m512, 1; 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16),
        by_rows!(compiled, __m512, 2; 1 2 3 4 5 6 7 8 9 10 11 12),
        by_rows!(compiled, __m512, 3; 1 2 3 4 5 6 7 8),
    ],
    squares: by_size!(
        squared, __m512;
        1: 1 x 1, 2: 1 x 2, 3: 1 x 3, 4: 1 x 4, 5: 1 x 5, 6: 1 x 6, 7: 1 x 7, 8: 1 x 8,
        9: 1 x 9, 10: 1 x 10, 11: 1 x 11, 12: 1 x 12, 13: 1 x 13, 14: 1 x 14, 15: 1 x 15, 16: 1 x 16
    ),
};

/// Tiles of f64.
pub(super) static F64: Tiles<f64> = Tiles {
    lanes_log2: 3,
    by_width: &[
        by_rows!(compiled, __m512d, 1; 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16),
        by_rows!(compiled, __m512d, 2; 1 2 3 4 5 6 7 8 9 10 11 12),
        by_rows!(compiled, __m512d, 3; 1 2 3 4 5 6 7 8),
    ],
    squares: by_size!(
        squared, __m512d;
        1: 1 x 1, 2: 1 x 2, 3: 1 x 3, 4: 1 x 4, 5: 1 x 5, 6: 1 x 6, 7: 1 x 7, 8: 1 x 8,
        9: 2 x 5, 10: 2 x 5, 11: 2 x 6, 12: 2 x 6, 13: 2 x 7, 14: 2 x 7, 15: 2 x 8, 16: 2 x 8
    ),
};

/// # Safety
/// As for [`tile::tile`], on a processor with AVX-512.
#[target_feature(enable = "avx2,fma,avx512f,avx512vl,avx512bw,avx512dq")]
unsafe fn compiled<V: Vector, const R: usize, const C: usize, const EDGE: bool>(
    tile: &Tile<V::Scalar>,
) {
    // SAFETY: the caller keeps the promises.
    unsafe { tile::tile::<V, R, C, EDGE>(tile) }
}

/// # Safety
/// As for [`square::square`], on a processor with AVX-512.
#[target_feature(enable = "avx2,fma,avx512f,avx512vl,avx512bw,avx512dq")]
unsafe fn squared<V: Vector, const S: usize, const C: usize, const R: usize>(
    a: *const V::Scalar,
    b: *const V::Scalar,
    c: *mut V::Scalar,
) {
    // SAFETY: the caller keeps the promises.
    unsafe { square::square::<V, S, C, R>(a, b, c) }
}
