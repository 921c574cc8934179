//! The packed product as a kernel: any size, any strides, every tile size a knob.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use kernelwise_backend::{
    Axis, Call, Carver, Fault, Hint, HostKernel, Kernel, Knobs, Plain, Scratch, Setting, Space,
    knobs,
};
use kernelwise_types::units::Bytes;
use kernelwise_types::{
    InvalidKernelId, KernelSpec, LayoutKind, Machine, Numerics, Technique, Workload,
};

use super::operands::Product;
use super::product::{self, problem, worst_packing};
use crate::declare::{Needing, spec};
use crate::gemm::{Real, Tiles, multiply, scratch_len};
use crate::isa::Level;
use crate::pool::threads;

knobs! {
    /// How the product is cut.
    pub(crate) struct PackedKnobs {
        /// Threads that work at once.
        threads,
        /// Most rows in a block.
        mc,
        /// Most depth in a block.
        kc,
        /// Most columns in a block.
        nc,
        /// Whether blocks of `a` are copied into panels.
        pack_a,
        /// Whether blocks of `b` are; they always are where neighbouring columns are no neighbours in memory.
        pack_b,
    }
}

impl PackedKnobs {
    fn tiles(self) -> Tiles {
        Tiles {
            mc: self.mc as usize,
            kc: self.kc as usize,
            nc: self.nc as usize,
            pack_a: self.pack_a != 0,
            pack_b: self.pack_b != 0,
        }
    }
}

/// Sizes of blocks to choose from.
pub(super) const ROWS: [u32; 6] = [8, 16, 32, 64, 128, 256];
pub(super) const DEPTHS: [u32; 6] = [64, 128, 192, 256, 384, 512];
pub(super) const COLUMNS: [u32; 6] = [128, 256, 512, 1024, 2048, 4096];

/// The kernel for one element type and level.
#[derive(Debug)]
pub(super) struct Packed<T> {
    spec: KernelSpec,
    level: Level,
    element: PhantomData<T>,
}

impl<T: Real> Packed<T> {
    pub(super) fn new(level: Level) -> Result<Self, InvalidKernelId> {
        let variant = format!("packed-{}", level.name());
        let (technique, numerics) = (Technique::Blocked, Numerics::Reordered);
        let spec = spec("matmul", &[T::DTYPE], &variant, technique, numerics)?;
        Ok(Self {
            spec: spec.on(level).following(LayoutKind::Strided),
            level,
            element: PhantomData,
        })
    }
}

impl<T: Real + Plain> Kernel for Packed<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn space(&self, workload: &Workload, machine: &Machine) -> Space {
        let Some(product) = problem(workload) else {
            return Space::none();
        };
        let tiles = product::first_tiles::<T>(self.level, workload, product, machine);
        Space::of::<PackedKnobs, _>([
            Axis::threads(machine),
            product::sizes(tiles.mc, &ROWS, product.m),
            product::sizes(tiles.kc, &DEPTHS, product.k),
            product::sizes(tiles.nc, &COLUMNS, product.n),
            Axis::switch(tiles.pack_a),
            product::packs(tiles.pack_b, !product.trans_b),
        ])
    }

    fn workspace(&self, workload: &Workload, setting: &Setting) -> Bytes {
        let Some(product) = problem(workload) else {
            return Bytes(0);
        };
        let knobs = PackedKnobs::of(setting);
        let tiles = worst_packing(workload, product, knobs.tiles());
        let size = (product.m, product.n, product.k);
        let threads = threads(knobs.threads);
        Carver::room::<T>(scratch_len::<T>(self.level, size, &tiles, threads))
    }

    fn hint(&self) -> Hint {
        hint(self.level)
    }
}

/// What share of the machine's peak the engine reaches.
pub(super) fn hint(level: Level) -> Hint {
    Hint::percent(level.part_of(85)).best_for(1024..=u64::MAX)
}

impl<T: Real + Plain> HostKernel for Packed<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let knobs = PackedKnobs::of(setting);
        let product = Product::<T>::read(call, &self.spec.id)?;
        let tiles = product.packing(knobs.tiles());
        let (level, threads) = (self.level, threads(knobs.threads));
        let size = (product.m, product.n, product.k);
        let scratch = scratch.slice::<T>(scratch_len::<T>(level, size, &tiles, threads))?;
        for index in 0..product.batch {
            // SAFETY: the call is borrowed until the end, and one matrix of the batch is computed at a time.
            let (a, b, c) = unsafe {
                (
                    product.left(level, index, 0),
                    product.right(level, index, 0),
                    product.target(index),
                )
            };
            multiply(level, size, &a, &b, c, &tiles, threads, scratch)
                .map_err(|error| Fault::kernel(&self.spec.id, error))?;
        }
        Ok(())
    }
}
