//! Sorts: always stable, so that there is one answer also where keys are equal.

use std::cmp::Ordering;

use half::{bf16, f16};
use kernelwise_types::op::{Sort, SortKind};
use kernelwise_types::{DType, TensorView, TensorViewMut, ViewError};

use crate::elements::{lines, load, rearrange};
use crate::wide::Wide;

pub(crate) fn compute(
    op: &Sort,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
) -> Result<(), ViewError> {
    let keys = &inputs[0];
    let sorted = match keys.dtype() {
        DType::F16 => order(op, &load(keys)?, f16::total_cmp),
        DType::Bf16 => order(op, &load(keys)?, bf16::total_cmp),
        DType::F32 => order(op, &load(keys)?, f32::total_cmp),
        DType::F64 => order(op, &load(keys)?, f64::total_cmp),
        _ => order(op, &i128::load(keys)?, i128::cmp),
    };
    match op.kind {
        SortKind::Arg => {
            let places = sorted
                .iter()
                .map(|moved| (moved.to, moved.row_index as i128));
            i128::store(&mut outputs[0], places)
        }
        SortKind::Keys | SortKind::Pairs(_) => {
            // Values move with their keys.
            for (from, to) in inputs.iter().zip(outputs) {
                rearrange(from, to, sorted.iter().map(|moved| (moved.to, moved.from)))?;
            }
            Ok(())
        }
    }
}

/// One element on its way.
struct Move {
    /// Position in the result.
    to: usize,
    /// Position in the input.
    from: usize,
    /// Its place in the row before.
    row_index: usize,
}

fn order<T>(op: &Sort, keys: &[T], compare: impl Fn(&T, &T) -> Ordering) -> Vec<Move> {
    let mut moves = Vec::with_capacity(keys.len());
    for line in lines(&op.shape, op.axis) {
        let mut places: Vec<usize> = (0..line.len()).collect();
        places.sort_by(|&a, &b| {
            let ascending = compare(&keys[line[a]], &keys[line[b]]);
            if op.descending {
                ascending.reverse()
            } else {
                ascending
            }
        });
        moves.extend(places.into_iter().zip(&line).map(|(row_index, &to)| Move {
            to,
            from: line[row_index],
            row_index,
        }));
    }
    moves
}

#[cfg(test)]
mod tests {
    use num_complex::Complex;

    use crate::trial::{owned, run};

    #[test]
    fn rows_come_out_in_order() {
        let keys = owned([3u32, 1, 2, 9, 9, 7]);
        let of = |flags: &str| run(&format!("sort u32 2x3{flags}"), std::slice::from_ref(&keys));
        assert_eq!(of(""), [owned([1u32, 2, 3, 7, 9, 9])]);
        assert_eq!(of(" desc"), [owned([3u32, 2, 1, 9, 9, 7])]);
        assert_eq!(of(" axis0"), [owned([3u32, 1, 2, 9, 9, 7])]);
        assert_eq!(of(" axis0 desc stable"), [owned([9u32, 9, 7, 3, 1, 2])]);
        assert_eq!(
            run("sort i64 3", &[owned([0i64, i64::MIN, -1])]),
            [owned([i64::MIN, -1, 0])]
        );
        assert_eq!(
            run("sort u64 2", &[owned([u64::MAX, 1])]),
            [owned([1, u64::MAX])]
        );
    }

    #[test]
    fn indices_say_where_the_keys_were() {
        let keys = owned([5i8, -1, 5, 0]);
        assert_eq!(
            run("sort.arg i8 4", std::slice::from_ref(&keys)),
            [owned([1i64, 3, 0, 2])]
        );
        // Equal keys keep their order, downwards too.
        assert_eq!(
            run("sort.arg i8 4 desc", std::slice::from_ref(&keys)),
            [owned([0i64, 2, 3, 1])]
        );
        assert_eq!(
            run("sort.arg i8 2x2 axis0", &[keys]),
            [owned([0i64, 0, 1, 1])]
        );
    }

    #[test]
    fn values_move_with_their_keys() {
        let keys = owned([2u8, 1, 2, 1]);
        let out = run(
            "sort.pairs u8 4 values=bool",
            &[keys.clone(), owned([true, false, false, true])],
        );
        assert_eq!(
            out,
            [owned([1u8, 1, 2, 2]), owned([false, true, true, false])]
        );
        let z = |re| Complex::new(re, 0f64);
        let out = run(
            "sort.pairs u8 4 values=complex128 desc",
            &[keys, owned([z(1.0), z(2.0), z(3.0), z(4.0)])],
        );
        assert_eq!(
            out,
            [
                owned([2u8, 2, 1, 1]),
                owned([z(1.0), z(3.0), z(2.0), z(4.0)])
            ]
        );
    }

    #[test]
    fn floats_follow_their_total_order() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let keys = [owned([nan, 0.0, inf, -0.0, 1.0, -nan, -inf])];
        let out = run("sort f32 7", &keys);
        let bits = |x: &[f32]| -> Vec<u32> { x.iter().map(|x| x.to_bits()).collect() };
        let crate::trial::Owned::F32(sorted) = &out[0] else {
            panic!("{out:?}")
        };
        assert_eq!(bits(sorted), bits(&[-nan, -inf, -0.0, 0.0, 1.0, inf, nan]));
        assert_eq!(
            run("sort.arg f32 7", &keys),
            [owned([5i64, 6, 3, 1, 4, 2, 0])]
        );
        // Signalling NaN lie below quiet ones and must not be made quiet on the way.
        let (quiet, signalling) = (
            f64::from_bits(0x7ff8 << 48),
            f64::from_bits(0x7ff0 << 48 | 1),
        );
        assert_eq!(
            run("sort.arg f64 2", &[owned([quiet, signalling])]),
            [owned([1i64, 0])]
        );
        let short = |bits: [u16; 3]| owned(bits.map(half::f16::from_bits));
        let out = run("sort f16 3", &[short([0x7e00, 0x7d00, 0xbc00])]);
        assert_eq!(format!("{out:?}"), "[F16([-1.0, NaN, NaN])]");
        assert_eq!(
            run("sort.arg f16 3", &[short([0x7e00, 0x7d00, 0xbc00])]),
            [owned([2i64, 1, 0])]
        );
        let brain = owned([0x7fc0, 0x7f81, 0xbf80].map(half::bf16::from_bits));
        assert_eq!(run("sort.arg bf16 3", &[brain]), [owned([2i64, 1, 0])]);
    }
}
