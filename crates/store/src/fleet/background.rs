//! Syncing now and then, without anybody waiting for it.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
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
    state: Mutex<(SyncState, bool)>,
    told: Condvar,
}

/// A thread that syncs a store with a server: at once, then every so often, until this is dropped. A server that is away is
/// a warning in the log, once until it is back.
#[derive(Debug)]
pub struct BackgroundSync {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
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
        let seen = shared.clone();
        let thread = std::thread::Builder::new()
            .name("kernelwise-sync".into())
            .spawn(move || {
                loop {
                    let synced = Fleet::connect(&options).and_then(|mut f| f.sync(&store, &here));
                    let mut state = seen.state.lock().unwrap_or_else(PoisonError::into_inner);
                    state.0.attempts += 1;
                    match synced {
                        Ok(synced) => (state.0.last, state.0.trouble) = (Some(synced), None),
                        Err(error) => {
                            if state.0.trouble.is_none() {
                                tracing::warn!(%error, "records are not shared for now");
                            }
                            state.0.trouble = Some(error);
                        }
                    }
                    seen.told.notify_all();
                    let waited = seen
                        .told
                        .wait_timeout_while(state, every, |(_, stop)| !*stop);
                    if waited.unwrap_or_else(PoisonError::into_inner).0.1 {
                        return;
                    }
                }
            })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// How it is doing.
    pub fn state(&self) -> SyncState {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Waits until so many attempts have ended.
    pub fn wait_for(&self, attempts: u64) -> SyncState {
        let state = self.shared.state.lock();
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let told = &self.shared.told;
        let waited = told.wait_while(state, |(state, _)| state.attempts < attempts);
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

impl Drop for BackgroundSync {
    /// Waits for an attempt that is under way; the timeouts of [`FleetOptions`] bound that.
    fn drop(&mut self) {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner).1 = true;
        self.shared.told.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}
