//! The other forms of the report: what stands in them, and that it reads back.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

#[allow(dead_code, reason = "each test uses a part of it")]
mod made;

use kernelwise_report::{Facts, Report, SCHEMA};
use kernelwise_types::{Estimate, Reading};
use serde_json::Value;

/// A few rows of each kind, on which every figure can be checked by hand.
fn few() -> Facts {
    let mut facts = made::facts(0, 3);
    let (a, b) = ("cpu-matmul-f32-a", "cpu-matmul-f32-b");
    facts.rows = vec![
        made::row("matmul f32 8x8x8", a, "", made::measured(100.0, 5)),
        made::row("matmul f32 8x8x8", b, "threads=2", made::measured(101.0, 6)),
        made::row("matmul f32 64x64x64", a, "", made::measured(9_000.0, 7)),
        made::row(
            "matmul f32 64x64x64",
            b,
            "threads=2",
            made::measured(6_000.0, 8),
        ),
        made::row(
            "copy f32 1000",
            "cpu-copy-f32-a",
            "",
            Estimate::Prior {
                time_ns: made::ns(80.0),
                source: "roofline".into(),
            },
        ),
        made::row("copy f32 1000", "cpu-copy-f32-b", "", Estimate::Unknown),
    ];
    facts.predictions = Reading::unknown("no predictions were held against measurements");
    facts
}

#[test]
fn json_says_its_schema_units_and_how_numbers_are_known() {
    let facts = few();
    let value: Value = serde_json::from_str(&Report::of(&facts).json().unwrap()).unwrap();
    assert_eq!(value["schema"], SCHEMA);
    assert_eq!(value["schema"], "kernelwise.report/1");
    assert_eq!(value["generated_at_s"], made::NOW_S);
    let row = &value["rows"][1];
    assert_eq!(
        (row["time_ns"].as_f64(), row["samples"].as_u64()),
        (Some(101.0), Some(6))
    );
    assert_eq!(
        (row["known_by"].as_str(), row["fastest"].as_bool()),
        (Some("measured"), Some(false))
    );
    // 8·8·8·2 operations in 101 ns, over three matrices of 256 bytes.
    assert!((row["rate_flop_per_s"].as_f64().unwrap() - 1024.0 / 101e-9).abs() < 1.0);
    assert!((row["intensity_flop_per_byte"].as_f64().unwrap() - 1024.0 / 768.0).abs() < 1e-12);
    assert_eq!(
        (&value["rows"][4]["known_by"], &value["rows"][4]["source"]),
        (&"prior".into(), &"roofline".into())
    );
    assert_eq!(
        (&value["rows"][5]["known_by"], &value["rows"][5]["time_ns"]),
        (&"unknown".into(), &Value::Null)
    );
    assert_eq!(value["winners"]["near_ties"], 1);
    assert_eq!(value["gains"]["value"]["known_by"], "measured");
    assert_eq!(
        value["predictions"],
        serde_json::json!({ "value": null, "reason": "no predictions were held against measurements" })
    );
    let phase = &value["load_demo"]["value"]["phases"][1];
    assert!(
        (phase["kernelwise_over_best_fixed_ratio"].as_f64().unwrap() - 731.0 / 702.0).abs() < 1e-12
    );
    let last = &value["load_demo"]["value"]["phases"][3];
    assert_eq!(last["kernelwise_over_library_default_ratio"], Value::Null);
    assert_eq!(value["regret"]["value"]["points"][0]["calls"], 5_000);
}

#[test]
fn csv_parses_back_with_a_source_for_every_number() {
    let facts = made::facts(200, 5);
    let text = Report::of(&facts).csv().unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let headings = reader.headers().unwrap().clone();
    let column = |name: &str| headings.iter().position(|one| one == name).unwrap();
    let (section, value, known_by) = (column("section"), column("value"), column("known_by"));
    let records: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let times: Vec<&csv::StringRecord> = records
        .iter()
        .filter(|record| &record[section] == "time")
        .collect();
    assert_eq!(times.len(), 200);
    for (record, row) in times.iter().zip(&facts.rows) {
        assert_eq!(
            record[value].parse::<f64>().unwrap(),
            row.estimate.time().unwrap().get()
        );
        assert_eq!(record[column("subject")], row.workload.to_string());
        assert_eq!(
            record[column("parameters")],
            row.candidate.params.to_string()
        );
    }
    for record in &records {
        let counted = &record[section] == "quarantine";
        assert!(
            record[value].is_empty() || counted || !record[known_by].is_empty(),
            "{record:?}"
        );
    }
    for part in [
        "summary",
        "winner",
        "gain",
        "model_error",
        "prediction",
        "regret",
        "event",
        "quarantine",
        "load_demo",
        "warning",
        "command",
    ] {
        assert!(
            records.iter().any(|record| &record[section] == part),
            "{part}"
        );
    }
}

#[test]
fn what_is_absent_is_said_in_every_form() {
    let facts = Facts::new(made::machine(), made::NOW_S);
    let report = Report::of(&facts);
    let forms = [
        report.html(),
        report.json().unwrap(),
        report.csv().unwrap(),
        report.markdown(),
    ];
    let reasons = [
        &facts.gains.reason(),
        &facts.predictions.reason(),
        &facts.regret.reason(),
        &facts.events.reason(),
    ];
    let more = [&facts.quarantines.reason(), &facts.load_demo.reason()];
    for form in &forms {
        for reason in reasons.iter().chain(&more) {
            assert!(form.contains(reason.unwrap()), "{reason:?} in {form}");
        }
    }
    assert!(forms[0].contains("this machine was not calibrated"));
    assert!(report.words()[0].starts_with("Nothing was measured yet on Example 3000"));
    for made_up in ["NaN", "inf", "×0.00"] {
        assert!(
            forms.iter().all(|form| !form.contains(made_up)),
            "{made_up}"
        );
    }
}

#[test]
fn the_summary_follows_from_the_facts() {
    let facts = few();
    let report = Report::of(&facts);
    let words = report.words().join("\n");
    assert!(
        words.contains("2 workloads of 1 operation were measured with 2 kernels"),
        "{words}"
    );
    assert!(
        words.contains("3 win somewhere; on 33 % of the workloads"),
        "{words}"
    );
    assert!(
        words.contains("1.131 times as long (90 % interval 1.117 to 1.145), a clear gain"),
        "{words}"
    );
    assert!(
        words.contains("never more than their budget of 490 ms; all calls together took"),
        "{words}"
    );
    assert!(
        words.contains("7 changes were noticed while watching, the worst of them critical"),
        "{words}"
    );
    assert!(words.contains("1 kernel is quarantined"), "{words}");
}

#[test]
fn markdown_reads_like_this() {
    insta::assert_snapshot!(Report::of(&few()).markdown());
}
