//! Features as small integers.
//!
//! A feature is cut where its values lie dense; each row is then a list of codes, a byte each: rows of a node are far apart
//! in memory, and the fewer bytes they have, the sooner they are there. One array of sums serves all features, each
//! of which has its place in it. Features with one value only are left out: they separate nothing.

use std::ops::Range;

use crate::table::Rows;

/// A table in codes.
#[derive(Debug)]
pub(super) struct Bins {
    columns: Vec<Column>,
    /// Row by row, one code per column.
    codes: Vec<u8>,
    /// The same, column by column: who asks for one code of many rows finds them close together.
    turned: Vec<u8>,
}

/// A feature that tells rows apart.
#[derive(Debug)]
pub(super) struct Column {
    /// Its place in the rows of the table.
    pub(super) feature: u16,
    /// Where the sums of its codes begin.
    first: usize,
    /// Ascending; range i holds values up to `cuts[i]`, the last range what is above all.
    cuts: Vec<f32>,
}

impl Column {
    /// Where the sums of its codes are.
    pub(super) fn sums(&self) -> Range<usize> {
        self.first..self.first + self.cuts.len() + 1
    }

    /// The value that separates this code from the next, which belongs to this one.
    pub(super) fn threshold(&self, code: u8) -> f32 {
        self.cuts[usize::from(code)]
    }
}

impl Bins {
    /// Cuts every feature into at most `most` ranges; the caller sees to it that these are at most 256.
    pub(super) fn new(rows: Rows<'_>, most: usize) -> Self {
        let mut columns = Vec::new();
        let mut first = 0;
        for feature in 0..rows.width() {
            let cuts = cuts(rows.column(feature).collect(), most);
            if cuts.is_empty() {
                continue;
            }
            let ranges = cuts.len() + 1;
            columns.push(Column {
                feature: feature as u16,
                first,
                cuts,
            });
            first += ranges;
        }
        let mut codes = Vec::with_capacity(rows.len() * columns.len());
        for features in rows.iter() {
            codes.extend(columns.iter().map(|column| {
                let value = features[usize::from(column.feature)];
                let below = column.cuts.partition_point(|&cut| cut < value);
                below as u8
            }));
        }
        let mut turned = Vec::with_capacity(codes.len());
        for column in 0..columns.len() {
            turned.extend(codes.iter().skip(column).step_by(columns.len()));
        }
        Self {
            columns,
            codes,
            turned,
        }
    }

    /// How many features tell rows apart.
    pub(super) fn width(&self) -> usize {
        self.columns.len()
    }

    /// How many codes there are over all features.
    pub(super) fn len(&self) -> usize {
        self.columns.last().map_or(0, |last| last.sums().end)
    }

    /// One of the features.
    pub(super) fn column(&self, index: usize) -> &Column {
        &self.columns[index]
    }

    /// The codes of one feature, row by row.
    pub(super) fn codes(&self, column: usize) -> &[u8] {
        let rows = self.turned.len() / self.columns.len().max(1);
        &self.turned[column * rows..(column + 1) * rows]
    }

    /// Brings the codes of rows that are about to be asked for near. They are far apart in memory, and the processor, busy with the
    /// sums of one, does not see the next in time.
    #[inline]
    pub(super) fn fetch(&self, rows: &[u32]) {
        let touched = rows.iter().fold(0, |touched, &row| {
            let codes = self.row(row as usize);
            // Both ends: a row may lie in two lines of the cache.
            touched ^ codes.first().unwrap_or(&0) ^ codes.last().unwrap_or(&0)
        });
        // Or the compiler would find that nobody wants it.
        std::hint::black_box(touched);
    }

    /// The codes of a row, one per feature that tells rows apart.
    #[inline]
    pub(super) fn row(&self, row: usize) -> &[u8] {
        let width = self.columns.len();
        &self.codes[row * width..(row + 1) * width]
    }
}

/// Where to cut: between all values if they are few, else so that every range holds about as many rows. A
/// value that fills several ranges gets one.
fn cuts(mut values: Vec<f32>, most: usize) -> Vec<f32> {
    values.sort_unstable_by(f32::total_cmp);
    let mut distinct: Vec<(f32, usize)> = Vec::new();
    for &value in &values {
        match distinct.last_mut() {
            Some((last, count)) if *last == value => *count += 1,
            _ => distinct.push((value, 1)),
        }
    }
    let mut cuts = Vec::new();
    let (mut left, mut held) = (values.len(), 0);
    for pair in distinct.windows(2) {
        let [(value, count), (next, after)] = pair else {
            continue;
        };
        held += count;
        let ranges = most - cuts.len();
        // Fair shares of what is left; a heavy value ahead is better off in a range of its own.
        let share = left as f64 / ranges as f64;
        let full = held as f64 >= share || (held * 2) as f64 >= share && *after as f64 >= share;
        if ranges > 1 && (distinct.len() <= most || full) {
            cuts.push(between(*value, *next));
            left -= held;
            held = 0;
        }
    }
    cuts
}

/// A number from `low` up to but not including `high`, in the middle if there is one.
fn between(low: f32, high: f32) -> f32 {
    let middle = low / 2.0 + high / 2.0;
    if middle >= low && middle < high {
        middle
    } else {
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;

    #[test]
    fn few_values_are_kept_apart_and_many_are_shared_out() {
        assert_eq!(cuts(vec![3.0, 1.0, 1.0, 2.0], 64), [1.5, 2.5]);
        assert!(cuts(vec![7.0; 9], 64).is_empty());
        let many = cuts((0..1000).map(|v| v as f32).collect(), 10);
        assert_eq!(many.len(), 9);
        for (index, cut) in many.iter().enumerate() {
            let expected = 100.0 * (index + 1) as f32 - 0.5;
            assert!((cut - expected).abs() <= 1.0, "{many:?}");
        }
    }

    #[test]
    fn a_heavy_value_does_not_use_up_the_ranges() {
        // 900 rows of one value, then 100 values: nine ranges are left for these.
        let values = (0..1000).map(|v| (v - 900).max(0) as f32).collect();
        let cuts = cuts(values, 10);
        assert_eq!(cuts[0], 0.5);
        assert_eq!(cuts.len(), 9, "{cuts:?}");
    }

    #[test]
    fn a_cut_never_equals_the_value_above_it() {
        for low in [1.0_f32, -1.0, 0.0, 3e38, -3e38, 1e-45] {
            let cut = between(low, low.next_up());
            assert!(cut >= low && cut < low.next_up(), "{low}");
        }
        assert_eq!(between(-3e38, 3e38), 0.0);
    }

    #[test]
    fn codes_agree_with_cuts_and_constant_features_are_left_out() {
        let mut table = Table::new(3);
        for value in [5.0, 1.0, 3.0] {
            table.push(&[value, 8.0, -value], 0.0).unwrap();
        }
        let bins = Bins::new(table.features(), 64);
        assert_eq!((bins.width(), bins.len()), (2, 6));
        assert_eq!(bins.row(0), [2, 0]);
        assert_eq!(bins.row(1), [0, 2]);
        assert_eq!(bins.codes(0), [2, 0, 1]);
        assert_eq!(bins.codes(1), [0, 2, 1]);
        assert_eq!(bins.column(1).feature, 2);
        assert_eq!(bins.column(1).sums(), 3..6);
        assert_eq!(bins.column(1).threshold(0), -4.0);
    }
}
