//! Transposes: the same elements with their axes in another order.
//!
//! Walking the output in order reads the input in strides: each element from another cache line, each line once
//! per element. Squares repair that: a square's lines are read and written while they are near. Every
//! permutation comes down to squares of matrices or to whole lines ([`axes`](super::axes)).
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;

use kernelwise_backend::{
    Axis as Values, Call, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Space, knobs,
};
use kernelwise_types::op::{Operation, Transpose};
use kernelwise_types::{
    Element, InvalidKernelId, KernelSpec, Layout, LayoutKind, MAX_RANK, Machine, Numerics, Refusal,
    Technique, ViewError, Workload,
};

use super::axes::{Axes, Axis, Shape};
use super::copy::{Sharing, move_all};
use super::tile::{self, Part};
use super::{Units, of_another_operation, with_units};
use crate::declare::{Needing, spec};
use crate::isa::Level;
use crate::pool::{self, Schedule, Start, share};

knobs! {
    /// How matrices are cut and shared out.
    pub(super) struct Turning {
        /// Threads that work at once.
        threads,
        /// Units along a side of a square.
        tile,
        /// 0: one piece per thread; 1: more pieces, for whoever is free.
        schedule,
    }
}

/// How the elements move.
#[derive(Debug, Clone, Copy)]
pub(super) enum Path {
    /// In the order of the output, whatever the strides.
    Naive,
    /// In squares, unit by unit.
    Blocked,
    /// In squares, transposed in the registers of a level.
    Registers(Level),
}

impl Path {
    /// In registers, if this level can do that with such elements.
    pub(super) fn registers<T>(level: Level) -> Option<Self> {
        tile::knows(level, size_of::<T>()).then_some(Self::Registers(level))
    }
}

/// A transpose of one element type.
pub(super) struct Turn<T> {
    spec: KernelSpec,
    path: Path,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> Turn<T> {
    pub(super) fn new(path: Path) -> Result<Self, InvalidKernelId> {
        let made = |variant: &str, technique| {
            spec(
                "transpose",
                &[T::DTYPE],
                variant,
                technique,
                Numerics::BitIdentical,
            )
        };
        let spec = match path {
            Path::Naive => made("naive", Technique::Scalar)?.following(LayoutKind::Strided),
            Path::Blocked => made("blocked", Technique::Blocked)?,
            Path::Registers(level) => made(level.name(), Technique::Vector)?.on(level),
        };
        Ok(Self {
            spec,
            path,
            element: PhantomData,
        })
    }
}

impl<T: Element> Kernel for Turn<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn space(&self, workload: &Workload, machine: &Machine) -> Space {
        let default = match self.path {
            Path::Naive => return Sharing::space(machine),
            Path::Blocked => 32,
            Path::Registers(_) => 64,
        };
        // Lines move whole; there are no squares whose size could matter.
        let tiles: &[u32] = match workload.operation() {
            Operation::Transpose(op) if moves_lines(op, size_of::<T>()) => &[],
            _ => &[16, 32, 64, 128],
        };
        Space::of::<Turning, 3>([
            Values::threads(machine),
            Values::new(default, tiles.iter().copied()),
            Values::switch(false),
        ])
        .with_constraint(pool::SHARED_ONLY, |knobs: Turning| {
            knobs.threads > 1 || knobs.schedule == 0
        })
    }

    fn hint(&self) -> Hint {
        match self.path {
            Path::Naive => Hint::percent(10),
            Path::Blocked => Hint::percent(25),
            Path::Registers(_) => Hint::percent(60),
        }
    }
}

