//! Every kernel against the reference: odd sizes, every setting of note, values that are not finite.

use std::sync::Arc;

use kernelwise_backend::{Call, Fault, HostKernel, Scratch, Setting, Terms, admit, run};
use kernelwise_types::units::Bytes;
use kernelwise_types::{DType, Machine, Numerics, Refusal, TensorView, TensorViewMut, Workload};

use super::Float;
use super::geometry::Geometry;
use super::tensors::{Sharing, Tensors};
use crate::isa::Level;

/// Numbers with three significant bits, so that small sums are exact.
fn numbers<T: Float + From<f32>>(len: usize, seed: usize) -> Vec<T> {
    let value = |i: usize| ((i * 31 + seed * 17 + i / 7) % 13) as f32 / 4.0 - 1.5;
    (0..len).map(|i| T::from(value(i))).collect()
}

fn terms(machine: &Machine) -> Terms<'_> {
    Terms {
        numerics: Numerics::ReducedPrecision,
        ..Terms::usual(machine)
    }
}

fn elements(workload: &Workload, operand: usize) -> usize {
    workload.inputs()[operand].shape.elements()
}

/// What the reference says.
fn expected<T: Float>(workload: &Workload, input: &[T], weights: &[T]) -> Vec<T> {
    let inputs = [
        TensorView::contiguous(input, workload.inputs()[0].shape).unwrap(),
        TensorView::contiguous(weights, workload.inputs()[1].shape).unwrap(),
    ];
    let mut out = vec![T::default(); workload.outputs()[0].shape.elements()];
    let mut outputs = [TensorViewMut::contiguous(&mut out, workload.outputs()[0].shape).unwrap()];
    kernelwise_reference::compute(workload, &inputs, &mut outputs).unwrap();
    out
}

/// What a kernel says.
fn actual<T: Float + From<f32>>(
    kernel: &dyn HostKernel,
    workload: &Workload,
    setting: &Setting,
    (input, weights): (&[T], &[T]),
) -> Result<Vec<T>, Fault> {
    let machine = machine();
    let inputs = [
        TensorView::contiguous(input, workload.inputs()[0].shape).unwrap(),
        TensorView::contiguous(weights, workload.inputs()[1].shape).unwrap(),
    ];
    let mut out = vec![T::from(-77.0); workload.outputs()[0].shape.elements()];
    let mut outputs = [TensorViewMut::contiguous(&mut out, workload.outputs()[0].shape).unwrap()];
    let mut call = Call::new(workload, &inputs, &mut outputs).unwrap();
    let mut scratch = Scratch::new();
    // What an earlier kernel left behind must not show.
    let needs = kernel.workspace(workload, setting);
    scratch.reserve(needs).unwrap();
    scratch.slice::<u8>(needs.0 as usize).unwrap().fill(0xff);
    run(kernel, &mut call, setting, &mut scratch, &terms(&machine))?;
    Ok(out)
}

/// This machine, but with two threads at the least.
fn machine() -> Machine {
    let machine = kernelwise_probe::machine();
    let threads = machine.usable_threads().max(2);
    machine.with_threads(threads)
}

/// Compares all settings worth trying of one kernel with the reference.
fn compare<T: Float + From<f32> + Into<f64>>(kernel: &dyn HostKernel, workload: &Workload) {
    let input: Vec<T> = numbers(elements(workload, 0), 1);
    let weights: Vec<T> = numbers(elements(workload, 1), 2);
    let expected = expected(workload, &input, &weights);
    for setting in kernel.space(workload, &machine()).corners() {
        let out = actual(kernel, workload, &setting, (&input, &weights)).unwrap();
        let exact = kernel.spec().numerics < Numerics::ReducedPrecision;
        let tolerance = match (exact, T::DTYPE) {
            (true, DType::F64) => 1e-12,
            (true, _) => 1e-5,
            (false, _) => 1e-3,
        };
        for (i, (&a, &e)) in out.iter().zip(&expected).enumerate() {
            let (a, e): (f64, f64) = (a.into(), e.into());
            assert!(
                (a - e).abs() <= tolerance * e.abs().max(10.0),
                "{} {setting:?} {workload}: {a} instead of {e} at {i}",
                kernel.spec().id
            );
        }
    }
}

