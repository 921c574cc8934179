//! How well types of models predict the times of problems they have not met, and choose by them.
//!
//! A random half of the problems is for learning, all their times known; the other half asks. Every type of model is fitted
//! to ln of the time over the work: once for all algorithms where it can, else once per algorithm. The choice is the algorithm that should take least among those with a
//! recorded time, so that a wrong one costs what the record says.
//!
//! Intervals come from a second fit on four fifths of the first half and its errors on the last fifth
//! ([`Conformal`]). They are put around the answers of the fit on the whole half, which is a little better: they hold rather
//! more than they promise.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use kernelwise_measure::Clock;
use kernelwise_model::{
    Choices, Conformal, FitError, FlatJoint, ModelKind, Predict, Regressor, Table, WidthMismatch,
};
use kernelwise_select::problem::Problem;
use serde::Serialize;

use crate::figures::{Figures, Tally};
use crate::find_db::{FindDb, Recorded};
use crate::others::{StaticOrder, oracle};
use crate::replay::{Setup, order};

/// One in so many problems of the first half is kept back to calibrate intervals.
const KEPT_BACK: usize = 5;
/// Slower by more than this, in ln t, is as bad as by this: it is not chosen either way. As in the selector.
const FAR: f64 = 1.0;
/// Weight of the model of slowdowns beside that of times. As in the selector.
const SLOWDOWNS: f64 = 0.5;
/// Passes over all questions; the quickest counts.
const PASSES: usize = 3;

/// A type of model that takes part.
#[derive(Debug)]
pub struct Contender {
    /// What it is called in the report.
    pub name: String,
    /// How it is fitted.
    pub settings: Box<dyn Regressor>,
    /// Whether to try the same settings for slowdowns too, blended with times as the selector does. It is reported beside the
    /// other, whichever chooses better.
    pub try_slowdowns: bool,
}

impl From<ModelKind> for Contender {
    fn from(kind: ModelKind) -> Self {
        Self {
            name: kind.name().to_owned(),
            settings: Box::new(kind),
            try_slowdowns: kind == ModelKind::BoostedTrees,
        }
    }
}

/// How good a type of model is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluated {
    /// The contender.
    pub name: String,
    /// Geometric mean of the time of the choice over the best.
    pub geo_slowdown: f64,
    /// Share of choices more than 5 % slower than the best.
    pub share_over_5pct: f64,
    /// Share of times that lie in their 90 % intervals; none where too few rows could be kept back, or where answers
    /// are no times.
    pub coverage_90: Option<f64>,
    /// Half of the times are predicted within this factor.
    pub median_error_factor: f64,
    /// Nine times in ten are.
    pub p90_error_factor: f64,
    /// Seconds the fits took, those for the intervals not counted.
    pub train_s: f64,
    /// Nanoseconds per prediction.
    pub predict_ns: f64,
    /// Rows that each fit was drawn down to, if a table had more.
    pub sampled_to: Option<usize>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// Problems learned from.
    pub train_problems: usize,
    /// Problems asked about.
    pub test_problems: usize,
    /// The contenders, in their order.
    pub models: Vec<Evaluated>,
    /// The best order of preference for the second half, in hindsight.
    pub static_order: Vec<String>,
    /// How good that order is.
    pub static_order_figures: Figures,
    /// The best of every problem.
    pub oracle: Figures,
}

/// Why models cannot be evaluated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluateError {
    /// Two halves need two problems.
    #[error("{0} problems cannot be halved: a record of two at least is needed")]
    TooFew(usize),
    /// A model could not be fitted.
    #[error("{name} cannot be fitted to the times of {algorithm}: {error}")]
    Fit {
        /// The contender.
        name: String,
        /// The algorithm.
        algorithm: String,
        /// The reason.
        #[source]
        error: FitError,
    },
    /// Whoever watches broke it off.
    #[error("broken off")]
    BrokenOff,
}

/// Where an evaluation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The contender that is fitted.
    pub name: &'a str,
    /// Fits begun before this one.
    pub done: usize,
    /// Fits there will be at the most.
    pub of: usize,
}

