//! `kernelwise run`: prediction against reality.
//!
//! A prediction is about the kernel itself, as races time it. A call through the selector that takes a few hundred nanoseconds spends a good
//! part of them on choosing, and reading the clock would take as long again. Short calls are therefore timed in batches, as races do it, by turns
//! through the selector and without it: what was predicted is held against the kernel alone, and what a caller waits for is told beside it. With
//! long calls the two are the same, and only calls through the selector are made.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::anyhow;
use kernelwise_backend::sample::{self, Arrangement, Tensor, Values};
use kernelwise_backend::{
    Call, HostKernel, ReferenceKernel, Scratch, Setting, answer, run as run_kernel,
};
use kernelwise_measure::stats::Summary;
use kernelwise_measure::{Clock, Contender, Entry, Sampler, TscClock};
use kernelwise_select::Selector;
use kernelwise_types::units::Nanos;
use kernelwise_types::{Candidate, Estimate, Interval, Numerics, Workload};
use serde::Serialize;

use super::asked;
use super::explain::{self, Ready};
use crate::args::{self, Format};
use crate::exit::Failure;
use crate::{interrupt, output};

/// Work up to which the reference is asked what is right.
const VERIFIED_FLOPS: u64 = 400_000_000;

/// Calls up to this long are timed in batches, and with the kernel alone: choosing takes less than a thousandth of longer ones.
const SHORT_NS: u64 = 100_000;

#[derive(Debug, Serialize)]
struct Reality {
    workload: String,
    kernel: String,
    parameters: String,
    /// How often it was timed.
    calls: usize,
    /// Calls that were timed together each time; one if they are long enough for the clock.
    batch: u64,
    /// What was known before the first call.
    predicted: Estimate,
    /// Half of the times of a call were shorter. Of short calls, the kernel's alone.
    median_ns: f64,
    quartiles_ns: [f64; 2],
    /// The median of a call through the selector, choosing included.
    through_selector_ns: f64,
    /// `null` if nothing was predicted.
    median_over_predicted: Option<f64>,
    /// Where one new time was to be expected, nine times in ten; `null` where nothing says how much times scatter.
    expected_interval_ns: Option<Interval>,
    /// Whether the median lies there; `null` where there is no such interval.
    in_interval: Option<bool>,
    /// Whether the last result is that of the reference; `null` where the reference would take too long.
    is_right: Option<bool>,
}

/// Computes an operation on drawn data.
pub(crate) fn run(args: &args::Run) -> Result<(), Failure> {
    let Ready {
        workload,
        selector,
        records,
        ..
    } = explain::learned(&args.what)?;
    let before = selector.explain(&workload)?;
    let machine = kernelwise_probe::machine();
    asked::must_fit(&workload, &machine)?;
    let Candidate { kernel, params } = &before.chosen.candidate;
    let kernels = kernelwise_cpu::kernels()?;
    let (alone, _) = asked::kernel(kernel.as_str(), &workload, &machine, &kernels)?;
    let setting = alone.space(&workload, &machine).setting(params)?;
    let draw = (Arrangement::Contiguous, Values::Typical, args.what.seed);
    let inputs = sample::inputs(&workload, draw.0, draw.1, draw.2)?;
    let mut outputs = sample::outputs(&workload, draw.0, draw.1, draw.2)?;
    let timed = timed(
        &selector,
        &workload,
        &inputs,
        &mut outputs,
        (alone, setting),
        args,
    )?;
    selector.settle();
    records.close_or_note();
    let predicted = before.chosen.estimate.clone();
    let expected = expected(&predicted);
    let is_right = is_right(
        &workload,
        asked::numerics(args.what.allow_reduced),
        &inputs,
        &outputs,
        draw,
    )?;
    let median = timed.summary.median;
    let reality = Reality {
        workload: workload.to_string(),
        kernel: kernel.to_string(),
        parameters: params.to_string(),
        calls: timed.samples,
        batch: timed.batch,
        median_ns: median,
        quartiles_ns: [timed.summary.q1, timed.summary.q3],
        through_selector_ns: timed.through_selector_ns,
        median_over_predicted: predicted.time().map(|time| median / time.get()),
        in_interval: expected
            .map(|interval| (interval.low().get()..=interval.high().get()).contains(&median)),
        expected_interval_ns: expected,
        predicted,
        is_right,
    };
    match args.what.format {
        Format::Json => output::json("kernelwise.run/1", &reality)?,
        Format::Table => output::text(&text(&reality, &before.chosen.candidate))?,
    }
    match reality.is_right {
        Some(false) => Err(Failure::Wrong(anyhow!(
            "the last result of {} is not that of the reference",
            reality.workload
        ))),
        _ => Ok(()),
    }
}

