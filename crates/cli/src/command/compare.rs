//! `kernelwise compare`: the choice against a kernel named as baseline.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::anyhow;
use kernelwise_measure::{Comparison, Indifference, TscClock, Verdict};
use kernelwise_tune::host::Workbench;
use kernelwise_types::units::Nanos;
use serde::Serialize;

use super::asked::{self, Asked};
use super::explain::{self, Ready};
use crate::args::{self, Format};
use crate::exit::Failure;
use crate::{interrupt, output, progress};

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
pub(crate) fn run(args: &args::Compare) -> Result<(), Failure> {
    // A name that is mistyped is told at once, not after seconds of calibrating and learning.
    let operation = Asked::parse(&args.what.op)?;
    let workload = asked::shape(&args.what.shape, Some(&operation), args.what.dtype)?;
    let machine = kernelwise_probe::machine();
    asked::must_fit(&workload, &machine)?;
    let kernels = kernelwise_cpu::kernels()?;
    let baseline = asked::kernel(&args.baseline, &workload, &machine, &kernels)?;
    let Ready {
        selector, records, ..
    } = explain::learned(&args.what)?;
    records.close_or_note();
    let decision = selector.explain(&workload)?;
    let chosen = &decision.chosen.candidate;
    let (kernel, _) = asked::kernel(chosen.kernel.as_str(), &workload, &machine, &kernels)?;
    let space = kernel.space(&workload, &machine);
    let setting = space.setting(&chosen.params)?;
    let choice = (kernel, setting);
    let cancel = interrupt::flag()?;
    let clock = TscClock::new();
    let numerics = asked::numerics(args.what.allow_reduced);
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

fn time(ns: f64) -> String {
    Nanos::new(ns).map_or("-".to_owned(), |time| time.to_string())
}
