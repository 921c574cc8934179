//! What is kept of a series: sums that add.
//!
//! Two sets of sums, because two questions are asked. All samples, for how much is known; and the same samples with
//! weights that halve every week ([`HALF_LIFE_S`]), for how long it takes *now*. Both merge in any order into what one
//! store would have kept over all samples: the weighted ones after both were brought to the later of their times.

use kernelwise_types::TimeStats;
use kernelwise_types::units::Nanos;
use serde::de::IntoDeserializer;
use serde::de::value::MapDeserializer;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// After this time a sample weighs half in [`Faded`], in seconds: a week, which is also the selector's half-life unless somebody
/// sets another one.
pub const HALF_LIFE_S: f64 = 7.0 * 86_400.0;

/// A reading of zero means shorter than the clock's tick; ln 0 would not be a number. As in [`TimeStats`].
const SHORTEST_NS: f64 = 0.01;

/// Times count up to here: SQLite and PostgreSQL have signed integers only.
const MOST: u64 = i64::MAX as u64;

/// How far ahead of this machine's clock the clock of another may be: a day.
const AHEAD_S: u64 = 86_400;

/// The latest time that is believed now. Without it one machine whose clock is years ahead would overrule all others: sums
/// are brought to the later of two times before they are added, and what is years old weighs nothing.
pub(crate) fn latest(now_s: u64) -> u64 {
    now_s.saturating_add(AHEAD_S).min(MOST)
}

/// How a run went, as far as it is counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Happened {
    /// It ran, and took this long.
    Timed(Nanos),
    /// It returned an error or panicked; or its kernel was quarantined for it, whatever the reason.
    Failed,
    /// It ran, but its result was wrong.
    WrongResult,
    /// It did not end in the time allowed.
    TimedOut,
}

/// The statistics of one series in one store.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub struct Statistics {
    pub(crate) sums: Sums,
    pub(crate) faded: Sums,
    pub(crate) min_ns: Option<f64>,
    pub(crate) counts: Counts,
    pub(crate) first_s: u64,
    pub(crate) last_s: u64,
}

/// Weighted sums over y = ln t (Welford's, with weights).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Sums {
    pub(crate) weight: f64,
    pub(crate) mean_ln: f64,
    pub(crate) squares_ln: f64,
}

/// How often what happened. Counted apart from the sums: 2^53 samples are more than a weight can count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) timed: u64,
    pub(crate) failed: u64,
    pub(crate) wrong: u64,
    pub(crate) timed_out: u64,
}

/// What the samples say when those of a week ago weigh half, those of two weeks a quarter, and so on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Faded {
    /// How many fresh samples they are worth.
    pub weight: f64,
    /// Mean of ln t, t in nanoseconds.
    pub mean_ln: f64,
    /// Standard deviation of ln t; zero with a single sample.
    pub sd_ln: f64,
}

/// Statistics as they are written and read, before it is known whether they can be such.
#[derive(Serialize, Deserialize)]
pub(crate) struct Unchecked {
    pub(crate) timed: u64,
    pub(crate) mean_ln: f64,
    pub(crate) squares_ln: f64,
    pub(crate) min_ns: Option<f64>,
    pub(crate) faded_weight: f64,
    pub(crate) faded_mean_ln: f64,
    pub(crate) faded_squares_ln: f64,
    pub(crate) failed: u64,
    pub(crate) wrong: u64,
    pub(crate) timed_out: u64,
    pub(crate) first_s: u64,
    pub(crate) last_s: u64,
}

/// Numbers that no samples have: added to others they would spoil them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no series of {timed} times has these statistics: the record is damaged")]
pub struct DamagedStatistics {
    timed: u64,
}

impl Sums {
    fn push(&mut self, y: f64) {
        self.weight += 1.0;
        let before = y - self.mean_ln;
        self.mean_ln += before / self.weight;
        self.squares_ln += before * (y - self.mean_ln);
    }

    fn merge(&mut self, other: &Self) {
        let all = self.weight + other.weight;
        if other.weight <= 0.0 {
            return;
        }
        if self.weight <= 0.0 {
            *self = *other;
            return;
        }
        let apart = other.mean_ln - self.mean_ln;
        self.mean_ln += apart * (other.weight / all);
        self.squares_ln += other.squares_ln + apart * apart * self.weight * (other.weight / all);
        self.weight = all;
    }

