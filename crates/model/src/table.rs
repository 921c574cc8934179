//! Rows to learn from.
//!
//! What a model cannot learn from is refused here, row by row and by name, so that a fit has only one way
//! left to fail on data: there is none.

/// The largest target: models add and subtract them in `f32`.
const LARGEST: f32 = 1e30;

/// Rows of features with a target and a weight each. Every number in it is finite and every row has the same
/// width.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    width: usize,
    features: Vec<f32>,
    targets: Vec<f32>,
    weights: Vec<f32>,
}

/// A row that nothing can be learned from.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RowError {
    /// It has more or fewer features than the others.
    #[error(transparent)]
    Width(#[from] WidthMismatch),
    /// A feature is NaN or infinite.
    #[error("feature {index} is {value}: features are finite numbers")]
    Feature {
        /// Its place in the row, counted from 0.
        index: usize,
        /// What was given.
        value: f32,
    },
    /// The target is NaN or infinite, as is the logarithm of a time of zero, or so large that sums of such would be.
    #[error("the target is {0}: targets are finite numbers of at most {LARGEST:e}")]
    Target(f32),
    /// It has targets for more or fewer candidates than there are.
    #[error("a row with targets for {given} candidates where there are {expected}")]
    Candidates {
        /// How many there are.
        expected: usize,
        /// How many were given.
        given: usize,
    },
    /// The weight is not a positive finite number.
    #[error("the weight is {0}: weights are positive finite numbers")]
    Weight(f32),
}

/// A row of features whose length is not what the table or the model was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a row of {given} features where {expected} belong")]
pub struct WidthMismatch {
    /// How many features a row has.
    pub expected: usize,
    /// How many were given.
    pub given: usize,
}

impl WidthMismatch {
    /// Fails unless the row has the expected number of features.
    #[inline]
    pub(crate) fn check(expected: usize, row: &[f32]) -> Result<(), Self> {
        let given = row.len();
        if given == expected {
            Ok(())
        } else {
            Err(Self { expected, given })
        }
    }
}

impl Table {
    /// An empty table for rows of so many features.
    pub const fn new(width: usize) -> Self {
        Self {
            width,
            features: Vec::new(),
            targets: Vec::new(),
            weights: Vec::new(),
        }
    }

    /// Adds a row of weight 1.
    pub fn push(&mut self, features: &[f32], target: f32) -> Result<(), RowError> {
        self.push_weighted(features, target, 1.0)
    }

    /// Adds a row that counts as much as `weight` rows of weight 1. A row that is refused leaves the table as
    /// it was.
    pub fn push_weighted(
        &mut self,
        features: &[f32],
        target: f32,
        weight: f32,
    ) -> Result<(), RowError> {
        check_features(self.width, features)?;
        check_target(target)?;
        if !(weight.is_finite() && weight > 0.0) {
            return Err(RowError::Weight(weight));
        }
        self.features.extend_from_slice(features);
        self.targets.push(target);
        self.weights.push(weight);
        Ok(())
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// How many features a row has.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The features, target and weight of every row, in the order they came.
    pub fn rows(&self) -> impl Iterator<Item = (&[f32], f32, f32)> {
        let answers = self.targets.iter().zip(&self.weights);
        answers.enumerate().map(|(row, (&target, &weight))| {
            let start = row * self.width;
            (&self.features[start..start + self.width], target, weight)
        })
    }

    /// The features of all rows.
    pub(crate) fn features(&self) -> Rows<'_> {
        Rows {
            width: self.width,
            count: self.len(),
            values: &self.features,
        }
    }

    /// The column of one feature.
    pub(crate) fn column(&self, feature: usize) -> impl Iterator<Item = f32> + Clone {
        self.features().column(feature)
    }

    /// The targets, in the order of the rows.
    pub(crate) fn targets(&self) -> &[f32] {
        &self.targets
    }

    /// The weights, in the order of the rows.
    pub(crate) fn weights(&self) -> &[f32] {
        &self.weights
    }
}

fn check_features(width: usize, features: &[f32]) -> Result<(), RowError> {
    WidthMismatch::check(width, features)?;
    match features.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(index) => {
            let value = features[index];
            Err(RowError::Feature { index, value })
        }
    }
}

fn check_target(target: f32) -> Result<(), RowError> {
    if target.is_finite() && target.abs() <= LARGEST {
        Ok(())
    } else {
        Err(RowError::Target(target))
    }
}

/// The features of some rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'a> {
    width: usize,
    count: usize,
    values: &'a [f32],
}

impl<'a> Rows<'a> {
    pub(crate) fn width(self) -> usize {
        self.width
    }

    pub(crate) fn len(self) -> usize {
        self.count
    }

    /// One row after the other.
    pub(crate) fn iter(self) -> impl Iterator<Item = &'a [f32]> {
        let row = move |row| &self.values[row * self.width..(row + 1) * self.width];
        (0..self.count).map(row)
    }

    /// The column of one feature.
    pub(crate) fn column(self, feature: usize) -> impl Iterator<Item = f32> + Clone + 'a {
        let values = self.values.iter().skip(feature);
        values.step_by(self.width.max(1)).copied()
    }
}

