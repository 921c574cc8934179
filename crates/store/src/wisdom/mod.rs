//! Wisdom: what was learned, as a value that travels.
//!
//! A [`Wisdom`] is what a store exports and imports, what a [file](self::format) holds, and what a fleet exchanges. It merges: of
//! records of one series and origin the one of the higher revision holds, those of different origins add up, and of notes
//! the later holds. So the order of merging does not matter, and twice is the same as once.

mod file;
mod format;
mod layers;
mod transfer;

use std::collections::BTreeMap;
use std::sync::Arc;

use kernelwise_types::{Calibration, Fingerprint, Machine};
use serde::de::DeserializeOwned;

pub use file::FileError;
pub use format::{Skipped, WisdomError};
pub use layers::{Layer, LayerFile, Layered, search_path};
#[cfg(feature = "postgres")]
pub(crate) use transfer::TakenFrom;
pub use transfer::{Export, Imported};

use crate::embedded::rows::SeriesRecord;
use crate::key::Digest;
use crate::note::{Note, NoteKind, Quarantine};
use crate::store::{Known, sum};
use crate::trust::{Here, Recalled};

/// What was learned, by any number of stores.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wisdom {
    series: BTreeMap<(Digest, Arc<str>), SeriesRecord>,
    notes: BTreeMap<(NoteKind, Fingerprint, String), Note>,
}

impl Wisdom {
    /// Adds what another knows.
    pub fn merge(&mut self, other: Self) {
        for record in other.series.into_values() {
            self.add(record);
        }
        for note in other.notes.into_values() {
            self.add_note(note);
        }
    }

    pub(crate) fn add(&mut self, record: SeriesRecord) {
        let key = (record.key.digest(), record.origin.clone());
        let there = self.series.get(&key);
        if there.is_none_or(|there| there.revision < record.revision) {
            self.series.insert(key, record);
        }
    }

    pub(crate) fn add_note(&mut self, note: Note) {
        let there = self.notes.get(&note.subject());
        if there.is_none_or(|there| note.replaces(there)) {
            self.notes.insert(note.subject(), note);
        }
    }

    /// The records, in order of key and origin.
    pub fn records(&self) -> impl Iterator<Item = &SeriesRecord> {
        self.series.values()
    }

    /// The notes, in order of kind, fingerprint and name.
    pub fn notes(&self) -> impl Iterator<Item = &Note> {
        self.notes.values()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty() && self.notes.is_empty()
    }

    /// The series, each summed over its origins. `now_s` is the time of day, in seconds since 1970: a record that claims to be
    /// more than a day later comes from a clock that is wrong, and counts as of then.
    pub fn known(&self, now_s: u64) -> Vec<Known> {
        sum(self.series.values().cloned(), now_s)
    }

    /// What a program uses of it on this machine: what [`Store::recall`](crate::Store::recall) would answer after importing
    /// it into an empty store at this time of day, bit for bit.
    pub fn recall(
        &self,
        here: &Here,
        now_s: u64,
        version_of: impl Fn(&str) -> Option<u32>,
    ) -> Recalled {
        let machines = self.machines().collect();
        let calibrations = self.calibrations().collect();
        Recalled::judge(
            self.known(now_s),
            here,
            &machines,
            &calibrations,
            version_of,
        )
    }

    /// The machines that records are known of.
    pub fn machines(&self) -> impl Iterator<Item = (Fingerprint, Machine)> {
        self.typed(NoteKind::Machine)
    }

    /// How fast each kind of machine can be, as far as known.
    pub fn calibrations(&self) -> impl Iterator<Item = (Fingerprint, Calibration)> {
        self.typed(NoteKind::Calibration)
    }

    /// What is quarantined on each kind of machine, or was.
    pub fn quarantines(&self) -> impl Iterator<Item = (Fingerprint, Quarantine)> {
        self.typed(NoteKind::Quarantine)
    }

    /// The model of this name; `None` if there is none.
    pub fn model(&self, fingerprint: &Fingerprint, name: &str) -> Option<&serde_json::Value> {
        let subject = (NoteKind::Model, fingerprint.clone(), name.to_owned());
        self.notes.get(&subject).map(|note| &note.body)
    }

    fn typed<T: DeserializeOwned>(&self, kind: NoteKind) -> impl Iterator<Item = (Fingerprint, T)> {
        let notes = self.notes.values().filter(move |note| note.kind == kind);
        notes.filter_map(|note| {
            let body = serde_json::from_value(note.body.clone()).ok()?;
            Some((note.fingerprint.clone(), body))
        })
    }
}
