//! How long a candidate takes on a workload that nobody measured.
//!
//! What was measured of workloads of one [kind] is evidence for others of it. The analytic expectation of a candidate (roofline,
//! share of it, cost of waking threads) goes first; what is learned is by how much it is wrong, in ln t. Two models answer, and
//! the forecast is their mean, because they err differently:
//!
//! - one smooth **curve** for each arm (a kernel with its threads): a ridge regression on sizes, their products and bends;
//! - **trees** of all arms of the kind together, which see what is no curve, and lend a kernel that ran on few shapes what is known of
//!   the others.
//!
//! How far off they may be is not assumed but tried: the workloads are dealt into five hands, each hand is forecast from the
//! other four, and nine in ten of those errors are the interval ([conformal](kernelwise_model::Conformal) in spirit, with every row
//! used for both). Where nothing near was measured, the interval is wider by how far away that is.
//!
//! Times of other machines stand in where this one has too few of a kind: what a kernel takes over what was to be expected *there* is
//! carried over to what is to be expected *here*. Such a forecast is a prior, its interval is wider by how unlike the machines are, and
//! it goes as soon as there are enough times of this machine.

mod curve;
mod judged;

use std::collections::BTreeMap;

use kernelwise_model::{Boosting, Ensemble, Flat, Table};
use kernelwise_types::units::Nanos;
use kernelwise_types::{Estimate, Interval, KernelId, Workload};
use serde::{Deserialize, Serialize};

use crate::problem::{Problem, kind, sizes};
use crate::selector::Evidence;
use crate::selector::candidates::arm;
use curve::Curve;

pub(crate) use judged::hands;
pub use judged::{Accuracy, Choices, HeldOutTime, Judged, Reliability, judge};

/// Workloads of a kind below which there is no model of it: five hands of two.
const FEWEST_WORKLOADS: usize = 10;
/// Measurements of an arm below which it has no curve of its own.
const FEWEST_FOR_A_CURVE: usize = 8;
/// Hands that workloads are dealt into.
const HANDS: usize = 5;
/// The share of times that lie within their intervals.
const SHARE: f64 = 0.9;
/// Errors of an arm from which it has an interval of its own.
const FEWEST_FOR_AN_INTERVAL: usize = 20;
/// A normal distribution has 90 % within so many standard deviations.
const NINETY: f64 = 1.645;
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

/// Models of the kinds of workloads that something is known of. It can be written and read; what is damaged answers with nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    kinds: BTreeMap<String, Kind>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Kept", into = "Kept")]
struct Kind {
    kept: Kept,
    trees: Flat,
}

/// A kind without the form of its trees that answers fastest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Kept {
    arms: BTreeMap<String, Arm>,
    trees: Ensemble,
    seen: Vec<Seen>,
    /// Half the width of intervals, in ln t; of an arm that never ran.
    width: f64,
    strange_width: f64,
    /// How unlike this one the machines are that it was measured on; `None` for this one.
    away: Option<f64>,
}

impl From<Kept> for Kind {
    fn from(kept: Kept) -> Self {
        let trees = kept.trees.flatten();
        Self { kept, trees }
    }
}

impl From<Kind> for Kept {
    fn from(kind: Kind) -> Self {
        kind.kept
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Arm {
    /// Its place among the columns of the trees.
    column: usize,
    curve: Option<Curve>,
    width: Option<f64>,
}

/// A workload that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Seen {
    name: String,
    ln_sizes: Vec<f64>,
}

/// What there is a model of, and what it has seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scope {
    /// The kind.
    pub kind: String,
    /// Measured workloads.
    pub workloads: usize,
    /// Kernels with their threads.
    pub kernels: usize,
    /// The smallest and the largest of each size.
    pub sizes: Vec<(u64, u64)>,
    /// How unlike this one the machines are that it was measured on; `None` for this one.
    pub other_machines_distance: Option<f64>,
}

