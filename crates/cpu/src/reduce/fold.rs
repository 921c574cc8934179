//! Folds: how one number is made of many, on single numbers and on vectors.
//!
//! A fold over a run of memory keeps several vectors of partial results, so that one addition need not wait for
//! the one before; how many is `U`, the parameter `unroll` of the kernels. Long runs are cut, and the results of
//! the cuts joined: partial sums stay short, and so do their rounding errors.
#![allow(unsafe_code)]

use super::lanes::{MOST_LANES, Number, Vector};

/// Elements of a run that are folded before a new partial result begins.
pub(crate) const CUT: usize = 4096;

/// Rows that are joined before the totals are loaded and stored again. A guess between few, where that happens often, and
/// many, where a wide tensor is read in small pieces far apart.
const ROWS: usize = 32;

/// How a number is made of many.
///
/// # Safety
/// `take_all` and `join_all` ask that the processor has the instructions of `V`.
pub(crate) trait Fold<T: Number>: Copy + Send + Sync {
    /// The result of nothing.
    const START: T;

    /// One more element.
    fn take(self, so_far: T, element: T) -> T;
    /// Two results as one.
    fn join(self, a: T, b: T) -> T;
    /// As [`take`](Self::take), lane by lane.
    unsafe fn take_all<V: Vector<Scalar = T>>(self, so_far: V, elements: V) -> V;
    /// As [`join`](Self::join), lane by lane.
    unsafe fn join_all<V: Vector<Scalar = T>>(self, a: V, b: V) -> V;
}

/// Folds whose elements are joined as their results are.
macro_rules! plain_folds {
    ($($(#[$doc:meta])* $name:ident, $start:ident, $of:ident;)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name;

        impl<T: Number> Fold<T> for $name {
            const START: T = T::$start;
            #[inline(always)]
            fn take(self, so_far: T, element: T) -> T {
                so_far.$of(element)
            }
            #[inline(always)]
            fn join(self, a: T, b: T) -> T {
                a.$of(b)
            }
            #[inline(always)]
            unsafe fn take_all<V: Vector<Scalar = T>>(self, so_far: V, elements: V) -> V {
                // SAFETY: the caller vouches for the instructions.
                unsafe { so_far.$of(elements) }
            }
            #[inline(always)]
            unsafe fn join_all<V: Vector<Scalar = T>>(self, a: V, b: V) -> V {
                // SAFETY: as above.
                unsafe { a.$of(b) }
            }
        })*
    };
}

plain_folds! {
    /// The sum.
    Sum, ZERO, plus;
    /// The product.
    Product, ONE, times;
    /// The largest.
    Largest, LOWEST, larger;
    /// The smallest.
    Smallest, HIGHEST, smaller;
}

/// The sum of squared distances from a centre.
#[derive(Clone, Copy)]
pub(crate) struct Squares<T> {
    /// What is taken off each element first.
    pub(crate) centre: T,
}

impl<T: Number> Fold<T> for Squares<T> {
    const START: T = T::ZERO;
    #[inline(always)]
    fn take(self, so_far: T, element: T) -> T {
        let distance = element.minus(self.centre);
        so_far.plus(distance.times(distance))
    }
    #[inline(always)]
    fn join(self, a: T, b: T) -> T {
        a.plus(b)
    }
    #[inline(always)]
    unsafe fn take_all<V: Vector<Scalar = T>>(self, so_far: V, elements: V) -> V {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            let distance = elements.minus(V::splat(self.centre));
            so_far.plus(distance.times(distance))
        }
    }
    #[inline(always)]
    unsafe fn join_all<V: Vector<Scalar = T>>(self, a: V, b: V) -> V {
        // SAFETY: as above.
        unsafe { a.plus(b) }
    }
}

/// Folds a run of memory with `U` vectors of partial results.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn fold_run<V, F, const U: usize>(fold: F, run: &[V::Scalar]) -> V::Scalar
where
    V: Vector,
    F: Fold<V::Scalar>,
{
    let mut total = F::START;
    for cut in run.chunks(CUT) {
        // SAFETY: the caller vouches for the instructions.
        total = fold.join(total, unsafe { fold_cut::<V, F, U>(fold, cut) });
    }
    total
}

