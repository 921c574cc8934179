//! Functions of complex numbers, by their real parts in `f64`.
//!
//! Products and quotients follow the formulas that `op/step.rs` counts. What comes out of parts that are not
//! finite is an accident of the formula.

use kernelwise_types::op::{ActivationKind, Binary, Unary};
use num_complex::Complex;

use super::Stepped;

impl Stepped for Complex<f64> {
    fn unary(self, function: Unary) -> Option<Self> {
        let Complex { re: x, im: y } = self;
        match function {
            Unary::Neg => Some(-self),
            Unary::Sqrt => Some(root(self)),
            Unary::Recip => Some(self.conj() / self.norm_sqr()),
            Unary::Exp => Some(Complex::new(y.cos(), y.sin()) * x.exp()),
            Unary::Log => Some(Complex::new(x.hypot(y).ln(), y.atan2(x))),
            Unary::Sin => Some(Complex::new(x.sin() * y.cosh(), x.cos() * y.sinh())),
            Unary::Cos => Some(Complex::new(x.cos() * y.cosh(), -x.sin() * y.sinh())),
            Unary::Square => Some(self * self),
            Unary::Abs => None,
        }
    }

    fn binary(self, function: Binary, other: Self) -> Option<Self> {
        match function {
            Binary::Add => Some(self + other),
            Binary::Sub => Some(self - other),
            Binary::Mul => Some(self * other),
            Binary::Div => Some(self * other.conj() / other.norm_sqr()),
            Binary::Min | Binary::Max | Binary::Pow => None,
        }
    }

    fn activation(self, _function: ActivationKind) -> Option<Self> {
        None
    }
}

/// √((|z| ± x)/2) with the sign of y. The part whose formula would cancel follows from 2·re·im = y.
fn root(z: Complex<f64>) -> Complex<f64> {
    let Complex { re: x, im: y } = z;
    let large = (0.5 * (x.hypot(y) + x.abs())).sqrt();
    if large == 0.0 {
        return Complex::new(0.0, y);
    }
    let small = 0.5 * y.abs() / large;
    if x >= 0.0 {
        Complex::new(large, small.copysign(y))
    } else {
        Complex::new(small, large.copysign(y))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{Owned, owned, run};

    const Z: Complex<f64> = Complex::new(3.0, -4.0);

    fn apply(step: &str, operands: &[Complex<f64>]) -> Complex<f64> {
        let operands: Vec<Owned> = operands.iter().map(|&z| owned([z])).collect();
        let out = run(&format!("elementwise.{step} complex128 1"), &operands);
        match &out[0] {
            Owned::Complex128(z) => z[0],
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn near(actual: Complex<f64>, re: f64, im: f64) {
        let distance = (actual - Complex::new(re, im)).norm_sqr().sqrt();
        assert!(
            distance <= 1e-14 * re.hypot(im),
            "{actual} is not {re} + {im}i"
        );
    }

    #[test]
    fn steps_that_come_out_even() {
        let other = Complex::new(1.0, 2.0);
        near(apply("neg", &[Z]), -3.0, 4.0);
        near(apply("square", &[Z]), -7.0, -24.0);
        near(apply("recip", &[Z]), 0.12, 0.16);
        near(apply("sqrt", &[Z]), 2.0, -1.0);
        near(apply("add", &[Z, other]), 4.0, -2.0);
        near(apply("sub", &[Z, other]), 2.0, -6.0);
        near(apply("mul", &[Z, other]), 11.0, 2.0);
        near(apply("div", &[Z, other]), -1.0, -2.0);
    }

    #[test]
    fn transcendental_steps() {
        let z = Complex::new(0.5, -1.25);
        near(apply("exp", &[z]), 0.5198786860084937, -1.5646111274988195);
        near(apply("log", &[z]), 0.2973535538733464, -1.1902899496825317);
        near(apply("sin", &[z]), 0.9053586344209573, -1.4058162504314684);
        near(apply("cos", &[z]), 1.6572478640539148, 0.7680009178735728);
    }

    #[test]
    fn roots_are_right_on_and_near_the_axes() {
        near(apply("sqrt", &[Complex::new(-4.0, 0.0)]), 0.0, 2.0);
        near(apply("sqrt", &[Complex::new(-4.0, -0.0)]), 0.0, -2.0);
        near(apply("sqrt", &[Complex::new(0.0, 2.0)]), 1.0, 1.0);
        assert_eq!(
            apply("sqrt", &[Complex::new(0.0, 0.0)]),
            Complex::new(0.0, 0.0)
        );
        // √(1 + 2iε) is 1 + iε, where |z| − x is zero.
        let root = apply("sqrt", &[Complex::new(1.0, 2e-20)]);
        assert_eq!(root, Complex::new(1.0, 1e-20));
    }

    #[test]
    fn orders_and_absolute_values_are_for_real_numbers() {
        assert_eq!(Z.unary(Unary::Abs), None);
        for function in [Binary::Min, Binary::Max, Binary::Pow] {
            assert_eq!(Z.binary(function, Z), None);
        }
        assert_eq!(Z.activation(ActivationKind::Relu), None);
    }
}
