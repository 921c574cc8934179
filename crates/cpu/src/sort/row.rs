//! Where the keys of a row come from and where its result goes, whatever is sorted and however it lies in
//! memory.

use kernelwise_types::Layout;

use super::order::{Bits, Order, Record};

/// One row of a call: so many records in, as many out.
///
/// # Safety
///
/// `in_place`, where it is not `None`, is a place for as many records as the row has, which nobody else uses
/// while the row is sorted, and into which [`write`](Row::write) writes (and nothing else).
pub(super) unsafe trait Row: Copy + Send + Sync {
    /// What is sorted.
    type Record: Record;

    /// Bits below the key: none, or those of a position.
    const BELOW: u32;

    /// Bits of the key.
    const KEY: u32;

    /// The record at a place of the input.
    ///
    /// # Safety
    ///
    /// The row has that place.
    unsafe fn read(&self, place: usize) -> Self::Record;

    /// Puts the result of a record at a place of the output.
    ///
    /// # Safety
    ///
    /// The row has that place, no other thread writes it, and the record came from [`read`](Row::read).
    unsafe fn write(&self, place: usize, record: Self::Record);

    /// The row's output as memory for records, if it can be used as such before the result is written.
    fn in_place(&self) -> Option<*mut Self::Record>;
}

/// A pointer to the first element of a row and the step to the next one, in elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<P> {
    pub(super) first: P,
    pub(super) step: isize,
}

/// Keys alone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys<U> {
    pub(super) from: Line<*const U>,
    pub(super) to: Line<*mut U>,
    pub(super) order: Order<U>,
}

// SAFETY: it stands for a shared borrow of the input and an exclusive one of the output, which lives as long as
// the call; the contract of `write` keeps threads from writing the same place.
unsafe impl<U: Bits> Send for Keys<U> {}
// SAFETY: as above.
unsafe impl<U: Bits> Sync for Keys<U> {}

// SAFETY: `in_place` is the output itself, if its elements are neighbours.
unsafe impl<U: Bits> Row for Keys<U> {
    type Record = U;

    const BELOW: u32 = 0;
    const KEY: u32 = U::WIDTH;

    #[inline(always)]
    unsafe fn read(&self, place: usize) -> U {
        // SAFETY: the row has that place (the caller's word), so it lies inside the view of the keys.
        let key = unsafe {
            self.from
                .first
                .offset(place as isize * self.from.step)
                .read()
        };
        key.encode(self.order)
    }

    #[inline(always)]
    unsafe fn write(&self, place: usize, record: U) {
        // SAFETY: as in `read`, and nobody else writes there.
        unsafe {
            self.to
                .first
                .offset(place as isize * self.to.step)
                .write(record.decode(self.order))
        };
    }

    fn in_place(&self) -> Option<*mut U> {
        (self.to.step == 1).then_some(self.to.first)
    }
}

/// Keys that carry their position, and what is made of both in the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Positioned<U, S> {
    pub(super) from: Line<*const U>,
    pub(super) order: Order<U>,
    pub(super) sink: S,
}

// SAFETY: as for `Keys`; a sink stands for borrows of the same kind.
unsafe impl<U: Bits, S: Sink<U>> Send for Positioned<U, S> {}
// SAFETY: as above.
unsafe impl<U: Bits, S: Sink<U>> Sync for Positioned<U, S> {}

// SAFETY: it offers no place.
unsafe impl<U: Bits, S: Sink<U>> Row for Positioned<U, S> {
    type Record = U::Packed;

    const BELOW: u32 = u32::BITS;
    const KEY: u32 = U::WIDTH;

    #[inline(always)]
    unsafe fn read(&self, place: usize) -> U::Packed {
        // SAFETY: the row has that place (the caller's word), so it lies inside the view of the keys.
        let key = unsafe {
            self.from
                .first
                .offset(place as isize * self.from.step)
                .read()
        };
        key.encode(self.order).pack(place as u32)
    }

    #[inline(always)]
    unsafe fn write(&self, place: usize, record: U::Packed) {
        let (key, position) = U::unpack(record);
        // SAFETY: the caller's word on `place`; the position came from `read`, so the row has it.
        unsafe {
            self.sink
                .put(place, key.decode(self.order), position as usize)
        };
    }

    fn in_place(&self) -> Option<*mut U::Packed> {
        None
    }
}

/// What becomes of a key and the position it had.
pub(super) trait Sink<U>: Copy {
    /// Writes the result at a place.
    ///
    /// # Safety
    ///
    /// The row has `place` and `position`, and no other thread writes that place.
    unsafe fn put(&self, place: usize, key: U, position: usize);
}

