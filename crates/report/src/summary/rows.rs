//! One row of the facts, with what follows from it: size, intensity, rates.

use kernelwise_types::{Estimate, Workload};
use serde::Serialize;

use crate::facts::{KnownBy, Prediction, Row};

/// A time with everything that is said about it. Field names carry units: this is the row of JSON.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Timed<'a> {
    pub(crate) workload: String,
    pub(crate) operation: String,
    pub(crate) dtype: &'static str,
    pub(crate) kernel: &'a str,
    /// What tells the kernel from others of its operation.
    #[serde(skip)]
    pub(crate) variant: &'a str,
    pub(crate) parameters: String,
    pub(crate) size_bytes: u64,
    pub(crate) time_ns: Option<f64>,
    pub(crate) low_ns: Option<f64>,
    pub(crate) high_ns: Option<f64>,
    pub(crate) samples: Option<u64>,
    pub(crate) known_by: KnownBy,
    /// The model, or who said it beforehand.
    pub(crate) source: Option<&'a str>,
    pub(crate) intensity_flop_per_byte: Option<f64>,
    pub(crate) rate_flop_per_s: Option<f64>,
    pub(crate) rate_bytes_per_s: Option<f64>,
    /// Whether no other is faster on this workload, of those known as well.
    pub(crate) fastest: bool,
}

/// Bytes that one call of the workload must move; of an operation that does not say, those of its elements. Workloads are grouped by it.
pub fn size_bytes(workload: &Workload) -> u64 {
    let moved = workload.cost().map(|cost| cost.bytes().0);
    let held = || {
        workload
            .elements()
            .saturating_mul(workload.dtype().size() as u64)
    };
    moved.unwrap_or_else(held).max(1)
}

/// The power of ten of a size in bytes: 3 from 1000 on, 4 from 10 000 on. [`decade_name`](crate::decade_name) says it in words.
pub fn decade(size_bytes: u64) -> u32 {
    size_bytes.max(1).ilog10()
}

/// The operation as lines are named by it; users' own keep their names.
pub(crate) fn operation(workload: &Workload) -> String {
    match workload.operation().name() {
        "custom" => workload.operation().to_string(),
        name => name.to_owned(),
    }
}

impl<'a> Timed<'a> {
    pub(crate) fn of(row: &'a Row) -> Self {
        let Row {
            workload,
            candidate,
            estimate,
        } = row;
        let time = estimate.time();
        let (range, samples, source) = match estimate {
            Estimate::Measured {
                interval_ns,
                samples,
                ..
            } => (*interval_ns, Some(*samples), None),
            Estimate::Modelled {
                interval_ns, model, ..
            } => (Some(*interval_ns), None, Some(model.as_str())),
            Estimate::Prior { source, .. } => (None, None, Some(source.as_str())),
            Estimate::Unknown => (None, None, None),
        };
        let cost = workload.cost();
        let works = cost.filter(|cost| cost.flops.0 > 0);
        Self {
            workload: workload.to_string(),
            operation: operation(workload),
            dtype: workload.dtype().name(),
            kernel: candidate.kernel.as_str(),
            variant: candidate.kernel.variant(),
            parameters: candidate.params.to_string(),
            size_bytes: size_bytes(workload),
            time_ns: time.map(|time| time.get()),
            low_ns: range.map(|range| range.low().get()),
            high_ns: range.map(|range| range.high().get()),
            samples,
            known_by: KnownBy::from(estimate),
            source,
            intensity_flop_per_byte: works.and_then(|cost| cost.intensity()),
            rate_flop_per_s: works
                .zip(time)
                .and_then(|(c, time)| Some(c.flops.per(time)?.get())),
            rate_bytes_per_s: cost
                .zip(time)
                .and_then(|(c, time)| Some(c.bytes().per(time)?.get())),
            fastest: false,
        }
    }
}

/// A prediction beside its measurement, as JSON has it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Foretold<'a> {
    pub(crate) workload: String,
    pub(crate) kernel: &'a str,
    pub(crate) parameters: String,
    pub(crate) size_bytes: u64,
    pub(crate) modelled_ns: f64,
    pub(crate) modelled_low_ns: f64,
    pub(crate) modelled_high_ns: f64,
    pub(crate) measured_ns: f64,
    pub(crate) in_interval: bool,
}

impl<'a> From<&'a Prediction> for Foretold<'a> {
    fn from(one: &'a Prediction) -> Self {
        Self {
            workload: one.workload.to_string(),
            kernel: one.candidate.kernel.as_str(),
            parameters: one.candidate.params.to_string(),
            size_bytes: size_bytes(&one.workload),
            modelled_ns: one.predicted.get(),
            modelled_low_ns: one.interval.low().get(),
            modelled_high_ns: one.interval.high().get(),
            measured_ns: one.measured.get(),
            in_interval: one.interval.low() <= one.measured && one.measured <= one.interval.high(),
        }
    }
}
