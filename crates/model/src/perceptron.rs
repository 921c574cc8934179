//! A small neural network.
//!
//! Two layers of rectified units on standardised columns, fitted in small batches by Adam (Kingma and Ba, 2015). The steps
//! get smaller from epoch to epoch, as half a cosine; a tenth of the rows is kept back, and the network that was best
//! on them is the one that stays.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

use crate::boost::draw;
use crate::regress::{FitError, Predict, Regressor, check_settings, positive, whole};
use crate::saved::InvalidModel;
use crate::scale::{Answer, Scaling, add_scaled, check_numbers, dot};
use crate::table::{Table, WidthMismatch};

/// The share of rows that is kept back to tell when to stop.
const KEPT_BACK: f64 = 0.1;
/// With fewer rows nothing is kept back.
const ENOUGH_ROWS: usize = 50;
/// Of the gradient's running means; as in the paper.
const MEMORY: f32 = 0.9;
const SQUARES_MEMORY: f32 = 0.999;
const SMALLEST: f32 = 1e-8;
/// Gradients longer than this are cut to it: rows of extreme weight must not throw the network off.
const LONGEST: f32 = 5.0;

/// The settings of a network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Perceptron {
    /// Units of the first and the second layer, 1 to 1024 each.
    pub hidden: [usize; 2],
    /// Passes over the rows at the most, 1 to 10 000.
    pub epochs: usize,
    /// Passes without progress on the rows kept back after which it ends, at least 1.
    pub patience: usize,
    /// Rows between two steps, at least 1.
    pub batch: usize,
    /// The length of the first steps, more than 0.
    pub rate: f64,
    /// Rows to learn from at the most, at least 1.
    pub most_rows: usize,
}

impl Default for Perceptron {
    /// 48 and 24 units, up to 40 passes over up to 50 000 rows: seconds.
    fn default() -> Self {
        Self {
            hidden: [48, 24],
            epochs: 40,
            patience: 8,
            batch: 64,
            rate: 3e-3,
            most_rows: 50_000,
        }
    }
}

/// A fitted network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Network {
    scaling: Scaling,
    answer: Answer,
    layers: Vec<Layer>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Layer {
    outputs: usize,
    /// By input, then by output.
    weights: Vec<f32>,
    biases: Vec<f32>,
}

#[derive(Deserialize)]
struct Unchecked {
    scaling: Scaling,
    answer: Answer,
    layers: Vec<Layer>,
}

impl TryFrom<Unchecked> for Network {
    type Error = InvalidModel;

    fn try_from(file: Unchecked) -> Result<Self, InvalidModel> {
        let Unchecked {
            scaling,
            answer,
            layers,
        } = file;
        scaling.check().map_err(InvalidModel)?;
        answer.check().map_err(InvalidModel)?;
        let mut inputs = scaling.len();
        for layer in &layers {
            let Layer {
                outputs,
                weights,
                biases,
            } = layer;
            if *outputs == 0 {
                return Err(InvalidModel("a layer has no outputs".to_owned()));
            }
            let count = inputs.saturating_mul(*outputs);
            check_numbers("weights", weights, count).map_err(InvalidModel)?;
            check_numbers("biases", biases, *outputs).map_err(InvalidModel)?;
            inputs = *outputs;
        }
        if layers.is_empty() || inputs != 1 {
            return Err(InvalidModel(format!("it gives {inputs} answers to a row")));
        }
        Ok(Self {
            scaling,
            answer,
            layers,
        })
    }
}

impl Layer {
    /// Weights of a spread that keeps that of the columns (He and others, 2015).
    fn new(inputs: usize, outputs: usize, rng: &mut Pcg64) -> Self {
        let spread = (6.0 / inputs.max(1) as f32).sqrt();
        let weights = (0..inputs * outputs).map(|_| spread * (2.0 * rng.random::<f32>() - 1.0));
        Self {
            outputs,
            weights: weights.collect(),
            biases: vec![0.0; outputs],
        }
    }

