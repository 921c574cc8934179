//! `kernelwise learn`: the main job. Races the built-in kernels over a spread of shapes and shows which wins where.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use kernelwise_bench::{SPREAD_OPERATIONS, default_shapes, read_shapes, spread_shapes};
use kernelwise_measure::{Clock, TscClock};
use kernelwise_probe::calibrate::{CalibrateError, CalibrateOptions, calibrate};
use kernelwise_select::{Evidence, Measured, RaceOptions, Selector};
use kernelwise_types::{DType, Machine, Numerics, Workload};
use serde::Serialize;

use super::asked::Asked;
use crate::args::{self, Effort, Format};
use crate::exit::Failure;
use crate::{interrupt, output};

impl Effort {
    fn seconds(self) -> f64 {
        match self {
            Self::Minimal => 15.0,
            Self::Balanced => 60.0,
            Self::Extensive => 300.0,
            Self::Full => 1800.0,
        }
    }

    /// Shapes drawn for each operation.
    fn drawn(self) -> usize {
        match self {
            Self::Minimal => 4,
            Self::Balanced => 16,
            Self::Extensive => 60,
            Self::Full => 200,
        }
    }
}

/// One time that was measured.
#[derive(Debug, Serialize)]
struct Row {
    workload: String,
    kernel: String,
    parameters: String,
    threads: u32,
    expected_ns: Option<f64>,
    time_ns: f64,
    sd_ln: f64,
    samples: u64,
}

#[derive(Debug, Serialize)]
struct Learned {
    measured: Vec<Row>,
}

/// Learns and shows it.
pub(crate) fn run(args: &args::Learn) -> Result<(), Failure> {
    let machine = kernelwise_probe::machine();
    let cancel = interrupt::flag()?;
    let clock = TscClock::new();
    let began = clock.now();
    let all_s = args.time_budget.unwrap_or(args.effort.seconds());
    let options = CalibrateOptions {
        budget: Duration::from_secs_f64((0.1 * all_s).min(6.0)),
        ..CalibrateOptions::default()
    };
    let calibration = calibrate(&machine, &clock, &options, &mut |_| (), cancel);
    let calibration = calibration.map_err(|error| match error {
        CalibrateError::Cancelled => Failure::Interrupted,
        other => other.into(),
    })?;
    let numerics = match args.allow_reduced {
        true => Numerics::ReducedPrecision,
        false => Numerics::Reordered,
    };
    let selector = Selector::builder(machine.clone(), kernelwise_cpu::kernels()?)
        .calibration(calibration)
        .numerics(numerics)
        .seed(args.seed)
        .background(false)
        .build()?;
    let shapes = shapes(args, &machine)?;
    let spent_s = |clock: &TscClock| clock.now().saturating_sub(began) as f64 / 1e9;
    let bar = ProgressBar::new(shapes.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg} {eta}") {
        bar.set_style(style);
    }
    for (done, shape) in shapes.iter().enumerate() {
        if cancel.load(Ordering::Relaxed) || spent_s(&clock) > all_s {
            break;
        }
        bar.set_position(done as u64);
        bar.set_message(shape.to_string());
        let left_s = (all_s - spent_s(&clock)).max(0.0) / (shapes.len() - done) as f64;
        race(&selector, shape, left_s, args.seed, cancel)?;
    }
    bar.finish_and_clear();
    let measured = selector.evidence().iter().map(row).collect();
    output::json("kernelwise.learn/1", &Learned { measured })
}

/// Measures one shape.
fn race(
    selector: &Selector,
    shape: &Workload,
    seconds: f64,
    seed: u64,
    cancel: &AtomicBool,
) -> Result<Vec<Measured>, Failure> {
    let options = RaceOptions {
        budget: Duration::from_secs_f64(seconds),
        seed,
        ..RaceOptions::default()
    };
    let mut watch = |_: kernelwise_select::Progress<'_>| match cancel.load(Ordering::Relaxed) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let measured = selector.calibrate(std::slice::from_ref(shape), &options, &mut watch);
    Ok(measured?)
}

fn row(evidence: &Evidence) -> Row {
    Row {
        workload: evidence.workload.to_string(),
        kernel: evidence.candidate.kernel.to_string(),
        parameters: evidence.candidate.params.to_string(),
        threads: evidence.threads,
        expected_ns: evidence.expected_ns,
        time_ns: evidence.tally.mean().unwrap_or(f64::NAN).exp(),
        sd_ln: evidence.tally.sd(),
        samples: evidence.tally.samples(),
    }
}

/// Those of the files, the usual ones and drawn ones, operation after operation in turn, so that whoever ends early has some of
/// each.
fn shapes(args: &args::Learn, machine: &Machine) -> Result<Vec<Workload>, Failure> {
    let asked: Result<Vec<Asked>, Failure> = args.op.iter().map(|op| Asked::parse(op)).collect();
    let asked = asked?;
    let mut named = Vec::new();
    for path in &args.shapes {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the shapes in {file}"))?;
        let read = read_shapes(&file, &text, DType::F32);
        named.extend(read.map_err(|error| Failure::Usage(error.into()))?);
    }
    let mut turns: Vec<Vec<Workload>> = Vec::new();
    for operation in SPREAD_OPERATIONS {
        let drawn = spread_shapes(operation, args.effort.drawn(), args.seed);
        let usual = default_shapes(operation, machine);
        let mut both: Vec<Workload> = Vec::new();
        let (mut drawn, mut usual) = (drawn.into_iter(), usual.into_iter());
        loop {
            let next = [drawn.next(), usual.next()];
            if next.iter().all(Option::is_none) {
                break;
            }
            both.extend(next.into_iter().flatten());
        }
        both.truncate(2 * args.effort.drawn());
        turns.push(both);
    }
    let longest = turns.iter().map(Vec::len).max().unwrap_or(0);
    let in_turn = (0..longest).flat_map(|i| turns.iter().filter_map(move |list| list.get(i)));
    let mut seen = BTreeSet::new();
    let all = named.iter().chain(in_turn);
    let mut all: Vec<Workload> = all
        .filter(|shape| seen.insert(shape.to_string()))
        .cloned()
        .collect();
    if !asked.is_empty() {
        all.retain(|shape| asked.iter().any(|asked| asked.is(shape)));
    }
    Ok(all)
}
