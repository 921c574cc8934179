//! `kernelwise bench ops`: races the kernels of an operation and tells who wins, by how much, and how near to the machine's peak.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use kernelwise_backend::Host;
use kernelwise_bench::{
    Bench, Conditions, Doubt, Figures, Options, Outcome, Ratio, Rivals, ShapeFigures, SkippedShape,
    Standing, Summary, Times, default_shapes, read_shapes, summarise,
};
use kernelwise_measure::TscClock;
use kernelwise_probe::calibrate::{self, CalibrateError, CalibrateOptions};
use kernelwise_types::op::Operation;
use kernelwise_types::units::{ByteRate, Bytes, FlopRate, Flops, Nanos};
use kernelwise_types::{Calibration, DType, Machine, Numerics, Reading, Workload};

use super::kernels::operation;
use crate::args::{self, Format};
use crate::exit::Failure;
use crate::{interrupt, output};

/// Measures the shapes asked for.
pub(crate) fn run(args: &args::BenchOps) -> Result<(), Failure> {
    let machine = kernelwise_probe::machine();
    if args.threads > machine.usable_threads() {
        return Err(Failure::Usage(anyhow!(
            "--threads {} is more than the {} this process may use",
            args.threads,
            machine.usable_threads()
        )));
    }
    let shapes = shapes(args, &machine)?;
    let cancel = interrupt::flag()?;
    // Drawn on standard error, and only when that is a terminal.
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    let calibration = calibrate(&machine, args.calibration_budget, &bar, cancel)?;
    let options = Options {
        threads: args.threads,
        budget: Duration::from_secs_f64(args.time_budget),
        seed: args.seed,
        allow_reduced: args.allow_reduced,
    };
    let rivals = Rivals::load(args.threads);
    let host = Host::new(machine, kernelwise_cpu::kernels()?)?;
    let mut bench = Bench::new(host, calibration, rivals, options);
    let figures = measure(&mut bench, &shapes, &bar, cancel);
    bar.finish_and_clear();
    match args.format {
        Format::Json => output::json("kernelwise.bench_ops/1", &figures)?,
        Format::Table => output::text(&table(&figures))?,
    }
    if cancel.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    if figures.shapes.is_empty() {
        let reasons: Vec<String> = figures
            .skipped
            .iter()
            .map(|skipped| format!("{}: {}", skipped.workload, skipped.reason))
            .collect();
        return Err(Failure::NotFound(anyhow!(
            "nothing could be measured: {}",
            reasons.join("; ")
        )));
    }
    wrong(&figures)
}

/// Wrong results end the program with their names.
fn wrong(figures: &Figures) -> Result<(), Failure> {
    let wrong: Vec<String> = figures
        .shapes
        .iter()
        .flat_map(|shape| {
            let name = |standing: &Standing| format!("{} on {}", standing.name, shape.workload);
            shape.wrong().map(name).collect::<Vec<_>>()
        })
        .collect();
    match wrong.as_slice() {
        [] => Ok(()),
        wrong => Err(Failure::Wrong(anyhow!(
            "wrong results: {}",
            wrong.join(", ")
        ))),
    }
}

/// What is to be measured: the shapes named, or the usual ones of the operation.
fn shapes(args: &args::BenchOps, machine: &Machine) -> Result<Vec<Workload>, Failure> {
    let op = args.op.as_deref().map(operation).transpose()?;
    let mut shapes = Vec::new();
    for text in &args.shape {
        let shape = text.parse().with_context(|| format!("`{text}`"));
        shapes.push(shape.map_err(Failure::Usage)?);
    }
    if let Some(path) = &args.shapes {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the shapes in {file}"))?;
        let dtype = args.dtype.unwrap_or(DType::F32);
        let read = read_shapes(&file, &text, dtype);
        shapes.extend(read.map_err(|error| Failure::Usage(error.into()))?);
    }
    match op {
        Some(op) if shapes.is_empty() => shapes = default_shapes(op, machine),
        Some(op) => shapes.retain(|shape| shape.operation().name() == op),
        None => {}
    }
    if let Some(dtype) = args.dtype {
        let typed = |shape: &Workload| Workload::new(shape.operation().clone(), dtype);
        let typed: Result<Vec<Workload>, _> = shapes.iter().map(typed).collect();
        shapes = typed.map_err(|error| Failure::Usage(error.into()))?;
    }
    let mut seen = BTreeSet::new();
    shapes.retain(|shape| seen.insert(shape.to_string()));
    let limit = args.limit.and_then(|limit| usize::try_from(limit).ok());
    shapes.truncate(limit.unwrap_or(usize::MAX));
    match shapes.as_slice() {
        [] => Err(Failure::NotFound(anyhow!(
            "there is no shape of {} to measure: name one with --shape, such as `{}`",
            op.unwrap_or("that operation"),
            Operation::EXAMPLES[0]
        ))),
        _ => Ok(shapes),
    }
}

