//! Convolution of volumes or of films: [`Conv2d`](super::Conv2d) with a depth.

use std::fmt;

use super::conv::{Convolution, sizes};
use super::window::{Window, parse_stride_and_pad};
use super::{Operand, Parse, Problem, Traffic, Work, WorkloadError, no_variant};
use crate::dtype::DType;
use crate::shape::Shape;
use crate::text::Fields;

const NAME: &str = "conv3d";

/// A convolution of volumes. Settings per axis are depth first, then rows, then columns.
///
/// Text: `conv3d f32 n1 c16 d16 h56 w56 k32 t3 r3 s3 stride1 pad1`, with d slices and filters of t x r x s taps;
/// `dil2`, `groups4` and settings by axis (`stride1x2x2`) as in two dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Conv3d {
    /// Volumes.
    pub n: usize,
    /// Input channels.
    pub c: usize,
    /// Slices of a volume.
    pub d: usize,
    /// Rows of a slice.
    pub h: usize,
    /// Columns of a slice.
    pub w: usize,
    /// Filters, which are output channels.
    pub k: usize,
    /// Slices of a filter.
    pub t: usize,
    /// Rows of a filter.
    pub r: usize,
    /// Columns of a filter.
    pub s: usize,
    /// Distance between neighbouring windows.
    pub stride: [usize; 3],
    /// Zeros put on each side.
    pub pad: [usize; 3],
    /// Distance between neighbouring taps.
    pub dilation: [usize; 3],
    /// Groups of channels; 1 for an ordinary convolution.
    pub groups: usize,
}

impl Conv3d {
    /// Reads the problem off the stored shapes of the input (n x c x d x h x w) and of the weights
    /// (k x c/groups x t x r x s).
    pub fn infer(
        input: &Shape,
        weights: &Shape,
        stride: [usize; 3],
        pad: [usize; 3],
        dilation: [usize; 3],
        groups: usize,
    ) -> Result<Self, WorkloadError> {
        let sizes = sizes::<3>(NAME, input, weights, groups)?;
        let ([d, h, w], [t, r, s]) = (sizes.input, sizes.kernel);
        let conv = Self {
            n: sizes.n,
            c: sizes.c,
            d,
            h,
            w,
            k: sizes.k,
            t,
            r,
            s,
            stride,
            pad,
            dilation,
            groups,
        };
        conv.shared().check_sizes()?;
        Ok(conv)
    }

    fn shared(&self) -> Convolution<3> {
        Convolution {
            op: NAME,
            n: self.n,
            c: self.c,
            k: self.k,
            groups: self.groups,
            window: Window {
                axes: ["d", "h", "w"],
                input: [self.d, self.h, self.w],
                kernel: [self.t, self.r, self.s],
                stride: self.stride,
                pad: self.pad,
                dilation: self.dilation,
            },
        }
    }
}

impl Problem for Conv3d {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, dtype: DType) -> Result<(), WorkloadError> {
        self.shared().check(dtype)
    }

    fn inputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        self.shared().inputs(dtype)
    }

    fn outputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        self.shared().outputs(dtype)
    }

    /// With o x p x q the output size, 2·n·k·o·p·q·(c/groups)·t·r·s for real numbers.
    fn work(&self, dtype: DType) -> Option<Work> {
        self.shared().work(dtype)
    }

    fn traffic(&self, dtype: DType) -> Result<Traffic, WorkloadError> {
        self.shared().traffic(dtype)
    }

    fn write_fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            n,
            c,
            d,
            h,
            w,
            k,
            t,
            r,
            s,
            groups,
            ..
        } = self;
        write!(f, " n{n} c{c} d{d} h{h} w{w} k{k} t{t} r{r} s{s}")?;
        self.shared().window.write_settings(f)?;
        match groups {
            1 => Ok(()),
            groups => write!(f, " groups{groups}"),
        }
    }
}

impl Parse for Conv3d {
    fn parse(variant: &str, fields: &mut Fields<'_>) -> Result<Self, WorkloadError> {
        no_variant(NAME, variant)?;
        let (stride, pad) = parse_stride_and_pad(fields)?;
        Ok(Self {
            n: fields.required("n")?,
            c: fields.required("c")?,
            d: fields.required("d")?,
            h: fields.required("h")?,
            w: fields.required("w")?,
            k: fields.required("k")?,
            t: fields.required("t")?,
            r: fields.required("r")?,
            s: fields.required("s")?,
            stride,
            pad,
            dilation: fields.each("dil")?.unwrap_or([1; 3]),
            groups: fields.number("groups")?.unwrap_or(1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;

    #[test]
    fn cost_is_counted_from_the_shapes() {
        let text = "conv3d f64 n2 c4 d5 h6 w7 k6 t3 r3 s2 stride1x2x1 pad1x1x0 groups2";
        let w: Workload = text.parse().unwrap();
        assert_eq!(w.to_string(), text);
        assert_eq!(w.outputs()[0].shape.dims(), [2, 6, 5, 3, 6]);
        let cost = w.cost().unwrap();
        assert_eq!(cost.flops.0, 2 * 2 * 6 * (5 * 3 * 6) * 2 * (3 * 3 * 2));
        assert_eq!(
            cost.bytes_read.0,
            8 * (2 * 4 * 5 * 6 * 7 + 6 * 2 * 3 * 3 * 2)
        );
        assert_eq!(cost.bytes_written.0, 8 * 2 * 6 * 5 * 3 * 6);
    }

    #[test]
    fn shapes_give_the_sizes_or_say_why_not() {
        let shape = |text: &str| text.parse::<Shape>().unwrap();
        let infer = |input: &str, weights: &str, stride| {
            Conv3d::infer(&shape(input), &shape(weights), stride, [0; 3], [1, 2, 1], 1)
        };
        let conv = infer("2x8x5x9x7", "4x8x1x3x2", [1; 3]).unwrap();
        assert_eq!(
            Workload::new(conv, DType::I8).unwrap().to_string(),
            "conv3d i8 n2 c8 d5 h9 w7 k4 t1 r3 s2 stride1 pad0 dil1x2x1"
        );
        let error = infer("8x5x9x7", "4x8x1x3x2", [1; 3]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "conv3d: images need 5 dimensions, got 8x5x9x7"
        );
        let error = infer("2x8x5x9x7", "4x8x1x5x2", [1, 0, 1]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "conv3d: the stride along h is 0, it must be at least 1"
        );
        let error = infer("2x8x5x8x7", "4x8x1x5x2", [1; 3]).unwrap_err();
        assert!(error.to_string().contains("covers 9 along h"), "{error}");
        assert!(
            "conv3d bool n1 c1 d1 h1 w1 k1 t1 r1 s1"
                .parse::<Workload>()
                .is_err()
        );
    }
}
