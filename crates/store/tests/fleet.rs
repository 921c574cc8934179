//! Records on a PostgreSQL server: a real one, started for each test.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test
#![cfg(unix)]

mod machines;
mod server;
mod shared;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kernelwise_store::fleet::{BackgroundSync, Fleet, FleetError, FleetOptions};
use kernelwise_store::{Export, Quarantine};
use kernelwise_types::Fingerprint;
use machines::{connect, filled, here, key_on, machine};
use server::{Proxy, Server};
use shared::{count, open, record};

const ROWS: &str = "SELECT count(*) FROM kernelwise.series";

#[test]
fn records_travel_and_twice_is_once() {
    let Some(server) = Server::start() else {
        return;
    };
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let this = machine("x86_64", 4);
    let (a, b) = (
        filled(dirs[0].path(), &this, 10),
        filled(dirs[1].path(), &this, 1),
    );
    let quarantine = Quarantine {
        kernel: "cpu-k".into(),
        version: 1,
        case: "w1".into(),
        evidence: "panicked in /home/anna".into(),
        lifted: false,
    };
    a.quarantine(&Fingerprint::of(&this), &quarantine);
    let mut fleet = connect(&server.url("owner"));
    let preview = fleet.preview(&a, &here(&this)).unwrap();
    assert_eq!((preview.records_out, preview.notes_out), (10, 2));
    assert_eq!(preview.out.len(), 12);
    assert!(!preview.out.concat().contains("anna"));
    assert_eq!(server.count(ROWS), 0, "looking is not syncing");

    let synced = fleet.sync(&a, &here(&this)).unwrap();
    assert_eq!((synced.records_out, synced.notes_out), (10, 2));
    let synced = fleet.sync(&b, &here(&this)).unwrap();
    assert_eq!((synced.records_out, synced.taken.records), (1, 10));
    let w = |i: u32| key_on(&this, &format!("w{i}"));
    assert_eq!(
        (count(&b, &w(0)), count(&b, &w(1))),
        (4, 2),
        "w0 was known to both"
    );
    assert!(
        b.quarantines(&Fingerprint::of(&this)).unwrap()[0]
            .evidence
            .is_empty()
    );

    // Nothing moves any more, whoever asks and how often.
    fleet.sync(&a, &here(&this)).unwrap();
    let contents = (
        a.export(&Export::default()).unwrap(),
        b.export(&Export::default()).unwrap(),
    );
    for store in [&a, &b, &a] {
        let synced = fleet.sync(store, &here(&this)).unwrap();
        assert_eq!((synced.records_out, synced.notes_out), (0, 0));
        assert_eq!((synced.taken.records, synced.taken.notes), (0, 0));
    }
    assert_eq!(contents.0, a.export(&Export::default()).unwrap());
    assert_eq!(a.known_anywhere().unwrap(), b.known_anywhere().unwrap());
    // What is learned later follows.
    record(&a, &w(3), 5);
    assert_eq!(fleet.sync(&a, &here(&this)).unwrap().records_out, 1);
    assert_eq!(fleet.sync(&b, &here(&this)).unwrap().taken.records, 1);
    assert_eq!(count(&b, &w(3)), 7);
    assert_eq!(server.count(ROWS), 11);
}

#[test]
fn a_machine_takes_what_fits_it() {
    let Some(server) = Server::start() else {
        return;
    };
    let dirs = [(); 4].map(|()| tempfile::tempdir().unwrap());
    let this = machine("x86_64", 4);
    let others = [
        machine("x86_64", 6),
        machine("x86_64", 512),
        machine("aarch64", 4),
    ];
    let mut fleet = connect(&server.url("owner"));
    for (other, dir) in others.iter().zip(&dirs) {
        let store = filled(dir.path(), other, 3);
        fleet.sync(&store, &here(other)).unwrap();
    }
    assert_eq!(server.count(ROWS), 9);
    let store = filled(dirs[3].path(), &this, 0);
    assert_eq!(fleet.preview(&store, &here(&this)).unwrap().records_in, 3);
    let synced = fleet.sync(&store, &here(&this)).unwrap();
    assert_eq!(
        synced.taken.records, 3,
        "near enough, too large, another architecture"
    );
    let recalled = store.recall(&here(&this), |_| Some(1)).unwrap();
    assert_eq!((recalled.usable.len(), recalled.ignored.len()), (3, 0));
    // A kind that fits later is fetched from its beginning.
    let grown = machine("x86_64", 300);
    let synced = fleet.sync(&store, &here(&grown)).unwrap();
    assert_eq!(synced.taken.records, 3);
}

