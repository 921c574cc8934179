//! Quantities with their units in the type, so that nanoseconds never meet bytes unnoticed.
//!
//! Counts ([`Bytes`], [`Flops`]) are exact integers. Measured quantities ([`Nanos`], [`FlopRate`],
//! [`ByteRate`], …) are floating point, and their constructors refuse NaN, infinities and negative
//! values: a quantity that exists is a number one can compute with.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A value that is not a quantity: negative, infinite or not a number.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{value} is not a valid {unit}: it must be finite and not negative")]
pub struct InvalidQuantity {
    value: f64,
    unit: &'static str,
}

/// Declares a finite, non-negative floating-point quantity.
macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $unit:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(try_from = "f64", into = "f64")]
        pub struct $name(f64);

        impl $name {
            /// Accepts `value` if it is finite and not negative.
            pub fn new(value: f64) -> Result<Self, InvalidQuantity> {
                if value.is_finite() && value >= 0.0 {
                    Ok(Self(value))
                } else {
                    Err(InvalidQuantity { value, unit: $unit })
                }
            }

            /// The bare number.
            pub const fn get(self) -> f64 {
                self.0
            }
        }

        impl TryFrom<f64> for $name {
            type Error = InvalidQuantity;
            fn try_from(value: f64) -> Result<Self, InvalidQuantity> {
                Self::new(value)
            }
        }

        impl From<$name> for f64 {
            fn from(quantity: $name) -> f64 {
                quantity.0
            }
        }
    };
}

quantity! {
    /// A duration in nanoseconds. Fractions occur: a short kernel is timed in batches.
    Nanos, "duration in ns"
}
quantity! {
    /// Arithmetic operations per second.
    FlopRate, "rate in FLOP/s"
}
quantity! {
    /// Bytes per second.
    ByteRate, "rate in B/s"
}
quantity! {
    /// A frequency in hertz.
    Hertz, "frequency in Hz"
}
quantity! {
    /// Power in watts.
    Watts, "power in W"
}

/// A temperature in degrees Celsius; unlike the other quantities it may be negative.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Celsius(f64);

impl Celsius {
    /// Accepts any finite temperature above absolute zero.
    pub fn new(value: f64) -> Result<Self, InvalidQuantity> {
        if value.is_finite() && value >= -273.15 {
            Ok(Self(value))
        } else {
            Err(InvalidQuantity {
                value,
                unit: "temperature in °C",
            })
        }
    }

    /// The bare number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Celsius {
    type Error = InvalidQuantity;
    fn try_from(value: f64) -> Result<Self, InvalidQuantity> {
        Self::new(value)
    }
}

impl From<Celsius> for f64 {
    fn from(quantity: Celsius) -> f64 {
        quantity.0
    }
}

/// A part of a whole, from 0 to 1: utilisation, pressure, steal.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Share(f64);

impl Share {
    /// Accepts a number from 0 to 1.
    pub fn new(value: f64) -> Result<Self, InvalidQuantity> {
        if (0.0..=1.0).contains(&value) {
            Ok(Self(value))
        } else {
            Err(InvalidQuantity {
                value,
                unit: "share (0 to 1)",
            })
        }
    }

    /// `part / whole`, or `None` when the whole is zero. Counters read one after the other can
    /// disagree by a tick, so a part slightly larger than its whole counts as all of it.
    pub fn of(part: u64, whole: u64) -> Option<Self> {
        (whole > 0).then(|| Self((part as f64 / whole as f64).min(1.0)))
    }

    /// The bare number, 0 to 1.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Share {
    type Error = InvalidQuantity;
    fn try_from(value: f64) -> Result<Self, InvalidQuantity> {
        Self::new(value)
    }
}

impl From<Share> for f64 {
    fn from(share: Share) -> f64 {
        share.0
    }
}

impl Nanos {
    /// From whole nanoseconds.
    pub const fn from_u64(nanos: u64) -> Self {
        Self(nanos as f64)
    }

    /// In seconds.
    pub fn seconds(self) -> f64 {
        self.0 / 1e9
    }
}

impl From<std::time::Duration> for Nanos {
    fn from(duration: std::time::Duration) -> Self {
        Self(duration.as_secs_f64() * 1e9)
    }
}

/// A number of bytes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A number of arithmetic operations; what counts as one is said at [`Cost`](crate::Cost).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Flops(pub u64);

impl Bytes {
    /// The rate at which these bytes moved in `time`; `None` when no time passed.
    pub fn per(self, time: Nanos) -> Option<ByteRate> {
        (time.0 > 0.0)
            .then(|| ByteRate(self.0 as f64 / time.seconds()))
            .filter(|r| r.0.is_finite())
    }
}

impl Flops {
    /// The rate at which this work was done in `time`; `None` when no time passed.
    pub fn per(self, time: Nanos) -> Option<FlopRate> {
        (time.0 > 0.0)
            .then(|| FlopRate(self.0 as f64 / time.seconds()))
            .filter(|r| r.0.is_finite())
    }
}

