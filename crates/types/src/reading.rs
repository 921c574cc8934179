//! A value the machine may decline to tell.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A value read from the machine, or the reason why there is none.
///
/// A value that may be null itself does not survive JSON inside a reading: write a word for it, as
/// [`Limits`](crate::machine::Limits) does.
///
/// Unknown is not zero: a virtual machine without a thermal sensor has no temperature, and a reader
/// of the report should learn why rather than see a number nobody measured.
///
/// ```
/// use kernelwise_types::Reading;
///
/// let temperature: Reading<f64> = Reading::unknown("no sensor under /sys/class/thermal");
/// assert_eq!(temperature.known(), None);
/// assert_eq!(temperature.reason(), Some("no sensor under /sys/class/thermal"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    from = "Wire<T>",
    into = "Wire<T>",
    bound(serialize = "T: Clone + Serialize")
)]
pub enum Reading<T> {
    /// The machine told.
    Known(T),
    /// It did not; the text says why, in words for a person.
    Unknown(Cow<'static, str>),
}

impl<T> Reading<T> {
    /// No value, and why.
    pub fn unknown(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Unknown(reason.into())
    }

    /// The value, if there is one.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }

    /// Why there is no value; `None` when there is one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Known(_) => None,
            Self::Unknown(reason) => Some(reason),
        }
    }

    /// The same reading in another form.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Self::Known(value) => Reading::Known(f(value)),
            Self::Unknown(reason) => Reading::Unknown(reason),
        }
    }

    /// A further step that may itself find nothing.
    pub fn and_then<U>(self, f: impl FnOnce(T) -> Reading<U>) -> Reading<U> {
        match self {
            Self::Known(value) => f(value),
            Self::Unknown(reason) => Reading::Unknown(reason),
        }
    }
}

impl<T, E: fmt::Display> From<Result<T, E>> for Reading<T> {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(value) => Self::Known(value),
            Err(error) => Self::Unknown(error.to_string().into()),
        }
    }
}

impl<T: fmt::Display> fmt::Display for Reading<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(value) => value.fmt(f),
            Self::Unknown(reason) => write!(f, "unknown ({reason})"),
        }
    }
}

/// The JSON form: `{"value": 3}` or `{"value": null, "reason": "…"}`.
#[derive(Serialize, Deserialize)]
struct Wire<T> {
    value: Option<T>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'static, str>>,
}

impl<T> From<Wire<T>> for Reading<T> {
    fn from(wire: Wire<T>) -> Self {
        match wire.value {
            Some(value) => Self::Known(value),
            None => Self::Unknown(wire.reason.unwrap_or(Cow::Borrowed("no reason recorded"))),
        }
    }
}

impl<T> From<Reading<T>> for Wire<T> {
    fn from(reading: Reading<T>) -> Self {
        match reading {
            Reading::Known(value) => Self {
                value: Some(value),
                reason: None,
            },
            Reading::Unknown(reason) => Self {
                value: None,
                reason: Some(reason),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_says_null_and_why() {
        let known = Reading::Known(3);
        let unknown: Reading<i32> = Reading::unknown("no sensor");
        assert_eq!(serde_json::to_string(&known).unwrap(), r#"{"value":3}"#);
        assert_eq!(
            serde_json::to_string(&unknown).unwrap(),
            r#"{"value":null,"reason":"no sensor"}"#
        );
        for reading in [known, unknown] {
            let text = serde_json::to_string(&reading).unwrap();
            assert_eq!(
                serde_json::from_str::<Reading<i32>>(&text).unwrap(),
                reading
            );
        }
    }

    #[test]
    fn steps_keep_the_first_reason() {
        let missing: Reading<u32> = Reading::unknown("first");
        assert_eq!(
            missing
                .map(|v| v + 1)
                .and_then(|_| Reading::<u8>::unknown("second"))
                .reason(),
            Some("first")
        );
        assert_eq!(Reading::Known(1).map(|v| v + 1).known(), Some(&2));
        assert_eq!(
            Reading::from("x".parse::<u8>()).reason(),
            Some("invalid digit found in string")
        );
    }
}
