//! Mean and variance.
//!
//! Differences from a centre near the mean are summed, and their squares: what the centre misses of the mean is put right
//! afterwards (Chan, Golub and LeVeque, "Algorithms for computing the sample variance"), so nothing large cancels. *Two-pass*
//! takes the sum for the centre; *online* takes the mean so far, block by block, and reads the elements once.
#![allow(unsafe_code)]

use super::float::Float;
use crate::reduce::fold::{Sum, across, fold_run};
use crate::reduce::lanes::{Number, Vector};

/// What is known of the elements so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Moments {
    count: f64,
    mean: f64,
    /// The sum of squared distances from the mean.
    squares: f64,
}

/// Elements that are read before the mean is known better.
const BLOCK: usize = 512;

/// Elements whose mean is the first centre. They are part of the block, so however far off they are, it is
/// by no more than √(BLOCK / FIRST) deviations.
const FIRST: usize = 16;

impl Moments {
    /// The mean.
    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    /// The variance, divided by the number of elements.
    pub(super) fn variance(&self) -> f64 {
        self.squares / self.count
    }

    /// Of the elements of both (Chan's formula).
    fn join(self, other: Self) -> Self {
        let count = self.count + other.count;
        let apart = other.mean - self.mean;
        Self {
            count,
            mean: self.mean + apart * (other.count / count),
            squares: self.squares
                + other.squares
                + apart * apart * (self.count * other.count / count),
        }
    }

    /// Of some elements, from differences around a centre.
    ///
    /// # Safety
    /// The processor has the instructions of `V`.
    #[inline(always)]
    unsafe fn around<V: Vector<Scalar: Float>>(x: &[V::Scalar], centre: V::Scalar) -> Self {
        // SAFETY: the caller vouches for the instructions.
        let (sum, squares) = unsafe { deviations::<V>(x, centre) };
        let count = x.len() as f64;
        let off = sum / count;
        Self {
            count,
            mean: centre.widen() + off,
            // Rounding may leave less than nothing; what is not a number stays.
            squares: squares - sum * off,
        }
        .not_negative()
    }

    fn not_negative(mut self) -> Self {
        if self.squares < 0.0 {
            self.squares = 0.0;
        }
        self
    }

    /// Of several runs of memory, read twice.
    ///
    /// # Safety
    /// The processor has the instructions of `V`.
    #[inline(always)]
    pub(super) unsafe fn two_pass<'a, V: Vector<Scalar: Float>>(
        runs: impl Iterator<Item = &'a [V::Scalar]> + Clone,
    ) -> Self {
        let (mut sum, mut count) = (0.0, 0.0);
        for run in runs.clone() {
            // SAFETY: the caller vouches for the instructions.
            sum += unsafe { fold_run::<V, _, 4>(Sum, run) }.widen();
            count += run.len() as f64;
        }
        let centre = V::Scalar::narrow(sum / count);
        if !centre.is_finite() {
            return Self::infinite(sum, count);
        }
        let (mut sum, mut squares) = (0.0, 0.0);
        for run in runs {
            // SAFETY: as above.
            let (more, more_squares) = unsafe { deviations::<V>(run, centre) };
            sum += more;
            squares += more_squares;
        }
        let off = sum / count;
        Self {
            count,
            mean: centre.widen() + off,
            squares: squares - sum * off,
        }
        .not_negative()
    }

    /// Of elements that are not all finite: no distance from such a mean is a number.
    fn infinite(sum: f64, count: f64) -> Self {
        Self {
            count,
            mean: sum / count,
            squares: f64::NAN,
        }
    }

    /// Of several runs of memory, read once, unless an element is not finite.
    ///
    /// # Safety
    /// The processor has the instructions of `V`.
    #[inline(always)]
    pub(super) unsafe fn online<'a, V: Vector<Scalar: Float>>(
        runs: impl Iterator<Item = &'a [V::Scalar]> + Clone,
    ) -> Self {
        let mut so_far = Self::default();
        for block in runs.clone().flat_map(|run| run.chunks(BLOCK)) {
            // SAFETY: the caller vouches for the instructions.
            unsafe {
                if so_far.count == 0.0 {
                    let first = &block[..FIRST.min(block.len())];
                    let sum = fold_run::<V, _, 1>(Sum, first).widen();
                    let centre = V::Scalar::narrow(sum / first.len() as f64);
                    so_far = Self::around::<V>(block, centre);
                } else {
                    let centre = V::Scalar::narrow(so_far.mean);
                    so_far = so_far.join(Self::around::<V>(block, centre));
                }
            }
        }
        if so_far.mean.is_finite() {
            return so_far;
        }
        let elements = || runs.clone().flatten();
        let sum = elements().map(|x| x.widen()).sum();
        Self::infinite(sum, elements().count() as f64)
    }
}