/// Rows to learn a choice from: features, and a target for each of the candidates that has one.
#[derive(Debug, Clone, PartialEq)]
pub struct Choices {
    width: usize,
    candidates: usize,
    features: Vec<f32>,
    /// By row and candidate; 0 where there is none.
    targets: Vec<f32>,
    /// Likewise: 1 where there is a target.
    weights: Vec<f32>,
    rows: usize,
}

impl Choices {
    /// No rows yet, of so many features, to choose among so many candidates.
    pub const fn new(width: usize, candidates: usize) -> Self {
        Self {
            width,
            candidates,
            features: Vec::new(),
            targets: Vec::new(),
            weights: Vec::new(),
            rows: 0,
        }
    }

    /// Adds a row with the targets that are known of it, by candidate. A row that is refused leaves the table as it was.
    pub fn push(&mut self, features: &[f32], targets: &[Option<f32>]) -> Result<(), RowError> {
        check_features(self.width, features)?;
        if targets.len() != self.candidates {
            return Err(RowError::Candidates {
                expected: self.candidates,
                given: targets.len(),
            });
        }
        for target in targets.iter().flatten() {
            check_target(*target)?;
        }
        self.features.extend_from_slice(features);
        self.targets
            .extend(targets.iter().map(|target| target.unwrap_or(0.0)));
        let weight = |target: &Option<f32>| f32::from(u8::from(target.is_some()));
        self.weights.extend(targets.iter().map(weight));
        self.rows += 1;
        Ok(())
    }

    /// How many candidates there are.
    pub fn candidates(&self) -> usize {
        self.candidates
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    pub(crate) fn features(&self) -> Rows<'_> {
        Rows {
            width: self.width,
            count: self.rows,
            values: &self.features,
        }
    }

    /// What there is to learn of `K` candidates from `first` on; those beyond the last have no targets.
    pub(crate) fn some<const K: usize>(&self, first: usize) -> Lessons<K> {
        let mut lessons = Lessons {
            width: self.width,
            features: Vec::new(),
            targets: Vec::new(),
            weights: Vec::new(),
        };
        for row in 0..self.rows {
            let part = |values: &[f32]| -> [f32; K] {
                let values = &values[row * self.candidates..(row + 1) * self.candidates];
                std::array::from_fn(|k| values.get(first + k).copied().unwrap_or(0.0))
            };
            let weights = part(&self.weights);
            if weights.iter().any(|weight| *weight > 0.0) {
                let features = row * self.width..(row + 1) * self.width;
                lessons.features.extend_from_slice(&self.features[features]);
                lessons.targets.push(part(&self.targets));
                lessons.weights.push(weights);
            }
        }
        lessons
    }
}

/// The rows in which at least one of `K` candidates has a target: others would only take time.
pub(crate) struct Lessons<const K: usize> {
    width: usize,
    features: Vec<f32>,
    pub(crate) targets: Vec<[f32; K]>,
    pub(crate) weights: Vec<[f32; K]>,
}

impl<const K: usize> Lessons<K> {
    pub(crate) fn features(&self) -> Rows<'_> {
        Rows {
            width: self.width,
            count: self.targets.len(),
            values: &self.features,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_learned_from_is_refused_by_name_and_leaves_no_trace() {
        let mut table = Table::new(2);
        table.push(&[1.0, 2.0], 3.0).unwrap();
        let before = table.clone();
        let ragged = WidthMismatch {
            expected: 2,
            given: 1,
        };
        assert_eq!(table.push(&[1.0], 3.0), Err(RowError::Width(ragged)));
        let nan = table.push(&[1.0, f32::NAN], 3.0).unwrap_err();
        assert!(nan.to_string().starts_with("feature 1 is NaN"), "{nan}");
        let zero_time = table.push(&[1.0, 2.0], 0.0_f32.ln());
        assert_eq!(zero_time, Err(RowError::Target(f32::NEG_INFINITY)));
        for target in [f32::NAN, f32::MAX, -1.1e30] {
            let refused = table.push(&[1.0, 2.0], target).unwrap_err().to_string();
            assert!(refused.ends_with("at most 1e30"), "{refused}");
        }
        for weight in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            let refused = table.push_weighted(&[1.0, 2.0], 3.0, weight);
            assert!(matches!(refused, Err(RowError::Weight(_))), "{weight}");
        }
        assert_eq!(table, before);
    }

    #[test]
    fn columns_are_the_rows_turned() {
        let mut table = Table::new(2);
        table.push(&[1.0, 2.0], 0.0).unwrap();
        table.push(&[3.0, 4.0], 0.0).unwrap();
        assert_eq!(table.column(0).collect::<Vec<_>>(), [1.0, 3.0]);
        assert_eq!(table.column(1).collect::<Vec<_>>(), [2.0, 4.0]);
    }
}
