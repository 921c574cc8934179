//! Which run is worth its price to problems that are still to come.
//!
//! What serves is measured anyway. What else is run costs time, and pays off only where it teaches something: on kinds of
//! problems that come often, about arms that ran seldom there and may be the better ones. A price is the time a run is expected
//! to take over what it is worth, and the cheapest is bought while it is a small part of what is left to spend: small enough
//! that the next problem can afford one as well.

use std::collections::{HashMap, HashSet};

use crate::experience::Outlook;

/// Part of what is left that a run may be priced at, in the long run. In the beginning it may be more: little is known
/// and much is to be gained, so what lies idle then is lost.
const PART_OF_PRICE: f64 = 0.02;
/// Part of what is left that a run may be expected to take, whatever it is worth; the same holds.
const PART_OF_TIME: f64 = 0.1;
/// What a run is worth of an arm that is far behind, next to one that is level.
const LEAST_WORTH: f64 = 0.02;
/// How much more is learned from a problem of usual size than from a tiny one: large ones carry the time.
const SIZE_WORTH: f64 = 0.5;

/// Runs so far, by problems that are much alike.
#[derive(Debug, Clone, Default)]
pub(crate) struct Explored {
    cells: HashMap<u64, Cell>,
    problems: f64,
}

#[derive(Debug, Clone, Default)]
struct Cell {
    problems: u32,
    runs: Vec<u32>,
}

/// A run that could be made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Offer {
    pub(crate) arm: usize,
    /// What it is expected to take.
    cost: f64,
    price: f64,
    /// How much larger a part of what is left it may take, so early.
    early: f64,
}

impl Offer {
    /// Whether it is worth it, with so much left to spend.
    pub(crate) fn is_fair(&self, left: f64) -> bool {
        let part = |part: f64| (part + self.early).min(1.0) * left;
        left > 0.0 && self.price <= part(PART_OF_PRICE) && self.cost <= part(PART_OF_TIME)
    }
}

impl Explored {
    /// Takes note of a problem.
    pub(crate) fn meet(&mut self, cell: u64) {
        self.cells.entry(cell).or_default().problems += 1;
        self.problems += 1.0;
    }

    /// Takes note of a run.
    pub(crate) fn ran(&mut self, cell: u64, arm: usize) {
        let runs = &mut self.cells.entry(cell).or_default().runs;
        if runs.len() <= arm {
            runs.resize(arm + 1, 0);
        }
        runs[arm] += 1;
    }

    /// Forgets all cells but these.
    pub(crate) fn forget(&mut self, but: impl Iterator<Item = u64>) {
        let kept: HashSet<u64> = but.collect();
        self.cells.retain(|cell, _| kept.contains(cell));
    }

    /// How often an arm ran on problems like these.
    pub(crate) fn runs(&self, cell: u64, arm: usize) -> u32 {
        let runs = self.cells.get(&cell).and_then(|cell| cell.runs.get(arm));
        runs.copied().unwrap_or(0)
    }

    /// Runs that could be made on a problem besides the one that served, the best value first. `served` is its arm and time,
    /// `usual` the usual time of a problem.
    pub(crate) fn offers(
        &self,
        cell: u64,
        outlook: &[Option<Outlook>],
        open: &[bool],
        (served, time): (usize, f64),
        usual: f64,
    ) -> Vec<Offer> {
        let problems = self.cells.get(&cell).map_or(1, |cell| cell.problems.max(1));
        let serving = outlook.get(served).copied().flatten();
        let behind = serving.map_or(0.0, |serving| serving.slowdown);
        let offer = |arm: usize| {
            // What never ran is taken to be as good as what served.
            let (worth, cost) = match outlook.get(arm).copied().flatten() {
                Some(known) => {
                    let gap = (known.slowdown - behind).max(0.0);
                    ((-gap).exp().max(LEAST_WORTH), known.time.mean.exp())
                }
                None => (1.0, time),
            };
            let runs = f64::from(self.runs(cell, arm));
            let often = f64::from(problems).sqrt() / (1.0 + runs);
            let size = 1.0 + SIZE_WORTH * time / usual;
            Offer {
                arm,
                cost,
                price: cost / (worth * often * size),
                early: self.problems.max(1.0).sqrt().recip(),
            }
        };
        let others = (0..open.len()).filter(|arm| *arm != served && open[*arm]);
        let mut offers: Vec<Offer> = others.map(offer).collect();
        offers.sort_by(|a, b| a.price.total_cmp(&b.price));
        offers
    }
}

#[cfg(test)]
mod tests {
    use crate::belief::Expected;

    use super::*;

    fn outlook(ln_t: f64, slowdown: f64) -> Option<Outlook> {
        Some(Outlook {
            time: Expected {
                mean: ln_t,
                sd: 0.1,
            },
            slowdown,
            runs_alike: 0,
            fitted: true,
        })
    }

    fn order(explored: &Explored, outlook: &[Option<Outlook>]) -> Vec<usize> {
        let open = vec![true; outlook.len()];
        let offers = explored.offers(7, outlook, &open, (0, 1.0), 1.0);
        offers.iter().map(|offer| offer.arm).collect()
    }

    #[test]
    fn what_is_quick_likely_and_seldom_seen_comes_first() {
        let mut explored = Explored::default();
        explored.meet(7);
        let likely = [outlook(0.0, 0.0), outlook(0.0, 0.9), outlook(0.0, 0.1)];
        assert_eq!(order(&explored, &likely), [2, 1]);
        let quick = [outlook(0.0, 0.0), outlook(2.0, 0.1), outlook(0.1, 0.1)];
        assert_eq!(order(&explored, &quick), [2, 1]);
        // After some runs here another is worth more.
        for _ in 0..3 {
            explored.ran(7, 2);
        }
        assert_eq!(order(&explored, &likely), [1, 2]);
        // Elsewhere nothing was run.
        let offers = explored.offers(8, &likely, &[true; 3], (0, 1.0), 1.0);
        assert_eq!(offers[0].arm, 2);
        assert_eq!(order(&explored, &[None, None]), [1]);
    }

    #[test]
    fn problems_that_come_often_may_cost_more_and_nothing_costs_all() {
        let mut explored = Explored::default();
        let both = [outlook(0.0, 0.0), outlook(0.0, 0.0)];
        let offer = |explored: &Explored| explored.offers(7, &both, &[true; 2], (0, 1.0), 1.0)[0];
        explored.meet(7);
        let once = offer(&explored);
        for _ in 0..99 {
            explored.meet(7);
        }
        let often = offer(&explored);
        assert!(often.price < once.price);
        // Worth whatever it may be, a run takes no more than a part of what is left: here a tenth, and a tenth because
        // it is early.
        assert!(often.is_fair(5.1) && !often.is_fair(4.9));
        assert!(!once.is_fair(0.0) && !once.is_fair(-1.0));
        // What may not run is not on offer.
        let closed = explored.offers(7, &both, &[true, false], (0, 1.0), 1.0);
        assert!(closed.is_empty());
    }
}
