//! Tuning kernels of the processor: the settings a kernel has, tried on a workload.
//!
//! A [`Workbench`] holds operands of one workload. What is evaluated on it runs as it would in a call, is held against the right
//! result, and is timed until its median is known well enough or its time is up. [`tune`] drives a search over the settings of one
//! kernel, and [`tune_elsewhere`] does where others evaluate. The best of many measurements is in part the luckiest, so whoever wants to use what it found
//! lets the finalists [race](Workbench::race) the usual setting, all of them in turn.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kernelwise_backend::sample::{self, Arrangement, Tensor, Values};
use kernelwise_backend::{
    Call, Fault, HostKernel, ReferenceKernel, Scratch, Setting, Terms, admit, answer, run,
};
use kernelwise_measure::{AWAKE, Clock, Contender, Race, Sampler};
use kernelwise_types::{
    InvalidParams, Machine, Numerics, Params, TensorView, TensorViewMut, ViewError, Workload,
};

use crate::recorded::{Cost, Entry, Failure, Record};
use crate::search::{
    Budget, BudgetError, Evaluation, Knowledge, Outcome, Search, Session, Step, Stopped, Strategy,
};
use crate::space::{Configuration, Parameter, Space, SpaceError, Value};

/// Settings of a kernel that are listed; of more, those that come first.
const MOST_SETTINGS: usize = 1 << 20;
/// Work up to which the reference says what is right; beyond it, the usual setting does.
const REFERENCE_STEPS: u64 = 4_000_000;

