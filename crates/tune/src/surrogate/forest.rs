//! Trees with random questions (extremely randomised trees; Geurts and others, 2006), kept up to date one measurement at a
//! time.
//!
//! A search asks its model after every measurement and may spend a millisecond on it, so the trees differ from those of
//! `kernelwise-model`, which are fitted once to many rows: a new row is added to the leaves it falls into, and only some trees, the oldest, are
//! grown again. The spread between trees is needed as much as their mean.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// Questions tried per node, of which the best stays.
const QUESTIONS: usize = 8;
/// Draws after which a node whose rows are all alike is left as it is.
const DRAWS: usize = 2 * QUESTIONS + 4;
const LEAF: u16 = u16::MAX;
/// Trees that are asked at the same time.
const TOGETHER: usize = 4;

#[derive(Debug, Clone, Copy)]
struct Node {
    feature: u16,
    threshold: f32,
    /// The child for values up to the threshold; the other one follows it.
    low: u32,
    rows: f32,
    mean: f32,
    /// Sum of squared distances from the mean.
    scatter: f32,
}

/// What a forest believes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Belief {
    pub(crate) mean: f64,
    pub(crate) variance: f64,
}

#[derive(Debug, Clone)]
pub(crate) struct Forest {
    trees: Vec<Vec<Node>>,
    columns: Vec<Vec<f32>>,
    targets: Vec<f32>,
    oldest: usize,
    /// Working memory.
    rows: Vec<u32>,
}

impl Forest {
    pub(crate) fn new(width: usize, trees: usize) -> Self {
        Self {
            trees: vec![Vec::new(); trees],
            columns: vec![Vec::new(); width],
            targets: Vec::new(),
            oldest: 0,
            rows: Vec::new(),
        }
    }

    pub(crate) fn is_grown(&self) -> bool {
        self.trees.first().is_some_and(|tree| !tree.is_empty())
    }

    pub(crate) fn clear(&mut self) {
        self.columns.iter_mut().for_each(Vec::clear);
        self.trees.iter_mut().for_each(Vec::clear);
        self.targets.clear();
    }

    /// Adds a row, also to the trees there are.
    pub(crate) fn push(&mut self, row: &[f32], target: f32) {
        for (column, value) in self.columns.iter_mut().zip(row) {
            column.push(*value);
        }
        self.targets.push(target);
        for tree in self.trees.iter_mut().filter(|tree| !tree.is_empty()) {
            let mut at = 0;
            loop {
                let node = &mut tree[at];
                node.rows += 1.0;
                let off = target - node.mean;
                node.mean += off / node.rows;
                node.scatter += off * (target - node.mean);
                if node.feature == LEAF {
                    break;
                }
                at = node.child(row);
            }
        }
    }

    /// Gives a row another target, also in the trees there are.
    pub(crate) fn correct(&mut self, row: usize, target: f32) {
        let Some(known) = self.targets.get_mut(row) else {
            return;
        };
        let before = std::mem::replace(known, target);
        let values: Vec<f32> = self.columns.iter().map(|column| column[row]).collect();
        for tree in self.trees.iter_mut().filter(|tree| !tree.is_empty()) {
            let mut at = 0;
            loop {
                let node = &mut tree[at];
                let mean = node.mean + (target - before) / node.rows;
                let scatter = (target - before) * (target - mean + before - node.mean);
                node.scatter = (node.scatter + scatter).max(0.0);
                node.mean = mean;
                if node.feature == LEAF {
                    break;
                }
                at = node.child(&values);
            }
        }
    }

    /// Grows so many trees again, the oldest first; all of them the first time.
    pub(crate) fn regrow(&mut self, count: usize, random: &mut Pcg64Mcg) {
        if self.targets.is_empty() {
            return;
        }
        let count = if self.is_grown() {
            count
        } else {
            self.trees.len()
        };
        for _ in 0..count.min(self.trees.len()) {
            let mut tree = std::mem::take(&mut self.trees[self.oldest]);
            self.grow(&mut tree, random);
            self.trees[self.oldest] = tree;
            self.oldest = (self.oldest + 1) % self.trees.len();
        }
    }

    fn grow(&mut self, tree: &mut Vec<Node>, random: &mut Pcg64Mcg) {
        let mut all = std::mem::take(&mut self.rows);
        all.clear();
        all.extend(0..self.targets.len() as u32);
        tree.clear();
        tree.push(self.node(&all));
        let mut open = vec![(0, 0, all.len())];
        while let Some((at, from, to)) = open.pop() {
            let rows = &mut all[from..to];
            let Some((feature, threshold)) = self.question(&tree[at], rows, random) else {
                continue;
            };
            let middle = from + partition(rows, &self.columns[feature], threshold);
            let low = tree.len();
            tree[at].feature = feature as u16;
            tree[at].threshold = threshold;
            tree[at].low = low as u32;
            for (child, (from, to)) in [(low, (from, middle)), (low + 1, (middle, to))] {
                tree.push(self.node(&all[from..to]));
                open.push((child, from, to));
            }
        }
        self.rows = all;
    }

    fn node(&self, rows: &[u32]) -> Node {
        let targets = || rows.iter().map(|row| self.targets[*row as usize]);
        let count = rows.len() as f32;
        let mean = targets().sum::<f32>() / count;
        Node {
            feature: LEAF,
            threshold: 0.0,
            low: 0,
            rows: count,
            mean,
            scatter: targets()
                .map(|target| (target - mean) * (target - mean))
                .sum(),
        }
    }