#[test]
fn a_server_that_is_down_costs_a_message() {
    let dir = tempfile::tempdir().unwrap();
    let this = machine("x86_64", 4);
    let Some(mut server) = Server::start() else {
        return;
    };
    server.stop();
    let store = Arc::new(filled(dir.path(), &this, 3));
    let error = Fleet::connect(&FleetOptions::new(&server.url("owner:secret"))).unwrap_err();
    assert!(matches!(error, FleetError::Unreachable { .. }), "{error:?}");
    let text = format!("{error} {error:?}");
    assert!(
        text.contains("127.0.0.1") && !text.contains("secret"),
        "{text}"
    );

    // In the background nobody notices, and it goes on once the server is there.
    let options = FleetOptions::new(&server.url("owner"));
    let every = Duration::from_millis(20);
    let background = BackgroundSync::start(store.clone(), here(&this), options, every).unwrap();
    assert!(background.wait_for(2).trouble.is_some());
    record(&store, &key_on(&this, "w0"), 1);
    store.flush().unwrap();
    server.run();
    let mut state = background.state();
    while state.last.is_none() {
        state = background.wait_for(state.attempts + 1);
    }
    assert!(state.trouble.is_none());
    drop(background);
    assert_eq!(server.count(ROWS), 3);
}

#[test]
fn a_server_that_goes_down_in_the_middle_loses_and_doubles_nothing() {
    let Some(server) = Server::start() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let this = machine("x86_64", 4);
    let store = filled(dir.path(), &this, 3500);
    drop(connect(&server.url("owner")));
    // It stops while the third batch waits for its commit: that batch is lost with it.
    let (port, url) = (server.port, server.url("owner"));
    let server = Arc::new(Mutex::new(server));
    let falls = server.clone();
    let proxy = Proxy::doing_at(port, 3, move || falls.lock().unwrap().stop());
    let through = server.lock().unwrap().url_through(&proxy);
    let mut cut = connect(&through);
    let error = cut.sync(&store, &here(&this)).unwrap_err();
    assert!(matches!(error, FleetError::Unreachable { .. }), "{error:?}");
    let error = cut.sync(&store, &here(&this)).unwrap_err();
    assert!(matches!(error, FleetError::Unreachable { .. }), "{error:?}");
    let error = Fleet::connect(&FleetOptions::new(&url)).unwrap_err();
    assert!(matches!(error, FleetError::Unreachable { .. }), "{error:?}");
    let mut server = server.lock().unwrap();
    server.run();
    assert_eq!(server.count(ROWS), 2000);
    let synced = connect(&url).sync(&store, &here(&this)).unwrap();
    assert_eq!(synced.records_out, 1500);
    assert_eq!(server.count(ROWS), 3500);
    let sum = "SELECT sum((statistics::json->>'timed')::bigint)::bigint FROM kernelwise.series";
    assert_eq!(server.count(sum), 7000);
}

#[test]
fn a_commit_that_is_not_heard_of_is_not_done_twice() {
    let Some(server) = Server::start() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let this = machine("x86_64", 4);
    let store = filled(dir.path(), &this, 10);
    drop(connect(&server.url("owner")));
    let proxy = Proxy::cutting_at(server.port, 1);
    let through = server.url_through(&proxy);
    let error = connect(&through).sync(&store, &here(&this)).unwrap_err();
    assert!(matches!(error, FleetError::Unreachable { .. }), "{error:?}");
    assert_eq!(proxy.commits(), 1);
    assert_eq!(server.count(ROWS), 10, "it was done");
    let synced = connect(&through).sync(&store, &here(&this)).unwrap();
    assert_eq!((synced.records_out, synced.notes_out), (0, 1));
    assert_eq!(server.count(ROWS), 10);
}

#[test]
fn many_may_come_at_once_to_an_empty_server() {
    let Some(server) = Server::start() else {
        return;
    };
    let this = machine("x86_64", 4);
    let url = server.url("owner");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let dir = tempfile::tempdir().unwrap();
                let store = filled(dir.path(), &this, 50);
                connect(&url).sync(&store, &here(&this)).unwrap();
            });
        }
    });
    assert_eq!(server.count(ROWS), 200);
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    connect(&url).sync(&store, &here(&this)).unwrap();
    assert_eq!(count(&store, &key_on(&this, "w7")), 8);
}

