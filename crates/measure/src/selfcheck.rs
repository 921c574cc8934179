//! The instrument measures itself first.
//!
//! Three checks, each born from a measurement that was wrong and looked right:
//!
//! - **A against A must tie** ([`null_comparison`]). If a body seems to differ from itself, no finding
//!   about two bodies is worth anything on this machine now.
//! - **Nothing runs above peak** ([`check_rate`], [`check_bandwidth`]). A rate above the calibrated peak
//!   means the measurement is wrong: the work was optimised away, counted twice, or done by threads
//!   the clock does not see. An algorithm that does less than the textbook count (Winograd) is checked
//!   with the operations it really does.
//! - **One thread means one thread** ([`helper_threads`]). A library that quietly uses a second thread
//!   looks twice as fast on a clock of the calling thread's time.

use std::cell::RefCell;
use std::fmt;

use kernelwise_types::Measured;
use kernelwise_types::calibration::{Bandwidth, Peak};
use kernelwise_types::units::{ByteRate, FlopRate};
use serde::Serialize;

use crate::clock::ClockFacts;
use crate::sampler::{Contender, Sampler, Stop};
use crate::verdict::{Comparison, Indifference, Verdict};
use crate::warning::Warning;

/// What a rate may exceed its peak by, beside the spread of the peak itself: 5 %, since kernel and
/// calibration may have met the machine at slightly different clocks.
pub const PEAK_TOLERANCE: f64 = 0.05;

/// What came of racing a body against itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NullResult {
    /// The clock it was raced on.
    pub clock: ClockFacts,
    /// Why the race ended.
    pub stop: Stop,
    /// The comparison; `None` if the body failed or the race ended too early for one.
    pub comparison: Option<Comparison>,
    /// What the samples say against themselves.
    pub warnings: Vec<Warning>,
}

impl NullResult {
    /// Whether the body tied with itself, so that verdicts of such races can be believed.
    pub fn is_trustworthy(&self) -> bool {
        self.comparison
            .is_some_and(|comparison| comparison.verdict == Verdict::Tie)
    }
}

impl fmt::Display for NullResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(comparison) = self.comparison else {
            return write!(
                f,
                "null comparison without result ({}): raise the budget, or mend the body",
                self.stop
            );
        };
        match comparison.verdict {
            Verdict::Tie => write!(f, "null comparison: {comparison}"),
            Verdict::TooNoisy => write!(
                f,
                "this machine is too noisy to measure now: a body against itself is {comparison}"
            ),
            Verdict::Faster | Verdict::Slower => write!(
                f,
                "do not trust this instrument now: a body seems {comparison} than itself"
            ),
        }
    }
}

/// Races `body` against itself with the settings of `sampler`, at 90 % confidence.
///
/// ```
/// use kernelwise_measure::{Indifference, Sampler, ScriptedClock, selfcheck::null_comparison};
///
/// let clock = ScriptedClock::new();
/// let sampler = Sampler::new(&clock);
/// let null = null_comparison(&sampler, Indifference::default(), || Ok::<_, String>(clock.advance(500)));
/// assert!(null.is_trustworthy());
/// ```
pub fn null_comparison<T, E: fmt::Display>(
    sampler: &Sampler<'_>,
    indifference: Indifference,
    body: impl FnMut() -> Result<T, E>,
) -> NullResult {
    const CONFIDENCE: f64 = 0.9;
    // The two contenders run in turn and never within each other, so the borrows never meet.
    let body = RefCell::new(body);
    let contender = |name| Contender::new(name, || (body.borrow_mut())());
    let race = sampler.run(vec![contender("first"), contender("second")]);
    let doubts = |entry| Warning::from_entry(entry, &race.clock);
    NullResult {
        warnings: race.entries.iter().flat_map(doubts).collect(),
        comparison: race.compare("first", "second", CONFIDENCE, indifference),
        clock: race.clock,
        stop: race.stop,
    }
}

