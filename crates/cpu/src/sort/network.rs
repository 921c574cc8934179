//! Short rows, several at a time: the same comparisons for each, so that a vector register holds one place of
//! many rows and nothing depends on the data.
//!
//! The comparisons are those of Batcher's merge exchange (Knuth, "Sorting and searching", algorithm 5.2.2M).

use super::order::Record;
use super::row::Row;
use crate::isa::{Body, Level};

/// Longest row.
pub(super) const MAX_LEN: usize = 32;

/// Rows sorted at once.
const LANES: usize = 16;

/// Comparisons of the longest row.
const MAX_PAIRS: usize = 191;

/// The comparisons for rows of one length, in order.
struct Pairs {
    pairs: [(u8, u8); MAX_PAIRS],
    len: usize,
}

impl Pairs {
    /// For rows of `len`, at most [`MAX_LEN`].
    fn new(len: usize) -> Self {
        let mut all = Self {
            pairs: [(0, 0); MAX_PAIRS],
            len: 0,
        };
        let top = len.min(MAX_LEN).next_power_of_two() / 2;
        let mut p = top;
        while p > 0 {
            let (mut q, mut r, mut d) = (top, 0, p);
            loop {
                for i in (0..len.saturating_sub(d)).filter(|i| i & p == r) {
                    if let Some(pair) = all.pairs.get_mut(all.len) {
                        *pair = (i as u8, (i + d) as u8);
                        all.len += 1;
                    }
                }
                if q == p {
                    break;
                }
                (d, q, r) = (q - p, q / 2, p);
            }
            p /= 2;
        }
        all
    }
}

/// Sorts rows of `len` places.
///
/// # Safety
///
/// `len` is at most [`MAX_LEN`]; every row that `row` gives below `rows` has so many places, and nobody else
/// uses them.
pub(super) unsafe fn sort<R: Row>(level: Level, rows: usize, len: usize, row: impl Fn(usize) -> R) {
    level.run(Blocks { rows, len, row });
}

struct Blocks<F> {
    rows: usize,
    len: usize,
    row: F,
}

impl<R: Row, F: Fn(usize) -> R> Body for Blocks<F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let pairs = Pairs::new(self.len);
        let mut block = [[R::Record::default(); LANES]; MAX_LEN];
        let mut first = 0;
        while first < self.rows {
            let lanes = (self.rows - first).min(LANES);
            for lane in 0..lanes {
                let row = (self.row)(first + lane);
                for (place, records) in block[..self.len].iter_mut().enumerate() {
                    // SAFETY: the row has `len` places, the caller of `sort` said so.
                    records[lane] = unsafe { row.read(place) };
                }
            }
            for &(low, high) in &pairs.pairs[..pairs.len] {
                exchange(&mut block, low.into(), high.into());
            }
            for lane in 0..lanes {
                let row = (self.row)(first + lane);
                for (place, records) in block[..self.len].iter().enumerate() {
                    // SAFETY: as above; the records of a lane came from its row.
                    unsafe { row.write(place, records[lane]) };
                }
            }
            first += LANES;
        }
    }
}

/// Puts the smaller of two records at `low` and the larger at `high`, for each row.
#[inline(always)]
fn exchange<R: Record>(block: &mut [[R; LANES]; MAX_LEN], low: usize, high: usize) {
    let (mut a, mut b) = (block[low], block[high]);
    for lane in 0..LANES {
        (a[lane], b[lane]) = (a[lane].min(b[lane]), a[lane].max(b[lane]));
    }
    (block[low], block[high]) = (a, b);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What sorts every row of zeros and ones sorts every row (Knuth's zero-one principle); longer rows
    /// are sampled.
    #[test]
    fn the_comparisons_sort_every_row() {
        for len in 0..=MAX_LEN {
            let pairs = Pairs::new(len);
            let rows: Vec<u32> = if len <= 12 {
                (0..1 << len).collect()
            } else {
                (0..4000u32)
                    .map(|i| i.wrapping_mul(0x9e37_79b9) ^ i << 7)
                    .collect()
            };
            for bits in rows {
                let mut row = bits;
                for &(low, high) in &pairs.pairs[..pairs.len] {
                    assert!(low < high && usize::from(high) < len);
                    if row >> low & 1 > row >> high & 1 {
                        row ^= 1 << low | 1 << high;
                    }
                }
                let mask = ((1u64 << len) - 1) as u32;
                let ones = (row & mask).count_ones();
                assert_eq!(
                    row & mask,
                    mask & !(((1u64 << (len as u32 - ones)) - 1) as u32),
                    "{len} {bits:b}"
                );
            }
        }
        assert_eq!(Pairs::new(MAX_LEN).len, MAX_PAIRS);
    }
}
