//! The contract map keeps its promises: every row is there, once, and names tests that exist.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Rust sources of each crate, joined, by the name the crate has in Rust.
fn sources() -> BTreeMap<String, String> {
    let crates = fs::read_dir(root().join("crates")).unwrap();
    let crates = crates.map(|entry| entry.unwrap().path());
    let named = crates.filter(|path| path.is_dir()).map(|path| {
        let folder = path.file_name().unwrap().to_str().unwrap();
        let name = match folder {
            "kernelwise" => folder.to_owned(),
            part => format!("kernelwise_{part}"),
        };
        (name, joined(path))
    });
    named.collect()
}

fn joined(folder: PathBuf) -> String {
    let mut folders = vec![folder];
    let mut text = String::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text += &fs::read_to_string(path).unwrap();
            }
        }
    }
    text
}

/// Whether a month stands somewhere in the text, such as `2026-11`.
fn has_month(text: &str) -> bool {
    text.as_bytes().windows(7).any(|part| {
        let (year, month) = (&part[..4], &part[5..]);
        year.starts_with(b"20")
            && part[4] == b'-'
            && [year, month].concat().iter().all(u8::is_ascii_digit)
    })
}

/// Whether a function of this name stands under `#[test]`, with at most other attributes between.
fn is_a_test(sources: &str, name: &str) -> bool {
    sources
        .match_indices(&format!("fn {name}("))
        .any(|(position, _)| {
            let before = sources[..position].trim_end();
            let mut attributes = before
                .lines()
                .rev()
                .take_while(|line| line.trim().starts_with("#["));
            attributes.any(|line| line.trim() == "#[test]")
        })
}

/// Row id to its five cells.
fn rows(map: &str) -> BTreeMap<String, Vec<String>> {
    let mut rows = BTreeMap::new();
    for line in map.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<String> = line
            .trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect();
        if cells[0] != "row" {
            assert_eq!(cells.len(), 5, "a row has five cells: {line}");
            let twice = rows.insert(cells[0].clone(), cells);
            assert!(twice.is_none(), "a row stands twice: {line}");
        }
    }
    rows
}

#[test]
fn every_row_of_the_contract_is_mapped() {
    let map = fs::read_to_string(root().join("docs/contract.md")).unwrap();
    let ids = fs::read_to_string(root().join("docs/contract-ids.txt")).unwrap();
    let wanted: BTreeSet<&str> = ids.lines().collect();
    assert_eq!(wanted.len(), 148, "the list of ids is complete");
    let rows = rows(&map);
    let mapped: BTreeSet<&str> = rows.keys().map(String::as_str).collect();
    let missing: Vec<_> = wanted.difference(&mapped).collect();
    assert!(
        missing.is_empty(),
        "rows missing from docs/contract.md: {missing:?}"
    );
    let unknown: Vec<_> = mapped.difference(&wanted).collect();
    assert!(
        unknown.is_empty(),
        "rows that are not in the contract: {unknown:?}"
    );
}

#[test]
fn rows_that_work_name_tests_that_exist() {
    let map = fs::read_to_string(root().join("docs/contract.md")).unwrap();
    let sources = sources();
    for (id, cells) in rows(&map) {
        let [_, need, state, item, evidence] = cells.as_slice() else {
            unreachable!()
        };
        assert!(
            !need.is_empty() && !evidence.is_empty(),
            "{id} has empty cells"
        );
        match state.as_str() {
            "works" | "redesigned" => {
                assert!(!item.is_empty(), "{id} works but names no item");
                for test in evidence.split(", ").map(|test| test.trim_matches('`')) {
                    let (crate_name, name) = (test.split("::").next(), test.rsplit("::").next());
                    let source = sources.get(crate_name.unwrap());
                    let source = source.unwrap_or_else(|| panic!("{id}: {test} is of no crate"));
                    assert!(
                        is_a_test(source, name.unwrap()),
                        "{id} names the test {test}, which does not exist in that crate"
                    );
                }
            }
            "dropped" | "open" => assert!(
                has_month(evidence),
                "{id} is {state}, and does not say as of which month: {evidence}"
            ),
            other => panic!("{id} has the state `{other}`"),
        }
    }
}

#[test]
fn months_are_told_from_other_numbers() {
    for text in ["2026-11: why", "since 2026-11"] {
        assert!(has_month(text), "{text}");
    }
    for text in ["", "why", "2026", "2026-1x", "1926-11", "2026/11", "0.20"] {
        assert!(!has_month(text), "{text}");
    }
}
