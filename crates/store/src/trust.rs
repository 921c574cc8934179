//! How far a record is believed here.
//!
//! | the record was made | it counts as |
//! |---|---|
//! | on this kind of machine, under this software, by this version of the kernel | measured |
//! | the same, but under another driver, release or library, or by another version of the kernel | stale: a guess that is worth at most two samples, so a few calls verify it; where there is something measured, that alone counts |
//! | on another machine of the same architecture, by this version of the kernel | a prior whose weight falls with the distance: evidence for models |
//! | on another architecture, on a machine nobody described, by a kernel that is not here, by another version of it on another machine | ignored, and listed |
//!
//! The distance is that of the facts that make kernels fast or slow, as differences of logarithms: threads, caches, vector width,
//! and, where both were calibrated, peak and bandwidth; and the share of instruction sets that only one of them has. A fact that only
//! one side knows counts as a factor of 1.6: a doubt, not a difference. The weights are a judgement, not a fit.

use std::collections::{BTreeMap, HashMap};

use kernelwise_types::calibration::{AccessPattern, MemoryPlace};
use kernelwise_types::{Calibration, DType, Fingerprint, Machine};
use serde::Serialize;

use crate::error::StoreError;
use crate::place::Place;
use crate::store::{Known, Store};

/// What a fact that only one side knows adds, in ln.
const DOUBT: f64 = 0.5;
/// The weight of what is stale: half of what was measured. No prior weighs more.
const STALE: f64 = 0.5;
/// How many samples all that is stale is worth at the most.
const MOST_STALE: f64 = 2.0;

/// How far a record is believed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// It is as if it had been measured just now.
    Measured,
    /// Something changed since: a guess, to be verified.
    Stale {
        /// What.
        why: &'static str,
    },
    /// It is from a machine that is more or less like this one.
    Prior {
        /// How far it is from this one: 0 is alike, 1 a factor of e in one fact.
        distance: f64,
        /// How many samples here one of its samples is worth, below 0.5.
        weight: f64,
    },
    /// It says nothing about this machine.
    Ignored {
        /// Why.
        why: &'static str,
    },
}

impl Trust {
    /// How many samples measured here one of its samples is worth: between 0 and 1.
    pub fn weight(self) -> f64 {
        match self {
            Self::Measured => 1.0,
            Self::Stale { .. } => STALE,
            Self::Prior { weight, .. } => weight,
            Self::Ignored { .. } => 0.0,
        }
    }

    /// How many samples measured here so many of its samples are worth together.
    pub fn worth(self, samples: f64) -> f64 {
        let worth = samples * self.weight();
        match self {
            Self::Stale { .. } => worth.min(MOST_STALE),
            Self::Measured | Self::Prior { .. } | Self::Ignored { .. } => worth,
        }
    }
}

/// This machine, as records are compared with it.
#[derive(Debug, Clone)]
pub struct Here {
    /// The place that records made here have.
    pub place: Place,
    /// The machine.
    pub machine: Machine,
    /// How fast it can be, if that was measured.
    pub calibration: Option<Calibration>,
}

/// A machine as far as it is compared.
type Described<'a> = (&'a Machine, Option<&'a Calibration>);

/// How unlike two machines are for kernels; `None` between architectures, which share none.
///
/// Zero for alike, and symmetric.
pub fn distance(a: Described<'_>, b: Described<'_>) -> Option<f64> {
    if a.0.cpu.arch != b.0.cpu.arch {
        return None;
    }
    let (ours, theirs) = (facts(a), facts(b));
    let apart = |(a, b): (&Option<f64>, &Option<f64>)| match (a, b) {
        (Some(a), Some(b)) => (a / b).ln(),
        (None, None) => 0.0,
        _ => DOUBT,
    };
    let mut squares: f64 = ours
        .iter()
        .zip(&theirs)
        .map(apart)
        .map(|d| if d.is_finite() { d * d } else { DOUBT })
        .sum();
    let (ours, theirs) = (&a.0.cpu.isa, &b.0.cpu.isa);
    let both = ours.iter().filter(|isa| theirs.contains(isa)).count() as f64;
    let any = ours.len() as f64 + theirs.len() as f64 - both;
    if any > 0.0 {
        let alone = 1.0 - both / any;
        squares += alone * alone;
    }
    Some(squares.sqrt())
}

/// Positive numbers that kernels depend on, in one order; `None` where unknown.
fn facts((machine, calibration): Described<'_>) -> [Option<f64>; 8] {
    let cache = |level: u8| {
        let all = machine.caches.known()?.iter();
        let size = all
            .filter(|c| c.level == level)
            .map(|c| c.size_bytes.0)
            .max()?;
        Some(size as f64)
    };
    let peak = calibration.and_then(|c| c.peak(DType::F32, 1));
    let dram = calibration.and_then(|c| c.best_bandwidth(MemoryPlace::Dram, AccessPattern::Read));
    [
        Some(f64::from(machine.cpu.logical.max(1))),
        machine
            .cpu
            .cores
            .known()
            .map(|cores| f64::from((*cores).max(1))),
        machine.cpu.vector_bits().map(f64::from),
        cache(1),
        cache(2),
        cache(3),
        peak.map(|peak| peak.rate.value.get()),
        dram.map(|dram| dram.rate.value.get()),
    ]
}

