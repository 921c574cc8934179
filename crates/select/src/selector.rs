//! Kernels of the processor behind one call: choose, run, check, time, learn.
//!
//! Which kernels may compute a call is asked on the call itself: its sizes, layout and alignment are part of the key, so
//! that nothing is assumed of inputs that only look alike. A kernel that fails, panics or computes something
//! else than the reference does not run again in this version, and the reference serves the call in its place.

mod assumed;
mod builder;
mod calibrate;
pub(crate) mod candidates;
mod memory;
mod observe;
mod run;
mod state;
mod train;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use arc_swap::{ArcSwap, ArcSwapOption};
use kernelwise_backend::{DuplicateKernel, Host, HostKernel, ReferenceKernel, Setting};
use kernelwise_measure::Clock;
use kernelwise_model::Regressor;
use kernelwise_types::units::{Nanos, Share};
use kernelwise_types::{
    Calibration, Candidate, Decision, Estimate, Interval, KernelId, Numerics, Params, Ranked,
    Reason, Refusal, Workload,
};

use crate::budget::Ledger;
use crate::engine::{Case, Engine, Seat, lock};
use crate::forecast::{Forecast, Foretold};
use crate::key::Key;
use crate::learn::{Event, Learned, Sample};
use crate::own::Registry;
use crate::policy::Choice;
use crate::statistics::{Slowdowns, Statistics};

pub use builder::{BuildError, Builder, Mode, UnknownMode};
use calibrate::Turns;
pub use calibrate::{CalibrateError, Ended, Measured, Progress, RaceOptions};
pub use memory::{Evidence, Remembered, Taken};
pub use observe::{Observed, Observer};
pub(crate) use run::panic_words;
pub use run::{Plan, RunError};
use train::Trainer;
pub use train::{Because, Training};

/// Work up to which a result is held against the reference: steps of its innermost loop, some ten milliseconds.
const VERIFIED_STEPS: u64 = 4_000_000;

/// Why nothing was chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// No kernel may compute it.
    #[error("no kernel computes {workload}{}", reasons(.refused))]
    NoKernel {
        /// What was to be computed.
        workload: String,
        /// Why not, kernel by kernel.
        refused: Vec<(KernelId, String)>,
    },
    /// A kernel was forced that may not run.
    #[error("{kernel} was forced and cannot compute {workload}: {reason}")]
    Forced {
        /// The kernel.
        kernel: String,
        /// What was to be computed.
        workload: String,
        /// Why it cannot.
        reason: String,
    },
}

fn reasons(refused: &[(KernelId, String)]) -> String {
    let words = refused.iter().map(|(id, why)| format!("; {id} {why}"));
    words.collect()
}

/// Why a report was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The ticket is of another selector.
    #[error("the ticket was given out by another selector: report to that one")]
    Foreign,
    /// Its case is known no more: kernels changed, or others needed the room.
    #[error("what the ticket is for was forgotten since: select again")]
    Stale,
    /// The time is not a number of nanoseconds.
    #[error("the time of a call is a number from zero up")]
    Time,
}

/// Why a kernel does not run any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantine {
    /// The kernel.
    pub kernel: KernelId,
    /// In this version; another one is another kernel.
    pub version: u32,
    /// On what it happened.
    pub workload: String,
    /// What happened.
    pub evidence: String,
}

/// How often somebody who wants everything learned looks whether it is.
const PATIENCE: usize = 10_000;

/// Chooses, runs, checks, times and learns.
pub struct Selector {
    shared: Arc<Shared>,
    learner: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Selector")
            .field("kernels", &self.host.load())
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.shared.fmt(f)
    }
}

impl Drop for Selector {
    /// What waits is still learned.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(learner) = self.learner.take() {
            learner.thread().unpark();
            // A learner that panicked has nothing left to say.
            let _ = learner.join();
        }
        if let Some(training) = lock(&self.shared.training_thread).take() {
            let _ = training.join();
        }
        self.shared.engine.take_in();
    }
}

