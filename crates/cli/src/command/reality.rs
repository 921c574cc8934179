//! `kernelwise run` and `kernelwise compare`: prediction against reality, and the choice against a kernel named as baseline.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::anyhow;
use kernelwise_backend::sample::{self, Arrangement, Tensor, Values};
use kernelwise_backend::{Call, Host, HostKernel, ReferenceKernel, Scratch, Setting, answer, run};
use kernelwise_measure::stats::Summary;
use kernelwise_measure::{Clock, Comparison, Indifference, TscClock, Verdict};
use kernelwise_select::Selector;
use kernelwise_tune::host::Workbench;
use kernelwise_types::{Estimate, Machine, Numerics, Workload};
use serde::Serialize;

use super::asked;
use super::explain::{self, Ready};
use crate::args::{self, Format};
use crate::exit::Failure;
use crate::{interrupt, output, progress};

/// Work up to which the reference is asked what is right.
const VERIFIED_FLOPS: u64 = 400_000_000;

#[derive(Debug, Serialize)]
struct Reality {
    workload: String,
    kernel: String,
    parameters: String,
    calls: usize,
    /// What was known before the first call.
    predicted: Estimate,
    /// Half of the calls took less.
    median_ns: f64,
    quartiles_ns: [f64; 2],
    /// `null` if nothing was predicted.
    median_over_predicted: Option<f64>,
    /// Whether the median lies in the predicted interval; `null` where there is none.
    in_interval: Option<bool>,
    /// Whether the last result is that of the reference; `null` where the reference would take too long.
    is_right: Option<bool>,
}

/// Computes an operation on drawn data.
pub(crate) fn run_it(args: &args::Run) -> Result<(), Failure> {
    let Ready {
        workload,
        selector,
        records,
        ..
    } = explain::learned(&args.what)?;
    let before = selector.explain(&workload)?;
    asked::must_fit(&workload, &kernelwise_probe::machine())?;
    let draw = (Arrangement::Contiguous, Values::Ordinary, args.what.seed);
    let inputs = sample::inputs(&workload, draw.0, draw.1, draw.2)?;
    let mut outputs = sample::outputs(&workload, draw.0, draw.1, draw.2)?;
    let times = timed(&selector, &workload, &inputs, &mut outputs, args.calls)?;
    records.close_or_note();
    let summary = Summary::of(&times).ok_or_else(|| anyhow!("no call was timed"))?;
    let predicted = before.chosen.estimate.clone();
    let allowed = match args.what.allow_reduced {
        true => Numerics::ReducedPrecision,
        false => Numerics::Reordered,
    };
    let is_right = is_right(&workload, allowed, &inputs, &outputs, draw)?;
    let interval = match &predicted {
        Estimate::Measured { interval_ns, .. } => *interval_ns,
        Estimate::Modelled { interval_ns, .. } => Some(*interval_ns),
        _ => None,
    };
    let reality = Reality {
        workload: workload.to_string(),
        kernel: before.chosen.candidate.kernel.to_string(),
        parameters: before.chosen.candidate.params.to_string(),
        calls: times.len(),
        median_ns: summary.median,
        quartiles_ns: [summary.q1, summary.q3],
        median_over_predicted: predicted.time().map(|time| summary.median / time.get()),
        in_interval: interval.map(|interval| {
            (interval.low().get()..=interval.high().get()).contains(&summary.median)
        }),
        predicted,
        is_right,
    };
    match args.what.format {
        Format::Json => output::json("kernelwise.run/1", &reality)?,
        Format::Table => output::text(&reality_text(&reality))?,
    }
    match reality.is_right {
        Some(false) => Err(Failure::Wrong(anyhow!(
            "the last result of {} is not that of the reference",
            reality.workload
        ))),
        _ => Ok(()),
    }
}

