//! What is asked of a strategy, what it answers, and what it is told afterwards.

use std::fmt;

use kernelwise_types::units::{Bytes, Nanos, Share, Watts};
use kernelwise_types::{Backend, Interval, Workload};
use serde::{Deserialize, Serialize};

use super::constraints::ConstraintError;
use super::priced::{Bound, Choice, Infeasible};

/// What a prediction rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "known_by")]
pub enum Evidence {
    /// This choice was timed on this workload.
    Measured {
        /// How often.
        samples: u64,
    },
    /// A model fitted to measurements of others.
    Model {
        /// Which.
        source: String,
        /// Choices measured here that corrected it.
        corrected_by: u64,
    },
    /// A formula, before anything was timed.
    Prior {
        /// Which.
        source: String,
        /// Choices measured here that corrected it.
        corrected_by: u64,
    },
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, source, corrected) = match self {
            Self::Measured { samples } => return write!(f, "measured {samples}"),
            Self::Model {
                source,
                corrected_by,
            } => ("model", source, corrected_by),
            Self::Prior {
                source,
                corrected_by,
            } => ("prior", source, corrected_by),
        };
        write!(f, "{word} ({source})")?;
        match corrected {
            0 => Ok(()),
            1 => f.write_str(", corrected by 1 measured choice"),
            many => write!(f, ", corrected by {many} measured choices"),
        }
    }
}

/// What is expected of a choice on a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Time of a warm call.
    pub time_ns: Nanos,
    /// Nine calls in ten take a time within this.
    pub interval_ns: Interval,
    /// The chance that a call takes a time within a factor 1.2 of the expected one.
    #[serde(rename = "confidence_share")]
    pub confidence: Share,
    /// What it rests on.
    pub evidence: Evidence,
    /// Paid once before the first call.
    pub compile_ns: Nanos,
    /// Memory of a call.
    #[serde(rename = "memory_bytes")]
    pub memory: Bytes,
    /// Power while it runs: measured, or said by the device's description; `None` where nobody knows.
    #[serde(rename = "power_w")]
    pub power: Option<Watts>,
    /// What the time is bound by.
    pub bound: Bound,
    /// Share of the device's resident threads in use, where the word has a meaning.
    #[serde(rename = "occupancy_share")]
    pub occupancy: Option<Share>,
    /// Units it keeps busy.
    pub units: u32,
    /// A time that the mean of its calls exceeds with a chance of one in four: what choices are ranked by. A choice that was
    /// timed does not give way to one that merely might be as good.
    pub likely_ns: Nanos,
    /// Further facts in words.
    pub words: Vec<String>,
}

impl Prediction {
    /// Energy of a call in joules, where the power is known.
    pub fn energy_j(&self) -> Option<f64> {
        self.power.map(|power| power.get() * self.time_ns.seconds())
    }

    /// What one of so many calls takes: its time and its part of what is paid once.
    pub fn per_call_ns(&self, calls: u64) -> f64 {
        self.time_ns.get() + self.once(calls)
    }

    pub(super) fn once(&self, calls: u64) -> f64 {
        self.compile_ns.get() / calls.max(1) as f64
    }
}

/// A choice and what is expected of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ranked {
    /// The choice.
    pub choice: Choice,
    /// What is expected of it: the same, bit for bit, as [`predict`](super::TuningStrategy::predict) says.
    pub expected: Prediction,
}

/// What to run, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// The family of the device.
    pub backend: Backend,
    /// The device.
    pub device: String,
    /// What to run.
    #[serde(flatten)]
    pub best: Ranked,
    /// What else could run, best first; at least one where there are two choices.
    pub alternatives: Vec<Ranked>,
    /// Choices that were considered.
    pub considered: usize,
    /// Why, one sentence each.
    pub reasoning: Vec<String>,
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// It ran.
    Ran {
        /// How long it took, warm.
        time_ns: Nanos,
        /// Its power, if somebody measured it.
        #[serde(default, rename = "power_w")]
        power: Option<Watts>,
    },
    /// It did not, or its result was wrong. It is not recommended for this workload again.
    Failed {
        /// In words.
        why: String,
    },
}

/// What became of a call, and whose it was. Can be stored and told later, or to another process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Feedback {
    /// What was computed.
    pub workload: Workload,
    /// With what.
    pub choice: Choice,
    /// On which family of devices.
    pub backend: Backend,
    /// On which device.
    pub device: String,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Times of one choice on one workload, summed up: what records keep of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kept {
    /// How many there were.
    pub samples: u64,
    /// The mean of ln t, in nanoseconds.
    pub mean_ln: f64,
    /// Their standard deviation.
    pub sd_ln: f64,
}

impl Feedback {
    /// A recommendation that was followed took so long.
    pub fn ran(recommendation: &Recommendation, workload: &Workload, time_ns: Nanos) -> Self {
        let power = None;
        Self::of(recommendation, workload, Outcome::Ran { time_ns, power })
    }

    /// A recommendation that was followed came to this.
    pub fn of(recommendation: &Recommendation, workload: &Workload, outcome: Outcome) -> Self {
        Self {
            workload: workload.clone(),
            choice: recommendation.best.choice.clone(),
            backend: recommendation.backend,
            device: recommendation.device.clone(),
            outcome,
        }
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// Limits that nothing could keep.
    #[error(transparent)]
    Constraints(#[from] ConstraintError),
    /// Nothing keeps them here.
    #[error(transparent)]
    Infeasible(#[from] Infeasible),
    /// Feedback of a device that is not this one.
    #[error(
        "feedback of {backend} `{device}` was given to {here_backend} `{here}`: give it to the strategy of that device"
    )]
    Elsewhere {
        /// Where it was measured.
        backend: Backend,
        /// The device there.
        device: String,
        /// The family here.
        here_backend: Backend,
        /// The device here.
        here: String,
    },
    /// Feedback of a device that nobody was asked about.
    #[error(
        "there is no {backend} device `{device}` here: feedback goes to the device it was measured on"
    )]
    Unknown {
        /// The family.
        backend: Backend,
        /// The device.
        device: String,
    },
    /// No device was added.
    #[error("there is no device to choose from: add a strategy")]
    NoDevice,
    /// Feedback with a time that no call takes.
    #[error("{time} is no time of a call: leave out calls that were not timed")]
    NoTime {
        /// As given.
        time: Nanos,
    },
    /// A price that is none: a fault of the device's description.
    #[error(
        "the price of {choice} is none (time {time_ns} ns, spread {spread_ln}): the description of the device is at fault"
    )]
    Price {
        /// Of what.
        choice: Choice,
        /// Its time.
        time_ns: f64,
        /// Its spread.
        spread_ln: f64,
    },
}
