//! How fast this machine can possibly be, measured in a few seconds.
//!
//! [`calibrate`] measures ceilings: peak arithmetic by element type and thread count, bandwidth of each
//! cache and of main memory by access pattern, that of data which another thread had last, the cost of a fork-join and of the clock itself. A
//! kernel that later seems to run above them was measured wrongly, so each figure is the **best** of
//! many short samples, by the fastest code there is for it: every vector instruction set the processor
//! runs, plain and streaming stores, the system's own copy. Costs are medians, and so is what threads reach on each other's data.
//!
//! A machine is not equally fast at all times: others use it, its clock moves. So no test has its turn
//! at once; all of them are visited in several rounds, and the samples of each are spread over the
//! whole run. Threads are bound to processors, one per core first.
//!
//! What cannot be measured honestly is skipped, with the reason in
//! [`Calibration::skipped`]: a cache nobody knows the size of, main memory when there is not enough
//! of it to outgrow the last-level cache.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//!
//! use kernelwise_measure::TscClock;
//! use kernelwise_probe::calibrate::{CalibrateOptions, calibrate};
//! use kernelwise_types::DType;
//!
//! let machine = kernelwise_probe::machine();
//! let cancel = AtomicBool::new(false);
//! let options = CalibrateOptions::default();
//! let calibration = calibrate(&machine, &TscClock::new(), &options, &mut |_| (), &cancel)?;
//! if let Some(peak) = calibration.peak(DType::F32, 1) {
//!     assert!(peak.rate.value >= peak.rate.high);
//! }
//! # Ok::<(), kernelwise_probe::calibrate::CalibrateError>(())
//! ```

use std::fmt;
use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kernelwise_measure::Clock;
use kernelwise_types::calibration::{AccessPattern, Bandwidth, ForkJoin, MemoryPlace, Peak};
use kernelwise_types::units::{Bytes, Nanos};
use kernelwise_types::{Calibration, DType, Machine, Measured};

#[allow(unsafe_code)] // one allocation, initialised by several threads
mod arena;
mod bandwidth;
#[allow(unsafe_code)] // floats seen as the blocks that the loops are written for
mod bare;
mod contest;
mod crew;
mod handed;
#[allow(unsafe_code)] // vector instructions, reached only with proof that the processor has them
mod loops;
mod overhead;
mod peak;
mod sizes;
#[cfg(test)]
mod tests;

pub use bare::{BareLoop, Unaligned};

use arena::Arena;
use bandwidth::BandwidthStep;
use crew::Crew;
use handed::HandedOverStep;
use loops::Loops;
use overhead::{ForkJoinStep, TimerStep};
use peak::PeakStep;

/// How often every test is visited.
const ROUNDS: u32 = 4;

/// Samples of a contender in one visit even when time is up: one more than can be unlucky.
const LEAST_SAMPLES: usize = 2;

/// A clock that shows the same time in this many readings stands still: even one that steps in
/// milliseconds moves within them.
const PATIENCE: u32 = 1_000_000;

/// How much a calibration may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalibrateOptions {
    /// Time for the whole run, 6 s by default. More samples find quieter moments; with one
    /// second, L1 reads came out 4 to 8 % lower (`probe --calibrate --budget 1`, three runs against three of
    /// 6 s on two virtual cores). The shortest honest set of samples may take longer than the budget.
    pub budget: Duration,
    /// Memory the test of main memory may use at most, 1 GiB by default; it never takes more than a
    /// quarter of what this process may use. It needs twice the last-level cache.
    pub memory: Bytes,
}

impl Default for CalibrateOptions {
    fn default() -> Self {
        Self {
            budget: Duration::from_secs(6),
            memory: Bytes(1 << 30),
        }
    }
}

/// How far a calibration has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// What begins now, such as `l2 triad, 2 threads`.
    pub step: &'a str,
    /// Visits done.
    pub done: u32,
    /// Visits in all.
    pub total: u32,
}

/// Why there is no calibration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// The caller asked to stop.
    #[error("calibration cancelled")]
    Cancelled,
    /// A thread for the measurement did not start or did not end well.
    #[error("a calibration thread failed; check the limit on threads of this user")]
    Thread(#[source] io::Error),
    /// The clock showed the same time all the while.
    #[error("the clock `{clock}` does not advance: calibrate with one that does")]
    ClockStopped {
        /// The clock's name.
        clock: &'static str,
    },
}

