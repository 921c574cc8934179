use std::collections::HashSet;
use std::sync::Arc;

use kernelwise_measure::ScriptedClock;
use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq, proptest};

use super::*;
use crate::space::Parameter;

const POWERS: [i32; 6] = [1, 2, 4, 8, 16, 32];

fn blocks() -> Arc<Space> {
    let space = Space::new(
        vec![
            Parameter::new("x", POWERS),
            Parameter::new("y", POWERS),
            Parameter::new("tile", [1, 2, 3, 4]),
            Parameter::new("pad", [false, true]),
        ],
        &["4 <= x * y <= 256", "not pad or tile > 1"],
    );
    Arc::new(space.unwrap())
}

/// Best for 64 threads in rows of 16, tiles of 3; blocks of more than 128 fail.
fn kernel(space: &Space, configuration: &Configuration) -> Outcome {
    let at = |slot| {
        space
            .value(configuration, slot)
            .and_then(crate::space::Value::number)
            .unwrap()
    };
    let (x, y, tile, pad) = (at(0), at(1), at(2), at(3));
    if x * y > 128.0 {
        return Outcome::failed().costing(0.5);
    }
    let threads = ((x * y).log2() - 6.0).abs();
    let time = 1e-3
        * (1.0
            + 0.4 * threads
            + 0.2 * (x.log2() - 4.0).abs()
            + 0.3 * (tile - 3.0).abs()
            + 0.1 * pad);
    Outcome::measured(time).costing(1.0)
}

fn search(strategy: Strategy, space: &Arc<Space>, seed: u64) -> Box<dyn Search> {
    strategy.search(space, seed, &Knowledge::default())
}

fn run_kernel(strategy: Strategy, budget: Budget, seed: u64, past: &[Evaluation]) -> Report {
    let space = blocks();
    let mut search = search(strategy, &space, seed);
    let evaluate = &mut |configuration: &Configuration| kernel(&space, configuration);
    run(&mut *search, budget, past, &ScriptedClock::new(), evaluate).unwrap()
}

#[test]
fn every_strategy_finds_all_there_is_and_nothing_twice() {
    let space = blocks();
    let all: HashSet<Configuration> = space.configurations().collect();
    for strategy in Strategy::ALL {
        let report = run_kernel(strategy, Budget::default(), 1, &[]);
        let evaluated = report
            .evaluations
            .iter()
            .map(|one| one.configuration.clone());
        let different: HashSet<Configuration> = evaluated.collect();
        assert_eq!(
            different.len(),
            report.evaluations.len(),
            "{strategy} repeats itself"
        );
        assert_eq!(different, all, "{strategy}");
        assert_eq!(report.stopped, Stopped::Nothing, "{strategy}");
        let (best, time) = report.best.unwrap();
        assert_eq!(
            (space.describe(&best).as_str(), time),
            ("x=16, y=4, tile=3, pad=False", 1e-3)
        );
    }
}

#[test]
fn strategies_that_learn_beat_chance() {
    let mean = |strategy| {
        let best = |seed| {
            run_kernel(strategy, Budget::evaluations(25), seed, &[])
                .best
                .unwrap()
                .1
        };
        (0..20).map(best).sum::<f64>() / 20.0
    };
    let random = mean(Strategy::Random);
    assert!(
        mean(Strategy::Default) < 1.1e-3,
        "{}",
        mean(Strategy::Default)
    );
    for strategy in [
        Strategy::Default,
        Strategy::Model,
        Strategy::Local,
        Strategy::Genetic,
        Strategy::Annealing,
    ] {
        let found = mean(strategy);
        assert!(found < random, "{strategy} {found} random {random}");
    }
}

