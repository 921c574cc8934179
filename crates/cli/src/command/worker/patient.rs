//! A server that may go away and come back, as it does when it is restarted: whoever works for hours waits for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kernelwise_store::fleet::{Fleet, FleetError, FleetOptions};

use crate::command::fleet::server;
use crate::exit::Failure;
use crate::{interrupt, output};

/// Between two attempts to reach it: at first, and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(10)];
/// How often Ctrl-C is looked for meanwhile.
const LOOK: Duration = Duration::from_millis(50);

pub(super) struct Patient {
    options: FleetOptions,
    fleet: Option<Fleet>,
    cancel: &'static AtomicBool,
}

impl Patient {
    /// Connects. A server that is not there to begin with is an error: its address may be wrong.
    pub(super) fn connect() -> Result<Self, Failure> {
        let options = server()?;
        let fleet = Fleet::connect(&options)?;
        Ok(Self {
            options,
            fleet: Some(fleet),
            cancel: interrupt::flag()?,
        })
    }

    /// How it is reached, for whoever needs a connection of their own.
    pub(super) fn options(&self) -> &FleetOptions {
        &self.options
    }

    /// Asks until there is an answer, over new connections where one broke; `None` if Ctrl-C came first. What is asked must bear being
    /// asked again when nobody knows whether it was done.
    pub(super) fn ask<T>(
        &mut self,
        mut question: impl FnMut(&mut Fleet) -> Result<T, FleetError>,
    ) -> Result<Option<T>, Failure> {
        let [mut pause, longest] = PAUSES;
        let mut waited = false;
        loop {
            let answer = match &mut self.fleet {
                Some(fleet) => question(fleet),
                None => {
                    let fleet = Fleet::connect(&self.options);
                    fleet.and_then(|fleet| question(self.fleet.insert(fleet)))
                }
            };
            match answer {
                Ok(answer) => {
                    if waited {
                        output::note("the server is back");
                    }
                    return Ok(Some(answer));
                }
                Err(error) if error.is_temporary() => {
                    self.fleet = None;
                    if !waited {
                        output::note(&format!("{error}; waiting until it answers"));
                    }
                    waited = true;
                }
                Err(error) => return Err(error.into()),
            }
            if !self.sleep(pause) {
                return Ok(None);
            }
            pause = longest.min(2 * pause);
        }
    }

    /// `false` if Ctrl-C came.
    fn sleep(&self, pause: Duration) -> bool {
        let mut left = pause;
        while !self.cancel.load(Ordering::Relaxed) {
            if left.is_zero() {
                return true;
            }
            let step = left.min(LOOK);
            std::thread::sleep(step);
            left -= step;
        }
        false
    }
}
