//! Jobs: what is put, what is taken, and what comes back.
//!
//! Whoever waits for the results also decides what is measured next: the search runs there, and keeps a few jobs ahead of the
//! workers. Who does not wait puts settings drawn at random, for nobody is left to search. A search is for one kind of
//! machine, because times of different kinds cannot be compared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use indicatif::ProgressBar;
use kernelwise_backend::HostKernel;
use kernelwise_measure::TscClock;
use kernelwise_store::fleet::{Fleet, FleetOptions, Job, JobCounts, JobResult, SEARCHES_AT_ONCE};
use kernelwise_store::{Happened, SeriesKey, Statistics};
use kernelwise_tune::host::{
    Evaluated, Evaluators, Settings, TuneOptions, Workbench, tune_elsewhere,
};
use kernelwise_tune::search::{Budget, Knowledge, Outcome, Strategy};
use kernelwise_types::units::Nanos;
use kernelwise_types::{Candidate, Fingerprint, Machine, Numerics, Params, Workload};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Usual;
use super::patient::Patient;
use crate::args::{self, Format};
use crate::command::fleet::server;
use crate::exit::Failure;
use crate::records::{Records, now_s};
use crate::{interrupt, output, progress};

/// Time for each evaluation.
const EVALUATION: Duration = Duration::from_millis(300);
/// How often whoever waits looks.
const LOOK: Duration = Duration::from_millis(500);
/// How often whoever searches does.
const SEARCH_LOOK: Duration = Duration::from_millis(100);
/// Jobs that wait for a worker, beyond one for each that is at work, so that none of them waits for the search.
const AHEAD: usize = 2;
/// Looks without a job after which a worker takes it that there will be none: a search needs a moment to decide.
const EMPTY_LOOKS: u32 = 4;
const EVALUATIONS: u64 = 100;

/// What is to be measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Spec {
    workload: String,
    kernel: String,
    version: u32,
    params: String,
    reduced: bool,
    /// The kind of machine it is for.
    machine: Fingerprint,
    /// Counts measurements of the same setting.
    round: usize,
}

#[derive(Debug, Serialize)]
struct Queued {
    /// One for each kernel.
    searches: Vec<String>,
    put: u64,
    waiting: u64,
    leased: u64,
    done: u64,
    poisoned: u64,
    /// The best so far; `null` if nothing was measured.
    best: Option<Best>,
}

#[derive(Debug, Serialize)]
struct Best {
    machine: String,
    kernel: String,
    parameters: String,
    time_ns: f64,
}

pub(super) fn put(
    args: &args::Tune,
    strategy: Strategy,
    workload: &Workload,
    machine: &Machine,
    usual: &[Usual],
) -> Result<(), Failure> {
    let mut server = Patient::connect()?;
    let here = Fingerprint::of(machine);
    let (mut put, mut searches) = (0, Vec::new());
    for one in usual {
        let known = one.kernel.spec();
        let template = Spec {
            workload: workload.to_string(),
            kernel: known.id.to_string(),
            version: known.version,
            params: String::new(),
            reduced: args.allow_reduced,
            machine: here.clone(),
            round: 0,
        };
        let settings = Settings::of(one.kernel.as_ref(), workload, machine)?;
        let search = template.search();
        put += match args.detach {
            true => put_at_random(args, &mut server, &search, &template, &settings)?,
            false => put_as_searched(args, strategy, &mut server, &search, &template, &settings)?,
        };
        searches.push(search);
    }
    tell(args, &mut server, searches, put)
}

/// Whether there is a server to ask.
pub(super) fn ready() -> Result<(), Failure> {
    server().map(|_| ())
}

/// Puts settings for workers that come later.
fn put_at_random(
    args: &args::Tune,
    server: &mut Patient,
    search: &str,
    template: &Spec,
    settings: &Settings,
) -> Result<u64, Failure> {
    let mut all = settings.all()?;
    all.shuffle(&mut Pcg64Mcg::seed_from_u64(args.seed.unwrap_or(1)));
    let most = usize::try_from(args.budget.unwrap_or(EVALUATIONS)).unwrap_or(usize::MAX);
    let specs = all.iter().take(most).map(|params| template.of(params, 0));
    let specs: Result<Vec<Value>, serde_json::Error> = specs.collect();
    let specs = specs?;
    let put = server.ask(|fleet| fleet.put_jobs(search, &specs))?;
    put.ok_or(Failure::Interrupted)
}

