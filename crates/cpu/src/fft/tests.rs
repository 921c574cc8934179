use kernelwise_backend::{Call, Knobs, Scratch, Setting, Sharing};
use kernelwise_types::{DType, Workload};
use num_complex::Complex;

use super::*;
use crate::index::trial::{Dice, Tensor, fitting, reference, run};

fn all() -> Vec<Arc<dyn HostKernel>> {
    let mut all = kernels(&Level::all()).unwrap();
    for level in Level::all() {
        all.push(Arc::new(DirectKernel::<f32>::new(level).unwrap()));
        all.push(Arc::new(DirectKernel::<f64>::new(level).unwrap()));
    }
    all
}

/// Numbers between −1 and 1.
fn operand(operand: &kernelwise_types::op::Operand, seed: u64) -> Tensor {
    let mut dice = Dice::new(seed);
    let mut number = move || (dice.roll() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
    Tensor::new(operand.dtype, operand.shape, |_| match operand.dtype {
        DType::F32 => (number() as f32).to_bits().into(),
        DType::F64 => number().to_bits().into(),
        DType::Complex64 => {
            u128::from((number() as f32).to_bits()) | u128::from((number() as f32).to_bits()) << 32
        }
        _ => u128::from(number().to_bits()) | u128::from(number().to_bits()) << 64,
    })
}

fn parts(tensor: &Tensor) -> Vec<f64> {
    match tensor.view().dtype() {
        DType::F32 => tensor.values::<f32>().into_iter().map(f64::from).collect(),
        DType::F64 => tensor.values::<f64>(),
        DType::Complex64 => tensor
            .values::<Complex<f32>>()
            .into_iter()
            .flat_map(|z| [f64::from(z.re), f64::from(z.im)])
            .collect(),
        _ => tensor
            .values::<Complex<f64>>()
            .into_iter()
            .flat_map(|z| [z.re, z.im])
            .collect(),
    }
}

fn operands(text: &str) -> (Workload, Vec<Tensor>, Vec<Tensor>) {
    let w: Workload = text.parse().unwrap();
    let inputs = w.inputs().iter().map(|o| operand(o, 3)).collect();
    let outputs = w.outputs().iter().map(|o| operand(o, 4)).collect();
    (w, inputs, outputs)
}

/// The largest error of every kernel, for numbers up to one; returns how many kernels there were.
fn compare(text: &str, len: usize) -> usize {
    let (w, inputs, before) = operands(text);
    let mut expected = before.clone();
    reference(&w, &inputs, &mut expected).unwrap();
    let expected = parts(&expected[0]);
    let epsilon = if matches!(w.dtype(), DType::F32 | DType::Complex64) {
        f64::from(f32::EPSILON)
    } else {
        f64::EPSILON
    };
    // A result is a sum of `len` numbers up to √2, each rounded a few times on the way.
    let back = text.starts_with("fft.inverse");
    let size = if back { 2.0 } else { 2.0 * len as f64 };
    let tolerance = 4.0 * epsilon * size;
    let all = all();
    let fitting = fitting(&all, &w);
    for kernel in &fitting {
        for threads in [1, 2, 3, 0, u32::MAX] {
            let mut actual = before.clone();
            run(
                *kernel,
                &w,
                &FftKnobs { threads }.setting(),
                &inputs,
                &mut actual,
            )
            .unwrap();
            for (place, (a, e)) in parts(&actual[0]).into_iter().zip(&expected).enumerate() {
                assert!(
                    (a - e).abs() <= tolerance,
                    "{} on {text}: {a} not {e} at {place}",
                    kernel.spec().id
                );
            }
        }
    }
    fitting.len()
}

#[test]
fn rows_of_every_length_and_kind() {
    for len in (1..=20).chain([25, 31, 32, 48, 64, 97, 128, 210]) {
        for rows in [1, 3, 37] {
            if rows * len > 1000 {
                continue;
            }
            // One of each level, and the library.
            let least = if len <= direct::MAX_LEN { 3 } else { 1 };
            for kind in ["", ".inverse"] {
                for dtype in ["complex64", "complex128"] {
                    assert_eq!(compare(&format!("fft{kind} {dtype} {rows}x{len}"), len), 1);
                }
            }
            for kind in ["real", "inverse_real"] {
                for dtype in ["f32", "f64"] {
                    assert!(compare(&format!("fft.{kind} {dtype} {rows}x{len}"), len) >= least);
                }
            }
        }
    }
}

#[test]
fn imaginary_parts_that_no_real_row_has_are_passed_over() {
    for len in [2usize, 5, 6, 40] {
        let (w, mut inputs, before) = operands(&format!("fft.inverse_real f64 2x{len}"));
        let half = len / 2 + 1;
        let clean = inputs.clone();
        let values = clean[0].values::<Complex<f64>>();
        let o = &w.inputs()[0];
        inputs[0] = Tensor::new(o.dtype, o.shape, |at| {
            let k = at % half;
            let unused = k == 0 || 2 * k == len;
            let im = if unused { f64::NAN } else { values[at].im };
            u128::from(values[at].re.to_bits()) | u128::from(im.to_bits()) << 64
        });
        let mut expected = before.clone();
        reference(&w, &clean, &mut expected).unwrap();
        for kernel in fitting(&all(), &w) {
            let mut actual = before.clone();
            run(
                kernel,
                &w,
                &FftKnobs { threads: 1 }.setting(),
                &inputs,
                &mut actual,
            )
            .unwrap();
            for (a, e) in parts(&actual[0]).into_iter().zip(parts(&expected[0])) {
                assert!((a - e).abs() < 1e-14, "{} {len}: {a} {e}", kernel.spec().id);
            }
        }
    }
}

#[test]
fn nan_stays_in_its_row() {
    for len in [4, 7, 16, 30] {
        let (w, mut inputs, before) = operands(&format!("fft complex64 3x{len}"));
        let values = inputs[0].values::<Complex<f32>>();
        let o = &w.inputs()[0];
        inputs[0] = Tensor::new(o.dtype, o.shape, |at| {
            let re = if at == len + 1 {
                f32::NAN
            } else {
                values[at].re
            };
            u128::from(re.to_bits()) | u128::from(values[at].im.to_bits()) << 32
        });
        for kernel in fitting(&all(), &w) {
            let mut actual = before.clone();
            run(
                kernel,
                &w,
                &FftKnobs { threads: 1 }.setting(),
                &inputs,
                &mut actual,
            )
            .unwrap();
            for (at, z) in actual[0].values::<Complex<f32>>().into_iter().enumerate() {
                assert_eq!(
                    z.re.is_nan() || z.im.is_nan(),
                    at / len == 1,
                    "{} {len} {at}",
                    kernel.spec().id
                );
            }
        }
    }
}

#[test]
fn threads_show_in_the_memory_they_take() {
    let machine = kernelwise_probe::machine();
    for text in [
        "fft complex64 8x1000",
        "fft.real f32 8x1000",
        "fft.inverse_real f64 8x1000",
    ] {
        let w: Workload = text.parse().unwrap();
        for kernel in fitting(&all(), &w) {
            let need = |threads| kernel.workspace(&w, &FftKnobs { threads }.setting()).0;
            assert!(
                need(2) > need(1) && need(20) == need(8),
                "{}",
                kernel.spec().id
            );
            let offered = kernel.space(&w, &machine).iter().count();
            assert_eq!(offered, machine.usable_threads() as usize);
        }
    }
}

#[test]
fn what_is_not_its_own_is_refused_and_outputs_untouched() {
    let all = all();
    let find = |id: &str| {
        all.iter()
            .find(|kernel| kernel.spec().id.as_str() == id)
            .unwrap()
            .as_ref()
    };
    for (id, text) in [
        ("cpu-fft-complex64-rustfft", "fft complex128 2x8"),
        ("cpu-fft-complex64-rustfft", "fft.real f32 2x8"),
        ("cpu-fft-complex64-rustfft", "copy complex64 2x8"),
        ("cpu-fft-f32_complex64-realfft", "fft.real f64 2x8"),
        ("cpu-fft-f32_complex64-realfft", "fft complex64 2x8"),
        ("cpu-fft-f32_complex64-direct-portable", "fft.real f32 2x17"),
        ("cpu-fft-f32_complex64-direct-portable", "fft.real f64 2x8"),
        ("cpu-fft-f32_complex64-direct-portable", "copy f32 2x8"),
    ] {
        let (w, inputs, before) = operands(text);
        let mut out = before.clone();
        run(find(id), &w, &Setting::NONE, &inputs, &mut out).unwrap_err();
        assert_eq!(out[0].bytes(), before[0].bytes(), "{id} on {text}");
    }
    for (id, text) in [
        ("cpu-fft-complex64-rustfft", "fft complex64 2x1000"),
        ("cpu-fft-f32_complex64-realfft", "fft.real f32 2x1000"),
        (
            "cpu-fft-f32_complex64-realfft",
            "fft.inverse_real f32 2x1000",
        ),
    ] {
        let (w, inputs, before) = operands(text);
        let mut out = before.clone();
        let views = inputs.iter().map(Tensor::view).collect::<Vec<_>>();
        let mut views_mut = out.iter_mut().map(Tensor::view_mut).collect::<Vec<_>>();
        let mut call = Call::new(&w, &views, &mut views_mut).unwrap();
        let fault = find(id)
            .execute(&mut call, &Setting::NONE, &mut Scratch::new())
            .unwrap_err();
        assert!(matches!(fault, Fault::Workspace { .. }), "{fault}");
        assert_eq!(out[0].bytes(), before[0].bytes());
    }
}

#[test]
fn rows_beyond_what_is_planned_are_refused_without_a_plan() {
    let w: Workload = "fft complex64 134217729".parse().unwrap();
    let kernel = ComplexKernel::<f32>::new().unwrap();
    use kernelwise_backend::Kernel;
    assert!(kernel.accepts(&w).is_err());
    assert_eq!(kernel.workspace(&w, &Setting::NONE).0, 0);
    assert_eq!(format!("{kernel:?}").matches("(134217729").count(), 0);
}

#[test]
fn parts_beyond_the_end_are_cut_off() {
    let mut memory = [1, 2, 3];
    let rows = Rows::new(&mut memory);
    // SAFETY: one at a time.
    unsafe {
        assert_eq!(rows.part(1, 2), [2, 3]);
        assert_eq!(rows.part(2, usize::MAX), [3]);
        assert!(rows.part(3, 1).is_empty() && rows.part(usize::MAX, 1).is_empty());
    }
}

#[test]
fn threads_share_rows_and_not_what_is_in_one() {
    for kernel in all() {
        let sharing = |rows: usize| {
            let dtype = kernel.spec().id.dtypes().first().copied();
            let text = match dtype {
                Some(DType::Complex64) => format!("fft complex64 {rows}x64"),
                Some(DType::Complex128) => format!("fft complex128 {rows}x64"),
                Some(DType::F64) => format!("fft.real f64 {rows}x64"),
                _ => format!("fft.real f32 {rows}x64"),
            };
            let w: Workload = text.parse().unwrap();
            kernel.sharing(&w, &FftKnobs { threads: 2 }.setting())
        };
        let id = &kernel.spec().id;
        assert_eq!(sharing(1), Sharing::parts(1), "{id}");
        assert_ne!(sharing(1000), Sharing::parts(1), "{id}");
    }
}
