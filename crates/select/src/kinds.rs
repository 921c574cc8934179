//! What cases have in common, kind by kind.
//!
//! A case that is met for the first time is expected to behave like those of its [kind](crate::problem::kind) that were measured.
//! Whoever makes a case asks what is known, and waits for nobody: while the experience of a kind is in use elsewhere, nothing is
//! known. Models are fitted beside, on a copy, and put in place in one step.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use kernelwise_measure::Clock;

use crate::belief::Expected;
use crate::experience::{Experience, ProblemId};
use crate::learn::{Facts, Foreseen};
use crate::problem::Problem;

/// Kinds that are remembered; there are a few for each operation. Of more, the one used longest ago makes room.
const MOST_KINDS: usize = 512;
/// Cases of a kind that are learned from at the most, the latest: models of more take seconds to fit and know little more.
const MOST_CASES: usize = 4096;

/// What fitting models may take: a share of the time served, and so much to begin with, in nanoseconds.
const STUDY_SHARE: f64 = 0.01;
const FIRST_STUDY_NS: f64 = 1e8;

/// How far off a model may be about a candidate that never ran on problems like these, in ln t; less with every run.
const UNFAMILIAR: f64 = 0.5;
/// How far off it may be at the least: others are others, and a few samples of its own outweigh them.
const SUREST: f64 = 0.2;

/// What a case is like.
#[derive(Debug)]
pub(crate) struct Likeness {
    /// Cases of one kind can be held against each other.
    pub(crate) kind: String,
    pub(crate) problem: Problem,
    /// The names of the candidates: those of the same name behave alike.
    pub(crate) arms: Vec<String>,
}

#[derive(Debug)]
struct Kind {
    arms: HashMap<String, usize>,
    experience: Experience,
    /// How long its last fit took, in nanoseconds.
    fit_ns: u64,
}

/// A kind, and when it was last met, by a count of meetings.
#[derive(Debug)]
struct Known {
    kind: Arc<Mutex<Kind>>,
    met: u64,
}

/// All kinds of one selector.
#[derive(Debug)]
pub(crate) struct Kinds {
    seed: u64,
    /// Cases of each that are remembered.
    cases: usize,
    kinds: Mutex<HashMap<String, Known>>,
    meetings: AtomicU64,
    /// Who fits models, one at a time, and how long that took so far, in nanoseconds.
    studying: Mutex<u64>,
}

/// A case among those of its kind.
#[derive(Debug)]
pub(crate) struct Kin {
    kind: Arc<Mutex<Kind>>,
    problem: ProblemId,
    /// Which arm each candidate is.
    arms: Vec<usize>,
    /// Which candidates have a forecast from records, which knows more than what this process has met.
    foretold: Vec<AtomicBool>,
    /// The fit that what the case knows comes from.
    heard: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn if_free<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl Kinds {
    /// With so many cases remembered by their owner.
    pub(crate) fn new(seed: u64, capacity: usize) -> Self {
        Self {
            seed,
            cases: capacity.clamp(1, MOST_CASES),
            kinds: Mutex::default(),
            meetings: AtomicU64::new(0),
            studying: Mutex::new(0),
        }
    }

    /// Takes note of a case, and puts what is to be expected of its candidates into `facts`. `None` if the kind is in use.
    pub(crate) fn meet(&self, like: Likeness, facts: &mut [Facts]) -> Option<Kin> {
        let kind = self.kind(like.kind);
        let foretold = facts.iter().map(|facts| facts.modelled.is_some());
        let foretold = foretold.map(AtomicBool::new).collect();
        let (problem, arms, fits) = {
            let mut kind = if_free(&kind)?;
            let Kind {
                arms, experience, ..
            } = &mut *kind;
            let number = |name: String| {
                let next = arms.len();
                *arms.entry(name).or_insert(next)
            };
            let numbers: Vec<usize> = like.arms.into_iter().map(number).collect();
            let mut open = vec![false; arms.len()];
            for number in &numbers {
                open[*number] = true;
            }
            let problem = experience.meet(like.problem, open);
            let foreseen = foreseen(experience, problem, &numbers);
            for (foreseen, facts) in foreseen.into_iter().zip(facts) {
                // What was fitted to all that is on record knows more than what this process has met.
                if let (Some(foreseen), None) = (foreseen, facts.modelled) {
                    foreseen.put_into(facts);
                }
            }
            (problem, numbers, experience.fits())
        };
        Some(Kin {
            kind,
            problem,
            arms,
            foretold,
            heard: AtomicU64::new(fits),
        })
    }

    fn kind(&self, name: String) -> Arc<Mutex<Kind>> {
        let met = self.meetings.fetch_add(1, Ordering::Relaxed);
        let mut kinds = lock(&self.kinds);
        if kinds.len() >= MOST_KINDS && !kinds.contains_key(&name) {
            let oldest = kinds.iter().min_by_key(|(_, known)| known.met);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                kinds.remove(&oldest);
            }
        }
        let known = kinds.entry(name).or_insert_with(|| Known {
            kind: Arc::new(Mutex::new(Kind {
                arms: HashMap::new(),
                experience: Experience::with_capacity(self.seed, self.cases),
                fit_ns: 0,
            })),
            met,
        });
        known.met = met;
        Arc::clone(&known.kind)
    }

