//! What is learned outlives the process: in a directory, in a file compiled into the program, and on a server's way.
#![cfg(feature = "records")]
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kernelwise::memory::{Memory, evidence};
use kernelwise::select::{Mode, Selector, Went};
use kernelwise::store::{
    Durability, Export, Options, Place, Sample, SeriesKey, Store, StoreError, WallClock,
};
use kernelwise::types::calibration::{AccessPattern, Bandwidth, MemoryPlace};
use kernelwise::types::units::{ByteRate, Nanos, Share};
use kernelwise::types::{
    Calibration, Candidate, Estimate, Fingerprint, Machine, Measured, Reading,
};
use kernelwise::{Kernelwise, SetupError, Workload};

const NOW_S: u64 = 1_800_000_000;

fn clock() -> WallClock {
    WallClock::new(|| NOW_S)
}

fn copy(elements: usize) -> Workload {
    format!("copy f32 {elements}").parse().unwrap()
}

/// Calls that somebody else times: a kernel takes what its place among the candidates says.
fn report(selector: &Selector, elements: usize) {
    for _ in 0..40 {
        let ticket = selector.select(&copy(elements)).unwrap();
        let kernel = selector.candidate(&ticket).unwrap().kernel.to_string();
        let time_ns = (1000.0 + elements as f64) * (1.0 + kernel.len() as f64);
        selector.report(ticket, &Went::Well { time_ns }).unwrap();
        selector.settle();
    }
}

fn chosen(kw: &Kernelwise, elements: usize) -> (String, Estimate) {
    let decision = kw.explain(&copy(elements)).unwrap();
    (
        decision.chosen.candidate.to_string(),
        decision.chosen.estimate,
    )
}

#[test]
fn the_next_run_begins_where_this_one_ended() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Kernelwise::builder().remember(dir.path()).build().unwrap();
    let first = open();
    report(first.selector(), 1000);
    let learned = chosen(&first, 1000);
    assert!(matches!(learned.1, Estimate::Measured { .. }));
    drop(first);
    let second = open();
    let (kernel, estimate) = chosen(&second, 1000);
    assert_eq!(kernel, learned.0);
    let (Some(before), Some(after)) = (learned.1.time(), estimate.time()) else {
        panic!("{estimate:?}");
    };
    assert!((before.get() / after.get() - 1.0).abs() < 0.05);
    // Without a directory, nothing is known and nothing kept.
    let stranger = Kernelwise::builder().build().unwrap();
    assert!(stranger.memory().is_none());
    let (_, estimate) = chosen(&stranger, 1000);
    assert!(!matches!(estimate, Estimate::Measured { .. }));
}

#[test]
fn a_kernel_that_failed_stays_away_from_later_runs() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Kernelwise::builder().remember(dir.path()).build().unwrap();
    let first = open();
    let ticket = first.selector().select(&copy(500)).unwrap();
    let failed = first.selector().candidate(&ticket).unwrap().kernel;
    let evidence = "a number was wrong".to_owned();
    let went = Went::Badly { evidence };
    first.selector().report(ticket, &went).unwrap();
    drop(first);
    let second = open();
    let kept = second.selector().quarantined();
    assert_eq!(kept.len(), 1);
    assert_eq!(
        (&kept[0].kernel, &kept[0].evidence[..]),
        (&failed, "a number was wrong")
    );
    assert_ne!(chosen(&second, 500).0, failed.to_string());
    // Until somebody lets it back in.
    assert!(
        second
            .memory()
            .unwrap()
            .lift_quarantine(failed.as_str())
            .unwrap()
    );
    assert!(
        !second
            .memory()
            .unwrap()
            .lift_quarantine("cpu-copy-f32-nobody")
            .unwrap()
    );
    drop(second);
    assert!(open().selector().quarantined().is_empty());
}

#[test]
fn a_program_may_carry_what_was_measured_and_freeze_it() {
    let dir = tempfile::tempdir().unwrap();
    let teacher = Kernelwise::builder().remember(dir.path()).build().unwrap();
    report(teacher.selector(), 2000);
    let learned = chosen(&teacher, 2000).0;
    let store = teacher.memory().unwrap().store().unwrap();
    store.flush().unwrap();
    let bytes = store.export(&Export::default()).unwrap().to_bytes(true);
    let frozen = || {
        let builder = Kernelwise::builder().mode(Mode::Frozen);
        builder.wisdom(&bytes).unwrap().build().unwrap()
    };
    let (one, other) = (frozen(), frozen());
    assert_eq!(chosen(&one, 2000), chosen(&other, 2000));
    assert_eq!(chosen(&one, 2000).0, learned);
    report(one.selector(), 2000);
    assert_eq!(chosen(&one, 2000), chosen(&other, 2000));
    let error = Kernelwise::builder().wisdom(b"{\"not\": \"wisdom\"}");
    assert!(matches!(error.unwrap_err(), SetupError::Wisdom(_)));
}

