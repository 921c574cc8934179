//! Whether a result is right, as far as can be told in passing.
//!
//! Kernels are proven by the [conformance suite](crate::conformance) on small and awkward inputs. Here the question is
//! coarser: did this kernel, on this input, compute what it was asked for? Results that are exact must be equal; others may
//! differ by the rounding of their type, more for longer sums and for reduced precision, relative to the largest result.

use half::{bf16, f16};
use kernelwise_types::op::{Operation, ReduceKind, SortKind};
use kernelwise_types::{DType, Element, Numerics, TensorView, Workload};
use num_complex::Complex;

use crate::sample::Tensor;

/// Whether every right kernel gives the same result. Equal keys may end in any order unless the sort is stable.
pub fn is_unique(operation: &Operation) -> bool {
    !matches!(operation, Operation::Sort(sort) if !sort.stable && sort.kind != SortKind::Keys)
}

/// Whether `actual` is `expected` as far as the class of numerics promises; if not, the first place where it is not.
/// `inputs` are those it was computed from: results that happen to be small have the error of their terms.
pub fn compare(
    workload: &Workload,
    numerics: Numerics,
    inputs: &[TensorView<'_>],
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
    let magnitude = magnitude(workload, inputs);
    let judged = Judged {
        workload,
        numerics,
        least: least_scale(workload) * magnitude,
        extreme: magnitude > EXTREME || inputs.iter().any(has_extremes),
    };
    for (number, (expected, actual)) in expected.iter().zip(actual).enumerate() {
        difference(&judged, expected, actual).map_err(|what| format!("output {number}{what}"))?;
    }
    Ok(())
}

/// What results are held against.
struct Judged<'a> {
    workload: &'a Workload,
    numerics: Numerics,
    /// The smallest scale of an error.
    least: f64,
    /// Whether what is infinite or no number depends on the order of computing.
    extreme: bool,
}

/// Beyond this size a product or a sum of squares may overflow in one order and not in another.
const EXTREME: f64 = 1e15;

/// Whether an operand has elements that are infinite or no numbers.
fn has_extremes(view: &TensorView<'_>) -> bool {
    macro_rules! any {
        ($($variant:ident = $rust:ty),*) => {
            match view.dtype() {
                $(DType::$variant => view
                    .iter::<$rust>()
                    .is_ok_and(|mut values| values.any(|value| !size(value.parts()).is_finite())),)*
                _ => false,
            }
        };
    }
    any!(
        F16 = f16,
        Bf16 = bf16,
        F32 = f32,
        F64 = f64,
        Complex64 = Complex<f32>,
        Complex128 = Complex<f64>
    )
}

/// The size of one term of a result: the largest input, or the product of the largest of each factor. One without inputs.
fn magnitude(workload: &Workload, inputs: &[TensorView<'_>]) -> f64 {
    let largest = |view: &TensorView<'_>| -> Option<f64> {
        macro_rules! largest {
            ($($variant:ident = $rust:ty),*) => {
                match view.dtype() {
                    $(DType::$variant => {
                        let values = view.iter::<$rust>().ok()?;
                        let sizes = values.map(|value| size(value.parts())).filter(|s| s.is_finite());
                        Some(sizes.fold(0.0, f64::max))
                    })*
                    _ => None,
                }
            };
        }
        largest!(
            F16 = f16,
            Bf16 = bf16,
            F32 = f32,
            F64 = f64,
            Complex64 = Complex<f32>,
            Complex128 = Complex<f64>
        )
    };
    let sizes = inputs.iter().filter_map(largest);
    let size = match workload.operation() {
        // Results are of size one whatever the inputs are.
        Operation::Norm(_) => 1.0,
        Operation::Elementwise(_) | Operation::Activation(_) => sizes.fold(1.0, f64::max),
        Operation::Matmul(_) | Operation::Conv2d(_) | Operation::Conv3d(_) => sizes.product(),
        _ => sizes.fold(0.0, f64::max),
    };
    if inputs.is_empty() { 1.0 } else { size }
}

