//! Tiles in plain arrays, for the compiler to put into whatever registers there are.

use super::source::Panel;
use super::tile::{self, Kernels, Tile, Vector, by_rows};

/// Four values of f32, or two of f64: 128 bits, which nearly every processor has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Array<T, const LANES: usize>([T; LANES]);

/// Kernels for f32.
pub(super) static F32: Kernels<f32> = Kernels {
    lanes: 4,
    usual: 2,
    tiles: &[
        by_rows!(kernel, Array<f32, 4>, 1; 1 2 3 4),
        by_rows!(kernel, Array<f32, 4>, 2; 1 2 3 4),
    ],
    pack: pack::<Array<f32, 4>>,
};

/// Kernels for f64.
pub(super) static F64: Kernels<f64> = Kernels {
    lanes: 2,
    usual: 2,
    tiles: &[
        by_rows!(kernel, Array<f64, 2>, 1; 1 2 3 4),
        by_rows!(kernel, Array<f64, 2>, 2; 1 2 3 4),
    ],
    pack: pack::<Array<f64, 2>>,
};

/// # Safety
/// As for [`tile::tile`].
unsafe fn kernel<V: Vector, const ROWS: usize, const VECTORS: usize, const EDGE: bool>(
    call: &Tile<V::Scalar>,
) {
    // SAFETY: the caller keeps the promises of the tile.
    unsafe { tile::tile::<V, ROWS, VECTORS, EDGE>(call) }
}

/// # Safety
/// As for [`tile::copy`], whatever the strides.
unsafe fn pack<V: Vector>(panel: &Panel<V::Scalar>) {
    // SAFETY: the caller keeps the promises of the panel.
    unsafe {
        match panel.lane_stride {
            1 => tile::copy::<V>(panel),
            _ => tile::gather(panel),
        }
    }
}

/// The vector of one element type.
macro_rules! vector {
    ($scalar:ty, $lanes:literal) => {
        // SAFETY: plain arithmetic on arrays, and pointers the caller vouches for.
        unsafe impl Vector for Array<$scalar, $lanes> {
            type Scalar = $scalar;
            type Mask = usize;
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn zero() -> Self {
                Self([0.0; $lanes])
            }

            #[inline(always)]
            unsafe fn splat(value: *const $scalar) -> Self {
                // SAFETY: the pointer is readable.
                Self([unsafe { value.read() }; $lanes])
            }

            #[inline(always)]
            unsafe fn load(from: *const $scalar) -> Self {
                // SAFETY: readable for all lanes; an array is aligned like its elements.
                Self(unsafe { from.cast::<[$scalar; $lanes]>().read() })
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut $scalar) {
                // SAFETY: as above, writable.
                unsafe { to.cast::<[$scalar; $lanes]>().write(self.0) }
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
                Self(values)
            }

            #[inline(always)]
            unsafe fn store_part(self, to: *mut $scalar, lanes: usize) {
                for (lane, value) in self.0.iter().enumerate().take(lanes) {
                    // SAFETY: the leading `lanes` values are writable.
                    unsafe { to.add(lane).write(*value) };
                }
            }

            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                let mut sum = self.0;
                for (sum, other) in sum.iter_mut().zip(other.0) {
                    *sum += other;
                }
                Self(sum)
            }

            #[inline(always)]
            unsafe fn multiply_add(self, factor: Self, sum: Self) -> Self {
                let mut sum = sum.0;
                for ((sum, value), factor) in sum.iter_mut().zip(self.0).zip(factor.0) {
                    *sum += value * factor;
                }
                Self(sum)
            }
        }
    };
}

vector!(f32, 4);
vector!(f64, 2);
