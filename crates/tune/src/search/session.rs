//! The books of a search: what may be spent, what is known, what has to be measured again.
//!
//! - **Budget.** Evaluations of different configurations, and seconds as evaluations report them. Evaluations from before count, the seconds
//!   they took do not: each run has its own. A configuration that is asked for again costs
//!   nothing: its outcome is known.
//! - **Going on.** A session is given what was evaluated before. The strategy is asked from the beginning; as long as it asks
//!   for what is known, it is answered from there. One that was interrupted hence ends where it would have ended. What remains because evaluators were
//!   several and came in another order is told when the first unknown one is asked for.
//! - **Noise.** Where times have a spread, the best of many is in part the luckiest. Some evaluations are kept back; with
//!   these, configurations that the spread cannot tell from the best are measured again, in turn, and the mean
//!   counts.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;

use kernelwise_measure::Clock;
use serde::Serialize;

use super::{Evaluation, Outcome, Search};
use crate::space::Configuration;

/// Known answers in a row after which a strategy has nothing new to ask.
const MOST_REPEATS: usize = 1_000;
/// Configurations measured again at most.
const FINALISTS: usize = 4;
/// How often each.
const ROUNDS: usize = 2;
/// One in so many evaluations is kept back for them.
const KEPT_BACK: u64 = 8;
/// Standard errors within which two times are not told apart.
const TOLD_APART: f64 = 3.0;

/// What a search may spend. By default there is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Budget {
    /// Evaluations, failed ones included.
    pub evaluations: Option<u64>,
    /// Seconds, compiling included. What was evaluated before does not count.
    pub seconds: Option<f64>,
}

/// A budget that is none.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// Not a time.
    #[error("a budget of {0} seconds: give a number above zero")]
    Seconds(f64),
    /// Nothing to spend.
    #[error("a budget of no evaluations: give at least one")]
    NoEvaluations,
}

impl Budget {
    /// So many evaluations.
    pub fn evaluations(count: u64) -> Self {
        Self {
            evaluations: Some(count),
            seconds: None,
        }
    }

    fn check(&self) -> Result<(), BudgetError> {
        match (self.evaluations, self.seconds) {
            (Some(0), _) => Err(BudgetError::NoEvaluations),
            (_, Some(seconds)) if seconds.is_nan() || seconds <= 0.0 => {
                Err(BudgetError::Seconds(seconds))
            }
            _ => Ok(()),
        }
    }
}

/// Why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stopped {
    /// The evaluations were spent.
    Evaluations,
    /// The seconds were spent.
    Seconds,
    /// The strategy has nothing more to ask: all is known.
    Nothing,
    /// What could still be gained, over all [runs](super::Knowledge::runs) to come, is less than an evaluation costs.
    NotWorth,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Evaluations => "its evaluations were spent",
            Self::Seconds => "its seconds were spent",
            Self::Nothing => "all that is allowed is known",
            Self::NotWorth => "one more evaluation would cost more than it could gain",
        })
    }
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Evaluate this and [record](Session::record) what came of it.
    Evaluate(Configuration),
    /// Nothing until something that is out is recorded.
    Wait,
    /// It is over.
    Done(Stopped),
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The best configuration and its time in seconds; the mean of several where it was measured again. None if all failed.
    pub best: Option<(Configuration, f64)>,
    /// Everything that was evaluated, in order; enough to go on.
    pub evaluations: Vec<Evaluation>,
    /// What all of them cost, in seconds.
    pub seconds: f64,
    /// Why it ended.
    pub stopped: Stopped,
}

/// A search under way.
#[derive(Debug)]
pub struct Session<'a> {
    search: &'a mut dyn Search,
    budget: Budget,
    past: VecDeque<Evaluation>,
    evaluations: Vec<Evaluation>,
    /// All times of a configuration.
    times: HashMap<Configuration, Vec<f64>>,
    known: HashMap<Configuration, Outcome>,
    out: HashSet<Configuration>,
    seconds: f64,
    /// What evaluations from before cost.
    recalled: f64,
    spread: f64,
    /// What is measured again, once the search is over.
    again: Option<VecDeque<Configuration>>,
    stopped: Option<Stopped>,
}

