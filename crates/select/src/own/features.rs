//! What matters about an input, in buckets: inputs that fall in the same ones are one case.
//!
//! A case learns mostly from its own calls, so buckets must be wide enough to be met often and narrow enough that one
//! variant is the best all over. Sizes get four buckets per doubling: within one they differ by a quarter at most, which is about
//! what times differ by anyway, while the points where one algorithm overtakes another lie factors apart. Up to eight every
//! size stands alone. Shares get tenths, and exactly one is apart: wholly sorted is another case than nearly so.

use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};

use crate::kinds::Likeness;
use crate::problem::Problem;

/// The most features an input may have.
pub const MAX_FEATURES: usize = 8;

/// What matters about an input. Made for every call, on the stack.
///
/// ```
/// use kernelwise_select::own::Features;
///
/// let of = |rows: &[u32], sorted: f64| Features::new().size("length", rows.len()).share("sorted", sorted);
/// let (some, more) = (vec![0; 1000], vec![0; 1020]);
/// assert_eq!(of(&some, 0.93), of(&more, 0.98));
/// assert_ne!(of(&some, 0.93), of(&some, 0.5));
/// assert_eq!(of(&some, 0.93).to_string(), "length 896 to 1023, sorted 0.9 to 1");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Features {
    slots: [(&'static str, Bucket); MAX_FEATURES],
    count: usize,
    fault: Option<FeatureError>,
}

/// What cannot be put into a bucket.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FeatureError {
    /// A share that is none.
    #[error("feature `{name}` is a share from 0 to 1, not {value}")]
    Share {
        /// The feature.
        name: &'static str,
        /// What it was.
        value: f64,
    },
    /// More than there is room for.
    #[error(
        "feature `{name}` is one more than the {MAX_FEATURES} an input may have: leave out what matters least"
    )]
    TooMany {
        /// The first that found no room.
        name: &'static str,
    },
}

/// A value that is told apart exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A word, such as the name of a format.
    Word(&'static str),
    /// A number that is not to be bucketed, such as the bits of an element.
    Number(u64),
    /// Yes or no.
    Flag(bool),
}

impl From<&'static str> for Kind {
    fn from(word: &'static str) -> Self {
        Self::Word(word)
    }
}

impl From<u64> for Kind {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Kind {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => f.write_str(word),
            Self::Number(number) => number.fmt(f),
            Self::Flag(true) => f.write_str("yes"),
            Self::Flag(false) => f.write_str("no"),
        }
    }
}

/// Where a feature falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Bucket {
    Size(u8),
    Tenth(u8),
    Kind(Kind),
}

impl Default for Features {
    fn default() -> Self {
        Self::new()
    }
}

impl Features {
    /// Nothing matters: all inputs are one case.
    pub const fn new() -> Self {
        Self {
            slots: [("", Bucket::Size(0)); MAX_FEATURES],
            count: 0,
            fault: None,
        }
    }

    /// A number from zero up whose order of magnitude matters: elements, rows, bytes.
    #[must_use]
    pub fn size(self, name: &'static str, size: usize) -> Self {
        self.with(name, Bucket::Size(size_bucket(size as u64)))
    }

    /// A number from 0 to 1: how much is sorted, how much is zero.
    #[must_use]
    pub fn share(mut self, name: &'static str, share: f64) -> Self {
        if !(0.0..=1.0).contains(&share) {
            self.fault = self
                .fault
                .or(Some(FeatureError::Share { name, value: share }));
            return self;
        }
        self.with(name, Bucket::Tenth((10.0 * share) as u8))
    }

    /// Something that is told apart exactly: a word, a number, yes or no.
    #[must_use]
    pub fn kind(self, name: &'static str, kind: impl Into<Kind>) -> Self {
        self.with(name, Bucket::Kind(kind.into()))
    }

    fn with(mut self, name: &'static str, bucket: Bucket) -> Self {
        match self.slots.get_mut(self.count) {
            Some(slot) => {
                *slot = (name, bucket);
                self.count += 1;
            }
            None => self.fault = self.fault.or(Some(FeatureError::TooMany { name })),
        }
        self
    }

    /// Themselves, if all of them could be put into buckets.
    pub(super) fn checked(self) -> Result<Self, FeatureError> {
        self.fault.map_or(Ok(self), Err)
    }

    /// What inputs of an operation can be held against these, and these as numbers. Kinds make other kinds of problems; sizes and
    /// shares are what problems of one kind differ in.
    pub(super) fn likeness(&self, operation: &str, variants: &[String]) -> Likeness {
        let mut kind = format!("own {operation}");
        let (mut numbers, mut work) = (Vec::new(), 1.0f64);
        for bucket in self.buckets() {
            match bucket {
                Bucket::Size(bucket) => {
                    let low = size_range(bucket).0 as f64;
                    numbers.push(low.max(0.5).ln() as f32);
                    work = work.max(low);
                    kind.push_str(" #");
                }
                Bucket::Tenth(tenth) => {
                    numbers.push(f32::from(tenth) / 10.0);
                    kind.push_str(" %");
                }
                Bucket::Kind(exact) => {
                    // Infallible: what is written to is text.
                    let _ = write!(kind, " {exact}");
                }
            }
        }
        let mut problem = Problem::new(numbers.clone(), work).alike(&kind, work);
        for (left_out, place) in numbers.iter().enumerate() {
            let mut rest: Vec<u32> = numbers.iter().map(|number| number.to_bits()).collect();
            rest[left_out] = 0;
            problem = problem.on_line(&(left_out, rest), f64::from(*place));
        }
        Likeness {
            kind,
            problem,
            arms: variants.to_vec(),
        }
    }

