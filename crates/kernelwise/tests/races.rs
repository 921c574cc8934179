//! Records of different hours, and a race that says how candidates compare in the same one.
#![cfg(feature = "records")]
#![allow(clippy::unwrap_used)]

use std::path::Path;

use kernelwise::Workload;
use kernelwise::memory::{Memory, Raced};
use kernelwise::store::{Export, Prune, WallClock, Wisdom};
use kernelwise::types::{Candidate, Machine};

const NOW_S: u64 = 1_800_000_000;
const QUICK: &str = "pack_a=0";
const TUNED: &str = "pack_a=1";

fn machine() -> Machine {
    kernelwise_probe::machine()
}

fn memory(dir: &Path) -> Memory {
    Memory::open(dir, &machine(), WallClock::new(|| NOW_S)).unwrap()
}

fn workload() -> Workload {
    "matmul f32 200x200x200".parse().unwrap()
}

/// A setting of a kernel that is there on any machine, in its present version.
fn setting(params: &str) -> (Candidate, u32) {
    let kernels = kernelwise_cpu::kernels().unwrap();
    let id = "cpu-matmul-f32-packed-portable";
    let kernel = kernels.iter().find(|one| one.spec().id.as_str() == id);
    let candidate = Candidate {
        kernel: id.parse().unwrap(),
        params: params.parse().unwrap(),
    };
    (candidate, kernel.unwrap().spec().version)
}

fn keep(memory: &Memory, params: &str, ms: f64, times: usize) {
    let (candidate, version) = setting(params);
    let times = vec![1e6 * ms; times];
    memory.keep(&workload().to_string(), &candidate, version, &times);
    memory.store().unwrap().flush().unwrap();
}

fn race(memory: &Memory, entrants: &[(&str, f64)]) {
    race_for(memory, entrants, 15);
}

/// The same with so many turns.
fn race_for(memory: &Memory, entrants: &[(&str, f64)], turns: usize) {
    let raced = entrants.iter().map(|(params, ms)| {
        let (candidate, version) = setting(params);
        Raced {
            candidate,
            version,
            times_ns: vec![1e6 * ms; turns],
        }
    });
    let kernels = kernelwise_cpu::kernels().unwrap();
    let raced: Vec<Raced> = raced.collect();
    memory.keep_race(&workload(), &kernels, &raced).unwrap();
    memory.store().unwrap().flush().unwrap();
}

/// What is remembered of a setting, in milliseconds.
fn recalled(memory: &Memory, params: &str) -> f64 {
    let kernels = kernelwise_cpu::kernels().unwrap();
    let found = memory.recall(&kernels, None).unwrap();
    let (candidate, _) = setting(params);
    let it = found.here.iter().find(|one| one.candidate == candidate);
    it.unwrap().tally.mean().unwrap().exp() / 1e6
}

/// One was measured in a quick hour and one in a slow one, and then both in the same.
fn raced(dir: &Path) -> Memory {
    let memory = memory(dir);
    keep(&memory, QUICK, 1.37, 20);
    keep(&memory, TUNED, 1.60, 20);
    assert!(recalled(&memory, QUICK) < recalled(&memory, TUNED));
    race(&memory, &[(TUNED, 1.26), (QUICK, 1.30)]);
    memory
}

fn close(a: f64, b: f64) {
    assert!((a / b - 1.0).abs() < 1e-6, "{a} {b}");
}

#[test]
fn who_raced_is_remembered_as_in_the_race() {
    let dir = tempfile::tempdir().unwrap();
    let memory = raced(dir.path());
    let (tuned, quick) = (recalled(&memory, TUNED), recalled(&memory, QUICK));
    close(tuned / quick, 1.26 / 1.30);
    // How long such calls take is still what all of the record says.
    let all =
        (1.37f64.ln() * 20.0 + 1.30f64.ln() * 15.0 + 1.60f64.ln() * 20.0 + 1.26f64.ln() * 15.0)
            / 70.0;
    close((tuned * quick).sqrt(), all.exp());
}

#[test]
fn a_second_race_starts_from_the_record_itself() {
    let dir = tempfile::tempdir().unwrap();
    let memory = raced(dir.path());
    race(&memory, &[(TUNED, 1.5), (QUICK, 1.4)]);
    close(
        recalled(&memory, TUNED) / recalled(&memory, QUICK),
        1.5 / 1.4,
    );
}

/// One that nobody raced against, or that was broken off, says nothing, and takes nothing away.
#[test]
fn a_race_of_one_and_one_that_was_broken_off_change_nothing_that_was_told() {
    let dir = tempfile::tempdir().unwrap();
    let memory = raced(dir.path());
    let before = recalled(&memory, TUNED);
    race(&memory, &[]);
    race(&memory, &[(QUICK, 1.4)]);
    race_for(&memory, &[(QUICK, 9.0), ("pack_b=0", 1.0)], 1);
    close(recalled(&memory, TUNED), before);
    // Who was not in a later race keeps what the earlier one told.
    race(&memory, &[(QUICK, 1.3), ("pack_b=0", 1.2)]);
    close(recalled(&memory, TUNED), before);
}

/// A record that was deleted takes what was told of it along.
#[test]
fn a_new_record_is_not_corrected_by_what_was_told_of_an_old_one() {
    let dir = tempfile::tempdir().unwrap();
    let memory = raced(dir.path());
    let all = Prune {
        most_series: Some(0),
        ..Prune::default()
    };
    assert_eq!(memory.store().unwrap().prune(&all).unwrap().series, 2);
    keep(&memory, TUNED, 1.8, 5);
    close(recalled(&memory, TUNED), 1.8);
}

/// Weeks later few samples of today outweigh all that was there then, and the correction with it.
#[test]
fn what_is_told_fades_with_the_record() {
    let dir = tempfile::tempdir().unwrap();
    drop(raced(dir.path()));
    let later = WallClock::new(|| NOW_S + 10 * 7 * 86_400);
    let memory = Memory::open(dir.path(), &machine(), later).unwrap();
    keep(&memory, TUNED, 1.8, 10);
    let recalled = recalled(&memory, TUNED);
    assert!((1.795..1.8).contains(&recalled), "{recalled}");
}

#[test]
fn what_is_measured_later_outweighs_a_race() {
    let dir = tempfile::tempdir().unwrap();
    let memory = raced(dir.path());
    keep(&memory, TUNED, 1.8, 3_500);
    let later = recalled(&memory, TUNED);
    assert!((1.78..1.8).contains(&later), "{later}");
}

#[test]
fn races_travel_with_the_records() {
    let dir = tempfile::tempdir().unwrap();
    let memory = raced(dir.path());
    let exported = memory.store().unwrap().export(&Export::default()).unwrap();
    let (wisdom, left_out) = Wisdom::from_bytes(&exported.to_bytes(true)).unwrap();
    assert!(left_out.is_empty());
    let elsewhere = Memory::nowhere(&machine(), WallClock::new(|| NOW_S));
    let elsewhere = elsewhere.with_wisdom(wisdom).frozen();
    for params in [TUNED, QUICK] {
        close(recalled(&elsewhere, params), recalled(&memory, params));
    }
}
