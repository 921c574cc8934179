//! The embedded store, from the outside.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

mod shared;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

use kernelwise_store::{
    Export, HALF_LIFE_S, Happened, Options, Prune, Quarantine, RECENT, Sample, Store, StoreError,
    WallClock,
};
use kernelwise_types::units::{Nanos, Share};
use kernelwise_types::{
    Candidate, Conditions, Decision, Estimate, Params, Ranked, Reason, TimeStats,
};
use shared::{Dial, NOW_S, count, fingerprint, key, open, options, record, timed};

#[test]
fn what_was_recorded_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (
        key("matmul f32 2x2x2", "cpu-a"),
        key("matmul f32 2x2x2", "cpu-b"),
    );
    let times = [90.0, 100.0, 130.0];
    {
        let store = open(dir.path());
        let slot = store.slot(&a);
        assert_eq!(slot, store.slot(&a));
        assert_ne!(slot, store.slot(&b));
        for ns in &times[..2] {
            store.record(slot, timed(*ns));
        }
        store.record(store.slot(&b), Happened::WrongResult.into());
        store.flush().unwrap();
        assert_eq!(store.written(), 3);
    }
    let store = open(dir.path());
    store.record(store.slot(&a), timed(times[2]));
    store.flush().unwrap();
    let known = store.known(&fingerprint()).unwrap();
    assert_eq!(known.len(), 2);
    let of = |key| known.iter().find(|known| known.key == key).unwrap();
    let expected: TimeStats = times.iter().map(|ns| Nanos::new(*ns).unwrap()).collect();
    let found = of(a).statistics.times();
    assert_eq!((found.samples(), found.min()), (3, expected.min()));
    let (mean, sd) = (found.geometric_mean().unwrap(), found.sd_ln().unwrap());
    assert!((mean.get() - expected.geometric_mean().unwrap().get()).abs() < 1e-9);
    assert!((sd - expected.sd_ln().unwrap()).abs() < 1e-12);
    assert_eq!(of(b).statistics.wrong(), 1);
    assert_eq!(store.verify().unwrap(), Vec::<String>::new());
}

#[test]
fn dropping_the_store_writes_what_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let key = key("w", "k");
    record(&open(dir.path()), &key, 1000);
    assert_eq!(count(&open(dir.path()), &key), 1000);
}

#[test]
fn threads_and_handles_share_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let stores = [open(dir.path()), open(dir.path())];
    let (shared, threads) = (key("w", "shared"), 4);
    std::thread::scope(|scope| {
        for number in 0..threads {
            let (store, shared) = (&stores[number % 2], &shared);
            scope.spawn(move || {
                for round in 0..20 {
                    record(store, shared, 10);
                    record(store, &key("w", &format!("own-{number}")), 1);
                    if round % 5 == 0 {
                        store.flush().unwrap();
                    }
                }
            });
        }
    });
    for store in &stores {
        store.flush().unwrap();
    }
    assert_eq!(count(&stores[0], &shared), 800);
    assert_eq!(stores[1].known(&fingerprint()).unwrap().len(), 5);
    assert_eq!(stores[0].kept().unwrap().origins, 1);
}

#[test]
fn samples_are_kept_with_what_explains_them() {
    let dir = tempfile::tempdir().unwrap();
    let dial = Dial::at(NOW_S);
    let store = Store::open(dir.path(), dial.options()).unwrap();
    let key = key("w", "k");
    record(&store, &key, 100);
    store.flush().unwrap();
    dial.set(NOW_S + 60);
    let conditions = Conditions {
        cpu_utilisation: Share::new(0.25).ok(),
        ..Conditions::default()
    };
    let sample = Sample {
        predicted: Nanos::new(512.0).ok(),
        conditions,
        ..timed(256.0)
    };
    store.record(store.slot(&key), sample);
    store.flush().unwrap();
    let samples = store.samples(&key).unwrap();
    assert_eq!(samples.len(), RECENT);
    let last = samples.last().unwrap();
    assert_eq!((last.unix_s, last.time_ns), (NOW_S + 60, 256.0));
    assert_eq!(last.predicted_ns, Some(512.0));
    assert_eq!(last.conditions, conditions);
    assert_eq!(samples[0].unix_s, NOW_S);
}