fn difference(judged: &Judged<'_>, expected: &Tensor, actual: &Tensor) -> Result<(), String> {
    let dtype = expected.dtype();
    if actual.dtype() != dtype {
        return Err(format!(" is {}, not {dtype}", actual.dtype()));
    }
    macro_rules! by_type {
        ($($variant:ident = $rust:ty),* $(,)?) => {
            match dtype {
                $(DType::$variant => differ::<$rust>(judged, expected, actual),)*
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
    judged: &Judged<'_>,
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
    let bound = match (T::EPSILON, judged.numerics) {
        (None, _) | (_, Numerics::BitIdentical) => None,
        (Some(epsilon), numerics) => {
            let largest = expected
                .iter()
                .map(|e| size(e.parts()))
                .filter(|s| s.is_finite());
            let scale = largest.fold(judged.least, f64::max);
            // Below the smallest normal number the steps of a type do not shrink any more.
            let scale = scale.max(T::SMALLEST);
            Some(scale * epsilon * roundings(judged.workload, numerics))
        }
    };
    let wrong = expected.iter().zip(actual).position(|(e, a)| match bound {
        None => e != a && !(size(e.parts()).is_nan() && size(a.parts()).is_nan()),
        Some(bound) => {
            let (e, a) = (e.parts(), a.parts());
            e.iter().zip(&a).any(|(e, a)| {
                let both_lost = e.is_nan() && a.is_nan();
                let unjudged = judged.extreme && !(e.is_finite() && a.is_finite());
                // Not `>`: a result that is not a number is no nearer than one that is far.
                !(both_lost || unjudged || e == a || (e - a).abs() <= bound)
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
        // Shares of a sum are small where there are many, and exact in proportion.
        Operation::Softmax(_) => 0.0,
        // A residual of steps that cancel has the error of the steps.
        _ => 1.0,
    }
}

/// An element type whose values can be told apart.
trait Number: Element + PartialEq + std::fmt::Debug {
    /// The rounding of the type; `None` where every bit counts.
    const EPSILON: Option<f64>;
    /// Its smallest normal number.
    const SMALLEST: f64;

    /// Real and imaginary part.
    fn parts(self) -> [f64; 2];
}

macro_rules! numbers {
    ($($rust:ty, $epsilon:expr, $smallest:expr, |$x:ident| $parts:expr;)*) => {
        $(impl Number for $rust {
            const EPSILON: Option<f64> = $epsilon;
            const SMALLEST: f64 = $smallest;
            fn parts(self) -> [f64; 2] {
                let $x = self;
                $parts
            }
        })*
    };
}

numbers! {
    f16, Some(1.0 / 1024.0), 1.0 / 16384.0, |x| [x.to_f64(), 0.0];
    bf16, Some(1.0 / 128.0), f32::MIN_POSITIVE as f64, |x| [x.to_f64(), 0.0];
    f32, Some(f32::EPSILON as f64), f32::MIN_POSITIVE as f64, |x| [x.into(), 0.0];
    f64, Some(f64::EPSILON), f64::MIN_POSITIVE, |x| [x, 0.0];
    i8, None, 0.0, |x| [x.into(), 0.0];
    i16, None, 0.0, |x| [x.into(), 0.0];
    i32, None, 0.0, |x| [x.into(), 0.0];
    i64, None, 0.0, |x| [x as f64, 0.0];
    u8, None, 0.0, |x| [x.into(), 0.0];
    u16, None, 0.0, |x| [x.into(), 0.0];
    u32, None, 0.0, |x| [x.into(), 0.0];
    u64, None, 0.0, |x| [x as f64, 0.0];
    bool, None, 0.0, |x| [f64::from(u8::from(x)), 0.0];
    Complex<f32>, Some(f32::EPSILON as f64), f32::MIN_POSITIVE as f64, |x| [x.re.into(), x.im.into()];
    Complex<f64>, Some(f64::EPSILON), f64::MIN_POSITIVE, |x| [x.re, x.im];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, Arrangement, Values};

    fn workload(text: &str) -> Workload {
        text.parse().unwrap()
    }

    fn outputs(workload: &Workload) -> Vec<Tensor> {
        sample::outputs(workload, Arrangement::Contiguous, Values::Ordinary, 1).unwrap()
    }

    fn tensor(workload: &Workload, values: &[f32]) -> Vec<Tensor> {
        let mut outputs = outputs(workload);
        let mut view = outputs[0].view_mut().unwrap();
        view.as_mut_slice::<f32>().unwrap().copy_from_slice(values);
        outputs
    }

    #[test]
    fn rounding_is_forgiven_and_a_lost_term_is_not() {
        let product = workload("matmul f32 1x100x2");
        let expected = tensor(&product, &[30.0, 0.01]);
        let check = |values: [f32; 2], numerics| {
            compare(
                &product,
                numerics,
                &[],
                &expected,
                &tensor(&product, &values),
            )
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
        let untouched = outputs(&product);
        assert!(
            compare(
                &product,
                Numerics::ReducedPrecision,
                &[],
                &expected,
                &untouched
            )
            .is_err()
        );
        assert!(compare(&product, Numerics::Reordered, &[], &expected, &[]).is_err());
    }

    /// A sum that happens to be near zero has the error of its terms.
    #[test]
    fn a_sum_that_cancels_is_measured_by_its_terms() {
        let sum = workload("reduce.sum f32 1000000");
        let (expected, actual) = (tensor(&sum, &[0.0]), tensor(&sum, &[0.01]));
        assert_eq!(
            compare(&sum, Numerics::Reordered, &[], &expected, &actual),
            Ok(())
        );
        let far = tensor(&sum, &[2.0]);
        assert!(compare(&sum, Numerics::Reordered, &[], &expected, &far).is_err());
        // Large terms have large errors, small ones small.
        let judge = |size: f32, actual: f32| {
            let terms = [size; 4];
            let terms = TensorView::contiguous(&terms, "4".parse().unwrap()).unwrap();
            let actual = tensor(&sum, &[actual]);
            compare(&sum, Numerics::Reordered, &[terms], &expected, &actual).is_ok()
        };
        assert!(judge(1000.0, 10.0) && !judge(0.001, 0.01));
    }

    /// What kernels may differ in without being wrong.
    #[test]
    fn residuals_overflows_and_the_smallest_numbers_are_forgiven() {
        let judge = |text: &str, inputs: &[f32], expected: f32, actual: f32| {
            let workload = workload(text);
            let shape = workload.inputs()[0].shape;
            let views: Vec<_> = inputs
                .iter()
                .map(std::slice::from_ref)
                .map(|one| TensorView::contiguous(one, shape).unwrap())
                .collect();
            let (expected, actual) = (tensor(&workload, &[expected]), tensor(&workload, &[actual]));
            compare(&workload, Numerics::Reordered, &views, &expected, &actual).is_ok()
        };
        let residual = "elementwise.mul+sub f32 1";
        assert!(judge(residual, &[1.1, 1.1, 1.21], 0.0, -3.1e-8));
        assert!(!judge(residual, &[1.1, 1.1, 1.21], 0.0, 1e-3));
        let tiny = f32::from_bits(1);
        assert!(judge("reduce.max f32 1", &[tiny], tiny, 0.0));
        let infinite = f32::INFINITY;
        assert!(judge(
            "elementwise.mul+sub f32 1",
            &[infinite, 1.0, 1.0],
            infinite,
            f32::NAN
        ));
        assert!(!judge(
            "elementwise.mul+sub f32 1",
            &[1.0, 1.0, 1.0],
            0.0,
            f32::NAN
        ));
        assert!(judge("reduce.prod f32 1", &[1e30], 1e30, infinite));
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
