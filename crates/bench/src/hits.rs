//! What a choice costs: the selector's own speed, beside a lock around a map.
//!
//! Nothing is computed here. The kernels do nothing and are said to take 50 ns, as the smallest do for which a choice
//! matters; one call in eight is then marked for timing, as in use. Times are those of batches, over their calls.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, Barrier, RwLock};

use kernelwise_backend::{HostKernel, OwnKernel};
use kernelwise_measure::{Clock, TscClock};
use kernelwise_select::{Budget, SelectError, Selector, Went};
use kernelwise_types::{
    InvalidKernelId, KernelSpec, Machine, Needs, Numerics, Technique, Workload,
};
use serde::Serialize;

/// Calls in a batch: some ten microseconds, so that the clock's own cost is nothing.
const BATCH: usize = 1024;
/// Batches of one figure.
const BATCHES: usize = 401;
/// Keys of the large tables.
const MANY_KEYS: usize = 100_000;
/// Kernels of the usual case, and of the large one.
const KERNELS: [usize; 2] = [4, 64];

/// The figures; times in nanoseconds per call, the median over batches.
#[derive(Debug, Clone, Serialize)]
pub struct Hits {
    /// A choice for a workload that was chosen for before, the key included; four kernels, one workload.
    pub hit_ns_p50: f64,
    /// The upper quartile of that.
    pub hit_ns_p75: f64,
    /// The same through a plan.
    pub plan_ns_p50: f64,
    /// A choice among 64 kernels.
    pub hit_64_kernels_ns_p50: f64,
    /// A choice for one of `many_keys` workloads, each in its turn.
    pub hit_many_keys_ns_p50: f64,
    /// That over choices for one workload right before: the price of memory that is further away.
    pub many_keys_over_one: f64,
    /// So many workloads.
    pub many_keys: usize,
    /// A lookup in the standard library's map behind its lock that many may read: one workload.
    pub rwlock_ns_p50: f64,
    /// Choices of two threads at once, by one selector for one workload, over those of one thread in the same time.
    pub speedup_2_threads: Option<f64>,
    /// The same with a selector for each thread: what the machine gave at that moment to threads that share nothing.
    pub speedup_2_threads_apart: Option<f64>,
    /// Allocations of a choice, as counted by whoever runs this.
    pub allocs_per_hit: Option<f64>,
}

/// Why the selector's speed was not measured.
#[derive(Debug, thiserror::Error)]
#[error("the selector could not be set up: {0}")]
pub struct HitsError(String);

impl From<SelectError> for HitsError {
    fn from(error: SelectError) -> Self {
        Self(error.to_string())
    }
}

/// Runs something and tells how often it allocated on this thread.
pub type CountAllocations = fn(&mut dyn FnMut()) -> u64;

/// Measures them, allocations where somebody counts.
pub fn hits(machine: &Machine, allocations: Option<CountAllocations>) -> Result<Hits, HitsError> {
    let clock = TscClock::new();
    let (few, large) = (settled(machine, KERNELS[0])?, settled(machine, KERNELS[1])?);
    let one = workload(64)?;
    let plan = few.plan(&one)?;
    let locked: RwLock<HashMap<Workload, usize>> = RwLock::new(HashMap::from([(one.clone(), 1)]));
    let crowded = settled(machine, KERNELS[0])?;
    let workloads: Result<Vec<Workload>, HitsError> = (1..=MANY_KEYS).map(workload).collect();
    let workloads = workloads?;
    // Meeting each, and learning enough of it that most calls need not be timed, is what the figure does not count.
    for workload in &workloads {
        settle(&crowded, workload)?;
    }
    crowded.settle();

    let mut hit = || {
        black_box(few.select(black_box(&one)).is_ok());
    };
    let mut planned = || {
        black_box(plan.choose());
    };
    let mut among_many_kernels = || {
        black_box(large.select(black_box(&one)).is_ok());
    };
    let mut in_a_lock = || {
        let map = locked.read();
        black_box(map.map_or(0, |map| *map.get(black_box(&one)).unwrap_or(&0)));
    };
    // One after the other, so that the caller's own memory is at hand; their places in the table are random anyway.
    let mut at = 0;
    let mut among_many_keys = || {
        at = (at + 1) % MANY_KEYS;
        black_box(crowded.select(&workloads[at]).is_ok());
    };
    let [mut times, plans, kernels, locks] = in_turns(
        &clock,
        [
            (BATCH, &mut hit),
            (BATCH, &mut planned),
            (BATCH, &mut among_many_kernels),
            (BATCH, &mut in_a_lock),
        ],
    );
    // All of them in a turn: whoever uses so many has their seats in the caches as far as they fit.
    let [among_one, among_many] = in_turns(
        &clock,
        [(BATCH, &mut hit), (MANY_KEYS, &mut among_many_keys)],
    );
    let ratios = among_many
        .iter()
        .zip(&among_one)
        .map(|(many, one)| many / one);
    let many_keys_over_one = median(ratios.collect());
    let allocs_per_hit = allocations.map(|count| {
        let mut many = || {
            for _ in 0..BATCH {
                hit();
            }
        };
        count(&mut many) as f64 / BATCH as f64
    });
    times.sort_by(f64::total_cmp);
    Ok(Hits {
        hit_ns_p50: times[times.len() / 2],
        hit_ns_p75: times[times.len() * 3 / 4],
        plan_ns_p50: median(plans),
        hit_64_kernels_ns_p50: median(kernels),
        hit_many_keys_ns_p50: median(among_many),
        many_keys_over_one,
        many_keys: MANY_KEYS,
        rwlock_ns_p50: median(locks),
        speedup_2_threads: speedup([&few, &few], &one, &clock, machine),
        speedup_2_threads_apart: speedup([&few, &large], &one, &clock, machine),
        allocs_per_hit,
    })
}