pub(crate) struct Shared {
    pub(crate) engine: Engine,
    host: ArcSwap<Host>,
    /// For those who change the host, one at a time.
    kernels: Mutex<Vec<Arc<dyn HostKernel>>>,
    calibration: Option<Calibration>,
    forecast: ArcSwap<Forecast>,
    trainer: Mutex<Trainer>,
    /// Held while models are fitted.
    fitting: Mutex<()>,
    /// What models are fitted with instead of the usual ones.
    regressor: Option<Arc<dyn Regressor>>,
    /// Whether somebody fits models, and who.
    training: AtomicBool,
    training_thread: Mutex<Option<JoinHandle<()>>>,
    /// Models are fitted anew after so many first times; never if 0.
    retrain_after: u64,
    seed: u64,
    /// Settings that take part besides those a kernel chooses itself, by workload.
    further: Mutex<BTreeMap<String, BTreeSet<(KernelId, Params)>>>,
    /// For hints, where there is no calibration.
    assumed: Calibration,
    numerics: Numerics,
    pub(crate) mode: Mode,
    pub(crate) forced: BTreeMap<String, String>,
    pub(crate) verify_one_in: u32,
    quarantined: Mutex<BTreeMap<(KernelId, u32), Quarantine>>,
    observer: Option<Arc<dyn Observer>>,
    /// Processors that others keep busy.
    load: AtomicU32,
    /// Whether a thread of its own learns.
    background: bool,
    /// Operations of the user's own.
    pub(crate) own: Registry,
    /// Results that were held against the reference, and how long that took.
    verified: AtomicU64,
    verification_ns: AtomicU64,
    /// Kernels of which a result was right once.
    proven: Mutex<BTreeSet<(KernelId, u32)>>,
    /// The largest alignment that any kernel asks for, in bytes.
    alignment: AtomicUsize,
    /// For calibrations, which would slow each other down.
    turns: Turns,
    stop: AtomicBool,
}

/// The largest alignment that any of them asks for.
fn most_aligned(kernels: &[Arc<dyn HostKernel>]) -> usize {
    let needs = kernels.iter().map(|kernel| kernel.spec().needs.alignment);
    needs.max().unwrap_or(1)
}

/// What it takes to run the candidates of a case.
struct HostCase {
    workload: Workload,
    entries: Vec<Entry>,
    refused: Vec<(KernelId, Refusal)>,
    forced: bool,
    /// Processors that others keep busy meanwhile.
    load: u32,
}

/// A kernel with a setting.
struct Entry {
    kernel: Arc<dyn HostKernel>,
    setting: Setting,
    params: Params,
    expected: Estimate,
    /// What records of other workloads say; more when models are fitted anew.
    foretold: ArcSwapOption<Foretold>,
    /// Whether a result of it was right on this workload: see the constants.
    checked: AtomicU8,
}

const UNCHECKED: u8 = 0;
const CHECKED: u8 = 1;
/// Right on another workload, and on this one to be looked at when there is time.
const PROVEN_ELSEWHERE: u8 = 2;

/// Something out of the ordinary in the times of calls.
#[derive(Debug, Clone, PartialEq)]
pub struct Noticed {
    /// On which workload.
    pub workload: String,
    /// Whose time it was; `None` of variants of users' own operations.
    pub kernel: Option<KernelId>,
    /// What it was, numbered. Causes and correlations are unknown unless somebody [says](Selector::set_state) what the machine does.
    pub event: kernelwise_model::watch::Event,
}

/// A choice that the caller runs, to be reported.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "what is not reported is not learned"]
pub struct Ticket {
    engine: u64,
    key: Key,
    /// The case it is for; another may have the same key later.
    case: u64,
    candidate: usize,
    calls: u32,
    trial: Option<u16>,
}

