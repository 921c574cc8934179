//! Every verb's answer for people and for programs, as an outline: what is measured becomes a placeholder, see `typed/outline.rs`. Those
//! that need a server are in `queue.rs`.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

mod typed;

use std::fmt::Display;
use std::io::Write;
use std::path::Path;

use serde_json::Value;
use typed::{Fields, Outline, answer, json, run, text, words};

/// What a program reads and what a person sees.
fn told(records: &Path, line: &str) -> (Value, Outline) {
    let words = words(line);
    let fields = json(records, &words);
    (fields, Outline::of(&answer(records, &words)))
}

/// Both in one.
fn both(table: impl Display, fields: impl Display) -> String {
    format!("{table}\n--format json\n{fields}")
}

/// Both to the letter, for answers that are the same everywhere.
fn literally(records: &Path, line: &str) -> String {
    let words = words(line);
    let fields = serde_json::to_string_pretty(&json(records, &words)).unwrap();
    both(answer(records, &words), fields)
}

#[test]
fn the_machine() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    // Which lines there are depends on the machine; their headings and the fields are there in any case.
    let (fields, table) = told(records, "probe");
    let table = table.to_string();
    let headings = table.lines().filter(|line| !line.starts_with(' '));
    let headings: String = headings.map(|line| format!("{line}\n")).collect();
    let fields = Fields::of(&fields).varies(&["caches", "cpu", "numa", "limits"]);
    insta::assert_snapshot!("probe", both(headings, fields));

    let (fields, table) = told(records, "probe --calibrate --budget 0.01");
    let table = table.to_string();
    let table = Outline::of(&table[table.find("calibration (").unwrap()..]);
    let table = table.first_row("figure", 4).cut(&["not calibrated:"]);
    // Others are those of larger caches and more threads.
    let always = [
        "timer_ns",
        "peak_gflops_f32_1t",
        "l1_read_gbps_1t",
        "forkjoin_us_1t",
        "skipped",
    ];
    let mut figures = fields["calibration"].clone();
    figures
        .as_object_mut()
        .unwrap()
        .retain(|name, _| always.contains(&name.as_str()));
    insta::assert_snapshot!("probe_calibrate", both(table, Fields::of(&figures)));

    let (fields, table) = told(records, "probe --watch --count 1 --interval 0.05");
    let table = table.to_string();
    // What only some machines tell comes last.
    let headings: Vec<&str> = table.lines().next().unwrap().split("  ").take(7).collect();
    insta::assert_snapshot!(
        "probe_watch",
        both(headings.join("  "), Fields::of(&fields))
    );

    let (fields, table) = told(records, "doctor");
    let table = table.to_string();
    let finding = |line: &&str| !line.starts_with(' ');
    let findings: Vec<&str> = table.lines().filter(finding).collect();
    let (summary, findings) = findings.split_last().unwrap();
    for finding in findings {
        let status = finding.split("  ").next().unwrap();
        assert!(["ok", "warning", "unknown"].contains(&status), "{finding}");
    }
    let fields = Fields::of(&fields).varies(&["checks[].advice"]);
    insta::assert_snapshot!("doctor", both(format!("{summary}\n"), fields));
}

#[test]
fn what_is_the_same_everywhere() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let cost = "cost 'conv2d f32 n32 c64 h56 w56 k64 r3 s3 stride1 pad1'";
    insta::assert_snapshot!("cost", literally(records, cost));
    let kernels = "kernels --op copy --dtype f32 --technique reference";
    insta::assert_snapshot!("kernels", literally(records, kernels));
    let kernels = "kernels --op matmul --shape 9x9x9 --technique reference";
    insta::assert_snapshot!("kernels_for_a_shape", literally(records, kernels));
    insta::assert_snapshot!("demo_drift", literally(records, "demo drift"));
    // From published figures alone.
    let line = "recommend matmul --shape 4096x4096x4096 --device a100";
    let table = answer(records, &words(line));
    let fields = json(records, &words(line));
    insta::assert_snapshot!("recommend_for_a_device", both(table, Fields::of(&fields)));
}

/// A small record of convolutions: two algorithms that change places as channels grow.
fn convolutions(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    let columns =
        "spatial,c,d,h,w,z,y,x,k,do,ho,wo,n,pad_d,pad_h,pad_w,str_d,str_h,str_w,dil_d,dil_h,dil_w";
    writeln!(
        file,
        "{columns},bias,layout,dtype,dir,groups,ms_direct,ms_gemm"
    )
    .unwrap();
    for c in 1..100 {
        let (direct, gemm) = (f64::from(c), 40.0 + 0.25 * f64::from(c));
        let problem = format!("2,{c},1,8,8,1,3,3,16,1,8,8,1,0,1,1,1,1,1,1,1,1,0,NCHW,FP32,F,1");
        writeln!(file, "{problem},{direct},{gemm}").unwrap();
    }
}

