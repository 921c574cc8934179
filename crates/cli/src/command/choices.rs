//! `kernelwise bench choices`: how good the choices of a calibrated selector are.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::anyhow;
use kernelwise_bench::{
    Choices, ChoicesOptions, ChoicesProgress, Score, Scores, SkippedShape, choices, default_shapes,
    tiny_shapes,
};
use kernelwise_types::{DType, Machine, Workload};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

use super::asked::{self, Asked};
use crate::args::{self, Format};
use crate::exit::Failure;
use crate::{ceilings, interrupt, output, progress};

/// Calibrates, judges and prints.
pub(crate) fn run(args: &args::BenchChoices) -> Result<(), Failure> {
    let machine = kernelwise_probe::machine();
    let machine = match args.threads {
        Some(threads) if threads > machine.usable_threads() => {
            return Err(Failure::Usage(anyhow!(
                "--threads {threads} is more than the {} this process may use",
                machine.usable_threads()
            )));
        }
        Some(threads) => machine.with_threads(threads),
        None => machine,
    };
    let mut random = Pcg64::seed_from_u64(args.seed);
    let shapes = shapes(args, &machine, &mut random)?;
    let cancel = interrupt::flag()?;
    let budget = Duration::from_secs_f64(args.calibration_budget);
    let calibration = ceilings::measured(&machine, budget)?;
    let mut kernels = kernelwise_cpu::kernels()?;
    // The order of registration must not matter, so it is another one with every seed.
    kernels.shuffle(&mut random);
    let bar = progress::counted();
    let mut tell = |at: ChoicesProgress<'_>| {
        bar.set_length(at.of as u64);
        bar.set_position(at.done as u64);
        bar.set_message(format!("{} {}", at.stage, at.workload));
    };
    let options = ChoicesOptions {
        budget: Duration::from_secs_f64(args.max_seconds_per_shape),
        seed: args.seed,
        allow_reduced: args.allow_reduced,
    };
    let figures = choices(
        &machine,
        &kernels,
        &calibration,
        &shapes,
        &options,
        cancel,
        &mut tell,
    );
    bar.finish_and_clear();
    let figures = figures?;
    match args.format {
        Format::Json => output::json("kernelwise.bench_choices/1", &figures)?,
        Format::Table => output::text(&text(&figures))?,
    }
    ended(figures.interrupted, figures.shapes.len(), &figures.skipped)
}

/// How it ends once its figures are told: well, if anything was judged.
pub(super) fn ended(
    interrupted: bool,
    judged: usize,
    skipped: &[SkippedShape],
) -> Result<(), Failure> {
    if interrupted {
        return Err(Failure::Interrupted);
    }
    if judged == 0 {
        let reason = skipped.first().map(|skipped| &skipped.reason);
        let reason = reason.map_or("there are no shapes", String::as_str);
        return Err(Failure::NotFound(anyhow!(
            "nothing could be judged: {reason}"
        )));
    }
    Ok(())
}

/// The small shapes and those of the files, of the operations asked for; so many of them, drawn and in the order they came.
fn shapes(
    args: &args::BenchChoices,
    machine: &Machine,
    random: &mut Pcg64,
) -> Result<Vec<Workload>, Failure> {
    let asked: Result<Vec<Asked>, Failure> = args.op.iter().map(|op| Asked::parse(op)).collect();
    let asked = asked?;
    let mut shapes = tiny_shapes();
    for path in &args.shapes {
        shapes.extend(asked::shapes_in(path, DType::F32)?);
    }
    if !asked.is_empty() {
        shapes.retain(|shape| asked.iter().any(|asked| asked.is(shape)));
    }
    // Operations without small shapes have their usual ones.
    for asked in &asked {
        if !shapes.iter().any(|shape| asked.is(shape)) {
            shapes.extend(default_shapes(asked.as_str(), machine));
        }
    }
    let mut seen = BTreeSet::new();
    shapes.retain(|shape| seen.insert(shape.to_string()));
    let limit = args.limit.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.unwrap_or(shapes.len()).min(shapes.len());
    let mut drawn: Vec<usize> = (0..shapes.len()).collect();
    drawn.shuffle(random);
    drawn.truncate(limit);
    drawn.sort_unstable();
    Ok(drawn.into_iter().map(|i| shapes[i].clone()).collect())
}

fn text(figures: &Choices) -> String {
    let mut text = String::new();
    let rows = figures.shapes.iter().map(|shape| {
        let times = |slowdown: f64| format!("{slowdown:.3}");
        vec![
            shape.workload.to_string(),
            shape.candidates.to_string(),
            format!("{} {}", shape.selector.kernel, shape.selector.parameters),
            times(shape.selector.slowdown),
            times(shape.static_rule.slowdown),
            shape
                .single_best
                .as_ref()
                .map_or("-".to_owned(), |best| times(best.slowdown)),
            shape.judge_first_half.map_or("-".to_owned(), times),
        ]
    });
    text.push_str("choices, and how many times as long as the oracle's they take\n");
    text.push_str(&output::columns(
        &[
            "shape",
            "of",
            "the selector's choice",
            "selector",
            "rule",
            "single best",
            "judge's first half",
        ],
        &[1, 3, 4, 5, 6],
        rows.collect(),
    ));
    for (operation, scores) in &figures.operations {
        text.push_str(&section(operation, scores));
    }
    if let Some(overall) = &figures.overall {
        text.push_str(&section("all shapes", overall));
    }
    for worst in &figures.worst {
        text.push_str(&format!("worst: {worst}\n"));
    }
    for quarantined in &figures.quarantined {
        text.push_str(&format!("quarantined: {quarantined}\n"));
    }
    text.push_str(&format!(
        "{} shapes judged, {} skipped; calibrating took {:.1} s, judging {:.1} s\n",
        figures.shapes.len(),
        figures.skipped.len(),
        figures.calibration_s,
        figures.judge_s
    ));
    if let Some(first) = figures.skipped.first() {
        text.push_str(&format!(
            "skipped: {} {}, for instance\n",
            first.workload, first.reason
        ));
    }
    text
}

fn section(title: &str, scores: &Scores) -> String {
    let words = |score: &Score| {
        format!(
            "{:5.1} % within 5 % of the oracle, geometric slowdown {:.3}, worst {:.2}, {} shapes",
            100.0 * score.share_within_5pct,
            score.geo_slowdown,
            score.worst_slowdown,
            score.shapes
        )
    };
    let unknown = || "unknown".to_owned();
    let rows = [
        ("selector", words(&scores.selector)),
        ("rule by hand", words(&scores.static_rule)),
        (
            "single best kernel",
            scores.single_best.as_ref().map_or_else(unknown, words),
        ),
        (
            "judge's first half",
            scores.judge_first_half.as_ref().map_or_else(unknown, words),
        ),
    ];
    output::section(title, &rows.map(|(name, value)| (name.to_owned(), value)))
}