/// Calls through the selector, each with its time; trials of other kernels are among them.
fn timed(
    selector: &Selector,
    workload: &Workload,
    inputs: &[Tensor],
    outputs: &mut [Tensor],
    calls: u32,
) -> Result<Vec<f64>, Failure> {
    let cancel = interrupt::flag()?;
    let clock = TscClock::new();
    let inputs: Result<Vec<_>, _> = inputs.iter().map(Tensor::view).collect();
    let inputs = inputs?;
    let outputs: Result<Vec<_>, _> = outputs.iter_mut().map(Tensor::view_mut).collect();
    let mut outputs = outputs?;
    let mut call = Call::new(workload, &inputs, &mut outputs)?;
    let mut times = Vec::new();
    for _ in 0..calls {
        let start = clock.now();
        selector.run(&mut call)?;
        times.push(clock.now().saturating_sub(start) as f64);
        selector.settle();
        if cancel.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
    }
    // The first finds caches cold and is held against the reference.
    if times.len() > 1 {
        times.remove(0);
    }
    Ok(times)
}

/// Holds results against the reference, unless that takes too long or several results are right.
fn is_right(
    workload: &Workload,
    allowed: Numerics,
    inputs: &[Tensor],
    outputs: &[Tensor],
    draw: (Arrangement, Values, u64),
) -> Result<Option<bool>, Failure> {
    let flops = workload.cost().map_or(0, |cost| cost.flops.0);
    let reference = ReferenceKernel::for_workload(workload);
    let in_time = flops <= VERIFIED_FLOPS && answer::is_unique(workload.operation());
    // What is updated in place was updated by every call.
    let once = !matches!(
        workload.operation(),
        kernelwise_types::op::Operation::Scatter(_)
    );
    let Some(reference) = reference.filter(|_| in_time && once) else {
        return Ok(None);
    };
    let mut expected = sample::outputs(workload, draw.0, draw.1, draw.2)?;
    let views: Result<Vec<_>, _> = inputs.iter().map(Tensor::view).collect();
    let views = views?;
    let out: Result<Vec<_>, _> = expected.iter_mut().map(Tensor::view_mut).collect();
    let mut out = out?;
    let mut call = Call::new(workload, &views, &mut out)?;
    let machine = kernelwise_probe::machine();
    let terms = kernelwise_backend::Terms::usual(&machine);
    run(
        &reference,
        &mut call,
        &Setting::NONE,
        &mut Scratch::new(),
        &terms,
    )?;
    let compared = answer::compare(workload, allowed, &views, &expected, outputs);
    Ok(Some(compared.is_ok()))
}

fn time(ns: f64) -> String {
    let time = kernelwise_types::units::Nanos::new(ns);
    time.map_or("-".to_owned(), |time| time.to_string())
}

fn reality_text(reality: &Reality) -> String {
    let mut text = format!(
        "{} by {} ({})\n",
        reality.workload, reality.kernel, reality.parameters
    );
    text += &format!("  predicted  {}\n", reality.predicted);
    text += &format!(
        "  measured   {} in the median of {} calls, half of them from {} to {}\n",
        time(reality.median_ns),
        reality.calls,
        time(reality.quartiles_ns[0]),
        time(reality.quartiles_ns[1])
    );
    if let Some(over) = reality.median_over_predicted {
        let where_it_lies = match reality.in_interval {
            Some(true) => ", within the interval",
            Some(false) => ", outside the interval",
            None => "",
        };
        text += &format!("  {over:.2}x the prediction{where_it_lies}\n");
    }
    text += match reality.is_right {
        Some(true) => "  the result is that of the reference\n",
        Some(false) => "  the result is NOT that of the reference\n",
        None => {
            "  the result was not held against the reference: it would take too long, or several are right\n"
        }
    };
    text
}

#[derive(Debug, Serialize)]
struct Compared {
    workload: String,
    choice: String,
    baseline: String,
    choice_ns: f64,
    baseline_ns: f64,
    /// The choice's time over the baseline's.
    comparison: Comparison,
    /// In words.
    verdict: String,
    /// The choice may be slower by this share; `null` where nobody said.
    fail_above_share: Option<f64>,
    failed: bool,
}

