//! `kernels` and `bench ops`, run as users run them.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

mod typed;

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use typed::text;

fn run(words: &[&str]) -> Output {
    let records = tempfile::tempdir().unwrap();
    typed::run(records.path(), words)
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

fn kernels(words: &[&str]) -> Vec<Value> {
    let listing = json(&[&["kernels"], words].concat());
    assert_eq!(listing["schema"], "kernelwise.kernels/1");
    listing["kernels"].as_array().unwrap().clone()
}

#[test]
fn every_kernel_tells_what_it_is() {
    let all = kernels(&[]);
    let mut ids: Vec<&str> = all.iter().map(|k| k["id"].as_str().unwrap()).collect();
    for kernel in &all {
        let id = kernel["id"].as_str().unwrap();
        let operation = kernel["operation"].as_str().unwrap();
        let variant = kernel["variant"].as_str().unwrap();
        assert!(
            id.starts_with(&format!("cpu-{operation}-")) && id.ends_with(variant),
            "{id}"
        );
        for field in ["technique", "numerics", "parameters_for"] {
            assert!(kernel[field].is_string(), "{id}: {field}");
        }
        assert!(kernel["version"].as_u64().unwrap() >= 1 && kernel["needs"].is_object());
        assert!(kernel.get("eligible").is_none(), "nothing was asked of it");
        for parameter in kernel["parameters"].as_array().unwrap() {
            let values = parameter["values"].as_array().unwrap();
            assert!(values.contains(&parameter["default"]), "{id}: {parameter}");
        }
    }
    // Every operation but custom ones has at least its reference.
    for operation in ["matmul", "conv2d", "sort", "fft", "copy"] {
        let of = |k: &&Value| k["operation"].as_str().unwrap().starts_with(operation);
        assert!(all.iter().any(|k| of(&k)), "{operation}");
    }
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "an id stands once");
}

#[test]
fn filters_leave_what_was_asked_for() {
    for kernel in kernels(&["--op", "sort", "--dtype", "u32"]) {
        assert!(kernel["operation"].as_str().unwrap().starts_with("sort"));
        assert_eq!(kernel["dtypes"][0], "u32");
    }
    for kernel in kernels(&["--technique", "reference"]) {
        assert_eq!(kernel["technique"], "reference");
    }
    let sums = kernels(&["--op", "reduce.sum"]);
    let fits = |k: &Value| ["reduce", "reduce.sum"].contains(&k["operation"].as_str().unwrap());
    assert!(!sums.is_empty() && sums.iter().all(fits));
    for op in ["reduce.argmax", "reduce.mean", "pool2d.avg"] {
        let of_variant = kernels(&["--op", op]);
        assert!(!of_variant.is_empty(), "{op}");
        for kernel in of_variant {
            let told_for = kernel["parameters_for"].as_str().unwrap();
            assert!(told_for.starts_with(&format!("{op} ")), "{kernel}");
        }
    }
    // Indices are written by other kernels than sums.
    let ids = |op: &str| -> Vec<String> {
        let of_op = kernels(&["--op", op, "--dtype", "f32"]);
        of_op.iter().map(|k| k["id"].to_string()).collect()
    };
    let (sums, indices) = (ids("reduce.sum"), ids("reduce.argmax"));
    assert!(sums.iter().all(|id| !indices.contains(id)));
    // Without a variant, kernels of one variant are there as well.
    let (max, all) = (
        kernels(&["--op", "pool2d.max"]),
        kernels(&["--op", "pool2d"]),
    );
    assert!(max.iter().all(|k| all.iter().any(|a| a["id"] == k["id"])));
}

