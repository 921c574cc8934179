//! The models of one kind of workloads: what they are fitted to, and what they answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kernelwise_model::{Boosting, Ensemble, Flat, Predict, Regressor, Table};
use kernelwise_types::Params;
use serde::{Deserialize, Serialize};

use super::curve::Curve;
use super::row::{Row, Seen, parameters, settings};
use super::{FEWEST_WORKLOADS, Foretold, HANDS, NINETY, Scope, judged};

/// Measurements of an arm below which it has no curve of its own.
const FEWEST_FOR_A_CURVE: usize = 8;
/// The share of times that lie within their intervals.
const SHARE: f64 = 0.9;
/// Errors of an arm from which it has an interval of its own.
const FEWEST_FOR_AN_INTERVAL: usize = 20;
/// How much wider an interval gets with each factor of e that the nearest measured workload is away beyond the first.
const WIDER: f64 = 0.5;
/// Few rows, and no call waits for them: many small steps.
const TREES: Boosting = Boosting {
    trees: 200,
    depth: 4,
    shrinkage: 0.07,
    row_share: 0.8,
    feature_share: 0.6,
    bins: 64,
    leaf_weight: 3.0,
    ridge: 0.5,
};
/// What the usual models are called.
const USUAL: &str = "curves and trees";

/// A fitted kind.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Kept", into = "Kept")]
pub(super) struct Kind {
    kept: Kept,
    answers: Answers,
}

/// What answers for all arms of a kind.
#[derive(Debug, Clone)]
enum Answers {
    /// Trees, in the form that answers fastest.
    Trees(Flat),
    /// A model of another type, which nobody knows how to write.
    Own(Arc<dyn Predict>),
    /// Nothing: what was read had no trees.
    Nothing,
}

/// A kind as it is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Kept {
    /// What made it, in words.
    model: String,
    arms: BTreeMap<String, Arm>,
    /// Parameters of kernels that are columns.
    parameters: Vec<String>,
    /// `None` where another type of model answers.
    trees: Option<Ensemble>,
    seen: Vec<Seen>,
    /// Half the width of intervals, in ln t; of an arm that never ran.
    width: f64,
    strange_width: f64,
    /// How unlike this one the machines are that it was measured on; `None` for this one.
    away: Option<f64>,
}

impl From<Kept> for Kind {
    fn from(kept: Kept) -> Self {
        let trees = kept.trees.as_ref();
        let answers = trees.map_or(Answers::Nothing, |trees| Answers::Trees(trees.flatten()));
        Self { kept, answers }
    }
}

impl From<Kind> for Kept {
    fn from(kind: Kind) -> Self {
        kind.kept
    }
}