/// What calls took.
struct Timed {
    samples: usize,
    batch: u64,
    summary: Summary,
    through_selector_ns: f64,
}

/// Computes the workload through the selector, and short ones by turns with the kernel alone. The last result through the selector is in `outputs`.
fn timed(
    selector: &Selector,
    workload: &Workload,
    inputs: &[Tensor],
    outputs: &mut [Tensor],
    (kernel, setting): (Arc<dyn HostKernel>, Setting),
    args: &args::Run,
) -> Result<Timed, Failure> {
    let cancel = interrupt::flag()?;
    let clock = TscClock::new();
    let inputs: Result<Vec<_>, _> = inputs.iter().map(Tensor::view).collect();
    let inputs = inputs?;
    let mut own = sample::outputs(
        workload,
        Arrangement::Contiguous,
        Values::Typical,
        args.what.seed,
    )?;
    let own: Result<Vec<_>, _> = own.iter_mut().map(Tensor::view_mut).collect();
    let mut own = own?;
    let outputs: Result<Vec<_>, _> = outputs.iter_mut().map(Tensor::view_mut).collect();
    let mut outputs = outputs?;
    let mut call = Call::new(workload, &inputs, &mut outputs)?;
    // The first finds caches cold and is held against the reference.
    selector.run(&mut call)?;
    let start = clock.now();
    selector.run(&mut call)?;
    let is_short = clock.now().saturating_sub(start) < SHORT_NS;
    selector.settle();
    let mut alone = Call::new(workload, &inputs, &mut own)?;
    let mut scratch = Scratch::new();
    let mut contenders = vec![Contender::new("selector", || selector.run(&mut call))];
    if is_short {
        contenders.push(Contender::new("kernel", || {
            scratch.reserve(kernel.workspace(alone.workload(), &setting))?;
            kernel.execute(&mut alone, &setting, &mut scratch)
        }));
    }
    let rounds = args.calls as usize;
    let race = Sampler::new(&clock)
        .warm_up(if is_short { 3 } else { 0 })
        .min_rounds(rounds)
        .max_rounds(rounds)
        .budget(Duration::MAX)
        .seed(args.what.seed)
        .cancel(cancel)
        .run(contenders);
    if cancel.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    let summary = |entry: &Entry| {
        let summary = entry.summary_ns;
        summary.ok_or_else(|| anyhow!("{workload} was not computed: {}", entry.ending))
    };
    let (Some(through), Some(told)) = (race.entries.first(), race.entries.last()) else {
        return Err(Failure::Failed(anyhow!("no call was timed")));
    };
    Ok(Timed {
        samples: told.samples_ns.len(),
        batch: told.batch,
        summary: summary(told)?,
        through_selector_ns: summary(through)?.median,
    })
}

/// Of a normal distribution, 90 % lie within so many standard deviations.
const NINETY: f64 = 1.645;

