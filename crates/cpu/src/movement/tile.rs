//! Transposing a part of a matrix: unit by unit, or a square of them in registers.
//!
//! The square is as wide as a register. Each row is one load, `log2(width)` rounds of shuffles exchange ever
//! larger parts between registers, each result is one store. With 512 bits both are whole cache lines.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use crate::isa::Level;

/// A matrix to be transposed: `rows` runs along lines of the input, `columns` along lines of the output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<U> {
    /// First unit of the input.
    pub(super) from: *const U,
    /// Distance of lines in the input.
    pub(super) from_step: isize,
    /// First unit of the output.
    pub(super) to: *mut U,
    /// Distance of lines in the output.
    pub(super) to_step: isize,
    /// Units in a line of the input.
    pub(super) rows: usize,
    /// Units in a line of the output.
    pub(super) columns: usize,
}

impl<U: Copy> Part<U> {
    /// The part that begins at a row and column, of at most so many of them.
    ///
    /// # Safety
    ///
    /// The row and the column are inside.
    unsafe fn at(self, row: usize, column: usize, most: usize) -> Self {
        // SAFETY: inside by the caller's word.
        unsafe {
            Self {
                from: self
                    .from
                    .offset(row as isize + column as isize * self.from_step),
                to: self
                    .to
                    .offset(column as isize + row as isize * self.to_step),
                rows: (self.rows - row).min(most),
                columns: (self.columns - column).min(most),
                ..self
            }
        }
    }

    /// Unit by unit.
    ///
    /// # Safety
    ///
    /// Every unit of the part can be read in the input and written in the output.
    unsafe fn each(self) {
        for row in 0..self.rows as isize {
            for column in 0..self.columns as isize {
                // SAFETY: inside the part.
                unsafe {
                    let value = self
                        .from
                        .offset(row + column * self.from_step)
                        .read_unaligned();
                    self.to
                        .offset(column + row * self.to_step)
                        .write_unaligned(value);
                }
            }
        }
    }

    /// In squares of so many units: what is read and written at once fits the nearest cache.
    ///
    /// # Safety
    ///
    /// As for [`each`](Self::each).
    pub(super) unsafe fn blocked(self, tile: usize) {
        for row in (0..self.rows).step_by(tile) {
            for column in (0..self.columns).step_by(tile) {
                // SAFETY: row and column are inside, and a part of the part is as good as the whole.
                unsafe { self.at(row, column, tile).each() };
            }
        }
    }

    /// In squares of a register's width, those in squares of `tile`; edges unit by unit. Units that no
    /// register kernel knows are moved as by [`blocked`](Self::blocked).
    ///
    /// # Safety
    ///
    /// As for [`each`](Self::each).
    pub(super) unsafe fn in_registers(self, level: Level, tile: usize) {
        // SAFETY: the caller's word on the part; the level is the proof of the instructions.
        unsafe {
            match Square::of(level, size_of::<U>()) {
                // Whole squares, or the last of a tile would reach beyond it.
                Some(square) => self.in_squares(square, tile.next_multiple_of(square.width)),
                None => self.blocked(tile),
            }
        }
    }

    /// # Safety
    ///
    /// As for [`each`](Self::each); the square is for units of this size and this processor, and `tile` is a multiple of
    /// its width.
    unsafe fn in_squares(self, square: Square, tile: usize) {
        let (whole_rows, whole_columns) = (
            self.rows - self.rows % square.width,
            self.columns - self.columns % square.width,
        );
        let bytes = size_of::<U>() as isize;
        let (from_step, to_step) = (self.from_step * bytes, self.to_step * bytes);
        // Along the lines of the input, which the processor fetches by itself; the lines of the output,
        // each far from the last, are asked for two squares ahead.
        for row in (0..whole_rows).step_by(tile) {
            for column in (0..whole_columns).step_by(tile) {
                for column in (column..whole_columns.min(column + tile)).step_by(square.width) {
                    for row in (row..whole_rows.min(row + tile)).step_by(square.width) {
                        // SAFETY: a whole square begins here: rows and columns count in its width.
                        let part = unsafe { self.at(row, column, square.width) };
                        let ahead = part
                            .to
                            .cast::<u8>()
                            .wrapping_offset(2 * square.width as isize * to_step);
                        for line in 0..square.width as isize {
                            expect_write(ahead.wrapping_offset(line * to_step));
                        }
                        // SAFETY: as above.
                        unsafe {
                            (square.transpose)(
                                part.from.cast(),
                                from_step,
                                part.to.cast(),
                                to_step,
                            );
                        }
                    }
                }
            }
        }
        // SAFETY: what is left, first the rows below the squares, then the columns beside them.
        unsafe {
            if whole_rows < self.rows {
                self.at_edge(whole_rows, 0).each();
            }
            if whole_columns < self.columns && whole_rows > 0 {
                let mut beside = self.at_edge(0, whole_columns);
                beside.rows = whole_rows;
                beside.each();
            }
        }
    }

