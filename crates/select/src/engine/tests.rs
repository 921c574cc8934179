use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use kernelwise_measure::ScriptedClock;

use super::sync::QUEUE;
use super::table::Table;
use super::*;
use crate::belief::Expected;
use crate::key::Key;
use crate::learn::{Facts, Rules, Sample};

fn engine(capacity: usize) -> Engine {
    let clock = Arc::new(ScriptedClock::new());
    Engine::new(Rules::default(), clock, 1, capacity, false)
}

fn facts(times: &[f64]) -> Vec<Facts> {
    let fact = |time: &f64| Facts {
        expected: Some(Expected {
            mean: time.ln(),
            sd: 1.0,
        }),
        modelled: None,
        hinted: 0.0,
        workspace: 0,
        threads: 1,
        busy: false,
        efficiency: None,
    };
    times.iter().map(fact).collect()
}

fn new_case(name: &str, times: &[f64]) -> NewCase {
    NewCase {
        likeness: None,
        name: name.to_owned(),
        facts: facts(times),
        barred: vec![false; times.len()],
        payload: Box::new(()),
    }
}

/// A seat of its own at a case.
fn seat(engine: &Engine, name: &str, times: &[f64]) -> Seat {
    let made = |(): &()| Ok::<_, Infallible>(new_case(name, times));
    let case = |(): &mut (), seat: &Seat| Arc::clone(&seat.case);
    Seat::new(engine.at_seat(Key::of(name), &mut (), made, case).unwrap())
}

fn sample(pick: Pick, time_ns: f64) -> Sample {
    Sample {
        candidate: pick.candidate,
        time_ns,
        calls: pick.calls,
        trial: pick.trial,
        at_ns: 0,
    }
}

#[test]
fn a_case_is_made_once_and_then_found() {
    let engine = engine(100);
    let made = AtomicUsize::new(0);
    for _ in 0..3 {
        let make = |(): &()| {
            made.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(new_case("one", &[5.0, 3.0]))
        };
        let pick = engine
            .at_seat(Key::of("one"), &mut (), make, |(), seat| seat.pick())
            .unwrap();
        assert_eq!(pick.unwrap().candidate, 1);
    }
    assert_eq!(made.load(Ordering::Relaxed), 1);
    let failed = engine.at_seat(
        Key::of("two"),
        &mut (),
        |()| Err("no kernel"),
        |(), seat| seat.pick(),
    );
    assert_eq!(failed, Err("no kernel"));
}

#[test]
fn what_is_learned_changes_what_is_picked() {
    let engine = engine(100);
    let seat = seat(&engine, "one", &[100.0, 300.0]);
    let times = [5000.0, 200.0];
    for _ in 0..200 {
        let pick = seat.pick().unwrap();
        if pick.calls > 0 {
            engine.observe(&seat.case, sample(pick, times[pick.candidate]));
        }
        engine.take_in();
    }
    assert_eq!(seat.pick().unwrap().candidate, 1);
    // Short calls are seldom timed, and all of them are counted.
    let timed = (0..800).filter(|_| seat.pick().unwrap().calls > 0).count();
    assert!((90..=110).contains(&timed), "{timed} of 800");
    let case = Arc::clone(&seat.case);
    drop(seat);
    assert_eq!(case.calls(), 200 + 1 + 800);
}

/// Two calls of one thread, of which the second is timed; no other thread sees it.
#[test]
fn a_trial_is_two_calls_of_one_thread() {
    let engine = engine(100);
    let mine = seat(&engine, "one", &[1000.0, 900.0, 800.0]);
    let other = seat(&engine, "one", &[]);
    let mut trials = 0;
    for _ in 0..100 {
        let first = mine.pick().unwrap();
        assert_eq!(first.trial, None);
        let between = other.pick().unwrap();
        let second = mine.pick().unwrap();
        if let Some(serial) = second.trial {
            trials += 1;
            assert_eq!((first.candidate, first.calls), (second.candidate, 0));
            assert_ne!(between.candidate, second.candidate);
            assert!(second.calls > 0);
            // While it is under way it is not offered again.
            engine.observe(&mine.case, sample(between, 1000.0));
            engine.take_in();
            assert_ne!(mine.pick().unwrap().trial, Some(serial));
            engine.observe(&mine.case, sample(second, 950.0));
        } else {
            engine.observe(&mine.case, sample(second, 1000.0));
        }
        engine.take_in();
    }
    assert!(trials > 0);
}

