//! Scatter: slices put into, or joined to, the places of a destination that indices name.

use std::fmt;

use super::axis::{check_axis, resized, rows};
use super::gather::IndexType;
use super::variant::{variants, write_word};
use super::{Operand, Parse, Problem, Traffic, Work, WorkloadError, count, legal, require};
use crate::dtype::DType;
use crate::shape::Shape;
use crate::text::Fields;

const NAME: &str = "scatter";

variants! {
    /// How an update meets what is there.
    ScatterKind {
        /// It takes its place.
        Assign = "assign",
        /// It is added.
        Add = "add",
        /// The larger stays.
        Max = "max",
        /// The smaller stays.
        Min = "min",
    }
}

/// Slices put where indices say.
///
/// Text: `scatter.add f32 50000x768 axis0 idx4096` adds 4096 slices to a table; `assign`, `max` and `min` likewise;
/// `index=i32` says that the indices are not i64. The destination is updated in place: it is the output, and what
/// it holds before the call is part of the problem. Counts take the indices to be different; where they are not,
/// several updates meet in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scatter {
    /// How an update meets what is there.
    pub kind: ScatterKind,
    /// The shape of the destination.
    pub shape: Shape,
    /// The axis the indices count along.
    pub axis: usize,
    /// How many slices are put.
    pub indices: usize,
    /// The type of the indices.
    pub index: IndexType,
}

impl Scatter {
    /// Reads the problem off the stored shapes of the destination and of the updates, one for each index.
    pub fn infer(
        kind: ScatterKind,
        destination: &Shape,
        updates: &Shape,
        index: IndexType,
        axis: usize,
    ) -> Result<Self, WorkloadError> {
        check_axis(NAME, destination, axis)?;
        let indices = updates.dims().get(axis).copied().unwrap_or_default();
        let expected = resized(NAME, destination, axis, indices)?;
        legal(expected == *updates, NAME, || {
            format!(
                "updates {updates} and destination {destination} differ elsewhere than along axis {axis}"
            )
        })?;
        Ok(Self {
            kind,
            shape: *destination,
            axis,
            indices,
            index,
        })
    }
}

impl Problem for Scatter {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, dtype: DType) -> Result<(), WorkloadError> {
        match self.kind {
            ScatterKind::Assign => Ok(()),
            ScatterKind::Add => {
                require(dtype.is_numeric(), NAME, dtype, "numbers, not truth values")
            }
            ScatterKind::Max | ScatterKind::Min => require(
                dtype.is_ordered(),
                NAME,
                dtype,
                "real numbers for max and min",
            ),
        }?;
        check_axis(NAME, &self.shape, self.axis)
    }

    fn inputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        let updates = resized(NAME, &self.shape, self.axis, self.indices)?;
        Ok(vec![
            Operand::new("indices", self.index.dtype(), &[self.indices])?,
            Operand::of("updates", dtype, updates),
        ])
    }

    /// The destination, which kernels update in place.
    fn outputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        Ok(vec![Operand::of("destination", dtype, self.shape)])
    }

    /// One sum, maximum or minimum for each element of the updates; none for an assignment.
    fn work(&self, dtype: DType) -> Option<Work> {
        let (rows, _) = rows(NAME, &self.shape, self.axis).ok()?;
        let each = match self.kind {
            ScatterKind::Assign => 0,
            ScatterKind::Add => dtype.add_flops(),
            ScatterKind::Max | ScatterKind::Min => 1,
        };
        Work::flops(each).times(&[rows, self.indices])
    }

    /// Reads indices and updates and, unless it assigns, the elements it updates; writes those. They are as
    /// many as the updates, but never more than the destination has.
    fn traffic(&self, dtype: DType) -> Result<Traffic, WorkloadError> {
        let (rows, len) = rows(NAME, &self.shape, self.axis)?;
        let too_large = || WorkloadError::TooLarge {
            op: NAME,
            what: "bytes moved",
        };
        let touched = count(&[rows, self.indices.min(len), dtype.size()]).ok_or_else(too_large)?;
        let read_back = match self.kind {
            ScatterKind::Assign => 0,
            ScatterKind::Add | ScatterKind::Max | ScatterKind::Min => touched,
        };
        let read = self
            .inputs(dtype)?
            .iter()
            .try_fold(read_back, |sum, operand| sum.checked_add(operand.bytes()))
            .ok_or_else(too_large)?;
        Ok(Traffic {
            read,
            written: touched,
        })
    }

    fn write_variant(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_word(f, self.kind.name())
    }

    fn write_fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            shape,
            axis,
            indices,
            index,
            ..
        } = self;
        write!(f, " {shape} axis{axis} idx{indices}")?;
        index.write(f)
    }
}

