//! One call: who computes it, whether the result is right, how long it took.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kernelwise_backend::sample::{Arrangement, Tensor};
use kernelwise_backend::{Blame, Call, Fault, HostKernel, Scratch, Setting, answer};
use kernelwise_types::op::Operation;
use kernelwise_types::{Numerics, Technique, Workload};

use super::{
    CHECKED, Entry, HostCase, Mode, PROVEN_ELSEWHERE, SelectError, Selector, Shared, UNCHECKED,
    VERIFIED_STEPS, reference,
};
use crate::engine::{Pick, Seat, lock};
use crate::learn::Sample;

/// Why a call was not computed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Nobody could be chosen.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The call cannot be computed as it is; its outputs are untouched.
    #[error(transparent)]
    Call(#[from] Fault),
    /// A kernel failed in the middle of updating the output in place, which can be made good by nobody.
    #[error(
        "{kernel} failed while it updated the output ({evidence}): the output must be made anew"
    )]
    Spoiled {
        /// The kernel.
        kernel: String,
        /// What happened.
        evidence: String,
    },
    /// A kernel put other tensors in the place of the outputs.
    #[error("a kernel that failed has exchanged the outputs of the call: compute it again")]
    Exchanged,
}

thread_local! {
    /// Scratch memory of this thread, absent while a call uses it: one within another makes its own.
    static SCRATCH: Cell<Option<Scratch>> = const { Cell::new(None) };
}

fn with_scratch<R>(body: impl FnOnce(&mut Scratch) -> R) -> R {
    let mut scratch = SCRATCH
        .take()
        .unwrap_or_else(|| Scratch::new().with_large_pages());
    let result = body(&mut scratch);
    SCRATCH.set(Some(scratch));
    result
}

/// A workload whose case was looked up beforehand, for one thread; others take a clone or their own.
#[derive(Debug)]
pub struct Plan {
    shared: Arc<Shared>,
    workload: Workload,
    /// The case as of a generation and a load; kernels come and go, and so do others.
    seat: RefCell<((u64, u32), Rc<Seat>)>,
}

impl Clone for Plan {
    fn clone(&self) -> Self {
        let (moment, seat) = &*self.seat.borrow();
        let seat = Seat::new(Arc::clone(&seat.case));
        Self {
            shared: Arc::clone(&self.shared),
            workload: self.workload.clone(),
            seat: RefCell::new((*moment, Rc::new(seat))),
        }
    }
}

impl Plan {
    /// Who computes the next call, by number, and whether its time is wanted: all that a choice costs.
    #[inline]
    pub fn choose(&self) -> Option<(usize, bool)> {
        self.renew();
        let pick = self.seat.borrow().1.pick()?;
        Some((pick.candidate, pick.calls > 0))
    }

    /// Looks the case up again if it may be known no more.
    #[inline]
    fn renew(&self) {
        if self.seat.borrow().0 != self.shared.moment() {
            self.look_up();
        }
    }

    #[cold]
    fn look_up(&self) {
        let moment = self.shared.moment();
        // A workload that nobody computes any more keeps its old case, where all who are gone are barred or unknown.
        if let Ok(case) = self.shared.known(&self.workload, moment.1) {
            *self.seat.borrow_mut() = (moment, Rc::new(Seat::new(case)));
        }
    }

    /// Computes a call of the workload the plan was made for; others, and tensors less aligned than a kernel asks for, go the
    /// usual way.
    pub fn run(&self, call: &mut Call<'_, '_>) -> Result<(), RunError> {
        self.renew();
        // Not borrowed while a kernel runs, which may use the plan itself.
        let seat = Rc::clone(&self.seat.borrow().1);
        let aligned = call.alignment() >= self.shared.alignment.load(Ordering::Relaxed);
        match seat.case.host() {
            Some(host) if aligned && host.workload == *call.workload() => {
                self.shared.call(&seat, host, call)
            }
            _ => self.shared.run(call),
        }
    }
}

impl Selector {
    /// Computes a call by whom it finds best, and learns from it.
    pub fn run(&self, call: &mut Call<'_, '_>) -> Result<(), RunError> {
        self.shared.run(call)
    }

