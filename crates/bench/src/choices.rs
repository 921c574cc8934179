//! How good the choices of a calibrated selector are, on shapes of its own machine.
//!
//! A selector is [calibrated](Selector::calibrate) on every shape and asked for its choice. Right afterwards a judge that knows
//! nothing of it measures every candidate again, interleaved, and takes the fastest for the oracle. Four choosers are held
//! against it:
//!
//! - the **selector**;
//! - a **rule** written by hand ([`static_rule`]), the best that somebody who knows the kernels would put into a program;
//! - the **single best** kernel of each operation, picked with hindsight from the judge's own times;
//! - the judge's **first half**: what was fastest in its first rounds, on the times of the others. It shows how much of what
//!   is seen is the machine's noise: no chooser can be expected to do better.
//!
//! Everything is timed by the wall clock, because numbers of threads are candidates too.

pub(crate) mod judge;
mod rule;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kernelwise_backend::{Host, HostKernel};
use kernelwise_measure::{Clock, TscClock};
use kernelwise_select::{BuildError, Ended, RaceOptions, Selector};
use kernelwise_types::{Calibration, Candidate, Fingerprint, Machine, Numerics, Workload};
use serde::Serialize;

use crate::figures::SkippedShape;
use judge::{Field, Judged};
pub use rule::{Preference, static_rule};

/// A choice this much slower than the oracle is as good.
const AS_GOOD: f64 = 1.05;
/// Runs of each candidate that a shape takes at the least: those of the calibration and of the judge.
const LEAST_RUNS: f64 = 8.0;
/// Shapes that are told to be the worst.
const WORST: usize = 8;

/// Small shapes of the operations that small shapes matter for: what a choice costs is seen here, and so is a wrong one.
const TINY: &[&str] = &[
    "matmul f32 2x2x2",
    "matmul f32 3x3x3",
    "matmul f32 4x4x4",
    "matmul f32 6x6x6",
    "matmul f32 8x8x8",
    "matmul f32 12x12x12",
    "matmul f32 15x15x15",
    "matmul f32 16x16x16",
    "matmul f32 4x16x4",
    "matmul f32 16x4x16",
    "matmul f32 1x16x16",
    "matmul f32 24x24x24",
    "matmul f32 32x32x32",
    "matmul f32 64x64x64",
    "matmul f32 1x64x64",
    "matmul f32 100x4x4x4",
    "matmul f64 8x8x8",
    "matmul f64 16x16x16",
    "elementwise.add f32 16",
    "elementwise.add f32 1000",
    "elementwise.mul+add f32 256",
    "elementwise.add:row+gelu f32 16x64",
    "activation.relu f32 100",
    "activation.gelu f32 1000",
    "reduce.sum f32 100",
    "reduce.sum f32 1000",
    "reduce.sum f32 32x32 axes0",
    "reduce.sum f32 32x32 axes1",
    "reduce.max f32 1000",
    "softmax f32 8x16",
    "softmax f32 64x64",
    "softmax f32 1x1000",
];

/// The small shapes that are measured when no others are named.
pub fn tiny_shapes() -> Vec<Workload> {
    TINY.iter().filter_map(|text| text.parse().ok()).collect()
}

/// How choices are judged.
#[derive(Debug, Clone, PartialEq)]
pub struct ChoicesOptions {
    /// Time for each shape, two seconds by default: half for the calibration, half for the judge. A shape that is expected
    /// to take longer even when every candidate runs as seldom as can be is skipped.
    pub budget: Duration,
    /// Seed of operands and orders, 1 by default.
    pub seed: u64,
    /// Whether kernels of reduced precision may be chosen, no by default.
    pub allow_reduced: bool,
}

impl Default for ChoicesOptions {
    fn default() -> Self {
        Self {
            budget: Duration::from_secs(2),
            seed: 1,
            allow_reduced: false,
        }
    }
}

/// Whoever chose, and what for.
#[derive(Debug, Clone, Serialize)]
pub struct Chosen {
    /// The kernel.
    pub kernel: String,
    /// Its parameters.
    pub parameters: String,
    /// What the judge measured: the lower quartile of its samples, per call.
    pub time_ns: f64,
    /// That over the oracle's.
    pub slowdown: f64,
}

