//! Softmax, normalisations and scans against the reference.

use kernelwise_backend::{Call, Fault, Scratch, Setting};
use kernelwise_types::{Refusal, TensorView, TensorViewMut, Workload};

use super::kernels;
use crate::isa::Level;
use crate::reduce::lanes::distinct;
use crate::reduce::trial::{Near, Values, check_any, elements, expected, named, outputs};

const SHAPES: &[&str] = &[
    "1",
    "7",
    "16",
    "1100",
    "3x5",
    "4x67",
    "5x600",
    "5x4 axis0",
    "9x70 axis0",
    "2x9x65 axis1",
    "3x1x4 axis1",
    "2x5x3x2 axis1",
    "600x3 axis0",
];

#[test]
fn shares_are_what_the_reference_says() {
    let kernels = kernels(&Level::all()).unwrap();
    let levels = distinct(&Level::all()).len();
    for (kind, shape) in SHAPES
        .iter()
        .flat_map(|shape| [("", shape), (".log", shape)])
    {
        for dtype in ["f32", "f64"] {
            let text = format!("softmax{kind} {dtype} {shape}");
            let near = Near {
                steps: 40.0,
                size: if kind.is_empty() { 1e-30 } else { 1.0 },
            };
            for values in [Values::Plain, Values::Special, Values::Few] {
                assert_eq!(
                    check_any(&kernels, &text, values, near),
                    2 * levels,
                    "{text}"
                );
            }
        }
    }
}

/// Rows whose largest element is not finite have no shares; −∞ beside finite elements has a share of zero.
#[test]
fn infinities_are_told_apart() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let kernels = kernels(&Level::all()).unwrap();
    let rows: [([f32; 3], &str); 4] = [
        ([-inf, -inf, -inf], "[NaN, NaN, NaN]"),
        ([-inf, 0.0, -inf], "[0.0, 1.0, 0.0]"),
        ([1.0, inf, 0.0], "[NaN, NaN, NaN]"),
        ([nan, 1.0, 0.0], "[NaN, NaN, NaN]"),
    ];
    for level in distinct(&Level::all()) {
        for method in ["two-pass", "online"] {
            let kernel = named(
                &kernels,
                &format!("cpu-softmax-f32-{method}-{}", level.name()),
            );
            for (row, shares) in &rows {
                // Ten times the row side by side, so that lines across memory are tried, too.
                for (text, copies) in [("softmax f32 1x3", 1), ("softmax f32 3x10 axis0", 10)] {
                    let workload: Workload = text.parse().unwrap();
                    let x: Vec<f32> = row.iter().flat_map(|&x| vec![x; copies]).collect();
                    let out = outputs::<f32, f32>(
                        kernel.as_ref(),
                        &workload,
                        &[x],
                        &Setting::new([1, 0]),
                    );
                    let line: Vec<f32> = out[0].iter().step_by(copies).copied().collect();
                    assert_eq!(format!("{line:?}"), *shares, "{method} {text} {row:?}");
                }
            }
        }
    }
}

#[test]
fn normalised_rows_are_what_the_reference_says() {
    let kernels = kernels(&Level::all()).unwrap();
    let levels = distinct(&Level::all()).len();
    let near = Near {
        steps: 60.0,
        size: 8.0,
    };
    for dtype in ["f32", "f64"] {
        for shape in ["1x1", "7", "3x16", "4x67", "2x3x33", "3x1100"] {
            let layer = format!("norm.layer {dtype} {shape}");
            let rms = format!("norm.rms {dtype} {shape}");
            for values in [Values::Plain, Values::Special] {
                assert_eq!(check_any(&kernels, &layer, values, near), 2 * levels);
                assert_eq!(check_any(&kernels, &rms, values, near), levels);
            }
        }
        for shape in [
            "9x3", "5x130", "2x3x4", "3x2x5x7", "2x70x33", "1x3x1100", "4x1x6",
        ] {
            let training = format!("norm.batch {dtype} {shape}");
            let learned = format!("norm.batch {dtype} {shape} infer");
            for values in [Values::Plain, Values::Special] {
                assert_eq!(check_any(&kernels, &training, values, near), 2 * levels);
                // Learned statistics may be zero, and then everything is very large.
                assert_eq!(check_any(&kernels, &learned, values, near), levels);
            }
        }
    }
}

const SCANS: &[&str] = &[
    "1",
    "7",
    "16",
    "40",
    "130",
    "3x5 axis1",
    "4x67 axis1",
    "67x4 axis0",
    "2x9x65 axis1",
    "3x1x4 axis1",
    "20000",
    "2x9000 axis1",
];

#[test]
fn scans_are_what_the_reference_says() {
    let kernels = kernels(&Level::all()).unwrap();
    let levels = distinct(&Level::all()).len();
    for dtype in ["f32", "f64", "i32", "i64"] {
        for kind in ["sum", "prod", "max", "min"] {
            for shape in SCANS {
                for way in ["", " exclusive", " reverse", " exclusive reverse"] {
                    let text = format!("scan.{kind} {dtype} {shape}{way}");
                    let float = dtype.starts_with('f');
                    // Long products leave the range of floats.
                    let values = match (kind, float) {
                        ("prod", true) => Values::Few,
                        _ => Values::Plain,
                    };
                    let near = Near {
                        steps: 300.0,
                        size: 300.0,
                    };
                    assert_eq!(
                        check_any(&kernels, &text, values, near),
                        1 + levels,
                        "{text}"
                    );
                    if kind != "prod" || !float {
                        check_any(&kernels, &text, Values::Special, near);
                    }
                }
            }
        }
    }
}

