//! Tuning parameters at the edges: in records, files and on the command line.
//!
//! Inside, each kernel family has a typed struct of its own. This is the form in which such a struct
//! travels: names with whole numbers, written `threads=2,tile=64`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Names with whole numbers, sorted by name; switches are 0 and 1. Two settings are the same exactly when
/// every name and number is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Params(BTreeMap<String, u64>);

/// Why a text is no set of parameters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidParams {
    /// A part that is not `name=number`.
    #[error("`{part}` is not a parameter: write name=number, such as threads=2")]
    Form {
        /// The part.
        part: String,
    },
    /// A name that stands twice.
    #[error("parameter `{name}` is given twice: keep one")]
    Twice {
        /// The name.
        name: String,
    },
}

impl Params {
    /// No parameters.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with one more. Names are lower case letters, digits and `_`, and stand once.
    pub fn with(mut self, name: &str, value: u64) -> Result<Self, InvalidParams> {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        if name.is_empty() || !name.bytes().all(allowed) {
            return Err(InvalidParams::Form {
                part: format!("{name}={value}"),
            });
        }
        match self.0.insert(name.to_owned(), value) {
            None => Ok(self),
            Some(_) => Err(InvalidParams::Twice {
                name: name.to_owned(),
            }),
        }
    }

    /// The number of a name.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

impl fmt::Display for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (name, value)) in self.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(f, "{comma}{name}={value}")?;
        }
        Ok(())
    }
}

impl FromStr for Params {
    type Err = InvalidParams;

    fn from_str(text: &str) -> Result<Self, InvalidParams> {
        let mut parts = text.split(',').filter(|_| !text.is_empty());
        parts.try_fold(Self::new(), |params, part| {
            let form = || InvalidParams::Form {
                part: part.to_owned(),
            };
            let (name, value) = part.split_once('=').ok_or_else(form)?;
            let digits = value.bytes().all(|b| b.is_ascii_digit());
            let value = value.parse().ok().filter(|_| digits).ok_or_else(form)?;
            params.with(name, value)
        })
    }
}

impl TryFrom<String> for Params {
    type Error = InvalidParams;
    fn try_from(text: String) -> Result<Self, InvalidParams> {
        text.parse()
    }
}

impl From<Params> for String {
    fn from(params: Params) -> Self {
        params.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_sorted_by_name() {
        let params: Params = "tile=64,threads=2".parse().unwrap();
        assert_eq!(params.to_string(), "threads=2,tile=64");
        assert_eq!(params.to_string().parse::<Params>().unwrap(), params);
        assert_eq!((params.get("tile"), params.get("unroll")), (Some(64), None));
        assert_eq!("".parse::<Params>().unwrap(), Params::new());
    }

    #[test]
    fn what_cannot_be_read_back_is_refused() {
        for text in [
            "threads",
            "threads=",
            "=2",
            "threads=-1",
            "threads=+1",
            "Threads=2",
            "a=1,,b=2",
            "a=99999999999999999999",
        ] {
            assert!(
                matches!(text.parse::<Params>(), Err(InvalidParams::Form { .. })),
                "{text:?}"
            );
        }
        let error = "a=1,a=2".parse::<Params>().unwrap_err();
        assert_eq!(error.to_string(), "parameter `a` is given twice: keep one");
    }
}
