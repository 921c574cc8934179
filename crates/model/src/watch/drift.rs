//! Drift: a kernel that has become slower or faster for good, while the others have not.
//!
//! What is decided here, in order, and why:
//!
//! 1. **What all streams share is load.** From every residual the median of the latest deviations of the other streams is
//!    taken off. That takes at least [`DriftWatch::LEAST_OTHERS`] others, or one that drifts itself would move the
//!    rest; with fewer nothing is taken off, and the [`Drift`] says how many there were.
//! 2. **The stream says what is usual.** Median and median absolute deviation of the latest residuals that were in order,
//!    from the first [`DriftWatch::REFERENCE`] on. Residuals are under suspicion as long as a sum is up, and do not
//!    count before it is down again: a drift must not become usual while it is being noticed.
//! 3. **Two sums** (CUSUM; Page, 1954) of how far residuals are off by more than half a deviation, one for slower and one
//!    for faster. A single wild residual counts as one of four deviations: it is an anomaly, no drift.
//! 4. **A sum above 15 is a drift.** The stream then starts anew, on its new level.
//!
//! On normal noise that is less than one false alarm in 20 000 residuals of a stream, and with tails as heavy as Laplace's less
//! than one in 5000, alone or with others; the tests count them. A step of 20 % by one of eight streams is found within 50
//! residuals under noise of 10 %, usually after 12; under noise of 15 % it is in 95 cases of 100, under 20 % in two of three.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::is_residual;
use super::robust::{median, middle_and_spread};

/// Residuals in order that are remembered of a stream.
const WINDOW: usize = 256;
/// Streams that are remembered; beyond that the one that was silent longest is forgotten.
const MOST_STREAMS: usize = 512;
/// Noise below 2 % is taken for 2 %: smaller changes are not worth a notice.
const LEAST_SPREAD: f64 = 0.02;
/// What a residual may be off without adding to a sum, in deviations: half of the smallest step to be found.
const SLACK: f64 = 0.5;
/// Residuals further from the median, in deviations, have no part in the level.
const TAME: f64 = 2.5;
/// A residual counts as at most so many deviations.
const WILD: f64 = 4.0;
/// A sum above this is a drift.
const LIMIT: f64 = 15.0;
/// Rounds of all streams after which one that was silent no longer tells anything about load.
const STALE_ROUNDS: u64 = 4;

/// Which way times went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// They got longer.
    Slower,
    /// They got shorter.
    Faster,
}

impl Direction {
    pub(super) fn of(change: f64) -> Self {
        if change > 0.0 {
            Self::Slower
        } else {
            Self::Faster
        }
    }
}

/// A stream that has left its level.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// Which way.
    pub direction: Direction,
    /// By how much, in ln t: the median since it began, less what was usual.
    pub step: f64,
    /// Residuals since it began, the last one included.
    pub samples: usize,
    /// Other streams that did not go along. With none, it may as well be load.
    pub others: usize,
}

/// Watches streams of residuals, ln of measured over expected time, for drift.
#[derive(Debug, Clone, Default)]
pub struct DriftWatch {
    streams: BTreeMap<u64, Stream>,
    heard: u64,
}

#[derive(Debug, Clone, Default)]
struct Stream {
    /// The latest residuals in order, with the common mode taken off.
    usual: VecDeque<f64>,
    /// Their middle and spread, once there are enough.
    level: Option<(f64, f64)>,
    /// Residuals since these were computed.
    since_level: usize,
    /// How far the latest residual was off the level, nothing taken off.
    deviation: f64,
    heard: u64,
    slower: Sum,
    faster: Sum,
    /// What came while a sum was up.
    suspects: VecDeque<f64>,
}

/// One of the two sums, and for how many residuals it has been up.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    value: f64,
    samples: usize,
}

impl Sum {
    fn add(&mut self, excess: f64) {
        self.value = (self.value + excess - SLACK).max(0.0);
        self.samples = if self.value > 0.0 {
            self.samples + 1
        } else {
            0
        };
    }
}

impl DriftWatch {
    /// Residuals from which a stream knows what is usual.
    pub const REFERENCE: usize = 96;
    /// Other streams it takes to tell load from drift.
    pub const LEAST_OTHERS: usize = 3;

    /// Takes the next residual of a stream; answers if it has drifted. What cannot be a logarithm of times is ignored.
    pub fn observe(&mut self, stream: u64, residual: f64) -> Option<Drift> {
        if !is_residual(residual) {
            return None;
        }
        self.heard += 1;
        let (common, others) = self.common_mode(stream);
        self.make_room_for(stream);
        let heard = self.heard;
        let stream = self.streams.entry(stream).or_default();
        stream.heard = heard;
        stream.take(residual, common, others)
    }

