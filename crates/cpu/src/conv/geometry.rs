//! Which input elements lie under which taps of which windows.
//!
//! Everything here has three axes: an image is a volume of one slice, seen by filters of one slice, so that kernels
//! for both are written once.

use std::ops::Range;

use kernelwise_types::op::Operation;
use kernelwise_types::{Refusal, Workload};

/// Windows along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    /// Elements of the input.
    pub(super) input: usize,
    /// Taps of the filter.
    pub(super) taps: usize,
    /// Distance between neighbouring windows.
    pub(super) stride: usize,
    /// Zeros on each side.
    pub(super) pad: usize,
    /// Distance between neighbouring taps.
    pub(super) dilation: usize,
    /// Windows.
    pub(super) output: usize,
}

impl Line {
    fn new(
        input: usize,
        taps: usize,
        (stride, pad, dilation): (usize, usize, usize),
    ) -> Option<Self> {
        let padded = pad.checked_mul(2)?.checked_add(input)?;
        let reach = dilation.checked_mul(taps.checked_sub(1)?)?.checked_add(1)?;
        let output = padded
            .checked_sub(reach)?
            .checked_div(stride)?
            .checked_add(1)?;
        // A single tap has no neighbour, so any distance to it is allowed, even one that overflows what it is
        // multiplied with.
        let dilation = if taps == 1 { 1 } else { dilation };
        Some(Self {
            input,
            taps,
            stride,
            pad,
            dilation,
            output,
        })
    }

    /// The windows that have this tap on the input rather than on padding.
    #[inline(always)]
    pub(super) fn inside(&self, tap: usize) -> Range<usize> {
        let before = tap * self.dilation;
        let first = self.windows_to(self.pad.saturating_sub(before));
        let end = self.windows_to((self.pad + self.input).saturating_sub(before));
        let end = end.min(self.output);
        first.min(end)..end
    }

    /// The windows that have no tap on padding.
    pub(super) fn whole(&self) -> Range<usize> {
        let (first, last) = (self.inside(0), self.inside(self.taps - 1));
        let start = first.start.max(last.start);
        start..first.end.min(last.end).max(start)
    }

    /// The input element under a tap of a window that is [`inside`](Self::inside).
    #[inline(always)]
    pub(super) fn under(&self, window: usize, tap: usize) -> usize {
        (window * self.stride + tap * self.dilation).wrapping_sub(self.pad)
    }

    /// Windows that begin before so many padded elements. Most strides are 1 or 2, and divisions are slow.
    #[inline(always)]
    fn windows_to(&self, elements: usize) -> usize {
        match self.stride {
            1 => elements,
            2 => elements.div_ceil(2),
            stride => elements.div_ceil(stride),
        }
    }
}

/// Most elements of an image that is copied with its padding.
const MOST_PADDED: usize = 1 << 36;

/// A convolution with its sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Images or volumes.
    pub(super) n: usize,
    /// Input channels.
    pub(super) c: usize,
    /// Filters.
    pub(super) k: usize,
    /// Groups of channels.
    pub(super) groups: usize,
    /// Slices, rows, columns.
    pub(super) axes: [Line; 3],
}

impl Geometry {
    /// The convolution that a workload asks for; `None` for other operations.
    pub(super) fn of(workload: &Workload) -> Option<Self> {
        let geometry = match workload.operation() {
            Operation::Conv2d(op) => Self {
                n: op.n,
                c: op.c,
                k: op.k,
                groups: op.groups,
                axes: [
                    Line::new(1, 1, (1, 0, 1))?,
                    Line::new(op.h, op.r, (op.stride[0], op.pad[0], op.dilation[0]))?,
                    Line::new(op.w, op.s, (op.stride[1], op.pad[1], op.dilation[1]))?,
                ],
            },
            Operation::Conv3d(op) => Self {
                n: op.n,
                c: op.c,
                k: op.k,
                groups: op.groups,
                axes: [
                    Line::new(op.d, op.t, (op.stride[0], op.pad[0], op.dilation[0]))?,
                    Line::new(op.h, op.r, (op.stride[1], op.pad[1], op.dilation[1]))?,
                    Line::new(op.w, op.s, (op.stride[2], op.pad[2], op.dilation[2]))?,
                ],
            },
            _ => return None,
        };
        (geometry.groups > 0).then_some(geometry)
    }

    /// Input channels of one group.
    pub(super) fn group_channels(&self) -> usize {
        self.c / self.groups
    }

    /// Filters of one group.
    pub(super) fn group_filters(&self) -> usize {
        self.k / self.groups
    }

    /// Elements of one input channel.
    pub(super) fn plane(&self) -> usize {
        self.axes.iter().map(|axis| axis.input).product()
    }

    /// Elements of one output channel, which are windows.
    pub(super) fn windows(&self) -> usize {
        self.axes.iter().map(|axis| axis.output).product()
    }

    /// Taps of a filter in one channel.
    pub(super) fn taps(&self) -> usize {
        self.axes.iter().map(|axis| axis.taps).product()
    }

    /// Products in the sum of one output element, padding included.
    pub(super) fn depth(&self) -> usize {
        self.group_channels() * self.taps()
    }

    /// Whether any window has a tap on padding.
    pub(super) fn padded(&self) -> bool {
        self.axes
            .iter()
            .any(|axis| axis.whole() != (0..axis.output))
    }

    /// Whether an image with its padding can be copied at all. Taps far apart make small tensors with much padding.
    pub(super) fn fits_padded(&self) -> Result<(), Refusal> {
        let padded = |axis: &Line| axis.pad.checked_mul(2)?.checked_add(axis.input);
        let elements = self
            .axes
            .iter()
            .try_fold(self.c, |elements, axis| elements.checked_mul(padded(axis)?));
        if elements.is_some_and(|elements| elements <= MOST_PADDED) {
            return Ok(());
        }
        Err(Refusal::Shape {
            condition: "needs an image of at most 2^36 elements, padding included".to_owned(),
        })
    }

    /// Whether each window is one element, at a distance from the next.
    pub(super) fn pointwise(&self) -> bool {
        self.taps() == 1 && !self.padded()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_inside_are_those_a_walk_finds() {
        for (input, taps, stride) in [(1, 1, 1), (7, 3, 1), (9, 4, 2), (11, 2, 3), (3, 5, 1)] {
            for (pad, dilation) in [(0, 1), (1, 1), (2, 3), (5, 2), (9, 1)] {
                let Some(line) = Line::new(input, taps, (stride, pad, dilation)) else {
                    continue;
                };
                let on_input = |window: usize, tap: usize| {
                    (pad..pad + input).contains(&(window * stride + tap * dilation))
                };
                for tap in 0..taps {
                    let inside = line.inside(tap);
                    for window in 0..line.output {
                        assert_eq!(
                            inside.contains(&window),
                            on_input(window, tap),
                            "{line:?} window {window} tap {tap}"
                        );
                        if inside.contains(&window) {
                            assert!(line.under(window, tap) < input);
                        }
                    }
                }
                for window in 0..line.output {
                    let whole = (0..taps).all(|tap| on_input(window, tap));
                    assert_eq!(line.whole().contains(&window), whole, "{line:?} {window}");
                }
            }
        }
    }
}