impl<T: Element> HostKernel for Turn<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        _scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (workload, inputs, outputs) = call.parts();
        let (Operation::Transpose(op), [input], [output]) = (workload.operation(), inputs, outputs)
        else {
            return Err(of_another_operation(&self.spec, workload));
        };
        // The input's strides in the order of the output.
        let mut strides = [0; MAX_RANK];
        let own = input.layout().strides();
        for (place, axis) in strides.iter_mut().zip(op.perm.iter()) {
            *place = own[axis];
        }
        let rank = output.shape().rank();
        let turned = Layout::strided(*output.shape(), &strides[..rank]).map_err(ViewError::from)?;
        let level = match self.path {
            Path::Naive => {
                let sharing = Sharing::of_setting(setting);
                // SAFETY: the same strides over the same sizes reach the same elements, in another order.
                return Ok(unsafe { move_all::<T>((input, &turned), output, sharing) }?);
            }
            Path::Blocked => None,
            Path::Registers(level) => Some(level),
        };
        // Both must lie without gaps: then neighbours exist, and all of the output is written.
        input.as_slice::<T>()?;
        let to = output.as_mut_slice::<T>()?.as_mut_ptr();
        let from = input.as_ptr::<T>()?.cast_mut();
        let axes = Axes::new(&turned, output.layout(), size_of::<T>());
        let knobs = Turning::of(setting);
        let work = Work {
            from: Start::new(from.cast()),
            to: Start::new(to.cast()),
            shape: axes
                .shape()
                .ok_or_else(|| self.without_neighbours(&turned))?,
            level,
            tile: (knobs.tile as usize).clamp(1, 1 << 16),
            threads: pool::threads(knobs.threads),
            schedule: Schedule::of(knobs.schedule),
        };
        with_units(axes.unit, work);
        Ok(())
    }
}

impl<T: Element> Turn<T> {
    /// No axis along which neighbours are neighbours in memory.
    fn without_neighbours(&self, layout: &Layout) -> Fault {
        Fault::Refused {
            kernel: self.spec.id.to_string(),
            refusal: Refusal::Layout {
                needs: self.spec.needs.layout,
                actual: layout.kind(),
            },
        }
    }
}

/// Whether tensors without gaps and elements of so many bytes come down to lines.
fn moves_lines(op: &Transpose, bytes: usize) -> bool {
    let perm: Vec<usize> = op.perm.iter().collect();
    let Some(source) = Layout::contiguous(op.shape).permuted(&perm) else {
        return false;
    };
    let target = Layout::contiguous(*source.shape());
    let shape = Axes::new(&source, &target, bytes).shape();
    matches!(shape, Some(Shape::Lines { .. }))
}

/// One call, ready to be shared out.
struct Work {
    from: Start<u8>,
    to: Start<u8>,
    shape: Shape,
    level: Option<Level>,
    tile: usize,
    threads: usize,
    schedule: Schedule,
}

impl Units for Work {
    fn with<U: Copy>(self) {
        match self.shape {
            Shape::Lines { length, others } => {
                let grain = (4096 / (length * size_of::<U>()).max(1)).max(1);
                share(
                    self.threads,
                    self.schedule,
                    others.count(),
                    grain,
                    |_, lines| {
                        // SAFETY: `execute` made sure that pointers and shape are those of two tensors without
                        // gaps that do not overlap; `share` gives each line to one thread.
                        unsafe { self.lines::<U>(length, &others, lines) }
                    },
                );
            }
            Shape::Matrices {
                rows,
                columns,
                others,
            } => {
                let cuts = Cuts::new(rows.size, columns.size, self.tile);
                let pieces = others.count() * cuts.count();
                share(self.threads, self.schedule, pieces, 1, |_, pieces| {
                    for piece in pieces {
                        let (matrix, cut) = (piece / cuts.count(), piece % cuts.count());
                        // SAFETY: as above; each cut of each matrix goes to one thread.
                        unsafe {
                            self.matrix::<U>((rows, columns), others.offsets(matrix), cuts.at(cut))
                        };
                    }
                });
            }
        }
    }
}

