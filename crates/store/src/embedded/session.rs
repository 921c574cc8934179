//! Opening the file: who may, what it is, and what is done if it is not what it should be.
//!
//! In this order: the directory is made; a lock file keeps other processes from opening at the same time; a file
//! of a newer format is refused by its header alone, before SQLite sees it; one that is no database or fails its check
//! is renamed and a new one begun; one of an older format is copied, then migrated. A directory that may not be written is
//! read.

use std::fs::{self, File, TryLockError};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::schema;
use crate::error::{StoreError, Warning};

/// The database, its lock, and what is behind the names of files set aside.
const FILE: &str = "records.sqlite";
const LOCK: &str = "records.lock";
/// How long a writer waits for another one. A transaction takes milliseconds; this is for machines that stall.
const PATIENCE: Duration = Duration::from_secs(10);
/// Files up to this size are checked as a whole when they are opened; larger ones would delay the start.
const CHECKED_BYTES: u64 = 4 << 20;
/// The write-ahead log is cut back to this size when it was larger.
const LOG_BYTES: i64 = 8 << 20;

/// Pages of the file that are kept in memory, at most: new rows go to places of the indexes that have no order.
const CACHE_KIB: i64 = 32 << 10;

/// What is lost at most when the machine loses power. A process that is killed loses nothing that was acknowledged, either
/// way: the operating system has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// What was written since the last checkpoint, seconds to minutes; the file stays whole (`synchronous = NORMAL`).
    /// Measurements can be made again, so this is the default.
    #[default]
    Process,
    /// Nothing that was acknowledged, at the price of one `fsync` for each batch (`synchronous = FULL`).
    PowerCut,
}

/// How much of a file is looked at when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// All of a small one, the beginnings of a large one.
    Brief,
    /// All of it: SQLite found it damaged.
    Whole,
}

/// Tells a file from another of the same name.
type Identity = Option<(u64, u64)>;

#[cfg(unix)]
fn identity(path: &Path) -> Identity {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn identity(path: &Path) -> Identity {
    fs::metadata(path).ok().map(|_| (0, 0))
}

/// An open file.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) conn: Connection,
    pub(crate) path: PathBuf,
    identity: Identity,
    pub(crate) writable: bool,
}

/// What the header says, without SQLite.
enum Header {
    Empty,
    Ours { format: i64 },
    Other,
}

fn header(path: &Path) -> Result<Header, StoreError> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(100).read_to_end(&mut bytes),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Header::Empty),
        Err(e) => Err(e),
    }
    .map_err(|e| StoreError::io(path, e))?;
    let number = |at: usize| {
        let bytes = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
        bytes.map_or(0, |b| i64::from(i32::from_be_bytes(b)))
    };
    // <https://www.sqlite.org/fileformat2.html>: magic, user version at 60, application at 68.
    Ok(match bytes.len() {
        0 => Header::Empty,
        100 if bytes.starts_with(b"SQLite format 3\0") => match (number(60), number(68)) {
            (format, schema::APPLICATION) => Header::Ours { format },
            // Made, and killed before the first transaction.
            (0, 0) => Header::Ours { format: 0 },
            _ => Header::Other,
        },
        _ => Header::Other,
    })
}

