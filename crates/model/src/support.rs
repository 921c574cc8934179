//! Support-vector regression: errors below a threshold count for nothing, larger ones for their size, so that
//! outliers weigh little.
//!
//! The exact machine keeps a good part of the rows and compares each row it is asked about with all of them: too slow
//! both to fit and to ask with ten thousands of rows. Here the Gaussian kernel is replaced by random waves (Rahimi and Recht, 2007), sines and
//! cosines along random directions whose products have the kernel as their mean; beside them stand the columns
//! themselves. In these coordinates the machine is linear, and its dual is solved one row at a time (Ho and Lin, 2012),
//! which is exact for each row and so has no step length to set, unlike stochastic gradients.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

use crate::boost::draw;
use crate::regress::{FitError, Predict, Regressor, check_settings, not_negative, positive, whole};
use crate::saved::InvalidModel;
use crate::scale::{Answer, Scaling, add_scaled, check_numbers, dot};
use crate::table::{Table, WidthMismatch};

/// A pass in which rows pull by less than this, on average, of what they may is the last.
const SETTLED: f64 = 1e-3;

/// The settings of a support-vector machine. Errors and targets are in standard deviations of the targets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SupportVectors {
    /// Errors up to this are none, 0 or more.
    pub tolerance: f64,
    /// The most a row may pull at the model, more than 0: the larger, the closer the fit.
    pub pull: f64,
    /// Random directions, 0 to 4096; with none the model is linear.
    pub directions: usize,
    /// Distance at which two rows have little to do with each other, more than 0, in standard deviations per column.
    pub reach: f64,
    /// Passes over the rows at the most, 1 to 10 000.
    pub passes: usize,
    /// Rows to learn from at the most, at least 1. Their coordinates take 4 bytes each.
    pub most_rows: usize,
}

impl Default for SupportVectors {
    /// 256 directions, up to 30 passes over up to 40 000 rows: seconds.
    fn default() -> Self {
        Self {
            tolerance: 0.02,
            pull: 1.0,
            directions: 256,
            reach: 1.0,
            passes: 30,
            most_rows: 40_000,
        }
    }
}

/// A fitted support-vector machine: a weight for every wave and column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Waves {
    scaling: Scaling,
    answer: Answer,
    /// Direction by direction, one number per column.
    directions: Vec<f32>,
    /// Of the cosines, the sines, the columns and the constant.
    weights: Vec<f32>,
}

#[derive(Deserialize)]
struct Unchecked {
    scaling: Scaling,
    answer: Answer,
    directions: Vec<f32>,
    weights: Vec<f32>,
}

impl TryFrom<Unchecked> for Waves {
    type Error = InvalidModel;

    fn try_from(file: Unchecked) -> Result<Self, InvalidModel> {
        let Unchecked {
            scaling,
            answer,
            directions,
            weights,
        } = file;
        scaling.check().map_err(InvalidModel)?;
        answer.check().map_err(InvalidModel)?;
        let columns = scaling.len();
        let count = directions.len().checked_div(columns).unwrap_or(0);
        check_numbers("directions", &directions, count * columns).map_err(InvalidModel)?;
        check_numbers("weights", &weights, 2 * count + columns + 1).map_err(InvalidModel)?;
        Ok(Self {
            scaling,
            answer,
            directions,
            weights,
        })
    }
}

impl Waves {
    /// The coordinates of a row, as many as there are weights. Waves and columns have a length of about 1 each.
    fn coordinates(&self, features: &[f32], out: &mut Vec<f32>) {
        let columns: Vec<f32> = self.scaling.columns(features).collect();
        let width = columns.len().max(1);
        let count = self.directions.len() / width;
        let wave = 1.0 / (count.max(1) as f32).sqrt();
        let phases = self.directions.chunks_exact(width);
        let phases: Vec<f32> = phases.map(|direction| dot(direction, &columns)).collect();
        out.extend(phases.iter().map(|phase| wave * phase.cos()));
        out.extend(phases.iter().map(|phase| wave * phase.sin()));
        let column = 1.0 / (width as f32).sqrt();
        out.extend(columns.iter().map(|value| column * value));
        out.push(1.0);
    }
}

impl SupportVectors {
    /// Fits a machine. Same table, settings and seed: same machine.
    pub fn fit(&self, table: &Table, seed: u64) -> Result<Waves, FitError> {
        check_settings(&[
            not_negative("tolerance", self.tolerance),
            positive("pull", self.pull),
            whole("directions", self.directions, 0..=4096, "0 to 4096"),
            positive("reach", self.reach),
            whole("passes", self.passes, 1..=10_000, "1 to 10000"),
            whole("most_rows", self.most_rows, 1..=usize::MAX, "1 or more"),
        ])?;
        if table.is_empty() {
            return Err(FitError::Empty);
        }
        let mut rng = Pcg64::seed_from_u64(seed);
        let (scaling, answer) = (Scaling::of(table), Answer::of(table));
        let columns = scaling.len();
        // A distance of `reach` in every column is one of its root in all.
        let steepness = 1.0 / (self.reach * (columns.max(1) as f64).sqrt());
        let count = if columns == 0 { 0 } else { self.directions };
        let directions = (0..count * columns).map(|_| (steepness * normal(&mut rng)) as f32);
        let mut model = Waves {
            scaling,
            answer,
            directions: directions.collect(),
            weights: vec![0.0; 2 * count + columns + 1],
        };
        self.solve(&mut model, table, &mut rng);
        Ok(model)
    }

