//! How fast the machine is at the moment.
//!
//! On a shared machine the clock changes, and a neighbour on the same core takes its share: everything becomes slower together, by a factor of
//! up to two and for seconds at a time. Whoever measures one workload in one such moment and another in the next would learn that the
//! one is slower. So a fixed piece of work is timed beside each race, and models of times are fitted to what is left.

use std::hint::black_box;

use kernelwise_measure::Clock;

/// Numbers that are worked on: they fit into the nearest cache.
const NUMBERS: usize = 4096;
/// Sums that are made side by side, so that arithmetic and loads are what it takes, not waiting.
const LANES: usize = 64;
/// How often the numbers are gone through: some ten microseconds.
const ROUNDS: usize = 16;
/// Looks of which the shortest counts: an interrupt is not the pace.
const LOOKS: usize = 3;

/// A fixed piece of work.
#[derive(Debug)]
pub struct Pace {
    numbers: Vec<f32>,
}

impl Default for Pace {
    fn default() -> Self {
        Self::new()
    }
}

impl Pace {
    /// The same for everybody, so that looks of different runs can be held against each other.
    pub fn new() -> Self {
        Self {
            numbers: (0..NUMBERS).map(|i| i as f32 / NUMBERS as f32).collect(),
        }
    }

    /// How long it takes now, in nanoseconds.
    pub fn look(&mut self, clock: &dyn Clock) -> f64 {
        let once = |_| {
            let start = clock.now();
            black_box(work(black_box(&self.numbers)));
            clock.now().saturating_sub(start)
        };
        // Not zero, whatever the clock: ratios are taken.
        (0..LOOKS).map(once).min().unwrap_or(0).max(1) as f64
    }
}

fn work(numbers: &[f32]) -> f32 {
    let mut sums = [0f32; LANES];
    for _ in 0..ROUNDS {
        for chunk in numbers.chunks_exact(LANES) {
            for (sum, number) in sums.iter_mut().zip(chunk) {
                *sum = *sum * 0.999 + number;
            }
        }
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use kernelwise_measure::{ScriptedClock, TscClock};

    use super::*;

    #[test]
    fn the_work_is_done_and_takes_time() {
        let pace = Pace::new();
        // A sum that forgets a thousandth of itself per step approaches its mean times a thousand.
        let mean = work(&pace.numbers) / LANES as f32;
        assert!((200.0..700.0).contains(&mean), "{mean}");
        assert!(Pace::new().look(&TscClock::new()) > 1000.0);
        assert_eq!(Pace::new().look(&ScriptedClock::new()), 1.0);
    }
}
