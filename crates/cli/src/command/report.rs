//! `kernelwise report`: what is on record, as a page to look at.

use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use kernelwise_model::watch::{Noticed as What, Severity as Watched};
use kernelwise_report::{
    Event, EventKind, Facts, Gain, Gains, KnownBy, LoadDemo, LoadPhase, Prediction, Quarantined,
    Ratio, Report, Row, Severity,
};
use kernelwise_select::forecast::{HeldOutTime, Judged, judge};
use kernelwise_select::{Evidence, Noticed, Selector};
use kernelwise_types::units::Nanos;
use kernelwise_types::{
    Calibration, Estimate, Fingerprint, Interval, KernelId, Machine, Numerics, Reading,
};
use serde::{Deserialize, Serialize};

use super::own_models::{recorded, zone};
use super::{load, regret, standings};
use crate::args::{self, ReportFormat};
use crate::exit::Failure;
use crate::records::{Records, now_s};
use crate::{output, progress};

/// The notes in which is kept what the page tells besides times.
const EVENTS: &str = "events";
/// Events that are kept, the latest.
const MOST_EVENTS: usize = 500;
/// Of a normal distribution, nine in ten lie within so many standard deviations.
const NINETY: f64 = 1.645;

/// The longest step, in words for those who wait.
pub(super) const FORECASTING: &str = "forecasting what was measured from the rest of it";

/// An event, as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct KeptEvent {
    at_s: u64,
    kind: String,
    severity: String,
    words: String,
}

/// Makes the report and writes it.
pub(crate) fn run(args: &args::Report) -> Result<(), Failure> {
    let (records, evidence) = recorded()?;
    let bar = progress::uncounted(FORECASTING);
    let own = own(&evidence);
    let judged = judge(&own, zone(), args.seed);
    let facts = facts(&records, &own, &judged, args.seed, &bar);
    bar.finish_and_clear();
    let facts = facts?;
    let report = Report::of(&facts);
    let text = match args.format {
        ReportFormat::Html => report.html(),
        ReportFormat::Json => report.json()?,
        ReportFormat::Csv => report.csv()?,
        ReportFormat::Markdown => report.markdown(),
    };
    match (&args.output, args.format) {
        (Some(path), _) => written(path, &text),
        // A page is for a browser, not for a terminal.
        (None, ReportFormat::Html) => written(Path::new("report.html"), &text),
        (None, _) => output::verbatim(&text),
    }
}

fn written(path: &Path, text: &str) -> Result<(), Failure> {
    kernelwise_report::write(path, text)?;
    output::note(&format!("written to {}", path.display()));
    Ok(())
}

/// The page beside the records, with how well models did on this evidence; `None` where there is no place for it.
pub(super) fn beside(
    records: &Records,
    evidence: &[Evidence],
    judged: &Judged,
    seed: u64,
) -> Result<Option<PathBuf>, Failure> {
    let Some(store) = records.memory().store() else {
        return Ok(None);
    };
    let path = store.path().with_file_name("report.html");
    let bar = progress::uncounted("making the report");
    let facts = facts(records, &own(evidence), judged, seed, &bar);
    let page = facts.map(|facts| Report::of(&facts).html());
    bar.finish_and_clear();
    match kernelwise_report::write(&path, &page?) {
        Ok(()) => Ok(Some(path)),
        // Whoever may only read has the tables.
        Err(error) => {
            output::note(&format!("no page was written: {error}"));
            Ok(None)
        }
    }
}

/// Keeps what a run noticed, for the page.
pub(super) fn keep_events(
    records: &Records,
    machine: &Machine,
    noticed: &[Noticed],
    clock_now_ns: u64,
) {
    let Some(store) = records.memory().store() else {
        return;
    };
    let here = Fingerprint::of(machine);
    let kept = store.model(&here, EVENTS).ok().flatten();
    let mut all: Vec<KeptEvent> = kept
        .and_then(|kept| serde_json::from_value(kept).ok())
        .unwrap_or_default();
    all.extend(noticed.iter().filter_map(|one| event(one, clock_now_ns)));
    let surplus = all.len().saturating_sub(MOST_EVENTS);
    all.drain(..surplus);
    if let Ok(kept) = serde_json::to_value(&all) {
        store.keep_model(&here, EVENTS, kept);
    }
}

