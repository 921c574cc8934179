//! Steps over integers, which wrap.

use kernelwise_types::op::{ActivationKind, Binary, Step, Unary};

use super::loops::{Function, Function2, Other, Out, Stepped, Then, functions, map, map2, map3};
use crate::isa::Level;

/// Integers of any width, with or without a sign.
pub(super) trait Integer: Copy + Ord + 'static {
    /// Whether there are negative ones.
    const SIGNED: bool;
    /// Zero.
    const NOTHING: Self;
    /// The sum.
    fn plus(self, other: Self) -> Self;
    /// The difference.
    fn minus(self, other: Self) -> Self;
    /// The product.
    fn times(self, other: Self) -> Self;
    /// The quotient towards zero; by zero, zero.
    fn over(self, other: Self) -> Self;
}

macro_rules! integer {
    ($($integer:ty),*) => {
        $(
            impl Integer for $integer {
                const SIGNED: bool = <$integer>::MIN != 0;
                const NOTHING: Self = 0;
                #[inline(always)]
                fn plus(self, other: Self) -> Self {
                    self.wrapping_add(other)
                }
                #[inline(always)]
                fn minus(self, other: Self) -> Self {
                    self.wrapping_sub(other)
                }
                #[inline(always)]
                fn times(self, other: Self) -> Self {
                    self.wrapping_mul(other)
                }
                #[inline(always)]
                fn over(self, other: Self) -> Self {
                    if other == 0 { 0 } else { self.wrapping_div(other) }
                }
            }

            impl Stepped for $integer {
                const ZERO: Self = 0;

                fn unary(level: Level, function: Unary, x: &[Self], out: Out<'_, Self>) -> bool {
                    match function {
                        Unary::Neg if Self::SIGNED => map(level, Neg, x, out),
                        Unary::Abs if Self::SIGNED => map(level, Abs, x, out),
                        Unary::Square => map(level, Square, x, out),
                        _ => false,
                    }
                }

                fn binary(
                    level: Level,
                    function: Binary,
                    x: &[Self],
                    other: Other<'_, Self>,
                    out: Out<'_, Self>,
                ) -> bool {
                    match function {
                        Binary::Add => map2(level, Add, x, other, out),
                        Binary::Sub => map2(level, Sub, x, other, out),
                        Binary::Mul => map2(level, Mul, x, other, out),
                        Binary::Div => map2(level, Div, x, other, out),
                        Binary::Min => map2(level, Min, x, other, out),
                        Binary::Max => map2(level, Max, x, other, out),
                        Binary::Pow => false,
                    }
                }

                fn activation(
                    level: Level,
                    function: ActivationKind,
                    x: &[Self],
                    out: Out<'_, Self>,
                ) -> bool {
                    match function {
                        ActivationKind::Relu if Self::SIGNED => map(level, Relu, x, out),
                        _ => false,
                    }
                }

                fn then_activation(
                    level: Level,
                    steps: (Binary, ActivationKind),
                    x: &[Self],
                    other: Other<'_, Self>,
                    out: Out<'_, Self>,
                ) -> bool {
                    match steps {
                        (Binary::Add, ActivationKind::Relu) if Self::SIGNED => {
                            map2(level, Then(Add, Relu), x, other, out)
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
                    _level: Level,
                    _steps: &[Step],
                    _x: &[Self],
                    _others: &[Other<'_, Self>],
                    _out: Out<'_, Self>,
                ) -> bool {
                    false
                }
            }
        )*
    };
}

integer!(i8, i16, i32, i64, u8, u16, u32, u64);

// Light as they are, no kernel of integers streams: loops for it would be compiled for nothing.
functions! { Integer:
    heavy Neg(x) = T::NOTHING.minus(x);
    heavy Abs(x) = if x < T::NOTHING { T::NOTHING.minus(x) } else { x };
    heavy Square(x) = x.times(x);
    heavy Add(x, y) = x.plus(y);
    heavy Sub(x, y) = x.minus(y);
    heavy Mul(x, y) = x.times(y);
    heavy Div(x, y) = x.over(y);
    heavy Min(x, y) = x.min(y);
    heavy Max(x, y) = x.max(y);
    heavy Relu(x) = x.max(T::NOTHING);
}
