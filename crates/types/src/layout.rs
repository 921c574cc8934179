//! Layouts: where in memory each element of a shape lies.

use serde::{Deserialize, Serialize};

use crate::shape::{MAX_RANK, Shape};

/// A shape with a stride for each dimension, counted in elements; strides may be zero (the same
/// element again, as in broadcasting) or negative (backwards).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: Shape,
    strides: [isize; MAX_RANK],
}

/// How an operand lies in memory, as far as the speed of kernels depends on it. Part of the key under
/// which a workload is remembered.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum LayoutKind {
    /// Row by row without gaps.
    #[default]
    Contiguous,
    /// Rows without gaps, but something between them: a part of a wider tensor.
    RowGaps,
    /// Neighbours along the last dimension are not neighbours in memory.
    Strided,
}

impl LayoutKind {
    /// Every kind, simplest first.
    pub const ALL: [Self; 3] = [Self::Contiguous, Self::RowGaps, Self::Strided];

    /// The name in workload text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Contiguous => "contiguous",
            Self::RowGaps => "row_gaps",
            Self::Strided => "strided",
        }
    }
}

/// Why shape and strides make no layout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Not one stride per dimension.
    #[error("shape {shape} needs {} strides, not {strides}", .shape.rank())]
    StrideCount {
        /// The shape.
        shape: Shape,
        /// How many strides came with it.
        strides: usize,
    },
    /// Offsets that overflow.
    #[error("strides {strides:?} over shape {shape} reach beyond what this machine can address")]
    TooFar {
        /// The shape.
        shape: Shape,
        /// The strides.
        strides: Vec<isize>,
    },
}

impl Layout {
    /// Row by row, without gaps.
    pub fn contiguous(shape: Shape) -> Self {
        let mut strides = [0; MAX_RANK];
        let mut stride = 1isize;
        for (axis, &size) in shape.dims().iter().enumerate().rev() {
            strides[axis] = stride;
            // Cannot overflow: shapes bound the product of their sizes, zeros counted as ones.
            stride *= size.max(1) as isize;
        }
        Self { shape, strides }
    }

    /// With a stride for each dimension, counted in elements.
    pub fn strided(shape: Shape, strides: &[isize]) -> Result<Self, LayoutError> {
        if strides.len() != shape.rank() {
            return Err(LayoutError::StrideCount {
                shape,
                strides: strides.len(),
            });
        }
        let mut all = [0; MAX_RANK];
        all[..strides.len()].copy_from_slice(strides);
        let layout = Self {
            shape,
            strides: all,
        };
        // The largest element has 16 bytes; offsets in bytes must fit `isize` for pointer arithmetic.
        let limit = isize::MAX / 16;
        match layout.checked_span() {
            Some((low, high)) if low >= -limit && high <= limit => Ok(layout),
            _ => Err(LayoutError::TooFar {
                shape,
                strides: strides.to_vec(),
            }),
        }
    }

    /// The shape.
    #[inline]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The stride of each dimension, in elements.
    #[inline]
    pub fn strides(&self) -> &[isize] {
        &self.strides[..self.shape.rank()]
    }

    /// The lowest and highest offset that any element has, in elements from the first one; `None`
    /// when there are no elements.
    pub fn span(&self) -> Option<(isize, isize)> {
        if self.shape.is_empty() {
            None
        } else {
            self.checked_span()
        }
    }

    fn checked_span(&self) -> Option<(isize, isize)> {
        if self.shape.is_empty() {
            return Some((0, 0));
        }
        self.shape.dims().iter().zip(self.strides()).try_fold(
            (0isize, 0isize),
            |(low, high), (&size, &stride)| {
                let reach = stride.checked_mul(isize::try_from(size - 1).ok()?)?;
                Some((
                    low.checked_add(reach.min(0))?,
                    high.checked_add(reach.max(0))?,
                ))
            },
        )
    }

    /// Offset of one element from the first, in elements; `None` when the index is outside.
    pub fn offset(&self, index: &[usize]) -> Option<isize> {
        let inside = index.len() == self.shape.rank()
            && index
                .iter()
                .zip(self.shape.dims())
                .all(|(&i, &size)| i < size);
        // Within the span, which was checked when the layout was made.
        inside.then(|| {
            index
                .iter()
                .zip(self.strides())
                .map(|(&i, &stride)| i as isize * stride)
                .sum()
        })
    }

