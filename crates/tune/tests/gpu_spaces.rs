//! The GPU model's first recommendation on spaces that somebody measured, if the records are there.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use kernelwise_tune::gpu::{JudgeError, judge};
use kernelwise_tune::recorded::Record;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/tuning-spaces");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        kernelwise_testing::skip(
            "recorded_spaces",
            &format!("{} is not there", folder.display()),
        );
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}

#[test]
fn the_first_recommendation_is_better_than_the_median_configuration() {
    for file in files() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let record = Record::open(&file).unwrap();
        // Records from this device do not name it.
        let named = name.contains("MI250X").then_some("mi250x");
        let judged = judge(&record, named).unwrap();
        assert!(judged.measured_s.is_some(), "{name}: {judged:?}");
        assert!(
            judged.fraction_of_optimum > judged.median_fraction,
            "{name}: {judged:?}"
        );
    }
}

#[test]
fn what_the_model_does_not_know_is_said() {
    let record = |keys: &str, device: &str| {
        let text = format!(
            r#"{{"device_name": "{device}", "kernel_name": "k", "problem_size": [64, 64], "tune_params_keys": ["{keys}"],
               "tune_params": {{"{keys}": [1, 2]}}, "cache": {{"1": {{"time": 2.0}}, "2": {{"time": 1.0}}}}}}"#
        );
        Record::read(text.as_bytes()).unwrap()
    };
    assert!(matches!(
        judge(&record("x", "NVIDIA RTX A4000"), None),
        Err(JudgeError::Parameters { .. })
    ));
    assert!(matches!(
        judge(&record("block_size_x", "abacus"), None),
        Err(JudgeError::Device(_))
    ));
    assert!(matches!(
        judge(&record("block_size_x", ""), Some("webgpu-default")),
        Err(JudgeError::Rates(_))
    ));
    let judged = judge(&record("block_size_x", ""), Some("a4000")).unwrap();
    assert_eq!(
        (judged.fraction_of_optimum, judged.median_fraction),
        (1.0, 1.0)
    );
}
