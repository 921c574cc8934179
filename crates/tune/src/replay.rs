//! Searches on recorded spaces: how fast they find what is there.
//!
//! The budget counts different configurations; failed ones count, a repeat is free. The figure is the fraction of the optimum:
//! the best time of the record over the best found, zero as long as everything failed. Random search without replacement needs
//! no simulation: its expectation is computed exactly, and every strategy is held against it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use kernelwise_measure::Clock;
use serde::Serialize;

use crate::recorded::Record;
use crate::search::{self, Budget, Knowledge, Outcome, Session, Step, Strategy};
use crate::space::Space;

/// A record and what it is called, usually its file.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The name.
    pub name: String,
    /// The record.
    pub record: Arc<Record>,
}

/// How to replay.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The strategy.
    pub strategy: Strategy,
    /// Evaluations at which figures are taken.
    pub budgets: Vec<u64>,
    /// Searches per space.
    pub repeats: usize,
    /// Of the first search; the others follow.
    pub seed: u64,
    /// Records the default strategy may use: same kernel, other devices. The one that is replayed is left out, under whatever name.
    pub warm: Vec<Recorded>,
    /// Spaces replayed at the same time.
    pub threads: usize,
}

impl Default for Settings {
    /// The default strategy, the usual budgets, 20 repeats, one thread.
    fn default() -> Self {
        Self {
            strategy: Strategy::Default,
            budgets: vec![25, 50, 100, 200, 400],
            repeats: 20,
            seed: 1,
            warm: Vec::new(),
            threads: 1,
        }
    }
}

/// What cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// No spaces.
    #[error("no recorded spaces to replay: name at least one file")]
    NoSpaces,
    /// No budgets, or one of zero.
    #[error("budgets are numbers above zero: give at least one")]
    Budgets,
    /// No repeats.
    #[error("zero repeats: give at least one")]
    NoRepeats,
    /// A space in which everything failed.
    #[error("`{0}` has no configuration that works")]
    NothingWorks(String),
}

/// A figure at one budget.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Fraction {
    /// The best time over the best found, in the mean.
    pub fraction_of_optimum: f64,
    /// Its standard error.
    pub standard_error: f64,
    /// What random search without replacement would have, exactly.
    pub random_exact: f64,
}

/// Figures of a space.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SpaceFigures {
    /// The record's name.
    pub name: String,
    /// Configurations in it.
    pub configurations: usize,
    /// How many of them fail.
    pub failing: usize,
    /// Whether its file was cut short, so that configurations may be missing.
    pub cut_short: bool,
    /// Records of other devices that were used.
    pub warm: usize,
    /// The fraction after a single evaluation.
    pub first: f64,
    /// By budget.
    pub budgets: BTreeMap<u64, Fraction>,
    /// What deciding took, in microseconds per evaluation.
    pub cpu_us_per_eval: f64,
}

/// Figures of a replay.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// The strategy.
    pub strategy: Strategy,
    /// Searches per space.
    pub repeats: usize,
    /// Space by space, in the order given.
    pub spaces: Vec<SpaceFigures>,
    /// The mean over spaces of the fraction after a single evaluation.
    pub first: f64,
    /// Means over spaces, by budget.
    pub mean: BTreeMap<u64, Fraction>,
    /// The mean over spaces.
    pub cpu_us_per_eval: f64,
}

/// Replays a strategy on recorded spaces. `clock` tells what deciding costs; a clock of processor time of the thread is best.
pub fn replay(
    spaces: &[Recorded],
    settings: &Settings,
    clock: &dyn Clock,
) -> Result<Figures, ReplayError> {
    if spaces.is_empty() {
        return Err(ReplayError::NoSpaces);
    }
    if settings.budgets.is_empty() || settings.budgets.contains(&0) {
        return Err(ReplayError::Budgets);
    }
    if settings.repeats == 0 {
        return Err(ReplayError::NoRepeats);
    }
    if let Some(broken) = spaces.iter().find(|space| space.record.best().is_none()) {
        return Err(ReplayError::NothingWorks(broken.name.clone()));
    }
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..settings.threads.clamp(1, spaces.len()) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(space) = spaces.get(place) else {
                        break;
                    };
                    let figures = replay_space(space, settings, clock);
                    if let Ok(mut done) = done.lock() {
                        done.push((place, figures));
                    }
                }
            });
        }
    });
    let mut done = done
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    done.sort_by_key(|(place, _)| *place);
    let spaces: Vec<SpaceFigures> = done.into_iter().map(|(_, figures)| figures).collect();
    let mean_of = |of: &dyn Fn(&SpaceFigures) -> f64| {
        spaces.iter().map(of).sum::<f64>() / spaces.len() as f64
    };
    let mean = settings.budgets.iter().map(|budget| {
        let at = |of: fn(&Fraction) -> f64| {
            mean_of(&|space: &SpaceFigures| space.budgets.get(budget).map_or(0.0, of))
        };
        // Spaces are independent of each other: variances add.
        let variance = at(|fraction| fraction.standard_error.powi(2));
        let fraction = Fraction {
            fraction_of_optimum: at(|fraction| fraction.fraction_of_optimum),
            standard_error: (variance / spaces.len() as f64).sqrt(),
            random_exact: at(|fraction| fraction.random_exact),
        };
        (*budget, fraction)
    });
    Ok(Figures {
        strategy: settings.strategy,
        repeats: settings.repeats,
        mean: mean.collect(),
        first: mean_of(&|space| space.first),
        cpu_us_per_eval: mean_of(&|space| space.cpu_us_per_eval),
        spaces,
    })
}

