//! Functions of integers, in `i128`; results wrap to the element type after each step.

use kernelwise_types::op::{ActivationKind, Binary, Unary};
use kernelwise_types::{DType, DTypeClass};

use super::Stepped;

impl Stepped for i128 {
    fn unary(self, function: Unary) -> Option<Self> {
        match function {
            Unary::Neg => Some(-self),
            Unary::Abs => Some(self.abs()),
            Unary::Square => Some(self.wrapping_mul(self)),
            Unary::Sqrt | Unary::Recip | Unary::Exp | Unary::Log | Unary::Sin | Unary::Cos => None,
        }
    }

    fn binary(self, function: Binary, other: Self) -> Option<Self> {
        match function {
            Binary::Add => Some(self + other),
            Binary::Sub => Some(self - other),
            Binary::Mul => Some(self.wrapping_mul(other)),
            // Nothing traps: a quotient by zero is zero, the lowest by −1 wraps to itself in `fit`.
            Binary::Div => Some(self.checked_div(other).unwrap_or(0)),
            Binary::Min => Some(self.min(other)),
            Binary::Max => Some(self.max(other)),
            Binary::Pow => None,
        }
    }

    fn activation(self, function: ActivationKind) -> Option<Self> {
        (function == ActivationKind::Relu).then_some(self.max(0))
    }

    fn fit(self, dtype: DType) -> Self {
        let unused = 128 - 8 * dtype.size() as u32;
        match dtype.class() {
            DTypeClass::Signed => self << unused >> unused,
            _ => ((self as u128) << unused >> unused) as i128,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{owned, run};

    #[test]
    fn steps_wrap_and_never_trap() {
        let (a, b) = ([100i8, -128, 7, -7], [100i8, -1, 0, 2]);
        #[rustfmt::skip]
        let cases = [
            ("add", [-56i8, 127, 7, -5]),
            ("sub", [0, -127, 7, -9]),
            ("mul", [16, -128, 0, -14]),
            ("div", [1, -128, 0, -3]),
            ("min", [100, -128, 0, -7]),
            ("max", [100, -1, 7, 2]),
        ];
        for (step, expected) in cases {
            let out = run(&format!("elementwise.{step} i8 4"), &[owned(a), owned(b)]);
            assert_eq!(out, [owned(expected)], "{step}");
        }
        let unary = |step: &str| run(&format!("elementwise.{step} i8 4"), &[owned(a)]);
        assert_eq!(unary("neg"), [owned([-100i8, -128, -7, 7])]);
        assert_eq!(unary("abs"), [owned([100i8, -128, 7, 7])]);
        assert_eq!(unary("square"), [owned([16i8, 0, 49, 49])]);
    }

    #[test]
    fn the_largest_integers_wrap_too() {
        let out = run(
            "elementwise.mul+add u64 1",
            &[owned([u64::MAX]), owned([u64::MAX]), owned([u64::MAX])],
        );
        assert_eq!(out, [owned([0u64])]);
        let out = run(
            "elementwise.div i64 2",
            &[owned([i64::MIN, 5]), owned([-1i64, 0])],
        );
        assert_eq!(out, [owned([i64::MIN, 0])]);
        let out = run("elementwise.square u64 1", &[owned([u64::MAX])]);
        assert_eq!(out, [owned([1u64])]);
    }

    #[test]
    fn relu_is_the_one_activation_of_integers() {
        let out = run("activation.relu i16 3", &[owned([-5i16, 0, 5])]);
        assert_eq!(out, [owned([0i16, 0, 5])]);
        assert_eq!(1i128.activation(ActivationKind::Tanh), None);
        assert_eq!(1i128.unary(Unary::Exp), None);
        assert_eq!(1i128.binary(Binary::Pow, 1), None);
    }
}