impl<'a> Session<'a> {
    /// Begins, or goes on from what was evaluated before.
    pub fn new(
        search: &'a mut dyn Search,
        budget: Budget,
        past: &[Evaluation],
    ) -> Result<Self, BudgetError> {
        budget.check()?;
        Ok(Self {
            search,
            budget,
            past: past.iter().cloned().collect(),
            evaluations: Vec::new(),
            times: HashMap::new(),
            known: HashMap::new(),
            out: HashSet::new(),
            seconds: 0.0,
            recalled: 0.0,
            spread: 0.0,
            again: None,
            stopped: None,
        })
    }

    /// What to do next. May be called again before everything is recorded, for evaluators that work at the same time.
    pub fn step(&mut self) -> Step {
        loop {
            let next = match self.wanted() {
                Ok(next) => next,
                Err(step) => return step,
            };
            let again = self.again.is_some();
            // Recorded before the interruption, in this order if there was one evaluator.
            let place = self.past.iter().position(|old| old.configuration == next);
            if let Some(old) = place.and_then(|place| self.past.remove(place)) {
                self.out.insert(next);
                self.recall(&old);
                continue;
            }
            if !again {
                self.tell_rest();
                if let Some(known) = self.known.get(&next) {
                    let known = *known;
                    self.search.tell(&next, &known);
                    continue;
                }
                if self.spent().is_some() {
                    continue;
                }
            }
            self.out.insert(next.clone());
            return Step::Evaluate(next);
        }
    }

    /// What is to be evaluated, known or not.
    fn wanted(&mut self) -> Result<Configuration, Step> {
        if self.again.is_none() && self.stopped.is_none() {
            match self.spent() {
                Some(why) => self.stopped = Some(why),
                None => {
                    for _ in 0..MOST_REPEATS {
                        let Some(next) = self.search.ask() else {
                            break;
                        };
                        let repeated = self.known.get(&next).copied();
                        match repeated {
                            Some(known) => self.search.tell(&next, &known),
                            None if self.out.contains(&next) => {}
                            None => return Ok(next),
                        }
                    }
                    if !self.out.is_empty() {
                        return Err(Step::Wait);
                    }
                    self.stopped = Some(match self.search.has_had_enough() {
                        true => Stopped::NotWorth,
                        false => Stopped::Nothing,
                    });
                }
            }
        }
        let stopped = self.stopped.unwrap_or(Stopped::Nothing);
        if !self.out.is_empty() {
            return Err(Step::Wait);
        }
        if self.again.is_none() {
            self.again = Some(self.finalists());
        }
        let next = self.again.as_mut().and_then(VecDeque::pop_front);
        match next {
            Some(next) if !self.all_spent() => Ok(next),
            _ => Err(Step::Done(stopped)),
        }
    }

    /// Tells what is known from before but was not asked for.
    fn tell_rest(&mut self) {
        while let Some(old) = self.past.pop_front() {
            self.out.insert(old.configuration.clone());
            self.recall(&old);
        }
    }

    /// What came of a configuration before. It counts as an evaluation, but what it cost was spent by whoever did it: a second run
    /// has seconds of its own.
    fn recall(&mut self, old: &Evaluation) {
        let spent = self.seconds;
        self.record(&old.configuration, old.outcome);
        self.recalled += self.seconds - spent;
        self.seconds = spent;
    }

    /// What came of a configuration.
    pub fn record(&mut self, configuration: &Configuration, outcome: Outcome) {
        self.out.remove(configuration);
        self.seconds += outcome.cost.unwrap_or(0.0).max(0.0);
        let spread = if outcome.spread.is_finite() {
            outcome.spread
        } else {
            0.0
        };
        self.spread = self.spread.max(spread);
        self.evaluations.push(Evaluation {
            configuration: configuration.clone(),
            outcome,
        });
        if let Some(time) = outcome.usable() {
            self.times
                .entry(configuration.clone())
                .or_default()
                .push(time);
        }
        let again = self.known.insert(configuration.clone(), outcome).is_some();
        if !again {
            self.search.tell(configuration, &outcome);
        }
    }

    /// Evaluations that finalists may need.
    fn kept_back(&self) -> u64 {
        match self.budget.evaluations {
            Some(all) if self.spread > 0.0 => (all / KEPT_BACK).min((FINALISTS * ROUNDS) as u64),
            _ => 0,
        }
    }

    /// Whether the search may not go on, and why.
    fn spent(&self) -> Option<Stopped> {
        let under_way = (self.evaluations.len() + self.out.len()) as u64 + self.kept_back();
        if self.budget.evaluations.is_some_and(|all| under_way >= all) {
            return Some(Stopped::Evaluations);
        }
        let over = self.budget.seconds.is_some_and(|all| self.seconds >= all);
        over.then_some(Stopped::Seconds)
    }

