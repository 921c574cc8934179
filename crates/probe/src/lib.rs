//! What the machine is, how busy it is now, and how fast it can possibly be.
//!
//! A choice between kernels depends on the machine: how many processors this process may really use,
//! which instructions they execute, what fits in which cache, and who else is running. This crate
//! asks, and every answer is a [`Reading`](kernelwise_types::Reading): the value, or the reason why
//! there is none. It never guesses; a virtual machine without a thermal sensor has no temperature.
//!
//! Three questions, by how long an answer lasts:
//!
//! - **What is it?** [`machine`] describes processor, caches, memory nodes, limits of the container
//!   and hypervisor. Once per process; about a millisecond on a small machine.
//! - **How is it now?** A [`StateReader`] looks at load, pressure, steal, memory, temperature,
//!   power and clock, and compares counters with the look before. A [`Sampler`] does so in the background
//!   and publishes the load in one atomic word, [`LoadNow`], because a decision takes
//!   nanoseconds and a look tens of microseconds.
//! - **How fast can it be?** Calibration measures the ceilings, with threads held in place by
//!   [`pin`].
//!
//! ```
//! use std::time::Duration;
//! use kernelwise_probe::{Sampler, SamplerOptions};
//!
//! let machine = kernelwise_probe::machine();
//! let sampler = Sampler::start(SamplerOptions::default())?;
//! // Shares cover the time between two looks.
//! sampler.wait_for_looks(2, Duration::from_secs(60));
//!
//! // Leave the processors alone that others are using.
//! let wanted = machine.usable_threads();
//! let busy = sampler.load().utilisation().map_or(0.0, |share| share.get());
//! let threads = ((1.0 - busy) * f64::from(wanted)).ceil().clamp(1.0, f64::from(wanted)) as u32;
//! println!("{threads} of {wanted} threads");
//! # Ok::<(), kernelwise_probe::SamplerError>(())
//! ```
//!
//! # Where answers come from
//!
//! The processor itself where programs can ask it (CPUID, and the standard library's detection of
//! instruction sets, which also makes sure the operating system saves the registers); `/proc` and `/sys`
//! for the rest. All files are read through a [`Tree`], whose root can be moved: tests describe
//! machines they do not run on. Missing, unreadable, oversized and nonsensical files become reasons that
//! name the file.
//!
//! # Limits
//!
//! - Off Linux only the processor is asked; everything that lives in files is unknown and says so.
//! - Load is that of the whole machine, also inside a container, whose quota is in
//!   [`Limits`](kernelwise_types::machine::Limits). Limits set above the part of the
//!   control-group tree that a container can see are invisible to it.
//! - `/proc/stat` counts in 10 ms: at the default period of 250 ms utilisation moves in steps of 4 % per
//!   processor.
//! - RAPL energy is readable by root only on most systems, and virtual machines rarely show sensors,
//!   clocks or governors.
//! - Sensors and batteries plugged in after a reader was made are not noticed.
#![deny(unsafe_code)]

mod caches;
pub mod calibrate;
mod cgroup;
mod cpu;
#[cfg(test)]
mod fake;
mod hypervisor;
mod load;
mod machine;
mod numa;
mod others;
pub mod pin;
mod sampler;
mod state;
#[cfg(test)]
mod tests;
mod tree;

pub use load::LoadNow;
pub use machine::machine;
pub use others::Others;
pub use sampler::{Look, MIN_PERIOD, Sampler, SamplerError, SamplerOptions};
pub use state::StateReader;
pub use tree::Tree;
