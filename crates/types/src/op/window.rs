//! Windows that slide over an input: the one place for the output-size formula of convolutions and pooling,
//! and for the input elements that the windows see.

use std::fmt;

use super::{WorkloadError, count, legal};
use crate::text::{Fields, write_each};

/// Windows over `D` axes. All five settings are per axis, outermost first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window<const D: usize> {
    /// What the axes are called in messages.
    pub(super) axes: [&'static str; D],
    /// Size of the input.
    pub(super) input: [usize; D],
    /// Size of the window in taps.
    pub(super) kernel: [usize; D],
    /// Distance between neighbouring windows.
    pub(super) stride: [usize; D],
    /// Zeros put before and after the input.
    pub(super) pad: [usize; D],
    /// Distance between neighbouring taps.
    pub(super) dilation: [usize; D],
}

impl<const D: usize> Window<D> {
    /// Where windows fit: `(input + 2·pad − dilation·(kernel − 1) − 1) / stride + 1` per axis, rounded
    /// down. An empty axis stays empty.
    pub(super) fn output(&self, op: &'static str) -> Result<[usize; D], WorkloadError> {
        let mut output = [0; D];
        for (axis, positions) in output.iter_mut().enumerate() {
            *positions = self.positions(op, axis)?;
        }
        Ok(output)
    }

    fn positions(&self, op: &'static str, axis: usize) -> Result<usize, WorkloadError> {
        let name = self.axes[axis];
        let (input, kernel, pad) = (self.input[axis], self.kernel[axis], self.pad[axis]);
        let (stride, dilation) = (self.stride[axis], self.dilation[axis]);
        for (what, value) in [
            ("window", kernel),
            ("stride", stride),
            ("dilation", dilation),
        ] {
            legal(value > 0, op, || {
                format!("the {what} along {name} is 0, it must be at least 1")
            })?;
        }
        let too_large = WorkloadError::TooLarge {
            op,
            what: "window positions",
        };
        let padded = pad.checked_mul(2).and_then(|pad| pad.checked_add(input));
        let extent = dilation
            .checked_mul(kernel - 1)
            .and_then(|reach| reach.checked_add(1));
        let (Some(padded), Some(extent)) = (padded, extent) else {
            return Err(too_large);
        };
        if input == 0 {
            return Ok(0);
        }
        legal(extent <= padded, op, || {
            format!(
                "the window covers {extent} along {name}, more than the padded input of {padded}: pad more, or make it smaller"
            )
        })?;
        Ok((padded - extent) / stride + 1)
    }

    /// Taps of one window. Those that fall on padding count.
    pub(super) fn taps(&self) -> Option<u64> {
        count(&self.kernel)
    }

    /// How many input elements at least one window sees: a window of one tap at stride 2 passes over
    /// three quarters of an image.
    pub(super) fn seen(&self, op: &'static str) -> Result<u64, WorkloadError> {
        let output = self.output(op)?;
        let mut seen = 1u64;
        for (axis, positions) in output.into_iter().enumerate() {
            let lattice = Lattice {
                windows: positions as u128,
                stride: self.stride[axis] as u128,
                taps: self.kernel[axis] as u128,
                dilation: self.dilation[axis] as u128,
            };
            let (pad, input) = (self.pad[axis] as u128, self.input[axis] as u128);
            let along = lattice.distinct_below(pad + input) - lattice.distinct_below(pad);
            seen = u64::try_from(along)
                .ok()
                .and_then(|along| seen.checked_mul(along))
                .ok_or(WorkloadError::TooLarge {
                    op,
                    what: "bytes moved",
                })?;
        }
        Ok(seen)
    }

    /// Writes stride and padding always, dilation unless it is 1.
    pub(super) fn write_settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_each(f, "stride", &self.stride)?;
        write_each(f, "pad", &self.pad)?;
        if self.dilation == [1; D] {
            Ok(())
        } else {
            write_each(f, "dil", &self.dilation)
        }
    }
}

/// Stride and padding as read from text: 1 and 0 where nothing is written.
pub(super) fn parse_stride_and_pad<const D: usize>(
    fields: &mut Fields<'_>,
) -> Result<([usize; D], [usize; D]), WorkloadError> {
    let stride = fields.each("stride")?.unwrap_or([1; D]);
    let pad = fields.each("pad")?.unwrap_or([0; D]);
    Ok((stride, pad))
}

/// Positions `window·stride + tap·dilation` along one padded axis. Some fall together; counting them one
/// by one would take as long as the convolution. Sizes fit 64 bits, so 128 hold every sum here.
struct Lattice {
    windows: u128,
    stride: u128,
    taps: u128,
    dilation: u128,
}

