//! A launch: settings made concrete for a workload on a device, within every limit.
//!
//! The grid covers the output for any shape: along each axis there are as many groups as it takes, the last of them partly idle. A grid
//! that is too long along an axis is folded into one number that kernels count groups by; work that needs more memory than there is,
//! or a larger buffer than may be bound, becomes several launches.

use kernelwise_types::op::Operation;
use kernelwise_types::{DType, LayoutKind, Numerics, Workload};
use serde::{Deserialize, Serialize};

use super::config::{Config, arithmetics};
use super::demand::Demand;
use super::device::{Arithmetic, DeviceError, Gpu};
use super::occupancy::{Occupancy, OccupancyError, occupancy};
use super::pieces::Extent;
use super::problem::Problem;
use super::shapes::{Product, SECTOR, Sweep};

/// A launch that keeps every limit of its device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// The settings.
    pub config: Config,
    /// What is covered.
    pub problem: Problem,
    /// Launches, one after the other, by cuts along each axis of the problem; `[1, 1, 1]` if everything fits.
    pub chunks: [u64; 3],
    /// The largest of them along each axis: columns, rows, batch.
    pub piece: [u64; 3],
    /// What one group covers along each axis.
    pub span: [u64; 3],
    /// Groups that a piece needs along each axis; along the last, those that share sums are counted.
    pub groups: [u64; 3],
    /// Groups to launch: those, or their number folded where an axis would be too long.
    pub grid: [u64; 3],
    /// Registers of a thread, estimated.
    pub registers: u32,
    /// Shared memory of a group, from its tile and element type.
    pub shared_bytes: u64,
    /// What a unit holds; `None` if its maker does not say.
    pub occupancy: Option<Occupancy>,
    /// Memory that operands of a piece take.
    pub memory_bytes: u64,
}

impl Launch {
    /// Launches, one after the other.
    pub fn launches(&self) -> u64 {
        self.chunks.iter().product()
    }

    /// Groups that do the same outputs of a product, each for a part of the sums.
    pub(super) fn parts(&self) -> u64 {
        match self.problem {
            Problem::Product { .. } => self.config.split.max(1).into(),
            _ => 1,
        }
    }

    /// Groups of all launches.
    pub(super) fn all_groups(&self, size: [u64; 3]) -> f64 {
        let along = |axis: usize| size[axis].div_ceil(self.span[axis].max(1)) as f64;
        along(0) * along(1) * along(2) * self.parts() as f64
    }
}

/// Why there is no launch.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// Kernels there cannot hold the element type.
    #[error("{device} has no {dtype}: convert to a type it has")]
    Unsupported {
        /// The device.
        device: String,
        /// The element type.
        dtype: DType,
    },
    /// The arithmetic is less exact than was allowed.
    #[error(
        "{what} on {device} is {needs}, only {allowed} was allowed: allow it, or compute elsewhere"
    )]
    Permission {
        /// The device.
        device: String,
        /// What is not exact enough.
        what: String,
        /// What would have to be allowed.
        needs: &'static str,
        /// What was.
        allowed: &'static str,
    },
    /// Settings that are not offered for this work.
    #[error("{0}")]
    Config(String),
    /// A group or a grid that is too large.
    #[error("{what} of {asked} are more than the {most} that {device} allows")]
    Limit {
        /// What is too large.
        what: &'static str,
        /// How large.
        asked: u64,
        /// The limit.
        most: u64,
        /// The device.
        device: String,
    },
    /// Operands that fit neither whole nor in pieces.
    #[error(
        "`{operand}` does not fit on {device}: a piece still takes {bytes} bytes, the limit is {most}"
    )]
    Memory {
        /// The device.
        device: String,
        /// The operand that cannot be made smaller.
        operand: &'static str,
        /// Bytes of the smallest piece.
        bytes: u64,
        /// The limit.
        most: u64,
    },
    /// The description of the device does not hold.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The kernel would never run.
    #[error(transparent)]
    Occupancy(#[from] OccupancyError),
    /// No settings are left.
    #[error("{device} can run none of the settings for {workload}: {last}")]
    Nothing {
        /// The device.
        device: String,
        /// The workload.
        workload: String,
        /// What kept the last from it.
        last: String,
    },
}

