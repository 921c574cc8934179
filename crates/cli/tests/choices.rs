//! `bench choices` and `bench recommend`, run as users run them, on few shapes and for a short time.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

mod typed;

use std::process::Output;

use serde_json::Value;
use typed::text;

fn bench(verb: &str, words: &[&str]) -> Output {
    let records = tempfile::tempdir().unwrap();
    typed::run(
        records.path(),
        &[&["bench", verb, "--calibration-budget", "0.5"], words].concat(),
    )
}

fn run(words: &[&str]) -> Output {
    bench("choices", words)
}

#[test]
fn choosers_are_held_against_the_oracle() {
    let output = run(&[
        "--op",
        "matmul",
        "--op",
        "softmax",
        "--limit",
        "4",
        "--threads",
        "1",
        "--max-seconds-per-shape",
        "0.3",
        "--seed",
        "3",
        "--format",
        "json",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let figures: Value = serde_json::from_str(text(&output.stdout)).unwrap();
    assert_eq!(figures["schema"], "kernelwise.bench_choices/1");
    assert_eq!(
        (&figures["seed"], &figures["interrupted"]),
        (&3.into(), &false.into())
    );
    let shapes = figures["shapes"].as_array().unwrap();
    let skipped = figures["skipped"].as_array().unwrap();
    assert_eq!(shapes.len() + skipped.len(), 4);
    assert!(!shapes.is_empty());
    assert_eq!(figures["threads"], 1);
    for shape in shapes {
        let name = shape["workload"].as_str().unwrap();
        assert!(
            name.starts_with("matmul") || name.starts_with("softmax"),
            "{name}"
        );
        assert!(shape["candidates"].as_u64().unwrap() >= 2, "{name}");
        let oracle_ns = shape["oracle"]["time_ns"].as_f64().unwrap();
        assert_eq!(shape["oracle"]["slowdown"], 1.0);
        for chooser in ["selector", "static_rule"] {
            let chosen = &shape[chooser];
            let time_ns = chosen["time_ns"].as_f64().unwrap();
            assert!(time_ns >= oracle_ns, "{name}: {chooser}");
            let slowdown = chosen["slowdown"].as_f64().unwrap();
            assert!((slowdown - time_ns / oracle_ns).abs() < 1e-9);
            assert!(chosen["kernel"].as_str().unwrap().starts_with("cpu-"));
            assert!(chosen["parameters"].is_string());
        }
    }
    for chooser in ["selector", "static_rule"] {
        let score = &figures["overall"][chooser];
        assert_eq!(score["shapes"].as_u64().unwrap() as usize, shapes.len());
        assert!((0.0..=1.0).contains(&score["share_within_5pct"].as_f64().unwrap()));
        let (geo, worst) = (&score["geo_slowdown"], &score["worst_slowdown"]);
        assert!(1.0 <= geo.as_f64().unwrap() && geo.as_f64() <= worst.as_f64());
    }
    for field in ["calibration_s", "judge_s", "budget_per_shape_s"] {
        assert!(figures[field].as_f64().unwrap() > 0.0, "{field}");
    }
}

#[test]
fn files_of_shapes_are_read_and_long_shapes_skipped() {
    let folder = std::env::temp_dir().join(format!("kernelwise-choices-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("list.csv");
    std::fs::write(
        &file,
        "set,7,9,5,false,true\nset,30000,3000,3000,false,false\n",
    )
    .unwrap();
    let output = run(&[
        "--shapes",
        file.to_str().unwrap(),
        "--op",
        "matmul",
        "--max-seconds-per-shape",
        "0.05",
    ]);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.contains("matmul f32 7x5x9 tb"), "{table}");
    assert!(
        table.contains("skipped: matmul f32 30000x3000x3000 would take"),
        "{table}"
    );
    for words in [
        "rule by hand",
        "single best kernel",
        "judge's first half",
        "all shapes",
    ] {
        assert!(table.contains(words), "{words}: {table}");
    }
}

#[test]
fn what_is_not_there_is_told() {
    let unknown = run(&["--op", "matmull"]);
    assert_eq!(unknown.status.code(), Some(4));
    assert!(
        text(&unknown.stderr).contains("matmul"),
        "{}",
        text(&unknown.stderr)
    );
    let many = run(&["--threads", "9999"]);
    assert_eq!(many.status.code(), Some(2));
    assert!(text(&many.stderr).contains("is more than"));
    let missing = run(&["--shapes", "nowhere.csv"]);
    assert_eq!(missing.status.code(), Some(4));
    assert!(text(&missing.stderr).contains("nowhere.csv"));
}

#[test]
fn recommendations_are_held_against_the_best_threads() {
    let few = [
        "--op",
        "softmax",
        "--count",
        "2",
        "--judge-budget",
        "0.2",
        "--time-budget",
    ];
    let told = |seconds: &str| {
        let asked = [&few[..], &[seconds, "--format", "json"]].concat();
        let output = bench("recommend", &asked);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let figures: Value = serde_json::from_str(text(&output.stdout)).unwrap();
        figures
    };
    let figures = told("0.1");
    assert_eq!(figures["schema"], "kernelwise.bench_recommend/1");
    let shapes = figures["shapes"].as_array().unwrap();
    let skipped = figures["skipped"].as_array().unwrap();
    assert_eq!(shapes.len() + skipped.len(), 2, "{figures}");
    assert!(!shapes.is_empty());
    for shape in shapes {
        let best = shape["best"].as_array().unwrap();
        let times = best.iter().map(|one| one["time_ns"].as_f64().unwrap());
        let least = times.fold(f64::INFINITY, f64::min);
        for one in shape["followed"].as_array().unwrap() {
            let on_as_many = best.iter().find(|b| b["threads"] == one["threads"]);
            let ratio = on_as_many.unwrap()["time_ns"].as_f64().unwrap() / least;
            assert!((one["threads_slowdown"].as_f64().unwrap() - ratio).abs() < 1e-9);
            let own = one["time_ns"].as_f64().unwrap() / least;
            assert!((one["choice_slowdown"].as_f64().unwrap() - own).abs() < 1e-9);
        }
    }
    let by = |figures: &Value| {
        let scores = figures["scores"].as_array().unwrap().clone();
        let names = scores.iter().map(|one| one["by"].as_str().unwrap());
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(by(&figures), ["prices", "race"]);
    assert_eq!(by(&told("0")), ["prices"]);
    let unknown = bench("recommend", &["--op", "softmaxx"]);
    assert_eq!(unknown.status.code(), Some(4));
    assert!(
        text(&unknown.stderr).contains("`softmax`"),
        "{}",
        text(&unknown.stderr)
    );
    // What does not fit the memory is told, and the program goes on.
    let folder = tempfile::tempdir().unwrap();
    let shapes = folder.path().join("shapes");
    std::fs::write(&shapes, "copy f32 4000000000000\nsoftmax f32 8x8\n").unwrap();
    let large = bench(
        "recommend",
        &["--shapes", shapes.to_str().unwrap(), "--time-budget", "0"],
    );
    assert!(large.status.success(), "{}", text(&large.stderr));
    let table = text(&large.stdout);
    assert!(
        table.contains("not judged: copy f32 4000000000000: ") && table.contains("softmax f32 8x8"),
        "{table}"
    );
}