/// Races the choice against a kernel.
pub(crate) fn compare(args: &args::Compare) -> Result<(), Failure> {
    let Ready {
        workload,
        selector,
        records,
        ..
    } = explain::learned(&args.what)?;
    records.close_or_note();
    let decision = selector.explain(&workload)?;
    let machine = kernelwise_probe::machine();
    let kernels = kernelwise_cpu::kernels()?;
    asked::must_fit(&workload, &machine)?;
    let baseline = named(&args.baseline, &workload, &machine, &kernels)?;
    let chosen = &decision.chosen.candidate;
    let (kernel, _) = named(chosen.kernel.as_str(), &workload, &machine, &kernels)?;
    let space = kernel.space(&workload, &machine);
    let setting = space.setting(&chosen.params)?;
    let choice = (kernel, setting);
    let cancel = interrupt::flag()?;
    let clock = TscClock::new();
    let numerics = match args.what.allow_reduced {
        true => Numerics::ReducedPrecision,
        false => Numerics::Reordered,
    };
    let seed = args.what.seed;
    let mut bench = Workbench::new(&workload, &machine, numerics, &clock, cancel, seed)?;
    let budget = Duration::from_secs_f64(args.seconds);
    let bar = progress::uncounted(&format!("racing it against {}", args.baseline));
    let race = bench.race(&[choice, baseline], 15..=200, budget);
    bar.finish_and_clear();
    let race = race?;
    if cancel.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    let comparison = race.compare("0", "1", 0.9, Indifference::default());
    let comparison = comparison.ok_or_else(|| {
        let endings: Vec<String> = race.entries.iter().map(|e| e.ending.to_string()).collect();
        anyhow!("they cannot be compared: {}", endings.join("; "))
    })?;
    let median = |i: usize| {
        let entry = race.entries.get(i);
        entry
            .and_then(|entry| entry.summary_ns.as_ref())
            .map_or(0.0, |summary| summary.median)
    };
    let failed = args
        .fail_above
        .is_some_and(|share| comparison.interval.low > 1.0 + share);
    let words = match comparison.verdict {
        Verdict::Faster => "the choice is faster than the baseline",
        Verdict::Slower => "the choice is slower than the baseline",
        Verdict::Tie => "they are as fast as each other",
        Verdict::TooNoisy => "noise allows no verdict",
    };
    let compared = Compared {
        workload: workload.to_string(),
        choice: chosen.to_string(),
        baseline: args.baseline.clone(),
        choice_ns: median(0),
        baseline_ns: median(1),
        verdict: format!("{words}: {comparison}"),
        comparison,
        fail_above_share: args.fail_above,
        failed,
    };
    match args.what.format {
        Format::Json => output::json("kernelwise.compare/1", &compared)?,
        Format::Table => output::text(&format!(
            "{}\n  choice    {} {}\n  baseline  {} {}\n{}\n",
            compared.workload,
            compared.choice,
            time(compared.choice_ns),
            compared.baseline,
            time(compared.baseline_ns),
            compared.verdict
        ))?,
    }
    match failed {
        true => Err(Failure::Exceeded(anyhow!(
            "the choice is slower than {} by more than {:.1} %",
            compared.baseline,
            100.0 * args.fail_above.unwrap_or(0.0)
        ))),
        false => Ok(()),
    }
}

/// A kernel by its name, with its usual setting.
fn named(
    name: &str,
    workload: &Workload,
    machine: &Machine,
    kernels: &[Arc<dyn HostKernel>],
) -> Result<(Arc<dyn HostKernel>, Setting), Failure> {
    let host = Host::new(machine.clone(), kernels.iter().cloned())?;
    let able = host.kernels_for(workload);
    let found = able.iter().find(|kernel| kernel.spec().id.as_str() == name);
    let Some(kernel) = found else {
        let ids: Vec<&str> = able
            .iter()
            .map(|kernel| kernel.spec().id.as_str())
            .collect();
        return Err(Failure::NotFound(anyhow!(
            "no kernel for {workload} is called `{name}`{}; there are {}",
            asked::nearest(name, ids.iter().copied()),
            ids.join(", ")
        )));
    };
    let setting = kernel.space(workload, machine).default_setting();
    Ok((Arc::clone(kernel), setting))
}