    /// Whether elements lie row by row without gaps. Dimensions of size one may have any stride.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        let dims = self.shape.dims();
        let mut packed = 1isize;
        let in_order = dims
            .iter()
            .zip(self.strides())
            .rev()
            .all(|(&size, &stride)| {
                let fits = size == 1 || stride == packed;
                packed = packed.wrapping_mul(size as isize);
                fits
            });
        in_order || self.shape.is_empty()
    }

    /// Whether two different indices may share an element. Sorting dimensions by stride, each must
    /// step over all that the smaller ones span; layouts that interleave in cleverer ways are
    /// reported as overlapping, which is safe.
    pub fn may_overlap(&self) -> bool {
        if self.shape.is_empty() {
            return false;
        }
        // On the stack: every call makes views.
        let mut steps = [(0usize, 0usize); MAX_RANK];
        let mut count = 0;
        for (&size, &stride) in self.shape.dims().iter().zip(self.strides()) {
            if size > 1 {
                steps[count] = (stride.unsigned_abs(), size);
                count += 1;
            }
        }
        let steps = &mut steps[..count];
        steps.sort_unstable();
        let mut reach = 0usize;
        for &mut (stride, size) in steps {
            if stride <= reach {
                return true;
            }
            reach += stride * (size - 1);
        }
        false
    }

    /// How it lies in memory, as the speed of kernels depends on it.
    #[inline]
    pub fn kind(&self) -> LayoutKind {
        if self.is_contiguous() {
            return LayoutKind::Contiguous;
        }
        let last = self
            .shape
            .rank()
            .checked_sub(1)
            .map(|axis| (self.shape.dims()[axis], self.strides[axis]));
        match last {
            Some((size, stride)) if size == 1 || stride == 1 => LayoutKind::RowGaps,
            _ => LayoutKind::Strided,
        }
    }

    /// The same memory with its dimensions in another order; `None` unless `order` names each
    /// dimension once.
    pub fn permuted(&self, order: &[usize]) -> Option<Self> {
        let rank = self.shape.rank();
        let mut seen = [false; MAX_RANK];
        let complete = order.len() == rank
            && order
                .iter()
                .all(|&axis| axis < rank && !std::mem::replace(&mut seen[axis], true));
        if !complete {
            return None;
        }
        let sizes: Vec<usize> = order.iter().map(|&axis| self.shape.dims()[axis]).collect();
        let mut strides = [0; MAX_RANK];
        for (to, &from) in order.iter().enumerate() {
            strides[to] = self.strides[from];
        }
        Some(Self {
            shape: Shape::new(&sizes).ok()?,
            strides,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(text: &str) -> Shape {
        text.parse().unwrap()
    }

    #[test]
    fn contiguous_layouts_step_by_the_sizes_inside() {
        let layout = Layout::contiguous(shape("2x3x4"));
        assert_eq!(layout.strides(), [12, 4, 1]);
        assert_eq!(layout.offset(&[1, 2, 3]), Some(23));
        assert_eq!(layout.offset(&[2, 0, 0]), None);
        assert_eq!(layout.offset(&[0, 0]), None);
        assert_eq!(layout.span(), Some((0, 23)));
        assert_eq!(layout.kind(), LayoutKind::Contiguous);
    }

    #[test]
    fn gaps_and_steps_are_told_apart() {
        let rows = Layout::strided(shape("2x3"), &[8, 1]).unwrap();
        assert_eq!(rows.kind(), LayoutKind::RowGaps);
        let columns = Layout::strided(shape("2x3"), &[1, 2]).unwrap();
        assert_eq!(columns.kind(), LayoutKind::Strided);
        let backwards = Layout::strided(shape("4"), &[-1]).unwrap();
        assert_eq!(backwards.span(), Some((-3, 0)));
        assert_eq!(backwards.kind(), LayoutKind::Strided);
        let one_row = Layout::strided(shape("1x3"), &[99, 1]).unwrap();
        assert_eq!(one_row.kind(), LayoutKind::Contiguous);
    }

    #[test]
    fn overlap_is_never_missed() {
        // Nothing is reached, whatever the strides.
        let empty = Layout::strided(shape("0x5"), &[1, isize::MAX]).unwrap();
        assert!(!empty.may_overlap());
        assert!(
            Layout::strided(shape("3x3"), &[0, 1])
                .unwrap()
                .may_overlap()
        );
        assert!(
            Layout::strided(shape("3x3"), &[2, 1])
                .unwrap()
                .may_overlap()
        );
        assert!(
            !Layout::strided(shape("3x3"), &[3, 1])
                .unwrap()
                .may_overlap()
        );
        assert!(
            !Layout::strided(shape("3x3"), &[1, -3])
                .unwrap()
                .may_overlap()
        );
        assert!(
            !Layout::strided(shape("1x3"), &[0, 1])
                .unwrap()
                .may_overlap()
        );
    }

    #[test]
    fn impossible_strides_are_refused() {
        assert!(matches!(
            Layout::strided(shape("2x3"), &[1]),
            Err(LayoutError::StrideCount { .. })
        ));
        let far = Layout::strided(shape("3"), &[isize::MAX]);
        assert!(matches!(far, Err(LayoutError::TooFar { .. })));
        assert!(Layout::strided(shape("2"), &[isize::MIN]).is_err());
    }

    #[test]
    fn permuting_moves_strides_along() {
        let layout = Layout::contiguous(shape("2x3x4"))
            .permuted(&[2, 0, 1])
            .unwrap();
        assert_eq!(layout.shape().dims(), [4, 2, 3]);
        assert_eq!(layout.strides(), [1, 12, 4]);
        assert!(Layout::contiguous(shape("2x3")).permuted(&[0, 0]).is_none());
        assert!(Layout::contiguous(shape("2x3")).permuted(&[0, 2]).is_none());
    }
}
