//! `kernelwise recommend`: what to run on a device, without measuring there.

use std::time::Duration;

use anyhow::anyhow;
use kernelwise_backend::Host;
use kernelwise_measure::{Clock, TscClock};
use kernelwise_probe::{StateReader, Tree};
use kernelwise_select::problem::kind;
use kernelwise_tune::gpu::{self, Advice, Wishes};
use kernelwise_tune::strategy::{
    Constraints, CpuCost, Recommendation, Strategy, TuneError, TuningStrategy,
};
use kernelwise_types::units::Bytes;
use kernelwise_types::{Numerics, SystemState, Workload};
use serde::Serialize;

use super::asked::{self, Asked};
use crate::args::{self, Format};
use crate::exit::Failure;
use crate::output;
use crate::records::Records;

/// Between two looks at how busy the machine is.
const LOOK: Duration = Duration::from_millis(150);

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

/// Recommends for this machine or for a device that is described.
pub(crate) fn run(args: &args::Recommend) -> Result<(), Failure> {
    let asked = Asked::parse(&args.op)?;
    let workload = asked::shape(&args.shape, Some(&asked), args.dtype)?;
    let allowed = match args.allow_reduced {
        true => Numerics::ReducedPrecision,
        false => Numerics::Reordered,
    };
    match args.device.as_str() {
        "host" => host(args, &workload, allowed),
        name => on_gpu(args, name, &workload, allowed),
    }
}

fn on_gpu(
    args: &args::Recommend,
    name: &str,
    workload: &Workload,
    allowed: Numerics,
) -> Result<(), Failure> {
    let device = gpu::device(name).map_err(|error| {
        Failure::NotFound(anyhow!("{error}; `host` is the processor of this machine"))
    })?;
    let wishes = Wishes {
        allowed,
        memory_bytes: args.memory_limit,
    };
    let advice = gpu::recommend(&device, workload, &wishes)?;
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

fn host(args: &args::Recommend, workload: &Workload, allowed: Numerics) -> Result<(), Failure> {
    let machine = kernelwise_probe::machine();
    let records = Records::open(&machine)?;
    let kernels = kernelwise_cpu::kernels()?;
    let mut cost = CpuCost::new(Host::new(machine.clone(), kernels.iter().cloned())?);
    match records.memory().calibration()? {
        Some(calibration) => {
            let mut found = records.found(&kernels, Some(&calibration))?;
            found
                .here
                .retain(|one| kind(&one.workload) == kind(workload));
            found
                .elsewhere
                .retain(|one| kind(&one.of.workload) == kind(workload));
            let evidence = records.evidence(&kernels, &calibration, &found)?;
            let models = records.memory().models(&evidence, args.seed);
            cost = cost.with_calibration(calibration).with_forecast(models);
        }
        None => output::note(
            "this machine was not calibrated: `kernelwise learn` makes recommendations better",
        ),
    }
    let constraints = Constraints {
        memory: args.memory_limit.map(Bytes),
        numerics: allowed,
        ..Constraints::default()
    };
    let strategy = Strategy::new(cost);
    let recommended = strategy.tune_for_workload(workload, &state(), &constraints);
    let recommendation = recommended.map_err(|error| match error {
        TuneError::Infeasible { .. } => Failure::NotFound(error.into()),
        other => other.into(),
    })?;
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

/// How busy the machine is, over a short while.
pub(super) fn state() -> SystemState {
    let clock = TscClock::new();
    let mut reader = StateReader::new(Tree::system());
    reader.look(clock.now());
    std::thread::sleep(LOOK);
    reader.look(clock.now())
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
