//! Scans: running sums, products and extremes along an axis.
//!
//! Sums and products of floats come out in another order than the reference takes them; extremes and integers have its bits.
//! So floats have a kernel for sums and products and one for each extreme, integers one for all.

mod blocked;
mod sequential;

use std::sync::Arc;

use kernelwise_backend::HostKernel;
use kernelwise_types::op::{Operation, Scan, ScanKind};
use kernelwise_types::{DType, InvalidKernelId, Numerics, Refusal, Workload};

use crate::isa::Level;
use crate::reduce::lanes::Number;

/// What one kernel computes, as its id and its spec say it.
#[derive(Debug, Clone, Copy)]
struct Kinds {
    operation: &'static str,
    numerics: Numerics,
    kinds: &'static [ScanKind],
}

use ScanKind::{Max, Min, Prod, Sum};

const FLOATS: &[Kinds] = &[
    Kinds {
        operation: "scan",
        numerics: Numerics::Reordered,
        kinds: &[Sum, Prod],
    },
    Kinds {
        operation: "scan.max",
        numerics: Numerics::BitIdentical,
        kinds: &[Max],
    },
    Kinds {
        operation: "scan.min",
        numerics: Numerics::BitIdentical,
        kinds: &[Min],
    },
];

const INTEGERS: &[Kinds] = &[Kinds {
    operation: "scan",
    numerics: Numerics::BitIdentical,
    kinds: &[Sum, Prod, Max, Min],
}];

impl Kinds {
    /// The groups of an element type.
    fn of_type(dtype: DType) -> &'static [Self] {
        if dtype.is_float() { FLOATS } else { INTEGERS }
    }

    /// The scan in a workload, if it is one of these.
    fn of<'w>(&self, workload: &'w Workload) -> Result<&'w Scan, Refusal> {
        let Operation::Scan(op) = workload.operation() else {
            return Err(Refusal::Operation {
                kernel: self.operation.to_owned(),
                workload: workload.operation().to_string(),
            });
        };
        if self.kinds.contains(&op.kind) {
            return Ok(op);
        }
        let names: Vec<_> = self.kinds.iter().map(|kind| kind.name()).collect();
        Err(Refusal::Shape {
            condition: format!("computes {} only", names.join(", ")),
        })
    }
}

/// The kernels of all element types.
pub(super) fn kernels(levels: &[Level]) -> Result<Vec<Arc<dyn HostKernel>>, InvalidKernelId> {
    let mut kernels = Vec::new();
    of_type::<f32>(levels, &mut kernels)?;
    of_type::<f64>(levels, &mut kernels)?;
    of_type::<i32>(levels, &mut kernels)?;
    of_type::<i64>(levels, &mut kernels)?;
    Ok(kernels)
}

fn of_type<T: Number>(
    levels: &[Level],
    kernels: &mut Vec<Arc<dyn HostKernel>>,
) -> Result<(), InvalidKernelId> {
    for kinds in Kinds::of_type(T::DTYPE) {
        kernels.push(sequential::kernel::<T>(kinds)?);
        for &level in levels {
            kernels.push(blocked::kernel::<T>(kinds, level)?);
        }
    }
    Ok(())
}
