//! A case, and a thread's own place at it.
//!
//! A [`Seat`] is 24 bytes: the case, its number, the thread's copy of the published word, the stamp of that copy, and four
//! counts in one word. With the tag of its key it is half a cache line, all that a hit touches of a large table.

use std::any::Any;
use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::sync::{AtomicU32, AtomicU64, Mutex};
use super::word::{Known, Offer, Published, Word, stamp};
use crate::key::Key;
use crate::kinds::Kin;
use crate::learn::{LONGEST_PERIOD, Learned};

/// One workload with its candidates.
pub(crate) struct Case {
    pub(super) published: Published,
    pub(crate) key: Key,
    pub(crate) name: String,
    pub(crate) payload: Box<dyn Any + Send + Sync>,
    /// Calls that were counted so far; each thread adds its own now and then.
    calls: AtomicU64,
    /// How often the count of a thread's timed calls began anew.
    rounds: AtomicU32,
    /// When it was last seen in use, by a count of uses.
    pub(super) used: AtomicU64,
    pub(super) learned: Mutex<Learned>,
    /// Its place among those of its kind.
    pub(crate) kin: Option<Kin>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("name", &self.name).finish()
    }
}

impl Case {
    pub(super) fn new(
        (key, name): (Key, String),
        payload: Box<dyn Any + Send + Sync>,
        published: Published,
        learned: Learned,
        used: u64,
    ) -> Self {
        Self {
            published,
            key,
            name,
            payload,
            calls: AtomicU64::new(0),
            rounds: AtomicU32::new(0),
            used: AtomicU64::new(used),
            learned: Mutex::new(learned),
            kin: None,
        }
    }

    /// Tells it from others that had the same key before.
    pub(crate) fn serial(&self) -> u64 {
        self.published.number().into()
    }

    /// Calls that were counted so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

/// A case as a seat has it, with what most calls ask of it at hand: they need not go to the case itself.
pub(crate) struct Held {
    case: Arc<Case>,
    number: u32,
    /// What is known of the published word; the offer that was taken while a trial is begun.
    word: Cell<u32>,
}

impl Held {
    /// Tells the case from others that had the same key before.
    #[inline]
    pub(crate) fn serial(&self) -> u64 {
        self.number.into()
    }
}

impl Deref for Held {
    type Target = Arc<Case>;

    #[inline]
    fn deref(&self) -> &Arc<Case> {
        &self.case
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.case.fmt(f)
    }
}

/// A case in a thread's own table.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) case: Held,
    /// The stamp that the copy of the word was taken under.
    stamp: Cell<u32>,
    counts: Cell<Counts>,
}

/// What one call is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) candidate: usize,
    /// Calls that its time would stand for; zero if nobody wants to know it.
    pub(crate) calls: u32,
    /// The number of the trial it is.
    pub(crate) trial: Option<u16>,
}

/// Calls that a thread counts for itself before it tells: telling is a write that other threads notice.
const UNCOUNTED: u32 = 256;

/// Bits 0 to 3 the calls of this thread since it last took the time, 4 to 12 the calls that the case does not know of yet, 13
/// whether a trial was begun, 14 to 31 the calls whose time was wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counts(u32);

impl Counts {
    const CALLS: u32 = 0xf;
    const UNCOUNTED_AT: u32 = 4;
    const UNCOUNTED: u32 = 0x1ff;
    const BEGUN: u32 = 1 << 13;
    const TIMED_AT: u32 = 14;

    #[inline]
    fn calls(self) -> u32 {
        self.0 & Self::CALLS
    }

    #[inline]
    fn uncounted(self) -> u32 {
        self.0 >> Self::UNCOUNTED_AT & Self::UNCOUNTED
    }

    #[inline]
    fn is_begun(self) -> bool {
        self.0 & Self::BEGUN != 0
    }

    #[inline]
    fn timed(self) -> u32 {
        self.0 >> Self::TIMED_AT
    }

    /// One more call that is not timed.
    #[inline]
    fn called(self) -> Self {
        Self(self.0 + 1)
    }

    /// A call whose time is wanted, after so many others that it stands for as well.
    #[inline]
    fn taken(self, calls: u32) -> Self {
        let counted = (self.0 & !Self::CALLS) + (calls << Self::UNCOUNTED_AT);
        Self(counted.wrapping_add(1 << Self::TIMED_AT))
    }

    fn without_uncounted(self) -> Self {
        Self(self.0 & !(Self::UNCOUNTED << Self::UNCOUNTED_AT))
    }
}

// The longest run of calls fits its bits, on top of those that are not told yet.
const _: () = assert!(LONGEST_PERIOD <= Counts::CALLS / 2 + 1);
const _: () = assert!(UNCOUNTED + Counts::CALLS <= Counts::UNCOUNTED);

