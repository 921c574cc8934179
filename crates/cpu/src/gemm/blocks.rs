//! The loops around the tiles: who computes which rectangle, in which blocks.

use std::ops::Range;
use std::slice;

use super::source::{Source, Strided};
use super::tile::{Kernels, MOST_LANES, MOST_ROWS, Real, Tile};
use super::tiles::Tiles;
use super::{Destination, ProductError};
use crate::pool::{MAX_THREADS, Start, crew};

/// Bytes that packed memory is aligned to: a cache line, so that no vector of a panel straddles two.
const ALIGNMENT: usize = 64;

/// How many multiply-adds packing one value costs, roughly; decides how threads share a product.
const PACKING: usize = 8;

/// A product, cut.
#[derive(Debug)]
pub(super) struct Plan<T: 'static> {
    kernels: &'static Kernels<T>,
    size: (usize, usize, usize),
    threads: usize,
    /// Rectangles of the result, down and across.
    grid: (usize, usize),
    /// Rows and columns of a rectangle.
    cell: (usize, usize),
    /// Rows and vectors of a full tile.
    rows: usize,
    vectors: usize,
    /// Block sizes.
    mc: usize,
    kc: usize,
    nc: usize,
    pack_a: bool,
    pack_b: bool,
}

impl<T: Real> Plan<T> {
    /// The cut of an `m` x `k` by `k` x `n` product for this many threads.
    pub(super) fn new(
        kernels: &'static Kernels<T>,
        (m, n, k): (usize, usize, usize),
        tiles: &Tiles,
        threads: usize,
    ) -> Self {
        // More threads than there can be are the caller alone, as in the pool.
        let threads = if threads > MAX_THREADS {
            1
        } else {
            threads.max(1)
        };
        // Vectors across the widest panel of so many columns: a result that fits one panel wider than usual
        // gets it, if it is not cut into blocks.
        let panel = |n: usize| {
            let vectors = n.div_ceil(kernels.lanes).max(1);
            let whole = n <= tiles.nc && vectors <= kernels.tiles.len();
            vectors.min(if whole { vectors } else { kernels.usual })
        };
        let columns = |n: usize| kernels.lanes * panel(n);
        let rows = |n: usize| kernels.rows(panel(n));
        let parts = |total: usize, most: usize, multiple: usize| {
            let step = even(total, total.div_ceil(most.max(1)), multiple);
            (total.div_ceil(step), step)
        };
        // Each way of laying `threads` rectangles over the result; what counts is the largest of them, and
        // what it packs.
        let ((down, cell_m), (across, cell_n)) = (1..=threads)
            .map(|across| {
                let across = parts(n, across, columns(n.div_ceil(across)));
                let down = threads / across.0.max(1);
                (parts(m, down.max(1), rows(across.1)), across)
            })
            .min_by_key(|((_, m), (_, n))| m.saturating_mul(*n).saturating_add(PACKING * (m + n)))
            .unwrap_or(((1, m), (1, n)));
        let rows = even(cell_m, rows(cell_n), 1);
        let narrow = cell_n.min(tiles.nc.max(1)).div_ceil(kernels.lanes);
        let multiple = kernels.lanes * narrow.min(panel(cell_n));
        Self {
            kernels,
            size: (m, n, k),
            threads,
            grid: (down, across),
            cell: (cell_m, cell_n),
            rows,
            mc: even(cell_m, tiles.mc, rows),
            kc: even(k, tiles.kc, 1),
            nc: even(cell_n, tiles.nc, multiple),
            vectors: panel(cell_n),
            pack_a: tiles.pack_a,
            pack_b: tiles.pack_b,
        }
    }

    /// Values in a packed block of `a`, and in one of `b`.
    fn packed(&self) -> (usize, usize) {
        let line = ALIGNMENT / size_of::<T>();
        let room = |packed: bool, lanes: usize| {
            let values = if packed {
                lanes.saturating_mul(self.kc)
            } else {
                0
            };
            values.div_ceil(line).saturating_mul(line)
        };
        (
            room(self.pack_a, self.mc.next_multiple_of(self.rows)),
            room(self.pack_b, self.nc.next_multiple_of(self.kernels.lanes)),
        )
    }

