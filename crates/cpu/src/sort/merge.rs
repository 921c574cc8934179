//! One row on several threads: each sorts a part, then the parts are merged two by two, every thread
//! computing an equal share of each merge.
//!
//! Where a thread's share begins in both parts is found by bisection, so no thread waits for another within a
//! merge. Of equal records the one from the earlier part comes first, which keeps the sort stable.

use std::ops::Range;

use super::order::Record;
use super::radix::{self, Digits, KeyBits};
use super::row::Row;
use crate::pool::{Schedule, Start, share};

/// How many parts so many threads make of a row.
fn parts(len: usize, threads: usize) -> usize {
    threads.min(len).max(2)
}

/// How often all of a row is merged.
pub(super) fn rounds(len: usize, threads: usize) -> u32 {
    (parts(len, threads) - 1).ilog2() + 1
}

/// Sorts a row on so many threads.
///
/// # Safety
///
/// The row has `len` places, which fits 32 bits. `counts` has room for [`Digits::counters`] per thread. Both
/// buffers are places for `len` records, used by nobody else; `second` may be what [`Row::in_place`] gives.
pub(super) unsafe fn sort<R: Row>(
    row: R,
    len: usize,
    threads: usize,
    digits: Digits,
    counts: &mut [u32],
    (first, second): (*mut R::Record, *mut R::Record),
) {
    let (parts, rounds) = (parts(len, threads), rounds(len, threads));
    // The last merge writes the output, so it must read from the buffer that is not the output.
    let (start, other) = if rounds % 2 == 1 {
        (first, second)
    } else {
        (second, first)
    };
    let (start, other) = (Start::new(start), Start::new(other));
    let bits = KeyBits {
        below: R::BELOW,
        key: R::KEY,
    };
    let counters = digits.counters(R::KEY);
    let counts = Start::new(counts.as_mut_ptr());
    let bound = |part: usize| (part.min(parts) as u64 * len as u64 / parts as u64) as usize;
    share(threads, Schedule::Static, parts, 1, |_, piece| {
        for part in piece {
            let (low, high) = (bound(part), bound(part + 1));
            // SAFETY: parts do not overlap, neither do their counters; the row has the places below `len`.
            unsafe {
                let counts = std::slice::from_raw_parts_mut(counts.at(part * counters), counters);
                let (near, far) = (other.at(low), start.at(low));
                let read = move |place| row.read(low + place);
                let write = move |place, record| far.add(place).write(record);
                radix::sort(high - low, bits, digits, counts, (near, far), read, write);
            }
        }
    });

    let (mut from, mut to) = (start, other);
    for round in 0..rounds {
        let run = |number: usize| bound(number << round);
        let last = round + 1 == rounds;
        share(threads, Schedule::Static, len, 1, |_, piece| {
            let mut number = 0;
            while run(number) < len {
                let (low, middle, high) = (run(number), run(number + 1), run(number + 2));
                let share = piece.start.max(low)..piece.end.min(high);
                // SAFETY: `from` holds sorted records everywhere below `len` and is only read; shares
                // do not overlap.
                unsafe {
                    let left = std::slice::from_raw_parts(from.at(low), middle - low);
                    let right = std::slice::from_raw_parts(from.at(middle), high - middle);
                    if share.is_empty() {
                    } else if last {
                        let write = |place: usize, record| row.write(low + place, record);
                        merge(left, right, share.start - low..share.end - low, write);
                    } else {
                        let write = |place: usize, record| to.at(low + place).write(record);
                        merge(left, right, share.start - low..share.end - low, write);
                    }
                }
                number += 2;
            }
        });
        std::mem::swap(&mut from, &mut to);
    }
}

/// The places `share` of the merge of two sorted lists.
fn merge<R: Record>(left: &[R], right: &[R], share: Range<usize>, write: impl Fn(usize, R)) {
    let (mut l, end) = (
        taken(left, right, share.start),
        taken(left, right, share.end),
    );
    let (mut r, end_r) = (share.start - l, share.end - end);
    let mut place = share.start;
    while l < end && r < end_r {
        let (a, b) = (left[l], right[r]);
        let from_right = b < a;
        write(place, if from_right { b } else { a });
        r += usize::from(from_right);
        l += usize::from(!from_right);
        place += 1;
    }
    for &record in left[l..end].iter().chain(&right[r..end_r]) {
        write(place, record);
        place += 1;
    }
}

/// How many of the first `count` records of a merge come from the left.
fn taken<R: Record>(left: &[R], right: &[R], count: usize) -> usize {
    let (mut low, mut high) = (count.saturating_sub(right.len()), count.min(left.len()));
    while low < high {
        let middle = low + (high - low) / 2;
        // The left one at `middle` belongs to the first `count` unless a right one that would then be left
        // out is smaller.
        if right[count - 1 - middle] < left[middle] {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn any_cut_of_a_merge_gives_the_same() {
        let lists: [(&[u32], &[u32]); 5] = [
            (&[1, 3, 3, 5], &[2, 3, 3, 9]),
            (&[], &[1, 2]),
            (&[1, 2], &[]),
            (&[7, 8], &[1, 2, 3]),
            (&[4, 4, 4], &[4, 4]),
        ];
        for (left, right) in lists {
            let mut expected = [left, right].concat();
            expected.sort();
            let total = expected.len();
            for cut in 0..=total {
                let out = RefCell::new(vec![0; total]);
                for share in [0..cut, cut..total] {
                    merge(left, right, share, |place, record| {
                        out.borrow_mut()[place] = record
                    });
                }
                assert_eq!(
                    out.into_inner(),
                    expected,
                    "{left:?} {right:?} cut at {cut}"
                );
            }
        }
        // Of equals the left come first.
        assert_eq!(taken(&[4u32, 4, 4], &[4, 4], 2), 2);
    }
}
