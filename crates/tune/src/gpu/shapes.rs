//! What a group asks for, by kind of work: arithmetic from the tile, traffic from what the tile does not reuse.

use super::demand::{Demand, SHARED_PER_CLOCK};
use super::occupancy::Usage;

/// Registers a kernel needs besides its tile: addresses, counters, constants. A guess at what compilers leave.
const BASE_REGISTERS: u32 = 24;
/// Independent results under way that an in-order pipeline can make use of.
const MOST_PARALLEL: f64 = 16.0;
/// Bytes a thread can have on their way: eight loads of 16 bytes.
const MOST_IN_FLIGHT: f64 = 128.0;
/// Bytes in which memory is read.
pub(super) const SECTOR: f64 = 32.0;
/// How much slower the first cache serves a subgroup than shared memory does: its lookup takes a second clock.
const FIRST_CACHE: f64 = 2.0;

/// The registers of a tile, and what does not fit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Registers {
    /// What a thread gets.
    pub(super) given: u32,
    /// The share of its numbers that go through memory for want of registers.
    pub(super) spilled: f64,
}

impl Registers {
    /// `tile` registers besides the usual ones, where a thread of a group of `threads` can have at most `most`, and a unit has `all`.
    pub(super) fn of(tile: u32, threads: u32, most: u32, all: Option<u32>) -> Self {
        let wanted = tile.saturating_add(BASE_REGISTERS);
        // A compiler that is told the size of the group leaves enough for one group.
        let fits = all
            .map_or(most, |all| (all / threads.max(1)) & !7)
            .min(most);
        let given = wanted.min(fits.max(8));
        let missing = f64::from(wanted - given);
        Self {
            given,
            spilled: (missing / f64::from(tile.max(1))).clamp(0.0, 1.0),
        }
    }
}

/// A product of matrices by tiles.
#[derive(Debug, Clone, Copy)]
pub(super) struct Product {
    /// Threads along columns and rows.
    pub(super) group: [u32; 2],
    /// Columns and rows of a thread.
    pub(super) tile: [u32; 2],
    /// Steps of the sum between two barriers.
    pub(super) depth: u32,
    /// Steps that are unrolled.
    pub(super) unroll: u32,
    /// Numbers per access, along columns and rows.
    pub(super) vector: [u32; 2],
    /// Whether the right and the left factor are kept in shared memory.
    pub(super) staged: [bool; 2],
    /// Length of the sum.
    pub(super) k: f64,
    /// Bytes of a factor's number as it is kept near, and of a result.
    pub(super) bytes: [f64; 2],
    /// Bytes of a factor's number in memory.
    pub(super) stored: f64,
    /// Multiply-adds of one step: 4 for complex numbers.
    pub(super) results: f64,
    /// Multiply-adds per instruction of a thread: more than one on matrix units.
    pub(super) per_instruction: f64,
    /// Threads in lockstep.
    pub(super) subgroup: u32,
    /// Registers per thread and per unit.
    pub(super) registers: (u32, Option<u32>),
}

impl Product {
    /// Shared memory, in bytes.
    pub(super) fn shared_bytes(&self) -> u64 {
        let side = |axis: usize| match self.staged[axis] {
            true => u64::from(self.group[axis]) * u64::from(self.tile[axis]),
            false => 0,
        };
        ((side(0) + side(1)) as f64 * f64::from(self.depth) * self.bytes[0]).ceil() as u64
    }