#[test]
fn notes_are_kept_and_the_latest_counts() {
    let dir = tempfile::tempdir().unwrap();
    let dial = Dial::at(NOW_S);
    let store = Store::open(dir.path(), dial.options()).unwrap();
    let here = fingerprint();
    let decision = |kernel: &str| {
        let candidate = Candidate {
            kernel: kernel.parse().unwrap(),
            params: Params::new(),
        };
        let chosen = Ranked {
            candidate,
            estimate: Estimate::Unknown,
        };
        let workload = "matmul f32 2x2x2".parse().unwrap();
        Decision::new(workload, chosen, Reason::Best, None, vec![], vec![])
    };
    let mut quarantine = Quarantine {
        kernel: "cpu-matmul-f32-a".into(),
        version: 3,
        case: "matmul f32 2x2x2".into(),
        evidence: "panicked at /home/anna/kernel.rs".into(),
        lifted: false,
    };
    store.decided(&here, &decision("cpu-matmul-f32-a"));
    store.quarantine(&here, &quarantine);
    store.keep_model(&here, "matmul", serde_json::json!({"trees": [0.1, 0.2]}));
    store.flush().unwrap();
    // The clock was set back; what is said later is later all the same.
    dial.set(NOW_S - 1000);
    store.decided(&here, &decision("cpu-matmul-f32-b"));
    quarantine.lifted = true;
    store.quarantine(&here, &quarantine);
    store.flush().unwrap();
    drop(store);
    let store = open(dir.path());
    assert_eq!(
        store.decisions(&here).unwrap(),
        [decision("cpu-matmul-f32-b")]
    );
    assert_eq!(store.quarantines(&here).unwrap(), [quarantine]);
    let model = store.model(&here, "matmul").unwrap();
    assert_eq!(model, Some(serde_json::json!({"trees": [0.1, 0.2]})));
    assert_eq!(store.model(&here, "conv2d").unwrap(), None);
    let other = "ffffffffffffffff".to_owned().try_into().unwrap();
    assert_eq!(store.decisions(&other).unwrap(), []);
}

#[test]
fn old_records_stop_counting_and_are_freed() {
    let dir = tempfile::tempdir().unwrap();
    let dial = Dial::at(NOW_S);
    let store = Store::open(dir.path(), dial.options()).unwrap();
    let (old, new) = (key("w", "old"), key("w", "new"));
    record(&store, &old, 10);
    store.flush().unwrap();
    let later = NOW_S + 10 * HALF_LIFE_S as u64;
    dial.set(later);
    record(&store, &new, 10);
    store.flush().unwrap();
    let known = store.known(&fingerprint()).unwrap();
    let of = |key| known.iter().find(|known| known.key == key).unwrap();
    let weight = |key| of(key).statistics.faded(later).unwrap().weight;
    assert!(weight(old.clone()) < 0.01, "ten half-lives");
    assert_eq!(weight(new.clone()), 10.0);

    let what = Prune {
        older_than_s: Some(5 * HALF_LIFE_S as u64),
        ..Prune::default()
    };
    let pruned = store.prune(&what).unwrap();
    assert_eq!(pruned.series, 1);
    assert_eq!((count(&store, &old), count(&store, &new)), (0, 10));
    assert_eq!(store.samples(&old).unwrap(), []);
    assert_eq!(store.prune(&what).unwrap().series, 0);
}

#[test]
fn samples_of_silent_series_go_and_their_sums_stay() {
    let dir = tempfile::tempdir().unwrap();
    let dial = Dial::at(NOW_S);
    let store = Store::open(dir.path(), dial.options()).unwrap();
    let key = key("w", "k");
    record(&store, &key, 50);
    store.flush().unwrap();
    dial.set(NOW_S + 8 * 86_400);
    assert_eq!(store.prune(&Prune::default()).unwrap().compacted, 1);
    assert_eq!(store.samples(&key).unwrap(), []);
    assert_eq!(count(&store, &key), 50);
}

