//! Threads that work at the same time, each on its own processor, and how long they took together.
//!
//! All start behind one gate and are timed by the **union** of their intervals: from the earliest start
//! to the latest end. Threads that in truth ran one after the other then read as slow as they were;
//! timing each by itself would add up their rates and report a parallel machine that does not exist.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use kernelwise_measure::Clock;

use super::CalibrateError;
use crate::{Tree, pin};

/// A crew ends a run after this many samples even if its clock stands still.
const MOST_SAMPLES: usize = 1000;

/// Waiting threads spin this often before they let others have their processor.
const SPINS: u32 = 4096;

/// How long a run goes on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Until {
    /// The clock's time at which no further sample begins.
    pub(super) deadline: u64,
    /// Samples that are taken even after the deadline.
    pub(super) least: usize,
}

/// Starts threads where they disturb each other least.
#[derive(Debug)]
pub(super) struct Crew<'a> {
    clock: &'a dyn Clock,
    cancel: &'a AtomicBool,
    /// Processors in the order threads are given them; empty when threads cannot be bound.
    cpus: Vec<u32>,
    /// Why threads could not be bound.
    unpinned: Mutex<Option<String>>,
}

impl<'a> Crew<'a> {
    pub(super) fn new(clock: &'a dyn Clock, cancel: &'a AtomicBool) -> Self {
        let (cpus, unpinned) = match pin::allowed() {
            Ok(allowed) => (one_per_core_first(&allowed, &Tree::system()), None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        Self {
            clock,
            cancel,
            cpus,
            unpinned: Mutex::new(unpinned),
        }
    }

    /// The clock that times the runs.
    pub(super) fn clock(&self) -> &'a dyn Clock {
        self.clock
    }

    /// Processors in the order threads are given them; empty when threads cannot be bound.
    pub(super) fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// How many threads can have a processor each; `None` when threads cannot be bound at all.
    pub(super) fn capacity(&self) -> Option<usize> {
        (!self.cpus.is_empty()).then_some(self.cpus.len())
    }

    /// Why some thread ran unbound, if one did.
    pub(super) fn unpinned(&self) -> Option<String> {
        self.unpinned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// An error if the caller asked to stop.
    pub(super) fn check_cancelled(&self) -> Result<(), CalibrateError> {
        if self.cancel.load(Ordering::Relaxed) {
            Err(CalibrateError::Cancelled)
        } else {
            Ok(())
        }
    }

    /// Runs all `workers` together again and again, one thread each, and returns the nanoseconds of
    /// every sample. Each worker runs once before the first sample, untimed: that brings its data
    /// close and its processor up to speed.
    pub(super) fn sample<W>(
        &self,
        workers: Vec<W>,
        until: Until,
    ) -> Result<Vec<u64>, CalibrateError>
    where
        W: FnMut() + Send,
    {
        self.check_cancelled()?;
        let gate = Gate::new(workers.len());
        let intervals: Vec<Interval> = workers.iter().map(|_| Interval::default()).collect();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for (index, mut work) in workers.into_iter().enumerate() {
                let (gate, intervals, over) = (&gate, intervals.as_slice(), &over);
                let started = thread::Builder::new().spawn_scoped(scope, move || {
                    let _pinned = self.pin(index);
                    let _no_hang = BreakOnPanic(gate);
                    work();
                    let mut samples = Vec::new();
                    // The first thread decides between two gates, while the others wait.
                    while {
                        if index == 0 && self.enough(samples.len(), until) {
                            over.store(true, Ordering::Relaxed);
                        }
                        gate.pass() && !over.load(Ordering::Relaxed)
                    } {
                        let begin = self.clock.now();
                        work();
                        intervals[index].set(begin, self.clock.now());
                        if !gate.pass() {
                            break;
                        }
                        if index == 0 {
                            samples.push(union(intervals));
                        }
                    }
                    samples
                });
                match started {
                    Ok(handle) => threads.push(handle),
                    Err(error) => {
                        gate.break_open();
                        return Err(CalibrateError::Thread(error));
                    }
                }
            }
            // All are joined before the first failure is looked at: the scope would pass on the panic of
            // one that was not.
            let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            let samples: Result<Vec<_>, _> = ended.into_iter().collect();
            let panicked = |_| CalibrateError::Thread(io::Error::other("a loop panicked"));
            let samples = samples.map_err(panicked)?;
            self.check_cancelled()?;
            // Only the first thread has any.
            Ok(samples.into_iter().flatten().collect())
        })
    }

