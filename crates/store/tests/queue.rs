//! Tuning jobs on a PostgreSQL server, with workers that are killed.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test
#![cfg(unix)]

mod server;
mod shared;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use kernelwise_store::fleet::{Fleet, FleetOptions, JobResult, MOST_ATTEMPTS};
use kernelwise_store::{Happened, Statistics};
use kernelwise_types::units::Nanos;
use serde_json::{Value, json};
use server::{Proxy, Server};
use shared::{NOW_S, key};

const URL: &str = "KERNELWISE_TEST_URL";
const WORKER: &str = "KERNELWISE_TEST_WORKER";
const LEASE: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(600);

fn connect(url: &str) -> Fleet {
    Fleet::connect(&FleetOptions::new(url)).unwrap()
}

fn measured(ns: f64) -> Statistics {
    let mut statistics = Statistics::default();
    statistics.push(Happened::Timed(Nanos::new(ns).unwrap()), NOW_S);
    statistics
}

fn specs(count: u32) -> Vec<Value> {
    (0..count).map(|i| json!({"tile": i})).collect()
}

fn key_of(spec: &Value) -> kernelwise_store::SeriesKey {
    key(&format!("w{}", spec["tile"]), "cpu-k")
}

#[test]
fn a_job_is_taken_once_and_its_result_counts_once() {
    let Some(server) = Server::start() else {
        return;
    };
    let url = server.url("owner");
    let (mut a, mut b) = (connect(&url), connect(&url));
    assert_eq!(a.put_jobs("s", &specs(2)).unwrap(), 2);
    assert_eq!(
        a.put_jobs("s", &specs(3)).unwrap(),
        1,
        "two are there already"
    );
    assert_eq!(a.put_jobs("other", &specs(3)).unwrap(), 3);
    let first = a.take_job("s", "a", LONG).unwrap().unwrap();
    let second = b.take_job("s", "b", LONG).unwrap().unwrap();
    let third = b.take_job("s", "b", LONG).unwrap().unwrap();
    assert_eq!(
        [&first.spec, &second.spec, &third.spec],
        [&specs(3)[0], &specs(3)[1], &specs(3)[2]]
    );
    assert_eq!(a.take_job("s", "a", LONG).unwrap(), None);
    assert!(a.renew_job(&first, LONG).unwrap());

    let (key, statistics) = (key_of(&first.spec), measured(100.0));
    assert!(a.finish_job(&first, key.clone(), statistics).unwrap());
    assert!(!a.finish_job(&first, key.clone(), statistics).unwrap());
    assert!(!a.renew_job(&first, LONG).unwrap());
    let counts = a.job_counts("s").unwrap();
    assert_eq!((counts.waiting, counts.leased, counts.done), (0, 2, 1));
    let results = a.job_results("s").unwrap();
    assert_eq!(results.len(), 1);
    assert_eq!(results[0].spec, first.spec);
    let record = results[0].record.as_ref().unwrap();
    assert_eq!((&record.key, record.statistics), (&key, statistics));
    assert_eq!(server.count("SELECT count(*) FROM kernelwise.series"), 1);
}

#[test]
fn a_worker_that_lost_its_lease_cannot_finish() {
    let Some(server) = Server::start() else {
        return;
    };
    let mut fleet = connect(&server.url("owner"));
    fleet.put_jobs("s", &specs(1)).unwrap();
    let late = fleet
        .take_job("s", "late", Duration::ZERO)
        .unwrap()
        .unwrap();
    let prompt = fleet.take_job("s", "prompt", LONG).unwrap().unwrap();
    assert_eq!((late.attempt, prompt.attempt), (1, 2));
    assert!(!fleet.renew_job(&late, LONG).unwrap());
    assert!(
        !fleet
            .finish_job(&late, key_of(&late.spec), measured(1.0))
            .unwrap()
    );
    assert!(!fleet.fail_job(&late, "too late").unwrap());
    assert!(
        fleet
            .finish_job(&prompt, key_of(&prompt.spec), measured(2.0))
            .unwrap()
    );
    let results = fleet.job_results("s").unwrap();
    let record = results[0].record.as_ref().unwrap();
    assert_eq!(record.statistics, measured(2.0));
}