/// A rate that the machine cannot reach.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error(
    "{measured} is above {limit}, the peak of {peak} ({what}) with its spread and tolerance, so the \
     measurement is wrong: check that the result is used, that the cost of the operation is right and \
     that the clock sees every thread"
)]
pub struct AbovePeak<R: fmt::Display> {
    /// Which peak, in words.
    pub what: String,
    /// The rate that was measured.
    pub measured: R,
    /// The peak.
    pub peak: R,
    /// The rate that would still have been believed.
    pub limit: R,
}

/// Refuses a rate of arithmetic above `peak` by more than the peak's own spread and
/// [`PEAK_TOLERANCE`].
pub fn check_rate(rate: FlopRate, peak: &Peak) -> Result<(), AbovePeak<FlopRate>> {
    let limit = FlopRate::new(limit(&peak.rate)).unwrap_or(peak.rate.value);
    if rate <= limit {
        return Ok(());
    }
    Err(AbovePeak {
        what: format!("{}, {}", peak.dtype, threads(peak.threads)),
        measured: rate,
        peak: peak.rate.value,
        limit,
    })
}

/// The same for bytes per second. The caller chooses the place: data that fits a cache rightly moves
/// faster than memory.
pub fn check_bandwidth(rate: ByteRate, peak: &Bandwidth) -> Result<(), AbovePeak<ByteRate>> {
    let limit = ByteRate::new(limit(&peak.rate)).unwrap_or(peak.rate.value);
    if rate <= limit {
        return Ok(());
    }
    Err(AbovePeak {
        what: format!("{} {}, {}", peak.place, peak.pattern, threads(peak.threads)),
        measured: rate,
        peak: peak.rate.value,
        limit,
    })
}

fn limit<R: Into<f64> + Copy>(peak: &Measured<R>) -> f64 {
    peak.value.into() * (1.0 + peak.spread() + PEAK_TOLERANCE)
}

fn threads(count: u32) -> String {
    match count {
        1 => "1 thread".to_owned(),
        more => format!("{more} threads"),
    }
}

#[cfg(unix)]
pub use helpers::helper_threads;

#[cfg(unix)]
mod helpers {
    use crate::clock::{Clock, ProcessCpuClock, ThreadCpuClock};
    use crate::warning::Warning;

    /// Helpers' time above this share of the calling thread's is worth a warning.
    const HELPER_SHARE: f64 = 0.10;

    /// Runs `body` once, and warns if threads other than the calling one computed meanwhile.
    ///
    /// It compares the processor time of the thread with that of the process, so other work in this
    /// process counts as help: ask while the process has nothing else to do.
    pub fn helper_threads<T>(body: impl FnOnce() -> T) -> (T, Option<Warning>) {
        // The thread's readings enclose the process's, so that reading them cannot look like help.
        let thread_start = ThreadCpuClock.now();
        let process_start = ProcessCpuClock.now();
        let value = body();
        let process_ns = ProcessCpuClock.now().saturating_sub(process_start);
        let thread_ns = ThreadCpuClock.now().saturating_sub(thread_start);
        let helped = process_ns as f64 > (1.0 + HELPER_SHARE) * thread_ns as f64;
        let warning = helped.then_some(Warning::HelperThreads {
            thread_ns,
            process_ns,
        });
        (value, warning)
    }
}

#[cfg(test)]
mod tests {
    use kernelwise_types::DType;
    use kernelwise_types::calibration::{AccessPattern, MemoryPlace};

    use super::*;
    use crate::clock::ScriptedClock;

    /// A body against itself, its calls taking these times in turn.
    fn null(times: impl Fn(u64) -> u64) -> NullResult {
        let clock = ScriptedClock::with_cost(1);
        let sampler = Sampler::new(&clock).max_rounds(30);
        let mut call = 0;
        null_comparison(&sampler, Indifference::default(), || {
            clock.advance(times(call));
            call += 1;
            Ok::<_, String>(())
        })
    }

