//! The store: what a program holds while it runs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};

use kernelwise_types::units::Nanos;
use kernelwise_types::{Calibration, Conditions, Decision, Fingerprint, Machine};
use rusqlite::Connection;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::embedded::rows::{self, SeriesRecord, Which};
use crate::embedded::session::{self, Durability, Look, Session};
use crate::embedded::writer::{Inbox, Item, Writer, lock};
use crate::error::{StoreError, Warning};
use crate::key::SeriesKey;
use crate::note::{Note, NoteKind, Quarantine};
use crate::samples::{Packed, RawSample, unpack};
use crate::statistics::{Happened, Statistics, latest};

/// Tells the time of day: whole seconds since 1970. Injected, so that tests can set it forward and back.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl WallClock {
    /// A clock that asks this function.
    pub fn new(now_s: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now_s))
    }

    /// What time it is; no later than the end of the year 9999.
    pub fn now_s(&self) -> u64 {
        (self.0)().min(253_402_300_799)
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WallClock")
    }
}

/// How a store is kept.
#[derive(Debug, Clone)]
pub struct Options {
    /// The time of day.
    pub clock: WallClock,
    /// What a power cut may cost.
    pub durability: Durability,
    /// How many series are kept, and how many decisions; beyond it, those that were not heard of for longest go. A series
    /// takes about 1.6 kB of disk at the most, so the usual 250,000 are bounded by 400 MB however many samples there were.
    pub most_series: u64,
}

impl Options {
    /// The usual, with this clock.
    pub fn new(clock: WallClock) -> Self {
        Self {
            clock,
            durability: Durability::default(),
            most_series: 250_000,
        }
    }
}

/// The number of a key in one open store; recording takes it instead of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot(u32);

/// One run, to be recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// How it went.
    pub happened: Happened,
    /// How long it had been predicted to take.
    pub predicted: Option<Nanos>,
    /// What the machine was doing.
    pub conditions: Conditions,
}

impl Sample {
    /// A run that took this long, of which nothing else is known.
    pub fn timed(time: Nanos) -> Self {
        Happened::Timed(time).into()
    }
}

impl From<Happened> for Sample {
    fn from(happened: Happened) -> Self {
        Self {
            happened,
            predicted: None,
            conditions: Conditions::default(),
        }
    }
}

/// A series as all origins together know it.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// What it is about.
    pub key: SeriesKey,
    /// What was measured, everywhere.
    pub statistics: Statistics,
}

/// What was learned, in a directory of this machine.
///
/// Any number of threads may use one, and any number of processes one directory. Dropping it writes what is left.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    options: Options,
    inbox: Arc<Inbox>,
    thread: Thread,
    writer: Option<JoinHandle<()>>,
    /// The connection that is read through.
    reader: Mutex<Option<Session>>,
    /// Records taken in from a server since the file was last brought within its bounds.
    taken: AtomicU64,
}

impl Store {
    /// Opens the store of a directory, which is made if need be.
    ///
    /// A file that is damaged is renamed and a new one begun, one of an older version is copied and migrated, a directory
    /// that may not be written is read: [`Store::warnings`] tells. A file of a newer version is an error, and is not touched.
    pub fn open(dir: &Path, options: Options) -> Result<Self, StoreError> {
        let now_s = options.clock.now_s();
        let (session, warnings) = Session::open(dir, options.durability, now_s, Look::Brief)?;
        let inbox = Arc::new(Inbox::new());
        inbox.warn(warnings);
        let writer = Writer {
            dir: dir.to_owned(),
            durability: options.durability,
            clock: options.clock.clone(),
            most_series: options.most_series,
            inbox: inbox.clone(),
            session: Some(session),
            look: Look::Brief,
        };
        let writer = std::thread::Builder::new()
            .name("kernelwise-store".into())
            .spawn(move || writer.run())
            .map_err(|e| StoreError::io(dir, e))?;
        Ok(Self {
            dir: dir.to_owned(),
            options,
            inbox,
            thread: writer.thread().clone(),
            writer: Some(writer),
            reader: Mutex::default(),
            taken: AtomicU64::new(0),
        })
    }

    /// The file that records are kept in.
    pub fn path(&self) -> PathBuf {
        session::file(&self.dir)
    }

    /// The number of a key, to record under. Takes a lock and a hash: ask once and keep it.
    pub fn slot(&self, key: &SeriesKey) -> Slot {
        Slot(self.inbox.slot(key))
    }

    /// Hands a run to the background writer. Never waits: if the ring is full, which takes a disk that stands still, the
    /// sample is dropped, counted, and the answer is `false`.
    #[inline]
    pub fn record(&self, slot: Slot, sample: Sample) -> bool {
        let time = match sample.happened {
            Happened::Timed(time) => time,
            Happened::Failed | Happened::WrongResult | Happened::TimedOut => Nanos::from_u64(0),
        };
        let item = Item {
            slot: slot.0,
            happened: sample.happened,
            packed: Packed::new(time, sample.predicted, &sample.conditions),
        };
        let pushed = self.inbox.ring.push(item).is_ok();
        if !pushed {
            self.inbox.dropped.fetch_add(1, Ordering::Relaxed);
        }
        self.inbox.wake(&self.thread);
        pushed
    }

