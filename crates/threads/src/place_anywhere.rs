//! Systems that are not told where threads run, with the face of `place.rs`.

use std::thread::JoinHandle;

/// Nobody is told where to run.
pub(crate) const MOST: usize = 0;

#[derive(Debug)]
pub(crate) struct Place;

impl Place {
    pub(crate) fn of(_: usize) -> Self {
        Self
    }

    pub(crate) fn chooses(&self) -> bool {
        false
    }

    pub(crate) fn keep_off_caller(&self, _: &[JoinHandle<()>]) {}

    pub(crate) fn bring_here(&self, _: &JoinHandle<()>) {}

    pub(crate) fn has_run_ns(&self, _: &JoinHandle<()>) -> Option<i64> {
        None
    }
}
