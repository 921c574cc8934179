//! Pairwise sums: halves are summed apart and then added, so that an error grows with the logarithm of the length
//! instead of the length (Higham, "The accuracy of floating point summation"). Leaves of some size are summed with vectors;
//! what they come to is paired by a binary counter, which needs no recursion and no list.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use kernelwise_backend::{
    Axis, Call, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Space, knobs,
};
use kernelwise_types::op::{Reduce, ReduceKind};
use kernelwise_types::units::Bytes;
use kernelwise_types::{
    InvalidKernelId, KernelSpec, Machine, Numerics, Refusal, Technique, Workload,
};

use super::fold::{Fold, Squares, Sum, fold_columns, fold_run};
use super::frame::Frame;
use super::kinds::{Kinds, Reducible, finished};
use super::lanes::{Job, Number, Vector};
use super::vector::{Crew, check};
use crate::declare::{Needing, spec};
use crate::isa::Level;
use crate::pool;

knobs! {
    /// How a pairwise sum is carried out.
    pub(super) struct PairwiseKnobs {
        /// Threads that work at once.
        threads,
        /// 0 for one piece per thread, 1 for several.
        schedule,
        /// Elements that are summed in a row before pairing begins.
        leaf,
    }
}

/// A pairwise sum of elements of type `T`.
pub(super) struct Pairwise<T> {
    spec: KernelSpec,
    kinds: Kinds,
    level: Level,
    element: PhantomData<fn(T)>,
}

/// The kernel for a type of float.
pub(super) fn kernel<T: Reducible>(level: Level) -> Result<Arc<dyn HostKernel>, InvalidKernelId> {
    const KINDS: &[ReduceKind] = &[ReduceKind::Sum, ReduceKind::Mean, ReduceKind::L2];
    let kinds = Kinds {
        kinds: KINDS,
        ..T::KINDS[0]
    };
    let spec = spec(
        kinds.operation,
        kinds.dtypes,
        "pairwise",
        Technique::Algorithmic,
        Numerics::Reordered,
    )?;
    Ok(Arc::new(Pairwise::<T> {
        spec: spec.on(level),
        kinds,
        level,
        element: PhantomData,
    }))
}

/// Columns that are summed together.
const COLUMNS: usize = 32;

/// Sums of 2ⁿ leaves, at most one for each n: adding a leaf carries as counting does.
struct Counter<const W: usize, T> {
    sums: [[T; W]; usize::BITS as usize],
    leaves: usize,
}

impl<const W: usize, T: Number> Counter<W, T> {
    #[inline(always)]
    fn new() -> Self {
        Self {
            sums: [[T::ZERO; W]; usize::BITS as usize],
            leaves: 0,
        }
    }

    #[inline(always)]
    fn add(&mut self, mut leaf: [T; W]) {
        // As many sums are carried as the number of leaves ends in ones.
        let carried = self.leaves.trailing_ones() as usize;
        for sum in &self.sums[..carried] {
            leaf = added(sum, &leaf);
        }
        if let Some(place) = self.sums.get_mut(carried) {
            *place = leaf;
        }
        self.leaves += 1;
    }

    /// All of them, the smaller sums first.
    #[inline(always)]
    fn total(&self) -> [T; W] {
        let mut total = [T::ZERO; W];
        for (bit, sum) in self.sums.iter().enumerate() {
            if self.leaves >> bit & 1 == 1 {
                total = added(sum, &total);
            }
        }
        total
    }
}

#[inline(always)]
fn added<const W: usize, T: Number>(a: &[T; W], b: &[T; W]) -> [T; W] {
    std::array::from_fn(|i| a[i].plus(b[i]))
}

/// Some sums of a part of the elements each is made of.
struct Summed<'a, T, F> {
    fold: F,
    leaf: usize,
    frame: &'a Frame,
    x: &'a [T],
    first: usize,
    depth: Range<usize>,
    out: &'a mut [T],
}