#[test]
fn budgets_are_kept() {
    for strategy in Strategy::ALL {
        let report = run_kernel(strategy, Budget::evaluations(17), 3, &[]);
        assert_eq!(
            (report.evaluations.len(), report.stopped),
            (17, Stopped::Evaluations)
        );
    }
    let seconds = Budget {
        seconds: Some(10.2),
        evaluations: None,
    };
    let report = run_kernel(Strategy::Random, seconds, 3, &[]);
    assert_eq!(report.stopped, Stopped::Seconds);
    // The last one may run over, by no more than itself.
    assert!((10.2..11.2).contains(&report.seconds), "{}", report.seconds);
    let mut search = search(Strategy::Random, &blocks(), 1);
    let none = Session::new(&mut *search, Budget::evaluations(0), &[]);
    assert_eq!(none.err(), Some(BudgetError::NoEvaluations));
    for wrong in [0.0, -1.0, f64::NAN] {
        let seconds = Some(wrong);
        let refused = Session::new(
            &mut *search,
            Budget {
                evaluations: None,
                seconds,
            },
            &[],
        );
        assert!(matches!(refused.err(), Some(BudgetError::Seconds(_))));
    }
}

#[test]
fn what_does_not_tell_its_cost_is_timed() {
    let space = blocks();
    let clock = ScriptedClock::new();
    let mut search = search(Strategy::Random, &space, 1);
    let budget = Budget {
        evaluations: None,
        seconds: Some(1.0),
    };
    let report = run(&mut *search, budget, &[], &clock, &mut |_| {
        clock.advance(300_000_000);
        Outcome::measured(1.0)
    });
    let report = report.unwrap();
    assert_eq!(report.evaluations.len(), 4);
    assert!((report.seconds - 1.2).abs() < 1e-9);
}

#[test]
fn where_everything_fails_the_budget_is_spent_and_nothing_found() {
    let space = blocks();
    for strategy in Strategy::ALL {
        let mut search = search(strategy, &space, 1);
        let report = run(
            &mut *search,
            Budget::evaluations(40),
            &[],
            &ScriptedClock::new(),
            &mut |_| Outcome::failed(),
        );
        let report = report.unwrap();
        assert_eq!(
            (report.best, report.evaluations.len()),
            (None, 40),
            "{strategy}"
        );
    }
}

#[test]
fn times_that_are_none_count_as_failures() {
    let space = blocks();
    for wrong in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
        let mut search = search(Strategy::Default, &space, 1);
        let report = run(
            &mut *search,
            Budget::evaluations(30),
            &[],
            &ScriptedClock::new(),
            &mut |_| Outcome::measured(wrong),
        );
        assert_eq!(report.unwrap().best, None);
    }
}

#[test]
fn an_empty_space_ends_at_once() {
    let space = Space::new(vec![Parameter::new("x", [1, 2])], &["x > 2"]).unwrap();
    let space = Arc::new(space);
    for strategy in Strategy::ALL {
        let mut search = search(strategy, &space, 1);
        let mut session = Session::new(&mut *search, Budget::evaluations(5), &[]).unwrap();
        assert_eq!(session.step(), Step::Done(Stopped::Nothing), "{strategy}");
    }
}

#[test]
fn a_single_configuration_is_found() {
    let space = Arc::new(Space::new(vec![Parameter::new("x", [7])], &[] as &[&str]).unwrap());
    for strategy in Strategy::ALL {
        let mut search = search(strategy, &space, 1);
        let report = run(
            &mut *search,
            Budget::evaluations(5),
            &[],
            &ScriptedClock::new(),
            &mut |_| Outcome::measured(2.0),
        );
        let report = report.unwrap();
        assert_eq!(
            (report.evaluations.len(), report.best.unwrap().1),
            (1, 2.0),
            "{strategy}"
        );
    }
}

#[test]
fn huge_spaces_are_searched() {
    let values: Vec<i32> = (1..=16).collect();
    let parameter = |slot: usize| Parameter::new(format!("p{slot}"), values.clone());
    let space = Arc::new(Space::new((0..10).map(parameter).collect(), &["p0 * p1 <= 64"]).unwrap());
    let distance = |one: &Configuration| {
        one.places()
            .iter()
            .map(|place| f64::from(place.abs_diff(5)))
            .sum::<f64>()
    };
    for strategy in Strategy::ALL {
        let mut search = search(strategy, &space, 1);
        let report = run(
            &mut *search,
            Budget::evaluations(120),
            &[],
            &ScriptedClock::new(),
            &mut |one| {
                assert!(space.allows(one), "{strategy}");
                Outcome::measured(1.0 + distance(one))
            },
        );
        let (_, time) = report.unwrap().best.unwrap();
        if strategy == Strategy::Default {
            assert!(time < 20.0, "{time}");
        }
    }
}

