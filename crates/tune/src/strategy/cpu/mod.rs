//! What is known of the processor unmeasured: the kernels' own settings, priced by the roofline and their hints, or by a model of
//! what was measured of other workloads.
//!
//! What decides:
//! - **kernel**: those that may run here ([`admit`]); the reference only where there is no other.
//! - **threads**: not more than processors that nobody uses. Waking them has its price, so small workloads get one.
//! - **scheduling**: pieces that threads take as they get free where others use the machine, else one for each.
//! - **tiles and switches**: from the kernel's own space for these sizes and caches, its default first. No formula tells
//!   them apart, so the default stands until something else was measured to be faster.

mod ceilings;

use std::sync::Arc;

use kernelwise_backend::{Axis, Fault, Host, HostKernel, Setting, Space, Terms, admit, prior};
use kernelwise_select::forecast::Forecast;
use kernelwise_types::machine::Isa;
use kernelwise_types::units::{Bytes, Nanos};
use kernelwise_types::{Backend, Calibration, Numerics, Params, Refusal, Technique, Workload};

use super::priced::{Bound, Choice, Infeasible, Limit, Origin, Price, Priced};
use super::situation::Situation;

/// How far off the roofline and a hint may be, in ln t: a factor of e. The selector assumes the same.
const ROOFLINE_SPREAD: f64 = 1.0;
/// With nominal ceilings: a factor of five.
const NOMINAL_SPREAD: f64 = 1.6;
/// Where not even the work is known: a factor of twenty.
const UNKNOWN_SPREAD: f64 = 3.0;
/// A forecast is not believed to be better than this: machines differ from day to day.
const LEAST_SPREAD: f64 = 0.05;
/// Below this a call is mostly its own beginning and end.
const START_NS: f64 = 100.0;
/// Most settings of one kernel that are considered, and that are looked at for it.
const MOST: usize = 256;
const LOOKED_AT: usize = 1 << 16;

/// The value of a parameter `schedule` with which fast threads take more than slow ones.
const DYNAMIC: u32 = 1;

/// A kernel and the settings it has for a workload.
type Runnable = (Arc<dyn HostKernel>, Space);

/// The prices of the processor.
///
/// ```
/// use kernelwise_backend::Host;
/// use kernelwise_tune::strategy::{Choice, CpuCost, Priced};
///
/// // No kernels but the reference, and nothing calibrated.
/// let cost = CpuCost::new(Host::new(kernelwise_probe::machine(), [])?);
/// let workload = "matmul f32 64x64x64".parse()?;
/// let reference = Choice {
///     kernel: Some("cpu-matmul-f32-reference".parse()?),
///     params: Default::default(),
/// };
/// let price = cost.price(&workload, &reference)?;
/// assert!(price.time_ns.get() > 0.0 && price.power.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CpuCost {
    host: Host,
    device: String,
    /// As measured, which is what models were told; none if nothing was.
    calibration: Option<Calibration>,
    /// For every number of threads.
    ceilings: Calibration,
    forecast: Option<Arc<Forecast>>,
    /// Considered besides those that are by themselves.
    known: Vec<Choice>,
}

impl CpuCost {
    /// These kernels on their machine, with nominal ceilings.
    pub fn new(host: Host) -> Self {
        let machine = host.machine();
        let model = machine.cpu.model.known().cloned();
        Self {
            device: model.unwrap_or_else(|| machine.cpu.arch.clone()),
            ceilings: ceilings::nominal(machine),
            calibration: None,
            forecast: None,
            known: Vec::new(),
            host,
        }
    }

    /// With ceilings that were measured on this machine.
    #[must_use]
    pub fn with_calibration(mut self, calibration: Calibration) -> Self {
        self.ceilings = ceilings::completed(self.host.machine(), &calibration);
        self.calibration = Some(calibration);
        self
    }

