//! `kernelwise select` and `kernelwise explain`: which kernel, and why.
//!
//! What earlier runs put on record is used. Where nothing is known of workloads like the one asked for, both learn first: it is
//! computed again and again on drawn data for a second, as a program would that uses the selector.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use kernelwise_backend::Call;
use kernelwise_backend::sample::{self, Arrangement, Values};
use kernelwise_measure::{Clock, TscClock};
use kernelwise_model::watch::WorkloadClass;
use kernelwise_select::bound::{bound, words as bound_words};
use kernelwise_select::forecast::Scope;
use kernelwise_select::problem::kind;
use kernelwise_select::{Observer, Policy, Quarantine, Remembered, Selector, Statistics};
use kernelwise_types::units::Nanos;
use kernelwise_types::{
    Calibration, Candidate, Decision, Estimate, Fingerprint, KernelId, Ranked, Reason, Workload,
};
use serde::Serialize;

use super::asked::{self, Asked};
use crate::args::{self, Format};
use crate::exit::Failure;
use crate::records::Records;
use crate::{environment, interrupt, output, progress};

#[derive(Serialize)]
struct Chosen<'a> {
    workload: &'a Workload,
    kernel: String,
    parameters: String,
    reason: &'static str,
    confidence: Option<f64>,
    estimate: &'a Estimate,
    policy: &'static str,
}

#[derive(Serialize)]
struct Explained<'a> {
    decision: &'a Decision,
    /// What would have to happen for another choice.
    changes_if: Vec<String>,
    /// What holds the choice up, by the roofline.
    bound_by: WorkloadClass,
    /// What was chosen when this was asked last, if that was something else.
    before: Option<Candidate>,
    policy: &'static str,
    statistics: Statistics,
    quarantined: Vec<String>,
}

/// The choice alone.
pub(crate) fn select(args: &args::Explain) -> Result<(), Failure> {
    let Ready {
        workload,
        selector,
        policy,
        records,
        ..
    } = learned(args)?;
    records.close_or_note();
    let decision = selector.explain(&workload)?;
    let chosen = Chosen {
        workload: &workload,
        kernel: decision.chosen.candidate.kernel.to_string(),
        parameters: decision.chosen.candidate.params.to_string(),
        reason: decision.reason.words(),
        confidence: decision.confidence.map(|share| share.get()),
        estimate: &decision.chosen.estimate,
        policy: policy.name(),
    };
    match args.format {
        Format::Json => output::json("kernelwise.select/1", &chosen),
        Format::Table => output::text(&format!("{}\n", decision.chosen.candidate)),
    }
}

/// The choice with what it was made from.
pub(crate) fn explain(args: &args::Explain) -> Result<(), Failure> {
    let state = super::recommend::state();
    let Ready {
        workload,
        selector,
        policy,
        calibration,
        records,
    } = learned(args)?;
    let decision = selector.explain(&workload)?;
    let Ranked {
        candidate,
        estimate,
    } = &decision.chosen;
    let threads = candidate.params.get("threads").unwrap_or(1);
    let threads = u32::try_from(threads).unwrap_or(1);
    let machine = kernelwise_probe::machine();
    let class = |(time, calibration): (Nanos, &Calibration)| {
        let (ns, state) = (time.get(), Some(&state));
        bound(&workload, ns, threads, &machine, calibration, state)
    };
    let known = estimate.time().zip(calibration.as_ref());
    let explained = Explained {
        before: before(&records, &decision)?,
        bound_by: known.map_or(WorkloadClass::Unknown, class),
        changes_if: changes(&decision),
        policy: policy.name(),
        statistics: selector.statistics(),
        quarantined: selector.quarantined().iter().map(words).collect(),
        decision: &decision,
    };
    records.close_or_note();
    match args.format {
        Format::Json => output::json("kernelwise.explain/1", &explained),
        Format::Table => output::text(&text(&explained)),
    }
}

/// What was chosen when this workload was explained last, if that was something else. The answer of today is kept for the next time,
/// unless nothing may change.
fn before(records: &Records, decision: &Decision) -> Result<Option<Candidate>, Failure> {
    let Some(store) = records.memory().store() else {
        return Ok(None);
    };
    let here = Fingerprint::of(&kernelwise_probe::machine());
    let before = store.decision(&here, &decision.workload.to_string())?;
    if !records.is_frozen() {
        store.decided(&here, decision);
    }
    let before = before.map(|before| before.chosen.candidate);
    Ok(before.filter(|before| *before != decision.chosen.candidate))
}

