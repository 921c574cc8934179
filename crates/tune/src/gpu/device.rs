//! What is known of a GPU: limits that a launch must keep, and rates that a prediction rests on.
//!
//! Limits are always known, because a launch cannot be made without them. Rates may not be: a maker does not publish a
//! clock, an adapter behind WebGPU does not tell how fast it is. What is not known is `None`, and a prediction that would need
//! it is not made.

use kernelwise_types::{Backend, DType, DTypeClass};
use serde::{Deserialize, Serialize};

use super::capability::Capability;

/// How a GPU is programmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// NVIDIA's.
    Cuda,
    /// Apple's.
    Metal,
    /// That of browsers, also native.
    WebGpu,
    /// AMD's.
    Hip,
}

impl Api {
    /// The backend whose limits and element types a description of such a device has.
    pub const fn backend(self) -> Backend {
        match self {
            Self::Cuda => Backend::Cuda,
            Self::Metal => Backend::Metal,
            Self::WebGpu => Backend::WebGpu,
            Self::Hip => Backend::Hip,
        }
    }
}

/// What a launch must keep. "Group" is what CUDA calls a block and Metal a threadgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Threads of a group.
    pub threads_per_group: u32,
    /// Threads of a group along each axis.
    pub group: [u32; 3],
    /// Groups of a launch along each axis.
    pub grid: [u64; 3],
    /// Memory that the threads of a group share, in bytes.
    pub shared_per_group: u64,
    /// The largest buffer a kernel can be given, in bytes; `None` if memory is the only bound.
    pub binding_bytes: Option<u64>,
}

/// What one unit (multiprocessor, core, compute unit) can hold at a time, and in which portions it hands that out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Residency {
    /// Threads.
    pub threads: u32,
    /// Groups.
    pub groups: u32,
    /// 32-bit registers; `None` if not published.
    pub registers: Option<u32>,
    /// Registers that one thread can address.
    pub registers_per_thread: u32,
    /// Registers are handed to subgroups in multiples of this.
    pub register_unit: u32,
    /// Parts the registers are divided among; a subgroup lives in one of them.
    pub partitions: u32,
    /// Shared memory in bytes; `None` if not published.
    pub shared: Option<u64>,
    /// Shared memory is handed to groups in multiples of this.
    pub shared_unit: u64,
    /// Shared memory the system keeps per group.
    pub shared_reserve: u64,
}

/// Results per clock of one unit, by kind of number. A multiply-add is one result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lanes {
    /// Single precision.
    pub f32: u32,
    /// Half precision; `None` without instructions for it.
    pub f16: Option<u32>,
    /// Double precision; `None` without instructions for it.
    pub f64: Option<u32>,
    /// Integers of 32 bits.
    pub int: u32,
    /// Special functions: exp, log, sin, square root.
    pub special: u32,
}

/// Matrix units: multiply-adds per clock of one unit, sums kept in single precision, no sparsity.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tensor {
    /// Half precision inputs.
    pub f16: u32,
    /// bfloat16 inputs; `None` without.
    pub bf16: Option<u32>,
    /// Single precision inputs rounded to TF32; `None` without.
    pub tf32: Option<u32>,
    /// Their clock where it differs from that of the rest, in MHz.
    pub clock_mhz: Option<f64>,
}

/// A GPU. Read one [by name](super::device), or describe your own and [check](Self::check) it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// A short name, such as `a100`.
    pub name: String,
    /// Where the figures come from.
    pub source: String,
    /// How it is programmed.
    pub api: Api,
    /// NVIDIA's compute capability.
    pub capability: Option<Capability>,
    /// Multiprocessors, cores or compute units.
    pub units: Option<u32>,
    /// Boost clock in MHz.
    pub clock_mhz: Option<f64>,
    /// Single precision rate in TFLOP/s as published, for makers who publish no clock.
    pub published_tflops: Option<f64>,
    /// Threads that run in lockstep.
    pub subgroup: u32,
    /// Arithmetic of one unit; `None` if unknown.
    pub lanes: Option<Lanes>,
    /// Matrix units, if any.
    pub tensor: Option<Tensor>,
    /// Memory bandwidth in GB/s.
    pub bandwidth_gbs: Option<f64>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// The last cache in bytes.
    pub l2_bytes: Option<u64>,
    /// What that cache delivers per clock, in bytes, for all units.
    pub l2_bytes_per_clock: Option<u32>,
    /// Whether kernels may use half precision.
    pub half: bool,
    /// What a launch must keep.
    pub limits: Limits,
    /// What a unit can hold; `None` if not published.
    pub residency: Option<Residency>,
}

