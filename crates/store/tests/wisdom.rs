//! Wisdom: it travels, it merges, and no bytes upset its reader.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

mod shared;

use std::path::{Path, PathBuf};

use kernelwise_store::{
    Export, Layer, Layered, Quarantine, Store, Wisdom, WisdomError, search_path,
};
use proptest::prelude::*;
use shared::{count, fingerprint, key, open, record};

fn filled(dir: &Path, kernels: &[(&str, u32)]) -> Store {
    let store = open(dir);
    for (kernel, samples) in kernels {
        record(&store, &key("matmul f32 2x2x2", kernel), *samples);
    }
    store.flush().unwrap();
    store
}

fn export(store: &Store) -> Wisdom {
    store.export(&Export::default()).unwrap()
}

#[test]
fn an_export_imported_elsewhere_is_the_same_bit_for_bit() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let from = filled(a.path(), &[("k1", 100), ("k2", 7)]);
    from.keep_model(
        &fingerprint(),
        "m",
        serde_json::json!({"w": [0.1, 1e-300, 3.0]}),
    );
    from.flush().unwrap();
    for compressed in [false, true] {
        let bytes = export(&from).to_bytes(compressed);
        let (wisdom, skipped) = Wisdom::from_bytes(&bytes).unwrap();
        assert_eq!(skipped, []);
        assert_eq!(wisdom, export(&from));
        let to = open(b.path());
        to.import(&wisdom).unwrap();
        assert_eq!(to.known_anywhere().unwrap(), from.known_anywhere().unwrap());
        let known = wisdom.known(shared::NOW_S);
        assert_eq!(known, from.known_anywhere().unwrap());
        assert_eq!(export(&to), export(&from));
    }
}

#[test]
fn statistics_add_and_twice_is_once() {
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let a = filled(dirs[0].path(), &[("k", 10)]);
    let b = filled(dirs[1].path(), &[("k", 5)]);
    let c = open(dirs[2].path());
    let k = key("matmul f32 2x2x2", "k");

    let first = c.import(&export(&a)).unwrap();
    assert_eq!((first.records, first.known), (1, 0));
    let again = c.import(&export(&a)).unwrap();
    assert_eq!((again.records, again.known), (0, 1));
    c.import(&export(&b)).unwrap();
    assert_eq!(count(&c, &k), 15);

    // A later export of the same store replaces the earlier one instead of adding to it.
    record(&a, &k, 1);
    a.flush().unwrap();
    assert_eq!(c.preview(&export(&a)).unwrap().records, 1);
    c.import(&export(&a)).unwrap();
    assert_eq!(count(&c, &k), 16);
    // What comes home is recognised, whatever way it took.
    a.import(&export(&c)).unwrap();
    assert_eq!(count(&a, &k), 16);
    c.import(&export(&a)).unwrap();
    assert_eq!(count(&c, &k), 16);
    // And an older export changes nothing any more.
    let old = {
        let mut old = export(&b);
        old.merge(export(&b));
        old
    };
    assert_eq!(c.import(&old).unwrap().records, 0);
}

#[test]
fn what_a_store_learns_after_it_was_restored_is_not_lost() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = a.path().join("records.sqlite");
    drop(filled(a.path(), &[("k", 10)]));
    let backup = std::fs::read(&path).unwrap();
    let later = filled(a.path(), &[("k", 10)]);
    let b = open(b.path());
    b.import(&export(&later)).unwrap();
    drop(later);
    // The same file with older contents: its inode does not tell.
    std::fs::write(&path, backup).unwrap();
    let restored = open(a.path());
    restored.import(&export(&b)).unwrap();
    let k = key("matmul f32 2x2x2", "k");
    assert_eq!(count(&restored, &k), 20);
    record(&restored, &k, 1);
    restored.flush().unwrap();
    b.import(&export(&restored)).unwrap();
    assert_eq!(count(&b, &k), 21);
}

