//! Limits: each is kept by what is recommended, or refused by name.

use kernelwise_types::units::{Celsius, Watts};
use kernelwise_types::{Numerics, Reading};

use super::*;

/// A fast choice that needs much, and a slow one that needs little.
fn both() -> Landscape {
    Landscape::of(&[1000.0, 3000.0]).with(|x, point| {
        (point.memory, point.power) = [(10_000, Some(100.0)), (500, Some(20.0))][x];
    })
}

fn ask(strategy: &dyn TuningStrategy, constraints: &Constraints) -> Result<u64, TuneError> {
    let said = strategy.tune_for_workload(&workload(64), &quiet(), constraints)?;
    Ok(x(&said.best.choice))
}

fn refused(answer: Result<u64, TuneError>) -> (Limit, String) {
    match answer {
        Err(TuneError::Infeasible(Infeasible { limit, why })) => (limit, why),
        other => panic!("{other:?}"),
    }
}

fn none() -> Constraints {
    Constraints::default()
}

fn watts(power: f64) -> Option<Watts> {
    Some(Watts::new(power).unwrap())
}

fn real_time(period: f64, deadline: f64) -> Option<RealTime> {
    Some(RealTime {
        period_ns: ns(period),
        deadline_ns: ns(deadline),
    })
}

/// For each limit: loose, it changes nothing; tighter, it changes the choice; tightest, it is named.
#[test]
fn every_limit_is_kept_or_named() {
    type Make = fn(f64) -> Constraints;
    let rows: [(Limit, Make, [f64; 3]); 4] = [
        (
            Limit::Memory,
            |most| Constraints {
                memory: Some(Bytes(most as u64)),
                ..none()
            },
            [20_000.0, 600.0, 400.0],
        ),
        (
            Limit::Power,
            |most| Constraints {
                power: watts(most),
                ..none()
            },
            [100.0, 50.0, 10.0],
        ),
        (
            Limit::Energy,
            // 100 W for 1 us are 0.1 mJ, 20 W for 3 us are 0.06.
            |most| Constraints {
                energy_j: Some(most),
                ..none()
            },
            [2e-4, 8e-5, 1e-5],
        ),
        (
            Limit::Numerics,
            |most| Constraints {
                numerics: match most as u32 {
                    2 => Numerics::ReducedPrecision,
                    1 => Numerics::Reordered,
                    _ => Numerics::BitIdentical,
                },
                ..none()
            },
            [2.0, 1.0, 0.0],
        ),
    ];
    let strategy = both()
        .with(|x, point| point.numerics = [Numerics::ReducedPrecision, Numerics::Reordered][x])
        .strategy();
    for (limit, make, [loose, tight, tightest]) in rows {
        let with = |value| {
            let mut constraints = make(value);
            if limit != Limit::Numerics {
                constraints.numerics = Numerics::ReducedPrecision;
            }
            ask(&strategy, &constraints)
        };
        assert_eq!(with(loose), Ok(0), "{limit}");
        assert_eq!(with(tight), Ok(1), "{limit}");
        assert_eq!(refused(with(tightest)).0, limit);
    }
}

/// Limits on time keep the fast choice where another limit would not, and are named where nothing is fast enough.
#[test]
fn limits_on_time_are_kept_or_named() {
    let strategy = both().strategy();
    let small = Constraints {
        memory: Some(Bytes(600)),
        ..none()
    };
    type Set = fn(&mut Constraints, f64);
    // In nanoseconds; the fast choice takes 1000, the slow one 3000.
    let rows: [(Limit, Set); 2] = [
        (Limit::Latency, |c, t| c.latency_ns = Some(ns(t))),
        (Limit::Throughput, |c, t| c.throughput_per_s = Some(1e9 / t)),
    ];
    for (limit, set) in rows {
        let ask = |base: &Constraints, time| {
            let mut constraints = base.clone();
            set(&mut constraints, time);
            ask(&strategy, &constraints)
        };
        assert_eq!(ask(&none(), 2000.0), Ok(0), "{limit}");
        assert_eq!(ask(&small, 4000.0), Ok(1), "{limit}");
        assert_eq!(refused(ask(&none(), 500.0)).0, limit);
        let (named, why) = refused(ask(&small, 2000.0));
        // One choice breaks the one limit, one the other: both are told.
        assert!(
            named == Limit::Memory && why.contains(limit.name()),
            "{why}"
        );
    }
}

#[test]
fn a_deadline_is_kept_by_the_end_of_the_interval() {
    let strategy = both().strategy();
    let tight = Constraints {
        real_time: real_time(1e6, 1200.0),
        ..none()
    };
    // 1000 ns are expected, but who knows.
    assert_eq!(refused(ask(&strategy, &tight)).0, Limit::RealTime);
    for _ in 0..10 {
        strategy
            .feedback(&ran(&strategy, &workload(64), at(0), 1000.0))
            .unwrap();
    }
    assert_eq!(ask(&strategy, &tight), Ok(0));
}

