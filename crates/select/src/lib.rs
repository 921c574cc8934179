//! Chooses among kernels, learns from the calls that really happen, and keeps what fails away.
//!
//! A [`Selector`] has kernels and computes calls with them. The first call of a workload is served at once, by what the
//! machine's ceilings and the kernels' own hints lead to expect; a few calls then go to others, as many as the [`Budget`]
//! allows, and the fastest serves. Choosing takes nanoseconds: what is learned is learned beside the calls, not in them.
//!
//! ```
//! use std::sync::Arc;
//! use kernelwise_backend::{Call, OwnKernel};
//! use kernelwise_select::Selector;
//! use kernelwise_types::{KernelSpec, Needs, Numerics, Technique, TensorView, TensorViewMut, Workload};
//!
//! let spec = |id: &str| -> Result<_, Box<dyn std::error::Error>> {
//!     Ok(KernelSpec {
//!         id: id.parse()?,
//!         version: 1,
//!         technique: Technique::Custom,
//!         numerics: Numerics::BitIdentical,
//!         needs: Needs::default(),
//!     })
//! };
//! let right = OwnKernel::new(spec("cpu-copy-f32-mine")?, |call, _, _| {
//!     let (_, inputs, outputs) = call.parts();
//!     outputs[0].as_mut_slice::<f32>()?.copy_from_slice(inputs[0].as_slice()?);
//!     Ok(())
//! });
//! let wrong = OwnKernel::new(spec("cpu-copy-f32-hasty")?, |_, _, _| Ok(()));
//! let machine = kernelwise_probe::machine();
//! let selector = Selector::builder(machine, vec![Arc::new(wrong), Arc::new(right)]).build()?;
//!
//! let copy: Workload = "copy f32 3".parse()?;
//! for _ in 0..100 {
//!     let (from, mut to) = ([1f32, 2.0, 3.0], [0f32; 3]);
//!     let inputs = [TensorView::contiguous(&from, "3".parse()?)?];
//!     let mut outputs = [TensorViewMut::contiguous(&mut to, "3".parse()?)?];
//!     selector.run(&mut Call::new(&copy, &inputs, &mut outputs)?)?;
//!     // Whoever computed it, it is right.
//!     assert_eq!(to, from);
//! }
//! let decision = selector.explain(&copy)?;
//! assert_eq!(decision.chosen.candidate.kernel.as_str(), "cpu-copy-f32-mine");
//! assert_eq!(selector.quarantined()[0].kernel.as_str(), "cpu-copy-f32-hasty");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits
//!
//! - Only kernels of the processor. What is learned ends with the selector unless somebody keeps its [`Evidence`].
//! - A kernel cannot be stopped once it runs: a trial that turns out slower than expected is charged in full, and no other is
//!   begun until that is earned back.
//! - Results of more than some million steps are not held against the reference, which would take too long.
#![forbid(unsafe_code)]

pub mod belief;
pub mod bound;
pub mod budget;
mod engine;
pub mod experience;
mod explore;
pub mod forecast;
pub mod key;
mod kinds;
pub mod learn;
pub mod own;
pub mod pace;
pub mod policy;
pub mod problem;
mod selector;
mod statistics;
pub mod stream;

pub use budget::Budget;
pub use policy::{Policy, Weights};
pub use selector::{
    Because, BuildError, Builder, CalibrateError, Ended, Evidence, Measured, Mode, Noticed,
    Observed, Observer, Plan, Progress, Quarantine, RaceOptions, Remembered, ReportError, RunError,
    SelectError, Selector, Taken, Ticket, Training, UnknownMode, Went,
};
pub use statistics::{Quality, Statistics};
