//! Calibration on kernels whose times a scripted clock tells.
#![allow(clippy::unwrap_used)]

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

use kernelwise_backend::{Axis, Call, Fault, HostKernel, Knobs, OwnKernel, Space, knobs};
use kernelwise_measure::ScriptedClock;
use kernelwise_select::{
    Builder, CalibrateError, Ended, Measured, Mode, Progress, RaceOptions, Remembered, Selector,
    Went,
};
use kernelwise_types::{
    Estimate, KernelSpec, Machine, Needs, Numerics, Reason, Technique, TensorView, TensorViewMut,
    Workload,
};

fn machine() -> Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE
        .get_or_init(|| kernelwise_probe::machine().with_threads(2))
        .clone()
}

/// What a test kernel does.
struct Behaviour {
    /// How long its calls take, one after the other; the last one for ever.
    times_ns: Vec<u64>,
    runs: AtomicUsize,
    does: Does,
}

#[derive(Clone, Copy, PartialEq)]
enum Does {
    Right,
    Nothing,
    Panics,
    Fails,
    /// After so many runs.
    FailsAfter(usize),
}

fn copy(
    name: &str,
    times_ns: &[u64],
    does: Does,
    clock: &Arc<ScriptedClock>,
) -> (Arc<dyn HostKernel>, Arc<Behaviour>) {
    let spec = KernelSpec {
        id: format!("cpu-copy-f32-{name}").parse().unwrap(),
        version: 1,
        technique: Technique::Custom,
        numerics: Numerics::BitIdentical,
        needs: Needs::default(),
    };
    let behaviour = Arc::new(Behaviour {
        times_ns: times_ns.to_vec(),
        runs: AtomicUsize::new(0),
        does,
    });
    let (clock, own) = (Arc::clone(clock), Arc::clone(&behaviour));
    let kernel = OwnKernel::new(spec, move |call, _, _| {
        let run = own.runs.fetch_add(1, Ordering::Relaxed);
        clock.advance(own.times_ns[run.min(own.times_ns.len() - 1)]);
        match own.does {
            Does::Panics => panic!("on purpose"),
            Does::Fails => return Err(Fault::kernel("copy", "did not feel like it")),
            Does::FailsAfter(runs) if run >= runs => {
                return Err(Fault::kernel("copy", "is tired"));
            }
            Does::Nothing => return Ok(()),
            _ => {}
        }
        let (_, inputs, outputs) = call.parts();
        let out = outputs[0].as_mut_slice::<f32>()?;
        out.copy_from_slice(inputs[0].as_slice::<f32>()?);
        Ok(())
    });
    (Arc::new(kernel), behaviour)
}

struct Bed {
    clock: Arc<ScriptedClock>,
    kernels: Vec<Arc<dyn HostKernel>>,
    behaviours: Vec<Arc<Behaviour>>,
}

