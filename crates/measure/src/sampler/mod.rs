//! The sampler: races contenders against each other and knows when to stop.
//!
//! The decisions, in the order they are taken:
//!
//! 1. **How long is a sample?** Long enough that the clock's own error does not matter: 20 µs, or a
//!    thousand times the cost or the step of the clock, whichever is more.
//! 2. **Warm up.** The first three calls of each contender fill caches and branch predictors and are
//!    thrown away.
//! 3. **How many calls make a sample?** A contender whose call is shorter than a sample runs in
//!    batches, each with its own batch size. Trial batches are thrown away as well.
//! 4. **Rounds.** Every contender gives one sample per round, in an order shuffled anew each time, so
//!    that what the machine does meanwhile meets all of them alike and none always runs in the wake of
//!    the same neighbour.
//!    With a [lead-in](Sampler::lead_in) each sample follows untimed calls of the same contender: then it is
//!    the time of a call among others like it, not of one that first fetches its data back from where the
//!    previous contender drove it, or wakes the [threads](Sampler::lead_in_for) that slept meanwhile.
//! 5. **Enough?** Before each sample: cancelled, then out of budget. Before each round: nobody left,
//!    all rounds run, every location precise enough after the fewest rounds.
//!
//! A contender that fails, panics or overruns is dropped with the reason, and the others go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

use crate::clock::{Clock, ClockFacts};
use crate::stats::{Summary, location_precision};

mod contender;
mod race;
#[cfg(test)]
mod tests;

pub use contender::{Contender, Ending};
pub use race::{Entry, Race, Stop};

/// How many times longer than the clock's error a sample must be: the error stays below 0.1 %.
const CLOCK_ERRORS: f64 = 1000.0;
/// No batch is larger: a body that is still too short then has been optimised away.
const LARGEST_BATCH: u64 = 1 << 20;
/// How much past the target a batch is aimed, so that the next trial is likely to be the last.
const AIM: f64 = 1.2;
/// By how much a batch may grow in one step: the time of a few calls is a poor guide.
const LARGEST_STEP: f64 = 100.0;
/// The same when the clock showed no time at all.
const BLIND_STEP: f64 = 10.0;
/// Calls so many times as long as a [lead-in](Sampler::lead_in_for) go without: what it would take away is a small part of them.
const LONG_CALLS: u32 = 40;
/// No call is taken to be shorter, in case the clock stands still.
const SHORTEST_CALL_NS: u64 = 100;

/// How long a contender on several threads should be [led in](Sampler::lead_in_for). Threads that help fall asleep some 30 µs after their last call and
/// take about 20 µs to wake; whoever calls a kernel again and again finds them awake.
pub const AWAKE: Duration = Duration::from_micros(50);

/// Times contenders side by side.
///
/// ```
/// use kernelwise_measure::{Contender, Sampler, TscClock};
///
/// let clock = TscClock::new();
/// let numbers: Vec<u64> = (0..1000).collect();
/// let race = Sampler::new(&clock).max_rounds(20).run(vec![
///     Contender::new("sum", || Ok::<u64, String>(numbers.iter().sum())),
///     Contender::new("broken", || Err::<u64, _>("no such kernel")),
/// ]);
/// assert!(!race.entries[0].samples_ns.is_empty());
/// assert_eq!(race.entries[1].ending.to_string(), "failed: no such kernel");
/// ```
#[derive(Debug, Clone)]
pub struct Sampler<'a> {
    clock: &'a dyn Clock,
    wall: Option<&'a dyn Clock>,
    warm_up: u32,
    lead_in: u32,
    lead_in_for: Duration,
    min_rounds: usize,
    max_rounds: usize,
    precision: f64,
    budget: Duration,
    sample_timeout: Option<Duration>,
    min_sample: Duration,
    seed: u64,
    cancel: Option<&'a AtomicBool>,
}

/// A contender during the race.
struct Lane<'a> {
    contender: Contender<'a>,
    ending: Ending,
    batch: u64,
    /// The fastest call of all so far, in the mean of a batch.
    fastest_call: Option<u64>,
    samples: Vec<f64>,
}

impl Lane<'_> {
    fn runs(&self) -> bool {
        self.ending == Ending::Measured
    }
}

impl<'a> Sampler<'a> {
    /// A sampler on this clock: 3 calls of warm-up, no lead-in, 15 to 100 rounds, 0.5 % precision, 2 s in all,
    /// samples of at least 20 µs, no limit on a single sample, seed 0.
    ///
    /// Half a per cent for each of two contenders leaves a ratio uncertain by less than half of the
    /// usual indifference zone, so that a true tie can be told from a lack of evidence.
    pub fn new(clock: &'a dyn Clock) -> Self {
        Self {
            clock,
            wall: None,
            warm_up: 3,
            lead_in: 0,
            lead_in_for: Duration::ZERO,
            min_rounds: 15,
            max_rounds: 100,
            precision: 0.005,
            budget: Duration::from_secs(2),
            sample_timeout: None,
            min_sample: Duration::from_micros(20),
            seed: 0,
            cancel: None,
        }
    }

