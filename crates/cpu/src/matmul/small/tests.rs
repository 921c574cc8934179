//! Small products and products with vectors, against the reference.

use std::sync::Arc;

use kernelwise_backend::{Call, Fault, HostKernel, Scratch, Setting};
use kernelwise_types::{Element, Layout, Shape, TensorView, TensorViewMut, Workload};

use crate::isa::Level;

/// What tests need to know of an element type.
pub(in crate::matmul) trait Number: Element + PartialEq {
    const EPSILON: f64;
    fn of(value: f64) -> Self;
    fn wide(self) -> f64;
}

impl Number for f32 {
    const EPSILON: f64 = f32::EPSILON as f64;
    fn of(value: f64) -> Self {
        value as f32
    }
    fn wide(self) -> f64 {
        self.into()
    }
}

impl Number for f64 {
    const EPSILON: f64 = f64::EPSILON;
    fn of(value: f64) -> Self {
        value
    }
    fn wide(self) -> f64 {
        self
    }
}

/// Written into gaps, where nothing may change.
const UNTOUCHED: f64 = 77.0;

/// Rows of the last dimension `gap` elements apart, and so are matrices of a stack.
fn layout(shape: &Shape, gap: usize) -> Layout {
    let mut strides = vec![1isize; shape.rank()];
    for axis in (0..shape.rank() - 1).rev() {
        strides[axis] = strides[axis + 1] * shape.dims()[axis + 1] as isize + gap as isize;
    }
    Layout::strided(*shape, &strides).unwrap()
}

fn length(layout: &Layout) -> usize {
    layout.span().unwrap().1 as usize + 1
}

/// Values between -1 and 1 that differ from place to place.
fn values<T: Number>(length: usize, seed: u64) -> Vec<T> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        T::of((state >> 40) as f64 / f64::from(1u32 << 23) - 1.0)
    };
    (0..length).map(|_| next()).collect()
}

/// Runs a kernel on a workload whose rows have gaps of so many elements, after `change` was let at the inputs, and compares with
/// the reference: within the rounding of as many steps as the product is deep, and NaN where that is NaN.
pub(in crate::matmul) fn check_changed<T: Number>(
    kernel: &dyn HostKernel,
    text: &str,
    gap: usize,
    setting: &Setting,
    change: impl Fn(&mut [T], &mut [T]),
) {
    let workload: Workload = text.parse().unwrap();
    kernel.accepts(&workload).unwrap();
    let layouts: Vec<Layout> = workload
        .inputs()
        .iter()
        .chain(workload.outputs())
        .map(|operand| layout(&operand.shape, gap))
        .collect();
    let mut a = values::<T>(length(&layouts[0]), 1);
    let mut b = values::<T>(length(&layouts[1]), 2);
    change(&mut a, &mut b);
    let inputs = [
        TensorView::strided(&a, layouts[0], 0).unwrap(),
        TensorView::strided(&b, layouts[1], 0).unwrap(),
    ];
    let mut out = vec![T::of(UNTOUCHED); length(&layouts[2])];
    let mut outputs = [TensorViewMut::strided(&mut out, layouts[2], 0).unwrap()];
    let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
    kernel
        .execute(&mut call, setting, &mut Scratch::new())
        .unwrap();

    let shape = workload.outputs()[0].shape;
    let mut wanted = vec![T::of(0.0); shape.elements()];
    let mut place = [TensorViewMut::contiguous(&mut wanted, shape).unwrap()];
    kernelwise_reference::compute(&workload, &inputs, &mut place).unwrap();
    let got: Vec<T> = outputs[0].iter::<T>().unwrap().collect();
    let depth = a.len().max(b.len()) as f64;
    for (i, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
        let (got, wanted) = (got.wide(), wanted.wide());
        let near = (got - wanted).abs() <= depth * T::EPSILON;
        assert!(
            near || got == wanted || (got.is_nan() && wanted.is_nan()),
            "{} {text} gap {gap}: {got} at {i}, not {wanted}",
            kernel.spec().id
        );
    }
    let untouched = out.iter().filter(|value| value.wide() == UNTOUCHED).count();
    assert_eq!(
        untouched,
        out.len() - wanted.len(),
        "{text} gap {gap}: gaps are written"
    );
}

/// [`check_changed`] without a change.
pub(in crate::matmul) fn check(kernel: &dyn HostKernel, text: &str, gap: usize, setting: &Setting) {
    match kernel.spec().id.dtypes()[0] {
        kernelwise_types::DType::F32 => check_changed::<f32>(kernel, text, gap, setting, |_, _| ()),
        _ => check_changed::<f64>(kernel, text, gap, setting, |_, _| ()),
    }
}

/// The kernels of a list whose variant begins with a word.
pub(in crate::matmul) fn named(
    kernels: Vec<Arc<dyn HostKernel>>,
    word: &str,
) -> Vec<Arc<dyn HostKernel>> {
    let found: Vec<_> = kernels
        .into_iter()
        .filter(|kernel| kernel.spec().id.variant().starts_with(word))
        .collect();
    assert_eq!(
        found.len(),
        2 * Level::all().len(),
        "two element types at each level"
    );
    found
}

fn micro() -> Vec<Arc<dyn HostKernel>> {
    named(super::kernels(&Level::all()).unwrap(), "micro-")
}

fn unpacked() -> Vec<Arc<dyn HostKernel>> {
    named(super::kernels(&Level::all()).unwrap(), "unpacked-")
}

/// The text of a product for a kernel's element type.
pub(in crate::matmul) fn text(kernel: &dyn HostKernel, rest: &str) -> String {
    format!("matmul {} {rest}", kernel.spec().id.dtypes()[0])
}