#[test]
fn those_used_longest_ago_make_room() {
    let engine = engine(32);
    for i in 0..100 {
        seat(&engine, &format!("case {i}"), &[1.0]);
        // This one is always in use.
        seat(&engine, "often", &[1.0]);
    }
    let names: Vec<String> = engine.cases().iter().map(|c| c.name.clone()).collect();
    assert!(names.len() <= 32);
    assert!(names.contains(&"often".to_owned()) && names.contains(&"case 99".to_owned()));
    assert!(!names.contains(&"case 3".to_owned()));
    assert!(engine.losses().1 >= 69);
}

#[test]
fn nobody_left_is_nobody_picked() {
    let engine = engine(100);
    let seat = seat(&engine, "one", &[1.0, 2.0]);
    engine.bar(&seat.case, 0, true);
    assert_eq!(seat.pick().unwrap().candidate, 1);
    engine.bar(&seat.case, 1, true);
    assert_eq!(seat.pick(), None);
    engine.bar(&seat.case, 0, false);
    assert_eq!(seat.pick().unwrap().candidate, 0);
}

#[test]
fn a_full_queue_learns_or_counts_what_it_drops() {
    let engine = engine(100);
    let seat = seat(&engine, "one", &[1000.0]);
    let pick = seat.pick().unwrap();
    {
        // Somebody is learning and takes long.
        let _busy = lock(&engine.learning);
        for _ in 0..QUEUE + 10 {
            engine.observe(&seat.case, sample(pick, 1000.0));
        }
        assert_eq!(engine.losses().0, 10);
    }
    for _ in 0..10 {
        engine.observe(&seat.case, sample(pick, 1000.0));
    }
    assert_eq!(engine.losses().0, 10);
    while engine.is_behind() {
        engine.take_in();
    }
    let learned = engine.learned(&seat.case);
    assert_eq!(learned.tally(0).unwrap().samples(), QUEUE as u64 + 10);
}

/// A million choices by two threads while tables are thrown away: all are counted, and what was timed is learned or
/// counted as dropped.
#[test]
fn two_threads_lose_nothing() {
    const CALLS: u64 = 500_000;
    let engine = Arc::new(engine(1000));
    let sent = Arc::new(AtomicU64::new(0));
    let work = |engine: Arc<Engine>, sent: Arc<AtomicU64>| {
        for i in 0..CALLS {
            let name = ["a", "b", "c"][i as usize % 3];
            let made = |(): &()| Ok::<_, Infallible>(new_case(name, &[20.0, 30.0]));
            let call = |(): &mut (), seat: &Seat| {
                let pick = seat.pick().unwrap();
                if pick.calls > 0 {
                    sent.fetch_add(1, Ordering::Relaxed);
                    engine.observe(&seat.case, sample(pick, 20.0));
                }
            };
            engine.at_seat(Key::of(name), &mut (), made, call).unwrap();
            if i % 1000 == 0 {
                engine.take_in();
            }
            if i == CALLS / 2 {
                engine.renew();
            }
        }
    };
    let threads = [0, 1].map(|_| {
        let (engine, sent) = (Arc::clone(&engine), Arc::clone(&sent));
        thread::spawn(move || work(engine, sent))
    });
    // To the very end: a thread adds what it counted when its own tables go.
    for thread in threads {
        thread.join().unwrap();
    }
    while engine.is_behind() {
        engine.take_in();
    }
    let cases = engine.cases();
    let calls: u64 = cases.iter().map(|case| case.calls()).sum();
    assert_eq!(calls, 2 * CALLS);
    let samples = |case: &Arc<Case>| {
        let learned = engine.learned(case);
        let of = |i| learned.tally(i).map_or(0, |tally| tally.samples());
        of(0) + of(1)
    };
    let learned: u64 = cases.iter().map(samples).sum();
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent > CALLS / 8);
    assert_eq!(learned + engine.losses().0, sent);
}

#[test]
fn a_table_finds_what_was_put_in_and_nothing_else() {
    let engine = engine(10);
    let case = Arc::clone(&seat(&engine, "one", &[1.0]).case);
    let mut table = Table::of(1, 0);
    assert!(table.get(Key::of("one")).is_none());
    // All of them at one case, whose key they then have when the table grows.
    table.insert(case.key, Seat::new(Arc::clone(&case)));
    let case_of = |name: &str| Arc::clone(&seat(&engine, name, &[1.0]).case);
    let names: Vec<String> = (0..5000).map(|i| format!("case {i}")).collect();
    for name in &names {
        table.insert(Key::of(name.as_str()), Seat::new(case_of(name)));
    }
    assert_eq!(table.seats().count(), 5001);
    for name in &names {
        let seat = table.get(Key::of(name.as_str())).unwrap();
        assert_eq!(seat.case.name, *name);
        assert!(table.get(Key::of(&format!("not {name}"))).is_none());
    }
}

