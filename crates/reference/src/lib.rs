//! Slow, obvious kernels for every operation: the answer key that other kernels are held to, and the floor
//! that always serves.
//!
//! ```
//! use kernelwise_types::{TensorView, TensorViewMut, Workload};
//!
//! let workload: Workload = "matmul f32 2x2x1".parse()?;
//! let (a, b) = ([1.0f32, 2.0, 3.0, 4.0], [10.0f32, 100.0]);
//! let mut out = [0.0f32; 2];
//! kernelwise_reference::compute(
//!     &workload,
//!     &[
//!         TensorView::contiguous(&a, "2x2".parse()?)?,
//!         TensorView::contiguous(&b, "2x1".parse()?)?,
//!     ],
//!     &mut [TensorViewMut::contiguous(&mut out, "2x1".parse()?)?],
//! )?;
//! assert_eq!(out, [210.0, 430.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What the answer is
//!
//! What an operation means stands with it in [`kernelwise_types::op`]. What is left open there is fixed here:
//!
//! | question | answer |
//! |---|---|
//! | floats | computed in `f64`, rounded to the element type once for each element of the result: to nearest, ties to even. A chain of steps is rounded at its end, a scatter after all updates of a place |
//! | sums of floats | compensated, and products in them exact, so that a sum in `f64` is as good as one in twice the precision |
//! | products of floats | in `f64`, in index order |
//! | complex numbers | two `f64`, with the textbook formulas; what comes out of parts that are not finite is an accident of the formula, and no kernel should be held to it |
//! | integers | wrap, a chain at every step; matmul, convolutions and the sums and products of reduce and scan take `i8` and `u8` to `i32` and wrap there |
//! | integer quotients | towards zero; x/0 is 0, the lowest number by −1 is itself |
//! | max, min, relu | NaN if there is one; zeros are equal, whatever their signs, and either may come out |
//! | argmax, argmin | the first of equals, and the first NaN before everything |
//! | sort | the total order of floats, `-NaN` first and `-0` before `0`; equal keys keep their order, `stable` or not, so that `sort.arg` and `sort.pairs` have one answer |
//! | sort, copy, gather, scatter.assign | bits are kept, those of NaN too |
//! | scatter | onto what the destination holds; of several assignments to one place the last in the order of the indices stays; places that no index names keep their bits |
//! | gather, scatter | an index below zero or too large is an error |
//! | exclusive scan | begins with 0, 1, the lowest or the highest number of the element type (infinite for floats) |
//! | convolution | padding adds nothing, also under weights that are not finite |
//! | pooling | padding is never the maximum and counts as zeros in the mean |
//! | softmax | rows with a NaN or +∞, and rows of nothing but −∞, are NaN throughout: their largest element, which is taken off, is not finite |
//! | activations at −∞ | as the form in [`Activation`](kernelwise_types::op::Activation) gives: NaN for silu, gelu, gelu_tanh and hard_swish, which multiply it by zero. Elsewhere they are the functions themselves, without the cancellation of that form. A slope is the `f32` it is stored as |
//! | normalisation | ε is 1e-5; the variance is biased, divided by the number of elements, in the result and where it is an output; the result is made with mean and variance before they are rounded |
//! | Fourier transforms | exp(−2πi·jk/n) forward and not scaled, exp(+2πi·jk/n) and divided by n back; coming back to real rows, the imaginary parts of the first and, for even n, of the middle element are passed over |
//!
//! A result that fits `f64` but not a sum on the way in a narrower type is the finite one: kernels that
//! accumulate in `f32` may overflow where this does not, and comparisons must keep away from there.
//!
//! # How it is made
//!
//! Operands are read into lists in index order (`elements`), made wide (`wide`), computed by loops that
//! read like the definition, and stored. So strides matter in one place, and an operation is written once for
//! real, integer and complex numbers, not once for each element type. Nothing is reused between calls and
//! nothing runs in parallel: this is not a benchmark's contender.
#![forbid(unsafe_code)]

use kernelwise_types::op::{Operation, Step};
use kernelwise_types::{DTypeClass, TensorView, TensorViewMut, ViewError, Workload};
use num_complex::Complex;

mod conv;
mod elements;
mod elementwise;
mod fft;
mod indexed;
mod matmul;
mod moved;
mod norm;
mod pool;
mod reduce;
mod scan;
mod softmax;
mod sort;
#[cfg(test)]
mod strided;
mod total;
#[cfg(test)]
mod trial;
mod wide;

