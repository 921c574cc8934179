//! Calls that have to wait now and then, whoever serves them.

use super::*;

/// Beside another program: on two threads most calls are quick and one in six waits for a processor, on one thread none does.
#[test]
fn who_is_often_interrupted_is_left_for_whoever_is_better_on_the_average() {
    for seed in 0..10 {
        let times = [(6.2e5, 6.2e5), (6.5e5, 6.5e5), (1.07e6, 1.07e6)];
        let mut program = Program::new(Policy::Bandit, &times);
        for (track, threads) in program.learned.tracks.iter_mut().zip([2, 2, 1]) {
            track.facts.threads = threads;
            track.facts.expected.iter_mut().for_each(|it| it.sd = 0.3);
            track.facts.busy = true;
        }
        program.random = Pcg64Mcg::seed_from_u64(seed);
        program.interrupted = vec![(1.0 / 6.0, 7.5), (1.0 / 6.0, 7.5), (0.0, 1.0)];
        for _ in 0..5_000 {
            program.call();
        }
        let average = program.now as f64 / 5_000.0;
        assert!(average < 1.02 * 1.07e6, "seed {seed}: {average}");
        assert!(program.learned.measured(0).unwrap().mean > 1.07e6f64.ln());
        // Who asks a minute later is told what is usual.
        let mut later = program.learned.clone();
        later.wait_until(program.now + 100_000_000_000);
        let (measured, usual) = (later.measured(0).unwrap(), later.usual(0).unwrap());
        assert!(measured.mean - usual.mean < 0.05);
        // When the other program leaves, two threads are the better choice again, and found to be.
        program.interrupted.fill((0.0, 1.0));
        program.calls(60_000);
        assert_ne!(program.serves(), 2, "seed {seed}");
    }
}

/// What strikes all alike moves nobody.
#[test]
fn interruptions_of_all_do_not_make_choices_flap() {
    for seed in 0..10 {
        let times = [(1e6, 1e6), (1e6, 1.01e6), (1e6, 1.05e6)];
        let mut program = Program::new(Policy::Bandit, &times);
        program.random = Pcg64Mcg::seed_from_u64(seed);
        program.interrupted.fill((0.01, 8.0));
        for call in 0..21_000 {
            if call == 1_000 {
                program.events.clear();
            }
            program.call();
        }
        let switched = |event: &&Event| matches!(event, Event::Switched { .. });
        let switches = program.events.iter().filter(switched).count();
        assert!(switches <= 10, "seed {seed}: {switches}");
    }
}

/// A call that waits for a processor does so whoever is tried: it leaves room for other trials.
#[test]
fn an_interrupted_trial_does_not_use_up_the_budget() {
    let times = [(1e6, 1e6), (1e6, 1.1e6)];
    let mut program = Program::new(Policy::Bandit, &times);
    program.calls(300);
    assert_eq!(program.serves(), 0);
    assert!(program.learned.tally(1).unwrap().weight() >= 2.0);
    let spent = program.ledger.spent_ns();
    let sample = |time_ns: f64| Sample {
        candidate: 1,
        time_ns,
        calls: 1,
        trial: Some(0),
        at_ns: program.now,
    };
    let (interrupted, rules) = (sample(1.5e7), program.rules);
    program.learned.learn(
        &interrupted,
        &rules,
        &mut program.ledger,
        &mut program.random,
    );
    let charged = program.ledger.spent_ns() - spent;
    assert!((1e5..4e6).contains(&charged), "{charged}");
}

/// One call in ten of all is eight times as long: who is the fastest serves nearly all of them, within the budget.
#[test]
fn calls_that_wait_now_and_then_are_served_by_the_fastest() {
    for seed in 0..5 {
        let times = [(1e6, 1e6), (1e6, 1.3e6), (1e6, 1.3e6), (1e6, 1.3e6)];
        let mut program = Program::new(Policy::Bandit, &times);
        program.random = Pcg64Mcg::seed_from_u64(seed);
        program.interrupted.fill((0.1, 8.0));
        for _ in 0..20_000 {
            program.call();
        }
        let others = program.served.iter().filter(|i| **i != 0).count();
        assert!(others < 5_000, "seed {seed}: {others} calls");
        let spent = program.ledger.spent_ns();
        assert!(
            spent < 0.01 * program.ledger.served_ns() + 1e8,
            "seed {seed}: {spent}"
        );
    }
}

/// The same, whoever was tried first and found interrupted: one sample dismisses nobody for good, nor does an unlucky average of some dozen.
#[test]
fn who_was_interrupted_when_it_was_tried_is_tried_again() {
    let kept_out = (0..40).filter(|seed| {
        let times = [(1e6, 1.15e6), (1e6, 1.35e6), (1e6, 1.55e6), (1e6, 1e6)];
        let mut program = Program::new(Policy::Bandit, &times);
        program.random = Pcg64Mcg::seed_from_u64(*seed);
        program.interrupted.fill((0.1, 8.0));
        for _ in 0..5_000 {
            program.call();
        }
        let others = program.served.iter().filter(|i| **i != 3).count();
        others > 2_500
    });
    // Three in ten when a sample was believed as it came.
    let kept_out = kept_out.count();
    assert!(kept_out <= 5, "{kept_out} of 40");
}

