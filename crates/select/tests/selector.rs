//! The selector as its users meet it, on kernels whose times a scripted clock tells.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use kernelwise_backend::{Call, Fault, Hint, HostKernel, OwnKernel};
use kernelwise_measure::ScriptedClock;
use kernelwise_select::{
    Budget, BuildError, Builder, Mode, Policy, ReportError, RunError, SelectError, Selector,
    Weights, Went,
};
use kernelwise_types::{
    Estimate, KernelId, KernelSpec, Machine, Needs, Numerics, Reason, Technique, TensorView,
    TensorViewMut, Workload,
};
use metrics::{KeyName, Metadata, SharedString, Unit};

fn machine() -> Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE
        .get_or_init(|| kernelwise_probe::machine().with_threads(2))
        .clone()
}

fn spec(id: &str) -> KernelSpec {
    KernelSpec {
        id: id.parse().unwrap(),
        version: 1,
        technique: Technique::Custom,
        numerics: Numerics::BitIdentical,
        needs: Needs::default(),
    }
}

fn id(text: &str) -> KernelId {
    text.parse().unwrap()
}

/// What a test kernel does.
#[derive(Default)]
struct Behaviour {
    time_ns: AtomicU64,
    runs: AtomicUsize,
    wrong: AtomicBool,
    panics: AtomicBool,
    fails: AtomicBool,
}

/// A copy that takes as long as it is told to.
fn copy(
    name: &str,
    time_ns: u64,
    clock: &Arc<ScriptedClock>,
) -> (Arc<dyn HostKernel>, Arc<Behaviour>) {
    let behaviour = Arc::new(Behaviour::default());
    behaviour.time_ns.store(time_ns, Ordering::Relaxed);
    let (clock, does) = (Arc::clone(clock), Arc::clone(&behaviour));
    let kernel = OwnKernel::new(spec(name), move |call, _, _| {
        does.runs.fetch_add(1, Ordering::Relaxed);
        clock.advance(does.time_ns.load(Ordering::Relaxed));
        let (_, inputs, outputs) = call.parts();
        let out = outputs[0].as_mut_slice::<f32>()?;
        out[0] = 77.0;
        assert!(!does.panics.load(Ordering::Relaxed), "on purpose");
        if does.fails.load(Ordering::Relaxed) {
            return Err(Fault::kernel("copy", "did not feel like it"));
        }
        out.copy_from_slice(inputs[0].as_slice::<f32>()?);
        if does.wrong.load(Ordering::Relaxed) {
            out[1] += 1.0;
        }
        Ok(())
    });
    (Arc::new(kernel), behaviour)
}

struct Bed {
    clock: Arc<ScriptedClock>,
    kernels: Vec<Arc<dyn HostKernel>>,
    behaviours: Vec<Arc<Behaviour>>,
}

const NAMES: [&str; 3] = ["cpu-copy-f32-a", "cpu-copy-f32-b", "cpu-copy-f32-c"];

impl Bed {
    fn new(times: &[u64]) -> Self {
        let clock = Arc::new(ScriptedClock::new());
        let made = times
            .iter()
            .zip(NAMES)
            .map(|(time, name)| copy(name, *time, &clock));
        let (kernels, behaviours) = made.unzip();
        Self {
            clock,
            kernels,
            behaviours,
        }
    }

    fn builder(&self) -> Builder {
        Selector::builder(machine(), self.kernels.clone())
            .clock(Arc::clone(&self.clock) as _)
            .background(false)
    }

    fn selector(&self) -> Selector {
        self.builder().build().unwrap()
    }

    fn runs(&self, kernel: usize) -> usize {
        self.behaviours[kernel].runs.load(Ordering::Relaxed)
    }
}

/// Copies four numbers and learns; what came out.
fn call(selector: &Selector) -> Result<[f32; 4], RunError> {
    let workload: Workload = "copy f32 4".parse().unwrap();
    let (from, mut to) = ([1f32, 2.0, 3.0, 4.0], [0f32; 4]);
    let inputs = [TensorView::contiguous(&from, "4".parse().unwrap()).unwrap()];
    let mut outputs = [TensorViewMut::contiguous(&mut to, "4".parse().unwrap()).unwrap()];
    let ran = selector.run(&mut Call::new(&workload, &inputs, &mut outputs).unwrap());
    selector.settle();
    ran.map(|()| to)
}

