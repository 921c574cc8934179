//! Reduction: one element for each row over some or all axes.

use std::fmt;

use super::variant::{variants, write_word};
use super::{Operand, Parse, Problem, Work, WorkloadError, count, legal, require};
use crate::dtype::DType;
use crate::shape::{MAX_RANK, Shape};
use crate::text::{Fields, write_list};

const NAME: &str = "reduce";

variants! {
    /// What is made of the elements of a row.
    ReduceKind {
        /// Their sum.
        Sum = "sum",
        /// Their mean.
        Mean = "mean",
        /// Their product.
        Prod = "prod",
        /// The largest.
        Max = "max",
        /// The smallest.
        Min = "min",
        /// Where the largest is, the first of them if there are several.
        ArgMax = "argmax",
        /// Where the smallest is, the first of them if there are several.
        ArgMin = "argmin",
        /// The root of the sum of their squares.
        L2 = "l2",
    }
}

/// A set of axes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Axes(u8);

// One bit per axis.
const _: () = assert!(MAX_RANK <= 8);

impl Axes {
    /// All axes of a tensor of this rank.
    fn all(rank: usize) -> Self {
        (0..rank.min(MAX_RANK)).fold(Self(0), |axes, axis| Self(axes.0 | 1 << axis))
    }

    /// The axes of the list, in any order, each once.
    pub fn new(list: &[usize]) -> Result<Self, WorkloadError> {
        list.iter().try_fold(Self(0), |axes, &axis| {
            legal(axis < MAX_RANK, NAME, || {
                format!("axis {axis} is out of range: no tensor has more than {MAX_RANK} axes")
            })?;
            legal(!axes.contains(axis), NAME, || {
                format!("axis {axis} is listed twice")
            })?;
            Ok(Self(axes.0 | 1 << axis))
        })
    }

    /// Whether the axis is one of them.
    pub const fn contains(self, axis: usize) -> bool {
        axis < MAX_RANK && self.0 >> axis & 1 == 1
    }

    /// The axes, outermost first.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_RANK).filter(move |&axis| self.contains(axis))
    }
}

impl fmt::Debug for Axes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// A reduction.
///
/// Text: `reduce.sum f32 1024x1024 axes1`, `reduce.max f32 8x16x32 axes0,2`; without `axes` all are reduced. Reduced axes
/// disappear from the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reduce {
    /// What is made of the elements of a row.
    pub kind: ReduceKind,
    /// The shape of the input.
    pub shape: Shape,
    /// The axes that disappear; all of them for one result.
    pub axes: Axes,
}

impl Reduce {
    /// Over a tensor of this shape; an empty list means all axes.
    pub fn infer(kind: ReduceKind, x: &Shape, axes: &[usize]) -> Result<Self, WorkloadError> {
        let axes = match axes {
            [] => Axes::all(x.rank()),
            axes => Axes::new(axes)?,
        };
        let reduce = Self {
            kind,
            shape: *x,
            axes,
        };
        reduce.check_sizes()?;
        Ok(reduce)
    }

    fn check_sizes(&self) -> Result<(), WorkloadError> {
        let (shape, rank) = (self.shape, self.shape.rank());
        for axis in self.axes.iter() {
            legal(axis < rank, NAME, || {
                format!("axis {axis} is out of range: {shape} has {rank} dimensions")
            })?;
        }
        legal(rank == 0 || self.axes.iter().next().is_some(), NAME, || {
            format!("no axis of {shape} is reduced: that is a copy")
        })
    }

    /// Sizes of the axes that stay, and of those that go.
    fn split(&self) -> (Vec<usize>, Vec<usize>) {
        let sizes = |reduced: bool| {
            let of = |(axis, &size)| (self.axes.contains(axis) == reduced).then_some(size);
            self.shape
                .dims()
                .iter()
                .enumerate()
                .filter_map(of)
                .collect()
        };
        (sizes(false), sizes(true))
    }
}

