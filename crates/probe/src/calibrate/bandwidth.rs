//! Bandwidth of each level of the memory: read, write, copy and triad.
//!
//! Bytes are those the program reads and writes. Stores past the caches contend beyond the second level,
//! where they save fetching lines that are overwritten anyway: a ceiling that ignored them would be
//! exceeded by every kernel that uses them.

use std::hint::black_box;

use kernelwise_types::calibration::{AccessPattern, Bandwidth, MemoryPlace};

use super::arena::Window;
use super::contest::Contest;
use super::crew::Until;
use super::loops::{Block, Loops, Stores};
use super::sizes::{stream_blocks, streams};
use super::{Bench, CalibrateError, Findings, LEAST_SAMPLES, Step, threads_text};

/// Bytes of one thread in one sample of a cache: about 0.1 ms at the rates of today.
fn sample_bytes(place: MemoryPlace) -> usize {
    match place {
        MemoryPlace::L1 => 32 << 20,
        MemoryPlace::L2 => 12 << 20,
        MemoryPlace::L3 | MemoryPlace::Dram => 8 << 20,
    }
}

/// The most that one thread walks through in one sample of main memory.
const LARGEST_WINDOW: usize = 16 << 20;

/// A walk has at least this many windows, so that it has a beginning that is long ago.
const LEAST_WINDOWS: usize = 8;

/// One level, pattern and thread count.
#[derive(Debug)]
pub(super) struct BandwidthStep<'a> {
    place: MemoryPlace,
    pattern: AccessPattern,
    threads: u32,
    /// Size of each thread's data; for main memory, of its part of the walk.
    set_bytes: u64,
    contest: Contest<(&'a dyn Loops, Stores)>,
}

impl<'a> BandwidthStep<'a> {
    pub(super) fn new(
        loops: &'a [Box<dyn Loops>],
        (place, pattern): (MemoryPlace, AccessPattern),
        threads: u32,
        set_bytes: u64,
    ) -> Self {
        let far = matches!(place, MemoryPlace::L3 | MemoryPlace::Dram);
        let stores: &[Stores] = match pattern {
            AccessPattern::Read => &[Stores::Plain],
            _ if far => &[Stores::Plain, Stores::Streaming],
            _ => &[Stores::Plain],
        };
        let contenders = loops.iter().flat_map(|loops| {
            stores
                .iter()
                .filter(|stores| **stores == Stores::Plain || loops.can_stream())
                .map(|stores| (&**loops, *stores))
        });
        Self {
            place,
            pattern,
            threads,
            set_bytes,
            contest: Contest::new(contenders),
        }
    }

    /// What one thread does in one sample: a window of memory, how often over.
    fn job(&self) -> (Window, u32) {
        let set = usize::try_from(self.set_bytes).unwrap_or(usize::MAX);
        let moves = self.place == MemoryPlace::Dram;
        let bytes = if moves {
            LARGEST_WINDOW.min(set / LEAST_WINDOWS)
        } else {
            set
        };
        let blocks = streams(self.pattern) * stream_blocks(bytes as u64, self.pattern);
        let repeats = if moves {
            1
        } else {
            (sample_bytes(self.place) / (blocks * Block::BYTES)).max(1)
        };
        (Window { blocks, moves }, repeats as u32)
    }
}

impl Step for BandwidthStep<'_> {
    fn name(&self) -> String {
        let threads = threads_text(self.threads);
        format!("{} {}, {threads}", self.place, self.pattern)
    }

    fn visit(&mut self, bench: &mut Bench<'_>, deadline: u64) -> Result<(), CalibrateError> {
        let (pattern, threads) = (self.pattern, self.threads as usize);
        let (window, repeats) = self.job();
        let (crew, arena) = (&bench.crew, &mut bench.arena);
        let time = deadline.saturating_sub(crew.clock().now());
        if let (true, Some(loops)) = (window.moves, bench.loops.first()) {
            arena.sweep(crew, threads, window.blocks, |part| {
                black_box(loops.read(part, 1));
            })?;
        }
        let bytes = (window.blocks * Block::BYTES * threads) as u64 * u64::from(repeats);
        // The sweep is not on this pattern's account.
        let now = crew.clock().now();
        let deadline = now.saturating_add(time);
        self.contest
            .visit(now, deadline, |(loops, stores), deadline| {
                let workers = arena.workers(threads, window, move |part| {
                    pass(loops, pattern, part, repeats, stores);
                });
                let until = Until {
                    deadline,
                    least: LEAST_SAMPLES,
                };
                Ok((bytes, crew.sample(workers, until)?))
            })
    }

    fn report(&self, findings: &mut Findings) -> bool {
        let Some((_, rate)) = self.contest.winner() else {
            return false;
        };
        let (window, _) = self.job();
        findings.bandwidths.push(Bandwidth {
            place: self.place,
            pattern: self.pattern,
            threads: self.threads,
            working_set_bytes: if window.moves {
                self.set_bytes
            } else {
                (window.blocks * Block::BYTES) as u64
            },
            rate,
        });
        true
    }
}

