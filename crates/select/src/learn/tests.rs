use kernelwise_types::Reason;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::trials::gaussian;
use super::*;

mod crowds;
mod recovery;
mod suspicion;
mod waits;

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

    /// A call of this candidate that takes exactly so long, and is the trial if one of it was asked for; what it shows.
    fn told(&mut self, candidate: usize, time_ns: f64) -> Vec<Event> {
        self.now += time_ns as u64;
        let trial = self.learned.trial();
        let trial = trial.filter(|trial| trial.candidate == candidate);
        let sample = Sample {
            candidate,
            time_ns,
            calls: 1,
            trial: trial.map(|trial| trial.serial),
            at_ns: self.now,
        };
        self.learned
            .learn(&sample, &self.rules, &mut self.ledger, &mut self.random)
    }

    /// The same so many times, whatever it shows.
    fn told_often(&mut self, times: u32, candidate: usize, time_ns: f64) {
        for _ in 0..times {
            self.told(candidate, time_ns);
        }
    }

    /// The same again and again until it shows that something changed.
    fn told_until_changed(&mut self, candidate: usize, time_ns: f64) -> Event {
        let changed = (0..10).find_map(|_| {
            let events = self.told(candidate, time_ns);
            let switched = |event: &Event| matches!(event, Event::Switched { .. });
            events.into_iter().find(|event| !switched(event))
        });
        changed.unwrap()
    }

    /// The same until it is suspected to have changed.
    fn told_until_suspected(&mut self, candidate: usize, time_ns: f64) {
        for _ in 0..10 {
            if self.learned.suspect.is_none() {
                self.told(candidate, time_ns);
            }
        }
        assert!(self.learned.suspect.is_some());
    }

    /// All take so long from now on; calls of this candidate, and of whoever is asked because of it, until something is found to
    /// have changed.
    fn told_until_believed(&mut self, candidate: usize, times: &[f64]) -> Event {
        let changed = (0..40).find_map(|_| {
            let witness = self.learned.suspect.map(|suspect| suspect.witness);
            let runs = witness.unwrap_or(candidate);
            let events = self.told(runs, times[runs]);
            let switched = |event: &Event| matches!(event, Event::Switched { .. });
            events.into_iter().find(|event| !switched(event))
        });
        changed.unwrap()
    }

    /// Candidates that run on so many threads.
    fn on_threads(mut self, threads: &[u32]) -> Self {
        for (track, threads) in self.learned.tracks.iter_mut().zip(threads) {
            track.facts.threads = *threads;
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
    // Timing and learning cost 1,050 ns, which is one per cent of 105 us.
    assert_eq!((period(1e6), period(30_000.0), period(10.0)), (1, 4, 8));
}

/// Something may be about to happen: no call is left out until it is known.
#[test]
fn every_call_is_timed_while_a_trial_is_asked_for_or_something_seems_slower() {
    let mut program = Program::new(Policy::Bandit, &[(30_000.0, 30_000.0)]);
    program.told_often(20, 0, 30_000.0);
    assert_eq!(program.learned.period(&program.rules), 4);
    program.told(0, 60_000.0);
    assert_eq!(program.learned.period(&program.rules), 1);
    let mut program = Program::new(
        Policy::Bandit,
        &[(30_000.0, 30_000.0), (30_000.0, 30_000.0)],
    );
    program.told_often(20, 0, 30_000.0);
    assert!(program.learned.trial().is_some() && program.serves() == 0);
    assert_eq!(program.learned.period(&program.rules), 1);
}

/// One call in some is timed, and stands for those that were not.
#[test]
fn calls_that_were_not_timed_are_served_too() {
    let mut program = Program::new(Policy::Bandit, &[(1000.0, 1000.0)]);
    let sample = Sample {
        candidate: 0,
        time_ns: 1000.0,
        calls: 8,
        trial: None,
        at_ns: 0,
    };
    let rules = program.rules;
    let (ledger, random) = (&mut program.ledger, &mut program.random);
    program.learned.learn(&sample, &rules, ledger, random);
    assert_eq!(program.ledger.served_ns(), 8000.0);
}

#[test]
fn what_is_recalled_does_not_replace_what_was_measured_here() {
    let mut program = Program::new(Policy::Bandit, &[(1e6, 1e6), (1e6, 1e6)]);
    program.told(0, 1e6);
    let before = Tally::of(9, 9.0, 3e6f64.ln(), 0.1).unwrap();
    assert!(!program.learned.recall(0, before));
    assert!(program.learned.recall(1, before));
    assert_eq!(program.learned.tally(0).unwrap().mean(), Some(1e6f64.ln()));
    assert_eq!(program.learned.tally(1), Some(&before));
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
