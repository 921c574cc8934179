//! One tree, grown on codes.

use std::sync::{Mutex, PoisonError};

use super::Boosting;
use super::bins::Bins;
use super::crew::Crew;
use super::tree::{Node, Tree};

/// The rows of a node that share a code: for each of the answers their number by weight, and the sum of what is left to
/// explain.
#[derive(Debug, Clone, Copy)]
struct Sum<const K: usize> {
    weight: [f64; K],
    left: [f64; K],
}

impl<const K: usize> Default for Sum<K> {
    fn default() -> Self {
        Self {
            weight: [0.0; K],
            left: [0.0; K],
        }
    }
}

impl<const K: usize> Sum<K> {
    fn add(&mut self, other: Self) {
        for k in 0..K {
            self.weight[k] += other.weight[k];
            self.left[k] += other.left[k];
        }
    }

    fn minus(mut self, other: Self) -> Self {
        for k in 0..K {
            self.weight[k] -= other.weight[k];
            self.left[k] -= other.left[k];
        }
        self
    }

    /// The weight of all answers together.
    fn total_weight(&self) -> f64 {
        self.weight.iter().sum()
    }

    /// How much of the squared error a leaf with these rows would remove, of all answers together. Without rows, nothing.
    fn removed(&self, ridge: f64) -> f64 {
        let each = self.weight.iter().zip(&self.left).map(|(weight, left)| {
            let weight = weight + ridge;
            if weight > 0.0 {
                left * left / weight
            } else {
                0.0
            }
        });
        each.sum()
    }

    /// What a leaf with these rows answers, if one question earlier the answer was `before`.
    fn answer(&self, settings: &Boosting, before: [f32; K]) -> [f32; K] {
        std::array::from_fn(|k| {
            let weight = self.weight[k] + settings.ridge;
            let left = settings.shrinkage * self.left[k];
            if K == 1 && weight > 0.0 {
                // Alone, it has rows of its own everywhere, and zero is as good a guess.
                (left / weight) as f32
            } else if weight > 0.0 {
                // A question that is worth asking for others may leave it few rows, or none: what is known of more stands in.
                ((left + settings.ridge * f64::from(before[k])) / weight) as f32
            } else {
                before[k]
            }
        })
    }
}

/// Rows that are fetched together: their ways from memory are then one way.
const AT_A_TIME: usize = 32;

/// A question and what it is worth.
#[derive(Debug, Clone, Copy)]
struct Split {
    /// Index of the column.
    column: usize,
    /// The last code that goes left.
    code: u8,
    gain: f64,
}

/// A node of a tree that still speaks in codes.
#[derive(Debug)]
enum CodeNode<const K: usize> {
    Split {
        column: u16,
        code: u8,
        low: u32,
        high: u32,
    },
    Leaf([f32; K]),
}

/// Some rows of a node, and what the tree says of them once it has come to a leaf.
#[derive(Debug)]
pub(super) struct Part<'r, const K: usize> {
    pub(super) rows: &'r mut [u32],
    pub(super) answers: &'r mut [[f32; K]],
}

impl<const K: usize> Part<'_, K> {
    fn len(&self) -> usize {
        self.rows.len()
    }

    /// Both sides of a question; in either the rows keep their order.
    fn divide(self, codes: &[u8], last: u8, aside: &mut Vec<u32>) -> (Self, Self) {
        let Self { rows, answers } = self;
        if aside.len() < rows.len() {
            aside.resize(rows.len(), 0);
        }
        let (mut kept, mut moved) = (0, 0);
        for index in 0..rows.len() {
            let row = rows[index];
            // Written to both places, one of which moves on: which one is a coin toss to the processor, and no branch.
            let above = codes[row as usize] > last;
            rows[kept] = row;
            aside[moved] = row;
            kept += usize::from(!above);
            moved += usize::from(above);
        }
        rows[kept..].copy_from_slice(&aside[..moved]);
        let (low_rows, high_rows) = rows.split_at_mut(kept);
        let (low_answers, high_answers) = answers.split_at_mut(kept);
        let low = Self {
            rows: low_rows,
            answers: low_answers,
        };
        let high = Self {
            rows: high_rows,
            answers: high_answers,
        };
        (low, high)
    }
}

