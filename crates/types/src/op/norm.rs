//! Normalisation: layer and RMS along the last axis, batch along all but the channels.

use std::fmt;

use super::axis::{check_axis, rows};
use super::variant::{variants, write_word};
use super::{Operand, Parse, Problem, Work, WorkloadError, count, legal, require};
use crate::dtype::DType;
use crate::shape::Shape;
use crate::text::Fields;

const NAME: &str = "norm";

variants! {
    /// Which elements are normalised together, and to what.
    NormKind {
        /// Each row of the last axis, to mean 0 and variance 1.
        Layer = "layer",
        /// Each row of the last axis, to mean square 1.
        Rms = "rms",
        /// Each channel (axis 1) over the whole batch, to mean 0 and variance 1.
        Batch = "batch",
    }
}

/// A normalisation.
///
/// Text: `norm.layer f32 128x768`, `norm.rms f32 128x768`, `norm.batch f32 32x64x56x56`, where the channels are axis 1;
/// `norm.batch … infer` takes mean and variance as they were learned instead of computing them. The small
/// number that keeps the root away from zero is 1e-5 in all of them.
///
/// Counts per group of n elements that share their statistics (a row, or a channel), by the two-pass
/// formula: the mean first, then the variance from the differences, which are kept:
///
/// | kind | statistics | root | result | total |
/// |---|---|---|---|---|
/// | layer, batch | mean n, differences n, variance 2n | add, root, reciprocal | 3 each: two products, a sum | 7n + 3 |
/// | rms | mean square 2n | add, root, reciprocal | 2 each: two products | 4n + 3 |
/// | batch, `infer` | none | add, root, reciprocal | 4 each: difference, two products, sum | 4n + 3 |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Norm {
    /// Which elements are normalised together.
    pub kind: NormKind,
    /// The shape of input and output.
    pub shape: Shape,
    /// For batch normalisation: take mean and variance as inputs instead of computing them.
    pub inference: bool,
}

impl Norm {
    /// Reads the problem off the stored shapes of `x` and of the scale, which has one element per
    /// position on the last axis, or per channel.
    pub fn infer(
        kind: NormKind,
        x: &Shape,
        scale: &Shape,
        inference: bool,
    ) -> Result<Self, WorkloadError> {
        let norm = Self {
            kind,
            shape: *x,
            inference,
        };
        norm.check_sizes()?;
        let width = norm.width()?;
        legal(scale.dims() == [width], NAME, || {
            format!("the scale for {x} has shape {width}, not {scale}")
        })?;
        Ok(norm)
    }

    fn check_sizes(&self) -> Result<(), WorkloadError> {
        let batch = self.kind == NormKind::Batch;
        legal(batch || !self.inference, NAME, || {
            format!(
                "`infer` belongs to norm.batch: {} has no learned statistics",
                self.kind.name()
            )
        })?;
        legal(!batch || self.shape.rank() >= 2, NAME, || {
            format!(
                "batch needs at least two dimensions, samples and channels, got {}",
                self.shape
            )
        })?;
        check_axis(NAME, &self.shape, self.axis())
    }

    /// The axis along which scale and shift vary.
    fn axis(&self) -> usize {
        match self.kind {
            NormKind::Batch => 1,
            NormKind::Layer | NormKind::Rms => self.shape.rank().saturating_sub(1),
        }
    }

    /// Length of scale and shift.
    fn width(&self) -> Result<usize, WorkloadError> {
        rows(NAME, &self.shape, self.axis()).map(|(_, width)| width)
    }
}

impl Problem for Norm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, dtype: DType) -> Result<(), WorkloadError> {
        require(dtype.is_float(), NAME, dtype, "real floating point")?;
        self.check_sizes()
    }

    fn inputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        let vectors: &[&'static str] = match (self.kind, self.inference) {
            (NormKind::Rms, _) => &["scale"],
            (_, false) => &["scale", "shift"],
            (_, true) => &["scale", "shift", "mean", "variance"],
        };
        let width = self.width()?;
        let mut inputs = vec![Operand::of("x", dtype, self.shape)];
        for name in vectors {
            inputs.push(Operand::new(name, dtype, &[width])?);
        }
        Ok(inputs)
    }

    /// Batch normalisation in training also gives the statistics it computed, for the running means.
    fn outputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        let mut outputs = vec![Operand::of("out", dtype, self.shape)];
        if self.kind == NormKind::Batch && !self.inference {
            let width = self.width()?;
            outputs.push(Operand::new("mean", dtype, &[width])?);
            outputs.push(Operand::new("variance", dtype, &[width])?);
        }
        Ok(outputs)
    }

    /// Groups times the total in the table above: (7n + 3) or (4n + 3) per group of n.
    fn work(&self, _dtype: DType) -> Option<Work> {
        let (rows, width) = rows(NAME, &self.shape, self.axis()).ok()?;
        let (groups, n) = match self.kind {
            NormKind::Batch => (width, rows),
            NormKind::Layer | NormKind::Rms => (rows, width),
        };
        if n == 0 {
            return Some(Work::default());
        }
        let each = match (self.kind, self.inference) {
            (NormKind::Rms, _) | (NormKind::Batch, true) => 4,
            _ => 7,
        };
        Work::flops(count(&[each, n])?.checked_add(3)?).times(&[groups])
    }

    fn write_variant(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_word(f, self.kind.name())
    }

    fn write_fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}", self.shape)?;
        f.write_str(if self.inference { " infer" } else { "" })
    }
}

