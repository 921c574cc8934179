//! `kernelwise tune OPERATION --shape SHAPE`: better parameters than the usual ones, found by measuring.
//!
//! The kernels race with their usual settings first; those near the front that have something to set are searched. The best of
//! each then race the usual ones, because the best of many measurements is in part the luckiest.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::anyhow;
use indicatif::ProgressBar;
use kernelwise_backend::{Host, HostKernel, Terms, admit};
use kernelwise_measure::{Clock, Comparison, Indifference, TscClock};
use kernelwise_tune::host::{Evaluated, Settings, TuneOptions, Workbench, tune};
use kernelwise_tune::search::{Budget, Strategy};
use kernelwise_types::{Candidate, Fingerprint, Machine, Numerics, Params, Technique};
use serde::Serialize;

use super::asked::{self, Asked};
use crate::args::{self, Format};
use crate::exit::Failure;
use crate::records::Records;
use crate::{interrupt, output, progress};

/// Kernels whose usual setting takes longer than so many times the best are not worth tuning.
const WORTH_TUNING: f64 = 2.0;
/// Settings of each kernel that race the usual ones in the end.
const FINALISTS: usize = 2;
/// The share of the time that the last race has.
const LAST_RACE: f64 = 0.2;
/// Evaluations after which what is known is kept.
const KEEP_EVERY: usize = 5;
const EVALUATIONS: u64 = 100;
const SECONDS: f64 = 30.0;

/// A kernel with its usual setting and time.
pub(super) struct Usual {
    pub(super) kernel: Arc<dyn HostKernel>,
    params: Params,
    time_ns: f64,
}

#[derive(Debug, Serialize)]
struct Tuned {
    workload: String,
    strategy: &'static str,
    kernels: Vec<TunedKernel>,
    /// The fastest of the last race.
    best: Option<Finalist>,
    /// Its time over that of the best usual setting; `null` if nothing was better, or it was broken off before.
    best_over_usual: Option<Comparison>,
    records: String,
    seconds: f64,
    interrupted: bool,
}

#[derive(Debug, Serialize)]
struct TunedKernel {
    kernel: String,
    settings: usize,
    evaluated: usize,
    from_before: usize,
    failed: usize,
    failures: Vec<String>,
    usual: String,
    usual_ns: f64,
    best: Option<String>,
    /// As the search saw it: in part luck.
    best_ns: Option<f64>,
}

#[derive(Debug, Clone, Serialize)]
struct Finalist {
    kernel: String,
    parameters: String,
    time_ns: f64,
    is_usual: bool,
}

/// Tunes the kernels of an operation, or a program.
pub(crate) fn run(args: &args::Tune) -> Result<(), Failure> {
    match (&args.spec, &args.op) {
        (Some(spec), _) => super::external::run(args, spec),
        (None, Some(op)) => kernels(args, op),
        (None, None) => Err(Failure::Usage(anyhow!("name an operation, or a --spec"))),
    }
}

fn kernels(args: &args::Tune, op: &str) -> Result<(), Failure> {
    let asked = Asked::parse(op)?;
    let shape = args.shape.as_deref().unwrap_or_default();
    let workload = asked::shape(shape, Some(&asked), args.dtype)?;
    let name = args.strategy.as_deref().unwrap_or("default");
    let strategy: Strategy = name
        .parse()
        .map_err(|error| Failure::Usage(anyhow!("{error}")))?;
    if args.queue {
        super::worker::ready()?;
    }
    let machine = kernelwise_probe::machine();
    let records = Records::open(&machine)?;
    records.must_learn("tune")?;
    let cancel = interrupt::flag()?;
    let clock = TscClock::new();
    let began = clock.now();
    let spent_s = || clock.now().saturating_sub(began) as f64 / 1e9;
    let all_s = args.time_budget.unwrap_or(SECONDS);
    let seed = args.seed.unwrap_or(1);
    let numerics = match args.allow_reduced {
        true => Numerics::ReducedPrecision,
        false => Numerics::Reordered,
    };
    let mut bench = Workbench::new(&workload, &machine, numerics, &clock, cancel, seed)?;
    let usual = usual(args, &mut bench, &machine, numerics, 0.1 * all_s)?;
    if args.queue {
        return super::worker::put(args, strategy, &workload, &machine, &usual);
    }
    let evaluation = Duration::from_secs_f64((all_s / 200.0).clamp(0.02, 2.0));
    let bar = progress::counted();
    bar.set_length(args.budget.unwrap_or(EVALUATIONS) * usual.len() as u64);
    let (mut kernels, mut finalists) = (Vec::new(), Vec::new());
    let search_s = (1.0 - LAST_RACE) * all_s;
    for (number, one) in usual.iter().enumerate() {
        let left_s = ((search_s - spent_s()) / (usual.len() - number) as f64).max(0.05);
        let options = TuneOptions {
            strategy,
            budget: Budget {
                evaluations: Some(args.budget.unwrap_or(EVALUATIONS)),
                seconds: Some(left_s),
            },
            evaluation,
            seed,
        };
        let (tuned, from_before) = one.search(&mut bench, &records, &machine, &options, &bar)?;
        let settings = Settings::of(one.kernel.as_ref(), &workload, &machine)?;
        let best = tuned.best.first();
        kernels.push(TunedKernel {
            kernel: one.kernel.spec().id.to_string(),
            settings: settings.count(),
            evaluated: unique(&tuned.evaluated),
            from_before,
            failed: tuned
                .evaluated
                .iter()
                .filter(|one| one.outcome.time.is_none())
                .count(),
            failures: tuned.failures.clone(),
            usual: one.params.to_string(),
            usual_ns: one.time_ns,
            best: best.map(|(params, _)| params.to_string()),
            best_ns: best.map(|(_, seconds)| 1e9 * seconds),
        });
        finalists.push((Arc::clone(&one.kernel), one.params.clone(), true));
        let better = tuned
            .best
            .iter()
            .filter(|(params, _)| *params != one.params);
        for (params, _) in better.take(FINALISTS) {
            finalists.push((Arc::clone(&one.kernel), params.clone(), false));
        }
    }
    bar.finish_and_clear();
    let left_s = (all_s - spent_s()).clamp(0.5, LAST_RACE * all_s + 0.5);
    let (best, best_over_usual) = last_race(&mut bench, &records, &machine, &finalists, left_s)?;
    let tuned = Tuned {
        workload: workload.to_string(),
        strategy: strategy.name(),
        kernels,
        best,
        best_over_usual,
        records: records.path(),
        seconds: spent_s(),
        interrupted: cancel.load(Ordering::Relaxed),
    };
    match args.format {
        Format::Json => output::json("kernelwise.tune/1", &tuned)?,
        Format::Table => output::text(&text(&tuned))?,
    }
    records.close()?;
    match tuned.interrupted {
        true => Err(Failure::Interrupted),
        false => Ok(()),
    }
}

