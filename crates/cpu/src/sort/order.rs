//! Keys as unsigned numbers that compare as the keys do.
//!
//! Every element type is mapped by the same two masks, so that code is compiled once for each width and not
//! once for each type and direction: a key whose sign bit is set has the bits of `fold` turned over, and every
//! key those of `flip`. For floats this is the total order; turning over all bits puts the largest first and
//! leaves equal keys equal, so that stability needs no second thought.

use std::ops::{BitOr, BitXor};

use kernelwise_types::{DType, DTypeClass};

/// A key's bits.
pub(crate) trait Bits: Record {
    /// The bits of a record that holds this key and a position below it.
    type Packed: Record;

    /// How many.
    const WIDTH: u32;

    /// The map for keys of this width.
    fn order(dtype: DType, descending: bool) -> Order<Self>;

    /// The key as a number that compares as the key does.
    fn encode(self, order: Order<Self>) -> Self;

    /// The key back from that number.
    fn decode(self, order: Order<Self>) -> Self;

    /// A record with the key above the position.
    fn pack(self, position: u32) -> Self::Packed;

    /// Key and position back from a record.
    fn unpack(record: Self::Packed) -> (Self, u32);
}

/// How the bits of a key become a number that compares as the key does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order<U> {
    /// Turned over where the sign bit is set; never the sign bit itself.
    fold: U,
    /// Turned over always.
    flip: U,
}

macro_rules! bits {
    ($($unsigned:ty, $signed:ty => $packed:ty;)*) => { $(
        impl Bits for $unsigned {
            type Packed = $packed;

            const WIDTH: u32 = <$unsigned>::BITS;

            fn order(dtype: DType, descending: bool) -> Order<Self> {
                const SIGN: $unsigned = 1 << (<$unsigned>::BITS - 1);
                let (fold, flip) = match dtype.class() {
                    DTypeClass::Float => (!SIGN, SIGN),
                    DTypeClass::Signed => (0, SIGN),
                    DTypeClass::Unsigned | DTypeClass::Bool | DTypeClass::Complex => (0, 0),
                };
                Order { fold, flip: if descending { !flip } else { flip } }
            }

            #[inline(always)]
            fn encode(self, order: Order<Self>) -> Self {
                let sign = (self as $signed >> (<$unsigned>::BITS - 1)) as $unsigned;
                self ^ (sign & order.fold) ^ order.flip
            }

            #[inline(always)]
            fn decode(self, order: Order<Self>) -> Self {
                // Folding keeps the sign bit, so it undoes itself.
                (self ^ order.flip).encode(Order { flip: 0, ..order })
            }

            #[inline(always)]
            fn pack(self, position: u32) -> $packed {
                (self as $packed) << u32::BITS | <$packed>::from(position)
            }

            #[inline(always)]
            fn unpack(record: $packed) -> (Self, u32) {
                ((record >> u32::BITS) as $unsigned, record as u32)
            }
        }
    )* };
}

bits! {
    u8, i8 => u64;
    u16, i16 => u64;
    u32, i32 => u64;
    u64, i64 => u128;
}

/// What is sorted: a key alone, or a key with its position in the low bits.
pub(crate) trait Record:
    Copy + Ord + Default + BitXor<Output = Self> + BitOr<Output = Self> + Send + Sync + 'static
{
    /// The bits under `mask` after shifting.
    fn digit(self, shift: u32, mask: usize) -> usize;
}

macro_rules! records {
    ($($record:ty),*) => { $(
        impl Record for $record {
            #[inline(always)]
            fn digit(self, shift: u32, mask: usize) -> usize {
                (self >> shift) as usize & mask
            }
        }
    )* };
}

records!(u8, u16, u32, u64, u128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_as_floats_do_in_their_total_order() {
        let nan = f32::NAN;
        let signalling = f32::from_bits(0x7f80_0001);
        let mut keys = [
            -nan,
            -signalling,
            f32::NEG_INFINITY,
            f32::MIN,
            -1.0,
            -f32::MIN_POSITIVE,
            -0.0,
            0.0,
            1e-40,
            1.0,
            f32::MAX,
            f32::INFINITY,
            signalling,
            nan,
        ];
        keys.sort_by(f32::total_cmp);
        for descending in [false, true] {
            let order = u32::order(DType::F32, descending);
            let codes: Vec<u32> = keys.iter().map(|k| k.to_bits().encode(order)).collect();
            let sorted = codes
                .windows(2)
                .all(|w| (w[0] < w[1]) != descending && w[0] != w[1]);
            assert!(sorted, "{codes:x?}");
            for (key, code) in keys.iter().zip(codes) {
                assert_eq!(code.decode(order), key.to_bits());
            }
        }
    }

    #[test]
    fn numbers_compare_as_integers_do() {
        let order = u16::order(DType::I16, false);
        let codes = [i16::MIN, -1, 0, 1, i16::MAX].map(|key| (key as u16).encode(order));
        assert!(codes.is_sorted(), "{codes:?}");
        assert_eq!(
            codes.map(|c| c.decode(order) as i16),
            [i16::MIN, -1, 0, 1, i16::MAX]
        );
        let order = u64::order(DType::U64, false);
        assert_eq!([0, u64::MAX].map(|key| key.encode(order)), [0, u64::MAX]);
    }

    #[test]
    fn a_record_holds_key_and_position() {
        assert_eq!(u64::unpack(u64::MAX.pack(7)), (u64::MAX, 7));
        assert_eq!(u8::unpack(200u8.pack(u32::MAX)), (200, u32::MAX));
        assert!(3u32.pack(u32::MAX) < 4u32.pack(0), "the key decides first");
        assert!(3u32.pack(1) < 3u32.pack(2), "then the position");
    }
}
