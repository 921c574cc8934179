//! Scans: what has been joined so far, at every place of a row.

use kernelwise_types::op::{Scan, ScanKind};
use kernelwise_types::{DTypeClass, TensorView, TensorViewMut, ViewError};
use num_complex::Complex;

use crate::elements::lines;
use crate::total::Total;
use crate::wide::{Real, Wide, larger, smaller};

pub(crate) fn compute(
    op: &Scan,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
) -> Result<(), ViewError> {
    use ScanKind::{Max, Min, Prod, Sum};
    match (op.kind, inputs[0].dtype().class()) {
        (Sum, DTypeClass::Float) => sums::<f64>(op, inputs, outputs),
        (Sum, DTypeClass::Complex) => sums::<Complex<f64>>(op, inputs, outputs),
        (Sum, _) => sums::<i128>(op, inputs, outputs),
        (Prod, DTypeClass::Float) => products::<f64>(op, inputs, outputs),
        (Prod, DTypeClass::Complex) => products::<Complex<f64>>(op, inputs, outputs),
        (Prod, _) => products::<i128>(op, inputs, outputs),
        (Max | Min, DTypeClass::Float) => extremes::<f64>(op, inputs, outputs),
        (Max | Min, _) => extremes::<i128>(op, inputs, outputs),
    }
}

fn sums<W: Wide>(
    op: &Scan,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
) -> Result<(), ViewError> {
    let so_far: fn(&W::Total) -> W = W::Total::value;
    scanned(
        op,
        inputs,
        outputs,
        W::Total::default,
        W::Total::add,
        so_far,
    )
}

fn products<W: Wide>(
    op: &Scan,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
) -> Result<(), ViewError> {
    joined(op, inputs, outputs, W::ONE, W::times)
}

/// The neutral element of a maximum is the lowest number there is, that of a minimum the highest.
fn extremes<W: Real>(
    op: &Scan,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
) -> Result<(), ViewError> {
    let (lowest, highest) = W::bounds(inputs[0].dtype());
    match op.kind {
        ScanKind::Min => joined(op, inputs, outputs, highest, smaller),
        _ => joined(op, inputs, outputs, lowest, larger),
    }
}

fn joined<W: Wide>(
    op: &Scan,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
    neutral: W,
    join: impl Fn(W, W) -> W,
) -> Result<(), ViewError> {
    let add = |so_far: &mut W, value| *so_far = join(*so_far, value);
    scanned(op, inputs, outputs, || neutral, add, |so_far| *so_far)
}

fn scanned<W: Wide, S>(
    op: &Scan,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
    start: impl Fn() -> S,
    add: impl Fn(&mut S, W),
    value: impl Fn(&S) -> W,
) -> Result<(), ViewError> {
    let x = W::load(&inputs[0])?;
    let mut out = Vec::with_capacity(x.len());
    for mut line in lines(&op.shape, op.axis) {
        if op.reverse {
            line.reverse();
        }
        let mut so_far = start();
        for position in line {
            let before = value(&so_far);
            add(&mut so_far, x[position]);
            let after = value(&so_far);
            out.push((position, if op.exclusive { before } else { after }));
        }
    }
    W::store(&mut outputs[0], out)
}

#[cfg(test)]
mod tests {
    use num_complex::Complex;
    use proptest::prelude::*;

    use crate::trial::{owned, run, sample, values};

    #[test]
    fn running_sums_in_each_direction() {
        let x = owned([1f32, 2.0, 3.0, 10.0, 20.0, 30.0]);
        let of = |flags: &str| {
            run(
                &format!("scan.sum f32 2x3{flags}"),
                std::slice::from_ref(&x),
            )
        };
        assert_eq!(of(""), [owned([1f32, 3.0, 6.0, 10.0, 30.0, 60.0])]);
        assert_eq!(of(" exclusive"), [owned([0f32, 1.0, 3.0, 0.0, 10.0, 30.0])]);
        assert_eq!(of(" reverse"), [owned([6f32, 5.0, 3.0, 60.0, 50.0, 30.0])]);
        assert_eq!(
            of(" exclusive reverse"),
            [owned([5f32, 3.0, 0.0, 50.0, 30.0, 0.0])]
        );
        assert_eq!(of(" axis0"), [owned([1f32, 2.0, 3.0, 11.0, 22.0, 33.0])]);
    }

