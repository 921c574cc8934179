//! Servers that say nothing, that are not whom they should be, or are not there; and how much is sent at once.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test
#![cfg(unix)]

mod machines;
mod server;
mod shared;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use kernelwise_store::Export;
use kernelwise_store::fleet::{
    BackgroundSync, Fleet, FleetError, FleetOptions, Listen, PrivateServer, ServerSeen,
    SyncPreview, sync_per_s,
};
use kernelwise_types::Fingerprint;
use machines::{connect, filled, here, key_on, machine};
use server::{Certificate, Proxy, Server, encrypted};
use shared::{NOW_S, record};

const ROWS: &str = "SELECT count(*) FROM kernelwise.series";
const SHORT: Duration = Duration::from_millis(100);
/// Longer than anybody waits for a test.
const LONG: Duration = Duration::from_secs(3600);

/// A server that accepts connections, says this to each, and then nothing; it hears everything and never hangs up.
fn silent(welcome: &'static [u8]) -> FleetOptions {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                let heard = client.read(&mut buffer);
                if heard.is_ok() && client.write_all(welcome).is_ok() {
                    while let Ok(1..) = client.read(&mut buffer) {}
                }
            });
        }
    });
    FleetOptions::new(&format!(
        "postgresql://owner@127.0.0.1:{port}/postgres?sslmode=disable"
    ))
}

/// That the user is accepted, and questions are welcome.
const WELCOME: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

#[test]
fn a_server_that_never_answers_is_given_up() {
    // While connecting, which no statement is part of; and later.
    for (welcome, statement_timeout) in [(&b""[..], LONG), (WELCOME, SHORT)] {
        let mut options = silent(welcome);
        options.network_timeout = SHORT;
        options.statement_timeout = statement_timeout;
        let error = Fleet::connect(&options).unwrap_err();
        assert!(error.is_temporary(), "{error:?}");
        assert!(error.to_string().contains("no answer within"), "{error}");
    }
}

#[test]
fn whoever_ends_does_not_wait_for_a_silent_server() {
    let dir = tempfile::tempdir().unwrap();
    let this = machine("x86_64", 4);
    let store = Arc::new(filled(dir.path(), &this, 1));
    let mut options = silent(b"");
    options.network_timeout = LONG;
    options.drop_timeout = SHORT;
    let background = BackgroundSync::start(store, here(&this), options, LONG).unwrap();
    let (ended, heard) = mpsc::channel();
    std::thread::spawn(move || {
        drop(background);
        ended.send(()).unwrap();
    });
    heard.recv_timeout(Duration::from_secs(60)).unwrap();
}

#[test]
fn tls_is_spoken_and_the_certificate_is_verified() {
    let Some((server, pem)) = encrypted(Certificate::Signed) else {
        return;
    };
    let url = |mode: &str| server.url("owner").replace("sslmode=disable", mode);
    for mode in ["", "sslmode=prefer", "sslmode=require"] {
        let mut options = FleetOptions::new(&url(mode));
        options.authorities = Some(pem.clone());
        let fleet = Fleet::connect(&options).unwrap();
        let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
            WHERE ssl AND application_name = 'kernelwise'";
        assert_eq!(server.count(encrypted), 1, "{mode}");
        drop(fleet);
        while server.count(encrypted) > 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
        // The system's authorities do not know it, and what cannot be verified is not sent.
        options.authorities = None;
        let error = Fleet::connect(&options).unwrap_err();
        assert!(matches!(error, FleetError::Untrusted { .. }), "{error:?}");
        let said = error.to_string();
        assert!(
            said.contains("KERNELWISE_DATABASE_CA") && said.contains("sslmode=disable"),
            "{said}"
        );
        options.authorities = Some(b"no certificate".to_vec());
        let error = Fleet::connect(&options).unwrap_err();
        assert!(
            matches!(error, FleetError::Certificates { .. }),
            "{error:?}"
        );
    }
    // Another name than that in the certificate.
    let mut options = FleetOptions::new(&url("").replace("127.0.0.1", "localhost"));
    options.authorities = Some(pem);
    let error = Fleet::connect(&options).unwrap_err();
    assert!(error.to_string().contains("subjectAltName"), "{error}");
    // Where TLS is not wanted, authorities are not looked at.
    let mut options = FleetOptions::new(&server.url("owner"));
    options.authorities = Some(b"no certificate".to_vec());
    Fleet::connect(&options).unwrap();
}

#[test]
fn a_certificate_that_signed_itself_is_its_own_authority() {
    let Some((server, pem)) = encrypted(Certificate::Itself) else {
        return;
    };
    let url = server.url("owner").replace("sslmode=disable", "");
    let mut options = FleetOptions::new(&url);
    options.authorities = Some(pem);
    Fleet::connect(&options).unwrap();

    let Some((server, pem)) = encrypted(Certificate::Authority) else {
        return;
    };
    options.url = server.url("owner").replace("sslmode=disable", "");
    options.authorities = Some(pem);
    let error = Fleet::connect(&options).unwrap_err();
    assert!(matches!(error, FleetError::Untrusted { .. }), "{error:?}");
    assert!(error.to_string().contains("docs/fleet.md"), "{error}");
}

