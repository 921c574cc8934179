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

/// What was fastest on record races what is found, so that both are judged at one time.
#[test]
fn settings_on_record_are_in_the_last_race() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let explain = [
        "explain",
        "matmul",
        "--shape",
        "96x96x96",
        "--time-budget",
        "1",
    ];
    answer(records, &explain);
    let listed = json(records, &["cache", "list", "--op", "matmul"]);
    let series = listed["series"].as_array().unwrap();
    let of_kernel = |id: &Value| -> Vec<&Value> {
        let of_it = series.iter().filter(|one| one["kernel"] == *id);
        of_it.collect()
    };
    // One with many settings, of which two are on record: the usual one, and one that a single evaluation hardly meets.
    let is_it = |one: &&Value| {
        let parameters = one["parameters"].as_str().unwrap();
        parameters.contains("kc=") && of_kernel(&one["kernel"]).len() == 2
    };
    let Some(one) = series.iter().find(is_it) else {
        let why = "explaining timed no kernel on two numbers of threads";
        kernelwise_testing::skip("processors", why);
        return;
    };
    let id = one["kernel"].as_str().unwrap();
    let asked = [
        "tune",
        "matmul",
        "--shape",
        "96x96x96",
        "--budget",
        "1",
        "--time-budget",
        "2",
        "--kernel",
        id,
    ];
    let tuned = json(records, &asked);
    let finalists = tuned["finalists"].as_array().unwrap();
    for known in of_kernel(&one["kernel"]) {
        let raced = |one: &Value| one["parameters"] == known["parameters"];
        assert!(finalists.iter().any(raced), "{known}: {tuned}");
    }
    assert_eq!(finalists[0], tuned["best"]);
}

#[test]
fn a_search_goes_on_in_a_second_run_and_begins_from_other_sizes() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let tune = |size: &str| {
        let asked = [
            "tune",
            "matmul",
            "--shape",
            size,
            "--budget",
            "100000",
            "--time-budget",
            "1",
            "--kernel",
            "cpu-matmul-f32-packed-portable",
        ];
        json(records, &asked)["kernels"][0].clone()
    };
    let first = tune("96x96x96");
    assert_eq!(first["stopped"], "seconds", "{first}");
    assert_eq!(first["warm_records"], 0);
    // What the first run spent is not spent again: the second has seconds of its own.
    let second = tune("96x96x96");
    let evaluated = |one: &Value| one["evaluated"].as_u64().unwrap();
    assert!(evaluated(&second) > evaluated(&first), "{first} {second}");
    assert_eq!(second["warm_records"], 0, "nobody begins from his own size");
    let other = tune("112x96x80");
    assert_eq!(other["from_before"], 0);
    assert_eq!(
        other["warm_from"],
        serde_json::json!(["matmul f32 96x96x96"])
    );
    assert_eq!(other["warm_records"], 1);
    let asked = [
        &TUNE[..],
        &["--kernel", "cpu-matmul-f32-packed-portable", "--runs", "1"],
    ]
    .concat();
    let told = answer(records, &asked);
    let from = "the search began from what is known of matmul f32 112x96x80";
    assert!(told.contains(from), "{told}");
    assert!(told.contains("the search ended because"), "{told}");
}

