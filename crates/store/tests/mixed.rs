//! Records from elsewhere: of another architecture, and of another version at work on the same file. The other version is this test
//! program again, as a process of its own, running the ignored test below.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test
#![cfg(unix)]

mod machines;
mod shared;

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use kernelwise_store::{Export, Store, StoreError, Trust, Wisdom};
use machines::{filled, here, key_on, machine};
use shared::{count, key, open, options, record};

/// A file made on other machines is read, kept and passed on; but here, it says nothing or little.
#[test]
fn times_of_another_architecture_are_never_taken_for_ones_own() {
    let dirs = [(); 4].map(|()| tempfile::tempdir().unwrap());
    let this = machine("x86_64", 4);
    let (other, near) = (machine("aarch64", 4), machine("x86_64", 6));
    let path = dirs[3].path().join("others.wisdom.gz");
    let mut all = Wisdom::default();
    for (machine, dir) in [&other, &near].into_iter().zip(&dirs) {
        let store = filled(dir.path(), machine, 3);
        all.merge(store.export(&Export::default()).unwrap());
    }
    all.save(&path).unwrap();

    let store = open(dirs[2].path());
    let (wisdom, skipped) = Wisdom::load(&path).unwrap();
    assert_eq!(skipped, []);
    let imported = store.import(&wisdom).unwrap();
    assert_eq!((imported.records, imported.notes), (6, 2));
    assert_eq!(count(&store, &key_on(&other, "w0")), 2, "it is kept");
    let recalled = store.recall(&here(&this), |_| Some(1)).unwrap();
    let ignored: u64 = recalled.ignored.values().sum();
    assert_eq!((recalled.usable.len(), ignored), (3, 3));
    for (known, trust) in &recalled.usable {
        assert_eq!(known.key.place, key_on(&near, "w0").place);
        assert!(matches!(trust, Trust::Prior { .. }), "{trust:?}");
        assert!(trust.weight() < 0.5, "{trust:?}");
    }
    // There, it is what was measured.
    let recalled = store.recall(&here(&other), |_| Some(1)).unwrap();
    let measured = |(_, trust): &&(_, Trust)| *trust == Trust::Measured;
    assert_eq!(recalled.usable.iter().filter(measured).count(), 3);
}

const DIR: &str = "KERNELWISE_TEST_DIR";
const NEWER: i64 = 1000;

#[test]
#[ignore = "a process of the test below"]
fn child_is_newer() {
    let say = |line: &str| {
        let mut out = std::io::stdout();
        out.write_all(format!("\n{line}\n").as_bytes()).unwrap();
        out.flush().unwrap();
    };
    let path = Path::new(&std::env::var(DIR).unwrap()).join("records.sqlite");
    let conn = rusqlite::Connection::open(path).unwrap();
    let version = "PRAGMA user_version";
    let before: i64 = conn.query_row(version, [], |row| row.get(0)).unwrap();
    conn.execute_batch(
        "BEGIN IMMEDIATE; CREATE TABLE later (x); ALTER TABLE series ADD COLUMN later INTEGER",
    )
    .unwrap();
    conn.pragma_update(None, "user_version", NEWER).unwrap();
    say("migrating");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        match &*line {
            "commit" => conn.execute_batch("COMMIT").unwrap(),
            "write" => conn
                .execute_batch("UPDATE series SET later = 1; INSERT INTO later VALUES (1)")
                .unwrap(),
            _ => conn
                .execute_batch(&format!(
                    "DROP TABLE later; ALTER TABLE series DROP COLUMN later; PRAGMA user_version = {before}"
                ))
                .unwrap(),
        }
        say(&line);
    }
}

/// The other process, and what it says.
struct Newer {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Newer {
    fn start(dir: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "child_is_newer"])
            .env(DIR, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut newer = Self { process, lines };
        newer.hear("migrating");
        newer
    }

    fn hear(&mut self, word: &str) {
        let found = self.lines.by_ref().map_while(Result::ok);
        assert!(found.into_iter().any(|line| line == word), "{word}");
    }

    fn tell(&mut self, word: &str) {
        let input = self.process.stdin.as_mut().unwrap();
        input.write_all(format!("{word}\n").as_bytes()).unwrap();
        self.hear(word);
    }
}

impl Drop for Newer {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

#[test]
fn a_newer_process_and_an_older_one_do_each_other_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let key = key("w", "k");
    record(&store, &key, 5);
    store.flush().unwrap();
    let mut newer = Newer::start(dir.path());
    // While it migrates, the file is still what it was, and can be opened and read.
    let second = open(dir.path());
    assert_eq!(count(&second, &key), 5);
    record(&store, &key, 5);
    let error = store.flush().unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    newer.tell("commit");
    // From then on the older ones keep their hands off it, and what they measured to themselves.
    for older in [&store, &second] {
        record(older, &key, 1);
        let error = older.flush().unwrap_err();
        assert!(
            matches!(error, StoreError::Newer { found: NEWER, .. }),
            "{error}"
        );
    }
    let error = Store::open(dir.path(), options()).unwrap_err();
    assert!(matches!(error, StoreError::Newer { .. }), "{error}");
    newer.tell("write");
    let look = rusqlite::Connection::open(store.path()).unwrap();
    let sql = "SELECT timed, later FROM series";
    let row: (i64, i64) = look
        .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert_eq!(row, (5, 1), "not touched by the older, and by the newer");
    // It leaves, and nothing of theirs is lost.
    newer.tell("leave");
    drop(newer);
    store.flush().unwrap();
    second.flush().unwrap();
    assert_eq!(count(&store, &key), 12);
}