    fn forward(&self, inputs: &[f32], outputs: &mut Vec<f32>) {
        outputs.clear();
        outputs.extend_from_slice(&self.biases);
        for (input, weights) in inputs.iter().zip(self.weights.chunks_exact(self.outputs)) {
            if *input != 0.0 {
                add_scaled(outputs, *input, weights);
            }
        }
    }

    /// The same layer with zeros.
    fn zero(&self) -> Self {
        Self {
            outputs: self.outputs,
            weights: vec![0.0; self.weights.len()],
            biases: vec![0.0; self.biases.len()],
        }
    }

    fn numbers(&self) -> impl Iterator<Item = &f32> {
        self.weights.iter().chain(&self.biases)
    }

    fn numbers_mut(&mut self) -> impl Iterator<Item = &mut f32> {
        self.weights.iter_mut().chain(&mut self.biases)
    }
}

fn rectify(values: &mut [f32]) {
    for value in values {
        *value = value.max(0.0);
    }
}

/// What a layer is fitted with: the sum of gradients, and their running means.
struct Slopes {
    sum: Layer,
    mean: Layer,
    squares: Layer,
}

/// A fit under way.
struct Fit {
    layers: Vec<Layer>,
    slopes: Vec<Slopes>,
    /// What every layer was given, the first the columns of a row; last the answer.
    values: Vec<Vec<f32>>,
    /// What the answer's error is to the outputs of the layer at hand, and of the one before.
    blame: Vec<f32>,
    blame_before: Vec<f32>,
    steps: i32,
}

impl Fit {
    fn new(layers: Vec<Layer>) -> Self {
        let slopes = layers.iter().map(|layer| Slopes {
            sum: layer.zero(),
            mean: layer.zero(),
            squares: layer.zero(),
        });
        Self {
            slopes: slopes.collect(),
            values: vec![Vec::new(); layers.len() + 1],
            layers,
            blame: Vec::new(),
            blame_before: Vec::new(),
            steps: 0,
        }
    }

    /// The answer for the columns of a row.
    fn forward(&mut self, row: &[f32]) -> f32 {
        self.values[0].clear();
        self.values[0].extend_from_slice(row);
        let last = self.layers.len() - 1;
        for (index, layer) in self.layers.iter().enumerate() {
            let (before, after) = self.values.split_at_mut(index + 1);
            layer.forward(&before[index], &mut after[0]);
            if index < last {
                rectify(&mut after[0]);
            }
        }
        self.values[last + 1][0]
    }

    /// Adds the slopes of the row that was just answered; `error` is that of the answer, by weight.
    fn backward(&mut self, error: f32) {
        self.blame.clear();
        self.blame.push(error);
        for index in (0..self.layers.len()).rev() {
            let (layer, sum) = (&self.layers[index], &mut self.slopes[index].sum);
            add_scaled(&mut sum.biases, 1.0, &self.blame);
            self.blame_before.clear();
            let inputs = self.values[index].iter();
            let weights = layer.weights.chunks_exact(layer.outputs);
            let sums = sum.weights.chunks_exact_mut(layer.outputs);
            for ((input, weights), sums) in inputs.zip(weights).zip(sums) {
                // A unit that was silent has no part in it.
                let active = *input != 0.0;
                if active {
                    add_scaled(sums, *input, &self.blame);
                }
                if index > 0 {
                    let blame = if active {
                        dot(weights, &self.blame)
                    } else {
                        0.0
                    };
                    self.blame_before.push(blame);
                }
            }
            std::mem::swap(&mut self.blame, &mut self.blame_before);
        }
    }

