//! How good recommended settings of the processor are, beside the best that can be measured.
//!
//! For every shape somebody recommends, and right afterwards a judge that knows nothing of it measures every kernel on every number of threads, interleaved,
//! and all that was recommended. Three questions are answered:
//!
//! - **threads**: how many times as long as the best does the best kernel on as many threads take? Which kernel is recommended does not count here.
//! - **choice**: the same for the very kernel and setting that is recommended.
//! - **tiles**: how many times as long as with its usual other parameters does it take? One where they are the usual ones.
//!
//! Beside them stands what noise alone costs: the number of threads that was best in the judge's first rounds, on the times of the others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kernelwise_backend::{Host, Terms, admit, prior};
use kernelwise_types::{Candidate, Fingerprint, KernelId, Numerics, Technique, Workload};
use serde::Serialize;

use crate::choices::judge::{Field, Judged, judge};
use crate::figures::SkippedShape;

/// Threads this much slower than the best number of them are as good.
const AS_GOOD: f64 = 1.1;
/// Other parameters this much slower than the usual ones are no slower: on a machine that others use, less cannot be told.
const NO_SLOWER: f64 = 1.05;

/// A recommendation, and who made it.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// Who, in a word.
    pub by: &'static str,
    /// The kernel with all its parameters.
    pub candidate: Candidate,
}

/// What is said of a shape.
#[derive(Debug, Clone, Default)]
pub struct Advised {
    /// Recommendations.
    pub advice: Vec<Advice>,
    /// Kernels that were found to compute something wrong, or to fail: however fast, they are not the best.
    pub wrong: Vec<KernelId>,
}

/// What became of a recommendation.
#[derive(Debug, Clone, Serialize)]
pub struct Followed {
    /// Who made it.
    pub by: &'static str,
    /// The kernel.
    pub kernel: String,
    /// Its parameters.
    pub parameters: String,
    /// Threads among them.
    pub threads: u64,
    /// What the judge measured.
    pub time_ns: f64,
    /// The best on as many threads over the best of all.
    pub threads_slowdown: f64,
    /// This one over the best of all.
    pub choice_slowdown: f64,
    /// This one over the same kernel on as many threads with its usual other parameters; `None` if it has these.
    pub tiles_slowdown: Option<f64>,
}

/// The fastest on a number of threads.
#[derive(Debug, Clone, Serialize)]
pub struct OnThreads {
    /// The number.
    pub threads: u64,
    /// The kernel.
    pub kernel: String,
    /// Its parameters.
    pub parameters: String,
    /// Its time.
    pub time_ns: f64,
}

/// One shape.
#[derive(Debug, Clone, Serialize)]
pub struct ShapeFollowed {
    /// The shape.
    pub workload: Workload,
    /// Kernels with numbers of threads that were judged.
    pub candidates: usize,
    /// Rounds of the judge, of those near the front.
    pub judge_rounds: usize,
    /// The fastest on every number of threads.
    pub best: Vec<OnThreads>,
    /// Recommendations, in the order they were made.
    pub followed: Vec<Followed>,
    /// What noise alone costs whoever has to tell the number of threads; `None` where rounds were few.
    pub judge_first_half: Option<f64>,
}

/// How good numbers of threads are over all shapes.
#[derive(Debug, Clone, Serialize)]
pub struct ThreadsScore {
    /// Shapes.
    pub shapes: usize,
    /// Those with a number of threads at most 10 % slower than the best.
    pub within_10pct: usize,
    /// Geometric mean of the slowdowns.
    pub geo_slowdown: f64,
    /// The largest.
    pub worst_slowdown: f64,
}

/// How one who recommends did over all shapes.
#[derive(Debug, Clone, Serialize)]
pub struct FollowedScore {
    /// Who.
    pub by: String,
    /// Its numbers of threads.
    pub threads: ThreadsScore,
    /// Geometric mean of the slowdowns of the very choices.
    pub choice_geo_slowdown: f64,
    /// Shapes with other parameters than the usual ones.
    pub other_tiles: usize,
    /// Of those, the ones that are more than 5 % slower than the usual.
    pub tiles_slower: usize,
}

/// All figures.
#[derive(Debug, Serialize)]
pub struct Recommendations {
    /// The machine.
    pub machine: Fingerprint,
    /// Seed of operands and orders.
    pub seed: u64,
    /// Whether it ended before all shapes were judged.
    pub interrupted: bool,
    /// Whoever recommended.
    pub scores: Vec<FollowedScore>,
    /// What noise alone costs: the judge's own first half; `None` where rounds were few everywhere.
    pub judge_first_half: Option<ThreadsScore>,
    /// Shape by shape.
    pub shapes: Vec<ShapeFollowed>,
    /// Shapes that were not judged.
    pub skipped: Vec<SkippedShape>,
}

