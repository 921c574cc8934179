//! Whom to try next, and whether that can be paid.
//!
//! A witness comes first, because nobody is replaced before it has told; then who became slow and may have recovered; then whoever
//! may be better on what is believed. What a trial is expected to cost is set aside when it is asked for, so that
//! several that are under way do not spend the same budget.

use rand::Rng;

use super::change::{Crowd, Wait};
use super::{Learned, Rules};
use crate::belief::{Belief, below};
use crate::budget::Ledger;
use crate::policy::{Choice, Policy};

/// A trial is two calls: the first finds caches cold, the second is timed.
pub(super) const CALLS_OF_A_TRIAL: f64 = 2.0;
/// Samples after which a trial that nobody told the time of is given up.
pub(super) const PATIENCE: u32 = 64;

/// A call that is to go to another candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// Who is tried.
    pub candidate: usize,
    /// Whether it is asked because another one changed.
    pub witness: bool,
    /// Tells it from others.
    pub serial: u16,
    /// What is set aside for it.
    pub(super) cost_ns: f64,
}

impl Learned {
    /// Asks for a trial if what it is expected to cost can be set aside. One that was asked for before gives way to a witness.
    pub(super) fn ask(
        &mut self,
        candidate: usize,
        witness: bool,
        rules: &Rules,
        ledger: &mut Ledger,
    ) -> bool {
        if let Some(before) = self.trial.take() {
            ledger.release(before.cost_ns);
        }
        let Some(Choice { serves, .. }) = self.choice else {
            return false;
        };
        let serving = self.present(serves);
        let tried = self.now(candidate);
        let mut cost_ns = self.price(candidate);
        // What was measured of it, here or while nobody else ran.
        let known = tried.weight > 0.0 || self.tracks[candidate].facts.busy;
        if (witness || known) && tried.expected() < serving.mean {
            // On what is known it is the better choice now, and no trial at all.
            cost_ns = 0.0;
        } else if !ledger.reserve(cost_ns, &rules.budget) {
            return false;
        }
        self.serial = self.serial.wrapping_add(1);
        self.waiting = 0;
        self.trial = Some(Trial {
            candidate,
            witness,
            serial: self.serial,
            cost_ns,
        });
        true
    }

    /// Asks what became slower whether it still is, if it is time and can be paid. What cannot be is put off: others are to get
    /// their trials meanwhile.
    pub(super) fn ask_again(&mut self, at_ns: u64, rules: &Rules, ledger: &mut Ledger) -> bool {
        let serves = self.choice.map(|choice| choice.serves);
        // Of all on as many threads one tells, and who serves does so unasked.
        let mut due =
            (self.crowds.iter().enumerate()).filter(|(_, crowd)| crowd.wait.is_due(at_ns));
        let member = due.find_map(|(place, crowd)| {
            let fits = |i: &usize| {
                let track = &self.tracks[*i];
                track.facts.threads == crowd.threads && !track.barred && track.retry.is_none()
            };
            let members = (0..self.tracks.len()).filter(fits);
            let times = members.filter_map(|i| Some((i, self.tracks[i].tally.mean()?)));
            let best = times.min_by(|a, b| a.1.total_cmp(&b.1));
            best.map(|(member, _)| (place, member))
        });
        if let Some((place, member)) = member {
            let threads = self.crowds[place].threads;
            let serves = serves.map(|serves| self.tracks[serves].facts.threads);
            let Crowd { by, wait, .. } = self.crowds[place];
            let asks = serves != Some(threads);
            if asks
                && (self.ask(member, false, rules, ledger)
                    || self.is_worth_saving_for(member, &wait, at_ns, rules))
            {
                return true;
            }
            let stakes = self.stakes(member, by);
            self.crowds[place].wait.put_off(at_ns, &stakes);
        }
        let is_due = |i: &usize| {
            let track = &self.tracks[*i];
            let due = track.retry.is_some_and(|retry| retry.wait.is_due(at_ns));
            due && !track.barred && serves != Some(*i)
        };
        // Who was the fastest is asked first.
        let before = |i: &usize| {
            let retry = self.tracks[*i].retry;
            retry
                .and_then(|retry| retry.before.mean())
                .unwrap_or(f64::INFINITY)
        };
        let due = (0..self.tracks.len()).filter(is_due);
        let due = due.map(|i| (i, before(&i)));
        let Some((due, before)) = due.min_by(|a, b| a.1.total_cmp(&b.1)) else {
            return false;
        };
        if self.ask(due, false, rules, ledger) {
            return true;
        }
        let wait = self.tracks[due].retry.map(|retry| retry.wait);
        if wait.is_some_and(|wait| self.is_worth_saving_for(due, &wait, at_ns, rules)) {
            return true;
        }
        let by = self.tracks[due].tally.mean().unwrap_or(before) - before;
        let stakes = self.stakes(due, by);
        if let Some(retry) = &mut self.tracks[due].retry {
            retry.wait.put_off(at_ns, &stakes);
        }
        false
    }

