//! `kernelwise bench ops`: races the kernels of an operation and tells who wins, by how much, and how near to the machine's peak.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::anyhow;
use indicatif::ProgressBar;
use kernelwise_backend::Host;
use kernelwise_bench::{
    Bench, Conditions, Doubt, Figures, Options, Outcome, Ratio, Rivals, ShapeFigures, SkippedShape,
    Standing, Summary, Times, default_shapes, summarise,
};
use kernelwise_types::units::{ByteRate, Bytes, FlopRate, Flops, Nanos};
use kernelwise_types::{DType, Machine, Numerics, Reading, Workload};

use super::asked::{self, Asked};
use crate::args::{self, Format};
use crate::exit::Failure;
use crate::{ceilings, interrupt, output, progress};

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
    let budget = Duration::from_secs_f64(args.calibration_budget);
    let calibration = ceilings::measured(&machine, budget)?;
    let bar = progress::counted();
    let options = Options {
        threads: args.threads,
        budget: Duration::from_secs_f64(args.time_budget),
        seed: args.seed,
        allow_reduced: args.allow_reduced,
    };
    let rivals = Rivals::load(args.threads);
    let host = Host::new(machine, kernelwise_cpu::kernels()?)?;
    let mut bench = Bench::new(host, calibration, rivals, options);
    // Tables come shape by shape, because all of them may take an hour; JSON is one document and must wait.
    let tell = |text: String| match args.format {
        Format::Json => Ok(()),
        Format::Table => bar.suspend(|| output::text(&text)),
    };
    let figures = measure(&mut bench, &shapes, &bar, cancel, tell);
    bar.finish_and_clear();
    let figures = figures?;
    match args.format {
        Format::Json => output::json("kernelwise.bench_ops/1", &figures)?,
        Format::Table => output::text(&ending(&figures))?,
    }
    if figures.interrupted {
        return Err(Failure::Interrupted);
    }
    if figures.shapes.is_empty() {
        return Err(Failure::NotFound(anyhow!(
            "nothing could be measured: {}",
            reasons(&figures.skipped)
        )));
    }
    wrong(&figures)
}

/// Why shapes were not measured, each reason once with the first shape it holds for.
fn reasons(skipped: &[SkippedShape]) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut told = BTreeSet::new();
    for first in skipped {
        if !told.insert(&first.reason) {
            continue;
        }
        let same = skipped.iter().filter(|other| other.reason == first.reason);
        let others = match same.count() - 1 {
            0 => String::new(),
            1 => " (and 1 other shape)".to_owned(),
            others => format!(" (and {others} other shapes)"),
        };
        words.push(format!("{}{others}: {}", first.workload, first.reason));
    }
    words.join("; ")
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
    let asked = args.op.as_deref().map(Asked::parse).transpose()?;
    let mut shapes = Vec::new();
    for text in &args.shape {
        shapes.push(asked::shape(text, asked.as_ref(), args.dtype)?);
    }
    if let Some(path) = &args.shapes {
        let dtype = args.dtype.unwrap_or(DType::F32);
        shapes.extend(asked::shapes_in(path, dtype)?);
    }
    if let Some(asked) = &asked {
        match shapes.is_empty() {
            true => shapes = default_shapes(asked.as_str(), machine),
            false => shapes.retain(|shape| asked.is(shape)),
        }
        if shapes.is_empty() {
            let none = match &args.shapes {
                Some(path) => format!("{} names no shape of {asked}", path.display()),
                None => format!("{asked} has no usual shape"),
            };
            return Err(Failure::NotFound(anyhow!(
                "{none}: name one with --shape, such as `{}`",
                asked.example()
            )));
        }
    }
    if let Some(dtype) = args.dtype {
        let typed = |shape: &Workload| {
            let typed = Workload::new(shape.operation().clone(), dtype);
            typed.map(|typed| typed.with_layout(shape.layout()))
        };
        let typed: Result<Vec<Workload>, _> = shapes.iter().map(typed).collect();
        shapes = typed.map_err(|error| Failure::Usage(error.into()))?;
    }
    let mut seen = BTreeSet::new();
    shapes.retain(|shape| seen.insert(shape.to_string()));
    let limit = args.limit.and_then(|limit| usize::try_from(limit).ok());
    shapes.truncate(limit.unwrap_or(usize::MAX));
    Ok(shapes)
}

