//! Steps over real numbers.

use kernelwise_types::op::{ActivationKind, Binary, Step, Unary};

use super::light::{Light, Visitor, is_light};
use super::loops::{
    Function, Function2, Other, Out, Stepped, Then, With, functions, map, map2, map3, put,
};
use crate::isa::Level;
use crate::vector_math::{self, Real, TRIGONOMETRIC_RANGE, larger, smaller};

/// `f32` and `f64`: numbers with a root.
pub(super) trait Float: Real + Stepped {
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
                match function {
                    Unary::Sin if !near(x) => one_by_one(Self::sine, x, out),
                    Unary::Cos if !near(x) => one_by_one(Self::cosine, x, out),
                    _ => unary(function, Map::of_one(level, x, out)),
                }
            }

            fn binary(
                level: Level,
                function: Binary,
                x: &[Self],
                other: Other<'_, Self>,
                out: Out<'_, Self>,
            ) -> bool {
                let map = Map {
                    level,
                    x,
                    other,
                    out,
                };
                binary(function, map)
            }

            fn activation(
                level: Level,
                function: ActivationKind,
                x: &[Self],
                out: Out<'_, Self>,
            ) -> bool {
                activation(function, Map::of_one(level, x, out))
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

            fn chain(
                level: Level,
                steps: &[Step],
                x: &[Self],
                others: &[Other<'_, Self>],
                out: Out<'_, Self>,
            ) -> bool {
                // Through the caches blocks do as well.
                matches!(out, Out::Past(..))
                    && is_light::<Self>(steps)
                    && put(level, Light::new(steps, x, others), out)
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

/// The function of a step.
#[inline(always)]
pub(super) fn unary<T: Float, V: Visitor<T>>(function: Unary, visitor: V) -> bool {
    match function {
        Unary::Neg => visitor.one(Neg),
        Unary::Abs => visitor.one(Abs),
        Unary::Sqrt => visitor.one(Sqrt),
        Unary::Recip => visitor.one(Recip),
        Unary::Exp => visitor.one(Exp),
        Unary::Log => visitor.one(Log),
        Unary::Square => visitor.one(Square),
        Unary::Sin => visitor.one(Sin),
        Unary::Cos => visitor.one(Cos),
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

/// As [`unary`].
#[inline(always)]
pub(super) fn binary<T: Float, V: Visitor<T>>(function: Binary, visitor: V) -> bool {
    match function {
        Binary::Add => visitor.two(Add),
        Binary::Sub => visitor.two(Sub),
        Binary::Mul => visitor.two(Mul),
        Binary::Div => visitor.two(Div),
        Binary::Min => visitor.two(Min),
        Binary::Max => visitor.two(Max),
        Binary::Pow => visitor.two(Pow),
    }
}

/// As [`unary`].
#[inline(always)]
pub(super) fn activation<T: Float, V: Visitor<T>>(function: ActivationKind, visitor: V) -> bool {
    match function {
        ActivationKind::Relu => visitor.one(Relu),
        ActivationKind::LeakyRelu(slope) => {
            visitor.one(With(LeakyRelu, T::narrow(slope.get().into())))
        }
        ActivationKind::Sigmoid => visitor.one(Sigmoid),
        ActivationKind::Tanh => visitor.one(Tanh),
        ActivationKind::Silu => visitor.one(Silu),
        ActivationKind::Gelu => visitor.one(Gelu),
        ActivationKind::GeluTanh => visitor.one(GeluTanh),
        ActivationKind::Softplus => visitor.one(Softplus),
        ActivationKind::Elu => visitor.one(Elu),
        ActivationKind::HardSwish => visitor.one(HardSwish),
    }
}

/// A loop over one step, from an operand to a result.
struct Map<'a, T> {
    level: Level,
    x: &'a [T],
    /// Of a function of two elements.
    other: Other<'a, T>,
    out: Out<'a, T>,
}

impl<'a, T: Stepped> Map<'a, T> {
    fn of_one(level: Level, x: &'a [T], out: Out<'a, T>) -> Self {
        let other = Other::Same(T::ZERO);
        Self {
            level,
            x,
            other,
            out,
        }
    }
}

impl<T: Stepped> Visitor<T> for Map<'_, T> {
    #[inline(always)]
    fn one<F: Function<T>>(self, function: F) -> bool {
        map(self.level, function, self.x, self.out)
    }

    #[inline(always)]
    fn two<F: Function2<T>>(self, function: F) -> bool {
        map2(self.level, function, self.x, self.other, self.out)
    }
}
