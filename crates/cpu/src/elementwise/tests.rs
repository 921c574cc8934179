//! Every kernel of the family against the reference: every step, tails around vector widths and blocks,
//! special values, every corner of the space.

use std::sync::Arc;

use kernelwise_backend::{Call, Fault, HostKernel, Knobs, Scratch, Setting, Terms};
use kernelwise_types::op::{ActivationKind, Binary, Unary};
use kernelwise_types::{Element, Layout, Numerics, TensorView, TensorViewMut, Workload};

use super::fused::Blocks;
use crate::isa::Level;

fn kernels_for(workload: &Workload) -> Vec<Arc<dyn HostKernel>> {
    let all = super::kernels(&Level::all()).unwrap();
    let mine = |kernel: &Arc<dyn HostKernel>| {
        let id = &kernel.spec().id;
        id.operation() == workload.operation().name() && id.dtypes() == workload.dtypes()
    };
    all.into_iter().filter(mine).collect()
}

/// How far results may be apart.
trait Close: Element + PartialEq {
    fn close(self, expected: Self, numerics: Numerics) -> bool;
}

impl Close for f32 {
    fn close(self, expected: Self, numerics: Numerics) -> bool {
        let within =
            |units: f32| (self - expected).abs() <= units * f32::EPSILON * expected.abs() + 1e-44;
        let exact = self.to_bits() == expected.to_bits() || (self.is_nan() && expected.is_nan());
        exact || (numerics == Numerics::Reordered && (self == expected || within(16.0)))
    }
}

impl Close for f64 {
    fn close(self, expected: Self, numerics: Numerics) -> bool {
        // The reference has no more digits than this: its tails are off themselves.
        let within =
            |units: f64| (self - expected).abs() <= units * f64::EPSILON * expected.abs() + 1e-300;
        let exact = self.to_bits() == expected.to_bits() || (self.is_nan() && expected.is_nan());
        exact || (numerics == Numerics::Reordered && (self == expected || within(128.0)))
    }
}

macro_rules! close_exactly {
    ($($t:ty),*) => { $(impl Close for $t {
        fn close(self, expected: Self, _numerics: Numerics) -> bool {
            self == expected
        }
    })* };
}
close_exactly!(i8, i32, i64, u8, u16);

/// Runs every kernel on these numbers, at every corner of its space.
fn check<T: Close>(text: &str, source: impl Fn(usize, usize) -> T) {
    let workload: Workload = text.parse().unwrap();
    let machine = kernelwise_probe::machine();
    let data: Vec<Vec<T>> = workload
        .inputs()
        .iter()
        .enumerate()
        .map(|(operand, input)| {
            (0..input.shape.elements())
                .map(|i| source(operand, i))
                .collect()
        })
        .collect();
    let inputs: Vec<TensorView<'_>> = workload
        .inputs()
        .iter()
        .zip(&data)
        .map(|(input, data)| TensorView::contiguous(data, input.shape).unwrap())
        .collect();
    let shape = workload.outputs()[0].shape;
    let filler = data[0][0];
    let mut expected = vec![filler; shape.elements()];
    let mut views = [TensorViewMut::contiguous(&mut expected, shape).unwrap()];
    kernelwise_reference::compute(&workload, &inputs, &mut views).unwrap();
    let mut scratch = Scratch::new();
    let kernels = kernels_for(&workload);
    assert!(kernels.len() >= 2, "{text}");
    for kernel in kernels {
        for setting in kernel.space(&workload, &machine).corners() {
            // Away from the start of a line, as slices of larger tensors are.
            let mut memory = vec![filler; shape.elements() + 3];
            let out = &mut memory[3..];
            let mut outputs = [TensorViewMut::contiguous(out, shape).unwrap()];
            let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
            let terms = Terms::usual(&machine);
            kernelwise_backend::run(&*kernel, &mut call, &setting, &mut scratch, &terms).unwrap();
            for (i, (got, want)) in memory[3..].iter().zip(&expected).enumerate() {
                assert!(
                    got.close(*want, kernel.spec().numerics),
                    "{} {setting:?} on {text} at {i}: {got:?}, not {want:?} from {:?}",
                    kernel.spec().id,
                    data[0][i]
                );
            }
        }
    }
}

/// Numbers between about −8 and 8, and now and then a special one.
fn float(operand: usize, i: usize) -> f64 {
    let special = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        -0.0,
        1e30,
        -1e-30,
        1.0,
    ];
    let mixed = (i as u64 + 1)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .rotate_left(operand as u32 * 13);
    match mixed % 23 {
        0 => special[(mixed >> 32) as usize % special.len()],
        _ => ((mixed >> 16) % 100_003) as f64 / 6_250.0 - 8.0,
    }
}

