//! Which device: the one that is done first, the way there and back included.
//!
//! Every device is asked; what counts is the time of a call, its part of what is paid once, and moving operands there and results
//! back. The order in which devices were added does not matter: of equals the first by family and name is taken.
//!
//! Answers are kept. An answer is used again only for the same workload, the same [`Situation`] and the same limits, and as long as
//! no strategy learned anything: a strategy sees nothing else, so what is kept is what would be said anew.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kernelwise_types::units::{ByteRate, Nanos, Share};
use kernelwise_types::{Backend, SystemState, Workload};
use serde::{Deserialize, Serialize};

use super::TuningStrategy;
use super::cache::Cache;
use super::constraints::{Constraints, ConstraintsKey};
use super::priced::{Bound, Infeasible};
use super::recommendation::{Feedback, Recommendation, TuneError};
use super::situation::Situation;

/// Requests that are kept in the log; of more, the oldest go.
const KEPT: usize = 4096;

/// How operands get to a device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "link")]
pub enum Link {
    /// They are there: the processor, or memory that both share.
    Here,
    /// They are copied, and results are copied back.
    Copied {
        /// Bytes per second, either way.
        #[serde(rename = "bandwidth_bytes_per_s")]
        bandwidth: ByteRate,
        /// Paid by each of the two ways.
        latency_ns: Nanos,
    },
}

impl Link {
    /// Time of moving the operands of a workload there and its results back.
    pub fn transfer(&self, workload: &Workload) -> Result<Nanos, TuneError> {
        let Self::Copied {
            bandwidth,
            latency_ns,
        } = self
        else {
            return Ok(Nanos::from_u64(0));
        };
        let operands = workload.inputs().iter().chain(workload.outputs());
        let bytes: u64 = operands.map(|operand| operand.bytes()).sum();
        let time = 2.0 * latency_ns.get() + bytes as f64 / bandwidth.get() * 1e9;
        Nanos::new(time).map_err(|_| {
            let why = format!("nothing gets there over {bandwidth}");
            Infeasible::new(super::Limit::Latency, why).into()
        })
    }
}

/// Devices that cannot be asked together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CoordinatorError {
    /// Two of one name.
    #[error("there are two strategies for {backend} `{device}`: give one device another name")]
    Twice {
        /// The family.
        backend: Backend,
        /// The name.
        device: String,
    },
}

/// Where to run a workload, with what, and why not elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// What to run.
    pub recommendation: Recommendation,
    /// Moving operands there and results back, in every call.
    pub transfer_ns: Nanos,
    /// One call: the way, the time, and its part of what is paid once.
    pub total_ns: Nanos,
    /// The other devices, the nearest to being chosen first.
    pub passed_over: Vec<PassedOver>,
    /// What would make it faster, one sentence each.
    pub advice: Vec<String>,
}

/// A device that was not chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PassedOver {
    /// The family.
    pub backend: Backend,
    /// The device.
    pub device: String,
    /// What a call would take there; `None` if it cannot be done there.
    pub total_ns: Option<Nanos>,
    /// Why not.
    pub why: String,
}

/// A request, as the log has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Request {
    /// A placement was asked for.
    Placed {
        /// For what.
        workload: Workload,
        /// Whether the answer was kept from before.
        hit: bool,
        /// The family and device; `None` if nothing can run it.
        device: Option<(Backend, String)>,
    },
    /// Feedback was taken.
    Fed {
        /// The family.
        backend: Backend,
        /// The device.
        device: String,
    },
}

/// Figures over the requests that are kept.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Statistics {
    /// Placements asked for.
    pub requests: u64,
    /// Answered from what was kept.
    pub hits: u64,
    /// Hits of all requests; `None` before the first.
    #[serde(rename = "hit_rate_share")]
    pub hit_rate: Option<Share>,
    /// Requests that nothing can run.
    pub refused: u64,
    /// Placements by `backend device`.
    pub placed: BTreeMap<String, u64>,
    /// Feedback by `backend device`.
    pub fed: BTreeMap<String, u64>,
    /// Requests that are no longer kept and not counted here.
    pub forgotten: u64,
}

/// Everything an answer depends on but what strategies learned.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    workload: Workload,
    situation: Situation,
    constraints: ConstraintsKey,
}

/// An answer, and what strategies had learned when it was given.
#[derive(Debug)]
struct Kept {
    revisions: Vec<u64>,
    answer: Result<Arc<Placement>, TuneError>,
}

struct Seat {
    strategy: Arc<dyn TuningStrategy>,
    link: Link,
}

struct State {
    cache: Cache<Key, Kept>,
    log: VecDeque<Request>,
    forgotten: u64,
}

