//! Scans with vectors, and of long rows in parallel blocks.
//!
//! Inside a row, each vector is scanned in its register, by joining it with itself moved up by one lane, by two, by four; what came
//! before is joined to all lanes. Rows are shared out among threads while there are enough of them. Otherwise a row is cut
//! into blocks: what each block comes to is found in parallel, these totals are scanned, and each block is scanned from what
//! came before it. That reads the row twice, which pays only where threads would be idle.
//!
//! Lines that are not runs of memory are scanned side by side.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use kernelwise_backend::{
    Axis, Call, Carver, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Space, knobs,
};
use kernelwise_types::op::{Scan, ScanKind};
use kernelwise_types::units::Bytes;
use kernelwise_types::{InvalidKernelId, KernelSpec, Machine, Refusal, Technique, Workload};

use super::Kinds;
use crate::declare::{Needing, spec};
use crate::isa::Level;
use crate::pool::{self, Schedule, share, share_slice};
use crate::reduce::fold::{Fold, Largest, Product, Smallest, Sum, fold_run};
use crate::reduce::lanes::{Job, MOST_LANES, Number, Vector};
use crate::rows::lines::{ABREAST, Lines, Parts, Strip};

knobs! {
    /// How a scan is cut and carried out.
    pub(super) struct ScanKnobs {
        /// Threads that work at once.
        threads,
        /// 0 for one piece per thread, 1 for several.
        schedule,
        /// Elements in a block, where rows are cut.
        block,
    }
}

pub(super) struct BlockedScan<T> {
    spec: KernelSpec,
    kinds: &'static Kinds,
    level: Level,
    element: PhantomData<fn(T)>,
}

pub(super) fn kernel<T: Number>(
    kinds: &'static Kinds,
    level: Level,
) -> Result<Arc<dyn HostKernel>, InvalidKernelId> {
    let variant = format!("blocked-{}", level.name());
    let spec = spec(
        kinds.operation,
        &[T::DTYPE],
        &variant,
        Technique::Blocked,
        kinds.numerics,
    )?;
    Ok(Arc::new(BlockedScan::<T> {
        spec: spec.on(level),
        kinds,
        level,
        element: PhantomData,
    }))
}

/// Elements in a block, unless measured otherwise.
const BLOCK: u32 = 16384;

/// The other blocks worth trying: those that cut a row, and one that leaves it whole. Lines side by side are never cut, nor
/// are rows enough for all threads.
fn blocks(lines: Lines, threads: u32) -> impl Iterator<Item = u32> {
    let cut = lines.inner == 1 && lines.outer < threads as usize;
    let cuts = move |block: u32| cut && (block as usize) < lines.length;
    let smaller = [BLOCK / 4].into_iter().filter(move |block| cuts(*block));
    let larger = [BLOCK * 4].into_iter().filter(move |_| cuts(BLOCK));
    smaller.chain(larger)
}

/// How one scan is cut.
#[derive(Debug, Clone, Copy)]
struct Cut {
    lines: Lines,
    threads: usize,
    schedule: Schedule,
    /// Elements in a block.
    block: usize,
    /// Blocks in a row; none where rows stay whole.
    blocks: usize,
}

impl Cut {
    fn new(op: &Scan, setting: &Setting) -> Self {
        let knobs = ScanKnobs::of(setting);
        let lines = Lines::along(&op.shape, op.axis);
        let threads = pool::threads(knobs.threads);
        let block = knobs.block.max(1) as usize;
        let whole = threads == 1 || lines.inner > 1 || lines.outer >= threads;
        let blocks = lines.length.div_ceil(block);
        Self {
            lines,
            threads,
            schedule: Schedule::of(knobs.schedule),
            block,
            blocks: if whole || blocks < 2 { 0 } else { blocks },
        }
    }
}

