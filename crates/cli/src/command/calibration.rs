//! The calibration as it is printed: one flat name per figure, such as `peak_gflops_f32_1t`.
//!
//! Flat, because scripts ask for one figure at a time; the unit and the conditions are in the name.

use std::collections::BTreeMap;

use kernelwise_types::calibration::{AccessPattern, Bandwidth, MemoryPlace};
use kernelwise_types::{Calibration, Measured};
use serde::Serialize;

use crate::output;

const GIGA: f64 = 1e9;
const MICRO_IN_NANOS: f64 = 1e3;

/// A calibration in JSON.
#[derive(Serialize)]
pub(crate) struct Document {
    #[serde(flatten)]
    figures: BTreeMap<String, Figure>,
    /// What could not be calibrated, and why.
    skipped: Vec<String>,
}

/// One figure with its spread.
#[derive(Serialize)]
struct Figure {
    value: f64,
    /// Lower quartile of the samples.
    low: f64,
    /// Upper quartile of the samples.
    high: f64,
    /// Distance of the quartiles over the value.
    spread: f64,
    samples: u32,
    threads: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    isa: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    working_set_bytes: Option<u64>,
}

impl Figure {
    fn new<T: Into<f64> + Copy>(measured: &Measured<T>, unit: f64, threads: u32) -> Self {
        let scaled = |value: T| value.into() / unit;
        Self {
            value: scaled(measured.value),
            low: scaled(measured.low),
            high: scaled(measured.high),
            spread: measured.spread(),
            samples: measured.samples,
            threads,
            isa: None,
            working_set_bytes: None,
        }
    }

    fn of_bandwidth(bandwidth: &Bandwidth) -> Self {
        let figure = Self::new(&bandwidth.rate, GIGA, bandwidth.threads);
        Self {
            working_set_bytes: Some(bandwidth.working_set_bytes),
            ..figure
        }
    }
}

/// Names every figure. `dram_read_gbps` without a thread count is the best over all counts: the ceiling
/// of the machine. `forkjoin_us` is that of the largest pool.
pub(crate) fn document(calibration: &Calibration) -> Document {
    let mut figures = BTreeMap::new();
    for peak in &calibration.peaks {
        let figure = Figure::new(&peak.rate, GIGA, peak.threads);
        let isa = Some(peak.isa.map_or("portable", |isa| isa.name()));
        let name = format!("peak_gflops_{}_{}t", peak.dtype, peak.threads);
        figures.insert(name, Figure { isa, ..figure });
    }
    for bandwidth in &calibration.bandwidths {
        let Bandwidth {
            place,
            pattern,
            threads,
            ..
        } = bandwidth;
        figures.insert(
            format!("{place}_{pattern}_gbps_{threads}t"),
            Figure::of_bandwidth(bandwidth),
        );
    }
    for place in MemoryPlace::ALL {
        for pattern in AccessPattern::ALL {
            if let Some(best) = calibration.best_bandwidth(place, pattern) {
                figures.insert(
                    format!("{place}_{pattern}_gbps"),
                    Figure::of_bandwidth(best),
                );
            }
        }
    }
    for bandwidth in &calibration.handed_over {
        let (place, pattern, threads) = (bandwidth.place, bandwidth.pattern, bandwidth.threads);
        figures.insert(
            format!("{place}_{pattern}_handed_over_gbps_{threads}t"),
            Figure::of_bandwidth(bandwidth),
        );
    }
    for fork_join in &calibration.fork_joins {
        let figure = || Figure::new(&fork_join.cost, MICRO_IN_NANOS, fork_join.threads);
        figures.insert(format!("forkjoin_us_{}t", fork_join.threads), figure());
    }
    if let Some(largest) = calibration.fork_joins.iter().max_by_key(|f| f.threads) {
        let figure = Figure::new(&largest.cost, MICRO_IN_NANOS, largest.threads);
        figures.insert("forkjoin_us".to_owned(), figure);
    }
    figures.insert(
        "timer_ns".to_owned(),
        Figure::new(&calibration.timer, 1.0, 1),
    );
    Document {
        figures,
        skipped: calibration.skipped.clone(),
    }
}

