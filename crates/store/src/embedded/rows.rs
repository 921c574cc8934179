//! Rows: between the tables and the types, and how a row meets one that is there.

use std::collections::HashMap;
use std::sync::Arc;

use kernelwise_types::Fingerprint;
use rusqlite::types::Type;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, ToSql, params, params_from_iter};

use crate::key::{Digest, SeriesKey};
use crate::note::{Note, NoteKind};
use crate::place::Place;
use crate::samples::{Packed, append};
use crate::statistics::{Statistics, Unchecked};

/// One series as one store knows it: the unit that travels.
///
/// A row belongs to the store it was measured in, its origin, and only that store changes it, under a revision that
/// grows. So of two rows of one series and origin the one of the higher revision holds, and what came from different
/// origins adds up. Reading the same file twice, or a file that was made from ours, changes nothing.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SeriesRecord {
    /// What it is about.
    #[serde(flatten)]
    pub key: SeriesKey,
    /// The store it was measured in: a random number, no name.
    pub origin: Arc<str>,
    /// Of two records of one key and origin, the higher holds.
    pub revision: u64,
    /// What was measured.
    pub statistics: Statistics,
}

impl SeriesRecord {
    /// Whether this may have been written by this library.
    pub(crate) fn is_sound(&self) -> bool {
        let hexadecimal = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        self.key.is_sound()
            && self.origin.len() == 16
            && self.origin.bytes().all(hexadecimal)
            && i64::try_from(self.revision).is_ok()
            && !self.statistics.is_empty()
    }
}

/// A query for whole rows with something more of each; all texts are known when this is compiled.
macro_rules! rows {
    ($more:literal, $condition:literal) => {
        concat!(
            "SELECT origin, revision, fingerprint, environment, workload, kernel, version, params, timed, mean_ln, ",
            "squares_ln, min_ns, faded_weight, faded_mean_ln, faded_squares_ln, failed, wrong, timed_out, first_s, ",
            "last_s, ",
            $more,
            " FROM series ",
            $condition
        )
    };
}

/// The columns before the something more.
const COLUMNS: usize = 20;

/// Which rows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which<'a> {
    All,
    /// Of this fingerprint.
    Of(&'a str),
    /// Of this fingerprint and workload.
    Workload(&'a str, &'a str),
}

/// Reads rows and keeps one copy of each place among them, and most often one of each text.
#[derive(Default)]
struct Reader {
    places: HashMap<(String, String), Arc<Place>>,
    /// That of the row before, which is most often that of the next.
    last: Option<(String, String, Arc<Place>)>,
    texts: Texts,
}

/// Texts that were read lately, to be shared with the next row that has them. Of two that fall on one seat the later stays:
/// looking further would take longer than a copy.
struct Texts([Option<Arc<str>>; 256]);

impl Default for Texts {
    fn default() -> Self {
        Self([const { None }; 256])
    }
}

impl Texts {
    fn shared(&mut self, text: &str) -> Arc<str> {
        // Eight bytes at a time; the upper bits of the product depend on all of them.
        let hash = text.as_bytes().chunks(8).fold(0_u64, |hash, bytes| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            (hash.rotate_left(23) ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        let seat = &mut self.0[(hash >> 56) as usize];
        match seat {
            Some(there) if **there == *text => there.clone(),
            _ => seat.insert(text.into()).clone(),
        }
    }

    fn of(&mut self, row: &Row<'_>, column: usize) -> rusqlite::Result<Arc<str>> {
        let text = row.get_ref(column)?.as_str();
        Ok(self.shared(text.map_err(|e| damaged(column, e))?))
    }
}

fn damaged(
    column: usize,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into())
}

impl Reader {
    fn place(&mut self, row: &Row<'_>) -> rusqlite::Result<Arc<Place>> {
        let text = |column| {
            row.get_ref(column)?
                .as_str()
                .map_err(|e| damaged(column, e))
        };
        let (fingerprint, environment) = (text(2)?, text(3)?);
        if let Some((last, under, place)) = &self.last
            && last == fingerprint
            && under == environment
        {
            return Ok(place.clone());
        }
        let name = (fingerprint.to_owned(), environment.to_owned());
        let place = match self.places.get(&name) {
            Some(place) => place.clone(),
            None => {
                let place = Arc::new(Place {
                    fingerprint: Fingerprint::try_from(name.0.clone())
                        .map_err(|e| damaged(2, e))?,
                    environment: serde_json::from_str(&name.1).map_err(|e| damaged(3, e))?,
                });
                self.places.insert(name.clone(), place.clone());
                place
            }
        };
        self.last = Some((name.0, name.1, place.clone()));
        Ok(place)
    }

