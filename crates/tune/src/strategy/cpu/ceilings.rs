//! The ceilings of a machine for every number of threads, also those that nobody measured.
//!
//! A calibration measures some numbers of threads. Between two of them rates lie on a line; beyond the last nothing is
//! gained. A machine that was never calibrated has nominal ceilings from what its processor says of itself.

use std::collections::{BTreeMap, BTreeSet};

use kernelwise_types::calibration::{AccessPattern, Bandwidth, ForkJoin, MemoryPlace, Peak};
use kernelwise_types::units::{ByteRate, FlopRate, Nanos};
use kernelwise_types::{Calibration, DType, Machine, Measured};

/// Clock that is assumed where the machine does not tell.
const CLOCK_HZ: f64 = 2e9;
/// Multiply-adds that a core of today begins in a cycle.
const PIPES: f64 = 2.0;
/// Bytes per second and thread that are assumed of caches, and of main memory for all threads together: round figures of servers of
/// the last ten years.
const ASSUMED: [(MemoryPlace, f64); 4] = [
    (MemoryPlace::L1, 1e11),
    (MemoryPlace::L2, 5e10),
    (MemoryPlace::L3, 2e10),
    (MemoryPlace::Dram, 1e10),
];
/// Waking threads: for the first, and for each.
const WAKE_NS: (f64, f64) = (4000.0, 500.0);

/// What was measured, completed for 1 to as many threads as the machine has.
pub(super) fn completed(machine: &Machine, calibration: &Calibration) -> Calibration {
    let mut all = calibration.clone();
    let dtypes: BTreeSet<DType> = calibration.peaks.iter().map(|peak| peak.dtype).collect();
    let places: BTreeSet<(MemoryPlace, AccessPattern)> = calibration
        .bandwidths
        .iter()
        .map(|bandwidth| (bandwidth.place, bandwidth.pattern))
        .collect();
    for threads in 1..=machine.usable_threads() {
        for &dtype in &dtypes {
            let of = calibration.peaks.iter().filter(|peak| peak.dtype == dtype);
            let known = of.map(|peak| (peak.threads, peak.rate.value.get()));
            let rate = between(known, threads).and_then(|rate| FlopRate::new(rate).ok());
            if let (Some(rate), None) = (rate, calibration.peak(dtype, threads)) {
                all.peaks.push(peak(dtype, threads, rate));
            }
        }
        for &(place, pattern) in &places {
            let of = calibration.bandwidths.iter();
            let of = of.filter(|b| (b.place, b.pattern) == (place, pattern));
            let known = of.map(|b| (b.threads, b.rate.value.get()));
            let rate = between(known, threads).and_then(|rate| ByteRate::new(rate).ok());
            let missing = calibration.bandwidth(place, pattern, threads).is_none();
            if let (Some(rate), true) = (rate, missing) {
                all.bandwidths
                    .push(bandwidth(place, pattern, threads, rate));
            }
        }
        for &(place, pattern) in &places {
            let of = calibration.handed_over.iter();
            let of = of.filter(|b| (b.place, b.pattern) == (place, pattern));
            let known = of.map(|b| (b.threads, b.rate.value.get()));
            let rate = between(known, threads).and_then(|rate| ByteRate::new(rate).ok());
            let missing = calibration.handed_over(place, pattern, threads).is_none();
            if let (Some(rate), true) = (rate, missing) {
                all.handed_over
                    .push(bandwidth(place, pattern, threads, rate));
            }
        }
        let known = calibration.fork_joins.iter();
        let known = known.map(|wake| (wake.threads, wake.cost.value.get()));
        let missing = !calibration.fork_joins.iter().any(|w| w.threads == threads);
        let cost = between(known, threads).and_then(|cost| Nanos::new(cost).ok());
        if let (Some(cost), true) = (cost, missing) {
            all.fork_joins.push(wake(threads, cost));
        }
    }
    all
}

/// What the processor says of itself, as ceilings. Guesses, and said to be.
pub(super) fn nominal(machine: &Machine) -> Calibration {
    let clock = machine.cpu.max_frequency.known();
    let clock = clock.map_or(CLOCK_HZ, |clock| clock.get());
    let vector_bytes = f64::from(machine.cpu.vector_bits().unwrap_or(64)) / 8.0;
    let (mut peaks, mut bandwidths, mut fork_joins) = (Vec::new(), Vec::new(), Vec::new());
    for threads in 1..=machine.usable_threads() {
        let many = f64::from(threads);
        for &dtype in DType::ALL {
            let lanes = (vector_bytes / dtype.size() as f64).max(1.0);
            let rate = FlopRate::new(clock * lanes * 2.0 * PIPES * many);
            peaks.extend(rate.map(|rate| peak(dtype, threads, rate)));
        }
        for (place, each) in ASSUMED {
            let shared = if place == MemoryPlace::Dram {
                1.0
            } else {
                many
            };
            for pattern in AccessPattern::ALL {
                let rate = ByteRate::new(each * shared);
                bandwidths.extend(rate.map(|rate| bandwidth(place, pattern, threads, rate)));
            }
        }
        let cost = Nanos::new(WAKE_NS.0 + WAKE_NS.1 * many);
        fork_joins.extend(cost.map(|cost| wake(threads, cost)));
    }
    Calibration {
        peaks,
        bandwidths,
        handed_over: Vec::new(),
        fork_joins,
        timer: nobody(Nanos::from_u64(0)),
        skipped: vec!["nominal: nothing was measured".to_owned()],
    }
}