fn calls(selector: &Selector, n: usize) {
    for _ in 0..n {
        assert_eq!(call(selector).unwrap(), [1.0, 2.0, 3.0, 4.0]);
    }
}

#[test]
fn the_first_call_is_served_and_the_fastest_kernel_found() {
    for order in [
        [9_000, 3_000, 5_000],
        [3_000, 9_000, 5_000],
        [5_000, 9_000, 3_000],
    ] {
        let bed = Bed::new(&order);
        let selector = bed.selector();
        calls(&selector, 1);
        calls(&selector, 299);
        let best = order.iter().position(|time| *time == 3_000).unwrap();
        assert!(bed.runs(best) > 200, "{order:?}: {}", bed.runs(best));
        let decision = selector.explain(&"copy f32 4".parse().unwrap()).unwrap();
        assert_eq!(decision.chosen.candidate.kernel, id(NAMES[best]));
        assert_eq!(decision.reason, Reason::Best);
        assert!(decision.confidence.unwrap().get() > 0.9);
        assert_eq!(decision.alternatives().len(), 2);
        let Estimate::Measured {
            time_ns, samples, ..
        } = decision.chosen.estimate
        else {
            panic!("{:?}", decision.chosen.estimate);
        };
        assert!((time_ns.get() - 3_000.0).abs() < 100.0 && samples > 20);
    }
}

#[test]
fn a_wrong_result_never_reaches_the_caller_on_first_use() {
    let bed = Bed::new(&[1_000, 5_000]);
    bed.behaviours[0].wrong.store(true, Ordering::Relaxed);
    let selector = bed.selector();
    calls(&selector, 50);
    let [quarantine] = &selector.quarantined()[..] else {
        panic!("{:?}", selector.quarantined());
    };
    assert_eq!((&quarantine.kernel, quarantine.version), (&id(NAMES[0]), 1));
    assert_eq!(
        quarantine.evidence,
        "wrong result: output 0 at 1 is 3.0 instead of 2.0"
    );
    assert_eq!(bed.runs(0), 1);
    // The other one ran once more when it was right for the first time.
    assert_eq!(bed.runs(1), 50);
    // Mended, it may come back, and is looked at again.
    bed.behaviours[0].wrong.store(false, Ordering::Relaxed);
    assert!(selector.unquarantine(&id(NAMES[0])));
    assert!(!selector.unquarantine(&id(NAMES[0])));
    calls(&selector, 200);
    assert!(bed.runs(0) > 100);
}

