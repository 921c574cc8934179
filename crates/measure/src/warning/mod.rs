//! Doubts as values: what may have spoilt a measurement, with the numbers that say so.
//!
//! A warning never changes a result; it travels with it. Each has its evidence, a threshold that is
//! written here once, and advice. What the machine does not tell gives no warning: an unreadable
//! sensor is reported where sensors are, not as a doubt about the samples.

use std::fmt;

use kernelwise_types::state::PowerMode;
use kernelwise_types::units::{Hertz, Nanos, Share};
use kernelwise_types::{Reading, SystemState};
use serde::Serialize;

use crate::clock::ClockFacts;
use crate::sampler::Entry;
use crate::stats::{MAD_TO_SIGMA, Summary};

#[cfg(test)]
mod tests;

/// A relative change of the core clock larger than this is worth a warning.
pub const FREQUENCY_CHANGE: f64 = 0.05;
/// Steal above this share means the hypervisor gave our time to others.
pub const STEAL: f64 = 0.02;
/// Pressure above this share means tasks waited for the resource.
pub const PRESSURE: f64 = 0.10;
/// Distance from the median, in robust standard deviations, from which a sample is an outlier.
pub const OUTLIER_SIGMAS: f64 = 5.0;
/// An outlier is at least this much above the median, however quiet the others were.
pub const OUTLIER_MARGIN: f64 = 0.10;
/// Outliers above this share of the samples are worth a warning; rarer ones are everyday.
pub const OUTLIER_SHARE: f64 = 0.05;
/// Quartiles farther apart than this, relative to the median, mean the machine has several speeds.
pub const SPREAD: f64 = 0.20;
/// The clock's error should stay below this share of a sample.
pub const CLOCK_SHARE: f64 = 0.01;
/// Fewer samples than this carry no quartiles worth the name.
pub const FEW_SAMPLES: usize = 10;

/// A resource that tasks may have to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Processors.
    Cpu,
    /// Memory.
    Memory,
    /// Input and output.
    Io,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "a processor",
            Self::Memory => "memory",
            Self::Io => "input or output",
        })
    }
}

/// A reason to doubt a measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Warning {
    /// Others' work and the threads to be measured do not fit the processors together.
    Load {
        /// Load average over one minute before the measurement.
        load_1min: f64,
        /// Threads the measured code uses.
        threads: u32,
        /// Processors there are.
        processors: u32,
    },
    /// The processor throttled itself during the measurement.
    Throttling,
    /// The core clock changed during the measurement.
    FrequencyChange {
        /// Mean clock before.
        before_hz: Hertz,
        /// Mean clock after.
        after_hz: Hertz,
    },
    /// The hypervisor gave time to other guests.
    Steal {
        /// Share of the measurement.
        share: Share,
    },
    /// Tasks waited for a resource.
    Pressure {
        /// Which resource.
        resource: Resource,
        /// Share of the time in which some task waited, the worse of before and after.
        share: Share,
    },
    /// The machine is set to save power.
    PowerSave,
    /// The machine runs from its battery.
    OnBattery,
    /// Too many samples lie far above the rest.
    Outliers {
        /// How many.
        count: usize,
        /// Of how many samples.
        of: usize,
        /// The largest sample divided by the median.
        worst_ratio: f64,
    },
    /// The bulk of the samples is spread out, as by a machine with more than one speed.
    Spread {
        /// Distance of the quartiles relative to the median.
        relative: f64,
    },
    /// The samples are too short for the clock.
    ClockCost {
        /// Error of the clock.
        error_ns: f64,
        /// Median duration of a sample, all calls of its batch together.
        sample_ns: f64,
    },
    /// There are too few samples.
    TooFewSamples {
        /// How many there are.
        n: usize,
    },
    /// Threads other than the calling one worked, and its clock of processor time cannot see them.
    HelperThreads {
        /// Processor time of the calling thread.
        thread_ns: u64,
        /// Processor time of the process meanwhile.
        process_ns: u64,
    },
}

impl Warning {
    /// Doubts that the state of the machine before and after raises about code of `threads` threads on
    /// `processors` processors. `before` should be taken shortly before the first sample: the shares
    /// in `after` then cover the measurement.
    pub fn from_states(
        before: &SystemState,
        after: &SystemState,
        threads: u32,
        processors: u32,
    ) -> Vec<Self> {
        let load = before.load_1min.known().and_then(|&load_1min| {
            (load_1min + f64::from(threads) > f64::from(processors)).then_some(Self::Load {
                load_1min,
                threads,
                processors,
            })
        });
        let throttled = (after.throttling == Reading::Known(true)).then_some(Self::Throttling);
        let frequency = both(&before.frequency, &after.frequency).and_then(|(before, after)| {
            let change = (after.get() - before.get()).abs();
            (change > FREQUENCY_CHANGE * before.get()).then_some(Self::FrequencyChange {
                before_hz: before,
                after_hz: after,
            })
        });
        let steal = after
            .steal
            .known()
            .and_then(|&share| (share.get() > STEAL).then_some(Self::Steal { share }));
        let pressures = [
            (Resource::Cpu, &before.cpu_pressure, &after.cpu_pressure),
            (
                Resource::Memory,
                &before.memory_pressure,
                &after.memory_pressure,
            ),
            (Resource::Io, &before.io_pressure, &after.io_pressure),
        ];
        let pressures = pressures
            .into_iter()
            .filter_map(|(resource, before, after)| {
                let known = [before, after].into_iter().filter_map(Reading::known);
                let share = *known.max_by(|a, b| a.get().total_cmp(&b.get()))?;
                (share.get() > PRESSURE).then_some(Self::Pressure { resource, share })
            });
        let saving =
            (after.power_mode == Reading::Known(PowerMode::PowerSave)).then_some(Self::PowerSave);
        let battery = after
            .battery
            .known()
            .and_then(|battery| battery.discharging.then_some(Self::OnBattery));
        [load, throttled, frequency, steal, saving, battery]
            .into_iter()
            .flatten()
            .chain(pressures)
            .collect()
    }

