//! Tuning: the best parameters of a kernel, found by measuring as little as possible.
//!
//! A kernel has parameters (block sizes, tiles, switches), some combinations are forbidden, some fail, and each evaluation costs a
//! compilation and some runs. This crate decides what to evaluate next.
//!
//! 1. **[`space`]** says what there is: typed parameters, restrictions in a small language that also reads
//!    Kernel Tuner's, walking and sampling without ever making a list of 10¹² points.
//! 2. **[`search`]** asks for configurations and is told what came of them. Nine strategies; the default has models of time and
//!    of validity, and learns from records of other devices.
//! 3. **[`recorded`]** reads and writes what was measured: cache files of Kernel Tuner, T4 results; and reads T1
//!    descriptions.
//! 4. **[`replay`]** plays a search on a recorded space and tells how near to the optimum it came after how many
//!    evaluations.
//! 5. **[`host`]** tunes the settings of a kernel of the processor, on operands it draws; **`external`** (on Unix) any program that can be
//!    built and run by commands.
//! 6. **[`strategy`]** recommends without measuring: kernel and parameters for the processor or another device, within limits, and
//!    better with every time it is told. **[`gpu`]** is what it knows of GPUs: their limits, how full a launch makes them, how long
//!    it should take.
//!
//! ```
//! use std::sync::Arc;
//! use kernelwise_measure::TscClock;
//! use kernelwise_tune::replay::{Recorded, Settings, replay};
//! use kernelwise_tune::recorded::Record;
//!
//! // A space of 40 configurations, best for x = 8 and y = 3.
//! let mut rows = Vec::new();
//! for x in [1, 2, 4, 8, 16] {
//!     for y in 1..=8_i32 {
//!         let time = (f64::from(x).log2() - 3.0).abs() + 0.2 * f64::from((y - 3).abs()) + 1.0;
//!         rows.push(format!("\"{x},{y}\": {{\"time\": {time}}}"));
//!     }
//! }
//! let file = format!(
//!     "{{\"tune_params_keys\": [\"x\", \"y\"], \"tune_params\": {{\"x\": [1, 2, 4, 8, 16], \
//!      \"y\": [1, 2, 3, 4, 5, 6, 7, 8]}}, \"cache\": {{{}}}}}",
//!     rows.join(",")
//! );
//! let record = Arc::new(Record::read(file.as_bytes())?);
//! let spaces = [Recorded { name: "example".into(), record }];
//! let settings = Settings { budgets: vec![15], ..Settings::default() };
//! let figures = replay(&spaces, &settings, &TscClock::new())?;
//! let at = figures.mean[&15];
//! assert!(at.fraction_of_optimum > at.random_exact);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here reads a clock that it was not given, or draws a number that does not come from a seed.
#![forbid(unsafe_code)]

#[cfg(unix)]
pub mod external;
pub mod gpu;
pub mod host;
mod nearest;
pub mod recorded;
pub mod replay;
pub mod search;
pub mod space;
pub mod strategy;
mod surrogate;