#[test]
fn several_evaluators_are_kept_busy_with_different_configurations() {
    let space = blocks();
    for strategy in Strategy::ALL {
        let mut search = search(strategy, &space, 5);
        let mut session = Session::new(&mut *search, Budget::evaluations(40), &[]).unwrap();
        let mut out: Vec<Configuration> = Vec::new();
        loop {
            let wait = match session.step() {
                Step::Evaluate(next) => {
                    assert!(!out.contains(&next), "{strategy}");
                    out.push(next);
                    false
                }
                Step::Wait => true,
                Step::Done(_) => break,
            };
            assert!(!out.is_empty(), "{strategy} waits for nothing");
            if wait || out.len() == 4 {
                // The last out comes back first.
                while let Some(one) = out.pop() {
                    session.record(&one, kernel(&space, &one));
                }
            }
        }
        let evaluated: HashSet<&Configuration> = session
            .evaluations()
            .iter()
            .map(|one| &one.configuration)
            .collect();
        assert_eq!(
            (evaluated.len(), session.evaluations().len()),
            (40, 40),
            "{strategy}"
        );
    }
}

#[test]
fn lucky_ones_are_measured_again() {
    let space = Arc::new(
        Space::new(
            vec![Parameter::new("x", (0..16).collect::<Vec<i32>>())],
            &[] as &[&str],
        )
        .unwrap(),
    );
    let mut search = search(Strategy::Exhaustive, &space, 1);
    let mut seen = HashSet::new();
    let report = run(
        &mut *search,
        Budget::evaluations(64),
        &[],
        &ScriptedClock::new(),
        &mut |one| {
            let first = seen.insert(one.clone());
            let time = match (one.places()[0], first) {
                // Lucky once.
                (3, true) => 0.95,
                (3, false) => 1.2,
                (5, _) => 1.0,
                _ => 2.0,
            };
            Outcome {
                spread: 0.05,
                ..Outcome::measured(time)
            }
        },
    );
    let report = report.unwrap();
    assert_eq!(report.evaluations.len(), 16 + 4);
    assert_eq!(report.best, Some((Configuration::new([5]), 1.0)));
}

#[test]
fn it_stops_when_more_costs_more_than_it_gains() {
    let space = blocks();
    let evaluations = |runs| {
        let knowledge = Knowledge {
            runs,
            ..Knowledge::default()
        };
        let mut search = Strategy::Default.search(&space, 1, &knowledge);
        let evaluate = &mut |one: &Configuration| kernel(&space, one);
        let report = run(
            &mut *search,
            Budget::evaluations(60),
            &[],
            &ScriptedClock::new(),
            evaluate,
        )
        .unwrap();
        (report.evaluations.len(), report.stopped)
    };
    assert_eq!(evaluations(None), (60, Stopped::Evaluations));
    // A millisecond each, a second per evaluation: ten runs are never worth one, a million are.
    let (few, why) = evaluations(Some(10.0));
    assert!(few < 20 && why == Stopped::NotWorth, "{few}");
    assert!(evaluations(Some(1e6)).0 > few);
}

/// Ten parameters of 16 values, of which the first and the last are restricted together.
fn far_apart(restriction: &str) -> Arc<Space> {
    let values: Vec<i32> = (1..=16).collect();
    let parameter = |slot: usize| Parameter::new(format!("p{slot}"), values.clone());
    Arc::new(Space::new((0..10).map(parameter).collect(), &[restriction]).unwrap())
}

#[test]
fn restrictions_far_apart_do_not_stop_a_search() {
    let space = far_apart("p0 * p9 >= 200");
    for strategy in Strategy::ALL {
        let mut search = search(strategy, &space, 1);
        let mut asked = HashSet::new();
        let report = run(
            &mut *search,
            Budget::evaluations(40),
            &[],
            &ScriptedClock::new(),
            &mut |one| {
                assert!(space.allows(one) && asked.insert(one.clone()), "{strategy}");
                Outcome::measured(1.0 + f64::from(one.places()[1]))
            },
        );
        assert_eq!(report.unwrap().stopped, Stopped::Evaluations, "{strategy}");
    }
    let none = far_apart("p0 * p9 >= 300");
    for strategy in [Strategy::Exhaustive, Strategy::Random, Strategy::Default] {
        assert_eq!(search(strategy, &none, 1).ask(), None, "{strategy}");
    }
}

