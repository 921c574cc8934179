//! The policy for what this workspace is built from: licences that allow any use, one registry, no
//! pre-releases. Reads the lock file's view of the world, without network.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Licences that may stand in a dependency's expression.
const ALLOWED: &[&str] = &[
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Whether the expression can be met with allowed licences alone. Old packages write `/` for OR.
fn acceptable(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ").replace(['(', ')'], "");
    expression
        .split(" AND ")
        .all(|all| all.split(" OR ").any(|one| ALLOWED.contains(&one.trim())))
}

/// The licence of a package that names a file instead of an expression.
fn in_its_file(package: &Value) -> Option<String> {
    let manifest = Path::new(package["manifest_path"].as_str()?);
    let file = manifest.with_file_name(package["license_file"].as_str()?);
    let text = std::fs::read_to_string(file).ok()?;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_apache =
        lines.next() == Some("Apache License") && lines.next()?.starts_with("Version 2.0");
    is_apache.then(|| "Apache-2.0".to_owned())
}

fn packages() -> Vec<Value> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version=1",
            "--locked",
            "--all-features",
            "--manifest-path",
        ])
        .arg(manifest)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

#[test]
fn licences_allow_any_use_and_sources_are_the_registry() {
    let packages = packages();
    assert!(packages.len() > 20, "the list is that of the workspace");
    for package in packages {
        let name = format!("{} {}", package["name"], package["version"]);
        let stated = package["license"].as_str().map(str::to_owned);
        let licence = stated.or_else(|| in_its_file(&package));
        let licence = licence.unwrap_or_else(|| "none stated".to_owned());
        assert!(acceptable(&licence), "{name} is licensed {licence}");
        if let Some(source) = package["source"].as_str() {
            assert!(
                source.starts_with("registry+"),
                "{name} comes from {source}"
            );
        }
    }
}

#[test]
fn expressions_are_read_as_written() {
    for good in [
        "MIT",
        "MIT OR Apache-2.0",
        "MIT/Apache-2.0",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "GPL-3.0 OR MIT",
    ] {
        assert!(acceptable(good), "{good}");
    }
    for bad in ["GPL-3.0", "MIT AND GPL-3.0", "none stated", ""] {
        assert!(!acceptable(bad), "{bad}");
    }
}