    /// How far a residual is off what is usual for its stream, once that is known.
    pub fn deviation(&self, stream: u64, residual: f64) -> Option<f64> {
        let (middle, _) = self.streams.get(&stream)?.level?;
        Some(residual - middle)
    }

    /// Streams that are remembered.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether no stream was heard of.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// What the other streams have in common at present, and how many they are.
    fn common_mode(&self, stream: u64) -> (f64, usize) {
        let stale = STALE_ROUNDS * self.streams.len() as u64;
        let others = self.streams.iter().filter(|(id, other)| {
            **id != stream && other.level.is_some() && self.heard - other.heard <= stale
        });
        let mut deviations: Vec<f64> = others.map(|(_, other)| other.deviation).collect();
        if deviations.len() < Self::LEAST_OTHERS {
            return (0.0, 0);
        }
        (median(&mut deviations).unwrap_or(0.0), deviations.len())
    }

    fn make_room_for(&mut self, stream: u64) {
        if self.streams.len() < MOST_STREAMS || self.streams.contains_key(&stream) {
            return;
        }
        let silent = self.streams.iter().min_by_key(|(_, other)| other.heard);
        if let Some(id) = silent.map(|(id, _)| *id) {
            self.streams.remove(&id);
        }
    }
}

impl Stream {
    fn take(&mut self, residual: f64, common: f64, others: usize) -> Option<Drift> {
        let own = residual - common;
        let Some((middle, spread)) = self.level else {
            self.usual.push_back(own);
            if self.usual.len() >= DriftWatch::REFERENCE {
                self.learn_level();
            }
            return None;
        };
        self.deviation = residual - middle;
        let excess = ((own - middle) / spread).clamp(-WILD, WILD);
        self.slower.add(excess);
        self.faster.add(-excess);
        self.suspects.push_back(own);
        for sum in [self.slower, self.faster] {
            if sum.value > LIMIT {
                return Some(self.start_anew(sum.samples, middle, others));
            }
        }
        if self.slower.samples == 0 && self.faster.samples == 0 || self.suspects.len() > WINDOW {
            self.acquit();
        }
        None
    }

    /// What was under suspicion was in order.
    fn acquit(&mut self) {
        self.since_level += self.suspects.len();
        self.usual.append(&mut self.suspects);
        while self.usual.len() > WINDOW {
            self.usual.pop_front();
        }
        // Levels are computed more seldom the better they are known.
        if self.since_level * 8 >= self.usual.len() {
            self.learn_level();
        }
    }

    fn learn_level(&mut self) {
        self.since_level = 0;
        let level = middle_and_spread(self.usual.iter().copied());
        self.level = level.map(|(middle, spread)| {
            // The mean of what is not wild is closer than the median, and a level that is off is half an alarm.
            let spread = spread.max(LEAST_SPREAD);
            let tame = |value: &&f64| (**value - middle).abs() <= TAME * spread;
            let (sum, count) = self
                .usual
                .iter()
                .filter(tame)
                .fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
            (
                if count > 0 {
                    sum / f64::from(count)
                } else {
                    middle
                },
                spread,
            )
        });
    }

