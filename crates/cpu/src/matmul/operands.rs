//! The matrices of a call, as addresses and strides.

use kernelwise_backend::{Call, Fault};
use kernelwise_types::op::Operation;
use kernelwise_types::{Element, KernelId, Layout, Refusal};

/// A stack of matrices in memory: an element lies at `first + matrix * step + row * rows + column * columns`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stack<P> {
    pub(super) first: P,
    pub(super) step: isize,
    pub(super) rows: isize,
    pub(super) columns: isize,
}

/// What one call multiplies: `c = a · b`, `m` x `k` by `k` x `n`, `batch` times. Transposed operands are seen the right
/// way round: their strides have changed places.
///
/// Whoever holds one, as long as the call it was read from is borrowed: `a` and `b` are readable, `c` is writable, by nobody else,
/// at every index inside these sizes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Product<T> {
    pub(super) batch: usize,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) a: Stack<*const T>,
    pub(super) b: Stack<*const T>,
    pub(super) c: Stack<*mut T>,
}

impl<T: Element> Product<T> {
    /// Reads a call, whatever the strides.
    #[inline(always)]
    pub(super) fn read(call: &mut Call<'_, '_>, id: &KernelId) -> Result<Self, Fault> {
        let (workload, inputs, outputs) = call.parts();
        let (Operation::Matmul(product), [a, b], [c]) = (workload.operation(), inputs, outputs)
        else {
            return Err(refused(id, "computes a matrix product"));
        };
        let (Ok(a_first), Ok(b_first), Ok(c_first)) =
            (a.as_ptr::<T>(), b.as_ptr::<T>(), c.as_mut_ptr::<T>())
        else {
            return Err(refused(id, "needs operands of its element type"));
        };
        let (Some(a), Some(b), Some(c)) = (
            Stack::new(a_first, a.layout()),
            Stack::new(b_first, b.layout()),
            Stack::new(c_first, c.layout()),
        ) else {
            return Err(refused(id, "needs matrices or stacks of them"));
        };
        Ok(Self {
            batch: product.batch,
            m: product.m,
            n: product.n,
            k: product.k,
            a: if product.trans_a { a.turned() } else { a },
            b: if product.trans_b { b.turned() } else { b },
            c,
        })
    }

    /// The same, if the rows of the result are gapless.
    #[inline(always)]
    pub(super) fn with_gapless_rows(self, id: &KernelId) -> Result<Self, Fault> {
        if self.c.columns != 1 && self.n > 1 {
            return Err(refused(id, "needs a result whose rows have no gaps"));
        }
        Ok(self)
    }
}

impl<P> Stack<P> {
    /// A matrix or a stack of them; `None` for fewer or more dimensions.
    #[inline(always)]
    fn new(first: P, layout: &Layout) -> Option<Self> {
        let (step, rows, columns) = match *layout.strides() {
            [rows, columns] => (0, rows, columns),
            [step, rows, columns] => (step, rows, columns),
            _ => return None,
        };
        Some(Self {
            first,
            step,
            rows,
            columns,
        })
    }

    /// The same matrices with rows and columns exchanged.
    #[inline(always)]
    fn turned(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            ..self
        }
    }
}

/// The answer of a kernel to a call that is not for it.
#[cold]
pub(super) fn refused(id: &KernelId, condition: &str) -> Fault {
    Fault::Refused {
        kernel: id.to_string(),
        refusal: Refusal::Shape {
            condition: condition.to_owned(),
        },
    }
}
