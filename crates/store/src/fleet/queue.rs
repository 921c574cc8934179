//! Tuning jobs on the server: many machines work through one search.
//!
//! A worker takes a job under a lease and renews it while it works; who stops renewing loses the job to another. A job that ended
//! badly too often is poisoned, and stays for somebody to look at. The result of a job is a record of an origin of its own, made
//! from the job's content, and is written in the transaction that ends the job: so a job that two workers finished counts once.
//! All times are the server's.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use tokio_postgres::Row;

use super::link::Bound;
use super::sync::put_records;
use super::{Fleet, FleetError};
use crate::embedded::rows::SeriesRecord;
use crate::key::SeriesKey;
use crate::statistics::Statistics;

/// A job that was taken so often and never finished is poisoned.
pub const MOST_ATTEMPTS: i32 = 3;
/// Jobs that are put in one statement.
const BATCH: usize = 1000;
/// Results that are read at once, at most.
const RESULTS: i64 = 1000;
/// Searches that [`Fleet::open_searches`] names at once, at most.
pub const SEARCHES_AT_ONCE: usize = 1000;
/// The longest message of a failure that is kept, in characters.
const LONGEST_FAILURE: usize = 1000;

/// A job that was taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    id: i64,
    content: Vec<u8>,
    worker: String,
    /// The search it belongs to.
    pub search: String,
    /// What is to be measured, as it was put.
    pub spec: Value,
    /// Which attempt this is, from 1.
    pub attempt: i32,
}

/// What tells a job from others.
fn content(search: &str, spec: &str) -> Vec<u8> {
    let mut hash = blake3::Hasher::new();
    hash.update(&(search.len() as u64).to_le_bytes());
    hash.update(search.as_bytes()).update(spec.as_bytes());
    hash.finalize().as_bytes().to_vec()
}

impl Job {
    /// The origin that its result has.
    fn origin(&self) -> String {
        let mut hash = blake3::Hasher::new_derive_key("kernelwise.job/1");
        hash.update(&self.content);
        hash.finalize().to_hex()[..16].to_owned()
    }
}

/// How far a search is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct JobCounts {
    /// Nobody took them, or whoever did gave them back.
    pub waiting: u64,
    /// Somebody works on them, or seems to.
    pub leased: u64,
    /// Finished.
    pub done: u64,
    /// Failed too often.
    pub poisoned: u64,
}

/// The numbers of jobs that did not end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenJobs {
    /// Nobody took them, or whoever did gave them back.
    pub waiting: Vec<i64>,
    /// Somebody works on them, or seems to.
    pub leased: Vec<i64>,
}

/// A job that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct JobResult {
    /// Its number, which grows in the order in which jobs were put.
    pub id: i64,
    /// What was to be measured.
    pub spec: Value,
    /// What was measured; `None` if it failed too often.
    pub record: Option<SeriesRecord>,
}

impl Fleet {
    /// Puts the jobs of a search. What was put before, in this search, is not put again; says how many were new.
    pub fn put_jobs(&mut self, search: &str, specs: &[Value]) -> Result<u64, FleetError> {
        let sql = "INSERT INTO kernelwise.job (search, content, spec)
            SELECT $1, content, spec FROM unnest($2::bytea[], $3::text[]) AS new (content, spec)
            ON CONFLICT (content) DO NOTHING";
        let mut put = 0;
        for batch in specs.chunks(BATCH) {
            let texts: Vec<String> = batch.iter().map(Value::to_string).collect();
            let contents: Vec<Vec<u8>> = texts.iter().map(|text| content(search, text)).collect();
            let bound: Bound<'_> = &[&search, &contents, &texts];
            put += self.link.transact(|link| link.execute(sql, bound))?;
        }
        Ok(put)
    }

    /// The number of a job that was put, by whomever; `None` if it was not.
    pub fn job_id(&mut self, search: &str, spec: &Value) -> Result<Option<i64>, FleetError> {
        let sql = "SELECT id FROM kernelwise.job WHERE content = $1";
        let row = self
            .link
            .query_opt(sql, &[&content(search, &spec.to_string())])?;
        Ok(row.map(|row| row.get(0)))
    }