    fn read(&mut self, row: &Row<'_>) -> rusqlite::Result<SeriesRecord> {
        let place = self.place(row)?;
        Ok(SeriesRecord {
            key: SeriesKey {
                place,
                workload: self.texts.of(row, 4)?,
                kernel: self.texts.of(row, 5)?,
                version: row.get(6)?,
                params: self.texts.of(row, 7)?,
            },
            origin: self.texts.of(row, 0)?,
            revision: row.get(1)?,
            statistics: statistics(row)?,
        })
    }
}

fn statistics(row: &Row<'_>) -> rusqlite::Result<Statistics> {
    let unchecked = Unchecked {
        timed: row.get(8)?,
        mean_ln: row.get(9)?,
        squares_ln: row.get(10)?,
        min_ns: row.get(11)?,
        faded_weight: row.get(12)?,
        faded_mean_ln: row.get(13)?,
        faded_squares_ln: row.get(14)?,
        failed: row.get(15)?,
        wrong: row.get(16)?,
        timed_out: row.get(17)?,
        first_s: row.get(18)?,
        last_s: row.get(19)?,
    };
    Statistics::try_from(unchecked).map_err(|e| damaged(8, e))
}

/// From so many row numbers on, two threads read.
const PARTED: i64 = 20_000;

/// Rows in order of key and origin, which does not depend on when they were written. A row that no series can have is left
/// out: one damaged number must not hide the others.
pub(crate) fn select(
    conn: &Connection,
    which: Which<'_>,
) -> rusqlite::Result<impl Iterator<Item = SeriesRecord> + use<>> {
    let Found { mut keys, mut all } = match which {
        Which::Workload(..) => gather(conn, which, (i64::MIN, i64::MAX))?,
        Which::All | Which::Of(_) => gather_all(conn, which)?,
    };
    // By key, of one key by origin, and of one origin the latest first.
    let rest = |place: usize| {
        let record = all[place].as_ref();
        record.map(|r: &SeriesRecord| (&r.origin, std::cmp::Reverse(r.revision)))
    };
    keys.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| rest(a.1).cmp(&rest(b.1))));
    // A row that was let go and came back while others were read is there twice.
    let origin = |place: usize| all[place].as_ref().map(|r| &r.origin);
    keys.dedup_by(|b, a| a.0 == b.0 && origin(a.1) == origin(b.1));
    let take = move |(_, place): (u128, usize)| all[place].take();
    Ok(keys.into_iter().filter_map(take))
}

/// Rows as they were found, and where each key is among them.
#[derive(Default)]
struct Found {
    keys: Vec<(u128, usize)>,
    all: Vec<Option<SeriesRecord>>,
}

