//! Observations: what happened when a kernel ran, and statistics that add up.

use serde::{Deserialize, Serialize};

use crate::kernel::KernelId;
use crate::params::Params;
use crate::state::SystemState;
use crate::units::{Nanos, Share};
use crate::workload::Workload;

/// One kernel with one setting on one workload: how it went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// What was computed.
    pub workload: Workload,
    /// By which kernel.
    pub kernel: KernelId,
    /// In which version of it.
    pub version: u32,
    /// With which parameters.
    pub params: Params,
    /// How it went.
    pub outcome: Outcome,
    /// What the machine was doing meanwhile.
    pub conditions: Conditions,
}

/// How a run went. A failed or doubtful run is remembered as such, never as a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ran, and this is how long it took.
    Timed(TimeStats),
    /// It returned an error or panicked.
    Failed {
        /// What it said.
        evidence: String,
    },
    /// It ran, but its result was wrong.
    WrongResult {
        /// Where and by how much.
        evidence: String,
    },
    /// It did not end in the time allowed.
    TimedOut {
        /// The time allowed.
        limit_ns: Nanos,
    },
}

/// The part of the system state that explains a slow run; `None` where the machine did not tell.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Conditions {
    /// Busy share of all processors.
    #[serde(rename = "cpu_utilisation_share")]
    pub cpu_utilisation: Option<Share>,
    /// Share of time in which some task waited for a processor.
    #[serde(rename = "cpu_pressure_share")]
    pub cpu_pressure: Option<Share>,
    /// Share of time the hypervisor gave to others.
    #[serde(rename = "steal_share")]
    pub steal: Option<Share>,
    /// Whether the processor throttled itself.
    pub throttling: Option<bool>,
}

impl From<&SystemState> for Conditions {
    fn from(state: &SystemState) -> Self {
        Self {
            cpu_utilisation: state.cpu_utilisation.known().copied(),
            cpu_pressure: state.cpu_pressure.known().copied(),
            steal: state.steal.known().copied(),
            throttling: state.throttling.known().copied(),
        }
    }
}

/// Statistics of times, kept on y = ln t: ratios become differences and units vanish. Two of them
/// merge into what one would have been over all samples, so records from many runs add up.
///
/// ```
/// use kernelwise_types::{TimeStats, units::Nanos};
///
/// let mut stats = TimeStats::default();
/// for ns in [100.0, 110.0, 121.0] {
///     stats.push(Nanos::new(ns)?);
/// }
/// assert_eq!(stats.samples(), 3);
/// assert!((stats.geometric_mean().unwrap().get() - 110.0).abs() < 1e-9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "StoredStats")]
pub struct TimeStats {
    samples: u64,
    mean_ln: f64,
    /// Sum of squared deviations of ln t from its mean (Welford).
    squares_ln: f64,
    min_ns: Option<Nanos>,
}

/// Statistics as they are read, before it is known whether they can be such.
#[derive(Deserialize)]
struct StoredStats {
    samples: u64,
    mean_ln: f64,
    squares_ln: f64,
    min_ns: Option<Nanos>,
}

/// Numbers that no samples have: merged into others they would spoil them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no set of {samples} samples has these statistics: the record is damaged")]
pub struct InvalidStats {
    samples: u64,
}

impl TryFrom<StoredStats> for TimeStats {
    type Error = InvalidStats;

    fn try_from(stored: StoredStats) -> Result<Self, InvalidStats> {
        let StoredStats {
            samples,
            mean_ln,
            squares_ln,
            min_ns,
        } = stored;
        let shortest = min_ns.map(|min| min.get().max(SHORTEST_NS).ln());
        let possible = match (samples, shortest) {
            (0, None) => mean_ln == 0.0 && squares_ln == 0.0,
            // The shortest lies below the mean, up to rounding.
            (1.., Some(shortest)) => {
                mean_ln.is_finite()
                    && squares_ln.is_finite()
                    && squares_ln >= 0.0
                    && shortest <= mean_ln + 1e-6
            }
            _ => false,
        };
        if possible {
            Ok(Self {
                samples,
                mean_ln,
                squares_ln,
                min_ns,
            })
        } else {
            Err(InvalidStats { samples })
        }
    }
}

/// The shortest time a sample can have: a reading of zero means shorter than the clock's tick, and
/// ln 0 would not be a number.
const SHORTEST_NS: f64 = 0.01;

impl TimeStats {
    /// Adds one sample.
    pub fn push(&mut self, time: Nanos) {
        let y = time.get().max(SHORTEST_NS).ln();
        self.samples = self.samples.saturating_add(1);
        let before = y - self.mean_ln;
        self.mean_ln += before / self.samples as f64;
        self.squares_ln += before * (y - self.mean_ln);
        self.min_ns = Some(
            self.min_ns
                .map_or(time, |min| if time < min { time } else { min }),
        );
    }

