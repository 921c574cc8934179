use kernelwise_backend::{Axis, Knobs, OwnKernel, Space as OwnSpace, knobs};
use kernelwise_measure::ScriptedClock;
use kernelwise_types::{KernelSpec, Needs, Technique};

use super::*;

knobs! {
    struct Tiles {
        rows, columns,
    }
}

/// Copies; the time is shortest with 8 rows and 4 columns. With 64 rows it is wrong, with 32 it fails, with 16 columns it panics.
fn kernel(clock: &Arc<ScriptedClock>) -> Arc<dyn HostKernel> {
    let spec = KernelSpec {
        id: "cpu-copy-f32-tiled".parse().unwrap(),
        version: 1,
        technique: Technique::Custom,
        numerics: Numerics::BitIdentical,
        needs: Needs::default(),
    };
    let clock = Arc::clone(clock);
    let kernel = OwnKernel::new(spec, move |call, setting, _| {
        let Tiles { rows, columns } = Tiles::of(setting);
        let off = |value: u32, best: u32| u64::from(value.ilog2().abs_diff(best.ilog2()));
        clock.advance(100_000 * (1 + off(rows, 8) + off(columns, 4)));
        match (rows, columns) {
            (32, _) => return Err(Fault::kernel("copy", "does not like 32")),
            (_, 16) => panic!("on purpose"),
            _ => {}
        }
        let (_, inputs, outputs) = call.parts();
        let out = outputs[0].as_mut_slice::<f32>()?;
        out.copy_from_slice(inputs[0].as_slice::<f32>()?);
        if rows == 64 {
            out[0] += 1.0;
        }
        Ok(())
    });
    Arc::new(kernel.with_space(|_, _| {
        OwnSpace::of::<Tiles, 2>([
            Axis::new(1, [2, 4, 8, 16, 32, 64]),
            Axis::new(1, [2, 4, 8, 16]),
        ])
    }))
}

fn options(evaluations: u64) -> TuneOptions {
    TuneOptions {
        strategy: Strategy::Default,
        budget: Budget::evaluations(evaluations),
        evaluation: Duration::from_millis(5),
        seed: 1,
        knowledge: Knowledge::default(),
    }
}

