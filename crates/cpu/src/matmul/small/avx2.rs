//! Tiles in AVX2 with fused multiply-add: 16 registers of 256 bits.

use std::arch::x86_64::*;

use super::square::{self, by_size};
use super::tile::{self, Lanes, Tile, Tiles, by_rows};

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
unsafe fn compiled<V: Lanes, const R: usize, const C: usize, const EDGE: bool>(
    tile: &Tile<V::Scalar>,
) {
    // SAFETY: the caller keeps the promises.
    unsafe { tile::tile::<V, R, C, EDGE>(tile) }
}

/// # Safety
/// As for [`square::square`], on a processor with AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
unsafe fn squared<V: Lanes, const S: usize, const C: usize, const R: usize>(
    a: *const V::Scalar,
    b: *const V::Scalar,
    c: *mut V::Scalar,
) {
    // SAFETY: the caller keeps the promises.
    unsafe { square::square::<V, S, C, R>(a, b, c) }
}

/// Ones, then zeros: masks are windows of it.
static WINDOW_32: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
static WINDOW_64: [i64; 8] = [-1, -1, -1, -1, 0, 0, 0, 0];

/// The two element types differ in the names of their instructions only.
macro_rules! lanes {
    ($vector:ty, $scalar:ty, $count:literal, $window:ident, $zero:ident, $splat:ident, $load:ident, $store:ident,
     $load_part:ident, $store_part:ident, $add:ident, $fma:ident) => {
        // SAFETY: the instructions are those of AVX2 and FMA; masked lanes touch no memory.
        unsafe impl Lanes for $vector {
            type Scalar = $scalar;
            type Mask = __m256i;
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
            unsafe fn mask(lanes: usize) -> __m256i {
                // SAFETY: as above; at most `$count` into the window leaves `$count` to read.
                unsafe {
                    let start = $window.as_ptr().add($count - lanes.min($count));
                    _mm256_loadu_si256(start.cast())
                }
            }

            #[inline(always)]
            unsafe fn load_part(from: *const $scalar, mask: __m256i) -> Self {
                // SAFETY: as above; lanes outside the mask are not read.
                unsafe { $load_part(from, mask) }
            }

            #[inline(always)]
            unsafe fn store_part(self, to: *mut $scalar, mask: __m256i) {
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
                let mut lanes = [0.0; $count];
                // SAFETY: as above; there is room for all lanes.
                unsafe { self.store(lanes.as_mut_ptr()) };
                lanes.iter().sum()
            }
        }
    };
}

lanes!(
    __m256,
    f32,
    8,
    WINDOW_32,
    _mm256_setzero_ps,
    _mm256_set1_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_maskload_ps,
    _mm256_maskstore_ps,
    _mm256_add_ps,
    _mm256_fmadd_ps
);
lanes!(
    __m256d,
    f64,
    4,
    WINDOW_64,
    _mm256_setzero_pd,
    _mm256_set1_pd,
    _mm256_loadu_pd,
    _mm256_storeu_pd,
    _mm256_maskload_pd,
    _mm256_maskstore_pd,
    _mm256_add_pd,
    _mm256_fmadd_pd
);
