//! One tree, grown on codes.

use super::Boosting;
use super::bins::Bins;
use super::tree::{Node, Tree};

/// The rows of a node that share a code: their number by weight, and the sum of what is left to explain.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    weight: f64,
    left: f64,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.weight += other.weight;
        self.left += other.left;
    }

    fn minus(self, other: Self) -> Self {
        Self {
            weight: self.weight - other.weight,
            left: self.left - other.left,
        }
    }

    /// How much of the squared error a leaf with these rows would remove.
    fn removed(self, ridge: f64) -> f64 {
        self.left * self.left / (self.weight + ridge)
    }
}

/// A question and what it is worth.
#[derive(Debug, Clone, Copy)]
struct Split {
    /// Index of the column.
    column: usize,
    /// The last code that goes left.
    code: u16,
    gain: f64,
}

/// A node of a tree that still speaks in codes.
#[derive(Debug)]
enum CodeNode {
    Split {
        column: u16,
        code: u16,
        low: u32,
        high: u32,
    },
    Leaf(f32),
}

/// A tree that still speaks in codes. The root is node 0, children come after their parents.
#[derive(Debug)]
pub(super) struct CodeTree(Vec<CodeNode>);

impl CodeTree {
    /// The value for a row of codes.
    #[inline]
    pub(super) fn at(&self, row: &[u16]) -> f32 {
        let mut node = 0;
        loop {
            match self.0[node] {
                CodeNode::Leaf(value) => return value,
                CodeNode::Split {
                    column,
                    code,
                    low,
                    high,
                } => {
                    let above = row[usize::from(column)] > code;
                    node = if above { high } else { low } as usize;
                }
            }
        }
    }