#[test]
fn a_second_answer_takes_the_place_of_the_first() {
    let space = Arc::new(
        Space::new(
            vec![Parameter::new("x", (0..64).collect::<Vec<i32>>())],
            &[] as &[&str],
        )
        .unwrap(),
    );
    let time = |one: &Configuration| 1.0 + 0.02 * f64::from(one.places()[0].abs_diff(40));
    for strategy in [Strategy::Default, Strategy::Model, Strategy::Local] {
        let mut search = search(strategy, &space, 1);
        // Lucky once where nothing is good: everybody would look around there.
        let lucky = Configuration::new([2]);
        search.tell(&lucky, &Outcome::failed());
        search.tell(&lucky, &Outcome::measured(0.01));
        search.tell(&lucky, &Outcome::measured(time(&lucky)));
        let mut best = f64::INFINITY;
        for _ in 0..25 {
            let next = search.ask().unwrap();
            best = best.min(time(&next));
            search.tell(&next, &Outcome::measured(time(&next)));
        }
        assert!(best < 1.1, "{strategy}: {best}");
    }
}

#[test]
fn what_was_spent_before_is_not_spent_again() {
    let budget = Budget {
        evaluations: Some(40),
        seconds: Some(10.2),
    };
    let first = run_kernel(Strategy::Default, budget, 3, &[]);
    assert_eq!(first.stopped, Stopped::Seconds);
    let second = run_kernel(Strategy::Default, budget, 3, &first.evaluations);
    assert!(second.evaluations.len() > first.evaluations.len() + 5);
    assert!(
        second.seconds > first.seconds + 5.0,
        "what both cost is told"
    );
    // Evaluations add up: in the end there are as many as were asked for.
    let mut past = second.evaluations;
    for _ in 0..10 {
        past = run_kernel(Strategy::Default, budget, 3, &past).evaluations;
    }
    assert_eq!(past.len(), 40);
}

/// What another device with the same taste, or the opposite one, would have recorded.
fn donor(space: &Arc<Space>, device: &str, taste: f64) -> Arc<Record> {
    let mut lines = Vec::new();
    for one in space.configurations() {
        let key: Vec<String> = space.values(&one).map(ToString::to_string).collect();
        let time = kernel(space, &one)
            .time
            .map_or("\"RuntimeFailedConfig\"".to_owned(), |time| {
                (time * 1e3).powf(taste).to_string()
            });
        lines.push(format!("\"{}\": {{\"time\": {time}}}", key.join(",")));
    }
    let names: Vec<&str> = space
        .parameters()
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    let values: std::collections::BTreeMap<&str, _> = space
        .parameters()
        .iter()
        .map(|one| (one.name.as_str(), &one.values))
        .collect();
    let text = format!(
        "{{\"device_name\": \"{device}\", \"tune_params_keys\": {}, \"tune_params\": {}, \"cache\": {{{}}}}}",
        serde_json::to_string(&names).unwrap(),
        serde_json::to_string(&values).unwrap(),
        lines.join(",")
    );
    Arc::new(Record::read(text.as_bytes()).unwrap())
}

fn found_with(records: Vec<Arc<Record>>, device: &str, budget: u64) -> f64 {
    let space = blocks();
    let knowledge = Knowledge {
        records,
        device: device.to_owned(),
        runs: None,
    };
    let best = |seed| {
        let mut search = Strategy::Default.search(&space, seed, &knowledge);
        let evaluate = &mut |one: &Configuration| kernel(&space, one);
        let report = run(
            &mut *search,
            Budget::evaluations(budget),
            &[],
            &ScriptedClock::new(),
            evaluate,
        );
        report.unwrap().best.map_or(f64::INFINITY, |(_, time)| time)
    };
    (0..5).map(best).sum::<f64>() / 5.0
}

