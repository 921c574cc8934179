//! The list of indices in the order of the places, for walking memory in one direction.

use kernelwise_backend::{Carver, Fault};
use kernelwise_types::units::Bytes;

use super::picks::Picks;
use crate::sort::by_place;

/// Positions of a list in the order of the places they name; of equal places the earlier position first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sorted<'a> {
    /// The place in the upper half, the position in the lower.
    records: &'a [u64],
}

impl<'a> Sorted<'a> {
    /// Scratch memory for a list of so many indices.
    pub(super) fn room(indices: usize) -> Bytes {
        let records = Carver::room::<u64>(indices).0;
        Bytes(
            records
                .saturating_mul(2)
                .saturating_add(Carver::room::<u32>(by_place::COUNTERS).0),
        )
    }

    /// Sorts a list. Places and positions must fit 32 bits.
    pub(super) fn new(picks: &Picks<'_>, pieces: &mut Carver<'a>) -> Result<Self, Fault> {
        let records: &mut [u64] = pieces.take(picks.len())?;
        let spare: &mut [u64] = pieces.take(picks.len())?;
        let counts: &mut [u32] = pieces.take(by_place::COUNTERS)?;
        // SAFETY: the list is borrowed and does not change; its kernels accept lists of fewer than 2^32 only; the
        // rest was just taken in these sizes. There are as many records as positions.
        unsafe {
            by_place::sort(
                |position| picks.place(position) as u32,
                records,
                spare,
                counts,
            )
        };
        Ok(Self { records })
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Place and position of each record in a range.
    #[inline(always)]
    pub(super) fn range(
        &self,
        range: std::ops::Range<usize>,
    ) -> impl Iterator<Item = (usize, usize)> + use<'a> {
        let records = self.records.get(range).unwrap_or_default();
        records
            .iter()
            .map(|&record| ((record >> 32) as usize, record as u32 as usize))
    }

    /// The first record from `at` on that begins another place: where a list may be cut without two parts
    /// naming the same one.
    pub(super) fn border(&self, at: usize) -> usize {
        let place = |at: usize| self.records[at] >> 32;
        let mut at = at.min(self.records.len());
        while at > 0 && at < self.records.len() && place(at) == place(at - 1) {
            at += 1;
        }
        at
    }
}
