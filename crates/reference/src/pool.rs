//! Pooling: the maximum or the mean of each window, channel by channel.

use kernelwise_types::op::{Pool2d, PoolKind};
use kernelwise_types::{DTypeClass, TensorView, TensorViewMut, ViewError};

use crate::total::sum;
use crate::wide::{Real, Wide, larger};

pub(crate) fn compute(
    op: &Pool2d,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
) -> Result<(), ViewError> {
    match (op.kind, inputs[0].dtype().class()) {
        (PoolKind::Max, DTypeClass::Float) => pooled(op, inputs, outputs, largest::<f64>),
        (PoolKind::Max, _) => pooled(op, inputs, outputs, largest::<i128>),
        (PoolKind::Avg, _) => {
            let taps = op.r * op.s;
            let mean = |window: Vec<f64>| Some(sum(window).over(taps));
            pooled(op, inputs, outputs, mean)
        }
    }
}

fn largest<W: Real>(window: Vec<W>) -> Option<W> {
    window.into_iter().reduce(larger)
}

/// Makes one number of the elements each window sees. A window sees at least one, for padding is
/// smaller than it.
fn pooled<W: Wide>(
    op: &Pool2d,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
    make: impl Fn(Vec<W>) -> Option<W>,
) -> Result<(), ViewError> {
    let input = W::load(&inputs[0])?;
    let &[.., p, q] = outputs[0].shape().dims() else {
        return Ok(());
    };
    let mut out = Vec::new();
    for plane in 0..op.n * op.c {
        for top in 0..p {
            for left in 0..q {
                let mut window = Vec::new();
                for row in seen(top, op.stride[0], op.r, op.pad[0], op.h) {
                    for column in seen(left, op.stride[1], op.s, op.pad[1], op.w) {
                        window.push(input[(plane * op.h + row) * op.w + column]);
                    }
                }
                out.extend(make(window));
            }
        }
    }
    W::store(&mut outputs[0], out.into_iter().enumerate())
}

/// Where the taps of a window fall along one axis, padding left out.
fn seen(
    window: usize,
    stride: usize,
    taps: usize,
    pad: usize,
    size: usize,
) -> impl Iterator<Item = usize> {
    let first = window * stride;
    (first..first + taps)
        .filter_map(move |padded| padded.checked_sub(pad))
        .filter(move |&at| at < size)
}

#[cfg(test)]
mod tests {
    use crate::trial::{owned, run};

    #[test]
    fn the_largest_of_each_window() {
        let image = owned([1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        let out = run(
            "pool2d.max f32 n1 c1 h3 w3 r2 s2",
            std::slice::from_ref(&image),
        );
        assert_eq!(out, [owned([5f32, 6.0, 8.0, 9.0])]);
        let out = run(
            "pool2d.max f32 n1 c1 h3 w3 r2 s2 stride2 pad1",
            std::slice::from_ref(&image),
        );
        assert_eq!(out, [owned([1f32, 3.0, 7.0, 9.0])]);
        let out = run("pool2d.max f32 n1 c1 h3 w3 r1 s2 stride2x1", &[image]);
        assert_eq!(out, [owned([2f32, 3.0, 8.0, 9.0])]);
    }

    #[test]
    fn padding_is_never_the_maximum() {
        let out = run(
            "pool2d.max i8 n1 c1 h1 w2 r1 s2 pad0x1",
            &[owned([-5i8, -128])],
        );
        assert_eq!(out, [owned([-5i8, -5, -128])]);
        let out = run(
            "pool2d.max u64 n2 c1 h1 w2 r1 s2",
            &[owned([1u64, u64::MAX, 7, 3])],
        );
        assert_eq!(out, [owned([u64::MAX, 7])]);
    }

    #[test]
    fn padding_counts_as_zeros_in_the_mean() {
        let image = owned([1f32, 2.0, 3.0, 6.0]);
        let out = run(
            "pool2d.avg f32 n1 c1 h2 w2 r2 s2",
            std::slice::from_ref(&image),
        );
        assert_eq!(out, [owned([3f32])]);
        let out = run("pool2d.avg f32 n1 c1 h2 w2 r2 s2 pad1", &[image]);
        assert_eq!(
            out,
            [owned([0.25f32, 0.75, 0.5, 1.0, 3.0, 2.0, 0.75, 2.25, 1.5])]
        );
    }

    #[test]
    fn planes_are_apart() {
        let planes = owned([1f64, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0]);
        let out = run("pool2d.avg f64 n2 c2 h1 w2 r1 s2", &[planes]);
        assert_eq!(out, [owned([2f64, 20.0, 200.0, 2000.0])]);
    }

    #[test]
    fn nan_is_seen_by_its_windows_alone() {
        let row = owned([1f32, f32::NAN, 3.0, f32::INFINITY]);
        let out = run(
            "pool2d.max f32 n1 c1 h1 w4 r1 s2",
            std::slice::from_ref(&row),
        );
        assert_eq!(format!("{out:?}"), "[F32([NaN, NaN, inf])]");
        let out = run("pool2d.avg f32 n1 c1 h1 w4 r1 s2 stride2", &[row]);
        assert_eq!(format!("{out:?}"), "[F32([NaN, inf])]");
    }
}
