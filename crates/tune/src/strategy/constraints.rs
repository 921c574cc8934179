//! What a caller asks of a recommendation beyond being fast.
//!
//! A limit is kept by what is recommended or it is refused by name. What nobody knows cannot be promised: a limit on power where
//! no power was ever measured is refused, not assumed to hold.

use kernelwise_types::Numerics;
use kernelwise_types::units::{Bytes, Celsius, Nanos, Watts};
use serde::{Deserialize, Serialize};

use super::priced::{Infeasible, Limit};
use super::recommendation::Prediction;
use super::situation::Situation;

/// Limits on a recommendation. By default there are none, results may differ by the order of sums, and one call is expected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Constraints {
    /// Most memory of a call: operands and scratch.
    #[serde(rename = "memory_bytes")]
    pub memory: Option<Bytes>,
    /// Most power while it runs.
    #[serde(rename = "power_w")]
    pub power: Option<Watts>,
    /// Highest temperature of the device: nothing is recommended while it is hotter.
    #[serde(rename = "temperature_c")]
    pub temperature: Option<Celsius>,
    /// Longest time expected of a warm call.
    pub latency_ns: Option<Nanos>,
    /// Fewest calls per second, one after the other.
    pub throughput_per_s: Option<f64>,
    /// Most energy of a call, in joules.
    pub energy_j: Option<f64>,
    /// A call that comes again and again and has to be done in time.
    pub real_time: Option<RealTime>,
    /// How exact results must be at the least.
    pub numerics: Numerics,
    /// Calls that are expected: what is paid once is shared out among them.
    pub calls: u64,
}

/// A call every `period_ns` that has to be done `deadline_ns` after it began.
///
/// The deadline counts as kept where the upper end of the 90 % interval keeps it: one call in twenty may be later. A hard promise
/// cannot be had from times that were observed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RealTime {
    /// From one call to the next.
    pub period_ns: Nanos,
    /// From the start of a call to its end; not longer than the period, or calls would pile up.
    pub deadline_ns: Nanos,
}

impl Default for Constraints {
    fn default() -> Self {
        Self {
            memory: None,
            power: None,
            temperature: None,
            latency_ns: None,
            throughput_per_s: None,
            energy_j: None,
            real_time: None,
            numerics: Numerics::Reordered,
            calls: 1,
        }
    }
}

/// Limits that nothing could keep.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConstraintError {
    /// A number that is none, or that leaves no call.
    #[error("a limit of {value} on {limit} leaves nothing: it must be finite and above zero")]
    Value {
        /// What it limits.
        limit: Limit,
        /// The number.
        value: f64,
    },
    /// No calls are expected, so there is nothing to recommend for.
    #[error("0 calls need no recommendation: expect at least one")]
    NoCalls,
    /// Two limits that exclude each other.
    #[error("{first} and {second} contradict each other: {why}")]
    Contradictory {
        /// One.
        first: Limit,
        /// The other; the same where both ends are of one limit.
        second: Limit,
        /// In words.
        why: String,
    },
}

impl Constraints {
    /// Whether anything could keep them.
    pub fn check(&self) -> Result<(), ConstraintError> {
        let limits = [
            (Limit::Memory, self.memory.map(|bytes| bytes.0 as f64)),
            (Limit::Power, self.power.map(Watts::get)),
            (Limit::Latency, self.latency_ns.map(Nanos::get)),
            (Limit::Throughput, self.throughput_per_s),
            (Limit::Energy, self.energy_j),
            (Limit::RealTime, self.real_time.map(|r| r.period_ns.get())),
            (Limit::RealTime, self.real_time.map(|r| r.deadline_ns.get())),
        ];
        for (limit, value) in limits {
            if let Some(value) = value
                && !(value.is_finite() && value > 0.0)
            {
                return Err(ConstraintError::Value { limit, value });
            }
        }
        if self.calls == 0 {
            return Err(ConstraintError::NoCalls);
        }
        let Some(RealTime {
            period_ns,
            deadline_ns,
        }) = self.real_time
        else {
            return Ok(());
        };
        if deadline_ns > period_ns {
            return Err(ConstraintError::Contradictory {
                first: Limit::RealTime,
                second: Limit::RealTime,
                why: format!("calls come every {period_ns} and may take {deadline_ns}"),
            });
        }
        match self.throughput_per_s {
            Some(rate) if rate * period_ns.seconds() > 1.0 => Err(ConstraintError::Contradictory {
                first: Limit::Throughput,
                second: Limit::RealTime,
                why: format!(
                    "{rate} calls per second do not come where one comes every {period_ns}"
                ),
            }),
            _ => Ok(()),
        }
    }