#[test]
fn what_was_evaluated_is_exported_for_others_to_begin_from() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = folder.join("packed.json");
    let file = file.to_str().unwrap();
    let kernel = ["--kernel", "cpu-matmul-f32-packed-portable"];
    let asked = [&TUNE[..], &kernel, &["--export", file]].concat();
    let tuned = json(folder, &asked);
    let evaluated = tuned["kernels"][0]["evaluated"].clone();
    let replayed = json(folder, &["replay", "space", file, "--budget", "1"]);
    assert_eq!(
        replayed["spaces"][0]["configurations"], evaluated,
        "{replayed}"
    );
    // Who never searched begins from it.
    let elsewhere = tempfile::tempdir().unwrap();
    let warm = [&TUNE[..], &kernel, &["--warm", file]].concat();
    let warm = json(elsewhere.path(), &warm);
    assert_eq!(warm["kernels"][0]["warm_records"], 1, "{warm}");
    // The same search may write it again; nothing else in a file is lost.
    json(folder, &asked);
    let other = folder.join("notes");
    std::fs::write(&other, "mine").unwrap();
    let refused = [&TUNE[..], &kernel, &["--export", other.to_str().unwrap()]].concat();
    let refused = run(folder, &refused);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("name another one"));
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "mine");
    // Nor what another machine measured, or more of it than is measured now.
    let theirs = std::fs::read_to_string(file).unwrap();
    let mut theirs: Value = serde_json::from_str(&theirs).unwrap();
    theirs["device_name"] = "another one".into();
    std::fs::write(&other, theirs.to_string()).unwrap();
    let again = [&TUNE[..], &kernel, &["--export", other.to_str().unwrap()]].concat();
    assert_eq!(run(folder, &again).status.code(), Some(2));
    let fewer = [
        "tune",
        "matmul",
        "--shape",
        "96x96x96",
        "--budget",
        "2",
        "--time-budget",
        "1",
        "--kernel",
        kernel[1],
        "--export",
        file,
    ];
    let fewer = run(elsewhere.path().join("new").as_path(), &fewer);
    assert_eq!(fewer.status.code(), Some(1), "{}", text(&fewer.stderr));
    assert!(
        text(&fewer.stdout).contains("packed-portable"),
        "its result is told"
    );
    let nowhere = folder.join("no/such/file");
    let nowhere = [&TUNE[..], &kernel, &["--export", nowhere.to_str().unwrap()]].concat();
    assert_eq!(run(folder, &nowhere).status.code(), Some(2));
}

#[test]
fn what_was_measured_here_is_recommended() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let tuned = json(records, &TUNE);
    let said = json(records, &["recommend", "matmul", "--shape", "96x96x96"]);
    assert_eq!(
        said["expected"]["evidence"]["known_by"], "measured",
        "{said}"
    );
    assert!(said["expected"]["evidence"]["samples"].as_u64().unwrap() >= 3);
    // What tuning found, or what it could not tell from it; beside other programs the best of those that leave them a processor.
    let is_busy = said["reasoning"].to_string().contains("in use");
    let finalists = tuned["finalists"].as_array().unwrap().iter();
    let threads = |parameters: &str| {
        let mut all = parameters.split(',');
        let threads = all.find_map(|one| one.strip_prefix("threads="));
        threads.map_or(1, |threads| threads.parse::<u32>().unwrap())
    };
    let most = threads(said["choice"]["params"].as_str().unwrap());
    let runs = |one: &&Value| !is_busy || threads(one["parameters"].as_str().unwrap()) <= most;
    let times = finalists
        .filter(runs)
        .map(|one| one["time_ns"].as_f64().unwrap());
    let best = times.fold(f64::INFINITY, f64::min);
    let ratio = said["expected"]["time_ns"].as_f64().unwrap() / best;
    assert!((0.5..1.5).contains(&ratio), "{said} {tuned}");
    let listed = json(records, &["cache", "list", "--op", "matmul"]);
    let series = listed["series"].as_array().unwrap();
    let same = |one: &&Value| one["kernel"] == said["choice"]["kernel"];
    assert!(series.iter().any(|one| same(&one)), "{said} {listed}");
}

#[test]
fn what_was_never_timed_here_races_before_it_is_recommended() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let ask = |shape: &str, seconds: &str| {
        let asked = ["recommend", "matmul", "--shape", shape];
        json(records, &[&asked[..], &["--time-budget", seconds]].concat())
    };
    let known_by = |said: &Value| said["expected"]["evidence"]["known_by"].clone();
    let on_record = || {
        let listed = run(records, &["cache", "list", "--op", "matmul"]);
        text(&listed.stdout).matches("cpu-matmul-f32-").count()
    };
    assert_eq!(known_by(&ask("48x48x48", "0")), "prior");
    // Too little time for calls of that length.
    assert_eq!(known_by(&ask("2048x2048x2048", "0.01")), "prior");
    assert_eq!(on_record(), 0, "nothing was to be timed");
    let raced = ask("48x48x48", "0.3");
    assert_eq!(known_by(&raced), "measured", "{raced}");
    // Times taken beside other programs are not kept.
    if raced["reasoning"].to_string().contains("in use") {
        assert_eq!(on_record(), 0);
    } else {
        assert!(on_record() > 1, "who was measured against whom is kept");
        assert_eq!(known_by(&ask("48x48x48", "0")), "measured");
    }
}

