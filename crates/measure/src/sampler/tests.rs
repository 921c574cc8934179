//! Every test here runs on a scripted clock, so that each number can be worked out by hand.

use std::cell::{Cell, RefCell};

use super::*;
use crate::clock::ScriptedClock;
use crate::verdict::{Indifference, Verdict};

/// A body that takes the given times one after the other, and the last one for ever.
fn takes<'a>(clock: &'a ScriptedClock, name: &str, times: &'a [u64]) -> Contender<'a> {
    let mut call = 0;
    Contender::new(name, move || {
        clock.advance(times[call.min(times.len() - 1)]);
        call += 1;
        Ok::<_, String>(())
    })
}

/// A sampler whose samples are single calls.
fn unbatched(clock: &ScriptedClock) -> Sampler<'_> {
    Sampler::new(clock).min_sample(Duration::ZERO)
}

fn outcomes(race: &Race) -> Vec<String> {
    race.entries.iter().map(|e| e.ending.to_string()).collect()
}

#[test]
fn warm_up_is_thrown_away_and_precision_ends_the_race() {
    let clock = ScriptedClock::new();
    let sampler = unbatched(&clock).min_rounds(12);
    let race = sampler.run(vec![takes(&clock, "a", &[9000, 500, 200, 100])]);
    assert_eq!((race.stop, race.rounds), (Stop::Precision, 12));
    assert_eq!(race.entries[0].samples_ns, [100.0; 12]);
    assert_eq!(race.elapsed_ns, 9000 + 500 + 200 + 12 * 100);
    let cold = unbatched(&clock).warm_up(0);
    let race = cold.run(vec![takes(&clock, "a", &[9000, 8000, 500, 100])]);
    // Without warm-up two trials find the batch; what is not settled by then shows in the samples.
    assert_eq!(race.entries[0].samples_ns[..2], [500.0, 100.0]);
}

#[test]
fn a_lead_in_takes_the_cost_of_changing_places_out_of_the_samples() {
    let clock = ScriptedClock::new();
    let samples = |calls: u32| {
        let last = Cell::new("nobody");
        // Ten, and forty after somebody else.
        let body = |name: &'static str| {
            let (clock, last) = (&clock, &last);
            Contender::new(name, move || {
                clock.advance(if last.replace(name) == name { 10 } else { 40 });
                Ok::<_, String>(())
            })
        };
        let sampler = unbatched(&clock)
            .lead_in(calls)
            .min_rounds(20)
            .max_rounds(20);
        let race = sampler.run(vec![body("a"), body("b")]);
        assert_eq!(race.rounds, 20);
        let all = race.entries.into_iter().flat_map(|entry| entry.samples_ns);
        all.collect::<Vec<f64>>()
    };
    assert!(samples(0).contains(&40.0));
    assert!(samples(1).iter().all(|ns| *ns == 10.0));
}

#[test]
fn a_lead_in_by_time_lasts_until_threads_are_awake() {
    let clock = ScriptedClock::new();
    let samples = |time: Duration, calls: u32| {
        let last = Cell::new(("nobody", 0));
        // One microsecond, and ten in the first three calls after somebody else.
        let body = |name: &'static str| {
            let (clock, last) = (&clock, &last);
            Contender::new(name, move || {
                let before = last.get();
                let row = if before.0 == name { before.1 + 1 } else { 1 };
                last.set((name, row));
                clock.advance(if row > 3 { 1000 } else { 10_000 });
                Ok::<_, String>(())
            })
        };
        let sampler = unbatched(&clock).lead_in(calls).lead_in_for(time);
        let sampler = sampler.min_rounds(20).max_rounds(20);
        let race = sampler.run(vec![body("a"), body("b")]);
        let all = race.entries.into_iter().flat_map(|entry| entry.samples_ns);
        all.collect::<Vec<f64>>()
    };
    assert!(samples(Duration::ZERO, 1).contains(&10_000.0));
    let led_in = samples(Duration::from_micros(25), 0);
    assert!(
        led_in.iter().all(|ns| *ns == 1000.0) && led_in.len() == 40,
        "{led_in:?}"
    );
}