/// What tests work with.
#[derive(Debug)]
struct Bench<'a> {
    crew: Crew<'a>,
    loops: &'a [Box<dyn Loops>],
    arena: Arena,
}

/// What has been found so far.
#[derive(Debug, Default)]
struct Findings {
    peaks: Vec<Peak>,
    bandwidths: Vec<Bandwidth>,
    handed_over: Vec<Bandwidth>,
    fork_joins: Vec<ForkJoin>,
    timer: Option<Measured<Nanos>>,
    skipped: Vec<String>,
}

/// One test, visited once per round.
trait Step: fmt::Debug {
    /// What it is called in progress and in the list of what was skipped.
    fn name(&self) -> String;

    /// Takes samples until the clock shows `deadline`.
    fn visit(&mut self, bench: &mut Bench<'_>, deadline: u64) -> Result<(), CalibrateError>;

    /// Adds its figure to the findings; false if the clock never moved during a sample.
    fn report(&self, findings: &mut Findings) -> bool;
}

/// Measures the ceilings of this machine, which `machine` must describe: cache sizes, memory and the
/// number of threads are taken from it, instruction sets are asked of the processor.
///
/// Keeps all processors busy while it runs. `progress` is called before each visit. When `cancel` turns
/// true, the run ends within milliseconds with [`CalibrateError::Cancelled`].
pub fn calibrate(
    machine: &Machine,
    clock: &dyn Clock,
    options: &CalibrateOptions,
    progress: &mut dyn FnMut(Progress<'_>),
    cancel: &AtomicBool,
) -> Result<Calibration, CalibrateError> {
    let begin = clock.now();
    if (0..PATIENCE).all(|_| clock.now() == begin) {
        return Err(CalibrateError::ClockStopped {
            clock: clock.name(),
        });
    }
    let budget = u64::try_from(options.budget.as_nanos()).unwrap_or(u64::MAX);
    let end = begin.saturating_add(budget);

    let loops = loops::available();
    let mut bench = Bench {
        crew: Crew::new(clock, cancel),
        loops: &loops,
        arena: Arena::default(),
    };
    let mut findings = Findings::default();
    let mut steps = plan(machine, options, &mut bench, &mut findings.skipped)?;

    let total = ROUNDS * steps.len() as u32;
    for done in 0..total {
        let turn = done as usize % steps.len();
        let step = &mut steps[turn];
        progress(Progress {
            step: &step.name(),
            done,
            total,
        });
        // What one visit overdraws the others make up for.
        let now = clock.now();
        let share = end.saturating_sub(now) / u64::from(total - done);
        tracing::debug!(
            step = step.name(),
            done,
            total,
            share_ns = share,
            "calibrating"
        );
        step.visit(&mut bench, now.saturating_add(share))?;
    }

    for step in &steps {
        if !step.report(&mut findings) {
            let reason = "the clock did not advance during any sample";
            findings.skipped.push(format!("{}: {reason}", step.name()));
        }
    }
    if cfg!(debug_assertions) {
        let note = "optimisation: this is a debug build, in which loops may fall short";
        findings.skipped.push(note.to_owned());
    }
    if let Some(reason) = bench.crew.unpinned() {
        let note = format!("binding threads to processors: {reason}");
        findings.skipped.push(note);
    }
    Ok(Calibration {
        peaks: findings.peaks,
        bandwidths: findings.bandwidths,
        handed_over: findings.handed_over,
        fork_joins: findings.fork_joins,
        timer: findings.timer.ok_or(CalibrateError::ClockStopped {
            clock: clock.name(),
        })?,
        skipped: findings.skipped,
    })
}

/// The tests that make sense on this machine, and the memory they need. Notes what is left out.
fn plan<'a>(
    machine: &Machine,
    options: &CalibrateOptions,
    bench: &mut Bench<'a>,
    skipped: &mut Vec<String>,
) -> Result<Vec<Box<dyn Step + 'a>>, CalibrateError> {
    let mut counts = sizes::thread_counts(machine.usable_threads());
    if let Some(capacity) = bench.crew.capacity() {
        let (fit, more): (Vec<_>, Vec<_>) = counts
            .iter()
            .partition(|count| **count as usize <= capacity);
        skipped.extend(more.iter().map(|count| {
            let threads = threads_text(*count);
            format!("{threads}: this process may use only {capacity} processors")
        }));
        counts = fit;
    }
    skipped.extend(peaks_not_measured());
    let most = counts.iter().copied().max().unwrap_or(1);
    let sets = memory_sets(machine, options, &counts, bench, skipped);
    bench.arena.touch(&bench.crew, most as usize)?;

