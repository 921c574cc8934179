//! Functions of real numbers that the compiler turns into vector code.
//!
//! Nothing here branches: ranges are clamped, cases are selected, and every operation exists in vector form
//! at every level, so a plain loop over these functions becomes a vector loop wherever it is inlined. What
//! differs between levels is whether a product and a sum can be one instruction. Where they cannot, asking
//! for it would call a library function for each element, so all functions take `FUSED` and [`run`] chooses it.
//!
//! NaN comes out of NaN; infinities, overflow, and results below the smallest normal number are those of
//! the mathematical function.

use crate::isa::{Body, Level};

mod constants;
mod power;
mod trigonometry;

#[cfg(test)]
mod tests;

pub(crate) use trigonometry::{TRIGONOMETRIC_RANGE, cos, sin};

/// Code that is compiled once for each level and knows whether multiply-add is one instruction there.
pub(crate) trait MathBody {
    /// What comes out.
    type Output;

    /// The code; `#[inline(always)]`, as for [`Body`].
    fn run<const FUSED: bool>(self) -> Self::Output;
}

/// Runs the body compiled for a level.
#[inline(always)]
pub(crate) fn run<B: MathBody>(level: Level, body: B) -> B::Output {
    level.run(Compiled(body))
}

struct Compiled<B>(B);

impl<B: MathBody> Body for Compiled<B> {
    type Output = B::Output;

