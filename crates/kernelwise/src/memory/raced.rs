//! What a race told: times of one hour, held against each other.
//!
//! What is on record of a candidate is a sum over all hours, slow ones and quick ones, and every candidate has met others of them. A setting
//! that was measured in a slow hour only would lose to one of a quick hour, whatever both take in the same one. So where candidates raced, how they compare is
//! taken from the race, and how long such calls take from everything that is on record of them together: each
//! record is corrected by what it was off beside the others. What is measured later is not corrected, and outweighs it in time.

use std::collections::BTreeMap;
use std::sync::Arc;

use kernelwise_backend::HostKernel;
use kernelwise_measure::stats::quantile;
use kernelwise_select::Remembered;
use kernelwise_store::StoreError;
use kernelwise_types::{Candidate, Workload};
use serde::{Deserialize, Serialize};

use super::Memory;

/// The note in which corrections are kept.
const RACES: &str = "races";
/// Workloads whose races are kept, at most.
const MOST_RACES: usize = 1_000;

/// A candidate that raced.
#[derive(Debug, Clone)]
pub struct Raced {
    /// The kernel with its parameters.
    pub candidate: Candidate,
    /// In this version.
    pub version: u32,
    /// What its calls took, in nanoseconds.
    pub times_ns: Vec<f64>,
}

/// By how much the record of a candidate was off when it had raced.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Correction {
    candidate: String,
    version: u32,
    /// Samples on record then, those of the race among them.
    samples: u64,
    /// To be added to the mean of ln t.
    by_ln: f64,
}

impl Memory {
    /// Keeps the times of a race, and how those who raced compare.
    pub fn keep_race(
        &self,
        workload: &Workload,
        kernels: &[Arc<dyn HostKernel>],
        raced: &[Raced],
    ) -> Result<(), StoreError> {
        let Some(store) = self.keeping() else {
            return Ok(());
        };
        store.flush()?;
        let known = self.uncorrected(kernels, None)?.here;
        let text = workload.to_string();
        for one in raced {
            self.keep(&text, &one.candidate, one.version, &one.times_ns);
        }
        let mut all = self.races();
        all.insert(text, corrections(workload, &known, raced));
        while all.len() > MOST_RACES {
            // Nobody knows how old they are.
            let other = all.keys().find(|name| **name != workload.to_string());
            let Some(other) = other.cloned() else { break };
            all.remove(&other);
        }
        if let Ok(kept) = serde_json::to_value(&all) {
            store.keep_model(&self.fingerprint, RACES, kept);
        }
        Ok(())
    }

    fn races(&self) -> BTreeMap<String, Vec<Correction>> {
        self.model(RACES)
            .and_then(|kept| serde_json::from_value(kept).ok())
            .unwrap_or_default()
    }

    /// Corrects what is on record by what races told.
    pub(super) fn correct(&self, remembered: &mut [Remembered]) {
        let races = self.races();
        if races.is_empty() {
            return;
        }
        for one in remembered.iter_mut().filter(|one| !one.tally.is_stale()) {
            let Some(race) = races.get(&one.workload.to_string()) else {
                continue;
            };
            let name = one.candidate.to_string();
            let of_it = |correction: &&Correction| {
                correction.candidate == name && correction.version == one.version
            };
            if let Some(correction) = race.iter().find(of_it) {
                // What came since is as it is.
                let share = correction.samples as f64 / one.tally.samples().max(1) as f64;
                let by = share.min(1.0) * correction.by_ln;
                if by.is_finite() {
                    one.tally.shift(by);
                }
            }
        }
    }
}

/// What each record is off beside the others, once the race is on record as well.
fn corrections(workload: &Workload, known: &[Remembered], raced: &[Raced]) -> Vec<Correction> {
    struct Entry<'a> {
        of: &'a Raced,
        samples: u64,
        weight: f64,
        /// What the record says, and what the race does; in ln t.
        recorded: f64,
        told: f64,
    }
    let entry = |one: &'_ Raced| {
        let told = quantile(&one.times_ns, 0.5).filter(|ns| *ns > 0.0)?.ln();
        let ln = one.times_ns.iter().map(|ns| ns.max(0.01).ln());
        let (count, sum) = (one.times_ns.len() as f64, ln.sum::<f64>());
        let before = known.iter().find(|known| {
            let is_it = known.candidate == one.candidate && known.version == one.version;
            is_it && known.workload == *workload && !known.tally.is_stale()
        });
        let (samples, weight, mean) = before.map_or((0, 0.0, 0.0), |known| {
            let tally = &known.tally;
            let mean = tally.mean().unwrap_or_default();
            (tally.samples(), tally.weight(), mean)
        });
        let all = weight + count;
        Some((samples, all, (weight * mean + sum) / all, told))
    };
    let entries: Vec<Entry<'_>> = raced
        .iter()
        .filter_map(|of| {
            let (before, weight, recorded, told) = entry(of)?;
            Some(Entry {
                of,
                samples: before + of.times_ns.len() as u64,
                weight,
                recorded,
                told,
            })
        })
        .collect();
    // How much slower than the race all of the record is: that is the hours', not the candidates'.
    let weights: f64 = entries.iter().map(|one| one.weight).sum();
    let slower = entries
        .iter()
        .map(|one| one.weight * (one.recorded - one.told))
        .sum::<f64>()
        / weights.max(1e-9);
    let corrections = entries.into_iter().map(|one| Correction {
        candidate: one.of.candidate.to_string(),
        version: one.of.version,
        samples: one.samples,
        by_ln: one.told + slower - one.recorded,
    });
    corrections.collect()
}
