//! A smooth curve over sizes: what an arm takes over what was expected of it.
//!
//! Linear in the sizes, their products two by two and bends at fixed places, and a parabola in each parameter of the kernel, all in ln
//! and in units of their spread. A ridge keeps
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

/// Mean and standard deviation of a number; `None` of one that is the same everywhere.
type Scale = Option<(f64, f64)>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Curve {
    /// Of sizes and what was expected.
    scales: Vec<Scale>,
    /// The same of the kernel's parameters.
    settings: Vec<Scale>,
    linear: Linear,
}

impl Curve {
    pub(super) fn fit(rows: &[&Row]) -> Option<Self> {
        let bases: Vec<Vec<f64>> = rows.iter().map(|row| row.base()).collect();
        let scales = scales(&bases);
        let set: Vec<&Vec<f64>> = rows.iter().map(|row| &row.settings).collect();
        let settings = self::scales(&set);
        let unfitted = |row: &Row| terms(&scales, &settings, row);
        let mut table = Table::new(unfitted(rows.first()?).len());
        for row in rows {
            table
                .push_weighted(&unfitted(row), row.over as f32, row.weight as f32)
                .ok()?;
        }
        let linear = RIDGE.fit(&table, 0).ok()?;
        Some(Self {
            scales,
            settings,
            linear,
        })
    }

    pub(super) fn at(&self, row: &Row) -> Option<f64> {
        let terms = terms(&self.scales, &self.settings, row);
        self.linear.predict(&terms).ok().map(f64::from)
    }
}

fn scales(rows: &[impl AsRef<[f64]>]) -> Vec<Scale> {
    let width = rows.first().map_or(0, |row| row.as_ref().len());
    let scale = |i: usize| {
        let count = rows.len() as f64;
        let values = || rows.iter().map(|row| row.as_ref()[i]);
        let mean = values().sum::<f64>() / count;
        let squares: f64 = values().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / count).sqrt();
        (deviation > 1e-6).then_some((mean, deviation))
    };
    (0..width).map(scale).collect()
}

/// In units of their spread; what is the same everywhere is left out.
fn scaled(scales: &[Scale], values: &[f64]) -> Vec<f64> {
    let both = scales.iter().zip(values);
    let scaled = both.filter_map(|(scale, value)| {
        let (mean, deviation) = (*scale)?;
        Some(((value - mean) / deviation).clamp(-FAR, FAR))
    });
    scaled.collect()
}

fn terms(scales: &[Scale], settings: &[Scale], row: &Row) -> Vec<f32> {
    let sizes = scaled(scales, &row.base());
    let mut terms: Vec<f32> = Vec::new();
    for (i, a) in sizes.iter().enumerate() {
        terms.push(*a as f32);
        // Squares around their mean.
        terms.extend(sizes[i..].iter().enumerate().map(|(j, b)| {
            let own = if j == 0 { 1.0 } else { 0.0 };
            (a * b - own) as f32
        }));
        terms.extend(BENDS.iter().map(|bend| (a - bend).max(0.0) as f32));
    }
    for a in scaled(settings, &row.settings) {
        terms.extend([a as f32, (a * a - 1.0) as f32]);
    }
    terms.push((row.slower / USUAL_CHANGE) as f32);
    terms
}
