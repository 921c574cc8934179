//! A smooth guess through the measurements: the mean of a Gaussian process.
//!
//! The covariance of two configurations is (1 + r²/4)⁻², r their distance in units of [`REACH`]: a rational quadratic, which reaches
//! further than an exponential and costs neither a root nor an exponential. Its variance is not asked for; that would cost
//! the square of the number of measurements per question, and where trees and this guess disagree is known for nothing.

/// Distance between opposite corners of the space in units of the reach: half a diagonal is one unit.
const REACH: f32 = 0.5;
/// Measurements are not taken for exact: this share of the variance is noise.
const NUGGET: f64 = 1e-3;

#[derive(Debug, Clone, Default)]
pub(crate) struct Smooth {
    /// Coordinate by coordinate, so that all points are compared with a row at once.
    columns: Vec<f32>,
    weights: Vec<f32>,
    mean: f64,
    scale: f32,
}

impl Smooth {
    /// Goes through rows of so many coordinates, as far as their targets are believed.
    pub(crate) fn fit(width: usize, points: Vec<f32>, targets: &[f64]) -> Self {
        let count = targets.len();
        let scale = 1.0 / (REACH * REACH * (width as f32).max(1.0));
        let point = |nth: usize| &points[nth * width..(nth + 1) * width];
        let mut lower = vec![0.0; count * count];
        for i in 0..count {
            for j in 0..=i {
                let noise = if i == j { NUGGET } else { 0.0 };
                let mut rest = f64::from(alike(point(i), point(j), scale)) + noise;
                let (row_i, row_j) = (&lower[i * count..], &lower[j * count..]);
                rest -= row_i[..j]
                    .iter()
                    .zip(&row_j[..j])
                    .map(|(a, b)| a * b)
                    .sum::<f64>();
                lower[i * count + j] = match i == j {
                    true => rest.max(1e-9).sqrt(),
                    false => rest / lower[j * count + j],
                };
            }
        }
        // The mean that fits best, given how alike the points are.
        let ones = forward(&lower, count, &vec![1.0; count]);
        let solved = forward(&lower, count, targets);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let mean = dot(&ones, &solved) / dot(&ones, &ones).max(1e-12);
        let mut weights: Vec<f64> = solved
            .iter()
            .zip(&ones)
            .map(|(y, one)| y - mean * one)
            .collect();
        for i in (0..count).rev() {
            for k in i + 1..count {
                weights[i] -= lower[k * count + i] * weights[k];
            }
            weights[i] /= lower[i * count + i];
        }
        let columns = (0..width).flat_map(|at| (0..count).map(move |nth| (at, nth)));
        let columns = columns.map(|(at, nth)| points[nth * width + at]);
        Self {
            columns: columns.collect(),
            weights: weights.into_iter().map(|weight| weight as f32).collect(),
            mean,
            scale,
        }
    }

    /// The guess for a row. `squares` is working memory. The loops have no order to keep, so that they become vector instructions.
    pub(crate) fn guess(&self, row: &[f32], squares: &mut Vec<f32>) -> f64 {
        squares.clear();
        squares.resize(self.weights.len(), 0.0);
        let columns = self.columns.chunks_exact(self.weights.len().max(1));
        for (column, at) in columns.zip(row) {
            for (square, point) in squares.iter_mut().zip(column) {
                *square += (point - at) * (point - at);
            }
        }
        for (square, weight) in squares.iter_mut().zip(&self.weights) {
            *square = weight * likeness(*square, self.scale);
        }
        self.mean + f64::from(squares.iter().sum::<f32>())
    }
}

#[inline]
fn alike(a: &[f32], b: &[f32], scale: f32) -> f32 {
    likeness(a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum(), scale)
}

#[inline]
fn likeness(squares: f32, scale: f32) -> f32 {
    let root = 1.0 / (1.0 + 0.25 * scale * squares);
    root * root
}

fn forward(lower: &[f64], count: usize, right: &[f64]) -> Vec<f64> {
    let mut solved: Vec<f64> = Vec::with_capacity(count);
    for i in 0..count {
        let row = &lower[i * count..];
        let known: f64 = row[..i].iter().zip(&solved).map(|(a, b)| a * b).sum();
        solved.push((right[i] - known) / row[i]);
    }
    solved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_through_what_it_saw_and_between() {
        let truth = |x: f32, y: f32| f64::from(2.0 + x * x - 0.5 * y);
        let (mut points, mut targets) = (Vec::new(), Vec::new());
        for i in 0..6 {
            for j in 0..6 {
                let (x, y) = (i as f32 / 5.0, j as f32 / 5.0);
                points.extend([x, y]);
                targets.push(truth(x, y));
            }
        }
        let smooth = Smooth::fit(2, points, &targets);
        for (x, y) in [(0.2, 0.4), (0.5, 0.5), (0.13, 0.77)] {
            let error = smooth.guess(&[x, y], &mut Vec::new()) - truth(x, y);
            assert!(error.abs() < 0.02, "{x} {y} {error}");
        }
    }

    #[test]
    fn far_from_everything_it_says_the_mean() {
        let smooth = Smooth::fit(1, vec![0.0, 0.1], &[1.0, 3.0]);
        assert!((smooth.guess(&[100.0], &mut Vec::new()) - 2.0).abs() < 0.1);
    }
}
