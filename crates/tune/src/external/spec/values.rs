//! Values of parameters: as a specification has them, and as a program gets them.

use toml::Value as Toml;

use super::problem::SpecProblem;
use super::{OUTPUT, SPEC_DIR, WORK};
use crate::space::{Parameter, Value};

/// Values a range may have.
pub(super) const MOST_OF_A_RANGE: usize = 1 << 16;

/// Whether a parameter can be called so: its name stands between braces and in restrictions.
pub(super) fn check_name(name: &str) -> Result<(), SpecProblem> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let reserved = [WORK, SPEC_DIR, OUTPUT].contains(&name);
    match reserved || !name.chars().all(word) || !name.starts_with(|c: char| !c.is_ascii_digit()) {
        true => Err(SpecProblem::Name(name.to_owned())),
        false => Ok(()),
    }
}

/// A parameter from a list or a range.
pub(super) fn parameter(name: &str, values: &Toml) -> Result<Parameter, SpecProblem> {
    check_name(name)?;
    let none = || SpecProblem::Values(name.to_owned());
    let values = match values {
        Toml::Array(list) => list
            .iter()
            .map(value)
            .collect::<Option<Vec<Value>>>()
            .ok_or_else(none)?,
        Toml::Table(range) => {
            let mut known = range.keys().map(String::as_str);
            if !known.all(|key| ["from", "to", "step", "times"].contains(&key)) {
                return Err(none());
            }
            let part = |key: &str| match range.get(key) {
                None => Ok(None),
                Some(Toml::Integer(number)) => Ok(Some(*number)),
                Some(_) => Err(none()),
            };
            let (Some(from), Some(to)) = (part("from")?, part("to")?) else {
                return Err(none());
            };
            let next: Box<dyn Fn(i64) -> Option<i64>> = match (part("step")?, part("times")?) {
                (step, None) if step.is_none_or(|step| step > 0) => {
                    Box::new(move |at| at.checked_add(step.unwrap_or(1)))
                }
                (None, Some(times)) if times > 1 && from > 0 => {
                    Box::new(move |at| at.checked_mul(times))
                }
                _ => return Err(SpecProblem::Range(name.to_owned())),
            };
            let list = std::iter::successors(Some(from), |at| next(*at));
            let list = list.take_while(|at| *at <= to).take(MOST_OF_A_RANGE + 1);
            let list: Vec<Value> = list.map(Value::Int).collect();
            if list.is_empty() || list.len() > MOST_OF_A_RANGE {
                return Err(SpecProblem::Range(name.to_owned()));
            }
            list
        }
        _ => return Err(none()),
    };
    Ok(Parameter {
        name: name.to_owned(),
        values,
    })
}

fn value(written: &Toml) -> Option<Value> {
    match written {
        Toml::Boolean(yes) => Some(Value::Bool(*yes)),
        Toml::Integer(number) => Some(Value::Int(*number)),
        Toml::Float(number) => Some(Value::Float(*number)),
        // No argument can hold it.
        Toml::String(text) if text.contains('\0') => None,
        Toml::String(text) => Some(Value::Text(text.clone())),
        _ => None,
    }
}

/// As a program reads it: yes and no as C and most others write them.
pub(crate) fn argument(value: &Value) -> String {
    match value {
        Value::Bool(yes) => yes.to_string(),
        other => other.to_string(),
    }
}
