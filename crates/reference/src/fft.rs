//! Fourier transforms by their definition, n² products for a row of n.
//!
//! Forward, element k is the sum of x(j)·exp(−2πi·jk/n), not scaled; back has the other sign and is divided
//! by n.

use std::f64::consts::FRAC_PI_2;

use kernelwise_types::op::{Fft, FftKind};
use kernelwise_types::{TensorView, TensorViewMut, ViewError};
use num_complex::Complex;

use crate::elements::lines;
use crate::total::Total;
use crate::wide::Wide;

type C = Complex<f64>;

pub(crate) fn compute(
    op: &Fft,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
) -> Result<(), ViewError> {
    let axis = op.shape.rank() - 1;
    let n = op.shape.dims()[axis];
    let roots = roots(n);
    let rows = |view: &TensorView<'_>| lines(view.shape(), axis);
    let places = rows(&inputs[0])
        .into_iter()
        .zip(rows(&outputs[0].as_view()));
    match op.kind {
        FftKind::Forward | FftKind::Inverse => {
            let x = C::load(&inputs[0])?;
            let out = places.flat_map(|(from, to)| {
                let row: Vec<C> = from.into_iter().map(|position| x[position]).collect();
                let result = match op.kind {
                    FftKind::Forward => forward(&row, &roots),
                    _ => back(&row, &roots),
                };
                to.into_iter().zip(result)
            });
            C::store(&mut outputs[0], out.collect::<Vec<_>>())
        }
        FftKind::Real => {
            let x = f64::load(&inputs[0])?;
            let out = places.flat_map(|(from, to)| {
                let real = from
                    .into_iter()
                    .map(|position| Complex::new(x[position], 0.0));
                // As many as the result has room for: the rest mirrors them.
                to.into_iter()
                    .zip(forward(&real.collect::<Vec<_>>(), &roots))
            });
            C::store(&mut outputs[0], out.collect::<Vec<_>>())
        }
        FftKind::InverseReal => {
            let x = C::load(&inputs[0])?;
            let out = places.flat_map(|(from, to)| {
                let half: Vec<C> = from.into_iter().map(|position| x[position]).collect();
                let real = back(&mirrored(&half, n), &roots);
                to.into_iter().zip(real.into_iter().map(|value| value.re))
            });
            f64::store(&mut outputs[0], out.collect::<Vec<_>>())
        }
    }
}

/// exp(2πi·r/n) for each r. Quarter turns are exact, and sine and cosine are taken of at most an eighth.
fn roots(n: usize) -> Vec<C> {
    let root = |r: usize| {
        let (quarter, rest) = (4 * r / n, 4 * r % n);
        let part = |share: usize| (FRAC_PI_2 * share as f64 / n as f64).sin_cos();
        let (sin, cos) = if 2 * rest <= n {
            part(rest)
        } else {
            let (sin, cos) = part(n - rest);
            (cos, sin)
        };
        match quarter {
            0 => Complex::new(cos, sin),
            1 => Complex::new(-sin, cos),
            2 => Complex::new(-cos, -sin),
            _ => Complex::new(sin, -cos),
        }
    };
    (0..n).map(root).collect()
}

fn forward(row: &[C], roots: &[C]) -> Vec<C> {
    transform(row, |r| roots[r].conj())
}

fn back(row: &[C], roots: &[C]) -> Vec<C> {
    let sums = transform(row, |r| roots[r]);
    sums.into_iter().map(|sum| sum.over(row.len())).collect()
}

fn transform(row: &[C], root: impl Fn(usize) -> C) -> Vec<C> {
    let n = row.len();
    let at = |k: usize| {
        let mut total = <C as Wide>::Total::default();
        let mut turn = 0;
        for &value in row {
            total.add_product(value, root(turn));
            turn = (turn + k) % n;
        }
        total.value()
    };
    (0..n).map(at).collect()
}

/// The whole spectrum of a real row from its first half. The first element and, of an even row, the middle one
/// are real; what imaginary part they have is passed over.
fn mirrored(half: &[C], n: usize) -> Vec<C> {
    let element = |k: usize| {
        if k == 0 || 2 * k == n {
            Complex::new(half[k].re, 0.0)
        } else if 2 * k < n {
            half[k]
        } else {
            half[n - k].conj()
        }
    };
    (0..n).map(element).collect()
}

#[cfg(test)]
mod tests {
    use num_complex::Complex;
    use proptest::prelude::*;

    use super::roots;
    use crate::trial::{Owned, owned, run, sample};

    fn z(re: f64, im: f64) -> Complex<f64> {
        Complex::new(re, im)
    }