impl Ticket {
    /// Whether anybody wants to know how long it takes. Most calls need not be timed.
    pub fn wants_time(&self) -> bool {
        self.calls > 0
    }
}

/// How a call went that the caller ran.
#[derive(Debug, Clone, PartialEq)]
pub enum Went {
    /// It was right, and took so long.
    Well {
        /// In nanoseconds.
        time_ns: f64,
    },
    /// It failed, or its result was wrong: the kernel does not run again.
    Badly {
        /// What happened.
        evidence: String,
    },
}

impl Selector {
    /// Who computes a workload, for a caller who runs it and [reports](Self::report).
    #[inline]
    pub fn select(&self, workload: &Workload) -> Result<Ticket, SelectError> {
        let load = self.shared.load();
        let key = self.shared.key(workload, None, load);
        let made = |(): &()| self.shared.case(workload, None, load);
        let pick = |(): &mut (), seat: &Seat| Some((seat.pick()?, seat.case.serial()));
        let picked = self.shared.engine.at_seat(key, &mut (), made, pick)?;
        match picked {
            Some((pick, case)) => Ok(Ticket {
                engine: self.shared.engine.number(),
                key,
                case,
                candidate: pick.candidate,
                calls: pick.calls,
                trial: pick.trial,
            }),
            None => {
                let case = self.shared.known(workload, load)?;
                Err(self.shared.nobody(&case))
            }
        }
    }

    /// The kernel and the parameters that a ticket is for.
    pub fn candidate(&self, ticket: &Ticket) -> Result<Candidate, ReportError> {
        let case = self.case_of(ticket)?;
        let entry = case
            .host()
            .and_then(|host| host.entries.get(ticket.candidate));
        entry.map(Entry::candidate).ok_or(ReportError::Stale)
    }

    /// Why a ticket is for whom it is: in order to learn, if that is not who serves by now; otherwise as [`explain`](Self::explain) says.
    pub fn reason(&self, ticket: &Ticket) -> Result<Reason, ReportError> {
        let case = self.case_of(ticket)?;
        let host = case.host().ok_or(ReportError::Stale)?;
        let choice = self.shared.engine.learned(&case).choice();
        match choice.ok_or(ReportError::Stale)? {
            // The first of the two calls of a trial is not timed, and has no number.
            choice if ticket.trial.is_some() || ticket.candidate != choice.serves => {
                Ok(Reason::Exploring)
            }
            choice => Ok(reason(host, &choice)),
        }
    }

    /// Tells how a call went. A ticket is used up, so nothing can be told twice.
    pub fn report(&self, ticket: Ticket, went: &Went) -> Result<(), ReportError> {
        let case = self.case_of(&ticket)?;
        match went {
            Went::Well { time_ns } => {
                if !time_ns.is_finite() || *time_ns < 0.0 {
                    return Err(ReportError::Time);
                }
                if self.shared.mode != Mode::Frozen {
                    let sample = Sample {
                        candidate: ticket.candidate,
                        time_ns: *time_ns,
                        calls: ticket.calls,
                        trial: ticket.trial,
                        at_ns: self.shared.engine.clock.now(),
                    };
                    self.shared.engine.observe(&case, sample);
                }
                Ok(())
            }
            Went::Badly { evidence } => {
                let host = case.host().ok_or(ReportError::Stale)?;
                let entry = host.entries.get(ticket.candidate);
                let entry = entry.ok_or(ReportError::Stale)?;
                self.shared.quarantine(entry, &case.name, evidence);
                Ok(())
            }
        }
    }

    fn case_of(&self, ticket: &Ticket) -> Result<Arc<Case>, ReportError> {
        if ticket.engine != self.shared.engine.number() {
            return Err(ReportError::Foreign);
        }
        let case = self.shared.engine.case(ticket.key);
        case.filter(|case| case.serial() == ticket.case)
            .ok_or(ReportError::Stale)
    }

