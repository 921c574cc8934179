//! Judging without measuring: configurations of a recorded space, put in order by the cost model.
//!
//! A recorded space has parameters with names and no more. By those names three kinds of kernels are recognised:
//!
//! - **products** in the manner of CLBlast: `MWG`, `NWG`, `KWG` (tile of a group), `MDIMC`, `NDIMC` (threads), `VWM`, `VWN`
//!   (vectors), `SA`, `SB` (which factors are kept in shared memory);
//! - **windows**: `block_size_*`, `tile_size_*`, `filter_width` and `filter_height`, with the switches `use_shmem` and
//!   `use_padding`;
//! - anything else with **blocks**: `block_size_*`, `tile_size_*`, and `tile_stride_*`, of which only threads, registers,
//!   coalescing and parallelism are known.
//!
//! No constant that orders configurations was fitted to a recorded space: they are latencies, widths and limits. But the form of the
//! model (what overlaps, what is in flight) was revised four times while looking at ten recorded spaces, so how it does on those ten is not
//! how it does on spaces nobody looked at.

use super::demand::{Demand, Rates};
use super::device::{Arithmetic, DeviceError, Gpu};
use super::occupancy::Usage;
use super::occupancy::occupancy;
use super::shapes::{Product, Registers, SECTOR, Window};
use super::table::device;
use crate::recorded::Record;
use kernelwise_types::DType;

/// Why a recorded space cannot be put in order.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum JudgeError {
    /// The device is not in the table.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device has no published rates.
    #[error("the rates of `{0}` are not known: name a device whose are")]
    Rates(String),
    /// The parameters have no names that say what they do.
    #[error(
        "the space of `{kernel}` has none of the parameters the model knows, such as block_size_x or MWG"
    )]
    Parameters {
        /// The kernel.
        kernel: String,
    },
    /// Nothing in it was measured.
    #[error("no configuration of `{kernel}` has a time")]
    Unmeasured {
        /// The kernel.
        kernel: String,
    },
}

/// How well the first recommendation does on a recorded space.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Judgement {
    /// The device.
    pub device: String,
    /// The recommended configuration, as the space describes it.
    pub recommended: String,
    /// Fraction of the optimum of the recommended configuration: best time over its time, 0 if it failed.
    pub fraction_of_optimum: f64,
    /// The same for the median configuration; failed ones have 0.
    pub median_fraction: f64,
    /// The model's time for it, in seconds.
    pub predicted_s: f64,
    /// The recorded time, in seconds; `None` if it failed.
    pub measured_s: Option<f64>,
}

/// Predicted seconds of every entry of a record, in its order; infinite where the configuration cannot run on the device.
pub fn predict_recorded(record: &Record, gpu: &Gpu) -> Result<Vec<f64>, JudgeError> {
    gpu.check()?;
    let results = gpu.results_per_clock(DType::F32, Arithmetic::Own);
    let rates = results.and_then(|results| Rates::of(gpu, results, false));
    let rates = rates.ok_or_else(|| JudgeError::Rates(gpu.name.clone()))?;
    let reader = Reader::of(record, gpu);
    let seconds = |at: usize| {
        let (demand, groups) = reader.demand(at)?;
        match occupancy(gpu, demand.usage) {
            Ok(held) => Some(rates.seconds(&demand, groups, held.map_or(1, |held| held.groups))),
            Err(_) => Some(f64::INFINITY),
        }
    };
    let all: Vec<Option<f64>> = (0..record.entries.len()).map(seconds).collect();
    if all.iter().all(Option::is_none) {
        return Err(JudgeError::Parameters {
            kernel: record.kernel.clone(),
        });
    }
    let known = all
        .into_iter()
        .map(|seconds| seconds.unwrap_or(f64::INFINITY));
    Ok(known.collect())
}

