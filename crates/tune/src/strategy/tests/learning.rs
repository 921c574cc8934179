//! What feedback does to predictions and recommendations.

use kernelwise_types::Backend;
use kernelwise_types::units::Watts;
use proptest::prelude::{prop, prop_assert, prop_assert_eq, proptest};

use super::*;

fn factor(a: f64, b: f64) -> f64 {
    (a / b).max(b / a)
}

proptest! {
    /// Twenty times of t bring the prediction within a factor 1.2 of t, whatever the price said.
    #[test]
    fn twenty_feedbacks_bring_the_prediction_within_1_2(ln_wrong in -9.0..9.0f64, noise in 0.0..0.08f64, seed: u64) {
        let strategy = Landscape::of(&[1000.0, 1100.0]).strategy();
        let (on, t) = (workload(64), 1000.0 * ln_wrong.exp());
        let mut dice = Dice::new(seed);
        for _ in 0..20 {
            let time = t * (noise * dice.normal()).exp();
            strategy.feedback(&ran(&strategy, &on, at(0), time)).unwrap();
        }
        let predicted = strategy.predict(&on, &at(0)).unwrap();
        prop_assert!(factor(predicted.time_ns.get(), t) < 1.2, "{} for {t}", predicted.time_ns);
        prop_assert_eq!(predicted.evidence, Evidence::Measured { samples: 20 });
    }

    /// The same after many times of something else: a machine that changed is believed.
    #[test]
    fn a_change_is_learned_within_twenty(ln_wrong in -3.0..3.0f64, ln_change in -2.3..2.3f64, before in 1usize..200) {
        let strategy = Landscape::of(&[1000.0, 1100.0]).strategy();
        let on = workload(64);
        let (old, new) = (1000.0 * ln_wrong.exp(), 1000.0 * (ln_wrong + ln_change).exp());
        for time in std::iter::repeat_n(old, before).chain(std::iter::repeat_n(new, 20)) {
            strategy.feedback(&ran(&strategy, &on, at(0), time)).unwrap();
        }
        let predicted = strategy.predict(&on, &at(0)).unwrap().time_ns.get();
        prop_assert!(factor(predicted, new) < 1.2, "{predicted} for {new}");
    }

    /// Whatever was measured of a choice and its neighbours, nothing is predicted that the peak forbids.
    #[test]
    fn no_feedback_makes_a_device_faster_than_its_peak(ln_wrong in -9.0..9.0f64, times in 1usize..30) {
        let mut landscape = Landscape::of(&[1000.0, 1500.0, 900.0]);
        landscape.floor = Some(800.0);
        let strategy = landscape.strategy();
        let on = workload(64);
        for _ in 0..times {
            strategy.feedback(&ran(&strategy, &on, at(1), 1500.0 * ln_wrong.exp())).unwrap();
        }
        for x in 0..3 {
            let told = strategy.predict(&on, &at(x)).unwrap();
            prop_assert!(told.time_ns.get() >= 800.0 && told.interval_ns.low().get() >= 800.0);
            prop_assert!(told.likely_ns >= told.time_ns && told.interval_ns.high() >= told.time_ns);
        }
    }

    /// One cost model: what is expected of a recommendation, and of each alternative, is its prediction, bit for bit.
    #[test]
    fn expected_is_predicted_bit_for_bit(
        prices in prop::collection::vec(1.0..1e9f64, 2..6),
        told in prop::collection::vec((0u64..6, 1u32..4, 1.0..1e9f64), 0..30),
    ) {
        let count = prices.len() as u64;
        let strategy = Landscape::of(&prices).strategy();
        for (x, size, time) in told {
            let feedback = ran(&strategy, &workload(32 << size), at(x % count), time);
            strategy.feedback(&feedback).unwrap();
        }
        let on = workload(64);
        let said = best(&strategy, &on);
        prop_assert!(!said.alternatives.is_empty());
        for ranked in std::iter::once(&said.best).chain(&said.alternatives) {
            let predicted = strategy.predict(&on, &ranked.choice).unwrap();
            prop_assert_eq!(&ranked.expected, &predicted);
            prop_assert_eq!(ranked.expected.time_ns.get().to_bits(), predicted.time_ns.get().to_bits());
            let (low, high) = (predicted.interval_ns.low(), predicted.interval_ns.high());
            prop_assert!(low < predicted.time_ns && predicted.time_ns < high);
        }
        let likely = said.alternatives.iter().map(|ranked| ranked.expected.likely_ns.get());
        prop_assert!(likely.clone().is_sorted() && likely.clone().all(|t| t >= said.best.expected.likely_ns.get()));
    }
}

