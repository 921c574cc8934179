//! How many times as long one contender takes as another, with an interval.
//!
//! The interval is a percentile bootstrap of the ratio of [locations](super::location). Samples of
//! one round share the state of the machine, so rounds are resampled whole: what slowed both
//! contenders in a round cancels in every resample as it did in the race.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Serialize;

use super::{LOCATION, quantile_of_sorted};

/// Fewest samples of each contender from which an interval is computed.
///
/// Resampling too few numbers promises a certainty that is not there. From this many on, the tests
/// below hold the intervals to what they promise, up to 95 %; higher confidences were not tried.
pub const MIN_SAMPLES: usize = 9;

/// Resamples taken when the samples are few; more would only smooth the ends of the interval.
const RESAMPLES: usize = 1000;
/// Resamples below which the ends of the interval are themselves noise.
const FEWEST_RESAMPLES: usize = 200;
/// Draws in all, which bounds the time to some milliseconds as samples grow in number.
const DRAWS: usize = 1_000_000;

/// The time of one contender divided by that of another: 0.5 is half the time, twice the speed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RatioInterval {
    /// The ratio of the locations.
    pub ratio: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// How often an interval made this way holds the true ratio, if rounds are independent of each
    /// other: 0.9 is nine times in ten. Noise that lasts over several rounds and hits one contender only
    /// makes it too narrow.
    pub confidence: f64,
}

impl RatioInterval {
    /// The same comparison seen from the other side.
    pub fn inverse(self) -> Self {
        Self {
            ratio: 1.0 / self.ratio,
            low: 1.0 / self.high,
            high: 1.0 / self.low,
            ..self
        }
    }
}

/// The ratio of the time of `a` to that of `b`. The same samples and seed give the same interval.
///
/// Two sets of equal length are taken as rounds, in order, and resampled together; sets of different
/// lengths are resampled independently. `None` when a set has fewer than [`MIN_SAMPLES`], a sample is
/// not a positive finite number, or `confidence` does not lie between 0 and 1.
pub fn ratio_interval(a: &[f64], b: &[f64], confidence: f64, seed: u64) -> Option<RatioInterval> {
    let usable = |samples: &[f64]| {
        samples.len() >= MIN_SAMPLES && samples.iter().all(|&x| x.is_finite() && x > 0.0)
    };
    let a_share = confidence > 0.0 && confidence < 1.0;
    if !(a_share && usable(a) && usable(b)) {
        return None;
    }
    // In logarithms a ratio is a difference, and both sides are treated alike.
    let (a, b) = (logarithms(a), logarithms(b));
    let ratio = difference(&mut a.clone(), &mut b.clone());
    let resamples = (DRAWS / a.len().max(b.len())).clamp(FEWEST_RESAMPLES, RESAMPLES);
    let mut rng = Pcg64::seed_from_u64(seed);
    let (mut drawn_a, mut drawn_b) = (vec![0.0; a.len()], vec![0.0; b.len()]);
    let mut resampled: Vec<f64> = (0..resamples)
        .map(|_| {
            if a.len() == b.len() {
                for (to_a, to_b) in drawn_a.iter_mut().zip(&mut drawn_b) {
                    let round = rng.random_range(0..a.len());
                    (*to_a, *to_b) = (a[round], b[round]);
                }
            } else if a.len() < b.len() {
                // The shorter set draws first, so that swapping the sides draws the same samples.
                draw(&a, &mut drawn_a, &mut rng);
                draw(&b, &mut drawn_b, &mut rng);
            } else {
                draw(&b, &mut drawn_b, &mut rng);
                draw(&a, &mut drawn_a, &mut rng);
            }
            difference(&mut drawn_a, &mut drawn_b)
        })
        .collect();
    resampled.sort_unstable_by(f64::total_cmp);
    let tail = (1.0 - confidence) / 2.0;
    // An interval is read as "the ratio, give or take": it holds the ratio even in the rare case
    // that nearly all resamples fell to one side of it.
    let low = quantile_of_sorted(&resampled, tail).min(ratio);
    let high = quantile_of_sorted(&resampled, 1.0 - tail).max(ratio);
    let interval = RatioInterval {
        ratio: ratio.exp(),
        low: low.exp(),
        high: high.exp(),
        confidence,
    };
    (interval.low > 0.0 && interval.high.is_finite()).then_some(interval)
}

fn logarithms(samples: &[f64]) -> Vec<f64> {
    samples.iter().map(|x| x.ln()).collect()
}

/// Fills `to` with samples of `from`, each as likely as the others.
fn draw(from: &[f64], to: &mut [f64], rng: &mut Pcg64) {
    for value in to {
        *value = from[rng.random_range(0..from.len())];
    }
}

