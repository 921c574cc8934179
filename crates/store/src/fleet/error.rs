//! What can go wrong with a server, by what the caller can do about it.

use std::error::Error as _;
use std::sync::Arc;

use tokio_postgres::error::SqlState;

use super::tls;
use crate::error::StoreError;

/// Why a server could not be used. The embedded store is not concerned: decisions are made from it alone.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// The address cannot be understood.
    #[error("the database address is not understood ({reason}): write postgresql://user@host/name")]
    Address {
        /// What is wrong with it.
        reason: String,
    },
    /// The authorities that were named cannot be used.
    #[error("certificates: {reason}: name a file of PEM certificates")]
    Certificates {
        /// What is wrong with them.
        reason: String,
    },
    /// The connection would not be encrypted, or not to the server that was meant. Nothing was sent.
    #[error("no safe connection to {server}: {reason}: {remedy}")]
    Untrusted {
        /// Host and port.
        server: String,
        /// What is wrong with the server's certificate.
        reason: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// Nobody answers, or the connection broke. What was committed stays, and the next sync goes on from there.
    #[error("{server} cannot be reached: {reason}: nothing is lost, try again later")]
    Unreachable {
        /// Host and port, without user and password.
        server: String,
        /// What was tried and said.
        reason: String,
    },
    /// The server refuses this user or what it asks.
    #[error("{server} refuses: {reason}: ask its owner for the role kernelwise_writer")]
    Refused {
        /// Host and port.
        server: String,
        /// What it said.
        reason: String,
    },
    /// The tables are not there or of an older version, and this user may not change that.
    #[error(
        "{server} has no tables of this version: sync once as their owner, who may create a schema"
    )]
    NotReady {
        /// Host and port.
        server: String,
    },
    /// A newer version of the library made the tables. Nothing in them was touched.
    #[error("{server} is of a newer version (format {found}, this one knows {known}): update")]
    Newer {
        /// Host and port.
        server: String,
        /// Its format.
        found: i32,
        /// The newest this version knows.
        known: i32,
    },
    /// A statement took too long, or had to wait for too long.
    #[error("{server} took too long: try again later")]
    Slow {
        /// Host and port.
        server: String,
    },
    /// Anything else the server said.
    #[error("{server}: {source}")]
    Server {
        /// Host and port.
        server: String,
        /// What it said.
        source: Arc<tokio_postgres::Error>,
    },
    /// A server of this process's own could not be started.
    #[error(
        "no private server: {reason}: install PostgreSQL, or name a server in KERNELWISE_DATABASE_URL"
    )]
    Private {
        /// What was tried and said.
        reason: String,
    },
    /// The embedded store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl FleetError {
    /// Whether the same may well succeed later, without anybody doing anything about it: the server is away, starting or busy.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Slow { .. })
    }

    pub(super) fn of(server: &str, source: tokio_postgres::Error) -> Self {
        let server = server.to_owned();
        if let Some((reason, remedy)) = tls::trouble(&source) {
            return Self::Untrusted {
                server,
                reason,
                remedy,
            };
        }
        let reason = || {
            let deeper = source.source().map(ToString::to_string);
            deeper.unwrap_or_else(|| source.to_string())
        };
        match source.code() {
            Some(&SqlState::UNDEFINED_TABLE | &SqlState::INVALID_SCHEMA_NAME) => {
                Self::NotReady { server }
            }
            Some(&SqlState::QUERY_CANCELED | &SqlState::LOCK_NOT_AVAILABLE) => {
                Self::Slow { server }
            }
            Some(
                &SqlState::INSUFFICIENT_PRIVILEGE
                | &SqlState::INVALID_PASSWORD
                | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION
                | &SqlState::INVALID_CATALOG_NAME,
            ) => Self::Refused {
                server,
                reason: reason(),
            },
            // Shutting down, starting up, killed by an administrator.
            Some(code) if code.code().starts_with("57P") => Self::Unreachable {
                server,
                reason: reason(),
            },
            Some(_) => Self::Server {
                server,
                source: Arc::new(source),
            },
            // The server wants a password, and the address has none.
            None if source.to_string().starts_with("invalid configuration") => Self::Refused {
                server,
                reason: reason(),
            },
            // No answer of the server at all: the connection.
            None => Self::Unreachable {
                server,
                reason: reason(),
            },
        }
    }
}
