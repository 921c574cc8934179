//! The built program, run as users run it: words in, text and exit code out.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

mod typed;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use typed::text;

/// What this process learns is no business of the user's, nor of other tests'.
fn kernelwise(words: &[&str]) -> Command {
    typed::kernelwise(&records(), words)
}

/// A folder of this process for records.
fn records() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("records-{}", std::process::id()))
}

fn run(words: &[&str]) -> Output {
    kernelwise(words).output().unwrap()
}

/// Runs, expects success with nothing on standard error, returns standard output.
fn answer(words: &[&str]) -> String {
    let output = run(words);
    assert!(
        output.status.success(),
        "{words:?}: {}",
        text(&output.stderr)
    );
    assert_eq!(text(&output.stderr), "", "{words:?}");
    text(&output.stdout).to_owned()
}

fn json(words: &[&str]) -> Value {
    serde_json::from_str(&answer(&[words, &["--format", "json"]].concat())).unwrap()
}

/// Nothing is null but a `value` with a reason beside it.
fn assert_nulls_have_reasons(value: &Value, path: &str) {
    match value {
        Value::Null => {
            assert!(path.ends_with(".value"), "{path} is null");
        }
        Value::Object(fields) => {
            let unknown = fields.get("value") == Some(&Value::Null);
            let reason = fields.get("reason").and_then(Value::as_str);
            assert_eq!(
                unknown,
                reason.is_some_and(|reason| !reason.is_empty()),
                "{path}: a null has a reason, and only a null"
            );
            for (name, inner) in fields {
                assert_nulls_have_reasons(inner, &format!("{path}.{name}"));
            }
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| assert_nulls_have_reasons(item, path)),
        _ => {}
    }
}

#[test]
fn help_lists_the_verbs() {
    insta::assert_snapshot!(answer(&["--help"]));
}

#[test]
fn probe_describes_the_machine_and_explains_its_gaps() {
    let probe = json(&["probe"]);
    assert_eq!(probe["schema"], "kernelwise.probe/1");
    assert!(probe["cpu"]["logical"].as_u64().unwrap() >= 1);
    assert_eq!(probe["cpu"]["arch"], std::env::consts::ARCH);
    for part in [
        "caches",
        "memory",
        "numa",
        "limits",
        "hypervisor",
        "state",
        "devices",
    ] {
        assert!(!probe[part].is_null(), "{part} is missing");
    }
    assert_eq!(probe["devices"][0]["backend"], "cpu");
    assert_eq!(
        probe["calibration"]["reason"],
        "not measured: ask with --calibrate"
    );
    assert_nulls_have_reasons(&probe, "probe");
    assert_eq!(
        probe["fingerprint"],
        json(&["probe"])["fingerprint"],
        "the fingerprint is stable"
    );

    let table = answer(&["probe"]);
    for heading in ["machine ", "devices\n", "state\n"] {
        assert!(table.contains(heading), "{table}");
    }
}

#[test]
fn calibration_gives_every_figure_with_its_spread() {
    let probe = json(&["probe", "--calibrate", "--budget", "1"]);
    let figures = &probe["calibration"];
    for name in [
        "peak_gflops_f32_1t",
        "peak_gflops_f64_1t",
        "forkjoin_us",
        "timer_ns",
        "l1_read_gbps",
    ] {
        let figure = &figures[name];
        let number = |field: &str| {
            figure[field]
                .as_f64()
                .unwrap_or_else(|| panic!("{name}.{field}"))
        };
        assert!(number("value") > 0.0, "{name}");
        assert!(number("low") <= number("high"), "{name}");
        assert!(
            number("spread") >= 0.0 && number("samples") >= 1.0,
            "{name}"
        );
    }
    // Main memory is measured, or it is said why not.
    let skipped = figures["skipped"].as_array().unwrap();
    let says_why = skipped
        .iter()
        .any(|reason| reason.as_str().unwrap().contains("dram"));
    assert!(
        figures["dram_read_gbps"]["value"].is_f64() || says_why,
        "{skipped:?}"
    );
}

