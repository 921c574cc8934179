//! What can be handed in as a tensor: views, slices with a shape, arrays of `ndarray`. Nothing is copied.

use kernelwise_types::{Element, Shape, ShapeError, TensorView, TensorViewMut, ViewError};

/// Something that can be read as a tensor: a [`TensorView`], a slice (or `Vec`, or array) with its sizes such as
/// `(&data, [2, 3])`, or, with the feature `ndarray`, a reference to an array or an array view.
///
/// ```
/// use kernelwise::Tensor;
///
/// let data = vec![1f32, 2.0, 3.0, 4.0, 5.0, 6.0];
/// let view = (&data, [2, 3]).tensor()?;
/// assert_eq!(view.get::<f32>(&[1, 0]), Some(4.0));
/// let error = (&data, [2, 4]).tensor().unwrap_err();
/// assert_eq!(error.to_string(), "shape 2x4 has 8 elements, the memory 6");
/// # Ok::<(), kernelwise::types::ViewError>(())
/// ```
pub trait Tensor<'a>: sealed::Sealed {
    /// The elements where they lie.
    fn tensor(self) -> Result<TensorView<'a>, ViewError>;
}

/// Something that can be written as a tensor: a [`TensorViewMut`], a slice (or `Vec`, or array) with its sizes such as
/// `(&mut data, [2, 3])`, or, with the feature `ndarray`, an exclusive reference to an array or an array view.
pub trait TensorMut<'a>: sealed::Sealed {
    /// The elements where they lie.
    fn tensor_mut(self) -> Result<TensorViewMut<'a>, ViewError>;
}

/// Sizes of a tensor, outermost first: a [`Shape`], an array or a slice of numbers.
pub trait Sizes: sealed::Sealed {
    /// As a shape.
    fn shape(&self) -> Result<Shape, ShapeError>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! sealed {
    ($([$($generics:tt)*] $type:ty;)*) => { $(impl<$($generics)*> sealed::Sealed for $type {})* };
}

sealed! {
    [] Shape;
    [const N: usize] [usize; N];
    [] &[usize];
    ['a] TensorView<'a>;
    ['a, 'b] &'a TensorView<'b>;
    ['a] TensorViewMut<'a>;
    ['a, 'b] &'a TensorViewMut<'b>;
    ['a, 'b] &'a mut TensorViewMut<'b>;
    ['a, T, S] (&'a [T], S);
    ['a, T, S] (&'a Vec<T>, S);
    ['a, T, S, const N: usize] (&'a [T; N], S);
    ['a, T, S] (&'a mut [T], S);
    ['a, T, S] (&'a mut Vec<T>, S);
    ['a, T, S, const N: usize] (&'a mut [T; N], S);
}

impl Sizes for Shape {
    fn shape(&self) -> Result<Shape, ShapeError> {
        Ok(*self)
    }
}

impl<const N: usize> Sizes for [usize; N] {
    fn shape(&self) -> Result<Shape, ShapeError> {
        Shape::new(self)
    }
}

impl Sizes for &[usize] {
    fn shape(&self) -> Result<Shape, ShapeError> {
        Shape::new(self)
    }
}

impl<'a> Tensor<'a> for TensorView<'a> {
    fn tensor(self) -> Result<TensorView<'a>, ViewError> {
        Ok(self)
    }
}

impl<'a> Tensor<'a> for &'a TensorView<'_> {
    fn tensor(self) -> Result<TensorView<'a>, ViewError> {
        Ok(*self)
    }
}

impl<'a> Tensor<'a> for &'a TensorViewMut<'_> {
    fn tensor(self) -> Result<TensorView<'a>, ViewError> {
        Ok(self.as_view())
    }
}

impl<'a> TensorMut<'a> for TensorViewMut<'a> {
    fn tensor_mut(self) -> Result<TensorViewMut<'a>, ViewError> {
        Ok(self)
    }
}

impl<'a> TensorMut<'a> for &'a mut TensorViewMut<'_> {
    fn tensor_mut(self) -> Result<TensorViewMut<'a>, ViewError> {
        Ok(self.reborrow())
    }
}

/// Anything that is a slice, with sizes.
macro_rules! slices {
    ($([$($generics:tt)*] $type:ty;)*) => { $(
        impl<'a, T: Element, S: Sizes, $($generics)*> Tensor<'a> for (&'a $type, S) {
            fn tensor(self) -> Result<TensorView<'a>, ViewError> {
                TensorView::contiguous(&self.0[..], self.1.shape()?)
            }
        }

        impl<'a, T: Element, S: Sizes, $($generics)*> TensorMut<'a> for (&'a mut $type, S) {
            fn tensor_mut(self) -> Result<TensorViewMut<'a>, ViewError> {
                TensorViewMut::contiguous(&mut self.0[..], self.1.shape()?)
            }
        }
    )* };
}

slices! {
    [] [T];
    [] Vec<T>;
    [const N: usize] [T; N];
}

#[cfg(feature = "ndarray")]
mod arrays {
    use ndarray::{ArrayBase, ArrayView, ArrayViewMut, Data, DataMut, Dimension, RawData};

    use super::*;

    impl<S: RawData, D> sealed::Sealed for ArrayBase<S, D> {}
    impl<S: RawData, D> sealed::Sealed for &ArrayBase<S, D> {}
    impl<S: RawData, D> sealed::Sealed for &mut ArrayBase<S, D> {}

    impl<'a, T: Element, S: Data<Elem = T>, D: Dimension> Tensor<'a> for &'a ArrayBase<S, D> {
        fn tensor(self) -> Result<TensorView<'a>, ViewError> {
            TensorView::try_from(self.view())
        }
    }

    impl<'a, T: Element, D: Dimension> Tensor<'a> for ArrayView<'a, T, D> {
        fn tensor(self) -> Result<TensorView<'a>, ViewError> {
            TensorView::try_from(self)
        }
    }

    impl<'a, T: Element, S: DataMut<Elem = T>, D: Dimension> TensorMut<'a> for &'a mut ArrayBase<S, D> {
        fn tensor_mut(self) -> Result<TensorViewMut<'a>, ViewError> {
            TensorViewMut::try_from(self.view_mut())
        }
    }

    impl<'a, T: Element, D: Dimension> TensorMut<'a> for ArrayViewMut<'a, T, D> {
        fn tensor_mut(self) -> Result<TensorViewMut<'a>, ViewError> {
            TensorViewMut::try_from(self)
        }
    }
}