/// Rows whose numbers are within these, both included.
fn gather(conn: &Connection, which: Which<'_>, ids: (i64, i64)) -> rusqlite::Result<Found> {
    // Large answers are read in the order of the file and sorted later: going through an index would read pages at random. The
    // plus keeps SQLite from it.
    let (sql, bound): (&str, Vec<&dyn ToSql>) = match &which {
        Which::All => (
            rows!("key", "WHERE id BETWEEN ?1 AND ?2"),
            vec![&ids.0, &ids.1],
        ),
        Which::Of(fingerprint) => (
            rows!("key", "WHERE id BETWEEN ?1 AND ?2 AND +fingerprint = ?3"),
            vec![&ids.0, &ids.1, fingerprint],
        ),
        Which::Workload(fingerprint, workload) => (
            rows!("key", "WHERE fingerprint = ?1 AND workload = ?2"),
            vec![fingerprint, workload],
        ),
    };
    let mut found = Found::default();
    for_each(conn, sql, &bound, |row, record| {
        let key = row.get::<_, Digest>(COLUMNS)?;
        found.keys.push((u128::from_be_bytes(key), found.all.len()));
        found.all.push(Some(record));
        Ok(())
    })?;
    Ok(found)
}

/// All rows; of a large file, one half on a thread and a connection of its own.
fn gather_all(conn: &Connection, which: Which<'_>) -> rusqlite::Result<Found> {
    let ends = "SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM series";
    let (least, most): (i64, i64) = conn
        .prepare_cached(ends)?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let middle = i64::midpoint(least, most);
    let beside = (most.saturating_sub(least) >= PARTED)
        .then(|| beside(conn))
        .flatten();
    let Some(beside) = beside else {
        return gather(conn, which, (i64::MIN, i64::MAX));
    };
    let upper = (middle.saturating_add(1), i64::MAX);
    let (lower, other) = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("kernelwise-read".into());
        let other = thread.spawn_scoped(scope, move || gather(&beside, which, upper));
        let lower = gather(conn, which, (i64::MIN, middle));
        let other = other.ok().and_then(|thread| thread.join().ok());
        (lower, other.and_then(Result::ok))
    });
    let mut found = lower?;
    let other = match other {
        Some(other) => other,
        // No thread or no luck with it: the usual way.
        None => gather(conn, which, upper)?,
    };
    let before = found.all.len();
    let moved = other.keys.into_iter();
    found
        .keys
        .extend(moved.map(|(key, place)| (key, before + place)));
    found.all.extend(other.all);
    Ok(found)
}