fn words(quarantine: &Quarantine) -> String {
    let Quarantine {
        kernel, evidence, ..
    } = quarantine;
    format!("{kernel} on {}: {evidence}", quarantine.workload)
}

/// A selector that has learned about the workload asked for.
pub(super) struct Ready {
    pub(super) workload: Workload,
    pub(super) selector: Selector,
    policy: Policy,
    /// `None` in frozen mode, where none is on record and none is made.
    calibration: Option<Calibration>,
    pub(super) records: Records,
}

/// Makes one.
pub(super) fn learned(args: &args::Explain) -> Result<Ready, Failure> {
    let asked = Asked::parse(&args.op)?;
    let workload = asked::shape(&args.shape, Some(&asked), args.dtype)?;
    let policy: Policy = args
        .policy
        .parse()
        .map_err(|error| Failure::Usage(anyhow!("{error}")))?;
    let machine = kernelwise_probe::machine();
    let kernels = kernelwise_cpu::kernels()?;
    // What cannot be done is told before seconds of calibrating.
    asked::must_be_computed(&workload, &machine, &kernels)?;
    let forced = environment::text("KERNELWISE_FORCE")?;
    if let Some(forced) = &forced {
        let known: Vec<KernelId> = kernels.iter().map(|one| one.spec().id.clone()).collect();
        must_exist(forced, &known)?;
    }
    let records = Records::open(&machine)?;
    let budget = Duration::from_secs_f64(args.calibration_budget);
    let calibration = match records.memory().calibration()? {
        // Measured anew each time, it would be another one each time, and so might be the answer.
        None if records.is_frozen() => None,
        None => Some(records.calibrated(budget)?),
        known => known,
    };
    let mut found = records.found(&kernels, calibration.as_ref())?;
    let is_alike = |other: &Workload| kind(other) == kind(&workload);
    found.here.retain(|one| is_alike(&one.workload));
    found.elsewhere.retain(|one| is_alike(&one.of.workload));
    let evidence = match &calibration {
        Some(calibration) => records.evidence(&kernels, calibration, &found)?,
        None => Vec::new(),
    };
    let forecast = records.memory().models(&evidence, args.seed);
    // Times of other machines are a beginning, not an answer.
    let own = |scope: Scope| scope.other_machines_distance.is_none();
    // Those of other software are no answer either: a few calls verify them.
    let measured = |one: &Remembered| one.workload == workload && !one.tally.is_stale();
    let is_known = forecast.kinds().any(own) || found.here.iter().any(measured);
    let numerics = asked::numerics(args.allow_reduced);
    let mut builder = Selector::builder(machine, kernels);
    if let Some(calibration) = &calibration {
        builder = builder.calibration(calibration.clone());
    }
    builder = builder
        .forecast(forecast)
        .policy(policy)
        .numerics(numerics)
        .seed(args.seed)
        .quarantined(records.quarantined()?)
        .observer(Arc::clone(records.memory()) as Arc<dyn Observer>)
        .background(false);
    if let Some(forced) = forced {
        let with = builder.force_from(&forced);
        builder = with.map_err(|error| Failure::Usage(anyhow!("KERNELWISE_FORCE: {error}")))?;
    }
    let selector = builder.mode(environment::mode()?).build()?;
    selector.recall(&found.here);
    let seconds = args.time_budget.unwrap_or(if is_known { 0.0 } else { 1.0 });
    // Who learns nothing has no use for calls.
    if seconds > 0.0 && !records.is_frozen() {
        use_it(&selector, &workload, seconds, args.seed)?;
    }
    Ok(Ready {
        workload,
        selector,
        policy,
        calibration,
        records,
    })
}

/// Refuses operations and kernels that nobody knows: a forced one that is mistyped would force nothing.
pub(super) fn must_exist(forced: &str, known: &[KernelId]) -> Result<(), Failure> {
    for (operation, kernel) in forced.split(',').filter_map(|part| part.split_once('=')) {
        let (operation, kernel) = (operation.trim(), kernel.trim());
        let asked = Asked::parse(operation).map_err(|failure| failure.about("KERNELWISE_FORCE"))?;
        let found = known.iter().find(|id| id.as_str() == kernel);
        if found.is_some_and(|id| !asked.is_computed_by(id)) {
            return Err(Failure::Usage(anyhow!(
                "KERNELWISE_FORCE: {kernel} does not compute {operation}"
            )));
        }
        // References are made for the workload, and every operation has one.
        if !kernel.ends_with("-reference") && found.is_none() {
            let hint = asked::nearest(kernel, known.iter().map(KernelId::as_str));
            return Err(Failure::NotFound(anyhow!(
                "KERNELWISE_FORCE: no kernel is called `{kernel}`{hint}"
            )));
        }
    }
    Ok(())
}

