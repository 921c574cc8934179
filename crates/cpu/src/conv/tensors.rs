//! The tensors of a call, and how its images and groups are shared out.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use kernelwise_backend::{Call, Fault};
use kernelwise_types::{KernelSpec, Refusal};

use super::Float;
use super::geometry::Geometry;
use crate::pool::{self, Schedule, most_pieces, share};

/// Everything a convolution reads and writes, sizes checked.
pub(super) struct Tensors<'a, T> {
    pub(super) geometry: Geometry,
    pub(super) input: &'a [T],
    pub(super) weights: &'a [T],
    pub(super) output: &'a mut [T],
}

impl<'a, T: Float> Tensors<'a, T> {
    /// The tensors of a call; a fault if it is no convolution of contiguous `T`, or none that the kernel accepts.
    pub(super) fn of(
        call: &'a mut Call<'_, '_>,
        spec: &KernelSpec,
        accepts: impl Fn(&Geometry) -> Result<(), Refusal>,
    ) -> Result<Self, Fault> {
        let (workload, inputs, outputs) = call.parts();
        let refused = |refusal| Fault::Refused {
            kernel: spec.id.to_string(),
            refusal,
        };
        let foreign = || {
            refused(Refusal::Operation {
                kernel: spec.id.operation().to_owned(),
                workload: workload.operation().to_string(),
            })
        };
        let geometry = Geometry::of(workload)
            .filter(|_| workload.operation().name() == spec.id.operation())
            .ok_or_else(foreign)?;
        accepts(&geometry).map_err(refused)?;
        let ([input, weights], [output]) = (inputs, outputs) else {
            return Err(foreign());
        };
        let tensors = Self {
            geometry,
            input: input.as_slice()?,
            weights: weights.as_slice()?,
            output: output.as_mut_slice()?,
        };
        let fits = tensors.input.len() == geometry.n * geometry.c * geometry.plane()
            && tensors.weights.len() == geometry.k * geometry.depth()
            && tensors.output.len() == geometry.n * geometry.k * geometry.windows();
        if fits { Ok(tensors) } else { Err(foreign()) }
    }
}

/// One group of one image: what a thread works on when there are enough of them.
pub(super) struct Part<'a, T> {
    /// The channels of the group.
    pub(super) image: &'a [T],
    /// The filters of the group.
    pub(super) weights: &'a [T],
    /// The output channels of the group.
    pub(super) output: &'a mut [T],
}

/// How threads share a convolution: the groups of all images if there are enough of them, else the inside of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sharing {
    /// Threads that work on different parts.
    outside: usize,
    /// Threads that work on one part.
    pub(super) inside: usize,
    /// Parts that are worked on at the same time, at most.
    pub(super) pieces: usize,
    schedule: Schedule,
}

impl Sharing {
    pub(super) fn new(geometry: &Geometry, threads: u32, schedule: u32) -> Self {
        let threads = pool::threads(threads);
        let schedule = Schedule::of(schedule);
        let parts = geometry.n * geometry.groups;
        let (outside, inside) = if parts >= threads {
            (threads, 1)
        } else {
            (1, threads)
        };
        Self {
            outside,
            inside,
            pieces: most_pieces(outside, schedule).min(parts).max(1),
            schedule,
        }
    }

    /// Elements of scratch memory for all parts worked on at once, of which each needs so many. More than there can be
    /// stays more than there can be.
    pub(super) fn scratch_len(&self, each: usize) -> usize {
        each.saturating_mul(self.pieces)
    }

    /// Calls `body` for every part, with an equal share of the scratch memory for each of those worked on at once.
    pub(super) fn each<T: Float>(
        &self,
        tensors: Tensors<'_, T>,
        scratch: &mut [T],
        body: impl Fn(Part<'_, T>, &mut [T]) + Sync,
    ) {
        let Tensors {
            geometry,
            input,
            weights,
            output,
        } = tensors;
        let each = scratch.len() / self.pieces;
        let image = geometry.group_channels() * geometry.plane();
        let filters = geometry.group_filters() * geometry.depth();
        let block = geometry.group_filters() * geometry.windows();
        let (output, scratch) = (Shared::new(output), Shared::new(scratch));
        let parts = geometry.n * geometry.groups;
        share(self.outside, self.schedule, parts, 1, |piece, parts| {
            // SAFETY: pieces have numbers of their own.
            let scratch = unsafe { scratch.part(piece * each, each) };
            for part in parts {
                let group = part % geometry.groups;
                let part = Part {
                    image: &input[part * image..][..image],
                    weights: &weights[group * filters..][..filters],
                    // SAFETY: each part is visited once.
                    output: unsafe { output.part(part * block, block) },
                };
                body(part, scratch);
            }
        });
    }
}

/// A slice whose parts are given to different threads.
///
/// A part is inside the slice, or it is empty: asking for too much is a mistake that tests find, and never reaches
/// memory of others. Whoever goes on with the pointer of a part has to look at its length first.
pub(super) struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: parts in use do not overlap (`part`), so sharing this is sending parts.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub(super) fn new(slice: &'a mut [T]) -> Self {
        Self {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            borrow: PhantomData,
        }
    }

    /// So many elements from `first` on; none at all if there are not as many.
    ///
    /// # Safety
    /// No part overlaps another that is in use.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn part(&self, first: usize, len: usize) -> &'a mut [T] {
        if first.checked_add(len).is_none_or(|end| end > self.len) {
            debug_assert!(false, "{first} + {len} of {}", self.len);
            return &mut [];
        }
        // SAFETY: inside the slice, which is borrowed exclusively for 'a; the caller keeps parts apart.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(first), len) }
    }
}
