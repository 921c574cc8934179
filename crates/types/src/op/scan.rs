//! Scan: the running sum, product, maximum or minimum along one axis.

use std::fmt;

use super::axis::{check_axis, last_axis, rows};
use super::variant::{variants, write_word};
use super::{Operand, Parse, Problem, Traffic, Work, WorkloadError, count, require};
use crate::dtype::DType;
use crate::shape::Shape;
use crate::text::Fields;

const NAME: &str = "scan";

variants! {
    /// How elements are joined.
    ScanKind {
        /// By sums.
        Sum = "sum",
        /// By products.
        Prod = "prod",
        /// By the larger of two.
        Max = "max",
        /// By the smaller of two.
        Min = "min",
    }
}

/// A scan along one axis.
///
/// Text: `scan.sum f32 8x1024 axis1`; `exclusive` leaves the element at its own place out, `reverse` runs from
/// the end. Without `axis` the last is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scan {
    /// How elements are joined.
    pub kind: ScanKind,
    /// The shape of input and output.
    pub shape: Shape,
    /// The axis it runs along.
    pub axis: usize,
    /// The element at the place of the result is left out; the first result is the neutral element.
    pub exclusive: bool,
    /// From the end to the beginning.
    pub reverse: bool,
}

impl Scan {
    /// An inclusive scan from the beginning, along the last axis unless another is named.
    pub fn infer(kind: ScanKind, x: &Shape, axis: Option<usize>) -> Result<Self, WorkloadError> {
        let axis = axis.map_or_else(|| last_axis(NAME, x), Ok)?;
        check_axis(NAME, x, axis)?;
        Ok(Self {
            kind,
            shape: *x,
            axis,
            exclusive: false,
            reverse: false,
        })
    }

    /// Elements at the end of each row that no result needs.
    fn left_out(&self) -> usize {
        usize::from(self.exclusive)
    }
}

impl Problem for Scan {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, dtype: DType) -> Result<(), WorkloadError> {
        match self.kind {
            ScanKind::Sum | ScanKind::Prod => {
                require(dtype.is_numeric(), NAME, dtype, "numbers, not truth values")
            }
            ScanKind::Max | ScanKind::Min => require(
                dtype.is_ordered(),
                NAME,
                dtype,
                "real numbers for max and min",
            ),
        }?;
        check_axis(NAME, &self.shape, self.axis)
    }

    fn inputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        Ok(vec![Operand::of("x", dtype, self.shape)])
    }

    fn outputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        let dtype = match self.kind {
            ScanKind::Sum | ScanKind::Prod => dtype.accumulator(),
            ScanKind::Max | ScanKind::Min => dtype,
        };
        Ok(vec![Operand::of("out", dtype, self.shape)])
    }

    /// Per row of n: n − 1 sums, products or extremes; n − 2 if exclusive, for the last element is not joined.
    fn work(&self, dtype: DType) -> Option<Work> {
        let (rows, n) = rows(NAME, &self.shape, self.axis).ok()?;
        let each = match self.kind {
            ScanKind::Sum => dtype.add_flops(),
            ScanKind::Prod => dtype.mul_flops(),
            ScanKind::Max | ScanKind::Min => 1,
        };
        let joined = n.saturating_sub(1 + self.left_out());
        Work::flops(each).times(&[rows, joined])
    }

    /// An exclusive scan does not read the last element of a row.
    fn traffic(&self, dtype: DType) -> Result<Traffic, WorkloadError> {
        let (rows, n) = rows(NAME, &self.shape, self.axis)?;
        let needed = n.saturating_sub(self.left_out());
        let read = count(&[rows, needed, dtype.size()]).ok_or(WorkloadError::TooLarge {
            op: NAME,
            what: "bytes moved",
        })?;
        let written = self.outputs(dtype)?.iter().map(Operand::bytes).sum();
        Ok(Traffic { read, written })
    }

    fn write_variant(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_word(f, self.kind.name())
    }

    fn write_fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {} axis{}", self.shape, self.axis)?;
        f.write_str(if self.exclusive { " exclusive" } else { "" })?;
        f.write_str(if self.reverse { " reverse" } else { "" })
    }
}

impl Parse for Scan {
    fn parse(variant: &str, fields: &mut Fields<'_>) -> Result<Self, WorkloadError> {
        let kind = ScanKind::parse(NAME, variant)?;
        let scan = Self::infer(kind, &fields.shape()?, fields.number("axis")?)?;
        Ok(Self {
            exclusive: fields.flag("exclusive"),
            reverse: fields.flag("reverse"),
            ..scan
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;

    #[test]
    fn cost_is_counted_along_the_axis() {
        let cost = |text: &str| *text.parse::<Workload>().unwrap().cost().unwrap();
        let inclusive = cost("scan.sum f32 3x5 axis1");
        assert_eq!(inclusive.flops.0, 3 * 4);
        assert_eq!(
            (inclusive.bytes_read.0, inclusive.bytes_written.0),
            (60, 60)
        );
        let exclusive = cost("scan.sum f32 3x5 axis1 exclusive reverse");
        assert_eq!(exclusive.flops.0, 3 * 3);
        assert_eq!(
            (exclusive.bytes_read.0, exclusive.bytes_written.0),
            (48, 60)
        );
        assert_eq!(cost("scan.prod complex128 3x5 axis0").flops.0, 5 * 2 * 6);
        assert_eq!(cost("scan.max u8 7").flops.0, 6);
        assert_eq!(cost("scan.max u8 1 axis0 exclusive").bytes().0, 1);
        assert_eq!(cost("scan.sum u8 7").bytes_written.0, 28);
    }

    #[test]
    fn text_names_the_axis_always() {
        let w: Workload = "scan.min i64 3x5 reverse exclusive".parse().unwrap();
        assert_eq!(w.to_string(), "scan.min i64 3x5 axis1 exclusive reverse");
        assert_eq!(w.outputs()[0].dtype, DType::I64);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let error = |text: &str| text.parse::<Workload>().unwrap_err().to_string();
        assert_eq!(
            error("scan.sum f32 3x5 axis2"),
            "scan: axis 2 is out of range: the axes of 3x5 are 0 to 1"
        );
        assert_eq!(
            error("scan.sum f32 scalar"),
            "scan: a scalar has no axis to work along"
        );
        assert_eq!(
            error("scan.sum bool 8"),
            "scan is not defined on bool: it takes numbers, not truth values"
        );
        assert_eq!(
            error("scan.max complex64 8"),
            "scan is not defined on complex64: it takes real numbers for max and min"
        );
        assert_eq!(
            error("scan.summ f32 8"),
            "scan has no variant `summ`; did you mean `sum`?"
        );
    }
}
