//! What a report is made of. Whoever has the records fills this in; the report measures nothing and reads no clock.
//!
//! What is not there is a [`Reading`] with the reason, and the page says that reason where the figure would be. A list that is
//! there and empty means that somebody looked and found nothing.

use std::collections::BTreeMap;

use kernelwise_types::units::Nanos;
use kernelwise_types::{
    Calibration, Candidate, Estimate, Interval, Machine, Reading, SystemState, Workload,
};
use serde::Serialize;

/// Everything a report may tell.
///
/// ```
/// use kernelwise_report::{Facts, Report, Row};
/// use kernelwise_types::{Candidate, Estimate, Params, TimeStats};
/// use kernelwise_types::units::Nanos;
/// # fn machine() -> kernelwise_types::Machine {
/// #     serde_json::from_value(serde_json::json!({
/// #         "cpu": {"arch": "x86_64", "vendor": {"value": null}, "model": {"value": "Example 3000"}, "signature": {"value": null},
/// #             "logical": 2, "cores": {"value": 2}, "threads_per_core": {"value": 1}, "packages": {"value": 1}, "isa": ["avx2"],
/// #             "tsc_hz": {"value": null}, "max_frequency_hz": {"value": null}},
/// #         "caches": {"value": null}, "numa": {"value": null}, "memory_bytes": {"value": null},
/// #         "limits": {"affinity_cpus": {"value": null}, "cpu_quota_cpus": {"value": null}, "memory_bytes": {"value": null}},
/// #         "hypervisor": {"value": null}, "os": "linux", "kernel": {"value": null}
/// #     })).unwrap()
/// # }
///
/// let mut facts = Facts::new(machine(), 1_800_000_000);
/// let times: TimeStats = [5_300, 5_400, 5_500].map(Nanos::from_u64).into_iter().collect();
/// facts.rows.push(Row {
///     workload: "matmul f32 64x64x64".parse()?,
///     candidate: Candidate { kernel: "cpu-matmul-f32-a".parse()?, params: Params::new() },
///     estimate: Estimate::measured(&times),
/// });
/// let page = Report::of(&facts).html();
/// assert!(page.contains("5.40 µs") && page.contains("Example 3000"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// When the report is made, in seconds since 1970.
    pub generated_at_s: u64,
    /// The machine it is about.
    pub machine: Machine,
    /// How fast that can be; the roofline is drawn from it.
    pub calibration: Reading<Calibration>,
    /// How busy it was.
    pub state: Reading<SystemState>,
    /// What is known of times, one row for each workload and candidate.
    pub rows: Vec<Row>,
    /// What choosing is worth.
    pub gains: Reading<Gains>,
    /// Times that were predicted from others before they were looked at.
    pub predictions: Reading<Vec<Prediction>>,
    /// What learning cost while it went on.
    pub regret: Reading<Regret>,
    /// What was noticed while watching.
    pub events: Reading<Vec<Event>>,
    /// Kernels that do not run any more.
    pub quarantines: Reading<Vec<Quarantined>>,
    /// What load does to fixed choices.
    pub load_demo: Reading<LoadDemo>,
    /// Reasons to doubt the measurements, in words; empty if none were recorded.
    pub warnings: Vec<String>,
    /// Under what it was measured, in words: dates, versions, seed, threads, libraries that took part.
    pub conditions: Vec<String>,
    /// The commands that the figures come from, as far as they left a record.
    pub commands: Vec<String>,
}

impl Facts {
    /// A machine of which nothing more is known yet.
    pub fn new(machine: Machine, generated_at_s: u64) -> Self {
        Self {
            generated_at_s,
            machine,
            calibration: Reading::unknown("this machine was not calibrated"),
            state: Reading::unknown("nobody looked how busy the machine was"),
            rows: Vec::new(),
            gains: Reading::unknown("nothing was compared with fixed choices"),
            predictions: Reading::unknown("no predictions were held against measurements"),
            regret: Reading::unknown("no run was followed call by call"),
            events: Reading::unknown("nobody watched for drift"),
            quarantines: Reading::unknown("no records of quarantines were read"),
            load_demo: Reading::unknown("the load demonstration was not run"),
            warnings: Vec::new(),
            conditions: Vec::new(),
            commands: Vec::new(),
        }
    }
}

/// What is known of one candidate on one workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The workload.
    pub workload: Workload,
    /// The kernel with its parameters.
    pub candidate: Candidate,
    /// Its time, and how that is known.
    pub estimate: Estimate,
}

/// How a figure came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KnownBy {
    /// From times that were taken.
    Measured,
    /// From a trained model.
    Modelled,
    /// Said beforehand.
    Prior,
    /// Not known.
    Unknown,
}

impl KnownBy {
    /// The word for it, as it stands beside figures and in records.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Modelled => "modelled",
            Self::Prior => "prior",
            Self::Unknown => "unknown",
        }
    }
}

impl From<&Estimate> for KnownBy {
    fn from(estimate: &Estimate) -> Self {
        match estimate {
            Estimate::Measured { .. } => Self::Measured,
            Estimate::Modelled { .. } => Self::Modelled,
            Estimate::Prior { .. } => Self::Prior,
            Estimate::Unknown => Self::Unknown,
        }
    }
}