    /// 64-bit ARM has multiply-add in its base set; of others nothing is known.
    #[inline(always)]
    fn run(self) -> B::Output {
        self.0.run::<{ cfg!(target_arch = "aarch64") }>()
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn run_avx2(self) -> B::Output {
        self.0.run::<true>()
    }
}

/// `f32` or `f64`: the constants and the few operations on bits that the functions below are made of.
pub(crate) trait Real:
    Copy
    + PartialOrd
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::Neg<Output = Self>
    + 'static
{
    /// Zero.
    const ZERO: Self;
    /// One half.
    const HALF: Self;
    /// One.
    const ONE: Self;
    /// Two.
    const TWO: Self;
    /// What is larger than every number.
    const INFINITY: Self;
    /// What is not a number.
    const NAN: Self;
    /// log₂ e.
    const LOG2_E: Self;
    /// ln 2, cut so short that its product with any exponent is exact.
    const LN2_HIGH: Self;
    /// What that leaves of ln 2.
    const LN2_LOW: Self;
    /// Added to a small number, it leaves no room for a fraction: the sum ends in the nearest integer.
    const ROUNDER: Self;
    /// Below the first `exp` is zero, above the second infinite.
    const EXP_RANGE: (Self, Self);
    /// Below this `exp` is zero even when multiplied by its argument.
    const VANISHING: Self;
    /// (eʳ − 1 − r) / r² for |r| ≤ ½ ln 2, ascending in r.
    const EXP: &'static [Self];
    /// (ln((1+s)/(1−s)) − 2s) / s³ for (1+s)/(1−s) between √½ and √2, ascending in s².
    const LOG: &'static [Self];
    /// Beyond this many deviations the tail of the normal distribution is zero.
    const TAIL_END: Self;
    /// Where [`TAIL`](Self::TAIL) has its middle.
    const TAIL_MIDDLE: Self;
    /// (a+k) · e^(a²/2) · Φ(−a) for 0 ≤ a ≤ [`TAIL_END`](Self::TAIL_END), ascending in (a−k)/(a+k), where k is
    /// [`TAIL_MIDDLE`](Self::TAIL_MIDDLE).
    const TAIL: &'static [Self];

    /// `self * factor + summand`, rounded once if `FUSED`.
    fn times_plus<const FUSED: bool>(self, factor: Self, summand: Self) -> Self;

    /// As `f64`.
    fn widen(self) -> f64;

    /// Rounded from `f64`.
    fn narrow(wide: f64) -> Self;

    /// Whether it is not a number.
    fn not_a_number(self) -> bool;

    /// Without the sign.
    fn magnitude(self) -> Self;

    /// With the sign of another.
    fn with_sign_of(self, other: Self) -> Self;

    /// The leading half of the digits: its square is exact.
    fn leading(self) -> Self;

    /// Two factors whose product is 2ⁿ, for a sum of n and [`ROUNDER`](Self::ROUNDER); each of them is a
    /// normal number even where 2ⁿ is none.
    fn power_of_two(rounded: Self) -> (Self, Self);

    /// m and e with `self` = m · 2ᵉ and m between √½ and √2, for a positive finite number.
    fn fraction_and_exponent(self) -> (Self, Self);

    /// 2·√(2/π)·(x + 0.044715·x³) as a sum of two numbers, brought into ±1000: `exp` of the rounded
    /// argument would have lost a digit or two far from zero.
    fn gelu_argument(self) -> (Self, Self);

    /// To the power of `exponent`, within 1 unit in the last place. Not vector code for `f64`, where the
    /// logarithm would need more digits than there are: the standard library does each by itself.
    fn power<const FUSED: bool>(self, exponent: Self) -> Self;
}

/// The larger of two; what is not a number wins over everything.
#[inline(always)]
pub(crate) fn larger<T: Real>(a: T, b: T) -> T {
    if (b > a) | b.not_a_number() { b } else { a }
}

/// The smaller of two; what is not a number wins over everything.
#[inline(always)]
pub(crate) fn smaller<T: Real>(a: T, b: T) -> T {
    if (b < a) | b.not_a_number() { b } else { a }
}

/// A polynomial, its coefficients ascending.
#[inline(always)]
fn polynomial<T: Real, const FUSED: bool>(x: T, coefficients: &[T]) -> T {
    let mut value = coefficients[coefficients.len() - 1];
    for &coefficient in coefficients[..coefficients.len() - 1].iter().rev() {
        value = value.times_plus::<FUSED>(x, coefficient);
    }
    value
}

/// Into a range; NaN stays.
#[inline(always)]
fn clamp<T: Real>(x: T, (low, high): (T, T)) -> T {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

/// Two factors of e to a negative sum whose second part is small against the first. The last may be multiplied later, so
/// that nothing in between is below the normal numbers unless the result is.
#[inline(always)]
fn factors_of_exp<T: Real, const FUSED: bool>(high: T, low: T) -> (T, T) {
    let vanishes = high < T::VANISHING;
    let high = if vanishes { T::VANISHING } else { high };
    let (rounded, r) = reduce::<T, FUSED>(high, high + low);
    let r = r + low;
    let p = (r * r).times_plus::<FUSED>(polynomial::<T, FUSED>(r, T::EXP), r) + T::ONE;
    let (first, second) = T::power_of_two(rounded);
    (if vanishes { T::ZERO } else { p * first }, second)
}

/// eˣ, within 1.5 units in the last place.
#[inline(always)]
pub(crate) fn exp<T: Real, const FUSED: bool>(x: T) -> T {
    let x = clamp(x, T::EXP_RANGE);
    let (rounded, r) = reduce::<T, FUSED>(x, x);
    let p = (r * r).times_plus::<FUSED>(polynomial::<T, FUSED>(r, T::EXP), r) + T::ONE;
    let (first, second) = T::power_of_two(rounded);
    p * first * second
}

/// The n next to `near` / ln 2, with [`Real::ROUNDER`] added, and what n · ln 2 leaves of `x`.
#[inline(always)]
fn reduce<T: Real, const FUSED: bool>(x: T, near: T) -> (T, T) {
    let rounded = near.times_plus::<FUSED>(T::LOG2_E, T::ROUNDER);
    let n = rounded - T::ROUNDER;
    let r = (-n).times_plus::<FUSED>(T::LN2_HIGH, x);
    (rounded, (-n).times_plus::<FUSED>(T::LN2_LOW, r))
}

/// eˣ − 1, within 2 units in the last place.
#[inline(always)]
pub(crate) fn exp_m1<T: Real, const FUSED: bool>(x: T) -> T {
    let y = clamp(x, T::EXP_RANGE);
    let (rounded, r) = reduce::<T, FUSED>(y, y);
    let q = (r * r).times_plus::<FUSED>(polynomial::<T, FUSED>(r, T::EXP), r);
    let (first, second) = T::power_of_two(rounded);
    // 2ⁿ·(1 + q) − 1 with the 1 brought inside, where it meets a number of its size.
    let result = q.times_plus::<FUSED>(first, first - T::ONE / second) * second;
    // Minus zero is its own result; the sum above would lose the sign.
    if x == T::ZERO { x } else { result }
}

/// The natural logarithm, within 1.5 units in the last place.
#[inline(always)]
pub(crate) fn log<T: Real, const FUSED: bool>(x: T) -> T {
    let (m, e) = x.fraction_and_exponent();
    let f = m - T::ONE;
    let s = f / (T::TWO + f);
    let z = s * s;
    let half_square = T::HALF * f * f;
    let rest = z * polynomial::<T, FUSED>(z, T::LOG);
    let low = s.times_plus::<FUSED>(half_square + rest, e * T::LN2_LOW);
    let result = e.times_plus::<FUSED>(T::LN2_HIGH, f - (half_square - low));
    let result = if x < T::INFINITY { result } else { x };
    let result = if x == T::ZERO { -T::INFINITY } else { result };
    if x < T::ZERO { T::NAN } else { result }
}

/// ln(1 + x) for 0 ≤ x ≤ 1, within 2 units in the last place.
#[inline(always)]
fn log_1p<T: Real, const FUSED: bool>(x: T) -> T {
    let sum = T::ONE + x;
    // What the sum lost, to first order.
    log::<T, FUSED>(sum) + (x - (sum - T::ONE)) / sum
}

/// The hyperbolic tangent, within 3 units in the last place.
#[inline(always)]
pub(crate) fn tanh<T: Real, const FUSED: bool>(x: T) -> T {
    let t = exp_m1::<T, FUSED>(-T::TWO * x.magnitude());
    (t / (T::TWO + t)).with_sign_of(x)
}

/// `x` times the logistic function of a sum whose second part is small against the first.
#[inline(always)]
fn logistic_times<T: Real, const FUSED: bool>(x: T, (high, low): (T, T)) -> T {
    // The exponential of the negative argument is the one that cannot overflow.
    let negative = high < T::ZERO;
    let (high, low) = if negative { (high, low) } else { (-high, -low) };
    let (z, power) = factors_of_exp::<T, FUSED>(high, low);
    let above = if negative { x * z * power } else { x };
    above / (T::ONE + z * power)
}

/// The logistic function, within 3 units in the last place.
#[inline(always)]
pub(crate) fn sigmoid<T: Real, const FUSED: bool>(x: T) -> T {
    logistic_times::<T, FUSED>(T::ONE, (x, T::ZERO))
}

/// x times its logistic function, within 4 units in the last place.
#[inline(always)]
pub(crate) fn silu<T: Real, const FUSED: bool>(x: T) -> T {
    logistic_times::<T, FUSED>(x, (x, T::ZERO))
}

/// The approximation of [`gelu`] by tanh, within 4 units in the last place.
#[inline(always)]
pub(crate) fn gelu_tanh<T: Real, const FUSED: bool>(x: T) -> T {
    logistic_times::<T, FUSED>(x, x.gelu_argument())
}

/// x times the normal distribution function, within 5 units in the last place.
#[inline(always)]
pub(crate) fn gelu<T: Real, const FUSED: bool>(x: T) -> T {
    let a = smaller(x.magnitude(), T::TAIL_END);
    let scale = T::ONE / (a + T::TAIL_MIDDLE);
    let shape = polynomial::<T, FUSED>((a - T::TAIL_MIDDLE) * scale, T::TAIL) * scale;
    // −a²/2 without rounding, or the tail would lose digits as the square grows.
    let leading = a.leading();
    let high = -T::HALF * leading * leading;
    let low = -T::HALF * (a - leading) * (a + leading);
    let (z, power) = factors_of_exp::<T, FUSED>(high, low);
    let tail = shape * z;
    if x < T::ZERO {
        x * tail * power
    } else {
        x * (T::ONE - tail * power)
    }
}

/// ln(1 + eˣ), within 3 units in the last place.
#[inline(always)]
pub(crate) fn softplus<T: Real, const FUSED: bool>(x: T) -> T {
    larger(x, T::ZERO) + log_1p::<T, FUSED>(exp::<T, FUSED>(-x.magnitude()))
}
