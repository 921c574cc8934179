//! What the trees can learn, what they must not, and that both forms agree.

use super::*;
use crate::HeldOut;
use proptest::prelude::*;

/// Rows of `width` numbers from 0 to 1 and the target a function makes of them.
fn table(rows: usize, width: usize, seed: u64, target: impl Fn(&[f32]) -> f32) -> Table {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut table = Table::new(width);
    for _ in 0..rows {
        let row: Vec<f32> = (0..width).map(|_| rng.random()).collect();
        table.push(&row, target(&row)).unwrap();
    }
    table
}

/// The error on fresh rows, as a share of the error of the mean.
fn left_over(boosting: Boosting, target: impl Fn(&[f32]) -> f32 + Copy) -> f64 {
    let model = boosting.fit(&table(3000, 5, 1, target), 7).unwrap();
    let unseen = table(1000, 5, 2, target);
    let error = HeldOut::of(&model, &unseen).unwrap().rms;
    let targets = unseen.targets();
    let mean = targets.iter().sum::<f32>() / targets.len() as f32;
    let squares = targets.iter().map(|y| f64::from((y - mean).powi(2)));
    error / (squares.sum::<f64>() / targets.len() as f64).sqrt()
}

#[test]
fn learns_a_step() {
    let step = |x: &[f32]| if x[3] > 0.4 { 5.0 } else { -2.0 };
    let fine = Boosting {
        bins: 255,
        ..Boosting::default()
    };
    let left = left_over(fine, step);
    assert!(left < 0.18, "{left}");
    // Only the rows that share a range with the step can be on the wrong side of it.
    let coarse = left_over(Boosting::default(), step);
    assert!(coarse < 0.25, "{coarse}");
}

#[test]
fn learns_a_sum_of_effects() {
    let left = left_over(Boosting::default(), |x| {
        3.0 * x[0] - x[1] + (6.0 * x[2]).sin()
    });
    assert!(left < 0.15, "{left}");
}

#[test]
fn learns_an_interaction_that_no_single_feature_shows() {
    let sign = |x: &[f32]| {
        if (x[0] > 0.5) == (x[1] > 0.5) {
            1.0
        } else {
            -1.0
        }
    };
    let left = left_over(Boosting::default(), sign);
    assert!(left < 0.25, "{left}");
    // One question per tree adds up effects and cannot see it.
    let stumps = Boosting {
        depth: 1,
        ..Boosting::default()
    };
    assert!(left_over(stumps, sign) > 0.9);
}

#[test]
fn every_tree_brings_it_closer_to_what_it_was_fitted_to() {
    let target = |x: &[f32]| x[0] * x[1] + x[2];
    let seen = table(500, 3, 3, target);
    // All rows and features for every tree: then no step can go back.
    let whole = Boosting {
        row_share: 1.0,
        feature_share: 1.0,
        ..Boosting::default()
    };
    let mut before = f64::INFINITY;
    for trees in 1..20 {
        let model = Boosting { trees, ..whole }.fit(&seen, 0).unwrap();
        let error = HeldOut::of(&model, &seen).unwrap().rms;
        assert!(error < before, "{trees} trees: {error}, {before} before");
        before = error;
    }
}

#[test]
fn same_seed_same_model_other_seed_other_model() {
    let seen = table(400, 4, 4, |x| x[0] - x[3]);
    let fit = |seed| Boosting::default().fit(&seen, seed).unwrap();
    assert_eq!(fit(1), fit(1));
    assert_ne!(fit(1), fit(2));
}

#[test]
fn any_number_of_threads_grows_the_same_trees() {
    // Pieces so small that both features and sides of a question are shared out.
    let worth = 500;
    let seen = table(3000, 10, 8, |x| x[0] * x[1] + x[9]);
    let settings = Boosting {
        trees: 3,
        ..Boosting::default()
    };
    for follow in [Follow::Remainder, Follow::Targets] {
        let grow = |threads| {
            let crew = Crew::of(threads, worth);
            settings.grow_single(&crew, &seen, 1, follow)
        };
        let alone = grow(1);
        for threads in [2, 3, 8] {
            assert!(grow(threads) == alone, "{threads} threads");
        }
    }
}

#[test]
fn rows_it_was_not_grown_on_are_answered_as_well() {
    // With half of the rows per tree, what is left of the others has to follow too, or the sum would overshoot.
    let seen = table(600, 2, 9, |x| 4.0 * x[0]);
    let half = Boosting {
        row_share: 0.5,
        trees: 60,
        ..Boosting::default()
    };
    let error = HeldOut::of(&half.fit(&seen, 1).unwrap(), &seen).unwrap();
    assert!(error.rms < 0.1, "{error:?}");
}

