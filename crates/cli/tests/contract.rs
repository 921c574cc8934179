//! The contract map keeps its promises: every row is there, once, and names tests that exist.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All Rust sources of the workspace, joined.
fn sources() -> String {
    let mut folders = vec![root().join("crates")];
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
                    let name = test.rsplit("::").next().unwrap();
                    assert!(
                        is_a_test(&sources, name),
                        "{id} names the test {test}, which does not exist"
                    );
                }
            }
            "dropped" | "open" => {}
            other => panic!("{id} has the state `{other}`"),
        }
    }
}