/// The file in a directory.
pub(crate) fn file(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

impl Session {
    /// Opens the file of a directory, making or mending what has to be.
    pub(crate) fn open(
        dir: &Path,
        durability: Durability,
        now_s: u64,
        look: Look,
    ) -> Result<(Self, Vec<Warning>), StoreError> {
        let path = dir.join(FILE);
        let lock = fs::create_dir_all(dir).and_then(|()| {
            File::options()
                .create(true)
                .append(true)
                .open(dir.join(LOCK))
        });
        // Held until this returns; a process that dies gives it back.
        let _lock = match lock.map_err(|e| StoreError::io(dir, e)) {
            Ok(lock) => locked(lock, &path)?,
            Err(StoreError::ReadOnly { .. }) if path.exists() => return Self::open_to_read(path),
            Err(error) => return Err(error),
        };
        let mut warnings = Vec::new();
        let session = match Self::open_checked(&path, durability, now_s, look, &mut warnings) {
            Err(StoreError::Corrupt { .. }) => {
                let aside = set_aside(&path, now_s)?;
                warnings.push(Warning::SetAside {
                    path: path.clone(),
                    aside,
                });
                Self::open_checked(&path, durability, now_s, look, &mut warnings)?
            }
            Err(StoreError::ReadOnly { .. }) => return Self::open_to_read(path),
            other => other?,
        };
        Ok((session, warnings))
    }

    fn open_checked(
        path: &Path,
        durability: Durability,
        now_s: u64,
        look: Look,
        warnings: &mut Vec<Warning>,
    ) -> Result<Self, StoreError> {
        let newer = |found| StoreError::Newer {
            path: path.to_owned(),
            found,
            known: schema::FORMAT,
        };
        match header(path)? {
            Header::Ours { format } if format > schema::FORMAT => return Err(newer(format)),
            Header::Other => {
                return Err(StoreError::Corrupt {
                    path: path.to_owned(),
                });
            }
            Header::Ours { .. } | Header::Empty => {}
        }
        let sqlite = |e| StoreError::sqlite(path, e);
        let mut conn = Connection::open(path).map_err(sqlite)?;
        let fresh = schema::format(&conn).map_err(sqlite)? == 0;
        if fresh && has_tables(&conn).map_err(sqlite)? {
            // Somebody else's database: not even its journal mode is changed.
            return Err(StoreError::Corrupt {
                path: path.to_owned(),
            });
        }
        prepare(&conn, durability, fresh).map_err(sqlite)?;
        let found = schema::format(&conn).map_err(sqlite)?;
        if found > schema::FORMAT {
            return Err(newer(found));
        }
        if found > 0 {
            check(&conn, path, look)?;
        }
        if found < schema::FORMAT {
            if found > 0 {
                let copy = with_suffix(path, &format!("format{found}-{now_s}"));
                conn.execute("VACUUM INTO ?1", [copy.to_string_lossy()])
                    .map_err(sqlite)?;
                warnings.push(Warning::Migrated {
                    path: path.to_owned(),
                    from: found,
                    to: schema::FORMAT,
                    copy,
                });
            }
            schema::migrate(&mut conn, found, schema::FORMAT).map_err(sqlite)?;
            // Into the file itself, where the header is read without SQLite.
            conn.pragma_query(None, "wal_checkpoint", |_| Ok(()))
                .map_err(sqlite)?;
        }
        let identity = identity(path);
        let session = Self {
            conn,
            path: path.to_owned(),
            identity,
            writable: true,
        };
        session.own(identity).map_err(sqlite)?;
        Ok(session)
    }

    /// A copy of a file is another store: what both learn from here on must not pass for the same. So a file that finds
    /// itself elsewhere takes a new origin.
    fn own(&self, identity: Identity) -> rusqlite::Result<()> {
        let here = identity.map_or_else(String::new, |(device, inode)| format!("{device}:{inode}"));
        let sql = "SELECT file FROM self";
        let known: String = self.conn.query_row(sql, [], |row| row.get(0))?;
        // Looked at first: writing would wait for others who write.
        if known != here {
            self.conn.execute(
                "UPDATE self SET file = ?1,
                    origin = CASE file WHEN '' THEN origin ELSE lower(hex(randomblob(8))) END
                 WHERE file <> ?1",
                [here],
            )?;
        }
        Ok(())
    }

    /// Reads a file that may not be written. Where even SQLite's shared memory may not be made, the file is taken as it
    /// is, without what may stand in a log beside it.
    fn open_to_read(path: PathBuf) -> Result<(Self, Vec<Warning>), StoreError> {
        let sqlite = |e| StoreError::sqlite(&path, e);
        if let Header::Ours { format } = header(&path)?
            && format > schema::FORMAT
        {
            return Err(StoreError::Newer {
                path,
                found: format,
                known: schema::FORMAT,
            });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let usable = |conn: Connection| schema::format(&conn).map(|_| conn);
        let plain = Connection::open_with_flags(&path, flags).and_then(usable);
        let conn = match plain {
            Ok(conn) => conn,
            Err(_) => Connection::open_with_flags(format!("{}?immutable=1", uri(&path)), flags)
                .and_then(usable)
                .map_err(sqlite)?,
        };
        let found = schema::format(&conn).map_err(sqlite)?;
        if found < schema::FORMAT {
            // Bringing it up to date would be writing.
            return Err(StoreError::ReadOnly { path });
        }
        check(&conn, &path, Look::Brief)?;
        let warning = Warning::ReadOnly { path: path.clone() };
        let identity = identity(&path);
        let session = Self {
            conn,
            path,
            identity,
            writable: false,
        };
        Ok((session, vec![warning]))
    }

    /// Whether the name still leads to the file that is open.
    pub(crate) fn still_there(&self) -> bool {
        self.identity.is_some() && identity(&self.path) == self.identity
    }

    /// An error of SQLite on this file.
    pub(crate) fn error(&self, source: rusqlite::Error) -> StoreError {
        StoreError::sqlite(&self.path, source)
    }

    /// Refuses if a newer version changed the tables meanwhile.
    pub(crate) fn same_format(&self) -> Result<(), StoreError> {
        let found = schema::format(&self.conn).map_err(|e| self.error(e))?;
        if found > schema::FORMAT {
            return Err(StoreError::Newer {
                path: self.path.clone(),
                found,
                known: schema::FORMAT,
            });
        }
        Ok(())
    }
}

/// The lock file, locked. Opening takes milliseconds; who takes longer was stopped.
fn locked(lock: File, path: &Path) -> Result<File, StoreError> {
    const PAUSE: Duration = Duration::from_millis(10);
    for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            Err(TryLockError::Error(error)) => return Err(StoreError::io(path, error)),
        }
    }
    Err(StoreError::Busy {
        path: path.to_owned(),
    })
}

