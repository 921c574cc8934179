//! `learn`, and what later runs make of it: words in, text, exit code and records out.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

mod typed;

use std::path::Path;
use std::process::{Command, Stdio};

use typed::{json, kernelwise, run, text};

const LEARN: [&str; 7] = [
    "learn",
    "--op",
    "transpose",
    "--effort",
    "minimal",
    "--time-budget",
    "30",
];

#[test]
fn what_was_learned_is_used_by_later_runs() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let first = json(records, &LEARN);
    assert_eq!(first["schema"], "kernelwise.learn/1");
    assert_eq!(first["known_before"], 0);
    let measured = first["measured"].as_u64().unwrap();
    assert!(measured >= 12, "{first}");
    assert!(!first["winners"].as_array().unwrap().is_empty());
    let gain = &first["gains"]["transpose"]["static_rule_over_choice"];
    assert!(gain["low"].as_f64().unwrap() <= gain["geometric"].as_f64().unwrap());

    // A second run goes on from there, with other shapes.
    let output = run(records, &LEARN);
    assert!(text(&output.stderr).contains("are known from before"));
    assert!(text(&output.stdout).contains(&format!("{measured} known before")));
    // Some of the known ones are raced again, and what changed since is told beside what the first run found.
    let said = text(&output.stdout);
    let again = said.lines().find(|line| line.contains("were raced again"));
    let again: Vec<&str> = again
        .unwrap_or_else(|| panic!("{said}"))
        .split(' ')
        .collect();
    assert_ne!(again[5], "0", "{again:?}");
    let since = said
        .lines()
        .find(|line| line.starts_with("since the run of "));
    let since = since.unwrap_or_else(|| panic!("{said}"));
    for part in [
        "rule written by hand ÷ learned ",
        "half of the foretold times within x",
        " -> ",
    ] {
        assert!(since.contains(part), "{part} in {since}");
    }
    // The size of calls is what winners are told by, and all operations together come last.
    assert!(said.contains("size from"), "{said}");
    let gains: Vec<&str> = said
        .lines()
        .skip_while(|line| !line.contains("÷ time of"))
        .collect();
    let place = |name: &str| {
        gains
            .iter()
            .position(|line| line.trim_start().starts_with(name))
    };
    assert!(place("all ") > place("transpose "), "{said}");

    // Models are judged on what they have not seen, and shown.
    let judged = json(records, &["model", "evaluate"]);
    assert_eq!(judged["schema"], "kernelwise.model_evaluate_own/1");
    let all = &judged["all"];
    assert!(all["median_error_factor"].as_f64().unwrap() >= 1.0);
    assert!(all["p90_error_factor"].as_f64() >= all["median_error_factor"].as_f64());
    assert!(judged["workloads"].as_u64().unwrap() > measured);
    assert_eq!(judged["models"].as_array().unwrap().len(), 0);
    assert!(!judged["sizes"].as_object().unwrap().is_empty());
    // Other types of models, on the same times.
    let words = ["model", "evaluate", "--models", "ridge,decision-tree"];
    let compared = json(records, &words);
    let types = compared["models"].as_array().unwrap();
    assert_eq!(types.len(), 2);
    for (one, name) in types.iter().zip(["ridge", "decision-tree"]) {
        assert_eq!(one["name"], name);
        assert_eq!(one["all"]["times"], all["times"]);
        assert!(one["all"]["p90_error_factor"].as_f64().unwrap() >= 1.0);
        assert!(one["choices"]["geo_slowdown"].as_f64().unwrap() >= 1.0);
        assert!(one["train_s"].as_f64().unwrap() > 0.0);
    }
    let table = run(records, &words);
    for word in ["in use: curves and trees", "ridge", "from 1e", "bytes"] {
        assert!(text(&table.stdout).contains(word), "{word}");
    }
    let shown = json(records, &["model", "show"]);
    let never: Vec<&str> = shown["never_seen"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one.as_str())
        .collect();
    assert!(
        never.contains(&"matmul f32") && never.contains(&"transpose f64"),
        "{never:?}"
    );
    assert!(!never.contains(&"transpose f32"), "{never:?}");
    let models = shown["models"].as_array().unwrap();
    assert!(
        models
            .iter()
            .any(|model| model["kind"] == "transpose f32 #x# perm#,#")
    );

    // A shape that nobody measured is foretold, and says from what; no time is spent on it.
    let asked = ["explain", "transpose", "--shape", "321x123 perm1,0"];
    let explained = json(records, &asked);
    let chosen = &explained["decision"]["chosen"]["estimate"];
    assert_eq!(chosen["known_by"], "modelled");
    assert!(
        chosen["model"]
            .as_str()
            .unwrap()
            .contains("n = 0; nearest of")
    );
    assert_eq!(chosen["interval_ns"].as_array().unwrap().len(), 2);
    assert_eq!(explained["statistics"]["calls"], 0);
    // Frozen, the same question has the same answer; otherwise what is known fades from second to second.
    let frozen = || {
        let words = [&asked[..], &["--format", "json"]].concat();
        let mut command = kernelwise(records, &words);
        let output = command.env("KERNELWISE_MODE", "frozen").output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        output.stdout
    };
    assert_eq!(frozen(), frozen());
}

#[test]
fn without_a_place_for_records_it_works_all_the_same() {
    let nowhere = Path::new("/proc/kernelwise");
    let words = [
        "select",
        "copy",
        "--shape",
        "64",
        "--calibration-budget",
        "0.5",
        "--time-budget",
        "0.1",
    ];
    let output = run(nowhere, &words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("nothing is remembered"));
    assert!(text(&output.stdout).starts_with("cpu-copy-f32"));
}

#[cfg(unix)]
#[test]
fn interrupted_it_keeps_what_it_learned() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let words = [
        "learn",
        "--op",
        "copy",
        "--effort",
        "extensive",
        "--time-budget",
        "300",
    ];
    let learning = kernelwise(records, &words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Until something is on record.
    let has_some = || {
        let shown = run(records, &["model", "show"]);
        shown.status.success()
    };
    let some = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        has_some()
    });
    let id = learning.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(sent.success());
    let output = learning.wait_with_output().unwrap();
    assert!(some, "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("workloads measured"));
    let again = run(
        records,
        &LEARN.map(|word| if word == "transpose" { "copy" } else { word }),
    );
    assert!(text(&again.stderr).contains("are known from before"));
}
