//! Tiles in AVX-512: 32 registers of 512 bits; three vectors of `b`, eight rows of sums.

use std::arch::x86_64::*;

use super::avx2::{Square, turn};
use super::source::Panel;
use super::tile::{self, Kernels, Tile, Vector, by_rows};

/// Kernels for f32.
pub(super) static F32: Kernels<f32> = Kernels {
    lanes: 16,
    usual: 3,
    tiles: &[
        by_rows!(kernel, __m512, 1; 1 2 3 4 5 6 7 8),
        by_rows!(kernel, __m512, 2; 1 2 3 4 5 6 7 8),
        by_rows!(kernel, __m512, 3; 1 2 3 4 5 6 7 8),
        by_rows!(kernel, __m512, 4; 1 2 3 4 5 6),
    ],
    pack: pack::<__m512, __m256>,
};

/// Kernels for f64.
pub(super) static F64: Kernels<f64> = Kernels {
    lanes: 8,
    usual: 3,
    tiles: &[
        by_rows!(kernel, __m512d, 1; 1 2 3 4 5 6 7 8),
        by_rows!(kernel, __m512d, 2; 1 2 3 4 5 6 7 8),
        by_rows!(kernel, __m512d, 3; 1 2 3 4 5 6 7 8),
        by_rows!(kernel, __m512d, 4; 1 2 3 4 5 6),
    ],
    pack: pack::<__m512d, __m256d>,
};

/// # Safety
/// As for [`tile::tile`], on a processor with AVX-512.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn kernel<V: Vector, const ROWS: usize, const VECTORS: usize, const EDGE: bool>(
    call: &Tile<V::Scalar>,
) {
    // SAFETY: the caller keeps the promises of the tile and of the processor.
    unsafe { tile::tile::<V, ROWS, VECTORS, EDGE>(call) }
}

/// # Safety
/// As for [`tile::copy`], whatever the strides, on a processor with AVX-512.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn pack<V: Vector, H: Square<Scalar = V::Scalar>>(panel: &Panel<V::Scalar>) {
    // SAFETY: the caller keeps the promises of the panel.
    unsafe {
        match (panel.lane_stride, panel.depth_stride) {
            (1, _) => tile::copy::<V>(panel),
            (_, 1) => turn::<H>(panel),
            _ => tile::gather(panel),
        }
    }
}

/// The vector of one element type, from its intrinsics.
macro_rules! vector {
    ($vector:ty, $scalar:ty, $lanes:literal, $mask:ty, $zero:ident, $splat:ident, $load:ident, $store:ident,
     $load_part:ident, $store_part:ident, $add:ident, $multiply_add:ident) => {
        // SAFETY: every function is one instruction of AVX-512F on pointers the caller vouches for.
        unsafe impl Vector for $vector {
            type Scalar = $scalar;
            type Mask = $mask;
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: the caller runs at this level.
                unsafe { $zero() }
            }

            #[inline(always)]
            unsafe fn splat(value: *const $scalar) -> Self {
                // SAFETY: as above, and the pointer is readable.
                unsafe { $splat(*value) }
            }

            #[inline(always)]
            unsafe fn load(from: *const $scalar) -> Self {
                // SAFETY: as above, for all lanes.
                unsafe { $load(from) }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut $scalar) {
                // SAFETY: as above, writable.
                unsafe { $store(to, self) }
            }

            #[inline(always)]
            unsafe fn mask(lanes: usize) -> $mask {
                ((1u32 << lanes.min(Self::LANES)) - 1) as $mask
            }

            #[inline(always)]
            unsafe fn load_part(from: *const $scalar, mask: $mask) -> Self {
                // SAFETY: as above; lanes outside the mask are not touched.
                unsafe { $load_part(mask, from) }
            }

            #[inline(always)]
            unsafe fn store_part(self, to: *mut $scalar, mask: $mask) {
                // SAFETY: as above.
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
                unsafe { $multiply_add(self, factor, sum) }
            }
        }
    };
}

#[rustfmt::skip]
vector!(__m512, f32, 16, __mmask16, _mm512_setzero_ps, _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps,
    _mm512_maskz_loadu_ps, _mm512_mask_storeu_ps, _mm512_add_ps, _mm512_fmadd_ps);
#[rustfmt::skip]
vector!(__m512d, f64, 8, __mmask8, _mm512_setzero_pd, _mm512_set1_pd, _mm512_loadu_pd, _mm512_storeu_pd,
    _mm512_maskz_loadu_pd, _mm512_mask_storeu_pd, _mm512_add_pd, _mm512_fmadd_pd);
