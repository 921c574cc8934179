//! Measuring the candidates of workloads because somebody asks for it, before the program needs them or beside it.
//!
//! Each workload is a race on operands made for it, by the path that serves calls:
//!
//! 1. **Who begins?** Those expected to be fast go first. Whoever is expected to take 20 times as long as the best that was
//!    seen is not begun, unless fewer than two would race.
//! 2. **First run.** No sample, because it loads and plans; but a long one of three times the best is sample enough. Its result is held against the reference where a call's would be;
//!    what fails, panics or is wrong is quarantined, as in a call.
//! 3. **First sample.** Short kernels run in batches, so long that reading the clock takes less than one per cent of a sample.
//! 4. **Rounds.** All take turns, in an order that changes. Who is far behind is dropped, as `race` tells, but never below two.
//! 5. **Enough?** When it is settled who is best and who is as good, when the time of the workload is used up, or when
//!    `watch` says so.
//! 6. **Learn.** The samples go where those of calls go, so the next call is served by the best. They are asked for and
//!    cost the budget of trials nothing.
//!
//! Nothing is locked while a kernel runs. Calibrations of one selector wait for each other, because kernels that run beside
//! each other are not what is to be measured; calls do not wait.

mod race;
mod turns;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kernelwise_backend::sample::{self, Arrangement, Tensor, Values};
use kernelwise_backend::{Call, Fault};
use kernelwise_measure::{AWAKE, Clock, ClockFacts, Indifference};
use kernelwise_types::units::{Bytes, Nanos};
use kernelwise_types::{
    Candidate, Interval, Technique, TensorView, TensorViewMut, ViewError, Workload,
};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::run::{Failure, attempt, verifiable, wrong};
use super::{CHECKED, HostCase, Mode, RunError, SelectError, Selector, Shared, reference};
use crate::engine::{Case, Seat, lock};
use crate::learn::Sample;
use race::Lane;
pub(super) use turns::Turns;

/// How many times as long as the best a candidate may be expected to take and still be begun.
const NOT_WORTH_BEGINNING: f64 = 20.0;
/// How many times as long as the best a long first run may take for another to follow: the time is better spent on those in
/// front.
const NOT_WORTH_REPEATING: f64 = 3.0;
/// The shortest sample, in nanoseconds.
const SHORTEST_SAMPLE_NS: f64 = 20_000.0;
/// How many times the clock's error a sample takes at the least: its share stays below one per cent.
const CLOCK_ERRORS: f64 = 200.0;
/// No batch is larger: a kernel that is too short even then does nothing.
const LARGEST_BATCH: u64 = 1 << 20;
/// How far past the shortest sample a batch is aimed, so that the next one is likely to be long enough.
const AIM: f64 = 1.2;
/// By how much a batch grows at most in one step: the time of one call is a poor guide.
const LARGEST_STEP: f64 = 100.0;
/// Calls up to this length are preceded by one that is not timed: others have used the caches since.
const LED_IN_NS: f64 = 2e6;
/// On several threads by as many as keep them awake.
const AWAKE_NS: f64 = AWAKE.as_nanos() as f64;
/// After so many rounds more of them tell nothing new.
const MOST_ROUNDS: usize = 256;
/// No call is taken to be shorter, in case the clock stands still.
const SHORTEST_CALL_NS: f64 = 100.0;
/// Samples of a candidate that are learned from. More of one moment would outweigh what calls tell later.
const LEARNED_SAMPLES: usize = 64;

/// How candidates are raced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RaceOptions {
    /// Time for each workload, one second by default. The two that are expected to be fastest are measured in any case.
    pub budget: Duration,
    /// A kernel of which one run takes longer is dropped, ten seconds by default. A run cannot be interrupted: it is
    /// waited for.
    pub timeout: Duration,
    /// Samples that every candidate has before it may be dropped, one by default. Whoever wants to know how long the slow
    /// ones take as well, as a model of times does, asks for three: one alone may be somebody else's time.
    pub least_samples: usize,
    /// Seed of operands and orders, 1 by default.
    pub seed: u64,
}

impl Default for RaceOptions {
    fn default() -> Self {
        Self {
            budget: Duration::from_secs(1),
            timeout: Duration::from_secs(10),
            least_samples: 1,
            seed: 1,
        }
    }
}

/// How far a calibration is, for those who watch it.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// What is being measured.
    pub workload: &'a Workload,
    /// Its number, from zero.
    pub number: usize,
    /// How many workloads there are.
    pub of: usize,
    /// Whether it waits for another calibration to end.
    pub waiting: bool,
    /// Rounds so far.
    pub rounds: usize,
    /// Candidates that are still in the race.
    pub racing: usize,
}