#[test]
fn long_calls_and_a_clock_that_stands_still_have_no_endless_lead_in() {
    let clock = ScriptedClock::new();
    let calls = |call_ns: u64| {
        let count = Cell::new(0);
        let sampler = unbatched(&clock).warm_up(1).lead_in_for(AWAKE);
        sampler
            .min_rounds(10)
            .max_rounds(10)
            .run(vec![Contender::new("a", || {
                count.set(count.get() + 1);
                clock.advance(call_ns);
                Ok::<_, String>(())
            })]);
        count.get()
    };
    // One to warm up and ten samples; a shorter one is led in by one call each time.
    assert_eq!((calls(2_000_000), calls(1_999_999)), (11, 21));
    assert!(calls(0) > 10 * 500, "as if every call took 100 ns");
}

#[test]
fn one_disturbed_call_does_not_end_the_lead_in() {
    let clock = ScriptedClock::new();
    let calls = |warm_up: u32, first_ns: u64, then_ns: u64| {
        let count = Cell::new(0);
        let sampler = unbatched(&clock).warm_up(warm_up).lead_in_for(AWAKE);
        let sampler = sampler.min_rounds(10).max_rounds(10);
        sampler.run(vec![Contender::new("a", || {
            clock.advance(if count.get() == 0 { first_ns } else { then_ns });
            count.set(count.get() + 1);
            Ok::<_, String>(())
        })]);
        count.get()
    };
    // After the first sample it is known to be short: nine more are led in by five calls each.
    assert_eq!(calls(1, 3_000_000, 10_000), 1 + 10 + 9 * 5);
    // Nothing is known before the first call without warm-up; then it is known to be long. Two try the size of a batch.
    assert_eq!(calls(0, 3_000_000, 3_000_000), 1 + 2 + 10);
    // Calls that lead in by number are part of the time.
    let count = Cell::new(0);
    let sampler = unbatched(&clock).warm_up(1).lead_in(2).lead_in_for(AWAKE);
    let sampler = sampler.min_rounds(10).max_rounds(10);
    sampler.run(vec![Contender::new("a", || {
        clock.advance(10_000);
        count.set(count.get() + 1);
        Ok::<_, String>(())
    })]);
    assert_eq!(count.get(), 1 + 10 * (5 + 1));
}

#[test]
fn noise_keeps_the_race_going_to_its_last_round() {
    let clock = ScriptedClock::new();
    let noisy: Vec<u64> = (0..200).map(|i| 100 + 37 * i % 100).collect();
    let contenders = || {
        vec![
            takes(&clock, "calm", &[100]),
            takes(&clock, "noisy", &noisy),
        ]
    };
    let race = unbatched(&clock).max_rounds(40).run(contenders());
    assert_eq!((race.stop, race.rounds), (Stop::Rounds, 40));
    let patient = unbatched(&clock).max_rounds(40).precision(0.2);
    assert_eq!(patient.run(contenders()).stop, Stop::Precision);
}

#[test]
fn every_round_has_everyone_once_in_an_order_the_seed_decides() {
    let order = |seed| {
        let clock = ScriptedClock::new();
        let log = RefCell::new(String::new());
        let body = |name: &'static str| {
            let (clock, log) = (&clock, &log);
            Contender::new(name, move || {
                clock.advance(100);
                log.borrow_mut().push_str(name);
                Ok::<_, String>(())
            })
        };
        let sampler = unbatched(&clock).warm_up(1).min_rounds(10).seed(seed);
        let race = sampler.run(vec![body("a"), body("b"), body("c")]);
        assert_eq!(race.rounds, 10);
        log.take()
    };
    let log = order(7);
    let (warm_up, rounds) = log.split_at(3);
    assert_eq!(warm_up, "abc");
    let rounds: Vec<&str> = (0..10).map(|i| &rounds[3 * i..3 * i + 3]).collect();
    for round in &rounds {
        let mut names: Vec<char> = round.chars().collect();
        names.sort_unstable();
        assert_eq!(names, ['a', 'b', 'c']);
    }
    assert!(rounds.iter().any(|round| *round != rounds[0]));
    assert_eq!(order(7), log);
    assert_ne!(order(8), log);
}

