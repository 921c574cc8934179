//! Estimates: a time *and how it is known*.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::observation::TimeStats;
use crate::units::Nanos;

/// What is known of how long a kernel takes. Anything that prints a time prints which of these it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "known_by")]
pub enum Estimate {
    /// Timed here, on this workload.
    Measured {
        /// Geometric mean of the samples.
        time_ns: Nanos,
        /// Range the mean lies in, at the confidence its maker states; `None` from a single sample.
        interval_ns: Option<Interval>,
        /// How many samples.
        samples: u64,
    },
    /// Predicted from other workloads by a trained model.
    Modelled {
        /// The prediction.
        time_ns: Nanos,
        /// Range it lies in, nine times in ten.
        interval_ns: Interval,
        /// The model.
        model: String,
    },
    /// Said beforehand: a declaration, a roofline, another machine.
    Prior {
        /// The time.
        time_ns: Nanos,
        /// Who says so.
        source: String,
    },
    /// Nothing is known.
    Unknown,
}

/// A range of times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "(Nanos, Nanos)", into = "(Nanos, Nanos)")]
pub struct Interval {
    low: Nanos,
    high: Nanos,
}

/// A range whose ends are the wrong way round.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("an interval from {low} to {high} is the wrong way round")]
pub struct InvalidInterval {
    low: Nanos,
    high: Nanos,
}

impl Interval {
    /// From the shorter to the longer time.
    pub fn new(low: Nanos, high: Nanos) -> Result<Self, InvalidInterval> {
        if low <= high {
            Ok(Self { low, high })
        } else {
            Err(InvalidInterval { low, high })
        }
    }

    /// The shorter end.
    pub fn low(&self) -> Nanos {
        self.low
    }

    /// The longer end.
    pub fn high(&self) -> Nanos {
        self.high
    }
}

impl TryFrom<(Nanos, Nanos)> for Interval {
    type Error = InvalidInterval;
    fn try_from((low, high): (Nanos, Nanos)) -> Result<Self, InvalidInterval> {
        Self::new(low, high)
    }
}

impl From<Interval> for (Nanos, Nanos) {
    fn from(interval: Interval) -> Self {
        (interval.low, interval.high)
    }
}

impl Estimate {
    /// The time, unless nothing is known.
    pub fn time(&self) -> Option<Nanos> {
        match self {
            Self::Measured { time_ns, .. }
            | Self::Modelled { time_ns, .. }
            | Self::Prior { time_ns, .. } => Some(*time_ns),
            Self::Unknown => None,
        }
    }

    /// How the time is known, in one word: that of the field `known_by`.
    pub const fn known_by(&self) -> &'static str {
        match self {
            Self::Measured { .. } => "measured",
            Self::Modelled { .. } => "modelled",
            Self::Prior { .. } => "prior",
            Self::Unknown => "unknown",
        }
    }

    /// From statistics: the geometric mean, two standard errors of ln t to each side. `Unknown`
    /// without samples.
    pub fn measured(stats: &TimeStats) -> Self {
        let Some(time_ns) = stats.geometric_mean() else {
            return Self::Unknown;
        };
        let interval_ns = stats.sd_ln().and_then(|sd| {
            let factor = (2.0 * sd / (stats.samples() as f64).sqrt()).exp();
            let low = Nanos::new(time_ns.get() / factor).ok()?;
            let high = Nanos::new(time_ns.get() * factor).ok()?;
            Interval::new(low, high).ok()
        });
        Self::Measured {
            time_ns,
            interval_ns,
            samples: stats.samples(),
        }
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured {
                time_ns,
                interval_ns,
                samples,
            } => {
                write!(f, "{time_ns} measured, n = {samples}")?;
                interval_ns.map_or(Ok(()), |range| write!(f, ", {range}"))
            }
            Self::Modelled {
                time_ns,
                interval_ns,
                model,
            } => {
                write!(f, "{time_ns} modelled (90 %: {interval_ns}) by {model}")
            }
            Self::Prior { time_ns, source } => write!(f, "{time_ns} prior from {source}"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(value: f64) -> Nanos {
        Nanos::new(value).unwrap()
    }

    #[test]
    fn measured_estimates_come_from_their_samples() {
        assert_eq!(Estimate::measured(&TimeStats::default()), Estimate::Unknown);
        let one: TimeStats = [ns(100.0)].into_iter().collect();
        let estimate = Estimate::measured(&one);
        assert!(matches!(
            estimate,
            Estimate::Measured {
                interval_ns: None,
                samples: 1,
                ..
            }
        ));
        assert_eq!(estimate.to_string(), "100 ns measured, n = 1");

        // ln t = ln 1000 ± ln 2: the mean is 1 µs, the standard deviation √2·ln 2, its error ln 2.
        let two: TimeStats = [ns(500.0), ns(2000.0)].into_iter().collect();
        let Estimate::Measured {
            time_ns,
            interval_ns: Some(interval),
            samples: 2,
        } = Estimate::measured(&two)
        else {
            panic!("two samples make a measured estimate with an interval");
        };
        assert!((time_ns.get() - 1000.0).abs() < 1e-9);
        assert!((interval.low().get() - 250.0).abs() < 1e-9);
        assert!((interval.high().get() - 4000.0).abs() < 1e-9);
    }

    #[test]
    fn every_time_says_how_it_is_known() {
        let interval_ns = Interval::new(ns(90.0), ns(120.0)).unwrap();
        let modelled = Estimate::Modelled {
            time_ns: ns(100.0),
            interval_ns,
            model: "trees".into(),
        };
        assert_eq!(
            modelled.to_string(),
            "100 ns modelled (90 %: 90.0 ns to 120 ns) by trees"
        );
        let prior = Estimate::Prior {
            time_ns: ns(100.0),
            source: "roofline".into(),
        };
        assert_eq!(prior.to_string(), "100 ns prior from roofline");
        assert_eq!(
            (Estimate::Unknown.time(), Estimate::Unknown.to_string()),
            (None, "unknown".into())
        );
        let measured = Estimate::measured(&[ns(100.0)].into_iter().collect());
        for estimate in [measured, modelled, prior, Estimate::Unknown] {
            let json = serde_json::to_string(&estimate).unwrap();
            let field = format!("\"known_by\":\"{}\"", estimate.known_by());
            assert!(json.contains(&field), "{json}");
            assert_eq!(serde_json::from_str::<Estimate>(&json).unwrap(), estimate);
        }
        assert!(Interval::new(ns(2.0), ns(1.0)).is_err());
        assert!(serde_json::from_str::<Interval>("[2.0, 1.0]").is_err());
    }
}
