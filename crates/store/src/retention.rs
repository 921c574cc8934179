//! How long and how much: what keeps the file from growing, and what a person can do to it.
//!
//! By itself the store forgets by count: at most so many series, and of each at most [`RECENT`](crate::RECENT) samples as they
//! came, which go altogether once the series was not heard of for a week; their sums stay. It never forgets sums by age of its
//! own accord, because a clock that jumps would then cost everything; [`Store::prune`] does when asked. Notes of each kind are
//! bounded by number and by bytes, and models also by age: they can be fitted again.
//!
//! Whoever deletes a row of this store's own origin gives the store a new origin in the same transaction. A copy of the
//! deleted row may be in a backup or on a server. If the store went on under the old origin, its next, smaller row of the same
//! series would have the higher revision: it would overwrite that copy, and importing the backup would change nothing.

use kernelwise_types::Fingerprint;
use rusqlite::{Connection, ToSql, Transaction, TransactionBehavior, params};
use serde::Serialize;

use crate::embedded::rows;
use crate::embedded::session::Session;
use crate::error::StoreError;
use crate::note::NoteKind;
use crate::statistics::latest;
use crate::store::Store;

/// Samples as they came are kept for so long after the last of their series: a week.
const RAW_AGE_S: u64 = 7 * 86_400;
/// Pages that the writer gives back to the disk in one go, the rest later: 16 MB.
const SOME: &str = "PRAGMA incremental_vacuum(4096)";
/// All of them.
const ALL: &str = "PRAGMA incremental_vacuum";
/// Notes of one kind that are kept, at most; for decisions it is the number of series.
const MOST_NOTES: u64 = 10_000;
/// Bytes that the bodies of the notes of one kind may take together: 64 MiB.
const NOTE_BYTES: u64 = 64 << 20;
/// Models that nobody wrote for so long go: a year.
const MODEL_AGE_S: u64 = 365 * 86_400;

/// What is to go.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prune {
    /// Series and decisions that were not heard of for so many seconds.
    pub older_than_s: Option<u64>,
    /// All but so many series and decisions, those heard of last.
    pub most_series: Option<u64>,
    /// Everything of other kinds of machine than this.
    pub keep_only: Option<Fingerprint>,
}

/// What went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// Series.
    pub series: u64,
    /// Series whose samples went and whose sums stayed.
    pub compacted: u64,
    /// Notes.
    pub notes: u64,
}

/// How much is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Rows of statistics: one for each series and origin.
    pub series: u64,
    /// Stores they come from.
    pub origins: u64,
    /// Kinds of machine they were measured on.
    pub machines: u64,
    /// Runs they sum up.
    pub runs: u64,
    /// Samples kept as they came.
    pub samples: u64,
    /// Decisions.
    pub decisions: u64,
    /// Quarantines, lifted ones too.
    pub quarantines: u64,
    /// Models.
    pub models: u64,
    /// Size of the file and its log.
    pub bytes: u64,
    /// When the first run was, in seconds since 1970.
    pub first_s: Option<u64>,
    /// When the latest run was.
    pub last_s: Option<u64>,
}

impl Store {
    /// How much is kept.
    pub fn kept(&self) -> Result<Kept, StoreError> {
        let size = |path: &std::path::Path| std::fs::metadata(path).map_or(0, |file| file.len());
        let path = self.path();
        let mut log = path.clone().into_os_string();
        log.push("-wal");
        let bytes = size(&path) + size(log.as_ref());
        self.with(|conn| {
            let sql = "SELECT count(*), count(DISTINCT origin), count(DISTINCT fingerprint), \
                coalesce(sum(timed + failed + wrong + timed_out), 0), min(first_s), max(last_s) FROM series";
            let mut kept = conn.query_row(sql, [], |row| {
                Ok(Kept {
                    series: row.get(0)?,
                    origins: row.get(1)?,
                    machines: row.get(2)?,
                    runs: row.get(3)?,
                    first_s: row.get(4)?,
                    last_s: row.get(5)?,
                    bytes,
                    ..Kept::default()
                })
            })?;
            let sql = "SELECT coalesce(sum(length(samples) / 16), 0) FROM recent";
            kept.samples = conn.query_row(sql, [], |row| row.get(0))?;
            kept.decisions = count_notes(conn, NoteKind::Decision)?;
            kept.quarantines = count_notes(conn, NoteKind::Quarantine)?;
            kept.models = count_notes(conn, NoteKind::Model)?;
            Ok(kept)
        })
    }

