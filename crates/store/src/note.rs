//! What is kept besides times: machines, calibrations, decisions, quarantines and models.
//!
//! All of them are notes: a kind, a fingerprint, a name, and a JSON text that this crate does not interpret beyond what
//! its typed methods need. The later note on the same thing replaces the earlier; so notes merge in any order, and twice is
//! the same as once.

use kernelwise_types::Fingerprint;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::key::sound;
use crate::private::portable;

/// What a note is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NoteKind {
    /// A kind of machine: the body is its description.
    Machine,
    /// How fast a kind of machine can be: the body is a `Calibration`.
    Calibration,
    /// What was decided last: the name is the workload, the body a `Decision`.
    Decision,
    /// A kernel that failed: the body is a [`Quarantine`].
    Quarantine,
    /// A trained model: the name is its own, the body is its maker's.
    Model,
}

impl NoteKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::Machine,
        Self::Calibration,
        Self::Decision,
        Self::Quarantine,
        Self::Model,
    ];

    /// The word in files and databases.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Calibration => "calibration",
            Self::Decision => "decision",
            Self::Quarantine => "quarantine",
            Self::Model => "model",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// One note.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Note {
    /// What it is about.
    pub kind: NoteKind,
    /// The kind of machine it holds for.
    pub fingerprint: Fingerprint,
    /// What of it; empty where there is one of the kind per machine.
    pub name: String,
    /// When it was written, in seconds since 1970; later than the note it replaced, whatever the clock said.
    pub at_s: u64,
    /// What it says.
    pub body: Value,
}

impl Note {
    /// Whether this replaces the other: later does, and of two of one second the one whose text comes last, so that all
    /// stores agree. A note that comes back without what did not leave the machine is the same note.
    pub(crate) fn replaces(&self, other: &Self) -> bool {
        let text = |note: &Self| portable(note.clone()).body.to_string();
        self.at_s > other.at_s || (self.at_s == other.at_s && text(self) > text(other))
    }

    /// Whether this may have been written by this library.
    pub(crate) fn is_sound(&self) -> bool {
        sound(&self.name) && i64::try_from(self.at_s).is_ok()
    }

    /// What two notes share if one replaces the other.
    pub(crate) fn subject(&self) -> (NoteKind, Fingerprint, String) {
        (self.kind, self.fingerprint.clone(), self.name.clone())
    }
}

/// A kernel version that failed on a kind of machine, and is kept away there until somebody lifts it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    /// The kernel.
    pub kernel: String,
    /// Its version; another one is not concerned.
    pub version: u32,
    /// The workload or case it happened on.
    pub case: String,
    /// What happened. Stays on the machine: messages may name files and users.
    #[serde(default)]
    pub evidence: String,
    /// Whether somebody let it back in.
    pub lifted: bool,
}

impl Quarantine {
    /// The name of its note.
    pub(crate) fn name(&self) -> String {
        format!("{}@{}", self.kernel, self.version)
    }
}