    /// Looks a workload up once, for many calls of it.
    pub fn plan(&self, workload: &Workload) -> Result<Plan, SelectError> {
        let moment = self.shared.moment();
        let seat = Seat::new(self.shared.known(workload, moment.1)?);
        Ok(Plan {
            shared: Arc::clone(&self.shared),
            workload: workload.clone(),
            seat: RefCell::new((moment, Rc::new(seat))),
        })
    }
}

impl Shared {
    /// What a case that was looked up is looked up for.
    #[inline]
    fn moment(&self) -> (u64, u32) {
        (self.engine.generation(), self.load())
    }

    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), RunError> {
        let (alignment, load) = (Some(call.alignment()), self.load());
        let key = self.key(call.workload(), alignment, load);
        let mut call = call;
        let made = |call: &&mut Call<'_, '_>| self.case(call.workload(), alignment, load);
        let run = |call: &mut &mut Call<'_, '_>, seat: &Seat| match seat.case.host() {
            Some(host) => self.call(seat, host, call),
            None => Err(self.nobody(&seat.case).into()),
        };
        self.engine.at_seat(key, &mut call, made, run)?
    }

    fn call(&self, seat: &Seat, host: &HostCase, call: &mut Call<'_, '_>) -> Result<(), RunError> {
        // Whoever fails is barred, so another is picked each time.
        for _ in 0..=host.entries.len() {
            let Some(pick) = seat.pick() else { break };
            let entry = &host.entries[pick.candidate];
            let ran = match self.is_due(seat, entry, pick) {
                true => self.careful(seat, entry, pick, call)?,
                false => self.quick(seat, entry, pick, call)?,
            };
            match ran {
                Ran::Right => return Ok(()),
                // Not the kernel's fault, and another would fare no better.
                Ran::Short => break,
                Ran::Failed => {}
            }
        }
        serve_by_reference(call).unwrap_or_else(|| Err(self.nobody(&seat.case).into()))
    }

    /// Whether this call is held against the reference: the first of a kernel always, the first on a workload and one in so
    /// many while that takes little of the time served.
    fn is_due(&self, seat: &Seat, entry: &Entry, pick: Pick) -> bool {
        let state = entry.checked.load(Ordering::Relaxed);
        let sampled = pick.calls > 0
            && self.verify_one_in > 0
            && seat.timed_calls().is_multiple_of(self.verify_one_in);
        if state == CHECKED && !sampled {
            return false;
        }
        if self.has_time_to_verify() {
            return true;
        }
        if state != UNCHECKED {
            return false;
        }
        let spec = entry.kernel.spec();
        let proven = lock(&self.proven).contains(&(spec.id.clone(), spec.version));
        if proven {
            entry.checked.store(PROVEN_ELSEWHERE, Ordering::Relaxed);
        }
        !proven
    }

    /// Whether comparing with the reference has taken little of the time served so far.
    pub(crate) fn has_time_to_verify(&self) -> bool {
        let took = self.verification_ns.load(Ordering::Relaxed) as f64;
        took <= VERIFICATION_SHARE * self.engine.served_ns()
    }

    /// Takes note of a comparison, and how long it took beside the call.
    pub(crate) fn verified(&self, took_ns: u64) {
        self.verified.fetch_add(1, Ordering::Relaxed);
        self.verification_ns.fetch_add(took_ns, Ordering::Relaxed);
    }

    fn quick(
        &self,
        seat: &Seat,
        entry: &Entry,
        pick: Pick,
        call: &mut Call<'_, '_>,
    ) -> Result<Ran, RunError> {
        let timed = pick.calls > 0 && self.mode != Mode::Frozen;
        let start = if timed { self.engine.clock.now() } else { 0 };
        match attempt(entry, call) {
            Ok(()) => {
                if timed {
                    self.took(seat, pick, start);
                }
                Ok(Ran::Right)
            }
            Err(Failure::Callers(fault)) => Err(fault.into()),
            Err(Failure::Machines(fault)) => {
                tracing::warn!(kernel = %entry.kernel.spec().id, %fault, "could not run");
                Ok(Ran::Short)
            }
            Err(Failure::Kernels(evidence)) => {
                self.quarantine(entry, &seat.case.name, &evidence);
                if updates(call.workload()) {
                    return Err(RunError::Spoiled {
                        kernel: entry.kernel.spec().id.to_string(),
                        evidence,
                    });
                }
                Ok(Ran::Failed)
            }
        }
    }

    fn took(&self, seat: &Seat, pick: Pick, start: u64) {
        let now = self.engine.clock.now();
        // A clock that went back told nothing.
        if let Some(took) = now.checked_sub(start) {
            self.observe(seat, pick, took);
        }
    }

    fn observe(&self, seat: &Seat, pick: Pick, took_ns: u64) {
        let sample = Sample {
            candidate: pick.candidate,
            time_ns: took_ns as f64,
            calls: pick.calls,
            trial: pick.trial,
            at_ns: self.engine.clock.now(),
        };
        self.engine.observe(&seat.case, sample);
    }

    /// The same with the reference beside it, where that is not too much work.
    fn careful(
        &self,
        seat: &Seat,
        entry: &Entry,
        pick: Pick,
        call: &mut Call<'_, '_>,
    ) -> Result<Ran, RunError> {
        let spec = entry.kernel.spec();
        let reference = reference(call.workload()).filter(|_| verifiable(call.workload()));
        let is_reference = spec.technique == Technique::Reference;
        let (Some(reference), false) = (reference, is_reference) else {
            entry.checked.store(CHECKED, Ordering::Relaxed);
            return self.quick(seat, entry, pick, call);
        };
        let began = self.engine.clock.now();
        let expected = self.expected(&reference, call)?;
        let start = self.engine.clock.now();
        let evidence = match attempt(entry, call) {
            Err(Failure::Callers(fault)) => return Err(fault.into()),
            Err(Failure::Machines(_)) => return self.give(call, &expected).map(|()| Ran::Right),
            Err(Failure::Kernels(evidence)) => Some(evidence),
            Ok(()) => {
                let took = self.engine.clock.now().saturating_sub(start);
                let wrong = wrong(call, spec.numerics, &expected)?;
                let all = self.engine.clock.now().saturating_sub(began);
                self.verified(all.saturating_sub(took));
                let first = entry.checked.load(Ordering::Relaxed) != CHECKED;
                let timed = pick.calls > 0 && self.mode != Mode::Frozen;
                if wrong.is_none() && first && timed && !updates(call.workload()) {
                    // A first run loads libraries, makes plans and wakes threads: the next one tells.
                    return self.first(seat, entry, pick, call);
                }
                if timed {
                    self.observe(seat, pick, took);
                }
                wrong
            }
        };
        match evidence {
            None => {
                entry.checked.store(CHECKED, Ordering::Relaxed);
                lock(&self.proven).insert((spec.id.clone(), spec.version));
            }
            Some(evidence) => {
                self.quarantine(entry, &seat.case.name, &evidence);
                self.give(call, &expected)?;
            }
        }
        Ok(Ran::Right)
    }

    /// Runs a kernel again that was right for the first time, and takes the time.
    fn first(
        &self,
        seat: &Seat,
        entry: &Entry,
        pick: Pick,
        call: &mut Call<'_, '_>,
    ) -> Result<Ran, RunError> {
        let spec = entry.kernel.spec();
        entry.checked.store(CHECKED, Ordering::Relaxed);
        lock(&self.proven).insert((spec.id.clone(), spec.version));
        self.quick(seat, entry, pick, call)
    }

    /// Puts these where the call wants its results: the reference's, for instance.
    pub(super) fn give(
        &self,
        call: &mut Call<'_, '_>,
        expected: &[Tensor],
    ) -> Result<(), RunError> {
        let outputs = call.outputs();
        if outputs.len() != expected.len() {
            // A kernel put other tensors in the place of the caller's.
            return Err(RunError::Exchanged);
        }
        for (tensor, output) in expected.iter().zip(outputs) {
            tensor.write_to(output).map_err(Fault::from)?;
        }
        Ok(())
    }

    /// What the reference makes of the call, in memory of its own.
    pub(super) fn expected(
        &self,
        reference: &dyn HostKernel,
        call: &mut Call<'_, '_>,
    ) -> Result<Vec<Tensor>, RunError> {
        let workload = call.workload().clone();
        let mut expected = Vec::new();
        for (operand, output) in workload.outputs().iter().zip(call.outputs()) {
            let mut tensor = Tensor::empty(operand.dtype, operand.shape, Arrangement::Contiguous);
            // What the operation updates is part of its input.
            tensor.read_from(&output.as_view()).map_err(Fault::from)?;
            expected.push(tensor);
        }
        let contiguous = workload.clone();
        {
            let mut views = Vec::new();
            for tensor in &mut expected {
                views.push(tensor.view_mut().map_err(Fault::from)?);
            }
            let mut own = Call::new(&contiguous, call.inputs(), &mut views).map_err(Fault::from)?;
            reference.execute(&mut own, &Setting::NONE, &mut Scratch::new())?;
        }
        Ok(expected)
    }
}