    /// Everything from a row and column on.
    ///
    /// # Safety
    ///
    /// The row and the column are inside.
    unsafe fn at_edge(self, row: usize, column: usize) -> Self {
        // SAFETY: inside by the caller's word.
        unsafe { self.at(row, column, usize::MAX) }
    }
}

/// A square that is transposed in registers: its width in units, and the function, which takes addresses
/// and distances of lines in bytes.
#[derive(Clone, Copy)]
struct Square {
    width: usize,
    transpose: unsafe fn(*const u8, isize, *mut u8, isize),
}

impl Square {
    #[cfg(target_arch = "x86_64")]
    fn of(level: Level, unit: usize) -> Option<Self> {
        Some(match (level.has_avx512(), level.has_avx2(), unit) {
            (true, _, 4) => Self {
                width: 16,
                transpose: avx512_16x16,
            },
            (true, _, 8) => Self {
                width: 8,
                transpose: avx512_8x8,
            },
            (false, true, 4) => Self {
                width: 8,
                transpose: avx2_8x8,
            },
            (false, true, 8) => Self {
                width: 4,
                transpose: avx2_4x4,
            },
            _ => return None,
        })
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn of(_level: Level, _unit: usize) -> Option<Self> {
        None
    }
}

/// Asks for the line of an address that will be written; a wrong address is no harm.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn expect_write(address: *const u8) {
    // SAFETY: a hint that reads nothing and never faults.
    unsafe { _mm_prefetch::<_MM_HINT_ET0>(address.cast()) };
}

/// Asks for nothing: other processors have no squares.
#[cfg(not(target_arch = "x86_64"))]
fn expect_write(_address: *const u8) {}

/// Whether squares of such units are transposed in registers at this level.
pub(super) fn knows(level: Level, unit: usize) -> bool {
    Square::of(level, unit).is_some()
}

/// # Safety
///
/// Eight lines of eight units of 4 bytes can be read and written; the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2_8x8(from: *const u8, from_step: isize, to: *mut u8, to_step: isize) {
    // SAFETY: whole lines by the caller's word.
    let line = |i: usize| unsafe { _mm256_loadu_ps(from.offset(i as isize * from_step).cast()) };
    let mut a: [__m256; 8] = std::array::from_fn(line);
    let mut b = a;
    for i in (0..8).step_by(2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
    for i in [0, 4] {
        a[i] = _mm256_shuffle_ps::<0x44>(b[i], b[i + 2]);
        a[i + 1] = _mm256_shuffle_ps::<0xEE>(b[i], b[i + 2]);
        a[i + 2] = _mm256_shuffle_ps::<0x44>(b[i + 1], b[i + 3]);
        a[i + 3] = _mm256_shuffle_ps::<0xEE>(b[i + 1], b[i + 3]);
    }
    for i in 0..4 {
        b[i] = _mm256_permute2f128_ps::<0x20>(a[i], a[i + 4]);
        b[i + 4] = _mm256_permute2f128_ps::<0x31>(a[i], a[i + 4]);
    }
    for (i, line) in b.into_iter().enumerate() {
        // SAFETY: as above.
        unsafe { _mm256_storeu_ps(to.offset(i as isize * to_step).cast(), line) };
    }
}

/// # Safety
///
/// Four lines of four units of 8 bytes can be read and written; the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2_4x4(from: *const u8, from_step: isize, to: *mut u8, to_step: isize) {
    // SAFETY: whole lines by the caller's word.
    let line = |i: usize| unsafe { _mm256_loadu_pd(from.offset(i as isize * from_step).cast()) };
    let a: [__m256d; 4] = std::array::from_fn(line);
    let (even, odd) = (
        [
            _mm256_unpacklo_pd(a[0], a[1]),
            _mm256_unpacklo_pd(a[2], a[3]),
        ],
        [
            _mm256_unpackhi_pd(a[0], a[1]),
            _mm256_unpackhi_pd(a[2], a[3]),
        ],
    );
    let b = [
        _mm256_permute2f128_pd::<0x20>(even[0], even[1]),
        _mm256_permute2f128_pd::<0x20>(odd[0], odd[1]),
        _mm256_permute2f128_pd::<0x31>(even[0], even[1]),
        _mm256_permute2f128_pd::<0x31>(odd[0], odd[1]),
    ];
    for (i, line) in b.into_iter().enumerate() {
        // SAFETY: as above.
        unsafe { _mm256_storeu_pd(to.offset(i as isize * to_step).cast(), line) };
    }
}