/// Refuses arithmetic that is less exact than allowed. A GPU fuses multiplication and addition, so results of floating-point
/// arithmetic are never bit for bit those of the reference.
pub(super) fn permit(
    gpu: &Gpu,
    workload: &Workload,
    arithmetic: Arithmetic,
    allowed: Numerics,
) -> Result<(), LaunchError> {
    let dtype = workload.dtype();
    let exact = !(dtype.is_float() || dtype.is_complex());
    let counts = workload
        .cost()
        .map_or(1, |cost| cost.flops.0 + cost.transcendentals);
    let needs = match arithmetic {
        Arithmetic::Own if exact || counts == 0 => Numerics::BitIdentical,
        Arithmetic::Own => Numerics::Reordered,
        // Products of halves are exact in the sums of matrix units.
        Arithmetic::Tensor if matches!(dtype, DType::F16 | DType::Bf16) => Numerics::Reordered,
        Arithmetic::Tensor | Arithmetic::Half => Numerics::ReducedPrecision,
    };
    if needs <= allowed {
        return Ok(());
    }
    let what = match arithmetic {
        Arithmetic::Own => format!("{dtype} arithmetic"),
        Arithmetic::Half => format!("{dtype} in half precision"),
        Arithmetic::Tensor => format!("{dtype} on matrix units"),
    };
    Err(LaunchError::Permission {
        device: gpu.name.clone(),
        what,
        needs: needs.name(),
        allowed: allowed.name(),
    })
}

/// Makes settings that were offered concrete. `memory` is a limit besides that of the device.
pub(super) fn launch(
    gpu: &Gpu,
    workload: &Workload,
    config: Config,
    memory: Option<u64>,
) -> Result<Launch, LaunchError> {
    let problem = Problem::of(workload);
    if let Some(&dtype) = workload.dtypes().iter().find(|dtype| !gpu.holds(**dtype)) {
        return Err(LaunchError::Unsupported {
            device: gpu.name.clone(),
            dtype,
        });
    }
    let extent = Extent::of(workload, &problem);
    let limit = match (gpu.memory_bytes, memory) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    let chunks = extent.cuts(&gpu.name, gpu.limits.binding_bytes, limit)?;
    let piece = extent.piece(chunks);
    let span = span(&problem, &config);
    let demand = demand(gpu, workload, &problem, &config);
    let occupancy = occupancy(gpu, demand.usage)?;
    let mut launch = Launch {
        config,
        problem,
        chunks,
        piece,
        span,
        groups: [0, 1, 2].map(|axis| piece[axis].div_ceil(span[axis].max(1))),
        grid: [1; 3],
        registers: demand.usage.registers,
        shared_bytes: demand.usage.shared_bytes,
        occupancy,
        memory_bytes: extent.total(chunks),
    };
    launch.groups[2] = launch.groups[2].saturating_mul(launch.parts());
    launch.grid = grid(gpu, launch.groups)?;
    Ok(launch)
}

/// Refuses settings that are not among those offered: they come from files and people too.
pub(super) fn offered(gpu: &Gpu, workload: &Workload, config: &Config) -> Result<(), LaunchError> {
    let limits = &gpu.limits;
    for (what, asked, most) in [
        (
            "threads per group",
            config.threads(),
            limits.threads_per_group,
        ),
        ("threads along x", config.group[0], limits.group[0]),
        ("threads along y", config.group[1], limits.group[1]),
    ] {
        if asked > most {
            return Err(LaunchError::Limit {
                what,
                asked: asked.into(),
                most: most.into(),
                device: gpu.name.clone(),
            });
        }
    }
    if !arithmetics(gpu, workload.dtype()).contains(&config.arithmetic) {
        return Err(LaunchError::Config(format!(
            "{} has no such arithmetic for {}: write arithmetic=0",
            gpu.name,
            workload.dtype()
        )));
    }
    if !Config::all(gpu, workload, &Problem::of(workload)).contains(config) {
        return Err(LaunchError::Config(format!(
            "these settings are not offered for {workload} on {}: take one of those that are",
            gpu.name
        )));
    }
    Ok(())
}

/// What one group covers along each axis of the problem.
fn span(problem: &Problem, config: &Config) -> [u64; 3] {
    let wide = |axis: usize| u64::from(config.group[axis]) * u64::from(config.tile[axis]);
    match *problem {
        Problem::Product { .. } | Problem::Exchange { .. } => [wide(0), wide(1), 1],
        Problem::Stream { .. } => [wide(0) * u64::from(config.vector), 1, 1],
        Problem::Rows { length, .. } => {
            let part = length.div_ceil(config.split.max(1).into());
            [part, u64::from(config.group[1]), 1]
        }
    }
}

/// The grid as it is, or folded: x is filled first, then y, then z.
fn grid(gpu: &Gpu, groups: [u64; 3]) -> Result<[u64; 3], LaunchError> {
    let most = gpu.limits.grid;
    if (0..3).all(|axis| groups[axis] <= most[axis]) {
        return Ok(groups);
    }
    let all = groups.iter().try_fold(1u64, |all, &n| all.checked_mul(n));
    let too_many = || LaunchError::Limit {
        what: "groups",
        asked: all.unwrap_or(u64::MAX),
        most: most.iter().fold(1, |all, &n| all.saturating_mul(n)),
        device: gpu.name.clone(),
    };
    let all = all.ok_or_else(too_many)?;
    let x = all.min(most[0]);
    let y = all.div_ceil(x).min(most[1]);
    let z = all.div_ceil(x.saturating_mul(y));
    match z <= most[2] {
        true => Ok([x, y, z]),
        false => Err(too_many()),
    }
}

