//! Operations along rows: softmax, normalisations and scans.
//!
//! | operation | kernels |
//! |---|---|
//! | softmax, softmax.log | `two-pass` and `online`, each per level |
//! | norm.layer, norm.rms, norm.batch | `two-pass` and `online`, each per level; where there is no mean to find, `two-pass` alone |
//! | scan | `sequential` along any strides; `blocked` per level, with vectors inside rows and parallel blocks in long ones |

mod float;
pub(crate) mod lines;
mod moments;
mod norm;
mod scan;
mod softmax;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use kernelwise_backend::{Axis, Fault, HostKernel, Space, knobs};
use kernelwise_types::{InvalidKernelId, KernelSpec, Machine, Refusal, Workload};

use crate::isa::Level;
use crate::pool::{self, Schedule};
use crate::reduce::lanes::distinct;

knobs! {
    /// How rows are shared out.
    pub(super) struct RowKnobs {
        /// Threads that work at once.
        threads,
        /// 0 for one piece per thread, 1 for several.
        schedule,
    }
}

impl RowKnobs {
    fn space(machine: &Machine) -> Space {
        Space::of::<Self, 2>([Axis::threads(machine), Axis::switch(false)])
            .with_constraint(pool::SHARED_ONLY, |knobs: Self| {
                knobs.threads > 1 || knobs.schedule == 0
            })
    }

    fn crew(self) -> (usize, Schedule) {
        (pool::threads(self.threads), Schedule::of(self.schedule))
    }
}

/// How often a row is read before its result is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    /// First what belongs to the whole row, then the rest.
    TwoPass,
    /// Everything at once, put right as more is seen.
    Online,
}

impl Method {
    const ALL: [Self; 2] = [Self::TwoPass, Self::Online];

    /// The word for it in kernel ids.
    const fn name(self) -> &'static str {
        match self {
            Self::TwoPass => "two-pass",
            Self::Online => "online",
        }
    }
}

/// The kernels, for the instruction sets this processor has.
pub(crate) fn kernels(levels: &[Level]) -> Result<Vec<Arc<dyn HostKernel>>, InvalidKernelId> {
    let mut kernels = scan::kernels(&distinct(levels))?;
    for level in distinct(levels) {
        for method in Method::ALL {
            kernels.push(softmax::kernel::<f32>(method, level)?);
            kernels.push(softmax::kernel::<f64>(method, level)?);
            kernels.push(norm::kernel::<f32>(method, level)?);
            kernels.push(norm::kernel::<f64>(method, level)?);
        }
    }
    Ok(kernels)
}

/// The fault of a kernel that was called with another operation than its own.
fn of_another_operation(spec: &KernelSpec, workload: &Workload) -> Fault {
    Fault::Refused {
        kernel: spec.id.to_string(),
        refusal: Refusal::Operation {
            kernel: spec.id.operation().to_owned(),
            workload: workload.operation().to_string(),
        },
    }
}