fn prepare(conn: &Connection, durability: Durability, fresh: bool) -> rusqlite::Result<()> {
    conn.busy_timeout(PATIENCE)?;
    if fresh {
        // Freed pages can then be given back. Both stay with the file.
        conn.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        conn.pragma_update(None, "journal_mode", "WAL")?;
    }
    let synchronous = match durability {
        Durability::Process => "NORMAL",
        Durability::PowerCut => "FULL",
    };
    conn.pragma_update(None, "synchronous", synchronous)?;
    conn.pragma_update(None, "foreign_keys", true)?;
    conn.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
    conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
    conn.set_prepared_statement_cache_capacity(64);
    Ok(())
}

fn has_tables(conn: &Connection) -> rusqlite::Result<bool> {
    conn.query_row("SELECT EXISTS (SELECT * FROM sqlite_schema)", [], |row| {
        row.get(0)
    })
}

/// Whether the file can be used: its tables are there, and the whole of it is sound if it is small.
fn check(conn: &Connection, path: &Path, look: Look) -> Result<(), StoreError> {
    let corrupt = || StoreError::Corrupt {
        path: path.to_owned(),
    };
    let sqlite = |e: rusqlite::Error| match StoreError::sqlite(path, e) {
        // A table that is not there, a column of another type.
        StoreError::Sqlite { .. } => corrupt(),
        other => other,
    };
    let one = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
    one("SELECT count(*) FROM self").map_err(sqlite)?;
    one("SELECT EXISTS (SELECT * FROM series)").map_err(sqlite)?;
    one("SELECT EXISTS (SELECT * FROM note)").map_err(sqlite)?;
    let size = fs::metadata(path).map_or(0, |file| file.len());
    let sql = match look {
        Look::Whole => "PRAGMA integrity_check(1)",
        Look::Brief if size <= CHECKED_BYTES => "PRAGMA quick_check(1)",
        Look::Brief => return Ok(()),
    };
    let verdict: String = conn.query_row(sql, [], |row| row.get(0)).map_err(sqlite)?;
    if verdict != "ok" {
        return Err(corrupt());
    }
    Ok(())
}

/// Renames a damaged file, with its log, to a name that is free.
fn set_aside(path: &Path, now_s: u64) -> Result<PathBuf, StoreError> {
    let free = (0..)
        .map(|n: u32| with_suffix(path, &format!("damaged-{now_s}-{n}")))
        .find(|aside| !aside.exists());
    let aside = free.unwrap_or_else(|| with_suffix(path, "damaged"));
    fs::rename(path, &aside).map_err(|e| StoreError::io(path, e))?;
    for part in ["-wal", "-shm"] {
        let from = appended(path, part);
        if from.exists() {
            fs::rename(&from, appended(&aside, part)).map_err(|e| StoreError::io(&from, e))?;
        }
    }
    Ok(aside)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    appended(path, &format!(".{suffix}"))
}

