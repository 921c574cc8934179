//! What a recommendation looks at in the state of the machine, and nothing else.
//!
//! A [`SystemState`] has more readings than anybody can answer for, and most of them change with every look. What is read here is
//! rounded to what can change an answer, so that equal situations have equal recommendations and a cache of them is hit.
//!
//! | reading | effect |
//! |---|---|
//! | utilisation of each processor; run queue | threads: none on processors that others use; how work is cut |
//! | memory available | what does not fit is not recommended on the host |
//! | temperature | a limit on it is kept, or refused |
//! | throttling, power mode, battery | how much time is given up to keep fewer units busy: [`Situation::patience`] |
//!
//! Nodes of memory (NUMA) are not looked at: operands lie where the caller put them, and no kernel here moves them or binds threads to
//! a node.
//!
//! Not read, because nothing here would follow from them: load average and pressures (the utilisation says it sooner), steal (part of the
//! utilisation), power (that of the machine, not of a call), frequency (part of what is measured).

use kernelwise_types::state::PowerMode;
use kernelwise_types::units::{Bytes, Celsius};
use kernelwise_types::{Backend, SystemState};
use serde::{Deserialize, Serialize};

use super::constraints::Constraints;

/// What of the machine's state bears on a recommendation. Equal situations have equal answers.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Situation {
    /// Processors of the machine that are in use. By whom is not known: ask before the own work begins.
    pub busy_processors: u32,
    /// Memory of the host that can be had, rounded down to four binary digits; `None` if unknown.
    #[serde(rename = "memory_available_bytes")]
    pub memory: Option<Bytes>,
    /// The hottest sensor of the processor, rounded up to whole degrees; `None` if unknown.
    pub temperature_c: Option<i32>,
    /// Whether the processor throttles itself.
    pub throttling: bool,
    /// Whether the machine runs from a battery.
    pub on_battery: bool,
    /// Whether power management aims at low power.
    pub power_save: bool,
}

impl Situation {
    /// What the state says. Unknown readings are no load, no battery, no throttling.
    pub fn of(state: &SystemState) -> Self {
        Self {
            busy_processors: busy(state),
            memory: state.memory_available.known().map(|&memory| coarse(memory)),
            temperature_c: state.temperature.known().map(|&t| degrees(t)),
            throttling: state.throttling.known() == Some(&true),
            on_battery: state.battery.known().is_some_and(|b| b.discharging),
            power_save: state.power_mode.known() == Some(&PowerMode::PowerSave),
        }
    }

    /// The same without what these limits do not ask about, so that a degree more is not another situation.
    pub(super) fn under(state: &SystemState, constraints: &Constraints) -> Self {
        let all = Self::of(state);
        Self {
            temperature_c: constraints.temperature.and(all.temperature_c),
            ..all
        }
    }

    /// How much slower than the fastest a recommendation may be if it keeps fewer units busy for it: 1 is not at all. The factors are
    /// a guess at what people accept: a tenth where the processor slows itself down anyway, a quarter on battery, half
    /// where power management was told to save. The largest counts; that the processor throttles itself is nothing to other
    /// devices.
    pub fn patience(&self, backend: Backend) -> f64 {
        let each = [
            (self.throttling && backend == Backend::Cpu, 1.1),
            (self.on_battery, 1.25),
            (self.power_save, 1.5),
        ];
        let asked = each.into_iter().filter(|(asked, _)| *asked);
        asked.map(|(_, factor)| factor).fold(1.0, f64::max)
    }
}

/// Processors in use: the busy shares added up, or the tasks that run or wait besides this one, whichever is more.
fn busy(state: &SystemState) -> u32 {
    let each = state.per_cpu_utilisation.known();
    let shares = each.map(|each| each.iter().map(|share| share.get()).sum::<f64>());
    let used = shares.map_or(0, |busy| busy.round() as u32);
    let queued = state.run_queue.known().map_or(0, |n| n.saturating_sub(1));
    used.max(queued)
}

/// Rounded down to four binary digits: a ninth at most is given away, and small changes are none.
fn coarse(memory: Bytes) -> Bytes {
    let digits = u64::BITS - memory.0.leading_zeros();
    let dropped = digits.saturating_sub(4);
    Bytes(memory.0 >> dropped << dropped)
}

fn degrees(temperature: Celsius) -> i32 {
    temperature.get().ceil() as i32
}