    /// The best of some random questions. A threshold lies between the values of two rows drawn, so that it splits them.
    fn question(&self, node: &Node, rows: &[u32], random: &mut Pcg64Mcg) -> Option<(usize, f32)> {
        if rows.len() < 2 || node.scatter < 1e-10 {
            return None;
        }
        let mut best = None;
        let mut to_beat = f32::NEG_INFINITY;
        let mut tried = 0;
        for _ in 0..DRAWS {
            let feature = random.random_range(0..self.columns.len());
            let column = &self.columns[feature];
            let a = column[rows[random.random_range(0..rows.len())] as usize];
            let b = column[rows[random.random_range(0..rows.len())] as usize];
            if a == b {
                continue;
            }
            let threshold = a.min(b) + (a - b).abs() * random.random_range(0.0001..0.9999_f32);
            let (mut sum, mut low) = (0.0, 0.0);
            for &row in rows {
                let is_low = f32::from(u8::from(column[row as usize] <= threshold));
                sum += is_low * (self.targets[row as usize] - node.mean);
                low += is_low;
            }
            let high = rows.len() as f32 - low;
            // Rounding may put a threshold on one of its ends.
            if low == 0.0 || high == 0.0 {
                continue;
            }
            let removed = sum * sum * (1.0 / low + 1.0 / high);
            if removed > to_beat {
                to_beat = removed;
                best = Some((feature, threshold));
            }
            tried += 1;
            if tried == QUESTIONS {
                break;
            }
        }
        best
    }

    /// The mean of all trees and how far they are apart, with the scatter in their leaves. Nothing is known before the first row.
    pub(crate) fn believe(&self, row: &[f32]) -> Belief {
        let (mut sum, mut squares, mut scatter, mut trees) = (0.0, 0.0, 0.0, 0.0_f32);
        // Every step down waits for the one before, so some trees go down together.
        for together in self.trees.chunks(TOGETHER) {
            let mut at = [0_usize; TOGETHER];
            let mut on_the_way = true;
            while on_the_way {
                on_the_way = false;
                for (tree, at) in together.iter().zip(&mut at) {
                    match tree.get(*at) {
                        Some(node) if node.feature != LEAF => {
                            *at = node.child(row);
                            on_the_way = true;
                        }
                        _ => {}
                    }
                }
            }
            for node in together
                .iter()
                .zip(at)
                .filter_map(|(tree, at)| tree.get(at))
            {
                sum += node.mean;
                squares += node.mean * node.mean;
                scatter += node.scatter / node.rows;
                trees += 1.0;
            }
        }
        let trees = trees.max(1.0);
        let mean = sum / trees;
        Belief {
            mean: f64::from(mean),
            variance: f64::from((squares / trees - mean * mean).max(0.0) + scatter / trees),
        }
    }
}

impl Node {
    #[inline]
    fn child(&self, row: &[f32]) -> usize {
        self.low as usize + usize::from(row[usize::from(self.feature)] > self.threshold)
    }
}

/// Rows up to the threshold first; how many there are.
fn partition(rows: &mut [u32], column: &[f32], threshold: f32) -> usize {
    let (mut low, mut high) = (0, rows.len());
    while low < high {
        if column[rows[low] as usize] <= threshold {
            low += 1;
        } else {
            high -= 1;
            rows.swap(low, high);
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn target(row: &[f32]) -> f32 {
        row[0] + if row[1] > 0.5 { 3.0 } else { 0.0 }
    }

    fn rows(count: usize, random: &mut Pcg64Mcg) -> Vec<[f32; 3]> {
        (0..count)
            .map(|_| std::array::from_fn(|_| random.random()))
            .collect()
    }

    #[test]
    fn it_learns_a_step_and_doubts_what_it_has_not_seen() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let mut forest = Forest::new(3, 30);
        for row in rows(150, &mut random) {
            forest.push(&row, target(&row));
        }
        forest.regrow(30, &mut random);
        let unseen = rows(100, &mut random);
        let error = |row: &[f32; 3]| (forest.believe(row).mean as f32 - target(row)).abs();
        let mean = unseen.iter().map(error).sum::<f32>() / 100.0;
        assert!(mean < 0.3, "{mean}");
        // At the edge of the step trees disagree more than far from it.
        let at = |y: f32| forest.believe(&[0.5, y, 0.5]).variance;
        assert!(at(0.5) > 2.0 * at(0.9), "{} {}", at(0.5), at(0.9));
    }

    #[test]
    fn a_corrected_row_is_as_if_it_had_never_been_otherwise() {
        let mut random = Pcg64Mcg::seed_from_u64(3);
        let data = rows(40, &mut random);
        let mut forest = Forest::new(3, 4);
        for row in &data {
            forest.push(row, target(row));
        }
        forest.regrow(4, &mut random);
        let before = forest.clone();
        forest.correct(7, 50.0);
        assert!(forest.believe(&data[7]).mean > before.believe(&data[7]).mean + 1.0);
        forest.correct(7, target(&data[7]));
        for row in &data {
            let (now, then) = (forest.believe(row), before.believe(row));
            assert!(
                (now.mean - then.mean).abs() < 1e-3 && (now.variance - then.variance).abs() < 1e-2
            );
        }
        // There is no such row.
        forest.correct(40, 1.0);
    }

    #[test]
    fn a_new_row_counts_before_trees_are_grown_again() {
        let mut random = Pcg64Mcg::seed_from_u64(2);
        let mut forest = Forest::new(3, 10);
        for row in rows(20, &mut random) {
            forest.push(&row, 1.0);
        }
        forest.regrow(10, &mut random);
        assert_eq!(
            forest.believe(&[0.5; 3]),
            Belief {
                mean: 1.0,
                variance: 0.0
            }
        );
        // All alike: one leaf, so that the 21st row moves it by its share.
        forest.push(&[0.5; 3], 22.0);
        assert!((forest.believe(&[0.1; 3]).mean - 2.0).abs() < 1e-5);
    }
}
