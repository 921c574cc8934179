//! The model laid out for the call path.
//!
//! Every tree is blown up to a complete one of the same depth, so that the children of node i are 2i and
//! 2i + 1 and every descent takes the same number of steps: nothing to predict for the processor, nothing to
//! allocate. Several trees are descended side by side, because one descent is a chain of loads that wait for
//! each other and the processor has room for more; the nodes at the same place of these trees are neighbours, which also
//! keeps their roots from displacing each other in the cache, as they would at distances of a power of two.
//!
//! A leaf answers for every candidate of a choice, or for the only one there is. The way down is what takes the time, so
//! candidates that go it together share it. Answers are added in the order of the trees, hence equal to
//! those of the [`Ensemble`] or the [`Joint`](super::Joint) bit for bit.

use super::tree::{Ensemble, Node, Tree, deepest};
use crate::regress::Predict;
use crate::table::WidthMismatch;

/// Trees descended side by side.
const LANES: usize = 8;
/// No tree is deeper: a complete tree doubles with each level.
pub(super) const DEEPEST: usize = 12;

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

/// Complete trees whose leaves answer for `K` candidates.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Paths<const K: usize> {
    depth: usize,
    base: [f32; K],
    /// Per group of trees 2^depth questions to each, of which number 0 is unused.
    questions: Vec<[Question; LANES]>,
    /// Per group of trees 2^depth answers of each.
    leaves: Vec<[[f32; K]; LANES]>,
}

impl<const K: usize> Paths<K> {
    pub(super) fn new<V>(
        base: [f32; K],
        trees: &[Tree<V>],
        answer: impl Fn(&V) -> [f32; K],
    ) -> Self {
        let depth = deepest(trees);
        let groups = trees.len().div_ceil(LANES);
        let mut questions = vec![[FILLING; LANES]; groups << depth];
        // Trees that fill up the last group say nothing; minus zero changes no sum, not even that of zeros.
        let mut leaves = vec![[[-0.0; K]; LANES]; groups << depth];
        let places = questions
            .chunks_exact_mut(1 << depth)
            .zip(leaves.chunks_exact_mut(1 << depth));
        for (trees, (questions, leaves)) in trees.chunks(LANES).zip(places) {
            for (lane, tree) in trees.iter().enumerate() {
                let copy = Copy {
                    tree,
                    lane,
                    answer: &answer,
                };
                copy.fill(0, 1, questions, leaves);
            }
        }
        Self {
            depth,
            base,
            questions,
            leaves,
        }
    }

    /// The answers for a row as wide as those it was fitted to.
    #[inline]
    pub(super) fn answers(&self, features: &[f32]) -> [f32; K] {
        let size = 1 << self.depth;
        let groups = self
            .questions
            .chunks_exact(size)
            .zip(self.leaves.chunks_exact(size));
        let mut sums = self.base;
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
                let answers = &leaves[at - size][lane];
                for (sum, answer) in sums.iter_mut().zip(answers) {
                    *sum += answer;
                }
            }
        }
        sums
    }
}

/// A tree on its way to a lane of complete ones.
struct Copy<'a, V, A> {
    tree: &'a Tree<V>,
    lane: usize,
    answer: &'a A,
}

impl<V, A> Copy<'_, V, A> {
    /// Copies what is below `node` to `place`.
    fn fill<const K: usize>(
        &self,
        node: u32,
        place: usize,
        questions: &mut [[Question; LANES]],
        leaves: &mut [[[f32; K]; LANES]],
    ) where
        A: Fn(&V) -> [f32; K],
    {
        let (low, high) = match self.tree.node(node) {
            Node::Leaf { value } if place >= leaves.len() => {
                leaves[place - leaves.len()][self.lane] = (self.answer)(value);
                return;
            }
            // What lies above is never asked for; it repeats the answer all the same.
            Node::Leaf { .. } => (node, node),
            // No tree goes deeper than the deepest.
            Node::Split { .. } if place >= leaves.len() => return,
            Node::Split {
                feature,
                threshold,
                low,
                high,
            } => {
                questions[place][self.lane] = Question {
                    threshold: *threshold,
                    feature: u32::from(*feature),
                };
                (*low, *high)
            }
        };
        self.fill(low, 2 * place, questions, leaves);
        self.fill(high, 2 * place + 1, questions, leaves);
    }
}

/// A fitted model for the call path: the same answers as its [`Ensemble`], in a fixed number of steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Flat {
    width: usize,
    paths: Paths<1>,
}

impl Flat {
    pub(super) fn new(ensemble: &Ensemble) -> Self {
        Self {
            width: ensemble.width(),
            paths: Paths::new([ensemble.base()], ensemble.trees(), |value| [*value]),
        }
    }

    /// The answer for a row. A feature that is NaN counts as the lowest value.
    #[inline]
    pub fn predict(&self, features: &[f32]) -> Result<f32, WidthMismatch> {
        WidthMismatch::check(self.width, features)?;
        let [answer] = self.paths.answers(features);
        Ok(answer)
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
