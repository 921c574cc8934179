//! From an interval to a word: faster, slower, a tie, or too noisy to tell.
//!
//! The indifference zone is the range of ratios nobody would change kernels for, 2 % either way
//! unless said otherwise. The interval of the ratio lies in one of four ways to it, and that is the
//! verdict:
//!
//! | the whole interval lies | verdict | one may claim |
//! |---|---|---|
//! | inside the zone | [`Tie`](Verdict::Tie) | it does not matter which one runs |
//! | below the zone | [`Faster`](Verdict::Faster) | faster by more than the zone |
//! | above the zone | [`Slower`](Verdict::Slower) | slower by more than the zone |
//! | across an edge of it | [`TooNoisy`](Verdict::TooNoisy) | nothing; measure longer |
//!
//! So a tie is a finding that takes evidence, not the lack of one, and a difference is claimed only
//! when it is beyond both the noise and the zone. The bounds of the zone belong to it.

use std::fmt;

use serde::Serialize;

use crate::stats::RatioInterval;

/// The outcome of a comparison, seen from the first contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The first takes less time than the second.
    Faster,
    /// The first takes more time than the second.
    Slower,
    /// The two differ by no more than the indifference zone.
    Tie,
    /// The interval is too wide to say any of the three.
    TooNoisy,
}

impl Verdict {
    /// The name as in records and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Tie => "tie",
            Self::TooNoisy => "too_noisy",
        }
    }
}

/// A difference too small to care about, as a share: 0.02 is 2 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Indifference(f64);

/// A share that is no indifference zone.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{0} is not an indifference zone: give a share from 0 to 1, such as 0.02 for 2 %")]
pub struct InvalidIndifference(f64);

impl Indifference {
    /// Accepts a share from 0 to 1. With 0 nothing but exact equality is a tie.
    pub fn new(share: f64) -> Result<Self, InvalidIndifference> {
        if (0.0..=1.0).contains(&share) {
            Ok(Self(share))
        } else {
            Err(InvalidIndifference(share))
        }
    }

    /// The bare share.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl Default for Indifference {
    /// 2 %: a guess at what nobody would change kernels for.
    fn default() -> Self {
        Self(0.02)
    }
}

/// An interval, the zone it was held against, and the verdict.
///
/// ```
/// use kernelwise_measure::{Comparison, Indifference, RatioInterval, Verdict};
///
/// let interval = RatioInterval { ratio: 0.7634, low: 0.7407, high: 0.7813, confidence: 0.9 };
/// let comparison = Comparison::new(interval, Indifference::default());
/// assert_eq!(comparison.verdict, Verdict::Faster);
/// assert_eq!(comparison.to_string(), "1.31x faster (90 % interval 1.28 to 1.35)");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Comparison {
    /// The verdict on the first contender.
    pub verdict: Verdict,
    /// Time of the first divided by time of the second.
    pub interval: RatioInterval,
    /// The zone.
    pub indifference: Indifference,
}

