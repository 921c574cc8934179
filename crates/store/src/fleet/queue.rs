//! Tuning jobs on the server: many machines work through one search.
//!
//! A worker takes a job under a lease and renews it while it works; who stops renewing loses the job to another. A job that ended
//! badly too often is poisoned, and stays for somebody to look at. The result of a job is a record of an origin of its own, made
//! from the job's content, and is written in the transaction that ends the job: so a job that two workers finished counts once.
//! All times are the server's.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::sync::put_records;
use super::{Fleet, FleetError};
use crate::embedded::rows::SeriesRecord;
use crate::key::SeriesKey;
use crate::statistics::Statistics;

/// A job that was taken so often and never finished is poisoned.
pub const MOST_ATTEMPTS: i32 = 3;
/// Jobs that are put in one statement.
const BATCH: usize = 1000;
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

/// A job that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct JobResult {
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
            let content = |text: &String| {
                let mut hash = blake3::Hasher::new();
                hash.update(&(search.len() as u64).to_le_bytes());
                hash.update(search.as_bytes()).update(text.as_bytes());
                hash.finalize().as_bytes().to_vec()
            };
            let contents: Vec<Vec<u8>> = texts.iter().map(content).collect();
            put += self.transact(|t| t.execute(sql, &[&search, &contents, &texts]))?;
        }
        Ok(put)
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
        let row = self.transact(|transaction| {
            transaction.execute(poison, &[&search, &MOST_ATTEMPTS])?;
            transaction.query_opt(take, &[&search, &worker, &seconds])
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
        let renewed =
            self.transact(|t| t.execute(sql, &[&job.id, &job.worker, &job.attempt, &seconds]))?;
        Ok(renewed == 1)
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
        self.transact(|transaction| {
            let bound: [&(dyn postgres::types::ToSql + Sync); 4] =
                [&job.id, &job.worker, &job.attempt, &text];
            let ended = transaction.execute(sql, &bound)? == 1;
            if ended {
                put_records(transaction, &[record])?;
            }
            Ok(ended)
        })
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
        let bound: [&(dyn postgres::types::ToSql + Sync); 5] =
            [&job.id, &job.worker, &job.attempt, &failure, &MOST_ATTEMPTS];
        Ok(self.transact(|t| t.execute(sql, &bound))? == 1)
    }

    /// Gives a job back as if it had not been taken: somebody else may do it. `false` if it is another's by now.
    pub fn release_job(&mut self, job: &Job) -> Result<bool, FleetError> {
        let sql = "UPDATE kernelwise.job SET state = 'waiting', attempts = attempts - 1, lease_until = NULL
            WHERE id = $1 AND worker = $2 AND attempts = $3 AND state = 'leased'";
        let bound: [&(dyn postgres::types::ToSql + Sync); 3] = [&job.id, &job.worker, &job.attempt];
        Ok(self.transact(|t| t.execute(sql, &bound))? == 1)
    }

    /// The searches that have jobs to do.
    pub fn open_searches(&mut self) -> Result<Vec<String>, FleetError> {
        let sql = "SELECT DISTINCT search FROM kernelwise.job
            WHERE state = 'waiting' OR (state = 'leased' AND lease_until < now()) ORDER BY search";
        let rows = self.client.query(sql, &[]).map_err(|e| self.failed(e))?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// How far a search is.
    pub fn job_counts(&mut self, search: &str) -> Result<JobCounts, FleetError> {
        let sql = "SELECT state, count(*) FROM kernelwise.job WHERE search = $1 GROUP BY state";
        let rows = self
            .client
            .query(sql, &[&search])
            .map_err(|e| self.failed(e))?;
        let mut counts = JobCounts::default();
        for row in rows {
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

    /// The results of a search so far, in the order in which the jobs were put.
    pub fn job_results(&mut self, search: &str) -> Result<Vec<JobResult>, FleetError> {
        let sql = "SELECT spec, result FROM kernelwise.job WHERE search = $1 AND state IN ('done', 'poisoned') ORDER BY id";
        let rows = self
            .client
            .query(sql, &[&search])
            .map_err(|e| self.failed(e))?;
        let results = rows.iter().filter_map(|row| {
            Some(JobResult {
                spec: serde_json::from_str(row.get(0)).ok()?,
                record: match row.get::<_, Option<&str>>(1) {
                    Some(record) => Some(serde_json::from_str(record).ok()?),
                    None => None,
                },
            })
        });
        Ok(results.collect())
    }
}