    /// Takes a step against the slopes, and forgets them.
    fn step(&mut self, rate: f32, weight: f32) {
        self.steps += 1;
        let squares: f32 = self
            .slopes
            .iter()
            .flat_map(|slopes| slopes.sum.numbers())
            .map(|slope| (slope / weight).powi(2))
            .sum();
        let cut = (LONGEST / squares.sqrt().max(LONGEST)) / weight;
        let warm = 1.0 - MEMORY.powi(self.steps);
        let squares_warm = 1.0 - SQUARES_MEMORY.powi(self.steps);
        for (layer, slopes) in self.layers.iter_mut().zip(&mut self.slopes) {
            let means = slopes.mean.numbers_mut().zip(slopes.squares.numbers_mut());
            let numbers = layer.numbers_mut().zip(slopes.sum.numbers_mut());
            for ((number, sum), (mean, squares)) in numbers.zip(means) {
                let slope = *sum * cut;
                *sum = 0.0;
                *mean += (1.0 - MEMORY) * (slope - *mean);
                *squares += (1.0 - SQUARES_MEMORY) * (slope * slope - *squares);
                let length = (*squares / squares_warm).sqrt() + SMALLEST;
                *number -= rate * (*mean / warm) / length;
            }
        }
    }
}

/// Rows as the network sees them.
struct Rows {
    width: usize,
    columns: Vec<f32>,
    targets: Vec<f32>,
    weights: Vec<f32>,
}

impl Rows {
    fn row(&self, row: usize) -> &[f32] {
        &self.columns[row * self.width..(row + 1) * self.width]
    }

    /// The mean squared error of these rows.
    fn error(&self, fit: &mut Fit, rows: &[usize]) -> f64 {
        let (mut squares, mut total) = (0.0, 0.0);
        for &row in rows {
            let error = f64::from(fit.forward(self.row(row)) - self.targets[row]);
            squares += f64::from(self.weights[row]) * error * error;
            total += f64::from(self.weights[row]);
        }
        squares / total
    }
}

impl Perceptron {
    /// Fits a network. Same table, settings and seed: same network.
    pub fn fit(&self, table: &Table, seed: u64) -> Result<Network, FitError> {
        let many = 1..=usize::MAX;
        check_settings(&[
            whole("hidden", self.hidden[0], 1..=1024, "1 to 1024"),
            whole("hidden", self.hidden[1], 1..=1024, "1 to 1024"),
            whole("epochs", self.epochs, 1..=10_000, "1 to 10000"),
            whole("patience", self.patience, many.clone(), "1 or more"),
            whole("batch", self.batch, many.clone(), "1 or more"),
            whole("most_rows", self.most_rows, many, "1 or more"),
            positive("rate", self.rate),
        ])?;
        if table.is_empty() {
            return Err(FitError::Empty);
        }
        let mut rng = Pcg64::seed_from_u64(seed);
        let (scaling, answer) = (Scaling::of(table), Answer::of(table));
        let rows = self.rows(table, &scaling, &answer, &mut rng);
        let widths = [rows.width, self.hidden[0], self.hidden[1], 1];
        let layers = widths
            .windows(2)
            .map(|pair| Layer::new(pair[0], pair[1], &mut rng));
        let fit = Fit::new(layers.collect());
        let layers = self.descend(fit, &rows, &mut rng);
        Ok(Network {
            scaling,
            answer,
            layers,
        })
    }

    fn rows(&self, table: &Table, scaling: &Scaling, answer: &Answer, rng: &mut Pcg64) -> Rows {
        let share = (self.most_rows as f64 / table.len() as f64).min(1.0);
        let mut drawn = draw(rng, table.len(), share).into_iter().peekable();
        let rows = table.rows().enumerate();
        let rows = rows.filter(|(row, _)| drawn.next_if_eq(&(*row as u32)).is_some());
        let rows: Vec<_> = rows.map(|(_, row)| row).collect();
        // Weights are relative: only then are steps of a known length.
        let mean = rows.iter().map(|row| f64::from(row.2)).sum::<f64>() / rows.len() as f64;
        Rows {
            width: scaling.len(),
            columns: scaling.matrix(rows.iter().map(|row| row.0)),
            targets: rows.iter().map(|row| answer.scaled(row.1)).collect(),
            weights: rows
                .iter()
                .map(|row| ((f64::from(row.2) / mean) as f32).max(f32::MIN_POSITIVE))
                .collect(),
        }
    }

