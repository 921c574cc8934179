//! A permutation as its simplest equal.
//!
//! Axes that stay together are one axis, axes of one element are none, and a short run that moves as a whole is one
//! wider element. What is left either moves lines ([`Shape::Lines`]) or is a stack of matrices to be transposed
//! ([`Shape::Matrices`]): the axis whose elements are neighbours in the input against the one whose elements are
//! neighbours in the output, once for each index of the others.

use kernelwise_types::{Layout, MAX_RANK};

/// One axis: its size, and the distance of neighbours in input and output, in units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) size: usize,
    pub(super) from: isize,
    pub(super) to: isize,
}

/// The largest unit: what fits a vector register of the smallest kind.
const WIDEST_UNIT: usize = 16;

/// A permutation, simplified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Axes {
    /// Bytes that move as one.
    pub(super) unit: usize,
    axes: [Axis; MAX_RANK],
    rank: usize,
}

/// What a permutation comes down to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Neighbours stay neighbours along one axis.
    Lines {
        /// Units in a line.
        length: usize,
        /// Where the lines are.
        others: Axes,
    },
    /// Matrices. In the input, rows of `rows.size` units lie `columns.from` apart; in the output, rows
    /// of `columns.size` units lie `rows.to` apart.
    Matrices {
        /// The axis that is dense in the input.
        rows: Axis,
        /// The axis that is dense in the output.
        columns: Axis,
        /// Where the matrices are.
        others: Axes,
    },
}

impl Axes {
    /// `source` has the axes of the input in the order of the output, whose layout is `target`.
    pub(super) fn new(source: &Layout, target: &Layout, unit: usize) -> Self {
        let mut axes = Self {
            unit,
            axes: [Axis {
                size: 1,
                from: 1,
                to: 1,
            }; MAX_RANK],
            rank: 0,
        };
        let sizes = target.shape().dims().iter();
        for (&size, (&from, &to)) in sizes.zip(source.strides().iter().zip(target.strides())) {
            if size != 1 {
                axes.push(Axis { size, from, to });
            }
        }
        axes.widened()
    }

    /// One more axis inside the others; it joins the last one if a step there is as far as a walk through
    /// all of it here.
    fn push(&mut self, axis: Axis) {
        let through = |stride: isize| stride.saturating_mul(axis.size as isize);
        match self.axes[..self.rank].last_mut() {
            Some(last) if last.from == through(axis.from) && last.to == through(axis.to) => {
                *last = Axis {
                    size: last.size * axis.size,
                    ..axis
                };
            }
            _ => {
                self.axes[self.rank] = axis;
                self.rank += 1;
            }
        }
    }

    /// The same with a short innermost run as the unit, if the rest counts in multiples of it.
    fn widened(mut self) -> Self {
        let Some((run, rest)) = self.as_slice().split_last() else {
            return self;
        };
        let bytes = run.size.saturating_mul(self.unit);
        let length = run.size as isize;
        let whole = rest
            .iter()
            .all(|axis| axis.from % length == 0 && axis.to % length == 0);
        let fits = bytes <= WIDEST_UNIT && bytes.is_power_of_two();
        if run.from != 1 || run.to != 1 || rest.is_empty() || !whole || !fits {
            return self;
        }
        self.unit = bytes;
        self.rank -= 1;
        for axis in &mut self.axes[..self.rank] {
            axis.from /= length;
            axis.to /= length;
        }
        self
    }

    /// The axes, outermost of the output first.
    pub(super) fn as_slice(&self) -> &[Axis] {
        &self.axes[..self.rank]
    }

    /// How many units one walk through all axes visits.
    pub(super) fn count(&self) -> usize {
        self.as_slice().iter().map(|axis| axis.size).product()
    }

    /// The same without some axes.
    fn without(&self, left_out: &[usize]) -> Self {
        let mut others = Self { rank: 0, ..*self };
        for (position, axis) in self.as_slice().iter().enumerate() {
            if !left_out.contains(&position) {
                others.axes[others.rank] = *axis;
                others.rank += 1;
            }
        }
        others
    }

