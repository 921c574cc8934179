//! Views of `ndarray` arrays, without copying, whatever their strides.

use std::marker::PhantomData;
use std::ptr::NonNull;

use ndarray::{ArrayView, ArrayViewMut, Dimension};

use super::{Memory, TensorView, TensorViewMut, ViewError};
use crate::dtype::Element;
use crate::layout::Layout;
use crate::shape::Shape;

fn memory<T: Element>(
    first: *const T,
    sizes: &[usize],
    strides: &[isize],
) -> Result<Memory, ViewError> {
    let layout = Layout::strided(Shape::new(sizes)?, strides)?;
    let first = NonNull::new(first.cast_mut())
        .unwrap_or(NonNull::dangling())
        .cast();
    Ok(Memory {
        first,
        dtype: T::DTYPE,
        layout,
    })
}

/// Borrows the elements of an array view. Fails only for more than
/// [`MAX_RANK`](crate::MAX_RANK) dimensions.
impl<'a, T: Element, D: Dimension> TryFrom<ArrayView<'a, T, D>> for TensorView<'a> {
    type Error = ViewError;

    fn try_from(array: ArrayView<'a, T, D>) -> Result<Self, ViewError> {
        // `ndarray` upholds the invariant of `Memory`: its pointer, shape and strides reach elements
        // borrowed for 'a only.
        let memory = memory(array.as_ptr(), array.shape(), array.strides())?;
        Ok(Self {
            memory,
            borrow: PhantomData,
        })
    }
}

/// Borrows the elements of a writable array view, under the same checks as
/// [`TensorViewMut::strided`].
impl<'a, T: Element, D: Dimension> TryFrom<ArrayViewMut<'a, T, D>> for TensorViewMut<'a> {
    type Error = ViewError;

    fn try_from(mut array: ArrayViewMut<'a, T, D>) -> Result<Self, ViewError> {
        let first = array.as_mut_ptr().cast_const();
        let memory = memory(first, array.shape(), array.strides())?;
        if memory.layout.may_overlap() {
            let (shape, strides) = (*memory.layout.shape(), memory.layout.strides().to_vec());
            return Err(ViewError::Overlapping { shape, strides });
        }
        Ok(Self {
            memory,
            borrow: PhantomData,
        })
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, s};

    use super::*;

    #[test]
    fn any_strides_are_borrowed_as_they_are() {
        let array = Array2::from_shape_fn((4, 6), |(i, j)| (i * 6 + j) as f32);
        let view = TensorView::try_from(array.view()).unwrap();
        assert_eq!(view.as_slice::<f32>().unwrap(), array.as_slice().unwrap());

        let part = array.slice(s![1..;2, ..;-2]);
        let view = TensorView::try_from(part).unwrap();
        assert_eq!(view.shape().dims(), part.shape());
        for ((i, j), value) in part.indexed_iter() {
            assert_eq!(view.get::<f32>(&[i, j]), Some(*value));
        }
        let columns = TensorView::try_from(array.t()).unwrap();
        assert_eq!(columns.get::<f32>(&[5, 3]), Some(23.0));
    }

    #[test]
    fn interleaved_halves_can_be_written_at_once() {
        let mut array = Array2::<u32>::zeros((2, 4));
        let (even, odd) = array.multi_slice_mut((s![.., ..;2], s![.., 1..;2]));
        let mut even = TensorViewMut::try_from(even).unwrap();
        let mut odd = TensorViewMut::try_from(odd).unwrap();
        for row in 0..2 {
            for column in 0..2 {
                assert!(even.set(&[row, column], 10u32));
                assert!(odd.set(&[row, column], 11u32));
            }
        }
        assert_eq!(array.row(1).to_vec(), [10, 11, 10, 11]);
    }
}