/// One question or one measurement, as numbers.
#[derive(Debug, Clone)]
struct Row {
    arm: String,
    threads: f32,
    ln_sizes: Vec<f64>,
    features: Vec<f32>,
    /// What is expected of it beforehand, in ln t.
    expected: f64,
    /// What was measured, over that.
    over: f64,
    /// Samples of today that it is worth.
    worth: f64,
    /// Which of the workloads of the kind.
    workload: usize,
    /// By how much the machine is slower than usual, in ln t.
    slower: f64,
}

/// A forecast.
#[derive(Debug, Clone, PartialEq)]
pub struct Foretold {
    /// The middle of ln t, in nanoseconds.
    pub mean: f64,
    /// Nine times in ten ln t is within so much of it.
    pub half_width: f64,
    /// The measured workload most like it.
    pub nearest: String,
    /// By which factor the sizes of that differ, all together; 1 for the same.
    pub nearest_factor: f64,
    /// Measured workloads of the kind.
    pub workloads: usize,
    /// How unlike this one the machines are that those were measured on; `None` for this one.
    pub away: Option<f64>,
}

impl Foretold {
    /// The standard deviation that a normal distribution with such an interval has.
    pub fn sd(&self) -> f64 {
        self.half_width / NINETY
    }

    /// In words that say what it rests on; `None` if it is no time.
    pub fn estimate(&self) -> Option<Estimate> {
        let nanos = |y: f64| Nanos::new(y.exp()).ok();
        if let Some(away) = self.away {
            return Some(Estimate::Prior {
                time_ns: nanos(self.mean)?,
                source: format!(
                    "{} workloads of other machines, at a distance of {away:.2}",
                    self.workloads
                ),
            });
        }
        let (low, high) = (self.mean - self.half_width, self.mean + self.half_width);
        Some(Estimate::Modelled {
            time_ns: nanos(self.mean)?,
            interval_ns: Interval::new(nanos(low)?, nanos(high)?).ok()?,
            model: format!(
                "curves and trees, n = 0; nearest of {} measured: {}, sizes {:.2}x away",
                self.workloads, self.nearest, self.nearest_factor
            ),
        })
    }
}

impl Forecast {
    /// Fits models to evidence. Kinds with too little of it have none. The same evidence and seed give the same forecasts.
    pub fn fit(evidence: &[Evidence], seed: u64) -> Self {
        let mut by_kind: BTreeMap<String, Vec<&Evidence>> = BTreeMap::new();
        for one in evidence {
            by_kind.entry(kind(&one.of.workload)).or_default().push(one);
        }
        let fitted = by_kind.into_iter().filter_map(|(name, evidence)| {
            let own = evidence.iter().copied().filter(|one| one.away.is_none());
            let (own, seen) = rows(&own.collect::<Vec<_>>());
            if let Some(kind) = Kind::fit(own, seen, None, seed) {
                return Some((name, kind));
            }
            let away: Vec<f64> = evidence.iter().filter_map(|one| one.away).collect();
            let mean_away = away.iter().sum::<f64>() / away.len().max(1) as f64;
            let (all, seen) = rows(&evidence);
            Some((name, Kind::fit(all, seen, Some(mean_away), seed)?))
        });
        Self {
            kinds: fitted.collect(),
        }
    }

    /// How long a kernel in a version should take on so many threads, while the machine is as fast as usual; `None` of kinds without a
    /// model.
    pub fn of(
        &self,
        workload: &Workload,
        kernel: (&KernelId, u32),
        threads: u32,
        expected_ns: Option<f64>,
    ) -> Option<Foretold> {
        let kind = self.kinds.get(&kind(workload))?;
        let arm = arm(kernel.0, kernel.1, threads);
        kind.foretell(&Row::new(workload, arm, threads, expected_ns)?)
    }

    /// What would have been foretold of a time that is known, by somebody who does not know how fast the machine is.
    pub(crate) fn of_usual(&self, one: &Evidence) -> Option<Foretold> {
        let kernel = (&one.of.candidate.kernel, one.of.version);
        self.of(&one.of.workload, kernel, one.threads, one.expected_ns)
    }

