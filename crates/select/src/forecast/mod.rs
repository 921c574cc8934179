//! How long a candidate takes on a workload that nobody measured.
//!
//! What was measured of workloads of one [kind] is evidence for others of it. The analytic expectation of a candidate (roofline,
//! share of it, cost of waking threads) goes first; what is learned is by how much it is wrong, in ln t. Two models answer, and
//! the forecast is their mean, because they err differently:
//!
//! - one smooth **curve** for each arm (a kernel with its threads): a ridge regression on sizes, their products and bends;
//! - **trees** of all arms of the kind together, which see what is no curve, and lend a kernel that ran on few shapes what is known of
//!   the others.
//!
//! How far off they may be is not assumed but tried: the workloads are dealt into five hands, each hand is forecast from the
//! other four, and nine in ten of those errors are the interval ([conformal](kernelwise_model::Conformal) in spirit, with every row
//! used for both). Where nothing near was measured, the interval is wider by how far away that is.
//!
//! Times of other machines stand in where this one has too few of a kind: what a kernel takes over what was to be expected *there* is
//! carried over to what is to be expected *here*. Such a forecast is a prior, its interval is wider by how unlike the machines are, and
//! it goes as soon as there are enough times of this machine.

mod curve;
mod judged;
mod model;
mod renew;
mod row;

use std::collections::BTreeMap;

use kernelwise_model::Regressor;
use kernelwise_types::units::Nanos;
use kernelwise_types::{Candidate, Estimate, Interval, KernelId, Params, Workload};
use serde::{Deserialize, Serialize, Serializer};

use crate::belief::Expected;
use crate::problem::kind;
use crate::selector::Evidence;
use crate::selector::candidates::arm;
use model::Kind;
use row::{Row, rows};

pub use judged::{Accuracy, Choices, HeldOutTime, Judged, Reliability, judge, judge_with};
pub use renew::Renewed;

/// Workloads of a kind below which there is no model of it: five hands of two.
const FEWEST_WORKLOADS: usize = 10;
/// Hands that workloads are dealt into.
const HANDS: usize = 5;
/// A normal distribution has 90 % within so many standard deviations.
const NINETY: f64 = 1.645;

/// Models of the kinds of workloads that something is known of. It can be written and read; what is damaged answers with nothing.
/// Models [of somebody's own](Self::fit_with) are not written: they are fitted anew.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    #[serde(serialize_with = "those_that_can_be_written")]
    kinds: BTreeMap<String, Kind>,
}

fn those_that_can_be_written<S: Serializer>(
    kinds: &BTreeMap<String, Kind>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(kinds.iter().filter(|(_, kind)| kind.can_be_written()))
}

/// What there is a model of, and what it has seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scope {
    /// The kind.
    pub kind: String,
    /// Measured workloads.
    pub workloads: usize,
    /// Kernels with their threads.
    pub kernels: usize,
    /// The smallest and the largest of each size.
    pub sizes: Vec<(u64, u64)>,
    /// How unlike this one the machines are that it was measured on; `None` for this one.
    pub other_machines_distance: Option<f64>,
}

/// A forecast.
#[derive(Debug, Clone, PartialEq)]
pub struct Foretold {
    /// The middle of ln t, in nanoseconds.
    pub mean: f64,
    /// Nine times in ten ln t is within so much of it.
    pub half_width: f64,
    /// Of those that this kernel was measured on, the workload most like it.
    pub nearest: String,
    /// By which factor the sizes of that differ, all together; 1 for the same.
    pub nearest_factor: f64,
    /// Workloads of the kind that this kernel was measured on with as many threads; all that were measured, if it never ran.
    pub workloads: usize,
    /// What made it, in words.
    pub model: String,
    /// How unlike this one the machines are that those were measured on; `None` for this one.
    pub away: Option<f64>,
}

impl Foretold {
    /// The standard deviation that a normal distribution with such an interval has.
    pub fn sd(&self) -> f64 {
        self.half_width / NINETY
    }

    /// The same for those who reckon with it.
    pub(crate) fn expected(&self) -> Expected {
        Expected {
            mean: self.mean,
            sd: self.sd(),
        }
    }

    /// In words that say what it rests on; `None` if it is no time.
    pub fn estimate(&self) -> Option<Estimate> {
        let nanos = |y: f64| Nanos::new(y.exp()).ok();
        if let Some(away) = self.away {
            return Some(Estimate::Prior {
                time_ns: nanos(self.mean)?,
                source: format!(
                    "{} workloads of other machines, at a distance of {away:.2}",
                    self.workloads
                ),
            });
        }
        let (low, high) = (self.mean - self.half_width, self.mean + self.half_width);
        Some(Estimate::Modelled {
            time_ns: nanos(self.mean)?,
            interval_ns: Interval::new(nanos(low)?, nanos(high)?).ok()?,
            model: format!(
                "{}, n = 0; nearest of {} measured: {}, sizes {:.2}x away",
                self.model, self.workloads, self.nearest, self.nearest_factor
            ),
        })
    }
}

