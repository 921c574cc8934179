//! The judge: every candidate of a shape measured again, by nobody who chose.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kernelwise_backend::sample::{self, Arrangement, Values};
use kernelwise_backend::{Call, Host, HostKernel, Scratch, Setting};
use kernelwise_measure::stats::location;
use kernelwise_measure::{AWAKE, Contender, Ending, Entry, Race, Sampler, TscClock};
use kernelwise_types::{Candidate, Workload};

use crate::bench::check_memory;

/// Share of its time for the last race at the least, however long the first rounds took.
const LAST_SHARE: f64 = 0.25;
/// Rounds of all.
const HEATS: usize = 3;
/// Most rounds of those near the front.
const ROUNDS: usize = 60;
/// How many times the time of the fastest those may take.
const NEAR: f64 = 1.5;

/// Who is to be judged, and on what.
#[derive(Debug)]
pub(crate) struct Field<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) candidates: &'a [Candidate],
    /// Those that are to be timed as well as the fastest, by their numbers.
    pub(crate) wanted: Vec<usize>,
    /// Time for the first rounds, of all, and for everything.
    pub(crate) heats: Duration,
    pub(crate) budget: Duration,
}

/// What the judge found; candidates by their numbers.
#[derive(Debug)]
pub(crate) struct Judged {
    times_ns: Vec<Option<f64>>,
    /// The fastest.
    pub(crate) oracle: usize,
    /// Rounds of those near the front.
    pub(crate) rounds: usize,
    /// The same times by the first and by the second half of those rounds; `None` where rounds were few.
    halves: Option<[Vec<Option<f64>>; 2]>,
}

impl Judged {
    /// What is known when these are the times.
    #[cfg(test)]
    pub(crate) fn of(times_ns: &[Option<f64>]) -> Self {
        Self {
            times_ns: times_ns.to_vec(),
            oracle: fastest(known(times_ns)).unwrap_or(0),
            rounds: 0,
            halves: None,
        }
    }

    pub(crate) fn time_ns(&self, candidate: usize) -> Option<f64> {
        *self.times_ns.get(candidate)?
    }

    /// How many times as long as the oracle it takes.
    pub(crate) fn slowdown(&self, candidate: usize) -> Option<f64> {
        Some(self.time_ns(candidate)? / self.time_ns(self.oracle)?)
    }

    /// The least time of those that are like the fastest of the first half of the rounds, over the least of all, in the second half: what noise alone costs
    /// whoever has to choose between kinds of candidates.
    pub(crate) fn first_half<K: PartialEq>(&self, kind: impl Fn(usize) -> K) -> Option<f64> {
        let [first, second] = self.halves.as_ref()?;
        let chosen = kind(fastest(known(first))?);
        let alike = known(second).filter(|(i, _)| kind(*i) == chosen);
        let least = |times: &mut dyn Iterator<Item = (usize, f64)>| {
            times.map(|(_, time)| time).fold(f64::INFINITY, f64::min)
        };
        Some(least(&mut { alike }) / least(&mut known(second)))
    }
}

