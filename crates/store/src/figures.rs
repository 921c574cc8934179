//! What remembering costs: the figures of `kernelwise bench store`.

use std::path::Path;
use std::sync::Arc;

use kernelwise_measure::Clock;
use kernelwise_types::Fingerprint;
use kernelwise_types::units::Nanos;
use serde::Serialize;

use crate::error::StoreError;
use crate::key::SeriesKey;
use crate::place::{Environment, Place};
use crate::store::{Options, Sample, Slot, Store, WallClock};

/// What was measured. The names say the unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figures {
    /// What recording one sample costs the caller, in the middle of batches of 64.
    pub record_ns_p50: f64,
    /// The same, of the slowest batch in a hundred.
    pub record_ns_p99: f64,
    /// Samples per second through ring, sums and file, when they fall on a thousand series.
    pub writes_per_s: f64,
    /// The same when no two of them are of one series: every sample is a new row.
    pub new_series_per_s: f64,
    /// Opening a store of 100,000 series and reading them all.
    pub open_100k_ms: f64,
    /// The size of that store, by series.
    pub bytes_per_series: f64,
}

/// Samples in a batch that is timed.
const TIMED: usize = 64;
/// Pushed between two waits: half of the ring, so that none is dropped.
const CHUNK: usize = 1 << 15;

/// Measures in an empty directory, which is left filled. Takes a few seconds and 100 MB.
pub fn figures(dir: &Path, clock: &dyn Clock, wall: WallClock) -> Result<Figures, StoreError> {
    measure(dir, clock, wall, 100_000)
}

/// The keys that are measured with: of the length that real ones have, and of a kind of machine that does not exist.
pub(crate) fn keys(series: u32) -> impl Iterator<Item = SeriesKey> {
    let fingerprint = Fingerprint::try_from("0123456789abcdef".to_owned());
    let place = |fingerprint| {
        Arc::new(Place {
            fingerprint,
            environment: Environment {
                os: "linux".into(),
                release: None,
                driver: None,
                library: env!("CARGO_PKG_VERSION").into(),
            },
        })
    };
    let params = "kc=512,mc=24,nc=128,threads=1";
    let key = move |(place, i): (Arc<Place>, u32)| {
        let workload = format!("matmul f32 {}x{}x512", 1 + i / 256, 1 + i % 256);
        SeriesKey::new(place, workload, "cpu-matmul-f32-packed-avx2", 1, params)
    };
    let places = fingerprint.into_iter().map(place);
    places
        .flat_map(move |place| (0..series).map(move |i| (place.clone(), i)))
        .map(key)
}

fn measure(
    dir: &Path,
    clock: &dyn Clock,
    wall: WallClock,
    series: u32,
) -> Result<Figures, StoreError> {
    let options = Options::new(wall);
    let store = Store::open(dir, options.clone())?;
    let slots: Vec<Slot> = keys(series).map(|key| store.slot(&key)).collect();
    let new_series_per_s = through(&store, clock, slots.iter().copied())?;
    let few = &slots[..slots.len().min(1000)];
    let samples = 10 * slots.len();
    let writes_per_s = through(&store, clock, few.iter().copied().cycle().take(samples))?;
    let (record_ns_p50, record_ns_p99) = recording(&store, clock, few)?;
    drop(store);

    let before = clock.now();
    let store = Store::open(dir, options)?;
    let known = store.known_anywhere()?.len();
    let open_100k_ms = clock.now().saturating_sub(before) as f64 / 1e6;
    let bytes = store.kept()?.bytes;
    Ok(Figures {
        record_ns_p50,
        record_ns_p99,
        writes_per_s,
        new_series_per_s,
        open_100k_ms,
        bytes_per_series: bytes as f64 / (known as f64).max(1.0),
    })
}

fn sample(i: usize) -> Sample {
    Sample::timed(Nanos::from_u64(1000 + i as u64 % 100))
}

/// Samples per second, until the last is in the file.
fn through(
    store: &Store,
    clock: &dyn Clock,
    slots: impl Iterator<Item = Slot>,
) -> Result<f64, StoreError> {
    let before = clock.now();
    let mut samples = 0;
    for slot in slots {
        store.record(slot, sample(samples));
        samples += 1;
        if samples.is_multiple_of(CHUNK) {
            store.flush()?;
        }
    }
    store.flush()?;
    let seconds = clock.now().saturating_sub(before) as f64 / 1e9;
    Ok(samples as f64 / seconds)
}

/// What recording costs, in nanoseconds: the middle, and the slowest in a hundred.
fn recording(store: &Store, clock: &dyn Clock, slots: &[Slot]) -> Result<(f64, f64), StoreError> {
    const BATCHES: usize = 4000;
    let mut costs = Vec::with_capacity(BATCHES);
    for batch in 0..BATCHES {
        if (batch * TIMED).is_multiple_of(CHUNK) {
            store.flush()?;
        }
        let before = clock.now();
        for i in 0..TIMED {
            store.record(slots[(batch * TIMED + i) % slots.len()], sample(i));
        }
        costs.push(clock.now().saturating_sub(before) as f64 / TIMED as f64);
    }
    costs.sort_by(f64::total_cmp);
    Ok((costs[BATCHES / 2], costs[BATCHES / 100 * 99]))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Every look takes a microsecond.
    #[derive(Debug, Default)]
    struct Steps(AtomicU64);

    impl Clock for Steps {
        fn now(&self) -> u64 {
            self.0.fetch_add(1000, Ordering::SeqCst)
        }

        fn name(&self) -> &'static str {
            "steps"
        }
    }

    #[test]
    fn figures_are_those_of_the_clock() {
        let dir = tempfile::tempdir().unwrap();
        let wall = WallClock::new(|| 1_800_000_000);
        let figures = measure(dir.path(), &Steps::default(), wall.clone(), 50).unwrap();
        assert_eq!(figures.record_ns_p50, 1000.0 / TIMED as f64);
        assert_eq!(figures.open_100k_ms, 1e-3);
        assert!((figures.new_series_per_s - 50e6).abs() < 1.0);
        assert!((figures.writes_per_s - 500e6).abs() < 1.0);
        assert!(figures.bytes_per_series > 100.0);
        let store = Store::open(dir.path(), Options::new(wall)).unwrap();
        let kept = store.kept().unwrap();
        assert_eq!(
            (kept.series, kept.runs),
            (50, 50 + 500 + 4000 * TIMED as u64)
        );
    }
}
