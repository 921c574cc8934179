//! Two pieces of work at a time, where somebody is free.
//!
//! A fit is divided where it divides by itself: the features of a node, the two sides of a question. Who does which piece
//! changes no sum, so the trees are the same whether there are eight threads or one. Pieces that are done sooner than a
//! thread starts are not handed out; a table of some hundred rows never leaves its thread.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Rows times features of a piece that is worth a thread: some 250 µs of sums, ten times what it takes to start one. On a
/// machine that is busy otherwise smaller pieces wait for their turn longer than they take.
const WORTH_A_THREAD: usize = 1 << 18;
/// More threads than this wait for each other: the upper half of a tree has few pieces.
const MOST: usize = 8;

/// The threads a fit may use.
#[derive(Debug)]
pub(super) struct Crew {
    idle: AtomicUsize,
    /// Pieces below this stay where they are.
    worth: usize,
}

impl Crew {
    /// As many threads, the caller's among them, for pieces of at least this size.
    pub(super) fn of(threads: usize, worth: usize) -> Self {
        let idle = AtomicUsize::new(threads.saturating_sub(1));
        Self { idle, worth }
    }

    /// A crew for a fit that sums so many rows times features for a tree; it asks the system only if that is worth it.
    pub(super) fn for_work(work: usize) -> Self {
        let threads = if work < 2 * WORTH_A_THREAD {
            1
        } else {
            thread::available_parallelism().map_or(1, NonZeroUsize::get)
        };
        Self::of(threads.min(MOST), WORTH_A_THREAD)
    }

    /// How many they are while all are idle.
    pub(super) fn threads(&self) -> usize {
        self.idle.load(Ordering::Relaxed) + 1
    }

    /// Whether somebody is free for a piece of this size. The answer may be late by the time it is used, which costs time only.
    pub(super) fn is_free_for(&self, work: usize) -> bool {
        work >= self.worth && self.idle.load(Ordering::Relaxed) > 0
    }

    /// Does both, at the same time if somebody is free and the smaller piece is worth it.
    pub(super) fn both<A: Send, B>(
        &self,
        smaller: usize,
        first: impl FnOnce() -> A + Send,
        second: impl FnOnce() -> B,
    ) -> (A, B) {
        if smaller < self.worth || !self.engage() {
            return (first(), second());
        }
        // Whoever comes first takes it: the new thread, or this one if that one does not start.
        let piece = Mutex::new(Some(first));
        let take = || piece.lock().unwrap_or_else(PoisonError::into_inner).take();
        let done = thread::scope(|scope| {
            let work = || take().map(|first| first());
            let other = thread::Builder::new().spawn_scoped(scope, work).ok();
            let second = second();
            let here = take().map(|first| first());
            let there = other.map(thread::ScopedJoinHandle::join);
            (here, there, second)
        });
        self.idle.fetch_add(1, Ordering::Relaxed);
        match done {
            (Some(first), _, second) | (None, Some(Ok(Some(first))), second) => (first, second),
            // It panicked there, which is a bug: it goes on here, as it would have without a thread.
            (None, Some(Err(panic)), _) => std::panic::resume_unwind(panic),
            (None, Some(Ok(None)) | None, _) => unreachable!("a piece that was taken was done"),
        }
    }

    fn engage(&self) -> bool {
        let one_less = |idle: usize| idle.checked_sub(1);
        let order = Ordering::Relaxed;
        self.idle.fetch_update(order, order, one_less).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn both_pieces_are_done_by_whoever_is_there() {
        for threads in [0, 1, 2, 5] {
            let crew = Crew::of(threads, 10);
            for work in [9, 10] {
                let inner = || crew.both(work, || 1, || 2);
                assert_eq!(crew.both(work, inner, || 3), ((1, 2), 3));
            }
            // All are back.
            let idle = crew.idle.load(Ordering::Relaxed);
            assert_eq!(idle, threads.saturating_sub(1));
        }
    }

    #[test]
    fn large_pieces_leave_the_thread_and_small_ones_do_not() {
        let here = thread::current().id();
        let crew = Crew::of(2, 10);
        assert!(crew.is_free_for(10) && !crew.is_free_for(9));
        let (whose, ()) = crew.both(9, || thread::current().id(), || ());
        assert_eq!(whose, here);
        // The second piece is not done before the first is: that takes two.
        let (tell, told) = mpsc::channel();
        let first = move || tell.send(thread::current().id());
        let patience = std::time::Duration::from_secs(60);
        let (_, whose) = crew.both(10, first, || told.recv_timeout(patience));
        assert_ne!(whose, Ok(here));
        assert!(whose.is_ok());
    }

    #[test]
    fn small_tables_have_no_crew() {
        assert_eq!(Crew::for_work(1000).threads(), 1);
        assert_eq!(Crew::of(3, 1).threads(), 3);
        // What a selector fits: some thousand rows of some dozen features.
        assert!(!Crew::for_work(10_000 * 40).is_free_for(usize::MAX));
    }
}
