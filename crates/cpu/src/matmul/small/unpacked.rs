//! Products that the nearest caches hold as they are: no operand is copied, `b` is read row by row where it lies.
//!
//! Packing reads and writes both operands once more, which pays off only when they are read many times afterwards.
//! Below that, and for a `b` whose rows are gapless, the tiles alone are faster.

use kernelwise_backend::{Call, Fault, Hint, HostKernel, Kernel, Scratch, Setting};
use kernelwise_types::op::{Matmul, Operation};
use kernelwise_types::{
    InvalidKernelId, KernelSpec, LayoutKind, Numerics, Refusal, Technique, Workload,
};

use super::blocks;
use super::tile::{Real, Tiles};
use crate::declare::{Needing, spec};
use crate::isa::Level;
use crate::matmul::operands::{Product, refused};

/// The largest `m`, `n` and `k`.
const MOST: usize = 512;

/// The largest `b`, in bytes: beyond, it does not stay in the second cache while it is walked strip by strip.
const MOST_OF_B: usize = 1 << 20;

const CONDITION: &str =
    "needs m, n and k of 512 at the most, b of 1 MiB at the most and not transposed";

/// The kernel for one element type and level.
#[derive(Debug)]
pub(super) struct Unpacked<T: 'static> {
    spec: KernelSpec,
    level: Level,
    tiles: &'static Tiles<T>,
}

impl<T: Real> Unpacked<T> {
    pub(super) fn new(level: Level) -> Result<Self, InvalidKernelId> {
        let variant = format!("unpacked-{}", level.name());
        let spec = spec(
            "matmul",
            &[T::DTYPE],
            &variant,
            Technique::Vector,
            Numerics::Reordered,
        )?;
        Ok(Self {
            spec: spec.on(level).following(LayoutKind::RowGaps),
            level,
            tiles: T::tiles(level),
        })
    }
}

/// Whether a product is small enough and its `b` gapless along the rows of the result.
fn fits<T>(product: &Matmul) -> bool {
    product.m.max(product.n).max(product.k) <= MOST
        && product.k * product.n * size_of::<T>() <= MOST_OF_B
        && (!product.trans_b || product.n == 1)
}

impl<T: Real> Kernel for Unpacked<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        match workload.operation() {
            Operation::Matmul(product) if fits::<T>(product) => Ok(()),
            _ => Err(Refusal::Shape {
                condition: CONDITION.to_owned(),
            }),
        }
    }

    fn hint(&self) -> Hint {
        Hint::percent(self.level.part_of(80)).best_for(0..=128 * 128)
    }
}

impl<T: Real> HostKernel for Unpacked<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        _setting: &Setting,
        _scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let product = Product::<T>::read(call, &self.spec.id)?.with_gapless_rows(&self.spec.id)?;
        if product.b.columns != 1 && product.n > 1 {
            return Err(refused(&self.spec.id, "needs a b whose rows have no gaps"));
        }
        for matrix in 0..product.batch {
            let a = product.a.first.wrapping_offset(product.a.offset(matrix));
            let b = product.b.first.wrapping_offset(product.b.offset(matrix));
            let c = product.c.first.wrapping_offset(product.c.offset(matrix));
            // SAFETY: the product was read from the call, which is borrowed; rows of `b` have no gaps. The tiles are
            // those of a level that exists.
            unsafe { blocks::multiply(self.tiles, &product, a, (b, product.b.rows), c) };
        }
        Ok(())
    }
}
