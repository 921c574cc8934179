//! What threads share, under a scheduler that tries interleavings.
//!
//! The files of the engine are compiled here a second time, with types that hand over to another thread wherever one may
//! interfere. Sizes are small, so that a full queue and shared stamps are part of the game. The scheduler knows no reordering of
//! memory; that the word is written before the stamp and read after it is by release and acquire, and said in `word.rs`.
#![allow(dead_code, clippy::duplicate_mod)] // The same files a second time, and not all of what is in them.

#[path = "cases.rs"]
mod cases;
#[path = "seat.rs"]
mod seat;
#[path = "table.rs"]
mod table;
#[path = "word.rs"]
mod word;

mod sync {
    pub(super) use shuttle::sync::Mutex;
    pub(super) use shuttle::sync::atomic::{AtomicU32, AtomicU64};
    pub(super) use shuttle::thread_local;
    use std::sync::PoisonError;

    use super::word::Stamps;

    pub(super) const QUEUE: usize = 4;
    pub(super) const LINES: usize = 2;

    shuttle::lazy_static! {
        pub(super) static ref STAMPS: Stamps = Stamps::new();
    }

    pub(super) fn lock<T>(mutex: &Mutex<T>) -> shuttle::sync::MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kernelwise_measure::ScriptedClock;
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicBool, AtomicU64};
use shuttle::thread;

use self::cases::{Engine, NewCase};
use self::seat::{Case, Pick, Seat};
use crate::belief::Expected;
use crate::key::Key;
use crate::learn::{Facts, Rules, Sample};

/// Schedules that are tried of each story, by either way of choosing them.
const SCHEDULES: usize = 3000;

fn explore(story: impl Fn() + Send + Sync + 'static) {
    let story = Arc::new(story);
    let again = Arc::clone(&story);
    shuttle::check_random(move || story(), SCHEDULES);
    // Few switches at the worst places find what many at random ones do not.
    shuttle::check_pct(move || again(), SCHEDULES, 3);
}

fn engine(capacity: usize) -> Arc<Engine> {
    let clock = Arc::new(ScriptedClock::new());
    Arc::new(Engine::new(Rules::default(), clock, 1, capacity, false))
}

fn new_case(times: &[f64], payload: u64) -> NewCase {
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
    NewCase {
        likeness: None,
        name: String::new(),
        facts: times.iter().map(fact).collect(),
        barred: vec![false; times.len()],
        payload: Box::new(payload),
    }
}

