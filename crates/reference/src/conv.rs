//! Convolutions of images and of volumes: an image is a volume of one slice.

use kernelwise_types::op::{Conv2d, Conv3d};
use kernelwise_types::{TensorView, TensorViewMut, ViewError};

use crate::total::Total;
use crate::wide::Wide;

/// An image as a volume of one slice, seen by filters of one slice.
fn as_volume(op: &Conv2d) -> Conv3d {
    let Conv2d {
        n,
        c,
        h,
        w,
        k,
        r,
        s,
        stride,
        pad,
        dilation,
        groups,
    } = *op;
    Conv3d {
        n,
        c,
        d: 1,
        h,
        w,
        k,
        t: 1,
        r,
        s,
        stride: [1, stride[0], stride[1]],
        pad: [0, pad[0], pad[1]],
        dilation: [1, dilation[0], dilation[1]],
        groups,
    }
}

pub(crate) fn images<W: Wide>(
    op: &Conv2d,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
) -> Result<(), ViewError> {
    volumes::<W>(&as_volume(op), inputs, outputs)
}

/// For each image, filter and window the sum over the channels of the group and the taps.
pub(crate) fn volumes<W: Wide>(
    op: &Conv3d,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
) -> Result<(), ViewError> {
    let (input, weights) = (W::load(&inputs[0])?, W::load(&inputs[1])?);
    // Sizes after batch and channels; an image has no slices to count.
    let windows = match *outputs[0].shape().dims() {
        [_, _, p, q] => [1, p, q],
        [_, _, o, p, q] => [o, p, q],
        _ => [0; 3],
    };
    let size = [op.d, op.h, op.w];
    let taps = [op.t, op.r, op.s];
    let (group_channels, group_filters) = (op.c / op.groups, op.k / op.groups);
    let mut out = Vec::new();
    for image in 0..op.n {
        for filter in 0..op.k {
            let first_channel = filter / group_filters * group_channels;
            for window in indices(windows) {
                let mut total = W::Total::default();
                for channel in 0..group_channels {
                    for tap in indices(taps) {
                        // Padding adds nothing.
                        let Some(at) = under(op, size, window, tap) else {
                            continue;
                        };
                        let plane = image * op.c + first_channel + channel;
                        let weight = filter * group_channels + channel;
                        total.add_product(
                            input[plane * size.iter().product::<usize>() + position(size, at)],
                            weights[weight * taps.iter().product::<usize>() + position(taps, tap)],
                        );
                    }
                }
                out.push(total.value());
            }
        }
    }
    W::store(&mut outputs[0], out.into_iter().enumerate())
}

/// All indices of three axes, the last fastest.
fn indices([a, b, c]: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |k| [i, j, k])))
}

fn position([_, b, c]: [usize; 3], [i, j, k]: [usize; 3]) -> usize {
    (i * b + j) * c + k
}