    /// Takes a job nobody works on, for so long. `worker` tells this worker from others: any text that is not a name of a
    /// person or host.
    pub fn take_job(
        &mut self,
        search: &str,
        worker: &str,
        lease: Duration,
    ) -> Result<Option<Job>, FleetError> {
        let poison =
            "UPDATE kernelwise.job SET state = 'poisoned', failure = 'its workers vanished'
            WHERE search = $1 AND state = 'leased' AND lease_until < now() AND attempts >= $2";
        let take = "UPDATE kernelwise.job SET state = 'leased', attempts = attempts + 1, worker = $2,
                lease_until = now() + make_interval(secs => $3)
            WHERE id = (SELECT id FROM kernelwise.job
                WHERE search = $1 AND (state = 'waiting' OR (state = 'leased' AND lease_until < now()))
                ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1)
            RETURNING id, content, spec, attempts";
        let seconds = lease.as_secs_f64();
        let row = self.link.transact(|link| {
            link.execute(poison, &[&search, &MOST_ATTEMPTS])?;
            link.query_opt(take, &[&search, &worker, &seconds])
        })?;
        Ok(row.map(|row| Job {
            id: row.get(0),
            content: row.get(1),
            worker: worker.to_owned(),
            search: search.to_owned(),
            // It was written as JSON.
            spec: serde_json::from_str(row.get(2)).unwrap_or_default(),
            attempt: row.get(3),
        }))
    }

    /// Renews the lease. `false` if the job is another's by now: stop working on it.
    pub fn renew_job(&mut self, job: &Job, lease: Duration) -> Result<bool, FleetError> {
        let sql = "UPDATE kernelwise.job SET lease_until = now() + make_interval(secs => $4)
            WHERE id = $1 AND worker = $2 AND attempts = $3 AND state = 'leased'";
        let seconds = lease.as_secs_f64();
        let bound: Bound<'_> = &[&job.id, &job.worker, &job.attempt, &seconds];
        Ok(self.link.transact(|link| link.execute(sql, bound))? == 1)
    }

    /// Ends a job with what was measured. `false` if it is another's by now, or done: then the result is not taken. Asking again
    /// after a connection was cut is safe.
    pub fn finish_job(
        &mut self,
        job: &Job,
        key: SeriesKey,
        statistics: Statistics,
    ) -> Result<bool, FleetError> {
        let sql = "UPDATE kernelwise.job SET state = 'done', result = $4, lease_until = NULL
            WHERE id = $1 AND worker = $2 AND attempts = $3 AND state = 'leased'";
        let record = SeriesRecord {
            key,
            origin: job.origin().into(),
            revision: 1,
            statistics,
        };
        let text = serde_json::to_string(&record).unwrap_or_default();
        self.link.transact(|link| {
            let ended = link.execute(sql, &[&job.id, &job.worker, &job.attempt, &text])? == 1;
            if ended {
                put_records(link, &[record])?;
            }
            Ok(ended)
        })
    }

    /// Whether this very attempt ended the job: what a worker asks when [`finish_job`](Self::finish_job) is `false` after a
    /// connection that was cut.
    pub fn was_finished(&mut self, job: &Job) -> Result<bool, FleetError> {
        let sql = "SELECT count(*) FROM kernelwise.job
            WHERE id = $1 AND worker = $2 AND attempts = $3 AND state = 'done'";
        let bound: Bound<'_> = &[&job.id, &job.worker, &job.attempt];
        Ok(self.link.query_one(sql, bound)?.get::<_, i64>(0) == 1)
    }

    /// Gives a job back that could not be done; poisons it after [`MOST_ATTEMPTS`]. `false` if it is another's by now.
    pub fn fail_job(&mut self, job: &Job, failure: &str) -> Result<bool, FleetError> {
        let sql = "UPDATE kernelwise.job SET failure = $4, lease_until = NULL,
                state = CASE WHEN attempts >= $5 THEN 'poisoned' ELSE 'waiting' END
            WHERE id = $1 AND worker = $2 AND attempts = $3 AND state = 'leased'";
        let failure: String = failure
            .chars()
            .filter(|c| *c != '\0')
            .take(LONGEST_FAILURE)
            .collect();
        let bound: Bound<'_> = &[&job.id, &job.worker, &job.attempt, &failure, &MOST_ATTEMPTS];
        Ok(self.link.transact(|link| link.execute(sql, bound))? == 1)
    }

    /// Gives a job back as if it had not been taken: somebody else may do it. `false` if it is another's by now.
    pub fn release_job(&mut self, job: &Job) -> Result<bool, FleetError> {
        let sql = "UPDATE kernelwise.job SET state = 'waiting', attempts = attempts - 1, lease_until = NULL
            WHERE id = $1 AND worker = $2 AND attempts = $3 AND state = 'leased'";
        let bound: Bound<'_> = &[&job.id, &job.worker, &job.attempt];
        Ok(self.link.transact(|link| link.execute(sql, bound))? == 1)
    }