fn case(engine: &Engine, name: &str, times: &[f64]) -> Arc<Case> {
    let made = |(): &()| Ok::<_, Infallible>(new_case(times, 0));
    let case = |(): &mut (), seat: &Seat| Arc::clone(&seat.case);
    let Ok(case) = engine.at_seat(Key::of(name), &mut (), made, case);
    case
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

/// Calls at a seat, timed ones reported and learned from; the numbers of the trials among them.
fn calls(engine: &Engine, seat: &Seat, number: usize) -> Vec<u16> {
    let mut trials = Vec::new();
    for _ in 0..number {
        let Some(pick) = seat.pick() else { continue };
        trials.extend(pick.trial);
        if pick.calls > 0 {
            engine.observe(&seat.case, sample(pick, 1000.0));
            engine.take_in();
        }
    }
    trials
}

/// Learns until a trial is offered.
fn offered(engine: &Engine, case: &Arc<Case>) {
    let serves = Pick {
        candidate: case.published.read().1.known().serves(),
        calls: 1,
        trial: None,
    };
    while case.published.read().1.offer().is_none() {
        engine.observe(case, sample(serves, 1000.0));
        engine.take_in();
    }
}

#[test]
fn a_trial_is_taken_by_one_thread() {
    let done = Arc::new(AtomicUsize::new(0));
    let all = Arc::clone(&done);
    explore(move || {
        let engine = engine(10);
        let case = case(&engine, "one", &[1000.0, 990.0, 980.0]);
        offered(&engine, &case);
        let threads = [0, 1, 2].map(|_| {
            let (engine, case) = (Arc::clone(&engine), Arc::clone(&case));
            thread::spawn(move || calls(&engine, &Seat::new(case), 6))
        });
        // The word changes while the trial is in it.
        let serves = case.published.read().1.known().serves();
        engine.bar(&case, serves, true);
        engine.bar(&case, serves, false);
        let trials = threads.map(|thread| thread.join().unwrap()).concat();
        let different: HashSet<u16> = trials.iter().copied().collect();
        assert_eq!(different.len(), trials.len(), "{trials:?}");
        done.fetch_add(trials.len(), Ordering::Relaxed);
    });
    assert!(all.load(Ordering::Relaxed) > SCHEDULES);
}

#[test]
fn who_is_barred_is_not_picked() {
    explore(|| {
        let engine = engine(10);
        let case = case(&engine, "one", &[1000.0, 990.0, 980.0]);
        offered(&engine, &case);
        let barred = Arc::new(AtomicBool::new(false));
        let threads = [0, 1].map(|_| {
            let (engine, case) = (Arc::clone(&engine), Arc::clone(&case));
            let barred = Arc::clone(&barred);
            thread::spawn(move || {
                let seat = Seat::new(case);
                for _ in 0..8 {
                    let before = barred.load(Ordering::SeqCst);
                    let pick = seat.pick().unwrap();
                    assert!(!before || pick.candidate == 0, "{pick:?}");
                    if pick.calls > 0 {
                        engine.observe(&seat.case, sample(pick, 1000.0));
                        engine.take_in();
                    }
                }
            })
        });
        engine.bar(&case, 2, true);
        engine.bar(&case, 1, true);
        barred.store(true, Ordering::SeqCst);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(Seat::new(case).pick().unwrap().candidate, 0);
    });
}

/// Kernels change while cases are made of them.
#[test]
fn a_case_of_an_outdated_list_is_not_kept() {
    explore(|| {
        let engine = engine(10);
        let list = Arc::new(AtomicU64::new(0));
        let changed = Arc::new(AtomicBool::new(false));
        let threads = [0, 1].map(|_| {
            let (engine, list) = (Arc::clone(&engine), Arc::clone(&list));
            let changed = Arc::clone(&changed);
            thread::spawn(move || {
                for _ in 0..4 {
                    let before = changed.load(Ordering::SeqCst);
                    let made = |(): &()| {
                        let list = list.load(Ordering::SeqCst);
                        Ok::<_, Infallible>(new_case(&[1.0], list))
                    };
                    let of = |(): &mut (), seat: &Seat| seat.case.payload.downcast_ref().copied();
                    let Ok(of) = engine.at_seat(Key::of("one"), &mut (), made, of);
                    assert!(!before || of == Some(1u64));
                }
            })
        });
        list.store(1, Ordering::SeqCst);
        engine.changed();
        engine.forget(|case| case.payload.downcast_ref() != Some(&1u64));
        changed.store(true, Ordering::SeqCst);
        for thread in threads {
            thread.join().unwrap();
        }
        let cases = engine.cases();
        assert!(
            cases
                .iter()
                .all(|case| case.payload.downcast_ref() == Some(&1u64))
        );
    });
}

/// A kernel fails while cases are made that have it among their candidates.
#[test]
fn a_new_case_knows_who_is_barred() {
    explore(|| {
        let engine = engine(10);
        let failed = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicBool::new(false));
        let threads = ["one", "two"].map(|name| {
            let engine = Arc::clone(&engine);
            let (failed, done) = (Arc::clone(&failed), Arc::clone(&done));
            thread::spawn(move || {
                for _ in 0..4 {
                    let before = done.load(Ordering::SeqCst);
                    let made = |(): &()| {
                        let mut case = new_case(&[1.0, 2.0], 0);
                        case.barred[0] = failed.load(Ordering::SeqCst);
                        Ok::<_, Infallible>(case)
                    };
                    let pick = |(): &mut (), seat: &Seat| seat.pick();
                    let Ok(pick) = engine.at_seat(Key::of(name), &mut (), made, pick);
                    assert!(!before || pick.unwrap().candidate == 1);
                }
            })
        });
        failed.store(true, Ordering::SeqCst);
        engine.changed();
        for case in engine.cases() {
            engine.bar(&case, 0, true);
        }
        done.store(true, Ordering::SeqCst);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn samples_are_learned_or_counted_as_dropped() {
    explore(|| {
        let engine = engine(10);
        let case = case(&engine, "one", &[1000.0]);
        let threads = [0, 1, 2].map(|_| {
            let (engine, case) = (Arc::clone(&engine), Arc::clone(&case));
            thread::spawn(move || {
                let pick = Pick {
                    candidate: 0,
                    calls: 1,
                    trial: None,
                };
                for _ in 0..5 {
                    engine.observe(&case, sample(pick, 1000.0));
                }
                engine.take_in();
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        engine.take_in();
        assert!(!engine.is_behind());
        let learned = engine.learned(&case).tally(0).unwrap().samples();
        assert_eq!(learned + engine.losses().0, 15);
    });
}

/// More cases than there is room for: each call is at its own case, and counted by it.
#[test]
fn eviction_confuses_nobody() {
    explore(|| {
        let engine = engine(2);
        let seen = Arc::new(Mutex::new(Vec::<Arc<Case>>::new()));
        let threads = [["a", "b", "c", "a"], ["c", "a", "d", "a"]].map(|names| {
            let (engine, seen) = (Arc::clone(&engine), Arc::clone(&seen));
            thread::spawn(move || {
                for name in names {
                    let made = |(): &()| Ok::<_, Infallible>(new_case(&[1.0], 0));
                    let call = |(): &mut (), seat: &Seat| {
                        assert!(seat.pick().is_some());
                        Arc::clone(&seat.case)
                    };
                    let Ok(case) = engine.at_seat(Key::of(name), &mut (), made, call);
                    assert_eq!(case.key, Key::of(name));
                    seen.lock().unwrap().push(case);
                }
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(engine.cases().len() <= 2);
        // Whoever still had a seat at a case that went looks it up anew.
        assert!(engine.generation() >= engine.losses().1 && engine.losses().1 >= 2);
        let mut seen = std::mem::take(&mut *seen.lock().unwrap());
        assert_eq!(seen.len(), 8);
        seen.sort_by_key(|case| case.serial());
        seen.dedup_by_key(|case| case.serial());
        let calls: u64 = seen.iter().map(|case| case.calls()).sum();
        assert_eq!(calls, 8);
    });
}