#[test]
fn a_constant_target_is_answered_everywhere() {
    let model = Boosting::default()
        .fit(&table(100, 2, 5, |_| -3.25), 0)
        .unwrap();
    for at in [-1e30, 0.0, 0.5, 1e30, f32::NAN] {
        assert_eq!(model.predict(&[at, 0.1]), Ok(-3.25));
        assert_eq!(model.flatten().predict(&[at, 0.1]), Ok(-3.25));
    }
}

#[test]
fn rows_without_features_or_differences_give_their_mean() {
    let mut bare = Table::new(0);
    let mut same = Table::new(2);
    for target in [1.0, 2.0, 6.0] {
        bare.push(&[], target).unwrap();
        same.push(&[4.0, 4.0], target).unwrap();
    }
    let model = Boosting::default().fit(&bare, 0).unwrap();
    assert!(model.is_empty());
    assert_eq!(model.flatten().predict(&[]), Ok(3.0));
    let model = Boosting::default().fit(&same, 0).unwrap();
    assert_eq!(model.flatten().predict(&[9.0, 9.0]), Ok(3.0));
}

#[test]
fn a_weight_counts_as_that_many_rows() {
    let settings = Boosting {
        row_share: 1.0,
        leaf_weight: 0.0,
        ridge: 0.0,
        ..Boosting::default()
    };
    // Two targets at 0; the second comes in copies or with a weight.
    let at_zero = |copies: usize, weight: f32| {
        let mut table = Table::new(1);
        for (x, y) in [(0.0, 1.0), (1.0, 5.0), (2.0, 9.0)] {
            table.push(&[x], y).unwrap();
        }
        for _ in 0..copies {
            table.push_weighted(&[0.0], 2.0, weight).unwrap();
        }
        settings.fit(&table, 0).unwrap().predict(&[0.0]).unwrap()
    };
    assert!((at_zero(9, 1.0) - at_zero(1, 9.0)).abs() < 1e-5);
    assert!((at_zero(1, 1.0) - 1.5).abs() < 0.05);
    assert!((at_zero(1, 9.0) - 1.9).abs() < 0.05);
}

#[test]
fn thresholds_lie_between_values_not_on_them() {
    let mut seen = Table::new(1);
    for _ in 0..50 {
        seen.push(&[1.0], 0.0).unwrap();
        seen.push(&[2.0], 1.0).unwrap();
    }
    let model = Boosting::default().fit(&seen, 0).unwrap();
    let at = |x: f32| model.predict(&[x]).unwrap();
    assert_eq!(at(1.4), at(1.0));
    assert_eq!(at(1.6), at(2.0));
    assert!(at(2.0) - at(1.0) > 0.9);
}

#[test]
fn what_cannot_be_fitted_is_an_error_with_its_reason() {
    let fit = |settings: Boosting| settings.fit(&table(10, 1, 0, |x| x[0]), 0);
    let standard = Boosting::default();
    assert_eq!(standard.fit(&Table::new(3), 0), Err(FitError::Empty));
    #[rustfmt::skip]
    let broken = [
        ("trees", Boosting { trees: 0, ..standard }),
        ("depth", Boosting { depth: 13, ..standard }),
        ("bins", Boosting { bins: 256, ..standard }),
        ("shrinkage", Boosting { shrinkage: 0.0, ..standard }),
        ("row_share", Boosting { row_share: f64::NAN, ..standard }),
        ("feature_share", Boosting { feature_share: 1.1, ..standard }),
        ("leaf_weight", Boosting { leaf_weight: f64::INFINITY, ..standard }),
        ("ridge", Boosting { ridge: -1.0, ..standard }),
    ];
    for (field, settings) in broken {
        match fit(settings) {
            Err(FitError::Setting { name, .. }) => assert_eq!(name, field),
            other => panic!("{field}: {other:?}"),
        }
    }
    let mut wide = Table::new(70_000);
    wide.push(&vec![0.0; 70_000], 1.0).unwrap();
    let refused = standard.fit(&wide, 0);
    assert!(matches!(refused, Err(FitError::TooLarge { .. })));
}

#[test]
fn a_row_of_another_width_is_refused() {
    let model = Boosting::default()
        .fit(&table(50, 3, 0, |x| x[0]), 0)
        .unwrap();
    let mismatch = WidthMismatch {
        expected: 3,
        given: 2,
    };
    assert_eq!(model.predict(&[0.0; 2]), Err(mismatch));
    assert_eq!(model.flatten().predict(&[0.0; 2]), Err(mismatch));
}

