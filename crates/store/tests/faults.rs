//! Faults: processes that are killed, disks that are full, directories that go away. Real processes and real files; the
//! processes are this test program again, running one of the ignored tests below.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test
#![cfg(unix)]

mod shared;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use kernelwise_store::{Store, StoreError, Warning};
use shared::{Dial, NOW_S, count, key, open, options, record, timed};

/// Where a child finds its directory and its number.
const DIR: &str = "KERNELWISE_TEST_DIR";
const NUMBER: &str = "KERNELWISE_TEST_NUMBER";
/// Samples that a child writes between two acknowledgements.
const BATCH: u32 = 10;

fn child(name: &str, dir: &Path, number: usize) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", "--nocapture", name])
        .env(DIR, dir)
        .env(NUMBER, number.to_string());
    command
}

fn say(line: &str) {
    let mut out = std::io::stdout();
    out.write_all(format!("\n{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

#[test]
#[ignore = "a process of the tests below"]
fn child_writes_for_ever() {
    let dir = std::env::var(DIR).unwrap();
    let number = std::env::var(NUMBER).unwrap();
    let store = open(Path::new(&dir));
    for round in 1.. {
        record(&store, &key("w", &format!("own-{number}")), BATCH);
        record(&store, &key("w", "shared"), BATCH);
        store.flush().unwrap();
        say(&format!("ack {round}"));
    }
}

/// Numbers that are the same in every run (Knuth's constants).
fn next(seed: &mut u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

#[test]
fn four_writers_killed_fifty_times_lose_nothing_acknowledged() {
    const WRITERS: usize = 4;
    const KILLS: usize = 13;
    let dir = tempfile::tempdir().unwrap();
    let writer = |number: usize| {
        let (mut acknowledged, mut seed) = (0, number as u64 + 1);
        for _ in 0..KILLS {
            let mut process = child("child_writes_for_ever", dir.path(), number)
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let lines = BufReader::new(process.stdout.take().unwrap()).lines();
            let (mut last, patience) = (0, 1 + next(&mut seed) % 20);
            let mut killed = false;
            // What it said before it died was acknowledged as well.
            for line in lines.map_while(Result::ok) {
                if let Some(round) = line.strip_prefix("ack ") {
                    last = round.parse().unwrap();
                }
                if last >= patience && !killed {
                    process.kill().unwrap();
                    killed = true;
                }
            }
            assert!(killed, "it ended by itself: {}", process.wait().unwrap());
            process.wait().unwrap();
            acknowledged += last;
        }
        acknowledged
    };
    let acknowledged: Vec<u64> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|n| scope.spawn(move || writer(n)))
            .collect();
        writers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    let store = open(dir.path());
    assert_eq!(store.verify().unwrap(), Vec::<String>::new());
    assert_eq!(store.warnings(), [], "nothing had to be set aside");
    let batch = u64::from(BATCH);
    let (mut all, most_in_flight) = (0, KILLS as u64);
    for (number, rounds) in acknowledged.iter().enumerate() {
        let found = count(&store, &key("w", &format!("own-{number}")));
        assert!(
            found >= rounds * batch,
            "{number}: {found} of {rounds} rounds"
        );
        // And nothing twice: at each kill at most one round was written and not acknowledged.
        assert!(
            found <= (rounds + most_in_flight) * batch,
            "{number}: {found}"
        );
        all += rounds;
    }
    let shared = count(&store, &key("w", "shared"));
    assert!(shared >= all * batch && shared <= (all + 4 * most_in_flight) * batch);
}

#[test]
#[ignore = "a process of the tests below"]
fn child_fills_the_disk() {
    let dir = std::env::var(DIR).unwrap();
    let store = open(Path::new(&dir));
    for round in 0..10_000 {
        for i in 0..100 {
            record(&store, &key(&format!("w{round}-{i}"), "k"), 1);
        }
        match store.flush() {
            Ok(()) => say(&format!("ack {}", (round + 1) * 100)),
            Err(error) => {
                // What is in the file can still be read, and samples are still taken.
                let readable = store.known_anywhere().unwrap().len();
                assert!(store.record(store.slot(&key("after", "k")), timed(1.0)));
                say(&format!("failed with {readable} readable: {error}"));
                return;
            }
        }
    }
}

/// Runs the child that fills the disk, and checks what it leaves behind.
fn fill(mut process: Command, dir: &Path) -> String {
    let output = process.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut acknowledged = text.lines().filter_map(|line| line.strip_prefix("ack "));
    let acknowledged: usize = acknowledged
        .next_back()
        .map_or(0, |rows| rows.parse().unwrap());
    let failed = text.lines().find(|line| line.starts_with("failed "));
    let failed = failed.unwrap_or_else(|| panic!("it never filled: {text}"));
    let store = open(dir);
    assert_eq!(store.warnings(), []);
    assert_eq!(store.verify().unwrap(), Vec::<String>::new());
    let found = store.known_anywhere().unwrap().len();
    assert!(
        acknowledged > 0 && found >= acknowledged,
        "{found} of {acknowledged}"
    );
    failed.to_owned()
}

#[test]
fn a_file_that_may_not_grow_keeps_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    // A shell sets the limit of 1024 blocks, and that passing it is an error rather than the end.
    let mut process = Command::new("sh");
    process
        .args(["-c", "trap '' XFSZ; ulimit -f 1024; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "--nocapture",
            "child_fills_the_disk",
        ])
        .env(DIR, dir.path())
        .env(NUMBER, "0");
    fill(process, dir.path());
}

#[test]
fn a_full_disk_is_an_error_and_room_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "none"])
        .arg(dir.path())
        .output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        kernelwise_testing::skip("mount", "may not mount a small file system to fill");
        return;
    }
    struct Unmount<'a>(&'a Path);
    impl Drop for Unmount<'_> {
        fn drop(&mut self) {
            let unmounted = Command::new("umount").arg("-l").arg(self.0).status();
            assert!(unmounted.is_ok_and(|status| status.success()));
        }
    }
    let _unmount = Unmount(dir.path());
    let ballast = dir.path().join("ballast");
    fs::write(&ballast, vec![0; 400 << 10]).unwrap();
    let store = open(dir.path());
    let mut rows = 0;
    let error = loop {
        record(&store, &key(&format!("w{rows}"), "k"), 1);
        rows += 1;
        if rows % 100 == 0
            && let Err(error) = store.flush()
        {
            break error;
        }
        assert!(rows < 100_000, "it never filled");
    };
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    assert!(store.trouble().is_some());
    // What could not be written waited.
    fs::remove_file(ballast).unwrap();
    store.flush().unwrap();
    assert!(store.trouble().is_none());
    assert_eq!(store.known_anywhere().unwrap().len(), rows);
    assert_eq!(store.verify().unwrap(), Vec::<String>::new());
}

