//! Gather: slices of a table, copied to where they are wanted.

use kernelwise_backend::{
    Axis, Call, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Space, knobs,
};
use kernelwise_types::op::{Gather, Operation};
use kernelwise_types::units::Bytes;
use kernelwise_types::{
    DType, InvalidKernelId, KernelSpec, LayoutKind, Machine, Numerics, Refusal, Technique,
    TensorView, TensorViewMut, Workload,
};

use super::memory::{first, first_mut, made_for};
use super::picks::Picks;
use super::slab::Slab;
use super::sorted::Sorted;
use super::{fits_records, unfit};
use crate::declare::{Needing, spec};
use crate::pool::{self, Schedule, Start, share};
use crate::sort::Lines;

knobs! {
    /// How the slices are shared out.
    struct GatherKnobs {
        /// Threads that copy at once.
        threads,
        /// Several pieces for each thread (1), or one (0).
        schedule,
    }
}

/// In which order elements are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// One by one along the axis, through any strides.
    Plain,
    /// Slices without gaps, in the order of the result.
    Rows,
    /// Slices without gaps, in the order of the table.
    Sorted,
}

#[derive(Debug)]
pub(super) struct GatherKernel {
    spec: KernelSpec,
    method: Method,
}

impl GatherKernel {
    pub(super) fn new(dtypes: &[DType], method: Method) -> Result<Self, InvalidKernelId> {
        let (variant, technique) = match method {
            Method::Plain => ("plain", Technique::Scalar),
            Method::Rows => ("rows", Technique::Blocked),
            Method::Sorted => ("sorted", Technique::Algorithmic),
        };
        let spec = spec("gather", dtypes, variant, technique, Numerics::BitIdentical)?;
        let layout = if method == Method::Plain {
            LayoutKind::Strided
        } else {
            LayoutKind::Contiguous
        };
        Ok(Self {
            spec: spec.following(layout),
            method,
        })
    }

    /// Copies element by element; elements have `SIZE` bytes.
    fn plain<const SIZE: usize>(
        op: &Gather,
        table: &TensorView<'_>,
        picks: Picks<'_>,
        out: &mut TensorViewMut<'_>,
    ) -> Result<(), Fault> {
        let (from, to) = (
            Lines::new(table.layout(), op.axis),
            Lines::new(out.layout(), op.axis),
        );
        let (source, goal) = (first(table)?, first_mut(out)?);
        let rows = out.shape().elements() / picks.len().max(1);
        let bytes = |elements: isize| elements * SIZE as isize;
        for row in 0..rows {
            let (from_start, to_start) = (from.start(row), to.start(row));
            for position in 0..picks.len() {
                // SAFETY: both have a row of this number, the table with `place` (it was checked) and the
                // result with `position`; offsets are those of their layouts. They do not overlap.
                unsafe {
                    let place = picks.place(position) as isize;
                    let source = source.offset(bytes(from_start + place * from.step()));
                    let goal = goal.offset(bytes(to_start + position as isize * to.step()));
                    goal.copy_from_nonoverlapping(source, SIZE);
                }
            }
        }
        Ok(())
    }
}

/// The tensors of a call whose operands have no gaps.
struct Slices<'a> {
    slab: Slab,
    /// Bytes of one slice.
    bytes: usize,
    picks: Picks<'a>,
    table: Start<u8>,
    out: Start<u8>,
}

impl Slices<'_> {
    /// Copies one slice of `N` bytes, or of any number if that is 0.
    ///
    /// # Safety
    ///
    /// There are that slab, place and position; no other thread copies to the position.
    #[inline(always)]
    unsafe fn copy<const N: usize>(&self, outer: usize, place: usize, position: usize) {
        let bytes = if N == 0 { self.bytes } else { N };
        // SAFETY: neither tensor has gaps: the table has `outer` slabs of `places` slices, the result as many of
        // `picks.len()`. The caller keeps inside. They do not overlap.
        unsafe {
            let from = self.table.at((outer * self.slab.places + place) * bytes);
            let to = self.out.at((outer * self.picks.len() + position) * bytes);
            to.copy_from_nonoverlapping(from, bytes);
        }
    }

    /// Copies in the order of the result.
    fn in_order<const N: usize>(&self, threads: usize, schedule: Schedule) {
        let len = self.picks.len();
        share(threads, schedule, self.slab.outer * len, 1, |_, range| {
            let mut at = range.start;
            while at < range.end {
                let (outer, first) = (at / len, at % len);
                let end = (first + range.end - at).min(len);
                for position in first..end {
                    // SAFETY: positions are below `len`, places were checked; ranges do not overlap.
                    unsafe { self.copy::<N>(outer, self.picks.place(position), position) };
                }
                at += end - first;
            }
        });
    }

    /// Copies in the order of the table.
    fn by_place<const N: usize>(&self, sorted: &Sorted<'_>, threads: usize, schedule: Schedule) {
        share(threads, schedule, sorted.len(), 1, |_, range| {
            for outer in 0..self.slab.outer {
                for (place, position) in sorted.range(range.clone()) {
                    // SAFETY: both are of the list, which was checked and holds each position once.
                    unsafe { self.copy::<N>(outer, place, position) };
                }
            }
        });
    }
}

