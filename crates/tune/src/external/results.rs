//! What was evaluated, in the formats of other tuners.

use std::path::Path;
use std::{fs, io};

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
    whole(&path, |file| record.write_t4(file)).map_err(|error| problem(&path, error))?;
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
        whole(&path, |file| record.write_cache(file)).map_err(|error| problem(&path, error))?;
        tuned.cache = Some(path);
    }
    Ok(())
}

/// A file that is there as a whole or not at all.
fn whole(
    path: &Path,
    write: impl FnOnce(&mut io::BufWriter<fs::File>) -> Result<(), RecordError>,
) -> Result<(), RecordError> {
    let part = beside(path, ".part");
    let mut file = io::BufWriter::new(fs::File::create(&part)?);
    write(&mut file)?;
    io::Write::flush(&mut file)?;
    Ok(fs::rename(&part, path)?)
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
        device: spec.knowledge.device.clone(),
        kernel: spec.name.clone(),
        problem: serde_json::Value::Null,
        space: Space::listed(spec.space().parameters().to_vec(), listed)?,
        entries: entries.collect(),
        cut_short: false,
    })
}