#[test]
#[ignore = "a process of the tests below"]
fn child_may_not_write() {
    let dir = std::env::var(DIR).unwrap();
    let empty = Path::new(&dir).join("empty");
    let error = Store::open(&empty, options()).unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");

    let filled = Path::new(&dir).join("filled");
    let store = open(&filled);
    assert!(matches!(store.warnings()[..], [Warning::ReadOnly { .. }]));
    let known = key("w", "k");
    assert_eq!(count(&store, &known), 7);
    record(&store, &known, 3);
    let error = store.flush().unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
    assert_eq!((count(&store, &known), store.dropped()), (7, 3));
    say("passed");
}

#[test]
fn a_read_only_directory_is_read() {
    const NOBODY: u32 = 65_534;
    let dir = tempfile::tempdir().unwrap();
    let (empty, filled) = (dir.path().join("empty"), dir.path().join("filled"));
    fs::create_dir(&empty).unwrap();
    record(&open(&filled), &key("w", "k"), 7);
    let before = fs::read(filled.join("records.sqlite")).unwrap();
    let allow =
        |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    for path in [&empty, &filled] {
        for entry in fs::read_dir(path).unwrap() {
            allow(&entry.unwrap().path(), 0o444);
        }
        allow(path, 0o555);
    }
    allow(dir.path(), 0o755);
    let mut process = child("child_may_not_write", dir.path(), 0);
    let root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    if root {
        // Nothing is forbidden to root.
        process.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
    let output = process.output();
    for path in [&empty, &filled] {
        allow(path, 0o755);
    }
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            let why = format!("cannot run this program as an unprivileged user: {error}");
            kernelwise_testing::skip("unprivileged", &why);
            return;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("\npassed\n"),
        "{text} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(fs::read(filled.join("records.sqlite")).unwrap() == before);
}

#[test]
fn a_directory_that_is_removed_is_begun_anew() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("records");
    let store = open(&dir);
    let (before, after) = (key("w", "before"), key("w", "after"));
    record(&store, &before, 5);
    store.flush().unwrap();
    assert_eq!(count(&store, &before), 5);
    fs::remove_dir_all(&dir).unwrap();
    record(&store, &after, 3);
    store.flush().unwrap();
    assert_eq!((count(&store, &before), count(&store, &after)), (0, 3));
    assert!(matches!(store.warnings()[..], [Warning::Vanished { .. }]));
    // Another process sees it too.
    assert_eq!(count(&open(&dir), &after), 3);
}

#[test]
fn a_damaged_file_is_set_aside_and_learning_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("records.sqlite");
    {
        let store = open(dir.path());
        for i in 0..2000 {
            record(&store, &key(&format!("w{i}"), "k"), 1);
        }
    }
    let mut bytes = fs::read(&path).unwrap();
    let length = bytes.len();
    assert!(length > 16 * 4096);
    bytes[2 * 4096..length - 4096].fill(0x5a);
    fs::write(&path, &bytes).unwrap();
    let store = open(dir.path());
    let [Warning::SetAside { aside, .. }] = &store.warnings()[..] else {
        panic!("{:?}", store.warnings());
    };
    assert!(
        fs::read(aside).unwrap() == bytes,
        "nothing is lost that was there"
    );
    record(&store, &key("w", "k"), 4);
    store.flush().unwrap();
    assert_eq!(count(&store, &key("w", "k")), 4);
}