/// What was noticed, in words and by the time of day.
fn event(noticed: &Noticed, clock_now_ns: u64) -> Option<KeptEvent> {
    let ago_s = clock_now_ns.saturating_sub(noticed.event.time_ns) / 1_000_000_000;
    let kernel = noticed.kernel.as_ref();
    let kernel = kernel.map_or_else(|| "a variant".to_owned(), ToString::to_string);
    let factor = |ln: f64| format!("{:.2}x", ln.exp());
    let (kind, severity, words) = match &noticed.event.what {
        What::Drift { drift, .. } => (
            "drift",
            "major",
            format!("takes {} of what it took", factor(drift.step)),
        ),
        What::Anomaly { anomaly, .. } => (
            "anomaly",
            match anomaly.severity {
                Watched::Minor => "minor",
                Watched::Major => "major",
                Watched::Critical => "critical",
            },
            format!("one run took {} of the usual", factor(anomaly.deviation)),
        ),
        What::Trend { trend, .. } => (
            "trend",
            "minor",
            format!("changes by {:.2} % a second", 100.0 * trend.slope),
        ),
        _ => return None,
    };
    Some(KeptEvent {
        at_s: now_s().saturating_sub(ago_s),
        kind: kind.to_owned(),
        severity: severity.to_owned(),
        words: format!("{kernel} on {} {words}", noticed.workload),
    })
}

/// What other machines took is no time of this one.
fn own(evidence: &[Evidence]) -> Vec<Evidence> {
    let own = evidence.iter().filter(|one| one.away.is_none());
    own.cloned().collect()
}

/// Everything that is on record, with how well models did on it.
fn facts(
    records: &Records,
    own: &[Evidence],
    judged: &Judged,
    seed: u64,
    bar: &ProgressBar,
) -> Result<Facts, Failure> {
    let machine = kernelwise_probe::machine();
    let mut facts = Facts::new(machine.clone(), now_s());
    let calibration = records.memory().calibration()?;
    if let Some(calibration) = &calibration {
        facts.calibration = Reading::Known(calibration.clone());
    }
    // What the usual precision does not allow wins nothing.
    let reduced: Vec<KernelId> = kernelwise_cpu::kernels()?
        .iter()
        .map(|kernel| kernel.spec())
        .filter(|spec| spec.numerics == Numerics::ReducedPrecision)
        .map(|spec| spec.id.clone())
        .collect();
    let usual = own
        .iter()
        .filter(|one| !reduced.contains(&one.of.candidate.kernel));
    facts.rows = usual.filter_map(row).collect();
    bar.set_message("making the report: what choosing is worth");
    facts.gains = gains(&machine, calibration, own)?;
    if !judged.times.is_empty() {
        facts.predictions = Reading::Known(judged.times.iter().filter_map(prediction).collect());
    }
    bar.set_message("making the report: playing the times back to a learner");
    if let Some(regret) = regret::regret(own, seed) {
        facts.regret = Reading::Known(regret);
    }
    if let Some(store) = records.memory().store() {
        let here = Fingerprint::of(&machine);
        let kept = store.model(&here, EVENTS)?;
        let kept: Option<Vec<KeptEvent>> = kept.and_then(|kept| serde_json::from_value(kept).ok());
        if let Some(kept) = kept {
            facts.events = Reading::Known(kept.into_iter().map(told).collect());
        }
        let quarantines = store.quarantines(&here)?.into_iter();
        let quarantines = quarantines.map(|one| Quarantined {
            kernel: one.kernel,
            version: one.version,
            case: one.case,
            evidence: one.evidence,
            lifted: one.lifted,
        });
        facts.quarantines = Reading::Known(quarantines.collect());
        if let Some(demo) = store.model(&here, load::KEPT)? {
            facts.load_demo = load_demo(&demo);
        }
    }
    facts.conditions = vec![
        format!("kernelwise {}", env!("CARGO_PKG_VERSION")),
        format!("seed {seed}"),
        format!("{} threads may be used", machine.usable_threads()),
    ];
    facts.commands = ["learn", "model evaluate", "demo load", "report"]
        .map(|verb| format!("kernelwise {verb}"))
        .to_vec();
    Ok(facts)
}

