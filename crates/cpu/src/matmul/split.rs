//! Deep products with a small result: the depth is cut into parts, each summed apart, then added up.
//!
//! Threads have nothing else to share there: the result is too small to be cut. The parts are added in their order, so
//! the result does not depend on the threads.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Mutex;

use kernelwise_backend::{
    Axis, Call, Carver, Fault, Hint, HostKernel, Kernel, Knobs, Plain, Scratch, Setting, Space,
    knobs,
};
use kernelwise_types::op::Matmul;
use kernelwise_types::units::Bytes;
use kernelwise_types::{
    InvalidKernelId, KernelSpec, LayoutKind, Machine, Numerics, Refusal, Technique, Workload,
};

use super::operands::Product;
use super::product::problem;
use crate::declare::{Needing, spec};
use crate::gemm::{Destination, ProductError, Real, Tiles, multiply, scratch_len};
use crate::isa::Level;
use crate::pool::{Schedule, share, threads};

knobs! {
    /// How the depth is cut.
    pub(crate) struct SplitKnobs {
        /// Threads that work at once.
        threads,
        /// Parts of the depth.
        parts,
    }
}

/// Parts to choose from.
const PARTS: [u32; 6] = [2, 4, 8, 16, 32, 64];

/// Depth, at the least, of a part, and of a product that is worth cutting.
const DEPTH_OF_A_PART: usize = 64;
const DEPTH: usize = 512;

/// Elements of the result, at the most: its sums are written and read again once per part.
const RESULT: u64 = 1 << 16;

/// The cut of every part: the result is small, so only the depth matters. Both operands are packed, whatever their
/// strides.
const TILES: Tiles = Tiles {
    mc: 64,
    kc: 256,
    nc: 1024,
    pack_a: true,
    pack_b: true,
};

/// Elements of one part's sums and of its scratch memory. The last part may be shallower, and is then cut into blocks that are
/// not: what the deepest block needs is enough for all.
fn room<T: Real>(level: Level, (m, n, k): (usize, usize, usize), parts: usize) -> (usize, usize) {
    let scratch = scratch_len::<T>(level, (m, n, k.div_ceil(parts).min(TILES.kc)), &TILES, 1);
    (m.saturating_mul(n), scratch)
}

/// The kernel for one element type and level.
#[derive(Debug)]
pub(super) struct SplitDepth<T> {
    spec: KernelSpec,
    level: Level,
    element: PhantomData<T>,
}

impl<T: Real> SplitDepth<T> {
    pub(super) fn new(level: Level) -> Result<Self, InvalidKernelId> {
        let variant = format!("splitk-{}", level.name());
        let (technique, numerics) = (Technique::Blocked, Numerics::Reordered);
        let spec = spec("matmul", &[T::DTYPE], &variant, technique, numerics)?;
        let spec = spec.on(level).following(LayoutKind::Strided);
        Ok(Self {
            spec: spec.up_to(RESULT),
            level,
            element: PhantomData,
        })
    }

    fn parts(knobs: SplitKnobs) -> usize {
        (knobs.parts as usize).clamp(1, 1 << 10)
    }
}

fn deep(product: &Matmul) -> bool {
    product.batch == 1 && product.k >= DEPTH && product.k >= product.m.max(product.n)
}

impl<T: Real + Plain> Kernel for SplitDepth<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        match problem(workload) {
            Some(product) if deep(product) => Ok(()),
            _ => Err(Refusal::Shape {
                condition: format!(
                    "needs one product, at least {DEPTH} deep and deeper than its result is high and wide"
                ),
            }),
        }
    }

    fn space(&self, workload: &Workload, machine: &Machine) -> Space {
        let Some(product) = problem(workload) else {
            return Space::none();
        };
        let most = product.k / DEPTH_OF_A_PART;
        let parts = PARTS.into_iter().filter(|parts| *parts as usize <= most);
        Space::of::<SplitKnobs, _>([Axis::threads(machine), Axis::new(2, parts)])
            .with_constraint("parts >= threads", |knobs: SplitKnobs| {
                knobs.parts >= knobs.threads
            })
    }

    fn workspace(&self, workload: &Workload, setting: &Setting) -> Bytes {
        let Some(product) = problem(workload) else {
            return Bytes(0);
        };
        let parts = Self::parts(SplitKnobs::of(setting));
        let size = (product.m, product.n, product.k);
        let (sums, scratch) = room::<T>(self.level, size, parts);
        Carver::room::<T>(sums.saturating_add(scratch).saturating_mul(parts))
    }

    fn hint(&self) -> Hint {
        Hint::percent(self.level.part_of(40))
    }
}