const IMAGES: &[&str] = &[
    "n1 c1 h1 w1 k1 r1 s1",
    "n2 c3 h7 w7 k5 r3 s3 pad1",
    "n1 c17 h14 w13 k18 r3 s3 pad1",
    "n1 c4 h9 w33 k7 r3 s3",
    "n3 c4 h11 w10 k6 r3 s3 stride2 pad1 groups2",
    "n1 c3 h23 w21 k9 r7 s7 stride2 pad3",
    "n1 c5 h8 w9 k33 r1 s1",
    "n2 c8 h7 w7 k20 r1 s1",
    "n1 c6 h9 w11 k4 r1 s1 stride2",
    "n1 c6 h9 w11 k4 r1 s1 stride2x1 pad1x2",
    "n2 c4 h10 w12 k6 r3 s2 stride3x2 pad2x1 dil2x1 groups2",
    "n1 c2 h6 w40 k3 r2 s5 stride1 pad0x2 dil3x4",
    "n1 c6 h8 w9 k6 r3 s3 pad1 groups6",
    "n2 c3 h9 w17 k6 r5 s3 stride2x1 pad2x0 groups3",
    "n1 c2 h3 w2 k3 r3 s3 pad3",
    "n1 c2 h5 w5 k3 r5 s5 pad4",
    "n1 c3 h19 w18 k4 r9 s7 pad4x3",
];

const VOLUMES: &[&str] = &[
    "n1 c1 d1 h1 w1 k1 t1 r1 s1",
    "n2 c3 d4 h5 w6 k5 t3 r3 s3 pad1",
    "n1 c4 d5 h6 w17 k6 t2 r3 s3 stride1x2x2 pad1x1x0 groups2",
    "n1 c2 d6 h5 w5 k3 t3 r1 s2 stride2x1x1 pad2x0x1 dil2x1x3",
    "n1 c3 d2 h4 w4 k9 t1 r1 s1",
];

/// Every kernel of the family on this machine.
fn all() -> Vec<Arc<dyn HostKernel>> {
    super::kernels(&Level::all()).unwrap()
}

fn admitted(kernel: &dyn HostKernel, workload: &Workload) -> bool {
    let machine = machine();
    let setting = kernel.space(workload, &machine).default_setting();
    admit(kernel, workload, None, &setting, &terms(&machine)).is_ok()
}

#[test]
fn every_kernel_agrees_with_the_reference() {
    for kernel in all() {
        let operation = kernel.spec().id.operation().to_owned();
        let dtype = kernel.spec().id.dtypes()[0];
        let sizes = if operation == "conv2d" {
            IMAGES
        } else {
            VOLUMES
        };
        let mut compared = 0;
        for sizes in sizes {
            let workload: Workload = format!("{operation} {dtype} {sizes}").parse().unwrap();
            if admitted(kernel.as_ref(), &workload) {
                match dtype {
                    DType::F64 => compare::<f64>(kernel.as_ref(), &workload),
                    _ => compare::<f32>(kernel.as_ref(), &workload),
                }
                compared += 1;
            }
        }
        assert!(compared >= 3, "{} was hardly tried", kernel.spec().id);
    }
}

