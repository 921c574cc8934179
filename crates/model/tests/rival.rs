//! The default trees against those of `forust-ml`, which follows XGBoost: same rows, same settings, fresh rows to be judged on.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

use forust_ml::data::Matrix;
use forust_ml::gradientbooster::GradientBooster;
use forust_ml::objective::ObjectiveType;
use forust_ml::sampler::SampleMethod;
use kernelwise_model::{Boosting, HeldOut, Table};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const WIDTH: usize = 6;

/// Six numbers from 0 to 1 per row, and what a function makes of them, with noise of this deviation.
fn table(rows: usize, seed: u64, target: fn(&[f32]) -> f32, noise: f32) -> Table {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut table = Table::new(WIDTH);
    for _ in 0..rows {
        let row: Vec<f32> = (0..WIDTH).map(|_| rng.random()).collect();
        // About normal, with a deviation of 1.
        let sum: f32 = (0..12).map(|_| rng.random::<f32>()).sum();
        table
            .push(&row, target(&row) + noise * (sum - 6.0))
            .unwrap();
    }
    table
}

/// The features column by column, and the targets, as the rival takes them.
fn turned(table: &Table) -> (Vec<f64>, Vec<f64>) {
    let column = |feature: usize| table.rows().map(move |(row, ..)| f64::from(row[feature]));
    let targets = table.rows().map(|(_, target, _)| f64::from(target));
    ((0..WIDTH).flat_map(column).collect(), targets.collect())
}

fn ours(settings: &Boosting, seen: &Table, unseen: &Table, seed: u64) -> f64 {
    let model = settings.fit(seen, seed).unwrap().flatten();
    HeldOut::of(&model, unseen).unwrap().rms
}

fn theirs(settings: &Boosting, seen: &Table, unseen: &Table, seed: u64) -> f64 {
    let (features, targets) = turned(seen);
    let mut rival = GradientBooster::default()
        .set_objective_type(ObjectiveType::SquaredLoss)
        .set_initialize_base_score(true)
        .set_iterations(settings.trees)
        .set_max_depth(settings.depth)
        .set_max_leaves(usize::MAX)
        .set_learning_rate(settings.shrinkage as f32)
        .set_nbins(settings.bins as u16)
        .set_l2(settings.ridge as f32)
        .set_min_leaf_weight(settings.leaf_weight as f32)
        .set_sample_method(SampleMethod::Random)
        .set_subsample(settings.row_share as f32)
        .set_colsample_bytree(settings.feature_share)
        .set_parallel(false)
        .set_seed(seed);
    rival
        .fit_unweighted(&Matrix::new(&features, seen.len(), WIDTH), &targets, None)
        .unwrap();
    let (features, targets) = turned(unseen);
    let answers = rival.predict(&Matrix::new(&features, unseen.len(), WIDTH), false);
    let squares = answers.iter().zip(&targets).map(|(a, b)| (a - b).powi(2));
    (squares.sum::<f64>() / targets.len() as f64).sqrt()
}

/// A cost per call and one per element, as a logarithm: what times look like.
fn time(x: &[f32]) -> f32 {
    let (m, n) = ((7.0 * x[0]).exp(), (7.0 * x[1]).exp());
    (300.0 + m * n * (1.0 + x[2].round())).ln()
}

/// The first of Friedman (1991): an interaction, a bend, two lines and a feature of no account.
fn friedman(x: &[f32]) -> f32 {
    let wave = (std::f32::consts::PI * x[0] * x[1]).sin();
    10.0 * wave + 20.0 * (x[2] - 0.5).powi(2) + 10.0 * x[3] + 5.0 * x[4]
}

/// Steps, as caches make them.
fn steps(x: &[f32]) -> f32 {
    let level = f32::from(u8::from(x[0] > 0.3)) + 2.0 * f32::from(u8::from(x[0] > 0.8));
    level * (1.0 + f32::from(u8::from(x[1] > 0.5))) + (4.0 * x[2]).floor() / 4.0
}

#[test]
fn the_default_trees_are_no_worse_than_those_of_others() {
    let settings = Boosting::thorough();
    for (name, target, noise) in [
        ("time", time as fn(&[f32]) -> f32, 0.2),
        ("friedman", friedman, 0.5),
        ("steps", steps, 0.15),
    ] {
        let unseen = table(3000, 99, target, noise);
        let (mut own, mut rival) = (0.0, 0.0);
        // Samples differ by seed: the mean of two, of either.
        for seed in 0..2 {
            let seen = table(3000, seed, target, noise);
            own += ours(&settings, &seen, &unseen, seed) / 2.0;
            rival += theirs(&settings, &seen, &unseen, seed) / 2.0;
        }
        assert!(own <= 1.03 * rival, "{name}: {own}, the rival {rival}");
        // It is about the settings, not by luck: both are near the noise.
        assert!(rival < 2.5 * f64::from(noise), "{name}: the rival {rival}");
    }
}
