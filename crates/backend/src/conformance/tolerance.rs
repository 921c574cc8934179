//! How far a result may lie from the reference.
//!
//! The bound grows with the type's rounding, with the number of terms in a sum and with the size of what is
//! summed: terms that cancel leave a small result and a large error. So for sums of products the scale is
//! the same operation on absolute values; for everything else the result itself, or one.

use kernelwise_types::op::{NormKind, Operation, ReduceKind, ScanKind, ScatterKind, SoftmaxKind};
use kernelwise_types::{DType, DTypeClass, Numerics, Workload};

/// What a result is measured against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// The operation on absolute values.
    Absolute,
    /// The result itself.
    Result,
    /// The result, or one where that is smaller.
    ResultOrOne,
    /// The largest of the results: where every one is made of all inputs, the error is that of the whole.
    Largest,
}

pub(super) fn scale(operation: &Operation) -> Scale {
    match operation {
        Operation::Matmul(_)
        | Operation::Conv2d(_)
        | Operation::Conv3d(_)
        | Operation::Pool2d(_) => Scale::Absolute,
        Operation::Reduce(reduce) if matches!(reduce.kind, ReduceKind::Sum | ReduceKind::Mean) => {
            Scale::Absolute
        }
        Operation::Scan(scan) if scan.kind == ScanKind::Sum => Scale::Absolute,
        Operation::Scatter(scatter) if scatter.kind == ScatterKind::Add => Scale::Absolute,
        Operation::Softmax(softmax) if softmax.kind == SoftmaxKind::Plain => Scale::Result,
        Operation::Reduce(_) | Operation::Scan(_) => Scale::Result,
        Operation::Fft(_) => Scale::Largest,
        _ => Scale::ResultOrOne,
    }
}

/// Terms that one result is made of.
fn terms(workload: &Workload) -> f64 {
    let elements = |dims: &[usize]| dims.iter().map(|d| *d as f64).product::<f64>();
    match workload.operation() {
        Operation::Matmul(matmul) => matmul.k as f64,
        Operation::Conv2d(conv) => elements(&[conv.c / conv.groups, conv.r, conv.s]),
        Operation::Conv3d(_) => elements(workload.inputs()[1].shape.dims().get(1..).unwrap_or(&[])),
        Operation::Reduce(_) | Operation::Scan(_) | Operation::Softmax(_) | Operation::Fft(_) => {
            elements(workload.inputs()[0].shape.dims())
        }
        Operation::Norm(norm) if norm.kind == NormKind::Batch => elements(norm.shape.dims()),
        Operation::Norm(norm) => norm.shape.dims().last().map_or(1.0, |n| *n as f64),
        Operation::Scatter(scatter) => scatter.indices as f64,
        Operation::Pool2d(pool) => elements(&[pool.r, pool.s]),
        _ => 1.0,
    }
}

/// The largest error, as a part of the scale. `None` where every bit counts.
pub(super) fn bound(workload: &Workload, numerics: Numerics) -> Option<f64> {
    let epsilon = match workload
        .outputs()
        .first()
        .map_or(workload.dtype(), |o| o.dtype)
    {
        DType::F16 => 2f64.powi(-10),
        DType::Bf16 => 2f64.powi(-7),
        DType::F32 | DType::Complex64 => f64::from(f32::EPSILON),
        DType::F64 | DType::Complex128 => f64::EPSILON,
        other => {
            debug_assert!(!matches!(
                other.class(),
                DTypeClass::Float | DTypeClass::Complex
            ));
            return None;
        }
    };
    match numerics {
        Numerics::BitIdentical => None,
        Numerics::Reordered => Some(epsilon * (16.0 + 2.0 * terms(workload).sqrt())),
        Numerics::ReducedPrecision => Some(epsilon * (512.0 + 32.0 * terms(workload).sqrt())),
    }
}

/// Whether infinities and numbers near the ends of the range come out the same in every order of computing.
/// Not so where elements are mixed before they are separated, where products may overflow on the way, and
/// where a long chain may.
pub(super) fn special_values_are_defined(workload: &Workload, numerics: Numerics) -> bool {
    let order_matters = match workload.operation() {
        Operation::Fft(_) => true,
        Operation::Reduce(reduce) => reduce.kind == ReduceKind::Prod,
        Operation::Scan(scan) => scan.kind == ScanKind::Prod,
        Operation::Elementwise(chain) => chain.steps.as_slice().len() > 2,
        _ => false,
    };
    match numerics {
        Numerics::BitIdentical => true,
        Numerics::Reordered => !order_matters,
        Numerics::ReducedPrecision => false,
    }
}

/// Whether every part of a result is near enough.
pub(super) fn near(expected: [f64; 2], actual: [f64; 2], allowed: f64) -> bool {
    expected.iter().zip(&actual).all(|(&e, &a)| {
        if e.is_nan() || a.is_nan() {
            e.is_nan() && a.is_nan()
        } else if e.is_infinite() || a.is_infinite() {
            e == a
        } else {
            (e - a).abs() <= allowed
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_follow_type_and_length() {
        let of = |text: &str| bound(&text.parse().unwrap(), Numerics::Reordered);
        assert!(of("matmul f32 8x100x8") < of("matmul f32 8x10000x8"));
        assert!(of("matmul f64 8x8x8") < of("matmul f32 8x8x8"));
        assert!(of("matmul f32 8x8x8") < of("matmul f16 8x8x8"));
        assert_eq!(of("matmul i32 8x8x8"), None);
        assert_eq!(
            bound(&"copy f32 8".parse().unwrap(), Numerics::BitIdentical),
            None
        );
        // One lost term of a hundred is far outside.
        assert!(of("matmul f32 8x100x8").unwrap() < 0.001);
    }

    #[test]
    fn not_a_number_and_infinity_must_be_met() {
        let nan = f64::NAN;
        assert!(near([nan, 0.0], [nan, 0.0], 0.1));
        assert!(!near([nan, 0.0], [1.0, 0.0], 1e9));
        assert!(!near([1.0, 0.0], [nan, 0.0], 1e9));
        assert!(near([f64::INFINITY, 0.0], [f64::INFINITY, 0.0], 0.0));
        assert!(!near([f64::INFINITY, 0.0], [f64::NEG_INFINITY, 0.0], 1e9));
        assert!(!near([1.0, 0.0], [1.2, 0.0], 0.1) && near([1.0, 0.0], [1.05, 0.0], 0.1));
        assert!(!near([1.0, 0.0], [1.0, 0.2], 0.1));
    }
}
