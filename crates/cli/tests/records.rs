//! `cache`, `export`, `import`, `sync` and `bench store`, run as users run them.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn kernelwise(records: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kernelwise"));
    command
        .args(words)
        .env_remove("KERNELWISE_LOG")
        .env_remove("KERNELWISE_FORCE")
        .env_remove("KERNELWISE_MODE")
        .env_remove("KERNELWISE_DATABASE_URL")
        .env("KERNELWISE_DIR", records)
        .stdin(Stdio::null());
    command
}

fn run(records: &Path, words: &[&str]) -> Output {
    kernelwise(records, words).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn answer(records: &Path, words: &[&str]) -> String {
    let output = run(records, words);
    assert!(
        output.status.success(),
        "{words:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout).to_owned()
}

fn learned() -> tempfile::TempDir {
    let records = tempfile::tempdir().unwrap();
    let words = [
        "learn",
        "--op",
        "copy",
        "--effort",
        "minimal",
        "--time-budget",
        "30",
    ];
    answer(records.path(), &words);
    records
}

#[test]
fn what_is_exported_and_imported_answers_alike() {
    let (here, there) = (learned(), tempfile::tempdir().unwrap());
    let (here, there) = (here.path(), there.path());
    let file = there.join("wisdom.jsonl.gz");
    let file = file.to_str().unwrap();
    let exported = run(here, &["export", "-o", file]);
    assert!(exported.status.success(), "{}", text(&exported.stderr));
    assert!(text(&exported.stderr).contains("series in"));
    let preview = answer(there, &["import", "--preview", file]);
    assert!(preview.contains("would be taken over"));
    let before = answer(there, &["cache", "stats", "--format", "json"]);
    let before: Value = serde_json::from_str(&before).unwrap();
    assert_eq!(before["series"], 0, "a preview takes nothing");
    let imported = answer(there, &["import", file]);
    assert!(!imported.starts_with("0 series"), "{imported}");
    // Twice is once.
    assert!(answer(there, &["import", file]).starts_with("0 series and 0 notes"));
    // A shape that was measured, and one that was not.
    for shape in ["1000", "7777"] {
        let asked = ["select", "copy", "--shape", shape, "--format", "json"];
        let ask = |records| {
            let output = kernelwise(records, &asked)
                .env("KERNELWISE_MODE", "frozen")
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", text(&output.stderr));
            text(&output.stdout).to_owned()
        };
        assert_eq!(ask(here), ask(there));
    }
    // Nothing in the file says whose it is.
    let plain = answer(here, &["export"]);
    assert!(!plain.contains(here.to_str().unwrap()));

    // The same through a pipe.
    let mut importing = kernelwise(there, &["import", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = importing.stdin.take().unwrap();
    stdin.write_all(plain.as_bytes()).unwrap();
    drop(stdin);
    assert!(importing.wait_with_output().unwrap().status.success());
}

#[test]
fn a_bad_file_changes_nothing() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let file = records.join("bad.jsonl");
    std::fs::write(&file, "{\"not\": \"wisdom\"}\n").unwrap();
    let output = run(records, &["import", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("bad.jsonl"),
        "{}",
        text(&output.stderr)
    );
    let missing = run(records, &["import", "nowhere.jsonl"]);
    assert_eq!(missing.status.code(), Some(4));
    let nothing = run(records, &["export"]);
    assert_eq!(nothing.status.code(), Some(4));
}

#[test]
fn the_cache_is_counted_checked_and_cleared() {
    let records = learned();
    let records = records.path();
    let path = answer(records, &["cache", "path"]);
    assert_eq!(Path::new(path.trim()), records.join("records.sqlite"));
    let stats = answer(records, &["cache", "stats", "--format", "json"]);
    let stats: Value = serde_json::from_str(&stats).unwrap();
    assert!(stats["series"].as_u64().unwrap() > 20, "{stats}");
    assert_eq!(stats["machines"], 1);
    assert_eq!(answer(records, &["cache", "verify"]), "the file is sound\n");
    let pruned = answer(records, &["cache", "prune", "--other-machines"]);
    assert!(pruned.starts_with("0 series"), "{pruned}");
    assert_eq!(run(records, &["cache", "prune"]).status.code(), Some(2));
    assert_eq!(run(records, &["cache", "clear"]).status.code(), Some(2));
    answer(records, &["cache", "clear", "--yes"]);
    let stats = answer(records, &["cache", "stats"]);
    assert!(stats.contains("series") && !stats.contains("runs                       1"));
    assert_eq!(run(records, &["export"]).status.code(), Some(4));
}

#[test]
fn remembering_has_its_figures() {
    let records = tempfile::tempdir().unwrap();
    let figures = answer(records.path(), &["bench", "store", "--format", "json"]);
    let figures: Value = serde_json::from_str(&figures).unwrap();
    assert_eq!(figures["schema"], "kernelwise.bench_store/1");
    for name in ["record_ns_p50", "writes_per_s", "open_100k_ms"] {
        assert!(figures[name].as_f64().unwrap() > 0.0, "{name}");
    }
    assert!(figures["sync_per_s"].is_null(), "no server was named");
}

#[test]
fn syncing_says_what_it_lacks() {
    let records = tempfile::tempdir().unwrap();
    let output = run(records.path(), &["sync"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("KERNELWISE_DATABASE_URL") || said.contains("--features postgres"));
    if cfg!(feature = "postgres") {
        let output = kernelwise(records.path(), &["sync"])
            .env("KERNELWISE_DATABASE_URL", "postgresql://127.0.0.1:1/nobody")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    }
}
