use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use kernelwise_measure::{ScriptedClock, TscClock};
use kernelwise_types::Reading;
use kernelwise_types::machine::{Cache, Cpu, Hypervisor, Limits};

use super::*;

pub(super) const MIB: u64 = 1 << 20;

/// A machine with one processor, 64 MiB of memory and these caches: size and sharers of each level.
pub(super) fn machine(caches: &[(u64, u32)]) -> Machine {
    let caches = (1..).zip(caches).map(|(level, &(size, sharers))| Cache {
        level,
        unified: level > 1,
        size_bytes: Bytes(size),
        line_bytes: Reading::Known(64),
        ways: Reading::Known(8),
        shared_by: Reading::Known(sharers),
        instances: Reading::Known(1),
    });
    let untold = "not in this test";
    Machine {
        cpu: Cpu {
            arch: std::env::consts::ARCH.to_owned(),
            vendor: Reading::unknown(untold),
            model: Reading::unknown(untold),
            signature: Reading::unknown(untold),
            logical: 1,
            cores: Reading::Known(1),
            threads_per_core: Reading::Known(1),
            packages: Reading::Known(1),
            isa: Vec::new(),
            tsc: Reading::unknown(untold),
            max_frequency: Reading::unknown(untold),
        },
        caches: Reading::Known(caches.collect()),
        numa: Reading::unknown(untold),
        memory: Reading::Known(Bytes(64 * MIB)),
        limits: Limits {
            affinity: Reading::unknown("test"),
            cpu_quota: Reading::Known(None),
            memory: Reading::Known(None),
        },
        hypervisor: Reading::Known(Hypervisor::None),
        os: std::env::consts::OS.to_owned(),
        kernel: Reading::unknown(untold),
    }
}

/// Small caches, so that all levels are measured in little memory.
fn small() -> Machine {
    machine(&[(16 << 10, 1), (64 << 10, 1), (MIB, 2)])
}

/// The shortest run there is.
fn hasty() -> CalibrateOptions {
    CalibrateOptions {
        budget: Duration::ZERO,
        ..CalibrateOptions::default()
    }
}

fn run(machine: &Machine) -> Calibration {
    let (clock, cancel) = (TscClock::new(), AtomicBool::new(false));
    calibrate(machine, &clock, &hasty(), &mut |_| (), &cancel).unwrap()
}

/// Whether the list of what was skipped speaks of this.
fn skips(calibration: &Calibration, what: &str) -> bool {
    calibration
        .skipped
        .iter()
        .any(|note| note.starts_with(what))
}

fn assert_ceiling<T: Into<f64> + Copy + fmt::Debug>(measured: &Measured<T>) {
    let (value, low, high) = (
        measured.value.into(),
        measured.low.into(),
        measured.high.into(),
    );
    assert!(
        value.is_finite() && 0.0 < low && low <= high && high <= value,
        "{measured:?}"
    );
    assert!(measured.samples as usize >= LEAST_SAMPLES);
}

#[test]
fn every_ceiling_is_measured_or_skipped_with_a_reason() {
    let mut machine = small();
    machine.cpu.logical = 2;
    let calibration = run(&machine);
    // A runner with one processor has no second one to measure.
    let counts: Vec<u32> = if skips(&calibration, "2 threads: ") {
        vec![1]
    } else {
        vec![1, 2]
    };
    for threads in counts {
        for dtype in DType::ALL {
            match calibration.peak(*dtype, threads) {
                Some(peak) => assert_ceiling(&peak.rate),
                None => {
                    let speaks_of = |note: &String| {
                        let names = note
                            .strip_prefix("peak ")
                            .and_then(|n| n.split(": ").next());
                        names.is_some_and(|names| names.split(", ").any(|n| n == dtype.name()))
                    };
                    assert!(calibration.skipped.iter().any(speaks_of), "{dtype}");
                }
            }
        }
        for dtype in peak::MEASURED {
            assert!(calibration.peak(dtype, threads).is_some(), "{dtype}");
        }
        for place in MemoryPlace::ALL {
            for pattern in AccessPattern::ALL {
                let bandwidth = calibration.bandwidth(place, pattern, threads).unwrap();
                assert_ceiling(&bandwidth.rate);
                let limit = match place {
                    MemoryPlace::L1 => 8 << 10,
                    MemoryPlace::L2 => 32 << 10,
                    MemoryPlace::L3 => MIB / 2 / u64::from(threads),
                    MemoryPlace::Dram => 2 * MIB / u64::from(threads),
                };
                let set = bandwidth.working_set_bytes;
                assert!((limit / 2..=limit).contains(&set), "{bandwidth:?}");
            }
        }
        for place in [MemoryPlace::L2, MemoryPlace::L3] {
            for pattern in [AccessPattern::Read, AccessPattern::Copy] {
                let handed = calibration.handed_over(place, pattern, threads);
                assert_eq!(handed.is_some(), threads > 1, "{place} {pattern}");
                assert!(handed.is_none_or(|handed| handed.rate.value.get() > 0.0));
            }
        }
        let join = calibration.fork_joins.iter().find(|j| j.threads == threads);
        assert!(join.unwrap().cost.value.get() > 0.0);
    }
    assert!(calibration.timer.low <= calibration.timer.value);
    assert!(calibration.timer.value <= calibration.timer.high);
}

