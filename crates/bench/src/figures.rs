//! What a benchmark tells: plain data, with units in the names of the fields.
//!
//! A field that is not there does not apply; what should be known and is not is a null with a reason.

use std::collections::BTreeMap;

use kernelwise_measure::selfcheck::NullResult;
use kernelwise_measure::{ClockFacts, Stop, Warning};
use kernelwise_types::calibration::MemoryPlace;
use kernelwise_types::{Fingerprint, KernelId, Numerics, Params, Reading, Technique, Workload};
use serde::Serialize;

use crate::ratios::{Ratio, Summary};

/// Everything one run of the benchmark found.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Whether the run ended before all shapes had their turn; those that had none are in `skipped`.
    pub interrupted: bool,
    /// Machine, clock and load.
    pub conditions: Conditions,
    /// The libraries compared with.
    pub rivals: Vec<RivalFact>,
    /// One entry per shape.
    pub shapes: Vec<ShapeFigures>,
    /// Shapes that were not measured.
    pub skipped: Vec<SkippedShape>,
    /// The ratios over all shapes.
    pub summary: Summary,
}

/// A shape that was not measured.
#[derive(Debug, Serialize)]
pub struct SkippedShape {
    /// The shape.
    pub workload: Workload,
    /// Why.
    pub reason: String,
}

/// Under what conditions the figures were taken.
#[derive(Debug, Serialize)]
pub struct Conditions {
    /// The machine's fingerprint.
    pub machine: Fingerprint,
    /// Its processor.
    pub processor: String,
    /// Threads each contender was given.
    pub threads: u32,
    /// The processor the measuring thread was bound to, or why it was not.
    pub pinned_to_cpu: Reading<u32>,
    /// The clock of the samples.
    pub clock: ClockFacts,
    /// Whether the program was built to be fast.
    pub optimised_build: bool,
    /// Time for each shape.
    pub time_budget_s: f64,
    /// Seed of inputs, orders and intervals.
    pub seed: u64,
    /// Whether kernels of reduced precision count.
    pub allow_reduced: bool,
    /// A body raced against itself: verdicts can be believed if it ties.
    pub null_comparison: NullResult,
    /// What the state of the machine says against the figures.
    pub warnings: Vec<Doubt>,
}

/// A doubt in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Doubt {
    /// What was seen.
    pub finding: String,
    /// What to do about it.
    pub advice: String,
}

impl From<&Warning> for Doubt {
    fn from(warning: &Warning) -> Self {
        Self {
            finding: warning.to_string(),
            advice: warning.advice().to_owned(),
        }
    }
}

/// A library to compare with.
#[derive(Debug, Clone, Serialize)]
pub struct RivalFact {
    /// Its name, as contenders have it.
    pub name: &'static str,
    /// Its version in its own words, or why it is not there and how to get it.
    pub version: Reading<String>,
    /// Why its speed here says little about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
}

/// Whose code a contender is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A kernel of this program's own.
    Own,
    /// A kernel of this program that calls a library.
    Wrapped,
    /// A library, called directly.
    Rival,
}

/// What became of a contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The fastest of those that count.
    Winner,
    /// Within the indifference zone of the winner.
    Tie,
    /// Slower than the winner by more than that.
    Slower,
    /// Faster than the winner, and does not count: its precision is reduced.
    Faster,
    /// Too noisy to tell from the winner.
    TooNoisy,
    /// Faster than the machine can be.
    NotBelieved,
    /// Its result is wrong.
    Wrong,
    /// It gave up, panicked or was not reached.
    Failed,
}