/// What was deleted may be in a backup, or elsewhere: what is learned afterwards adds to it, and does not replace it.
#[test]
fn what_was_cleared_comes_back_from_a_backup_beside_what_was_learned_since() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = filled(a.path(), &[("k", 100)]);
    let backup = export(&store);
    store.clear().unwrap();
    let k = key("matmul f32 2x2x2", "k");
    for _ in 0..3 {
        record(&store, &k, 1);
        store.flush().unwrap();
    }
    let since = export(&store);
    assert_eq!(store.import(&backup).unwrap().records, 1);
    assert_eq!(count(&store, &k), 103);
    // Others who know the backup learn what is new, in any order.
    let elsewhere = open(b.path());
    elsewhere.import(&since).unwrap();
    elsewhere.import(&backup).unwrap();
    assert_eq!(count(&elsewhere, &k), 103);
}

#[test]
fn what_was_pruned_is_not_overwritten_elsewhere_by_what_was_learned_since() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (old, new) = (key("w", "old"), key("w", "new"));
    for automatic in [false, true] {
        let a = a.path().join(automatic.to_string());
        let b = b.path().join(automatic.to_string());
        let dial = shared::Dial::at(shared::NOW_S);
        let mut options = dial.options();
        if automatic {
            options.most_series = 64;
        }
        let store = Store::open(&a, options).unwrap();
        record(&store, &old, 100);
        store.flush().unwrap();
        let elsewhere = open(&b);
        elsewhere.import(&export(&store)).unwrap();
        dial.set(shared::NOW_S + 1000);
        record(&store, &new, 10);
        store.flush().unwrap();
        if automatic {
            // More series than are kept: the oldest goes by itself.
            for i in 0..200 {
                record(&store, &key(&format!("other {i}"), "k"), 1);
                store.flush().unwrap();
            }
        } else {
            let what = kernelwise_store::Prune {
                older_than_s: Some(500),
                ..kernelwise_store::Prune::default()
            };
            assert_eq!(store.prune(&what).unwrap().series, 1);
        }
        assert_eq!(count(&store, &old), 0);
        record(&store, &old, 1);
        store.flush().unwrap();
        let mut together = export(&elsewhere);
        together.merge(export(&store));
        elsewhere.import(&together).unwrap();
        assert_eq!(count(&elsewhere, &old), 101);
    }
}

/// One machine whose clock is fifty years ahead: its times count, and do not make all others' weigh nothing.
#[test]
fn a_clock_in_the_future_does_not_overrule_others() {
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let ahead = shared::Dial::at(shared::NOW_S + 50 * 365 * 86_400);
    let ahead = Store::open(dirs[0].path(), ahead.options()).unwrap();
    let k = key("matmul f32 2x2x2", "k");
    let slot = ahead.slot(&k);
    for _ in 0..10 {
        ahead.record(slot, shared::timed(64_000.0));
    }
    ahead.flush().unwrap();
    // Ninety times of a microsecond.
    let right = filled(dirs[1].path(), &[("k", 90)]);
    let here = open(dirs[2].path());
    here.import(&export(&ahead)).unwrap();
    here.import(&export(&right)).unwrap();
    let known = here.known_anywhere().unwrap();
    let statistics = known[0].statistics;
    assert!(statistics.last_s() <= shared::NOW_S + 86_400);
    let faded = statistics.faded(shared::NOW_S).unwrap();
    assert!(faded.weight > 80.0, "{faded:?}");
    assert!(faded.mean_ln.exp() < 2000.0, "{faded:?}");
    // Files are judged alike, and travel as they are.
    let all = export(&here);
    assert_eq!(all.known(shared::NOW_S), known);
    let latest = all.records().map(|record| record.statistics.last_s()).max();
    assert!(latest > Some(shared::NOW_S + 86_400));
}