fn with_bench<R>(
    clock: &Arc<ScriptedClock>,
    cancel: &AtomicBool,
    body: impl FnOnce(&mut Workbench<'_>) -> R,
) -> R {
    let machine = kernelwise_probe::machine();
    let workload: Workload = "copy f32 100".parse().unwrap();
    let numerics = Numerics::BitIdentical;
    let clock: &dyn Clock = &**clock;
    let mut bench = Workbench::new(&workload, &machine, numerics, clock, cancel, 1).unwrap();
    body(&mut bench)
}

#[test]
fn the_best_setting_is_found_and_what_fails_is_told() {
    let clock = Arc::new(ScriptedClock::new());
    let kernel = kernel(&clock);
    let tuned = with_bench(&clock, &AtomicBool::new(false), |bench| {
        tune(bench, &kernel, &[], &options(35), &mut |_| ()).unwrap()
    });
    assert_eq!(tuned.best[0].0.to_string(), "columns=4,rows=8");
    assert!((tuned.best[0].1 - 1e-4).abs() < 1e-9);
    assert!(tuned.best.windows(2).all(|pair| pair[0].1 <= pair[1].1));
    // 35 settings: 5 with 64 rows, 5 with 32, and 5 more with 16 columns.
    assert_eq!(tuned.best.len(), 20);
    let failures = tuned.failures.join("; ");
    for words in ["wrong result", "does not like 32", "panicked"] {
        assert!(failures.contains(words), "{failures}");
    }
    assert_eq!(tuned.stopped, Some(Stopped::Evaluations));
}

#[test]
fn a_search_goes_on_where_it_was_broken_off() {
    let clock = Arc::new(ScriptedClock::new());
    let (kernel, cancel) = (kernel(&clock), AtomicBool::new(false));
    let mut kept = Vec::new();
    let broken_off = with_bench(&clock, &cancel, |bench| {
        tune(bench, &kernel, &[], &options(20), &mut |one| {
            kept.push(one.clone());
            cancel.store(kept.len() == 7, Ordering::Relaxed);
        })
        .unwrap()
    });
    assert_eq!((broken_off.stopped, broken_off.evaluated.len()), (None, 7));
    cancel.store(false, Ordering::Relaxed);
    let mut anew = Vec::new();
    let (resumed, whole) = with_bench(&clock, &cancel, |bench| {
        let mut watch = |one: &Evaluated| anew.push(one.params.clone());
        let resumed = tune(bench, &kernel, &kept, &options(20), &mut watch).unwrap();
        let whole = tune(bench, &kernel, &[], &options(20), &mut |_| ()).unwrap();
        (resumed, whole)
    });
    assert!(anew.iter().all(|one| kept.iter().all(|k| k.params != *one)));
    assert_eq!(resumed.best, whole.best);
}

#[test]
fn settings_are_those_of_the_kernel() {
    let clock = Arc::new(ScriptedClock::new());
    let machine = kernelwise_probe::machine();
    let workload: Workload = "copy f32 100".parse().unwrap();
    let settings = Settings::of(kernel(&clock).as_ref(), &workload, &machine).unwrap();
    assert_eq!(settings.count(), 35);
    let all = settings.all().unwrap();
    assert!(all.contains(&"rows=64,columns=1".parse().unwrap()));
    for params in &all {
        let there = settings.configuration(params).unwrap();
        assert_eq!(settings.params(&there).unwrap(), *params);
    }
    assert_eq!(
        settings.configuration(&"rows=3,columns=1".parse().unwrap()),
        None
    );
}

#[test]
fn a_kernel_that_cannot_run_says_so() {
    let clock = Arc::new(ScriptedClock::new());
    let kernel = kernel(&clock);
    let tried = with_bench(&clock, &AtomicBool::new(false), |bench| {
        let params = "rows=3,columns=1".parse().unwrap();
        bench
            .evaluate(&kernel, &params, Duration::from_millis(1))
            .unwrap()
    });
    assert!(tried.failure.unwrap().contains("rows"));
}

/// Evaluators that have up to three settings at a time and bring them back last first. The time is shortest with 8 rows and 4
/// columns; settings with 32 rows fail.
#[derive(Default)]
struct Elsewhere {
    out: Vec<Params>,
    put: Vec<(Params, usize)>,
    /// What somebody else asked for comes as well, as soon as anything does.
    unasked: Vec<Params>,
    /// After so many they want it to end.
    most: usize,
    spread: f64,
}

impl Evaluators for Elsewhere {
    type Error = HostError;

    fn put(&mut self, params: &Params, round: usize) -> Result<(), HostError> {
        self.put.push((params.clone(), round));
        self.out.push(params.clone());
        assert!(self.out.len() <= 3);
        Ok(())
    }

    fn wait(&mut self, for_results: bool) -> Result<Option<Vec<Evaluated>>, HostError> {
        if self.put.len() >= self.most {
            return Ok(None);
        }
        if self.out.len() < 3 && !for_results {
            return Ok(Some(Vec::new()));
        }
        let others = std::mem::take(&mut self.unasked);
        let came = self.out.drain(..).rev().chain(others).map(|params| {
            let value = |name| params.get(name).unwrap() as f64;
            let off = (value("rows") / 8.0).log2().abs() + (value("columns") / 4.0).log2().abs();
            let outcome = match value("rows") {
                32.0 => Outcome::failed(),
                _ => Outcome {
                    time: Some(1e-4 * (1.0 + off)),
                    spread: self.spread,
                    cost: Some(0.1),
                },
            };
            Evaluated { params, outcome }
        });
        Ok(Some(came.collect()))
    }
}

fn elsewhere(past: &[Evaluated], budget: u64, evaluators: &mut Elsewhere) -> Tuned {
    let kernel = kernel(&Arc::new(ScriptedClock::new()));
    let workload: Workload = "copy f32 100".parse().unwrap();
    let settings = Settings::of(kernel.as_ref(), &workload, &kernelwise_probe::machine()).unwrap();
    tune_elsewhere(&settings, past, &options(budget), evaluators).unwrap()
}

#[test]
fn evaluators_elsewhere_are_asked_for_what_the_search_wants() {
    let mut evaluators = Elsewhere {
        most: 1000,
        ..Elsewhere::default()
    };
    let tuned = elsewhere(&[], 24, &mut evaluators);
    assert_eq!(tuned.best[0].0.to_string(), "columns=4,rows=8");
    assert_eq!((tuned.evaluated.len(), evaluators.put.len()), (24, 24));
    assert_eq!(tuned.stopped, Some(Stopped::Evaluations));
    assert!(evaluators.put.iter().all(|(_, round)| *round == 0));
}

#[test]
fn a_search_elsewhere_ends_when_it_is_told_to_and_goes_on_later() {
    let mut first = Elsewhere {
        most: 9,
        ..Elsewhere::default()
    };
    let begun = elsewhere(&[], 24, &mut first);
    assert_eq!((begun.stopped, begun.evaluated.len()), (None, 6));
    let mut second = Elsewhere {
        most: 1000,
        ..Elsewhere::default()
    };
    let ended = elsewhere(&begun.evaluated, 24, &mut second);
    assert_eq!((second.put.len(), ended.evaluated.len()), (18, 24));
    assert_eq!(ended.best[0].0.to_string(), "columns=4,rows=8");
    let known: Vec<&Params> = begun.evaluated.iter().map(|one| &one.params).collect();
    assert!(
        second
            .put
            .iter()
            .all(|(params, _)| !known.contains(&params))
    );
}

#[test]
fn finalists_elsewhere_are_measured_again_under_rounds_of_their_own() {
    let mut evaluators = Elsewhere {
        most: 1000,
        spread: 0.5,
        ..Elsewhere::default()
    };
    let tuned = elsewhere(&[], 32, &mut evaluators);
    let again = evaluators.put.iter().filter(|(_, round)| *round > 0);
    assert!(again.count() >= 2);
    let mut once: Vec<&(Params, usize)> = evaluators.put.iter().collect();
    once.sort();
    once.dedup();
    // No two jobs are the same, or one would be taken for the other.
    assert_eq!(once.len(), evaluators.put.len());
    assert_eq!(tuned.evaluated.len(), evaluators.put.len());
}

#[test]
fn what_somebody_else_asked_for_is_not_waited_for() {
    let best: Params = "columns=4,rows=8".parse().unwrap();
    let mut evaluators = Elsewhere {
        unasked: vec![best.clone()],
        most: 1000,
        spread: 0.5,
        ..Elsewhere::default()
    };
    elsewhere(&[], 32, &mut evaluators);
    let of_best = evaluators.put.iter().filter(|(params, _)| *params == best);
    let rounds: Vec<usize> = of_best.map(|(_, round)| *round).collect();
    // It is a finalist; its first round is there already.
    assert!(!rounds.is_empty() && !rounds.contains(&0), "{rounds:?}");
}

#[test]
fn a_search_begins_from_what_was_found_for_another_size() {
    let clock = Arc::new(ScriptedClock::new());
    let (kernel, never) = (kernel(&clock), AtomicBool::new(false));
    let machine = kernelwise_probe::machine();
    let other: Workload = "copy f32 200".parse().unwrap();
    let settings = Settings::of(kernel.as_ref(), &other, &machine).unwrap();
    let before = with_bench(&clock, &never, |bench| {
        tune(bench, &kernel, &[], &options(35), &mut |_| ()).unwrap()
    });
    let record = settings.record(&other, &before.evaluated).unwrap();
    assert_eq!(record.entries.len(), 35);
    assert_eq!(record.problem, "copy f32 200");
    let mut knowing = options(3);
    knowing.knowledge.records.push(Arc::new(record));
    let mut asked = Vec::new();
    with_bench(&clock, &never, |bench| {
        let mut watch = |one: &Evaluated| asked.push(one.params.to_string());
        tune(bench, &kernel, &[], &knowing, &mut watch).unwrap()
    });
    assert_eq!(asked[0], "columns=4,rows=8", "{asked:?}");
    // What failed everywhere, or was never tried, is no record.
    let failed = before
        .evaluated
        .iter()
        .filter(|one| one.outcome.time.is_none());
    let failed: Vec<Evaluated> = failed.cloned().collect();
    assert!(settings.record(&other, &failed).is_none() && !failed.is_empty());
    assert!(settings.record(&other, &[]).is_none());
}

#[test]
fn a_kernel_that_hardly_runs_is_hardly_tuned() {
    let clock = Arc::new(ScriptedClock::new());
    let (kernel, never) = (kernel(&clock), AtomicBool::new(false));
    let evaluations = |runs| {
        let mut options = options(30);
        options.knowledge.runs = runs;
        let tuned = with_bench(&clock, &never, |bench| {
            tune(bench, &kernel, &[], &options, &mut |_| ()).unwrap()
        });
        (tuned.evaluated.len(), tuned.stopped)
    };
    let (few, why) = evaluations(Some(1.0));
    assert!(few < 20 && why == Some(Stopped::NotWorth), "{few} {why:?}");
    assert_eq!(evaluations(None).1, Some(Stopped::Evaluations));
}

#[test]
fn the_luckiest_time_of_several_is_not_the_best() {
    let clock = Arc::new(ScriptedClock::new());
    let machine = kernelwise_probe::machine();
    let workload: Workload = "copy f32 100".parse().unwrap();
    let settings = Settings::of(kernel(&clock).as_ref(), &workload, &machine).unwrap();
    let evaluated = |params: &str, time| Evaluated {
        params: params.parse().unwrap(),
        outcome: Outcome::measured(time),
    };
    let past = [
        evaluated("columns=4,rows=8", 1.0),
        evaluated("columns=1,rows=1", 0.5),
        evaluated("columns=1,rows=1", 1.9),
    ];
    let options = options(3);
    let mut search = settings.search(&options);
    let past = settings.evaluations(&past);
    let mut session = Session::new(&mut *search, options.budget, &[]).unwrap();
    for one in past {
        session.record(&one.configuration, one.outcome);
    }
    let tuned = settings.tuned(&session, Vec::new(), None).unwrap();
    assert_eq!(tuned.best[0].0.to_string(), "columns=4,rows=8");
    assert!((tuned.best[1].1 - 1.2).abs() < 1e-12, "{:?}", tuned.best);
}