/// One contender on one shape.
#[derive(Debug, Clone, Serialize)]
pub struct Standing {
    /// The kernel's id or the library's name.
    pub name: String,
    /// Whose code it is.
    pub source: Source,
    /// What sets it apart.
    pub technique: Technique,
    /// How exact it is.
    pub numerics: Numerics,
    /// Shown, but counted neither as winner nor in ratios: its precision is reduced and that was not asked for.
    pub opt_in: bool,
    /// Its parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setting: Option<Params>,
    /// Threads it ran on.
    pub threads: u32,
    /// Scratch memory it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_bytes: Option<u64>,
    /// What became of it.
    pub verdict: Outcome,
    /// The same in words.
    pub detail: String,
    /// How fast it was; absent if it was not timed.
    #[serde(flatten)]
    pub times: Option<Times>,
    /// What was expected of it before it was timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prior_ns: Option<f64>,
    /// How much longer it took than expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_over_prior: Option<f64>,
    /// What its samples say against themselves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Doubt>,
}

/// How fast a contender was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Times {
    /// Lower quartile of the samples, per call.
    pub time_ns: f64,
    /// Lower end of its 90 % interval; absent from few samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_ns: Option<f64>,
    /// Upper end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high_ns: Option<f64>,
    /// How many samples.
    pub samples: usize,
    /// Arithmetic operations per nanosecond; absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gflops: Option<f64>,
    /// Compulsory bytes per nanosecond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gbps: Option<f64>,
    /// Share of the calibrated peak.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_share: Option<f64>,
    /// Share of the calibrated bandwidth of the nearest place that holds the operands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_share: Option<f64>,
    /// Its time over the winner's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_winner: Option<f64>,
}

impl Standing {
    /// Its time, if it is right and believable.
    pub(crate) fn sound_ns(&self) -> Option<f64> {
        let unsound = matches!(
            self.verdict,
            Outcome::NotBelieved | Outcome::Wrong | Outcome::Failed
        );
        self.times.filter(|_| !unsound).map(|times| times.time_ns)
    }

    /// The same, if it may win: its precision is one that was asked for.
    pub(crate) fn counted_ns(&self) -> Option<f64> {
        self.sound_ns().filter(|_| !self.opt_in)
    }
}

/// A kernel that does not take part.
#[derive(Debug, Clone, Serialize)]
pub struct RefusedKernel {
    /// The kernel.
    pub kernel: KernelId,
    /// Why.
    pub reason: String,
}

/// What was found on one shape.
#[derive(Debug, Serialize)]
pub struct ShapeFigures {
    /// The shape.
    pub workload: Workload,
    /// Arithmetic operations of one call.
    pub flops: u64,
    /// Bytes a call must move.
    pub moved_bytes: u64,
    /// The nearest place that holds the operands.
    pub place: MemoryPlace,
    /// Whether rates are told in operations (true) or in bytes.
    pub by_arithmetic: bool,
    /// Calibrated peak for this type and number of threads.
    pub peak_gflops: Reading<f64>,
    /// Calibrated bandwidth of that place.
    pub bandwidth_gbps: Reading<f64>,
    /// The part of a convolution's taps that fall on the image; rates are held against the peak divided by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside_taps_share: Option<f64>,
    /// What results were held against.
    pub checked_against: String,
    /// Why the race ended.
    pub stop: Stop,
    /// Rounds of it.
    pub rounds: usize,
    /// All contenders, the fastest first, those without a time last.
    pub contenders: Vec<Standing>,
    /// Kernels that may not run here.
    pub refused: Vec<RefusedKernel>,
    /// The fastest contender that counts; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub winner: Option<String>,
    /// The winner and those that tie with it.
    pub tie_class: Vec<String>,
    /// What the operation is held to.
    pub ratios: BTreeMap<&'static str, Ratio>,
    /// Whether the ratios reach what is asked of this shape; absent where nothing is.
    pub thresholds: BTreeMap<&'static str, bool>,
}

impl ShapeFigures {
    /// Contenders whose result was wrong.
    pub fn wrong(&self) -> impl Iterator<Item = &Standing> {
        let contenders = self.contenders.iter();
        contenders.filter(|standing| standing.verdict == Outcome::Wrong)
    }
}
