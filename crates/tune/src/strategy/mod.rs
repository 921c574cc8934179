//! Recommendations: which device and which parameters, without measuring, and better with every call that was.
//!
//! 1. A device family says what it knows unmeasured: its choices and what each should cost ([`Priced`]; [`CpuCost`] for
//!    the processor).
//! 2. A [`Strategy`] ranks them in the [`Situation`] of the machine, keeps the caller's [`Constraints`] or refuses by name, and corrects
//!    prices by what [`Feedback`] says: of this choice exactly, of its neighbours in part.
//! 3. An [`Adaptive`] tries others now and then, where calls come often enough to pay for it.
//! 4. A [`Coordinator`] asks several strategies and counts the way to each device.
//!
//! ```
//! use std::sync::Arc;
//! use kernelwise_backend::Host;
//! use kernelwise_probe::{StateReader, Tree, machine};
//! use kernelwise_tune::strategy::{Constraints, Coordinator, CpuCost, Feedback, Link, Strategy};
//! use kernelwise_types::{Workload, units::Nanos};
//!
//! let cost = CpuCost::new(Host::new(machine(), [])?);
//! let mut devices = Coordinator::new(1000);
//! devices.add(Arc::new(Strategy::new(cost)), Link::Here)?;
//!
//! let state = StateReader::new(Tree::system()).look(0);
//! let on: Workload = "matmul f32 64x64x64".parse()?;
//! let placement = devices.recommend(&on, &state, &Constraints::default())?;
//! let chosen = &placement.recommendation;
//! assert_eq!(chosen.best.choice.to_string(), "cpu-matmul-f32-reference");
//! assert!(chosen.reasoning[0].contains("nominal roofline and hint, not calibrated"));
//!
//! devices.feedback(&Feedback::ran(chosen, &on, Nanos::new(1.5e6)?))?;
//! let placement = devices.recommend(&on, &state, &Constraints::default())?;
//! assert!(placement.recommendation.reasoning[0].ends_with("by measured 1"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here reads a clock or a sensor: the state comes from the caller, times come back as feedback.

mod adapt;
mod beliefs;
mod cache;
mod constraints;
mod coordinator;
mod cpu;
mod metrics;
mod priced;
mod recommendation;
mod situation;
mod tuned;

#[cfg(test)]
mod tests;

use kernelwise_types::{Backend, SystemState, Workload};

pub use adapt::{Adaptive, Turn};
pub use constraints::{ConstraintError, Constraints, RealTime};
pub use coordinator::{
    Coordinator, CoordinatorError, Link, PassedOver, Placement, Request, Statistics,
};
pub use cpu::CpuCost;
pub use metrics::{Event, Metrics};
pub use priced::{Bound, Choice, Infeasible, Limit, Origin, Price, Priced};
pub use recommendation::{
    Evidence, Feedback, Kept, Outcome, Prediction, Ranked, Recommendation, TuneError,
};
pub use situation::Situation;
pub use tuned::Strategy;

/// Recommends choices on one device and learns what they take. Shared by threads as it is.
///
/// Of the state an implementation looks at what is in the [`Situation`] only, and at the temperature only if there is a limit on it: answers are
/// kept by that.
pub trait TuningStrategy: Send + Sync {
    /// The family of the device.
    fn backend(&self) -> Backend;

    /// The device, as in records and reports.
    fn device(&self) -> &str;

    /// What to run for a workload as the machine is now, within these limits.
    fn tune_for_workload(
        &self,
        workload: &Workload,
        state: &SystemState,
        constraints: &Constraints,
    ) -> Result<Recommendation, TuneError>;

    /// Everything that may run within these limits, best first. Not counted as a recommendation.
    fn ranked(
        &self,
        workload: &Workload,
        state: &SystemState,
        constraints: &Constraints,
    ) -> Result<Vec<Ranked>, TuneError>;

    /// What is expected of a choice: what a recommendation of it says, bit for bit, as long as nothing was learned in between.
    fn predict(&self, workload: &Workload, choice: &Choice) -> Result<Prediction, TuneError>;

    /// What became of a call.
    fn feedback(&self, feedback: &Feedback) -> Result<(), TuneError>;

    /// Figures over the events that are kept; of a fresh strategy zeros and nothing.
    fn metrics(&self) -> Metrics;

    /// The events that the figures follow from, oldest first.
    fn events(&self) -> Vec<Event>;

    /// Counts up whenever something was learned: answers with the same revision are the same.
    fn revision(&self) -> u64;
}