    /// Coordinate descent on the dual: every row in turn pulls as hard as its error asks for and its limit allows.
    fn solve(&self, model: &mut Waves, table: &Table, rng: &mut Pcg64) {
        let share = (self.most_rows as f64 / table.len() as f64).min(1.0);
        let mut drawn = draw(rng, table.len(), share).into_iter().peekable();
        let size = model.weights.len();
        let (mut coordinates, mut rows) = (Vec::with_capacity(drawn.len() * size), Vec::new());
        for (row, (features, target, weight)) in table.rows().enumerate() {
            if drawn.next_if_eq(&(row as u32)).is_some() {
                model.coordinates(features, &mut coordinates);
                rows.push((model.answer.scaled(target), f64::from(weight)));
            }
        }
        let mean = rows.iter().map(|(_, weight)| weight).sum::<f64>() / rows.len() as f64;
        let tolerance = self.tolerance as f32;
        let mut pulls = vec![0.0_f32; rows.len()];
        let mut order: Vec<usize> = (0..rows.len()).collect();
        for _ in 0..self.passes {
            order.shuffle(rng);
            let mut moved = 0.0;
            for &row in &order {
                let (target, weight) = rows[row];
                let limit = (self.pull * weight / mean).min(f32::MAX.into()) as f32;
                let here = &coordinates[row * size..(row + 1) * size];
                // At least 1: the constant is one of them.
                let length = dot(here, here);
                let error = dot(here, &model.weights) - target;
                let pull = pulls[row];
                let change = if error + tolerance < length * pull {
                    -(error + tolerance) / length
                } else if error - tolerance > length * pull {
                    -(error - tolerance) / length
                } else {
                    -pull
                };
                let after = (pull + change).clamp(-limit, limit);
                if after != pull {
                    add_scaled(&mut model.weights, after - pull, here);
                    moved += f64::from((after - pull).abs() / limit);
                    pulls[row] = after;
                }
            }
            if moved <= SETTLED * rows.len() as f64 {
                break;
            }
        }
        if model.weights.iter().any(|weight| !weight.is_finite()) {
            model.weights.fill(0.0);
        }
    }
}

/// A number of a normal distribution (Box and Muller).
fn normal(rng: &mut Pcg64) -> f64 {
    let (a, b): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

impl Regressor for SupportVectors {
    fn train(&self, table: &Table, seed: u64) -> Result<Box<dyn Predict>, FitError> {
        Ok(Box::new(self.fit(table, seed)?))
    }

    fn most_rows(&self) -> usize {
        self.most_rows
    }
}

impl Predict for Waves {
    fn predict(&self, features: &[f32]) -> Result<f32, WidthMismatch> {
        WidthMismatch::check(self.scaling.width, features)?;
        let mut coordinates = Vec::with_capacity(self.weights.len());
        self.coordinates(features, &mut coordinates);
        let sum = dot(&coordinates, &self.weights);
        Ok(self.answer.unscaled(sum.into()))
    }

    fn width(&self) -> usize {
        self.scaling.width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outliers_move_it_less_than_a_mean() {
        // One row in ten is far off; half of the rest lies on either side of a line.
        let mut table = Table::new(1);
        for i in 0..200 {
            let x = i as f32 / 100.0 - 1.0;
            let target = if i % 10 == 0 { 30.0 } else { x };
            table.push(&[x], target).unwrap();
        }
        let linear = SupportVectors {
            directions: 0,
            tolerance: 0.001,
            passes: 300,
            ..SupportVectors::default()
        };
        let model = linear.fit(&table, 1).unwrap();
        let squares = crate::Ridge::default().fit(&table, 1).unwrap();
        for x in [-0.5, 0.0, 0.5] {
            let (robust, mean) = (model.predict(&[x]).unwrap(), squares.predict(&[x]).unwrap());
            assert!((robust - x).abs() < 0.3, "{robust} at {x}");
            assert!((mean - x).abs() > 2.0, "{mean} at {x}");
        }
    }

    #[test]
    fn waves_bend_where_a_line_cannot() {
        let mut table = Table::new(1);
        for i in -200..200 {
            let x = i as f32 / 100.0;
            table.push(&[x], x * x).unwrap();
        }
        let error = |directions| {
            let settings = SupportVectors {
                directions,
                ..SupportVectors::default()
            };
            let model = settings.fit(&table, 1).unwrap();
            crate::HeldOut::of(&model, &table).unwrap().rms
        };
        assert!(error(64) < 0.1 * error(0), "{} {}", error(64), error(0));
    }
}
