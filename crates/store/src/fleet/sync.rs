//! Bringing records to a server and from it.
//!
//! Both ways go in batches, each a transaction of its own, and after each the position is kept in the embedded store. So a
//! sync that is cut off goes on where it was, and a batch whose commit was not heard of is sent again: the server knows each row
//! by key and origin and takes it only if its revision is higher, so that changes nothing.
//!
//! Of what the server has, a machine takes what is about its own kind and about kinds near enough to count.

use std::collections::HashMap;
use std::path::Path;

use kernelwise_measure::Clock;
use kernelwise_types::units::Nanos;
use kernelwise_types::{Calibration, Fingerprint, Machine};
use postgres::{Row, Transaction};
use rusqlite::OptionalExtension;
use serde::Serialize;

use super::{Fleet, FleetError, FleetOptions};
use crate::embedded::rows::{self, SeriesRecord};
use crate::figures;
use crate::key::{Digest, SeriesKey};
use crate::note::{Note, NoteKind};
use crate::place::Place;
use crate::private::portable;
use crate::store::{Options, Sample, Store, WallClock};
use crate::trust::{Here, Trust};
use crate::wisdom::{Imported, TakenFrom, Wisdom};

/// Rows in one transaction.
const BATCH: u32 = 1000;
/// Kinds of machine that are looked at, at most.
const MOST_KINDS: i64 = 10_000;
/// Kinds that weigh less than this are not worth the room.
const LEAST_WEIGHT: f64 = 0.05;
/// The largest body of a note that the server takes, in bytes.
const LARGEST_BODY: usize = 16 << 20;
/// What positions are kept under.
const PUSHED: &str = "push";
const PUSHED_NOTES: &str = "push notes";

/// What a sync would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SyncPreview {
    /// Records that would leave this machine, or whose later revision would.
    pub records_out: u64,
    /// Notes that would leave it.
    pub notes_out: u64,
    /// The first of them, each as the line that would stand in a wisdom file: this is all that leaves.
    pub first_out: Vec<String>,
    /// Records on the server that fit this machine and changed since the last sync.
    pub records_in: u64,
    /// Kinds of machine that fit.
    pub kinds: u64,
}

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

/// Records per second to a server, with as many as asked for: for `kernelwise bench store`. They stay on the server, of a kind of
/// machine that does not exist, so use one that is there to be measured. `dir` is an empty directory.
pub fn sync_per_s(
    options: &FleetOptions,
    dir: &Path,
    records: u32,
    clock: &dyn Clock,
    wall: WallClock,
) -> Result<f64, FleetError> {
    let store = Store::open(dir, Options::new(wall))?;
    for (number, key) in figures::keys(records).enumerate() {
        store.record(store.slot(&key), Sample::timed(Nanos::from_u64(1000)));
        if number % 10_000 == 9_999 {
            store.flush()?;
        }
    }
    store.flush()?;
    let mut fleet = Fleet::connect(options)?;
    let (mut synced, before) = (Synced::default(), clock.now());
    fleet.push(&store, &mut synced)?;
    let seconds = clock.now().saturating_sub(before) as f64 / 1e9;
    Ok(synced.records_out as f64 / seconds)
}

/// A place in an order.
type Position = (i64, i64);

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

impl Fleet {
    /// What [`Fleet::sync`] would do, without doing it.
    pub fn preview(&mut self, store: &Store, here: &Here) -> Result<SyncPreview, FleetError> {
        const SHOWN: usize = 20;
        store.flush()?;
        let pushed = position(store, &self.name, PUSHED)?;
        let records = store.with(|conn| rows::changed_after(conn, pushed, u32::MAX))?;
        let after = position(store, &self.name, PUSHED_NOTES)?.0;
        let notes = store.with(|conn| rows::notes(conn, None, Some(after)))?;
        let mut wisdom = Wisdom::default();
        records
            .iter()
            .take(SHOWN)
            .for_each(|(.., r)| wisdom.add(r.clone()));
        let room = SHOWN.saturating_sub(records.len());
        let shown = notes.iter().take(room).cloned().map(portable);
        shown.for_each(|note| wisdom.add_note(note));
        let text = String::from_utf8_lossy(&wisdom.to_bytes(false)).into_owned();
        let mut preview = SyncPreview {
            records_out: records.len() as u64,
            notes_out: notes.len() as u64,
            first_out: text.lines().skip(1).map(str::to_owned).collect(),
            ..SyncPreview::default()
        };
        let horizon = self.horizon()?;
        let kinds = self.kinds(here)?;
        for kind in &kinds {
            let from = self.pulled(store, kind, horizon)?;
            let sql = "SELECT count(*) FROM kernelwise.series WHERE fingerprint = $1 AND changed >= $2 AND changed < $3";
            let bound: [&(dyn postgres::types::ToSql + Sync); 3] =
                [&kind.as_str(), &from, &horizon];
            let count = self.client.query_one(sql, &bound);
            let count: i64 = count.map_err(|e| self.failed(e))?.get(0);
            preview.records_in += count.unsigned_abs();
        }
        preview.kinds = kinds.len() as u64;
        Ok(preview)
    }

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

