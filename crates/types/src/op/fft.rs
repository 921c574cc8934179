//! Fourier transforms of rows along the last axis.

use std::fmt;

use super::axis::{last_axis, resized, rows};
use super::variant::{variants, write_word};
use super::{Operand, Parse, Problem, Work, WorkloadError, legal, require};
use crate::dtype::DType;
use crate::shape::Shape;
use crate::text::Fields;

const NAME: &str = "fft";

variants! {
    /// Direction, and whether one side is real.
    FftKind {
        /// Complex to complex.
        Forward = "",
        /// Complex to complex and back, divided by n.
        Inverse = "inverse",
        /// Real to half of the complex spectrum.
        Real = "real",
        /// Half of the complex spectrum to real, divided by n.
        InverseReal = "inverse_real",
    }
}

impl FftKind {
    const fn one_side_is_real(self) -> bool {
        matches!(self, Self::Real | Self::InverseReal)
    }
}

/// A Fourier transform of rows.
///
/// Text: `fft complex64 64x1024`, `fft.inverse complex64 64x1024`; `fft.real f32 64x1024` takes n real numbers to n/2 + 1
/// complex ones, for the others mirror them, and `fft.inverse_real f32 64x1024` takes those back. The shape is that of
/// the longer side, so that the length is known when coming back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fft {
    /// Direction, and whether one side is real.
    pub kind: FftKind,
    /// The shape of the complex or, if there is one, the real side.
    pub shape: Shape,
}

impl Fft {
    /// Reads the problem off the stored shape of the input. Not for
    /// [`InverseReal`](FftKind::InverseReal), whose input does not tell the length of its output.
    pub fn infer(kind: FftKind, x: &Shape) -> Result<Self, WorkloadError> {
        legal(kind != FftKind::InverseReal, NAME, || {
            "two lengths have a spectrum of this size: use infer_inverse_real".to_owned()
        })?;
        last_axis(NAME, x)?;
        Ok(Self { kind, shape: *x })
    }

    /// Reads the problem off the stored shape of the half spectrum and the length of the real rows.
    pub fn infer_inverse_real(spectrum: &Shape, length: usize) -> Result<Self, WorkloadError> {
        let axis = last_axis(NAME, spectrum)?;
        let fft = Self {
            kind: FftKind::InverseReal,
            shape: resized(NAME, spectrum, axis, length)?,
        };
        let expected = fft.spectrum()?;
        legal(expected == *spectrum, NAME, || {
            format!("the spectrum of real rows of {length} has shape {expected}, not {spectrum}")
        })?;
        Ok(fft)
    }

    /// The shape of the complex side: n/2 + 1 in place of n where the other is real.
    fn spectrum(&self) -> Result<Shape, WorkloadError> {
        let axis = last_axis(NAME, &self.shape)?;
        let (_, n) = rows(NAME, &self.shape, axis)?;
        let half = if n == 0 { 0 } else { n / 2 + 1 };
        resized(NAME, &self.shape, axis, half)
    }

    /// The real and the complex side.
    fn sides(&self, dtype: DType) -> Result<(Operand, Operand), WorkloadError> {
        let complex = match dtype {
            DType::F64 => DType::Complex128,
            _ => DType::Complex64,
        };
        Ok((
            Operand::of("signal", dtype, self.shape),
            Operand::of("spectrum", complex, self.spectrum()?),
        ))
    }
}

impl Problem for Fft {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, dtype: DType) -> Result<(), WorkloadError> {
        if self.kind.one_side_is_real() {
            let real = matches!(dtype, DType::F32 | DType::F64);
            require(real, NAME, dtype, "f32 or f64 where one side is real")?;
        } else {
            require(
                dtype.is_complex(),
                NAME,
                dtype,
                "complex numbers, or f32 and f64 as fft.real",
            )?;
        }
        last_axis(NAME, &self.shape).map(drop)
    }

    fn inputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        Ok(vec![match self.kind {
            FftKind::Forward => Operand::of("signal", dtype, self.shape),
            FftKind::Inverse => Operand::of("spectrum", dtype, self.shape),
            FftKind::Real => self.sides(dtype)?.0,
            FftKind::InverseReal => self.sides(dtype)?.1,
        }])
    }

    fn outputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        Ok(vec![match self.kind {
            FftKind::Forward => Operand::of("spectrum", dtype, self.shape),
            FftKind::Inverse => Operand::of("signal", dtype, self.shape),
            FftKind::Real => self.sides(dtype)?.1,
            FftKind::InverseReal => self.sides(dtype)?.0,
        }])
    }

    /// Nominal, as benchFFT counts: rows times 5·n·log₂ n, half of it where one side is real, rounded.
    /// Which operations a plan really makes depends on its radices.
    fn work(&self, _dtype: DType) -> Option<Work> {
        let axis = last_axis(NAME, &self.shape).ok()?;
        let (rows, n) = rows(NAME, &self.shape, axis).ok()?;
        let factor = if self.kind.one_side_is_real() {
            2.5
        } else {
            5.0
        };
        let length = n.max(1) as f64;
        let row = (factor * length * length.log2()).round();
        // The first number that does not fit is the limit itself, rounded up.
        (row < u64::MAX as f64).then(|| Work::flops(row as u64).times(&[rows]))?
    }

    fn write_variant(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_word(f, self.kind.name())
    }

    fn write_fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}", self.shape)
    }
}

