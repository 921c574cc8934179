//! Ctrl-C: the first asks the running command to stop, the second ends the program at once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::exit::Failure;

static ASKED_TO_STOP: AtomicBool = AtomicBool::new(false);
static LISTENING: OnceLock<()> = OnceLock::new();

/// The flag that Ctrl-C sets; the first call starts listening.
pub(crate) fn flag() -> Result<&'static AtomicBool, Failure> {
    if LISTENING.set(()).is_ok() {
        ctrlc::set_handler(|| {
            if ASKED_TO_STOP.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        })?;
    }
    Ok(&ASKED_TO_STOP)
}
