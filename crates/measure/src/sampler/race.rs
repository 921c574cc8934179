//! The result of a race: samples as they were, and comparisons made from them.

use std::fmt;

use serde::Serialize;

use super::Ending;
use crate::clock::ClockFacts;
use crate::stats::{Summary, ratio_interval};
use crate::verdict::{Comparison, Indifference};

/// Why a race ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// Every contender's location is known well enough.
    Precision,
    /// The greatest number of rounds was run.
    Rounds,
    /// The time budget was spent.
    Budget,
    /// The caller cancelled it.
    Cancelled,
    /// No contender was left: all failed, or there were none.
    NoneLeft,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Precision => "the precision was reached",
            Self::Rounds => "all rounds were run",
            Self::Budget => "the time budget was spent",
            Self::Cancelled => "it was cancelled",
            Self::NoneLeft => "no contender was left",
        })
    }
}

/// One contender after the race.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What became of it.
    pub ending: Ending,
    /// Calls per sample.
    pub batch: u64,
    /// Nanoseconds per call, one sample per round in the order of the rounds. Nothing was subtracted
    /// and nothing left out. A contender that was dropped has the samples from before.
    pub samples_ns: Vec<f64>,
    /// The samples in short; `None` if there are none.
    pub summary_ns: Option<Summary>,
}

/// What a [`Sampler`](super::Sampler) measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Race {
    /// The clock the samples were taken with.
    pub clock: ClockFacts,
    /// Why it ended.
    pub stop: Stop,
    /// Rounds in which at least one sample was taken.
    pub rounds: usize,
    /// How long it all took, warm-up included.
    pub elapsed_ns: u64,
    /// The seed of the order of the contenders; comparisons resample from it, too.
    pub seed: u64,
    /// The contenders, in the order they were given.
    pub entries: Vec<Entry>,
}

impl Race {
    /// The contender of this name; the first, if several have it.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Judges one contender against another on the rounds both have finished.
    ///
    /// `None` when there is no contender of that name, when one of the two failed (what does not work
    /// is not fast), or when there is too little evidence for an interval; see
    /// [`ratio_interval`](crate::ratio_interval).
    pub fn compare(
        &self,
        name: &str,
        against: &str,
        confidence: f64,
        indifference: Indifference,
    ) -> Option<Comparison> {
        let sound = |name| {
            self.entry(name)
                .filter(|entry| entry.ending == Ending::Measured)
        };
        let (a, b) = (&sound(name)?.samples_ns, &sound(against)?.samples_ns);
        // A race may stop within a round; the odd sample has no partner.
        let rounds = a.len().min(b.len());
        let interval = ratio_interval(&a[..rounds], &b[..rounds], confidence, self.seed)?;
        Some(Comparison::new(interval, indifference))
    }
}
