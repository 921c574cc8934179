//! Matrix product `out = op(a) · op(b)`, batched, each side optionally stored transposed.

use std::fmt;

use super::{Operand, Parse, Problem, Work, WorkloadError, count, legal, no_variant, require};
use crate::dtype::DType;
use crate::shape::Shape;
use crate::text::Fields;

const NAME: &str = "matmul";

/// A batched matrix product.
///
/// Text: `matmul f32 MxKxN`, the inner dimension in the middle as in (M x K)(K x N); with a batch
/// `BxMxKxN`; flags `ta` and `tb` say that the side is stored transposed (`a` as K x M, `b` as N x K).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Matmul {
    /// Independent products; 1 for a single one.
    pub batch: usize,
    /// Rows of the result.
    pub m: usize,
    /// Inner dimension.
    pub k: usize,
    /// Columns of the result.
    pub n: usize,
    /// `a` is stored as K x M.
    pub trans_a: bool,
    /// `b` is stored as N x K.
    pub trans_b: bool,
}

impl Matmul {
    /// One product of an M x K by a K x N matrix, both stored row by row.
    pub const fn new(m: usize, k: usize, n: usize) -> Self {
        Self {
            batch: 1,
            m,
            k,
            n,
            trans_a: false,
            trans_b: false,
        }
    }

    /// Reads the problem off the stored shapes of `a` and `b`: matrices, or stacks of them that agree
    /// in their leading dimensions, which become one batch. See the tensors in the shapes of the
    /// operands with [`TensorView::reshaped`](crate::TensorView::reshaped).
    ///
    /// ```
    /// use kernelwise_types::{Shape, op::Matmul};
    ///
    /// let a: Shape = "8x128x64".parse()?;
    /// let b: Shape = "8x256x64".parse()?;
    /// let product = Matmul::infer(&a, &b, false, true)?;
    /// assert_eq!((product.batch, product.m, product.k, product.n), (8, 128, 64, 256));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn infer(
        a: &Shape,
        b: &Shape,
        trans_a: bool,
        trans_b: bool,
    ) -> Result<Self, WorkloadError> {
        let (&[ref batch_a @ .., a0, a1], &[ref batch_b @ .., b0, b1]) = (a.dims(), b.dims())
        else {
            return Err(WorkloadError::Illegal {
                op: NAME,
                detail: format!("both sides need at least two dimensions, got {a} and {b}"),
            });
        };
        legal(batch_a == batch_b, NAME, || {
            format!("the leading dimensions of {a} and {b} differ")
        })?;
        let (m, k) = if trans_a { (a1, a0) } else { (a0, a1) };
        let (k_b, n) = if trans_b { (b1, b0) } else { (b0, b1) };
        legal(k == k_b, NAME, || {
            format!("inner dimensions differ: {k} in {a}, {k_b} in {b}")
        })?;
        Ok(Self {
            batch: batch_a.iter().product(),
            m,
            k,
            n,
            trans_a,
            trans_b,
        })
    }

    /// Shape with the batch in front only when there is one.
    fn operand(
        &self,
        name: &'static str,
        dtype: DType,
        rows: usize,
        columns: usize,
    ) -> Result<Operand, WorkloadError> {
        match self.batch {
            1 => Operand::new(name, dtype, &[rows, columns]),
            batch => Operand::new(name, dtype, &[batch, rows, columns]),
        }
    }
}

impl Problem for Matmul {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, dtype: DType) -> Result<(), WorkloadError> {
        require(dtype.is_numeric(), NAME, dtype, "numbers, not truth values")
    }

    fn inputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        let (a0, a1) = if self.trans_a {
            (self.k, self.m)
        } else {
            (self.m, self.k)
        };
        let (b0, b1) = if self.trans_b {
            (self.n, self.k)
        } else {
            (self.k, self.n)
        };
        Ok(vec![
            self.operand("a", dtype, a0, a1)?,
            self.operand("b", dtype, b0, b1)?,
        ])
    }

    fn outputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        Ok(vec![self.operand(
            "out",
            dtype.accumulator(),
            self.m,
            self.n,
        )?])
    }

    /// One multiply-add per (row, column, inner index): 2·B·M·N·K for real numbers.
    fn work(&self, dtype: DType) -> Option<Work> {
        let steps = count(&[self.batch, self.m, self.n, self.k])?;
        let flops = steps.checked_mul(dtype.mul_flops() + dtype.add_flops())?;
        Some(Work {
            flops,
            ..Work::default()
        })
    }

    fn write_fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(" ")?;
        if self.batch != 1 {
            write!(f, "{}x", self.batch)?;
        }
        write!(f, "{}x{}x{}", self.m, self.k, self.n)?;
        f.write_str(if self.trans_a { " ta" } else { "" })?;
        f.write_str(if self.trans_b { " tb" } else { "" })
    }
}

