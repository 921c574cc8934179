//! What it costs to use several threads at all, and to look at the clock.

use std::hint::black_box;

use kernelwise_threads::Crew as Helpers;
use kernelwise_types::calibration::ForkJoin;

use super::contest::cost;
use super::crew::Until;
use super::{Bench, CalibrateError, Findings, LEAST_SAMPLES, Step, threads_text};
use crate::pin;

/// Calls in one sample, one right after the other: that is how a program calls kernels whose speed matters, and helpers do not fall asleep in
/// between.
const CALLS: u32 = 32;

/// Steps of a piece of work, each waiting for the one before: some microseconds. A helper that looks out for work finds a piece left.
const STEPS: u32 = 2000;

/// Calls before a sample, which wake whoever is asleep: that takes longer than one of them.
const LED_IN: u32 = 16;

/// Samples in one visit at most, in case the clock stands still.
const MOST_SAMPLES: usize = 200;

/// Noise may say that sharing costs less than nothing.
const LEAST_NS: f64 = 1.0;

/// Readings of the clock in one sample.
const READINGS: u32 = 10_000;

/// Fork and join of one thread count: what a call on that many threads takes longer than its share of the work does.
#[derive(Debug)]
pub(super) struct ForkJoinStep {
    threads: u32,
    helpers: Helpers,
    samples: Vec<f64>,
}

impl ForkJoinStep {
    /// Starts the helpers, which run where those of kernels do.
    pub(super) fn new(threads: u32) -> std::io::Result<Self> {
        Ok(Self {
            threads,
            helpers: Helpers::new(threads as usize)?,
            samples: Vec::new(),
        })
    }
}

impl Step for ForkJoinStep {
    fn name(&self) -> String {
        format!("fork-join, {}", threads_text(self.threads))
    }

    fn visit(&mut self, bench: &mut Bench<'_>, deadline: u64) -> Result<(), CalibrateError> {
        let clock = bench.crew.clock();
        let first = bench.crew.cpus().first();
        let _caller = first.map(|cpu| pin::current_thread_to(*cpu));
        let pieces = self.threads as usize;
        let took = |call: &dyn Fn()| {
            (0..LED_IN).for_each(|_| call());
            let begin = clock.now();
            (0..CALLS).for_each(|_| call());
            clock.now().saturating_sub(begin) as f64 / f64::from(CALLS)
        };
        for done in 0..MOST_SAMPLES {
            bench.crew.check_cancelled()?;
            if done >= LEAST_SAMPLES && clock.now() >= deadline {
                break;
            }
            let shared = took(&|| self.helpers.share(pieces, &work));
            let alone = took(&|| (0..pieces).for_each(work));
            // A clock that did not move told nothing.
            if shared > 0.0 && alone > 0.0 {
                let over = shared - alone / f64::from(self.threads);
                self.samples.push(over.max(LEAST_NS));
            }
        }
        Ok(())
    }

    fn report(&self, findings: &mut Findings) -> bool {
        let cost = cost(&self.samples);
        findings.fork_joins.extend(cost.map(|cost| ForkJoin {
            threads: self.threads,
            cost,
        }));
        cost.is_some()
    }
}

/// A piece of work that no compiler takes away.
fn work(piece: usize) {
    let mut number = piece as u64;
    for _ in 0..STEPS {
        number = black_box(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31));
    }
    black_box(number);
}

/// Cost of one reading of the clock.
#[derive(Debug, Default)]
pub(super) struct TimerStep {
    samples: Vec<f64>,
}

impl Step for TimerStep {
    fn name(&self) -> String {
        "clock".to_owned()
    }

    fn visit(&mut self, bench: &mut Bench<'_>, deadline: u64) -> Result<(), CalibrateError> {
        let clock = bench.crew.clock();
        let read = || {
            for _ in 0..READINGS {
                black_box(clock.now());
            }
        };
        let until = Until {
            deadline,
            least: LEAST_SAMPLES,
        };
        let samples = bench.crew.sample(vec![read], until)?;
        let per_reading = |nanos: u64| nanos as f64 / f64::from(READINGS);
        self.samples.extend(samples.into_iter().map(per_reading));
        Ok(())
    }

    fn report(&self, findings: &mut Findings) -> bool {
        findings.timer = cost(&self.samples).filter(|cost| cost.value.get() > 0.0);
        findings.timer.is_some()
    }
}