/// Padding adds nothing, a NaN spreads no further than its windows, and infinities stay what they are.
#[test]
fn what_is_not_finite_comes_out_as_in_the_reference() {
    for kernel in all() {
        if kernel.spec().id.dtypes() != [DType::F32] {
            continue;
        }
        let operation = kernel.spec().id.operation().to_owned();
        let sizes: &[&str] = if operation == "conv2d" {
            &[
                "n1 c3 h9 w8 k4 r3 s3 pad1",
                "n1 c2 h7 w9 k4 r3 s3 pad1 groups2",
                "n1 c3 h9 w8 k4 r1 s1",
            ]
        } else {
            &["n1 c2 d3 h4 w5 k3 t3 r3 s3 pad1"]
        };
        for sizes in sizes {
            let workload: Workload = format!("{operation} f32 {sizes}").parse().unwrap();
            if !admitted(kernel.as_ref(), &workload) {
                continue;
            }
            for (pixel, weight) in [
                (f32::NAN, 1.0),
                (f32::INFINITY, 1.0),
                (1.0, f32::INFINITY),
                (1.0, f32::NAN),
                (f32::NEG_INFINITY, f32::INFINITY),
            ] {
                let mut input: Vec<f32> = numbers(elements(&workload, 0), 1);
                let mut weights: Vec<f32> = numbers(elements(&workload, 1), 2);
                let middle = input.len() / 2;
                input[middle] = pixel;
                // The first tap, which lies on padding in the top row.
                weights[0] = weight;
                let expected = expected(&workload, &input, &weights);
                let setting = kernel.space(&workload, &machine()).default_setting();
                let out = actual(kernel.as_ref(), &workload, &setting, (&input, &weights)).unwrap();
                for (i, (a, e)) in out.iter().zip(&expected).enumerate() {
                    let same = a.is_nan() && e.is_nan() || a == e || (a - e).abs() < 1e-2;
                    assert!(
                        same,
                        "{} {workload} with {pixel} and {weight}: {a} instead of {e} at {i}",
                        kernel.spec().id
                    );
                }
            }
        }
    }
}

/// Calls that do not suit a kernel are refused before anything is written.
#[test]
fn kernels_refuse_what_they_cannot_compute() {
    for kernel in all() {
        let id = kernel.spec().id.clone();
        let wrong: Workload = "matmul f32 2x3x4".parse().unwrap();
        let (a, b, mut out) = ([1f32; 6], [1f32; 12], [7f32; 8]);
        let inputs = [
            TensorView::contiguous(&a, "2x3".parse().unwrap()).unwrap(),
            TensorView::contiguous(&b, "3x4".parse().unwrap()).unwrap(),
        ];
        let mut outputs = [TensorViewMut::contiguous(&mut out, "2x4".parse().unwrap()).unwrap()];
        let mut call = Call::new(&wrong, &inputs, &mut outputs).unwrap();
        let fault = kernel.execute(&mut call, &Setting::NONE, &mut Scratch::new());
        assert!(
            matches!(
                &fault,
                Err(Fault::Refused {
                    refusal: Refusal::Operation { .. },
                    ..
                })
            ),
            "{id}: {fault:?}"
        );
        assert_eq!(out, [7.0; 8], "{id}");

        // Half the workspace, on a size that every kernel with a workspace accepts one of.
        for sizes in [
            "n1 c3 h12 w12 k4 r3 s3 pad1",
            "n1 c3 h12 w12 k4 r1 s1 stride2",
            "n1 c4 h9 w9 k4 r3 s3 pad1 groups4",
        ] {
            let text = format!("{} {} {sizes}", id.operation(), id.dtypes()[0]);
            let text = if id.operation() == "conv3d" {
                text.replace(" h", " d3 h")
                    .replace(" r", " t1 r")
                    .replace("stride2", "stride1x2x2")
                    .replace("pad1", "pad0x1x1")
            } else {
                text
            };
            let workload: Workload = text.parse().unwrap();
            if !admitted(kernel.as_ref(), &workload) {
                continue;
            }
            let setting = kernel.space(&workload, &machine()).default_setting();
            let needs = kernel.workspace(&workload, &setting);
            // Rounding up leaves room for next to nothing.
            if needs < Bytes(512) {
                continue;
            }
            let fault = match id.dtypes()[0] {
                DType::F64 => starved::<f64>(kernel.as_ref(), &workload, &setting),
                _ => starved::<f32>(kernel.as_ref(), &workload, &setting),
            };
            assert!(matches!(fault, Fault::Workspace { .. }), "{id}: {fault}");
        }
    }
}

