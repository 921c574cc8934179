//! The page in a real browser: sorted, pointed at, switched to dark, narrowed, and looked at by axe.
//!
//! Needs Chromium, Node.js and two packages for it, which are installed under the target directory by the lock file beside the
//! script. Where one of these is missing the test says so, unless `KERNELWISE_REQUIRE` names `chromium`.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

#[allow(dead_code, reason = "each test uses a part of it")]
mod made;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kernelwise_report::{Report, write};
use kernelwise_types::Reading;

/// The first program of these names that can be started.
fn program(names: &[&'static str]) -> Option<&'static str> {
    let starts = |name: &&&str| {
        Command::new(name)
            .arg("--version")
            .output()
            .is_ok_and(|out| out.status.success())
    };
    names.iter().find(starts).copied()
}

/// The packages that the script drives the browser with, installed once for each lock file.
fn modules(target: &Path) -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
    let dir = target.join("report-browser");
    let lock = fs::read(script.join("package-lock.json")).unwrap();
    let done = dir.join("installed.json");
    if fs::read(&done).is_ok_and(|installed| installed == lock) {
        return Ok(dir);
    }
    fs::create_dir_all(&dir).unwrap();
    for name in ["package.json", "package-lock.json"] {
        fs::copy(script.join(name), dir.join(name)).unwrap();
    }
    let npm = Command::new("npm")
        .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
        .current_dir(&dir)
        .output();
    let npm = npm.map_err(|error| format!("npm does not start: {error}"))?;
    if !npm.status.success() {
        return Err(format!(
            "npm ci failed: {}",
            String::from_utf8_lossy(&npm.stderr)
        ));
    }
    fs::write(done, lock).unwrap();
    Ok(dir)
}

#[test]
fn a_reader_can_use_the_page() {
    let Some(chromium) = program(&["chromium", "chromium-browser", "google-chrome"]) else {
        return kernelwise_testing::skip(
            "chromium",
            "no chromium can be started (Debian package chromium)",
        );
    };
    let Some(node) = program(&["node", "nodejs"]) else {
        return kernelwise_testing::skip(
            "chromium",
            "no Node.js to drive it with (Debian packages nodejs and npm)",
        );
    };
    // Temporary files of tests are in the target directory.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .unwrap()
        .to_owned();
    let modules = match modules(&target) {
        Ok(modules) => modules,
        Err(why) => return kernelwise_testing::skip("chromium", &why),
    };
    let screenshots = target.join("report-screenshots");
    fs::create_dir_all(&screenshots).unwrap();

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

    // The script wants the place of the program, not its name.
    let which = Command::new("sh")
        .args(["-c", &format!("command -v {chromium}")])
        .output()
        .unwrap();
    let asked = serde_json::json!({
        "modules": modules,
        "browser": String::from_utf8_lossy(&which.stdout).trim(),
        "page": pages[0],
        "small": pages[1],
        "big": pages[2],
        "hostile": pages[3],
        "screenshots": screenshots,
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/check.mjs");
    let seen = Command::new(node)
        .arg(script)
        .arg(asked.to_string())
        .output()
        .unwrap();
    let (said, complained) = (
        String::from_utf8_lossy(&seen.stdout),
        String::from_utf8_lossy(&seen.stderr),
    );
    assert!(seen.status.success(), "{said}\n{complained}");
    for name in ["light", "dark", "narrow"] {
        let picture = fs::metadata(screenshots.join(format!("{name}.png"))).unwrap();
        assert!(picture.len() > 10_000, "{name} is a picture");
    }
}
