//! What a machine is: the facts that do not change while a program runs.
//!
//! Filled by the probe. What it could not read is a [`Reading`] with the reason; nothing here is a
//! default that looks like a measurement.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::reading::Reading;
use crate::units::{Bytes, Hertz};

/// A machine as the probe found it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor.
    pub cpu: Cpu,
    /// Data and unified caches, nearest level first. Instruction caches are left out: no kernel is
    /// chosen by them.
    pub caches: Reading<Vec<Cache>>,
    /// Memory nodes; one entry on machines with uniform memory.
    pub numa: Reading<Vec<NumaNode>>,
    /// Installed memory, as the kernel counts it.
    pub memory: Reading<Bytes>,
    /// What the container or service manager allows this process.
    pub limits: Limits,
    /// The hypervisor, if the processor says it runs under one.
    pub hypervisor: Reading<Hypervisor>,
    /// Operating system family, as Rust names it (`linux`, `macos`, …).
    pub os: String,
    /// Kernel release, such as `6.18.2`.
    pub kernel: Reading<String>,
}

/// The processor of a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Architecture, as Rust names it (`x86_64`, `aarch64`, …).
    pub arch: String,
    /// Who made it, such as `GenuineIntel`.
    pub vendor: Reading<String>,
    /// The marketing name.
    pub model: Reading<String>,
    /// x86 family, model and stepping; on aarch64 implementer, part and revision.
    pub signature: Reading<CpuSignature>,
    /// Logical processors this process may run on: online, and inside its affinity mask.
    pub logical: u32,
    /// Physical cores among them.
    pub cores: Reading<u32>,
    /// Hardware threads per core.
    pub threads_per_core: Reading<u32>,
    /// Sockets among them.
    pub packages: Reading<u32>,
    /// Instruction sets that matter for kernels, sorted.
    pub isa: Vec<Isa>,
    /// Frequency the time-stamp counter runs at; not the clock of the cores.
    pub tsc: Reading<Hertz>,
    /// Highest core clock the machine advertises.
    pub max_frequency: Reading<Hertz>,
}

impl Cpu {
    /// Whether kernels may use this instruction set here.
    pub fn has(&self, isa: Isa) -> bool {
        self.isa.contains(&isa)
    }

    /// Width in bits of the widest vector register usable here; `None` without vector units.
    pub fn vector_bits(&self) -> Option<u32> {
        self.isa.iter().filter_map(|isa| isa.vector_bits()).max()
    }
}

/// Numbers by which vendors tell processors apart; two machines that agree in all of them run the
/// same core design.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CpuSignature {
    /// x86 display family, or the ARM implementer code.
    pub family: u32,
    /// x86 display model, or the ARM part number.
    pub model: u32,
    /// x86 stepping, or the ARM variant and revision (`variant * 16 + revision`).
    pub stepping: u32,
}

impl fmt::Display for CpuSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "family {} model {} stepping {}",
            self.family, self.model, self.stepping
        )
    }
}

/// Declares the instruction sets once: variant, name in text, vector width in bits.
macro_rules! isa {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $bits:expr;)*) => {
        /// An instruction set that some kernel asks for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Isa {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl Isa {
            /// Every instruction set known here, in the order of this list.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The short name used in kernel ids, records and reports.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Width in bits of its vector registers; `None` if it only adds instructions.
            pub const fn vector_bits(self) -> Option<u32> {
                match self { $(Self::$variant => $bits,)* }
            }
        }
    };
}

