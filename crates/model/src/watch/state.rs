//! What the machine was doing while a kernel ran.

use serde::{Deserialize, Serialize};

/// Something that is read off the machine and may slow a kernel down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reading {
    /// Cores that others keep busy, as a share of all; more than 1 if they queue.
    Load,
    /// The clock of the cores as a share of the highest they have: where it falls below what is usual, something holds it back.
    Clock,
    /// The temperature of the processor in °C.
    Temperature,
    /// The share of memory in use.
    MemoryPressure,
}

impl Reading {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Load,
        Self::Clock,
        Self::Temperature,
        Self::MemoryPressure,
    ];

    /// The name, as it is reported.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Clock => "clock",
            Self::Temperature => "temperature",
            Self::MemoryPressure => "memory pressure",
        }
    }
}

/// The readings at one moment; those without a sensor are absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SystemState {
    /// See [`Reading::Load`].
    pub load: Option<f64>,
    /// See [`Reading::Clock`].
    pub clock: Option<f64>,
    /// See [`Reading::Temperature`].
    pub temperature: Option<f64>,
    /// See [`Reading::MemoryPressure`].
    pub memory_pressure: Option<f64>,
}

impl SystemState {
    /// All of them, in the order of [`Reading::ALL`]: two states are of one look at the machine if these are the same.
    pub(super) fn readings(&self) -> [Option<f64>; Reading::ALL.len()] {
        Reading::ALL.map(|reading| self.get(reading))
    }

    /// One of the readings. What a sensor says that is no finite number is as good as no sensor.
    pub fn get(&self, reading: Reading) -> Option<f64> {
        let value = match reading {
            Reading::Load => self.load,
            Reading::Clock => self.clock,
            Reading::Temperature => self.temperature,
            Reading::MemoryPressure => self.memory_pressure,
        };
        value.filter(|value| value.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reading_has_its_field_and_broken_sensors_have_none() {
        let state = SystemState {
            load: Some(0.5),
            clock: Some(0.9),
            temperature: Some(f64::NAN),
            memory_pressure: Some(f64::INFINITY),
        };
        assert_eq!(
            Reading::ALL.map(|reading| state.get(reading)),
            [Some(0.5), Some(0.9), None, None]
        );
        let names = Reading::ALL.map(Reading::name);
        assert_eq!(names, ["load", "clock", "temperature", "memory pressure"]);
    }
}