/// Ranks a recorded space on the device it was recorded on, or on `named` if the record does not say, and looks up what became of the
/// first.
pub fn judge(record: &Record, named: Option<&str>) -> Result<Judgement, JudgeError> {
    let gpu = device(named.unwrap_or(&record.device))?;
    let seconds = predict_recorded(record, &gpu)?;
    let unmeasured = || JudgeError::Unmeasured {
        kernel: record.kernel.clone(),
    };
    let best = record.best().ok_or_else(unmeasured)?;
    let entries = record.entries.iter().zip(&seconds);
    // The first of equals, as the record lists them.
    let (first, predicted) = entries
        .min_by(|a, b| a.1.total_cmp(b.1))
        .ok_or_else(unmeasured)?;
    let fraction = |result: &Result<f64, _>| result.as_ref().map_or(0.0, |time| best / time);
    let mut fractions: Vec<f64> = record.entries.iter().map(|e| fraction(&e.result)).collect();
    fractions.sort_by(f64::total_cmp);
    Ok(Judgement {
        device: gpu.name,
        recommended: record.space.describe(&first.configuration),
        fraction_of_optimum: fraction(&first.result),
        median_fraction: fractions.get(fractions.len() / 2).copied().unwrap_or(0.0),
        predicted_s: *predicted,
        measured_s: first.result.ok(),
    })
}

/// Reads parameters by name.
struct Reader<'a> {
    record: &'a Record,
    gpu: &'a Gpu,
    names: Vec<String>,
    problem: Vec<f64>,
}

impl<'a> Reader<'a> {
    fn of(record: &'a Record, gpu: &'a Gpu) -> Self {
        let names = record.space.parameters().iter();
        let problem = match &record.problem {
            serde_json::Value::Array(sizes) => sizes.iter().filter_map(|v| v.as_f64()).collect(),
            serde_json::Value::Number(size) => size.as_f64().into_iter().collect(),
            _ => Vec::new(),
        };
        Self {
            record,
            gpu,
            names: names.map(|p| p.name.to_lowercase()).collect(),
            problem,
        }
    }

    fn get(&self, at: usize, name: &str) -> Option<u32> {
        let parameter = self.names.iter().position(|own| own == name)?;
        let entry = self.record.entries.get(at)?;
        let value = self.record.space.value(&entry.configuration, parameter)?;
        // Whatever is larger than this runs nowhere.
        value
            .number()
            .filter(|n| *n >= 0.0)
            .map(|n| n.min(4096.0) as u32)
    }

    fn size(&self, axis: usize) -> f64 {
        self.problem.get(axis).copied().unwrap_or(4096.0).max(1.0)
    }

    fn registers(&self) -> (u32, Option<u32>) {
        let unit = self.gpu.residency;
        let most = unit.map_or(255, |unit| unit.registers_per_thread);
        (most, unit.and_then(|unit| unit.registers))
    }

    /// What a group of an entry asks for, and how many groups there are.
    fn demand(&self, at: usize) -> Option<(Demand, f64)> {
        let product = self.product(at);
        product
            .or_else(|| self.window(at))
            .or_else(|| self.blocks(at))
    }

    fn product(&self, at: usize) -> Option<(Demand, f64)> {
        let get = |name: &str| self.get(at, name).filter(|&n| n > 0);
        // M is the axis along which threads are counted first.
        let tile = [get("mwg")?, get("nwg")?];
        let group = [get("mdimc")?, get("ndimc")?];
        let staged = [self.get(at, "sa") != Some(0), self.get(at, "sb") != Some(0)];
        let each = [0, 1].map(|axis| (tile[axis] / group[axis]).max(1));
        let product = Product {
            group,
            tile: each,
            depth: get("kwg").unwrap_or(16),
            unroll: get("kwi").unwrap_or(1),
            vector: [get("vwm").unwrap_or(1), get("vwn").unwrap_or(1)],
            staged,
            k: self.problem.get(2).copied().unwrap_or_else(|| self.size(0)),
            bytes: [4.0, 4.0],
            stored: 4.0,
            results: 1.0,
            per_instruction: 1.0,
            subgroup: self.gpu.subgroup,
            registers: self.registers(),
        };
        let groups =
            (self.size(0) / f64::from(tile[0])).ceil() * (self.size(1) / f64::from(tile[1])).ceil();
        Some((product.demand(), groups))
    }