/// What a race told of one candidate on one workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The workload.
    pub workload: Workload,
    /// The kernel with its parameters.
    pub candidate: Candidate,
    /// The median of the samples, per call; `None` without samples.
    pub median_ns: Option<Nanos>,
    /// Where the true median lies nine times in ten; `None` below three samples.
    pub interval_ns: Option<Interval>,
    /// How many samples there are.
    pub samples: usize,
    /// Those that are learned from, per call, in the order they came: spikes are brought down, and reading the clock is part of
    /// them, as it is of a call that is timed.
    pub learned_ns: Vec<f64>,
    /// What became of it.
    pub ended: Ended,
}

/// What became of a candidate in a race.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Ended {
    /// It raced to the end.
    Finished,
    /// It was dropped: it took so many times as long as the best.
    Behind {
        /// Its shortest sample over that of the best.
        times: f64,
    },
    /// It did not begin: so many times as long as the best is what it was expected to take.
    NotBegun {
        /// The expectation over the best that was seen.
        times: f64,
    },
    /// One run took longer than a kernel may. It was waited for.
    TimedOut {
        /// How long it took, in nanoseconds.
        took_ns: u64,
        /// How long it might take.
        limit_ns: u64,
    },
    /// It failed, panicked or was wrong, now or before, and does not run any more.
    Quarantined {
        /// What happened.
        evidence: String,
    },
    /// The machine could not give what it takes.
    Short {
        /// In words.
        reason: String,
    },
    /// The time was used up, or the calibration ended, before its turn.
    NotReached,
}

/// Why a calibration was not done.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// A workload that nobody computes. Nothing was measured.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// Operands that do not fit. Nothing was measured.
    #[error(
        "the operands of {workload} take {needs}, a calibration may use {allowed}: name a smaller workload"
    )]
    Memory {
        /// The workload.
        workload: String,
        /// What they take.
        needs: Bytes,
        /// What they may take.
        allowed: Bytes,
    },
    /// A call on the operands was refused; what was measured before is learned.
    #[error("{workload} could not be called: {source}")]
    Call {
        /// The workload.
        workload: String,
        /// Why.
        source: Box<RunError>,
    },
}

impl Selector {
    /// Measures the candidates of these workloads against each other and learns from it; the module's documentation tells how.
    /// Workloads that stand twice are measured once.
    ///
    /// `watch` is asked before every turn of a candidate; [`ControlFlow::Break`] ends the calibration, and what was measured
    /// is returned and learned. A [frozen](Mode::Frozen) selector measures, returns and quarantines, and learns nothing.
    pub fn calibrate(
        &self,
        workloads: &[Workload],
        options: &RaceOptions,
        watch: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
    ) -> Result<Vec<Measured>, CalibrateError> {
        let shared = &self.shared;
        let mut different: Vec<&Workload> = Vec::new();
        for workload in workloads {
            if !different.contains(&workload) {
                shared.check_memory(workload)?;
                shared.known(workload, shared.load())?;
                different.push(workload);
            }
        }
        let mut all = Vec::new();
        for (number, workload) in different.iter().enumerate() {
            let mut tell = |waiting, rounds, racing| {
                watch(Progress {
                    workload,
                    number,
                    of: different.len(),
                    waiting,
                    rounds,
                    racing,
                })
            };
            let turn = shared.turns.take(shared.engine.number(), &mut || {
                tell(true, 0, 0).is_continue()
            });
            let Some(_turn) = turn else { break };
            let mut go_on = |rounds, racing| tell(false, rounds, racing).is_continue();
            let (measured, finished) = shared.race(workload, options, &mut go_on)?;
            all.extend(measured);
            shared.take_in_all();
            if !finished {
                break;
            }
        }
        Ok(all)
    }
}

impl Shared {
    fn check_memory(&self, workload: &Workload) -> Result<(), CalibrateError> {
        let operands = workload.inputs().iter().chain(workload.outputs());
        let needs = operands.fold(0u64, |sum, operand| sum.saturating_add(operand.bytes()));
        // Outputs are kept three times, and there is scratch memory.
        let memory = self.host.load().machine().usable_memory();
        let allowed = memory.map_or(1 << 30, |memory| memory.0 / 4);
        match needs <= allowed {
            true => Ok(()),
            false => Err(CalibrateError::Memory {
                workload: workload.to_string(),
                needs: Bytes(needs),
                allowed: Bytes(allowed),
            }),
        }
    }

