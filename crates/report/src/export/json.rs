//! The report as one JSON object. Units stand in field names; what is absent is `{"value": null, "reason": …}`.

use kernelwise_types::{Calibration, Machine, Reading, SystemState};
use serde::Serialize;

use super::ExportError;
use crate::SCHEMA;
use crate::facts::{Event, Gains, LoadDemo, LoadPhase, Quarantined, Regret};
use crate::summary::{Errors, Foretold, Summary, Timed, WinnerMap};
use crate::text;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    generated_at_s: u64,
    generated_at_utc: String,
    version: &'static str,
    summary: &'a [String],
    winners: &'a WinnerMap,
    gains: Known<&'a Gains>,
    model_error: Known<&'a Errors>,
    regret: Known<&'a Regret>,
    events: Known<&'a [Event]>,
    quarantines: Known<&'a [Quarantined]>,
    load_demo: Known<Load<'a>>,
    machine: &'a Machine,
    calibration: &'a Reading<Calibration>,
    state: &'a Reading<SystemState>,
    warnings: &'a [String],
    conditions: &'a [String],
    commands: &'a [String],
    rows: &'a [Timed<'a>],
    predictions: Known<Vec<Foretold<'a>>>,
}

/// A reading of something borrowed.
#[derive(Serialize)]
struct Known<T> {
    value: Option<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl<T> Known<T> {
    fn of<'a, U>(reading: &'a Reading<U>, show: impl FnOnce(&'a U) -> T) -> Self {
        Self {
            value: reading.known().map(show),
            reason: reading.reason().map(str::to_owned),
        }
    }
}

#[derive(Serialize)]
struct Load<'a> {
    known_by: &'static str,
    phases: Vec<Phase<'a>>,
}

#[derive(Serialize)]
struct Phase<'a> {
    #[serde(flatten)]
    phase: &'a LoadPhase,
    kernelwise_over_best_fixed_ratio: Option<f64>,
    kernelwise_over_library_default_ratio: Option<f64>,
}

impl<'a> From<&'a LoadDemo> for Load<'a> {
    fn from(demo: &'a LoadDemo) -> Self {
        let phases = demo.phases.iter().map(|phase| Phase {
            phase,
            kernelwise_over_best_fixed_ratio: phase.over(phase.best_fixed_calls_per_s),
            kernelwise_over_library_default_ratio: phase.over(phase.library_default_calls_per_s),
        });
        Self {
            known_by: demo.known_by.word(),
            phases: phases.collect(),
        }
    }
}

/// The whole report.
pub(crate) fn json(summary: &Summary<'_>) -> Result<String, ExportError> {
    let facts = summary.facts;
    let document = Document {
        schema: SCHEMA,
        generated_at_s: facts.generated_at_s,
        generated_at_utc: text::utc(facts.generated_at_s),
        version: env!("CARGO_PKG_VERSION"),
        summary: &summary.words,
        winners: &summary.winners,
        gains: Known::of(&facts.gains, |gains| gains),
        model_error: Known::of(&summary.errors, |errors| errors),
        regret: Known::of(&facts.regret, |regret| regret),
        events: Known::of(&facts.events, Vec::as_slice),
        quarantines: Known::of(&facts.quarantines, Vec::as_slice),
        load_demo: Known::of(&facts.load_demo, Load::from),
        machine: &facts.machine,
        calibration: &facts.calibration,
        state: &facts.state,
        warnings: &facts.warnings,
        conditions: &facts.conditions,
        commands: &facts.commands,
        rows: &summary.rows,
        predictions: Known::of(&facts.predictions, |list| {
            list.iter().map(Foretold::from).collect()
        }),
    };
    let mut text = serde_json::to_string_pretty(&document)?;
    text.push('\n');
    Ok(text)
}

/// JSON that may stand inside a script element: nothing in it can end the element or begin another, and it still reads back as
/// the same value.
pub(crate) fn in_script(value: &serde_json::Value) -> String {
    let mut safe = String::new();
    for c in value.to_string().chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => safe += &format!("\\u{:04x}", c as u32),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::in_script;

    proptest! {
        #[test]
        fn data_in_a_script_reads_back_and_cannot_leave(text in ".*", hostile in "(</script>|<!--|&lt;|\u{2028})") {
            let value = serde_json::json!({ "text": format!("{text}{hostile}{text}") });
            let safe = in_script(&value);
            let leaves = safe.contains(['<', '>', '&', '\u{2028}', '\u{2029}']);
            prop_assert!(!leaves);
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
        }
    }
}