/// A space of one parameter, measured in full.
fn space(path: &Path) {
    let values = [1, 2, 4, 8];
    let entry = |x: &u32| {
        let entry = serde_json::json!({"time": 1.0 + f64::from(*x), "block_size_x": x});
        (x.to_string(), entry)
    };
    let cache: serde_json::Map<String, Value> = values.iter().map(entry).collect();
    let document = serde_json::json!({
        "device_name": "device", "kernel_name": "line", "problem_size": "4096",
        "tune_params_keys": ["block_size_x"], "tune_params": {"block_size_x": values},
        "objective": "time", "cache": cache,
    });
    std::fs::write(path, document.to_string()).unwrap();
}

#[test]
fn recorded_times() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let file = records.join("record.csv");
    convolutions(&file);
    let file = file.to_str().unwrap();
    let (fields, table) = told(records, &format!("replay find-db {file} --limit 40"));
    insta::assert_snapshot!("replay_find_db", both(table, Fields::of(&fields)));
    let line = format!("model evaluate --find-db {file} --limit 60 --models ridge");
    let (fields, table) = told(records, &line);
    insta::assert_snapshot!("model_evaluate_find_db", both(table, Fields::of(&fields)));

    let file = records.join("line.json");
    space(&file);
    let line = format!("replay space {} --budget 2,3 --repeats 2", file.display());
    let (fields, table) = told(records, &line);
    insta::assert_snapshot!("replay_space", both(table, Fields::of(&fields)));
}

/// A program of one parameter; three is best.
fn specification(dir: &Path) -> String {
    let program = "x=$1\necho time $(( (x - 3) * (x - 3) + 1 )) ms\n";
    std::fs::write(dir.join("program.sh"), program).unwrap();
    let spec = "name = \"parabola\"\nfiles = [\"program.sh\"]\n[parameters]\nx = [1, 2, 3, 4]\n\
        [run]\ncommand = [\"sh\", \"{spec_dir}/program.sh\", \"{x}\"]\n[repeat]\nwarm_up = 0\nruns = 2\n\
        [time]\nfrom = \"output\"\npattern = 'time ([0-9.]+) ms'\nunit = \"ms\"\n[budget]\nevaluations = 4\n";
    let path = dir.join("spec.toml");
    std::fs::write(&path, spec).unwrap();
    path.display().to_string()
}

#[test]
fn tuning() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let (fields, table) = told(
        records,
        "tune matmul --shape 32x32x32 --kernel cpu-matmul-f32-packed-portable --budget 2 --time-budget 0.3",
    );
    // Whether something better was found is in the last line but one.
    let table = table.first_row("kernel", 1);
    let table = table.without(&["the usual setting of", "<kernel> takes"]);
    let fields = Fields::of(&fields).varies(&["best_over_usual", "kernels[].best"]);
    insta::assert_snapshot!("tune", both(table, fields));

    let spec = specification(records);
    let (fields, table) = told(records, &format!("tune --spec {spec}"));
    insta::assert_snapshot!("tune_a_program", both(table, Fields::of(&fields)));
}

#[test]
fn races() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let (fields, table) = told(
        records,
        "bench ops --shape 'copy f32 1000' --time-budget 0.02 --calibration-budget 0.01",
    );
    // The calibration's own loop may be the fastest.
    let table = table.without(&["warning:", "bare-loop  #"]);
    let table = table.first_row("contender", 1);
    let table = table.cut(&["# FLOP", "self-check", "pinned to processor", "clock"]);
    let fields = Fields::of(&fields).varies(&[
        "conditions.null_comparison",
        "conditions.warnings",
        "shapes[].contenders[].bandwidth_share",
        "shapes[].contenders[].high_ns",
        "shapes[].contenders[].low_ns",
        "shapes[].contenders[].measured_over_prior",
        "shapes[].contenders[].over_winner",
        "shapes[].contenders[].prior_ns",
        "shapes[].contenders[].warnings",
        "shapes[].refused",
        "shapes[].tie_class",
        "shapes[].winner",
    ]);
    insta::assert_snapshot!("bench_ops", both(table, fields));

    let shapes = records.join("shapes");
    std::fs::write(&shapes, "softmax f32 8x8\n").unwrap();
    let shapes = shapes.display();
    let (fields, table) = told(
        records,
        &format!(
            "bench choices --op softmax --shapes {shapes} --limit 1 --max-seconds-per-shape 0.3 --calibration-budget 0.01"
        ),
    );
    let table = table.first_row("shape", 1).without(&["worst:"]);
    let table = table.cut(&["single best kernel", "judge's first half"]);
    let fields = Fields::of(&fields).keyed(&["operations"]).varies(&[
        "operations.*.judge_first_half",
        "operations.*.single_best",
        "overall.judge_first_half",
        "overall.single_best",
        "shapes[].judge_first_half",
        "shapes[].single_best",
        "worst",
    ]);
    insta::assert_snapshot!("bench_choices", both(table, fields));

    let (fields, table) = told(
        records,
        &format!(
            "bench recommend --shapes {shapes} --time-budget 0.1 --judge-budget 0.1 --calibration-budget 0.01"
        ),
    );
    let table = table.first_row("shape", 1);
    let table = table.cut(&["prices", "race", "judge's first half"]);
    let fields = Fields::of(&fields).varies(&[
        "judge_first_half",
        "shapes[].judge_first_half",
        "shapes[].followed[].tiles_slowdown",
    ]);
    insta::assert_snapshot!("bench_recommend", both(table, fields));
}

