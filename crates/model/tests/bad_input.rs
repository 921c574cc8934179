//! Whatever a model is given, rows or files: an error with a name, or an answer that is a number. Never a panic.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

use std::sync::LazyLock;

use kernelwise_model::{
    Conformal, FitError, Fitted, HeldOut, ModelFileError, ModelKind, Predict, Regressor, Table,
};
use proptest::prelude::*;

/// Two sizes and a kind of 0, 1 or 2; what takes so long, as a logarithm.
fn times(rows: usize) -> Table {
    let mut table = Table::new(3);
    for row in 0..rows {
        let (m, n) = ((1 + row % 7) as f32, (1 + row % 11) as f32);
        let kind = (row % 3) as f32;
        let time = 5.0 + m * n * (1.0 + kind);
        table.push(&[m, n, kind], time.ln()).unwrap();
    }
    table
}

/// A file of every type of model.
static FILES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let table = times(80);
    let file = |kind: ModelKind| kind.fit(&table, 1).unwrap().to_json().unwrap();
    ModelKind::ALL.map(file).into()
});

/// Numbers no sensor should give, among some it does.
fn anything() -> impl Strategy<Value = f32> {
    prop_oneof![
        3 => -1e3_f32..1e3,
        1 => prop::sample::select(vec![
            f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-45, 0.0, -0.0, 1e30,
        ]),
    ]
}

#[test]
fn categories_never_seen_are_answered_from_those_that_were() {
    let seen = times(300);
    let targets: Vec<f32> = seen.rows().map(|(_, target, _)| target).collect();
    let low = targets.iter().copied().fold(f32::INFINITY, f32::min);
    let high = targets.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let span = high - low;
    for kind in ModelKind::ALL {
        let model = kind.train(&seen, 1).unwrap();
        for category in [-1.0, 3.0, 57.0, 1e30] {
            let answer = model.predict(&[3.0, 5.0, category]).unwrap();
            let near = low - span..=high + span;
            assert!(near.contains(&answer), "{kind} says {answer} of {category}");
        }
    }
}

#[test]
fn duplicated_rows_say_no_more_than_one_of_each() {
    let once = times(231);
    let mut often = Table::new(3);
    for (row, target, _) in once.rows() {
        for _ in 0..5 {
            often.push(row, target).unwrap();
        }
    }
    for kind in ModelKind::ALL {
        let model = kind.train(&often, 1).unwrap();
        let error = HeldOut::of(model.as_ref(), &once).unwrap();
        // The deviation of the targets is 0.9.
        assert!(error.rms < 0.6, "{kind}: {error:?}");
    }
}

#[test]
fn a_single_row_and_rows_without_features_are_enough() {
    let mut one = Table::new(3);
    one.push(&[1.0, 2.0, 3.0], 4.5).unwrap();
    let mut bare = Table::new(0);
    for _ in 0..30 {
        bare.push(&[], 4.5).unwrap();
    }
    for kind in ModelKind::ALL {
        let answer = kind.train(&one, 1).unwrap().predict(&[9.0, 9.0, 9.0]);
        assert!((answer.unwrap() - 4.5).abs() < 1e-3, "{kind}: {answer:?}");
        let answer = kind.train(&bare, 1).unwrap().predict(&[]);
        assert!((answer.unwrap() - 4.5).abs() < 1e-3, "{kind}: {answer:?}");
    }
}

#[test]
fn files_of_later_versions_are_told_from_damaged_ones_and_other_texts() {
    for text in [
        r#"{"format":2}"#,
        r#"{"format":4294967295,"model":{"oracle":{}}}"#,
    ] {
        let refused = Fitted::from_json(text).unwrap_err();
        assert!(matches!(refused, ModelFileError::Newer { .. }), "{text}");
        assert!(refused.to_string().contains("fit it again"), "{refused}");
    }
    let nested = "[".repeat(100_000);
    for text in [
        "",
        "null",
        "[]",
        "{}",
        "\0",
        r#"{"format":1}"#,
        r#"{"format":-1}"#,
        r#"{"format":1,"model":{"oracle":{}}}"#,
        &nested,
    ] {
        let refused = Fitted::from_json(text).unwrap_err();
        assert!(matches!(refused, ModelFileError::Corrupt(_)), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    /// Rows of anything: what the table refuses is named, what it takes can be learned from, and every answer is a number
    /// whatever is asked.
    #[test]
    fn any_table_gives_numbers_or_a_named_error(
        rows in prop::collection::vec((prop::array::uniform3(anything()), anything(), anything()), 0..40),
        asked in prop::collection::vec(prop::array::uniform3(anything()), 1..8),
        seed: u64,
    ) {
        let mut table = Table::new(3);
        for (row, target, weight) in &rows {
            let sound = row.iter().all(|value| value.is_finite())
                && target.abs() <= 1e30 && weight.is_finite() && *weight > 0.0;
            prop_assert_eq!(table.push_weighted(row, *target, *weight).is_ok(), sound);
        }
        for kind in ModelKind::ALL {
            match kind.fit(&table, seed) {
                Err(refused) => prop_assert!(table.is_empty() && refused == FitError::Empty, "{kind}: {refused}"),
                Ok(model) => {
                    let again = Fitted::from_json(&model.to_json().unwrap()).unwrap();
                    prop_assert_eq!(&again, &model);
                    let intervals = Conformal::calibrate(&model, &table);
                    for row in &asked {
                        let answer = model.predict(row).unwrap();
                        prop_assert!(answer.is_finite(), "{kind} says {answer} of {row:?}");
                        if let Ok(intervals) = &intervals {
                            let interval = intervals.around(row, answer).unwrap();
                            prop_assert!(interval.holds(answer.into()), "{kind}: {interval:?}");
                        }
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// A file with some bytes replaced is refused, or is a model all the same: then it answers.
    #[test]
    fn damaged_files_never_panic(
        file in 0..ModelKind::ALL.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(b"0123456789-+.eE,:[]{}\"nulltrue \\".to_vec())), 1..4),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
        row in prop::array::uniform3(anything()),
    ) {
        let mut bytes = FILES[file].clone().into_bytes();
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let text = String::from_utf8(bytes).unwrap();
        match Fitted::from_json(&text) {
            Err(refused) => prop_assert!(refused.to_string().contains("fit it again")),
            Ok(model) => {
                let slow = model.predict(&row).map(f32::to_bits);
                prop_assert_eq!(model.clone().compile().predict(&row).map(f32::to_bits), slow);
                if let Ok(bits) = slow {
                    prop_assert!(f32::from_bits(bits).is_finite());
                }
            }
        }
    }
}