/// Who compares all asks for all at once, which is cheaper; what comes out is the same to the last bit.
#[test]
fn what_is_believed_of_all_at_once_is_what_is_believed_of_each() {
    let times = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6].map(|time| (1e6 * time, 1e6 * time));
    for busy in [false, true] {
        let mut program = Program::new(Policy::Bandit, &times);
        for (number, track) in program.learned.tracks.iter_mut().enumerate() {
            track.facts.threads = 1 + number as u32 % 3;
            track.facts.busy = busy;
        }
        program.learned.tracks[5].facts.expected = None;
        program.interrupted.fill((0.2, 6.0));
        for _ in 0..400 {
            program.call();
            let learned = &program.learned;
            let all = learned.beliefs().into_iter().enumerate();
            all.for_each(|(number, belief)| assert_eq!(belief, learned.now(number)));
        }
        let seen = |number: &usize| program.learned.above(*number) > 0.0;
        assert!((0..times.len()).any(|number| seen(&number)));
    }
}

/// One kernel alone: one call in six is five times as long, for a while.
fn waits_now_and_then() -> Program {
    let mut program = Program::new(Policy::Bandit, &[(1e6, 1e6)]);
    for call in 0..60 {
        program.told(0, if call % 6 == 5 { 5e6 } else { 1e6 });
    }
    assert!(program.learned.above(0) > 0.3);
    program
}

/// What a kernel takes after a change has nothing to do with the waits before, and they are what it is left with once it is what it
/// was: going back and forth is a way of being interrupted.
#[test]
fn waits_are_forgotten_with_a_change_and_come_back_with_what_was_known() {
    let mut program = waits_now_and_then();
    let waits = program.learned.above(0);
    let event = program.told_until_changed(0, 4e6);
    assert!(matches!(event, Event::Changed { factor, .. } if factor > 3.0));
    assert!(program.learned.above(0) < 1e-6);
    // Nearer to what it was than to what it became, and no more than that.
    let event = program.told_until_changed(0, 1.2e6);
    assert!(matches!(event, Event::Changed { factor, .. } if factor < 0.4));
    let again = program.learned.above(0);
    // Those by which the change was noticed were waits too, as it turns out.
    assert!((waits..waits + 0.3).contains(&again), "{waits} {again}");
}

/// However long a kernel was slow: what comes back is as old as it is.
#[test]
fn waits_that_come_back_late_are_forgotten() {
    let mut program = waits_now_and_then();
    program.told_until_changed(0, 4e6);
    program.now += 100_000_000_000;
    program.told_until_changed(0, 1e6);
    let after = program.learned.above(0);
    assert!(after < 0.03, "{after}");
}

/// A first call that happened to be quick: those after it are longer than was usual until then, and that is what is usual now.
#[test]
fn what_moves_the_usual_time_is_no_wait() {
    let mut program = Program::new(Policy::Bandit, &[(1e6, 1e6)]);
    program.told(0, 0.5e6);
    program.told_often(12, 0, 1e6);
    let above = program.learned.above(0);
    assert!(above < 0.01, "{above}");
}

/// A call in four waits, whoever serves: who takes three tenths longer does so on the average of its calls, too.
#[test]
fn a_trial_is_charged_with_the_waits_of_its_like() {
    let mut program = Program::new(Policy::Bandit, &[(1e6, 1e6), (1e6, 1.3e6)]);
    for call in 0..120 {
        let waits = if call % 4 == 3 { 6.0 } else { 1.0 };
        program.told(0, waits * 1e6);
        program.told(1, waits * 1.3e6);
    }
    assert_eq!(program.serves(), 0);
    let (serving, tried) = (program.learned.above(0), program.learned.above(1));
    let usual = |number: usize| program.learned.usual(number).unwrap().mean;
    assert!(serving > 0.3 && tried > 0.1, "{serving} {tried}");
    let average = |number: usize, above: f64| (usual(number) + above).exp();
    let costs = 2.0 * (average(1, tried) - average(0, serving)).max(0.0);
    let spent = program.ledger.spent_ns();
    let sample = Sample {
        candidate: 1,
        time_ns: usual(1).exp(),
        calls: 1,
        trial: Some(0),
        at_ns: program.now,
    };
    let rules = program.rules;
    let (ledger, random) = (&mut program.ledger, &mut program.random);
    program.learned.learn(&sample, &rules, ledger, random);
    let charged = program.ledger.spent_ns() - spent;
    assert!((charged - costs).abs() < 0.05e6, "{charged} {costs}");
    assert!(costs > 0.0);
}