    /// Elements of scratch memory for all rectangles.
    pub(super) fn scratch(&self) -> usize {
        let (a, b) = self.packed();
        let slack = ALIGNMENT / size_of::<T>();
        match a.saturating_add(b) {
            0 => 0,
            packed => packed
                .saturating_mul(self.grid.0 * self.grid.1)
                .saturating_add(slack),
        }
    }

    /// Runs the product.
    pub(super) fn run(
        &self,
        (a_name, a): (&'static str, &impl Source<T>),
        (b_name, b): (&'static str, &impl Source<T>),
        c: Destination<'_, T>,
        scratch: &mut [T],
    ) -> Result<(), ProductError> {
        let (m, n, k) = self.size;
        let needed = self.scratch();
        if scratch.len() < needed {
            return Err(ProductError::Scratch {
                needed,
                given: scratch.len(),
            });
        }
        let a = Side::new(a, self.pack_a, (m, k), false, a_name)?;
        let b = Side::new(b, self.pack_b, (n, k), true, b_name)?;
        if m == 0 || n == 0 {
            return Ok(());
        }
        let (packed_a, packed_b) = self.packed();
        let packed = packed_a + packed_b;
        let start = if packed == 0 {
            0
        } else {
            scratch.as_ptr().align_offset(ALIGNMENT).min(needed)
        };
        let cells = self.grid.0 * self.grid.1;
        let scratch = scratch
            .get_mut(start..start + cells * packed)
            .unwrap_or_default();
        let target = Target {
            ptr: c.ptr,
            row_stride: c.row_stride,
            column_stride: c.column_stride,
            accumulate: c.accumulate,
        };
        let work = |cell, scratch: &mut [T]| {
            let (down, across) = (cell / self.grid.1, cell % self.grid.1);
            let rows = part(down, self.cell.0, m);
            let columns = part(across, self.cell.1, n);
            let (space_a, space_b) = scratch.split_at_mut(packed_a.min(scratch.len()));
            // SAFETY: `rows` and `columns` lie inside the destination, which the caller owns exclusively,
            // and the rectangles of different cells do not meet.
            unsafe { self.rectangle(&a, &b, &target, rows, columns, space_a, space_b) };
        };
        let share = scratch.len() / cells;
        let crew = if cells > 1 { crew(self.threads) } else { None };
        #[cfg(test)]
        crate::pool::trace::note(self.threads, if crew.is_some() { cells } else { 1 });
        match crew {
            Some(crew) => {
                let scratch = Start::new(scratch.as_mut_ptr());
                crew.share(cells, &|cell| {
                    // SAFETY: each cell has its own stretch of the scratch memory, which is borrowed until all are done.
                    let own = unsafe { slice::from_raw_parts_mut(scratch.at(cell * share), share) };
                    work(cell, own);
                });
            }
            None => (0..cells).for_each(|cell| work(cell, &mut scratch[cell * share..][..share])),
        }
        Ok(())
    }

    /// Computes one rectangle of the result.
    ///
    /// # Safety
    /// `target` is valid for the rows and columns, which nobody else uses; the operands reach them.
    #[allow(clippy::too_many_arguments)]
    unsafe fn rectangle<A: Source<T>, B: Source<T>>(
        &self,
        a: &Side<'_, T, A>,
        b: &Side<'_, T, B>,
        target: &Target<T>,
        rows: Range<usize>,
        columns: Range<usize>,
        space_a: &mut [T],
        space_b: &mut [T],
    ) {
        let mut spare = [T::default(); MOST_ROWS * MOST_LANES];
        for columns in blocks(columns, self.nc) {
            let runs = runs(columns.clone(), self.kernels.lanes, self.vectors);
            // An empty sum is zero, so even a product without depth visits its tiles once.
            let depths = blocks(0..self.size.2, self.kc).chain((self.size.2 == 0).then_some(0..0));
            for depth in depths {
                let accumulate = target.accumulate || depth.start > 0;
                if let Side::Packed(source) = b {
                    let mut free = &mut space_b[..];
                    for run in &runs {
                        let length = run.lanes.len().next_multiple_of(run.width) * depth.len();
                        let (into, rest) = free.split_at_mut(length);
                        source.pack(run.lanes.clone(), depth.clone(), run.width, into);
                        free = rest;
                    }
                }
                for rows in blocks(rows.clone(), self.mc) {
                    if let Side::Packed(source) = a {
                        let length = rows.len().next_multiple_of(self.rows) * depth.len();
                        let into = &mut space_a[..length];
                        source.pack(rows.clone(), depth.clone(), self.rows, into);
                    }
                    let block = Block {
                        plan: self,
                        target,
                        accumulate,
                        depth: depth.len(),
                        rows,
                        a: a.block(&depth, space_a),
                        b: b.block(&depth, space_b),
                    };
                    let mut first = 0;
                    for run in &runs {
                        for lanes in blocks(run.lanes.clone(), run.width) {
                            // SAFETY: rows and lanes lie inside the target; the packed blocks hold them.
                            unsafe { block.panel(lanes, run.width, first, &mut spare) };
                            first += run.width * depth.len();
                        }
                    }
                }
            }
        }
    }
}

/// The result's memory, shared among threads that each write their own rectangle.
struct Target<T> {
    ptr: *mut T,
    row_stride: isize,
    column_stride: isize,
    accumulate: bool,
}

// SAFETY: the rectangles written through it by different threads do not meet (`Plan::run`), and the elements
// may be sent.
unsafe impl<T: Send> Sync for Target<T> {}

/// An operand: to be packed, or read where it lies.
enum Side<'a, T, S> {
    Packed(&'a S),
    InPlace(Strided<'a, T>),
}

impl<'a, T: Real, S: Source<T>> Side<'a, T, S> {
    fn new(
        source: &'a S,
        pack: bool,
        (lanes, depth): (usize, usize),
        neighbours: bool,
        operand: &'static str,
    ) -> Result<Self, ProductError> {
        let (has_lanes, has_depth) = source.extent();
        let short = |(has_lanes, has_depth)| has_lanes < lanes || has_depth < depth;
        if short((has_lanes, has_depth)) {
            return Err(ProductError::Extent {
                operand,
                lanes,
                depth,
            });
        }
        if pack {
            return Ok(Self::Packed(source));
        }
        match source.in_place() {
            Some(matrix) if short(matrix.extent()) => Err(ProductError::Extent {
                operand,
                lanes,
                depth,
            }),
            Some(matrix) if !neighbours || matrix.lane_stride == 1 || lanes == 1 => {
                Ok(Self::InPlace(matrix))
            }
            _ => Err(ProductError::InPlace { operand }),
        }
    }

    /// Where the kernels find a block of this depth.
    fn block(&self, depth: &Range<usize>, packed: &[T]) -> Operand<T> {
        match self {
            Self::Packed(_) => Operand::Packed(packed.as_ptr()),
            Self::InPlace(matrix) => Operand::InPlace {
                // Wrapping, because a matrix without lanes or depth has no elements to point at.
                first: matrix
                    .ptr
                    .wrapping_offset(depth.start as isize * matrix.depth_stride),
                lane: matrix.lane_stride,
                depth: matrix.depth_stride,
            },
        }
    }
}

/// An operand as the kernels read it, from the first depth of the block on.
enum Operand<T> {
    /// Panels, one after the other.
    Packed(*const T),
    /// The matrix itself, from its first lane on.
    InPlace {
        first: *const T,
        lane: isize,
        depth: isize,
    },
}

/// A block of the result whose operands lie ready.
struct Block<'a, T: 'static> {
    plan: &'a Plan<T>,
    target: &'a Target<T>,
    accumulate: bool,
    depth: usize,
    rows: Range<usize>,
    a: Operand<T>,
    b: Operand<T>,
}

impl<T: Real> Block<'_, T> {
    /// Computes the rows of the block in the columns of one panel, which starts at `first` in the packed block
    /// and is `width` wide there.
    ///
    /// # Safety
    /// Rows and columns lie inside the target, and the operands hold them.
    unsafe fn panel(&self, columns: Range<usize>, width: usize, first: usize, spare: &mut [T]) {
        let kernels = self.plan.kernels;
        let vectors = columns.len().div_ceil(kernels.lanes);
        let last = columns.len() - (vectors - 1) * kernels.lanes;
        let edge = usize::from(last < kernels.lanes);
        let (b, b_depth) = match self.b {
            Operand::Packed(panels) => (panels.wrapping_add(first), width as isize),
            Operand::InPlace {
                first, lane, depth, ..
            } => (first.wrapping_offset(columns.start as isize * lane), depth),
        };
        let in_spare = self.target.column_stride != 1 && columns.len() > 1;
        for (index, rows) in blocks(self.rows.clone(), self.plan.rows).enumerate() {
            let (a, a_lane, a_depth) = match self.a {
                Operand::Packed(panels) => {
                    let panel = index * self.plan.rows * self.depth;
                    (panels.wrapping_add(panel), 1, self.plan.rows as isize)
                }
                Operand::InPlace { first, lane, depth } => {
                    let offset = rows.start as isize * lane;
                    (first.wrapping_offset(offset), lane, depth)
                }
            };
            let to = self.target.ptr.wrapping_offset(
                rows.start as isize * self.target.row_stride
                    + columns.start as isize * self.target.column_stride,
            );
            let kernel = kernels.tiles[vectors - 1][rows.len() - 1][edge];
            let mut tile = Tile {
                depth: self.depth,
                a,
                a_lane,
                a_depth,
                b,
                b_depth,
                c: to,
                c_row: self.target.row_stride,
                last,
                accumulate: self.accumulate,
            };
            if !in_spare {
                // SAFETY: the operands hold the rows and columns of this tile at every depth of the block,
                // and the target has them, columns side by side.
                unsafe { kernel(&tile) };
                continue;
            }
            tile.c = spare.as_mut_ptr();
            tile.c_row = MOST_LANES as isize;
            tile.accumulate = false;
            // SAFETY: as above, but the result goes to the stack, which has room for the largest tile.
            unsafe { kernel(&tile) };
            for (row, values) in spare.chunks(MOST_LANES).take(rows.len()).enumerate() {
                for (column, &value) in values.iter().take(columns.len()).enumerate() {
                    let offset = row as isize * self.target.row_stride
                        + column as isize * self.target.column_stride;
                    let to = to.wrapping_offset(offset);
                    // SAFETY: row and column lie inside the target.
                    unsafe {
                        to.write(if self.accumulate {
                            to.read() + value
                        } else {
                            value
                        });
                    }
                }
            }
        }
    }
}

/// Panels of one width, side by side.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    lanes: Range<usize>,
    width: usize,
}

/// Cuts columns into panels of at most so many vectors. A single vector left over at the end shares two panels with
/// its neighbours, because a narrow tile makes the multipliers wait for loads.
fn runs(columns: Range<usize>, lanes: usize, most: usize) -> [Run; 2] {
    let vectors = columns.len().div_ceil(lanes);
    let (wide, narrow) = match vectors % most {
        1 if vectors > most && most > 2 => (vectors / most - 1, most.div_ceil(2)),
        rest => (vectors / most, rest.max(1)),
    };
    let border = columns.end.min(columns.start + wide * most * lanes);
    [
        Run {
            lanes: columns.start..border,
            width: most * lanes,
        },
        Run {
            lanes: border..columns.end,
            width: narrow * lanes,
        },
    ]
}

/// The size of even blocks of at most `most`, rounded up to a multiple, but not beyond the whole; at least one.
fn even(total: usize, most: usize, multiple: usize) -> usize {
    let most = most.max(1).next_multiple_of(multiple.max(1));
    let blocks = total.div_ceil(most).max(1);
    total
        .div_ceil(blocks)
        .next_multiple_of(multiple.max(1))
        .clamp(1, total.max(1))
}

/// Block number `index` of blocks of `step`.
fn part(index: usize, step: usize, total: usize) -> Range<usize> {
    (index * step).min(total)..((index + 1) * step).min(total)
}

/// A range in blocks of `step`.
fn blocks(range: Range<usize>, step: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range
        .step_by(step)
        .map(move |start| start..end.min(start + step))
}