impl Here {
    /// How far records of a place are believed here, as far as that depends on the place; `there` is its machine, if
    /// anybody described it.
    pub fn trust(&self, place: &Place, there: Option<(&Machine, Option<&Calibration>)>) -> Trust {
        if place.fingerprint == self.place.fingerprint {
            return match self.place.environment.difference(&place.environment) {
                None => Trust::Measured,
                Some(why) => Trust::Stale { why },
            };
        }
        let Some(there) = there else {
            return Trust::Ignored {
                why: "nobody described its machine",
            };
        };
        match distance((&self.machine, self.calibration.as_ref()), there) {
            None => Trust::Ignored {
                why: "another architecture",
            },
            Some(distance) => Trust::Prior {
                distance,
                weight: STALE * (-distance).exp(),
            },
        }
    }
}

/// The version of a kernel counts on top of the place.
fn with_version(trust: Trust, recorded: u32, current: Option<u32>) -> Trust {
    match (trust, current) {
        (Trust::Ignored { .. }, _) => trust,
        (_, None) => Trust::Ignored {
            why: "no such kernel here",
        },
        (_, Some(current)) if current == recorded => trust,
        (Trust::Prior { .. }, _) => Trust::Ignored {
            why: "another version of the kernel, on another machine",
        },
        (Trust::Measured | Trust::Stale { .. }, _) => Trust::Stale {
            why: "another version of the kernel",
        },
    }
}

/// What is known, and how far it is believed here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recalled {
    /// What can be used.
    pub usable: Vec<(Known, Trust)>,
    /// How many series are ignored, by reason.
    pub ignored: BTreeMap<&'static str, u64>,
}

impl Recalled {
    /// Judges series by where they come from. `version_of` says which version of a kernel is here, `None` for one that is
    /// not.
    pub fn judge(
        known: impl IntoIterator<Item = Known>,
        here: &Here,
        machines: &HashMap<Fingerprint, Machine>,
        calibrations: &HashMap<Fingerprint, Calibration>,
        version_of: impl Fn(&str) -> Option<u32>,
    ) -> Self {
        let mut recalled = Self::default();
        let mut places: HashMap<_, Trust> = HashMap::new();
        for known in known {
            let place = &known.key.place;
            let trust = *places.entry(place.clone()).or_insert_with(|| {
                let calibration = calibrations.get(&place.fingerprint);
                let there = machines.get(&place.fingerprint);
                here.trust(place, there.map(|machine| (machine, calibration)))
            });
            match with_version(trust, known.key.version, version_of(&known.key.kernel)) {
                Trust::Ignored { why } => *recalled.ignored.entry(why).or_default() += 1,
                trust => recalled.usable.push((known, trust)),
            }
        }
        recalled
    }
}

impl Store {
    /// All that is known, judged by how far it is believed on this machine. What a program reads when it starts.
    pub fn recall(
        &self,
        here: &Here,
        version_of: impl Fn(&str) -> Option<u32>,
    ) -> Result<Recalled, StoreError> {
        let machines = self.machines()?.into_iter().collect();
        let calibrations = self.calibrations()?.into_iter().collect();
        let known = self.known_anywhere()?;
        Ok(Recalled::judge(
            known,
            here,
            &machines,
            &calibrations,
            version_of,
        ))
    }
}

#[cfg(test)]
mod tests {
    use kernelwise_types::machine::{Cache, Cpu, Hypervisor, Isa, Limits};
    use kernelwise_types::units::Bytes;
    use kernelwise_types::{Machine, Reading};
    use proptest::prelude::*;

    use super::*;
    use crate::key::SeriesKey;
    use crate::statistics::{Happened, Statistics};

    fn machine(arch: &str, threads: u32, l2_kib: u64, isa: &[Isa]) -> Machine {
        let cache = |level, kib: u64| Cache {
            level,
            unified: true,
            size_bytes: Bytes(kib * 1024),
            line_bytes: Reading::Known(64),
            ways: Reading::Known(8),
            shared_by: Reading::Known(1),
            instances: Reading::Known(1),
        };
        Machine {
            cpu: Cpu {
                arch: arch.into(),
                vendor: Reading::Known("Example".into()),
                model: Reading::Known("Example 3000".into()),
                signature: Reading::unknown("test"),
                logical: threads,
                cores: Reading::Known(threads),
                threads_per_core: Reading::Known(1),
                packages: Reading::Known(1),
                isa: isa.to_vec(),
                tsc: Reading::unknown("test"),
                max_frequency: Reading::unknown("test"),
            },
            caches: Reading::Known(vec![cache(1, 32), cache(2, l2_kib)]),
            numa: Reading::unknown("test"),
            memory: Reading::Known(Bytes(1 << 34)),
            limits: Limits {
                affinity: Reading::unknown("test"),
                cpu_quota: Reading::Known(None),
                memory: Reading::Known(None),
            },
            hypervisor: Reading::Known(Hypervisor::None),
            os: "linux".into(),
            kernel: Reading::Known("6.18.0".into()),
        }
    }

