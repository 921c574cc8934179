//! Trying others, where calls come often enough to pay for it.
//!
//! A recommendation never tries anything: it takes what is likely best. But what was never run cannot be known to be better, so
//! of many calls a few go to a choice that may be. Which, the [default search](crate::search) decides, to which prices are a record of
//! another device: believed at first, and as far as they turn out right. How many: twice the square root of the calls so far,
//! so that their share, and with it what they cost, goes to nothing as calls go on. A choice that is sure to be slower
//! than the best is not tried at all.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kernelwise_types::{SystemState, Workload};

use super::TuningStrategy;
use super::cache::Cache;
use super::constraints::{Constraints, ConstraintsKey};
use super::priced::Choice;
use super::recommendation::{Feedback, Outcome, Prediction, Ranked, TuneError};
use super::situation::Situation;
use crate::recorded::{Cost, Entry, Record};
use crate::search::{self, Knowledge, Search};
use crate::space::{Configuration, Parameter, Space, Value};

/// Trials are not more than so many times the root of the calls.
const TRIALS_PER_ROOT: f64 = 2.0;
/// Prices that differ by less than this factor tell nothing apart.
const SAME: f64 = 1.01;
/// How many times half its interval a time may be off: 3.3 standard deviations, once in a thousand.
const SURELY: i32 = 2;
/// Workloads in a situation that are being tried at once; of more, the longest unused starts anew.
const COURSES: usize = 256;
/// Proposals that one call may turn down.
const TURNED_DOWN: usize = 64;

/// What the next call is to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// The choice.
    pub choice: Choice,
    /// What is expected of it.
    pub expected: Prediction,
    /// Whether it is tried in order to learn, rather than because it is likely best.
    pub trial: bool,
}

/// A strategy that also tries others. The same calls, times and seed give the same turns.
///
/// ```
/// use kernelwise_backend::Host;
/// use kernelwise_tune::strategy::{Adaptive, Constraints, CpuCost, Feedback, Outcome, Strategy, TuningStrategy};
/// use kernelwise_types::{Workload, units::Nanos};
///
/// let cost = CpuCost::new(Host::new(kernelwise_probe::machine(), [])?);
/// let adaptive = Adaptive::new(Strategy::new(cost), 1);
/// let state = kernelwise_probe::StateReader::new(kernelwise_probe::Tree::system()).look(0);
/// let on: Workload = "matmul f32 64x64x64".parse()?;
/// let turn = adaptive.turn(&on, &state, &Constraints::default())?;
/// // The call runs, somebody times it.
/// adaptive.feedback(&Feedback {
///     workload: on.clone(),
///     choice: turn.choice.clone(),
///     backend: adaptive.strategy().backend(),
///     device: adaptive.strategy().device().to_owned(),
///     outcome: Outcome::Ran { time_ns: Nanos::new(150_000.0)?, power: None },
/// })?;
/// let known = adaptive.strategy().predict(&on, &turn.choice)?;
/// assert_eq!(known.evidence.to_string(), "measured 1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Adaptive<S> {
    strategy: S,
    seed: u64,
    courses: Mutex<Cache<Key, Course>>,
}

/// What a course is about: as long as these are the same, so is what may run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    workload: Workload,
    situation: Situation,
    constraints: ConstraintsKey,
}

/// The search for one workload in one situation.
struct Course {
    search: Option<Box<dyn Search>>,
    choices: HashMap<Configuration, Choice>,
    places: BTreeMap<Choice, Configuration>,
    calls: u64,
    trials: u64,
}

impl<S: TuningStrategy> Adaptive<S> {
    /// Trials on top of a strategy.
    pub fn new(strategy: S, seed: u64) -> Self {
        Self {
            strategy,
            seed,
            courses: Mutex::new(Cache::new(COURSES)),
        }
    }

    /// The strategy: what it recommends is never a trial.
    pub fn strategy(&self) -> &S {
        &self.strategy
    }

    fn courses(&self) -> MutexGuard<'_, Cache<Key, Course>> {
        self.courses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the next call of a workload is to run.
    pub fn turn(
        &self,
        workload: &Workload,
        state: &SystemState,
        constraints: &Constraints,
    ) -> Result<Turn, TuneError> {
        let ranked = self.strategy.ranked(workload, state, constraints)?;
        let key = Key {
            workload: workload.clone(),
            situation: Situation::under(state, constraints),
            constraints: constraints.key(),
        };
        let mut courses = self.courses();
        if courses.get(&key).is_none() {
            courses.put(key.clone(), Course::new(&ranked, self.seed));
        }
        let trial = courses.get(&key).and_then(|course| course.turn(&ranked));
        let place = trial.unwrap_or(0);
        let mut ranked = ranked.into_iter();
        let Some(Ranked { choice, expected }) = ranked.nth(place) else {
            return Err(TuneError::NoDevice);
        };
        Ok(Turn {
            choice,
            expected,
            trial: place > 0,
        })
    }

    /// What became of a call, tried or not.
    pub fn feedback(&self, feedback: &Feedback) -> Result<(), TuneError> {
        self.strategy.feedback(feedback)?;
        let outcome = match feedback.outcome {
            Outcome::Failed { .. } => search::Outcome::failed(),
            Outcome::Ran { .. } => {
                // All that was measured of it, rather than this once.
                let known = self
                    .strategy
                    .predict(&feedback.workload, &feedback.choice)?;
                search::Outcome::measured(known.time_ns.seconds())
            }
        };
        let mut courses = self.courses();
        let courses = courses.iter_mut();
        for (_, course) in courses.filter(|(key, _)| key.workload == feedback.workload) {
            course.tell(&feedback.choice, &outcome);
        }
        Ok(())
    }
}