    /// The choice for a workload under the load of the moment, with everything it was made from.
    pub fn explain(&self, workload: &Workload) -> Result<Decision, SelectError> {
        let case = self.shared.known(workload, self.shared.load())?;
        self.shared.take_in_all();
        let learned = self.shared.engine.learned(&case);
        let host = case.host().ok_or_else(|| self.shared.nobody(&case))?;
        let choice = learned.choice().ok_or_else(|| self.shared.nobody(&case))?;
        let rank = |i: usize| {
            let entry = &host.entries[i];
            let foretold = entry.foretold.load();
            let known = Known {
                foretold: foretold.as_ref().and_then(|told| told.estimate()),
                alike: case.kin.as_ref().and_then(|kin| kin.alike(i)),
                expected: &entry.expected,
            };
            Ranked {
                candidate: entry.candidate(),
                estimate: estimate(&learned, i, known),
            }
        };
        let others = (0..host.entries.len()).filter(|i| *i != choice.serves);
        let alternatives = others.filter(|i| !learned.is_barred(*i)).map(rank);
        let confidence = learned
            .confidence(self.shared.engine.rules.zone)
            .and_then(|chance| Share::new(chance).ok());
        Ok(Decision::new(
            workload.clone(),
            rank(choice.serves),
            reason(host, &choice),
            confidence,
            alternatives.collect(),
            host.refused.clone(),
        ))
    }