/// The same for people.
pub(crate) fn table(calibration: &Calibration) -> String {
    fn row<T: Into<f64> + Copy + std::fmt::Display>(
        what: String,
        threads: u32,
        measured: &Measured<T>,
        how: String,
    ) -> Vec<String> {
        let spread = format!("{:.1} %", measured.spread() * 100.0);
        vec![
            what,
            threads.to_string(),
            measured.value.to_string(),
            spread,
            how,
        ]
    }
    let mut rows = Vec::new();
    for peak in &calibration.peaks {
        let how = peak.isa.map_or("portable", |isa| isa.name()).to_owned();
        rows.push(row(
            format!("peak {}", peak.dtype),
            peak.threads,
            &peak.rate,
            how,
        ));
    }
    for b in &calibration.bandwidths {
        let how = format!(
            "{} per thread",
            kernelwise_types::units::Bytes(b.working_set_bytes)
        );
        rows.push(row(
            format!("{} {}", b.place, b.pattern),
            b.threads,
            &b.rate,
            how,
        ));
    }
    for b in &calibration.handed_over {
        let bytes = kernelwise_types::units::Bytes(b.working_set_bytes);
        rows.push(row(
            format!("{} {}, another's", b.place, b.pattern),
            b.threads,
            &b.rate,
            format!("{bytes} per thread"),
        ));
    }
    for f in &calibration.fork_joins {
        rows.push(row(
            "fork and join".to_owned(),
            f.threads,
            &f.cost,
            String::new(),
        ));
    }
    rows.push(row(
        "read the clock".to_owned(),
        1,
        &calibration.timer,
        String::new(),
    ));
    let table = output::columns(
        &["figure", "threads", "value", "spread", "with"],
        &[1, 2, 3],
        rows,
    );
    let skipped: String = calibration
        .skipped
        .iter()
        .map(|why| format!("  not calibrated: {why}\n"))
        .collect();
    format!("calibration (spread: distance of the quartiles over the value)\n{table}{skipped}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernelwise_types::DType;
    use kernelwise_types::calibration::{ForkJoin, Peak};
    use kernelwise_types::units::{ByteRate, FlopRate, Nanos};

    fn measured<T>(value: T, low: T, high: T) -> Measured<T> {
        Measured {
            value,
            low,
            high,
            samples: 5,
        }
    }

    #[test]
    fn figures_have_their_unit_in_the_name() {
        let flops = |g: f64| FlopRate::new(g * 1e9).unwrap();
        let bytes = |g: f64| ByteRate::new(g * 1e9).unwrap();
        let ns = |n: f64| Nanos::new(n).unwrap();
        let dram = |threads, g| Bandwidth {
            place: MemoryPlace::Dram,
            pattern: AccessPattern::Read,
            threads,
            working_set_bytes: 1 << 29,
            rate: measured(bytes(g), bytes(g), bytes(g)),
        };
        let calibration = Calibration {
            peaks: vec![Peak {
                dtype: DType::F32,
                threads: 1,
                isa: None,
                rate: measured(flops(100.0), flops(90.0), flops(95.0)),
            }],
            bandwidths: vec![dram(1, 11.0), dram(2, 19.0)],
            handed_over: Vec::new(),
            fork_joins: vec![ForkJoin {
                threads: 2,
                cost: measured(ns(4000.0), ns(3000.0), ns(5000.0)),
            }],
            timer: measured(ns(20.0), ns(20.0), ns(21.0)),
            skipped: vec!["peak bf16: not measured".to_owned()],
        };
        let json = serde_json::to_value(document(&calibration)).unwrap();
        assert_eq!(json["peak_gflops_f32_1t"]["value"], 100.0);
        assert_eq!(json["peak_gflops_f32_1t"]["spread"], 0.05);
        assert_eq!(json["peak_gflops_f32_1t"]["isa"], "portable");
        assert_eq!(json["dram_read_gbps_1t"]["value"], 11.0);
        assert_eq!(json["dram_read_gbps"]["value"], 19.0);
        assert_eq!(json["dram_read_gbps"]["threads"], 2);
        assert_eq!(json["forkjoin_us"]["value"], 4.0);
        assert_eq!(json["forkjoin_us_2t"]["low"], 3.0);
        assert_eq!(json["timer_ns"]["value"], 20.0);
        assert_eq!(json["skipped"][0], "peak bf16: not measured");
        let table = table(&calibration);
        assert!(
            table.contains("100 GFLOP/s") && table.contains("peak bf16: not measured"),
            "{table}"
        );
    }
}
