//! Softmax along one axis, or its logarithm.

use std::fmt;

use super::axis::{check_axis, last_axis, rows, write_unless_last};
use super::variant::{variants, write_word};
use super::{Operand, Parse, Problem, Work, WorkloadError, count, require};
use crate::dtype::DType;
use crate::shape::Shape;
use crate::text::Fields;

const NAME: &str = "softmax";

variants! {
    /// What comes out.
    SoftmaxKind {
        /// Shares that sum to one.
        Plain = "",
        /// Their logarithms.
        Log = "log",
    }
}

/// A softmax along one axis.
///
/// Text: `softmax f32 128x1024`, `softmax.log f32 128x1024`; `axis0` names another axis than the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Softmax {
    /// What comes out.
    pub kind: SoftmaxKind,
    /// The shape of input and output.
    pub shape: Shape,
    /// The axis whose elements compete.
    pub axis: usize,
}

impl Softmax {
    /// Over a tensor of this shape, along the last axis unless another is named.
    pub fn infer(kind: SoftmaxKind, x: &Shape, axis: Option<usize>) -> Result<Self, WorkloadError> {
        let axis = axis.map_or_else(|| last_axis(NAME, x), Ok)?;
        check_axis(NAME, x, axis)?;
        Ok(Self {
            kind,
            shape: *x,
            axis,
        })
    }
}

impl Problem for Softmax {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, dtype: DType) -> Result<(), WorkloadError> {
        require(dtype.is_float(), NAME, dtype, "real floating point")?;
        check_axis(NAME, &self.shape, self.axis)
    }

    fn inputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        Ok(vec![Operand::of("x", dtype, self.shape)])
    }

    fn outputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        Ok(vec![Operand::of("out", dtype, self.shape)])
    }

    /// Per row of n: n − 1 maxima, n differences, n exponentials, n − 1 sums, n divisions: 4n − 2 and n. The
    /// logarithm has n more differences in place of the divisions, and takes one logarithm: 4n − 2 and n + 1.
    fn work(&self, _dtype: DType) -> Option<Work> {
        let (rows, n) = rows(NAME, &self.shape, self.axis).ok()?;
        if n == 0 {
            return Some(Work::default());
        }
        let row = Work {
            flops: count(&[4, n])?.checked_sub(2)?,
            transcendentals: match self.kind {
                SoftmaxKind::Plain => count(&[n])?,
                SoftmaxKind::Log => count(&[n])?.checked_add(1)?,
            },
            comparisons: 0,
        };
        row.times(&[rows])
    }

    fn write_variant(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_word(f, self.kind.name())
    }

    fn write_fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}", self.shape)?;
        write_unless_last(f, &self.shape, self.axis)
    }
}

impl Parse for Softmax {
    fn parse(variant: &str, fields: &mut Fields<'_>) -> Result<Self, WorkloadError> {
        let kind = SoftmaxKind::parse(NAME, variant)?;
        Self::infer(kind, &fields.shape()?, fields.number("axis")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;

    #[test]
    fn cost_is_counted_along_the_axis() {
        let cost = |text: &str| *text.parse::<Workload>().unwrap().cost().unwrap();
        let plain = cost("softmax f32 3x5");
        assert_eq!((plain.flops.0, plain.transcendentals), (3 * 18, 15));
        assert_eq!((plain.bytes_read.0, plain.bytes_written.0), (60, 60));
        let log = cost("softmax.log f32 3x5 axis0");
        assert_eq!((log.flops.0, log.transcendentals), (5 * 10, 5 * 4));
    }

    #[test]
    fn the_last_axis_goes_without_saying() {
        let w: Workload = "softmax.log f32 3x5 axis1".parse().unwrap();
        assert_eq!(w.to_string(), "softmax.log f32 3x5");
        let w: Workload = "softmax f32 3x5 axis0".parse().unwrap();
        assert_eq!(w.to_string(), "softmax f32 3x5 axis0");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let error = |text: &str| text.parse::<Workload>().unwrap_err().to_string();
        assert_eq!(
            error("softmax f32 3x5 axis2"),
            "softmax: axis 2 is out of range: the axes of 3x5 are 0 to 1"
        );
        assert_eq!(
            error("softmax f32 scalar"),
            "softmax: a scalar has no axis to work along"
        );
        assert_eq!(
            error("softmax i32 8"),
            "softmax is not defined on i32: it takes real floating point"
        );
        assert_eq!(
            error("softmax.lig f32 8"),
            "softmax has no variant `lig`; did you mean `log`?"
        );
        assert_eq!(
            error("softmax.x f32 8"),
            "softmax has no variant `x`; known: log"
        );
        let empty = Softmax::infer(SoftmaxKind::Plain, &"3x0".parse().unwrap(), None).unwrap();
        assert_eq!(empty.work(DType::F32), Some(Work::default()));
    }
}