#[test]
fn the_fastest_instruction_set_is_one_this_processor_has() {
    let calibration = run(&machine(&[]));
    let known: BTreeSet<_> = loops::available().iter().map(|loops| loops.isa()).collect();
    for peak in &calibration.peaks {
        assert!(known.contains(&peak.isa), "{peak:?}");
    }
}

#[test]
fn unknown_caches_leave_out_bandwidth_and_nothing_else() {
    let mut machine = small();
    machine.caches = Reading::unknown("no /sys here");
    let calibration = run(&machine);
    assert!(calibration.bandwidths.is_empty());
    assert_eq!(calibration.peaks.len(), peak::MEASURED.len());
    for place in MemoryPlace::ALL {
        let note = calibration
            .skipped
            .iter()
            .find(|note| note.starts_with(place.name()));
        assert!(note.unwrap().contains("no /sys here"), "{note:?}");
    }
}

#[test]
fn too_little_memory_leaves_out_main_memory_only() {
    let mut machine = small();
    machine.memory = Reading::Known(Bytes(4 * MIB));
    let calibration = run(&machine);
    assert!(skips(&calibration, "dram: 1 MiB may be used"));
    let places: BTreeSet<_> = calibration.bandwidths.iter().map(|b| b.place).collect();
    assert_eq!(
        places.into_iter().collect::<Vec<_>>(),
        [MemoryPlace::L1, MemoryPlace::L2, MemoryPlace::L3]
    );
}

#[test]
fn more_threads_than_processors_are_not_pretended() {
    let mut machine = machine(&[]);
    machine.cpu.logical = 1 << 12;
    let calibration = run(&machine);
    if let Ok(cpus) = crate::pin::allowed() {
        let measured = calibration.peaks.iter().map(|peak| peak.threads).max();
        assert!(measured.unwrap() as usize <= cpus.len());
        assert!(skips(&calibration, "4096 threads: "));
    }
}

#[test]
fn progress_counts_every_visit_in_rounds() {
    let (clock, cancel) = (TscClock::new(), AtomicBool::new(false));
    let mut seen = Vec::new();
    let mut progress = |p: Progress<'_>| seen.push((p.step.to_owned(), p.done, p.total));
    calibrate(&machine(&[]), &clock, &hasty(), &mut progress, &cancel).unwrap();
    // Three peaks, a fork-join and the clock, in every round.
    assert_eq!(seen.len(), 5 * ROUNDS as usize);
    for (index, (step, done, total)) in seen.iter().enumerate() {
        assert_eq!((*done, *total), (index as u32, 5 * ROUNDS));
        assert_eq!(step, &seen[index % 5].0);
    }
    assert_eq!(seen[0].0, "peak f32, 1 thread");
}

#[test]
fn cancelling_ends_the_run_at_the_next_sample() {
    let (clock, cancel) = (TscClock::new(), AtomicBool::new(false));
    let mut visits = 0;
    // A budget nobody would wait for.
    let options = CalibrateOptions {
        budget: Duration::from_secs(1 << 20),
        ..hasty()
    };
    let mut progress = |_: Progress<'_>| {
        visits += 1;
        cancel.store(true, Ordering::Relaxed);
    };
    let result = calibrate(&small(), &clock, &options, &mut progress, &cancel);
    assert!(matches!(result, Err(CalibrateError::Cancelled)));
    assert_eq!(visits, 1);
    let result = calibrate(&small(), &clock, &options, &mut |_| (), &cancel);
    assert!(matches!(result, Err(CalibrateError::Cancelled)));
}

#[test]
fn the_budget_bounds_the_samples() {
    // Every reading takes 1 ms on this clock, so a sample takes one and a budget of 200 ms holds a few
    // hundred readings at most.
    let samples = |budget_ms| {
        let (clock, cancel) = (ScriptedClock::with_cost(1_000_000), AtomicBool::new(false));
        let options = CalibrateOptions {
            budget: Duration::from_millis(budget_ms),
            ..hasty()
        };
        let calibration = calibrate(&machine(&[]), &clock, &options, &mut |_| (), &cancel).unwrap();
        let peaks = calibration.peaks.iter().map(|peak| peak.rate.samples);
        peaks.sum::<u32>()
    };
    let (least, more) = (samples(0), samples(2000));
    assert!(least < more, "{least} and {more} samples");
    assert!(more < 2000, "{more} samples of 1 ms in 2 s");
}

#[test]
fn a_clock_that_stands_still_is_an_error() {
    let (clock, cancel) = (ScriptedClock::new(), AtomicBool::new(false));
    let result = calibrate(&machine(&[]), &clock, &hasty(), &mut |_| (), &cancel);
    match result {
        Err(error @ CalibrateError::ClockStopped { .. }) => assert_eq!(
            error.to_string(),
            "the clock `scripted` does not advance: calibrate with one that does"
        ),
        other => panic!("{other:?}"),
    }
}
