//! `cache`, `export`, `import`, `sync` and `bench store`, run as users run them.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

mod typed;

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::UNIX_EPOCH;

use serde_json::Value;
use typed::{answer, json, kernelwise, run, text};

/// Records of a machine that learned, in a directory of one's own. Learning takes 20 seconds, so it is done once for each build of the program;
/// who comes first does it, the others wait and copy.
fn learned() -> tempfile::TempDir {
    let program = std::fs::metadata(env!("CARGO_BIN_EXE_kernelwise")).unwrap();
    let built = program.modified().unwrap().duration_since(UNIX_EPOCH);
    let name = format!("learned-{}", built.unwrap().as_nanos());
    let shared = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&shared).unwrap();
    let lock = std::fs::File::create(shared.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let done = shared.with_extension("done");
    if !done.exists() {
        let words = [
            "learn",
            "--op",
            "copy",
            "--effort",
            "minimal",
            "--time-budget",
            "30",
        ];
        answer(&shared, &words);
        std::fs::write(done, []).unwrap();
    }
    drop(lock);
    let records = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(&shared).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), records.path().join(file.file_name())).unwrap();
    }
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
fn a_backup_is_imported_after_clearing_and_learning_anew() {
    let records = learned();
    let records = records.path();
    let backup = records.join("backup.wisdom.gz");
    let backup = backup.to_str().unwrap();
    run(records, &["export", "-o", backup]);
    let before = json(records, &["cache", "stats"]);
    let listed = json(records, &["cache", "list", "--op", "copy"]);
    let workload = listed["series"][0]["workload"].as_str().unwrap();
    let shape = workload.rsplit(' ').next().unwrap();
    answer(records, &["cache", "clear", "--yes"]);
    // The same series are begun again, with few runs.
    let again = ["select", "copy", "--shape", shape, "--time-budget", "0.2"];
    let again = [&again[..], &["--calibration-budget", "0.2"]].concat();
    answer(records, &again);
    let imported = answer(records, &["import", backup]);
    let all = before["series"].as_u64().unwrap();
    assert!(imported.starts_with(&format!("{all} series")), "{imported}");
    let after = json(records, &["cache", "stats"]);
    assert!(after["runs"].as_u64() > before["runs"].as_u64());
}

#[test]
fn so_many_series_are_kept_and_single_runs_are_listed() {
    let records = learned();
    let records = records.path();
    let asked = ["cache", "list", "--op", "copy", "--samples"];
    let listed = json(records, &asked);
    let samples = listed["series"][0]["samples"].as_array().unwrap();
    assert!(samples[0]["time_ns"].as_f64().unwrap() > 0.0, "{listed}");
    assert!(
        samples[0]["predicted_ns"].as_f64().unwrap() > 0.0,
        "{listed}"
    );
    let table = answer(records, &asked);
    assert!(
        table.lines().next().unwrap().contains("predicted"),
        "{table}"
    );
    assert!(table.lines().count() > 20);
    let plain = json(records, &["cache", "list", "--op", "copy"]);
    assert_eq!(plain["series"][0].get("samples"), None);
    let pruned = answer(records, &["cache", "prune", "--most-series", "5"]);
    assert!(!pruned.starts_with("0 series"), "{pruned}");
    let stats = json(records, &["cache", "stats"]);
    assert_eq!(stats["series"], 5);
    assert_eq!(stats["measured_here"], 5, "{stats}");
}

