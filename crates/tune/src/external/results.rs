//! What was evaluated, in the formats of other tuners.

use std::path::Path;

use super::{Evaluated, Spec, TuneError, Tuned, beside};
use crate::recorded::{Entry, Record, RecordError};
use crate::space::{Space, Value};

/// Writes what was evaluated in the formats of others, beside the session file.
pub(super) fn write(
    spec: &Spec,
    evaluations: &[Evaluated],
    tuned: &mut Tuned,
) -> Result<(), TuneError> {
    if evaluations.is_empty() {
        return Ok(());
    }
    let path = beside(&tuned.session, ".t4.json");
    let problem = |path: &Path, problem| TuneError::Results {
        path: path.to_owned(),
        problem,
    };
    let record = record(spec, evaluations).map_err(|error| problem(&path, error))?;
    record
        .save_t4(&path)
        .map_err(|error| problem(&path, error))?;
    tuned.t4 = Some(path);
    let values = spec
        .space()
        .parameters()
        .iter()
        .flat_map(|parameter| &parameter.values);
    if !values
        .map(Value::to_string)
        .any(|value| value.contains(','))
    {
        let path = beside(&tuned.session, ".cache.json");
        record
            .save_cache(&path)
            .map_err(|error| problem(&path, error))?;
        tuned.cache = Some(path);
    }
    Ok(())
}

fn record(spec: &Spec, evaluations: &[Evaluated]) -> Result<Record, RecordError> {
    let listed = evaluations
        .iter()
        .map(|one| one.configuration.clone())
        .collect();
    let entries = evaluations.iter().map(|one| Entry {
        configuration: one.configuration.clone(),
        result: one
            .result
            .as_ref()
            .copied()
            .map_err(|failed| failed.kind.recorded()),
        samples: one.samples.clone(),
        cost: one.cost,
    });
    Ok(Record {
        device: String::new(),
        kernel: spec.name.clone(),
        problem: serde_json::Value::Null,
        space: Space::listed(spec.space().parameters().to_vec(), listed)?,
        entries: entries.collect(),
        cut_short: false,
    })
}
