//! `kernelwise recommend`: what to run on a device, or on which of several, without measuring there.
//!
//! Figures of devices are published ones, from a table or from a file: no driver is asked. Of other devices nothing is measured. What this machine
//! measured of a workload is known; if it never did, its kernels race on it for a second, so that a time is a measured one.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::anyhow;
use kernelwise_backend::{Host, HostKernel};
use kernelwise_measure::{Clock, TscClock};
use kernelwise_probe::{StateReader, Tree};
use kernelwise_select::problem::kind;
use kernelwise_select::{
    CalibrateError, Ended, Measured, Observer, RaceOptions, Remembered, Selector,
};
use kernelwise_tune::gpu::{self, Advice, Api, Gpu, GpuCost, Wishes};
use kernelwise_tune::strategy::{
    Choice, Constraints, Coordinator, CpuCost, Kept, Link, Placement, RealTime, Recommendation,
    Situation, Strategy, TuneError, TuningStrategy,
};
use kernelwise_types::units::{ByteRate, Bytes, Celsius, Nanos, Watts};
use kernelwise_types::{Calibration, Candidate, Numerics, SystemState, Workload};
use serde::Serialize;

use super::asked::{self, Asked};
use crate::args::{self, Format};
use crate::exit::Failure;
use crate::records::Records;
use crate::{interrupt, output, progress};

/// Looks at how busy the machine is, and how long each takes.
const LOOKS: usize = 4;
const LOOK: Duration = Duration::from_millis(100);
/// What a calibration may take where none is on record: enough to tell what sharing a call costs and what threads reach together, which
/// no description of a processor says. `learn` makes a longer one.
const CALIBRATION: Duration = Duration::from_secs(1);
/// Calls that a race takes at the least: two or more of each of several kernels.
const CALLS_OF_A_RACE: f64 = 20.0;
/// What PCIe 4.0 x16 carries in practice, of the 31.5 GB/s it has by its clock; and what a copy takes to begin: guesses, where nobody measured.
const LINK_GBS: f64 = 25.0;
const LINK_NS: f64 = 10_000.0;

#[derive(Debug, Serialize)]
struct OnGpu<'a> {
    workload: String,
    backend: String,
    #[serde(flatten)]
    advice: &'a Advice,
}

#[derive(Debug, Serialize)]
struct OnHost<'a> {
    workload: String,
    #[serde(flatten)]
    recommendation: &'a Recommendation,
}

#[derive(Debug, Serialize)]
struct OnDevices<'a> {
    workload: String,
    backend: String,
    device: String,
    #[serde(flatten)]
    placement: &'a Placement,
    /// All devices, the best first; those that cannot do it last.
    ranking: Vec<Placed>,
}

#[derive(Debug, Serialize)]
struct Placed {
    backend: String,
    device: String,
    /// One call with the way there and back and its part of compiling; `null` if it cannot be done there, or nobody knows.
    total_ns: Option<Nanos>,
    why: String,
}

/// Recommends for this machine, for a device that is described, or between several.
pub(crate) fn run(args: &args::Recommend) -> Result<(), Failure> {
    let asked = Asked::parse(&args.op)?;
    let workload = asked::shape(&args.shape, Some(&asked), args.dtype)?;
    let constraints = constraints(args)?;
    match &args.device[..] {
        [name] if name == "host" => host(args, &workload, &constraints),
        // A launch is known also where its time is not, as long as nobody limits the time.
        [name] if !args.limits.need_a_time() => {
            on_gpu(args, &described(name)?, &workload, &constraints)
        }
        several => between(args, several, &workload, &constraints),
    }
}

