//! T1 descriptions: names, values and conditions of a space (the tuning format of odgaard/TuningSchema). What they say
//! about the kernel and how to run it is left to whoever runs it.

use std::io::Read;

use serde::Deserialize;
use serde_json::Value as Json;

use super::{RecordError, text};
use crate::space::{Parameter, Space, Value};

#[derive(Deserialize)]
struct File {
    #[serde(rename = "General", default)]
    general: General,
    #[serde(rename = "ConfigurationSpace")]
    space: Declared,
}

#[derive(Deserialize, Default)]
struct General {
    #[serde(rename = "BenchmarkName", default)]
    name: String,
}

#[derive(Deserialize)]
struct Declared {
    #[serde(rename = "TuningParameters")]
    parameters: Vec<DeclaredParameter>,
    #[serde(rename = "Conditions", default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct DeclaredParameter {
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "Values")]
    values: Json,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "Expression")]
    expression: String,
}

/// What a T1 file describes.
#[derive(Debug, Clone)]
pub struct Description {
    /// What it calls itself; may be empty.
    pub name: String,
    /// The space.
    pub space: Space,
}

/// Reads a T1 description.
pub fn read_t1(from: impl Read) -> Result<Description, RecordError> {
    let text = text(from)?;
    let file: File = serde_json::from_str(&text).map_err(|problem| RecordError::Form {
        format: "T1 description",
        problem,
    })?;
    let mut parameters = Vec::with_capacity(file.space.parameters.len());
    for DeclaredParameter { name, values } in file.space.parameters {
        let list = match &values {
            Json::String(written) => as_json(written),
            other => Some(other.clone()),
        };
        let list = list.and_then(|list| Vec::<Value>::deserialize(list).ok());
        let Some(list) = list else {
            let text = values
                .as_str()
                .map_or_else(|| values.to_string(), str::to_owned);
            return Err(RecordError::Values { name, text });
        };
        parameters.push(Parameter { name, values: list });
    }
    let conditions: Vec<String> = file
        .space
        .conditions
        .into_iter()
        .map(|one| one.expression)
        .collect();
    Ok(Description {
        name: file.general.name,
        space: Space::new(parameters, &conditions)?,
    })
}

/// A list as Python writes it: words in either quotes, `True` and `False`, perhaps a comma at the end.
fn as_json(written: &str) -> Option<Json> {
    let inner = written.trim();
    let inner = inner.strip_prefix(['[', '('])?.strip_suffix([']', ')'])?;
    let mut json = String::from("[");
    let mut within = None;
    for c in inner.trim().trim_end_matches(',').chars() {
        match (within, c) {
            (None, '\'' | '"') => (within, json) = (Some(c), json + "\""),
            (Some(quote), c) if quote == c => (within, json) = (None, json + "\""),
            (Some(_), '"') => json += "\\\"",
            (_, c) => json.push(c),
        }
    }
    json.push(']');
    // Only outside of quotes would these be anything else in JSON, and there they would be nothing.
    let json = match serde_json::from_str(&json) {
        Ok(list) => return Some(list),
        Err(_) => json.replace("True", "true").replace("False", "false"),
    };
    serde_json::from_str(&json).ok()
}
