//! Views of tensors that live in the caller's memory.
//!
//! A view is a pointer to the first element, an element type and a [`Layout`]; it owns nothing and
//! copies nothing. What makes it safe is checked once, when it is made from a slice: every element the
//! layout can reach lies inside the slice, and a view that may be written never reaches the same element
//! twice. After that the shape is the only bound that needs checking.
//!
//! The element type is a value, not a type parameter, because kernels are chosen at run time among
//! several of them; the typed accessors ([`TensorView::as_slice`], [`TensorView::get`]) refuse the wrong
//! type. Pointers are used rather than slices because two views may interleave in memory (the odd and
//! the even columns of one matrix) without sharing an element; slices over both would alias.
//!
//! This is the only module of the crate with unsafe code.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::dtype::{DType, Element};
use crate::layout::{Layout, LayoutError, LayoutKind};
use crate::op::{Operand, Operation};
use crate::shape::Shape;
use crate::workload::Workload;

#[cfg(feature = "ndarray")]
mod ndarray;

/// A borrowed tensor that can be read.
///
/// ```
/// use kernelwise_types::{Layout, TensorView};
///
/// let data = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
/// let rows = TensorView::contiguous(&data, "2x3".parse()?)?;
/// assert_eq!(rows.get::<f32>(&[1, 0]), Some(4.0));
///
/// let columns = rows.permuted(&[1, 0]).expect("each dimension once");
/// assert_eq!(columns.get::<f32>(&[0, 1]), Some(4.0));
/// assert_eq!(columns.iter::<f32>()?.collect::<Vec<_>>(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
///
/// assert!(TensorView::contiguous(&data, "2x4".parse()?).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    memory: Memory,
    borrow: PhantomData<&'a ()>,
}

/// A borrowed tensor that can be read and written; no other view reaches its elements while it lives.
///
/// ```
/// use kernelwise_types::TensorViewMut;
///
/// let mut data = [0i32; 4];
/// let mut view = TensorViewMut::contiguous(&mut data, "2x2".parse()?)?;
/// assert!(view.set(&[1, 0], 7i32));
/// assert!(!view.set(&[2, 0], 7i32), "outside");
/// assert_eq!(data, [0, 0, 7, 0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TensorViewMut<'a> {
    memory: Memory,
    borrow: PhantomData<&'a mut ()>,
}

/// Pointer, element type and layout. Invariant: for every index inside the shape, the element at
/// `first + offset(index)` is valid for the lifetime of the view that holds this.
#[derive(Debug, Clone, Copy)]
struct Memory {
    first: NonNull<u8>,
    dtype: DType,
    layout: Layout,
}

/// Why memory is no tensor of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The layout reaches outside the slice.
    #[error(
        "shape {shape} with its strides reaches elements {low} to {high} of a slice of {length}"
    )]
    OutOfBounds {
        /// The shape.
        shape: Shape,
        /// Lowest element reached; may be negative.
        low: isize,
        /// Highest element reached.
        high: isize,
        /// Elements in the slice.
        length: usize,
    },
    /// Memory that does not hold exactly the elements of a shape without gaps.
    #[error("shape {shape} has {} elements, the memory {length}", .shape.elements())]
    Length {
        /// The shape.
        shape: Shape,
        /// Elements in the memory.
        length: usize,
    },
    /// Writable memory in which two indices may share an element.
    #[error(
        "strides {strides:?} over shape {shape} may reach an element twice: only readable views may overlap themselves"
    )]
    Overlapping {
        /// The shape.
        shape: Shape,
        /// The strides.
        strides: Vec<isize>,
    },
    /// The elements are of another type.
    #[error("the tensor holds {actual}, not {expected}")]
    DType {
        /// What it holds.
        actual: DType,
        /// What was asked for.
        expected: DType,
    },
    /// A slice was asked for, but the elements do not lie in a row.
    #[error("a tensor of shape {shape} with strides {strides:?} is not one slice: copy it first")]
    NotContiguous {
        /// The shape.
        shape: Shape,
        /// The strides.
        strides: Vec<isize>,
    },
    /// Shape and strides that make no layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Sizes that make no shape.
    #[error(transparent)]
    Shape(#[from] crate::shape::ShapeError),
    /// Not as many tensors as the operation has operands.
    #[error("{workload} takes {expected} {role}s, not {actual}")]
    Count {
        /// The workload in text.
        workload: String,
        /// `input` or `output`.
        role: &'static str,
        /// How many the operation has.
        expected: usize,
        /// How many came.
        actual: usize,
    },
    /// A tensor of another shape or element type than its operand.
    #[error("{workload}: operand `{operand}` is {expected}, the tensor {actual}")]
    Mismatch {
        /// The workload in text.
        workload: String,
        /// The operand.
        operand: &'static str,
        /// Element type and shape of the operand.
        expected: String,
        /// Element type and shape of the tensor.
        actual: String,
    },
    /// An output that shares memory with another operand.
    #[error(
        "{workload}: output `{output}` shares memory with `{other}`: give it memory of its own"
    )]
    Aliased {
        /// The workload in text.
        workload: String,
        /// The output.
        output: &'static str,
        /// The operand it touches.
        other: &'static str,
    },
}

