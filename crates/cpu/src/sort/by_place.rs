//! Positions in the order of the places they name: the stable sort that gather and scatter begin with.

use super::radix::{self, KeyBits};

/// Wide digits: lists are long, and the upper digits of small places cost nothing.
const DIGIT_BITS: u32 = 11;

/// How many counters a sort needs: three digits.
pub(crate) const COUNTERS: usize = 3 << DIGIT_BITS;

/// Fills `records` with a place in the upper half and its position in the lower, in the order of the places.
///
/// # Safety
///
/// `place` gives the same answer for the same position each time, `spare` is as long as `records`, which is shorter than
/// 2^32, and `counts` has [`COUNTERS`] elements.
pub(crate) unsafe fn sort(
    place: impl Fn(usize) -> u32,
    records: &mut [u64],
    spare: &mut [u64],
    counts: &mut [u32],
) {
    let (near, far) = (spare.as_mut_ptr(), records.as_mut_ptr());
    let read = |position: usize| u64::from(place(position)) << 32 | position as u64;
    // SAFETY: both buffers hold as many records as are sorted and are borrowed exclusively; the rest is the
    // caller's word.
    unsafe {
        let write = |at: usize, record: u64| far.add(at).write(record);
        let bits = KeyBits { below: 32, key: 32 };
        radix::bottom_first(
            records.len(),
            bits,
            DIGIT_BITS,
            counts,
            (near, far),
            read,
            write,
        );
    }
}
