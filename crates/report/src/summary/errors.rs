//! How far off predictions were, by operation and by size.

use std::collections::BTreeMap;

use serde::Serialize;

use super::rows::{Foretold, decade, operation};
use crate::facts::Prediction;

/// How near predictions of some group came.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Accuracy {
    /// Times that were predicted.
    pub(crate) times: usize,
    /// Half of them within this factor, up or down.
    pub(crate) median_error_factor: f64,
    /// Nine in ten within this one.
    pub(crate) p90_error_factor: f64,
    /// Share that lay in the interval said beforehand to hold nine in ten.
    pub(crate) in_interval_share: f64,
}

/// The same for all groups that are shown.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Errors {
    pub(crate) all: Accuracy,
    pub(crate) operations: BTreeMap<String, Accuracy>,
    /// By powers of ten of the bytes that a call moves.
    #[serde(rename = "size_decades_bytes_log10")]
    pub(crate) decades: BTreeMap<u32, Accuracy>,
}

impl Errors {
    /// `None` of no predictions.
    pub(crate) fn of(list: &[Prediction]) -> Option<Self> {
        let mut all = Vec::new();
        let mut operations: BTreeMap<String, Vec<(f64, bool)>> = BTreeMap::new();
        let mut decades: BTreeMap<u32, Vec<(f64, bool)>> = BTreeMap::new();
        for one in list {
            let told = Foretold::from(one);
            let error = (told.measured_ns / told.modelled_ns).ln().abs();
            // A time of nothing has no ratio.
            if !error.is_finite() {
                continue;
            }
            let error = (error, told.in_interval);
            all.push(error);
            operations
                .entry(operation(&one.workload))
                .or_default()
                .push(error);
            decades
                .entry(decade(told.size_bytes))
                .or_default()
                .push(error);
        }
        Some(Self {
            all: accuracy(all)?,
            operations: each(operations),
            decades: each(decades),
        })
    }
}

fn each<K: Ord>(groups: BTreeMap<K, Vec<(f64, bool)>>) -> BTreeMap<K, Accuracy> {
    let groups = groups.into_iter();
    groups
        .filter_map(|(name, errors)| Some((name, accuracy(errors)?)))
        .collect()
}

fn accuracy(mut errors: Vec<(f64, bool)>) -> Option<Accuracy> {
    errors.sort_by(|a, b| a.0.total_cmp(&b.0));
    // The least error that so many in ten do not exceed.
    let tenths = |tenths: usize| {
        let rank = (tenths * errors.len()).div_ceil(10);
        errors
            .get(rank.checked_sub(1)?)
            .map(|(error, _)| error.exp())
    };
    Some(Accuracy {
        times: errors.len(),
        median_error_factor: tenths(5)?,
        p90_error_factor: tenths(9)?,
        in_interval_share: errors.iter().filter(|(_, held)| *held).count() as f64
            / errors.len() as f64,
    })
}

#[cfg(test)]
mod tests {
    use kernelwise_types::units::Nanos;
    use kernelwise_types::{Candidate, Interval, Params};

    use super::*;

    fn told(workload: &str, predicted: f64, measured: f64) -> Prediction {
        let ns = |value| Nanos::new(value).unwrap();
        Prediction {
            workload: workload.parse().unwrap(),
            candidate: Candidate {
                kernel: "cpu-matmul-f32-a".parse().unwrap(),
                params: Params::new(),
            },
            predicted: ns(predicted),
            interval: Interval::new(ns(predicted / 2.0), ns(predicted * 2.0)).unwrap(),
            measured: ns(measured),
        }
    }

    #[test]
    fn errors_count_both_ways_and_by_group() {
        let list = [
            told("matmul f32 8x8x8", 100.0, 100.0),
            told("matmul f32 8x8x7", 100.0, 50.0),
            told("matmul f32 64x64x64", 100.0, 400.0),
            told("copy f32 10", 100.0, 0.0),
        ];
        let errors = Errors::of(&list).unwrap();
        assert_eq!(errors.all.times, 3);
        assert!((errors.all.median_error_factor - 2.0).abs() < 1e-12);
        assert!((errors.all.p90_error_factor - 4.0).abs() < 1e-12);
        assert!((errors.all.in_interval_share - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(errors.operations.keys().collect::<Vec<_>>(), ["matmul"]);
        assert_eq!(errors.decades[&2].times, 2);
        assert!((errors.decades[&2].median_error_factor - 1.0).abs() < 1e-12);
        assert!((errors.decades[&4].median_error_factor - 4.0).abs() < 1e-12);
        assert_eq!(Errors::of(&[]), None);
    }
}
