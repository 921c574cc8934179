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

#[cfg(test)]
mod tests {
    use kernelwise_types::calibration::{Bandwidth, ForkJoin, Peak};
    use kernelwise_types::units::{ByteRate, FlopRate};
    use kernelwise_types::{DType, KernelSpec, Measured, Needs, Numerics, Technique};

    use super::*;
    use crate::own::OwnKernel;
    use crate::space::{Axis, Knobs};

    crate::knobs! {
        struct Threads {
            threads,
        }
    }

    fn measured<T: Copy>(value: T) -> Measured<T> {
        Measured {
            value,
            low: value,
            high: value,
            samples: 1,
        }
    }

    /// 100 GFLOP/s per thread, 10 GB/s everywhere, 5 us to wake two threads.
    fn calibration() -> Calibration {
        let peak = |threads: u32| Peak {
            dtype: DType::F32,
            threads,
            isa: None,
            rate: measured(FlopRate::new(1e11 * f64::from(threads)).unwrap()),
        };
        let bandwidths = MemoryPlace::ALL.iter().flat_map(|&place| {
            [1, 2].map(|threads| Bandwidth {
                place,
                pattern: AccessPattern::Copy,
                threads,
                working_set_bytes: 1,
                rate: measured(ByteRate::new(1e10).unwrap()),
            })
        });
        Calibration {
            peaks: vec![peak(1), peak(2)],
            bandwidths: bandwidths.collect(),
            fork_joins: vec![ForkJoin {
                threads: 2,
                cost: measured(Nanos::from_u64(5000)),
            }],
            timer: measured(Nanos::from_u64(10)),
            skipped: Vec::new(),
        }
    }

    fn time(hint: Hint, workload: &str, threads: u32) -> f64 {
        let spec = KernelSpec {
            id: "cpu-matmul-f32-mine".parse().unwrap(),
            version: 1,
            technique: Technique::Custom,
            numerics: Numerics::Reordered,
            needs: Needs::default(),
        };
        let kernel = OwnKernel::new(spec, |_, _, _| Ok(()))
            .with_space(|_, _| Space::of::<Threads, 1>([Axis::new(1, [2])]))
            .with_hint(hint);
        let machine = kernelwise_probe::machine();
        let setting = Threads { threads }.setting();
        let workload = workload.parse().unwrap();
        match estimate(&kernel, &workload, &setting, &machine, &calibration()) {
            Estimate::Prior { time_ns, .. } => time_ns.get(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_roofline_is_the_slower_of_arithmetic_and_traffic() {
        // 2 * 512^3 operations at 100 per ns; 3 MiB at 10 bytes per ns are less.
        assert_eq!(
            time(Hint::percent(100), "matmul f32 512x512x512", 1),
            2_684_354.56
        );
        // 2 * 1000 operations are nothing; 2001 numbers of 4 bytes count.
        let dot = time(Hint::percent(100), "matmul f32 1x1000x1", 1);
        assert!((dot - 2001.0 * 4.0 / 10.0).abs() < 1e-9, "{dot}");
        let machine = kernelwise_probe::machine();
        let unknown: Workload = "matmul f64 8x8x8".parse().unwrap();
        let bound = roofline(&unknown, 3, &machine, &calibration());
        assert_eq!(bound, None, "neither rate is known for three threads");
    }

    #[test]
    fn threads_share_the_work_and_cost_their_waking() {
        let one = time(Hint::percent(100), "matmul f32 512x512x512", 1);
        let two = time(Hint::percent(100), "matmul f32 512x512x512", 2);
        assert_eq!(two, one / 2.0 + 5000.0);
    }

    #[test]
    fn a_hint_cannot_promise_more_than_the_machine_has() {
        let at = |percent| time(Hint::percent(percent), "matmul f32 512x512x512", 1);
        assert_eq!(at(200), at(100));
        assert_eq!(at(50), 2.0 * at(100));
        assert_eq!(at(0), at(1));
        let set_up = Hint::percent(100).with_setup(Nanos::from_u64(777));
        assert_eq!(time(set_up, "matmul f32 512x512x512", 1), at(100) + 777.0);
    }

    #[test]
    fn inside_its_best_sizes_a_kernel_is_expected_to_be_faster() {
        let at = |elements| {
            let hint = Hint::percent(100).best_for(elements);
            time(hint, "matmul f32 512x512x512", 1)
        };
        assert!(at(0..=512 * 512) < at(0..=1000));
    }
}