/// Runs with half the workspace; the output keeps its values.
fn starved<T: Float + From<f32>>(
    kernel: &dyn HostKernel,
    workload: &Workload,
    setting: &Setting,
) -> Fault {
    let input = vec![T::default(); elements(workload, 0)];
    let weights = vec![T::default(); elements(workload, 1)];
    let mut out = vec![T::from(7.0); workload.outputs()[0].shape.elements()];
    let inputs = [
        TensorView::contiguous(&input, workload.inputs()[0].shape).unwrap(),
        TensorView::contiguous(&weights, workload.inputs()[1].shape).unwrap(),
    ];
    let mut outputs = [TensorViewMut::contiguous(&mut out, workload.outputs()[0].shape).unwrap()];
    let mut call = Call::new(workload, &inputs, &mut outputs).unwrap();
    let mut scratch = Scratch::new();
    let needs = kernel.workspace(workload, setting);
    scratch.reserve(Bytes(needs.0 / 2)).unwrap();
    let fault = kernel
        .execute(&mut call, setting, &mut scratch)
        .unwrap_err();
    assert!(
        out.iter().all(|v| *v == T::from(7.0)),
        "written before the fault"
    );
    fault
}

/// Settings from outside the space are hints: results stay right, memory is asked for as the kernel says.
#[test]
fn any_setting_is_sound() {
    for kernel in all() {
        let id = kernel.spec().id.clone();
        if id.dtypes() != [DType::F32] {
            continue;
        }
        let sizes: &[&str] = match id.operation() {
            "conv2d" => &[
                "n2 c4 h9 w8 k8 r3 s3 pad1",
                "n2 c4 h7 w7 k8 r1 s1",
                "n1 c4 h9 w8 k8 r3 s3 pad1 groups4",
                "n1 c8 h9 w9 k44 r3 s3",
            ],
            _ => &["n2 c3 d3 h4 w5 k5 t2 r3 s3 pad1"],
        };
        let mut tried = 0;
        for sizes in sizes {
            let text = format!("{} f32 {sizes}", id.operation());
            let workload: Workload = text.parse().unwrap();
            if !admitted(kernel.as_ref(), &workload) {
                continue;
            }
            tried += 1;
            let (input, weights) = (
                numbers::<f32>(elements(&workload, 0), 1),
                numbers::<f32>(elements(&workload, 1), 2),
            );
            let expected = expected(&workload, &input, &weights);
            for setting in [
                Setting::NONE,
                Setting::new([0; 5]),
                Setting::new([3, 7, 5, 9, 9]),
                Setting::new([2, 1, 16384, 1, 1, 0]),
                Setting::new([1 << 31, 8, 1]),
                Setting::new([257, 1, 1, 1, 1, 1]),
                Setting::new([2, u32::MAX, u32::MAX, u32::MAX, u32::MAX, u32::MAX]),
                Setting::new([u32::MAX; 8]),
            ] {
                let out = executed(kernel.as_ref(), &workload, &setting, (&input, &weights));
                for (a, e) in out.iter().zip(&expected) {
                    assert!(
                        (a - e).abs() < 1e-2,
                        "{id} {text} {setting:?}: {a} instead of {e}"
                    );
                }
            }
        }
        assert!(tried > 0, "{id}");
    }
}

