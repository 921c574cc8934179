//! The tables, as the steps that made them. A new file runs all steps, an older one those it lacks, so there is one way to
//! the present form and it is always tested.

use rusqlite::{Connection, Transaction, TransactionBehavior};

/// `KWIS` in ASCII: tells our files from other databases.
pub(super) const APPLICATION: i64 = 0x4b57_4953;

/// Step n brings a file from format n to n + 1.
pub(super) const STEPS: &[&str] = &[
    // Statistics and notes. `changed` is the store's own revision of the last change to the row, 0 for what came from a
    // fleet: what is above the revision last pushed is yet to be pushed.
    "CREATE TABLE self (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        origin TEXT NOT NULL,
        revision INTEGER NOT NULL,
        file TEXT NOT NULL
    ) STRICT;
    INSERT INTO self VALUES (1, lower(hex(randomblob(8))), 0, '');
    CREATE TABLE series (
        id INTEGER PRIMARY KEY,
        key BLOB NOT NULL,
        origin TEXT NOT NULL,
        revision INTEGER NOT NULL,
        changed INTEGER NOT NULL,
        fingerprint TEXT NOT NULL,
        environment TEXT NOT NULL,
        workload TEXT NOT NULL,
        kernel TEXT NOT NULL,
        version INTEGER NOT NULL,
        params TEXT NOT NULL,
        timed INTEGER NOT NULL,
        mean_ln REAL NOT NULL,
        squares_ln REAL NOT NULL,
        min_ns REAL,
        faded_weight REAL NOT NULL,
        faded_mean_ln REAL NOT NULL,
        faded_squares_ln REAL NOT NULL,
        failed INTEGER NOT NULL,
        wrong INTEGER NOT NULL,
        timed_out INTEGER NOT NULL,
        first_s INTEGER NOT NULL,
        last_s INTEGER NOT NULL,
        UNIQUE (key, origin)
    ) STRICT;
    CREATE INDEX series_by_workload ON series (fingerprint, workload);
    CREATE INDEX series_by_change ON series (changed, id);
    CREATE TABLE note (
        kind TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        name TEXT NOT NULL,
        at_s INTEGER NOT NULL,
        changed INTEGER NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (kind, fingerprint, name)
    ) STRICT, WITHOUT ROWID;",
    // The latest samples as they came, apart from the sums: those are read at every start, these are not. And how far
    // each server was told and heard.
    "CREATE TABLE recent (
        id INTEGER PRIMARY KEY REFERENCES series (id) ON DELETE CASCADE,
        samples BLOB NOT NULL
    ) STRICT;
    CREATE TABLE sync (
        server TEXT NOT NULL,
        what TEXT NOT NULL,
        position INTEGER NOT NULL,
        id INTEGER NOT NULL,
        PRIMARY KEY (server, what)
    ) STRICT, WITHOUT ROWID;",
];

/// The format this version writes.
pub(super) const FORMAT: i64 = STEPS.len() as i64;

/// The format of an open file; 0 if it has no tables yet.
pub(super) fn format(conn: &Connection) -> rusqlite::Result<i64> {
    conn.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Runs the steps from a format to another, all or none.
pub(super) fn migrate(conn: &mut Connection, from: i64, to: i64) -> rusqlite::Result<()> {
    let transaction = Transaction::new(conn, TransactionBehavior::Immediate)?;
    let range = from.max(0) as usize..to.max(0) as usize;
    for step in STEPS.get(range).unwrap_or_default() {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", to)?;
    transaction.commit()
}
