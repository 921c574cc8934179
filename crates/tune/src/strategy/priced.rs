//! What a family of devices knows without measuring: which settings there are, and what each should cost.
//!
//! A [`Priced`] is arithmetic on a device's description. It keeps nothing and learns nothing: what measurements say goes on top
//! of its prices ([`Strategy`](super::Strategy)), so a price that is wrong is corrected, and never argued with.

use std::fmt;

use kernelwise_types::units::{Bytes, Nanos, Share, Watts};
use kernelwise_types::{Backend, KernelId, Numerics, Params, Workload};
use serde::{Deserialize, Serialize};

use super::situation::Situation;

/// What is recommended: parameters, and the kernel they belong to where there is more than one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Choice {
    /// The kernel; `None` on devices whose settings are of one kernel.
    pub kernel: Option<KernelId>,
    /// Its parameters.
    pub params: Params,
}

impl Choice {
    /// Parameters of a device's only kernel.
    pub fn of(params: Params) -> Self {
        Self {
            kernel: None,
            params,
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let params = self.params.to_string();
        match &self.kernel {
            Some(kernel) if params.is_empty() => write!(f, "{kernel}"),
            Some(kernel) => write!(f, "{kernel} ({params})"),
            None if params.is_empty() => f.write_str("no parameters"),
            None => f.write_str(&params),
        }
    }
}

/// What a time is bound by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Arithmetic.
    Compute,
    /// Moving bytes.
    Memory,
    /// Starting: launching a kernel, waking threads, set-up. More of either rate would not help.
    Latency,
}

impl Bound {
    /// The name as in records and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Memory => "memory",
            Self::Latency => "latency",
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a price rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "from", content = "source")]
pub enum Origin {
    /// A formula over published or calibrated figures; the words say which.
    Prior(String),
    /// A model fitted to measurements of other workloads; the words say which.
    Model(String),
}

/// What one call should cost with one choice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Time of a warm call: above zero, and never shorter than the device's peak allows.
    pub time_ns: Nanos,
    /// The shortest time that the device's peak allows; `None` where no peak is known. Nothing that is measured of other choices makes a
    /// prediction shorter.
    #[serde(default)]
    pub floor_ns: Option<Nanos>,
    /// How far off that may be: a standard deviation of ln t. Above zero: nobody knows a time exactly beforehand.
    pub spread_ln: f64,
    /// Paid once before the first call: compiling a pipeline, planning. Zero where there is nothing to pay.
    pub compile_ns: Nanos,
    /// Memory of a call: every operand, and scratch.
    #[serde(rename = "memory_bytes")]
    pub memory: Bytes,
    /// Power while it runs; `None` where nobody measured it.
    #[serde(rename = "power_w")]
    pub power: Option<Watts>,
    /// What the time is bound by.
    pub bound: Bound,
    /// Share of the device's resident threads that are in use; `None` where the word has no meaning.
    #[serde(rename = "occupancy_share")]
    pub occupancy: Option<Share>,
    /// Units it keeps busy: threads of a processor, multiprocessors of a GPU. What saving power is judged by.
    pub units: u32,
    /// The parameters whose price this is, if no formula tells these from them: until these are timed, they are expected to take what those were seen to.
    #[serde(default)]
    pub usual: Option<Params>,
    /// What it rests on.
    pub origin: Origin,
    /// Further facts in words, such as grid and block.
    pub words: Vec<String>,
}

/// What kept a recommendation from being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Limit {
    /// Memory: the caller's limit, or what the device has.
    Memory,
    /// Power.
    Power,
    /// Temperature.
    Temperature,
    /// Time of one call.
    Latency,
    /// Calls per second.
    Throughput,
    /// Energy of one call.
    Energy,
    /// A deadline that has to be kept.
    RealTime,
    /// How exact the result must be.
    Numerics,
    /// Nobody computes this operation, or these element types, there.
    Operation,
    /// Parameters that are missing, unknown or not offered, or that break a launch limit.
    Parameters,
    /// Everything that could run failed before.
    Failures,
}

impl Limit {
    /// The name as in records and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Power => "power",
            Self::Temperature => "temperature",
            Self::Latency => "latency",
            Self::Throughput => "throughput",
            Self::Energy => "energy",
            Self::RealTime => "real_time",
            Self::Numerics => "numerics",
            Self::Operation => "operation",
            Self::Parameters => "parameters",
            Self::Failures => "failures",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// It cannot be done, and what stands in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("infeasible ({limit}): {why}")]
pub struct Infeasible {
    /// What stands in the way.
    pub limit: Limit,
    /// In words, with the remedy.
    pub why: String,
}

impl Infeasible {
    /// This limit, for this reason.
    pub fn new(limit: Limit, why: impl Into<String>) -> Self {
        Self {
            limit,
            why: why.into(),
        }
    }
}

/// What a family of devices knows without measuring. The same question has the same answer, always: nothing here
/// reads a clock, a sensor or a counter.
pub trait Priced: Send + Sync {
    /// The family.
    fn backend(&self) -> Backend;

    /// The device, as in records and reports.
    fn device(&self) -> &str;

    /// The choices worth considering for this workload in this situation, with results at least as exact as `allowed`; not
    /// empty. Each of them has a [`price`](Self::price).
    fn settings(
        &self,
        workload: &Workload,
        situation: &Situation,
        allowed: Numerics,
    ) -> Result<Vec<Choice>, Infeasible>;

    /// What a choice should cost, of those that [`settings`](Self::settings) lists in any situation. Any other is refused by
    /// its name: parameters come from files and people.
    fn price(&self, workload: &Workload, choice: &Choice) -> Result<Price, Infeasible>;
}

impl<P: Priced + ?Sized> Priced for std::sync::Arc<P> {
    fn backend(&self) -> Backend {
        (**self).backend()
    }

    fn device(&self) -> &str {
        (**self).device()
    }

    fn settings(
        &self,
        workload: &Workload,
        situation: &Situation,
        allowed: Numerics,
    ) -> Result<Vec<Choice>, Infeasible> {
        (**self).settings(workload, situation, allowed)
    }

    fn price(&self, workload: &Workload, choice: &Choice) -> Result<Price, Infeasible> {
        (**self).price(workload, choice)
    }
}