impl PartialEq for Kind {
    /// Of models of others, one is the same as itself only.
    fn eq(&self, other: &Self) -> bool {
        let same = match (&self.answers, &other.answers) {
            (Answers::Own(one), Answers::Own(other)) => Arc::ptr_eq(one, other),
            (Answers::Own(_), _) | (_, Answers::Own(_)) => false,
            // Flat trees follow from those that are kept.
            _ => true,
        };
        same && self.kept == other.kept
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Arm {
    /// Its place among the columns of the trees.
    column: usize,
    curve: Option<Curve>,
    width: Option<f64>,
    /// The workloads it was measured on, by their places.
    seen: Vec<usize>,
    /// Its parameters as they mostly were.
    usual: Vec<f64>,
}

/// The models of a kind, without intervals.
struct Models {
    columns: BTreeMap<String, usize>,
    curves: BTreeMap<String, Curve>,
    trees: Option<Ensemble>,
    answers: Answers,
}

impl Models {
    fn fit(rows: &[&Row], regressor: Option<&dyn Regressor>, seed: u64) -> Option<Self> {
        let mut by_arm: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            by_arm.entry(&row.arm).or_default().push(row);
        }
        let names = by_arm.keys().enumerate();
        let columns: BTreeMap<String, usize> =
            names.map(|(i, arm)| ((*arm).to_owned(), i)).collect();
        let mut table = Table::new(rows.first()?.asked(None, columns.len()).len());
        for row in rows {
            let asked = row.asked(columns.get(&row.arm).copied(), columns.len());
            table
                .push_weighted(&asked, row.over as f32, row.weight as f32)
                .ok()?;
        }
        if let Some(regressor) = regressor {
            let fitted = regressor.train(&table, seed);
            if let Err(error) = &fitted {
                tracing::warn!(%error, model = %regressor.label(), "a model of times cannot be fitted");
            }
            return Some(Self {
                columns,
                curves: BTreeMap::new(),
                trees: None,
                answers: Answers::Own(fitted.ok()?.into()),
            });
        }
        let curves = by_arm
            .iter()
            .filter(|(_, rows)| rows.len() >= FEWEST_FOR_A_CURVE)
            .filter_map(|(arm, rows)| Some(((*arm).to_owned(), Curve::fit(rows)?)));
        let trees = TREES.fit(&table, seed).ok()?;
        Some(Self {
            curves: curves.collect(),
            columns,
            answers: Answers::Trees(trees.flatten()),
            trees: Some(trees),
        })
    }

    fn over(&self, row: &Row) -> Option<f64> {
        let column = self.columns.get(&row.arm).copied();
        let curve = self.curves.get(&row.arm);
        self.answers.over(row, column, self.columns.len(), curve)
    }
}

impl Answers {
    /// The mean of what both models say, or what the one says of an arm without a curve.
    fn over(
        &self,
        row: &Row,
        column: Option<usize>,
        columns: usize,
        curve: Option<&Curve>,
    ) -> Option<f64> {
        let asked = row.asked(column, columns);
        let answer = match self {
            Self::Trees(flat) => flat.predict(&asked),
            Self::Own(model) => model.predict(&asked),
            Self::Nothing => return None,
        };
        let answer = answer.ok().map(f64::from).filter(|over| over.is_finite())?;
        Some(match curve {
            Some(curve) => 0.5 * (answer + curve.at(row)?),
            None => answer,
        })
    }
}

impl Kind {
    pub(super) fn fit(
        mut rows: Vec<Row>,
        seen: Vec<Seen>,
        away: Option<f64>,
        regressor: Option<&dyn Regressor>,
        seed: u64,
    ) -> Option<Self> {
        if seen.len() < FEWEST_WORKLOADS {
            return None;
        }
        let parameters = parameters(&rows);
        for row in &mut rows {
            row.settings = settings(&row.params, &parameters);
        }
        let errors = errors(&rows, seen.len(), regressor, seed)?;
        let all: Vec<&Row> = rows.iter().collect();
        let Models {
            columns,
            mut curves,
            trees,
            answers,
        } = Models::fit(&all, regressor, seed)?;
        let every: Vec<f64> = errors.iter().map(|(_, error)| error.abs()).collect();
        let width = quantile(every)?;
        let arm = |(name, column): (String, usize)| {
            let own = errors.iter().filter(|(arm, _)| **arm == *name);
            let own: Vec<f64> = own.map(|(_, error)| error.abs()).collect();
            let width = match own.len() >= FEWEST_FOR_AN_INTERVAL {
                true => quantile(own),
                false => None,
            };
            let measured = || rows.iter().filter(|row| row.arm == name);
            let places: BTreeSet<usize> = measured().map(|row| row.workload).collect();
            let arm = Arm {
                column,
                curve: curves.remove(&name),
                width,
                seen: places.into_iter().collect(),
                usual: middles(measured().map(|row| &row.settings)),
            };
            (name, arm)
        };
        let arms: BTreeMap<String, Arm> = columns.into_iter().map(arm).collect();
        let kept = Kept {
            model: regressor.map_or(USUAL.to_owned(), |regressor| regressor.label().into_owned()),
            strange_width: width.hypot(NINETY * spread_of_arms(&rows)),
            arms,
            parameters,
            trees,
            seen,
            width,
            away,
        };
        Some(Self { kept, answers })
    }

    pub(super) fn can_be_written(&self) -> bool {
        self.kept.trees.is_some()
    }

    /// The parameters of an arm as numbers; as they mostly were, where nobody says.
    pub(super) fn settings(&self, arm: &str, params: Option<&Params>) -> Vec<f64> {
        let usual = || self.kept.arms.get(arm).map(|arm| arm.usual.clone());
        match params {
            Some(params) => settings(params, &self.kept.parameters),
            None => usual().unwrap_or_else(|| settings(&Params::new(), &self.kept.parameters)),
        }
    }

    pub(super) fn scope(&self, name: &str) -> Scope {
        Scope {
            kind: name.to_owned(),
            workloads: self.kept.seen.len(),
            kernels: self.kept.arms.len(),
            sizes: ranges(&self.kept.seen),
            other_machines_distance: self.kept.away,
        }
    }

    /// The workloads it was fitted to.
    pub(super) fn workloads(&self) -> BTreeSet<&str> {
        self.kept.seen.iter().map(|seen| &*seen.name).collect()
    }

