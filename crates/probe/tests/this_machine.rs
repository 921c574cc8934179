//! The machine the tests run on, whatever it is: answers must fit each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kernelwise_probe::{Sampler, SamplerOptions, pin};

#[test]
fn the_description_is_consistent() {
    let machine = kernelwise_probe::machine();
    let logical = machine.cpu.logical;
    assert!(logical >= 1);
    assert!((1..=logical).contains(&machine.usable_threads()));
    assert_eq!(machine.os, std::env::consts::OS);
    assert_eq!(machine.cpu.arch, std::env::consts::ARCH);
    assert!(machine.cpu.isa.is_sorted());
    if let Some(&cores) = machine.cpu.cores.known() {
        assert!((1..=logical).contains(&cores));
        if let Some(&threads) = machine.cpu.threads_per_core.known() {
            assert!(cores * threads >= logical);
        }
        if let Some(&packages) = machine.cpu.packages.known() {
            assert!((1..=cores).contains(&packages));
        }
    }
    if let Some(caches) = machine.caches.known() {
        assert!(caches.is_sorted_by_key(|cache| cache.level));
        assert!(caches.iter().all(|cache| cache.size_bytes.0 >= 1024));
    }
    if let (Some(nodes), Some(memory)) = (machine.numa.known(), machine.memory.known()) {
        let nodes: u64 = nodes
            .iter()
            .filter_map(|node| Some(node.memory.known()?.0))
            .sum();
        assert!(
            nodes <= memory.0 + memory.0 / 10,
            "{nodes} in nodes of {memory}"
        );
        assert!(machine.usable_memory().unwrap() <= *memory);
    }
    // On Linux with an ordinary /proc there is no excuse for not knowing these.
    if std::fs::exists("/proc/cpuinfo").unwrap_or(false) {
        assert!(
            machine.cpu.vendor.known().is_some(),
            "{:?}",
            machine.cpu.vendor
        );
        assert!(machine.memory.known().is_some(), "{:?}", machine.memory);
        assert!(machine.kernel.known().is_some(), "{:?}", machine.kernel);
    }
    if cfg!(target_arch = "x86_64") {
        assert!(machine.cpu.vector_bits().unwrap() >= 128);
        assert!(
            machine.hypervisor.known().is_some(),
            "{:?}",
            machine.hypervisor
        );
    }
    let text = serde_json::to_string(&machine).unwrap();
    let back: kernelwise_types::Machine = serde_json::from_str(&text).unwrap();
    assert_eq!((back.cpu, back.limits), (machine.cpu, machine.limits));
}

#[test]
fn a_burning_core_is_seen() {
    const PATIENCE: Duration = Duration::from_secs(120);
    let options = SamplerOptions {
        period: Duration::from_millis(50),
        ..SamplerOptions::default()
    };
    let sampler = Sampler::start(options).unwrap();
    let stop = AtomicBool::new(false);
    let (highest, processors, look) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let mut highest: Option<f64> = None;
        let mut processors = 1;
        for look in 2..12 {
            if !sampler.wait_for_looks(look, PATIENCE) {
                break;
            }
            let load = sampler.load().utilisation().map(|share| share.get());
            highest = highest.into_iter().chain(load).reduce(f64::max);
            if let Some(each) = sampler.look().state.per_cpu_utilisation.known() {
                processors = each.len();
            }
        }
        stop.store(true, Ordering::Relaxed);
        (highest, processors, sampler.look())
    });
    assert!(sampler.looks() >= 2, "the sampler stands still");
    let Some(highest) = highest else {
        kernelwise_testing::skip(
            "proc",
            look.state.cpu_utilisation.reason().unwrap_or_default(),
        );
        return;
    };
    // One of the processors was busy all the time, or the machine was so full that it had to wait.
    let least = 0.5 / processors as f64;
    assert!(highest >= least, "{highest} of {processors} processors");
}

/// Waiting is not the same as load: one busy task on an idle machine keeps nobody waiting, two that share
/// a processor always do.
#[test]
fn two_tasks_on_one_core_show_as_waiting() {
    let Ok(cpus) = pin::allowed() else {
        return kernelwise_testing::skip("pin", "threads cannot be bound to a processor here");
    };
    let options = SamplerOptions {
        period: Duration::from_millis(200),
        ..SamplerOptions::default()
    };
    let sampler = Sampler::start(options).unwrap();
    let stop = AtomicBool::new(false);
    let (highest, look) = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let _pinned = pin::current_thread_to(cpus[0]).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let mut highest: Option<f64> = None;
        for number in 2..7 {
            if !sampler.wait_for_looks(number, Duration::from_secs(120)) {
                break;
            }
            let pressure = sampler
                .look()
                .state
                .cpu_pressure
                .known()
                .map(|share| share.get());
            highest = highest.into_iter().chain(pressure).reduce(f64::max);
        }
        stop.store(true, Ordering::Relaxed);
        (highest, sampler.look())
    });
    match highest {
        // One of the two waits nearly all the time; the rest is room for the start.
        Some(highest) => assert!(highest > 0.5, "two tasks on one core, yet {highest}"),
        None => {
            let reason = look.state.cpu_pressure.reason().unwrap_or_default();
            kernelwise_testing::skip("psi", reason);
        }
    }
}