/// Puts what the search asks for, while workers measure.
fn put_as_searched(
    args: &args::Tune,
    strategy: Strategy,
    server: &mut Patient,
    search: &str,
    template: &Spec,
    settings: &Settings,
) -> Result<u64, Failure> {
    let bar = progress::counted();
    bar.set_length(args.budget.unwrap_or(EVALUATIONS));
    bar.set_message(format!(
        "{}, measured by `kernelwise worker`",
        template.kernel
    ));
    let past = results(server, search)?;
    let mut workers = Workers {
        server,
        search,
        template,
        heard: BTreeSet::new(),
        open: BTreeSet::new(),
        put: 0,
        bar,
        cancel: interrupt::flag()?,
    };
    let past = workers.news(past);
    let options = TuneOptions {
        strategy,
        budget: Budget {
            evaluations: Some(args.budget.unwrap_or(EVALUATIONS)),
            // Workers may come and go: their seconds are not those of whoever waits.
            seconds: None,
        },
        evaluation: EVALUATION,
        seed: args.seed.unwrap_or(1),
        knowledge: Knowledge {
            runs: args.runs.map(|runs| runs as f64),
            ..Knowledge::default()
        },
    };
    let tuned = tune_elsewhere(settings, &past, &options, &mut workers)?;
    workers.bar.finish_and_clear();
    if tuned.stopped.is_none() {
        output::note("the jobs stay on the server: the same command waits for them again");
        return Err(Failure::Interrupted);
    }
    Ok(workers.put)
}

impl Spec {
    /// One search for all that can be compared, and that one worker can measure if it can measure any: whoever asks again goes on
    /// with it.
    fn search(&self) -> String {
        let Self {
            workload,
            kernel,
            version,
            machine,
            ..
        } = self;
        let reduced = if self.reduced { ", reduced" } else { "" };
        format!("tune {workload} by {kernel} version {version} on {machine}{reduced}")
    }

    /// The same for other parameters.
    fn of(&self, params: &Params, round: usize) -> Result<Value, serde_json::Error> {
        let params = params.to_string();
        serde_json::to_value(Self {
            params,
            round,
            ..self.clone()
        })
    }
}

/// All results of a search.
fn results(server: &mut Patient, search: &str) -> Result<Vec<JobResult>, Failure> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = server.ask(|fleet| fleet.job_results(search, after))?;
        let page = page.ok_or(Failure::Interrupted)?;
        let Some(last) = page.last() else {
            return Ok(all);
        };
        after = last.id;
        all.extend(page);
    }
}

/// The workers of a search, seen from whoever waits for them.
struct Workers<'a> {
    server: &'a mut Patient,
    search: &'a str,
    template: &'a Spec,
    /// Jobs whose results were told.
    heard: BTreeSet<(Params, usize)>,
    /// Jobs that had not ended when they were last seen: only these are asked about.
    open: BTreeSet<i64>,
    put: u64,
    bar: ProgressBar,
    cancel: &'static AtomicBool,
}

impl Workers<'_> {
    /// What was not told yet.
    fn news(&mut self, ended: Vec<JobResult>) -> Vec<Evaluated> {
        let mut news = Vec::new();
        for ended in ended {
            self.open.remove(&ended.id);
            let Ok(spec) = serde_json::from_value::<Spec>(ended.spec) else {
                continue;
            };
            let Ok(params) = spec.params.parse::<Params>() else {
                continue;
            };
            let ours = spec
                == Spec {
                    params: spec.params.clone(),
                    round: spec.round,
                    ..self.template.clone()
                };
            if ours && self.heard.insert((params.clone(), spec.round)) {
                let outcome = ended.record.map(|record| outcome(&record.statistics));
                let outcome = outcome.unwrap_or_else(Outcome::failed);
                news.push(Evaluated { params, outcome });
            }
        }
        self.bar.set_position(self.heard.len() as u64);
        news
    }
}

