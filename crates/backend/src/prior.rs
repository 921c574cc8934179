//! What is expected of a kernel before it was ever timed.
//!
//! The roofline of the calibrated machine bounds every kernel; a kernel's author says which part of it the
//! kernel reaches. Both are starting points only: a measurement outweighs them at once.

use std::ops::RangeInclusive;

use kernelwise_types::calibration::{AccessPattern, MemoryPlace};
use kernelwise_types::units::Nanos;
use kernelwise_types::{Calibration, Estimate, Machine, Workload};

use crate::kernel::Kernel;
use crate::space::{Setting, Space};

/// What the author of a kernel expects of it. It cannot claim more than the machine has.
#[derive(Debug, Clone, PartialEq)]
pub struct Hint {
    percent: u8,
    setup: Nanos,
    best_elements: RangeInclusive<u64>,
}

impl Default for Hint {
    /// Half of what the machine can do, at any size, without set-up.
    fn default() -> Self {
        Self::percent(50)
    }
}

impl Hint {
    /// The share of the roofline it reaches, in percent; brought into 1 to 100.
    pub const fn percent(percent: u8) -> Self {
        let percent = match percent {
            0 => 1,
            1..=100 => percent,
            _ => 100,
        };
        Self {
            percent,
            setup: Nanos::from_u64(0),
            best_elements: 0..=u64::MAX,
        }
    }

    /// The same with a cost that every call pays: packing, planning, a table.
    pub const fn with_setup(mut self, setup: Nanos) -> Self {
        self.setup = setup;
        self
    }

    /// The same for a kernel that is at its best when the first output has this many elements.
    pub const fn best_for(mut self, elements: RangeInclusive<u64>) -> Self {
        self.best_elements = elements;
        self
    }
}

/// How much slower than hinted a kernel is taken to be outside the sizes it is best for.
const OUTSIDE: f64 = 1.5;

/// The shortest time this machine needs for a workload with so many threads: arithmetic at its peak or bytes
/// at the bandwidth of the nearest place that holds them, whichever takes longer. `None` where the cost or
/// both rates are unknown.
pub fn roofline(
    workload: &Workload,
    threads: u32,
    machine: &Machine,
    calibration: &Calibration,
) -> Option<Nanos> {
    let cost = workload.cost()?;
    let peak = calibration.peak(workload.dtype(), threads);
    let arithmetic = peak.map(|peak| cost.flops.0 as f64 / peak.rate.value.get() * 1e9);
    let bytes = cost.bytes_read.0 + cost.bytes_written.0;
    let place = nearest(bytes, machine);
    let pattern = if cost.bytes_written.0 == 0 {
        AccessPattern::Read
    } else {
        AccessPattern::Copy
    };
    let bandwidth = calibration.bandwidth(place, pattern, threads);
    let traffic = bandwidth.map(|b| bytes as f64 / b.rate.value.get() * 1e9);
    let time = match (arithmetic, traffic) {
        (Some(a), Some(t)) => a.max(t),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => return None,
    };
    Nanos::new(time).ok()
}

/// The smallest cache that holds so many bytes, or main memory.
fn nearest(bytes: u64, machine: &Machine) -> MemoryPlace {
    let caches = machine.caches.known();
    let holds = |level: u8| {
        let mut data = caches.into_iter().flatten().filter(|c| c.level == level);
        data.any(|cache| cache.size_bytes.0 >= bytes)
    };
    match (holds(1), holds(2), holds(3)) {
        (true, _, _) => MemoryPlace::L1,
        (_, true, _) => MemoryPlace::L2,
        (_, _, true) => MemoryPlace::L3,
        _ => MemoryPlace::Dram,
    }
}

/// How long a kernel should take with this setting, from its hint and the calibrated machine: set-up, the cost
/// of waking the threads, and its share of the roofline. `Unknown` where the machine was not calibrated
/// for it.
pub fn estimate(
    kernel: &dyn Kernel,
    workload: &Workload,
    setting: &Setting,
    machine: &Machine,
    calibration: &Calibration,
) -> Estimate {
    let threads = threads(&kernel.space(workload, machine), setting);
    let Some(bound) = roofline(workload, threads, machine, calibration) else {
        return Estimate::Unknown;
    };
    let hint = kernel.hint();
    let wake = calibration
        .fork_joins
        .iter()
        .find(|fork_join| threads > 1 && fork_join.threads == threads)
        .map_or(0.0, |fork_join| fork_join.cost.value.get());
    let outside = !hint.best_elements.contains(&workload.elements());
    let slowdown = if outside { OUTSIDE } else { 1.0 };
    let time = hint.setup.get() + wake + bound.get() * slowdown * 100.0 / f64::from(hint.percent);
    match Nanos::new(time) {
        Ok(time_ns) => Estimate::Prior {
            time_ns,
            source: "roofline and hint".to_owned(),
        },
        Err(_) => Estimate::Unknown,
    }
}

/// The threads a setting asks for: its parameter of that name, else one.
pub fn threads(space: &Space, setting: &Setting) -> u32 {
    space
        .axes()
        .zip(setting.as_slice())
        .find(|((name, _), _)| *name == "threads")
        .map_or(1, |(_, &threads)| threads.max(1))
}
