//! The recommendation for one device: the launch that should take least, with what else there is and why.

use kernelwise_types::{Numerics, Params, Workload};
use serde::Serialize;

use super::config::Config;
use super::cost::{Prediction, predict, score, words};
use super::device::{Api, Gpu};
use super::launch::{Launch, LaunchError, launch, permit};
use super::problem::Problem;

/// How many alternatives are told.
const ALTERNATIVES: usize = 4;

/// What a caller wants besides speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wishes {
    /// How exact results must be. Matrix units and half precision are taken for wider elements only with
    /// [`Numerics::ReducedPrecision`].
    pub allowed: Numerics,
    /// Memory on the device that may be used, in bytes; `None` for all it has.
    pub memory_bytes: Option<u64>,
}

impl Default for Wishes {
    /// Sums in any order, all of the memory.
    fn default() -> Self {
        Self {
            allowed: Numerics::Reordered,
            memory_bytes: None,
        }
    }
}

/// What to launch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// The device.
    pub device: String,
    /// Where its figures come from.
    pub source: String,
    /// The settings, as they travel.
    pub params: Params,
    /// The launch.
    pub launch: Launch,
    /// What it should take; `None` where rates are not known, and then nobody knows.
    pub prediction: Option<Prediction>,
    /// What else could be launched, best first.
    pub alternatives: Vec<Alternative>,
    /// Why this one, in words.
    pub reasoning: Vec<String>,
}

/// Something else that could be launched.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alternative {
    /// The settings.
    pub params: Params,
    /// What it should take; `None` where rates are not known.
    pub prediction: Option<Prediction>,
}

/// The launch that should take least on this device.
pub fn recommend(gpu: &Gpu, workload: &Workload, wishes: &Wishes) -> Result<Advice, LaunchError> {
    let ranked = ranked(gpu, workload, wishes)?;
    let alternatives = ranked.iter().skip(1).take(ALTERNATIVES);
    let alternatives = alternatives
        .map(|(launch, prediction)| {
            Ok(Alternative {
                params: params(&launch.config)?,
                prediction: *prediction,
            })
        })
        .collect::<Result<_, LaunchError>>()?;
    let considered = ranked.len();
    let first = ranked.into_iter().next();
    let (launch, prediction) = first.ok_or_else(|| nothing(gpu, workload, None))?;
    let mut reasoning = describe(gpu, &launch);
    reasoning.push(match &prediction {
        Some(time) => format!(
            "prior: a roofline over published rates ({}), bound by {}; nothing was measured",
            gpu.source, time.bound
        ),
        None => {
            let unknown = gpu.unknown_rates();
            let why = match (unknown.is_empty(), gpu.api) {
                (true, _) if workload.cost().is_none() => {
                    "what the operation computes is its author's secret".to_owned()
                }
                (true, _) => format!("{} has no arithmetic for these elements", gpu.name),
                (false, Api::WebGpu) => {
                    "WebGPU tells limits, not how fast the adapter behind it is".to_owned()
                }
                (false, _) => format!(
                    "it is not published for {}: {}",
                    gpu.name,
                    unknown.join(", ")
                ),
            };
            format!(
                "no prediction, because {why}; {considered} launches were put in order by occupancy, reuse and coalescing; describe \
                 the device in a file to have times"
            )
        }
    });
    Ok(Advice {
        device: gpu.name.clone(),
        source: gpu.source.clone(),
        params: params(&launch.config)?,
        launch,
        prediction,
        alternatives,
        reasoning,
    })
}

/// Settings as they travel.
pub(super) fn params(config: &Config) -> Result<Params, LaunchError> {
    config
        .params()
        .map_err(|error| LaunchError::Config(error.to_string()))
}

fn nothing(gpu: &Gpu, workload: &Workload, last: Option<LaunchError>) -> LaunchError {
    match last {
        // What holds for all of them is said as it is.
        Some(
            error @ (LaunchError::Unsupported { .. }
            | LaunchError::Memory { .. }
            | LaunchError::Permission { .. }),
        ) => error,
        last => LaunchError::Nothing {
            device: gpu.name.clone(),
            workload: workload.to_string(),
            last: last.map_or_else(|| "its limits are too small".to_owned(), |e| e.to_string()),
        },
    }
}

/// Every launch that is allowed and possible, best first; not empty.
pub(super) fn ranked(
    gpu: &Gpu,
    workload: &Workload,
    wishes: &Wishes,
) -> Result<Vec<(Launch, Option<Prediction>)>, LaunchError> {
    gpu.check()?;
    let mut last = None;
    let mut found = Vec::new();
    for config in Config::all(gpu, workload, &Problem::of(workload)) {
        let made = permit(gpu, workload, config.arithmetic, wishes.allowed)
            .and_then(|()| launch(gpu, workload, config, wishes.memory_bytes));
        match made {
            Ok(launch) => {
                let prediction = predict(gpu, workload, &launch);
                let time = prediction.map_or(0.0, |time| time.warm_ns.get());
                found.push((time, score(gpu, workload, &launch), launch, prediction));
            }
            // A refusal of the operation itself says more than one of a single setting.
            Err(error) => {
                if !matches!(
                    last,
                    Some(LaunchError::Memory { .. } | LaunchError::Unsupported { .. })
                ) {
                    last = Some(error);
                }
            }
        }
    }
    if found.is_empty() {
        return Err(nothing(gpu, workload, last));
    }
    // Where floors make times equal, the launch that leaves more room; then the first in a fixed order.
    found.sort_by(|a, b| {
        let times = a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1));
        times.then_with(|| a.2.config.cmp(&b.2.config))
    });
    Ok(found
        .into_iter()
        .map(|(_, _, launch, prediction)| (launch, prediction))
        .collect())
}

/// A launch in words.
pub(super) fn describe(gpu: &Gpu, launch: &Launch) -> Vec<String> {
    let config = &launch.config;
    let [x, y, z] = launch.grid;
    let mut all = vec![
        format!(
            "groups of {}x{} threads, {}x{} outputs each, grid {x}x{y}x{z}",
            config.group[0], config.group[1], config.tile[0], config.tile[1]
        ),
        format!(
            "{} bytes of shared memory, about {} registers per thread, arithmetic {}",
            launch.shared_bytes,
            launch.registers,
            words(config.arithmetic)
        ),
    ];
    all.push(match &launch.occupancy {
        Some(held) => format!(
            "{} groups per unit, occupancy {:.2}, limited by {}",
            held.groups,
            held.share,
            held.limiter.name()
        ),
        None => format!("what a unit of {} holds is not published", gpu.name),
    });
    if launch.launches() > 1 {
        let [x, y, z] = launch.chunks;
        all.push(format!(
            "{} launches ({x}x{y}x{z}), because operands do not fit at once",
            launch.launches()
        ));
    }
    all
}