#[test]
fn parameters_follow_what_was_measured_and_back() {
    let on = workload(64);
    let tell = |strategy: &dyn TuningStrategy, times: [f64; 2]| {
        for (choice, time) in times.into_iter().enumerate() {
            let feedback = ran(strategy, &on, at(choice as u64), time);
            strategy.feedback(&feedback).unwrap();
        }
    };
    let strategy = Landscape::of(&[1000.0, 1500.0, 1600.0]).strategy();
    assert_eq!(x(&best(&strategy, &on).best.choice), 0, "by price");
    tell(&strategy, [4000.0, 1200.0]);
    assert_eq!(x(&best(&strategy, &on).best.choice), 1, "by measurement");
    // The same numbers the other way round.
    let strategy = Landscape::of(&[1000.0, 1500.0, 1600.0]).strategy();
    tell(&strategy, [1200.0, 4000.0]);
    assert_eq!(x(&best(&strategy, &on).best.choice), 0);
    // And back again, once the machine changed.
    (0..20).for_each(|_| tell(&strategy, [4000.0, 1200.0]));
    assert_eq!(x(&best(&strategy, &on).best.choice), 1);
}

#[test]
fn a_failed_choice_is_not_recommended_again() {
    let strategy = Landscape::of(&[1000.0, 1500.0]).strategy();
    let (on, other) = (workload(64), workload(128));
    let failed = |x| Feedback {
        outcome: Outcome::Failed {
            why: "wrong result".into(),
        },
        ..ran(&strategy, &on, at(x), 1.0)
    };
    strategy.feedback(&failed(0)).unwrap();
    let said = best(&strategy, &on);
    assert_eq!(x(&said.best.choice), 1);
    assert!(said.alternatives.is_empty());
    assert_eq!(
        x(&best(&strategy, &other).best.choice),
        0,
        "elsewhere it did not fail"
    );
    strategy.feedback(&failed(1)).unwrap();
    let error = strategy.tune_for_workload(&on, &quiet(), &Constraints::default());
    let Err(TuneError::Infeasible(error)) = error else {
        panic!("{error:?}")
    };
    assert_eq!(error.limit, Limit::Failures);
}

/// An untried choice of the same price is not preferred to a tried one that turned out a little slow.
#[test]
fn what_was_timed_does_not_give_way_to_what_might_be_as_good() {
    let strategy = Landscape::of(&[1000.0, 1000.0, 1000.0]).strategy();
    let on = workload(64);
    strategy
        .feedback(&ran(&strategy, &on, at(1), 1250.0))
        .unwrap();
    assert_eq!(x(&best(&strategy, &on).best.choice), 1);
    // Far slower than said is another matter.
    for _ in 0..3 {
        strategy
            .feedback(&ran(&strategy, &on, at(1), 20_000.0))
            .unwrap();
    }
    assert_ne!(x(&best(&strategy, &on).best.choice), 1);
}

/// One page fault is no reason to leave a choice that was timed fifty times; being slower from now on is.
#[test]
fn one_disturbed_call_changes_no_choice() {
    let strategy = Landscape::of(&[1000.0, 1000.0]).strategy();
    let on = workload(64);
    let tell = |x, time| {
        strategy
            .feedback(&ran(&strategy, &on, at(x), time))
            .unwrap()
    };
    for turn in 0..50 {
        tell(0, 1000.0 + 10.0 * f64::from(turn % 3));
        tell(1, 1100.0 + 10.0 * f64::from(turn % 3));
    }
    assert_eq!(x(&best(&strategy, &on).best.choice), 0);
    tell(0, 5000.0);
    let after = best(&strategy, &on);
    assert_eq!(x(&after.best.choice), 0);
    assert!(
        after.best.expected.time_ns.get() < 1050.0,
        "{}",
        after.best.expected.time_ns
    );
    for _ in 0..3 {
        tell(0, 1000.0);
    }
    // Again and again is another matter.
    for _ in 0..6 {
        tell(0, 5000.0);
    }
    assert_eq!(x(&best(&strategy, &on).best.choice), 1);
}