#[test]
fn records_of_a_newer_version_are_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    drop(Kernelwise::builder().remember(dir.path()).build().unwrap());
    let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert!(!files.is_empty());
    let file = dir.path().join("records.sqlite");
    let set_version = |version: &[u8; 4]| {
        let mut bytes = std::fs::read(&file).unwrap();
        // The user version of a SQLite file, big-endian.
        bytes[60..64].copy_from_slice(version);
        std::fs::write(&file, &bytes).unwrap();
        bytes
    };
    let bytes = set_version(&[0, 0, 1, 0]);
    let error = Kernelwise::builder().remember(dir.path()).build();
    let error = error.unwrap_err();
    assert!(
        matches!(error, SetupError::Records(StoreError::Newer { .. })),
        "{error}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
}

#[test]
fn a_place_that_cannot_be_used_costs_nothing_but_memory() {
    let file = tempfile::NamedTempFile::new().unwrap();
    // A file is no directory.
    let kw = Kernelwise::builder().remember(file.path()).build().unwrap();
    report(kw.selector(), 100);
    assert!(kw.memory().unwrap().store().is_none());
    // In frozen mode nothing is made.
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("nowhere");
    let frozen = Kernelwise::builder().mode(Mode::Frozen).remember(&nowhere);
    assert!(
        chosen(&frozen.build().unwrap(), 100)
            .0
            .starts_with("cpu-copy")
    );
    assert!(!nowhere.exists());
}

fn measured<T: Copy>(value: T) -> Measured<T> {
    Measured {
        value,
        low: value,
        high: value,
        samples: 1,
    }
}

/// Copies run at 10 GB/s, wherever they are and with any number of threads.
fn calibration() -> Calibration {
    let bandwidths = MemoryPlace::ALL.iter().flat_map(|&place| {
        [1, 2, 4].map(|threads| Bandwidth {
            place,
            pattern: AccessPattern::Copy,
            threads,
            working_set_bytes: 1,
            rate: measured(ByteRate::new(1e10).unwrap()),
        })
    });
    Calibration {
        peaks: Vec::new(),
        bandwidths: bandwidths.collect(),
        handed_over: Vec::new(),
        fork_joins: Vec::new(),
        timer: measured(Nanos::from_u64(10)),
        skipped: Vec::new(),
    }
}

/// The same machine with twice the processors: another kind of machine, and not far away.
fn other(machine: &Machine) -> Machine {
    let mut other = machine.clone();
    other.cpu.logical *= 2;
    other
}

#[test]
fn times_of_another_machine_are_a_prior_and_no_time() {
    let dir = tempfile::tempdir().unwrap();
    let machine = kernelwise::probe::machine();
    let there = other(&machine);
    let kernels = kernelwise_cpu::kernels().unwrap();
    let theirs = Memory::open(dir.path(), &there, clock()).unwrap();
    theirs.keep_calibration(&calibration());
    let theirs = Arc::new(theirs);
    let selector = Selector::builder(there, kernels.clone())
        .observer(Arc::clone(&theirs) as _)
        .background(false)
        .build()
        .unwrap();
    for elements in (0..14).map(|i| 500 + 777 * i) {
        report(&selector, elements);
    }
    theirs.store().unwrap().flush().unwrap();
    let here = Memory::open(dir.path(), &machine, clock()).unwrap();
    let found = here.recall(&kernels, Some(&calibration())).unwrap();
    assert!(found.here.is_empty());
    assert!(found.elsewhere.len() >= 14, "{}", found.elsewhere.len());
    assert!(found.elsewhere.iter().all(|one| one.away.unwrap() > 0.0));
    let models = here.models(&found.elsewhere, 1);
    let scope = models.kinds().next().unwrap();
    assert!(scope.other_machines_distance.is_some());
    let reader = Selector::builder(machine, kernels)
        .calibration(calibration())
        .forecast(models)
        .background(false)
        .build()
        .unwrap();
    let estimate = reader.explain(&copy(3333)).unwrap().chosen.estimate;
    assert!(
        matches!(&estimate, Estimate::Prior { source, .. } if source.contains("other machines")),
        "{estimate:?}"
    );
}

