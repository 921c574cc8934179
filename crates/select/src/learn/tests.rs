use kernelwise_types::Reason;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;

/// Kernels with true times, called as a program would call them.
struct Program {
    learned: Learned,
    rules: Rules,
    ledger: Ledger,
    random: Pcg64Mcg,
    times: Vec<f64>,
    noise: f64,
    /// How often a call of each is interrupted, and how many times as long it is then.
    interrupted: Vec<(f64, f64)>,
    now: u64,
    /// Who served each call.
    served: Vec<usize>,
    events: Vec<Event>,
}

impl Program {
    /// Expected and true times in nanoseconds.
    fn new(policy: Policy, times: &[(f64, f64)]) -> Self {
        let rules = Rules {
            policy,
            ..Rules::default()
        };
        let facts = times.iter().map(|(expected, _)| Facts {
            expected: Some(Expected {
                mean: expected.ln(),
                sd: 1.0,
            }),
            modelled: None,
            hinted: 0.0,
            workspace: 0,
            threads: 1,
            busy: false,
            efficiency: None,
        });
        Self {
            learned: Learned::new(facts, &rules),
            rules,
            ledger: Ledger::default(),
            random: Pcg64Mcg::seed_from_u64(7),
            times: times.iter().map(|(_, time)| *time).collect(),
            noise: 0.02,
            interrupted: vec![(0.0, 1.0); times.len()],
            now: 0,
            served: Vec::new(),
            events: Vec::new(),
        }
    }

    fn call(&mut self) {
        let trial = self.learned.trial();
        let serves = self.learned.choice().unwrap().serves;
        let candidate = trial.map_or(serves, |trial| trial.candidate);
        let mut time_ns = self.times[candidate] * (self.noise * gaussian(&mut self.random)).exp();
        let (chance, factor) = self.interrupted[candidate];
        if chance > 0.0 && self.random.random_bool(chance) {
            time_ns *= factor;
        }
        self.now += time_ns as u64;
        let sample = Sample {
            candidate,
            time_ns,
            calls: 1,
            trial: trial.map(|trial| trial.serial),
            at_ns: self.now,
        };
        let events = self
            .learned
            .learn(&sample, &self.rules, &mut self.ledger, &mut self.random);
        self.events.extend(events);
        self.served.push(candidate);
    }

    fn calls(&mut self, n: usize) -> &mut Self {
        for _ in 0..n {
            self.call();
            let left = self.ledger.left(&self.rules.budget);
            // A trial may turn out worse than expected; then none follows until that is earned back.
            assert!(left > -10.0 * self.times.iter().copied().fold(0.0, f64::max));
        }
        self
    }

    fn serves(&self) -> usize {
        self.learned.choice().unwrap().serves
    }
}

#[test]
fn the_fastest_is_found_whatever_was_expected_and_in_any_order() {
    // Expectations that lie: the slowest kernel promises the most.
    let kernels = [
        (100.0, 9000.0),
        (2000.0, 2000.0),
        (3000.0, 1000.0),
        (1500.0, 1500.0),
    ];
    for turn in 0..4 {
        let mut turned = kernels;
        turned.rotate_left(turn);
        let best = turned.iter().position(|k| k.1 == 1000.0).unwrap();
        let mut program = Program::new(Policy::Bandit, &turned);
        assert_eq!(turned[program.serves()].0, 100.0, "nothing is known yet");
        program.calls(10);
        assert_ne!(turned[program.serves()].1, 9000.0, "the liar is abandoned");
        program.calls(290);
        assert_eq!(program.serves(), best, "turned by {turn}");
        assert!(program.learned.confidence(0.02).unwrap() > 0.95);
    }
}

