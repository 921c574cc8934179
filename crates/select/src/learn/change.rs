//! When a candidate counts as changed, and when one that became slow is asked again.

use super::lately::Lately;
use crate::belief::Tally;

/// A change of this many standard deviations counts in full; less is taken for noise.
const SLACK: f64 = 1.0;
/// No sample counts for more standard deviations than this: one alone is never a change.
const MOST: f64 = 4.0;
/// Where the sum says that something changed: three samples far out, or many a little.
const ALARM: f64 = 8.0;
/// A candidate that became slower is asked again after as long as this many of its calls take. Short enough to lose little
/// when a neighbour's time slice was all there was to it, long enough that asking fits the budget.
const FIRST_RETRY_CALLS: f64 = 16.0;
/// By what the wait grows when it is still slow, and where growing ends, in nanoseconds.
const RETRY_GROWTH: f64 = 1.5;
const LAST_RETRY_NS: f64 = 3.6e12;

/// A candidate that became slower.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retry {
    /// What was known of it before.
    pub(super) before: Tally,
    /// The calls by which it was noticed, beside those before.
    pub(super) lately: Lately,
    pub(super) due_ns: u64,
    wait_ns: u64,
}

impl Retry {
    /// Of one whose calls take `call_ns` now.
    pub(super) fn new(before: Tally, lately: Lately, call_ns: f64, at_ns: u64) -> Self {
        let wait_ns = (FIRST_RETRY_CALLS * call_ns).min(LAST_RETRY_NS) as u64;
        Self {
            before,
            lately,
            due_ns: at_ns.saturating_add(wait_ns),
            wait_ns,
        }
    }

    /// No earlier than another one that is slowed by the same thing.
    pub(super) fn learn_from(&mut self, other: &Self) {
        self.due_ns = self.due_ns.max(other.due_ns);
        self.wait_ns = self.wait_ns.max(other.wait_ns);
    }

    /// Later than the last time.
    pub(super) fn put_off(&mut self, at_ns: u64) {
        self.wait_ns = (RETRY_GROWTH * self.wait_ns as f64).min(LAST_RETRY_NS) as u64;
        self.due_ns = at_ns.saturating_add(self.wait_ns);
    }
}

/// A one-sided cumulative sum, with what was known when it began to rise and the samples at its top: those before may
/// still be of the old kind.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cusum {
    pub(super) sum: f64,
    pub(super) before: Tally,
    latest: [f64; 3],
    /// One of its kind became slow: the next sample that is far out is enough.
    pub(super) primed: bool,
}

impl Cusum {
    /// Adds a distance in standard deviations, in the direction that is watched; true if it is too much.
    pub(super) fn push(&mut self, distance: f64, y: f64, known: &Tally) -> bool {
        let distance = distance.min(MOST);
        if self.sum == 0.0 || self.primed {
            (self.before, self.latest) = (*known, [y; 3]);
        }
        self.sum = (self.sum + distance - SLACK).max(0.0);
        if std::mem::take(&mut self.primed) && distance == MOST {
            self.sum = ALARM;
        }
        self.latest.rotate_left(1);
        self.latest[2] = y;
        self.sum >= ALARM
    }

    /// The latest samples, as all there is.
    pub(super) fn since(&self) -> Tally {
        let mut since = self.before;
        since.restart(&self.latest);
        since
    }

    /// How far they lie from what was known before, in ln t.
    pub(super) fn by(&self) -> f64 {
        let ends = self.since().mean().zip(self.before.mean());
        ends.map_or(0.0, |(since, before)| since - before)
    }
}
