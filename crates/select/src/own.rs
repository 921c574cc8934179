//! Users' own operations: variants over any Rust type, chosen among as kernels are.
//!
//! What the selector knows of a built-in operation by its sizes, it knows of a user's by [`Features`]: a closure says what
//! matters about an input, and inputs of equal features are one case. Cases, budget, learner and modes are those of the
//! selector's kernels.
//!
//! One variant is the reference, the first unless another is named. It is never kept from running, and serves when another
//! fails. An input that a failed variant may have changed is only good again if a copy was kept
//! ([`Builder::restoring`]); without one the caller is told ([`CallError::Spoiled`]) and nothing else is done to it.
//!
//! Nothing is locked or borrowed while a user's closure runs, so a variant may use the operation it belongs to.

mod builder;
mod explanation;
mod features;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::engine::{Case, NewCase, Pick, Seat, lock};
use crate::key::Key;
use crate::learn::{Facts, Sample};
use crate::selector::{Mode, Shared, panic_words};

use builder::{Copying, FeaturesOf, Run, Same, listed};

pub use builder::{Builder, OperationError, Outcome, Restore};
pub use explanation::{Explanation, Ranked};
pub use features::{FeatureError, Features, Kind, MAX_FEATURES};

/// The reference stands first, wherever it was added.
const REFERENCE: usize = 0;

/// Why a call was not computed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// Features that make no case; the input is untouched.
    #[error("operation `{operation}`: {error}")]
    Features {
        /// The operation.
        operation: String,
        /// What is wrong with them.
        error: FeatureError,
    },
    /// The closure that tells the features panicked; the input is untouched unless that closure changed it.
    #[error("operation `{operation}`: telling the features {evidence}")]
    FeaturesFailed {
        /// The operation.
        operation: String,
        /// What happened.
        evidence: String,
    },
    /// The reference failed, so the fault is the input's, or nobody is left to compute it.
    #[error("operation `{operation}`: the reference `{variant}` {evidence}")]
    Reference {
        /// The operation.
        operation: String,
        /// Its reference.
        variant: String,
        /// What happened.
        evidence: String,
    },
    /// A variant failed, and no copy of its input was kept.
    #[error(
        "operation `{operation}`: `{variant}` {evidence}, and the input may be half changed: make it anew and call again, \
         or let a copy be kept (`restoring`)"
    )]
    Spoiled {
        /// The operation.
        operation: String,
        /// The variant, which does not run again.
        variant: String,
        /// What happened.
        evidence: String,
    },
}

/// Why a variant does not run any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// The variant.
    pub variant: String,
    /// The features it happened on.
    pub case: String,
    /// What happened.
    pub evidence: String,
}

/// The operations of one selector, by name. Those that were dropped are remembered, as what was learned of them is.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<BTreeMap<String, Arc<Registered>>>);

/// An operation without the types it works on.
#[derive(Debug)]
struct Registered {
    name: String,
    /// Of the name, for the keys of its cases.
    key: Key,
    variants: Vec<String>,
    forced: Option<usize>,
    quarantined: Mutex<BTreeMap<usize, Quarantined>>,
    /// The same for every call to look at: a choice made before a variant failed may still name it.
    out: Vec<AtomicBool>,
}

impl Registry {
    fn register(
        &self,
        name: String,
        variants: Vec<String>,
        forced: Option<usize>,
    ) -> Result<Arc<Registered>, OperationError> {
        let mut all = lock(&self.0);
        if let Some(known) = all.get(&name) {
            if known.variants != variants {
                return Err(OperationError::Taken {
                    operation: name,
                    known: listed(known.variants.iter()),
                });
            }
            return Ok(Arc::clone(known));
        }
        let registered = Arc::new(Registered {
            key: Key::of(&("own operation", &name)),
            name: name.clone(),
            out: unset(variants.len()),
            variants,
            forced,
            quarantined: Mutex::default(),
        });
        all.insert(name, Arc::clone(&registered));
        Ok(registered)
    }

