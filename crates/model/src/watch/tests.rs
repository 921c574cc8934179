//! All watchers at once, on streams in which something was planted.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::noise::normal;
use super::*;

/// Nanoseconds between two runs.
const APART: u64 = 1_000_000;

/// Six streams in turn, so many rounds, with what is off by round, stream and state.
fn run(rounds: u64, off: impl Fn(u64, u64, &SystemState) -> f64) -> Watch {
    let mut rng = Pcg64::seed_from_u64(1);
    let mut watch = Watch::default();
    for round in 0..rounds {
        for stream in 0..6 {
            let state = SystemState {
                load: Some(rng.random()),
                temperature: Some(60.0 + normal(&mut rng)),
                ..SystemState::default()
            };
            let seen = Observation {
                stream,
                residual: 0.1 * normal(&mut rng) + off(round, stream, &state),
                state,
                time_ns: (6 * round + stream) * APART,
            };
            assert!(watch.observe(&seen).is_ok());
        }
    }
    watch
}

fn count(watch: &Watch, which: impl Fn(&Noticed) -> bool) -> usize {
    watch
        .log()
        .iter()
        .filter(|event| which(&event.what))
        .count()
}

#[test]
fn noise_is_quiet_at_the_stated_rates() {
    let watch = run(5000, |_, _, _| 0.0);
    let runs = 30_000;
    assert!(count(&watch, |what| matches!(what, Noticed::Drift { .. })) <= runs / 10_000);
    // 1024 events are kept; there were fewer.
    assert_eq!(watch.log().dropped(), 0);
    let anomalies = count(&watch, |what| matches!(what, Noticed::Anomaly { .. }));
    assert!(anomalies <= runs / 200, "{anomalies} anomalies");
    assert!(count(&watch, |what| matches!(what, Noticed::Trend { .. })) <= 1);
    let correlations = count(&watch, |what| matches!(what, Noticed::Correlation(_)));
    assert!(
        correlations <= 6,
        "{correlations} correlations in 234 tests"
    );
}

#[test]
fn a_step_of_one_stream_is_one_drift_and_few_anomalies() {
    let watch = run(600, |round, stream, _| {
        if stream == 2 && round >= 300 {
            0.5
        } else {
            0.0
        }
    });
    let drifts: Vec<&Event> = watch
        .log()
        .iter()
        .filter(|event| matches!(event.what, Noticed::Drift { .. }))
        .collect();
    let [event] = drifts[..] else {
        panic!("{drifts:?}");
    };
    let Noticed::Drift { stream: 2, drift } = event.what else {
        panic!("{event:?}");
    };
    assert_eq!((drift.direction, drift.others), (Direction::Slower, 5));
    assert!((drift.step - 0.5).abs() < 0.1, "{drift:?}");
    let after = event.time_ns / (6 * APART) - 300;
    assert!(after <= 20, "{after}");
    // Until it was found; then it was usual.
    let anomalies = count(&watch, |what| {
        matches!(what, Noticed::Anomaly { stream: 2, .. })
    });
    assert!(anomalies <= 25, "{anomalies}");
}

#[test]
fn a_planted_outlier_comes_with_its_cause() {
    let mut watch = run(100, |_, _, _| 0.0);
    let state = SystemState {
        load: Some(3.0),
        temperature: Some(60.0),
        ..SystemState::default()
    };
    let wild = Observation {
        stream: 4,
        residual: 5_f64.ln(),
        state,
        time_ns: 10_000 * APART,
    };
    let news: Vec<Event> = watch.observe(&wild).unwrap().cloned().collect();
    let [
        Event {
            time_ns,
            what: Noticed::Anomaly { stream: 4, anomaly },
            ..
        },
    ] = news[..]
    else {
        panic!("{news:?}");
    };
    assert_eq!(time_ns, wild.time_ns);
    assert_eq!(anomaly.severity, Severity::Critical);
    assert_eq!(anomaly.cause, Cause::Load);
}

#[test]
fn what_creeps_is_a_trend_with_its_slope() {
    // Too slow for the other watchers to call it a step: 0.15 within 128 rounds.
    let watch = run(128, |round, stream, _| {
        if stream == 1 {
            0.15 * round as f64 / 128.0
        } else {
            0.0
        }
    });
    let trends = watch.log().iter().filter_map(|event| match event.what {
        Noticed::Trend { stream, trend } => Some((stream, trend)),
        _ => None,
    });
    let trends: Vec<_> = trends.collect();
    let [(1, trend)] = trends[..] else {
        panic!("{trends:?}");
    };
    // A round takes 6 ms.
    let planted = 0.15 / (128.0 * 6e-3);
    assert!((trend.slope / planted - 1.0).abs() < 0.5, "{trend:?}");
}

#[test]
fn load_that_slows_down_is_found_once() {
    // With a deviation of 0.29 of the load and 0.1 of noise, r is 0.8.
    let watch = run(400, |_, _, state| 0.46 * (state.load.unwrap_or(0.0) - 0.5));
    let found: Vec<Correlation> = watch
        .log()
        .iter()
        .filter_map(|event| match event.what {
            Noticed::Correlation(one) => Some(one),
            _ => None,
        })
        .collect();
    let loads: Vec<_> = found
        .iter()
        .filter(|one| one.reading == Reading::Load)
        .collect();
    let [load] = loads[..] else {
        panic!("{found:?}");
    };
    assert!((load.r - 0.8).abs() < 0.12 && load.p < 1e-9, "{load:?}");
    assert!(found.len() <= 2, "{found:?}");
}