impl Course {
    fn new(ranked: &[Ranked], seed: u64) -> Self {
        let choices: Vec<&Choice> = ranked.iter().map(|ranked| &ranked.choice).collect();
        let (parameters, places) = spread_out(&choices);
        let list = places.values().cloned().collect();
        // A list too large for a space is served by prices alone.
        let space = Space::listed(parameters, list).ok().map(Arc::new);
        let start = |space: Arc<Space>| {
            let knowledge = Knowledge {
                records: described(&space, ranked, &places).into_iter().collect(),
                ..Knowledge::default()
            };
            search::Strategy::Default.search(&space, seed, &knowledge)
        };
        Self {
            search: space.map(start),
            choices: places
                .iter()
                .map(|(choice, place)| (place.clone(), choice.clone()))
                .collect(),
            places,
            calls: 0,
            trials: 0,
        }
    }

    /// The place, among the ranked, of what this call is to try; `None` if it is to run what is likely best.
    fn turn(&mut self, ranked: &[Ranked]) -> Option<usize> {
        self.calls += 1;
        let best = ranked.first()?;
        let most = TRIALS_PER_ROOT * (self.calls as f64).sqrt();
        // The first call is served by what is likely best: that has to be known, too.
        if self.calls == 1 || self.trials as f64 >= most {
            return None;
        }
        for _ in 0..TURNED_DOWN {
            let choice = self.propose()?;
            let place = ranked.iter().position(|other| other.choice == choice);
            let Some(place) = place else {
                // It may not run any more: it failed, or broke a limit once its time was known.
                self.tell(&choice, &search::Outcome::failed());
                continue;
            };
            let expected = &ranked[place].expected;
            let time = expected.time_ns.get();
            let surely = time * (expected.interval_ns.low().get() / time).powi(SURELY);
            if place > 0 && surely > best.expected.likely_ns.get() {
                self.tell(&choice, &search::Outcome::measured(time / 1e9));
                continue;
            }
            self.trials += 1;
            return Some(place);
        }
        None
    }

    fn propose(&mut self) -> Option<Choice> {
        let place = self.search.as_mut()?.ask()?;
        self.choices.get(&place).cloned()
    }

    fn tell(&mut self, choice: &Choice, outcome: &search::Outcome) {
        if let (Some(search), Some(place)) = (&mut self.search, self.places.get(choice)) {
            search.tell(place, outcome);
        }
    }
}

/// Choices as points of a space: the kernel is one parameter, each of theirs another. What a kernel does not have is 0 there.
fn spread_out(choices: &[&Choice]) -> (Vec<Parameter>, BTreeMap<Choice, Configuration>) {
    let kernels: BTreeSet<String> = choices.iter().map(|choice| kernel(choice)).collect();
    let mut values: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for (name, value) in choices.iter().flat_map(|choice| choice.params.iter()) {
        values.entry(name).or_default().insert(value);
    }
    for (name, values) in &mut values {
        if choices
            .iter()
            .any(|choice| choice.params.get(name).is_none())
        {
            values.insert(0);
        }
    }
    // No parameter can have this name: theirs are in lower case.
    let mut parameters = vec![Parameter {
        name: "Kernel".to_owned(),
        values: kernels.iter().cloned().map(Value::Text).collect(),
    }];
    parameters.extend(values.iter().map(|(name, values)| {
        Parameter {
            name: (*name).to_owned(),
            values: values
                .iter()
                .map(|value| Value::Int(*value as i64))
                .collect(),
        }
    }));
    let place = |choice: &Choice| {
        let own = kernels.iter().position(|one| *one == kernel(choice));
        let rest = values.iter().map(|(name, values)| {
            let value = choice.params.get(name).unwrap_or(0);
            values.iter().position(|one| *one == value)
        });
        let places = [own].into_iter().chain(rest);
        let places = places.map(|place| u16::try_from(place?).ok());
        Some(Configuration::new(places.collect::<Option<Vec<u16>>>()?))
    };
    let placed = choices
        .iter()
        .filter_map(|choice| Some(((*choice).clone(), place(choice)?)));
    (parameters, placed.collect())
}

/// What is expected of every choice, in the form of a record; none if that tells nothing apart.
fn described(
    space: &Space,
    ranked: &[Ranked],
    places: &BTreeMap<Choice, Configuration>,
) -> Option<Arc<Record>> {
    let times = ranked.iter().map(|ranked| ranked.expected.time_ns.get());
    let (low, high) = times.fold((f64::INFINITY, 0.0), |(low, high), time| {
        (f64::min(low, time), f64::max(high, time))
    });
    if high < SAME * low {
        return None;
    }
    let entries = ranked.iter().filter_map(|ranked| {
        let configuration = places.get(&ranked.choice)?.clone();
        let entry = Entry {
            result: Ok(ranked.expected.time_ns.seconds()),
            samples: Vec::new(),
            cost: Cost::default(),
            configuration,
        };
        Some((space.place(&entry.configuration)?, entry))
    });
    let entries: BTreeMap<usize, Entry> = entries.collect();
    Some(Arc::new(Record {
        device: "described".to_owned(),
        kernel: String::new(),
        problem: serde_json::Value::Null,
        space: space.clone(),
        entries: entries.into_values().collect(),
        cut_short: false,
    }))
}

fn kernel(choice: &Choice) -> String {
    choice
        .kernel
        .as_ref()
        .map_or_else(String::new, ToString::to_string)
}

impl<S: TuningStrategy> std::fmt::Debug for Adaptive<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adaptive")
            .field("device", &self.strategy.device())
            .field("courses", &self.courses().len())
            .finish_non_exhaustive()
    }
}
