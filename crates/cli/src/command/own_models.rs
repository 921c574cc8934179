//! Models of this machine's own records: what there are, and how good they are on shapes they have not seen.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::anyhow;
use kernelwise_measure::{Clock, TscClock};
use kernelwise_model::ModelKind;
use kernelwise_select::Evidence;
use kernelwise_select::forecast::{Accuracy, Choices, Forecast, Judged, Scope, judge, judge_with};
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
    /// Other types of models on the same times, if some were named.
    models: Vec<OfType>,
}

/// A type of model in the place of those in use.
#[derive(Debug, Serialize)]
struct OfType {
    name: &'static str,
    /// `null` if it could not be fitted to any kind.
    all: Option<Accuracy>,
    choices: Option<Choices>,
    /// Seconds of all fits.
    train_s: f64,
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
    /// Operations and element types that there are kernels for, and no times of.
    never_seen: BTreeSet<String>,
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
    let kinds = super::model::named(args)?;
    let clock = TscClock::new();
    let bar = progress::uncounted(super::report::FORECASTING);
    let of_type = |kind: ModelKind| {
        let began = clock.now();
        let judged = judge_with(&evidence, &kind, zone(), args.seed);
        OfType {
            name: kind.name(),
            all: judged.all,
            choices: judged.choices,
            train_s: clock.now().saturating_sub(began) as f64 / 1e9,
        }
    };
    let evaluated = Evaluated {
        models: kinds.into_iter().map(of_type).collect(),
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
    let row = |(name, accuracy): (String, &Accuracy)| -> Vec<String> {
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
    let sizes = judged.sizes.iter();
    let sizes = sizes.map(|(power, a)| (format!("from 1e{power} bytes"), a));
    let all = judged.all.iter().map(|a| ("all".to_owned(), a));
    let groups = operations.chain(decades).chain(sizes).chain(all);
    let rows = groups.map(row).collect();
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
    if !evaluated.models.is_empty() {
        let slowdown = |choices: &Option<Choices>| {
            let choices = choices.as_ref();
            choices.map_or("-".to_owned(), |c| format!("x{:.3}", c.geo_slowdown))
        };
        let usual = judged.all.iter().map(|all| {
            let mut row = row(("in use: curves and trees".to_owned(), all));
            row.extend([slowdown(&judged.choices), String::new()]);
            row
        });
        let others = evaluated.models.iter().map(|one| {
            let name = one.name.to_owned();
            let mut row = match &one.all {
                Some(all) => row((name, all)),
                None => vec![name, "0".to_owned()],
            };
            row.resize(headings.len(), "-".to_owned());
            row.extend([slowdown(&one.choices), format!("{:.1} s", one.train_s)]);
            row
        });
        let rows = usual.chain(others).collect();
        let headings = [&headings[..], &["choices", "took"]].concat();
        text += &output::columns(&headings, &[1, 2, 3, 4, 5, 6, 7, 8], rows);
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
        never_seen: never_seen(evidence)?,
    };
    match args.format {
        Format::Json => output::json("kernelwise.model_show/1", &shown),
        Format::Table => output::text(&shown_text(&shown)),
    }
}

/// Operations and element types that there are kernels for, and no times of.
fn never_seen(evidence: &[Evidence]) -> Result<BTreeSet<String>, Failure> {
    let seen: BTreeSet<String> = evidence
        .iter()
        .flat_map(|one| {
            let (operation, dtype) = (one.of.workload.operation(), one.of.workload.dtype());
            // Kernels are named after the operation with its variant, or without.
            [
                format!("{} {dtype}", operation.name()),
                format!("{operation} {dtype}"),
            ]
        })
        .collect();
    let kernels = kernelwise_cpu::kernels()?;
    let computed = kernels.iter().flat_map(|kernel| {
        let id = &kernel.spec().id;
        let dtype = id.dtypes().first();
        dtype.map(|dtype| format!("{} {dtype}", id.operation()))
    });
    Ok(computed.filter(|one| !seen.contains(one)).collect())
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
    if !shown.never_seen.is_empty() {
        let words: Vec<&str> = shown.never_seen.iter().map(String::as_str).collect();
        text += &format!(" never measured: {}\n", words.join(", "));
    }
    if let Some(train_s) = shown.train_s {
        text += &format!(" fitted in {train_s:.1} s\n");
    }
    text += &format!(" records: {}\n", shown.records);
    text
}
