//! `tune`, `recommend`, `run`, `compare`, `demo load` and `report`, run as users run them.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

mod typed;

use std::path::Path;

use serde_json::Value;
use typed::{Fields, Outline, answer, json, kernelwise, run, text};

const TUNE: [&str; 8] = [
    "tune",
    "matmul",
    "--shape",
    "96x96x96",
    "--budget",
    "12",
    "--time-budget",
    "4",
];

#[test]
fn what_is_tuned_is_kept_gone_on_with_and_used() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let asked = [&TUNE[..], &["--kernel", "cpu-matmul-f32-packed-portable"]].concat();
    let first = json(records, &asked);
    assert_eq!(first["schema"], "kernelwise.tune/1");
    let kernel = &first["kernels"][0];
    assert_eq!(kernel["kernel"], "cpu-matmul-f32-packed-portable");
    assert!(kernel["settings"].as_u64().unwrap() > 12);
    let evaluated = kernel["evaluated"].as_u64().unwrap();
    assert!((1..=12).contains(&evaluated), "{first}");
    assert_eq!(kernel["failed"], 0);
    assert!(first["best"]["time_ns"].as_f64().unwrap() > 0.0);
    // A second search goes on from there.
    let second = json(records, &asked);
    let again = second["kernels"][0]["from_before"].as_u64().unwrap();
    assert!(again >= evaluated, "{second}");
    // The finalists are on record with their parameters.
    let listed = json(records, &["cache", "list", "--op", "matmul"]);
    let series = listed["series"].as_array().unwrap();
    let tuned = |one: &&Value| one["parameters"].as_str().unwrap().contains("kc=");
    assert!(series.iter().filter(tuned).count() >= 2, "{listed}");
    let explained = answer(
        records,
        &[
            "explain",
            "matmul",
            "--shape",
            "96x96x96",
            "--time-budget",
            "0",
            "--calibration-budget",
            "0.3",
        ],
    );
    assert!(
        explained.contains("cpu-matmul-f32-packed-portable"),
        "{explained}"
    );
}

#[test]
fn mistakes_in_tuning_are_told() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let code = |words: &[&str]| run(records, words).status.code();
    assert_eq!(code(&["tune"]), Some(2));
    assert_eq!(code(&["tune", "matmul"]), Some(2));
    let unknown = [&TUNE[..], &["--kernel", "cpu-matmul-f32-nobody"]].concat();
    assert_eq!(code(&unknown), Some(4));
    let strange = [&TUNE[..], &["--strategy", "gentic"]].concat();
    let output = run(records, &strange);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("genetic"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(code(&["tune", "--spec", "nowhere.toml"]), Some(4));
    assert_eq!(code(&["worker"]), Some(2));
    assert_eq!(code(&[&TUNE[..], &["--queue"]].concat()), Some(2));
}

