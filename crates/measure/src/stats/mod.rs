//! Statistics that survive a busy machine.
//!
//! Times on a shared machine have a long right tail: a preempted sample may take a thousand times as
//! long as its neighbour. Order statistics hardly notice; the mean does, and is kept only so that
//! a reader can see how far it was dragged away from the [median](Summary::median).
//!
//! The number that stands for a contender is its [`location`], the **lower quartile**. Interference
//! only ever adds time, so the low samples are those that tell about the kernel: the quartile still
//! stands when half of the samples were disturbed, where the median does not. The minimum would resist
//! more, but nobody can say how far to trust it: resampling cannot tell how an extreme varies, so its
//! intervals promise more than they hold.

use serde::Serialize;

mod ratio;

pub use ratio::{MIN_SAMPLES, RatioInterval, ratio_interval};

/// Turns a MAD into an estimate of the standard deviation of normally distributed samples.
pub const MAD_TO_SIGMA: f64 = 1.482_602_218_505_602;

/// The order statistics of a set of samples, in the unit of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// Number of samples.
    pub n: usize,
    /// Smallest sample.
    pub min: f64,
    /// Lower quartile.
    pub q1: f64,
    /// Median.
    pub median: f64,
    /// Upper quartile.
    pub q3: f64,
    /// Largest sample.
    pub max: f64,
    /// Median distance from the median, **not** scaled; see [`MAD_TO_SIGMA`].
    pub mad: f64,
    /// Arithmetic mean; not robust.
    pub mean: f64,
}

impl Summary {
    /// Summarises all `samples`, leaving none out. `None` when there are none, when one of them is
    /// not a finite number, or when they lie so far apart that their distance is not.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let sorted = sorted(samples)?;
        let median = quantile_of_sorted(&sorted, 0.5);
        let mut distances: Vec<f64> = sorted.iter().map(|x| (x - median).abs()).collect();
        distances.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let n = sorted.len();
        (max - min).is_finite().then(|| Self {
            n,
            min,
            q1: quantile_of_sorted(&sorted, 0.25),
            median,
            q3: quantile_of_sorted(&sorted, 0.75),
            max,
            mad: quantile_of_sorted(&distances, 0.5),
            // Divided before added, so that the sum cannot overflow.
            mean: sorted
                .iter()
                .map(|x| x / n as f64)
                .sum::<f64>()
                .clamp(min, max),
        })
    }

    /// Distance of the quartiles relative to the median: 0.01 is one per cent. `None` when the median
    /// is zero.
    pub fn relative_spread(&self) -> Option<f64> {
        (self.median != 0.0).then(|| (self.q3 - self.q1) / self.median.abs())
    }
}

/// The `q`-quantile of `samples`, `q` from 0 to 1, interpolated linearly between neighbours (the
/// definition R calls type 7). `None` when there are no samples, one is not a finite number, or `q`
/// is outside its range.
pub fn quantile(samples: &[f64], q: f64) -> Option<f64> {
    let sorted = sorted(samples)?;
    (0.0..=1.0)
        .contains(&q)
        .then(|| quantile_of_sorted(&sorted, q))
}

/// Which quantile is the [`location`].
const LOCATION: f64 = 0.25;

/// How far out 90 % of a normal distribution lies, in standard deviations.
const Z_90: f64 = 1.644_853_626_951_472_2;

/// The number that stands for these samples: their lower quartile. The reason is at the top of this
/// module.
pub fn location(samples: &[f64]) -> Option<f64> {
    quantile(samples, LOCATION)
}

/// How well the [`location`] is known: half the width of its 90 % interval, relative to itself.
///
/// The interval runs between the samples whose ranks lie 1.64 standard deviations of a binomial count
/// around the quartile's own (Woodruff's method). It assumes nothing of the distribution and costs one
/// sort, so the sampler can ask after every round. `None` below nine samples, where the lower rank
/// would lie before the first sample, and for locations that are not positive.
pub fn location_precision(samples: &[f64]) -> Option<f64> {
    let sorted = sorted(samples)?;
    let reach = Z_90 * (LOCATION * (1.0 - LOCATION) / sorted.len() as f64).sqrt();
    let location = quantile_of_sorted(&sorted, LOCATION);
    (reach <= LOCATION && location > 0.0).then(|| {
        let low = quantile_of_sorted(&sorted, LOCATION - reach);
        let high = quantile_of_sorted(&sorted, LOCATION + reach);
        (high - low) / (2.0 * location)
    })
}