/// Where one new time is to be expected, nine times in ten. Models foretell single times. Of measured ones the interval is that of their mean,
/// which is known the better the more there are; a single one scatters as they did.
fn expected(predicted: &Estimate) -> Option<Interval> {
    match predicted {
        Estimate::Modelled { interval_ns, .. } => Some(*interval_ns),
        Estimate::Measured {
            time_ns,
            interval_ns: Some(mean),
            samples,
        } => {
            let sd_of_mean = (mean.high().get() / mean.low().get()).ln() / (2.0 * NINETY);
            let factor = (NINETY * sd_of_mean * (*samples as f64 + 1.0).sqrt()).exp();
            let low = Nanos::new(time_ns.get() / factor).ok()?;
            Interval::new(low, Nanos::new(time_ns.get() * factor).ok()?).ok()
        }
        _ => None,
    }
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
    run_kernel(
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
    Nanos::new(ns).map_or("-".to_owned(), |time| time.to_string())
}

fn text(reality: &Reality, candidate: &Candidate) -> String {
    let mut text = format!("{} by {candidate}\n", reality.workload);
    text += &format!("  predicted  {}\n", reality.predicted);
    let counted = match reality.batch {
        1 => format!("{} calls, half of them", reality.calls),
        batch => format!("{} batches of {batch} calls, half of them", reality.calls),
    };
    text += &format!(
        "  measured   {} a call in the median of {counted} from {} to {}\n",
        time(reality.median_ns),
        time(reality.quartiles_ns[0]),
        time(reality.quartiles_ns[1])
    );
    if let Some(over) = reality.median_over_predicted {
        let where_it_lies = match (reality.in_interval, reality.expected_interval_ns) {
            (Some(true), Some(range)) => {
                format!(", within its 90 % range for a new time ({range})")
            }
            (Some(false), Some(range)) => {
                format!(", outside its 90 % range for a new time ({range})")
            }
            _ => String::new(),
        };
        text += &format!("  {over:.2}x the prediction{where_it_lies}\n");
    }
    if reality.batch > 1 {
        text += &format!(
            "  {} a call through the selector, choosing included\n",
            time(reality.through_selector_ns)
        );
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(value: f64) -> Nanos {
        Nanos::new(value).unwrap()
    }

    #[test]
    fn a_new_time_scatters_more_than_the_mean_of_many() {
        let mean = Interval::new(ns(990.0), ns(1000.0 * 1000.0 / 990.0)).unwrap();
        let measured = |samples| Estimate::Measured {
            time_ns: ns(1000.0),
            interval_ns: Some(mean),
            samples,
        };
        let width = |samples| {
            let range = expected(&measured(samples)).unwrap();
            assert!(range.low() < mean.low() && range.high() > mean.high());
            (range.high().get() / range.low().get()).ln()
        };
        // The mean of 99 is known ten times as well as one of them.
        let of_mean = (mean.high().get() / mean.low().get()).ln();
        assert!((width(99) / of_mean - 10.0).abs() < 1e-9);
        assert!(width(99) > width(3));
        let modelled = Estimate::Modelled {
            time_ns: ns(1000.0),
            interval_ns: mean,
            model: "trees".to_owned(),
        };
        assert_eq!(expected(&modelled), Some(mean));
        assert_eq!(expected(&Estimate::Unknown), None);
    }

    #[test]
    fn short_calls_are_told_in_batches_and_without_empty_brackets() {
        let candidate = Candidate {
            kernel: "cpu-copy-f32-memcpy".parse().unwrap(),
            params: "".parse().unwrap(),
        };
        let range = Interval::new(ns(10.0), ns(14.0)).unwrap();
        let short = Reality {
            workload: "copy f32 64".to_owned(),
            kernel: candidate.kernel.to_string(),
            parameters: String::new(),
            calls: 20,
            batch: 1700,
            predicted: Estimate::Prior {
                time_ns: ns(12.0),
                source: "roofline".to_owned(),
            },
            median_ns: 12.6,
            quartiles_ns: [12.5, 13.0],
            through_selector_ns: 35.0,
            median_over_predicted: Some(1.05),
            expected_interval_ns: Some(range),
            in_interval: Some(true),
            is_right: Some(true),
        };
        assert_eq!(
            text(&short, &candidate),
            "copy f32 64 by cpu-copy-f32-memcpy\n\
             \x20 predicted  12.0 ns prior from roofline\n\
             \x20 measured   12.6 ns a call in the median of 20 batches of 1700 calls, half of them from 12.5 ns to 13.0 ns\n\
             \x20 1.05x the prediction, within its 90 % range for a new time (10.0 ns to 14.0 ns)\n\
             \x20 35.0 ns a call through the selector, choosing included\n\
             \x20 the result is that of the reference\n"
        );
    }
}
