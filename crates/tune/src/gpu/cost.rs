//! How long a launch should take: a roofline, made lower by what the launch leaves unused.
//!
//! The [unit model](super::demand) gives the time of all groups. It is never less than the device's peak allows: arithmetic over the peak rate of
//! that arithmetic, bytes over bandwidth. Bytes come at the rate of the last cache if all operands fit there and the maker published it,
//! of memory otherwise. Then comes what starting takes.
//!
//! Where one of the rates is unknown, there is no prediction. Power is never predicted: nobody measured it.

use kernelwise_types::units::Nanos;
use kernelwise_types::{Interval, Workload};
use serde::{Deserialize, Serialize};

use super::demand::Rates;
use super::device::{Api, Arithmetic, Gpu};
use super::launch::{Launch, demand};
use super::pieces::Extent;
use super::problem::Problem;
use crate::strategy::Bound;

/// How far off a prediction may be, as a standard deviation of ln t. Set from recorded convolutions and products on NVIDIA devices, where
/// nine in ten measured times lay between 0.7 and 5 times the predicted ones: a factor of 5 is 1.6 deviations. Kernels that
/// the model knows only by their blocks (dedispersion), and AMD devices, were further off.
pub(super) const SPREAD_LN: f64 = 1.0;
/// Deviations to each side of a 90 % interval.
const DEVIATIONS: f64 = 1.645;

/// What one call should take.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Time of a warm call: the pipeline is compiled, operands are on the device.
    pub warm_ns: Nanos,
    /// Time of the first call, compiling included.
    pub cold_ns: Nanos,
    /// Where nine in ten measured times should lie; never below what the peak allows.
    pub interval_ns: Interval,
    /// The least time the device's peak allows.
    pub floor_ns: Nanos,
    /// What the time is bound by.
    pub bound: Bound,
}

/// Seconds that starting a kernel takes: priors. CUDA launches take a few microseconds; the others go through more layers.
fn launch_seconds(api: Api) -> f64 {
    match api {
        Api::Cuda | Api::Hip => 5e-6,
        Api::Metal => 10e-6,
        Api::WebGpu => 20e-6,
    }
}

/// Seconds that compiling a kernel takes: priors. Medians of recorded CUDA, HIP and OpenCL kernels lie between 0.08 and 2.5 s, 0.45 being their
/// geometric middle; pipelines of the others are compiled from an intermediate form, which is guessed to take a fifth.
pub(super) fn compile_seconds(api: Api) -> f64 {
    match api {
        Api::Cuda | Api::Hip => 0.45,
        Api::Metal | Api::WebGpu => 0.09,
    }
}

/// Groups a unit holds: as computed, or, where the maker says nothing, what every unit must be able to hold because the largest
/// group it is allowed would not run otherwise.
fn held(gpu: &Gpu, launch: &Launch) -> u32 {
    let least = || {
        let threads = gpu.limits.threads_per_group / launch.config.threads().max(1);
        let shared = gpu.limits.shared_per_group.checked_div(launch.shared_bytes);
        let shared = shared.map_or(u32::MAX, |n| u32::try_from(n).unwrap_or(u32::MAX));
        threads.min(shared).max(1)
    };
    launch.occupancy.map_or_else(least, |held| held.groups)
}

/// A number that puts launches of one workload in order: seconds where rates are known, without unit where they are not.
pub(super) fn score(gpu: &Gpu, workload: &Workload, launch: &Launch) -> f64 {
    let results = gpu.results_per_clock(workload.dtype(), launch.config.arithmetic);
    let rates = results.and_then(|results| Rates::of(gpu, results, near(gpu, workload)));
    let rates = rates.unwrap_or_else(|| Rates::nominal(gpu.subgroup));
    structure(gpu, workload, launch, &rates)
}

/// Whether all operands fit the last cache: warm calls find them there.
fn near(gpu: &Gpu, workload: &Workload) -> bool {
    let bytes = workload.cost().map_or(u64::MAX, |cost| cost.bytes().0);
    gpu.l2_bytes.is_some_and(|l2| bytes <= l2)
}

/// Seconds of all groups of all launches, starting not included.
fn structure(gpu: &Gpu, workload: &Workload, launch: &Launch, rates: &Rates) -> f64 {
    let demand = demand(gpu, workload, &launch.problem, &launch.config);
    let size = Extent::of(workload, &launch.problem).size;
    let seconds = rates.seconds(&demand, launch.all_groups(size), held(gpu, launch));
    seconds + rates.moving(rest(workload, &launch.problem))
}

/// Bytes that a sweep moves besides the one operand its groups are counted by. Products count all of theirs.
fn rest(workload: &Workload, problem: &Problem) -> f64 {
    let all = workload.cost().map_or(0.0, |cost| cost.bytes().0 as f64);
    let own = workload.dtype().size() as f64;
    let counted = match *problem {
        Problem::Product { .. } => all,
        Problem::Stream { elements } => {
            let out = workload.outputs().first();
            out.map_or(own, |out| out.dtype.size() as f64) * elements as f64
        }
        Problem::Rows { rows, length, .. } => own * (rows * length) as f64,
        Problem::Exchange { .. } => all / 2.0,
    };
    (all - counted).max(0.0)
}

/// What one call should take; `None` where a rate of the device or the cost of the operation is unknown.
pub fn predict(gpu: &Gpu, workload: &Workload, launch: &Launch) -> Option<Prediction> {
    let cost = workload.cost()?;
    let arithmetic = launch.config.arithmetic;
    let results = gpu.results_per_clock(workload.dtype(), arithmetic)?;
    let near = near(gpu, workload);
    let rates = Rates::of(gpu, results, near)?;
    let peak = gpu.peak_flops(workload.dtype(), arithmetic)?;
    let bytes = cost.bytes().0 as f64;
    let memory = gpu.bandwidth()?;
    let bandwidth = gpu.cache_bandwidth().filter(|_| near).unwrap_or(memory);
    let (compute, moving) = (cost.flops.0 as f64 / peak, bytes / bandwidth);
    let floor = compute.max(moving);
    let structure = structure(gpu, workload, launch, &rates);
    let splits = if launch.config.split > 1 { 2.0 } else { 1.0 };
    let starting = launch_seconds(gpu.api) * launch.launches() as f64 * splits;
    let warm = structure.max(floor) + starting;
    let bound = match () {
        () if starting * 2.0 >= warm => Bound::Latency,
        () if compute >= moving => Bound::Compute,
        () => Bound::Memory,
    };
    let nanos = |seconds: f64| Nanos::new(seconds * 1e9).ok();
    let factor = (DEVIATIONS * SPREAD_LN).exp();
    let low = nanos((warm / factor).max(floor))?;
    Some(Prediction {
        warm_ns: nanos(warm)?,
        cold_ns: nanos(warm + compile_seconds(gpu.api))?,
        interval_ns: Interval::new(low, nanos(warm * factor)?).ok()?,
        floor_ns: nanos(floor)?,
        bound,
    })
}

/// What the arithmetic is called in words.
pub(super) fn words(arithmetic: Arithmetic) -> &'static str {
    match arithmetic {
        Arithmetic::Own => "in the element type",
        Arithmetic::Half => "in half precision",
        Arithmetic::Tensor => "on matrix units",
    }
}