impl Bed {
    fn new(kernels: &[(&str, &[u64], Does)]) -> Self {
        let clock = Arc::new(ScriptedClock::new());
        let made = kernels
            .iter()
            .map(|(name, times, does)| copy(name, times, *does, &clock));
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

fn workload() -> Workload {
    "copy f32 4".parse().unwrap()
}

fn on(_: Progress<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn calibrate(selector: &Selector) -> Vec<Measured> {
    let options = RaceOptions::default();
    let measured = selector.calibrate(&[workload()], &options, &mut on);
    measured.unwrap()
}

fn of<'a>(all: &'a [Measured], name: &str) -> &'a Measured {
    let id = format!("cpu-copy-f32-{name}");
    let found = all.iter().find(|one| one.candidate.kernel.as_str() == id);
    found.unwrap()
}

fn chosen(selector: &Selector) -> String {
    let decision = selector.explain(&workload()).unwrap();
    decision.chosen.candidate.kernel.to_string()
}

/// Serves one call; the copy must be right.
fn call(selector: &Selector) {
    let workload = workload();
    let (from, mut to) = ([1f32, 2.0, 3.0, 4.0], [0f32; 4]);
    let inputs = [TensorView::contiguous(&from, "4".parse().unwrap()).unwrap()];
    let mut outputs = [TensorViewMut::contiguous(&mut to, "4".parse().unwrap()).unwrap()];
    let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
    selector.run(&mut call).unwrap();
    assert_eq!(to, from);
}

const MS: u64 = 1_000_000;

#[test]
fn racing_drops_whom_it_should_and_when() {
    let bed = Bed::new(&[
        ("slow", &[16 * MS], Does::Right),
        ("best", &[10 * MS], Does::Right),
        ("near", &[12 * MS], Does::Right),
        ("tie", &[10 * MS + 1], Does::Right),
    ]);
    let selector = bed.selector();
    let all = calibrate(&selector);
    assert_eq!(all.len(), 4);
    // A run that is not timed, and then as many as it took to be dropped.
    assert_eq!(of(&all, "slow").ended, Ended::Behind { times: 1.6 });
    assert_eq!((of(&all, "slow").samples, bed.runs(0)), (1, 2));
    assert_eq!(of(&all, "near").ended, Ended::Behind { times: 1.2 });
    assert_eq!((of(&all, "near").samples, bed.runs(2)), (3, 4));
    // Nine samples each tell that the two are as good as each other.
    for (name, kernel) in [("best", 1), ("tie", 3)] {
        let one = of(&all, name);
        assert_eq!((&one.ended, one.samples), (&Ended::Finished, 9));
        assert_eq!(bed.runs(kernel), 10);
    }
    assert_eq!(all[0].candidate.kernel.as_str(), "cpu-copy-f32-best");
    let interval = all[0].interval_ns.unwrap();
    assert_eq!(all[0].median_ns.unwrap().get(), 10.0 * MS as f64);
    assert_eq!(interval.low(), interval.high());
    assert_eq!(all[0].workload, workload());
}

#[test]
fn two_survive_however_far_apart_they_are() {
    let bed = Bed::new(&[
        ("a", &[900 * MS], Does::Right),
        ("b", &[MS], Does::Right),
        ("c", &[700 * MS], Does::Right),
    ]);
    let options = RaceOptions {
        budget: Duration::from_secs(60),
        ..RaceOptions::default()
    };
    let selector = bed.selector();
    let all = selector
        .calibrate(&[workload()], &options, &mut on)
        .unwrap();
    assert!(matches!(of(&all, "a").ended, Ended::Behind { .. }));
    assert_eq!(of(&all, "b").ended, Ended::Finished);
    assert_eq!(of(&all, "c").ended, Ended::Finished);
    assert_eq!(of(&all, "c").samples, 9);
    assert_eq!(chosen(&selector), "cpu-copy-f32-b");
}

#[test]
fn short_kernels_run_in_batches_and_a_first_run_counts_nothing() {
    let bed = Bed::new(&[
        ("short", &[50 * MS, 100], Does::Right),
        ("shorter", &[80 * MS, 90], Does::Right),
    ]);
    let clock = Arc::new(ScriptedClock::with_cost(25));
    let rebuilt = Bed {
        kernels: [("short", 100), ("shorter", 90)]
            .map(|(name, time)| copy(name, &[50 * MS, time], Does::Right, &clock).0)
            .to_vec(),
        clock,
        behaviours: Vec::new(),
    };
    // On a clock that costs nothing the times are exact.
    let all = calibrate(&bed.selector());
    assert_eq!(of(&all, "short").median_ns.unwrap().get(), 100.0);
    assert_eq!(of(&all, "shorter").median_ns.unwrap().get(), 90.0);
    assert!(bed.runs(1) > 9 * 200, "{}", bed.runs(1));
    // On one that takes a quarter of a call to be read, it takes less than a hundredth.
    let selector = rebuilt.selector();
    let all = calibrate(&selector);
    for (name, time) in [("short", 100.0), ("shorter", 90.0)] {
        let median = of(&all, name).median_ns.unwrap().get();
        assert!(median > time && median < 1.01 * time, "{name}: {median}");
    }
    // What calls will show is that time and a reading; so that is what was learned.
    let decision = selector.explain(&workload()).unwrap();
    let Estimate::Measured { time_ns, .. } = decision.chosen.estimate else {
        panic!("{:?}", decision.chosen.estimate);
    };
    assert!((time_ns.get() - 115.0).abs() < 2.0, "{time_ns}");
}

#[test]
fn what_was_measured_is_what_serves_and_costs_no_budget() {
    for order in [[3, 9, 5], [9, 5, 3], [5, 3, 9]] {
        let times = order.map(|time| [time * MS]);
        let bed = Bed::new(&[
            ("a", &times[0], Does::Right),
            ("b", &times[1], Does::Right),
            ("c", &times[2], Does::Right),
        ]);
        let selector = bed.selector();
        calibrate(&selector);
        let best = order.iter().position(|time| *time == 3).unwrap();
        let decision = selector.explain(&workload()).unwrap();
        let name = ["a", "b", "c"][best];
        assert_eq!(
            decision.chosen.candidate.kernel.as_str(),
            format!("cpu-copy-f32-{name}")
        );
        assert_eq!(decision.reason, Reason::Best);
        let known = decision.alternatives();
        let measured = known
            .iter()
            .filter(|one| matches!(one.estimate, Estimate::Measured { .. }));
        assert_eq!(measured.count(), 2);
        let ledger = selector.ledger();
        assert_eq!((ledger.spent_ns(), ledger.served_ns()), (0.0, 0.0));
        // The first call is not looked at again: its kernel was right.
        let runs = bed.runs(best);
        call(&selector);
        assert_eq!(bed.runs(best), runs + 1);
    }
}

#[test]
fn who_takes_too_long_is_waited_for_and_dropped() {
    let bed = Bed::new(&[
        ("quick", &[MS], Does::Right),
        ("stuck", &[11_000 * MS], Does::Right),
        // It takes its time only once in a while.
        ("now_and_then", &[MS, MS, MS, 11_000 * MS], Does::Right),
    ]);
    let options = RaceOptions {
        budget: Duration::from_secs(60),
        ..RaceOptions::default()
    };
    let selector = bed.selector();
    let all = selector
        .calibrate(&[workload()], &options, &mut on)
        .unwrap();
    let timed_out = Ended::TimedOut {
        took_ns: 11_000 * MS,
        limit_ns: 10_000 * MS,
    };
    assert_eq!(of(&all, "stuck").ended, timed_out);
    assert_eq!((of(&all, "stuck").samples, bed.runs(1)), (0, 1));
    assert_eq!(of(&all, "now_and_then").ended, timed_out);
    // Slow is not broken.
    assert!(selector.quarantined().is_empty());
    assert_eq!(chosen(&selector), "cpu-copy-f32-quick");
}

#[test]
fn failures_quarantine_as_in_a_call() {
    let bed = Bed::new(&[
        ("right", &[5 * MS], Does::Right),
        ("panics", &[MS], Does::Panics),
        ("fails", &[MS], Does::Fails),
        ("nothing", &[MS], Does::Nothing),
        ("tired", &[4 * MS], Does::FailsAfter(5)),
        ("other", &[6 * MS], Does::Right),
    ]);
    let selector = bed.selector();
    let all = calibrate(&selector);
    for (name, words) in [
        ("panics", "panicked: on purpose"),
        ("fails", "did not feel like it"),
        // What another one left in the output is not its result.
        ("nothing", "wrong result"),
        ("tired", "is tired"),
    ] {
        let Ended::Quarantined { evidence } = &of(&all, name).ended else {
            panic!("{:?}", of(&all, name));
        };
        assert!(evidence.contains(words), "{evidence}");
    }
    assert_eq!(selector.quarantined().len(), 4);
    assert_eq!(chosen(&selector), "cpu-copy-f32-right");
    call(&selector);
    // Known from before, it does not run.
    let runs = bed.runs(1);
    let again = calibrate(&selector);
    assert!(matches!(
        of(&again, "panics").ended,
        Ended::Quarantined { .. }
    ));
    assert_eq!(bed.runs(1), runs);
}

#[test]
fn the_hopeless_are_not_begun() {
    let bed = Bed::new(&[
        ("fast", &[MS], Does::Right),
        ("fair", &[2 * MS], Does::Right),
        ("hopeless", &[30 * MS], Does::Right),
    ]);
    let selector = bed.selector();
    // The first time nothing is known of it.
    let first = calibrate(&selector);
    assert_eq!(of(&first, "hopeless").samples, 1);
    let runs = bed.runs(2);
    let second = calibrate(&selector);
    let Ended::NotBegun { times } = of(&second, "hopeless").ended else {
        panic!("{:?}", of(&second, "hopeless"));
    };
    assert!((20.0..40.0).contains(&times), "{times}");
    assert_eq!(bed.runs(2), runs);
}

#[test]
fn who_is_known_to_be_long_and_far_behind_runs_once() {
    let bed = Bed::new(&[
        ("fast", &[10 * MS], Does::Right),
        ("fair", &[11 * MS], Does::Right),
        ("slow", &[40 * MS], Does::Right),
    ]);
    let selector = bed.selector();
    calibrate(&selector);
    // Without an expectation the first run might have been all planning.
    assert_eq!(bed.runs(2), 2);
    let again = calibrate(&selector);
    assert_eq!(bed.runs(2), 3);
    assert_eq!(of(&again, "slow").samples, 1);
    assert!(matches!(of(&again, "slow").ended, Ended::Behind { .. }));
}

#[test]
fn the_budget_ends_the_race_but_two_are_measured() {
    let bed = Bed::new(&[
        ("a", &[800 * MS], Does::Right),
        ("b", &[900 * MS], Does::Right),
        ("c", &[700 * MS], Does::Right),
    ]);
    let selector = bed.selector();
    let all = calibrate(&selector);
    let samples = |name| of(&all, name).samples;
    assert_eq!((samples("a"), samples("b"), samples("c")), (1, 1, 0));
    assert_eq!(of(&all, "c").ended, Ended::NotReached);
    assert_eq!(chosen(&selector), "cpu-copy-f32-a");
}

#[test]
fn a_cancelled_calibration_keeps_what_it_learned() {
    let bed = Bed::new(&[("a", &[5 * MS], Does::Right), ("b", &[4 * MS], Does::Right)]);
    let selector = bed.selector();
    let others: Vec<Workload> = ["copy f32 4", "copy f32 8", "copy f32 4"]
        .map(|text| text.parse().unwrap())
        .to_vec();
    let mut seen = Vec::new();
    let mut cancel = |progress: Progress<'_>| {
        assert!(!progress.waiting);
        seen.push((progress.number, progress.of, progress.rounds));
        match progress.number == 1 && progress.rounds == 2 {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let all = selector
        .calibrate(&others, &RaceOptions::default(), &mut cancel)
        .unwrap();
    // One that stands twice is measured once.
    assert_eq!(seen.last(), Some(&(1, 2, 2)));
    assert_eq!(all.len(), 4);
    let partial: Vec<usize> = all[2..].iter().map(|one| one.samples).collect();
    assert_eq!(partial, [2, 2]);
    for other in &others {
        let decision = selector.explain(other).unwrap();
        let kernel = decision.chosen.candidate.kernel;
        assert_eq!(kernel.as_str(), "cpu-copy-f32-b");
        assert!(matches!(
            decision.chosen.estimate,
            Estimate::Measured { .. }
        ));
    }
}

#[test]
fn a_frozen_selector_measures_and_learns_nothing() {
    let bed = Bed::new(&[
        ("a", &[5 * MS], Does::Right),
        ("b", &[4 * MS], Does::Right),
        ("c", &[MS], Does::Panics),
    ]);
    let selector = bed.builder().mode(Mode::Frozen).build().unwrap();
    let before = chosen(&selector);
    let all = calibrate(&selector);
    assert_eq!(of(&all, "b").samples, 9);
    assert_eq!(chosen(&selector), before);
    assert_eq!(selector.quarantined().len(), 1);
}

#[test]
fn what_cannot_be_measured_is_told_before_anything_is() {
    let bed = Bed::new(&[("a", &[MS], Does::Right)]);
    let selector = bed.selector();
    for (text, words) in [
        ("custom.mystery f32 4", "no kernel computes"),
        ("copy f32 1000000000000", "name a smaller workload"),
    ] {
        let workloads = [workload(), text.parse().unwrap()];
        let error = selector
            .calibrate(&workloads, &RaceOptions::default(), &mut on)
            .unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(!matches!(error, CalibrateError::Call { .. }));
    }
    assert_eq!(bed.runs(0), 0);
}

/// A kernel that waits inside of its run until it is told to go on.
fn waiting(
    name: &str,
    clock: &Arc<ScriptedClock>,
) -> (Arc<dyn HostKernel>, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (entered, has_entered) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let may_go_on = Mutex::new(Some(may_go_on));
    let (inner, _) = copy(name, &[MS], Does::Right, clock);
    let kernel = OwnKernel::new(inner.spec().clone(), move |call, setting, scratch| {
        // The lock ends here: others run the kernel meanwhile.
        let first = may_go_on.lock().unwrap().take();
        if let Some(may_go_on) = first {
            entered.send(()).unwrap();
            may_go_on.recv().unwrap();
        }
        inner.execute(call, setting, scratch)
    });
    (Arc::new(kernel), has_entered, go_on)
}

#[test]
fn calls_go_on_while_a_kernel_is_measured_and_calibrations_wait() {
    let bed = Bed::new(&[("quick", &[MS], Does::Right)]);
    let selector = bed.selector();
    call(&selector);
    let (kernel, has_entered, go_on) = waiting("waits", &bed.clock);
    selector.register(kernel).unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| calibrate(&selector));
        has_entered.recv().unwrap();
        // Within the run of a kernel: choices, calls and reports of others take place.
        let other: Workload = "copy f32 9".parse().unwrap();
        assert!(selector.select(&other).is_ok());
        assert_eq!(selector.explain(&other).unwrap().alternatives().len(), 1);
        selector.settle();
        // A second calibration waits, and may be called off.
        let asked = AtomicBool::new(false);
        let mut watch = |progress: Progress<'_>| {
            assert!(progress.waiting);
            asked.store(true, Ordering::Relaxed);
            ControlFlow::Break(())
        };
        let second = selector.calibrate(&[other], &RaceOptions::default(), &mut watch);
        assert_eq!(second.unwrap(), []);
        assert!(asked.load(Ordering::Relaxed));
        go_on.send(()).unwrap();
        let measured = first.join().unwrap();
        assert!(measured.iter().all(|one| one.ended == Ended::Finished));
    });
    // Its turn was given back.
    assert_eq!(calibrate(&selector).len(), 2);
}

