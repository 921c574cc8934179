//! From the caller's thread to the file.
//!
//! Recording is a push into a ring of fixed size. A thread empties it twenty times a second, adds what it finds up by
//! series, and writes that in one transaction; so a million runs of a thousand series are a thousand rows. It sleeps when
//! nothing comes, and the next sample wakes it.
//!
//! What cannot be written waits in memory, as sums, so it is bounded by the number of series and not of samples, and is
//! tried again. What finds the ring full is dropped and counted: the caller is never made to wait.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::Thread;
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use kernelwise_types::Fingerprint;
use rusqlite::{Transaction, TransactionBehavior};

use super::rows;
use super::session::{Durability, Look, Session};
use crate::error::{StoreError, Warning};
use crate::key::{Digest, SeriesKey};
use crate::note::{Note, NoteKind};
use crate::retention;
use crate::samples::{Packed, RECENT};
use crate::statistics::{Happened, Statistics};
use crate::store::WallClock;

/// Samples on their way: at 32 bytes each this is two megabytes, and a tenth of a second of a program that times 600,000
/// calls a second.
const RING: usize = 1 << 16;
/// Notes on their way.
const NOTES: usize = 1 << 12;
/// How long samples wait to be written together.
const PAUSE: Duration = Duration::from_millis(50);
/// How many pauses it waits after a failure, unless somebody asks: a second.
const RETRY: u32 = 20;
/// Pauses without work after which the thread sleeps until it is woken.
const IDLE: u32 = 20;
/// Samples that are summed up before they are written: no fewer than the ring holds, so that one round takes all that was there
/// when somebody asked.
const BATCH: usize = RING;

/// A sample on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    pub(crate) slot: u32,
    pub(crate) happened: Happened,
    pub(crate) packed: Packed,
}

/// A key that samples are recorded under, with its digest.
#[derive(Debug)]
pub(crate) struct Keyed {
    pub(crate) key: SeriesKey,
    pub(crate) digest: Digest,
}

/// The numbers of keys.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    numbers: HashMap<Arc<SeriesKey>, u32>,
    keys: Vec<Arc<Keyed>>,
}

/// What callers and the writer share.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) ring: ArrayQueue<Item>,
    pub(crate) notes: ArrayQueue<Note>,
    slots: RwLock<Slots>,
    pub(crate) dropped: AtomicU64,
    pub(crate) written: AtomicU64,
    sleeping: AtomicBool,
    stop: AtomicBool,
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How many times somebody asked for everything to be written.
    asked: u64,
    /// The last of these that was answered, and how.
    done: u64,
    last: Option<StoreError>,
    warnings: Vec<Warning>,
    ended: bool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that panics runs under these locks; if it did, the state would still be whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self {
            ring: ArrayQueue::new(RING),
            notes: ArrayQueue::new(NOTES),
            slots: RwLock::default(),
            dropped: AtomicU64::new(0),
            written: AtomicU64::new(0),
            sleeping: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            state: Mutex::default(),
            answered: Condvar::new(),
        }
    }

    /// The number of a key, the same for the same key.
    pub(crate) fn slot(&self, key: &SeriesKey) -> u32 {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = slots.numbers.get(key) {
            return *number;
        }
        drop(slots);
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = slots.numbers.get(key) {
            return *number;
        }
        let number = u32::try_from(slots.keys.len()).unwrap_or(u32::MAX);
        let keyed = Keyed {
            digest: key.digest(),
            key: key.clone(),
        };
        slots.keys.push(Arc::new(keyed));
        slots.numbers.insert(Arc::new(key.clone()), number);
        number
    }

    fn keyed(&self, slot: u32) -> Option<Arc<Keyed>> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.keys.get(slot as usize).cloned()
    }

    /// Wakes the writer if it sleeps. The load is all that most calls pay.
    #[inline]
    pub(crate) fn wake(&self, writer: &Thread) {
        if self.sleeping.load(Ordering::SeqCst) {
            self.sleeping.store(false, Ordering::SeqCst);
            writer.unpark();
        }
    }

    /// Asks for everything that was pushed to be written, and waits for the answer.
    pub(crate) fn flush(&self, writer: &Thread) -> Result<(), StoreError> {
        let mut state = lock(&self.state);
        state.asked += 1;
        let mine = state.asked;
        writer.unpark();
        while state.done < mine {
            if state.ended {
                return Err(StoreError::Closed);
            }
            let waited = self.answered.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.last.clone().map_or(Ok(()), Err)
    }

    /// Tells those who asked, up to this one, how the latest attempt went. What is still in the ring came later.
    fn answer(&self, asked: u64, failure: Option<StoreError>) {
        let mut state = lock(&self.state);
        if let (Some(error), None) = (&failure, &state.last) {
            tracing::warn!(%error, "what was learned is not written for now");
        }
        (state.last, state.done) = (failure, asked);
        self.answered.notify_all();
    }

    /// Why the latest attempt to write failed; `None` if it did not.
    pub(crate) fn trouble(&self) -> Option<StoreError> {
        lock(&self.state).last.clone()
    }

    pub(crate) fn warnings(&self) -> Vec<Warning> {
        lock(&self.state).warnings.clone()
    }

    pub(crate) fn warn(&self, warnings: Vec<Warning>) {
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        let mut state = lock(&self.state);
        // The same thing over and over is one warning.
        for warning in warnings {
            if !state.warnings.contains(&warning) {
                state.warnings.push(warning);
            }
        }
    }

    pub(crate) fn stop(&self, writer: &Thread) {
        self.stop.store(true, Ordering::SeqCst);
        writer.unpark();
    }
}