/// Registers per thread and per unit.
fn registers(gpu: &Gpu) -> (u32, Option<u32>) {
    let unit = gpu.residency;
    let most = unit.map_or(255, |unit| unit.registers_per_thread);
    (most, unit.and_then(|unit| unit.registers))
}

/// What one full group asks for. It does not get less when the problem grows.
pub(super) fn demand(gpu: &Gpu, workload: &Workload, problem: &Problem, config: &Config) -> Demand {
    let dtype = workload.dtype();
    let bytes = dtype.size() as f64;
    let cost = workload.cost();
    let flops = cost.map_or(0.0, |cost| (cost.flops.0 + cost.comparisons) as f64);
    let specials = cost.map_or(0.0, |cost| cost.transcendentals as f64);
    // Elements that do not lie next to each other come in sectors of their own.
    let scatter = match workload.layout() {
        LayoutKind::Strided => (SECTOR / bytes).max(1.0),
        _ => 1.0,
    };
    let registers = registers(gpu);
    let subgroup = gpu.subgroup.max(1);
    let sweep = Sweep {
        threads: config.threads(),
        elements: 0.0,
        accesses: f64::from(config.tile[0]),
        vector: f64::from(config.vector),
        flops: 0.0,
        specials: 0.0,
        bytes,
        scatter,
        passes: 1.0,
        staged_bytes: None,
        per_access: 4.0,
        exchanges: 0.0,
        combining: 0.0,
        subgroup,
        registers,
    };
    match *problem {
        Problem::Product { k, .. } => {
            let near = match config.arithmetic {
                Arithmetic::Half => 2.0,
                _ => bytes,
            };
            let tensor = config.arithmetic == Arithmetic::Tensor;
            let product = Product {
                group: config.group,
                tile: config.tile,
                depth: config.depth,
                unroll: config.depth,
                vector: [config.vector; 2],
                staged: [config.staged; 2],
                k: (k as f64 / f64::from(config.split.max(1))).ceil(),
                bytes: [near, bytes.max(4.0)],
                stored: bytes * scatter,
                results: if dtype.is_complex() { 4.0 } else { 1.0 },
                // A matrix instruction of a subgroup does 16 x 8 x 16 multiply-adds, 64 per thread.
                per_instruction: if tensor { 64.0 } else { 1.0 },
                subgroup,
                registers,
            };
            product.demand()
        }
        Problem::Stream { elements } => {
            let per_group = f64::from(config.threads() * config.tile[0] * config.vector);
            // A custom operation may say anything; its arithmetic is counted for the device as a whole.
            let custom = matches!(workload.operation(), Operation::Custom(_));
            let share = if custom {
                0.0
            } else {
                per_group / elements as f64
            };
            let out = workload
                .outputs()
                .first()
                .map_or(bytes, |o| o.dtype.size() as f64);
            Sweep {
                elements: per_group,
                bytes: out,
                flops: flops * share,
                specials: specials * share,
                ..sweep
            }
            .demand()
        }
        Problem::Rows {
            rows,
            length,
            passes,
            ..
        } => {
            let (along, together) = (f64::from(config.group[0]), f64::from(config.group[1]));
            let split = f64::from(config.split.max(1));
            let elements = (length as f64 / split).ceil() * together;
            let share = together / (rows as f64 * split);
            let staged = (elements * bytes) as u64;
            // Merging and butterflies move every element once per halving, there and back.
            let exchanges = match workload.operation() {
                Operation::Sort(_) | Operation::Fft(_) => 2.0 * (length as f64).log2().ceil(),
                _ => 0.0,
            };
            // A second launch puts the parts together.
            let more = if config.split > 1 { split.log2() } else { 0.0 };
            Sweep {
                elements,
                accesses: 4.0 / f64::from(config.vector).min(4.0),
                flops: flops * share,
                specials: specials * share,
                passes: f64::from(passes),
                staged_bytes: config.staged.then_some(staged),
                exchanges,
                combining: along.log2() + more,
                ..sweep
            }
            .demand()
        }
        Problem::Exchange { .. } => {
            let side = u64::from(config.group[0]);
            Sweep {
                elements: (side * side) as f64,
                accesses: f64::from(config.tile[1]),
                // Runs shorter than a sector are padded to it.
                scatter: scatter * (SECTOR / (side as f64 * bytes)).max(1.0),
                passes: 2.0,
                // A column more than needed, so that columns are in different banks.
                staged_bytes: Some(side * (side + 1) * bytes as u64),
                ..sweep
            }
            .demand()
        }
    }
}