    fn enough(&self, samples: usize, until: Until) -> bool {
        self.cancel.load(Ordering::Relaxed)
            || samples >= MOST_SAMPLES
            || (samples >= until.least && self.clock.now() >= until.deadline)
    }

    fn pin(&self, index: usize) -> Option<pin::Pinned> {
        match pin::current_thread_to(*self.cpus.get(index)?) {
            Ok(pinned) => Some(pinned),
            Err(error) => {
                let mut unpinned = self.unpinned.lock().unwrap_or_else(PoisonError::into_inner);
                unpinned.get_or_insert_with(|| error.to_string());
                None
            }
        }
    }
}

/// The processors with those first that are the first of their core: two threads on one core share its
/// arithmetic and its caches. Without knowledge of the cores the order stays.
fn one_per_core_first(cpus: &[u32], tree: &Tree) -> Vec<u32> {
    let rank = |cpu: u32| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let siblings = tree.id_list(&path).unwrap_or_default();
        siblings
            .iter()
            .filter(|sibling| **sibling < cpu && cpus.contains(sibling))
            .count()
    };
    let mut ordered = cpus.to_vec();
    ordered.sort_by_cached_key(|&cpu| (rank(cpu), cpu));
    ordered
}

/// When one thread worked.
#[derive(Debug, Default)]
struct Interval {
    begin: AtomicU64,
    end: AtomicU64,
}

impl Interval {
    fn set(&self, begin: u64, end: u64) {
        // The gate that follows orders these before the leader's reads.
        self.begin.store(begin, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
    }
}

/// Nanoseconds from the earliest begin to the latest end.
fn union(intervals: &[Interval]) -> u64 {
    let begins = intervals.iter().map(|i| i.begin.load(Ordering::Relaxed));
    let ends = intervals.iter().map(|i| i.end.load(Ordering::Relaxed));
    match (begins.min(), ends.max()) {
        (Some(begin), Some(end)) => end.saturating_sub(begin),
        _ => 0,
    }
}

/// A barrier that releases all threads within a fraction of a microsecond, which the sleeping one of the
/// standard library cannot, and that can be broken when a thread will never come.
#[derive(Debug)]
struct Gate {
    threads: u32,
    arrived: AtomicU32,
    /// Counts how often the gate opened.
    opened: AtomicU32,
    broken: AtomicBool,
}

impl Gate {
    fn new(threads: usize) -> Self {
        Self {
            threads: u32::try_from(threads).unwrap_or(u32::MAX),
            arrived: AtomicU32::new(0),
            opened: AtomicU32::new(0),
            broken: AtomicBool::new(false),
        }
    }

    /// Waits for all threads; false if the gate was broken instead.
    fn pass(&self) -> bool {
        let before = self.opened.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.opened.fetch_add(1, Ordering::Release);
            return !self.broken.load(Ordering::Relaxed);
        }
        let mut spins = 0;
        while self.opened.load(Ordering::Acquire) == before {
            if self.broken.load(Ordering::Relaxed) {
                return false;
            }
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
        true
    }

    fn break_open(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }
}

/// Lets the others go when its thread panics: they would wait for it forever.
#[derive(Debug)]
struct BreakOnPanic<'a>(&'a Gate);

impl Drop for BreakOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.break_open();
        }
    }
}

#[cfg(test)]
mod tests {
    use kernelwise_measure::{ScriptedClock, TscClock};

    use super::*;
    use crate::fake::FakeTree;

    const FIVE: Until = Until {
        deadline: 0,
        least: 5,
    };

