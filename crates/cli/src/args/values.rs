//! Values that more than one verb takes.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use kernelwise_types::Technique;

/// The name of a technique.
pub(super) fn technique() -> impl TypedValueParser<Value = Technique> {
    let names = Technique::ALL.map(Technique::name);
    PossibleValuesParser::new(names).map(|name| {
        let named = |technique: &Technique| technique.name() == name;
        let found = Technique::ALL.into_iter().find(named);
        found.unwrap_or(Technique::Custom)
    })
}

/// A positive number of seconds that a clock can wait for.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds from 0.01 to 3600".to_owned()),
    }
}

/// A number above zero.
pub(super) fn above_zero(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err("expected a number above zero".to_owned()),
    }
}

/// A share: `5%` or `0.05`.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number.trim(), 0.01),
        None => (text, 1.0),
    };
    match number.parse::<f64>() {
        Ok(share) if share.is_finite() && share >= 0.0 => Ok(unit * share),
        _ => Err("expected a share such as 5% or 0.05".to_owned()),
    }
}

/// Seconds, or 0.
pub(super) fn seconds_or_none(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(0.0) => Ok(0.0),
        _ => seconds(text).map_err(|error| format!("{error}, or 0")),
    }
}