/// A program of one parameter; three is best.
fn specification(dir: &Path) -> String {
    let program = "#!/bin/sh\nx=$1\nt=$(( (x - 3) * (x - 3) + 1 ))\necho time $t ms\n";
    std::fs::write(dir.join("program.sh"), program).unwrap();
    let spec = "name = \"parabola\"\nfiles = [\"program.sh\"]\n\n[parameters]\nx = [1, 2, 3, 4, 5, 6]\n\n\
        [run]\ncommand = [\"sh\", \"{spec_dir}/program.sh\", \"{x}\"]\n\n[repeat]\nwarm_up = 0\nruns = 2\n\n\
        [time]\nfrom = \"output\"\npattern = 'time ([0-9.]+) ms'\nunit = \"ms\"\n\n[budget]\nevaluations = 6\n";
    let path = dir.join("spec.toml");
    std::fs::write(&path, spec).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn any_program_can_be_tuned() {
    let dir = tempfile::tempdir().unwrap();
    let spec = specification(dir.path());
    let first = json(dir.path(), &["tune", "--spec", &spec]);
    assert_eq!(first["schema"], "kernelwise.tune_external/1");
    assert_eq!(first["evaluations"], 6);
    assert_eq!(first["best"]["values"]["x"], 3, "{first}");
    let again = answer(dir.path(), &["tune", "--spec", &spec]);
    assert!(again.contains("6 of them from before"), "{again}");
    std::fs::write(&spec, "name = \"x\"\n[parameters]\n").unwrap();
    let output = run(dir.path(), &["tune", "--spec", &spec]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("spec.toml"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn devices_get_parameters_that_fit_them() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let asked = [
        "recommend",
        "matmul",
        "--shape",
        "4096x4096x4096",
        "--device",
    ];
    let on = |device: &str| json(records, &[&asked[..], &[device]].concat());
    let a100 = on("a100");
    assert_eq!(a100["schema"], "kernelwise.recommend/1");
    assert_eq!(a100["backend"], "cuda");
    assert!(a100["launch"]["occupancy"].is_object(), "{a100}");
    // Two operations for each of 4096^3, at 19.5 TFLOP/s at the best.
    let warm_ns = a100["prediction"]["warm_ns"].as_f64().unwrap();
    assert!(warm_ns > 2.0 * 4096f64.powi(3) / 19.5e3, "{warm_ns}");
    assert!(!a100["reasoning"].as_array().unwrap().is_empty());
    assert!(!a100["alternatives"].as_array().unwrap().is_empty());
    assert_eq!(on("apple-m2")["backend"], "metal");
    let webgpu = on("webgpu-default");
    assert_eq!(
        webgpu["prediction"],
        Value::Null,
        "nobody knows how fast it is"
    );
    assert!(webgpu["params"].is_string());
    let host = on("host");
    assert_eq!(host["backend"], "cpu");
    assert!(
        host["choice"]["kernel"]
            .as_str()
            .unwrap()
            .starts_with("cpu-matmul-f32-")
    );
    assert!(host["expected"]["time_ns"].as_f64().unwrap() > 0.0);
    let unknown = run(records, &[&asked[..], &["a10O"]].concat());
    assert_eq!(unknown.status.code(), Some(4));
    assert!(
        text(&unknown.stderr).contains("a100"),
        "{}",
        text(&unknown.stderr)
    );
    let table = answer(records, &[&asked[..], &["rtx-4090"]].concat());
    assert!(table.contains("when warm"), "{table}");
}

const QUICK: [&str; 4] = ["--time-budget", "0.3", "--calibration-budget", "0.3"];

#[test]
fn prediction_meets_reality() {
    let records = tempfile::tempdir().unwrap();
    let asked = ["run", "softmax", "--shape", "64x200", "--calls", "5"];
    let reality = json(records.path(), &[&asked[..], &QUICK].concat());
    assert_eq!(reality["schema"], "kernelwise.run/1");
    assert_eq!(reality["is_right"], true);
    assert!(reality["median_ns"].as_f64().unwrap() > 0.0);
    assert_eq!(reality["predicted"]["known_by"], "measured");
    let table = answer(records.path(), &[&asked[..], &QUICK].concat());
    assert!(
        table.contains("the result is that of the reference"),
        "{table}"
    );
}

#[test]
fn a_choice_is_held_against_a_baseline() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let asked = [
        "compare",
        "matmul",
        "--shape",
        "160x160x160",
        "--seconds",
        "1",
    ];
    fn with<'a>(asked: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
        [asked, &QUICK, more].concat()
    }
    let baseline = ["--baseline", "cpu-matmul-f32-gemm", "--fail-above", "5%"];
    let compared = json(
        records,
        &with(&asked, &["--baseline", "cpu-matmul-f32-reference"]),
    );
    assert_eq!(compared["comparison"]["verdict"], "faster", "{compared}");
    assert!(
        compared["verdict"]
            .as_str()
            .unwrap()
            .contains("the choice is faster")
    );
    // Whoever is forced to be slow exceeds any threshold.
    let slow = kernelwise(records, &with(&asked, &baseline))
        .env("KERNELWISE_FORCE", "matmul=cpu-matmul-f32-reference")
        .output()
        .unwrap();
    assert_eq!(slow.status.code(), Some(3), "{}", text(&slow.stderr));
    assert!(text(&slow.stdout).contains("the choice is slower"));
    let unknown = run(records, &with(&asked, &["--baseline", "gemm"]));
    assert_eq!(unknown.status.code(), Some(4));
    assert!(text(&unknown.stderr).contains("cpu-matmul-f32-gemm"));
    let nonsense = run(
        records,
        &with(&asked, &["--baseline", "x", "--fail-above", "much"]),
    );
    assert_eq!(nonsense.status.code(), Some(2));
}

#[test]
fn load_comes_and_goes() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let asked = ["demo", "load", "--seconds", "0.3", "--others", "1"];
    let told = json(records, &asked);
    let phases = told["phases"].as_array().unwrap();
    let others: Vec<u64> = phases
        .iter()
        .map(|one| one["others"].as_u64().unwrap())
        .collect();
    assert_eq!(others, [0, 1, 0]);
    for name in [
        "kernelwise_over_best_fixed",
        "kernelwise_over_library_default",
        "kernelwise_over_best_idle",
    ] {
        assert!(told[name].as_f64().unwrap() > 0.0, "{told}");
    }
    // As many columns as there are numbers of threads.
    let table = Outline::of(&answer(records, &asked)).first_row("# thread", 1);
    let table = table.cut(&["# processor", "# thread", "beside others,", "alone,"]);
    insta::assert_snapshot!(
        "demo_load",
        format!(
            "{table}\n--format json\n{}",
            Fields::of(&told).varies(&["phases[].load_seen"])
        )
    );
}