#[test]
fn trials_cost_no_more_than_the_budget() {
    let mut program = Program::new(
        Policy::Bandit,
        &[
            (1000.0, 1000.0),
            (1000.0, 3000.0),
            (1000.0, 2500.0),
            (1000.0, 1100.0),
        ],
    );
    let allowed = |ledger: &Ledger| 0.01 * ledger.served_ns() + 3.0 * 1100.0;
    for _ in 0..500 {
        program.call();
        // What one trial costs is known only afterwards.
        assert!(program.ledger.spent_ns() <= allowed(&program.ledger) + 2000.0);
    }
    assert!(program.ledger.trials() >= 3);
    assert_eq!(program.serves(), 0);
    // Without a budget nothing is ever tried.
    let mut program = Program::new(Policy::Bandit, &[(1000.0, 1000.0), (1000.0, 10.0)]);
    program.rules.budget = Budget::NONE;
    program.calls(200);
    assert!(program.served.iter().all(|i| *i == program.served[0]));
    assert_eq!(program.ledger.trials(), 0);
}

/// Where nothing is expected of anybody, the others are tried as if they were like the first.
#[test]
fn without_expectations_all_get_their_chance() {
    let mut program = Program::new(Policy::Bandit, &[(1.0, 9e6), (1.0, 1e6), (1.0, 5e6)]);
    for track in &mut program.learned.tracks {
        track.facts.expected = None;
    }
    program.calls(300);
    assert_eq!(program.serves(), 1);
}

#[test]
fn near_ties_do_not_flap() {
    let mut program = Program::new(Policy::Bandit, &[(1000.0, 1000.0), (1000.0, 1005.0)]);
    program.calls(1000);
    let switches = program
        .events
        .iter()
        .filter(|event| matches!(event, Event::Switched { .. }));
    assert!(switches.count() <= 3);
}

#[test]
fn inverted_times_invert_the_choice() {
    let mut program = Program::new(Policy::Bandit, &[(1500.0, 1000.0), (1500.0, 2000.0)]);
    program.calls(100);
    assert_eq!(program.serves(), 0);
    program.times = vec![2000.0, 1000.0];
    program.calls(100);
    assert_eq!(program.serves(), 1);
}

#[test]
fn a_kernel_that_becomes_slow_is_left_within_twenty_calls() {
    for seed in 0..20 {
        let mut program = Program::new(
            Policy::Bandit,
            &[(1000.0, 1000.0), (1000.0, 1300.0), (1000.0, 2000.0)],
        );
        program.random = Pcg64Mcg::seed_from_u64(seed);
        program.calls(300);
        assert_eq!(program.serves(), 0);
        program.times[0] = 10_000.0;
        program.calls(20);
        assert_ne!(program.serves(), 0, "seed {seed}");
        let changed = |event: &Event| matches!(event, Event::Changed { candidate: 0, factor } if *factor > 5.0);
        assert!(program.events.iter().any(changed));
        program.calls(100);
        assert_eq!(program.serves(), 1);
    }
}

#[test]
fn a_machine_that_becomes_slow_changes_nobody() {
    for seed in 0..20 {
        let mut program = Program::new(
            Policy::Bandit,
            &[(1000.0, 1000.0), (1000.0, 1300.0), (1000.0, 2000.0)],
        );
        program.random = Pcg64Mcg::seed_from_u64(seed);
        program.calls(300);
        program.events.clear();
        program.times.iter_mut().for_each(|time| *time *= 2.0);
        program.calls(300);
        assert_eq!(program.serves(), 0);
        let switched = |event: &Event| matches!(event, Event::Switched { .. });
        assert!(
            !program.events.iter().any(switched),
            "seed {seed}: {:?}",
            program.events
        );
        let common =
            |event: &Event| matches!(event, Event::Common { factor } if (factor - 2.0).abs() < 0.3);
        assert!(program.events.iter().any(common));
        // And back again.
        program.times.iter_mut().for_each(|time| *time /= 2.0);
        program.calls(300);
        assert_eq!(program.serves(), 0);
        assert!(!program.events.iter().any(switched));
    }
}

/// Asking a runner-up costs something as well, and without a budget nobody is asked.
#[test]
fn witnesses_are_paid_for() {
    let mut program = Program::new(Policy::Bandit, &[(1000.0, 1000.0), (1000.0, 50_000.0)]);
    program.calls(50);
    program.rules.budget = Budget::NONE;
    let trials = program.ledger.trials();
    for _ in 0..20 {
        program.times[0] = 1100.0;
        program.calls(10);
        program.times[0] = 1000.0;
        program.calls(40);
    }
    assert_eq!(program.ledger.trials(), trials);
}

