//! Vectors of partial results, on one or several threads.
//!
//! Results are shared out among threads as long as there are enough of them; otherwise each thread takes a part of the
//! elements, and the partial results are joined in the order of the parts. Which part is whose does not depend on who
//! is faster, so the same setting gives the same bits every time.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use kernelwise_backend::{
    Axis, Call, Carver, Fault, Hint, HostKernel, Kernel, Knobs, Plain, Scratch, Setting, Space,
    knobs,
};
use kernelwise_types::op::{Reduce, ReduceKind};
use kernelwise_types::units::Bytes;
use kernelwise_types::{InvalidKernelId, KernelSpec, Machine, Refusal, Technique, Workload};

use super::fold::{Fold, Largest, Product, Smallest, Squares, Sum, fold_columns, fold_run};
use super::frame::Frame;
use super::kinds::{Kinds, Reducible, finished, is_place};
use super::lanes::{Job, Number, Vector};
use super::place::{Order, Places, best_of};
use crate::declare::{Needing, spec};
use crate::isa::Level;
use crate::pool::{self, Schedule, most_pieces, share_slice};

knobs! {
    /// How a reduction of floats is cut and carried out.
    pub(super) struct FoldKnobs {
        /// Threads that work at once.
        threads,
        /// 0 for one piece per thread, 1 for several.
        schedule,
        /// Vectors of partial results: 1, 2, 4 or 8.
        unroll,
    }
}

knobs! {
    /// How reductions of integers, and places, are cut. They always keep four vectors: each number of vectors is compiled for
    /// every kind and type, and here that was not worth the size of the build.
    pub(super) struct CutKnobs {
        /// Threads that work at once.
        threads,
        /// 0 for one piece per thread, 1 for several.
        schedule,
    }
}

/// A vectorised reduction of elements of type `T`.
pub(super) struct VectorReduce<T> {
    spec: KernelSpec,
    kinds: &'static Kinds,
    level: Level,
    element: PhantomData<fn(T)>,
}

/// One kernel for each group of kinds.
pub(super) fn kernels<T: Reducible>(
    level: Level,
) -> Result<Vec<Arc<dyn HostKernel>>, InvalidKernelId> {
    let kernel = |kinds: &'static Kinds| {
        let spec = spec(
            kinds.operation,
            kinds.dtypes,
            level.name(),
            Technique::Vector,
            kinds.numerics,
        )?;
        Ok(Arc::new(VectorReduce::<T> {
            spec: spec.on(level),
            kinds,
            level,
            element: PhantomData,
        }) as Arc<dyn HostKernel>)
    };
    T::KINDS.iter().map(kernel).collect()
}

/// How the work is shared out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crew {
    pub(super) threads: usize,
    pub(super) schedule: Schedule,
}

/// What computes and what joins, behind pointers: there are many of both, and the sharing need not be compiled for each.
type Part<'a, R> = dyn Fn(usize, Range<usize>, &mut [R]) + Sync + 'a;
type Join<'a, R> = dyn Fn(usize, &mut dyn Iterator<Item = R>) -> R + 'a;

/// Columns that stay together when results are shared out.
const TOGETHER: usize = 64;

impl Crew {
    pub(super) fn new(threads: u32, schedule: u32) -> Self {
        Self {
            threads: pool::threads(threads),
            schedule: Schedule::of(schedule),
        }
    }

    /// Into how many parts the elements of each result are cut; one if there are results enough for all
    /// threads.
    pub(super) fn parts(&self, frame: &Frame) -> usize {
        let pieces = frame.results().div_ceil(Self::grain(frame));
        if self.threads == 1 || pieces >= self.threads {
            return 1;
        }
        most_pieces(self.threads, self.schedule).min(frame.depth())
    }

    /// Results that one thread computes together.
    fn grain(frame: &Frame) -> usize {
        if frame.rows {
            1
        } else {
            TOGETHER.min(frame.run)
        }
    }

