//! Sums that lose nothing worth speaking of.

use num_complex::Complex;

use crate::wide::Wide;

/// A sum in progress.
pub(crate) trait Total<W>: Default {
    /// Adds a number.
    fn add(&mut self, value: W);

    /// Adds a product, rounded no more than the sum itself.
    fn add_product(&mut self, a: W, b: W);

    /// The sum so far.
    fn value(&self) -> W;
}

/// The sum of a sequence.
pub(crate) fn sum<W: Wide>(values: impl IntoIterator<Item = W>) -> W {
    let mut total = W::Total::default();
    for value in values {
        total.add(value);
    }
    total.value()
}

/// A sum with what its roundings lost, by Neumaier's method; products by their exact rounding error. Sums
/// of terms with the same sign are right to the last bit or next to it, however many there are.
#[derive(Default)]
pub(crate) struct Compensated {
    sum: f64,
    lost: f64,
}

impl Total<f64> for Compensated {
    fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        self.lost += if self.sum.abs() >= value.abs() {
            (self.sum - sum) + value
        } else {
            (value - sum) + self.sum
        };
        self.sum = sum;
    }

    fn add_product(&mut self, a: f64, b: f64) {
        let product = a * b;
        self.add(product);
        if product.is_finite() {
            self.lost += a.mul_add(b, -product);
        }
    }

    fn value(&self) -> f64 {
        // What infinities lose is not a number.
        if self.sum.is_finite() {
            self.sum + self.lost
        } else {
            self.sum
        }
    }
}

/// A sum modulo 2¹²⁸: its low bits are those of a sum that wraps at any smaller size.
#[derive(Default)]
pub(crate) struct Wrapping(i128);

impl Total<i128> for Wrapping {
    fn add(&mut self, value: i128) {
        self.0 = self.0.wrapping_add(value);
    }

    fn add_product(&mut self, a: i128, b: i128) {
        self.add(a.wrapping_mul(b));
    }

    fn value(&self) -> i128 {
        self.0
    }
}

/// A sum of complex numbers: one for each part.
#[derive(Default)]
pub(crate) struct CompensatedParts {
    re: Compensated,
    im: Compensated,
}

impl Total<Complex<f64>> for CompensatedParts {
    fn add(&mut self, value: Complex<f64>) {
        self.re.add(value.re);
        self.im.add(value.im);
    }

    fn add_product(&mut self, a: Complex<f64>, b: Complex<f64>) {
        self.re.add_product(a.re, b.re);
        self.re.add_product(-a.im, b.im);
        self.im.add_product(a.re, b.im);
        self.im.add_product(a.im, b.re);
    }

    fn value(&self) -> Complex<f64> {
        Complex::new(self.re.value(), self.im.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_keep_what_rounding_loses() {
        assert_eq!(sum([1e100, 1.0, -1e100]), 1.0);
        assert_eq!(sum([1.0, 1e100, 1.0, -1e100]), 2.0);
        assert_eq!(sum([0.1; 10]), 1.0);
        // (1 + 2⁻³⁰)² − (1 + 2⁻²⁹) is 2⁻⁶⁰, which a rounded product does not show.
        let a = 1.0 + (-30f64).exp2();
        let mut total = Compensated::default();
        total.add_product(a, a);
        total.add(-(1.0 + (-29f64).exp2()));
        assert_eq!(total.value(), (-60f64).exp2());
    }

    #[test]
    fn infinities_and_nan_go_through_sums() {
        assert_eq!(sum([1.0, f64::INFINITY, 2.0]), f64::INFINITY);
        assert!(sum([f64::INFINITY, f64::NEG_INFINITY]).is_nan());
        assert!(sum([f64::NAN, 1.0]).is_nan());
        let mut total = Compensated::default();
        total.add_product(1e200, -1e200);
        assert_eq!(total.value(), f64::NEG_INFINITY);
    }
}
