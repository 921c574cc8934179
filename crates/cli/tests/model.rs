//! `model evaluate`, run as users run it, on a small record made here.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

mod typed;

use std::io::Write;
use std::process::Output;

use serde_json::Value;
use typed::text;

fn run(words: &[&str]) -> Output {
    let records = tempfile::tempdir().unwrap();
    typed::run(records.path(), &[&["model", "evaluate"], words].concat())
}

/// Two algorithms that change places as the work grows.
fn record() -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(
        file,
        "spatial,c,d,h,w,z,y,x,k,do,ho,wo,n,pad_d,pad_h,pad_w,str_d,str_h,str_w,\
         dil_d,dil_h,dil_w,bias,layout,dtype,dir,groups,ms_direct,ms_gemm"
    )
    .unwrap();
    for i in 0..600 {
        let (c, k) = (1 + i % 97, 1 << (i % 6));
        let work = f64::from(c * k);
        let (direct, gemm) = (work, 200.0 + 0.25 * work);
        writeln!(
            file,
            "2,{c},1,8,8,1,3,3,{k},1,8,8,1,0,1,1,1,1,1,1,1,1,0,NCHW,FP32,F,1,{direct},{gemm}"
        )
        .unwrap();
    }
    file
}

#[test]
fn every_type_of_model_has_its_row() {
    let record = record();
    let path = record.path().to_str().unwrap();
    let ask = |more: &[&str]| {
        let words = [&["--find-db", path, "--format", "json"], more].concat();
        let output = run(&words);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "");
        serde_json::from_str::<Value>(text(&output.stdout)).unwrap()
    };
    let report = ask(&[]);
    assert_eq!(report["schema"], "kernelwise.model_evaluate/1");
    assert_eq!(
        (&report["train_problems"], &report["test_problems"]),
        (&300.into(), &300.into())
    );
    assert_eq!(report["oracle"]["geo_slowdown"], 1.0);
    let fixed = &report["static_order_figures"]["geo_slowdown"];
    let models = report["models"].as_array().unwrap();
    let names: Vec<&str> = models.iter().map(|m| m["name"].as_str().unwrap()).collect();
    for name in kernelwise_model::ModelKind::NAMES {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    assert!(names.contains(&"boosted-trees with slowdowns"), "{names:?}");
    for model in models {
        let figure = |name: &str| model[name].as_f64().unwrap();
        assert!(figure("geo_slowdown") >= 1.0 && figure("geo_slowdown") < fixed.as_f64().unwrap());
        assert!((0.0..=1.0).contains(&figure("share_over_5pct")));
        assert!((0.0..=1.0).contains(&figure("coverage_90")));
        assert!(figure("p90_error_factor") >= figure("median_error_factor"));
        assert!(figure("median_error_factor") >= 1.0);
        assert!(figure("train_s") > 0.0 && figure("predict_ns") > 0.0);
    }
    // Fewer problems, one type; another seed halves them otherwise.
    let few = |seed: &str| ask(&["--limit", "80", "--models", "decision-tree", "--seed", seed]);
    let one = few("1");
    assert_eq!(one["models"].as_array().unwrap().len(), 1);
    assert_eq!(one["train_problems"], 40);
    let errors = |report: &Value| report["models"][0]["p90_error_factor"].clone();
    assert_eq!(errors(&few("1")), errors(&one));
    assert_ne!(errors(&few("2")), errors(&one));
}

#[test]
fn people_get_a_table() {
    let record = record();
    let path = record.path().to_str().unwrap();
    let output = run(&[
        "--find-db",
        path,
        "--models",
        "ridge,boosted-trees-thorough",
    ]);
    let out = text(&output.stdout);
    assert!(
        output.status.success()
            && out.starts_with("300 problems to learn from, 300 to choose for\n"),
        "{out}"
    );
    for word in [
        "no call waits for a model",
        "slowdown",
        "ridge",
        "boosted-trees-thorough",
        "static order",
        "oracle",
    ] {
        assert!(out.contains(word), "{word} in {out}");
    }
    assert!(!out.contains("perceptron"), "{out}");
}

#[test]
fn what_cannot_be_evaluated_says_why() {
    let record = record();
    let path = record.path().to_str().unwrap();
    let fails = |words: &[&str], code: i32, says: &str| {
        let output = run(words);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {error}");
        assert!(error.contains(says), "{words:?}: {error}");
        assert_eq!(text(&output.stdout), "");
    };
    fails(&["--find-db", "no-such-file.csv"], 4, "no-such-file.csv");
    fails(
        &["--find-db", path, "--models", "lasso"],
        2,
        "boosted-trees",
    );
    fails(&["--find-db", path, "--limit", "1"], 1, "cannot be halved");
    let mut broken = tempfile::NamedTempFile::new().unwrap();
    writeln!(broken, "a,b\n1,2").unwrap();
    let broken = broken.path().to_str().unwrap();
    fails(&["--find-db", broken], 1, "no column `spatial`");
}

#[test]
fn without_records_it_says_what_to_do() {
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains("run `kernelwise learn` first"));
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn what_a_fit_takes_is_told() {
    let records = tempfile::tempdir().unwrap();
    let bench = |more: &[&str]| {
        let words = [
            &["bench", "model", "--rows", "300", "--features", "4"],
            more,
        ]
        .concat();
        let output = typed::run(records.path(), &words);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let figures: Value = serde_json::from_str(&bench(&["--format", "json"])).unwrap();
    assert_eq!(figures["schema"], "kernelwise.bench_model/1");
    assert_eq!(figures["model"], "boosted-trees");
    assert_eq!(
        (&figures["rows"], &figures["features"]),
        (&300.into(), &4.into())
    );
    // So few rows never leave their thread.
    assert_eq!(figures["threads"], 1);
    assert!(figures["fit_s"].as_f64().unwrap() > 0.0);
    assert!(figures["predict_ns"].as_f64().unwrap() > 0.0);
    if cfg!(target_os = "linux") {
        let mib = |name: &str| figures[name].as_f64().unwrap();
        assert!(mib("peak_rss_mib") >= mib("rss_before_mib") && mib("rss_before_mib") > 1.0);
    }
    let table = bench(&["--model", "ridge"]);
    assert!(
        table.contains("ridge of 300 rows with 4 features"),
        "{table}"
    );
    for words in [["--rows", "0"], ["--features", "0"], ["--model", "lasso"]] {
        let words = [&["bench", "model"], &words[..]].concat();
        let output = typed::run(records.path(), &words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
    }
}