    /// Goes down the slopes until it goes no further; answers with the best layers on the way.
    fn descend(&self, mut fit: Fit, rows: &Rows, rng: &mut Pcg64) -> Vec<Layer> {
        let mut order: Vec<usize> = (0..rows.targets.len()).collect();
        order.shuffle(rng);
        let count = order.len();
        let kept_back = match count >= ENOUGH_ROWS {
            true => order.split_off(count - (KEPT_BACK * count as f64) as usize),
            false => order.clone(),
        };
        let mut best = fit.layers.clone();
        let mut least = rows.error(&mut fit, &kept_back);
        let mut since = 0;
        for epoch in 0..self.epochs {
            let turn = std::f64::consts::PI * epoch as f64 / self.epochs as f64;
            let rate = (self.rate * 0.5 * (1.0 + turn.cos())) as f32;
            order.shuffle(rng);
            for batch in order.chunks(self.batch) {
                let mut weight = 0.0;
                for &row in batch {
                    let error = fit.forward(rows.row(row)) - rows.targets[row];
                    fit.backward(rows.weights[row] * error);
                    weight += rows.weights[row];
                }
                fit.step(rate, weight);
            }
            let error = rows.error(&mut fit, &kept_back);
            since += 1;
            if error < least {
                (least, since) = (error, 0);
                best.clone_from(&fit.layers);
            }
            if since >= self.patience || !error.is_finite() {
                break;
            }
        }
        best
    }
}

impl Regressor for Perceptron {
    fn train(&self, table: &Table, seed: u64) -> Result<Box<dyn Predict>, FitError> {
        Ok(Box::new(self.fit(table, seed)?))
    }

    fn most_rows(&self) -> usize {
        self.most_rows
    }
}

impl Predict for Network {
    fn predict(&self, features: &[f32]) -> Result<f32, WidthMismatch> {
        WidthMismatch::check(self.scaling.width, features)?;
        let mut inputs: Vec<f32> = self.scaling.columns(features).collect();
        let mut outputs = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            if index > 0 {
                rectify(&mut inputs);
            }
            layer.forward(&inputs, &mut outputs);
            std::mem::swap(&mut inputs, &mut outputs);
        }
        Ok(self.answer.unscaled(inputs[0].into()))
    }

    fn width(&self) -> usize {
        self.scaling.width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_those_of_the_squared_error() {
        let mut rng = Pcg64::seed_from_u64(3);
        let widths = [3, 4, 4, 1];
        let layers = widths.windows(2).map(|w| Layer::new(w[0], w[1], &mut rng));
        let mut fit = Fit::new(layers.collect());
        let (row, target) = ([0.3, -0.7, 1.1], 0.4);
        let error = fit.forward(&row) - target;
        fit.backward(error);
        let half_square = |fit: &mut Fit| 0.5 * (fit.forward(&row) - target).powi(2);
        for layer in 0..3 {
            for weight in 0..fit.layers[layer].weights.len() {
                let mut moved = |by: f32| {
                    fit.layers[layer].weights[weight] += by;
                    let value = half_square(&mut fit);
                    fit.layers[layer].weights[weight] -= by;
                    value
                };
                let seen = (moved(1e-2) - moved(-1e-2)) / 2e-2;
                let told = fit.slopes[layer].sum.weights[weight];
                assert!(
                    (seen - told).abs() < 1e-3,
                    "{layer} {weight}: {seen} {told}"
                );
            }
        }
    }

    #[test]
    fn a_larger_table_is_drawn_from() {
        let mut table = Table::new(1);
        for i in 0..300 {
            table.push(&[i as f32], i as f32).unwrap();
        }
        let few = Perceptron {
            most_rows: 100,
            ..Perceptron::default()
        };
        let (scaling, answer) = (Scaling::of(&table), Answer::of(&table));
        let mut rng = Pcg64::seed_from_u64(1);
        let rows = few.rows(&table, &scaling, &answer, &mut rng);
        assert_eq!((rows.targets.len(), rows.columns.len()), (100, 100));
    }
}