#[test]
fn what_nobody_knows_is_not_promised() {
    let unknown = Landscape::of(&[1000.0]).strategy();
    let limits = [
        (
            Limit::Power,
            Constraints {
                power: watts(1e6),
                ..none()
            },
        ),
        (
            Limit::Energy,
            Constraints {
                energy_j: Some(1e6),
                ..none()
            },
        ),
        (
            Limit::Temperature,
            Constraints {
                temperature: Some(Celsius::new(1e3).unwrap()),
                ..none()
            },
        ),
    ];
    for (limit, constraints) in &limits {
        let (named, why) = refused(ask(&unknown, constraints));
        assert_eq!(named, *limit);
        assert!(why.contains("cannot be promised"), "{why}");
    }
    // Once power was measured, it can be.
    let measured = Feedback {
        outcome: Outcome::Ran {
            time_ns: ns(1000.0),
            power: watts(30.0),
        },
        ..ran(&unknown, &workload(64), at(0), 1.0)
    };
    unknown.feedback(&measured).unwrap();
    let power = |most| Constraints {
        power: watts(most),
        ..none()
    };
    assert_eq!(ask(&unknown, &power(31.0)), Ok(0));
    assert_eq!(refused(ask(&unknown, &power(29.0))).0, Limit::Power);
}

#[test]
fn temperature_is_that_of_the_device_now() {
    let mut warm = quiet();
    warm.temperature = Reading::Known(Celsius::new(70.2).unwrap());
    let at_most = |degrees: f64| Constraints {
        temperature: Some(Celsius::new(degrees).unwrap()),
        ..none()
    };
    let host = both().strategy();
    let ask = |strategy: &dyn TuningStrategy, degrees| {
        let said = strategy.tune_for_workload(&workload(64), &warm, &at_most(degrees))?;
        Ok(x(&said.best.choice))
    };
    assert_eq!(ask(&host, 80.0), Ok(0));
    assert_eq!(refused(ask(&host, 70.0)).0, Limit::Temperature);
    // The processor's sensor says nothing of another device.
    let device = both().named(Backend::Cuda, "gpu").strategy();
    assert_eq!(refused(ask(&device, 80.0)).0, Limit::Temperature);
}

#[test]
fn what_is_paid_once_is_shared_out_among_the_calls() {
    let strategy = both()
        .with(|x, point| point.compile_ns = [1e6, 0.0][x])
        .strategy();
    let ask = |calls| ask(&strategy, &Constraints { calls, ..none() });
    assert_eq!((ask(1), ask(400), ask(600)), (Ok(1), Ok(1), Ok(0)));
}

#[test]
fn limits_that_nothing_could_keep_are_errors_of_their_own() {
    let strategy = both().strategy();
    let wrong = |constraints: Constraints| match ask(&strategy, &constraints) {
        Err(TuneError::Constraints(error)) => error,
        other => panic!("{other:?}"),
    };
    for value in [f64::NAN, -1.0, 0.0, f64::INFINITY] {
        let error = wrong(Constraints {
            throughput_per_s: Some(value),
            ..none()
        });
        assert!(matches!(
            error,
            ConstraintError::Value {
                limit: Limit::Throughput,
                ..
            }
        ));
        let error = wrong(Constraints {
            energy_j: Some(value),
            ..none()
        });
        assert!(matches!(
            error,
            ConstraintError::Value {
                limit: Limit::Energy,
                ..
            }
        ));
    }
    let zeros = [
        Constraints {
            memory: Some(Bytes(0)),
            ..none()
        },
        Constraints {
            power: watts(0.0),
            ..none()
        },
        Constraints {
            latency_ns: Some(ns(0.0)),
            ..none()
        },
        Constraints {
            real_time: real_time(0.0, 0.0),
            ..none()
        },
    ];
    for zero in zeros {
        assert!(matches!(wrong(zero), ConstraintError::Value { .. }));
    }
    assert_eq!(
        wrong(Constraints { calls: 0, ..none() }),
        ConstraintError::NoCalls
    );
    let late = wrong(Constraints {
        real_time: real_time(1000.0, 2000.0),
        ..none()
    });
    assert_eq!(
        late.to_string(),
        "real_time and real_time contradict each other: calls come every 1.00 µs and may take 2.00 µs"
    );
    let often = wrong(Constraints {
        throughput_per_s: Some(2e6),
        real_time: real_time(1000.0, 900.0),
        ..none()
    });
    assert!(matches!(
        often,
        ConstraintError::Contradictory {
            first: Limit::Throughput,
            second: Limit::RealTime,
            ..
        }
    ));
    // Units themselves refuse what is no quantity.
    assert!(serde_json::from_str::<Constraints>(r#"{"power_w": -5.0}"#).is_err());
    let read: Constraints = serde_json::from_str(r#"{"latency_ns": 5.0, "calls": 3}"#).unwrap();
    assert_eq!((read.latency_ns, read.calls), (Some(ns(5.0)), 3));
}

/// A description that prices nothing at all is at fault, and said to be.
#[test]
fn prices_that_are_none_are_refused() {
    let mut free = Landscape::of(&[0.0]);
    assert!(matches!(
        ask(&free.clone().strategy(), &none()),
        Err(TuneError::Price { .. })
    ));
    free = Landscape::of(&[1.0]);
    for spread in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e6] {
        free.spread = spread;
        assert!(
            matches!(
                ask(&free.clone().strategy(), &none()),
                Err(TuneError::Price { .. })
            ),
            "{spread}"
        );
    }
}