/// Measures all candidates shortly, then those near the front and those that are wanted for longer. Why not, in words.
pub(crate) fn judge(
    host: &Host,
    shape: &Field<'_>,
    seed: u64,
    cancel: &AtomicBool,
) -> Result<Judged, String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    check_memory(shape.workload, host.machine()).map_err(|e| words(&e))?;
    let inputs = sample::inputs(
        shape.workload,
        Arrangement::Contiguous,
        Values::Typical,
        seed,
    )
    .map_err(|e| words(&e))?;
    let mut outputs = sample::outputs(
        shape.workload,
        Arrangement::Contiguous,
        Values::Typical,
        seed,
    )
    .map_err(|e| words(&e))?;
    let inputs: Result<Vec<_>, _> = inputs.iter().map(|tensor| tensor.view()).collect();
    let inputs = inputs.map_err(|e| words(&e))?;
    let views: Result<Vec<_>, _> = outputs.iter_mut().map(|tensor| tensor.view_mut()).collect();
    let mut views = views.map_err(|e| words(&e))?;
    let call = Call::new(shape.workload, &inputs, &mut views).map_err(|e| words(&e))?;
    let mut scratch = Scratch::new().with_large_pages();
    let mut runnable = Vec::new();
    for candidate in shape.candidates {
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
    let sampler = Sampler::new(&clock)
        .warm_up(1)
        // Threads are awake then, and caches hold the operands, which others have used since.
        .lead_in_for(AWAKE)
        .seed(seed)
        .cancel(cancel);
    let everyone: Vec<usize> = (0..runnable.len()).collect();
    let heats = sampler
        .clone()
        .max_rounds(HEATS)
        .budget(shape.heats)
        .run(everyone.iter().map(|i| contender(*i)).collect());
    let short: Vec<Option<f64>> = everyone.iter().map(|i| time_ns(&heats, *i)).collect();
    let best = short
        .iter()
        .flatten()
        .copied()
        .fold(f64::INFINITY, f64::min);
    let finalist = |i: &usize| {
        // Whom the heats did not reach may be the best.
        shape.wanted.contains(i) || short[*i].is_none_or(|time| time <= NEAR * best)
    };
    let finalists: Vec<usize> = everyone.into_iter().filter(finalist).collect();
    let spent = Duration::from_nanos(heats.elapsed_ns);
    let left = shape.budget.saturating_sub(spent);
    let race = sampler
        .max_rounds(ROUNDS)
        .budget(left.max(shape.budget.mul_f64(LAST_SHARE)))
        .run(finalists.iter().map(|i| contender(*i)).collect());
    // Nobody is timed by two measures if that can be helped.
    let times_ns = (0..short.len()).map(|i| time_ns(&race, i).or(short[i]));
    let times_ns: Vec<Option<f64>> = times_ns.collect();
    let Some(oracle) = fastest(known(&times_ns)) else {
        return Err("nobody could be timed".to_owned());
    };
    if shape.wanted.iter().any(|i| times_ns[*i].is_none()) {
        return Err("its time was used up before every choice was timed".to_owned());
    }
    Ok(Judged {
        times_ns,
        oracle,
        rounds: race.rounds,
        halves: halves(&race, short.len()),
    })
}

/// The kernel and the setting that a candidate stands for.
fn resolve(
    host: &Host,
    shape: &Field<'_>,
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

/// Those of which the time is known.
fn known(times: &[Option<f64>]) -> impl Iterator<Item = (usize, f64)> {
    let numbered = times.iter().enumerate();
    numbered.filter_map(|(i, time)| Some((i, (*time)?)))
}

/// The times of so many candidates in both halves of the rounds.
fn halves(race: &Race, candidates: usize) -> Option<[Vec<Option<f64>>; 2]> {
    /// Fewer rounds in a half tell nothing.
    const FEWEST: usize = 4;
    let samples = |i: usize| Some(entry(race, i)?.samples_ns.as_slice());
    let rounds = (0..candidates).filter_map(|i| Some(samples(i)?.len()));
    let half = rounds.min()? / 2;
    if half < FEWEST {
        return None;
    }
    let first = (0..candidates).map(|i| location(&samples(i)?[..half]));
    let second = (0..candidates).map(|i| location(&samples(i)?[half..]));
    Some([first.collect(), second.collect()])
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

    fn judged(samples: &[&[f64]]) -> Judged {
        Judged {
            halves: halves(&race(samples), samples.len()),
            ..Judged::of(&[])
        }
    }

    #[test]
    fn halves_that_disagree_show_what_noise_costs() {
        let a = [10.0, 10.0, 10.0, 10.0, 12.0, 12.0, 12.0, 12.0];
        let b = [11.0; 8];
        let alone = |samples: &[&[f64]]| judged(samples).first_half(|i| i);
        let first_half = alone(&[&a, &b]).unwrap();
        assert!((first_half - 12.0 / 11.0).abs() < 1e-12);
        assert_eq!(alone(&[&b, &a[..7]]), None);
        assert_eq!(alone(&[&b, &b]), Some(1.0));
        // Whoever chooses between kinds only loses nothing where another of the kind is as fast.
        let kinds = |i: usize| i == 2;
        assert_eq!(judged(&[&a, &b, &[20.0; 8]]).first_half(kinds), Some(1.0));
        assert_eq!(
            judged(&[&[20.0; 8], &b, &a]).first_half(kinds),
            Some(12.0 / 11.0)
        );
    }
}
