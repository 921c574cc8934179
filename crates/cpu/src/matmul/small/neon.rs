//! Tiles in NEON: 32 registers of 128 bits. There are no masks; short vectors go through the stack.

use std::arch::aarch64::*;

use super::square::{self, by_size};
use super::tile::{self, Lanes, Tile, Tiles, by_rows};

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
unsafe fn compiled<V: Lanes, const R: usize, const C: usize, const EDGE: bool>(
    tile: &Tile<V::Scalar>,
) {
    // SAFETY: the caller keeps the promises.
    unsafe { tile::tile::<V, R, C, EDGE>(tile) }
}

/// # Safety
/// As for [`square::square`], on a processor with NEON.
#[target_feature(enable = "neon")]
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
    ($vector:ty, $scalar:ty, $count:literal, $splat:ident, $load:ident, $store:ident, $add:ident, $fma:ident,
     $total:ident) => {
        // SAFETY: the instructions are those of NEON; lanes outside a mask touch no memory.
        unsafe impl Lanes for $vector {
            type Scalar = $scalar;
            type Mask = usize;
            const COUNT: usize = $count;

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: the caller runs at this level.
                unsafe { $splat(0.0) }
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
            unsafe fn mask(lanes: usize) -> usize {
                lanes.min($count)
            }

            #[inline(always)]
            unsafe fn load_part(from: *const $scalar, mask: usize) -> Self {
                let mut lanes = [0.0; $count];
                // SAFETY: as above, for the lanes of the mask, of which there are at most `$count`.
                unsafe {
                    std::ptr::copy_nonoverlapping(from, lanes.as_mut_ptr(), mask);
                    $load(lanes.as_ptr())
                }
            }

            #[inline(always)]
            unsafe fn store_part(self, to: *mut $scalar, mask: usize) {
                let mut lanes = [0.0; $count];
                // SAFETY: as above, for the lanes of the mask, of which there are at most `$count`.
                unsafe {
                    $store(lanes.as_mut_ptr(), self);
                    std::ptr::copy_nonoverlapping(lanes.as_ptr(), to, mask);
                }
            }

            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: the caller runs at this level.
                unsafe { $add(self, other) }
            }

            #[inline(always)]
            unsafe fn multiply_add(self, factor: Self, sum: Self) -> Self {
                // SAFETY: as above.
                unsafe { $fma(sum, self, factor) }
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
    float32x4_t,
    f32,
    4,
    vdupq_n_f32,
    vld1q_f32,
    vst1q_f32,
    vaddq_f32,
    vfmaq_f32,
    vaddvq_f32
);
lanes!(
    float64x2_t,
    f64,
    2,
    vdupq_n_f64,
    vld1q_f64,
    vst1q_f64,
    vaddq_f64,
    vfmaq_f64,
    vaddvq_f64
);