    /// How many variants do not run any more.
    pub(crate) fn quarantined(&self) -> usize {
        let all = lock(&self.0);
        all.values().map(|of| lock(&of.quarantined).len()).sum()
    }
}

fn unset(count: usize) -> Vec<AtomicBool> {
    (0..count).map(|_| AtomicBool::new(false)).collect()
}

/// What is known of inputs of equal features, besides times.
struct OwnCase {
    of: Arc<Registered>,
    features: Features,
    /// Whether an outcome of each variant was held against the reference's.
    checked: Vec<AtomicBool>,
}

impl Case {
    fn own(&self) -> Option<&OwnCase> {
        self.payload.downcast_ref()
    }

    /// The user's operation it belongs to, and how many variants that has.
    pub(crate) fn own_operation(&self) -> Option<(&str, &[String])> {
        let own = self.own()?;
        Some((&own.of.name, &own.of.variants))
    }
}

impl Registered {
    fn case(self: &Arc<Self>, features: &Features) -> NewCase {
        let quarantined = lock(&self.quarantined);
        let others = |variant: usize| self.forced.is_some_and(|forced| forced != variant);
        let variants = 0..self.variants.len();
        let barred = variants.map(|i| others(i) || quarantined.contains_key(&i));
        let facts = Facts {
            expected: None,
            modelled: None,
            hinted: 0.0,
            workspace: 0,
            threads: 1,
            busy: false,
            efficiency: None,
        };
        NewCase {
            likeness: Some(features.likeness(&self.name, &self.variants)),
            name: format!("{}: {features}", self.name),
            facts: vec![facts; self.variants.len()],
            barred: barred.collect(),
            payload: Box::new(OwnCase {
                of: Arc::clone(self),
                features: *features,
                checked: unset(self.variants.len()),
            }),
        }
    }
}

/// An operation of a user's own. All threads may use it at once.
pub struct Operation<I: ?Sized, R> {
    shared: Arc<Shared>,
    of: Arc<Registered>,
    features: FeaturesOf<I>,
    runs: Vec<Run<I, R>>,
    restoring: Option<Copying<I>>,
    check: Option<(Same<I, R>, Copying<I>)>,
}

impl<I: ?Sized, R> fmt::Debug for Operation<I, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("name", &self.of.name)
            .field("variants", &self.of.variants)
            .finish_non_exhaustive()
    }
}

/// Who computes one call.
struct Served {
    case: Arc<Case>,
    pick: Option<Pick>,
    /// Calls of this thread whose time was wanted, so far.
    timed_calls: u32,
}

impl<I: ?Sized, R> Operation<I, R> {
    /// Computes it by the variant that is found best for such inputs, and learns from it.
    pub fn run(&self, input: &mut I) -> Result<R, CallError> {
        let features = self.features_of(input)?;
        // The table of cases is not borrowed any more when a variant runs: calls within it find and keep their own.
        let Served {
            case,
            pick,
            timed_calls,
        } = self.served(&features);
        let out = |pick: &Pick| self.of.out[pick.candidate].load(Ordering::Relaxed);
        let Some(pick) = pick.filter(|pick| !out(pick)) else {
            // The one that was forced failed, or one whose trial was begun.
            return self.by_reference(input);
        };
        if pick.candidate == REFERENCE {
            let ran = self.timed(&case, pick, input);
            return ran.map_err(|evidence| self.reference_failed(evidence));
        }
        match &self.check {
            Some(check) if self.is_due(&case, pick, timed_calls) => {
                self.careful(&case, pick, check, input)
            }
            _ => self.quick(&case, pick, input),
        }
    }