/// A node to be: its rows, their total and, unless it is a leaf for certain, their sums code by code.
struct Place<'r, const K: usize> {
    /// What the tree is grown on.
    seen: Part<'r, K>,
    /// What it is asked about only.
    unseen: Part<'r, K>,
    total: Sum<K>,
    sums: Vec<Sum<K>>,
    depth: usize,
    /// What its parent would answer as a leaf; the root has none, and zero is what a tree without a say adds.
    before: [f32; K],
}

/// What a thread keeps at hand.
#[derive(Debug, Default)]
struct Bench<const K: usize> {
    /// Arrays of sums that are not in use.
    spare: Vec<Vec<Sum<K>>>,
    aside: Vec<u32>,
}

/// Grows trees.
#[derive(Debug)]
pub(super) struct Grower<'a, const K: usize> {
    bins: &'a Bins,
    /// By row and answer; 0 where there is no target.
    weights: &'a [[f32; K]],
    settings: &'a Boosting,
    /// The least weight of a leaf, of all answers together.
    least: f64,
    crew: &'a Crew,
    /// What threads keep from one tree to the next.
    benches: Mutex<Vec<Bench<K>>>,
}

/// What is the same for all nodes of a tree.
struct Task<'a, const K: usize> {
    left: &'a [[f32; K]],
    features: &'a [u32],
}

impl<'a, const K: usize> Grower<'a, K> {
    pub(super) fn new(
        bins: &'a Bins,
        weights: &'a [[f32; K]],
        settings: &'a Boosting,
        crew: &'a Crew,
    ) -> Self {
        // A row that has several targets is one row all the same.
        let targets = weights.iter().flatten().filter(|weight| **weight > 0.0);
        let per_row = targets.count() as f64 / weights.len() as f64;
        Self {
            bins,
            weights,
            settings,
            least: settings.leaf_weight * per_row.max(1.0),
            crew,
            benches: Mutex::default(),
        }
    }

    /// Fits a tree to what is left of the targets in the rows it sees, asking about these features only. Afterwards the
    /// answers of both parts are those of their rows, whose order has changed.
    pub(super) fn grow(
        &self,
        left: &[[f32; K]],
        features: &[u32],
        seen: Part<'_, K>,
        unseen: Part<'_, K>,
    ) -> Tree<[f32; K]> {
        let task = Task { left, features };
        let mut nodes = Vec::new();
        let mut bench = self.bench();
        let mut total = Sum::default();
        for &row in &*seen.rows {
            total.add(self.sum_of(&task, row));
        }
        let root = Place {
            sums: self.sums(&task, seen.rows, &mut bench),
            seen,
            unseen,
            total,
            depth: 0,
            before: [0.0; K],
        };
        self.node(&task, root, &mut nodes, &mut bench);
        self.put_back(bench);
        self.in_features(nodes)
    }

    fn bench(&self) -> Bench<K> {
        let mut benches = self.benches.lock().unwrap_or_else(PoisonError::into_inner);
        benches.pop().unwrap_or_default()
    }

    fn put_back(&self, bench: Bench<K>) {
        let mut benches = self.benches.lock().unwrap_or_else(PoisonError::into_inner);
        benches.push(bench);
    }

    /// Adds the node of these rows and all below it; answers where it is.
    fn node(
        &self,
        task: &Task<'_, K>,
        place: Place<'_, K>,
        nodes: &mut Vec<CodeNode<K>>,
        bench: &mut Bench<K>,
    ) -> u32 {
        let here = nodes.len();
        let Place {
            seen,
            unseen,
            total,
            sums,
            depth,
            before,
        } = place;
        let value = total.answer(self.settings, before);
        let Some(split) = self.best(task, total, &sums) else {
            seen.answers.fill(value);
            unseen.answers.fill(value);
            nodes.push(CodeNode::Leaf(value));
            // The empty arrays at the lowest level would only be in the way.
            if !sums.is_empty() {
                bench.spare.push(sums);
            }
            return here as u32;
        };

        let codes = self.bins.codes(split.column);
        let (low_seen, high_seen) = seen.divide(codes, split.code, &mut bench.aside);
        let (low_unseen, high_unseen) = unseen.divide(codes, split.code, &mut bench.aside);
        let first = self.bins.column(split.column).sums().start;
        let mut low_total = Sum::default();
        for &sum in &sums[first..=first + usize::from(split.code)] {
            low_total.add(sum);
        }
        let (low_sums, high_sums) =
            self.divide_sums(task, sums, low_seen.rows, high_seen.rows, depth + 1, bench);
        let low = Place {
            seen: low_seen,
            unseen: low_unseen,
            total: low_total,
            sums: low_sums,
            depth: depth + 1,
            before: value,
        };
        let high = Place {
            seen: high_seen,
            unseen: high_unseen,
            total: total.minus(low_total),
            sums: high_sums,
            depth: depth + 1,
            before: value,
        };
        // Children come after their parents: its place first, what it is when that is known.
        nodes.push(CodeNode::Leaf([0.0; K]));
        let (low, high) = self.children(task, low, high, nodes, bench);
        nodes[here] = CodeNode::Split {
            column: split.column as u16,
            code: split.code,
            low,
            high,
        };
        here as u32
    }