#[test]
fn records_of_others_help_from_the_first_evaluation() {
    let space = blocks();
    let friend = donor(&space, "Acme 1", 0.7);
    assert!(found_with(vec![friend.clone()], "", 1) < 1.5e-3);
    assert!(found_with(vec![friend.clone()], "", 5) < 1.11e-3);
    // Of the same maker, it outweighs two others.
    let foe = donor(&space, "Other 1", -1.0);
    let mixed = vec![foe.clone(), friend, foe.clone()];
    assert!(found_with(mixed, "Acme 2", 1) < 1.5e-3);
    // And of one maker, the one whose units are alike: an RTX A4000 is more of an A6000 than two A100 are.
    let friend = donor(&space, "NVIDIA RTX A4000", 0.7);
    let foe_of_it = donor(&space, "NVIDIA A100-PCIE-40GB", -1.0);
    let mixed = vec![foe_of_it.clone(), friend, foe_of_it];
    assert!(found_with(mixed.clone(), "NVIDIA RTX A6000", 1) < 1.5e-3);
    assert!(found_with(mixed, "NVIDIA A100-SXM4-80GB", 1) > 2.0e-3);
    // Misleading ones are found out.
    assert!(found_with(vec![foe], "", 1) > 2.0e-3);
    let misled = found_with(vec![donor(&space, "", -1.0)], "", 40);
    assert!(misled < 1.12e-3, "{misled}");
}

/// A space with tiles of some sizes.
fn tiles(sizes: &[i32]) -> Arc<Space> {
    let parameters = vec![
        Parameter::new("x", POWERS),
        Parameter::new("y", POWERS),
        Parameter::new("tile", sizes.to_vec()),
        Parameter::new("pad", [false, true]),
    ];
    let space = Space::new(parameters, &["4 <= x * y <= 256", "not pad or tile > 1"]);
    Arc::new(space.unwrap())
}

#[test]
fn what_no_record_has_is_expected_to_be_like_what_is_next_to_it() {
    let space = blocks();
    let knowledge = Knowledge {
        records: vec![donor(&tiles(&[1, 2, 4]), "", 1.0)],
        ..Knowledge::default()
    };
    let mut warm = warm::Warm::new(&space, &knowledge).unwrap();
    // Tiles of 3, which the record lacks: next to them are those of 2 and 4, which take 1.3 ms where it is fastest.
    for ((x, y), time) in [((4, 2), 1.3_f64), ((0, 2), 3.7)] {
        let configuration = Configuration::new([x, y, 2, 0]);
        warm.meet(&space, &configuration);
        let expected = warm.expects(&configuration);
        let right = (time / 1.3).ln();
        assert!((expected - right).abs() < 1e-3, "{expected} {right}");
    }
    // The record does not keep the search from what it lacks.
    assert!(found_with(knowledge.records, "", 15) < 1.01e-3);
}

#[test]
fn what_stood_together_elsewhere_is_near() {
    let space = blocks();
    let knowledge = Knowledge {
        records: vec![donor(&space, "", 1.0)],
        ..Knowledge::default()
    };
    let warm = warm::Warm::new(&space, &knowledge).unwrap();
    let standing = |places: [u16; 4]| warm.standing(&Configuration::new(places));
    // The best, one that is nearly as fast, the slowest that works, and one that fails.
    assert_eq!(standing([4, 2, 2, 0]), 0.0);
    assert!(standing([4, 2, 2, 1]) < 0.2);
    assert!(standing([0, 2, 0, 0]) > 0.7);
    assert_eq!(standing([5, 3, 2, 0]), 1.0);
}

