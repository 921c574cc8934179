//! What it costs to use several threads at all, and to look at the clock.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};

use kernelwise_threads::Crew as Helpers;
use kernelwise_types::calibration::ForkJoin;

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

/// Fork and join of one thread count.
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
        for done in 0..MOST_JOINS {
            bench.crew.check_cancelled()?;
            if done >= LEAST_SAMPLES && clock.now() >= deadline {
                break;
            }
            for _ in 0..IDLE_PAUSES {
                std::hint::spin_loop();
            }
            let begin = clock.now();
            // Nobody is waited for who has not begun; here all of them are.
            let begun = AtomicU32::new(0);
            self.helpers.share(self.threads as usize, &|_| {
                begun.fetch_add(1, Ordering::Relaxed);
                while begun.load(Ordering::Relaxed) < self.threads {
                    std::hint::spin_loop();
                }
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