    /// What would have been foretold of a time that is known, in the moment it was measured.
    pub(crate) fn of_known(&self, one: &Evidence) -> Option<Foretold> {
        let workload = &one.of.workload;
        let kind = self.kinds.get(&kind(workload))?;
        let arm = arm(&one.of.candidate.kernel, one.of.version, one.threads);
        let row = Row::new(workload, arm, one.threads, one.expected_ns)?;
        kind.foretell(&Row {
            slower: one.slower.unwrap_or(0.0),
            ..row
        })
    }

    /// Kinds that there are models of, and what each has seen.
    pub fn kinds(&self) -> impl Iterator<Item = Scope> {
        self.kinds.iter().map(|(name, kind)| Scope {
            kind: name.clone(),
            workloads: kind.kept.seen.len(),
            kernels: kind.kept.arms.len(),
            sizes: ranges(&kind.kept.seen),
            other_machines_distance: kind.kept.away,
        })
    }

    /// The same with the kinds that the other has models of put in the place of these.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.kinds.extend(other.kinds);
        self
    }
}

impl Row {
    fn new(
        workload: &Workload,
        arm: String,
        threads: u32,
        expected_ns: Option<f64>,
    ) -> Option<Self> {
        let problem = Problem::of(workload);
        let ln_sizes = sizes(workload).into_iter();
        let ln_sizes = ln_sizes.map(|size| (size as f64).max(0.5).ln());
        let expected = expected_ns.map_or(problem.ln_work(), |ns| ns.max(0.01).ln());
        expected.is_finite().then(|| Self {
            arm,
            threads: threads as f32,
            ln_sizes: ln_sizes.collect(),
            features: problem.features().to_vec(),
            expected,
            over: 0.0,
            worth: 1.0,
            workload: 0,
            slower: 0.0,
        })
    }

    /// What curves bend over.
    fn base(&self) -> Vec<f64> {
        let mut base = self.ln_sizes.clone();
        base.push(self.expected);
        base
    }

    /// What trees ask about; an arm that never ran has no column.
    fn asked(&self, column: Option<usize>, columns: usize) -> Vec<f32> {
        let mut asked = self.features.clone();
        asked.extend([self.expected as f32, self.threads, self.slower as f32]);
        let arms = asked.len();
        asked.resize(arms + columns, 0.0);
        if let Some(own) = column.and_then(|column| asked.get_mut(arms + column)) {
            *own = 1.0;
        }
        asked
    }

    /// What it counts beside others: many samples of one shape are still one shape, and old ones are few.
    fn weight(&self) -> f64 {
        self.worth.clamp(0.01, 8.0).sqrt()
    }
}

/// Measurements of one kind as rows, and its workloads.
fn rows(evidence: &[&Evidence]) -> (Vec<Row>, Vec<Seen>) {
    let (mut rows, mut seen) = (Vec::new(), Vec::<Seen>::new());
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for one in evidence {
        let spec = (&one.of.candidate.kernel, one.of.version);
        let arm = arm(spec.0, spec.1, one.threads);
        let row = Row::new(&one.of.workload, arm, one.threads, one.expected_ns);
        let (Some(row), Some(mean)) = (row, one.of.tally.mean()) else {
            continue;
        };
        let name = one.of.workload.to_string();
        let place = *places.entry(name.clone()).or_insert_with(|| {
            seen.push(Seen {
                name,
                ln_sizes: row.ln_sizes.clone(),
            });
            seen.len() - 1
        });
        let slower = one.slower.unwrap_or(0.0);
        rows.push(Row {
            // All is slower together; what does not go along is for the models.
            over: mean - slower - row.expected,
            slower,
            worth: one.of.tally.weight(),
            workload: place,
            ..row
        });
    }
    (rows, seen)
}

/// The two models of a kind, without intervals.
struct Models {
    columns: BTreeMap<String, usize>,
    curves: BTreeMap<String, Curve>,
    trees: Ensemble,
    flat: Flat,
}

