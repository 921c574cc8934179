//! Pooling of images: the maximum or the mean of each window, channel by channel.

use std::fmt;

use super::variant::{variants, write_word};
use super::window::{Window, parse_stride_and_pad};
use super::{Operand, Parse, Problem, Traffic, Work, WorkloadError, count, legal, require};
use crate::dtype::DType;
use crate::shape::Shape;
use crate::text::Fields;

const NAME: &str = "pool2d";

variants! {
    /// What is made of a window.
    PoolKind {
        /// Its largest element.
        Max = "max",
        /// The mean of all taps.
        Avg = "avg",
    }
}

/// A pooling of images. Settings per axis are rows first.
///
/// Text: `pool2d.max f32 n32 c64 h56 w56 r2 s2 stride2 pad0`, or `pool2d.avg`; r x s is the window. Stride is 1
/// and padding 0 unless given. Padding is never the maximum and counts as zeros in the mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pool2d {
    /// What is made of a window.
    pub kind: PoolKind,
    /// Images.
    pub n: usize,
    /// Channels.
    pub c: usize,
    /// Rows of an image.
    pub h: usize,
    /// Columns of an image.
    pub w: usize,
    /// Rows of the window.
    pub r: usize,
    /// Columns of the window.
    pub s: usize,
    /// Distance between neighbouring windows.
    pub stride: [usize; 2],
    /// Padding on each side; smaller than the window, so that every window sees the image.
    pub pad: [usize; 2],
}

impl Pool2d {
    /// Reads the problem off the stored shape of the input, n x c x h x w.
    pub fn infer(
        kind: PoolKind,
        input: &Shape,
        window: [usize; 2],
        stride: [usize; 2],
        pad: [usize; 2],
    ) -> Result<Self, WorkloadError> {
        let &[n, c, h, w] = input.dims() else {
            return Err(WorkloadError::Illegal {
                op: NAME,
                detail: format!("images need 4 dimensions, got {input}"),
            });
        };
        let [r, s] = window;
        let pool = Self {
            kind,
            n,
            c,
            h,
            w,
            r,
            s,
            stride,
            pad,
        };
        pool.output_size()?;
        Ok(pool)
    }

    /// Rows and columns of an output image, or why there is none.
    pub fn output_size(&self) -> Result<[usize; 2], WorkloadError> {
        let size = self.window().output(NAME)?;
        let ([r, s], [top, left]) = ([self.r, self.s], self.pad);
        legal(top < r && left < s, NAME, || {
            format!(
                "padding {top}x{left} must be smaller than the window {r}x{s}, or some windows see nothing else"
            )
        })?;
        Ok(size)
    }

    fn window(&self) -> Window<2> {
        Window {
            axes: ["h", "w"],
            input: [self.h, self.w],
            kernel: [self.r, self.s],
            stride: self.stride,
            pad: self.pad,
            dilation: [1; 2],
        }
    }
}

impl Problem for Pool2d {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, dtype: DType) -> Result<(), WorkloadError> {
        match self.kind {
            PoolKind::Max => require(dtype.is_ordered(), NAME, dtype, "real numbers"),
            PoolKind::Avg => require(dtype.is_float(), NAME, dtype, "real floating point for avg"),
        }?;
        self.output_size().map(drop)
    }

    fn inputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        let dims = [self.n, self.c, self.h, self.w];
        Ok(vec![Operand::new("input", dtype, &dims)?])
    }

    fn outputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        let [p, q] = self.output_size()?;
        Ok(vec![Operand::new("out", dtype, &[self.n, self.c, p, q])?])
    }

    /// With p x q the output size, n·c·p·q times r·s − 1 maxima, or r·s − 1 sums and a division.
    fn work(&self, _dtype: DType) -> Option<Work> {
        let [p, q] = self.output_size().ok()?;
        let taps = self.window().taps()?;
        let each = match self.kind {
            PoolKind::Max => taps.checked_sub(1)?,
            PoolKind::Avg => taps,
        };
        Work::flops(each).times(&[self.n, self.c, p, q])
    }

    /// Pixels that no window sees are not read.
    fn traffic(&self, dtype: DType) -> Result<Traffic, WorkloadError> {
        let written = self.outputs(dtype)?.iter().map(Operand::bytes).sum();
        let read = count(&[self.n, self.c, dtype.size()])
            .and_then(|planes| planes.checked_mul(self.window().seen(NAME).ok()?))
            .ok_or(WorkloadError::TooLarge {
                op: NAME,
                what: "bytes moved",
            })?;
        Ok(Traffic { read, written })
    }

    fn write_variant(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_word(f, self.kind.name())
    }

    fn write_fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            n, c, h, w, r, s, ..
        } = self;
        write!(f, " n{n} c{c} h{h} w{w} r{r} s{s}")?;
        self.window().write_settings(f)
    }
}

