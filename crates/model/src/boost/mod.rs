//! Gradient-boosted regression trees: many small trees, each fitted to what the ones before left over.
//!
//! What is decided here, in order, and why:
//!
//! 1. **Squared error.** Targets are logarithms of times, where spikes have already shrunk, and the mean of a
//!    leaf is then its best value: no line search, no second derivatives.
//! 2. **Bins.** Every feature is cut once into at most [`Boosting::bins`] ranges at its quantiles, so that a
//!    node looks at sums per range instead of sorted rows. A feature of fewer values keeps all of them.
//! 3. **Level limit instead of leaf limit.** A tree has at most [`Boosting::depth`] questions from root to
//!    leaf, so that its [flat form](Flat) is a complete tree whose descent always takes as many steps.
//! 4. **Small steps, part of the rows, part of the features.** Each tree is shrunk, and sees a sample drawn
//!    by the seed; both keep the sum of trees from following the noise.
//! 5. **The larger child is a subtraction.** Only the smaller child of a split is summed row by row; the
//!    other is parent minus sibling.
//! 6. **Threads for large tables only**: different features, or different sides of a question. 100 000 rows of 25
//!    features take the [thorough](Boosting::thorough) settings 2.4 s on one core of an EPYC 7003, and 2.0 s on two of which
//!    one was shared.
//!
//! Sums are in `f64` and taken in the order of the rows, whoever takes them, so the same table, settings and seed give
//! the same trees everywhere, on any number of threads.

mod bins;
mod crew;
mod flat;
mod grow;
mod joint;
mod tree;

#[cfg(test)]
mod tests;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::regress::{FitError, Predict, Regressor, check_settings, not_negative, share, whole};
#[cfg(test)]
use crate::table::WidthMismatch;
use crate::table::{Rows, Table};

use bins::Bins;
use crew::Crew;
use grow::{Grower, Part};
use tree::{MOST_TREES, Tree};

pub use flat::Flat;
pub use joint::{FlatJoint, Joint};
pub use tree::{Ensemble, InvalidEnsemble};

/// The settings of a fit.
///
/// The defaults are sized for the call path: 32 trees of depth 10 are 320 steps, which all candidates of a choice share if they
/// are [fitted together](Boosting::fit_joint). At equal steps, few deep trees were seen to choose better than many shallow ones:
/// on recorded times of convolutions (MIOpen's find-db of gfx906) 40 trees of depth 8 choose 4.7 % behind the best.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Boosting {
    /// How many trees, 1 to 10 000.
    pub trees: usize,
    /// Questions from root to leaf, 1 to 12. A tree of depth d can express interactions of d features.
    pub depth: usize,
    /// The part of its fit that each tree may add, above 0 and up to 1. With few trees it has to be large.
    pub shrinkage: f64,
    /// The share of rows each tree sees, above 0 and up to 1.
    pub row_share: f64,
    /// The share of features each tree may ask about, above 0 and up to 1; at least one.
    pub feature_share: f64,
    /// The ranges a feature is cut into, 2 to 255.
    pub bins: usize,
    /// The least weight of rows in a leaf. Small leaves follow single measurements.
    pub leaf_weight: f64,
    /// Pulls the value of each leaf towards zero as if so many rows of zero were in it; where several candidates share trees, towards
    /// what its parent would answer. What a question is worth is reckoned towards zero either way.
    pub ridge: f64,
}

impl Default for Boosting {
    fn default() -> Self {
        Self {
            trees: 32,
            depth: 10,
            shrinkage: 0.2,
            row_share: 0.8,
            feature_share: 0.8,
            bins: 64,
            leaf_weight: 3.0,
            ridge: 0.5,
        }
    }
}

impl Boosting {
    /// What is worth it where a single answer may take some microseconds: 300 trees of depth 8, 0.1 of each.
    pub fn thorough() -> Self {
        Self {
            trees: 300,
            depth: 8,
            shrinkage: 0.1,
            ..Self::default()
        }
    }

    /// Threads that a fit to a table of so many rows and features may use on this machine.
    pub fn threads(rows: usize, width: usize) -> usize {
        Crew::for_work(rows.saturating_mul(width)).threads()
    }

    /// Grows the trees. Same table, settings and seed: same trees.
    pub fn fit(&self, table: &Table, seed: u64) -> Result<Ensemble, FitError> {
        self.grow(table, seed, Follow::Remainder)
    }

    pub(crate) fn grow(
        &self,
        table: &Table,
        seed: u64,
        follow: Follow,
    ) -> Result<Ensemble, FitError> {
        let crew = self.crew(table.features())?;
        Ok(self.grow_single(&crew, table, seed, follow))
    }

    /// The same, of settings and a table that are in range.
    fn grow_single(&self, crew: &Crew, table: &Table, seed: u64, follow: Follow) -> Ensemble {
        let (targets, _) = table.targets().as_chunks::<1>();
        let (weights, _) = table.weights().as_chunks::<1>();
        let ([base], trees) =
            self.grow_with(crew, table.features(), targets, weights, seed, follow);
        let trees = trees.into_iter().map(|tree| tree.map(|[value]| value));
        Ensemble::new(table.width(), base, trees.collect())
    }