/// So many streams in turn on a machine that is looked at once in 200 runs; `follows` says how much load slows down. Loads wander, as they
/// do: each is near the one before.
fn looked_at_seldom(streams: u64, looks: u64, follows: f64, seed: u64) -> Vec<Correlation> {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut watch = Watch::default();
    let (mut load, mut time_ns) = (0.5, 0);
    for _ in 0..looks {
        load = (0.8 * load + 0.4 * rng.random::<f64>() - 0.1_f64).clamp(0.0, 1.0);
        let state = SystemState {
            load: Some(load),
            temperature: Some(60.0 + normal(&mut rng)),
            ..SystemState::default()
        };
        // What disturbs one run between two looks disturbs the others too.
        let shared = 0.05 * normal(&mut rng);
        for run in 0..200 {
            time_ns += APART;
            let residual = follows * load + shared + 0.05 * normal(&mut rng);
            let seen = Observation {
                stream: run % streams,
                residual,
                state,
                time_ns,
            };
            assert!(watch.observe(&seen).is_ok());
        }
    }
    let found = watch.log().iter().filter_map(|event| match event.what {
        Noticed::Correlation(one) => Some(one),
        _ => None,
    });
    found.collect()
}

#[test]
fn many_runs_between_two_looks_are_one_pair() {
    for streams in [1, 6] {
        let planted = looked_at_seldom(streams, 150, 0.5, 1);
        let [load] = planted[..] else {
            panic!("{planted:?}");
        };
        assert_eq!((load.reading, load.samples), (Reading::Load, 128));
        assert!(load.r > 0.5 && load.p < 1e-6, "{load:?}");
    }
    // Of a hundred windows of noise, one may show something.
    let in_noise: usize = (0..50)
        .map(|seed| looked_at_seldom(6, 258, 0.0, seed).len())
        .sum();
    assert!(in_noise <= 4, "{in_noise} in 100 windows of noise");
}

#[test]
fn nonsense_is_refused_counted_and_leaves_no_trace() {
    let mut watch = Watch::default();
    let nonsense = |residual| Observation {
        stream: 3,
        residual,
        state: SystemState::default(),
        time_ns: 0,
    };
    for residual in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e9] {
        let refused = watch.observe(&nonsense(residual)).err().unwrap();
        assert_eq!(refused.stream, 3);
        assert!(refused.to_string().contains("stream 3 is"), "{refused}");
    }
    assert_eq!(watch.ignored(), 4);
    assert_eq!(watch.log().iter().len(), 0);
    assert!(watch.courses.is_empty() && watch.drift.is_empty());
    // Clocks that go back and constant residuals are no reason to stumble.
    for time_ns in (0..500).rev() {
        let same = Observation {
            time_ns,
            ..nonsense(0.25)
        };
        assert_eq!(watch.observe(&same).unwrap().len(), 0);
    }
}

#[test]
fn many_streams_do_not_grow_the_memory() {
    let mut watch = Watch::default();
    for stream in 0..2000 {
        let seen = Observation {
            stream,
            residual: 0.0,
            state: SystemState::default(),
            time_ns: 0,
        };
        assert!(watch.observe(&seen).is_ok());
    }
    assert_eq!(watch.courses.len(), MOST_STREAMS);
    assert!(watch.drift.len() <= MOST_STREAMS);
}

#[test]
fn a_stream_that_is_heard_of_stays_when_others_make_room() {
    let mut watch = Watch::default();
    for time_ns in 0..3000 {
        // The lowest number, every other time; those beside it are seen once.
        let stream = if time_ns % 2 == 0 { 0 } else { 1 + time_ns };
        let seen = Observation {
            stream,
            residual: 0.0,
            state: SystemState::default(),
            time_ns: 1_000_000_000 * time_ns,
        };
        assert!(watch.observe(&seen).is_ok());
    }
    assert!(watch.courses.contains_key(&0));
    assert!(watch.courses.contains_key(&2999) || watch.courses.contains_key(&3000));
}

/// Any number, with a taste for those that streams repeat and for those that overflow.
fn anything() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => (-3_i8..4).prop_map(|tenths| f64::from(tenths) / 10.0),
        2 => -10.0..10.0,
        1 => prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::MAX, f64::MIN, 709.0, -709.0, 1e-310]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes, every event holds numbers only, in the order of their own, and the log stays within its room.
    #[test]
    fn any_observations_give_sound_events(
        seen in prop::collection::vec((0_u64..4, anything(), prop::option::of(anything()), prop::option::of(anything()), any::<u64>()), 0..900),
        room in 1_usize..40,
    ) {
        let mut watch = Watch::new(room);
        let mut ignored = 0;
        for (stream, residual, load, clock, time_ns) in seen {
            let state = SystemState { load, clock, ..SystemState::default() };
            let observed = Observation { stream, residual, state, time_ns };
            ignored += u64::from(watch.observe(&observed).is_err());
        }
        prop_assert_eq!(watch.ignored(), ignored);
        prop_assert!(watch.log().iter().len() <= room);
        let numbers: Vec<u64> = watch.log().iter().map(|event| event.number).collect();
        let last = watch.log().next_number();
        prop_assert!(numbers.iter().copied().eq(watch.log().dropped()..last));
        // Numbers that are none are written as null.
        let text = serde_json::to_string(watch.log()).unwrap();
        prop_assert!(!text.contains("null"), "{text}");
    }
}