/// A geometric mean of ratios, with where it lies nine times in ten.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// The mean.
    #[serde(rename = "geometric_mean_ratio")]
    pub mean: f64,
    /// The lower end; `None` where there were too few to tell.
    #[serde(rename = "low_ratio")]
    pub low: Option<f64>,
    /// The upper end.
    #[serde(rename = "high_ratio")]
    pub high: Option<f64>,
}

impl Ratio {
    /// The same without what is no number; `None` if the mean is none.
    pub(crate) fn sound(self) -> Option<Self> {
        let end = |end: Option<f64>| end.filter(|end| end.is_finite());
        let (low, high) = (end(self.low), end(self.high));
        (self.mean.is_finite() && self.mean > 0.0).then_some(Self { low, high, ..self })
    }
}

/// How many times as long fixed choices take as the choices made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gain {
    /// Over how many shapes.
    pub shapes: usize,
    /// The best single kernel; `None` where no kernel computes nearly all of them.
    pub single_best_over_choice: Option<Ratio>,
    /// A rule written by hand; `None` where nobody wrote one.
    pub static_rule_over_choice: Option<Ratio>,
}

impl Gain {
    /// The ratio for the best single kernel, if it is a number.
    pub(crate) fn over_single(&self) -> Option<Ratio> {
        self.single_best_over_choice.and_then(Ratio::sound)
    }

    /// The ratio for the rule, if it is a number.
    pub(crate) fn over_rule(&self) -> Option<Ratio> {
        self.static_rule_over_choice.and_then(Ratio::sound)
    }
}

/// What choosing is worth.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gains {
    /// How the ratios are known.
    pub known_by: KnownBy,
    /// On which times they were judged, in words.
    pub judged_on: String,
    /// All operations together.
    pub all: Option<Gain>,
    /// By operation.
    pub operations: BTreeMap<String, Gain>,
}

/// A time that was predicted from others, and what it then was.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The workload, which the model had not seen.
    pub workload: Workload,
    /// The kernel with its parameters.
    pub candidate: Candidate,
    /// What the model said.
    pub predicted: Nanos,
    /// Where it said the time lies nine times in ten.
    pub interval: Interval,
    /// What was measured.
    pub measured: Nanos,
}

/// What learning cost over time: what its trials cost, which the budget bounds, and how far all calls fell behind the best, which
/// nothing bounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Regret {
    /// How the times are known.
    pub known_by: KnownBy,
    /// Where the series comes from, in words.
    pub source: String,
    /// In the order of calls.
    pub points: Vec<RegretPoint>,
}

/// One look at what learning has cost so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RegretPoint {
    /// Calls so far.
    pub calls: u64,
    /// Cost of trials: what they took longer than the calls they replaced would have.
    pub excess_s: f64,
    /// What trials may have cost by now.
    pub budget_s: f64,
    /// Regret: what all calls, trials or not, took longer than if the best kernel had served each of them.
    pub regret_s: f64,
}

/// Something that was noticed while watching.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// When, in seconds since 1970.
    pub at_s: u64,
    /// What.
    pub kind: EventKind,
    /// How bad.
    pub severity: Severity,
    /// In words.
    pub words: String,
    /// The command that ran meanwhile, such as `kernelwise learn`; empty if it is not on record.
    pub during: String,
}

/// The kinds of events, which are the lanes of the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A level was left for another.
    Drift,
    /// A run was out of line.
    Anomaly,
    /// A level creeps.
    Trend,
    /// A reading of the machine goes along with how long runs take.
    Correlation,
}

impl EventKind {
    /// All of them, in the order they are shown.
    pub const ALL: [Self; 4] = [Self::Drift, Self::Anomaly, Self::Trend, Self::Correlation];

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Drift => "drift",
            Self::Anomaly => "anomaly",
            Self::Trend => "trend",
            Self::Correlation => "correlation",
        }
    }
}

/// How bad an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know.
    Minor,
    /// Figures may be off.
    Major,
    /// Choices may be off.
    Critical,
}

impl Severity {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Minor => "minor",
            Self::Major => "major",
            Self::Critical => "critical",
        }
    }
}

/// A kernel that is kept away.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quarantined {
    /// The kernel, by the name in the record.
    pub kernel: String,
    /// In this version.
    pub version: u32,
    /// On what it happened.
    pub case: String,
    /// What happened.
    pub evidence: String,
    /// Whether somebody let it back in.
    pub lifted: bool,
}

/// Calls per second while a background load comes and goes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadDemo {
    /// How the rates are known.
    pub known_by: KnownBy,
    /// In the order they happened.
    pub phases: Vec<LoadPhase>,
}

/// One stream of calls in one phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadPhase {
    /// What was called: `matmul f32 512x512x512`.
    pub stream: String,
    /// What went on meanwhile: `idle`, `load`.
    pub phase: String,
    /// Of the number of threads that is best when it stays fixed; `None` if it was not run.
    pub best_fixed_calls_per_s: Option<f64>,
    /// Of what the library does by itself.
    pub library_default_calls_per_s: Option<f64>,
    /// Of who chooses by load.
    pub kernelwise_calls_per_s: Option<f64>,
}

impl LoadPhase {
    /// How many times as many calls Kernelwise made as another; `None` where one of them did not run.
    pub(crate) fn over(&self, other: Option<f64>) -> Option<f64> {
        let ratio = self.kernelwise_calls_per_s? / other?;
        ratio.is_finite().then_some(ratio)
    }
}