    /// The crew for a fit to these rows, if they and the settings are in range.
    fn crew(&self, rows: Rows<'_>) -> Result<Crew, FitError> {
        self.check()?;
        if rows.len() == 0 {
            return Err(FitError::Empty);
        }
        let (rows, width) = (rows.len(), rows.width());
        let codes = width.saturating_mul(self.bins);
        if rows > u32::MAX as usize || codes > usize::from(u16::MAX) {
            return Err(FitError::TooLarge { rows, width });
        }
        Ok(Crew::for_work(rows.saturating_mul(width)))
    }

    /// Grows trees that give `K` answers, of settings and rows that are in range; the crew changes nothing but the time it
    /// takes. Answers the base values and the trees.
    fn grow_with<const K: usize>(
        &self,
        crew: &Crew,
        features: Rows<'_>,
        targets: &[[f32; K]],
        weights: &[[f32; K]],
        seed: u64,
        follow: Follow,
    ) -> ([f32; K], Vec<Tree<[f32; K]>>) {
        let rows = features.len();
        let base = mean(targets, weights);
        let mut left: Vec<[f32; K]> = targets.to_vec();
        for left in &mut left {
            for (left, base) in left.iter_mut().zip(base) {
                *left -= base;
            }
        }
        let bins = Bins::new(features, self.bins);
        let grower = Grower::new(&bins, weights, self, crew);
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut answers = vec![[0.0; K]; rows];
        let mut trees = Vec::new();
        // A tree without a question cannot be followed by one: nothing is left that a feature explains.
        for _ in 0..if bins.width() == 0 { 0 } else { self.trees } {
            let mut seen = draw(&mut rng, rows, self.row_share);
            let features = draw(&mut rng, bins.width(), self.feature_share);
            let mut unseen = match follow {
                Follow::Remainder => others(&seen, rows),
                Follow::Targets => Vec::new(),
            };
            let (seen_answers, unseen_answers) = answers.split_at_mut(seen.len());
            let seen_part = Part {
                rows: &mut seen,
                answers: seen_answers,
            };
            let unseen_part = Part {
                answers: &mut unseen_answers[..unseen.len()],
                rows: &mut unseen,
            };
            trees.push(grower.grow(&left, &features, seen_part, unseen_part));
            if follow == Follow::Remainder {
                for (&row, answers) in seen.iter().chain(&unseen).zip(&answers) {
                    for (left, answer) in left[row as usize].iter_mut().zip(answers) {
                        *left -= answer;
                    }
                }
            }
        }
        (base, trees)
    }

    fn check(&self) -> Result<(), FitError> {
        check_settings(&[
            whole("trees", self.trees, 1..=MOST_TREES, "1 to 10000"),
            whole("depth", self.depth, 1..=12, "1 to 12"),
            whole("bins", self.bins, 2..=255, "2 to 255"),
            share("shrinkage", self.shrinkage),
            share("row_share", self.row_share),
            share("feature_share", self.feature_share),
            not_negative("leaf_weight", self.leaf_weight),
            not_negative("ridge", self.ridge),
        ])
    }
}

/// What the trees after the first are fitted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follow {
    /// What the ones before left over: boosting.
    Remainder,
    /// The targets, like the first: their mean counts.
    Targets,
}

impl Regressor for Boosting {
    fn train(&self, table: &Table, seed: u64) -> Result<Box<dyn Predict>, FitError> {
        Ok(Box::new(self.fit(table, seed)?.flatten()))
    }

    fn joint(&self) -> Option<Boosting> {
        Some(*self)
    }
}

/// The weighted means of the targets: the best answers without a question; 0 where there is no target.
fn mean<const K: usize>(targets: &[[f32; K]], weights: &[[f32; K]]) -> [f32; K] {
    std::array::from_fn(|k| {
        let (mut sum, mut total) = (0.0, 0.0);
        for (target, weight) in targets.iter().zip(weights) {
            sum += f64::from(target[k]) * f64::from(weight[k]);
            total += f64::from(weight[k]);
        }
        if total > 0.0 {
            (sum / total) as f32
        } else {
            0.0
        }
    })
}

/// A share of `0..count`, at least one of them, every choice equally likely, in ascending order: rows are
/// then read forwards.
pub(crate) fn draw(rng: &mut Pcg64, count: usize, share: f64) -> Vec<u32> {
    let mut wanted = ((count as f64 * share).round() as usize).clamp(1, count);
    let mut drawn = Vec::with_capacity(wanted);
    for index in 0..count {
        let rest = count - index;
        if wanted == rest || rng.random_range(0..rest) < wanted {
            drawn.push(index as u32);
            wanted -= 1;
        }
    }
    drawn
}

/// The rows that were not drawn, in ascending order.
fn others(drawn: &[u32], count: usize) -> Vec<u32> {
    let mut drawn = drawn.iter().peekable();
    let rest = (0..count as u32).filter(|row| drawn.next_if_eq(&row).is_none());
    rest.collect()
}
