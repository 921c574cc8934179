//! What the times of some problems say about another.
//!
//! Two models of all arms (kernels with their parameters, algorithms) are fitted to what was seen: one of their times, over
//! the work to be done, and one of how much slower they are than the best of the problem. The first learns from
//! every run. The second only from problems on which several arms ran, and there it learns what the choice is about and
//! nothing else. Neither knows single problems well, so what they got wrong on the nearest problems, those that differ in one
//! dimension, is added.
//!
//! Models are fitted again whenever there is a third more to learn from: all fits together then cost a few times the last one.

use std::collections::{HashMap, VecDeque};

use kernelwise_model::Boosting;

use crate::belief::Expected;
use crate::explore::{Explored, Offer};
use crate::problem::Problem;

use model::Model;

mod model;

/// More trees than a call could afford: they are asked once for each new problem.
const MODEL: Boosting = Boosting {
    trees: 50,
    depth: 8,
    shrinkage: 0.15,
    row_share: 0.8,
    feature_share: 0.8,
    bins: 128,
    leaf_weight: 3.0,
    ridge: 0.5,
};

/// Runs before the first fit.
const FIRST_FIT: usize = 12;
/// Growth from fit to fit, and the least of it in runs.
const GROWTH: f64 = 1.3;
const LEAST_GROWTH: usize = 8;

/// Slower by more than this, in ln t, is as bad as by this: it is not chosen either way.
const FAR: f64 = 1.0;
/// Weight of the model of slowdowns, for a small problem. It falls with the size: slowdowns are known from trials, and
/// those of large problems are seldom affordable.
const SLOWDOWNS: f64 = 0.5;
const SLOWDOWNS_FADE: f64 = 0.3;

/// Distance on a line at which a neighbour counts for 1/e of one at the same place.
const REACH: f64 = 0.7;
/// How many neighbours at the same place the models are worth.
const MODELS_WORTH: f64 = 1.0;
/// Neighbours that are asked on each line, the latest.
const NEIGHBOURS: usize = 16;

/// Problems that are remembered if nothing else is said.
const CAPACITY: usize = 1 << 17;

/// Errors of forecasts that are remembered, the latest, and from how many on they say how far off the next may be.
const ERRORS: usize = 256;
const ENOUGH_ERRORS: usize = 10;
/// The share of them that is not exceeded, and within how many standard deviations a normal distribution has as many.
const SHARE: f64 = 0.9;
const NINETY: f64 = 1.645;

/// A problem that is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProblemId(u64);

/// What is to be expected of an arm on a problem.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outlook {
    /// Its time, by the models of times alone. Its deviation is such that nine in ten times lie within 1.645 of it, as the latest did.
    pub time: Expected,
    /// How much slower than the best it will be, in ln t: the models of times and of slowdowns together.
    pub slowdown: f64,
    /// How often it ran on problems much like this one.
    pub runs_alike: u32,
    /// Whether there is a model of its time; without, its mean over the work speaks for it.
    pub fitted: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Arm {
    /// How often it ran, and the sum of ln t over the work: all there is before the first fit.
    runs: f64,
    sum: f64,
}

#[derive(Debug, Clone)]
struct Seen {
    problem: Problem,
    open: Vec<bool>,
    /// ln t over the work, by arm.
    times: Vec<Option<f64>>,
    /// What the models got wrong, by arm.
    errors: Vec<Error>,
}

impl Seen {
    /// How many arms ran.
    fn ran(&self) -> usize {
        self.times.iter().flatten().count()
    }

