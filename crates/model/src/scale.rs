//! Features and targets in units of their own spread, for models that multiply instead of asking.

use serde::{Deserialize, Serialize};

use crate::table::Table;

/// Rows further than this from the mean, in standard deviations, count as that far: one absurd size must not make an absurd
/// answer.
const FAR: f32 = 8.0;

/// Columns with mean 0 and deviation 1. A feature that is positive in every row has a second column, its logarithm: sizes
/// act on times by their product, and a sum of logarithms is one. A feature of one value has none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Scaling {
    pub(crate) width: usize,
    columns: Vec<Column>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Column {
    feature: u32,
    /// The least value that was seen, if this is the column of the logarithm: lower ones have none to trust.
    floor: Option<f32>,
    mean: f32,
    deviation: f32,
}

impl Column {
    #[inline]
    fn at(&self, features: &[f32]) -> f32 {
        let value = features[self.feature as usize];
        let value = match self.floor {
            Some(floor) => value.max(floor).ln(),
            None => value,
        };
        let scaled = (value - self.mean) / self.deviation;
        // What is unknown is taken for usual.
        if scaled.is_nan() {
            0.0
        } else {
            scaled.clamp(-FAR, FAR)
        }
    }
}

impl Scaling {
    pub(crate) fn of(table: &Table) -> Self {
        let mut columns = Vec::new();
        for feature in 0..table.width() {
            let floor = table.column(feature).fold(f32::INFINITY, f32::min);
            let floors = [None, Some(floor).filter(|floor| *floor > 0.0)];
            for floor in floors.into_iter().take(1 + usize::from(floor > 0.0)) {
                let values = table.column(feature);
                let values = values.map(|value| if floor.is_some() { value.ln() } else { value });
                let (mean, deviation) = spread(values.zip(table.weights().iter().copied()));
                let (mean, deviation) = (mean as f32, deviation as f32);
                // A spread that is lost in rounding is none.
                if deviation > 1e-6 * mean.abs() && deviation.is_normal() {
                    columns.push(Column {
                        feature: feature as u32,
                        floor,
                        mean,
                        deviation,
                    });
                }
            }
        }
        let width = table.width();
        Self { width, columns }
    }

    /// How many columns there are.
    pub(crate) fn len(&self) -> usize {
        self.columns.len()
    }

    /// A row of features of the right width as columns.
    #[inline]
    pub(crate) fn columns(&self, features: &[f32]) -> impl Iterator<Item = f32> {
        self.columns.iter().map(move |column| column.at(features))
    }

    /// All rows of a table, one after the other.
    pub(crate) fn matrix<'a>(&self, rows: impl Iterator<Item = &'a [f32]>) -> Vec<f32> {
        let mut matrix = Vec::new();
        for features in rows {
            matrix.extend(self.columns(features));
        }
        matrix
    }

    /// What reading a row relies on.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (index, column) in self.columns.iter().enumerate() {
            let Column {
                feature,
                floor,
                mean,
                deviation,
            } = *column;
            if feature as usize >= self.width {
                return Err(format!(
                    "column {index} is feature {feature} of {}",
                    self.width
                ));
            }
            let floor_is_fine = floor.is_none_or(|floor| floor > 0.0 && floor.is_finite());
            if !(floor_is_fine && mean.is_finite() && deviation.is_normal() && deviation > 0.0) {
                return Err(format!("column {index} has no scale"));
            }
        }
        Ok(())
    }
}

/// Targets with mean 0 and deviation 1, and back.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answer {
    mean: f32,
    deviation: f32,
    low: f32,
    high: f32,
}

impl Answer {
    pub(crate) fn of(table: &Table) -> Self {
        let targets = table.targets().iter().copied();
        let (mean, deviation) = spread(targets.clone().zip(table.weights().iter().copied()));
        let low = targets.clone().fold(f32::INFINITY, f32::min);
        let high = targets.fold(f32::NEG_INFINITY, f32::max);
        let span = f64::from(high) - f64::from(low);
        let within = |value: f64| value.clamp(f32::MIN.into(), f32::MAX.into()) as f32;
        let deviation = within(deviation);
        Self {
            mean: within(mean),
            deviation: if deviation.is_normal() {
                deviation
            } else {
                1.0
            },
            // A straight line may go on for some way, not for ever.
            low: within(f64::from(low) - span),
            high: within(f64::from(high) + span),
        }
    }