#[test]
fn two_may_measure_at_once_where_that_is_wanted() {
    let bed = Bed::new(&[("quick", &[MS], Does::Right)]);
    let selector = bed.builder().calibrations_at_once(2).build().unwrap();
    let (kernel, has_entered, go_on) = waiting("waits", &bed.clock);
    selector.register(kernel).unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| calibrate(&selector));
        has_entered.recv().unwrap();
        let other: Workload = "copy f32 9".parse().unwrap();
        let second = selector.calibrate(&[other], &RaceOptions::default(), &mut |progress| {
            assert!(!progress.waiting);
            ControlFlow::Continue(())
        });
        assert_eq!(second.unwrap().len(), 2);
        go_on.send(()).unwrap();
        first.join().unwrap();
    });
}

#[test]
fn a_calibration_within_another_does_not_wait_for_it() {
    let bed = Bed::new(&[("a", &[MS], Does::Right)]);
    let selector = bed.selector();
    let other: Workload = "copy f32 9".parse().unwrap();
    let mut inner = None;
    let mut watch = |_: Progress<'_>| {
        inner.get_or_insert_with(|| {
            let options = RaceOptions::default();
            let inner = selector.calibrate(std::slice::from_ref(&other), &options, &mut on);
            inner.unwrap().len()
        });
        ControlFlow::Continue(())
    };
    let all = selector.calibrate(&[workload()], &RaceOptions::default(), &mut watch);
    assert_eq!((all.unwrap().len(), inner), (1, Some(1)));
}