/// What a kernel says under a setting that need not be one of its space.
fn executed(
    kernel: &dyn HostKernel,
    workload: &Workload,
    setting: &Setting,
    (input, weights): (&[f32], &[f32]),
) -> Vec<f32> {
    let mut out = vec![-77f32; workload.outputs()[0].shape.elements()];
    let inputs = [
        TensorView::contiguous(input, workload.inputs()[0].shape).unwrap(),
        TensorView::contiguous(weights, workload.inputs()[1].shape).unwrap(),
    ];
    let mut outputs = [TensorViewMut::contiguous(&mut out, workload.outputs()[0].shape).unwrap()];
    let mut call = Call::new(workload, &inputs, &mut outputs).unwrap();
    let mut scratch = Scratch::new();
    scratch
        .reserve(kernel.workspace(workload, setting))
        .unwrap();
    kernel.execute(&mut call, setting, &mut scratch).unwrap();
    out
}

/// Threads by the thousand would need memory by the terabyte, or by a number that no longer fits.
#[test]
fn more_threads_than_there_can_be_are_the_caller_alone() {
    for kernel in all() {
        let id = kernel.spec().id.clone();
        let sizes = match (id.operation(), id.variant()) {
            (_, variant) if variant.starts_with("depthwise") => "n1 c8 h9 w9 k8 r3 s3 groups8",
            (_, variant) if variant.starts_with("winograd") => "n1 c1048576 h9 w9 k1 r3 s3",
            ("conv2d", _) => "n1 c33554432 h1 w1 k1 r1 s1",
            _ => "n1 c33554432 d1 h1 w1 k1 t1 r1 s1",
        };
        let text = format!("{} {} {sizes}", id.operation(), id.dtypes()[0]);
        let workload: Workload = text.parse().unwrap();
        assert_eq!(kernel.accepts(&workload), Ok(()), "{id}");
        let needs = |threads: u32| {
            let setting = match id.variant() {
                variant if variant.starts_with("depthwise") => Setting::new([threads, 1]),
                variant if variant.starts_with("im2col") || variant.starts_with("1x1") => {
                    Setting::new([threads, 8, 8, 1, 1, 1])
                }
                _ => Setting::new([threads, 8, 1]),
            };
            kernel.workspace(&workload, &setting)
        };
        assert_eq!(needs(1 << 31), needs(1), "{id}");
        assert_eq!(needs(257), needs(1), "{id}");
        assert!(needs(2) >= needs(1), "{id}");
    }
}

/// 49 windows are three vectors of 16 and a rest: they are packed whatever the setting says.
#[test]
fn parameters_that_have_no_say_are_not_offered() {
    let workload: Workload = "conv2d f32 n1 c8 h7 w7 k8 r1 s1".parse().unwrap();
    for level in Level::all() {
        let kernel = super::im2col::one_tap::<f32>("conv2d", level).unwrap();
        let space = kernel.space(&workload, &machine());
        let values = |wanted: &str| {
            let mut axes = space.axes();
            let (_, axis) = axes.find(|(name, _)| *name == wanted).unwrap();
            axis.values().to_vec()
        };
        let wide = <f32 as Float>::wide_lanes(level).is_some();
        let (packing, windows): (&[u32], &[u32]) = if wide {
            (&[1], &[49])
        } else {
            (&[0, 1], &[48, 49])
        };
        assert_eq!(values("pack_windows"), packing, "{}", level.name());
        assert_eq!(values("windows"), windows, "{}", level.name());
    }
}

/// A finer cut is for threads that share, and parts enough to be cut.
#[test]
fn schedules_are_offered_where_parts_are_shared() {
    let workload: Workload = "conv2d f32 n3 c4 h9 w9 k4 r3 s3 groups4".parse().unwrap();
    for kernel in all() {
        if kernel.spec().id.operation() != "conv2d" || !admitted(kernel.as_ref(), &workload) {
            continue;
        }
        let id = &kernel.spec().id;
        let space = kernel.space(&workload, &machine());
        let allowed = |params: &str| space.setting(&params.parse().unwrap()).is_ok();
        assert!(allowed("threads=2,schedule=1"), "{id}");
        assert!(!allowed("threads=1,schedule=1"), "{id}");
    }
}