#[test]
fn a_model_survives_its_file_and_a_broken_file_is_refused() {
    let model = Boosting::default()
        .fit(&table(300, 3, 6, |x| x[0] + x[1] * x[2]), 1)
        .unwrap();
    let text = serde_json::to_string(&model).unwrap();
    assert_eq!(serde_json::from_str::<Ensemble>(&text).unwrap(), model);

    let tree = |nodes: &str| format!(r#"{{"width":1,"base":0.5,"trees":[[{nodes}]]}}"#);
    let read = |text: &str| serde_json::from_str::<Ensemble>(text);
    let leaf = r#"{"leaf":{"value":2.0}}"#;
    let split = |feature: u16, low: u32, high: u32| {
        format!(r#"{{"split":{{"feature":{feature},"threshold":1.0,"low":{low},"high":{high}}}}}"#)
    };
    let sound = tree(&format!("{},{leaf},{leaf}", split(0, 1, 2)));
    assert_eq!(read(&sound).unwrap().predict(&[0.0]), Ok(2.5));
    let faults = [
        (String::new(), "has no nodes"),
        (
            format!("{},{leaf}", split(0, 0, 1)),
            "leads from node 0 to 0",
        ),
        (
            format!("{},{leaf}", split(0, 1, 2)),
            "leads from node 0 to 1 and 2",
        ),
        (
            format!("{},{leaf},{leaf}", split(1, 1, 2)),
            "asks for feature 1 of 1",
        ),
        (r#"{"leaf":{"value":1e99}}"#.to_owned(), "out of range"),
        (
            r#"{"leaf":{"value":3.4028235e38}}"#.to_owned(),
            "add up to no number",
        ),
    ];
    for (nodes, fault) in faults {
        let refused = read(&tree(&nodes)).unwrap_err().to_string();
        assert!(refused.contains(fault), "{refused}");
    }
    let many = vec![format!("[{leaf}]"); MOST_TREES + 1].join(",");
    let many = format!(r#"{{"width":1,"base":0.5,"trees":[{many}]}}"#);
    let refused = read(&many).unwrap_err().to_string();
    assert!(refused.contains("10001 trees"), "{refused}");
    // As deep as it is long: a complete tree of that depth would not fit in memory.
    let chain = (0..40).flat_map(|i| [split(0, 2 * i + 1, 2 * i + 2), leaf.to_owned()]);
    let nodes: Vec<String> = chain.chain([leaf.to_owned()]).collect();
    let refused = read(&tree(&nodes.join(","))).unwrap_err().to_string();
    assert!(refused.contains("40 questions deep"), "{refused}");
}

proptest! {
    /// Any table, any settings: the flat form gives the answers of the trees, bit for bit.
    #[test]
    fn both_forms_agree_to_the_last_bit(
        rows in prop::collection::vec((prop::array::uniform3(-5_i8..5), -1e3_f32..1e3), 1..60),
        asked in prop::collection::vec(prop::array::uniform3(-6.0_f32..6.0), 1..20),
        trees in 1_usize..20,
        depth in 1_usize..8,
        seed: u64,
    ) {
        let mut table = Table::new(3);
        for (row, target) in rows {
            table.push(&row.map(f32::from), target).unwrap();
        }
        let settings = Boosting { trees, depth, leaf_weight: 1.0, ..Boosting::default() };
        let model = settings.fit(&table, seed).unwrap();
        let flat = model.flatten();
        prop_assert!(model.depth() <= depth);
        for row in asked {
            let (slow, fast) = (model.predict(&row).unwrap(), flat.predict(&row).unwrap());
            prop_assert_eq!(slow.to_bits(), fast.to_bits());
        }
    }
}

#[test]
fn a_share_is_drawn_evenly_and_in_order() {
    let mut rng = Pcg64::seed_from_u64(9);
    let mut seen = [0; 10];
    for _ in 0..1000 {
        let drawn = draw(&mut rng, 10, 0.3);
        assert_eq!(drawn.len(), 3);
        assert!(drawn.is_sorted());
        for index in drawn {
            seen[index as usize] += 1;
        }
    }
    assert!(
        seen.iter().all(|count| (240..360).contains(count)),
        "{seen:?}"
    );
    assert_eq!(draw(&mut rng, 4, 1.0), [0, 1, 2, 3]);
    assert_eq!(draw(&mut rng, 4, 0.001).len(), 1);
}