    fn scaled(&self, by: f64) -> Self {
        Self {
            weight: self.weight * by,
            mean_ln: self.mean_ln,
            squares_ln: self.squares_ln * by,
        }
    }

    /// Whether some samples have these sums.
    fn possible(&self) -> bool {
        let finite =
            self.weight.is_finite() && self.mean_ln.is_finite() && self.squares_ln.is_finite();
        finite && self.weight >= 0.0 && self.squares_ln >= 0.0
    }
}

/// How much of a weight is left after this many seconds; a time in the future counts as now.
fn left(seconds: u64) -> f64 {
    (-(seconds as f64) / HALF_LIFE_S).exp2()
}

impl Statistics {
    /// Adds one run that ended at this time, in seconds since 1970. A time before the latest one, from a clock that was
    /// set back, counts as the latest.
    pub fn push(&mut self, happened: Happened, unix_s: u64) {
        if self.is_empty() {
            (self.first_s, self.last_s) = (unix_s, unix_s);
        }
        self.fade_to(unix_s);
        let count = match happened {
            Happened::Timed(time) => {
                let y = time.get().max(SHORTEST_NS).ln();
                self.sums.push(y);
                self.faded.push(y);
                let shortest = self.min_ns.map_or(time.get(), |min| min.min(time.get()));
                self.min_ns = Some(shortest);
                &mut self.counts.timed
            }
            Happened::Failed => &mut self.counts.failed,
            Happened::WrongResult => &mut self.counts.wrong,
            Happened::TimedOut => &mut self.counts.timed_out,
        };
        *count = count.saturating_add(1).min(MOST);
    }

    fn fade_to(&mut self, unix_s: u64) {
        let later = unix_s.max(self.last_s);
        self.faded = self.faded.scaled(left(later - self.last_s));
        self.last_s = later;
    }

    /// No run was later than this time: a clock that said so was wrong, or has been set back since. Without this, nothing
    /// measured from now on would weigh anything until it is as late again.
    pub(crate) fn rewind(&mut self, latest_s: u64) {
        self.last_s = self.last_s.min(latest_s);
        self.first_s = self.first_s.min(latest_s);
    }

    /// Adds all runs of another.
    pub fn merge(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = *other;
            return;
        }
        let later = self.last_s.max(other.last_s);
        self.fade_to(later);
        self.faded
            .merge(&other.faded.scaled(left(later - other.last_s)));
        self.sums.merge(&other.sums);
        self.min_ns = match (self.min_ns, other.min_ns) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let add = |a: &mut u64, b: u64| *a = a.saturating_add(b).min(MOST);
        add(&mut self.counts.timed, other.counts.timed);
        add(&mut self.counts.failed, other.counts.failed);
        add(&mut self.counts.wrong, other.counts.wrong);
        add(&mut self.counts.timed_out, other.counts.timed_out);
        self.first_s = self.first_s.min(other.first_s);
    }

    /// Whether nothing happened yet.
    pub fn is_empty(&self) -> bool {
        self.runs() == 0
    }

    /// How many runs, however they went.
    pub fn runs(&self) -> u64 {
        let Counts {
            timed,
            failed,
            wrong,
            timed_out,
        } = self.counts;
        timed
            .saturating_add(failed)
            .saturating_add(wrong)
            .saturating_add(timed_out)
    }

    /// All times, each of the same weight.
    pub fn times(&self) -> TimeStats {
        let min = self.min_ns.map_or(Value::Null, Value::from);
        let fields = [
            ("samples", Value::from(self.counts.timed)),
            ("mean_ln", Value::from(self.sums.mean_ln)),
            ("squares_ln", Value::from(self.sums.squares_ln)),
            ("min_ns", min),
        ];
        let fields = fields.map(|(name, value)| (name, value.into_deserializer()));
        let read: Result<TimeStats, serde_json::Error> =
            TimeStats::deserialize(MapDeserializer::new(fields.into_iter()));
        // What was checked when it was read, and is kept by adding, is always accepted.
        read.unwrap_or_default()
    }

    /// What the times say at this time, in seconds since 1970; `None` without times.
    pub fn faded(&self, now_s: u64) -> Option<Faded> {
        let faded = self.faded.scaled(left(now_s.saturating_sub(self.last_s)));
        // The spread does not depend on how long ago all of it was.
        let share = (self.counts.timed > 1).then_some(self.faded.squares_ln / self.faded.weight);
        (self.counts.timed > 0).then(|| Faded {
            weight: faded.weight,
            mean_ln: self.faded.mean_ln,
            sd_ln: share.filter(|s| s.is_finite()).unwrap_or(0.0).sqrt(),
        })
    }

    /// Runs that returned an error or panicked, or for which the kernel was quarantined.
    pub fn failed(&self) -> u64 {
        self.counts.failed
    }

    /// Runs whose result was wrong.
    pub fn wrong(&self) -> u64 {
        self.counts.wrong
    }

    /// Runs that did not end in the time allowed.
    pub fn timed_out(&self) -> u64 {
        self.counts.timed_out
    }

    /// When the first run was, in seconds since 1970.
    pub fn first_s(&self) -> u64 {
        self.first_s
    }

    /// When the latest run was, in seconds since 1970.
    pub fn last_s(&self) -> u64 {
        self.last_s
    }
}

