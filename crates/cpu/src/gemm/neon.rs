//! Tiles in NEON: 32 registers of 128 bits; three vectors of `b`, eight rows of sums.

use std::arch::aarch64::*;

use super::source::Panel;
use super::tile::{self, Kernels, Tile, Vector, by_rows};

/// Kernels for f32.
pub(super) static F32: Kernels<f32> = Kernels {
    lanes: 4,
    usual: 3,
    tiles: &[
        by_rows!(kernel, float32x4_t, 1; 1 2 3 4 5 6 7 8),
        by_rows!(kernel, float32x4_t, 2; 1 2 3 4 5 6 7 8),
        by_rows!(kernel, float32x4_t, 3; 1 2 3 4 5 6 7 8),
        by_rows!(kernel, float32x4_t, 4; 1 2 3 4 5 6),
    ],
    pack: pack::<float32x4_t>,
};

/// Kernels for f64.
pub(super) static F64: Kernels<f64> = Kernels {
    lanes: 2,
    usual: 3,
    tiles: &[
        by_rows!(kernel, float64x2_t, 1; 1 2 3 4 5 6 7 8),
        by_rows!(kernel, float64x2_t, 2; 1 2 3 4 5 6 7 8),
        by_rows!(kernel, float64x2_t, 3; 1 2 3 4 5 6 7 8),
        by_rows!(kernel, float64x2_t, 4; 1 2 3 4 5 6),
    ],
    pack: pack::<float64x2_t>,
};

/// # Safety
/// As for [`tile::tile`], on a processor with NEON.
#[target_feature(enable = "neon")]
unsafe fn kernel<V: Vector, const ROWS: usize, const VECTORS: usize, const EDGE: bool>(
    call: &Tile<V::Scalar>,
) {
    // SAFETY: the caller keeps the promises of the tile and of the processor.
    unsafe { tile::tile::<V, ROWS, VECTORS, EDGE>(call) }
}

/// # Safety
/// As for [`tile::copy`], whatever the strides, on a processor with NEON.
#[target_feature(enable = "neon")]
unsafe fn pack<V: Vector>(panel: &Panel<V::Scalar>) {
    // SAFETY: the caller keeps the promises of the panel.
    unsafe {
        match panel.lane_stride {
            1 => tile::copy::<V>(panel),
            _ => tile::gather(panel),
        }
    }
}

/// The vector of one element type, from its intrinsics. NEON has no masks: the last vector goes through the
/// stack, value by value.
macro_rules! vector {
    ($vector:ty, $scalar:ty, $lanes:literal, $splat:ident, $load:ident, $store:ident, $add:ident,
     $multiply_add:ident) => {
        // SAFETY: every function is an instruction of NEON on pointers the caller vouches for.
        unsafe impl Vector for $vector {
            type Scalar = $scalar;
            type Mask = usize;
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: the caller runs at this level.
                unsafe { $splat(0.0) }
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
            unsafe fn mask(lanes: usize) -> usize {
                lanes
            }

            #[inline(always)]
            unsafe fn load_part(from: *const $scalar, lanes: usize) -> Self {
                let mut values = [0.0; $lanes];
                for (lane, value) in values.iter_mut().enumerate().take(lanes) {
                    // SAFETY: the leading `lanes` values are readable.
                    *value = unsafe { from.add(lane).read() };
                }
                // SAFETY: a whole vector on the stack.
                unsafe { $load(values.as_ptr()) }
            }

            #[inline(always)]
            unsafe fn store_part(self, to: *mut $scalar, lanes: usize) {
                let mut values = [0.0; $lanes];
                // SAFETY: a whole vector on the stack.
                unsafe { $store(values.as_mut_ptr(), self) };
                for (lane, value) in values.iter().enumerate().take(lanes) {
                    // SAFETY: the leading `lanes` values are writable.
                    unsafe { to.add(lane).write(*value) };
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
                unsafe { $multiply_add(sum, self, factor) }
            }
        }
    };
}

#[rustfmt::skip]
vector!(float32x4_t, f32, 4, vdupq_n_f32, vld1q_f32, vst1q_f32, vaddq_f32, vfmaq_f32);
#[rustfmt::skip]
vector!(float64x2_t, f64, 2, vdupq_n_f64, vld1q_f64, vst1q_f64, vaddq_f64, vfmaq_f64);