#[test]
fn what_choosing_costs() {
    let records = tempfile::tempdir().unwrap();
    let (figures, table) = told(records.path(), "bench select");
    assert_eq!(figures["allocs_per_hit"], 0.0, "a choice allocates nothing");
    // On one processor there is nothing to tell of two.
    let table = table.cut(&["two threads over one", "two threads, a selector each"]);
    let one_processor = ["speedup_2_threads", "speedup_2_threads_apart"];
    insta::assert_snapshot!(
        "bench_select",
        both(table, Fields::of(&figures).varies(&one_processor))
    );
}

#[test]
fn what_remembering_costs() {
    let records = tempfile::tempdir().unwrap();
    let (figures, table) = told(records.path(), "bench store");
    // Where PostgreSQL is installed, a server is started for it.
    let table = table.cut(&["records pushed to"]).without(&["the server"]);
    let fields = Fields::of(&figures).varies(&["sync_per_s", "sync_trouble"]);
    insta::assert_snapshot!("bench_store", both(table, fields));
}

#[test]
fn what_is_learned_and_what_is_made_of_it() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    // Twelve small copies are enough for a model.
    let shapes = records.join("shapes.txt");
    let list: String = (1..=12)
        .map(|i| format!("copy f32 {}\n", 100 * i))
        .collect();
    std::fs::write(&shapes, list).unwrap();
    let learn = format!(
        "learn --op copy --shapes {} --effort minimal --time-budget",
        shapes.display()
    );
    let table = Outline::of(&answer(records, &words(&format!("{learn} 30"))));
    let table = table.first_row("operation", 4).first_row("shapes  best", 2);
    let table = table
        .without(&["unsure:"])
        .cut(&["pace", "core clock", "others"]);
    let fields = json(records, &words(&format!("{learn} 1")));
    let varies = [
        "changed_choices",
        "changes",
        "last_run.median_error_factor",
        "last_run.single_best_over_choice",
        "last_run.static_rule_over_choice",
        "last_run.warnings",
        "gains.*.single_best_over_choice",
        "quarantined",
        "unsure",
        "winners[].others",
        "noise.half_width_share",
        "noise.pace_p90_over_p10",
        "noise.pace_second_half_over_first",
        "noise.shapes_undecided",
        "noise.smallest_difference_share",
    ];
    let keyed = [
        "gains",
        "models.operations",
        "models.decades",
        "models.importance",
        "models.sizes",
    ];
    insta::assert_snapshot!(
        "learn",
        both(table, Fields::of(&fields).keyed(&keyed).varies(&varies))
    );

    choices(records);
    models(records);
    what_is_on_record(records);
}

