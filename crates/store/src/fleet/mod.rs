//! The same records on a PostgreSQL server, for many machines.
//!
//! The server is a place of exchange, not a source: decisions are made from the embedded store, [`Fleet::sync`] brings records
//! to and from it, and a server that is away costs a warning. `docs/fleet.md` says how to set one up.

mod background;
mod error;
mod link;
#[cfg(all(test, unix))]
mod plans;
mod preview;
#[cfg(unix)]
mod private;
mod queue;
mod rate;
mod schema;
mod sync;
mod tls;

use std::fmt;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

pub use background::{BackgroundSync, SyncState};
pub use error::FleetError;
use link::{Limits, Link};
pub use preview::{ServerSeen, SyncPreview};
#[cfg(unix)]
pub use private::{Listen, PrivateServer};
pub use queue::{Job, JobCounts, JobResult, MOST_ATTEMPTS, OpenJobs, SEARCHES_AT_ONCE};
pub use rate::sync_per_s;
pub use sync::Synced;

/// How a server is reached.
#[derive(Clone)]
pub struct FleetOptions {
    /// Its address, such as `postgresql://user@host/kernelwise?sslmode=require`.
    pub url: String,
    /// The authorities that are believed, as PEM text; `None` for those of the file that `KERNELWISE_DATABASE_CA` names, or, where
    /// that is not set, of the operating system.
    pub authorities: Option<Vec<u8>>,
    /// How long one statement may take on the server.
    pub statement_timeout: Duration,
    /// How long connecting may take, from the first packet to the server's welcome; and how much longer than a statement its
    /// answer may take.
    pub network_timeout: Duration,
    /// How long dropping a [`BackgroundSync`] waits for an exchange under way.
    pub drop_timeout: Duration,
}

impl FleetOptions {
    /// The usual for an address: half a minute for a statement, ten seconds for the network, five when dropped.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            authorities: None,
            statement_timeout: Duration::from_secs(30),
            network_timeout: Duration::from_secs(10),
            drop_timeout: Duration::from_secs(5),
        }
    }
}

impl fmt::Debug for FleetOptions {
    /// Without the address: it may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetOptions")
            .field("statement_timeout", &self.statement_timeout)
            .field("network_timeout", &self.network_timeout)
            .field("drop_timeout", &self.drop_timeout)
            .finish_non_exhaustive()
    }
}

/// A server of records, connected.
pub struct Fleet {
    link: Link,
    /// The server's own name, which positions are kept under.
    name: String,
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet")
            .field("address", &self.link.address())
            .finish_non_exhaustive()
    }
}

impl Fleet {
    /// Connects, and makes or updates the tables if this user may. One of a newer format is an error, and is not touched.
    pub fn connect(options: &FleetOptions) -> Result<Self, FleetError> {
        let link = open(options)?;
        let found = match schema::read(&link) {
            Ok((found, _)) => found,
            Err(FleetError::NotReady { .. }) => 0,
            Err(error) => return Err(error),
        };
        known(&link, found)?;
        if found < schema::FORMAT {
            schema::migrate(&link).map_err(|error| match error {
                FleetError::Refused { server, .. } => FleetError::NotReady { server },
                other => other,
            })?;
        }
        let (_, name) = schema::read(&link)?;
        Ok(Self { link, name })
    }

    /// Connects and changes nothing. A server without tables is [`FleetError::NotReady`].
    pub fn look(options: &FleetOptions) -> Result<Self, FleetError> {
        let link = open(options)?;
        let (found, name) = schema::read(&link)?;
        known(&link, found)?;
        Ok(Self { link, name })
    }
}

/// An error if the format is one that this version does not know.
fn known(link: &Link, found: i32) -> Result<(), FleetError> {
    match found > schema::FORMAT {
        true => Err(FleetError::Newer {
            server: link.address().to_owned(),
            found,
            known: schema::FORMAT,
        }),
        false => Ok(()),
    }
}

/// A connection whose statements end in time.
fn open(options: &FleetOptions) -> Result<Link, FleetError> {
    let mut config: Config = options.url.parse().map_err(|e: tokio_postgres::Error| {
        let reason = std::error::Error::source(&e).map(ToString::to_string);
        FleetError::Address {
            reason: reason.unwrap_or_else(|| e.to_string()),
        }
    })?;
    // What the operating system takes here, in whole seconds.
    let [least, most] = [1, 30_000].map(Duration::from_secs);
    let kept_alive = options.network_timeout.clamp(least, most);
    config
        .connect_timeout(options.network_timeout)
        .tcp_user_timeout(kept_alive)
        .keepalives_idle(kept_alive)
        .application_name("kernelwise");
    let tls = tls::connector(&config, options.authorities.as_deref())?;
    let limits = Limits {
        connecting: options.network_timeout,
        answer: options
            .network_timeout
            .saturating_add(options.statement_timeout),
    };
    let link = Link::open(&config, tls, &address(&config), limits)?;
    let millis = options.statement_timeout.as_millis().to_string();
    let sql =
        "SELECT set_config('statement_timeout', $1, false), set_config('lock_timeout', $1, false)";
    link.execute(sql, &[&millis])?;
    Ok(link)
}

/// Where a server is, without who asks.
fn address(config: &Config) -> String {
    let host = config.get_hosts().first().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        #[cfg(unix)]
        Host::Unix(path) => path.display().to_string(),
    });
    let host = host.unwrap_or_else(|| "the server".to_owned());
    match config.get_ports().first() {
        Some(port) => format!("{host}:{port}"),
        None => host,
    }
}
