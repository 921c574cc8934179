//! Anomalies: single runs that took far longer, or far less, than usual, and what the machine says about it.
//!
//! Usual is the median of the last [`AnomalyWatch::WINDOW`] residuals of the same stream, give or take 3.5 deviations by
//! their median absolute deviation (Iglewicz and Hoaglin, 1993): up to half of a window may be wild without
//! moving it. On normal noise about one run in 700 is called an anomaly by chance, with tails as heavy
//! as Laplace's one in 40; runs of five times the usual time are found under noise of up to 25 %.
//!
//! The cause is the reading that changed most for the worse since what was usual, in steps that are known to matter: a quarter
//! of the cores, 5 % of the clock, 10 °C, a tenth of memory. If none changed by a step, the cause is unknown, and so it
//! is of runs that were too fast.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::drift::Direction;
use super::is_residual;
use super::robust::{median, middle_and_spread};
use super::state::{Reading, SystemState};

/// Deviations beyond which a run is an anomaly.
const FAR: f64 = 3.5;
/// Noise below 2 % is taken for 2 %.
const LEAST_SPREAD: f64 = 0.02;
/// Streams that are remembered; beyond that the one that was silent longest is forgotten.
const MOST_STREAMS: usize = 512;
/// Runs with a reading from which on one knows what is usual for it.
const ENOUGH_RUNS: u64 = 8;

/// How bad it is, by the factor between the time and the usual one, whichever is longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Less than 1.5 times.
    Minor,
    /// Less than 3 times.
    Major,
    /// More than that.
    Critical,
}

impl Severity {
    fn of(deviation: f64) -> Self {
        match deviation.abs().exp() {
            factor if factor < 1.5 => Self::Minor,
            factor if factor < 3.0 => Self::Major,
            _ => Self::Critical,
        }
    }
}

/// What the machine's readings say about an anomaly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Others keep more cores busy than usual.
    Load,
    /// The clock is lower than usual.
    ThrottledClock,
    /// The processor is hotter than usual.
    Temperature,
    /// More memory is in use than usual.
    MemoryPressure,
    /// No reading tells.
    Unknown,
}

impl Cause {
    fn of(reading: Reading) -> Self {
        match reading {
            Reading::Load => Self::Load,
            Reading::Clock => Self::ThrottledClock,
            Reading::Temperature => Self::Temperature,
            Reading::MemoryPressure => Self::MemoryPressure,
        }
    }
}

/// A run out of line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Anomaly {
    /// Which way.
    pub direction: Direction,
    /// How far off the usual, in ln t.
    pub deviation: f64,
    /// The same in deviations of the stream.
    pub score: f64,
    /// How bad it is.
    pub severity: Severity,
    /// Why, as far as readings tell.
    pub cause: Cause,
}

/// Watches streams of residuals for anomalies.
#[derive(Debug, Clone, Default)]
pub struct AnomalyWatch {
    streams: BTreeMap<u64, Stream>,
    heard: u64,
    /// Every reading, in the order of [`Reading::ALL`].
    readings: [Readings; Reading::ALL.len()],
}

/// What a sensor said lately. Many runs fall into the time between two looks at it, so a value counts once until it changes.
#[derive(Debug, Clone, Default)]
struct Readings {
    values: VecDeque<f64>,
    runs: u64,
}

#[derive(Debug, Clone, Default)]
struct Stream {
    recent: VecDeque<f64>,
    heard: u64,
}

impl AnomalyWatch {
    /// Residuals of a stream, and different values of a sensor, that are remembered.
    pub const WINDOW: usize = 64;
    /// Residuals from which a stream knows what is usual.
    pub const REFERENCE: usize = 16;

    /// Takes the next residual of a stream, with what the machine said at the time; answers if it is an anomaly. What cannot
    /// be a logarithm of times is ignored.
    pub fn observe(&mut self, stream: u64, residual: f64, state: &SystemState) -> Option<Anomaly> {
        if !is_residual(residual) {
            return None;
        }
        self.make_room_for(stream);
        self.heard += 1;
        let recent = self.streams.entry(stream).or_default();
        recent.heard = self.heard;
        let found = unusual(&recent.recent, residual);
        remember(&mut recent.recent, residual);
        let anomaly = found.map(|(deviation, score)| Anomaly {
            direction: Direction::of(deviation),
            deviation,
            score,
            severity: Severity::of(deviation),
            cause: if deviation > 0.0 {
                self.cause(state)
            } else {
                Cause::Unknown
            },
        });
        for (reading, recent) in Reading::ALL.into_iter().zip(&mut self.readings) {
            if let Some(value) = state.get(reading) {
                recent.runs += 1;
                if recent.values.back() != Some(&value) {
                    remember(&mut recent.values, value);
                }
            }
        }
        anomaly
    }