/// Why a kernel cannot be tuned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// Its usual setting does not run: there is nothing to compare with.
    #[error("{kernel} does not run on {workload}: {reason}")]
    Refused {
        /// The kernel.
        kernel: String,
        /// The workload.
        workload: String,
        /// Why.
        reason: String,
    },
    /// Operands that cannot be made.
    #[error(transparent)]
    View(#[from] ViewError),
    /// Settings that are no space.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// Parameters without a text form.
    #[error(transparent)]
    Params(#[from] InvalidParams),
    /// A budget that is none.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// The reference failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// What came of one setting.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    /// Nanoseconds per call, sample by sample; none if it failed.
    pub samples_ns: Vec<f64>,
    /// Why it failed, if it did.
    pub failure: Option<String>,
}

impl Tried {
    fn failed(failure: impl ToString) -> Self {
        Self {
            samples_ns: Vec::new(),
            failure: Some(failure.to_string()),
        }
    }

    /// As a search wants it: the median, and its standard error as a share of it.
    fn outcome(&self) -> Outcome {
        let summary = kernelwise_measure::stats::Summary::of(&self.samples_ns);
        match summary.filter(|summary| summary.median > 0.0) {
            Some(summary) => Outcome {
                time: Some(1e-9 * summary.median),
                // Of a normal distribution, the standard error of the median by the median distance.
                spread: 1.858 * summary.mad / summary.median / (summary.n as f64).sqrt(),
                cost: None,
            },
            None => Outcome::failed(),
        }
    }
}

/// The settings of a kernel as a space to search, and back.
#[derive(Debug)]
pub struct Settings {
    space: Arc<Space>,
    names: Vec<String>,
}

impl Settings {
    /// Those a kernel has on a workload.
    pub fn of(
        kernel: &dyn HostKernel,
        workload: &Workload,
        machine: &Machine,
    ) -> Result<Self, HostError> {
        let own = kernel.space(workload, machine);
        let axes: Vec<(String, Vec<u32>)> = own
            .axes()
            .map(|(name, axis)| {
                let mut values = axis.values().to_vec();
                // In an order that means something: neighbours are alike.
                values.sort_unstable();
                (name.to_owned(), values)
            })
            .collect();
        let place = |axis: usize, value: u32| {
            let place = axes[axis].1.binary_search(&value).ok()?;
            u16::try_from(place).ok()
        };
        let places = |setting: &Setting| {
            let values = setting.as_slice().iter().enumerate();
            let places: Option<Vec<u16>> = values.map(|(i, value)| place(i, *value)).collect();
            places.map(Configuration::new)
        };
        let listed = own.iter().take(MOST_SETTINGS);
        let listed: Vec<Configuration> = listed.filter_map(|setting| places(&setting)).collect();
        let parameter = |(name, values): &(String, Vec<u32>)| {
            let values = values.iter().map(|value| i64::from(*value));
            Parameter::new(name.clone(), values)
        };
        let space = Space::listed(axes.iter().map(parameter).collect(), listed)?;
        Ok(Self {
            space: Arc::new(space),
            names: axes.into_iter().map(|(name, _)| name).collect(),
        })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.space.configurations().count()
    }

    /// All of them, as texts: what jobs are made of.
    pub fn all(&self) -> Result<Vec<Params>, InvalidParams> {
        let all = self.space.configurations();
        all.map(|one| self.params(&one)).collect()
    }

    fn params(&self, configuration: &Configuration) -> Result<Params, InvalidParams> {
        let mut params = Params::new();
        for (slot, name) in self.names.iter().enumerate() {
            let value = self.space.value(configuration, slot);
            let value = value.and_then(Value::number).unwrap_or(0.0);
            params = params.with(name, value as u64)?;
        }
        Ok(params)
    }

    fn search(&self, options: &TuneOptions) -> Box<dyn Search> {
        options
            .strategy
            .search(&self.space, options.seed, &options.knowledge)
    }

    /// What was evaluated, as a record for searches of the same kernel on other workloads; none if nothing of it worked.
    pub fn record(&self, workload: &Workload, evaluated: &[Evaluated]) -> Option<Record> {
        let mut found: BTreeMap<Configuration, Vec<Option<f64>>> = BTreeMap::new();
        for Evaluation {
            configuration,
            outcome,
        } in self.evaluations(evaluated)
        {
            let times = found.entry(configuration).or_default();
            times.push(outcome.usable());
        }
        let entries = found.into_iter().map(|(configuration, times)| {
            let samples: Vec<f64> = times.into_iter().flatten().collect();
            Entry {
                configuration,
                result: match samples.is_empty() {
                    true => Err(Failure::Run),
                    false => Ok(samples.iter().sum::<f64>() / samples.len() as f64),
                },
                samples,
                cost: Cost::default(),
            }
        });
        let entries: Vec<Entry> = entries.collect();
        if entries.iter().all(|entry| entry.result.is_err()) {
            return None;
        }
        let listed = entries.iter().map(|entry| entry.configuration.clone());
        let space = Space::listed(self.space.parameters().to_vec(), listed.collect()).ok()?;
        Some(Record {
            device: String::new(),
            kernel: String::new(),
            problem: serde_json::Value::String(workload.to_string()),
            space,
            entries,
            cut_short: false,
        })
    }

    /// The space that is searched.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// As a session knows them; what is not in the space is left out.
    fn evaluations(&self, evaluated: &[Evaluated]) -> Vec<Evaluation> {
        let known = evaluated.iter().filter_map(|one| {
            Some(Evaluation {
                configuration: self.configuration(&one.params)?,
                outcome: one.outcome,
            })
        });
        known.collect()
    }

    /// What a session found.
    fn tuned(
        &self,
        session: &Session<'_>,
        failures: Vec<String>,
        stopped: Option<Stopped>,
    ) -> Result<Tuned, HostError> {
        let evaluated = session.evaluations().iter().map(|one| {
            Ok(Evaluated {
                params: self.params(&one.configuration)?,
                outcome: one.outcome,
            })
        });
        let evaluated: Vec<Evaluated> = evaluated.collect::<Result<_, InvalidParams>>()?;
        // By the mean of what was measured of each: by its shortest time, the luckiest would be first.
        let mut times: BTreeMap<&Params, Vec<f64>> = BTreeMap::new();
        for one in &evaluated {
            if let Some(time) = one.outcome.usable() {
                times.entry(&one.params).or_default().push(time);
            }
        }
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
        let means = times
            .iter()
            .map(|(params, times)| ((*params).clone(), mean(times)));
        let mut best: Vec<(Params, f64)> = means.collect();
        best.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
        Ok(Tuned {
            evaluated,
            best,
            failures,
            stopped,
        })
    }

    fn configuration(&self, params: &Params) -> Option<Configuration> {
        let values: Option<Vec<Value>> = self
            .names
            .iter()
            .map(|name| Some(Value::from(i64::try_from(params.get(name)?).ok()?)))
            .collect();
        self.space.configuration(&values?)
    }
}

/// Operands of a workload, with what is right.
#[derive(Debug)]
pub struct Workbench<'a> {
    workload: Workload,
    machine: &'a Machine,
    numerics: Numerics,
    clock: &'a dyn Clock,
    cancel: &'a AtomicBool,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
    /// What is right, and how exact that is.
    expected: Option<(Vec<Tensor>, Numerics)>,
    seed: u64,
}