knobs! {
    struct Shares {
        threads,
        rows,
    }
}

#[test]
fn every_number_of_threads_is_a_candidate_of_its_own() {
    let clock = Arc::new(ScriptedClock::new());
    let (inner, _) = copy("shared", &[0], Does::Right, &clock);
    let passing = Arc::clone(&clock);
    // Two threads take half as long, and the other parameter stays as it is.
    let kernel = OwnKernel::new(inner.spec().clone(), move |call, setting, scratch| {
        let Shares { threads, rows } = Shares::of(setting);
        assert_eq!(rows, 8);
        passing.advance(10 * MS / u64::from(threads));
        inner.execute(call, setting, scratch)
    })
    .with_space(|_, machine| Space::of::<Shares, 2>([Axis::threads(machine), Axis::new(8, [16])]));
    let selector = Selector::builder(machine(), vec![Arc::new(kernel)])
        .clock(Arc::clone(&clock) as _)
        .background(false)
        .build()
        .unwrap();
    let all = calibrate(&selector);
    let threads: Vec<_> = all
        .iter()
        .map(|one| one.candidate.params.get("threads"))
        .collect();
    assert_eq!(threads, [Some(2), Some(1)]);
    let decision = selector.explain(&workload()).unwrap();
    assert_eq!(decision.chosen.candidate.params.get("threads"), Some(2));
}

