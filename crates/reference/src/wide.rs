//! Wide numbers: what elements are turned into before anything is computed, and back at the end.
//!
//! | elements | wide | on the way back |
//! |---|---|---|
//! | `f16`, `bf16`, `f32`, `f64` | `f64` | rounded to nearest, ties to even, once |
//! | integers | `i128` | the low bits are kept: sums and products wrap |
//! | `complex64`, `complex128` | two `f64` | as for floats, each part |
//!
//! An operation is written once for each wide type it is defined on, not once for each element type; which
//! element type a result takes is decided by the tensor it is stored in.

use half::{bf16, f16};
use kernelwise_types::{DType, DTypeClass, Element, TensorView, TensorViewMut, ViewError};
use num_complex::Complex;

use crate::elements::{load, store};
use crate::total::{Compensated, CompensatedParts, Total, Wrapping};

/// A number with room for exact or nearly exact results.
pub(crate) trait Wide: Copy {
    /// A sum in progress.
    type Total: Total<Self>;

    /// The neutral element of products.
    const ONE: Self;

    /// All elements of a view in index order, made wide. Element types of another kind are refused.
    fn load(view: &TensorView<'_>) -> Result<Vec<Self>, ViewError>;

    /// Writes numbers at their positions, made narrow as the view's element type asks.
    fn store(
        view: &mut TensorViewMut<'_>,
        values: impl IntoIterator<Item = (usize, Self)>,
    ) -> Result<(), ViewError>;

    /// The product of two.
    fn times(self, other: Self) -> Self;

    /// This divided by a count.
    fn over(self, count: usize) -> Self;
}

/// Wide numbers with an order.
pub(crate) trait Real: Wide + PartialOrd {
    /// The smallest and the largest number of the element type, infinities included.
    fn bounds(dtype: DType) -> (Self, Self);
}

/// Whether it is not a number: the only value that has no order to itself.
fn unordered<W: Real>(value: W) -> bool {
    value.partial_cmp(&value).is_none()
}

/// The larger of two; what is not a number wins over everything.
pub(crate) fn larger<W: Real>(a: W, b: W) -> W {
    if goes_before(a, b, |a, b| a > b) {
        b
    } else {
        a
    }
}

/// The smaller of two; what is not a number wins over everything.
pub(crate) fn smaller<W: Real>(a: W, b: W) -> W {
    if goes_before(a, b, |a, b| a < b) {
        b
    } else {
        a
    }
}

/// Whether `new` takes the place of `best`: by `beats`, or as the first that is not a number.
pub(crate) fn goes_before<W: Real>(best: W, new: W, beats: impl Fn(W, W) -> bool) -> bool {
    !unordered(best) && (unordered(new) || beats(new, best))
}

fn refused(actual: DType, expected: DType) -> ViewError {
    ViewError::DType { actual, expected }
}

fn widened<T: Element, W>(
    view: &TensorView<'_>,
    widen: impl Fn(T) -> W,
) -> Result<Vec<W>, ViewError> {
    Ok(load::<T>(view)?.into_iter().map(widen).collect())
}

fn narrowed<T: Element, W>(
    view: &mut TensorViewMut<'_>,
    values: impl IntoIterator<Item = (usize, W)>,
    narrow: impl Fn(W) -> T,
) -> Result<(), ViewError> {
    let values = values.into_iter();
    store(
        view,
        values.map(|(position, wide)| (position, narrow(wide))),
    )
}

impl Wide for f64 {
    type Total = Compensated;

    const ONE: Self = 1.0;

    fn load(view: &TensorView<'_>) -> Result<Vec<Self>, ViewError> {
        match view.dtype() {
            DType::F16 => widened(view, f16::to_f64),
            DType::Bf16 => widened(view, bf16::to_f64),
            DType::F32 => widened(view, |x: f32| f64::from(x)),
            DType::F64 => load(view),
            other => Err(refused(other, DType::F64)),
        }
    }

    fn store(
        view: &mut TensorViewMut<'_>,
        values: impl IntoIterator<Item = (usize, Self)>,
    ) -> Result<(), ViewError> {
        match view.dtype() {
            DType::F16 => narrowed(view, values, |x| f16::from_f32(rounded_to_odd(x))),
            DType::Bf16 => narrowed(view, values, |x| bf16::from_f32(rounded_to_odd(x))),
            DType::F32 => narrowed(view, values, |x| x as f32),
            DType::F64 => store(view, values),
            other => Err(refused(other, DType::F64)),
        }
    }

    fn times(self, other: Self) -> Self {
        self * other
    }

    fn over(self, count: usize) -> Self {
        self / count as f64
    }
}

impl Real for f64 {
    fn bounds(_: DType) -> (Self, Self) {
        (f64::NEG_INFINITY, f64::INFINITY)
    }
}

/// An `f32` from which a shorter float can be rounded as if from `x` itself. Rounding to nearest twice may
/// err where the first rounding lands half-way; a number that is not exact and whose last bit is odd
/// lies half-way between no two shorter ones.
fn rounded_to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let back = f64::from(nearest);
    if back == x || !nearest.is_finite() || nearest.to_bits() & 1 == 1 {
        return nearest;
    }
    // Of the two neighbours of `x`, one is odd: the other than the nearest.
    let away_from_zero = x.abs() > back.abs();
    let bits = nearest.to_bits();
    f32::from_bits(if away_from_zero { bits + 1 } else { bits - 1 })
}

impl Wide for i128 {
    type Total = Wrapping;

    const ONE: Self = 1;

