//! Sorting of rows along one axis: keys alone, keys with values, or the order as indices.

use std::fmt;

use super::axis::{check_axis, last_axis, rows, write_unless_last};
use super::{Operand, Parse, Problem, Work, WorkloadError, legal, require};
use crate::dtype::DType;
use crate::shape::Shape;
use crate::text::Fields;

const NAME: &str = "sort";

/// What goes in and out besides the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SortKind {
    /// Keys in, keys out.
    Keys,
    /// Keys and values of this type in, both out in the order of the keys.
    Pairs(DType),
    /// Keys in, the indices that would sort them out.
    Arg,
}

/// A sort of rows.
///
/// Text: `sort u32 8x1000`; `sort.pairs u32 8x1000 values=f32` carries a value with each key, `sort.arg` gives indices
/// (i64) instead of keys. `axis0` names another axis than the last, `desc` puts the largest first, `stable`
/// keeps equal keys in their order. Floats are sorted by their total order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sort {
    /// What goes in and out.
    pub kind: SortKind,
    /// The shape of the keys.
    pub shape: Shape,
    /// The axis along which they are sorted.
    pub axis: usize,
    /// The largest first.
    pub descending: bool,
    /// Equal keys keep their order.
    pub stable: bool,
}

impl Sort {
    /// Keys in ascending order, along the last axis unless another is named.
    pub fn infer(keys: &Shape, axis: Option<usize>) -> Result<Self, WorkloadError> {
        let axis = axis.map_or_else(|| last_axis(NAME, keys), Ok)?;
        check_axis(NAME, keys, axis)?;
        Ok(Self {
            kind: SortKind::Keys,
            shape: *keys,
            axis,
            descending: false,
            stable: false,
        })
    }

    /// Keys with one value each.
    pub fn infer_pairs(
        keys: &Shape,
        values: &Shape,
        values_dtype: DType,
        axis: Option<usize>,
    ) -> Result<Self, WorkloadError> {
        legal(keys == values, NAME, || {
            format!("each key has one value, but keys are {keys} and values {values}")
        })?;
        Ok(Self {
            kind: SortKind::Pairs(values_dtype),
            ..Self::infer(keys, axis)?
        })
    }
}

/// Comparisons of merge sort on n keys at the worst: n·⌈log₂ n⌉ − 2^⌈log₂ n⌉ + 1.
fn comparisons(n: usize) -> Option<u64> {
    let n = u64::try_from(n).ok()?;
    if n < 2 {
        return Some(0);
    }
    let levels = (n - 1).ilog2() + 1;
    let leaves = 1u64.checked_shl(levels)?;
    n.checked_mul(levels.into())?.checked_sub(leaves - 1)
}

impl Problem for Sort {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, dtype: DType) -> Result<(), WorkloadError> {
        require(dtype.is_ordered(), NAME, dtype, "real numbers as keys")?;
        check_axis(NAME, &self.shape, self.axis)
    }

    fn inputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        let keys = Operand::of("keys", dtype, self.shape);
        Ok(match self.kind {
            SortKind::Keys | SortKind::Arg => vec![keys],
            SortKind::Pairs(values) => vec![keys, Operand::of("values", values, self.shape)],
        })
    }

    fn outputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        let keys = Operand::of("sorted_keys", dtype, self.shape);
        Ok(match self.kind {
            SortKind::Keys => vec![keys],
            SortKind::Pairs(values) => {
                vec![keys, Operand::of("sorted_values", values, self.shape)]
            }
            SortKind::Arg => vec![Operand::of("indices", DType::I64, self.shape)],
        })
    }

    /// Comparisons only: rows times n·⌈log₂ n⌉ − 2^⌈log₂ n⌉ + 1, the worst case of merge sort. A radix sort
    /// makes none at all, so this measures the problem, not every way of solving it.
    fn work(&self, _dtype: DType) -> Option<Work> {
        let (rows, n) = rows(NAME, &self.shape, self.axis).ok()?;
        let row = Work {
            comparisons: comparisons(n)?,
            ..Work::default()
        };
        row.times(&[rows])
    }

    fn write_variant(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            SortKind::Keys => "",
            SortKind::Pairs(_) => ".pairs",
            SortKind::Arg => ".arg",
        })
    }

    fn write_fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}", self.shape)?;
        if let SortKind::Pairs(values) = self.kind {
            write!(f, " values={values}")?;
        }
        write_unless_last(f, &self.shape, self.axis)?;
        f.write_str(if self.descending { " desc" } else { "" })?;
        f.write_str(if self.stable { " stable" } else { "" })
    }
}

