//! Gather and scatter. Indices are looked at first: one outside, or below zero, and nothing is written.

use std::collections::BTreeMap;

use kernelwise_types::op::{Gather, Scatter, ScatterKind};
use kernelwise_types::{DTypeClass, TensorView, TensorViewMut, ViewError};
use num_complex::Complex;

use crate::ReferenceError;
use crate::elements::{lines, rearrange};
use crate::total::Total;
use crate::wide::{Real, Wide, larger, smaller};

pub(crate) fn gather(
    op: &Gather,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
) -> Result<(), ReferenceError> {
    let table = lines(&op.shape, op.axis);
    let indices = checked(&inputs[1], op.shape.dims()[op.axis])?;
    let out = lines(outputs[0].shape(), op.axis);
    let moves = out.iter().zip(&table).flat_map(|(out, table)| {
        let picked = indices.iter().map(|&index| table[index]);
        out.iter().copied().zip(picked)
    });
    Ok(rearrange(&inputs[0], &mut outputs[0], moves)?)
}

pub(crate) fn scatter(
    op: &Scatter,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorViewMut<'_>],
) -> Result<(), ReferenceError> {
    let indices = checked(&inputs[0], op.shape.dims()[op.axis])?;
    let (updates, destination) = (&inputs[1], &mut outputs[0]);
    // Pairs of a position in the destination and one in the updates, in the order of the indices.
    let sources = lines(updates.shape(), op.axis);
    let moves: Vec<(usize, usize)> = lines(&op.shape, op.axis)
        .iter()
        .zip(&sources)
        .flat_map(|(to, from)| {
            indices
                .iter()
                .map(|&index| to[index])
                .zip(from.iter().copied())
        })
        .collect();
    use ScatterKind::{Add, Assign, Max, Min};
    let done = match (op.kind, updates.dtype().class()) {
        (Assign, _) => rearrange(updates, destination, moves),
        (Add, DTypeClass::Float) => added::<f64>(updates, destination, &moves),
        (Add, DTypeClass::Complex) => added::<Complex<f64>>(updates, destination, &moves),
        (Add, _) => added::<i128>(updates, destination, &moves),
        (Max, DTypeClass::Float) => joined::<f64>(updates, destination, &moves, larger),
        (Max, _) => joined::<i128>(updates, destination, &moves, larger),
        (Min, DTypeClass::Float) => joined::<f64>(updates, destination, &moves, smaller),
        (Min, _) => joined::<i128>(updates, destination, &moves, smaller),
    };
    Ok(done?)
}

/// The indices, if each names one of `length` places.
fn checked(indices: &TensorView<'_>, length: usize) -> Result<Vec<usize>, ReferenceError> {
    let indices = i128::load(indices)?.into_iter().enumerate();
    indices
        .map(|(position, value)| {
            usize::try_from(value)
                .ok()
                .filter(|&index| index < length)
                .ok_or(ReferenceError::Index {
                    operand: "indices",
                    position,
                    value: value as i64,
                    length,
                })
        })
        .collect()
}

/// What is there and all updates of a place in one wide sum, rounded once.
fn added<W: Wide>(
    updates: &TensorView<'_>,
    destination: &mut TensorViewMut<'_>,
    moves: &[(usize, usize)],
) -> Result<(), ViewError> {
    let (updates, before) = (W::load(updates)?, W::load(&destination.as_view())?);
    let mut totals: BTreeMap<usize, W::Total> = BTreeMap::new();
    for &(to, from) in moves {
        let total = totals.entry(to).or_insert_with(|| {
            let mut total = W::Total::default();
            total.add(before[to]);
            total
        });
        total.add(updates[from]);
    }
    let sums = totals.iter().map(|(&to, total)| (to, total.value()));
    W::store(destination, sums)
}

fn joined<W: Real>(
    updates: &TensorView<'_>,
    destination: &mut TensorViewMut<'_>,
    moves: &[(usize, usize)],
    join: fn(W, W) -> W,
) -> Result<(), ViewError> {
    let (updates, mut now) = (W::load(updates)?, W::load(&destination.as_view())?);
    for &(to, from) in moves {
        now[to] = join(now[to], updates[from]);
    }
    W::store(destination, moves.iter().map(|&(to, _)| (to, now[to])))
}

#[cfg(test)]
mod tests {
    use num_complex::Complex;

    use crate::ReferenceError;
    use crate::trial::{attempt, owned, run, run_onto, sample};