impl Seat {
    pub(crate) fn new(case: Arc<Case>) -> Self {
        let (stamp, word) = case.published.read();
        let seat = Self {
            case: Held {
                number: case.published.number(),
                case,
                word: Cell::new(word.known().bits()),
            },
            stamp: Cell::new(stamp),
            counts: Cell::new(Counts(0)),
        };
        if word.offer().is_some() {
            // A trial is no part of what is kept: the first call looks again.
            seat.stamp.set(stamp.wrapping_sub(1));
        }
        seat
    }

    /// Calls of this thread whose time was wanted, so far.
    pub(crate) fn timed_calls(&self) -> u32 {
        let rounds = self.case.rounds.load(Ordering::Relaxed);
        rounds << (u32::BITS - Counts::TIMED_AT) | self.counts.get().timed()
    }

    /// Who computes this call; `None` if nobody may.
    #[inline]
    pub(crate) fn pick(&self) -> Option<Pick> {
        let counts = self.counts.get();
        if self.stamp.get() != stamp(self.case.number) || counts.is_begun() {
            return self.look();
        }
        self.serve(Known::from_bits(self.case.word.get()))
    }

    /// A call that is no trial.
    #[inline]
    fn serve(&self, known: Known) -> Option<Pick> {
        let counts = self.counts.get();
        let calls = counts.calls() + 1;
        let candidate = known.serves();
        if calls & known.mask() != 0 {
            self.counts.set(counts.called());
            return Some(Pick {
                candidate,
                calls: 0,
                trial: None,
            });
        }
        if !known.is_somebody() {
            return None;
        }
        self.take_time();
        Some(Pick {
            candidate,
            calls,
            trial: None,
        })
    }

    /// Counts a call whose time is wanted.
    #[inline]
    fn take_time(&self) -> u32 {
        let calls = self.counts.get().calls() + 1;
        let counts = self.counts.get().taken(calls);
        self.counts.set(counts);
        if counts.uncounted() >= UNCOUNTED || counts.timed() == 0 {
            self.tell();
        }
        calls
    }

    #[cold]
    fn tell(&self) {
        if self.counts.get().timed() == 0 {
            self.case.rounds.fetch_add(1, Ordering::Relaxed);
        }
        self.count();
    }

    /// A call that looks at what is published: something changed, or a trial goes on.
    #[cold]
    fn look(&self) -> Option<Pick> {
        if self.counts.get().is_begun() {
            return self.go_on();
        }
        let (stamp, mut word) = self.case.published.read();
        while word.offer().is_some() {
            match self.case.published.take(word) {
                Ok(()) => return self.begin(word),
                Err(now) => word = now,
            }
        }
        self.stamp.set(stamp);
        self.case.word.set(word.known().bits());
        self.serve(word.known())
    }

    /// The first call of a trial: it finds caches cold, the next one is timed.
    fn begin(&self, word: Word) -> Option<Pick> {
        let offer = word.offer()?;
        self.take_time();
        self.case.word.set(offer.bits());
        self.counts.set(Counts(self.counts.get().0 | Counts::BEGUN));
        Some(Pick {
            candidate: offer.candidate(),
            calls: 0,
            trial: None,
        })
    }

    /// The second call of a trial, unless who is tried was barred since.
    fn go_on(&self) -> Option<Pick> {
        let offer = Offer::from_bits(self.case.word.get());
        let candidate = offer.candidate();
        let Ok(learned) = self.case.learned.try_lock() else {
            // Somebody is learning, and nobody waits: the trial goes on with the next call.
            let (_, word) = self.case.published.read();
            return self.serve(word.known());
        };
        let barred = learned.is_barred(candidate);
        drop(learned);
        let begun = self.counts.get().0;
        self.counts.set(Counts(begun & !Counts::BEGUN));
        // The copy is none: the next call makes it anew.
        self.stamp.set(stamp(self.case.number).wrapping_sub(1));
        if barred {
            return self.look();
        }
        Some(Pick {
            candidate,
            calls: self.take_time(),
            trial: Some(offer.serial()),
        })
    }

    /// Tells the case what this thread counted.
    pub(super) fn count(&self) {
        let counts = self.counts.get();
        let calls = counts.uncounted();
        if calls > 0 {
            self.counts.set(counts.without_uncounted());
            self.case.calls.fetch_add(calls.into(), Ordering::Relaxed);
        }
    }
}

impl Drop for Seat {
    /// What was not counted yet is counted now.
    fn drop(&mut self) {
        let counts = self.counts.get();
        let calls = counts.uncounted() + counts.calls();
        if calls > 0 {
            self.case.calls.fetch_add(calls.into(), Ordering::Relaxed);
        }
    }
}