    fn complex(out: &[Owned]) -> Vec<Complex<f64>> {
        match &out[0] {
            Owned::Complex128(values) => values.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_row_of_four_by_hand() {
        let x = owned([z(1.0, 0.0), z(2.0, 0.0), z(3.0, 0.0), z(4.0, 0.0)]);
        // Turns of i: 1 − 2i − 3 + 4i, and so on; exact, because quarter turns are.
        let spectrum = [z(10.0, 0.0), z(-2.0, 2.0), z(-2.0, 0.0), z(-2.0, -2.0)];
        assert_eq!(
            run("fft complex128 4", std::slice::from_ref(&x)),
            [owned(spectrum)]
        );
        assert_eq!(run("fft.inverse complex128 4", &[owned(spectrum)]), [x]);
        let real = owned([1f64, 2.0, 3.0, 4.0]);
        assert_eq!(
            run("fft.real f64 4", std::slice::from_ref(&real)),
            [owned(spectrum[..3].to_vec())]
        );
        assert_eq!(
            run("fft.inverse_real f64 4", &[owned(spectrum[..3].to_vec())]),
            [real]
        );
    }

    #[test]
    fn rows_are_apart_and_single_precision_works() {
        let c = |re| Complex::new(re, 0f32);
        let out = run(
            "fft complex64 2x2",
            &[owned([c(1.0), c(2.0), c(10.0), c(30.0)])],
        );
        assert_eq!(out, [owned([c(3.0), c(-1.0), c(40.0), c(-20.0)])]);
        let out = run("fft.real f32 2x2", &[owned([1f32, 2.0, 10.0, 30.0])]);
        assert_eq!(out, [owned([c(3.0), c(-1.0), c(40.0), c(-20.0)])]);
        let out = run(
            "fft.inverse_real f32 2x2",
            &[owned([c(3.0), c(-1.0), c(40.0), c(-20.0)])],
        );
        assert_eq!(out, [owned([1f32, 2.0, 10.0, 30.0])]);
        let out = run("fft.real f64 1", &[owned([7f64])]);
        assert_eq!(out, [owned([z(7.0, 0.0)])]);
    }

    #[test]
    fn imaginary_parts_that_no_real_row_has_are_passed_over() {
        for im in [5.0, f64::INFINITY, f64::NAN] {
            let out = run(
                "fft.inverse_real f64 2",
                &[owned([z(3.0, im), z(-1.0, im)])],
            );
            assert_eq!(out, [owned([1f64, 2.0])]);
        }
    }

    #[test]
    fn roots_are_exact_where_they_can_be() {
        assert_eq!(
            roots(4),
            [z(1.0, 0.0), z(-0.0, 1.0), z(-1.0, -0.0), z(0.0, -1.0)]
        );
        for n in [3, 5, 8, 12, 100] {
            for (r, root) in roots(n).into_iter().enumerate() {
                let (sin, cos) = (std::f64::consts::TAU * r as f64 / n as f64).sin_cos();
                assert!((root - z(cos, sin)).norm_sqr() < 1e-30, "{r} of {n}");
            }
        }
    }

    #[test]
    fn nan_reaches_its_whole_row_and_no_other() {
        let x = owned([f64::NAN, 1.0, 1.0, 1.0]);
        let out = complex(&run("fft.real f64 2x2", &[x]));
        assert!(out[..2].iter().all(|value| value.re.is_nan()));
        assert_eq!(out[2..], [z(2.0, 0.0), z(0.0, 0.0)]);
    }

    proptest! {
        /// Parseval: a spectrum has n times the energy of its signal.
        #[test]
        fn energy_is_kept_and_inverses_come_back(n in 1usize..24, seed in 0u64..1000) {
            let x = sample("complex128", 2 * n, seed);
            let spectrum = run(&format!("fft complex128 2x{n}"), std::slice::from_ref(&x));
            let energy = |row: &[Complex<f64>]| row.iter().map(Complex::norm_sqr).sum::<f64>();
            let (signal, bins) = (complex(std::slice::from_ref(&x)), complex(&spectrum));
            for (x, bins) in signal.chunks(n).zip(bins.chunks(n)) {
                prop_assert!((energy(bins) - n as f64 * energy(x)).abs() <= 1e-12 * energy(bins).max(1.0));
            }
            let again = complex(&run(&format!("fft.inverse complex128 2x{n}"), &spectrum));
            for (a, b) in signal.iter().zip(&again) {
                prop_assert!((a - b).norm_sqr() < 1e-26);
            }
        }

        #[test]
        fn real_transforms_are_half_of_complex_ones(n in 1usize..24, seed in 0u64..1000) {
            let real = sample("f64", n, seed);
            let Owned::F64(values) = &real else { unreachable!() };
            let full: Vec<_> = values.iter().map(|&x| z(x, 0.0)).collect();
            let half = complex(&run(&format!("fft.real f64 {n}"), std::slice::from_ref(&real)));
            let full = complex(&run(&format!("fft complex128 {n}"), &[owned(full)]));
            prop_assert_eq!(&half[..], &full[..n / 2 + 1]);
            let back = run(&format!("fft.inverse_real f64 {n}"), &[owned(half)]);
            let Owned::F64(back) = &back[0] else { unreachable!() };
            for (a, b) in values.iter().zip(back) {
                prop_assert!((a - b).abs() < 1e-13);
            }
        }
    }
}
