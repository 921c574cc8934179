//! What a backend is to those who choose: a device, its kernels, and a way to run one on host tensors.

use std::sync::Arc;

use kernelwise_types::units::Nanos;
use kernelwise_types::{Device, KernelId, Workload};

use crate::call::Call;
use crate::fault::Fault;
use crate::kernel::{Kernel, Terms};
use crate::scratch::Scratch;
use crate::space::Setting;

/// A device with kernels. The processor is one ([`Host`](crate::Host)); everything with memory of its own is
/// one through [`Staged`](crate::Staged).
pub trait Backend: Send + Sync {
    /// The device.
    fn device(&self) -> &Device;

    /// Every kernel it offers, in a fixed order.
    fn kernels(&self) -> Vec<Arc<dyn Kernel>>;

    /// Those for this operation and these element types, a kernel that can run any of its inputs last.
    fn candidates(&self, workload: &Workload) -> Vec<Arc<dyn Kernel>>;

    /// Runs one kernel on the caller's tensors, after all checks, and says how long its parts took by
    /// the device's own clock.
    fn run(
        &self,
        kernel: &KernelId,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        scratch: &mut Scratch,
        terms: &Terms<'_>,
    ) -> Result<Timing, Fault>;
}

/// How long the parts of a run took by the device's own clock. `None` is a part that did not happen or that
/// the device has no clock for; on the host the caller times.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Timing {
    /// Making the program; `None` when it was there already.
    pub compile: Option<Nanos>,
    /// Moving inputs to the device.
    pub upload: Option<Nanos>,
    /// The kernel alone.
    pub kernel: Option<Nanos>,
    /// Moving results back.
    pub download: Option<Nanos>,
}

impl Timing {
    /// The sum of the parts that are known.
    pub fn total(&self) -> Option<Nanos> {
        let parts = [self.compile, self.upload, self.kernel, self.download];
        let known: Vec<f64> = parts.iter().flatten().map(|part| part.get()).collect();
        if known.is_empty() {
            return None;
        }
        Nanos::new(known.iter().sum()).ok()
    }
}