    /// Checks the whole file, page by page. Lists what is wrong; empty if nothing is.
    pub fn verify(&self) -> Result<Vec<String>, StoreError> {
        self.with(|conn| {
            let mut statement = conn.prepare("PRAGMA integrity_check")?;
            let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
            let lines = lines.collect::<rusqlite::Result<Vec<_>>>()?;
            Ok(lines.into_iter().filter(|line| line != "ok").collect())
        })
    }

    /// Removes what is asked for, and samples of series that were not heard of for a week, and gives the room back.
    pub fn prune(&self, what: &Prune) -> Result<Pruned, StoreError> {
        let now_s = self.options().clock.now_s();
        self.in_session(|session| {
            session.same_format()?;
            let pruned = prune(&mut session.conn, what, now_s);
            pruned.map_err(|e| session.error(e))
        })
    }

    /// Forgets everything: series, decisions, quarantines, machines, calibrations and models.
    pub fn clear(&self) -> Result<(), StoreError> {
        self.in_session(|session| {
            session.same_format()?;
            let clear = |conn: &mut Connection| {
                let transaction = Transaction::new(conn, TransactionBehavior::Immediate)?;
                transaction.execute_batch(
                    "DELETE FROM recent; DELETE FROM series; DELETE FROM note; DELETE FROM sync",
                )?;
                rows::renew_origin(&transaction)?;
                transaction.commit()?;
                give_back(conn, ALL)
            };
            clear(&mut session.conn).map_err(|e| session.error(e))
        })
    }
}

