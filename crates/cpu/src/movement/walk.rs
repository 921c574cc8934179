//! Two tensors side by side, element by element in the order of their indices.
//!
//! Each side has a cursor of its own that knows how far it can go in one straight line; together they go as
//! far as the shorter of the two. So the shapes may differ (a reshape), the strides may be any, and rows that
//! lie in a row on both sides are moved as blocks of memory.
#![allow(unsafe_code)]

use std::ops::Range;

use kernelwise_types::{Layout, MAX_RANK};

/// A place in a layout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor {
    /// Sizes and strides, outermost first, of dimensions merged wherever one step continues another.
    dims: [(usize, isize); MAX_RANK],
    rank: usize,
    index: [usize; MAX_RANK],
    offset: isize,
}

impl Cursor {
    /// At an element of a layout, counted in the order of indices.
    pub(crate) fn at(layout: &Layout, position: usize) -> Self {
        let mut cursor = Self {
            // Without dimensions there is one element.
            dims: [(1, 1); MAX_RANK],
            rank: 0,
            index: [0; MAX_RANK],
            offset: 0,
        };
        for (&size, &stride) in layout.shape().dims().iter().zip(layout.strides()) {
            if size == 1 {
                continue;
            }
            match cursor.dims[..cursor.rank].last_mut() {
                // Saturated, a product is no stride a tensor can have.
                Some((outer, step)) if *step == stride.saturating_mul(size as isize) => {
                    (*outer, *step) = (*outer * size, stride);
                }
                _ => {
                    cursor.dims[cursor.rank] = (size, stride);
                    cursor.rank += 1;
                }
            }
        }
        cursor.rank = cursor.rank.max(1);
        let mut rest = position;
        for axis in (0..cursor.rank).rev() {
            let (size, stride) = cursor.dims[axis];
            cursor.index[axis] = rest % size.max(1);
            rest /= size.max(1);
            cursor.offset += cursor.index[axis] as isize * stride;
        }
        cursor
    }

    /// Offset of this element from the first of the tensor, in elements.
    pub(crate) fn offset(&self) -> isize {
        self.offset
    }

    /// Elements from here to the end of the line.
    pub(crate) fn line(&self) -> usize {
        self.dims[self.rank - 1].0 - self.index[self.rank - 1]
    }

    /// Distance of neighbours on the line, in elements.
    pub(crate) fn stride(&self) -> isize {
        self.dims[self.rank - 1].1
    }

    /// Goes on by at most a [`line`](Self::line); past the last element it stands at the first.
    pub(crate) fn advance(&mut self, elements: usize) {
        let mut axis = self.rank - 1;
        self.index[axis] += elements;
        self.offset += elements as isize * self.dims[axis].1;
        while self.index[axis] >= self.dims[axis].0 {
            let (size, stride) = self.dims[axis];
            self.index[axis] = 0;
            self.offset -= size as isize * stride;
            if axis == 0 {
                return;
            }
            axis -= 1;
            self.index[axis] += 1;
            self.offset += self.dims[axis].1;
        }
    }
}

/// Copies the elements at these positions from one layout to another.
///
/// # Safety
///
/// Both layouts have all positions in `range`, the pointers are to the first elements of memory that the
/// layouts stay within, and the two do not overlap. Elements may be of another alignment than `U`.
pub(crate) unsafe fn move_elements<U: Copy>(
    (from, source): (*const U, &Layout),
    (to, target): (*mut U, &Layout),
    range: Range<usize>,
) {
    let (mut read, mut write) = (
        Cursor::at(source, range.start),
        Cursor::at(target, range.start),
    );
    let mut left = range.len();
    while left > 0 {
        let line = read.line().min(write.line()).min(left);
        // SAFETY: cursors stay inside their layouts, whose elements the caller vouches for; `line` elements
        // on are inside as well, for neither cursor reaches its line's end before.
        unsafe {
            let (from, to) = (from.offset(read.offset()), to.offset(write.offset()));
            if read.stride() == 1 && write.stride() == 1 {
                std::ptr::copy_nonoverlapping(
                    from.cast::<u8>(),
                    to.cast::<u8>(),
                    line * size_of::<U>(),
                );
            } else {
                for i in 0..line as isize {
                    let value = from.offset(i * read.stride()).read_unaligned();
                    to.offset(i * write.stride()).write_unaligned(value);
                }
            }
        }
        read.advance(line);
        write.advance(line);
        left -= line;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_long_as_memory_allows() {
        let packed = Layout::contiguous("4x1x6".parse().unwrap());
        assert_eq!(Cursor::at(&packed, 0).line(), 24);
        let gaps = Layout::strided("4x3x2".parse().unwrap(), &[10, 2, 1]).unwrap();
        let mut cursor = Cursor::at(&gaps, 8);
        assert_eq!(
            (cursor.line(), cursor.offset(), cursor.stride()),
            (4, 12, 1)
        );
        cursor.advance(4);
        assert_eq!((cursor.line(), cursor.offset()), (6, 20));
        let scalar = Layout::contiguous("scalar".parse().unwrap());
        assert_eq!(Cursor::at(&scalar, 0).line(), 1);
    }

    #[test]
    fn a_cursor_visits_every_element_in_order() {
        let layout = Layout::strided("3x2x4".parse().unwrap(), &[-1, 20, 5]).unwrap();
        for start in 0..24 {
            let mut cursor = Cursor::at(&layout, start);
            for position in start..24 {
                let (index, rank) = layout.shape().unravel(position);
                assert_eq!(Some(cursor.offset()), layout.offset(&index[..rank]));
                cursor.advance(1);
            }
            assert_eq!(cursor.offset(), 0, "back at the first");
        }
    }
}
