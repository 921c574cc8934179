//! What it costs to use several threads at all, and to look at the clock.

use std::hint::black_box;

use kernelwise_types::calibration::ForkJoin;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use super::contest::cost;
use super::crew::Until;
use super::{Bench, CalibrateError, Findings, LEAST_SAMPLES, Step, threads_text};
use crate::pin;

/// Between two fork-joins the caller waits for this many pauses, 20 µs to 0.25 ms by processor: the
/// workers are asleep again, as they are when a program calls a kernel now and then.
const IDLE_PAUSES: u32 = 5000;

/// Fork-joins in one visit at most, in case the clock stands still.
const MOST_JOINS: usize = 1000;

/// Readings of the clock in one sample.
const READINGS: u32 = 10_000;

/// Fork and join of a pool with one thread count.
#[derive(Debug)]
pub(super) struct ForkJoinStep {
    threads: u32,
    pool: ThreadPool,
    samples: Vec<f64>,
}

impl ForkJoinStep {
    /// Starts the pool, its threads bound to processors like the caller: left to themselves they lie
    /// on the caller's processor in one run and on others in the next, and the figure follows them.
    pub(super) fn new(threads: u32, cpus: &[u32]) -> Result<Self, ThreadPoolBuildError> {
        let cpus = cpus.to_vec();
        let builder = ThreadPoolBuilder::new()
            .num_threads(threads as usize)
            .start_handler(move |index| {
                let pinned = cpus.get(index).map(|cpu| pin::current_thread_to(*cpu));
                // The binding lasts as long as the thread.
                std::mem::forget(pinned);
            });
        Ok(Self {
            threads,
            pool: builder.build()?,
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
        for done in 0..MOST_JOINS {
            bench.crew.check_cancelled()?;
            if done >= LEAST_SAMPLES && clock.now() >= deadline {
                break;
            }
            for _ in 0..IDLE_PAUSES {
                std::hint::spin_loop();
            }
            let begin = clock.now();
            self.pool.broadcast(|context| {
                black_box(context.index());
            });
            self.samples.push(clock.now().saturating_sub(begin) as f64);
        }
        Ok(())
    }

    fn report(&self, findings: &mut Findings) -> bool {
        let cost = cost(&self.samples).filter(|cost| cost.value.get() > 0.0);
        findings.fork_joins.extend(cost.map(|cost| ForkJoin {
            threads: self.threads,
            cost,
        }));
        cost.is_some()
    }
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
