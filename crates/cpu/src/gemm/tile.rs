//! The innermost loop: a tile of the result, held in registers over the whole depth of a block.

use std::ops::{Add, Mul};

use kernelwise_types::Element;

use super::source::Panel;
use crate::isa::{Level, opaque};

/// Most lanes across one tile: four vectors of sixteen.
pub(super) const MOST_LANES: usize = 64;

/// Most lanes of one vector.
const MOST_IN_VECTOR: usize = 16;

/// Most rows in one tile.
pub(super) const MOST_ROWS: usize = 8;

/// Floating-point types the engine multiplies in.
pub(crate) trait Real: Element + Default + Add<Output = Self> + Mul<Output = Self> {
    /// The tile kernels of a level.
    fn kernels(level: Level) -> &'static Kernels<Self>;
}

impl Real for f32 {
    fn kernels(level: Level) -> &'static Kernels<Self> {
        #[cfg(target_arch = "x86_64")]
        if level.has_avx512() {
            return &super::avx512::F32;
        } else if level.has_avx2() {
            return &super::avx2::F32;
        }
        #[cfg(target_arch = "aarch64")]
        if level != Level::PORTABLE {
            return &super::neon::F32;
        }
        let _ = level;
        &super::portable::F32
    }
}

impl Real for f64 {
    fn kernels(level: Level) -> &'static Kernels<Self> {
        #[cfg(target_arch = "x86_64")]
        if level.has_avx512() {
            return &super::avx512::F64;
        } else if level.has_avx2() {
            return &super::avx2::F64;
        }
        #[cfg(target_arch = "aarch64")]
        if level != Level::PORTABLE {
            return &super::neon::F64;
        }
        let _ = level;
        &super::portable::F64
    }
}

/// The kernels of one level for one element type.
#[derive(Debug)]
pub(crate) struct Kernels<T: 'static> {
    /// Values in a vector.
    pub(super) lanes: usize,
    /// Vectors across the tiles that most of a product is made of.
    pub(super) usual: usize,
    /// For tiles of one, two, ... vectors: kernels by rows less one, then without and with an edge. Tiles
    /// wider than usual have fewer rows; they are for results that are just so wide.
    pub(super) tiles: &'static [&'static [[TileKernel<T>; 2]]],
    /// Fills one panel from a strided matrix.
    pub(super) pack: unsafe fn(&Panel<T>),
}

/// Computes one tile. Safe to call on a processor with the instructions of its level and a [`Tile`] whose
/// promises hold.
pub(super) type TileKernel<T> = unsafe fn(&Tile<T>);

impl<T> Kernels<T> {
    /// Lanes across the usual tile.
    pub(super) fn width(&self) -> usize {
        self.lanes * self.usual
    }

    /// Most rows of a tile this many vectors wide.
    pub(super) fn rows(&self, vectors: usize) -> usize {
        self.tiles[vectors - 1].len()
    }
}

/// One tile of the result: which operands, how deep, where to.
///
/// Promises of whoever makes one, for a kernel of `R` rows and `V` vectors of `L` lanes: `a` is readable at
/// `row * a_lane + depth * a_depth`, `b` at `depth * b_depth + column`, and `c` is readable and writable at
/// `row * c_row + column`, where columns end at `V * L`, or, for kernels with an edge, at `(V - 1) * L + last`.
pub(super) struct Tile<T> {
    pub(super) depth: usize,
    pub(super) a: *const T,
    pub(super) a_lane: isize,
    pub(super) a_depth: isize,
    pub(super) b: *const T,
    pub(super) b_depth: isize,
    pub(super) c: *mut T,
    pub(super) c_row: isize,
    /// Columns in the last vector, for kernels with an edge; at least one.
    pub(super) last: usize,
    /// Add to what `c` holds.
    pub(super) accumulate: bool,
}

/// A vector of one level.
///
/// # Safety
/// The functions may be called only in code that is compiled for, and runs on, that level; pointers are valid
/// for the lanes they stand for.
pub(crate) unsafe trait Vector: Copy {
    /// What is in the lanes.
    type Scalar: Element + Default + Add<Output = Self::Scalar>;
    /// The leading lanes of a vector.
    type Mask: Copy;
    /// How many lanes there are, at most [`MOST_IN_VECTOR`].
    const LANES: usize;

