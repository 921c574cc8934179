//! What a parameter can be set to.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A value of a parameter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A word.
    Text(String),
}

impl Value {
    /// The value as a number, if it is one; yes counts as 1.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Bool(yes) => Some(f64::from(u8::from(*yes))),
            Self::Int(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            Self::Text(_) => None,
        }
    }
}

/// As Python writes it, because keys of recorded configurations are made that way.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(true) => f.write_str("True"),
            Self::Bool(false) => f.write_str("False"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Float(number) => {
                let text = format!("{number:?}");
                // Where Rust writes 1e-5 and 1e16, Python writes 1e-05 and 1e+16.
                match text.split_once('e') {
                    None => f.write_str(&text),
                    Some((digits, power)) => {
                        let (sign, power) = match power.strip_prefix('-') {
                            Some(power) => ('-', power),
                            None => ('+', power),
                        };
                        write!(f, "{digits}e{sign}{power:0>2}")
                    }
                }
            }
            Self::Text(text) => f.write_str(text),
        }
    }
}

macro_rules! from {
    ($($type:ty => $variant:ident),*) => {$(
        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self::$variant(value.into())
            }
        }
    )*};
}
from!(bool => Bool, i64 => Int, i32 => Int, f64 => Float, &str => Text, String => Text);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_python_writes_them() {
        let values: [Value; 5] = [
            true.into(),
            16.into(),
            1.0.into(),
            0.25.into(),
            "nvcc".into(),
        ];
        let text: Vec<String> = values.iter().map(Value::to_string).collect();
        assert_eq!(text, ["True", "16", "1.0", "0.25", "nvcc"]);
        // What `repr` says in CPython 3.12.
        for (number, python) in [
            (1e-5, "1e-05"),
            (1e16, "1e+16"),
            (-2.5e-7, "-2.5e-07"),
            (1.5e300, "1.5e+300"),
            (5e-324, "5e-324"),
            (1e-4, "0.0001"),
            (9999999999999998.0, "9999999999999998.0"),
        ] {
            assert_eq!(Value::Float(number).to_string(), python);
        }
    }

    #[test]
    fn json_keeps_the_type() {
        let values: Vec<Value> = serde_json::from_str(r#"[true, 3, 0.5, "a"]"#).unwrap();
        assert_eq!(values, [true.into(), 3.into(), 0.5.into(), "a".into()]);
        assert_eq!(
            serde_json::to_string(&values).unwrap(),
            r#"[true,3,0.5,"a"]"#
        );
    }
}
