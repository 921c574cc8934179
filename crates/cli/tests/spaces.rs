//! `replay space`, run as users run it, on a small space made here.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

mod typed;

use std::io::Write;
use std::process::Output;

use serde_json::{Value, json};
use typed::text;

fn run(words: &[&str]) -> Output {
    let records = tempfile::tempdir().unwrap();
    typed::run(records.path(), &[&["replay", "space"], words].concat())
}

/// A bowl over two parameters, with a corner in which everything fails; `shift` is another device.
fn space(shift: f64) -> tempfile::NamedTempFile {
    let values: Vec<u32> = (0..12).map(|i| 1 << i).collect();
    let mut cache = serde_json::Map::new();
    for (i, x) in values.iter().enumerate() {
        for (j, y) in values.iter().enumerate() {
            let (a, b) = (i as f64 - 7.0 - shift, j as f64 - 4.0);
            let time = match i + j > 19 {
                true => json!("CompilationFailedConfig"),
                false => json!(1.0 + 0.1 * (a * a + b * b)),
            };
            let entry = json!({"time": time, "block_size_x": x, "tile_size_x": y});
            cache.insert(format!("{x},{y}"), entry);
        }
    }
    let document = json!({
        "device_name": format!("device {shift}"), "kernel_name": "bowl", "problem_size": "4096",
        "tune_params_keys": ["block_size_x", "tile_size_x"],
        "tune_params": {"block_size_x": values, "tile_size_x": values},
        "objective": "time", "cache": cache,
    });
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, "{document}").unwrap();
    file
}

#[test]
fn a_search_is_held_against_the_best_and_against_chance() {
    let (one, other) = (space(0.0), space(0.5));
    let path = one.path().to_str().unwrap();
    let usual = ["--budget", "10,30", "--repeats", "5", "--format", "json"];
    let ask = |more: &[&str]| {
        let output = run(&[&[path], &usual[..], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_str::<Value>(text(&output.stdout)).unwrap()
    };
    let cold = ask(&[]);
    assert_eq!(cold["schema"], "kernelwise.replay_space/1");
    let at =
        |figures: &Value, budget: &str, name: &str| figures["mean"][budget][name].as_f64().unwrap();
    for strategy in ["default", "genetic", "annealing"] {
        let figures = ask(&["--strategy", strategy]);
        assert_eq!(figures["strategy"], strategy);
        let found = at(&figures, "30", "fraction_of_optimum");
        assert!((0.5..=1.0).contains(&found), "{strategy}: {found}");
    }
    assert!(at(&cold, "30", "fraction_of_optimum") >= at(&cold, "30", "random_exact"));
    assert!(at(&cold, "30", "random_exact") > at(&cold, "10", "random_exact"));
    assert_eq!(cold["spaces"][0]["configurations"], 144);
    assert!(cold["cpu_us_per_eval"].as_f64().unwrap() > 0.0);
    let warm = ask(&["--warm", other.path().to_str().unwrap()]);
    assert_eq!(warm["spaces"][0]["warm"], 1);
    assert!(warm["first"].as_f64() > cold["first"].as_f64());
    let table = run(&[path, "--repeats", "2", "--budget", "10"]);
    assert!(text(&table.stdout).contains("mean of 2 searches"));
}

#[test]
fn what_cannot_be_replayed_says_why() {
    let file = space(0.0);
    let path = file.path().to_str().unwrap();
    let cases: [(&[&str], i32, &str); 4] = [
        (&["nowhere.json"], 4, "no such file"),
        (&[path, "--strategy", "genetik"], 2, "genetic"),
        (&[path, "--budget", "0"], 2, "above zero"),
        (&["Cargo.toml"], 1, "Cargo.toml"),
    ];
    for (words, code, said) in cases {
        let output = run(words);
        assert_eq!(output.status.code(), Some(code), "{words:?}");
        assert!(
            text(&output.stderr).contains(said),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn what_a_described_device_recommends_is_judged_without_a_search() {
    let (one, other) = (space(0.0), space(0.5));
    let named = |file: &tempfile::NamedTempFile, device: &str| {
        let text = std::fs::read_to_string(file.path()).unwrap();
        let mut document: Value = serde_json::from_str(&text).unwrap();
        document["device_name"] = device.into();
        std::fs::write(file.path(), document.to_string()).unwrap();
    };
    named(&one, "NVIDIA A100-PCIE-40GB");
    let described = |more: &[&str]| {
        let files = [one.path().to_str().unwrap(), other.path().to_str().unwrap()];
        run(&[&files[..], &["--strategy", "described"], more].concat())
    };
    let output = described(&["--format", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told: Value = serde_json::from_str(text(&output.stdout)).unwrap();
    assert_eq!(told["schema"], "kernelwise.replay_described/1");
    assert_eq!(told["judged"], 1, "the other device is not in the table");
    let first = &told["spaces"][0];
    assert_eq!(first["device"], "a100");
    assert_eq!(first["fraction_of_optimum"], told["fraction_of_optimum"]);
    for name in ["fraction_of_optimum", "median_fraction"] {
        assert!(
            (0.0..=1.0).contains(&first[name].as_f64().unwrap()),
            "{told}"
        );
    }
    assert!(
        told["spaces"][1]["why"]
            .as_str()
            .unwrap()
            .contains("unknown GPU"),
        "{told}"
    );
    // Records that do not name their device get one.
    named(&other, "");
    let output = described(&["--device", "rtx-3090"]);
    assert!(
        text(&output.stdout).contains("rtx-3090"),
        "{}",
        text(&output.stdout)
    );
    named(&one, "abacus");
    let output = described(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("--device names"),
        "{}",
        text(&output.stderr)
    );
    let path = one.path().to_str().unwrap();
    assert_eq!(run(&[path, "--device", "a100"]).status.code(), Some(2));
}

#[test]
fn a_file_that_was_cut_short_is_said_to_be() {
    let whole = space(0.0);
    let text_of = std::fs::read_to_string(whole.path()).unwrap();
    // `cache` comes first in the document, so that what follows is put before it.
    let (head, cache) = text_of.split_once("\"cache\":").unwrap();
    let (cache, rest) = cache.split_once("}},").unwrap();
    let rest = rest.trim_end_matches('}');
    let cut: String = cache.chars().take(cache.chars().count() * 3 / 4).collect();
    let file = format!("{head}{rest},\"cache\":{cut}");
    std::fs::write(whole.path(), file).unwrap();
    let path = whole.path().to_str().unwrap();
    let output = run(&[path, "--budget", "5", "--repeats", "1", "--format", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("was cut short"),
        "{}",
        text(&output.stderr)
    );
    let told: Value = serde_json::from_str(text(&output.stdout)).unwrap();
    assert_eq!(told["spaces"][0]["cut_short"], true);
}
