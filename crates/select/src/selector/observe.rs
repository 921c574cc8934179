//! Telling others of what is learned from, as it is learned: who remembers, who collects.

use std::sync::Arc;

use kernelwise_types::{Candidate, Workload};

use super::{Entry, Quarantine};
use crate::engine::Listener;

/// Hears of every time that is learned from, of kernels of the processor and while nobody else keeps it busy: on the thread that learns, with nothing locked.
/// Whoever takes long makes learning slow, not calls.
pub trait Observer: Send + Sync {
    /// A call was timed.
    fn observed(&self, observed: &Observed<'_>);

    /// A run of a candidate failed: it returned an error, panicked, or its result was wrong. Told on the thread whose call that was,
    /// for every such run; the first one of a kernel is followed by [`quarantined`](Self::quarantined).
    fn failed(&self, workload: &str, candidate: &Candidate, version: u32) {
        let _ = (workload, candidate, version);
    }

    /// A kernel failed, and does not run any more. Told on the thread whose call that was.
    fn quarantined(&self, quarantine: &Quarantine);
}

/// A call that was timed.
#[derive(Clone, Copy)]
pub struct Observed<'a> {
    case: u64,
    number: usize,
    entry: &'a Entry,
    workload: &'a Workload,
    time_ns: f64,
}

impl Observed<'_> {
    /// The same for all times of one candidate on one workload, and of no other in this process: a name that costs nothing.
    pub fn place(&self) -> (u64, usize) {
        (self.case, self.number)
    }

    /// What was computed.
    pub fn workload(&self) -> &Workload {
        self.workload
    }

    /// By which kernel, with which parameters.
    pub fn candidate(&self) -> Candidate {
        self.entry.candidate()
    }

    /// In which version of the kernel.
    pub fn version(&self) -> u32 {
        self.entry.kernel.spec().version
    }

    /// How long it was predicted to take before it ran on this workload, by models or by the roofline, in nanoseconds; `None` where
    /// nothing was.
    pub fn predicted_ns(&self) -> Option<f64> {
        let foretold = self.entry.foretold.load();
        let foretold = foretold.as_ref().map(|foretold| foretold.mean.exp());
        foretold.or(self.entry.expected.time().map(|time| time.get()))
    }

    /// How long it took, in nanoseconds.
    pub fn time_ns(&self) -> f64 {
        self.time_ns
    }
}

impl std::fmt::Debug for Observed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observed")
            .field("workload", &self.workload)
            .field("candidate", &self.candidate())
            .field("time_ns", &self.time_ns)
            .finish()
    }
}

/// What the engine tells, in the words of a selector.
pub(super) fn listener(observer: Arc<dyn Observer>) -> Listener {
    Box::new(move |case, sample| {
        let Some(host) = case.host().filter(|host| host.load == 0) else {
            return;
        };
        let Some(entry) = host.entries.get(sample.candidate) else {
            return;
        };
        observer.observed(&Observed {
            case: case.serial(),
            number: sample.candidate,
            entry,
            workload: &host.workload,
            time_ns: sample.time_ns,
        });
    })
}