/// One shape.
#[derive(Debug, Clone, Serialize)]
pub struct ShapeChoices {
    /// The shape.
    pub workload: Workload,
    /// Kernels with numbers of threads that were to choose from.
    pub candidates: usize,
    /// Samples of the judge, of those near the front.
    pub judge_rounds: usize,
    /// The fastest, by the judge.
    pub oracle: Chosen,
    /// Chosen by the calibrated selector.
    pub selector: Chosen,
    /// Chosen by the rule written by hand.
    pub static_rule: Chosen,
    /// The best kernel of the operation in hindsight; `None` if none computes all shapes of it.
    pub single_best: Option<Chosen>,
    /// Slowdown of the fastest of the judge's first half of rounds, in its second; `None` where rounds were few.
    pub judge_first_half: Option<f64>,
}

/// How a chooser did over several shapes.
#[derive(Debug, Clone, Serialize)]
pub struct Score {
    /// Shapes it chose for.
    pub shapes: usize,
    /// Share of choices at most 5 % slower than the oracle.
    pub share_within_5pct: f64,
    /// Geometric mean of the slowdowns.
    pub geo_slowdown: f64,
    /// The largest slowdown.
    pub worst_slowdown: f64,
}

/// The choosers side by side.
#[derive(Debug, Clone, Serialize)]
pub struct Scores {
    /// The calibrated selector.
    pub selector: Score,
    /// The rule written by hand.
    pub static_rule: Score,
    /// The best kernel of each operation in hindsight.
    pub single_best: Option<Score>,
    /// The judge's first half on the times of its second: what noise alone costs.
    pub judge_first_half: Option<Score>,
}

/// All figures.
#[derive(Debug, Serialize)]
pub struct Choices {
    /// The machine.
    pub machine: Fingerprint,
    /// Threads that a kernel may use at the most.
    pub threads: u32,
    /// Seed of the order in which kernels were registered, of operands and orders.
    pub seed: u64,
    /// Time for each shape.
    pub budget_per_shape_s: f64,
    /// Whether kernels of reduced precision could be chosen.
    pub allow_reduced: bool,
    /// Whether it ended before all shapes were judged.
    pub interrupted: bool,
    /// What calibrating took.
    pub calibration_s: f64,
    /// What judging took.
    pub judge_s: f64,
    /// Over all shapes; `None` if none was judged.
    pub overall: Option<Scores>,
    /// The same for each operation.
    pub operations: BTreeMap<String, Scores>,
    /// The shapes on which the selector did worst, the worst first, of those that are more than 5 % slow.
    pub worst: Vec<String>,
    /// Shape by shape.
    pub shapes: Vec<ShapeChoices>,
    /// Shapes that were not judged.
    pub skipped: Vec<SkippedShape>,
    /// Kernels that failed meanwhile.
    pub quarantined: Vec<String>,
}

/// What is being done, for those who wait.
#[derive(Debug, Clone, Copy)]
pub struct ChoicesProgress<'a> {
    /// Calibrating or judging.
    pub stage: &'static str,
    /// Shapes that are done.
    pub done: usize,
    /// All shapes.
    pub of: usize,
    /// The one at hand.
    pub workload: &'a Workload,
}

/// A shape with its candidates, calibrated.
struct Calibrated<'a> {
    workload: &'a Workload,
    candidates: Vec<Candidate>,
    chosen: Candidate,
}

impl Calibrated<'_> {
    /// For the judge: the choices of selector and rule are to be timed as well as the oracle.
    fn field(&self, machine: &Machine, options: &ChoicesOptions) -> Field<'_> {
        let chosen = self.place(&self.chosen);
        let rule = static_rule(self.workload, machine).pick(&self.candidates);
        Field {
            workload: self.workload,
            candidates: &self.candidates,
            wanted: chosen.into_iter().chain(rule).collect(),
            heats: options.budget,
            budget: options.budget / 2,
        }
    }

    fn place(&self, wanted: &Candidate) -> Option<usize> {
        self.candidates.iter().position(|one| one == wanted)
    }
}

