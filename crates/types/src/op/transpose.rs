//! Transpose: the same elements with their axes in another order.

use std::fmt;

use super::{Operand, Parse, Problem, Work, WorkloadError, legal, no_variant};
use crate::dtype::DType;
use crate::shape::{MAX_RANK, Shape};
use crate::text::{Fields, write_list};

const NAME: &str = "transpose";

/// An order of axes: each of 0 to rank − 1 once. It lies in place and needs no heap.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Permutation {
    len: u8,
    /// Entries from `len` on are zero, so that equality and hash may look at all of them.
    axes: [u8; MAX_RANK],
}

impl Permutation {
    /// Takes the list of axes in their new order.
    pub fn new(axes: &[usize]) -> Result<Self, WorkloadError> {
        let rank = axes.len();
        let complete = (0..rank).all(|axis| axes.contains(&axis));
        legal((1..=MAX_RANK).contains(&rank) && complete, NAME, || {
            let words: Vec<String> = axes.iter().map(ToString::to_string).collect();
            format!(
                "`{}` is not an order of axes: name each from 0 to at most {} once",
                words.join(","),
                MAX_RANK - 1
            )
        })?;
        let mut all = [0; MAX_RANK];
        for (slot, &axis) in all.iter_mut().zip(axes) {
            *slot = axis as u8;
        }
        Ok(Self {
            len: rank as u8,
            axes: all,
        })
    }

    /// The axes of the input in the order of the result.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = usize> {
        let axes = self.axes.iter().take(usize::from(self.len));
        axes.map(|&axis| usize::from(axis))
    }
}

impl fmt::Debug for Permutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A permutation of axes.
///
/// Text: `transpose f32 1024x2048 perm1,0`; axis i of the result is axis `perm[i]` of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transpose {
    /// The shape of the input.
    pub shape: Shape,
    /// The axes of the input in the order of the result.
    pub perm: Permutation,
}

impl Transpose {
    /// Reads the problem off the stored shape of the input.
    pub fn infer(x: &Shape, perm: &[usize]) -> Result<Self, WorkloadError> {
        let transpose = Self {
            shape: *x,
            perm: Permutation::new(perm)?,
        };
        transpose.check_sizes()?;
        Ok(transpose)
    }

    fn check_sizes(&self) -> Result<(), WorkloadError> {
        let (axes, rank) = (self.perm.iter().len(), self.shape.rank());
        legal(axes == rank, NAME, || {
            format!(
                "the order names {axes} axes, {} has {rank}: name each once",
                self.shape
            )
        })
    }
}

impl Problem for Transpose {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, _dtype: DType) -> Result<(), WorkloadError> {
        self.check_sizes()
    }

    fn inputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        Ok(vec![Operand::of("x", dtype, self.shape)])
    }

    fn outputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        self.check_sizes()?;
        let sizes = self.shape.dims();
        let dims: Vec<usize> = self
            .perm
            .iter()
            .filter_map(|axis| sizes.get(axis).copied())
            .collect();
        Ok(vec![Operand::new("out", dtype, &dims)?])
    }

    /// No arithmetic: every element is read and written once.
    fn work(&self, _dtype: DType) -> Option<Work> {
        Some(Work::default())
    }

    fn write_fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}", self.shape)?;
        write_list(f, "perm", self.perm.iter(), ",")
    }
}

impl Parse for Transpose {
    fn parse(variant: &str, fields: &mut Fields<'_>) -> Result<Self, WorkloadError> {
        no_variant(NAME, variant)?;
        let perm = fields.list("perm")?.ok_or(WorkloadError::Missing {
            op: NAME,
            field: "the new order of axes, such as perm1,0",
        })?;
        Self::infer(&fields.shape()?, &perm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;

    #[test]
    fn axes_move_and_bytes_with_them() {
        let w: Workload = "transpose u16 2x3x5 perm2,0,1".parse().unwrap();
        assert_eq!(w.outputs()[0].shape.dims(), [5, 2, 3]);
        let cost = w.cost().unwrap();
        assert_eq!((cost.bytes_read.0, cost.bytes_written.0), (60, 60));
        assert_eq!(cost.flops.0, 0);
        assert_eq!(w.to_string(), "transpose u16 2x3x5 perm2,0,1");
    }

    #[test]
    fn what_is_no_order_is_named() {
        let error = |text: &str| text.parse::<Workload>().unwrap_err().to_string();
        for perm in ["0,0", "1,2", "0,99999999"] {
            assert_eq!(
                error(&format!("transpose f32 2x3 perm{perm}")),
                format!(
                    "transpose: `{perm}` is not an order of axes: name each from 0 to at most 7 once"
                )
            );
        }
        assert_eq!(
            error("transpose f32 2x3 perm0"),
            "transpose: the order names 1 axes, 2x3 has 2: name each once"
        );
        assert_eq!(
            error("transpose f32 2x3"),
            "transpose needs the new order of axes, such as perm1,0"
        );
        assert_eq!(
            error("transpose f32 2x3 perm1,,0"),
            "transpose: `perm1,,0` is not readable: expected numbers joined by commas"
        );
        assert!(Permutation::new(&[]).is_err());
        assert!(Permutation::new(&[8, 7, 6, 5, 4, 3, 2, 1, 0]).is_err());
    }
}