    /// Races the candidates of one workload and learns from it. Also tells whether it was left to finish.
    fn race(
        &self,
        workload: &Workload,
        options: &RaceOptions,
        go_on: &mut dyn FnMut(usize, usize) -> bool,
    ) -> Result<(Vec<Measured>, bool), CalibrateError> {
        let failed = |error: RunError| CalibrateError::Call {
            workload: workload.to_string(),
            source: Box::new(error),
        };
        let made = |error: ViewError| failed(Fault::from(error).into());
        let draw = (Arrangement::Contiguous, Values::Typical, options.seed);
        let inputs = sample::inputs(workload, draw.0, draw.1, draw.2).map_err(made)?;
        let before = sample::outputs(workload, draw.0, draw.1, draw.2).map_err(made)?;
        let mut outputs = before.clone();
        let inputs: Result<Vec<TensorView<'_>>, _> = inputs.iter().map(Tensor::view).collect();
        let inputs = inputs.map_err(made)?;
        let outputs: Result<Vec<TensorViewMut<'_>>, _> =
            outputs.iter_mut().map(Tensor::view_mut).collect();
        let mut outputs = outputs.map_err(made)?;
        let mut call = Call::new(workload, &inputs, &mut outputs).map_err(made)?;
        let (alignment, load) = (Some(call.alignment()), self.load());
        let case = self.engine.at_seat(
            self.key(workload, alignment, load),
            &mut (),
            |(): &()| self.case(workload, alignment, load),
            |(): &mut (), seat: &Seat| Arc::clone(&seat.case),
        )?;
        let host = case.host().ok_or_else(|| self.nobody(&case))?;
        let expected = match reference(workload).filter(|_| verifiable(workload)) {
            Some(reference) => Some(self.expected(&reference, &mut call).map_err(failed)?),
            None => None,
        };
        let facts = ClockFacts::of(&*self.engine.clock);
        let mut race = Race {
            shared: self,
            case: &case,
            host,
            before: &before,
            expected,
            options,
            started_ns: self.engine.clock.now(),
            sample_ns: SHORTEST_SAMPLE_NS.max(CLOCK_ERRORS * facts.error_ns()),
            lanes: self.lanes(&case, host),
        };
        let raced = race.run(&mut call, go_on);
        race.learn(facts.cost_ns);
        let measured = race.measured(workload, facts.cost_ns);
        raced.map(|finished| (measured, finished)).map_err(failed)
    }

    /// The candidates of a case, those that are expected to be fast first.
    fn lanes(&self, case: &Case, host: &HostCase) -> Vec<Lane> {
        let learned = self.engine.learned(case);
        let beliefs = learned.beliefs();
        let lane = |(i, entry): (usize, &super::Entry)| {
            let timed = learned.tally(i).is_some_and(|tally| tally.samples() > 0);
            let expected_ns = match timed {
                true => beliefs.get(i).map(|belief| belief.mean.exp()),
                false => entry.expected.time().map(|time| time.get()),
            };
            let spec = entry.kernel.spec();
            let quarantined = lock(&self.quarantined)
                .get(&(spec.id.clone(), spec.version))
                .map(|known| known.evidence.clone());
            let ended = quarantined.map(|evidence| Ended::Quarantined { evidence });
            let threads = self.threads(entry, &host.workload);
            Lane::new(i, threads, expected_ns, ended)
        };
        let mut lanes: Vec<Lane> = host.entries.iter().enumerate().map(lane).collect();
        // Of those nothing is known of, none is the first.
        lanes.sort_by(|a, b| {
            let key = |lane: &Lane| lane.expected_ns.unwrap_or(f64::INFINITY);
            key(a).total_cmp(&key(b))
        });
        lanes
    }
}

/// One workload's race.
struct Race<'a> {
    shared: &'a Shared,
    case: &'a Arc<Case>,
    host: &'a HostCase,
    /// What lies in the outputs before a run: what no kernel would leave, or what the operation updates.
    before: &'a [Tensor],
    /// The right result, where it can be had.
    expected: Option<Vec<Tensor>>,
    options: &'a RaceOptions,
    started_ns: u64,
    /// The shortest sample.
    sample_ns: f64,
    lanes: Vec<Lane>,
}