/// Settings that were evaluated; those measured again count once.
fn unique(evaluated: &[Evaluated]) -> usize {
    let params: BTreeSet<&Params> = evaluated.iter().map(|one| &one.params).collect();
    params.len()
}

/// The kernels worth tuning, each with its usual setting, the fastest first.
pub(super) fn usual(
    args: &args::Tune,
    bench: &mut Workbench<'_>,
    machine: &Machine,
    numerics: Numerics,
    seconds: f64,
) -> Result<Vec<Usual>, Failure> {
    let workload = bench.workload().clone();
    let host = Host::new(machine.clone(), kernelwise_cpu::kernels()?)?;
    let terms = Terms {
        numerics,
        ..Terms::usual(machine)
    };
    let mut entrants = Vec::new();
    for kernel in host.kernels_for(&workload) {
        let space = kernel.space(&workload, machine);
        let setting = space.default_setting();
        let id = kernel.spec().id.as_str();
        let asked = args.kernel.as_deref().is_none_or(|asked| asked == id);
        let may = admit(kernel.as_ref(), &workload, None, &setting, &terms).is_ok();
        if asked && may && kernel.spec().technique != Technique::Reference {
            entrants.push((kernel, setting));
        }
    }
    if entrants.is_empty() {
        let kernels = host.kernels_for(&workload);
        let known = kernels.iter().map(|kernel| kernel.spec().id.as_str());
        let shown = format!("`kernelwise kernels --shape '{workload}'` says who can");
        return Err(Failure::NotFound(match args.kernel.as_deref() {
            Some(named) => {
                let hint = asked::nearest(named, known.filter(|id| *id != named));
                anyhow!("{named} cannot be tuned on {workload} here: {shown}{hint}")
            }
            None => anyhow!("no kernel computes {workload} here: {shown}, and why others cannot"),
        }));
    }
    let race = bench.race(&entrants, 3..=9, Duration::from_secs_f64(seconds))?;
    if interrupt::flag()?.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    let timed = entrants.into_iter().zip(race.entries);
    let mut usual: Vec<Usual> = Vec::new();
    for ((kernel, setting), entry) in timed {
        let space = kernel.space(&workload, machine);
        if let Some(summary) = entry.summary_ns {
            usual.push(Usual {
                params: space.params(&setting)?,
                time_ns: summary.median,
                kernel,
            });
        }
    }
    if usual.is_empty() {
        return Err(Failure::Failed(anyhow!(
            "the time was too short to run any kernel for {workload}: give more with --time-budget"
        )));
    }
    usual.sort_by(|a, b| a.time_ns.total_cmp(&b.time_ns));
    let best = usual.first().map_or(0.0, |best| best.time_ns);
    usual.retain(|one| {
        let space = one.kernel.space(&workload, machine);
        one.time_ns <= WORTH_TUNING * best && space.iter().nth(1).is_some()
    });
    if usual.is_empty() {
        return Err(Failure::NotFound(anyhow!(
            "the fastest kernels for {workload} have nothing to set: `kernelwise explain` says which they are"
        )));
    }
    Ok(usual)
}

