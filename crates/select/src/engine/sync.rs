//! What threads share is made of these types: those of the standard library.
//!
//! The tests that try interleavings compile the engine a second time, with a scheduler's types in their place (see
//! `explored.rs`). That is why its files take them from here.

pub(super) use std::sync::Mutex;
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64};
pub(super) use std::thread_local;

use std::sync::{MutexGuard, PoisonError};

use super::word::Stamps;

/// Samples that wait for the learner at most.
pub(super) const QUEUE: usize = 4096;

/// Lines of stamps: the first 256 cases have a line each, so that threads at different cases do not disturb each other.
pub(super) const LINES: usize = 256;

/// Those of all cases of the process: at an address that is known, so that a seat need not keep it.
pub(super) static STAMPS: Stamps = Stamps::new();

/// What was locked by a thread that panicked is as good as before: every change is made in one step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