    /// The clock by which budget and timeout are kept, if not the one that measures. Needed with a
    /// clock of processor time, which stands still while a body sleeps or waits.
    pub fn wall_clock(self, wall: &'a dyn Clock) -> Self {
        Self {
            wall: Some(wall),
            ..self
        }
    }

    /// Calls of each contender that are thrown away first.
    pub fn warm_up(self, calls: u32) -> Self {
        Self {
            warm_up: calls,
            ..self
        }
    }

    /// Calls of a contender before each of its samples in the rounds; they are not timed.
    pub fn lead_in(self, calls: u32) -> Self {
        Self {
            lead_in: calls,
            ..self
        }
    }

    /// The same by time: as many calls as take so long, those of [`lead_in`](Self::lead_in) among them, before trials of batch sizes as well. [`AWAKE`] is what
    /// threads need. Calls of 40 times that and more go without.
    pub fn lead_in_for(self, time: Duration) -> Self {
        Self {
            lead_in_for: time,
            ..self
        }
    }

    /// Rounds before precision may end the race. Precision cannot be told below nine.
    pub fn min_rounds(self, rounds: usize) -> Self {
        Self {
            min_rounds: rounds,
            ..self
        }
    }

    /// Rounds after which the race ends in any case.
    pub fn max_rounds(self, rounds: usize) -> Self {
        Self {
            max_rounds: rounds,
            ..self
        }
    }

    /// How well each contender's location should be known: the half-width of its 90 % interval, relative
    /// to itself. 0.005 is 0.5 %; see [`location_precision`].
    pub fn precision(self, relative: f64) -> Self {
        Self {
            precision: relative,
            ..self
        }
    }

    /// Time for the whole race, warm-up included. It goes before the fewest rounds, and is overrun by
    /// one sample with its lead-in at most.
    pub fn budget(self, budget: Duration) -> Self {
        Self { budget, ..self }
    }

    /// Drops a contender once a single sample of it took longer. Batches are kept so short that
    /// a body is not dropped for being batched.
    pub fn sample_timeout(self, limit: Duration) -> Self {
        Self {
            sample_timeout: Some(limit),
            ..self
        }
    }

    /// The shortest sample; the clock may ask for a longer one.
    pub fn min_sample(self, duration: Duration) -> Self {
        Self {
            min_sample: duration,
            ..self
        }
    }

    /// Seed of the order within the rounds and of the comparisons made from the race.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// A flag that ends the race before its next sample once it is set.
    pub fn cancel(self, flag: &'a AtomicBool) -> Self {
        Self {
            cancel: Some(flag),
            ..self
        }
    }