    /// Fits the models of kinds that have learned enough since the last time, while that takes little of the time served. Not
    /// for callers: it takes a while.
    pub(crate) fn study(&self, clock: &dyn Clock, served_ns: f64) {
        let Ok(mut took) = self.studying.try_lock() else {
            return;
        };
        let kinds = lock(&self.kinds);
        let kinds: Vec<_> = kinds
            .values()
            .map(|known| Arc::clone(&known.kind))
            .collect();
        for kind in kinds {
            let start = clock.now();
            let copy = {
                let kind = lock(&kind);
                // The next fit takes as long as the last one, and a little more.
                let allowed = FIRST_STUDY_NS + STUDY_SHARE * served_ns;
                let fits = (*took + kind.fit_ns) as f64 <= allowed;
                (fits && kind.experience.is_due()).then(|| kind.experience.clone())
            };
            if let Some(mut copy) = copy {
                copy.refit();
                let mut kind = lock(&kind);
                kind.experience.adopt(copy);
                kind.fit_ns = clock.now().saturating_sub(start);
                *took += kind.fit_ns;
            }
        }
    }
}

/// What experience says of the candidates of a problem; nothing before its first fit.
fn foreseen(experience: &Experience, problem: ProblemId, arms: &[usize]) -> Vec<Option<Foreseen>> {
    if experience.fits() == 0 {
        return Vec::new();
    }
    let outlook = experience.outlook(problem);
    let times = outlook.iter().flatten().map(|known| known.time.mean);
    let best = times.fold(f64::INFINITY, f64::min);
    let foreseen = |arm: &usize| {
        let known = outlook.get(*arm).copied().flatten()?;
        let unfamiliar = UNFAMILIAR / (1.0 + f64::from(known.runs_alike)).sqrt();
        let sd = known.time.sd.hypot(unfamiliar).max(SUREST);
        let expected = |mean: f64| Expected { mean, sd };
        Some(Foreseen {
            expected: expected(best + known.slowdown),
            modelled: known.fitted.then(|| expected(known.time.mean)),
        })
    };
    arms.iter().map(foreseen).collect()
}

impl Kin {
    /// Takes note of what a candidate takes, as ln t; what finds the kind in use is told by a later sample.
    pub(crate) fn observe(&self, candidate: usize, ln_t: f64) {
        if let (Some(arm), Some(mut kind)) = (self.arms.get(candidate), if_free(&self.kind)) {
            kind.experience.observe(self.problem, *arm, ln_t);
            kind.experience.leave(self.problem);
        }
    }

    /// What is to be expected of the candidates, if models were fitted since the last time; `None` of those that are not known, and of
    /// those that have a forecast from records.
    pub(crate) fn news(&self) -> Option<Vec<Option<Foreseen>>> {
        let kind = if_free(&self.kind)?;
        let fits = kind.experience.fits();
        if self.heard.swap(fits, Ordering::Relaxed) == fits {
            return None;
        }
        let mut news = foreseen(&kind.experience, self.problem, &self.arms);
        for (news, foretold) in news.iter_mut().zip(&self.foretold) {
            if foretold.load(Ordering::Relaxed) {
                *news = None;
            }
        }
        Some(news)
    }

    /// A candidate has a forecast from records from now on.
    pub(crate) fn set_foretold(&self, candidate: usize) {
        if let Some(foretold) = self.foretold.get(candidate) {
            foretold.store(true, Ordering::Relaxed);
        }
    }

    /// How many workloads of the kind a candidate was measured on; `None` while the kind is in use.
    pub(crate) fn alike(&self, candidate: usize) -> Option<usize> {
        let arm = *self.arms.get(candidate)?;
        Some(if_free(&self.kind)?.experience.measured(arm))
    }
}

#[cfg(test)]
mod tests {
    use kernelwise_measure::ScriptedClock;

    use super::*;

    fn like(kind: &str, size: f32, arms: &[&str]) -> Likeness {
        let problem = Problem::new(vec![size, size.ln()], f64::from(size));
        Likeness {
            kind: kind.to_owned(),
            problem: problem.alike(&kind, f64::from(size)),
            arms: arms.iter().map(|arm| (*arm).to_owned()).collect(),
        }
    }

    fn unknown(count: usize) -> Vec<Facts> {
        let nothing = Facts {
            expected: None,
            modelled: None,
            hinted: 0.0,
            workspace: 0,
            threads: 1,
            busy: false,
            efficiency: None,
        };
        vec![nothing; count]
    }