    /// With models of what was measured of other workloads on this machine.
    #[must_use]
    pub fn with_forecast(mut self, forecast: impl Into<Arc<Forecast>>) -> Self {
        self.forecast = Some(forecast.into());
        self
    }

    /// With choices that somebody measured. Of kernels with many settings only those near the default are considered; what tuning
    /// found may lie elsewhere.
    #[must_use]
    pub fn with_known(mut self, choices: impl IntoIterator<Item = Choice>) -> Self {
        self.known.extend(choices);
        self
    }

    /// Processors that this process may use and nobody does: at least one.
    fn free(&self, situation: &Situation) -> u32 {
        let machine = self.host.machine();
        let idle = machine
            .cpu
            .logical
            .saturating_sub(situation.busy_processors);
        machine.usable_threads().min(idle).max(1)
    }

    /// Kernels that may run, with their spaces; why not, if there is none.
    fn kernels(&self, workload: &Workload, allowed: Numerics) -> Result<Vec<Runnable>, Infeasible> {
        let machine = self.host.machine();
        let terms = Terms {
            numerics: allowed,
            ..Terms::usual(machine)
        };
        let (mut kernels, mut last, mut refused) = (Vec::new(), None, Vec::new());
        for kernel in self.host.kernels_for(workload) {
            let space = kernel.space(workload, machine);
            let default = space.default_setting();
            match admit(kernel.as_ref(), workload, None, &default, &terms) {
                Err(fault) => refused.push(fault),
                Ok(()) if kernel.spec().technique == Technique::Reference => {
                    last = Some((kernel, space));
                }
                Ok(()) => kernels.push((kernel, space)),
            }
        }
        if kernels.is_empty() {
            kernels.extend(last);
        }
        if kernels.is_empty() {
            return Err(nobody(workload, &refused));
        }
        Ok(kernels)
    }

    /// Its time, how far off that may be, and on what it rests.
    fn expected(
        &self,
        kernel: &dyn HostKernel,
        workload: &Workload,
        setting: &Setting,
        threads: u32,
    ) -> (Nanos, f64, Origin) {
        let (machine, ceilings) = (self.host.machine(), &self.ceilings);
        let by = |ceilings| prior::estimate(kernel, workload, setting, machine, ceilings).time();
        let floor = prior::roofline(workload, threads, machine, ceilings);
        let floor = floor.map_or(0.0, Nanos::get);
        let spec = kernel.spec();
        let asked = self.calibration.as_ref().and_then(by).map(Nanos::get);
        let forecast = self.forecast.as_ref();
        let foretold = forecast
            .and_then(|models| models.of(workload, (&spec.id, spec.version), threads, asked));
        if let Some(foretold) = foretold
            && let Ok(time) = Nanos::new(foretold.mean.exp().max(floor))
            && time.get() > 0.0
        {
            let source = format!(
                "curves and trees of {} workloads, nearest {}, sizes {:.2}x away",
                foretold.workloads, foretold.nearest, foretold.nearest_factor
            );
            return (time, foretold.sd().max(LEAST_SPREAD), Origin::Model(source));
        }
        if let Some(time) = by(ceilings).filter(|time| time.get() > 0.0) {
            let (spread, source) = match self.calibration.is_some() {
                true => (ROOFLINE_SPREAD, "roofline and hint"),
                false => (NOMINAL_SPREAD, "nominal roofline and hint, not calibrated"),
            };
            return (time, spread, Origin::Prior(source.to_owned()));
        }
        // What a custom operation does is its author's secret; what it takes will be measured.
        let time = Nanos::from_u64(workload.elements().max(1));
        let source = "work unknown: a nanosecond for each element".to_owned();
        (time, UNKNOWN_SPREAD, Origin::Prior(source))
    }