/// Calls after the time is over, at the most, while a suspected change waits for its witness.
const LAST_CALLS: usize = 100;

/// Between two moves of the bar.
const DRAW_EVERY_S: f64 = 0.2;

/// Computes the workload again and again.
fn use_it(
    selector: &Selector,
    workload: &Workload,
    seconds: f64,
    seed: u64,
) -> Result<(), Failure> {
    asked::must_fit(workload, &kernelwise_probe::machine())?;
    let draw = (Arrangement::Contiguous, Values::Typical, seed);
    let inputs = sample::inputs(workload, draw.0, draw.1, draw.2)?;
    let mut outputs = sample::outputs(workload, draw.0, draw.1, draw.2)?;
    let inputs: Result<Vec<_>, _> = inputs.iter().map(|tensor| tensor.view()).collect();
    let inputs = inputs?;
    let outputs: Result<Vec<_>, _> = outputs.iter_mut().map(|tensor| tensor.view_mut()).collect();
    let mut outputs = outputs?;
    let mut call = Call::new(workload, &inputs, &mut outputs)?;
    let cancel = interrupt::flag()?;
    let clock = TscClock::new();
    let start = clock.now();
    let bar = progress::timed(seconds, &format!("computing {workload} to learn from it"));
    let mut drawn_s = 0.0;
    let ended = loop {
        selector.run(&mut call)?;
        selector.settle();
        if cancel.load(std::sync::atomic::Ordering::Relaxed) {
            break Err(Failure::Interrupted);
        }
        let spent_s = clock.now().saturating_sub(start) as f64 / 1e9;
        if spent_s >= seconds {
            break Ok(());
        }
        // Calls may be as short as a microsecond.
        if spent_s - drawn_s > DRAW_EVERY_S {
            drawn_s = spent_s;
            bar.set_position(progress::millis(spent_s));
        }
    };
    bar.finish_and_clear();
    ended?;
    // A choice that is only kept until a suspicion is settled would be explained by what is about to change.
    for _ in 0..LAST_CALLS {
        if selector.explain(workload)?.reason != Reason::Checking {
            break;
        }
        selector.run(&mut call)?;
        selector.settle();
    }
    Ok(())
}

/// What would have to happen for another choice.
fn changes(decision: &Decision) -> Vec<String> {
    let mut changes = Vec::new();
    let time = |ranked: &Ranked| ranked.estimate.time().map(|time| time.get());
    let measured = |ranked: &&Ranked| matches!(ranked.estimate, Estimate::Measured { .. });
    let next = decision.alternatives().iter().find(measured);
    if let (Some(next), Some(chosen)) = (next, time(&decision.chosen)) {
        let other = time(next).unwrap_or(chosen);
        changes.push(format!(
            "{} takes less than {:.0} % of the time it takes now, or the choice becomes {:.0} % slower",
            next.candidate,
            100.0 * (chosen / other).min(1.0),
            100.0 * (other / chosen - 1.0).max(0.0),
        ));
    }
    let unmeasured =
        decision.alternatives().len() - decision.alternatives().iter().filter(measured).count();
    if unmeasured > 0 {
        changes.push(format!(
            "a trial shows one of the {unmeasured} alternatives that were never timed to be faster"
        ));
    }
    changes
}

fn text(explained: &Explained<'_>) -> String {
    let mut text = explained.decision.to_string();
    let bound_by = bound_words(&explained.bound_by);
    text.push_str(&format!("  held up by {bound_by}\n"));
    if let Some(before) = &explained.before {
        text.push_str(&format!("  last time it was {before}\n"));
    }
    for change in &explained.changes_if {
        text.push_str(&format!("  changes if {change}\n"));
    }
    let statistics = &explained.statistics;
    text.push_str(&format!(
        "  policy {}; {} calls, {} of them trials, which took {:.2} % on top\n",
        explained.policy,
        statistics.calls,
        statistics.trials,
        100.0 * statistics.trials_excess_ns / statistics.served_ns.max(1.0),
    ));
    for quarantined in &explained.quarantined {
        text.push_str(&format!("  quarantined {quarantined}\n"));
    }
    text
}