#[test]
fn models_are_kept_until_there_is_something_new() {
    let dir = tempfile::tempdir().unwrap();
    let machine = kernelwise::probe::machine();
    let kernels = kernelwise_cpu::kernels().unwrap();
    let memory = Arc::new(Memory::open(dir.path(), &machine, clock()).unwrap());
    memory.keep_calibration(&calibration());
    let selector = Selector::builder(machine.clone(), kernels.clone())
        .observer(Arc::clone(&memory) as _)
        .background(false)
        .build()
        .unwrap();
    let known = || {
        memory.store().unwrap().flush().unwrap();
        let found = memory.recall(&kernels, Some(&calibration())).unwrap();
        evidence(&machine, &kernels, &calibration(), &found.here).unwrap()
    };
    for elements in (0..14).map(|i| 500 + 777 * i) {
        report(&selector, elements);
    }
    let times = known();
    assert_eq!(memory.kept_models(&times, 1).kinds().count(), 0);
    let fitted = memory.models(&times, 1);
    assert_eq!(fitted.kinds().count(), 1);
    memory.store().unwrap().flush().unwrap();
    assert_eq!(memory.kept_models(&times, 1), fitted);
    assert_eq!(memory.latest_models(&times), fitted);
    // Another seed is another model.
    assert_eq!(memory.kept_models(&times, 7).kinds().count(), 0);
    report(&selector, 20_011);
    let times = known();
    assert_eq!(memory.kept_models(&times, 1).kinds().count(), 0);
    assert_eq!(memory.latest_models(&times), fitted);
    assert_eq!(memory.train(&times, 1).kinds().count(), 1);
}

#[test]
fn models_do_not_depend_on_when_they_are_fitted() {
    let dir = tempfile::tempdir().unwrap();
    let machine = kernelwise::probe::machine();
    let kernels = kernelwise_cpu::kernels().unwrap();
    let writer = Arc::new(Memory::open(dir.path(), &machine, clock()).unwrap());
    writer.keep_calibration(&calibration());
    let selector = Selector::builder(machine.clone(), kernels.clone())
        .observer(Arc::clone(&writer) as _)
        .background(false)
        .build()
        .unwrap();
    for elements in (0..14).map(|i| 500 + 777 * i) {
        report(&selector, elements);
    }
    writer.store().unwrap().flush().unwrap();
    let fitted_by = |clock: WallClock| {
        let memory = Memory::open(dir.path(), &machine, clock).unwrap();
        let found = memory.recall(&kernels, Some(&calibration())).unwrap();
        let times = evidence(&machine, &kernels, &calibration(), &found.here).unwrap();
        assert!(times.len() >= 14);
        memory.train(&times, 1)
    };
    let now = fitted_by(clock());
    assert_eq!(now.kinds().count(), 1);
    assert_eq!(fitted_by(WallClock::new(|| NOW_S + 12_345)), now);
    assert_eq!(fitted_by(WallClock::new(|| NOW_S + 8 * 604_800)), now);
}

#[test]
fn the_type_of_model_can_be_chosen() {
    let builder = Kernelwise::builder().background(false);
    let ridge = Arc::new(kernelwise::model::ModelKind::Ridge);
    let kw = builder.regressor(ridge).build().unwrap();
    for elements in (0..14).map(|i| 500 + 777 * i) {
        report(kw.selector(), elements);
    }
    assert!(kw.selector().train().taken);
    let (_, estimate) = chosen(&kw, 4444);
    assert!(
        matches!(&estimate, Estimate::Modelled { model, .. } if model.starts_with("ridge, n = 0")),
        "{estimate:?}"
    );
}

/// Records of this machine, as a program with another version of the library would have left them: each time is so many nanoseconds.
fn left_by(dir: &Path, (kernel, params): (&str, &str), version: u32, library: &str, ns: &[f64]) {
    let machine = kernelwise::probe::machine();
    let store = Store::open(dir, Options::new(clock())).unwrap();
    let place = Arc::new(Place::of(&machine, library));
    let key = SeriesKey::new(place, "copy f32 1000", kernel, version, params);
    let slot = store.slot(&key);
    for ns in ns {
        store.record(slot, Sample::timed(Nanos::new(*ns).unwrap()));
    }
    store.flush().unwrap();
}