    /// The time of the arithmetic at its peak, where that was measured. Bytes have none: what is in a cache comes faster than
    /// any rate that a calibration has for its size.
    fn floor(&self, workload: &Workload, threads: u32) -> Option<Nanos> {
        self.calibration.as_ref()?;
        let peak = self.ceilings.peak(workload.dtype(), threads)?;
        let flops = workload.cost()?.flops.0 as f64;
        let floor = Nanos::new(flops / peak.rate.value.get() * 1e9).ok();
        floor.filter(|floor| floor.get() > 0.0)
    }

    /// Whether starting, arithmetic or bytes take the time.
    fn bound(&self, workload: &Workload, threads: u32, time: Nanos) -> Bound {
        let (machine, ceilings) = (self.host.machine(), &self.ceilings);
        let wakes = ceilings.fork_joins.iter();
        let mut wakes = wakes.filter(|wake| threads > 1 && wake.threads == threads);
        let wake = wakes.next().map_or(0.0, |wake| wake.cost.value.get());
        let Some(roof) = prior::roofline(workload, threads, machine, ceilings) else {
            return Bound::Latency;
        };
        if wake > 0.5 * time.get() || roof.get() < START_NS {
            return Bound::Latency;
        }
        let peak = ceilings.peak(workload.dtype(), threads);
        let arithmetic = workload.cost().zip(peak).map_or(0.0, |(cost, peak)| {
            cost.flops.0 as f64 / peak.rate.value.get() * 1e9
        });
        if arithmetic >= roof.get() {
            Bound::Compute
        } else {
            Bound::Memory
        }
    }

    /// The usual parameters on as many threads, if these are others of the same price.
    fn usual(
        &self,
        kernel: &dyn HostKernel,
        workload: &Workload,
        setting: &Setting,
        time: Nanos,
    ) -> Option<Params> {
        let space = kernel.space(workload, self.host.machine());
        let threads = prior::threads(&space, setting);
        let usual = space.on_threads(threads).filter(|usual| usual != setting)?;
        let (usual_time, _, _) = self.expected(kernel, workload, &usual, threads);
        let params = space.params(&usual).ok()?;
        (usual_time == time).then_some(params)
    }
}

impl Priced for CpuCost {
    fn backend(&self) -> Backend {
        Backend::Cpu
    }

    fn device(&self) -> &str {
        &self.device
    }

    fn settings(
        &self,
        workload: &Workload,
        situation: &Situation,
        allowed: Numerics,
    ) -> Result<Vec<Choice>, Infeasible> {
        let free = self.free(situation);
        let loaded = situation.busy_processors > 0;
        let mut choices = Vec::new();
        for (kernel, space) in self.kernels(workload, allowed)? {
            let fits = |setting: &Setting| prior::threads(&space, setting) <= free;
            let moved = |setting: &Setting| moved(&space, setting, loaded);
            let mut settings: Vec<Setting> = space.iter().filter(fits).take(LOOKED_AT).collect();
            settings.sort_by_key(moved);
            settings.truncate(MOST);
            let id = &kernel.spec().id;
            let known = self.known.iter();
            let known = known.filter(|choice| choice.kernel.as_ref() == Some(id));
            for setting in known.filter_map(|choice| space.setting(&choice.params).ok()) {
                if fits(&setting) && !settings.contains(&setting) {
                    settings.push(setting);
                }
            }
            for setting in settings {
                choices.extend(space.params(&setting).ok().map(|params| Choice {
                    kernel: Some(kernel.spec().id.clone()),
                    params,
                }));
            }
        }
        if choices.is_empty() {
            let why = format!("no kernel for {workload} runs on {free} threads or fewer");
            return Err(Infeasible::new(Limit::Parameters, why));
        }
        Ok(choices)
    }

