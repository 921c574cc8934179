//! Every built-in operation from tensors alone, and what is said of tensors that do not fit.
#![allow(clippy::unwrap_used)]

use std::sync::OnceLock;

use kernelwise::backend::Fault;
use kernelwise::op::{
    ActivationKind, Binary, Broadcast, FftKind, PoolKind, ReduceKind, ScanKind, ScatterKind,
    SoftmaxKind, Step, WorkloadError,
};
use kernelwise::types::{Layout, ViewError};
use kernelwise::{
    Convolution, Error, Kernelwise, Pooling, Shape, Tensor, TensorMut, TensorView, TensorViewMut,
};
use num_complex::Complex32;

fn kw() -> &'static Kernelwise {
    static KW: OnceLock<Kernelwise> = OnceLock::new();
    KW.get_or_init(|| Kernelwise::builder().build().unwrap())
}

/// 1, 2, 3 and so on.
fn counted<const N: usize>() -> [f32; N] {
    std::array::from_fn(|i| 1.0 + i as f32)
}

#[test]
fn products_of_matrices_and_stacks() {
    let (a, b, mut out) = (counted::<6>(), counted::<6>(), [0f32; 4]);
    kw().matmul((&a, [2, 3]), (&b, [3, 2]), (&mut out, [2, 2]))
        .unwrap();
    assert_eq!(out, [22.0, 28.0, 49.0, 64.0]);
    // The same with `a` and `b` stored the other way round.
    let (ta, tb) = (
        [1f32, 4.0, 2.0, 5.0, 3.0, 6.0],
        [1f32, 3.0, 5.0, 2.0, 4.0, 6.0],
    );
    let mut again = [0f32; 4];
    kw().matmul_transposed(
        (&ta, [3, 2]),
        true,
        (&tb, [2, 3]),
        true,
        (&mut again, [2, 2]),
    )
    .unwrap();
    assert_eq!(again, out);
    // A stack of one, and stacks in two dimensions.
    let mut one = [0f32; 4];
    kw().matmul((&a, [1, 2, 3]), (&b, [1, 3, 2]), (&mut one, [1, 2, 2]))
        .unwrap();
    assert_eq!(one, out);
    let (a, b, mut out) = (counted::<4>(), counted::<4>(), [0f32; 4]);
    let sizes = [2, 2, 1, 1];
    kw().matmul((&a, sizes), (&b, sizes), (&mut out, sizes))
        .unwrap();
    assert_eq!(out, [1.0, 4.0, 9.0, 16.0]);
    // A stack of three dimensions is a batch as it is.
    let mut out = [0f32; 4];
    kw().matmul((&a, [4, 1, 1]), (&b, [4, 1, 1]), (&mut out, [4, 1, 1]))
        .unwrap();
    assert_eq!(out, [1.0, 4.0, 9.0, 16.0]);
}

#[test]
fn tensors_that_do_not_fit_are_told_with_both_shapes() {
    let (a, b, mut out) = (counted::<6>(), counted::<6>(), [0f32; 6]);
    let error = kw()
        .matmul((&a, [2, 3]), (&b, [2, 3]), (&mut out[..4], [2, 2]))
        .unwrap_err();
    assert!(matches!(
        error,
        Error::Workload(WorkloadError::Illegal { .. })
    ));
    assert_eq!(
        error.to_string(),
        "matmul: inner dimensions differ: 3 in 2x3, 2 in 2x3"
    );
    let error = kw()
        .matmul((&a, [2, 3]), (&b, [3, 2]), (&mut out, [2, 3]))
        .unwrap_err();
    assert!(matches!(error, Error::Tensor(ViewError::Mismatch { .. })));
    assert_eq!(
        error.to_string(),
        "matmul f32 2x3x2: operand `out` is f32 2x2, the tensor f32 2x3"
    );
    let error = kw()
        .matmul((&a, [1, 2, 3]), (&b, [1, 3, 2]), (&mut out, [1, 2, 3]))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "matmul: the product of 1x2x3 and 1x3x2 does not have shape 1x2x3"
    );
    let error = kw()
        .matmul((&a, [2, 4]), (&b, [3, 2]), (&mut out, [2, 2]))
        .unwrap_err();
    assert_eq!(error.to_string(), "shape 2x4 has 8 elements, the memory 6");
    let error = kw()
        .scatter(
            ScatterKind::Add,
            (&[0i64, 1], [2]),
            (&a, [2, 3]),
            0,
            (&mut out, [3, 2]),
        )
        .unwrap_err();
    assert!(error.to_string().contains("2x3") && error.to_string().contains("3x2"));
    let indices = [0u8, 1];
    let error = kw()
        .gather((&a, [2, 3]), (&indices, [2]), 0, (&mut out, [2, 3]))
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("operand `indices` is i64 2, the tensor u8 2"),
        "{error}"
    );
    let nothing: [f32; 0] = [];
    let error = kw()
        .copy((&nothing, [0, 3]), (&mut [0f32; 0], [0, 3]))
        .unwrap_err();
    assert!(
        matches!(error, Error::Workload(WorkloadError::Empty { .. })),
        "{error}"
    );
}

