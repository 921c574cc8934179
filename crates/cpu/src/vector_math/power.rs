//! Powers of single-precision numbers, in `f64`.

use super::{Real, exp, log};

/// `x` to the power of `y`, both exact in `f32`; right to the last digit of `f32` or the one before.
#[inline(always)]
pub(super) fn power_of_singles<const FUSED: bool>(x: f64, y: f64) -> f64 {
    let size = x.abs();
    let power = exp::<f64, FUSED>(y * log::<f64, FUSED>(size));
    // Even and odd numbers: those whose half is an integer, and the other integers.
    let whole = is_integer(y);
    let odd = whole & !is_integer(0.5 * y);
    let signed = if x.is_sign_negative() & odd {
        -power
    } else {
        power
    };
    // A negative number has no root, unless it is zero or infinite.
    let rootless = (x < 0.0) & !whole & (size < f64::INFINITY);
    let result = if rootless { f64::NAN } else { signed };
    // As the C library has it: no factors at all are 1, and so is any number of ones.
    let ones = (x == 1.0) | ((size == 1.0) & (y.abs() == f64::INFINITY));
    if (y == 0.0) | ones { 1.0 } else { result }
}

/// Large numbers are integers: rounding leaves them alone.
#[inline(always)]
fn is_integer(y: f64) -> bool {
    let size = y.abs();
    (size >= f64::ROUNDER) | (size + f64::ROUNDER - f64::ROUNDER == size)
}
