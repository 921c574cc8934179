//! What every type of model owes: finite answers, more than the mean, the same after its file, one door for all.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

use kernelwise_model::{
    Boosting, DecisionTree, FitError, Fitted, Forest, HeldOut, ModelFileError, ModelKind,
    Perceptron, Predict, Regressor, Ridge, SupportVectors, Table, WidthMismatch,
};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Sizes from 1 to 1000 and a kind of 0 or 1; the time of a kernel with a cost per call, as a logarithm.
fn times(rows: usize, seed: u64) -> Table {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut table = Table::new(3);
    for _ in 0..rows {
        let size = |rng: &mut Pcg64| (rng.random::<f32>() * 1000_f32.ln()).exp();
        let (m, n) = (size(&mut rng), size(&mut rng));
        let kind = f32::from(u8::from(rng.random::<bool>()));
        let time = 300.0 + m * n * (1.0 + kind);
        table.push(&[m, n, kind], time.ln()).unwrap();
    }
    table
}

#[test]
fn every_type_learns_more_than_the_mean() {
    let (seen, unseen) = (times(2000, 1), times(500, 2));
    // The deviation of the targets is 2.4.
    for kind in ModelKind::ALL {
        let model = kind.train(&seen, 1).unwrap();
        let error = HeldOut::of(model.as_ref(), &unseen).unwrap();
        let most = match kind {
            ModelKind::Ridge => 0.8,
            ModelKind::DecisionTree => 0.4,
            _ => 0.25,
        };
        assert!(error.rms < most, "{kind}: {error:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_model_and_a_file_does_not_change_it() {
    let (seen, unseen) = (times(300, 3), times(50, 4));
    for kind in ModelKind::ALL {
        let model = kind.fit(&seen, 5).unwrap();
        assert_eq!(kind.fit(&seen, 5).unwrap(), model, "{kind}");
        let again = Fitted::from_json(&model.to_json().unwrap()).unwrap();
        assert_eq!(again, model, "{kind}");
        let fast = again.clone().compile();
        for (row, ..) in unseen.rows() {
            let answer = model.predict(row).unwrap().to_bits();
            assert_eq!(again.predict(row).unwrap().to_bits(), answer, "{kind}");
            assert_eq!(fast.predict(row).unwrap().to_bits(), answer, "{kind}");
        }
        assert_eq!(model.width(), 3);
        let mismatch = WidthMismatch {
            expected: 3,
            given: 1,
        };
        assert_eq!(model.predict(&[1.0]), Err(mismatch), "{kind}");
    }
    let drawn = [
        ModelKind::Forest,
        ModelKind::Perceptron,
        ModelKind::SupportVectors,
    ];
    for kind in drawn {
        assert_ne!(kind.fit(&seen, 5).unwrap(), kind.fit(&seen, 6).unwrap());
    }
}

#[test]
fn damaged_and_newer_files_are_told_apart() {
    for kind in ModelKind::ALL {
        let text = kind.fit(&times(60, 1), 1).unwrap().to_json().unwrap();
        let newer = text.replacen("\"format\":1", "\"format\":2", 1);
        let refused = Fitted::from_json(&newer).unwrap_err();
        assert!(
            matches!(refused, ModelFileError::Newer { found: 2 }),
            "{kind}"
        );
        for length in [0, 1, text.len() / 2, text.len() - 1] {
            let refused = Fitted::from_json(&text[..length]).unwrap_err();
            assert!(matches!(refused, ModelFileError::Corrupt(_)), "{kind}");
        }
        // Rows of no features: every feature that is asked for is missing.
        let narrow = text.replacen("\"width\":3", "\"width\":0", 1);
        let refused = Fitted::from_json(&narrow).unwrap_err().to_string();
        assert!(refused.contains("of 0"), "{kind}: {refused}");
    }
    let text = ModelKind::Perceptron.fit(&times(60, 1), 1).unwrap();
    let text = text.to_json().unwrap();
    for (from, to, says) in [
        ("\"outputs\":48", "\"outputs\":47", "weights are"),
        ("\"outputs\":1,", "\"outputs\":0,", "no outputs"),
        ("\"deviation\":", "\"deviation\":0.0,\"x\":", "no scale"),
        (
            "\"deviation\":",
            "\"deviation\":1e99,\"x\":",
            "out of range",
        ),
        ("\"biases\":[", "\"biases\":[1.0,", "biases are"),
    ] {
        assert!(text.contains(from));
        let refused = Fitted::from_json(&text.replacen(from, to, 1)).unwrap_err();
        assert!(refused.to_string().contains(says), "{from}: {refused}");
    }
}

#[test]
fn an_empty_table_is_an_error_of_its_own() {
    for kind in ModelKind::ALL {
        for width in [0, 3] {
            let refused = kind.train(&Table::new(width), 1).unwrap_err();
            assert_eq!(refused, FitError::Empty, "{kind}");
        }
    }
}

#[test]
fn settings_out_of_range_are_named() {
    let table = times(5, 1);
    #[rustfmt::skip]
    let broken: [(&str, Box<dyn Regressor>); 10] = [
        ("depth", Box::new(DecisionTree { depth: 0, ..DecisionTree::default() })),
        ("row_share", Box::new(Forest { row_share: 0.0, ..Forest::default() })),
        ("trees", Box::new(Boosting { trees: 0, ..Boosting::default() })),
        ("penalty", Box::new(Ridge { penalty: f64::NAN })),
        ("hidden", Box::new(Perceptron { hidden: [4, 0], ..Perceptron::default() })),
        ("rate", Box::new(Perceptron { rate: 0.0, ..Perceptron::default() })),
        ("batch", Box::new(Perceptron { batch: 0, ..Perceptron::default() })),
        ("pull", Box::new(SupportVectors { pull: -1.0, ..SupportVectors::default() })),
        ("directions", Box::new(SupportVectors { directions: 5000, ..SupportVectors::default() })),
        ("most_rows", Box::new(SupportVectors { most_rows: 0, ..SupportVectors::default() })),
    ];
    for (setting, settings) in broken {
        match settings.train(&table, 1) {
            Err(FitError::Setting { name, .. }) => assert_eq!(name, setting),
            other => panic!("{setting}: {other:?}"),
        }
    }
}

/// Somebody's own model: the target of the nearest row.
#[derive(Debug)]
struct Nearest;

#[derive(Debug)]
struct Remembered(Vec<(Vec<f32>, f32)>);

impl Regressor for Nearest {
    fn train(&self, table: &Table, _seed: u64) -> Result<Box<dyn Predict>, FitError> {
        let rows = table.rows().map(|(row, target, _)| (row.to_vec(), target));
        match rows.collect::<Vec<_>>() {
            rows if rows.is_empty() => Err(FitError::Other("nobody is near".to_owned())),
            rows => Ok(Box::new(Remembered(rows))),
        }
    }
}

impl Predict for Remembered {
    fn predict(&self, features: &[f32]) -> Result<f32, WidthMismatch> {
        let far = |row: &[f32]| -> f32 {
            let pairs = row.iter().zip(features);
            pairs.map(|(a, b)| (a.ln_1p() - b.ln_1p()).powi(2)).sum()
        };
        let nearest = self.0.iter().min_by(|a, b| far(&a.0).total_cmp(&far(&b.0)));
        Ok(nearest.map_or(0.0, |(_, target)| *target))
    }

    fn width(&self) -> usize {
        self.0[0].0.len()
    }
}

#[test]
fn a_model_from_outside_goes_through_the_same_door() {
    let contenders: [&dyn Regressor; 2] = [&Nearest, &ModelKind::Ridge];
    for settings in contenders {
        let error = HeldOut::split(settings, &times(600, 1), 0.2, 1).unwrap();
        assert!(
            error.rows > 60 && error.rms < 0.8,
            "{settings:?}: {error:?}"
        );
        assert_eq!(settings.most_rows(), usize::MAX);
    }
    let refused = Nearest.train(&Table::new(1), 1).unwrap_err();
    assert_eq!(refused.to_string(), "nobody is near");
}

#[test]
fn names_lead_to_types_and_back() {
    for kind in ModelKind::ALL {
        assert_eq!(kind.name().parse::<ModelKind>().unwrap(), kind);
    }
    let unknown = "lasso".parse::<ModelKind>().unwrap_err().to_string();
    assert!(
        unknown.contains("`lasso`") && unknown.contains("boosted-trees"),
        "{unknown}"
    );
}

/// Numbers of every size, with a taste for equal ones.
fn number() -> impl Strategy<Value = f32> {
    prop_oneof![
        (-3_i8..4).prop_map(f32::from),
        -1e3_f32..1e3,
        (-30_i32..31).prop_map(|power| 10_f32.powi(power)),
        (-30_i32..31).prop_map(|power| -(10_f32.powi(power))),
        Just(f32::MIN_POSITIVE / 2.0),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Constant, repeated, tiny and huge: answers are finite for rows that are, whether or not they were seen.
    #[test]
    fn answers_are_finite_whatever_the_table(
        rows in prop::collection::vec((prop::array::uniform3(number()), number(), 1e-3_f32..1e3), 1..40),
        asked in prop::collection::vec(prop::array::uniform3(number()), 1..10),
        repeat in 1_usize..4,
        seed: u64,
    ) {
        let mut table = Table::new(3);
        for _ in 0..repeat {
            for (row, target, weight) in &rows {
                table.push_weighted(row, *target, *weight).unwrap();
            }
        }
        for kind in ModelKind::ALL {
            let model = kind.train(&table, seed).unwrap();
            for row in asked.iter().chain(rows.iter().map(|(row, ..)| row)) {
                let answer = model.predict(row).unwrap();
                prop_assert!(answer.is_finite(), "{kind} says {answer} of {row:?}");
            }
        }
    }
}

#[test]
fn a_constant_target_is_answered_by_all() {
    let mut table = Table::new(2);
    for i in 0..60 {
        table.push(&[i as f32, 1.0], -3.25).unwrap();
    }
    for kind in ModelKind::ALL {
        let answer = kind
            .train(&table, 1)
            .unwrap()
            .predict(&[30.0, 2.0])
            .unwrap();
        assert!((answer + 3.25).abs() < 1e-3, "{kind}: {answer}");
    }
}
