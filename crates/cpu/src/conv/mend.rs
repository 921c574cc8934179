//! Results that a shortcut spoilt, computed again the long way.
//!
//! Padding adds nothing to a convolution, but a kernel that multiplies by zeros instead of leaving them out makes NaN
//! of an infinite weight; transforms spread one infinite pixel over all its neighbours. Both show in the result as
//! numbers that are not finite, so those are computed again, and finite data pay for looking only.

use super::Float;
use super::geometry::Geometry;

/// The sum under one window, taps on padding left out. `image` begins with the first channel of the group, `filter`
/// is one filter.
pub(super) fn window<T: Float>(
    geometry: &Geometry,
    image: &[T],
    filter: &[T],
    at: [usize; 3],
) -> T {
    let [slices, rows, columns] = geometry.axes;
    let mut sum = T::default();
    let planes = image.chunks(geometry.plane().max(1));
    for (plane, taps) in planes.zip(filter.chunks(geometry.taps().max(1))) {
        for t in (0..slices.taps).filter(|&t| slices.inside(t).contains(&at[0])) {
            for r in (0..rows.taps).filter(|&r| rows.inside(r).contains(&at[1])) {
                for s in (0..columns.taps).filter(|&s| columns.inside(s).contains(&at[2])) {
                    let row = slices.under(at[0], t) * rows.input + rows.under(at[1], r);
                    let pixel = plane[row * columns.input + columns.under(at[2], s)];
                    sum = sum + pixel * taps[(t * rows.taps + r) * columns.taps + s];
                }
            }
        }
    }
    sum
}

/// Computes again what is not a number among the windows that touch padding. `image`, `weights` and `out` are one group
/// of one image.
pub(super) fn padding<T: Float>(geometry: &Geometry, image: &[T], weights: &[T], out: &mut [T]) {
    if !geometry.padded() {
        return;
    }
    let [_, rows, columns] = geometry.axes;
    let [in_slices, in_rows, in_columns] = geometry.axes.map(|axis| axis.whole());
    let filters = weights.chunks(geometry.depth().max(1));
    for (filter, out) in filters.zip(out.chunks_mut(geometry.windows().max(1))) {
        for (row, out) in out.chunks_mut(columns.output).enumerate() {
            let (z, y) = (row / rows.output, row % rows.output);
            let look = |out: &mut [T], first: usize| {
                for (x, value) in out.iter_mut().enumerate() {
                    if value.is_nan() {
                        *value = window(geometry, image, filter, [z, y, first + x]);
                    }
                }
            };
            if in_slices.contains(&z) && in_rows.contains(&y) {
                look(&mut out[..in_columns.start], 0);
                look(&mut out[in_columns.end..], in_columns.end);
            } else {
                look(out, 0);
            }
        }
    }
}

/// Results looked at together.
const LOOK: usize = 256;

/// Computes again what is not finite in one output channel.
pub(super) fn everything<T: Float>(geometry: &Geometry, image: &[T], filter: &[T], out: &mut [T]) {
    // Without an early way out, so that whole vectors are looked at.
    let finite = |values: &[T]| values.iter().fold(true, |all, v| all & v.is_finite());
    if out.chunks(LOOK).all(finite) {
        return;
    }
    let [_, rows, columns] = geometry.axes;
    for (index, value) in out.iter_mut().enumerate() {
        if !value.is_finite() {
            let row = index / columns.output;
            let at = [row / rows.output, row % rows.output, index % columns.output];
            *value = window(geometry, image, filter, at);
        }
    }
}