    /// The drift since the sum went up; from here on its level is the usual one.
    fn start_anew(&mut self, samples: usize, middle: f64, others: usize) -> Drift {
        let since = self.suspects.len().saturating_sub(samples);
        let mut changed: Vec<f64> = self.suspects.iter().skip(since).copied().collect();
        let step = median(&mut changed).unwrap_or(middle) - middle;
        *self = Self {
            heard: self.heard,
            usual: changed.into(),
            ..Self::default()
        };
        Drift {
            direction: Direction::of(step),
            step,
            samples,
            others,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::noise::{laplace, normal};
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    const STEP: f64 = 0.182_321_556_793_955; // ln 1.2

    /// Alarms and residuals of this many streams in turn, without any drift.
    fn false_alarms(
        streams: u64,
        rounds: u64,
        seed: u64,
        noise: fn(&mut Pcg64) -> f64,
    ) -> (u64, u64) {
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut watch = DriftWatch::default();
        let mut alarms = 0;
        for _ in 0..rounds {
            for stream in 0..streams {
                let residual = 0.1 * noise(&mut rng);
                alarms += u64::from(watch.observe(stream, residual).is_some());
            }
        }
        (alarms, streams * rounds)
    }

    #[test]
    fn false_alarms_are_as_rare_as_stated() {
        for (noise, stated) in [(normal as fn(&mut Pcg64) -> f64, 20_000), (laplace, 5000)] {
            let (mut alarms, mut residuals) = (0, 0);
            // Alone, where nothing is taken off, many times over; and with others.
            for seed in 0..100 {
                let (some, of) = false_alarms(1, 3000, seed, noise);
                (alarms, residuals) = (alarms + some, residuals + of);
            }
            assert!(
                alarms * stated < residuals,
                "alone: {alarms} in {residuals}"
            );
            let (alarms, residuals) = false_alarms(8, 40_000, 1000, noise);
            assert!(alarms * stated < residuals, "of 8: {alarms} in {residuals}");
        }
    }

    /// How many residuals it takes to find a step by one of eight streams, or `None` within 400.
    fn delay(noise: f64, step: f64, seed: u64) -> Option<(usize, Drift)> {
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut watch = DriftWatch::default();
        for round in 0..700 {
            for stream in 0..8 {
                let off = if stream == 3 && round >= 300 {
                    step
                } else {
                    0.0
                };
                let drift = watch.observe(stream, noise * normal(&mut rng) + off);
                match drift {
                    Some(drift) if stream == 3 && round >= 300 => {
                        return Some((round - 299, drift));
                    }
                    _ => {}
                }
            }
        }
        None
    }

    #[test]
    fn a_step_of_a_fifth_is_found_within_fifty_residuals() {
        for step in [STEP, -STEP] {
            let mut delays = Vec::new();
            for seed in 0..100 {
                let (after, drift) = delay(0.1, step, seed).unwrap();
                assert!(after <= 50, "{after}");
                assert_eq!(drift.direction, Direction::of(step));
                // One of them may be learning its level.
                assert!(drift.others >= 6, "{drift:?}");
                assert!((drift.step - step).abs() < 0.15, "{drift:?}");
                delays.push(after as f64);
            }
            let middle = median(&mut delays).unwrap();
            assert!(middle <= 14.0, "{middle}");
        }
        for (noise, least) in [(0.15, 95), (0.2, 65)] {
            let in_time = |seed| delay(noise, STEP, seed).is_some_and(|(after, _)| after <= 50);
            let found = (0..100).filter(|seed| in_time(*seed)).count();
            assert!(found >= least, "{found} of 100 under noise of {noise}");
        }
    }

    #[test]
    fn what_all_streams_share_is_load_and_alone_it_is_not_told_apart() {
        // Everything becomes twice as slow, and later as fast as before.
        let shared = |round: u32| {
            if (300..600).contains(&round) {
                0.7
            } else {
                0.0
            }
        };
        for (streams, expected) in [(8, 0), (1, 2)] {
            let mut rng = Pcg64::seed_from_u64(5);
            let mut watch = DriftWatch::default();
            let mut drifts = Vec::new();
            for round in 0..900 {
                for stream in 0..streams {
                    let residual = 0.1 * normal(&mut rng) + shared(round);
                    drifts.extend(watch.observe(stream, residual));
                }
            }
            assert_eq!(drifts.len(), expected, "{drifts:?}");
            assert!(drifts.iter().all(|drift| drift.others == 0));
        }
    }

    #[test]
    fn one_step_is_one_drift_and_wild_residuals_are_none() {
        let mut rng = Pcg64::seed_from_u64(6);
        let mut watch = DriftWatch::default();
        let mut drifts = Vec::new();
        for round in 0..2000 {
            let level = if round < 1000 { 0.0 } else { 0.4 };
            let wild = if round % 20 == 0 { 1.6 } else { 0.0 };
            drifts.extend(watch.observe(1, level + wild + 0.1 * normal(&mut rng)));
        }
        assert_eq!(drifts.len(), 1, "{drifts:?}");
        assert!((drifts[0].step - 0.4).abs() < 0.2, "{drifts:?}");
    }

    #[test]
    fn constant_streams_are_quiet_until_they_change_and_nonsense_is_ignored() {
        let mut watch = DriftWatch::default();
        for _ in 0..500 {
            assert_eq!(watch.observe(1, 0.25), None);
            for nonsense in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
                assert_eq!(watch.observe(1, nonsense), None);
                assert_eq!(watch.observe(2, nonsense), None);
            }
        }
        assert_eq!(watch.len(), 1);
        let found = (1..50).find_map(|_| watch.observe(1, 0.25 + STEP)).unwrap();
        assert!((found.step - STEP).abs() < 1e-9, "{found:?}");
        assert!(found.samples < 10, "{found:?}");
    }

    #[test]
    fn memory_is_bounded_by_forgetting_who_is_silent() {
        let mut watch = DriftWatch::default();
        assert!(watch.is_empty());
        for stream in 0..3 * MOST_STREAMS as u64 {
            watch.observe(0, 0.0);
            watch.observe(stream, 0.0);
        }
        assert_eq!(watch.len(), MOST_STREAMS);
        assert!(watch.streams.contains_key(&0));
        assert!(!watch.streams.contains_key(&1));
    }
}
