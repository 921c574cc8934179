//! What one group of threads asks of its unit, and how long a unit takes for some of them.
//!
//! A unit has several things that are busy at the same time: arithmetic, special functions, the issue of instructions, shared memory, the way
//! to the cache and to memory. Each takes its time; a group is done when the slowest is. How well they overlap depends on how many are
//! there to take turns: a single one loads, waits, computes; with c of them, only a c-th of what is not the slowest is seen. Within a
//! unit subgroups take turns. Where barriers keep a group together, only groups do while waiting for what comes from beyond it.
//!
//! Nothing is busy without enough in flight. A pipeline of latency L and rate r needs L·r operations under way (Little's law);
//! with x times that much it is used x / (1 + x) of the time. That makes the time of c groups `k·(c + h)`: a share that grows with
//! them and a latency that does not.
//!
//! Each of these terms grows with the work and shrinks with residency, so that a larger problem is never predicted to be faster.

use super::device::Gpu;
use super::occupancy::Usage;

/// Clocks until the result of an addition can be used: 4 on Volta and later, 6 before (Jia et al., *Dissecting the NVIDIA Volta GPU
/// Architecture via Microbenchmarking*, 2018).
const ARITHMETIC_LATENCY: f64 = 4.0;
/// The same for shared memory and the first cache: 20 to 30 there.
const NEAR_LATENCY: f64 = 25.0;
/// Seconds until a byte arrives from memory: 400 to 700 ns over the generations there.
const MEMORY_LATENCY: f64 = 500e-9;
/// The same from the last cache: about 200 clocks on Volta and Ampere (Jia et al.).
const CACHE_LATENCY: f64 = 150e-9;
/// Clocks a barrier takes when all have come.
const BARRIER: f64 = 25.0;
/// Bytes per clock between a unit and the last cache (NVIDIA A100 whitepaper, 64 B/clk per multiprocessor).
const PORT: f64 = 64.0;
/// Bytes per clock of shared memory: 32 banks of 4 bytes.
pub(super) const SHARED_PER_CLOCK: f64 = 128.0;
/// Where the rate of the last cache is not published: this many times that of memory. V100 has 3.5, A100 4.6.
const CACHE_OVER_MEMORY: f64 = 3.0;

/// What one group asks of its unit. Counts are for the whole group, idle threads of the last subgroup included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Demand {
    /// Threads, registers, shared memory.
    pub(super) usage: Usage,
    /// Results of arithmetic, a multiply-add being one.
    pub(super) results: f64,
    /// Results of arithmetic per instruction and subgroup: the subgroup, or more on matrix units.
    pub(super) results_per_instruction: f64,
    /// Results of special functions.
    pub(super) specials: f64,
    /// Instructions of subgroups that are neither arithmetic nor access.
    pub(super) overhead: f64,
    /// Accesses of subgroups to shared memory or the first cache: instructions, and the clocks they take.
    pub(super) accesses: f64,
    /// Clocks of those accesses, conflicts included.
    pub(super) access_clocks: f64,
    /// Barriers.
    pub(super) barriers: f64,
    /// Bytes that come from the last cache or go there.
    pub(super) cache_bytes: f64,
    /// Bytes that come from memory or go there.
    pub(super) memory_bytes: f64,
    /// Independent results a thread has under way.
    pub(super) parallel: f64,
    /// Bytes a thread has on their way from beyond its unit.
    pub(super) in_flight: f64,
}

/// The rates of a device that times are made from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rates {
    units: f64,
    clock: f64,
    /// Results per clock of a unit in the arithmetic at hand.
    results: f64,
    special: f64,
    issue: f64,
    subgroup: f64,
    memory: f64,
    cache: f64,
}

impl Rates {
    /// Those of a device; `None` where one of them is unknown. `results` is [`Gpu::results_per_clock`] of the element type; `near` is
    /// whether operands are in the last cache.
    pub(super) fn of(gpu: &Gpu, results: f64, near: bool) -> Option<Self> {
        let lanes = gpu.lanes?;
        let subgroup = f64::from(gpu.subgroup.max(1));
        // One instruction per clock and partition; at least as many as keep the lanes busy.
        let partitions = gpu.residency.map_or(1.0, |unit| f64::from(unit.partitions));
        let memory = gpu.bandwidth()?;
        Some(Self {
            units: f64::from(gpu.units?),
            clock: gpu.clock_hz()?,
            results,
            special: f64::from(lanes.special),
            issue: partitions.max(f64::from(lanes.f32) / subgroup),
            subgroup,
            memory: gpu.cache_bandwidth().filter(|_| near).unwrap_or(memory),
            cache: gpu.cache_bandwidth().unwrap_or(CACHE_OVER_MEMORY * memory),
        })
    }

