use crate::budget::Budget;

use super::*;

fn rules(policy: &str, budget: Budget) -> Rules {
    Rules {
        policy: policy.parse().unwrap(),
        budget,
        ..Rules::default()
    }
}

fn problem(size: f32) -> Problem {
    Problem::new(vec![size], f64::from(size)).alike(&"kind", f64::from(size))
}

/// Two arms that change places at 100, a third that is always bad.
fn time(arm: usize, size: f32) -> f64 {
    let size = f64::from(size);
    [size, 50.0 + size / 2.0, 10.0 * size + 100.0][arm]
}

fn play(stream: &mut Stream, size: f32, open: Vec<bool>) -> (usize, Vec<usize>) {
    let mut visit = stream.meet(problem(size), open).unwrap();
    let serves = visit.choice().serves;
    assert_eq!(
        visit.next_run(),
        None,
        "nothing is tried before the problem is served"
    );
    visit.served(time(serves, size));
    let mut tried = Vec::new();
    while let Some(run) = visit.next_run() {
        let took = time(run.arm, size);
        visit.ran(run, (took <= run.at_most).then_some(took));
        tried.push(run.arm);
    }
    (serves, tried)
}

#[test]
fn the_first_is_served_as_declared_and_then_by_what_is_known() {
    let budget = Budget {
        share: 0.2,
        first_runs: 10.0,
    };
    let mut stream = Stream::new(rules("bandit", budget), 1);
    let first = stream.meet(problem(10.0), vec![false, true, true]).unwrap();
    assert_eq!(
        (first.choice().serves, first.choice().reason),
        (1, Reason::Default)
    );
    drop(first);
    let mut late = Vec::new();
    for i in 0..400 {
        let size = 10.0 * 1.015f32.powi((i * 77) % 300);
        let (serves, _) = play(&mut stream, size, vec![true; 3]);
        if i > 300 && !(70.0..140.0).contains(&size) {
            late.push(serves == usize::from(size > 100.0));
        }
    }
    let right = late.iter().filter(|right| **right).count();
    assert!(right * 10 >= late.len() * 9, "{right} of {}", late.len());
    let left = stream.ledger().left(&budget);
    assert!(left >= 0.0 && stream.ledger().spent_ns() > 0.0);
    let visit = stream.meet(problem(20.0), vec![true; 3]).unwrap();
    assert_eq!(visit.choice().reason, Reason::Modelled);
    drop(visit);
    let alone = stream
        .meet(problem(20.0), vec![false, true, false])
        .unwrap();
    assert_eq!(alone.choice().reason, Reason::OnlyCandidate);
}

#[test]
fn nothing_open_is_nothing_served_and_no_budget_is_no_trial() {
    let mut stream = Stream::new(rules("bandit", Budget::NONE), 1);
    assert!(stream.meet(problem(10.0), vec![false; 3]).is_none());
    for _ in 0..20 {
        let (_, tried) = play(&mut stream, 10.0, vec![true; 3]);
        assert!(tried.is_empty());
    }
    assert_eq!(stream.ledger().trials(), 0);
    // The only one that ever ran is the choice of ignorance, not of knowledge.
    let visit = stream.meet(problem(10.0), vec![true; 3]).unwrap();
    assert_eq!(
        (visit.choice().serves, visit.choice().reason),
        (0, Reason::Default)
    );
}

#[test]
fn exhaustive_tries_everything_once() {
    let mut stream = Stream::new(rules("exhaustive", Budget::NONE), 1);
    let (serves, mut tried) = play(&mut stream, 10.0, vec![true; 3]);
    tried.sort_unstable();
    assert_eq!((serves, tried), (0, vec![1, 2]));
}