/// How a kernel fared with a call.
enum Ran {
    /// The result is there.
    Right,
    /// The kernel failed and is barred; the result is not there.
    Failed,
    /// The machine could not give what it takes.
    Short,
}

/// Share of the time served that comparing with the reference may take.
const VERIFICATION_SHARE: f64 = 0.01;

/// What kept a kernel from computing a call.
pub(super) enum Failure {
    /// The call itself.
    Callers(Fault),
    /// The machine: no memory, for instance.
    Machines(Fault),
    /// The kernel.
    Kernels(String),
}

/// Runs a kernel; a panic is a failure like others.
pub(super) fn attempt(entry: &Entry, call: &mut Call<'_, '_>) -> Result<(), Failure> {
    let Entry {
        kernel, setting, ..
    } = entry;
    let body = || {
        with_scratch(|scratch| {
            scratch.reserve(kernel.workspace(call.workload(), setting))?;
            kernel.execute(call, setting, scratch)
        })
    };
    // Outputs that a panic leaves half made are made anew; the scratch memory it took is gone.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(fault)) => Err(match fault.blame() {
            Blame::Caller => Failure::Callers(fault),
            Blame::Device => Failure::Machines(fault),
            Blame::Kernel => Failure::Kernels(fault.to_string()),
        }),
        Err(panic) => Err(Failure::Kernels(panic_words(&*panic))),
    }
}