impl<T: Number> Kernel for BlockedScan<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        self.kinds.of(workload).map(drop)
    }

    fn space(&self, workload: &Workload, machine: &Machine) -> Space {
        let op = self.kinds.of(workload);
        let lines = op.map_or(Lines::ONE, |op| Lines::along(&op.shape, op.axis));
        Space::of::<ScanKnobs, 3>([
            Axis::threads(machine),
            Axis::switch(false),
            Axis::new(BLOCK, blocks(lines, machine.usable_threads())),
        ])
        .with_constraint(pool::SHARED_ONLY, |knobs: ScanKnobs| {
            knobs.threads > 1 || knobs.schedule == 0
        })
        .with_constraint(
            format!("threads > {} or block = {BLOCK}", lines.outer),
            move |knobs: ScanKnobs| {
                pool::threads(knobs.threads) > lines.outer || knobs.block == BLOCK
            },
        )
    }

    fn workspace(&self, workload: &Workload, setting: &Setting) -> Bytes {
        match self
            .kinds
            .of(workload)
            .map(|op| Cut::new(op, setting).blocks)
        {
            Ok(0) | Err(_) => Bytes(0),
            Ok(blocks) => Carver::room::<T>(blocks),
        }
    }

    fn hint(&self) -> Hint {
        let percent = if self.level == Level::PORTABLE {
            20
        } else {
            50
        };
        Hint::percent(percent)
    }
}

impl<T: Number> HostKernel for BlockedScan<T> {
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
        let (x, out) = (x.as_slice::<T>()?, out.as_mut_slice::<T>()?);
        let cut = Cut::new(op, setting);
        if cut.lines.elements() != x.len() || x.len() != out.len() {
            return Err(Fault::kernel(
                &self.spec.id,
                "the tensors do not fit the shape",
            ));
        }
        match op.kind {
            ScanKind::Sum => self.scan(Sum, op, &cut, x, out, scratch),
            ScanKind::Prod => self.scan(Product, op, &cut, x, out, scratch),
            ScanKind::Max => self.scan(Largest, op, &cut, x, out, scratch),
            ScanKind::Min => self.scan(Smallest, op, &cut, x, out, scratch),
        }
    }
}

/// What is shared out, behind a pointer: there is one for every kind, and the sharing need not be compiled for each.
type Slices<'a, T> = dyn Fn(usize, &mut [T]) + Sync + 'a;
type Pieces<'a> = dyn Fn(usize, Range<usize>) + Sync + 'a;

impl<T: Number> BlockedScan<T> {
    fn scan<F: Fold<T>>(
        &self,
        fold: F,
        op: &Scan,
        cut: &Cut,
        x: &[T],
        out: &mut [T],
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (exclusive, reverse) = (op.exclusive, op.reverse);
        let Cut {
            lines,
            threads,
            schedule,
            ..
        } = *cut;
        if lines.inner > 1 {
            let out = Parts::new(out);
            let strips: &Pieces<'_> = &|_, strips| {
                for strip in strips.map(|number| lines.strip(number)) {
                    let job = Columns {
                        fold,
                        exclusive,
                        reverse,
                        strip,
                        x,
                        out: &out,
                    };
                    T::on(self.level, job);
                }
            };
            share(threads, schedule, lines.strips(), 1, strips);
            return Ok(());
        }
        let run = |x: &[T], out: &mut [T], before: T| {
            let job = Run {
                fold,
                exclusive,
                reverse,
                x,
                out,
                before,
            };
            T::on(self.level, job);
        };
        if cut.blocks == 0 {
            let rows: &Slices<'_, T> = &|first, piece| {
                let rows = x[first..][..piece.len()].chunks(lines.length);
                for (x, out) in rows.zip(piece.chunks_mut(lines.length)) {
                    run(x, out, F::START);
                }
            };
            share_slice(threads, schedule, out, lines.length, rows);
            return Ok(());
        }
        let totals: &mut [T] = scratch.slice(cut.blocks)?;
        let rows = x.chunks(lines.length).zip(out.chunks_mut(lines.length));
        for (x, out) in rows {
            self.blocks(fold, reverse, cut, x, totals);
            let totals = &*totals;
            let blocks: &Slices<'_, T> = &|first, piece| {
                let blocks = x[first..][..piece.len()].chunks(cut.block);
                let outs = piece.chunks_mut(cut.block);
                for ((x, out), &before) in blocks.zip(outs).zip(&totals[first / cut.block..]) {
                    run(x, out, before);
                }
            };
            share_slice(threads, schedule, out, cut.block, blocks);
        }
        Ok(())
    }

    /// What comes before each block of a row.
    fn blocks<F: Fold<T>>(&self, fold: F, reverse: bool, cut: &Cut, x: &[T], totals: &mut [T]) {
        let blocks: &Slices<'_, T> = &|first, piece| {
            for (block, total) in x.chunks(cut.block).skip(first).zip(piece) {
                *total = T::on(self.level, Total { fold, block });
            }
        };
        share_slice(cut.threads, cut.schedule, totals, 1, blocks);
        let mut so_far = F::START;
        let mut step = |total: &mut T| {
            let before = so_far;
            so_far = fold.join(so_far, *total);
            *total = before;
        };
        if reverse {
            totals.iter_mut().rev().for_each(&mut step);
        } else {
            totals.iter_mut().for_each(&mut step);
        }
    }
}