impl Parse for Sort {
    fn parse(variant: &str, fields: &mut Fields<'_>) -> Result<Self, WorkloadError> {
        let kind = match variant {
            "" => SortKind::Keys,
            "pairs" => {
                let values = fields.value("values").ok_or(WorkloadError::Missing {
                    op: NAME,
                    field: "the type of the values, such as values=u32",
                })?;
                SortKind::Pairs(values.parse()?)
            }
            "arg" => SortKind::Arg,
            other => {
                return Err(WorkloadError::UnknownVariant {
                    op: NAME,
                    word: other.to_owned(),
                    known: &["pairs", "arg"],
                });
            }
        };
        let sort = Self::infer(&fields.shape()?, fields.number("axis")?)?;
        Ok(Self {
            kind,
            descending: fields.flag("desc"),
            stable: fields.flag("stable"),
            ..sort
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;

    /// The recurrence the closed form solves: sort both halves, then merge with n − 1 comparisons.
    fn merge_sort(n: usize) -> u64 {
        match n {
            0 | 1 => 0,
            n => merge_sort(n / 2) + merge_sort(n - n / 2) + n as u64 - 1,
        }
    }

    #[test]
    fn comparisons_are_those_of_merge_sort() {
        for n in (0..200).chain([1023, 1024, 1025, 1_000_000]) {
            assert_eq!(comparisons(n), Some(merge_sort(n)), "{n}");
        }
        // 5 keys: 5·3 − 8 + 1.
        let w: Workload = "sort u32 3x5".parse().unwrap();
        let cost = w.cost().unwrap();
        assert_eq!((cost.comparisons, cost.flops.0), (3 * 8, 0));
        assert_eq!((cost.bytes_read.0, cost.bytes_written.0), (60, 60));
        let w: Workload = "sort u32 3x5 axis0".parse().unwrap();
        assert_eq!(w.cost().unwrap().comparisons, 5 * 3);
        assert_eq!(comparisons(usize::MAX), None);
    }

    #[test]
    fn values_and_indices_have_their_own_types() {
        let pairs: Workload = "sort.pairs u32 10 values=f64".parse().unwrap();
        let cost = pairs.cost().unwrap();
        assert_eq!((cost.bytes_read.0, cost.bytes_written.0), (120, 120));
        let arg: Workload = "sort.arg u16 10".parse().unwrap();
        let cost = arg.cost().unwrap();
        assert_eq!((cost.bytes_read.0, cost.bytes_written.0), (20, 80));
        assert_eq!(arg.outputs()[0].dtype, DType::I64);
    }

    #[test]
    fn text_has_one_canonical_form() {
        for text in [
            "sort u32 1000000",
            "sort f32 8x1000 axis0 desc stable",
            "sort.pairs i8 8x1000 values=bool stable",
            "sort.arg f64 4 desc",
        ] {
            assert_eq!(text.parse::<Workload>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let error = |text: &str| text.parse::<Workload>().unwrap_err().to_string();
        assert_eq!(
            error("sort complex64 8"),
            "sort is not defined on complex64: it takes real numbers as keys"
        );
        assert_eq!(
            error("sort u32 8 axis1"),
            "sort: axis 1 is out of range: the axes of 8 are 0 to 0"
        );
        assert_eq!(
            error("sort.pairs u32 8"),
            "sort needs the type of the values, such as values=u32"
        );
        assert!(error("sort.pairs u32 8 values=u33").contains("unknown element type `u33`"));
        assert_eq!(
            error("sort.args u32 8"),
            "sort has no variant `args`; did you mean `arg`?"
        );
        let shape = |text: &str| text.parse::<Shape>().unwrap();
        let pairs = Sort::infer_pairs(&shape("8"), &shape("9"), DType::U8, None);
        assert_eq!(
            pairs.unwrap_err().to_string(),
            "sort: each key has one value, but keys are 8 and values 9"
        );
        let pairs = Sort::infer_pairs(&shape("8"), &shape("8"), DType::U8, None).unwrap();
        assert_eq!(pairs.kind, SortKind::Pairs(DType::U8));
    }
}