/// The limits that were typed.
fn constraints(args: &args::Recommend) -> Result<Constraints, Failure> {
    let limits = &args.limits;
    let wrong = |name: &str, value: f64| {
        Failure::Usage(anyhow!("--{name} {value}: give a number above zero"))
    };
    let nanos = |name: &str, micros: Option<f64>| match micros {
        None => Ok(None),
        Some(micros) => {
            let time = Nanos::new(1e3 * micros).map_err(|_| wrong(name, micros));
            time.map(Some)
        }
    };
    let period = nanos("period", limits.period)?;
    let deadline = nanos("deadline", limits.deadline)?;
    let constraints = Constraints {
        memory: limits.max_memory.map(Bytes),
        power: match limits.max_power {
            None => None,
            Some(watts) => Some(Watts::new(watts).map_err(|_| wrong("max-power", watts))?),
        },
        temperature: match limits.max_temperature {
            None => None,
            Some(degrees) => {
                let degrees = Celsius::new(degrees);
                Some(
                    degrees
                        .map_err(|error| Failure::Usage(anyhow!("--max-temperature: {error}")))?,
                )
            }
        },
        latency_ns: nanos("max-latency", limits.max_latency)?,
        throughput_per_s: limits.min_throughput,
        energy_j: limits.max_energy,
        real_time: period.map(|period_ns| RealTime {
            period_ns,
            deadline_ns: deadline.unwrap_or(period_ns),
        }),
        numerics: match args.allow_reduced {
            true => Numerics::ReducedPrecision,
            false => Numerics::Reordered,
        },
        calls: limits.calls,
    };
    let checked = constraints.check();
    checked.map_err(|error| Failure::Usage(error.into()))?;
    Ok(constraints)
}

/// A device of the table, or of a file.
fn described(name: &str) -> Result<Gpu, Failure> {
    let path = Path::new(name);
    if path.extension().is_none_or(|end| end != "json") {
        return gpu::device(name).map_err(|error| {
            Failure::NotFound(anyhow!(
                "{error}; `host` is the processor of this machine, and a file that ends in .json describes another device"
            ))
        });
    }
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::NotFound(anyhow!("{name}: the description cannot be read: {error}"))
    })?;
    Gpu::read(&text)
        .map_err(|error| Failure::Usage(anyhow!("{name}: {error}; docs/tuning.md has the fields")))
}

/// How operands get to a device: memory of Apple's is the processor's, too.
fn link(args: &args::Recommend, device: &Gpu) -> Result<Link, Failure> {
    if device.api == Api::Metal {
        return Ok(Link::Here);
    }
    let bytes = 1e9 * args.link.unwrap_or(LINK_GBS);
    Ok(Link::Copied {
        bandwidth: ByteRate::new(bytes)?,
        latency_ns: Nanos::new(LINK_NS)?,
    })
}

/// Which of several devices, by the time of a call with the way there and back.
fn between(
    args: &args::Recommend,
    names: &[String],
    workload: &Workload,
    constraints: &Constraints,
) -> Result<(), Failure> {
    // A name that nobody knows is told before seconds of racing.
    let described = names.iter().map(|name| match name.as_str() {
        "host" => Ok(None),
        name => described(name).map(Some),
    });
    let described = described.collect::<Result<Vec<Option<Gpu>>, Failure>>()?;
    let state = state();
    let mut devices = Coordinator::new(0);
    for device in described {
        let (strategy, link): (Arc<dyn TuningStrategy>, Link) = match device {
            None => (Arc::new(processor(args, workload, &state)?), Link::Here),
            Some(device) => {
                let link = link(args, &device)?;
                (Arc::new(Strategy::new(GpuCost::new(device)?)), link)
            }
        };
        let added = devices.add(strategy, link);
        added.map_err(|error| Failure::Usage(error.into()))?;
    }
    let placement = devices.recommend(workload, &state, constraints);
    let placement = placement.map_err(refused)?;
    let chosen = &placement.recommendation;
    let first = Placed {
        backend: chosen.backend.to_string(),
        device: chosen.device.clone(),
        total_ns: Some(placement.total_ns),
        why: "the least".to_owned(),
    };
    let others = placement.passed_over.iter().map(|other| Placed {
        backend: other.backend.to_string(),
        device: other.device.clone(),
        total_ns: other.total_ns,
        why: other.why.clone(),
    });
    let told = OnDevices {
        workload: workload.to_string(),
        backend: chosen.backend.to_string(),
        device: chosen.device.clone(),
        placement: &placement,
        ranking: std::iter::once(first).chain(others).collect(),
    };
    match args.format {
        Format::Json => output::json("kernelwise.recommend_devices/1", &told),
        Format::Table => output::text(&devices_text(workload, &told)),
    }
}