/// Asks for recommendations shape by shape and judges them, with so much time for each shape. `cancel` ends it before the next one; `tell` hears of each before
/// its turn.
pub fn recommended(
    host: &Host,
    shapes: &[Workload],
    (budget, seed): (Duration, u64),
    cancel: &AtomicBool,
    advise: &mut dyn FnMut(&Workload) -> Result<Advised, String>,
    tell: &mut dyn FnMut(usize, &Workload),
) -> Recommendations {
    let (mut judged, mut skipped) = (Vec::new(), Vec::new());
    for (done, workload) in shapes.iter().enumerate() {
        tell(done, workload);
        let result = match cancel.load(Ordering::Relaxed) {
            true => Err("interrupted before its turn".to_owned()),
            false => advise(workload)
                .and_then(|advised| follow(host, workload, &advised, (budget, seed), cancel)),
        };
        match result {
            Ok(shape) => judged.push(shape),
            Err(reason) => skipped.push(SkippedShape {
                workload: workload.clone(),
                reason,
            }),
        }
    }
    Recommendations {
        machine: Fingerprint::of(host.machine()),
        seed,
        interrupted: cancel.load(Ordering::Relaxed),
        scores: scores(&judged),
        judge_first_half: threads_score(judged.iter().filter_map(|one| one.judge_first_half)),
        shapes: judged,
        skipped,
    }
}

/// Every kernel that may run on every number of threads, its other parameters the usual ones.
fn usual(host: &Host, workload: &Workload) -> Vec<Candidate> {
    let machine = host.machine();
    let terms = Terms {
        numerics: Numerics::Reordered,
        ..Terms::usual(machine)
    };
    let mut candidates = Vec::new();
    for kernel in host.kernels_for(workload) {
        let spec = kernel.spec();
        if spec.technique == Technique::Reference {
            continue;
        }
        let space = kernel.space(workload, machine);
        let axis = space.axes().find(|(name, _)| *name == "threads");
        let numbers = axis.map_or(&[1][..], |(_, axis)| axis.values());
        let settings = numbers.iter().filter_map(|one| space.on_threads(*one));
        let may = settings.filter(|setting| {
            prior::threads(&space, setting) <= machine.usable_threads()
                && admit(kernel.as_ref(), workload, None, setting, &terms).is_ok()
        });
        candidates.extend(may.filter_map(|setting| {
            Some(Candidate {
                kernel: spec.id.clone(),
                params: space.params(&setting).ok()?,
            })
        }));
    }
    candidates
}

fn threads(candidate: &Candidate) -> u64 {
    candidate.params.get("threads").unwrap_or(1)
}

/// Judges what was recommended for one shape; why not, in words.
fn follow(
    host: &Host,
    workload: &Workload,
    Advised { advice, wrong }: &Advised,
    (budget, seed): (Duration, u64),
    cancel: &AtomicBool,
) -> Result<ShapeFollowed, String> {
    let mut candidates = usual(host, workload);
    candidates.retain(|one| !wrong.contains(&one.kernel));
    for one in advice {
        if !candidates.contains(&one.candidate) {
            candidates.push(one.candidate.clone());
        }
    }
    let place = |one: &Candidate| candidates.iter().position(|other| other == one);
    let like = |one: &Candidate| {
        let same =
            |other: &&Candidate| other.kernel == one.kernel && threads(other) == threads(one);
        candidates.iter().find(same)
    };
    let advised = advice.iter().map(|one| &one.candidate);
    let wanted = advised.flat_map(|one| place(one).into_iter().chain(like(one).and_then(place)));
    let field = Field {
        workload,
        candidates: &candidates,
        wanted: wanted.collect(),
        heats: budget,
        budget,
    };
    let judged = judge(host, &field, seed, cancel)?;
    followed(workload, &candidates, advice, &judged)
        .ok_or_else(|| "not all that was recommended could be timed".to_owned())
}