    fn features_of(&self, input: &I) -> Result<Features, CallError> {
        let operation = || self.of.name.clone();
        let features = attempt(|| Ok((self.features)(input)));
        let features = features.map_err(|evidence| CallError::FeaturesFailed {
            operation: operation(),
            evidence,
        })?;
        features.checked().map_err(|error| CallError::Features {
            operation: operation(),
            error,
        })
    }

    fn key(&self, features: &Features) -> Key {
        Key::of(&(self.of.key, features))
    }

    fn served(&self, features: &Features) -> Served {
        let made = |(): &()| Ok::<_, Infallible>(self.of.case(features));
        let pick = |(): &mut (), seat: &Seat| Served {
            case: Arc::clone(&seat.case),
            pick: seat.pick(),
            timed_calls: seat.timed_calls(),
        };
        let key = self.key(features);
        let Ok(served) = self.shared.engine.at_seat(key, &mut (), made, pick);
        served
    }

    /// Runs the variant picked, and takes the time if it is wanted.
    fn timed(&self, case: &Arc<Case>, pick: Pick, input: &mut I) -> Result<R, String> {
        let clock = &self.shared.engine.clock;
        let timed = pick.calls > 0 && self.shared.mode != Mode::Frozen;
        let start = if timed { clock.now() } else { 0 };
        let result = attempt(|| self.runs[pick.candidate](input))?;
        if timed {
            // A clock that went back told nothing.
            let took = clock.now().checked_sub(start);
            took.into_iter()
                .for_each(|took| self.observe(case, pick, took));
        }
        Ok(result)
    }

    fn observe(&self, case: &Arc<Case>, pick: Pick, took_ns: u64) {
        let sample = Sample {
            candidate: pick.candidate,
            time_ns: took_ns as f64,
            calls: pick.calls,
            trial: pick.trial,
            at_ns: self.shared.engine.clock.now(),
        };
        self.shared.engine.observe(case, sample);
    }

    fn quick(&self, case: &Arc<Case>, pick: Pick, input: &mut I) -> Result<R, CallError> {
        let kept = self.restoring.as_ref();
        let kept = kept.map(|copying| (copying, (copying.copy)(input)));
        let evidence = match self.timed(case, pick, input) {
            Ok(result) => return Ok(result),
            Err(evidence) => evidence,
        };
        let Some((copying, copy)) = kept else {
            self.quarantine(case, pick.candidate, &evidence);
            return Err(CallError::Spoiled {
                operation: self.of.name.clone(),
                variant: self.of.variants[pick.candidate].clone(),
                evidence,
            });
        };
        (copying.put)(input, copy);
        // An input that the reference cannot compute either is no evidence.
        let result = self.by_reference(input)?;
        self.quarantine(case, pick.candidate, &evidence);
        Ok(result)
    }

    /// The same with the reference beside it, on a copy.
    fn careful(
        &self,
        case: &Arc<Case>,
        pick: Pick,
        (same, copying): &(Same<I, R>, Copying<I>),
        input: &mut I,
    ) -> Result<R, CallError> {
        let clock = &self.shared.engine.clock;
        let began = clock.now();
        let mut copy = (copying.copy)(input);
        let expected = self.by_reference(&mut copy)?;
        let start = clock.now();
        let evidence = match attempt(|| self.runs[pick.candidate](input)) {
            Err(evidence) => evidence,
            Ok(result) => {
                let took = clock.now().saturating_sub(start);
                let mine = Outcome {
                    input: &*input,
                    result: &result,
                };
                let reference = Outcome {
                    input: &*copy,
                    result: &expected,
                };
                let compared = attempt(|| Ok(same(mine, reference)));
                let all = clock.now().saturating_sub(began);
                self.shared.verified(all.saturating_sub(took));
                match compared {
                    Ok(true) => {
                        let checked = case
                            .own()
                            .and_then(|own| own.checked.get(pick.candidate))
                            .is_some_and(|checked| checked.swap(true, Ordering::Relaxed));
                        let timed = pick.calls > 0 && self.shared.mode != Mode::Frozen;
                        // A first run wakes and warms what later ones find ready, and tells little.
                        if timed && (checked || pick.trial.is_some()) {
                            self.observe(case, pick, took);
                        }
                        return Ok(result);
                    }
                    Ok(false) => "differs from the reference".to_owned(),
                    Err(evidence) => format!("could not be compared: the comparison {evidence}"),
                }
            }
        };
        self.quarantine(case, pick.candidate, &evidence);
        (copying.put)(input, copy);
        Ok(expected)
    }

