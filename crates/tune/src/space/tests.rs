use std::collections::HashSet;

use proptest::prelude::*;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::*;

const NONE: &[&str] = &[];

fn blocks() -> Space {
    Space::new(
        vec![
            Parameter::new("x", [1, 2, 4, 8, 16, 32]),
            Parameter::new("y", [1, 2, 4, 8]),
            Parameter::new("pad", [false, true]),
            Parameter::new("mode", ["fast", "exact"]),
        ],
        &[
            "8 <= x * y <= 64",
            "not pad or x % 32 != 0",
            "mode == 'fast' or y > 1",
        ],
    )
    .unwrap()
}

/// Allowed ones, by asking every point.
fn by_force(space: &Space) -> Vec<Configuration> {
    let all = (0..space.points()).map(|index| space.at(index).unwrap());
    all.filter(|one| space.allows(one)).collect()
}

#[test]
fn walking_finds_what_asking_every_point_finds() {
    let space = blocks();
    let found: Vec<Configuration> = space.configurations().collect();
    assert_eq!(found, by_force(&space));
    assert!(found.len() > 20 && (found.len() as u128) < space.points());
    assert_eq!(space.list(found.len()), Some(found.clone()));
    assert_eq!(space.list(found.len() - 1), None);
}

#[test]
fn numbers_and_configurations_are_one_to_one() {
    let space = blocks();
    let mut seen = HashSet::new();
    for index in 0..space.points() {
        let configuration = space.at(index).unwrap();
        assert_eq!(space.index(&configuration), Some(index));
        assert!(seen.insert(configuration));
    }
    assert_eq!(space.at(space.points()), None);
    assert_eq!(space.index(&Configuration::new([0, 0])), None);
    assert_eq!(space.index(&Configuration::new([6, 0, 0, 0])), None);
}

#[test]
fn samples_are_allowed_and_each_one_comes_as_often() {
    let space = blocks();
    let allowed = by_force(&space);
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut counts = std::collections::HashMap::new();
    let draws = 200 * allowed.len();
    for _ in 0..draws {
        *counts
            .entry(space.sample(&mut random).unwrap())
            .or_insert(0_usize) += 1;
    }
    assert_eq!(counts.len(), allowed.len());
    for (configuration, count) in counts {
        assert!(space.allows(&configuration));
        assert!(
            (120..280).contains(&count),
            "{count} of {}",
            space.describe(&configuration)
        );
    }
}

#[test]
fn neighbours_differ_in_one_parameter() {
    let space = blocks();
    for of in space.configurations() {
        for which in [Neighbourhood::Adjacent, Neighbourhood::OneChange] {
            let found: HashSet<Configuration> = space.neighbours(&of, which).into_iter().collect();
            let expected = by_force(&space).into_iter().filter(|other| {
                let steps = of
                    .places()
                    .iter()
                    .zip(other.places())
                    .map(|(a, b)| a.abs_diff(*b));
                let changed: Vec<u16> = steps.filter(|step| *step > 0).collect();
                changed.len() == 1 && (which == Neighbourhood::OneChange || changed[0] == 1)
            });
            assert_eq!(found, expected.collect(), "{}", space.describe(&of));
        }
    }
}

/// 10 parameters of 16 values: 1.1e12 points.
fn huge(restrictions: &[&str]) -> Space {
    let parameter = |slot: i32| Parameter::new(format!("p{slot}"), (1..=16).collect::<Vec<i32>>());
    Space::new((0..10).map(parameter).collect(), restrictions).unwrap()
}

#[test]
fn a_space_of_a_million_million_points_is_walked_and_sampled() {
    let space = huge(&["p0 * p1 <= 32", "p8 + p9 > 4"]);
    assert_eq!(space.points(), 1 << 40);
    assert_eq!(space.configurations().take(1000).count(), 1000);
    assert_eq!(space.list(100_000), None);
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let drawn: HashSet<Configuration> =
        (0..100).filter_map(|_| space.sample(&mut random)).collect();
    assert_eq!(drawn.len(), 100);
    assert!(drawn.iter().all(|one| space.allows(one)));
}

#[test]
fn rare_configurations_are_sampled_all_the_same() {
    // One in 65 000, which draws of whole configurations do not meet.
    let space = huge(&["p0 == 3", "p1 == p0 + 1", "p2 == 2 * p1", "p3 == p2 - p0"]);
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let drawn: HashSet<Configuration> = (0..50).filter_map(|_| space.sample(&mut random)).collect();
    assert!(drawn.len() > 10, "{}", drawn.len());
    assert!(drawn.iter().all(|one| space.allows(one)));
}

#[test]
fn the_first_configuration_is_found_where_a_walk_would_not_end() {
    // The first parameter and the last: a walk in order binds all between them before it sees that 1 times anything is too little.
    let space = huge(&["p0 * p9 >= 200"]);
    let first = space.first().unwrap();
    assert!(space.allows(&first));
    // As early as may be: 13 is the first that works with 16, and nothing else is restricted.
    assert_eq!(first.places(), [12, 0, 0, 0, 0, 0, 0, 0, 0, 15]);
    assert_eq!(space.first().unwrap(), first, "always the same");
    // Where the walk gets there, it is the first in order.
    assert_eq!(huge(&["p0 * p9 >= 16"]).first().unwrap().places()[9], 15);
    let mut random = Pcg64Mcg::seed_from_u64(1);
    assert!((0..100).all(|_| space.sample(&mut random).is_some()));
    // Of 10^12 points none: two parameters show it.
    assert_eq!(huge(&["p0 * p9 >= 300"]).first(), Err(NoneAllowed::Empty));
    // All ten would have to be looked at, which is given up and said.
    let sum = "p0 + p1 + p2 + p3 + p4 + p5 + p6 + p7 + p8 + p9 > 160";
    let none = huge(&[sum]).first().unwrap_err();
    assert!(matches!(none, NoneAllowed::NotFound { tries } if tries >= 2_000_000));
    assert!(
        none.to_string()
            .contains("no allowed configuration found in")
    );
    let empty = Space::new(vec![Parameter::new("x", [1, 2, 3])], &["x > 3"]).unwrap();
    assert_eq!(empty.first(), Err(NoneAllowed::Empty));
}

