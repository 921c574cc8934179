//! Every function against the standard library's in `f64`, over the whole range of the type and densely
//! where the function is not flat, with and without fused multiply-add.

use super::*;

/// Distance from the right result, in units of the last place of a type with so many digits.
fn units(got: f64, want: f64, digits: i32, least_exponent: i32) -> f64 {
    if got == want || (got.is_nan() && want.is_nan()) {
        return 0.0;
    }
    if !got.is_finite() || !want.is_finite() {
        return f64::INFINITY;
    }
    let exponent = (want.abs().log2().floor() as i32).max(least_exponent);
    (got - want).abs() / f64::from(exponent - digits + 1).exp2()
}

/// Numbers of every size and both signs, dense between −100 and 100, and the special ones.
fn singles() -> Vec<f32> {
    let everywhere = (0..=u32::MAX).step_by(300_007).map(f32::from_bits);
    let dense = (-20_000..20_000).map(|i| i as f32 * 0.005_01);
    let small = (-2_000..2_000).map(|i| i as f32 * 7.3e-4);
    everywhere
        .chain(dense)
        .chain(small)
        .chain(special())
        .collect()
}

fn special() -> impl Iterator<Item = f32> {
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        2.0,
        88.72,
        88.73,
        -87.4,
        -103.0,
        -104.5,
        f32::MIN_POSITIVE,
        f32::from_bits(1),
        f32::MAX,
        f32::MIN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ]
    .into_iter()
}

/// The same for `f64`, denser than `f32` could be.
fn doubles() -> Vec<f64> {
    let everywhere = (0..=u64::MAX)
        .step_by(0x0007_FFFF_1234_5671)
        .map(f64::from_bits);
    let dense = (-20_000..20_000).map(|i| f64::from(i) * 0.037_512_345_678_9);
    let small = (-4_000..4_000).map(|i| f64::from(i) * 7.312_345_678_9e-4);
    let special =
        special()
            .map(f64::from)
            .chain([709.78, 709.79, -745.1, -745.2, f64::MAX, 5e-324]);
    everywhere
        .chain(dense)
        .chain(small)
        .chain(special)
        .collect()
}

#[track_caller]
fn within_single<F, U>(
    limit: f64,
    fused: F,
    separate: U,
    right: impl Fn(f64) -> f64,
    on: impl Fn(f64) -> bool,
) where
    F: Fn(f32) -> f32,
    U: Fn(f32) -> f32,
{
    for x in singles().into_iter().filter(|x| on(f64::from(*x))) {
        let want = right(f64::from(x));
        // Beyond the largest number by more than rounding is infinite; below, either is right.
        let want = if f64::from(want as f32).is_finite() {
            want
        } else {
            f64::from(want as f32)
        };
        for got in [fused(x), separate(x)] {
            let error = units(f64::from(got), want, 24, -126);
            assert!(
                error <= limit,
                "f({x:e}) is {got:e}, not {want:e}: {error} units"
            );
            let signs =
                got.is_nan() || got != 0.0 || got.is_sign_negative() == want.is_sign_negative();
            assert!(signs, "f({x:e}) is {got:e}, not {want:e}");
        }
    }
}

/// `slack` is what the standard library's own result may be off at an argument.
#[track_caller]
fn within_double<F, U>(
    limit: f64,
    fused: F,
    separate: U,
    right: impl Fn(f64) -> f64,
    slack: impl Fn(f64) -> f64,
) where
    F: Fn(f64) -> f64,
    U: Fn(f64) -> f64,
{
    for x in doubles() {
        let want = right(x);
        for got in [fused(x), separate(x)] {
            let error = units(got, want, 53, -1022);
            assert!(
                error <= limit + slack(x).max(0.0),
                "f({x:e}) is {got:e}, not {want:e}: {error} units"
            );
        }
    }
}

/// A function, how far off it may be in units of the last place, and the right one.
macro_rules! accurate {
    ($($test:ident: $function:ident within $limit:literal of $right:expr, slack $slack:expr;)*) => {
        $(
            #[test]
            fn $test() {
                within_single($limit, $function::<f32, true>, $function::<f32, false>, $right, |_| true);
                within_double($limit, $function::<f64, true>, $function::<f64, false>, $right, $slack);
            }
        )*
    };
}

/// `x` times the logistic function, also where the exponential of −t overflows.
fn logistic(x: f64, t: f64) -> f64 {
    if t < -700.0 {
        x * (0.5 * t).exp() * (0.5 * t).exp()
    } else {
        x / (1.0 + (-t).exp())
    }
}

const EXACT: fn(f64) -> f64 = |_| 1.0;