    pub(super) fn demand(&self) -> Demand {
        let threads = self.group[0] * self.group[1];
        let subgroups = f64::from(threads.div_ceil(self.subgroup));
        let (subgroup, tile) = (f64::from(self.subgroup), self.tile.map(f64::from));
        let side = [0, 1].map(|axis| f64::from(self.group[axis]) * tile[axis]);
        let words = |bytes: f64| (bytes / 4.0).max(1.0);
        let wide = (words(self.bytes[0]), words(self.bytes[1]));
        let numbers = tile[0] * tile[1] * wide.1 + (tile[0] + tile[1]) * wide.0;
        let (most, all) = self.registers;
        let registers = Registers::of(numbers as u32, threads, most, all);

        // Threads of a subgroup that have the same rows read the same words, at once.
        let along = f64::from(self.group[0].min(self.subgroup));
        let lanes = [along, (subgroup / along).max(1.0)];
        let steps = (self.k / f64::from(self.depth)).ceil() * f64::from(self.depth);
        let (mut accesses, mut clocks) = (0.0, 0.0);
        for axis in [0, 1] {
            let each = tile[axis] / f64::from(self.vector[axis]) / self.per_instruction;
            let distinct = lanes[axis] * tile[axis] * self.bytes[0];
            let served = (distinct / SHARED_PER_CLOCK).max(each);
            let slower = if self.staged[axis] { 1.0 } else { FIRST_CACHE };
            accesses += each;
            clocks += served * slower;
            if self.staged[axis] {
                // Into shared memory, once for the group.
                let bytes = side[axis] * self.bytes[0] / subgroups;
                accesses += 2.0 * bytes / (SHARED_PER_CLOCK * f64::from(self.vector[axis]));
                clocks += 2.0 * bytes / SHARED_PER_CLOCK;
            }
        }
        // What does not fit the registers is read and written again with every step.
        let spilled = registers.spilled * tile[0] * tile[1] * wide.1;
        accesses += 2.0 * spilled;
        clocks += 2.0 * spilled * FIRST_CACHE;

        let results = steps * tile[0] * tile[1] * self.results;
        let staged = self.staged[0] || self.staged[1];
        // A tile for shared memory is asked for at once; what goes through the first cache, step by step, and threads that ask for
        // the same bytes have no more on their way for it. The factor that is asked for more often sets the pace.
        let moved = (side[0] + side[1]) * steps * self.stored;
        let most = f64::from(threads) * MOST_IN_FLIGHT;
        let rounds = self.staged.map(|staged| {
            let at_once = if staged { self.depth } else { self.unroll };
            steps / f64::from(at_once)
        });
        let rounds = rounds[0].max(rounds[1]).max(moved / most);
        Demand {
            usage: Usage {
                threads,
                registers: registers.given,
                shared_bytes: self.shared_bytes(),
            },
            results: subgroups * subgroup * results,
            results_per_instruction: subgroup * self.per_instruction,
            specials: 0.0,
            overhead: subgroups * 2.0 * steps / f64::from(self.depth),
            accesses: subgroups * steps * accesses,
            access_clocks: subgroups * steps * clocks,
            barriers: if staged {
                2.0 * steps / f64::from(self.depth)
            } else {
                0.0
            },
            cache_bytes: moved + side[0] * side[1] * self.bytes[1],
            memory_bytes: 0.0,
            parallel: (tile[0] * tile[1]).min(MOST_PARALLEL),
            in_flight: moved / rounds / f64::from(threads),
        }
    }
}

/// Work on every element of a long row, or of a part of it, by some threads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sweep {
    /// Threads of the group.
    pub(super) threads: u32,
    /// Elements of the group, which its threads share evenly.
    pub(super) elements: f64,
    /// Accesses a thread has under way, and elements of each.
    pub(super) accesses: f64,
    /// Elements per access.
    pub(super) vector: f64,
    /// Arithmetic of the group.
    pub(super) flops: f64,
    /// Special functions of the group.
    pub(super) specials: f64,
    /// Bytes of an element.
    pub(super) bytes: f64,
    /// Bytes moved for a byte that is needed: 1 where neighbours lie next to each other.
    pub(super) scatter: f64,
    /// How often elements are read.
    pub(super) passes: f64,
    /// Whether they stay in shared memory between passes; its size then.
    pub(super) staged_bytes: Option<u64>,
    /// Instructions of a subgroup for each access.
    pub(super) per_access: f64,
    /// How often an element passes through shared memory on its way to its place.
    pub(super) exchanges: f64,
    /// Steps in which threads put their results together.
    pub(super) combining: f64,
    /// Threads in lockstep.
    pub(super) subgroup: u32,
    /// Registers per thread and per unit.
    pub(super) registers: (u32, Option<u32>),
}

