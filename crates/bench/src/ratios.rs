//! The ratios an operation is held to, per shape and over all of them.
//!
//! A ratio is a speed over a speed: above one means this program is faster. Both sides come from one race, so that what the
//! machine did meanwhile met both.

use std::collections::BTreeMap;

use kernelwise_measure::{Indifference, Race};
use kernelwise_types::op::Operation;
use kernelwise_types::{DType, Technique, Workload};
use serde::Serialize;

use crate::figures::{ShapeFigures, Source, Standing};
use crate::judge::Ceiling;
use crate::rivals::Absent;

/// Speed over speed, or share of what the machine can do.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Ratio {
    /// It was measured.
    Known {
        /// The ratio.
        value: f64,
        /// Lower end of its 90 % interval.
        #[serde(skip_serializing_if = "Option::is_none")]
        low: Option<f64>,
        /// Upper end.
        #[serde(skip_serializing_if = "Option::is_none")]
        high: Option<f64>,
        /// What it should have been compared with and is not here, with the reason.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        without: Vec<String>,
    },
    /// There is none.
    Unknown {
        /// Always null.
        value: (),
        /// Why, and what to do about it.
        reason: String,
    },
}

impl Ratio {
    fn known(value: f64) -> Self {
        Self::Known {
            value,
            low: None,
            high: None,
            without: Vec::new(),
        }
    }

    fn unknown(reason: impl Into<String>) -> Self {
        Self::Unknown {
            value: (),
            reason: reason.into(),
        }
    }

    /// The ratio, if it is known.
    pub fn value(&self) -> Option<f64> {
        match self {
            Self::Known { value, .. } => Some(*value),
            Self::Unknown { .. } => None,
        }
    }
}

/// Names of the ratios with the thresholds they are held to.
pub(crate) type Ratios = BTreeMap<&'static str, Ratio>;
pub(crate) type Thresholds = BTreeMap<&'static str, bool>;

/// What ratios are made from.
pub(crate) struct Evidence<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) ceiling: &'a Ceiling,
    pub(crate) standings: &'a [Standing],
    pub(crate) race: &'a Race,
    pub(crate) absent: &'a [Absent],
}

/// The ratios and thresholds of one shape.
pub(crate) fn of(evidence: &Evidence<'_>) -> (Ratios, Thresholds) {
    let mut ratios = Ratios::new();
    let mut thresholds = Thresholds::new();
    match evidence.workload.operation() {
        Operation::Matmul(product) => {
            evidence.against_libraries(&mut ratios);
            ratios.insert("peak_share", evidence.peak_share());
            let sizes = [product.m, product.k, product.n];
            let mut hold = |name, ratio: &str, least| {
                if let Some(value) = ratios.get(ratio).and_then(Ratio::value) {
                    thresholds.insert(name, value >= least);
                }
            };
            hold("at_least_0_97", "best_over_best_library", 0.97);
            if product.batch == 1 && sizes.iter().all(|size| *size <= 16) {
                hold("at_least_1_3", "best_over_best_library", 1.3);
            }
            let square = sizes.iter().all(|size| *size == product.m);
            if square && product.batch == 1 && product.m >= 256 {
                hold("peak_share_at_least_0_82", "peak_share", 0.82);
            }
        }
        Operation::Conv2d(conv) => {
            let rivals = ["onednn", "onednn-plain"];
            let names = ["best_over_onednn", "best_over_onednn_plain"];
            let flags = ["at_least_0_7", "plain_at_least_0_7"];
            for ((rival, name), flag) in rivals.into_iter().zip(names).zip(flags) {
                let ours = evidence.best(|standing| standing.source != Source::Rival);
                let ratio = evidence.ratio(ours, &[rival]);
                // Held to it: the layers that networks spend their time in, for one image.
                let filter = conv.r == conv.s && (conv.r == 1 || conv.r == 3);
                if let (Some(value), true) =
                    (ratio.value(), conv.n == 1 && conv.groups == 1 && filter)
                {
                    thresholds.insert(flag, value >= 0.7);
                }
                ratios.insert(name, ratio);
            }
            let reduced = fastest(
                evidence.standings.iter().filter(|s| s.opt_in),
                Standing::sound_ns,
            );
            if reduced.is_some() {
                ratios.insert("reduced_over_onednn", evidence.ratio(reduced, &["onednn"]));
            }
            ratios.insert("peak_share", evidence.peak_share());
        }
        Operation::TensorCopy(_) | Operation::Elementwise(_) | Operation::Activation(_) => {
            let share = evidence.dram_share();
            if let (Some(value), Operation::TensorCopy(_) | Operation::Elementwise(_)) =
                (share.value(), evidence.workload.operation())
            {
                thresholds.insert("at_least_0_9", value >= 0.9);
            }
            ratios.insert("dram_bandwidth_share", share);
            // What the calibration reached at its best is one thing, what its loop reaches here another.
            let entered = |name: &str| evidence.standings.iter().any(|s| s.name == name);
            if evidence.ceiling.beyond_cache && entered("bare-loop") {
                let ours = evidence.best(|standing| standing.source != Source::Rival);
                let ratio = evidence.ratio(ours, &["bare-loop"]);
                if let Some(value) = ratio.value() {
                    thresholds.insert("at_least_0_9_of_bare_loop", value >= 0.9);
                }
                ratios.insert("best_over_bare_loop", ratio);
            }
        }
        Operation::Sort(_) => {
            let best = evidence.best(|standing| standing.source != Source::Rival);
            let radix = evidence.best(|standing| standing.technique == Technique::Algorithmic);
            let ratio = evidence.ratio(radix, &["std"]);
            let many = evidence.workload.dtype() == DType::U32
                && evidence.workload.elements() >= 1_000_000;
            if let (Some(value), true) = (ratio.value(), many) {
                thresholds.insert("at_least_1_5", value >= 1.5);
            }
            ratios.insert("radix_over_std", ratio);
            ratios.insert("best_over_std", evidence.ratio(best, &["std"]));
        }
        _ => {}
    }
    (ratios, thresholds)
}