impl<T: Number, F: Fold<T>> Job<T> for Summed<'_, T, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let Self {
            fold,
            leaf,
            frame,
            x,
            first,
            depth,
            out,
        } = self;
        let run = frame.run;
        if frame.rows {
            for (result, out) in (first..).zip(out) {
                let x = &x[frame.kept.offset(result)..];
                let (mut sums, mut position) = (Counter::<1, T>::new(), depth.start);
                while position < depth.end {
                    let (step, inside) = (position / run, position % run);
                    let length = leaf.min(run - inside).min(depth.end - position);
                    let elements = &x[frame.reduced.offset(step) + inside..][..length];
                    // SAFETY: the caller vouches for the instructions.
                    sums.add([unsafe { fold_run::<V, F, 2>(fold, elements) }]);
                    position += length;
                }
                *out = sums.total()[0];
            }
            return;
        }
        let mut done = 0;
        while done < out.len() {
            let (line, column) = ((first + done) / run, (first + done) % run);
            let width = COLUMNS.min(run - column).min(out.len() - done);
            let start = frame.kept.offset(line) + column;
            let (mut sums, mut position) = (Counter::<COLUMNS, T>::new(), depth.start);
            while position < depth.end {
                let end = depth.end.min(position.saturating_add(leaf));
                let mut columns = [T::ZERO; COLUMNS];
                // SAFETY: the caller vouches for the instructions; a row begins where the walks say and
                // has `run` elements, of which these are `width` from `column` on.
                unsafe {
                    let start = |row| start + frame.reduced.offset(row);
                    fold_columns::<V, F, 2>(fold, x, position..end, start, &mut columns[..width]);
                }
                sums.add(columns);
                position = end;
            }
            out[done..done + width].copy_from_slice(&sums.total()[..width]);
            done += width;
        }
    }
}

impl<T: Reducible> Pairwise<T> {
    fn summed<F: Fold<T>>(
        &self,
        fold: F,
        op: &Reduce,
        (crew, leaf): (Crew, usize),
        x: &[T],
        out: &mut [T],
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let frame = Frame::new(op);
        check(&self.spec, &frame, x.len(), out.len())?;
        let part = |first, depth, out: &mut [T]| {
            let job = Summed {
                fold,
                leaf,
                frame: &frame,
                x,
                first,
                depth,
                out,
            };
            T::on(self.level, job);
        };
        crew.reduce(&frame, out, scratch, &part, &|_, all| {
            let mut sums = Counter::<1, T>::new();
            all.for_each(|sum| sums.add([sum]));
            sums.total()[0]
        })?;
        for value in out {
            *value = finished(op.kind, *value, frame.depth());
        }
        Ok(())
    }
}

impl<T: Reducible> Kernel for Pairwise<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        self.kinds.of(workload).map(drop)
    }

    fn space(&self, _workload: &Workload, machine: &Machine) -> Space {
        Space::of::<PairwiseKnobs, 3>([
            Axis::threads(machine),
            Axis::switch(false),
            Axis::new(256, [64, 1024]),
        ])
        .with_constraint(pool::SHARED_ONLY, |knobs: PairwiseKnobs| {
            knobs.threads > 1 || knobs.schedule == 0
        })
    }

    fn workspace(&self, workload: &Workload, setting: &Setting) -> Bytes {
        let knobs = PairwiseKnobs::of(setting);
        let crew = Crew::new(knobs.threads, knobs.schedule);
        let op = self.kinds.of(workload);
        op.map_or(Bytes(0), |op| crew.room::<T>(&Frame::new(op)))
    }

    fn hint(&self) -> Hint {
        Hint::percent(60).best_for(0..=1 << 16)
    }
}

impl<T: Reducible> HostKernel for Pairwise<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (workload, inputs, outputs) = call.parts();
        let op = self.kinds.of(workload).map_err(|refusal| Fault::Refused {
            kernel: self.spec.id.to_string(),
            refusal,
        })?;
        let ([x], [out]) = (inputs, outputs) else {
            return Err(Fault::kernel(
                &self.spec.id,
                "takes one input and one output",
            ));
        };
        let knobs = PairwiseKnobs::of(setting);
        let crew = Crew::new(knobs.threads, knobs.schedule);
        let how = (crew, knobs.leaf.max(1) as usize);
        let (x, out) = (x.as_slice::<T>()?, out.as_mut_slice::<T>()?);
        match op.kind {
            ReduceKind::L2 => {
                let fold = Squares { centre: T::ZERO };
                self.summed(fold, op, how, x, out, scratch)
            }
            _ => self.summed(Sum, op, how, x, out, scratch),
        }
    }
}
