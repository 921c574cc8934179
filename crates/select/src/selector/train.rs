//! When models of times are fitted anew, and whether the new ones are better.
//!
//! Single workloads are learned about at once. What they say about others is a [`Forecast`], which is fitted anew when enough candidates
//! were timed for the first time since, or when a kernel was seen to change: once for each such reason, on a thread of its
//! own, and only while fitting takes a small share of the time served. The new models are held against the old ones on workloads that came since, which
//! neither was fitted to, or where none did on one in five that only the new ones do without. If they are worse there, the old ones stay. Calls go on meanwhile: new models are put in place in one step, for workloads to come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Serialize;

use super::{Evidence, Mode, Selector, Shared};
use crate::engine::lock;
use crate::forecast::{Forecast, hands};
use crate::problem::kind;

/// What fitting may take of the time served.
const SHARE: f64 = 0.02;
/// What a row takes to fit, in nanoseconds, before that was ever measured.
const ROW_NS: f64 = 2e6;
/// Growth from fit to fit at the least.
const GROWTH: f64 = 0.3;
/// New models may be worse by this factor and still count as no worse: noise.
const AS_GOOD: f64 = 1.02;
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
    /// Kinds whose new models were worse: there the old ones stay.
    pub kept_out: Vec<String>,
}

/// What is remembered from training to training.
#[derive(Debug, Default)]
pub(super) struct Trainer {
    /// Workloads that the models in use were fitted to.
    known: BTreeSet<String>,
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
        let began = self.engine.clock.now();
        let (timed, changes) = self.engine.news();
        // One at a time: whoever comes second finds the news taken.
        let mut trainer = lock(&self.trainer);
        let evidence = self.evidence();
        let old = self.forecast.load_full();
        let mut next = Forecast::clone(&old);
        let mut errors = Errors::default();
        let (mut taken, mut kept_out) = (false, Vec::new());
        for (kind, evidence) in by_kind(&evidence) {
            let held = held_out(&evidence, &trainer.known);
            let (recent, rest): (Vec<Evidence>, Vec<Evidence>) = evidence
                .iter()
                .cloned()
                .partition(|one| held.contains(&one.of.workload.to_string()));
            let compared = compare(&old, &Forecast::fit(&rest, self.seed), &recent);
            errors.add(&compared);
            if !compared.is_no_worse() {
                kept_out.push(kind);
                continue;
            }
            let new = Forecast::fit(&evidence, self.seed);
            taken |= new.kinds().next().is_some();
            next = next.with(new);
            let names = evidence.iter().map(|one| one.of.workload.to_string());
            trainer.known.extend(names);
        }
        if taken {
            self.forecast.store(Arc::new(next));
        }
        (trainer.timed, trainer.changes) = (timed, changes);
        let took_ns = self.engine.clock.now().saturating_sub(began) as f64;
        trainer.row_ns = Some(took_ns / evidence.len().max(1) as f64);
        let training = Training {
            because,
            times: evidence.len(),
            seconds: took_ns / 1e9,
            error_factor_before: errors.mean(errors.before),
            error_factor_after: errors.mean(errors.after),
            taken,
            kept_out,
        };
        if trainer.log.len() == KEPT {
            trainer.log.remove(0);
        }
        trainer.log.push(training.clone());
        drop(trainer);
        tracing::info!(?training, "models of times fitted");
        training
    }

    /// The models in use were fitted to these: what comes from now on is news.
    pub(super) fn trained_on(&self, workloads: impl Iterator<Item = String>) {
        if self.forecast.load().kinds().next().is_some() {
            let mut trainer = lock(&self.trainer);
            trainer.known.extend(workloads);
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
            shared.train(because);
            shared.training.store(false, Ordering::Release);
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

/// Workloads to hold old and new models against: those that came since, else one in five.
fn held_out(evidence: &[Evidence], known: &BTreeSet<String>) -> BTreeSet<String> {
    let all: BTreeSet<String> = evidence
        .iter()
        .map(|one| one.of.workload.to_string())
        .collect();
    let news: BTreeSet<String> = all.difference(known).cloned().collect();
    // With everything new there is nothing left to fit to.
    if !news.is_empty() && news.len() < all.len() {
        return news;
    }
    let dealt = hands(all.len(), 1);
    let held = all.into_iter().zip(dealt).filter(|(_, hand)| *hand == 0);
    held.map(|(name, _)| name).collect()
}

fn by_kind(evidence: &[Evidence]) -> BTreeMap<String, Vec<Evidence>> {
    let mut kinds: BTreeMap<String, Vec<Evidence>> = BTreeMap::new();
    for one in evidence {
        let kind = kind(&one.of.workload);
        kinds.entry(kind).or_default().push(one.clone());
    }
    kinds
}

/// How far old and new models are off in all, in ln t, on times that both have something to say about.
#[derive(Debug, Default)]
struct Errors {
    before: f64,
    after: f64,
    count: f64,
}

impl Errors {
    fn add(&mut self, other: &Self) {
        self.before += other.before;
        self.after += other.after;
        self.count += other.count;
    }

    /// As a factor; `None` of none.
    fn mean(&self, sum: f64) -> Option<f64> {
        (self.count > 0.0).then(|| (sum / self.count).exp())
    }

    /// Where nothing can be compared, there is no model that could be better.
    fn is_no_worse(&self) -> bool {
        let (before, after) = (self.mean(self.before), self.mean(self.after));
        before
            .zip(after)
            .is_none_or(|(before, after)| after <= before * AS_GOOD)
    }
}

fn compare(old: &Forecast, new: &Forecast, times: &[Evidence]) -> Errors {
    let mut errors = Errors::default();
    for one in times {
        let told = |forecast: &Forecast| {
            let foretold = forecast.of_known(one)?;
            Some((one.of.tally.mean()? - foretold.mean).abs())
        };
        if let (Some(old), Some(new)) = (told(old), told(new)) {
            errors.before += old;
            errors.after += new;
            errors.count += 1.0;
        }
    }
    errors
}
