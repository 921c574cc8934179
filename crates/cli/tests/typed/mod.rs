//! The program, run as users run it: words in; text, exit code and records out.
#![allow(dead_code)] // Not every test needs all of it.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

mod outline;

#[allow(unused_imports)] // Nor all of these.
pub(crate) use outline::{Fields, Outline};

/// The program with these words and this place for records, in an environment that says nothing else.
pub(crate) fn kernelwise(records: &Path, words: &[&str]) -> Command {
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

/// Words as they are typed, what stands between apostrophes as one.
pub(crate) fn words(line: &str) -> Vec<&str> {
    let parts = line.split('\'').enumerate();
    let words = parts.flat_map(|(i, part)| match i % 2 {
        0 => part.split_whitespace().collect(),
        _ => vec![part],
    });
    words.collect()
}

pub(crate) fn run(records: &Path, words: &[&str]) -> Output {
    kernelwise(records, words).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// What it prints if all is well.
pub(crate) fn answer(records: &Path, words: &[&str]) -> String {
    let output = run(records, words);
    assert!(
        output.status.success(),
        "{words:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout).to_owned()
}

/// The same for programs.
pub(crate) fn json(records: &Path, words: &[&str]) -> Value {
    let answer = answer(records, &[words, &["--format", "json"]].concat());
    serde_json::from_str(&answer).unwrap()
}
