//! Reductions: one result for each group of elements that share the axes that stay.

use kernelwise_types::op::{Reduce, ReduceKind};
use kernelwise_types::{DTypeClass, TensorView, TensorViewMut, ViewError};
use num_complex::Complex;

use crate::elements::groups;
use crate::total::{Total, sum};
use crate::wide::{Real, Wide, goes_before, larger, smaller};

pub(crate) fn compute(
    op: &Reduce,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
) -> Result<(), ViewError> {
    use ReduceKind::{ArgMax, ArgMin, L2, Max, Mean, Min, Prod, Sum};
    match (op.kind, inputs[0].dtype().class()) {
        (L2, _) => reduced(op, inputs, outputs, |row: &[f64]| Some(length(row))),
        (Sum | Mean | Prod, DTypeClass::Float) => folded::<f64>(op, inputs, outputs),
        (Sum | Mean | Prod, DTypeClass::Complex) => folded::<Complex<f64>>(op, inputs, outputs),
        (Sum | Mean | Prod, _) => folded::<i128>(op, inputs, outputs),
        (Max | Min | ArgMax | ArgMin, DTypeClass::Float) => extreme::<f64>(op, inputs, outputs),
        (Max | Min | ArgMax | ArgMin, _) => extreme::<i128>(op, inputs, outputs),
    }
}

fn folded<W: Wide>(
    op: &Reduce,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
) -> Result<(), ViewError> {
    reduced(op, inputs, outputs, |row: &[W]| {
        let row_values = row.iter().copied();
        Some(match op.kind {
            ReduceKind::Prod => row_values.fold(W::ONE, W::times),
            ReduceKind::Mean => sum(row_values).over(row.len()),
            _ => sum(row_values),
        })
    })
}

fn extreme<W: Real>(
    op: &Reduce,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
) -> Result<(), ViewError> {
    let place = |row: &[W], beats: fn(W, W) -> bool| {
        let best = (0..row.len()).reduce(|best, new| {
            if goes_before(row[best], row[new], beats) {
                new
            } else {
                best
            }
        });
        best.map(|position| position as i128)
    };
    match op.kind {
        ReduceKind::ArgMax => reduced(op, inputs, outputs, |row| place(row, |a, b| a > b)),
        ReduceKind::ArgMin => reduced(op, inputs, outputs, |row| place(row, |a, b| a < b)),
        ReduceKind::Min => reduced(op, inputs, outputs, |row: &[W]| {
            row.iter().copied().reduce(smaller)
        }),
        _ => reduced(op, inputs, outputs, |row: &[W]| {
            row.iter().copied().reduce(larger)
        }),
    }
}

/// The root of the sum of squares.
fn length(row: &[f64]) -> f64 {
    let mut total = <f64 as Wide>::Total::default();
    for &value in row {
        total.add_product(value, value);
    }
    total.value().sqrt()
}

/// Makes one result of each group; there is one, for no group is empty.
fn reduced<W: Wide, R: Wide>(
    op: &Reduce,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
    make: impl Fn(&[W]) -> Option<R>,
) -> Result<(), ViewError> {
    let x = W::load(&inputs[0])?;
    let rows = groups(&op.shape, |axis| op.axes.contains(axis));
    let results = rows.into_iter().filter_map(|row| {
        let row: Vec<W> = row.into_iter().map(|position| x[position]).collect();
        make(&row)
    });
    R::store(&mut outputs[0], results.enumerate())
}

#[cfg(test)]
mod tests {
    use num_complex::Complex;

    use crate::trial::{owned, run, sample, values};

    #[test]
    fn each_kind_over_rows() {
        let x = owned([3f32, 1.0, 2.0, -4.0, 0.5, 2.0]);
        let of = |kind: &str| {
            run(
                &format!("reduce.{kind} f32 2x3 axes1"),
                std::slice::from_ref(&x),
            )
        };
        assert_eq!(of("sum"), [owned([6f32, -1.5])]);
        assert_eq!(of("mean"), [owned([2f32, -0.5])]);
        assert_eq!(of("prod"), [owned([6f32, -4.0])]);
        assert_eq!(of("max"), [owned([3f32, 2.0])]);
        assert_eq!(of("min"), [owned([1f32, -4.0])]);
        assert_eq!(of("argmax"), [owned([0i64, 2])]);
        assert_eq!(of("argmin"), [owned([1i64, 0])]);
        assert_eq!(of("l2"), [owned([14f32.sqrt(), 20.25f32.sqrt()])]);
    }

