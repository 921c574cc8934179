//! What a selector knows, for others to keep, and what others kept, for a selector to know.
//!
//! What is [`Remembered`] of one candidate on one workload says which kernel in which version with which
//! parameters that was, so it can be told later whether it still is the same. Where nothing was measured there is
//! nothing to keep: expectations are made anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use kernelwise_types::{Candidate, KernelId, Workload};

use super::{Entry, Selector, Shared};
use crate::belief::Tally;
use crate::engine::{Case, lock};

/// Settings of a kernel that take part because they were tuned: a search may have left hundreds on record.
const MOST_FURTHER: usize = 4;

/// What is kept of one candidate on one workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Remembered {
    /// The workload.
    pub workload: Workload,
    /// The kernel with its parameters.
    pub candidate: Candidate,
    /// In this version.
    pub version: u32,
    /// Its times.
    pub tally: Tally,
}

/// The same beside what was expected of it here: what models are fitted to.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// What was measured.
    pub of: Remembered,
    /// Threads it runs on.
    pub threads: u32,
    /// What was expected before it ran, in nanoseconds, on the machine it ran on; `None` where that was not calibrated.
    pub expected_ns: Option<f64>,
    /// How unlike this machine the one is that it was measured on; `None` for this one.
    pub away: Option<f64>,
    /// By how much the machine was slower than usual meanwhile, in ln t; `None` where nobody [looked](crate::pace).
    pub slower: Option<f64>,
}

/// What became of what was given to a selector.
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
        self.shared.evidence()
    }

    /// Takes over what was measured before, as if it had been measured by this selector. What is known already stays as it
    /// is: nothing counts twice. Times count from now on: where they are old, their [`Tally`] should weigh less. Parameters that a kernel
    /// would not choose itself, but may have, are candidates from then on: so what was tuned is used.
    pub fn recall(&self, remembered: &[Remembered]) -> Taken {
        let mut by_workload: BTreeMap<String, Vec<&Remembered>> = BTreeMap::new();
        for one in remembered {
            let name = one.workload.to_string();
            by_workload.entry(name).or_default().push(one);
        }
        let mut taken = Taken::default();
        for pieces in by_workload.into_values() {
            self.shared.add_settings(&pieces);
            let case = self.shared.known(&pieces[0].workload, 0);
            let known = case.map_or(0, |case| self.recall_case(&case, &pieces));
            taken.known += known;
            taken.foreign += pieces.len() - known;
        }
        self.shared.trained_so_far();
        // Where a thread of its own learns, nobody has to wait for it.
        if !self.shared.background {
            self.shared.engine.study_all();
        }
        taken
    }

    fn recall_case(&self, case: &Arc<Case>, pieces: &[&Remembered]) -> usize {
        let Some(host) = case.host() else { return 0 };
        // What another version took is a guess at what this one takes, and no more.
        let is = |entry: &Entry, piece: &Remembered| {
            let same_version = entry.kernel.spec().version == piece.version;
            entry.candidate() == piece.candidate && (same_version || piece.tally.is_stale())
        };
        let place = |piece: &Remembered| host.entries.iter().position(|entry| is(entry, piece));
        let found: Vec<(usize, Tally)> = pieces
            .iter()
            .filter_map(|piece| Some((place(piece)?, piece.tally)))
            .collect();
        self.shared.engine.recall(case, &found);
        found.len()
    }
}

impl Shared {
    /// Lets further settings take part in workloads that were not met yet: of each kernel the fastest few.
    fn add_settings(&self, pieces: &[&Remembered]) {
        let mut fastest: Vec<&Remembered> = pieces.to_vec();
        let mean = |piece: &Remembered| piece.tally.mean().unwrap_or(f64::INFINITY);
        fastest.sort_by(|a, b| mean(a).total_cmp(&mean(b)));
        let mut counts: BTreeMap<&KernelId, usize> = BTreeMap::new();
        let mut further = lock(&self.further);
        for piece in fastest {
            let Candidate { kernel, params } = &piece.candidate;
            let count = counts.entry(kernel).or_default();
            if *count < MOST_FURTHER {
                *count += 1;
                let settings = further.entry(piece.workload.to_string()).or_default();
                settings.insert((kernel.clone(), params.clone()));
            }
        }
    }

    /// What was learned so far, by workload and candidate.
    pub(super) fn evidence(&self) -> Vec<Evidence> {
        let mut all = Vec::new();
        for case in self.engine.cases() {
            let Some(host) = case.host().filter(|host| host.load == 0) else {
                continue;
            };
            let learned = self.engine.learned(&case);
            for (i, entry) in host.entries.iter().enumerate() {
                let tally = learned.tally(i);
                let tally = tally.filter(|tally| tally.samples() > 0 && !tally.is_stale());
                if let Some(tally) = tally {
                    all.push(Evidence {
                        of: Remembered {
                            workload: host.workload.clone(),
                            candidate: entry.candidate(),
                            version: entry.kernel.spec().version,
                            tally: *tally,
                        },
                        threads: self.threads(entry, &host.workload),
                        expected_ns: entry.expected.time().map(|time| time.get()),
                        away: None,
                        slower: None,
                    });
                }
            }
        }
        all
    }
}
