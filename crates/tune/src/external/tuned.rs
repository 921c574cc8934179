//! What tuning found, and how sure that is.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use kernelwise_measure::{RatioInterval, Verdict};
use serde::Serialize;

use super::finals::Standing;
use super::journal::{Round, named};
use super::outcome::{Evaluated, Failed, FailureKind};
use super::spec::Spec;
use crate::space::{Configuration, Value};

/// Why tuning ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// The evaluations were spent.
    Evaluations,
    /// The seconds were spent.
    Seconds,
    /// All is known.
    Nothing,
    /// What could still be gained over all runs to come is less than an evaluation costs.
    NotWorth,
    /// The caller wanted it. The session can go on.
    Cancelled,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Evaluations => "its evaluations were spent",
            Self::Seconds => "its seconds were spent",
            Self::Nothing => "all that is allowed is known",
            Self::NotWorth => "one more evaluation would cost more than it could gain",
            Self::Cancelled => "it was cancelled",
        })
    }
}

/// What the finals say of the best against the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// The best is faster.
    Faster,
    /// No significant difference: a tie, or too noisy to tell.
    NoDifference,
    /// Nothing was found that is better than the default.
    DefaultIsBest,
    /// The default fails, so there is nothing to compare with.
    DefaultFails,
    /// There were too few rounds: the budget was spent, or it was cancelled.
    NotCompared,
    /// Every configuration failed.
    NothingWorks,
}

impl fmt::Display for Conclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Faster => "faster than the default",
            Self::NoDifference => "no significant difference from the default",
            Self::DefaultIsBest => "the default is the best",
            Self::DefaultFails => "the default fails",
            Self::NotCompared => "not compared: too few rounds",
            Self::NothingWorks => "every configuration failed",
        })
    }
}

/// A configuration and its time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Timed {
    /// The configuration.
    #[serde(skip)]
    pub configuration: Configuration,
    /// Its values by the names of the parameters.
    pub values: BTreeMap<String, Value>,
    /// Its time in seconds.
    pub time: f64,
    /// Where the time lies nine times in ten, in seconds; none if the rounds were too few.
    pub interval: Option<(f64, f64)>,
}

/// Failures of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailureCount {
    /// The kind.
    pub kind: FailureKind,
    /// How many configurations.
    pub count: u64,
    /// What the first one said.
    pub first: String,
}

/// What tuning found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tuned {
    /// What was tuned.
    pub name: String,
    /// The best configuration; none if all failed.
    pub best: Option<Timed>,
    /// The default configuration; none if it failed.
    pub default: Option<Timed>,
    /// How many times as long the default takes as the best; none if they were not compared.
    pub gain: Option<RatioInterval>,
    /// The same in a word.
    pub conclusion: Conclusion,
    /// Other finalists that are not shown to be slower than the best.
    pub as_good: Vec<Timed>,
    /// What failed, by kind.
    pub failures: Vec<FailureCount>,
    /// Configurations that were evaluated, those from before included.
    pub evaluations: u64,
    /// How many of them are from before.
    pub resumed: u64,
    /// What the search began from besides: records with the same parameters.
    pub warm_records: u64,
    /// What all of it cost, in seconds, what was spent before included.
    pub seconds: f64,
    /// Why it ended.
    pub ended: Ended,
    /// The session file.
    pub session: PathBuf,
    /// The same as a cache file of Kernel Tuner. None if nothing was evaluated, or a value has a comma, which such files cannot have.
    pub cache: Option<PathBuf>,
    /// The same as T4 results; none if nothing was evaluated.
    pub t4: Option<PathBuf>,
}

/// What was measured, and how that ended.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) evaluations: Vec<Evaluated>,
    pub(crate) resumed: usize,
    pub(crate) finalists: Vec<Configuration>,
    /// Rounds of these finalists.
    pub(crate) rounds: Vec<Round>,
    pub(crate) seconds: f64,
    pub(crate) ended: Ended,
}

impl Tuned {
    /// Draws the conclusions. Files are not written yet.
    pub(crate) fn new(
        spec: &Spec,
        measured: &Measured,
        standing: &Standing,
        session: PathBuf,
    ) -> Self {
        let default = spec.default_configuration();
        let timed = |configuration: &Configuration, time: f64, interval| Timed {
            configuration: configuration.clone(),
            values: named(spec.space(), configuration),
            time,
            interval,
        };
        let mut places = standing.order.iter().map(|place| {
            let found = timed(&place.configuration, place.time, place.interval);
            (found, place.slower)
        });
        // Where there were no finals, what the search saw has to do.
        let searched = |wanted: &Configuration| {
            let found = measured
                .evaluations
                .iter()
                .find(|one| one.configuration == *wanted);
            let time = found.and_then(|one| one.result.as_ref().ok().copied());
            time.map(|time| timed(wanted, time, None))
        };
        let (best, others): (Option<Timed>, Vec<(Timed, bool)>) = match places.next() {
            Some((best, _)) => (Some(best), places.collect()),
            None if measured.rounds.is_empty() => {
                (measured.finalists.first().and_then(searched), Vec::new())
            }
            None => (None, Vec::new()),
        };
        let mut among = best.iter().chain(others.iter().map(|(other, _)| other));
        let seen = among.find(|one| one.configuration == *default).cloned();
        let default_time = match measured.rounds.is_empty() {
            true => searched(default),
            false => seen,
        };
        let conclusion = match (&best, &default_time, &standing.gain) {
            (None, ..) => Conclusion::NothingWorks,
            (Some(best), ..) if best.configuration == *default => Conclusion::DefaultIsBest,
            (_, None, _) => Conclusion::DefaultFails,
            (_, _, None) => Conclusion::NotCompared,
            (_, _, Some(gain)) if gain.verdict == Verdict::Slower => Conclusion::Faster,
            _ => Conclusion::NoDifference,
        };
        Self {
            name: spec.name.clone(),
            best,
            default: default_time,
            gain: standing.gain.map(|gain| gain.interval),
            conclusion,
            as_good: others
                .into_iter()
                .filter(|(_, slower)| !slower)
                .map(|(other, _)| other)
                .collect(),
            failures: failures(measured),
            evaluations: measured.evaluations.len() as u64,
            resumed: measured.resumed as u64,
            warm_records: match spec.strategy.uses_knowledge() {
                true => spec.knowledge.about(spec.space()).count() as u64,
                false => 0,
            },
            seconds: measured.seconds,
            ended: measured.ended,
            session,
            cache: None,
            t4: None,
        }
    }
}

/// Failures by kind, the most frequent first. One who fails in the finals counts once.
fn failures(measured: &Measured) -> Vec<FailureCount> {
    let searched = measured
        .evaluations
        .iter()
        .filter_map(|one| one.result.as_ref().err());
    let last = measured.rounds.last();
    let finals = last
        .iter()
        .flat_map(|round| &round.times)
        .filter_map(|time| time.as_ref().err());
    let mut counts: Vec<FailureCount> = Vec::new();
    for Failed { kind, message } in searched.chain(finals) {
        match counts.iter_mut().find(|known| known.kind == *kind) {
            Some(known) => known.count += 1,
            None => counts.push(FailureCount {
                kind: *kind,
                count: 1,
                first: message.clone(),
            }),
        }
    }
    counts.sort_by(|a, b| b.count.cmp(&a.count).then(a.kind.cmp(&b.kind)));
    counts
}
