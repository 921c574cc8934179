//! Stacks of products: threads share out the matrices, so that none of them is cut for the sake of threads.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Mutex;

use kernelwise_backend::{
    Axis, Call, Carver, Fault, Hint, HostKernel, Kernel, Knobs, Plain, Scratch, Setting, Space,
    knobs,
};
use kernelwise_types::units::Bytes;
use kernelwise_types::{
    InvalidKernelId, KernelSpec, LayoutKind, Machine, Numerics, Refusal, Technique, Workload,
};

use super::operands::Product;
use super::packed::{DEPTHS, hint};
use super::product::{self, problem, worst_packing};
use crate::declare::{Needing, spec};
use crate::gemm::{ProductError, Real, Tiles, multiply, scratch_len};
use crate::isa::Level;
use crate::pool::{SHARED_ONLY, Schedule, most_pieces, share, threads};

knobs! {
    /// How the stack is shared out.
    pub(crate) struct BatchedKnobs {
        /// Threads that work at once.
        threads,
        /// Whether threads take several small pieces each, instead of one.
        schedule,
        /// Most depth in a block.
        kc,
        /// Whether blocks of `a` are copied into panels.
        pack_a,
        /// Whether blocks of `b` are; they always are where neighbouring columns are no neighbours in memory.
        pack_b,
    }
}

/// Rows and columns in a block: matrices of a stack are rarely larger.
const ROWS: usize = 32;
const COLUMNS: usize = 1024;

impl BatchedKnobs {
    fn tiles(self) -> Tiles {
        Tiles {
            mc: ROWS,
            kc: self.kc as usize,
            nc: COLUMNS,
            pack_a: self.pack_a != 0,
            pack_b: self.pack_b != 0,
        }
    }

    fn threads(self) -> usize {
        threads(self.threads)
    }

    fn pieces(self) -> usize {
        most_pieces(self.threads(), Schedule::of(self.schedule))
    }
}

/// The kernel for one element type and level.
#[derive(Debug)]
pub(super) struct Batched<T> {
    spec: KernelSpec,
    level: Level,
    element: PhantomData<T>,
}

impl<T: Real> Batched<T> {
    pub(super) fn new(level: Level) -> Result<Self, InvalidKernelId> {
        let variant = format!("batched-{}", level.name());
        let (technique, numerics) = (Technique::Blocked, Numerics::Reordered);
        let spec = spec("matmul", &[T::DTYPE], &variant, technique, numerics)?;
        Ok(Self {
            spec: spec.on(level).following(LayoutKind::Strided),
            level,
            element: PhantomData,
        })
    }
}

impl<T: Real + Plain> Kernel for Batched<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        match problem(workload) {
            Some(product) if product.batch > 1 => Ok(()),
            _ => Err(Refusal::Shape {
                condition: "needs a stack of at least two products".to_owned(),
            }),
        }
    }

    fn space(&self, workload: &Workload, machine: &Machine) -> Space {
        let Some(product) = problem(workload) else {
            return Space::none();
        };
        let tiles = product::first_tiles::<T>(self.level, workload, product, machine);
        Space::of::<BatchedKnobs, _>([
            Axis::threads(machine),
            Axis::switch(false),
            product::sizes(tiles.kc, &DEPTHS, product.k),
            Axis::switch(tiles.pack_a),
            product::packs(tiles.pack_b, !product.trans_b),
        ])
        .with_constraint(SHARED_ONLY, |knobs: BatchedKnobs| {
            knobs.threads > 1 || knobs.schedule == 0
        })
    }

    fn workspace(&self, workload: &Workload, setting: &Setting) -> Bytes {
        let Some(product) = problem(workload) else {
            return Bytes(0);
        };
        let knobs = BatchedKnobs::of(setting);
        let tiles = worst_packing(workload, product, knobs.tiles());
        let size = (product.m, product.n, product.k);
        let one = scratch_len::<T>(self.level, size, &tiles, 1);
        Carver::room::<T>(one.saturating_mul(knobs.pieces()))
    }

    fn hint(&self) -> Hint {
        hint(self.level)
    }
}

impl<T: Real + Plain> HostKernel for Batched<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let knobs = BatchedKnobs::of(setting);
        let product = Product::<T>::read(call, &self.spec.id)?;
        let tiles = product.packing(knobs.tiles());
        let size = (product.m, product.n, product.k);
        let one = scratch_len::<T>(self.level, size, &tiles, 1);
        let scratch = scratch.slice::<T>(one.saturating_mul(knobs.pieces()))?;
        let stack = Stack {
            level: self.level,
            product,
            tiles,
            scratch: scratch.as_mut_ptr(),
            share: one,
        };
        let failure = Mutex::new(None);
        let schedule = Schedule::of(knobs.schedule);
        share(
            knobs.threads(),
            schedule,
            product.batch,
            1,
            |piece, range| {
                // SAFETY: the call and the scratch memory are borrowed until all pieces are done; no two pieces have
                // an index or a number in common, and their numbers stay below those there is memory for.
                let done = unsafe { stack.multiply(piece, range) };
                if let (Err(error), Ok(mut failure)) = (done, failure.lock()) {
                    *failure = Some(error);
                }
            },
        );
        match failure.into_inner() {
            Ok(None) => Ok(()),
            Ok(Some(error)) => Err(Fault::kernel(&self.spec.id, error)),
            Err(_) => Err(Fault::kernel(&self.spec.id, "a thread panicked")),
        }
    }
}

/// A stack of products and memory for every piece of it.
struct Stack<T> {
    level: Level,
    product: Product<T>,
    tiles: Tiles,
    scratch: *mut T,
    share: usize,
}

// SAFETY: threads read `a` and `b`, and each writes its own matrices of `c` and its own share of the scratch memory
// (`Stack::multiply`).
unsafe impl<T: Send + Sync> Sync for Stack<T> {}

impl<T: Real> Stack<T> {
    /// Computes the matrices of one piece.
    ///
    /// # Safety
    /// The call the product was read from is borrowed; `scratch` holds `share` elements for this piece; no other
    /// thread uses its number or its range.
    unsafe fn multiply(
        &self,
        piece: usize,
        range: std::ops::Range<usize>,
    ) -> Result<(), ProductError> {
        let (level, product) = (self.level, &self.product);
        let size = (product.m, product.n, product.k);
        for index in range {
            // SAFETY: as the caller promises.
            let (a, b, c, scratch) = unsafe {
                (
                    product.left(level, index, 0),
                    product.right(level, index, 0),
                    product.target(index),
                    std::slice::from_raw_parts_mut(
                        self.scratch.add(piece * self.share),
                        self.share,
                    ),
                )
            };
            multiply(level, size, &a, &b, c, &self.tiles, 1, scratch)?;
        }
        Ok(())
    }
}
