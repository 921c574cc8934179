//! GPUs as a strategy sees them: choices and prices.

use kernelwise_types::units::{Bytes, Nanos, Share};
use kernelwise_types::{Backend, Numerics, Workload};

use super::advice::{Wishes, describe, params, ranked};
use super::config::Config;
use super::cost::{SPREAD_LN, compile_seconds, predict};
use super::device::{DeviceError, Gpu};
use super::launch::{LaunchError, launch, offered};
use crate::strategy::{Choice, Infeasible, Limit, Origin, Price, Priced, Situation};

/// Launches worth considering: those that should take least. A price is told for every other that is offered, too.
const CONSIDERED: usize = 48;

/// What is known of a GPU without measuring, whichever maker's: its backend is that of its [`Api`](super::Api).
#[derive(Debug, Clone, PartialEq)]
pub struct GpuCost {
    gpu: Gpu,
}

impl GpuCost {
    /// Takes a device whose description holds.
    pub fn new(gpu: Gpu) -> Result<Self, DeviceError> {
        gpu.check()?;
        Ok(Self { gpu })
    }

    /// The device.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn unknown(&self, workload: &Workload) -> Infeasible {
        Infeasible::new(
            Limit::Operation,
            format!(
                "nobody knows what {workload} takes on {}: its rates, or the cost of the operation, are not published; ask for \
                 launch parameters without a time, or describe the device",
                self.gpu.name
            ),
        )
    }
}

impl From<LaunchError> for Infeasible {
    fn from(error: LaunchError) -> Self {
        let limit = match &error {
            LaunchError::Unsupported { .. }
            | LaunchError::Nothing { .. }
            | LaunchError::Device(_) => Limit::Operation,
            LaunchError::Permission { .. } => Limit::Numerics,
            LaunchError::Memory { .. } => Limit::Memory,
            LaunchError::Config(_) | LaunchError::Limit { .. } | LaunchError::Occupancy(_) => {
                Limit::Parameters
            }
        };
        Self::new(limit, error.to_string())
    }
}

impl Priced for GpuCost {
    fn backend(&self) -> Backend {
        self.gpu.api.backend()
    }

    fn device(&self) -> &str {
        &self.gpu.name
    }

    /// The state of the host does not bear on which launches a GPU has.
    fn settings(
        &self,
        workload: &Workload,
        _situation: &Situation,
        allowed: Numerics,
    ) -> Result<Vec<Choice>, Infeasible> {
        let wishes = Wishes {
            allowed,
            memory_bytes: None,
        };
        let ranked = ranked(&self.gpu, workload, &wishes)?;
        if ranked.iter().any(|(_, prediction)| prediction.is_none()) {
            return Err(self.unknown(workload));
        }
        let choices = ranked
            .iter()
            .take(CONSIDERED)
            .map(|(launch, _)| Ok(Choice::of(params(&launch.config)?)));
        choices.collect()
    }

    fn price(&self, workload: &Workload, choice: &Choice) -> Result<Price, Infeasible> {
        if let Some(kernel) = &choice.kernel {
            let why = format!(
                "{} has launches, not kernels such as `{kernel}`",
                self.gpu.name
            );
            return Err(Infeasible::new(Limit::Parameters, why));
        }
        let config = Config::read(&choice.params).map_err(LaunchError::Config)?;
        offered(&self.gpu, workload, &config)?;
        let launch = launch(&self.gpu, workload, config, None)?;
        let time = predict(&self.gpu, workload, &launch).ok_or_else(|| self.unknown(workload))?;
        let groups = launch
            .groups
            .iter()
            .fold(1u64, |all, &n| all.saturating_mul(n));
        let units = self.gpu.units.unwrap_or(1);
        let compile = Nanos::new(compile_seconds(self.gpu.api) * 1e9);
        Ok(Price {
            time_ns: time.warm_ns,
            floor_ns: Some(time.floor_ns),
            spread_ln: SPREAD_LN,
            compile_ns: compile.unwrap_or(Nanos::from_u64(0)),
            memory: Bytes(launch.memory_bytes),
            power: None,
            bound: time.bound,
            occupancy: launch
                .occupancy
                .and_then(|held| Share::new(held.share).ok()),
            units: u32::try_from(groups).unwrap_or(u32::MAX).min(units),
            usual: None,
            origin: Origin::Prior(format!(
                "roofline of {} ({})",
                self.gpu.name, self.gpu.source
            )),
            words: describe(&self.gpu, &launch),
        })
    }
}