#[test]
fn why_records_do_not_count_is_told() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let machine = kernelwise_probe::machine();
    let now = kernelwise_store::WallClock::new(|| 1_800_000_000);
    let store = kernelwise_store::Store::open(records, kernelwise_store::Options::new(now));
    let store = store.unwrap();
    let library = env!("CARGO_PKG_VERSION");
    let place = std::sync::Arc::new(kernelwise_store::Place::of(&machine, library));
    let workload = "copy f32 77";
    let key = kernelwise_store::SeriesKey::new(place, workload, "cpu-copy-f32-gone", 1, "");
    let time = kernelwise_types::units::Nanos::from_u64(1000);
    store.record(store.slot(&key), kernelwise_store::Sample::timed(time));
    drop(store);
    let stats = json(records, &["cache", "stats"]);
    assert_eq!(stats["ignored"]["no such kernel here"], 1, "{stats}");
    let table = answer(records, &["cache", "stats"]);
    assert!(table.contains("ignored: no such kernel here"), "{table}");
    let learn = ["learn", "--op", "copy", "--effort", "minimal"];
    let told = run(records, &[&learn[..], &["--time-budget", "5"]].concat());
    let told = text(&told.stderr);
    assert!(
        told.contains("1 series on record say nothing here"),
        "{told}"
    );
}

/// In frozen mode nothing is measured, made or changed, also where nothing is on record.
#[test]
fn frozen_mode_makes_nothing_where_nothing_is() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("nowhere");
    let asked = ["explain", "copy", "--shape", "1000", "--format", "json"];
    let ask = || {
        let mut asked = kernelwise(&nowhere, &asked);
        let output = asked.env("KERNELWISE_MODE", "frozen").output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("in frozen mode nothing is made"));
        text(&output.stdout).to_owned()
    };
    let first = ask();
    assert_eq!(ask(), first, "no calibration makes it another one");
    assert!(first.contains("\"bound_by\""), "{first}");
    assert!(!nowhere.exists());
}

/// Damage that shows only when the file is read: it is set aside, that is said, and the program goes on.
#[test]
fn a_large_damaged_file_does_not_stop_the_program() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    {
        let machine = kernelwise_probe::machine();
        let now = kernelwise_store::WallClock::new(|| 1_800_000_000);
        let store = kernelwise_store::Store::open(records, kernelwise_store::Options::new(now));
        let store = store.unwrap();
        let place = std::sync::Arc::new(kernelwise_store::Place::of(&machine, "0.1.0"));
        let time = kernelwise_types::units::Nanos::from_u64(1);
        for i in 0..16_000 {
            let workload = format!("{i:0200}");
            let key = kernelwise_store::SeriesKey::new(place.clone(), workload, "k", 1, "");
            store.record(store.slot(&key), kernelwise_store::Sample::timed(time));
        }
    }
    let file = records.join("records.sqlite");
    let mut bytes = std::fs::read(&file).unwrap();
    let length = bytes.len();
    assert!(length > 4 << 20);
    bytes[length / 2..length / 4 * 3].fill(0x5a);
    std::fs::write(&file, &bytes).unwrap();
    let asked = ["select", "copy", "--shape", "77", "--time-budget", "0.1"];
    let asked = [&asked[..], &["--calibration-budget", "0.2"]].concat();
    let first = run(records, &asked);
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert!(text(&first.stderr).contains("it was set aside as"));
    let second = run(records, &asked);
    assert!(second.status.success() && !text(&second.stderr).contains("set aside"));
}

#[test]
fn what_is_on_record_is_listed() {
    let records = learned();
    let records = records.path();
    let listed = json(
        records,
        &["cache", "list", "--op", "copy", "--this-machine"],
    );
    assert_eq!(listed["schema"], "kernelwise.cache_list/1");
    let series = listed["series"].as_array().unwrap();
    assert!(series.len() > 20);
    for one in series {
        assert!(one["workload"].as_str().unwrap().starts_with("copy "));
        assert!(one["time_ns"].as_f64().unwrap() > 0.0 && one["runs"].as_u64().unwrap() > 0);
        assert_eq!(one["this_machine"], true);
    }
    let table = answer(records, &["cache", "list"]);
    assert_eq!(table.lines().count(), series.len() + 1);
    assert_eq!(
        run(records, &["cache", "list", "--op", "matmul"])
            .status
            .code(),
        Some(4)
    );
}

