//! Clocks: where every duration in Kernelwise comes from.
//!
//! Code that measures takes a [`Clock`] instead of asking the operating system, so that a test or a
//! replay can say what time it is. Four clocks exist because four questions do:
//!
//! - [`TscClock`]: how long did it take? The default.
//! - [`ThreadCpuClock`]: how long did *this thread* compute? For kernels of one thread on a machine
//!   that others use: the time in which somebody else had the processor is left out.
//! - [`ProcessCpuClock`]: does any thread of this process compute?
//! - [`ScriptedClock`]: what would the instrument decide if it had taken that long?

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(unix)]
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// A source of time in nanoseconds.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Nanoseconds since an arbitrary origin. Never goes backwards within one thread.
    fn now(&self) -> u64;

    /// The name as in records and reports.
    fn name(&self) -> &'static str;
}

impl<C: Clock + ?Sized> Clock for &C {
    fn now(&self) -> u64 {
        (**self).now()
    }

    fn name(&self) -> &'static str {
        (**self).name()
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> u64 {
        (**self).now()
    }

    fn name(&self) -> &'static str {
        (**self).name()
    }
}

/// What a clock is good for: what reading it costs and the smallest step it can show.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ClockFacts {
    /// The clock's name.
    pub clock: &'static str,
    /// Time one reading takes, by the clock's own account.
    pub cost_ns: f64,
    /// Smallest step seen between two readings; `None` if the clock stood still all the while. A
    /// clock whose steps are finer than its cost shows its cost here.
    pub resolution_ns: Option<u64>,
}

impl ClockFacts {
    /// Asks the clock by reading it a thousand times. The cost is that of the fastest of ten blocks:
    /// an interrupted block says nothing about the clock.
    pub fn of(clock: &dyn Clock) -> Self {
        const BLOCKS: usize = 10;
        const READINGS: u32 = 100;
        let mut cost = f64::INFINITY;
        let mut resolution = None;
        for _ in 0..BLOCKS {
            let start = clock.now();
            let mut last = start;
            for _ in 0..READINGS {
                let now = clock.now();
                let step = now.saturating_sub(last);
                if step > 0 && resolution.is_none_or(|finest| step < finest) {
                    resolution = Some(step);
                }
                last = now;
            }
            cost = cost.min(last.saturating_sub(start) as f64 / f64::from(READINGS));
        }
        Self {
            clock: clock.name(),
            cost_ns: cost,
            resolution_ns: resolution,
        }
    }

    /// The error of a duration measured with two readings: the cost or the step, whichever is more.
    pub fn error_ns(&self) -> f64 {
        self.cost_ns.max(self.resolution_ns.unwrap_or(0) as f64)
    }
}

/// Wall time from the processor's time-stamp counter.
///
/// What a reading costs here, [`ClockFacts`] tells, and `kernelwise doctor` shows. The counter is used on x86-64
/// processors that promise a constant rate and on aarch64; elsewhere this falls back to the
/// monotonic clock of the operating system (`CLOCK_MONOTONIC`, `QueryPerformanceCounter`,
/// `mach_absolute_time`), which costs more and is as trustworthy.
///
/// The counter is not a fence: the processor may read it a few instructions early or late. That is
/// noise for a sample of microseconds, and the reason why shorter bodies are timed in batches.
#[derive(Debug, Clone)]
pub struct TscClock {
    counter: quanta::Clock,
    origin: u64,
}

impl TscClock {
    /// Starts a clock whose origin is now. The first one in a process compares the counter with the
    /// operating system's clock, which takes a while.
    pub fn new() -> Self {
        let counter = quanta::Clock::new();
        let origin = counter.raw();
        Self { counter, origin }
    }
}

impl Default for TscClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TscClock {
    #[inline]
    fn now(&self) -> u64 {
        self.counter.delta_as_nanos(self.origin, self.counter.raw())
    }

    fn name(&self) -> &'static str {
        "tsc"
    }
}

/// Processor time of the calling thread (`CLOCK_THREAD_CPUTIME_ID`).
///
/// Preemption does not count, so a busy machine disturbs it less; shared caches and memory still do.
/// It sees only the thread that reads it: work handed to other threads is missing from it, and a
/// kernel that uses them looks faster than the machine. Use it for one-thread kernels only. A reading
/// is a system call, many times as dear as one of [`TscClock`]. Two readings are comparable only when taken by the same thread.
#[cfg(unix)]
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreadCpuClock;

#[cfg(unix)]
impl Clock for ThreadCpuClock {
    #[inline]
    fn now(&self) -> u64 {
        processor_ns(ClockId::ThreadCPUTime)
    }

    fn name(&self) -> &'static str {
        "thread-cpu"
    }
}

/// Processor time of all threads of this process together (`CLOCK_PROCESS_CPUTIME_ID`): whether any of them computes.
#[cfg(unix)]
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessCpuClock;

