//! When a candidate counts as changed, and when what became slow is asked again.

use super::lately::Lately;
use super::trials::CALLS_OF_A_TRIAL;
use crate::belief::Tally;

/// A change of this many standard deviations counts in full; less is taken for noise.
pub(super) const SLACK: f64 = 1.0;
/// No sample counts for more standard deviations than this: one alone is never a change.
const MOST: f64 = 4.0;
/// Where the sum says that something changed: three samples far out, or many a little.
const ALARM: f64 = 8.0;
/// Calls that must have been lost, as it were, before it matters: about as many as asking others costs.
const LOST_CALLS: f64 = 1.0;
/// What was over within so many calls was not worth noticing: it ended while witnesses were asked and others took over.
const SHORT_CALLS: f64 = 32.0;
/// How much more it takes at the most to suspect a change where they have been short.
const MOST_CAUTION: f64 = 16.0;
/// Samples in which that is forgotten by a factor of e.
const CAUTION_SAMPLES: f64 = 4096.0;

/// How much more than usual it takes to suspect a change. Where slow moments come and go faster than anybody can make use of it, they are
/// no changes, but what calls take on the average.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caution(f64);

impl Default for Caution {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Caution {
    /// A change is over that lasted for so long, while calls took so long; both in nanoseconds.
    pub(super) fn learn(&mut self, lasted_ns: f64, call_ns: f64) {
        self.0 = match lasted_ns < SHORT_CALLS * call_ns {
            true => (2.0 * self.0).min(MOST_CAUTION),
            false => (self.0 / 2.0).max(1.0),
        };
    }

    /// A sample passes.
    pub(super) fn fade(&mut self) {
        self.0 -= (self.0 - 1.0) / CAUTION_SAMPLES;
    }

    /// Whether a sum is too much.
    pub(super) fn alarms(self, sum: f64) -> bool {
        sum >= self.0 * ALARM
    }
}

/// Calls, at the least, before what became slower is asked again.
const FEWEST_CALLS: f64 = 8.0;
/// The longest wait, in nanoseconds: an hour.
const LONGEST_WAIT_NS: f64 = 3.6e12;

/// When something that became slow is asked whether it still is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    since_ns: u64,
    due_ns: u64,
    /// How much speaks for its being over, as the logarithm of odds; what speaks against it counts as nothing.
    signs: f64,
}

/// The logarithm of the odds, 150 to one, at which what became slow is taken to be what it was: one sample tells of a change that was plain,
/// several of one that was no larger than what calls differ by.
const OVER: f64 = 5.0;

/// What calls take, in nanoseconds, that decides how often asking is worth it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stakes {
    /// Of who serves.
    pub(super) serving: f64,
    /// Of what became slow: as it is, and as it was.
    pub(super) slow: f64,
    pub(super) was: f64,
}

impl Wait {
    pub(super) fn new(at_ns: u64, stakes: &Stakes) -> Self {
        let mut wait = Self {
            since_ns: at_ns,
            due_ns: at_ns,
            signs: 0.0,
        };
        wait.put_off(at_ns, stakes);
        wait
    }

    /// Whether it is time to ask.
    pub(super) fn is_due(&self, at_ns: u64) -> bool {
        at_ns >= self.due_ns
    }

    /// Takes a sample into account, and tells whether what was slow is over: whether samples are rather like what was usual or slower by
    /// so much, all in ln t, with this standard deviation.
    pub(super) fn is_ended_by(&mut self, y: f64, usual: f64, by: f64, noise: f64) -> bool {
        let signs = by * (usual + by / 2.0 - y) / (noise * noise);
        self.signs = (self.signs + signs).max(0.0);
        self.signs >= OVER
    }

    /// Since when it is slow.
    pub(super) fn lasted_ns(&self, at_ns: u64) -> f64 {
        at_ns.saturating_sub(self.since_ns) as f64
    }

    /// It still is slow, or cannot be asked now. Where something speaks for its being over it is asked again soon. What lasted for a time is likely to last for as long again, so asking every
    /// `w` costs, until then, `excess / w` of the time, and `w / 2` is lost in the end at the rate by which it is better: together that is
    /// least at `w² = 2 · excess · lasted / rate`.
    pub(super) fn put_off(&mut self, at_ns: u64, stakes: &Stakes) {
        let fewest = FEWEST_CALLS * stakes.serving;
        let lasted = self.lasted_ns(at_ns) + fewest;
        let excess = CALLS_OF_A_TRIAL * (stakes.slow - stakes.serving).max(0.0);
        let rate = 1.0 - stakes.was / stakes.serving;
        let wait = match rate > 0.0 {
            true => (2.0 * excess * lasted / rate).sqrt(),
            // Nobody is waiting for it.
            false => lasted,
        };
        // Where somebody is waiting for it.
        let wait = match self.signs > 0.0 && rate > 0.0 {
            true => fewest,
            false => wait.max(fewest).min(LONGEST_WAIT_NS),
        };
        self.due_ns = at_ns.saturating_add(wait as u64);
    }
}

/// A candidate that became slower.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retry {
    /// What was known of it before.
    pub(super) before: Tally,
    /// How much slower it was found to be, in ln t.
    pub(super) by: f64,
    /// The calls by which it was noticed, beside those before.
    pub(super) lately: Lately,
    pub(super) wait: Wait,
}

/// All that run on as many threads became slower, such as by a program that takes a processor from them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crowd {
    pub(super) threads: u32,
    /// By this, in ln t.
    pub(super) by: f64,
    pub(super) wait: Wait,
}

/// A one-sided cumulative sum, with what was known when it began to rise and the samples at its top: those before may
/// still be of the old kind.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cusum {
    pub(super) sum: f64,
    /// What the calls since it began to rise took longer than usual, in usual ones.
    lost: f64,
    pub(super) before: Tally,
    latest: [f64; 3],
}

impl Cusum {
    /// Adds a distance in standard deviations, in the direction that is watched; true if it is too much.
    pub(super) fn push(&mut self, distance: f64, y: f64, known: &Tally, caution: Caution) -> bool {
        let distance = distance.min(MOST);
        if self.sum == 0.0 {
            (self.before, self.latest, self.lost) = (*known, [y; 3], 0.0);
        }
        self.sum = (self.sum + distance - SLACK).max(0.0);
        self.lost += self.before.mean().map_or(0.0, |usual| (y - usual).exp_m1());
        self.latest.rotate_left(1);
        self.latest[2] = y;
        caution.alarms(self.sum)
    }

    /// Whether as much was lost as it costs to find out why.
    pub(super) fn is_worth_asking(&self) -> bool {
        self.lost >= LOST_CALLS
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
