//! What holds a kernel up on a workload: its [class](WorkloadClass), from the time it takes and what the calibrated machine can do.

use kernelwise_model::watch::{Level, Peaks, Run, Sensors, WorkloadClass};
use kernelwise_types::calibration::{AccessPattern, MemoryPlace};
use kernelwise_types::state::PowerMode;
use kernelwise_types::{Calibration, Machine, SystemState, Workload};

/// What holds a run up that takes so long on so many threads. The state of the machine, if anybody looked, tells whether its clock is
/// held back: by heat, if the processor counted that it throttled itself, or by the power budget, if the machine is set to save
/// power and runs below nine tenths of its highest clock.
pub fn bound(
    workload: &Workload,
    time_ns: f64,
    threads: u32,
    machine: &Machine,
    calibration: &Calibration,
    state: Option<&SystemState>,
) -> WorkloadClass {
    let Some(cost) = workload.cost() else {
        return WorkloadClass::Unknown;
    };
    let bytes = (cost.bytes_read.0 + cost.bytes_written.0) as f64;
    let run = Run {
        flops: cost.flops.0 as f64,
        bytes,
        // Every byte is counted once, so this is what it touches as well.
        footprint: bytes,
        time_ns,
    };
    let peak = calibration.peak(workload.dtype(), threads);
    let fork_join = calibration.fork_joins.iter();
    let mut fork_join = fork_join.filter(|cost| threads > 1 && cost.threads == threads);
    let peaks = Peaks {
        flops: peak.map(|peak| peak.rate.value.get() / 1e9),
        levels: levels(cost.bytes_written.0 == 0, threads, machine, calibration),
        overhead_ns: fork_join.next().map_or(0.0, |cost| cost.cost.value.get()),
    };
    let throttled = state.and_then(|state| state.throttling.known().copied());
    let sensors = Sensors {
        thermal_limited: throttled.unwrap_or(false),
        power_limited: state.is_some_and(|state| is_power_limited(state, machine)),
    };
    WorkloadClass::of(&run, &peaks, sensors)
}

/// A clock below this share of the highest is held back.
const HELD_BACK: f64 = 0.9;

/// Whether the machine is set to save power, and its clock is lower than it could be. What the package draws is no evidence: the
/// limit that it would have to be held against is not readable without privileges.
fn is_power_limited(state: &SystemState, machine: &Machine) -> bool {
    let saves = state.power_mode.known() == Some(&PowerMode::PowerSave);
    let highest = machine.cpu.max_frequency.known();
    let clock = state.frequency.known().zip(highest);
    saves && clock.is_some_and(|(clock, highest)| clock.get() < HELD_BACK * highest.get())
}

/// The levels of memory whose bandwidth was measured, the nearest first.
fn levels(
    only_read: bool,
    threads: u32,
    machine: &Machine,
    calibration: &Calibration,
) -> Vec<Level> {
    let pattern = match only_read {
        true => AccessPattern::Read,
        false => AccessPattern::Copy,
    };
    let places = [
        (MemoryPlace::L1, Some(1)),
        (MemoryPlace::L2, Some(2)),
        (MemoryPlace::L3, Some(3)),
        (MemoryPlace::Dram, None),
    ];
    let caches = machine.caches.known();
    let capacity = |level: u8| {
        let of_level = caches.into_iter().flatten().filter(|c| c.level == level);
        of_level.map(|cache| cache.size_bytes.0).max()
    };
    let level = |(place, number): (MemoryPlace, Option<u8>)| {
        let bandwidth = calibration.bandwidth(place, pattern, threads)?;
        Some(Level {
            name: format!("{place:?}").to_lowercase(),
            capacity: match number {
                Some(number) => capacity(number)? as f64,
                None => f64::INFINITY,
            },
            bandwidth: bandwidth.rate.value.get() / 1e9,
        })
    };
    places.into_iter().filter_map(level).collect()
}

