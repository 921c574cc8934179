//! The page that the program makes of what it learned, in a real browser: the pages of `kernelwise-report`'s own tests are made up.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

mod typed;

use std::fs;
use std::path::Path;

use kernelwise_testing::browser::Browser;
use typed::{json, run, text};

const LEARN: [&str; 9] = [
    "learn",
    "--op",
    "matmul",
    "--op",
    "copy",
    "--effort",
    "minimal",
    "--time-budget",
    "30",
];

#[test]
fn a_reader_can_use_the_page_of_the_program() {
    // Temporary files of tests are in the target directory.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let Some(browser) = Browser::find(target) else {
        return;
    };
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let learned = run(records, &LEARN);
    assert!(learned.status.success(), "{}", text(&learned.stderr));
    let page = browser.screenshots().join("real.html");
    fs::copy(records.join("report.html"), &page).unwrap();
    if let Err(complaint) = browser.run("real.mjs", &[("page", &page)]) {
        panic!("{complaint}");
    }
    for name in ["real-light", "real-dark", "real-narrow"] {
        let picture = fs::metadata(browser.screenshots().join(format!("{name}.png"))).unwrap();
        assert!(picture.len() > 10_000, "{name} is a picture");
    }
}

#[test]
fn what_disturbed_learning_is_on_the_page() {
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let words = [
        "learn",
        "--op",
        "copy",
        "--effort",
        "minimal",
        "--time-budget",
        "8",
    ];
    let learned = json(records, &words);
    assert_eq!(
        learned["report"].as_str().unwrap(),
        records.join("report.html").to_str().unwrap()
    );
    let report = json(records, &["report"]);
    assert!(report["state"]["value"].is_object(), "{}", report["state"]);
    let list = |name: &str| {
        let list = report[name].as_array().unwrap().iter();
        let list: Vec<String> = list.map(|one| one.as_str().unwrap().to_owned()).collect();
        list.join("\n")
    };
    // What a run says of its own noise is what the page says.
    let noise = &learned["noise"];
    let (races, beside) = (
        noise["races"].as_u64().unwrap(),
        noise["races_beside_others"].as_u64().unwrap(),
    );
    let said = format!("others kept processors busy during {beside} of {races} races");
    assert_eq!(
        list("warnings").contains(&said),
        10 * beside > races,
        "{said}: {}",
        list("warnings")
    );
    let page = fs::read_to_string(records.join("report.html")).unwrap();
    assert_eq!(
        page.contains("No warnings were recorded."),
        list("warnings").is_empty()
    );
    let conditions = list("conditions");
    for part in ["times were taken", "OpenBLAS", "seed 1", "threads"] {
        assert!(conditions.contains(part), "{part} in {conditions}");
    }
    // Only what left a record is named.
    assert_eq!(
        list("commands"),
        "kernelwise learn --op copy --effort minimal --time-budget 8\nkernelwise report"
    );
    assert!(!page.contains("kernelwise report</code>"));
}

#[test]
fn without_a_directory_for_records_the_page_is_here() {
    let here = tempfile::tempdir().unwrap();
    let words = [
        "learn",
        "--op",
        "copy",
        "--effort",
        "minimal",
        "--time-budget",
        "8",
        "--format",
        "json",
    ];
    let output = typed::kernelwise(Path::new("/proc/kernelwise"), &words)
        .current_dir(here.path())
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    for part in [
        "the report is written to this one",
        "fitting models",
        "making the report",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let learned: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let page = here.path().join("report.html");
    let told = Path::new(learned["report"].as_str().unwrap());
    assert_eq!(
        fs::canonicalize(told).unwrap(),
        fs::canonicalize(&page).unwrap()
    );
    assert!(fs::read_to_string(page).unwrap().contains("cpu-copy-f32-"));
}
