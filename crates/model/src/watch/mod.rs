//! Notices change: drift, anomalies, trends, and what goes along with them.
//!
//! The streams are residuals, ln of measured over expected time, one stream per kernel or workload: what a model
//! already explains is no news. [`Watch`] takes them one at a time and gives [events](Event). In it are, and can be used
//! alone:
//!
//! | | asks | false alarms |
//! |---|---|---|
//! | [`DriftWatch`] | has a kernel changed for good, while the others have not? | below 1 in 20 000 runs |
//! | [`AnomalyWatch`] | was this run out of line, and what did the machine say? | about 1 in 700 runs |
//! | [`Trend`] | does a kernel creep? | 1 in 1000 tests, a test in 128 runs |
//! | [`Correlation`] | which readings go along with slowdown? | 1 in 100 tests, a test in 128 different states |
//! | [`WorkloadClass`] | what holds a kernel up? | |
//!
//! The rates are those of normal noise; every one of them is counted in a test.
//!
//! Nothing here reads a clock or starts a thread, and memory is bounded: old residuals, silent streams and old events make
//! room. An observation costs some microseconds, so it belongs off the caller's thread.

mod along;
mod anomaly;
mod class;
mod correlate;
mod drift;
mod events;
#[cfg(test)]
mod noise;
mod robust;
mod state;
mod trend;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use along::Along;
pub use anomaly::{Anomaly, AnomalyWatch, Cause, Severity};
pub use class::{Level, Peaks, Run, Sensors, WorkloadClass};
pub use correlate::Correlation;
pub use drift::{Direction, Drift, DriftWatch};
pub use events::{Event, EventLog, Noticed};
pub use state::{Reading, SystemState};
pub use trend::{Trend, TrendError};

/// Residuals of a stream that are tested for a trend at a time.
const TREND_WINDOW: usize = 128;
/// A trend is one if noise shows it in fewer than one test in a thousand, and if it is 5 % from end to end.
const TREND_P: f64 = 0.001;
const TREND_LEAST: f64 = 0.05;
/// Streams whose trend is watched; beyond that the one that was silent longest is forgotten.
const MOST_STREAMS: usize = 512;
/// The rate of false correlations.
const CORRELATION_RATE: f64 = 0.01;
/// Weaker ones are not worth a word, however certain.
const CORRELATION_LEAST: f64 = 0.3;
/// Events that are kept by default.
const ROOM: usize = 1024;

/// One run, as it was observed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// Whose it is: a number the caller has for the kernel or workload.
    pub stream: u64,
    /// ln of measured over expected time.
    pub residual: f64,
    /// What the machine was doing.
    pub state: SystemState,
    /// When, in nanoseconds of any clock that does not go back.
    pub time_ns: u64,
}

/// The logarithm of no ratio of times is further from 0: its exponential is no number.
const FARTHEST: f64 = 709.0;

/// Whether something can be the logarithm of measured over expected time.
fn is_residual(value: f64) -> bool {
    value.abs() <= FARTHEST
}

/// An observation that says nothing.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error(
    "the residual of stream {stream} is {residual}: the logarithm of one time over another lies within {FARTHEST}, if both are above zero; it was ignored"
)]
pub struct NoResidual {
    /// The stream.
    pub stream: u64,
    /// What was given.
    pub residual: f64,
}

/// Watches runs, and keeps what it noticed.
///
/// ```
/// use kernelwise_model::watch::{Noticed, Observation, SystemState, Watch};
///
/// let mut watch = Watch::default();
/// let mut observe = |time_ns: u64, residual: f64| {
///     let state = SystemState::default();
///     let seen = Observation { stream: 7, residual, state, time_ns };
///     watch.observe(&seen).map(|news| news.cloned().collect::<Vec<_>>())
/// };
/// // As expected, to a percent; then a quarter slower.
/// for run in 0..200 {
///     assert!(observe(run, 0.01 * (run % 3) as f64)?.is_empty());
/// }
/// let found = (200..250).find_map(|run| observe(run, 0.25).ok()?.into_iter().find(|event| {
///     matches!(event.what, Noticed::Drift { stream: 7, .. })
/// }));
/// assert!(found.is_some());
/// # Ok::<(), kernelwise_model::watch::NoResidual>(())
/// ```
#[derive(Debug, Clone)]
pub struct Watch {
    drift: DriftWatch,
    anomalies: AnomalyWatch,
    /// Time in seconds and residual of the latest runs, stream by stream.
    courses: BTreeMap<u64, Vec<(f64, f64)>>,
    /// What the machine was doing, and how far runs were off meanwhile.
    along: Along,
    /// The readings, and which way, that are known to go along with slowdown.
    known: Vec<(Reading, Direction)>,
    ignored: u64,
    log: EventLog,
}