    /// Learns from all that was reported so far, also what it says about other workloads, and returns how many samples that
    /// were. That may take a while; where a thread of its own learns, nobody needs to call it.
    pub fn settle(&self) -> usize {
        let taken = self.shared.take_in_all();
        self.shared.engine.study();
        taken
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Adds a kernel; it takes part from the next call on.
    pub fn register(&self, kernel: Arc<dyn HostKernel>) -> Result<(), DuplicateKernel> {
        self.shared.change(|kernels| {
            let id = kernel.spec().id.clone();
            if kernels.iter().any(|known| known.spec().id == id) {
                return Err(DuplicateKernel { id });
            }
            kernels.push(Arc::clone(&kernel));
            Ok(())
        })?;
        self.shared.affected(&kernel.spec().id);
        Ok(())
    }

    /// Puts a kernel in the place of the one of its name, if there is one. Returns whether there was.
    pub fn replace(&self, kernel: Arc<dyn HostKernel>) -> bool {
        let id = kernel.spec().id.clone();
        let replaced = self.shared.change(|kernels| {
            let before = kernels.len();
            kernels.retain(|known| known.spec().id != id);
            let found = kernels.len() < before;
            kernels.push(Arc::clone(&kernel));
            Ok(found)
        });
        self.shared.affected(&id);
        replaced.unwrap_or(false)
    }

    /// Takes a kernel out; it is never chosen again. Returns whether it was there.
    pub fn unregister(&self, id: &KernelId) -> bool {
        let found = self.shared.change(|kernels| {
            let before = kernels.len();
            kernels.retain(|kernel| kernel.spec().id != *id);
            Ok(kernels.len() < before)
        });
        let found = found.unwrap_or(false);
        if found {
            self.shared.affected(id);
        }
        found
    }

    /// Kernels that do not run any more, and why.
    pub fn quarantined(&self) -> Vec<Quarantine> {
        lock(&self.shared.quarantined).values().cloned().collect()
    }

    /// Lets a kernel run again, in every version. Returns whether it was kept from it.
    pub fn unquarantine(&self, id: &KernelId) -> bool {
        let freed = {
            let mut quarantined = lock(&self.shared.quarantined);
            let before = quarantined.len();
            quarantined.retain(|(kernel, _), _| kernel != id);
            before > quarantined.len()
        };
        if freed {
            self.shared.engine.changed();
            self.shared
                .bar_everywhere(|entry| entry.kernel.spec().id == *id, false);
        }
        freed
    }

    /// What it did so far. Learns from what waits first.
    pub fn statistics(&self) -> Statistics {
        self.shared.take_in_all();
        let ledger = self.ledger();
        let (samples_dropped, workloads_evicted) = self.shared.engine.losses();
        let cases = self.shared.engine.cases();
        let mut slowdowns: BTreeMap<String, Slowdowns> = BTreeMap::new();
        let mut by_kernel: BTreeMap<String, Slowdowns> = BTreeMap::new();
        let mut popular: BTreeMap<KernelId, u64> = BTreeMap::new();
        for case in &cases {
            let learned = self.shared.engine.learned(case);
            let Some(choice) = learned.choice() else {
                continue;
            };
            let (operation, kernel, candidates) = match (case.host(), case.own_operation()) {
                (Some(host), _) => {
                    let id = host.entries[choice.serves].kernel.spec().id.clone();
                    let kernel = id.to_string();
                    *popular.entry(id).or_default() += case.calls();
                    let operation = host.workload.operation().to_string();
                    (operation, kernel, host.entries.len())
                }
                (None, Some((name, variants))) => {
                    let variant = variants.get(choice.serves).map_or("", String::as_str);
                    (name.to_owned(), format!("{name}={variant}"), variants.len())
                }
                (None, None) => continue,
            };
            let measured = |i: usize| learned.tally(i).and_then(|tally| tally.mean());
            let others = (0..candidates).filter(|i| *i != choice.serves && !learned.is_barred(*i));
            let best = others.filter_map(measured).min_by(f64::total_cmp);
            if let (Some(serves), Some(other)) = (measured(choice.serves), best) {
                let behind = (serves - other).max(0.0);
                slowdowns.entry(operation).or_default().push(behind);
                by_kernel.entry(kernel).or_default().push(behind);
            }
        }
        let mut popular: Vec<(KernelId, u64)> = popular.into_iter().collect();
        popular.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let quality = |lists: BTreeMap<String, Slowdowns>| {
            let known = lists.into_iter();
            let known = known.filter_map(|(name, list)| Some((name, list.quality()?)));
            known.collect()
        };
        let calls: u64 = cases.iter().map(|case| case.calls()).sum();
        Statistics {
            workloads: cases.len(),
            calls,
            // The first call of each was none.
            hits: calls.saturating_sub(cases.len() as u64),
            trials: ledger.trials(),
            served_ns: ledger.served_ns(),
            trials_excess_ns: ledger.spent_ns(),
            verified: self.shared.verified.load(Ordering::Relaxed),
            verification_ns: self.shared.verification_ns.load(Ordering::Relaxed),
            quarantined: lock(&self.shared.quarantined).len() + self.shared.own.quarantined(),
            samples_dropped,
            workloads_evicted,
            quality: quality(slowdowns),
            quality_by_kernel: quality(by_kernel),
            popular,
        }
    }

    /// What was served, and what trials cost.
    pub fn ledger(&self) -> Ledger {
        self.shared.engine.ledger()
    }

    /// What was out of the ordinary in the times of calls, numbered, from this number on: kernels that changed while others did not,
    /// single runs out of line, slow creep. The latest thousand are kept. [`kernelwise_model::watch`] says how often it errs.
    pub fn noticed(&self, since: u64) -> Vec<Noticed> {
        self.shared.take_in_all();
        let all = self.shared.engine.noticed().into_iter();
        let all = all.filter(|(_, _, event)| event.number >= since);
        let noticed = all.map(|(case, candidate, event)| Noticed {
            workload: case.name.clone(),
            kernel: case
                .host()
                .and_then(|host| host.entries.get(candidate))
                .map(|entry| entry.kernel.spec().id.clone()),
            event,
        });
        noticed.collect()
    }

    /// What happened lately, with the workload it happened on; the latest thousand.
    pub fn events(&self) -> Vec<(String, Event)> {
        self.shared.engine.events()
    }
}

/// Why who serves does.
fn reason(host: &HostCase, choice: &Choice) -> Reason {
    match host.forced {
        true => Reason::Forced,
        false => choice.reason,
    }
}

/// What is known of a candidate besides what was learned on its workload.
pub(crate) struct Known<'a> {
    /// From records.
    pub(crate) foretold: Option<Estimate>,
    /// Workloads of the kind that it was measured on in this process; `None` where nobody counted.
    pub(crate) alike: Option<usize>,
    /// From the roofline.
    pub(crate) expected: &'a Estimate,
}