    #[test]
    fn axes_in_any_combination() {
        let x = owned((0..12i32).collect::<Vec<_>>());
        let of = |axes: &str| {
            run(
                &format!("reduce.sum i32 2x3x2{axes}"),
                std::slice::from_ref(&x),
            )
        };
        assert_eq!(of(""), [owned([66i32])]);
        assert_eq!(of(" axes0"), [owned([6i32, 8, 10, 12, 14, 16])]);
        assert_eq!(of(" axes1"), [owned([6i32, 9, 24, 27])]);
        assert_eq!(of(" axes0,2"), [owned([14i32, 22, 30])]);
        // Positions count through the reduced axes as if they were one.
        assert_eq!(
            run("reduce.argmax i32 2x3x2 axes0,2", &[x]),
            [owned([3i64, 3, 3])]
        );
        assert_eq!(
            run("reduce.max f64 scalar", &[owned([5f64])]),
            [owned([5f64])]
        );
    }

    #[test]
    fn integers_wrap_and_bytes_widen() {
        assert_eq!(
            run("reduce.sum i8 3", &[owned([127i8, 127, 1])]),
            [owned([255i32])]
        );
        assert_eq!(
            run("reduce.prod u8 3", &[owned([255u8, 255, 255])]),
            [owned([16581375i32])]
        );
        assert_eq!(
            run("reduce.sum i16 2", &[owned([32767i16, 1])]),
            [owned([-32768i16])]
        );
        assert_eq!(
            run("reduce.prod u64 2", &[owned([u64::MAX, u64::MAX])]),
            [owned([1u64])]
        );
        assert_eq!(
            run("reduce.max i8 2", &[owned([-128i8, -5])]),
            [owned([-5i8])]
        );
        assert_eq!(
            run("reduce.argmin u64 2", &[owned([u64::MAX, 1])]),
            [owned([1i64])]
        );
    }

    #[test]
    fn complex_sums_means_and_products() {
        let z = |re, im| Complex::<f32>::new(re, im);
        let x = owned([z(1.0, 2.0), z(3.0, -1.0)]);
        let of = |kind: &str| {
            run(
                &format!("reduce.{kind} complex64 2"),
                std::slice::from_ref(&x),
            )
        };
        assert_eq!(of("sum"), [owned([z(4.0, 1.0)])]);
        assert_eq!(of("mean"), [owned([z(2.0, 0.5)])]);
        assert_eq!(of("prod"), [owned([z(5.0, 5.0)])]);
    }

    #[test]
    fn sums_are_kept_wide() {
        let mut terms = vec![1f32; 101];
        terms[0] = 16777216.0;
        assert_eq!(
            run("reduce.sum f32 101", &[owned(terms)]),
            [owned([16777316f32])]
        );
        let x = [owned([1e16f64, 1.0, 1.0, -1e16])];
        assert_eq!(run("reduce.sum f64 4", &x), [owned([2f64])]);
    }

    #[test]
    fn the_first_of_equals_and_the_first_nan_win() {
        let nan = f32::NAN;
        let arg = |kind: &str, x: [f32; 4]| run(&format!("reduce.{kind} f32 4"), &[owned(x)]);
        assert_eq!(arg("argmax", [1.0, 5.0, 5.0, -1.0]), [owned([1i64])]);
        assert_eq!(arg("argmin", [1.0, -0.0, 0.0, 3.0]), [owned([1i64])]);
        for kind in ["argmax", "argmin"] {
            assert_eq!(arg(kind, [1.0, 9.0, nan, nan]), [owned([2i64])]);
            assert_eq!(arg(kind, [nan, 9.0, -9.0, nan]), [owned([0i64])]);
        }
        for kind in ["max", "min", "sum", "mean", "prod", "l2"] {
            for x in [
                [1.0, nan, 2.0, 0.0],
                [nan, 1.0, -1.0, 2.0],
                [1.0, 2.0, 3.0, nan],
            ] {
                assert!(values(&arg(kind, x)[0])[0].is_nan(), "{kind} of {x:?}");
            }
        }
    }

    #[test]
    fn infinities_add_up() {
        let inf = f64::INFINITY;
        let of = |kind: &str, x: [f64; 3]| {
            values(&run(&format!("reduce.{kind} f64 3"), &[owned(x)])[0])[0]
        };
        assert_eq!(of("sum", [1.0, inf, 1.0]), inf);
        assert!(of("sum", [-inf, inf, 1.0]).is_nan());
        assert_eq!(of("l2", [-inf, 0.0, 1.0]), inf);
        assert_eq!(of("max", [-inf, -inf, -inf]), -inf);
        assert_eq!(of("argmax", [-inf, -inf, -inf]), 0.0);
    }

    #[test]
    fn a_sum_is_the_product_with_ones() {
        let x = sample("i64", 4 * 9, 3);
        let sums = run("reduce.sum i64 4x9 axes1", std::slice::from_ref(&x));
        assert_eq!(run("matmul i64 4x9x1", &[x, owned([1i64; 9])])[0], sums[0]);
    }
}