#[test]
fn a_shape_decides_who_may_run_and_why_not() {
    let listing = json(&["kernels", "--op", "matmul", "--shape", "64x64x64"]);
    assert_eq!(listing["workload"], "matmul f32 64x64x64");
    assert_eq!(
        listing["kernels"],
        json(&["kernels", "--shape", "matmul f32 64x64x64"])["kernels"]
    );
    let mut refusals = 0;
    for shape in [
        "64x64x64",
        "64x64x64 layout=strided",
        "7x13x5 ta layout=strided",
        "3x1001x1 tb",
    ] {
        let kernels = kernels(&["--op", "matmul", "--shape", shape]);
        for kernel in &kernels {
            let id = &kernel["id"];
            assert_eq!(kernel["dtypes"][0], "f32");
            let eligible = kernel["eligible"].as_bool().unwrap();
            assert_eq!(eligible, kernel["workspace_bytes"].is_u64(), "{id}");
            assert_eq!(!eligible, kernel["reason"].is_string(), "{id}");
            refusals += usize::from(!eligible);
        }
        let reference = kernels.iter().find(|k| k["technique"] == "reference");
        assert_eq!(
            reference.unwrap()["eligible"],
            true,
            "the floor takes anything"
        );
    }
    let others = kernels(&["--op", "matmul"])
        .iter()
        .filter(|k| k["technique"] != "reference")
        .count();
    assert!(
        refusals > 0 || others == 0,
        "no kernel follows every layout"
    );

    let table = answer(&["kernels", "--op", "matmul", "--shape", "9x9x9"]);
    assert!(
        table.starts_with("matmul f32 9x9x9\n") && table.contains("may run"),
        "{table}"
    );
    assert!(answer(&["kernels", "--op", "copy"]).contains("needs"));
}

#[test]
fn what_is_not_there_is_exit_code_4_with_a_hint() {
    for (words, expected) in [
        (
            &["kernels", "--op", "matmull"][..],
            "did you mean `matmul`?",
        ),
        (
            &["kernels", "--op", "custom"],
            "no kernel computes custom: ask for another --op",
        ),
        (
            &["kernels", "--op", "custom", "--dtype", "f32"],
            "custom in f32: ask without --dtype",
        ),
        (&["kernels", "--op", "reduce.foo"], "known: sum, mean"),
        (&["kernels", "--op", "matmul.foo"], "`.foo`"),
        (&["bench", "ops", "--op", "reduce.foo"], "known: sum, mean"),
        (
            &["kernels", "--op", "matmul", "--technique", "custom"],
            "there are: ",
        ),
        (&["bench", "ops", "--op", "sorte"], "did you mean `sort`?"),
        (
            &["bench", "ops", "--op", "custom"],
            "--shape, such as `custom.wave_step f64 512x512`",
        ),
        (
            &["bench", "ops", "--op", "custom.x"],
            "--shape, such as `custom.x f64 512x512`",
        ),
    ] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(4), "{words:?}");
        let error = text(&output.stderr);
        assert!(error.contains(expected), "{words:?}: {error}");
        assert_eq!(text(&output.stdout), "", "{words:?}");
    }
}