    fn price(&self, workload: &Workload, choice: &Choice) -> Result<Price, Infeasible> {
        let machine = self.host.machine();
        let wrong = |why: String| Infeasible::new(Limit::Parameters, why);
        let Some(id) = &choice.kernel else {
            return Err(wrong(
                "name the kernel: the processor has several".to_owned(),
            ));
        };
        let kernels = self.host.kernels_for(workload);
        let kernel = kernels.iter().find(|kernel| kernel.spec().id == *id);
        let kernel = kernel.ok_or_else(|| {
            let why = format!("there is no kernel `{id}` for {workload} here");
            Infeasible::new(Limit::Operation, why)
        })?;
        let space = kernel.space(workload, machine);
        let setting = space
            .setting(&choice.params)
            .map_err(|e| wrong(e.to_string()))?;
        let written = space.params(&setting).map_err(|e| wrong(e.to_string()))?;
        if written != choice.params {
            return Err(wrong(format!("name all parameters of `{id}`: {written}")));
        }
        let terms = Terms {
            numerics: Numerics::ReducedPrecision,
            ..Terms::usual(machine)
        };
        admit(kernel.as_ref(), workload, None, &setting, &terms)
            .map_err(|fault| nobody(workload, &[fault]))?;
        let threads = prior::threads(&space, &setting);
        let (time_ns, spread_ln, origin) =
            self.expected(kernel.as_ref(), workload, &setting, threads);
        let operands = workload.inputs().iter().chain(workload.outputs());
        let bytes: u64 = operands.map(|operand| operand.bytes()).sum();
        let scratch = kernel.workspace(workload, &setting);
        let isa = &kernel.spec().needs.isa;
        let widest = isa.iter().filter_map(|isa| Some((isa.vector_bits()?, isa)));
        let words = widest
            .max()
            .map(|(bits, isa): (u32, &Isa)| format!("{bits}-bit vectors ({isa})"));
        Ok(Price {
            time_ns,
            floor_ns: self.floor(workload, threads),
            spread_ln,
            compile_ns: Nanos::from_u64(0),
            memory: Bytes(bytes.saturating_add(scratch.0)),
            power: None,
            bound: self.bound(workload, threads, time_ns),
            occupancy: None,
            units: threads,
            usual: self.usual(kernel.as_ref(), workload, &setting, time_ns),
            origin,
            words: words.into_iter().collect(),
        })
    }
}

/// How many parameters, threads not counted, are not what they would be if nothing was measured. Settings with the fewest come first, and are
/// never the ones left out.
///
/// That is the kernel's default, but for `schedule` where others use the machine: there threads are not equally fast, and those that
/// are should take more.
fn moved(space: &Space, setting: &Setting, loaded: bool) -> usize {
    let shared = loaded && prior::threads(space, setting) > 1;
    let usual = |name: &str, axis: &Axis| match name {
        "schedule" if shared && axis.values().contains(&DYNAMIC) => DYNAMIC,
        _ => axis.default_value(),
    };
    let axes = space.axes().zip(setting.as_slice());
    let axes = axes.filter(|((name, _), _)| *name != "threads");
    axes.filter(|((name, axis), value)| **value != usual(name, axis))
        .count()
}

/// Nobody may: by the limit that the caller could lift, if there is one.
fn nobody(workload: &Workload, refused: &[Fault]) -> Infeasible {
    let limit = |fault: &Fault| match fault {
        Fault::Refused { refusal, .. } => match refusal {
            Refusal::Numerics { .. } => Limit::Numerics,
            Refusal::Workspace { .. } => Limit::Memory,
            _ => Limit::Operation,
        },
        _ => Limit::Operation,
    };
    let limits = refused.iter().map(limit);
    let limit = limits.min().unwrap_or(Limit::Operation);
    let words: Vec<String> = refused.iter().map(Fault::to_string).collect();
    let why = match words.is_empty() {
        true => format!("there is no kernel for {workload} here"),
        false => format!(
            "no kernel here may compute {workload}: {}",
            words.join("; ")
        ),
    };
    Infeasible { limit, why }
}

impl std::fmt::Debug for CpuCost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuCost")
            .field("device", &self.device)
            .field("calibrated", &self.calibration.is_some())
            .field("forecast", &self.forecast.is_some())
            .finish_non_exhaustive()
    }
}
