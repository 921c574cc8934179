//! The same records on a PostgreSQL server, for many machines.
//!
//! The server is a place of exchange, not a source: decisions are made from the embedded store, [`Fleet::sync`] brings records
//! to and from it, and a server that is away costs a warning. `docs/fleet.md` says how to set one up.

mod background;
mod error;
mod queue;
mod schema;
mod sync;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use postgres::config::{Host, SslMode};
use postgres::{Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

pub use background::{BackgroundSync, SyncState};
pub use error::FleetError;
pub use queue::{Job, JobCounts, JobResult, MOST_ATTEMPTS};
pub use sync::{SyncPreview, Synced, sync_per_s};

/// How a server is reached.
#[derive(Clone)]
pub struct FleetOptions {
    /// Its address, such as `postgresql://user@host/kernelwise?sslmode=require`.
    pub url: String,
    /// The authorities that are believed, as PEM text; `None` for those of the operating system.
    pub authorities: Option<Vec<u8>>,
    /// How long one statement may take.
    pub statement_timeout: Duration,
    /// How long connecting may take, and how long data may stay without an answer.
    pub network_timeout: Duration,
}

impl FleetOptions {
    /// The usual for an address: half a minute for a statement, ten seconds for the network.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            authorities: None,
            statement_timeout: Duration::from_secs(30),
            network_timeout: Duration::from_secs(10),
        }
    }
}

impl fmt::Debug for FleetOptions {
    /// Without the address: it may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetOptions")
            .field("statement_timeout", &self.statement_timeout)
            .field("network_timeout", &self.network_timeout)
            .finish_non_exhaustive()
    }
}

/// A server of records, connected.
pub struct Fleet {
    client: Client,
    /// Host and port, for messages.
    address: String,
    /// The server's own name, which positions are kept under.
    name: String,
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Fleet {
    /// Connects, and makes or updates the tables if this user may. One of a newer format is an error, and is not touched.
    pub fn connect(options: &FleetOptions) -> Result<Self, FleetError> {
        let mut config: Config = options.url.parse().map_err(|e: postgres::Error| {
            let reason = std::error::Error::source(&e).map(ToString::to_string);
            FleetError::Address {
                reason: reason.unwrap_or_else(|| e.to_string()),
            }
        })?;
        config
            .connect_timeout(options.network_timeout)
            .tcp_user_timeout(options.network_timeout)
            .keepalives_idle(options.network_timeout)
            .application_name("kernelwise");
        let address = address(&config);
        let tls = connector(&config, options.authorities.as_deref())?;
        let failed = |e| FleetError::of(&address, e);
        let mut client = config.connect(tls).map_err(failed)?;
        let millis = options.statement_timeout.as_millis().to_string();
        let sql = "SELECT set_config('statement_timeout', $1, false), set_config('lock_timeout', $1, false)";
        client.execute(sql, &[&millis]).map_err(failed)?;
        let found = match schema::read(&mut client).map_err(failed) {
            Ok((found, _)) => found,
            Err(FleetError::NotReady { .. }) => 0,
            Err(error) => return Err(error),
        };
        if found > schema::FORMAT {
            return Err(FleetError::Newer {
                server: address,
                found,
                known: schema::FORMAT,
            });
        }
        if found < schema::FORMAT {
            schema::migrate(&mut client).map_err(|e| match FleetError::of(&address, e) {
                FleetError::Refused { server, .. } => FleetError::NotReady { server },
                other => other,
            })?;
        }
        let (_, name) = schema::read(&mut client).map_err(failed)?;
        Ok(Self {
            client,
            address,
            name,
        })
    }

    fn failed(&self, source: postgres::Error) -> FleetError {
        FleetError::of(&self.address, source)
    }
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

/// TLS by Rust alone. The server's certificate is always verified, for its name too.
fn connector(config: &Config, authorities: Option<&[u8]>) -> Result<MakeRustlsConnect, FleetError> {
    let bad = |reason: String| FleetError::Certificates { reason };
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|e| bad(e.to_string()))?;
                roots.add(certificate).map_err(|e| bad(e.to_string()))?;
            }
            if roots.is_empty() {
                return Err(bad("there are none".into()));
            }
        }
        // Reading them takes a while; nobody looks where no TLS is wanted.
        None if config.get_ssl_mode() == SslMode::Disable => {}
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| bad(e.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(tls))
}
