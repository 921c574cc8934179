//! A linear model: quick, smooth, and the only one here that goes on where no row was.

use serde::{Deserialize, Serialize};

use crate::regress::{FitError, Predict, Regressor, check_settings, positive};
use crate::saved::InvalidModel;
use crate::scale::{Answer, Scaling, check_numbers};
use crate::table::{Table, WidthMismatch};

/// Settings of a linear model of standardised features and their logarithms: a fit is one system of equations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ridge {
    /// Pulls every coefficient towards zero, as so many rows would; more than 0, by default 1. Columns that say the same
    /// share what they explain.
    pub penalty: f64,
}

impl Default for Ridge {
    fn default() -> Self {
        Self { penalty: 1.0 }
    }
}

/// A fitted linear model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Linear {
    scaling: Scaling,
    answer: Answer,
    coefficients: Vec<f32>,
}

#[derive(Deserialize)]
struct Unchecked {
    scaling: Scaling,
    answer: Answer,
    coefficients: Vec<f32>,
}

impl TryFrom<Unchecked> for Linear {
    type Error = InvalidModel;

    fn try_from(file: Unchecked) -> Result<Self, InvalidModel> {
        let Unchecked {
            scaling,
            answer,
            coefficients,
        } = file;
        scaling.check().map_err(InvalidModel)?;
        answer.check().map_err(InvalidModel)?;
        check_numbers("coefficients", &coefficients, scaling.len()).map_err(InvalidModel)?;
        Ok(Self {
            scaling,
            answer,
            coefficients,
        })
    }
}

impl Ridge {
    /// Solves for the coefficients. Nothing is drawn: every seed gives the same model.
    pub fn fit(&self, table: &Table, _seed: u64) -> Result<Linear, FitError> {
        check_settings(&[positive("penalty", self.penalty)])?;
        if table.is_empty() {
            return Err(FitError::Empty);
        }
        let (scaling, answer) = (Scaling::of(table), Answer::of(table));
        let size = scaling.len();
        let mut products = vec![0.0_f64; size * size];
        let mut wanted = vec![0.0_f64; size];
        let mut row = vec![0.0_f64; size];
        let mut total = 0.0;
        for (features, target, weight) in table.rows() {
            for (cell, value) in row.iter_mut().zip(scaling.columns(features)) {
                *cell = value.into();
            }
            let (weight, target) = (f64::from(weight), f64::from(answer.scaled(target)));
            total += weight;
            for (i, &a) in row.iter().enumerate() {
                let a = weight * a;
                wanted[i] += a * target;
                for (sum, b) in products[i * size..].iter_mut().zip(&row[..=i]) {
                    *sum += a * b;
                }
            }
        }
        let penalty = self.penalty * total / table.len() as f64;
        for i in 0..size {
            products[i * size + i] += penalty;
        }
        solve(&mut products, &mut wanted);
        let coefficients = wanted.iter().map(|c| *c as f32).collect();
        Ok(Linear {
            scaling,
            answer,
            coefficients,
        })
    }
}

/// Solves a symmetric positive system, of which the lower half is given, in place (Cholesky).
fn solve(matrix: &mut [f64], vector: &mut [f64]) {
    let size = vector.len();
    for i in 0..size {
        for j in 0..=i {
            let dot: f64 = (0..j)
                .map(|k| matrix[i * size + k] * matrix[j * size + k])
                .sum();
            let left = matrix[i * size + j] - dot;
            matrix[i * size + j] = if i == j {
                // The penalty keeps it above zero but for rounding.
                left.max(f64::MIN_POSITIVE).sqrt()
            } else {
                left / matrix[j * size + j]
            };
        }
    }
    for i in 0..size {
        let known: f64 = (0..i).map(|k| matrix[i * size + k] * vector[k]).sum();
        vector[i] = (vector[i] - known) / matrix[i * size + i];
    }
    for i in (0..size).rev() {
        let known: f64 = (i + 1..size)
            .map(|k| matrix[k * size + i] * vector[k])
            .sum();
        vector[i] = (vector[i] - known) / matrix[i * size + i];
    }
    for value in vector {
        if !(*value as f32).is_finite() {
            *value = 0.0;
        }
    }
}

impl Regressor for Ridge {
    fn train(&self, table: &Table, seed: u64) -> Result<Box<dyn Predict>, FitError> {
        Ok(Box::new(self.fit(table, seed)?))
    }
}

impl Predict for Linear {
    fn predict(&self, features: &[f32]) -> Result<f32, WidthMismatch> {
        WidthMismatch::check(self.scaling.width, features)?;
        let columns = self.scaling.columns(features).zip(&self.coefficients);
        let sum = columns.map(|(value, c)| f64::from(value) * f64::from(*c));
        Ok(self.answer.unscaled(sum.sum()))
    }

    fn width(&self) -> usize {
        self.scaling.width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_coefficients_come_back_to_one_percent() {
        // ln t = 3 ln m + 0.5 b: the first acts by its logarithm, the second as it is.
        let mut table = Table::new(2);
        for i in 0..2000 {
            let (m, b) = (1.0 + (i % 37) as f32, (i % 11) as f32 - 5.0);
            table.push(&[m, b], 3.0 * m.ln() + 0.5 * b).unwrap();
        }
        let model = Ridge { penalty: 1e-6 }.fit(&table, 0).unwrap();
        let at = |m: f32, b: f32| model.predict(&[m, b]).unwrap();
        let power = (at(32.0, 0.0) - at(2.0, 0.0)) / 16.0_f32.ln();
        let slope = (at(9.0, 4.0) - at(9.0, -4.0)) / 8.0;
        assert!((power / 3.0 - 1.0).abs() < 0.01, "{power}");
        assert!((slope / 0.5 - 1.0).abs() < 0.01, "{slope}");
    }

    #[test]
    fn a_penalty_of_zero_is_refused() {
        let mut table = Table::new(1);
        table.push(&[1.0], 1.0).unwrap();
        let refused = Ridge { penalty: 0.0 }.fit(&table, 0).unwrap_err();
        assert_eq!(refused.to_string(), "penalty is 0: give more than 0");
    }
}