/// The sums of the differences from a centre, and of their squares.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn deviations<V: Vector<Scalar: Float>>(x: &[V::Scalar], centre: V::Scalar) -> (f64, f64) {
    const UNROLL: usize = 4;
    let (mut sum, mut squares) = (0.0, 0.0);
    for cut in x.chunks(4 * BLOCK) {
        let whole = cut.len() / V::LANES * V::LANES;
        // SAFETY: loads begin at least a vector before `whole`, inside the cut; the caller vouches for the
        // instructions.
        unsafe {
            let middle = V::splat(centre);
            let zero = V::splat(V::Scalar::ZERO);
            let (mut sums, mut products) = ([zero; UNROLL], [zero; UNROLL]);
            let mut at = 0;
            while at + UNROLL * V::LANES <= whole {
                for u in 0..UNROLL {
                    let off = V::load(cut.as_ptr().add(at + u * V::LANES)).minus(middle);
                    sums[u] = sums[u].plus(off);
                    products[u] = products[u].plus(off.times(off));
                }
                at += UNROLL * V::LANES;
            }
            while at < whole {
                let off = V::load(cut.as_ptr().add(at)).minus(middle);
                sums[0] = sums[0].plus(off);
                products[0] = products[0].plus(off.times(off));
                at += V::LANES;
            }
            let joined = |v: [V; UNROLL]| v[0].plus(v[1]).plus(v[2].plus(v[3]));
            sum += across(Sum, joined(sums)).widen();
            squares += across(Sum, joined(products)).widen();
        }
        for &x in &cut[whole..] {
            let off = x.minus(centre).widen();
            sum += off;
            squares += off * off;
        }
    }
    (sum, squares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Level;
    use crate::reduce::lanes::{Job, distinct};

    struct Both<'a, T>(&'a [T]);
    impl<T: Float> Job<T> for Both<'_, T> {
        type Output = [Moments; 2];
        #[inline(always)]
        unsafe fn run<V: Vector<Scalar = T>>(self) -> [Moments; 2] {
            let runs = || self.0.chunks(700);
            // SAFETY: passed on.
            unsafe { [Moments::two_pass::<V>(runs()), Moments::online::<V>(runs())] }
        }
    }

    /// A mean that is large against the deviation, and a beginning unlike the rest, which a centre at the first
    /// element would not survive.
    #[test]
    fn nothing_large_cancels() {
        for level in distinct(&Level::all()) {
            for length in [1, 7, 16, 33, 512, 513, 2000] {
                for odd in [0.0f32, 300.0] {
                    let mut x: Vec<f32> = (0..length)
                        .map(|i| 5000.0 + (i * 7 % 11) as f32 / 8.0)
                        .collect();
                    x[0] += odd;
                    let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / x.len() as f64;
                    let square = |&x: &f32| (f64::from(x) - mean).powi(2);
                    let variance = x.iter().map(square).sum::<f64>() / x.len() as f64;
                    for moments in f32::on(level, Both(&x)) {
                        assert!((moments.mean() - mean).abs() < 1e-4, "{moments:?} {mean}");
                        let error = (moments.variance() - variance).abs();
                        assert!(error <= 1e-4 * variance + 1e-9, "{moments:?} {variance}");
                    }
                }
            }
        }
    }

    #[test]
    fn infinite_elements_have_an_infinite_mean() {
        for at in [0, 20, 550] {
            for x in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let row: Vec<f64> = (0..2000).map(|i| if i == at { x } else { 1.0 }).collect();
                for moments in f64::on(Level::PORTABLE, Both(&row)) {
                    assert_eq!(moments.mean().to_string(), x.to_string());
                    assert!(moments.variance().is_nan(), "{moments:?}");
                }
            }
        }
    }
}
