//! What can go wrong when a kernel is asked to run, and who is to blame.

use kernelwise_types::units::Bytes;
use kernelwise_types::{Refusal, ViewError};

use crate::space::SettingError;

/// Why a kernel did not run, or not to the end. Unless [`blame`](Fault::blame) says `Kernel` or `Device`, no
/// output was touched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The tensors do not fit the operation or each other.
    #[error(transparent)]
    View(#[from] ViewError),
    /// The kernel may not run on this input.
    #[error("{kernel} {refusal}")]
    Refused {
        /// The kernel.
        kernel: String,
        /// Why.
        refusal: Refusal,
    },
    /// The kernel has no such setting.
    #[error("{kernel}: {error}")]
    Setting {
        /// The kernel.
        kernel: String,
        /// What is wrong with it.
        error: SettingError,
    },
    /// The workspace is smaller than the kernel said it needs.
    #[error("{needs} of workspace are needed, {given} were given: reserve them first")]
    Workspace {
        /// What is needed.
        needs: Bytes,
        /// What was given.
        given: Bytes,
    },
    /// An index that points outside the tensor it picks from.
    #[error("index {value} at position {position} of `{operand}` is outside 0..{length}")]
    Index {
        /// The operand that holds the index.
        operand: &'static str,
        /// Where in it.
        position: usize,
        /// The index.
        value: i64,
        /// How many there are to pick from.
        length: usize,
    },
    /// No kernel of that name is offered by this backend.
    #[error("there is no kernel `{kernel}` here")]
    NoKernel {
        /// The name.
        kernel: String,
    },
    /// The kernel itself gave up.
    #[error("{kernel} failed: {message}")]
    Kernel {
        /// The kernel.
        kernel: String,
        /// What it said.
        message: String,
    },
    /// Source that did not become a program.
    #[error("{kernel} does not compile: {log}")]
    Compile {
        /// The kernel.
        kernel: String,
        /// What the compiler said.
        log: String,
    },
    /// The device has no room left.
    #[error("{device} has no room for {bytes}: free buffers, or split the problem")]
    OutOfMemory {
        /// The device.
        device: String,
        /// What was asked for.
        bytes: Bytes,
    },
    /// The device is gone: unplugged, reset, or its driver restarted. Its buffers and programs are lost.
    #[error("{device} was lost: {reason}; open it again")]
    DeviceLost {
        /// The device.
        device: String,
        /// What the driver said.
        reason: String,
    },
    /// The device answered too late.
    #[error("{device} did not finish within {limit_ns} ns")]
    Timeout {
        /// The device.
        device: String,
        /// How long was waited.
        limit_ns: u64,
    },
}

/// Who has to change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The caller: the input, the setting or the workspace. Says nothing about the kernel.
    Caller,
    /// The kernel: a reason for quarantine.
    Kernel,
    /// The device: every kernel there is affected.
    Device,
}

impl Fault {
    /// A kernel that gave up, with its reason.
    pub fn kernel(kernel: impl ToString, message: impl ToString) -> Self {
        Self::Kernel {
            kernel: kernel.to_string(),
            message: message.to_string(),
        }
    }

    /// Who has to change something.
    pub fn blame(&self) -> Blame {
        match self {
            Self::View(_)
            | Self::Refused { .. }
            | Self::Setting { .. }
            | Self::Workspace { .. }
            | Self::Index { .. }
            | Self::NoKernel { .. } => Blame::Caller,
            Self::Kernel { .. } | Self::Compile { .. } => Blame::Kernel,
            Self::OutOfMemory { .. } | Self::DeviceLost { .. } | Self::Timeout { .. } => {
                Blame::Device
            }
        }
    }
}
