//! Sharing one call among threads.
//!
//! The number of threads is a parameter of a kernel, so there is one [`Crew`] per number, made on first use
//! and kept. One thread means the caller's own: nothing is woken. Work is cut into as many pieces as the schedule
//! wants; whoever is free takes the next.
//!
//! A crew that cannot be made (no more threads from the system) leaves the caller to do the work alone: slower,
//! and right.

use std::ops::Range;
use std::sync::OnceLock;

use kernelwise_threads::Crew;

/// Most threads a kernel is run with.
pub(crate) const MAX_THREADS: usize = kernelwise_backend::MAX_THREADS as usize;

/// How work is cut into pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// One piece per thread: least overhead when all threads are equally fast.
    Static,
    /// Several pieces per thread: the fast ones take more, which helps under load.
    Dynamic,
}

/// Pieces per thread under [`Schedule::Dynamic`].
const PIECES: usize = 8;

impl Schedule {
    /// A parameter of this name: 0 is static, anything else dynamic.
    pub(crate) fn of(knob: u32) -> Self {
        if knob == 0 {
            Self::Static
        } else {
            Self::Dynamic
        }
    }

    /// Into how many pieces `threads` threads cut their work.
    fn pieces(self, threads: usize) -> usize {
        match self {
            Self::Static => threads,
            Self::Dynamic => threads * PIECES,
        }
    }
}

/// The threads that a parameter stands for: none, or more than there can be, are the caller alone.
pub(crate) fn threads(knob: u32) -> usize {
    match knob as usize {
        threads @ 2..=MAX_THREADS => threads,
        _ => 1,
    }
}

/// What is said of a schedule where there is nobody to share with; for `Space::with_constraint`.
pub(crate) const SHARED_ONLY: &str = "threads > 1 or schedule = 0";

/// The crew of exactly this many threads, the caller among them; `None` for one thread, for more than [`MAX_THREADS`], or if the
/// system refuses.
pub(crate) fn crew(threads: usize) -> Option<&'static Crew> {
    static CREWS: [OnceLock<Option<Crew>>; MAX_THREADS + 1] =
        [const { OnceLock::new() }; MAX_THREADS + 1];
    if threads < 2 {
        return None;
    }
    let slot = CREWS.get(threads)?;
    slot.get_or_init(|| Crew::new(threads).ok()).as_ref()
}

/// Calls `body` on pieces of `0..items`, on so many threads. Pieces begin at multiples of `grain` and do not
/// overlap; together they are the whole. `body` also gets the piece's number, below
/// [`most_pieces`].
///
/// The body is called through a pointer: what shares it out is then compiled once, not once per kernel.
pub(crate) fn share(
    threads: usize,
    schedule: Schedule,
    items: usize,
    grain: usize,
    body: impl Fn(usize, Range<usize>) + Sync,
) {
    share_dyn(threads, schedule, items, grain, &body);
}

fn share_dyn(
    threads: usize,
    schedule: Schedule,
    items: usize,
    grain: usize,
    body: &(dyn Fn(usize, Range<usize>) + Sync),
) {
    if threads < 2 {
        // Nothing to cut up: a small call would notice the divisions.
        #[cfg(test)]
        trace::note(threads, 1);
        if items > 0 {
            body(0, 0..items);
        }
        return;
    }
    let grain = grain.max(1);
    let grains = items.div_ceil(grain);
    let crew = crew(threads);
    let pieces = match crew {
        Some(_) => schedule.pieces(threads).min(grains),
        None => 1,
    };
    #[cfg(test)]
    trace::note(threads, pieces);
    let range = |piece: usize| {
        let at = |piece: usize| (piece * grains / pieces.max(1) * grain).min(items);
        at(piece)..at(piece + 1)
    };
    match crew {
        Some(crew) if pieces > 1 => crew.share(pieces, &|n| body(n, range(n))),
        _ if items > 0 => body(0, 0..items),
        _ => {}
    }
}

/// How many pieces [`share`] makes at most: what to provide when each needs memory of its own.
pub(crate) fn most_pieces(threads: usize, schedule: Schedule) -> usize {
    if threads < 2 {
        1
    } else {
        schedule.pieces(threads)
    }
}

/// Cuts a slice among threads: `body` gets the position of its piece and the piece. Pieces begin at multiples
/// of `grain`.
#[allow(unsafe_code)]
pub(crate) fn share_slice<T: Send>(
    threads: usize,
    schedule: Schedule,
    slice: &mut [T],
    grain: usize,
    body: impl Fn(usize, &mut [T]) + Sync,
) {
    let start = Start::new(slice.as_mut_ptr());
    share_dyn(threads, schedule, slice.len(), grain, &|_, range| {
        // SAFETY: `share` hands out ranges inside the slice that do not overlap, so each piece is
        // exclusive while its body runs; `slice` is borrowed until all of them are done.
        let piece = unsafe { std::slice::from_raw_parts_mut(start.at(range.start), range.len()) };
        body(range.start, piece);
    });
}