#[test]
fn squares_of_every_size_are_right_with_and_without_gaps() {
    for kernel in micro() {
        for size in 1..=16 {
            for gap in [0, 1] {
                let text = text(&*kernel, &format!("{size}x{size}x{size}"));
                check(&*kernel, &text, gap, &Setting::NONE);
            }
        }
    }
}

#[test]
fn rectangles_are_right_whichever_side_is_transposed() {
    for kernel in micro() {
        for sizes in [
            "1x1x16", "16x1x1", "3x5x7", "16x16x15", "13x2x9", "9x16x4", "2x7x16",
        ] {
            for flags in ["", " ta", " tb", " ta tb"] {
                for gap in [0, 3] {
                    let text = text(&*kernel, &format!("{sizes}{flags}"));
                    check(&*kernel, &text, gap, &Setting::NONE);
                }
            }
        }
    }
}

#[test]
fn every_matrix_of_a_batch_is_computed() {
    for kernel in micro() {
        for rest in [
            "3x4x4x4",
            "5x2x3x7",
            "4x6x5x3 ta",
            "4x6x5x3 tb",
            "2x16x16x16",
        ] {
            for gap in [0, 2] {
                check(&*kernel, &text(&*kernel, rest), gap, &Setting::NONE);
            }
        }
    }
    for kernel in unpacked() {
        check(&*kernel, &text(&*kernel, "3x18x5x19"), 2, &Setting::NONE);
    }
}

/// Sizes around the borders of tiles: several strips, several blocks, last vectors of every length.
#[test]
fn tiles_fit_together_at_every_border() {
    for kernel in unpacked() {
        for n in [1, 7, 15, 16, 17, 33, 47, 49, 65, 97] {
            for m in [1, 6, 13, 17, 25] {
                let text = text(&*kernel, &format!("{m}x5x{n}"));
                check(&*kernel, &text, 0, &Setting::NONE);
            }
        }
        for rest in [
            "40x70x50",
            "40x70x50 ta",
            "9x9x1 tb",
            "512x2x3",
            "3x512x2",
            "2x3x512",
        ] {
            check(&*kernel, &text(&*kernel, rest), 1, &Setting::NONE);
        }
    }
}

/// What lies outside a mask must not leak into the result, and what is inside must come through.
#[test]
fn values_that_are_no_numbers_stay_in_their_rows_and_columns() {
    for kernel in micro().into_iter().chain(unpacked()) {
        let change = |a: &mut [f64], b: &mut [f64]| {
            a[3] = f64::INFINITY;
            a[7] = f64::NAN;
            b[5] = f64::NEG_INFINITY;
        };
        for rest in ["5x5x5", "7x3x11", "11x5x9"] {
            let text = text(&*kernel, rest);
            if text.contains("f64") {
                check_changed::<f64>(&*kernel, &text, 0, &Setting::NONE, change);
            } else {
                check_changed::<f32>(&*kernel, &text, 0, &Setting::NONE, |a, b| {
                    (a[3], a[7], b[5]) = (f32::INFINITY, f32::NAN, f32::NEG_INFINITY);
                });
            }
        }
    }
}

/// Asks a kernel to run on tensors without gaps, as `execute` alone does; gives the fault.
pub(in crate::matmul) fn fault(kernel: &dyn HostKernel, text: &str, transposed: bool) -> Fault {
    let workload: Workload = text.parse().unwrap();
    let (operands, out) = (workload.inputs(), workload.outputs()[0]);
    let buffers: Vec<Vec<f32>> = operands
        .iter()
        .map(|o| vec![1.0; o.shape.elements()])
        .collect();
    let inputs: Vec<TensorView<'_>> = operands
        .iter()
        .zip(&buffers)
        .map(|(operand, buffer)| TensorView::contiguous(buffer, operand.shape).unwrap())
        .collect();
    let mut result = vec![f32::NAN; out.shape.elements()];
    let strides = [1, out.shape.dims()[0] as isize];
    let place = if transposed {
        Layout::strided(out.shape, &strides).unwrap()
    } else {
        Layout::contiguous(out.shape)
    };
    let mut outputs = [TensorViewMut::strided(&mut result, place, 0).unwrap()];
    let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
    let fault = kernel
        .execute(&mut call, &Setting::NONE, &mut Scratch::new())
        .unwrap_err();
    assert!(
        result.iter().all(|value| value.is_nan()),
        "{text}: written before the fault"
    );
    fault
}

#[test]
fn calls_that_are_not_for_them_are_refused_unwritten() {
    for kernel in micro() {
        let wide = kernel
            .accepts(&"matmul f32 2x17x2".parse().unwrap())
            .unwrap_err();
        assert_eq!(wide.to_string(), "needs m, n and k of 16 at the most");
        if kernel.spec().id.as_str().contains("f32") {
            for text in [
                "matmul f32 2x17x2",
                "matmul f32 17x2x2",
                "matmul f32 2x2x17",
            ] {
                assert!(
                    fault(&*kernel, text, false)
                        .to_string()
                        .ends_with("16 at the most")
                );
            }
            fault(&*kernel, "matmul f32 4x4x4", true);
            fault(&*kernel, "elementwise.add f32 4x4", false);
        } else {
            fault(&*kernel, "matmul f32 4x4x4", false);
            fault(&*kernel, "matmul f32 4x5x4", false);
        }
    }
    for kernel in unpacked() {
        for text in ["matmul f32 4x513x4", "matmul f32 4x4x4 tb"] {
            kernel.accepts(&text.parse().unwrap()).unwrap_err();
        }
        fault(&*kernel, "matmul f32 4x4x4 tb", false);
        fault(&*kernel, "matmul f32 4x5x6", true);
        fault(&*kernel, "elementwise.add f32 4x4", false);
    }
}