#[test]
fn a_program_that_learns_can_be_watched() {
    let records = tempfile::tempdir().unwrap();
    let asked = [
        "watch",
        "--shape",
        "copy f32 1000",
        "--interval",
        "0.2",
        "--count",
        "2",
    ];
    let lines = answer(
        records.path(),
        &[&asked[..], &["--format", "json"]].concat(),
    );
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[1]["calls"].as_u64() > lines[0]["calls"].as_u64());
    assert!(lines[1]["excess_ns"].as_f64() <= lines[1]["budget_ns"].as_f64());
    assert!(answer(records.path(), &asked).contains("served by"));
    let wrong = ["watch", "--shape", "matmull f32 4"];
    assert_eq!(run(records.path(), &wrong).status.code(), Some(2));
}

#[test]
fn a_report_is_made_of_what_was_learned() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    assert_eq!(
        run(records, &["report"]).status.code(),
        Some(4),
        "nothing is known yet"
    );
    let learn = [
        "learn",
        "--op",
        "copy",
        "--effort",
        "minimal",
        "--time-budget",
        "30",
    ];
    let learned = run(records, &learn);
    assert!(learned.status.success(), "{}", text(&learned.stderr));
    assert!(text(&learned.stderr).contains("report.html"));
    let beside = std::fs::read_to_string(records.join("report.html")).unwrap();
    assert!(beside.starts_with("<!DOCTYPE html>") && beside.contains("cpu-copy-f32-"));
    let page = records.join("mine.html");
    answer(records, &["report", "-o", page.to_str().unwrap()]);
    assert!(std::fs::read_to_string(&page).unwrap().contains("</html>"));
    let report: Value =
        serde_json::from_str(&answer(records, &["report", "--format", "json"])).unwrap();
    assert_eq!(report["schema"], "kernelwise.report/1");
    let markdown = answer(records, &["report", "--format", "markdown"]);
    assert!(markdown.starts_with("# "), "{markdown}");
    assert!(answer(records, &["report", "--format", "csv"]).contains("copy f32"));
    let nowhere = run(records, &["report", "-o", "/proc/kernelwise/report.html"]);
    assert_eq!(nowhere.status.code(), Some(1));
}