    /// Both sides of a question, at the same time where that is worth it; answers where they are.
    fn children(
        &self,
        task: &Task<'_, K>,
        low: Place<'_, K>,
        high: Place<'_, K>,
        nodes: &mut Vec<CodeNode<K>>,
        bench: &mut Bench<K>,
    ) -> (u32, u32) {
        let smaller = low.seen.len().min(high.seen.len()) * task.features.len();
        // At the lowest level nothing is left to sum.
        if !self.crew.is_free_for(smaller) || low.depth == self.settings.depth {
            let low = self.node(task, low, nodes, bench);
            return (low, self.node(task, high, nodes, bench));
        }
        let aside = || {
            let mut bench = self.bench();
            let mut nodes = Vec::new();
            self.node(task, high, &mut nodes, &mut bench);
            self.put_back(bench);
            nodes
        };
        let here = || self.node(task, low, nodes, bench);
        let (above, low) = self.crew.both(smaller, aside, here);
        let offset = nodes.len() as u32;
        nodes.extend(above.into_iter().map(|node| match node {
            CodeNode::Split {
                column,
                code,
                low,
                high,
            } => CodeNode::Split {
                column,
                code,
                low: low + offset,
                high: high + offset,
            },
            leaf @ CodeNode::Leaf(_) => leaf,
        }));
        (low, offset)
    }

    #[inline]
    fn sum_of(&self, task: &Task<'_, K>, row: u32) -> Sum<K> {
        let (weights, left) = (&self.weights[row as usize], &task.left[row as usize]);
        let mut sum = Sum::default();
        for k in 0..K {
            sum.weight[k] = f64::from(weights[k]);
            sum.left[k] = sum.weight[k] * f64::from(left[k]);
        }
        sum
    }

    /// The sums of both sides, from those of all: the smaller side is summed, the other is what remains.
    fn divide_sums(
        &self,
        task: &Task<'_, K>,
        mut all: Vec<Sum<K>>,
        low: &[u32],
        high: &[u32],
        depth: usize,
        bench: &mut Bench<K>,
    ) -> (Vec<Sum<K>>, Vec<Sum<K>>) {
        if depth == self.settings.depth {
            // Their leaves need no sums per code: an empty array has no split in it.
            bench.spare.push(all);
            return (Vec::new(), Vec::new());
        }
        let low_is_smaller = low.len() <= high.len();
        let smaller = self.sums(task, if low_is_smaller { low } else { high }, bench);
        for &feature in task.features {
            let here = self.bins.column(feature as usize).sums();
            for (all, smaller) in all[here.clone()].iter_mut().zip(&smaller[here]) {
                *all = all.minus(*smaller);
            }
        }
        if low_is_smaller {
            (smaller, all)
        } else {
            (all, smaller)
        }
    }

    /// The sums of these rows, code by code.
    fn sums(&self, task: &Task<'_, K>, rows: &[u32], bench: &mut Bench<K>) -> Vec<Sum<K>> {
        let mut sums = bench.spare.pop().unwrap_or_default();
        sums.clear();
        sums.resize(self.bins.len(), Sum::default());
        self.add_up(task, rows, task.features, &mut sums, 0);
        sums
    }

