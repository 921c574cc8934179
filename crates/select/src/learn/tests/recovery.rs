//! What became slow and is asked whether it still is.

use super::*;

/// Two threads are faster until another program takes one of their processors, and again when it leaves.
#[test]
fn what_was_slow_for_a_while_serves_again() {
    let mut program = Program::new(Policy::Bandit, &[(1e6, 1e6), (1.6e6, 1.6e6)]);
    program.calls(200);
    assert_eq!(program.serves(), 0);
    program.times[0] = 4e6;
    program.calls(50);
    assert_eq!(program.serves(), 1, "left while it is slow");
    // Ten seconds of it: asked now and then, seldom.
    let before = program.served.len();
    program.calls(6_000);
    assert_eq!(program.serves(), 1);
    let asked = program.served[before..].iter().filter(|i| **i == 0).count();
    assert!((1..=25).contains(&asked), "asked {asked} times");
    program.times[0] = 1e6;
    program.calls(12_000);
    assert_eq!(program.serves(), 0, "back when it is what it was");
    let faster =
        |event: &Event| matches!(event, Event::Changed { candidate: 0, factor } if *factor < 0.5);
    assert!(program.events.iter().any(faster));
}

/// One that stays slow is asked ever more seldom.
#[test]
fn what_stays_slow_is_asked_ever_more_seldom() {
    let mut program = Program::new(Policy::Bandit, &[(1e7, 1e7), (1.6e7, 1.6e7)]);
    program.calls(200);
    program.times[0] = 1e8;
    program.calls(100);
    // Minutes, and again when it has been so for an hour.
    let mut asked = Vec::new();
    for calls in [10_000, 200_000, 10_000] {
        let before = program.served.len();
        program.calls(calls);
        asked.push(program.served[before..].iter().filter(|i| **i == 0).count());
    }
    assert!(asked[0] >= 3 && 2 * asked[2] <= asked[0], "{asked:?}");
    // Asking cost two calls of 84 ms more.
    let share = asked[0] as f64 * 2.0 * 8.4e7 / (1e4 * 1.6e7);
    assert!(share < 0.011, "{share}");
}

/// One that cannot be paid for must not keep others from their trials.
#[test]
fn who_is_too_dear_to_be_asked_again_stands_in_nobodys_way() {
    let mut found = 0;
    for seed in 0..10 {
        let times = [(1e6, 1e6), (3e6, 3e6), (3e6, 3e6), (3e6, 3e6), (3e6, 1.3e6)];
        let mut program = Program::new(Policy::Bandit, &times);
        program.random = Pcg64Mcg::seed_from_u64(seed);
        program.rules.budget.share = 0.02;
        for _ in 0..30 {
            program.call();
        }
        program.times[0] = 3e8;
        for _ in 0..20_000 {
            program.call();
        }
        found += usize::from(program.serves() == 4);
    }
    assert!(found >= 9, "found {found} times of 10");
}

/// Times of calls on one or two threads while another program comes and goes, which slows only the latter.
struct Moments {
    /// How long it stays away and how long it stays, on average, in nanoseconds.
    away: f64,
    there: f64,
    /// How much longer two threads take meanwhile.
    slower: f64,
}

