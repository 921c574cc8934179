use kernelwise_measure::ScriptedClock;

use super::*;

/// x from 1 to 12, y from 1 to 10; every seventh fails; the times have one valley.
fn recorded(name: &str, device: &str, scale: f64) -> Recorded {
    let mut rows = Vec::new();
    for x in 1..=12_i32 {
        for y in 1..=10_i32 {
            let time = match (x * 10 + y) % 7 {
                0 => "\"CompilationFailedConfig\"".to_owned(),
                _ => (scale * f64::from(1 + (x - 5).pow(2) + 2 * (y - 3).abs())).to_string(),
            };
            rows.push(format!(
                "\"{x},{y}\": {{\"time\": {time}, \"compile_time\": 10}}"
            ));
        }
    }
    let list = |last: i32| format!("{:?}", (1..=last).collect::<Vec<i32>>());
    let text = format!(
        "{{\"device_name\": \"{device}\", \"tune_params_keys\": [\"x\", \"y\"], \
         \"tune_params\": {{\"x\": {}, \"y\": {}}}, \"cache\": {{{}}}}}",
        list(12),
        list(10),
        rows.join(",")
    );
    Recorded {
        name: name.to_owned(),
        record: Arc::new(Record::read(text.as_bytes()).unwrap()),
    }
}

fn settings(strategy: Strategy, repeats: usize) -> Settings {
    Settings {
        strategy,
        repeats,
        budgets: vec![5, 20, 500],
        ..Settings::default()
    }
}

#[test]
fn random_search_has_the_mean_that_was_computed() {
    let spaces = [recorded("a", "", 1.0)];
    let figures = replay(
        &spaces,
        &settings(Strategy::Random, 400),
        &ScriptedClock::new(),
    )
    .unwrap();
    for (budget, fraction) in &figures.spaces[0].budgets {
        let off = (fraction.fraction_of_optimum - fraction.random_exact).abs();
        assert!(
            off <= 4.0 * fraction.standard_error,
            "{budget}: {fraction:?}"
        );
    }
    // More than there are: all of them.
    assert_eq!(figures.mean[&500].fraction_of_optimum, 1.0);
    assert!((figures.mean[&500].random_exact - 1.0).abs() < 1e-12);
    assert!(figures.mean[&5].standard_error > 0.0);
    assert_eq!(
        (figures.spaces[0].configurations, figures.spaces[0].failing),
        (120, 17)
    );
}

#[test]
fn expectation_by_hand() {
    // Times 1 and 2, one failure; one draw of three: (1 + 1/2 + 0) / 3.
    let text = r#"{"tune_params_keys": ["x"], "tune_params": {"x": [1, 2, 3]},
        "cache": {"1": {"time": 1.0}, "2": {"time": 2.0}, "3": {"time": "InvalidConfig"}}}"#;
    let record = Record::read(text.as_bytes()).unwrap();
    assert!((random_exact(&record, 1) - 0.5).abs() < 1e-12);
    // Two of three: the best is among them in two cases, otherwise half.
    assert!((random_exact(&record, 2) - (2.0 + 0.5) / 3.0).abs() < 1e-12);
    assert!((random_exact(&record, 9) - 1.0).abs() < 1e-12);
}

#[test]
fn figures_do_not_depend_on_threads_and_are_written() {
    let spaces = [
        recorded("a", "", 1.0),
        recorded("b", "", 3.0),
        recorded("c", "", 0.5),
    ];
    let alone = replay(
        &spaces,
        &settings(Strategy::Default, 3),
        &ScriptedClock::new(),
    )
    .unwrap();
    let together = Settings {
        threads: 3,
        ..settings(Strategy::Default, 3)
    };
    assert_eq!(
        replay(&spaces, &together, &ScriptedClock::new()).unwrap(),
        alone
    );
    assert!(alone.mean[&20].fraction_of_optimum > alone.mean[&20].random_exact);
    let json = serde_json::to_value(&alone).unwrap();
    assert_eq!(json["spaces"][1]["name"], "b");
    assert_eq!(json["strategy"], "default");
    assert!(json["spaces"][0]["budgets"]["20"]["fraction_of_optimum"].is_number());
    assert!(json["mean"]["5"]["random_exact"].is_number() && json["cpu_us_per_eval"].is_number());
}

#[test]
fn a_record_does_not_help_itself_under_any_name() {
    let own = recorded("a", "Acme 1", 1.0);
    let copy = Recorded {
        name: "copy of a".to_owned(),
        ..own.clone()
    };
    let other = recorded("b", "Acme 2", 3.0);
    let with = |warm: Vec<Recorded>| {
        let settings = Settings {
            warm,
            ..settings(Strategy::Default, 3)
        };
        replay(std::slice::from_ref(&own), &settings, &ScriptedClock::new()).unwrap()
    };
    let cold = with(Vec::new());
    assert_eq!(with(vec![own.clone(), copy]), cold);
    let warm = with(vec![own.clone(), other]);
    assert_eq!((warm.spaces[0].warm, cold.spaces[0].warm), (1, 0));
    // The other device has the same taste: its best is among the first five, and all around it is good.
    assert!(
        warm.first > 0.3 && warm.mean[&5].fraction_of_optimum == 1.0,
        "{warm:?}"
    );
}

#[test]
fn what_cannot_be_replayed_is_refused() {
    let clock = ScriptedClock::new();
    let spaces = [recorded("a", "", 1.0)];
    let usual = settings(Strategy::Random, 1);
    assert_eq!(replay(&[], &usual, &clock), Err(ReplayError::NoSpaces));
    for budgets in [Vec::new(), vec![5, 0]] {
        let settings = Settings {
            budgets,
            ..usual.clone()
        };
        assert_eq!(
            replay(&spaces, &settings, &clock),
            Err(ReplayError::Budgets)
        );
    }
    let settings = Settings {
        repeats: 0,
        ..usual.clone()
    };
    assert_eq!(
        replay(&spaces, &settings, &clock),
        Err(ReplayError::NoRepeats)
    );
    let text = r#"{"tune_params_keys": ["x"], "tune_params": {"x": [1]}, "cache": {"1": {"time": "InvalidConfig"}}}"#;
    let record = Arc::new(Record::read(text.as_bytes()).unwrap());
    let broken = Recorded {
        name: "broken".to_owned(),
        record,
    };
    assert_eq!(
        replay(&[broken], &usual, &clock),
        Err(ReplayError::NothingWorks("broken".to_owned()))
    );
}
