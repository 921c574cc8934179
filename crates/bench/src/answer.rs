//! What goes in, and whether what comes out is right.
//!
//! Kernels are proven by the conformance suite on small and awkward inputs. Here the question is coarser: did this contender,
//! on this shape, do the work it is timed for? Results that are exact must be equal; others may differ by the rounding of
//! their type, more for longer sums and for reduced precision, relative to the largest result.

use half::{bf16, f16};
use kernelwise_backend::sample::{self, Arrangement, Tensor, Values};
use kernelwise_types::op::{Operation, ReduceKind, SortKind};
use kernelwise_types::{DType, Element, Numerics, ViewError, Workload};
use num_complex::Complex;

/// Inputs of a shape, drawn from a seed. Keys to sort are drawn from all values of their type: with few different keys every
/// sort is quick.
pub(crate) fn inputs(workload: &Workload, seed: u64) -> Result<Vec<Tensor>, ViewError> {
    let mut inputs = sample::inputs(workload, Arrangement::Contiguous, Values::Ordinary, seed)?;
    if let (Operation::Sort(_), Some(keys)) = (workload.operation(), inputs.first_mut()) {
        scatter_keys(keys, seed)?;
    }
    Ok(inputs)
}

/// What lies in the outputs before a run: patterns no kernel would leave, or what the operation updates.
pub(crate) fn outputs(workload: &Workload, seed: u64) -> Result<Vec<Tensor>, ViewError> {
    sample::outputs(workload, Arrangement::Contiguous, Values::Ordinary, seed)
}