    /// Computes all results: `part` gets a range of results, which of the elements of each to look at, and where to
    /// put what it makes of them; `join` makes one of what came of all parts of a result.
    pub(super) fn reduce<R: Plain>(
        &self,
        frame: &Frame,
        out: &mut [R],
        scratch: &mut Scratch,
        part: &Part<'_, R>,
        join: &Join<'_, R>,
    ) -> Result<(), Fault> {
        let (parts, depth) = (self.parts(frame), frame.depth());
        if parts == 1 {
            let grain = Self::grain(frame);
            share_slice(self.threads, self.schedule, out, grain, |first, piece| {
                part(first, 0..depth, piece);
            });
            return Ok(());
        }
        let results = frame.results();
        let partial: &mut [R] = scratch.slice(parts * results)?;
        share_slice(
            self.threads,
            self.schedule,
            partial,
            results,
            |position, piece| {
                for (number, partial) in (position / results..).zip(piece.chunks_mut(results)) {
                    let range = number * depth / parts..(number + 1) * depth / parts;
                    part(0, range, partial);
                }
            },
        );
        for (result, out) in out.iter_mut().enumerate() {
            let mut all = partial.iter().skip(result).step_by(results).copied();
            *out = join(result, &mut all);
        }
        Ok(())
    }

    /// Scratch memory for partial results.
    pub(super) fn room<R: Plain>(&self, frame: &Frame) -> Bytes {
        match self.parts(frame) {
            1 => Bytes(0),
            parts => Carver::room::<R>(parts.saturating_mul(frame.results())),
        }
    }
}

/// Some results from a part of the elements each is made of.
struct Folded<'a, T, F, const U: usize> {
    fold: F,
    frame: &'a Frame,
    x: &'a [T],
    first: usize,
    depth: Range<usize>,
    out: &'a mut [T],
}

impl<T: Number, F: Fold<T>, const U: usize> Job<T> for Folded<'_, T, F, U> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let Self {
            fold,
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
                let (mut so_far, mut position) = (F::START, depth.start);
                while position < depth.end {
                    let (step, inside) = (position / run, position % run);
                    let length = (run - inside).min(depth.end - position);
                    let elements = &x[frame.reduced.offset(step) + inside..][..length];
                    // SAFETY: the caller vouches for the instructions.
                    let folded = unsafe { fold_run::<V, F, U>(fold, elements) };
                    so_far = fold.join(so_far, folded);
                    position += length;
                }
                *out = so_far;
            }
            return;
        }
        let mut done = 0;
        while done < out.len() {
            let (line, column) = ((first + done) / run, (first + done) % run);
            let width = (run - column).min(out.len() - done);
            let so_far = &mut out[done..done + width];
            so_far.fill(F::START);
            let start = frame.kept.offset(line) + column;
            // SAFETY: the caller vouches for the instructions; a row begins where the walks say and has
            // `run` elements, of which these are `width` from `column` on.
            unsafe {
                let start = |row| start + frame.reduced.offset(row);
                fold_columns::<V, F, U>(fold, x, depth.clone(), start, so_far);
            }
            done += width;
        }
    }
}

impl<T: Reducible> VectorReduce<T> {
    fn folded<F: Fold<T>, const U: usize>(
        &self,
        fold: F,
        op: &Reduce,
        crew: Crew,
        x: &[T],
        out: &mut [T],
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let frame = Frame::new(op);
        check(&self.spec, &frame, x.len(), out.len())?;
        let part = |first, depth, out: &mut [T]| {
            let job = Folded::<T, F, U> {
                fold,
                frame: &frame,
                x,
                first,
                depth,
                out,
            };
            T::on(self.level, job);
        };
        crew.reduce(&frame, out, scratch, &part, &|_, all| {
            all.fold(F::START, |a, b| fold.join(a, b))
        })?;
        if matches!(op.kind, ReduceKind::Mean | ReduceKind::L2) {
            for value in out {
                *value = finished(op.kind, *value, frame.depth());
            }
        }
        Ok(())
    }

    fn places(
        &self,
        order: Order,
        op: &Reduce,
        crew: Crew,
        x: &[T],
        out: &mut [i64],
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let frame = Frame::new(op);
        check(&self.spec, &frame, x.len(), out.len())?;
        let part = |first, depth, out: &mut [i64]| {
            let job = Places {
                order,
                frame: &frame,
                x,
                first,
                depth,
                out,
            };
            T::on(self.level, job);
        };
        crew.reduce(&frame, out, scratch, &part, &|result, all| {
            best_of(order, &frame, x, result, all)
        })
    }

