//! T4 results: the exchange format of several tuners (the results schema 1.0.0 of odgaard/TuningSchema).

use std::io::Write;

use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::{Cost, Entry, Failure, Record, RecordError, seconds};
use crate::space::{Configuration, Parameter, Value};

const FORMAT: &str = "T4 result";
/// What we write; readers of this format ask for it.
const VERSION: &str = "1.0.0";

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    metadata: Metadata,
    results: Vec<Row>,
}

#[derive(Deserialize, Default)]
struct Metadata {
    #[serde(default)]
    device: String,
    #[serde(default)]
    kernel: String,
    #[serde(default)]
    problem: Json,
}

#[derive(Deserialize)]
struct Row {
    configuration: Map<String, Json>,
    #[serde(default)]
    times: Times,
    #[serde(default)]
    invalidity: String,
    #[serde(default)]
    measurements: Vec<Measurement>,
    #[serde(default)]
    objectives: Vec<String>,
}

/// Milliseconds.
#[derive(Deserialize, Default)]
struct Times {
    #[serde(default, alias = "compilation")]
    compilation_time: f64,
    #[serde(default)]
    framework: f64,
    #[serde(default)]
    validation: f64,
    #[serde(default)]
    benchmark: f64,
    #[serde(default)]
    runtimes: Vec<f64>,
}

#[derive(Deserialize)]
struct Measurement {
    name: String,
    value: Json,
    #[serde(default)]
    unit: String,
}

pub(super) fn read(text: &str) -> Result<Record, RecordError> {
    let form = |problem| RecordError::Form {
        format: FORMAT,
        problem,
    };
    let file: File = serde_json::from_str(text).map_err(form)?;
    let mut parameters: Vec<Parameter> = Vec::new();
    let mut found: Vec<(Vec<Value>, Row)> = Vec::new();
    for row in file.results {
        if parameters.is_empty() {
            let names = row.configuration.keys();
            parameters = names
                .map(|name| Parameter::new(name, [] as [Value; 0]))
                .collect();
        }
        let fits = row.configuration.len() == parameters.len();
        let values = parameters.iter().map(|parameter| {
            let value = row.configuration.get(&parameter.name)?;
            Value::deserialize(value).ok()
        });
        let Some(values) = values.collect::<Option<Vec<Value>>>().filter(|_| fits) else {
            let names: Vec<&str> = parameters.iter().map(|p| p.name.as_str()).collect();
            return Err(RecordError::Configuration {
                key: Json::Object(row.configuration).to_string(),
                names: names.join(","),
            });
        };
        for (parameter, value) in parameters.iter_mut().zip(&values) {
            if !parameter.values.contains(value) {
                parameter.values.push(value.clone());
            }
        }
        found.push((values, row));
    }
    for parameter in &mut parameters {
        // In the order of numbers, if they are; words stay in the order in which they came.
        let number = |value: &Value| value.number().unwrap_or(0.0);
        parameter
            .values
            .sort_by(|a, b| number(a).total_cmp(&number(b)));
    }
    let mut entries = Vec::with_capacity(found.len());
    for (values, row) in found {
        let places = parameters.iter().zip(&values).map(|(parameter, value)| {
            let place = parameter.values.iter().position(|known| known == value);
            place.unwrap_or(0) as u16
        });
        let configuration = Configuration::new(places.collect::<Vec<u16>>());
        entries.push(entry(configuration, &row)?);
    }
    let about = (
        file.metadata.device,
        file.metadata.kernel,
        file.metadata.problem,
    );
    Record::new(parameters, entries, about, false)
}

fn entry(configuration: Configuration, row: &Row) -> Result<Entry, RecordError> {
    const MS: f64 = 1e-3;
    let objective = row.objectives.first().map_or("time", String::as_str);
    let measured = row.measurements.iter().find(|one| one.name == objective);
    let failed = Failure::from_t4(&row.invalidity);
    let result = match (failed, measured) {
        (Some(failure), _) => Err(failure),
        (None, Some(measured)) => match measured.value.as_f64() {
            Some(time) => Ok(seconds(objective, time, unit(&measured.unit)?)?),
            None => Err(Failure::Run),
        },
        (None, None) => Err(Failure::Run),
    };
    Ok(Entry {
        configuration,
        result,
        samples: row.times.runtimes.iter().map(|time| time * MS).collect(),
        cost: Cost {
            compile: row.times.compilation_time * MS,
            verify: row.times.validation * MS,
            benchmark: row.times.benchmark * MS,
            framework: row.times.framework * MS,
        },
    })
}

/// A unit of time in seconds; milliseconds if none is given.
fn unit(word: &str) -> Result<f64, RecordError> {
    match word.to_lowercase().as_str() {
        "" | "ms" | "milliseconds" => Ok(1e-3),
        "s" | "seconds" => Ok(1.0),
        "us" | "µs" | "microseconds" => Ok(1e-6),
        "ns" | "nanoseconds" => Ok(1e-9),
        _ => Err(RecordError::Unit(word.to_owned())),
    }
}

impl Failure {
    fn from_t4(word: &str) -> Option<Self> {
        match word {
            "" | "correct" => None,
            "compile" => Some(Self::Compile),
            "timeout" => Some(Self::Timeout),
            "correctness" => Some(Self::Wrong),
            "constraints" => Some(Self::Forbidden),
            _ => Some(Self::Run),
        }
    }

    fn to_t4(self) -> &'static str {
        match self {
            Self::Compile => "compile",
            Self::Timeout => "timeout",
            Self::Wrong => "correctness",
            Self::Forbidden => "constraints",
            Self::Run => "runtime",
        }
    }
}

pub(super) fn write(record: &Record, to: impl Write) -> Result<(), RecordError> {
    const MS: f64 = 1e-3;
    let space = &record.space;
    let results = record.entries.iter().map(|entry| {
        let pairs = space
            .parameters()
            .iter()
            .zip(space.values(&entry.configuration));
        let configuration: Map<String, Json> = pairs
            .map(|(parameter, value)| (parameter.name.clone(), json!(value)))
            .collect();
        let measurements = match entry.result {
            Ok(time) => json!([{ "name": "time", "value": time / MS, "unit": "ms" }]),
            Err(_) => json!([]),
        };
        let samples: Vec<f64> = entry.samples.iter().map(|time| time / MS).collect();
        json!({
            "configuration": configuration,
            "times": {
                "compilation_time": entry.cost.compile / MS,
                "framework": entry.cost.framework / MS,
                "search_algorithm": 0.0,
                "validation": entry.cost.verify / MS,
                "benchmark": entry.cost.benchmark / MS,
                "runtimes": samples,
            },
            "invalidity": entry.result.err().map_or("correct", Failure::to_t4),
            "correctness": u8::from(entry.result != Err(Failure::Wrong)),
            "measurements": measurements,
            "objectives": ["time"],
        })
    });
    let file = json!({
        "schema_version": VERSION,
        "metadata": { "device": record.device, "kernel": record.kernel, "problem": record.problem },
        "results": results.collect::<Vec<Json>>(),
    });
    serde_json::to_writer(to, &file).map_err(|problem| RecordError::Form {
        format: FORMAT,
        problem,
    })
}