impl Memory {
    /// Checks a layout whose first element is `data[offset]` against the slice's bounds.
    fn over<T: Element>(
        data: *const [T],
        layout: Layout,
        offset: usize,
    ) -> Result<Self, ViewError> {
        let length = data.len();
        let base = data.cast::<T>();
        let Some((low, high)) = layout.span() else {
            // No elements: nothing will be read through the pointer.
            return Ok(Self {
                first: dangling::<T>(),
                dtype: T::DTYPE,
                layout,
            });
        };
        let shape = *layout.shape();
        let reach = |span: isize| {
            isize::try_from(offset)
                .ok()
                .and_then(|offset| offset.checked_add(span))
        };
        let (Some(low), Some(high)) = (reach(low), reach(high)) else {
            return Err(ViewError::OutOfBounds {
                shape,
                low,
                high,
                length,
            });
        };
        if low < 0 || high.unsigned_abs() >= length {
            return Err(ViewError::OutOfBounds {
                shape,
                low,
                high,
                length,
            });
        }
        let first = NonNull::new(base.wrapping_add(offset).cast_mut())
            .map_or(dangling::<T>(), NonNull::cast);
        Ok(Self {
            first,
            dtype: T::DTYPE,
            layout,
        })
    }

    fn expect<T: Element>(&self) -> Result<(), ViewError> {
        if self.dtype == T::DTYPE {
            Ok(())
        } else {
            Err(ViewError::DType {
                actual: self.dtype,
                expected: T::DTYPE,
            })
        }
    }

    /// Pointer to one element; `None` outside the shape or for another element type.
    fn element<T: Element>(&self, index: &[usize]) -> Option<NonNull<T>> {
        self.expect::<T>().ok()?;
        let offset = self.layout.offset(index)?;
        debug_assert!(
            self.layout
                .span()
                .is_some_and(|(low, high)| (low..=high).contains(&offset))
        );
        // SAFETY: the index is inside the shape, so by the invariant of `Memory` the element lies in
        // the allocation the view was made from, and the offset in bytes fits `isize` (`Layout`).
        Some(unsafe { self.first.cast::<T>().offset(offset) })
    }

    /// Start and length of the elements as one slice.
    fn contiguous<T: Element>(&self) -> Result<(NonNull<T>, usize), ViewError> {
        self.expect::<T>()?;
        let shape = *self.layout.shape();
        if self.layout.is_contiguous() {
            Ok((self.first.cast(), shape.elements()))
        } else {
            Err(ViewError::NotContiguous {
                shape,
                strides: self.layout.strides().to_vec(),
            })
        }
    }

    /// First and one-past-last address that any element touches.
    fn addresses(&self) -> Option<(usize, usize)> {
        let (low, high) = self.layout.span()?;
        let size = self.dtype.size();
        let at = |elements: isize| {
            self.first
                .addr()
                .get()
                .wrapping_add_signed(elements * size as isize)
        };
        Some((at(low), at(high) + size))
    }

    fn alignment(&self) -> usize {
        1 << self.first.addr().trailing_zeros().min(12)
    }

    /// The same elements in another shape, if they lie in a row and their number is the same.
    fn reshaped(&self, shape: Shape) -> Result<Self, ViewError> {
        let actual = *self.layout.shape();
        if !self.layout.is_contiguous() {
            let strides = self.layout.strides().to_vec();
            return Err(ViewError::NotContiguous {
                shape: actual,
                strides,
            });
        }
        if actual.elements() != shape.elements() {
            let length = actual.elements();
            return Err(ViewError::Length { shape, length });
        }
        let layout = Layout::contiguous(shape);
        Ok(Self { layout, ..*self })
    }

