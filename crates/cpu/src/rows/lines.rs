//! A tensor seen as lines along one of its axes.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use kernelwise_types::Shape;

/// Lines along an axis of a contiguous tensor: `outer` x `length` x `inner`, where neighbours on a line are `inner` apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lines {
    pub(super) outer: usize,
    pub(super) length: usize,
    pub(super) inner: usize,
}

/// Lines that are worked on side by side where they are not runs of memory.
pub(super) const ABREAST: usize = 64;

impl Lines {
    /// A single element.
    pub(super) const ONE: Self = Self {
        outer: 1,
        length: 1,
        inner: 1,
    };

    /// Along this axis, which the shape has.
    pub(super) fn along(shape: &Shape, axis: usize) -> Self {
        let dims = shape.dims();
        let product = |dims: &[usize]| dims.iter().product();
        Self {
            outer: product(&dims[..axis.min(dims.len())]),
            length: dims.get(axis).copied().unwrap_or(1),
            inner: product(dims.get(axis + 1..).unwrap_or_default()),
        }
    }

    /// How many elements there are.
    pub(super) fn elements(&self) -> usize {
        self.outer * self.length * self.inner
    }

    /// How many strips of at most [`ABREAST`] lines there are.
    pub(super) fn strips(&self) -> usize {
        self.outer * self.inner.div_ceil(ABREAST)
    }

    /// One of the strips.
    pub(super) fn strip(&self, number: usize) -> Strip {
        let across = self.inner.div_ceil(ABREAST);
        let column = number % across * ABREAST;
        Strip {
            start: number / across * self.length * self.inner + column,
            stride: self.inner,
            length: self.length,
            width: ABREAST.min(self.inner - column),
        }
    }
}

/// Some lines side by side: `length` rows of `width` elements, `stride` apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Strip {
    pub(super) start: usize,
    pub(super) stride: usize,
    pub(super) length: usize,
    pub(super) width: usize,
}

impl Strip {
    /// A row of it.
    #[inline(always)]
    pub(super) fn row<'a, T>(&self, x: &'a [T], row: usize) -> &'a [T] {
        &x[self.start + row * self.stride..][..self.width]
    }
}

/// Memory that several threads write, each its own part.
pub(crate) struct Parts<'a, T> {
    start: *mut T,
    length: usize,
    memory: PhantomData<&'a mut [T]>,
}

// SAFETY: `part` asks its callers to keep apart, so a shared `Parts` is used as disjoint slices are.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    /// All of it.
    pub(crate) fn new(memory: &'a mut [T]) -> Self {
        Self {
            start: memory.as_mut_ptr(),
            length: memory.len(),
            memory: PhantomData,
        }
    }

    /// A part of it; empty if it is not inside.
    ///
    /// # Safety
    /// No two parts that are in use at the same time overlap.
    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    pub(crate) unsafe fn part(&self, start: usize, length: usize) -> &mut [T] {
        let inside = start <= self.length && length <= self.length - start;
        let (start, length) = if inside { (start, length) } else { (0, 0) };
        // SAFETY: inside the slice this was made from, which is borrowed for as long; the caller keeps parts
        // from overlapping.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_cover_every_element_once() {
        for (text, axis) in [
            ("3x5x7", 0),
            ("3x5x7", 1),
            ("3x5x7", 2),
            ("2x3x130", 1),
            ("4", 0),
        ] {
            let lines = Lines::along(&text.parse().unwrap(), axis);
            let all: Vec<usize> = (0..lines.elements()).collect();
            let mut seen = vec![0; all.len()];
            for strip in (0..lines.strips()).map(|number| lines.strip(number)) {
                for row in 0..strip.length {
                    strip.row(&all, row).iter().for_each(|&at| seen[at] += 1);
                }
            }
            assert!(seen.iter().all(|&times| times == 1), "{text} {axis}");
        }
        let lines = Lines::along(&"3x5x7".parse().unwrap(), 1);
        assert_eq!((lines.outer, lines.length, lines.inner), (3, 5, 7));
    }

    #[test]
    fn parts_outside_are_empty() {
        let mut memory = [1, 2, 3];
        let parts = Parts::new(&mut memory);
        // SAFETY: one at a time.
        unsafe {
            assert_eq!(parts.part(1, 2), [2, 3]);
            assert!(parts.part(2, 2).is_empty() && parts.part(4, 0).is_empty());
            assert!(parts.part(1, usize::MAX).is_empty());
        }
    }
}