    /// The same for a device that needs `transfer_ns` of every call to move operands there and results back. Refused where
    /// the way alone takes too long, or costs energy that nobody knows.
    pub fn after_transfer(&self, transfer_ns: Nanos) -> Result<Self, Infeasible> {
        let way = transfer_ns.get();
        if way == 0.0 {
            return Ok(self.clone());
        }
        if self.energy_j.is_some() {
            let why = "cannot be promised: the energy of moving the operands is unknown";
            return Err(Infeasible::new(Limit::Energy, why));
        }
        let left = |limit: Limit, allowed: f64| {
            let too_long = || {
                let why = format!("moving the operands alone takes {transfer_ns}");
                Infeasible::new(limit, why)
            };
            let left = Nanos::new(allowed - way).ok();
            left.filter(|left| left.get() > 0.0).ok_or_else(too_long)
        };
        let mut rest = self.clone();
        if let Some(latency) = self.latency_ns {
            rest.latency_ns = Some(left(Limit::Latency, latency.get())?);
        }
        if let Some(rate) = self.throughput_per_s {
            let each = left(Limit::Throughput, 1e9 / rate)?;
            rest.throughput_per_s = Some(1e9 / each.get());
        }
        if let Some(real_time) = self.real_time {
            rest.real_time = Some(RealTime {
                period_ns: left(Limit::RealTime, real_time.period_ns.get())?,
                deadline_ns: left(Limit::RealTime, real_time.deadline_ns.get())?,
            });
        }
        Ok(rest)
    }

    /// Every limit that a prediction breaks. `host` says whether the situation is that of the device.
    pub(super) fn broken(
        &self,
        prediction: &Prediction,
        situation: &Situation,
        host: bool,
    ) -> Vec<Infeasible> {
        let mut broken = Vec::new();
        let mut refuse = |limit, why: String| broken.push(Infeasible::new(limit, why));
        let needs = prediction.memory;
        if let Some(most) = self.memory.filter(|most| needs > *most) {
            refuse(Limit::Memory, format!("needs {needs}, {most} are allowed"));
        } else if let Some(free) = situation.memory.filter(|free| host && needs > *free) {
            refuse(
                Limit::Memory,
                format!("needs {needs}, about {free} can be had"),
            );
        }
        if let Some(most) = self.power {
            match prediction.power {
                None => refuse(Limit::Power, unknown("power")),
                Some(power) if power > most => {
                    refuse(Limit::Power, format!("draws {power}, {most} are allowed"));
                }
                Some(_) => {}
            }
        }
        if let Some(most) = self.temperature {
            match situation.temperature_c.filter(|_| host) {
                None => refuse(Limit::Temperature, unknown("temperature")),
                Some(now) if f64::from(now) > most.get() => {
                    refuse(
                        Limit::Temperature,
                        format!("{now} °C now, {most} are allowed"),
                    );
                }
                Some(_) => {}
            }
        }
        let time = prediction.time_ns;
        if let Some(most) = self.latency_ns.filter(|most| time > *most) {
            refuse(Limit::Latency, format!("takes {time}, {most} are allowed"));
        }
        let rate = 1e9 / time.get();
        if let Some(fewest) = self.throughput_per_s.filter(|fewest| rate < *fewest) {
            let why = format!("{rate:.3} calls per second, {fewest} are asked for");
            refuse(Limit::Throughput, why);
        }
        if let Some(most) = self.energy_j {
            match prediction.energy_j() {
                None => refuse(Limit::Energy, unknown("power, and so its energy,")),
                Some(energy) if energy > most => {
                    let why = format!("takes {energy:.3} J, {most} J are allowed");
                    refuse(Limit::Energy, why);
                }
                Some(_) => {}
            }
        }
        if let Some(real_time) = self.real_time {
            let (late, deadline) = (prediction.interval_ns.high(), real_time.deadline_ns);
            if late > deadline {
                let why = format!(
                    "one call in twenty takes longer than {late}, the deadline is {deadline}"
                );
                refuse(Limit::RealTime, why);
            }
        }
        broken
    }

    /// All of it in a form that can be compared: equal keys, equal answers.
    pub(super) fn key(&self) -> ConstraintsKey {
        let bits = |value: Option<f64>| value.map(f64::to_bits);
        ConstraintsKey {
            numbers: [
                self.memory.map(|bytes| bytes.0),
                bits(self.power.map(Watts::get)),
                bits(self.temperature.map(Celsius::get)),
                bits(self.latency_ns.map(Nanos::get)),
                bits(self.throughput_per_s),
                bits(self.energy_j),
                bits(self.real_time.map(|r| r.period_ns.get())),
                bits(self.real_time.map(|r| r.deadline_ns.get())),
            ],
            numerics: self.numerics,
            calls: self.calls,
        }
    }
}

/// Constraints bit by bit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ConstraintsKey {
    numbers: [Option<u64>; 8],
    numerics: Numerics,
    calls: u64,
}

fn unknown(what: &str) -> String {
    format!("cannot be promised: its {what} is unknown here")
}