#[test]
fn the_first_is_one_that_no_record_dislikes() {
    // Three records call the first value the best and the second nearly so; one finds the first the slowest.
    let space = Arc::new(
        Space::new(
            vec![Parameter::new("kind", ["a", "b", "c", "d", "e"])],
            &[] as &[&str],
        )
        .unwrap(),
    );
    let record = |times: [f64; 5]| {
        let kinds = ["a", "b", "c", "d", "e"];
        let lines: Vec<String> = kinds
            .iter()
            .zip(times)
            .map(|(kind, time)| format!("\"{kind}\": {{\"time\": {time}}}"))
            .collect();
        let text = format!(
            r#"{{"tune_params_keys": ["kind"], "tune_params": {{"kind": ["a","b","c","d","e"]}}, "cache": {{{}}}}}"#,
            lines.join(",")
        );
        Arc::new(Record::read(text.as_bytes()).unwrap())
    };
    let (most, one) = ([1.0, 1.1, 2.0, 3.0, 4.0], [4.0, 1.1, 1.0, 2.0, 3.0]);
    let mut records = vec![record(most); 3];
    records.push(record(one));
    let knowledge = Knowledge {
        records,
        ..Knowledge::default()
    };
    let mut warm = warm::Warm::new(&space, &knowledge).unwrap();
    let mut first = |cautious| warm.first(&space, cautious, |_| true).unwrap().places()[0];
    assert_eq!((first(false), first(true)), (0, 1));
}

#[test]
fn relatives_are_believed_where_strangers_are_not() {
    // A peak that stands alone, and a slower plain: what the maker's other device has is there again, what a stranger has may not be.
    let times = |x: i32, y: i32| match (x, y) {
        (20, 20) => 1.0,
        _ => 1.2 + 0.05 * f64::from((x - 5).abs() + (y - 5).abs()),
    };
    let record = landscape("Acme 1", times);
    let space = Arc::new(record.space.clone());
    let first = |device: &str| {
        let knowledge = Knowledge {
            records: vec![record.clone()],
            device: device.to_owned(),
            runs: None,
        };
        let mut warm = warm::Warm::new(&space, &knowledge).unwrap();
        let first = warm.first(&space, true, |_| true).unwrap();
        first.places().to_vec()
    };
    assert_eq!(
        (first("Acme 2"), first("Other")),
        (vec![20, 20], vec![5, 5])
    );
    // By how much it is slower counts as well as how many are faster: the second row is next to the best of all by ranks, and takes twice as long on the
    // nearest relative; the first row is the last with the other, by a thousandth.
    let near = landscape("NVIDIA RTX A4000", |x, _| {
        if x == 0 {
            1.0
        } else {
            2.0 + 0.001 * f64::from(x)
        }
    });
    let other = landscape("NVIDIA A100", |x, _| 1.0 + 1e-4 * f64::from((x + 23) % 24));
    let knowledge = Knowledge {
        records: vec![near, other],
        device: "NVIDIA RTX A6000".to_owned(),
        runs: None,
    };
    let mut warm = warm::Warm::new(&space, &knowledge).unwrap();
    let first = warm.first(&space, true, |_| true).unwrap();
    assert_eq!(first.places()[0], 0);
}

/// A record of a space of two parameters, by a time for each pair of values.
fn landscape(device: &str, time: impl Fn(i32, i32) -> f64) -> Arc<Record> {
    let pairs = (0..24).flat_map(|x| (0..24).map(move |y| (x, y)));
    let lines: Vec<String> = pairs
        .map(|(x, y)| format!("\"{x},{y}\": {{\"time\": {}}}", time(x, y)))
        .collect();
    let values: Vec<i32> = (0..24).collect();
    let text = format!(
        r#"{{"device_name": "{device}", "tune_params_keys": ["x", "y"], "tune_params": {{"x": {values:?}, "y": {values:?}}}, "cache": {{{}}}}}"#,
        lines.join(",")
    );
    Arc::new(Record::read(text.as_bytes()).unwrap())
}

/// Slower the farther from the nearest of these peaks, which have times of their own.
fn around(peaks: &[(i32, i32, f64)]) -> impl Fn(i32, i32) -> f64 {
    move |x, y| {
        let times = peaks
            .iter()
            .map(|&(px, py, time)| time * (1.0 + 0.9 * f64::from((x - px).abs() + (y - py).abs())));
        times.fold(f64::INFINITY, f64::min)
    }
}