fn devices_text(workload: &Workload, told: &OnDevices<'_>) -> String {
    let rows = told.ranking.iter().map(|one| {
        let time = one.total_ns.map_or("-".to_owned(), |time| time.to_string());
        vec![
            one.device.clone(),
            one.backend.clone(),
            time,
            one.why.clone(),
        ]
    });
    let mut text = output::columns(&["device", "backend", "a call", ""], &[2], rows.collect());
    text += &host_text(workload, &told.placement.recommendation);
    if told.placement.transfer_ns.get() > 0.0 {
        text += &format!(
            "  of {} a call, {} are the way there and back\n",
            told.placement.total_ns, told.placement.transfer_ns
        );
    }
    for sentence in &told.placement.advice {
        text += &format!("  {sentence}\n");
    }
    text
}

fn on_gpu(
    args: &args::Recommend,
    device: &Gpu,
    workload: &Workload,
    constraints: &Constraints,
) -> Result<(), Failure> {
    let wishes = Wishes {
        allowed: constraints.numerics,
        memory_bytes: constraints.memory.map(|memory| memory.0),
    };
    let advice = gpu::recommend(device, workload, &wishes)?;
    match args.format {
        Format::Json => output::json(
            "kernelwise.recommend/1",
            &OnGpu {
                workload: workload.to_string(),
                backend: device.api.backend().to_string(),
                advice: &advice,
            },
        ),
        Format::Table => {
            let mut text = format!("{workload} on {}\n", advice.device);
            text += &format!("  {}\n", advice.params);
            text += &match &advice.prediction {
                Some(told) => format!(
                    "  {} when warm (prior; nine in ten from {} to {}), {} with compiling\n",
                    told.warm_ns,
                    told.interval_ns.low(),
                    told.interval_ns.high(),
                    told.cold_ns
                ),
                None => {
                    "  its time is unknown: the rates of this device are not published\n".to_owned()
                }
            };
            for sentence in &advice.reasoning {
                text += &format!("  {sentence}\n");
            }
            for other in &advice.alternatives {
                let time = other.prediction.as_ref();
                let time = time.map_or("unknown".to_owned(), |told| told.warm_ns.to_string());
                text += &format!("  else {} ({time})\n", other.params);
            }
            text += &format!("  figures of the device: {}\n", advice.source);
            output::text(&text)
        }
    }
}

/// The processor of this machine, with all that is on record: ceilings, models, and times of this workload.
fn processor(
    args: &args::Recommend,
    workload: &Workload,
    state: &SystemState,
) -> Result<Strategy<CpuCost>, Failure> {
    let machine = kernelwise_probe::machine();
    let records = Records::open(&machine)?;
    let kernels = kernelwise_cpu::kernels()?;
    let mut cost = CpuCost::new(Host::new(machine.clone(), kernels.iter().cloned())?);
    let calibration = match records.memory().calibration()? {
        None if records.is_frozen() => None,
        None => Some(records.calibrated(CALIBRATION)?),
        known => known,
    };
    let mut found = records.found(&kernels, calibration.as_ref())?;
    found
        .here
        .retain(|one| kind(&one.workload) == kind(workload));
    found
        .elsewhere
        .retain(|one| kind(&one.of.workload) == kind(workload));
    let raced_with = calibration.clone().filter(|_| !records.is_frozen());
    match calibration {
        Some(calibration) => {
            let evidence = records.evidence(&kernels, &calibration, &found)?;
            let models = records.memory().models(&evidence, args.seed);
            cost = cost.with_calibration(calibration).with_forecast(models);
        }
        None => output::note(
            "this machine was not calibrated, and in frozen mode it is not: recommendations rest on what its processor says of itself",
        ),
    }
    let is_known = |one: &&Remembered| one.workload == *workload;
    let kept = found.here.iter().filter(is_known).filter_map(|one| {
        let kept = Kept {
            samples: one.tally.samples(),
            mean_ln: one.tally.mean()?,
            sd_ln: one.tally.sd(),
        };
        Some((choice(&one.candidate), kept))
    });
    let mut measured: Vec<(Choice, Kept)> = kept.collect();
    let is_fresh = |one: &Remembered| is_known(&one) && !one.tally.is_stale();
    if let Some(calibration) = raced_with
        && !found.here.iter().any(is_fresh)
    {
        let raced = race(args, workload, &kernels, calibration, &records, state)?;
        if !raced.is_empty() {
            measured = raced;
        }
    }
    let strategy = strategy(cost, workload, &measured)?;
    records.close_or_note();
    Ok(strategy)
}

