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
    #[serde(rename = "memory_bytes")]
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
    /// Logical processors that are switched on; what this process may use of them is in [`Limits`].
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
    #[serde(rename = "tsc_hz")]
    pub tsc: Reading<Hertz>,
    /// Highest core clock the machine advertises.
    #[serde(rename = "max_frequency_hz")]
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
    #[serde(rename = "memory_bytes")]
    pub memory: Reading<Bytes>,
    /// Distance to each node in the order of the list, 10 being the node itself.
    pub distances: Reading<Vec<u32>>,
}

/// What this process may use of the machine: its affinity mask and its control groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Logical processors in its affinity mask.
    #[serde(rename = "affinity_cpus")]
    pub affinity: Reading<u32>,
    /// Processors' worth of time per period; may be a fraction such as 0.5. `Known(None)` means no
    /// quota is set.
    #[serde(rename = "cpu_quota_cpus", with = "limit")]
    pub cpu_quota: Reading<Option<f64>>,
    /// Memory the group may use. `Known(None)` means no limit is set.
    #[serde(rename = "memory_bytes", with = "limit")]
    pub memory: Reading<Option<Bytes>>,
}

/// The JSON form of a limit: `{"value": 0.5}`, `{"value": "unlimited"}`, or null with a reason. Without
/// the word, "no limit" and "not known" would both be null.
mod limit {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::reading::Reading;