/// The input element that lies under a tap of a window; `None` on padding.
fn under(op: &Conv3d, size: [usize; 3], window: [usize; 3], tap: [usize; 3]) -> Option<[usize; 3]> {
    let mut at = [0; 3];
    for axis in 0..3 {
        let padded = window[axis] * op.stride[axis] + tap[axis] * op.dilation[axis];
        at[axis] = padded
            .checked_sub(op.pad[axis])
            .filter(|&inside| inside < size[axis])?;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use num_complex::Complex;

    use crate::trial::{owned, run, sample};

    #[test]
    fn filters_slide_and_are_not_flipped() {
        let image = owned([1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        let filter = owned([1f32, 10.0, 100.0, 1000.0]);
        let out = run(
            "conv2d f32 n1 c1 h3 w3 k1 r2 s2",
            &[image.clone(), filter.clone()],
        );
        // 1·1 + 2·10 + 4·100 + 5·1000 at the top left.
        assert_eq!(out, [owned([5421f32, 6532.0, 8754.0, 9865.0])]);
        let out = run(
            "conv2d f32 n1 c1 h3 w3 k1 r2 s2 stride2 pad1",
            &[image.clone(), filter.clone()],
        );
        assert_eq!(out, [owned([1000f32, 3200.0, 7040.0, 9865.0])]);
        let out = run(
            "conv2d f32 n1 c1 h3 w3 k1 r2 s2 dil2",
            &[image.clone(), filter.clone()],
        );
        assert_eq!(out, [owned([1.0f32 + 30.0 + 700.0 + 9000.0])]);
        // Rows and columns with settings of their own.
        let out = run(
            "conv2d f32 n1 c1 h3 w3 k1 r2 s2 stride1x2 pad0x1",
            &[image, filter],
        );
        assert_eq!(out, [owned([4010f32, 6532.0, 7040.0, 9865.0])]);
    }

    #[test]
    fn channels_add_up_within_their_group() {
        let input = owned([1i32, 2, 3, 4]);
        let out = run(
            "conv2d i32 n1 c4 h1 w1 k2 r1 s1",
            &[input.clone(), owned([1i32, 10, 100, 1000, 2, 0, 0, 1])],
        );
        assert_eq!(out, [owned([4321i32, 6])]);
        let out = run(
            "conv2d i32 n1 c4 h1 w1 k2 r1 s1 groups2",
            &[input.clone(), owned([1i32, 10, 1, 10])],
        );
        assert_eq!(out, [owned([21i32, 43])]);
        // Depthwise with two filters to each channel.
        let out = run(
            "conv2d i32 n1 c2 h1 w2 k4 r1 s1 groups2",
            &[input, owned([1i32, 10, 100, 1000])],
        );
        assert_eq!(out, [owned([1i32, 2, 10, 20, 300, 400, 3000, 4000])]);
    }

    #[test]
    fn images_of_a_batch_are_apart() {
        let out = run(
            "conv2d f64 n2 c1 h1 w2 k1 r1 s2",
            &[owned([1f64, 2.0, 3.0, 4.0]), owned([1f64, 1.0])],
        );
        assert_eq!(out, [owned([3f64, 7.0])]);
    }

    #[test]
    fn one_tap_is_a_matrix_product() {
        let (image, weights) = (sample("f32", 6 * 5 * 7, 1), sample("f32", 4 * 6, 2));
        let conv = run(
            "conv2d f32 n1 c6 h5 w7 k4 r1 s1",
            &[image.clone(), weights.clone()],
        );
        assert_eq!(conv, run("matmul f32 4x6x35", &[weights, image]));
    }

    #[test]
    fn volumes_have_a_depth() {
        // 2x2x2 volume under one filter of the same size, then padded by one in depth only.
        let volume = owned([1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let filter = owned([1f32, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 10.0]);
        let out = run(
            "conv3d f32 n1 c1 d2 h2 w2 k1 t2 r2 s2",
            &[volume.clone(), filter.clone()],
        );
        assert_eq!(out, [owned([81f32])]);
        let out = run(
            "conv3d f32 n1 c1 d2 h2 w2 k1 t2 r2 s2 pad1x0x0",
            &[volume.clone(), filter.clone()],
        );
        assert_eq!(out, [owned([40f32, 81.0, 5.0])]);
        let out = run(
            "conv3d f32 n1 c1 d2 h2 w2 k1 t2 r2 s2 pad1x0x0 stride2x1x1",
            &[volume.clone(), filter.clone()],
        );
        assert_eq!(out, [owned([40f32, 5.0])]);
        let out = run(
            "conv3d f32 n1 c1 d2 h2 w2 k1 t2 r2 s2 pad1x0x0 dil3x1x1",
            &[volume, filter],
        );
        assert_eq!(out, [owned([0f32])]);
    }

    #[test]
    fn a_volume_of_one_slice_is_an_image() {
        let (image, weights) = (
            sample("i16", 2 * 4 * 5 * 6, 3),
            sample("i16", 4 * 2 * 3 * 3, 4),
        );
        let settings = "k4 r3 s3 stride2 pad1 dil1 groups2";
        let plane = run(
            &format!("conv2d i16 n2 c4 h5 w6 {settings}"),
            &[image.clone(), weights.clone()],
        );
        let settings = "k4 t1 r3 s3 stride1x2x2 pad0x1x1 groups2";
        let volume = run(
            &format!("conv3d i16 n2 c4 d1 h5 w6 {settings}"),
            &[image, weights],
        );
        assert_eq!(plane, volume);
    }

    #[test]
    fn bytes_widen_and_complex_numbers_multiply() {
        let out = run(
            "conv2d u8 n1 c2 h1 w1 k1 r1 s1",
            &[owned([255u8, 255]), owned([255u8, 2])],
        );
        assert_eq!(out, [owned([65025i32 + 510])]);
        let i = Complex::new(0f64, 1.0);
        let out = run(
            "conv3d complex128 n1 c1 d1 h1 w1 k1 t1 r1 s1",
            &[owned([i]), owned([i])],
        );
        assert_eq!(out, [owned([Complex::new(-1f64, 0.0)])]);
    }

    #[test]
    fn padding_adds_nothing_even_under_an_infinite_weight() {
        let inf = f32::INFINITY;
        let out = run(
            "conv2d f32 n1 c1 h1 w2 k1 r1 s3 pad0x1",
            &[owned([1f32, 2.0]), owned([inf, 1.0, 1.0])],
        );
        assert_eq!(out, [owned([3f32, inf])]);
    }
}
