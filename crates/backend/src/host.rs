//! The processor as a backend: a list of kernels that run in the caller's memory, and the reference kernel
//! behind them.

use std::sync::Arc;

use kernelwise_reference::ReferenceError;
use kernelwise_types::{
    Backend as Family, Device, KernelId, KernelSpec, Machine, Needs, Numerics, Technique, Workload,
};

use crate::backend::{Backend, Timing};
use crate::call::Call;
use crate::fault::Fault;
use crate::kernel::{self, HostKernel, Kernel, Terms};
use crate::prior::Hint;
use crate::scratch::Scratch;
use crate::space::Setting;

/// The reference kernel for one operation and its element types: any sizes, any strides, no parameters.
#[derive(Debug)]
pub struct ReferenceKernel {
    spec: KernelSpec,
}

impl ReferenceKernel {
    /// The reference for everything like this workload; `None` for a custom operation, whose author has
    /// to bring one.
    pub fn for_workload(workload: &Workload) -> Option<Self> {
        if matches!(
            workload.operation(),
            kernelwise_types::op::Operation::Custom(_)
        ) {
            return None;
        }
        let dtypes: Vec<_> = workload.dtypes().iter().map(|d| d.name()).collect();
        let id = format!(
            "{}-{}-{}-reference",
            Family::Cpu,
            workload.operation().name(),
            dtypes.join("_")
        );
        Some(Self {
            spec: KernelSpec {
                id: id.parse().ok()?,
                version: 1,
                technique: Technique::Reference,
                numerics: Numerics::BitIdentical,
                needs: Needs::default(),
            },
        })
    }
}

impl Kernel for ReferenceKernel {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn hint(&self) -> Hint {
        Hint::percent(1)
    }
}

impl HostKernel for ReferenceKernel {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        _setting: &Setting,
        _scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (workload, inputs, outputs) = call.parts();
        kernelwise_reference::compute(workload, inputs, outputs)
            .map_err(|error| reference_fault(&self.spec.id, error))
    }
}

/// What the reference refused, as a fault of whoever asked.
pub(crate) fn reference_fault(kernel: &KernelId, error: ReferenceError) -> Fault {
    match error {
        ReferenceError::View(error) => Fault::View(error),
        ReferenceError::Index {
            operand,
            position,
            value,
            length,
        } => Fault::Index {
            operand,
            position,
            value,
            length,
        },
        other => Fault::kernel(kernel, other),
    }
}

/// The kernels of the processor.
pub struct Host {
    device: Device,
    machine: Machine,
    kernels: Vec<Arc<dyn HostKernel>>,
}

/// Two kernels of the same name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there are two kernels named `{id}`: give one another variant")]
pub struct DuplicateKernel {
    /// The name.
    pub id: KernelId,
}

impl Host {
    /// These kernels on this machine.
    pub fn new(
        machine: Machine,
        kernels: impl IntoIterator<Item = Arc<dyn HostKernel>>,
    ) -> Result<Self, DuplicateKernel> {
        let mut host = Self {
            device: Device::host(&machine),
            machine,
            kernels: Vec::new(),
        };
        for kernel in kernels {
            host.add(kernel)?;
        }
        Ok(host)
    }

    /// One more kernel, a user's for instance.
    pub fn add(&mut self, kernel: Arc<dyn HostKernel>) -> Result<(), DuplicateKernel> {
        let id = &kernel.spec().id;
        if self.kernels.iter().any(|known| known.spec().id == *id) {
            return Err(DuplicateKernel { id: id.clone() });
        }
        self.kernels.push(kernel);
        Ok(())
    }

    /// The machine the kernels run on.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The kernels made for this operation and these element types, the reference last. What else keeps
    /// them from running, [`admit`](crate::admit) says.
    pub fn kernels_for(&self, workload: &Workload) -> Vec<Arc<dyn HostKernel>> {
        let dtypes = workload.dtypes();
        let operation = workload.operation();
        let full = operation.to_string();
        let fits = |id: &KernelId| {
            (id.operation() == operation.name() || id.operation() == full) && id.dtypes() == dtypes
        };
        let made = self.kernels.iter().filter(|kernel| fits(&kernel.spec().id));
        let reference = ReferenceKernel::for_workload(workload);
        made.cloned()
            .chain(reference.map(|kernel| Arc::new(kernel) as Arc<dyn HostKernel>))
            .collect()
    }
}

impl Backend for Host {
    fn device(&self) -> &Device {
        &self.device
    }

    fn candidates(&self, workload: &Workload) -> Vec<Arc<dyn Kernel>> {
        let kernels = self.kernels_for(workload).into_iter();
        kernels.map(|kernel| kernel as Arc<dyn Kernel>).collect()
    }

    fn kernels(&self) -> Vec<Arc<dyn Kernel>> {
        let kernels = self.kernels.iter().cloned();
        kernels.map(|kernel| kernel as Arc<dyn Kernel>).collect()
    }

    fn run(
        &self,
        id: &KernelId,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        scratch: &mut Scratch,
        terms: &Terms<'_>,
    ) -> Result<Timing, Fault> {
        let candidates = self.kernels_for(call.workload());
        let kernel = candidates.iter().find(|kernel| kernel.spec().id == *id);
        let kernel = kernel.ok_or_else(|| Fault::NoKernel {
            kernel: id.to_string(),
        })?;
        kernel::run(kernel.as_ref(), call, setting, scratch, terms)?;
        // The host's clock is the caller's: most calls are not timed at all.
        Ok(Timing::default())
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids = self.kernels.iter().map(|kernel| kernel.spec().id.as_str());
        f.debug_list().entries(ids).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own::OwnKernel;

    #[test]
    fn a_query_shares_its_kernels() {
        let spec = KernelSpec {
            id: "cpu-reduce.sum-f32-mine".parse().unwrap(),
            version: 1,
            technique: Technique::Custom,
            numerics: Numerics::Reordered,
            needs: Needs::default(),
        };
        let kernel: Arc<dyn HostKernel> = Arc::new(OwnKernel::new(spec, |_, _, _| Ok(())));
        let host = Host::new(kernelwise_probe::machine(), [Arc::clone(&kernel)]).unwrap();
        let of = |text: &str| host.kernels_for(&text.parse().unwrap());
        let sum = of("reduce.sum f32 8");
        assert!(Arc::ptr_eq(&sum[0], &kernel), "the same kernel, not a copy");
        assert_eq!(sum[1].spec().id.as_str(), "cpu-reduce-f32-reference");
        // Other variants and types have the reference alone; custom operations have none.
        assert_eq!(of("reduce.max f32 8").len(), 1);
        assert_eq!(of("reduce.sum f64 8").len(), 1);
        assert!(of("custom.mine f32 8").is_empty());
    }
}
