//! Tells the selector what others do on this machine.
//!
//! A thread looks five times a second, which takes some hundred microseconds each time. Calls read one number.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use kernelwise_measure::{Clock, TscClock};
use kernelwise_probe::{Others, StateReader, Tree};
use kernelwise_select::Selector;
use kernelwise_types::SystemState;

const PERIOD: Duration = Duration::from_millis(200);

/// Nobody has looked yet, or nothing can be read.
const UNKNOWN: u32 = u32::MAX;

#[derive(Debug)]
struct Shared {
    busy: AtomicU32,
    over: Mutex<bool>,
    told: Condvar,
}

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins to look. Whoever else wants to know what the machine does is told as well.
    pub(crate) fn start(
        selector: &Arc<Selector>,
        tell: impl Fn(&SystemState) + Send + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            busy: AtomicU32::new(UNKNOWN),
            over: Mutex::default(),
            told: Condvar::default(),
        });
        let (seen, selector) = (Arc::clone(&shared), Arc::downgrade(selector));
        let work = move || {
            let mut others = Others::new(Tree::system());
            let (mut reader, clock) = (StateReader::new(Tree::system()), TscClock::new());
            loop {
                let over = seen.over.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = seen.told.wait_timeout_while(over, PERIOD, |over| !*over);
                if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                    return;
                }
                let Some(selector) = selector.upgrade() else {
                    return;
                };
                let state = reader.look(clock.now());
                selector.set_state(&state);
                tell(&state);
                if let Some(busy) = others.look() {
                    seen.busy.store(busy, Ordering::Relaxed);
                    selector.set_load(busy);
                }
            }
        };
        let thread = std::thread::Builder::new().name("kernelwise-load".to_owned());
        Ok(Self {
            shared,
            thread: Some(thread.spawn(work)?),
        })
    }

    pub(crate) fn busy(&self) -> Option<u32> {
        Some(self.shared.busy.load(Ordering::Relaxed)).filter(|busy| *busy != UNKNOWN)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let over = self.shared.over.lock();
        *over.unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.told.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing left to say.
            let _ = thread.join();
        }
    }
}