impl Parse for Matmul {
    fn parse(variant: &str, fields: &mut Fields<'_>) -> Result<Self, WorkloadError> {
        no_variant(NAME, variant)?;
        let (batch, m, k, n) = match *fields.sizes()? {
            [m, k, n] => (1, m, k, n),
            [batch, m, k, n] => (batch, m, k, n),
            ref other => {
                return Err(WorkloadError::Illegal {
                    op: NAME,
                    detail: format!(
                        "sizes are MxKxN or BATCHxMxKxN, not {} numbers",
                        other.len()
                    ),
                });
            }
        };
        Ok(Self {
            batch,
            m,
            k,
            n,
            trans_a: fields.flag("ta"),
            trans_b: fields.flag("tb"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;

    #[test]
    fn cost_is_counted_from_the_shapes() {
        let w: Workload = "matmul f32 3x5x7".parse().unwrap();
        let cost = w.cost().unwrap();
        assert_eq!(cost.flops.0, 2 * 3 * 5 * 7);
        assert_eq!(cost.bytes_read.0, 4 * (3 * 5 + 5 * 7));
        assert_eq!(cost.bytes_written.0, 4 * 3 * 7);
        assert_eq!(cost.intensity(), Some(210.0 / 284.0));
        let complex: Workload = "matmul complex128 3x5x7".parse().unwrap();
        assert_eq!(complex.cost().unwrap().flops.0, 8 * 3 * 5 * 7);
    }

    #[test]
    fn eight_bit_products_come_out_in_32_bits() {
        let w: Workload = "matmul i8 4x2x4x2".parse().unwrap();
        assert_eq!(w.outputs()[0].dtype, DType::I32);
        assert_eq!(w.outputs()[0].shape.dims(), [4, 2, 2]);
        assert_eq!(w.cost().unwrap().bytes_written.0, 4 * 2 * 2 * 4);
    }

    #[test]
    fn transposed_sides_are_stored_the_other_way_round() {
        let w: Workload = "matmul f64 3x5x7 ta tb".parse().unwrap();
        assert_eq!(w.inputs()[0].shape.dims(), [5, 3]);
        assert_eq!(w.inputs()[1].shape.dims(), [7, 5]);
        assert_eq!(w.to_string(), "matmul f64 3x5x7 ta tb");
    }

    /// Three matrices of 2^40 elements each can be held; a tensor of 2^60 could not.
    #[test]
    fn the_largest_products_can_be_written_down() {
        let w = Workload::new(Matmul::new(1 << 20, 1 << 20, 1 << 20), DType::F32).unwrap();
        assert_eq!(w.to_string().parse::<Workload>().unwrap(), w);
        assert_eq!(w.cost().unwrap().flops.0, 1 << 61);
        let larger = Workload::new(Matmul::new(1 << 21, 1 << 21, 1 << 22), DType::F32);
        assert!(matches!(larger, Err(WorkloadError::TooLarge { .. })));
    }

    #[test]
    fn sides_that_do_not_fit_are_named() {
        let shape = |text: &str| text.parse::<Shape>().unwrap();
        let error = Matmul::infer(&shape("3x5"), &shape("4x7"), false, false).unwrap_err();
        assert_eq!(
            error.to_string(),
            "matmul: inner dimensions differ: 5 in 3x5, 4 in 4x7"
        );
        let error = Matmul::infer(&shape("2x3x5"), &shape("3x5x7"), false, false).unwrap_err();
        assert_eq!(
            error.to_string(),
            "matmul: the leading dimensions of 2x3x5 and 3x5x7 differ"
        );
        assert!(Matmul::infer(&shape("3"), &shape("3x1"), false, false).is_err());
        assert!("matmul f32 3x5".parse::<Workload>().is_err());
        assert!("matmul bool 3x5x7".parse::<Workload>().is_err());
    }
}