    /// Adds up the rows for these features, half of them at a time where that is worth it; `sums` begin at `offset`.
    fn add_up(
        &self,
        task: &Task<'_, K>,
        rows: &[u32],
        features: &[u32],
        sums: &mut [Sum<K>],
        offset: usize,
    ) {
        let half = features.len() / 2;
        // Halves are more work than the whole: every row is looked up in both.
        if self.crew.is_free_for(half * rows.len()) {
            let (one, other) = features.split_at(half);
            let middle = self.bins.column(other[0] as usize).sums().start;
            let (one_sums, other_sums) = sums.split_at_mut(middle - offset);
            self.crew.both(
                half * rows.len(),
                || self.add_up(task, rows, one, one_sums, offset),
                || self.add_up(task, rows, other, other_sums, middle),
            );
            return;
        }
        let places = features.iter().map(|&feature| {
            let first = self.bins.column(feature as usize).sums().start - offset;
            (feature, first as u32)
        });
        let places: Vec<(u32, u32)> = places.collect();
        let mut ready = [Sum::default(); AT_A_TIME];
        for some in rows.chunks(AT_A_TIME) {
            self.bins.fetch(some);
            for (sum, &row) in ready.iter_mut().zip(some) {
                *sum = self.sum_of(task, row);
            }
            // Two rows at a time: where a feature has its sums is looked up once for both. The first is added first, as ever.
            let (pairs, rest) = some.as_chunks::<2>();
            for (&[sum_a, sum_b], &[a, b]) in ready.as_chunks::<2>().0.iter().zip(pairs) {
                let (codes_a, codes_b) = (self.bins.row(a as usize), self.bins.row(b as usize));
                for &(feature, first) in &places {
                    let (feature, first) = (feature as usize, first as usize);
                    sums[first + usize::from(codes_a[feature])].add(sum_a);
                    sums[first + usize::from(codes_b[feature])].add(sum_b);
                }
            }
            // At most one, the last.
            for (&row, &sum) in rest.iter().zip(&ready[some.len() - rest.len()..]) {
                let codes = self.bins.row(row as usize);
                for &(feature, first) in &places {
                    sums[first as usize + usize::from(codes[feature as usize])].add(sum);
                }
            }
        }
    }

    /// The question that removes most of the squared error; the first of equals.
    fn best(&self, task: &Task<'_, K>, total: Sum<K>, sums: &[Sum<K>]) -> Option<Split> {
        if sums.is_empty() {
            return None;
        }
        let (ridge, least) = (self.settings.ridge, self.least);
        let weight = total.total_weight();
        let without = total.removed(ridge);
        let mut best: Option<Split> = None;
        // Rounding alone must not look like a gain.
        let mut to_beat = 1e-9 * (without + weight * 1e-6);
        for &feature in task.features {
            let here = self.bins.column(feature as usize).sums();
            let mut low = Sum::default();
            // Nothing is above the last code.
            for (code, &sum) in sums[here.start..here.end - 1].iter().enumerate() {
                low.add(sum);
                // Without rows of this code the question is the one before.
                if sum.total_weight() == 0.0 {
                    continue;
                }
                let high = total.minus(low);
                let (low_weight, high_weight) = (low.total_weight(), high.total_weight());
                if low_weight < least || low_weight <= 0.0 {
                    continue;
                }
                if high_weight < least || high_weight <= 1e-9 * weight {
                    break;
                }
                let gain = low.removed(ridge) + high.removed(ridge) - without;
                if gain > to_beat {
                    to_beat = gain;
                    best = Some(Split {
                        column: feature as usize,
                        code: code as u8,
                        gain,
                    });
                }
            }
        }
        best.filter(|split| split.gain.is_finite())
    }

    /// The tree, speaking in features.
    fn in_features(&self, nodes: Vec<CodeNode<K>>) -> Tree<[f32; K]> {
        let nodes = nodes.into_iter().map(|node| match node {
            CodeNode::Leaf(value) => Node::Leaf { value },
            CodeNode::Split {
                column,
                code,
                low,
                high,
            } => {
                let column = self.bins.column(usize::from(column));
                Node::Split {
                    feature: column.feature,
                    threshold: column.threshold(code),
                    low,
                    high,
                }
            }
        });
        Tree::new(nodes.collect())
    }
}