/// Times that were kept count as if they had been told one by one.
#[test]
fn kept_times_are_begun_from() {
    let on = workload(64);
    let told = Landscape::of(&[1000.0, 1000.0]).strategy();
    for time in [1900.0, 2000.0, 2105.0, 1990.0, 2010.0] {
        told.feedback(&ran(&told, &on, at(1), time)).unwrap();
    }
    let recalled = Landscape::of(&[1000.0, 1000.0]).strategy();
    let kept = Kept {
        samples: 5,
        mean_ln: 2000f64.ln(),
        sd_ln: 0.033,
    };
    let before = recalled.revision();
    recalled.recall(&on, &at(1), &kept).unwrap();
    assert!(recalled.revision() > before);
    for x in [0, 1] {
        let [told, recalled] = [&told, &recalled].map(|one| one.predict(&on, &at(x)).unwrap());
        assert!(factor(told.time_ns.get(), recalled.time_ns.get()) < 1.02);
        assert_eq!(told.evidence, recalled.evidence);
    }
    for wrong in [
        Kept { samples: 0, ..kept },
        Kept {
            sd_ln: f64::NAN,
            ..kept
        },
        Kept {
            mean_ln: f64::INFINITY,
            ..kept
        },
    ] {
        assert!(matches!(
            recalled.recall(&on, &at(1), &wrong),
            Err(TuneError::NoTime { .. })
        ));
    }
    assert!(recalled.recall(&on, &at(9), &kept).is_err());
}

/// A device that is slower than described is slower on workloads that never ran, too.
#[test]
fn other_workloads_learn_from_those_that_ran() {
    let strategy = Landscape::of(&[1000.0, 1500.0]).strategy();
    let fresh = strategy.predict(&workload(512), &at(0)).unwrap();
    for n in [32, 64, 96, 128, 160, 192] {
        let on = workload(n);
        let time = 3.0 * strategy.predict(&on, &at(0)).unwrap().time_ns.get();
        if n == 32 {
            strategy
                .feedback(&ran(&strategy, &on, at(0), time))
                .unwrap();
            continue;
        }
        let price = strategy.priced().price(&on, &at(0)).unwrap().time_ns.get();
        strategy
            .feedback(&ran(&strategy, &on, at(0), 3.0 * price))
            .unwrap();
    }
    let now = strategy.predict(&workload(512), &at(0)).unwrap();
    let grown = now.time_ns.get() / fresh.time_ns.get();
    assert!((2.0..3.0).contains(&grown), "{grown}");
    assert_eq!(
        now.evidence,
        Evidence::Prior {
            source: "a made-up formula".into(),
            corrected_by: 6
        }
    );
}

#[test]
fn feedback_of_another_device_is_refused() {
    let strategy = Landscape::of(&[1000.0]).strategy();
    let here = ran(&strategy, &workload(64), at(0), 900.0);
    let elsewhere = [
        Feedback {
            backend: Backend::Cuda,
            ..here.clone()
        },
        Feedback {
            device: "another".into(),
            ..here.clone()
        },
    ];
    for feedback in &elsewhere {
        let error = strategy.feedback(feedback).unwrap_err();
        assert!(matches!(error, TuneError::Elsewhere { .. }), "{error}");
    }
    let never = Feedback {
        outcome: Outcome::Ran {
            time_ns: ns(0.0),
            power: None,
        },
        ..here.clone()
    };
    assert!(matches!(
        strategy.feedback(&never),
        Err(TuneError::NoTime { .. })
    ));
    let unknown = Feedback {
        choice: at(7),
        ..here.clone()
    };
    assert!(matches!(
        strategy.feedback(&unknown),
        Err(TuneError::Infeasible(_))
    ));
    assert_eq!(
        (strategy.revision(), strategy.metrics()),
        (0, Metrics::default())
    );
    strategy.feedback(&here).unwrap();
    assert_eq!(strategy.revision(), 1);
}

