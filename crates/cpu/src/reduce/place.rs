//! Where the largest or the smallest element is: the first of equals, and the first that is not a number before all.
//!
//! Along a run the extreme of each cut is found first, with vectors and without places; only where a cut beats what
//! there was is it looked through for the place. Columns carry their places along.
#![allow(unsafe_code)]

use std::ops::Range;

use super::fold::{Largest, Smallest, fold_run};
use super::frame::Frame;
use super::lanes::{Job, Number, Vector};

/// What goes before what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Larger before smaller.
    Largest,
    /// Smaller before larger.
    Smallest,
}

/// Whether `new` takes the place of `best`, which came before it.
#[inline(always)]
pub(super) fn goes_before<T: Number>(order: Order, best: T, new: T) -> bool {
    let beats = match order {
        Order::Largest => new > best,
        Order::Smallest => new < best,
    };
    (beats | new.is_nan()) & !best.is_nan()
}

/// Elements of a run that are looked through again if they hold something better.
const CUT: usize = 512;

/// Columns that are looked at together.
const COLUMNS: usize = 64;

/// The places of some results, among a part of the elements each is made of.
pub(super) struct Places<'a, T> {
    pub(super) order: Order,
    pub(super) frame: &'a Frame,
    pub(super) x: &'a [T],
    /// The first result.
    pub(super) first: usize,
    /// Which of the elements of a result are looked at: at least one.
    pub(super) depth: Range<usize>,
    /// The places, one for each result.
    pub(super) out: &'a mut [i64],
}

impl<T: Number> Job<T> for Places<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        if self.frame.rows {
            for (result, place) in (self.first..).zip(self.out.iter_mut()) {
                // SAFETY: the caller vouches for the instructions.
                *place = unsafe {
                    let x = &self.x[self.frame.kept.offset(result)..];
                    row::<V>(self.order, self.frame, x, self.depth.clone())
                };
            }
        } else {
            let run = self.frame.run;
            let mut done = 0;
            while done < self.out.len() {
                let (line, column) = ((self.first + done) / run, (self.first + done) % run);
                let width = COLUMNS.min(run - column).min(self.out.len() - done);
                let x = &self.x[self.frame.kept.offset(line) + column..];
                let out = &mut self.out[done..done + width];
                let (frame, depth) = (self.frame, self.depth.clone());
                // The order is a constant inside, so that the loop has no branch.
                match self.order {
                    Order::Largest => columns(Order::Largest, frame, x, depth, out),
                    Order::Smallest => columns(Order::Smallest, frame, x, depth, out),
                }
                done += width;
            }
        }
    }
}

/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn row<V: Vector>(order: Order, frame: &Frame, x: &[V::Scalar], depth: Range<usize>) -> i64 {
    let mut best = None;
    let mut found = 0..0;
    let mut position = depth.start;
    while position < depth.end {
        let (step, inside) = (position / frame.run, position % frame.run);
        let length = CUT.min(frame.run - inside).min(depth.end - position);
        let cut = &x[frame.reduced.offset(step) + inside..][..length];
        // SAFETY: the caller vouches for the instructions.
        let extreme = unsafe {
            match order {
                Order::Largest => fold_run::<V, _, 4>(Largest, cut),
                Order::Smallest => fold_run::<V, _, 4>(Smallest, cut),
            }
        };
        if best.is_none_or(|best| goes_before(order, best, extreme)) {
            (best, found) = (Some(extreme), position..position + length);
        }
        position += length;
    }
    let start = frame.reduced.offset(found.start / frame.run) + found.start % frame.run;
    let cut = &x[start..][..found.len()];
    let inside = best.map_or(0, |best| first_of(cut, best));
    (found.start + inside) as i64
}

/// Where a value stands first, which is there; NaN is like NaN.
#[inline(always)]
fn first_of<T: Number>(cut: &[T], value: T) -> usize {
    const LOOK: usize = 32;
    let is = |element: T| (element == value) | (element.is_nan() & value.is_nan());
    let holds = |group: &&[T]| {
        group
            .iter()
            .fold(false, |found, &element| found | is(element))
    };
    // Whole groups are looked at without stopping, which vectors can.
    let groups = cut.chunks_exact(LOOK);
    let passed = LOOK * groups.take_while(|group| !holds(group)).count();
    let inside = cut[passed..].iter().position(|&element| is(element));
    passed + inside.unwrap_or(0)
}

#[inline(always)]
fn columns<T: Number>(order: Order, frame: &Frame, x: &[T], depth: Range<usize>, out: &mut [i64]) {
    let width = out.len().min(COLUMNS);
    let mut best = [T::ZERO; COLUMNS];
    let mut places = [0i64; COLUMNS];
    best[..width].copy_from_slice(&x[frame.reduced.offset(depth.start)..][..width]);
    places[..width].fill(depth.start as i64);
    for position in depth.skip(1) {
        let elements = &x[frame.reduced.offset(position)..][..width];
        for ((best, place), &element) in best.iter_mut().zip(&mut places).zip(elements) {
            let before = goes_before(order, *best, element);
            *best = if before { element } else { *best };
            *place = if before { position as i64 } else { *place };
        }
    }
    out.copy_from_slice(&places[..width]);
}

/// The best of places in several parts of a result's elements, the parts in order.
pub(super) fn best_of<T: Number>(
    order: Order,
    frame: &Frame,
    x: &[T],
    result: usize,
    places: impl Iterator<Item = i64>,
) -> i64 {
    let at = |place: i64| {
        let place = place as usize;
        let offset = if frame.rows {
            frame.kept.offset(result) + frame.reduced.offset(place / frame.run) + place % frame.run
        } else {
            frame.kept.offset(result / frame.run) + result % frame.run + frame.reduced.offset(place)
        };
        x[offset]
    };
    let better = |best, new| match goes_before(order, at(best), at(new)) {
        true => new,
        false => best,
    };
    places.reduce(better).unwrap_or(0)
}
