//! Operations along one axis: the check that it exists, and the shape seen as rows along it.

use std::fmt;

use super::{WorkloadError, legal};
use crate::shape::Shape;

/// Refuses an axis that the shape does not have.
pub(super) fn check_axis(
    op: &'static str,
    shape: &Shape,
    axis: usize,
) -> Result<(), WorkloadError> {
    legal(axis < shape.rank(), op, || match shape.rank() {
        0 => "a scalar has no axis to work along".to_owned(),
        rank => format!(
            "axis {axis} is out of range: the axes of {shape} are 0 to {}",
            rank - 1
        ),
    })
}

/// The innermost axis, which is meant where none is named.
pub(super) fn last_axis(op: &'static str, shape: &Shape) -> Result<usize, WorkloadError> {
    check_axis(op, shape, 0)?;
    Ok(shape.rank().saturating_sub(1))
}

/// How many rows lie along the axis, and how long each is.
pub(super) fn rows(
    op: &'static str,
    shape: &Shape,
    axis: usize,
) -> Result<(usize, usize), WorkloadError> {
    check_axis(op, shape, axis)?;
    // A shape is bounded even where its zeros are passed over, so the product fits.
    let others = |(other, &size): (usize, &usize)| if other == axis { 1 } else { size };
    let rows = shape.dims().iter().enumerate().map(others).product();
    Ok((rows, shape.dims().get(axis).copied().unwrap_or_default()))
}

/// The shape with another size along the axis.
pub(super) fn resized(
    op: &'static str,
    shape: &Shape,
    axis: usize,
    size: usize,
) -> Result<Shape, WorkloadError> {
    check_axis(op, shape, axis)?;
    let mut dims = shape.dims().to_vec();
    if let Some(dim) = dims.get_mut(axis) {
        *dim = size;
    }
    Ok(Shape::new(&dims)?)
}

/// Writes ` axis0`, or nothing for the innermost one.
pub(super) fn write_unless_last(
    f: &mut fmt::Formatter<'_>,
    shape: &Shape,
    axis: usize,
) -> fmt::Result {
    if axis.checked_add(1) == Some(shape.rank()) {
        Ok(())
    } else {
        write!(f, " axis{axis}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_rows_along_any_of_its_axes() {
        let shape: Shape = "3x5x7".parse().unwrap();
        assert_eq!(rows("scan", &shape, 0).unwrap(), (35, 3));
        assert_eq!(rows("scan", &shape, 1).unwrap(), (21, 5));
        assert_eq!(last_axis("scan", &shape).unwrap(), 2);
        assert_eq!(resized("scan", &shape, 1, 9).unwrap().to_string(), "3x9x7");
    }

    #[test]
    fn axes_that_are_not_there_are_named() {
        let shape: Shape = "3x5x7".parse().unwrap();
        let error = rows("scan", &shape, 3).unwrap_err().to_string();
        assert_eq!(
            error,
            "scan: axis 3 is out of range: the axes of 3x5x7 are 0 to 2"
        );
        let error = last_axis("scan", &Shape::SCALAR).unwrap_err().to_string();
        assert_eq!(error, "scan: a scalar has no axis to work along");
    }
}