fn scatter_keys(keys: &mut Tensor, seed: u64) -> Result<(), ViewError> {
    let mut state = seed;
    // SplitMix64: every seed is good, and all bits of its output are.
    let mut bits = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    macro_rules! fill {
        ($($dtype:ident: $rust:ty = $value:expr;)*) => {
            match keys.dtype() {
                $(DType::$dtype => {
                    let mut view = keys.view_mut()?;
                    let value: fn(u64) -> $rust = $value;
                    view.as_mut_slice::<$rust>()?.iter_mut().for_each(|key| *key = value(bits()));
                })*
                // The other types have few values, which the ordinary draw covers.
                _ => {}
            }
        };
    }
    /// From −1 to 1.
    fn unit(bits: u64) -> f64 {
        (bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
    fill! {
        U16: u16 = |bits| bits as u16;
        U32: u32 = |bits| bits as u32;
        U64: u64 = |bits| bits;
        I16: i16 = |bits| bits as i16;
        I32: i32 = |bits| bits as i32;
        I64: i64 = |bits| bits as i64;
        F32: f32 = |bits| unit(bits) as f32;
        F64: f64 = unit;
    }
    Ok(())
}

/// Whether every right kernel gives the same result. Equal keys may end in any order unless the sort is stable.
pub(crate) fn is_unique(operation: &Operation) -> bool {
    !matches!(operation, Operation::Sort(sort) if !sort.stable && sort.kind != SortKind::Keys)
}

/// Whether `actual` is `expected` as far as the class of numerics promises; if not, the first place where it is not.
pub(crate) fn compare(
    workload: &Workload,
    numerics: Numerics,
    expected: &[Tensor],
    actual: &[Tensor],
) -> Result<(), String> {
    if expected.len() != actual.len() {
        return Err(format!(
            "{} outputs instead of {}",
            actual.len(),
            expected.len()
        ));
    }
    for (number, (expected, actual)) in expected.iter().zip(actual).enumerate() {
        difference(workload, numerics, expected, actual)
            .map_err(|what| format!("output {number}{what}"))?;
    }
    Ok(())
}

fn difference(
    workload: &Workload,
    numerics: Numerics,
    expected: &Tensor,
    actual: &Tensor,
) -> Result<(), String> {
    let dtype = expected.dtype();
    if actual.dtype() != dtype {
        return Err(format!(" is {}, not {dtype}", actual.dtype()));
    }
    macro_rules! by_type {
        ($($variant:ident = $rust:ty),* $(,)?) => {
            match dtype {
                $(DType::$variant => differ::<$rust>(workload, numerics, expected, actual),)*
            }
        };
    }
    by_type!(
        F16 = f16,
        Bf16 = bf16,
        F32 = f32,
        F64 = f64,
        I8 = i8,
        I16 = i16,
        I32 = i32,
        I64 = i64,
        U8 = u8,
        U16 = u16,
        U32 = u32,
        U64 = u64,
        Bool = bool,
        Complex64 = Complex<f32>,
        Complex128 = Complex<f64>,
    )
}

fn differ<T: Number>(
    workload: &Workload,
    numerics: Numerics,
    expected: &Tensor,
    actual: &Tensor,
) -> Result<(), String> {
    let (expected, actual) = (elements::<T>(expected)?, elements::<T>(actual)?);
    if expected.len() != actual.len() {
        return Err(format!(
            " has {} elements, not {}",
            actual.len(),
            expected.len()
        ));
    }
    let bound = match (T::EPSILON, numerics) {
        (None, _) | (_, Numerics::BitIdentical) => None,
        (Some(epsilon), numerics) => {
            let largest = expected
                .iter()
                .map(|e| size(e.parts()))
                .filter(|s| s.is_finite());
            let scale = largest.fold(least_scale(workload), f64::max);
            Some(scale * epsilon * roundings(workload, numerics))
        }
    };
    let wrong = expected.iter().zip(actual).position(|(e, a)| match bound {
        None => e != a && !(size(e.parts()).is_nan() && size(a.parts()).is_nan()),
        Some(bound) => {
            let (e, a) = (e.parts(), a.parts());
            e.iter().zip(&a).any(|(e, a)| {
                let both_lost = e.is_nan() && a.is_nan();
                // Not `>`: a result that is not a number is no nearer than one that is far.
                !(both_lost || e == a || (e - a).abs() <= bound)
            })
        }
    });
    wrong.map_or(Ok(()), |at| {
        Err(format!(
            " at {at} is {:?} instead of {:?}",
            actual[at], expected[at]
        ))
    })
}

fn elements<T: Element>(tensor: &Tensor) -> Result<&[T], String> {
    let elements = tensor.view().and_then(|view| view.as_slice());
    elements.map_err(|error| format!(": {error}"))
}

fn size([re, im]: [f64; 2]) -> f64 {
    if re.is_nan() || im.is_nan() {
        f64::NAN
    } else {
        re.abs().max(im.abs())
    }
}

/// How many roundings of the type a result may be away, as the conformance suite has it.
fn roundings(workload: &Workload, numerics: Numerics) -> f64 {
    let root = terms(workload).sqrt();
    match numerics {
        Numerics::ReducedPrecision => 512.0 + 32.0 * root,
        _ => 16.0 + 2.0 * root,
    }
}

/// Terms that one result is made of.
fn terms(workload: &Workload) -> f64 {
    let elements = |operand: Option<&kernelwise_types::op::Operand>| {
        operand.map_or(1.0, |operand| operand.shape.elements() as f64)
    };
    let (read, written) = (
        elements(workload.inputs().first()),
        elements(workload.outputs().first()),
    );
    match workload.operation() {
        // Every result depends on a whole row of inputs.
        Operation::Scan(_) | Operation::Norm(_) | Operation::Softmax(_) | Operation::Fft(_) => read,
        _ => {
            let flops = workload.cost().map_or(0.0, |cost| cost.flops.0 as f64);
            (flops / 2.0).max(read) / written
        }
    }
}

/// The size of a result that may be small by chance: a sum of as many terms of size one.
fn least_scale(workload: &Workload) -> f64 {
    match workload.operation() {
        Operation::Matmul(_)
        | Operation::Conv2d(_)
        | Operation::Conv3d(_)
        | Operation::Scan(_)
        | Operation::Scatter(_)
        | Operation::Fft(_) => terms(workload).sqrt(),
        Operation::Reduce(reduce) if reduce.kind == ReduceKind::Sum => terms(workload).sqrt(),
        Operation::Reduce(_) | Operation::Pool2d(_) => 1.0,
        _ => 0.0,
    }
}

/// An element type whose values can be told apart.
trait Number: Element + PartialEq + std::fmt::Debug {
    /// The rounding of the type; `None` where every bit counts.
    const EPSILON: Option<f64>;

    /// Real and imaginary part.
    fn parts(self) -> [f64; 2];
}

macro_rules! numbers {
    ($($rust:ty, $epsilon:expr, |$x:ident| $parts:expr;)*) => {
        $(impl Number for $rust {
            const EPSILON: Option<f64> = $epsilon;
            fn parts(self) -> [f64; 2] {
                let $x = self;
                $parts
            }
        })*
    };
}

numbers! {
    f16, Some(1.0 / 1024.0), |x| [x.to_f64(), 0.0];
    bf16, Some(1.0 / 128.0), |x| [x.to_f64(), 0.0];
    f32, Some(f32::EPSILON as f64), |x| [x.into(), 0.0];
    f64, Some(f64::EPSILON), |x| [x, 0.0];
    i8, None, |x| [x.into(), 0.0];
    i16, None, |x| [x.into(), 0.0];
    i32, None, |x| [x.into(), 0.0];
    i64, None, |x| [x as f64, 0.0];
    u8, None, |x| [x.into(), 0.0];
    u16, None, |x| [x.into(), 0.0];
    u32, None, |x| [x.into(), 0.0];
    u64, None, |x| [x as f64, 0.0];
    bool, None, |x| [f64::from(u8::from(x)), 0.0];
    Complex<f32>, Some(f32::EPSILON as f64), |x| [x.re.into(), x.im.into()];
    Complex<f64>, Some(f64::EPSILON), |x| [x.re, x.im];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(text: &str) -> Workload {
        text.parse().unwrap()
    }

    fn tensor(workload: &Workload, values: &[f32]) -> Vec<Tensor> {
        let mut outputs = outputs(workload, 1).unwrap();
        let mut view = outputs[0].view_mut().unwrap();
        view.as_mut_slice::<f32>().unwrap().copy_from_slice(values);
        outputs
    }

    #[test]
    fn rounding_is_forgiven_and_a_lost_term_is_not() {
        let product = workload("matmul f32 1x100x2");
        let expected = tensor(&product, &[30.0, 0.01]);
        let check = |values: [f32; 2], numerics| {
            compare(&product, numerics, &expected, &tensor(&product, &values))
        };
        assert_eq!(check([30.0, 0.01], Numerics::BitIdentical), Ok(()));
        assert_eq!(check([30.0001, 0.0101], Numerics::Reordered), Ok(()));
        assert!(check([30.0001, 0.0101], Numerics::BitIdentical).is_err());
        assert_eq!(check([30.002, 0.01], Numerics::ReducedPrecision), Ok(()));
        assert_eq!(
            check([30.002, 0.01], Numerics::Reordered).unwrap_err(),
            "output 0 at 0 is 30.002 instead of 30.0"
        );
        assert!(check([30.0, 1.01], Numerics::ReducedPrecision).is_err());
        assert!(check([30.0, f32::NAN], Numerics::ReducedPrecision).is_err());
        assert!(check([f32::INFINITY, 0.01], Numerics::ReducedPrecision).is_err());
    }

    /// What was never written is a pattern that no tolerance takes for a result.
    #[test]
    fn untouched_outputs_are_wrong() {
        let product = workload("matmul f32 2x3x2");
        let expected = tensor(&product, &[1.0; 4]);
        let untouched = outputs(&product, 1).unwrap();
        assert!(compare(&product, Numerics::ReducedPrecision, &expected, &untouched).is_err());
        assert!(compare(&product, Numerics::Reordered, &expected, &[]).is_err());
    }

    /// A sum that happens to be near zero has the error of its terms.
    #[test]
    fn a_sum_that_cancels_is_measured_by_its_terms() {
        let sum = workload("reduce.sum f32 1000000");
        let (expected, actual) = (tensor(&sum, &[0.0]), tensor(&sum, &[0.01]));
        assert_eq!(
            compare(&sum, Numerics::Reordered, &expected, &actual),
            Ok(())
        );
        let far = tensor(&sum, &[2.0]);
        assert!(compare(&sum, Numerics::Reordered, &expected, &far).is_err());
    }

    #[test]
    fn keys_to_sort_are_many_different_ones_and_repeat_with_the_seed() {
        for text in ["sort u32 4000", "sort f32 4000", "sort i64 4000"] {
            let sort = workload(text);
            let keys = |seed| {
                let mut keys = inputs(&sort, seed).unwrap()[0].numbers();
                keys.sort_by(|a, b| a[0].total_cmp(&b[0]));
                keys.dedup();
                keys
            };
            assert!(keys(1).len() > 3990, "{text}");
            assert_eq!(keys(7), keys(7));
            assert_ne!(keys(7), keys(8));
        }
    }

    #[test]
    fn only_unstable_sorts_have_several_right_results() {
        assert!(is_unique(workload("sort u32 10").operation()));
        assert!(is_unique(workload("sort.arg u32 10 stable").operation()));
        assert!(!is_unique(workload("sort.arg u32 10").operation()));
        assert!(!is_unique(
            workload("sort.pairs u32 10 values=u32").operation()
        ));
    }
}