impl Default for Watch {
    /// Room for 1024 events.
    fn default() -> Self {
        Self::new(ROOM)
    }
}

impl Watch {
    /// A watch that keeps the latest so many events, at least one.
    pub fn new(room: usize) -> Self {
        Self {
            drift: DriftWatch::default(),
            anomalies: AnomalyWatch::default(),
            courses: BTreeMap::new(),
            along: Along::default(),
            known: Vec::new(),
            ignored: 0,
            log: EventLog::new(room),
        }
    }

    /// Takes one run; answers with what is new. One whose residual cannot be a logarithm of times is ignored,
    /// counted and said.
    pub fn observe(
        &mut self,
        seen: &Observation,
    ) -> Result<impl ExactSizeIterator<Item = &Event>, NoResidual> {
        let &Observation {
            stream,
            residual,
            state,
            time_ns,
        } = seen;
        if !is_residual(residual) {
            self.ignored += 1;
            return Err(NoResidual { stream, residual });
        }
        let news = self.log.next_number();
        if let Some(anomaly) = self.anomalies.observe(stream, residual, &state) {
            self.log.push(time_ns, Noticed::Anomaly { stream, anomaly });
        }
        if let Some(drift) = self.drift.observe(stream, residual) {
            self.log.push(time_ns, Noticed::Drift { stream, drift });
            // What was usual is so no longer, and a step is no trend.
            self.anomalies.forget(stream);
            self.courses.remove(&stream);
        } else if let Some(trend) = self.trend(stream, residual, time_ns) {
            self.log.push(time_ns, Noticed::Trend { stream, trend });
        }
        for correlation in self.correlations(stream, residual, state) {
            self.log.push(time_ns, Noticed::Correlation(correlation));
        }
        Ok(self.log.since(news))
    }

    /// What was noticed so far.
    pub fn log(&self) -> &EventLog {
        &self.log
    }

    /// Observations that said nothing.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// The trend of a stream, if its window is full and there is one. A window is tested once: looking again and again would
    /// find one in the end.
    fn trend(&mut self, stream: u64, residual: f64, time_ns: u64) -> Option<Trend> {
        if self.courses.len() >= MOST_STREAMS && !self.courses.contains_key(&stream) {
            // The one that was not heard of for longest is the least likely to be finished.
            let last = |course: &[(f64, f64)]| course.last().map_or(0.0, |seen| seen.0);
            let oldest = self
                .courses
                .iter()
                .map(|(stream, course)| (last(course), *stream));
            let oldest = oldest.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            oldest.and_then(|(_, stream)| self.courses.remove(&stream));
        }
        let course = self.courses.entry(stream).or_default();
        course.push((time_ns as f64 * 1e-9, residual));
        if course.len() < TREND_WINDOW {
            return None;
        }
        let course = std::mem::take(course);
        let span = course.last()?.0 - course.first()?.0;
        let trend = Trend::of(&course).ok()?;
        let worth_it = (trend.slope * span).abs() >= TREND_LEAST;
        (trend.p < TREND_P && worth_it).then_some(trend)
    }

    /// The readings that go along with slowdown, if the window is full and they did not do so before.
    fn correlations(&mut self, stream: u64, residual: f64, state: SystemState) -> Vec<Correlation> {
        let Some(along) = self.along.observe(stream, residual, state) else {
            return Vec::new();
        };
        let of = |reading: Reading| {
            let pairs = along
                .iter()
                .map(|(state, deviation)| (state.get(reading).unwrap_or(f64::NAN), *deviation));
            Correlation::of(reading, &pairs.collect::<Vec<_>>())
        };
        let all = Reading::ALL.into_iter().filter_map(of).collect();
        let mut found = Correlation::significant(all, CORRELATION_RATE);
        found.retain(|one| one.r.abs() >= CORRELATION_LEAST);
        let key = |one: &Correlation| (one.reading, Direction::of(one.r));
        let known = found.iter().map(key).collect();
        let before = std::mem::replace(&mut self.known, known);
        found.retain(|one| !before.contains(&key(one)));
        found
    }
}