/// What a block comes to.
struct Total<'a, T, F> {
    fold: F,
    block: &'a [T],
}

impl<T: Number, F: Fold<T>> Job<T> for Total<'_, T, F> {
    type Output = T;

    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) -> T {
        // SAFETY: the caller vouches for the instructions.
        unsafe { fold_run::<V, F, 4>(self.fold, self.block) }
    }
}

/// A run of memory, and what comes before it.
struct Run<'a, T, F> {
    fold: F,
    exclusive: bool,
    reverse: bool,
    x: &'a [T],
    out: &'a mut [T],
    before: T,
}

impl<T: Number, F: Fold<T>> Job<T> for Run<'_, T, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            if self.reverse {
                run::<V, F, true>(self);
            } else {
                run::<V, F, false>(self);
            }
        }
    }
}

/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn run<V: Vector, F: Fold<V::Scalar>, const REVERSE: bool>(run: Run<'_, V::Scalar, F>) {
    let Run {
        fold,
        exclusive,
        x,
        out,
        before,
        ..
    } = run;
    let length = x.len().min(out.len());
    let whole = length / V::LANES * V::LANES;
    let mut before = before;
    let mut lanes = [F::START; MOST_LANES];
    let mut done = 0;
    while done < whole {
        let at = if REVERSE {
            length - done - V::LANES
        } else {
            done
        };
        // SAFETY: `done` is at least a vector below `whole`, so a vector from `at` on is inside both slices;
        // `lanes` holds the widest vector; the caller vouches for the instructions.
        unsafe {
            let start = V::splat(F::START);
            let mut scanned = V::load(x.as_ptr().add(at));
            if REVERSE {
                scanned = scanned.reversed();
            }
            let mut by = 1;
            while by < V::LANES {
                scanned = fold.join_all(scanned.moved_up(by, start), scanned);
                by *= 2;
            }
            scanned.store(lanes.as_mut_ptr());
            if exclusive {
                scanned = scanned.moved_up(1, start);
            }
            let mut result = fold.join_all(V::splat(before), scanned);
            if REVERSE {
                result = result.reversed();
            }
            result.store(out.as_mut_ptr().add(at));
        }
        before = fold.join(before, lanes[V::LANES - 1]);
        done += V::LANES;
    }
    for done in whole..length {
        let at = if REVERSE { length - done - 1 } else { done };
        let so_far = fold.take(before, x[at]);
        out[at] = if exclusive { before } else { so_far };
        before = so_far;
    }
}

/// Lines side by side.
struct Columns<'a, T, F> {
    fold: F,
    exclusive: bool,
    reverse: bool,
    strip: Strip,
    x: &'a [T],
    out: &'a Parts<'a, T>,
}

impl<T: Number, F: Fold<T>> Job<T> for Columns<'_, T, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let strip = self.strip;
        let mut so_far = [F::START; ABREAST];
        let so_far = &mut so_far[..strip.width];
        for row in 0..strip.length {
            let row = if self.reverse {
                strip.length - 1 - row
            } else {
                row
            };
            // SAFETY: strips do not overlap, and each is worked on by one thread, row by row.
            let out = unsafe { self.out.part(strip.start + row * strip.stride, strip.width) };
            let lanes = out.iter_mut().zip(strip.row(self.x, row)).zip(&mut *so_far);
            if self.exclusive {
                for ((out, &x), so_far) in lanes {
                    *out = *so_far;
                    *so_far = self.fold.take(*so_far, x);
                }
            } else {
                for ((out, &x), so_far) in lanes {
                    *so_far = self.fold.take(*so_far, x);
                    *out = *so_far;
                }
            }
        }
    }
}