/// A class in words.
pub fn words(class: &WorkloadClass) -> String {
    match class {
        WorkloadClass::Compute => "arithmetic".to_owned(),
        WorkloadClass::Memory => "the bandwidth of memory".to_owned(),
        WorkloadClass::Cache(name) => format!("the bandwidth of the {name} cache"),
        WorkloadClass::Latency => "starting, or waiting for one thing after the other".to_owned(),
        WorkloadClass::PowerLimited => "a clock held back by the power budget".to_owned(),
        WorkloadClass::ThermalLimited => "a clock held back by heat".to_owned(),
        _ => "unknown".to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use kernelwise_types::calibration::{Bandwidth, ForkJoin, Peak};
    use kernelwise_types::units::{ByteRate, FlopRate, Nanos};
    use kernelwise_types::{DType, Measured};

    use super::*;

    fn measured<T: Copy>(value: T) -> Measured<T> {
        Measured {
            value,
            low: value,
            high: value,
            samples: 1,
        }
    }

    /// 100 GFLOP/s, caches of 100 GB/s, memory of 10 GB/s, 5 us to wake two threads.
    fn calibration() -> Calibration {
        let bandwidth = |place: MemoryPlace, threads: u32| {
            let rate = if place == MemoryPlace::Dram {
                1e10
            } else {
                1e11
            };
            [AccessPattern::Read, AccessPattern::Copy].map(|pattern| Bandwidth {
                place,
                pattern,
                threads,
                working_set_bytes: 1,
                rate: measured(ByteRate::new(rate).unwrap()),
            })
        };
        let places = MemoryPlace::ALL.iter();
        Calibration {
            peaks: vec![Peak {
                dtype: DType::F32,
                threads: 1,
                isa: None,
                rate: measured(FlopRate::new(1e11).unwrap()),
            }],
            bandwidths: places
                .flat_map(|place| [1, 2].map(|threads| bandwidth(*place, threads)))
                .flatten()
                .collect(),
            handed_over: Vec::new(),
            fork_joins: vec![ForkJoin {
                threads: 2,
                cost: measured(Nanos::from_u64(5000)),
            }],
            timer: measured(Nanos::from_u64(10)),
            skipped: Vec::new(),
        }
    }

    #[test]
    fn classes_follow_from_work_time_and_the_machine() {
        let machine = kernelwise_probe::machine();
        let of = |text: &str, time_ns: f64, threads| {
            let workload: Workload = text.parse().unwrap();
            bound(&workload, time_ns, threads, &machine, &calibration(), None)
        };
        // 2 * 1000^3 operations at 100 per ns are 20 ms.
        assert_eq!(
            of("matmul f32 1000x1000x1000", 2.5e7, 1),
            WorkloadClass::Compute
        );
        // 800 MB at 10 per ns are 80 ms.
        assert_eq!(of("copy f32 100000000", 9e7, 1), WorkloadClass::Memory);
        // 8 kB at 100 per ns are 80 ns.
        let near = of("copy f32 1000", 100.0, 1);
        assert!(
            matches!(&near, WorkloadClass::Cache(name) if name == "l1"),
            "{near:?}"
        );
        // Twenty times what either would need.
        assert_eq!(of("copy f32 1000", 2000.0, 1), WorkloadClass::Latency);
        // Waking the second thread takes more than half of it.
        assert_eq!(of("copy f32 1000", 6000.0, 2), WorkloadClass::Latency);
        // Nothing was calibrated for three threads.
        assert_eq!(of("copy f32 1000", 100.0, 3), WorkloadClass::Unknown);
        let all = [near, WorkloadClass::Unknown, WorkloadClass::Memory];
        let told: Vec<String> = all.iter().map(words).collect();
        assert_eq!(
            told,
            [
                "the bandwidth of the l1 cache",
                "unknown",
                "the bandwidth of memory"
            ]
        );
    }

    #[test]
    fn a_clock_held_back_is_told_with_what_holds_it() {
        use kernelwise_types::Reading;
        use kernelwise_types::units::Hertz;
        let mut machine = kernelwise_probe::machine();
        machine.cpu.max_frequency = Reading::Known(Hertz::new(4e9).unwrap());
        let options = kernelwise_probe::SamplerOptions::default();
        let sampler = kernelwise_probe::Sampler::start(options).unwrap();
        let mut state = sampler.look().state.clone();
        let workload: Workload = "matmul f32 1000x1000x1000".parse().unwrap();
        let of =
            |state: &SystemState| bound(&workload, 2.5e7, 1, &machine, &calibration(), Some(state));
        state.throttling = Reading::Known(true);
        assert_eq!(of(&state), WorkloadClass::ThermalLimited);
        state.throttling = Reading::Known(false);
        let at = |state: &mut SystemState, clock: f64, mode: PowerMode| {
            state.frequency = Reading::Known(Hertz::new(clock).unwrap());
            state.power_mode = Reading::Known(mode);
            of(state)
        };
        let saving = at(&mut state, 2e9, PowerMode::PowerSave);
        assert_eq!(saving, WorkloadClass::PowerLimited);
        // At its highest clock nothing is held back, and a low clock alone says nothing.
        for (clock, mode) in [(4e9, PowerMode::PowerSave), (2e9, PowerMode::Balanced)] {
            assert_eq!(at(&mut state, clock, mode), WorkloadClass::Compute);
        }
    }
}
