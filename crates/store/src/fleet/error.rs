//! What can go wrong with a server, by what the caller can do about it.

use std::error::Error as _;
use std::sync::Arc;

use postgres::error::SqlState;

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
    /// The certificates cannot be used.
    #[error("certificates: {reason}: name a file of PEM certificates")]
    Certificates {
        /// What is wrong with them.
        reason: String,
    },
    /// Nobody answers, or the connection broke. What was committed stays, and the next sync goes on from there.
    #[error("{server} cannot be reached: {reason}: nothing is lost, sync again later")]
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
    #[error("{server} took too long: sync again later")]
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
        source: Arc<postgres::Error>,
    },
    /// The embedded store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl FleetError {
    pub(super) fn of(server: &str, source: postgres::Error) -> Self {
        let server = server.to_owned();
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
            // No answer of the server at all: the connection.
            None => Self::Unreachable {
                server,
                reason: reason(),
            },
        }
    }
}
