//! Sine and cosine.
//!
//! Computed in `f64` for both types: single precision then needs no care at all. Large arguments need
//! more digits of π than the products here have room for; callers look at a whole block first and leave
//! one that reaches beyond [`TRIGONOMETRIC_RANGE`] to the standard library.

use super::{Real, polynomial};

/// The largest magnitude that [`sin`] and [`cos`] take: so many quarters of a turn times the first part of
/// π/2 is still exact.
pub(crate) const TRIGONOMETRIC_RANGE: f64 = 1_048_576.0;

/// π/2 in three parts, of 33 digits, 33 digits, and the rest.
const QUARTER: [f64; 3] = [
    1.570_796_326_734_125_6,
    6.077_100_506_303_966e-11,
    2.022_266_248_795_950_6e-21,
];

/// (sin r − r) / r³ for |r| ≤ π/4, ascending in r².
const SIN: [f64; 6] = [
    -0.166_666_666_666_666_66,
    0.008_333_333_333_330_827,
    -0.000_198_412_698_365_757_1,
    2.755_731_600_817_155e-6,
    -2.505_111_227_257_324_3e-8,
    1.591_672_619_388_933_6e-10,
];

/// (cos r − 1 + r²/2) / r⁴ for |r| ≤ π/4, ascending in r².
const COS: [f64; 6] = [
    0.041_666_666_666_666_664,
    -0.001_388_888_888_888_732_2,
    2.480_158_729_865_129_2e-5,
    -2.755_731_721_268_659e-7,
    2.087_613_402_409_014_5e-9,
    -1.138_175_465_366_293_7e-11,
];

/// The sine of `x` and a number of quarter turns, for |x| up to [`TRIGONOMETRIC_RANGE`].
#[inline(always)]
fn turned<const FUSED: bool>(x: f64, quarters: u64) -> f64 {
    let rounded = x.times_plus::<FUSED>(std::f64::consts::FRAC_2_PI, f64::ROUNDER);
    let n = rounded - f64::ROUNDER;
    let mut r = x;
    for part in QUARTER {
        r = (-n).times_plus::<FUSED>(part, r);
    }
    let z = r * r;
    let sin = (z * r).times_plus::<FUSED>(polynomial::<f64, FUSED>(z, &SIN), r);
    // Minus zero is its own sine; the sum would lose the sign.
    let sin = if r == 0.0 { r } else { sin };
    let cos = (z * z).times_plus::<FUSED>(polynomial::<f64, FUSED>(z, &COS), 1.0 - 0.5 * z);
    let quadrant = rounded.to_bits().wrapping_add(quarters);
    let value = if quadrant & 1 == 0 { sin } else { cos };
    // The second bit becomes the sign.
    f64::from_bits(value.to_bits() ^ (quadrant & 2) << 62)
}

/// The sine within 1.5 units in the last place, for |x| up to [`TRIGONOMETRIC_RANGE`].
#[inline(always)]
pub(crate) fn sin<T: Real, const FUSED: bool>(x: T) -> T {
    T::narrow(turned::<FUSED>(x.widen(), 0))
}

/// The cosine within 1.5 units in the last place, for |x| up to [`TRIGONOMETRIC_RANGE`].
#[inline(always)]
pub(crate) fn cos<T: Real, const FUSED: bool>(x: T) -> T {
    T::narrow(turned::<FUSED>(x.widen(), 1))
}
