//! What a selector is told of before, what it tells others, and the models it fits to what it knows.
#![allow(clippy::unwrap_used)]

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kernelwise_backend::{Axis, Call, HostKernel, Knobs, OwnKernel, Space, knobs};
use kernelwise_measure::{Clock, ScriptedClock};
use kernelwise_model::{FitError, Predict, Regressor, Table, WidthMismatch};
use kernelwise_select::belief::Tally;
use kernelwise_select::{
    Because, Builder, Mode, Observed, Observer, Progress, Quarantine, RaceOptions, Remembered,
    Selector, Went,
};
use kernelwise_types::{
    Estimate, KernelSpec, Needs, Numerics, Technique, TensorView, TensorViewMut, Workload,
};

const MS: u64 = 1_000_000;

knobs! {
    struct Tile {
        tile,
    }
}

/// A kernel with a knob that its time depends on.
fn tiled(clock: &Arc<ScriptedClock>) -> Arc<dyn HostKernel> {
    let spec = KernelSpec {
        id: "cpu-copy-f32-tiled".parse().unwrap(),
        version: 1,
        technique: Technique::Custom,
        numerics: Numerics::BitIdentical,
        needs: Needs::default(),
    };
    let clock = Arc::clone(clock);
    let kernel = OwnKernel::new(spec, move |call, setting, _| {
        clock.advance(MS / u64::from(Tile::of(setting).tile));
        let (_, inputs, outputs) = call.parts();
        let out = outputs[0].as_mut_slice::<f32>()?;
        out.copy_from_slice(inputs[0].as_slice::<f32>()?);
        Ok(())
    });
    Arc::new(kernel.with_space(|_, _| Space::of::<Tile, 1>([Axis::new(1, [2, 4])])))
}

fn builder(clock: &Arc<ScriptedClock>) -> Builder {
    let machine = kernelwise_probe::machine().with_threads(2);
    Selector::builder(machine, vec![tiled(clock)])
        .background(false)
        .clock(Arc::clone(clock) as _)
}

fn workload(elements: usize) -> Workload {
    format!("copy f32 {elements}").parse().unwrap()
}

/// Serves a call that somebody else times.
fn report(selector: &Selector, elements: usize, time_ns: f64) {
    let ticket = selector.select(&workload(elements)).unwrap();
    selector.report(ticket, &Went::Well { time_ns }).unwrap();
    selector.settle();
}

/// Five calls of each size, at 10 ns an element and a cost per call, times `factor`.
fn report_all(selector: &Selector, sizes: &[usize], factor: impl Fn(usize) -> f64) {
    for (i, size) in sizes.iter().enumerate() {
        for _ in 0..5 {
            report(selector, *size, factor(i) * (1e5 + 10.0 * *size as f64));
        }
    }
}

fn sizes(count: usize, first: usize) -> Vec<usize> {
    (0..count).map(|i| first + 137 * i * i).collect()
}