    /// Gives back all jobs of a search that are leased to a worker; says how many. For a worker that has none: when its connection was
    /// cut while it took one, the server may have given it a job that it never heard of.
    pub fn release_unheard(&mut self, search: &str, worker: &str) -> Result<u64, FleetError> {
        let sql = "UPDATE kernelwise.job SET state = 'waiting', attempts = attempts - 1, lease_until = NULL
            WHERE search = $1 AND worker = $2 AND state = 'leased'";
        self.link
            .transact(|link| link.execute(sql, &[&search, &worker]))
    }

    /// The first [`SEARCHES_AT_ONCE`] searches after this one that have jobs to do, in order; from the first on with `None`.
    pub fn open_searches(&mut self, after: Option<&str>) -> Result<Vec<String>, FleetError> {
        let sql = "SELECT DISTINCT search FROM kernelwise.job
            WHERE (state = 'waiting' OR (state = 'leased' AND lease_until < now())) AND search > $1
            ORDER BY search LIMIT $2";
        let bound: Bound<'_> = &[&after.unwrap_or_default(), &(SEARCHES_AT_ONCE as i64)];
        let rows = self.link.query(sql, bound)?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// How far a search is.
    pub fn job_counts(&mut self, search: &str) -> Result<JobCounts, FleetError> {
        let sql = "SELECT state, count(*) FROM kernelwise.job WHERE search = $1 GROUP BY state";
        let mut counts = JobCounts::default();
        for row in self.link.query(sql, &[&search])? {
            let count = row.get::<_, i64>(1).unsigned_abs();
            match row.get(0) {
                "waiting" => counts.waiting = count,
                "leased" => counts.leased = count,
                "done" => counts.done = count,
                _ => counts.poisoned = count,
            }
        }
        Ok(counts)
    }

    /// The jobs of a search that did not end, the first 10,000 of them. Does not look at those that did, so it may be asked often.
    pub fn open_jobs(&mut self, search: &str) -> Result<OpenJobs, FleetError> {
        let sql = "SELECT id, state FROM kernelwise.job
            WHERE search = $1 AND state IN ('waiting', 'leased') ORDER BY id LIMIT 10000";
        let mut open = OpenJobs::default();
        for row in self.link.query(sql, &[&search])? {
            match row.get(1) {
                "waiting" => open.waiting.push(row.get(0)),
                _ => open.leased.push(row.get(0)),
            }
        }
        Ok(open)
    }

    /// Results of a search in the order in which the jobs were put, after the job of this number (0 for the first): at most 1000, and
    /// 8 MB. Empty at the end. Jobs end in any order: what was not there when it was passed is asked for by
    /// [`results_of`](Self::results_of).
    pub fn job_results(&mut self, search: &str, after: i64) -> Result<Vec<JobResult>, FleetError> {
        let sql = "SELECT id, spec, result FROM (
                SELECT page.*, row_number() OVER place AS number,
                    sum(500 + octet_length(spec) + coalesce(octet_length(result), 0)) OVER place AS bytes
                FROM (
                    SELECT id, spec, result FROM kernelwise.job
                    WHERE search = $1 AND id > $2 AND state IN ('done', 'poisoned')
                    ORDER BY id LIMIT $3
                ) AS page
                WINDOW place AS (ORDER BY id ROWS UNBOUNDED PRECEDING)
            ) AS weighed
            WHERE bytes <= 8388608 OR number = 1 ORDER BY id";
        let rows = self.link.query(sql, &[&search, &after, &RESULTS])?;
        Ok(rows.iter().map(result).collect())
    }

    /// The results of these jobs, as far as they ended: the first 1000 of them.
    pub fn results_of(&mut self, jobs: &[i64]) -> Result<Vec<JobResult>, FleetError> {
        let sql = "SELECT id, spec, result FROM kernelwise.job
            WHERE id = ANY($1) AND state IN ('done', 'poisoned') ORDER BY id LIMIT $2";
        let rows = self.link.query(sql, &[&jobs, &RESULTS])?;
        Ok(rows.iter().map(result).collect())
    }
}

/// A result that cannot be read counts as none: a search goes on without it.
fn result(row: &Row) -> JobResult {
    let record: Option<&str> = row.get(2);
    JobResult {
        id: row.get(0),
        spec: serde_json::from_str(row.get(1)).unwrap_or_default(),
        record: record.and_then(|record| serde_json::from_str(record).ok()),
    }
}
