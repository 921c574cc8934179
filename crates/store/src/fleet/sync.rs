//! Bringing records to a server and from it.
//!
//! Both ways go in batches of at most 1000 rows and 8 MB, each a transaction of its own, and after each the position is kept in
//! the embedded store. So a sync that is cut off goes on where it was, and a batch whose commit was not heard of is sent again:
//! the server knows each row by key and origin and takes it only if its revision is higher, so that changes nothing.
//!
//! Of what the server has, a machine takes what is about its own kind and about kinds near enough to count.

use std::collections::HashMap;

use kernelwise_types::{Calibration, Fingerprint, Machine};
use rusqlite::{Connection, OptionalExtension};
use serde::Serialize;
use tokio_postgres::Row;

use super::link::{Bound, Link};
use super::{Fleet, FleetError};
use crate::embedded::rows::{self, SeriesRecord};
use crate::key::{Digest, SeriesKey};
use crate::note::{Note, NoteKind};
use crate::place::Place;
use crate::private::portable;
use crate::store::Store;
use crate::trust::{Here, Trust};
use crate::wisdom::{Imported, TakenFrom, Wisdom};

/// Rows in one transaction, at most.
const BATCH: u32 = 1000;
/// Bytes in one transaction, at most; a row that is larger goes alone.
const BATCH_BYTES: usize = 8 << 20;
/// What the numbers of a row come to, in bytes.
const ROW_BYTES: usize = 500;
/// Kinds of machine that are looked at, at most.
const MOST_KINDS: i64 = 10_000;
/// Kinds that weigh less than this are not worth the room.
const LEAST_WEIGHT: f64 = 0.05;
/// The largest body of a note that the server takes, in bytes.
const LARGEST_BODY: usize = 16 << 20;
/// What positions are kept under.
const PUSHED: &str = "push";
const PUSHED_NOTES: &str = "push notes";

/// The next batch of one kind of machine: what changed before the transaction $2 and comes after the row ($3, $4, $5). The limits are
/// [`BATCH`] and [`BATCH_BYTES`]; the rows of the batch are weighed after the index found them, and the first one always comes.
pub(super) const PULL_RECORDS: &str = "
    SELECT changed, key, origin, revision, fingerprint, environment, workload, kernel, version, params, statistics
    FROM (
        SELECT page.*, row_number() OVER place AS number,
            sum(500 + octet_length(environment) + octet_length(workload) + octet_length(params)
                + octet_length(statistics)) OVER place AS bytes
        FROM (
            SELECT changed, key, origin, revision, fingerprint, environment, workload, kernel, version, params, statistics
            FROM kernelwise.series
            WHERE fingerprint = $1 AND changed < $2 AND (changed, key, origin) > ($3, $4, $5)
            ORDER BY changed, key, origin LIMIT 1000
        ) AS page
        WINDOW place AS (ORDER BY changed, key, origin ROWS UNBOUNDED PRECEDING)
    ) AS weighed
    WHERE bytes <= 8388608 OR number = 1
    ORDER BY changed, key, origin";

/// The same for notes.
pub(super) const PULL_NOTES: &str = "
    SELECT changed, kind, name, at_s, body
    FROM (
        SELECT page.*, row_number() OVER place AS number, sum(500 + octet_length(body)) OVER place AS bytes
        FROM (
            SELECT changed, kind, name, at_s, body FROM kernelwise.note
            WHERE fingerprint = $1 AND changed < $2 AND (changed, kind, name) > ($3, $4, $5)
            ORDER BY changed, kind, name LIMIT 1000
        ) AS page
        WINDOW place AS (ORDER BY changed, kind, name ROWS UNBOUNDED PRECEDING)
    ) AS weighed
    WHERE bytes <= 8388608 OR number = 1
    ORDER BY changed, kind, name";

/// What a sync did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Synced {
    /// Records the server took.
    pub records_out: u64,
    /// Notes the server took.
    pub notes_out: u64,
    /// Whether there was something to push that this user may not: the role is that of a reader.
    pub may_not_push: bool,
    /// What was news here.
    #[serde(flatten)]
    pub taken: Imported,
}

/// A place in an order.
pub(super) type Position = (i64, i64);