impl Problem for Reduce {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, dtype: DType) -> Result<(), WorkloadError> {
        use ReduceKind::{ArgMax, ArgMin, L2, Max, Mean, Min, Prod, Sum};
        let (ok, allowed) = match self.kind {
            Sum | Prod => (dtype.is_numeric(), "numbers, not truth values"),
            Mean => (
                dtype.is_float() || dtype.is_complex(),
                "real or complex floating point for mean",
            ),
            Max | Min | ArgMax | ArgMin => (dtype.is_ordered(), "real numbers for max and min"),
            L2 => (dtype.is_float(), "real floating point for l2"),
        };
        require(ok, NAME, dtype, allowed)?;
        self.check_sizes()
    }

    fn inputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        Ok(vec![Operand::of("x", dtype, self.shape)])
    }

    /// Positions are i64, and count through the reduced axes as if they were one.
    fn outputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        let dtype = match self.kind {
            ReduceKind::Sum | ReduceKind::Prod => dtype.accumulator(),
            ReduceKind::ArgMax | ReduceKind::ArgMin => DType::I64,
            _ => dtype,
        };
        Ok(vec![Operand::new("out", dtype, &self.split().0)?])
    }

    /// Per result from n elements: n − 1 sums, products or maxima; a mean divides once more, or twice if
    /// complex; a position takes a comparison and two selections each, 3·(n − 1); l2 is n squares, n − 1 sums
    /// and a root, 2n.
    fn work(&self, dtype: DType) -> Option<Work> {
        let (kept, reduced) = self.split();
        let n = count(&reduced)?;
        if n == 0 {
            return Some(Work::default());
        }
        let each = match self.kind {
            ReduceKind::Sum => (n - 1).checked_mul(dtype.add_flops())?,
            // Dividing by a real number takes as many operations as adding.
            ReduceKind::Mean => n.checked_mul(dtype.add_flops())?,
            ReduceKind::Prod => (n - 1).checked_mul(dtype.mul_flops())?,
            ReduceKind::Max | ReduceKind::Min => n - 1,
            ReduceKind::ArgMax | ReduceKind::ArgMin => (n - 1).checked_mul(3)?,
            ReduceKind::L2 => n.checked_mul(2)?,
        };
        Work::flops(each).times(&kept)
    }

    fn write_variant(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_word(f, self.kind.name())
    }

    fn write_fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}", self.shape)?;
        if self.axes == Axes::all(self.shape.rank()) {
            Ok(())
        } else {
            write_list(f, "axes", self.axes.iter(), ",")
        }
    }
}

impl Parse for Reduce {
    fn parse(variant: &str, fields: &mut Fields<'_>) -> Result<Self, WorkloadError> {
        let kind = ReduceKind::parse(NAME, variant)?;
        let axes = fields.list("axes")?.unwrap_or_default();
        Self::infer(kind, &fields.shape()?, &axes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;

    fn parse(text: &str) -> Workload {
        text.parse().unwrap()
    }

    #[test]
    fn cost_is_counted_per_result() {
        let flops = |text: &str| parse(text).cost().unwrap().flops.0;
        assert_eq!(flops("reduce.sum f32 3x5 axes1"), 3 * 4);
        assert_eq!(flops("reduce.sum complex64 3x5 axes1"), 3 * 4 * 2);
        assert_eq!(flops("reduce.prod complex64 3x5 axes0"), 5 * 2 * 6);
        assert_eq!(flops("reduce.mean f32 3x5"), 15);
        assert_eq!(flops("reduce.mean complex64 3x5"), 30);
        assert_eq!(flops("reduce.max i32 3x5"), 14);
        assert_eq!(flops("reduce.argmin f32 3x5 axes1"), 3 * 4 * 3);
        assert_eq!(flops("reduce.l2 f32 3x5 axes1"), 3 * 10);
        assert_eq!(flops("reduce.sum f32 scalar"), 0);
        let cost = *parse("reduce.argmax f32 3x5x7 axes0,2").cost().unwrap();
        assert_eq!((cost.bytes_read.0, cost.bytes_written.0), (4 * 105, 8 * 5));
    }

    #[test]
    fn results_have_the_axes_that_are_left() {
        let w = parse("reduce.sum i8 3x5x7 axes2,0");
        assert_eq!(w.outputs()[0].shape.dims(), [5]);
        assert_eq!(w.outputs()[0].dtype, DType::I32);
        assert_eq!(w.to_string(), "reduce.sum i8 3x5x7 axes0,2");
        let all = parse("reduce.min i8 3x5 axes0,1");
        assert_eq!(all.outputs()[0].shape, Shape::SCALAR);
        assert_eq!(all.outputs()[0].dtype, DType::I8);
        assert_eq!(all.to_string(), "reduce.min i8 3x5");
        assert_eq!(all, parse("reduce.min i8 3x5"));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let error = |text: &str| text.parse::<Workload>().unwrap_err().to_string();
        assert_eq!(
            error("reduce.sum f32 3x5 axes2"),
            "reduce: axis 2 is out of range: 3x5 has 2 dimensions"
        );
        assert_eq!(
            error("reduce.sum f32 3x5 axes99"),
            "reduce: axis 99 is out of range: no tensor has more than 8 axes"
        );
        assert_eq!(
            error("reduce.sum f32 3x5 axes1,1"),
            "reduce: axis 1 is listed twice"
        );
        assert_eq!(
            error("reduce.mean i32 3x5"),
            "reduce is not defined on i32: it takes real or complex floating point for mean"
        );
        assert_eq!(
            error("reduce.sum bool 3x5"),
            "reduce is not defined on bool: it takes numbers, not truth values"
        );
        assert!(error("reduce.max complex64 8").contains("real numbers for max and min"));
        assert!(error("reduce.l2 complex64 8").contains("real floating point for l2"));
        let nothing = Reduce {
            kind: ReduceKind::Sum,
            shape: "3x5".parse().unwrap(),
            axes: Axes::new(&[]).unwrap(),
        };
        assert_eq!(
            nothing.check(DType::F32).unwrap_err().to_string(),
            "reduce: no axis of 3x5 is reduced: that is a copy"
        );
        let empty = Reduce::infer(ReduceKind::L2, &"3x0".parse().unwrap(), &[1]).unwrap();
        assert_eq!(empty.work(DType::F32), Some(Work::default()));
    }
}