/// Writes `value` with three significant digits and the largest decimal prefix that keeps it at 1 or
/// more. Numbers that would round up to 1000 take the next prefix.
fn with_prefix(f: &mut fmt::Formatter<'_>, value: f64, unit: &str) -> fmt::Result {
    const PREFIXES: [(f64, &str); 6] = [
        (1e15, "P"),
        (1e12, "T"),
        (1e9, "G"),
        (1e6, "M"),
        (1e3, "k"),
        (1.0, ""),
    ];
    let fits = |(scale, _): &&(f64, &str)| value >= 0.9995 * scale;
    let (scale, prefix) = PREFIXES.iter().find(fits).unwrap_or(&(1.0, ""));
    significant(f, value / scale)?;
    write!(f, " {prefix}{unit}")
}

/// Three significant digits, without an exponent for the magnitudes that prefixes leave over.
fn significant(f: &mut fmt::Formatter<'_>, value: f64) -> fmt::Result {
    match value {
        v if v >= 99.95 || v == 0.0 => write!(f, "{v:.0}"),
        v if v >= 9.995 => write!(f, "{v:.1}"),
        v => write!(f, "{v:.2}"),
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            ns if ns < 0.9995e3 => (ns, "ns"),
            ns if ns < 0.9995e6 => (ns / 1e3, "µs"),
            ns if ns < 0.9995e9 => (ns / 1e6, "ms"),
            ns => (ns / 1e9, "s"),
        };
        significant(f, value)?;
        write!(f, " {unit}")
    }
}

impl fmt::Display for FlopRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_prefix(f, self.0, "FLOP/s")
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_prefix(f, self.0, "B/s")
    }
}

impl fmt::Display for Hertz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_prefix(f, self.0, "Hz")
    }
}

impl fmt::Display for Watts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} W", self.0)
    }
}

impl fmt::Display for Celsius {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} °C", self.0)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} %", self.0 * 100.0)
    }
}

impl fmt::Display for Flops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            few @ ..1000 => write!(f, "{few} FLOP"),
            many => with_prefix(f, many as f64, "FLOP"),
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] = [
            (1 << 40, "TiB"),
            (1 << 30, "GiB"),
            (1 << 20, "MiB"),
            (1 << 10, "KiB"),
        ];
        match UNITS.iter().find(|(scale, _)| self.0 >= *scale) {
            Some((scale, unit)) if self.0.is_multiple_of(*scale) => {
                write!(f, "{} {unit}", self.0 / scale)
            }
            Some((scale, unit)) => write!(f, "{:.1} {unit}", self.0 as f64 / *scale as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_refuse_what_cannot_be_computed_with() {
        for bad in [f64::NAN, f64::INFINITY, -1.0] {
            assert!(Nanos::new(bad).is_err());
            assert!(ByteRate::new(bad).is_err());
            assert!(Share::new(bad).is_err());
        }
        assert!(Share::new(1.01).is_err());
        assert!(Celsius::new(-300.0).is_err());
        assert_eq!(Celsius::new(-20.0).unwrap().get(), -20.0);
        let message = Nanos::new(-1.0).unwrap_err().to_string();
        assert_eq!(
            message,
            "-1 is not a valid duration in ns: it must be finite and not negative"
        );
        assert!(serde_json::from_str::<Nanos>("-5.0").is_err());
    }

    #[test]
    fn rates_follow_from_work_and_time() {
        let ms = Nanos::new(1e6).unwrap();
        assert_eq!(Flops(2_000_000).per(ms).unwrap().get(), 2e9);
        assert_eq!(Bytes(4_000_000).per(ms).unwrap().get(), 4e9);
        assert_eq!(Flops(1).per(Nanos::from_u64(0)), None);
        assert_eq!(Share::of(1, 0), None);
        assert_eq!(Share::of(3, 2).unwrap().get(), 1.0);
    }

    #[test]
    fn displays_read_like_a_person_would_write_them() {
        assert_eq!(FlopRate::new(103.6e9).unwrap().to_string(), "104 GFLOP/s");
        assert_eq!(ByteRate::new(9.87e9).unwrap().to_string(), "9.87 GB/s");
        assert_eq!(Nanos::new(12_345.0).unwrap().to_string(), "12.3 µs");
        assert_eq!(Nanos::new(0.5).unwrap().to_string(), "0.50 ns");
        assert_eq!(Bytes(48 * 1024).to_string(), "48 KiB");
        assert_eq!(Bytes(1536).to_string(), "1.5 KiB");
        assert_eq!(Share::new(0.256).unwrap().to_string(), "25.6 %");
        assert_eq!(Flops(268_435_456).to_string(), "268 MFLOP");
        assert_eq!(Flops(999_999).to_string(), "1.00 MFLOP");
        assert_eq!(Flops(999_499).to_string(), "999 kFLOP");
        assert_eq!(Flops(8).to_string(), "8 FLOP");
        assert_eq!(Nanos::new(999.6).unwrap().to_string(), "1.00 µs");
    }
}