    pub(crate) fn scaled(&self, target: f32) -> f32 {
        ((f64::from(target) - f64::from(self.mean)) / f64::from(self.deviation)) as f32
    }

    /// The target that a scaled one stands for, brought near to what was seen.
    pub(crate) fn unscaled(&self, scaled: f64) -> f32 {
        let answer = f64::from(self.mean) + f64::from(self.deviation) * scaled;
        let answer = if answer.is_nan() {
            f64::from(self.mean)
        } else {
            answer
        };
        answer.clamp(self.low.into(), self.high.into()) as f32
    }

    /// What answering relies on.
    pub(crate) fn check(&self) -> Result<(), String> {
        let numbers = [self.mean, self.deviation, self.low, self.high];
        let finite = numbers.iter().all(|number| number.is_finite());
        if finite && self.low <= self.high {
            Ok(())
        } else {
            Err(format!("answers are {numbers:?}"))
        }
    }
}

/// Fails unless there are so many numbers and all are finite.
pub(crate) fn check_numbers(what: &str, numbers: &[f32], count: usize) -> Result<(), String> {
    if numbers.len() != count {
        return Err(format!("{what} are {}, not {count}", numbers.len()));
    }
    match numbers.iter().find(|number| !number.is_finite()) {
        Some(number) => Err(format!("one of {what} is {number}")),
        None => Ok(()),
    }
}

/// Mean and standard deviation of values by weight.
fn spread(values: impl Iterator<Item = (f32, f32)> + Clone) -> (f64, f64) {
    let (mut sum, mut total) = (0.0, 0.0);
    for (value, weight) in values.clone() {
        sum += f64::from(value) * f64::from(weight);
        total += f64::from(weight);
    }
    let mean = sum / total;
    let squares =
        values.map(|(value, weight)| f64::from(weight) * (f64::from(value) - mean).powi(2));
    (mean, (squares.sum::<f64>() / total).sqrt())
}

/// The sum of products, in an order that leaves the processor several at a time.
#[inline]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 8;
    let mut sums = [0.0_f32; LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f32 = a_chunks
        .remainder()
        .iter()
        .zip(b_chunks.remainder())
        .map(|(a, b)| a * b)
        .sum();
    for (a, b) in a_chunks.zip(b_chunks) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// Adds a multiple.
#[inline]
pub(crate) fn add_scaled(to: &mut [f32], factor: f32, what: &[f32]) {
    for (to, what) in to.iter_mut().zip(what) {
        *to += factor * what;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positive_features_have_a_second_column_and_constant_ones_none() {
        let mut table = Table::new(3);
        for (a, b) in [(1.0, -1.0), (4.0, 0.0), (16.0, 1.0)] {
            table.push(&[a, b, 7.0], a).unwrap();
        }
        let scaling = Scaling::of(&table);
        let middle: Vec<f32> = scaling.columns(&[4.0, 0.0, 7.0]).collect();
        assert_eq!(middle.len(), 3);
        // In the middle by factor, and by difference.
        assert!(middle[0] < -0.4 && middle[1].abs() < 1e-6 && middle[2].abs() < 1e-6);
        let odd: Vec<f32> = scaling.columns(&[-5.0, f32::NAN, 1e30]).collect();
        assert!((odd[1] - scaling.columns(&[1.0, 0.0, 0.0]).nth(1).unwrap()).abs() < 1e-6);
        assert_eq!(odd[2], 0.0);
    }

    #[test]
    fn answers_stay_near_what_was_seen() {
        let mut table = Table::new(0);
        table.push(&[], 10.0).unwrap();
        table.push(&[], 12.0).unwrap();
        let answer = Answer::of(&table);
        assert!((answer.unscaled(answer.scaled(11.5).into()) - 11.5).abs() < 1e-6);
        assert_eq!(answer.unscaled(1e9), 14.0);
        assert_eq!(answer.unscaled(-1e9), 8.0);
        assert_eq!(answer.unscaled(f64::NAN), 11.0);
    }

    #[test]
    fn products_are_summed_whatever_the_length() {
        for length in [0, 1, 7, 8, 9, 30] {
            let a: Vec<f32> = (0..length).map(|i| i as f32).collect();
            let expected: f32 = a.iter().map(|a| a * a).sum();
            assert_eq!(dot(&a, &a), expected);
        }
    }
}