impl Race<'_> {
    /// Runs it to its end; false if `go_on`, which is told of rounds and racers, said no.
    fn run(
        &mut self,
        call: &mut Call<'_, '_>,
        go_on: &mut dyn FnMut(usize, usize) -> bool,
    ) -> Result<bool, RunError> {
        for number in 0..self.lanes.len() {
            if self.lanes[number].ended.is_some() {
                continue;
            }
            if !go_on(0, race::racing(&self.lanes)) {
                return Ok(false);
            }
            let enough = race::begun(&self.lanes) >= 2;
            if enough && self.is_over() {
                return Ok(true);
            }
            match race::hopeless(&self.lanes, number, NOT_WORTH_BEGINNING) {
                Some(times) if enough => {
                    self.lanes[number].ended = Some(Ended::NotBegun { times });
                }
                _ => self.begin(number, call)?,
            }
        }
        race::drop_behind(&mut self.lanes, self.options.least_samples);
        // The zone of the selector, which is in ln t.
        let zone = Indifference::new(self.shared.engine.rules.zone.exp_m1()).unwrap_or_default();
        let mut order: Vec<usize> = (0..self.lanes.len()).collect();
        let mut random = Pcg64Mcg::seed_from_u64(self.options.seed);
        for round in 1..MOST_ROUNDS {
            if race::racing(&self.lanes) < 2
                || race::is_time_to_judge(round)
                    && race::is_settled(&mut self.lanes, zone, self.options.seed)
            {
                break;
            }
            order.shuffle(&mut random);
            for &number in &order {
                if !self.lanes[number].runs() {
                    continue;
                }
                if !go_on(round, race::racing(&self.lanes)) {
                    return Ok(false);
                }
                if self.is_over() {
                    return Ok(true);
                }
                self.take(number, call)?;
            }
            race::drop_behind(&mut self.lanes, self.options.least_samples);
        }
        Ok(true)
    }

    fn is_over(&self) -> bool {
        let spent = self.now().saturating_sub(self.started_ns);
        u128::from(spent) >= self.options.budget.as_nanos()
    }

    fn now(&self) -> u64 {
        self.shared.engine.clock.now()
    }

    /// A candidate's first run, which is looked at and not timed, and its first sample.
    fn begin(&mut self, number: usize, call: &mut Call<'_, '_>) -> Result<(), RunError> {
        // What the one before left there would look like a right result.
        self.shared.give(call, self.before)?;
        let Some(first) = self.timed(number, call, 1)? else {
            return Ok(());
        };
        let entry = &self.host.entries[self.lanes[number].candidate];
        let spec = entry.kernel.spec();
        if let Some(expected) = &self.expected
            && spec.technique != Technique::Reference
        {
            let wrong = wrong(call, spec.numerics, expected)?;
            // It was asked for, so it takes nothing of what calls may spend on being verified.
            self.shared.verified(0);
            if let Some(evidence) = wrong {
                self.quarantine(number, evidence);
                return Ok(());
            }
            lock(&self.shared.proven).insert((spec.id.clone(), spec.version));
        }
        entry.checked.store(CHECKED, Ordering::Relaxed);
        // Where the first run is expected to be as long, planning is a small part of it.
        let is_long = first >= LED_IN_NS
            && self.lanes[number]
                .expected_ns
                .is_some_and(|expected| expected >= LED_IN_NS);
        if first >= LED_IN_NS {
            let far_behind = is_long
                && self.options.least_samples <= 1
                && race::is_far_behind(&self.lanes, first, NOT_WORTH_REPEATING);
            let lane = &mut self.lanes[number];
            // It may have taken less than the sample that follows: somebody may drop in on either.
            lane.least_ns = first;
            if far_behind {
                lane.samples_ns.push(first);
                return Ok(());
            }
        }
        if !is_long && self.lanes[number].threads > 1 {
            // Comparing took its time, and whoever is left behind after one sample does not come back.
            let mut awake_ns = 0.0;
            while awake_ns < AWAKE_NS {
                let Some(took) = self.timed(number, call, 1)? else {
                    return Ok(());
                };
                awake_ns += took.max(SHORTEST_CALL_NS);
            }
        }
        let mut batch = 1;
        loop {
            let Some(took) = self.timed(number, call, batch)? else {
                return Ok(());
            };
            let lane = &mut self.lanes[number];
            lane.least_ns = lane.least_ns.min(took / batch as f64);
            if took >= self.sample_ns || batch == LARGEST_BATCH {
                lane.batch = batch;
                lane.samples_ns.push(took / batch as f64);
                return Ok(());
            }
            let step = (AIM * self.sample_ns / took.max(1.0)).clamp(1.0, LARGEST_STEP);
            batch = ((batch as f64 * step).ceil() as u64).clamp(batch + 1, LARGEST_BATCH);
        }
    }

    /// One more sample of a candidate.
    fn take(&mut self, number: usize, call: &mut Call<'_, '_>) -> Result<(), RunError> {
        let batch = self.lanes[number].batch;
        let led_in = self.lanes[number].led_in();
        if led_in > 0 && self.timed(number, call, led_in)?.is_none() {
            return Ok(());
        }
        if let Some(took) = self.timed(number, call, batch)? {
            let lane = &mut self.lanes[number];
            let sample = took / batch as f64;
            lane.least_ns = lane.least_ns.min(sample);
            lane.samples_ns.push(sample);
        }
        Ok(())
    }

    /// Runs a candidate so many times and tells how long that took; `None` if that was its end.
    fn timed(
        &mut self,
        number: usize,
        call: &mut Call<'_, '_>,
        batch: u64,
    ) -> Result<Option<f64>, RunError> {
        let entry = &self.host.entries[self.lanes[number].candidate];
        let start = self.now();
        for _ in 0..batch {
            match attempt(entry, call) {
                Ok(()) => {}
                Err(Failure::Callers(fault)) => return Err(fault.into()),
                Err(Failure::Machines(fault)) => {
                    let reason = fault.to_string();
                    self.lanes[number].ended = Some(Ended::Short { reason });
                    return Ok(None);
                }
                Err(Failure::Kernels(evidence)) => {
                    self.quarantine(number, evidence);
                    return Ok(None);
                }
            }
        }
        // A clock that went back told nothing.
        let took = self.now().saturating_sub(start);
        let limit_ns = u64::try_from(self.options.timeout.as_nanos()).unwrap_or(u64::MAX);
        if took / batch > limit_ns {
            let took_ns = took / batch;
            self.lanes[number].ended = Some(Ended::TimedOut { took_ns, limit_ns });
            return Ok(None);
        }
        Ok(Some(took as f64))
    }

    /// Keeps the kernel of a candidate from running, here with every setting.
    fn quarantine(&mut self, number: usize, evidence: String) {
        let entry = &self.host.entries[self.lanes[number].candidate];
        self.shared.quarantine(entry, &self.case.name, &evidence);
        let kernel = |lane: &Lane| self.host.entries[lane.candidate].kernel.spec();
        let failed = kernel(&self.lanes[number]).clone();
        for i in 0..self.lanes.len() {
            let spec = kernel(&self.lanes[i]);
            if spec.id == failed.id && spec.version == failed.version {
                let evidence = evidence.clone();
                self.lanes[i].ended = Some(Ended::Quarantined { evidence });
            }
        }
    }

    /// Hands the samples to the learner, in the order of the rounds, so that it sees together what was slowed together.
    fn learn(&self, reading_ns: f64) {
        if self.shared.mode == Mode::Frozen {
            return;
        }
        let calm: Vec<Vec<f64>> = self.lanes.iter().map(Lane::calm_samples).collect();
        let rounds = calm.iter().map(Vec::len).max().unwrap_or(0);
        for round in 0..rounds.min(LEARNED_SAMPLES) {
            for (lane, samples) in self.lanes.iter().zip(&calm) {
                let Some(sample) = samples.get(round) else {
                    continue;
                };
                let sample = Sample {
                    candidate: lane.candidate,
                    // Calls are timed one by one, and reading the clock is part of what is seen then.
                    time_ns: sample + reading_ns,
                    calls: 0,
                    trial: None,
                    at_ns: self.now(),
                };
                self.shared.engine.observe(self.case, sample);
            }
        }
    }

    /// What came of it, the fastest first, those without a time last.
    fn measured(&self, workload: &Workload, reading_ns: f64) -> Vec<Measured> {
        let measured = |lane: &Lane| Measured {
            workload: workload.clone(),
            candidate: self.host.entries[lane.candidate].candidate(),
            median_ns: lane.median_ns(),
            interval_ns: lane.interval_ns(),
            samples: lane.samples_ns.len(),
            learned_ns: {
                let calm = lane.calm_samples().into_iter().take(LEARNED_SAMPLES);
                calm.map(|sample| sample + reading_ns).collect()
            },
            ended: lane.ending(),
        };
        let mut all: Vec<Measured> = self.lanes.iter().map(measured).collect();
        all.sort_by(|a, b| {
            let key = |one: &Measured| one.median_ns.map_or(f64::INFINITY, |time| time.get());
            key(a).total_cmp(&key(b))
        });
        all
    }
}
