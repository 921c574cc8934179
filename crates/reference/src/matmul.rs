//! Matrix products: for each element of the result, the sum over the inner index.

use kernelwise_types::op::Matmul;
use kernelwise_types::{TensorView, TensorViewMut, ViewError};

use crate::total::Total;
use crate::wide::Wide;

pub(crate) fn compute<W: Wide>(
    op: &Matmul,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
) -> Result<(), ViewError> {
    let Matmul {
        batch,
        m,
        k,
        n,
        trans_a,
        trans_b,
    } = *op;
    let (a, b) = (W::load(&inputs[0])?, W::load(&inputs[1])?);
    let mut out = Vec::with_capacity(batch * m * n);
    for at in 0..batch {
        let (a, b) = (&a[at * m * k..], &b[at * k * n..]);
        for i in 0..m {
            for j in 0..n {
                let mut total = W::Total::default();
                for l in 0..k {
                    let a = if trans_a { a[l * m + i] } else { a[i * k + l] };
                    let b = if trans_b { b[j * k + l] } else { b[l * n + j] };
                    total.add_product(a, b);
                }
                out.push(total.value());
            }
        }
    }
    W::store(&mut outputs[0], out.into_iter().enumerate())
}

#[cfg(test)]
mod tests {
    use num_complex::Complex;

    use crate::trial::{Owned, owned, run, sample};

    #[test]
    fn rows_times_columns() {
        let out = run(
            "matmul f32 2x3x2",
            &[
                owned([1f32, 2.0, 3.0, 4.0, 5.0, 6.0]),
                owned([7f32, 8.0, 9.0, 10.0, 11.0, 12.0]),
            ],
        );
        // 1·7 + 2·9 + 3·11 = 58, …
        assert_eq!(out, [owned([58f32, 64.0, 139.0, 154.0])]);
    }

    #[test]
    fn each_batch_is_a_product_of_its_own() {
        let out = run(
            "matmul f64 2x1x2x1",
            &[owned([1f64, 2.0, 3.0, 4.0]), owned([5f64, 6.0, 7.0, 8.0])],
        );
        assert_eq!(out, [owned([17f64, 53.0])]);
    }

    #[test]
    fn a_transposed_side_is_the_other_way_round_in_memory() {
        // [1 3; 2 4]·[5 7; 6 8] from sides stored as [1 2; 3 4] and [5 6; 7 8].
        let sides = [owned([1i32, 2, 3, 4]), owned([5i32, 6, 7, 8])];
        assert_eq!(
            run("matmul i32 2x2x2 ta tb", &sides),
            [owned([23i32, 31, 34, 46])]
        );
        assert_eq!(
            run("matmul i32 2x2x2 ta", &sides),
            [owned([26i32, 30, 38, 44])]
        );
        assert_eq!(
            run("matmul i32 2x2x2 tb", &sides),
            [owned([17i32, 23, 39, 53])]
        );
        assert_eq!(
            run("matmul i32 2x2x2", &sides),
            [owned([19i32, 22, 43, 50])]
        );
    }

    #[test]
    fn a_transposed_side_equals_the_transposed_tensor() {
        let (a, b) = (sample("f32", 3 * 5, 1), sample("f32", 5 * 4, 2));
        let turned = |x: &Owned, shape: &str| {
            run(
                &format!("transpose f32 {shape} perm1,0"),
                std::slice::from_ref(x),
            )
        };
        let plain = run("matmul f32 3x5x4", &[a.clone(), b.clone()]);
        let (ta, tb) = (turned(&a, "3x5").remove(0), turned(&b, "5x4").remove(0));
        assert_eq!(run("matmul f32 3x5x4 ta tb", &[ta, tb]), plain);
    }

    #[test]
    fn bytes_widen_and_integers_wrap() {
        let out = run(
            "matmul i8 1x2x1",
            &[owned([-128i8, 127]), owned([-128i8, 127])],
        );
        assert_eq!(out, [owned([16384i32 + 16129])]);
        let out = run("matmul u8 1x2x1", &[owned([255u8, 255]), owned([255u8, 1])]);
        assert_eq!(out, [owned([65025i32 + 255])]);
        let out = run("matmul i16 1x1x1", &[owned([300i16]), owned([300i16])]);
        assert_eq!(out, [owned([(90000 - 65536) as i16])]);
        let out = run(
            "matmul u64 1x2x1",
            &[owned([u64::MAX, 1]), owned([u64::MAX, 1])],
        );
        assert_eq!(out, [owned([2u64])]);
    }

    #[test]
    fn complex_sides_are_not_conjugated() {
        let z = |re, im| Complex::<f32>::new(re, im);
        let out = run(
            "matmul complex64 1x2x1",
            &[
                owned([z(1.0, 2.0), z(0.0, 1.0)]),
                owned([z(3.0, -1.0), z(0.0, 1.0)]),
            ],
        );
        // (1 + 2i)(3 − i) + i·i = (5 + 5i) − 1
        assert_eq!(out, [owned([z(4.0, 5.0)])]);
    }

    #[test]
    fn sums_are_kept_wide_and_rounded_once() {
        // In f32 the small terms would vanish beside 2²⁴, in f16 the sum would overflow on its way.
        let out = run(
            "matmul f32 1x3x1",
            &[owned([16777216f32, 1.0, 1.0]), owned([1f32; 3])],
        );
        assert_eq!(out, [owned([16777218f32])]);
        let h = half::f16::from_f32;
        let out = run(
            "matmul f16 1x2x1",
            &[owned([h(60000.0), h(-60000.0)]), owned([h(2.0), h(1.5)])],
        );
        assert_eq!(out, [owned([h(30000.0)])]);
        let b = half::bf16::from_f32;
        let out = run(
            "matmul bf16 1x2x1",
            &[owned([b(1.0), b(1.0)]), owned([b(1.0), b(0.25)])],
        );
        assert_eq!(out, [owned([b(1.25)])]);
        let out = run(
            "matmul f64 1x3x1",
            &[owned([1e16f64, 1.0, -1e16]), owned([1f64; 3])],
        );
        assert_eq!(out, [owned([1f64])]);
    }

    #[test]
    fn infinities_and_nan_stay_in_their_row_and_column() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let out = run(
            "matmul f32 2x2x2",
            &[owned([nan, 1.0, 1.0, 1.0]), owned([1f32, 1.0, inf, 1.0])],
        );
        assert_eq!(format!("{out:?}"), "[F32([NaN, NaN, inf, 2.0])]");
    }
}
