//! Radix sort, the least significant digit first.
//!
//! One pass counts all digits at once. Each digit is then a stable distribution of the records from one
//! buffer into the other; a digit in which all keys agree is passed over, so small numbers in wide types cost
//! what their digits cost. The first distribution reads the input itself and the last one writes the output.

use super::order::Record;
use super::top_first;

/// Most digits a key can have: 64 bits, eight at a time.
const MAX_DIGITS: usize = 8;

/// Widths of a digit that are offered; any other setting means the first.
pub(super) const DIGIT_BITS: [u32; 2] = [8, 11];

/// How many counters a sort of keys of `key` bits needs.
fn counters(key: u32, digit_bits: u32) -> usize {
    let bits = width(digit_bits);
    (key.div_ceil(bits) as usize) << bits
}

fn width(digit_bits: u32) -> u32 {
    if digit_bits == DIGIT_BITS[1] {
        DIGIT_BITS[1]
    } else {
        DIGIT_BITS[0]
    }
}

/// Where the bits of the key are in a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyBits {
    pub(super) below: u32,
    pub(super) key: u32,
}

/// How the digits are gone through.
#[derive(Debug, Clone, Copy)]
pub(super) struct Digits {
    /// Bits of a digit.
    pub(super) bits: u32,
    /// The most significant first (see [`top_first`]); digits have eight bits then.
    pub(super) top_first: bool,
}

impl Digits {
    /// How many counters a sort of keys of `key` bits needs.
    pub(super) fn counters(self, key: u32) -> usize {
        if self.top_first {
            0
        } else {
            counters(key, self.bits)
        }
    }

    /// How many of the two buffers are used at all: one less than there are digits, at most both.
    pub(super) fn buffers(self, key: u32) -> usize {
        let bits = if self.top_first { 8 } else { width(self.bits) };
        (key.div_ceil(bits) as usize).saturating_sub(1).min(2)
    }
}

/// Sorts `len` records that `read` gives, and hands each to `write` with its place.
///
/// # Safety
///
/// `counts` has [`Digits::counters`] elements at least. `near` is a place for `len` records if [`Digits::buffers`] says
/// one or more, `far` if it says two; nobody else uses them meanwhile, except that `write` may write to `far`.
/// `read` gives the same record for the same place each time. `len` fits 32 bits.
#[inline(always)]
pub(super) unsafe fn sort<R: Record>(
    len: usize,
    bits: KeyBits,
    digits: Digits,
    counts: &mut [u32],
    (near, far): (*mut R, *mut R),
    read: impl Fn(usize) -> R,
    write: impl Fn(usize, R),
) {
    // SAFETY: the caller's word.
    unsafe {
        if digits.top_first {
            top_first::sort(len, bits, (near, far), read, write);
        } else {
            bottom_first(len, bits, digits.bits, counts, (near, far), read, write);
        }
    }
}

/// Sorts by the least significant digit first.
///
/// The last distribution reads from `near` and writes with `write`; the one before reads from `far`. So `far` may
/// be the memory that `write` writes.
///
/// # Safety
///
/// As for [`sort`], with digits of `digit_bits` that are not gone through from the top.
#[inline(always)]
pub(super) unsafe fn bottom_first<R: Record>(
    len: usize,
    bits: KeyBits,
    digit_bits: u32,
    counts: &mut [u32],
    (near, far): (*mut R, *mut R),
    read: impl Fn(usize) -> R,
    write: impl Fn(usize, R),
) {
    // SAFETY: the caller's word.
    unsafe {
        if width(digit_bits) == 11 {
            digits::<R, 11>(len, bits, counts, (near, far), read, write);
        } else {
            digits::<R, 8>(len, bits, counts, (near, far), read, write);
        }
    }
}

#[inline(always)]
unsafe fn digits<R: Record, const BITS: u32>(
    len: usize,
    bits: KeyBits,
    counts: &mut [u32],
    (near, far): (*mut R, *mut R),
    read: impl Fn(usize) -> R,
    write: impl Fn(usize, R),
) {
    let bins = 1usize << BITS;
    let digits = bits.key.div_ceil(BITS) as usize;
    let shift = |digit: usize| bits.below + digit as u32 * BITS;
    if len == 0 || digits > MAX_DIGITS {
        return;
    }
    let counts = &mut counts[..digits << BITS];
    counts.fill(0);
    for place in 0..len {
        let record = read(place);
        for digit in 0..digits {
            let bin = record.digit(shift(digit), bins - 1);
            // SAFETY: `bin` is below `bins`, so this is inside the `digits * bins` counters.
            unsafe { *counts.get_unchecked_mut((digit << BITS) + bin) += 1 };
        }
    }

    // Counts become the place of the first record of each bin; digits that tell nothing apart drop out.
    let first = read(0);
    let mut telling = [0usize; MAX_DIGITS];
    let mut passes = 0;
    for digit in 0..digits {
        let counts = &mut counts[digit << BITS..(digit + 1) << BITS];
        if counts[first.digit(shift(digit), bins - 1)] as usize == len {
            continue;
        }
        let mut start = 0;
        for count in counts {
            start += std::mem::replace(count, start);
        }
        telling[passes] = digit;
        passes += 1;
    }
    if passes == 0 {
        return (0..len).for_each(|place| write(place, read(place)));
    }

    for (pass, &digit) in telling[..passes].iter().enumerate() {
        let starts = &mut counts[digit << BITS..(digit + 1) << BITS];
        let shift = shift(digit);
        let left = passes - 1 - pass;
        // The last buffer is `near`, the one before `far`, and so on in turns.
        let (from, to) = if left % 2 == 0 {
            (near, far)
        } else {
            (far, near)
        };
        let place = |record: R| {
            let bin = record.digit(shift, bins - 1);
            // SAFETY: `bin` is below `bins`.
            let start = unsafe { starts.get_unchecked_mut(bin) };
            let place = *start as usize;
            *start += 1;
            place
        };
        // SAFETY: the buffers hold `len` records; all of `from` was written by the pass before. Each place
        // comes up once, because the counts are those of the same records.
        unsafe {
            match (pass == 0, left == 0) {
                (true, true) => distribute(len, &read, &write, place),
                (true, false) => {
                    distribute(len, &read, |at, record| to.add(at).write(record), place)
                }
                (false, true) => distribute(len, |at| from.add(at).read(), &write, place),
                (false, false) => {
                    distribute(
                        len,
                        |at| from.add(at).read(),
                        |at, record| to.add(at).write(record),
                        place,
                    );
                }
            }
        }
    }
}

#[inline(always)]
fn distribute<R>(
    len: usize,
    read: impl Fn(usize) -> R,
    write: impl Fn(usize, R),
    mut place: impl FnMut(R) -> usize,
) where
    R: Copy,
{
    for at in 0..len {
        let record = read(at);
        write(place(record), record);
    }
}