#[test]
fn what_is_done_element_by_element() {
    let (x, y, mut out) = ([-1f32, 2.0, -3.0, 4.0], [1f32; 4], [0f32; 4]);
    let shape = [2, 2];
    kw().activation(ActivationKind::Relu, (&x, shape), (&mut out, shape))
        .unwrap();
    assert_eq!(out, [0.0, 2.0, 0.0, 4.0]);
    let relu = Step::Activation(ActivationKind::Relu);
    let add = Step::Binary(Binary::Add, Broadcast::Full);
    let inputs = [(&x, shape).tensor().unwrap(), (&y, shape).tensor().unwrap()];
    kw().elementwise(&[add, relu], &inputs, (&mut out, shape))
        .unwrap();
    assert_eq!(out, [0.0, 3.0, 0.0, 5.0]);
    // A chain of one activation is an activation.
    kw().elementwise(&[relu], &inputs[..1], (&mut out, shape))
        .unwrap();
    assert_eq!(out, [0.0, 2.0, 0.0, 4.0]);
    let error = kw().elementwise(&[add], &inputs[..1], (&mut out, shape));
    assert!(matches!(error, Err(Error::Tensor(ViewError::Count { .. }))));
}

#[test]
fn windows_that_move_over_images_and_volumes() {
    let (image, mut out) = (counted::<9>(), [0f32; 4]);
    let ones = [1f32; 4];
    let plain = Convolution::default();
    kw().conv2d(
        (&image, [1, 1, 3, 3]),
        (&ones, [1, 1, 2, 2]),
        plain,
        (&mut out, [1, 1, 2, 2]),
    )
    .unwrap();
    assert_eq!(out, [12.0, 16.0, 24.0, 28.0]);
    let mut strided = [0f32; 4];
    let how = Convolution {
        stride: [2, 2],
        pad: [1, 1],
        ..Convolution::default()
    };
    kw().conv2d(
        (&image, [1, 1, 3, 3]),
        (&ones, [1, 1, 2, 2]),
        how,
        (&mut strided, [1, 1, 2, 2]),
    )
    .unwrap();
    assert_eq!(strided, [1.0, 5.0, 11.0, 28.0]);
    let (volume, mut one) = (counted::<8>(), [0f32; 1]);
    let ones = [1f32; 8];
    let sizes = [1, 1, 2, 2, 2];
    kw().conv3d(
        (&volume, sizes),
        (&ones, sizes),
        Convolution::default(),
        (&mut one, [1; 5]),
    )
    .unwrap();
    assert_eq!(one, [36.0]);
    let how = Pooling {
        window: [2, 2],
        stride: [1, 1],
        pad: [0, 0],
    };
    kw().pool2d(
        PoolKind::Max,
        (&image, [1, 1, 3, 3]),
        how,
        (&mut out, [1, 1, 2, 2]),
    )
    .unwrap();
    assert_eq!(out, [5.0, 6.0, 8.0, 9.0]);
}

