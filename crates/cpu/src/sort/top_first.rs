//! Radix sort, the most significant digit first until the parts fit a cache.
//!
//! A distribution over a long list writes to as many places at once as a digit has values, far apart. Sorting by the
//! top digit once makes parts that stay near; a part is finished by its remaining digits, the least significant first,
//! where they are few, by its next digit where they are many, and by comparing where the part is short.
//!
//! Only digits in which keys differ at all take part.

use super::order::Record;
use super::radix::KeyBits;

/// Bits of a digit.
const BITS: u32 = 8;

/// Values of a digit.
const BINS: usize = 1 << BITS;

/// Most digits a key can have.
const MAX_DIGITS: usize = 8;

/// Parts of fewer records are sorted by comparing.
const SHORT: usize = 256;

/// Most digits a part is finished by at once, the least significant first.
const FEW: usize = 3;

/// Where the records are while they are sorted, and which digits count.
struct Parts<R, W> {
    near: *mut R,
    far: *mut R,
    write: W,
    /// Shifts of the digits that tell keys apart, the least significant first.
    shifts: [u32; MAX_DIGITS],
}

/// Sorts `len` records that `read` gives, and hands each to `write` with its place.
///
/// `far` may be the memory that `write` writes: a place of it is read for the last time before it is written.
///
/// # Safety
///
/// As for [`radix::sort`](super::radix::sort) with digits of eight bits, but for the counters.
#[inline(always)]
pub(super) unsafe fn sort<R: Record>(
    len: usize,
    bits: KeyBits,
    (near, far): (*mut R, *mut R),
    read: impl Fn(usize) -> R,
    write: impl Fn(usize, R),
) {
    if len == 0 {
        return;
    }
    let first = read(0);
    let differing = (1..len).fold(R::default(), |bits, place| bits | (read(place) ^ first));
    let mut shifts = [0; MAX_DIGITS];
    let mut telling = 0;
    for digit in 0..bits.key.div_ceil(BITS) {
        let shift = bits.below + digit * BITS;
        if differing.digit(shift, BINS - 1) != 0 && telling < MAX_DIGITS {
            shifts[telling] = shift;
            telling += 1;
        }
    }
    let Some(top) = telling.checked_sub(1) else {
        return (0..len).for_each(|place| write(place, read(place)));
    };
    let parts = Parts {
        near,
        far,
        write,
        shifts,
    };
    let mut starts = [0; BINS + 1];
    count(&mut starts, len, shifts[top], &read);
    if top == 0 {
        distribute(&starts, len, shifts[top], read, |place, record| {
            (parts.write)(place, record)
        });
        return;
    }
    let to = parts.holding(top);
    // SAFETY: the buffer holds `len` records, and each place comes up once: counts are those of the same records.
    distribute(&starts, len, shifts[top], read, |place, record| unsafe {
        to.add(place).write(record)
    });
    for bin in starts.windows(2) {
        // SAFETY: this part of the buffer was just written.
        unsafe { parts.finish(bin[0] as usize, (bin[1] - bin[0]) as usize, top) };
    }
}

/// Makes `starts[bin]` the place of the first record of each bin.
#[inline(always)]
fn count<R: Record>(
    starts: &mut [u32; BINS + 1],
    len: usize,
    shift: u32,
    read: impl Fn(usize) -> R,
) {
    for place in 0..len {
        starts[read(place).digit(shift, BINS - 1) + 1] += 1;
    }
    for bin in 0..BINS {
        starts[bin + 1] += starts[bin];
    }
}

#[inline(always)]
fn distribute<R: Record>(
    starts: &[u32; BINS + 1],
    len: usize,
    shift: u32,
    read: impl Fn(usize) -> R,
    write: impl Fn(usize, R),
) {
    let mut next = *starts;
    for place in 0..len {
        let record = read(place);
        let next = &mut next[record.digit(shift, BINS - 1)];
        write(*next as usize, record);
        *next += 1;
    }
}

impl<R: Record, W: Fn(usize, R)> Parts<R, W> {
    /// The buffer that holds a part with so many digits to go. They alternate, so that whichever way a part is
    /// finished, its last distribution does not read where it writes.
    fn holding(&self, digits: usize) -> *mut R {
        if digits % 2 == 1 { self.near } else { self.far }
    }