/// The file is bounded by the number of series, not of observations: ten times the samples, the same size.
#[test]
fn the_size_is_bounded_however_much_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options();
    options.most_series = 200;
    let store = Store::open(dir.path(), options).unwrap();
    let slots: Vec<_> = (0..2000)
        .map(|i| store.slot(&key(&format!("matmul f32 {i}x64x64"), "cpu-matmul-f32-a")))
        .collect();
    let fill = |rounds: u32| {
        for round in 0..rounds {
            for chunk in slots.chunks(100) {
                for slot in chunk {
                    for i in 0..10 {
                        store.record(*slot, timed(f64::from(round * 10 + i)));
                    }
                }
                store.flush().unwrap();
            }
        }
        store.kept().unwrap()
    };
    let first = fill(1);
    let later = fill(10);
    assert_eq!(store.dropped(), 0);
    assert!(later.series <= 200 + 100, "{later:?}");
    assert!(
        later.series >= 100,
        "it does not throw away what fits: {later:?}"
    );
    assert!(later.samples <= later.series * RECENT as u64);
    // 1.6 kB a series, and a log of bounded size beside it.
    assert!(
        later.bytes <= first.bytes.max(300 * 1600 + (9 << 20)),
        "{first:?} {later:?}"
    );
    assert_eq!(store.verify().unwrap(), Vec::<String>::new());
}

/// Observations in the test below; a larger number takes longer, and leaves a file of the same size.
const OBSERVATIONS: &str = "KERNELWISE_TEST_OBSERVATIONS";

#[test]
fn a_file_is_as_large_after_many_observations_as_after_some() {
    const SERIES: u32 = 2000;
    let asked = std::env::var(OBSERVATIONS).ok();
    let all: u32 = asked.map_or(500_000, |count| count.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut options = options();
    options.most_series = u64::from(SERIES);
    let store = Store::open(dir.path(), options).unwrap();
    // Twice as many series as are kept, a few at a time, over and over.
    let slots: Vec<_> = (0..2 * SERIES)
        .map(|i| store.slot(&key(&format!("matmul f32 {i}x64x64"), "cpu-matmul-f32-a")))
        .collect();
    let mut kept_early = None;
    for i in 0..all {
        let turn = (i / 50_000 * 500 + i % 500) % (2 * SERIES);
        assert!(store.record(slots[turn as usize], timed(f64::from(1 + i % 1000))));
        if i % 50_000 == 49_999 {
            store.flush().unwrap();
        }
        if i == 400_000 {
            kept_early = Some(store.kept().unwrap());
        }
    }
    store.flush().unwrap();
    let (early, late) = (kept_early.unwrap(), store.kept().unwrap());
    let size = std::fs::metadata(store.path()).unwrap().len();
    assert_eq!((store.dropped(), store.written()), (0, u64::from(all)));
    let most = u64::from(SERIES) * 17 / 16 + 500;
    assert!(early.series <= most && late.series <= most, "{late:?}");
    assert!(size <= most * 1600, "{all} observations: {size} bytes");
    assert!(late.bytes <= most * 1600 + (9 << 20), "{late:?}");
}

/// What comes from elsewhere is bounded like what is measured here.
#[test]
fn what_is_imported_is_kept_within_the_bounds() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let from = open(there.path());
    for i in 0..500 {
        record(&from, &key(&format!("w{i}"), "k"), 1);
    }
    from.flush().unwrap();
    let mut options = options();
    options.most_series = 100;
    let to = Store::open(here.path(), options).unwrap();
    to.import(&from.export(&Export::default()).unwrap())
        .unwrap();
    let kept = to.kept().unwrap().series;
    assert!((50..=100).contains(&kept), "{kept}");
}

/// Whoever imports tidies up.
fn tidy(store: &Store) {
    let elsewhere = tempfile::tempdir().unwrap();
    let other = open(elsewhere.path());
    record(&other, &key("news", "k"), 1);
    other.flush().unwrap();
    let news = other.export(&Export::default()).unwrap();
    store.import(&news).unwrap();
}

fn models(store: &Store) -> BTreeSet<String> {
    let all = store.export(&Export::default()).unwrap();
    all.notes().map(|note| note.name.clone()).collect()
}