impl Moments {
    /// Calls of the learner, of the best on two threads and of the best on one, all in the same time.
    fn calls(&self, seed: u64) -> [f64; 3] {
        const KERNELS: [(f64, u32); 5] =
            [(7.0e5, 2), (7.4e5, 2), (9.0e5, 2), (1.0e6, 1), (1.1e6, 1)];
        const WHOLE: f64 = 4e9;
        let rules = Rules::default();
        let facts = KERNELS.map(|(time, threads)| Facts {
            expected: Some(Expected {
                mean: time.ln(),
                sd: 0.15,
            }),
            modelled: None,
            hinted: 0.0,
            workspace: 0,
            threads,
            busy: false,
            efficiency: None,
        });
        let mut learned = Learned::new(facts, &rules);
        let (mut ledger, mut random) = (Ledger::default(), Pcg64Mcg::seed_from_u64(seed));
        let lasts = |mean: f64, random: &mut Pcg64Mcg| {
            let unit = ((random.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
            -mean * unit.ln()
        };
        let mut others = Pcg64Mcg::seed_from_u64(1000 + seed);
        let (mut now, mut is_there) = (0.0, false);
        let mut changes = lasts(self.away, &mut others);
        let mut calls = [0.0; 3];
        while now < WHOLE {
            while now >= changes {
                is_there = !is_there;
                let mean = if is_there { self.there } else { self.away };
                changes += lasts(mean, &mut others);
            }
            let slowed = |threads: u32| match is_there && threads == 2 {
                true => self.slower,
                false => 1.0,
            };
            let trial = learned.trial();
            let serves = learned.choice().unwrap().serves;
            let candidate = trial.map_or(serves, |trial| trial.candidate);
            let (time, threads) = KERNELS[candidate];
            let time_ns = time * slowed(threads) * (0.05 * gaussian(&mut random)).exp();
            // A trial is two calls, of which the second is timed.
            let runs = if trial.is_some() { 2.0 } else { 1.0 };
            now += runs * time_ns;
            calls[0] += runs;
            calls[1] += runs * time_ns / (7.0e5 * slowed(2));
            calls[2] += runs * time_ns / 1.0e6;
            let sample = Sample {
                candidate,
                time_ns,
                calls: 1,
                trial: trial.map(|trial| trial.serial),
                at_ns: now as u64,
            };
            learned.learn(&sample, &rules, &mut ledger, &mut random);
        }
        calls
    }
}

/// However long another program stays, nobody who fixes the number of threads serves many more calls.
#[test]
fn programs_that_come_and_go_cost_little_whatever_their_rhythm() {
    const MS: f64 = 1e6;
    let rhythms = [
        (100.0, 5.0),
        (300.0, 50.0),
        (100.0, 100.0),
        (1000.0, 300.0),
        (1500.0, 1500.0),
        (100.0, 1000.0),
    ];
    for (slower, (away, there)) in [1.8, 2.5]
        .into_iter()
        .flat_map(|by| rhythms.map(|one| (by, one)))
    {
        let moments = Moments {
            away: away * MS,
            there: there * MS,
            slower,
        };
        let mut sums = [0.0; 3];
        for seed in 0..6 {
            for (sum, calls) in sums.iter_mut().zip(moments.calls(seed)) {
                *sum += calls;
            }
        }
        let [learned, two, one] = sums;
        let share = learned / two.max(one);
        assert!(
            share > 0.975,
            "away {away} ms, there {there} ms, {slower} times as long: {share}"
        );
    }
}

/// A kernel that was the fastest and one that was the next, both slower than a third by now, and
/// due to be asked whether they still are.
fn two_that_became_slow(first_ns: f64) -> Program {
    let times = [(1e6, 1e6), (1.1e6, 1.1e6), (1.3e6, 1.3e6)];
    let mut program = Program::new(Policy::Bandit, &times).on_threads(&[2, 2, 1]);
    // Nobody is tried but who is asked again: the third is known, and the others are known to be slow.
    program.told_often(20, 0, 1e6);
    program.told_often(20, 1, 1.1e6);
    program.told_often(20, 2, 1.3e6);
    for (candidate, times) in [(0, [first_ns, 1.1e6, 1.3e6]), (1, [first_ns, 2.2e6, 1.3e6])] {
        let event = program.told_until_believed(candidate, &times);
        assert!(matches!(event, Event::Changed { candidate: whose, .. } if whose == candidate));
    }
    assert_eq!(program.serves(), 2);
    let is_due = |program: &Program, number: usize| {
        let retry = program.learned.tracks[number].retry.unwrap();
        retry.wait.is_due(program.now)
    };
    while !(is_due(&program, 0) && is_due(&program, 1)) {
        program.now += 100_000;
    }
    program
}

#[test]
fn who_was_the_fastest_is_asked_first_and_who_is_barred_is_not() {
    let mut program = two_that_became_slow(2e6);
    let rules = program.rules;
    let mut barred = two_that_became_slow(2e6);
    program.told(2, 1.3e6);
    assert_eq!(
        program.learned.trial().map(|trial| trial.candidate),
        Some(0)
    );
    barred.learned.bar(0, true, &rules);
    barred.told(2, 1.3e6);
    assert_eq!(barred.learned.trial().map(|trial| trial.candidate), Some(1));
}

/// The fastest of before would cost too much to ask: the next is.
#[test]
fn who_is_too_dear_to_be_asked_lets_the_next_pass() {
    let mut program = two_that_became_slow(3e9);
    let asked = |program: &Program| program.learned.trial().map(|trial| trial.candidate);
    program.told(2, 1.3e6);
    assert_ne!(asked(&program), Some(0));
    program.told(2, 1.3e6);
    assert_eq!(asked(&program), Some(1));
}

/// Slow, slower still, and what it was: what was known before counts again.
#[test]
fn what_became_slow_twice_is_what_it_was_before_the_first_time() {
    let mut program = Program::new(Policy::Bandit, &[(1e6, 1e6)]);
    program.told_often(50, 0, 1e6);
    for time in [2e6, 4e6] {
        let event = program.told_until_changed(0, time);
        assert!(matches!(event, Event::Changed { factor, .. } if factor > 1.9));
    }
    program.told_until_changed(0, 1e6);
    assert!(program.learned.tally(0).unwrap().weight() > 45.0);
}

/// What is asked about costs more than there is at the moment: nobody else uses up what is saved for it.
#[test]
fn what_asking_costs_is_saved_for() {
    let times = [(1e6, 1e6), (1.1e6, 1.1e6), (1.5e6, 1.5e6), (1.52e6, 1.52e6)];
    let mut program = Program::new(Policy::Bandit, &times).on_threads(&[2, 2, 1, 1]);
    for (candidate, (time, _)) in times.into_iter().enumerate() {
        program.told_often(20, candidate, time);
    }
    let slow = [3e6, 3.3e6, 1.5e6, 1.52e6];
    let event = program.told_until_believed(0, &slow);
    assert!(matches!(event, Event::Crowded { threads: 2, .. }));
    // Nothing is left, and what trials of the near tie cost would be spent as it comes in.
    let left = program.ledger.left(&program.rules.budget);
    program.ledger.charge_more(left);
    let asked = |program: &mut Program, calls: usize| {
        let mut asked = 0;
        for _ in 0..calls {
            let trial = program.learned.trial().map(|trial| trial.candidate);
            let runs = trial.unwrap_or(program.serves());
            asked += usize::from(trial == Some(0));
            program.told(runs, slow[runs]);
        }
        asked
    };
    let (first, second) = (asked(&mut program, 400), asked(&mut program, 400));
    assert!(first >= 1 && second >= 1, "{first} {second}");
}

/// A change that is no larger than what calls differ by is not taken back by a single call.
#[test]
fn a_kernel_that_is_a_little_slower_does_not_change_back_and_forth() {
    for (noise, slower) in [(0.02, 1.05), (0.05, 1.1), (0.05, 1.3)] {
        let mut program = Program::new(Policy::Bandit, &[(1e6, 1e6)]);
        program.noise = noise;
        program.calls(300);
        program.times[0] = slower * 1e6;
        program.calls(2_000);
        let changed = |event: &&Event| matches!(event, Event::Changed { .. });
        let changes = program.events.iter().filter(changed).count();
        assert!(changes <= 20, "{slower}: {changes}");
        let believed = program.learned.beliefs()[0].mean.exp() / (slower * 1e6);
        assert!((0.985..1.015).contains(&believed), "{slower}: {believed}");
    }
}