    /// Sorts a part by the lowest `digits` digits and writes it.
    ///
    /// # Safety
    ///
    /// `holding(digits)` holds the `len` records of the part from `low` on; its places in both buffers and in the
    /// output are not used for anything else.
    unsafe fn finish(&self, low: usize, len: usize, digits: usize) {
        // SAFETY: the part lies in the buffer, the caller said so.
        let from = unsafe { self.holding(digits).add(low) };
        if len < SHORT || digits == 0 {
            // SAFETY: as above. Equal keys are equal records, or records with positions that tell them apart.
            unsafe {
                if digits > 0 {
                    std::slice::from_raw_parts_mut(from, len).sort_unstable();
                }
                (0..len).for_each(|place| (self.write)(low + place, from.add(place).read()));
            }
            return;
        }
        // SAFETY: as above, for all that follows.
        unsafe {
            match digits {
                1 => self.few::<1>(low, len),
                2 => self.few::<2>(low, len),
                FEW => self.few::<FEW>(low, len),
                _ => {
                    let digit = digits - 1;
                    let read = |place| from.add(place).read();
                    let to = self.holding(digit).add(low);
                    let mut starts = [0; BINS + 1];
                    count(&mut starts, len, self.shifts[digit], read);
                    let write = |place, record| to.add(place).write(record);
                    distribute(&starts, len, self.shifts[digit], read, write);
                    for bin in starts.windows(2) {
                        self.finish(low + bin[0] as usize, (bin[1] - bin[0]) as usize, digit);
                    }
                }
            }
        }
    }

    /// Finishes a part by its lowest digits, the least significant first.
    ///
    /// # Safety
    ///
    /// As for [`finish`](Self::finish), with `DIGITS` digits.
    unsafe fn few<const DIGITS: usize>(&self, low: usize, len: usize) {
        let mut starts = [[0u32; BINS + 1]; DIGITS];
        // SAFETY: the caller's word on the buffers; places are those of the same records.
        unsafe {
            let from = self.holding(DIGITS).add(low);
            for place in 0..len {
                let record = from.add(place).read();
                for (starts, &shift) in starts.iter_mut().zip(&self.shifts) {
                    starts[record.digit(shift, BINS - 1) + 1] += 1;
                }
            }
            for starts in &mut starts {
                for bin in 0..BINS {
                    starts[bin + 1] += starts[bin];
                }
            }
            for (digit, starts) in starts.iter().enumerate() {
                let left = DIGITS - digit;
                let from = self.holding(left).add(low);
                let read = |place| from.add(place).read();
                if left > 1 {
                    // With one digit to go there may be no second buffer, so it is not even pointed into.
                    let to = self.holding(left - 1).add(low);
                    let write = |place, record| to.add(place).write(record);
                    distribute(starts, len, self.shifts[digit], read, write);
                } else {
                    distribute(starts, len, self.shifts[digit], read, |place, record| {
                        (self.write)(low + place, record);
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Two digits need one buffer. The other is at the end of the address space here, where every step overflows,
    /// which debug builds notice.
    #[test]
    fn the_second_buffer_is_not_pointed_into_where_there_is_none() {
        let keys: Vec<u16> = (0..1200u16)
            .map(|i| i.wrapping_mul(40_503) & 0x01ff)
            .collect();
        let mut near = vec![0u16; keys.len()];
        let far = std::ptr::without_provenance_mut::<u16>(usize::MAX - 1);
        let sorted = RefCell::new(vec![0u16; keys.len()]);
        // SAFETY: `near` is as long as the keys, which do not change; sixteen bits need no second buffer.
        unsafe {
            sort(
                keys.len(),
                KeyBits { below: 0, key: 16 },
                (near.as_mut_ptr(), far),
                |place| keys[place],
                |place, key| sorted.borrow_mut()[place] = key,
            );
        }
        let mut expected = keys;
        expected.sort_unstable();
        assert_eq!(sorted.into_inner(), expected);
    }
}
