//! What can go wrong with the embedded store, by what the caller can do about it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why the store could not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A newer version of the library wrote the file. Nothing in it was touched.
    #[error(
        "{}: written by a newer version (format {found}, this one knows {known}): update, or set KERNELWISE_DIR to another directory",
        .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest this version knows.
        known: i64,
    },
    /// Somebody else held the file for too long.
    #[error("{}: in use by another process for too long: try again, or end it", .path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// There is no room left.
    #[error("{}: no room left on the disk: make some; what was learned waits in memory", .path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The directory or file may not be written.
    #[error("{}: may not be written: allow it, or set KERNELWISE_DIR to another directory", .path.display())]
    ReadOnly {
        /// The file or directory.
        path: PathBuf,
    },
    /// The file is damaged, and could not be set aside as it usually is.
    #[error(
        "{}: damaged, and it could not be set aside: move it away, or set KERNELWISE_DIR to another directory",
        .path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        source: Arc<io::Error>,
    },
    /// SQLite refused.
    #[error("{}: {source}", .path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: Arc<rusqlite::Error>,
    },
    /// The background writer ended.
    #[error("the background writer ended: open the store again")]
    Closed,
}

impl StoreError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::ReadOnly { path }
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            _ => Self::Io {
                path,
                source: Arc::new(source),
            },
        }
    }

    pub(crate) fn sqlite(path: &Path, source: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode;
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy { path },
            Some(ErrorCode::DiskFull) => Self::Full { path },
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly { path },
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Corrupt { path },
            _ => Self::Sqlite {
                path,
                source: Arc::new(source),
            },
        }
    }
}

/// What happened to a store that went on all the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// The file was damaged.
    #[error("{}: damaged; it was set aside as {} and a new one begun", .path.display(), .aside.display())]
    SetAside {
        /// Where it was.
        path: PathBuf,
        /// Where it is now.
        aside: PathBuf,
    },
    /// The file was of an older format.
    #[error("{}: brought from format {from} to {to}; the old file is kept as {}", .path.display(), .copy.display())]
    Migrated {
        /// The file.
        path: PathBuf,
        /// Its format before.
        from: i64,
        /// Its format now.
        to: i64,
        /// The copy.
        copy: PathBuf,
    },
    /// The directory may not be written: what is known is used, and nothing is added.
    #[error("{}: may not be written: what is in it is used, nothing is added", .path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// The file went away while it was in use.
    #[error("{}: went away; a new one was begun", .path.display())]
    Vanished {
        /// The file.
        path: PathBuf,
    },
}
