//! Which readings of the machine go along with slowdown.
//!
//! Spearman's correlation of ranks: times do not depend on load or temperature in a straight line, and a wild value is
//! one rank among others. Its p-value is by Fisher's transformation with the variance of Fieller, Hartley and
//! Pearson (1957), 1.06/(n-3). Several readings are several chances to find something in noise, so which of them count is
//! decided by the procedure of Benjamini and Hochberg (1995): of all correlations reported, no more than the given
//! rate are chance. Pairs are taken to be independent: many times between two readings are
//! not, so feed one pair per reading, as [`Watch`](super::Watch) does.

use serde::{Deserialize, Serialize};

use super::robust::two_sided;
use super::state::Reading;

/// Of the variance of the transformed correlation of ranks.
const FIELLER: f64 = 1.06;

/// A reading and slowdown.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Correlation {
    /// The reading.
    pub reading: Reading,
    /// Spearman's correlation, from -1 to 1; positive if times are longer where the reading is higher.
    pub r: f64,
    /// How likely unrelated numbers are correlated as much.
    pub p: f64,
    /// Pairs it was computed from.
    pub samples: usize,
}

impl Correlation {
    /// The fewest pairs it takes.
    pub const LEAST: usize = 20;

    /// The correlation of a reading with slowdown, ln of measured over expected time. Pairs in which a number is not finite
    /// are left out; too few pairs, or one value only on either side, have no correlation.
    pub fn of(reading: Reading, pairs: &[(f64, f64)]) -> Option<Self> {
        let finite = pairs.iter().filter(|(a, b)| a.is_finite() && b.is_finite());
        let (a, b): (Vec<f64>, Vec<f64>) = finite.copied().unzip();
        let samples = a.len();
        if samples < Self::LEAST {
            return None;
        }
        let r = pearson(&ranks(&a), &ranks(&b))?;
        let z = r.clamp(-1.0, 1.0).atanh() * ((samples - 3) as f64 / FIELLER).sqrt();
        Some(Self {
            reading,
            r,
            p: two_sided(z),
            samples,
        })
    }

    /// Those of several correlations that are no chance, strongest evidence first, at a rate of false ones among them between
    /// 0 and 1.
    pub fn significant(mut all: Vec<Self>, rate: f64) -> Vec<Self> {
        all.sort_by(|a, b| a.p.total_cmp(&b.p));
        let count = all.len() as f64;
        // The last one below its line, and with it all before.
        let last = all
            .iter()
            .enumerate()
            .rposition(|(place, one)| one.p <= rate * (place + 1) as f64 / count);
        all.truncate(last.map_or(0, |last| last + 1));
        all
    }
}

/// The place of every value among all; equal ones share theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for tied in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let shared = before as f64 + (tied.len() - 1) as f64 / 2.0;
        for &index in tied {
            ranks[index] = shared;
        }
        before += tied.len();
    }
    ranks
}

/// The correlation of two rows of numbers, unless one of them is constant.
fn pearson(a: &[f64], b: &[f64]) -> Option<f64> {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (mut aa, mut bb, mut ab) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (a - mean_a, b - mean_b);
        aa += a * a;
        bb += b * b;
        ab += a * b;
    }
    let scale = (aa * bb).sqrt();
    (scale > 0.0).then(|| (ab / scale).clamp(-1.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::super::noise::normal;
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    /// Pairs with this correlation.
    fn pairs(r: f64, count: usize, rng: &mut Pcg64) -> Vec<(f64, f64)> {
        let pair = |_| {
            let a = normal(rng);
            (a, r * a + (1.0 - r * r).sqrt() * normal(rng))
        };
        (0..count).map(pair).collect()
    }

    #[test]
    fn ranks_share_places_and_do_not_care_for_scale() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 9.0]), [1.5, 0.0, 1.5, 3.0]);
        let curved: Vec<_> = (0..30)
            .map(|i| (f64::from(i), f64::from(i).exp()))
            .collect();
        let all = Correlation::of(Reading::Load, &curved).unwrap();
        assert_eq!((all.r, all.p), (1.0, 0.0));
        let falling: Vec<_> = curved.iter().map(|(a, b)| (*a, -b)).collect();
        assert_eq!(Correlation::of(Reading::Load, &falling).unwrap().r, -1.0);
    }

    #[test]
    fn a_planted_correlation_is_found_among_noise() {
        let mut rng = Pcg64::seed_from_u64(1);
        let (mut found, mut sum) = (0, 0.0);
        for _ in 0..200 {
            let all = Reading::ALL.map(|reading| {
                let r = if reading == Reading::Temperature {
                    0.8
                } else {
                    0.0
                };
                Correlation::of(reading, &pairs(r, 60, &mut rng)).unwrap()
            });
            let first = Correlation::significant(all.to_vec(), 0.05)[0];
            found += usize::from(first.reading == Reading::Temperature && first.p < 1e-4);
            sum += first.r;
        }
        assert!(found >= 198, "{found} of 200");
        // Spearman's is 6/pi asin(r/2) = 0.786.
        assert!((sum / 200.0 - 0.786).abs() < 0.02, "{}", sum / 200.0);
    }

    #[test]
    fn noise_has_none_but_at_the_stated_rate() {
        let mut rng = Pcg64::seed_from_u64(2);
        let (mut tables, mut single) = (0, 0);
        for _ in 0..2000 {
            let all = Reading::ALL
                .map(|reading| Correlation::of(reading, &pairs(0.0, 40, &mut rng)).unwrap());
            single += all.iter().filter(|one| one.p < 0.05).count();
            tables += usize::from(!Correlation::significant(all.to_vec(), 0.05).is_empty());
        }
        assert!(
            (320..=480).contains(&single),
            "{single} of 8000 p-values below 5 %"
        );
        assert!(tables <= 130, "{tables} of 2000 tables");
        assert!(tables >= 60, "{tables} of 2000 tables: too careful");
    }

    #[test]
    fn the_line_rises_with_the_place() {
        let of = |p| Correlation {
            reading: Reading::Load,
            r: 0.5,
            p,
            samples: 30,
        };
        let left = |ps: &[f64]| {
            let all = ps.iter().map(|p| of(*p)).collect();
            Correlation::significant(all, 0.05).len()
        };
        // Lines at 0.0125, 0.025, 0.0375 and 0.05: the third is above its own, and the fourth below.
        assert_eq!(left(&[0.049, 0.001, 0.024, 0.038]), 4);
        assert_eq!(left(&[0.06, 0.001, 0.024, 0.038]), 2);
        assert_eq!(left(&[0.013, 0.9, 0.9, 0.9]), 0);
        assert_eq!(left(&[]), 0);
    }

    #[test]
    fn constants_nonsense_and_too_few_have_none() {
        let of = |pairs: &[(f64, f64)]| Correlation::of(Reading::Clock, pairs);
        assert_eq!(of(&[]), None);
        let constant: Vec<_> = (0..50).map(|i| (1.0, f64::from(i))).collect();
        assert_eq!(of(&constant), None);
        let mut rng = Pcg64::seed_from_u64(3);
        let mut some = pairs(0.5, Correlation::LEAST, &mut rng);
        assert_eq!(of(&some[1..]), None);
        let clean = of(&some).unwrap();
        some.extend([(f64::NAN, 1.0), (1.0, f64::INFINITY)]);
        assert_eq!(of(&some).unwrap(), clean);
    }
}