    fn describe(&self) -> String {
        format!("{} {}", self.dtype, self.layout.shape())
    }
}

/// An aligned pointer for tensors without elements.
fn dangling<T>() -> NonNull<u8> {
    NonNull::<T>::dangling().cast()
}

// SAFETY: a view is a borrow of elements that are themselves `Send` and `Sync` (`Element` requires it);
// sharing or moving it is sharing or moving a `&[T]` or `&mut [T]`.
unsafe impl Send for TensorView<'_> {}
// SAFETY: as above; a shared `TensorView` only reads.
unsafe impl Sync for TensorView<'_> {}
// SAFETY: as above; a `TensorViewMut` has exclusive use of its elements, like `&mut [T]`.
unsafe impl Send for TensorViewMut<'_> {}
// SAFETY: as above; writing needs `&mut self`.
unsafe impl Sync for TensorViewMut<'_> {}

/// What readable and writable views have in common.
macro_rules! shared_accessors {
    () => {
        /// The element type.
        #[inline]
        pub fn dtype(&self) -> DType {
            self.memory.dtype
        }

        /// The shape.
        #[inline]
        pub fn shape(&self) -> &Shape {
            self.memory.layout.shape()
        }

        /// Shape and strides.
        #[inline]
        pub fn layout(&self) -> &Layout {
            &self.memory.layout
        }

        /// The largest power of two, up to 4096, that divides the address of the first element.
        pub fn alignment(&self) -> usize {
            self.memory.alignment()
        }

        /// One element; `None` outside the shape, or if the tensor holds another type.
        pub fn get<T: Element>(&self, index: &[usize]) -> Option<T> {
            let element = self.memory.element::<T>(index)?;
            // SAFETY: `element` is inside the memory this view borrows, and initialised: it came
            // from a slice of `T`.
            Some(unsafe { element.read() })
        }

        /// All elements in the order of their indices, the last dimension fastest.
        pub fn iter<T: Element>(&self) -> Result<impl Iterator<Item = T> + '_, ViewError> {
            self.memory.expect::<T>()?;
            let elements = self.memory.layout.shape().elements();
            Ok((0..elements).filter_map(|position| {
                let (index, rank) = self.memory.layout.shape().unravel(position);
                self.get::<T>(&index[..rank])
            }))
        }
    };
}

impl<'a> TensorView<'a> {
    /// A slice seen as a tensor, row by row. The slice holds exactly the shape's elements.
    pub fn contiguous<T: Element>(data: &'a [T], shape: Shape) -> Result<Self, ViewError> {
        if data.len() != shape.elements() {
            return Err(ViewError::Length {
                shape,
                length: data.len(),
            });
        }
        Self::strided(data, Layout::contiguous(shape), 0)
    }

    /// A part of a slice seen through a layout, its first element at `data[offset]`.
    pub fn strided<T: Element>(
        data: &'a [T],
        layout: Layout,
        offset: usize,
    ) -> Result<Self, ViewError> {
        let memory = Memory::over(std::ptr::from_ref(data), layout, offset)?;
        Ok(Self {
            memory,
            borrow: PhantomData,
        })
    }

    shared_accessors!();

    /// The elements as a slice, if they lie row by row without gaps.
    #[inline]
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T], ViewError> {
        let (start, length) = self.memory.contiguous::<T>()?;
        // SAFETY: the layout is contiguous, so its elements are exactly these `length` ones, borrowed
        // for 'a from a slice of `T` (or there are none, and the pointer is aligned and dangling).
        Ok(unsafe { std::slice::from_raw_parts(start.as_ptr(), length) })
    }

    /// Pointer to the first element, for kernels that walk the strides themselves. Reading through
    /// it is sound at offsets that [`Layout::offset`] gives.
    #[inline]
    pub fn as_ptr<T: Element>(&self) -> Result<*const T, ViewError> {
        self.memory.expect::<T>()?;
        Ok(self.memory.first.cast::<T>().as_ptr())
    }

    /// The same elements in another shape, such as a stack of matrices for leading dimensions that
    /// are one batch. They must lie row by row without gaps.
    pub fn reshaped(&self, shape: Shape) -> Result<Self, ViewError> {
        let memory = self.memory.reshaped(shape)?;
        Ok(Self {
            memory,
            borrow: PhantomData,
        })
    }

    /// The same elements with the dimensions in another order; `None` unless `order` names each once.
    pub fn permuted(&self, order: &[usize]) -> Option<Self> {
        let layout = self.memory.layout.permuted(order)?;
        Some(Self {
            memory: Memory {
                layout,
                ..self.memory
            },
            borrow: PhantomData,
        })
    }
}