    #[test]
    fn slices_are_picked_along_the_axis() {
        let table = owned([1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let out = run(
            "gather f32 3x2 axis0 idx4",
            &[table.clone(), owned([2i64, 0, 2, 1])],
        );
        assert_eq!(out, [owned([5f32, 6.0, 1.0, 2.0, 5.0, 6.0, 3.0, 4.0])]);
        let out = run(
            "gather f32 2x3 axis1 idx2 index=i32",
            &[table, owned([2i32, 0])],
        );
        assert_eq!(out, [owned([3f32, 1.0, 6.0, 4.0])]);
        let out = run(
            "gather bool 2 axis0 idx3",
            &[owned([true, false]), owned([1i64, 0, 1])],
        );
        assert_eq!(out, [owned([false, true, false])]);
    }

    #[test]
    fn the_last_assignment_stays() {
        let updates = owned([1i16, 2, 3, 4]);
        let out = run_onto(
            "scatter.assign i16 3x2 axis0 idx2",
            &[owned([2i64, 0]), updates.clone()],
            &[owned([9i16; 6])],
        );
        assert_eq!(out, [owned([3i16, 4, 9, 9, 1, 2])]);
        let out = run_onto(
            "scatter.assign i16 3 axis0 idx4 index=i32",
            &[owned([1i32, 2, 1, 1]), updates],
            &[owned([9i16; 3])],
        );
        assert_eq!(out, [owned([9i16, 4, 2])]);
    }

    #[test]
    fn updates_of_one_place_add_up() {
        let inputs = [
            owned([1i64, 1, 0]),
            owned([1f32, 2.0, 4.0, 10.0, 20.0, 40.0]),
        ];
        let onto = [owned([0.5f32, 0.5, 0.5, 5.0, 5.0, 5.0])];
        let out = run_onto("scatter.add f32 2x3 axis1 idx3", &inputs, &onto);
        assert_eq!(out, [owned([4.5f32, 3.5, 0.5, 45.0, 35.0, 5.0])]);
        // Rounded once: in f32 each 1 alone would vanish beside 2²⁴.
        let out = run_onto(
            "scatter.add f32 1 axis0 idx2",
            &[owned([0i64, 0]), owned([1f32, 1.0])],
            &[owned([16777216f32])],
        );
        assert_eq!(out, [owned([16777218f32])]);
        let out = run_onto(
            "scatter.add u8 2 axis0 idx2",
            &[owned([1i64, 1]), owned([200u8, 100])],
            &[owned([7u8, 1])],
        );
        assert_eq!(out, [owned([7u8, 45])]);
        let i = Complex::new(0f32, 1.0);
        let out = run_onto(
            "scatter.add complex64 1 axis0 idx1",
            &[owned([0i64]), owned([i])],
            &[owned([i])],
        );
        assert_eq!(out, [owned([i + i])]);
    }

    #[test]
    fn extremes_meet_what_is_there() {
        let inputs = [owned([0i64, 1, 0]), owned([5i32, -5, 7])];
        let onto = [owned([6i32, 0, 1])];
        assert_eq!(
            run_onto("scatter.max i32 3 axis0 idx3", &inputs, &onto),
            [owned([7i32, 0, 1])]
        );
        assert_eq!(
            run_onto("scatter.min i32 3 axis0 idx3", &inputs, &onto),
            [owned([5i32, -5, 1])]
        );
        let inputs = [owned([0i64, 1]), owned([f64::NAN, 2.0])];
        let out = run_onto(
            "scatter.max f64 2 axis0 idx2",
            &inputs,
            &[owned([1f64, 3.0])],
        );
        assert_eq!(format!("{out:?}"), "[F64([NaN, 3.0])]");
        let out = run_onto(
            "scatter.min f64 2 axis0 idx2",
            &inputs,
            &[owned([1f64, 3.0])],
        );
        assert_eq!(format!("{out:?}"), "[F64([NaN, 2.0])]");
    }

    #[test]
    fn places_without_an_update_keep_their_bits() {
        // A signalling NaN would come back quiet from f64.
        let signalling = f32::from_bits(0x7f80_0001);
        for kind in ["add", "max", "min"] {
            let out = run_onto(
                &format!("scatter.{kind} f32 2 axis0 idx1"),
                &[owned([1i64]), owned([1f32])],
                &[owned([signalling, 1.0])],
            );
            let crate::trial::Owned::F32(out) = &out[0] else {
                panic!("{out:?}")
            };
            assert_eq!(out[0].to_bits(), 0x7f80_0001, "{kind}");
        }
    }

    #[test]
    fn gathering_what_was_scattered_gives_the_updates_back() {
        let updates = sample("f64", 4 * 3, 9);
        let indices = owned([4i64, 0, 3, 1]);
        let table = run_onto(
            "scatter.assign f64 5x3 axis0 idx4",
            &[indices.clone(), updates.clone()],
            &[owned([0f64; 15])],
        );
        let back = run("gather f64 5x3 axis0 idx4", &[table[0].clone(), indices]);
        assert_eq!(back, [updates]);
    }

    #[test]
    fn an_index_outside_is_found_before_anything_is_written() {
        for value in [3i64, -1, i64::MAX, i64::MIN] {
            let expected = Err(ReferenceError::Index {
                operand: "indices",
                position: 1,
                value,
                length: 3,
            });
            let indices = owned([0i64, value]);
            let mut out = [owned([7f32; 2])];
            let result = attempt(
                "gather f32 3 axis0 idx2",
                &[owned([1f32; 3]), indices.clone()],
                &mut out,
            );
            assert_eq!((result, &out), (expected.clone(), &[owned([7f32; 2])]));
            for kind in ["assign", "add", "max", "min"] {
                let text = format!("scatter.{kind} f32 3 axis0 idx2");
                let mut out = [owned([7f32; 3])];
                let result = attempt(&text, &[indices.clone(), owned([9f32; 2])], &mut out);
                assert_eq!(
                    (result, &out),
                    (expected.clone(), &[owned([7f32; 3])]),
                    "{kind}"
                );
            }
        }
        let mut out = [owned([0u8])];
        let error = attempt(
            "gather u8 2 axis0 idx1 index=i32",
            &[owned([0u8; 2]), owned([-2i32])],
            &mut out,
        );
        assert_eq!(
            error.unwrap_err().to_string(),
            "operand `indices`: element 0 is -2, but there are 2 places: indices are 0 to 1"
        );
    }
}