    #[test]
    fn a_new_case_is_expected_to_be_like_others_of_its_kind() {
        let kinds = Kinds::new(1, 100_000);
        for i in 1..60 {
            let size = 10.0 * i as f32;
            // The order of candidates differs from case to case.
            let arms = if i % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
            let kin = kinds.meet(like("kind", size, &arms), &mut unknown(2));
            let kin = kin.unwrap();
            for (candidate, arm) in arms.iter().enumerate() {
                let time = if *arm == "a" { 1.0 } else { 3.0 } * f64::from(size);
                kin.observe(candidate, time.ln());
            }
            kinds.study(&ScriptedClock::new(), 0.0);
        }
        let mut facts = unknown(3);
        kinds.meet(like("kind", 333.0, &["b", "new", "a"]), &mut facts);
        let mean = |facts: &Facts| facts.modelled.map(|modelled| modelled.mean.exp());
        let (b, a) = (mean(&facts[0]).unwrap(), mean(&facts[2]).unwrap());
        assert!((b / 999.0 - 1.0).abs() < 0.2 && (a / 333.0 - 1.0).abs() < 0.2);
        assert!(facts[2].expected.unwrap().mean < facts[0].expected.unwrap().mean);
        assert_eq!(facts[1], unknown(1)[0]);
        // Of another kind nothing is known.
        let mut other = unknown(2);
        kinds.meet(like("other", 333.0, &["a", "b"]), &mut other);
        assert_eq!(other, unknown(2));
    }

    #[test]
    fn of_many_kinds_the_one_used_longest_ago_makes_room() {
        let kinds = Kinds::new(1, 100_000);
        let meet = |name: &str| kinds.meet(like(name, 1.0, &["a"]), &mut unknown(1));
        for i in 0..MOST_KINDS {
            assert!(meet(&i.to_string()).is_some());
        }
        assert!(meet("0").is_some() && meet("one more").is_some());
        let known = lock(&kinds.kinds);
        assert_eq!(known.len(), MOST_KINDS);
        assert!(known.contains_key("0") && !known.contains_key("1"));
    }

    #[test]
    fn a_case_hears_of_later_fits_and_waits_for_nobody() {
        let (kinds, clock) = (Kinds::new(1, 100_000), ScriptedClock::new());
        let first = kinds.meet(like("kind", 7.0, &["a"]), &mut unknown(1));
        let first = first.unwrap();
        assert_eq!(first.news(), None);
        for i in 1..40 {
            let kin = kinds.meet(like("kind", i as f32, &["a"]), &mut unknown(1));
            kin.unwrap().observe(0, f64::from(i).ln());
            kinds.study(&clock, 0.0);
        }
        let news = first.news().unwrap();
        assert!((news[0].unwrap().expected.mean - 7f64.ln()).abs() < 0.5);
        assert_eq!(first.news(), None, "told once");
        let in_use = lock(&first.kind);
        assert!(
            kinds
                .meet(like("kind", 7.0, &["a"]), &mut unknown(1))
                .is_none()
        );
        first.observe(0, 1.0);
        drop(in_use);
    }

    #[test]
    fn forecasts_from_records_outlive_later_fits() {
        let (kinds, clock) = (Kinds::new(1, 100_000), ScriptedClock::new());
        let told = Expected { mean: 3.0, sd: 0.1 };
        let mut facts = unknown(2);
        (facts[0].expected, facts[0].modelled) = (Some(told), Some(told));
        let first = kinds.meet(like("kind", 7.0, &["a", "b"]), &mut facts);
        let first = first.unwrap();
        assert_eq!(facts[0].modelled, Some(told));
        for i in 1..40 {
            let kin = kinds.meet(like("kind", i as f32, &["a", "b"]), &mut unknown(2));
            let kin = kin.unwrap();
            (0..2).for_each(|arm| kin.observe(arm, f64::from(i).ln()));
            kinds.study(&clock, 0.0);
        }
        let news = first.news().unwrap();
        assert!(news[0].is_none() && news[1].is_some(), "{news:?}");
        assert_eq!(first.alike(1), Some(39));
        // Models that are fitted to records later speak for the other as well.
        first.set_foretold(1);
        for i in 40..80 {
            let kin = kinds.meet(like("kind", i as f32, &["a", "b"]), &mut unknown(2));
            kin.unwrap().observe(0, f64::from(i).ln());
            kinds.study(&clock, 0.0);
        }
        assert_eq!(first.news(), Some(vec![None, None]));
    }

    /// A clock on which everything takes ten milliseconds.
    #[derive(Debug, Default)]
    struct Slow(std::sync::atomic::AtomicU64);

    impl Clock for Slow {
        fn now(&self) -> u64 {
            let ms = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            10_000_000 * ms
        }

        fn name(&self) -> &'static str {
            "slow"
        }
    }

    #[test]
    fn models_take_a_share_of_the_time_served() {
        let fits = |served_ns: f64| {
            let (kinds, clock) = (Kinds::new(1, 100_000), Slow::default());
            let mut last = None;
            for i in 1..2000 {
                let like = like("kind", i as f32, &["a"]);
                let kin = kinds.meet(like, &mut unknown(1)).unwrap();
                kin.observe(0, f64::from(i).ln());
                kinds.study(&clock, served_ns);
                last = Some(kin);
            }
            let last = last.unwrap();
            let kind = lock(&last.kind);
            kind.experience.fits()
        };
        // Ten of ten milliseconds to begin with.
        assert_eq!(fits(0.0), 10);
        assert!(fits(1e12) > 15);
    }
}
