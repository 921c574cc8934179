//! `tune --queue`, `worker` and `sync` with a real server.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

#[path = "../../store/tests/server/mod.rs"]
mod server;
mod typed;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use server::Server;
use typed::{kernelwise, text, words};

fn with(server: &Server, records: &Path, words: &[&str]) -> Command {
    let mut command = kernelwise(records, words);
    command.env("KERNELWISE_DATABASE_URL", server.url("owner"));
    command
}

fn answer(server: &Server, records: &Path, words: &[&str]) -> Value {
    let words = [words, &["--format", "json"]].concat();
    let Output {
        status,
        stdout,
        stderr,
    } = with(server, records, &words).output().unwrap();
    assert!(status.success(), "{words:?}: {}", text(&stderr));
    serde_json::from_str(text(&stdout)).unwrap()
}

#[test]
fn workers_measure_what_is_put_and_a_killed_one_loses_nothing() {
    let Some(server) = Server::start() else {
        return;
    };
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (here, there) = (here.path(), there.path());
    let put = [
        "tune",
        "matmul",
        "--shape",
        "64x64x64",
        "--kernel",
        "cpu-matmul-f32-packed-portable",
        "--budget",
        "10",
        "--time-budget",
        "3",
        "--queue",
    ];
    let queued = answer(&server, here, &[&put[..], &["--detach"]].concat());
    assert_eq!(queued["schema"], "kernelwise.tune_queue/1");
    assert_eq!(
        (&queued["put"], &queued["waiting"]),
        (&10.into(), &10.into())
    );
    // One that is killed in the middle gives its job to another after the lease.
    let mut killed = with(&server, there, &["worker", "--lease", "1"])
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(900));
    killed.kill().unwrap();
    killed.wait().unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    answer(&server, there, &["worker", "--until-empty", "--lease", "5"]);
    let told = answer(&server, here, &put);
    assert_eq!(
        (&told["put"], &told["done"]),
        (&0.into(), &10.into()),
        "{told}"
    );
    assert!(told["best"]["time_ns"].as_f64().unwrap() > 0.0);
    // Every job counts once, whoever finished it.
    assert_eq!(
        server.count("SELECT count(*) FROM kernelwise.job WHERE state = 'done'"),
        10
    );
    answer(&server, here, &["sync"]);
    let listed = answer(&server, here, &["cache", "list", "--op", "matmul"]);
    assert_eq!(listed["series"].as_array().unwrap().len(), 10, "{listed}");
}

/// Whoever waits searches: jobs are put as results come in, not all at once, and no more than the budget.
#[test]
fn whoever_waits_decides_what_is_measured_next() {
    let Some(server) = Server::start() else {
        return;
    };
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let put = [
        "tune",
        "matmul",
        "--shape",
        "64x64x64",
        "--kernel",
        "cpu-matmul-f32-packed-portable",
        "--budget",
        "8",
        "--time-budget",
        "3",
        "--queue",
        "--format",
        "json",
    ];
    let waits = with(&server, here.path(), &put)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let jobs = || server.count("SELECT count(*) FROM kernelwise.job");
    let mut looks = 0;
    while server.count("SELECT count(*) FROM pg_tables WHERE tablename = 'job'") == 0 || jobs() < 2
    {
        std::thread::sleep(Duration::from_millis(100));
        looks += 1;
        assert!(looks < 600, "nothing was put");
    }
    // Without a worker it does not go on.
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(jobs(), 2);
    let mut worker = with(&server, there.path(), &["worker"]).spawn().unwrap();
    let Output { status, stdout, .. } = waits.wait_with_output().unwrap();
    worker.kill().unwrap();
    worker.wait().unwrap();
    assert!(status.success());
    let told: Value = serde_json::from_str(text(&stdout)).unwrap();
    // One is kept back for finalists, which there need not be.
    let put = told["put"].as_i64().unwrap();
    assert!((7..=8).contains(&put) && told["done"] == put, "{told}");
    assert!(told["best"]["time_ns"].as_f64().unwrap() > 0.0);
    assert_eq!(jobs(), put);
}

/// Whoever waits and whoever works say once that the server is away, wait for it, and go on when it is back.
#[test]
fn a_server_that_is_restarted_is_waited_for() {
    let Some(mut server) = Server::start() else {
        return;
    };
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let put = words(
        "tune matmul --shape 64x64x64 --kernel cpu-matmul-f32-packed-portable --budget 12 --time-budget 3 --queue --format json",
    );
    let said = |dir: &Path| dir.join("said");
    let quietly = |dir: &Path, words: &[&str]| {
        let mut command = with(&server, dir, words);
        let file = std::fs::File::create(said(dir)).unwrap();
        command.stdout(Stdio::piped()).stderr(file).spawn().unwrap()
    };
    let waits = quietly(here.path(), &put);
    let mut works = quietly(there.path(), &["worker", "--lease", "5"]);
    let until = |what: &str, holds: &dyn Fn() -> bool| {
        for _ in 0..1200 {
            if holds() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{what}");
    };
    let there_is = "SELECT count(*) FROM pg_tables WHERE tablename = 'job'";
    until("tables are made", &|| server.count(there_is) == 1);
    let done = "SELECT count(*) FROM kernelwise.job WHERE state = 'done'";
    until("two jobs are done", &|| server.count(done) >= 2);
    server.stop();
    let notes = |dir: &Path, words: &str| {
        let text = std::fs::read_to_string(said(dir)).unwrap();
        text.matches(words).count()
    };
    for dir in [here.path(), there.path()] {
        until("it is noticed", &|| {
            notes(dir, "waiting until it answers") > 0
        });
    }
    server.run();
    let Output { status, stdout, .. } = waits.wait_with_output().unwrap();
    let said_here = std::fs::read_to_string(said(here.path())).unwrap();
    assert!(status.success(), "{said_here}");
    assert!(works.try_wait().unwrap().is_none(), "the worker goes on");
    works.kill().unwrap();
    works.wait().unwrap();
    for dir in [here.path(), there.path()] {
        assert_eq!(notes(dir, "waiting until it answers"), 1);
        assert_eq!(notes(dir, "the server is back"), 1);
    }
    let told: Value = serde_json::from_str(text(&stdout)).unwrap();
    assert_eq!(told["done"], told["put"], "{told}");
    assert_eq!(told["poisoned"], 0);
    // Nothing counts twice.
    let twice = "SELECT count(*) FROM kernelwise.series
        WHERE origin IN (SELECT origin FROM kernelwise.series GROUP BY origin HAVING count(*) > 1)";
    assert_eq!(server.count(twice), 0);
}
