//! All that run on as many threads become slow together, and are what they were together.

use super::*;

/// Two that run on two threads and two that run on one, all of them known.
const TIMES: [f64; 4] = [1e6, 1.1e6, 1.5e6, 1.6e6];

fn known() -> Program {
    let times = TIMES.map(|time| (time, time));
    let mut program = Program::new(Policy::Bandit, &times).on_threads(&[2, 2, 1, 1]);
    for (candidate, time) in TIMES.into_iter().enumerate() {
        program.told_often(20, candidate, time);
    }
    assert_eq!(program.serves(), 0);
    program
}

/// With so much slower calls on two threads.
fn slowed(by: f64) -> [f64; 4] {
    [by * TIMES[0], by * TIMES[1], TIMES[2], TIMES[3]]
}

#[test]
fn those_on_as_many_threads_are_slow_together_and_nothing_known_of_them_is_lost() {
    let mut program = known();
    let before = program.learned.tally(0).copied();
    let event = program.told_until_believed(0, &slowed(3.0));
    assert!(
        matches!(event, Event::Crowded { threads: 2, factor } if (factor - 3.0).abs() < 0.01),
        "{event:?}"
    );
    assert_eq!(
        program.serves(),
        2,
        "who runs on one thread is the best now"
    );
    for (candidate, time) in slowed(3.0).into_iter().enumerate() {
        let believed = program.learned.beliefs()[candidate].mean.exp() / time;
        assert!((0.97..1.03).contains(&believed), "{candidate}: {believed}");
    }
    // One of them, any, shows that it is over, for both.
    let events = program.told(1, TIMES[1]);
    let over =
        |event: &Event| matches!(event, Event::Crowded { threads: 2, factor } if *factor < 0.4);
    assert!(events.iter().any(over), "{events:?}");
    assert_eq!(program.serves(), 0);
    let after = program.learned.tally(0).copied();
    let mean = |tally: Option<Tally>| tally.and_then(|tally| tally.mean()).unwrap();
    assert!((mean(before) - mean(after)).abs() < 1e-9);
}

/// Two threads are slower by less than one thread is: who serves goes on, and nobody is asked who could not take its place.
#[test]
fn who_is_still_the_best_goes_on_serving() {
    let mut program = known();
    let event = program.told_until_believed(0, &slowed(1.3));
    assert!(matches!(event, Event::Crowded { threads: 2, .. }));
    assert_eq!(program.serves(), 0);
    for on_one_thread in [2, 3] {
        let samples = program.learned.tally(on_one_thread).unwrap().samples();
        assert_eq!(samples, 20);
    }
    let events = program.told(0, TIMES[0]);
    let over = |event: &Event| matches!(event, Event::Crowded { factor, .. } if *factor < 1.0);
    assert!(events.iter().any(over), "who serves tells by itself");
}

/// One kernel alone is slow: the other on as many threads says so, and takes over.
#[test]
fn one_that_is_slow_alone_is_not_taken_for_all() {
    let mut program = known();
    let times = [3e6, TIMES[1], TIMES[2], TIMES[3]];
    let event = program.told_until_believed(0, &times);
    assert!(
        matches!(event, Event::Changed { candidate: 0, .. }),
        "{event:?}"
    );
    assert_eq!(program.serves(), 1);
}

/// What is over by the time a witness has told was a moment: nothing changed, and the witness was a trial like any other.
#[test]
fn a_moment_changes_nothing_and_its_witness_is_paid_for() {
    let mut program = known();
    program.told_until_suspected(0, 3e6);
    let spent = program.ledger.spent_ns();
    let witness = program.learned.trial().unwrap();
    assert_eq!((witness.candidate, witness.witness), (1, true));
    assert!(program.told(1, TIMES[1]).is_empty());
    assert!(
        program.learned.trial().is_none(),
        "it is its own witness now"
    );
    assert_eq!(
        program.ledger.spent_ns(),
        spent,
        "better than what was seen"
    );
    assert!(program.told(0, TIMES[0]).is_empty());
    assert_eq!(
        (program.serves(), program.learned.suspect.is_none()),
        (0, true)
    );
    let paid = program.ledger.spent_ns() - spent;
    assert!((0.5e5..2.5e5).contains(&paid), "{paid}");
}