/// Where a time comes from that is to be verified.
const STALE: &str =
    "measured here under another release, driver or library, or by another version of the kernel";

/// What is known of a candidate's time: measured, else foretold from records, else modelled from what was met, else expected.
pub(crate) fn estimate(learned: &Learned, candidate: usize, known: Known<'_>) -> Estimate {
    /// Of a normal distribution, 90 % lie within so many standard deviations.
    const NINETY: f64 = 1.645;
    let nanos = |y: f64| Nanos::new(y.exp()).ok();
    let interval = |mean: f64, sd: f64| {
        let ends = nanos(mean - NINETY * sd).zip(nanos(mean + NINETY * sd));
        ends.and_then(|(low, high)| Interval::new(low, high).ok())
    };
    // What was measured is told as measured, whatever else is believed.
    if let Some(measured) = learned.measured(candidate) {
        let stale = learned
            .tally(candidate)
            .is_some_and(|tally| tally.is_stale());
        return match nanos(measured.mean) {
            Some(time_ns) if stale => Estimate::Prior {
                time_ns,
                source: STALE.to_owned(),
            },
            Some(time_ns) => Estimate::Measured {
                time_ns,
                interval_ns: interval(measured.mean, measured.sd),
                samples: learned.tally(candidate).map_or(0, |tally| tally.samples()),
            },
            None => Estimate::Unknown,
        };
    }
    let modelled = learned.modelled(candidate).and_then(|modelled| {
        Some(Estimate::Modelled {
            time_ns: nanos(modelled.mean)?,
            interval_ns: interval(modelled.mean, modelled.sd)?,
            model: match known.alike {
                Some(count) => format!("trees, n = 0; measured on {count} workloads of the kind"),
                None => "trees on workloads of the kind, n = 0".to_owned(),
            },
        })
    });
    known
        .foretold
        .or(modelled)
        .unwrap_or_else(|| known.expected.clone())
}

impl Case {
    fn host(&self) -> Option<&HostCase> {
        self.payload.downcast_ref()
    }
}

impl Entry {
    fn candidate(&self) -> Candidate {
        Candidate {
            kernel: self.kernel.spec().id.clone(),
            params: self.params.clone(),
        }
    }
}

impl Shared {
    /// Learns about the workloads that samples wait of.
    pub(crate) fn take_in_all(&self) -> usize {
        let mut all = 0;
        // Those that keep coming in meanwhile are for the next time.
        for _ in 0..PATIENCE {
            if !self.engine.is_behind() {
                break;
            }
            match self.engine.take_in().samples {
                // Another thread is at it.
                0 => std::thread::yield_now(),
                taken => all += taken,
            }
        }
        all
    }

    /// Everything that decides which kernels may run. Alignment counts up to what any of them asks for; without tensors it is
    /// taken to be enough.
    #[inline]
    fn key(&self, workload: &Workload, alignment: Option<usize>, load: u32) -> Key {
        let most = self.alignment.load(Ordering::Relaxed);
        let alignment = alignment.map_or(most, |bytes| bytes.min(most));
        // One word for both: it is hashed on every call.
        Key::of(&(workload, alignment as u64 | u64::from(load) << 32))
    }

    /// Processors that others keep busy now.
    #[inline]
    fn load(&self) -> u32 {
        self.load.load(Ordering::Relaxed)
    }

