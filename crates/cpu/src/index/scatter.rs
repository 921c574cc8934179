//! Scatter: slices put into, or joined to, the places of a destination.
//!
//! Several updates may name one place. They meet it in the order of the list whatever the variant and the number
//! of threads, because threads never share a place: `rows` gives them slabs, columns or ranges of places, `sorted` parts of
//! the sorted list that are cut between places. So results do not depend on the threads, and nothing races.

use std::marker::PhantomData;
use std::ops::Range;

use kernelwise_backend::{
    Axis, Call, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Space, knobs,
};
use kernelwise_types::op::{Operation, Scatter, ScatterKind};
use kernelwise_types::units::Bytes;
use kernelwise_types::{
    DType, InvalidKernelId, KernelSpec, LayoutKind, Machine, Numerics, Refusal, Technique, Workload,
};

use super::join::Join;
use super::memory::{first, first_mut, made_for};
use super::picks::Picks;
use super::slab::Slab;
use super::sorted::Sorted;
use super::{fits_records, unfit};
use crate::declare::{Needing, spec};
use crate::pool::{self, Schedule, Start, share};
use crate::sort::Lines;

knobs! {
    /// How the destination is shared out.
    struct ScatterKnobs {
        /// Threads that update at once.
        threads,
    }
}

/// In which order updates are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// One element at a time along the axis, through any strides.
    Plain,
    /// Slices without gaps, in the order of the list.
    Rows,
    /// Slices without gaps, in the order of the destination.
    Sorted,
}

/// A scatter whose elements are `J::Item` and meet as `J` says.
#[derive(Debug)]
pub(super) struct ScatterKernel<J> {
    spec: KernelSpec,
    kind: ScatterKind,
    method: Method,
    join: PhantomData<fn() -> J>,
}

impl<J: Join> ScatterKernel<J> {
    /// `dtypes` begins with an element type of the size of `J::Item`, and of its kind unless `J` only moves.
    pub(super) fn new(
        kind: ScatterKind,
        dtypes: &[DType],
        method: Method,
    ) -> Result<Self, InvalidKernelId> {
        let (variant, technique) = match method {
            Method::Plain => ("plain", Technique::Scalar),
            Method::Rows => ("rows", Technique::Blocked),
            Method::Sorted => ("sorted", Technique::Algorithmic),
        };
        // Sums of floats are rounded once for each update; of equal zeros and of several NaN any may stay.
        let float = dtypes.first().is_some_and(|dtype| dtype.is_float());
        let numerics = if float && kind != ScatterKind::Assign {
            Numerics::Reordered
        } else {
            Numerics::BitIdentical
        };
        let operation = format!("scatter.{}", kind.name());
        let layout = if method == Method::Plain {
            LayoutKind::Strided
        } else {
            LayoutKind::Contiguous
        };
        let spec = spec(&operation, dtypes, variant, technique, numerics)?.following(layout);
        Ok(Self {
            spec,
            kind,
            method,
            join: PhantomData,
        })
    }
}

fn problem(workload: &Workload) -> Option<&Scatter> {
    match workload.operation() {
        Operation::Scatter(op) => Some(op),
        _ => None,
    }
}

impl<J: Join> Kernel for ScatterKernel<J> {
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
            Method::Rows | Method::Sorted => Space::of::<ScatterKnobs, 1>([Axis::threads(machine)]),
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
            Method::Rows => Hint::percent(50),
            Method::Sorted => Hint::percent(30).best_for(1 << 20..=u64::MAX),
        }
    }
}

/// The tensors of a call whose operands have no gaps.
#[derive(Clone, Copy)]
struct Slices<'a, T> {
    slab: Slab,
    picks: Picks<'a>,
    updates: Start<T>,
    destination: Start<T>,
}

