//! `replay find-db`, run as users run it, on a small record made here.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

mod typed;

use std::io::Write;
use std::process::Output;

use serde_json::Value;
use typed::text;

fn run(words: &[&str]) -> Output {
    let records = tempfile::tempdir().unwrap();
    typed::run(records.path(), &[&["replay", "find-db"], words].concat())
}

/// Two algorithms that change places as channels grow.
fn record() -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(
        file,
        "spatial,c,d,h,w,z,y,x,k,do,ho,wo,n,pad_d,pad_h,pad_w,str_d,str_h,str_w,\
         dil_d,dil_h,dil_w,bias,layout,dtype,dir,groups,ms_direct,ms_gemm"
    )
    .unwrap();
    for c in 1..300 {
        let (direct, gemm) = (f64::from(c), 40.0 + 0.25 * f64::from(c));
        writeln!(
            file,
            "2,{c},1,8,8,1,3,3,16,1,8,8,1,0,1,1,1,1,1,1,1,1,0,NCHW,FP32,F,1,{direct},{gemm}"
        )
        .unwrap();
    }
    file
}

#[test]
fn figures_stand_beside_those_of_other_choosers() {
    let record = record();
    let path = record.path().to_str().unwrap();
    let play = |more: &[&str]| {
        let words = [&[path, "--format", "json"], more].concat();
        let output = run(&words);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "");
        serde_json::from_str::<Value>(text(&output.stdout)).unwrap()
    };
    let played = play(&[]);
    assert_eq!(played["schema"], "kernelwise.replay/1");
    assert_eq!(
        (&played["problems"], &played["invalid_picks"]),
        (&299.into(), &0.into())
    );
    assert_eq!(played["budget_overruns"], 0);
    let figure = |of: &Value, name: &str| of[name].as_f64().unwrap();
    for name in ["geo_slowdown", "total_over_oracle"] {
        assert!(figure(&played, name) >= 1.0, "{name}");
    }
    assert!(figure(&played, "trial_share") > 0.0 && figure(&played, "share_over_5pct") < 1.0);
    let comparisons = played["comparisons"].as_array().unwrap();
    let names: Vec<&str> = comparisons
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert_eq!(names[0], "bandit, budget 0.02");
    assert!(names[1].starts_with("static order ") && names[1].contains(" > "));
    assert_eq!(names[2..], ["first in bucket", "oracle"]);
    assert_eq!(figure(&comparisons[3], "geo_slowdown"), 1.0);
    // The same seed tells the same, another one another story; fewer problems are fewer.
    assert_eq!(play(&[]), played);
    assert_ne!(play(&["--seed", "2"]), played);
    assert_ne!(play(&["--noise", "0.05"]), played);
    let few = play(&["--limit", "50", "--policy", "exhaustive", "--budget", "0"]);
    assert_eq!(
        (&few["problems"], &few["policy"]),
        (&50.into(), &"exhaustive".into())
    );
    assert!(figure(&few, "trial_share") > 0.3);
}

#[test]
fn what_cannot_be_played_says_why() {
    let record = record();
    let path = record.path().to_str().unwrap();
    let fails = |words: &[&str], code: i32, says: &str| {
        let output = run(words);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {error}");
        assert!(error.contains(says), "{words:?}: {error}");
        assert_eq!(text(&output.stdout), "");
    };
    fails(&["no-such-file.csv"], 4, "no-such-file.csv");
    fails(&[path, "--noise", "2"], 2, "noise is a number from 0 to 1");
    fails(&[path, "--budget", "nan"], 2, "budget");
    fails(&[path, "--policy", "greedy"], 2, "bandit");
    let mut broken = tempfile::NamedTempFile::new().unwrap();
    writeln!(broken, "a,b\n1,2").unwrap();
    fails(&[broken.path().to_str().unwrap()], 1, "no column `spatial`");
}
