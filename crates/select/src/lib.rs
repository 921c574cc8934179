//! Chooses among kernels, learns from the calls that really happen, and keeps what fails away.
#![forbid(unsafe_code)]

pub mod belief;
pub mod budget;
mod engine;
pub mod key;
pub mod learn;
pub mod policy;
mod selector;
mod statistics;

pub use budget::Budget;
pub use policy::{Policy, Weights};
pub use selector::{
    BuildError, Builder, Mode, Plan, Quarantine, ReportError, RunError, SelectError, Selector,
    Ticket, UnknownMode, Went,
};
pub use statistics::{Quality, Statistics};