impl Parse for Fft {
    fn parse(variant: &str, fields: &mut Fields<'_>) -> Result<Self, WorkloadError> {
        Ok(Self {
            kind: FftKind::parse(NAME, variant)?,
            shape: fields.shape()?,
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
    fn the_nominal_count_is_that_of_the_literature() {
        let flops = |text: &str| parse(text).cost().unwrap().flops.0;
        assert_eq!(flops("fft complex64 64x1024"), 64 * 5 * 1024 * 10);
        assert_eq!(flops("fft.inverse complex128 8"), 5 * 8 * 3);
        assert_eq!(flops("fft.real f32 3x8"), 3 * 60);
        // 2.5 · 6 · log₂ 6 = 38.77
        assert_eq!(flops("fft.inverse_real f64 6"), 39);
        assert_eq!(flops("fft complex64 7x1"), 0);
        let huge = Fft::infer(FftKind::Forward, &Shape::new(&[1 << 58]).unwrap());
        let huge = huge.unwrap();
        assert_eq!(huge.work(DType::Complex64), None);
    }

    #[test]
    fn real_rows_have_half_a_spectrum() {
        let even = parse("fft.real f32 3x8");
        assert_eq!(even.outputs()[0].shape.dims(), [3, 5]);
        assert_eq!(even.outputs()[0].dtype, DType::Complex64);
        let cost = even.cost().unwrap();
        assert_eq!((cost.bytes_read.0, cost.bytes_written.0), (96, 120));
        let odd = parse("fft.inverse_real f64 3x7");
        assert_eq!(odd.inputs()[0].shape.dims(), [3, 4]);
        assert_eq!(odd.inputs()[0].dtype, DType::Complex128);
        assert_eq!(odd.outputs()[0].shape.dims(), [3, 7]);
        assert_eq!(odd.to_string(), "fft.inverse_real f64 3x7");
        assert_eq!(parse("fft complex64 4").to_string(), "fft complex64 4");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let error = |text: &str| text.parse::<Workload>().unwrap_err().to_string();
        assert_eq!(
            error("fft f32 8"),
            "fft is not defined on f32: it takes complex numbers, or f32 and f64 as fft.real"
        );
        assert_eq!(
            error("fft.real f16 8"),
            "fft is not defined on f16: it takes f32 or f64 where one side is real"
        );
        assert_eq!(
            error("fft complex64 scalar"),
            "fft: a scalar has no axis to work along"
        );
        assert_eq!(
            error("fft.inverted complex64 8"),
            "fft has no variant `inverted`; did you mean `inverse`?"
        );
    }

    #[test]
    fn the_way_back_needs_the_length() {
        let spectrum: Shape = "3x5".parse().unwrap();
        let error = |result: Result<Fft, WorkloadError>| result.unwrap_err().to_string();
        assert_eq!(
            error(Fft::infer(FftKind::InverseReal, &spectrum)),
            "fft: two lengths have a spectrum of this size: use infer_inverse_real"
        );
        for length in [8, 9] {
            let fft = Fft::infer_inverse_real(&spectrum, length).unwrap();
            assert_eq!(fft.shape.dims(), [3, length]);
        }
        assert_eq!(
            error(Fft::infer_inverse_real(&spectrum, 10)),
            "fft: the spectrum of real rows of 10 has shape 3x6, not 3x5"
        );
        assert!(Fft::infer(FftKind::Real, &Shape::SCALAR).is_err());
        let empty = Fft::infer(FftKind::Real, &"3x0".parse().unwrap()).unwrap();
        assert_eq!(empty.work(DType::F32), Some(Work::default()));
        assert!(empty.outputs(DType::F32).unwrap()[0].shape.is_empty());
    }
}
