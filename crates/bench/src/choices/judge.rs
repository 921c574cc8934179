//! The judge: every candidate of a shape measured again, by nobody who chose.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kernelwise_backend::{Call, Host, HostKernel, Scratch, Setting};
use kernelwise_measure::stats::location;
use kernelwise_measure::{Contender, Ending, Entry, Race, Sampler, TscClock};
use kernelwise_types::Candidate;

use super::{Calibrated, ChoicesOptions};
use crate::operands;

/// Share of a shape's time that the judge has.
const SHARE: f64 = 0.5;
/// Share of that for the last race at the least, however long the first rounds took.
const LAST_SHARE: f64 = 0.25;
/// Calls up to this length are preceded by one that is not timed: others have used the caches since.
const LED_IN_NS: f64 = 2e6;
/// Rounds of all.
const HEATS: usize = 3;
/// Most rounds of those near the front.
const ROUNDS: usize = 60;
/// How many times the time of the fastest those may take.
const NEAR: f64 = 1.5;

/// What the judge found; candidates by their numbers.
#[derive(Debug)]
pub(super) struct Judged {
    times_ns: Vec<Option<f64>>,
    /// The fastest.
    pub(super) oracle: usize,
    /// Rounds of those near the front.
    pub(super) rounds: usize,
    /// Time of the fastest of the first half of the rounds over that of the fastest of the second, in the second.
    pub(super) first_half: Option<f64>,
}

impl Judged {
    /// What is known when these are the times.
    #[cfg(test)]
    pub(super) fn of(times_ns: &[Option<f64>]) -> Self {
        let known = times_ns.iter().enumerate();
        let known = known.filter_map(|(i, time)| Some((i, (*time)?)));
        Self {
            times_ns: times_ns.to_vec(),
            oracle: fastest(known).unwrap_or(0),
            rounds: 0,
            first_half: None,
        }
    }

    pub(super) fn time_ns(&self, candidate: usize) -> Option<f64> {
        *self.times_ns.get(candidate)?
    }

    /// How many times as long as the oracle it takes.
    pub(super) fn slowdown(&self, candidate: usize) -> Option<f64> {
        Some(self.time_ns(candidate)? / self.time_ns(self.oracle)?)
    }
}

/// Measures all candidates shortly, then those near the front and those of `wanted` for longer. Why not, in words.
pub(super) fn judge(
    host: &Host,
    shape: &Calibrated<'_>,
    wanted: &[usize],
    options: &ChoicesOptions,
    cancel: &AtomicBool,
) -> Result<Judged, String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let inputs = operands::inputs(shape.workload, options.seed).map_err(|e| words(&e))?;
    let mut outputs = operands::outputs(shape.workload, options.seed).map_err(|e| words(&e))?;
    let inputs: Result<Vec<_>, _> = inputs.iter().map(|tensor| tensor.view()).collect();
    let inputs = inputs.map_err(|e| words(&e))?;
    let views: Result<Vec<_>, _> = outputs.iter_mut().map(|tensor| tensor.view_mut()).collect();
    let mut views = views.map_err(|e| words(&e))?;
    let call = Call::new(shape.workload, &inputs, &mut views).map_err(|e| words(&e))?;
    let mut scratch = Scratch::new().with_large_pages();
    let mut runnable = Vec::new();
    for candidate in &shape.candidates {
        let (kernel, setting) = resolve(host, shape, candidate)?;
        let needs = kernel.workspace(shape.workload, &setting);
        scratch.reserve(needs).map_err(|e| words(&e))?;
        runnable.push((kernel, setting));
    }
    // One call and one workspace for all: they run in turn.
    let (call, scratch) = (RefCell::new(call), RefCell::new(scratch));
    let contender = |number: usize| {
        let (kernel, setting): &(Arc<dyn HostKernel>, Setting) = &runnable[number];
        let (call, scratch) = (&call, &scratch);
        Contender::new(number.to_string(), move || {
            kernel.execute(&mut call.borrow_mut(), setting, &mut scratch.borrow_mut())
        })
    };
    let clock = TscClock::new();
    let budget = options.budget.mul_f64(SHARE);
    let sampler = Sampler::new(&clock)
        .warm_up(1)
        .lead_in(u32::from(shape.time_ns < LED_IN_NS))
        .seed(options.seed)
        .cancel(cancel);
    let everyone: Vec<usize> = (0..runnable.len()).collect();
    let heats = sampler
        .clone()
        .max_rounds(HEATS)
        .budget(options.budget)
        .run(everyone.iter().map(|i| contender(*i)).collect());
    let short: Vec<Option<f64>> = everyone.iter().map(|i| time_ns(&heats, *i)).collect();
    let best = short
        .iter()
        .flatten()
        .copied()
        .fold(f64::INFINITY, f64::min);
    let finalist = |i: &usize| {
        // Whom the heats did not reach may be the best.
        wanted.contains(i) || short[*i].is_none_or(|time| time <= NEAR * best)
    };
    let finalists: Vec<usize> = everyone.into_iter().filter(finalist).collect();
    let spent = Duration::from_nanos(heats.elapsed_ns);
    let race = sampler
        .max_rounds(ROUNDS)
        .budget(budget.saturating_sub(spent).max(budget.mul_f64(LAST_SHARE)))
        .run(finalists.iter().map(|i| contender(*i)).collect());
    // Nobody is timed by two measures if that can be helped.
    let times_ns = (0..short.len()).map(|i| time_ns(&race, i).or(short[i]));
    let times_ns: Vec<Option<f64>> = times_ns.collect();
    let oracle = fastest(
        times_ns
            .iter()
            .enumerate()
            .filter_map(|(i, t)| Some((i, (*t)?))),
    );
    let Some(oracle) = oracle else {
        return Err("nobody could be timed".to_owned());
    };
    if wanted.iter().any(|i| times_ns[*i].is_none()) {
        return Err("its time was used up before every choice was timed".to_owned());
    }
    Ok(Judged {
        times_ns,
        oracle,
        rounds: race.rounds,
        first_half: first_half(&race),
    })
}

