//! The list of indices, checked once.

use std::marker::PhantomData;

use kernelwise_backend::Fault;
use kernelwise_types::{DType, TensorView};

/// Indices of which each was seen to name one of so many places.
#[derive(Debug, Clone, Copy)]
pub(super) struct Picks<'a> {
    first: First,
    /// From one index to the next, in elements.
    step: isize,
    len: usize,
    borrow: PhantomData<&'a ()>,
}

#[derive(Debug, Clone, Copy)]
enum First {
    Narrow(*const i32),
    Wide(*const i64),
}

// SAFETY: it stands for a shared borrow of integers.
unsafe impl Send for Picks<'_> {}
// SAFETY: as above.
unsafe impl Sync for Picks<'_> {}

impl<'a> Picks<'a> {
    /// Looks at every index of a list; the first that names none of the places is the fault.
    pub(super) fn checked(view: &TensorView<'a>, places: usize) -> Result<Self, Fault> {
        let first = match view.dtype() {
            DType::I32 => First::Narrow(view.as_ptr()?),
            _ => First::Wide(view.as_ptr()?),
        };
        let &[len] = view.shape().dims() else {
            return Err(Fault::kernel("gather or scatter", "indices are not a list"));
        };
        let step = view.layout().strides().first().copied().unwrap_or(1);
        let picks = Self {
            first,
            step,
            len,
            borrow: PhantomData,
        };
        // SAFETY: asked only for positions below `len`, here and below.
        let value = |position: usize| unsafe { picks.value(position) };
        let outside = |position: usize| value(position) as u64 >= places as u64;
        // All at once first, without leaving early, so that the usual case is a plain loop.
        if (0..len).fold(false, |any, position| any | outside(position))
            && let Some(position) = (0..len).find(|&position| outside(position))
        {
            let value = value(position);
            return Err(Fault::Index {
                operand: "indices",
                position,
                value,
                length: places,
            });
        }
        Ok(picks)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The place named at a position of the list.
    ///
    /// # Safety
    ///
    /// The position is below [`len`](Self::len).
    #[inline(always)]
    pub(super) unsafe fn place(&self, position: usize) -> usize {
        // SAFETY: the caller's word.
        unsafe { self.value(position) as usize }
    }

    /// # Safety
    ///
    /// As for [`place`](Self::place).
    #[inline(always)]
    unsafe fn value(&self, position: usize) -> i64 {
        debug_assert!(position < self.len);
        let offset = position as isize * self.step;
        // SAFETY: the position is inside the list, so the offset is one of its layout.
        unsafe {
            match self.first {
                First::Narrow(first) => first.offset(offset).read().into(),
                First::Wide(first) => first.offset(offset).read(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kernelwise_types::Layout;

    use super::*;

    #[test]
    fn the_first_index_outside_is_named() {
        let fault = |indices: &[i64], places| {
            let view = TensorView::contiguous(
                indices,
                kernelwise_types::Shape::new(&[indices.len()]).unwrap(),
            );
            Picks::checked(&view.unwrap(), places).err()
        };
        assert_eq!(fault(&[0, 4, 2], 5), None);
        for value in [5, -1, i64::MAX, i64::MIN] {
            let expected = Fault::Index {
                operand: "indices",
                position: 1,
                value,
                length: 5,
            };
            assert_eq!(fault(&[4, value, 9], 5), Some(expected));
        }
    }

    #[test]
    fn narrow_lists_with_gaps_are_read_in_order() {
        let memory = [9i32, 3, 9, 2, 9, 1];
        let layout = Layout::strided("3".parse().unwrap(), &[-2]).unwrap();
        let view = TensorView::strided(&memory, layout, 5).unwrap();
        let picks = Picks::checked(&view, 4).unwrap();
        // SAFETY: the list has three.
        let places = [0, 1, 2].map(|position| unsafe { picks.place(position) });
        assert_eq!(places, [1, 2, 3]);
        assert!(Picks::checked(&view, 3).is_err());
    }
}
