//! On a terminal: bars for those who wait, tables as wide as there is room. Without one: neither.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

mod typed;

use std::path::Path;
use std::process::{Command, Stdio};

use typed::{run, text};

/// What appears on a terminal of so many columns; `None` where no terminal can be had.
fn on_terminal(records: &Path, columns: usize, words: &str) -> Option<String> {
    let program = env!("CARGO_BIN_EXE_kernelwise");
    let typed = format!("stty rows 24 cols {columns}; {program} {words}");
    let output = Command::new("script")
        .args(["-qec", &typed, "/dev/null"])
        .env("KERNELWISE_DIR", records)
        .env("TERM", "xterm")
        .env_remove("COLUMNS")
        .env_remove("KERNELWISE_LOG")
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => Some(text(&output.stdout).to_owned()),
        Ok(output) => panic!("{words}: {}", String::from_utf8_lossy(&output.stdout)),
        Err(error) => {
            kernelwise_testing::skip("script", &error.to_string());
            None
        }
    }
}

/// Without what moves the cursor, one line for each state of a bar.
fn lines(shown: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut chars = shown.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => {
                chars.by_ref().find(char::is_ascii_alphabetic);
            }
            '\r' => plain.push('\n'),
            c => plain.push(c),
        }
    }
    let lines = plain.lines().map(str::trim_end);
    lines
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn learning_shows_its_steps_to_a_terminal_only() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let words = [
        "learn",
        "--op",
        "copy",
        "--effort",
        "minimal",
        "--time-budget",
        // A third of it is for the calibration, which takes longer where others are busy.
        "8",
    ];
    let Some(shown) = on_terminal(records, 100, &words.join(" ")) else {
        return;
    };
    let lines = lines(&shown);
    let has = |parts: &[&str]| {
        lines
            .iter()
            .any(|line| parts.iter().all(|part| line.contains(part)))
    };
    for step in [
        &["/", "s left", "calibrating: peak f32"][..],
        &["/", "s left", "racing copy f32"],
        &["forecasting what was measured"],
        &["making the report"],
    ] {
        assert!(has(step), "{step:?} in {lines:#?}");
    }
    let quiet = run(records, &words);
    for part in ["calibrating:", "racing", "s left"] {
        assert!(
            !text(&quiet.stderr).contains(part),
            "{}",
            text(&quiet.stderr)
        );
        assert!(
            !text(&quiet.stdout).contains(part),
            "{}",
            text(&quiet.stdout)
        );
    }
}

#[test]
fn judging_shows_its_steps() {
    let records = tempfile::tempdir().unwrap();
    let words = "bench choices --op softmax --limit 1 --max-seconds-per-shape 0.3 --calibration-budget 0.01";
    if let Some(shown) = on_terminal(records.path(), 100, words) {
        for step in [
            "calibrating: peak",
            "calibrating softmax",
            "judging softmax",
        ] {
            assert!(shown.contains(step), "{step} in {shown}");
        }
    }
}

#[test]
fn tables_fit_a_narrow_terminal() {
    let records = tempfile::tempdir().unwrap();
    let words = "kernels --op copy --dtype f32 --shape 1000 --technique reference";
    for columns in [40, 80] {
        let Some(shown) = on_terminal(records.path(), columns, words) else {
            return;
        };
        let lines = lines(&shown);
        let name = |line: &&String| line.contains("cpu-copy-f32-reference");
        assert_eq!(
            lines.iter().filter(name).count(),
            1,
            "a name is not broken: {lines:#?}"
        );
        if columns == 40 {
            // Not even the words fit beside each other: one under the other, with their headings.
            let at = lines
                .iter()
                .position(|line| line.trim() == "cpu-copy-f32-reference")
                .unwrap();
            assert_eq!(lines[at + 1].trim(), "technique  reference", "{lines:#?}");
        } else {
            assert!(
                lines.iter().all(|line| line.chars().count() <= 80),
                "{lines:#?}"
            );
        }
    }
    // A file is as wide as it likes.
    let words: Vec<&str> = words.split(' ').collect();
    let wide = run(records.path(), &words);
    assert!(text(&wide.stdout).lines().any(|line| line.len() > 80));
}

#[test]
fn text_fits_a_narrow_terminal() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    for (words, columns) in [
        ("probe --watch --count 1 --interval 0.05", 60),
        ("probe", 60),
        ("doctor", 70),
        (
            "cost 'conv2d f32 n32 c64 h56 w56 k64 r3 s3 stride1 pad1'",
            40,
        ),
    ] {
        let Some(shown) = on_terminal(records, columns, words) else {
            return;
        };
        for line in lines(&shown) {
            // Words are not broken, and a path may be longer than there is room.
            let fits = line.chars().count() <= columns;
            let longest = line.split_whitespace().map(str::len).max().unwrap_or(0);
            assert!(fits || longest > columns / 2, "{words}: {line}");
        }
    }
    // A file gets every column.
    let all = run(
        records,
        &["probe", "--watch", "--count", "1", "--interval", "0.05"],
    );
    assert!(text(&all.stdout).lines().all(|line| line.len() > 60));
}