/// A second connection to the same file, to read what is committed; `None` where that is not all, or not to be had.
fn beside(conn: &Connection) -> Option<Connection> {
    if !conn.is_autocommit() {
        return None;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let other = Connection::open_with_flags(conn.path()?, flags).ok()?;
    let name = |conn: &Connection| -> Option<(String, String)> {
        let sql = "SELECT origin, file FROM self";
        conn.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
            .ok()
    };
    // Another file may have the name by now.
    (name(conn)? == name(&other)?).then_some(other)
}

/// Reads rows; one that is damaged is said and left out.
fn for_each(
    conn: &Connection,
    sql: &str,
    bound: &[&dyn ToSql],
    mut take: impl FnMut(&Row<'_>, SeriesRecord) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params_from_iter(bound))?;
    let mut reader = Reader::default();
    while let Some(row) = rows.next()? {
        let taken = reader.read(row).and_then(|record| take(row, record));
        if let Err(error) = taken {
            tracing::warn!(%error, "a row of the store is damaged and left out");
        }
    }
    Ok(())
}

/// A row with its place in the order of changes: the change and the number of the row.
#[cfg(feature = "postgres")]
pub(crate) type Changed = (i64, i64, SeriesRecord);

/// So many rows that changed after this place in the order of changes, in that order.
#[cfg(feature = "postgres")]
pub(crate) fn changed_after(
    conn: &Connection,
    (changed, id): (i64, i64),
    limit: u32,
) -> rusqlite::Result<Vec<Changed>> {
    let sql = rows!(
        "changed, id",
        "WHERE (changed, id) > (?1, ?2) AND changed > 0 ORDER BY changed, id LIMIT ?3"
    );
    let mut all = Vec::new();
    for_each(conn, sql, &[&changed, &id, &limit], |row, record| {
        all.push((row.get(COLUMNS)?, row.get(COLUMNS + 1)?, record));
        Ok(())
    })?;
    Ok(all)
}

/// A row that is there, as far as it is needed to change it.
struct There {
    id: i64,
    revision: i64,
    statistics: Option<Statistics>,
}

fn find(conn: &Connection, key: &[u8], origin: &str) -> rusqlite::Result<Option<There>> {
    let sql = rows!("id", "WHERE key = ?1 AND origin = ?2");
    let there = |row: &Row<'_>| {
        Ok(There {
            id: row.get(COLUMNS)?,
            revision: row.get(1)?,
            // Damaged sums are begun anew.
            statistics: statistics(row).ok(),
        })
    };
    let mut statement = conn.prepare_cached(sql)?;
    statement.query_row(params![key, origin], there).optional()
}

/// Adds what was measured here to the row of this store, under a revision.
pub(crate) fn add(
    conn: &Connection,
    key: &SeriesKey,
    digest: &[u8],
    origin: &str,
    revision: i64,
    new: &Statistics,
    samples: &[(u64, Packed)],
) -> rusqlite::Result<()> {
    let there = find(conn, digest, origin)?;
    let mut sum = there
        .as_ref()
        .and_then(|t| t.statistics)
        .unwrap_or_default();
    sum.rewind(new.last_s());
    sum.merge(new);
    let new_row = there.is_none();
    let id = write(
        conn,
        key,
        digest,
        origin,
        (revision, revision),
        &sum,
        there.map(|t| t.id),
    )?;
    if samples.is_empty() {
        return Ok(());
    }
    let mut kept = Vec::new();
    if !new_row {
        let mut read = conn.prepare_cached("SELECT samples FROM recent WHERE id = ?1")?;
        let there = read.query_row([id], |row| row.get(0)).optional()?;
        kept = there.unwrap_or_default();
    }
    for (unix_s, sample) in samples {
        append(&mut kept, *unix_s, &[*sample]);
    }
    conn.prepare_cached("INSERT OR REPLACE INTO recent VALUES (?1, ?2)")?
        .execute(params![id, kept])?;
    Ok(())
}

/// Takes a record from elsewhere if it is news; says whether it was.
pub(crate) fn take(
    conn: &Connection,
    record: &SeriesRecord,
    changed: i64,
) -> rusqlite::Result<bool> {
    let digest = record.key.digest();
    let there = find(conn, &digest, &record.origin)?;
    // Soundness was checked: it fits.
    let revision = i64::try_from(record.revision).unwrap_or(i64::MAX);
    if there
        .as_ref()
        .is_some_and(|there| there.revision >= revision)
    {
        return Ok(false);
    }
    let id = there.map(|there| there.id);
    let at = (revision, changed);
    write(
        conn,
        &record.key,
        &digest,
        &record.origin,
        at,
        &record.statistics,
        id,
    )?;
    Ok(true)
}

/// Whether [`take`] would.
pub(crate) fn is_news(conn: &Connection, record: &SeriesRecord) -> rusqlite::Result<bool> {
    let there = find(conn, &record.key.digest(), &record.origin)?;
    let revision = i64::try_from(record.revision).unwrap_or(i64::MAX);
    Ok(there.is_none_or(|there| there.revision < revision))
}

/// Writes a row, new or in place of the one of this number; says its number.
fn write(
    conn: &Connection,
    key: &SeriesKey,
    digest: &[u8],
    origin: &str,
    (revision, changed): (i64, i64),
    statistics: &Statistics,
    id: Option<i64>,
) -> rusqlite::Result<i64> {
    let s = Unchecked::from(*statistics);
    let sums = params![
        s.timed,
        s.mean_ln,
        s.squares_ln,
        s.min_ns,
        s.faded_weight,
        s.faded_mean_ln,
        s.faded_squares_ln,
        s.failed,
        s.wrong,
        s.timed_out,
        s.first_s,
        s.last_s,
    ];
    if let Some(id) = id {
        let sql = "UPDATE series SET timed = ?1, mean_ln = ?2, squares_ln = ?3, min_ns = ?4, faded_weight = ?5, \
            faded_mean_ln = ?6, faded_squares_ln = ?7, failed = ?8, wrong = ?9, timed_out = ?10, first_s = ?11, \
            last_s = ?12, revision = ?13, changed = ?14 WHERE id = ?15";
        let rest = params![revision, changed, id];
        let all = sums.iter().chain(rest);
        conn.prepare_cached(sql)?.execute(params_from_iter(all))?;
        return Ok(id);
    }
    let sql = "INSERT INTO series (timed, mean_ln, squares_ln, min_ns, faded_weight, faded_mean_ln, faded_squares_ln, \
        failed, wrong, timed_out, first_s, last_s, key, origin, revision, changed, fingerprint, environment, workload, \
        kernel, version, params) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, \
        ?18, ?19, ?20, ?21, ?22)";
    let environment = environment(key);
    let fingerprint = key.place.fingerprint.as_str();
    let rest = params![
        digest,
        origin,
        revision,
        changed,
        fingerprint,
        environment,
        key.workload,
        key.kernel,
        key.version,
        key.params,
    ];
    let all = sums.iter().chain(rest);
    conn.prepare_cached(sql)?.execute(params_from_iter(all))?;
    Ok(conn.last_insert_rowid())
}

/// The environment in one canonical text.
pub(crate) fn environment(key: &SeriesKey) -> String {
    // A struct of texts has a JSON form.
    serde_json::to_string(&key.place.environment).unwrap_or_default()
}

/// The samples of a series as they came, over all its rows.
pub(crate) fn samples(conn: &Connection, key: &SeriesKey) -> rusqlite::Result<Vec<Vec<u8>>> {
    let sql = "SELECT samples FROM recent JOIN series USING (id) WHERE key = ?1 ORDER BY origin";
    let mut statement = conn.prepare_cached(sql)?;
    let rows = statement.query_map([key.digest()], |row| row.get(0))?;
    rows.collect()
}

/// What one note says; `None` if there is none, or if it is damaged.
pub(crate) fn note_body(
    conn: &Connection,
    kind: NoteKind,
    fingerprint: &str,
    name: &str,
) -> rusqlite::Result<Option<serde_json::Value>> {
    let sql = "SELECT body FROM note WHERE kind = ?1 AND fingerprint = ?2 AND name = ?3";
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params![kind.name(), fingerprint, name])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    Ok(serde_json::from_str(row.get_ref(0)?.as_str()?).ok())
}

