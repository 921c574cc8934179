//! What `tune --queue`, `worker` and `sync` say, with a real server.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

#[path = "../../store/tests/server/mod.rs"]
mod server;
mod typed;

use std::path::Path;

use server::Server;
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