/// A witness whose time nobody tells does not freeze the choice.
#[test]
fn a_lost_witness_is_asked_again() {
    let mut program = Program::new(Policy::Bandit, &[(1000.0, 1000.0), (1000.0, 1300.0)]);
    program.calls(300);
    program.times[0] = 10_000.0;
    let mut lost = 0;
    for call in 0..300 {
        let Some(trial) = program.learned.trial().filter(|_| lost < 2) else {
            program.call();
            continue;
        };
        // The call is made, and its time never told; others go on.
        lost += usize::from(trial.witness);
        for _ in 0..=PATIENCE {
            let sample = Sample {
                candidate: program.serves(),
                time_ns: program.times[program.serves()],
                calls: 1,
                trial: None,
                at_ns: program.now,
            };
            let rules = program.rules;
            program
                .learned
                .learn(&sample, &rules, &mut program.ledger, &mut program.random);
        }
        assert!(call < 290, "still waiting");
    }
    assert_eq!(program.serves(), 1);
}

/// The first run finds caches empty; that alone does not exclude a kernel.
#[test]
fn a_cold_first_run_is_forgiven() {
    let mut found = 0;
    for seed in 0..20 {
        let mut program = Program::new(Policy::Bandit, &[(1000.0, 1000.0), (1000.0, 800.0)]);
        program.random = Pcg64Mcg::seed_from_u64(seed);
        let cold = Sample {
            candidate: 1,
            time_ns: 1300.0,
            calls: 1,
            trial: None,
            at_ns: 0,
        };
        let rules = program.rules;
        program
            .learned
            .learn(&cold, &rules, &mut program.ledger, &mut program.random);
        program.calls(2000);
        found += usize::from(program.serves() == 1);
    }
    assert!(found >= 18, "{found} of 20");
}

/// Every policy tries others, or it would never know them.
#[test]
fn other_policies_try_as_well() {
    for name in ["score", "hybrid", "model"] {
        let times = [(1000.0, 9000.0), (1000.0, 100.0)];
        let mut program = Program::new(name.parse().unwrap(), &times);
        program.calls(200);
        assert_eq!(program.serves(), 1, "{name}");
    }
}

/// A machine that is slow again and again leaves no trace in what is known of kernels that are seldom seen.
#[test]
fn load_that_comes_and_goes_does_not_add_up() {
    let times = [(1000.0, 1000.0), (1000.0, 1300.0), (1000.0, 2000.0)];
    let mut program = Program::new(Policy::Bandit, &times);
    program.calls(200);
    for round in 0..100 {
        let factor = if round % 2 == 0 { 1.5 } else { 1.0 / 1.5 };
        program.times.iter_mut().for_each(|time| *time *= factor);
        program.calls(30);
    }
    assert_eq!(program.serves(), 0);
    for (belief, (_, time)) in program.learned.beliefs().iter().zip(times) {
        let factor = belief.mean.exp() / time;
        assert!((0.4..2.5).contains(&factor), "{factor}");
    }
}

#[test]
fn one_kernel_alone_is_believed() {
    let mut program = Program::new(Policy::Bandit, &[(1000.0, 1000.0)]);
    program.calls(50);
    program.times[0] = 3000.0;
    program.calls(50);
    assert!((program.learned.beliefs()[0].mean.exp() - 3000.0).abs() < 100.0);
    assert_eq!(
        program.learned.choice().unwrap().reason,
        Reason::OnlyCandidate
    );
}

#[test]
fn an_exhaustive_policy_measures_all_and_then_stays() {
    let policy = Policy::Exhaustive { samples: 3 };
    let mut program = Program::new(
        policy,
        &[(1000.0, 1000.0), (1000.0, 5000.0), (1000.0, 800.0)],
    );
    program.calls(12);
    for i in 0..3 {
        assert!(program.learned.tally(i).unwrap().samples() >= 3);
    }
    let before = program.served.len();
    program.calls(50);
    assert!(program.served[before..].iter().all(|i| *i == 2));
}