const LIBRARIES: [&str; 3] = ["gemm", "matrixmultiply", "openblas"];

impl Evidence<'_> {
    fn against_libraries(&self, ratios: &mut Ratios) {
        let ours = self.best(|standing| standing.source != Source::Rival);
        let own = self.best(|standing| standing.source == Source::Own);
        ratios.insert("best_over_best_library", self.ratio(ours, &LIBRARIES));
        ratios.insert("best_own_over_best_library", self.ratio(own, &LIBRARIES));
        let names = [
            "best_over_gemm",
            "best_over_matrixmultiply",
            "best_over_openblas",
        ];
        for (name, library) in names.into_iter().zip(LIBRARIES) {
            ratios.insert(name, self.ratio(ours, &[library]));
        }
    }

    /// The fastest that counts among those.
    fn best(&self, among: impl Fn(&Standing) -> bool) -> Option<&Standing> {
        let candidates = self.standings.iter().filter(|standing| among(standing));
        fastest(candidates, Standing::counted_ns)
    }

    /// The speed of `ours` over that of the fastest of these rivals.
    fn ratio(&self, ours: Option<&Standing>, rivals: &[&str]) -> Ratio {
        let missing: Vec<String> = rivals
            .iter()
            .filter_map(|rival| self.missing(rival))
            .collect();
        let theirs = self.best(|standing| {
            standing.source == Source::Rival && rivals.contains(&standing.name.as_str())
        });
        let (Some(ours), Some(theirs)) = (ours, theirs) else {
            return Ratio::unknown(match (ours, missing.is_empty()) {
                (None, _) => "no kernel of this program has a time that counts here".to_owned(),
                (Some(_), true) => "no rival has a time that counts here".to_owned(),
                (Some(_), false) => missing.join("; "),
            });
        };
        let time = |standing: &Standing| standing.times.map_or(f64::NAN, |times| times.time_ns);
        let zone = Indifference::default();
        let compared = self
            .race
            .compare(&ours.name, &theirs.name, CONFIDENCE, zone);
        let interval = compared.map(|comparison| comparison.interval.inverse());
        Ratio::Known {
            value: time(theirs) / time(ours),
            low: interval.map(|interval| interval.low),
            high: interval.map(|interval| interval.high),
            without: missing,
        }
    }

    /// Why this rival has no time that counts, if so.
    fn missing(&self, rival: &str) -> Option<String> {
        let standing = self
            .standings
            .iter()
            .find(|standing| standing.name == rival);
        match standing {
            Some(standing) if standing.counted_ns().is_some() => None,
            Some(standing) => Some(format!("{rival}: {}", standing.detail)),
            None => {
                let absent = self.absent.iter().find(|absent| absent.name == rival);
                let reason = absent.map_or("was not asked", |absent| absent.reason.as_str());
                Some(format!("{rival}: {reason}"))
            }
        }
    }

    /// The best kernel's share of the calibrated peak.
    fn peak_share(&self) -> Ratio {
        let Some(best) = self.best(|standing| standing.source != Source::Rival) else {
            return Ratio::unknown("no kernel of this program has a time that counts here");
        };
        let share = best.times.and_then(|times| times.peak_share);
        share.map_or_else(
            || Ratio::unknown("the peak of this element type was not calibrated"),
            Ratio::known,
        )
    }

    /// The best kernel's share of the calibrated bandwidth of main memory, for shapes that lie there.
    fn dram_share(&self) -> Ratio {
        if !self.ceiling.beyond_cache {
            return Ratio::unknown("the operands fit a cache: name a shape of twice its size");
        }
        let best = self.best(|standing| standing.source != Source::Rival);
        let share = best.and_then(|best| best.times?.bandwidth_share);
        share.map_or_else(
            || Ratio::unknown("no kernel was timed, or main memory was not calibrated"),
            Ratio::known,
        )
    }
}