/// Nobody on one thread was ever timed: what is expected of it stands, and it takes over.
#[test]
fn who_was_never_timed_is_not_taken_to_be_slow_too() {
    let times = [(1e6, 1e6), (1.1e6, 1.1e6), (1.5e6, 1.5e6)];
    let mut program = Program::new(Policy::Bandit, &times).on_threads(&[2, 2, 1]);
    for track in &mut program.learned.tracks {
        track.facts.expected.as_mut().unwrap().sd = 0.1;
    }
    program.told_often(20, 0, 1e6);
    program.told_often(20, 1, 1.1e6);
    let event = program.told_until_believed(0, &[3e6, 3.3e6, 1.5e6]);
    assert!(
        matches!(event, Event::Crowded { threads: 2, .. }),
        "{event:?}"
    );
    program.times = vec![3e6, 3.3e6, 1.5e6];
    program.calls(20);
    assert_eq!(program.serves(), 2);
}

/// It lasts: one of them is asked now and then, ever more seldom, and the sooner the less asking costs.
#[test]
fn it_is_asked_as_often_as_asking_pays() {
    let asked = |by: f64, times: u32| {
        let mut program = known();
        program.told_until_believed(0, &slowed(by));
        let mut asked = 0;
        for _ in 0..times {
            let trial = program.learned.trial().map(|trial| trial.candidate);
            let runs = trial.unwrap_or(program.serves());
            asked += usize::from(trial == Some(0));
            program.told(runs, slowed(by)[runs]);
        }
        (asked, program)
    };
    let ((seldom, _), (often, program)) = (asked(4.0, 400), asked(1.6, 400));
    assert!(seldom >= 1 && often >= 4 * seldom, "{seldom} {often}");
    // And when it is over that is found out by asking.
    let mut program = program;
    for _ in 0..100 {
        let trial = program.learned.trial().map(|trial| trial.candidate);
        let runs = trial.unwrap_or(program.serves());
        program.told(runs, TIMES[runs]);
    }
    assert_eq!(program.serves(), 0);
}

/// Another program leaves one processor free of two that it took: what is left is believed, of all on as many threads.
#[test]
fn what_becomes_a_little_better_does_so_for_all() {
    let mut program = known();
    program.told_until_believed(0, &slowed(6.0));
    let times = slowed(4.0);
    for _ in 0..20 {
        program.told(0, times[0]);
    }
    for candidate in [0, 1] {
        let believed = program.learned.beliefs()[candidate].mean.exp() / times[candidate];
        assert!((0.9..1.1).contains(&believed), "{candidate}: {believed}");
    }
}

/// Slow moments that are over before anybody can make use of it: after a few of them nobody is asked, and who serves goes on.
#[test]
fn moments_that_come_and_go_quickly_are_no_changes() {
    let mut program = known();
    let mut witnesses = [0, 0];
    for round in 0..200 {
        for slow in [true, false] {
            for _ in 0..if slow { 4 } else { 14 } {
                let trial = program.learned.trial();
                let runs = trial.map_or(program.serves(), |trial| trial.candidate);
                witnesses[round / 100] += usize::from(trial.is_some_and(|trial| trial.witness));
                let times = if slow { slowed(1.8) } else { TIMES };
                program.told(runs, times[runs]);
            }
        }
    }
    assert!(witnesses[0] > 0, "{witnesses:?}");
    assert!(witnesses[1] <= 50, "{witnesses:?}");
    assert_eq!(program.serves(), 0);
}

