//! Operands, as something that fills panels.

use std::marker::PhantomData;
use std::ops::Range;

use super::tile::Real;
use crate::isa::Level;

/// An operand that can fill packed panels: a strided matrix, or an image seen as the matrix of its windows.
///
/// A *lane* is a row of the left operand or a column of the right one; lanes run over the result, depths over
/// the sum.
pub(crate) trait Source<T>: Sync {
    /// Writes the lanes `lanes` at the depths `depth` into `into` as panels of `width` lanes: panel after
    /// panel, in each one `width` values per depth, missing lanes of the last panel as zero. `into` holds
    /// exactly that: `lanes.len()` rounded up to `width`, times `depth.len()`.
    fn pack(&self, lanes: Range<usize>, depth: Range<usize>, width: usize, into: &mut [T]);

    /// The operand as a strided matrix, if it is one and can be read where it lies.
    fn in_place(&self) -> Option<Strided<'_, T>> {
        None
    }

    /// How many lanes and depths the operand has.
    fn extent(&self) -> (usize, usize);
}

/// Depths packed in one go from a matrix whose lanes are neighbours.
const ROWS_AT_A_TIME: usize = 16;

/// A strided matrix in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strided<'a, T> {
    pub(super) ptr: *const T,
    lanes: usize,
    depth: usize,
    pub(super) lane_stride: isize,
    pub(super) depth_stride: isize,
    level: Level,
    borrow: PhantomData<&'a T>,
}

// SAFETY: a `Strided` is a shared borrow of its elements, which are `Sync`; it only reads.
unsafe impl<T: Sync> Sync for Strided<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Send for Strided<'_, T> {}

impl<'a, T: Real> Strided<'a, T> {
    /// A matrix of `lanes` x `depth` elements at `ptr`, with strides in elements, packed with the
    /// instructions of `level`.
    ///
    /// # Safety
    /// For every lane and depth inside, the element at `ptr + lane * lane_stride + depth * depth_stride` is
    /// valid for reads for `'a`, and nobody writes it.
    pub(crate) unsafe fn new(
        level: Level,
        ptr: *const T,
        (lanes, depth): (usize, usize),
        (lane_stride, depth_stride): (isize, isize),
    ) -> Self {
        Self {
            ptr,
            lanes,
            depth,
            lane_stride,
            depth_stride,
            level,
            borrow: PhantomData,
        }
    }
}

impl<T: Real> Source<T> for Strided<'_, T> {
    fn pack(&self, lanes: Range<usize>, depth: Range<usize>, width: usize, into: &mut [T]) {
        let inside = lanes.end <= self.lanes && depth.end <= self.depth;
        let panels = lanes.len().div_ceil(width.max(1));
        if !inside || depth.is_empty() || width == 0 || into.len() < panels * width * depth.len() {
            debug_assert!(lanes.is_empty() || depth.is_empty(), "packing outside");
            return;
        }
        if !lanes.len().is_multiple_of(width) {
            into[(panels - 1) * width * depth.len()..].fill(T::default());
        }
        let kernels = T::kernels(self.level);
        // Whole rows where rows lie in memory as such, so that pages are visited once, not once per panel.
        let rows = if self.lane_stride == 1 {
            ROWS_AT_A_TIME
        } else {
            depth.len()
        };
        for start in depth.clone().step_by(rows) {
            for (panel, first) in lanes.clone().step_by(width).enumerate() {
                let offset = first as isize * self.lane_stride + start as isize * self.depth_stride;
                let position = (panel * depth.len() + start - depth.start) * width;
                let panel = Panel {
                    // SAFETY: the first lane and depth of this panel lie inside the matrix.
                    from: unsafe { self.ptr.offset(offset) },
                    lane_stride: self.lane_stride,
                    depth_stride: self.depth_stride,
                    lanes: width.min(lanes.end - first),
                    depth: rows.min(depth.end - start),
                    width,
                    into: into[position..].as_mut_ptr(),
                };
                // SAFETY: `panel` describes elements of this matrix and a target of `width` per depth; the
                // kernels are those of a level this processor has.
                unsafe { (kernels.pack)(&panel) };
            }
        }
    }

    fn in_place(&self) -> Option<Strided<'_, T>> {
        Some(*self)
    }

    fn extent(&self) -> (usize, usize) {
        (self.lanes, self.depth)
    }
}

/// One panel to be packed from a strided matrix: `lanes` of `width` lanes exist, the others are already zero.
pub(super) struct Panel<T> {
    pub(super) from: *const T,
    pub(super) lane_stride: isize,
    pub(super) depth_stride: isize,
    pub(super) lanes: usize,
    pub(super) depth: usize,
    pub(super) width: usize,
    pub(super) into: *mut T,
}
