//! What holds a kernel up: arithmetic, a level of memory, the cost of starting, or the machine itself.
//!
//! By the roofline (Williams and others, 2009), in this order:
//!
//! 1. **Unknown** where the work, the time or the peak it would be held against is not known. No peak is made up.
//! 2. **Latency** if starting takes at least half of the time, or if neither arithmetic nor traffic explains a fifth of
//!    what starting leaves of it: then it waits, for one thing after the other.
//! 3. **Compute, cache or memory**: whichever of arithmetic and traffic takes longer at its peak. Traffic is that of the smallest
//!    level that holds what the kernel touches; the last level holds everything, and is memory.
//! 4. **Power or thermal limited** instead of compute or cache, if a sensor says that the clock is held back: these two go with
//!    the clock, memory does not.

use serde::{Deserialize, Serialize};

/// The share of the time from which starting is what holds it up.
const MOSTLY_STARTING: f64 = 0.5;
/// The share of the remaining time that a roof has to explain.
const EXPLAINED: f64 = 0.2;

/// What one run did. All figures are in units, not thousands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Arithmetic operations.
    pub flops: f64,
    /// Bytes read and written.
    pub bytes: f64,
    /// Bytes it touches: what has to fit for a cache to help.
    pub footprint: f64,
    /// The time it took, in nanoseconds.
    pub time_ns: f64,
}

/// A level of memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    /// Its name, as it is reported.
    pub name: String,
    /// What it holds, in bytes.
    pub capacity: f64,
    /// Bytes per nanosecond at the peak; a GB/s is one.
    pub bandwidth: f64,
}

/// What the machine can do, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Peaks {
    /// Operations per nanosecond at the peak for this element type and so many threads.
    pub flops: Option<f64>,
    /// Levels of memory, the nearest first and memory last, whose capacity does not matter.
    pub levels: Vec<Level>,
    /// Nanoseconds to start a run: launch, fork and join.
    pub overhead_ns: f64,
}

/// What sensors say of the clock; `false` as well where there are none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sensors {
    /// It is held back to keep within a power budget.
    pub power_limited: bool,
    /// It is held back because of heat.
    pub thermal_limited: bool,
}

/// What holds a kernel up.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkloadClass {
    /// Arithmetic.
    Compute,
    /// The bandwidth of memory.
    Memory,
    /// The bandwidth of the cache of this name.
    Cache(String),
    /// Starting, or waiting for one thing after the other.
    Latency,
    /// A clock held back by the power budget.
    PowerLimited,
    /// A clock held back by heat.
    ThermalLimited,
    /// Nothing to hold it against.
    Unknown,
}

impl WorkloadClass {
    /// The class of a run on a machine.
    ///
    /// ```
    /// use kernelwise_model::watch::{Level, Peaks, Run, Sensors, WorkloadClass};
    ///
    /// let memory = Level { name: "memory".into(), capacity: f64::INFINITY, bandwidth: 20.0 };
    /// let peaks = Peaks { flops: Some(100.0), levels: vec![memory], overhead_ns: 50.0 };
    /// // y = a x + y of ten million numbers.
    /// let axpy = Run { flops: 2e7, bytes: 1.2e8, footprint: 8e7, time_ns: 7e6 };
    /// assert_eq!(WorkloadClass::of(&axpy, &peaks, Sensors::default()), WorkloadClass::Memory);
    /// ```
    pub fn of(run: &Run, peaks: &Peaks, sensors: Sensors) -> Self {
        Self::tell(run, peaks, sensors).unwrap_or(Self::Unknown)
    }

