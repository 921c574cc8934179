//! `kernelwise probe`: what this machine is, how it is doing, and how fast it can be.

use std::thread;
use std::time::Duration;

use kernelwise_measure::{Clock, TscClock};
use kernelwise_probe::{StateReader, Tree};
use kernelwise_types::machine::{Cache, Cpu, Hypervisor, Limits, NumaNode};
use kernelwise_types::units::Bytes;
use kernelwise_types::{Calibration, Device, Fingerprint, Machine, Reading, SystemState};
use serde::Serialize;

use super::calibration;
use crate::args::{self, Format};
use crate::exit::Failure;
use crate::{ceilings, output};

pub(super) mod watch;

/// Long enough for the kernel's counters, which tick a hundred times a second.
const BETWEEN_LOOKS: Duration = Duration::from_millis(300);

#[derive(Serialize)]
struct Document<'a> {
    kernelwise_version: &'static str,
    fingerprint: Fingerprint,
    cpu: &'a Cpu,
    caches: &'a Reading<Vec<Cache>>,
    memory: Memory<'a>,
    numa: &'a Reading<Vec<NumaNode>>,
    limits: &'a Limits,
    hypervisor: &'a Reading<Hypervisor>,
    os: &'a str,
    kernel: &'a Reading<String>,
    devices: Vec<Device>,
    state: &'a SystemState,
    calibration: Calibrated,
}

/// The figures, or null with the reason why there are none.
#[derive(Serialize)]
#[serde(untagged)]
enum Calibrated {
    Yes(calibration::Document),
    No(Reading<()>),
}

#[derive(Serialize)]
struct Memory<'a> {
    installed_bytes: &'a Reading<Bytes>,
    usable_bytes: Reading<Bytes>,
}

/// Shows the machine.
pub(crate) fn run(args: &args::Probe) -> Result<(), Failure> {
    let clock = TscClock::new();
    let machine = kernelwise_probe::machine();
    let (_, state) = state_now(&clock);
    let calibrated = args
        .calibrate
        .then(|| ceilings::measured(&machine, Duration::from_secs_f64(args.budget)))
        .transpose()?;
    match args.format {
        Format::Json => output::json(
            "kernelwise.probe/1",
            &document(&machine, &state, calibrated.as_ref()),
        ),
        Format::Table => output::text(&table(&machine, &state, calibrated.as_ref())),
    }
}

/// Two looks, so that there is an interval for shares to cover. The reader may look on.
pub(super) fn state_now(clock: &dyn Clock) -> (StateReader, SystemState) {
    let mut reader = StateReader::new(Tree::system());
    reader.look(clock.now());
    thread::sleep(BETWEEN_LOOKS);
    let state = reader.look(clock.now());
    (reader, state)
}

fn document<'a>(
    machine: &'a Machine,
    state: &'a SystemState,
    calibrated: Option<&Calibration>,
) -> Document<'a> {
    let not_asked = || Calibrated::No(Reading::unknown("not measured: ask with --calibrate"));
    Document {
        kernelwise_version: env!("CARGO_PKG_VERSION"),
        fingerprint: Fingerprint::of(machine),
        cpu: &machine.cpu,
        caches: &machine.caches,
        memory: Memory {
            installed_bytes: &machine.memory,
            usable_bytes: machine.usable_memory().map_or(
                Reading::unknown("neither memory nor limit is known"),
                Reading::Known,
            ),
        },
        numa: &machine.numa,
        limits: &machine.limits,
        hypervisor: &machine.hypervisor,
        os: &machine.os,
        kernel: &machine.kernel,
        devices: vec![Device::host(machine)],
        state,
        calibration: calibrated
            .map_or_else(not_asked, |c| Calibrated::Yes(calibration::document(c))),
    }
}

fn table(machine: &Machine, state: &SystemState, calibrated: Option<&Calibration>) -> String {
    let heading = format!("machine {}", Fingerprint::of(machine));
    let mut text = output::section(&heading, &machine_rows(machine));
    text += &output::section("devices", &device_rows(&[Device::host(machine)]));
    text += &output::section("state", &state_rows(state));
    if let Some(calibration) = calibrated {
        text += &calibration::table(calibration);
    }
    text
}