/// Hears before every fit where the evaluation is, from any thread, and may break it off.
pub type Watch<'a> = &'a (dyn Fn(Progress<'_>) -> ControlFlow<()> + Sync);

/// Fits and asks every contender. Of the setup, seed and limit count. All but the times that the clock tells
/// follows from the record and the seed.
pub fn evaluate(
    record: &FindDb,
    contenders: &[Contender],
    setup: &Setup,
    clock: &dyn Clock,
    watch: Watch<'_>,
) -> Result<Evaluation, EvaluateError> {
    let order = order(record, setup);
    if order.len() < 2 {
        return Err(EvaluateError::TooFew(order.len()));
    }
    let (train, test) = order.split_at(order.len() / 2);
    let met = |places: &[usize]| -> Vec<Met<'_>> {
        let recorded = places.iter().map(|place| &record.problems[*place]);
        recorded.map(Met::new).collect()
    };
    let course = Course {
        algorithms: &record.algorithms,
        train: met(train),
        test: met(test),
        seed: setup.seed,
        clock,
        watch,
        begun: AtomicUsize::new(0),
        fits: contenders
            .iter()
            .map(|contender| {
                let at_once = contender.settings.joint().is_some();
                let fits = if at_once { 1 } else { record.algorithms.len() };
                (2 + usize::from(contender.try_slowdowns)) * fits
            })
            .sum(),
    };
    let mut models = Vec::new();
    for contender in contenders {
        course.run(contender, &mut models)?;
    }
    let fixed = StaticOrder::best(record, test);
    let names = fixed.order.iter().map(|i| record.algorithms[*i].clone());
    Ok(Evaluation {
        train_problems: train.len(),
        test_problems: test.len(),
        models,
        static_order: names.collect(),
        static_order_figures: fixed.figures,
        oracle: oracle(record, test),
    })
}

/// A problem with what models are told of it.
struct Met<'a> {
    recorded: &'a Recorded,
    problem: Problem,
    /// ln of the shortest time, over the work.
    best: f64,
}

impl<'a> Met<'a> {
    fn new(recorded: &'a Recorded) -> Self {
        let problem = recorded.problem();
        Self {
            best: recorded.best_ms().ln() - problem.ln_work(),
            recorded,
            problem,
        }
    }

    /// Whether the algorithms have a time.
    fn open(&self) -> Vec<bool> {
        self.recorded.times_ms.iter().map(Option::is_some).collect()
    }

    /// The algorithms that have a time, with its ln over the work.
    fn targets(&self) -> impl Iterator<Item = (usize, f64)> {
        let times = self.recorded.times_ms.iter().enumerate();
        times.filter_map(|(algorithm, time)| {
            Some((algorithm, (*time)?.ln() - self.problem.ln_work()))
        })
    }
}

/// What the algorithms are fitted to.
struct Lessons {
    tables: Vec<Table>,
    /// The same rows, problem by problem.
    choices: Choices,
}

/// Models for every algorithm that has times.
enum Models {
    /// Each has its own.
    Apart(Vec<Option<Box<dyn Predict>>>),
    /// One answers for all that are known.
    Joint { model: FlatJoint, known: Vec<bool> },
}

impl Models {
    /// What they say of a problem, by algorithm; infinite where it is not open or there is no model.
    fn ask(&self, features: &[f32], open: &[bool], answers: &mut [f32]) {
        match self {
            Self::Apart(models) => {
                let asked = models.iter().zip(open).zip(answers);
                for ((model, open), answer) in asked {
                    let model = model.as_ref().filter(|_| *open);
                    let said = model.and_then(|model| model.predict(features).ok());
                    *answer = said.unwrap_or(f32::INFINITY);
                }
            }
            Self::Joint { model, known } => {
                let said = model.predict(features, answers).is_ok();
                for ((answer, open), known) in answers.iter_mut().zip(open).zip(known) {
                    if !(said && *open && *known) {
                        *answer = f32::INFINITY;
                    }
                }
            }
        }
    }