impl Work {
    /// # Safety
    ///
    /// The lines are inside both tensors, and no other thread writes them.
    unsafe fn lines<U: Copy>(&self, length: usize, others: &Axes, lines: Range<usize>) {
        let (from, to) = (self.from.at(0).cast::<U>(), self.to.at(0).cast::<U>());
        // The innermost of the other axes is walked by its steps, which is cheaper than its offsets.
        let Axis {
            size,
            from: from_step,
            to: to_step,
        } = match others.as_slice().last() {
            Some(axis) => *axis,
            None => Axis {
                size: 1,
                from: 0,
                to: 0,
            },
        };
        let mut line = lines.start;
        while line < lines.end {
            let together = (size - line % size).min(lines.end - line);
            let (start, end) = others.offsets(line);
            for i in 0..together as isize {
                // SAFETY: offsets of a line inside both tensors, by the caller's word.
                unsafe {
                    let from = from.offset(start + i * from_step).cast::<u8>();
                    let to = to.offset(end + i * to_step).cast::<u8>();
                    std::ptr::copy_nonoverlapping(from, to, length * size_of::<U>());
                }
            }
            line += together;
        }
    }

    /// # Safety
    ///
    /// The part is inside both tensors, and no other thread writes it.
    unsafe fn matrix<U: Copy>(
        &self,
        (rows, columns): (Axis, Axis),
        (from, to): (isize, isize),
        (row, column): (Range<usize>, Range<usize>),
    ) {
        // SAFETY: first element of a part that is inside, by the caller's word.
        unsafe {
            let (from_step, to_step) = (columns.from, rows.to);
            let from = from + row.start as isize + column.start as isize * from_step;
            let to = to + column.start as isize + row.start as isize * to_step;
            let part = Part {
                from: self.from.at(0).cast::<U>().cast_const().offset(from),
                from_step,
                to: self.to.at(0).cast::<U>().offset(to),
                to_step,
                rows: row.len(),
                columns: column.len(),
            };
            match self.level {
                Some(level) => part.in_registers(level, self.tile),
                None => part.blocked(self.tile),
            }
        }
    }
}

/// A matrix cut into bands of squares, each a piece of work.
struct Cuts {
    rows: usize,
    columns: usize,
    tile: usize,
}

impl Cuts {
    /// Squares in a band: enough to be worth handing out, few enough for every thread to get some.
    const BAND: usize = 8;

    fn new(rows: usize, columns: usize, tile: usize) -> Self {
        Self {
            rows,
            columns,
            tile,
        }
    }

    fn across(&self) -> usize {
        self.columns.div_ceil(self.tile * Self::BAND)
    }

    fn count(&self) -> usize {
        self.rows.div_ceil(self.tile) * self.across()
    }

    /// Rows and columns of one piece.
    fn at(&self, cut: usize) -> (Range<usize>, Range<usize>) {
        let (down, right) = (cut / self.across(), cut % self.across());
        let row = down * self.tile;
        let column = right * self.tile * Self::BAND;
        (
            row..(row + self.tile).min(self.rows),
            column..(column + self.tile * Self::BAND).min(self.columns),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_cover_a_matrix_once_and_depend_on_the_tile() {
        for (rows, columns, tile) in [(1, 1, 16), (100, 33, 16), (40, 300, 16), (64, 64, 64)] {
            let cuts = Cuts::new(rows, columns, tile);
            let mut seen = vec![0; rows * columns];
            for cut in 0..cuts.count() {
                let (row, column) = cuts.at(cut);
                assert!(row.len() <= tile && column.len() <= tile * Cuts::BAND);
                for r in row {
                    column.clone().for_each(|c| seen[r * columns + c] += 1);
                }
            }
            assert!(seen.iter().all(|n| *n == 1), "{rows}x{columns} by {tile}");
        }
        assert_eq!(Cuts::new(128, 1024, 16).count(), 8 * 8);
        assert_eq!(Cuts::new(128, 1024, 128).count(), 1);
    }
}