/// A limit in words; `none` when none is set.
pub(super) fn limit<T: ToString + Clone>(reading: &Reading<Option<T>>) -> String {
    let words = |limit: Option<T>| limit.map_or("none".to_owned(), |limit| limit.to_string());
    reading.clone().map(words).to_string()
}

type Rows = Vec<(String, String)>;

fn row(name: &str, value: impl ToString) -> (String, String) {
    (name.to_owned(), value.to_string())
}

fn machine_rows(machine: &Machine) -> Rows {
    let cpu = &machine.cpu;
    let mut rows = vec![
        row("processor", &cpu.model),
        row("maker", &cpu.vendor),
        row("signature", &cpu.signature),
        row(
            "threads",
            format!("{} usable of {}", machine.usable_threads(), cpu.logical),
        ),
        row("cores", &cpu.cores),
        row("threads per core", &cpu.threads_per_core),
        row("packages", &cpu.packages),
        row(
            "vectors",
            cpu.vector_bits()
                .map_or("none".to_owned(), |bits| format!("{bits} bits")),
        ),
        row(
            "instructions",
            cpu.isa
                .iter()
                .map(|isa| isa.name())
                .collect::<Vec<_>>()
                .join(" "),
        ),
        row("counter clock", &cpu.tsc),
        row("highest clock", &cpu.max_frequency),
    ];
    match &machine.caches {
        Reading::Known(caches) => rows.extend(caches.iter().map(cache_row)),
        Reading::Unknown(reason) => rows.push(row("caches", format!("unknown ({reason})"))),
    }
    rows.push(row("memory", &machine.memory));
    match &machine.numa {
        Reading::Known(nodes) => rows.push(row("memory nodes", nodes.len())),
        Reading::Unknown(reason) => rows.push(row("memory nodes", format!("unknown ({reason})"))),
    }
    rows.push(row("processor quota", limit(&machine.limits.cpu_quota)));
    rows.push(row("memory limit", limit(&machine.limits.memory)));
    rows.push(row("hypervisor", &machine.hypervisor));
    let kernel = machine
        .kernel
        .known()
        .map_or(String::new(), |release| format!(" {release}"));
    rows.push(row(
        "system",
        format!("{}{kernel} on {}", machine.os, cpu.arch),
    ));
    rows
}

fn cache_row(cache: &Cache) -> (String, String) {
    let shared = cache
        .shared_by
        .known()
        .map_or("sharing unknown".to_owned(), |by| match by {
            1 => "one per thread".to_owned(),
            by => format!("shared by {by} threads"),
        });
    row(
        &format!("L{} cache", cache.level),
        format!("{}, {shared}", cache.size_bytes),
    )
}

fn device_rows(devices: &[Device]) -> Rows {
    let describe = |device: &Device| {
        row(
            device.backend.name(),
            format!(
                "{}, {} threads at once, {}",
                device.name, device.compute_units, device.memory
            ),
        )
    };
    devices.iter().map(describe).collect()
}

fn state_rows(state: &SystemState) -> Rows {
    let battery = state.battery.clone().map(|battery| {
        let source = if battery.discharging {
            "on battery"
        } else {
            "on mains"
        };
        format!("{} {source}", battery.charge)
    });
    let throttling = state
        .throttling
        .clone()
        .map(|yes| if yes { "yes" } else { "no" });
    vec![
        row("utilisation", &state.cpu_utilisation),
        row("waiting for CPU", &state.cpu_pressure),
        row("waiting for memory", &state.memory_pressure),
        row("waiting for disk", &state.io_pressure),
        row("run queue", &state.run_queue),
        row("load, 1 min", &state.load_1min),
        row("steal", &state.steal),
        row("memory available", &state.memory_available),
        row("temperature", &state.temperature),
        row("throttling", throttling),
        row("power", &state.power),
        row("battery", battery),
        row(
            "power mode",
            state.power_mode.clone().map(|mode| mode.name()),
        ),
        row("clock", &state.frequency),
    ]
}