/// Strategies of several devices, and the answers they gave. Shared by threads as it is.
pub struct Coordinator {
    seats: Vec<Seat>,
    state: Mutex<State>,
}

impl Coordinator {
    /// No devices yet, and room for so many answers; none are kept with 0.
    pub fn new(capacity: usize) -> Self {
        Self {
            seats: Vec::new(),
            state: Mutex::new(State {
                cache: Cache::new(capacity),
                log: VecDeque::new(),
                forgotten: 0,
            }),
        }
    }

    /// One more device.
    pub fn add(
        &mut self,
        strategy: Arc<dyn TuningStrategy>,
        link: Link,
    ) -> Result<(), CoordinatorError> {
        let place = |seat: &Seat| (seat.strategy.backend(), seat.strategy.device().to_owned());
        let seat = Seat { strategy, link };
        let (backend, device) = place(&seat);
        // Kept in one order, whatever the order they come in.
        match self
            .seats
            .binary_search_by_key(&(backend, device.clone()), place)
        {
            Ok(_) => Err(CoordinatorError::Twice { backend, device }),
            Err(at) => {
                self.seats.insert(at, seat);
                // What was kept was said without it.
                let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
                state.cache.clear();
                Ok(())
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where to run a workload as the machine is now, within these limits.
    pub fn recommend(
        &self,
        workload: &Workload,
        state: &SystemState,
        constraints: &Constraints,
    ) -> Result<Arc<Placement>, TuneError> {
        let key = Key {
            workload: workload.clone(),
            situation: Situation::under(state, constraints),
            constraints: constraints.key(),
        };
        // Read before anybody is asked: what is learned meanwhile makes the answer old, not wrongly new.
        let revisions: Vec<u64> = self.seats.iter().map(|s| s.strategy.revision()).collect();
        let mut own = self.state();
        let kept = own.cache.get(&key);
        let kept = kept.filter(|kept| kept.revisions == revisions);
        if let Some(answer) = kept.map(|kept| kept.answer.clone()) {
            own.log(workload, true, &answer);
            return answer;
        }
        drop(own);
        let answer = self.place(workload, state, constraints).map(Arc::new);
        let mut own = self.state();
        own.log(workload, false, &answer);
        let kept = Kept {
            revisions,
            answer: answer.clone(),
        };
        own.cache.put(key, kept);
        answer
    }

    /// Asks every device.
    fn place(
        &self,
        workload: &Workload,
        state: &SystemState,
        constraints: &Constraints,
    ) -> Result<Placement, TuneError> {
        constraints.check()?;
        if self.seats.is_empty() {
            return Err(TuneError::NoDevice);
        }
        let (mut able, mut unable) = (Vec::new(), Vec::new());
        for seat in &self.seats {
            match ask(seat, workload, state, constraints) {
                Ok(asked) => able.push(asked),
                Err(error) => unable.push((seat, error)),
            }
        }
        // Stable: of equals the first by family and name.
        able.sort_by(|a, b| a.total_ns.get().total_cmp(&b.total_ns.get()));
        let mut able = able.into_iter();
        let Some(best) = able.next() else {
            return Err(nowhere(unable));
        };
        let mut passed_over: Vec<PassedOver> = able.map(|asked| asked.passed_over(&best)).collect();
        passed_over.extend(unable.into_iter().map(|(seat, error)| PassedOver {
            backend: seat.strategy.backend(),
            device: seat.strategy.device().to_owned(),
            total_ns: None,
            why: error.to_string(),
        }));
        Ok(Placement {
            advice: advice(&best, constraints.calls),
            recommendation: best.recommendation,
            transfer_ns: best.transfer_ns,
            total_ns: best.total_ns,
            passed_over,
        })
    }

    /// Tells the strategy of the device that it was measured on. What that changes is not answered from what was kept.
    pub fn feedback(&self, feedback: &Feedback) -> Result<(), TuneError> {
        let of = |seat: &&Seat| {
            seat.strategy.backend() == feedback.backend && seat.strategy.device() == feedback.device
        };
        let seat = self
            .seats
            .iter()
            .find(of)
            .ok_or_else(|| TuneError::Unknown {
                backend: feedback.backend,
                device: feedback.device.clone(),
            })?;
        seat.strategy.feedback(feedback)?;
        self.state().push(Request::Fed {
            backend: feedback.backend,
            device: feedback.device.clone(),
        });
        Ok(())
    }

    /// Figures over the requests that are kept.
    pub fn statistics(&self) -> Statistics {
        let state = self.state();
        let mut figures = Statistics {
            forgotten: state.forgotten,
            ..Statistics::default()
        };
        let name = |backend: &Backend, device: &str| format!("{backend} {device}");
        for request in &state.log {
            match request {
                Request::Fed { backend, device } => {
                    *figures.fed.entry(name(backend, device)).or_default() += 1;
                }
                Request::Placed { hit, device, .. } => {
                    figures.requests += 1;
                    figures.hits += u64::from(*hit);
                    match device {
                        None => figures.refused += 1,
                        Some((backend, device)) => {
                            *figures.placed.entry(name(backend, device)).or_default() += 1;
                        }
                    }
                }
            }
        }
        figures.hit_rate = Share::of(figures.hits, figures.requests);
        figures
    }

    /// The requests that the figures follow from, oldest first.
    pub fn requests(&self) -> Vec<Request> {
        self.state().log.iter().cloned().collect()
    }

    /// Answers that are kept.
    pub fn kept(&self) -> usize {
        self.state().cache.len()
    }
}

impl State {
    fn push(&mut self, request: Request) {
        if self.log.len() == KEPT {
            self.log.pop_front();
            self.forgotten += 1;
        }
        self.log.push_back(request);
    }

    fn log(&mut self, workload: &Workload, hit: bool, answer: &Result<Arc<Placement>, TuneError>) {
        let device = answer.as_ref().ok().map(|placement| {
            let recommendation = &placement.recommendation;
            (recommendation.backend, recommendation.device.clone())
        });
        self.push(Request::Placed {
            workload: workload.clone(),
            hit,
            device,
        });
    }
}

/// What one device says.
struct Asked {
    recommendation: Recommendation,
    transfer_ns: Nanos,
    total_ns: Nanos,
}

impl Asked {
    fn passed_over(self, best: &Self) -> PassedOver {
        let mut why = format!("{:.2}x the time", self.total_ns.get() / best.total_ns.get());
        if self.transfer_ns.get() > 0.5 * self.total_ns.get() {
            why.push_str(", most of it on the way there and back");
        }
        PassedOver {
            backend: self.recommendation.backend,
            device: self.recommendation.device,
            total_ns: Some(self.total_ns),
            why,
        }
    }
}

fn ask(
    seat: &Seat,
    workload: &Workload,
    state: &SystemState,
    constraints: &Constraints,
) -> Result<Asked, TuneError> {
    let transfer_ns = seat.link.transfer(workload)?;
    let rest = constraints.after_transfer(transfer_ns)?;
    let recommendation = seat.strategy.tune_for_workload(workload, state, &rest)?;
    let call = recommendation.best.expected.per_call_ns(constraints.calls);
    let total = Nanos::new(call + transfer_ns.get());
    Ok(Asked {
        total_ns: total.unwrap_or(recommendation.best.expected.time_ns),
        recommendation,
        transfer_ns,
    })
}

/// Why it can be done on no device: by the limit of the first, in the words of all.
fn nowhere(unable: Vec<(&Seat, TuneError)>) -> TuneError {
    let mut words = Vec::new();
    let mut first = None;
    for (seat, error) in unable {
        let TuneError::Infeasible(Infeasible { limit, why }) = error else {
            return error;
        };
        first.get_or_insert(limit);
        let (backend, device) = (seat.strategy.backend(), seat.strategy.device());
        words.push(format!("{backend} {device} ({limit}): {why}"));
    }
    match first {
        Some(limit) => Infeasible::new(limit, words.join("; ")).into(),
        None => TuneError::NoDevice,
    }
}

/// What would help, from what takes the time.
fn advice(best: &Asked, calls: u64) -> Vec<String> {
    let expected = &best.recommendation.best.expected;
    let (time, total) = (expected.time_ns, best.total_ns);
    let mut advice = Vec::new();
    if best.transfer_ns.get() > 0.5 * total.get() {
        advice.push(format!(
            "{} of {total} are spent on the way: keep operands on {} between calls",
            best.transfer_ns, best.recommendation.device
        ));
    }
    if expected.once(calls) > 0.5 * total.get() {
        let enough = (expected.compile_ns.get() / time.get()).ceil();
        advice.push(format!(
            "{} are paid once, which {calls} calls hardly share: from {enough} calls on they are the smaller part",
            expected.compile_ns
        ));
    }
    advice.push(match expected.bound {
        Bound::Compute => format!(
            "bound by arithmetic: {time} would shrink with more units ({} are used), or with a narrower element type if results may be coarser",
            expected.units
        ),
        Bound::Memory => {
            "bound by moving bytes: join it with the operation before or after, or use a narrower element type".to_owned()
        }
        Bound::Latency => {
            "bound by starting: put several such calls into one".to_owned()
        }
    });
    advice
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let devices = self.seats.iter().map(|seat| seat.strategy.device());
        f.debug_list().entries(devices).finish()
    }
}