#[cfg(unix)]
impl Clock for ProcessCpuClock {
    #[inline]
    fn now(&self) -> u64 {
        processor_ns(ClockId::ProcessCPUTime)
    }

    fn name(&self) -> &'static str {
        "process-cpu"
    }
}

#[cfg(unix)]
#[inline]
fn processor_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // The kernel counts these clocks up from zero, so neither part is negative.
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

/// A clock that stands still until it is told to move, for tests and replays.
///
/// ```
/// use kernelwise_measure::{Clock, ScriptedClock};
///
/// let clock = ScriptedClock::new();
/// let start = clock.now();
/// clock.advance(250);
/// assert_eq!(clock.now() - start, 250);
/// ```
#[derive(Debug, Default)]
pub struct ScriptedClock {
    now: AtomicU64,
    cost: u64,
}

impl ScriptedClock {
    /// A clock at zero whose readings cost nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A clock at zero on which every reading itself takes `cost_ns`, as it does on a real one.
    pub fn with_cost(cost_ns: u64) -> Self {
        Self {
            now: AtomicU64::new(0),
            cost: cost_ns,
        }
    }

    /// Lets `ns` nanoseconds pass.
    pub fn advance(&self, ns: u64) {
        self.now.fetch_add(ns, Ordering::Relaxed);
    }
}

impl Clock for ScriptedClock {
    fn now(&self) -> u64 {
        self.now.fetch_add(self.cost, Ordering::Relaxed)
    }

    fn name(&self) -> &'static str {
        "scripted"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Enough work to be seen by any clock, and a result the optimiser must keep.
    fn spin(steps: u64) -> u64 {
        (0..steps).fold(1, |x: u64, i| {
            std::hint::black_box(x.wrapping_mul(31).wrapping_add(i))
        })
    }

    fn runs_forward(clock: &dyn Clock) {
        let start = clock.now();
        let mut last = start;
        for _ in 0..1000 {
            let now = clock.now();
            assert!(now >= last, "{} went from {last} to {now}", clock.name());
            last = now;
        }
        spin(1_000_000);
        assert!(clock.now() > start, "{} stands still", clock.name());
    }

    #[test]
    fn real_clocks_run_forward() {
        runs_forward(&TscClock::new());
        #[cfg(unix)]
        runs_forward(&ThreadCpuClock);
        #[cfg(unix)]
        runs_forward(&ProcessCpuClock);
    }

    #[cfg(unix)]
    #[test]
    fn thread_time_leaves_out_what_others_compute_and_process_time_does_not() {
        // Both threads spin equally; one thread's clock may not show the sum of both.
        let busy_elsewhere = || {
            std::thread::spawn(|| {
                let start = ThreadCpuClock.now();
                spin(5_000_000);
                ThreadCpuClock.now() - start
            })
            .join()
            .unwrap()
        };
        let (start, all) = (ThreadCpuClock.now(), ProcessCpuClock.now());
        let elsewhere = busy_elsewhere();
        let (here, all) = (ThreadCpuClock.now() - start, ProcessCpuClock.now() - all);
        assert!(
            here < elsewhere,
            "{here} ns here, {elsewhere} ns in the thread that worked"
        );
        assert!(all >= elsewhere, "all threads count: {all} ns, {elsewhere}");
    }

    /// A counter that ticks rarely, as on some aarch64 boards: cheap to read, coarse in its steps.
    #[derive(Debug)]
    struct Coarse(ScriptedClock);

    impl Clock for Coarse {
        fn now(&self) -> u64 {
            self.0.now() / 40 * 40
        }

        fn name(&self) -> &'static str {
            "coarse"
        }
    }

    #[test]
    fn cost_and_resolution_are_told_apart() {
        let facts = ClockFacts::of(&ScriptedClock::with_cost(11));
        assert_eq!((facts.cost_ns, facts.resolution_ns), (11.0, Some(11)));
        let facts = ClockFacts::of(&Coarse(ScriptedClock::with_cost(10)));
        assert_eq!((facts.clock, facts.resolution_ns), ("coarse", Some(40)));
        assert!((facts.cost_ns - 10.0).abs() < 0.5, "{facts:?}");
        assert_eq!(facts.error_ns(), 40.0);
        let still = ClockFacts::of(&ScriptedClock::new());
        assert_eq!((still.resolution_ns, still.error_ns()), (None, 0.0));
        assert!(ClockFacts::of(&TscClock::new()).error_ns() > 0.0);
    }

    #[test]
    fn a_scripted_clock_moves_only_when_told() {
        let clock = Arc::new(ScriptedClock::new());
        assert_eq!((clock.now(), clock.now()), (0, 0));
        clock.advance(7);
        assert_eq!((clock.now(), clock.name()), (7, "scripted"));
        let costly = ScriptedClock::with_cost(11);
        assert_eq!((costly.now(), costly.now()), (0, 11));
    }
}