const COPIER: &str = "cpu-copy-f32-memcpy";

/// A selector that has one kernel copy.
fn copier() -> Selector {
    let kernels = kernelwise_cpu::kernels().unwrap();
    Selector::builder(kernelwise::probe::machine(), kernels)
        .force("copy", COPIER)
        .background(false)
        .build()
        .unwrap()
}

/// The kernel with the setting that serves first, and its version.
fn a_copier() -> (Candidate, u32) {
    let selector = copier();
    let ticket = selector.select(&copy(1000)).unwrap();
    let kernels = kernelwise_cpu::kernels().unwrap();
    let mut specs = kernels.iter().map(|kernel| kernel.spec());
    let spec = specs.find(|spec| spec.id.as_str() == COPIER).unwrap();
    (selector.candidate(&ticket).unwrap(), spec.version)
}

fn estimate(selector: &Selector, of: &Candidate) -> Estimate {
    let decision = selector.explain(&copy(1000)).unwrap();
    let mut all = decision.alternatives().iter().chain([&decision.chosen]);
    let found = all.find(|ranked| ranked.candidate == *of);
    found.unwrap().estimate.clone()
}

fn recalled(dir: &Path) -> kernelwise::memory::Recollection {
    let machine = kernelwise::probe::machine();
    let memory = Memory::open(dir, &machine, clock()).unwrap();
    let kernels = kernelwise_cpu::kernels().unwrap();
    memory.recall(&kernels, Some(&calibration())).unwrap()
}

#[test]
fn what_is_stale_is_a_prior_and_gives_way_to_what_is_fresh() {
    let dir = tempfile::tempdir().unwrap();
    let (candidate, version) = a_copier();
    let params = candidate.params.to_string();
    let (what, here) = ((COPIER, &params[..]), env!("CARGO_PKG_VERSION"));
    // A thousand times of another library, and as many of another version of the kernel.
    left_by(dir.path(), what, version, "0.0.1", &[500.0; 1000]);
    left_by(dir.path(), what, version + 1, here, &[400.0; 1000]);
    let found = recalled(dir.path());
    assert_eq!((found.here.len(), found.set_aside), (1, 0), "{found:?}");
    let tally = found.here[0].tally;
    assert!(tally.is_stale() && tally.weight() <= 2.0, "{tally:?}");
    // This version of the kernel says more than another one.
    assert!((tally.mean().unwrap().exp() / 500.0 - 1.0).abs() < 1e-6);

    // It is told as what it is, and a few calls settle it.
    let selector = copier();
    assert_eq!(selector.recall(&found.here).known, 1);
    let prior = estimate(&selector, &candidate);
    let is_prior = matches!(&prior, Estimate::Prior { source, .. } if source.contains("library"));
    assert!(is_prior, "{prior:?}");
    for _ in 0..60 {
        let ticket = selector.select(&copy(1000)).unwrap();
        let time_ns = 1000.0;
        selector.report(ticket, &Went::Well { time_ns }).unwrap();
        selector.settle();
    }
    let Estimate::Measured {
        time_ns, samples, ..
    } = estimate(&selector, &candidate)
    else {
        panic!("{:?}", estimate(&selector, &candidate));
    };
    assert!(samples <= 60, "what is stale is not counted: {samples}");
    assert!(time_ns.get() > 600.0, "{time_ns}");

    // Three times of today outweigh all of it.
    left_by(dir.path(), what, version, here, &[1000.0; 3]);
    let found = recalled(dir.path());
    assert_eq!(found.here.len(), 1);
    let tally = found.here[0].tally;
    assert!(!tally.is_stale());
    assert!((tally.mean().unwrap().exp() / 1000.0 - 1.0).abs() < 1e-6);
}

#[test]
fn another_version_of_a_kernel_is_a_guess_and_no_evidence() {
    let dir = tempfile::tempdir().unwrap();
    let (candidate, version) = a_copier();
    let params = candidate.params.to_string();
    let (what, here) = ((COPIER, &params[..]), env!("CARGO_PKG_VERSION"));
    left_by(dir.path(), what, version + 1, here, &[500.0; 1000]);
    let found = recalled(dir.path());
    assert!(found.here[0].tally.is_stale());
    let machine = kernelwise::probe::machine();
    let kernels = kernelwise_cpu::kernels().unwrap();
    let times = evidence(&machine, &kernels, &calibration(), &found.here).unwrap();
    assert_eq!(times, []);
    let selector = copier();
    assert_eq!(selector.recall(&found.here).known, 1);
    let prior = estimate(&selector, &candidate);
    assert!(matches!(prior, Estimate::Prior { .. }), "{prior:?}");
}