isa! {
    /// SSE2, the floor of x86-64.
    Sse2 = "sse2", Some(128);
    /// SSE4.1.
    Sse41 = "sse4.1", None;
    /// SSE4.2.
    Sse42 = "sse4.2", None;
    /// AVX: 256-bit floating point.
    Avx = "avx", Some(256);
    /// AVX2: 256-bit integers.
    Avx2 = "avx2", Some(256);
    /// Fused multiply-add on 256-bit registers.
    Fma = "fma", None;
    /// Conversions between f16 and f32.
    F16c = "f16c", None;
    /// Bit manipulation 1.
    Bmi1 = "bmi1", None;
    /// Bit manipulation 2.
    Bmi2 = "bmi2", None;
    /// Population count.
    Popcnt = "popcnt", None;
    /// AVX-512 foundation.
    Avx512f = "avx512f", Some(512);
    /// AVX-512 on 32- and 64-bit integers.
    Avx512dq = "avx512dq", None;
    /// AVX-512 on bytes and words.
    Avx512bw = "avx512bw", None;
    /// AVX-512 on shorter registers.
    Avx512vl = "avx512vl", None;
    /// Dot products of small integers, 512 bits.
    Avx512vnni = "avx512vnni", None;
    /// Dot products of bf16.
    Avx512bf16 = "avx512bf16", None;
    /// Arithmetic on f16.
    Avx512fp16 = "avx512fp16", None;
    /// Dot products of small integers, 256 bits.
    AvxVnni = "avxvnni", None;
    /// Matrix tiles.
    AmxTile = "amx-tile", None;
    /// Matrix tiles of small integers.
    AmxInt8 = "amx-int8", None;
    /// Matrix tiles of bf16.
    AmxBf16 = "amx-bf16", None;
    /// NEON, the floor of aarch64.
    Neon = "neon", Some(128);
    /// Arithmetic on f16 in NEON.
    Fp16 = "fp16", None;
    /// Dot products of small integers in NEON.
    DotProd = "dotprod", None;
    /// bf16 in NEON.
    Bf16 = "bf16", None;
    /// Matrix products of small integers in NEON.
    I8mm = "i8mm", None;
    /// Scalable vectors.
    Sve = "sve", None;
    /// Scalable vectors 2.
    Sve2 = "sve2", None;
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One data or unified cache level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// 1 is nearest to the core.
    pub level: u8,
    /// Whether it also holds instructions.
    pub unified: bool,
    /// Size of one instance.
    pub size_bytes: Bytes,
    /// Line size.
    pub line_bytes: Reading<u32>,
    /// Associativity.
    pub ways: Reading<u32>,
    /// How many logical processors share one instance.
    pub shared_by: Reading<u32>,
    /// Instances in the machine.
    pub instances: Reading<u32>,
}

/// One memory node and the processors next to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    /// Number of the node in the operating system.
    pub id: u32,
    /// Logical processors next to this memory.
    pub cpus: Vec<u32>,
    /// Memory of the node.
    pub memory: Reading<Bytes>,
    /// Distance to each node in the order of the list, 10 being the node itself.
    pub distances: Reading<Vec<u32>>,
}

/// What the control groups of this process allow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Processors' worth of time per period; may be a fraction such as 0.5. `Known(None)` means no
    /// quota is set.
    pub cpu_quota: Reading<Option<f64>>,
    /// Memory the group may use. `Known(None)` means no limit is set.
    pub memory: Reading<Option<Bytes>>,
}

/// A hypervisor as it announces itself to its guests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hypervisor {
    /// The processor says nothing of a hypervisor.
    None,
    /// A guest of this hypervisor, in its own spelling (`KVM`, `Hyper-V`, …).
    Named(String),
}

impl fmt::Display for Hypervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

impl Machine {
    /// How many threads are worth starting: the processors this process may use, cut down to a CPU
    /// quota, and never fewer than one. Half a processor is one thread.
    pub fn usable_threads(&self) -> u32 {
        let quota = self.limits.cpu_quota.known().copied().flatten();
        let allowed = quota.map_or(u32::MAX, |quota| {
            quota.ceil().clamp(1.0, f64::from(u32::MAX)) as u32
        });
        self.cpu.logical.min(allowed).max(1)
    }

    /// Memory this process may use at most: the installed amount, or the group's limit if smaller.
    pub fn usable_memory(&self) -> Option<Bytes> {
        let limit = self.limits.memory.known().copied().flatten();
        match (self.memory.known().copied(), limit) {
            (Some(installed), Some(limit)) => Some(installed.min(limit)),
            (installed, limit) => installed.or(limit),
        }
    }

    /// The cache farthest from the cores.
    pub fn last_level_cache(&self) -> Option<&Cache> {
        self.caches.known()?.iter().max_by_key(|cache| cache.level)
    }
}