impl Evaluators for Workers<'_> {
    type Error = Failure;

    fn put(&mut self, params: &Params, round: usize) -> Result<(), Failure> {
        let spec = [self.template.of(params, round)?];
        let put = self.server.ask(|fleet| {
            let put = fleet.put_jobs(self.search, &spec)?;
            Ok((put, fleet.job_id(self.search, &spec[0])?))
        })?;
        let (put, id) = put.ok_or(Failure::Interrupted)?;
        self.put += put;
        self.open.extend(id);
        Ok(())
    }

    fn wait(&mut self, for_results: bool) -> Result<Option<Vec<Evaluated>>, Failure> {
        loop {
            if self.cancel.load(Ordering::Relaxed) {
                self.bar.finish_and_clear();
                return Ok(None);
            }
            let asked: Vec<i64> = self.open.iter().copied().collect();
            let seen = self.server.ask(|fleet| {
                let ended = fleet.results_of(&asked)?;
                Ok((ended, fleet.open_jobs(self.search)?))
            })?;
            // Ctrl-C, which the loop looks for.
            let Some((ended, open)) = seen else {
                continue;
            };
            let news = self.news(ended);
            let hungry = open.waiting.len() < AHEAD + open.leased.len();
            // Others may have put some.
            self.open.extend(open.waiting.iter().chain(&open.leased));
            if !news.is_empty() || (hungry && !for_results) {
                return Ok(Some(news));
            }
            std::thread::sleep(SEARCH_LOOK);
        }
    }
}

/// What a worker measured, as a search wants it.
fn outcome(statistics: &Statistics) -> Outcome {
    let times = statistics.times();
    match times.geometric_mean() {
        Some(time) => Outcome {
            time: Some(1e-9 * time.get()),
            spread: times.sd_ln().unwrap_or(0.0) / (times.samples() as f64).sqrt(),
            cost: None,
        },
        None => Outcome::failed(),
    }
}

fn tell(
    args: &args::Tune,
    server: &mut Patient,
    searches: Vec<String>,
    put: u64,
) -> Result<(), Failure> {
    let mut counts = JobCounts::default();
    // What was measured in several rounds is one series.
    let mut series: BTreeMap<SeriesKey, Statistics> = BTreeMap::new();
    for search in &searches {
        let more = server.ask(|fleet| fleet.job_counts(search))?;
        let more = more.ok_or(Failure::Interrupted)?;
        counts.waiting += more.waiting;
        counts.leased += more.leased;
        counts.done += more.done;
        counts.poisoned += more.poisoned;
        let results = results(server, search)?.into_iter();
        for record in results.filter_map(|result| result.record) {
            let sum = series.entry(record.key).or_default();
            sum.merge(&record.statistics);
        }
    }
    let timed = series.into_iter().filter_map(|(key, statistics)| {
        Some(Best {
            machine: key.place.fingerprint.to_string(),
            kernel: key.kernel.to_string(),
            parameters: key.params.to_string(),
            time_ns: statistics.times().geometric_mean()?.get(),
        })
    });
    let best = timed.min_by(|a, b| a.time_ns.total_cmp(&b.time_ns));
    let queued = Queued {
        searches,
        put,
        waiting: counts.waiting,
        leased: counts.leased,
        done: counts.done,
        poisoned: counts.poisoned,
        best,
    };
    match args.format {
        Format::Json => output::json("kernelwise.tune_queue/1", &queued),
        Format::Table => {
            let mut text = format!(
                "{} jobs put, {} wait, {} are worked on, {} done, {} given up\n",
                queued.put, queued.waiting, queued.leased, queued.done, queued.poisoned
            );
            if let Some(one) = &queued.best {
                let time = Nanos::new(one.time_ns)?;
                text += &format!(
                    "best seen on {}: {} ({}) {time}\n",
                    one.machine, one.kernel, one.parameters
                );
            }
            if queued.waiting > 0 {
                text += "`kernelwise worker` measures them, on any machine of this kind with the same KERNELWISE_DATABASE_URL\n";
            }
            text += "`kernelwise sync` brings the results here\n";
            output::text(&text)
        }
    }
}