/// Where something begins that threads share, each with a part of its own.
pub(crate) struct Start<T>(*mut T);

impl<T> Clone for Start<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Start<T> {}

// SAFETY: the pointer is only a number until someone uses it, which takes an unsafe block of its own.
#[allow(unsafe_code)]
unsafe impl<T: Send> Send for Start<T> {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for Start<T> {}

impl<T> Start<T> {
    /// At this pointer.
    pub(crate) fn new(first: *mut T) -> Self {
        Self(first)
    }

    /// The element so many further; whether there is one is for the caller to know.
    pub(crate) fn at(self, position: usize) -> *mut T {
        self.0.wrapping_add(position)
    }
}

/// How the kernels called on this thread shared their work.
#[cfg(test)]
pub(crate) mod trace {
    use std::cell::RefCell;

    thread_local! {
        static ASKED: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
    }

    /// So many threads for so many pieces.
    pub(crate) fn note(threads: usize, pieces: usize) {
        ASKED.with_borrow_mut(|asked| asked.push((threads, pieces)));
    }

    /// What was asked since the last time.
    pub(crate) fn take() -> Vec<(usize, usize)> {
        ASKED.take()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn pieces_cover_everything_once_on_grain_borders() {
        for threads in [1, 2, 3, 7] {
            for schedule in [Schedule::Static, Schedule::Dynamic] {
                for (items, grain) in [(0, 4), (1, 4), (3, 1), (100, 16), (101, 16), (1000, 1)] {
                    let seen = Mutex::new(vec![0u32; items]);
                    let numbers = Mutex::new(HashSet::new());
                    share(threads, schedule, items, grain, |number, range| {
                        assert!(range.start % grain == 0 && !range.is_empty());
                        assert!(number < most_pieces(threads, schedule));
                        assert!(
                            numbers.lock().unwrap().insert(number),
                            "piece numbers repeat"
                        );
                        seen.lock().unwrap()[range].iter_mut().for_each(|n| *n += 1);
                    });
                    assert!(seen.lock().unwrap().iter().all(|n| *n == 1));

                    let mut slice = vec![0usize; items];
                    share_slice(threads, schedule, &mut slice, grain, |position, piece| {
                        assert!(position % grain == 0 && !piece.is_empty());
                        for (i, value) in piece.iter_mut().enumerate() {
                            *value += position + i + 1;
                        }
                    });
                    assert!(slice.iter().enumerate().all(|(i, v)| *v == i + 1));
                }
            }
        }
    }

    #[test]
    fn the_threads_asked_for_are_there_and_one_is_the_caller() {
        assert!([2, 3].iter().all(|n| crew(*n).unwrap().threads() == *n));
        assert!([0, 1, MAX_THREADS + 1].iter().all(|n| crew(*n).is_none()));
        let here = std::thread::current().id();
        let mine = Mutex::new(0);
        share(2, Schedule::Dynamic, 1000, 1, |_, _| {
            *mine.lock().unwrap() += usize::from(std::thread::current().id() == here);
        });
        assert!(mine.into_inner().unwrap() > 0);
        share(1, Schedule::Dynamic, 10, 1, |_, range| {
            assert_eq!((std::thread::current().id(), range), (here, 0..10));
        });
    }

    #[test]
    fn a_dynamic_schedule_makes_more_pieces() {
        let count = |schedule| {
            let pieces = Mutex::new(0);
            share(2, schedule, 1000, 1, |_, _| *pieces.lock().unwrap() += 1);
            pieces.into_inner().unwrap()
        };
        assert_eq!((count(Schedule::Static), count(Schedule::Dynamic)), (2, 16));
    }

    #[test]
    fn parameters_out_of_range_are_the_caller_alone() {
        assert_eq!(
            [0, 1, 2, 256, 257, u32::MAX].map(threads),
            [1, 1, 2, 256, 1, 1]
        );
    }

    #[test]
    fn too_many_threads_are_the_caller_alone() {
        let pieces = Mutex::new(0);
        share(MAX_THREADS + 1, Schedule::Static, 10, 1, |_, _| {
            *pieces.lock().unwrap() += 1
        });
        assert_eq!(pieces.into_inner().unwrap(), 1);
    }
}
