//! Every kernel of the family against the reference, on shapes around vector widths and tiles.

use kernelwise_backend::{Call, Fault, HostKernel, Scratch, Setting, Terms};
use kernelwise_types::{DType, Layout, Shape, TensorView, TensorViewMut, Workload};

use crate::isa::Level;

fn kernels_for(workload: &Workload) -> Vec<std::sync::Arc<dyn HostKernel>> {
    let all = super::kernels(&Level::all()).unwrap();
    let mine = |kernel: &std::sync::Arc<dyn HostKernel>| {
        let id = &kernel.spec().id;
        id.operation() == workload.operation().name() && id.dtypes() == workload.dtypes()
    };
    all.into_iter().filter(mine).collect()
}

/// Runs every kernel at every corner of its space and compares with the reference.
fn check<T: kernelwise_types::Element + PartialEq>(text: &str, data: &[T], zero: T) {
    let workload: Workload = text.parse().unwrap();
    let machine = kernelwise_probe::machine();
    let [input] = workload.inputs() else { panic!() };
    let [output] = workload.outputs() else {
        panic!()
    };
    let elements = input.shape.elements();
    let x = TensorView::contiguous(&data[..elements], input.shape).unwrap();
    let mut expected = vec![zero; elements];
    kernelwise_reference::compute(
        &workload,
        &[x],
        &mut [TensorViewMut::contiguous(&mut expected, output.shape).unwrap()],
    )
    .unwrap();
    let kernels = kernels_for(&workload);
    assert!(kernels.len() >= 2, "{text}");
    for kernel in kernels {
        for setting in kernel.space(&workload, &machine).corners() {
            let mut out = vec![zero; elements];
            let mut outputs = [TensorViewMut::contiguous(&mut out, output.shape).unwrap()];
            let inputs = [x];
            let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
            let terms = Terms::usual(&machine);
            kernelwise_backend::run(&*kernel, &mut call, &setting, &mut Scratch::new(), &terms)
                .unwrap();
            assert!(
                out == expected,
                "{} {setting:?} on {text}",
                kernel.spec().id
            );
        }
    }
}

fn numbers(n: usize) -> Vec<u64> {
    (0..n as u64)
        .map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15))
        .collect()
}

#[test]
fn permutations_of_every_element_size() {
    let data = numbers(1 << 15);
    let bytes: Vec<u8> = data.iter().map(|x| (x >> 40) as u8).collect();
    let halves: Vec<u16> = data.iter().map(|x| (x >> 40) as u16).collect();
    let words: Vec<u32> = data.iter().map(|x| (x >> 32) as u32).collect();
    let pairs: Vec<num_complex::Complex<f64>> = data
        .iter()
        .map(|&x| num_complex::Complex::new(x as f64, -1.0))
        .collect();
    let quarters: Vec<num_complex::Complex<f32>> = data
        .iter()
        .map(|&x| num_complex::Complex::new(x as f32, 2.0))
        .collect();
    for shape_and_order in [
        "1x1 perm1,0",
        "7x9 perm1,0",
        "16x16 perm1,0",
        "17x15 perm1,0",
        "64x33 perm1,0",
        "33x130 perm1,0",
        "2x3x31 perm0,2,1",
        "3x16x17 perm0,2,1",
        "5x4x6 perm2,1,0",
        "5x6x4 perm1,0,2",
        "6x5x19 perm1,0,2",
        "2x3x4x5 perm0,3,1,2",
        "2x17x4x5 perm0,2,3,1",
        "2x3x4x5 perm3,1,2,0",
        "2x3x8x2 perm2,0,1,3",
        "3x4x5 perm0,1,2",
        "9 perm0",
    ] {
        check(&format!("transpose u8 {shape_and_order}"), &bytes, 0);
        check(&format!("transpose u16 {shape_and_order}"), &halves, 0);
        check(&format!("transpose u32 {shape_and_order}"), &words, 0);
        check(&format!("transpose u64 {shape_and_order}"), &data, 0);
        check(
            &format!("transpose complex64 {shape_and_order}"),
            &quarters,
            Default::default(),
        );
        check(
            &format!("transpose complex128 {shape_and_order}"),
            &pairs,
            Default::default(),
        );
    }
}

#[test]
fn copies_and_reshapes_of_every_length() {
    let data = numbers(5000);
    for n in [1, 7, 8, 9, 63, 64, 65, 1023, 4099] {
        check(&format!("copy u64 {n}"), &data, 0);
        check(&format!("reshape u64 {n} to=1x{n}x1"), &data, 0);
        let bytes: Vec<u8> = data.iter().map(|x| *x as u8).collect();
        check(&format!("copy u8 {n}"), &bytes, 0);
    }
}

#[test]
fn there_is_a_kernel_for_every_element_type() {
    for dtype in DType::ALL {
        for text in [
            format!("copy {dtype} 4"),
            format!("reshape {dtype} 4 to=2x2"),
            format!("transpose {dtype} 2x2 perm1,0"),
        ] {
            assert!(kernels_for(&text.parse().unwrap()).len() >= 2, "{text}");
        }
    }
}