#[test]
fn nothing_private_leaves() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path(), &[("k", 3)]);
    let mut machine = machine();
    machine.kernel = kernelwise_types::Reading::Known("6.18.2-annas-laptop".into());
    machine.memory = kernelwise_types::Reading::unknown("/home/anna/meminfo: not found");
    store.describe(&machine);
    let quarantine = Quarantine {
        kernel: "k".into(),
        version: 1,
        case: "matmul f32 2x2x2".into(),
        evidence: "panicked at /home/anna/src/k.rs on host annas-laptop".into(),
        lifted: false,
    };
    store.quarantine(&fingerprint(), &quarantine);
    store.flush().unwrap();
    let wisdom = export(&store);
    let text = String::from_utf8(wisdom.to_bytes(false)).unwrap();
    let dir_name = dir.path().to_string_lossy().into_owned();
    for secret in ["anna", "/home", "laptop", "panicked", &dir_name] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    assert!(
        text.contains("6.18.2") && text.contains("quarantine"),
        "{text}"
    );
    // At home the evidence stays, also when the export comes back.
    store.import(&wisdom).unwrap();
    assert_eq!(store.quarantines(&fingerprint()).unwrap(), [quarantine]);
    assert_eq!(store.machines().unwrap()[0].1, machine);
}

fn machine() -> kernelwise_types::Machine {
    use kernelwise_types::Reading;
    use kernelwise_types::machine::{Cpu, Limits, Machine};
    Machine {
        cpu: Cpu {
            arch: "x86_64".into(),
            vendor: Reading::Known("Example".into()),
            model: Reading::Known("Example 3000".into()),
            signature: Reading::unknown("hidden"),
            logical: 4,
            cores: Reading::Known(4),
            threads_per_core: Reading::Known(1),
            packages: Reading::Known(1),
            isa: vec![],
            tsc: Reading::unknown("hidden"),
            max_frequency: Reading::unknown("hidden"),
        },
        caches: Reading::Known(vec![]),
        numa: Reading::unknown("hidden"),
        memory: Reading::unknown("hidden"),
        limits: Limits {
            affinity: Reading::unknown("hidden"),
            cpu_quota: Reading::Known(None),
            memory: Reading::Known(None),
        },
        hypervisor: Reading::unknown("hidden"),
        os: "linux".into(),
        kernel: Reading::Known("6.18.0".into()),
    }
}

#[test]
fn layers_merge_and_a_bad_file_does_not_hide_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let variable = |name: &str| match name {
        "XDG_DATA_DIRS" => Some(dir.path().join("system").into_os_string()),
        "XDG_DATA_HOME" => Some(dir.path().join("user").into_os_string()),
        _ => None,
    };
    let path = search_path(variable, &dir.path().join("project"));
    let layers: Vec<Layer> = path.iter().map(|(layer, _)| *layer).collect();
    assert_eq!(layers, [Layer::System, Layer::User, Layer::Project]);
    for (number, (_, below)) in path.iter().enumerate() {
        std::fs::create_dir_all(below).unwrap();
        let store = filled(&dir.path().join(format!("store{number}")), &[("k", 10)]);
        export(&store).save(&below.join("mine.wisdom.gz")).unwrap();
        // The same in two layers counts once.
        export(&store)
            .save(&path[0].1.join(format!("copy{number}.wisdom")))
            .unwrap();
    }
    std::fs::write(path[1].1.join("bad.wisdom"), b"{\"schema\":").unwrap();
    std::fs::write(path[1].1.join("notes.txt"), b"not looked at").unwrap();
    let layered = Layered::load(&path);
    let known = layered.wisdom.known(shared::NOW_S);
    assert_eq!(known.len(), 1);
    assert_eq!(known[0].statistics.times().samples(), 30);
    let bad: Vec<PathBuf> = layered
        .files
        .iter()
        .filter(|file| file.result.is_err())
        .map(|file| file.path.clone())
        .collect();
    assert_eq!(bad, [path[1].1.join("bad.wisdom")]);
    assert_eq!(layered.files.len(), 7);
}

#[test]
fn saving_replaces_a_file_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(&dir.path().join("s"), &[("k", 10)]);
    let path = dir.path().join("w.wisdom");
    export(&store).save(&path).unwrap();
    assert_eq!(Wisdom::load(&path).unwrap().0, export(&store));
    let names = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(names, 2, "no temporary file is left");
    let error = export(&store)
        .save(&dir.path().join("absent/w.wisdom"))
        .unwrap_err();
    assert!(error.to_string().contains("absent"), "{error}");
}