impl Models {
    fn fit(rows: &[&Row], seed: u64) -> Option<Self> {
        let mut by_arm: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            by_arm.entry(&row.arm).or_default().push(row);
        }
        let names = by_arm.keys().enumerate();
        let columns: BTreeMap<String, usize> =
            names.map(|(i, arm)| ((*arm).to_owned(), i)).collect();
        let curves = by_arm
            .iter()
            .filter(|(_, rows)| rows.len() >= FEWEST_FOR_A_CURVE)
            .filter_map(|(arm, rows)| Some(((*arm).to_owned(), Curve::fit(rows)?)));
        let mut table = Table::new(rows.first()?.asked(None, columns.len()).len());
        for row in rows {
            let asked = row.asked(columns.get(&row.arm).copied(), columns.len());
            table
                .push_weighted(&asked, row.over as f32, row.weight() as f32)
                .ok()?;
        }
        let trees = TREES.fit(&table, seed).ok()?;
        Some(Self {
            curves: curves.collect(),
            columns,
            flat: trees.flatten(),
            trees,
        })
    }

    fn over(&self, row: &Row) -> Option<f64> {
        let column = self.columns.get(&row.arm).copied();
        mean(
            &self.flat,
            row,
            column,
            self.columns.len(),
            self.curves.get(&row.arm),
        )
    }
}

/// The mean of what both models say, or what the trees say of an arm without a curve.
fn mean(
    trees: &Flat,
    row: &Row,
    column: Option<usize>,
    columns: usize,
    curve: Option<&Curve>,
) -> Option<f64> {
    let trees = f64::from(trees.predict(&row.asked(column, columns)).ok()?);
    Some(match curve {
        Some(curve) => 0.5 * (trees + curve.at(row)?),
        None => trees,
    })
}

impl Kind {
    fn fit(rows: Vec<Row>, seen: Vec<Seen>, away: Option<f64>, seed: u64) -> Option<Self> {
        if seen.len() < FEWEST_WORKLOADS {
            return None;
        }
        let errors = errors(&rows, seen.len(), seed)?;
        let all: Vec<&Row> = rows.iter().collect();
        let Models {
            columns,
            mut curves,
            trees,
            flat: _,
        } = Models::fit(&all, seed)?;
        let every: Vec<f64> = errors.iter().map(|(_, error)| error.abs()).collect();
        let width = quantile(every)?;
        let arm = |(name, column): (String, usize)| {
            let own = errors.iter().filter(|(arm, _)| **arm == *name);
            let own: Vec<f64> = own.map(|(_, error)| error.abs()).collect();
            let width = match own.len() >= FEWEST_FOR_AN_INTERVAL {
                true => quantile(own),
                false => None,
            };
            let curve = curves.remove(&name);
            (
                name,
                Arm {
                    column,
                    curve,
                    width,
                },
            )
        };
        let arms: BTreeMap<String, Arm> = columns.into_iter().map(arm).collect();
        let kept = Kept {
            strange_width: width.hypot(NINETY * spread_of_arms(&rows)),
            arms,
            trees,
            seen,
            width,
            away,
        };
        Some(kept.into())
    }

    /// What it takes over what was expected of it, in ln t.
    fn over(&self, row: &Row) -> Option<f64> {
        let arms = &self.kept.arms;
        let arm = arms.get(&row.arm);
        let curve = arm.and_then(|arm| arm.curve.as_ref());
        mean(
            &self.trees,
            row,
            arm.map(|arm| arm.column),
            arms.len(),
            curve,
        )
    }

    fn foretell(&self, row: &Row) -> Option<Foretold> {
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
        let nearest = seen.iter().map(|seen| (away(seen), seen));
        let (away, nearest) = nearest.min_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(Foretold {
            mean: row.expected + row.slower + over,
            half_width: width * (1.0 + WIDER * (away - 1.0).max(0.0)),
            nearest: nearest.name.clone(),
            nearest_factor: away.exp(),
            workloads: seen.len(),
            away: self.kept.away,
        })
    }
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
fn errors(rows: &[Row], workloads: usize, seed: u64) -> Option<Vec<(&str, f64)>> {
    let hands = judged::hands(workloads, seed);
    let mut errors = Vec::new();
    for hand in 0..HANDS {
        let others: Vec<&Row> = rows
            .iter()
            .filter(|row| hands[row.workload] != hand)
            .collect();
        let models = Models::fit(&others, seed)?;
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

#[cfg(test)]
mod tests;