impl<'a> TensorViewMut<'a> {
    /// A slice seen as a tensor, row by row. The slice holds exactly the shape's elements.
    pub fn contiguous<T: Element>(data: &'a mut [T], shape: Shape) -> Result<Self, ViewError> {
        if data.len() != shape.elements() {
            return Err(ViewError::Length {
                shape,
                length: data.len(),
            });
        }
        Self::strided(data, Layout::contiguous(shape), 0)
    }

    /// A part of a slice seen through a layout, its first element at `data[offset]`. Layouts that
    /// may reach an element twice are refused.
    pub fn strided<T: Element>(
        data: &'a mut [T],
        layout: Layout,
        offset: usize,
    ) -> Result<Self, ViewError> {
        if layout.may_overlap() {
            let (shape, strides) = (*layout.shape(), layout.strides().to_vec());
            return Err(ViewError::Overlapping { shape, strides });
        }
        let memory = Memory::over(std::ptr::from_mut(data).cast_const(), layout, offset)?;
        Ok(Self {
            memory,
            borrow: PhantomData,
        })
    }

    shared_accessors!();

    /// Writes one element; `false` outside the shape, or if the tensor holds another type.
    pub fn set<T: Element>(&mut self, index: &[usize], value: T) -> bool {
        let element = self.memory.element::<T>(index);
        if let Some(element) = element {
            // SAFETY: `element` is inside the memory this view borrows exclusively, and of type `T`.
            unsafe { element.write(value) };
        }
        element.is_some()
    }

    /// The elements as a slice, if they lie row by row without gaps.
    #[inline]
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], ViewError> {
        let (start, length) = self.memory.contiguous::<T>()?;
        // SAFETY: as in `TensorView::as_slice`; exclusive because `self` is borrowed exclusively.
        Ok(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) })
    }

    /// Pointer to the first element, for kernels that walk the strides themselves. Access through it
    /// is sound at offsets that [`Layout::offset`] gives.
    #[inline]
    pub fn as_mut_ptr<T: Element>(&mut self) -> Result<*mut T, ViewError> {
        self.memory.expect::<T>()?;
        Ok(self.memory.first.cast::<T>().as_ptr())
    }

    /// The same elements in another shape, under the conditions of [`TensorView::reshaped`].
    pub fn reshaped(self, shape: Shape) -> Result<Self, ViewError> {
        let memory = self.memory.reshaped(shape)?;
        Ok(Self {
            memory,
            borrow: PhantomData,
        })
    }

    /// The same tensor for a while, as `&mut *reference` is the same reference.
    #[inline]
    pub fn reborrow(&mut self) -> TensorViewMut<'_> {
        TensorViewMut {
            memory: self.memory,
            borrow: PhantomData,
        }
    }

    /// The same tensor for reading, while nobody writes.
    pub fn as_view(&self) -> TensorView<'_> {
        TensorView {
            memory: self.memory,
            borrow: PhantomData,
        }
    }
}

