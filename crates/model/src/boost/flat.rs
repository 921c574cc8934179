//! The model laid out for the call path.
//!
//! Every tree is blown up to a complete one of the same depth, so that the children of node i are 2i and
//! 2i + 1 and every descent takes the same number of steps: nothing to predict for the processor, nothing to
//! allocate. Several trees are descended side by side, because one descent is a chain of loads that wait for
//! each other and the processor has room for more; the nodes at the same place of these trees are neighbours. Answers are added in the order of the trees, hence equal to
//! those of the [`Ensemble`] bit for bit.

use super::tree::{Ensemble, Node, Tree};
use crate::regress::Predict;
use crate::table::WidthMismatch;

/// Trees descended side by side.
const LANES: usize = 8;

/// A question of a complete tree.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Question {
    threshold: f32,
    feature: u32,
}

/// Always answered with "not above": fills up where a tree is less deep.
const FILLING: Question = Question {
    threshold: f32::INFINITY,
    feature: 0,
};

/// A fitted model for the call path: the same answers as its [`Ensemble`], in a fixed number of steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Flat {
    width: usize,
    depth: usize,
    base: f32,
    /// Per group of trees 2^depth questions to each, of which number 0 is unused.
    questions: Vec<[Question; LANES]>,
    /// Per group of trees 2^depth values of each.
    leaves: Vec<[f32; LANES]>,
}

impl Flat {
    /// No tree is deeper: a complete tree doubles with each level.
    pub(super) const DEEPEST: usize = 12;

    pub(super) fn new(ensemble: &Ensemble) -> Self {
        let depth = ensemble.depth();
        let groups = ensemble.trees().len().div_ceil(LANES);
        let mut questions = vec![[FILLING; LANES]; groups << depth];
        // Trees that fill up the last group say nothing; minus zero changes no sum, not even that of zeros.
        let mut leaves = vec![[-0.0; LANES]; groups << depth];
        let places = questions
            .chunks_exact_mut(1 << depth)
            .zip(leaves.chunks_exact_mut(1 << depth));
        for (trees, (questions, leaves)) in ensemble.trees().chunks(LANES).zip(places) {
            for (lane, tree) in trees.iter().enumerate() {
                fill(tree, lane, 0, 1, questions, leaves);
            }
        }
        Self {
            width: ensemble.width(),
            depth,
            base: ensemble.base(),
            questions,
            leaves,
        }
    }

    /// The answer for a row. A feature that is NaN counts as the lowest value.
    #[inline]
    pub fn predict(&self, features: &[f32]) -> Result<f32, WidthMismatch> {
        WidthMismatch::check(self.width, features)?;
        let size = 1 << self.depth;
        let groups = self
            .questions
            .chunks_exact(size)
            .zip(self.leaves.chunks_exact(size));
        let mut sum = self.base;
        for (questions, leaves) in groups {
            let mut at = [1_usize; LANES];
            for _ in 0..self.depth {
                for (lane, at) in at.iter_mut().enumerate() {
                    let question = questions[*at][lane];
                    let above = features[question.feature as usize] > question.threshold;
                    *at = 2 * *at + usize::from(above);
                }
            }
            for (lane, at) in at.into_iter().enumerate() {
                sum += leaves[at - size][lane];
            }
        }
        Ok(sum)
    }

    /// How many features a row has.
    pub fn width(&self) -> usize {
        self.width
    }
}

impl Predict for Flat {
    fn predict(&self, features: &[f32]) -> Result<f32, WidthMismatch> {
        self.predict(features)
    }

    fn width(&self) -> usize {
        self.width
    }
}

/// Copies what is below `node` of a tree to `place` of a complete one in its lane.
fn fill(
    tree: &Tree,
    lane: usize,
    node: u32,
    place: usize,
    questions: &mut [[Question; LANES]],
    leaves: &mut [[f32; LANES]],
) {
    let split = tree.node(node);
    if place >= leaves.len() {
        if let Node::Leaf { value } = split {
            leaves[place - leaves.len()][lane] = value;
        }
        return;
    }
    let (low, high) = match split {
        // What lies above is never asked for; it repeats the answer all the same.
        Node::Leaf { .. } => (node, node),
        Node::Split {
            feature,
            threshold,
            low,
            high,
        } => {
            questions[place][lane] = Question {
                threshold,
                feature: u32::from(feature),
            };
            (low, high)
        }
    };
    fill(tree, lane, low, 2 * place, questions, leaves);
    fill(tree, lane, high, 2 * place + 1, questions, leaves);
}
