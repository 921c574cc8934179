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

/// Panels of a result that is narrow, and of one that is hardly more than one panel.
const FEW_PANELS: usize = 3;
const ONE_PANEL: usize = 2;

/// Rows of the left operand up to which packing the right one does not pay.
const FEW_ROWS: usize = 64;

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
    /// the left operand, which does not come back. The right operand is read in place if few rows meet it, or if it
    /// stays in the second level and its rows begin with a line, or are so short that this does not matter, and do not
    /// drive each other out.
    pub(crate) fn for_product<T: Real>(
        level: Level,
        caches: &Caches,
        (m, n, k): (usize, usize, usize),
        row_bytes: Option<usize>,
    ) -> Self {
        let width = T::kernels(level).width();
        let mut tiles = Self::for_caches::<T>(level, caches);
        if n <= FEW_PANELS * width {
            tiles.kc = MOST_DEPTH;
        }
        if let Some(row_bytes) = row_bytes {
            let stays = k.saturating_mul(n).saturating_mul(size_of::<T>()) <= caches.l2;
            let whole = n <= ONE_PANEL * width || row_bytes.is_multiple_of(LINE);
            let apart = !row_bytes.is_multiple_of(CONFLICT);
            tiles.pack_b = !(m <= FEW_ROWS || stays && whole && apart);
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