impl Lattice {
    /// How many different positions lie below `end`.
    ///
    /// With `s` and `d` the stride and dilation without their common divisor, the window `d` places earlier
    /// reaches the same position with a tap `s` places later. Each position is counted at its last
    /// tap: either one of the last `s` taps, or a tap of one of the first `d` windows.
    fn distinct_below(&self, end: u128) -> u128 {
        let divisor = gcd(self.stride, self.dilation).max(1);
        let last = self.taps.min(self.stride / divisor);
        let earlier = self.taps - last;
        let first = self.windows.min(self.dilation / divisor);
        self.pairs_below(
            end.saturating_sub(earlier * self.dilation),
            self.windows,
            last,
        ) + self.pairs_below(end, first, earlier)
    }

    /// How many pairs of `windows` and `taps` have a position below `end`.
    fn pairs_below(&self, end: u128, windows: u128, taps: u128) -> u128 {
        if windows == 0 {
            return 0;
        }
        // Taps before `some` meet at least one window below the end, those before `all` every one.
        let some = taps.min(end.div_ceil(self.dilation));
        let beyond_last = end.saturating_sub((windows - 1) * self.stride);
        let all = some.min(beyond_last.div_ceil(self.dilation));
        if some == all {
            return all * windows;
        }
        // From the last such tap backwards, room grows by one dilation each.
        let room = end - (some - 1) * self.dilation;
        let partial = floor_sum(
            some - all,
            self.stride,
            self.dilation,
            room + self.stride - 1,
        );
        all * windows + partial
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The sum of `(slope·i + start) / divisor`, rounded down, for `i` from 0 to `terms − 1`, by Euclid's
/// algorithm on the lattice points under the line.
fn floor_sum(terms: u128, divisor: u128, slope: u128, start: u128) -> u128 {
    if terms == 0 {
        return 0;
    }
    let whole = terms * (terms - 1) / 2 * (slope / divisor) + terms * (start / divisor);
    let (slope, start) = (slope % divisor, start % divisor);
    let top = slope * terms + start;
    if top < divisor {
        return whole;
    }
    whole + floor_sum(top / divisor, slope, divisor, top % divisor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn along(input: usize, kernel: usize, stride: usize, pad: usize, dilation: usize) -> Window<1> {
        Window {
            axes: ["w"],
            input: [input],
            kernel: [kernel],
            stride: [stride],
            pad: [pad],
            dilation: [dilation],
        }
    }

    #[test]
    fn output_sizes_are_those_of_the_formula() {
        assert_eq!(along(56, 3, 1, 1, 1).output("conv2d").unwrap(), [56]);
        assert_eq!(along(224, 7, 2, 3, 1).output("conv2d").unwrap(), [112]);
        assert_eq!(along(7, 3, 1, 0, 2).output("conv2d").unwrap(), [3]);
        assert_eq!(along(0, 3, 1, 0, 1).output("conv2d").unwrap(), [0]);
    }

    #[test]
    fn windows_that_do_not_fit_are_named() {
        let message = |window: Window<1>| window.output("conv2d").unwrap_err().to_string();
        assert_eq!(
            message(along(4, 3, 1, 0, 2)),
            "conv2d: the window covers 5 along w, more than the padded input of 4: pad more, or make it smaller"
        );
        assert_eq!(
            message(along(4, 0, 1, 0, 1)),
            "conv2d: the window along w is 0, it must be at least 1"
        );
        assert_eq!(
            message(along(4, 1, 0, 0, 1)),
            "conv2d: the stride along w is 0, it must be at least 1"
        );
        assert_eq!(
            message(along(4, 1, 1, 0, 0)),
            "conv2d: the dilation along w is 0, it must be at least 1"
        );
        for window in [
            along(4, 1, 1, usize::MAX, 1),
            along(4, usize::MAX, 1, 0, usize::MAX),
        ] {
            assert!(matches!(
                window.output("conv2d"),
                Err(WorkloadError::TooLarge { .. })
            ));
        }
    }

    #[test]
    fn elements_seen_are_those_a_walk_over_all_windows_finds() {
        let mut compared = 0;
        for input in 1..14 {
            for (kernel, stride) in (1..6).flat_map(|kernel| (1..6).map(move |s| (kernel, s))) {
                for (pad, dilation) in (0..4).flat_map(|pad| (1..5).map(move |d| (pad, d))) {
                    let window = along(input, kernel, stride, pad, dilation);
                    let Ok([positions]) = window.output("conv2d") else {
                        continue;
                    };
                    let walked: std::collections::BTreeSet<usize> = (0..positions)
                        .flat_map(|o| (0..kernel).map(move |t| o * stride + t * dilation))
                        .filter(|position| (pad..pad + input).contains(position))
                        .collect();
                    assert_eq!(
                        window.seen("conv2d").unwrap(),
                        walked.len() as u64,
                        "{window:?}"
                    );
                    compared += 1;
                }
            }
        }
        assert!(compared > 3000, "{compared}");
        // A line this long could not be walked.
        let long = along(1 << 58, 1 << 20, 3 << 20, 5, 2);
        // 91 625 968 981 windows of 2^20 taps that never meet; three taps fall on the padding in front.
        assert_eq!(long.seen("conv2d").unwrap(), (91_625_968_981 << 20) - 3);
    }
}