#[test]
fn short_bodies_run_in_batches_long_enough_for_the_clock() {
    let clock = ScriptedClock::new();
    let race = Sampler::new(&clock).run(vec![
        takes(&clock, "short", &[7]),
        takes(&clock, "long", &[30_000]),
    ]);
    let [short, long] = &race.entries[..] else {
        panic!("two contenders, two entries");
    };
    assert!(
        short.batch * 7 >= 20_000 && short.batch * 7 < 40_000,
        "{short:?}"
    );
    assert_eq!((short.samples_ns[0], long.samples_ns[0]), (7.0, 30_000.0));
    assert_eq!(long.batch, 1);

    // A clock that costs 100 ns asks for samples of 100 µs, however short the caller allows.
    let dear = ScriptedClock::with_cost(100);
    let race = unbatched(&dear).run(vec![takes(&dear, "short", &[7])]);
    let batch = race.entries[0].batch;
    assert!(batch * 7 + 100 >= 100_000, "{batch}");
    // The cost stays in the sample: nothing is subtracted.
    let expected = 7.0 + 100.0 / batch as f64;
    assert!((race.entries[0].samples_ns[0] - expected).abs() < 1e-9);
}

#[test]
fn a_body_without_duration_does_not_hold_up_the_race() {
    let clock = ScriptedClock::new();
    let race = Sampler::new(&clock)
        .max_rounds(2)
        .run(vec![Contender::new("void", || Ok::<_, String>(()))]);
    assert_eq!(
        (race.stop, race.entries[0].batch),
        (Stop::Rounds, LARGEST_BATCH)
    );
    assert_eq!(race.entries[0].samples_ns, [0.0, 0.0]);
}

#[test]
fn the_budget_ends_the_race_before_the_next_sample() {
    let clock = ScriptedClock::new();
    let sampler = unbatched(&clock).budget(Duration::from_nanos(1000));
    let race = sampler.run(vec![takes(&clock, "a", &[150]), takes(&clock, "b", &[100])]);
    assert_eq!(race.stop, Stop::Budget);
    // 3 x 250 ns of warm-up, one round, and no call that starts after 1000 ns.
    assert_eq!((race.elapsed_ns, race.rounds), (1000, 1));
    let race = unbatched(&clock)
        .budget(Duration::ZERO)
        .run(vec![takes(&clock, "a", &[1])]);
    assert_eq!((race.stop, race.elapsed_ns), (Stop::Budget, 0));
    assert_eq!(race.entries[0].summary_ns, None);
}

/// A long body without warm-up meets the budget while its batch is being fitted.
#[test]
fn the_budget_is_overrun_by_one_sample_at_most() {
    let clock = ScriptedClock::new();
    let sampler = Sampler::new(&clock)
        .warm_up(0)
        .budget(Duration::from_millis(1));
    let race = sampler.run(vec![takes(&clock, "slow", &[1_000_000_000])]);
    assert_eq!((race.stop, race.elapsed_ns), (Stop::Budget, 1_000_000_000));
}

#[test]
fn cancelling_ends_the_race_within_a_sample() {
    let clock = ScriptedClock::new();
    let (flag, calls) = (AtomicBool::new(false), Cell::new(0));
    let body = |name| {
        Contender::new(name, || {
            clock.advance(100);
            calls.set(calls.get() + 1);
            flag.store(calls.get() == 6 + 5, Ordering::Relaxed);
            Ok::<_, String>(())
        })
    };
    let race = unbatched(&clock)
        .cancel(&flag)
        .run(vec![body("a"), body("b")]);
    assert_eq!((race.stop, calls.get()), (Stop::Cancelled, 11));
    let taken: Vec<usize> = race.entries.iter().map(|e| e.samples_ns.len()).collect();
    assert_eq!((taken.iter().sum::<usize>(), race.rounds), (5, 3));
}

#[test]
fn a_failing_contender_leaves_the_race_and_the_others_finish() {
    let clock = ScriptedClock::new();
    let mut call = 0;
    let failing = Contender::new("failing", || {
        clock.advance(10);
        call += 1;
        if call == 6 {
            Err("out of memory")
        } else {
            Ok(())
        }
    });
    let panicking = Contender::new("panicking", || -> Result<(), String> {
        panic!("index {} out of range", 3)
    });
    let slow = takes(&clock, "slow", &[10, 10, 10, 10, 5000]);
    let race = unbatched(&clock)
        .sample_timeout(Duration::from_nanos(1000))
        .run(vec![failing, panicking, slow, takes(&clock, "fine", &[20])]);
    assert_eq!(
        outcomes(&race),
        [
            "failed: out of memory",
            "panicked: index 3 out of range",
            "timed out: one sample took 5.00 µs, the limit is 1.00 µs",
            "measured",
        ]
    );
    let taken: Vec<usize> = race.entries.iter().map(|e| e.samples_ns.len()).collect();
    assert_eq!(taken, [2, 0, 1, 15]);
    assert_eq!(race.stop, Stop::Precision);
    let compare = |name| race.compare(name, "fine", 0.9, Indifference::default());
    assert_eq!(compare("failing"), None);
    assert_eq!(compare("unheard of"), None);
    assert_eq!(compare("fine").unwrap().verdict, Verdict::Tie);
}