fn replay_space(recorded: &Recorded, settings: &Settings, clock: &dyn Clock) -> SpaceFigures {
    let record = &*recorded.record;
    let space = Arc::new(record.space.clone());
    let others = settings.warm.iter().filter(|other| {
        other.name != recorded.name
            && !same(&other.record, record)
            && search::fits(&space, &other.record)
    });
    let knowledge = Knowledge {
        records: others.map(|other| Arc::clone(&other.record)).collect(),
        device: record.device.clone(),
        runs: None,
    };
    let most = settings.budgets.iter().copied().max().unwrap_or(1);
    let best = record.best().unwrap_or(f64::INFINITY);
    let (mut ns, mut evaluations) = (0, 0);
    let mut curves = Vec::with_capacity(settings.repeats);
    for repeat in 0..settings.repeats {
        let seed = settings.seed.wrapping_add(repeat as u64);
        let (curve, took) = one_search(
            record,
            &space,
            settings.strategy,
            seed,
            &knowledge,
            most,
            clock,
        );
        ns += took;
        evaluations += curve.len();
        curves.push(curve);
    }
    let fraction_at = |curve: &[f64], budget: u64| {
        // A search that ended early stays where it is.
        let at = curve.len().min(budget as usize);
        at.checked_sub(1).map_or(0.0, |at| best / curve[at])
    };
    let budgets = settings.budgets.iter().map(|budget| {
        let fractions: Vec<f64> = curves
            .iter()
            .map(|curve| fraction_at(curve, *budget))
            .collect();
        let (fraction_of_optimum, standard_error) = mean_and_error(&fractions);
        let fraction = Fraction {
            fraction_of_optimum,
            standard_error,
            random_exact: random_exact(record, *budget),
        };
        (*budget, fraction)
    });
    let firsts: Vec<f64> = curves.iter().map(|curve| fraction_at(curve, 1)).collect();
    SpaceFigures {
        name: recorded.name.clone(),
        configurations: record.entries.len(),
        failing: record
            .entries
            .iter()
            .filter(|entry| entry.result.is_err())
            .count(),
        cut_short: record.cut_short,
        warm: if settings.strategy.uses_knowledge() {
            knowledge.records.len()
        } else {
            0
        },
        first: mean_and_error(&firsts).0,
        budgets: budgets.collect(),
        cpu_us_per_eval: ns as f64 / 1e3 / evaluations.max(1) as f64,
    }
}

/// The best time after each evaluation, and the nanoseconds that deciding took.
fn one_search(
    record: &Record,
    space: &Arc<Space>,
    strategy: Strategy,
    seed: u64,
    knowledge: &Knowledge,
    most: u64,
    clock: &dyn Clock,
) -> (Vec<f64>, u64) {
    let begin = clock.now();
    let mut search = strategy.search(space, seed, knowledge);
    let mut curve: Vec<f64> = Vec::new();
    if let Ok(mut session) = Session::new(&mut *search, Budget::evaluations(most), &[]) {
        while let Step::Evaluate(next) = session.step() {
            let entry = space.place(&next).map(|place| &record.entries[place]);
            let time = entry.and_then(|entry| entry.result.ok());
            let outcome = time.map_or_else(Outcome::failed, Outcome::measured);
            session.record(
                &next,
                outcome.costing(entry.map_or(0.0, |entry| entry.cost.total())),
            );
            let so_far = curve.last().copied().unwrap_or(f64::INFINITY);
            curve.push(time.map_or(so_far, |time| so_far.min(time)));
        }
    }
    (curve, clock.now().saturating_sub(begin))
}

/// Whether two records are the same under two names.
fn same(a: &Record, b: &Record) -> bool {
    a.device == b.device && a.kernel == b.kernel && a.entries == b.entries
}

fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values
        .iter()
        .map(|value| (value - mean) * (value - mean))
        .sum();
    let variance = if values.len() > 1 {
        squares / (count - 1.0)
    } else {
        0.0
    };
    (mean, (variance / count).sqrt())
}

/// The expected fraction of random search without replacement after so many evaluations.
///
/// The n configurations in order of their times, the k-th is the best of b drawn with the probability that none before it is drawn and it is:
/// the product of 1 - b/(n - i) over i < k, times b/(n - k).
pub fn random_exact(record: &Record, budget: u64) -> f64 {
    let mut times: Vec<f64> = record
        .entries
        .iter()
        .filter_map(|entry| entry.result.ok())
        .collect();
    times.sort_by(f64::total_cmp);
    let Some(best) = times.first().copied() else {
        return 0.0;
    };
    let (mut expected, mut none_yet) = (0.0, 1.0);
    for (k, time) in times.iter().enumerate() {
        let drawn = (budget as f64 / (record.entries.len() - k) as f64).min(1.0);
        expected += none_yet * drawn * best / time;
        none_yet *= 1.0 - drawn;
        if none_yet <= 0.0 {
            break;
        }
    }
    expected
}

#[cfg(test)]
mod tests;
