use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use crate::space::Value;

const CACHE: &str = r#"{
"device_name": "NVIDIA A100", "kernel_name": "conv", "problem_size": [4096, 4096],
"tune_params_keys": ["x", "y", "fast"],
"tune_params": {"x": [16, 32], "y": [1, 2, 4], "fast": [true, false]},
"objective": "time",
"cache": {
"16,1,True": {"x": 16, "y": 1, "fast": true, "time": 2.5, "times": [2.4, 2.6], "compile_time": 500.0,
  "verification_time": 0, "benchmark_time": 100, "strategy_time": 0, "framework_time": 1.5, "GFLOP/s": 12.5},
"32,4,False": {"x": 32, "y": 4, "fast": false, "time": "CompilationFailedConfig", "compile_time": 20.0},
"32,2,True": {"x": 32, "y": 2, "fast": true, "time": 1.25, "times": [1.25], "compile_time": null}
}}"#;

#[test]
fn a_cache_file_is_read() {
    let record = Record::read(CACHE.as_bytes()).unwrap();
    assert_eq!(
        (record.device.as_str(), record.kernel.as_str()),
        ("NVIDIA A100", "conv")
    );
    assert!(!record.cut_short);
    assert_eq!(record.entries.len(), 3);
    assert_eq!(record.best(), Some(1.25e-3));
    let first = &record.entries[0];
    assert_eq!(
        record.space.describe(&first.configuration),
        "x=16, y=1, fast=True"
    );
    assert_eq!(first.result, Ok(2.5e-3));
    assert_eq!(first.samples.len(), 2);
    assert!((first.cost.total() - 0.6015).abs() < 1e-12);
    assert_eq!(record.entries[1].result, Err(Failure::Compile));
    assert_eq!(record.entries[1].cost.total(), 0.02);
}

#[test]
fn compressed_or_cut_short_it_is_the_same() {
    let whole = Record::read(CACHE.as_bytes()).unwrap();
    let mut zipped = GzEncoder::new(Vec::new(), Compression::fast());
    zipped.write_all(CACHE.as_bytes()).unwrap();
    let record = Record::read(zipped.finish().unwrap().as_slice()).unwrap();
    assert_eq!(record.entries, whole.entries);

    let body = CACHE.strip_suffix("}\n}}").unwrap();
    for end in [
        "}",
        "},",
        "},\n",
        "}\n}",
        "},\n\"32,1,True\": {\"x\": 32, \"ti",
    ] {
        let record = Record::read(format!("{body}{end}").as_bytes()).unwrap();
        assert!(record.cut_short, "{end}");
        assert_eq!(record.entries, whole.entries, "{end}");
    }
}

#[test]
fn what_is_written_is_read_back() {
    let record = Record::read(CACHE.as_bytes()).unwrap();
    let by_name = |record: &Record| {
        let mut entries: Vec<String> = record
            .entries
            .iter()
            .map(|entry| {
                let mut pairs: Vec<String> = record
                    .space
                    .describe(&entry.configuration)
                    .split(", ")
                    .map(str::to_owned)
                    .collect();
                pairs.sort();
                format!(
                    "{pairs:?} {:?} {:?} {:?}",
                    entry.result, entry.samples, entry.cost
                )
            })
            .collect();
        entries.sort();
        entries
    };
    for as_cache in [true, false] {
        let mut bytes = Vec::new();
        match as_cache {
            true => record.write_cache(&mut bytes).unwrap(),
            false => record.write_t4(&mut bytes).unwrap(),
        }
        let back = Record::read(bytes.as_slice()).unwrap();
        assert_eq!(by_name(&back), by_name(&record));
        assert_eq!(
            (back.device, back.kernel),
            (record.device.clone(), record.kernel.clone())
        );
        assert_eq!(back.problem, record.problem);
    }
}

#[test]
fn malformed_caches_are_refused_by_name() {
    let refused = |from: &str, to: &str| {
        assert!(CACHE.contains(from));
        Record::read(CACHE.replace(from, to).as_bytes()).unwrap_err()
    };
    assert!(matches!(
        Record::read("nonsense".as_bytes()),
        Err(RecordError::Form { .. })
    ));
    assert!(matches!(
        Record::read("{}".as_bytes()),
        Err(RecordError::Form { .. })
    ));
    assert!(matches!(
        Record::read(&b"\x1f\x8bnonsense"[..]),
        Err(RecordError::File(_))
    ));
    assert!(
        matches!(refused("\"32,2,True\"", "\"32,3,True\""), RecordError::Configuration { key, .. } if key == "32,3,True")
    );
    assert!(matches!(
        refused("\"32,2,True\"", "\"32,2\""),
        RecordError::Configuration { .. }
    ));
    assert!(
        matches!(refused("\"time\": 1.25", "\"time\": -1.25"), RecordError::Time { time, .. } if time == -1.25)
    );
    assert!(matches!(
        refused("\"time\": 1.25, ", ""),
        RecordError::Form { .. }
    ));
    assert!(
        matches!(refused("\"y\": [1, 2, 4]", "\"z\": [1, 2, 4]"), RecordError::NoValues(name) if name == "y")
    );
    assert!(matches!(
        refused("\"x\": [16, 32]", "\"x\": [16, 16]"),
        RecordError::Configuration { .. } | RecordError::Space(_)
    ));
    let empty = CACHE.split("\"16,1").next().unwrap().to_owned() + "}}";
    assert!(matches!(
        Record::read(empty.as_bytes()),
        Err(RecordError::Empty)
    ));
}