    fn load(view: &TensorView<'_>) -> Result<Vec<Self>, ViewError> {
        match view.dtype() {
            DType::I8 => widened(view, |x: i8| x.into()),
            DType::I16 => widened(view, |x: i16| x.into()),
            DType::I32 => widened(view, |x: i32| x.into()),
            DType::I64 => widened(view, |x: i64| x.into()),
            DType::U8 => widened(view, |x: u8| x.into()),
            DType::U16 => widened(view, |x: u16| x.into()),
            DType::U32 => widened(view, |x: u32| x.into()),
            DType::U64 => widened(view, |x: u64| x.into()),
            other => Err(refused(other, DType::I64)),
        }
    }

    fn store(
        view: &mut TensorViewMut<'_>,
        values: impl IntoIterator<Item = (usize, Self)>,
    ) -> Result<(), ViewError> {
        match view.dtype() {
            DType::I8 => narrowed(view, values, |x| x as i8),
            DType::I16 => narrowed(view, values, |x| x as i16),
            DType::I32 => narrowed(view, values, |x| x as i32),
            DType::I64 => narrowed(view, values, |x| x as i64),
            DType::U8 => narrowed(view, values, |x| x as u8),
            DType::U16 => narrowed(view, values, |x| x as u16),
            DType::U32 => narrowed(view, values, |x| x as u32),
            DType::U64 => narrowed(view, values, |x| x as u64),
            other => Err(refused(other, DType::I64)),
        }
    }

    fn times(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }

    fn over(self, count: usize) -> Self {
        self / count.max(1) as i128
    }
}

impl Real for i128 {
    fn bounds(dtype: DType) -> (Self, Self) {
        let bits = 8 * dtype.size() as u32;
        match dtype.class() {
            DTypeClass::Signed => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            _ => (0, (1 << bits) - 1),
        }
    }
}

impl Wide for Complex<f64> {
    type Total = CompensatedParts;

    const ONE: Self = Complex::new(1.0, 0.0);

    fn load(view: &TensorView<'_>) -> Result<Vec<Self>, ViewError> {
        match view.dtype() {
            DType::Complex64 => widened(view, |z: Complex<f32>| {
                Complex::new(z.re.into(), z.im.into())
            }),
            DType::Complex128 => load(view),
            other => Err(refused(other, DType::Complex128)),
        }
    }

    fn store(
        view: &mut TensorViewMut<'_>,
        values: impl IntoIterator<Item = (usize, Self)>,
    ) -> Result<(), ViewError> {
        match view.dtype() {
            DType::Complex64 => narrowed(view, values, |z| Complex::new(z.re as f32, z.im as f32)),
            DType::Complex128 => store(view, values),
            other => Err(refused(other, DType::Complex128)),
        }
    }

    fn times(self, other: Self) -> Self {
        self * other
    }

    fn over(self, count: usize) -> Self {
        self / count as f64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a number becomes in memory of another float type.
    fn stored<T: Element>(x: f64, zero: T) -> T {
        let mut memory = [zero];
        let mut view = TensorViewMut::contiguous(&mut memory, "1".parse().unwrap()).unwrap();
        f64::store(&mut view, [(0, x)]).unwrap();
        memory[0]
    }

    #[test]
    fn short_floats_are_rounded_once() {
        // Just above half-way between 1 and the next f16: f32 would land on half-way, then on 1.
        let (step, tiny) = ((-10f64).exp2(), (-40f64).exp2());
        let x = 1.0 + step / 2.0 + tiny;
        let short = |x| stored(x, f16::ZERO).to_f64();
        assert_eq!(f16::from_f32(x as f32).to_f64(), 1.0);
        assert_eq!((short(x), short(-x)), (1.0 + step, -1.0 - step));
        // Just below half-way between the next two, where ties would go up.
        assert_eq!(short(1.0 + 1.5 * step - tiny), 1.0 + step);
        assert_eq!(short(1e300), f64::INFINITY);
        assert!(short(f64::NAN).is_nan());
        let step = (-7f64).exp2();
        let brain = |x| stored(x, bf16::ZERO).to_f64();
        assert_eq!(brain(1.0 + step / 2.0 + tiny), 1.0 + step);
        assert_eq!(brain(1.0 + 1.5 * step - tiny), 1.0 + step);
        assert_eq!(stored(1.0 + tiny, 0f32), 1.0);
    }

    #[test]
    fn bounds_are_those_of_the_element_types() {
        assert_eq!(i128::bounds(DType::I8), (-128, 127));
        assert_eq!(i128::bounds(DType::U8), (0, 255));
        assert_eq!(i128::bounds(DType::I64), (i64::MIN.into(), i64::MAX.into()));
        assert_eq!(i128::bounds(DType::U64), (0, u64::MAX.into()));
    }

    #[test]
    fn not_a_number_wins() {
        assert_eq!((larger(1, 2), larger(2, 1)), (2, 2));
        assert_eq!((smaller(1, 2), smaller(2, 1)), (1, 1));
        for join in [larger::<f64>, smaller::<f64>] {
            assert!(join(f64::NAN, 1.0).is_nan());
            assert!(join(1.0, f64::NAN).is_nan());
        }
    }

    proptest! {
        /// The nearest of all: no other f16 next to the result is closer.
        #[test]
        fn no_neighbour_is_nearer(x in -70000.0..70000.0f64, scale in 0i32..30) {
            let x = x * (-f64::from(scale)).exp2();
            let result = f16::from_f32(rounded_to_odd(x));
            prop_assume!(result.is_finite());
            let distance = |bits: u16| (f16::from_bits(bits).to_f64() - x).abs();
            let here = distance(result.to_bits());
            for step in [1, u16::MAX] {
                let next = result.to_bits().wrapping_add(step);
                if f16::from_bits(next).is_finite() {
                    prop_assert!(here <= distance(next));
                }
            }
        }
    }
}
