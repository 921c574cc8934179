//! The model as trees: what is fitted, kept in files and read back.

use serde::{Deserialize, Serialize};

use super::flat::{DEEPEST, Flat};
use crate::regress::Predict;
use crate::table::WidthMismatch;

/// A fitted model: a base value and trees whose answers are added to it.
///
/// It can be written with `serde` and read back; what does not hold together is refused there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Ensemble {
    width: usize,
    base: f32,
    trees: Vec<Tree<f32>>,
}

/// A tree: its root is the first node, and children come after their parents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Tree<V> {
    nodes: Vec<Node<V>>,
}

/// A question or an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Node<V> {
    /// Values up to the threshold go to `low`, those above to `high`. NaN is not above.
    Split {
        feature: u16,
        threshold: f32,
        low: u32,
        high: u32,
    },
    Leaf {
        value: V,
    },
}

/// No ensemble has more trees: in flat form they all take as much room as the deepest.
pub(super) const MOST_TREES: usize = 10_000;

/// An ensemble as a file says it is.
#[derive(Deserialize)]
struct Unchecked {
    width: usize,
    base: f32,
    trees: Vec<Tree<f32>>,
}

/// A model file whose parts do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a model: {0}; fit it again from the records")]
pub struct InvalidEnsemble(pub(super) String);

impl TryFrom<Unchecked> for Ensemble {
    type Error = InvalidEnsemble;

    fn try_from(file: Unchecked) -> Result<Self, InvalidEnsemble> {
        let Unchecked { width, base, trees } = file;
        if !base.is_finite() {
            return Err(InvalidEnsemble(format!("its base is {base}")));
        }
        if trees.len() > MOST_TREES {
            return Err(InvalidEnsemble(format!("it has {} trees", trees.len())));
        }
        let mut largest = f64::from(base.abs());
        for (index, tree) in trees.iter().enumerate() {
            tree.check(width, |value| value.is_finite())
                .map_err(|fault| InvalidEnsemble(format!("tree {index} {fault}")))?;
            largest += tree.largest(|value| value.abs());
        }
        if largest >= f32::MAX.into() {
            return Err(InvalidEnsemble("its trees add up to no number".to_owned()));
        }
        Ok(Self { width, base, trees })
    }
}

impl Ensemble {
    pub(super) fn new(width: usize, base: f32, trees: Vec<Tree<f32>>) -> Self {
        Self { width, base, trees }
    }

    /// The answer for a row. A feature that is NaN counts as the lowest value.
    pub fn predict(&self, features: &[f32]) -> Result<f32, WidthMismatch> {
        WidthMismatch::check(self.width, features)?;
        let answers = self.trees.iter().map(|tree| *tree.at(features));
        Ok(answers.fold(self.base, |sum, answer| sum + answer))
    }

    /// The same model, laid out for the call path.
    pub fn flatten(&self) -> Flat {
        Flat::new(self)
    }

    /// How many features a row has.
    pub fn width(&self) -> usize {
        self.width
    }

    /// How many trees there are; none if the features explain nothing.
    pub fn len(&self) -> usize {
        self.trees.len()
    }

    /// Whether the model is its base value only.
    pub fn is_empty(&self) -> bool {
        self.trees.is_empty()
    }

    /// The most questions from a root to a leaf.
    pub fn depth(&self) -> usize {
        deepest(&self.trees)
    }

    pub(super) fn base(&self) -> f32 {
        self.base
    }

    pub(super) fn trees(&self) -> &[Tree<f32>] {
        &self.trees
    }
}

impl Predict for Ensemble {
    fn predict(&self, features: &[f32]) -> Result<f32, WidthMismatch> {
        self.predict(features)
    }

    fn width(&self) -> usize {
        self.width
    }
}

/// The most questions from a root to a leaf.
pub(super) fn deepest<V>(trees: &[Tree<V>]) -> usize {
    trees.iter().map(Tree::depth).max().unwrap_or(0)
}

impl<V> Tree<V> {
    pub(super) fn new(nodes: Vec<Node<V>>) -> Self {
        Self { nodes }
    }

    pub(super) fn node(&self, index: u32) -> &Node<V> {
        &self.nodes[index as usize]
    }

    /// The same questions with answers of another form.
    pub(super) fn map<W>(self, form: impl Fn(V) -> W) -> Tree<W> {
        let nodes = self.nodes.into_iter().map(|node| match node {
            Node::Leaf { value } => Node::Leaf { value: form(value) },
            Node::Split {
                feature,
                threshold,
                low,
                high,
            } => Node::Split {
                feature,
                threshold,
                low,
                high,
            },
        });
        Tree::new(nodes.collect())
    }

    pub(super) fn at(&self, features: &[f32]) -> &V {
        let mut index = 0;
        loop {
            match self.node(index) {
                Node::Leaf { value } => return value,
                Node::Split {
                    feature,
                    threshold,
                    low,
                    high,
                } => {
                    let above = features[usize::from(*feature)] > *threshold;
                    index = if above { *high } else { *low };
                }
            }
        }
    }

    fn depth(&self) -> usize {
        // Children come after their parents: one pass over the nodes sees every parent first.
        let mut depths = vec![0; self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            if let Node::Split { low, high, .. } = *node {
                depths[low as usize] = depths[index] + 1;
                depths[high as usize] = depths[index] + 1;
            }
        }
        depths.into_iter().max().unwrap_or(0)
    }

    /// The farthest from 0 it can answer.
    pub(super) fn largest(&self, size: impl Fn(&V) -> f32) -> f64 {
        let values = self.nodes.iter().map(|node| match node {
            Node::Leaf { value } => f64::from(size(value)),
            Node::Split { .. } => 0.0,
        });
        values.fold(0.0, f64::max)
    }

    /// What a descent relies on: it ends, and everything it reads is there.
    pub(super) fn check(&self, width: usize, sound: impl Fn(&V) -> bool) -> Result<(), String> {
        if self.nodes.is_empty() {
            return Err("has no nodes".to_owned());
        }
        for (index, node) in self.nodes.iter().enumerate() {
            match node {
                Node::Leaf { value } if !sound(value) => {
                    return Err(format!("has no answer at node {index}"));
                }
                Node::Split { feature, .. } if usize::from(*feature) >= width => {
                    return Err(format!("asks for feature {feature} of {width}"));
                }
                Node::Split { low, high, .. } => {
                    let after = index + 1..self.nodes.len();
                    if !after.contains(&(*low as usize)) || !after.contains(&(*high as usize)) {
                        return Err(format!("leads from node {index} to {low} and {high}"));
                    }
                }
                Node::Leaf { .. } => {}
            }
        }
        if self.depth() > DEEPEST {
            return Err(format!("is {} questions deep", self.depth()));
        }
        Ok(())
    }
}
