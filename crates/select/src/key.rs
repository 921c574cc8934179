//! Names for cases: 128 bits made from whatever tells one case from another.
//!
//! Two lanes that turn by different numbers of bits and add each word times different numbers work side by side, so a key
//! costs little more than a plain hash. With 128 bits no two of a million cases share a name by chance (one in 10^26), so nothing
//! else has to be compared when one is looked up.

use std::hash::{Hash, Hasher};

/// The name of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    high: u64,
    low: u64,
}

impl Key {
    /// Of anything that can be hashed.
    #[inline]
    pub fn of(what: &(impl Hash + ?Sized)) -> Self {
        let mut lanes = Lanes {
            a: 0x9e37_79b9_7f4a_7c15,
            b: 0xc2b2_ae3d_27d4_eb4f,
        };
        what.hash(&mut lanes);
        Self {
            high: mix(lanes.a),
            low: mix(lanes.b),
        }
    }

    /// Where to look first in a table of this many places, a power of two.
    #[inline]
    pub(crate) fn place(self, mask: usize) -> usize {
        self.low as usize & mask
    }

    /// A byte of the half that leads to the place, from its other end; not zero.
    #[inline]
    pub(crate) fn mark(self) -> u8 {
        ((self.low >> 56) as u8).max(1)
    }

    /// The half that has no part in either.
    #[inline]
    pub(crate) fn half(self) -> u64 {
        self.high
    }
}

struct Lanes {
    a: u64,
    b: u64,
}

/// The last step of SplitMix64: every bit of the input reaches every bit of the result.
#[inline]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Lanes {
    #[inline]
    fn take(&mut self, word: u64) {
        // The products do not wait for each other: from word to word there is a turn and a sum.
        self.a = self
            .a
            .rotate_left(23)
            .wrapping_add(word.wrapping_mul(0xf135_7aea_2e62_a9c5));
        self.b = self
            .b
            .rotate_left(41)
            .wrapping_add(word.wrapping_mul(0x9fb2_1c65_1e98_df25));
    }
}

impl Hasher for Lanes {
    fn finish(&self) -> u64 {
        mix(self.a ^ self.b)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.take(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        // The length tells a short word from a long one that ends in zeros.
        self.take(u64::from_le_bytes(last) ^ ((bytes.len() as u64) << 56));
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.take(value.into());
    }

    #[inline]
    fn write_u16(&mut self, value: u16) {
        self.take(value.into());
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.take(value.into());
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.take(value);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.take(value as u64);
    }

    #[inline]
    fn write_isize(&mut self, value: isize) {
        self.take(value as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use kernelwise_types::Workload;

    use super::*;

    #[test]
    fn equal_things_have_one_key_and_others_another() {
        let of = |text: &str| Key::of(&text.parse::<Workload>().unwrap());
        assert_eq!(of("matmul f32 8x8x8"), of("matmul f32 8x8x8"));
        let different = [
            "matmul f32 8x8x8",
            "matmul f64 8x8x8",
            "matmul f32 8x8x8 ta",
            "matmul f32 8x8x8 layout=strided",
            "matmul f32 1x8x64",
            "copy f32 8x8x8",
            "copy f32 512",
        ];
        let keys: HashSet<Key> = different.iter().map(|text| of(text)).collect();
        assert_eq!(keys.len(), different.len());
        assert_ne!(Key::of("ab"), Key::of("ab\0"));
        assert_ne!(Key::of(&[1u8, 2][..]), Key::of(&[1u8, 2, 0][..]));
    }

    /// Two products that are added cancel where only the highest bits differ, as those of two numbers and of their
    /// negatives do: each word must meet the sum turned by another number of bits.
    #[test]
    fn signs_tell_keys_apart() {
        let of = |signs: u32| {
            let features = [1.0f64, 2.0, 3.0, 4.0].map(f64::to_bits);
            let sign = |i: usize| u64::from(signs >> i & 1) << 63;
            Key::of(&[0, 1, 2, 3].map(|i| features[i] ^ sign(i)))
        };
        let keys: Vec<Key> = (0..16).map(of).collect();
        for half in [|key: &Key| key.high, |key: &Key| key.low] {
            let halves: HashSet<u64> = keys.iter().map(half).collect();
            assert_eq!(halves.len(), keys.len());
        }
    }

    /// Sizes differ in a few low bits; each half must tell them apart, and spread over a table.
    #[test]
    fn near_sizes_do_not_meet() {
        let mut keys = Vec::new();
        for m in 1..50u64 {
            for k in 1..50u64 {
                for n in 1..50u64 {
                    keys.push(Key::of(&[m, k, n]));
                }
            }
        }
        for half in [|key: &Key| key.high, |key: &Key| key.low] {
            let halves: HashSet<u64> = keys.iter().map(half).collect();
            assert_eq!(halves.len(), keys.len());
        }
        let mut filled = vec![0u32; 1 << 17];
        for key in &keys {
            filled[key.place((1 << 17) - 1)] += 1;
        }
        // 117,649 keys in 131,072 places; a place with ten would be bad luck of one in a million.
        assert!(filled.iter().all(|n| *n < 12));
    }
}