fn floats(text: &str) {
    check(&format!("{text} f32 3x171"), |operand, i| {
        float(operand, i) as f32
    });
    check(&format!("{text} f64 2x65"), float);
}

#[test]
fn every_step_on_floats() {
    for function in Unary::ALL {
        floats(&format!("elementwise.{}", function.name()));
    }
    for function in Binary::ALL {
        for spread in ["", ":row", ":scalar"] {
            floats(&format!("elementwise.{}{spread}", function.name()));
        }
    }
    for function in ActivationKind::ALL {
        floats(&format!("activation.{}", function.name()));
    }
}

#[test]
fn chains_and_pairs_that_are_one_loop() {
    for chain in [
        "add:row+gelu",
        "add+gelu+mul",
        "add:row+relu",
        "add:scalar+relu",
        "mul+add",
        "mul:row+add:row",
        "mul:scalar+add",
        "mul+add:scalar",
        "mul:scalar+add:row+tanh",
        "neg+mul:scalar+add:row+relu+abs+max:row+min:scalar+square",
        "add+add+add+add+add+add+add+add",
        "abs+sqrt+exp+recip",
        "div:row+sub+sigmoid",
    ] {
        // Without cancellation: sums of what has one sign.
        let positive = |operand: usize, i: usize| float(operand, i).abs();
        check(&format!("elementwise.{chain} f32 7x150"), |operand, i| {
            positive(operand, i) as f32
        });
        check(&format!("elementwise.{chain} f64 300x7"), positive);
        check(&format!("elementwise.{chain} f32 2x1500"), |operand, i| {
            positive(operand, i) as f32
        });
    }
}

#[test]
fn tails_of_every_length() {
    for n in [
        1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 255, 257, 1023, 1025, 2049,
    ] {
        check(&format!("elementwise.mul+add f32 {n}"), |operand, i| {
            float(operand, i).abs() as f32
        });
        check(&format!("activation.relu f32 {n}"), |operand, i| {
            float(operand, i) as f32
        });
    }
    check("elementwise.neg f32 scalar", |_, _| 2f32);
}

/// Long enough for pages side by side, in every piece of every thread.
#[test]
fn long_results_past_the_caches() {
    for chain in [
        "mul+add",
        "add:row",
        "neg+abs+sub",
        "sqrt+exp",
        "mul:row+add:row",
    ] {
        let text = format!("elementwise.{chain} f32 3x20011");
        check(&text, |operand, i| float(operand, i).abs() as f32);
        check(&format!("elementwise.{chain} f64 9001x2"), |operand, i| {
            float(operand, i).abs()
        });
    }
}

#[test]
fn large_angles_are_left_to_the_library() {
    for step in ["sin", "cos"] {
        check(&format!("elementwise.{step} f64 600"), |_, i| {
            if i == 333 { 1e15 } else { i as f64 }
        });
        check(&format!("elementwise.{step} f32 600"), |_, i| {
            if i == 3 { 1e20 } else { i as f32 }
        });
    }
}

#[test]
fn integers_wrap() {
    let bits = |operand: usize, i: usize| {
        let mixed = (i as u64 + 7)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(operand as u32 * 9);
        match mixed % 11 {
            0 => 0,
            1 => 1 << 31,
            2 => u64::MAX,
            3 => 1 << 63,
            4 => 0x80,
            _ => mixed >> 3,
        }
    };
    let signed = [
        "elementwise.neg",
        "elementwise.abs",
        "elementwise.square",
        "elementwise.add",
        "elementwise.sub:row",
        "elementwise.mul:scalar",
        "elementwise.div",
        "elementwise.div:row+min+max:scalar",
        "elementwise.add:row+relu",
        "elementwise.mul+add",
        "activation.relu",
    ];
    for text in signed {
        check(&format!("{text} i8 3x71"), |operand, i| {
            bits(operand, i) as i8
        });
        check(&format!("{text} i32 3x71"), |operand, i| {
            bits(operand, i) as i32
        });
        check(&format!("{text} i64 3x71"), |operand, i| {
            bits(operand, i) as i64
        });
    }
    for text in [
        "elementwise.square",
        "elementwise.sub+div",
        "elementwise.mul:scalar+add:row",
    ] {
        check(&format!("{text} u8 3x71"), |operand, i| {
            bits(operand, i) as u8
        });
        check(&format!("{text} u16 3x71"), |operand, i| {
            bits(operand, i) as u16
        });
    }
}