    fn all_spent(&self) -> bool {
        let done = self.evaluations.len() as u64;
        self.budget.evaluations.is_some_and(|all| done >= all)
            || self.budget.seconds.is_some_and(|all| self.seconds >= all)
    }

    /// Those that may be the best, in turn.
    fn finalists(&self) -> VecDeque<Configuration> {
        let mut order: Vec<(f64, &Configuration)> = self
            .times
            .iter()
            .map(|(configuration, times)| (mean(times), configuration))
            .collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(b.1)));
        let best = order.first().map_or(0.0, |(time, _)| *time);
        let reach = best * (1.0 + TOLD_APART * self.spread);
        let close: Vec<&Configuration> = order
            .iter()
            .take(FINALISTS)
            .filter(|(time, _)| *time < reach)
            .map(|(_, configuration)| *configuration)
            .collect();
        if close.len() < 2 {
            return VecDeque::new();
        }
        (0..ROUNDS)
            .flat_map(|_| close.iter().map(|one| (*one).clone()))
            .collect()
    }

    /// The best so far, with its time in seconds.
    pub fn best(&self) -> Option<(&Configuration, f64)> {
        let times = self.times.iter().map(|(configuration, times)| {
            // One that was measured again beats a luckier one that was not.
            (times.len() < self.most_times(), mean(times), configuration)
        });
        let best = times.min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(b.2)));
        best.map(|(_, time, configuration)| (configuration, time))
    }

    fn most_times(&self) -> usize {
        match self.again {
            Some(_) => self.times.values().map(Vec::len).max().unwrap_or(0).min(2),
            None => 0,
        }
    }

    /// What was evaluated, in order.
    pub fn evaluations(&self) -> &[Evaluation] {
        &self.evaluations
    }

    /// What evaluations cost so far, in seconds, those from before included.
    pub fn seconds(&self) -> f64 {
        self.seconds + self.recalled
    }
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

/// Searches with one evaluator until the budget is spent or nothing is left. What does not tell its cost is timed by the clock.
///
/// ```
/// use std::sync::Arc;
/// use kernelwise_measure::TscClock;
/// use kernelwise_tune::search::{Budget, Knowledge, Outcome, Strategy, run};
/// use kernelwise_tune::space::{Parameter, Space};
///
/// let space = Arc::new(Space::new(
///     vec![
///         Parameter::new("tile", [1, 2, 4, 8, 16, 32, 64]),
///         Parameter::new("unroll", [1, 2, 4, 8]),
///     ],
///     &["tile * unroll <= 256"],
/// )?);
/// let time = |tile: f64, unroll: f64| 1e-3 * (1.0 + (tile.log2() - 4.0).abs() + 0.1 * unroll);
/// let mut search = Strategy::Default.search(&space, 1, &Knowledge::default());
/// let found = run(&mut *search, Budget::evaluations(15), &[], &TscClock::new(), &mut |candidate| {
///     let value = |slot| space.value(candidate, slot).and_then(|value| value.number()).unwrap_or(1.0);
///     Outcome::measured(time(value(0), value(1)))
/// })?;
/// let (best, time) = found.best.expect("nothing fails here");
/// assert!(time < 1.5e-3, "{} {time}", space.describe(&best));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn run(
    search: &mut dyn Search,
    budget: Budget,
    past: &[Evaluation],
    clock: &dyn Clock,
    evaluate: &mut dyn FnMut(&Configuration) -> Outcome,
) -> Result<Report, BudgetError> {
    let mut session = Session::new(search, budget, past)?;
    let stopped = loop {
        match session.step() {
            Step::Evaluate(next) => {
                let begin = clock.now();
                let mut outcome = evaluate(&next);
                let took = clock.now().saturating_sub(begin) as f64 * 1e-9;
                outcome.cost = outcome.cost.or(Some(took));
                session.record(&next, outcome);
            }
            // With one evaluator nothing is ever out here.
            Step::Wait => break Stopped::Nothing,
            Step::Done(why) => break why,
        }
    };
    Ok(Report {
        best: session.best().map(|(best, time)| (best.clone(), time)),
        seconds: session.seconds(),
        evaluations: session.evaluations,
        stopped,
    })
}