impl Sweep {
    pub(super) fn demand(&self) -> Demand {
        let subgroups = f64::from(self.threads.div_ceil(self.subgroup));
        let subgroup = f64::from(self.subgroup);
        let words = (self.bytes / 4.0).max(1.0);
        let held = (self.accesses * self.vector * words * 2.0).ceil() as u32;
        let (most, all) = self.registers;
        let registers = Registers::of(held, self.threads, most, all);
        let passes = if self.staged_bytes.is_some() {
            1.0
        } else {
            self.passes
        };
        let near = self.exchanges
            + if self.staged_bytes.is_some() {
                self.passes
            } else {
                0.0
            };
        let moved = self.elements * self.bytes;
        let accesses = self.elements * (passes + near) / (subgroup * self.vector);
        let spilled = 2.0 * registers.spilled * self.elements / subgroup;
        Demand {
            usage: Usage {
                threads: self.threads,
                registers: registers.given,
                shared_bytes: self.staged_bytes.unwrap_or(0)
                    + (self.combining > 0.0) as u64 * (subgroups * self.bytes) as u64,
            },
            results: self.flops,
            results_per_instruction: subgroup,
            specials: self.specials,
            // Setting up an index takes about twenty instructions.
            overhead: 20.0 * subgroups
                + self.per_access * accesses
                + self.combining * subgroups * 2.0,
            accesses: accesses + spilled,
            access_clocks: moved * (passes * self.scatter + near) / SHARED_PER_CLOCK
                + spilled * FIRST_CACHE
                + self.combining * subgroups,
            barriers: if self.combining > 0.0 { 2.0 } else { 0.0 },
            cache_bytes: moved * (passes - 1.0) * self.scatter,
            memory_bytes: moved * self.scatter,
            parallel: (self.accesses * self.vector).min(MOST_PARALLEL),
            in_flight: (self.accesses * self.vector * self.bytes).min(MOST_IN_FLIGHT),
        }
    }
}

/// Windows that slide over an image, one output per thread and tile: neighbours see nearly the same pixels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// Threads along x and y.
    pub(super) group: [u32; 2],
    /// Outputs of a thread along x and y, the size of the group apart from each other.
    pub(super) tile: [u32; 2],
    /// Taps along x and y.
    pub(super) taps: [u32; 2],
    /// Whether pixels are kept in shared memory.
    pub(super) staged: bool,
    /// Whether rows there are padded so that no two threads of a subgroup want the same bank.
    pub(super) padded: bool,
    /// Threads in lockstep.
    pub(super) subgroup: u32,
    /// Registers per thread and per unit.
    pub(super) registers: (u32, Option<u32>),
}

impl Window {
    pub(super) fn demand(&self) -> Demand {
        let threads = self.group[0] * self.group[1];
        let subgroups = f64::from(threads.div_ceil(self.subgroup));
        let outputs = self.tile[0] * self.tile[1];
        let taps = f64::from(self.taps[0] * self.taps[1]);
        // Positions a thread looks at along an axis: its windows overlap where they are closer than they are wide.
        let seen = |axis: usize| {
            let (apart, wide, n) = (self.group[axis], self.taps[axis], self.tile[axis]);
            f64::from(wide + (n - 1) * apart.min(wide))
        };
        // Loops along x are innermost: a pixel stays in a register while the row is worked on.
        let pixels = seen(0) * seen(1);
        let kept = outputs
            + if self.group[1] < self.taps[1] {
                self.tile[1] * 2
            } else {
                2
            };
        let (most, all) = self.registers;
        let registers = Registers::of(kept, threads, most, all);
        let pitch = self.group[0] * self.tile[0] + self.taps[0] - 1;
        let rows = self.group[1] * self.tile[1] + self.taps[1] - 1;
        let conflicts = match self.padded {
            true => 1.0,
            false => self.conflicts(pitch),
        };
        let tile_pixels = f64::from(pitch) * f64::from(rows);
        // A row that begins anywhere touches one sector more than its bytes fill.
        let row_bytes = (f64::from(pitch) * 4.0 / SECTOR).ceil() * SECTOR + SECTOR;
        let (accesses, clocks) = match self.staged {
            true => {
                // Loading: rows of the tile by rows of threads, each as many subgroup accesses as it has parts.
                let parts = f64::from(pitch.div_ceil(self.group[0]));
                let turns = parts * f64::from(rows.div_ceil(self.group[1]));
                let loading = 2.0 * turns * subgroups;
                (
                    subgroups * pixels + loading,
                    subgroups * pixels * conflicts + loading,
                )
            }
            false => {
                // Lines of the first cache a subgroup touches: one per row of threads, and one more where they do not line up.
                let rows = (self.subgroup / self.group[0].min(self.subgroup)).max(1);
                let lines = FIRST_CACHE * f64::from(rows);
                (subgroups * pixels, subgroups * pixels * lines)
            }
        };
        let spilled = subgroups * 2.0 * registers.spilled * taps * f64::from(outputs);
        Demand {
            usage: Usage {
                threads,
                registers: registers.given,
                shared_bytes: if self.staged {
                    (tile_pixels * 4.0) as u64
                } else {
                    0
                },
            },
            results: subgroups * f64::from(self.subgroup) * taps * f64::from(outputs),
            results_per_instruction: f64::from(self.subgroup),
            specials: 0.0,
            overhead: subgroups * (20.0 + taps),
            accesses: accesses + spilled,
            access_clocks: clocks + spilled * FIRST_CACHE,
            barriers: if self.staged { 1.0 } else { 0.0 },
            cache_bytes: row_bytes * f64::from(rows)
                + f64::from(threads) * f64::from(outputs) * 4.0,
            memory_bytes: 0.0,
            parallel: f64::from(outputs).min(MOST_PARALLEL),
            in_flight: if self.staged {
                16.0
            } else {
                4.0 * f64::from(outputs).min(4.0)
            },
        }
    }

