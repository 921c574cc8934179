//! Syncing now and then, without anybody waiting for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Fleet, FleetError, FleetOptions, Synced};
use crate::store::Store;
use crate::trust::Here;

/// How the background sync is doing.
#[derive(Debug, Clone, Default)]
pub struct SyncState {
    /// How many attempts ended, well or badly.
    pub attempts: u64,
    /// What the last one that succeeded did.
    pub last: Option<Synced>,
    /// Why the last attempt failed; `None` if it did not.
    pub trouble: Option<FleetError>,
}

#[derive(Debug, Default)]
struct Shared {
    inner: Mutex<Inner>,
    told: Condvar,
    /// Nobody waits any more: no further request.
    abandoned: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Inner {
    state: SyncState,
    /// Asks the thread to end.
    stop: bool,
    /// It did.
    ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that the thread ended, also if it panicked.
struct Ends(Arc<Shared>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.told.notify_all();
    }
}

/// A thread that syncs a store with a server: at once, then every so often, until this is dropped. A server that is away is
/// a warning in the log, once until it is back.
#[derive(Debug)]
pub struct BackgroundSync {
    shared: Arc<Shared>,
    /// How long dropping this may take.
    patience: Duration,
}

impl BackgroundSync {
    /// Starts it. The error is that of starting a thread.
    pub fn start(
        store: Arc<Store>,
        here: Here,
        options: FleetOptions,
        every: Duration,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (patience, ends) = (options.drop_timeout, Ends(Arc::clone(&shared)));
        std::thread::Builder::new()
            .name("kernelwise-sync".into())
            .spawn(move || {
                // Held by the thread from its start on, and let go after the store.
                let (ends, store) = (ends, store);
                run(&ends.0, &store, &here, &options, every);
                drop(store);
            })?;
        Ok(Self { shared, patience })
    }

    /// How it is doing.
    pub fn state(&self) -> SyncState {
        self.shared.lock().state.clone()
    }

    /// Waits until so many attempts have ended.
    pub fn wait_for(&self, attempts: u64) -> SyncState {
        let (inner, told) = (self.shared.lock(), &self.shared.told);
        let waited = told.wait_while(inner, |inner| inner.state.attempts < attempts);
        let inner = waited.unwrap_or_else(PoisonError::into_inner);
        inner.state.clone()
    }
}

fn run(shared: &Shared, store: &Store, here: &Here, options: &FleetOptions, every: Duration) {
    loop {
        let synced = Fleet::connect(options).and_then(|mut fleet| {
            fleet.link.stop_by(&shared.abandoned);
            fleet.sync(store, here)
        });
        let mut inner = shared.lock();
        let state = &mut inner.state;
        state.attempts += 1;
        match synced {
            Ok(synced) => (state.last, state.trouble) = (Some(synced), None),
            Err(error) => {
                if state.trouble.is_none() {
                    tracing::warn!(%error, "records are not shared for now");
                }
                state.trouble = Some(error);
            }
        }
        shared.told.notify_all();
        let waited = shared
            .told
            .wait_timeout_while(inner, every, |inner| !inner.stop);
        if waited.unwrap_or_else(PoisonError::into_inner).0.stop {
            return;
        }
    }
}

impl Drop for BackgroundSync {
    /// Lets an exchange under way finish, for at most [`FleetOptions::drop_timeout`]. One that takes longer ends by itself before its
    /// next request, and meanwhile keeps the store open. What was committed stays, and the next sync goes on from there.
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        inner.stop = true;
        self.shared.told.notify_all();
        let told = &self.shared.told;
        let waited = told.wait_timeout_while(inner, self.patience, |inner| !inner.ended);
        drop(waited);
        self.shared.abandoned.store(true, Ordering::Relaxed);
    }
}