fn choices(records: &Path) {
    let (fields, table) = told(records, "select copy --shape 1000");
    let fields = Fields::of(&fields).varies(&["confidence", "estimate.interval_ns"]);
    insta::assert_snapshot!("select", both(table, fields));

    let (fields, table) = told(records, "explain copy --shape 1000");
    let table = table.without(&["last time it was"]);
    let table = table.cut(&["over <kernel>", "not <kernel>", "held up by", "changes if"]);
    let keyed = ["statistics.quality", "statistics.quality_by_kernel"];
    let fields = Fields::of(&fields).keyed(&keyed).varies(&[
        "before",
        "bound_by",
        "decision.alternatives",
        "decision.confidence",
        "decision.refused",
        "statistics.quality.*.slowdown_interval",
        "statistics.quality_by_kernel.*.slowdown_interval",
        "statistics.quality.*.share_interval",
        "statistics.quality_by_kernel.*.share_interval",
    ]);
    insta::assert_snapshot!("explain", both(table, fields));

    let (fields, table) = told(records, "run copy --shape 1000 --calls 3");
    let table = table.cut(&["#x the prediction,"]);
    assert!(
        fields["batch"].as_u64().unwrap() > 1,
        "a copy of 4 kB is short: {fields}"
    );
    insta::assert_snapshot!(
        "run",
        both(table, Fields::of(&fields).varies(&["predicted"]))
    );

    let line = "compare copy --shape 1000 --baseline cpu-copy-f32-reference --seconds 0.5";
    let (fields, table) = told(records, line);
    insta::assert_snapshot!("compare", both(table, Fields::of(&fields)));

    let (fields, table) = told(records, "recommend copy --shape 1000");
    let table = table.cut(&[
        "<time> (",
        "<kernel> should take",
        "it is bound by",
        "next of",
        "else",
    ]);
    // How many processors others use.
    let table = table.without(&["# processor"]);
    let fields = Fields::of(&fields).varies(&["alternatives", "expected"]);
    insta::assert_snapshot!("recommend", both(table, fields));

    let (fields, table) = told(
        records,
        "watch --shape 'copy f32 1000' --interval 0.05 --count 1",
    );
    let table = table.cut(&["# s: # calls/s"]).first_row("workload", 3);
    let choices = fields["choices"].as_array().unwrap();
    let known: Vec<&str> = choices
        .iter()
        .map(|choice| choice["known_by"].as_str().unwrap())
        .collect();
    assert_eq!(known, ["measured"], "no number without its source");
    let fields = Fields::of(&fields).varies(&["choices[].confidence", "choices[].time_ns", "load"]);
    insta::assert_snapshot!("watch", both(table, fields));
}

fn models(records: &Path) {
    for (name, line) in [("model_show", "model show"), ("model_train", "model train")] {
        let (fields, table) = told(records, line);
        let table = table.cut(&["never measured:"]);
        let varies = ["models[].other_machines_distance", "too_few"];
        let both = both(table, Fields::of(&fields).varies(&varies));
        insta::assert_snapshot!(name, both);
    }
    let (fields, table) = told(records, "model evaluate");
    let table = table.first_row("times", 7).first_row("announced", 4);
    let table = table.cut(&["errors grow without:"]);
    let fields = Fields::of(&fields).keyed(&["operations", "decades", "importance", "sizes"]);
    insta::assert_snapshot!("model_evaluate", both(table, fields));

    let markdown = answer(records, &words("report --format markdown"));
    let headings = markdown.lines().filter(|line| line.starts_with('#'));
    let headings: String = headings.map(|line| format!("{line}\n")).collect();
    let csv = answer(records, &words("report --format csv"));
    let columns = csv.lines().next().unwrap();
    let report = json(records, &["report"]);
    let fields = report.as_object().unwrap().keys();
    let fields: String = fields.map(|name| format!("{name}\n")).collect();
    let forms = format!("--format markdown\n{headings}\n--format csv\n{columns}\n");
    insta::assert_snapshot!("report", both(forms, fields));
}

fn what_is_on_record(records: &Path) {
    let (fields, table) = told(records, "cache stats");
    insta::assert_snapshot!("cache_stats", both(table, Fields::of(&fields)));
    let (fields, table) = told(records, "cache list --op copy");
    insta::assert_snapshot!(
        "cache_list",
        both(table.first_row("workload", 2), Fields::of(&fields))
    );
    let (fields, table) = told(records, "cache quarantine");
    insta::assert_snapshot!("cache_quarantine", both(table, Fields::of(&fields)));
    let (one, merged) = (records.join("one.jsonl"), records.join("merged.jsonl.gz"));
    let (one, merged) = (one.display(), merged.display());
    // Notes stand beside the answers.
    let told = [
        "cache path".to_owned(),
        "cache verify".to_owned(),
        "cache prune --other-machines".to_owned(),
        format!("export -o {one}"),
        format!("import --preview {one}"),
        format!("import {one}"),
        format!("merge {one} -o {merged}"),
        "cache clear --yes".to_owned(),
    ];
    let told = told.map(|line| {
        let output = run(records, &words(&line));
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        let folder = format!("{}/", records.display());
        format!(
            "$ kernelwise {}\n{}\n",
            line.replace(&folder, ""),
            Outline::of(&said)
        )
    });
    insta::assert_snapshot!("records", told.concat());
}