    /// The intervals of an algorithm, from what is kept back of its times.
    fn calibrate(&self, algorithm: usize, kept_back: &Table) -> Option<Conformal> {
        match self {
            Self::Apart(models) => {
                Conformal::calibrate(models[algorithm].as_deref()?, kept_back).ok()
            }
            Self::Joint { model, known } => {
                let one = OneOf { model, algorithm };
                known[algorithm].then(|| Conformal::calibrate(&one, kept_back).ok())?
            }
        }
    }
}

/// What a joint model says of one algorithm.
#[derive(Debug)]
struct OneOf<'a> {
    model: &'a FlatJoint,
    algorithm: usize,
}

impl Predict for OneOf<'_> {
    fn predict(&self, features: &[f32]) -> Result<f32, WidthMismatch> {
        let mut answers = vec![0.0; self.model.candidates()];
        self.model.predict(features, &mut answers)?;
        Ok(answers[self.algorithm])
    }

    fn width(&self) -> usize {
        self.model.width()
    }
}

/// What is the same for all contenders.
struct Course<'a> {
    algorithms: &'a [String],
    train: Vec<Met<'a>>,
    test: Vec<Met<'a>>,
    seed: u64,
    clock: &'a dyn Clock,
    watch: Watch<'a>,
    begun: AtomicUsize,
    fits: usize,
}

