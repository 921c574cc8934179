//! Cutting a product into tiles.

use super::tile::{Real, Tile, Tiles};
use crate::matmul::operands::{Product, Stack};

/// Computes one matrix of the product, whose rows of `b` lie at `b`, `b_depth` apart and without gaps.
///
/// # Safety
/// `a`, `b` and `c` are addresses of one matrix each, with the sizes and, for `a` and `c`, the strides of `product`; the
/// processor has the level of the tiles.
#[inline(always)]
pub(super) unsafe fn multiply<T: Real>(
    tiles: &Tiles<T>,
    product: &Product<T>,
    a: *const T,
    (b, b_depth): (*const T, isize),
    c: *mut T,
) {
    let (m, n) = (product.m, product.n);
    let vectors = (n + tiles.lanes() - 1) >> tiles.lanes_log2;
    let whole = Tile {
        depth: product.k,
        a,
        a_row: product.a.rows,
        a_depth: product.a.columns,
        b,
        b_depth,
        c,
        c_row: product.c.rows,
        last: n - ((vectors - 1) << tiles.lanes_log2),
    };
    // SAFETY: the whole matrix is one tile, or is cut into several; either way the caller's promises are theirs.
    unsafe {
        match tiles
            .by_width
            .get(vectors - 1)
            .and_then(|by_rows| by_rows.get(m - 1))
        {
            Some(compiled) => compiled[usize::from(whole.last != tiles.lanes())](&whole),
            None => cut(tiles, m, vectors, whole),
        }
    }
}

/// Computes a matrix of `m` rows, `vectors` wide, in several tiles.
///
/// Strips of columns, each as deep as `b`, are walked down row block by row block: a strip of `b` stays in the cache
/// while rows of `a` come and go. Strips and blocks are of about equal size, so none is too small to keep the
/// processor busy.
///
/// # Safety
/// `whole` keeps the promises of a tile of this size, on a processor that has the level.
#[inline(never)]
unsafe fn cut<T: Real>(tiles: &Tiles<T>, m: usize, vectors: usize, whole: Tile<T>) {
    let edge = whole.last != tiles.lanes();
    let mut first = 0;
    for width in Even::parts(vectors, tiles.by_width.len()) {
        let end = first + width;
        let by_rows = tiles.by_width[width - 1];
        let edge = usize::from(edge && end == vectors);
        let column = first << tiles.lanes_log2;
        let mut row = 0;
        for rows in Even::parts(m, by_rows.len()) {
            let tile = Tile {
                a: whole.a.wrapping_offset(row as isize * whole.a_row),
                b: whole.b.wrapping_add(column),
                c: whole
                    .c
                    .wrapping_offset(row as isize * whole.c_row)
                    .wrapping_add(column),
                ..whole
            };
            // SAFETY: columns from `first` to `end` vectors, the last of all cut short, and the next `rows` from `row` on
            // are inside the matrix.
            unsafe { by_rows[rows - 1][edge](&tile) };
            row += rows;
        }
        first = end;
    }
}

/// The fewest parts of about equal size, each of at most so much, that make up a whole. Nothing is divided from part to
/// part: a small product would notice.
struct Even {
    size: usize,
    /// Parts that are larger by one.
    larger: usize,
    left: usize,
}

impl Even {
    fn parts(whole: usize, most: usize) -> Self {
        let parts = whole.div_ceil(most);
        Self {
            size: whole / parts,
            larger: whole % parts,
            left: parts,
        }
    }
}

impl Iterator for Even {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        Some(self.size + usize::from(self.left < self.larger))
    }
}

impl<P> Stack<P> {
    /// How far the matrix of this number is from the first.
    #[inline(always)]
    pub(in crate::matmul) fn offset(&self, matrix: usize) -> isize {
        matrix as isize * self.step
    }
}