    /// Whether this call is held against the reference: the first of a variant on a case, and one in so many while
    /// that takes little of the time served.
    fn is_due(&self, case: &Case, pick: Pick, timed_calls: u32) -> bool {
        let checked = case.own().and_then(|own| own.checked.get(pick.candidate));
        if checked.is_some_and(|checked| !checked.load(Ordering::Relaxed)) {
            return true;
        }
        let one_in = self.shared.verify_one_in;
        pick.calls > 0
            && one_in > 0
            && timed_calls.is_multiple_of(one_in)
            && self.shared.has_time_to_verify()
    }

    fn by_reference(&self, input: &mut I) -> Result<R, CallError> {
        let ran = attempt(|| self.runs[REFERENCE](input));
        ran.map_err(|evidence| self.reference_failed(evidence))
    }

    fn reference_failed(&self, evidence: String) -> CallError {
        CallError::Reference {
            operation: self.of.name.clone(),
            variant: self.of.variants[REFERENCE].clone(),
            evidence,
        }
    }

    /// Keeps a variant from running, on every case.
    fn quarantine(&self, case: &Case, variant: usize, evidence: &str) {
        let name = &self.of.variants[variant];
        tracing::warn!(case = %case.name, variant = %name, evidence, "quarantined");
        let features = case.own().map(|own| own.features.to_string());
        let quarantined = Quarantined {
            variant: name.clone(),
            case: features.unwrap_or_default(),
            evidence: evidence.to_owned(),
        };
        {
            let mut all = lock(&self.of.quarantined);
            all.entry(variant).or_insert(quarantined);
            // While the list is held, so that it and what calls look at never disagree.
            self.of.out[variant].store(true, Ordering::Relaxed);
        }
        self.bar(variant, true);
    }

    fn bar(&self, variant: usize, barred: bool) {
        self.shared.engine.changed();
        let barred = barred || self.of.forced.is_some_and(|forced| forced != variant);
        for case in self.cases_of_it() {
            if let Some(checked) = case.own().and_then(|own| own.checked.get(variant)) {
                checked.store(false, Ordering::Relaxed);
            }
            self.shared.engine.bar(&case, variant, barred);
        }
    }

    fn cases_of_it(&self) -> impl Iterator<Item = Arc<Case>> {
        let cases = self.shared.engine.cases().into_iter();
        cases.filter(|case| case.own().is_some_and(|own| Arc::ptr_eq(&own.of, &self.of)))
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.of.name
    }

    /// Variants that do not run any more, and why.
    pub fn quarantined(&self) -> Vec<Quarantined> {
        lock(&self.of.quarantined).values().cloned().collect()
    }

    /// Lets a variant run again. Returns whether it was kept from it.
    pub fn unquarantine(&self, variant: &str) -> bool {
        let Some(place) = self.of.variants.iter().position(|known| known == variant) else {
            return false;
        };
        let freed = {
            let mut all = lock(&self.of.quarantined);
            let freed = all.remove(&place).is_some();
            if freed {
                self.of.out[place].store(false, Ordering::Relaxed);
            }
            freed
        };
        if freed {
            self.bar(place, false);
        }
        freed
    }
}

/// Runs a user's closure; a panic is a failure like others.
fn attempt<T>(body: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    // What a panic leaves half changed is the caller's input, and is dealt with there.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(panic) => Err(panic_words(&*panic)),
    }
}