impl Course<'_> {
    fn run(&self, contender: &Contender, into: &mut Vec<Evaluated>) -> Result<(), EvaluateError> {
        let time = |_: &Met<'_>, y: f64| y;
        let whole = self.lessons(|_| true, time);
        let start = self.clock.now();
        let times = self.fit(contender, &whole)?;
        let times_s = self.seconds_since(start);
        let intervals = self.intervals(contender)?;
        let answers = self.answers(&times);
        let predict_ns = self.predict_ns(&[&times]);
        let rows = whole.tables.iter().map(Table::len).max().unwrap_or(0);
        let most = contender.settings.most_rows();
        let errors = self.error_factors(&answers);
        let by_times = self.choices(|place, algorithm| answers[place][algorithm]);
        let evaluated = Evaluated {
            name: contender.name.clone(),
            geo_slowdown: by_times.geo_slowdown,
            share_over_5pct: by_times.share_over_5pct,
            coverage_90: self.coverage(&answers, &intervals),
            median_error_factor: at_most(&errors, 0.5),
            p90_error_factor: at_most(&errors, 0.9),
            train_s: times_s,
            predict_ns,
            sampled_to: (rows > most).then_some(most),
        };
        into.push(evaluated.clone());
        if contender.try_slowdowns {
            into.push(self.with_slowdowns(contender, &times, &answers, evaluated)?);
        }
        Ok(())
    }

    /// The same with models of slowdowns beside those of times.
    fn with_slowdowns(
        &self,
        contender: &Contender,
        times: &Models,
        answers: &[Vec<f64>],
        alone: Evaluated,
    ) -> Result<Evaluated, EvaluateError> {
        let lessons = self.lessons(|_| true, |met, y| (y - met.best).min(FAR));
        let start = self.clock.now();
        let models = self.fit(contender, &lessons)?;
        let more_s = self.seconds_since(start);
        let slowdowns = self.answers(&models);
        let score = |place: usize, algorithm: usize| {
            let times = answers[place].iter().copied();
            let best = times.fold(f64::INFINITY, f64::min);
            let behind = (answers[place][algorithm] - best).min(FAR);
            SLOWDOWNS * slowdowns[place][algorithm] + (1.0 - SLOWDOWNS) * behind
        };
        let together = self.choices(score);
        Ok(Evaluated {
            name: format!("{} with slowdowns", contender.name),
            geo_slowdown: together.geo_slowdown,
            share_over_5pct: together.share_over_5pct,
            train_s: alone.train_s + more_s,
            predict_ns: self.predict_ns(&[times, &models]),
            ..alone
        })
    }

    /// What there is to learn from the problems that pass.
    fn lessons(
        &self,
        passes: impl Fn(usize) -> bool,
        target: impl Fn(&Met<'_>, f64) -> f64,
    ) -> Lessons {
        let width = self.train.first();
        let width = width.map_or(0, |met| met.problem.features().len());
        let algorithms = self.algorithms.len();
        let mut tables = vec![Table::new(width); algorithms];
        let mut choices = Choices::new(width, algorithms);
        let places = self.train.iter().enumerate();
        for (_, met) in places.filter(|(place, _)| passes(*place)) {
            let features = met.problem.features();
            let mut targets = vec![None; algorithms];
            // Features and recorded times are finite, and every row of a record is as wide.
            for (algorithm, y) in met.targets() {
                let y = target(met, y) as f32;
                targets[algorithm] = Some(y);
                let _ = tables[algorithm].push(features, y);
            }
            let _ = choices.push(features, &targets);
        }
        Lessons { tables, choices }
    }

    /// Intervals per algorithm; none where too few rows are kept back.
    fn intervals(&self, contender: &Contender) -> Result<Vec<Option<Conformal>>, EvaluateError> {
        let time = |_: &Met<'_>, y: f64| y;
        let kept_back = |place: usize| place.is_multiple_of(KEPT_BACK);
        let models = self.fit(contender, &self.lessons(|place| !kept_back(place), time))?;
        let kept_back = self.lessons(kept_back, time).tables.into_iter().enumerate();
        let calibrate = kept_back.map(|(algorithm, table)| models.calibrate(algorithm, &table));
        Ok(calibrate.collect())
    }

    /// One fit for all algorithms where the contender can, else one for each.
    fn fit(&self, contender: &Contender, lessons: &Lessons) -> Result<Models, EvaluateError> {
        let Lessons { tables, choices } = lessons;
        let Some(settings) = contender.settings.joint() else {
            return self.fit_apart(contender, tables).map(Models::Apart);
        };
        if self.begins(contender).is_break() {
            return Err(EvaluateError::BrokenOff);
        }
        let model = match settings.fit_joint(choices, self.seed) {
            Ok(model) => model,
            // Without a row no algorithm is known.
            Err(FitError::Empty) => {
                return Ok(Models::Apart(tables.iter().map(|_| None).collect()));
            }
            Err(error) => {
                return Err(EvaluateError::Fit {
                    name: contender.name.clone(),
                    algorithm: "all algorithms".to_owned(),
                    error,
                });
            }
        };
        Ok(Models::Joint {
            model: model.flatten(),
            known: tables.iter().map(|table| !table.is_empty()).collect(),
        })
    }

    /// Tells that a fit begins.
    fn begins(&self, contender: &Contender) -> ControlFlow<()> {
        (self.watch)(Progress {
            name: &contender.name,
            done: self.begun.fetch_add(1, Ordering::Relaxed),
            of: self.fits,
        })
    }

    /// A fit per table with rows, on as many threads as there are processors.
    fn fit_apart(
        &self,
        contender: &Contender,
        tables: &[Table],
    ) -> Result<Vec<Option<Box<dyn Predict>>>, EvaluateError> {
        // The longest first: then no thread is left alone with it.
        let mut waiting: Vec<usize> = (0..tables.len()).collect();
        waiting.sort_by_key(|algorithm| std::cmp::Reverse(tables[*algorithm].len()));
        let (next, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
        let fitted = Mutex::new(Vec::new());
        let work = || {
            while let Some(&algorithm) = waiting.get(next.fetch_add(1, Ordering::Relaxed)) {
                if self.begins(contender).is_break() {
                    stopped.store(true, Ordering::Relaxed);
                }
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let model = contender.settings.train(&tables[algorithm], self.seed);
                let mut fitted = fitted.lock().unwrap_or_else(PoisonError::into_inner);
                fitted.push((algorithm, model));
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 1..threads.min(tables.len()) {
                scope.spawn(work);
            }
            work();
        });
        if stopped.into_inner() {
            return Err(EvaluateError::BrokenOff);
        }
        let mut models: Vec<Option<Box<dyn Predict>>> = tables.iter().map(|_| None).collect();
        for (algorithm, model) in fitted.into_inner().unwrap_or_else(PoisonError::into_inner) {
            models[algorithm] = match model {
                Ok(model) => Some(model),
                // An algorithm that the first half does not know is not chosen in the second.
                Err(FitError::Empty) => None,
                Err(error) => {
                    return Err(EvaluateError::Fit {
                        name: contender.name.clone(),
                        algorithm: self.algorithms[algorithm].clone(),
                        error,
                    });
                }
            };
        }
        Ok(models)
    }

    /// What the models say of the second half, by problem and algorithm; infinite where there is no time or no model.
    fn answers(&self, models: &Models) -> Vec<Vec<f64>> {
        let mut said = vec![0.0; self.algorithms.len()];
        let answers = self.test.iter().map(|met| {
            models.ask(met.problem.features(), &met.open(), &mut said);
            said.iter().copied().map(f64::from).collect()
        });
        answers.collect()
    }

    /// How good it is to choose the lowest score.
    fn choices(&self, score: impl Fn(usize, usize) -> f64) -> Figures {
        let mut tally = Tally::default();
        for (place, met) in self.test.iter().enumerate() {
            let scores = met
                .targets()
                .map(|(algorithm, _)| (score(place, algorithm), algorithm));
            let chosen = scores.min_by(|a, b| a.0.total_cmp(&b.0));
            let time = chosen.and_then(|(_, algorithm)| met.recorded.times_ms[algorithm]);
            if let Some(time) = time {
                tally.add(time, met.recorded.best_ms());
            }
        }
        tally.figures()
    }

    /// The factors between predicted and recorded times, ascending.
    fn error_factors(&self, answers: &[Vec<f64>]) -> Vec<f64> {
        let mut factors = Vec::new();
        for (met, answers) in self.test.iter().zip(answers) {
            let known = met
                .targets()
                .filter(|(algorithm, _)| answers[*algorithm].is_finite());
            factors.extend(known.map(|(algorithm, y)| (answers[algorithm] - y).abs().exp()));
        }
        factors.sort_by(f64::total_cmp);
        factors
    }

    fn coverage(&self, answers: &[Vec<f64>], intervals: &[Option<Conformal>]) -> Option<f64> {
        let (mut held, mut count) = (0_u32, 0_u32);
        for (met, answers) in self.test.iter().zip(answers) {
            for (algorithm, y) in met.targets() {
                let (Some(interval), true) =
                    (&intervals[algorithm], answers[algorithm].is_finite())
                else {
                    continue;
                };
                if let Ok(interval) =
                    interval.around(met.problem.features(), answers[algorithm] as f32)
                {
                    held += u32::from(interval.holds(y));
                    count += 1;
                }
            }
        }
        (count > 0).then(|| f64::from(held) / f64::from(count))
    }

    /// Nanoseconds per candidate, asking all models about all candidates of one problem after the other: what one descent
    /// tells of several candidates is divided by these. The features lie in the order they are asked about, as a caller has at
    /// hand what it just made: bringing a record in from memory is no part of an answer. It would add 110 to 200 ns.
    fn predict_ns(&self, models: &[&Models]) -> f64 {
        let (mut rows, mut open) = (Vec::new(), Vec::new());
        for met in &self.test {
            rows.extend_from_slice(met.problem.features());
            open.extend(met.open());
        }
        let width = rows.len() / self.test.len().max(1);
        let candidates = open.iter().filter(|open| **open).count();
        let mut said = vec![0.0; self.algorithms.len()];
        let mut pass = || {
            let start = self.clock.now();
            let problems = open.chunks(self.algorithms.len()).enumerate();
            for (place, open) in problems {
                let features = &rows[place * width..(place + 1) * width];
                for models in models {
                    models.ask(features, open, &mut said);
                    std::hint::black_box(&mut said);
                }
            }
            self.clock.now().saturating_sub(start) as f64 / candidates.max(1) as f64
        };
        (0..PASSES).map(|_| pass()).fold(f64::INFINITY, f64::min)
    }

    fn seconds_since(&self, start: u64) -> f64 {
        self.clock.now().saturating_sub(start) as f64 / 1e9
    }
}

/// The number that a share of them, in ascending order, does not exceed.
fn at_most(ascending: &[f64], share: f64) -> f64 {
    let last = (share * ascending.len() as f64).ceil() as usize;
    ascending
        .get(last.saturating_sub(1))
        .copied()
        .unwrap_or(1.0)
}

#[cfg(test)]
mod tests;