    fn buckets(&self) -> impl Iterator<Item = Bucket> {
        self.slots[..self.count].iter().map(|(_, bucket)| *bucket)
    }
}

// What a feature is called does not tell cases apart, its place does.
impl PartialEq for Features {
    fn eq(&self, other: &Self) -> bool {
        self.buckets().eq(other.buckets())
    }
}

impl Eq for Features {}

impl PartialOrd for Features {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Features {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.buckets().cmp(other.buckets())
    }
}

impl Hash for Features {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.count);
        self.buckets().for_each(|bucket| bucket.hash(state));
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.count == 0 {
            return f.write_str("any input");
        }
        for (place, (name, bucket)) in self.slots[..self.count].iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{name} ")?;
            match *bucket {
                Bucket::Size(bucket) => match size_range(bucket) {
                    (low, high) if low == high => write!(f, "{low}")?,
                    (low, high) => write!(f, "{low} to {high}")?,
                },
                Bucket::Tenth(10) => write!(f, "1")?,
                Bucket::Tenth(tenth) => {
                    let end = |tenth: u8| f64::from(tenth) / 10.0;
                    write!(f, "{} to {}", end(tenth), end(tenth + 1))?;
                }
                Bucket::Kind(kind) => write!(f, "{kind}")?,
            }
        }
        Ok(())
    }
}

/// Four per doubling: the position of the highest bit and the two bits below it.
fn size_bucket(size: u64) -> u8 {
    match size {
        0..4 => size as u8,
        _ => {
            let top = size.ilog2();
            (4 * (top - 1)) as u8 | (size >> (top - 2) & 3) as u8
        }
    }
}

/// The least and the largest size of a bucket.
fn size_range(bucket: u8) -> (u64, u64) {
    let low = |bucket: u8| match bucket {
        0..4 => Some(u64::from(bucket)),
        _ => (4 + u64::from(bucket % 4)).checked_shl(u32::from(bucket / 4) - 1),
    };
    let next = bucket.checked_add(1).filter(|_| bucket < LAST_SIZE);
    let high = next.and_then(low).map_or(u64::MAX, |next| next - 1);
    (low(bucket).unwrap_or(u64::MAX), high)
}

/// The bucket of the largest size there is.
const LAST_SIZE: u8 = 251;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_lies_in_its_bucket_and_buckets_are_narrow() {
        let near = |power: u32| {
            let size = 1u64 << power;
            [size - 1, size, size + 1, size + size / 3]
        };
        for size in (0..300).chain((8..63).flat_map(near)).chain([u64::MAX]) {
            let (low, high) = size_range(size_bucket(size));
            assert!((low..=high).contains(&size), "{size} in {low} to {high}");
            assert!(high - low <= low / 4, "{low} to {high}");
            let apart = low == high;
            assert!(apart || size >= 8, "{size} stands alone");
        }
        assert_eq!(size_bucket(u64::MAX), LAST_SIZE);
        let buckets: Vec<u8> = (8..=16).map(size_bucket).collect();
        assert_eq!(buckets, [8, 8, 9, 9, 10, 10, 11, 11, 12]);
    }

    #[test]
    fn shares_fall_in_tenths_and_one_is_apart() {
        let of = |share: f64| Features::new().share("sorted", share);
        assert_eq!(of(0.0), of(0.099));
        assert_ne!(of(0.1), of(0.099));
        assert_ne!(of(1.0), of(0.999));
        assert_eq!(of(1.0).to_string(), "sorted 1");
        assert_eq!(of(-0.0).to_string(), "sorted 0 to 0.1");
        for value in [f64::NAN, -0.001, 1.001, f64::INFINITY] {
            let error = of(value).checked().unwrap_err().to_string();
            assert_eq!(
                error,
                format!("feature `sorted` is a share from 0 to 1, not {value}")
            );
        }
    }

    #[test]
    fn kinds_and_places_tell_inputs_apart() {
        let word = |word: &'static str| Features::new().kind("order", word);
        assert_eq!(word("up"), word("up"));
        assert_ne!(word("up"), word("down"));
        assert_ne!(
            Features::new().kind("bits", 1),
            Features::new().size("bits", 1)
        );
        assert_ne!(
            Features::new().kind("a", true).kind("b", false),
            Features::new().kind("a", false).kind("b", true)
        );
        assert_ne!(Features::new(), Features::new().size("n", 0));
        let text = word("up").kind("bits", 32).kind("signed", false);
        assert_eq!(text.to_string(), "order up, bits 32, signed no");
        assert_eq!(Features::new().to_string(), "any input");
    }

    #[test]
    fn one_more_than_there_is_room_for_is_told() {
        let full = (0..MAX_FEATURES).fold(Features::new(), |f, n| f.size("n", n));
        assert!(full.checked().is_ok());
        let error = full.kind("colour", "red").checked().unwrap_err();
        assert_eq!(error, FeatureError::TooMany { name: "colour" });
    }
}