fn calibrate(
    machine: &Machine,
    budget_s: f64,
    bar: &ProgressBar,
    cancel: &AtomicBool,
) -> Result<Calibration, Failure> {
    let options = CalibrateOptions {
        budget: Duration::from_secs_f64(budget_s),
        ..CalibrateOptions::default()
    };
    let mut progress = |progress: calibrate::Progress<'_>| {
        bar.set_length(u64::from(progress.total));
        bar.set_position(u64::from(progress.done));
        bar.set_message(format!("calibrating {}", progress.step));
    };
    let clock = TscClock::new();
    let result = calibrate::calibrate(machine, &clock, &options, &mut progress, cancel);
    result.map_err(|error| match error {
        CalibrateError::Cancelled => Failure::Interrupted,
        other => other.into(),
    })
}

/// Measures shape by shape until all are done or Ctrl-C was pressed.
fn measure(
    bench: &mut Bench,
    shapes: &[Workload],
    bar: &ProgressBar,
    cancel: &AtomicBool,
) -> Figures {
    let (mut measured, mut skipped) = (Vec::new(), Vec::new());
    bar.set_length(shapes.len() as u64);
    for (done, shape) in shapes.iter().enumerate() {
        if cancel.load(Ordering::Relaxed) {
            break;
        }
        bar.set_position(done as u64);
        bar.set_message(shape.to_string());
        match bench.shape(shape, cancel) {
            Ok(figures) => measured.extend(figures),
            Err(error) => skipped.push(SkippedShape {
                workload: shape.clone(),
                reason: error.to_string(),
            }),
        }
    }
    let operations: BTreeSet<&str> = shapes
        .iter()
        .map(|shape| shape.operation().name())
        .collect();
    let facts = operations
        .iter()
        .flat_map(|name| bench.rivals().facts(name));
    Figures {
        rivals: facts.collect(),
        conditions: bench.conditions(),
        summary: summarise(&measured),
        shapes: measured,
        skipped,
    }
}

fn table(figures: &Figures) -> String {
    let mut text: String = figures.shapes.iter().map(shape).collect();
    for skipped in &figures.skipped {
        text += &format!(
            "{}\n  not measured: {}\n\n",
            skipped.workload, skipped.reason
        );
    }
    text += &output::section("conditions", &conditions(figures));
    text += &doubts("  ", &figures.conditions.warnings);
    text + &summary(&figures.summary)
}

fn shape(figures: &ShapeFigures) -> String {
    let mut title = vec![
        Flops(figures.flops).to_string(),
        format!("{} in {}", Bytes(figures.moved_bytes), figures.place),
        format!("checked against {}", figures.checked_against),
        figures.stop.to_string(),
    ];
    if let Some(share) = figures.inside_taps_share.filter(|share| *share < 1.0) {
        title.insert(1, format!("{:.1} % of it inside the image", share * 100.0));
    }
    let (rate, share) = match figures.by_arithmetic {
        true => ("rate", "of peak"),
        false => ("rate", "of bandwidth"),
    };
    let headings = [
        "contender",
        "time",
        "±",
        rate,
        share,
        "prior",
        "numerics",
        "verdict",
    ];
    let rows = figures
        .contenders
        .iter()
        .map(|standing| row(figures, standing));
    let mut text = format!("{}\n  {}\n", figures.workload, title.join(", "));
    text += &output::columns(&headings, &[1, 2, 3, 4, 5], rows.collect());
    for (name, ratio) in &figures.ratios {
        text += &format!("  {name}: {}\n", ratio_words(ratio));
    }
    for (name, met) in &figures.thresholds {
        text += &format!("  {name}: {}\n", if *met { "yes" } else { "no" });
    }
    for standing in &figures.contenders {
        text += &doubts(&format!("  {}: ", standing.name), &standing.warnings);
    }
    match figures.refused.len() {
        0 => {}
        count => {
            text += &format!(
                "  {count} kernels may not run on it: `kernelwise kernels --shape '{}'` says why\n",
                figures.workload
            );
        }
    }
    text + "\n"
}