/// What the judge's times say about recommendations. The usual settings come first among the candidates.
fn followed(
    workload: &Workload,
    candidates: &[Candidate],
    advice: &[Advice],
    judged: &Judged,
) -> Option<ShapeFollowed> {
    let timed = || (0..candidates.len()).filter_map(|i| Some((i, judged.time_ns(i)?)));
    let best_on = |number: u64| {
        let on = timed().filter(|(i, _)| threads(&candidates[*i]) == number);
        on.min_by(|a, b| a.1.total_cmp(&b.1))
    };
    let best_ns = judged.time_ns(judged.oracle)?;
    let mut numbers: Vec<u64> = candidates.iter().map(threads).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let best = numbers.into_iter().filter_map(|number| {
        let (i, time_ns) = best_on(number)?;
        Some(OnThreads {
            threads: number,
            kernel: candidates[i].kernel.to_string(),
            parameters: candidates[i].params.to_string(),
            time_ns,
        })
    });
    let followed = advice.iter().map(|one| {
        let candidate = &one.candidate;
        let number = threads(candidate);
        let time_of =
            |like: &dyn Fn(&Candidate) -> bool| judged.time_ns(candidates.iter().position(like)?);
        let time_ns = time_of(&|other| other == candidate)?;
        let usual =
            |other: &Candidate| other.kernel == candidate.kernel && threads(other) == number;
        let has_usual_tiles = candidates.iter().find(|one| usual(one)) == Some(candidate);
        let usual_ns = time_of(&usual)?;
        Some(Followed {
            by: one.by,
            kernel: candidate.kernel.to_string(),
            parameters: candidate.params.to_string(),
            threads: number,
            time_ns,
            threads_slowdown: best_on(number)?.1 / best_ns,
            choice_slowdown: time_ns / best_ns,
            tiles_slowdown: (!has_usual_tiles).then_some(time_ns / usual_ns),
        })
    });
    Some(ShapeFollowed {
        workload: workload.clone(),
        candidates: candidates.len(),
        judge_rounds: judged.rounds,
        followed: followed.collect::<Option<_>>()?,
        judge_first_half: judged.first_half(|i| threads(&candidates[i])),
        best: best.collect(),
    })
}

/// None if there is nothing to score.
fn threads_score(slowdowns: impl Iterator<Item = f64>) -> Option<ThreadsScore> {
    let all: Vec<f64> = slowdowns.collect();
    (!all.is_empty()).then(|| ThreadsScore {
        shapes: all.len(),
        within_10pct: all.iter().filter(|one| **one <= AS_GOOD).count(),
        geo_slowdown: geometric_mean(&all),
        worst_slowdown: all.iter().copied().fold(1.0, f64::max),
    })
}

fn geometric_mean(all: &[f64]) -> f64 {
    (all.iter().map(|one| one.ln()).sum::<f64>() / all.len() as f64).exp()
}