/// Gives freed pages back to the disk, and those of the log.
fn give_back(conn: &Connection, how_many: &str) -> rusqlite::Result<()> {
    let mut statement = conn.prepare(how_many)?;
    let mut pages = statement.query([])?;
    // Each step frees one.
    while pages.next()?.is_some() {}
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

fn count_notes(conn: &Connection, kind: NoteKind) -> rusqlite::Result<u64> {
    let sql = "SELECT count(*) FROM note WHERE kind = ?1";
    conn.query_row(sql, [kind.name()], |row| row.get(0))
}

fn prune(conn: &mut Connection, what: &Prune, now_s: u64) -> rusqlite::Result<Pruned> {
    let transaction = Transaction::new(conn, TransactionBehavior::Immediate)?;
    let pruned = prune_within(&transaction, what, now_s)?;
    transaction.commit()?;
    give_back(conn, ALL)?;
    Ok(pruned)
}

fn prune_within(conn: &Connection, what: &Prune, now_s: u64) -> rusqlite::Result<Pruned> {
    let mut pruned = Pruned::default();
    let went = |sql: &str, bound: &[&dyn ToSql]| conn.execute(sql, bound).map(|rows| rows as u64);
    if let Some(age) = what.older_than_s {
        let before = now_s.saturating_sub(age);
        pruned.series += delete_series(conn, "last_s < ?1", &[&before])?;
        let sql = "DELETE FROM note WHERE kind = 'decision' AND at_s < ?1";
        pruned.notes += went(sql, &[&before])?;
    }
    if let Some(fingerprint) = &what.keep_only {
        let here = fingerprint.as_str();
        pruned.series += delete_series(conn, "fingerprint <> ?1", &[&here])?;
        pruned.notes += went("DELETE FROM note WHERE fingerprint <> ?1", &[&here])?;
    }
    if let Some(most) = what.most_series {
        let (series, notes) = keep_latest(conn, most, 0, now_s)?;
        pruned.series += series;
        pruned.notes += notes;
    }
    pruned.compacted = compact(conn, now_s)?;
    Ok(pruned)
}

/// Samples of series that were not heard of for long go; their sums stay.
fn compact(conn: &Connection, now_s: u64) -> rusqlite::Result<u64> {
    let before = now_s.saturating_sub(RAW_AGE_S);
    let sql = "DELETE FROM recent WHERE id IN (SELECT id FROM series WHERE last_s < ?1)";
    conn.execute(sql, [before]).map(|rows| rows as u64)
}

/// Deletes the series of a condition and says how many there were. If one of them was this store's own, it takes a new origin.
fn delete_series(
    conn: &Connection,
    condition: &str,
    bound: &[&dyn ToSql],
) -> rusqlite::Result<u64> {
    let sql = format!(
        "DELETE FROM series WHERE {condition} RETURNING origin = (SELECT origin FROM self)"
    );
    let mut statement = conn.prepare(&sql)?;
    let mut deleted = statement.query(bound)?;
    let (mut count, mut own) = (0, false);
    while let Some(row) = deleted.next()? {
        count += 1;
        own |= row.get::<_, bool>(0)?;
    }
    if own {
        rows::renew_origin(conn)?;
    }
    Ok(count)
}

/// If there are more than so many series or decisions, those not heard of for longest go, and a few more.
fn keep_latest(
    conn: &Connection,
    most: u64,
    more: u64,
    now_s: u64,
) -> rusqlite::Result<(u64, u64)> {
    let count: u64 = conn.query_row("SELECT count(*) FROM series", [], |row| row.get(0))?;
    let mut series = 0;
    if count > most {
        let surplus = count - most + more;
        // What a wrong clock put into the future is not the latest for ever.
        let oldest =
            "id IN (SELECT id FROM series ORDER BY min(last_s, ?1), last_s DESC, id LIMIT ?2)";
        series = delete_series(conn, oldest, &[&latest(now_s), &surplus])?;
    }
    let notes = keep_latest_notes(conn, NoteKind::Decision, (most, more), now_s)?;
    Ok((series, notes))
}

/// If there are more than so many notes of a kind, or if they take too much room, the oldest go, and a few more.
fn keep_latest_notes(
    conn: &Connection,
    kind: NoteKind,
    (most, more): (u64, u64),
    now_s: u64,
) -> rusqlite::Result<u64> {
    let sql = "SELECT count(*), coalesce(sum(octet_length(body)), 0) FROM note WHERE kind = ?1";
    let kept = |row: &rusqlite::Row<'_>| Ok((row.get::<_, u64>(0)?, row.get::<_, u64>(1)?));
    let (count, bytes) = conn.query_row(sql, [kind.name()], kept)?;
    if count <= most && bytes <= NOTE_BYTES {
        return Ok(0);
    }
    let most = if count > most {
        most.saturating_sub(more)
    } else {
        most
    };
    let sql = "DELETE FROM note WHERE kind = ?1 AND (fingerprint, name) IN (
        SELECT fingerprint, name FROM (
            SELECT fingerprint, name,
                row_number() OVER latest_first AS place,
                sum(octet_length(body)) OVER latest_first AS bytes
            FROM note WHERE kind = ?1
            WINDOW latest_first AS (ORDER BY min(at_s, ?2) DESC, at_s, fingerprint, name ROWS UNBOUNDED PRECEDING)
        ) WHERE place > ?3 OR bytes > ?4)";
    let bound = params![kind.name(), latest(now_s), most, NOTE_BYTES];
    conn.execute(sql, bound).map(|rows| rows as u64)
}

/// Keeps notes within their bounds; decisions have theirs with the series.
fn keep_some_notes(conn: &Connection, now_s: u64) -> rusqlite::Result<()> {
    let before = now_s.saturating_sub(MODEL_AGE_S);
    let old = "DELETE FROM note WHERE kind = ?1 AND at_s < ?2";
    conn.execute(old, params![NoteKind::Model.name(), before])?;
    for kind in NoteKind::ALL {
        if kind != NoteKind::Decision {
            keep_latest_notes(conn, kind, (MOST_NOTES, MOST_NOTES / 16), now_s)?;
        }
    }
    Ok(())
}

/// Keeps the file within its bounds. The writer calls this now and then, and whoever took in records of others.
pub(crate) fn bound(session: &mut Session, most: u64, now_s: u64) -> Result<(), StoreError> {
    let tidy = |conn: &mut Connection| -> rusqlite::Result<()> {
        let transaction = Transaction::new(conn, TransactionBehavior::Immediate)?;
        // A sixteenth more than has to go, so that this is not done for every new series.
        let (series, _) = keep_latest(&transaction, most, most / 16, now_s)?;
        keep_some_notes(&transaction, now_s)?;
        compact(&transaction, now_s)?;
        transaction.commit()?;
        if series > 0 {
            give_back(conn, SOME)?;
        }
        Ok(())
    };
    tidy(&mut session.conn).map_err(|e| session.error(e))
}
