//! What comes from elsewhere, and what is cut short: nothing is lost, and no text becomes markup, a column or a command to the terminal.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

mod typed;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use typed::{answer, json, kernelwise, run, text};

/// Markup, a column, a formula and a command to the terminal.
const HOSTILE: &str = "</script><img src=x onerror=alert(1)>\",=1+1\n\u{1b}[2J\u{7}";

/// Puts times on record.
const MEASURED: [&str; 8] = [
    "select",
    "copy",
    "--shape",
    "64",
    "--time-budget",
    "0.05",
    "--calibration-budget",
    "0.01",
];

/// Keeps a kernel away, with this evidence.
fn quarantine(records: &Path, evidence: &str) {
    let clock = kernelwise_store::WallClock::new(|| 1_800_000_000);
    let options = kernelwise_store::Options::new(clock);
    let store = kernelwise_store::Store::open(records, options).unwrap();
    store.quarantine(
        &kernelwise_types::Fingerprint::of(&kernelwise_probe::machine()),
        &kernelwise_store::Quarantine {
            kernel: "cpu-copy-f32-strided".to_owned(),
            version: 1,
            case: format!("copy f32 77{HOSTILE}"),
            evidence: evidence.to_owned(),
            lifted: false,
        },
    );
    store.flush().unwrap();
}

#[test]
fn hostile_records_stay_text_in_every_form() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    quarantine(records, HOSTILE);
    let kept = json(records, &["cache", "quarantine"]);
    assert_eq!(kept["quarantined"][0]["evidence"], HOSTILE);
    let table = answer(records, &["cache", "quarantine"]);
    assert!(
        table.contains("\\u{1b}[2J") && !table.contains('\u{1b}'),
        "{table:?}"
    );
    let learned = run(
        records,
        &[
            "learn",
            "--op",
            "copy",
            "--effort",
            "minimal",
            "--time-budget",
            "1",
        ],
    );
    assert!(learned.status.success(), "{}", text(&learned.stderr));
    for said in [&learned.stdout, &learned.stderr] {
        assert!(!text(said).contains('\u{1b}'), "{}", text(said));
    }
    answer(records, &MEASURED);
    let report = |format: &str| answer(records, &["report", "--format", format]);
    let parsed: serde_json::Value = serde_json::from_str(&report("json")).unwrap();
    assert!(parsed.to_string().contains("onerror"), "it is told");
    let page = records.join("page.html");
    answer(records, &["report", "-o", page.to_str().unwrap()]);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("onerror") && !page.contains("<img src=x"));
    // A line that begins with a formula would be computed by a spreadsheet.
    assert!(report("csv").lines().all(|line| !line.starts_with('=')));
    assert!(!report("markdown").contains("<img src=x"));
}

#[test]
fn a_mistyped_kernel_is_not_let_back_in() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    quarantine(records, "panicked");
    let lift = |kernel: &str| run(records, &["cache", "quarantine", "--lift", kernel]);
    let mistyped = lift("cpu-copy-f32-stridet");
    let said = text(&mistyped.stderr);
    assert_eq!(mistyped.status.code(), Some(4), "{said}");
    assert!(
        said.contains("did you mean `cpu-copy-f32-strided`?"),
        "{said}"
    );
    assert!(lift("cpu-copy-f32-strided").status.success());
}

#[test]
fn an_old_report_stays_whole_while_a_new_one_is_written() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    answer(records, &MEASURED);
    let page = records.join("mine.html");
    let words = ["report", "-o", page.to_str().unwrap()];
    answer(records, &words);
    // Killed at any moment, there is the old page or the new one.
    for wait_ms in [20, 60, 100, 140, 180] {
        let mut writing = kernelwise(records, &words)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(wait_ms));
        let _ = writing.kill();
        writing.wait().unwrap();
        let found = std::fs::read_to_string(&page).unwrap();
        assert!(found.starts_with("<!DOCTYPE html>") && found.trim_end().ends_with("</html>"));
    }
    // A directory that may not be written leaves it, too.
    let nowhere = run(records, &["report", "-o", "/proc/kernelwise/report.html"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(text(&nowhere.stderr).contains("choose a file in a directory that may be written"));
}

#[cfg(unix)]
#[test]
fn an_interrupt_at_any_stage_of_learning_loses_nothing() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let series = || {
        json(records, &["cache", "stats"])["series"]
            .as_u64()
            .unwrap()
    };
    answer(records, &MEASURED);
    let mut before = series();
    assert!(before > 0, "there is something to lose");
    // While it opens, calibrates, races, judges and writes.
    for wait_ms in [100, 400, 900, 1600, 2400] {
        let words = [
            "learn",
            "--op",
            "copy",
            "--effort",
            "minimal",
            "--time-budget",
            "2",
        ];
        let learning = kernelwise(records, &words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(wait_ms));
        let id = learning.id().to_string();
        let sent = Command::new("kill").args(["-INT", &id]).output().unwrap();
        let output = learning.wait_with_output().unwrap();
        let said = text(&output.stderr);
        // Whoever was done before is not interrupted; whoever does not listen yet is ended by the signal.
        match output.status.code() {
            Some(130) => assert!(said.contains("interrupted"), "{said}"),
            Some(0) => {}
            None => assert!(output.stdout.is_empty(), "{said}"),
            Some(code) => panic!("{code} after {wait_ms} ms: {said} {sent:?}"),
        }
        assert_eq!(answer(records, &["cache", "verify"]), "the file is sound\n");
        let now = series();
        assert!(now >= before, "{now} of {before} series are left");
        before = now;
    }
}

#[cfg(unix)]
#[test]
fn records_that_may_only_be_read_are_used() {
    use std::os::unix::process::CommandExt;
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    answer(
        records,
        &[
            "select",
            "copy",
            "--shape",
            "64",
            "--time-budget",
            "0.05",
            "--calibration-budget",
            "0.01",
        ],
    );
    let file = records.join("records.sqlite");
    let own = std::fs::read(&file).unwrap();
    let open = |path: &Path, mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for entry in std::fs::read_dir(records).unwrap() {
        open(&entry.unwrap().path(), 0o444);
    }
    open(records, 0o555);
    let words = ["explain", "copy", "--shape", "64", "--time-budget", "0"];
    let mut asked = kernelwise(records, &words);
    // Who may do anything is told nothing.
    let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    if is_root {
        asked.uid(65534);
    }
    let output = match asked.output() {
        Ok(output) => output,
        Err(error) => return kernelwise_testing::skip("unprivileged", &error.to_string()),
    };
    open(records, 0o755);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).contains("measured"),
        "{}",
        text(&output.stdout)
    );
    let said = text(&output.stderr);
    assert_eq!(
        said.matches("may not be written").count(),
        1,
        "once, and in our words: {said}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), own);
}
