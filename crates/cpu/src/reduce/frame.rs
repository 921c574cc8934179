//! How the axes of a reduction lie in memory: as runs, and as what is around them.
//!
//! Neighbouring axes that share their fate are one axis, and axes of size one are none. What is left ends in a *run*
//! of neighbours in memory, either all of one result (rows) or each of another (columns). The axes around the run are
//! walked: the kept ones once for each result or row of results, the reduced ones in their order for each.

use kernelwise_types::MAX_RANK;
use kernelwise_types::op::Reduce;

/// Axes in memory, outermost first, each with its stride.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Walk {
    axes: [(usize, usize); MAX_RANK],
    rank: usize,
}

impl Walk {
    /// One more axis, outside those that are there.
    fn wrap(&mut self, size: usize, stride: usize) {
        self.axes.copy_within(0..self.rank, 1);
        self.axes[0] = (size, stride);
        self.rank += 1;
    }

    /// How many steps.
    pub(super) fn len(&self) -> usize {
        self.axes[..self.rank].iter().map(|axis| axis.0).product()
    }

    /// Where the step lies.
    #[inline(always)]
    pub(super) fn offset(&self, step: usize) -> usize {
        // Nearly always there is one axis: no division is needed for the outermost.
        let mut rest = step;
        let mut offset = 0;
        for axis in (1..self.rank).rev() {
            let (size, stride) = self.axes[axis];
            offset += rest % size * stride;
            rest /= size;
        }
        offset + rest * self.axes[0].1
    }
}

/// A reduction of a contiguous tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    /// Axes around the run that stay.
    pub(super) kept: Walk,
    /// Axes around the run that go.
    pub(super) reduced: Walk,
    /// Length of the run.
    pub(super) run: usize,
    /// Whether the run belongs to one result.
    pub(super) rows: bool,
}

impl Frame {
    /// The frame of a reduction.
    pub(super) fn new(op: &Reduce) -> Self {
        let mut groups: [(usize, bool); MAX_RANK] = [(1, true); MAX_RANK];
        let mut count = 0usize;
        // Innermost first.
        for axis in (0..op.shape.rank()).rev() {
            let (size, goes) = (op.shape.dims()[axis], op.axes.contains(axis));
            if size == 1 {
                continue;
            }
            match count.checked_sub(1).map(|last| &mut groups[last]) {
                Some(last) if last.1 == goes => last.0 *= size,
                _ => {
                    groups[count] = (size, goes);
                    count += 1;
                }
            }
        }
        let (run, rows) = groups[0];
        let mut frame = Self {
            kept: Walk::default(),
            reduced: Walk::default(),
            run,
            rows,
        };
        let mut stride = run;
        for &(size, goes) in &groups[..count.max(1)][1..] {
            let walk = if goes {
                &mut frame.reduced
            } else {
                &mut frame.kept
            };
            walk.wrap(size, stride);
            stride *= size;
        }
        frame
    }

    /// How many results there are.
    pub(super) fn results(&self) -> usize {
        self.kept.len() * if self.rows { 1 } else { self.run }
    }

    /// How many elements each result is made of.
    pub(super) fn depth(&self) -> usize {
        self.reduced.len() * if self.rows { self.run } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use kernelwise_types::Workload;
    use kernelwise_types::op::Operation;

    use super::*;

    fn frame(text: &str) -> Frame {
        let workload: Workload = format!("reduce.sum f32 {text}").parse().unwrap();
        match workload.operation() {
            Operation::Reduce(op) => Frame::new(op),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn axes_of_one_fate_are_one() {
        let all = frame("4x5x6");
        assert_eq!((all.run, all.rows), (120, true));
        assert_eq!((all.results(), all.depth()), (1, 120));
        let rows = frame("4x5x6 axes1,2");
        assert_eq!((rows.run, rows.rows, rows.kept.len()), (30, true, 4));
        assert_eq!(rows.kept.offset(3), 90);
        let columns = frame("4x5x6 axes0,1");
        assert_eq!((columns.run, columns.rows), (6, false));
        assert_eq!((columns.reduced.len(), columns.reduced.offset(7)), (20, 42));
        assert_eq!((columns.results(), columns.depth()), (6, 20));
        // Sizes of one neither stay nor go.
        assert_eq!(frame("1x5x1x6x1 axes1,2"), frame("5x6 axes0"));
        let one = frame("1x1");
        assert_eq!((one.run, one.results(), one.depth()), (1, 1, 1));
        assert_eq!(frame("scalar"), one);
    }

    #[test]
    fn axes_apart_are_walked_in_order() {
        let apart = frame("2x3x4x5 axes0,2");
        assert_eq!((apart.run, apart.rows), (5, false));
        assert_eq!((apart.results(), apart.depth()), (15, 8));
        assert_eq!(apart.kept.offset(2), 40);
        let offsets: Vec<_> = (0..8).map(|step| apart.reduced.offset(step)).collect();
        assert_eq!(offsets, [0, 5, 10, 15, 60, 65, 70, 75]);
    }
}
