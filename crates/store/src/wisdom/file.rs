//! Wisdom on a disk.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::{Skipped, Wisdom, WisdomError};

/// Why a file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The operating system refused.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// It holds no wisdom.
    #[error("{}: {source}", .path.display())]
    Wisdom {
        /// The file.
        path: PathBuf,
        /// Why.
        source: WisdomError,
    },
}

/// Files up to this size are read at all.
const MOST_BYTES: u64 = 1 << 30;

impl Wisdom {
    /// Reads a file, compressed or not.
    pub fn load(path: &Path) -> Result<(Self, Vec<Skipped>), FileError> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|f| f.take(MOST_BYTES + 1).read_to_end(&mut bytes));
        read.map_err(|source| FileError::Io {
            path: path.to_owned(),
            source,
        })?;
        Self::from_bytes(&bytes).map_err(|source| FileError::Wisdom {
            path: path.to_owned(),
            source,
        })
    }

    /// Writes a file, compressed if its name ends in `.gz`. The name leads to the old file or to the whole new one, never to
    /// half of it.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        let compressed = path.extension().is_some_and(|extension| extension == "gz");
        let bytes = self.to_bytes(compressed);
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{}.new", std::process::id()));
        let temporary = PathBuf::from(temporary);
        let write = || -> io::Result<()> {
            let mut file = File::create(&temporary)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, path)
        };
        write().map_err(|source| {
            // Half of it is of no use; that it could not be removed is no worse.
            let _ = fs::remove_file(&temporary);
            FileError::Io {
                path: path.to_owned(),
                source,
            }
        })
    }
}