    fn tell(run: &Run, peaks: &Peaks, sensors: Sensors) -> Option<Self> {
        let known = |value: f64| value >= 0.0 && value.is_finite();
        let work = [run.flops, run.bytes, run.footprint, peaks.overhead_ns];
        if !(work.into_iter().all(known) && known(run.time_ns) && run.time_ns > 0.0) {
            return None;
        }
        if peaks.overhead_ns >= MOSTLY_STARTING * run.time_ns {
            return Some(Self::Latency);
        }
        // Work that is not there takes no time, whatever the peak.
        let needed = |work: f64, peak: Option<f64>| match peak.filter(|peak| *peak > 0.0) {
            _ if work == 0.0 => Some(0.0),
            peak => peak.map(|peak| work / peak).filter(|time| time.is_finite()),
        };
        let place = peaks
            .levels
            .iter()
            .position(|level| run.footprint <= level.capacity);
        let place = place.or(peaks.levels.len().checked_sub(1));
        let level = place.map(|place| &peaks.levels[place]);
        let arithmetic = needed(run.flops, peaks.flops)?;
        let traffic = needed(run.bytes, level.map(|level| level.bandwidth))?;
        let rest = run.time_ns - peaks.overhead_ns;
        if arithmetic.max(traffic) < EXPLAINED * rest {
            return Some(Self::Latency);
        }
        let bound = match level {
            Some(level) if traffic > arithmetic => {
                if place.is_some_and(|place| place + 1 == peaks.levels.len()) {
                    return Some(Self::Memory);
                }
                Self::Cache(level.name.clone())
            }
            _ => Self::Compute,
        };
        Some(match sensors {
            Sensors {
                thermal_limited: true,
                ..
            } => Self::ThermalLimited,
            Sensors {
                power_limited: true,
                ..
            } => Self::PowerLimited,
            _ => bound,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peaks() -> Peaks {
        let level = |name: &str, capacity: f64, bandwidth: f64| Level {
            name: name.to_owned(),
            capacity,
            bandwidth,
        };
        Peaks {
            flops: Some(80.0),
            levels: vec![
                level("L1", 32e3, 200.0),
                level("L2", 512e3, 100.0),
                level("memory", f64::INFINITY, 20.0),
            ],
            overhead_ns: 1000.0,
        }
    }

    fn matmul(n: f64, time_ns: f64) -> Run {
        Run {
            flops: 2.0 * n * n * n,
            bytes: 16.0 * n * n,
            footprint: 12.0 * n * n,
            time_ns,
        }
    }

    /// An operation per number, or more, over `n` numbers read and written.
    fn map(n: f64, flops_each: f64, time_ns: f64) -> Run {
        Run {
            flops: flops_each * n,
            bytes: 8.0 * n,
            footprint: 8.0 * n,
            time_ns,
        }
    }

    #[test]
    fn a_labelled_table() {
        let cache = |name: &str| WorkloadClass::Cache(name.to_owned());
        #[rustfmt::skip]
        let table = [
            ("large matmul", matmul(1000.0, 3e7), WorkloadClass::Compute),
            ("slow matmul", matmul(1000.0, 1.2e8), WorkloadClass::Compute),
            ("tiny matmul", matmul(8.0, 1100.0), WorkloadClass::Latency),
            ("large copy", map(1e7, 0.0, 5e6), WorkloadClass::Memory),
            ("large add", map(1e7, 1.0, 5e6), WorkloadClass::Memory),
            ("add in L2", map(5e4, 1.0, 6000.0), cache("L2")),
            ("many adds in L1", map(4e3, 1.0, 2100.0), WorkloadClass::Latency),
            ("polynomial", map(1e7, 50.0, 8e6), WorkloadClass::Compute),
            ("chased pointers", map(1e7, 1.0, 5e8), WorkloadClass::Latency),
            ("empty", map(0.0, 1.0, 1000.0), WorkloadClass::Latency),
        ];
        for (name, run, class) in table {
            let told = WorkloadClass::of(&run, &peaks(), Sensors::default());
            assert_eq!(told, class, "{name}");
        }
        let free = Peaks {
            overhead_ns: 0.0,
            ..peaks()
        };
        let told = WorkloadClass::of(&map(4e3, 1.0, 200.0), &free, Sensors::default());
        assert_eq!(told, cache("L1"));
    }

    #[test]
    fn the_machine_is_to_blame_only_if_a_sensor_says_so_and_the_clock_matters() {
        let of = |run, power_limited, thermal_limited| {
            let sensors = Sensors {
                power_limited,
                thermal_limited,
            };
            WorkloadClass::of(&run, &peaks(), sensors)
        };
        let (product, copy) = (matmul(1000.0, 3e7), map(1e7, 0.0, 5e6));
        assert_eq!(of(product, false, false), WorkloadClass::Compute);
        assert_eq!(of(product, true, false), WorkloadClass::PowerLimited);
        assert_eq!(of(product, true, true), WorkloadClass::ThermalLimited);
        assert_eq!(
            of(map(5e4, 1.0, 6000.0), true, false),
            WorkloadClass::PowerLimited
        );
        assert_eq!(of(copy, true, true), WorkloadClass::Memory);
    }

    #[test]
    fn without_peaks_or_sense_it_is_unknown() {
        let of = |run: &Run, peaks: &Peaks| WorkloadClass::of(run, peaks, Sensors::default());
        let product = matmul(1000.0, 3e7);
        let no_flops = Peaks {
            flops: None,
            ..peaks()
        };
        assert_eq!(of(&product, &no_flops), WorkloadClass::Unknown);
        // A copy needs none.
        assert_eq!(of(&map(1e7, 0.0, 5e6), &no_flops), WorkloadClass::Memory);
        let no_levels = Peaks {
            levels: Vec::new(),
            ..peaks()
        };
        assert_eq!(of(&product, &no_levels), WorkloadClass::Unknown);
        let zero = Peaks {
            flops: Some(0.0),
            ..peaks()
        };
        assert_eq!(of(&product, &zero), WorkloadClass::Unknown);
        for time_ns in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(of(&matmul(10.0, time_ns), &peaks()), WorkloadClass::Unknown);
        }
        let nan = Run {
            flops: f64::NAN,
            ..product
        };
        assert_eq!(of(&nan, &peaks()), WorkloadClass::Unknown);
    }
}