/// The value at `threads` on the line between the known ones; that of the last beyond it. None below the first.
fn between(known: impl Iterator<Item = (u32, f64)>, threads: u32) -> Option<f64> {
    let known: BTreeMap<u32, f64> = known.collect();
    let (&low, &from) = known.range(..=threads).next_back()?;
    let Some((&high, &to)) = known.range(threads..).next() else {
        return Some(from);
    };
    if low == high {
        return Some(from);
    }
    let part = f64::from(threads - low) / f64::from(high - low);
    Some(from + part * (to - from))
}

/// A figure without samples.
fn nobody<T: Copy>(value: T) -> Measured<T> {
    Measured {
        value,
        low: value,
        high: value,
        samples: 0,
    }
}

fn peak(dtype: DType, threads: u32, rate: FlopRate) -> Peak {
    Peak {
        dtype,
        threads,
        isa: None,
        rate: nobody(rate),
    }
}

fn bandwidth(
    place: MemoryPlace,
    pattern: AccessPattern,
    threads: u32,
    rate: ByteRate,
) -> Bandwidth {
    Bandwidth {
        place,
        pattern,
        threads,
        working_set_bytes: 0,
        rate: nobody(rate),
    }
}

fn wake(threads: u32, cost: Nanos) -> ForkJoin {
    ForkJoin {
        threads,
        cost: nobody(cost),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_threads_between_measured_ones_lie_on_a_line() {
        let machine = kernelwise_probe::machine().with_threads(8);
        let rate = |rate: f64| FlopRate::new(rate).unwrap();
        let copies = |threads, rate| {
            let rate = ByteRate::new(rate).unwrap();
            bandwidth(MemoryPlace::L3, AccessPattern::Copy, threads, rate)
        };
        let calibration = Calibration {
            peaks: vec![
                peak(DType::F32, 1, rate(100.0)),
                peak(DType::F32, 4, rate(340.0)),
            ],
            bandwidths: vec![copies(1, 1000.0)],
            handed_over: vec![copies(2, 1000.0), copies(4, 1400.0)],
            fork_joins: vec![wake(2, Nanos::from_u64(700))],
            timer: nobody(Nanos::from_u64(10)),
            skipped: Vec::new(),
        };
        let all = completed(&machine, &calibration);
        let at = |threads| all.peak(DType::F32, threads).unwrap().rate.value.get();
        assert_eq!(
            [at(1), at(2), at(3), at(4), at(5), at(8)],
            [100.0, 180.0, 260.0, 340.0, 340.0, 340.0]
        );
        assert!(all.peak(DType::F32, 9).is_none() && all.peak(DType::F64, 1).is_none());
        let woken: Vec<u32> = all.fork_joins.iter().map(|wake| wake.threads).collect();
        assert_eq!(woken, [2, 3, 4, 5, 6, 7, 8], "one thread wakes nobody");
        let handed = |threads| {
            let of = all.handed_over(MemoryPlace::L3, AccessPattern::Copy, threads);
            of.map(|one| one.rate.value.get())
        };
        assert_eq!(
            [2, 3, 4, 8].map(handed),
            [1000.0, 1200.0, 1400.0, 1400.0].map(Some)
        );
        assert_eq!(handed(1), None, "one thread gets nothing from others");
    }

    #[test]
    fn nominal_ceilings_follow_the_vectors_of_the_processor() {
        use kernelwise_types::machine::Isa;
        let mut machine = kernelwise_probe::machine().with_threads(2);
        let mut rate = |isa: Vec<Isa>, threads| {
            machine.cpu.isa = isa;
            let peak = nominal(&machine).peak(DType::F32, threads).cloned();
            peak.unwrap().rate.value.get()
        };
        let narrow = rate(vec![Isa::Sse2], 1);
        assert_eq!(rate(vec![Isa::Neon], 1), narrow, "both have 128 bits");
        assert_eq!(rate(vec![Isa::Sse2, Isa::Avx512f], 1), 4.0 * narrow);
        assert_eq!(rate(vec![Isa::Sse2], 2), 2.0 * narrow);
    }
}