impl Parse for Scatter {
    fn parse(variant: &str, fields: &mut Fields<'_>) -> Result<Self, WorkloadError> {
        Ok(Self {
            kind: ScatterKind::parse(NAME, variant)?,
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
    fn only_what_is_touched_moves() {
        let cost = |text: &str| *text.parse::<Workload>().unwrap().cost().unwrap();
        let add = cost("scatter.add f32 100x7 axis0 idx10");
        assert_eq!(add.flops.0, 70);
        assert_eq!(add.bytes_read.0, 8 * 10 + 4 * 70 + 4 * 70);
        assert_eq!(add.bytes_written.0, 4 * 70);
        let assign = cost("scatter.assign bool 100x7 axis0 idx10 index=i32");
        assert_eq!((assign.flops.0, assign.bytes_read.0), (0, 4 * 10 + 70));
        assert_eq!(cost("scatter.add complex64 3x7 axis1 idx2").flops.0, 12);
        // More updates than places: every place is written once, every update still joined.
        let crowded = cost("scatter.max i32 3x7 axis0 idx10");
        assert_eq!(crowded.flops.0, 70);
        assert_eq!(crowded.bytes_read.0, 80 + 4 * 70 + 4 * 21);
        assert_eq!(crowded.bytes_written.0, 4 * 21);
    }

    #[test]
    fn the_destination_is_updated_in_place() {
        let w: Workload = "scatter.add f32 100x7 axis0 idx10".parse().unwrap();
        let names: Vec<_> = w.inputs().iter().map(|operand| operand.name).collect();
        assert_eq!(names, ["indices", "updates"]);
        assert_eq!(w.inputs()[1].shape.dims(), [10, 7]);
        assert_eq!(w.outputs()[0].shape.dims(), [100, 7]);
    }

    #[test]
    fn text_round_trips() {
        for text in [
            "scatter.min u8 3x7 axis1 idx2 index=i32",
            "scatter.assign bool 3 axis0 idx2",
        ] {
            assert_eq!(text.parse::<Workload>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let error = |text: &str| text.parse::<Workload>().unwrap_err().to_string();
        assert_eq!(
            error("scatter.add bool 3 axis0 idx2"),
            "scatter is not defined on bool: it takes numbers, not truth values"
        );
        assert_eq!(
            error("scatter.min complex64 3 axis0 idx2"),
            "scatter is not defined on complex64: it takes real numbers for max and min"
        );
        assert_eq!(
            error("scatter.add f32 3 axis1 idx2"),
            "scatter: axis 1 is out of range: the axes of 3 are 0 to 0"
        );
        assert_eq!(
            error("scatter f32 3 axis0 idx2"),
            "scatter needs a variant, such as `scatter.assign`; known: assign, add, max, min"
        );
        let shape = |text: &str| text.parse::<Shape>().unwrap();
        let infer = |destination, updates| {
            let (destination, updates) = (shape(destination), shape(updates));
            Scatter::infer(ScatterKind::Add, &destination, &updates, IndexType::I64, 0)
        };
        assert_eq!(infer("9x4", "2x4").unwrap().indices, 2);
        assert_eq!(
            infer("9x4", "2x5").unwrap_err().to_string(),
            "scatter: updates 2x5 and destination 9x4 differ elsewhere than along axis 0"
        );
        assert!(infer("9x4", "scalar").is_err());
    }
}