accurate! {
    exponentials: exp within 1.5 of f64::exp, slack EXACT;
    exponentials_less_one: exp_m1 within 2.0 of f64::exp_m1, slack EXACT;
    logarithms: log within 1.5 of f64::ln, slack EXACT;
    hyperbolic_tangents: tanh within 3.0 of f64::tanh, slack EXACT;
    logistic_functions: sigmoid within 3.0 of |x: f64| logistic(1.0, x), slack EXACT;
    silus: silu within 4.0 of |x: f64| logistic(x, x), slack EXACT;
    softpluses: softplus within 3.0 of |x: f64| larger(x, 0.0) + (-x.abs()).exp().ln_1p(), slack EXACT;
    gelus: gelu within 5.0 of |x: f64| 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        slack |x: f64| 1.0 + 2.0 * x * x;
    approximate_gelus: gelu_tanh within 4.0 of |x: f64| {
        let alpha = std::f64::consts::FRAC_2_PI.sqrt();
        logistic(x, 2.0 * (x * (alpha + 0.044715 * alpha * (x * x))))
    }, slack |x: f64| 2.0 + 4.0 * x.abs().powi(3);
}

#[test]
fn sines_and_cosines() {
    let near = |x: f64| x.abs() <= TRIGONOMETRIC_RANGE;
    within_single(0.6, sin::<f32, true>, sin::<f32, false>, f64::sin, near);
    within_single(0.6, cos::<f32, true>, cos::<f32, false>, f64::cos, near);
    let quarters = (-700_000..700_000)
        .step_by(971)
        .map(|n| f64::from(n) * std::f64::consts::FRAC_PI_2);
    for x in doubles().into_iter().filter(|x| near(*x)).chain(quarters) {
        for (got, want) in [
            (sin::<f64, true>(x), x.sin()),
            (sin::<f64, false>(x), x.sin()),
            (cos::<f64, true>(x), x.cos()),
            (cos::<f64, false>(x), x.cos()),
        ] {
            let error = units(got, want, 53, -1022);
            assert!(
                error <= 2.5,
                "at {x:e}: {got:e}, not {want:e}: {error} units"
            );
        }
    }
    assert!(sin::<f32, true>(f32::INFINITY).is_nan() && cos::<f64, false>(f64::NAN).is_nan());
}

#[test]
fn powers_of_single_precision() {
    let exponents = special().chain([3.0, -3.0, 0.25, -7.5, 16_777_216.0, 1e-3, 33.0]);
    let exponents: Vec<f32> = exponents.collect();
    for x in singles().into_iter().step_by(7).chain(special()) {
        for &y in &exponents {
            let want = f64::from(x).powf(f64::from(y)) as f32;
            for got in [x.power::<true>(y), x.power::<false>(y)] {
                let error = units(got.into(), want.into(), 24, -126);
                let signs = want != 0.0 || got.is_sign_negative() == want.is_sign_negative();
                assert!(
                    error <= 1.0 && signs,
                    "{x:e}^{y:e} is {got:e}, not {want:e}"
                );
            }
        }
    }
    assert_eq!(10f64.power::<true>(-3.0), 1e-3);
}

#[test]
fn what_is_not_a_number_wins_and_the_first_of_equals_stays() {
    for (a, b) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
        assert!(larger(a, b).is_nan() && smaller(a, b).is_nan());
    }
    assert_eq!((larger(1.0, 2.0), smaller(1.0, 2.0)), (2.0, 1.0));
    assert!(larger(-0.0f64, 0.0).is_sign_negative());
    assert!(smaller(0.0f64, -0.0).is_sign_positive());
}

/// Compiled at every level, inside a loop, the functions are the same within their limits; where
/// multiply-add is one instruction they have the same bits.
#[test]
fn every_level_computes_the_same() {
    struct Exponentials<'a>(&'a [f32], &'a mut [f32]);
    impl MathBody for Exponentials<'_> {
        type Output = bool;
        #[inline(always)]
        fn run<const FUSED: bool>(self) -> bool {
            for (x, y) in self.0.iter().zip(self.1) {
                *y = exp::<f32, FUSED>(*x);
            }
            FUSED
        }
    }
    let x = singles();
    let mut y = vec![0.0; x.len()];
    for level in Level::all() {
        let fused = run(level, Exponentials(&x, &mut y));
        for (x, y) in x.iter().zip(&y) {
            let want = if fused {
                exp::<f32, true>(*x)
            } else {
                exp::<f32, false>(*x)
            };
            assert!(
                *y == want || (y.is_nan() && want.is_nan()),
                "{} {x:e}",
                level.name()
            );
        }
    }
}