/// Prices, and what was measured of a workload.
pub(super) fn strategy(
    cost: CpuCost,
    workload: &Workload,
    measured: &[(Choice, Kept)],
) -> Result<Strategy<CpuCost>, Failure> {
    let known = measured.iter().map(|(choice, _)| choice.clone());
    let strategy = Strategy::new(cost.with_known(known));
    for (choice, kept) in measured {
        match strategy.recall(workload, choice, kept) {
            // What was measured with parameters that a kernel no longer has says nothing about it.
            Ok(()) | Err(TuneError::Infeasible(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(strategy)
}

/// Whether there are several to race, and so many seconds hold enough calls of who is expected to be fastest.
fn is_short(selector: &Selector, workload: &Workload, seconds: f64) -> bool {
    let expected = selector.explain(workload).ok();
    let several = expected.filter(|decision| !decision.alternatives().is_empty());
    let time = several.and_then(|decision| decision.chosen.estimate.time());
    time.is_some_and(|time| CALLS_OF_A_RACE * time.seconds() < seconds)
}

fn choice(candidate: &Candidate) -> Choice {
    Choice {
        kernel: Some(candidate.kernel.clone()),
        params: candidate.params.clone(),
    }
}

/// Lets the kernels of this machine race on the workload, unless its calls are too long for that. What is measured is used here, and kept on record unless
/// others use processors.
fn race(
    args: &args::Recommend,
    workload: &Workload,
    kernels: &[Arc<dyn HostKernel>],
    calibration: Calibration,
    records: &Records,
    state: &SystemState,
) -> Result<Vec<(Choice, Kept)>, Failure> {
    let selector = Selector::builder(kernelwise_probe::machine(), kernels.to_vec())
        .calibration(calibration)
        .numerics(asked::numerics(args.allow_reduced))
        .seed(args.seed)
        .quarantined(records.quarantined()?)
        .observer(Arc::clone(records.memory()) as Arc<dyn Observer>)
        .background(false)
        .build()?;
    let words = format!("racing kernels on {workload}");
    let bar = progress::timed(args.time_budget, &words);
    let (clock, seconds) = (TscClock::new(), args.time_budget);
    let start = clock.now();
    let mut tell = || {
        let spent_s = clock.now().saturating_sub(start) as f64 / 1e9;
        bar.set_position(progress::millis(spent_s));
    };
    let raced = raced(&selector, workload, state, (seconds, args.seed), &mut tell);
    bar.finish_and_clear();
    raced
}

/// What a race of so many seconds tells of a workload; nothing if its calls are too long for that.
pub(super) fn raced(
    selector: &Selector,
    workload: &Workload,
    state: &SystemState,
    (seconds, seed): (f64, u64),
    tell: &mut dyn FnMut(),
) -> Result<Vec<(Choice, Kept)>, Failure> {
    selector.set_load(Situation::of(state).busy_processors);
    if !is_short(selector, workload, seconds) {
        return Ok(Vec::new());
    }
    let options = RaceOptions {
        budget: Duration::from_secs_f64(seconds),
        seed,
        ..RaceOptions::default()
    };
    let cancel = interrupt::flag()?;
    let mut watch = |_: kernelwise_select::Progress<'_>| {
        tell();
        match cancel.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let raced = selector.calibrate(std::slice::from_ref(workload), &options, &mut watch);
    let raced = match raced {
        // What nobody may compute is refused with its reason by whoever recommends.
        Err(CalibrateError::Select(_) | CalibrateError::Memory { .. }) => Vec::new(),
        raced => raced?,
    };
    if cancel.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    let failed =
        |one: &&Measured| matches!(one.ended, Ended::Quarantined { .. } | Ended::Short { .. });
    let sound = raced.iter().filter(|one| !failed(one));
    let kept = sound.filter_map(|one| {
        let logs = one.learned_ns.iter().map(|ns| ns.ln());
        let logs: Vec<f64> = logs.filter(|ln| ln.is_finite()).collect();
        let count = logs.len() as f64;
        let mean_ln = logs.iter().sum::<f64>() / count;
        let squares = logs.iter().map(|ln| (ln - mean_ln).powi(2)).sum::<f64>();
        let kept = Kept {
            samples: logs.len() as u64,
            mean_ln,
            sd_ln: (squares / (count - 1.0).max(1.0)).sqrt(),
        };
        (!logs.is_empty()).then(|| (choice(&one.candidate), kept))
    });
    Ok(kept.collect())
}

fn refused(error: TuneError) -> Failure {
    match error {
        TuneError::Infeasible { .. } => Failure::NotFound(error.into()),
        other => other.into(),
    }
}

fn host(
    args: &args::Recommend,
    workload: &Workload,
    constraints: &Constraints,
) -> Result<(), Failure> {
    let state = state();
    let strategy = processor(args, workload, &state)?;
    let recommended = strategy.tune_for_workload(workload, &state, constraints);
    let recommendation = recommended.map_err(refused)?;
    match args.format {
        Format::Json => output::json(
            "kernelwise.recommend/1",
            &OnHost {
                workload: workload.to_string(),
                recommendation: &recommendation,
            },
        ),
        Format::Table => output::text(&host_text(workload, &recommendation)),
    }
}

/// How busy the machine is, over a short while. Whoever asks later counts itself: calibration computes on all processors, and the threads of a
/// library that was just opened look out for work.
pub(super) fn state() -> SystemState {
    let clock = TscClock::new();
    let mut reader = StateReader::new(Tree::system());
    let first = reader.look(clock.now());
    let looks = (0..LOOKS).map(|_| {
        std::thread::sleep(LOOK);
        reader.look(clock.now())
    });
    quietest(looks).unwrap_or(first)
}

/// The one in which the fewest processors were in use: a program that computes is there in each of them, one that is just starting or ending is not, such
/// as whoever reads what this one prints.
fn quietest(looks: impl Iterator<Item = SystemState>) -> Option<SystemState> {
    looks.min_by_key(|state| Situation::of(state).busy_processors)
}

fn host_text(workload: &Workload, recommendation: &Recommendation) -> String {
    let told = &recommendation.best.expected;
    let mut text = format!("{workload} on {}\n", recommendation.device);
    text += &format!("  {}\n", recommendation.best.choice);
    text += &format!(
        "  {} ({}; nine in ten from {} to {})\n",
        told.time_ns,
        told.evidence,
        told.interval_ns.low(),
        told.interval_ns.high()
    );
    for sentence in &recommendation.reasoning {
        text += &format!("  {sentence}\n");
    }
    for other in recommendation.alternatives.iter().take(4) {
        text += &format!("  else {} ({})\n", other.choice, other.expected.time_ns);
    }
    text
}

#[cfg(test)]
mod tests {
    use kernelwise_types::Reading;
    use kernelwise_types::units::Share;

    use super::*;

    #[test]
    fn who_computes_in_one_look_only_does_not_use_a_processor() {
        let state = |busy: [f64; 2]| {
            let mut state = StateReader::new(Tree::system()).look(0);
            state.run_queue = Reading::unknown("made up");
            let shares = busy.map(|share| Share::new(share).unwrap());
            state.per_cpu_utilisation = Reading::Known(shares.to_vec());
            state
        };
        let busy = |looks: &[[f64; 2]]| {
            let quietest = quietest(looks.iter().map(|look| state(*look)));
            Situation::of(&quietest.unwrap()).busy_processors
        };
        assert_eq!(busy(&[[0.9, 0.2], [0.0, 0.1], [0.8, 0.9]]), 0);
        assert_eq!(busy(&[[1.0, 0.2], [0.9, 0.1], [0.8, 0.9]]), 1);
        assert!(quietest(std::iter::empty()).is_none());
    }
}