    /// With as many vectors as a setting says, where that is a parameter.
    fn unrolled<F: Fold<T>>(
        &self,
        fold: F,
        (op, setting): (&Reduce, &Setting),
        x: &[T],
        out: &mut [T],
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let knobs = FoldKnobs::of(setting);
        let crew = Crew::new(knobs.threads, knobs.schedule);
        if const { !T::DTYPE.is_float() } {
            return self.folded::<_, 4>(fold, op, crew, x, out, scratch);
        }
        match knobs.unroll {
            0 | 1 => self.folded::<_, 1>(fold, op, crew, x, out, scratch),
            2 | 3 => self.folded::<_, 2>(fold, op, crew, x, out, scratch),
            4..=7 => self.folded::<_, 4>(fold, op, crew, x, out, scratch),
            _ => self.folded::<_, 8>(fold, op, crew, x, out, scratch),
        }
    }

    /// Whether the number of vectors is a parameter.
    fn unrolls(&self, workload: &Workload) -> bool {
        T::DTYPE.is_float() && self.kinds.of(workload).is_ok_and(|op| !is_place(op.kind))
    }
}

/// That the walks end inside the memory. A call was checked, so they do; this is what soundness rests on.
pub(super) fn check(spec: &KernelSpec, frame: &Frame, x: usize, out: usize) -> Result<(), Fault> {
    if frame.results() == out && frame.results().checked_mul(frame.depth()) == Some(x) {
        Ok(())
    } else {
        Err(Fault::kernel(&spec.id, "the tensors do not fit the axes"))
    }
}

impl<T: Reducible> Kernel for VectorReduce<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        self.kinds.of(workload).map(drop)
    }

    fn space(&self, workload: &Workload, machine: &Machine) -> Space {
        let (threads, schedule) = (Axis::threads(machine), Axis::switch(false));
        if self.unrolls(workload) {
            Space::of::<FoldKnobs, 3>([threads, schedule, Axis::new(4, [1, 2, 8])])
                .with_constraint(pool::SHARED_ONLY, |knobs: FoldKnobs| {
                    knobs.threads > 1 || knobs.schedule == 0
                })
        } else {
            Space::of::<CutKnobs, 2>([threads, schedule])
                .with_constraint(pool::SHARED_ONLY, |knobs: CutKnobs| {
                    knobs.threads > 1 || knobs.schedule == 0
                })
        }
    }

    fn workspace(&self, workload: &Workload, setting: &Setting) -> Bytes {
        let knobs = CutKnobs::of(setting);
        let crew = Crew::new(knobs.threads, knobs.schedule);
        match self.kinds.of(workload) {
            Ok(op) if is_place(op.kind) => crew.room::<i64>(&Frame::new(op)),
            Ok(op) => crew.room::<T>(&Frame::new(op)),
            Err(_) => Bytes(0),
        }
    }

    fn hint(&self) -> Hint {
        let percent = if self.level == Level::PORTABLE {
            40
        } else {
            80
        };
        Hint::percent(percent)
    }
}

impl<T: Reducible> HostKernel for VectorReduce<T> {
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
        let x = x.as_slice::<T>()?;
        let knobs = CutKnobs::of(setting);
        let crew = Crew::new(knobs.threads, knobs.schedule);
        use ReduceKind::{ArgMax, ArgMin, L2, Max, Mean, Min, Prod, Sum as Total};
        let order = match op.kind {
            ArgMax => Some(Order::Largest),
            ArgMin => Some(Order::Smallest),
            _ => None,
        };
        if let Some(order) = order {
            return self.places(order, op, crew, x, out.as_mut_slice()?, scratch);
        }
        let out = out.as_mut_slice::<T>()?;
        let how = (op, setting);
        match op.kind {
            Total | Mean => self.unrolled(Sum, how, x, out, scratch),
            Prod => self.unrolled(Product, how, x, out, scratch),
            Max => self.unrolled(Largest, how, x, out, scratch),
            Min => self.unrolled(Smallest, how, x, out, scratch),
            L2 | ArgMax | ArgMin => {
                let fold = Squares { centre: T::ZERO };
                self.unrolled(fold, how, x, out, scratch)
            }
        }
    }
}
