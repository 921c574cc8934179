//! Functions of real numbers, in `f64`.
//!
//! Each is the function its name means, computed so that it is right over the whole range: where the
//! form that `op/activation.rs` counts cancels far from zero, an equal one that does not stands here. Infinities and
//! NaN come out as in the counted form.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

use kernelwise_types::op::{ActivationKind, Binary, Unary};

use super::Stepped;
use crate::wide::{larger, smaller};

impl Stepped for f64 {
    fn unary(self, function: Unary) -> Option<Self> {
        Some(match function {
            Unary::Neg => -self,
            Unary::Abs => self.abs(),
            Unary::Sqrt => self.sqrt(),
            Unary::Recip => 1.0 / self,
            Unary::Exp => self.exp(),
            Unary::Log => self.ln(),
            Unary::Sin => self.sin(),
            Unary::Cos => self.cos(),
            Unary::Square => self * self,
        })
    }

    fn binary(self, function: Binary, other: Self) -> Option<Self> {
        Some(match function {
            Binary::Add => self + other,
            Binary::Sub => self - other,
            Binary::Mul => self * other,
            Binary::Div => self / other,
            Binary::Min => smaller(self, other),
            Binary::Max => larger(self, other),
            Binary::Pow => self.powf(other),
        })
    }

    fn activation(self, function: ActivationKind) -> Option<Self> {
        let x = self;
        Some(match function {
            ActivationKind::Relu => larger(x, 0.0),
            ActivationKind::LeakyRelu(slope) => {
                if x > 0.0 {
                    x
                } else {
                    f64::from(slope.get()) * x
                }
            }
            ActivationKind::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            ActivationKind::Tanh => x.tanh(),
            ActivationKind::Silu => x / (1.0 + (-x).exp()),
            // 1 + erf(t) = erfc(−t)
            ActivationKind::Gelu => 0.5 * x * libm::erfc(-x * FRAC_1_SQRT_2),
            ActivationKind::GeluTanh => {
                let alpha = FRAC_2_PI.sqrt();
                let t = x * (alpha + 0.044715 * alpha * (x * x));
                // ½·(1 + tanh(t)) = 1 / (1 + exp(−2t))
                x / (1.0 + (-2.0 * t).exp())
            }
            ActivationKind::Softplus => larger(x, 0.0) + (-x.abs()).exp().ln_1p(),
            ActivationKind::Elu => {
                if x > 0.0 {
                    x
                } else {
                    x.exp_m1()
                }
            }
            ActivationKind::HardSwish => x * smaller(larger(x + 3.0, 0.0), 6.0) / 6.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{Owned, owned, run, values};

    fn apply(head: &str, x: &[f64]) -> Vec<f64> {
        let n = x.len();
        let out = run(&format!("{head} f64 {n}"), &[owned(x.to_vec())]);
        values(&out[0])
    }

    #[track_caller]
    fn near(actual: &[f64], expected: &[f64]) {
        assert_eq!(actual.len(), expected.len());
        for (a, e) in actual.iter().zip(expected) {
            let close = (a - e).abs() <= 4e-16 * e.abs() || a == e || (a.is_nan() && e.is_nan());
            assert!(close, "{actual:?} is not {expected:?}");
        }
    }

    #[test]
    fn unary_steps() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        #[rustfmt::skip]
        let cases: [(&str, &[f64], &[f64]); 9] = [
            ("neg", &[2.0, -inf, nan], &[-2.0, inf, nan]),
            ("abs", &[-2.5, 2.5, -inf], &[2.5, 2.5, inf]),
            ("sqrt", &[9.0, 0.0, -1.0, inf], &[3.0, 0.0, nan, inf]),
            ("recip", &[4.0, 0.0, inf], &[0.25, inf, 0.0]),
            ("exp", &[0.0, 1.0, -inf, 1000.0], &[1.0, std::f64::consts::E, 0.0, inf]),
            ("log", &[1.0, std::f64::consts::E, 0.0, -1.0], &[0.0, 1.0, -inf, nan]),
            ("sin", &[0.0, 0.5, inf], &[0.0, 0.479425538604203, nan]),
            ("cos", &[0.0, 0.5, inf], &[1.0, 0.8775825618903728, nan]),
            ("square", &[-3.0, 0.5, -inf], &[9.0, 0.25, inf]),
        ];
        assert_eq!(cases.len(), Unary::ALL.len());
        for (step, x, expected) in cases {
            near(&apply(&format!("elementwise.{step}"), x), expected);
        }
    }

    #[test]
    fn binary_steps() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        let (a, b) = ([6.0, -2.0, inf, nan, 1.0], [4.0, 0.0, inf, 1.0, nan]);
        #[rustfmt::skip]
        let cases = [
            ("add", [10.0, -2.0, inf, nan, nan]),
            ("sub", [2.0, -2.0, nan, nan, nan]),
            ("mul", [24.0, 0.0, inf, nan, nan]),
            ("div", [1.5, -inf, nan, nan, nan]),
            ("min", [4.0, -2.0, inf, nan, nan]),
            ("max", [6.0, 0.0, inf, nan, nan]),
            // As the C library has it: 1 to any power is 1, even to none.
            ("pow", [1296.0, 1.0, inf, nan, 1.0]),
        ];
        assert_eq!(cases.len(), Binary::ALL.len());
        for (step, expected) in cases {
            let out = run(&format!("elementwise.{step} f64 5"), &[owned(a), owned(b)]);
            near(&values(&out[0]), &expected);
        }
    }

    #[test]
    fn activation_functions() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        let x = [-1.0, 0.0, 2.0, nan, inf];
        // Numbers by high-precision arithmetic, rounded to f64.
        #[rustfmt::skip]
        let cases = [
            ("relu", [0.0, 0.0, 2.0, nan, inf]),
            ("leaky_relu", [-f64::from(0.01f32), 0.0, 2.0, nan, inf]),
            ("sigmoid", [0.2689414213699951, 0.5, 0.8807970779778824, nan, 1.0]),
            ("tanh", [-0.7615941559557649, 0.0, 0.9640275800758169, nan, 1.0]),
            ("silu", [-0.2689414213699951, 0.0, 1.7615941559557649, nan, inf]),
            ("gelu", [-0.15865525393145705, 0.0, 1.9544997361036416, nan, inf]),
            ("gelu_tanh", [-0.1588080093917233, 0.0, 1.954597694087775, nan, inf]),
            ("softplus", [0.3132616875182228, std::f64::consts::LN_2, 2.1269280110429725, nan, inf]),
            ("elu", [-0.6321205588285577, 0.0, 2.0, nan, inf]),
            ("hard_swish", [-1.0 / 3.0, 0.0, 5.0 / 3.0, nan, inf]),
        ];
        assert_eq!(cases.len(), ActivationKind::ALL.len());
        for (name, expected) in cases {
            near(&apply(&format!("activation.{name}"), &x), &expected);
            // The same as a step of a chain.
            near(
                &apply(&format!("elementwise.neg+neg+{name}"), &x),
                &expected,
            );
        }
        let out = run(
            "activation.leaky_relu f32 2 slope0.25",
            &[owned([-4f32, 4.0])],
        );
        assert_eq!(out, [owned([-1f32, 4.0])]);
    }