impl Usual {
    /// Searches the settings, going on from what was kept of an earlier search.
    fn search(
        &self,
        bench: &mut Workbench<'_>,
        records: &Records,
        machine: &Machine,
        options: &TuneOptions,
        bar: &ProgressBar,
    ) -> Result<(kernelwise_tune::host::Tuned, usize), Failure> {
        let spec = self.kernel.spec();
        let here = Fingerprint::of(machine);
        let note = format!("tuning {} {} {}", bench.workload(), spec.id, spec.version);
        let store = records.memory().store();
        let kept = store.map(|store| store.model(&here, &note));
        let kept = kept.and_then(Result::ok).flatten();
        let past: Vec<Evaluated> = kept
            .and_then(|kept| serde_json::from_value(kept).ok())
            .unwrap_or_default();
        bar.set_message(spec.id.to_string());
        bar.inc(past.len() as u64);
        let mut all = past.clone();
        let keep = |all: &[Evaluated]| {
            if let (Some(store), Ok(kept)) = (store, serde_json::to_value(all)) {
                store.keep_model(&here, &note, kept);
            }
        };
        let mut watch = |one: &Evaluated| {
            bar.inc(1);
            all.push(one.clone());
            // Whoever is killed loses a few.
            if all.len().is_multiple_of(KEEP_EVERY) {
                keep(&all);
            }
        };
        let tuned = tune(bench, &self.kernel, &past, options, &mut watch)?;
        keep(&all);
        Ok((tuned, past.len()))
    }
}

/// The finalists in turn; their times are put on record. Answers with the fastest, and what it takes over the fastest usual one.
fn last_race(
    bench: &mut Workbench<'_>,
    records: &Records,
    machine: &Machine,
    finalists: &[(Arc<dyn HostKernel>, Params, bool)],
    seconds: f64,
) -> Result<(Option<Finalist>, Option<Comparison>), Failure> {
    let workload = bench.workload().clone();
    let mut entrants = Vec::new();
    for (kernel, params, _) in finalists {
        let space = kernel.space(&workload, machine);
        entrants.push((Arc::clone(kernel), space.setting(params)?));
    }
    let race = bench.race(&entrants, 15..=60, Duration::from_secs_f64(seconds))?;
    let mut timed = Vec::new();
    for ((kernel, params, is_usual), entry) in finalists.iter().zip(&race.entries) {
        let Some(summary) = &entry.summary_ns else {
            continue;
        };
        let candidate = Candidate {
            kernel: kernel.spec().id.clone(),
            params: params.clone(),
        };
        let text = workload.to_string();
        let version = kernel.spec().version;
        let memory = records.memory();
        memory.keep(&text, &candidate, version, &entry.samples_ns);
        let finalist = Finalist {
            kernel: candidate.kernel.to_string(),
            parameters: params.to_string(),
            time_ns: summary.median,
            is_usual: *is_usual,
        };
        timed.push((entry.name.clone(), finalist));
    }
    timed.sort_by(|a, b| a.1.time_ns.total_cmp(&b.1.time_ns));
    let best = timed.first().cloned();
    let usual = timed.iter().find(|(_, one)| one.is_usual);
    let over = match (&best, usual) {
        (Some((best, finalist)), Some((usual, _))) if !finalist.is_usual => {
            race.compare(best, usual, 0.9, Indifference::default())
        }
        _ => None,
    };
    Ok((best.map(|(_, best)| best), over))
}

fn text(tuned: &Tuned) -> String {
    let time = |ns: f64| {
        let time = kernelwise_types::units::Nanos::new(ns);
        time.map_or("-".to_owned(), |time| time.to_string())
    };
    let rows = tuned.kernels.iter().map(|one| {
        vec![
            one.kernel.clone(),
            format!("{} of {}", one.evaluated, one.settings),
            one.failed.to_string(),
            one.usual.clone(),
            time(one.usual_ns),
            one.best.clone().unwrap_or_else(|| "-".to_owned()),
            one.best_ns.map_or("-".to_owned(), time),
        ]
    });
    let headings = [
        "kernel",
        "evaluated",
        "failed",
        "usual",
        "",
        "best seen",
        "",
    ];
    let mut text = format!("{} by search `{}`\n", tuned.workload, tuned.strategy);
    text += &output::columns(&headings, &[1, 2, 4, 6], rows.collect());
    for one in &tuned.kernels {
        for failure in one.failures.iter().take(3) {
            text += &format!(" {} failed: {failure}\n", one.kernel);
        }
        if one.from_before > 0 {
            text += &format!(
                " {}: {} evaluations are from an earlier search\n",
                one.kernel, one.from_before
            );
        }
    }
    match (&tuned.best, &tuned.best_over_usual) {
        (Some(best), _) if best.is_usual => {
            text += &format!(
                "the usual setting of {} stays: none of the finalists was faster ({})\n",
                best.kernel,
                time(best.time_ns)
            );
        }
        (Some(best), Some(over)) => {
            text += &format!(
                "{} ({}) takes {}; beside the best usual setting: {over}\n",
                best.kernel,
                best.parameters,
                time(best.time_ns)
            );
        }
        _ => text += "it was ended before the finalists had raced\n",
    }
    text += &format!("{:.1} s; kept in {}\n", tuned.seconds, tuned.records);
    text
}
