//! Every operation, variant and element type: the answer does not depend on strides, and is written nowhere
//! else than where it belongs.

use std::collections::BTreeSet;

use kernelwise_types::op::{
    ActivationKind, Binary, FftKind, NormKind, Operand, Operation, PoolKind, ReduceKind, ScanKind,
    ScatterKind, SoftmaxKind, Unary,
};
use kernelwise_types::{DType, Layout, MAX_RANK, Shape, TensorView, TensorViewMut, Workload};
use proptest::prelude::*;

use crate::compute;
use crate::trial::{Owned, sample};

/// Workload texts with `{}` for the element type, at least one for every operation and variant.
fn texts() -> Vec<String> {
    #[rustfmt::skip]
    let mut texts: Vec<String> = [
        "matmul {} 3x4x5", "matmul {} 2x3x2x4 ta", "matmul {} 2x3x2 tb",
        "elementwise.add:row+mul+sub:scalar {} 3x4", "elementwise.neg+relu {} 2x5",
        "conv2d {} n2 c4 h5 w4 k6 r3 s2 stride2 pad1 groups2", "conv2d {} n1 c2 h5 w6 k3 r2 s2 dil2",
        "conv3d {} n1 c2 d3 h4 w3 k2 t2 r2 s2 stride1x2x1 pad1",
        "norm.batch {} 3x2x4 infer",
        "softmax {} 2x3x4 axis1",
        "scan.sum {} 2x3x4 axis1 exclusive", "scan.max {} 3x4 axis0 reverse exclusive",
        "sort {} 3x7", "sort {} 7x3 axis0 desc stable", "sort.arg {} 2x9", "sort.pairs {} 3x6 values=f32",
        "sort.pairs {} 6x2 values=bool axis0 desc",
        "gather {} 4x3x2 axis1 idx5", "gather {} 6 axis0 idx3 index=i32",
        "transpose {} 2x3x4 perm2,0,1", "reshape {} 4x6 to=8x3", "copy {} 3x4x2", "copy {} scalar",
        "reduce.sum {} 2x3x4 axes0,2", "reduce.argmin {} 2x3x4 axes0,1",
    ]
    .into_iter()
    .map(str::to_owned)
    .collect();
    let mut each = |head: &str, names: &mut dyn Iterator<Item = &'static str>, fields: &str| {
        texts.extend(names.map(|name| match name {
            "" => format!("{head} {{}} {fields}"),
            name => format!("{head}.{name} {{}} {fields}"),
        }));
    };
    each(
        "elementwise",
        &mut Unary::ALL.iter().map(|v| v.name()),
        "2x3x2",
    );
    each(
        "elementwise",
        &mut Binary::ALL.iter().map(|v| v.name()),
        "3x3",
    );
    each(
        "activation",
        &mut ActivationKind::ALL.iter().map(|v| v.name()),
        "2x5",
    );
    each(
        "pool2d",
        &mut PoolKind::ALL.iter().map(|v| v.name()),
        "n2 c2 h5 w4 r3 s2 stride2 pad1",
    );
    each("norm", &mut NormKind::ALL.iter().map(|v| v.name()), "3x2x4");
    each(
        "softmax",
        &mut SoftmaxKind::ALL.iter().map(|v| v.name()),
        "3x5",
    );
    each(
        "reduce",
        &mut ReduceKind::ALL.iter().map(|v| v.name()),
        "3x4x2 axes1",
    );
    each(
        "scan",
        &mut ScanKind::ALL.iter().map(|v| v.name()),
        "3x4 axis1",
    );
    each("fft", &mut FftKind::ALL.iter().map(|v| v.name()), "2x3x6");
    each(
        "scatter",
        &mut ScatterKind::ALL.iter().map(|v| v.name()),
        "3x4 axis1 idx6",
    );
    texts
}

/// The legal workloads among all texts and element types.
fn workloads() -> Vec<Workload> {
    texts()
        .iter()
        .flat_map(|text| {
            DType::ALL
                .iter()
                .map(move |dtype| text.replace("{}", dtype.name()))
        })
        .filter_map(|text| text.parse().ok())
        .collect()
}

/// Elements for an operand; indices name places that exist.
fn elements(workload: &Workload, operand: &Operand, seed: u64) -> Owned {
    let length = operand.shape.elements();
    let places = match workload.operation() {
        Operation::Gather(op) => op.shape.dims()[op.axis],
        Operation::Scatter(op) => op.shape.dims()[op.axis],
        _ => 1,
    };
    if operand.name == "indices" {
        Owned::build(operand.dtype, length, |position| {
            ((position as u64 * 7 + seed) % places as u64) as i32
        })
    } else {
        sample(operand.dtype.name(), length, seed)
    }
}

/// How an operand lies in memory: axes in another order, some backwards, with gaps.
#[derive(Debug, Clone)]
struct Style {
    order: Vec<usize>,
    backwards: [bool; MAX_RANK],
    gaps: [usize; MAX_RANK],
}

const PLAIN: Style = Style {
    order: Vec::new(),
    backwards: [false; MAX_RANK],
    gaps: [0; MAX_RANK],
};