#[test]
fn roles_do_what_they_may_and_versions_are_respected() {
    let Some(server) = Server::start() else {
        return;
    };
    let mut admin = server.admin();
    admin
        .batch_execute("CREATE ROLE kernelwise_writer LOGIN; CREATE ROLE kernelwise_reader LOGIN")
        .unwrap();
    let error = Fleet::connect(&FleetOptions::new(&server.url("kernelwise_writer"))).unwrap_err();
    assert!(matches!(error, FleetError::NotReady { .. }), "{error:?}");
    drop(connect(&server.url("owner")));
    // As in docs/fleet.md.
    admin
        .batch_execute(
            "GRANT USAGE ON SCHEMA kernelwise TO kernelwise_reader, kernelwise_writer;
             GRANT SELECT ON ALL TABLES IN SCHEMA kernelwise TO kernelwise_reader, kernelwise_writer;
             GRANT INSERT, UPDATE ON kernelwise.series, kernelwise.note, kernelwise.job TO kernelwise_writer",
        )
        .unwrap();
    let this = machine("x86_64", 4);
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path(), &this, 2);
    let mut writer = connect(&server.url("kernelwise_writer"));
    assert_eq!(writer.sync(&store, &here(&this)).unwrap().records_out, 2);
    writer.put_jobs("s", &[serde_json::json!(1)]).unwrap();
    let mut reader = connect(&server.url("kernelwise_reader"));
    let empty = tempfile::tempdir().unwrap();
    let other = open(empty.path());
    let synced = reader.sync(&other, &here(&this)).unwrap();
    assert_eq!((synced.taken.records, synced.may_not_push), (2, false));
    // It keeps its own to itself, and takes others' all the same.
    record(&other, &key_on(&this, "mine"), 1);
    record(&store, &key_on(&this, "new"), 1);
    writer.sync(&store, &here(&this)).unwrap();
    let synced = reader.sync(&other, &here(&this)).unwrap();
    assert_eq!((synced.taken.records, synced.may_not_push), (1, true));
    assert_eq!(server.count(ROWS), 3);

    admin
        .batch_execute("UPDATE kernelwise.format SET version = 1000")
        .unwrap();
    let error = Fleet::connect(&FleetOptions::new(&server.url("owner"))).unwrap_err();
    assert!(
        matches!(error, FleetError::Newer { found: 1000, .. }),
        "{error:?}"
    );
    let error = Fleet::connect(&FleetOptions::new("postgresql://[")).unwrap_err();
    assert!(matches!(error, FleetError::Address { .. }), "{error:?}");
}

#[test]
fn a_statement_that_takes_too_long_is_given_up() {
    let Some(server) = Server::start() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let this = machine("x86_64", 4);
    let store = filled(dir.path(), &this, 1);
    let mut options = FleetOptions::new(&server.url("owner"));
    options.statement_timeout = Duration::from_millis(100);
    let mut fleet = Fleet::connect(&options).unwrap();
    let mut admin = server.admin();
    let mut held = admin.transaction().unwrap();
    held.batch_execute("LOCK TABLE kernelwise.series").unwrap();
    let error = fleet.sync(&store, &here(&this)).unwrap_err();
    assert!(matches!(error, FleetError::Slow { .. }), "{error:?}");
    held.rollback().unwrap();
    assert_eq!(fleet.sync(&store, &here(&this)).unwrap().records_out, 1);
}

#[test]
fn a_restored_server_is_told_everything_again() {
    let Some(server) = Server::start() else {
        return;
    };
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let this = machine("x86_64", 4);
    let (a, b) = (
        filled(dirs[0].path(), &this, 5),
        filled(dirs[1].path(), &this, 0),
    );
    connect(&server.url("owner"))
        .sync(&a, &here(&this))
        .unwrap();
    // A dump from a server with many more transactions behind it, which had lost a row.
    let mut admin = server.admin();
    admin
        .batch_execute(
            "UPDATE kernelwise.series SET changed = changed + 1000000;
             DELETE FROM kernelwise.series WHERE workload = 'w0';
             SELECT kernelwise.restored()",
        )
        .unwrap();
    connect(&server.url("owner"))
        .sync(&a, &here(&this))
        .unwrap();
    let synced = connect(&server.url("owner"))
        .sync(&b, &here(&this))
        .unwrap();
    assert_eq!(synced.taken.records, 5);
}
