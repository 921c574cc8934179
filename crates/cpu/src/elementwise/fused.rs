//! Chains over tensors without gaps, in one pass.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use kernelwise_backend::{
    Axis, Call, Carver, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Space, knobs,
};
use kernelwise_types::units::Bytes;
use kernelwise_types::{InvalidKernelId, KernelSpec, Machine, Numerics, Technique, Workload};

use super::chain::{Chain, repeated_rows};
use super::loops::{Out, Stepped};
use super::{of_another_operation, steps_of};
use crate::declare::{Needing, spec};
use crate::isa::Level;
use crate::movement::stream::{LINE, Stream, pages};
use crate::pool::{SHARED_ONLY, Schedule, share_slice, threads};

knobs! {
    /// How the elements are cut and shared out.
    pub(super) struct Blocks {
        /// Threads that work at once.
        threads,
        /// Elements that go through all steps together.
        block,
        /// 0: one piece per thread; 1: more pieces, for whoever is free.
        schedule,
    }
}

knobs! {
    /// How the elements are cut, shared out and streamed: [`Blocks`] and one more.
    struct Streaming {
        /// Threads that work at once.
        threads,
        /// Elements that go through all steps together.
        block,
        /// 0: one piece per thread; 1: more pieces, for whoever is free.
        schedule,
        /// Pages that a thread works on side by side.
        pages,
    }
}

/// Most elements of a block: two buffers of them and the operands share the nearest cache.
const MAX_BLOCK: usize = 1024;

/// How much longer blocks are that go through one loop.
const ONE_LOOP: usize = 8;

/// How much longer if the loop writes past the caches: so many that pages can be worked on side by side.
const FAR_LOOP: usize = 1 << 10;

/// Results of more bytes than this do not come from the nearest caches: operands are asked for ahead.
pub(super) const FAR: usize = 4 << 20;

/// Threads get whole multiples of so many elements, so that they do not write to the same lines.
const GRAIN: usize = 1024;

/// Where results go.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stores {
    /// To memory by way of the caches.
    Plain,
    /// Past them.
    Streaming(Stream),
}

/// Chains or activations of one element type at one level.
pub(super) struct Fused<T> {
    spec: KernelSpec,
    level: Level,
    stores: Stores,
    element: PhantomData<fn() -> T>,
}

impl<T: Stepped> Fused<T> {
    /// For an operation, `elementwise` or `activation`.
    pub(super) fn new(
        operation: &str,
        level: Level,
        stores: Stores,
    ) -> Result<Self, InvalidKernelId> {
        let variant = match stores {
            Stores::Plain => level.name().to_owned(),
            Stores::Streaming(_) => format!("{}-stream", level.name()),
        };
        let technique = match operation {
            "elementwise" => Technique::Fused,
            _ => Technique::Vector,
        };
        // Integers wrap at every step wherever it is computed; floats are rounded at every step here, at
        // the end in the reference.
        let numerics = match T::DTYPE.is_float() {
            true => Numerics::Reordered,
            false => Numerics::BitIdentical,
        };
        Ok(Self {
            spec: spec(operation, &[T::DTYPE], &variant, technique, numerics)?.on(level),
            level,
            stores,
            element: PhantomData,
        })
    }
}

impl<T: Stepped> Kernel for Fused<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn space(&self, workload: &Workload, machine: &Machine) -> Space {
        let threads = Axis::threads(machine);
        let block = Axis::new(512, [256, MAX_BLOCK as u32]);
        let schedule = Axis::switch(false);
        match self.stores {
            Stores::Plain => Space::of::<Blocks, 3>([threads, block, schedule])
                .with_constraint(SHARED_ONLY, |knobs: Blocks| {
                    knobs.threads > 1 || knobs.schedule == 0
                }),
            Stores::Streaming(stream) => {
                // Blocks of several loops are shorter than a page.
                let steps = steps_of(workload).map(|(steps, _)| steps);
                let loops =
                    steps.and_then(|steps| Chain::<T>::empty(self.level, steps).streams(stream));
                let pages = match loops {
                    Some(1) => pages(machine),
                    _ => Axis::new(1, []),
                };
                Space::of::<Streaming, 4>([threads, block, schedule, pages])
                    .with_constraint(SHARED_ONLY, |knobs: Streaming| {
                        knobs.threads > 1 || knobs.schedule == 0
                    })
            }
        }
    }

    fn workspace(&self, workload: &Workload, setting: &Setting) -> Bytes {
        let Some((steps, shape)) = steps_of(workload) else {
            return Bytes(0);
        };
        let block = block_of(setting);
        let rooms =
            repeated_rows::<T>(&steps, &shape, block).map(|length| Carver::room::<T>(length).0);
        Bytes(rooms.sum())
    }

    fn hint(&self) -> Hint {
        // Streaming pays from about where results outgrow the caches of most machines.
        let outgrown = ((32 << 20) / size_of::<T>()) as u64;
        match (self.stores, self.level == Level::PORTABLE) {
            (Stores::Streaming(_), _) => Hint::percent(85).best_for(outgrown..=u64::MAX),
            (Stores::Plain, false) => Hint::percent(70).best_for(0..=outgrown),
            (Stores::Plain, true) => Hint::percent(50).best_for(0..=outgrown),
        }
    }
}