#[derive(Debug, Default, Serialize)]
struct Worked {
    done: u64,
    failed: u64,
    /// Jobs that were another's by the time they were done.
    lost: u64,
}

/// The searches that have jobs to do, without those that cannot be done here; `None` on Ctrl-C.
fn open_searches(
    server: &mut Patient,
    unable: &BTreeSet<String>,
) -> Result<Option<Vec<String>>, Failure> {
    let (mut able, mut after): (Vec<String>, Option<String>) = (Vec::new(), None);
    loop {
        let page = server.ask(|fleet| fleet.open_searches(after.as_deref()))?;
        let Some(page) = page else {
            return Ok(None);
        };
        let full = page.len() >= SEARCHES_AT_ONCE;
        after = page.last().cloned();
        able.extend(page.into_iter().filter(|search| !unable.contains(search)));
        // What is there is enough to go on with.
        if !full || !able.is_empty() {
            return Ok(Some(able));
        }
    }
}

/// Takes a job; `None` on Ctrl-C. A connection that broke may have taken one that nobody heard of, which is given back first.
fn take_job(
    server: &mut Patient,
    search: &str,
    worker: &str,
    lease: Duration,
) -> Result<Option<Option<Job>>, Failure> {
    let mut again = false;
    server.ask(|fleet| {
        if std::mem::replace(&mut again, true) {
            fleet.release_unheard(search, worker)?;
        }
        fleet.take_job(search, worker, lease)
    })
}

/// Ends a job; says whether it was still this worker's. `None` on Ctrl-C.
fn finish_job(
    server: &mut Patient,
    job: &Job,
    key: &SeriesKey,
    statistics: Statistics,
) -> Result<Option<bool>, Failure> {
    let mut again = false;
    server.ask(|fleet| {
        let again = std::mem::replace(&mut again, true);
        Ok(
            fleet.finish_job(job, key.clone(), statistics)?
                || (again && fleet.was_finished(job)?),
        )
    })
}

/// Takes jobs and measures them.
pub(crate) fn work(args: &args::Worker) -> Result<(), Failure> {
    let mut server = Patient::connect()?;
    let cancel = interrupt::flag()?;
    let machine = kernelwise_probe::machine();
    let records = Records::open(&machine)?;
    let kernels = kernelwise_cpu::kernels()?;
    let lease = Duration::from_secs_f64(args.lease);
    // No name of a host or person: a number nobody else has.
    let name = format!("worker-{:016x}", rand::random::<u64>());
    let mut worked = Worked::default();
    let mut unable: BTreeSet<String> = BTreeSet::new();
    let bar = progress::uncounted("waiting for jobs");
    let mut empty_looks = 0;
    'looking: loop {
        let Some(searches) = open_searches(&mut server, &unable)? else {
            break;
        };
        for search in &searches {
            loop {
                let job = match take_job(&mut server, search, &name, lease)? {
                    None => break 'looking,
                    Some(None) => break,
                    Some(Some(job)) => job,
                };
                if cancel.load(Ordering::Relaxed) {
                    server.ask(|fleet| fleet.release_job(&job))?;
                    break 'looking;
                }
                bar.set_message(format!("{} jobs done, {search}", worked.done));
                let measured = while_renewing(server.options(), &job, lease, || {
                    measure(&job, &kernels, &machine, cancel)
                });
                match measured {
                    Ok((candidate, version, workload, times)) => {
                        let mut statistics = Statistics::default();
                        for time in times.iter().filter_map(|ns| Nanos::new(*ns).ok()) {
                            statistics.push(Happened::Timed(time), now_s());
                        }
                        if times.is_empty() {
                            statistics.push(Happened::Failed, now_s());
                        }
                        let key = records.memory().key(&workload, &candidate, version);
                        match finish_job(&mut server, &job, &key, statistics)? {
                            Some(true) => worked.done += 1,
                            Some(false) => worked.lost += 1,
                            None => break 'looking,
                        }
                    }
                    Err(Trouble::Ended) => {
                        server.ask(|fleet| fleet.release_job(&job))?;
                        break 'looking;
                    }
                    // Others may have what it takes.
                    Err(Trouble::NotHere(why)) => {
                        server.ask(|fleet| fleet.release_job(&job))?;
                        output::note(&format!("{search} is left to other workers: {why}"));
                        unable.insert(search.clone());
                        break;
                    }
                    Err(Trouble::Failed(error)) => {
                        server.ask(|fleet| fleet.fail_job(&job, &format!("{error:#}")))?;
                        worked.failed += 1;
                    }
                }
                if cancel.load(Ordering::Relaxed) {
                    break 'looking;
                }
            }
        }
        let Some(open) = open_searches(&mut server, &unable)? else {
            break;
        };
        empty_looks = if open.is_empty() { empty_looks + 1 } else { 0 };
        if args.until_empty && empty_looks >= EMPTY_LOOKS {
            break;
        }
        if cancel.load(Ordering::Relaxed) {
            break;
        }
        bar.set_message(format!("{} jobs done, waiting for more", worked.done));
        std::thread::sleep(LOOK);
    }
    bar.finish_and_clear();
    match args.format {
        Format::Json => output::json("kernelwise.worker/1", &worked)?,
        Format::Table => output::text(&format!(
            "{} jobs done, {} failed, {} done by another meanwhile\n",
            worked.done, worked.failed, worked.lost
        ))?,
    }
    match cancel.load(Ordering::Relaxed) {
        true => Err(Failure::Interrupted),
        false => Ok(()),
    }
}

