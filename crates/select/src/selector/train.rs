//! When models of times are fitted anew, and whether the new ones are better.
//!
//! Single workloads are learned about at once. What they say about others is a [`Forecast`], which is fitted anew when enough candidates
//! were timed for the first time since, or when a kernel was seen to change: once for each such reason, on a thread of its
//! own, and only while fitting takes a small share of the time served. The new models are held against the old ones, and where they are worse, or
//! cannot be compared, the old ones [stay](Forecast::renewed). Calls go on meanwhile: new models are put in place in one step, for workloads to come and for
//! candidates that were never timed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use super::{Mode, Selector, Shared};
use crate::engine::lock;
use crate::forecast::Forecast;

/// What fitting may take of the time served.
const SHARE: f64 = 0.02;
/// What a row takes to fit, in nanoseconds, before that was ever measured.
const ROW_NS: f64 = 2e6;
/// Growth from fit to fit at the least.
const GROWTH: f64 = 0.3;
/// Trainings that are kept for those who ask.
const KEPT: usize = 256;

/// Why models were fitted anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Because {
    /// So many candidates were timed for the first time since.
    Grown(u64),
    /// So many kernels were seen to change since.
    Changed(u64),
    /// Somebody [asked](Selector::train).
    Asked,
}

/// One training of models.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Training {
    /// Why.
    pub because: Because,
    /// Times it was fitted to.
    pub times: usize,
    /// How long it took.
    pub seconds: f64,
    /// Mean factor by which the old models were off on times that neither knew; `None` without old models, or such times.
    pub error_factor_before: Option<f64>,
    /// The same of new ones.
    pub error_factor_after: Option<f64>,
    /// Whether new ones are in use now, of any kind.
    pub taken: bool,
    /// Kinds whose old models stay: new ones were worse, or there was nothing to compare them on.
    pub kept_out: Vec<String>,
}

/// What is remembered from training to training.
#[derive(Debug, Default)]
pub(super) struct Trainer {
    /// Candidates that had been timed then, and changes that had been seen.
    timed: u64,
    changes: u64,
    row_ns: Option<f64>,
    log: Vec<Training>,
}

impl Selector {
    /// Fits models of times to what was measured so far, at once and on this thread, and puts them in place if they are no worse
    /// than those in use. The learner does so by itself when it is due.
    pub fn train(&self) -> Training {
        self.shared.take_in_all();
        self.shared.train(Because::Asked)
    }

    /// The latest trainings, the first of them first.
    pub fn trainings(&self) -> Vec<Training> {
        lock(&self.shared.trainer).log.clone()
    }

    /// The models of times in use, for others to keep.
    pub fn forecast(&self) -> Arc<Forecast> {
        self.shared.forecast.load_full()
    }
}

impl Shared {
    /// Why models should be fitted anew, if they should and the time served allows it.
    pub(super) fn training_due(&self) -> Option<Because> {
        if self.mode == Mode::Frozen || self.retrain_after == 0 {
            return None;
        }
        let (timed, changes) = self.engine.news();
        let trainer = lock(&self.trainer);
        let grown = timed.saturating_sub(trainer.timed);
        let changed = changes.saturating_sub(trainer.changes);
        let least = self
            .retrain_after
            .max((GROWTH * trainer.timed as f64) as u64);
        let because = match (grown >= least, changed > 0) {
            (true, _) => Because::Grown(grown),
            // Where there is no model, none can be wrong.
            (false, true) if trainer.timed > 0 => Because::Changed(changed),
            _ => return None,
        };
        let took: f64 = trainer.log.iter().map(|one| 1e9 * one.seconds).sum();
        let takes = timed as f64 * trainer.row_ns.unwrap_or(ROW_NS);
        (took + takes <= SHARE * self.engine.served_ns()).then_some(because)
    }

    /// Fits anew, kind by kind, and takes what is no worse.
    pub(super) fn train(&self, because: Because) -> Training {
        // One at a time; whoever only wants to know what was done, or whether it is due, need not wait for it.
        let fitting = lock(&self.fitting);
        let began = self.engine.clock.now();
        let (timed, changes) = self.engine.news();
        let evidence = self.evidence();
        let old = self.forecast.load_full();
        let renewed = old.renewed(&evidence, self.regressor.as_deref(), self.seed);
        if renewed.taken {
            self.forecast.store(Arc::new(renewed.forecast));
            self.foretell_anew();
        }
        let took_ns = self.engine.clock.now().saturating_sub(began) as f64;
        let training = Training {
            because,
            times: evidence.len(),
            seconds: took_ns / 1e9,
            error_factor_before: renewed.error_factor_before,
            error_factor_after: renewed.error_factor_after,
            taken: renewed.taken,
            kept_out: renewed.kept_out,
        };
        let mut trainer = lock(&self.trainer);
        (trainer.timed, trainer.changes) = (timed, changes);
        trainer.row_ns = Some(took_ns / evidence.len().max(1) as f64);
        if trainer.log.len() == KEPT {
            trainer.log.remove(0);
        }
        trainer.log.push(training.clone());
        drop(trainer);
        drop(fitting);
        tracing::info!(?training, "models of times fitted");
        training
    }

    /// What the models in use were fitted to is no news: what comes from now on is.
    pub(super) fn trained_so_far(&self) {
        if self.forecast.load().kinds().next().is_some() {
            let mut trainer = lock(&self.trainer);
            (trainer.timed, trainer.changes) = self.engine.news();
        }
    }

    /// Trains on a thread of its own if it is due and nobody does.
    pub(super) fn train_beside(self: &Arc<Self>) {
        if self.training.load(Ordering::Acquire) {
            return;
        }
        let Some(because) = self.training_due() else {
            return;
        };
        if self.training.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = Arc::clone(self);
        let work = move || {
            // Also if a model of the user's own panics: there will be another occasion.
            let _done = Done(&shared.training);
            shared.train(because);
        };
        let thread = std::thread::Builder::new().name("kernelwise-train".to_owned());
        match thread.spawn(work) {
            Ok(thread) => *lock(&self.training_thread) = Some(thread),
            // There will be another occasion.
            Err(error) => {
                tracing::warn!(%error, "no thread to fit models on");
                self.training.store(false, Ordering::Release);
            }
        }
    }
}

/// Says that nobody trains any more, however it ends.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