    /// Adds all samples of another (the parallel form of Welford's update, Chan et al. 1979).
    pub fn merge(&mut self, other: &Self) {
        let samples = self.samples.saturating_add(other.samples);
        if samples == 0 {
            return;
        }
        let (mine, theirs, all) = (self.samples as f64, other.samples as f64, samples as f64);
        let apart = other.mean_ln - self.mean_ln;
        self.mean_ln += apart * theirs / all;
        self.squares_ln += other.squares_ln + apart * apart * mine * theirs / all;
        self.samples = samples;
        self.min_ns = match (self.min_ns, other.min_ns) {
            (Some(a), Some(b)) => Some(if b < a { b } else { a }),
            (a, b) => a.or(b),
        };
    }

    /// How many samples.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// exp of the mean of ln t; `None` without samples.
    pub fn geometric_mean(&self) -> Option<Nanos> {
        (self.samples > 0)
            .then(|| Nanos::new(self.mean_ln.exp()).ok())
            .flatten()
    }

    /// Sample standard deviation of ln t, which is the relative spread when small; `None` with fewer
    /// than two samples.
    pub fn sd_ln(&self) -> Option<f64> {
        (self.samples > 1).then(|| {
            (self.squares_ln / (self.samples - 1) as f64)
                .max(0.0)
                .sqrt()
        })
    }

    /// The shortest sample.
    pub fn min(&self) -> Option<Nanos> {
        self.min_ns
    }
}

impl FromIterator<Nanos> for TimeStats {
    fn from_iter<I: IntoIterator<Item = Nanos>>(times: I) -> Self {
        let mut stats = Self::default();
        times.into_iter().for_each(|time| stats.push(time));
        stats
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Cut anywhere, the parts merge into the whole.
        #[test]
        fn merging_parts_gives_the_whole(times in prop::collection::vec(0.0f64..1e12, 0..40), cut in 0usize..40) {
            let times: Vec<Nanos> = times.into_iter().map(|t| Nanos::new(t).unwrap()).collect();
            let whole: TimeStats = times.iter().copied().collect();
            let (left, right) = times.split_at(cut.min(times.len()));
            let mut merged: TimeStats = left.iter().copied().collect();
            merged.merge(&right.iter().copied().collect());
            prop_assert_eq!(merged.samples(), whole.samples());
            prop_assert_eq!(merged.min(), whole.min());
            prop_assert!((merged.mean_ln - whole.mean_ln).abs() < 1e-9);
            prop_assert!((merged.squares_ln - whole.squares_ln).abs() < 1e-6 * whole.squares_ln.max(1.0));
            prop_assert!(merged.geometric_mean().is_none_or(|mean| mean.get().is_finite()));
        }
    }

    #[test]
    fn damaged_statistics_are_not_merged() {
        let good: TimeStats = [90, 110].into_iter().map(Nanos::from_u64).collect();
        let json = serde_json::to_value(good).unwrap();
        assert_eq!(
            serde_json::from_value::<TimeStats>(json.clone()).unwrap(),
            good
        );
        let empty = serde_json::to_value(TimeStats::default()).unwrap();
        assert!(serde_json::from_value::<TimeStats>(empty).is_ok());
        for (field, value) in [
            ("samples", serde_json::json!(0)),
            ("squares_ln", serde_json::json!(-1.0)),
            ("min_ns", serde_json::json!(null)),
            ("min_ns", serde_json::json!(1e9)),
        ] {
            let mut damaged = json.clone();
            damaged[field] = value;
            assert!(
                serde_json::from_value::<TimeStats>(damaged).is_err(),
                "{field}"
            );
        }
        let mut full = serde_json::from_str::<TimeStats>(
            r#"{"samples":18446744073709551615,"mean_ln":1.0,"squares_ln":0.0,"min_ns":1.0}"#,
        )
        .unwrap();
        full.push(Nanos::from_u64(3));
        full.merge(&good);
        assert_eq!(full.samples(), u64::MAX);
    }

    #[test]
    fn statistics_are_those_of_the_logarithms() {
        let stats: TimeStats = [1.0, 10.0, 100.0]
            .into_iter()
            .map(|t| Nanos::new(t).unwrap())
            .collect();
        assert!((stats.geometric_mean().unwrap().get() - 10.0).abs() < 1e-9);
        assert!((stats.sd_ln().unwrap() - 10f64.ln()).abs() < 1e-12);
        assert_eq!(stats.min().unwrap().get(), 1.0);
        assert_eq!(TimeStats::default().sd_ln(), None);
    }

    #[test]
    fn a_reading_of_zero_does_not_spoil_the_rest() {
        let stats: TimeStats = [0, 100].into_iter().map(Nanos::from_u64).collect();
        assert!(stats.geometric_mean().unwrap().get() > 0.0);
        assert!(stats.sd_ln().unwrap().is_finite());
    }
}