/// Why a description is none.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// A name that is not in the table.
    #[error("unknown GPU `{name}`{}: the table has {}", super::table::hint(.name), super::table::names().join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
    /// Not JSON of this form.
    #[error("not a description of a GPU: {0}")]
    Form(String),
    /// A figure that cannot be.
    #[error(
        "GPU `{device}`: `{field}` is {value}, it must be finite and above zero, or be left out if unknown"
    )]
    Figure {
        /// The device.
        device: String,
        /// The field.
        field: &'static str,
        /// What it says.
        value: f64,
    },
    /// Two figures that contradict each other.
    #[error("GPU `{device}`: {contradiction}")]
    Contradiction {
        /// The device.
        device: String,
        /// Which, in words.
        contradiction: String,
    },
}

/// How numbers are multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arithmetic {
    /// In the element type.
    Own,
    /// In half precision though the elements are wider: only with permission.
    Half,
    /// By matrix units, with what they round to.
    Tensor,
}

impl Gpu {
    /// Refuses descriptions that no device can have. Everything here that takes a description asks this first.
    pub fn check(&self) -> Result<(), DeviceError> {
        for (field, value) in self.figures() {
            if !(value.is_finite() && value > 0.0) {
                return Err(DeviceError::Figure {
                    device: self.name.clone(),
                    field,
                    value,
                });
            }
        }
        let contradiction = |text: String| {
            Err(DeviceError::Contradiction {
                device: self.name.clone(),
                contradiction: text,
            })
        };
        let limits = &self.limits;
        if u64::from(self.subgroup) > u64::from(limits.threads_per_group) {
            return contradiction(format!(
                "a subgroup of {} is more than a group of {}",
                self.subgroup, limits.threads_per_group
            ));
        }
        if let Some(residency) = &self.residency {
            if residency.threads < limits.threads_per_group {
                return contradiction(format!(
                    "a unit holds {} threads, a group of {} would never run",
                    residency.threads, limits.threads_per_group
                ));
            }
            if residency
                .shared
                .is_some_and(|s| s < limits.shared_per_group)
            {
                return contradiction(format!(
                    "`shared_per_group` is {}, more than `shared` of a unit",
                    limits.shared_per_group
                ));
            }
        }
        Ok(())
    }

    /// Every figure that has to be above zero.
    fn figures(&self) -> Vec<(&'static str, f64)> {
        let limits = &self.limits;
        let mut all = vec![
            ("subgroup", f64::from(self.subgroup)),
            (
                "limits.threads_per_group",
                f64::from(limits.threads_per_group),
            ),
            ("limits.shared_per_group", limits.shared_per_group as f64),
        ];
        all.extend(limits.group.map(|n| ("limits.group", f64::from(n))));
        all.extend(limits.grid.map(|n| ("limits.grid", n as f64)));
        let known = [
            ("units", self.units.map(f64::from)),
            ("clock_mhz", self.clock_mhz),
            ("published_tflops", self.published_tflops),
            ("bandwidth_gbs", self.bandwidth_gbs),
            ("memory_bytes", self.memory_bytes.map(|n| n as f64)),
            ("l2_bytes", self.l2_bytes.map(|n| n as f64)),
            ("l2_bytes_per_clock", self.l2_bytes_per_clock.map(f64::from)),
            (
                "limits.binding_bytes",
                limits.binding_bytes.map(|n| n as f64),
            ),
        ];
        all.extend(known.into_iter().filter_map(|(n, v)| Some((n, v?))));
        if let Some(lanes) = &self.lanes {
            all.push(("lanes.f32", f64::from(lanes.f32)));
            all.push(("lanes.int", f64::from(lanes.int)));
            all.push(("lanes.special", f64::from(lanes.special)));
            all.extend(lanes.f16.map(|n| ("lanes.f16", f64::from(n))));
            all.extend(lanes.f64.map(|n| ("lanes.f64", f64::from(n))));
        }
        if let Some(tensor) = &self.tensor {
            all.push(("tensor.f16", f64::from(tensor.f16)));
            all.extend(tensor.bf16.map(|n| ("tensor.bf16", f64::from(n))));
            all.extend(tensor.tf32.map(|n| ("tensor.tf32", f64::from(n))));
            all.extend(tensor.clock_mhz.map(|n| ("tensor.clock_mhz", n)));
        }
        if let Some(held) = &self.residency {
            all.push(("residency.threads", f64::from(held.threads)));
            all.push(("residency.groups", f64::from(held.groups)));
            all.push((
                "residency.registers_per_thread",
                f64::from(held.registers_per_thread),
            ));
            all.push(("residency.register_unit", f64::from(held.register_unit)));
            all.push(("residency.partitions", f64::from(held.partitions)));
            all.push(("residency.shared_unit", held.shared_unit as f64));
            all.extend(
                held.registers
                    .map(|n| ("residency.registers", f64::from(n))),
            );
            all.extend(held.shared.map(|n| ("residency.shared", n as f64)));
        }
        all
    }

    /// The clock in Hz: as given, or what the published rate implies.
    pub fn clock_hz(&self) -> Option<f64> {
        let implied = || {
            let lanes = f64::from(self.units?) * f64::from(self.lanes?.f32);
            Some(self.published_tflops? * 1e12 / (2.0 * lanes))
        };
        self.clock_mhz.map(|mhz| mhz * 1e6).or_else(implied)
    }