impl Parse for Pool2d {
    fn parse(variant: &str, fields: &mut Fields<'_>) -> Result<Self, WorkloadError> {
        let kind = PoolKind::parse(NAME, variant)?;
        let (stride, pad) = parse_stride_and_pad(fields)?;
        Ok(Self {
            kind,
            n: fields.required("n")?,
            c: fields.required("c")?,
            h: fields.required("h")?,
            w: fields.required("w")?,
            r: fields.required("r")?,
            s: fields.required("s")?,
            stride,
            pad,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;

    #[test]
    fn cost_is_counted_from_the_shapes() {
        let max: Workload = "pool2d.max f32 n2 c3 h8 w6 r3 s2 stride2 pad1x0"
            .parse()
            .unwrap();
        assert_eq!(max.outputs()[0].shape.dims(), [2, 3, 4, 3]);
        let cost = max.cost().unwrap();
        assert_eq!(cost.flops.0, 2 * 3 * 4 * 3 * 5);
        assert_eq!(cost.bytes_read.0, 4 * 2 * 3 * 8 * 6);
        assert_eq!(cost.bytes_written.0, 4 * 2 * 3 * 4 * 3);
        let avg: Workload = "pool2d.avg f32 n2 c3 h8 w6 r3 s2 stride2 pad1x0"
            .parse()
            .unwrap();
        assert_eq!(avg.cost().unwrap().flops.0, 2 * 3 * 4 * 3 * 6);
    }

    #[test]
    fn pixels_beyond_the_last_window_are_not_read() {
        let w: Workload = "pool2d.max u8 n1 c1 h5 w5 r2 s2 stride2 pad0"
            .parse()
            .unwrap();
        assert_eq!(w.cost().unwrap().bytes_read.0, 16);
        assert_eq!(
            w.to_string(),
            "pool2d.max u8 n1 c1 h5 w5 r2 s2 stride2 pad0"
        );
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let error = |text: &str| text.parse::<Workload>().unwrap_err().to_string();
        assert_eq!(
            error("pool2d.max f32 n1 c1 h8 w8 r2 s2 stride2 pad2"),
            "pool2d: padding 2x2 must be smaller than the window 2x2, or some windows see nothing else"
        );
        assert_eq!(
            error("pool2d.avg i32 n1 c1 h8 w8 r2 s2 stride2 pad0"),
            "pool2d is not defined on i32: it takes real floating point for avg"
        );
        assert_eq!(
            error("pool2d.max complex64 n1 c1 h8 w8 r2 s2"),
            "pool2d is not defined on complex64: it takes real numbers"
        );
        assert_eq!(
            error("pool2d f32 n1 c1 h8 w8 r2 s2"),
            "pool2d needs a variant, such as `pool2d.max`; known: max, avg"
        );
        assert_eq!(
            error("pool2d.maxx f32 n1 c1 h8 w8 r2 s2"),
            "pool2d has no variant `maxx`; did you mean `max`?"
        );
    }

    #[test]
    fn the_size_is_read_off_the_input() {
        let infer = |text: &str, window| {
            let shape: Shape = text.parse().unwrap();
            Pool2d::infer(PoolKind::Max, &shape, window, [2; 2], [0; 2])
        };
        assert_eq!(
            infer("1x2x8x9", [3, 3]).unwrap().output_size().unwrap(),
            [3, 4]
        );
        let error = infer("2x8x9", [3, 3]).unwrap_err().to_string();
        assert_eq!(error, "pool2d: images need 4 dimensions, got 2x8x9");
        assert!(infer("1x2x8x9", [9, 9]).is_err());
    }
}