#[test]
fn evidence_makes_another_selector_choose_alike() {
    let kernels: [(&str, &[u64], Does); 2] =
        [("a", &[3 * MS], Does::Right), ("b", &[MS], Does::Right)];
    let taught = Bed::new(&kernels);
    let teacher = taught.selector();
    calibrate(&teacher);
    let evidence: Vec<Remembered> = teacher.evidence().into_iter().map(|one| one.of).collect();
    assert_eq!(evidence.len(), 2);
    assert!(evidence.iter().all(|one| one.workload == workload()));
    for mode in [Mode::Learn, Mode::Frozen] {
        let bed = Bed::new(&kernels);
        let pupil = bed.builder().mode(mode).build().unwrap();
        let taken = pupil.recall(&evidence);
        assert_eq!((taken.known, taken.foreign), (2, 0));
        assert_eq!(chosen(&pupil), "cpu-copy-f32-b");
        let decision = pupil.explain(&workload()).unwrap();
        assert_eq!(
            decision.chosen.estimate,
            teacher.explain(&workload()).unwrap().chosen.estimate
        );
        assert_eq!(
            (
                teacher.explain(&workload()).unwrap().reason,
                decision.reason
            ),
            (Reason::Best, Reason::Remembered)
        );
        // A second time nothing is added.
        pupil.recall(&evidence);
        assert_eq!(
            pupil.evidence()[0].of.tally.samples(),
            evidence[0].tally.samples()
        );
    }
    // Another version of a kernel is another kernel, and others stay as they are.
    let mut changed = evidence.clone();
    changed[0].version = 2;
    let bed = Bed::new(&kernels);
    let pupil = bed.selector();
    let taken = pupil.recall(&changed);
    assert_eq!((taken.known, taken.foreign), (1, 1));
    let unknown = Remembered {
        workload: "sort u32 77".parse().unwrap(),
        ..evidence[0].clone()
    };
    assert_eq!(pupil.recall(&[unknown]).foreign, 1);
}