    /// What it comes down to; `None` where neighbours are neighbours along no axis of input or output.
    pub(super) fn shape(&self) -> Option<Shape> {
        if self.rank == 0 {
            let others = *self;
            return Some(Shape::Lines { length: 1, others });
        }
        let rows = self.as_slice().iter().position(|axis| axis.from == 1)?;
        let columns = self.as_slice().iter().position(|axis| axis.to == 1)?;
        let others = self.without(&[rows, columns]);
        Some(if rows == columns {
            let length = self.axes[rows].size;
            Shape::Lines { length, others }
        } else {
            let (rows, columns) = (self.axes[rows], self.axes[columns]);
            Shape::Matrices {
                rows,
                columns,
                others,
            }
        })
    }

    /// Offsets in input and output of the `position`th index, the last axis fastest.
    pub(super) fn offsets(&self, mut position: usize) -> (isize, isize) {
        let (mut from, mut to) = (0, 0);
        for axis in self.as_slice().iter().rev() {
            let index = (position % axis.size) as isize;
            position /= axis.size;
            from += index * axis.from;
            to += index * axis.to;
        }
        (from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(shape: &str, perm: &[usize], unit: usize) -> Axes {
        let input = Layout::contiguous(shape.parse().unwrap());
        let source = input.permuted(perm).unwrap();
        let target = Layout::contiguous(*source.shape());
        Axes::new(&source, &target, unit)
    }

    fn sizes(axes: &Axes) -> Vec<usize> {
        axes.as_slice().iter().map(|axis| axis.size).collect()
    }

    #[test]
    fn axes_that_stay_together_are_one() {
        // NCHW to NHWC: height and width stay together.
        let nhwc = axes("2x32x5x7", &[0, 2, 3, 1], 4);
        assert_eq!(sizes(&nhwc), [2, 35, 32]);
        let Some(Shape::Matrices {
            rows,
            columns,
            others,
        }) = nhwc.shape()
        else {
            panic!("{nhwc:?}")
        };
        assert_eq!((rows.size, columns.size, others.count()), (35, 32, 2));
        assert_eq!((rows.to, columns.from), (32, 35));
        assert_eq!(others.offsets(1), (32 * 35, 32 * 35));
        assert_eq!(sizes(&axes("3x4x5", &[0, 1, 2], 4)), [60]);
        assert_eq!(sizes(&axes("1x9x1", &[2, 1, 0], 4)), [9]);
        assert!(sizes(&axes("1x1", &[1, 0], 4)).is_empty());
    }

    #[test]
    fn axes_with_a_gap_on_either_side_stay_apart() {
        let dense = Layout::contiguous("4x6".parse().unwrap());
        let gaps = Layout::strided("4x6".parse().unwrap(), &[8, 1]).unwrap();
        assert_eq!(sizes(&Axes::new(&dense, &dense, 1)), [24]);
        assert_eq!(sizes(&Axes::new(&dense, &gaps, 1)), [4, 6]);
        assert_eq!(sizes(&Axes::new(&gaps, &dense, 1)), [4, 6]);
    }

    #[test]
    fn runs_that_move_as_a_whole_are_lines_or_wider_units() {
        let heads = axes("8x3x64", &[1, 0, 2], 4);
        let Some(Shape::Lines { length, others }) = heads.shape() else {
            panic!("{heads:?}")
        };
        assert_eq!((length, others.count()), (64, 24));
        // Four floats are one unit of 16 bytes.
        let pixels = axes("8x3x4", &[1, 0, 2], 4);
        assert_eq!(pixels.unit, 16);
        assert!(matches!(pixels.shape(), Some(Shape::Matrices { .. })));
        // Three are not, and eight are too many.
        assert_eq!(axes("8x3x3", &[1, 0, 2], 4).unit, 4);
        assert_eq!(axes("8x3x8", &[1, 0, 2], 4).unit, 4);
    }
}
