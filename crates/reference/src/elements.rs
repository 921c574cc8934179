//! Elements in and out of views: the one place that knows strides.
//!
//! Kernels here work on lists in index order, the last dimension fastest, and name an element by its
//! *position* in that order. What order the elements have in memory is seen by [`load`] and [`store`] alone.

use kernelwise_types::{DType, Element, MAX_RANK, Shape, TensorView, TensorViewMut, ViewError};

/// All elements of a view in index order.
pub(crate) fn load<T: Element>(view: &TensorView<'_>) -> Result<Vec<T>, ViewError> {
    Ok(view.iter::<T>()?.collect())
}

/// Writes elements at their positions, later ones over earlier ones; nothing else is touched.
pub(crate) fn store<T: Element>(
    view: &mut TensorViewMut<'_>,
    values: impl IntoIterator<Item = (usize, T)>,
) -> Result<(), ViewError> {
    if view.dtype() != T::DTYPE {
        return Err(ViewError::DType {
            actual: view.dtype(),
            expected: T::DTYPE,
        });
    }
    let shape = *view.shape();
    for (position, value) in values {
        let index = unravel(&shape, position);
        view.set(&index[..shape.rank()], value);
    }
    Ok(())
}

/// The index of a position; entries beyond the rank mean nothing.
pub(crate) fn unravel(shape: &Shape, position: usize) -> [usize; MAX_RANK] {
    let mut index = [0; MAX_RANK];
    let mut rest = position;
    for (axis, &size) in shape.dims().iter().enumerate().rev() {
        index[axis] = rest % size;
        rest /= size;
    }
    index
}

/// The positions of a shape in groups: one group for each index along the axes that are not `joined`, in
/// index order, and in each group one position for each index along those that are, in index order.
pub(crate) fn groups(shape: &Shape, joined: impl Fn(usize) -> bool) -> Vec<Vec<usize>> {
    let apart = |axis: &usize| !joined(*axis);
    let dims = shape.dims();
    let count = (0..shape.rank())
        .filter(apart)
        .map(|axis| dims[axis])
        .product();
    let mut groups = vec![Vec::new(); count];
    for position in 0..shape.elements() {
        let index = unravel(shape, position);
        let group = (0..shape.rank())
            .filter(apart)
            .fold(0, |group, axis| group * dims[axis] + index[axis]);
        groups[group].push(position);
    }
    groups
}

/// The positions of each row along one axis.
pub(crate) fn lines(shape: &Shape, axis: usize) -> Vec<Vec<usize>> {
    groups(shape, |other| other == axis)
}

/// Copies elements as they are, bit by bit: `moves` pairs positions in `to` with positions in `from`. Both
/// hold the same element type, which may be any.
pub(crate) fn rearrange(
    from: &TensorView<'_>,
    to: &mut TensorViewMut<'_>,
    moves: impl IntoIterator<Item = (usize, usize)>,
) -> Result<(), ViewError> {
    use half::{bf16, f16};
    use num_complex::Complex;

    fn typed<T: Element>(
        from: &TensorView<'_>,
        to: &mut TensorViewMut<'_>,
        moves: impl IntoIterator<Item = (usize, usize)>,
    ) -> Result<(), ViewError> {
        let elements = load::<T>(from)?;
        let moved = moves.into_iter().map(|(to, from)| (to, elements[from]));
        store(to, moved)
    }

    match from.dtype() {
        DType::F16 => typed::<f16>(from, to, moves),
        DType::Bf16 => typed::<bf16>(from, to, moves),
        DType::F32 => typed::<f32>(from, to, moves),
        DType::F64 => typed::<f64>(from, to, moves),
        DType::I8 => typed::<i8>(from, to, moves),
        DType::I16 => typed::<i16>(from, to, moves),
        DType::I32 => typed::<i32>(from, to, moves),
        DType::I64 => typed::<i64>(from, to, moves),
        DType::U8 => typed::<u8>(from, to, moves),
        DType::U16 => typed::<u16>(from, to, moves),
        DType::U32 => typed::<u32>(from, to, moves),
        DType::U64 => typed::<u64>(from, to, moves),
        DType::Bool => typed::<bool>(from, to, moves),
        DType::Complex64 => typed::<Complex<f32>>(from, to, moves),
        DType::Complex128 => typed::<Complex<f64>>(from, to, moves),
    }
}

#[cfg(test)]
mod tests {
    use kernelwise_types::Layout;

    use super::*;

    fn shape(text: &str) -> Shape {
        text.parse().unwrap()
    }

    #[test]
    fn groups_follow_the_axes_that_stay() {
        assert_eq!(lines(&shape("2x3"), 1), [vec![0, 1, 2], vec![3, 4, 5]]);
        assert_eq!(
            lines(&shape("2x3"), 0),
            [vec![0, 3], vec![1, 4], vec![2, 5]]
        );
        // 2x3x2 with the middle axis kept: each group walks the outer axis, then the inner one.
        assert_eq!(
            groups(&shape("2x3x2"), |axis| axis != 1),
            [vec![0, 1, 6, 7], vec![2, 3, 8, 9], vec![4, 5, 10, 11]]
        );
        assert_eq!(groups(&shape("scalar"), |_| true), [[0]]);
    }

    #[test]
    fn storing_follows_the_strides_and_leaves_the_gaps() {
        let mut memory = [0u8; 8];
        // Columns of a 3x2 matrix with a gap of one, rows backwards.
        let layout = Layout::strided(shape("3x2"), &[-1, 4]).unwrap();
        let mut view = TensorViewMut::strided(&mut memory, layout, 2).unwrap();
        store(&mut view, (1..=6u8).enumerate()).unwrap();
        assert_eq!(load::<u8>(&view.as_view()).unwrap(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(memory, [5, 3, 1, 0, 6, 4, 2, 0]);
    }

    #[test]
    fn another_element_type_is_refused_before_a_byte_is_written() {
        let mut memory = [0i32; 2];
        let mut view = TensorViewMut::contiguous(&mut memory, shape("2")).unwrap();
        let error = store(&mut view, [(0, 1u32)]).unwrap_err();
        assert_eq!(error.to_string(), "the tensor holds i32, not u32");
        assert!(load::<u32>(&view.as_view()).is_err());
        assert_eq!(memory, [0, 0]);
    }
}