/// Does something while a thread of its own, on a connection of its own, keeps the job.
fn while_renewing<R>(
    server: &FleetOptions,
    job: &Job,
    lease: Duration,
    body: impl FnOnce() -> R,
) -> R {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut fleet = None;
            let step = Duration::from_millis(50);
            let mut waited = Duration::ZERO;
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(step);
                waited += step;
                if waited >= lease / 3 {
                    waited = Duration::ZERO;
                    // A server that is away for a moment is asked again.
                    fleet = fleet.or_else(|| Fleet::connect(server).ok());
                    if let Some(open) = &mut fleet
                        && open.renew_job(job, lease).is_err()
                    {
                        fleet = None;
                    }
                }
            }
        });
        // Also if it panics: nobody would wait for the renewing to end.
        let _over = Over(&over);
        body()
    })
}

/// Says that it is over when it goes.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Why a job was not done.
enum Trouble {
    /// The worker was told to end.
    Ended,
    /// What it takes is not here.
    NotHere(String),
    Failed(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// What a job is about, and the times it took; none if the setting fails here.
type Measured = (Candidate, u32, String, Vec<f64>);

fn measure(
    job: &Job,
    kernels: &[Arc<dyn HostKernel>],
    machine: &Machine,
    cancel: &'static AtomicBool,
) -> Result<Measured, Trouble> {
    let spec: Spec = serde_json::from_value(job.spec.clone()).context("the job is no job")?;
    if spec.machine != Fingerprint::of(machine) {
        let kind = &spec.machine;
        let why = format!("it is for machines of the kind {kind}, and this is none");
        return Err(Trouble::NotHere(why));
    }
    let workload: Workload = spec.workload.parse()?;
    let params: Params = spec.params.parse()?;
    let is_it = |kernel: &&Arc<dyn HostKernel>| {
        let known = kernel.spec();
        known.id.as_str() == spec.kernel && known.version == spec.version
    };
    let kernel = kernels.iter().find(is_it).ok_or_else(|| {
        let Spec {
            kernel, version, ..
        } = &spec;
        Trouble::NotHere(format!("there is no {kernel} in version {version} here"))
    })?;
    let numerics = match spec.reduced {
        true => Numerics::ReducedPrecision,
        false => Numerics::Reordered,
    };
    let clock = TscClock::new();
    let mut bench = Workbench::new(&workload, machine, numerics, &clock, cancel, 1)?;
    let tried = bench.evaluate(kernel, &params, EVALUATION)?;
    if cancel.load(Ordering::Relaxed) {
        return Err(Trouble::Ended);
    }
    let candidate = Candidate {
        kernel: kernel.spec().id.clone(),
        params,
    };
    Ok((candidate, spec.version, spec.workload, tried.samples_ns))
}