/// What was summed up and is not written yet.
#[derive(Debug, Default)]
struct Pending {
    series: HashMap<u32, Waiting>,
    notes: BTreeMap<(NoteKind, Fingerprint, String), Note>,
    samples: u64,
}

#[derive(Debug, Default)]
struct Waiting {
    statistics: Statistics,
    samples: Vec<(u64, Packed)>,
}

/// Tells those who wait that nobody will answer, also if the thread panics: the clock is the caller's.
struct Ended<'a>(&'a Inbox);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).ended = true;
        self.0.answered.notify_all();
    }
}

/// The thread's side.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) dir: PathBuf,
    pub(crate) durability: Durability,
    pub(crate) clock: WallClock,
    pub(crate) most_series: u64,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) session: Option<Session>,
    pub(crate) look: Look,
}

impl Writer {
    /// Works until the store is dropped.
    pub(crate) fn run(mut self) {
        let inbox = self.inbox.clone();
        let _ended = Ended(&inbox);
        let mut pending = Pending::default();
        // The first transaction tidies up.
        let mut inserted = u64::MAX;
        let (mut quiet, mut wait) = (0, 0);
        loop {
            let stop = inbox.stop.load(Ordering::SeqCst);
            let (asked, hurried) = {
                let state = lock(&inbox.state);
                (state.asked, state.asked > state.done)
            };
            let now_s = self.clock.now_s();
            let more = pending.drain(&inbox, now_s);
            let idle = pending.is_empty();
            if wait == 0 || hurried || stop {
                let result = self.write(&mut pending, now_s, &mut inserted);
                wait = if result.is_err() { RETRY } else { 0 };
                inbox.answer(asked, result.err());
            } else {
                // After a failure samples are still taken and summed up, or the ring would run over.
                wait -= 1;
            }
            if more {
                continue;
            }
            if stop {
                return;
            }
            quiet = if idle { quiet + 1 } else { 0 };
            if quiet < IDLE {
                std::thread::park_timeout(PAUSE);
                continue;
            }
            inbox.sleeping.store(true, Ordering::SeqCst);
            // A push before the flag was seen did not wake anybody: look once more.
            let asked_since = lock(&inbox.state).asked != asked;
            let stopped = inbox.stop.load(Ordering::SeqCst);
            if inbox.ring.is_empty() && inbox.notes.is_empty() && !asked_since && !stopped {
                std::thread::park();
            }
            inbox.sleeping.store(false, Ordering::SeqCst);
            quiet = 0;
        }
    }

    /// Writes what is pending; keeps it if that fails.
    fn write(
        &mut self,
        pending: &mut Pending,
        now_s: u64,
        inserted: &mut u64,
    ) -> Result<(), StoreError> {
        let read_only = self.session.as_ref().filter(|session| !session.writable);
        if let Some(session) = read_only {
            // It would wait for ever.
            let lost = pending.samples;
            self.inbox.dropped.fetch_add(lost, Ordering::Relaxed);
            pending.clear();
            let path = session.path.clone();
            return Err(StoreError::ReadOnly { path });
        }
        if pending.is_empty() {
            return Ok(());
        }
        match self.attempt(pending, now_s, inserted) {
            // Opening it anew set it aside; the new one takes what is pending.
            Err(StoreError::Corrupt { .. }) => self.attempt(pending, now_s, inserted),
            written => written,
        }
    }