impl Comparison {
    /// Judges an interval by the table at the top of this module.
    pub fn new(interval: RatioInterval, indifference: Indifference) -> Self {
        // Multiplying on either side, instead of inverting an edge, makes the two edges exact mirrors.
        let edge = 1.0 + indifference.0;
        let (below, above) = (interval.high * edge < 1.0, interval.low > edge);
        let inside = interval.low * edge >= 1.0 && interval.high <= edge;
        let verdict = match (below, inside, above) {
            (true, _, _) => Verdict::Faster,
            (_, true, _) => Verdict::Tie,
            (_, _, true) => Verdict::Slower,
            _ => Verdict::TooNoisy,
        };
        Self {
            verdict,
            interval,
            indifference,
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Speed-ups are said as numbers above one, whichever side they are on.
        let shown = match self.verdict {
            Verdict::Faster => self.interval.inverse(),
            _ => self.interval,
        };
        match self.verdict {
            Verdict::Faster => write!(f, "{:.2}x faster", shown.ratio)?,
            Verdict::Slower => write!(f, "{:.2}x slower", shown.ratio)?,
            Verdict::Tie => write!(f, "tie within {} %", percent(self.indifference.0))?,
            Verdict::TooNoisy => f.write_str("too noisy to tell")?,
        }
        let digits = if self.verdict == Verdict::Tie { 3 } else { 2 };
        write!(
            f,
            " ({} % interval {:.digits$} to {:.digits$})",
            percent(shown.confidence),
            shown.low,
            shown.high
        )
    }
}

/// A share in per cent, without the noise of binary fractions.
fn percent(share: f64) -> f64 {
    (share * 1e4).round() / 100.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn judge(low: f64, high: f64, zone: f64) -> Comparison {
        let interval = RatioInterval {
            ratio: (low * high).sqrt(),
            low,
            high,
            confidence: 0.9,
        };
        Comparison::new(interval, Indifference::new(zone).unwrap())
    }

    #[test]
    fn every_line_of_the_table() {
        for (low, high, verdict, words) in [
            (
                0.99,
                1.01,
                Verdict::Tie,
                "tie within 2 % (90 % interval 0.990 to 1.010)",
            ),
            (
                0.50,
                0.50,
                Verdict::Faster,
                "2.00x faster (90 % interval 2.00 to 2.00)",
            ),
            (
                1.21,
                1.21,
                Verdict::Slower,
                "1.21x slower (90 % interval 1.21 to 1.21)",
            ),
            (
                0.90,
                1.10,
                Verdict::TooNoisy,
                "too noisy to tell (90 % interval 0.90 to 1.10)",
            ),
            // On one side of 1, but not beyond the zone: neither a tie nor a difference is shown.
            (
                1.01,
                1.30,
                Verdict::TooNoisy,
                "too noisy to tell (90 % interval 1.01 to 1.30)",
            ),
            (
                0.70,
                0.99,
                Verdict::TooNoisy,
                "too noisy to tell (90 % interval 0.70 to 0.99)",
            ),
        ] {
            let comparison = judge(low, high, 0.02);
            assert_eq!(comparison.verdict, verdict, "{low} to {high}");
            assert_eq!(comparison.to_string(), words);
        }
    }

    #[test]
    fn the_edges_belong_to_the_zone() {
        assert_eq!(judge(1.0, 1.25, 0.25).verdict, Verdict::Tie);
        assert_eq!(judge(0.8, 1.0, 0.25).verdict, Verdict::Tie);
        assert_eq!(judge(1.0, 1.0, 0.0).verdict, Verdict::Tie);
        assert_eq!(judge(1.000_001, 1.000_001, 0.0).verdict, Verdict::Slower);
        for bad in [-0.01, 1.5, f64::NAN] {
            assert!(Indifference::new(bad).is_err());
        }
    }

    #[test]
    fn json_names_the_verdict() {
        let json = serde_json::to_value(judge(0.5, 0.5, 0.02)).unwrap();
        assert_eq!(json["verdict"], Verdict::Faster.name());
        assert_eq!(json["interval"]["low"], 0.5);
        assert_eq!(json["indifference"], 0.02);
    }

    proptest! {
        #[test]
        fn one_verdict_always_and_its_mirror_when_swapped(
            x in 0.3..3.0f64, y in 0.3..3.0f64, zone in 0.0..0.5f64,
        ) {
            let there = judge(x.min(y), x.max(y), zone);
            // Which lines of the table apply, written down independently of `Comparison::new`.
            let (lower, upper) = (1.0 / (1.0 + zone), 1.0 + zone);
            let (low, high) = (there.interval.low, there.interval.high);
            let claims = [
                (Verdict::Faster, high < lower),
                (Verdict::Slower, low > upper),
                (Verdict::Tie, low >= lower && high <= upper),
                (Verdict::TooNoisy, (low < lower && high >= lower) || (low <= upper && high > upper)),
            ];
            let applying: Vec<_> = claims.iter().filter(|(_, applies)| *applies).collect();
            prop_assert_eq!(applying.len(), 1);
            prop_assert_eq!(applying[0].0, there.verdict);

            let back = Comparison::new(there.interval.inverse(), there.indifference);
            let mirror = match there.verdict {
                Verdict::Faster => Verdict::Slower,
                Verdict::Slower => Verdict::Faster,
                same => same,
            };
            prop_assert_eq!(back.verdict, mirror);
        }

        #[test]
        fn more_certainty_never_reverses_a_finding(
            centre in 0.5..2.0f64, wide in 1.0..1.5f64, share in 0.0..1.0f64,
        ) {
            let at = |width: f64| judge(centre / width, centre * width, 0.02).verdict;
            let (narrow, wide) = (at(wide.powf(share)), at(wide));
            prop_assert!(wide == Verdict::TooNoisy || narrow == wide);
        }
    }
}