#[test]
fn a_program_begins_from_records_and_says_why_it_ended() {
    let dir = tempfile::tempdir().unwrap();
    let spec = specification(dir.path());
    let first = json(dir.path(), &["tune", "--spec", &spec]);
    let cache = first["cache"].as_str().unwrap();
    let session = dir.path().join("other.session");
    let session = session.to_str().unwrap();
    let again = [
        "tune",
        "--spec",
        &spec,
        "--session",
        session,
        "--warm",
        cache,
        "--budget",
        "3",
    ];
    let warm = json(dir.path(), &again);
    assert_eq!(
        (&warm["warm_records"], &warm["ended"]),
        (&1.into(), &"evaluations".into())
    );
    assert_eq!(
        warm["best"]["values"]["x"], 3,
        "the second asked for is the best there: {warm}"
    );
    let told = answer(dir.path(), &again);
    assert!(told.contains("the search began from 1 record"), "{told}");
    assert!(told.contains("its evaluations were spent"), "{told}");
    // What says nothing about these parameters is a mistake, and so is a file of somebody else's.
    std::fs::write(
        dir.path().join("other.json"),
        r#"{"tune_params_keys": ["y"], "tune_params": {"y": [1]}, "cache": {"1": {"time": 1.0}}}"#,
    )
    .unwrap();
    let other = dir.path().join("other.json");
    let output = run(
        dir.path(),
        &["tune", "--spec", &spec, "--warm", other.to_str().unwrap()],
    );
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("has other parameters"),
        "{}",
        text(&output.stderr)
    );
    let notes = dir.path().join("notes");
    std::fs::write(&notes, "mine").unwrap();
    let output = run(
        dir.path(),
        &[
            "tune",
            "--spec",
            &spec,
            "--session",
            notes.to_str().unwrap(),
        ],
    );
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "mine");
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

const PRODUCT: [&str; 4] = ["recommend", "matmul", "--shape", "2048x2048x2048"];

#[test]
fn devices_are_held_against_each_other() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let ask = |more: &[&str]| json(records, &[&PRODUCT[..], more].concat());
    let told = ask(&["--device", "a100,h100,host,apple-m3", "--calls", "1000"]);
    assert_eq!(told["schema"], "kernelwise.recommend_devices/1");
    assert_eq!(told["device"], "h100", "{told}");
    let ranking = told["ranking"].as_array().unwrap();
    let names: Vec<&str> = ranking
        .iter()
        .map(|one| one["device"].as_str().unwrap())
        .collect();
    assert_eq!(&names[..2], ["h100", "a100"], "{told}");
    let total = |place: usize| ranking[place]["total_ns"].as_f64().unwrap();
    assert!(total(0) < total(1) && total(1) < total(2), "{told}");
    // Apple does not publish what an M3 computes: it is listed, with the reason.
    assert_eq!(names[3], "apple-m3");
    assert_eq!(ranking[3]["total_ns"], Value::Null);
    assert!(
        told["transfer_ns"].as_f64().unwrap() > 1e6,
        "three matrices of 16 MiB"
    );
    // Compiling half a second for one call does not pay, nor does a way that takes longer than the work.
    let once = ask(&["--device", "a100,host"]);
    assert_eq!(once["backend"], "cpu", "{once}");
    let slow = ask(&[
        "--device",
        "a100,host",
        "--calls",
        "100000",
        "--link",
        "0.001",
    ]);
    assert_eq!(slow["backend"], "cpu", "{slow}");
    let table = answer(
        records,
        &[&PRODUCT[..], &["--device", "a100,h100", "--calls", "1000"]].concat(),
    );
    assert!(
        table.contains("the way there and back") && table.contains("h100"),
        "{table}"
    );
}

