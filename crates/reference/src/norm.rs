//! Normalisation: statistics by two passes in `f64`, the variance biased (divided by the number of
//! elements).

use kernelwise_types::op::{Norm, NormKind};
use kernelwise_types::{TensorView, TensorViewMut, ViewError};

use crate::elements::{groups, lines};
use crate::total::{Total, sum};
use crate::wide::Wide;

/// Keeps the root away from zero; `op/norm.rs` fixes it.
const EPSILON: f64 = 1e-5;

pub(crate) fn compute(
    op: &Norm,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
) -> Result<(), ViewError> {
    let x = f64::load(&inputs[0])?;
    let vectors: Vec<Vec<f64>> = inputs[1..]
        .iter()
        .map(f64::load)
        .collect::<Result<_, _>>()?;
    let mut out = Vec::with_capacity(x.len());
    match op.kind {
        NormKind::Layer => {
            for line in lines(&op.shape, op.shape.rank() - 1) {
                let (mean, variance) = statistics(&x, &line);
                for (column, position) in line.into_iter().enumerate() {
                    let unit = (x[position] - mean) / (variance + EPSILON).sqrt();
                    out.push((position, unit * vectors[0][column] + vectors[1][column]));
                }
            }
        }
        NormKind::Rms => {
            for line in lines(&op.shape, op.shape.rank() - 1) {
                let mean_square =
                    squares(line.iter().map(|&position| x[position])).over(line.len());
                for (column, position) in line.into_iter().enumerate() {
                    let unit = x[position] / (mean_square + EPSILON).sqrt();
                    out.push((position, unit * vectors[0][column]));
                }
            }
        }
        NormKind::Batch => {
            let (mut means, mut variances) = (Vec::new(), Vec::new());
            for (channel, group) in groups(&op.shape, |axis| axis != 1).into_iter().enumerate() {
                let (mean, variance) = if op.inference {
                    (vectors[2][channel], vectors[3][channel])
                } else {
                    statistics(&x, &group)
                };
                for position in group {
                    let unit = (x[position] - mean) / (variance + EPSILON).sqrt();
                    out.push((position, unit * vectors[0][channel] + vectors[1][channel]));
                }
                means.push(mean);
                variances.push(variance);
            }
            if !op.inference {
                f64::store(&mut outputs[1], means.into_iter().enumerate())?;
                f64::store(&mut outputs[2], variances.into_iter().enumerate())?;
            }
        }
    }
    f64::store(&mut outputs[0], out)
}

/// Mean and biased variance of the elements at these positions.
fn statistics(x: &[f64], positions: &[usize]) -> (f64, f64) {
    let values = || positions.iter().map(|&position| x[position]);
    let mean = sum(values()).over(positions.len());
    let variance = squares(values().map(|value| value - mean)).over(positions.len());
    (mean, variance)
}

fn squares(values: impl Iterator<Item = f64>) -> f64 {
    let mut total = <f64 as Wide>::Total::default();
    for value in values {
        total.add_product(value, value);
    }
    total.value()
}

#[cfg(test)]
mod tests {
    use crate::trial::{owned, run, values};

    #[track_caller]
    fn near(actual: &[f64], expected: &[f64]) {
        assert_eq!(actual.len(), expected.len());
        for (a, e) in actual.iter().zip(expected) {
            assert!(
                (a - e).abs() <= 1e-15 * e.abs().max(1.0),
                "{actual:?} is not {expected:?}"
            );
        }
    }

    #[test]
    fn layer_normalises_each_row() {
        // Means 2 and 5, variances 1 and 4.
        let out = run(
            "norm.layer f64 2x2",
            &[
                owned([1f64, 3.0, 3.0, 7.0]),
                owned([1f64, 10.0]),
                owned([0.5f64, 0.0]),
            ],
        );
        let (a, b) = (1.0 / 1.00001f64.sqrt(), 2.0 / 4.00001f64.sqrt());
        near(&values(&out[0]), &[0.5 - a, 10.0 * a, 0.5 - b, 10.0 * b]);
    }

    #[test]
    fn rms_leaves_the_mean() {
        // Mean squares (9 + 16)/2 and (1 + 1)/2.
        let out = run(
            "norm.rms f64 2x2",
            &[owned([3f64, 4.0, 1.0, -1.0]), owned([1f64, 2.0])],
        );
        let (a, b) = (1.0 / 12.50001f64.sqrt(), 1.0 / 1.00001f64.sqrt());
        near(&values(&out[0]), &[3.0 * a, 8.0 * a, b, -2.0 * b]);
    }

    #[test]
    fn batch_normalises_each_channel_and_gives_its_statistics() {
        // Two samples of two channels of two elements: channel 0 is 1, 3, 5, 7, channel 1 all 2.
        let out = run(
            "norm.batch f64 2x2x2",
            &[
                owned([1f64, 3.0, 2.0, 2.0, 5.0, 7.0, 2.0, 2.0]),
                owned([1f64, 9.0]),
                owned([0f64, 0.25]),
            ],
        );
        let unit = 1.0 / 5.00001f64.sqrt();
        near(
            &values(&out[0]),
            &[-3.0 * unit, -unit, 0.25, 0.25, unit, 3.0 * unit, 0.25, 0.25],
        );
        // Biased: (9 + 1 + 1 + 9)/4.
        assert_eq!(out[1..], [owned([4f64, 2.0]), owned([5f64, 0.0])]);
    }

    #[test]
    fn batch_takes_learned_statistics_when_told() {
        let out = run(
            "norm.batch f64 2x1 infer",
            &[
                owned([1f64, 5.0]),
                owned([2f64]),
                owned([1f64]),
                owned([3f64]),
                owned([4f64]),
            ],
        );
        let unit = 2.0 / 4.00001f64.sqrt();
        near(&values(&out[0]), &[1.0 - 2.0 * unit, 1.0 + 2.0 * unit]);
    }

    #[test]
    fn a_large_mean_does_not_drown_the_variance() {
        let h = half::f16::from_f32;
        let out = run(
            "norm.layer f16 2",
            &[
                owned([h(2048.0), h(2050.0)]),
                owned([h(1.0); 2]),
                owned([h(0.0); 2]),
            ],
        );
        assert_eq!(out, [owned([h(-0.999995), h(0.999995)])]);
        let out = run(
            "norm.layer f64 2",
            &[
                owned([1e12f64, 1e12 + 2.0]),
                owned([1f64; 2]),
                owned([0f64; 2]),
            ],
        );
        near(
            &values(&out[0]),
            &[-1.0 / 1.00001f64.sqrt(), 1.0 / 1.00001f64.sqrt()],
        );
    }

    #[test]
    fn nan_spoils_its_own_group() {
        let out = run(
            "norm.layer f32 2x2",
            &[
                owned([f32::NAN, 1.0, 4.0, 4.0]),
                owned([1f32; 2]),
                owned([3f32; 2]),
            ],
        );
        assert_eq!(format!("{out:?}"), "[F32([NaN, NaN, 3.0, 3.0])]");
    }
}