    #[test]
    fn every_worker_runs_once_per_sample_and_once_before() {
        let (clock, cancel) = (TscClock::new(), AtomicBool::new(false));
        let crew = Crew::new(&clock, &cancel);
        let runs: Vec<AtomicU32> = (0..3).map(|_| AtomicU32::new(0)).collect();
        let workers = runs
            .iter()
            .map(|count| || _ = count.fetch_add(1, Ordering::Relaxed))
            .collect();
        assert_eq!(crew.sample(workers, FIVE).unwrap().len(), 5);
        for count in &runs {
            assert_eq!(count.load(Ordering::Relaxed), 6);
        }
    }

    #[test]
    fn threads_that_take_turns_are_charged_for_all_turns() {
        // Each worker waits for its turn and then takes 100 on the clock: 300 in all, whatever the
        // scheduler does. Timed one by one, the first would own up to a third of it.
        let (clock, cancel) = (ScriptedClock::new(), AtomicBool::new(false));
        let crew = Crew::new(&clock, &cancel);
        let turn = AtomicU32::new(0);
        let workers: Vec<_> = (0..3)
            .map(|index| {
                let (clock, turn) = (&clock, &turn);
                move || {
                    while turn.load(Ordering::Acquire) % 3 != index {
                        thread::yield_now();
                    }
                    clock.advance(100);
                    turn.fetch_add(1, Ordering::Release);
                }
            })
            .collect();
        for nanos in crew.sample(workers, FIVE).unwrap() {
            assert_eq!(nanos, 300);
        }
    }

    #[test]
    fn a_deadline_ends_a_run_and_a_stopped_clock_does_not_hang_it() {
        let cancel = AtomicBool::new(false);
        let ticking = ScriptedClock::new();
        let until = Until {
            deadline: 1000,
            least: 1,
        };
        let samples = Crew::new(&ticking, &cancel)
            .sample(vec![|| ticking.advance(100)], until)
            .unwrap();
        // One run before the samples, then nine until the clock says 1000.
        assert_eq!(samples, [100; 9]);
        let stopped = ScriptedClock::new();
        let samples = Crew::new(&stopped, &cancel)
            .sample(vec![|| ()], until)
            .unwrap();
        assert_eq!(samples.len(), MOST_SAMPLES);
    }

    #[test]
    fn a_cancelled_run_is_an_error() {
        let (clock, cancel) = (ScriptedClock::new(), AtomicBool::new(false));
        let crew = Crew::new(&clock, &cancel);
        let work = || cancel.store(true, Ordering::Relaxed);
        let result = crew.sample(vec![work], FIVE);
        assert!(matches!(result, Err(CalibrateError::Cancelled)));
    }

    #[test]
    fn panics_in_all_threads_are_one_error() {
        let (clock, cancel) = (ScriptedClock::with_cost(1), AtomicBool::new(false));
        let crew = Crew::new(&clock, &cancel);
        let fail = || panic!("this panic is part of the test");
        let until = Until {
            deadline: 0,
            least: 1,
        };
        let result = crew.sample(vec![fail; 3], until);
        assert!(
            matches!(result, Err(CalibrateError::Thread(_))),
            "{result:?}"
        );
    }

    #[test]
    fn a_panic_in_one_thread_ends_all_and_is_an_error() {
        let (clock, cancel) = (TscClock::new(), AtomicBool::new(false));
        let crew = Crew::new(&clock, &cancel);
        for faulty in 0..2 {
            let workers = (0..2)
                .map(|index| move || assert_ne!(index, faulty, "this panic is part of the test"))
                .collect();
            let result = crew.sample(workers, FIVE);
            assert!(matches!(result, Err(CalibrateError::Thread(_))));
        }
    }

    #[test]
    fn a_broken_gate_lets_everybody_go() {
        let gate = Gate::new(2);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.pass());
            gate.break_open();
            assert!(!waiting.join().unwrap());
        });
    }

    #[test]
    fn cores_are_filled_before_their_second_threads() {
        let fake = FakeTree::new();
        for (cpu, siblings) in [(0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3"), (5, "4-5")] {
            fake.write(
                &format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"),
                siblings,
            );
        }
        // Processor 5 is the only one of its core that may be used; nothing is known of 6.
        let order = one_per_core_first(&[0, 1, 2, 3, 5, 6], &fake.tree());
        assert_eq!(order, [0, 2, 5, 6, 1, 3]);
    }
}
