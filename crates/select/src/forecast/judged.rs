//! How good forecasts are on workloads that they were not made from.

use std::collections::BTreeMap;

use kernelwise_types::Workload;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use super::{Forecast, HANDS};
use crate::selector::Evidence;

/// How near forecasts come.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Accuracy {
    /// Times that were forecast.
    pub times: usize,
    /// Half of them within this factor.
    pub median_error_factor: f64,
    /// Nine in ten within this one.
    pub p90_error_factor: f64,
    /// Share that lay in their 90 % intervals.
    pub coverage_90: f64,
    /// Half of the intervals are this wide or less: the upper end over the lower.
    pub median_interval_factor: f64,
    /// The analytic expectation, on the same times: half within this factor; `None` where there was none.
    pub prior_median_error_factor: Option<f64>,
}

/// What forecasts were worth.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// All together; `None` if nothing could be forecast.
    pub all: Option<Accuracy>,
    /// By operation.
    pub operations: BTreeMap<String, Accuracy>,
    /// By powers of ten of the time, in nanoseconds.
    pub decades: BTreeMap<u32, Accuracy>,
    /// Times of kinds with too few workloads for a model.
    pub without_model: usize,
}

/// One time beside its forecast.
struct Told {
    error: f64,
    half_width: f64,
    prior_error: Option<f64>,
    operation: String,
    decade: u32,
}

/// Which hand each workload is dealt into.
pub(super) fn hands(workloads: usize, seed: u64) -> Vec<usize> {
    let mut hands: Vec<usize> = (0..workloads).map(|i| i % HANDS).collect();
    hands.shuffle(&mut Pcg64Mcg::seed_from_u64(seed));
    hands
}

/// Deals the workloads into five hands and forecasts each from the other four, intervals and all.
pub fn judge(evidence: &[Evidence], seed: u64) -> Judged {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for one in evidence {
        let next = places.len();
        places.entry(one.of.workload.to_string()).or_insert(next);
    }
    // Another deal than the one that intervals come from.
    let hands = hands(places.len(), seed.wrapping_add(1));
    let hand = |workload: &Workload| places.get(&workload.to_string()).map(|place| hands[*place]);
    let (mut told, mut without_model) = (Vec::new(), 0);
    for asked in 0..HANDS {
        let (asking, known): (Vec<&Evidence>, Vec<&Evidence>) = evidence
            .iter()
            .partition(|one| hand(&one.of.workload) == Some(asked));
        let known: Vec<Evidence> = known.into_iter().cloned().collect();
        let forecast = Forecast::fit(&known, seed);
        for one in asking {
            let kernel = (&one.of.candidate.kernel, one.of.version);
            let foretold = forecast.of(&one.of.workload, kernel, one.threads, one.expected_ns);
            let (Some(foretold), Some(y)) = (foretold, one.of.tally.mean()) else {
                without_model += 1;
                continue;
            };
            told.push(Told {
                error: (y - foretold.mean).abs(),
                half_width: foretold.half_width,
                prior_error: one.expected_ns.map(|ns| (y - ns.max(0.01).ln()).abs()),
                operation: one.of.workload.operation().name().to_owned(),
                decade: (y / std::f64::consts::LN_10).max(0.0) as u32,
            });
        }
    }
    let mut operations: BTreeMap<String, Vec<&Told>> = BTreeMap::new();
    let mut decades: BTreeMap<u32, Vec<&Told>> = BTreeMap::new();
    for one in &told {
        operations
            .entry(one.operation.clone())
            .or_default()
            .push(one);
        decades.entry(one.decade).or_default().push(one);
    }
    let all: Vec<&Told> = told.iter().collect();
    Judged {
        all: accuracy(&all),
        operations: each(operations),
        decades: each(decades),
        without_model,
    }
}

fn each<K: Ord>(groups: BTreeMap<K, Vec<&Told>>) -> BTreeMap<K, Accuracy> {
    let groups = groups.into_iter();
    groups
        .filter_map(|(name, told)| Some((name, accuracy(&told)?)))
        .collect()
}

fn accuracy(told: &[&Told]) -> Option<Accuracy> {
    let factor = |mut errors: Vec<f64>, share: f64| {
        errors.sort_by(f64::total_cmp);
        let rank = (share * errors.len() as f64).ceil() as usize;
        errors.get(rank.checked_sub(1)?).map(|error| error.exp())
    };
    let list = |value: &dyn Fn(&Told) -> f64| told.iter().map(|one| value(one)).collect::<Vec<_>>();
    let held = told
        .iter()
        .filter(|one| one.error <= one.half_width)
        .count();
    Some(Accuracy {
        times: told.len(),
        median_error_factor: factor(list(&|one| one.error), 0.5)?,
        p90_error_factor: factor(list(&|one| one.error), 0.9)?,
        coverage_90: held as f64 / told.len() as f64,
        median_interval_factor: factor(list(&|one| 2.0 * one.half_width), 0.5)?,
        prior_median_error_factor: factor(
            told.iter().filter_map(|one| one.prior_error).collect(),
            0.5,
        ),
    })
}
