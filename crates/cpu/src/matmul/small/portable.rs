//! Tiles for any processor: plain arrays, four or two lanes long, which compilers turn into the 128-bit vectors
//! that every 64-bit architecture has.

use super::square::{self, by_size};
use super::tile::{self, Lanes, Tile, Tiles, by_rows};

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
unsafe fn compiled<V: Lanes, const R: usize, const C: usize, const EDGE: bool>(
    tile: &Tile<V::Scalar>,
) {
    // SAFETY: the caller keeps the promises.
    unsafe { tile::tile::<V, R, C, EDGE>(tile) }
}

/// # Safety
/// As for [`square::square`].
unsafe fn squared<V: Lanes, const S: usize, const C: usize, const R: usize>(
    a: *const V::Scalar,
    b: *const V::Scalar,
    c: *mut V::Scalar,
) {
    // SAFETY: the caller keeps the promises.
    unsafe { square::square::<V, S, C, R>(a, b, c) }
}

/// A vector of `N` lanes.
#[derive(Debug, Clone, Copy)]
pub(in crate::matmul) struct Array<T, const N: usize>([T; N]);

/// Products are rounded before they are added: without the instruction, a fused multiply-add is a function call.
macro_rules! lanes {
    ($scalar:ty, $count:literal) => {
        // SAFETY: no instructions beyond those of the architecture; masked lanes touch no memory.
        unsafe impl Lanes for Array<$scalar, $count> {
            type Scalar = $scalar;
            type Mask = usize;
            const COUNT: usize = $count;

            #[inline(always)]
            unsafe fn zero() -> Self {
                Self([0.0; $count])
            }

            #[inline(always)]
            unsafe fn splat(value: *const $scalar) -> Self {
                // SAFETY: the caller vouches for the pointer.
                Self([unsafe { *value }; $count])
            }

            #[inline(always)]
            unsafe fn load(from: *const $scalar) -> Self {
                // SAFETY: as above; an array of scalars has no other alignment than they have.
                Self(unsafe { *from.cast() })
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut $scalar) {
                // SAFETY: as above.
                unsafe { *to.cast() = self.0 }
            }

            #[inline(always)]
            unsafe fn mask(lanes: usize) -> usize {
                lanes
            }

            #[inline(always)]
            unsafe fn load_part(from: *const $scalar, mask: usize) -> Self {
                let mut lanes = [0.0; $count];
                for (i, lane) in lanes.iter_mut().enumerate().take(mask) {
                    // SAFETY: as above, for the lanes of the mask.
                    *lane = unsafe { *from.add(i) };
                }
                Self(lanes)
            }

            #[inline(always)]
            unsafe fn store_part(self, to: *mut $scalar, mask: usize) {
                for (i, lane) in self.0.into_iter().enumerate().take(mask) {
                    // SAFETY: as above, for the lanes of the mask.
                    unsafe { *to.add(i) = lane };
                }
            }

            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                Self(std::array::from_fn(|i| self.0[i] + other.0[i]))
            }

            #[inline(always)]
            unsafe fn multiply_add(self, factor: Self, sum: Self) -> Self {
                Self(std::array::from_fn(|i| self.0[i] * factor.0[i] + sum.0[i]))
            }

            #[inline(always)]
            unsafe fn total(self) -> $scalar {
                self.0.iter().sum()
            }
        }
    };
}

lanes!(f32, 4);
lanes!(f64, 2);
