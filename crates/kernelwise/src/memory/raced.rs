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
use kernelwise_store::{Faded, HALF_LIFE_S, SeriesKey, StoreError};
use kernelwise_types::{Candidate, Workload};
use serde::{Deserialize, Serialize};

use super::Memory;

/// The note in which corrections are kept.
const RACES: &str = "races";
/// Workloads whose races are kept, at most; those that raced longest ago make room.
const MOST_RACES: usize = 1_000;
/// A candidate that ran less often was not in the race: it was broken off, or the time was too short.
const FEWEST_TIMES: usize = 5;

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
    kernel: String,
    parameters: String,
    version: u32,
    /// When, in seconds since 1970.
    at_s: u64,
    /// Samples on record then, those of the race among them, and how many of that day they were worth.
    samples: u64,
    weight: f64,
    /// To be added to the mean of ln t.
    by_ln: f64,
}

impl Correction {
    fn is_of(&self, kernel: &str, parameters: &str, version: u32) -> bool {
        self.kernel == kernel && self.parameters == parameters && self.version == version
    }
}

/// What races told, by workload.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Races(BTreeMap<String, Vec<Correction>>);

impl Races {
    /// What to add to the mean of ln t of a record of so many samples, of which this is left at a time.
    pub(super) fn correction(
        &self,
        key: &SeriesKey,
        samples: u64,
        faded: &Faded,
        as_of_s: u64,
    ) -> f64 {
        let race = self.0.get(&*key.workload);
        let mut race = race.into_iter().flatten();
        let found = race.find(|one| one.is_of(&key.kernel, &key.params, key.version));
        // A record of fewer samples is another one: that one was deleted since.
        let Some(correction) = found.filter(|one| one.samples <= samples) else {
            return 0.0;
        };
        // What came since is as it is.
        let passed_s = as_of_s.saturating_sub(correction.at_s) as f64;
        let left = correction.weight * (-passed_s / HALF_LIFE_S).exp2();
        let by = (left / faded.weight).min(1.0) * correction.by_ln;
        if by.is_finite() { by } else { 0.0 }
    }

    /// Takes a race in the place of what was told of those who raced; the others keep what an earlier one told of them.
    fn add(&mut self, workload: String, race: Vec<Correction>) {
        let known = self.0.entry(workload).or_default();
        known.retain(|known| {
            let again =
                |one: &Correction| one.is_of(&known.kernel, &known.parameters, known.version);
            !race.iter().any(again)
        });
        known.extend(race);
        while self.0.len() > MOST_RACES {
            let latest = |race: &[Correction]| race.iter().map(|one| one.at_s).max();
            let oldest = self.0.iter().min_by_key(|(_, race)| latest(race));
            let Some(oldest) = oldest.map(|(workload, _)| workload.clone()) else {
                return;
            };
            self.0.remove(&oldest);
        }
    }
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
        let known = self.recall_with(kernels, None, &Races::default())?.here;
        let text = workload.to_string();
        for one in raced {
            self.keep(&text, &one.candidate, one.version, &one.times_ns);
        }
        let race = corrections(workload, &known, raced, self.clock.now_s());
        if race.len() < 2 {
            // Nobody was held against anybody.
            return Ok(());
        }
        let mut all = self.races();
        all.add(text, race);
        if let Ok(kept) = serde_json::to_value(&all) {
            store.keep_model(&self.fingerprint, RACES, kept);
        }
        Ok(())
    }

    /// What races told, here and, of other workloads, in layers of wisdom.
    pub(super) fn races(&self) -> Races {
        let read = |note: serde_json::Value| {
            let races: Result<Races, _> = serde_json::from_value(note);
            races
                .inspect_err(|error| {
                    if self.is_told_first(RACES) {
                        tracing::warn!(%error, "what races told cannot be read and does not count");
                    }
                })
                .unwrap_or_default()
        };
        let store = self.store.as_ref();
        let own = store.and_then(|store| store.model(&self.fingerprint, RACES).ok().flatten());
        let told = self.layers.model(&self.fingerprint, RACES).cloned();
        let mut all = told.map(read).unwrap_or_default();
        all.0.extend(own.map(read).unwrap_or_default().0);
        all
    }
}

/// What each record is off beside the others, once the race is on record as well.
fn corrections(
    workload: &Workload,
    known: &[Remembered],
    raced: &[Raced],
    at_s: u64,
) -> Vec<Correction> {
    /// What the record says of a candidate, and what the race does; in ln t.
    struct Entry<'a> {
        of: &'a Raced,
        samples: u64,
        weight: f64,
        recorded: f64,
        told: f64,
    }
    let entries = raced.iter().filter_map(|of| {
        let Raced {
            candidate,
            version,
            times_ns,
        } = of;
        // What is no time is not put on record, either.
        let times = times_ns.iter().copied();
        let times: Vec<f64> = times.filter(|ns| ns.is_finite() && *ns >= 0.0).collect();
        let told = quantile(&times, 0.5).filter(|_| times.len() >= FEWEST_TIMES)?;
        let before = known.iter().find(|known| {
            let is_it = known.candidate == *candidate && known.version == *version;
            is_it && known.workload == *workload && !known.tally.is_stale()
        });
        let before = before.map(|known| &known.tally);
        let (samples, weight, sum) = before.map_or((0, 0.0, 0.0), |tally| {
            let mean = tally.mean().unwrap_or_default();
            (tally.samples(), tally.weight(), tally.weight() * mean)
        });
        let sum = times.iter().fold(sum, |sum, ns| sum + ns.max(0.01).ln());
        let weight = weight + times.len() as f64;
        Some(Entry {
            of,
            samples: samples + times.len() as u64,
            weight,
            recorded: sum / weight,
            told: told.max(0.01).ln(),
        })
    });
    let entries: Vec<Entry<'_>> = entries.collect();
    // How much slower than the race all of the record is: that is the hours', not the candidates'.
    let weights: f64 = entries.iter().map(|one| one.weight).sum();
    let slower = entries
        .iter()
        .map(|one| one.weight * (one.recorded - one.told));
    let slower = slower.sum::<f64>() / weights.max(1.0);
    let corrections = entries.into_iter().map(|one| Correction {
        kernel: one.of.candidate.kernel.to_string(),
        parameters: one.of.candidate.params.to_string(),
        version: one.of.version,
        at_s,
        samples: one.samples,
        weight: one.weight,
        by_ln: one.told + slower - one.recorded,
    });
    corrections.filter(|one| one.by_ln.is_finite()).collect()
}
