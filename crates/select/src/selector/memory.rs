//! What a selector knows, for others to keep, and what others kept, for a selector to know.
//!
//! A piece of [`Evidence`] is what was measured of one candidate on one workload. It says which kernel in which version with which
//! parameters that was, so it can be told later whether it still is the same. Where nothing was measured there is
//! nothing to keep: expectations are made anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use kernelwise_types::{Candidate, Workload};

use super::{Entry, Selector};
use crate::belief::Tally;
use crate::engine::Case;

/// What was measured of one candidate on one workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// The workload.
    pub workload: Workload,
    /// The kernel with its parameters.
    pub candidate: Candidate,
    /// In this version.
    pub version: u32,
    /// Threads it runs on.
    pub threads: u32,
    /// What was expected before it ran, in nanoseconds; `None` where the machine was not calibrated.
    pub expected_ns: Option<f64>,
    /// Its times.
    pub tally: Tally,
}

/// What became of evidence that was given to a selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taken {
    /// Pieces that are known now.
    pub known: usize,
    /// Pieces of kernels, versions or parameters that are not here, or of workloads that nobody computes here.
    pub foreign: usize,
}

impl Selector {
    /// Everything measured so far, by workload and candidate.
    pub fn evidence(&self) -> Vec<Evidence> {
        self.shared.take_in_all();
        let mut all = Vec::new();
        for case in self.shared.engine.cases() {
            let Some(host) = case.host() else { continue };
            let learned = self.shared.engine.learned(&case);
            for (i, entry) in host.entries.iter().enumerate() {
                let tally = learned.tally(i).filter(|tally| tally.samples() > 0);
                if let Some(tally) = tally {
                    all.push(Evidence {
                        workload: host.workload.clone(),
                        candidate: entry.candidate(),
                        version: entry.kernel.spec().version,
                        threads: self.shared.threads(entry, &host.workload),
                        expected_ns: entry.expected.time().map(|time| time.get()),
                        tally: *tally,
                    });
                }
            }
        }
        all
    }

    /// Takes over what was measured before, as if it had been measured by this selector. What is known already stays as it
    /// is: nothing counts twice. Times of evidence count from now on: where it is old, its [`Tally`] should say so.
    pub fn recall(&self, evidence: &[Evidence]) -> Taken {
        let mut by_workload: BTreeMap<String, Vec<&Evidence>> = BTreeMap::new();
        for one in evidence {
            let name = one.workload.to_string();
            by_workload.entry(name).or_default().push(one);
        }
        let mut taken = Taken::default();
        for pieces in by_workload.into_values() {
            let case = self.shared.known(&pieces[0].workload);
            let known = case.map_or(0, |case| self.recall_case(&case, &pieces));
            taken.known += known;
            taken.foreign += pieces.len() - known;
        }
        self.shared.engine.study_all();
        taken
    }

    fn recall_case(&self, case: &Arc<Case>, pieces: &[&Evidence]) -> usize {
        let Some(host) = case.host() else { return 0 };
        let is = |entry: &Entry, piece: &Evidence| {
            entry.candidate() == piece.candidate && entry.kernel.spec().version == piece.version
        };
        let place = |piece: &Evidence| host.entries.iter().position(|entry| is(entry, piece));
        let found: Vec<(usize, Tally)> = pieces
            .iter()
            .filter_map(|piece| Some((place(piece)?, piece.tally)))
            .collect();
        self.shared.engine.recall(case, &found);
        found.len()
    }
}
