//! Reductions against the reference, and what their parameters do.

use kernelwise_backend::{HostKernel, Knobs, Setting};
use kernelwise_types::Workload;

use super::kernels;
use super::trial::{Near, Values, check_any, elements, inputs, named, outputs};
use super::vector::FoldKnobs;
use crate::isa::Level;

const SHAPES: &[&str] = &[
    "1",
    "7",
    "16",
    "33",
    "129",
    "1x1",
    "3x5 axes1",
    "3x5 axes0",
    "5x16 axes0",
    "4x67 axes1",
    "67x4 axes0",
    "33x130 axes0",
    "2x3x4x5 axes0,2",
    "2x3x4x5 axes1,3",
    "3x1x70 axes0",
    "2x9x65 axes1",
    "5x1300 axes1",
    "9x600",
    "scalar",
];

#[test]
fn every_kind_is_what_the_reference_says() {
    let kernels = kernels(&Level::all()).unwrap();
    let levels = super::lanes::distinct(&Level::all()).len();
    for dtype in ["f32", "f64", "i32", "i64"] {
        for kind in [
            "sum", "mean", "prod", "max", "min", "argmax", "argmin", "l2",
        ] {
            for shape in SHAPES {
                let text = format!("reduce.{kind} {dtype} {shape}");
                if text.parse::<Workload>().is_err() {
                    continue;
                }
                // Products of many numbers leave the range, and so do comparisons.
                let product = kind == "prod" && dtype.starts_with('f');
                let values = if product { Values::Few } else { Values::Plain };
                let near = Near {
                    steps: 300.0,
                    size: 8.0,
                };
                let count = check_any(&kernels, &text, values, near);
                let pairwise = matches!(kind, "sum" | "mean" | "l2") && dtype.starts_with('f');
                assert_eq!(count, 1 + levels + usize::from(pairwise), "{text}");
                if !product {
                    check_any(&kernels, &text, Values::Special, near);
                }
                check_any(&kernels, &text, Values::Few, near);
            }
        }
    }
}

/// One large number and many small ones: in which vector they fall decides what is lost of them.
#[test]
fn unroll_is_the_number_of_partial_results() {
    let kernels = kernels(&Level::all()).unwrap();
    let workload: Workload = "reduce.sum f32 1024".parse().unwrap();
    let mut x = vec![0.75f32; 1024];
    x[0] = 1.6e7;
    for level in super::lanes::distinct(&Level::all()) {
        let kernel = named(&kernels, &format!("cpu-reduce-f32-{}", level.name()));
        let sum = |unroll| {
            let setting = FoldKnobs {
                threads: 1,
                schedule: 0,
                unroll,
            }
            .setting();
            outputs::<f32, f32>(
                kernel.as_ref(),
                &workload,
                std::slice::from_ref(&x),
                &setting,
            )[0][0]
        };
        let sums = [sum(1), sum(2), sum(4), sum(8)];
        // Fewer elements share a lane with the large one, so less is lost.
        assert!(sums.windows(2).all(|pair| pair[0] != pair[1]), "{sums:?}");
    }
}

#[test]
fn threads_and_schedule_cut_the_elements_and_the_same_way_each_time() {
    let kernels = kernels(&Level::all()).unwrap();
    let workload: Workload = "reduce.sum f32 5000".parse().unwrap();
    let x = elements::<f32>(5000, 3, Values::Plain);
    let kernel = named(&kernels, "cpu-reduce-f32-portable");
    let setting = |threads, schedule| {
        FoldKnobs {
            threads,
            schedule,
            unroll: 1,
        }
        .setting()
    };
    let room = |threads, schedule| kernel.workspace(&workload, &setting(threads, schedule)).0;
    assert_eq!((room(1, 0), room(1, 1)), (0, 0));
    assert_eq!((room(2, 0), room(2, 1)), (2 * 4 + 64, 16 * 4 + 64));
    let sum = |setting: &Setting| {
        outputs::<f32, f32>(
            kernel.as_ref(),
            &workload,
            std::slice::from_ref(&x),
            setting,
        )[0][0]
    };
    for schedule in [0, 1] {
        let setting = setting(2, schedule);
        let first = sum(&setting);
        assert!((0..20).all(|_| sum(&setting) == first));
    }
    // Enough results for everyone: nothing is cut, no memory is wanted.
    let rows: Workload = "reduce.sum f32 50x100 axes1".parse().unwrap();
    assert_eq!(kernel.workspace(&rows, &setting(2, 0)).0, 0);
}

/// Where plain sums drift, pairs do not; where they begin shows in the last digits.
#[test]
fn pairs_keep_what_rows_lose() {
    let kernels = kernels(&Level::all()).unwrap();
    let pairwise = named(&kernels, "cpu-reduce-f32-pairwise");
    let plain = named(&kernels, "cpu-reduce-f32-portable");
    for shape in ["262144", "65536x4 axes0"] {
        let workload: Workload = format!("reduce.sum f32 {shape}").parse().unwrap();
        let x = vec![0.1f32; 262_144];
        let results = workload.outputs()[0].shape.elements();
        let exact = f64::from(0.1f32) * (x.len() / results) as f64;
        let sum = |kernel: &dyn HostKernel, knob: u32| {
            let setting = Setting::new([1, 0, knob]);
            outputs::<f32, f32>(kernel, &workload, std::slice::from_ref(&x), &setting)[0][0]
        };
        let error = |sum: f32| (f64::from(sum) - exact).abs() / exact;
        let [small, large] = [64, 1024].map(|leaf| sum(pairwise.as_ref(), leaf));
        assert!(error(small) < 1e-6, "{shape}: {}", error(small));
        assert!(error(small) < error(sum(plain.as_ref(), 1)), "{shape}");
        assert_ne!(small, large, "{shape}");
    }
}

#[test]
fn settings_from_elsewhere_are_taken_as_hints() {
    let kernels = kernels(&Level::all()).unwrap();
    let workload: Workload = "reduce.argmax f64 9x70 axes0".parse().unwrap();
    let inputs = inputs::<f64>(&workload, 5, Values::Plain);
    for kernel in &kernels {
        if kernel.spec().id.dtypes() != workload.dtypes() {
            continue;
        }
        let mut scratch = kernelwise_backend::Scratch::new();
        for setting in [
            Setting::NONE,
            Setting::new([u32::MAX; 8]),
            Setting::new([3, 9, 5]),
        ] {
            scratch
                .reserve(kernel.workspace(&workload, &setting))
                .unwrap();
            let x = [
                kernelwise_types::TensorView::contiguous(&inputs[0], "9x70".parse().unwrap())
                    .unwrap(),
            ];
            let mut list = vec![0i64; 70];
            let mut out =
                [
                    kernelwise_types::TensorViewMut::contiguous(&mut list, "70".parse().unwrap())
                        .unwrap(),
                ];
            let mut call = kernelwise_backend::Call::new(&workload, &x, &mut out).unwrap();
            kernel.execute(&mut call, &setting, &mut scratch).unwrap();
            assert_eq!(
                list,
                super::trial::expected::<f64, i64>(&workload, &inputs)[0]
            );
        }
    }
}