/// A valid file of two kernels and two notes.
fn sample() -> Wisdom {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path(), &[("k1", 3), ("k2", 4)]);
    store.describe(&machine());
    store.keep_model(&fingerprint(), "m", serde_json::json!([1, 2.5]));
    store.flush().unwrap();
    export(&store)
}

#[test]
fn what_is_wrong_with_a_file_is_said() {
    let wisdom = sample();
    let bytes = wisdom.to_bytes(false);
    let read = |bytes: &[u8]| Wisdom::from_bytes(bytes).unwrap_err();
    let newer = String::from_utf8(bytes.clone()).unwrap();
    let newer = newer.replacen("wisdom/1", "wisdom/2", 1);
    assert_eq!(read(newer.as_bytes()), WisdomError::Newer { found: 2 });
    assert_eq!(read(b""), WisdomError::NotWisdom);
    assert_eq!(read(b"hello\n"), WisdomError::NotWisdom);
    let cut = bytes.len() - 40;
    let expected = WisdomError::Truncated {
        expected: 4,
        found: 3,
    };
    assert_eq!(read(&bytes[..cut]), expected);
    let mut flipped = bytes.clone();
    *flipped.last_mut().unwrap() ^= 1;
    assert!(matches!(
        read(&flipped),
        WisdomError::Checksum | WisdomError::Truncated { .. }
    ));
    let packed = wisdom.to_bytes(true);
    let half = read(&packed[..packed.len() / 2]);
    assert!(matches!(half, WisdomError::Compression { .. }), "{half}");
}

#[test]
fn lines_of_another_kind_are_left_out_and_listed() {
    let body = "{\"dream\":{}}\n{\"series\":{}}\n";
    let hash = blake3::hash(body.as_bytes()).to_hex().to_string();
    let header = format!(
        r#"{{"schema":"kernelwise.wisdom/1","library":"9.9.9","records":2,"blake3":"{hash}"}}"#
    );
    let (wisdom, skipped) = Wisdom::from_bytes(format!("{header}\n{body}").as_bytes()).unwrap();
    assert!(wisdom.is_empty());
    let lines: Vec<u64> = skipped.iter().map(|skipped| skipped.line).collect();
    assert_eq!(lines, [2, 3]);
}