fn workload(size: usize) -> Result<Workload, HitsError> {
    let text = format!("matmul f32 {size}x{size}x64");
    text.parse().map_err(|error| HitsError(format!("{error}")))
}

/// A selector that knows the workload of 64 and is sure of its choice.
fn settled(machine: &Machine, kernels: usize) -> Result<Selector, HitsError> {
    let kernel = |number: usize| -> Result<Arc<dyn HostKernel>, InvalidKernelId> {
        let spec = KernelSpec {
            id: format!("cpu-matmul-f32-idle{number}").parse()?,
            version: 1,
            technique: Technique::Custom,
            numerics: Numerics::BitIdentical,
            needs: Needs::default(),
        };
        Ok(Arc::new(OwnKernel::new(spec, |_, _, _| Ok(()))))
    };
    let kernels: Result<Vec<_>, _> = (0..kernels).map(kernel).collect();
    let kernels = kernels.map_err(|error| HitsError(error.to_string()))?;
    let selector = Selector::builder(machine.clone(), kernels)
        // Trials are another matter: what is timed here is how they are not made.
        .budget(Budget::NONE)
        .background(false)
        .build()
        .map_err(|error| HitsError(error.to_string()))?;
    settle(&selector, &workload(64)?)?;
    selector.settle();
    Ok(selector)
}

/// Tells a selector often enough how long a workload takes.
fn settle(selector: &Selector, workload: &Workload) -> Result<(), HitsError> {
    for _ in 0..8 {
        let ticket = selector.select(workload)?;
        // Its own ticket cannot be refused.
        let _ = selector.report(ticket, &Went::Well { time_ns: 50.0 });
    }
    Ok(())
}

/// Nanoseconds per call of each, batch by batch of so many; the first few warm up. They take turns: where the machine's
/// clock changes, it changes for all of them.
fn in_turns<const N: usize>(
    clock: &TscClock,
    mut calls: [(usize, &mut dyn FnMut()); N],
) -> [Vec<f64>; N] {
    let mut times = [const { Vec::new() }; N];
    for batch in 0..BATCHES + 10 {
        for ((calls, call), times) in calls.iter_mut().zip(&mut times) {
            // Brings the table of its selector to the front.
            call();
            let start = clock.now();
            for _ in 0..*calls {
                call();
            }
            let took = clock.now().saturating_sub(start);
            if batch >= 10 {
                times.push(took as f64 / *calls as f64);
            }
        }
    }
    times
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// What two threads do at once over what one does: the median of tries, each with one and two right after each other.
fn speedup(
    selectors: [&Selector; 2],
    workload: &Workload,
    clock: &TscClock,
    machine: &Machine,
) -> Option<f64> {
    const TRIES: usize = 31;
    const CALLS: usize = 300_000;
    if machine.usable_threads() < 2 {
        return None;
    }
    let work = |selector: &Selector| {
        for _ in 0..CALLS {
            black_box(selector.select(black_box(workload)).is_ok());
        }
    };
    let timed = |selectors: &[&Selector]| {
        let barrier = Barrier::new(selectors.len());
        let thread = |selector: &Selector| {
            work(selector);
            barrier.wait();
            let start = clock.now();
            work(selector);
            clock.now().saturating_sub(start)
        };
        let times: Vec<u64> = std::thread::scope(|scope| {
            let thread = &thread;
            let spawn = |selector| scope.spawn(move || thread(selector));
            let handles: Vec<_> = selectors.iter().copied().map(spawn).collect();
            handles.into_iter().filter_map(|h| h.join().ok()).collect()
        });
        times.into_iter().max().unwrap_or(u64::MAX) as f64
    };
    let ratio = |_| 2.0 * timed(&selectors[..1]) / timed(&selectors);
    Some(median((0..TRIES).map(ratio).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_there_and_nothing_is_free() {
        let machine = kernelwise_probe::machine().with_threads(2);
        fn counted(body: &mut dyn FnMut()) -> u64 {
            body();
            2048
        }
        let hits = hits(&machine, Some(counted)).unwrap();
        for time in [
            hits.hit_ns_p50,
            hits.plan_ns_p50,
            hits.hit_64_kernels_ns_p50,
            hits.hit_many_keys_ns_p50,
            hits.rwlock_ns_p50,
        ] {
            assert!(time > 0.0 && time.is_finite());
        }
        assert!(hits.hit_ns_p75 >= hits.hit_ns_p50);
        assert_eq!(hits.allocs_per_hit, Some(2.0));
        assert!(hits.speedup_2_threads.is_some());
        let alone = machine.with_threads(1);
        let one = settled(&alone, 4).unwrap();
        let clock = TscClock::new();
        let none = speedup([&one, &one], &workload(64).unwrap(), &clock, &alone);
        assert_eq!(none, None);
    }
}
