//! Programs that share what they learn through a server: a real one, started for the test.
#![cfg(all(unix, feature = "postgres"))]
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

use std::path::Path;
use std::time::Duration;

use kernelwise::Kernelwise;
use kernelwise::select::Went;
use kernelwise::store::fleet::{FleetError, FleetOptions, Listen, PrivateServer, SyncState};

/// Longer than the test takes.
const HOUR: Duration = Duration::from_secs(3600);
const WORKLOAD: &str = "copy f32 1000";

/// Remembers a workload as if it had been run.
fn learn(dir: &Path) {
    let kw = Kernelwise::builder().remember(dir).build().unwrap();
    assert!(kw.sync_state().is_none(), "no server was named");
    for _ in 0..40 {
        let ticket = kw.selector().select(&WORKLOAD.parse().unwrap()).unwrap();
        let went = Went::Well { time_ns: 1000.0 };
        kw.selector().report(ticket, &went).unwrap();
        kw.selector().settle();
    }
}

/// The state after the first exchange.
fn first_exchange(kw: &Kernelwise) -> SyncState {
    for _ in 0..6000 {
        let state = kw.sync_state().unwrap();
        if state.attempts > 0 {
            return state;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("nothing was exchanged within a minute");
}

#[test]
fn what_one_program_learns_another_knows() {
    if PrivateServer::programs().is_none() {
        return kernelwise_testing::skip("postgres", "initdb and postgres were not found");
    }
    let settings = |_: &Path| vec!["fsync=off".to_owned()];
    let mut server = PrivateServer::start(Listen::Socket, settings).unwrap();
    let url = server.url("owner");
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    learn(here.path());

    let kw = Kernelwise::builder()
        .remember(here.path())
        .sync_with(&url, HOUR)
        .build()
        .unwrap();
    let state = first_exchange(&kw);
    assert!(state.trouble.is_none(), "{:?}", state.trouble);
    let pushed = state.last.unwrap();
    assert!(pushed.records_out > 0 && pushed.notes_out > 0, "{pushed:?}");
    drop(kw);

    let mut options = FleetOptions::new(&url);
    options.network_timeout = Duration::from_secs(5);
    let syncing = || {
        let builder = Kernelwise::builder().remember(there.path());
        builder.sync_by(options.clone(), HOUR).build().unwrap()
    };
    let kw = syncing();
    let state = first_exchange(&kw);
    assert_eq!(state.last.unwrap().taken.records, pushed.records_out);
    drop(kw);
    // From the next start on it is as if it had been learned here.
    let kw = Kernelwise::builder()
        .remember(there.path())
        .build()
        .unwrap();
    let decision = kw.explain(&WORKLOAD.parse().unwrap()).unwrap();
    let time = decision.chosen.estimate.time().unwrap();
    assert!((time.get() / 1000.0 - 1.0).abs() < 0.05, "{decision:?}");

    // A server that is away is a state, not an error.
    server.stop();
    let state = first_exchange(&syncing());
    assert!(
        matches!(state.trouble, Some(FleetError::Unreachable { .. })),
        "{:?}",
        state.trouble
    );
    // Without a place to remember in, there is nothing to exchange.
    let nowhere = Kernelwise::builder().sync_with(&url, HOUR).build().unwrap();
    assert!(nowhere.sync_state().is_none());
}