/// Strided operands are for the scalar kernels; the others say so and write nothing.
#[test]
fn strides_are_followed_or_refused() {
    let workload: Workload = "elementwise.add+mul:row+sub:scalar f32 3x4"
        .parse()
        .unwrap();
    let data: Vec<f32> = (0..100).map(|i| i as f32).collect();
    let layout =
        |shape: &str, strides: &[isize]| Layout::strided(shape.parse().unwrap(), strides).unwrap();
    let inputs = [
        TensorView::strided(&data, layout("3x4", &[1, 5]), 2).unwrap(),
        TensorView::strided(&data, layout("3x4", &[-9, -2]), 60).unwrap(),
        TensorView::strided(&data, layout("4", &[3]), 1).unwrap(),
        TensorView::strided(&data, layout("scalar", &[]), 50).unwrap(),
    ];
    let target = layout("3x4", &[11, 2]);
    let mut expected = vec![-1f32; 40];
    let mut views = [TensorViewMut::strided(&mut expected, target, 1).unwrap()];
    kernelwise_reference::compute(&workload, &inputs, &mut views).unwrap();
    for kernel in kernels_for(&workload) {
        let mut out = vec![-1f32; 40];
        let mut outputs = [TensorViewMut::strided(&mut out, target, 1).unwrap()];
        let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
        let result = kernel.execute(&mut call, &Setting::NONE, &mut Scratch::new());
        if kernel.spec().id.variant() == "scalar" {
            assert_eq!((result, &out), (Ok(()), &expected));
        } else {
            assert!(matches!(result, Err(Fault::View(_))), "{result:?}");
            assert_eq!(out, [-1f32; 40]);
        }
    }
}

#[test]
fn the_block_decides_what_is_repeated_and_too_little_room_is_a_fault() {
    let workload: Workload = "elementwise.add:row+mul:row f32 9x300".parse().unwrap();
    let with = |block| {
        Blocks {
            threads: 1,
            block,
            schedule: 0,
        }
        .setting()
    };
    let kernels = kernels_for(&workload);
    let fused = kernels
        .iter()
        .find(|kernel| kernel.spec().id.variant() == "portable")
        .unwrap();
    let room = |block| fused.workspace(&workload, &with(block)).0;
    // Each of the two rows goes on for two blocks.
    assert!(room(256) >= 2 * 4 * (300 + 512) && room(512) >= room(256) + 2 * 4 * 512);
    // A long one stays where it is.
    let long: Workload = "elementwise.add:row f32 2x5000".parse().unwrap();
    assert_eq!(fused.workspace(&long, &with(256)).0, 0);
    let data = vec![1f32; 2700];
    let view = |shape: &str, n| TensorView::contiguous(&data[..n], shape.parse().unwrap()).unwrap();
    let inputs = [view("9x300", 2700), view("300", 300), view("300", 300)];
    let mut out = vec![7f32; 2700];
    let mut outputs = [TensorViewMut::contiguous(&mut out, "9x300".parse().unwrap()).unwrap()];
    let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
    let result = fused.execute(&mut call, &with(512), &mut Scratch::new());
    assert!(matches!(result, Err(Fault::Workspace { .. })));
    assert_eq!(out, vec![7f32; 2700]);
}

#[test]
fn other_operations_are_refused() {
    let workload: Workload = "copy f32 4".parse().unwrap();
    let (x, mut out) = ([1f32; 4], [5f32; 4]);
    let inputs = [TensorView::contiguous(&x, "4".parse().unwrap()).unwrap()];
    for kernel in super::kernels(&Level::all()).unwrap() {
        let mut outputs = [TensorViewMut::contiguous(&mut out, "4".parse().unwrap()).unwrap()];
        let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
        let result = kernel.execute(&mut call, &Setting::NONE, &mut Scratch::new());
        assert!(matches!(result, Err(Fault::Refused { .. })));
    }
    assert_eq!(out, [5f32; 4]);
}

/// An integer kernel that is handed a step of floats by mistake says so: no such workload can be made, so
/// the loops are asked directly.
#[test]
fn steps_without_meaning_are_not_defined() {
    use super::loops::{Other, Out, Stepped};
    let (level, mut out) = (Level::PORTABLE, [5i32; 1]);
    assert!(!i32::unary(level, Unary::Exp, &[1], Out::Near(&mut out)));
    assert!(!i32::binary(
        level,
        Binary::Pow,
        &[1],
        Other::Same(1),
        Out::Near(&mut out)
    ));
    assert!(!i32::activation(
        level,
        ActivationKind::Tanh,
        &[1],
        Out::Near(&mut out)
    ));
    assert!(!u8::unary(level, Unary::Neg, &[1], Out::Near(&mut [0])));
    assert_eq!(out, [5]);
}