    fn shape(&self, at: usize) -> Option<([u32; 2], [u32; 2], f64)> {
        let get = |name: &str| self.get(at, name).unwrap_or(1).max(1);
        let x = self.get(at, "block_size_x").filter(|&n| n > 0)?;
        let group = [x, get("block_size_y")];
        let tile = [get("tile_size_x"), get("tile_size_y")];
        let along = |axis: usize| {
            let covered = f64::from(group[axis]) * f64::from(tile[axis]);
            (self.problem.get(axis).copied().unwrap_or(1.0) / covered).ceil()
        };
        Some((group, tile, along(0) * along(1)))
    }

    fn window(&self, at: usize) -> Option<(Demand, f64)> {
        let (group, tile, groups) = self.shape(at)?;
        let has = |name: &str| self.names.iter().any(|own| own == name);
        // A kernel that pads shared memory, or may, is a window; one without sizes of its filter does not tell them.
        let known = has("filter_width") && has("filter_height");
        if !known && !has("use_padding") {
            return None;
        }
        // Where it is fixed in the kernel: the filter that the records of such kernels were made with.
        let taps = |name: &str| self.get(at, name).unwrap_or(15).max(1);
        let window = Window {
            group,
            tile,
            taps: [taps("filter_width"), taps("filter_height")],
            staged: self.get(at, "use_shmem") != Some(0),
            padded: self.get(at, "use_padding") == Some(1),
            subgroup: self.gpu.subgroup,
            registers: self.registers(),
        };
        Some((window.demand(), groups))
    }

    /// Anything with blocks: a thread does the same for each of its outputs, and neighbours along x lie next to each other.
    fn blocks(&self, at: usize) -> Option<(Demand, f64)> {
        /// Numbers read per output: unknown, and the same for all configurations.
        const READS: f64 = 64.0;
        let (group, tile, groups) = self.shape(at)?;
        let threads = group[0].saturating_mul(group[1]);
        let outputs = tile[0].saturating_mul(tile[1]);
        let subgroup = self.gpu.subgroup;
        let subgroups = f64::from(threads.div_ceil(subgroup));
        // Threads next to each other are a whole tile apart where a thread's own outputs are neighbours.
        let apart = match self.get(at, "tile_stride_x") {
            Some(0) => tile[0],
            _ => 1,
        };
        let run = f64::from(group[0].min(subgroup));
        let rows = (f64::from(subgroup) / run).max(1.0);
        let sectors = rows * (run * f64::from(apart) * 4.0 / SECTOR).ceil();
        let (most, all) = self.registers();
        let registers = Registers::of(2 * outputs, threads, most, all);
        // Rows of outputs may share what they read; how much is not known, that they do is why there are tiles.
        let reads = READS * f64::from(outputs);
        let spilled = 2.0 * registers.spilled * reads;
        let demand = Demand {
            usage: Usage {
                threads,
                registers: registers.given,
                shared_bytes: 0,
            },
            results: subgroups * f64::from(subgroup) * reads,
            results_per_instruction: f64::from(subgroup),
            specials: 0.0,
            overhead: subgroups * (20.0 + READS * 2.0),
            accesses: subgroups * (reads + spilled),
            access_clocks: subgroups * (reads + spilled) * (sectors / 4.0).max(1.0),
            barriers: 0.0,
            cache_bytes: subgroups * reads * sectors * SECTOR,
            memory_bytes: 0.0,
            parallel: f64::from(outputs).min(16.0),
            in_flight: 4.0 * f64::from(outputs).min(8.0),
        };
        Some((demand, groups))
    }
}