impl Workload {
    /// Checks the tensors of one call against the operands: their number, shapes and element types,
    /// and that no output shares memory with another operand. Returns the workload with the layout
    /// these tensors have, the least convenient of them. Address ranges are compared, so interleaved
    /// outputs are refused although they share no element. A custom operation takes the tensors its
    /// kernels expect: any number and shape, as long as no output shares memory.
    pub fn over(
        &self,
        inputs: &[TensorView<'_>],
        outputs: &[TensorViewMut<'_>],
    ) -> Result<Self, ViewError> {
        // No list is made of them: this stands on the path of every call.
        let inputs = inputs.iter().map(|view| &view.memory);
        let outputs = outputs.iter().map(|view| &view.memory);
        if !matches!(self.operation(), Operation::Custom(_)) {
            self.matches("input", self.inputs(), inputs.clone())?;
            self.matches("output", self.outputs(), outputs.clone())?;
        }
        let name = |operands: &[Operand], position: usize, role| {
            operands.get(position).map_or(role, |operand| operand.name)
        };
        let read = inputs.clone().enumerate();
        let read = read.map(|(i, memory)| (name(self.inputs(), i, "input"), memory));
        for (position, output) in outputs.clone().enumerate() {
            let earlier = outputs.clone().enumerate().take(position);
            let earlier = earlier.map(|(i, memory)| (name(self.outputs(), i, "output"), memory));
            if let Some((other, _)) = read
                .clone()
                .chain(earlier)
                .find(|(_, other)| share_memory(output, other))
            {
                return Err(ViewError::Aliased {
                    workload: self.to_string(),
                    output: name(self.outputs(), position, "output"),
                    other,
                });
            }
        }
        let kinds = inputs.chain(outputs).map(|memory| memory.layout.kind());
        Ok(self
            .clone()
            .with_layout(kinds.max().unwrap_or(LayoutKind::Contiguous)))
    }

    fn matches<'m>(
        &self,
        role: &'static str,
        operands: &[Operand],
        mut tensors: impl ExactSizeIterator<Item = &'m Memory>,
    ) -> Result<(), ViewError> {
        if operands.len() != tensors.len() {
            let (expected, actual) = (operands.len(), tensors.len());
            return Err(ViewError::Count {
                workload: self.to_string(),
                role,
                expected,
                actual,
            });
        }
        for operand in operands {
            let Some(tensor) = tensors.next() else { break };
            if operand.dtype != tensor.dtype || operand.shape != *tensor.layout.shape() {
                return Err(ViewError::Mismatch {
                    workload: self.to_string(),
                    operand: operand.name,
                    expected: format!("{} {}", operand.dtype, operand.shape),
                    actual: tensor.describe(),
                });
            }
        }
        Ok(())
    }
}

/// Whether the address ranges of two tensors meet.
fn share_memory(a: &Memory, b: &Memory) -> bool {
    match (a.addresses(), b.addresses()) {
        (Some((a_start, a_end)), Some((b_start, b_end))) => a_start < b_end && b_start < a_end,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(text: &str) -> Shape {
        text.parse().unwrap()
    }

    #[test]
    fn views_never_reach_outside_their_slice() {
        let data = [0u16; 10];
        let two_rows = Layout::strided(shape("2x3"), &[5, 1]).unwrap();
        assert!(TensorView::strided(&data, two_rows, 2).is_ok());
        assert_eq!(
            TensorView::strided(&data, two_rows, 3)
                .unwrap_err()
                .to_string(),
            "shape 2x3 with its strides reaches elements 3 to 10 of a slice of 10"
        );
        let backwards = Layout::strided(shape("4"), &[-1]).unwrap();
        assert!(TensorView::strided(&data, backwards, 3).is_ok());
        assert!(TensorView::strided(&data, backwards, 2).is_err());
        assert!(TensorView::strided(&data, backwards, usize::MAX).is_err());
        let empty = Layout::contiguous(shape("0x9"));
        let view = TensorView::strided(&data, empty, 99).unwrap();
        assert_eq!(view.as_slice::<u16>().unwrap(), [0u16; 0]);
    }

    #[test]
    fn the_wrong_element_type_is_refused_everywhere() {
        let mut data = [1.0f32; 4];
        let mut view = TensorViewMut::contiguous(&mut data, shape("4")).unwrap();
        assert_eq!(view.get::<f64>(&[0]), None);
        assert!(!view.set(&[0], 2.0f64));
        assert!(view.as_mut_slice::<i32>().is_err());
        assert!(view.as_mut_ptr::<u8>().is_err());
        let error = view.as_view().as_slice::<f64>().unwrap_err();
        assert_eq!(error.to_string(), "the tensor holds f32, not f64");
        assert!(view.iter::<u32>().is_err());
    }

    #[test]
    fn writable_views_may_not_overlap_themselves() {
        let mut data = [0i8; 9];
        let broadcast = Layout::strided(shape("3x3"), &[0, 1]).unwrap();
        assert!(TensorView::strided(&data, broadcast, 0).is_ok());
        let error = TensorViewMut::strided(&mut data, broadcast, 0).unwrap_err();
        assert!(matches!(error, ViewError::Overlapping { .. }));
    }

    #[test]
    fn strided_tensors_are_no_slices() {
        let data = [1, 2, 3, 4, 5, 6i64];
        let view = TensorView::contiguous(&data, shape("2x3")).unwrap();
        assert_eq!(view.as_slice::<i64>().unwrap(), data);
        let columns = view.permuted(&[1, 0]).unwrap();
        assert!(matches!(
            columns.as_slice::<i64>(),
            Err(ViewError::NotContiguous { .. })
        ));
        assert!(view.permuted(&[1, 1]).is_none());
    }

    /// Leading dimensions are one batch to a product; the views follow by reshaping.
    #[test]
    fn stacks_of_matrices_become_one_batch() {
        let (a, b, mut out) = ([1f32; 24], [1f32; 48], [0f32; 32]);
        let a = TensorView::contiguous(&a, shape("2x2x2x3")).unwrap();
        let b = TensorView::contiguous(&b, shape("2x2x3x4")).unwrap();
        let out = TensorViewMut::contiguous(&mut out, shape("2x2x2x4")).unwrap();
        let product = crate::op::Matmul::infer(a.shape(), b.shape(), false, false).unwrap();
        let workload = Workload::new(product, DType::F32).unwrap();
        let [wide_a, wide_b] = [workload.inputs()[0].shape, workload.inputs()[1].shape];
        let inputs = [a.reshaped(wide_a).unwrap(), b.reshaped(wide_b).unwrap()];
        let out = out.reshaped(workload.outputs()[0].shape).unwrap();
        assert!(workload.over(&inputs, &[out]).is_ok());
        assert!(a.reshaped(shape("5x5")).is_err());
        assert!(
            a.permuted(&[1, 0, 2, 3])
                .unwrap()
                .reshaped(shape("24"))
                .is_err()
        );
    }

    #[test]
    fn alignment_is_that_of_the_first_element() {
        #[repr(align(64))]
        struct Aligned([f32; 32]);
        let data = Aligned([0.0; 32]);
        let at = |offset| {
            TensorView::strided(&data.0, Layout::contiguous(shape("4")), offset)
                .unwrap()
                .alignment()
        };
        assert!(at(0) >= 64);
        assert_eq!((at(1), at(2), at(4)), (4, 8, 16));
    }

    #[test]
    fn a_call_is_checked_before_anything_runs() {
        let product: Workload = "matmul f32 2x3x4".parse().unwrap();
        let (a, b) = ([0f32; 6], [0f32; 12]);
        let mut out = [0f32; 8];
        let a = TensorView::contiguous(&a, shape("2x3")).unwrap();
        let wide = [0f32; 20];
        let b_gaps = TensorView::strided(&wide, Layout::strided(shape("3x4"), &[6, 1]).unwrap(), 0);
        let b = TensorView::contiguous(&b, shape("3x4")).unwrap();
        let out = [TensorViewMut::contiguous(&mut out, shape("2x4")).unwrap()];

        assert_eq!(
            product.over(&[a, b], &out).unwrap().layout(),
            LayoutKind::Contiguous
        );
        let with_gaps = product.over(&[a, b_gaps.unwrap()], &out).unwrap();
        assert_eq!(with_gaps.to_string(), "matmul f32 2x3x4 layout=row_gaps");
        let error = product.over(&[a], &out).unwrap_err();
        assert_eq!(error.to_string(), "matmul f32 2x3x4 takes 2 inputs, not 1");
        let error = product.over(&[b, a], &out).unwrap_err();
        assert_eq!(
            error.to_string(),
            "matmul f32 2x3x4: operand `a` is f32 2x3, the tensor f32 3x4"
        );
    }

    #[test]
    fn outputs_may_not_share_memory_with_inputs() {
        // Safe code cannot make such views; a binding to another language can.
        let square: Workload = "matmul f32 2x2x2".parse().unwrap();
        let own: Workload = "custom.mine f32 2".parse().unwrap();
        let data = [0f32; 4];
        let a = TensorView::contiguous(&data, shape("2x2")).unwrap();
        let other = [0f32; 4];
        let b = TensorView::contiguous(&other, shape("2x2")).unwrap();
        let out = [TensorViewMut {
            memory: a.memory,
            borrow: PhantomData,
        }];
        let error = square.over(&[b, a], &out).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("output `out` shares memory with `b`"),
            "{error}"
        );
        // What a custom operation takes is its own affair, but for that.
        assert!(own.over(&[b], &out).is_ok());
        let error = own.over(&[b, a], &out).unwrap_err().to_string();
        assert_eq!(
            error,
            "custom.mine f32 2: output `output` shares memory with `input`: give it memory of its own"
        );
    }
}
