//! Arbitrary legal workloads: a small problem of every operation, on every element type it takes.

use kernelwise_types::op::{
    Activation, ActivationKind, Binary, Broadcast, Conv2d, Conv3d, Custom, Declared, Elementwise,
    Fft, FftKind, Gather, IndexType, Matmul, Norm, NormKind, Operation, Pool2d, PoolKind, Reduce,
    ReduceKind, Reshape, Scan, ScanKind, Scatter, ScatterKind, Slope, Softmax, SoftmaxKind, Sort,
    SortKind, Step, Steps, TensorCopy, Transpose, Unary,
};
use kernelwise_types::{DType, LayoutKind, Shape, Workload};
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Small enough that doubling keeps every count far from its limit.
fn size() -> impl Strategy<Value = usize> {
    1usize..=9
}

pub(crate) fn shape(ranks: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Shape> {
    proptest::collection::vec(size(), ranks).prop_map(|dims| Shape::new(&dims).unwrap())
}

/// A shape and one of its axes.
fn shape_and_axis() -> impl Strategy<Value = (Shape, usize)> {
    (shape(1..=4), any::<Index>()).prop_map(|(shape, axis)| (shape, axis.index(shape.rank())))
}

fn activation_kind() -> impl Strategy<Value = ActivationKind> {
    let slope = (0.0f32..=f32::MAX).prop_map(|slope| Slope::new(slope).unwrap());
    (select(ActivationKind::ALL), slope).prop_map(|(kind, slope)| match kind {
        ActivationKind::LeakyRelu(_) => ActivationKind::LeakyRelu(slope),
        other => other,
    })
}

/// A step that is legal on a shape of this rank.
fn step(rank: usize) -> impl Strategy<Value = Step> {
    // `row` is another word for the full shape below two dimensions, `scalar` below one.
    let modes: Vec<Broadcast> = Broadcast::ALL
        .iter()
        .copied()
        .filter(|mode| match mode {
            Broadcast::Full => true,
            Broadcast::Row => rank >= 2,
            Broadcast::Scalar => rank >= 1,
        })
        .collect();
    prop_oneof![
        select(Unary::ALL).prop_map(Step::Unary),
        (select(Binary::ALL), select(modes)).prop_map(|(f, mode)| Step::Binary(f, mode)),
        activation_kind().prop_map(Step::Activation),
    ]
}

fn elementwise() -> impl Strategy<Value = Operation> {
    let steps = |shape: Shape| {
        (
            Just(shape),
            proptest::collection::vec(step(shape.rank()), 1..=4),
        )
    };
    shape(0..=4)
        .prop_flat_map(steps)
        .prop_filter(
            "a single activation is an operation of its own",
            |(_, steps)| !matches!(steps.as_slice(), [Step::Activation(_)]),
        )
        .prop_map(|(shape, steps)| {
            let steps = Steps::new(&steps).unwrap();
            Elementwise { steps, shape }.into()
        })
}

/// One axis of a window: input, kernel, stride, padding, dilation. The window always fits.
fn window_axis() -> impl Strategy<Value = [usize; 5]> {
    (1usize..=4, 1usize..=4, 0usize..=3, 1usize..=3, 0usize..=8).prop_map(
        |(kernel, stride, pad, dilation, more)| {
            let extent = dilation * (kernel - 1) + 1;
            let input = (extent + more).saturating_sub(2 * pad).max(1);
            [input, kernel, stride, pad, dilation]
        },
    )
}

fn channels() -> impl Strategy<Value = (usize, usize, usize, usize)> {
    (size(), size(), size(), size())
        .prop_map(|(n, c, k, groups)| (n, c * groups, k * groups, groups))
}

fn conv2d() -> impl Strategy<Value = Operation> {
    (channels(), window_axis(), window_axis()).prop_map(|((n, c, k, groups), y, x)| {
        let conv = Conv2d {
            n,
            c,
            h: y[0],
            w: x[0],
            k,
            r: y[1],
            s: x[1],
            stride: [y[2], x[2]],
            pad: [y[3], x[3]],
            dilation: [y[4], x[4]],
            groups,
        };
        conv.into()
    })
}

fn conv3d() -> impl Strategy<Value = Operation> {
    let axes = (window_axis(), window_axis(), window_axis());
    (channels(), axes).prop_map(|((n, c, k, groups), (z, y, x))| {
        let conv = Conv3d {
            n,
            c,
            d: z[0],
            h: y[0],
            w: x[0],
            k,
            t: z[1],
            r: y[1],
            s: x[1],
            stride: [z[2], y[2], x[2]],
            pad: [z[3], y[3], x[3]],
            dilation: [z[4], y[4], x[4]],
            groups,
        };
        conv.into()
    })
}

fn pool2d() -> impl Strategy<Value = Operation> {
    let axes = (window_axis(), window_axis());
    (select(PoolKind::ALL), size(), size(), axes).prop_map(|(kind, n, c, (y, x))| {
        // Dilated windows fit, so those without dilation do; their padding must be smaller still.
        let pad = |axis: [usize; 5]| axis[3].min(axis[1] - 1);
        let pool = Pool2d {
            kind,
            n,
            c,
            h: y[0].max(y[1]),
            w: x[0].max(x[1]),
            r: y[1],
            s: x[1],
            stride: [y[2], x[2]],
            pad: [pad(y), pad(x)],
        };
        pool.into()
    })
}

fn sort() -> impl Strategy<Value = Operation> {
    let kind = prop_oneof![
        Just(SortKind::Keys),
        Just(SortKind::Arg),
        select(DType::ALL).prop_map(SortKind::Pairs),
    ];
    let flags = (any::<bool>(), any::<bool>());
    (kind, shape_and_axis(), flags).prop_map(|(kind, (shape, axis), (descending, stable))| {
        let sort = Sort {
            kind,
            shape,
            axis,
            descending,
            stable,
        };
        sort.into()
    })
}

fn reduce() -> impl Strategy<Value = Operation> {
    (select(ReduceKind::ALL), shape(0..=4), any::<u8>()).prop_map(|(kind, shape, bits)| {
        let axes: Vec<usize> = (0..shape.rank())
            .filter(|axis| bits >> axis & 1 == 1)
            .collect();
        Reduce::infer(kind, &shape, &axes).unwrap().into()
    })
}

fn transpose() -> impl Strategy<Value = Operation> {
    let order = |shape: Shape| {
        let axes: Vec<usize> = (0..shape.rank()).collect();
        (Just(shape), Just(axes).prop_shuffle())
    };
    let transpose = |(shape, perm): (Shape, Vec<usize>)| Transpose::infer(&shape, &perm).unwrap();
    shape(1..=5)
        .prop_flat_map(order)
        .prop_map(move |parts| transpose(parts).into())
}

fn norm() -> impl Strategy<Value = Operation> {
    (select(NormKind::ALL), shape(2..=4), any::<bool>()).prop_map(|(kind, shape, flag)| {
        let inference = flag && kind == NormKind::Batch;
        let norm = Norm {
            kind,
            shape,
            inference,
        };
        norm.into()
    })
}

fn custom() -> impl Strategy<Value = Operation> {
    let counts = (any::<u32>(), any::<u32>(), 1..=u32::MAX);
    let declared = proptest::option::of(counts.prop_map(|(flops, read, written)| Declared {
        flops: flops.into(),
        read: read.into(),
        written: written.into(),
    }));
    ("[a-z0-9_]{1,32}", shape(0..=4), declared).prop_map(|(name, shape, declared)| {
        let custom = Custom {
            declared,
            ..Custom::new(&name, shape).unwrap()
        };
        custom.into()
    })
}

/// A legal problem of each operation; whether it is legal on an element type is asked later.
pub(crate) fn operations() -> Vec<(&'static str, BoxedStrategy<Operation>)> {
    let matmul = (size(), size(), size(), size(), any::<bool>(), any::<bool>()).prop_map(
        |(batch, m, k, n, trans_a, trans_b)| {
            let matmul = Matmul {
                batch,
                m,
                k,
                n,
                trans_a,
                trans_b,
            };
            matmul.into()
        },
    );
    let activation = (activation_kind(), shape(0..=4))
        .prop_map(|(kind, shape)| Activation { kind, shape }.into());
    let softmax = (select(SoftmaxKind::ALL), shape_and_axis())
        .prop_map(|(kind, (shape, axis))| Softmax { kind, shape, axis }.into());
    let flags = (any::<bool>(), any::<bool>());
    let scan = (select(ScanKind::ALL), shape_and_axis(), flags).prop_map(
        |(kind, (shape, axis), (exclusive, reverse))| {
            let scan = Scan {
                kind,
                shape,
                axis,
                exclusive,
                reverse,
            };
            scan.into()
        },
    );
    let fft =
        (select(FftKind::ALL), shape(1..=4)).prop_map(|(kind, shape)| Fft { kind, shape }.into());
    let gather = (shape_and_axis(), size(), select(IndexType::ALL)).prop_map(
        |((shape, axis), indices, index)| {
            let gather = Gather {
                shape,
                axis,
                indices,
                index,
            };
            gather.into()
        },
    );
    let scatter = (
        select(ScatterKind::ALL),
        shape_and_axis(),
        size(),
        select(IndexType::ALL),
    )
        .prop_map(|(kind, (shape, axis), indices, index)| {
            let scatter = Scatter {
                kind,
                shape,
                axis,
                indices,
                index,
            };
            scatter.into()
        });
    let reshape = (size(), size(), size()).prop_map(|(a, b, c)| {
        let (from, to) = (Shape::new(&[a, b, c]), Shape::new(&[b, a * c]));
        Reshape::infer(&from.unwrap(), &to.unwrap()).unwrap().into()
    });
    let copy = shape(0..=4).prop_map(|shape| TensorCopy { shape }.into());
    vec![
        ("matmul", matmul.boxed()),
        ("elementwise", elementwise().boxed()),
        ("activation", activation.boxed()),
        ("conv2d", conv2d().boxed()),
        ("conv3d", conv3d().boxed()),
        ("pool2d", pool2d().boxed()),
        ("norm", norm().boxed()),
        ("softmax", softmax.boxed()),
        ("reduce", reduce().boxed()),
        ("scan", scan.boxed()),
        ("sort", sort().boxed()),
        ("fft", fft.boxed()),
        ("gather", gather.boxed()),
        ("scatter", scatter.boxed()),
        ("transpose", transpose().boxed()),
        ("reshape", reshape.boxed()),
        ("copy", copy.boxed()),
        ("custom", custom().boxed()),
    ]
}

/// Every operation is defined on some element type, and the choice among those is even.
pub(crate) fn on_some_dtype(
    operation: Operation,
    dtype: Index,
    layout: LayoutKind,
) -> Option<Workload> {
    let legal: Vec<Workload> = DType::ALL
        .iter()
        .filter_map(|&dtype| Workload::new(operation.clone(), dtype).ok())
        .collect();
    (!legal.is_empty()).then(|| dtype.get(&legal).clone().with_layout(layout))
}

pub(crate) fn workload() -> impl Strategy<Value = Workload> {
    let operation = proptest::strategy::Union::new(operations().into_iter().map(|(_, op)| op));
    (operation, any::<Index>(), select(&LayoutKind::ALL[..])).prop_filter_map(
        "a chain whose steps have no element type in common",
        |(operation, dtype, layout)| on_some_dtype(operation, dtype, layout),
    )
}
