//! The connection. Every request to the server ends in time, answered or not.
//!
//! This drives `tokio_postgres` on a runtime of its own instead of using its blocking sibling `postgres`, which cannot limit how
//! long an answer takes: a server that accepts the connection and then stays silent would hold the caller for ever.

use std::cell::Cell;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Error, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::FleetError;

/// What is bound to the parameters of a statement.
pub(super) type Bound<'a> = &'a [&'a (dyn ToSql + Sync)];

/// How long the server may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// From the first packet until the server has accepted the user, for each host that the address names.
    pub(super) connecting: Duration,
    /// For the answer to one request.
    pub(super) answer: Duration,
}

pub(super) struct Link {
    /// Always there, except while this is dropped.
    runtime: Option<Runtime>,
    client: Client,
    /// Why the connection ended; requests only hear that it did.
    ended: Arc<Mutex<Option<Error>>>,
    /// Host and port, for messages.
    address: String,
    answer: Duration,
    /// An answer is overdue: whatever comes now belongs to that request and not to the next.
    overdue: Cell<bool>,
    /// Once set, nothing is asked any more.
    stop: Arc<AtomicBool>,
}

impl Link {
    pub(super) fn open(
        config: &Config,
        tls: MakeRustlsConnect,
        address: &str,
        limits: Limits,
    ) -> Result<Self, FleetError> {
        let unreachable = |reason: String| FleetError::Unreachable {
            server: address.to_owned(),
            reason,
        };
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| unreachable(e.to_string()))?;
        let hosts = u32::try_from(config.get_hosts().len()).unwrap_or(u32::MAX);
        let limit = limits.connecting.saturating_mul(hosts.max(1));
        let opened = runtime.block_on(async { timeout(limit, config.connect(tls)).await });
        let (client, connection) = match opened {
            Ok(Ok(opened)) => opened,
            failed => {
                // Looking up a name cannot be interrupted, and is not waited for.
                runtime.shutdown_background();
                return Err(match failed {
                    Ok(Err(error)) => FleetError::of(address, error),
                    _ => unreachable(silent(limit)),
                });
            }
        };
        let ended = Arc::new(Mutex::new(None));
        let told = Arc::clone(&ended);
        runtime.spawn(async move {
            let error = connection.await.err();
            *told.lock().unwrap_or_else(PoisonError::into_inner) = error;
        });
        Ok(Self {
            runtime: Some(runtime),
            client,
            ended,
            address: address.to_owned(),
            answer: limits.answer,
            overdue: Cell::new(false),
            stop: Arc::default(),
        })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Lets somebody else end this between two requests.
    pub(super) fn stop_by(&mut self, flag: &Arc<AtomicBool>) {
        self.stop = Arc::clone(flag);
    }

    fn wait<T>(&self, asked: impl Future<Output = Result<T, Error>>) -> Result<T, FleetError> {
        let unreachable = || FleetError::Unreachable {
            server: self.address.clone(),
            reason: silent(self.answer),
        };
        if self.stop.load(Ordering::Relaxed) {
            return Err(FleetError::Unreachable {
                server: self.address.clone(),
                reason: "the program ends".into(),
            });
        }
        let Some(runtime) = self.runtime.as_ref().filter(|_| !self.overdue.get()) else {
            return Err(unreachable());
        };
        match runtime.block_on(async { timeout(self.answer, asked).await }) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if error.is_closed() => {
                let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
                Err(FleetError::of(&self.address, ended.take().unwrap_or(error)))
            }
            Ok(Err(error)) => Err(FleetError::of(&self.address, error)),
            Err(_) => {
                self.overdue.set(true);
                Err(unreachable())
            }
        }
    }

    pub(super) fn execute(&self, sql: &str, bound: Bound<'_>) -> Result<u64, FleetError> {
        self.wait(self.client.execute(sql, bound))
    }

    pub(super) fn query(&self, sql: &str, bound: Bound<'_>) -> Result<Vec<Row>, FleetError> {
        self.wait(self.client.query(sql, bound))
    }

    pub(super) fn query_one(&self, sql: &str, bound: Bound<'_>) -> Result<Row, FleetError> {
        self.wait(self.client.query_one(sql, bound))
    }

    pub(super) fn query_opt(&self, sql: &str, bound: Bound<'_>) -> Result<Option<Row>, FleetError> {
        self.wait(self.client.query_opt(sql, bound))
    }

    /// Statements without parameters.
    pub(super) fn run(&self, sql: &str) -> Result<(), FleetError> {
        self.wait(self.client.batch_execute(sql))
    }

    /// Does all of it or nothing.
    pub(super) fn transact<T>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, FleetError>,
    ) -> Result<T, FleetError> {
        self.run("BEGIN")?;
        match work(self) {
            Ok(done) => self.run("COMMIT").map(|()| done),
            Err(error) => {
                // If this fails too, the connection is gone, and the server rolls back by itself.
                let _ = self.run("ROLLBACK");
                Err(error)
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn silent(limit: Duration) -> String {
    format!("no answer within {} s", limit.as_secs_f64())
}