fn told(selector: &Selector, elements: usize) -> f64 {
    let decision = selector.explain(&workload(elements)).unwrap();
    match decision.chosen.estimate {
        Estimate::Modelled { time_ns, model, .. } if model.starts_with("curves") => time_ns.get(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn settings_that_were_tuned_take_part_once_they_are_recalled() {
    let clock = Arc::new(ScriptedClock::new());
    let first = builder(&clock).build().unwrap();
    report(&first, 4, 1e6);
    let usual = first.evidence()[0].of.clone();
    assert_eq!(usual.candidate.params.to_string(), "tile=1");
    let tuned = |params: &str| {
        let mut tuned = usual.clone();
        tuned.candidate.params = params.parse().unwrap();
        tuned.tally = Tally::of(5, 5.0, (MS as f64 / 4.0).ln(), 0.01).unwrap();
        tuned
    };
    let next = builder(&clock).build().unwrap();
    // Three was never a tile.
    let taken = next.recall(&[usual.clone(), tuned("tile=4"), tuned("tile=3")]);
    assert_eq!((taken.known, taken.foreign), (2, 1));
    let decision = next.explain(&workload(4)).unwrap();
    assert_eq!(decision.chosen.candidate, tuned("tile=4").candidate);
    assert_eq!(runs(&next, &clock), MS / 4);
}

/// How long a call takes, once it was checked.
fn runs(selector: &Selector, clock: &ScriptedClock) -> u64 {
    let (from, mut to) = ([1f32, 2.0, 3.0, 4.0], [0f32; 4]);
    let inputs = [TensorView::contiguous(&from, "4".parse().unwrap()).unwrap()];
    let mut outputs = [TensorViewMut::contiguous(&mut to, "4".parse().unwrap()).unwrap()];
    let of = workload(4);
    let mut call = Call::new(&of, &inputs, &mut outputs).unwrap();
    selector.run(&mut call).unwrap();
    let before = clock.now();
    selector.run(&mut call).unwrap();
    let took = clock.now() - before;
    assert_eq!(to, from);
    took
}

/// Place, words and time.
type Heard = ((u64, usize), String, f64);

/// Keeps what it hears of.
#[derive(Default)]
struct Ear(Mutex<Vec<Heard>>, Mutex<Vec<Quarantine>>);

impl Observer for Ear {
    fn observed(&self, observed: &Observed<'_>) {
        let words = format!(
            "{} {} v{}",
            observed.workload(),
            observed.candidate(),
            observed.version()
        );
        let heard = (observed.place(), words, observed.time_ns());
        self.0.lock().unwrap().push(heard);
    }

    fn quarantined(&self, quarantine: &Quarantine) {
        self.1.lock().unwrap().push(quarantine.clone());
    }
}

#[test]
fn an_observer_hears_of_every_time_that_is_learned_from() {
    let clock = Arc::new(ScriptedClock::new());
    let ear = Arc::new(Ear::default());
    let selector = builder(&clock).observer(Arc::clone(&ear) as _);
    let selector = selector.build().unwrap();
    for (elements, time_ns) in [(4, 5e5), (4, 6e5), (9, 7e5)] {
        report(&selector, elements, time_ns);
    }
    // What is recalled was heard of before, and in frozen mode nothing is learned.
    let known: Vec<Remembered> = selector.evidence().into_iter().map(|one| one.of).collect();
    let frozen = builder(&clock).mode(Mode::Frozen);
    let frozen = frozen.observer(Arc::clone(&ear) as _).build().unwrap();
    frozen.recall(&known);
    report(&frozen, 4, 5e5);
    let heard = ear.0.lock().unwrap();
    let times: Vec<f64> = heard.iter().map(|(_, _, time)| *time).collect();
    assert_eq!(times, [5e5, 6e5, 7e5]);
    assert_eq!(heard[0].0, heard[1].0);
    assert_ne!(heard[0].0, heard[2].0);
    assert_eq!(heard[2].1, "copy f32 9 cpu-copy-f32-tiled (tile=1) v1");
}

#[test]
fn who_failed_is_told_once_and_stays_away_from_those_who_are_told() {
    let clock = Arc::new(ScriptedClock::new());
    let ear = Arc::new(Ear::default());
    let selector = builder(&clock).observer(Arc::clone(&ear) as _);
    let selector = selector.build().unwrap();
    for _ in 0..2 {
        let ticket = selector.select(&workload(4));
        let evidence = "made up".to_owned();
        if let Ok(ticket) = ticket {
            let went = Went::Badly { evidence };
            selector.report(ticket, &went).unwrap();
        }
    }
    let told = ear.1.lock().unwrap().clone();
    assert_eq!(told, selector.quarantined());
    assert_eq!(told.len(), 1);
    let next = builder(&clock).quarantined(told).build().unwrap();
    let error = next.select(&workload(9)).unwrap_err().to_string();
    assert!(error.contains("does not run any more: made up"), "{error}");
    assert!(next.unquarantine(&"cpu-copy-f32-tiled".parse().unwrap()));
    assert!(next.select(&workload(9)).is_ok());
}

#[test]
fn models_are_fitted_when_asked_and_foretell_what_was_not_met() {
    let clock = Arc::new(ScriptedClock::new());
    let selector = builder(&clock).build().unwrap();
    report_all(&selector, &sizes(30, 100), |_| 1.0);
    let training = selector.train();
    assert_eq!(training.because, Because::Asked);
    assert!(training.taken && training.times == 30, "{training:?}");
    assert_eq!(training.error_factor_before, None);
    let expected = 1e5 + 10.0 * 50_123.0;
    assert!((told(&selector, 50_123) / expected - 1.0).abs() < 0.1);
    // What came since is what old and new are held against.
    report_all(&selector, &sizes(8, 1111), |_| 1.0);
    let again = selector.train();
    assert!(again.taken && again.times == 38, "{again:?}");
    assert!(again.error_factor_before.unwrap() < 1.1, "{again:?}");
    assert_eq!(selector.trainings(), [training, again]);
    // Others may begin with it.
    let heir = builder(&clock).forecast((*selector.forecast()).clone());
    let heir = heir.build().unwrap();
    assert_eq!(told(&heir, 60_123), told(&selector, 60_123));
}

#[test]
fn worse_models_are_kept_out() {
    let clock = Arc::new(ScriptedClock::new());
    let selector = builder(&clock).build().unwrap();
    report_all(&selector, &sizes(20, 100), |_| 1.0);
    assert!(selector.train().taken);
    let models = selector.forecast();
    // What is known becomes ten times as slow for a while; what comes then is not.
    for _ in 0..4 {
        report_all(&selector, &sizes(20, 100), |_| 10.0);
    }
    report_all(&selector, &sizes(6, 1111), |_| 1.0);
    let training = selector.train();
    assert!(!training.taken, "{training:?}");
    assert_eq!(training.kept_out, ["copy f32 #"]);
    assert!(training.error_factor_after > training.error_factor_before);
    assert_eq!(selector.forecast(), models);
}

#[test]
fn enough_news_is_one_training_on_a_thread_of_its_own() {
    let clock = Arc::new(ScriptedClock::new());
    let build = |after: u64| {
        let builder = builder(&clock).background(true).retrain_after(after);
        builder.build().unwrap()
    };
    let (selector, never) = (build(20), build(0));
    for selector in [&selector, &never] {
        // A served second, so that fitting is a small share of it.
        report_all(selector, &sizes(24, 100), |_| 1e5);
    }
    let mut waited = 0;
    while selector.trainings().is_empty() && waited < 3000 {
        std::thread::sleep(Duration::from_millis(10));
        waited += 1;
    }
    // Time for a second one, which nothing calls for.
    std::thread::sleep(Duration::from_millis(300));
    let trainings = selector.trainings();
    assert_eq!(trainings.len(), 1, "{trainings:?}");
    assert!(matches!(trainings[0].because, Because::Grown(20..)));
    assert!(trainings[0].taken);
    assert!(told(&selector, 50_123) > 0.0);
    assert!(never.trainings().is_empty());
}

#[test]
fn a_kernel_that_changes_calls_for_a_training() {
    let clock = Arc::new(ScriptedClock::new());
    let selector = builder(&clock).background(true).retrain_after(1_000_000);
    let selector = selector.build().unwrap();
    report_all(&selector, &sizes(24, 100), |_| 1e5);
    selector.train();
    assert_eq!(selector.trainings().len(), 1);
    // The one kernel there is becomes three times as slow on one workload.
    for _ in 0..200 {
        clock.advance(10 * MS);
        report(&selector, 100, 3e5 * (1e5 + 1000.0));
    }
    let mut waited = 0;
    while selector.trainings().len() < 2 && waited < 3000 {
        std::thread::sleep(Duration::from_millis(10));
        waited += 1;
    }
    let trainings = selector.trainings();
    assert!(
        matches!(
            trainings.get(1).map(|one| one.because),
            Some(Because::Changed(1..))
        ),
        "{trainings:?}"
    );
}

knobs! {
    struct Threads {
        threads,
    }
}

/// Takes half as long with two threads, and four times as long if their processors are taken.
fn threaded(clock: &Arc<ScriptedClock>, busy: &Arc<AtomicBool>) -> Arc<dyn HostKernel> {
    let spec = KernelSpec {
        id: "cpu-copy-f32-threaded".parse().unwrap(),
        version: 1,
        technique: Technique::Custom,
        numerics: Numerics::BitIdentical,
        needs: Needs::default(),
    };
    let (clock, busy) = (Arc::clone(clock), Arc::clone(busy));
    let kernel = OwnKernel::new(spec, move |call, setting, _| {
        let time = match (Threads::of(setting).threads, busy.load(Ordering::Relaxed)) {
            (1, _) => 2 * MS,
            (_, false) => MS,
            (_, true) => 4 * MS,
        };
        clock.advance(time);
        let (_, inputs, outputs) = call.parts();
        let out = outputs[0].as_mut_slice::<f32>()?;
        out.copy_from_slice(inputs[0].as_slice::<f32>()?);
        Ok(())
    });
    Arc::new(kernel.with_space(|_, _| Space::of::<Threads, 1>([Axis::new(1, [2])])))
}

#[test]
fn load_changes_the_choice_at_once_and_back() {
    let (clock, busy) = (
        Arc::new(ScriptedClock::new()),
        Arc::new(AtomicBool::new(false)),
    );
    let machine = kernelwise_probe::machine().with_threads(2);
    let selector = Selector::builder(machine, vec![threaded(&clock, &busy)])
        .background(false)
        .clock(Arc::clone(&clock) as _)
        .build()
        .unwrap();
    let call = || {
        runs(&selector, &clock);
        selector.settle();
    };
    let params = || {
        let decision = selector.explain(&workload(4)).unwrap();
        decision.chosen.candidate.params.to_string()
    };
    let mut go_on = |_: Progress<'_>| ControlFlow::Continue(());
    let raced = selector.calibrate(&[workload(4)], &RaceOptions::default(), &mut go_on);
    raced.unwrap();
    assert_eq!(params(), "threads=2");
    let idle = selector.evidence();
    let plan = selector.plan(&workload(4)).unwrap();
    for _ in 0..3 {
        busy.store(true, Ordering::Relaxed);
        selector.set_load(1);
        // At the first call: both are expected to take two milliseconds, and two threads were not seen under load.
        (0..10).for_each(|_| call());
        assert_eq!(params(), "threads=1");
        busy.store(false, Ordering::Relaxed);
        selector.set_load(0);
        assert_eq!(params(), "threads=2");
        assert!(plan.choose().is_some());
        call();
    }
    // What was slow for want of a processor is not held against anybody.
    for (before, after) in idle.iter().zip(selector.evidence()) {
        let means = (
            before.of.tally.mean().unwrap(),
            after.of.tally.mean().unwrap(),
        );
        assert!((means.0 - means.1).abs() < 0.01);
    }
}

#[test]
fn cases_that_were_met_before_hear_of_new_models() {
    let clock = Arc::new(ScriptedClock::new());
    let selector = builder(&clock).build().unwrap();
    let met = workload(4321);
    let before = selector.explain(&met).unwrap().chosen.estimate;
    assert_eq!(before, Estimate::Unknown);
    report_all(&selector, &sizes(30, 100), |_| 1.0);
    assert!(selector.train().taken);
    let expected = 1e5 + 10.0 * 4321.0;
    assert!((told(&selector, 4321) / expected - 1.0).abs() < 0.2);
    // What other cases teach later does not take its place.
    report_all(&selector, &sizes(60, 150), |_| 1.0);
    assert!((told(&selector, 4321) / expected - 1.0).abs() < 0.2);
    // Whoever was timed needs no model.
    report(&selector, 4321, 7e6);
    assert!(selector.train().times > 60);
    let after = selector.explain(&met).unwrap().chosen.estimate;
    assert!(matches!(after, Estimate::Measured { .. }), "{after}");
}

/// Somebody's own type of model: the mean of all. It looks at the selector it works for while it is fitted.
#[derive(Debug, Default)]
struct Mean {
    works_for: Mutex<std::sync::Weak<Selector>>,
    looked: AtomicBool,
}

impl Regressor for Mean {
    fn train(&self, table: &Table, _: u64) -> Result<Box<dyn Predict>, FitError> {
        if let Some(selector) = self.works_for.lock().unwrap().upgrade() {
            assert!(selector.trainings().is_empty());
            self.looked.store(true, Ordering::Relaxed);
        }
        let sum: f32 = table.rows().map(|(_, target, _)| target).sum();
        Ok(Box::new(Answer(sum / table.len() as f32)))
    }

    fn label(&self) -> std::borrow::Cow<'_, str> {
        "the mean of all".into()
    }
}

#[derive(Debug)]
struct Answer(f32);

impl Predict for Answer {
    fn predict(&self, _: &[f32]) -> Result<f32, WidthMismatch> {
        Ok(self.0)
    }

    fn width(&self) -> usize {
        0
    }
}

#[test]
fn a_model_of_the_users_own_is_fitted_and_answers() {
    let (clock, mean) = (Arc::new(ScriptedClock::new()), Arc::new(Mean::default()));
    let builder = builder(&clock).regressor(Arc::clone(&mean) as _);
    let selector = Arc::new(builder.build().unwrap());
    *mean.works_for.lock().unwrap() = Arc::downgrade(&selector);
    report_all(&selector, &sizes(30, 100), |_| 1.0);
    assert!(selector.train().taken);
    assert!(mean.looked.load(Ordering::Relaxed));
    let explained = selector.explain(&workload(4321)).unwrap();
    let Estimate::Modelled { model, .. } = explained.chosen.estimate else {
        panic!("{explained:?}");
    };
    assert!(
        model.starts_with("the mean of all, n = 0; nearest of 30"),
        "{model}"
    );
}

#[test]
fn what_goes_along_with_slowdown_is_found() {
    use kernelwise_model::watch::{Noticed, Reading};
    use kernelwise_types::units::Celsius;
    let clock = Arc::new(ScriptedClock::new());
    let selector = builder(&clock).build().unwrap();
    let sampler = kernelwise_probe::Sampler::start(kernelwise_probe::SamplerOptions::default());
    let mut state = sampler.unwrap().look().state.clone();
    for run in 0..600_u32 {
        // A temperature that wanders, and times that follow it.
        let heat = f64::from(run * 37 % 101) / 101.0;
        let celsius = Celsius::new(50.0 + 40.0 * heat).unwrap();
        state.temperature = kernelwise_types::Reading::Known(celsius);
        selector.set_state(&state);
        clock.advance(2 * MS);
        report(&selector, 4, 1e6 * (1.0 + 0.3 * heat));
    }
    let noticed = selector.noticed(0);
    let heat = |one: &&kernelwise_select::Noticed| match &one.event.what {
        Noticed::Correlation(found) => found.reading == Reading::Temperature && found.r > 0.5,
        _ => false,
    };
    assert_eq!(noticed.iter().filter(heat).count(), 1, "{noticed:?}");
}