#[test]
fn what_is_barred_is_neither_served_nor_tried_until_it_is_let_in() {
    let mut program = Program::new(Policy::Bandit, &[(1000.0, 1000.0), (1000.0, 500.0)]);
    let rules = program.rules;
    program.learned.bar(1, true, &rules);
    program.calls(100);
    assert!(program.served.iter().all(|i| *i == 0));
    assert!(program.learned.is_barred(1) && !program.learned.is_barred(0));
    program.learned.bar(1, false, &rules);
    program.calls(100);
    assert_eq!(program.serves(), 1);
    program.learned.bar(0, true, &rules);
    program.learned.bar(1, true, &rules);
    assert_eq!(program.learned.choice(), None);
    assert_eq!(program.learned.confidence(0.02), None);
}

#[test]
fn long_calls_are_all_timed_and_short_ones_seldom() {
    let period = |time: f64| {
        let mut program = Program::new(Policy::Bandit, &[(time, time)]);
        assert_eq!(program.learned.period(&program.rules), 1);
        program.calls(20);
        program.learned.period(&program.rules)
    };
    // Timing costs 50 ns, which is one per cent of 5 us.
    assert_eq!((period(1e6), period(1_300.0), period(10.0)), (1, 4, 8));
}

#[test]
fn nonsense_is_ignored() {
    let mut program = Program::new(Policy::Bandit, &[(1000.0, 1000.0)]);
    for (candidate, time_ns) in [(0, f64::NAN), (0, -1.0), (0, f64::INFINITY), (9, 1.0)] {
        let sample = Sample {
            candidate,
            time_ns,
            calls: 1,
            trial: None,
            at_ns: 0,
        };
        let rules = program.rules;
        let events =
            program
                .learned
                .learn(&sample, &rules, &mut program.ledger, &mut program.random);
        assert!(events.is_empty());
    }
    assert_eq!(program.learned.tally(0).unwrap().samples(), 0);
    assert_eq!(program.ledger.served_ns(), 0.0);
}

#[test]
fn what_is_old_fades() {
    let mut program = Program::new(Policy::Bandit, &[(1000.0, 1000.0)]);
    program.calls(16);
    let before = program.learned.tally(0).unwrap().weight();
    program.now += program.rules.half_life_ns as u64;
    program.calls(1);
    let after = program.learned.tally(0).unwrap().weight();
    assert!((after - 1.0 - before / 2.0).abs() < 0.01);
}

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
    assert!((1..=20).contains(&asked), "asked {asked} times");
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
    let mut asked = Vec::new();
    for _ in 0..5 {
        let before = program.served.len();
        program.calls(4_000);
        asked.push(program.served[before..].iter().filter(|i| **i == 0).count());
    }
    assert!(asked[0] >= 1 && asked[4] <= 1, "{asked:?}");
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
    for (away, there) in rhythms {
        let moments = Moments {
            away: away * MS,
            there: there * MS,
            slower: 2.5,
        };
        let mut sums = [0.0; 3];
        for seed in 0..6 {
            for (sum, calls) in sums.iter_mut().zip(moments.calls(seed)) {
                *sum += calls;
            }
        }
        let [learned, two, one] = sums;
        let share = learned / two.max(one);
        assert!(share > 0.94, "away {away} ms, there {there} ms: {share}");
    }
}

/// Two threads wait for a processor that is taken, and so would any two: one thread is asked, not the next best on two.
#[test]
fn who_runs_on_other_threads_is_the_witness() {
    let times = [(1000.0, 1000.0), (1000.0, 1100.0), (1000.0, 1300.0)];
    let mut program = Program::new(Policy::Bandit, &times);
    for (track, threads) in program.learned.tracks.iter_mut().zip([2, 2, 1]) {
        track.facts.threads = threads;
    }
    program.calls(300);
    assert_eq!(program.serves(), 0);
    (program.times[0], program.times[1]) = (2500.0, 2750.0);
    let mut checked = false;
    for _ in 0..12 {
        let reason = program.learned.choice().unwrap().reason;
        checked |= reason == Reason::Checking;
        program.call();
    }
    assert!(checked, "the choice says that it is kept for a check");
    assert_eq!(program.serves(), 2, "{:?}", program.events);
    let slower = |event: &&Event| matches!(event, Event::Changed { factor, .. } if *factor > 1.5);
    assert_eq!(program.events.iter().filter(slower).count(), 2);
    let common = |event: &Event| matches!(event, Event::Common { .. });
    assert!(!program.events.iter().any(common));
}