fn row(one: &Evidence) -> Option<Row> {
    let mean = one.of.tally.mean()?;
    let nanos = |y: f64| Nanos::new(y.exp()).ok();
    let samples = one.of.tally.samples();
    let reach = NINETY * one.of.tally.sd() / (samples.max(1) as f64).sqrt();
    let ends = nanos(mean - reach).zip(nanos(mean + reach));
    let interval = ends.and_then(|(low, high)| Interval::new(low, high).ok());
    Some(Row {
        workload: one.of.workload.clone(),
        candidate: one.of.candidate.clone(),
        estimate: Estimate::Measured {
            time_ns: nanos(mean)?,
            interval_ns: interval.filter(|_| samples > 1),
            samples,
        },
    })
}

fn gains(
    machine: &Machine,
    calibration: Option<Calibration>,
    own: &[Evidence],
) -> Result<Reading<Gains>, Failure> {
    let Some(calibration) = calibration else {
        return Ok(Reading::unknown("this machine was not calibrated"));
    };
    let selector = Selector::builder(machine.clone(), kernelwise_cpu::kernels()?)
        .calibration(calibration)
        .numerics(Numerics::Reordered)
        .background(false)
        .build()?;
    let remembered: Vec<_> = own.iter().map(|one| one.of.clone()).collect();
    selector.recall(&remembered);
    let raced = standings::raced(&selector, &selector.evidence());
    let ratio = |mean: &Option<standings::Mean>| {
        mean.map(|mean| Ratio {
            mean: mean.geometric,
            low: mean.low,
            high: mean.high,
        })
    };
    let gain = |gains: &standings::Gains| Gain {
        shapes: gains.shapes,
        single_best_over_choice: ratio(&gains.single_best_over_choice),
        static_rule_over_choice: ratio(&gains.static_rule_over_choice),
    };
    let mut operations: std::collections::BTreeMap<String, Gain> =
        standings::gains(&raced, machine)
            .iter()
            .map(|(name, gains)| (name.clone(), gain(gains)))
            .collect();
    Ok(Reading::Known(Gains {
        known_by: KnownBy::Measured,
        judged_on:
            "the times that were learned from; `kernelwise bench choices` judges on fresh ones"
                .to_owned(),
        all: operations.remove("all"),
        operations,
    }))
}

fn prediction(one: &HeldOutTime) -> Option<Prediction> {
    let nanos = |y: f64| Nanos::new(y.exp()).ok();
    let (low, high) = (one.mean - one.half_width, one.mean + one.half_width);
    Some(Prediction {
        workload: one.workload.clone(),
        candidate: one.candidate.clone(),
        predicted: nanos(one.mean)?,
        interval: Interval::new(nanos(low)?, nanos(high)?).ok()?,
        measured: nanos(one.y)?,
    })
}

fn told(kept: KeptEvent) -> Event {
    Event {
        at_s: kept.at_s,
        kind: match kept.kind.as_str() {
            "drift" => EventKind::Drift,
            "trend" => EventKind::Trend,
            _ => EventKind::Anomaly,
        },
        severity: match kept.severity.as_str() {
            "minor" => Severity::Minor,
            "critical" => Severity::Critical,
            _ => Severity::Major,
        },
        words: kept.words,
    }
}

/// The last load demonstration, as it was kept.
fn load_demo(kept: &serde_json::Value) -> Reading<LoadDemo> {
    let rate = |phase: &serde_json::Value, name: &str| {
        let rates = phase["calls_per_s"].as_array()?;
        let found = rates.iter().find(|one| one[0] == name)?;
        found[1].as_f64()
    };
    let best = kept["best_fixed"].as_str().unwrap_or_default();
    let stream = kept["stream"].as_array().map(|parts| {
        let parts = parts.iter().filter_map(|part| part.as_str());
        parts.collect::<Vec<_>>().join(" and ")
    });
    let phases = kept["phases"].as_array();
    let phases: Option<Vec<LoadPhase>> = phases.map(|phases| {
        let phase = |phase: &serde_json::Value| LoadPhase {
            stream: stream.clone().unwrap_or_default(),
            phase: match phase["others"].as_u64() {
                Some(0) | None => "alone".to_owned(),
                Some(count) => format!("beside {count} other"),
            },
            best_fixed_calls_per_s: rate(phase, best),
            library_default_calls_per_s: rate(phase, "library default"),
            kernelwise_calls_per_s: rate(phase, "kernelwise"),
        };
        phases.iter().map(phase).collect()
    });
    match phases.filter(|phases| !phases.is_empty()) {
        Some(phases) => Reading::Known(LoadDemo {
            known_by: KnownBy::Measured,
            phases,
        }),
        None => Reading::unknown("what is kept of the load demonstration is of another version"),
    }
}