/// Does the pattern to a part of memory whose streams lie one after the other.
pub(super) fn pass(
    loops: &dyn Loops,
    pattern: AccessPattern,
    part: &mut [Block],
    repeats: u32,
    stores: Stores,
) {
    let stream = part.len() / streams(pattern);
    match pattern {
        AccessPattern::Read => {
            black_box(loops.read(part, repeats));
        }
        AccessPattern::Write => loops.fill(part, black_box(0), repeats, stores),
        AccessPattern::Copy => {
            let (to, from) = part.split_at_mut(stream);
            loops.copy(to, from, repeats, stores);
        }
        AccessPattern::Triad => {
            let (to, sources) = part.split_at_mut(stream);
            let (b, c) = sources.split_at(stream);
            loops.triad(to, [b, c], black_box(0.5), repeats, stores);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::loops;
    use super::*;

    #[test]
    fn a_pass_reads_and_writes_the_streams_it_should() {
        for loops in loops::available() {
            let mut part: Vec<Block> = (1..=6).map(|n| Block::of(n as f32)).collect();
            let after = |part: &[Block]| part.iter().map(|block| block.0[7]).collect::<Vec<_>>();
            pass(&*loops, AccessPattern::Triad, &mut part, 1, Stores::Plain);
            assert_eq!(after(&part), [5.5, 7.0, 3.0, 4.0, 5.0, 6.0]);
            pass(&*loops, AccessPattern::Copy, &mut part, 1, Stores::Plain);
            assert_eq!(after(&part), [4.0, 5.0, 6.0, 4.0, 5.0, 6.0]);
            pass(&*loops, AccessPattern::Read, &mut part, 1, Stores::Plain);
            assert_eq!(after(&part), [4.0, 5.0, 6.0, 4.0, 5.0, 6.0]);
            pass(&*loops, AccessPattern::Write, &mut part, 1, Stores::Plain);
            assert_eq!(after(&part), [0.0; 6]);
        }
    }

    #[test]
    fn samples_repeat_caches_and_walk_through_memory() {
        let loops = loops::available();
        let job = |place, pattern, set| BandwidthStep::new(&loops, (place, pattern), 1, set).job();
        let (window, repeats) = job(MemoryPlace::L1, AccessPattern::Read, 24 << 10);
        assert_eq!((window.blocks, window.moves), (48, false));
        assert_eq!(repeats, (32 << 20) / (24 << 10));
        let (window, repeats) = job(MemoryPlace::Dram, AccessPattern::Read, 1 << 30);
        assert_eq!(
            (window.blocks * 512, window.moves, repeats),
            (16 << 20, true, 1)
        );
        let (window, _) = job(MemoryPlace::Dram, AccessPattern::Triad, 8 << 20);
        assert!(window.blocks * 512 <= 1 << 20, "eight windows or more");
    }

    #[test]
    fn streaming_stores_contend_only_where_they_can_win() {
        let loops = loops::available();
        let streaming = |place, pattern| {
            let mut seen = 0;
            let mut step = BandwidthStep::new(&loops, (place, pattern), 1, 1 << 20);
            let count = |(_, stores), _| {
                seen += usize::from(stores == Stores::Streaming);
                Ok((0, Vec::new()))
            };
            step.contest.visit(0, 0, count).unwrap();
            seen
        };
        let able = loops.iter().filter(|loops| loops.can_stream()).count();
        assert_eq!(streaming(MemoryPlace::Dram, AccessPattern::Copy), able);
        assert_eq!(streaming(MemoryPlace::L3, AccessPattern::Write), able);
        assert_eq!(streaming(MemoryPlace::L1, AccessPattern::Write), 0);
        assert_eq!(streaming(MemoryPlace::Dram, AccessPattern::Read), 0);
    }
}
