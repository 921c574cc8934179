//! Products of at most 16 x 16 by 16 x 16: nothing is packed, the result never leaves the registers before it is done.
//!
//! At this size the time goes into getting there. The call is read once, one comparison finds the tile, and a stack of
//! small matrices is one call. Only a transposed `b` is turned first, on the stack.

use std::mem::MaybeUninit;

use kernelwise_backend::{Call, Fault, Hint, HostKernel, Kernel, Scratch, Setting};
use kernelwise_types::op::Operation;
use kernelwise_types::{
    InvalidKernelId, KernelSpec, LayoutKind, Numerics, Refusal, Technique, Workload,
};

use super::blocks;
use super::square::MOST;
use super::tile::{Real, Tiles};
use crate::declare::{Needing, spec};
use crate::isa::Level;
use crate::matmul::operands::{Product, Stack, refused};

const CONDITION: &str = "needs m, n and k of 16 at the most";

/// The kernel for one element type and level.
#[derive(Debug)]
pub(super) struct Micro<T: 'static> {
    spec: KernelSpec,
    level: Level,
    tiles: &'static Tiles<T>,
}

impl<T: Real> Micro<T> {
    pub(super) fn new(level: Level) -> Result<Self, InvalidKernelId> {
        let variant = format!("micro-{}", level.name());
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

impl<T: Real> Kernel for Micro<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        match workload.operation() {
            Operation::Matmul(product) if product.m.max(product.n).max(product.k) <= MOST => Ok(()),
            _ => Err(Refusal::Shape {
                condition: CONDITION.to_owned(),
            }),
        }
    }

    fn hint(&self) -> Hint {
        Hint::percent(self.level.part_of(60))
    }
}

impl<T: Real> HostKernel for Micro<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        _setting: &Setting,
        _scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        if let Some(done) = self.square(call) {
            return done;
        }
        let product = Product::<T>::read(call, &self.spec.id)?.with_gapless_rows(&self.spec.id)?;
        if product.m.max(product.n).max(product.k) > MOST {
            return Err(refused(&self.spec.id, CONDITION));
        }
        let as_it_lies = product.b.columns == 1 || product.n == 1;
        for matrix in 0..product.batch {
            let a = product.a.first.wrapping_offset(product.a.offset(matrix));
            let b = product.b.first.wrapping_offset(product.b.offset(matrix));
            let c = product.c.first.wrapping_offset(product.c.offset(matrix));
            let mut turned = [const { MaybeUninit::uninit() }; MOST * MOST];
            // SAFETY: the product was read from the call, which is borrowed, and its sizes are within `MOST`. The
            // tiles are those of a level that exists.
            unsafe {
                let b = if as_it_lies {
                    (b, product.b.rows)
                } else {
                    let b = Stack {
                        first: b,
                        ..product.b
                    };
                    (turn(product.n, product.k, b, &mut turned), MOST as isize)
                };
                blocks::multiply(self.tiles, &product, a, b, c);
            }
        }
        Ok(())
    }
}

impl<T: Real> Micro<T> {
    /// Square matrices without gaps, neither of them transposed, have kernels of their own; `None` for all others.
    #[inline(always)]
    fn square(&self, call: &mut Call<'_, '_>) -> Option<Result<(), Fault>> {
        let (workload, inputs, outputs) = call.parts();
        let (Operation::Matmul(product), [a, b], [c]) = (workload.operation(), inputs, outputs)
        else {
            return None;
        };
        let size = product.m;
        let squared = self.tiles.squares.get(size.wrapping_sub(1))?;
        let plain = workload.layout() == LayoutKind::Contiguous
            && product.n == size
            && product.k == size
            && !product.trans_a
            && !product.trans_b;
        if !plain {
            return None;
        }
        let (mut a, mut b, mut c) = (
            a.as_ptr::<T>().ok()?,
            b.as_ptr::<T>().ok()?,
            c.as_mut_ptr::<T>().ok()?,
        );
        for _ in 0..product.batch {
            // SAFETY: the call vouches for sizes, types and that `c` is apart; its layout says that matrices have
            // no gaps and follow each other. The kernels are those of a level that exists.
            unsafe { squared(a, b, c) };
            a = a.wrapping_add(size * size);
            b = b.wrapping_add(size * size);
            c = c.wrapping_add(size * size);
        }
        Some(Ok(()))
    }
}

/// Copies one `b`, whatever its strides, so that its rows have no gaps and begin [`MOST`] apart.
///
/// # Safety
/// `b` is readable at `n` columns and `k` rows, each at most [`MOST`].
#[inline(never)]
unsafe fn turn<T: Real>(
    n: usize,
    k: usize,
    b: Stack<*const T>,
    into: &mut [MaybeUninit<T>; MOST * MOST],
) -> *const T {
    for column in 0..n {
        let from = b.first.wrapping_offset(column as isize * b.columns);
        for depth in 0..k {
            // SAFETY: the column and the depth are inside `b`.
            let value = unsafe { *from.wrapping_offset(depth as isize * b.rows) };
            into[depth * MOST + column].write(value);
        }
    }
    into.as_ptr().cast()
}