/// A header with a count and a checksum that fit any body, so that mutations reach the parser of lines.
fn resealed(bytes: &[u8]) -> Vec<u8> {
    let end = bytes.iter().position(|b| *b == b'\n').unwrap_or(0);
    let body = bytes.get(end + 1..).unwrap_or_default();
    let hash = blake3::hash(body).to_hex().to_string();
    let lines = body.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    let records = lines.count();
    let header = format!(
        r#"{{"schema":"kernelwise.wisdom/1","library":"0.1.0","records":{records},"blake3":"{hash}"}}"#
    );
    [header.as_bytes(), b"\n", body].concat()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// What is read from any bytes can be written, read again, and imported into a store that took many before.
fn digest(store: &Store, bytes: &[u8]) {
    if let Ok((wisdom, _)) = Wisdom::from_bytes(bytes) {
        let again = Wisdom::from_bytes(&wisdom.to_bytes(false)).unwrap();
        assert_eq!(again, (wisdom.clone(), vec![]));
        let known = wisdom.known(shared::NOW_S);
        assert!(known.iter().all(|known| known.statistics.runs() > 0));
        let would = store.preview(&wisdom).unwrap();
        assert_eq!(store.import(&wisdom).unwrap(), would);
        let twice = store.import(&wisdom).unwrap();
        assert_eq!((twice.records, twice.notes), (0, 0), "twice is once");
        assert_eq!(twice.known, would.records + would.notes + would.known);
    }
}

/// What all that was imported leaves: a sound file that can be used.
fn aftermath(store: &Store) {
    assert_eq!(store.verify().unwrap(), Vec::<String>::new());
    let known = store.known_anywhere().unwrap();
    assert!(known.iter().all(|known| known.statistics.runs() > 0));
    let all = export(store);
    let again = Wisdom::from_bytes(&all.to_bytes(true)).unwrap();
    assert_eq!(again, (all, vec![]));
    record(store, &key("after", "all"), 5);
    store.flush().unwrap();
    assert_eq!(count(store, &key("after", "all")), 5);
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

/// Cases of each of the two tests below; more take longer and find more.
const CASES: &str = "KERNELWISE_FUZZ_CASES";

/// Tries many inputs, all with one store. The smallest that fails is kept in the corpus before the test fails.
fn fuzz<S: Strategy>(input: &S, bytes_of: impl Fn(&S::Value) -> Vec<u8>) {
    let asked = std::env::var(CASES).ok();
    let cases = asked.map_or(1000, |cases| cases.parse().unwrap());
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    };
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let failed = runner.run(input, |input| {
        digest(&store, &bytes_of(&input));
        Ok(())
    });
    if let Err(proptest::test_runner::TestError::Fail(reason, smallest)) = &failed {
        let bytes = bytes_of(smallest);
        let name = format!("found-{}", &blake3::hash(&bytes).to_hex()[..16]);
        let kept = corpus().join(name);
        std::fs::write(&kept, &bytes).unwrap();
        panic!("{reason}; the input is kept as {}", kept.display());
    }
    failed.unwrap();
    aftermath(&store);
}

/// How bytes are changed.
#[derive(Debug, Clone, Copy)]
enum Where {
    /// As they stand in a file.
    Plain,
    /// A file that is compressed.
    Packed,
    /// What a compressed file unpacks to.
    Inside,
}

/// Bytes changed, removed, repeated: an error or less wisdom, never a panic.
#[test]
fn no_mutation_upsets_the_reader() {
    let change = (0usize..4, 0usize..100_000, any::<u8>(), 0usize..64);
    let changes = prop::collection::vec(change, 1..6);
    let layer = prop_oneof![Just(Where::Plain), Just(Where::Packed), Just(Where::Inside)];
    let samples = {
        let wisdom = sample();
        [wisdom.to_bytes(false), wisdom.to_bytes(true)]
    };
    fuzz(
        &(layer, any::<bool>(), changes),
        |(layer, reseal, changes)| {
            let is_packed = matches!(layer, Where::Packed);
            let mut bytes = samples[usize::from(is_packed)].clone();
            for (kind, at, byte, length) in changes {
                let at = at % bytes.len().max(1);
                let end = (at + length).min(bytes.len());
                match kind {
                    0 if !bytes.is_empty() => bytes[at] = *byte,
                    1 => bytes.truncate(at),
                    2 => {
                        bytes.drain(at..end);
                    }
                    _ => {
                        let part = bytes[at..end].to_vec();
                        bytes.splice(at..at, part);
                    }
                }
            }
            if *reseal && !is_packed {
                bytes = resealed(&bytes);
            }
            match layer {
                Where::Inside => packed(&bytes),
                Where::Plain | Where::Packed => bytes,
            }
        },
    );
}

#[test]
fn no_bytes_upset_the_reader() {
    let bytes = prop::collection::vec(any::<u8>(), 0..400);
    fuzz(&(bytes, 0..4), |(bytes, how)| match how {
        0 => bytes.clone(),
        1 => packed(bytes),
        2 => resealed(bytes),
        _ => packed(&resealed(bytes)),
    });
}

/// Inputs that upset a reader once, or could: each is read again for ever.
#[test]
fn inputs_that_were_kept_are_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut read = 0;
    for entry in std::fs::read_dir(corpus()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        digest(&store, &bytes);
        digest(&store, &resealed(&bytes));
        digest(&store, &packed(&resealed(&bytes)));
        read += 1;
    }
    assert!(read >= 4);
    aftermath(&store);
}
