//! `kernelwise tune OPERATION --shape SHAPE`: better parameters than the usual ones, found by measuring.
//!
//! The kernels race with their usual settings first; those near the front that have something to set are searched. The best of
//! each then race the usual ones and the best on record, because the best of many measurements is in part the luckiest.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::anyhow;
use indicatif::ProgressBar;
use kernelwise::memory::Raced;
use kernelwise_backend::{Host, HostKernel, Terms, admit};
use kernelwise_measure::{Clock, Comparison, Indifference, TscClock};
use kernelwise_tune::host::{Evaluated, Settings, TuneOptions, Workbench, tune};
use kernelwise_tune::recorded::Record;
use kernelwise_tune::search::{Budget, Knowledge, Stopped, Strategy};
use kernelwise_tune::space::Space;
use kernelwise_types::{Candidate, Fingerprint, Machine, Numerics, Params, Technique, Workload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::asked::{self, Asked};
use crate::args::{self, Format};
use crate::exit::Failure;
use crate::records::Records;
use crate::{interrupt, output, progress};

/// Kernels whose usual setting takes longer than so many times the best are not worth tuning.
const WORTH_TUNING: f64 = 2.0;
/// Settings of each kernel that race the usual ones in the end, and of those on record at the least.
const FINALISTS: usize = 2;
/// Who is on record with no more than so many times the best of them is in the last race as well: hours differ by about as much. So many of them at
/// the most.
const NEAR_ON_RECORD: f64 = 1.25;
const FROM_RECORD: usize = 8;
/// The share of the time that the last race has.
const LAST_RACE: f64 = 0.2;
/// Evaluations after which what is known is kept.
const KEEP_EVERY: usize = 5;
/// Workloads of a kernel that are remembered as tuned.
const MOST_SIZES: usize = 32;
const EVALUATIONS: u64 = 100;
const SECONDS: f64 = 30.0;

/// Who is in the last race: a kernel, a setting, and whether that is its usual one.
type Entrant = (Arc<dyn HostKernel>, Params, bool);

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
    /// All of the last race, the fastest first.
    finalists: Vec<Finalist>,
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
    /// Records that the search began from: other sizes on this machine, and files.
    warm_records: usize,
    /// The other sizes among them.
    warm_from: Vec<String>,
    /// Why the search ended; `null` if it was broken off.
    stopped: Option<Stopped>,
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
    if let Some(path) = &args.export {
        may_export(path, args.kernel.as_deref(), &workload, &machine)?;
    }
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
    let usual = usual(args, &mut bench, &records, &machine, numerics, 0.1 * all_s)?;
    if args.queue {
        return super::worker::put(args, strategy, &workload, &machine, &usual);
    }
    let settings = usual
        .iter()
        .map(|one| Settings::of(one.kernel.as_ref(), &workload, &machine));
    let settings: Vec<Settings> = settings.collect::<Result<_, _>>()?;
    let spaces: Vec<&Space> = settings.iter().map(Settings::space).collect();
    let named = warm(&args.warm, &spaces)?;
    if !named.is_empty() && !strategy.uses_knowledge() {
        output::note(&format!(
            "--warm is for the default strategy: `{strategy}` begins from nothing"
        ));
    }
    let evaluation = Duration::from_secs_f64((all_s / 200.0).clamp(0.02, 2.0));
    let bar = progress::counted();
    bar.set_length(args.budget.unwrap_or(EVALUATIONS) * usual.len() as u64);
    let (mut kernels, mut finalists) = (Vec::new(), Vec::new());
    let mut exported = None;
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
            knowledge: Knowledge {
                runs: args.runs.map(|runs| runs as f64),
                device: model(&machine),
                ..Knowledge::default()
            },
        };
        let settings = &settings[number];
        let mut options = options;
        let mut warm_from = Vec::new();
        if strategy.uses_knowledge() {
            options.knowledge.records.clone_from(&named);
            for (size, record) in one.other_sizes(&records, &machine, settings, &workload) {
                warm_from.push(size);
                options.knowledge.records.push(Arc::new(record));
            }
        }
        let (tuned, from_before) = one.search(&mut bench, &records, &machine, &options, &bar)?;
        if args.export.is_some() {
            exported = settings.record(&workload, &tuned.evaluated);
        }
        let best = tuned.best.first();
        kernels.push(TunedKernel {
            kernel: one.kernel.spec().id.to_string(),
            settings: settings.count(),
            evaluated: unique(&tuned.evaluated),
            from_before,
            warm_records: options.knowledge.about(settings.space()).count(),
            warm_from,
            stopped: tuned.stopped,
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
    for one in remembered(&records, args, &workload, &machine, numerics)? {
        let is_known =
            |(kernel, params, _): &Entrant| kernel.spec().id == one.0.spec().id && *params == one.1;
        if !finalists.iter().any(is_known) {
            finalists.push(one);
        }
    }
    let left_s = (all_s - spent_s()).clamp(0.5, LAST_RACE * all_s + 0.5);
    let (finalists, best_over_usual) =
        last_race(&mut bench, &records, &machine, &finalists, left_s)?;
    let tuned = Tuned {
        workload: workload.to_string(),
        strategy: strategy.name(),
        kernels,
        best: finalists.first().cloned(),
        finalists,
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
    if let (Some(path), Some(kernel)) = (&args.export, tuned.kernels.first()) {
        export(path, exported, &kernel.kernel, &machine)?;
    }
    match tuned.interrupted {
        true => Err(Failure::Interrupted),
        false => Ok(()),
    }
}

/// What records call this machine.
fn model(machine: &Machine) -> String {
    machine.cpu.model.known().cloned().unwrap_or_default()
}

/// Whether a file may be written: a new one, or one with an earlier search of the same on this machine.
fn may_export(
    path: &Path,
    kernel: Option<&str>,
    workload: &Workload,
    machine: &Machine,
) -> Result<(), Failure> {
    if !path.exists() {
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        return match folder.is_none_or(Path::is_dir) {
            true => Ok(()),
            false => Err(Failure::Usage(anyhow!(
                "--export {}: there is no such folder",
                path.display()
            ))),
        };
    }
    let same = Record::open(path).is_ok_and(|record| {
        Some(record.kernel.as_str()) == kernel
            && record.problem == workload.to_string().as_str()
            && record.device == model(machine)
    });
    match same {
        true => Ok(()),
        false => Err(Failure::Usage(anyhow!(
            "--export {}: there is something else in that file; name another one",
            path.display()
        ))),
    }
}

/// Writes what was evaluated of a kernel.
fn export(
    path: &Path,
    record: Option<Record>,
    kernel: &str,
    machine: &Machine,
) -> Result<(), Failure> {
    let told = |why: String| Failure::Failed(anyhow!("--export {}: {why}", path.display()));
    let Some(mut record) = record else {
        return Err(told("nothing that was evaluated worked".to_owned()));
    };
    let there = Record::open(path).map_or(0, |there| there.entries.len());
    if there > record.entries.len() {
        return Err(told(format!(
            "the file has {there} evaluations of an earlier search, and these are {}; name another one",
            record.entries.len()
        )));
    }
    record.kernel = kernel.to_owned();
    record.device = model(machine);
    let mut bytes = Vec::new();
    let written = record.write_cache(&mut bytes);
    written.map_err(|error| told(error.to_string()))?;
    kernelwise_report::write(path, &String::from_utf8_lossy(&bytes))?;
    Ok(())
}

/// Records in files to begin a search from.
fn read(files: &[PathBuf]) -> Result<Vec<Arc<Record>>, Failure> {
    let mut records = Vec::with_capacity(files.len());
    for path in files {
        if !path.exists() {
            let missing = anyhow!("{}: there is no such file", path.display());
            return Err(Failure::NotFound(missing));
        }
        let record = Record::open(path);
        let record =
            record.map_err(|error| Failure::Usage(anyhow!("{}: {error}", path.display())))?;
        records.push(Arc::new(record));
    }
    Ok(records)
}

/// The same; one that says nothing about any of these spaces is a mistake that is told.
pub(super) fn warm(files: &[PathBuf], spaces: &[&Space]) -> Result<Vec<Arc<Record>>, Failure> {
    let records = read(files)?;
    for (path, record) in files.iter().zip(&records) {
        let alone = Knowledge {
            records: vec![Arc::clone(record)],
            ..Knowledge::default()
        };
        if spaces
            .iter()
            .any(|space| alone.about(space).next().is_some())
        {
            continue;
        }
        let names = spaces.iter().flat_map(|space| space.parameters());
        let names: BTreeSet<&str> = names.map(|one| one.name.as_str()).collect();
        return Err(Failure::Usage(anyhow!(
            "{}: the record has other parameters, or nothing in it works; here they are {}",
            path.display(),
            names.into_iter().collect::<Vec<_>>().join(", ")
        )));
    }
    Ok(records)
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
    records: &Records,
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
    let (mut usual, mut samples): (Vec<Usual>, Vec<Vec<f64>>) = (Vec::new(), Vec::new());
    for ((kernel, setting), entry) in timed {
        let space = kernel.space(&workload, machine);
        if let Some(summary) = entry.summary_ns {
            usual.push(Usual {
                params: space.params(&setting)?,
                time_ns: summary.median,
                kernel,
            });
            samples.push(entry.samples_ns);
        }
    }
    if usual.is_empty() {
        return Err(Failure::Failed(anyhow!(
            "the time was too short to run any kernel for {workload}: give more with --time-budget"
        )));
    }
    let times = usual.iter().map(|one| one.time_ns);
    let best = times.fold(f64::INFINITY, f64::min);
    let worth = |one: &Usual| {
        let space = one.kernel.space(&workload, machine);
        one.time_ns <= WORTH_TUNING * best && space.iter().nth(1).is_some()
    };
    // Who is not tuned is in no other race: without a time, it would be recommended for what it promises.
    let memory = records.memory();
    for (one, samples) in usual.iter().zip(&samples).filter(|(one, _)| !worth(one)) {
        let candidate = Candidate {
            kernel: one.kernel.spec().id.clone(),
            params: one.params.clone(),
        };
        let version = one.kernel.spec().version;
        memory.keep(&workload.to_string(), &candidate, version, samples);
    }
    usual.retain(worth);
    usual.sort_by(|a, b| a.time_ns.total_cmp(&b.time_ns));
    if usual.is_empty() {
        return Err(Failure::NotFound(anyhow!(
            "the fastest kernels for {workload} have nothing to set: `kernelwise explain` says which they are"
        )));
    }
    Ok(usual)
}

/// A list that was kept under a name; empty if there is none.
fn kept<T: DeserializeOwned>(records: &Records, machine: &Machine, name: &str) -> Vec<T> {
    let store = records.memory().store();
    let kept = store.map(|store| store.model(&Fingerprint::of(machine), name));
    let kept = kept.and_then(Result::ok).flatten();
    kept.and_then(|kept| serde_json::from_value(kept).ok())
        .unwrap_or_default()
}

impl Usual {
    /// What evaluations on a workload are kept under.
    fn note(&self, workload: &Workload) -> String {
        let spec = self.kernel.spec();
        format!("tuning {workload} {} {}", spec.id, spec.version)
    }

    /// What the list of workloads that were tuned is kept under, the latest first.
    fn sizes(&self) -> String {
        let spec = self.kernel.spec();
        format!("tuned workloads of {} {}", spec.id, spec.version)
    }

    /// What earlier searches on this machine found for other sizes, the latest first.
    fn other_sizes(
        &self,
        records: &Records,
        machine: &Machine,
        settings: &Settings,
        workload: &Workload,
    ) -> Vec<(String, Record)> {
        let sizes: Vec<String> = kept(records, machine, &self.sizes());
        let others = sizes
            .iter()
            .filter_map(|size| size.parse::<Workload>().ok());
        let others = others.filter(|other| other != workload);
        let found = others.filter_map(|other| {
            let evaluated: Vec<Evaluated> = kept(records, machine, &self.note(&other));
            // Settings that this size does not have are left out.
            let mut record = settings.record(&other, &evaluated)?;
            record.device = model(machine);
            Some((other.to_string(), record))
        });
        found.collect()
    }

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
        let note = self.note(bench.workload());
        let store = records.memory().store();
        let past: Vec<Evaluated> = kept(records, machine, &note);
        // So that searches for other sizes find it.
        let mut sizes: Vec<String> = kept(records, machine, &self.sizes());
        let size = bench.workload().to_string();
        sizes.retain(|known| *known != size);
        sizes.insert(0, size);
        sizes.truncate(MOST_SIZES);
        if let (Some(store), Ok(sizes)) = (store, serde_json::to_value(sizes)) {
            store.keep_model(&here, &self.sizes(), sizes);
        }
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

/// Those that were about as fast as the fastest by what is on record, whether they have something to set or not. They race as well: times of another hour are no match for
/// those of this one, and `select` goes by both.
fn remembered(
    records: &Records,
    args: &args::Tune,
    workload: &Workload,
    machine: &Machine,
    numerics: Numerics,
) -> Result<Vec<Entrant>, Failure> {
    let host = Host::new(machine.clone(), kernelwise_cpu::kernels()?)?;
    let terms = Terms {
        numerics,
        ..Terms::usual(machine)
    };
    let mut kernels = host.kernels_for(workload);
    let asked = |id: &str| args.kernel.as_deref().is_none_or(|asked| asked == id);
    kernels.retain(|kernel| {
        let spec = kernel.spec();
        asked(spec.id.as_str()) && spec.technique != Technique::Reference
    });
    let found = records.found(&kernels, None)?;
    let of_it = found.here.iter().filter(|one| one.workload == *workload);
    let mut timed: Vec<_> = of_it
        .filter_map(|one| {
            let of = |kernel: &&Arc<dyn HostKernel>| kernel.spec().id == one.candidate.kernel;
            let kernel = kernels.iter().find(of)?;
            // What was a setting once need not be one any more.
            let space = kernel.space(workload, machine);
            let setting = space.setting(&one.candidate.params).ok()?;
            admit(kernel.as_ref(), workload, None, &setting, &terms).ok()?;
            let is_usual = setting == space.default_setting();
            let entrant = (Arc::clone(kernel), one.candidate.params.clone(), is_usual);
            Some((one.tally.mean()?, entrant))
        })
        .collect();
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let most = timed
        .first()
        .map_or(0.0, |(best, _)| best + NEAR_ON_RECORD.ln());
    let near = timed.into_iter().enumerate().take(FROM_RECORD);
    let near = near.take_while(|(place, (mean, _))| *place < FINALISTS || *mean <= most);
    Ok(near.map(|(_, (_, entrant))| entrant).collect())
}

/// The finalists in turn; their times are put on record. Answers with all of them, the fastest first, and what that takes over the fastest usual one.
fn last_race(
    bench: &mut Workbench<'_>,
    records: &Records,
    machine: &Machine,
    finalists: &[Entrant],
    seconds: f64,
) -> Result<(Vec<Finalist>, Option<Comparison>), Failure> {
    let workload = bench.workload().clone();
    let mut entrants = Vec::new();
    for (kernel, params, _) in finalists {
        let space = kernel.space(&workload, machine);
        entrants.push((Arc::clone(kernel), space.setting(params)?));
    }
    let race = bench.race(&entrants, 15..=60, Duration::from_secs_f64(seconds))?;
    let (mut timed, mut raced) = (Vec::new(), Vec::new());
    for ((kernel, params, is_usual), entry) in finalists.iter().zip(&race.entries) {
        let Some(summary) = &entry.summary_ns else {
            continue;
        };
        let candidate = Candidate {
            kernel: kernel.spec().id.clone(),
            params: params.clone(),
        };
        let finalist = Finalist {
            kernel: candidate.kernel.to_string(),
            parameters: params.to_string(),
            time_ns: summary.median,
            is_usual: *is_usual,
        };
        timed.push((entry.name.clone(), finalist));
        raced.push(Raced {
            candidate,
            version: kernel.spec().version,
            times_ns: entry.samples_ns.clone(),
        });
    }
    let kernels: Vec<_> = finalists.iter().map(|one| Arc::clone(&one.0)).collect();
    if let Err(error) = records.memory().keep_race(&workload, &kernels, &raced) {
        output::note(&format!("the last race is not on record: {error}"));
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
    Ok((timed.into_iter().map(|(_, one)| one).collect(), over))
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
        if one.warm_records > 0 {
            let files = one.warm_records.saturating_sub(one.warm_from.len());
            let mut from = one.warm_from.clone();
            from.extend((files > 0).then(|| format!("{files} files")));
            text += &format!(
                " {}: the search began from what is known of {}\n",
                one.kernel,
                from.join(", ")
            );
        }
        if let Some(stopped) = one.stopped {
            text += &format!(" {}: the search ended because {stopped}\n", one.kernel);
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
