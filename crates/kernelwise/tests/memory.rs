//! What is learned outlives the process: in a directory, in a file compiled into the program, and on a server's way.
#![cfg(feature = "records")]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use kernelwise::memory::{Memory, evidence};
use kernelwise::select::{Mode, Selector, Went};
use kernelwise::store::{Export, StoreError, WallClock};
use kernelwise::types::calibration::{AccessPattern, Bandwidth, MemoryPlace};
use kernelwise::types::units::{ByteRate, Nanos};
use kernelwise::types::{Calibration, Estimate, Machine, Measured};
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