#[test]
fn a_server_without_tls_is_not_one_with() {
    let Some(server) = Server::start() else {
        return;
    };
    let url = server
        .url("owner")
        .replace("sslmode=disable", "sslmode=require");
    let error = Fleet::connect(&FleetOptions::new(&url)).unwrap_err();
    assert!(matches!(error, FleetError::Untrusted { .. }), "{error:?}");
}

#[test]
fn a_preview_reads_only_and_needs_no_server() {
    let Some(mut server) = Server::start() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let this = machine("x86_64", 4);
    let store = filled(dir.path(), &this, 30);
    let options = FleetOptions::new(&server.url("owner"));
    let preview = |options| SyncPreview::of(&store, &here(&this), options).unwrap();

    let unnamed = preview(None);
    assert_eq!((unnamed.records_out, unnamed.notes_out), (30, 1));
    assert_eq!((unnamed.out.len(), unnamed.first_out.len()), (31, 20));
    assert_eq!(unnamed.first_out, unnamed.out[..20]);
    let empty = preview(Some(&options));
    let tables = "SELECT count(*) FROM pg_namespace WHERE nspname = 'kernelwise'";
    assert_eq!(server.count(tables), 0, "nothing was made");
    assert_eq!(
        (empty.server, &empty.out),
        (ServerSeen::Empty, &unnamed.out)
    );

    connect(&options.url).sync(&store, &here(&this)).unwrap();
    let synced = preview(Some(&options));
    assert_eq!((synced.server, synced.out.len()), (ServerSeen::Asked, 0));
    record(&store, &key_on(&this, "w3"), 1);
    assert_eq!(preview(Some(&options)).records_out, 1);

    // Every line is one of a wisdom file.
    let file = store.export(&Export::default()).unwrap();
    let file = String::from_utf8(file.to_bytes(false)).unwrap();
    let in_file = |line: &&String| file.lines().any(|l| l == line.as_str());
    assert_eq!(
        unnamed.out.iter().filter(in_file).count(),
        30,
        "w3 is newer"
    );

    server.stop();
    let away = preview(Some(&options));
    assert_eq!((away.server, away.out.len()), (ServerSeen::Away, 31));
    assert!(away.trouble.unwrap().contains("cannot be reached"));
}

/// Notes of 36 MB go in several transactions, and go on where they were cut off.
#[test]
fn large_notes_go_piece_by_piece() {
    let Some(server) = Server::start() else {
        return;
    };
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let this = machine("x86_64", 4);
    let [a, b] = [0, 1].map(|i: usize| filled(dirs[i].path(), &this, 0));
    let kind = Fingerprint::of(&this);
    for i in 0..12 {
        let model = serde_json::json!("x".repeat(3 << 20));
        a.keep_model(&kind, &format!("m{i:02}"), model);
        a.flush().unwrap();
    }
    drop(connect(&server.url("owner")));
    // Two fit into one transaction, the description of the machine beside them.
    let proxy = Proxy::cutting_at(server.port, 5);
    let through = server.url_through(&proxy);
    connect(&through).sync(&a, &here(&this)).unwrap_err();
    let notes = "SELECT count(*) FROM kernelwise.note";
    assert_eq!((proxy.commits(), server.count(notes)), (5, 11));
    let synced = connect(&through).sync(&a, &here(&this)).unwrap();
    assert_eq!((synced.notes_out, server.count(notes)), (2, 13));
    let again = proxy.commits() - 5;
    assert!(again <= 3, "what was heard of is not sent again: {again}");
    let synced = connect(&through).sync(&b, &here(&this)).unwrap();
    assert_eq!(synced.taken.notes, 12);
    assert!(b.model(&kind, "m11").unwrap().is_some());
}

/// No other user of the machine can reach it, and what was pushed is gone afterwards.
#[test]
fn what_is_measured_is_pushing_and_nothing_stays() {
    let Some(server) = Server::start() else {
        return;
    };
    let clock = kernelwise_measure::TscClock::new();
    let wall = || kernelwise_store::WallClock::new(|| NOW_S);
    let rate = |url: &str| {
        let dir = tempfile::tempdir().unwrap();
        sync_per_s(&FleetOptions::new(url), dir.path(), 1500, &clock, wall())
    };
    let (dir, this) = (tempfile::tempdir().unwrap(), machine("x86_64", 4));
    let store = filled(dir.path(), &this, 3);
    connect(&server.url("owner"))
        .sync(&store, &here(&this))
        .unwrap();
    assert!(rate(&server.url("owner")).unwrap() > 0.0);
    assert_eq!(server.count(ROWS), 3, "records of machines stay");
    // Who may not delete writes nothing.
    let roles = "CREATE ROLE writer LOGIN; GRANT USAGE ON SCHEMA kernelwise TO writer;
        GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA kernelwise TO writer";
    server.admin().batch_execute(roles).unwrap();
    let error = rate(&server.url("writer")).unwrap_err();
    assert!(matches!(error, FleetError::Refused { .. }), "{error:?}");
    assert_eq!(server.count(ROWS), 3);

    let private = PrivateServer::start(Listen::Socket, |_| vec![]).unwrap();
    assert!(rate(&private.url("owner")).unwrap() > 0.0);
}