    /// Forgets what was usual for a stream: it has drifted.
    pub fn forget(&mut self, stream: u64) {
        self.streams.remove(&stream);
    }

    /// The reading that changed most for the worse, if one did.
    fn cause(&self, state: &SystemState) -> Cause {
        let mut worst = (1.0, Cause::Unknown);
        for (reading, recent) in Reading::ALL.into_iter().zip(&self.readings) {
            // What is usual as long as nobody knows, and the step that matters.
            let (usual, step) = match reading {
                Reading::Load => (Some(0.0), 0.25),
                // Which share of its highest clock a processor holds with all cores at work differs from one to the next.
                Reading::Clock => (None, -0.05),
                Reading::Temperature => (Some(70.0), 10.0),
                Reading::MemoryPressure => (Some(0.8), 0.1),
            };
            let mut values: Vec<f64> = recent.values.iter().copied().collect();
            let known = median(&mut values).filter(|_| recent.runs >= ENOUGH_RUNS);
            let both = state.get(reading).zip(known.or(usual));
            let change = both.map(|(now, usual)| (now - usual) / step);
            // By a step exactly is by a step.
            if let Some(change) = change
                .map(|change| change + 1e-9)
                .filter(|change| *change >= worst.0)
            {
                worst = (change, Cause::of(reading));
            }
        }
        worst.1
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

/// How far a residual is off, as it is and in deviations, if that is far.
fn unusual(recent: &VecDeque<f64>, residual: f64) -> Option<(f64, f64)> {
    if recent.len() < AnomalyWatch::REFERENCE {
        return None;
    }
    let (middle, spread) = middle_and_spread(recent.iter().copied())?;
    let deviation = residual - middle;
    let score = deviation / spread.max(LEAST_SPREAD);
    (score.abs() > FAR).then_some((deviation, score))
}

fn remember(recent: &mut VecDeque<f64>, value: f64) {
    if recent.len() == AnomalyWatch::WINDOW {
        recent.pop_front();
    }
    recent.push_back(value);
}

#[cfg(test)]
mod tests {
    use super::super::noise::{laplace, normal};
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    /// Recall and the share of false positives with one run in twenty five times as long.
    fn rates(spread: f64, noise: fn(&mut Pcg64) -> f64) -> (f64, f64) {
        let mut rng = Pcg64::seed_from_u64(1);
        let mut watch = AnomalyWatch::default();
        let (mut found, mut planted, mut wrong, mut fine) = (0, 0, 0, 0);
        for round in 0..20_000 {
            let wild = rng.random::<f64>() < 0.05;
            let residual = spread * noise(&mut rng) + if wild { 5_f64.ln() } else { 0.0 };
            let anomaly = watch.observe(round % 4, residual, &SystemState::default());
            if round < 4 * AnomalyWatch::REFERENCE as u64 {
                assert_eq!(anomaly, None);
                continue;
            }
            let count = usize::from(anomaly.is_some());
            if wild {
                (planted, found) = (planted + 1, found + count);
            } else {
                (fine, wrong) = (fine + 1, wrong + count);
            }
        }
        (
            found as f64 / f64::from(planted),
            wrong as f64 / f64::from(fine),
        )
    }

    #[test]
    fn planted_outliers_are_found_and_little_else() {
        for spread in [0.0, 0.05, 0.1, 0.2, 0.25] {
            let (recall, false_positives) = rates(spread, normal);
            assert!(recall >= 0.95, "{recall} at {spread}");
            assert!(false_positives <= 0.002, "{false_positives} at {spread}");
            let (recall, false_positives) = rates(spread, laplace);
            assert!(recall >= 0.95, "{recall} at {spread}, heavy tails");
            assert!(
                false_positives <= 0.05,
                "{false_positives} at {spread}, heavy tails"
            );
        }
    }

    /// A watch that knows what is usual: no deviation at all, and this state.
    fn settled(state: &SystemState) -> AnomalyWatch {
        let mut watch = AnomalyWatch::default();
        for _ in 0..40 {
            assert_eq!(watch.observe(1, 0.0, state), None);
        }
        watch
    }

    #[test]
    fn severity_goes_by_the_factor_both_ways() {
        for (factor, severity) in [
            (1.2, Severity::Minor),
            (2.0, Severity::Major),
            (5.0, Severity::Critical),
        ] {
            for (sign, direction) in [(1.0, Direction::Slower), (-1.0, Direction::Faster)] {
                let mut watch = settled(&SystemState::default());
                let off = sign * f64::ln(factor);
                let anomaly = watch.observe(1, off, &SystemState::default()).unwrap();
                assert_eq!((anomaly.severity, anomaly.direction), (severity, direction));
                assert!((anomaly.deviation - off).abs() < 1e-12);
            }
        }
        assert!(Severity::Minor < Severity::Critical);
    }

    #[test]
    fn the_cause_is_the_reading_that_changed_most() {
        let usual = SystemState {
            load: Some(0.5),
            clock: Some(1.0),
            temperature: Some(60.0),
            memory_pressure: Some(0.5),
        };
        #[rustfmt::skip]
        let cases = [
            (usual, Cause::Unknown),
            (SystemState { load: Some(0.75), ..usual }, Cause::Load),
            (SystemState { load: Some(0.7), ..usual }, Cause::Unknown),
            (SystemState { clock: Some(0.8), temperature: Some(75.0), ..usual }, Cause::ThrottledClock),
            (SystemState { clock: Some(1.2), temperature: Some(75.0), ..usual }, Cause::Temperature),
            (SystemState { memory_pressure: Some(0.95), load: Some(0.8), ..usual }, Cause::MemoryPressure),
            (SystemState { load: Some(f64::NAN), ..usual }, Cause::Unknown),
            (SystemState::default(), Cause::Unknown),
        ];
        for (state, cause) in cases {
            let anomaly = settled(&usual).observe(1, 1.0, &state).unwrap();
            assert_eq!(anomaly.cause, cause, "{state:?}");
        }
        // Too fast: nothing of the kind explains it.
        let busy = SystemState {
            load: Some(1.0),
            ..usual
        };
        assert_eq!(
            settled(&usual).observe(1, -1.0, &busy).unwrap().cause,
            Cause::Unknown
        );
        // A load that is there all the time is no cause; with no memory of readings it is.
        let always = SystemState {
            load: Some(0.9),
            ..SystemState::default()
        };
        assert_eq!(
            settled(&always).observe(1, 1.0, &always).unwrap().cause,
            Cause::Unknown
        );
        let mut new = settled(&SystemState::default());
        assert_eq!(new.observe(1, 1.0, &always).unwrap().cause, Cause::Load);
        // Nobody knows which clock is usual before it was read.
        let slow = SystemState {
            clock: Some(0.5),
            ..SystemState::default()
        };
        let mut new = settled(&SystemState::default());
        assert_eq!(new.observe(1, 1.0, &slow).unwrap().cause, Cause::Unknown);
    }

    #[test]
    fn what_is_usual_is_known_from_looks_and_not_from_runs() {
        let loaded = |load| SystemState {
            load: Some(load),
            ..SystemState::default()
        };
        let mut watch = settled(&SystemState::default());
        // Twenty looks at a calm machine, two runs each; then many runs within one look at a busy one.
        for look in 0..20 {
            for _ in 0..2 {
                let calm = loaded(0.01 * f64::from(look % 2));
                assert_eq!(watch.observe(1, 0.0, &calm), None);
            }
        }
        for _ in 0..200 {
            assert_eq!(watch.observe(1, 0.0, &loaded(0.9)), None);
        }
        let anomaly = watch.observe(1, 1.0, &loaded(0.9)).unwrap();
        assert_eq!(anomaly.cause, Cause::Load);
    }

    #[test]
    fn nonsense_is_ignored_a_forgotten_stream_starts_anew_and_memory_is_bounded() {
        let calm = SystemState::default();
        let mut watch = settled(&calm);
        for nonsense in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
            assert_eq!(watch.observe(1, nonsense, &calm), None);
        }
        assert!(watch.clone().observe(1, 1.0, &calm).is_some());
        watch.forget(1);
        assert_eq!(watch.observe(1, 1.0, &calm), None);
        for stream in 0..2 * MOST_STREAMS as u64 {
            watch.observe(stream, 0.0, &calm);
        }
        assert_eq!(watch.streams.len(), MOST_STREAMS);
    }
}