    /// How many threads of a subgroup want the same of 32 banks, at the worst of them.
    fn conflicts(&self, pitch: u32) -> f64 {
        let mut wanted = [0u32; 32];
        let mut seen: Vec<u32> = Vec::with_capacity(self.subgroup as usize);
        for lane in 0..self.subgroup.min(self.group[0] * self.group[1]).min(32) {
            let word = lane / self.group[0] * pitch + lane % self.group[0];
            // The same word for two threads is one access.
            if !seen.contains(&word) {
                seen.push(word);
                wanted[(word % 32) as usize] += 1;
            }
        }
        f64::from(wanted.into_iter().max().unwrap_or(1).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window {
        group: [32, 4],
        tile: [1, 4],
        taps: [15, 15],
        staged: true,
        padded: false,
        subgroup: 32,
        registers: (255, Some(65_536)),
    };

    #[test]
    fn banks_are_counted_one_by_one() {
        // A whole row of 32 neighbours has 32 banks.
        assert_eq!(WINDOW.conflicts(46), 1.0);
        // Two rows of 16 that are 32 apart have the same 16 banks; 48 apart they do not.
        let narrow = Window {
            group: [16, 4],
            ..WINDOW
        };
        assert_eq!(narrow.conflicts(32), 2.0);
        assert_eq!(narrow.conflicts(48), 1.0);
        // 32 rows of one, 32 apart: all in one bank.
        let column = Window {
            group: [1, 32],
            ..WINDOW
        };
        assert_eq!(column.conflicts(32), 32.0);
        assert_eq!(column.conflicts(33), 1.0);
        // 16 + 14 pixels per row: rows of threads get into each other's way, unless rows of pixels are padded.
        let padded = Window {
            padded: true,
            ..narrow
        };
        assert!(padded.demand().access_clocks < narrow.demand().access_clocks);
    }

    #[test]
    fn windows_that_overlap_are_read_once() {
        // Four windows of 15 rows, one apart, see 18 rows; 15 or more apart, 60.
        let of = |rows: u32| {
            let window = Window {
                group: [32, rows],
                ..WINDOW
            };
            let demand = window.demand();
            let (pitch, all) = (46, rows * 4 + 14);
            let loading = 2 * 2 * all.div_ceil(rows) * rows;
            assert_eq!(demand.usage.shared_bytes, u64::from(pitch * all * 4));
            (demand.accesses - f64::from(loading)) / f64::from(rows)
        };
        assert_eq!(of(1), 15.0 * 18.0);
        assert_eq!(of(16), 15.0 * 60.0);
    }

    #[test]
    fn larger_tiles_reuse_more_until_registers_run_out() {
        let product = |tile: u32| Product {
            group: [16, 16],
            tile: [tile, tile],
            depth: 8,
            unroll: 8,
            vector: [1, 1],
            staged: [true, true],
            k: 1024.0,
            bytes: [4.0, 4.0],
            stored: 4.0,
            results: 1.0,
            per_instruction: 1.0,
            subgroup: 32,
            registers: (255, Some(65_536)),
        };
        let per_result = |tile: u32| {
            let demand = product(tile).demand();
            (
                demand.cache_bytes / demand.results,
                demand.access_clocks / demand.results,
            )
        };
        assert!(per_result(4).0 < per_result(2).0 && per_result(4).1 < per_result(2).1);
        // 256 sums of a thread do not fit 255 registers.
        assert!(per_result(16).1 > per_result(8).1);
        assert_eq!(product(16).demand().usage.registers, 255);
        // Two tiles of 64 x 8 numbers of 4 bytes.
        assert_eq!(product(4).demand().usage.shared_bytes, 2 * 64 * 8 * 4);
    }
}
