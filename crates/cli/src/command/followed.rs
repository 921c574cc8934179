//! `kernelwise bench recommend`: how good recommended settings of the processor are.

use std::time::Duration;

use anyhow::anyhow;
use kernelwise_backend::Host;
use kernelwise_bench::{
    Advice, Advised, Recommendations, SPREAD_OPERATIONS, ShapeFollowed, ThreadsScore, recommended,
    spread_shapes,
};
use kernelwise_select::Selector;
use kernelwise_tune::strategy::{Choice, Constraints, CpuCost, Kept, TuningStrategy};
use kernelwise_types::units::Nanos;
use kernelwise_types::{Candidate, DType, SystemState, Workload};

use super::asked::{self, Asked};
use super::choices;
use super::recommend::{raced, state, strategy};
use crate::args::{self, Format};
use crate::exit::Failure;
use crate::{ceilings, interrupt, output, progress};

/// Recommends, judges and prints.
pub(crate) fn run(args: &args::BenchRecommend) -> Result<(), Failure> {
    let shapes = shapes(args)?;
    let machine = kernelwise_probe::machine();
    let cancel = interrupt::flag()?;
    let budget = Duration::from_secs_f64(args.calibration_budget);
    let calibration = ceilings::measured(&machine, budget)?;
    let kernels = kernelwise_cpu::kernels()?;
    let host = || Host::new(machine.clone(), kernels.iter().cloned());
    let selector = Selector::builder(machine.clone(), kernels.clone())
        .calibration(calibration.clone())
        .seed(args.seed)
        .background(false)
        .build()?;
    let advice = |by, workload: &Workload, state: &SystemState, measured: &[(Choice, Kept)]| {
        let cost = CpuCost::new(host()?).with_calibration(calibration.clone());
        let strategy = strategy(cost, workload, measured)?;
        let best = strategy.tune_for_workload(workload, state, &Constraints::default())?;
        let choice = best.best.choice;
        let kernel = choice.kernel;
        let kernel = kernel.ok_or_else(|| anyhow!("no kernel is named for {workload}"))?;
        Ok::<Advice, Failure>(Advice {
            by,
            candidate: Candidate {
                kernel,
                params: choice.params,
            },
        })
    };
    let mut advise = |workload: &Workload| {
        let told = || {
            asked::must_fit(workload, &machine)?;
            // Others come and go while shapes are judged.
            let state = state();
            let mut told = vec![advice("prices", workload, &state, &[])?];
            let race = (args.time_budget, args.seed);
            let measured = raced(&selector, workload, &state, race, &mut || {})?;
            // Without a race there is nothing but prices.
            if !measured.is_empty() {
                told.push(advice("race", workload, &state, &measured)?);
            }
            let wrong = selector.quarantined().into_iter().map(|one| one.kernel);
            Ok(Advised {
                advice: told,
                wrong: wrong.collect(),
            })
        };
        told().map_err(|failure: Failure| failure.words())
    };
    let bar = progress::counted();
    bar.set_length(shapes.len() as u64);
    let judge = (Duration::from_secs_f64(args.judge_budget), args.seed);
    let figures = recommended(
        &host()?,
        &shapes,
        judge,
        cancel,
        &mut advise,
        &mut |done, at| {
            bar.set_position(done as u64);
            bar.set_message(at.to_string());
        },
    );
    bar.finish_and_clear();
    match args.format {
        Format::Json => output::json("kernelwise.bench_recommend/1", &figures)?,
        Format::Table => output::text(&text(&figures))?,
    }
    choices::ended(figures.interrupted, figures.shapes.len(), &figures.skipped)
}

/// Those of the files, or as many as asked for of each operation.
fn shapes(args: &args::BenchRecommend) -> Result<Vec<Workload>, Failure> {
    let asked: Result<Vec<Asked>, Failure> = args.op.iter().map(|op| Asked::parse(op)).collect();
    let asked = asked?;
    let mut shapes = Vec::new();
    for path in &args.shapes {
        shapes.extend(asked::shapes_in(path, DType::F32)?);
    }
    if args.shapes.is_empty() {
        for operation in SPREAD_OPERATIONS {
            shapes.extend(spread_shapes(operation, args.count.into(), args.seed));
        }
    }
    if !asked.is_empty() {
        shapes.retain(|shape| asked.iter().any(|asked| asked.is(shape)));
    }
    match shapes.is_empty() {
        true => Err(Failure::NotFound(anyhow!(
            "there are no shapes of these operations: shapes are drawn for {}; --shapes names a file of others",
            SPREAD_OPERATIONS.join(", ")
        ))),
        false => Ok(shapes),
    }
}

fn text(figures: &Recommendations) -> String {
    let mut by: Vec<&str> = figures.scores.iter().map(|one| one.by.as_str()).collect();
    by.sort_unstable();
    let time = |ns: f64| Nanos::new(ns).map_or("-".to_owned(), |time| time.to_string());
    let row = |shape: &ShapeFollowed| {
        let best = shape.best.iter();
        let best: Vec<String> = best
            .map(|one| format!("{}: {}", one.threads, time(one.time_ns)))
            .collect();
        let mut row = vec![shape.workload.to_string(), best.join(", ")];
        for name in &by {
            let mut its = shape.followed.iter();
            match its.find(|one| one.by == *name) {
                Some(one) => row.extend([
                    format!("{} x{:.2}", one.threads, one.threads_slowdown),
                    format!("x{:.2}", one.choice_slowdown),
                ]),
                None => row.extend(["-".to_owned(), "-".to_owned()]),
            }
        }
        let noise = shape.judge_first_half;
        row.push(noise.map_or("-".to_owned(), |noise| format!("x{noise:.2}")));
        row
    };
    let mut headings = vec!["shape".to_owned(), "fastest on so many threads".to_owned()];
    for name in &by {
        headings.extend([format!("threads by {name}"), "choice".to_owned()]);
    }
    headings.push("judge's first half".to_owned());
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let right: Vec<usize> = (2..headings.len()).collect();
    let mut text = "threads: the recommended number, and the time of the fastest kernel on so many over the fastest of all; choice: the same for the recommended kernel and setting\n".to_owned();
    text += &output::columns(&headings, &right, figures.shapes.iter().map(row).collect());
    let threads = |score: &ThreadsScore| {
        format!(
            "threads within 10 % of the best in {} of {}, geometric slowdown {:.3}, worst {:.2}",
            score.within_10pct, score.shapes, score.geo_slowdown, score.worst_slowdown
        )
    };
    for score in &figures.scores {
        text += &format!(
            "{}: {}; choices {:.3}",
            score.by,
            threads(&score.threads),
            score.choice_geo_slowdown,
        );
        text += &match score.other_tiles {
            0 => "; all tiles are the usual ones\n".to_owned(),
            other => format!(
                "; other tiles than the usual ones in {other}, slower by more than 5 % in {}\n",
                score.tiles_slower
            ),
        };
    }
    let noise = figures.judge_first_half.as_ref();
    let noise = noise.map_or("unknown, rounds were few".to_owned(), threads);
    text += &format!("judge's first half: {noise}\n");
    for skipped in &figures.skipped {
        text += &format!("not judged: {}: {}\n", skipped.workload, skipped.reason);
    }
    text
}