    fn attempt(
        &mut self,
        pending: &mut Pending,
        now_s: u64,
        inserted: &mut u64,
    ) -> Result<(), StoreError> {
        self.ready(now_s)?;
        let Some(session) = &mut self.session else {
            return Err(StoreError::Closed);
        };
        let written = put(session, &self.inbox, pending);
        if written.is_ok() {
            // At once: whatever fails after the commit must not write it again.
            let samples = pending.samples;
            *inserted = inserted.saturating_add(pending.series.len() as u64);
            pending.clear();
            self.inbox.written.fetch_add(samples, Ordering::Relaxed);
        }
        let tidied = match &written {
            // Counting is a scan; the bound may be passed by a little between two.
            Ok(()) if *inserted > (self.most_series / 16).max(64) => {
                *inserted = 0;
                retention::bound(session, self.most_series, now_s)
            }
            _ => Ok(()),
        };
        if let Err(error) = &tidied {
            tracing::warn!(%error, "the store could not be tidied up");
        }
        if let Err(StoreError::Corrupt { .. } | StoreError::Sqlite { .. }) =
            written.as_ref().and(tidied.as_ref())
        {
            // Opened anew the next time, which sets aside what is damaged.
            self.session = None;
            self.look = Look::Whole;
        }
        written
    }

    /// An open file that is still where its name says.
    fn ready(&mut self, now_s: u64) -> Result<(), StoreError> {
        if let Some(session) = &self.session {
            if session.still_there() {
                return Ok(());
            }
            let path = session.path.clone();
            let known = self.inbox.warnings();
            let set_aside = |warning: &Warning| matches!(warning, Warning::SetAside { .. });
            if !known.iter().any(set_aside) {
                self.inbox.warn(vec![Warning::Vanished { path }]);
            }
            self.session = None;
        }
        let (session, warnings) = Session::open(&self.dir, self.durability, now_s, self.look)?;
        self.look = Look::Brief;
        self.inbox.warn(warnings);
        self.session = Some(session);
        Ok(())
    }
}

/// One transaction: all of it or nothing.
fn put(session: &mut Session, inbox: &Inbox, pending: &Pending) -> Result<(), StoreError> {
    session.same_format()?;
    let path = session.path.clone();
    let sqlite = |e| StoreError::sqlite(&path, e);
    let transaction =
        Transaction::new(&mut session.conn, TransactionBehavior::Immediate).map_err(sqlite)?;
    let write = || -> rusqlite::Result<()> {
        let (origin, revision) = rows::next_revision(&transaction)?;
        for (slot, waiting) in &pending.series {
            let Some(keyed) = inbox.keyed(*slot) else {
                continue;
            };
            rows::add(
                &transaction,
                &keyed.key,
                &keyed.digest,
                &origin,
                revision,
                &waiting.statistics,
                &waiting.samples,
            )?;
        }
        for note in pending.notes.values() {
            rows::put_note(&transaction, note, revision)?;
        }
        Ok(())
    };
    write().map_err(sqlite)?;
    transaction.commit().map_err(sqlite)
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.series.is_empty() && self.notes.is_empty()
    }

    fn clear(&mut self) {
        self.series.clear();
        self.notes.clear();
        self.samples = 0;
    }

    /// Takes what is in the ring, up to a batch; says whether there was more.
    fn drain(&mut self, inbox: &Inbox, now_s: u64) -> bool {
        while let Some(note) = inbox.notes.pop() {
            // Of notes on one thing the last counts, so what waits is bounded by the number of things.
            self.notes.insert(note.subject(), note);
        }
        for _ in 0..BATCH {
            let Some(item) = inbox.ring.pop() else {
                return false;
            };
            self.samples += 1;
            let waiting = self.series.entry(item.slot).or_default();
            waiting.statistics.push(item.happened, now_s);
            if matches!(item.happened, Happened::Timed(_)) {
                if waiting.samples.len() == 2 * RECENT {
                    waiting.samples.drain(..RECENT);
                }
                waiting.samples.push((now_s, item.packed));
            }
        }
        true
    }
}
