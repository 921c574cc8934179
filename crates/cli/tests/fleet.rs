//! What `tune --queue`, `worker` and `sync` say, with a real server.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

#[path = "../../store/tests/server/mod.rs"]
mod server;
mod typed;

use std::path::Path;

use server::{Certificate, Server, encrypted};
use typed::{Fields, Outline, kernelwise, text, words};

fn answer(server: &Server, records: &Path, line: &str) -> String {
    let mut command = kernelwise(records, &words(line));
    command.env("KERNELWISE_DATABASE_URL", server.url("owner"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

#[test]
fn what_the_fleet_says() {
    let Some(server) = Server::start() else {
        return;
    };
    let records = tempfile::tempdir().unwrap();
    let records = records.path();
    let put = "tune matmul --shape 32x32x32 --kernel cpu-matmul-f32-packed-portable --budget 2 --time-budget 1 --queue";
    let detached = format!("{put} --detach");
    let worker = "worker --until-empty --lease 5";
    // In this order: what is put is measured, fetched, and shared.
    for (name, table, json, varies) in [
        ("tune_queue", &*detached, &*detached, &["best"][..]),
        ("worker", worker, worker, &[]),
        (
            "sync_preview",
            "sync --preview",
            "sync --preview",
            &["first_out", "out"],
        ),
        ("sync", "sync", "sync", &[]),
    ] {
        let table = Outline::of(&answer(&server, records, table)).cut(&["<kernel>", "{"]);
        let json = answer(&server, records, &format!("{json} --format json"));
        let json = serde_json::from_str(&json).unwrap();
        let told = format!(
            "{table}\n--format json\n{}",
            Fields::of(&json).varies(varies)
        );
        insta::assert_snapshot!(name, told);
    }
}

#[test]
fn a_preview_needs_no_server() {
    let records = tempfile::tempdir().unwrap();
    let preview = |url: &str| -> serde_json::Value {
        let mut command = kernelwise(records.path(), &words("sync --preview --format json"));
        let output = command
            .env("KERNELWISE_DATABASE_URL", url)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_str(text(&output.stdout)).unwrap()
    };
    let unnamed = preview("");
    assert_eq!(unnamed["server"], "unnamed");
    // That of this machine.
    assert_eq!(
        (
            &unnamed["notes_out"],
            unnamed["out"].as_array().unwrap().len()
        ),
        (&1.into(), 1)
    );
    let away = preview("postgresql://owner@127.0.0.1:1/nobody");
    assert_eq!(
        (&away["server"], &away["out"]),
        (&"away".into(), &unnamed["out"])
    );
    assert!(away["trouble"].as_str().unwrap().contains("127.0.0.1:1"));
}

#[test]
fn an_authority_is_named_by_the_environment() {
    let Some((server, pem)) = encrypted(Certificate::Signed) else {
        return;
    };
    let records = tempfile::tempdir().unwrap();
    let authority = records.path().join("authority.pem");
    std::fs::write(&authority, pem).unwrap();
    let url = server.url("owner").replace("?sslmode=disable", "");
    let sync = |authority: Option<&Path>| {
        let mut command = kernelwise(records.path(), &["sync"]);
        command.env("KERNELWISE_DATABASE_URL", &url);
        match authority {
            Some(path) => command.env("KERNELWISE_DATABASE_CA", path),
            None => command.env_remove("KERNELWISE_DATABASE_CA"),
        };
        let output = command.output().unwrap();
        (output.status.code(), text(&output.stderr).to_owned())
    };
    let (code, said) = sync(None);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("KERNELWISE_DATABASE_CA"), "{said}");
    let (code, said) = sync(Some(&authority));
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = sync(Some(&records.path().join("missing.pem")));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("missing.pem"), "{said}");
}