    #[test]
    fn tails_keep_their_digits() {
        // −30·Φ(−30) is 1.47e-196, where 1 + erf is zero; the other two have tails of their own.
        let gelu = apply("activation.gelu", &[-30.0])[0];
        assert!(
            (gelu / -1.47201417814446e-196 - 1.0).abs() < 1e-9,
            "{gelu:e}"
        );
        let tanh = apply("activation.gelu_tanh", &[-6.0])[0];
        assert!(tanh < 0.0 && tanh > -1e-9, "{tanh:e}");
        assert_eq!(
            apply("activation.softplus", &[800.0, -50.0]),
            [800.0, (-50f64).exp()]
        );
        assert_eq!(apply("activation.elu", &[-1e-20]), [-1e-20]);
    }

    #[test]
    fn minus_infinity_follows_the_counted_form() {
        let at = |name: &str| apply(&format!("activation.{name}"), &[f64::NEG_INFINITY])[0];
        for name in ["silu", "gelu", "gelu_tanh", "hard_swish"] {
            assert!(at(name).is_nan(), "{name} is an infinity times zero");
        }
        assert_eq!(
            (at("relu"), at("sigmoid"), at("softplus"), at("elu")),
            (0.0, 0.0, 0.0, -1.0)
        );
    }

    #[test]
    fn other_floats_are_rounded_from_the_wide_result() {
        let expected: Vec<f32> = [0.3f32, -2.5]
            .iter()
            .map(|&x| f64::from(x).exp() as f32)
            .collect();
        assert_eq!(
            run("elementwise.exp f32 2", &[owned([0.3f32, -2.5])]),
            [Owned::F32(expected)]
        );
        let h = half::bf16::from_f64;
        assert_eq!(
            run("elementwise.recip bf16 1", &[owned([h(3.0)])]),
            [owned([h(0.333984375)])]
        );
    }
}
