//! Fingerprints: what must be the same before a measurement from one machine counts on another.

use std::fmt;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// Identifies a kind of machine, never a single one: processor, cores, caches, instruction sets and
/// hypervisor. Host names, serial numbers, addresses and users are not in it, so records may be shared.
/// Memory size and kernel release are left out because kernels run at the same speed across them;
/// affinity masks and quotas, because they bound the number of threads, which is a parameter of its
/// own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint(String);

/// Length in hexadecimal digits: 64 bits tell a fleet's kinds of machine apart.
const DIGITS: usize = 16;

/// A text that is not a fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a fingerprint: expected {DIGITS} hexadecimal digits")]
pub struct InvalidFingerprint {
    text: String,
}

impl Fingerprint {
    /// The fingerprint of a machine.
    pub fn of(machine: &Machine) -> Self {
        let hash = blake3::hash(facts(machine).as_bytes());
        Self(hash.to_hex()[..DIGITS].to_owned())
    }

    /// The hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The facts in one canonical text. What is unknown counts as `?`: a machine that hides its caches is
/// not the same as one that shows them.
fn facts(machine: &Machine) -> String {
    let cpu = &machine.cpu;
    let known = |reading: Option<String>| reading.unwrap_or_else(|| "?".to_owned());
    let mut text = String::from("kernelwise.fingerprint/1");
    let mut fact = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{name}={value}");
    };
    fact("arch", cpu.arch.clone());
    fact("vendor", known(cpu.vendor.known().cloned()));
    fact("model", known(cpu.model.known().cloned()));
    fact(
        "signature",
        known(cpu.signature.known().map(ToString::to_string)),
    );
    fact("threads", cpu.logical.to_string());
    fact("cores", known(cpu.cores.known().map(ToString::to_string)));
    let mut isa: Vec<&str> = cpu.isa.iter().map(|isa| isa.name()).collect();
    isa.sort_unstable();
    fact("isa", isa.join(","));
    let caches = machine.caches.known().map(|caches| {
        let sizes: Vec<_> = caches
            .iter()
            .map(|c| format!("L{}:{}", c.level, c.size_bytes.0))
            .collect();
        sizes.join(",")
    });
    fact("caches", known(caches));
    fact(
        "hypervisor",
        known(machine.hypervisor.known().map(ToString::to_string)),
    );
    text
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = InvalidFingerprint;

    fn try_from(text: String) -> Result<Self, InvalidFingerprint> {
        let hexadecimal = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() == DIGITS && text.bytes().all(hexadecimal) {
            Ok(Self(text))
        } else {
            Err(InvalidFingerprint { text })
        }
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::machine;
    use crate::machine::{Cache, Hypervisor, Isa};
    use crate::{Reading, units::Bytes};

    #[test]
    fn every_fact_that_changes_speed_changes_the_fingerprint() {
        let base = Fingerprint::of(&machine());
        assert_eq!(
            base,
            Fingerprint::of(&machine()),
            "same facts, same fingerprint"
        );
        let changes: [fn(&mut Machine); 8] = [
            |m| m.cpu.arch = "aarch64".into(),
            |m| m.cpu.vendor = Reading::Known("AuthenticAMD".into()),
            |m| m.cpu.model = Reading::unknown("hidden"),
            |m| m.cpu.isa.retain(|isa| *isa != Isa::Avx2),
            |m| m.cpu.logical = 4,
            |m| m.cpu.cores = Reading::Known(1),
            |m| {
                m.caches = std::mem::replace(&mut m.caches, Reading::unknown("")).map(
                    |mut caches: Vec<Cache>| {
                        caches[0].size_bytes = Bytes(1);
                        caches
                    },
                );
            },
            |m| m.hypervisor = Reading::Known(Hypervisor::None),
        ];
        for (position, change) in changes.iter().enumerate() {
            let mut other = machine();
            change(&mut other);
            assert_ne!(base, Fingerprint::of(&other), "change {position}");
        }
    }

    #[test]
    fn what_does_not_change_speed_does_not() {
        let mut other = machine();
        other.memory = Reading::Known(Bytes(1 << 40));
        other.kernel = Reading::Known("7.0".into());
        other.limits.cpu_quota = Reading::Known(Some(0.5));
        other.limits.affinity = Reading::Known(1);
        assert_eq!(Fingerprint::of(&machine()), Fingerprint::of(&other));
    }

    #[test]
    fn text_round_trips_and_garbage_is_refused() {
        let fingerprint = Fingerprint::of(&machine());
        assert_eq!(
            Fingerprint::try_from(fingerprint.to_string()).unwrap(),
            fingerprint
        );
        for text in ["", "0123", "0123456789abcdeg", "0123456789ABCDEF"] {
            assert!(Fingerprint::try_from(text.to_owned()).is_err(), "{text:?}");
        }
    }
}
