//! The page in a real browser: sorted, pointed at, switched to dark, narrowed, and looked at by axe.
//!
//! Needs Chromium, Node.js and two packages for it ([`kernelwise_testing::browser`]). Where one of these is missing the test says so,
//! unless `KERNELWISE_REQUIRE` names `chromium`. Pages and pictures are left in `report-screenshots` of the target directory.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

#[allow(dead_code, reason = "each test uses a part of it")]
mod made;

use std::fs;
use std::path::{Path, PathBuf};

use kernelwise_report::{Report, write};
use kernelwise_testing::browser::Browser;
use kernelwise_types::Reading;

#[test]
fn a_reader_can_use_the_page() {
    // Temporary files of tests are in the target directory.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let Some(browser) = Browser::find(target) else {
        return;
    };
    let screenshots = browser.screenshots();

    let mut hostile = made::facts(30, 13);
    hostile.machine.cpu.model =
        Reading::Known("</script><img src=x onerror=globalThis.harmed=1>".into());
    hostile.warnings = vec!["\"><svg onload=globalThis.harmed=1>".into()];
    let pages = [
        ("report", made::facts(700, 29)),
        ("small", made::facts(40, 37)),
        ("big", made::facts(3_000, 31)),
        ("hostile", hostile),
    ];
    let pages = pages.map(|(name, facts)| {
        let path = screenshots.join(format!("{name}.html"));
        write(&path, &Report::of(&facts).html()).unwrap();
        path
    });

    let names = ["page", "small", "big", "hostile"];
    let pages: Vec<(&str, &Path)> = names
        .into_iter()
        .zip(pages.iter().map(PathBuf::as_path))
        .collect();
    if let Err(complaint) = browser.run("check.mjs", &pages) {
        panic!("{complaint}");
    }
    for name in ["light", "dark", "narrow"] {
        let picture = fs::metadata(screenshots.join(format!("{name}.png"))).unwrap();
        assert!(picture.len() > 10_000, "{name} is a picture");
    }
}
