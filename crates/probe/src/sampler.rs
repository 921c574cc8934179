//! Looks at the machine in the background, so that a decision never waits for a file.
//!
//! One look costs thousands of times what a decision does. A thread therefore looks a few times a
//! second and publishes twice: the whole [`SystemState`] behind a pointer that is swapped, and
//! the few numbers a decision needs in one atomic word ([`LoadNow`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use arc_swap::ArcSwap;
use kernelwise_measure::{Clock, TscClock};
use kernelwise_types::{Reading, SystemState};

use crate::load::LoadNow;
use crate::state::StateReader;
use crate::tree::Tree;

/// How a [`Sampler`] works.
#[derive(Debug, Clone)]
pub struct SamplerOptions {
    /// Time between two looks; 250 ms by default. A shorter one than [`MIN_PERIOD`] is lengthened to
    /// it: the kernel counts processor time in steps of 10 ms, and in less there is nothing to see.
    pub period: Duration,
    /// Where `/proc` and `/sys` are; the running system by default.
    pub tree: Tree,
    /// Measures the time between looks. By default the sampler's thread makes a [`TscClock`].
    pub clock: Option<Arc<dyn Clock>>,
}

/// The shortest period a sampler keeps.
pub const MIN_PERIOD: Duration = Duration::from_millis(10);

impl Default for SamplerOptions {
    fn default() -> Self {
        Self {
            period: Duration::from_millis(250),
            tree: Tree::system(),
            clock: None,
        }
    }
}

/// Why a sampler did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SamplerError {
    /// The operating system gave no thread.
    #[error("no thread for the load sampler; raise the limit on tasks or run without it")]
    NoThread {
        /// What the system said.
        source: std::io::Error,
    },
}

/// Watches the machine until it is dropped.
///
/// ```
/// use std::time::Duration;
/// use kernelwise_probe::{Sampler, SamplerOptions};
///
/// let sampler = Sampler::start(SamplerOptions::default())?;
/// assert!(sampler.wait_for_looks(1, Duration::from_secs(60)));
/// // One atomic load, cheap enough for every decision …
/// let load = sampler.load();
/// println!("{:?} running", load.run_queue());
/// // … and the rest, with reasons for what is not known.
/// println!("{:?}", sampler.look().state.temperature);
/// # Ok::<(), kernelwise_probe::SamplerError>(())
/// ```
#[derive(Debug)]
pub struct Sampler {
    published: Arc<Published>,
    period: Duration,
    thread: Option<JoinHandle<()>>,
}

/// One look of a sampler.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// Its number; 0 is the state before the first look, in which nothing is known.
    pub number: u64,
    /// When it was taken, on the sampler's clock.
    pub at_ns: u64,
    /// What was seen.
    pub state: SystemState,
}

/// What the thread writes and the handle reads.
#[derive(Debug)]
struct Published {
    load: AtomicU64,
    look: ArcSwap<Look>,
    progress: Mutex<Progress>,
    /// Told when a look is done or the end is wanted.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Progress {
    looks: u64,
    stop: bool,
}

impl Sampler {
    /// Starts the thread and returns at once; until its first look everything is unknown.
    pub fn start(options: SamplerOptions) -> Result<Self, SamplerError> {
        let period = options.period.max(MIN_PERIOD);
        let published = Arc::new(Published {
            load: AtomicU64::new(LoadNow::UNKNOWN.bits()),
            look: ArcSwap::from_pointee(Look {
                number: 0,
                at_ns: 0,
                state: not_looked_yet(),
            }),
            progress: Mutex::default(),
            changed: Condvar::new(),
        });
        let writer = Arc::clone(&published);
        let thread = thread::Builder::new()
            .name("kernelwise-load".to_owned())
            .spawn(move || {
                // Here rather than in `start`, because the first of these clocks takes a while.
                let clock = options.clock.unwrap_or_else(|| Arc::new(TscClock::new()));
                let mut reader = StateReader::new(options.tree);
                for number in 1.. {
                    let at_ns = clock.now();
                    let state = reader.look(at_ns);
                    writer.publish(Look {
                        number,
                        at_ns,
                        state,
                    });
                    if writer.rest(period) {
                        break;
                    }
                }
            })
            .map_err(|source| SamplerError::NoThread { source })?;
        Ok(Self {
            published,
            period,
            thread: Some(thread),
        })
    }

    /// The load at the last look: one relaxed atomic read, no lock, no allocation.
    #[inline]
    pub fn load(&self) -> LoadNow {
        LoadNow::from_bits(self.published.load.load(Ordering::Relaxed))
    }

    /// Everything seen at the last look.
    pub fn look(&self) -> Arc<Look> {
        self.published.look.load_full()
    }

    /// The period in force.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// How many looks have been taken. The first shows no shares, as those cover the time since the
    /// look before.
    pub fn looks(&self) -> u64 {
        self.published.lock().looks
    }

    /// Waits until there have been `looks` looks; false if that took longer than `patience`.
    pub fn wait_for_looks(&self, looks: u64, patience: Duration) -> bool {
        let progress = self.published.lock();
        let waited = self
            .published
            .changed
            .wait_timeout_while(progress, patience, |progress| progress.looks < looks);
        let (progress, _) = waited.unwrap_or_else(PoisonError::into_inner);
        progress.looks >= looks
    }
}

impl Drop for Sampler {
    /// Ends the thread and waits for it: it wakes at once, so for the look under way at most.
    fn drop(&mut self) {
        self.published.lock().stop = true;
        self.published.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the load sampler ended with a panic");
        }
    }
}

