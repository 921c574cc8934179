//! Square products of one known size, stored without gaps: every distance is a constant of the code.

use crate::gemm::Vector;

/// The largest size there is a kernel for.
pub(super) const MOST: usize = 16;

/// Computes `c = a · b` for matrices of one size. To be called with three addresses of as many elements as the size wants, `c`
/// writable and apart from the others, on a processor that has the level.
pub(super) type SquareFn<T> = unsafe fn(*const T, *const T, *mut T);

/// The body of all of them, to be inlined into a function that is compiled for the level: size `S`, rows of `C`
/// vectors, `R` rows at a time.
///
/// # Safety
/// As [`SquareFn`] says.
#[inline(always)]
pub(super) unsafe fn square<V: Vector, const S: usize, const C: usize, const R: usize>(
    a: *const V::Scalar,
    b: *const V::Scalar,
    c: *mut V::Scalar,
) {
    const {
        assert!(S <= C * V::LANES && S > (C - 1) * V::LANES && R > 0);
    }
    // SAFETY: rows, depths and columns are below `S`; the last vector of a row is masked where it is cut short.
    unsafe {
        let mask = V::mask(S - (C - 1) * V::LANES);
        let cut = |v: usize| v + 1 == C && S < C * V::LANES;
        for first in (0..S).step_by(R) {
            let mut sums = [[V::zero(); C]; R];
            // By fours: left to itself the compiler keeps a loop whose end costs as much as several of its rounds.
            for group in (0..S).step_by(4) {
                for depth in group..(group + 4).min(S) {
                    let mut columns = [V::zero(); C];
                    for (v, column) in columns.iter_mut().enumerate() {
                        let from = b.add(depth * S + v * V::LANES);
                        *column = if cut(v) {
                            V::load_part(from, mask)
                        } else {
                            V::load(from)
                        };
                    }
                    for (i, sums) in sums.iter_mut().enumerate() {
                        if first + i < S {
                            let factor = V::splat(a.add((first + i) * S + depth));
                            for (sum, column) in sums.iter_mut().zip(columns) {
                                *sum = column.multiply_add(factor, *sum);
                            }
                        }
                    }
                }
            }
            for (i, sums) in sums.into_iter().enumerate() {
                if first + i < S {
                    for (v, sum) in sums.into_iter().enumerate() {
                        let to = c.add((first + i) * S + v * V::LANES);
                        if cut(v) {
                            sum.store_part(to, mask);
                        } else {
                            sum.store(to);
                        }
                    }
                }
            }
        }
    }
}

/// The kernels of one level: of each size in turn, with its vectors per row and its rows at a time.
macro_rules! by_size {
    ($compiled:ident, $vector:ty; $($size:literal: $width:literal x $rows:literal),+ $(,)?) => {
        [$($compiled::<$vector, $size, $width, $rows>),+]
    };
}
pub(super) use by_size;