/// A file that is too large to be checked when it is opened, with damaged pages. Says what is in it.
fn large_and_damaged(dir: &Path) -> Vec<u8> {
    {
        let store = open(dir);
        for i in 0..16_000 {
            record(&store, &key(&format!("{i:0200}"), "k"), 1);
        }
    }
    let path = dir.join("records.sqlite");
    let mut bytes = fs::read(&path).unwrap();
    let length = bytes.len();
    assert!(length > 4 << 20, "{length}");
    bytes[length / 2..length / 4 * 3].fill(0x5a);
    fs::write(&path, &bytes).unwrap();
    bytes
}

/// The damage shows when it is read, by whoever reads first: then it is set aside, and the reader goes on.
#[test]
fn a_large_damaged_file_is_set_aside_once_the_damage_shows() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = large_and_damaged(dir.path());
    let store = open(dir.path());
    assert_eq!(store.warnings(), [], "it is too large to be checked");
    assert_eq!(store.known_anywhere().unwrap(), []);
    let [Warning::SetAside { aside, .. }] = &store.warnings()[..] else {
        panic!("{:?}", store.warnings());
    };
    assert!(fs::read(aside).unwrap() == bytes, "all of it is kept");
    record(&store, &key("w", "k"), 4);
    store.flush().unwrap();
    assert_eq!(count(&store, &key("w", "k")), 4);
    assert_eq!(store.warnings().len(), 1, "{:?}", store.warnings());
    drop(store);
    // The next process finds nothing wrong.
    let store = open(dir.path());
    assert_eq!(count(&store, &key("w", "k")), 4);
    assert_eq!(store.warnings(), []);
    assert_eq!(store.verify().unwrap(), Vec::<String>::new());
}

/// The same if somebody writes first.
#[test]
fn a_large_damaged_file_is_set_aside_by_its_writer() {
    let dir = tempfile::tempdir().unwrap();
    large_and_damaged(dir.path());
    let store = open(dir.path());
    // Many keys, so that damaged pages of the index are met.
    for i in 0..2000 {
        record(&store, &key(&format!("w{i}"), "k"), 1);
    }
    store.flush().unwrap();
    assert!(matches!(store.warnings()[..], [Warning::SetAside { .. }]));
    assert_eq!(store.known_anywhere().unwrap().len(), 2000);
}

#[test]
fn clocks_that_jump_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dial = Dial::at(NOW_S);
    let store = Store::open(dir.path(), dial.options()).unwrap();
    let key = key("w", "k");
    let year = 365 * 86_400;
    for now_s in [NOW_S, NOW_S + 50 * year, 0, NOW_S, u64::MAX, NOW_S + 60] {
        dial.set(now_s);
        record(&store, &key, 10);
        store.flush().unwrap();
    }
    assert_eq!(count(&store, &key), 60);
    let known = store.known_anywhere().unwrap();
    let statistics = known[0].statistics;
    assert_eq!(statistics.last_s(), NOW_S + 60, "the clock is right again");
    let weight = statistics.faded(NOW_S + 60).unwrap().weight;
    assert!(
        (10.0..=60.0).contains(&weight),
        "what is measured now counts: {weight}"
    );
}

#[test]
fn a_newer_version_at_work_stops_the_older_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let key = key("w", "k");
    record(&store, &key, 5);
    store.flush().unwrap();
    let newer = rusqlite::Connection::open(store.path()).unwrap();
    newer.pragma_update(None, "user_version", 1000).unwrap();
    record(&store, &key, 5);
    let error = store.flush().unwrap_err();
    assert!(
        matches!(error, StoreError::Newer { found: 1000, .. }),
        "{error}"
    );
    let error = Store::open(dir.path(), options()).unwrap_err();
    assert!(matches!(error, StoreError::Newer { .. }), "{error}");
    let timed: i64 = newer
        .query_row("SELECT timed FROM series", [], |row| row.get(0))
        .unwrap();
    assert_eq!(timed, 5, "not touched");
    // The newer one leaves: the older goes on with what it kept.
    newer.pragma_update(None, "user_version", 2).unwrap();
    store.flush().unwrap();
    assert_eq!(count(&store, &key), 10);
}

#[test]
fn a_lock_that_is_held_for_too_long_is_an_error_and_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let key = key("w", "k");
    record(&store, &key, 1);
    store.flush().unwrap();
    let other = rusqlite::Connection::open(store.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    record(&store, &key, 1);
    // Readers are not kept out.
    assert_eq!(count(&store, &key), 1);
    let error = store.flush().unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    other.execute_batch("ROLLBACK").unwrap();
    store.flush().unwrap();
    assert_eq!(count(&store, &key), 2);
}