#[test]
fn rows_and_channels_are_normalised() {
    let x = [1f32, 3.0, 10.0, 30.0];
    let (one, zero) = ([1f32; 2], [0f32; 2]);
    let (mut out, mut mean, mut variance) = ([0f32; 4], [0f32; 2], [0f32; 2]);
    let close = |a: &[f32], b: &[f32]| {
        let near = a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-3);
        assert!(near, "{a:?} {b:?}");
    };
    kw().layer_norm((&x, [2, 2]), (&one, [2]), (&zero, [2]), (&mut out, [2, 2]))
        .unwrap();
    close(&out, &[-1.0, 1.0, -1.0, 1.0]);
    kw().rms_norm((&x, [2, 2]), (&one, [2]), (&mut out, [2, 2]))
        .unwrap();
    let root = 5f32.sqrt();
    close(&out, &[1.0 / root, 3.0 / root, 1.0 / root, 3.0 / root]);
    kw().batch_norm(
        (&x, [2, 2]),
        (&one, [2]),
        (&zero, [2]),
        (&mut out, [2, 2]),
        (&mut mean, [2]),
        (&mut variance, [2]),
    )
    .unwrap();
    close(&out, &[-1.0, -1.0, 1.0, 1.0]);
    close(&mean, &[5.5, 16.5]);
    close(&variance, &[20.25, 182.25]);
    let learned = ((&mean, [2]), (&variance, [2]));
    let mut again = [0f32; 4];
    kw().batch_norm_inference(
        (&x, [2, 2]),
        (&one, [2]),
        (&zero, [2]),
        learned.0,
        learned.1,
        (&mut again, [2, 2]),
    )
    .unwrap();
    close(&again, &out);
    let equal = [2f32; 4];
    kw().softmax(
        SoftmaxKind::Plain,
        (&equal, [1, 4]),
        None,
        (&mut out, [1, 4]),
    )
    .unwrap();
    close(&out, &[0.25; 4]);
}

#[test]
fn what_is_summed_and_sorted() {
    let x = [3u32, 1, 2, 6, 5, 4];
    let (mut sums, mut running, mut sorted) = ([0u32; 2], [0u32; 6], [0u32; 6]);
    kw().reduce(ReduceKind::Max, (&x, [2, 3]), &[1], (&mut sums, [2]))
        .unwrap();
    assert_eq!(sums, [3, 6]);
    let mut total = [0u32; 1];
    kw().reduce(
        ReduceKind::Sum,
        (&x, [2, 3]),
        &[],
        (&mut total, Shape::SCALAR),
    )
    .unwrap();
    assert_eq!(total, [21]);
    kw().scan(ScanKind::Sum, (&x, [2, 3]), None, (&mut running, [2, 3]))
        .unwrap();
    assert_eq!(running, [3, 4, 6, 6, 11, 15]);
    kw().sort((&x, [2, 3]), None, (&mut sorted, [2, 3]))
        .unwrap();
    assert_eq!(sorted, [1, 2, 3, 4, 5, 6]);
    let mut places = [0i64; 6];
    kw().argsort((&x, [2, 3]), None, (&mut places, [2, 3]))
        .unwrap();
    assert_eq!(places, [1, 2, 0, 2, 1, 0]);
    let (values, mut with) = (counted::<6>(), [0f32; 6]);
    kw().sort_pairs(
        (&x, [2, 3]),
        (&values, [2, 3]),
        Some(1),
        (&mut sorted, [2, 3]),
        (&mut with, [2, 3]),
    )
    .unwrap();
    assert_eq!(with, [2.0, 3.0, 1.0, 6.0, 5.0, 4.0]);
}

