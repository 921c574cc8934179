//! The model as trees: what is fitted, kept in files and read back.

use serde::{Deserialize, Serialize};

use super::flat::Flat;
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
    trees: Vec<Tree>,
}

/// A tree: its root is the first node, and children come after their parents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Tree {
    nodes: Vec<Node>,
}

/// A question or an answer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Node {
    /// Values up to the threshold go to `low`, those above to `high`. NaN is not above.
    Split {
        feature: u16,
        threshold: f32,
        low: u32,
        high: u32,
    },
    Leaf {
        value: f32,
    },
}

/// No ensemble has more trees: in flat form they all take as much room as the deepest.
pub(super) const MOST_TREES: usize = 10_000;

/// An ensemble as a file says it is.
#[derive(Deserialize)]
struct Unchecked {
    width: usize,
    base: f32,
    trees: Vec<Tree>,
}

/// A model file whose parts do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a model: {0}; fit it again from the records")]
pub struct InvalidEnsemble(String);

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
            tree.check(width)
                .map_err(|fault| InvalidEnsemble(format!("tree {index} {fault}")))?;
            largest += tree.largest();
        }
        if largest >= f32::MAX.into() {
            return Err(InvalidEnsemble("its trees add up to no number".to_owned()));
        }
        Ok(Self { width, base, trees })
    }
}

impl Ensemble {
    pub(super) fn new(width: usize, base: f32, trees: Vec<Tree>) -> Self {
        Self { width, base, trees }
    }

    /// The answer for a row. A feature that is NaN counts as the lowest value.
    pub fn predict(&self, features: &[f32]) -> Result<f32, WidthMismatch> {
        WidthMismatch::check(self.width, features)?;
        let answers = self.trees.iter().map(|tree| tree.at(features));
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
        self.trees.iter().map(Tree::depth).max().unwrap_or(0)
    }

    pub(super) fn base(&self) -> f32 {
        self.base
    }

    pub(super) fn trees(&self) -> &[Tree] {
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

impl Tree {
    pub(super) fn new(nodes: Vec<Node>) -> Self {
        Self { nodes }
    }

    pub(super) fn node(&self, index: u32) -> Node {
        self.nodes[index as usize]
    }

    fn at(&self, features: &[f32]) -> f32 {
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
                    let above = features[usize::from(feature)] > threshold;
                    index = if above { high } else { low };
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
    fn largest(&self) -> f64 {
        let values = self.nodes.iter().map(|node| match *node {
            Node::Leaf { value } => f64::from(value.abs()),
            Node::Split { .. } => 0.0,
        });
        values.fold(0.0, f64::max)
    }

    /// What a descent relies on: it ends, and everything it reads is there.
    fn check(&self, width: usize) -> Result<(), String> {
        if self.nodes.is_empty() {
            return Err("has no nodes".to_owned());
        }
        for (index, node) in self.nodes.iter().enumerate() {
            match *node {
                Node::Leaf { value } if !value.is_finite() => {
                    return Err(format!("answers {value}"));
                }
                Node::Split { feature, .. } if usize::from(feature) >= width => {
                    return Err(format!("asks for feature {feature} of {width}"));
                }
                Node::Split { low, high, .. } => {
                    let after = index + 1..self.nodes.len();
                    if !after.contains(&(low as usize)) || !after.contains(&(high as usize)) {
                        return Err(format!("leads from node {index} to {low} and {high}"));
                    }
                }
                Node::Leaf { .. } => {}
            }
        }
        if self.depth() > Flat::DEEPEST {
            return Err(format!("is {} questions deep", self.depth()));
        }
        Ok(())
    }
}
