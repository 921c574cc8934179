//! Tiles in AVX-512: 32 registers of 512 bits, and masks for what is narrower.

use std::arch::x86_64::*;

use super::square::{self, by_size};
use super::tile::{self, Lanes, Tile, Tiles, by_rows};

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
unsafe fn compiled<V: Lanes, const R: usize, const C: usize, const EDGE: bool>(
    tile: &Tile<V::Scalar>,
) {
    // SAFETY: the caller keeps the promises.
    unsafe { tile::tile::<V, R, C, EDGE>(tile) }
}

/// # Safety
/// As for [`square::square`], on a processor with AVX-512.
#[target_feature(enable = "avx2,fma,avx512f,avx512vl,avx512bw,avx512dq")]
unsafe fn squared<V: Lanes, const S: usize, const C: usize, const R: usize>(
    a: *const V::Scalar,
    b: *const V::Scalar,
    c: *mut V::Scalar,
) {
    // SAFETY: the caller keeps the promises.
    unsafe { square::square::<V, S, C, R>(a, b, c) }
}

/// The two element types differ in the names of their instructions only.
macro_rules! lanes {
    ($vector:ty, $scalar:ty, $count:literal, $mask:ty, $zero:ident, $splat:ident, $load:ident, $store:ident,
     $load_part:ident, $store_part:ident, $add:ident, $fma:ident, $total:ident) => {
        // SAFETY: the instructions are those of AVX-512; masked lanes touch no memory.
        unsafe impl Lanes for $vector {
            type Scalar = $scalar;
            type Mask = $mask;
            const COUNT: usize = $count;

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: the caller runs at this level.
                unsafe { $zero() }
            }

            #[inline(always)]
            unsafe fn splat(value: *const $scalar) -> Self {
                // SAFETY: as above, and the caller vouches for the pointer.
                unsafe { $splat(*value) }
            }

            #[inline(always)]
            unsafe fn load(from: *const $scalar) -> Self {
                // SAFETY: as above.
                unsafe { $load(from) }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut $scalar) {
                // SAFETY: as above.
                unsafe { $store(to, self) }
            }

            #[inline(always)]
            unsafe fn mask(lanes: usize) -> $mask {
                ((1u32 << lanes.min($count)) - 1) as $mask
            }

            #[inline(always)]
            unsafe fn load_part(from: *const $scalar, mask: $mask) -> Self {
                // SAFETY: as above; lanes outside the mask are not read.
                unsafe { $load_part(mask, from) }
            }

            #[inline(always)]
            unsafe fn store_part(self, to: *mut $scalar, mask: $mask) {
                // SAFETY: as above; lanes outside the mask are not written.
                unsafe { $store_part(to, mask, self) }
            }

            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: the caller runs at this level.
                unsafe { $add(self, other) }
            }

            #[inline(always)]
            unsafe fn multiply_add(self, factor: Self, sum: Self) -> Self {
                // SAFETY: as above.
                unsafe { $fma(self, factor, sum) }
            }

            #[inline(always)]
            unsafe fn total(self) -> $scalar {
                // SAFETY: as above.
                unsafe { $total(self) }
            }
        }
    };
}

lanes!(
    __m512,
    f32,
    16,
    __mmask16,
    _mm512_setzero_ps,
    _mm512_set1_ps,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_maskz_loadu_ps,
    _mm512_mask_storeu_ps,
    _mm512_add_ps,
    _mm512_fmadd_ps,
    _mm512_reduce_add_ps
);
lanes!(
    __m512d,
    f64,
    8,
    __mmask8,
    _mm512_setzero_pd,
    _mm512_set1_pd,
    _mm512_loadu_pd,
    _mm512_storeu_pd,
    _mm512_maskz_loadu_pd,
    _mm512_mask_storeu_pd,
    _mm512_add_pd,
    _mm512_fmadd_pd,
    _mm512_reduce_add_pd
);