    unsafe fn zero() -> Self;
    unsafe fn splat(value: *const Self::Scalar) -> Self;
    unsafe fn load(from: *const Self::Scalar) -> Self;
    unsafe fn store(self, to: *mut Self::Scalar);
    /// The first so many lanes, all where there are fewer.
    unsafe fn mask(lanes: usize) -> Self::Mask;
    unsafe fn load_part(from: *const Self::Scalar, mask: Self::Mask) -> Self;
    unsafe fn store_part(self, to: *mut Self::Scalar, mask: Self::Mask);
    unsafe fn add(self, other: Self) -> Self;
    /// `self * factor + sum`, rounded once where the level can.
    unsafe fn multiply_add(self, factor: Self, sum: Self) -> Self;

    /// The sum of all lanes.
    #[inline(always)]
    unsafe fn total(self) -> Self::Scalar {
        let mut lanes = [Self::Scalar::default(); MOST_IN_VECTOR];
        // SAFETY: the caller runs at this level; there is room for all lanes.
        unsafe { self.store(lanes.as_mut_ptr()) };
        let lanes = lanes.into_iter().take(Self::LANES);
        lanes.fold(Self::Scalar::default(), |sum, lane| sum + lane)
    }
}

/// Steps between a vector of `b` and the one that is fetched ahead of time.
const STEPS_AHEAD: isize = 8;

/// Steps between two rows of the result that are fetched ahead of time.
const BETWEEN_ROWS: usize = 4;

/// Steps in a sum that is over before memory has answered.
const SHORT: usize = 64;

/// The tile kernel, to be inlined into a function compiled for the vector's level.
///
/// Short tiles leave the multipliers waiting for each other, so they keep several sums over alternate depths.
///
/// # Safety
/// The promises of [`Tile`] hold and the processor has the vector's level.
#[inline(always)]
pub(super) unsafe fn tile<V: Vector, const ROWS: usize, const VECTORS: usize, const EDGE: bool>(
    tile: &Tile<V::Scalar>,
) {
    // SAFETY: all reads of `a` and `b` are at rows, columns and depths inside the tile, those of the last
    // vector masked where the tile has an edge; the same holds for `c`.
    unsafe {
        let chains = chains(ROWS * VECTORS);
        let mask = V::mask(if EDGE { tile.last } else { V::LANES });
        let row = |i: usize| tile.c.wrapping_offset(i as isize * tile.c_row);
        // Left to itself the compiler walks from row to row by repeated addition, a chain longer than the
        // arithmetic of narrow tiles.
        let mut rows = [0isize; ROWS];
        for (i, row) in rows.iter_mut().enumerate().skip(1) {
            *row = opaque((i as isize).wrapping_mul(tile.a_lane));
        }
        let (mut a, mut b) = (tile.a, tile.b);
        // Of a product that is one deep the stride means nothing, and may be anything.
        let ahead = opaque(STEPS_AHEAD.wrapping_mul(tile.b_depth));
        let mut sums = [[[V::zero(); VECTORS]; ROWS]; 4];
        // The rows of `c` are asked for one by one over the first depths: all at once would fill the buffers
        // of the first cache, and the loads of `a` and `b` would wait behind them. Short sums end before that
        // would help.
        let groups = tile.depth / chains;
        let (mut done, mut c) = (0, tile.c);
        let mut next = if groups < SHORT { ROWS } else { 0 };
        while done < groups {
            let until = if next < ROWS {
                for v in 0..VECTORS {
                    prefetch(c.wrapping_add(v * V::LANES));
                }
                next += 1;
                c = c.wrapping_offset(tile.c_row);
                groups.min(done + BETWEEN_ROWS)
            } else {
                groups
            };
            while done < until {
                for sum in sums.iter_mut().take(chains) {
                    step::<V, ROWS, VECTORS, EDGE>(a, &rows, b, ahead, mask, sum);
                    a = a.wrapping_offset(tile.a_depth);
                    b = b.wrapping_offset(tile.b_depth);
                }
                done += 1;
            }
        }
        if chains > 1 {
            for _ in 0..tile.depth % chains {
                step::<V, ROWS, VECTORS, EDGE>(a, &rows, b, ahead, mask, &mut sums[0]);
                a = a.wrapping_offset(tile.a_depth);
                b = b.wrapping_offset(tile.b_depth);
            }
        }
        for i in 0..ROWS {
            for v in 0..VECTORS {
                let mut sum = sums[0][i][v];
                for other in sums.iter().take(chains).skip(1) {
                    sum = sum.add(other[i][v]);
                }
                let to = row(i).wrapping_add(v * V::LANES);
                if EDGE && v + 1 == VECTORS {
                    if tile.accumulate {
                        sum = sum.add(V::load_part(to, mask));
                    }
                    sum.store_part(to, mask);
                } else {
                    if tile.accumulate {
                        sum = sum.add(V::load(to));
                    }
                    sum.store(to);
                }
            }
        }
    }
}

