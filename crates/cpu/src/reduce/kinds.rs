//! Which kinds one kernel serves.
//!
//! A kernel has one class of numerics: floats are summed in another order than the reference does it, their maxima have
//! the same bits. So floats have kernels for sums and products, for each extreme, and for places; integers, which
//! wrap, are exact in any order. Places have a second element type, except where it is the first.

use kernelwise_types::op::{Operation, Reduce, ReduceKind};
use kernelwise_types::{DType, Numerics, Refusal, Workload};

use super::lanes::Number;

/// What one kernel computes, as its id and its spec say it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kinds {
    /// `reduce`, or one variant of it.
    pub(super) operation: &'static str,
    /// The type of the elements, and that of places where it is another.
    pub(super) dtypes: &'static [DType],
    /// How exact it is.
    pub(super) numerics: Numerics,
    /// What it computes.
    pub(super) kinds: &'static [ReduceKind],
}

const fn kinds(
    operation: &'static str,
    dtypes: &'static [DType],
    numerics: Numerics,
    kinds: &'static [ReduceKind],
) -> Kinds {
    Kinds {
        operation,
        dtypes,
        numerics,
        kinds,
    }
}

use Numerics::{BitIdentical, Reordered};
use ReduceKind::{ArgMax, ArgMin, L2, Max, Mean, Min, Prod, Sum};

/// Element types with reductions, and what their kernels serve.
pub(super) trait Reducible: Number {
    /// One kernel each.
    const KINDS: &'static [Kinds];
}

impl Reducible for f32 {
    const KINDS: &'static [Kinds] = &[
        kinds("reduce", &[DType::F32], Reordered, &[Sum, Mean, Prod, L2]),
        kinds("reduce.max", &[DType::F32], BitIdentical, &[Max]),
        kinds("reduce.min", &[DType::F32], BitIdentical, &[Min]),
        kinds(
            "reduce",
            &[DType::F32, DType::I64],
            BitIdentical,
            &[ArgMax, ArgMin],
        ),
    ];
}

impl Reducible for f64 {
    const KINDS: &'static [Kinds] = &[
        kinds("reduce", &[DType::F64], Reordered, &[Sum, Mean, Prod, L2]),
        kinds("reduce.max", &[DType::F64], BitIdentical, &[Max]),
        kinds("reduce.min", &[DType::F64], BitIdentical, &[Min]),
        kinds(
            "reduce",
            &[DType::F64, DType::I64],
            BitIdentical,
            &[ArgMax, ArgMin],
        ),
    ];
}

impl Reducible for i32 {
    const KINDS: &'static [Kinds] = &[
        kinds(
            "reduce",
            &[DType::I32],
            BitIdentical,
            &[Sum, Prod, Max, Min],
        ),
        kinds(
            "reduce",
            &[DType::I32, DType::I64],
            BitIdentical,
            &[ArgMax, ArgMin],
        ),
    ];
}

impl Reducible for i64 {
    const KINDS: &'static [Kinds] = &[kinds(
        "reduce",
        &[DType::I64],
        BitIdentical,
        &[Sum, Prod, Max, Min, ArgMax, ArgMin],
    )];
}

/// Whether the result is a place.
pub(super) fn is_place(kind: ReduceKind) -> bool {
    matches!(kind, ArgMax | ArgMin)
}

/// What a running fold has come to, made into the result.
#[inline(always)]
pub(super) fn finished<T: Number>(kind: ReduceKind, folded: T, depth: usize) -> T {
    match kind {
        Mean => folded.over(depth),
        L2 => folded.root(),
        _ => folded,
    }
}

impl Kinds {
    /// The reduction in a workload, if it is one of these.
    pub(super) fn of<'w>(&self, workload: &'w Workload) -> Result<&'w Reduce, Refusal> {
        let Operation::Reduce(op) = workload.operation() else {
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