impl Parse for Norm {
    fn parse(variant: &str, fields: &mut Fields<'_>) -> Result<Self, WorkloadError> {
        Ok(Self {
            kind: NormKind::parse(NAME, variant)?,
            shape: fields.shape()?,
            inference: fields.flag("infer"),
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

    fn names(operands: &[Operand]) -> Vec<String> {
        let show = |operand: &Operand| format!("{} {}", operand.name, operand.shape);
        operands.iter().map(show).collect()
    }

    #[test]
    fn rows_are_normalised_along_the_last_axis() {
        let layer = parse("norm.layer f32 2x3x5");
        assert_eq!(names(layer.inputs()), ["x 2x3x5", "scale 5", "shift 5"]);
        assert_eq!(names(layer.outputs()), ["out 2x3x5"]);
        let cost = layer.cost().unwrap();
        assert_eq!(cost.flops.0, 6 * (7 * 5 + 3));
        assert_eq!(cost.bytes_read.0, 4 * (30 + 5 + 5));
        let rms = parse("norm.rms f32 2x3x5");
        assert_eq!(names(rms.inputs()), ["x 2x3x5", "scale 5"]);
        assert_eq!(rms.cost().unwrap().flops.0, 6 * (4 * 5 + 3));
    }

    #[test]
    fn channels_are_normalised_over_the_batch() {
        let training = parse("norm.batch f64 2x3x5x7");
        assert_eq!(
            names(training.outputs()),
            ["out 2x3x5x7", "mean 3", "variance 3"]
        );
        let cost = training.cost().unwrap();
        assert_eq!(cost.flops.0, 3 * (7 * 70 + 3));
        assert_eq!(cost.bytes_read.0, 8 * (210 + 3 + 3));
        assert_eq!(cost.bytes_written.0, 8 * (210 + 3 + 3));
        let learned = parse("norm.batch f64 2x3x5x7 infer");
        assert_eq!(
            names(learned.inputs()),
            ["x 2x3x5x7", "scale 3", "shift 3", "mean 3", "variance 3"]
        );
        assert_eq!(names(learned.outputs()), ["out 2x3x5x7"]);
        assert_eq!(learned.cost().unwrap().flops.0, 3 * (4 * 70 + 3));
        assert_eq!(learned.to_string(), "norm.batch f64 2x3x5x7 infer");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let error = |text: &str| text.parse::<Workload>().unwrap_err().to_string();
        assert_eq!(
            error("norm.layer f32 2x3 infer"),
            "norm: `infer` belongs to norm.batch: layer has no learned statistics"
        );
        assert_eq!(
            error("norm.batch f32 8"),
            "norm: batch needs at least two dimensions, samples and channels, got 8"
        );
        assert_eq!(
            error("norm.rms f32 scalar"),
            "norm: a scalar has no axis to work along"
        );
        assert_eq!(
            error("norm.rms i32 8"),
            "norm is not defined on i32: it takes real floating point"
        );
        assert_eq!(
            error("norm f32 8"),
            "norm needs a variant, such as `norm.layer`; known: layer, rms, batch"
        );
    }

    #[test]
    fn the_scale_must_fit() {
        let shape = |text: &str| text.parse::<Shape>().unwrap();
        let infer = |kind, x: &str, scale: &str| Norm::infer(kind, &shape(x), &shape(scale), false);
        assert!(infer(NormKind::Batch, "2x3x5", "3").is_ok());
        let error = infer(NormKind::Layer, "2x3x5", "3").unwrap_err();
        assert_eq!(
            error.to_string(),
            "norm: the scale for 2x3x5 has shape 5, not 3"
        );
        let empty = infer(NormKind::Layer, "3x0", "0").unwrap();
        assert_eq!(empty.work(DType::F32), Some(Work::default()));
    }
}