/// The positions themselves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Positions(pub(super) Line<*mut i64>);

impl<U> Sink<U> for Positions {
    #[inline(always)]
    unsafe fn put(&self, place: usize, _key: U, position: usize) {
        // SAFETY: the output has as many places as the row.
        unsafe {
            self.0
                .first
                .offset(place as isize * self.0.step)
                .write(position as i64)
        };
    }
}

/// The keys, and a value with each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Values<U> {
    pub(super) keys: Line<*mut U>,
    /// Address of the first value and step in values.
    pub(super) from: Line<*const u8>,
    pub(super) to: Line<*mut u8>,
    /// Bytes of one value.
    pub(super) size: usize,
}

impl<U: Copy> Sink<U> for Values<U> {
    #[inline(always)]
    unsafe fn put(&self, place: usize, key: U, position: usize) {
        let size = self.size as isize;
        // SAFETY: both outputs and the values have as many places as the row, `size` bytes each for values;
        // steps are those of their layouts. Inputs and outputs do not overlap, which a call makes sure of.
        unsafe {
            self.keys
                .first
                .offset(place as isize * self.keys.step)
                .write(key);
            let from = self
                .from
                .first
                .offset(position as isize * self.from.step * size);
            let to = self.to.first.offset(place as isize * self.to.step * size);
            // The common sizes as single moves.
            match self.size {
                4 => to.cast::<[u8; 4]>().write(from.cast::<[u8; 4]>().read()),
                8 => to.cast::<[u8; 8]>().write(from.cast::<[u8; 8]>().read()),
                size => to.copy_from_nonoverlapping(from, size),
            }
        }
    }
}

/// Where the rows along an axis begin in a layout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines {
    layout: Layout,
    axis: usize,
    /// The step from one row to the next, if it is always the same.
    even: Option<isize>,
}

impl Lines {
    /// The rows along this axis. An axis that the layout does not have counts as one of a single place.
    pub(crate) fn new(layout: &Layout, axis: usize) -> Self {
        let mut even = None;
        let mut rows = 1isize;
        let others = layout
            .shape()
            .dims()
            .iter()
            .zip(layout.strides())
            .enumerate()
            .rev();
        let others = others.filter(|(other, (size, _))| *other != axis && **size > 1);
        let mut uniform = true;
        for (_, (&size, &stride)) in others {
            let first = *even.get_or_insert(stride);
            uniform &= stride == first.wrapping_mul(rows);
            rows = rows.wrapping_mul(size as isize);
        }
        Self {
            layout: *layout,
            axis,
            even: uniform.then_some(even.unwrap_or(0)),
        }
    }

    /// The step along a row.
    pub(crate) fn step(&self) -> isize {
        self.layout.strides().get(self.axis).copied().unwrap_or(0)
    }

    /// Offset of a row's first element; rows are numbered in index order.
    pub(crate) fn start(&self, row: usize) -> isize {
        if let Some(even) = self.even {
            return row as isize * even;
        }
        let (mut rest, mut start) = (row, 0);
        let dims = self.layout.shape().dims().iter().zip(self.layout.strides());
        for (axis, (&size, &stride)) in dims.enumerate().rev() {
            if axis != self.axis {
                start += (rest % size) as isize * stride;
                rest /= size;
            }
        }
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_begin_where_the_layout_says() {
        for (strides, axis) in [
            ([12, 4, 1], 2),
            ([12, 4, 1], 1),
            ([12, 4, 1], 0),
            ([100, -7, 1], 2),
            ([1, 2, 6], 0),
            ([12, 4, 1], 1),
        ] {
            let layout = Layout::strided("2x3x4".parse().unwrap(), &strides).unwrap();
            let lines = Lines::new(&layout, axis);
            let dims = [2, 3, 4];
            let mut row = 0;
            for a in 0..dims[0] {
                for b in 0..dims[1] {
                    for c in 0..dims[2] {
                        let index = [a, b, c];
                        if index[axis] == 0 {
                            assert_eq!(
                                Some(lines.start(row)),
                                layout.offset(&index),
                                "{strides:?} {axis}"
                            );
                            row += 1;
                        }
                    }
                }
            }
            assert_eq!(lines.step(), strides[axis]);
        }
        let packed = Layout::contiguous("2x3x4".parse().unwrap());
        assert_eq!(Lines::new(&packed, 2).even, Some(4));
        assert_eq!(Lines::new(&packed, 1).even, None);
    }
}
