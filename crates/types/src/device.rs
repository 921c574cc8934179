//! Devices: the things kernels run on.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::reading::Reading;
use crate::units::Bytes;

/// The families of devices Kernelwise knows kernels for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// The processor of this machine.
    Cpu,
    /// A GPU through WebGPU.
    WebGpu,
    /// An NVIDIA GPU through its driver.
    Cuda,
    /// An Apple GPU.
    Metal,
    /// An AMD GPU through its driver.
    Hip,
}

impl Backend {
    /// Every backend.
    pub const ALL: [Self; 5] = [Self::Cpu, Self::WebGpu, Self::Cuda, Self::Metal, Self::Hip];

    /// The name that begins kernel ids.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::WebGpu => "webgpu",
            Self::Cuda => "cuda",
            Self::Metal => "metal",
            Self::Hip => "hip",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that names no backend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown backend `{word}`{}", crate::text::hint(.word, Backend::ALL.iter().map(|b| b.name())))]
pub struct UnknownBackend {
    word: String,
}

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(word: &str) -> Result<Self, UnknownBackend> {
        let found = Self::ALL.into_iter().find(|backend| backend.name() == word);
        found.ok_or_else(|| UnknownBackend {
            word: word.to_owned(),
        })
    }
}

/// One device and what its driver tells of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// How it is reached.
    pub backend: Backend,
    /// What its maker calls it.
    pub name: Reading<String>,
    /// Version of the driver; unknown for the processor, which has none.
    pub driver: Reading<String>,
    /// Memory a kernel may use there.
    #[serde(rename = "memory_bytes")]
    pub memory: Reading<Bytes>,
    /// Units that run work at the same time: threads of a processor, multiprocessors of a GPU.
    pub compute_units: Reading<u32>,
}

impl Device {
    /// The processor of a machine as a device.
    pub fn host(machine: &Machine) -> Self {
        let memory = machine.usable_memory();
        Self {
            backend: Backend::Cpu,
            name: machine.cpu.model.clone(),
            driver: Reading::unknown("a processor needs no driver"),
            memory: memory.map_or(
                Reading::unknown("the machine's memory is unknown"),
                Reading::Known,
            ),
            compute_units: Reading::Known(machine.usable_threads()),
        }
    }
}