impl<T: Copy + Send> Slices<'_, T> {
    /// Joins one update, or some columns of it, to its place.
    ///
    /// # Safety
    ///
    /// `outer`, `place`, `position` and `columns` are inside; no other thread uses these columns of the place.
    #[inline(always)]
    unsafe fn update<J: Join<Item = T>>(
        &self,
        outer: usize,
        place: usize,
        position: usize,
        columns: Range<usize>,
    ) {
        let Slab { places, inner, .. } = self.slab;
        // SAFETY: neither tensor has gaps: there are `outer` slabs of `places`, respectively `picks.len()`, slices
        // of `inner` elements. The caller keeps inside, and alone with the place.
        let (to, from) = unsafe {
            let to = self
                .destination
                .at((outer * places + place) * inner + columns.start);
            let from = self
                .updates
                .at((outer * self.picks.len() + position) * inner + columns.start);
            (
                std::slice::from_raw_parts_mut(to, columns.len()),
                std::slice::from_raw_parts(from.cast_const(), columns.len()),
            )
        };
        for (to, from) in to.iter_mut().zip(from) {
            *to = J::join(*to, *from);
        }
    }

    /// Updates in the order of the list.
    fn in_order<J: Join<Item = T>>(&self, threads: usize) {
        let Slab {
            outer,
            places,
            inner,
        } = self.slab;
        // Columns of a place go to different threads only if no cache line does.
        let line = (64 / size_of::<T>()).max(1);
        let all = |outer: Range<usize>, places: Range<usize>, columns: Range<usize>| {
            for outer in outer {
                for position in 0..self.picks.len() {
                    // SAFETY: the position is below the list's length.
                    let place = unsafe { self.picks.place(position) };
                    if places.contains(&place) {
                        // SAFETY: ranges come from `share`, inside and apart; the place was checked.
                        unsafe { self.update::<J>(outer, place, position, columns.clone()) };
                    }
                }
            }
        };
        match split(self.slab, threads, line) {
            Split::Slabs => share(threads, Schedule::Static, outer, 1, |_, slabs| {
                all(slabs, 0..places, 0..inner)
            }),
            Split::Columns => {
                share(threads, Schedule::Static, inner, line, |_, columns| {
                    all(0..outer, 0..places, columns)
                });
            }
            Split::Places => share(threads, Schedule::Static, places, 1, |_, places| {
                all(0..outer, places, 0..inner)
            }),
        }
    }

    /// Updates in the order of the places.
    fn by_place<J: Join<Item = T>>(&self, sorted: &Sorted<'_>, threads: usize) {
        let Slab { outer, inner, .. } = self.slab;
        share(threads, Schedule::Static, sorted.len(), 1, |_, range| {
            let range = sorted.border(range.start)..sorted.border(range.end);
            for outer in 0..outer {
                for (place, position) in sorted.range(range.clone()) {
                    // SAFETY: place and position are of the list, which was checked; parts of the sorted list
                    // are cut where the place changes, so no other thread has this one.
                    unsafe { self.update::<J>(outer, place, position, 0..inner) };
                }
            }
        });
    }
}

/// What threads share out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Split {
    /// Slabs: nothing is looked at twice.
    Slabs,
    /// Columns of each place: equal shares whatever the indices are.
    Columns,
    /// Ranges of places: all that is left for narrow destinations. Every thread looks at the whole list.
    Places,
}

fn split(slab: Slab, threads: usize, line: usize) -> Split {
    if threads < 2 || slab.outer >= threads.saturating_mul(2) {
        Split::Slabs
    } else if slab.inner >= threads.saturating_mul(2 * line) {
        Split::Columns
    } else {
        Split::Places
    }
}

impl<J: Join> HostKernel for ScatterKernel<J> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (workload, inputs, outputs) = call.parts();
        let refused = || unfit(&self.spec);
        let (Some(op), [indices, updates], [destination]) = (problem(workload), inputs, outputs)
        else {
            return Err(refused());
        };
        let dtype = updates.dtype();
        if op.kind != self.kind || !made_for(&self.spec, workload) || !J::joins(dtype) {
            return Err(refused());
        }
        let slab = Slab::new(&op.shape, op.axis).ok_or_else(refused)?;
        let plain = self.method == Method::Plain;
        let contiguous = updates.layout().is_contiguous() && destination.layout().is_contiguous();
        if !plain && (!contiguous || self.accepts(workload).is_err()) {
            return Err(refused());
        }
        let picks = Picks::checked(indices, slab.places)?;
        let (from_lines, to_lines) = (
            Lines::new(updates.layout(), op.axis),
            Lines::new(destination.layout(), op.axis),
        );
        let from = first(updates)?.cast::<J::Item>().cast_mut();
        let to = first_mut(destination)?.cast::<J::Item>();
        let slices = Slices {
            slab,
            picks,
            updates: Start::new(from),
            destination: Start::new(to),
        };
        let threads = pool::threads(ScatterKnobs::of(setting).threads);
        match self.method {
            Method::Rows => slices.in_order::<J>(threads),
            Method::Sorted => {
                let sorted = Sorted::new(&picks, &mut scratch.carve())?;
                slices.by_place::<J>(&sorted, threads);
            }
            Method::Plain => {
                for row in 0..slab.outer * slab.inner {
                    let (from_start, to_start) = (from_lines.start(row), to_lines.start(row));
                    for position in 0..picks.len() {
                        // SAFETY: both have a row of this number, the updates with `position` and the
                        // destination with `place`, which was checked; offsets are those of their layouts,
                        // and elements have the type `J::Item` or its size.
                        unsafe {
                            let place = picks.place(position) as isize;
                            let from =
                                from.offset(from_start + position as isize * from_lines.step());
                            let to = to.offset(to_start + place * to_lines.step());
                            to.write(J::join(to.read(), from.read()));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_what_there_is_most_of() {
        let slab = |outer, places, inner| Slab {
            outer,
            places,
            inner,
        };
        assert_eq!(split(slab(1, 9, 1000), 1, 16), Split::Slabs);
        assert_eq!(split(slab(8, 9, 1000), 4, 16), Split::Slabs);
        assert_eq!(split(slab(7, 9, 128), 4, 16), Split::Columns);
        assert_eq!(split(slab(7, 9, 127), 4, 16), Split::Places);
    }
}