#[test]
fn feedback_survives_being_written_down() {
    let strategy = Landscape::of(&[1000.0]).strategy();
    let feedback = Feedback {
        outcome: Outcome::Ran {
            time_ns: ns(123.5),
            power: Some(Watts::new(40.0).unwrap()),
        },
        ..ran(&strategy, &workload(64), at(0), 1.0)
    };
    let text = serde_json::to_string(&feedback).unwrap();
    assert!(
        text.contains(r#""backend":"cpu""#) && text.contains(r#""time_ns":123.5"#),
        "{text}"
    );
    assert_eq!(serde_json::from_str::<Feedback>(&text).unwrap(), feedback);
    let said = best(&strategy, &workload(64));
    let text = serde_json::to_string(&said).unwrap();
    assert_eq!(serde_json::from_str::<Recommendation>(&text).unwrap(), said);
}

/// Nine in ten of times that were never measured lie within their intervals, and confidence is the share it says; on a device whose errors are
/// divided among device, workload and choice in other parts than assumed.
#[test]
fn intervals_and_confidence_are_calibrated_on_what_was_not_measured() {
    let (mut within, mut near, mut sure, mut all) = (0.0, 0.0, 0.0, 0.0);
    for seed in 0..20 {
        let mut dice = Dice::new(seed);
        let strategy = Landscape::of(&[1000.0; 6]).strategy();
        let device = 0.4 * dice.normal();
        let mut held_out = Vec::new();
        for n in 1..=30 {
            let on = workload(16 * n);
            let of_workload = 0.3 * dice.normal();
            for choice in 0..6 {
                let price = strategy.priced().price(&on, &at(choice)).unwrap();
                let own = 0.15 * dice.normal();
                let true_ln = price.time_ns.get().ln() + device + of_workload + own;
                if n > 20 || choice % 3 == 0 {
                    held_out.push((on.clone(), choice, true_ln + 0.04 * dice.normal()));
                } else {
                    for _ in 0..3 {
                        let time = (true_ln + 0.04 * dice.normal()).exp();
                        strategy
                            .feedback(&ran(&strategy, &on, at(choice), time))
                            .unwrap();
                    }
                }
            }
        }
        for (on, choice, ln) in held_out {
            let said = strategy.predict(&on, &at(choice)).unwrap();
            let (low, high) = (said.interval_ns.low().get(), said.interval_ns.high().get());
            within += f64::from(u8::from(low.ln() <= ln && ln <= high.ln()));
            near += f64::from(u8::from(factor(ln.exp(), said.time_ns.get()) <= 1.2));
            sure += said.confidence.get();
            all += 1.0;
        }
    }
    let covered = within / all;
    assert!((0.85..=0.95).contains(&covered), "{covered}");
    let (near, sure) = (near / all, sure / all);
    assert!(
        (near - sure).abs() < 0.06,
        "{near} of calls, {sure} announced"
    );
}

#[test]
fn confidence_rises_with_data() {
    let strategy = Landscape::of(&[1000.0, 2000.0]).strategy();
    let on = workload(64);
    let mut last = strategy.predict(&on, &at(0)).unwrap().confidence.get();
    assert!(
        (0.2..0.4).contains(&last),
        "an untried price is not trusted: {last}"
    );
    for count in 0..12 {
        strategy
            .feedback(&ran(&strategy, &on, at(0), 1300.0))
            .unwrap();
        let now = strategy.predict(&on, &at(0)).unwrap().confidence.get();
        assert!(now >= last - 1e-6, "{now} after {last}, {count}");
        last = now;
    }
    assert!(last > 0.99, "{last}");
    // Times that scatter are not foretold so surely.
    let noisy = Landscape::of(&[1000.0]).strategy();
    for time in [500.0, 2000.0, 700.0, 1900.0, 400.0, 2500.0] {
        noisy.feedback(&ran(&noisy, &on, at(0), time)).unwrap();
    }
    assert!(noisy.predict(&on, &at(0)).unwrap().confidence.get() < 0.5);
}

#[test]
fn figures_follow_from_the_events() {
    let strategy = Landscape::of(&[1000.0, 1500.0]).strategy();
    let fresh = strategy.metrics();
    assert_eq!(fresh, Metrics::default());
    assert_eq!(
        (
            fresh.optimizations,
            fresh.median_error_factor,
            fresh.covered,
            fresh.gain_factor
        ),
        (0, None, None, None)
    );

    let mut dice = Dice::new(5);
    for round in 0..25 {
        let on = workload(64 << (round % 2));
        best(&strategy, &on);
        let price = strategy.priced().price(&on, &at(round % 2)).unwrap();
        let time = price.time_ns.get() * (0.8 * dice.normal()).exp();
        strategy
            .feedback(&ran(&strategy, &on, at(round / 2 % 2), time))
            .unwrap();
    }
    let failed = Feedback {
        outcome: Outcome::Failed { why: "lost".into() },
        ..ran(&strategy, &workload(64), at(0), 1.0)
    };
    strategy.feedback(&failed).unwrap();

    // Once more from the log, by other means.
    let (mut recommended, mut failures, mut inside) = (0, 0, 0);
    let mut ratios = Vec::new();
    let mut times: std::collections::BTreeMap<String, Vec<(Choice, f64)>> = Default::default();
    for event in strategy.events() {
        match event {
            Event::Recommended { .. } => recommended += 1,
            Event::Failed { .. } => failures += 1,
            Event::Ran {
                workload,
                choice,
                time_ns,
                expected_ns,
                within,
            } => {
                ratios.push(factor(time_ns.get(), expected_ns.get()));
                inside += u64::from(within);
                times
                    .entry(workload.to_string())
                    .or_default()
                    .push((choice, time_ns.get()));
            }
        }
    }
    ratios.sort_by(f64::total_cmp);
    let gains: Vec<f64> = times
        .values()
        .map(|times| {
            let mean = |of: &Choice| {
                let own: Vec<f64> = times
                    .iter()
                    .filter(|(c, _)| c == of)
                    .map(|(_, t)| t.ln())
                    .collect();
                own.iter().sum::<f64>() / own.len() as f64
            };
            mean(&times[0].0) - mean(&at(0)).min(mean(&at(1)))
        })
        .collect();
    let metrics = strategy.metrics();
    assert_eq!(
        (metrics.optimizations, metrics.failed, metrics.timed),
        (recommended, failures, 25)
    );
    assert_eq!((recommended, failures), (25, 1));
    assert!((metrics.median_error_factor.unwrap() - ratios[12]).abs() < 1e-9);
    assert_eq!(metrics.covered.unwrap().get(), inside as f64 / 25.0);
    assert!(0 < inside && inside < 25, "both kinds occur");
    let gain = (gains.iter().sum::<f64>() / gains.len() as f64).exp();
    assert!((metrics.gain_factor.unwrap() - gain).abs() < 1e-9);
    assert!(gain > 1.0);
}

/// What was longest not heard of is forgotten, and no longer counts.
#[test]
fn memory_is_bounded() {
    let strategy = Landscape::of(&[1000.0]).strategy();
    let on = |n: u64| format!("matmul f32 1x1x{n}").parse().unwrap();
    for n in 1..=4100 {
        strategy
            .feedback(&ran(&strategy, &on(n), at(0), 1000.0))
            .unwrap();
    }
    let known = |n| strategy.predict(&on(n), &at(0)).unwrap().evidence;
    assert!(matches!(
        known(4),
        Evidence::Prior {
            corrected_by: 4096,
            ..
        }
    ));
    assert_eq!(known(5), Evidence::Measured { samples: 1 });
}

#[test]
fn old_events_go_and_are_said_to_be_gone() {
    let strategy = Landscape::of(&[1000.0]).strategy();
    let on = workload(64);
    for _ in 0..4100 {
        best(&strategy, &on);
    }
    let metrics = strategy.metrics();
    assert_eq!((metrics.optimizations, metrics.forgotten), (4096, 4));
    assert_eq!(strategy.events().len(), 4096);
}

#[test]
fn reasoning_names_the_evidence() {
    let strategy = Landscape::of(&[1000.0, 1500.0]).strategy();
    let on = workload(64);
    let said = best(&strategy, &on).reasoning.join("\n");
    assert!(
        said.contains("x=0 should take 1.00 µs") && said.contains("by prior (a made-up formula)"),
        "{said}"
    );
    assert!(said.contains("next of 2 choices: x=1"), "{said}");
    assert!(said.contains("bound by compute"), "{said}");
    for _ in 0..4 {
        strategy
            .feedback(&ran(&strategy, &on, at(0), 900.0))
            .unwrap();
    }
    let said = best(&strategy, &on).reasoning.join("\n");
    assert!(said.contains("by measured 4"), "{said}");
    assert!(
        said.contains("x=1, 1.") && said.contains("corrected by 1 measured choice"),
        "{said}"
    );
}

/// Two threads at once: nothing is lost, and what was learned is what one thread would have learned.
#[test]
fn two_threads_share_a_strategy() {
    let strategy = Landscape::of(&[1000.0, 1500.0]).strategy();
    std::thread::scope(|scope| {
        for choice in 0..2 {
            let strategy = &strategy;
            scope.spawn(move || {
                for n in 1..=50 {
                    let on = workload(16 * n);
                    best(strategy, &on);
                    let price = strategy.priced().price(&on, &at(choice)).unwrap();
                    let time = price.time_ns.get() * 2.0;
                    strategy
                        .feedback(&ran(strategy, &on, at(choice), time))
                        .unwrap();
                }
            });
        }
    });
    let metrics = strategy.metrics();
    assert_eq!(
        (metrics.optimizations, metrics.timed, strategy.revision()),
        (100, 100, 100)
    );
    let alone = Landscape::of(&[1000.0, 1500.0]).strategy();
    for choice in 0..2 {
        for n in 1..=50 {
            let on = workload(16 * n);
            let time = alone
                .priced()
                .price(&on, &at(choice))
                .unwrap()
                .time_ns
                .get()
                * 2.0;
            alone.feedback(&ran(&alone, &on, at(choice), time)).unwrap();
        }
    }
    let on = workload(64);
    assert_eq!(strategy.predict(&on, &at(1)), alone.predict(&on, &at(1)));
}
