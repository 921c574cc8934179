//! How fast this machine can be, measured while somebody waits.

use std::time::Duration;

use kernelwise_measure::TscClock;
use kernelwise_probe::calibrate::{CalibrateError, CalibrateOptions, Progress, calibrate};
use kernelwise_types::{Calibration, Machine};

use crate::exit::Failure;
use crate::{interrupt, progress};

/// Calibrates the machine; Ctrl-C ends it with nothing.
pub(crate) fn measured(machine: &Machine, budget: Duration) -> Result<Calibration, Failure> {
    let cancel = interrupt::flag()?;
    let bar = progress::counted();
    let mut tell = |at: Progress<'_>| {
        bar.set_length(u64::from(at.total));
        bar.set_position(u64::from(at.done));
        bar.set_message(format!("calibrating: {}", at.step));
    };
    let options = CalibrateOptions {
        budget,
        ..CalibrateOptions::default()
    };
    let made = calibrate(machine, &TscClock::new(), &options, &mut tell, cancel);
    bar.finish_and_clear();
    made.map_err(|error| match error {
        CalibrateError::Cancelled => Failure::Interrupted,
        other => other.into(),
    })
}