    #[test]
    fn a_steady_machine_ties_and_reports_its_clock() {
        let result = null(|_| 30_000);
        assert!(result.is_trustworthy());
        assert_eq!(result.warnings, []);
        assert_eq!(
            result.to_string(),
            "null comparison: tie within 2 % (90 % interval 1.000 to 1.000)"
        );
        assert_eq!(
            (result.clock.cost_ns, result.clock.resolution_ns),
            (1.0, Some(1))
        );
    }

    #[test]
    fn a_noisy_machine_is_told_so() {
        // Durations from 30 to 60 µs in no useful order.
        let result = null(|call| 30_000 + call * 7919 % 30_011);
        assert!(!result.is_trustworthy());
        let spreads = |warning: &Warning| matches!(warning, Warning::Spread { .. });
        assert!(result.warnings.iter().any(spreads), "{:?}", result.warnings);
        let words = result.to_string();
        assert!(
            words.starts_with("this machine is too noisy to measure now: a body against itself is too noisy to tell (90 % interval "),
            "{words}"
        );
    }

    #[test]
    fn a_biased_instrument_is_not_believed() {
        let interval = crate::stats::RatioInterval {
            ratio: 1.3,
            low: 1.2,
            high: 1.4,
            confidence: 0.9,
        };
        let result = NullResult {
            comparison: Some(Comparison::new(interval, Indifference::default())),
            ..null(|_| 30_000)
        };
        assert!(!result.is_trustworthy());
        assert_eq!(
            result.to_string(),
            "do not trust this instrument now: a body seems 1.30x slower (90 % interval 1.20 to 1.40) than itself"
        );
    }

    #[test]
    fn a_body_that_fails_gives_no_result() {
        let clock = ScriptedClock::new();
        let result = null_comparison(&Sampler::new(&clock), Indifference::default(), || {
            Err::<(), _>("no")
        });
        assert!(!result.is_trustworthy());
        assert_eq!(
            result.to_string(),
            "null comparison without result (no contender was left): raise the budget, or mend the body"
        );
    }

    #[test]
    fn a_rate_above_peak_is_refused() {
        let rate = |g: f64| FlopRate::new(g * 1e9).unwrap();
        let peak = Peak {
            dtype: DType::F32,
            threads: 1,
            isa: None,
            rate: Measured {
                value: rate(100.0),
                low: rate(96.0),
                high: rate(99.0),
                samples: 9,
            },
        };
        // 100 with 3 % spread and 5 % tolerance.
        assert_eq!(check_rate(rate(107.9), &peak), Ok(()));
        let error = check_rate(rate(182.0), &peak).unwrap_err();
        assert_eq!(error.limit, rate(108.0));
        assert_eq!(
            error.to_string(),
            "182 GFLOP/s is above 108 GFLOP/s, the peak of 100 GFLOP/s (f32, 1 thread) with its spread \
             and tolerance, so the measurement is wrong: check that the result is used, that the cost of \
             the operation is right and that the clock sees every thread"
        );
    }

    #[test]
    fn a_bandwidth_above_peak_is_refused() {
        let rate = |g: f64| ByteRate::new(g * 1e9).unwrap();
        let peak = Bandwidth {
            place: MemoryPlace::Dram,
            pattern: AccessPattern::Copy,
            threads: 2,
            working_set_bytes: 1 << 28,
            rate: Measured {
                value: rate(20.0),
                low: rate(20.0),
                high: rate(20.0),
                samples: 9,
            },
        };
        assert_eq!(check_bandwidth(rate(20.9), &peak), Ok(()));
        let error = check_bandwidth(rate(21.1), &peak).unwrap_err();
        assert_eq!(
            (error.what.as_str(), error.limit),
            ("dram copy, 2 threads", rate(21.0))
        );
    }
}