/// Strided tensors go line by line; kernels that need them dense say so and write nothing.
#[test]
fn strides_are_followed_or_refused() {
    let data: Vec<u32> = (0..400).collect();
    let machine = kernelwise_probe::machine();
    let layout = |shape: &str, strides: &[isize]| {
        Layout::strided(shape.parse::<Shape>().unwrap(), strides).unwrap()
    };
    for (text, source, offset, target) in [
        (
            "copy u32 4x6",
            layout("4x6", &[10, 1]),
            3,
            layout("4x6", &[7, 1]),
        ),
        (
            "copy u32 4x6",
            layout("4x6", &[1, 9]),
            0,
            layout("4x6", &[6, 1]),
        ),
        (
            "copy u32 4x6",
            layout("4x6", &[-12, -2]),
            100,
            layout("4x6", &[8, 1]),
        ),
        (
            "reshape u32 4x6 to=3x8",
            layout("4x6", &[6, 1]),
            5,
            layout("3x8", &[16, 2]),
        ),
        (
            "reshape u32 4x6 to=8x3",
            layout("4x6", &[0, 2]),
            1,
            layout("8x3", &[3, 1]),
        ),
        (
            "transpose u32 4x6 perm1,0",
            layout("4x6", &[13, 2]),
            0,
            layout("6x4", &[5, 1]),
        ),
    ] {
        let workload: Workload = text.parse().unwrap();
        let x = TensorView::strided(&data, source, offset).unwrap();
        let mut expected = vec![9u32; 60];
        let mut views = [TensorViewMut::strided(&mut expected, target, 0).unwrap()];
        kernelwise_reference::compute(&workload, &[x], &mut views).unwrap();
        let mut followed = 0;
        for kernel in kernels_for(&workload) {
            let setting = kernel.space(&workload, &machine).default_setting();
            let mut out = vec![9u32; 60];
            let mut outputs = [TensorViewMut::strided(&mut out, target, 0).unwrap()];
            let inputs = [x];
            let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
            match kernel.execute(&mut call, &setting, &mut Scratch::new()) {
                Ok(()) => {
                    followed += 1;
                    assert_eq!(out, expected, "{} on {text}", kernel.spec().id);
                }
                Err(fault) => {
                    assert!(matches!(fault, Fault::View(_)), "{fault}");
                    assert_eq!(out, [9u32; 60], "{}", kernel.spec().id);
                }
            }
        }
        assert_eq!(followed, 1, "{text}");
    }
}

/// Lines have no squares, so there is nothing to choose; matrices do.
#[test]
fn squares_are_offered_where_there_are_matrices() {
    let machine = kernelwise_probe::machine();
    for (text, offered) in [
        ("transpose f32 8x3x64 perm1,0,2", 1),
        ("transpose f32 3x4x5 perm0,1,2", 1),
        ("transpose f32 8x3x4 perm1,0,2", 4),
        ("transpose f32 64x64 perm1,0", 4),
    ] {
        let workload: Workload = text.parse().unwrap();
        for kernel in kernels_for(&workload) {
            let space = kernel.space(&workload, &machine);
            let tile = space.axes().find(|(name, _)| *name == "tile");
            let naive = kernel.spec().id.variant() == "naive";
            let tiles = tile.map(|(_, axis)| axis.values().len());
            let expected = (!naive).then_some(offered);
            assert_eq!(tiles, expected, "{} on {text}", kernel.spec().id);
        }
    }
}

/// Settings from elsewhere move the same elements.
#[test]
fn any_parameter_is_taken_for_one_that_makes_sense() {
    let data: Vec<u32> = (0..600).collect();
    for text in ["copy u32 20x30", "transpose u32 20x30 perm1,0"] {
        let workload: Workload = text.parse().unwrap();
        let shape = workload.outputs()[0].shape;
        let inputs = [TensorView::contiguous(&data, workload.inputs()[0].shape).unwrap()];
        let mut expected = vec![0u32; 600];
        let mut views = [TensorViewMut::contiguous(&mut expected, shape).unwrap()];
        kernelwise_reference::compute(&workload, &inputs, &mut views).unwrap();
        for kernel in kernels_for(&workload) {
            for value in [0, 3, 257, u32::MAX] {
                let mut out = vec![0u32; 600];
                let mut outputs = [TensorViewMut::contiguous(&mut out, shape).unwrap()];
                let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
                let setting = Setting::new([value; 3]);
                kernel
                    .execute(&mut call, &setting, &mut Scratch::new())
                    .unwrap();
                assert!(out == expected, "{} {value} on {text}", kernel.spec().id);
            }
        }
    }
}

#[test]
fn other_operations_are_refused() {
    let workload: Workload = "elementwise.neg f32 4".parse().unwrap();
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