/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn fold_cut<V, F, const U: usize>(fold: F, cut: &[V::Scalar]) -> V::Scalar
where
    V: Vector,
    F: Fold<V::Scalar>,
{
    let whole = cut.len() / V::LANES * V::LANES;
    let mut total = F::START;
    if whole > 0 {
        // SAFETY: every load begins at least one vector before `whole`, which is inside the cut; the caller
        // vouches for the instructions.
        unsafe {
            let mut so_far = [V::splat(F::START); U];
            let mut at = 0;
            while at + U * V::LANES <= whole {
                for (u, so_far) in so_far.iter_mut().enumerate() {
                    let elements = V::load(cut.as_ptr().add(at + u * V::LANES));
                    *so_far = fold.take_all(*so_far, elements);
                }
                at += U * V::LANES;
            }
            while at < whole {
                so_far[0] = fold.take_all(so_far[0], V::load(cut.as_ptr().add(at)));
                at += V::LANES;
            }
            let mut joined = so_far[0];
            for &other in &so_far[1..] {
                joined = fold.join_all(joined, other);
            }
            total = across(fold, joined);
        }
    }
    for &element in &cut[whole..] {
        total = fold.take(total, element);
    }
    total
}

/// The lanes of a vector joined, halves first.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn across<V, F>(fold: F, vector: V) -> V::Scalar
where
    V: Vector,
    F: Fold<V::Scalar>,
{
    let mut lanes = [F::START; MOST_LANES];
    // SAFETY: a vector has at most `MOST_LANES` lanes.
    unsafe { vector.store(lanes.as_mut_ptr()) };
    let mut width = V::LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            lanes[lane] = fold.join(lanes[lane], lanes[lane + width]);
        }
    }
    lanes[0]
}

/// Joins `rows` rows into `so_far`, column by column, `U` vectors of columns at a time. Row `r` begins at
/// `start(r)` in `elements` and is as long as `so_far`.
///
/// # Safety
/// The processor has the instructions of `V`, and every row lies inside `elements`.
#[inline(always)]
pub(crate) unsafe fn fold_columns<V, F, const U: usize>(
    fold: F,
    elements: &[V::Scalar],
    rows: std::ops::Range<usize>,
    start: impl Fn(usize) -> usize,
    so_far: &mut [V::Scalar],
) where
    V: Vector,
    F: Fold<V::Scalar>,
{
    let mut cut = rows.start;
    while cut < rows.end {
        let rows = cut..rows.end.min(cut + ROWS);
        let mut column = 0;
        // SAFETY: the caller vouches for the instructions and the rows; blocks end inside `so_far`, which is
        // as long as they are.
        unsafe {
            while column + U * V::LANES <= so_far.len() {
                let to = so_far.as_mut_ptr().add(column);
                block::<V, F, U>(fold, elements, rows.clone(), |row| start(row) + column, to);
                column += U * V::LANES;
            }
            while column + V::LANES <= so_far.len() {
                let to = so_far.as_mut_ptr().add(column);
                block::<V, F, 1>(fold, elements, rows.clone(), |row| start(row) + column, to);
                column += V::LANES;
            }
        }
        let rest = &mut so_far[column..];
        if !rest.is_empty() {
            // All at once, so that they do not wait for one another.
            let mut partial = [F::START; MOST_LANES];
            let partial = &mut partial[..rest.len()];
            for row in rows.clone() {
                let from = &elements[start(row) + column..][..rest.len()];
                for (partial, &element) in partial.iter_mut().zip(from) {
                    *partial = fold.take(*partial, element);
                }
            }
            for (total, &partial) in rest.iter_mut().zip(&*partial) {
                *total = fold.join(*total, partial);
            }
        }
        cut = rows.end;
    }
}