/// What a panic says.
pub(crate) fn panic_words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("without words"))
}

/// The reference in the place of a kernel; `None` where there is none.
fn serve_by_reference(call: &mut Call<'_, '_>) -> Option<Result<(), RunError>> {
    let reference = reference(call.workload())?;
    let ran = reference.execute(call, &Setting::NONE, &mut Scratch::new());
    Some(ran.map_err(RunError::from))
}

/// Whether the output is read before it is written.
fn updates(workload: &Workload) -> bool {
    matches!(workload.operation(), Operation::Scatter(_))
}

/// Whether the reference is quick enough, and the result the only right one.
pub(super) fn verifiable(workload: &Workload) -> bool {
    let operands = workload.inputs().iter().chain(workload.outputs());
    let elements: u64 = operands
        .map(|operand| operand.shape.elements() as u64)
        .sum();
    let flops = workload.cost().map_or(0, |cost| cost.flops.0);
    elements.max(flops / 2) <= VERIFIED_STEPS && answer::is_unique(workload.operation())
}

/// In what a result differs from what it should be.
pub(super) fn wrong(
    call: &mut Call<'_, '_>,
    numerics: Numerics,
    expected: &[Tensor],
) -> Result<Option<String>, RunError> {
    let workload = call.workload().clone();
    let mut actual = Vec::new();
    for (operand, output) in workload.outputs().iter().zip(call.outputs()) {
        let mut tensor = Tensor::empty(operand.dtype, operand.shape, Arrangement::Contiguous);
        tensor.read_from(&output.as_view()).map_err(Fault::from)?;
        actual.push(tensor);
    }
    let compared = answer::compare(&workload, numerics, call.inputs(), expected, &actual);
    Ok(compared.err().map(|what| format!("wrong result: {what}")))
}