/// Blocks are cut only where threads would be idle, as many as the parameter says.
#[test]
fn blocks_are_cut_where_threads_would_be_idle() {
    let kernels = kernels(&Level::all()).unwrap();
    let kernel = named(&kernels, "cpu-scan-f32-blocked-portable");
    let room = |text: &str, threads: u32, block: u32| {
        let setting = Setting::new([threads, 0, block]);
        kernel.workspace(&text.parse().unwrap(), &setting).0
    };
    assert_eq!(room("scan.sum f32 20000", 1, 4096), 0);
    assert_eq!(room("scan.sum f32 20000", 2, 4096), 5 * 4 + 64);
    assert_eq!(room("scan.sum f32 20000", 2, 16384), 2 * 4 + 64);
    assert_eq!(room("scan.sum f32 20000", 2, 65536), 0);
    assert_eq!(room("scan.sum f32 2x20000 axis1", 2, 4096), 0);
    assert_eq!(room("scan.sum f32 20000x2 axis0", 2, 4096), 0);
    // Where a block begins shows in how sums are rounded.
    let workload: Workload = "scan.sum f32 20000".parse().unwrap();
    let x = elements::<f32>(20000, 9, Values::Plain);
    let x: Vec<f32> = x.iter().map(|x| x * 0.1).collect();
    let scan = |block| {
        outputs::<f32, f32>(
            kernel.as_ref(),
            &workload,
            std::slice::from_ref(&x),
            &Setting::new([2, 0, block]),
        )
    };
    assert_ne!(scan(4096), scan(16384));
    assert_eq!(scan(4096), scan(4096));
}

/// A block size is offered where another one cuts rows differently, and nowhere else.
#[test]
fn blocks_are_offered_where_they_matter() {
    let kernels = kernels(&Level::all()).unwrap();
    let kernel = named(&kernels, "cpu-scan-f32-blocked-portable");
    let machine = kernelwise_probe::machine().with_threads(4);
    let offered = |text: &str, threads: u32| {
        let space = kernel.space(&text.parse().unwrap(), &machine);
        let settings = space
            .iter()
            .filter(|setting| setting.get(0) == Some(threads));
        let mut blocks: Vec<u32> = settings.map(|setting| setting.get(2).unwrap()).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    };
    assert_eq!(offered("scan.sum f32 100000", 1), [16384]);
    assert_eq!(offered("scan.sum f32 100000", 2), [4096, 16384, 65536]);
    assert_eq!(offered("scan.sum f32 20000", 2), [4096, 16384, 65536]);
    assert_eq!(offered("scan.sum f32 16384", 2), [4096, 16384]);
    assert_eq!(offered("scan.sum f32 4096", 2), [16384]);
    assert_eq!(offered("scan.sum f32 2x100000 axis1", 2), [16384]);
    assert_eq!(
        offered("scan.sum f32 2x100000 axis1", 3),
        [4096, 16384, 65536]
    );
    assert_eq!(offered("scan.sum f32 100000x2 axis0", 2), [16384]);
    assert_eq!(offered("scan.sum f32 4x100000 axis1", 4), [16384]);
}

/// Many blocks in both directions; small ones are no corner of the space.
#[test]
fn rows_of_many_blocks_are_whole_again() {
    let kernels = kernels(&Level::all()).unwrap();
    for way in ["", " exclusive", " reverse", " exclusive reverse"] {
        let workload: Workload = format!("scan.sum i64 20000{way}").parse().unwrap();
        let x = vec![elements::<i64>(20000, 5, Values::Plain)];
        let expected = expected::<i64, i64>(&workload, &x);
        for level in distinct(&Level::all()) {
            let kernel = named(&kernels, &format!("cpu-scan-i64-blocked-{}", level.name()));
            for schedule in [0, 1] {
                let setting = Setting::new([2, schedule, 4096]);
                let actual = outputs::<i64, i64>(kernel.as_ref(), &workload, &x, &setting);
                assert_eq!(actual, expected, "{} {way}", level.name());
            }
        }
    }
}

/// A kernel that is called with another operation says so; it is not the kernel that is broken.
#[test]
fn other_operations_are_refused() {
    let workload: Workload = "elementwise.neg f32 4".parse().unwrap();
    let (x, mut out) = ([1f32; 4], [5f32; 4]);
    let inputs = [TensorView::contiguous(&x, "4".parse().unwrap()).unwrap()];
    for kernel in kernels(&Level::all()).unwrap() {
        let mut outputs = [TensorViewMut::contiguous(&mut out, "4".parse().unwrap()).unwrap()];
        let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
        let fault = kernel
            .execute(&mut call, &Setting::NONE, &mut Scratch::new())
            .unwrap_err();
        let refusal = matches!(
            fault,
            Fault::Refused {
                refusal: Refusal::Operation { .. },
                ..
            }
        );
        assert!(refusal, "{}: {fault}", kernel.spec().id);
    }
    assert_eq!(out, [5f32; 4]);
}