#[test]
fn peaks_of_other_devices_are_looked_at_the_nearest_kin_first() {
    // Nothing between them is as fast, along either parameter; the last is more than twice as slow as the first.
    let kin = landscape(
        "Acme 1",
        around(&[(1, 1, 1.0), (4, 4, 1.3), (6, 6, 1.9), (7, 0, 2.1)]),
    );
    let other = landscape("Other 1", around(&[(0, 7, 1.0), (3, 2, 1.2)]));
    let knowledge = Knowledge {
        records: vec![other, kin],
        device: "Acme 2".to_owned(),
        runs: None,
    };
    let space = Arc::new(knowledge.records[0].space.clone());
    let mut warm = warm::Warm::new(&space, &knowledge).unwrap();
    let known = Configuration::new([4, 4]);
    let peaks = std::iter::from_fn(|| warm.next_peak(|one| *one != known));
    let peaks: Vec<Vec<u16>> = peaks.map(|one| one.places().to_vec()).collect();
    // Four of the maker's for one of the other, but it has only three, and one of them is known.
    assert_eq!(peaks, [[1, 1], [6, 6], [0, 7], [3, 2]]);
}

#[test]
fn a_lower_peak_of_another_device_that_is_the_highest_here_is_found_soon() {
    let there = around(&[(3, 4, 1.0), (9, 13, 1.1), (15, 8, 1.2), (21, 20, 1.9)]);
    let here = around(&[(3, 4, 1.0), (9, 13, 1.1), (15, 8, 1.2), (21, 20, 0.5)]);
    let record = landscape("", there);
    let space = Arc::new(record.space.clone());
    let knowledge = Knowledge {
        records: vec![record],
        ..Knowledge::default()
    };
    for seed in 0..10 {
        let mut search = Strategy::Default.search(&space, seed, &knowledge);
        let mut found = f64::INFINITY;
        for _ in 0..10 {
            let next = search.ask().unwrap();
            let time = here(i32::from(next.places()[0]), i32::from(next.places()[1]));
            found = found.min(time);
            search.tell(&next, &Outcome::measured(time));
        }
        assert_eq!(found, 0.5, "seed {seed}");
    }
}

#[test]
fn records_of_something_else_are_left_out() {
    let other = Arc::new(Space::new(vec![Parameter::new("z", [1, 2])], &[] as &[&str]).unwrap());
    let text = r#"{"tune_params_keys": ["z"], "tune_params": {"z": [1, 2]}, "cache": {"1": {"time": 1.0}}}"#;
    let record = Arc::new(Record::read(text.as_bytes()).unwrap());
    assert!(!fits(&blocks(), &record) && fits(&other, &record));
    let cold = found_with(Vec::new(), "", 10);
    assert_eq!(found_with(vec![record], "", 10), cold);
}

#[test]
fn names_are_read_with_a_hint() {
    for strategy in Strategy::ALL {
        assert_eq!(strategy.name().parse(), Ok(strategy));
        assert_eq!(search(strategy, &blocks(), 1).name(), strategy.name());
    }
    let error = "anealing".parse::<Strategy>().unwrap_err().to_string();
    assert!(error.contains("did you mean `annealing`?"), "{error}");
    let error = "xyz".parse::<Strategy>().unwrap_err().to_string();
    assert!(
        error.contains("There are default, model, random"),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn interrupted_it_ends_where_it_would_have_ended(which in 0..Strategy::ALL.len(), seed in 0_u64..1000, cut in 0_usize..40) {
        let strategy = Strategy::ALL[which];
        let whole = run_kernel(strategy, Budget::evaluations(40), seed, &[]);
        let resumed = run_kernel(strategy, Budget::evaluations(40), seed, &whole.evaluations[..cut]);
        prop_assert_eq!(&resumed, &whole);
        // Also from a file.
        let text = serde_json::to_string(&whole.evaluations).unwrap();
        let kept: Vec<Evaluation> = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(kept, whole.evaluations);
    }

    #[test]
    fn what_is_known_from_elsewhere_is_not_evaluated_again(which in 0..Strategy::ALL.len(), seed in 0_u64..1000) {
        let strategy = Strategy::ALL[which];
        let past = run_kernel(Strategy::Random, Budget::evaluations(10), seed + 1, &[]).evaluations;
        let report = run_kernel(strategy, Budget::evaluations(30), seed, &past);
        let different: HashSet<&Configuration> = report.evaluations.iter().map(|one| &one.configuration).collect();
        prop_assert_eq!((different.len(), report.evaluations.len()), (30, 30));
        prop_assert!(past.iter().all(|old| different.contains(&old.configuration)));
    }
}
