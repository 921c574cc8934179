//! Where a measurement holds: the kind of machine, and the software between it and the kernel.

use std::fmt;

use kernelwise_types::{Fingerprint, Machine};
use serde::{Deserialize, Serialize};

/// The software a measurement was made under. When any of it changes, measurements become stale: still a good
/// guess, no longer a measurement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Environment {
    /// Operating system family, such as `linux`.
    pub os: String,
    /// The numbers of its kernel's release, such as `6.18.2`; what a distribution or an owner wrote behind them is
    /// left out, for it may name somebody.
    pub release: Option<String>,
    /// Driver of the device, with its version; `None` on the processor.
    pub driver: Option<String>,
    /// Version of the library whose kernels ran.
    pub library: String,
}

impl Environment {
    /// That of the processor of a machine, under this version of the library.
    ///
    /// ```
    /// # use kernelwise_store::Environment;
    /// # use kernelwise_types::{Machine, Reading};
    /// # fn check(mut machine: Machine) {
    /// machine.kernel = Reading::Known("6.18.2-annas-laptop".into());
    /// assert_eq!(Environment::of(&machine, "0.1.0").release.as_deref(), Some("6.18.2"));
    /// # }
    /// ```
    pub fn of(machine: &Machine, library: &str) -> Self {
        Self {
            os: machine.os.clone(),
            release: machine.kernel.known().and_then(|text| numbers(text)),
            driver: None,
            library: library.to_owned(),
        }
    }

    /// The same with a driver in between.
    #[must_use]
    pub fn with_driver(mut self, driver: &str) -> Self {
        self.driver = Some(driver.to_owned());
        self
    }

    /// What differs from another, in words; `None` if nothing does.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
        if self.os != other.os {
            Some("another operating system")
        } else if self.driver != other.driver {
            Some("another driver")
        } else if self.release != other.release {
            Some("another release of the operating system")
        } else if self.library != other.library {
            Some("another version of the library")
        } else {
            None
        }
    }
}

/// The leading numbers and dots of a release.
pub(crate) fn numbers(release: &str) -> Option<String> {
    let end = release
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(release.len());
    let numbers = release[..end].trim_end_matches('.');
    (!numbers.is_empty()).then(|| numbers.to_owned())
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.os, self.release.as_deref().unwrap_or("?"))?;
        if let Some(driver) = &self.driver {
            write!(f, ", {driver}")?;
        }
        write!(f, ", library {}", self.library)
    }
}

/// A kind of machine or device, with the software on it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The kind of machine or device.
    pub fingerprint: Fingerprint,
    /// The software.
    pub environment: Environment,
}

impl Place {
    /// The processor of a machine under this version of the library.
    pub fn of(machine: &Machine, library: &str) -> Self {
        Self {
            fingerprint: Fingerprint::of(machine),
            environment: Environment::of(machine, library),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_keep_their_numbers_and_lose_their_names() {
        for (release, kept) in [
            ("6.18.2", Some("6.18.2")),
            ("6.1.0-18-amd64", Some("6.1.0")),
            ("5.15.-bens-build", Some("5.15")),
            ("custom", None),
            ("", None),
        ] {
            assert_eq!(numbers(release).as_deref(), kept, "{release}");
        }
    }

    #[test]
    fn every_part_of_the_software_counts() {
        let base = Environment {
            os: "linux".into(),
            release: Some("6.1".into()),
            driver: Some("vendor 1".into()),
            library: "0.1.0".into(),
        };
        assert_eq!(base.difference(&base.clone()), None);
        let changes: [fn(&mut Environment); 4] = [
            |e| e.os = "macos".into(),
            |e| e.release = None,
            |e| e.driver = Some("vendor 2".into()),
            |e| e.library = "0.2.0".into(),
        ];
        for change in changes {
            let mut other = base.clone();
            change(&mut other);
            assert!(base.difference(&other).is_some(), "{other}");
        }
    }
}