    /// The case of a workload whose tensors are aligned, under this load.
    fn known(&self, workload: &Workload, load: u32) -> Result<Arc<Case>, SelectError> {
        let made = |(): &()| self.case(workload, None, load);
        let case = |(): &mut (), seat: &Seat| Arc::clone(&seat.case);
        let key = self.key(workload, None, load);
        self.engine.at_seat(key, &mut (), made, case)
    }

    fn nobody(&self, case: &Case) -> SelectError {
        let quarantined = lock(&self.quarantined);
        let entries = case.host().map_or(&[][..], |host| &host.entries);
        let refused = entries.iter().filter_map(|entry| {
            let spec = entry.kernel.spec();
            let known = quarantined.get(&(spec.id.clone(), spec.version))?;
            let why = format!("does not run any more: {}", known.evidence);
            Some((spec.id.clone(), why))
        });
        let mut refused: Vec<_> = refused.collect();
        refused.dedup();
        SelectError::NoKernel {
            workload: case.name.clone(),
            refused,
        }
    }

    /// Keeps a kernel from running, on every workload.
    fn quarantine(&self, entry: &Entry, workload: &str, evidence: &str) {
        let spec = entry.kernel.spec();
        tracing::warn!(kernel = %spec.id, workload, evidence, "quarantined");
        metrics::counter!("kernelwise_quarantines_total", "kernel" => spec.id.to_string())
            .increment(1);
        let quarantine = Quarantine {
            kernel: spec.id.clone(),
            version: spec.version,
            workload: workload.to_owned(),
            evidence: evidence.to_owned(),
        };
        if let Some(observer) = &self.observer {
            observer.failed(workload, &entry.candidate(), spec.version);
        }
        let place = (spec.id.clone(), spec.version);
        let known = lock(&self.quarantined).insert(place, quarantine.clone());
        if let (None, Some(observer)) = (known, &self.observer) {
            observer.quarantined(&quarantine);
        }
        self.engine.changed();
        let (id, version) = (spec.id.clone(), spec.version);
        self.bar_everywhere(
            |entry| {
                let spec = entry.kernel.spec();
                spec.id == id && spec.version == version
            },
            true,
        );
    }

    fn bar_everywhere(&self, which: impl Fn(&Entry) -> bool, barred: bool) {
        for case in self.engine.cases() {
            let Some(host) = case.host() else { continue };
            for (i, entry) in host.entries.iter().enumerate() {
                if which(entry) {
                    entry.checked.store(UNCHECKED, Ordering::Relaxed);
                    self.engine.bar(&case, i, barred);
                }
            }
        }
    }

    /// Changes the list of kernels, one change at a time. Calls under way go on with the old list.
    fn change<R>(
        &self,
        change: impl FnOnce(&mut Vec<Arc<dyn HostKernel>>) -> Result<R, DuplicateKernel>,
    ) -> Result<R, DuplicateKernel> {
        let mut kernels = lock(&self.kernels);
        let mut changed = kernels.clone();
        let result = change(&mut changed)?;
        let machine = self.host.load().machine().clone();
        self.host
            .store(Arc::new(Host::new(machine, changed.iter().cloned())?));
        let alignment = most_aligned(&changed);
        self.alignment.store(alignment, Ordering::Relaxed);
        self.engine.changed();
        *kernels = changed;
        Ok(result)
    }

    /// Cases that a kernel may be a candidate of are looked at anew.
    fn affected(&self, id: &KernelId) {
        self.engine.forget(|case| {
            let Some(host) = case.host() else {
                return false;
            };
            let operation = host.workload.operation();
            id.operation() == operation.name() || id.operation() == operation.to_string()
        });
    }
}

/// The reference for a workload, where there is one.
fn reference(workload: &Workload) -> Option<ReferenceKernel> {
    ReferenceKernel::for_workload(workload)
}