impl Style {
    /// Layout, position of the first element and length of the memory; three elements lie in front.
    fn lay(&self, shape: &Shape) -> (Layout, usize, usize) {
        let dims = shape.dims();
        let mut strides = vec![0isize; dims.len()];
        let (mut stride, mut first) = (1usize, 3usize);
        let plain = (0..dims.len()).rev();
        let order: Vec<usize> = match self.order.is_empty() {
            true => plain.collect(),
            false => self
                .order
                .iter()
                .copied()
                .filter(|&axis| axis < dims.len())
                .collect(),
        };
        for axis in order {
            let step = stride * (1 + self.gaps[axis]);
            strides[axis] = step as isize;
            if self.backwards[axis] {
                strides[axis] = -strides[axis];
                first += step * (dims[axis] - 1);
            }
            stride = step * dims[axis];
        }
        (
            Layout::strided(*shape, &strides).unwrap(),
            first,
            3 + stride,
        )
    }
}

fn style() -> impl Strategy<Value = Style> {
    let order = Just((0..MAX_RANK).collect::<Vec<_>>()).prop_shuffle();
    (
        order,
        any::<[bool; MAX_RANK]>(),
        prop::array::uniform8(0usize..3),
    )
        .prop_map(|(order, backwards, gaps)| Style {
            order,
            backwards,
            gaps,
        })
}

/// Memory in which an operand lies in a style, the rest filled with something else.
fn spread(style: &Style, operand: &Operand, elements: &Owned) -> (Owned, Layout, usize) {
    let (layout, first, length) = style.lay(&operand.shape);
    let mut memory = Owned::build(operand.dtype, length, |_| 5);
    memory.fill(layout, first, elements);
    (memory, layout, first)
}

/// The results of a workload whose operands lie in these styles, one after another in a circle; and whether
/// any memory changed that belongs to no output.
fn results(workload: &Workload, styles: &[Style], seed: u64) -> (Vec<Owned>, bool) {
    let mut styles = styles.iter().cycle();
    let mut place = |operand: &Operand, salt: u64| {
        let elements = elements(workload, operand, seed + salt);
        spread(styles.next().unwrap(), operand, &elements)
    };
    let inputs: Vec<_> = (0..)
        .zip(workload.inputs())
        .map(|(salt, operand)| place(operand, salt))
        .collect();
    let mut outputs: Vec<_> = (9..)
        .zip(workload.outputs())
        .map(|(salt, operand)| place(operand, salt))
        .collect();
    let before = outputs.clone();
    let views: Vec<TensorView<'_>> = inputs
        .iter()
        .map(|(memory, layout, first)| memory.view(*layout, *first))
        .collect();
    let mut views_mut: Vec<TensorViewMut<'_>> = outputs
        .iter_mut()
        .map(|(memory, layout, first)| memory.view_mut(*layout, *first))
        .collect();
    compute(workload, &views, &mut views_mut).unwrap_or_else(|error| panic!("{workload}: {error}"));
    drop(views_mut);
    let results: Vec<Owned> = outputs
        .iter()
        .map(|(memory, layout, first)| memory.collected(*layout, *first))
        .collect();
    // With its own elements put back, each output's memory must be what it was.
    let astray =
        outputs
            .into_iter()
            .zip(before)
            .any(|((mut after, layout, first), (before, ..))| {
                let elements = before.collected(layout, first);
                after.fill(layout, first, &elements);
                format!("{after:?}") != format!("{before:?}")
            });
    (results, astray)
}

#[test]
fn every_operation_has_a_workload_here() {
    let names: BTreeSet<&str> = workloads().iter().map(|w| w.operation().name()).collect();
    let all: BTreeSet<&str> = Operation::NAMES
        .iter()
        .copied()
        .filter(|name| *name != "custom")
        .collect();
    assert_eq!(names, all);
    for text in texts() {
        let legal = |dtype: &DType| text.replace("{}", dtype.name()).parse::<Workload>().is_ok();
        assert!(DType::ALL.iter().any(legal), "{text} is legal on nothing");
    }
}

#[test]
fn results_depend_on_the_inputs() {
    // A kernel that wrote a constant would pass every comparison of layouts. Extremes of small samples may
    // agree by chance, so a few seeds are tried.
    for workload in workloads() {
        let first = format!("{:?}", results(&workload, &[PLAIN], 1).0);
        let differs =
            (2..12).any(|seed| format!("{:?}", results(&workload, &[PLAIN], seed).0) != first);
        assert!(differs, "{workload} always gives {first}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn strides_do_not_change_the_answer(
        styles in prop::collection::vec(style(), 3),
        seed in 0u64..1000,
    ) {
        for workload in workloads() {
            let (expected, _) = results(&workload, &[PLAIN], seed);
            let (actual, astray) = results(&workload, &styles, seed);
            // As text, in which NaN equals itself.
            prop_assert_eq!(format!("{actual:?}"), format!("{expected:?}"), "{}", workload);
            prop_assert!(!astray, "{} wrote beside its outputs", workload);
        }
    }
}