/// Calibrates a selector of these kernels, registered in this order, and judges its choices.
///
/// The calibration of the machine must be of this one. `cancel` ends it before the next shape.
pub fn choices(
    machine: &Machine,
    kernels: &[Arc<dyn HostKernel>],
    calibration: &Calibration,
    shapes: &[Workload],
    options: &ChoicesOptions,
    cancel: &AtomicBool,
    tell: &mut dyn FnMut(ChoicesProgress<'_>),
) -> Result<Choices, BuildError> {
    let numerics = match options.allow_reduced {
        true => Numerics::ReducedPrecision,
        false => Numerics::Reordered,
    };
    let selector = Selector::builder(machine.clone(), kernels.to_vec())
        .calibration(calibration.clone())
        .numerics(numerics)
        .seed(options.seed)
        .background(false)
        .build()?;
    let host = Host::new(machine.clone(), kernels.iter().cloned())?;
    let clock = TscClock::new();
    let mut spent_ns = [0u64; 2];
    let (mut kept, mut judged, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
    for (done, workload) in shapes.iter().enumerate() {
        let mut stage = |stage| {
            tell(ChoicesProgress {
                stage,
                done,
                of: shapes.len(),
                workload,
            });
            clock.now()
        };
        let began = stage("calibrating");
        let calibrated = calibrate(&selector, workload, options, cancel);
        let judging = stage("judging");
        // Right away: with two threads on a machine that others use, who is best changes within minutes.
        let result = calibrated.and_then(|shape| {
            let field = shape.field(machine, options);
            let judged = judge::judge(&host, &field, options.seed, cancel)?;
            Ok((shape, judged))
        });
        spent_ns[0] += judging.saturating_sub(began);
        spent_ns[1] += clock.now().saturating_sub(judging);
        match result {
            Ok((shape, result)) => {
                kept.push(shape);
                judged.push(result);
            }
            Err(reason) => skipped.push(SkippedShape {
                workload: workload.clone(),
                reason,
            }),
        }
    }
    let shapes = figures(&kept, &judged, machine);
    let [calibration_s, judge_s] = spent_ns.map(|ns| ns as f64 / 1e9);
    let mut by_operation: BTreeMap<String, Vec<&ShapeChoices>> = BTreeMap::new();
    for shape in &shapes {
        let name = shape.workload.operation().name().to_owned();
        by_operation.entry(name).or_default().push(shape);
    }
    let operations = by_operation
        .into_iter()
        .filter_map(|(name, shapes)| Some((name, scores(&shapes)?)));
    let quarantined = selector.quarantined();
    let quarantined = quarantined
        .iter()
        .map(|one| format!("{} on {}: {}", one.kernel, one.workload, one.evidence));
    Ok(Choices {
        machine: Fingerprint::of(machine),
        threads: machine.usable_threads(),
        seed: options.seed,
        budget_per_shape_s: options.budget.as_secs_f64(),
        allow_reduced: options.allow_reduced,
        interrupted: cancel.load(Ordering::Relaxed),
        calibration_s,
        judge_s,
        overall: scores(&shapes.iter().collect::<Vec<_>>()),
        operations: operations.collect(),
        worst: worst(&shapes),
        shapes,
        skipped,
        quarantined: quarantined.collect(),
    })
}

const INTERRUPTED: &str = "interrupted before its turn";

/// Calibrates one shape; why not, in words.
fn calibrate<'a>(
    selector: &Selector,
    workload: &'a Workload,
    options: &ChoicesOptions,
    cancel: &AtomicBool,
) -> Result<Calibrated<'a>, String> {
    if cancel.load(Ordering::Relaxed) {
        return Err(INTERRUPTED.to_owned());
    }
    let expected = selector.explain(workload);
    let expected = expected.map_err(|error| error.to_string())?;
    let candidates = 1 + expected.alternatives().len();
    if let Some(time) = expected.chosen.estimate.time() {
        let least_s = time.seconds() * LEAST_RUNS * candidates as f64;
        if least_s > options.budget.as_secs_f64() {
            return Err(format!(
                "would take {least_s:.1} s or more, {:.1} s were given",
                options.budget.as_secs_f64()
            ));
        }
    }
    let race = RaceOptions {
        budget: options.budget / 2,
        seed: options.seed,
        ..RaceOptions::default()
    };
    let one = std::slice::from_ref(workload);
    let mut watch = |_: kernelwise_select::Progress<'_>| match cancel.load(Ordering::Relaxed) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let measured = selector.calibrate(one, &race, &mut watch);
    let measured = measured.map_err(|error| error.to_string())?;
    // Kernels that failed are told by themselves; the others are judged whether they were measured or not.
    let sound = measured
        .into_iter()
        .filter(|one| !matches!(one.ended, Ended::Quarantined { .. } | Ended::Short { .. }));
    let candidates: Vec<Candidate> = sound.map(|one| one.candidate).collect();
    if candidates.is_empty() {
        return Err("every candidate failed".to_owned());
    }
    let chosen = selector.explain(workload);
    let chosen = chosen.map_err(|error| error.to_string())?.chosen;
    let calibrated = Calibrated {
        workload,
        candidates,
        chosen: chosen.candidate,
    };
    match calibrated.place(&calibrated.chosen) {
        Some(_) => Ok(calibrated),
        None => Err("the choice could not run".to_owned()),
    }
}

