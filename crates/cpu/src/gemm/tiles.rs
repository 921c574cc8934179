//! How a product is cut, and the cut that fits the caches.

use kernelwise_types::Machine;

use super::tile::Real;
use crate::isa::Level;

/// The cut of a product. Sizes are upper bounds: blocks are made even, and rounded to whole panels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tiles {
    /// Most rows in a block.
    pub(crate) mc: usize,
    /// Most depth in a block.
    pub(crate) kc: usize,
    /// Most columns in a block.
    pub(crate) nc: usize,
    /// Pack the left operand; otherwise it is read where it lies.
    pub(crate) pack_a: bool,
    /// Pack the right operand; otherwise it is read where it lies, which needs neighbouring columns to be
    /// neighbours in memory.
    pub(crate) pack_b: bool,
}

/// Sizes of the data caches one core sees, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caches {
    /// First level.
    pub(crate) l1: usize,
    /// Second level.
    pub(crate) l2: usize,
}

impl Caches {
    /// Those of a machine; what nearly every processor has where they are unknown.
    pub(crate) fn of(machine: &Machine) -> Self {
        let known = machine.caches.known();
        let level = |level: u8, otherwise: usize| {
            let mut caches = known.iter().flat_map(|caches| caches.iter());
            let found = caches.find(|cache| cache.level == level);
            found.map_or(otherwise, |cache| cache.size_bytes.0 as usize)
        };
        Self {
            l1: level(1, 32 << 10),
            l2: level(2, 256 << 10),
        }
    }
}

/// Full tiles, one below the other, in a block: few enough rows of the result that their pages stay known to
/// the processor from one panel to the next.
const TILES_IN_A_BLOCK: usize = 4;

/// Depths of a block: fewer would spend their time on the result, more would not stay in any cache.
const LEAST_DEPTH: usize = 64;
const MOST_DEPTH: usize = 512;

/// Rows of a panel that are being used, or fetched ahead of their use.
const ROWS_FETCHED: usize = 64;

/// Panels of a result that is narrow.
const FEW_PANELS: usize = 3;

/// Bytes of a cache line, and the distance at which lines share a place in the first cache of most processors.
const LINE: usize = 64;
const CONFLICT: usize = 4096;

impl Tiles {
    /// The cut for these caches: a panel of `b` is as large as the first level (it is fetched ahead of time, so
    /// that it need not stay there), a block of `b` half of the second.
    pub(crate) fn for_caches<T: Real>(level: Level, caches: &Caches) -> Self {
        let kernels = T::kernels(level);
        let size = size_of::<T>();
        let kc = (caches.l1 / (kernels.width() * size)).clamp(LEAST_DEPTH, MOST_DEPTH);
        Self {
            mc: TILES_IN_A_BLOCK * kernels.rows(kernels.usual),
            kc,
            nc: (caches.l2 / 2 / (kc * size)).max(kernels.width()),
            pack_a: false,
            pack_b: true,
        }
    }

    /// The cut for one product on these caches. `row_bytes` is how far apart the rows of the right operand are, if
    /// the values in a row are neighbours.
    ///
    /// A result of a few panels is cut as little as possible along the depth: what is in the caches then is mostly
    /// the left operand, which does not come back. The right operand is read in place if a panel of it finds room in the
    /// first level where it lies, or if too few tiles meet it to earn the copy back. Rows a power of two apart drive each
    /// other out; then even a second tile does.
    pub(crate) fn for_product<T: Real>(
        level: Level,
        caches: &Caches,
        (m, n, k): (usize, usize, usize),
        row_bytes: Option<usize>,
    ) -> Self {
        let kernels = T::kernels(level);
        let width = kernels.width();
        let mut tiles = Self::for_caches::<T>(level, caches);
        if n <= FEW_PANELS * width {
            tiles.kc = MOST_DEPTH;
        }
        if let Some(row_bytes) = row_bytes {
            let panel = n.min(width) * size_of::<T>();
            let room = rows_in_place(caches.l1, row_bytes, panel);
            let earns = if room < ROWS_FETCHED {
                kernels.rows(kernels.usual)
            } else {
                tiles.mc
            };
            tiles.pack_b = m > earns && k.min(tiles.kc) > room;
        }
        tiles
    }

    /// The same cut of the transposed product.
    pub(super) fn transposed(&self) -> Self {
        Self {
            pack_a: self.pack_b,
            pack_b: self.pack_a,
            ..*self
        }
    }
}

/// How many rows of a panel, so many bytes wide and `row_bytes` apart, the first cache can hold at once.
fn rows_in_place(l1: usize, row_bytes: usize, panel: usize) -> usize {
    // Rows that do not begin with a line reach into one more.
    let straddles = usize::from(!row_bytes.is_multiple_of(LINE));
    let lines = (panel.div_ceil(LINE) + straddles) * LINE;
    // Lines lie at multiples of what the distance and the cache's period have in common.
    let common = 1usize << row_bytes.trailing_zeros().min(CONFLICT.trailing_zeros());
    l1 / lines.max(common)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_a_power_of_two_apart_share_few_places() {
        // 32 KiB in ways of 4 KiB: eight lines to each place.
        assert_eq!(rows_in_place(32 << 10, 4096, 64), 8);
        assert_eq!(rows_in_place(32 << 10, 8192, 64), 8);
        assert_eq!(rows_in_place(32 << 10, 1024, 64), 32);
        assert_eq!(rows_in_place(32 << 10, 4096 + 64, 64), 512);
        assert_eq!(rows_in_place(32 << 10, 1024, 2048), 16);
        // Every row of 100 values touches two lines.
        assert_eq!(rows_in_place(32 << 10, 400, 64), 256);
    }

    #[test]
    fn the_right_operand_is_packed_where_it_would_not_stay() {
        let caches = Caches {
            l1: 32 << 10,
            l2: 512 << 10,
        };
        let packs = |m, n, k| {
            let row = Some(n * size_of::<f32>());
            Tiles::for_product::<f32>(Level::PORTABLE, &caches, (m, n, k), row).pack_b
        };
        assert!(!packs(64, 64, 64), "it stays");
        assert!(packs(256, 256, 256), "it would drive itself out");
        assert!(!packs(1, 256, 256), "it is read only once");
        assert!(packs(100, 100, 10_000), "it is too deep");
        assert!(!packs(12, 500, 500), "too few rows meet it");
        assert!(packs(12, 1024, 500), "it drives itself out at once");
    }
}