/// Of others a time is expected, of one only a hint is known: it is not taken to need a nanosecond.
#[test]
fn who_is_only_hinted_at_is_taken_to_be_like_those_of_whom_more_is_known() {
    let rules = Rules::default();
    let fact = |expected: Option<f64>, hinted: f64| Facts {
        expected: expected.map(|time: f64| Expected {
            mean: time.ln(),
            sd: 0.3,
        }),
        modelled: None,
        hinted,
        workspace: 0,
        threads: 1,
        busy: false,
        efficiency: None,
    };
    let learned = Learned::new([fact(Some(1e6), 0.0), fact(None, 0.0)], &rules);
    assert_eq!(learned.choice().unwrap().serves, 0);
    let better = Learned::new([fact(Some(1e6), 2.0), fact(None, 0.0)], &rules);
    let mean = better.beliefs()[1].mean;
    assert!((mean - (1e6f64.ln() - 2.0)).abs() < 1e-9);
}

/// Others make everything slower that runs on one thread: who was faster stays so, and nobody is changed for it.
#[test]
fn what_slows_one_is_expected_to_slow_those_like_it() {
    let rules = Rules::default();
    let times = [1.0, 1.1, 1.2, 1.3, 1.4];
    let fact = |(i, time): (usize, &f64)| Facts {
        expected: Some(Expected {
            mean: (1e6 * time).ln(),
            sd: 0.3,
        }),
        modelled: None,
        hinted: 0.0,
        workspace: 0,
        efficiency: None,
        threads: if i < 4 { 1 } else { 2 },
        busy: true,
    };
    let mut learned = Learned::new(times.iter().enumerate().map(fact), &rules);
    let (mut ledger, mut random) = (Ledger::default(), Pcg64Mcg::seed_from_u64(7));
    for call in 0..20 {
        let sample = Sample {
            candidate: 0,
            time_ns: 1.6e6,
            calls: 1,
            trial: None,
            at_ns: 2_000_000 * call,
        };
        learned.learn(&sample, &rules, &mut ledger, &mut random);
        assert!([0, 4].contains(&learned.choice().unwrap().serves), "{call}");
    }
    let beliefs = learned.beliefs();
    for (belief, time) in beliefs.iter().zip(times).take(4) {
        assert!(
            (belief.mean - (1.6e6 * time).ln()).abs() < 0.06,
            "{belief:?}"
        );
        assert!(belief.sd < 0.2, "{belief:?}");
    }
    // Of what runs on two threads that says nothing.
    let other = beliefs[4];
    assert!(
        (other.mean - 1.4e6f64.ln()).abs() < 1e-9 && other.sd > 0.3,
        "{other:?}"
    );
}

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

/// A trial of who is slower by three tenths costs as much, however often both of them wait.
#[test]
fn trials_are_charged_what_they_take_longer_on_the_average() {
    for seed in 0..5 {
        let times = [(1e6, 1e6), (1e6, 1.3e6), (1e6, 1.3e6), (1e6, 1.3e6)];
        let mut program = Program::new(Policy::Bandit, &times);
        program.random = Pcg64Mcg::seed_from_u64(seed);
        program.interrupted.fill((0.1, 8.0));
        for _ in 0..20_000 {
            program.call();
        }
        assert_eq!(program.serves(), 0);
        // A trial is two calls of 0.3 ms more, and as much again on the average of their waits.
        let trials = program.ledger.trials() as f64;
        let (spent, truly) = (program.ledger.spent_ns(), trials * 2.0 * 0.3e6 * 1.7);
        assert!(spent > truly / 3.0, "seed {seed}: {spent} of {truly}");
        assert!(
            spent < 0.01 * program.ledger.served_ns() + 1e8,
            "seed {seed}: {spent}"
        );
    }
}
