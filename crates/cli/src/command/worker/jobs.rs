//! Jobs: what is put, what is taken, and what comes back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use kernelwise_backend::HostKernel;
use kernelwise_measure::TscClock;
use kernelwise_store::fleet::{Fleet, FleetOptions, Job};
use kernelwise_store::{Happened, Statistics};
use kernelwise_tune::host::{Settings, Workbench};
use kernelwise_types::units::Nanos;
use kernelwise_types::{Candidate, Machine, Numerics, Params, Workload};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use super::Usual;
use crate::args::{self, Format};
use crate::command::fleet::server;
use crate::exit::Failure;
use crate::records::{Records, now_s};
use crate::{interrupt, output};

/// Time for each evaluation.
const EVALUATION: Duration = Duration::from_millis(300);
/// How often whoever waits looks.
const LOOK: Duration = Duration::from_millis(500);
const EVALUATIONS: u64 = 100;

/// What is to be measured.
#[derive(Debug, Serialize, Deserialize)]
struct Spec {
    workload: String,
    kernel: String,
    version: u32,
    params: String,
    reduced: bool,
}

#[derive(Debug, Serialize)]
struct Queued {
    search: String,
    put: u64,
    waiting: u64,
    leased: u64,
    done: u64,
    poisoned: u64,
    /// The best so far, on any machine; times of different machines are not compared.
    best: Vec<Best>,
}

#[derive(Debug, Serialize)]
struct Best {
    machine: String,
    kernel: String,
    parameters: String,
    time_ns: f64,
}

/// One search for each workload: whoever asks again goes on with it.
fn search_name(workload: &Workload) -> String {
    format!("tune {workload}")
}

fn connect() -> Result<(Fleet, FleetOptions), Failure> {
    let server = server()?;
    let fleet = Fleet::connect(&server)?;
    Ok((fleet, server))
}

pub(super) fn put(
    args: &args::Tune,
    workload: &Workload,
    machine: &Machine,
    usual: &[Usual],
) -> Result<(), Failure> {
    let (mut fleet, _) = connect()?;
    let mut random = Pcg64Mcg::seed_from_u64(args.seed.unwrap_or(1));
    let mut specs = Vec::new();
    for one in usual {
        let spec = one.kernel.spec();
        let settings = Settings::of(one.kernel.as_ref(), workload, machine)?;
        let mut all = settings.all()?;
        all.shuffle(&mut random);
        let most = usize::try_from(args.budget.unwrap_or(EVALUATIONS)).unwrap_or(usize::MAX);
        for params in all.into_iter().take(most) {
            let spec = Spec {
                workload: workload.to_string(),
                kernel: spec.id.to_string(),
                version: spec.version,
                params: params.to_string(),
                reduced: args.allow_reduced,
            };
            specs.push(serde_json::to_value(spec)?);
        }
    }
    let search = search_name(workload);
    let put = fleet.put_jobs(&search, &specs)?;
    if !args.detach {
        wait(&mut fleet, &search)?;
    }
    tell(args, &mut fleet, &search, put)
}

/// Until nothing waits and nobody works.
fn wait(fleet: &mut Fleet, search: &str) -> Result<(), Failure> {
    let cancel = interrupt::flag()?;
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} measured by workers") {
        bar.set_style(style);
    }
    loop {
        let counts = fleet.job_counts(search)?;
        let open = counts.waiting + counts.leased;
        bar.set_length(open + counts.done + counts.poisoned);
        bar.set_position(counts.done + counts.poisoned);
        if open == 0 {
            bar.finish_and_clear();
            return Ok(());
        }
        if cancel.load(Ordering::Relaxed) {
            bar.finish_and_clear();
            output::note("the jobs stay on the server: the same command waits for them again");
            return Err(Failure::Interrupted);
        }
        std::thread::sleep(LOOK);
    }
}

fn tell(args: &args::Tune, fleet: &mut Fleet, search: &str, put: u64) -> Result<(), Failure> {
    let counts = fleet.job_counts(search)?;
    let mut best: Vec<Best> = Vec::new();
    for result in fleet.job_results(search)? {
        let key = &result.record.key;
        let Some(time) = result.record.statistics.times().geometric_mean() else {
            continue;
        };
        let machine = key.place.fingerprint.to_string();
        let new = Best {
            machine,
            kernel: key.kernel.to_string(),
            parameters: key.params.to_string(),
            time_ns: time.get(),
        };
        match best.iter_mut().find(|one| one.machine == new.machine) {
            Some(known) if known.time_ns > new.time_ns => *known = new,
            Some(_) => {}
            None => best.push(new),
        }
    }
    let queued = Queued {
        search: search.to_owned(),
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
            for one in &queued.best {
                let time = Nanos::new(one.time_ns)?;
                text += &format!(
                    "best on {}: {} ({}) {time}\n",
                    one.machine, one.kernel, one.parameters
                );
            }
            if queued.waiting > 0 {
                text += "`kernelwise worker` measures them, on any machine with the same KERNELWISE_DATABASE_URL\n";
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

/// Takes jobs and measures them.
pub(crate) fn work(args: &args::Worker) -> Result<(), Failure> {
    let (mut fleet, server) = connect()?;
    let cancel = interrupt::flag()?;
    let machine = kernelwise_probe::machine();
    let records = Records::open(&machine)?;
    let kernels = kernelwise_cpu::kernels()?;
    let lease = Duration::from_secs_f64(args.lease);
    // No name of a host or person: a number nobody else has.
    let name = format!("worker-{:016x}", rand::random::<u64>());
    let mut worked = Worked::default();
    let mut unable: BTreeSet<String> = BTreeSet::new();
    'looking: loop {
        let searches = fleet.open_searches()?;
        for search in &searches {
            if unable.contains(search) {
                continue;
            }
            while let Some(job) = fleet.take_job(search, &name, lease)? {
                if cancel.load(Ordering::Relaxed) {
                    fleet.release_job(&job)?;
                    break 'looking;
                }
                let measured = while_renewing(&server, &job, lease, || {
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
                        match fleet.finish_job(&job, key, statistics)? {
                            true => worked.done += 1,
                            false => worked.lost += 1,
                        }
                    }
                    Err(Trouble::Ended) => {
                        fleet.release_job(&job)?;
                        break 'looking;
                    }
                    // Others may have what it takes.
                    Err(Trouble::NotHere(why)) => {
                        fleet.release_job(&job)?;
                        output::note(&format!("{search} is left to other workers: {why}"));
                        unable.insert(search.clone());
                        break;
                    }
                    Err(Trouble::Failed(error)) => {
                        fleet.fail_job(&job, &format!("{error:#}"))?;
                        worked.failed += 1;
                    }
                }
                if cancel.load(Ordering::Relaxed) {
                    break 'looking;
                }
            }
        }
        let open = fleet.open_searches()?;
        if args.until_empty && open.iter().all(|search| unable.contains(search)) {
            break;
        }
        if cancel.load(Ordering::Relaxed) {
            break;
        }
        std::thread::sleep(LOOK);
    }
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