fn block_of(setting: &Setting) -> usize {
    (Blocks::of(setting).block as usize).clamp(1, MAX_BLOCK)
}

impl<T: Stepped> HostKernel for Fused<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let (workload, inputs, outputs) = call.parts();
        let refused = || of_another_operation(&self.spec, workload);
        let (Some((steps, _)), [output]) = (steps_of(workload), outputs) else {
            return Err(refused());
        };
        let knobs = Blocks::of(setting);
        let mut pieces = scratch.carve();
        let chain = Chain::<T>::new(self.level, steps, inputs, block_of(setting), &mut pieces)?;
        let out = output.as_mut_slice::<T>()?;
        let chain = chain.filter(|chain| chain.loops().is_some() && chain.len() == out.len());
        let chain = chain.ok_or_else(refused)?;
        let threads = threads(knobs.threads);
        let schedule = Schedule::of(knobs.schedule);
        share_slice(
            threads,
            schedule,
            out,
            GRAIN,
            |position, piece| match self.stores {
                Stores::Plain => near(&chain, position, piece),
                Stores::Streaming(stream) => {
                    let stream = stream.side_by_side(Streaming::of(setting).pages);
                    past(&chain, stream, position, piece);
                }
            },
        );
        Ok(())
    }
}

/// Every block to where it belongs.
fn near<T: Stepped>(chain: &Chain<'_, T>, position: usize, piece: &mut [T]) {
    // One loop needs no buffers, so nothing keeps its blocks short.
    let (room, factor) = match chain.loops() {
        Some(1) => (0, ONE_LOOP),
        _ => (piece.len().min(MAX_BLOCK), 1),
    };
    let (mut a, mut b) = (Buffer::new(), Buffer::new());
    let mut between = [a.first(room), b.first(room)];
    let ahead = room > 0 && size_of_val(piece) > FAR;
    let mut done = 0;
    while done < piece.len() {
        let length = chain.next_block(position + done, piece.len() - done, factor);
        if ahead {
            chain.expect(position + done + length, length);
        }
        let out = Out::Near(&mut piece[done..done + length]);
        chain.block(position + done, length, &mut between, out);
        done += length;
    }
}

/// Every block past the caches: as it is made, or by way of a buffer if the last loop cannot do that.
fn past<T: Stepped>(chain: &Chain<'_, T>, stream: Stream, position: usize, piece: &mut [T]) {
    let most = piece.len().min(MAX_BLOCK);
    let direct = chain.streams(stream);
    let (room, factor) = match direct.or_else(|| chain.loops()) {
        Some(1) if direct.is_some() => (0, FAR_LOOP),
        Some(1) => (0, 1),
        _ => (most, 1),
    };
    let (mut a, mut b, mut c) = (Buffer::new(), Buffer::new(), Buffer::new());
    let mut between = [a.first(room), b.first(room)];
    let results = c.first(if direct.is_some() { 0 } else { most });
    let ahead = factor == 1 && size_of_val(piece) > FAR;
    let mut done = 0;
    while done < piece.len() {
        let length = chain.next_block(position + done, piece.len() - done, factor);
        let length = to_line(&piece[done..], length);
        if ahead {
            chain.expect(position + done + length, length);
        }
        let out = &mut piece[done..done + length];
        if direct.is_some() {
            chain.block(
                position + done,
                length,
                &mut between,
                Out::Past(out, stream),
            );
        } else {
            let near = Out::Near(&mut results[..length]);
            chain.block(position + done, length, &mut between, near);
            stream.copy(&results[..length], out);
        }
        done += length;
    }
    stream.finish();
}

/// So many elements, or a few less, so that what follows them begins with a cache line.
fn to_line<T>(slice: &[T], length: usize) -> usize {
    let line = LINE / size_of::<T>();
    let over = (slice[length..].as_ptr().addr() % LINE) / size_of::<T>();
    if length < slice.len() && over < length && line > 1 {
        length - over
    } else {
        length
    }
}

/// Room for a block on the stack, aligned to cache lines.
#[repr(align(64))]
struct Buffer<T>([MaybeUninit<T>; MAX_BLOCK]);

impl<T: Stepped> Buffer<T> {
    fn new() -> Self {
        Self([MaybeUninit::uninit(); MAX_BLOCK])
    }

    /// The first so many elements, zero; at most [`MAX_BLOCK`].
    fn first(&mut self, length: usize) -> &mut [T] {
        let first = &mut self.0[..length.min(MAX_BLOCK)];
        first.fill(MaybeUninit::new(T::ZERO));
        // SAFETY: every element of the slice was just written.
        unsafe { std::slice::from_raw_parts_mut(first.as_mut_ptr().cast(), first.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_end_where_lines_end() {
        let memory = vec![0f32; 200];
        for start in 0..16 {
            let slice = &memory[start..];
            for length in [1, 7, 16, 17, 40, 100] {
                let cut = to_line(slice, length);
                let aligned = slice[cut..].as_ptr().addr().is_multiple_of(LINE);
                assert!(0 < cut && cut <= length && (aligned || length < 16));
            }
            assert_eq!(to_line(slice, slice.len()), slice.len());
        }
    }
}
