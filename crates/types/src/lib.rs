//! The nouns of Kernelwise.
#![deny(unsafe_code)]

pub mod calibration;
mod cost;
mod dtype;
mod layout;
pub mod machine;
pub mod op;
mod reading;
mod shape;
pub mod state;
mod text;
pub mod units;
mod workload;

pub use calibration::{Calibration, Measured};
pub use cost::Cost;
pub use dtype::{DType, DTypeClass, Element, UnknownDType};
pub use layout::{Layout, LayoutError, LayoutKind};
pub use machine::Machine;
pub use reading::Reading;
pub use shape::{MAX_RANK, Shape, ShapeError};
pub use state::SystemState;
pub use workload::Workload;
