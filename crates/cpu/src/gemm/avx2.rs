//! Tiles in AVX2 with fused multiply-add: 16 registers of 256 bits; two vectors of `b`, six rows of sums.

use std::arch::x86_64::*;

use super::source::Panel;
use super::tile::{self, Kernels, Tile, Vector, by_rows};

/// Kernels for f32.
pub(super) static F32: Kernels<f32> = Kernels {
    lanes: 8,
    usual: 2,
    tiles: &[
        by_rows!(kernel, __m256, 1; 1 2 3 4 5 6 7 8),
        by_rows!(kernel, __m256, 2; 1 2 3 4 5 6),
    ],
    pack: pack::<__m256>,
};

/// Kernels for f64.
pub(super) static F64: Kernels<f64> = Kernels {
    lanes: 4,
    usual: 2,
    tiles: &[
        by_rows!(kernel, __m256d, 1; 1 2 3 4 5 6 7 8),
        by_rows!(kernel, __m256d, 2; 1 2 3 4 5 6),
    ],
    pack: pack::<__m256d>,
};

/// # Safety
/// As for [`tile::tile`], on a processor with AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
unsafe fn kernel<V: Vector, const ROWS: usize, const VECTORS: usize, const EDGE: bool>(
    call: &Tile<V::Scalar>,
) {
    // SAFETY: the caller keeps the promises of the tile and of the processor.
    unsafe { tile::tile::<V, ROWS, VECTORS, EDGE>(call) }
}

/// # Safety
/// As for [`tile::copy`], whatever the strides, on a processor with AVX2.
#[target_feature(enable = "avx2,fma")]
unsafe fn pack<V: Square>(panel: &Panel<V::Scalar>) {
    // SAFETY: the caller keeps the promises of the panel.
    unsafe {
        match (panel.lane_stride, panel.depth_stride) {
            (1, _) => tile::copy::<V>(panel),
            (_, 1) => turn::<V>(panel),
            _ => tile::gather(panel),
        }
    }
}

/// Vectors of which as many as they have lanes can change places with their lanes.
///
/// # Safety
/// As for [`Vector`].
pub(super) unsafe trait Square: Vector {
    /// Turns rows into columns; only the leading `LANES` are used.
    unsafe fn turned(rows: [Self; 8]) -> [Self; 8];
}

/// Fills one panel from a matrix whose depths are neighbours, a square of vectors at a time.
///
/// # Safety
/// As for [`tile::copy`], but depths are neighbours.
#[inline(always)]
pub(super) unsafe fn turn<V: Square>(panel: &Panel<V::Scalar>) {
    // SAFETY: lanes and depths are those of the panel; what lies outside is masked.
    unsafe {
        for first in (0..panel.lanes).step_by(V::LANES) {
            let lanes = V::LANES.min(panel.lanes - first);
            let across = V::mask(lanes);
            let from = panel.from.offset(first as isize * panel.lane_stride);
            let into = panel.into.add(first);
            for start in (0..panel.depth).step_by(V::LANES) {
                let depths = V::LANES.min(panel.depth - start);
                let mut rows = [V::zero(); 8];
                if depths == V::LANES && lanes == V::LANES {
                    for (lane, row) in rows.iter_mut().enumerate().take(V::LANES) {
                        *row = V::load(from.offset(lane as isize * panel.lane_stride).add(start));
                    }
                    for (depth, column) in V::turned(rows).iter().enumerate().take(V::LANES) {
                        column.store(into.add((start + depth) * panel.width));
                    }
                } else {
                    let along = V::mask(depths);
                    for (lane, row) in rows.iter_mut().enumerate().take(lanes) {
                        let from = from.offset(lane as isize * panel.lane_stride).add(start);
                        *row = V::load_part(from, along);
                    }
                    for (depth, column) in V::turned(rows).iter().enumerate().take(depths) {
                        column.store_part(into.add((start + depth) * panel.width), across);
                    }
                }
            }
        }
    }
}