/// What makes a candidate the same on other shapes and of other element types: other parameters follow the shape.
fn across_shapes(candidate: &Candidate) -> (String, Option<u64>) {
    let variant = candidate.kernel.variant().to_owned();
    (variant, candidate.params.get("threads"))
}

/// What every chooser took, with hindsight where that is called for.
fn figures(shapes: &[Calibrated<'_>], judged: &[Judged], machine: &Machine) -> Vec<ShapeChoices> {
    // Logarithms of slowdowns of each kernel with its threads, by operation.
    let mut totals: BTreeMap<_, BTreeMap<_, Vec<f64>>> = BTreeMap::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (shape, judged) in shapes.iter().zip(judged) {
        let operation = shape.workload.operation().name();
        *counts.entry(operation).or_default() += 1;
        let kernels = totals.entry(operation).or_default();
        for (i, candidate) in shape.candidates.iter().enumerate() {
            let Some(slowdown) = judged.slowdown(i) else {
                continue;
            };
            let slowdowns: &mut Vec<f64> = kernels.entry(across_shapes(candidate)).or_default();
            slowdowns.push(slowdown.ln());
        }
    }
    let single: BTreeMap<&str, (String, Option<u64>)> = totals
        .iter()
        .filter_map(|(operation, kernels)| {
            let all = kernels
                .iter()
                .filter(|(_, slowdowns)| Some(&slowdowns.len()) == counts.get(operation));
            let best = all.min_by(|a, b| {
                let sum = |list: &[f64]| list.iter().sum::<f64>();
                sum(a.1).total_cmp(&sum(b.1))
            })?;
            Some((*operation, best.0.clone()))
        })
        .collect();
    let shapes = shapes.iter().zip(judged).filter_map(|(shape, judged)| {
        let candidates = &shape.candidates;
        let chosen = |i: usize| {
            Some(Chosen {
                kernel: candidates[i].kernel.to_string(),
                parameters: candidates[i].params.to_string(),
                time_ns: judged.time_ns(i)?,
                slowdown: judged.slowdown(i)?,
            })
        };
        let rule = static_rule(shape.workload, machine);
        let single = single.get(shape.workload.operation().name());
        let single = single.and_then(|best| {
            let is = |one: &Candidate| across_shapes(one) == *best;
            candidates.iter().position(is)
        });
        Some(ShapeChoices {
            workload: shape.workload.clone(),
            candidates: candidates.len(),
            judge_rounds: judged.rounds,
            oracle: chosen(judged.oracle)?,
            selector: chosen(shape.place(&shape.chosen)?)?,
            static_rule: chosen(rule.pick(candidates)?)?,
            single_best: single.and_then(chosen),
            judge_first_half: judged.first_half(|i| i),
        })
    });
    shapes.collect()
}

fn scores(shapes: &[&ShapeChoices]) -> Option<Scores> {
    let score = |slowdown: &dyn Fn(&ShapeChoices) -> Option<f64>| {
        let slowdowns: Vec<f64> = shapes.iter().filter_map(|shape| slowdown(shape)).collect();
        let count = slowdowns.len();
        let within = slowdowns.iter().filter(|slowdown| **slowdown <= AS_GOOD);
        let ln: f64 = slowdowns.iter().map(|slowdown| slowdown.ln()).sum();
        (count > 0).then(|| Score {
            shapes: count,
            share_within_5pct: within.count() as f64 / count as f64,
            geo_slowdown: (ln / count as f64).exp(),
            worst_slowdown: slowdowns.iter().copied().fold(1.0, f64::max),
        })
    };
    Some(Scores {
        selector: score(&|shape| Some(shape.selector.slowdown))?,
        static_rule: score(&|shape| Some(shape.static_rule.slowdown))?,
        single_best: score(&|shape| Some(shape.single_best.as_ref()?.slowdown)),
        judge_first_half: score(&|shape| shape.judge_first_half),
    })
}

fn worst(shapes: &[ShapeChoices]) -> Vec<String> {
    let slow = |shape: &&ShapeChoices| shape.selector.slowdown > AS_GOOD;
    let mut worst: Vec<&ShapeChoices> = shapes.iter().filter(slow).collect();
    worst.sort_by(|a, b| b.selector.slowdown.total_cmp(&a.selector.slowdown));
    let words = |shape: &ShapeChoices| {
        let (chosen, oracle) = (&shape.selector, &shape.oracle);
        format!(
            "{}: {} ({}) takes {:.2} times as long as {} ({})",
            shape.workload,
            chosen.kernel,
            chosen.parameters,
            chosen.slowdown,
            oracle.kernel,
            oracle.parameters
        )
    };
    worst.into_iter().take(WORST).map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text that could not be read would silently not be measured.
    #[test]
    fn every_small_shape_can_be_read_and_stands_once() {
        let shapes = tiny_shapes();
        assert_eq!(shapes.len(), TINY.len());
        let different: std::collections::HashSet<&Workload> = shapes.iter().collect();
        assert_eq!(different.len(), shapes.len());
    }

    fn shape(text: &str, selector: f64, rule: f64, half: Option<f64>) -> ShapeChoices {
        let chosen = |slowdown: f64| Chosen {
            kernel: "cpu-copy-f32-one".to_owned(),
            parameters: String::new(),
            time_ns: 100.0 * slowdown,
            slowdown,
        };
        ShapeChoices {
            workload: text.parse().unwrap(),
            candidates: 3,
            judge_rounds: 60,
            oracle: chosen(1.0),
            selector: chosen(selector),
            static_rule: chosen(rule),
            single_best: None,
            judge_first_half: half,
        }
    }

    #[test]
    fn scores_are_shares_and_geometric_means() {
        let shapes = [
            shape("copy f32 1", 1.0, 4.0, Some(1.0)),
            shape("copy f32 2", 1.05, 1.0, None),
            shape("copy f32 3", 1.21, 1.0, Some(1.1)),
            shape("copy f32 4", 1.5, 1.0, Some(1.0)),
        ];
        let scores = scores(&shapes.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(scores.selector.share_within_5pct, 0.5);
        assert_eq!(scores.selector.worst_slowdown, 1.5);
        assert!((scores.static_rule.geo_slowdown - 2f64.sqrt()).abs() < 1e-12);
        // What has no rounds for two halves counts for neither.
        let halves = scores.judge_first_half.unwrap();
        assert_eq!((halves.shapes, scores.single_best.is_none()), (3, true));
        let worst = worst(&shapes);
        assert_eq!(worst.len(), 2);
        assert!(worst[0].starts_with("copy f32 4: cpu-copy-f32-one () takes 1.50 times as long"));
        assert!(super::scores(&[]).is_none());
    }

    #[test]
    fn the_single_best_computes_every_shape_of_its_operation() {
        let machine = kernelwise_probe::machine();
        let workloads: [Workload; 2] = ["copy f32 1", "copy f32 2"].map(|t| t.parse().unwrap());
        let candidate = |variant: &str| Candidate {
            kernel: format!("cpu-copy-f32-{variant}").parse().unwrap(),
            params: kernelwise_types::Params::new(),
        };
        let calibrated = |workload, variants: &[&str]| Calibrated {
            workload,
            candidates: variants.iter().map(|variant| candidate(variant)).collect(),
            chosen: candidate(variants[0]),
        };
        // `quick` is the fastest where it can be, `wide` can always be.
        let shapes = [
            calibrated(&workloads[0], &["quick", "wide", "slow"]),
            calibrated(&workloads[1], &["slow", "wide"]),
        ];
        let judged = [
            Judged::of(&[Some(10.0), Some(20.0), Some(90.0)]),
            Judged::of(&[Some(80.0), Some(40.0)]),
        ];
        let figures = figures(&shapes, &judged, &machine);
        let single = |i: usize| figures[i].single_best.clone().unwrap();
        assert_eq!((single(0).slowdown, single(1).slowdown), (2.0, 1.0));
        assert_eq!(figures[0].oracle.kernel, "cpu-copy-f32-quick");
        assert_eq!(figures[1].selector.slowdown, 2.0);
    }
}
