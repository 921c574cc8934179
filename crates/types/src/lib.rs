//! The nouns of Kernelwise: plain data with no clock, no input or output and no device.
//!
//! Kernelwise asks which of several implementations of an operation is fastest for an input, on a
//! machine, right now. This crate holds the words for that question and its answer:
//!
//! | question | words |
//! |---|---|
//! | What is to be computed? | [`Workload`]: an [operation](op) on a [`DType`], with its [`Cost`] derived from the shapes |
//! | On which memory? | [`TensorView`], [`TensorViewMut`] over a [`Layout`] of a [`Shape`] |
//! | Where? | [`Machine`], [`Device`], their [`Fingerprint`], how fast they can be ([`Calibration`]) and how busy they are ([`SystemState`]) |
//! | By what? | [`KernelSpec`] under its stable [`KernelId`], with [`Params`]; [`Refusal`] when it may not |
//! | How long will it take? | [`Estimate`]: measured, modelled, prior or unknown |
//! | What was chosen, and why? | [`Decision`] |
//! | What happened? | [`Observation`] with its [`TimeStats`], kept as a [`Record`] |
//!
//! Three habits run through all of it. A quantity has its unit in its type ([`units`]) and is finite.
//! What the machine does not tell is a [`Reading`] with the reason, not a zero. And what can be derived is
//! derived: sizes, bytes and arithmetic follow from shapes, so they cannot contradict them.
//!
//! ```
//! use kernelwise_types::Workload;
//!
//! let layer: Workload = "conv2d f32 n32 c64 h56 w56 k64 r3 s3 stride1 pad1".parse()?;
//! let cost = layer.cost().expect("built-in operations know their cost");
//! assert_eq!(cost.flops.to_string(), "7.40 GFLOP");
//! assert_eq!(layer.outputs()[0].shape.to_string(), "32x64x56x56");
//! # Ok::<(), kernelwise_types::op::WorkloadError>(())
//! ```
//!
//! Limits: shapes have at most [`MAX_RANK`] dimensions; tensors are dense; one element type per operation
//! besides indices and accumulators.
#![deny(unsafe_code)]

pub mod calibration;
mod cost;
mod decision;
mod device;
mod dtype;
mod estimate;
mod fingerprint;
mod kernel;
mod layout;
pub mod machine;
mod observation;
pub mod op;
mod params;
mod reading;
mod record;
mod shape;
pub mod state;
mod tensor;
mod text;
pub mod units;
mod workload;

pub use calibration::{Calibration, Measured};
pub use cost::Cost;
pub use decision::{Candidate, Decision, Ranked, Reason};
pub use device::{Backend, Device, UnknownBackend};
pub use dtype::{DType, DTypeClass, Element, UnknownDType};
pub use estimate::{Estimate, Interval, InvalidInterval};
pub use fingerprint::{Fingerprint, InvalidFingerprint};
pub use kernel::{
    InvalidKernelId, KernelId, KernelSpec, Needs, Numerics, Offer, Refusal, Technique,
};
pub use layout::{Layout, LayoutError, LayoutKind};
pub use machine::Machine;
pub use observation::{Conditions, InvalidStats, Observation, Outcome, TimeStats};
pub use params::{InvalidParams, Params};
pub use reading::Reading;
pub use record::Record;
pub use shape::{MAX_RANK, Shape, ShapeError};
pub use state::SystemState;
pub use tensor::{TensorView, TensorViewMut, ViewError};
pub use workload::Workload;