#[test]
fn errors_and_panics_are_made_good_by_the_reference() {
    for (failure, words) in [(0, "panicked: on purpose"), (1, "did not feel like it")] {
        let bed = Bed::new(&[1_000]);
        let selector = bed.selector();
        calls(&selector, 10);
        let does = &bed.behaviours[0];
        let flag = [&does.panics, &does.fails][failure];
        flag.store(true, Ordering::Relaxed);
        // Also when nobody is left.
        calls(&selector, 10);
        assert_eq!(bed.runs(0), 12);
        assert!(selector.quarantined()[0].evidence.contains(words));
        let error = selector.select(&"copy f32 4".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn results_are_looked_at_again_now_and_then() {
    let bed = Bed::new(&[1_000_000]);
    let selector = bed.builder().verify_one_in(10).build().unwrap();
    calls(&selector, 15);
    // The first use, and the tenth call: the reference takes no time on this clock.
    assert_eq!(selector.statistics().verified, 2);
    bed.behaviours[0].wrong.store(true, Ordering::Relaxed);
    for _ in 0..4 {
        call(&selector).unwrap();
    }
    assert!(selector.quarantined().is_empty());
    calls(&selector, 1);
    assert_eq!(selector.quarantined().len(), 1);
    calls(&selector, 5);
}

#[test]
fn a_callers_mistake_is_the_callers() {
    let selector = Selector::builder(machine(), Vec::new())
        .background(false)
        .build()
        .unwrap();
    let gather: Workload = "gather f32 4 axis0 idx3".parse().unwrap();
    let (values, indices, mut out) = ([1f32; 4], [0i64, 9, 1], [5f32; 3]);
    let shapes = gather.inputs().iter().map(|operand| operand.shape);
    let shapes: Vec<_> = shapes.collect();
    let inputs = [
        TensorView::contiguous(&values, shapes[0]).unwrap(),
        TensorView::contiguous(&indices, shapes[1]).unwrap(),
    ];
    let mut outputs = [TensorViewMut::contiguous(&mut out, gather.outputs()[0].shape).unwrap()];
    let mut call = Call::new(&gather, &inputs, &mut outputs).unwrap();
    let error = selector.run(&mut call).unwrap_err();
    assert!(
        matches!(error, RunError::Call(Fault::Index { value: 9, .. })),
        "{error}"
    );
    assert_eq!((out, selector.quarantined().len()), ([5.0; 3], 0));
}

#[test]
fn kernels_come_and_go_while_others_call() {
    let bed = Bed::new(&[5_000]);
    let selector = bed.selector();
    calls(&selector, 20);
    let (fast, does) = copy("cpu-copy-f32-late", 1_000, &bed.clock);
    selector.register(Arc::clone(&fast)).unwrap();
    let twice = selector.register(Arc::clone(&fast)).unwrap_err();
    assert_eq!(twice.id, id("cpu-copy-f32-late"));
    calls(&selector, 200);
    assert!(does.runs.load(Ordering::Relaxed) > 100);
    let (slow, slower) = copy("cpu-copy-f32-late", 50_000, &bed.clock);
    assert!(selector.replace(slow));
    calls(&selector, 200);
    assert!(slower.runs.load(Ordering::Relaxed) < 20);
    assert!(selector.unregister(&id("cpu-copy-f32-late")));
    assert!(!selector.unregister(&id("cpu-copy-f32-late")));
    let runs = does.runs.load(Ordering::Relaxed);
    calls(&selector, 100);
    assert_eq!(does.runs.load(Ordering::Relaxed), runs);
}

#[test]
fn what_nobody_computes_says_why() {
    let selector = Selector::builder(machine(), Vec::new())
        .background(false)
        .build()
        .unwrap();
    let custom: Workload = "custom.mystery f32 4".parse().unwrap();
    let error = selector.select(&custom).unwrap_err();
    assert_eq!(error.to_string(), "no kernel computes custom.mystery f32 4");
    // The reference computes all that is known.
    assert!(selector.select(&"copy f32 4".parse().unwrap()).is_ok());
    let mut strict = spec("cpu-custom.mystery-f32-strict");
    strict.needs.max_elements = Some(2);
    let kernel = OwnKernel::new(strict, |_, _, _| Ok(()));
    selector.register(Arc::new(kernel)).unwrap();
    let error = selector.select(&custom).unwrap_err();
    assert!(matches!(&error, SelectError::NoKernel { refused, .. } if refused.len() == 1));
    assert!(
        error.to_string().contains("cpu-custom.mystery-f32-strict"),
        "{error}"
    );
}

#[test]
fn a_forced_kernel_serves_whatever_it_takes() {
    let bed = Bed::new(&[1_000, 50_000]);
    let selector = bed.builder().force("copy", NAMES[1]).build().unwrap();
    calls(&selector, 30);
    // One of them twice: a first run is not timed.
    assert_eq!((bed.runs(0), bed.runs(1)), (0, 31));
    let copy: Workload = "copy f32 4".parse().unwrap();
    assert_eq!(selector.explain(&copy).unwrap().reason, Reason::Forced);
    let forced = |text: &str| bed.builder().force_from(text).map(|b| b.build().unwrap());
    let nobody = forced("copy=cpu-copy-f32-nobody").unwrap();
    let error = nobody.select(&copy).unwrap_err().to_string();
    assert_eq!(
        error,
        "cpu-copy-f32-nobody was forced and cannot compute copy f32 4: there is no such kernel for it"
    );
    assert!(matches!(forced("copy"), Err(BuildError::Force(_))));
    let both = forced(" copy = cpu-copy-f32-b , matmul=x").unwrap();
    assert_eq!(both.explain(&copy).unwrap().reason, Reason::Forced);
}

#[test]
fn callers_may_run_and_report_themselves() {
    let bed = Bed::new(&[1, 1]);
    let selector = bed.selector();
    let copy: Workload = "copy f32 1000".parse().unwrap();
    let times = [9_000.0, 2_000.0];
    for _ in 0..200 {
        let ticket = selector.select(&copy).unwrap();
        let kernel = selector.candidate(&ticket).unwrap().kernel;
        let time_ns = times[usize::from(kernel == id(NAMES[1]))];
        if ticket.wants_time() {
            selector.report(ticket, &Went::Well { time_ns }).unwrap();
            selector.settle();
        }
    }
    assert_eq!(
        selector.explain(&copy).unwrap().chosen.candidate.kernel,
        id(NAMES[1])
    );
    // Mistakes are told.
    let ticket = selector.select(&copy).unwrap();
    let nan = Went::Well { time_ns: f64::NAN };
    assert_eq!(selector.report(ticket, &nan), Err(ReportError::Time));
    let other = bed.selector();
    let ticket = selector.select(&copy).unwrap();
    let well = Went::Well { time_ns: 1.0 };
    assert_eq!(other.report(ticket, &well), Err(ReportError::Foreign));
    let ticket = selector.select(&copy).unwrap();
    let late = selector.select(&copy).unwrap();
    selector.unregister(&id(NAMES[0]));
    assert_eq!(selector.report(ticket, &well), Err(ReportError::Stale));
    // Also when others are known under the same name since.
    let _ = selector.select(&copy).unwrap();
    assert_eq!(selector.report(late, &well), Err(ReportError::Stale));
    // And a failure is a quarantine.
    let ticket = selector.select(&copy).unwrap();
    let evidence = "the screen went black".to_owned();
    selector.report(ticket, &Went::Badly { evidence }).unwrap();
    assert_eq!(selector.quarantined()[0].evidence, "the screen went black");
}

#[test]
fn frozen_learns_nothing_and_a_shadow_changes_nothing() {
    let bed = Bed::new(&[50_000, 1_000]);
    let frozen = bed.builder().mode(Mode::Frozen).build().unwrap();
    calls(&frozen, 200);
    let first = usize::from(bed.runs(0) == 0);
    assert_eq!(bed.runs(first), 200);
    assert_eq!(
        (frozen.ledger().served_ns(), frozen.events().len()),
        (0.0, 0)
    );
    let bed = Bed::new(&[50_000, 1_000]);
    let shadow = bed.builder().mode(Mode::Shadow).build().unwrap();
    calls(&shadow, 200);
    assert!(bed.runs(0) == 0 || bed.runs(1) == 0);
    assert!(shadow.ledger().served_ns() > 0.0);
    assert_eq!("frozen".parse(), Ok(Mode::Frozen));
    assert!("icy".parse::<Mode>().is_err());
}

#[test]
fn a_plan_does_what_the_selector_does() {
    let bed = Bed::new(&[9_000, 2_000]);
    let selector = bed.selector();
    let copy: Workload = "copy f32 4".parse().unwrap();
    let plan = selector.plan(&copy).unwrap();
    let run = |plan: &kernelwise_select::Plan, n: usize| {
        let (from, mut to) = (vec![1f32; n], vec![0f32; n]);
        let workload: Workload = format!("copy f32 {n}").parse().unwrap();
        let shape = workload.outputs()[0].shape;
        let inputs = [TensorView::contiguous(&from, shape).unwrap()];
        let mut outputs = [TensorViewMut::contiguous(&mut to, shape).unwrap()];
        plan.run(&mut Call::new(&workload, &inputs, &mut outputs).unwrap())
            .unwrap();
        selector.settle();
        assert_eq!(to, from);
    };
    for _ in 0..100 {
        run(&plan, 4);
        // Another workload is computed all the same.
        run(&plan.clone(), 5);
    }
    assert!(bed.runs(1) > 150);
    assert_eq!(plan.choose().unwrap().0, 1);
    // Kernels that go or fail are gone for plans too.
    assert!(selector.unregister(&id(NAMES[1])));
    let runs = bed.runs(1);
    run(&plan, 4);
    assert_eq!(bed.runs(1), runs);
    bed.behaviours[0].panics.store(true, Ordering::Relaxed);
    run(&plan, 4);
    let runs = bed.runs(0);
    run(&plan, 4);
    assert_eq!(bed.runs(0), runs);
}

/// Where there is no reference, another kernel makes good what one failed at.
#[test]
fn the_others_serve_where_there_is_no_reference() {
    let double = |name: &str, fails: bool| -> Arc<dyn HostKernel> {
        Arc::new(OwnKernel::new(spec(name), move |call, _, _| {
            if fails {
                return Err(Fault::kernel("double", "is tired"));
            }
            let (_, inputs, outputs) = call.parts();
            let from = inputs[0].as_slice::<f32>()?;
            for (to, from) in outputs[0].as_mut_slice::<f32>()?.iter_mut().zip(from) {
                *to = 2.0 * from;
            }
            Ok(())
        }))
    };
    let kernels = vec![
        double("cpu-custom.double-f32-bad", true),
        double("cpu-custom.double-f32-good", false),
    ];
    let selector = Selector::builder(machine(), kernels).background(false);
    let selector = selector.build().unwrap();
    let workload: Workload = "custom.double f32 2".parse().unwrap();
    let (from, mut to) = ([1f32, 2.0], [0f32; 2]);
    let inputs = [TensorView::contiguous(&from, "2".parse().unwrap()).unwrap()];
    let mut outputs = [TensorViewMut::contiguous(&mut to, "2".parse().unwrap()).unwrap()];
    let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
    selector.run(&mut call).unwrap();
    assert_eq!(to, [2.0, 4.0]);
    assert_eq!(selector.quarantined().len(), 1);
}

/// A wrong kernel is no alternative to be measured by, however quick it is.
#[test]
fn what_fails_does_not_count_as_fast() {
    let bed = Bed::new(&[500_000, 10, 600_000]);
    bed.behaviours[1].wrong.store(true, Ordering::Relaxed);
    let selector = bed.selector();
    calls(&selector, 100);
    assert_eq!(selector.quarantined().len(), 1);
    let quality = selector.statistics().quality["copy"];
    assert_eq!(quality.share_within_5pct, 1.0);
}

/// A kernel may use the selector it runs in, and change it.
#[test]
fn kernels_may_call_the_selector_themselves() {
    let bed = Bed::new(&[2_000]);
    let selector = Arc::new(bed.selector());
    let (inner, clock) = (Arc::downgrade(&selector), Arc::clone(&bed.clock));
    let nested = OwnKernel::new(spec("cpu-copy-f32-nested"), move |call, _, _| {
        let selector = inner.upgrade().unwrap();
        let half: Workload = "copy f32 2".parse().unwrap();
        let (_, inputs, outputs) = call.parts();
        let from = inputs[0].as_slice::<f32>()?;
        let to = outputs[0].as_mut_slice::<f32>()?;
        if from.len() == 2 {
            to.copy_from_slice(from);
            clock.advance(500);
            return Ok(());
        }
        for part in 0..2 {
            let (from, to) = (&from[2 * part..], &mut to[2 * part..]);
            let inputs = [TensorView::contiguous(&from[..2], half.outputs()[0].shape)?];
            let mut outputs = [TensorViewMut::contiguous(
                &mut to[..2],
                half.outputs()[0].shape,
            )?];
            selector
                .run(&mut Call::new(&half, &inputs, &mut outputs)?)
                .map_err(|error| Fault::kernel("nested", error))?;
        }
        let (late, _) = copy("cpu-copy-f32-found", 3_000, &clock);
        // Only the first time.
        let _ = selector.register(late);
        Ok(())
    });
    selector.register(Arc::new(nested)).unwrap();
    calls(&selector, 100);
    assert!(
        selector.quarantined().is_empty(),
        "{:?}",
        selector.quarantined()
    );
    assert!(selector.unregister(&id("cpu-copy-f32-found")));
}

#[test]
fn a_thread_of_its_own_learns() {
    let bed = Bed::new(&[9_000, 2_000]);
    let selector = bed.builder().background(true).build().unwrap();
    let copy: Workload = "copy f32 4".parse().unwrap();
    let learned = || {
        let decision = selector.explain(&copy).unwrap();
        decision.chosen.candidate.kernel == id(NAMES[1])
    };
    // As many calls as it takes, within reason.
    for _ in 0..100_000 {
        if learned() {
            return;
        }
        call(&selector).unwrap();
        std::thread::yield_now();
    }
    panic!("nothing was learned");
}

#[test]
fn settings_are_checked() {
    let bed = Bed::new(&[1_000]);
    let bad_policy = Policy::Score(Weights {
        time: f64::NAN,
        ..Weights::default()
    });
    let error = bed.builder().policy(bad_policy).build().unwrap_err();
    assert!(error.to_string().contains("weight of time"), "{error}");
    let budget = Budget {
        share: -1.0,
        ..Budget::default()
    };
    assert!(bed.builder().budget(budget).build().is_err());
    assert!(bed.builder().indifference(-0.1).build().is_err());
    assert!(bed.builder().half_life(Duration::ZERO).build().is_err());
    let twice = Selector::builder(
        machine(),
        [bed.kernels.clone(), bed.kernels.clone()].concat(),
    );
    assert!(matches!(twice.build(), Err(BuildError::Duplicate(_))));
}

/// What is learned under one seed is learned again under it.
#[test]
fn the_same_calls_and_seed_give_the_same_choices() {
    let trace = |seed| {
        let bed = Bed::new(&[3_000, 2_900, 3_100]);
        let selector = bed.builder().seed(seed).build().unwrap();
        let mut runs = Vec::new();
        for _ in 0..100 {
            call(&selector).unwrap();
            runs.push([bed.runs(0), bed.runs(1), bed.runs(2)]);
        }
        runs
    };
    assert_eq!(trace(5), trace(5));
}

#[test]
fn statistics_come_from_what_was_measured() {
    let bed = Bed::new(&[900_000, 200_000]);
    let selector = bed.selector();
    let cold = selector.statistics();
    assert_eq!((cold.workloads, cold.calls, cold.quality.len()), (0, 0, 0));
    calls(&selector, 1);
    assert!(
        selector.statistics().quality.is_empty(),
        "nothing to compare with"
    );
    calls(&selector, 99);
    let statistics = selector.statistics();
    assert_eq!((statistics.workloads, statistics.calls), (1, 100));
    let quality = statistics.quality["copy"];
    assert_eq!((quality.workloads, quality.share_within_5pct), (1, 1.0));
    assert!((quality.slowdown - 1.0).abs() < 1e-9);
    assert_eq!(statistics.popular, [(id(NAMES[1]), 100)]);
    assert_eq!(statistics.verified, 2);
    let total = 900_000 * bed.runs(0) + 200_000 * bed.runs(1);
    let excess = statistics.trials_excess_ns;
    assert!((statistics.served_ns + excess - total as f64).abs() < 0.2 * total as f64);
}

/// Two kernels, of which the first wins on small copies and the second on large ones.
#[test]
fn a_workload_that_was_never_run_is_expected_to_be_like_others() {
    let clock = Arc::new(ScriptedClock::new());
    let sized = |name: &str, fixed: u64, each: u64| -> Arc<dyn HostKernel> {
        let clock = Arc::clone(&clock);
        let kernel = OwnKernel::new(spec(name), move |call, _, _| {
            let (_, inputs, outputs) = call.parts();
            let from = inputs[0].as_slice::<f32>()?;
            clock.advance(fixed + each * from.len() as u64);
            outputs[0].as_mut_slice::<f32>()?.copy_from_slice(from);
            Ok(())
        });
        Arc::new(kernel)
    };
    let kernels = vec![sized(NAMES[0], 1_000, 100), sized(NAMES[1], 20_000, 10)];
    let selector = Selector::builder(machine(), kernels)
        .clock(Arc::clone(&clock) as _)
        .budget(Budget {
            share: 0.2,
            ..Budget::default()
        })
        .background(false)
        .build()
        .unwrap();
    let workload = |size: usize| -> Workload { format!("copy f32 {size}").parse().unwrap() };
    for i in 0..80 {
        let size = 10 + (i * 37) % 80 * 12;
        let (from, mut to) = (vec![1f32; size], vec![0f32; size]);
        let shape = size.to_string();
        for _ in 0..8 {
            let inputs = [TensorView::contiguous(&from, shape.parse().unwrap()).unwrap()];
            let mut outputs = [TensorViewMut::contiguous(&mut to, shape.parse().unwrap()).unwrap()];
            let workload = workload(size);
            let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
            selector.run(&mut call).unwrap();
            selector.settle();
        }
    }
    for (size, best) in [(55, 0), (101, 0), (605, 1), (911, 1)] {
        let decision = selector.explain(&workload(size)).unwrap();
        assert_eq!(
            decision.chosen.candidate.kernel,
            id(NAMES[best]),
            "at {size}"
        );
        assert_eq!(decision.reason, Reason::Modelled);
        let Estimate::Modelled {
            time_ns,
            interval_ns,
            ..
        } = &decision.chosen.estimate
        else {
            panic!("{:?}", decision.chosen.estimate);
        };
        let truth = [1_000 + 100 * size, 20_000 + 10 * size][best] as f64;
        assert!(
            (time_ns.get() / truth).ln().abs() < 0.3,
            "{time_ns:?} for {truth}"
        );
        assert!(interval_ns.low() < interval_ns.high());
    }
}

/// Without a calibration there is no time to expect, and still an order.
#[test]
fn who_is_said_to_be_better_is_served_first_where_nothing_is_known() {
    let clock = Arc::new(ScriptedClock::new());
    let hinted = |name: &str, percent: u8| -> Arc<dyn HostKernel> {
        let kernel = OwnKernel::new(spec(name), |call, _, _| {
            let (_, inputs, outputs) = call.parts();
            outputs[0]
                .as_mut_slice::<f32>()?
                .copy_from_slice(inputs[0].as_slice()?);
            Ok(())
        });
        Arc::new(kernel.with_hint(Hint::percent(percent)))
    };
    for (percents, best) in [([20, 80, 40], 1), ([80, 20, 40], 0), ([20, 40, 80], 2)] {
        let kernels = NAMES.into_iter().zip(percents);
        let kernels = kernels
            .map(|(name, percent)| hinted(name, percent))
            .collect();
        let selector = Selector::builder(machine(), kernels)
            .clock(Arc::clone(&clock) as _)
            .background(false)
            .build()
            .unwrap();
        let decision = selector.explain(&"copy f32 1000".parse().unwrap()).unwrap();
        assert_eq!(decision.chosen.candidate.kernel, id(NAMES[best]));
        // What is assumed is told to nobody.
        assert_eq!(decision.chosen.estimate, Estimate::Unknown);
    }
}

/// Counts what it is told, by name and labels.
#[derive(Debug, Default)]
struct Counters(Arc<Mutex<BTreeMap<String, u64>>>);

struct Counting(Arc<Mutex<BTreeMap<String, u64>>>, String);

impl metrics::CounterFn for Counting {
    fn increment(&self, value: u64) {
        *self.0.lock().unwrap().entry(self.1.clone()).or_default() += value;
    }

    fn absolute(&self, _: u64) {}
}

impl metrics::Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &metrics::Key, _: &Metadata<'_>) -> metrics::Counter {
        let labels = key
            .labels()
            .map(|label| format!(" {}={}", label.key(), label.value()));
        let name = format!("{}{}", key.name(), labels.collect::<String>());
        metrics::Counter::from_arc(Arc::new(Counting(Arc::clone(&self.0), name)))
    }

    fn register_gauge(&self, _: &metrics::Key, _: &Metadata<'_>) -> metrics::Gauge {
        metrics::Gauge::noop()
    }

    fn register_histogram(&self, _: &metrics::Key, _: &Metadata<'_>) -> metrics::Histogram {
        metrics::Histogram::noop()
    }
}

#[test]
fn counters_tell_what_was_learned_without_naming_shapes() {
    let bed = Bed::new(&[9_000, 3_000, 5_000]);
    let counters = Counters::default();
    let told = Arc::clone(&counters.0);
    let statistics = metrics::with_local_recorder(&counters, || {
        let selector = bed.selector();
        calls(&selector, 100);
        bed.behaviours[1].fails.store(true, Ordering::Relaxed);
        calls(&selector, 20);
        selector.statistics()
    });
    let told = told.lock().unwrap();
    assert_eq!(told["kernelwise_trials_total"], statistics.trials);
    let served = told["kernelwise_served_nanoseconds_total"] as f64;
    assert!((served / statistics.served_ns - 1.0).abs() < 0.01);
    assert!(told["kernelwise_samples_total"] >= 15 && told["kernelwise_switches_total"] >= 1);
    let failed = format!("kernelwise_quarantines_total kernel={}", NAMES[1]);
    assert_eq!(told[&failed], 1);
    assert!(told.keys().all(|name| !name.contains("f32 4")));
    assert_eq!(
        (statistics.workloads, statistics.hits + 1),
        (1, statistics.calls)
    );
}
