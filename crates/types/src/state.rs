//! How the machine is doing right now: the facts that change from second to second.

use serde::{Deserialize, Serialize};

use crate::reading::Reading;
use crate::units::{Bytes, Celsius, Hertz, Share, Watts};

/// One look at the machine, taken by the sampler of the probe.
///
/// Shares cover the interval since the look before. On the very first look there is no interval
/// yet, and they are unknown for that reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SystemState {
    /// Busy share of all logical processors, steal included: what is not idle is not ours to use.
    #[serde(rename = "cpu_utilisation_share")]
    pub cpu_utilisation: Reading<Share>,
    /// Busy share of each logical processor, in the order of the operating system.
    #[serde(rename = "per_cpu_utilisation_share")]
    pub per_cpu_utilisation: Reading<Vec<Share>>,
    /// Time the hypervisor gave to others while this machine wanted to run.
    #[serde(rename = "steal_share")]
    pub steal: Reading<Share>,
    /// Tasks running or waiting to run at this moment, this process included.
    #[serde(rename = "run_queue_tasks")]
    pub run_queue: Reading<u32>,
    /// Load average over one minute.
    #[serde(rename = "load_1min_tasks")]
    pub load_1min: Reading<f64>,
    /// Share of the interval in which some task waited for a processor (PSI `some`, taken from its
    /// total rather than from `avg10`, which lags by seconds).
    #[serde(rename = "cpu_pressure_share")]
    pub cpu_pressure: Reading<Share>,
    /// The same for memory.
    #[serde(rename = "memory_pressure_share")]
    pub memory_pressure: Reading<Share>,
    /// The same for input and output.
    #[serde(rename = "io_pressure_share")]
    pub io_pressure: Reading<Share>,
    /// Memory that can be had without swapping.
    #[serde(rename = "memory_available_bytes")]
    pub memory_available: Reading<Bytes>,
    /// The hottest processor sensor.
    #[serde(rename = "temperature_c")]
    pub temperature: Reading<Celsius>,
    /// Whether the processor throttled itself since the look before, by its own counters.
    pub throttling: Reading<bool>,
    /// Power of the processor packages (RAPL).
    #[serde(rename = "power_w")]
    pub power: Reading<Watts>,
    /// The battery, if the machine has one: unknown on machines without.
    pub battery: Reading<Battery>,
    /// What the frequency governor or platform profile aims at.
    pub power_mode: Reading<PowerMode>,
    /// Mean current clock of the cores.
    #[serde(rename = "frequency_hz")]
    pub frequency: Reading<Hertz>,
}

/// The state of a battery.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Battery {
    /// How full it is.
    #[serde(rename = "charge_share")]
    pub charge: Share,
    /// Whether the machine runs from it rather than from the mains.
    pub discharging: bool,
}

/// What the machine's power management aims at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PowerMode {
    /// Highest clocks (`performance`).
    Performance,
    /// Clocks follow the load (`schedutil`, `ondemand`, `balanced`, …).
    Balanced,
    /// Lowest clocks (`powersave` on old governors, `low-power`).
    PowerSave,
}

impl PowerMode {
    /// The name as in records and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Performance => "performance",
            Self::Balanced => "balanced",
            Self::PowerSave => "power_save",
        }
    }
}
