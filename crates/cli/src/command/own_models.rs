//! Models of this machine's own records: what there are, and how good they are on shapes they have not seen.

use std::collections::BTreeMap;

use anyhow::anyhow;
use kernelwise_measure::{Clock, TscClock};
use kernelwise_select::Evidence;
use kernelwise_select::forecast::{Accuracy, Forecast, Judged, Scope, judge};
use kernelwise_select::learn::Rules;
use serde::Serialize;

use crate::args::{self, Format};
use crate::exit::Failure;
use crate::records::Records;
use crate::{output, progress};

#[derive(Debug, Serialize)]
struct Evaluated {
    workloads: usize,
    times: usize,
    seed: u64,
    #[serde(flatten)]
    judged: Judged,
}

/// Candidates that differ by less, in ln t, are as good as each other.
pub(super) fn zone() -> f64 {
    Rules::default().zone
}

#[derive(Debug, Serialize)]
struct Shown {
    records: String,
    /// What fitting took; `null` where nothing was fitted.
    train_s: Option<f64>,
    models: Vec<Scope>,
    /// Kinds with too few workloads for a model, with how many there are.
    too_few: BTreeMap<String, usize>,
}

/// What is on record here, as evidence.
pub(super) fn recorded() -> Result<(Records, Vec<Evidence>), Failure> {
    let machine = kernelwise_probe::machine();
    let records = Records::open(&machine)?;
    records.store()?;
    let nothing = || {
        let path = records.path();
        Failure::NotFound(anyhow!(
            "{path} has no times of this machine: run `kernelwise learn` first"
        ))
    };
    let calibration = records.memory().calibration()?.ok_or_else(nothing)?;
    let kernels = kernelwise_cpu::kernels()?;
    let found = records.found(&kernels, Some(&calibration))?;
    let evidence = records.evidence(&kernels, &calibration, &found)?;
    if evidence.is_empty() {
        return Err(nothing());
    }
    Ok((records, evidence))
}

/// Forecasts what was measured from the rest of what was measured.
pub(super) fn evaluate(args: &args::ModelEvaluate) -> Result<(), Failure> {
    let (_, mut evidence) = recorded()?;
    // What other machines took is no time of this one.
    evidence.retain(|one| one.away.is_none());
    let bar = progress::uncounted(super::report::FORECASTING);
    let evaluated = Evaluated {
        workloads: workloads(&evidence).values().sum(),
        times: evidence.len(),
        seed: args.seed,
        judged: judge(&evidence, zone(), args.seed),
    };
    bar.finish_and_clear();
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
    if let Some(usual) = &judged.all_at_usual_pace {
        text += &format!(
            "these know how fast the machine was at the moment; without, half are within x{:.3}, nine in ten within x{:.2}, {:.1} % in their intervals\n",
            usual.median_error_factor,
            usual.p90_error_factor,
            100.0 * usual.coverage_90
        );
    }
    if let Some(choices) = &judged.choices {
        text += &format!(
            "choosing by forecasts alone on {} workloads: x{:.3} of the best, in the geometric mean\n",
            choices.workloads, choices.geo_slowdown
        );
        let rows = choices.reliability.iter().map(|class| {
            vec![
                format!("{:.1} to {:.1}", class.from, class.to),
                class.choices.to_string(),
                format!("{:.1} %", 100.0 * class.announced),
                format!("{:.1} %", 100.0 * class.within_zone),
            ]
        });
        let headings = ["announced", "choices", "in the mean", "as good as the best"];
        text += &output::columns(&headings, &[1, 2, 3], rows.collect());
    }
    if !judged.importance.is_empty() {
        let mut matters: Vec<_> = judged.importance.iter().collect();
        matters.sort_by(|a, b| b.1.total_cmp(a.1));
        let words = matters
            .iter()
            .map(|(what, factor)| format!("{what} x{factor:.2}"));
        let words = words.collect::<Vec<_>>().join(", ");
        text += &format!("errors grow without: {words}\n");
    }
    if judged.without_model > 0 {
        let count = judged.without_model;
        text += &format!(" {count} times are of kinds with too few workloads for a model\n");
    }
    text
}

/// What models there are: those that are kept, and new ones where times were added since.
pub(super) fn show(args: &args::ModelShow) -> Result<(), Failure> {
    let (records, evidence) = recorded()?;
    let bar = progress::uncounted("fitting models where times were added");
    let forecast = records.memory().models(&evidence, args.seed);
    bar.finish_and_clear();
    tell(args, &records, &evidence, &forecast, None)?;
    records.close()
}

/// Fits all models anew, and keeps them.
pub(super) fn train(args: &args::ModelShow) -> Result<(), Failure> {
    let (records, evidence) = recorded()?;
    let clock = TscClock::new();
    let began = clock.now();
    let bar = progress::uncounted("fitting models");
    let forecast = records.memory().train(&evidence, args.seed);
    bar.finish_and_clear();
    let train_s = clock.now().saturating_sub(began) as f64 / 1e9;
    tell(args, &records, &evidence, &forecast, Some(train_s))?;
    records.close()
}

fn tell(
    args: &args::ModelShow,
    records: &Records,
    evidence: &[Evidence],
    forecast: &Forecast,
    train_s: Option<f64>,
) -> Result<(), Failure> {
    let models: Vec<Scope> = forecast.kinds().collect();
    let mut too_few = workloads(evidence);
    too_few.retain(|kind, _| models.iter().all(|model| model.kind != *kind));
    let shown = Shown {
        records: records.path(),
        train_s,
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
        let sizes = model.sizes.iter().map(|(low, high)| match low == high {
            true => low.to_string(),
            false => format!("{low}..{high}"),
        });
        vec![
            model.kind.clone(),
            model.workloads.to_string(),
            model.kernels.to_string(),
            sizes.collect::<Vec<_>>().join(" "),
            model
                .other_machines_distance
                .map_or("this machine".to_owned(), |d| {
                    format!("others, {d:.2} away")
                }),
        ]
    });
    let headings = [
        "model of",
        "workloads",
        "kernels with threads",
        "sizes",
        "measured on",
    ];
    let mut text = output::columns(&headings, &[1, 2], rows.collect());
    for (kind, count) in &shown.too_few {
        text += &format!(" no model of {kind}: {count} measured\n");
    }
    if let Some(train_s) = shown.train_s {
        text += &format!(" fitted in {train_s:.1} s\n");
    }
    text += &format!(" records: {}\n", shown.records);
    text
}