#[test]
fn a_ticket_says_whether_it_is_to_learn() {
    let bed = Bed::new(&[("a", &[MS], Does::Right), ("b", &[MS], Does::Right)]);
    let teacher = bed.selector();
    calibrate(&teacher);
    let evidence: Vec<Remembered> = teacher.evidence().into_iter().map(|one| one.of).collect();
    let selector = bed.selector();
    selector.recall(&evidence[..1]);
    let mut reasons = std::collections::BTreeSet::new();
    for call in 0..200 {
        let ticket = selector.select(&workload()).unwrap();
        let reason = selector.reason(&ticket).unwrap();
        if call == 0 {
            assert_eq!(reason, Reason::Remembered);
        }
        let tried = selector.candidate(&ticket).unwrap().kernel;
        let serves = selector
            .explain(&workload())
            .unwrap()
            .chosen
            .candidate
            .kernel;
        assert_eq!(reason == Reason::Exploring, tried != serves, "{reason:?}");
        reasons.insert(reason);
        bed.clock.advance(2 * MS);
        let time_ns = MS as f64;
        selector.report(ticket, &Went::Well { time_ns }).unwrap();
        selector.settle();
    }
    assert!(reasons.contains(&Reason::Exploring), "{reasons:?}");
}

#[test]
fn a_run_out_of_line_is_noticed() {
    use kernelwise_model::watch::Noticed;
    let bed = Bed::new(&[("a", &[MS], Does::Right)]);
    let selector = bed.selector();
    let report = |time_ns: f64| {
        let ticket = selector.select(&workload()).unwrap();
        bed.clock.advance(2 * MS);
        selector.report(ticket, &Went::Well { time_ns }).unwrap();
        selector.settle();
    };
    for run in 0..100 {
        report(1e6 + 1e4 * f64::from(run % 5));
    }
    let before = selector.noticed(0);
    assert_eq!(before, [], "usual runs are no news");
    report(8e6);
    let news = selector.noticed(0);
    let first = &news[0];
    assert!(
        matches!(first.event.what, Noticed::Anomaly { .. }),
        "{news:?}"
    );
    assert_eq!(first.workload, workload().to_string());
    assert_eq!(first.kernel.as_ref().unwrap().as_str(), "cpu-copy-f32-a");
    assert_eq!(selector.noticed(1 + news.last().unwrap().event.number), []);
}
