//! What every kernel says about itself, and how one on the host runs.

use kernelwise_types::units::Bytes;
use kernelwise_types::{KernelSpec, Machine, Numerics, Offer, Refusal, Workload};

use crate::call::{Call, MAX_ALIGNMENT};
use crate::fault::Fault;
use crate::prior::{Hint, Sharing};
use crate::scratch::Scratch;
use crate::space::{Setting, Space};

/// An implementation of an operation: what must be known to decide for or against it. Nothing here runs
/// it; that is for the backend it belongs to ([`HostKernel`] for the processor).
pub trait Kernel: Send + Sync {
    /// Name, version, numerics and the needs that can be written down.
    fn spec(&self) -> &KernelSpec;

    /// Conditions on the sizes that the needs cannot express, such as "a 3x3 filter". Asked after the
    /// spec said yes, so operation and element types are its own.
    fn accepts(&self, _workload: &Workload) -> Result<(), Refusal> {
        Ok(())
    }

    /// The settings it can run with on this workload and machine.
    fn space(&self, _workload: &Workload, _machine: &Machine) -> Space {
        Space::none()
    }

    /// Scratch memory it needs with this setting.
    fn workspace(&self, _workload: &Workload, _setting: &Setting) -> Bytes {
        Bytes(0)
    }

    /// What its author expects of it, for when nothing was measured yet.
    fn hint(&self) -> Hint {
        Hint::default()
    }

    /// How its work falls to the threads of a setting, for the same purpose.
    fn sharing(&self, _workload: &Workload, _setting: &Setting) -> Sharing {
        Sharing::default()
    }
}

/// A kernel that runs on the host, in the caller's memory.
pub trait HostKernel: Kernel {
    /// Computes the call.
    ///
    /// The call was checked (see [`Call`]), whether this kernel suits it may not have been: callers who
    /// skip [`run`] have asked once and keep to the answer. So a kernel stays sound whatever it
    /// is given: it answers with a [`Fault`] when operation, element type, layout or workspace are not
    /// what it needs, before it writes. It does not allocate, except on first use.
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        scratch: &mut Scratch,
    ) -> Result<(), Fault>;
}

/// What a caller allows, and the machine it is to happen on.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// Where it runs.
    pub machine: &'a Machine,
    /// How exact the result must be at the least.
    pub numerics: Numerics,
    /// Most scratch memory.
    pub workspace: Bytes,
}

impl<'a> Terms<'a> {
    /// Reordered sums are fine, scratch memory up to a quarter of what the process may use (a GiB if that is
    /// unknown).
    pub fn usual(machine: &'a Machine) -> Self {
        let memory = machine
            .usable_memory()
            .map_or(1 << 30, |memory| memory.0 / 4);
        Self {
            machine,
            numerics: Numerics::Reordered,
            workspace: Bytes(memory),
        }
    }
}

/// Whether a kernel may run on a workload under these terms, with a setting; the first reason if not.
/// `alignment` is that of the real tensors; a workload without tensors is judged as if they were aligned
/// to pages.
pub fn admit(
    kernel: &dyn Kernel,
    workload: &Workload,
    alignment: Option<usize>,
    setting: &Setting,
    terms: &Terms<'_>,
) -> Result<(), Fault> {
    let spec = kernel.spec();
    let refused = |refusal| Fault::Refused {
        kernel: spec.id.to_string(),
        refusal,
    };
    let offer = Offer {
        workload,
        isa: &terms.machine.cpu.isa,
        alignment: alignment.unwrap_or(MAX_ALIGNMENT),
        numerics: terms.numerics,
    };
    spec.admits(&offer).map_err(refused)?;
    kernel.accepts(workload).map_err(refused)?;
    kernel
        .space(workload, terms.machine)
        .check(setting)
        .map_err(|error| Fault::Setting {
            kernel: spec.id.to_string(),
            error,
        })?;
    let needs = kernel.workspace(workload, setting);
    if needs > terms.workspace {
        return Err(refused(Refusal::Workspace {
            needs,
            allowed: terms.workspace,
        }));
    }
    Ok(())
}

/// Runs a host kernel after asking everything: may it, with this setting, in this much memory. Makes room
/// in the scratch memory.
pub fn run(
    kernel: &dyn HostKernel,
    call: &mut Call<'_, '_>,
    setting: &Setting,
    scratch: &mut Scratch,
    terms: &Terms<'_>,
) -> Result<(), Fault> {
    admit(
        kernel,
        call.workload(),
        Some(call.alignment()),
        setting,
        terms,
    )?;
    scratch.reserve(kernel.workspace(call.workload(), setting))?;
    kernel.execute(call, setting, scratch)
}
