//! What statistics are kept of: one kernel in one version with one setting, on one workload, at one place.
//!
//! Workload, kernel and parameters are text, as in every file of Kernelwise. So users' own operations, which have no type
//! here, are kept like built-in ones, and records of an operation that this version does not know survive it.
//! A store of 100,000 series has a few hundred different texts, so they are shared.

use std::fmt::Display;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::place::Place;

/// The longest text of a key: what is longer was not written by this library.
const LONGEST: usize = 4096;

/// What one series of measurements is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SeriesKey {
    /// Where.
    pub place: Arc<Place>,
    /// What was computed, as text.
    pub workload: Arc<str>,
    /// By which kernel.
    pub kernel: Arc<str>,
    /// In which version: changing one kernel leaves what is known of the others alone.
    pub version: u32,
    /// With which parameters, such as `threads=2`.
    pub params: Arc<str>,
}

impl SeriesKey {
    /// Puts a key together from what the caller has.
    pub fn new(
        place: Arc<Place>,
        workload: impl Display,
        kernel: impl Display,
        version: u32,
        params: impl Display,
    ) -> Self {
        Self {
            place,
            workload: workload.to_string().into(),
            kernel: kernel.to_string().into(),
            version,
            params: params.to_string().into(),
        }
    }

    /// The key in 16 bytes, the same on every machine. Every text goes in with its length, so that no two keys have one
    /// text between them.
    pub(crate) fn digest(&self) -> Digest {
        let mut hash = blake3::Hasher::new_derive_key("kernelwise.series/1");
        let environment = &self.place.environment;
        let optional = |text: &Option<String>| text.clone().map(|text| format!("={text}"));
        for text in [
            self.place.fingerprint.as_str(),
            &environment.os,
            &optional(&environment.release).unwrap_or_default(),
            &optional(&environment.driver).unwrap_or_default(),
            &environment.library,
            &self.workload,
            &self.kernel,
            &self.version.to_string(),
            &self.params,
        ] {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
        let mut digest = [0; 16];
        digest.copy_from_slice(&hash.finalize().as_bytes()[..16]);
        digest
    }

    /// Whether this may have been written by this library.
    pub(crate) fn is_sound(&self) -> bool {
        let environment = &self.place.environment;
        let optional = [&environment.release, &environment.driver];
        let texts: [&str; 5] = [
            &self.workload,
            &self.kernel,
            &self.params,
            &environment.os,
            &environment.library,
        ];
        let optional = optional.into_iter().flatten().map(String::as_str);
        let mut all = texts.into_iter().chain(optional);
        !self.workload.is_empty() && !self.kernel.is_empty() && all.all(sound)
    }
}

/// A key in 16 bytes.
pub(crate) type Digest = [u8; 16];

/// Whether a text of a record is short and printable.
pub(crate) fn sound(text: &str) -> bool {
    text.len() <= LONGEST && !text.chars().any(char::is_control)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::place::Environment;

    pub(crate) fn place(fingerprint: &str) -> Arc<Place> {
        Arc::new(Place {
            fingerprint: fingerprint.to_owned().try_into().unwrap(),
            environment: Environment {
                os: "linux".into(),
                release: Some("6.1".into()),
                driver: None,
                library: "0.1.0".into(),
            },
        })
    }

    pub(crate) fn key(workload: &str, kernel: &str) -> SeriesKey {
        SeriesKey::new(place("00112233aabbccdd"), workload, kernel, 1, "threads=1")
    }

    #[test]
    fn every_part_of_a_key_is_in_its_digest() {
        let base = key("matmul f32 2x2x2", "cpu-matmul-f32-a");
        let mut all = vec![base.digest()];
        let changes: [fn(&mut SeriesKey); 8] = [
            |k| k.workload = format!("{}2", k.workload).into(),
            |k| k.kernel = format!("{}2", k.kernel).into(),
            |k| k.version = 2,
            |k| k.params = "".into(),
            |k| k.place = place("00112233aabbccde"),
            |k| Arc::make_mut(&mut k.place).environment.release = None,
            |k| Arc::make_mut(&mut k.place).environment.driver = Some(String::new()),
            |k| Arc::make_mut(&mut k.place).environment.library = "0.1.1".into(),
        ];
        for change in changes {
            let mut other = base.clone();
            change(&mut other);
            all.push(other.digest());
        }
        // What moves from one text to the next is another key.
        let (mut a, mut b) = (base.clone(), base);
        (a.workload, a.kernel) = ("ab".into(), "c".into());
        (b.workload, b.kernel) = ("a".into(), "bc".into());
        all.extend([a.digest(), b.digest()]);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn keys_that_nobody_writes_are_not_sound() {
        assert!(key("matmul f32 2x2x2", "cpu-matmul-f32-a").is_sound());
        for (workload, kernel) in [("", "k"), ("w", ""), ("w\n", "k"), (&"w".repeat(5000), "k")] {
            assert!(!key(workload, kernel).is_sound(), "{kernel}");
        }
    }
}