    #[test]
    fn products_and_extremes() {
        let x = owned([2i32, -3, 1, 5]);
        let of = |kind: &str| run(&format!("scan.{kind} i32 4"), std::slice::from_ref(&x));
        assert_eq!(of("prod"), [owned([2i32, -6, -6, -30])]);
        assert_eq!(of("max"), [owned([2i32, 2, 2, 5])]);
        assert_eq!(of("min"), [owned([2i32, -3, -3, -3])]);
        let x = owned([1.5f64, -2.0]);
        assert_eq!(
            run("scan.prod f64 2", std::slice::from_ref(&x)),
            [owned([1.5f64, -3.0])]
        );
        assert_eq!(run("scan.min f64 2", &[x]), [owned([1.5f64, -2.0])]);
    }

    #[test]
    fn exclusive_scans_begin_with_the_neutral_element() {
        let of = |kind: &str, dtype: &str| {
            let out = run(
                &format!("scan.{kind} {dtype} 1 exclusive"),
                &[sample(dtype, 1, 0)],
            );
            format!("{:?}", out[0])
        };
        assert_eq!(of("sum", "u16"), "U16([0])");
        assert_eq!(of("prod", "f64"), "F64([1.0])");
        assert_eq!(of("prod", "i16"), "I16([1])");
        assert_eq!(
            of("prod", "complex64"),
            "Complex64([Complex { re: 1.0, im: 0.0 }])"
        );
        assert_eq!(
            (of("max", "i8"), of("min", "i8")),
            ("I8([-128])".into(), "I8([127])".into())
        );
        assert_eq!(
            (of("max", "u32"), of("min", "u32")),
            ("U32([0])".into(), "U32([4294967295])".into())
        );
        assert_eq!(
            (of("max", "f16"), of("min", "bf16")),
            ("F16([-inf])".into(), "Bf16([inf])".into())
        );
    }

    #[test]
    fn integers_wrap_bytes_widen_complex_numbers_join() {
        assert_eq!(
            run("scan.sum i8 3", &[owned([100i8, 100, 100])]),
            [owned([100i32, 200, 300])]
        );
        assert_eq!(
            run("scan.sum u16 2", &[owned([65535u16, 2])]),
            [owned([65535u16, 1])]
        );
        assert_eq!(
            run("scan.max u8 2", &[owned([3u8, 200])]),
            [owned([3u8, 200])]
        );
        let i = Complex::new(0f32, 1.0);
        let out = run("scan.sum complex64 2", &[owned([i, i])]);
        assert_eq!(out, [owned([i, i + i])]);
        let out = run("scan.prod complex64 2", &[owned([i, i])]);
        assert_eq!(out, [owned([i, Complex::new(-1.0, 0.0)])]);
    }

    #[test]
    fn nan_stays_once_met() {
        let x = [owned([1f32, f32::NAN, 2.0])];
        for kind in ["sum", "prod", "max", "min"] {
            let out = run(&format!("scan.{kind} f32 3"), &x);
            assert_eq!(format!("{out:?}"), "[F32([1.0, NaN, NaN])]");
        }
    }

    proptest! {
        #[test]
        fn the_last_of_a_scan_is_the_reduction(n in 1usize..40, seed in 0u64..1000) {
            for (kind, dtype) in [("sum", "f32"), ("prod", "i16"), ("max", "f64"), ("min", "u8"), ("sum", "i8")] {
                let x = [sample(dtype, n, seed)];
                let scan = values(&run(&format!("scan.{kind} {dtype} {n}"), &x)[0]);
                let reduce = values(&run(&format!("reduce.{kind} {dtype} {n}"), &x)[0]);
                prop_assert_eq!(scan.last(), reduce.last());
            }
        }
    }
}