/// One depth of a tile: `rows` are offsets from `a`; `b` is also fetched `ahead` of time.
///
/// # Safety
/// As for [`tile`], with `a` and `b` at one of its depths.
#[inline(always)]
unsafe fn step<V: Vector, const ROWS: usize, const VECTORS: usize, const EDGE: bool>(
    a: *const V::Scalar,
    rows: &[isize; ROWS],
    b: *const V::Scalar,
    ahead: isize,
    mask: V::Mask,
    sums: &mut [[V; VECTORS]; ROWS],
) {
    // SAFETY: the caller gives a depth inside the tile; rows and columns are those of the tile.
    unsafe {
        let mut columns = [V::zero(); VECTORS];
        for (v, column) in columns.iter_mut().enumerate() {
            let from = b.wrapping_add(v * V::LANES);
            prefetch(from.wrapping_offset(ahead));
            *column = if EDGE && v + 1 == VECTORS {
                V::load_part(from, mask)
            } else {
                V::load(from)
            };
        }
        for (sums, row) in sums.iter_mut().zip(rows) {
            let factor = V::splat(a.wrapping_offset(*row));
            for (sum, column) in sums.iter_mut().zip(columns) {
                *sum = column.multiply_add(factor, *sum);
            }
        }
    }
}

/// Independent sums per element of a tile of so many vectors: two multipliers with a latency of four want
/// eight sums in flight.
const fn chains(vectors: usize) -> usize {
    match vectors {
        0..=2 => 4,
        3..=4 => 2,
        _ => 1,
    }
}

/// Asks for the cache line at `address`, which need not be valid.
#[inline(always)]
pub(super) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching is a hint; it does not fault at any address, and SSE is part of the architecture.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    let _ = address;
}

/// Fills one panel from a matrix whose lanes are neighbours: row after row is copied.
///
/// # Safety
/// `panel.from` is readable at every lane and depth of the panel, `panel.into` writable at `width` values for
/// each depth, lanes are neighbours, and the processor has the vector's level.
#[inline(always)]
pub(super) unsafe fn copy<V: Vector>(panel: &Panel<V::Scalar>) {
    let (whole, rest) = (panel.lanes / V::LANES, panel.lanes % V::LANES);
    // SAFETY: lanes and depths are those of the panel; the last vector is masked.
    unsafe {
        let mask = V::mask(rest);
        for depth in 0..panel.depth {
            let from = panel.from.offset(depth as isize * panel.depth_stride);
            let into = panel.into.add(depth * panel.width);
            for v in 0..whole {
                V::load(from.add(v * V::LANES)).store(into.add(v * V::LANES));
            }
            if rest > 0 {
                let last = V::load_part(from.add(whole * V::LANES), mask);
                last.store_part(into.add(whole * V::LANES), mask);
            }
        }
    }
}

/// Fills one panel, value by value, whatever the strides.
///
/// # Safety
/// `panel.from` is readable at every lane and depth of the panel, `panel.into` writable at `width` values for
/// each depth.
#[inline(always)]
pub(super) unsafe fn gather<T: Copy>(panel: &Panel<T>) {
    for d in 0..panel.depth {
        for lane in 0..panel.lanes {
            let offset = d as isize * panel.depth_stride + lane as isize * panel.lane_stride;
            // SAFETY: lane and depth are inside the panel.
            unsafe {
                let value = panel.from.offset(offset).read();
                panel.into.add(d * panel.width + lane).write(value);
            }
        }
    }
}

/// The table of tile kernels with up to so many rows, for one number of vectors.
macro_rules! by_rows {
    ($kernel:ident, $vector:ty, $vectors:literal; $($rows:literal)*) => {
        &[$([
            $kernel::<$vector, $rows, $vectors, false>,
            $kernel::<$vector, $rows, $vectors, true>,
        ]),*]
    };
}
pub(super) use by_rows;