impl Forecast {
    /// Fits models to evidence. Kinds with too little of it have none. The same evidence and seed give the same forecasts, however
    /// long ago it was measured.
    pub fn fit(evidence: &[Evidence], seed: u64) -> Self {
        Self::fit_by(evidence, None, seed)
    }

    /// The same with another type of model in the place of curves and trees: one of [`ModelKind`](kernelwise_model::ModelKind), or
    /// somebody's own. It is fitted to ln of the measured over the expected time, one table for each kind; intervals come
    /// from how far off it is on workloads that were kept back, as for the usual models. A model that cannot be fitted makes
    /// no forecasts.
    pub fn fit_with(evidence: &[Evidence], regressor: &dyn Regressor, seed: u64) -> Self {
        Self::fit_by(evidence, Some(regressor), seed)
    }

    pub(crate) fn fit_by(
        evidence: &[Evidence],
        regressor: Option<&dyn Regressor>,
        seed: u64,
    ) -> Self {
        let mut by_kind: BTreeMap<String, Vec<&Evidence>> = BTreeMap::new();
        for one in evidence {
            by_kind.entry(kind(&one.of.workload)).or_default().push(one);
        }
        let fitted = by_kind.into_iter().filter_map(|(name, evidence)| {
            let own = evidence.iter().copied().filter(|one| one.away.is_none());
            let (own, seen) = rows(&own.collect::<Vec<_>>());
            if let Some(kind) = Kind::fit(own, seen, None, regressor, seed) {
                return Some((name, kind));
            }
            let away: Vec<f64> = evidence.iter().filter_map(|one| one.away).collect();
            let mean_away = away.iter().sum::<f64>() / away.len().max(1) as f64;
            let (all, seen) = rows(&evidence);
            let kind = Kind::fit(all, seen, Some(mean_away), regressor, seed)?;
            Some((name, kind))
        });
        Self {
            kinds: fitted.collect(),
        }
    }

    /// How long a kernel in a version should take on so many threads, while the machine is as fast as usual; `None` of kinds without a
    /// model. Its other parameters are as they mostly were.
    pub fn of(
        &self,
        workload: &Workload,
        kernel: (&KernelId, u32),
        threads: u32,
        expected_ns: Option<f64>,
    ) -> Option<Foretold> {
        self.of_row(workload, kernel, None, threads, expected_ns, 0.0)
    }

    /// The same with parameters.
    pub fn of_candidate(
        &self,
        workload: &Workload,
        candidate: &Candidate,
        version: u32,
        threads: u32,
        expected_ns: Option<f64>,
    ) -> Option<Foretold> {
        let kernel = (&candidate.kernel, version);
        let params = Some(&candidate.params);
        self.of_row(workload, kernel, params, threads, expected_ns, 0.0)
    }

    fn of_row(
        &self,
        workload: &Workload,
        (kernel, version): (&KernelId, u32),
        params: Option<&Params>,
        threads: u32,
        expected_ns: Option<f64>,
        slower: f64,
    ) -> Option<Foretold> {
        let kind = self.kinds.get(&kind(workload))?;
        let arm = arm(kernel, version, threads);
        let mut row = Row::new(workload, arm, threads, expected_ns)?;
        row.settings = kind.settings(&row.arm, params);
        row.slower = slower;
        kind.foretell(&row)
    }

    fn of_evidence(&self, one: &Evidence, slower: f64) -> Option<Foretold> {
        let Candidate { kernel, params } = &one.of.candidate;
        let (kernel, params) = ((kernel, one.of.version), Some(params));
        let (threads, expected_ns) = (one.threads, one.expected_ns);
        self.of_row(
            &one.of.workload,
            kernel,
            params,
            threads,
            expected_ns,
            slower,
        )
    }

    /// What would have been foretold of a time that is known, by somebody who does not know how fast the machine is.
    pub(crate) fn of_usual(&self, one: &Evidence) -> Option<Foretold> {
        self.of_evidence(one, 0.0)
    }

    /// What would have been foretold of a time that is known, in the moment it was measured.
    pub(crate) fn of_known(&self, one: &Evidence) -> Option<Foretold> {
        self.of_evidence(one, one.slower.unwrap_or(0.0))
    }

    /// Kinds that there are models of, and what each has seen.
    pub fn kinds(&self) -> impl Iterator<Item = Scope> {
        self.kinds.iter().map(|(name, kind)| kind.scope(name))
    }

    /// The same with the kinds that the other has models of put in the place of these.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.kinds.extend(other.kinds);
        self
    }
}

#[cfg(test)]
mod tests;
