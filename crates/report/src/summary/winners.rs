//! Which kernel wins where: operations against sizes.
//!
//! A size is the bytes that one call must move, by powers of ten. Times are compared only with times known the same way: a
//! prior is no match for a measurement. In a field of the map the kernel is shown that wins on most of its workloads; ties of
//! counts go to the first name, so that the same records make the same map.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::rows::{Timed, decade};
use crate::facts::KnownBy;

/// Kernels that differ by less are as good as each other; the selector switches by the same share.
pub(crate) const NEAR_TIE: f64 = 0.02;

/// The map.
#[derive(Debug, Default, Serialize)]
pub(crate) struct WinnerMap {
    /// Fields with at least one workload, by line and size.
    pub(crate) cells: Vec<Cell>,
    /// Workloads of which some time is known.
    pub(crate) workloads: usize,
    /// Those where a second kernel is as good as the first.
    pub(crate) near_ties: usize,
    /// Kernels that win somewhere.
    pub(crate) winning_kernels: usize,
    /// What tells kernels apart within operations, those that win most often first: the legend.
    #[serde(skip)]
    pub(crate) variants: Vec<String>,
}

/// A field of the map.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Cell {
    pub(crate) operation: String,
    pub(crate) dtype: &'static str,
    /// The power of ten of the bytes that a call moves.
    #[serde(rename = "size_decade_bytes_log10")]
    pub(crate) decade: u32,
    pub(crate) kernel: String,
    #[serde(skip)]
    pub(crate) variant: String,
    /// Workloads on which it wins.
    pub(crate) wins: usize,
    pub(crate) workloads: usize,
    /// Workloads on which another kernel is within 2 %.
    pub(crate) near_ties: usize,
    /// Whether that is so on half of them or more.
    pub(crate) near_tie: bool,
    pub(crate) known_by: KnownBy,
    /// Others that win there, most often first.
    pub(crate) others: Vec<(String, usize)>,
}

/// The best of one workload.
struct Won<'r> {
    operation: &'r str,
    dtype: &'static str,
    decade: u32,
    kernel: &'r str,
    variant: &'r str,
    known_by: KnownBy,
    near_tie: bool,
}

impl WinnerMap {
    /// Finds the winners, and marks their rows.
    pub(crate) fn of(rows: &mut [Timed<'_>]) -> Self {
        let mut by_workload: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (i, row) in rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.time_ns.is_some())
        {
            by_workload.entry(row.workload.clone()).or_default().push(i);
        }
        let fastest: Vec<(usize, bool)> = by_workload
            .values()
            .filter_map(|list| fastest(rows, list))
            .collect();
        for (i, _) in &fastest {
            rows[*i].fastest = true;
        }
        let won = fastest.iter().map(|(i, near_tie)| {
            let row = &rows[*i];
            Won {
                operation: &row.operation,
                dtype: row.dtype,
                decade: decade(row.size_bytes),
                kernel: row.kernel,
                variant: row.variant,
                known_by: row.known_by,
                near_tie: *near_tie,
            }
        });
        let won: Vec<Won<'_>> = won.collect();
        let mut fields: BTreeMap<(&str, &str, u32), Vec<&Won<'_>>> = BTreeMap::new();
        for one in &won {
            let field = (one.operation, one.dtype, one.decade);
            fields.entry(field).or_default().push(one);
        }
        let cells: Vec<Cell> = fields.into_values().filter_map(|all| cell(&all)).collect();
        let winning: BTreeSet<&str> = won.iter().map(|one| one.kernel).collect();
        Self {
            variants: variants(&cells, &won),
            workloads: won.len(),
            near_ties: won.iter().filter(|one| one.near_tie).count(),
            winning_kernels: winning.len(),
            cells,
        }
    }