// SAFETY: shuffles of AVX.
unsafe impl Square for __m256 {
    #[inline(always)]
    unsafe fn turned(r: [Self; 8]) -> [Self; 8] {
        // SAFETY: the caller runs at this level.
        unsafe {
            // Pairs of values, then pairs of pairs, then halves.
            let low = |i: usize| _mm256_unpacklo_ps(r[i], r[i + 1]);
            let high = |i: usize| _mm256_unpackhi_ps(r[i], r[i + 1]);
            let quads = |i: usize| {
                let (l, m) = (low(i), low(i + 2));
                let (h, g) = (high(i), high(i + 2));
                [
                    _mm256_shuffle_ps::<0x44>(l, m),
                    _mm256_shuffle_ps::<0xee>(l, m),
                    _mm256_shuffle_ps::<0x44>(h, g),
                    _mm256_shuffle_ps::<0xee>(h, g),
                ]
            };
            let (top, bottom) = (quads(0), quads(4));
            let left = |i: usize| _mm256_permute2f128_ps::<0x20>(top[i], bottom[i]);
            let right = |i: usize| _mm256_permute2f128_ps::<0x31>(top[i], bottom[i]);
            [
                left(0),
                left(1),
                left(2),
                left(3),
                right(0),
                right(1),
                right(2),
                right(3),
            ]
        }
    }
}

// SAFETY: shuffles of AVX.
unsafe impl Square for __m256d {
    #[inline(always)]
    unsafe fn turned(r: [Self; 8]) -> [Self; 8] {
        // SAFETY: the caller runs at this level.
        unsafe {
            let low = [0, 2].map(|i| _mm256_unpacklo_pd(r[i], r[i + 1]));
            let high = [0, 2].map(|i| _mm256_unpackhi_pd(r[i], r[i + 1]));
            let mut columns = r;
            columns[0] = _mm256_permute2f128_pd::<0x20>(low[0], low[1]);
            columns[1] = _mm256_permute2f128_pd::<0x20>(high[0], high[1]);
            columns[2] = _mm256_permute2f128_pd::<0x31>(low[0], low[1]);
            columns[3] = _mm256_permute2f128_pd::<0x31>(high[0], high[1]);
            columns
        }
    }
}

/// Sign bits of as many leading lanes as wanted: read at `8 - lanes` (or `4 - lanes` of the wide ones).
const LEADING: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// The vector of one element type, from its intrinsics. `$ints` is the number of `i32` in one lane.
macro_rules! vector {
    ($vector:ty, $scalar:ty, $lanes:literal, $ints:literal, $zero:ident, $splat:ident, $load:ident, $store:ident,
     $load_part:ident, $store_part:ident, $add:ident, $multiply_add:ident) => {
        // SAFETY: every function is an instruction of AVX2 or FMA on pointers the caller vouches for.
        unsafe impl Vector for $vector {
            type Scalar = $scalar;
            type Mask = __m256i;
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
            unsafe fn mask(lanes: usize) -> __m256i {
                let first = 8 - lanes.min($lanes) * $ints;
                // SAFETY: eight values from 0 to 8 of the sixteen.
                unsafe { _mm256_loadu_si256(LEADING.as_ptr().add(first).cast()) }
            }

            #[inline(always)]
            unsafe fn load_part(from: *const $scalar, mask: __m256i) -> Self {
                // SAFETY: as above; lanes outside the mask are not touched.
                unsafe { $load_part(from, mask) }
            }

            #[inline(always)]
            unsafe fn store_part(self, to: *mut $scalar, mask: __m256i) {
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
vector!(__m256, f32, 8, 1, _mm256_setzero_ps, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps,
    _mm256_maskload_ps, _mm256_maskstore_ps, _mm256_add_ps, _mm256_fmadd_ps);
#[rustfmt::skip]
vector!(__m256d, f64, 4, 2, _mm256_setzero_pd, _mm256_set1_pd, _mm256_loadu_pd, _mm256_storeu_pd,
    _mm256_maskload_pd, _mm256_maskstore_pd, _mm256_add_pd, _mm256_fmadd_pd);