/// The kernel and the setting that a candidate stands for.
fn resolve(
    host: &Host,
    shape: &Calibrated<'_>,
    candidate: &Candidate,
) -> Result<(Arc<dyn HostKernel>, Setting), String> {
    let mut kernels = host.kernels_for(shape.workload).into_iter();
    let kernel = kernels.find(|kernel| kernel.spec().id == candidate.kernel);
    let Some(kernel) = kernel else {
        return Err(format!("{} is gone", candidate.kernel));
    };
    let space = kernel.space(shape.workload, host.machine());
    let setting = space.setting(&candidate.params);
    setting
        .map(|setting| (kernel, setting))
        .map_err(|error| error.to_string())
}

fn entry(race: &Race, number: usize) -> Option<&Entry> {
    race.entry(&number.to_string())
        .filter(|entry| entry.ending == Ending::Measured)
}

fn time_ns(race: &Race, number: usize) -> Option<f64> {
    location(&entry(race, number)?.samples_ns)
}

fn fastest(times: impl Iterator<Item = (usize, f64)>) -> Option<usize> {
    let least = times.min_by(|a, b| a.1.total_cmp(&b.1));
    least.map(|(number, _)| number)
}

/// How the choice of the first half of the rounds does in the second.
fn first_half(race: &Race) -> Option<f64> {
    /// Fewer rounds in a half tell nothing.
    const FEWEST: usize = 4;
    let sound = race.entries.iter();
    let sound: Vec<&[f64]> = sound
        .filter(|entry| entry.ending == Ending::Measured)
        .map(|entry| entry.samples_ns.as_slice())
        .collect();
    let half = sound.iter().map(|samples| samples.len()).min()? / 2;
    if half < FEWEST {
        return None;
    }
    let place = |samples: &[f64]| location(samples).unwrap_or(f64::INFINITY);
    let first = sound.iter().map(|samples| place(&samples[..half]));
    let second: Vec<f64> = sound
        .iter()
        .map(|samples| place(&samples[half..]))
        .collect();
    let chosen = fastest(first.enumerate())?;
    let best = fastest(second.iter().copied().enumerate())?;
    Some(second[chosen] / second[best])
}

#[cfg(test)]
mod tests {
    use kernelwise_measure::{ScriptedClock, Stop};

    use super::*;

    fn race(samples: &[&[f64]]) -> Race {
        let clock = ScriptedClock::new();
        let mut race = Sampler::new(&clock).run(Vec::new());
        race.stop = Stop::Rounds;
        race.entries = samples
            .iter()
            .enumerate()
            .map(|(i, samples)| Entry {
                name: i.to_string(),
                ending: Ending::Measured,
                batch: 1,
                samples_ns: samples.to_vec(),
                summary_ns: None,
            })
            .collect();
        race
    }

    #[test]
    fn halves_that_disagree_show_what_noise_costs() {
        let a = [10.0, 10.0, 10.0, 10.0, 12.0, 12.0, 12.0, 12.0];
        let b = [11.0; 8];
        let first_half = first_half(&race(&[&a, &b])).unwrap();
        assert!((first_half - 12.0 / 11.0).abs() < 1e-12);
        assert_eq!(super::first_half(&race(&[&b, &a[..7]])), None);
        assert_eq!(super::first_half(&race(&[&b, &b])), Some(1.0));
    }
}