    /// Results per clock of one unit for elements of this type; `None` if the device has no such arithmetic or does not say.
    pub fn results_per_clock(&self, dtype: DType, arithmetic: Arithmetic) -> Option<f64> {
        let lanes = self.lanes?;
        let half = || lanes.f16.filter(|_| self.half).map(f64::from);
        match arithmetic {
            Arithmetic::Tensor => {
                let tensor = self.tensor?;
                let per_clock = match dtype {
                    DType::F16 => Some(tensor.f16),
                    DType::Bf16 => tensor.bf16,
                    DType::F32 => tensor.tf32,
                    _ => None,
                };
                // Counted against the clock of the rest.
                let ratio = match (tensor.clock_mhz, self.clock_mhz) {
                    (Some(own), Some(rest)) => own / rest,
                    _ => 1.0,
                };
                per_clock.map(|n| f64::from(n) * ratio)
            }
            Arithmetic::Half => half(),
            Arithmetic::Own => match dtype {
                DType::F32 | DType::Complex64 => Some(f64::from(lanes.f32)),
                // Where there are no instructions for halves, they are widened.
                DType::F16 | DType::Bf16 => half()
                    .filter(|&half| half >= f64::from(lanes.f32))
                    .or(Some(f64::from(lanes.f32))),
                DType::F64 | DType::Complex128 => lanes.f64.map(f64::from),
                // A product of 64-bit integers is four of 32 bits.
                DType::I64 | DType::U64 => Some(f64::from(lanes.int) / 4.0),
                _ => Some(f64::from(lanes.int)),
            },
        }
    }

    /// The most arithmetic operations per second, two per multiply-add.
    ///
    /// ```
    /// use kernelwise_tune::gpu::{Arithmetic, device};
    /// use kernelwise_types::DType;
    ///
    /// let peak = device("a100")?.peak_flops(DType::F32, Arithmetic::Own);
    /// assert_eq!(peak.map(|flops| (flops / 1e11).round()), Some(195.0)); // 19.5 TFLOP/s
    /// assert_eq!(device("webgpu-default")?.peak_flops(DType::F32, Arithmetic::Own), None);
    /// # Ok::<(), kernelwise_tune::gpu::DeviceError>(())
    /// ```
    pub fn peak_flops(&self, dtype: DType, arithmetic: Arithmetic) -> Option<f64> {
        let per_clock = self.results_per_clock(dtype, arithmetic)?;
        Some(2.0 * per_clock * f64::from(self.units?) * self.clock_hz()?)
    }

    /// What a prediction would need and the description does not say, in words; empty if there can be one.
    pub fn unknown_rates(&self) -> Vec<&'static str> {
        let needed = [
            (self.units.is_some(), "how many units it has"),
            (self.lanes.is_some(), "what a unit computes per clock"),
            (
                self.clock_mhz.is_some() || self.published_tflops.is_some(),
                "its clock or how fast it computes",
            ),
            (self.bandwidth_gbs.is_some(), "its memory bandwidth"),
        ];
        let unknown = needed.into_iter().filter(|(known, _)| !known);
        unknown.map(|(_, what)| what).collect()
    }

    /// Reads a description as JSON, in which only `name`, `source`, `api`, `subgroup`, `half` and `limits` are required; what is left out is unknown.
    /// What is wrong is said with its field.
    pub fn read(text: &str) -> Result<Self, DeviceError> {
        let gpu: Self =
            serde_json::from_str(text).map_err(|problem| DeviceError::Form(problem.to_string()))?;
        gpu.check()?;
        Ok(gpu)
    }

    /// Bytes per second from memory.
    pub fn bandwidth(&self) -> Option<f64> {
        self.bandwidth_gbs.map(|gbs| gbs * 1e9)
    }

    /// Bytes per second from the last cache; `None` if not published.
    pub fn cache_bandwidth(&self) -> Option<f64> {
        Some(f64::from(self.l2_bytes_per_clock?) * self.clock_hz()?)
    }

    /// Whether kernels there can hold elements of this type.
    pub fn holds(&self, dtype: DType) -> bool {
        match self.api {
            Api::Cuda | Api::Hip => true,
            // The Metal Shading Language has no double.
            Api::Metal => !matches!(dtype, DType::F64 | DType::Complex128),
            // WGSL has f32, i32, u32 and, with a feature, f16; smaller integers and truth values are packed into words.
            Api::WebGpu => match dtype {
                DType::F16 => self.half,
                DType::F32 | DType::Complex64 => true,
                _ => {
                    let whole = [DTypeClass::Signed, DTypeClass::Unsigned, DTypeClass::Bool];
                    whole.contains(&dtype.class()) && dtype.size() <= 4
                }
            },
        }
    }
}