impl<'a> Workbench<'a> {
    /// Operands drawn from a seed. Results must be as exact as this; `cancel` ends what runs, soon.
    pub fn new(
        workload: &Workload,
        machine: &'a Machine,
        numerics: Numerics,
        clock: &'a dyn Clock,
        cancel: &'a AtomicBool,
        seed: u64,
    ) -> Result<Self, HostError> {
        let draw = (Arrangement::Contiguous, Values::Typical, seed);
        Ok(Self {
            inputs: sample::inputs(workload, draw.0, draw.1, draw.2)?,
            outputs: sample::outputs(workload, draw.0, draw.1, draw.2)?,
            workload: workload.clone(),
            machine,
            numerics,
            clock,
            cancel,
            expected: None,
            seed,
        })
    }

    /// The workload.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    fn terms(&self) -> Terms<'a> {
        Terms {
            numerics: self.numerics,
            ..Terms::usual(self.machine)
        }
    }

    /// Whether somebody wants it to end.
    fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// Runs a kernel once and keeps what it computed.
    fn computed(
        &mut self,
        kernel: &dyn HostKernel,
        setting: &Setting,
    ) -> Result<Vec<Tensor>, Fault> {
        let draw = (Arrangement::Contiguous, Values::Typical, self.seed);
        // What is updated in place begins anew.
        self.outputs = sample::outputs(&self.workload, draw.0, draw.1, draw.2)?;
        let terms = self.terms();
        on_call(&self.workload, &self.inputs, &mut self.outputs, |call| {
            run(kernel, call, setting, &mut scratch(), &terms)
        })?;
        Ok(self.outputs.clone())
    }

    /// What is right: by the reference, or by this kernel with its usual setting where that would take too long.
    fn right(&mut self, kernel: &Arc<dyn HostKernel>) -> Result<(), HostError> {
        // What a less exact kernel computed is no standard for this one.
        let exact = kernel.spec().numerics;
        let enough = |(_, known): &(Vec<Tensor>, Numerics)| *known <= exact;
        if !self.expected.as_ref().is_some_and(enough) {
            let steps = self.workload.cost().map_or(0, |cost| cost.flops.0 / 2);
            let reference = ReferenceKernel::for_workload(&self.workload);
            let right = match reference.filter(|_| steps <= REFERENCE_STEPS) {
                Some(reference) => {
                    let right = self.computed(&reference, &Setting::NONE)?;
                    (right, Numerics::BitIdentical)
                }
                None => {
                    let usual = kernel.space(&self.workload, self.machine);
                    let usual = usual.default_setting();
                    let right = self.computed(kernel.as_ref(), &usual);
                    let right = right.map_err(|fault| HostError::Refused {
                        kernel: kernel.spec().id.to_string(),
                        workload: self.workload.to_string(),
                        reason: fault.to_string(),
                    })?;
                    (right, exact)
                }
            };
            self.expected = Some(right);
        }
        Ok(())
    }

    /// Runs a kernel with these parameters: is it right, and how long does it take.
    pub fn evaluate(
        &mut self,
        kernel: &Arc<dyn HostKernel>,
        params: &Params,
        budget: Duration,
    ) -> Result<Tried, HostError> {
        self.right(kernel)?;
        let space = kernel.space(&self.workload, self.machine);
        let setting = match space.setting(params) {
            Ok(setting) => setting,
            Err(error) => return Ok(Tried::failed(error)),
        };
        let id = kernel.spec().id.clone();
        let terms = self.terms();
        if let Err(fault) = admit(kernel.as_ref(), &self.workload, None, &setting, &terms) {
            return Ok(Tried::failed(fault));
        }
        let ran = catch_unwind(AssertUnwindSafe(|| {
            self.computed(kernel.as_ref(), &setting)
        }));
        let actual = match ran {
            Ok(Ok(actual)) => actual,
            Ok(Err(fault)) => return Ok(Tried::failed(fault)),
            Err(_) => return Ok(Tried::failed(format!("{id} panicked"))),
        };
        if answer::is_unique(self.workload.operation()) {
            let views: Result<Vec<TensorView<'_>>, ViewError> =
                self.inputs.iter().map(Tensor::view).collect();
            let expected = self.expected.as_ref().map_or(&[][..], |(right, _)| right);
            let numerics = kernel.spec().numerics;
            let compared = answer::compare(&self.workload, numerics, &views?, expected, &actual);
            if let Err(what) = compared {
                return Ok(Tried::failed(format!("wrong result: {what}")));
            }
        }
        let race = self.race(&[(Arc::clone(kernel), setting)], 3..=9, budget)?;
        let entry = race.entries.into_iter().next();
        Ok(match entry {
            Some(entry) if !entry.samples_ns.is_empty() => Tried {
                samples_ns: entry.samples_ns,
                failure: None,
            },
            Some(entry) => Tried::failed(entry.ending),
            None => Tried::failed("nothing ran"),
        })
    }

    /// Times kernels with settings in turn, under the names `0`, `1`, … in the order they are given.
    pub fn race(
        &mut self,
        entrants: &[(Arc<dyn HostKernel>, Setting)],
        rounds: std::ops::RangeInclusive<usize>,
        budget: Duration,
    ) -> Result<Race, HostError> {
        let (workload, clock, cancel, seed) = (&self.workload, self.clock, self.cancel, self.seed);
        let raced = on_call(workload, &self.inputs, &mut self.outputs, |call| {
            let shared = RefCell::new((call, scratch()));
            let contender =
                |(number, (kernel, setting)): (usize, &(Arc<dyn HostKernel>, Setting))| {
                    let (kernel, setting, shared) = (Arc::clone(kernel), *setting, &shared);
                    Contender::new(number.to_string(), move || {
                        let mut shared = shared.borrow_mut();
                        let (call, scratch) = &mut *shared;
                        scratch.reserve(kernel.workspace(call.workload(), &setting))?;
                        kernel.execute(call, &setting, scratch)
                    })
                };
            let contenders = entrants.iter().enumerate().map(contender).collect();
            let race = Sampler::new(clock)
                .warm_up(1)
                .lead_in_for(AWAKE)
                .min_rounds(*rounds.start())
                .max_rounds(*rounds.end())
                .precision(0.01)
                .budget(budget)
                .seed(seed)
                .cancel(cancel)
                .run(contenders);
            Ok(race)
        });
        Ok(raced?)
    }
}