#[test]
fn what_fails_too_often_is_poisoned() {
    let Some(server) = Server::start() else {
        return;
    };
    let mut fleet = connect(&server.url("owner"));
    fleet.put_jobs("fails", &specs(1)).unwrap();
    fleet.put_jobs("vanishes", &specs(1)).unwrap();
    for attempt in 1..=MOST_ATTEMPTS {
        let job = fleet.take_job("fails", "w", LONG).unwrap().unwrap();
        assert_eq!(job.attempt, attempt);
        assert!(fleet.fail_job(&job, "does not compile").unwrap());
        assert!(
            fleet
                .take_job("vanishes", "w", Duration::ZERO)
                .unwrap()
                .is_some()
        );
    }
    for search in ["fails", "vanishes"] {
        assert_eq!(fleet.take_job(search, "w", LONG).unwrap(), None);
        assert_eq!(fleet.job_counts(search).unwrap().poisoned, 1, "{search}");
        let results = fleet.job_results(search).unwrap();
        assert!(
            matches!(&results[..], [JobResult { record: None, .. }]),
            "{search}"
        );
    }
}

#[test]
fn a_result_whose_commit_was_not_heard_of_counts_once() {
    let Some(server) = Server::start() else {
        return;
    };
    let mut fleet = connect(&server.url("owner"));
    fleet.put_jobs("s", &specs(1)).unwrap();
    // Taking is the first commit, finishing the second.
    let proxy = Proxy::cutting_at(server.port, 2);
    let through = server
        .url("owner")
        .replace(&server.port.to_string(), &proxy.port.to_string());
    let mut cut = connect(&through);
    let job = cut.take_job("s", "w", LONG).unwrap().unwrap();
    assert!(
        cut.finish_job(&job, key_of(&job.spec), measured(5.0))
            .is_err()
    );
    let mut again = connect(&through);
    assert!(
        !again
            .finish_job(&job, key_of(&job.spec), measured(5.0))
            .unwrap()
    );
    assert_eq!(fleet.job_counts("s").unwrap().done, 1);
    assert_eq!(server.count("SELECT count(*) FROM kernelwise.series"), 1);
}

#[test]
#[ignore = "a process of the test below"]
fn child_works() {
    let mut fleet = connect(&std::env::var(URL).unwrap());
    let worker = std::env::var(WORKER).unwrap();
    while let Some(job) = fleet.take_job("s", &worker, LEASE).unwrap() {
        say("took");
        fleet
            .finish_job(&job, key_of(&job.spec), measured(7.0))
            .unwrap();
    }
    say("nothing left");
}

fn say(line: &str) {
    let mut out = std::io::stdout();
    out.write_all(format!("\n{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

#[test]
fn killed_workers_lose_no_job_and_double_none() {
    const JOBS: u32 = 300;
    let Some(server) = Server::start() else {
        return;
    };
    let mut fleet = connect(&server.url("owner"));
    fleet.put_jobs("s", &specs(JOBS)).unwrap();
    let work = |number: usize, patience: Option<usize>| {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "child_works"])
            .env(URL, server.url("owner"))
            .env(WORKER, format!("worker {number}"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut taken = 0;
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        for line in lines.map_while(Result::ok) {
            taken += usize::from(line == "took");
            if Some(taken) == patience {
                // Somewhere between taking and finishing.
                process.kill().unwrap();
                break;
            }
        }
        process.wait().unwrap();
    };
    std::thread::scope(|scope| {
        for lane in 0..2 {
            let work = &work;
            scope.spawn(move || {
                for kill in 0..8 {
                    work(10 * lane + kill, Some(3 + 2 * kill));
                }
            });
        }
    });
    // Leases of the killed run out; the last worker finds all that is left.
    let mut number = 100;
    while fleet.job_counts("s").unwrap().done < u64::from(JOBS) {
        work(number, None);
        number += 1;
        assert!(number < 10_000, "{:?}", fleet.job_counts("s").unwrap());
    }
    assert_eq!(fleet.job_results("s").unwrap().len(), JOBS as usize);
    let sum = "SELECT sum((statistics::json->>'timed')::bigint)::bigint FROM kernelwise.series";
    assert_eq!(server.count(sum), i64::from(JOBS));
}
