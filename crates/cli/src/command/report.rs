//! `kernelwise report`: what is on record, as a page to look at.

use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use kernelwise_measure::TscClock;
use kernelwise_model::watch::{
    Cause, Correlation, Noticed as What, Reading as Gauge, Severity as Watched,
};
use kernelwise_report::{
    Event, EventKind, Facts, Gain, Gains, KnownBy, LoadDemo, LoadPhase, Prediction, Quarantined,
    Ratio, Report, Row, Severity, utc,
};
use kernelwise_select::forecast::{HeldOutTime, Judged, judge};
use kernelwise_select::{Evidence, Noticed, Selector};
use kernelwise_types::units::Nanos;
use kernelwise_types::{
    Calibration, Estimate, Fingerprint, Interval, KernelId, Machine, Numerics, Reading,
};
use serde::{Deserialize, Serialize};

use super::own_models::{recorded, zone};
use super::probe::state_now;
use super::runs::{self, Run};
use super::{doctor, load, regret, standings};
use crate::args::{self, ReportFormat};
use crate::exit::Failure;
use crate::records::{Records, now_s};
use crate::{output, progress};

/// The notes in which is kept what the page tells besides times.
const EVENTS: &str = "events";
/// Events that are kept, the latest.
const MOST_EVENTS: usize = 500;
/// Runs of `learn` whose warnings are shown, the latest.
const MOST_RUNS: usize = 3;
/// Of a normal distribution, nine in ten lie within so many standard deviations.
const NINETY: f64 = 1.645;

/// The longest step, in words for those who wait.
pub(super) const FORECASTING: &str = "forecasting what was measured from the rest of it";

/// An event, as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct KeptEvent {
    at_s: u64,
    kind: String,
    severity: String,
    words: String,
    /// The command that ran meanwhile; only `learn` kept events before this was noted.
    #[serde(default = "learning")]
    during: String,
}

fn learning() -> String {
    "kernelwise learn".to_owned()
}

/// What a report is made from.
pub(super) struct Material<'a> {
    pub(super) records: &'a Records,
    pub(super) machine: &'a Machine,
    pub(super) calibration: Option<&'a Calibration>,
    pub(super) evidence: &'a [Evidence],
    /// How well models did on that.
    pub(super) judged: &'a Judged,
    pub(super) runs: &'a [Run],
    /// `None` if nobody watched.
    pub(super) events: Option<Vec<KeptEvent>>,
    pub(super) seed: u64,
    /// The command that makes the report, if it is none of the runs.
    pub(super) command: Option<String>,
}

/// Makes the report and writes it.
pub(crate) fn run(args: &args::Report) -> Result<(), Failure> {
    let (records, evidence) = recorded()?;
    let machine = kernelwise_probe::machine();
    let bar = progress::uncounted(FORECASTING);
    let own = own(&evidence);
    let judged = judge(&own, zone(), args.seed);
    let calibration = records.memory().calibration()?;
    let seed = args.seed;
    let facts = facts(
        &Material {
            records: &records,
            machine: &machine,
            calibration: calibration.as_ref(),
            evidence: &own,
            judged: &judged,
            runs: &runs::kept(&records, &machine),
            events: kept_events(&records, &machine),
            seed,
            command: Some(match seed {
                1 => "kernelwise report".to_owned(),
                seed => format!("kernelwise report --seed {seed}"),
            }),
        },
        &bar,
    );
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
        (None, ReportFormat::Html) => written(Path::new(PAGE), &text),
        (None, _) => output::verbatim(&text),
    }
}

fn written(path: &Path, text: &str) -> Result<(), Failure> {
    kernelwise_report::write(path, text)?;
    output::note(&format!("written to {}", path.display()));
    Ok(())
}

/// The name of the page, where nobody gives it another.
const PAGE: &str = "report.html";

/// The page beside the records, or in this directory where that may not be written; `None`, with a note why, where that fails as well.
pub(super) fn beside(material: &Material<'_>) -> Result<Option<PathBuf>, Failure> {
    let bar = progress::step("making the report");
    let own = own(material.evidence);
    let material = Material {
        evidence: &own,
        events: material.events.clone(),
        command: material.command.clone(),
        ..*material
    };
    let facts = facts(&material, &bar);
    let page = facts.map(|facts| Report::of(&facts).html());
    bar.finish_and_clear();
    let page = page?;
    if let Some(store) = material.records.memory().store() {
        let path = store.path().with_file_name(PAGE);
        match kernelwise_report::write(&path, &page) {
            Ok(()) => return Ok(Some(path)),
            Err(error) => output::note(&format!(
                "{error}: the report is written to this directory instead"
            )),
        }
    } else {
        output::note("without a directory for records, the report is written to this one");
    }
    let path = std::path::absolute(PAGE).unwrap_or_else(|_| PathBuf::from(PAGE));
    match kernelwise_report::write(&path, &page) {
        Ok(()) => Ok(Some(path)),
        // Whoever may write nowhere has the tables.
        Err(error) => {
            output::note(&format!("no report was written: {error}"));
            Ok(None)
        }
    }
}