    /// The same tree, speaking in features.
    pub(super) fn into_tree(self, bins: &Bins) -> Tree {
        let nodes = self.0.into_iter().map(|node| match node {
            CodeNode::Leaf(value) => Node::Leaf { value },
            CodeNode::Split {
                column,
                code,
                low,
                high,
            } => {
                let column = bins.column(usize::from(column));
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

/// Grows trees; keeps its buffers from one to the next.
#[derive(Debug)]
pub(super) struct Grower<'a> {
    bins: &'a Bins,
    weights: &'a [f32],
    settings: &'a Boosting,
    /// Arrays of sums that are not in use.
    spare: Vec<Vec<Sum>>,
    aside: Vec<u32>,
    /// What the last tree says of the rows it was grown on.
    answers: Vec<f32>,
}

/// What is the same for all nodes of a tree.
struct Task<'a> {
    left: &'a [f32],
    features: &'a [u32],
}

impl<'a> Grower<'a> {
    pub(super) fn new(bins: &'a Bins, weights: &'a [f32], settings: &'a Boosting) -> Self {
        Self {
            bins,
            weights,
            settings,
            spare: Vec::new(),
            aside: Vec::new(),
            answers: vec![0.0; weights.len()],
        }
    }

    /// Fits a tree to what is left of the targets in these rows, asking about these features only.
    pub(super) fn grow(&mut self, left: &[f32], mut rows: Vec<u32>, features: &[u32]) -> CodeTree {
        let task = Task { left, features };
        let mut nodes = Vec::new();
        let sums = self.sums(&task, &rows);
        let mut total = Sum::default();
        for &row in &rows {
            total.add(self.sum_of(&task, row));
        }
        self.node(&task, &mut rows, total, sums, 0, &mut nodes);
        CodeTree(nodes)
    }

    /// What the last tree says of a row it was grown on.
    pub(super) fn answer(&self, row: usize) -> f32 {
        self.answers[row]
    }

    /// Adds the node of these rows and all below it; answers where it is.
    fn node(
        &mut self,
        task: &Task<'_>,
        rows: &mut [u32],
        total: Sum,
        mut sums: Vec<Sum>,
        depth: usize,
        nodes: &mut Vec<CodeNode>,
    ) -> u32 {
        let here = nodes.len();
        let weight = total.weight + self.settings.ridge;
        let value = if weight > 0.0 {
            self.settings.shrinkage * total.left / weight
        } else {
            0.0
        };
        nodes.push(CodeNode::Leaf(value as f32));
        let Some(split) = self.best(task, total, &sums) else {
            for &row in rows.iter() {
                self.answers[row as usize] = value as f32;
            }
            // The empty arrays at the lowest level would only be in the way.
            if !sums.is_empty() {
                self.spare.push(sums);
            }
            return here as u32;
        };

        let column = self.bins.column(split.column);
        let mut low_total = Sum::default();
        for &sum in &sums[column.codes().start..=usize::from(split.code)] {
            low_total.add(sum);
        }
        let high_total = total.minus(low_total);
        let middle = self.partition(rows, split);
        let (low_rows, high_rows) = rows.split_at_mut(middle);

        let depth = depth + 1;
        let (low, high);
        if depth == self.settings.depth {
            // Their leaves need no sums per code: an empty array has no split in it.
            low = self.node(task, low_rows, low_total, Vec::new(), depth, nodes);
            high = self.node(task, high_rows, high_total, Vec::new(), depth, nodes);
            self.spare.push(sums);
        } else {
            let low_is_smaller = low_rows.len() <= high_rows.len();
            let smaller = if low_is_smaller {
                self.sums(task, low_rows)
            } else {
                self.sums(task, high_rows)
            };
            for &feature in task.features {
                for code in self.bins.column(feature as usize).codes() {
                    sums[code] = sums[code].minus(smaller[code]);
                }
            }
            let (low_sums, high_sums) = if low_is_smaller {
                (smaller, sums)
            } else {
                (sums, smaller)
            };
            low = self.node(task, low_rows, low_total, low_sums, depth, nodes);
            high = self.node(task, high_rows, high_total, high_sums, depth, nodes);
        }
        nodes[here] = CodeNode::Split {
            column: split.column as u16,
            code: split.code,
            low,
            high,
        };
        here as u32
    }

    #[inline]
    fn sum_of(&self, task: &Task<'_>, row: u32) -> Sum {
        let weight = f64::from(self.weights[row as usize]);
        Sum {
            weight,
            left: weight * f64::from(task.left[row as usize]),
        }
    }

    /// The sums of these rows, code by code.
    fn sums(&mut self, task: &Task<'_>, rows: &[u32]) -> Vec<Sum> {
        let mut sums = self.spare.pop().unwrap_or_default();
        sums.clear();
        sums.resize(self.bins.len(), Sum::default());
        let all = task.features.len() == self.bins.width();
        for &row in rows {
            let sum = self.sum_of(task, row);
            let codes = self.bins.row(row as usize);
            if all {
                for &code in codes {
                    sums[usize::from(code)].add(sum);
                }
            } else {
                for &feature in task.features {
                    sums[usize::from(codes[feature as usize])].add(sum);
                }
            }
        }
        sums
    }

    /// The question that removes most of the squared error; the first of equals.
    fn best(&self, task: &Task<'_>, total: Sum, sums: &[Sum]) -> Option<Split> {
        if sums.is_empty() {
            return None;
        }
        let (ridge, least) = (self.settings.ridge, self.settings.leaf_weight);
        let without = total.removed(ridge);
        let mut best: Option<Split> = None;
        // Rounding alone must not look like a gain.
        let mut to_beat = 1e-9 * (without + total.weight * 1e-6);
        for &feature in task.features {
            let codes = self.bins.column(feature as usize).codes();
            let mut low = Sum::default();
            // Nothing is above the last code.
            for (code, &sum) in codes.clone().zip(&sums[codes.start..codes.end - 1]) {
                low.add(sum);
                // Without rows of this code the question is the one before.
                if sum.weight == 0.0 {
                    continue;
                }
                let high = total.minus(low);
                if low.weight < least || low.weight <= 0.0 {
                    continue;
                }
                if high.weight < least || high.weight <= 1e-9 * total.weight {
                    break;
                }
                let gain = low.removed(ridge) + high.removed(ridge) - without;
                if gain > to_beat {
                    to_beat = gain;
                    best = Some(Split {
                        column: feature as usize,
                        code: code as u16,
                        gain,
                    });
                }
            }
        }
        best.filter(|split| split.gain.is_finite())
    }

    /// Puts the rows that go left first, both parts in their old order; answers where the second begins.
    fn partition(&mut self, rows: &mut [u32], split: Split) -> usize {
        self.aside.resize(rows.len(), 0);
        let codes = self.bins.codes(split.column);
        let (mut kept, mut moved) = (0, 0);
        for index in 0..rows.len() {
            let row = rows[index];
            // Written to both places, one of which moves on: which one is a coin toss to the processor, and no branch.
            let above = codes[row as usize] > split.code;
            rows[kept] = row;
            self.aside[moved] = row;
            kept += usize::from(!above);
            moved += usize::from(above);
        }
        rows[kept..].copy_from_slice(&self.aside[..moved]);
        kept
    }
}
