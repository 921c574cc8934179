//! The measuring instrument: which of these is faster here, and can one believe it?
//!
//! Machines that run real work are noisy. Samples are interrupted, clocks change, neighbours take
//! the caches; a mean of ten runs picks the winner of the noise. This crate is built on the
//! assumption that the machine is shared, and says so when it cannot tell.
//!
//! ```
//! use kernelwise_measure::{Contender, Indifference, Sampler, TscClock, Verdict};
//!
//! let numbers: Vec<f32> = (0..4096).map(|i| i as f32).collect();
//! let clock = TscClock::new();
//! let race = Sampler::new(&clock).max_rounds(30).run(vec![
//!     Contender::new("sum", || Ok::<f32, String>(numbers.iter().sum())),
//!     Contender::new("sum of roots", || Ok::<f32, String>(numbers.iter().map(|x| x.sqrt()).sum())),
//! ]);
//! // "1.31x faster (90 % interval 1.28 to 1.35)", or an honest "too noisy to tell".
//! match race.compare("sum", "sum of roots", 0.9, Indifference::default()) {
//!     Some(comparison) if comparison.verdict == Verdict::TooNoisy => { /* measure longer */ }
//!     Some(comparison) => assert!(!comparison.to_string().is_empty()),
//!     None => { /* a contender failed, or there were fewer than nine rounds */ }
//! }
//! ```
//!
//! # The order of decisions
//!
//! 1. **Which clock?** [`TscClock`] for wall time; [`ThreadCpuClock`] for kernels of one thread on a busy
//!    machine; [`ScriptedClock`] when a test says what time it is. [`clock`] has the reasons.
//! 2. **Does the instrument work here?** [`selfcheck::null_comparison`] races a body against itself,
//!    which must tie; [`selfcheck::helper_threads`] makes sure one thread is one thread.
//! 3. **Sample.** [`Sampler`] warms up, sizes batches, interleaves the contenders and stops for one of
//!    five reasons, which it gives. Raw samples are kept; a failing contender costs only itself.
//! 4. **Summarise.** The lower quartile stands for a contender; [`stats`] tells why neither the mean
//!    nor the minimum does.
//! 5. **Compare.** [`ratio_interval`] resamples whole rounds into an interval for the ratio.
//! 6. **Judge.** [`Comparison`] holds the interval against the [indifference zone](Indifference): faster,
//!    slower, tie, or too noisy. [`verdict`] has the table.
//! 7. **Doubt.** [`Warning`]s travel with the result, and [`selfcheck::check_rate`] refuses rates that the
//!    machine cannot reach.
//!
//! Nothing here reads the time except through a [`Clock`], and all randomness comes from a seed: the
//! same clock readings give the same race, intervals and verdicts.
#![forbid(unsafe_code)]

pub mod clock;
pub mod sampler;
pub mod selfcheck;
pub mod stats;
pub mod verdict;
pub mod warning;

pub use clock::{Clock, ClockFacts, ScriptedClock, TscClock};
#[cfg(unix)]
pub use clock::{ProcessCpuClock, ThreadCpuClock};
pub use sampler::{AWAKE, Contender, Ending, Entry, Race, Sampler, Stop};
pub use stats::{RatioInterval, Summary, ratio_interval};
pub use verdict::{Comparison, Indifference, Verdict};
pub use warning::Warning;