fn problem(workload: &Workload) -> Option<&Gather> {
    match workload.operation() {
        Operation::Gather(op) => Some(op),
        _ => None,
    }
}

impl Kernel for GatherKernel {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        match (self.method, problem(workload)) {
            (Method::Sorted, Some(op)) => fits_records(&op.shape, op.axis, op.indices),
            _ => Ok(()),
        }
    }

    fn space(&self, _workload: &Workload, machine: &Machine) -> Space {
        match self.method {
            Method::Plain => Space::none(),
            Method::Rows | Method::Sorted => {
                Space::of::<GatherKnobs, 2>([Axis::threads(machine), Axis::switch(false)])
                    .with_constraint(pool::SHARED_ONLY, |knobs: GatherKnobs| {
                        knobs.threads > 1 || knobs.schedule == 0
                    })
            }
        }
    }

    fn workspace(&self, workload: &Workload, _setting: &Setting) -> Bytes {
        match (self.method, problem(workload)) {
            (Method::Sorted, Some(op)) => Sorted::room(op.indices),
            _ => Bytes(0),
        }
    }

    fn hint(&self) -> Hint {
        match self.method {
            Method::Plain => Hint::percent(10),
            Method::Rows => Hint::percent(60),
            Method::Sorted => Hint::percent(30).best_for(1 << 20..=u64::MAX),
        }
    }
}

impl HostKernel for GatherKernel {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (workload, inputs, outputs) = call.parts();
        let refused = || unfit(&self.spec);
        if !made_for(&self.spec, workload) {
            return Err(refused());
        }
        let (Some(op), [table, indices], [out]) = (problem(workload), inputs, outputs) else {
            return Err(refused());
        };
        let slab = Slab::new(&op.shape, op.axis).ok_or_else(refused)?;
        if self.method == Method::Plain {
            let picks = Picks::checked(indices, slab.places)?;
            return match table.dtype().size() {
                1 => Self::plain::<1>(op, table, picks, out),
                2 => Self::plain::<2>(op, table, picks, out),
                4 => Self::plain::<4>(op, table, picks, out),
                8 => Self::plain::<8>(op, table, picks, out),
                16 => Self::plain::<16>(op, table, picks, out),
                _ => Err(refused()),
            };
        }
        if !table.layout().is_contiguous()
            || !out.layout().is_contiguous()
            || self.accepts(workload).is_err()
        {
            return Err(refused());
        }
        let picks = Picks::checked(indices, slab.places)?;
        let knobs = GatherKnobs::of(setting);
        let (threads, schedule) = (pool::threads(knobs.threads), Schedule::of(knobs.schedule));
        let slices = Slices {
            slab,
            bytes: slab.inner * table.dtype().size(),
            picks,
            table: Start::new(first(table)?.cast_mut()),
            out: Start::new(first_mut(out)?),
        };
        // Single elements of the common sizes are worth loops of their own.
        if self.method == Method::Rows {
            match slices.bytes {
                4 => slices.in_order::<4>(threads, schedule),
                8 => slices.in_order::<8>(threads, schedule),
                _ => slices.in_order::<0>(threads, schedule),
            }
        } else {
            let sorted = Sorted::new(&picks, &mut scratch.carve())?;
            match slices.bytes {
                4 => slices.by_place::<4>(&sorted, threads, schedule),
                8 => slices.by_place::<8>(&sorted, threads, schedule),
                _ => slices.by_place::<0>(&sorted, threads, schedule),
            }
        }
        Ok(())
    }
}