#[test]
fn the_latest_notes_of_a_kind_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let dial = Dial::at(NOW_S);
    let store = Store::open(dir.path(), dial.options()).unwrap();
    for i in 0..12_000 {
        dial.set(NOW_S + i);
        let model = serde_json::json!(i);
        assert!(store.keep_model(&fingerprint(), &format!("tuning {i}"), model));
        if i % 1000 == 999 {
            store.flush().unwrap();
        }
    }
    tidy(&store);
    let kept = models(&store);
    assert!((9000..=10_000).contains(&kept.len()), "{}", kept.len());
    assert!(kept.contains("tuning 11999") && !kept.contains("tuning 0"));
}

#[test]
fn notes_are_bounded_by_bytes_and_models_by_age() {
    let dir = tempfile::tempdir().unwrap();
    let dial = Dial::at(NOW_S);
    let store = Store::open(dir.path(), dial.options()).unwrap();
    // 64 MiB of each kind.
    let large = serde_json::json!("x".repeat(30 << 20));
    for i in 0..3 {
        dial.set(NOW_S + i);
        store.keep_model(&fingerprint(), &format!("large {i}"), large.clone());
    }
    store.flush().unwrap();
    tidy(&store);
    let kept: Vec<String> = models(&store).into_iter().collect();
    assert_eq!(kept, ["large 1", "large 2"]);
    dial.set(NOW_S + 400 * 86_400);
    store.keep_model(&fingerprint(), "young", serde_json::json!(1));
    store.flush().unwrap();
    tidy(&store);
    let kept: Vec<String> = models(&store).into_iter().collect();
    assert_eq!(kept, ["young"]);
}

#[test]
fn clearing_forgets_everything() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for i in 0..5000 {
        record(&store, &key(&format!("w{i}"), "k"), 5);
    }
    store.keep_model(&fingerprint(), "m", serde_json::json!(1));
    store.flush().unwrap();
    let full = store.kept().unwrap().bytes;
    store.clear().unwrap();
    let kept = store.kept().unwrap();
    assert!(
        kept.bytes < full / 10,
        "the room is given back: {} of {full}",
        kept.bytes
    );
    assert_eq!((kept.series, kept.samples, kept.models), (0, 0, 0));
    // And goes on learning.
    record(&store, &key("w", "k"), 2);
    store.flush().unwrap();
    assert_eq!(count(&store, &key("w", "k")), 2);
}

#[test]
fn only_this_machine_s_is_kept_if_asked() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut other = key("w", "k");
    std::sync::Arc::make_mut(&mut other.place).fingerprint =
        "ffffffffffffffff".to_owned().try_into().unwrap();
    record(&store, &key("w", "k"), 1);
    record(&store, &other, 1);
    store.flush().unwrap();
    let what = Prune {
        keep_only: Some(fingerprint()),
        ..Prune::default()
    };
    assert_eq!(store.prune(&what).unwrap().series, 1);
    assert_eq!(
        (count(&store, &other), count(&store, &key("w", "k"))),
        (0, 1)
    );
}

#[test]
fn a_clock_that_panics_is_an_error_and_no_wait_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let asked = AtomicU32::new(0);
    let clock = WallClock::new(move || {
        assert!(
            asked.fetch_add(1, Ordering::SeqCst) < 2,
            "this clock is broken"
        );
        NOW_S
    });
    let store = Store::open(dir.path(), Options::new(clock)).unwrap();
    record(&store, &key("w", "k"), 1);
    let ended = (0..100).any(|_| matches!(store.flush(), Err(StoreError::Closed)));
    assert!(ended);
}

/// While nothing can be written, samples are summed up: more than the ring holds can come.
#[test]
fn what_waits_is_bounded_by_series_and_not_by_samples() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let key = key("w", "k");
    record(&store, &key, 1);
    store.flush().unwrap();
    let newer = rusqlite::Connection::open(store.path()).unwrap();
    newer.pragma_update(None, "user_version", 1000).unwrap();
    for _ in 0..10 {
        record(&store, &key, 30_000);
        assert!(store.flush().is_err());
    }
    newer.pragma_update(None, "user_version", 2).unwrap();
    store.flush().unwrap();
    assert_eq!((count(&store, &key), store.dropped()), (300_001, 0));
}
