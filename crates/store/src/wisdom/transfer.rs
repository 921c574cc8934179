//! Between a store and wisdom.

use kernelwise_types::Fingerprint;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use serde::Serialize;

use super::Wisdom;
use crate::embedded::rows::{self, Which};
use crate::error::StoreError;
use crate::private::portable;
use crate::retention;
use crate::store::Store;

/// Rows that are taken in one transaction: others who write wait for a few milliseconds.
const BATCH: usize = 1000;

/// What is to leave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Export {
    /// Of one kind of machine only.
    pub only: Option<Fingerprint>,
}

/// What was new.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// Records that were taken.
    pub records: u64,
    /// Notes that were taken.
    pub notes: u64,
    /// Records and notes that were known already.
    pub known: u64,
}

impl Imported {
    pub(crate) fn count(&mut self, news: bool, note: bool) {
        match (news, note) {
            (true, false) => self.records += 1,
            (true, true) => self.notes += 1,
            (false, _) => self.known += 1,
        }
    }
}

/// Where what is taken comes from, which decides whether it is pushed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakenFrom {
    /// A file: a fleet may not know it.
    File,
    /// A fleet: it does.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code))]
    Fleet,
}

impl Store {
    /// All that is known, without what does not leave the machine: no host, no user, no path, no message.
    pub fn export(&self, what: &Export) -> Result<Wisdom, StoreError> {
        self.with(|conn| {
            let mut wisdom = Wisdom::default();
            let which = match &what.only {
                Some(fingerprint) => Which::Of(fingerprint.as_str()),
                None => Which::All,
            };
            for record in rows::select(conn, which)? {
                wisdom.add(record);
            }
            let wanted = |of: &Fingerprint| what.only.as_ref().is_none_or(|only| only == of);
            for note in rows::notes(conn, None)? {
                if wanted(&note.fingerprint) {
                    wisdom.add_note(portable(note));
                }
            }
            Ok(wisdom)
        })
    }

    /// Takes what is news. Doing it twice changes nothing, and neither does importing what was exported from here. Afterwards the
    /// file is brought within its bounds, so of more than [`Options::most_series`](crate::Options::most_series) the latest stay.
    pub fn import(&self, wisdom: &Wisdom) -> Result<Imported, StoreError> {
        self.take(wisdom, TakenFrom::File)
    }

    /// What importing would take, without taking it.
    pub fn preview(&self, wisdom: &Wisdom) -> Result<Imported, StoreError> {
        self.with(|conn| {
            let mut imported = Imported::default();
            for record in wisdom.records() {
                imported.count(rows::is_news(conn, record)?, false);
            }
            for note in wisdom.notes() {
                imported.count(rows::note_is_news(conn, note)?, true);
            }
            Ok(imported)
        })
    }

    pub(crate) fn take(&self, wisdom: &Wisdom, from: TakenFrom) -> Result<Imported, StoreError> {
        let most = self.options().most_series;
        self.in_session(|session| {
            session.same_format()?;
            let taken = take(&mut session.conn, wisdom, from).map_err(|e| session.error(e))?;
            let due = match from {
                TakenFrom::File => true,
                // It comes in many batches, and counting is a scan.
                TakenFrom::Fleet => self.took(taken.records + taken.notes) > (most / 16).max(64),
            };
            if due && taken.records + taken.notes > 0 {
                self.took_all();
                retention::bound(session, most, self.options().clock.now_s())?;
            }
            Ok(taken)
        })
    }
}

fn take(conn: &mut Connection, wisdom: &Wisdom, from: TakenFrom) -> rusqlite::Result<Imported> {
    let mut imported = Imported::default();
    let records: Vec<_> = wisdom.records().collect();
    for batch in records.chunks(BATCH) {
        let transaction = Transaction::new(conn, TransactionBehavior::Immediate)?;
        let (origin, revision) = rows::next_revision(&transaction)?;
        let changed = if from == TakenFrom::File { revision } else { 0 };
        let mut ahead = false;
        for record in batch {
            let news = rows::take(&transaction, record, changed)?;
            imported.count(news, false);
            let own = *record.origin == *origin;
            ahead |= news && own && record.revision >= revision.unsigned_abs();
        }
        if ahead {
            // Somebody knows of a later state of this store than it does itself: it was restored from a copy. What it
            // learns from now on is another origin's, or it would pass for old.
            rows::renew_origin(&transaction)?;
        }
        transaction.commit()?;
    }
    let notes: Vec<_> = wisdom.notes().collect();
    for batch in notes.chunks(BATCH) {
        let transaction = Transaction::new(conn, TransactionBehavior::Immediate)?;
        let (_, revision) = rows::next_revision(&transaction)?;
        let changed = if from == TakenFrom::File { revision } else { 0 };
        for note in batch {
            imported.count(rows::take_note(&transaction, note, changed)?, true);
        }
        transaction.commit()?;
    }
    Ok(imported)
}
