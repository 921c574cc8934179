//! Tuning jobs on a PostgreSQL server, with workers that are killed.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test
#![cfg(unix)]

mod server;
mod shared;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use kernelwise_store::fleet::{Fleet, FleetOptions, JobResult, MOST_ATTEMPTS, SEARCHES_AT_ONCE};
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
    let results = a.job_results("s", 0).unwrap();
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
    let results = fleet.job_results("s", 0).unwrap();
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
        let results = fleet.job_results(search, 0).unwrap();
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
    let through = server.url_through(&proxy);
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
    assert!(again.was_finished(&job).unwrap(), "and it was this worker");
    assert_eq!(fleet.job_counts("s").unwrap().done, 1);
    assert_eq!(server.count("SELECT count(*) FROM kernelwise.series"), 1);
}

#[test]
fn a_job_that_was_taken_without_hearing_of_it_is_given_back() {
    let Some(server) = Server::start() else {
        return;
    };
    let mut fleet = connect(&server.url("owner"));
    fleet.put_jobs("s", &specs(1)).unwrap();
    let proxy = Proxy::cutting_at(server.port, 1);
    let mut cut = connect(&server.url_through(&proxy));
    let error = cut.take_job("s", "w", LONG).unwrap_err();
    assert!(error.is_temporary(), "{error:?}");
    assert_eq!(fleet.take_job("s", "other", LONG).unwrap(), None);
    assert_eq!(fleet.release_unheard("s", "other").unwrap(), 0);
    assert_eq!(fleet.release_unheard("s", "w").unwrap(), 1);
    let job = fleet.take_job("s", "w", LONG).unwrap().unwrap();
    assert_eq!(job.attempt, 1, "it does not count as a failure");
}

/// Large results come in pages that are bounded in bytes, and later ones by their number.
#[test]
fn results_are_read_page_by_page() {
    let Some(server) = Server::start() else {
        return;
    };
    let mut fleet = connect(&server.url("owner"));
    // 400 jobs of 60 kB are 24 MB.
    let specs: Vec<Value> = (0..400)
        .map(|i| json!({"tile": i, "ballast": "x".repeat(60_000)}))
        .collect();
    fleet.put_jobs("s", &specs).unwrap();
    fleet.put_jobs("other", &specs[..1]).unwrap();
    let first = fleet.take_job("s", "w", LONG).unwrap().unwrap();
    server
        .admin()
        .batch_execute(
            "UPDATE kernelwise.job SET state = 'poisoned' WHERE state = 'waiting' AND search = 's'",
        )
        .unwrap();
    let (mut after, mut pages, mut seen) = (0, 0, Vec::new());
    loop {
        let page = fleet.job_results("s", after).unwrap();
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 8 * 1_048_576 / 60_000, "{}", page.len());
        (after, pages) = (last.id, pages + 1);
        seen.extend(page.into_iter().map(|result| result.spec["tile"].clone()));
    }
    let expected: Vec<Value> = (1..400).map(Value::from).collect();
    assert_eq!((pages, seen), (3, expected));
    // The first one ends behind the reader's back.
    let id = fleet.job_id("s", &specs[0]).unwrap().unwrap();
    assert_eq!(fleet.job_id("s", &json!("no such job")).unwrap(), None);
    assert_eq!(fleet.results_of(&[id]).unwrap(), []);
    let open = fleet.open_jobs("s").unwrap();
    assert_eq!((open.waiting, open.leased), (vec![], vec![id]));
    let key = key_of(&first.spec);
    assert!(fleet.finish_job(&first, key, measured(3.0)).unwrap());
    assert_eq!(fleet.job_results("s", after).unwrap(), []);
    let results = fleet.results_of(&[id]).unwrap();
    assert!(results[0].record.is_some() && results[0].spec["tile"] == 0);
}

#[test]
fn searches_are_named_page_by_page() {
    let Some(server) = Server::start() else {
        return;
    };
    let mut fleet = connect(&server.url("owner"));
    let sql = "INSERT INTO kernelwise.job (search, content, spec)
        SELECT 's' || to_char(i % 1500, 'FM0000'), decode(md5(i::text) || md5(i::text), 'hex'), '1'
        FROM generate_series(1, 3000) AS i";
    server.admin().batch_execute(sql).unwrap();
    let first = fleet.open_searches(None).unwrap();
    assert_eq!((first.len(), &*first[999]), (SEARCHES_AT_ONCE, "s0999"));
    let rest = fleet.open_searches(Some(&first[999])).unwrap();
    assert_eq!((rest.len(), &*rest[0]), (500, "s1000"));
    assert_eq!(
        fleet.open_searches(Some("s1499")).unwrap(),
        Vec::<String>::new()
    );
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
    assert_eq!(fleet.job_results("s", 0).unwrap().len(), JOBS as usize);
    let sum = "SELECT sum((statistics::json->>'timed')::bigint)::bigint FROM kernelwise.series";
    assert_eq!(server.count(sum), i64::from(JOBS));
}
