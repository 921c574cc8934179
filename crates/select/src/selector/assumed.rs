//! A machine to compare hints on, where the real one was not calibrated.
//!
//! A kernel's author says which part of the machine it reaches. Without a calibration that is no time, but still an order: who
//! is said to reach more, on the same work and with the same threads, is tried first. The rates here are round numbers of a
//! common processor; nobody is told them, and the first measurement replaces their scale.

use kernelwise_types::calibration::{AccessPattern, Bandwidth, ForkJoin, MemoryPlace, Peak};
use kernelwise_types::units::{ByteRate, FlopRate, Nanos};
use kernelwise_types::{Calibration, DType, Machine, Measured};

/// Operations a second on one thread.
const PEAK: f64 = 5e10;
/// Bytes a second on one thread, from the nearest place to the farthest.
const BANDWIDTHS: [f64; 4] = [1e11, 5e10, 2.5e10, 1e10];
/// What threads cost, on the safe side: they may be asleep.
const FORK_JOIN: Nanos = Nanos::from_u64(10_000);

/// The assumed machine, with the threads of the real one.
pub(super) fn assumed(machine: &Machine) -> Calibration {
    let threads = 1..=machine.usable_threads();
    let rates = |threads: u32| FlopRate::new(PEAK * f64::from(threads)).ok();
    let peaks = threads.clone().flat_map(|threads| {
        let peak = move |dtype: &DType| {
            Some(Peak {
                dtype: *dtype,
                threads,
                isa: None,
                rate: exactly(rates(threads)?),
            })
        };
        DType::ALL.iter().filter_map(peak)
    });
    let places = MemoryPlace::ALL.into_iter().zip(BANDWIDTHS);
    let bandwidths = places.flat_map(|(place, rate)| {
        let patterns = [AccessPattern::Read, AccessPattern::Copy];
        let threads = threads.clone();
        patterns.into_iter().flat_map(move |pattern| {
            threads.clone().filter_map(move |threads| {
                // Memory is shared; caches are each core's own.
                let cores = if place == MemoryPlace::Dram {
                    1
                } else {
                    threads
                };
                Some(Bandwidth {
                    place,
                    pattern,
                    threads,
                    working_set_bytes: 1,
                    rate: exactly(ByteRate::new(rate * f64::from(cores)).ok()?),
                })
            })
        })
    });
    let fork_joins = threads.clone().map(|threads| ForkJoin {
        threads,
        cost: exactly(FORK_JOIN),
    });
    Calibration {
        peaks: peaks.collect(),
        bandwidths: bandwidths.collect(),
        handed_over: Vec::new(),
        fork_joins: fork_joins.collect(),
        timer: exactly(Nanos::from_u64(10)),
        skipped: Vec::new(),
    }
}

fn exactly<T: Copy>(value: T) -> Measured<T> {
    Measured {
        value,
        low: value,
        high: value,
        samples: 0,
    }
}