fn position(store: &Store, server: &str, what: &str) -> Result<Position, FleetError> {
    let sql = "SELECT position, id FROM sync WHERE server = ?1 AND what = ?2";
    let found = store.with(|conn| {
        conn.query_row(sql, [server, what], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
    })?;
    Ok(found.unwrap_or((0, 0)))
}

fn set_position(store: &Store, server: &str, what: &str, at: Position) -> Result<(), FleetError> {
    let sql = "INSERT OR REPLACE INTO sync VALUES (?1, ?2, ?3, ?4)";
    store.with(|conn| conn.execute(sql, rusqlite::params![server, what, at.0, at.1]))?;
    Ok(())
}

/// How many come before this many bytes are passed; one if there is any.
fn fitting(sizes: impl Iterator<Item = usize>) -> usize {
    let mut bytes = 0;
    let fits = |size: &usize| {
        bytes += size;
        bytes <= BATCH_BYTES
    };
    let mut sizes = sizes.peekable();
    let any = usize::from(sizes.peek().is_some());
    sizes.take_while(fits).count().max(any)
}

/// About what a record takes on the way.
fn size(record: &SeriesRecord) -> usize {
    let key = &record.key;
    let environment = &key.place.environment;
    let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let texts = key.workload.len() + key.kernel.len() + key.params.len();
    let names = environment.os.len() + environment.library.len();
    let more = optional(&environment.release) + optional(&environment.driver);
    texts + names + more + ROW_BYTES
}

/// A batch of records that changed after a position, as far as the server takes them, and the position behind it. `None` at the
/// end. Nothing else leaves this machine, and what a preview shows comes from here too.
pub(super) fn records_after(
    store: &Store,
    after: Position,
) -> Result<Option<(Vec<SeriesRecord>, Position)>, FleetError> {
    let mut batch = store.with(|conn| rows::changed_after(conn, after, BATCH))?;
    batch.truncate(fitting(batch.iter().map(|(.., record)| size(record))));
    let Some((changed, id, _)) = batch.last() else {
        return Ok(None);
    };
    let behind = (*changed, *id);
    let records = batch.into_iter().map(|(.., record)| record);
    // What the server would refuse would hold up the rest.
    Ok(Some((
        records.filter(SeriesRecord::is_sound).collect(),
        behind,
    )))
}

/// A place among notes in the order of their changes: the change, kind, fingerprint and name.
pub(super) type NotePosition = (i64, String, String, String);

/// The same for notes, in the form in which they leave.
pub(super) fn notes_after(
    store: &Store,
    after: &NotePosition,
) -> Result<Option<(Vec<Note>, NotePosition)>, FleetError> {
    Ok(store.with(|conn| read_notes(conn, after))?)
}

fn read_notes(
    conn: &Connection,
    after: &NotePosition,
) -> rusqlite::Result<Option<(Vec<Note>, NotePosition)>> {
    // Names and sizes first: bodies can be large, and sorting would carry them about.
    let sql = "SELECT changed, kind, fingerprint, name, octet_length(body) FROM note
        WHERE (changed, kind, fingerprint, name) > (?1, ?2, ?3, ?4) AND changed > 0
        ORDER BY changed, kind, fingerprint, name LIMIT ?5";
    let mut statement = conn.prepare_cached(sql)?;
    let bound = rusqlite::params![after.0, after.1, after.2, after.3, BATCH];
    let listed = statement.query_map(bound, |row| {
        let place: NotePosition = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        Ok((place, row.get::<_, usize>(4)?))
    })?;
    let mut listed: Vec<(NotePosition, usize)> = listed.collect::<Result<_, _>>()?;
    listed.truncate(fitting(listed.iter().map(|(_, bytes)| bytes + ROW_BYTES)));
    let Some((behind, _)) = listed.last().cloned() else {
        return Ok(None);
    };
    let sql = "SELECT at_s, body FROM note WHERE kind = ?1 AND fingerprint = ?2 AND name = ?3";
    let mut statement = conn.prepare_cached(sql)?;
    let mut notes = Vec::new();
    for ((_, kind, fingerprint, name), _) in listed {
        let found = statement.query_row([&kind, &fingerprint, &name], |row| {
            Ok((row.get::<_, u64>(0)?, row.get::<_, String>(1)?))
        });
        let note = || {
            let (at_s, body) = found.ok()?;
            Some(Note {
                kind: NoteKind::from_name(&kind)?,
                fingerprint: fingerprint.try_into().ok()?,
                name,
                at_s,
                body: serde_json::from_str(&body).ok()?,
            })
        };
        match note() {
            Some(note) => notes.push(portable(note)),
            None => tracing::warn!("a note of the store is damaged and left out"),
        }
    }
    // What the server would refuse would hold up the rest.
    notes.retain(|note| note.is_sound() && note.body.to_string().len() <= LARGEST_BODY);
    Ok(Some((notes, behind)))
}

/// How far the notes of this store were pushed to a server.
pub(super) fn pushed_notes(store: &Store, server: &str) -> Result<NotePosition, FleetError> {
    // The end of the last change that was pushed: no kind is called that.
    let (changed, _) = position(store, server, PUSHED_NOTES)?;
    Ok((changed, char::MAX.to_string(), String::new(), String::new()))
}

/// How far the records of this store were pushed to a server.
pub(super) fn pushed_records(store: &Store, server: &str) -> Result<Position, FleetError> {
    position(store, server, PUSHED)
}

impl Fleet {
    /// Pushes what changed here, then pulls what changed there and fits this machine. What was done before an error stays done.
    pub fn sync(&mut self, store: &Store, here: &Here) -> Result<Synced, FleetError> {
        store.flush()?;
        let mut synced = Synced::default();
        match self.push(store, &mut synced) {
            // A reader takes what there is all the same.
            Err(FleetError::Refused { .. }) => synced.may_not_push = true,
            pushed => pushed?,
        }
        self.pull(store, here, &mut synced)?;
        Ok(synced)
    }

    pub(super) fn push(&mut self, store: &Store, synced: &mut Synced) -> Result<(), FleetError> {
        let mut pushed = pushed_records(store, &self.name)?;
        while let Some((records, behind)) = records_after(store, pushed)? {
            synced.records_out += self.link.transact(|link| put_records(link, &records))?;
            pushed = behind;
            set_position(store, &self.name, PUSHED, pushed)?;
        }
        let mut pushed = pushed_notes(store, &self.name)?;
        while let Some((notes, behind)) = notes_after(store, &pushed)? {
            synced.notes_out += self.push_notes(&notes)?;
            // More of the same change may follow: only those before it are known to be done.
            set_position(store, &self.name, PUSHED_NOTES, (behind.0 - 1, 0))?;
            pushed = behind;
        }
        set_position(store, &self.name, PUSHED_NOTES, (pushed.0, 0))
    }

    /// One transaction; says how many were news.
    fn push_notes(&mut self, notes: &[Note]) -> Result<u64, FleetError> {
        let sql = "INSERT INTO kernelwise.note (kind, fingerprint, name, at_s, changed, body)
            SELECT kind, fingerprint, name, at_s, pg_current_xact_id()::text::bigint, body
            FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[])
                AS new (kind, fingerprint, name, at_s, body)
            ON CONFLICT (kind, fingerprint, name) DO UPDATE
            SET at_s = excluded.at_s, changed = excluded.changed, body = excluded.body
            WHERE (note.at_s, note.body) < (excluded.at_s, excluded.body)";
        // In one order for all, so that two who write the same rows wait for each other instead of locking each other out.
        let mut notes: Vec<&Note> = notes.iter().collect();
        notes.sort_by_key(|note| note.subject());
        let kinds: Vec<&str> = notes.iter().map(|n| n.kind.name()).collect();
        let fingerprints: Vec<&str> = notes.iter().map(|n| n.fingerprint.as_str()).collect();
        let names: Vec<&str> = notes.iter().map(|n| n.name.as_str()).collect();
        let times: Vec<i64> = notes.iter().map(|n| n.at_s.cast_signed()).collect();
        let bodies: Vec<String> = notes.iter().map(|n| n.body.to_string()).collect();
        self.link
            .transact(|link| link.execute(sql, &[&kinds, &fingerprints, &names, &times, &bodies]))
    }

    /// Below this all transactions have ended.
    pub(super) fn horizon(&self) -> Result<i64, FleetError> {
        let sql = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint";
        Ok(self.link.query_one(sql, &[])?.get(0))
    }

    /// The kinds of machine whose records count here: this one, and those that are near enough.
    pub(super) fn kinds(&self, here: &Here) -> Result<Vec<Fingerprint>, FleetError> {
        let sql = "SELECT fingerprint, kind, body FROM kernelwise.note
            WHERE kind IN ('machine', 'calibration') ORDER BY fingerprint LIMIT $1";
        let found = self.link.query(sql, &[&MOST_KINDS])?;
        let mut machines: HashMap<String, Machine> = HashMap::new();
        let mut calibrations: HashMap<String, Calibration> = HashMap::new();
        for row in found {
            let (fingerprint, kind, body): (String, String, String) =
                (row.get(0), row.get(1), row.get(2));
            // What another version wrote may be of another form.
            if kind == NoteKind::Machine.name() {
                machines.extend(serde_json::from_str(&body).map(|m| (fingerprint, m)));
            } else {
                calibrations.extend(serde_json::from_str(&body).map(|c| (fingerprint, c)));
            }
        }
        let mut kinds = vec![here.place.fingerprint.clone()];
        for (name, machine) in &machines {
            let Ok(fingerprint) = Fingerprint::try_from(name.clone()) else {
                continue;
            };
            let place = Place {
                fingerprint,
                environment: here.place.environment.clone(),
            };
            let there = Some((machine, calibrations.get(name)));
            if let Trust::Prior { weight, .. } = here.trust(&place, there)
                && weight >= LEAST_WEIGHT
            {
                kinds.push(place.fingerprint);
            }
        }
        kinds.sort();
        kinds.dedup();
        Ok(kinds)
    }

    /// How far a kind was heard; from the beginning if the server is behind that.
    pub(super) fn pulled(
        &self,
        store: &Store,
        kind: &Fingerprint,
        horizon: i64,
    ) -> Result<i64, FleetError> {
        let (from, _) = position(store, &self.name, &format!("pull {kind}"))?;
        Ok(if from > horizon { 0 } else { from })
    }

    fn pull(&mut self, store: &Store, here: &Here, synced: &mut Synced) -> Result<(), FleetError> {
        let horizon = self.horizon()?;
        for kind in self.kinds(here)? {
            let what = format!("pull {kind}");
            let from = self.pulled(store, &kind, horizon)?;
            self.pull_notes(store, &kind, (from, horizon), synced)?;
            // The last row that was taken: the next batch begins behind it.
            let (mut at, mut key, mut origin) = (from, Vec::<u8>::new(), String::new());
            loop {
                let bound: Bound<'_> = &[&kind.as_str(), &horizon, &at, &key, &origin];
                let batch = self.link.query(PULL_RECORDS, bound)?;
                let Some(last) = batch.last() else {
                    break;
                };
                (at, key, origin) = (last.get(0), last.get(1), last.get(2));
                let mut wisdom = Wisdom::default();
                for row in &batch {
                    match record(row) {
                        Some(record) => wisdom.add(record),
                        None => tracing::warn!("a row of the server is damaged and left out"),
                    }
                }
                add(&mut synced.taken, store.take(&wisdom, TakenFrom::Fleet)?);
                set_position(store, &self.name, &what, (at, 0))?;
            }
            set_position(store, &self.name, &what, (horizon, 0))?;
        }
        Ok(())
    }

    fn pull_notes(
        &mut self,
        store: &Store,
        kind: &Fingerprint,
        (from, to): (i64, i64),
        synced: &mut Synced,
    ) -> Result<(), FleetError> {
        let (mut at, mut of, mut name) = (from, String::new(), String::new());
        loop {
            let bound: Bound<'_> = &[&kind.as_str(), &to, &at, &of, &name];
            let batch = self.link.query(PULL_NOTES, bound)?;
            let Some(last) = batch.last() else {
                return Ok(());
            };
            (at, of, name) = (last.get(0), last.get(1), last.get(2));
            let mut wisdom = Wisdom::default();
            for row in &batch {
                let note = || {
                    let note = Note {
                        kind: NoteKind::from_name(row.get(1))?,
                        fingerprint: kind.clone(),
                        name: row.get(2),
                        at_s: u64::try_from(row.get::<_, i64>(3)).ok()?,
                        body: serde_json::from_str(row.get(4)).ok()?,
                    };
                    note.is_sound().then_some(note)
                };
                match note() {
                    Some(note) => wisdom.add_note(note),
                    None => tracing::warn!("a note of the server is damaged and left out"),
                }
            }
            add(&mut synced.taken, store.take(&wisdom, TakenFrom::Fleet)?);
        }
    }
}