/// Difference of the locations; sorts both sets.
fn difference(a: &mut [f64], b: &mut [f64]) -> f64 {
    a.sort_unstable_by(f64::total_cmp);
    b.sort_unstable_by(f64::total_cmp);
    quantile_of_sorted(a, LOCATION) - quantile_of_sorted(b, LOCATION)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Times around `typical` with log-normal noise, now and then ten times as long.
    fn noisy(typical: f64, noise: f64, n: usize, rng: &mut Pcg64) -> Vec<f64> {
        let mut normal = || {
            // Box and Muller.
            let (u, v): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
            let spike = if rng.random_ratio(3, 100) { 10.0 } else { 1.0 };
            let z = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
            typical * (noise * z).exp() * spike
        };
        (0..n).map(|_| normal()).collect()
    }

    /// How many of 400 races of a kernel against itself end with an interval that holds 1.
    fn holds_one(n: usize, confidence: f64) -> u32 {
        (0..400)
            .map(|seed| {
                let mut rng = Pcg64::seed_from_u64(seed);
                let a = noisy(1000.0, 0.05, n, &mut rng);
                let b = noisy(1000.0, 0.05, n, &mut rng);
                let interval = ratio_interval(&a, &b, confidence, seed).unwrap();
                u32::from(interval.low <= 1.0 && interval.high >= 1.0)
            })
            .sum()
    }

    #[test]
    fn a_kernel_against_itself_differs_no_oftener_than_stated() {
        // Seeds are fixed, so this cannot fail by chance; the margin of 12 is two standard
        // deviations of the count, and allows for the generator to change.
        for (n, confidence) in [
            (MIN_SAMPLES, 0.9),
            (MIN_SAMPLES, 0.95),
            (15, 0.9),
            (30, 0.9),
        ] {
            let held = holds_one(n, confidence);
            let promised = (confidence * 400.0) as u32;
            assert!(held + 12 >= promised, "{n} rounds: {held} of 400");
            // An interval that always holds says nothing.
            assert!(held < 396, "{n} rounds: {held} of 400");
        }
    }

    #[test]
    fn ten_per_cent_is_seen_through_five_per_cent_noise() {
        let seen = (0..300)
            .filter(|&seed| {
                let mut rng = Pcg64::seed_from_u64(seed);
                let a = noisy(1100.0, 0.05, 30, &mut rng);
                let b = noisy(1000.0, 0.05, 30, &mut rng);
                ratio_interval(&a, &b, 0.9, seed).unwrap().low > 1.02
            })
            .count();
        assert!(seen >= 285, "{seen} of 300");
    }

    #[test]
    fn what_slows_a_whole_round_cancels() {
        // The machine slows down from round to round; `a` always takes 3 % longer than `b`.
        let b: Vec<f64> = (0..20).map(|i| 1000.0 + 50.0 * f64::from(i)).collect();
        let a: Vec<f64> = b.iter().map(|t| t * 1.03).collect();
        let together = ratio_interval(&a, &b, 0.9, 1).unwrap();
        assert!((together.high / together.low - 1.0).abs() < 1e-9);
        let apart = ratio_interval(&a[..19], &b, 0.9, 1).unwrap();
        assert!(apart.high / apart.low > 1.1, "{apart:?}");
    }

    #[test]
    fn too_little_or_impossible_evidence_gives_no_interval() {
        let good = [1.0; MIN_SAMPLES];
        assert!(ratio_interval(&good, &good, 0.9, 0).is_some());
        assert_eq!(ratio_interval(&good[1..], &good, 0.9, 0), None);
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let mut spoilt = good;
            spoilt[3] = bad;
            assert_eq!(ratio_interval(&good, &spoilt, 0.9, 0), None);
        }
        for confidence in [0.0, 1.0, f64::NAN] {
            assert_eq!(ratio_interval(&good, &good, confidence, 0), None);
        }
    }

    #[test]
    fn the_seed_decides() {
        let mut rng = Pcg64::seed_from_u64(9);
        let (a, b) = (noisy(1.0, 0.1, 12, &mut rng), noisy(1.0, 0.1, 12, &mut rng));
        let with = |seed| ratio_interval(&a, &b, 0.9, seed);
        assert_eq!(with(1), with(1));
        assert_ne!(with(1), with(2));
    }

    fn close(x: f64, y: f64) -> bool {
        (x / y - 1.0).abs() < 1e-9
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn units_do_not_matter(
            a in prop::collection::vec(1.0..100.0f64, MIN_SAMPLES..25),
            b in prop::collection::vec(1.0..100.0f64, MIN_SAMPLES..25),
            unit in 1e-3..1e6f64,
        ) {
            let scale = |samples: &[f64]| samples.iter().map(|x| x * unit).collect::<Vec<_>>();
            let plain = ratio_interval(&a, &b, 0.9, 3).unwrap();
            let scaled = ratio_interval(&scale(&a), &scale(&b), 0.9, 3).unwrap();
            prop_assert!(close(plain.ratio, scaled.ratio));
            prop_assert!(close(plain.low, scaled.low) && close(plain.high, scaled.high));
        }

        #[test]
        fn swapping_the_sides_inverts_the_interval(
            a in prop::collection::vec(1.0..100.0f64, MIN_SAMPLES..25),
            b in prop::collection::vec(1.0..100.0f64, MIN_SAMPLES..25),
        ) {
            let forth = ratio_interval(&a, &b, 0.9, 3).unwrap();
            let back = ratio_interval(&b, &a, 0.9, 3).unwrap().inverse();
            prop_assert!(close(forth.ratio, back.ratio));
            prop_assert!(close(forth.low, back.low) && close(forth.high, back.high));
            prop_assert!(forth.low <= forth.ratio && forth.ratio <= forth.high);
        }
    }
}