/// The events on record; `None` if nobody watched yet.
fn kept_events(records: &Records, machine: &Machine) -> Option<Vec<KeptEvent>> {
    let store = records.memory().store()?;
    let kept = store.model(&Fingerprint::of(machine), EVENTS).ok()??;
    serde_json::from_value(kept).ok()
}

/// Keeps what a run noticed, for the page: answers with all events that are on record then.
pub(super) fn keep_events(
    records: &Records,
    machine: &Machine,
    noticed: &[Noticed],
    clock_now_ns: u64,
) -> Vec<KeptEvent> {
    let mut all = kept_events(records, machine).unwrap_or_default();
    all.extend(noticed.iter().filter_map(|one| event(one, clock_now_ns)));
    let surplus = all.len().saturating_sub(MOST_EVENTS);
    all.drain(..surplus);
    if let (Some(store), Ok(kept)) = (records.memory().store(), serde_json::to_value(&all)) {
        store.keep_model(&Fingerprint::of(machine), EVENTS, kept);
    }
    all
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
            format!("takes {} the time it took before", factor(drift.step)),
        ),
        What::Anomaly { anomaly, .. } => (
            "anomaly",
            match anomaly.severity {
                Watched::Minor => "minor",
                Watched::Major => "major",
                Watched::Critical => "critical",
            },
            format!(
                "took {} the usual time in one run{}",
                factor(anomaly.deviation),
                because(anomaly.cause)
            ),
        ),
        What::Trend { trend, .. } => (
            "trend",
            "minor",
            format!("changes by {:.2} % a second", 100.0 * trend.slope),
        ),
        What::Correlation(correlation) => {
            return Some(KeptEvent {
                at_s: now_s().saturating_sub(ago_s),
                kind: "correlation".to_owned(),
                severity: "minor".to_owned(),
                words: correlated(correlation),
                during: learning(),
            });
        }
        _ => return None,
    };
    Some(KeptEvent {
        at_s: now_s().saturating_sub(ago_s),
        kind: kind.to_owned(),
        severity: severity.to_owned(),
        words: format!("{kernel} on {} {words}", noticed.workload),
        during: learning(),
    })
}

/// What goes along with how long runs take. It is a statement about the machine, not about the workload at hand.
fn correlated(correlation: &Correlation) -> String {
    let reading = match correlation.reading {
        Gauge::Load => "the more processors others keep busy",
        Gauge::Clock => "the higher the core clock is",
        Gauge::Temperature => "the hotter the processor is",
        Gauge::MemoryPressure => "the shorter memory is",
        other => &format!("the higher the {} is", other.name()),
    };
    let longer = if correlation.r > 0.0 {
        "longer"
    } else {
        "less long"
    };
    format!(
        "runs take {longer} {reading} (rank correlation {:.2} over {} runs)",
        correlation.r, correlation.samples
    )
}

/// What the machine said while a run was out of line.
fn because(cause: Cause) -> &'static str {
    match cause {
        Cause::Load => "; likely because others kept more processors busy than usual",
        Cause::ThrottledClock => "; likely because the core clock was lower than usual",
        Cause::Temperature => "; likely because the processor was hotter than usual",
        Cause::MemoryPressure => "; likely because memory was shorter than usual",
        Cause::Unknown => "; no reading of the machine says why",
    }
}

/// What other machines took is no time of this one.
fn own(evidence: &[Evidence]) -> Vec<Evidence> {
    let own = evidence.iter().filter(|one| one.away.is_none());
    own.cloned().collect()
}