fn add(all: &mut Imported, more: Imported) {
    all.records += more.records;
    all.notes += more.notes;
    all.known += more.known;
}

/// Writes records, each if it is news; says how many were. In order of key, so that two who write the same rows wait for each other
/// instead of locking each other out.
pub(super) fn put_records(link: &Link, records: &[SeriesRecord]) -> Result<u64, FleetError> {
    let sql = "INSERT INTO kernelwise.series (key, origin, revision, content, changed, fingerprint, environment, workload,
            kernel, version, params, statistics)
        SELECT key, origin, revision, content, pg_current_xact_id()::text::bigint, fingerprint, environment, workload,
            kernel, version, params, statistics
        FROM unnest($1::bytea[], $2::text[], $3::bigint[], $4::bytea[], $5::text[], $6::text[], $7::text[], $8::text[],
                $9::bigint[], $10::text[], $11::text[])
            AS new (key, origin, revision, content, fingerprint, environment, workload, kernel, version, params, statistics)
        ON CONFLICT (key, origin) DO UPDATE
        SET revision = excluded.revision, content = excluded.content, changed = excluded.changed,
            statistics = excluded.statistics
        WHERE series.revision < excluded.revision AND series.content <> excluded.content";
    let mut keyed: Vec<(Digest, &SeriesRecord)> =
        records.iter().map(|r| (r.key.digest(), r)).collect();
    keyed.sort_by(|a, b| (a.0, &a.1.origin).cmp(&(b.0, &b.1.origin)));
    let texts: Vec<String> = keyed
        .iter()
        .map(|(_, r)| serde_json::to_string(&r.statistics).unwrap_or_default())
        .collect();
    let contents: Vec<Vec<u8>> = keyed
        .iter()
        .zip(&texts)
        .map(|((key, r), text)| {
            let mut hash = blake3::Hasher::new();
            hash.update(key)
                .update(r.origin.as_bytes())
                .update(text.as_bytes());
            hash.finalize().as_bytes().to_vec()
        })
        .collect();
    let keys: Vec<&[u8]> = keyed.iter().map(|(key, _)| key.as_slice()).collect();
    let column =
        |of: fn(&SeriesRecord) -> &str| -> Vec<&str> { keyed.iter().map(|(_, r)| of(r)).collect() };
    let revisions: Vec<i64> = keyed
        .iter()
        .map(|(_, r)| r.revision.cast_signed())
        .collect();
    let versions: Vec<i64> = keyed
        .iter()
        .map(|(_, r)| i64::from(r.key.version))
        .collect();
    let environments: Vec<String> = keyed
        .iter()
        .map(|(_, r)| rows::environment(&r.key))
        .collect();
    link.execute(
        sql,
        &[
            &keys,
            &column(|r| &r.origin),
            &revisions,
            &contents,
            &column(|r| r.key.place.fingerprint.as_str()),
            &environments,
            &column(|r| &r.key.workload),
            &column(|r| &r.key.kernel),
            &versions,
            &column(|r| &r.key.params),
            &texts,
        ],
    )
}

/// A record from a row; `None` if no record can be like it.
fn record(row: &Row) -> Option<SeriesRecord> {
    let place = Place {
        fingerprint: row.get::<_, String>(4).try_into().ok()?,
        environment: serde_json::from_str(row.get(5)).ok()?,
    };
    let record = SeriesRecord {
        key: SeriesKey {
            place: place.into(),
            workload: row.get::<_, &str>(6).into(),
            kernel: row.get::<_, &str>(7).into(),
            version: u32::try_from(row.get::<_, i64>(8)).ok()?,
            params: row.get::<_, &str>(9).into(),
        },
        origin: row.get::<_, &str>(2).into(),
        revision: u64::try_from(row.get::<_, i64>(3)).ok()?,
        statistics: serde_json::from_str(row.get(10)).ok()?,
    };
    // What stands under another key than its own would be taken twice.
    let own = record.key.digest().as_slice() == row.get::<_, &[u8]>(1);
    (record.is_sound() && own).then_some(record)
}