/// Measures shape by shape until all are done or Ctrl-C was pressed, and tells each as soon as it is known.
fn measure(
    bench: &mut Bench,
    shapes: &[Workload],
    bar: &ProgressBar,
    cancel: &AtomicBool,
    tell: impl Fn(String) -> Result<(), Failure>,
) -> Result<Figures, Failure> {
    let (mut measured, mut skipped) = (Vec::new(), Vec::new());
    let mut interrupted = false;
    bar.set_length(shapes.len() as u64);
    for (done, workload) in shapes.iter().enumerate() {
        let skip = |reason: String| SkippedShape {
            workload: workload.clone(),
            reason,
        };
        // Once true it stays so: what follows is only listed.
        interrupted |= cancel.load(Ordering::Relaxed);
        if interrupted {
            skipped.push(skip(NO_TURN.to_owned()));
            continue;
        }
        bar.set_position(done as u64);
        bar.set_message(workload.to_string());
        match bench.shape(workload, cancel) {
            Ok(Some(figures)) => {
                tell(shape(&figures))?;
                measured.push(figures);
            }
            // Nothing could be told of it yet.
            Ok(None) => {
                interrupted = true;
                skipped.push(skip(NO_RESULT.to_owned()));
            }
            Err(error) => {
                let skip = skip(error.to_string());
                tell(format!("{workload}\n  not measured: {}\n\n", skip.reason))?;
                skipped.push(skip);
            }
        }
    }
    // The last shape may have been cut short.
    interrupted |= cancel.load(Ordering::Relaxed);
    let operations: BTreeSet<&str> = shapes
        .iter()
        .map(|shape| shape.operation().name())
        .collect();
    let facts = operations
        .iter()
        .flat_map(|name| bench.rivals().facts(name));
    Ok(Figures {
        interrupted,
        rivals: facts.collect(),
        conditions: bench.conditions(),
        summary: summarise(&measured),
        shapes: measured,
        skipped,
    })
}

/// Why a shape was not measured that Ctrl-C left out.
const NO_TURN: &str = "interrupted before its turn";

/// Why the shape was not measured whose turn it was.
const NO_RESULT: &str = "interrupted before there was a result";

/// What the words of the tables mean.
const LEGEND: &str = "\
legend
  …_over_… compares speeds: above 1 is faster than that library; at_least_… are goals for it
  prior: the time expected before any measurement; ±: half the width of the 90 % interval
  in a short race: too far behind to be timed further
";

/// What follows the tables of the shapes.
fn ending(figures: &Figures) -> String {
    let mut text = String::new();
    if !figures.shapes.is_empty() {
        text += LEGEND;
    }
    text += &output::section("conditions", &conditions(figures));
    text += &doubts("  ", &figures.conditions.warnings);
    text += &summary(&figures.summary);
    if figures.interrupted {
        text += &interruption(figures);
    }
    text
}

/// In one line, because there may be many.
fn interruption(figures: &Figures) -> String {
    let left_out =
        |skipped: &&SkippedShape| [NO_TURN, NO_RESULT].contains(&skipped.reason.as_str());
    let left_out = figures.skipped.iter().filter(left_out);
    let all = figures.shapes.len() + figures.skipped.len();
    let count = left_out.clone().count();
    match left_out.map(|skipped| &skipped.workload).next() {
        Some(first) => {
            format!(
                "interrupted: {count} of {all} shapes were not measured, the first is {first}\n"
            )
        }
        None => "interrupted: the last shape may have been cut short\n".to_owned(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_once() {
        let skipped = |workload: &str, reason: &str| SkippedShape {
            workload: workload.parse().unwrap(),
            reason: reason.to_owned(),
        };
        let two = [
            skipped("copy f32 1", "no kernel computes it"),
            skipped("copy f32 2", "it is too large"),
            skipped("copy f32 3", "no kernel computes it"),
        ];
        assert_eq!(
            reasons(&two),
            "copy f32 1 (and 1 other shape): no kernel computes it; copy f32 2: it is too large"
        );
        assert_eq!(reasons(&two[..1]), "copy f32 1: no kernel computes it");
    }
}