impl Published {
    /// A panic elsewhere cannot leave these two fields half written, so a poisoned lock is as good.
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, look: Look) {
        let (number, load) = (look.number, LoadNow::of(&look.state));
        self.load.store(load.bits(), Ordering::Relaxed);
        self.look.store(Arc::new(look));
        self.lock().looks = number;
        self.changed.notify_all();
    }

    /// Waits out the period; true if the end was wanted meanwhile.
    fn rest(&self, period: Duration) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), period, |progress| !progress.stop);
        let (progress, _) = waited.unwrap_or_else(PoisonError::into_inner);
        progress.stop
    }
}

/// The state before the first look.
pub(crate) fn not_looked_yet() -> SystemState {
    const WHY: &str = "the sampler has not looked yet";
    SystemState {
        cpu_utilisation: Reading::unknown(WHY),
        per_cpu_utilisation: Reading::unknown(WHY),
        steal: Reading::unknown(WHY),
        run_queue: Reading::unknown(WHY),
        load_1min: Reading::unknown(WHY),
        cpu_pressure: Reading::unknown(WHY),
        memory_pressure: Reading::unknown(WHY),
        io_pressure: Reading::unknown(WHY),
        memory_available: Reading::unknown(WHY),
        temperature: Reading::unknown(WHY),
        throttling: Reading::unknown(WHY),
        power: Reading::unknown(WHY),
        battery: Reading::unknown(WHY),
        power_mode: Reading::unknown(WHY),
        frequency: Reading::unknown(WHY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeTree;

    /// Far longer than any wait on a busy machine; only a hang reaches it.
    const PATIENCE: Duration = Duration::from_secs(120);

    /// A clock on which every reading is a second later. The sampler reads it right before each look,
    /// which is the moment to let a second of counters pass as well: `busy` per cent of it working,
    /// as many of it stalled.
    #[derive(Debug)]
    struct Conductor {
        fake: FakeTree,
        busy: AtomicU64,
        totals: Mutex<[u64; 3]>,
    }

    impl Conductor {
        fn new(busy: u64) -> Arc<Self> {
            Arc::new(Self {
                fake: FakeTree::new(),
                busy: AtomicU64::new(busy),
                totals: Mutex::default(),
            })
        }

        fn sampler(self: &Arc<Self>, period: Duration) -> Sampler {
            let options = SamplerOptions {
                period,
                tree: self.fake.tree(),
                clock: Some(self.clone()),
            };
            Sampler::start(options).unwrap()
        }
    }

    impl Clock for Conductor {
        fn now(&self) -> u64 {
            let busy = self.busy.load(Ordering::Relaxed);
            let mut totals = self.totals.lock().unwrap();
            let [seconds, working, stalled_us] = &mut *totals;
            *seconds += 1;
            *working += busy;
            *stalled_us += busy * 10_000;
            let idle = *seconds * 100 - *working;
            let stat = format!("cpu {working} 0 0 {idle}\nprocs_running {busy}\n");
            let pressure = format!("some avg10=0.00 avg60=0.00 total={stalled_us}\n");
            self.fake.write("/proc/stat", &stat);
            self.fake.write("/proc/pressure/cpu", &pressure);
            *seconds * 1_000_000_000
        }

        fn name(&self) -> &'static str {
            "conductor"
        }
    }

    #[test]
    fn published_values_follow_the_machine() {
        let machine = Conductor::new(50);
        let sampler = machine.sampler(Duration::ZERO);
        assert_eq!(sampler.period(), MIN_PERIOD);
        for busy in [75, 10, 100, 0] {
            machine.busy.store(busy, Ordering::Relaxed);
            // The look under way may still be of before; the one after it is not.
            let enough = sampler.looks() + 2;
            assert!(
                sampler.wait_for_looks(enough, PATIENCE),
                "the sampler stands still"
            );
            let share = busy as f64 / 100.0;
            let near = |seen: f64| (seen - share).abs() < 1e-4;
            let look = sampler.look();
            let state = &look.state;
            assert!(
                near(state.cpu_utilisation.known().unwrap().get()),
                "{state:?}"
            );
            assert!(near(state.cpu_pressure.known().unwrap().get()), "{state:?}");
            assert!(
                state
                    .io_pressure
                    .reason()
                    .unwrap()
                    .starts_with("/proc/pressure/io")
            );
            let load = sampler.load();
            assert!(near(load.utilisation().unwrap().get()), "{load:?}");
            assert!(near(load.cpu_pressure().unwrap().get()), "{load:?}");
            assert_eq!(load.run_queue(), Some(busy as u32));
        }
    }

    #[test]
    fn a_dropped_sampler_ends_long_before_its_period() {
        let sampler = Conductor::new(1).sampler(Duration::from_secs(100_000));
        assert!(sampler.wait_for_looks(1, PATIENCE));
        assert!(!sampler.wait_for_looks(2, Duration::ZERO));
        let published = Arc::downgrade(&sampler.published);
        // Would hang for a day if the thread slept out its period.
        drop(sampler);
        assert!(published.upgrade().is_none(), "the thread still holds on");
    }

    #[test]
    fn before_the_first_look_all_is_unknown_for_that_reason() {
        let state = not_looked_yet();
        assert_eq!(
            state.battery.reason(),
            Some("the sampler has not looked yet")
        );
        let error = SamplerError::NoThread {
            source: std::io::Error::from(std::io::ErrorKind::WouldBlock),
        };
        assert!(
            error
                .to_string()
                .starts_with("no thread for the load sampler")
        );
    }
}