    /// Waits until all that this thread recorded is in the file. After `Ok`, killing the process loses none of it; a power cut
    /// loses what [`Durability`] says. After an error it is kept in memory and tried again.
    pub fn flush(&self) -> Result<(), StoreError> {
        self.inbox.flush(&self.thread)
    }

    /// What happened to the file so far that a person should know.
    pub fn warnings(&self) -> Vec<Warning> {
        self.inbox.warnings()
    }

    /// Why the background writer cannot write at the moment; `None` if it can.
    pub fn trouble(&self) -> Option<StoreError> {
        self.inbox.trouble()
    }

    /// Samples that were dropped because the ring was full or the directory may not be written.
    pub fn dropped(&self) -> u64 {
        self.inbox.dropped.load(Ordering::Relaxed)
    }

    /// Samples written by this process.
    pub fn written(&self) -> u64 {
        self.inbox.written.load(Ordering::Relaxed)
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// So many records more were taken in; says how many since the file was last brought within its bounds.
    pub(crate) fn took(&self, records: u64) -> u64 {
        self.taken.fetch_add(records, Ordering::Relaxed) + records
    }

    /// The file is brought within its bounds.
    pub(crate) fn took_all(&self) {
        self.taken.store(0, Ordering::Relaxed);
    }

    /// All that is known of a kind of machine, each series summed over its origins, in an order that does not depend on when
    /// it was learned.
    pub fn known(&self, fingerprint: &Fingerprint) -> Result<Vec<Known>, StoreError> {
        self.read_known(Which::Of(fingerprint.as_str()))
    }

    /// The same of one workload.
    pub fn known_of(
        &self,
        fingerprint: &Fingerprint,
        workload: &str,
    ) -> Result<Vec<Known>, StoreError> {
        self.read_known(Which::Workload(fingerprint.as_str(), workload))
    }

    /// All that is known of all kinds of machine.
    pub fn known_anywhere(&self) -> Result<Vec<Known>, StoreError> {
        self.read_known(Which::All)
    }

    fn read_known(&self, which: Which<'_>) -> Result<Vec<Known>, StoreError> {
        let rows = self.with(|conn| rows::select(conn, which))?;
        Ok(sum(rows, self.options.clock.now_s()))
    }

    /// The latest runs of a series as they came, oldest first of each origin.
    pub fn samples(&self, key: &SeriesKey) -> Result<Vec<RawSample>, StoreError> {
        let blobs = self.with(|conn| rows::samples(conn, key))?;
        Ok(blobs.iter().flat_map(|blob| unpack(blob)).collect())
    }

    /// Writes a note, in the background. `false` if too many are waiting.
    fn note(&self, kind: NoteKind, fingerprint: &Fingerprint, name: &str, body: Value) -> bool {
        let note = Note {
            kind,
            fingerprint: fingerprint.clone(),
            name: name.to_owned(),
            at_s: self.options.clock.now_s(),
            body,
        };
        let pushed = self.inbox.notes.push(note).is_ok();
        self.inbox.wake(&self.thread);
        pushed
    }

    fn notes<T: DeserializeOwned>(&self, kind: NoteKind) -> Result<Vec<(Note, T)>, StoreError> {
        let notes = self.with(|conn| rows::notes(conn, Some(kind)))?;
        let typed = notes.into_iter().filter_map(|note| {
            let body = serde_json::from_value(note.body.clone());
            // What another version wrote may be of another form.
            body.ok().map(|body| (note, body))
        });
        Ok(typed.collect())
    }

    /// Describes this machine, so that records can be compared by how like it theirs is. As with all notes: in the background, and
    /// `false` if too many are waiting.
    pub fn describe(&self, machine: &Machine) -> bool {
        let body = serde_json::to_value(machine).unwrap_or_default();
        self.note(NoteKind::Machine, &Fingerprint::of(machine), "", body)
    }

    /// The machines that records are known of.
    pub fn machines(&self) -> Result<Vec<(Fingerprint, Machine)>, StoreError> {
        let notes = self.notes(NoteKind::Machine)?;
        Ok(notes.into_iter().map(|(n, m)| (n.fingerprint, m)).collect())
    }

    /// Keeps how fast a kind of machine can be.
    pub fn calibrated(&self, fingerprint: &Fingerprint, calibration: &Calibration) -> bool {
        let body = serde_json::to_value(calibration).unwrap_or_default();
        self.note(NoteKind::Calibration, fingerprint, "", body)
    }

    /// How fast each kind of machine can be, as far as known.
    pub fn calibrations(&self) -> Result<Vec<(Fingerprint, Calibration)>, StoreError> {
        let notes = self.notes(NoteKind::Calibration)?;
        Ok(notes.into_iter().map(|(n, c)| (n.fingerprint, c)).collect())
    }

    /// Keeps what was decided; the latest for each workload.
    pub fn decided(&self, fingerprint: &Fingerprint, decision: &Decision) -> bool {
        let body = serde_json::to_value(decision).unwrap_or_default();
        let name = decision.workload.to_string();
        self.note(NoteKind::Decision, fingerprint, &name, body)
    }

    /// What was decided last for one workload; `None` if nothing was.
    pub fn decision(
        &self,
        fingerprint: &Fingerprint,
        workload: &str,
    ) -> Result<Option<Decision>, StoreError> {
        let kept = self.with(|conn| {
            rows::note_body(conn, NoteKind::Decision, fingerprint.as_str(), workload)
        })?;
        // What another version wrote may be of another form.
        Ok(kept.and_then(|kept| serde_json::from_value(kept).ok()))
    }

    /// What was decided last on a kind of machine, by workload.
    pub fn decisions(&self, fingerprint: &Fingerprint) -> Result<Vec<Decision>, StoreError> {
        let notes = self.notes(NoteKind::Decision)?;
        let here = notes
            .into_iter()
            .filter(|(note, _)| note.fingerprint == *fingerprint);
        Ok(here.map(|(_, decision)| decision).collect())
    }

    /// Keeps a kernel version away on a kind of machine, or lets it back in if the quarantine is lifted.
    pub fn quarantine(&self, fingerprint: &Fingerprint, quarantine: &Quarantine) -> bool {
        let body = serde_json::to_value(quarantine).unwrap_or_default();
        self.note(NoteKind::Quarantine, fingerprint, &quarantine.name(), body)
    }

    /// What is quarantined on a kind of machine, or was.
    pub fn quarantines(&self, fingerprint: &Fingerprint) -> Result<Vec<Quarantine>, StoreError> {
        let notes = self.notes(NoteKind::Quarantine)?;
        let here = notes
            .into_iter()
            .filter(|(note, _)| note.fingerprint == *fingerprint);
        Ok(here.map(|(_, quarantine)| quarantine).collect())
    }

    /// Keeps a trained model under a name. The JSON is its maker's.
    pub fn keep_model(&self, fingerprint: &Fingerprint, name: &str, model: Value) -> bool {
        self.note(NoteKind::Model, fingerprint, name, model)
    }

    /// The model of this name; `None` if there is none.
    pub fn model(
        &self,
        fingerprint: &Fingerprint,
        name: &str,
    ) -> Result<Option<Value>, StoreError> {
        self.with(|conn| rows::note_body(conn, NoteKind::Model, fingerprint.as_str(), name))
    }

    /// Runs a query on an open file that is still where its name says; once more if the file was found damaged.
    pub(crate) fn with<T>(
        &self,
        mut query: impl FnMut(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.in_session(|session| query(&mut session.conn).map_err(|e| session.error(e)))
    }

    /// The same for work that needs more than the connection. A file that turns out to be damaged is checked as a whole,
    /// which sets it aside, and the work is done on the new one: a start must not fail for want of records.
    pub(crate) fn in_session<T>(
        &self,
        mut work: impl FnMut(&mut Session) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut reader = lock(&self.reader);
        let mut session = match reader.take().filter(Session::still_there) {
            Some(session) => session,
            None => self.session(Look::Brief)?,
        };
        let mut answer = work(&mut session);
        if let Err(StoreError::Corrupt { .. }) = answer {
            drop(session);
            session = self.session(Look::Whole)?;
            answer = work(&mut session);
        }
        // One that is still damaged is opened anew the next time.
        if !matches!(answer, Err(StoreError::Corrupt { .. })) {
            *reader = Some(session);
        }
        answer
    }

    fn session(&self, look: Look) -> Result<Session, StoreError> {
        let now_s = self.options.clock.now_s();
        let (session, warnings) = Session::open(&self.dir, self.options.durability, now_s, look)?;
        self.inbox.warn(warnings);
        Ok(session)
    }
}

/// Sums records of one key; they come in order of keys. Each counts as of no later than a day from now.
pub(crate) fn sum(records: impl Iterator<Item = SeriesRecord>, now_s: u64) -> Vec<Known> {
    let most = records.size_hint().1.unwrap_or(0);
    let mut all: Vec<Known> = Vec::with_capacity(most);
    for mut record in records {
        record.statistics.rewind(latest(now_s));
        match all.last_mut() {
            Some(known) if known.key == record.key => known.statistics.merge(&record.statistics),
            _ => all.push(Known {
                key: record.key,
                statistics: record.statistics,
            }),
        }
    }
    all
}

impl Drop for Store {
    fn drop(&mut self) {
        self.inbox.stop(&self.thread);
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has said so.
            let _ = writer.join();
        }
    }
}