/// Scratch memory as the selector lends it: a setting that was tuned on ordinary pages may not be the best on large ones.
fn scratch() -> Scratch {
    Scratch::new().with_large_pages()
}

/// Does something with a call on these operands.
fn on_call<R>(
    workload: &Workload,
    inputs: &[Tensor],
    outputs: &mut [Tensor],
    body: impl FnOnce(&mut Call<'_, '_>) -> Result<R, Fault>,
) -> Result<R, Fault> {
    let inputs: Result<Vec<TensorView<'_>>, ViewError> = inputs.iter().map(Tensor::view).collect();
    let outputs: Result<Vec<TensorViewMut<'_>>, ViewError> =
        outputs.iter_mut().map(Tensor::view_mut).collect();
    let (inputs, mut outputs) = (inputs?, outputs?);
    body(&mut Call::new(workload, &inputs, &mut outputs)?)
}

/// How a kernel is tuned.
#[derive(Debug, Clone)]
pub struct TuneOptions {
    /// How to search.
    pub strategy: Strategy,
    /// What may be spent.
    pub budget: Budget,
    /// Time for each evaluation.
    pub evaluation: Duration,
    /// Seed of the search.
    pub seed: u64,
    /// What is known beforehand, such as [records](Settings::record) of the same kernel on other workloads, and how often it
    /// will run.
    pub knowledge: Knowledge,
}

/// A setting that was evaluated, and what came of it: what has to be kept to go on later.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Evaluated {
    /// The parameters.
    pub params: Params,
    /// What came of them.
    pub outcome: Outcome,
}