    fn here() -> Here {
        let machine = machine("x86_64", 8, 512, &[Isa::Sse2, Isa::Avx2]);
        Here {
            place: Place::of(&machine, "0.1.0"),
            machine,
            calibration: None,
        }
    }

    #[test]
    fn the_same_place_is_measured_and_another_driver_stale() {
        let here = here();
        assert_eq!(here.trust(&here.place, None), Trust::Measured);
        let changes: [fn(&mut Place); 3] = [
            |p| p.environment.driver = Some("vendor 2".into()),
            |p| p.environment.release = Some("6.19.0".into()),
            |p| p.environment.library = "0.2.0".into(),
        ];
        for change in changes {
            let mut place = here.place.clone();
            change(&mut place);
            assert!(
                matches!(here.trust(&place, None), Trust::Stale { .. }),
                "{place:?}"
            );
        }
    }

    #[test]
    fn what_is_stale_is_worth_little_however_much_there_is() {
        let stale = Trust::Stale { why: "test" };
        assert_eq!(stale.worth(1.0), 0.5);
        assert_eq!(stale.worth(1e9), 2.0);
        assert_eq!(Trust::Measured.worth(1e9), 1e9);
    }

    #[test]
    fn the_less_alike_the_less_weight() {
        let here = here();
        let isa = [Isa::Sse2, Isa::Avx2];
        // Each step further away in one more fact.
        let others = [
            machine("x86_64", 8, 1024, &isa),
            machine("x86_64", 16, 1024, &isa),
            machine("x86_64", 16, 1024, &[Isa::Sse2]),
            machine("x86_64", 128, 1024, &[Isa::Sse2]),
        ];
        let weights: Vec<f64> = others
            .iter()
            .map(|other| {
                let trust = here.trust(&Place::of(other, "0.1.0"), Some((other, None)));
                assert!(matches!(trust, Trust::Prior { .. }), "{trust:?}");
                trust.weight()
            })
            .collect();
        assert!(weights.is_sorted_by(|a, b| a > b), "{weights:?}");
        assert!(weights[0] < STALE && weights[3] > 0.0, "{weights:?}");

        let mut hidden = others[0].clone();
        hidden.caches = Reading::unknown("hidden");
        let known = distance((&here.machine, None), (&here.machine, None));
        let doubted = distance((&here.machine, None), (&hidden, None));
        assert_eq!(known, Some(0.0));
        assert!(doubted > known, "what is hidden is a doubt");
    }

    #[test]
    fn what_says_nothing_here_is_ignored_and_listed() {
        let here = here();
        let arm = machine("aarch64", 8, 512, &[Isa::Neon]);
        let near = machine("x86_64", 16, 512, &[Isa::Sse2, Isa::Avx2]);
        let unknown = crate::key::tests::place("00112233aabbccdd");
        let known = |place: &Place, kernel: &str, version| {
            let mut statistics = Statistics::default();
            statistics.push(Happened::Failed, 1);
            let place = std::sync::Arc::new(place.clone());
            let key = SeriesKey::new(place, "matmul f32 2x2x2", kernel, version, "");
            Known { key, statistics }
        };
        let all = [
            known(&Place::of(&arm, "0.1.0"), "here", 1),
            known(&unknown, "here", 1),
            known(&here.place, "gone", 1),
            known(&here.place, "here", 1),
            known(&here.place, "changed", 1),
            known(&Place::of(&near, "0.1.0"), "changed", 1),
        ];
        let machines = [(Fingerprint::of(&arm), arm), (Fingerprint::of(&near), near)];
        let machines = machines.into_iter().collect();
        let version_of = |kernel: &str| match kernel {
            "here" => Some(1),
            "changed" => Some(2),
            _ => None,
        };
        let recalled = Recalled::judge(all, &here, &machines, &HashMap::new(), version_of);
        let usable: Vec<_> = recalled
            .usable
            .iter()
            .map(|(known, trust)| (&*known.key.kernel, *trust))
            .collect();
        let why = "another version of the kernel";
        // Changing one kernel leaves the others as they were.
        assert_eq!(
            usable,
            [("here", Trust::Measured), ("changed", Trust::Stale { why })]
        );
        let ignored: Vec<_> = recalled.ignored.into_iter().collect();
        let expected = [
            ("another architecture", 1),
            ("another version of the kernel, on another machine", 1),
            ("no such kernel here", 1),
            ("nobody described its machine", 1),
        ];
        assert_eq!(ignored, expected);
    }

    proptest! {
        #[test]
        fn distance_is_symmetric(threads in (1u32..256, 1u32..256), l2 in (1u64..10_000, 1u64..10_000)) {
            let a = machine("x86_64", threads.0, l2.0, &[Isa::Sse2]);
            let b = machine("x86_64", threads.1, l2.1, &[Isa::Sse2, Isa::Avx]);
            let (there, back) = (distance((&a, None), (&b, None)), distance((&b, None), (&a, None)));
            prop_assert!((there.unwrap() - back.unwrap()).abs() < 1e-12);
            prop_assert!(there.unwrap() > 0.0);
        }
    }
}