#[test]
fn kernels_that_are_kept_away_are_listed_and_let_back_in() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let machine = kernelwise_probe::machine();
    let store = kernelwise_store::Store::open(
        records,
        kernelwise_store::Options::new(kernelwise_store::WallClock::new(|| 1_800_000_000)),
    )
    .unwrap();
    let kernel = kernelwise_cpu::kernels().unwrap();
    let spec = kernel.iter().map(|kernel| kernel.spec());
    let spec = spec.into_iter().find(|spec| spec.id.operation() == "copy");
    let spec = spec.unwrap();
    store.quarantine(
        &kernelwise_types::Fingerprint::of(&machine),
        &kernelwise_store::Quarantine {
            kernel: spec.id.to_string(),
            version: spec.version,
            case: "copy f32 77".to_owned(),
            evidence: "said hello instead".to_owned(),
            lifted: false,
        },
    );
    store.flush().unwrap();
    drop(store);
    let kept = json(records, &["cache", "quarantine"]);
    assert_eq!(kept["quarantined"][0]["kernel"], spec.id.as_str());
    let table = answer(records, &["cache", "quarantine"]);
    assert!(table.contains("said hello instead"), "{table}");
    let asked = ["explain", "copy", "--shape", "77", "--time-budget", "0.1"];
    let explained = run(
        records,
        &[&asked[..], &["--calibration-budget", "0.2"]].concat(),
    );
    assert!(text(&explained.stderr).contains("is kept away"));
    assert!(text(&explained.stdout).contains("quarantined"));
    let lift = |kernel: &str| run(records, &["cache", "quarantine", "--lift", kernel]);
    assert_eq!(lift("cpu-copy-f32-nobody").status.code(), Some(4));
    assert!(lift(spec.id.as_str()).status.success());
    assert_eq!(
        answer(records, &["cache", "quarantine"]),
        "no kernel is kept away\n"
    );
}

#[test]
fn wisdom_of_the_project_is_used_and_never_written() {
    let (here, there) = (learned(), tempfile::tempdir().unwrap());
    let layer = there.path().join(".kernelwise/wisdom");
    std::fs::create_dir_all(&layer).unwrap();
    let file = layer.join("machine.wisdom.gz");
    answer(here.path(), &["export", "-o", file.to_str().unwrap()]);
    std::fs::write(layer.join("broken.wisdom"), "no wisdom").unwrap();
    let before = std::fs::read(&file).unwrap();
    let empty = tempfile::tempdir().unwrap();
    let asked = ["select", "copy", "--shape", "1000", "--format", "json"];
    let ask = |records: &Path, at: &Path| {
        let mut asked = kernelwise(records, &asked);
        let output = asked
            .env("KERNELWISE_MODE", "frozen")
            .current_dir(at)
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        output
    };
    let (from_layer, own) = (
        ask(empty.path(), there.path()),
        ask(here.path(), here.path()),
    );
    assert_eq!(text(&from_layer.stdout), text(&own.stdout));
    assert!(text(&from_layer.stdout).contains("measured"));
    assert!(text(&from_layer.stderr).contains("broken.wisdom is left out"));
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

#[test]
fn models_are_trained_shown_and_used() {
    let records = learned();
    let records = records.path();
    let trained = json(records, &["model", "train"]);
    assert!(trained["train_s"].as_f64().unwrap() > 0.0);
    let model = &trained["models"][0];
    assert!(model["kind"].as_str().unwrap().starts_with("copy"));
    assert!(model["workloads"].as_u64().unwrap() >= 10);
    let shown = json(records, &["model", "show"]);
    assert_eq!(shown["models"], trained["models"]);
    assert_eq!(shown["train_s"], Value::Null);
    let explained = json(records, &["explain", "copy", "--shape", "4321"]);
    let estimate = &explained["decision"]["chosen"]["estimate"];
    assert_eq!(estimate["known_by"], "modelled", "{explained}");
    assert!(explained["bound_by"].is_string() || explained["bound_by"].is_object());
    let table = answer(records, &["model", "evaluate"]);
    for words in [
        "choosing by forecasts alone",
        "errors grow without",
        "announced",
    ] {
        assert!(table.contains(words), "{table}");
    }
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
