//! Convolution of images, as learning libraries mean it: a sliding dot product, the filter not flipped.

use std::fmt;

use super::conv::{Convolution, sizes};
use super::window::{Window, parse_stride_and_pad};
use super::{Operand, Parse, Problem, Traffic, Work, WorkloadError, no_variant};
use crate::dtype::DType;
use crate::shape::Shape;
use crate::text::Fields;

const NAME: &str = "conv2d";

/// A convolution of images. Settings per axis are rows first.
///
/// Text: `conv2d f32 n32 c64 h56 w56 k64 r3 s3 stride1 pad1`, with n images of c channels, h rows and w columns
/// (NCHW) and k filters of r x s taps; `dil2` spreads the taps, `groups32` cuts the channels into groups that do
/// not see each other. Settings that differ by axis read `stride2x1`. Stride is 1 and padding 0 unless given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Conv2d {
    /// Images.
    pub n: usize,
    /// Input channels.
    pub c: usize,
    /// Rows of an image.
    pub h: usize,
    /// Columns of an image.
    pub w: usize,
    /// Filters, which are output channels.
    pub k: usize,
    /// Rows of a filter.
    pub r: usize,
    /// Columns of a filter.
    pub s: usize,
    /// Distance between neighbouring windows.
    pub stride: [usize; 2],
    /// Zeros put on each side.
    pub pad: [usize; 2],
    /// Distance between neighbouring taps.
    pub dilation: [usize; 2],
    /// Groups of channels; 1 for an ordinary convolution, `c` for a depthwise one.
    pub groups: usize,
}

impl Conv2d {
    /// Reads the problem off the stored shapes of the input (n x c x h x w) and of the weights
    /// (k x c/groups x r x s).
    ///
    /// ```
    /// use kernelwise_types::{Shape, op::Conv2d};
    ///
    /// let images: Shape = "32x64x56x56".parse()?;
    /// let weights: Shape = "128x64x3x3".parse()?;
    /// let conv = Conv2d::infer(&images, &weights, [2, 2], [1, 1], [1, 1], 1)?;
    /// assert_eq!(conv.output_size()?, [28, 28]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn infer(
        input: &Shape,
        weights: &Shape,
        stride: [usize; 2],
        pad: [usize; 2],
        dilation: [usize; 2],
        groups: usize,
    ) -> Result<Self, WorkloadError> {
        let sizes = sizes::<2>(NAME, input, weights, groups)?;
        let ([h, w], [r, s]) = (sizes.input, sizes.kernel);
        let conv = Self {
            n: sizes.n,
            c: sizes.c,
            h,
            w,
            k: sizes.k,
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

    /// Rows and columns of an output image, or why there is none.
    pub fn output_size(&self) -> Result<[usize; 2], WorkloadError> {
        self.shared().window.output(NAME)
    }

    fn shared(&self) -> Convolution<2> {
        Convolution {
            op: NAME,
            n: self.n,
            c: self.c,
            k: self.k,
            groups: self.groups,
            window: Window {
                axes: ["h", "w"],
                input: [self.h, self.w],
                kernel: [self.r, self.s],
                stride: self.stride,
                pad: self.pad,
                dilation: self.dilation,
            },
        }
    }
}

impl Problem for Conv2d {
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

    /// With p x q the output size, 2·n·k·p·q·(c/groups)·r·s for real numbers.
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
            h,
            w,
            k,
            r,
            s,
            groups,
            ..
        } = self;
        write!(f, " n{n} c{c} h{h} w{w} k{k} r{r} s{s}")?;
        self.shared().window.write_settings(f)?;
        match groups {
            1 => Ok(()),
            groups => write!(f, " groups{groups}"),
        }
    }
}