#[test]
fn an_empty_space_has_nothing() {
    let space = Space::new(vec![Parameter::new("x", [1, 2, 3])], &["x > 3"]).unwrap();
    assert_eq!(space.configurations().next(), None);
    assert_eq!(space.sample(&mut Pcg64Mcg::seed_from_u64(1)), None);
    assert_eq!(space.list(10), Some(Vec::new()));
    // Dividing by zero allows nothing.
    let space = Space::new(vec![Parameter::new("x", [0])], &["1 / x > 0"]).unwrap();
    assert_eq!(space.configurations().next(), None);
    let listed = Space::listed(vec![Parameter::new("x", [1])], Vec::new()).unwrap();
    assert_eq!(listed.sample(&mut Pcg64Mcg::seed_from_u64(1)), None);
}

#[test]
fn a_list_allows_what_is_on_it() {
    let parameters = vec![Parameter::new("x", [1, 2, 3]), Parameter::new("y", [1, 2])];
    let on = [[0, 0], [2, 1], [0, 1], [2, 1]].map(Configuration::new);
    let space = Space::listed(parameters.clone(), on.to_vec()).unwrap();
    assert_eq!(space.configurations().collect::<Vec<_>>(), on[..3]);
    assert_eq!(
        (space.place(&on[1]), space.place(&on[3])),
        (Some(1), Some(1))
    );
    assert!(!space.allows(&Configuration::new([1, 0])));
    assert_eq!(
        space.neighbours(&on[0], Neighbourhood::OneChange),
        [on[2].clone()]
    );
    let outside = Space::listed(parameters, vec![Configuration::new([3, 0])]);
    assert!(matches!(outside, Err(SpaceError::NotAPoint(_))));
}

#[test]
fn values_lead_to_configurations_and_back() {
    let space = blocks();
    let values: [Value; 4] = [16.into(), 2.0.into(), true.into(), "exact".into()];
    let found = space.configuration(&values).unwrap();
    assert_eq!(space.describe(&found), "x=16, y=2, pad=True, mode=exact");
    assert_eq!(space.configuration(&values[..3]), None);
    assert_eq!(
        space.configuration(&[3.into(), 1.into(), true.into(), "fast".into()]),
        None
    );
}

#[test]
fn what_is_no_space_is_refused() {
    let one = || Parameter::new("x", [1, 2]);
    let refused = |parameters: Vec<Parameter>, restrictions: &[&str]| {
        Space::new(parameters, restrictions)
            .unwrap_err()
            .to_string()
    };
    assert!(refused(Vec::new(), NONE).contains("at least one parameter"));
    assert!(refused(vec![Parameter::new("x", [] as [i32; 0])], NONE).contains("`x` has no values"));
    assert!(refused(vec![one(), one()], NONE).contains("two parameters are called `x`"));
    assert!(refused(vec![Parameter::new("x", [1, 1])], NONE).contains("value 1 twice"));
    assert!(refused(vec![Parameter::new("x", [f64::NAN])], NONE).contains("not a finite number"));
    assert!(refused(vec![one()], &["y > 1"]).contains("no parameter is called `y`"));
    let words = Parameter::new("word", ["a"]);
    assert!(refused(vec![words], &["word * 2 > 1"]).contains("cannot be computed"));
    let many = |slot: i32| Parameter::new(format!("p{slot}"), (0..1000).collect::<Vec<i32>>());
    assert!(refused((0..13).map(many).collect(), NONE).contains("2^127"));
}

proptest! {
    #[test]
    fn whatever_is_restricted_walks_and_samples_agree(
        sizes in prop::collection::vec(1_usize..5, 1..5),
        limit in 0_i64..20,
        divisor in 1_i64..4,
        seed: u64,
    ) {
        let parameters = sizes.iter().enumerate().map(|(slot, size)| {
            Parameter::new(format!("p{slot}"), (1..=*size as i64).collect::<Vec<i64>>())
        });
        let names: Vec<String> = (0..sizes.len()).map(|slot| format!("p{slot}")).collect();
        let restrictions = [
            format!("{} <= {limit}", names.join(" + ")),
            format!("p0 % {divisor} == 0 or {} > 2", names.join(" * ")),
        ];
        let space = Space::new(parameters.collect(), &restrictions).unwrap();
        let found: Vec<Configuration> = space.configurations().collect();
        prop_assert_eq!(&found, &by_force(&space));
        let drawn = space.sample(&mut Pcg64Mcg::seed_from_u64(seed));
        prop_assert_eq!(drawn.is_some(), !found.is_empty());
        prop_assert!(drawn.is_none_or(|drawn| found.contains(&drawn)));
    }
}
