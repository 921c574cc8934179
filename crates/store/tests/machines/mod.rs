//! Machines that do not exist, and what they know.
#![allow(dead_code, unreachable_pub)] // not every test file uses all of it
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

use std::path::Path;
use std::sync::Arc;

use kernelwise_store::fleet::{Fleet, FleetOptions};
use kernelwise_store::{Here, Place, SeriesKey, Store};
use kernelwise_types::Reading;
use kernelwise_types::machine::{Cpu, Limits, Machine};

use crate::shared::{open, record};

pub fn machine(arch: &str, threads: u32) -> Machine {
    Machine {
        cpu: Cpu {
            arch: arch.into(),
            vendor: Reading::Known("Example".into()),
            model: Reading::Known("Example 3000".into()),
            signature: Reading::unknown("hidden"),
            logical: threads,
            cores: Reading::Known(threads),
            threads_per_core: Reading::Known(1),
            packages: Reading::Known(1),
            isa: vec![],
            tsc: Reading::unknown("hidden"),
            max_frequency: Reading::unknown("hidden"),
        },
        caches: Reading::Known(vec![]),
        numa: Reading::unknown("hidden"),
        memory: Reading::unknown("hidden"),
        limits: Limits {
            affinity: Reading::unknown("hidden"),
            cpu_quota: Reading::Known(None),
            memory: Reading::Known(None),
        },
        hypervisor: Reading::unknown("hidden"),
        os: "linux".into(),
        kernel: Reading::Known("6.18.0".into()),
    }
}

pub fn here(machine: &Machine) -> Here {
    Here {
        place: Place::of(machine, "0.1.0"),
        machine: machine.clone(),
        calibration: None,
    }
}

pub fn key_on(machine: &Machine, workload: &str) -> SeriesKey {
    SeriesKey::new(
        Arc::new(Place::of(machine, "0.1.0")),
        workload,
        "cpu-k",
        1,
        "threads=1",
    )
}

pub fn connect(url: &str) -> Fleet {
    Fleet::connect(&FleetOptions::new(url)).unwrap()
}

/// A store that knows so many series, each of two samples.
pub fn filled(dir: &Path, machine: &Machine, series: u32) -> Store {
    let store = open(dir);
    for i in 0..series {
        record(&store, &key_on(machine, &format!("w{i}")), 2);
    }
    store.describe(machine);
    store.flush().unwrap();
    store
}