fn row(figures: &ShapeFigures, standing: &Standing) -> Vec<String> {
    let unknown = || "-".to_owned();
    let nanos = |ns: f64| Reading::from(Nanos::new(ns)).to_string();
    let times = standing.times.as_ref();
    let of = |value: Option<f64>, word: fn(f64) -> String| value.map_or_else(unknown, word);
    let percent: fn(f64) -> String = |share| format!("{:.1} %", share * 100.0);
    let reach = |times: &Times| Some((times.high_ns? - times.low_ns?) / 2.0 / times.time_ns);
    let rate = times.map_or_else(unknown, |times| match figures.by_arithmetic {
        true => of(times.gflops, |rate| {
            Reading::from(FlopRate::new(rate * 1e9)).to_string()
        }),
        false => of(times.gbps, |rate| {
            Reading::from(ByteRate::new(rate * 1e9)).to_string()
        }),
    });
    let share = times.and_then(|times| match figures.by_arithmetic {
        true => times.peak_share,
        false => times.bandwidth_share,
    });
    let numerics = match (standing.numerics, standing.opt_in) {
        (Numerics::ReducedPrecision, true) => "reduced_precision, not counted".to_owned(),
        (numerics, _) => numerics.name().to_owned(),
    };
    let detail = match standing.verdict {
        Outcome::Winner => "winner".to_owned(),
        _ => standing.detail.clone(),
    };
    let setting = standing.setting.as_ref().map(ToString::to_string);
    let setting = setting.filter(|setting| !setting.is_empty());
    vec![
        setting.map_or(standing.name.clone(), |setting| {
            format!("{} {setting}", standing.name)
        }),
        times.map_or_else(unknown, |times| nanos(times.time_ns)),
        of(times.and_then(reach), percent),
        rate,
        of(share, percent),
        standing.prior_ns.map_or_else(unknown, nanos),
        numerics,
        detail,
    ]
}

fn ratio_words(ratio: &Ratio) -> String {
    match ratio {
        Ratio::Unknown { reason, .. } => format!("unknown ({reason})"),
        Ratio::Known {
            value,
            low,
            high,
            without,
        } => {
            let interval = low.zip(*high).map_or(String::new(), |(low, high)| {
                format!(" (90 % interval {low:.3} to {high:.3})")
            });
            let without = match without.as_slice() {
                [] => String::new(),
                missing => format!(", without {}", missing.join("; ")),
            };
            format!("{value:.3}{interval}{without}")
        }
    }
}

fn doubts(before: &str, doubts: &[Doubt]) -> String {
    let line = |doubt: &Doubt| format!("{before}warning: {} -> {}\n", doubt.finding, doubt.advice);
    doubts.iter().map(line).collect()
}

fn conditions(figures: &Figures) -> Vec<(String, String)> {
    let Conditions {
        machine,
        processor,
        threads,
        pinned_to_cpu,
        clock,
        time_budget_s,
        seed,
        null_comparison,
        ..
    } = &figures.conditions;
    let mut rows = vec![
        ("machine".to_owned(), format!("{machine}, {processor}")),
        ("threads".to_owned(), threads.to_string()),
        ("pinned to processor".to_owned(), pinned_to_cpu.to_string()),
        (
            "clock".to_owned(),
            format!("{}, {:.0} ns to read", clock.clock, clock.cost_ns),
        ),
        ("time per shape".to_owned(), format!("{time_budget_s} s")),
        ("seed".to_owned(), seed.to_string()),
        ("self-check".to_owned(), null_comparison.to_string()),
    ];
    for rival in &figures.rivals {
        let doubt = rival
            .doubt
            .as_ref()
            .map_or(String::new(), |doubt| format!("; {doubt}"));
        rows.push((rival.name.to_owned(), format!("{}{doubt}", rival.version)));
    }
    rows
}

fn summary(summary: &Summary) -> String {
    let mut rows = vec![("shapes".to_owned(), summary.shapes.to_string())];
    for (name, ratio) in &summary.ratios {
        rows.push((
            (*name).to_owned(),
            format!(
                "geometric mean {:.3} over {} shapes, lowest {:.3} at {}",
                ratio.geometric_mean, ratio.shapes, ratio.lowest, ratio.lowest_at
            ),
        ));
    }
    for (name, threshold) in &summary.thresholds {
        let missed: Vec<String> = threshold.missed.iter().map(Workload::to_string).collect();
        let missed = match missed.as_slice() {
            [] => String::new(),
            missed => format!("; not: {}", missed.join(", ")),
        };
        rows.push((
            (*name).to_owned(),
            format!("{} of {}{missed}", threshold.met, threshold.of),
        ));
    }
    if summary.wrong_results > 0 {
        rows.push((
            "wrong results".to_owned(),
            summary.wrong_results.to_string(),
        ));
    }
    output::section("summary", &rows)
}
