//! One tree, and the mean of many: the trees of [`boost`](crate::boost), grown for other ends.
//!
//! Both are an [`Ensemble`], so they are kept, checked and laid out flat like boosted trees. A leaf of a forest holds its
//! share of the mean.

use crate::boost::{Boosting, Ensemble, Follow};
use crate::regress::{FitError, Predict, Regressor};
use crate::table::Table;

/// Settings of a single tree: the one model whose answers can be read as questions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DecisionTree {
    /// Questions from root to leaf, 1 to 12.
    pub depth: usize,
    /// The least weight of rows in a leaf.
    pub leaf_weight: f64,
    /// The ranges a feature is cut into, 2 to 255.
    pub bins: usize,
}

impl Default for DecisionTree {
    /// As deep as can be, leaves of five rows.
    fn default() -> Self {
        Self {
            depth: 12,
            leaf_weight: 5.0,
            bins: 255,
        }
    }
}

impl DecisionTree {
    /// Grows the tree. Nothing is drawn: every seed gives the same.
    pub fn fit(&self, table: &Table, seed: u64) -> Result<Ensemble, FitError> {
        let alone = Boosting {
            trees: 1,
            depth: self.depth,
            shrinkage: 1.0,
            row_share: 1.0,
            feature_share: 1.0,
            bins: self.bins,
            leaf_weight: self.leaf_weight,
            ridge: 0.0,
        };
        alone.grow(table, seed, Follow::Targets)
    }
}

/// Settings of a forest: deep trees, each grown on its own sample of rows and features, whose mean is the answer.
///
/// Samples are drawn without replacement, 63 % of the rows: what a draw of as many as there are with replacement leaves
/// distinct. Features are drawn per tree, not per question.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forest {
    /// How many trees, 1 to 10 000.
    pub trees: usize,
    /// Questions from root to leaf, 1 to 12.
    pub depth: usize,
    /// The share of rows each tree sees, above 0 and up to 1.
    pub row_share: f64,
    /// The share of features each tree may ask about, above 0 and up to 1.
    pub feature_share: f64,
    /// The least weight of rows in a leaf.
    pub leaf_weight: f64,
    /// The ranges a feature is cut into, 2 to 255.
    pub bins: usize,
}

impl Default for Forest {
    /// 64 trees as deep as can be.
    fn default() -> Self {
        Self {
            trees: 64,
            depth: 12,
            row_share: 0.632,
            feature_share: 0.9,
            leaf_weight: 1.0,
            bins: 128,
        }
    }
}

impl Forest {
    /// Grows the trees. Same table, settings and seed: same trees.
    pub fn fit(&self, table: &Table, seed: u64) -> Result<Ensemble, FitError> {
        let bagged = Boosting {
            trees: self.trees,
            depth: self.depth,
            // Zero trees are refused further on; until then they are no division.
            shrinkage: 1.0 / self.trees.max(1) as f64,
            row_share: self.row_share,
            feature_share: self.feature_share,
            bins: self.bins,
            leaf_weight: self.leaf_weight,
            ridge: 0.0,
        };
        bagged.grow(table, seed, Follow::Targets)
    }
}

impl Regressor for DecisionTree {
    fn train(&self, table: &Table, seed: u64) -> Result<Box<dyn Predict>, FitError> {
        Ok(Box::new(self.fit(table, seed)?.flatten()))
    }
}

impl Regressor for Forest {
    fn train(&self, table: &Table, seed: u64) -> Result<Box<dyn Predict>, FitError> {
        Ok(Box::new(self.fit(table, seed)?.flatten()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps() -> Table {
        let mut table = Table::new(2);
        for i in 0..200 {
            let (x, y) = ((i % 20) as f32, (i / 20) as f32);
            table.push(&[x, y], (x / 5.0).floor() + 10.0 * y).unwrap();
        }
        table
    }

    #[test]
    fn a_tree_without_a_limit_in_its_way_repeats_what_it_saw() {
        let table = steps();
        let tree = DecisionTree::default().fit(&table, 1).unwrap();
        assert_eq!(tree.len(), 1);
        for (features, target, _) in table.rows() {
            assert!((tree.predict(features).unwrap() - target).abs() < 1e-4);
        }
    }

    #[test]
    fn a_forest_is_the_mean_of_trees_that_differ() {
        let table = steps();
        let forest = |trees| Forest {
            trees,
            ..Forest::default()
        };
        let many = forest(50).fit(&table, 1).unwrap();
        assert_eq!(many.len(), 50);
        assert_ne!(forest(1).fit(&table, 1), forest(1).fit(&table, 2));
        let error = |model: &Ensemble| crate::HeldOut::of(model, &table).unwrap().rms;
        assert!(error(&many) < error(&forest(1).fit(&table, 1).unwrap()));
        let none = forest(0).fit(&table, 1).unwrap_err();
        assert_eq!(none.to_string(), "trees is 0: give 1 to 10000");
    }
}