    #[derive(Clone, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Limit<T> {
        At(T),
        Word(Unlimited),
    }

    #[derive(Clone, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Unlimited {
        Unlimited,
    }

    pub(super) fn serialize<T: Clone + Serialize, S: Serializer>(
        reading: &Reading<Option<T>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let word = Limit::Word(Unlimited::Unlimited);
        let limit = reading.clone().map(|limit| limit.map_or(word, Limit::At));
        limit.serialize(serializer)
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Reading<Option<T>>, D::Error> {
        let limit = Reading::<Limit<T>>::deserialize(deserializer)?;
        Ok(limit.map(|limit| match limit {
            Limit::At(limit) => Some(limit),
            Limit::Word(Unlimited::Unlimited) => None,
        }))
    }
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
    /// How many threads are worth starting: the processors inside the affinity mask, cut down to a
    /// CPU quota, and never fewer than one. Half a processor is one thread.
    pub fn usable_threads(&self) -> u32 {
        let mask = self.limits.affinity.known().copied().unwrap_or(u32::MAX);
        let quota = self.limits.cpu_quota.known().copied().flatten();
        let allowed = quota.map_or(u32::MAX, |quota| {
            quota.ceil().clamp(1.0, f64::from(u32::MAX)) as u32
        });
        self.cpu.logical.min(mask).min(allowed).max(1)
    }

    /// The same machine as if it gave this process exactly so many threads, at least one: what would be chosen there?
    #[must_use]
    pub fn with_threads(mut self, threads: u32) -> Self {
        self.cpu.logical = threads.max(1);
        self.limits.affinity = Reading::Known(self.cpu.logical);
        self.limits.cpu_quota = Reading::Known(None);
        self
    }

    /// Memory this process may use at most: the installed amount, or the group's limit if smaller.
    pub fn usable_memory(&self) -> Option<Bytes> {
        let limit = self.limits.memory.known().copied().flatten();
        match (self.memory.known().copied(), limit) {
            (Some(installed), Some(limit)) => Some(installed.min(limit)),
            (installed, limit) => installed.or(limit),
        }
    }

    /// All caches of the level farthest from the cores; processors with cores of several kinds may
    /// have several.
    pub fn last_level_caches(&self) -> impl Iterator<Item = &Cache> {
        let caches = self.caches.known().map(Vec::as_slice).unwrap_or_default();
        let level = caches.iter().map(|cache| cache.level).max();
        caches
            .iter()
            .filter(move |cache| Some(cache.level) == level)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A two-core virtual machine with AVX2.
    pub(crate) fn machine() -> Machine {
        let cache = |level, kib: u64, shared| Cache {
            level,
            unified: level > 1,
            size_bytes: Bytes(kib * 1024),
            line_bytes: Reading::Known(64),
            ways: Reading::Known(8),
            shared_by: Reading::Known(shared),
            instances: Reading::Known(2 / shared),
        };
        Machine {
            cpu: Cpu {
                arch: "x86_64".into(),
                vendor: Reading::Known("GenuineIntel".into()),
                model: Reading::Known("Example 3000".into()),
                signature: Reading::Known(CpuSignature {
                    family: 6,
                    model: 207,
                    stepping: 2,
                }),
                logical: 2,
                cores: Reading::Known(2),
                threads_per_core: Reading::Known(1),
                packages: Reading::Known(1),
                isa: vec![Isa::Sse2, Isa::Avx, Isa::Avx2, Isa::Fma],
                tsc: Reading::unknown("test"),
                max_frequency: Reading::unknown("test"),
            },
            caches: Reading::Known(vec![cache(1, 48, 1), cache(2, 2048, 1), cache(3, 32768, 2)]),
            numa: Reading::unknown("test"),
            memory: Reading::Known(Bytes(24 << 30)),
            limits: Limits {
                affinity: Reading::unknown("test"),
                cpu_quota: Reading::Known(None),
                memory: Reading::Known(None),
            },
            hypervisor: Reading::Known(Hypervisor::Named("KVM".into())),
            os: "linux".into(),
            kernel: Reading::Known("6.18.0".into()),
        }
    }

    #[test]
    fn quotas_cut_threads_but_never_to_none() {
        let mut m = machine();
        assert_eq!(m.usable_threads(), 2);
        for (quota, threads) in [(0.5, 1), (1.0, 1), (1.2, 2), (64.0, 2)] {
            m.limits.cpu_quota = Reading::Known(Some(quota));
            assert_eq!(m.usable_threads(), threads, "quota {quota}");
        }
        m.limits.affinity = Reading::Known(1);
        assert_eq!(m.usable_threads(), 1, "the mask counts as well");
        assert_eq!(m.clone().with_threads(7).usable_threads(), 7);
        assert_eq!(m.clone().with_threads(0).usable_threads(), 1);
        m.cpu.logical = 0;
        assert_eq!(m.usable_threads(), 1);
    }

    #[test]
    fn no_limit_and_unknown_limit_differ_in_json() {
        let readings = [
            (Reading::Known(None), r#"{"value":"unlimited"}"#),
            (Reading::Known(Some(0.5)), r#"{"value":0.5}"#),
            (
                Reading::unknown("hidden"),
                r#"{"value":null,"reason":"hidden"}"#,
            ),
        ];
        for (cpu_quota, json) in readings {
            let limits = Limits {
                affinity: Reading::Known(2),
                cpu_quota,
                memory: Reading::Known(None),
            };
            let text = serde_json::to_string(&limits).unwrap();
            let expected = format!(
                r#"{{"affinity_cpus":{{"value":2}},"cpu_quota_cpus":{json},"memory_bytes":{{"value":"unlimited"}}}}"#
            );
            assert_eq!(text, expected);
            assert_eq!(serde_json::from_str::<Limits>(&text).unwrap(), limits);
        }
    }

    #[test]
    fn the_smaller_of_memory_and_limit_counts() {
        let mut m = machine();
        assert_eq!(m.usable_memory(), Some(Bytes(24 << 30)));
        m.limits.memory = Reading::Known(Some(Bytes(1 << 30)));
        assert_eq!(m.usable_memory(), Some(Bytes(1 << 30)));
        m.memory = Reading::unknown("hidden");
        assert_eq!(m.usable_memory(), Some(Bytes(1 << 30)));
        m.limits.memory = Reading::unknown("hidden");
        assert_eq!(m.usable_memory(), None);
    }

    #[test]
    fn the_widest_registers_and_the_farthest_cache_are_found() {
        let mut m = machine();
        assert_eq!(m.cpu.vector_bits(), Some(256));
        assert!(m.cpu.has(Isa::Fma) && !m.cpu.has(Isa::Avx512f));
        m.cpu.isa.push(Isa::Avx512f);
        assert_eq!(m.cpu.vector_bits(), Some(512));
        m.cpu.isa.clear();
        assert_eq!(m.cpu.vector_bits(), None);
        assert_eq!(
            m.last_level_caches().map(|c| c.level).collect::<Vec<_>>(),
            [3]
        );
    }

    #[test]
    fn instruction_sets_have_the_names_they_are_known_by() {
        for isa in Isa::ALL {
            assert_eq!(serde_json::to_value(isa).unwrap(), isa.name());
        }
    }
}