    let loops = bench.loops;
    let mut steps: Vec<Box<dyn Step + 'a>> = Vec::new();
    for &threads in &counts {
        for dtype in peak::MEASURED {
            steps.push(Box::new(PeakStep::new(loops, dtype, threads)));
        }
        let caches = sets.iter().filter(|set| {
            threads > 1
                && set.threads == threads
                && matches!(set.place, MemoryPlace::L2 | MemoryPlace::L3)
        });
        for set in caches {
            for pattern in [AccessPattern::Read, AccessPattern::Copy] {
                let test = (set.place, pattern);
                steps.push(Box::new(HandedOverStep::new(test, threads, set.bytes)));
            }
        }
        // Main memory comes last: nothing then disturbs its walk until the next thread count.
        for set in sets.iter().filter(|set| set.threads == threads) {
            for pattern in AccessPattern::ALL {
                let test = (set.place, pattern);
                steps.push(Box::new(BandwidthStep::new(
                    loops, test, threads, set.bytes,
                )));
            }
        }
    }
    for &threads in &counts {
        match ForkJoinStep::new(threads) {
            Ok(step) => steps.push(Box::new(step)),
            Err(error) => skipped.push(format!("fork-join, {}: {error}", threads_text(threads))),
        }
    }
    steps.push(Box::new(TimerStep::default()));
    Ok(steps)
}

/// The element types without a peak, those with the same reason in one sentence.
fn peaks_not_measured() -> Vec<String> {
    let mut sentences: Vec<(Vec<&str>, &str)> = Vec::new();
    for dtype in DType::ALL {
        let Some(reason) = peak::not_measured(*dtype) else {
            continue;
        };
        match sentences.iter_mut().find(|(_, known)| *known == reason) {
            Some((names, _)) => names.push(dtype.name()),
            None => sentences.push((vec![dtype.name()], reason)),
        }
    }
    let sentence =
        |(names, reason): (Vec<&str>, &str)| format!("peak {}: {reason}", names.join(", "));
    sentences.into_iter().map(sentence).collect()
}

/// Where and how large the data of each thread is, for one level and thread count.
#[derive(Debug)]
struct MemorySet {
    place: MemoryPlace,
    threads: u32,
    bytes: u64,
}

/// Decides the sets for every level and thread count and reserves the arena for the largest.
fn memory_sets(
    machine: &Machine,
    options: &CalibrateOptions,
    counts: &[u32],
    bench: &mut Bench<'_>,
    skipped: &mut Vec<String>,
) -> Vec<MemorySet> {
    let mut sets = Vec::new();
    for &threads in counts {
        for place in [MemoryPlace::L1, MemoryPlace::L2, MemoryPlace::L3] {
            match sizes::cached_set(machine, place, threads) {
                Ok(bytes) => sets.push(MemorySet {
                    place,
                    threads,
                    bytes,
                }),
                Err(reason) => {
                    skipped.push(format!("{place}, {}: {reason}", threads_text(threads)));
                }
            }
        }
    }
    let cached = sets.iter().map(|set| set.bytes * u64::from(set.threads));
    let cached = cached.max().unwrap_or(0);
    let walk = sizes::memory_footprint(machine, options.memory).and_then(|footprint| {
        let arena = Arena::reserve(footprint.max(cached));
        arena
            .map(|arena| (footprint, arena))
            .map_err(|error| format!("{} were refused: {error}", Bytes(footprint)))
    });
    match walk {
        Ok((footprint, arena)) => {
            bench.arena = arena;
            sets.extend(counts.iter().map(|&threads| MemorySet {
                place: MemoryPlace::Dram,
                threads,
                bytes: footprint / u64::from(threads),
            }));
        }
        Err(reason) => {
            skipped.push(format!("{}: {reason}", MemoryPlace::Dram));
            match Arena::reserve(cached) {
                Ok(arena) => bench.arena = arena,
                Err(error) => {
                    sets.clear();
                    skipped.push(format!(
                        "bandwidth: {} were refused: {error}",
                        Bytes(cached)
                    ));
                }
            }
        }
    }
    sets
}

fn threads_text(threads: u32) -> String {
    match threads {
        1 => "1 thread".to_owned(),
        more => format!("{more} threads"),
    }
}
