//! A smooth curve over sizes: what an arm takes over what was expected of it.
//!
//! Linear in the sizes, their products two by two and bends at fixed places, all in ln and in units of their spread. A ridge keeps
//! what few rows cannot tell apart near zero. Beyond what was seen the curve goes on level: a square law of
//! ten shapes says nothing about the eleventh far away.

use kernelwise_model::{Linear, Predict, Ridge, Table};
use serde::{Deserialize, Serialize};

use super::Row;

/// Where the curve may bend, in standard deviations from the mean.
const BENDS: [f64; 5] = [-1.0, -0.5, 0.0, 0.5, 1.0];
/// By how much the pace of a shared machine changes, in ln t: the unit in which it counts.
const USUAL_CHANGE: f64 = 0.2;
/// As far out as a curve is followed.
const FAR: f64 = 3.0;
/// As many rows as the wish for a level curve counts.
const RIDGE: Ridge = Ridge { penalty: 2.0 };

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Curve {
    /// Mean and standard deviation of each number that differs between rows; `None` of the others.
    scales: Vec<Option<(f64, f64)>>,
    linear: Linear,
}

impl Curve {
    pub(super) fn fit(rows: &[&Row]) -> Option<Self> {
        let bases: Vec<Vec<f64>> = rows.iter().map(|row| row.base()).collect();
        let width = bases.first()?.len();
        let scales: Vec<Option<(f64, f64)>> = (0..width).map(|i| scale(&bases, i)).collect();
        let mut table = Table::new(terms(&scales, &bases[0], 0.0).len());
        for (row, base) in rows.iter().zip(&bases) {
            let terms = terms(&scales, base, row.slower);
            table
                .push_weighted(&terms, row.over as f32, row.weight() as f32)
                .ok()?;
        }
        let linear = RIDGE.fit(&table, 0).ok()?;
        Some(Self { scales, linear })
    }

    pub(super) fn at(&self, row: &Row) -> Option<f64> {
        let terms = terms(&self.scales, &row.base(), row.slower);
        self.linear.predict(&terms).ok().map(f64::from)
    }
}

fn scale(bases: &[Vec<f64>], i: usize) -> Option<(f64, f64)> {
    let count = bases.len() as f64;
    let mean = bases.iter().map(|base| base[i]).sum::<f64>() / count;
    let squares: f64 = bases.iter().map(|base| (base[i] - mean).powi(2)).sum();
    let deviation = (squares / count).sqrt();
    (deviation > 1e-6).then_some((mean, deviation))
}

fn terms(scales: &[Option<(f64, f64)>], base: &[f64], slower: f64) -> Vec<f32> {
    let scaled: Vec<f64> = scales
        .iter()
        .zip(base)
        .filter_map(|(scale, value)| {
            let (mean, deviation) = (*scale)?;
            Some(((value - mean) / deviation).clamp(-FAR, FAR))
        })
        .collect();
    let mut terms: Vec<f32> = Vec::new();
    for (i, a) in scaled.iter().enumerate() {
        terms.push(*a as f32);
        // Squares around their mean.
        terms.extend(scaled[i..].iter().enumerate().map(|(j, b)| {
            let own = if j == 0 { 1.0 } else { 0.0 };
            (a * b - own) as f32
        }));
        terms.extend(BENDS.iter().map(|bend| (a - bend).max(0.0) as f32));
    }
    terms.push((slower / USUAL_CHANGE) as f32);
    terms
}