/// Why there is no answer. Nothing has been written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// The tensors do not fit the workload.
    #[error(transparent)]
    View(#[from] ViewError),
    /// An index that names no place.
    #[error(
        "operand `{operand}`: element {position} is {value}, but there are {length} places: indices are 0 to {}",
        .length.saturating_sub(1)
    )]
    Index {
        /// The operand that holds it.
        operand: &'static str,
        /// Where it stands in the list of indices.
        position: usize,
        /// The index.
        value: i64,
        /// How many places there are along the axis.
        length: usize,
    },
    /// A custom operation: what it computes is known to its author only.
    #[error("{workload} has no reference here: its author gives one")]
    Custom {
        /// The workload in text.
        workload: String,
    },
}

/// Evaluates `$call` with `$wide` standing for the wide type of the element type. Truth values go with the
/// integers, whose `load` refuses them.
macro_rules! by_class {
    ($dtype:expr, $wide:ident => $call:expr) => {
        match $dtype.class() {
            DTypeClass::Float => {
                type $wide = f64;
                $call
            }
            DTypeClass::Complex => {
                type $wide = Complex<f64>;
                $call
            }
            DTypeClass::Signed | DTypeClass::Unsigned | DTypeClass::Bool => {
                type $wide = i128;
                $call
            }
        }
    };
}

/// Computes `workload` on these tensors, whatever their strides. Errors come before a byte is written.
///
/// A scatter updates its output; every other operation overwrites all of it.
pub fn compute(
    workload: &Workload,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
) -> Result<(), ReferenceError> {
    let dtype = workload.dtype();
    // Its operands are unknown, so the tensors cannot be checked against them.
    if let Operation::Custom(_) = workload.operation() {
        return Err(no_reference(workload));
    }
    workload.over(inputs, outputs)?;
    match workload.operation() {
        Operation::Matmul(op) => by_class!(dtype, W => matmul::compute::<W>(op, inputs, outputs))?,
        Operation::Elementwise(op) => {
            let steps = op.steps.as_slice();
            by_class!(dtype, W => elementwise::compute::<W>(steps, &op.shape, inputs, outputs))?
        }
        Operation::Activation(op) => {
            let steps = &[Step::Activation(op.kind)];
            by_class!(dtype, W => elementwise::compute::<W>(steps, &op.shape, inputs, outputs))?
        }
        Operation::Conv2d(op) => by_class!(dtype, W => conv::images::<W>(op, inputs, outputs))?,
        Operation::Conv3d(op) => by_class!(dtype, W => conv::volumes::<W>(op, inputs, outputs))?,
        Operation::Pool2d(op) => pool::compute(op, inputs, outputs)?,
        Operation::Norm(op) => norm::compute(op, inputs, outputs)?,
        Operation::Softmax(op) => softmax::compute(op, inputs, outputs)?,
        Operation::Reduce(op) => reduce::compute(op, inputs, outputs)?,
        Operation::Scan(op) => scan::compute(op, inputs, outputs)?,
        Operation::Sort(op) => sort::compute(op, inputs, outputs)?,
        Operation::Fft(op) => fft::compute(op, inputs, outputs)?,
        Operation::Gather(op) => indexed::gather(op, inputs, outputs)?,
        Operation::Scatter(op) => indexed::scatter(op, inputs, outputs)?,
        Operation::Transpose(op) => moved::transpose(op, inputs, outputs)?,
        Operation::Reshape(_) | Operation::TensorCopy(_) => moved::copy(inputs, outputs)?,
        // An operation younger than this list; a test goes through all names.
        _ => return Err(no_reference(workload)),
    }
    Ok(())
}

fn no_reference(workload: &Workload) -> ReferenceError {
    ReferenceError::Custom {
        workload: workload.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{attempt, owned};

    #[test]
    fn tensors_that_do_not_fit_are_refused_and_outputs_untouched() {
        let mut out = [owned([7f32])];
        let result = attempt("matmul f32 1x2x1", &[owned([1f32, 2.0])], &mut out);
        let count = ViewError::Count {
            workload: "matmul f32 1x2x1".to_owned(),
            role: "input",
            expected: 2,
            actual: 1,
        };
        assert_eq!(result, Err(ReferenceError::View(count)));
        let result = attempt("copy f64 1", &[owned([1f64])], &mut out);
        assert!(matches!(
            result,
            Err(ReferenceError::View(ViewError::Mismatch { .. }))
        ));
        assert_eq!(out, [owned([7f32])]);
    }

    #[test]
    fn a_custom_operation_has_its_own_author() {
        let workload = "custom.wave_step f64 4";
        let result = attempt(workload, &[owned([0f64; 4])], &mut [owned([0f64; 4])]);
        assert_eq!(
            result.unwrap_err().to_string(),
            "custom.wave_step f64 4 has no reference here: its author gives one"
        );
    }
}
