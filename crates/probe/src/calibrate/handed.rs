//! How fast threads get at data that another one had last.
//!
//! A pool gives its pieces to whichever thread is free, and operands lie where the caller left them. So threads that share a call
//! mostly find their part in the cache of another core. On two virtual processors of a server (`kernelwise probe --calibrate`) copies of
//! such data ran at 131 to 133 GB/s where those of a thread's own ran at 190 to 192 (L3), and at 148 to 154 instead of 225 (L2).

use std::sync::{Mutex, PoisonError};

use kernelwise_measure::Summary;
use kernelwise_types::Measured;
use kernelwise_types::calibration::{AccessPattern, Bandwidth, MemoryPlace};
use kernelwise_types::units::{ByteRate, Nanos};

use super::bandwidth::pass;
use super::crew::Until;
use super::loops::{Block, Stores};
use super::sizes::{stream_blocks, streams};
use super::{Bench, CalibrateError, Findings, LEAST_SAMPLES, Step, threads_text};

/// One cache, pattern and thread count. Every thread has a part; after each pass it takes that of its neighbour.
#[derive(Debug)]
pub(super) struct HandedOverStep {
    place: MemoryPlace,
    pattern: AccessPattern,
    threads: u32,
    /// Blocks of a part.
    blocks: usize,
    /// Bytes per second of all threads together.
    rates: Vec<f64>,
}

impl HandedOverStep {
    pub(super) fn new(
        (place, pattern): (MemoryPlace, AccessPattern),
        threads: u32,
        set_bytes: u64,
    ) -> Self {
        Self {
            place,
            pattern,
            threads,
            blocks: streams(pattern) * stream_blocks(set_bytes, pattern),
            rates: Vec::new(),
        }
    }
}

/// The part that a thread has in a turn: in the next one, that of its neighbour.
fn part_of(thread: usize, turn: usize, threads: usize) -> usize {
    (thread + turn) % threads
}

impl Step for HandedOverStep {
    fn name(&self) -> String {
        let threads = threads_text(self.threads);
        format!("{} {} handed over, {threads}", self.place, self.pattern)
    }

    fn visit(&mut self, bench: &mut Bench<'_>, deadline: u64) -> Result<(), CalibrateError> {
        let Some(loops) = bench.loops.first() else {
            return Ok(());
        };
        let (pattern, threads) = (self.pattern, self.threads as usize);
        // Nobody ever waits for a lock: in every turn each thread has another part.
        let part = || Mutex::new(vec![Block::of(0.0); self.blocks]);
        let parts: Vec<_> = (0..threads).map(|_| part()).collect();
        let worker = |thread: usize| {
            let (parts, mut turn) = (&parts, 0);
            move || {
                let part = &parts[part_of(thread, turn, threads)];
                let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
                pass(&**loops, pattern, &mut part, 1, Stores::Plain);
                turn += 1;
            }
        };
        let until = Until {
            deadline,
            least: LEAST_SAMPLES,
        };
        let samples = bench
            .crew
            .sample((0..threads).map(worker).collect(), until)?;
        let bytes = (self.blocks * Block::BYTES * threads) as f64;
        let moved = samples.into_iter().filter(|nanos| *nanos > 0);
        self.rates
            .extend(moved.map(|nanos| bytes / Nanos::from_u64(nanos).seconds()));
        Ok(())
    }

    fn report(&self, findings: &mut Findings) -> bool {
        let rate = Summary::of(&self.rates).and_then(|all| {
            Some(Measured {
                value: ByteRate::new(all.median).ok()?,
                low: ByteRate::new(all.q1).ok()?,
                high: ByteRate::new(all.q3).ok()?,
                samples: u32::try_from(self.rates.len()).unwrap_or(u32::MAX),
            })
        });
        findings.handed_over.extend(rate.map(|rate| Bandwidth {
            place: self.place,
            pattern: self.pattern,
            threads: self.threads,
            working_set_bytes: (self.blocks * Block::BYTES) as u64,
            rate,
        }));
        rate.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_turn_takes_what_another_thread_had() {
        for threads in 2..5 {
            for turn in 0..9 {
                let of = |turn| (0..threads).map(move |thread| part_of(thread, turn, threads));
                let mut all: Vec<usize> = of(turn).collect();
                assert!(of(turn).zip(of(turn + 1)).all(|(had, has)| had != has));
                all.sort_unstable();
                assert!(all.into_iter().eq(0..threads), "nobody waits");
            }
        }
    }
}