/// Notes of a kind, or all, in order.
pub(crate) fn notes(conn: &Connection, kind: Option<NoteKind>) -> rusqlite::Result<Vec<Note>> {
    let sql = "SELECT kind, fingerprint, name, at_s, body FROM note \
        WHERE ?1 IS NULL OR kind = ?1 ORDER BY kind, fingerprint, name";
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query([kind.map(NoteKind::name)])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let note = || {
            Some(Note {
                kind: NoteKind::from_name(row.get_ref(0).ok()?.as_str().ok()?)?,
                fingerprint: row.get::<_, String>(1).ok()?.try_into().ok()?,
                name: row.get(2).ok()?,
                at_s: row.get(3).ok()?,
                body: serde_json::from_str(row.get_ref(4).ok()?.as_str().ok()?).ok()?,
            })
        };
        match note() {
            Some(note) => all.push(note),
            None => tracing::warn!("a note of the store is damaged and left out"),
        }
    }
    Ok(all)
}

fn note_there(conn: &Connection, note: &Note) -> rusqlite::Result<Option<(u64, String)>> {
    let sql = "SELECT at_s, body FROM note WHERE kind = ?1 AND fingerprint = ?2 AND name = ?3";
    let bound = params![note.kind.name(), note.fingerprint.as_str(), note.name];
    conn.prepare_cached(sql)?
        .query_row(bound, |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
}

/// Writes a note made here: later than the one it replaces, whatever the clock says. One that says the same as the one that
/// is there is news once a day, so that it does not look forgotten.
pub(crate) fn put_note(conn: &Connection, note: &Note, changed: i64) -> rusqlite::Result<()> {
    let (mut note, text) = (note.clone(), note.body.to_string());
    if let Some((at_s, body)) = note_there(conn, &note)? {
        if body == text && note.at_s < at_s.saturating_add(86_400) {
            return Ok(());
        }
        note.at_s = note.at_s.max(at_s.saturating_add(1)).min(i64::MAX as u64);
    }
    write_note(conn, &note, &text, changed)
}

/// Takes a note from elsewhere if it is news; says whether it was.
pub(crate) fn take_note(conn: &Connection, note: &Note, changed: i64) -> rusqlite::Result<bool> {
    let news = note_is_news(conn, note)?;
    if news {
        write_note(conn, note, &note.body.to_string(), changed)?;
    }
    Ok(news)
}

/// Whether [`take_note`] would.
pub(crate) fn note_is_news(conn: &Connection, note: &Note) -> rusqlite::Result<bool> {
    let there = note_there(conn, note)?.map(|(at_s, body)| Note {
        at_s,
        // A damaged body is no text, and gives way.
        body: serde_json::from_str(&body).unwrap_or_default(),
        ..note.clone()
    });
    Ok(there.is_none_or(|there| note.replaces(&there)))
}

fn write_note(conn: &Connection, note: &Note, body: &str, changed: i64) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO note (kind, fingerprint, name, at_s, changed, body) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let (kind, fingerprint) = (note.kind.name(), note.fingerprint.as_str());
    let bound = params![kind, fingerprint, note.name, note.at_s, changed, body];
    conn.prepare_cached(sql)?.execute(bound)?;
    Ok(())
}

