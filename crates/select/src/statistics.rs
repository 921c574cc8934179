//! What a selector did, from what was measured; what was not is unknown.

use std::collections::BTreeMap;

use kernelwise_types::KernelId;
use serde::Serialize;

/// Counts and times since the selector was made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statistics {
    /// Workloads that are remembered now.
    pub workloads: usize,
    /// Calls of theirs. A thread adds its own every few hundred calls and when it ends.
    pub calls: u64,
    /// Calls that were trials.
    pub trials: u64,
    /// Time of all calls, those that were not timed taken as long as those that were.
    pub served_ns: f64,
    /// What trials took longer than the calls they replaced.
    pub trials_excess_ns: f64,
    /// Results that were held against the reference.
    pub verified: u64,
    /// How long that took. A kernel's very first run is in no figure: it loads and plans, and the next one is timed.
    pub verification_ns: u64,
    /// Kernels that do not run any more.
    pub quarantined: usize,
    /// Samples that found the learner too far behind.
    pub samples_dropped: u64,
    /// Workloads that made room for others.
    pub workloads_evicted: u64,
    /// How good the choices are, by operation; only of workloads whose choice has a measured alternative.
    pub quality: BTreeMap<String, Quality>,
    /// Calls of the workloads that each kernel serves now, most first, then by name.
    pub popular: Vec<(KernelId, u64)>,
}

/// How good choices are, of workloads with at least two measured candidates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quality {
    /// Such workloads.
    pub workloads: usize,
    /// Geometric mean of the time of who serves over that of the fastest measured.
    pub slowdown: f64,
    /// Share whose choice is at most 5 % slower than the fastest measured.
    pub share_within_5pct: f64,
}

/// Slowdowns of one operation, to be summed up.
#[derive(Debug, Default)]
pub(crate) struct Slowdowns {
    logarithms: Vec<f64>,
}

impl Slowdowns {
    /// One workload: ln of the slowdown against the fastest measured.
    pub(crate) fn push(&mut self, ln: f64) {
        self.logarithms.push(ln);
    }

    pub(crate) fn quality(&self) -> Option<Quality> {
        let count = self.logarithms.len();
        let mean = self.logarithms.iter().sum::<f64>() / count as f64;
        let within = self.logarithms.iter().filter(|ln| **ln <= 1.05f64.ln());
        (count > 0).then(|| Quality {
            workloads: count,
            slowdown: mean.exp(),
            share_within_5pct: within.count() as f64 / count as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdowns_are_summed_up_and_nothing_is_unknown() {
        assert_eq!(Slowdowns::default().quality(), None);
        let mut slowdowns = Slowdowns::default();
        for factor in [1.0f64, 1.04, 1.2, 1.0] {
            slowdowns.push(factor.ln());
        }
        let quality = slowdowns.quality().unwrap();
        assert_eq!((quality.workloads, quality.share_within_5pct), (4, 0.75));
        assert!((quality.slowdown - (1.04f64 * 1.2).powf(0.25)).abs() < 1e-12);
    }
}
