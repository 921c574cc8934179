//! What the learner tells callers of a case, in one word, and how they notice that it changed.
//!
//! Callers keep their own copy of the word beside their counts, so that a call that finds its seat has all it needs in
//! one cache line, however many cases there are. A [stamp](Stamps) says whether the copy still holds: the learner changes the word,
//! then the stamp; who reads takes the stamp, then the word. A word that changes in between is read once more than needed, never
//! once too few. There are 4,096 stamps, 16 KiB that stay in the nearest cache; cases that share one look again now and then
//! for the sake of another.
//!
//! A trial is offered in the word and taken by whoever exchanges it for the word without it: one thread, however many
//! see it. It is never part of a copy.

use std::sync::atomic::Ordering;

use super::sync::{AtomicU32, AtomicU64, LINES, STAMPS};
use crate::learn::{Learned, Rules};

/// What is published: in the lower half what callers keep ([`Known`]), in the upper half an [`Offer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(u64);

/// Bits 0 to 15 who serves, 16 to 23 the logarithm of the period, 24 whether there is anybody at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known(u32);

/// A trial: bits 0 to 15 who is to be tried plus one, 16 to 31 the number of the trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offer(u32);

impl Word {
    pub(super) fn of(learned: &Learned, rules: &Rules) -> Self {
        let Some(choice) = learned.choice() else {
            return Self(0);
        };
        let trial = learned.trial().map_or(0, |trial| {
            (trial.candidate as u64 + 1) | (u64::from(trial.serial) << 16)
        });
        let period = u64::from(learned.period(rules).trailing_zeros());
        let known = choice.serves as u64 | period << 16 | u64::from(Known::SOMEBODY);
        Self(known | trial << 32)
    }

    #[inline]
    pub(super) fn known(self) -> Known {
        Known(self.0 as u32)
    }

    pub(super) fn offer(self) -> Option<Offer> {
        let offer = (self.0 >> 32) as u32;
        (offer != 0).then_some(Offer(offer))
    }

    pub(super) fn without_offer(self) -> Self {
        Self(self.0 & 0xffff_ffff)
    }

    /// Served by another.
    pub(super) fn served_by(self, candidate: usize) -> Self {
        Self(self.0 & !0xffff | candidate as u64)
    }
}

impl Known {
    const SOMEBODY: u32 = 1 << 24;

    #[inline]
    pub(super) fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline]
    pub(super) fn bits(self) -> u32 {
        self.0
    }

    #[inline]
    pub(super) fn serves(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    /// One less than the period, a power of two.
    #[inline]
    pub(super) fn mask(self) -> u32 {
        (1 << (self.0 >> 16 & 0x1f)) - 1
    }

    #[inline]
    pub(super) fn is_somebody(self) -> bool {
        self.0 & Self::SOMEBODY != 0
    }
}

impl Offer {
    pub(super) fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub(super) fn bits(self) -> u32 {
        self.0
    }

    pub(super) fn candidate(self) -> usize {
        // Never zero: that is no offer.
        (self.0 & 0xffff) as usize - 1
    }

    pub(super) fn serial(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

/// The stamps in a line.
const COLUMNS: usize = 16;

/// Counts of changes, each for the cases of some numbers.
pub(super) struct Stamps([Line; LINES]);

#[repr(align(64))]
struct Line([AtomicU32; COLUMNS]);

impl Stamps {
    pub(super) const fn new() -> Self {
        Self([const { Line([const { AtomicU32::new(0) }; COLUMNS]) }; LINES])
    }

    #[inline]
    fn of(&self, number: u32) -> &AtomicU32 {
        &self.0[number as usize % LINES].0[number as usize / LINES % COLUMNS]
    }
}

/// The stamp of the case of this number.
#[inline]
pub(super) fn stamp(number: u32) -> u32 {
    STAMPS.of(number).load(Ordering::Acquire)
}

/// The word of a case, for all to read.
pub(super) struct Published {
    word: AtomicU64,
    number: u32,
}

impl Published {
    pub(super) fn new(word: Word, number: u32) -> Self {
        Self {
            word: AtomicU64::new(word.0),
            number,
        }
    }

    #[inline]
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// The stamp, and a word at least as new.
    pub(super) fn read(&self) -> (u32, Word) {
        let stamp = stamp(self.number);
        (stamp, Word(self.word.load(Ordering::Relaxed)))
    }

    /// Takes the trial that was seen, unless another thread did or something else is published by now.
    pub(super) fn take(&self, seen: Word) -> Result<(), Word> {
        let taken = seen.without_offer().0;
        let (order, word) = (Ordering::Relaxed, &self.word);
        let exchange = word.compare_exchange(seen.0, taken, order, order);
        // What callers keep is the same without the trial: no stamp has to change.
        exchange.map(drop).map_err(Word)
    }

    /// Puts another word in the place of the one that is there. Nothing is written that is there already: readers would
    /// notice.
    pub(super) fn publish(&self, next: impl Fn(Word) -> Word) {
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            let next = next(Word(seen)).0;
            if next == seen {
                return;
            }
            let order = Ordering::Relaxed;
            match self.word.compare_exchange(seen, next, order, order) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        STAMPS.of(self.number).fetch_add(1, Ordering::Release);
    }
}