#[test]
fn a_busy_thread_shows_in_the_watch() {
    let stop = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let output = run(&[
            "probe",
            "--watch",
            "--count",
            "3",
            "--interval",
            "0.3",
            "--format",
            "json",
        ]);
        stop.store(true, Ordering::Relaxed);
        output
    });
    assert!(output.status.success());
    let looks: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(looks.len(), 3);
    for look in &looks {
        assert_eq!(look["schema"], "kernelwise.state/1");
        let utilisation = &look["state"]["cpu_utilisation_share"];
        let each = &look["state"]["per_cpu_utilisation_share"]["value"];
        let processors = each.as_array().map_or(1, Vec::len) as f64;
        match utilisation["value"].as_f64() {
            Some(share) => assert!(share >= 0.5 / processors, "one busy thread, yet {share}"),
            None => kernelwise_testing::skip("proc", &utilisation["reason"].to_string()),
        }
    }
    let table = answer(&["probe", "--watch", "--count", "1", "--interval", "0.1"]);
    assert_eq!(table.lines().count(), 2, "{table}");
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let mut watch = kernelwise(&[
        "probe",
        "--watch",
        "--interval",
        "0.05",
        "--count",
        "200",
        "--format",
        "json",
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    drop(watch.stdout.take());
    let output = watch.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn doctor_says_what_to_do_about_each_finding() {
    let doctor = json(&["doctor", "--seed", "7"]);
    assert_eq!(doctor["schema"], "kernelwise.doctor/1");
    assert_eq!(doctor["seed"], 7);
    let checks = doctor["checks"].as_array().unwrap();
    let names: Vec<&str> = checks
        .iter()
        .map(|check| check["name"].as_str().unwrap())
        .collect();
    for name in [
        "build",
        "clock",
        "instrument",
        "pinning",
        "load",
        "hypervisor",
        "processor quota",
        "environment",
    ] {
        assert!(names.contains(&name), "{name} was not checked: {names:?}");
    }
    for check in checks {
        assert_eq!(
            check["status"] != "ok",
            check["advice"].is_string(),
            "{check}"
        );
    }
}

#[test]
fn colour_is_for_those_who_want_it() {
    let forced = |variable: &str| {
        kernelwise(&["doctor"])
            .env("CLICOLOR_FORCE", "1")
            .env(variable, "1")
            .output()
    };
    assert!(text(&forced("UNRELATED").unwrap().stdout).contains("\u{1b}["));
    assert!(!answer(&["doctor"]).contains("\u{1b}["), "not a terminal");
    let refused = forced("NO_COLOR").unwrap();
    assert!(
        !text(&refused.stdout).contains("\u{1b}["),
        "NO_COLOR is the last word"
    );
}

#[test]
fn cost_counts_from_shapes() {
    let cost = json(&["cost", "matmul", "f32", "512x512x512"]);
    assert_eq!(cost["schema"], "kernelwise.cost/1");
    assert_eq!(cost["workload"], "matmul f32 512x512x512");
    assert_eq!(cost["cost"]["flops"], 268_435_456);
    assert_eq!(cost["cost"]["read_bytes"], 2_097_152);
    assert_eq!(cost["outputs"][0]["shape"], serde_json::json!([512, 512]));
    assert_eq!(json(&["cost", "custom.mine f64 100"])["cost"], Value::Null);
}

#[test]
fn wrong_words_are_exit_code_2_and_named() {
    for (words, expected) in [
        (
            &["cost", "matmull f32 2x2x2"][..],
            "unknown operation `matmull`; did you mean `matmul`?",
        ),
        (
            &["cost", "matmul f32 0x2x2"],
            "is empty: there is nothing to compute",
        ),
        (
            &["cost", "matmul f32 99999999999x99999999999x9"],
            "make a dimension smaller",
        ),
        (&["cost"], "WORKLOAD"),
        (&["proeb"], "probe"),
        (&["probe", "--interval", "5"], "--watch"),
        (
            &["probe", "--watch", "--interval", "-1"],
            "expected seconds",
        ),
        (
            &["probe", "--watch", "--interval", "nan"],
            "expected seconds",
        ),
        (&["probe", "--watch", "--calibrate"], "cannot be used with"),
        (
            &["probe", "--format", "xml"],
            "possible values: table, json",
        ),
        (&["completions", "tcsh"], "possible values"),
        (&["probe", "--watch", "--count", "0"], "0 is not in 1.."),
        (
            &["man", "--format", "json"],
            "unexpected argument '--format'",
        ),
    ] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(
            text(&output.stderr).contains(expected),
            "{words:?}: {}",
            text(&output.stderr)
        );
        assert_eq!(text(&output.stdout), "", "{words:?}");
    }
}

#[test]
fn a_bad_log_filter_is_a_warning_not_an_end() {
    let output = kernelwise(&["cost", "matmul", "f32", "8x8x8"])
        .env("KERNELWISE_LOG", "=,=")
        .output()
        .unwrap();
    assert!(output.status.success());
    assert!(
        text(&output.stderr).contains("is not a log filter"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn completions_and_manual_cover_the_verbs() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            answer(&["completions", shell]).contains("doctor"),
            "{shell}"
        );
    }
    let manual = answer(&["man"]);
    for word in [".TH kernelwise", "calibrate", "Exit codes"] {
        assert!(manual.contains(word), "{word}");
    }
}

#[test]
fn a_slow_kernel_is_told_from_a_slow_machine() {
    let told = json(&["demo", "drift", "--seed", "3"]);
    assert_eq!(told["schema"], "kernelwise.demo_drift/1");
    assert!(told["scenes"][0]["left_after_calls"].as_u64().unwrap() <= 20);
    assert!(told["scenes"][1]["left_after_calls"].is_null());
}

const QUICK: [&str; 4] = ["--time-budget", "0.1", "--calibration-budget", "0.5"];

#[test]
fn a_choice_is_explained_with_what_it_was_made_from() {
    let asked = ["explain", "matmul", "--shape", "16x16x16"];
    let explained = json(&[&asked[..], &QUICK].concat());
    assert_eq!(explained["schema"], "kernelwise.explain/1");
    let decision = &explained["decision"];
    assert_eq!(decision["workload"], "matmul f32 16x16x16");
    assert_eq!(decision["chosen"]["estimate"]["known_by"], "measured");
    let kernel = decision["chosen"]["candidate"]["kernel"].as_str().unwrap();
    assert!(kernel.starts_with("cpu-matmul-f32-"), "{kernel}");
    assert!(decision["alternatives"].as_array().unwrap().len() > 5);
    assert!(explained["statistics"]["calls"].as_u64().unwrap() > 10);
    assert_eq!(explained["quarantined"], serde_json::json!([]));
    let text = answer(&[&asked[..], &QUICK].concat());
    for words in [
        "runs cpu-matmul",
        "confidence",
        "  over ",
        "changes if",
        "policy bandit",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn a_kernel_can_be_forced_and_must_exist() {
    let asked = ["select", "copy", "--shape", "1000"];
    let words = [&asked[..], &QUICK].concat();
    let forced = |kernel: &str| {
        let mut command = kernelwise(&words);
        command.env("KERNELWISE_FORCE", format!("copy={kernel}"));
        command.output().unwrap()
    };
    let output = forced("cpu-copy-f32-strided");
    assert!(text(&output.stdout).starts_with("cpu-copy-f32-strided"));
    // There is such a kernel, for other inputs.
    let output = forced("cpu-copy-f64-strided");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cpu-copy-f64-strided was forced"));
    let mut command = kernelwise(&words);
    command.env("KERNELWISE_FORCE", "copy");
    assert_eq!(command.output().unwrap().status.code(), Some(2));
    let chosen = json(&words);
    assert_eq!(chosen["schema"], "kernelwise.select/1");
    assert!(
        chosen["kernel"]
            .as_str()
            .unwrap()
            .starts_with("cpu-copy-f32-")
    );
    let wrong = run(&["select", "copi", "--shape", "1000"]);
    assert_eq!(wrong.status.code(), Some(4));
}

#[test]
fn watching_begins_with_what_is_on_record() {
    // As users have it: no directory is named, and the data home of the user is where records are.
    let home = tempfile::tempdir().unwrap();
    let watch = |mode: &str| {
        let words = [
            "watch",
            "--shape",
            "copy f32 1000",
            "--interval",
            "0.2",
            "--count",
            "1",
            "--format",
            "json",
        ];
        let output = kernelwise(&words)
            .env_remove("KERNELWISE_DIR")
            .env("XDG_DATA_HOME", home.path())
            .env("KERNELWISE_MODE", mode)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let view: Value = serde_json::from_slice(&output.stdout).unwrap();
        view["choices"][0].clone()
    };
    assert_eq!(watch("learn")["known_by"], "measured");
    // Who learns nothing knows what it remembers.
    let recalled = watch("frozen");
    assert_eq!(recalled["known_by"], "measured", "{recalled}");
    assert!(recalled["samples"].as_u64().unwrap() > 0, "{recalled}");
}