    /// Rates in the proportions that GPUs have, to put launches in order where the device's own are unknown. No time made from
    /// them is ever told.
    pub(super) fn nominal(subgroup: u32) -> Self {
        Self {
            units: 16.0,
            clock: 1e9,
            results: 128.0,
            special: 32.0,
            issue: 4.0,
            subgroup: f64::from(subgroup.max(1)),
            memory: 200e9,
            cache: CACHE_OVER_MEMORY * 200e9,
        }
    }

    /// Seconds that moving some bytes more takes, whoever moves them.
    pub(super) fn moving(&self, bytes: f64) -> f64 {
        bytes / self.memory
    }

    /// Seconds for `groups` groups of which a unit holds `held`.
    pub(super) fn seconds(&self, demand: &Demand, groups: f64, held: u32) -> f64 {
        let busy = groups.min(self.units).max(1.0);
        // The unit that has most to do decides.
        let most = (groups / self.units).ceil().max(1.0);
        let held = f64::from(held.max(1));
        if most <= held {
            self.round(demand, most, busy)
        } else {
            self.round(demand, held, busy) * most / held
        }
    }

    /// Seconds for `together` groups on each of `busy` units; more of them never take less.
    fn round(&self, demand: &Demand, together: f64, busy: f64) -> f64 {
        let counts = 1..=(together as u32).clamp(1, 64);
        let times = counts.map(|count| self.at_once(demand, f64::from(count), busy));
        times.fold(0.0, f64::max)
    }

    /// Seconds for exactly `count` groups at once.
    fn at_once(&self, demand: &Demand, count: f64, busy: f64) -> f64 {
        let threads = f64::from(demand.usage.threads);
        let subgroups = (threads / self.subgroup).ceil();
        // Time of a pipeline: `work` clocks per group, and what is under way against what would fill it.
        let pipeline = |work: f64, latency: f64, rate: f64, under_way: f64| {
            work * (count + latency * rate / under_way.max(1e-9))
        };
        let arithmetic = pipeline(
            demand.results / self.results,
            ARITHMETIC_LATENCY,
            self.results / demand.results_per_instruction,
            subgroups * demand.parallel,
        );
        let special = count * demand.specials / self.special;
        let instructions = demand.results / demand.results_per_instruction
            + demand.specials / self.subgroup
            + demand.overhead
            + demand.accesses;
        let issue = count * instructions / self.issue;
        let near = pipeline(
            demand.access_clocks,
            NEAR_LATENCY,
            1.0,
            subgroups * demand.parallel.sqrt().max(1.0),
        );
        let barriers = demand.barriers * BARRIER;
        // What all busy units can draw together, and one alone.
        let port = PORT * self.clock;
        let beyond = |bytes: f64, rate: f64, latency: f64| {
            let share = (rate / busy).min(port);
            let waits = latency * bytes / (threads * demand.in_flight).max(1e-9);
            bytes * count / share + waits
        };
        let clocks = [arithmetic, special, issue, near];
        let [arithmetic, special, issue, near] = clocks.map(|clocks| clocks / self.clock);
        let cache = beyond(demand.cache_bytes, self.cache, CACHE_LATENCY);
        let memory = beyond(demand.memory_bytes, self.memory, MEMORY_LATENCY);
        let here = [arithmetic.max(special), issue, near];
        let slowest = here.into_iter().fold(0.0, f64::max);
        let others = here.into_iter().sum::<f64>() - slowest;
        let here = slowest + others / (count * subgroups);
        let away = cache.max(memory);
        // Behind a barrier all threads of a group wait for what comes from away; without one, each subgroup for its own.
        let overlap = if demand.barriers > 0.0 {
            count
        } else {
            count * subgroups
        };
        here.max(away) + (here.min(away) + barriers / self.clock) / overlap
    }
}