/// Memory is packed and shared as the setting says, so most parameters show in the workspace. For the cut of the
/// product see the tests of `product`, for what is held in registers those of `direct`.
#[test]
fn parameters_change_the_workspace() {
    for kernel in all() {
        let id = kernel.spec().id.clone();
        let sizes = match (id.operation(), id.variant()) {
            (_, variant) if variant.starts_with("1x1") => "n3 c600 h45 w45 k70 r1 s1",
            (_, variant) if variant.starts_with("depthwise") => "n3 c4 h9 w9 k4 r3 s3 groups4",
            ("conv2d", _) => "n3 c80 h45 w45 k70 r3 s3 pad1",
            _ => "n3 c80 d5 h30 w30 k70 t2 r2 s2 pad1",
        };
        let text = format!("{} {} {sizes}", id.operation(), id.dtypes()[0]);
        let workload: Workload = text.parse().unwrap();
        let space = kernel.space(&workload, &machine());
        let two = space.setting(&"threads=2".parse().unwrap()).unwrap();
        let one = space.default_setting();
        let needs = |setting: &Setting| kernel.workspace(&workload, setting);
        assert!(needs(&two) > needs(&one), "{id}: threads");
        for (knob, (name, axis)) in space.axes().enumerate().skip(1) {
            let elsewhere = ["windows", "depth"].contains(&name);
            let values = axis.values().iter().filter(|&&v| Some(v) != two.get(knob));
            for value in values.filter(|_| !elsewhere) {
                let other = format!("threads=2,{name}={value}").parse().unwrap();
                let other = space.setting(&other).unwrap();
                assert_ne!(needs(&other), needs(&two), "{id}: {name}={value}");
            }
        }
    }
}

/// Images go to different threads when there are enough of them; with one thread nothing is woken.
#[test]
fn parts_are_computed_by_the_threads_asked_for() {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    let workload: Workload = "conv2d f32 n4 c1 h2 w2 k1 r1 s1".parse().unwrap();
    let geometry = Geometry::of(&workload).unwrap();
    let here = std::thread::current().name().map(str::to_owned);
    for threads in [1, 2] {
        let (input, weights, mut output) = ([1f32; 16], [2f32], [0f32; 16]);
        let tensors = Tensors {
            geometry,
            input: &input,
            weights: &weights,
            output: &mut output,
        };
        let names = Mutex::new(BTreeSet::new());
        let sharing = Sharing::new(&geometry, threads, 0);
        sharing.each(tensors, &mut [0.0; 6], |part, scratch| {
            let name = std::thread::current().name().map(str::to_owned);
            names.lock().unwrap().insert(name);
            assert_eq!((part.image.len(), part.output.len()), (4, 4));
            assert_eq!(scratch.len(), 6 / threads as usize);
            part.output.fill(part.weights[0]);
        });
        let names = names.into_inner().unwrap();
        if threads == 1 {
            assert_eq!(names, BTreeSet::from([here.clone()]));
        } else {
            // The caller works, too, and may be done before the other comes.
            let is_one = |name: &Option<String>| {
                *name == here || name.as_ref().is_some_and(|name| name == "kernelwise-1")
            };
            assert!(names.iter().all(is_one), "{names:?}");
        }
        assert_eq!(output, [2.0; 16]);
    }
}

/// Taps far apart make padding far larger than the tensors.
#[test]
fn padding_larger_than_memory_is_refused_or_left_out() {
    let far = "pad536870912 dil1073741824";
    for kernel in all() {
        let id = kernel.spec().id.clone();
        if id.operation() != "conv2d" || id.dtypes() != [DType::F32] {
            continue;
        }
        let text = format!("conv2d f32 n1 c1 h2 w2 k1 r2 s2 {far}");
        let workload: Workload = text.parse().unwrap();
        if admitted(kernel.as_ref(), &workload) {
            assert!(id.variant().starts_with("im2col"), "{id}");
            compare::<f32>(kernel.as_ref(), &workload);
        } else {
            assert!(!id.variant().starts_with("im2col"), "{id}");
        }
    }
}