    /// Operations with element types, in the order of the map.
    pub(crate) fn lines(&self) -> Vec<(&str, &'static str)> {
        let mut lines: Vec<(&str, &'static str)> = self
            .cells
            .iter()
            .map(|cell| (cell.operation.as_str(), cell.dtype))
            .collect();
        lines.dedup();
        lines
    }

    /// From the smallest power of ten to the largest, without gaps.
    pub(crate) fn decades(&self) -> Vec<u32> {
        let all = self.cells.iter().map(|cell| cell.decade);
        match (all.clone().min(), all.max()) {
            (Some(least), Some(most)) => (least..=most).collect(),
            _ => Vec::new(),
        }
    }

    /// The field of a line and size, if anything is known there.
    pub(crate) fn cell(&self, line: (&str, &str), decade: u32) -> Option<&Cell> {
        let is = |cell: &&Cell| {
            (cell.operation.as_str(), cell.dtype, cell.decade) == (line.0, line.1, decade)
        };
        self.cells.iter().find(is)
    }

    /// The place of a variant in the legend.
    pub(crate) fn place(&self, variant: &str) -> Option<usize> {
        self.variants.iter().position(|one| one == variant)
    }
}

/// The row that takes least of those known best, and whether another kernel is as good.
fn fastest(rows: &[Timed<'_>], list: &[usize]) -> Option<(usize, bool)> {
    let known_by = list.iter().map(|i| rows[*i].known_by).min()?;
    let alike = list
        .iter()
        .copied()
        .filter(|i| rows[*i].known_by == known_by);
    let time = |i: usize| rows[i].time_ns.unwrap_or(f64::INFINITY);
    let name = |i: usize| (rows[i].kernel, rows[i].parameters.as_str());
    let order = |a: &usize, b: &usize| {
        time(*a)
            .total_cmp(&time(*b))
            .then_with(|| name(*a).cmp(&name(*b)))
    };
    let best = alike.clone().min_by(order)?;
    let mut others = alike.filter(|i| rows[*i].kernel != rows[best].kernel);
    let near_tie = others.any(|i| time(i) <= (1.0 + NEAR_TIE) * time(best));
    Some((best, near_tie))
}

/// What is shown in a field.
fn cell(all: &[&Won<'_>]) -> Option<Cell> {
    let known_by = all.iter().map(|one| one.known_by).min()?;
    let all: Vec<&Won<'_>> = all
        .iter()
        .copied()
        .filter(|one| one.known_by == known_by)
        .collect();
    let mut wins: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for one in &all {
        *wins.entry((one.kernel, one.variant)).or_default() += 1;
    }
    let mut order: Vec<((&str, &str), usize)> = wins.into_iter().collect();
    order.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let mut order = order.into_iter();
    let ((kernel, variant), wins) = order.next()?;
    let near_ties = all.iter().filter(|one| one.near_tie).count();
    let first = all.first()?;
    Some(Cell {
        operation: first.operation.to_owned(),
        dtype: first.dtype,
        decade: first.decade,
        kernel: kernel.to_owned(),
        variant: variant.to_owned(),
        wins,
        workloads: all.len(),
        near_ties,
        near_tie: 2 * near_ties >= all.len(),
        known_by,
        others: order
            .map(|((kernel, _), wins)| (kernel.to_owned(), wins))
            .collect(),
    })
}

/// Those that have fields first, by how many, then those that only win here and there.
fn variants(cells: &[Cell], won: &[Won<'_>]) -> Vec<String> {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for cell in cells {
        counts.entry(&cell.variant).or_default().0 += 1;
    }
    for one in won {
        counts.entry(one.variant).or_default().1 += 1;
    }
    let mut order: Vec<(&str, (usize, usize))> = counts.into_iter().collect();
    order.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    order
        .into_iter()
        .map(|(variant, _)| variant.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use kernelwise_types::units::Nanos;
    use kernelwise_types::{Candidate, Estimate, Params};

    use super::*;
    use crate::facts::Row;

    fn row(workload: &str, kernel: &str, ns: f64, known_by: KnownBy) -> Row {
        let time_ns = Nanos::new(ns).unwrap();
        let estimate = match known_by {
            KnownBy::Measured => Estimate::Measured {
                time_ns,
                interval_ns: None,
                samples: 5,
            },
            _ => Estimate::Prior {
                time_ns,
                source: "roofline".into(),
            },
        };
        let candidate = Candidate {
            kernel: kernel.parse().unwrap(),
            params: Params::new(),
        };
        Row {
            workload: workload.parse().unwrap(),
            candidate,
            estimate,
        }
    }

    fn map(rows: &[Row]) -> WinnerMap {
        let mut timed: Vec<Timed<'_>> = rows.iter().map(Timed::of).collect();
        WinnerMap::of(&mut timed)
    }

    use KnownBy::{Measured, Prior};

    #[test]
    fn the_fastest_wins_and_two_per_cent_are_a_tie() {
        let of = |second: f64| {
            let rows = [
                row("matmul f32 8x8x8", "cpu-matmul-f32-a", second, Measured),
                row("matmul f32 8x8x8", "cpu-matmul-f32-b", 100.0, Measured),
            ];
            let map = map(&rows);
            let cell = map.cell(("matmul", "f32"), 2).unwrap();
            (cell.kernel.clone(), cell.near_tie, map.near_ties)
        };
        assert_eq!(of(150.0), ("cpu-matmul-f32-b".to_owned(), false, 0));
        assert_eq!(of(102.0), ("cpu-matmul-f32-b".to_owned(), true, 1));
        assert_eq!(of(102.1), ("cpu-matmul-f32-b".to_owned(), false, 0));
        assert_eq!(of(99.0), ("cpu-matmul-f32-a".to_owned(), true, 1));
    }

    #[test]
    fn a_field_is_who_wins_most_often_there() {
        let sizes = ["8x8x8", "8x8x7", "8x7x8"];
        let mut rows = Vec::new();
        for (i, size) in sizes.iter().enumerate() {
            let workload = format!("matmul f32 {size}");
            let a = if i == 0 { 50.0 } else { 200.0 };
            rows.push(row(&workload, "cpu-matmul-f32-a", a, Measured));
            rows.push(row(&workload, "cpu-matmul-f32-b", 100.0, Measured));
        }
        rows.push(row(
            "matmul f32 64x64x64",
            "cpu-matmul-f32-c",
            9.0,
            Measured,
        ));
        rows.push(row("matmul f64 8x8x8", "cpu-matmul-f64-a", 9.0, Measured));
        let map = map(&rows);
        let cell = map.cell(("matmul", "f32"), 2).unwrap();
        assert_eq!(
            (cell.kernel.as_str(), cell.wins, cell.workloads),
            ("cpu-matmul-f32-b", 2, 3)
        );
        assert_eq!(cell.others, [("cpu-matmul-f32-a".to_owned(), 1)]);
        assert!(!cell.near_tie);
        assert_eq!(map.lines(), [("matmul", "f32"), ("matmul", "f64")]);
        assert_eq!(map.decades(), [2, 3, 4]);
        assert_eq!(map.cell(("matmul", "f32"), 3), None);
        assert_eq!(map.cell(("matmul", "f32"), 4).unwrap().variant, "c");
        assert_eq!((map.workloads, map.winning_kernels), (5, 4));
        assert_eq!(map.variants, ["a", "b", "c"]);
        assert_eq!((map.place("c"), map.place("z")), (Some(2), None));
    }

    #[test]
    fn a_prior_beats_no_measurement() {
        let rows = [
            row("matmul f32 8x8x8", "cpu-matmul-f32-a", 1.0, Prior),
            row("matmul f32 8x8x8", "cpu-matmul-f32-b", 100.0, Measured),
            row("copy f32 10", "cpu-copy-f32-a", 1.0, Prior),
        ];
        let map = map(&rows);
        let matmul = map.cell(("matmul", "f32"), 2).unwrap();
        assert_eq!(
            (matmul.kernel.as_str(), matmul.known_by),
            ("cpu-matmul-f32-b", Measured)
        );
        assert_eq!(map.cell(("copy", "f32"), 1).unwrap().known_by, Prior);
    }

    #[test]
    fn other_threads_of_the_same_kernel_are_no_tie() {
        let mut rows = [
            row("matmul f32 8x8x8", "cpu-matmul-f32-a", 100.0, Measured),
            row("matmul f32 8x8x8", "cpu-matmul-f32-a", 100.0, Measured),
        ];
        rows[1].candidate.params = "threads=2".parse().unwrap();
        assert_eq!(map(&rows).near_ties, 0);
        assert!(map(&[]).decades().is_empty());
    }
}
