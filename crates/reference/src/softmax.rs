//! Softmax and its logarithm: the largest element is taken off first, so that no exponential overflows.

use kernelwise_types::op::{Softmax, SoftmaxKind};
use kernelwise_types::{TensorView, TensorViewMut, ViewError};

use crate::elements::lines;
use crate::total::sum;
use crate::wide::{Wide, larger};

pub(crate) fn compute(
    op: &Softmax,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
) -> Result<(), ViewError> {
    let x = f64::load(&inputs[0])?;
    let mut out = Vec::with_capacity(x.len());
    for line in lines(&op.shape, op.axis) {
        let values = || line.iter().map(|&position| x[position]);
        let most = values().fold(f64::NEG_INFINITY, larger);
        let total = sum(values().map(|value| (value - most).exp()));
        out.extend(line.iter().map(|&position| {
            let share = match op.kind {
                SoftmaxKind::Plain => (x[position] - most).exp() / total,
                SoftmaxKind::Log => x[position] - most - total.ln(),
            };
            (position, share)
        }));
    }
    f64::store(&mut outputs[0], out)
}

#[cfg(test)]
mod tests {
    use std::f64::consts::LN_2;

    use crate::trial::{owned, run, sample, values};

    #[test]
    fn shares_of_known_exponentials() {
        let out = run("softmax f64 2x2", &[owned([0f64, LN_2 + LN_2, 7.0, 7.0])]);
        let shares = values(&out[0]);
        assert!(
            (shares[0] - 0.2).abs() < 1e-16 && (shares[1] - 0.8).abs() < 2e-16,
            "{shares:?}"
        );
        assert_eq!(shares[2..], [0.5, 0.5]);
        let out = run("softmax.log f64 2", &[owned([3f64, 3.0])]);
        assert_eq!(out, [owned([-LN_2, -LN_2])]);
    }

    #[test]
    fn another_axis_competes() {
        let out = run("softmax f32 2x2 axis0", &[owned([5f32, 1.0, 5.0, 1.0])]);
        assert_eq!(out, [owned([0.5f32; 4])]);
        let out = run("softmax.log f32 2x1 axis1", &[owned([5f32, 1.0])]);
        assert_eq!(out, [owned([0f32; 2])]);
    }

    #[test]
    fn shares_sum_to_one_and_their_logarithms_agree() {
        let x = sample("f64", 40, 5);
        let plain = values(&run("softmax f64 40", std::slice::from_ref(&x))[0]);
        let log = values(&run("softmax.log f64 40", &[x])[0]);
        assert!((plain.iter().sum::<f64>() - 1.0).abs() < 1e-14);
        for (share, log) in plain.iter().zip(&log) {
            assert!((share.ln() - log).abs() < 1e-14);
        }
    }

    #[test]
    fn large_elements_do_not_overflow() {
        let out = run("softmax f32 2", &[owned([3e38f32, 3e38])]);
        assert_eq!(out, [owned([0.5f32, 0.5])]);
        // The small share vanishes, its logarithm does not.
        let out = run("softmax.log f64 2", &[owned([1000f64, 0.0])]);
        assert_eq!(out, [owned([0f64, -1000.0])]);
    }

    #[test]
    fn rows_without_a_finite_largest_element_are_nan() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let x = [owned([1f32, nan, 0.0, inf, -inf, -inf, 0.0, -inf])];
        for (kind, last) in [("softmax", "1.0, 0.0"), ("softmax.log", "0.0, -inf")] {
            let out = run(&format!("{kind} f32 4x2"), &x);
            let expected = format!("[F32([NaN, NaN, NaN, NaN, NaN, NaN, {last}])]");
            assert_eq!(format!("{out:?}"), expected);
        }
    }
}