#[test]
fn what_is_moved_and_picked() {
    let x = counted::<6>();
    let mut out = [0f32; 6];
    kw().transpose((&x, [2, 3]), &[1, 0], (&mut out, [3, 2]))
        .unwrap();
    assert_eq!(out, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    kw().reshape((&x, [2, 3]), (&mut out, [3, 2])).unwrap();
    assert_eq!(out, x);
    let mut copy = [0f32; 6];
    kw().copy((&x, [6]), (&mut copy, [6])).unwrap();
    assert_eq!(copy, x);
    let mut picked = [0f32; 4];
    kw().gather((&x, [3, 2]), (&[2i32, 0], [2]), 0, (&mut picked, [2, 2]))
        .unwrap();
    assert_eq!(picked, [5.0, 6.0, 1.0, 2.0]);
    let mut table = [10f32; 6];
    kw().scatter(
        ScatterKind::Add,
        (&[2i64, 0], [2]),
        (&picked, [2, 2]),
        0,
        (&mut table, [3, 2]),
    )
    .unwrap();
    assert_eq!(table, [11.0, 12.0, 10.0, 10.0, 15.0, 16.0]);
}

#[test]
fn spectra_there_and_back() {
    let signal = [1f32, 0.0, 0.0, 0.0];
    let mut spectrum = [Complex32::default(); 3];
    kw().fft(FftKind::Real, (&signal, [1, 4]), (&mut spectrum, [1, 3]))
        .unwrap();
    assert!(
        spectrum
            .iter()
            .all(|z| (z.re - 1.0).abs() < 1e-6 && z.im.abs() < 1e-6)
    );
    let mut back = [0f32; 4];
    kw().fft(
        FftKind::InverseReal,
        (&spectrum, [1, 3]),
        (&mut back, [1, 4]),
    )
    .unwrap();
    let scale = back[0];
    assert!(
        scale > 0.0 && back[1..].iter().all(|x| x.abs() < 1e-6 * scale),
        "{back:?}"
    );
}

#[test]
fn views_of_any_strides_are_tensors() {
    let wide = counted::<12>();
    let columns = Layout::strided("3x2".parse().unwrap(), &[4, 2]).unwrap();
    let view = TensorView::strided(&wide, columns, 1).unwrap();
    let mut out = [0f32; 6];
    let mut to = TensorViewMut::contiguous(&mut out, "3x2".parse().unwrap()).unwrap();
    kw().copy(view, &mut to).unwrap();
    // Lent, not given away.
    kw().copy(view, to).unwrap();
    assert_eq!(out, [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
    let sizes: &[usize] = &[6];
    let mut again = vec![0f32; 6];
    kw().copy((&out[..], sizes), (&mut again, sizes)).unwrap();
    assert_eq!(again, out);
    let rows = (&mut out[..], [2, 3]).tensor_mut().unwrap();
    kw().copy(&rows, (&mut again, [2, 3])).unwrap();
}

#[cfg(feature = "ndarray")]
#[test]
fn arrays_are_tensors_whatever_their_strides() {
    use ndarray::{Array2, ArrayD, IxDyn, s};

    let a = Array2::from_shape_fn((3, 4), |(i, j)| (i * 4 + j) as f64);
    let b = Array2::from_shape_fn((5, 4), |(i, j)| (i + j) as f64);
    let mut c = Array2::<f64>::zeros((3, 5));
    kw().matmul(&a, b.t(), &mut c).unwrap();
    assert_eq!(c, a.dot(&b.t()));
    let mut wide = Array2::<f64>::zeros((3, 9));
    kw().matmul(&a, b.t(), wide.slice_mut(s![.., 2..7]))
        .unwrap();
    assert_eq!(wide.slice(s![.., 2..7]), c);
    assert_eq!(wide.column(1).sum() + wide.column(7).sum(), 0.0);
    let deep = ArrayD::<f32>::zeros(IxDyn(&[1; 9]));
    let error = kw().copy(&deep, (&mut [0f32; 1], [1])).unwrap_err();
    assert!(
        error.to_string().contains("at most 8 dimensions, not 9"),
        "{error}"
    );
}

#[test]
fn calls_plans_and_explanations_are_the_selectors() {
    use kernelwise::{Call, Workload};

    let workload: Workload = "copy f32 3".parse().unwrap();
    let (x, mut out) = (counted::<3>(), [0f32; 3]);
    let inputs = [(&x, [3]).tensor().unwrap()];
    let mut outputs = [(&mut out, [3]).tensor_mut().unwrap()];
    let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
    kw().run(&mut call).unwrap();
    kw().plan(&workload).unwrap().run(&mut call).unwrap();
    assert_eq!(out, x);
    let decision = kw().explain(&workload).unwrap();
    assert_eq!(decision.chosen.candidate.kernel.operation(), "copy");
    assert!(kw().statistics().workloads > 0);
    let error = kw()
        .gather((&x, [3, 1]), (&[7i64], [1]), 0, (&mut [0f32; 1], [1, 1]))
        .unwrap_err();
    let Error::Run(kernelwise::select::RunError::Call(fault)) = &error else {
        panic!("{error}");
    };
    assert!(
        !matches!(fault, Fault::Kernel { .. }),
        "an index out of range is the caller's: {fault}"
    );
    assert_eq!(kw().selector().quarantined(), []);
}
