//! Problems that come once each, and are measured one run at a time.
//!
//! The [`Selector`](crate::Selector) meets the same workloads again and again. Where every problem is new, what is known
//! of others is all there is: a [`Stream`] serves each by its [`Policy`] on what experience leads
//! to expect, learns from the time, and buys further runs of the same problem while the budget lets it. It runs nothing by
//! itself: whoever owns it says how long things took, so recorded times do as well as a machine.

use crate::belief::Belief;
use crate::budget::Ledger;
use crate::experience::{Experience, Outlook, ProblemId};
use crate::explore::Offer;
use crate::learn::Rules;
use crate::policy::{Choice, Contender, Policy};
use crate::problem::Problem;
use kernelwise_types::Reason;

/// Learns from problems in the order they come.
#[derive(Debug)]
pub struct Stream {
    rules: Rules,
    experience: Experience,
    ledger: Ledger,
}

/// The problem at hand.
#[derive(Debug)]
pub struct Visit<'a> {
    stream: &'a mut Stream,
    id: ProblemId,
    outlook: Vec<Option<Outlook>>,
    choice: Choice,
    offers: Option<std::vec::IntoIter<Offer>>,
}

/// A run that the budget allows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Extra {
    /// Whom to run.
    pub arm: usize,
    /// When to stop waiting for it; infinite if the budget is not asked.
    pub at_most: f64,
}

impl Stream {
    /// Nothing was seen yet. Times may be in any unit, the same for all.
    pub fn new(rules: Rules, seed: u64) -> Self {
        Self {
            rules,
            experience: Experience::new(seed),
            ledger: Ledger::default(),
        }
    }

    /// What was served, and what other runs cost.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Meets a problem that the open arms can compute, and says who serves it; `None` if none is open.
    pub fn meet(&mut self, problem: Problem, open: Vec<bool>) -> Option<Visit<'_>> {
        let first = open.iter().position(|open| *open)?;
        let several = open.iter().filter(|open| **open).count() > 1;
        let id = self.experience.meet(problem, open);
        let outlook = self.experience.outlook(id);
        let choice = self.choose(&outlook, several);
        // Nothing is known of any: the first, as declared.
        let choice = choice.unwrap_or(Choice {
            serves: first,
            reason: Reason::Default,
        });
        Some(Visit {
            stream: self,
            id,
            outlook,
            choice,
            offers: None,
        })
    }

    fn choose(&self, outlook: &[Option<Outlook>], several: bool) -> Option<Choice> {
        let times = outlook.iter().flatten().map(|known| known.time.mean);
        let best = times.fold(f64::INFINITY, f64::min);
        let contender = |known: &Option<Outlook>| Contender {
            belief: known.map_or(Belief::NOTHING, |known| Belief {
                mean: best + known.slowdown,
                sd: known.time.sd,
                weight: 0.0,
            }),
            samples: 0,
            modelled: known.map(|known| known.time),
            workspace: 0,
            efficiency: None,
            // It gets in by a further run, whose cost the budget knows.
            barred: known.is_none(),
        };
        let contenders: Vec<Contender> = outlook.iter().map(contender).collect();
        let choice = self
            .rules
            .policy
            .choose(&contenders, None, self.rules.zone)?;
        let others = several && choice.reason == Reason::OnlyCandidate;
        // Only one is known; that is no merit.
        let reason = if others {
            Reason::Default
        } else {
            choice.reason
        };
        Some(Choice { reason, ..choice })
    }
}

impl Visit<'_> {
    /// Who serves, and why.
    pub fn choice(&self) -> Choice {
        self.choice
    }

    /// How long it took who serves.
    pub fn served(&mut self, time: f64) {
        let Stream {
            experience, ledger, ..
        } = &mut *self.stream;
        ledger.serve(time);
        let serves = self.choice.serves;
        experience.observe(self.id, serves, time.ln());
        let offers = experience.offers(self.id, &self.outlook, (serves, time));
        self.offers = Some(offers.into_iter());
    }

    /// Another run that is worth it, once the problem was served.
    pub fn next_run(&mut self) -> Option<Extra> {
        let offers = self.offers.as_mut()?;
        if let Policy::Exhaustive { .. } = self.stream.rules.policy {
            return offers.next().map(|offer| Extra {
                arm: offer.arm,
                at_most: f64::INFINITY,
            });
        }
        let left = self.stream.ledger.left(&self.stream.rules.budget);
        let fair = offers.find(|offer| offer.is_fair(left))?;
        Some(Extra {
            arm: fair.arm,
            at_most: left,
        })
    }

    /// How long it took; `None` if it was stopped when all that was allowed was spent.
    pub fn ran(&mut self, run: Extra, time: Option<f64>) {
        self.stream.ledger.charge(time.unwrap_or(run.at_most));
        let experience = &mut self.stream.experience;
        match time {
            Some(time) => experience.observe(self.id, run.arm, time.ln()),
            None => experience.stopped(self.id, run.arm),
        }
    }
}

impl Drop for Visit<'_> {
    /// The problem is over: others may learn from it.
    fn drop(&mut self) {
        let experience = &mut self.stream.experience;
        experience.leave(self.id);
        if experience.is_due() {
            experience.refit();
        }
    }
}

#[cfg(test)]
mod tests;
