//! The memory that bandwidth tests work on: one allocation, cut into equal segments by thread.
//!
//! Tests of caches repeat the beginning of each segment. Tests of main memory walk through the segments
//! in windows and begin again at the end, so that a short sample still meets memory that was last
//! touched a whole arena ago. That holds only while nothing else touches the arena, hence
//! [`Arena::sweep`].

use std::collections::TryReserveError;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::CalibrateError;
use super::crew::{Crew, Until};
use super::loops::Block;

/// How much a thread writes before it looks whether it should stop.
const TOUCH_BLOCKS: usize = (4 << 20) / Block::BYTES;

/// Memory for bandwidth tests.
#[derive(Debug, Default)]
pub(super) struct Arena {
    blocks: Vec<Block>,
    /// Where each thread's next window begins, in its segment.
    cursors: Vec<usize>,
    /// The thread count of the walk that is under way, if nothing came in between.
    walking: Option<usize>,
}

/// What one sample does to a thread's segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// Its length.
    pub(super) blocks: usize,
    /// Whether the next sample takes the next window, or the same one again.
    pub(super) moves: bool,
}

impl Arena {
    /// Allocates `bytes`, without touching them yet.
    pub(super) fn reserve(bytes: u64) -> Result<Self, TryReserveError> {
        let mut blocks = Vec::new();
        // More than the address space holds is refused by the allocator in the same words.
        let wanted = usize::try_from(bytes).unwrap_or(usize::MAX);
        blocks.try_reserve_exact(wanted.div_ceil(Block::BYTES))?;
        Ok(Self {
            blocks,
            ..Self::default()
        })
    }

    /// Writes to all of it from `threads` threads, so that every page exists and lies next to the
    /// thread that will use it when all threads run.
    pub(super) fn touch(&mut self, crew: &Crew<'_>, threads: usize) -> Result<(), CalibrateError> {
        let room = self.blocks.spare_capacity_mut();
        let (blocks, written) = (room.len(), AtomicUsize::new(0));
        if blocks == 0 {
            return Ok(());
        }
        huge_pages::advise(room);
        let workers = room
            .chunks_mut(blocks.div_ceil(threads.max(1)))
            .map(|segment| {
                let written = &written;
                || {
                    for piece in segment.chunks_mut(TOUCH_BLOCKS) {
                        if crew.check_cancelled().is_err() {
                            return;
                        }
                        piece.fill(MaybeUninit::new(Block::of(1.0)));
                        written.fetch_add(piece.len(), Ordering::Relaxed);
                    }
                }
            })
            .collect();
        // No sample is asked for, so every worker runs once.
        let once = Until {
            deadline: 0,
            least: 0,
        };
        crew.sample(workers, once)?;
        if written.into_inner() != blocks {
            return Err(CalibrateError::Cancelled);
        }
        let length = self.blocks.len() + blocks;
        // SAFETY: `length` is the capacity, of which the first part was initialised before and each
        // of the other `blocks` was counted when written; the threads ended with the run.
        unsafe { self.blocks.set_len(length) };
        Ok(())
    }

    /// Blocks in each of `threads` segments.
    pub(super) fn segment_blocks(&self, threads: usize) -> usize {
        self.blocks.len() / threads.max(1)
    }

    /// One worker per thread that does `pass` to its window. The arena must hold one for each.
    pub(super) fn workers<'a, P>(
        &'a mut self,
        threads: usize,
        window: Window,
        pass: P,
    ) -> Vec<impl FnMut() + Send + 'a>
    where
        P: Fn(&mut [Block]) + Copy + Send + 'a,
    {
        if !window.moves {
            self.walking = None;
        }
        let length = self.segment_blocks(threads);
        let taken = window.blocks.min(length);
        self.cursors.resize(threads.max(self.cursors.len()), 0);
        self.blocks
            .chunks_exact_mut(length.max(1))
            .zip(&mut self.cursors)
            .take(threads)
            .map(|(segment, cursor)| {
                move || {
                    let begin = match *cursor {
                        cursor if window.moves && cursor + taken <= segment.len() => cursor,
                        _ => 0,
                    };
                    pass(&mut segment[begin..begin + taken]);
                    if window.moves {
                        *cursor = begin + taken;
                    }
                }
            })
            .collect()
    }

    /// Prepares a walk of `threads` threads: unless it is already under way, goes through the whole
    /// arena once with `pass` and starts again at the beginning, which is then the part that was
    /// touched longest ago.
    pub(super) fn sweep<P>(
        &mut self,
        crew: &Crew<'_>,
        threads: usize,
        blocks: usize,
        pass: P,
    ) -> Result<(), CalibrateError>
    where
        P: Fn(&mut [Block]) + Copy + Send,
    {
        if self.walking == Some(threads) {
            return Ok(());
        }
        self.cursors.fill(0);
        let windows = self.segment_blocks(threads) / blocks.max(1);
        let window = Window {
            blocks,
            moves: true,
        };
        let until = Until {
            deadline: 0,
            least: windows,
        };
        crew.sample(self.workers(threads, window, pass), until)?;
        self.cursors.fill(0);
        self.walking = Some(threads);
        Ok(())
    }
}

