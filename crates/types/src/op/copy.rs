//! Copies: as it is, or into rows of another length.

use std::fmt;

use super::{Operand, Parse, Problem, Work, WorkloadError, legal, no_variant};
use crate::dtype::DType;
use crate::shape::Shape;
use crate::text::Fields;

const COPY: &str = "copy";
const RESHAPE: &str = "reshape";

/// A copy of a tensor.
///
/// Text: `copy f32 1024x1024`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TensorCopy {
    /// The shape of both.
    pub shape: Shape,
}

impl TensorCopy {
    /// Of a tensor of this shape; every shape will do.
    pub const fn new(shape: Shape) -> Self {
        Self { shape }
    }
}

/// A copy into another shape with as many elements, in the same order.
///
/// Text: `reshape f32 4x6 to=8x3`. A reshape that is a mere view of the same memory costs nothing and needs
/// no kernel; what is counted here is the one that has to move its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reshape {
    /// The shape of the input.
    pub from: Shape,
    /// The shape of the output.
    pub to: Shape,
}

impl Reshape {
    /// Reads the problem off both shapes.
    pub fn infer(from: &Shape, to: &Shape) -> Result<Self, WorkloadError> {
        let reshape = Self {
            from: *from,
            to: *to,
        };
        reshape.check_sizes()?;
        Ok(reshape)
    }

    fn check_sizes(&self) -> Result<(), WorkloadError> {
        let (from, to) = (self.from, self.to);
        legal(from.elements() == to.elements(), RESHAPE, || {
            format!(
                "{from} has {} elements, {to} has {}",
                from.elements(),
                to.elements()
            )
        })
    }
}

impl Problem for TensorCopy {
    fn name(&self) -> &'static str {
        COPY
    }

    fn check(&self, _dtype: DType) -> Result<(), WorkloadError> {
        Ok(())
    }

    fn inputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        Ok(vec![Operand::of("x", dtype, self.shape)])
    }

    fn outputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        Ok(vec![Operand::of("out", dtype, self.shape)])
    }

    /// No arithmetic: every element is read and written once.
    fn work(&self, _dtype: DType) -> Option<Work> {
        Some(Work::default())
    }

    fn write_fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}", self.shape)
    }
}

impl Problem for Reshape {
    fn name(&self) -> &'static str {
        RESHAPE
    }

    fn check(&self, _dtype: DType) -> Result<(), WorkloadError> {
        self.check_sizes()
    }

    fn inputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        Ok(vec![Operand::of("x", dtype, self.from)])
    }

    fn outputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        Ok(vec![Operand::of("out", dtype, self.to)])
    }

    /// No arithmetic: every element is read and written once.
    fn work(&self, _dtype: DType) -> Option<Work> {
        Some(Work::default())
    }

    fn write_fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {} to={}", self.from, self.to)
    }
}

impl Parse for TensorCopy {
    fn parse(variant: &str, fields: &mut Fields<'_>) -> Result<Self, WorkloadError> {
        no_variant(COPY, variant)?;
        Ok(Self::new(fields.shape()?))
    }
}

impl Parse for Reshape {
    fn parse(variant: &str, fields: &mut Fields<'_>) -> Result<Self, WorkloadError> {
        no_variant(RESHAPE, variant)?;
        let to = fields.value("to").ok_or(WorkloadError::Missing {
            op: RESHAPE,
            field: "the new shape, such as to=8x3",
        })?;
        Self::infer(&fields.shape()?, &to.parse()?)
    }
}

#[cfg(test)]
mod tests {
    use crate::Workload;

    #[test]
    fn every_element_moves_once() {
        for text in [
            "copy complex128 3x5",
            "copy bool scalar",
            "reshape f64 4x6 to=8x3",
            "reshape u8 1x1 to=scalar",
        ] {
            let w: Workload = text.parse().unwrap();
            let cost = w.cost().unwrap();
            let bytes = w.inputs()[0].shape.elements() * w.dtype().size();
            assert_eq!(cost.bytes_read.0, bytes as u64);
            assert_eq!(cost.bytes_written.0, bytes as u64);
            assert_eq!(cost.flops.0, 0);
            assert_eq!(w.to_string(), text);
        }
        let w: Workload = "reshape f64 4x6 to=8x3".parse().unwrap();
        assert_eq!(w.outputs()[0].shape.dims(), [8, 3]);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let error = |text: &str| text.parse::<Workload>().unwrap_err().to_string();
        assert_eq!(
            error("reshape f32 4x6 to=5x5"),
            "reshape: 4x6 has 24 elements, 5x5 has 25"
        );
        assert_eq!(
            error("reshape f32 4x6"),
            "reshape needs the new shape, such as to=8x3"
        );
        assert!(error("reshape f32 4x6 to=").starts_with("`` is not a shape"));
        assert_eq!(error("copy f32"), "copy needs a shape such as 128x256");
        assert_eq!(
            error("copy f32 0x3"),
            "copy: operand `x` of shape 0x3 is empty: there is nothing to compute, skip the call"
        );
    }
}