    fn push(&mut self, store: &Store, synced: &mut Synced) -> Result<(), FleetError> {
        let mut pushed = position(store, &self.name, PUSHED)?;
        loop {
            let batch = store.with(|conn| rows::changed_after(conn, pushed, BATCH))?;
            let Some((changed, id, _)) = batch.last() else {
                break;
            };
            pushed = (*changed, *id);
            let records = batch.into_iter().map(|(.., record)| record);
            // What the server would refuse would hold up the rest.
            let records: Vec<SeriesRecord> = records.filter(SeriesRecord::is_sound).collect();
            synced.records_out += self.push_records(&records)?;
            set_position(store, &self.name, PUSHED, pushed)?;
        }
        let after = position(store, &self.name, PUSHED_NOTES)?.0;
        let revision = "SELECT revision FROM self";
        let (notes, now) = store.with(|conn| {
            let notes = rows::notes(conn, None, Some(after))?;
            let now = conn.query_row(revision, [], |row| row.get(0))?;
            Ok((notes, now))
        })?;
        let sound = |note: &Note| note.is_sound() && note.body.to_string().len() <= LARGEST_BODY;
        let notes: Vec<Note> = notes.into_iter().map(portable).filter(sound).collect();
        for batch in notes.chunks(BATCH as usize) {
            synced.notes_out += self.push_notes(batch)?;
        }
        set_position(store, &self.name, PUSHED_NOTES, (now, 0))
    }

    /// One transaction; says how many rows were news.
    fn push_records(&mut self, records: &[SeriesRecord]) -> Result<u64, FleetError> {
        let push = |transaction: &mut Transaction<'_>| put_records(transaction, records);
        self.transact(push)
    }

    fn push_notes(&mut self, notes: &[Note]) -> Result<u64, FleetError> {
        let sql = "INSERT INTO kernelwise.note (kind, fingerprint, name, at_s, changed, body)
            SELECT kind, fingerprint, name, at_s, pg_current_xact_id()::text::bigint, body
            FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[])
                AS new (kind, fingerprint, name, at_s, body)
            ON CONFLICT (kind, fingerprint, name) DO UPDATE
            SET at_s = excluded.at_s, changed = excluded.changed, body = excluded.body
            WHERE (note.at_s, note.body) < (excluded.at_s, excluded.body)";
        let kinds: Vec<&str> = notes.iter().map(|n| n.kind.name()).collect();
        let fingerprints: Vec<&str> = notes.iter().map(|n| n.fingerprint.as_str()).collect();
        let names: Vec<&str> = notes.iter().map(|n| n.name.as_str()).collect();
        let times: Vec<i64> = notes.iter().map(|n| n.at_s.cast_signed()).collect();
        let bodies: Vec<String> = notes.iter().map(|n| n.body.to_string()).collect();
        self.transact(|transaction| {
            transaction.execute(sql, &[&kinds, &fingerprints, &names, &times, &bodies])
        })
    }

    pub(super) fn transact<T>(
        &mut self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, postgres::Error>,
    ) -> Result<T, FleetError> {
        let run = || {
            let mut transaction = self.client.transaction()?;
            let answer = work(&mut transaction)?;
            transaction.commit()?;
            Ok(answer)
        };
        run().map_err(|e| FleetError::of(&self.address, e))
    }

    /// Below this all transactions have ended.
    fn horizon(&mut self) -> Result<i64, FleetError> {
        let sql = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint";
        let row = self.client.query_one(sql, &[]);
        Ok(row.map_err(|e| self.failed(e))?.get(0))
    }

    /// The kinds of machine whose records count here: this one, and those that are near enough.
    fn kinds(&mut self, here: &Here) -> Result<Vec<Fingerprint>, FleetError> {
        let sql = "SELECT fingerprint, kind, body FROM kernelwise.note
            WHERE kind IN ('machine', 'calibration') ORDER BY fingerprint LIMIT $1";
        let found = self.client.query(sql, &[&MOST_KINDS]);
        let mut machines: HashMap<String, Machine> = HashMap::new();
        let mut calibrations: HashMap<String, Calibration> = HashMap::new();
        for row in found.map_err(|e| self.failed(e))? {
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
    fn pulled(&self, store: &Store, kind: &Fingerprint, horizon: i64) -> Result<i64, FleetError> {
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
                let sql = "SELECT changed, key, origin, revision, fingerprint, environment, workload, kernel, version,
                        params, statistics
                    FROM kernelwise.series
                    WHERE fingerprint = $1 AND changed < $2 AND (changed, key, origin) > ($3, $4, $5)
                    ORDER BY changed, key, origin LIMIT $6";
                let kind = kind.as_str();
                let bound: [&(dyn postgres::types::ToSql + Sync); 6] =
                    [&kind, &horizon, &at, &key, &origin, &i64::from(BATCH)];
                let batch = self.client.query(sql, &bound).map_err(|e| self.failed(e))?;
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
            let sql = "SELECT changed, kind, name, at_s, body FROM kernelwise.note
                WHERE fingerprint = $1 AND changed < $2 AND (changed, kind, name) > ($3, $4, $5)
                ORDER BY changed, kind, name LIMIT $6";
            let bound: [&(dyn postgres::types::ToSql + Sync); 6] =
                [&kind.as_str(), &to, &at, &of, &name, &i64::from(BATCH)];
            let batch = self.client.query(sql, &bound).map_err(|e| self.failed(e))?;
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
pub(super) fn put_records(
    transaction: &mut Transaction<'_>,
    records: &[SeriesRecord],
) -> Result<u64, postgres::Error> {
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
    transaction.execute(
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
