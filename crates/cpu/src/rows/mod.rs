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

use kernelwise_backend::{Axis, HostKernel, Space, knobs};
use kernelwise_types::{InvalidKernelId, Machine};

use crate::isa::Level;
use crate::pool::{MAX_THREADS, Schedule};
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
    }

    fn crew(self) -> (usize, Schedule) {
        let threads = (self.threads as usize).clamp(1, MAX_THREADS);
        (threads, Schedule::of(self.schedule))
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
