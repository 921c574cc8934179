//! One pass over the problems, each met once.

use std::ops::ControlFlow;

use kernelwise_select::learn::Rules;
use kernelwise_select::stream::Stream;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::figures::{Figures, Tally};
use crate::find_db::{FindDb, Recorded};

/// One in so many runs is disturbed, and takes this many times as long, where there is noise at all.
const SPIKES_ONE_IN: u32 = 200;
const SPIKE: std::ops::Range<f64> = 2.0..5.0;

/// How a record is played back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setup {
    /// How choices are made, and what further runs may cost.
    pub rules: Rules,
    /// Of the order, the noise and the models.
    pub seed: u64,
    /// Problems at most.
    pub limit: usize,
    /// Scatter of what the learner sees, as the standard deviation of ln t; one run in 200 is disturbed besides. None if zero.
    pub noise: f64,
}

impl Default for Setup {
    /// The usual rules, every problem, times as recorded.
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            seed: 1,
            limit: usize::MAX,
            noise: 0.0,
        }
    }
}

/// What cannot be played back.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// Noise that is no number.
    #[error("noise is a number from 0 to 1, not {0}")]
    Noise(f64),
}

/// The order in which the problems of a record come.
pub fn order(record: &FindDb, setup: &Setup) -> Vec<usize> {
    let mut order: Vec<usize> = (0..record.problems.len()).collect();
    order.shuffle(&mut Pcg64Mcg::seed_from_u64(setup.seed));
    order.truncate(setup.limit);
    order
}

/// Plays a record back.
pub fn replay(record: &FindDb, setup: &Setup) -> Result<Figures, SetupError> {
    replay_watched(record, setup, &mut |_| ControlFlow::Continue(()))
}

/// The same; `watch` hears before every problem how many are done, and may break off: the figures are then of those.
pub fn replay_watched(
    record: &FindDb,
    setup: &Setup,
    watch: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<Figures, SetupError> {
    if !(0.0..=1.0).contains(&setup.noise) {
        return Err(SetupError::Noise(setup.noise));
    }
    let mut random = Pcg64Mcg::seed_from_u64(!setup.seed);
    let mut stream = Stream::new(setup.rules, setup.seed);
    let mut tally = Tally::default();
    for (done, place) in order(record, setup).into_iter().enumerate() {
        if watch(done).is_break() {
            break;
        }
        let recorded = &record.problems[place];
        let mut seen = |arm: usize| seen(recorded, arm, setup.noise, &mut random);
        let open = recorded.times_ms.iter().map(Option::is_some).collect();
        let Some(mut visit) = stream.meet(recorded.problem(), open) else {
            continue;
        };
        let serves = visit.choice().serves;
        let (Some(time), Some(chosen)) = (seen(serves), recorded.times_ms[serves]) else {
            tally.invalid_picks += 1;
            continue;
        };
        visit.served(time);
        tally.add(chosen, recorded.best_ms());
        while let Some(run) = visit.next_run() {
            let Some(time) = seen(run.arm) else {
                tally.invalid_picks += 1;
                continue;
            };
            let ends = time <= run.at_most;
            visit.ran(run, ends.then_some(time));
            tally.trials += 1;
            tally.trials_cut += u64::from(!ends);
        }
        drop(visit);
        let ledger = stream.ledger();
        tally.trials_time = ledger.spent_ns();
        // Sums of many numbers are exact to some billionths.
        let slack = 1e-9 * ledger.served_ns();
        tally.budget_overruns += u64::from(ledger.left(&setup.rules.budget) < -slack);
    }
    Ok(tally.figures())
}

/// What the learner sees of a run.
fn seen(recorded: &Recorded, arm: usize, noise: f64, random: &mut Pcg64Mcg) -> Option<f64> {
    let time = recorded.times_ms.get(arm).copied().flatten()?;
    if noise == 0.0 {
        return Some(time);
    }
    // Box and Muller.
    let (a, b): (f64, f64) = (1.0 - random.random::<f64>(), random.random());
    let gaussian = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
    let spike = match random.random_ratio(1, SPIKES_ONE_IN) {
        true => random.random_range(SPIKE),
        false => 1.0,
    };
    Some(time * (noise * gaussian).exp() * spike)
}

#[cfg(test)]
mod tests;