    /// Runs the race on the calling thread.
    pub fn run(&self, contenders: Vec<Contender<'_>>) -> Race {
        let started = self.wall().now();
        let clock = ClockFacts::of(self.clock);
        let mut lanes: Vec<Lane<'_>> = contenders
            .into_iter()
            .map(|contender| Lane {
                contender,
                ending: Ending::Measured,
                batch: 1,
                fastest_call: None,
                samples: Vec::new(),
            })
            .collect();
        let stop = match self.prepare(&mut lanes, started, &clock) {
            Some(stop) => stop,
            None => self.race(&mut lanes, started),
        };
        let entry = |lane: Lane<'_>| Entry {
            name: lane.contender.into_name(),
            ending: lane.ending,
            batch: lane.batch,
            summary_ns: Summary::of(&lane.samples),
            samples_ns: lane.samples,
        };
        Race {
            clock,
            stop,
            rounds: lanes
                .iter()
                .map(|lane| lane.samples.len())
                .max()
                .unwrap_or(0),
            elapsed_ns: self.wall().now().saturating_sub(started),
            seed: self.seed,
            entries: lanes.into_iter().map(entry).collect(),
        }
    }

    /// Warm-up and batch sizes; a reason to stop if one came up.
    fn prepare(&self, lanes: &mut [Lane<'_>], started: u64, clock: &ClockFacts) -> Option<Stop> {
        for _ in 0..self.warm_up {
            for lane in lanes.iter_mut().filter(|lane| lane.runs()) {
                if let Some(stop) = self.interrupted(started) {
                    return Some(stop);
                }
                self.sample(lane, 1);
            }
        }
        let target = self.sample_duration(clock);
        for lane in lanes.iter_mut().filter(|lane| lane.runs()) {
            self.fit_batch(lane, target, started);
        }
        None
    }

    /// The rounds.
    fn race(&self, lanes: &mut [Lane<'_>], started: u64) -> Stop {
        let mut rng = Pcg64::seed_from_u64(self.seed);
        let mut order: Vec<usize> = (0..lanes.len()).collect();
        let mut round = 0;
        loop {
            if !lanes.iter().any(Lane::runs) {
                return Stop::NoneLeft;
            }
            if round >= self.max_rounds {
                return Stop::Rounds;
            }
            if round >= self.min_rounds && lanes.iter().all(|lane| self.is_settled(lane)) {
                return Stop::Precision;
            }
            order.shuffle(&mut rng);
            for &index in &order {
                let lane = &mut lanes[index];
                if !lane.runs() {
                    continue;
                }
                if let Some(stop) = self.interrupted(started) {
                    return stop;
                }
                let mut passed = 0;
                if self.lead_in > 0 {
                    passed = self.sample(lane, self.lead_in.into()).unwrap_or(0);
                }
                self.wake(lane, passed);
                let batch = lane.batch;
                if let Some(took) = self.sample(lane, batch) {
                    lane.samples.push(took as f64 / batch as f64);
                }
            }
            round += 1;
        }
    }

    /// What is left of the lead-in that is given as a time.
    fn wake(&self, lane: &mut Lane<'_>, passed_ns: u64) {
        let wanted = self.lead_in_for.as_nanos();
        let mut passed = u128::from(passed_ns);
        // By the fastest call: one that was disturbed does not make all of them long.
        let is_long = |lane: &Lane<'_>| {
            let call = lane.fastest_call.map(u128::from);
            call.is_some_and(|call| call >= wanted * u128::from(LONG_CALLS))
        };
        while passed < wanted
            && !is_long(lane)
            && let Some(took) = self.sample(lane, 1)
        {
            passed += u128::from(took.max(SHORTEST_CALL_NS));
        }
    }

    /// Whether more samples of this contender are not needed, or not to be had.
    fn is_settled(&self, lane: &Lane<'_>) -> bool {
        !lane.runs() || location_precision(&lane.samples).is_some_and(|p| p <= self.precision)
    }

    fn interrupted(&self, started: u64) -> Option<Stop> {
        if self.cancel.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            return Some(Stop::Cancelled);
        }
        let elapsed = self.wall().now().saturating_sub(started);
        (u128::from(elapsed) >= self.budget.as_nanos()).then_some(Stop::Budget)
    }

    /// How long a sample should be, in nanoseconds.
    fn sample_duration(&self, clock: &ClockFacts) -> f64 {
        let wanted = (self.min_sample.as_nanos() as f64).max(CLOCK_ERRORS * clock.error_ns());
        match self.sample_timeout {
            // A quarter leaves room for the noise of a busy machine.
            Some(limit) => wanted.min(limit.as_nanos() as f64 / 4.0),
            None => wanted,
        }
    }

    /// Finds how many calls make a sample of `target` nanoseconds, starting from the warm-up's word.
    fn fit_batch(&self, lane: &mut Lane<'_>, target: f64, started: u64) {
        let mut batch = 1;
        let mut took = lane.fastest_call;
        while lane.runs() && batch < LARGEST_BATCH && self.interrupted(started).is_none() {
            let step = match took {
                Some(took) if took as f64 >= target => break,
                Some(0) => BLIND_STEP,
                Some(took) => (AIM * target / took as f64).clamp(1.0, LARGEST_STEP),
                // Without warm-up the first trial is a single call.
                None => 1.0,
            };
            batch = ((batch as f64 * step).ceil() as u64).min(LARGEST_BATCH);
            self.wake(lane, 0);
            took = self.sample(lane, batch);
            // Of two trials the shorter one: a disturbed trial would make the batch too small.
            if self.interrupted(started).is_none() {
                took = took.into_iter().chain(self.sample(lane, batch)).min();
            }
        }
        lane.batch = batch;
    }

    /// Times one batch. `None` if the contender was dropped, now or before.
    fn sample(&self, lane: &mut Lane<'_>, batch: u64) -> Option<u64> {
        if !lane.runs() {
            return None;
        }
        // The outer clock is read outside the inner one, whose readings are the sample.
        let entered = self.wall.map(Clock::now);
        let start = self.clock.now();
        let result = lane.contender.run(batch);
        let took = self.clock.now().saturating_sub(start);
        let took_wall = match (self.wall, entered) {
            (Some(wall), Some(entered)) => wall.now().saturating_sub(entered),
            _ => took,
        };
        if let Err(ending) = result {
            lane.ending = ending;
            return None;
        }
        let limit = self.sample_timeout.unwrap_or(Duration::MAX).as_nanos();
        if u128::from(took_wall) > limit {
            lane.ending = Ending::TimedOut {
                took_ns: took_wall,
                limit_ns: u64::try_from(limit).unwrap_or(u64::MAX),
            };
            return None;
        }
        let call = took / batch.max(1);
        lane.fastest_call = Some(lane.fastest_call.map_or(call, |fastest| fastest.min(call)));
        Some(took)
    }

    fn wall(&self) -> &dyn Clock {
        self.wall.unwrap_or(self.clock)
    }
}
