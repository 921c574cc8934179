//! What every type of model has in common: it is fitted to a table, and then it answers for rows.
//!
//! The two traits are open on purpose. A model that somebody brings along takes part wherever the ones of this crate do:
//! in [`HeldOut`](crate::HeldOut), in [`Conformal`](crate::Conformal), in evaluations on recorded times.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::boost::Boosting;
use crate::forest::{DecisionTree, Forest};
use crate::perceptron::Perceptron;
use crate::ridge::Ridge;
use crate::saved::Fitted;
use crate::support::SupportVectors;
use crate::table::{RowError, Table, WidthMismatch};

/// Settings that a model can be fitted with.
pub trait Regressor: fmt::Debug + Send + Sync {
    /// Fits a model. Same table and seed: same model. A table without rows is [`FitError::Empty`].
    fn train(&self, table: &Table, seed: u64) -> Result<Box<dyn Predict>, FitError>;

    /// The settings with which all candidates of a choice can be fitted at once, where this type of model can: who asks
    /// about all of them is then answered by one descent. `None` if each has to be fitted alone.
    fn joint(&self) -> Option<Boosting> {
        None
    }

    /// What it is called where its answers are told.
    fn label(&self) -> Cow<'_, str> {
        Cow::Borrowed("a model of the user's own")
    }

    /// The most rows it learns from; of a larger table it draws so many by the seed.
    fn most_rows(&self) -> usize {
        usize::MAX
    }
}

/// A fitted model.
pub trait Predict: fmt::Debug + Send + Sync {
    /// The answer for a row: a finite number, if those of the row are.
    fn predict(&self, features: &[f32]) -> Result<f32, WidthMismatch>;

    /// How many features a row has.
    fn width(&self) -> usize;
}

/// Why no model could be fitted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
    /// There was nothing to learn from.
    #[error("a model needs at least one row")]
    Empty,
    /// Rows have more features, or the table more rows, than the form of the model can address.
    #[error("{rows} rows of {width} features are more than a model can address")]
    TooLarge {
        /// Rows of the table.
        rows: usize,
        /// Features of a row.
        width: usize,
    },
    /// A setting is outside its range.
    #[error("{name} is {value}: give {range}")]
    Setting {
        /// The field of the settings.
        name: &'static str,
        /// What it was set to.
        value: f64,
        /// What it may be.
        range: &'static str,
    },
    /// A row could not be used.
    #[error(transparent)]
    Row(#[from] RowError),
    /// A row does not have the features of the model.
    #[error(transparent)]
    Width(#[from] WidthMismatch),
    /// A model from outside this crate could not be fitted, for a reason of its own.
    #[error("{0}")]
    Other(String),
}

/// A setting: its name, its value, whether that is in range, and the range.
pub(crate) type Checked = (&'static str, f64, bool, &'static str);

/// Fails with the first setting that is out of range.
pub(crate) fn check_settings(settings: &[Checked]) -> Result<(), FitError> {
    match settings.iter().find(|&&(_, _, fine, _)| !fine) {
        None => Ok(()),
        Some(&(name, value, _, range)) => Err(FitError::Setting { name, value, range }),
    }
}

pub(crate) fn whole(
    name: &'static str,
    value: usize,
    range: std::ops::RangeInclusive<usize>,
    says: &'static str,
) -> Checked {
    (name, value as f64, range.contains(&value), says)
}

pub(crate) fn share(name: &'static str, value: f64) -> Checked {
    let fine = value > 0.0 && value <= 1.0;
    (name, value, fine, "more than 0, at most 1")
}

pub(crate) fn not_negative(name: &'static str, value: f64) -> Checked {
    let fine = value >= 0.0 && value.is_finite();
    (name, value, fine, "0 or more")
}

pub(crate) fn positive(name: &'static str, value: f64) -> Checked {
    let fine = value > 0.0 && value.is_finite();
    (name, value, fine, "more than 0")
}

/// The types of models this crate has, with the settings that suit some thousand rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModelKind {
    /// [`Ridge`].
    Ridge,
    /// [`DecisionTree`].
    DecisionTree,
    /// [`Forest`].
    Forest,
    /// [`Boosting::default`]: the default, which the call path can afford.
    BoostedTrees,
    /// [`Boosting::thorough`]: many small steps, one candidate at a time.
    BoostedTreesThorough,
    /// [`Perceptron`].
    Perceptron,
    /// [`SupportVectors`].
    SupportVectors,
}

/// A word that is no type of model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no type of model is called `{0}`: there are {names}", names = ModelKind::NAMES.join(", "))]
pub struct UnknownModel(pub String);

impl ModelKind {
    /// All of them, in the order of their enumeration.
    pub const ALL: [Self; 7] = [
        Self::Ridge,
        Self::DecisionTree,
        Self::Forest,
        Self::BoostedTrees,
        Self::BoostedTreesThorough,
        Self::Perceptron,
        Self::SupportVectors,
    ];

    /// Their names, in the same order.
    pub const NAMES: [&'static str; 7] = [
        "ridge",
        "decision-tree",
        "random-forest",
        "boosted-trees",
        "boosted-trees-thorough",
        "perceptron",
        "support-vectors",
    ];

    /// The name, as it is typed and reported.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Fits a model that can be kept in a file.
    pub fn fit(self, table: &Table, seed: u64) -> Result<Fitted, FitError> {
        Ok(match self {
            Self::Ridge => Fitted::Linear(Ridge::default().fit(table, seed)?),
            Self::DecisionTree => Fitted::Trees(DecisionTree::default().fit(table, seed)?),
            Self::Forest => Fitted::Trees(Forest::default().fit(table, seed)?),
            Self::BoostedTrees => Fitted::Trees(Boosting::default().fit(table, seed)?),
            Self::BoostedTreesThorough => Fitted::Trees(Boosting::thorough().fit(table, seed)?),
            Self::Perceptron => Fitted::Network(Perceptron::default().fit(table, seed)?),
            Self::SupportVectors => Fitted::Waves(SupportVectors::default().fit(table, seed)?),
        })
    }
}

impl Regressor for ModelKind {
    fn train(&self, table: &Table, seed: u64) -> Result<Box<dyn Predict>, FitError> {
        Ok(self.fit(table, seed)?.compile())
    }

    fn joint(&self) -> Option<Boosting> {
        (*self == Self::BoostedTrees).then(Boosting::default)
    }

    fn label(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.name())
    }

    fn most_rows(&self) -> usize {
        match self {
            Self::Perceptron => Perceptron::default().most_rows,
            Self::SupportVectors => SupportVectors::default().most_rows,
            _ => usize::MAX,
        }
    }
}

impl fmt::Display for ModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ModelKind {
    type Err = UnknownModel;

    fn from_str(name: &str) -> Result<Self, UnknownModel> {
        let mut kinds = Self::ALL.into_iter();
        let found = kinds.find(|kind| kind.name() == name);
        found.ok_or_else(|| UnknownModel(name.to_owned()))
    }
}
