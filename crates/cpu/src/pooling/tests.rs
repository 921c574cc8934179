//! Pooling against the reference.

use kernelwise_backend::Setting;
use kernelwise_types::Workload;

use super::kernels;
use crate::isa::Level;
use crate::reduce::lanes::distinct;
use crate::reduce::trial::{Near, Values, check_any, named};

const ANY: &[&str] = &[
    "n1 c1 h1 w1 r1 s1",
    "n2 c3 h5 w6 r3 s2",
    "n1 c2 h7 w40 r3 s3 pad1",
    "n1 c2 h6 w70 r2 s3 stride2 pad0x1",
    "n1 c1 h9 w50 r5 s4 stride3 pad2",
    "n2 c1 h40 w3 r7 s3 stride1x2 pad3x1",
    "n1 c1 h4 w90 r1 s5 stride2 pad0x4",
    "n1 c1 h3 w33 r2 s2 stride1 pad1",
];

const TWOS: &[&str] = &[
    "n1 c1 h2 w2 r2 s2 stride2",
    "n2 c2 h8 w66 r2 s2 stride2",
    "n1 c1 h7 w37 r2 s2 stride2",
    "n1 c2 h5 w33 r2 s2 stride2 pad1",
    "n3 c1 h4 w34 r2 s2 stride2 pad0x1",
];

const THREES: &[&str] = &[
    "n1 c1 h3 w3 r3 s3 stride2",
    "n1 c2 h9 w71 r3 s3 stride2",
    "n2 c1 h8 w70 r3 s3 stride2 pad1",
    "n1 c1 h6 w35 r3 s3 stride2 pad2",
    "n1 c3 h5 w34 r3 s3 stride2 pad1x0",
    "n1 c1 h2 w1 r3 s3 stride2 pad1",
];

#[test]
fn windows_are_what_the_reference_says() {
    let kernels = kernels(&Level::all()).unwrap();
    let levels = distinct(&Level::all()).len();
    let near = Near {
        steps: 20.0,
        size: 8.0,
    };
    let shapes = [(ANY, 1), (TWOS, 2), (THREES, 2)];
    for (shape, vectors) in shapes
        .iter()
        .flat_map(|(list, n)| list.iter().map(move |s| (s, n)))
    {
        for (kind, dtype) in [
            ("max", "f32"),
            ("max", "f64"),
            ("avg", "f32"),
            ("avg", "f64"),
        ] {
            let text = format!("pool2d.{kind} {dtype} {shape}");
            for values in [Values::Plain, Values::Special, Values::Few] {
                let count = check_any(&kernels, &text, values, near);
                assert_eq!(count, 1 + vectors * levels, "{text}");
            }
        }
    }
}

#[test]
fn other_windows_are_refused_with_the_reason() {
    let kernels = kernels(&Level::all()).unwrap();
    let kernel = named(&kernels, "cpu-pool2d.max-f32-window2-portable");
    let workload: Workload = "pool2d.max f32 n1 c1 h8 w8 r2 s2 stride1".parse().unwrap();
    let refusal = kernel.accepts(&workload).unwrap_err();
    assert_eq!(refusal.to_string(), "needs a 2x2 window at stride 2");
}

/// Every piece of the work joins rows in memory of its own.
#[test]
fn threads_and_schedule_show_in_the_memory_that_is_asked_for() {
    let kernels = kernels(&Level::all()).unwrap();
    let kernel = named(&kernels, "cpu-pool2d.avg-f64-separable-portable");
    let workload: Workload = "pool2d.avg f64 n1 c8 h8 w10 r3 s3 pad1".parse().unwrap();
    let room = |threads: u32, schedule: u32| {
        kernel
            .workspace(&workload, &Setting::new([threads, schedule]))
            .0
    };
    let row = 8 * (10 + 2 + 32);
    assert_eq!(room(1, 1), row + 64);
    assert_eq!(room(2, 0), 2 * row + 64);
    assert_eq!(room(2, 1), 16 * row + 64);
}
