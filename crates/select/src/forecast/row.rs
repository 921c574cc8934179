//! Measurements and questions as rows of numbers.

use std::collections::{BTreeMap, BTreeSet};

use kernelwise_types::{Params, Workload};
use serde::{Deserialize, Serialize};

use crate::problem::{Problem, sizes};
use crate::selector::Evidence;
use crate::selector::candidates::arm;

/// Samples beyond which more of the same shape count no more: many samples of one shape are still one shape.
const MOST_SAMPLES: f64 = 8.0;
/// The share of its samples that an old row is worth at the least, beside the newest row of its kind.
const LEAST_SHARE: f64 = 1.0 / 16.0;
/// Weights are told apart in so many steps for each factor of two. What is computed at another time is off in its last bits, and
/// models have to be the same.
const STEPS: f64 = 256.0;
/// The value of a parameter that a kernel does not have.
const ABSENT: f64 = -1.0;
/// The parameter that is no column of its own: it is part of the arm.
const THREADS: &str = "threads";

/// A workload that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) name: String,
    pub(super) ln_sizes: Vec<f64>,
}

/// One question or one measurement, as numbers.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) arm: String,
    pub(super) threads: f32,
    pub(super) ln_sizes: Vec<f64>,
    pub(super) features: Vec<f32>,
    /// Of the kernel, as they were set.
    pub(super) params: Params,
    /// The same as numbers, in the order of the kind's parameters.
    pub(super) settings: Vec<f64>,
    /// What is expected of it beforehand, in ln t.
    pub(super) expected: f64,
    /// What was measured, over that.
    pub(super) over: f64,
    /// What it counts beside others of the kind.
    pub(super) weight: f64,
    /// Which of the workloads of the kind.
    pub(super) workload: usize,
    /// By how much the machine is slower than usual, in ln t.
    pub(super) slower: f64,
}

impl Row {
    pub(super) fn new(
        workload: &Workload,
        arm: String,
        threads: u32,
        expected_ns: Option<f64>,
    ) -> Option<Self> {
        let problem = Problem::of(workload);
        let ln_sizes = sizes(workload).into_iter();
        let ln_sizes = ln_sizes.map(|size| (size as f64).max(0.5).ln());
        let expected = expected_ns.map_or(problem.ln_work(), |ns| ns.max(0.01).ln());
        expected.is_finite().then(|| Self {
            arm,
            threads: threads as f32,
            ln_sizes: ln_sizes.collect(),
            features: problem.features().to_vec(),
            params: Params::new(),
            settings: Vec::new(),
            expected,
            over: 0.0,
            weight: 1.0,
            workload: 0,
            slower: 0.0,
        })
    }

    /// What curves bend over.
    pub(super) fn base(&self) -> Vec<f64> {
        let mut base = self.ln_sizes.clone();
        base.push(self.expected);
        base
    }

    /// What trees ask about; an arm that never ran has no column.
    pub(super) fn asked(&self, column: Option<usize>, columns: usize) -> Vec<f32> {
        let mut asked = self.features.clone();
        asked.extend([self.expected as f32, self.threads, self.slower as f32]);
        asked.extend(self.settings.iter().map(|value| *value as f32));
        let arms = asked.len();
        asked.resize(arms + columns, 0.0);
        if let Some(own) = column.and_then(|column| asked.get_mut(arms + column)) {
            *own = 1.0;
        }
        asked
    }
}

/// The parameters that make a difference within an arm, by name. What is the same in all rows of an arm is known from the arm.
pub(super) fn parameters(rows: &[Row]) -> Vec<String> {
    let mut values: BTreeMap<(&str, &str), BTreeSet<u64>> = BTreeMap::new();
    for row in rows {
        for (name, value) in row.params.iter().filter(|(name, _)| *name != THREADS) {
            values.entry((name, &row.arm)).or_default().insert(value);
        }
    }
    let differ = values.iter().filter(|(_, values)| values.len() > 1);
    let names: BTreeSet<&str> = differ.map(|((name, _), _)| *name).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// The values of these parameters: ln of one more than each, since switches are 0 and 1.
pub(super) fn settings(params: &Params, parameters: &[String]) -> Vec<f64> {
    let value = |name: &String| {
        params
            .get(name)
            .map_or(ABSENT, |value| (value as f64).ln_1p())
    };
    parameters.iter().map(value).collect()
}

/// Measurements of one kind as rows, and its workloads.
pub(super) fn rows(evidence: &[&Evidence]) -> (Vec<Row>, Vec<Seen>) {
    let (mut rows, mut seen) = (Vec::new(), Vec::<Seen>::new());
    let mut worths = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for one in evidence {
        let spec = (&one.of.candidate.kernel, one.of.version);
        let arm = arm(spec.0, spec.1, one.threads);
        let row = Row::new(&one.of.workload, arm, one.threads, one.expected_ns);
        let (Some(row), Some(mean)) = (row, one.of.tally.mean()) else {
            continue;
        };
        let name = one.of.workload.to_string();
        let place = *places.entry(name.clone()).or_insert_with(|| {
            seen.push(Seen {
                name,
                ln_sizes: row.ln_sizes.clone(),
            });
            seen.len() - 1
        });
        let slower = one.slower.unwrap_or(0.0);
        worths.push((one.of.tally.samples() as f64, one.of.tally.weight()));
        rows.push(Row {
            params: one.of.candidate.params.clone(),
            // All is slower together; what does not go along is for the models.
            over: mean - slower - row.expected,
            slower,
            workload: place,
            ..row
        });
    }
    for (row, weight) in rows.iter_mut().zip(weights(&worths)) {
        row.weight = weight;
    }
    (rows, seen)
}

/// What rows count, of how many samples each has and how many of today those are worth.
///
/// Old samples are worth less than new ones, but how much a model believes its rows must not depend on how long ago all of them
/// were measured. So ages are taken from the newest row, and all rows together count as if none had aged: time moves weight
/// from old rows to new ones and takes none away.
fn weights(worths: &[(f64, f64)]) -> Vec<f64> {
    let newest = worths
        .iter()
        .map(|(samples, worth)| worth / samples)
        .fold(0.0, f64::max);
    let fresh = |samples: f64| samples.min(MOST_SAMPLES).sqrt();
    let faded = |(samples, worth): &(f64, f64)| {
        let worth = worth / newest;
        let worth = ((worth.log2() * STEPS).round() / STEPS).exp2();
        let least = LEAST_SHARE * samples.min(MOST_SAMPLES);
        worth.clamp(least, MOST_SAMPLES).sqrt()
    };
    let faded: Vec<f64> = worths.iter().map(faded).collect();
    let whole: f64 = worths.iter().map(|(samples, _)| fresh(*samples)).sum();
    let left: f64 = faded.iter().sum();
    let scale = if left > 0.0 { whole / left } else { 1.0 };
    faded.iter().map(|weight| weight * scale).collect()
}