#[test]
fn what_says_nothing_here_is_counted_by_reason() {
    let dir = tempfile::tempdir().unwrap();
    let here = env!("CARGO_PKG_VERSION");
    left_by(dir.path(), ("cpu-copy-f32-gone", ""), 1, here, &[1000.0]);
    left_by(dir.path(), ("cpu-copy-f32-lost", ""), 1, here, &[1000.0]);
    let found = recalled(dir.path());
    let ignored: Vec<_> = found.ignored.into_iter().collect();
    assert_eq!(ignored, [("no such kernel here", 2)]);
    assert_eq!(found.set_aside, 2);
}

/// A file too large to be checked when it is opened, with damaged pages: a program starts all the same, and remembers from then on.
#[test]
fn a_large_damaged_file_does_not_stop_a_program() {
    let dir = tempfile::tempdir().unwrap();
    let machine = kernelwise::probe::machine();
    {
        let store = Store::open(dir.path(), Options::new(clock())).unwrap();
        let place = Arc::new(Place::of(&machine, "0.1.0"));
        for i in 0..16_000 {
            let key = SeriesKey::new(place.clone(), format!("{i:0200}"), "k", 1, "");
            store.record(store.slot(&key), Sample::timed(Nanos::from_u64(1)));
        }
        store.flush().unwrap();
    }
    let file = dir.path().join("records.sqlite");
    let mut bytes = std::fs::read(&file).unwrap();
    let length = bytes.len();
    assert!(length > 4 << 20);
    bytes[length / 2..length / 4 * 3].fill(0x5a);
    std::fs::write(&file, &bytes).unwrap();
    let open = || Kernelwise::builder().remember(dir.path()).build().unwrap();
    let first = open();
    report(first.selector(), 1000);
    drop(first);
    let (_, estimate) = chosen(&open(), 1000);
    assert!(
        matches!(estimate, Estimate::Measured { .. }),
        "{estimate:?}"
    );
    let names = std::fs::read_dir(dir.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    // Its log may be set aside with it.
    let is_file = |name: &String| name.contains("damaged") && !name.ends_with("-wal");
    let names = names.filter(|name| is_file(name) && !name.ends_with("-shm"));
    assert_eq!(names.count(), 1);
}

#[test]
fn a_program_describes_its_machine_and_keeps_what_was_measured_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let builder = Kernelwise::builder().remember(dir.path());
    drop(builder.calibration(calibration()).build().unwrap());
    let machine = kernelwise::probe::machine();
    let store = Store::open(dir.path(), Options::new(clock())).unwrap();
    let here = Fingerprint::of(&machine);
    let machines = store.machines().unwrap();
    assert_eq!(machines.len(), 1);
    assert_eq!(machines[0].0, here);
    assert_eq!(store.calibrations().unwrap(), [(here, calibration())]);
}

#[test]
fn models_of_other_machines_times_are_fitted_beside_and_used_the_next_time() {
    let dir = tempfile::tempdir().unwrap();
    let machine = kernelwise::probe::machine();
    let there = other(&machine);
    let kernels = kernelwise_cpu::kernels().unwrap();
    let theirs = Arc::new(Memory::open(dir.path(), &there, clock()).unwrap());
    theirs.keep_calibration(&calibration());
    let selector = Selector::builder(there, kernels.clone())
        .observer(Arc::clone(&theirs) as _)
        .background(false)
        .build()
        .unwrap();
    for elements in (0..14).map(|i| 500 + 777 * i) {
        report(&selector, elements);
    }
    theirs.store().unwrap().flush().unwrap();
    let here = Arc::new(Memory::open(dir.path(), &machine, clock()).unwrap());
    let found = here.recall(&kernels, Some(&calibration())).unwrap();
    assert_eq!(here.latest_models(&found.elsewhere).kinds().count(), 0);
    here.fit_beside(&found.elsewhere, 1);
    // Fitting takes a second or so; nobody but this test waits for it.
    let kept = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        here.store().unwrap().flush().unwrap();
        here.latest_models(&found.elsewhere).kinds().count() == 1
    });
    assert!(kept);
}

