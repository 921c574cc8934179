//! Trends: times that creep up or down.
//!
//! Whether there is one is decided by the test of Mann and Kendall, how steep it is by the slope of Sen (1968): both look at
//! pairs and ask only which of the two is larger, so wild values and odd distributions do not mislead them.
//! The test's p-value is the normal approximation with ties and continuity accounted for (Kendall, 1975), good
//! from [`Trend::LEAST`] values on. It takes values to be independent but for the trend.

use serde::{Deserialize, Serialize};

use super::drift::Direction;
use super::robust::{median, two_sided};

/// What the order of values says about their course.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Trend {
    /// How many values there were.
    pub samples: usize,
    /// Pairs that rise less pairs that fall.
    pub score: i64,
    /// How likely values without a trend have a score as far from 0.
    pub p: f64,
    /// The median slope of all pairs, in units of the value per unit of time.
    pub slope: f64,
}

/// Why no trend can be told.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TrendError {
    /// There are not enough values.
    #[error("{given} values have no trend to speak of: it takes {least}", least = Trend::LEAST)]
    TooFew {
        /// How many there are.
        given: usize,
    },
    /// A time or value is no finite number.
    #[error("at {time} the value is {value}: both are finite numbers")]
    NotFinite {
        /// The time.
        time: f64,
        /// The value.
        value: f64,
    },
    /// A time is before the one before.
    #[error("{time} comes after a later time: order the values by time")]
    Order {
        /// The time.
        time: f64,
    },
}

impl Trend {
    /// The fewest values it takes.
    pub const LEAST: usize = 8;

    /// The trend of pairs of time and value, in the order of time. It looks at all pairs of pairs: use it on some hundred.
    ///
    /// ```
    /// use kernelwise_model::watch::Trend;
    ///
    /// let creeping: Vec<(f64, f64)> = (0..40).map(|i| (i.into(), 0.01 * f64::from(i))).collect();
    /// let trend = Trend::of(&creeping)?;
    /// assert!(trend.p < 0.001);
    /// assert!((trend.slope - 0.01).abs() < 1e-12);
    /// # Ok::<(), kernelwise_model::watch::TrendError>(())
    /// ```
    pub fn of(values: &[(f64, f64)]) -> Result<Self, TrendError> {
        let samples = values.len();
        if samples < Self::LEAST {
            return Err(TrendError::TooFew { given: samples });
        }
        let strange = |&&(time, value): &&(f64, f64)| !(time.is_finite() && value.is_finite());
        if let Some(&(time, value)) = values.iter().find(strange) {
            return Err(TrendError::NotFinite { time, value });
        }
        if let Some(pair) = values.windows(2).find(|pair| pair[1].0 < pair[0].0) {
            return Err(TrendError::Order { time: pair[1].0 });
        }
        let (mut score, mut slopes) = (0, Vec::with_capacity(samples * (samples - 1) / 2));
        for (index, (time, value)) in values.iter().enumerate() {
            for (later, other) in &values[index + 1..] {
                score += i64::from(other > value) - i64::from(other < value);
                if later > time {
                    slopes.push((other - value) / (later - time));
                }
            }
        }
        let deviation = variance(values).sqrt();
        let p = if deviation > 0.0 {
            // The score goes in steps of two: half a step towards 0.
            two_sided((score.unsigned_abs() as f64 - 1.0).max(0.0) / deviation)
        } else {
            1.0
        };
        Ok(Self {
            samples,
            score,
            p,
            slope: median(&mut slopes).unwrap_or(0.0),
        })
    }

    /// Which way values go, if they go anywhere.
    pub fn direction(&self) -> Option<Direction> {
        (self.score != 0).then(|| Direction::of(self.score as f64))
    }
}

/// Of the score of values in random order: n(n-1)(2n+5)/18, less the same of every group of equal ones.
fn variance(values: &[(f64, f64)]) -> f64 {
    let of = |n: f64| n * (n - 1.0) * (2.0 * n + 5.0) / 18.0;
    let mut sorted: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
    sorted.sort_by(f64::total_cmp);
    let ties = sorted
        .chunk_by(|a, b| a == b)
        .map(|tied| of(tied.len() as f64));
    of(values.len() as f64) - ties.sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::super::noise::normal;
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    fn at_steps(values: impl IntoIterator<Item = f64>) -> Vec<(f64, f64)> {
        let values = values.into_iter().enumerate();
        values.map(|(time, value)| (time as f64, value)).collect()
    }

    #[test]
    fn score_variance_and_slope_of_a_small_case_by_hand() {
        // Of 28 pairs three are equal and three fall: 2 after 3, twice, and 3 after 4.
        let trend = Trend::of(&at_steps([1.0, 3.0, 2.0, 2.0, 4.0, 3.0, 5.0, 5.0])).unwrap();
        assert_eq!(trend.score, 22 - 3);
        let expected = (8.0 * 7.0 * 21.0 - 3.0 * 2.0 * 9.0) / 18.0;
        let z: f64 = 18.0 / f64::sqrt(expected);
        assert!((trend.p - two_sided(z)).abs() < 1e-12, "{trend:?}");
        assert_eq!(trend.slope, 0.5);
        assert_eq!(trend.direction(), Some(Direction::Slower));
    }

    #[test]
    fn noise_has_a_trend_as_often_as_the_p_value_says() {
        let mut rng = Pcg64::seed_from_u64(1);
        let (mut at_5, mut at_1) = (0, 0);
        for _ in 0..2000 {
            let trend = Trend::of(&at_steps((0..50).map(|_| normal(&mut rng)))).unwrap();
            at_5 += usize::from(trend.p < 0.05);
            at_1 += usize::from(trend.p < 0.01);
        }
        assert!((70..=130).contains(&at_5), "{at_5} of 2000 at 5 %");
        assert!((6..=36).contains(&at_1), "{at_1} of 2000 at 1 %");
    }

    #[test]
    fn a_planted_slope_is_found_both_ways_under_noise_and_outliers() {
        let mut rng = Pcg64::seed_from_u64(2);
        for planted in [0.004, -0.004] {
            let creeping = (0..100).map(|i| {
                let wild = if i % 17 == 0 { 5.0 } else { 0.0 };
                planted * f64::from(i) + 0.1 * normal(&mut rng) + wild
            });
            let trend = Trend::of(&at_steps(creeping)).unwrap();
            assert!(trend.p < 1e-3, "{trend:?}");
            assert!((trend.slope / planted - 1.0).abs() < 0.4, "{trend:?}");
            assert_eq!(trend.direction(), Some(Direction::of(planted)));
        }
    }

    #[test]
    fn what_has_no_trend() {
        let same = Trend::of(&at_steps([0.5; 20])).unwrap();
        assert_eq!((same.score, same.p, same.slope), (0, 1.0, 0.0));
        assert_eq!(same.direction(), None);
        let at_once: Vec<_> = (0..10).map(|i| (1.0, f64::from(i))).collect();
        assert_eq!(Trend::of(&at_once).unwrap().slope, 0.0);
        assert_eq!(Trend::of(&[]), Err(TrendError::TooFew { given: 0 }));
        let mut odd = at_steps([0.0; 20]);
        odd[7].1 = f64::INFINITY;
        assert!(matches!(
            Trend::of(&odd),
            Err(TrendError::NotFinite { time: 7.0, .. })
        ));
        odd[7] = (3.0, 0.0);
        assert_eq!(Trend::of(&odd), Err(TrendError::Order { time: 3.0 }));
    }
}
