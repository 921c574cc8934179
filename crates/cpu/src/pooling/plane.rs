//! What the kernels of pooling share: the problem of one plane, and the parameters.
#![allow(unsafe_code)]

use std::ops::Range;

use kernelwise_backend::{Axis, Fault, Space, knobs};
use kernelwise_types::op::{Operation, Pool2d, PoolKind};
use kernelwise_types::{KernelSpec, Machine, Numerics, Refusal, Workload};

use crate::pool::{self, Schedule};
use crate::reduce::lanes::{MOST_LANES, Number, Vector};

knobs! {
    /// How rows of results are shared out.
    pub(super) struct PlaneKnobs {
        /// Threads that work at once.
        threads,
        /// 0 for one piece per thread, 1 for several.
        schedule,
    }
}

impl PlaneKnobs {
    pub(super) fn space(machine: &Machine) -> Space {
        Space::of::<Self, 2>([Axis::threads(machine), Axis::switch(false)])
            .with_constraint(pool::SHARED_ONLY, |knobs: Self| {
                knobs.threads > 1 || knobs.schedule == 0
            })
    }

    pub(super) fn crew(self) -> (usize, Schedule) {
        (pool::threads(self.threads), Schedule::of(self.schedule))
    }
}

/// The operation in kernel ids.
pub(super) const fn name(kind: PoolKind) -> &'static str {
    match kind {
        PoolKind::Max => "pool2d.max",
        PoolKind::Avg => "pool2d.avg",
    }
}

/// Maxima have one answer; sums depend on their order.
pub(super) const fn numerics(kind: PoolKind) -> Numerics {
    match kind {
        PoolKind::Max => Numerics::BitIdentical,
        PoolKind::Avg => Numerics::Reordered,
    }
}

/// The pooling in a workload, and the size of its results.
pub(super) fn problem(
    spec: &KernelSpec,
    kind: PoolKind,
    workload: &Workload,
) -> Result<(Pool2d, [usize; 2]), Fault> {
    if let Operation::Pool2d(op) = workload.operation()
        && op.kind == kind
        && let Ok(size) = op.output_size()
    {
        return Ok((*op, size));
    }
    Err(Fault::Refused {
        kernel: spec.id.to_string(),
        refusal: Refusal::Operation {
            kernel: name(kind).to_owned(),
            workload: workload.operation().to_string(),
        },
    })
}

/// Where the taps of one window fall along an axis, padding left out. At least one does, for padding is smaller
/// than the window.
#[inline(always)]
pub(super) fn seen(
    window: usize,
    stride: usize,
    taps: usize,
    pad: usize,
    size: usize,
) -> Range<usize> {
    let first = window * stride;
    first.saturating_sub(pad).min(size)..(first + taps).saturating_sub(pad).min(size)
}

/// That planes of these sizes are all of both tensors.
pub(super) fn fits(op: &Pool2d, [p, q]: [usize; 2], x: usize, out: usize) -> bool {
    let planes = op.n * op.c;
    planes * op.h * op.w == x && planes * p * q == out && x > 0 && out > 0
}

/// Stores as many lanes as there is room for.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn store_some<V: Vector>(vector: V, out: &mut [V::Scalar]) {
    if V::LANES <= out.len() {
        // SAFETY: there is room for a vector; the caller vouches for the instructions.
        unsafe { vector.store(out.as_mut_ptr()) };
        return;
    }
    let mut lanes = [V::Scalar::ZERO; MOST_LANES];
    // SAFETY: a vector has at most `MOST_LANES` lanes.
    unsafe { vector.store(lanes.as_mut_ptr()) };
    out.copy_from_slice(&lanes[..out.len()]);
}