/// A call that waits while a witness does not is told apart from a kernel that became slow: it is slow again and again.
#[test]
fn a_single_witness_convicts_nobody() {
    let mut program = known();
    program.told_until_suspected(0, 3e6);
    for _ in 0..2 {
        assert_eq!(program.learned.suspect.unwrap().witness, 1);
        assert!(program.told(1, TIMES[1]).is_empty());
        assert!(program.told(0, 3e6).is_empty(), "heard again");
    }
    assert!(program.told(1, TIMES[1]).is_empty());
    assert!(program.told(0, TIMES[0]).is_empty(), "it was a moment");
    assert!(program.learned.suspect.is_none() && program.serves() == 0);
    // Nor does one on another number of threads convict all on as many.
    let mut program = known();
    program.told_until_suspected(0, 3e6);
    program.told(1, 3e6);
    assert_eq!(program.learned.suspect.unwrap().witness, 2);
    assert!(program.told(2, TIMES[2]).is_empty());
    assert!(program.told(0, 3e6).is_empty(), "heard again");
    assert!(program.told(0, TIMES[0]).is_empty(), "it was a moment");
    assert!(program.learned.suspect.is_none() && program.learned.crowds.is_empty());
    // What was told of one kernel before was not told of all.
    let mut program = known();
    program.told_until_suspected(0, 3e6);
    for _ in 0..2 {
        program.told(1, TIMES[1]);
        program.told(0, 3e6);
    }
    program.told(1, 3e6);
    assert_eq!(program.learned.suspect.unwrap().witness, 2);
    assert!(program.told(2, TIMES[2]).is_empty(), "heard again");
    assert!(program.learned.crowds.is_empty());
}

/// Where calls differ by much, as beside another program, a few that are as they used to be end a slowness as well.
#[test]
fn what_is_over_is_found_to_be_where_calls_differ_by_much() {
    // Of all on as many threads, and of one kernel.
    for alike in [true, false] {
        let mut program = known();
        for number in 0..200 {
            let candidate = number / 2 % 2;
            program.told(candidate, [0.7, 1.4][number % 2] * TIMES[candidate]);
        }
        let track = &program.learned.tracks[0];
        let (usual, noise) = (track.tally.mean().unwrap().exp(), track.tally.noise());
        let mut times = slowed(2.6);
        if !alike {
            times[1] = TIMES[1];
        }
        let event = program.told_until_believed(0, &times);
        let by = match (alike, event) {
            (true, Event::Crowded { factor, .. }) => factor.ln(),
            (false, Event::Changed { factor, .. }) => factor.ln(),
            _ => panic!("{event:?}"),
        };
        assert!((1.5..5.0).contains(&(by / noise)), "{by} {noise}");
        let over = (1..=40).find(|_| {
            let events = program.told(0, usual);
            let over = |event: &Event| match event {
                Event::Crowded { factor, .. } | Event::Changed { factor, .. } => *factor < 0.7,
                _ => false,
            };
            events.iter().any(over)
        });
        assert!(over.is_some_and(|calls| calls <= 4), "{alike}: {over:?}");
    }
}

/// A small one is over when several calls say so, and leaves nothing to ask about.
#[test]
fn a_small_one_leaves_nothing_behind() {
    let mut program = known();
    let event = program.told_until_believed(0, &slowed(1.08));
    assert!(matches!(event, Event::Crowded { threads: 2, .. }));
    assert_eq!(program.learned.crowds.len(), 1);
    program.told_often(12, 0, TIMES[0]);
    assert!(program.learned.crowds.is_empty());
    assert_eq!(program.serves(), 0);
}

/// All that pointed to a further change is explained when a slowness is over: nothing known is lost with it.
#[test]
fn a_suspicion_ends_with_the_slowness_it_came_from() {
    let mut program = known();
    program.told_until_believed(0, &slowed(1.3));
    assert_eq!(program.serves(), 0);
    program.told_until_suspected(0, 2.6e6);
    let witness = program.learned.suspect.unwrap().witness;
    // Its call falls into a gap of the load.
    program.told(witness, TIMES[witness]);
    assert!(program.learned.suspect.is_none() && program.learned.crowds.is_empty());
    for time in [TIMES[0], 2.6e6] {
        program.told(0, time);
        let believed = program.learned.beliefs()[0].mean.exp();
        assert!((0.9e6..1.3e6).contains(&believed), "{believed}");
    }
}