/// Counts warnings.
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn models_that_cannot_be_used_are_said_and_fitted_anew() {
    let dir = tempfile::tempdir().unwrap();
    let machine = kernelwise::probe::machine();
    let kernels = kernelwise_cpu::kernels().unwrap();
    let memory = Arc::new(Memory::open(dir.path(), &machine, clock()).unwrap());
    memory.keep_calibration(&calibration());
    let selector = Selector::builder(machine.clone(), kernels.clone())
        .observer(Arc::clone(&memory) as _)
        .background(false)
        .build()
        .unwrap();
    for elements in (0..14).map(|i| 500 + 777 * i) {
        report(&selector, elements);
    }
    let store = memory.store().unwrap();
    store.flush().unwrap();
    let found = memory.recall(&kernels, Some(&calibration())).unwrap();
    let times = evidence(&machine, &kernels, &calibration(), &found.here).unwrap();
    let fitted = memory.models(&times, 1);
    let kind = fitted.kinds().next().unwrap().kind;
    let (note, here) = (format!("forecast {kind}"), Fingerprint::of(&machine));
    let good = store.model(&here, &note).unwrap();
    assert_eq!(good, None, "notes are written in the background");
    store.flush().unwrap();
    let good = store.model(&here, &note).unwrap().unwrap();
    let mut newer = good.clone();
    newer["format"] = serde_json::json!(999);
    let damaged = serde_json::json!({"format": good["format"], "digest": "?"});
    for bad in [newer, damaged] {
        store.keep_model(&here, &note, bad);
        store.flush().unwrap();
        // Another process begins.
        let later = Memory::open(dir.path(), &machine, clock()).unwrap();
        let warnings = Arc::new(AtomicUsize::new(0));
        tracing::subscriber::with_default(Warnings(Arc::clone(&warnings)), || {
            assert_eq!(later.latest_models(&times).kinds().count(), 0);
            assert_eq!(later.models(&times, 1), fitted);
        });
        assert_eq!(warnings.load(Ordering::SeqCst), 1);
        later.store().unwrap().flush().unwrap();
        assert_eq!(later.latest_models(&times), fitted);
    }
}

#[test]
fn single_runs_say_what_was_predicted_and_failures_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let machine = kernelwise::probe::machine();
    let kernels = kernelwise_cpu::kernels().unwrap();
    let memory = Arc::new(Memory::open(dir.path(), &machine, clock()).unwrap());
    let tree = kernelwise::probe::Tree::system();
    let mut state = kernelwise::probe::StateReader::new(tree).look(0);
    state.cpu_utilisation = Reading::Known(Share::new(0.25).unwrap());
    memory.set_state(&state);
    let selector = Selector::builder(machine, kernels)
        .calibration(calibration())
        .observer(Arc::clone(&memory) as _)
        .background(false)
        .build()
        .unwrap();
    report(&selector, 1000);
    let ticket = selector.select(&copy(1000)).unwrap();
    let candidate = selector.candidate(&ticket).unwrap();
    let evidence = "panicked".to_owned();
    selector.report(ticket, &Went::Badly { evidence }).unwrap();
    let store = memory.store().unwrap();
    store.flush().unwrap();
    let known = store.known_anywhere().unwrap();
    let failed = known.iter().filter(|one| one.statistics.failed() > 0);
    let failed: Vec<_> = failed.map(|one| one.key.kernel.to_string()).collect();
    assert_eq!(failed, [candidate.kernel.to_string()]);
    let mut samples = known
        .iter()
        .flat_map(|one| store.samples(&one.key).unwrap());
    let sample = samples.next().unwrap();
    assert!(sample.predicted_ns.unwrap() > 0.0, "{sample:?}");
    assert_eq!(sample.conditions.cpu_utilisation, Share::new(0.25).ok());
}

#[test]
fn how_a_directory_is_kept_can_be_set() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::new(clock());
    options.most_series = 100;
    options.durability = Durability::PowerCut;
    let kw = Kernelwise::builder().remember_with(dir.path(), options);
    let kw = kw.background(false).build().unwrap();
    for elements in 1..=200 {
        report(kw.selector(), 10 * elements);
        kw.memory().unwrap().store().unwrap().flush().unwrap();
    }
    let kept = kw.memory().unwrap().store().unwrap().kept().unwrap();
    assert!(kept.series <= 200, "{kept:?}");
    assert_eq!(kept.last_s, Some(NOW_S), "the clock is the caller's");
}