impl<T: Real + Plain> HostKernel for SplitDepth<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let knobs = SplitKnobs::of(setting);
        let parts = Self::parts(knobs);
        let product = Product::<T>::read(call, &self.spec.id)?;
        let size = (product.m, product.n, product.k);
        let (sums, packing) = room::<T>(self.level, size, parts);
        let needed = sums.saturating_add(packing).saturating_mul(parts);
        let memory = scratch.slice::<T>(needed)?;
        let (sums_of_parts, packing_of_parts) = memory.split_at_mut(sums * parts);
        let threads = threads(knobs.threads);
        for index in 0..product.batch {
            let work = Parts {
                level: self.level,
                product,
                index,
                depth: product.k.div_ceil(parts),
                sums: (sums_of_parts.as_mut_ptr(), sums),
                packing: (packing_of_parts.as_mut_ptr(), packing),
            };
            let failure = Mutex::new(None);
            share(threads, Schedule::Static, parts, 1, |_, range| {
                // SAFETY: the call and the scratch memory are borrowed until all parts are done, and no two
                // threads have a part in common.
                let done = unsafe { work.multiply(range) };
                if let (Err(error), Ok(mut failure)) = (done, failure.lock()) {
                    *failure = Some(error);
                }
            });
            match failure.into_inner() {
                Ok(None) => {}
                Ok(Some(error)) => return Err(Fault::kernel(&self.spec.id, error)),
                Err(_) => return Err(Fault::kernel(&self.spec.id, "a thread panicked")),
            }
            // SAFETY: the call is still borrowed, and every part has its sums.
            unsafe { add_up(&product, index, sums_of_parts, parts) };
        }
        Ok(())
    }
}

/// A product whose depth is cut, and memory for every part: a pointer, and elements for each.
struct Parts<T> {
    level: Level,
    product: Product<T>,
    index: usize,
    depth: usize,
    sums: (*mut T, usize),
    packing: (*mut T, usize),
}

// SAFETY: threads read `a` and `b`, and each writes the memory of its own parts (`Parts::multiply`).
unsafe impl<T: Send + Sync> Sync for Parts<T> {}

impl<T: Real> Parts<T> {
    /// Sums these parts.
    ///
    /// # Safety
    /// The call the product was read from is borrowed; there is memory for these parts, and no other thread uses it.
    unsafe fn multiply(&self, parts: Range<usize>) -> Result<(), ProductError> {
        let (level, product) = (self.level, &self.product);
        for part in parts {
            let from = (part * self.depth).min(product.k);
            let depth = self.depth.min(product.k - from);
            // SAFETY: as the caller promises; `from` is not beyond the depth.
            let (a, b, sums, packing) = unsafe {
                (
                    product.left(level, self.index, from),
                    product.right(level, self.index, from),
                    Destination::new(
                        self.sums.0.add(part * self.sums.1),
                        (product.m, product.n),
                        (product.n as isize, 1),
                        false,
                    ),
                    std::slice::from_raw_parts_mut(
                        self.packing.0.add(part * self.packing.1),
                        self.packing.1,
                    ),
                )
            };
            let size = (product.m, product.n, depth);
            multiply(level, size, &a, &b, sums, &TILES, 1, packing)?;
        }
        Ok(())
    }
}

/// Writes the sum of all parts, first to last.
///
/// # Safety
/// The call the product was read from is borrowed.
unsafe fn add_up<T: Real>(product: &Product<T>, index: usize, sums: &mut [T], parts: usize) {
    let elements = product.m * product.n;
    let (first, others) = sums.split_at_mut(elements);
    for part in others.chunks_exact(elements.max(1)).take(parts - 1) {
        for (sum, more) in first.iter_mut().zip(part) {
            *sum = *sum + *more;
        }
    }
    for (row, values) in first.chunks_exact(product.n.max(1)).enumerate() {
        for (column, value) in values.iter().enumerate() {
            let offset = index as isize * product.c.step
                + row as isize * product.c.rows
                + column as isize * product.c.columns;
            // SAFETY: row and column lie inside the result, which is writable.
            unsafe { product.c.first.offset(offset).write(*value) };
        }
    }
}