#[test]
fn wrong_words_are_exit_code_2() {
    let folder = std::env::temp_dir().join(format!("kernelwise-shapes-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let list = folder.join("list.csv");
    std::fs::write(&list, "set,1,2,3,false,false\nset,1,2,many,false,false\n").unwrap();
    let list = list.to_str().unwrap();
    for (words, expected) in [
        (&["kernels", "--shape", "64x64x64"][..], "64x64x64"),
        (
            &["kernels", "--op", "copy", "--shape", "matmul f32 2x2x2"],
            "is no copy",
        ),
        (
            &["kernels", "--dtype", "f64", "--shape", "matmul f32 8x8x8"],
            "--dtype f64 contradicts --shape `matmul f32 8x8x8`",
        ),
        (
            &["bench", "ops", "--op", "matmul", "--shape", "copy f32 9"],
            "is no matmul",
        ),
        (&["kernels", "--technique", "vectors"], "vector"),
        (&["kernels", "--allow-reduced"], "--shape"),
        (&["kernels", "--dtype", "f33"], "f32"),
        (&["bench"], "ops"),
        (
            &["bench", "ops"],
            "--op <OPERATION>|--shape <SHAPE>|--shapes <FILE>",
        ),
        (&["bench", "ops", "--shape", "matmul f32 2x2"], "MxKxN"),
        (
            &["bench", "ops", "--op", "matmul", "--threads", "100000"],
            "may use",
        ),
        (
            &["bench", "ops", "--op", "matmul", "--time-budget", "0"],
            "expected seconds",
        ),
        (
            &["bench", "ops", "--op", "matmul", "--dtype", "bool"],
            "bool",
        ),
        (
            &["bench", "ops", "--shapes", list],
            "list.csv:2: k is `many`",
        ),
    ] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let error = text(&output.stderr);
        assert!(error.contains(expected), "{words:?}: {error}");
    }
    let missing = run(&["bench", "ops", "--shapes", "/nonexistent/list.csv"]);
    assert_eq!(missing.status.code(), Some(4));
    assert!(text(&missing.stderr).contains("/nonexistent/list.csv"));
    std::fs::remove_dir_all(folder).unwrap();
}

const QUICK: [&str; 4] = ["--time-budget", "0.05", "--calibration-budget", "0.2"];

/// A wrong kernel would be exit code 5, but what is printed is the same.
#[test]
fn a_benchmark_of_what_does_not_fit_the_memory_is_exit_code_4() {
    let shape = ["--shape", "copy f64 1000000000000"];
    let output = run(&[&["bench", "ops"], &shape[..], &QUICK].concat());
    assert_eq!(output.status.code(), Some(4));
    let error = text(&output.stderr);
    assert!(
        error.contains("nothing could be measured: copy f64"),
        "{error}"
    );
    assert_eq!(error.matches("copy f64").count(), 1, "{error}");
    assert!(
        text(&output.stdout).contains("conditions"),
        "the report is there all the same"
    );
}

#[test]
fn a_shape_that_no_kernel_computes_is_skipped_and_exit_code_4() {
    let shape = ["--shape", "custom.x f32 8"];
    let words = [&["bench", "ops"], &shape[..], &QUICK].concat();
    let output = run(&[&words[..], &["--format", "json"]].concat());
    assert_eq!(output.status.code(), Some(4));
    assert!(
        text(&output.stderr)
            .contains("nothing could be measured: custom.x f32 8: no kernel computes it"),
        "{}",
        text(&output.stderr)
    );
    let bench: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(bench["shapes"].as_array().unwrap().len(), 0);
    assert_eq!(bench["skipped"][0]["workload"], "custom.x f32 8");
    assert_eq!(bench["skipped"][0]["reason"], "no kernel computes it");

    let conv = [
        "bench", "ops", "--op", "conv2d", "--dtype", "f16", "--limit", "2",
    ];
    let output = run(&[&conv[..], &QUICK].concat());
    assert_eq!(output.status.code(), Some(4));
    let table = text(&output.stdout);
    assert_eq!(
        table.matches("not measured: no kernel computes it").count(),
        2,
        "{table}"
    );
    assert!(!table.contains("verdict"), "{table}");
}

#[test]
fn a_variant_is_measured_on_its_own_shapes_or_on_those_of_the_others() {
    for (op, first) in [
        ("reduce.max", "reduce.max f32 1000000"),
        ("reduce.mean", "reduce.mean f32 1000"),
    ] {
        let words = ["bench", "ops", "--op", op, "--limit", "1"];
        let bench = json(&[&words[..], &QUICK].concat());
        assert_eq!(bench["shapes"][0]["workload"], first);
    }
}

#[test]
fn a_benchmark_tells_rates_ratios_and_conditions() {
    let shapes = [
        "--op",
        "matmul",
        "--shape",
        "8x8x8",
        "--shape",
        "matmul f32 20x20x20",
    ];
    let words = [&["bench", "ops"], &shapes[..], &QUICK].concat();
    let bench = json(&words);
    assert_eq!(bench["schema"], "kernelwise.bench_ops/1");
    let measured = bench["shapes"].as_array().unwrap();
    assert_eq!(measured.len(), 2, "{}", bench["skipped"]);
    assert_eq!(measured[0]["workload"], "matmul f32 8x8x8");
    assert_eq!(bench["interrupted"], false);
    for shape in measured {
        assert_eq!(shape["checked_against"], "the reference");
        let names: Vec<&str> = shape["contenders"]
            .as_array()
            .unwrap()
            .iter()
            .map(|contender| contender["name"].as_str().unwrap())
            .collect();
        assert!(
            names.contains(&"gemm") && names.contains(&"matrixmultiply"),
            "{names:?}"
        );
        for ratio in [
            "best_over_best_library",
            "best_own_over_best_library",
            "peak_share",
        ] {
            let ratio = &shape["ratios"][ratio];
            assert!(
                ratio["value"].is_number() != ratio["reason"].is_string(),
                "{ratio}"
            );
        }
        assert!(shape["peak_gflops"]["value"].is_number());
    }
    assert!(
        measured[0]["thresholds"].get("at_least_1_3").is_some()
            || measured[0]["ratios"]["best_over_best_library"]["value"].is_null()
    );
    let conditions = &bench["conditions"];
    assert_eq!(conditions["threads"], 1);
    assert_eq!(conditions["time_budget_s"], 0.05);
    assert!(conditions["machine"].is_string() && conditions["null_comparison"].is_object());
    assert_eq!(bench["rivals"].as_array().unwrap().len(), 3);

    let words = [
        &["bench", "ops", "--op", "matmul", "--limit", "1"],
        &QUICK[..],
    ]
    .concat();
    let table = answer(&words);
    let mut rest = table.as_str();
    for heading in [
        "matmul f32 2x2x2\n",
        "contender",
        "legend\n",
        "conditions\n",
        "summary\n",
    ] {
        let found = rest.split_once(heading);
        assert!(found.is_some(), "{heading} in its place: {table}");
        rest = found.unwrap().1;
    }
}

/// Whoever waits for many shapes sees the first while the others are measured.
#[test]
fn tables_come_shape_by_shape() {
    use std::io::{BufRead, BufReader};
    let shapes = [
        "--op",
        "matmul",
        "--shape",
        "8x8x8",
        "--shape",
        "300x300x300",
    ];
    let budgets = ["--time-budget", "2", "--calibration-budget", "0.2"];
    let mut bench = Command::new(env!("CARGO_BIN_EXE_kernelwise"))
        .args([&["bench", "ops"], &shapes[..], &budgets].concat())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(bench.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "matmul f32 8x8x8\n");
    assert!(bench.try_wait().unwrap().is_none(), "it is still at work");
    bench.kill().unwrap();
    bench.wait().unwrap();
}

#[test]
fn the_notes_of_the_help_fill_their_lines() {
    let help = answer(&["bench", "ops", "--help"]);
    assert!(help.contains("Winograd") && help.contains("Fourier"));
    let notes: Vec<&str> = help
        .lines()
        .skip_while(|line| !line.starts_with("Results are checked"))
        .collect();
    let (_, full) = notes.split_last().unwrap();
    // A line ends early only for a word that would not fit, the longest of which is a variable's name.
    for line in full {
        assert!((70..=100).contains(&line.chars().count()), "{help}");
    }
}

/// One interrupt while shapes are measured: what there is so far comes out, and exit code 130.
#[cfg(unix)]
#[test]
fn an_interrupt_prints_what_was_measured() {
    let quick = [
        "--time-budget",
        "5",
        "--calibration-budget",
        "0.2",
        "--format",
        "json",
    ];
    let bench = Command::new(env!("CARGO_BIN_EXE_kernelwise"))
        .args([&["bench", "ops", "--op", "matmul"], &quick[..]].concat())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_secs(4));
    let kill = format!("kill -INT {}", bench.id());
    assert!(
        Command::new("sh")
            .args(["-c", &kill])
            .status()
            .unwrap()
            .success()
    );
    let output = bench.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("interrupted"));
    // Interrupted during the calibration there is nothing to print.
    if !output.stdout.is_empty() {
        let bench: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(bench["conditions"].is_object());
        assert_eq!(bench["interrupted"], true);
        let (shapes, skipped) = (&bench["shapes"], &bench["skipped"]);
        let skipped = skipped.as_array().unwrap();
        // None is lost: a list of all shapes has 36.
        assert_eq!(shapes.as_array().unwrap().len() + skipped.len(), 36);
        let last = skipped.last().unwrap();
        assert_eq!(last["reason"], "interrupted before its turn");
    }
}
