//! `kernelwise model evaluate`: how good models of times are.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering;

use kernelwise_measure::TscClock;
use kernelwise_model::ModelKind;
use kernelwise_replay::{
    Contender, EvaluateError, Evaluated, Evaluation, FindDb, Progress, ReadError, Setup, evaluate,
};
use serde::Serialize;

use super::own_models;
use crate::args::{self, Format};
use crate::exit::Failure;
use crate::{interrupt, output, progress};

#[derive(Debug, Serialize)]
struct Report {
    algorithms: Vec<String>,
    seed: u64,
    #[serde(flatten)]
    evaluation: Evaluation,
}

/// Evaluates the models of this machine's records, or types of models on a record of convolutions.
pub(crate) fn evaluate_models(args: &args::ModelEvaluate) -> Result<(), Failure> {
    match &args.find_db {
        Some(path) => on_convolutions(args, path),
        None => own_models::evaluate(args),
    }
}

/// The types of models that were named.
pub(super) fn named(args: &args::ModelEvaluate) -> Result<Vec<ModelKind>, Failure> {
    let kinds = args.models.iter().map(|name| name.parse());
    let kinds: Result<_, kernelwise_model::UnknownModel> = kinds.collect();
    kinds.map_err(|error| Failure::Usage(anyhow::Error::new(error)))
}

fn on_convolutions(args: &args::ModelEvaluate, path: &Path) -> Result<(), Failure> {
    let mut contenders: Vec<Contender> = Vec::new();
    let kinds = match args.models.is_empty() {
        true => ModelKind::ALL.to_vec(),
        false => named(args)?,
    };
    contenders.extend(kinds.into_iter().map(Contender::from));
    let record = FindDb::open(path).map_err(|error| {
        let is_missing =
            matches!(&error, ReadError::File(file) if file.kind() == std::io::ErrorKind::NotFound);
        let error = anyhow::Error::new(error).context(path.display().to_string());
        if is_missing {
            Failure::NotFound(error)
        } else {
            Failure::Failed(error)
        }
    })?;
    let setup = Setup {
        seed: args.seed,
        limit: args.limit.map_or(usize::MAX, |limit| limit as usize),
        ..Setup::default()
    };
    let cancel = interrupt::flag()?;
    let bar = progress::counted();
    let watch = |at: Progress<'_>| {
        bar.set_length(at.of as u64);
        bar.set_position(at.done as u64);
        bar.set_message(at.name.to_owned());
        match cancel.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let evaluation = evaluate(&record, &contenders, &setup, &TscClock::new(), &watch);
    bar.finish_and_clear();
    let evaluation = match evaluation {
        Err(EvaluateError::BrokenOff) => return Err(Failure::Interrupted),
        // Also if it was pressed during the last fits.
        _ if cancel.load(Ordering::Relaxed) => return Err(Failure::Interrupted),
        other => other?,
    };
    let report = Report {
        algorithms: record.algorithms,
        seed: args.seed,
        evaluation,
    };
    match args.format {
        Format::Json => output::json("kernelwise.model_evaluate/1", &report),
        Format::Table => output::text(&table(&report.evaluation)),
    }
}

fn table(evaluation: &Evaluation) -> String {
    let mut rows: Vec<Vec<String>> = evaluation.models.iter().map(row).collect();
    let fixed = format!("static order {}", evaluation.static_order.join(" > "));
    let others = [
        (fixed, &evaluation.static_order_figures),
        ("oracle".to_owned(), &evaluation.oracle),
    ];
    for (name, figures) in others {
        let mut row = vec![
            name,
            format!("{:.4}", figures.geo_slowdown),
            percent(figures.share_over_5pct),
        ];
        row.resize(HEADINGS.len(), String::new());
        rows.push(row);
    }
    let mut text = format!(
        "{} problems to learn from, {} to choose for\n",
        evaluation.train_problems, evaluation.test_problems
    );
    text += &output::columns(&HEADINGS, &[1, 2, 3, 4, 5, 6, 7], rows);
    for model in &evaluation.models {
        if let Some(rows) = model.sampled_to {
            text += &format!(" {} learned from {rows} rows per algorithm\n", model.name);
        }
    }
    text + USED
}

/// Which of them is used where.
const USED: &str = concat!(
    " no call waits for a model: choices are looked up, and models are asked once for each new input\n",
    " asked then are boosted trees with slowdowns, fitted to what the program met, and curves with boosted trees, fitted to records\n",
    " boosted-trees answers for all candidates of a choice at once, and its time is divided by these\n",
);

const HEADINGS: [&str; 8] = [
    "",
    "slowdown",
    "over 5 %",
    "in 90 %",
    "median",
    "p90",
    "fitted in",
    "asked in",
];

fn row(model: &Evaluated) -> Vec<String> {
    vec![
        model.name.clone(),
        format!("{:.4}", model.geo_slowdown),
        percent(model.share_over_5pct),
        model.coverage_90.map_or_else(|| "-".to_owned(), percent),
        format!("x{:.3}", model.median_error_factor),
        format!("x{:.3}", model.p90_error_factor),
        format!("{:.2} s", model.train_s),
        format!("{:.0} ns", model.predict_ns),
    ]
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