/// # Safety
///
/// Sixteen lines of sixteen units of 4 bytes can be read and written; the processor has AVX-512F.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn avx512_16x16(from: *const u8, from_step: isize, to: *mut u8, to_step: isize) {
    // SAFETY: whole lines by the caller's word.
    let line = |i: usize| unsafe { _mm512_loadu_ps(from.offset(i as isize * from_step).cast()) };
    let mut a: [__m512; 16] = std::array::from_fn(line);
    let mut b = a;
    for i in (0..16).step_by(2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    // Now each 128 bits of a[4g + c] hold rows 4g to 4g + 3 of column c, c + 4, c + 8 or c + 12.
    for i in (0..16).step_by(4) {
        a[i] = _mm512_shuffle_ps::<0x44>(b[i], b[i + 2]);
        a[i + 1] = _mm512_shuffle_ps::<0xEE>(b[i], b[i + 2]);
        a[i + 2] = _mm512_shuffle_ps::<0x44>(b[i + 1], b[i + 3]);
        a[i + 3] = _mm512_shuffle_ps::<0xEE>(b[i + 1], b[i + 3]);
    }
    // The last two rounds are the transpose of four by four quarters.
    for c in 0..4 {
        b[c] = _mm512_shuffle_f32x4::<0x88>(a[c], a[c + 4]);
        b[c + 4] = _mm512_shuffle_f32x4::<0xDD>(a[c], a[c + 4]);
        b[c + 8] = _mm512_shuffle_f32x4::<0x88>(a[c + 8], a[c + 12]);
        b[c + 12] = _mm512_shuffle_f32x4::<0xDD>(a[c + 8], a[c + 12]);
    }
    for c in 0..4 {
        a[c] = _mm512_shuffle_f32x4::<0x88>(b[c], b[c + 8]);
        a[c + 4] = _mm512_shuffle_f32x4::<0x88>(b[c + 4], b[c + 12]);
        a[c + 8] = _mm512_shuffle_f32x4::<0xDD>(b[c], b[c + 8]);
        a[c + 12] = _mm512_shuffle_f32x4::<0xDD>(b[c + 4], b[c + 12]);
    }
    for (i, line) in a.into_iter().enumerate() {
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(to.offset(i as isize * to_step).cast(), line) };
    }
}

/// # Safety
///
/// Eight lines of eight units of 8 bytes can be read and written; the processor has AVX-512F.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn avx512_8x8(from: *const u8, from_step: isize, to: *mut u8, to_step: isize) {
    // SAFETY: whole lines by the caller's word.
    let line = |i: usize| unsafe { _mm512_loadu_pd(from.offset(i as isize * from_step).cast()) };
    let mut a: [__m512d; 8] = std::array::from_fn(line);
    let mut b = a;
    // Now each 128 bits of b[2g + c] hold rows 2g and 2g + 1 of column c, c + 2, c + 4 or c + 6.
    for i in (0..8).step_by(2) {
        b[i] = _mm512_unpacklo_pd(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_pd(a[i], a[i + 1]);
    }
    for c in 0..2 {
        a[c] = _mm512_shuffle_f64x2::<0x88>(b[c], b[c + 2]);
        a[c + 2] = _mm512_shuffle_f64x2::<0xDD>(b[c], b[c + 2]);
        a[c + 4] = _mm512_shuffle_f64x2::<0x88>(b[c + 4], b[c + 6]);
        a[c + 6] = _mm512_shuffle_f64x2::<0xDD>(b[c + 4], b[c + 6]);
    }
    for c in 0..2 {
        b[c] = _mm512_shuffle_f64x2::<0x88>(a[c], a[c + 4]);
        b[c + 2] = _mm512_shuffle_f64x2::<0x88>(a[c + 2], a[c + 6]);
        b[c + 4] = _mm512_shuffle_f64x2::<0xDD>(a[c], a[c + 4]);
        b[c + 6] = _mm512_shuffle_f64x2::<0xDD>(a[c + 2], a[c + 6]);
    }
    for (i, line) in b.into_iter().enumerate() {
        // SAFETY: as above.
        unsafe { _mm512_storeu_pd(to.offset(i as isize * to_step).cast(), line) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part in the middle of a matrix, with tiles that squares do not divide.
    #[test]
    fn tiles_of_any_size_stay_inside_the_part() {
        const SIDE: usize = 80;
        let from: Vec<u32> = (1..=(SIDE * SIDE) as u32).collect();
        for level in Level::all() {
            for tile in [1, 3, 8, 16, 20, 33, 1 << 16] {
                let mut to = vec![0u32; SIDE * SIDE];
                let part = Part {
                    from: from.as_ptr(),
                    from_step: SIDE as isize,
                    to: to.as_mut_ptr(),
                    to_step: SIDE as isize,
                    rows: 48,
                    columns: 37,
                };
                // SAFETY: 48 by 37 units lie inside both; beyond them is enough for a square.
                unsafe { part.in_registers(level, tile) };
                for (at, &value) in to.iter().enumerate() {
                    let (row, column) = (at / SIDE, at % SIDE);
                    let inside = row < part.rows && column < part.columns;
                    let expected = if inside { from[row + column * SIDE] } else { 0 };
                    assert_eq!(value, expected, "{} {tile}: {row} {column}", level.name());
                }
            }
        }
    }
}
