//! What the learner is held against: the best there is, a fixed order of preference, and a tuner that tries everything once per
//! bucket of sizes.

use std::collections::HashMap;

use crate::figures::{Figures, Tally};
use crate::find_db::{FindDb, Recorded};

/// The best of every problem, known beforehand.
pub fn oracle(record: &FindDb, order: &[usize]) -> Figures {
    let mut tally = Tally::default();
    for problem in order.iter().map(|place| &record.problems[*place]) {
        tally.add(problem.best_ms(), problem.best_ms());
    }
    tally.figures()
}

/// An order of preference: the first that can compute a problem does.
#[derive(Debug, Clone, PartialEq)]
pub struct StaticOrder {
    /// Algorithms, most preferred first.
    pub order: Vec<usize>,
    /// How good it is.
    pub figures: Figures,
}

impl StaticOrder {
    /// The best order in hindsight, by the geometric mean. With more than seven algorithms only exchanges of two are tried
    /// from order to order, so a better one may be missed.
    pub fn best(record: &FindDb, order: &[usize]) -> Self {
        let problems: Vec<&Recorded> = order.iter().map(|place| &record.problems[*place]).collect();
        let preferred = |order: &[usize]| -> Figures {
            let mut tally = Tally::default();
            for problem in &problems {
                let times = order
                    .iter()
                    .filter_map(|algorithm| problem.times_ms[*algorithm]);
                if let Some(time) = times.clone().next() {
                    tally.add(time, problem.best_ms());
                }
            }
            tally.figures()
        };
        let start: Vec<usize> = (0..record.algorithms.len()).collect();
        let mut best = Self {
            figures: preferred(&start),
            order: start,
        };
        let try_out = |order: Vec<usize>, best: &mut Self| {
            let figures = preferred(&order);
            let better = figures.geo_slowdown < best.figures.geo_slowdown;
            if better {
                *best = Self { order, figures };
            }
            better
        };
        match record.algorithms.len() {
            0..=7 => permutations(best.order.clone(), 0, &mut |order| {
                try_out(order.to_vec(), &mut best);
            }),
            count => loop {
                let mut improved = false;
                for a in 0..count {
                    for b in a + 1..count {
                        let mut order = best.order.clone();
                        order.swap(a, b);
                        improved |= try_out(order, &mut best);
                    }
                }
                if !improved {
                    break;
                }
            },
        }
        best
    }
}

/// Every order of what comes from `fixed` on.
fn permutations(mut order: Vec<usize>, fixed: usize, visit: &mut impl FnMut(&[usize])) {
    if fixed == order.len() {
        return visit(&order);
    }
    for place in fixed..order.len() {
        order.swap(fixed, place);
        permutations(order.clone(), fixed + 1, visit);
        order.swap(fixed, place);
    }
}

/// A tuner that runs every algorithm once for the first problem of a bucket, where sizes count up to the next power of two, and
/// prefers them in that order for all others in it. Its runs are counted as trials, each algorithm once: real tuners repeat
/// them.
pub fn first_in_bucket(record: &FindDb, order: &[usize]) -> Figures {
    let mut ranked: HashMap<Vec<u64>, Vec<usize>> = HashMap::new();
    let mut tally = Tally::default();
    for problem in order.iter().map(|place| &record.problems[*place]) {
        let ranking = ranked.entry(problem.bucket()).or_insert_with(|| {
            let algorithms = problem.times_ms.iter().enumerate();
            let timed = algorithms.filter_map(|(algorithm, time)| Some((algorithm, (*time)?)));
            let mut timed: Vec<(usize, f64)> = timed.collect();
            timed.sort_by(|a, b| a.1.total_cmp(&b.1));
            tally.trials += timed.len() as u64;
            tally.trials_time += timed.iter().map(|(_, time)| time).sum::<f64>();
            timed.into_iter().map(|(algorithm, _)| algorithm).collect()
        });
        // What its first problem could not use may be all that this one can.
        let known = ranking.iter().copied().chain(0..problem.times_ms.len());
        let mut times = known.filter_map(|algorithm| problem.times_ms[algorithm]);
        match times.next() {
            Some(time) => tally.add(time, problem.best_ms()),
            None => tally.invalid_picks += 1,
        }
    }
    tally.figures()
}