impl From<Statistics> for Unchecked {
    fn from(s: Statistics) -> Self {
        Self {
            timed: s.counts.timed,
            mean_ln: s.sums.mean_ln,
            squares_ln: s.sums.squares_ln,
            min_ns: s.min_ns,
            faded_weight: s.faded.weight,
            faded_mean_ln: s.faded.mean_ln,
            faded_squares_ln: s.faded.squares_ln,
            failed: s.counts.failed,
            wrong: s.counts.wrong,
            timed_out: s.counts.timed_out,
            first_s: s.first_s,
            last_s: s.last_s,
        }
    }
}

impl TryFrom<Unchecked> for Statistics {
    type Error = DamagedStatistics;

    fn try_from(u: Unchecked) -> Result<Self, DamagedStatistics> {
        let sums = Sums {
            weight: u.timed as f64,
            mean_ln: u.mean_ln,
            squares_ln: u.squares_ln,
        };
        let faded = Sums {
            weight: u.faded_weight,
            mean_ln: u.faded_mean_ln,
            squares_ln: u.faded_squares_ln,
        };
        let counts = Counts {
            timed: u.timed,
            failed: u.failed,
            wrong: u.wrong,
            timed_out: u.timed_out,
        };
        let nothing = Sums::default();
        let shortest = u.min_ns.map(|min| min.max(SHORTEST_NS).ln());
        let times = match (u.timed, shortest) {
            (0, None) => sums == nothing && faded == nothing,
            // The shortest lies below the mean, up to rounding; no weight grows with age.
            (1.., Some(shortest)) => {
                shortest.is_finite()
                    && u.min_ns.is_some_and(|min| min >= 0.0)
                    && shortest <= u.mean_ln + 1e-6
                    && faded.weight <= sums.weight * (1.0 + 1e-6)
            }
            _ => false,
        };
        let small = [counts.timed, counts.failed, counts.wrong, counts.timed_out]
            .iter()
            .chain([&u.first_s, &u.last_s])
            .all(|count| *count <= MOST);
        if times && small && sums.possible() && faded.possible() && u.first_s <= u.last_s {
            Ok(Self {
                sums,
                faded,
                min_ns: u.min_ns,
                counts,
                first_s: u.first_s,
                last_s: u.last_s,
            })
        } else {
            Err(DamagedStatistics { timed: u.timed })
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn timed(ns: f64) -> Happened {
        Happened::Timed(Nanos::new(ns).unwrap())
    }

    fn of(runs: &[(f64, u64)]) -> Statistics {
        let mut statistics = Statistics::default();
        for (ns, at) in runs {
            statistics.push(timed(*ns), *at);
        }
        statistics
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
    }

    proptest! {
        /// Parts in any order add up to the whole, faded weights too.
        #[test]
        fn parts_add_up(mut runs in prop::collection::vec((1.0f64..1e9, 0u64..10_000_000), 1..40), cut in 0usize..40) {
            runs.sort_by_key(|run| run.1);
            let whole = of(&runs);
            let (left, right) = runs.split_at(cut.min(runs.len()));
            for (a, b) in [(left, right), (right, left)] {
                let mut sum = of(a);
                sum.merge(&of(b));
                prop_assert_eq!(sum.counts, whole.counts);
                prop_assert_eq!(sum.min_ns, whole.min_ns);
                prop_assert_eq!((sum.first_s, sum.last_s), (whole.first_s, whole.last_s));
                for (x, y) in [(sum.sums, whole.sums), (sum.faded, whole.faded)] {
                    prop_assert!(close(x.weight, y.weight) && close(x.mean_ln, y.mean_ln), "{x:?} {y:?}");
                    prop_assert!((x.squares_ln - y.squares_ln).abs() < 1e-6 * y.squares_ln.max(1.0), "{x:?} {y:?}");
                }
            }
        }

        /// What is kept is what the types crate would have kept, and comes back from JSON bit for bit.
        #[test]
        fn times_are_those_of_the_samples(runs in prop::collection::vec((0.0f64..1e9, 0u64..1_000_000), 1..20)) {
            let statistics = of(&runs);
            let reference: TimeStats = runs.iter().map(|run| Nanos::new(run.0).unwrap()).collect();
            prop_assert_eq!(statistics.times(), reference);
            let json = serde_json::to_string(&statistics).unwrap();
            prop_assert_eq!(serde_json::from_str::<Statistics>(&json).unwrap(), statistics);
        }
    }

    #[test]
    fn a_week_halves_and_the_new_outweighs_the_old() {
        let week = HALF_LIFE_S as u64;
        let mut statistics = of(&[(100.0, 0), (100.0, 0), (100.0, 0), (100.0, 0)]);
        assert!(close(statistics.faded(week).unwrap().weight, 2.0));
        for _ in 0..4 {
            statistics.push(timed(200.0), 4 * week);
        }
        let faded = statistics.faded(4 * week).unwrap();
        assert!(close(faded.weight, 4.25));
        let mean = (4.0 * 200f64.ln() + 0.25 * 100f64.ln()) / 4.25;
        assert!(close(faded.mean_ln, mean));
        assert_eq!(statistics.times().samples(), 8, "all are still counted");
        // A year later nothing of it influences anybody.
        assert!(statistics.faded(52 * week).unwrap().weight < 1e-12);
    }

    #[test]
    fn a_clock_that_is_set_back_spoils_nothing() {
        let statistics = of(&[(100.0, 1_000_000), (110.0, 5)]);
        assert_eq!(
            (statistics.first_s(), statistics.last_s()),
            (1_000_000, 1_000_000)
        );
        assert!(close(statistics.faded(3).unwrap().weight, 2.0));
        let json = serde_json::to_string(&statistics).unwrap();
        assert!(serde_json::from_str::<Statistics>(&json).is_ok());
    }

    #[test]
    fn failures_are_counted_and_have_no_time() {
        let mut statistics = Statistics::default();
        assert!(statistics.is_empty());
        for happened in [Happened::Failed, Happened::WrongResult, Happened::TimedOut] {
            statistics.push(happened, 7);
        }
        let counted = (
            statistics.failed(),
            statistics.wrong(),
            statistics.timed_out(),
        );
        assert_eq!((counted, statistics.runs()), ((1, 1, 1), 3));
        assert_eq!(statistics.faded(7), None);
        assert_eq!(statistics.times(), TimeStats::default());
    }

    #[test]
    fn damaged_statistics_are_refused() {
        let good = serde_json::to_value(of(&[(90.0, 3), (110.0, 4)])).unwrap();
        for (field, value) in [
            ("timed", serde_json::json!(0)),
            ("timed", serde_json::json!(u64::MAX)),
            ("squares_ln", serde_json::json!(-1.0)),
            ("min_ns", serde_json::json!(null)),
            ("min_ns", serde_json::json!(-5.0)),
            ("min_ns", serde_json::json!(1e9)),
            ("faded_weight", serde_json::json!(3.0)),
            ("faded_weight", serde_json::json!(-1.0)),
            ("first_s", serde_json::json!(9)),
        ] {
            let mut damaged = good.clone();
            damaged[field] = value;
            let read = serde_json::from_value::<Statistics>(damaged);
            assert!(read.is_err(), "{field}");
        }
        assert!(serde_json::from_value::<Statistics>(good).is_ok());
    }
}