    /// Doubts that the samples of one contender raise about themselves.
    pub fn from_entry(entry: &Entry, clock: &ClockFacts) -> Vec<Self> {
        let few = (entry.samples_ns.len() < FEW_SAMPLES).then_some(Self::TooFewSamples {
            n: entry.samples_ns.len(),
        });
        let about_summary = entry.summary_ns.iter().flat_map(|summary| {
            let sample_ns = summary.median * entry.batch as f64;
            let error_ns = clock.error_ns();
            let cost = (error_ns > CLOCK_SHARE * sample_ns).then_some(Self::ClockCost {
                error_ns,
                sample_ns,
            });
            let spread = summary
                .relative_spread()
                .and_then(|relative| (relative > SPREAD).then_some(Self::Spread { relative }));
            let outliers = outliers(&entry.samples_ns, summary);
            [cost, spread, outliers].into_iter().flatten()
        });
        few.into_iter().chain(about_summary).collect()
    }

    /// What the reader can do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Load { .. } => "stop other work, measure fewer threads, or use thread CPU time",
            Self::Throttling => "let the machine cool down and measure again",
            Self::FrequencyChange { .. } => {
                "fix the clock (performance governor, no boost) or compare only within this run"
            }
            Self::Steal { .. } => {
                "measure on a machine of your own, or when its neighbours are quiet"
            }
            Self::Pressure { resource, .. } => match resource {
                Resource::Cpu => "stop other work on this machine",
                Resource::Memory => "free memory before measuring: the machine may be swapping",
                Resource::Io => "wait until the disks are quiet",
            },
            Self::PowerSave => "switch the power profile to performance",
            Self::OnBattery => "connect the machine to the mains",
            Self::Outliers { .. } => {
                "trust the lower quartile, not the mean; look for periodic work on this machine"
            }
            Self::Spread { .. } => "pin the threads, and trust only comparisons within this run",
            Self::ClockCost { .. } => "raise the shortest sample or the sample timeout",
            Self::TooFewSamples { .. } => "raise the time budget or the number of rounds",
            Self::HelperThreads { .. } => "measure wall time: thread CPU time misses the helpers",
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = |ns: f64| Reading::from(Nanos::new(ns));
        match self {
            Self::Load {
                load_1min,
                threads,
                processors,
            } => write!(
                f,
                "a load of {load_1min:.1} and {threads} measured threads share {processors} processors"
            ),
            Self::Throttling => f.write_str("the processor throttled itself"),
            Self::FrequencyChange {
                before_hz,
                after_hz,
            } => {
                write!(f, "the core clock went from {before_hz} to {after_hz}")
            }
            Self::Steal { share } => write!(f, "the hypervisor gave {share} of the time to others"),
            Self::Pressure { resource, share } => {
                write!(f, "tasks waited for {resource} in {share} of the time")
            }
            Self::PowerSave => f.write_str("the machine is set to save power"),
            Self::OnBattery => f.write_str("the machine runs from its battery"),
            Self::Outliers {
                count,
                of,
                worst_ratio,
            } => write!(
                f,
                "{count} of {of} samples are outliers, the worst {worst_ratio:.1} times the median"
            ),
            Self::Spread { relative } => write!(
                f,
                "the middle half of the samples spreads over {:.0} % of the median",
                relative * 100.0
            ),
            Self::ClockCost {
                error_ns,
                sample_ns,
            } => write!(
                f,
                "samples of {} are short for a clock that errs by {}",
                nanos(*sample_ns),
                nanos(*error_ns)
            ),
            Self::TooFewSamples { n } => {
                write!(f, "{n} samples are few: {FEW_SAMPLES} or more are wanted")
            }
            Self::HelperThreads {
                thread_ns,
                process_ns,
            } => write!(
                f,
                "the process computed for {} while the measured thread did for {}",
                Nanos::from_u64(*process_ns),
                Nanos::from_u64(*thread_ns)
            ),
        }
    }
}

/// Both values, if both are known.
fn both<T: Copy>(a: &Reading<T>, b: &Reading<T>) -> Option<(T, T)> {
    Some((*a.known()?, *b.known()?))
}

fn outliers(samples: &[f64], summary: &Summary) -> Option<Warning> {
    let distance =
        (OUTLIER_SIGMAS * MAD_TO_SIGMA * summary.mad).max(OUTLIER_MARGIN * summary.median);
    let limit = summary.median + distance;
    let count = samples.iter().filter(|&&sample| sample > limit).count();
    (count as f64 > OUTLIER_SHARE * summary.n as f64).then_some(Warning::Outliers {
        count,
        of: summary.n,
        worst_ratio: summary.max / summary.median,
    })
}