fn appended(path: &Path, text: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(text);
    name.into()
}

/// A path as SQLite wants it where it takes options.
fn uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                uri.push(char::from(*byte));
            }
            _ => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &Path) -> Result<(Session, Vec<Warning>), StoreError> {
        Session::open(dir, Durability::Process, 1_800_000_000, Look::Brief)
    }

    fn origin(session: &Session) -> String {
        let sql = "SELECT origin FROM self";
        session.conn.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn an_older_file_is_copied_then_migrated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        {
            let mut conn = Connection::open(&path).unwrap();
            schema::migrate(&mut conn, 0, 1).unwrap();
            conn.execute(
                "INSERT INTO note VALUES ('model', '00112233aabbccdd', 'm', 5, 1, '{}')",
                [],
            )
            .unwrap();
        }
        let (session, warnings) = open(dir.path()).unwrap();
        let [Warning::Migrated { from: 1, copy, .. }] = &warnings[..] else {
            panic!("{warnings:?}");
        };
        for conn in [&session.conn, &Connection::open(copy).unwrap()] {
            let notes: i64 = conn
                .query_row("SELECT count(*) FROM note", [], |row| row.get(0))
                .unwrap();
            assert_eq!(notes, 1);
        }
        assert_eq!(schema::format(&Connection::open(copy).unwrap()).unwrap(), 1);
        assert_eq!(schema::format(&session.conn).unwrap(), schema::FORMAT);
        drop(session);
        assert_eq!(open(dir.path()).unwrap().1, [], "once");
    }

    #[test]
    fn a_newer_file_is_refused_and_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        drop(open(dir.path()).unwrap());
        Connection::open(&path)
            .unwrap()
            .pragma_update(None, "user_version", schema::FORMAT + 1)
            .unwrap();
        let before = fs::read(&path).unwrap();
        let error = open(dir.path()).unwrap_err();
        assert!(matches!(error, StoreError::Newer { found, .. } if found == schema::FORMAT + 1));
        assert!(fs::read(&path).unwrap() == before, "changed");
        let mut names: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, [LOCK, FILE]);
    }

    #[test]
    fn what_is_no_database_of_ours_is_set_aside() {
        let foreign = |path: &Path| {
            let conn = Connection::open(path).unwrap();
            conn.execute_batch("CREATE TABLE other (x); PRAGMA user_version = 7")
                .unwrap();
        };
        let unversioned = |path: &Path| {
            let conn = Connection::open(path).unwrap();
            conn.execute_batch("CREATE TABLE other (x)").unwrap();
        };
        let garbage = |path: &Path| fs::write(path, b"not a database").unwrap();
        let headless = |path: &Path| {
            drop(open(path.parent().unwrap()).unwrap());
            let mut bytes = fs::read(path).unwrap();
            bytes[100..4096].fill(0xa5);
            fs::write(path, bytes).unwrap();
        };
        let spoil: [&dyn Fn(&Path); 4] = [&foreign, &unversioned, &garbage, &headless];
        for (number, spoil) in spoil.into_iter().enumerate() {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(FILE);
            spoil(&path);
            let before = fs::read(&path).unwrap();
            let (session, warnings) = open(dir.path()).unwrap();
            let [Warning::SetAside { aside, .. }] = &warnings[..] else {
                panic!("{number}: {warnings:?}");
            };
            assert!(fs::read(aside).unwrap() == before, "{number}: changed");
            assert_eq!(schema::format(&session.conn).unwrap(), schema::FORMAT);
        }
    }

    #[test]
    fn a_copied_file_is_another_origin() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (session, _) = open(dir.path()).unwrap();
        let first = origin(&session);
        assert_eq!(first.len(), 16);
        drop(session);
        let (session, _) = open(dir.path()).unwrap();
        assert_eq!(origin(&session), first, "the same file is the same origin");
        drop(session);
        fs::copy(dir.path().join(FILE), other.path().join(FILE)).unwrap();
        assert_ne!(origin(&open(other.path()).unwrap().0), first);
    }
}
