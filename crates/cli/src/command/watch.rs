//! `kernelwise watch`: a program that learns, seen from outside, second by second.
//!
//! The shapes named are computed in turn through the library, as a program would, beginning with what is on record: in the directory that `learn`
//! writes to and `select` reads. Each view is what happened since the last: calls, trials, what those cost beside what they may cost, what others
//! do on the machine, and who serves, with how its time is known.

use std::io::IsTerminal;
use std::sync::atomic::Ordering;

use kernelwise::{Kernelwise, SetupError};
use kernelwise_backend::Call;
use kernelwise_backend::sample::{self, Arrangement, Tensor, Values};
use kernelwise_measure::{Clock, TscClock};
use kernelwise_select::Budget;
use kernelwise_store::StoreError;
use kernelwise_types::units::Nanos;
use kernelwise_types::{Estimate, KernelId, Workload};
use serde::Serialize;

use super::{asked, explain};
use crate::args::{self, Format};
use crate::exit::Failure;
use crate::{environment, interrupt, output};

/// What is computed if nobody says.
const USUAL: [&str; 4] = [
    "matmul f32 192x192x192",
    "conv2d f32 n1 c16 h32 w32 k32 r3 s3 pad1",
    "softmax f32 256x256",
    "reduce.sum f32 512x512 axes1",
];

#[derive(Debug, Serialize)]
struct Second {
    elapsed_s: f64,
    calls_per_s: f64,
    /// So far.
    calls: u64,
    trials: u64,
    /// What trials took longer than the calls they replaced, and what they may.
    excess_ns: f64,
    budget_ns: f64,
    /// Processors that others keep busy; `null` where nobody can look.
    load: Option<u32>,
    choices: Vec<Choice>,
}

#[derive(Debug, Serialize)]
struct Choice {
    workload: String,
    kernel: String,
    /// `null` where nothing is known.
    time_ns: Option<f64>,
    /// How the time is known, and so what the confidence rests on: `measured`, `modelled`, `prior` or `unknown`.
    known_by: &'static str,
    /// How many samples it was measured with; `null` where it was not.
    samples: Option<u64>,
    confidence: Option<f64>,
}

/// Computes and shows until Ctrl-C, or until the count is reached.
pub(crate) fn run(args: &args::Watch) -> Result<(), Failure> {
    let cancel = interrupt::flag()?;
    let texts: Vec<String> = match args.shape.is_empty() {
        true => USUAL.map(str::to_owned).to_vec(),
        false => args.shape.clone(),
    };
    let workloads: Result<Vec<Workload>, Failure> = texts
        .iter()
        .map(|text| {
            text.parse().map_err(|error| {
                Failure::Usage(anyhow::Error::new(error).context(format!("`{text}`")))
            })
        })
        .collect();
    let workloads = workloads?;
    let mut operands = Vec::new();
    let machine = kernelwise_probe::machine();
    let kernels = kernelwise_cpu::kernels()?;
    if let Some(forced) = environment::text("KERNELWISE_FORCE")? {
        let known: Vec<KernelId> = kernels.iter().map(|one| one.spec().id.clone()).collect();
        explain::must_exist(&forced, &known)?;
    }
    for workload in &workloads {
        asked::must_be_computed(workload, &machine, &kernels)?;
        asked::must_fit(workload, &machine)?;
        let draw = (Arrangement::Contiguous, Values::Typical, args.seed);
        let inputs = sample::inputs(workload, draw.0, draw.1, draw.2)?;
        operands.push((inputs, sample::outputs(workload, draw.0, draw.1, draw.2)?));
    }
    let kw = remembering()?;
    let clock = TscClock::new();
    let began = clock.now();
    let since = |start: u64| clock.now().saturating_sub(start) as f64 / 1e9;
    let mut calls = 0;
    for shown in 1.. {
        let (start, before) = (clock.now(), calls);
        while since(start) < args.interval {
            for (workload, (inputs, outputs)) in workloads.iter().zip(&mut operands) {
                let inputs: Result<Vec<_>, _> = inputs.iter().map(Tensor::view).collect();
                let out: Result<Vec<_>, _> = outputs.iter_mut().map(Tensor::view_mut).collect();
                let (inputs, mut out) = (inputs?, out?);
                kw.run(&mut Call::new(workload, &inputs, &mut out)?)?;
                calls += 1;
            }
            if cancel.load(Ordering::Relaxed) {
                return Err(Failure::Interrupted);
            }
        }
        let rate = (calls - before) as f64 / since(start);
        let second = second(&kw, &workloads, since(began), rate)?;
        match args.format {
            Format::Json => output::json_line("kernelwise.watch/1", &second)?,
            Format::Table => {
                // On a terminal one view takes the place of the last.
                if std::io::stdout().is_terminal() {
                    output::styled("\x1b[H\x1b[J")?;
                }
                output::text(&text(&second))?;
            }
        }
        if args.count.is_some_and(|count| shown >= count) {
            break;
        }
    }
    Ok(())
}

