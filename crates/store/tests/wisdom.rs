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
        assert_eq!(wisdom.known(), from.known_anywhere().unwrap());
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
    let known = layered.wisdom.known();
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

/// A header with a checksum that fits any body, so that mutations reach the parser of lines.
fn resealed(bytes: &[u8]) -> Vec<u8> {
    let end = bytes.iter().position(|b| *b == b'\n').unwrap_or(0);
    let body = bytes.get(end + 1..).unwrap_or_default();
    let hash = blake3::hash(body).to_hex().to_string();
    let header = format!(
        r#"{{"schema":"kernelwise.wisdom/1","library":"0.1.0","records":4,"blake3":"{hash}"}}"#
    );
    [header.as_bytes(), b"\n", body].concat()
}

/// What is read from any bytes can be written, read again and imported.
fn digest(bytes: &[u8]) {
    if let Ok((wisdom, _)) = Wisdom::from_bytes(bytes) {
        let again = Wisdom::from_bytes(&wisdom.to_bytes(false)).unwrap();
        assert_eq!(again, (wisdom.clone(), vec![]));
        let known = wisdom.known();
        assert!(known.iter().all(|known| known.statistics.runs() > 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Bytes changed, removed, repeated: an error or less wisdom, never a panic.
    #[test]
    fn no_mutation_upsets_the_reader(
        compressed: bool,
        reseal: bool,
        mutations in prop::collection::vec((0usize..4, 0usize..100_000, any::<u8>(), 0usize..64), 1..6),
    ) {
        let mut bytes = sample_bytes(compressed);
        for (kind, at, byte, length) in mutations {
            let at = at % bytes.len().max(1);
            let end = (at + length).min(bytes.len());
            match kind {
                0 if !bytes.is_empty() => bytes[at] = byte,
                1 => bytes.truncate(at),
                2 => { bytes.drain(at..end); }
                _ => { let part = bytes[at..end].to_vec(); bytes.splice(at..at, part); }
            }
        }
        digest(&if reseal && !compressed { resealed(&bytes) } else { bytes });
    }

    #[test]
    fn no_bytes_upset_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        digest(&bytes);
        digest(&resealed(&bytes));
    }
}

/// Made once: each case changes a copy.
fn sample_bytes(compressed: bool) -> Vec<u8> {
    static BYTES: std::sync::OnceLock<[Vec<u8>; 2]> = std::sync::OnceLock::new();
    let bytes = BYTES.get_or_init(|| {
        let wisdom = sample();
        [wisdom.to_bytes(false), wisdom.to_bytes(true)]
    });
    bytes[usize::from(compressed)].clone()
}

/// Inputs that upset a reader once, or could: each is read again for ever.
#[test]
fn inputs_that_were_kept_are_harmless() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut read = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        digest(&bytes);
        digest(&resealed(&bytes));
        read += 1;
    }
    assert!(read >= 4);
}