/// Large pages, where the kernel gives them to those who ask. With small ones the ceiling would be
/// that of address translation, and a program with large pages would lie above it.
#[cfg(target_os = "linux")]
mod huge_pages {
    use std::mem::MaybeUninit;

    use super::Block;

    pub(super) fn advise(room: &mut [MaybeUninit<Block>]) {
        let page = rustix::param::page_size();
        let begin = room.as_mut_ptr().cast::<u8>();
        let before = begin.align_offset(page);
        let Some(length) = size_of_val(room).checked_sub(before) else {
            return;
        };
        // SAFETY: the range lies inside `room`, which is borrowed exclusively; this advice changes how
        // its pages are backed, never what they hold.
        let advised = unsafe {
            rustix::mm::madvise(
                begin.wrapping_add(before).cast(),
                length,
                rustix::mm::Advice::LinuxHugepage,
            )
        };
        if let Err(errno) = advised {
            tracing::debug!(%errno, "no huge pages for the bandwidth tests");
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod huge_pages {
    use std::mem::MaybeUninit;

    use super::Block;

    pub(super) fn advise(_room: &mut [MaybeUninit<Block>]) {}
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use kernelwise_measure::ScriptedClock;

    use super::*;

    const BLOCKS: usize = 40;

    fn arena(crew: &Crew<'_>) -> Arena {
        let mut arena = Arena::reserve((BLOCKS * Block::BYTES) as u64).unwrap();
        arena.touch(crew, 3).unwrap();
        arena
    }

    /// Adds one to the first float of every block it is given.
    fn count(window: &mut [Block]) {
        for block in window {
            block.0[0] += 1.0;
        }
    }

    fn counts(arena: &Arena) -> Vec<f32> {
        arena.blocks.iter().map(|block| block.0[0] - 1.0).collect()
    }

    fn until(least: usize) -> Until {
        Until { deadline: 0, least }
    }

    #[test]
    fn all_of_it_is_touched_before_it_is_used() {
        let (clock, cancel) = (ScriptedClock::new(), AtomicBool::new(false));
        let crew = Crew::new(&clock, &cancel);
        let arena = arena(&crew);
        assert_eq!(arena.blocks, [Block::of(1.0); BLOCKS]);
        assert_eq!(arena.segment_blocks(3), 13);
        assert!(Arena::reserve(u64::MAX).is_err());
    }

    #[test]
    fn a_cancelled_touch_leaves_the_arena_empty() {
        let (clock, cancel) = (ScriptedClock::new(), AtomicBool::new(true));
        let crew = Crew::new(&clock, &cancel);
        let mut arena = Arena::reserve(4096).unwrap();
        assert!(arena.touch(&crew, 2).is_err());
        assert_eq!(arena.segment_blocks(1), 0);
    }

    #[test]
    fn a_window_that_stays_meets_the_beginning_of_each_segment() {
        let (clock, cancel) = (ScriptedClock::new(), AtomicBool::new(false));
        let crew = Crew::new(&clock, &cancel);
        let mut arena = arena(&crew);
        let window = Window {
            blocks: 3,
            moves: false,
        };
        crew.sample(arena.workers(2, window, count), until(1))
            .unwrap();
        let mut expected = vec![0.0; BLOCKS];
        expected[..3].fill(2.0);
        expected[20..23].fill(2.0);
        assert_eq!(counts(&arena), expected);
    }

    #[test]
    fn a_walk_meets_everything_before_it_meets_anything_again() {
        let (clock, cancel) = (ScriptedClock::new(), AtomicBool::new(false));
        let crew = Crew::new(&clock, &cancel);
        let mut arena = arena(&crew);
        let window = Window {
            blocks: 6,
            moves: true,
        };
        // Three windows of six fit a segment of twenty; the run before the samples is the first.
        crew.sample(arena.workers(2, window, count), until(2))
            .unwrap();
        assert_eq!(counts(&arena).iter().filter(|n| **n == 1.0).count(), 36);
        // A second run goes on where the first ended: back at the beginning.
        crew.sample(arena.workers(2, window, count), until(0))
            .unwrap();
        assert_eq!(counts(&arena)[..6], [2.0; 6]);
        assert_eq!(counts(&arena)[6..18], [1.0; 12]);
    }

    #[test]
    fn a_sweep_is_needed_once_unless_something_came_between() {
        let (clock, cancel) = (ScriptedClock::new(), AtomicBool::new(false));
        let crew = Crew::new(&clock, &cancel);
        let mut arena = arena(&crew);
        let total = |arena: &Arena| counts(arena).iter().sum::<f32>();
        arena.sweep(&crew, 2, 5, count).unwrap();
        assert!(total(&arena) >= 40.0, "everything was met");
        let after = total(&arena);
        arena.sweep(&crew, 2, 5, count).unwrap();
        assert_eq!(total(&arena), after);
        let still = Window {
            blocks: 1,
            moves: false,
        };
        drop(arena.workers(1, still, count));
        arena.sweep(&crew, 2, 5, count).unwrap();
        assert!(total(&arena) > after, "a cached test came between");
        let after = total(&arena);
        arena.sweep(&crew, 1, 5, count).unwrap();
        assert!(total(&arena) > after, "another thread count");
    }
}
