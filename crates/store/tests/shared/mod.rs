//! What the tests of this crate begin with.
#![allow(dead_code, unreachable_pub)] // not every test file uses all of it
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kernelwise_store::{Environment, Options, Place, Sample, SeriesKey, Store, WallClock};
use kernelwise_types::Fingerprint;
use kernelwise_types::units::Nanos;

/// A day in 2027.
pub const NOW_S: u64 = 1_800_000_000;

pub fn options() -> Options {
    Options::new(WallClock::new(|| NOW_S))
}

pub fn open(dir: &Path) -> Store {
    Store::open(dir, options()).unwrap()
}

/// A clock that a test sets.
#[derive(Clone)]
pub struct Dial(Arc<AtomicU64>);

impl Dial {
    pub fn at(now_s: u64) -> Self {
        Self(Arc::new(AtomicU64::new(now_s)))
    }

    pub fn set(&self, now_s: u64) {
        self.0.store(now_s, Ordering::SeqCst);
    }

    pub fn options(&self) -> Options {
        let dial = self.0.clone();
        Options::new(WallClock::new(move || dial.load(Ordering::SeqCst)))
    }
}

pub fn fingerprint() -> Fingerprint {
    "00112233aabbccdd".to_owned().try_into().unwrap()
}

pub fn place() -> Arc<Place> {
    Arc::new(Place {
        fingerprint: fingerprint(),
        environment: Environment {
            os: "linux".into(),
            release: Some("6.1".into()),
            driver: None,
            library: "0.1.0".into(),
        },
    })
}

pub fn key(workload: &str, kernel: &str) -> SeriesKey {
    SeriesKey::new(place(), workload, kernel, 1, "threads=1")
}

pub fn timed(ns: f64) -> Sample {
    Sample::timed(Nanos::new(ns).unwrap())
}

/// Records so many samples of about a microsecond.
pub fn record(store: &Store, key: &SeriesKey, samples: u32) {
    let slot = store.slot(key);
    for i in 0..samples {
        assert!(store.record(slot, timed(1000.0 + f64::from(i))));
    }
}

/// How many times of a key are known.
pub fn count(store: &Store, key: &SeriesKey) -> u64 {
    let known = store
        .known_of(&key.place.fingerprint, &key.workload)
        .unwrap();
    let of_key = known.iter().find(|known| known.key == *key);
    of_key.map_or(0, |known| known.statistics.times().samples())
}