/// What a search over the settings of a kernel found.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuned {
    /// What was evaluated, in order; those from before among them.
    pub evaluated: Vec<Evaluated>,
    /// Settings from the best to the worst by their mean times, in seconds; those that failed are left out.
    pub best: Vec<(Params, f64)>,
    /// Why settings failed, the first of each kind.
    pub failures: Vec<String>,
    /// Why it ended; `None` if somebody cancelled it.
    pub stopped: Option<Stopped>,
}

/// Searches the settings of a kernel on a workbench. It goes on from what was evaluated before; `watch` hears of every evaluation.
pub fn tune(
    bench: &mut Workbench<'_>,
    kernel: &Arc<dyn HostKernel>,
    past: &[Evaluated],
    options: &TuneOptions,
    watch: &mut dyn FnMut(&Evaluated),
) -> Result<Tuned, HostError> {
    let settings = Settings::of(kernel.as_ref(), &bench.workload, bench.machine)?;
    let mut search = settings.search(options);
    let past = settings.evaluations(past);
    let mut session = Session::new(&mut *search, options.budget, &past)?;
    let mut failures: Vec<String> = Vec::new();
    let stopped = loop {
        if bench.is_cancelled() {
            break None;
        }
        match session.step() {
            Step::Evaluate(next) => {
                let params = settings.params(&next)?;
                let began = bench.clock.now();
                let tried = bench.evaluate(kernel, &params, options.evaluation)?;
                // What was broken off says nothing about the setting.
                if bench.is_cancelled() {
                    break None;
                }
                let took_s = 1e-9 * bench.clock.now().saturating_sub(began) as f64;
                let outcome = tried.outcome().costing(took_s);
                if let Some(failure) = tried.failure.filter(|one| !failures.contains(one)) {
                    failures.push(failure);
                }
                session.record(&next, outcome);
                watch(&Evaluated { params, outcome });
            }
            Step::Wait => break Some(Stopped::Nothing),
            Step::Done(why) => break Some(why),
        }
    };
    settings.tuned(&session, failures, stopped)
}

/// Those who evaluate settings elsewhere, any number of them at a time.
pub trait Evaluators {
    /// Why they cannot be reached.
    type Error: From<HostError>;

    /// Asks for an evaluation. `round` counts those of the same parameters, from 0: finalists are measured again.
    fn put(&mut self, params: &Params, round: usize) -> Result<(), Self::Error>;

    /// Waits for results; or, unless the search has nothing to ask before it has some, until those who evaluate could do with another
    /// setting. `None` if somebody wants it to end.
    fn wait(&mut self, for_results: bool) -> Result<Option<Vec<Evaluated>>, Self::Error>;
}

/// Searches the settings of a kernel through evaluators elsewhere. It goes on from what was evaluated before.
pub fn tune_elsewhere<E: Evaluators>(
    settings: &Settings,
    past: &[Evaluated],
    options: &TuneOptions,
    evaluators: &mut E,
) -> Result<Tuned, E::Error> {
    // Of each setting the rounds that were put, and those that came: others may have put some.
    let mut rounds: HashMap<Params, (usize, usize)> = HashMap::new();
    for one in past {
        let (put, came) = rounds.entry(one.params.clone()).or_default();
        (*put, *came) = (*put + 1, *came + 1);
    }
    let mut search = settings.search(options);
    let past = settings.evaluations(past);
    let session = Session::new(&mut *search, options.budget, &past);
    let mut session = session.map_err(HostError::from)?;
    let stopped = loop {
        let for_results = match session.step() {
            Step::Evaluate(next) => {
                let params = settings.params(&next).map_err(HostError::from)?;
                let (put, came) = rounds.entry(params.clone()).or_default();
                // What came is there already, and nobody would measure it again.
                let round = (*put).max(*came);
                evaluators.put(&params, round)?;
                *put = round + 1;
                false
            }
            Step::Wait => true,
            Step::Done(why) => break Some(why),
        };
        let Some(came) = evaluators.wait(for_results)? else {
            break None;
        };
        for one in &came {
            rounds.entry(one.params.clone()).or_default().1 += 1;
        }
        // What has parameters of another kernel or version is not of this search.
        for one in settings.evaluations(&came) {
            session.record(&one.configuration, one.outcome);
        }
    };
    Ok(settings.tuned(&session, Vec::new(), stopped)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