/// Gives the store a new origin: what it learns from now on is not confused with what is known of it elsewhere.
pub(crate) fn renew_origin(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute("UPDATE self SET origin = lower(hex(randomblob(8)))", [])?;
    Ok(())
}

/// The store's own name and the next revision, taken.
pub(crate) fn next_revision(conn: &Connection) -> rusqlite::Result<(String, i64)> {
    let sql = "UPDATE self SET revision = revision + 1 RETURNING origin, revision";
    conn.prepare_cached(sql)?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_shared_and_stay_themselves() {
        let mut texts = Texts::default();
        let all: Vec<String> = (0..5000).map(|i| format!("matmul f32 {i}x7x7")).collect();
        for text in all.iter().chain(&all) {
            let first = texts.shared(text);
            assert_eq!(*first, **text);
            assert!(Arc::ptr_eq(&first, &texts.shared(text)));
        }
        // Close to even over the seats: of 5000 texts hardly one of 256 seats stays empty.
        assert!(texts.0.iter().flatten().count() > 250);
    }

    #[test]
    fn two_threads_find_what_one_finds() {
        let dir = tempfile::tempdir().unwrap();
        let options = crate::Options::new(crate::WallClock::new(|| 1_800_000_000));
        let store = crate::Store::open(dir.path(), options).unwrap();
        let count = u32::try_from(PARTED).unwrap() + 500;
        for key in crate::figures::keys(count) {
            let slot = store.slot(&key);
            store.record(slot, crate::Happened::Failed.into());
        }
        store.flush().unwrap();
        let conn = Connection::open(store.path()).unwrap();
        assert!(beside(&conn).is_some());
        let Found { keys, all } = gather(&conn, Which::All, (i64::MIN, i64::MAX)).unwrap();
        assert_eq!(keys.len(), count as usize);
        let mut alone: Vec<(u128, SeriesRecord)> = keys
            .into_iter()
            .map(|(key, place)| (key, all[place].clone().unwrap()))
            .collect();
        alone.sort_by_key(|(key, _)| *key);
        let parted: Vec<SeriesRecord> = select(&conn, Which::All).unwrap().collect();
        assert!(parted.iter().eq(alone.iter().map(|(_, record)| record)));
        // What is not committed would be missed.
        conn.execute_batch("BEGIN").unwrap();
        assert!(beside(&conn).is_none());
    }
}