#[test]
fn limits_of_a_recommendation_are_kept_or_refused() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let ask = |more: &[&str]| run(records, &[&PRODUCT[..], more].concat());
    for (limits, name) in [
        (&["--max-latency", "1"][..], "latency"),
        (&["--max-memory", "1000"], "memory"),
        (&["--max-power", "10"], "power"),
        (&["--max-energy", "0.001"], "energy"),
        (&["--min-throughput", "1e9"], "throughput"),
        (&["--period", "10"], "real_time"),
    ] {
        let output = ask(limits);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{limits:?}: {said}");
        assert!(said.contains(&format!("infeasible ({name})")), "{said}");
    }
    let on_device = ask(&["--device", "a100", "--max-latency", "100"]);
    assert_eq!(on_device.status.code(), Some(4));
    assert!(
        text(&on_device.stderr).contains("moving the operands alone"),
        "{}",
        text(&on_device.stderr)
    );
    assert!(
        ask(&[
            "--device",
            "a100",
            "--max-latency",
            "100000",
            "--calls",
            "1000"
        ])
        .status
        .success()
    );
    for wrong in [
        &["--max-latency", "0"][..],
        &["--max-power", "-3"],
        &["--calls", "0"],
        &["--period", "10", "--deadline", "20"],
        &["--deadline", "20"],
        &["--link", "0"],
        &["--device", "a100,a100"],
    ] {
        let output = ask(wrong);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{wrong:?}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn a_device_can_be_described_in_a_file() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let file = records.join("mine.json");
    let described = r#"{"name": "mine", "source": "its data sheet", "api": "cuda", "units": 40, "clock_mhz": 1000.0, "subgroup": 32,
        "lanes": {"f32": 128, "f16": 256, "f64": null, "int": 64, "special": 16}, "bandwidth_gbs": 500.0, "half": true,
        "limits": {"threads_per_group": 1024, "group": [1024, 1024, 64], "grid": [2147483647, 65535, 65535], "shared_per_group": 49152}}"#;
    std::fs::write(&file, described).unwrap();
    let name = file.to_str().unwrap();
    let told = json(records, &[&PRODUCT[..], &["--device", name]].concat());
    assert_eq!(
        (&told["device"], &told["source"]),
        (&"mine".into(), &"its data sheet".into())
    );
    // 40 units of 128 lanes at 1 GHz: two operations for each of 2048^3 at 10.24 TFLOP/s at the best.
    let warm_ns = told["prediction"]["warm_ns"].as_f64().unwrap();
    assert!(warm_ns > 2.0 * 2048f64.powi(3) / 10.24e3, "{warm_ns}");
    for (piece, by, words) in [
        (
            "\"clock_mhz\": 1000.0",
            "\"clock_mhz\": -1.0",
            "`clock_mhz` is -1",
        ),
        ("\"clock_mhz\"", "\"clock\"", "unknown field `clock`"),
        ("\"subgroup\": 32,", "", "missing field `subgroup`"),
    ] {
        std::fs::write(&file, described.replace(piece, by)).unwrap();
        let output = run(records, &[&PRODUCT[..], &["--device", name]].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("mine.json") && said.contains(words), "{said}");
    }
    let nowhere = run(
        records,
        &[&PRODUCT[..], &["--device", "nowhere.json"]].concat(),
    );
    assert_eq!(nowhere.status.code(), Some(4));
}

#[test]
fn an_amd_device_is_not_called_webgpu() {
    let records = tempfile::tempdir().unwrap();
    let asked = [
        "recommend",
        "matmul",
        "--shape",
        "512x512x512",
        "--dtype",
        "f64",
        "--device",
        "mi250x",
    ];
    assert_eq!(json(records.path(), &asked)["backend"], "hip");
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
    // OpenBLAS where there is one, else a kernel.
    let default = "library default:";
    let table = table.cut(&[
        "# processor",
        "# thread",
        default,
        "beside others,",
        "alone,",
    ]);
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
        "8",
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