#[test]
fn without_contenders_there_is_no_race() {
    let clock = ScriptedClock::new();
    assert_eq!(unbatched(&clock).run(Vec::new()).stop, Stop::NoneLeft);
    let race = unbatched(&clock).run(vec![Contender::new("bad", || Err::<(), _>("no"))]);
    assert_eq!((race.stop, race.rounds), (Stop::NoneLeft, 0));
}

#[test]
fn a_sleeping_body_is_caught_by_the_wall_clock() {
    let (cpu, wall) = (ScriptedClock::new(), ScriptedClock::new());
    let sleeper = || {
        Contender::new("sleeper", || {
            cpu.advance(50);
            wall.advance(400);
            Ok::<_, String>(())
        })
    };
    let sampler = unbatched(&cpu).wall_clock(&wall);
    let strict = sampler.clone().sample_timeout(Duration::from_nanos(300));
    assert_eq!(
        strict.run(vec![sleeper()]).entries[0].ending,
        Ending::TimedOut {
            took_ns: 400,
            limit_ns: 300
        }
    );
    let race = sampler
        .budget(Duration::from_nanos(2000))
        .run(vec![sleeper()]);
    assert_eq!((race.stop, race.elapsed_ns), (Stop::Budget, 2000));
    assert_eq!(race.entries[0].samples_ns, [50.0, 50.0]);
}

#[test]
fn a_timeout_shortens_batches_instead_of_dropping_short_bodies() {
    let clock = ScriptedClock::new();
    let race = Sampler::new(&clock)
        .sample_timeout(Duration::from_micros(8))
        .run(vec![takes(&clock, "short", &[10])]);
    let entry = &race.entries[0];
    assert_eq!(entry.ending, Ending::Measured);
    assert!((200..=400).contains(&entry.batch), "{}", entry.batch);
}

#[test]
fn comparisons_pair_the_rounds_both_have_finished() {
    let clock = ScriptedClock::new();
    let drift: Vec<u64> = (0..60).map(|i| 1000 + 40 * i).collect();
    let slower: Vec<u64> = drift.iter().map(|t| t * 5 / 4).collect();
    // The budget lasts for warm-up and 12 rounds and a little more, so one contender has a 13th sample.
    let spent: u64 = drift[..15].iter().chain(&slower[..15]).sum();
    let race = unbatched(&clock)
        .budget(Duration::from_nanos(spent + 1))
        .run(vec![
            takes(&clock, "a", &drift),
            takes(&clock, "b", &slower),
        ]);
    assert_eq!(race.stop, Stop::Budget);
    let taken: Vec<usize> = race.entries.iter().map(|e| e.samples_ns.len()).collect();
    assert_eq!(taken.iter().sum::<usize>(), 25);
    let comparison = race
        .compare("a", "b", 0.9, Indifference::default())
        .unwrap();
    assert_eq!(
        comparison.to_string(),
        "1.25x faster (90 % interval 1.25 to 1.25)"
    );
}

#[test]
fn json_carries_units_and_reasons_and_replays_to_the_byte() {
    let json = || {
        let clock = ScriptedClock::new();
        let noisy: Vec<u64> = (0..200).map(|i| 100 + 37 * i % 100).collect();
        let race = unbatched(&clock).seed(3).run(vec![
            takes(&clock, "noisy", &noisy),
            Contender::new("bad", || Err::<(), _>("no")),
        ]);
        serde_json::to_value(&race).unwrap()
    };
    let race = json();
    assert_eq!(race["stop"], "rounds");
    assert_eq!(race["clock"]["clock"], "scripted");
    assert_eq!(
        race["entries"][0]["samples_ns"][0],
        f64::from(100 + 37 * 3 % 100)
    );
    assert_eq!(race["entries"][0]["summary_ns"]["n"], 100);
    assert_eq!(race["entries"][1]["ending"]["kind"], "failed");
    assert_eq!(race["entries"][1]["ending"]["error"], "no");
    assert_eq!(json(), race);
}
