//! What cases have in common, kind by kind.
//!
//! A case that is met for the first time is expected to behave like those of its [kind](crate::problem::kind) that were measured.
//! Whoever makes a case asks what is known, and waits for nobody who learns: models are fitted beside, on a copy, and put in
//! place in one step.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kernelwise_measure::Clock;

use crate::belief::Expected;
use crate::experience::{Experience, ProblemId};
use crate::learn::Facts;
use crate::problem::Problem;

/// Kinds that are learned about; there are a few for each operation.
const MOST_KINDS: usize = 512;

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
}

/// All kinds of one selector.
#[derive(Debug)]
pub(crate) struct Kinds {
    seed: u64,
    kinds: Mutex<HashMap<String, Arc<Mutex<Kind>>>>,
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
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kinds {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            kinds: Mutex::default(),
            studying: Mutex::new(0),
        }
    }

    /// Takes note of a case, and puts what is to be expected of its candidates into `facts`. `None` if there are too many
    /// kinds already.
    pub(crate) fn meet(&self, like: Likeness, facts: &mut [Facts]) -> Option<Kin> {
        let kind = {
            let mut kinds = lock(&self.kinds);
            if kinds.len() >= MOST_KINDS && !kinds.contains_key(&like.kind) {
                return None;
            }
            let new = || {
                Arc::new(Mutex::new(Kind {
                    arms: HashMap::new(),
                    experience: Experience::new(self.seed),
                }))
            };
            Arc::clone(kinds.entry(like.kind).or_insert_with(new))
        };
        let (problem, arms) = {
            let Kind { arms, experience } = &mut *lock(&kind);
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
            if experience.fits() > 0 {
                expect(experience, problem, &numbers, facts);
            }
            (problem, numbers)
        };
        Some(Kin {
            kind,
            problem,
            arms,
        })
    }

    /// Fits the models of kinds that have learned enough since the last time, while that takes little of the time served. Not
    /// for callers: it takes a while.
    pub(crate) fn study(&self, clock: &dyn Clock, served_ns: f64) {
        let Ok(mut took) = self.studying.try_lock() else {
            return;
        };
        let kinds: Vec<Arc<Mutex<Kind>>> = lock(&self.kinds).values().cloned().collect();
        for kind in kinds {
            if *took as f64 > FIRST_STUDY_NS + STUDY_SHARE * served_ns {
                return;
            }
            let start = clock.now();
            let copy = {
                let kind = lock(&kind);
                kind.experience.is_due().then(|| kind.experience.clone())
            };
            if let Some(mut copy) = copy {
                copy.refit();
                lock(&kind).experience.adopt(copy);
                *took += clock.now().saturating_sub(start);
            }
        }
    }
}

/// Puts what experience says into what is known of the candidates.
fn expect(experience: &Experience, problem: ProblemId, arms: &[usize], facts: &mut [Facts]) {
    let outlook = experience.outlook(problem);
    let times = outlook.iter().flatten().map(|known| known.time.mean);
    let best = times.fold(f64::INFINITY, f64::min);
    for (arm, facts) in arms.iter().zip(facts) {
        if let Some(known) = outlook.get(*arm).copied().flatten() {
            let unfamiliar = UNFAMILIAR / (1.0 + f64::from(known.runs_alike)).sqrt();
            let sd = known.time.sd.hypot(unfamiliar).max(SUREST);
            let expected = |mean: f64| Some(Expected { mean, sd });
            facts.modelled = expected(known.time.mean);
            facts.expected = expected(best + known.slowdown);
        }
    }
}

impl Kin {
    /// Takes note of what a candidate takes, as ln t.
    pub(crate) fn observe(&self, candidate: usize, ln_t: f64) {
        if let Some(arm) = self.arms.get(candidate) {
            let mut kind = lock(&self.kind);
            kind.experience.observe(self.problem, *arm, ln_t);
            kind.experience.leave(self.problem);
        }
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
            efficiency: None,
        };
        vec![nothing; count]
    }

    #[test]
    fn a_new_case_is_expected_to_be_like_others_of_its_kind() {
        let kinds = Kinds::new(1);
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
    fn there_are_only_so_many_kinds() {
        let kinds = Kinds::new(1);
        let meet = |name: &str| kinds.meet(like(name, 1.0, &["a"]), &mut unknown(1));
        for i in 0..MOST_KINDS {
            assert!(meet(&i.to_string()).is_some());
        }
        assert!(meet("one more").is_none() && meet("7").is_some());
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
            let (kinds, clock) = (Kinds::new(1), Slow::default());
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
        // Ten of ten milliseconds to begin with, and one more that is found out to be too much.
        assert_eq!(fits(0.0), 11);
        assert!(fits(1e12) > 15);
    }
}