    /// Whether nobody else is to be tried until this one can be paid: not if saving would take longer than what is asked about has
    /// lasted.
    fn is_worth_saving_for(
        &self,
        candidate: usize,
        wait: &Wait,
        at_ns: u64,
        rules: &Rules,
    ) -> bool {
        self.price(candidate) <= rules.budget.share * wait.lasted_ns(at_ns)
    }

    /// What a trial is expected to cost beside who serves.
    fn price(&self, candidate: usize) -> f64 {
        let serves = self.choice.map(|choice| self.present(choice.serves));
        let tried = self.now(candidate);
        serves.map_or(0.0, |serving| CALLS_OF_A_TRIAL * excess(&tried, &serving))
    }

    /// Whom to try next on what is believed of each, if anybody is worth it.
    pub(super) fn next_trial(
        &self,
        beliefs: &[Belief],
        rules: &Rules,
        random: &mut impl Rng,
    ) -> Option<usize> {
        let serves = self.choice?.serves;
        let open = || (0..self.tracks.len()).filter(|i| *i != serves && !self.tracks[*i].barred);
        if let Policy::Exhaustive { samples } = rules.policy {
            let fewest = open().min_by_key(|i| self.tracks[*i].tally.samples())?;
            let wanting = self.tracks[fewest].tally.samples() < u64::from(samples);
            return wanting.then_some(fewest);
        }
        // Thompson: each candidate is as fast as a draw from what is believed of it; the fastest is tried.
        let mut draw = |i: usize| {
            let belief = beliefs[i];
            belief.mean + belief.sd * gaussian(random)
        };
        let bar = draw(serves) - rules.zone;
        let draws = open().map(|i| (i, draw(i)));
        let best = draws.min_by(|a, b| a.1.total_cmp(&b.1))?;
        (best.1 < bar).then_some(best.0)
    }
}

/// What a trial is expected to take longer than the one it replaces, in nanoseconds: the mean of what lies above, over the
/// distribution of its time.
fn excess(tried: &Belief, serving: &Belief) -> f64 {
    let usual = serving.mean.exp();
    // E[(t - u)+] of a lognormal t: E[t] P(above, one deviation on) - u P(above).
    let above = 1.0 - below(serving.mean, tried);
    let shifted = Belief {
        mean: tried.mean + tried.sd * tried.sd,
        ..*tried
    };
    let mean_above = tried.expected().exp() * (1.0 - below(serving.mean, &shifted));
    (mean_above - usual * above).max(0.0)
}

/// A number drawn from the standard normal distribution (Box and Muller).
pub(super) fn gaussian(random: &mut impl Rng) -> f64 {
    let unit = |bits: u64| ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    let (a, b) = (unit(random.next_u64()), unit(random.next_u64()));
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}
