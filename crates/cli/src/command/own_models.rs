//! Models of this machine's own records: what there are, and how good they are on shapes they have not seen.

use std::collections::BTreeMap;

use anyhow::anyhow;
use kernelwise_select::Evidence;
use kernelwise_select::forecast::{Accuracy, Forecast, Judged, judge};
use serde::Serialize;

use crate::args::{self, Format};
use crate::exit::Failure;
use crate::output;
use crate::records::{self, Records};

#[derive(Debug, Serialize)]
struct Evaluated {
    workloads: usize,
    times: usize,
    seed: u64,
    #[serde(flatten)]
    judged: Judged,
}

#[derive(Debug, Serialize)]
struct Kind {
    kind: String,
    workloads: usize,
    kernels: usize,
}

#[derive(Debug, Serialize)]
struct Shown {
    records: String,
    models: Vec<Kind>,
    /// Kinds with too few workloads for a model, with how many there are.
    too_few: BTreeMap<String, usize>,
}

/// What is on record here, as evidence.
fn recorded() -> Result<(Records, Vec<Evidence>), Failure> {
    let machine = kernelwise_probe::machine();
    let records = Records::open(&machine)?;
    let nothing = || {
        let path = records.path();
        Failure::NotFound(anyhow!(
            "{path} has no times of this machine: run `kernelwise learn` first"
        ))
    };
    let calibration = records.calibration()?.ok_or_else(nothing)?;
    let kernels = records.sound(kernelwise_cpu::kernels()?)?;
    let found = records.found(&kernels, Some(&calibration))?;
    let evidence = records::evidence(&machine, &kernels, &calibration, &found.remembered)?;
    if evidence.is_empty() {
        return Err(nothing());
    }
    Ok((records, evidence))
}

/// Forecasts what was measured from the rest of what was measured.
pub(super) fn evaluate(args: &args::ModelEvaluate) -> Result<(), Failure> {
    let (_, evidence) = recorded()?;
    let evaluated = Evaluated {
        workloads: workloads(&evidence).values().sum(),
        times: evidence.len(),
        seed: args.seed,
        judged: judge(&evidence, args.seed),
    };
    match args.format {
        Format::Json => output::json("kernelwise.model_evaluate_own/1", &evaluated),
        Format::Table => output::text(&table(&evaluated)),
    }
}

/// Workloads of each kind.
fn workloads(evidence: &[Evidence]) -> BTreeMap<String, usize> {
    let mut kinds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for one in evidence {
        let kind = kernelwise_select::problem::kind(&one.of.workload);
        kinds
            .entry(kind)
            .or_default()
            .push(one.of.workload.to_string());
    }
    let kinds = kinds.into_iter().map(|(kind, mut workloads)| {
        workloads.sort();
        workloads.dedup();
        (kind, workloads.len())
    });
    kinds.collect()
}

fn table(evaluated: &Evaluated) -> String {
    let row = |(name, accuracy): (String, &Accuracy)| {
        vec![
            name,
            accuracy.times.to_string(),
            format!("x{:.3}", accuracy.median_error_factor),
            format!("x{:.2}", accuracy.p90_error_factor),
            format!("{:.1} %", 100.0 * accuracy.coverage_90),
            format!("x{:.2}", accuracy.median_interval_factor),
            accuracy
                .prior_median_error_factor
                .map_or_else(|| "-".to_owned(), |factor| format!("x{factor:.2}")),
        ]
    };
    let judged = &evaluated.judged;
    let operations = judged.operations.iter().map(|(name, a)| (name.clone(), a));
    let decades = judged.decades.iter();
    let decades = decades.map(|(power, a)| (format!("from 1e{power} ns"), a));
    let all = judged.all.iter().map(|a| ("all".to_owned(), a));
    let rows = operations.chain(decades).chain(all).map(row).collect();
    let headings = [
        "",
        "times",
        "median",
        "p90",
        "in 90 %",
        "interval",
        "cold median",
    ];
    let mut text = format!(
        "{} times of {} workloads, each forecast from the others\n",
        evaluated.times, evaluated.workloads
    );
    text += &output::columns(&headings, &[1, 2, 3, 4, 5, 6], rows);
    if judged.without_model > 0 {
        let count = judged.without_model;
        text += &format!(" {count} times are of kinds with too few workloads for a model\n");
    }
    text
}

/// What models there are.
pub(super) fn show(args: &args::ModelShow) -> Result<(), Failure> {
    let (records, evidence) = recorded()?;
    let forecast = Forecast::fit(&evidence, args.seed);
    let models = forecast.kinds().map(|(kind, workloads, kernels)| Kind {
        kind: kind.to_owned(),
        workloads,
        kernels,
    });
    let models: Vec<Kind> = models.collect();
    let mut too_few = workloads(&evidence);
    too_few.retain(|kind, _| models.iter().all(|model| model.kind != *kind));
    let shown = Shown {
        records: records.path(),
        models,
        too_few,
    };
    match args.format {
        Format::Json => output::json("kernelwise.model_show/1", &shown),
        Format::Table => output::text(&shown_text(&shown)),
    }
}

fn shown_text(shown: &Shown) -> String {
    let rows = shown.models.iter().map(|model| {
        vec![
            model.kind.clone(),
            model.workloads.to_string(),
            model.kernels.to_string(),
        ]
    });
    let headings = ["model of", "workloads", "kernels with threads"];
    let mut text = output::columns(&headings, &[1, 2], rows.collect());
    for (kind, count) in &shown.too_few {
        text += &format!(" no model of {kind}: {count} measured\n");
    }
    text += &format!(" records: {}\n", shown.records);
    text
}