/// # Safety
/// The processor has the instructions of `V`; `U` vectors lie in `elements` from each `start(row)`, and at `to`.
#[inline(always)]
unsafe fn block<V, F, const U: usize>(
    fold: F,
    elements: &[V::Scalar],
    rows: std::ops::Range<usize>,
    start: impl Fn(usize) -> usize,
    to: *mut V::Scalar,
) where
    V: Vector,
    F: Fold<V::Scalar>,
{
    // SAFETY: as the caller says.
    unsafe {
        let mut so_far = [V::splat(F::START); U];
        for row in rows {
            debug_assert!(start(row) + U * V::LANES <= elements.len());
            let from = elements.as_ptr().add(start(row));
            for (u, so_far) in so_far.iter_mut().enumerate() {
                *so_far = fold.take_all(*so_far, V::load(from.add(u * V::LANES)));
            }
        }
        for (u, &partial) in so_far.iter().enumerate() {
            let to = to.add(u * V::LANES);
            fold.join_all(V::load(to), partial).store(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lanes::{Job, distinct};
    use super::*;
    use crate::isa::Level;

    struct Run<'a, T, F, const U: usize>(F, &'a [T]);
    impl<T: Number, F: Fold<T>, const U: usize> Job<T> for Run<'_, T, F, U> {
        type Output = T;
        #[inline(always)]
        unsafe fn run<V: Vector<Scalar = T>>(self) -> T {
            // SAFETY: passed on.
            unsafe { fold_run::<V, F, U>(self.0, self.1) }
        }
    }

    fn run<T: Number, F: Fold<T>>(level: Level, fold: F, elements: &[T]) -> [T; 2] {
        [
            T::on(level, Run::<T, F, 1>(fold, elements)),
            T::on(level, Run::<T, F, 8>(fold, elements)),
        ]
    }

    #[test]
    fn every_length_is_folded_whole() {
        for level in distinct(&Level::all()) {
            for length in (0..140).chain([CUT - 1, CUT, CUT + 1, 2 * CUT + 5]) {
                let x: Vec<i64> = (0..length as i64).map(|i| (i * 37) % 101 - 50).collect();
                let sum: i64 = x.iter().sum();
                assert_eq!(run(level, Sum, &x), [sum; 2], "{length}");
                let most = x.iter().copied().max().unwrap_or(i64::MIN);
                assert_eq!(run(level, Largest, &x), [most; 2], "{length}");
                let least = x.iter().copied().min().unwrap_or(i64::MAX);
                assert_eq!(run(level, Smallest, &x), [least; 2], "{length}");
                let squares = x.iter().map(|x| (x - 3) * (x - 3)).sum();
                assert_eq!(run(level, Squares { centre: 3 }, &x), [squares; 2]);
                let odd: Vec<i32> = x.iter().map(|&x| x as i32 | 1).collect();
                let product = odd.iter().fold(1i32, |p, &x| p.wrapping_mul(x));
                assert_eq!(run(level, Product, &odd), [product; 2], "{length}");
            }
        }
    }

    #[test]
    fn nan_is_found_in_every_place() {
        for level in distinct(&Level::all()) {
            for length in [1, 15, 16, 17, 70, 300] {
                for at in 0..length {
                    let mut x = vec![1f32; length];
                    x[at] = f32::NAN;
                    assert!(run(level, Largest, &x).iter().all(|x| x.is_nan()));
                    assert!(run(level, Smallest, &x).iter().all(|x| x.is_nan()));
                }
            }
        }
    }

    /// Cuts keep partial sums short. Tenths, all rounded the same way, show the drift of long ones at once.
    #[test]
    fn long_sums_drift_little() {
        let x = vec![0.1f32; 1 << 20];
        for level in distinct(&Level::all()) {
            for sum in run(level, Sum, &x) {
                let exact = f64::from(0.1f32) * x.len() as f64;
                let error = (f64::from(sum) - exact).abs() / exact;
                assert!(error < 5e-5, "{} is off by {error}", level.name());
            }
        }
    }
}