/// How sure intervals are.
pub(crate) const CONFIDENCE: f64 = 0.9;

fn fastest<'a>(
    standings: impl Iterator<Item = &'a Standing>,
    time: impl Fn(&Standing) -> Option<f64>,
) -> Option<&'a Standing> {
    let timed = standings.filter_map(|standing| Some((standing, time(standing)?)));
    let best = timed.min_by(|(_, a), (_, b)| a.total_cmp(b));
    best.map(|(standing, _)| standing)
}

/// The ratios over all shapes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Shapes that were measured.
    pub shapes: usize,
    /// Results that were wrong.
    pub wrong_results: usize,
    /// By name of the ratio.
    pub ratios: BTreeMap<&'static str, RatioSummary>,
    /// By name of the threshold.
    pub thresholds: BTreeMap<&'static str, ThresholdSummary>,
}

/// One ratio over all shapes that have it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RatioSummary {
    /// Shapes where it is known.
    pub shapes: usize,
    /// Their geometric mean.
    pub geometric_mean: f64,
    /// The lowest.
    pub lowest: f64,
    /// Where that is.
    pub lowest_at: Workload,
}

/// One threshold over all shapes that are held to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ThresholdSummary {
    /// Shapes that reach it.
    pub met: usize,
    /// Of so many.
    pub of: usize,
    /// Those that do not.
    pub missed: Vec<Workload>,
}

/// Sums up the shapes of a run.
pub fn summarise(shapes: &[ShapeFigures]) -> Summary {
    let mut summary = Summary {
        shapes: shapes.len(),
        wrong_results: shapes.iter().map(|shape| shape.wrong().count()).sum(),
        ratios: BTreeMap::new(),
        thresholds: BTreeMap::new(),
    };
    let mut values: BTreeMap<&'static str, Vec<(f64, &Workload)>> = BTreeMap::new();
    for shape in shapes {
        for (name, ratio) in &shape.ratios {
            if let Some(value) = ratio.value() {
                values
                    .entry(name)
                    .or_default()
                    .push((value, &shape.workload));
            }
        }
        for (name, met) in &shape.thresholds {
            let threshold = summary.thresholds.entry(name).or_insert(ThresholdSummary {
                met: 0,
                of: 0,
                missed: Vec::new(),
            });
            threshold.of += 1;
            threshold.met += usize::from(*met);
            if !met {
                threshold.missed.push(shape.workload.clone());
            }
        }
    }
    for (name, values) in values {
        let logarithms = values.iter().map(|(value, _)| value.ln()).sum::<f64>();
        let lowest = values.iter().min_by(|(a, _), (b, _)| a.total_cmp(b));
        if let Some((lowest, at)) = lowest {
            summary.ratios.insert(
                name,
                RatioSummary {
                    shapes: values.len(),
                    geometric_mean: (logarithms / values.len() as f64).exp(),
                    lowest: *lowest,
                    lowest_at: (*at).clone(),
                },
            );
        }
    }
    summary
}

#[cfg(test)]
mod tests;