/// Everything that is on record, with how well models did on it.
fn facts(material: &Material<'_>, bar: &ProgressBar) -> Result<Facts, Failure> {
    let Material {
        records,
        machine,
        calibration,
        evidence: own,
        judged,
        seed,
        ..
    } = *material;
    let mut facts = Facts::new(machine.clone(), now_s());
    if let Some(calibration) = calibration {
        facts.calibration = Reading::Known(calibration.clone());
    }
    facts.state = Reading::Known(state_now(&TscClock::new()).1);
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
    facts.gains = gains(machine, calibration, own)?;
    if !judged.times.is_empty() {
        facts.predictions = Reading::Known(judged.times.iter().filter_map(prediction).collect());
    }
    bar.set_message("making the report: playing the times back to a learner");
    if let Some(regret) = regret::regret(own, seed) {
        facts.regret = Reading::Known(regret);
    }
    if let Some(events) = &material.events {
        facts.events = Reading::Known(events.iter().cloned().map(told).collect());
    }
    let mut dates = None;
    if let Some(store) = records.memory().store() {
        let here = Fingerprint::of(machine);
        let known = store.known(&here)?;
        let first = known.iter().map(|one| one.statistics.first_s()).min();
        let last = known.iter().map(|one| one.statistics.last_s()).max();
        dates = first.zip(last);
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
    facts.warnings = warnings(machine, material.runs);
    facts.conditions = conditions(material, &facts.rows, dates);
    facts.commands = commands(
        material,
        facts.load_demo.known().map(|_| "kernelwise demo load"),
    );
    Ok(facts)
}

/// What raises doubts: the machine as it is, and what disturbed the latest runs.
fn warnings(machine: &Machine, runs: &[Run]) -> Vec<String> {
    let mut warnings = doctor::standing(machine);
    for run in runs.iter().rev().take(MOST_RUNS) {
        let when = utc(run.at_s);
        let run = run.warnings.iter();
        warnings.extend(run.map(|warning| format!("`learn` on {when}: {warning}")));
    }
    if runs.is_empty() {
        warnings.push(
            "no run of `learn` is on record: how quiet the machine was while times were taken is not known"
                .to_owned(),
        );
    }
    warnings
}

/// Under what the times were taken; `dates` are those of the first and the last.
fn conditions(material: &Material<'_>, rows: &[Row], dates: Option<(u64, u64)>) -> Vec<String> {
    let mut conditions = Vec::new();
    if let Some((first, last)) = dates {
        let (first, last) = (utc(first), utc(last));
        conditions.push(match first == last {
            true => format!("times were taken on {first}"),
            false => format!("times were taken from {first} to {last}"),
        });
    }
    if let Some(run) = material.runs.last() {
        conditions.push(format!(
            "last `learn`: {}, kernelwise {}, seed {}, {} threads, {} workloads measured and {} measured again, {}",
            utc(run.at_s),
            run.version,
            run.seed,
            run.threads,
            run.measured,
            run.repeated,
            match run.openblas {
                true => "with OpenBLAS",
                false => "without OpenBLAS, which was not found",
            }
        ));
    }
    let is_openblas = |row: &&Row| row.candidate.kernel.variant() == "openblas";
    conditions.push(match rows.iter().filter(is_openblas).count() {
        0 => "no times of OpenBLAS are on record".to_owned(),
        count => format!("OpenBLAS took part: {count} of the times are its own"),
    });
    conditions.push(format!(
        "report made by kernelwise {}, {} threads may be used, seed {} (which workloads are held out, order of the replay)",
        env!("CARGO_PKG_VERSION"),
        material.machine.usable_threads(),
        material.seed
    ));
    conditions
}

/// The commands that left what is shown, each once, those of the latest runs last.
fn commands(material: &Material<'_>, demo: Option<&str>) -> Vec<String> {
    let runs = material.runs.iter().map(|run| run.command.clone());
    let others = demo.map(str::to_owned).into_iter();
    let mut commands: Vec<String> = Vec::new();
    for command in runs.chain(others).chain(material.command.clone()) {
        commands.retain(|one| *one != command);
        commands.push(command);
    }
    commands
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
    calibration: Option<&Calibration>,
    own: &[Evidence],
) -> Result<Reading<Gains>, Failure> {
    let Some(calibration) = calibration else {
        return Ok(Reading::unknown("this machine was not calibrated"));
    };
    let selector = Selector::builder(machine.clone(), kernelwise_cpu::kernels()?)
        .calibration(calibration.clone())
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
            "Judged on the times that were learned from; `kernelwise bench choices` judges on fresh ones"
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
            "correlation" => EventKind::Correlation,
            _ => EventKind::Anomaly,
        },
        severity: match kept.severity.as_str() {
            "minor" => Severity::Minor,
            "critical" => Severity::Critical,
            _ => Severity::Major,
        },
        words: kept.words,
        during: kept.during,
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