    /// The best of the arms that may compute it: measured, else expected.
    fn best(&self, expected: &[Option<f64>]) -> f64 {
        let times = self.times.iter().zip(expected).zip(&self.open);
        let open = times.filter_map(|((y, expected), open)| y.or(*expected).filter(|_| *open));
        open.fold(f64::INFINITY, f64::min)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Error {
    time: Option<f32>,
    slowdown: Option<f32>,
}

/// What was seen of problems of one kind.
#[derive(Debug, Clone)]
pub struct Experience {
    capacity: usize,
    arms: Vec<Arm>,
    times: Model,
    slowdowns: Model,
    seen: Vec<Seen>,
    /// Problems that were forgotten.
    forgotten: u64,
    lines: HashMap<u64, Vec<ProblemId>>,
    explored: Explored,
    runs: usize,
    next_fit: usize,
    fits: u64,
    seed: u64,
    /// Mean time of the first run of a problem, as sum and count.
    first_times: (f64, f64),
    /// The latest distances between what was expected of an arm on a problem and what its first run took.
    errors: VecDeque<f64>,
}

impl Experience {
    /// Nothing was seen yet.
    pub fn new(seed: u64) -> Self {
        Self::with_capacity(seed, CAPACITY)
    }

    /// The same, with so many problems remembered at the most; of more, the older half is forgotten.
    pub fn with_capacity(seed: u64, capacity: usize) -> Self {
        Self {
            capacity: capacity.max(2),
            arms: Vec::new(),
            times: Model::default(),
            slowdowns: Model::default(),
            seen: Vec::new(),
            forgotten: 0,
            lines: HashMap::new(),
            explored: Explored::default(),
            runs: 0,
            next_fit: FIRST_FIT,
            fits: 0,
            seed,
            first_times: (0.0, 0.0),
            errors: VecDeque::new(),
        }
    }

    /// Takes note of a problem and of the arms that may compute it.
    pub fn meet(&mut self, problem: Problem, open: Vec<bool>) -> ProblemId {
        if self.seen.len() >= self.capacity {
            self.forget(self.capacity / 2);
        }
        if self.arms.len() < open.len() {
            self.arms.resize_with(open.len(), Arm::default);
        }
        self.explored.meet(problem.cell());
        self.seen.push(Seen {
            times: vec![None; open.len()],
            errors: vec![Error::default(); open.len()],
            problem,
            open,
        });
        ProblemId(self.forgotten + self.seen.len() as u64 - 1)
    }

    /// Forgets the oldest.
    fn forget(&mut self, count: usize) {
        self.seen.drain(..count);
        self.forgotten += count as u64;
        for members in self.lines.values_mut() {
            members.retain(|id| id.0 >= self.forgotten);
        }
        self.lines.retain(|_, members| !members.is_empty());
        // Cells of problems that are gone count for nothing; those that stay are few.
        self.explored
            .forget(self.seen.iter().map(|seen| seen.problem.cell()));
    }

    fn place(&self, id: ProblemId) -> Option<usize> {
        let place = id.0.checked_sub(self.forgotten)? as usize;
        (place < self.seen.len()).then_some(place)
    }

    /// Takes note of a run: ln of its time. What is told of a problem that was forgotten is not kept.
    pub fn observe(&mut self, id: ProblemId, arm: usize, ln_t: f64) {
        let Some(place) = self.place(id).filter(|_| ln_t.is_finite()) else {
            return;
        };
        let seen = &self.seen[place];
        if arm >= seen.times.len() {
            return;
        }
        let y = ln_t - seen.problem.ln_work();
        // Of what ran before, the models know more than they would of a new problem.
        if seen.times[arm].is_none()
            && let Some(expected) = self.corrected(arm, &seen.problem)
        {
            if self.errors.len() == ERRORS {
                self.errors.pop_front();
            }
            self.errors.push_back((y - expected).abs());
        }
        let seen = &mut self.seen[place];
        if seen.times.iter().all(Option::is_none) {
            self.first_times.0 += ln_t.exp();
            self.first_times.1 += 1.0;
        }
        match seen.times[arm].replace(y) {
            // Known better now.
            Some(before) => self.arms[arm].sum += y - before,
            None => {
                self.explored.ran(seen.problem.cell(), arm);
                self.arms[arm].runs += 1.0;
                self.arms[arm].sum += y;
                self.runs += 1;
            }
        }
    }

    /// Takes note of a run that was stopped: all that is known is that it was not worth waiting for.
    pub fn stopped(&mut self, id: ProblemId, arm: usize) {
        if let Some(place) = self.place(id) {
            let cell = self.seen[place].problem.cell();
            self.explored.ran(cell, arm);
        }
    }

    /// Further runs that could be made of a problem, the best value first. `served` is the arm that served it, and its time.
    pub(crate) fn offers(
        &self,
        id: ProblemId,
        outlook: &[Option<Outlook>],
        served: (usize, f64),
    ) -> Vec<Offer> {
        let Some(place) = self.place(id) else {
            return Vec::new();
        };
        let seen = &self.seen[place];
        let (sum, count) = self.first_times;
        let usual = if count > 0.0 { sum / count } else { served.1 };
        let cell = seen.problem.cell();
        self.explored
            .offers(cell, outlook, &seen.open, served, usual)
    }

    /// Ends a problem, or its runs so far: those to come may have it as a neighbour.
    pub fn leave(&mut self, id: ProblemId) {
        let Some(place) = self.place(id) else {
            return;
        };
        self.seen[place].errors = self.errors(&self.seen[place]);
        for line in self.seen[place].problem.lines() {
            let members = self.lines.entry(line.name).or_default();
            if !members.contains(&id) {
                if members.len() == NEIGHBOURS {
                    members.remove(0);
                }
                members.push(id);
            }
        }
    }

    /// Whether there is enough to learn from since the models were fitted.
    pub fn is_due(&self) -> bool {
        self.runs >= self.next_fit
    }

    /// Fits the models to all that was seen.
    pub fn refit(&mut self) {
        self.fit();
        for place in 0..self.seen.len() {
            self.seen[place].errors = self.errors(&self.seen[place]);
        }
        let grown = (self.runs as f64 * GROWTH) as usize;
        self.next_fit = grown.max(self.runs + LEAST_GROWTH);
    }

    /// Takes over the models that were fitted to a copy of this.
    pub fn adopt(&mut self, fitted: Self) {
        (self.times, self.slowdowns) = (fitted.times, fitted.slowdowns);
        (self.fits, self.next_fit) = (fitted.fits, fitted.next_fit);
        // What was seen meanwhile is not in the copy's errors.
        let same = self.forgotten == fitted.forgotten;
        let mut known = fitted.seen.into_iter().filter(|_| same);
        for place in 0..self.seen.len() {
            let unchanged = known
                .next()
                .filter(|known| known.times == self.seen[place].times);
            self.seen[place].errors = match unchanged {
                Some(known) => known.errors,
                None => self.errors(&self.seen[place]),
            };
        }
    }

    /// How often the models were fitted.
    pub fn fits(&self) -> u64 {
        self.fits
    }

    /// What is to be expected of every arm that may compute a problem; `None` for those that never ran.
    pub fn outlook(&self, id: ProblemId) -> Vec<Option<Outlook>> {
        let Some(place) = self.place(id) else {
            return Vec::new();
        };
        let seen = &self.seen[place];
        let corrections = self.corrections(&seen.problem);
        let sd = self.far_off() / NINETY;
        let modelled = self.modelled_times(&seen.problem);
        let slowdowns = self.modelled_slowdowns(&seen.problem);
        let time = |arm: usize| -> Option<f64> {
            if !seen.open.get(arm).copied()? {
                return None;
            }
            let Arm { runs, sum } = self.arms[arm];
            let corrected = modelled[arm].map(|y| y + corrections[arm].0);
            corrected.or_else(|| (runs > 0.0).then(|| sum / runs))
        };
        let times: Vec<Option<f64>> = (0..self.arms.len()).map(time).collect();
        let best = times
            .iter()
            .flatten()
            .copied()
            .fold(f64::INFINITY, f64::min);
        let size = (best + seen.problem.ln_work()).exp();
        let (sum, count) = self.first_times;
        let size = if count > 0.0 { size * count / sum } else { 0.0 };
        let trust = SLOWDOWNS / (1.0 + SLOWDOWNS_FADE * size);
        let outlook = |(arm, y): (usize, Option<f64>)| {
            let y = y?;
            let behind = (y - best).min(FAR);
            let slowdown = slowdowns[arm].map_or(behind, |slowdown| {
                trust * (slowdown + corrections[arm].1) + (1.0 - trust) * behind
            });
            Some(Outlook {
                time: Expected {
                    mean: y + seen.problem.ln_work(),
                    sd,
                },
                slowdown,
                runs_alike: self.explored.runs(seen.problem.cell(), arm),
                fitted: modelled[arm].is_some(),
            })
        };
        times.into_iter().enumerate().map(outlook).collect()
    }

    /// How many problems an arm ran on.
    pub fn measured(&self, arm: usize) -> usize {
        self.arms.get(arm).map_or(0, |arm| arm.runs as usize)
    }

    /// Nine in ten times were within so much of what was expected of them, in ln t.
    fn far_off(&self) -> f64 {
        let mut errors: Vec<f64> = self.errors.iter().copied().collect();
        errors.sort_by(f64::total_cmp);
        let rank = (SHARE * (errors.len() + 1) as f64).ceil() as usize;
        let known = errors.get(rank.saturating_sub(1).min(errors.len().saturating_sub(1)));
        let enough = self.errors.len() >= ENOUGH_ERRORS;
        known.copied().filter(|_| enough).unwrap_or(NINETY * FAR)
    }

    /// What is expected of an arm, ln t over the work: what its model says, and what that got wrong nearby.
    fn corrected(&self, arm: usize, problem: &Problem) -> Option<f64> {
        let time = self.modelled_times(problem)[arm]?;
        Some(time + self.corrections(problem)[arm].0)
    }

    /// What the model says of ln t over the work, by arm.
    fn modelled_times(&self, problem: &Problem) -> Vec<Option<f64>> {
        self.times.ask(problem.features(), self.arms.len())
    }

    /// What the model says of how much slower than the best an arm is, in ln t.
    fn modelled_slowdowns(&self, problem: &Problem) -> Vec<Option<f64>> {
        self.slowdowns.ask(problem.features(), self.arms.len())
    }

    /// What the models get wrong on a problem.
    fn errors(&self, seen: &Seen) -> Vec<Error> {
        let ran = seen.ran();
        if ran == 0 {
            return vec![Error::default(); seen.times.len()];
        }
        let times = self.modelled_times(&seen.problem);
        let (slowdowns, best) = if ran > 1 {
            (self.modelled_slowdowns(&seen.problem), seen.best(&times))
        } else {
            (vec![None; times.len()], 0.0)
        };
        let error = |(arm, y): (usize, &Option<f64>)| {
            let Some(y) = y else {
                return Error::default();
            };
            Error {
                time: times[arm].map(|expected| (y - expected) as f32),
                slowdown: slowdowns[arm].map(|expected| ((y - best).min(FAR) - expected) as f32),
            }
        };
        seen.times.iter().enumerate().map(error).collect()
    }

    /// What to add to the models' times and slowdowns on a problem, by arm: the mean of what they got wrong nearby.
    fn corrections(&self, problem: &Problem) -> Vec<(f64, f64)> {
        let mut sums = vec![[0.0f64; 4]; self.arms.len()];
        for line in problem.lines() {
            let members = self.lines.get(&line.name).map_or(&[][..], Vec::as_slice);
            for id in members {
                let Some(place) = self.place(*id) else {
                    continue;
                };
                let other = &self.seen[place];
                let lines = other.problem.lines();
                let Some(there) = lines.iter().find(|there| there.name == line.name) else {
                    continue;
                };
                let weight = (-f64::from((line.place - there.place).abs()) / REACH).exp();
                for (sums, error) in sums.iter_mut().zip(&other.errors) {
                    if let Some(error) = error.time {
                        sums[0] += weight * f64::from(error);
                        sums[1] += weight;
                    }
                    if let Some(error) = error.slowdown {
                        sums[2] += weight * f64::from(error);
                        sums[3] += weight;
                    }
                }
            }
        }
        let mean = |sum: f64, weight: f64| sum / (weight + MODELS_WORTH);
        let means = sums.iter().map(|s| (mean(s[0], s[1]), mean(s[2], s[3])));
        means.collect()
    }

    fn fit(&mut self) {
        self.fits += 1;
        let seed = self.seed.wrapping_add(self.fits);
        let width = self
            .seen
            .first()
            .map_or(0, |seen| seen.problem.features().len());
        // What lies above expectation on all arms of a problem is the problem's own, and no arm's.
        let own = |seen: &Seen| {
            if seen.ran() < 2 {
                return 0.0;
            }
            let times = self.modelled_times(&seen.problem);
            let residual = |(y, expected): (&Option<f64>, Option<f64>)| Some((*y)? - expected?);
            let residuals = seen.times.iter().zip(times).filter_map(residual);
            let (sum, count) = residuals.fold((0.0, 0.0), |(sum, n), r| (sum + r, n + 1.0));
            if count < 2.0 {
                0.0
            } else {
                sum / (count + 1.0)
            }
        };
        let own: Vec<f64> = self.seen.iter().map(own).collect();
        let arms = self.arms.len();
        let rows = self.seen.iter().zip(own).map(|(seen, own)| {
            let times = seen.times.iter().map(move |y| Some(((*y)? - own) as f32));
            (seen.problem.features(), times)
        });
        self.times = Model::fit(&MODEL, rows, width, arms, seed);
        let several = self.seen.iter().filter(|seen| seen.ran() > 1);
        let rows = several.map(|seen| {
            let best = seen.best(&self.modelled_times(&seen.problem));
            let behind = move |y: &Option<f64>| Some(((*y)? - best).min(FAR) as f32);
            (seen.problem.features(), seen.times.iter().map(behind))
        });
        self.slowdowns = Model::fit(&MODEL, rows, width, arms, seed.wrapping_add(1000));
    }
}

#[cfg(test)]
mod tests;
