//! Gather: slices of a table, picked by index along one axis, as an embedding does.

use std::fmt;

use super::axis::{check_axis, resized, rows};
use super::variant::variants;
use super::{Operand, Parse, Problem, Traffic, Work, WorkloadError, count, no_variant};
use crate::dtype::DType;
use crate::shape::Shape;
use crate::text::Fields;

const NAME: &str = "gather";

variants! {
    /// The type of indices.
    IndexType {
        /// 32 bits.
        I32 = "i32",
        /// 64 bits.
        I64 = "i64",
    }
}

impl IndexType {
    /// As an element type.
    pub const fn dtype(self) -> DType {
        match self {
            Self::I32 => DType::I32,
            Self::I64 => DType::I64,
        }
    }

    /// Takes `index=i32` or `index=i64`, the latter meant when nothing is written.
    pub(super) fn read(op: &'static str, fields: &mut Fields<'_>) -> Result<Self, WorkloadError> {
        let Some(word) = fields.value("index") else {
            return Ok(Self::I64);
        };
        Self::parse(op, word).map_err(|_| WorkloadError::BadField {
            op,
            word: format!("index={word}"),
            expected: "index=i32 or index=i64",
        })
    }

    /// Writes ` index=i32`, or nothing for i64.
    pub(super) fn write(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::I64 => Ok(()),
            Self::I32 => f.write_str(" index=i32"),
        }
    }
}

/// Slices picked by index.
///
/// Text: `gather f32 50000x768 axis0 idx4096` picks 4096 slices; `index=i32` says that the indices are not i64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gather {
    /// The shape of the table.
    pub shape: Shape,
    /// The axis the indices count along.
    pub axis: usize,
    /// How many slices are picked.
    pub indices: usize,
    /// The type of the indices.
    pub index: IndexType,
}

impl Gather {
    /// Reads the problem off the stored shapes of the table and of the list of indices.
    pub fn infer(
        table: &Shape,
        indices: &Shape,
        index: IndexType,
        axis: usize,
    ) -> Result<Self, WorkloadError> {
        check_axis(NAME, table, axis)?;
        let &[indices] = indices.dims() else {
            return Err(WorkloadError::Illegal {
                op: NAME,
                detail: format!("indices are a list, not {indices}: flatten them"),
            });
        };
        Ok(Self {
            shape: *table,
            axis,
            indices,
            index,
        })
    }
}

impl Problem for Gather {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, _dtype: DType) -> Result<(), WorkloadError> {
        check_axis(NAME, &self.shape, self.axis)
    }

    fn inputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        Ok(vec![
            Operand::of("table", dtype, self.shape),
            Operand::new("indices", self.index.dtype(), &[self.indices])?,
        ])
    }

    fn outputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        let shape = resized(NAME, &self.shape, self.axis, self.indices)?;
        Ok(vec![Operand::of("out", dtype, shape)])
    }

    /// No arithmetic.
    fn work(&self, _dtype: DType) -> Option<Work> {
        Some(Work::default())
    }

    /// Reads the indices and the slices they name, as if all were different, but never more than the
    /// whole table.
    fn traffic(&self, dtype: DType) -> Result<Traffic, WorkloadError> {
        let (rows, len) = rows(NAME, &self.shape, self.axis)?;
        let slices = count(&[rows, self.indices.min(len), dtype.size()]);
        let indices = count(&[self.indices, self.index.dtype().size()]);
        let read = slices.zip(indices).and_then(|(a, b)| a.checked_add(b));
        Ok(Traffic {
            read: read.ok_or(WorkloadError::TooLarge {
                op: NAME,
                what: "bytes moved",
            })?,
            written: self.outputs(dtype)?.iter().map(Operand::bytes).sum(),
        })
    }

    fn write_fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            shape,
            axis,
            indices,
            index,
        } = self;
        write!(f, " {shape} axis{axis} idx{indices}")?;
        index.write(f)
    }
}

impl Parse for Gather {
    fn parse(variant: &str, fields: &mut Fields<'_>) -> Result<Self, WorkloadError> {
        no_variant(NAME, variant)?;
        Ok(Self {
            shape: fields.shape()?,
            axis: fields.required("axis")?,
            indices: fields.required("idx")?,
            index: IndexType::read(NAME, fields)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;

    #[test]
    fn only_what_is_picked_is_read() {
        let w: Workload = "gather f32 50000x768 axis0 idx4096".parse().unwrap();
        assert_eq!(w.outputs()[0].shape.dims(), [4096, 768]);
        let cost = w.cost().unwrap();
        assert_eq!(cost.bytes_read.0, 8 * 4096 + 4 * 4096 * 768);
        assert_eq!(cost.bytes_written.0, 4 * 4096 * 768);
        assert_eq!(cost.flops.0, 0);
        let again: Workload = "gather bool 5x3 axis1 idx7 index=i32".parse().unwrap();
        assert_eq!(again.outputs()[0].shape.dims(), [5, 7]);
        assert_eq!(again.cost().unwrap().bytes_read.0, 4 * 7 + 15);
        assert_eq!(again.to_string(), "gather bool 5x3 axis1 idx7 index=i32");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let error = |text: &str| text.parse::<Workload>().unwrap_err().to_string();
        assert_eq!(
            error("gather f32 5x3 axis2 idx7"),
            "gather: axis 2 is out of range: the axes of 5x3 are 0 to 1"
        );
        assert_eq!(
            error("gather f32 5x3 axis1"),
            "gather needs idx, as in `gather f32 50000x768 axis0 idx4096`"
        );
        assert_eq!(
            error("gather f32 5x3 axis1 idx7 index=u8"),
            "gather: `index=u8` is not readable: expected index=i32 or index=i64"
        );
        assert_eq!(
            error("gather.rows f32 5x3 axis1 idx7"),
            "gather has no use for `.rows`: remove it, or check its spelling, as in `gather f32 50000x768 axis0 idx4096`"
        );
        let shape = |text: &str| text.parse::<Shape>().unwrap();
        let infer = |table, indices, axis| {
            Gather::infer(&shape(table), &shape(indices), IndexType::I64, axis)
        };
        assert_eq!(infer("5x3", "7", 1).unwrap().indices, 7);
        assert_eq!(
            infer("5x3", "7x2", 1).unwrap_err().to_string(),
            "gather: indices are a list, not 7x2: flatten them"
        );
        assert!(infer("5x3", "7", 2).is_err());
    }
}