impl Parse for Conv2d {
    fn parse(variant: &str, fields: &mut Fields<'_>) -> Result<Self, WorkloadError> {
        no_variant(NAME, variant)?;
        let (stride, pad) = parse_stride_and_pad(fields)?;
        Ok(Self {
            n: fields.required("n")?,
            c: fields.required("c")?,
            h: fields.required("h")?,
            w: fields.required("w")?,
            k: fields.required("k")?,
            r: fields.required("r")?,
            s: fields.required("s")?,
            stride,
            pad,
            dilation: fields.each("dil")?.unwrap_or([1; 2]),
            groups: fields.number("groups")?.unwrap_or(1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;

    fn parse(text: &str) -> Workload {
        text.parse().unwrap()
    }

    #[test]
    fn cost_is_counted_from_the_shapes() {
        let w = parse("conv2d f32 n2 c3 h5 w6 k4 r3 s2 stride1 pad1x0");
        assert_eq!(w.outputs()[0].shape.dims(), [2, 4, 5, 5]);
        let cost = w.cost().unwrap();
        assert_eq!(cost.flops.0, 2 * 2 * 4 * 5 * 5 * 3 * 3 * 2);
        assert_eq!(cost.bytes_read.0, 4 * (2 * 3 * 5 * 6 + 4 * 3 * 3 * 2));
        assert_eq!(cost.bytes_written.0, 4 * 2 * 4 * 5 * 5);
        let complex = parse("conv2d complex64 n2 c3 h5 w6 k4 r3 s2 stride1 pad1x0");
        assert_eq!(complex.cost().unwrap().flops.0, 4 * cost.flops.0);
    }

    #[test]
    fn groups_see_only_their_own_channels() {
        let w = parse("conv2d f32 n1 c8 h4 w4 k8 r3 s3 stride1 pad1 groups8");
        assert_eq!(w.inputs()[1].shape.dims(), [8, 1, 3, 3]);
        assert_eq!(w.cost().unwrap().flops.0, 2 * 8 * 4 * 4 * 9);
    }

    #[test]
    fn pixels_between_the_windows_are_not_read() {
        let w = parse("conv2d f32 n1 c2 h8 w8 k3 r1 s1 stride2 pad0");
        assert_eq!(w.cost().unwrap().bytes_read.0, 4 * (2 * 4 * 4 + 3 * 2));
    }

    #[test]
    fn eight_bit_products_come_out_in_32_bits() {
        let w = parse("conv2d u8 n1 c1 h3 w3 k1 r3 s3 stride1 pad0");
        assert_eq!(w.outputs()[0].dtype, DType::I32);
        assert_eq!(w.cost().unwrap().bytes_written.0, 4);
    }

    #[test]
    fn text_has_defaults_and_one_canonical_form() {
        let short = parse("conv2d f32 s3 r3 k64 w56 h56 c64 n32 dil1x1 groups1 stride2x2");
        assert_eq!(
            short.to_string(),
            "conv2d f32 n32 c64 h56 w56 k64 r3 s3 stride2 pad0"
        );
        for text in [
            "conv2d f32 n32 c64 h56 w56 k64 r3 s3 stride2x1 pad1x0",
            "conv2d f32 n32 c64 h56 w56 k64 r3 s3 stride1 pad2 dil2 groups32",
        ] {
            assert_eq!(parse(text).to_string(), text);
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let error = |text: &str| text.parse::<Workload>().unwrap_err().to_string();
        assert_eq!(
            error("conv2d f32 n1 c6 h4 w4 k4 r3 s3 groups4"),
            "conv2d: 4 groups do not divide c6 and k4"
        );
        assert_eq!(
            error("conv2d f32 n1 c4 h4 w4 k4 r3 s3 groups0"),
            "conv2d: groups is 0, it must be at least 1"
        );
        assert_eq!(
            error("conv2d f32 n1 c4 h2 w4 k4 r3 s3"),
            "conv2d: the window covers 3 along h, more than the padded input of 2: pad more, or make it smaller"
        );
        assert_eq!(
            error("conv2d bool n1 c4 h4 w4 k4 r3 s3"),
            "conv2d is not defined on bool: it takes numbers, not truth values"
        );
        assert_eq!(
            error("conv2d f32 n1 c4 w4 k4 r3 s3"),
            "conv2d needs h, as in `conv2d f32 n32 c64 h56 w56 k64 r3 s3 stride1 pad1`"
        );
        assert_eq!(
            error("conv2d f32 n1 c4 h4 w4 k4 r3 s3 stride1x1x1"),
            "conv2d: `stride1x1x1` is not readable: expected one number, or one per dimension joined by x"
        );
    }

    #[test]
    fn shapes_give_the_sizes_or_say_why_not() {
        let shape = |text: &str| text.parse::<Shape>().unwrap();
        let infer = |input: &str, weights: &str, groups| {
            Conv2d::infer(
                &shape(input),
                &shape(weights),
                [1; 2],
                [0; 2],
                [1; 2],
                groups,
            )
        };
        let conv = infer("2x8x9x7", "4x4x3x2", 2).unwrap();
        assert_eq!(
            Workload::new(conv, DType::F32).unwrap().to_string(),
            "conv2d f32 n2 c8 h9 w7 k4 r3 s2 stride1 pad0 groups2"
        );
        let error = infer("2x8x9x7", "4x4x3x2", 1).unwrap_err().to_string();
        assert_eq!(
            error,
            "conv2d: weights 4x4x3x2 take 4 channels in each of 1 groups, the input 2x8x9x7 has 8"
        );
        let error = infer("8x9x7", "4x4x3x2", 1).unwrap_err().to_string();
        assert_eq!(error, "conv2d: images need 4 dimensions, got 8x9x7");
        let error = infer("2x8x9x7", "4x8x3", 1).unwrap_err().to_string();
        assert_eq!(error, "conv2d: weights need 4 dimensions, got 4x8x3");
        assert!(infer("2x8x2x7", "4x8x3x3", 1).is_err());
    }

    #[test]
    fn an_empty_batch_costs_nothing_but_the_weights() {
        let conv = Conv2d::infer(
            &"0x3x8x8".parse().unwrap(),
            &"4x3x3x3".parse().unwrap(),
            [1; 2],
            [1; 2],
            [1; 2],
            1,
        )
        .unwrap();
        assert_eq!(conv.work(DType::F32), Some(Work::default()));
        assert_eq!(conv.traffic(DType::F32).unwrap().written, 0);
        assert!(matches!(
            Workload::new(conv, DType::F32),
            Err(WorkloadError::Empty {
                operand: "input",
                ..
            })
        ));
    }
}