fn scores(shapes: &[ShapeFollowed]) -> Vec<FollowedScore> {
    let mut names: Vec<&'static str> = Vec::new();
    for one in shapes.iter().flat_map(|shape| &shape.followed) {
        if !names.contains(&one.by) {
            names.push(one.by);
        }
    }
    let score = |by: &&'static str| {
        let its = shapes.iter().flat_map(|shape| &shape.followed);
        let its: Vec<&Followed> = its.filter(|one| one.by == *by).collect();
        let choices: Vec<f64> = its.iter().map(|one| one.choice_slowdown).collect();
        let tiles = || its.iter().filter_map(|one| one.tiles_slowdown);
        Some(FollowedScore {
            by: (*by).to_owned(),
            threads: threads_score(its.iter().map(|one| one.threads_slowdown))?,
            choice_geo_slowdown: geometric_mean(&choices),
            other_tiles: tiles().count(),
            tiles_slower: tiles().filter(|one| *one > NO_SLOWER).count(),
        })
    };
    names.iter().filter_map(score).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kernelwise_backend::{Axis, HostKernel, OwnKernel, Space};
    use kernelwise_types::{KernelSpec, Machine, Needs, Params};

    use super::*;

    fn candidate(text: &str, params: &[(&str, u64)]) -> Candidate {
        let mut all = Params::new();
        for (name, value) in params {
            all = all.with(name, *value).unwrap();
        }
        Candidate {
            kernel: text.parse().unwrap(),
            params: all,
        }
    }

    fn advice(by: &'static str, candidate: &Candidate) -> Advice {
        Advice {
            by,
            candidate: candidate.clone(),
        }
    }

    #[test]
    fn threads_choice_and_tiles_are_judged_apart() {
        let (quick, slow) = ("cpu-copy-f32-quick", "cpu-copy-f32-slow");
        let candidates = [
            candidate(quick, &[("threads", 1), ("tile", 8)]),
            candidate(quick, &[("threads", 2), ("tile", 8)]),
            candidate(slow, &[]),
            candidate(slow, &[("threads", 2)]),
            candidate(quick, &[("threads", 2), ("tile", 16)]),
        ];
        let judged = Judged::of(&[100.0, 50.0, 120.0, 80.0, 60.0].map(Some));
        let advice = [
            advice("kernel", &candidates[3]),
            advice("tiles", &candidates[4]),
            advice("threads", &candidates[2]),
        ];
        let workload = "copy f32 100".parse().unwrap();
        let shape = followed(&workload, &candidates, &advice, &judged).unwrap();
        let slowdowns = |i: usize| {
            let one = &shape.followed[i];
            [
                Some(one.threads_slowdown),
                Some(one.choice_slowdown),
                one.tiles_slowdown,
            ]
        };
        assert_eq!(
            slowdowns(0),
            [Some(1.0), Some(1.6), None],
            "another kernel on as many threads is the best"
        );
        assert_eq!(
            slowdowns(1),
            [Some(1.0), Some(1.2), Some(1.2)],
            "its usual tiles take 50"
        );
        assert_eq!(
            slowdowns(2),
            [Some(2.0), Some(2.4), None],
            "nobody is as fast on one thread"
        );
        let best: Vec<(u64, f64)> = shape
            .best
            .iter()
            .map(|one| (one.threads, one.time_ns))
            .collect();
        assert_eq!(best, [(1, 100.0), (2, 50.0)]);

        let scores = scores(&[shape]);
        let told: Vec<(&str, usize, usize, usize)> = scores
            .iter()
            .map(|one| {
                (
                    one.by.as_str(),
                    one.threads.within_10pct,
                    one.other_tiles,
                    one.tiles_slower,
                )
            })
            .collect();
        let expected = [
            ("kernel", 1, 0, 0),
            ("tiles", 1, 1, 1),
            ("threads", 0, 0, 0),
        ];
        assert_eq!(told, expected);
        assert!(threads_score(std::iter::empty()).is_none());
        assert_eq!(scores[2].threads.worst_slowdown, 2.0);
        assert!((scores[0].choice_geo_slowdown - 1.6).abs() < 1e-12);
    }

    kernelwise_backend::knobs! {
        struct Threads {
            threads,
        }
    }

    /// A kernel that does nothing, on one or two threads.
    fn kernel() -> Arc<dyn HostKernel> {
        let spec = KernelSpec {
            id: "cpu-copy-f32-mine".parse().unwrap(),
            version: 1,
            technique: Technique::Custom,
            numerics: Numerics::BitIdentical,
            needs: Needs::default(),
        };
        let space = |_: &Workload, _: &Machine| Space::of::<Threads, 1>([Axis::new(1, [2])]);
        Arc::new(OwnKernel::new(spec, |_, _, _| Ok(())).with_space(space))
    }

    #[test]
    fn what_is_recommended_is_judged_beside_every_number_of_threads_that_may_be_used() {
        let machine = kernelwise_probe::machine();
        let workload: Workload = "copy f32 100".parse().unwrap();
        let on = |threads: u32| {
            let machine = machine.clone().with_threads(threads);
            let host = Host::new(machine, [kernel()]).unwrap();
            let all = usual(&host, &workload);
            all.iter().map(super::threads).collect::<Vec<u64>>()
        };
        // The reference is not among them.
        assert_eq!(on(1), [1]);
        if machine.usable_threads() > 1 {
            assert_eq!(on(2), [1, 2]);
        }
        let host = Host::new(machine, [kernel()]).unwrap();
        let mut advise = |workload: &Workload| {
            Ok(Advised {
                advice: vec![advice("me", &usual(&host, workload)[0])],
                wrong: Vec::new(),
            })
        };
        let mut told = |cancel: bool| {
            recommended(
                &host,
                std::slice::from_ref(&workload),
                (Duration::from_millis(50), 1),
                &AtomicBool::new(cancel),
                &mut advise,
                &mut |_, _| {},
            )
        };
        let all = told(false);
        assert!(all.skipped.is_empty(), "{:?}", all.skipped);
        let shape = &all.shapes[0];
        assert!(shape.followed[0].threads_slowdown >= 1.0 && shape.best[0].threads == 1);
        assert_eq!(shape.followed[0].tiles_slowdown, None);
        let ended = told(true);
        assert!(ended.interrupted && ended.shapes.is_empty() && ended.skipped.len() == 1);
    }
}