/// What is counted in a few bits goes on where they end.
#[test]
fn timed_calls_are_counted_beyond_their_bits() {
    let engine = engine(10);
    let seat = seat(&engine, "one", &[1e6]);
    for call in 1..600_000 {
        assert_eq!(seat.pick().unwrap().calls, 1);
        assert_eq!(seat.timed_calls(), call);
    }
    let case = Arc::clone(&seat.case);
    drop(seat);
    assert_eq!(case.calls(), 599_999);
}

/// The first call of a trial may be what shows that a kernel is broken: the second does not go to it.
#[test]
fn a_trial_ends_when_who_is_tried_is_barred() {
    let engine = engine(10);
    let seat = seat(&engine, "one", &[1000.0, 900.0]);
    let mut tried = None;
    for _ in 0..100 {
        let pick = seat.pick().unwrap();
        if pick.candidate != 1 && pick.calls == 0 {
            tried = Some(pick.candidate);
            break;
        }
        engine.observe(&seat.case, sample(pick, 1000.0));
        engine.take_in();
    }
    assert_eq!(tried, Some(0));
    engine.bar(&seat.case, 0, true);
    let next = seat.pick().unwrap();
    assert_eq!((next.candidate, next.trial), (1, None));
}

/// A case that is met only within the calls of another keeps its seat as well.
#[test]
fn seats_taken_within_a_call_are_kept() {
    let engine = engine(1000);
    let timed = |name: &str, body: &dyn Fn()| {
        let made = |(): &()| Ok::<_, Infallible>(new_case(name, &[1.0]));
        let call = |(): &mut (), seat: &Seat| {
            body();
            seat.pick().unwrap();
            seat.timed_calls()
        };
        engine.at_seat(Key::of(name), &mut (), made, call).unwrap()
    };
    timed("outer", &|| {});
    for round in 0..3 {
        timed("outer", &|| {
            // Also while the table is in use.
            assert_eq!(timed("inner", &|| {}), 2 * round + 1);
            assert_eq!(timed("inner", &|| {}), 2 * round + 2);
        });
    }
    assert_eq!(timed("inner", &|| {}), 7);
    // More of them than can wait at a time.
    for call in 1..=2 {
        for number in 0..200 {
            let name = format!("inner {number}");
            timed("outer", &|| assert_eq!(timed(&name, &|| {}), call));
        }
    }
}

/// Calls within calls, of known cases and of new ones, at several engines.
#[test]
fn seats_can_be_taken_within_each_other() {
    let engines = [engine(10), engine(10)];
    for round in 0..3 {
        for outer in &engines {
            let made = |(): &()| Ok::<_, Infallible>(new_case("outer", &[1.0]));
            let picked = outer.at_seat(Key::of("outer"), &mut (), made, |(), seat| {
                for inner in &engines {
                    for name in ["outer", "inner"] {
                        let made = |(): &()| Ok::<_, Infallible>(new_case(name, &[1.0]));
                        let pick =
                            inner.at_seat(Key::of(name), &mut (), made, |(), seat| seat.pick());
                        assert!(pick.unwrap().is_some());
                    }
                }
                seat.pick()
            });
            assert!(picked.unwrap().is_some(), "round {round}");
        }
    }
    for engine in &engines {
        assert_eq!(engine.cases().len(), 2);
    }
}

#[test]
fn a_shadow_learns_and_changes_nothing() {
    let clock = Arc::new(ScriptedClock::new());
    let engine = Engine::new(Rules::default(), clock, 1, 10, true);
    let seat = seat(&engine, "one", &[10.0, 20.0]);
    for _ in 0..100 {
        let pick = seat.pick().unwrap();
        assert_eq!((pick.candidate, pick.trial), (0, None));
        engine.observe(&seat.case, sample(pick, 1e6));
        engine.take_in();
    }
    assert!(engine.learned(&seat.case).tally(0).unwrap().samples() > 90);
    // Only who fails is replaced, and nobody is tried even then.
    engine.bar(&seat.case, 1, true);
    engine.bar(&seat.case, 1, false);
    assert_eq!(seat.pick().unwrap().candidate, 0);
    engine.bar(&seat.case, 0, true);
    assert_eq!(seat.pick().unwrap().candidate, 1);
}