    /// What it takes over what was expected of it, in ln t.
    pub(super) fn over(&self, row: &Row) -> Option<f64> {
        let arms = &self.kept.arms;
        let arm = arms.get(&row.arm);
        let curve = arm.and_then(|arm| arm.curve.as_ref());
        let column = arm.map(|arm| arm.column);
        self.answers.over(row, column, arms.len(), curve)
    }

    pub(super) fn foretell(&self, row: &Row) -> Option<Foretold> {
        let Kept { arms, seen, .. } = &self.kept;
        let arm = arms.get(&row.arm);
        let over = self.over(row)?;
        let usual = |arm: &Arm| arm.width.unwrap_or(self.kept.width);
        let width = arm.map_or(self.kept.strange_width, usual);
        let width = width.hypot(NINETY * self.kept.away.unwrap_or(0.0));
        let away = |seen: &Seen| {
            let both = seen.ln_sizes.iter().zip(&row.ln_sizes);
            both.map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt()
        };
        // What others took on a workload nearby says little about a kernel that was seen far away only.
        let own: Vec<&Seen> = match arm {
            Some(arm) => arm.seen.iter().filter_map(|i| seen.get(*i)).collect(),
            None => seen.iter().collect(),
        };
        let nearest = own.iter().map(|seen| (away(seen), seen));
        let (away, nearest) = nearest.min_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(Foretold {
            mean: row.expected + row.slower + over,
            half_width: width * (1.0 + WIDER * (away - 1.0).max(0.0)),
            nearest: nearest.name.clone(),
            nearest_factor: away.exp(),
            workloads: own.len(),
            model: self.kept.model.clone(),
            away: self.kept.away,
        })
    }
}

/// The middle of each column.
fn middles<'a>(rows: impl Iterator<Item = &'a Vec<f64>> + Clone) -> Vec<f64> {
    let width = rows.clone().next().map_or(0, Vec::len);
    let middle = |i: usize| {
        let mut values: Vec<f64> = rows.clone().map(|row| row[i]).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    (0..width).map(middle).collect()
}

/// The smallest and the largest of each size.
fn ranges(seen: &[Seen]) -> Vec<(u64, u64)> {
    let width = seen.iter().map(|seen| seen.ln_sizes.len()).max();
    let range = |i: usize| {
        let sizes = seen.iter().filter_map(|seen| seen.ln_sizes.get(i));
        let sizes = sizes.map(|ln| ln.exp().round() as u64);
        let (low, high) = (sizes.clone().min(), sizes.max());
        (low.unwrap_or(0), high.unwrap_or(0))
    };
    (0..width.unwrap_or(0)).map(range).collect()
}

/// How far forecasts from four hands are off on the fifth, with the arm of each.
fn errors<'a>(
    rows: &'a [Row],
    workloads: usize,
    regressor: Option<&dyn Regressor>,
    seed: u64,
) -> Option<Vec<(&'a str, f64)>> {
    let hands = judged::hands(workloads, seed);
    let mut errors = Vec::new();
    for hand in 0..HANDS {
        let others: Vec<&Row> = rows
            .iter()
            .filter(|row| hands[row.workload] != hand)
            .collect();
        let models = Models::fit(&others, regressor, seed)?;
        for row in rows.iter().filter(|row| hands[row.workload] == hand) {
            // Of an arm that never ran in the other hands an error says nothing about one that did.
            if models.columns.contains_key(&row.arm) {
                errors.push((row.arm.as_str(), row.over - models.over(row)?));
            }
        }
    }
    Some(errors)
}

/// The width that holds the share of further errors, if they are like these.
fn quantile(mut errors: Vec<f64>) -> Option<f64> {
    errors.sort_by(f64::total_cmp);
    let rank = (SHARE * (errors.len() + 1) as f64).ceil() as usize;
    errors.get(rank.min(errors.len()).checked_sub(1)?).copied()
}

/// How much arms differ in what they take over what was expected of them, in ln t.
fn spread_of_arms(rows: &[Row]) -> f64 {
    let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for row in rows {
        let (sum, count) = sums.entry(&row.arm).or_default();
        (*sum, *count) = (*sum + row.over, *count + 1.0);
    }
    let means: Vec<f64> = sums.values().map(|(sum, count)| sum / count).collect();
    let count = means.len() as f64;
    let middle = means.iter().sum::<f64>() / count;
    let squares: f64 = means.iter().map(|mean| (mean - middle).powi(2)).sum();
    (squares / (count - 1.0).max(1.0)).sqrt()
}
