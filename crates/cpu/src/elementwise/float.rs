//! Steps over real numbers.

use kernelwise_types::op::{ActivationKind, Binary, Unary};

use super::loops::{Function, Function2, Other, Out, Stepped, Then, functions, map, map2, map3};
use crate::isa::Level;
use crate::vector_math::{self, Real, TRIGONOMETRIC_RANGE, larger, smaller};

/// `f32` and `f64`: numbers with a root.
trait Float: Real + Stepped {
    fn root(self) -> Self;
    fn three() -> Self;
    fn six() -> Self;
    fn sine(self) -> Self;
    fn cosine(self) -> Self;
}

macro_rules! float {
    ($float:ty) => {
        impl Float for $float {
            #[inline(always)]
            fn root(self) -> Self {
                self.sqrt()
            }
            #[inline(always)]
            fn three() -> Self {
                3.0
            }
            #[inline(always)]
            fn six() -> Self {
                6.0
            }
            fn sine(self) -> Self {
                self.sin()
            }
            fn cosine(self) -> Self {
                self.cos()
            }
        }

        impl Stepped for $float {
            const ZERO: Self = 0.0;

            fn unary(level: Level, function: Unary, x: &[Self], out: Out<'_, Self>) -> bool {
                unary(level, function, x, out)
            }

            fn binary(
                level: Level,
                function: Binary,
                x: &[Self],
                other: Other<'_, Self>,
                out: Out<'_, Self>,
            ) -> bool {
                binary(level, function, x, other, out)
            }

            fn activation(
                level: Level,
                function: ActivationKind,
                x: &[Self],
                out: Out<'_, Self>,
            ) -> bool {
                activation(level, function, x, out)
            }

            fn then_activation(
                level: Level,
                steps: (Binary, ActivationKind),
                x: &[Self],
                other: Other<'_, Self>,
                out: Out<'_, Self>,
            ) -> bool {
                match steps {
                    (Binary::Add, ActivationKind::Relu) => {
                        map2(level, Then(Add, Relu), x, other, out)
                    }
                    (Binary::Add, ActivationKind::Gelu) => {
                        map2(level, Then(Add, Gelu), x, other, out)
                    }
                    _ => false,
                }
            }

            fn then_binary(
                level: Level,
                steps: (Binary, Binary),
                x: &[Self],
                others: (Other<'_, Self>, Other<'_, Self>),
                out: Out<'_, Self>,
            ) -> bool {
                match steps {
                    (Binary::Mul, Binary::Add) => map3(level, (Mul, Add), x, others, out),
                    _ => false,
                }
            }
        }
    };
}

float!(f32);
float!(f64);

functions! { Float:
    light Neg(x) = -x;
    light Abs(x) = x.magnitude();
    light Sqrt(x) = x.root();
    light Recip(x) = T::ONE / x;
    heavy Exp(x) = vector_math::exp::<T, FUSED>(x);
    heavy Log(x) = vector_math::log::<T, FUSED>(x);
    heavy Sin(x) = vector_math::sin::<T, FUSED>(x);
    heavy Cos(x) = vector_math::cos::<T, FUSED>(x);
    light Square(x) = x * x;
    light Add(x, y) = x + y;
    light Sub(x, y) = x - y;
    light Mul(x, y) = x * y;
    light Div(x, y) = x / y;
    light Min(x, y) = smaller(x, y);
    light Max(x, y) = larger(x, y);
    heavy Pow(x, y) = x.power::<FUSED>(y);
    light Relu(x) = larger(x, <T as Real>::ZERO);
    light LeakyRelu(x, slope) = if x > <T as Real>::ZERO { x } else { slope * x };
    heavy Sigmoid(x) = vector_math::sigmoid::<T, FUSED>(x);
    heavy Tanh(x) = vector_math::tanh::<T, FUSED>(x);
    heavy Silu(x) = vector_math::silu::<T, FUSED>(x);
    heavy Gelu(x) = vector_math::gelu::<T, FUSED>(x);
    heavy GeluTanh(x) = vector_math::gelu_tanh::<T, FUSED>(x);
    heavy Softplus(x) = vector_math::softplus::<T, FUSED>(x);
    heavy Elu(x) = {
        let below = vector_math::exp_m1::<T, FUSED>(x);
        if x > <T as Real>::ZERO { x } else { below }
    };
    light HardSwish(x) = x * smaller(larger(x + T::three(), <T as Real>::ZERO), T::six()) / T::six();
}

fn unary<T: Float>(level: Level, function: Unary, x: &[T], out: Out<'_, T>) -> bool {
    match function {
        Unary::Neg => map(level, Neg, x, out),
        Unary::Abs => map(level, Abs, x, out),
        Unary::Sqrt => map(level, Sqrt, x, out),
        Unary::Recip => map(level, Recip, x, out),
        Unary::Exp => map(level, Exp, x, out),
        Unary::Log => map(level, Log, x, out),
        Unary::Square => map(level, Square, x, out),
        Unary::Sin if near(x) => map(level, Sin, x, out),
        Unary::Cos if near(x) => map(level, Cos, x, out),
        Unary::Sin => one_by_one(T::sine, x, out),
        Unary::Cos => one_by_one(T::cosine, x, out),
    }
}

/// Whether vector code can take the angles of a whole block.
fn near<T: Float>(x: &[T]) -> bool {
    let far = |far: bool, x: &T| far | (x.widen().abs() > TRIGONOMETRIC_RANGE);
    !x.iter().fold(false, far)
}

fn one_by_one<T: Copy>(function: impl Fn(T) -> T, x: &[T], out: Out<'_, T>) -> bool {
    let Out::Near(out) = out else {
        return false;
    };
    for (out, x) in out.iter_mut().zip(x) {
        *out = function(*x);
    }
    true
}

fn binary<T: Float>(
    level: Level,
    function: Binary,
    x: &[T],
    other: Other<'_, T>,
    out: Out<'_, T>,
) -> bool {
    match function {
        Binary::Add => map2(level, Add, x, other, out),
        Binary::Sub => map2(level, Sub, x, other, out),
        Binary::Mul => map2(level, Mul, x, other, out),
        Binary::Div => map2(level, Div, x, other, out),
        Binary::Min => map2(level, Min, x, other, out),
        Binary::Max => map2(level, Max, x, other, out),
        Binary::Pow => map2(level, Pow, x, other, out),
    }
}

fn activation<T: Float>(level: Level, function: ActivationKind, x: &[T], out: Out<'_, T>) -> bool {
    match function {
        ActivationKind::Relu => map(level, Relu, x, out),
        ActivationKind::LeakyRelu(slope) => {
            let slope = Other::Same(T::narrow(slope.get().into()));
            map2(level, LeakyRelu, x, slope, out)
        }
        ActivationKind::Sigmoid => map(level, Sigmoid, x, out),
        ActivationKind::Tanh => map(level, Tanh, x, out),
        ActivationKind::Silu => map(level, Silu, x, out),
        ActivationKind::Gelu => map(level, Gelu, x, out),
        ActivationKind::GeluTanh => map(level, GeluTanh, x, out),
        ActivationKind::Softplus => map(level, Softplus, x, out),
        ActivationKind::Elu => map(level, Elu, x, out),
        ActivationKind::HardSwish => map(level, HardSwish, x, out),
    }
}
