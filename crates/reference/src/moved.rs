//! Copies, reshapes and transposes: elements in the order of their indices, bit by bit.

use kernelwise_types::op::Transpose;
use kernelwise_types::{TensorView, TensorViewMut, ViewError};

use crate::elements::{rearrange, unravel};

/// A copy, also into another shape: the order of the elements stays.
pub(crate) fn copy(
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
) -> Result<(), ViewError> {
    let elements = inputs[0].shape().elements();
    rearrange(&inputs[0], &mut outputs[0], (0..elements).zip(0..elements))
}

/// Axis i of the result is axis `perm[i]` of the input, so a step along it is a step along that one.
pub(crate) fn transpose(
    op: &Transpose,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
) -> Result<(), ViewError> {
    let shape = *outputs[0].shape();
    let sizes = op.shape.dims();
    let step = |axis: usize| sizes[axis + 1..].iter().product::<usize>();
    let moves = (0..shape.elements()).map(|position| {
        let index = unravel(&shape, position);
        let parts = op.perm.iter().zip(index);
        (position, parts.map(|(axis, i)| i * step(axis)).sum())
    });
    rearrange(&inputs[0], &mut outputs[0], moves)
}

#[cfg(test)]
mod tests {
    use kernelwise_types::DType;

    use crate::trial::{Owned, owned, run, sample};

    #[test]
    fn copies_keep_order_and_bits() {
        for dtype in DType::ALL {
            let x = [sample(dtype.name(), 6, 1)];
            assert_eq!(run(&format!("copy {dtype} 2x3"), &x), x);
            assert_eq!(run(&format!("reshape {dtype} 2x3 to=3x1x2"), &x), x);
        }
        let signalling = f32::from_bits(0x7f80_0001);
        let out = run("copy f32 1", &[owned([signalling])]);
        let Owned::F32(out) = &out[0] else {
            panic!("{out:?}")
        };
        assert_eq!(out[0].to_bits(), 0x7f80_0001);
    }

    #[test]
    fn axes_change_places() {
        let x = owned([1u8, 2, 3, 4, 5, 6]);
        let out = run("transpose u8 2x3 perm1,0", std::slice::from_ref(&x));
        assert_eq!(out, [owned([1u8, 4, 2, 5, 3, 6])]);
        // Axis i of the result is axis perm[i] of the input: 1x2x3 becomes 3x1x2.
        let out = run("transpose u8 1x2x3 perm2,0,1", std::slice::from_ref(&x));
        assert_eq!(out, [owned([1u8, 4, 2, 5, 3, 6])]);
        let x = owned((0..8i64).collect::<Vec<_>>());
        let out = run("transpose i64 2x2x2 perm1,2,0", &[x]);
        assert_eq!(out, [owned([0i64, 4, 1, 5, 2, 6, 3, 7])]);
    }

    #[test]
    fn there_and_back() {
        let x = sample("complex64", 2 * 3 * 4, 2);
        let there = run(
            "transpose complex64 2x3x4 perm2,0,1",
            std::slice::from_ref(&x),
        );
        assert_eq!(run("transpose complex64 4x2x3 perm1,2,0", &there), [x]);
    }
}