#[test]
fn results_of_other_tuners_are_read() {
    let results = r#"{"schema_version": "1.0.0", "results": [
        {"timestamp": "now", "configuration": {"tile": 8, "unroll": 2}, "times": {"compilation_time": 100.0, "framework": 1,
         "search_algorithm": 2, "validation": 3, "runtimes": [5.0]}, "invalidity": "correct", "correctness": 1,
         "measurements": [{"name": "TotalDuration", "value": 5000, "unit": "us"}], "objectives": ["TotalDuration"]},
        {"configuration": {"tile": 4, "unroll": 2}, "invalidity": "timeout", "correctness": 1, "measurements": [], "objectives": ["TotalDuration"]},
        {"configuration": {"tile": 4, "unroll": 1}, "invalidity": "correctness", "correctness": 0,
         "measurements": [{"name": "TotalDuration", "value": 1, "unit": "us"}], "objectives": ["TotalDuration"]}
    ]}"#;
    let record = Record::read(results.as_bytes()).unwrap();
    let tile = &record.space.parameters()[0];
    assert_eq!(
        (tile.name.as_str(), tile.values.as_slice()),
        ("tile", &[Value::Int(4), Value::Int(8)][..])
    );
    let outcomes: Vec<_> = record.entries.iter().map(|entry| entry.result).collect();
    assert_eq!(
        outcomes,
        [Ok(5e-3), Err(Failure::Timeout), Err(Failure::Wrong)]
    );
    assert!((record.entries[0].cost.total() - 0.104).abs() < 1e-12);

    let odd = results.replace(
        "\"unit\": \"us\"}], \"objectives\": [\"TotalDuration\"]},",
        "\"unit\": \"moons\"}], \"objectives\": [\"TotalDuration\"]},",
    );
    assert!(
        matches!(Record::read(odd.as_bytes()), Err(RecordError::Unit(unit)) if unit == "moons")
    );
    let other = results.replace("{\"tile\": 4, \"unroll\": 1}", "{\"tile\": 4}");
    assert!(matches!(
        Record::read(other.as_bytes()),
        Err(RecordError::Configuration { .. })
    ));
}

#[test]
fn descriptions_become_spaces() {
    let text = r#"{"General": {"BenchmarkName": "GEMM", "OutputFormat": "JSON"},
        "ConfigurationSpace": {"TuningParameters": [
            {"Name": "MWG", "Type": "int", "Values": "[16, 32, 64]", "Default": 16},
            {"Name": "VWM", "Type": "int", "Values": [1, 2, 48]},
            {"Name": "compiler", "Type": "string", "Values": "['nvcc', \"hip\",]"},
            {"Name": "fast", "Type": "bool", "Values": "[True, False]"}],
          "Conditions": [{"Parameters": ["MWG", "VWM"], "Expression": "MWG % VWM == 0"}]},
        "KernelSpecification": {"Language": "CUDA"}}"#;
    let described = read_t1(text.as_bytes()).unwrap();
    assert_eq!(described.name, "GEMM");
    assert_eq!(described.space.points(), 36);
    assert_eq!(described.space.configurations().count(), 24);
    assert_eq!(
        described.space.parameters()[2].values,
        ["nvcc".into(), "hip".into()] as [Value; 2]
    );
    assert_eq!(
        described.space.parameters()[3].values,
        [true.into(), false.into()] as [Value; 2]
    );

    let refused = |from: &str, to: &str| read_t1(text.replace(from, to).as_bytes()).unwrap_err();
    assert!(
        matches!(refused("\"[16, 32, 64]\"", "\"range(3)\""), RecordError::Values { name, .. } if name == "MWG")
    );
    let position = refused("MWG % VWM == 0", "MWG % VVM == 0").to_string();
    assert!(
        position.contains("did you mean `VWM`?") && position.contains("at character 7"),
        "{position}"
    );
    assert!(matches!(
        refused("TuningParameters", "Parameters"),
        RecordError::Form { .. }
    ));
}

#[test]
fn what_decompresses_without_end_is_refused() {
    use std::io::Write;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&vec![b' '; 100_000]).unwrap();
    let packed = packed.finish().unwrap();
    assert!(packed.len() < 2_000);
    for most in [10, 99_999] {
        let refused = text_within(&packed[..], most);
        assert!(matches!(refused, Err(RecordError::TooLarge { most: said }) if said == most));
    }
    assert_eq!(text_within(&packed[..], 100_000).unwrap().len(), 100_000);
    // Not compressed, and cut within a character.
    let plain = "ä".repeat(50);
    assert!(matches!(
        text_within(plain.as_bytes(), 60),
        Err(RecordError::TooLarge { .. })
    ));
    assert_eq!(text_within(plain.as_bytes(), 100).unwrap(), plain);
}

#[test]
fn a_file_that_does_not_say_its_device_is_of_the_one_in_its_name() {
    let text = |device: &str| {
        format!(
            r#"{{"device_name": "{device}", "kernel_name": "k", "tune_params_keys": ["x"], "tune_params": {{"x": [1]}}, "cache": {{"1": {{"x": 1, "time": 1.0}}}}}}"#
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let device = |name: &str, said: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text(said)).unwrap();
        Record::open(&path).unwrap().device
    };
    assert_eq!(device("copy-MI250X.json", ""), "mi250x");
    assert_eq!(
        device("copy-MI250X.json", "AMD Radeon PRO W7800"),
        "AMD Radeon PRO W7800"
    );
    assert_eq!(device("copy.json", ""), "");
}