/// A sorted copy, if there is at least one sample and all are finite.
fn sorted(samples: &[f64]) -> Option<Vec<f64>> {
    if samples.is_empty() || !samples.iter().all(|x| x.is_finite()) {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Some(sorted)
}

/// As [`quantile`], for samples known to be sorted, finite and at least one.
fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let position = q * (sorted.len() - 1) as f64;
    let below = position as usize;
    let (low, high) = (sorted[below], sorted[(below + 1).min(sorted.len() - 1)]);
    // Rounding must not carry the result past the neighbours it lies between.
    (low + (high - low) * (position - below as f64)).clamp(low, high)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_known_set_is_summarised_by_hand() {
        let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0, 100.0]).unwrap();
        assert_eq!(
            summary,
            Summary {
                n: 5,
                min: 1.0,
                q1: 2.0,
                median: 3.0,
                q3: 4.0,
                max: 100.0,
                mad: 1.0,
                mean: 22.0
            }
        );
        assert_eq!(summary.relative_spread(), Some(2.0 / 3.0));
        assert_eq!(Summary::of(&[0.0]).unwrap().relative_spread(), None);
        assert_eq!(quantile(&[1.0, 2.0], 0.25), Some(1.25));
    }

    #[test]
    fn what_is_not_a_number_is_refused() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Summary::of(&[1.0, bad]), None);
            assert_eq!(quantile(&[1.0, bad], 0.5), None);
        }
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[f64::MAX, f64::MIN]), None);
        assert_eq!(quantile(&[1.0], 1.5), None);
        assert_eq!(quantile(&[1.0], f64::NAN), None);
    }

    #[test]
    fn mad_becomes_a_standard_deviation() {
        // The quartiles of the normal distribution lie 0.6745 standard deviations out.
        assert!((MAD_TO_SIGMA - 1.0 / 0.674_489_750_196_081_7).abs() < 1e-12);
    }

    #[test]
    fn precision_is_read_off_the_ranks_around_the_quartile() {
        let steps: Vec<f64> = (0..=100).map(|i| 1000.0 + f64::from(i)).collect();
        assert_eq!(location(&steps), Some(1025.0));
        // 101 samples: the ranks lie 1.645 * sqrt(0.1875 / 101) = 0.0709 of the whole around.
        let precision = location_precision(&steps).unwrap();
        assert!((precision - 7.087 / 1025.0).abs() < 1e-5, "{precision}");
        assert_eq!(location_precision(&steps[..8]), None);
        assert_eq!(location_precision(&[5.0; 9]), Some(0.0));
        assert_eq!(location_precision(&[0.0; 9]), None);
    }

    proptest! {
        #[test]
        fn the_parts_are_in_order(samples in prop::collection::vec(-1e12..1e12f64, 1..60)) {
            let s = Summary::of(&samples).unwrap();
            prop_assert_eq!(s.n, samples.len());
            prop_assert!(s.min <= s.q1 && s.q1 <= s.median && s.median <= s.q3 && s.q3 <= s.max);
            prop_assert!((s.min..=s.max).contains(&s.mean));
            prop_assert!((0.0..=s.max - s.min).contains(&s.mad));
        }

        #[test]
        fn quantiles_rise_and_split_the_samples(
            samples in prop::collection::vec(0.0..1e9f64, 1..60), p in 0.0..=1.0f64, q in 0.0..=1.0f64,
        ) {
            let (low, high) = (p.min(q), p.max(q));
            let value = quantile(&samples, low).unwrap();
            prop_assert!(value <= quantile(&samples, high).unwrap());
            let below = samples.iter().filter(|&&x| x < value).count();
            prop_assert!(below as f64 <= low * (samples.len() - 1) as f64 + 1.0);
        }

        #[test]
        fn one_wild_sample_moves_the_mean_and_not_the_median(
            samples in prop::collection::vec(100.0..101.0f64, 9..40),
        ) {
            let mut spiked = samples;
            spiked.push(1e6);
            let s = Summary::of(&spiked).unwrap();
            prop_assert!(s.median <= 101.0 && s.q3 <= 101.0 && s.mean > 2_000.0);
        }
    }
}