/// The library as programs use it, with the records that this program uses.
fn remembering() -> Result<Kernelwise, Failure> {
    let builder = match kernelwise_store::directory(|name| std::env::var_os(name)) {
        Ok(dir) => Kernelwise::builder().remember(dir),
        Err(error) => {
            output::note(&format!("nothing is remembered: {error}"));
            Kernelwise::builder()
        }
    };
    let built = builder.from_env().and_then(|builder| builder.build());
    built.map_err(|error| match &error {
        SetupError::Records(StoreError::Newer { .. } | StoreError::Busy { .. }) => {
            Failure::Records(error.into())
        }
        SetupError::Mode(_) | SetupError::Force(_) | SetupError::NotText { .. } => {
            Failure::Usage(error.into())
        }
        _ => Failure::Failed(error.into()),
    })
}

fn second(
    kw: &Kernelwise,
    workloads: &[Workload],
    elapsed_s: f64,
    calls_per_s: f64,
) -> Result<Second, Failure> {
    let (statistics, ledger) = (kw.statistics(), kw.selector().ledger());
    let mut choices = Vec::new();
    for workload in workloads {
        let decision = kw.explain(workload)?;
        let estimate = &decision.chosen.estimate;
        choices.push(Choice {
            workload: workload.to_string(),
            kernel: decision.chosen.candidate.to_string(),
            time_ns: estimate.time().map(|time| time.get()),
            known_by: estimate.known_by(),
            samples: match estimate {
                Estimate::Measured { samples, .. } => Some(*samples),
                _ => None,
            },
            confidence: decision.confidence.map(|share| share.get()),
        });
    }
    Ok(Second {
        elapsed_s,
        calls_per_s,
        calls: statistics.calls,
        trials: statistics.trials,
        excess_ns: ledger.spent_ns(),
        budget_ns: ledger.left(&Budget::default()) + ledger.spent_ns(),
        load: kw.load(),
        choices,
    })
}

fn text(second: &Second) -> String {
    let text = format!(
        "{:.0} s: {:.0} calls/s, {} trials, which cost {:.2} ms of {:.2} ms allowed; others keep {} busy\n",
        second.elapsed_s,
        second.calls_per_s,
        second.trials,
        second.excess_ns / 1e6,
        second.budget_ns / 1e6,
        match second.load {
            None => "an unknown number of processors".to_owned(),
            Some(1) => "1 processor".to_owned(),
            Some(busy) => format!("{busy} processors"),
        }
    );
    let rows = second.choices.iter().map(|choice| {
        let time = choice.time_ns.and_then(|ns| Nanos::new(ns).ok());
        let known_by = match choice.samples {
            Some(samples) => format!("{}, n = {samples}", choice.known_by),
            None => choice.known_by.to_owned(),
        };
        vec![
            choice.workload.clone(),
            choice.kernel.clone(),
            time.map_or("?".to_owned(), |time| time.to_string()),
            known_by,
            choice
                .confidence
                .map_or("?".to_owned(), |share| format!("{:.0} %", 100.0 * share)),
        ]
    });
    let headings = ["workload", "served by", "time", "known by", "sure"];
    text + &output::columns(&headings, &[2, 4], rows.collect())
}
