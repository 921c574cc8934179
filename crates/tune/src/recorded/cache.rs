//! Cache files of Kernel Tuner.

use std::collections::HashMap;
use std::fmt;
use std::io::Write;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use super::{Cost, Entry, Failure, Record, RecordError, seconds};
use crate::space::{Configuration, Parameter, Value};

const MS: f64 = 1e-3;
/// Kernel Tuner's way of writing that a time would be infinite.
const NO_TIME: f64 = 1e20;

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    device_name: String,
    #[serde(default)]
    kernel_name: String,
    #[serde(default)]
    problem_size: Json,
    tune_params_keys: Vec<String>,
    tune_params: HashMap<String, Vec<Value>>,
    cache: Rows,
}

/// The members of `cache` in the order of the file.
struct Rows(Vec<(String, Row)>);

#[derive(Deserialize)]
struct Row {
    time: Time,
    #[serde(default)]
    times: Vec<f64>,
    #[serde(default)]
    compile_time: Option<f64>,
    #[serde(default)]
    verification_time: Option<f64>,
    #[serde(default)]
    benchmark_time: Option<f64>,
    #[serde(default)]
    framework_time: Option<f64>,
}

#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum Time {
    Measured(f64),
    Failed(String),
}

impl<'de> Deserialize<'de> for Rows {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Rows;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("configurations by key")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Rows, M::Error> {
                let mut rows = Vec::new();
                while let Some(row) = map.next_entry()? {
                    rows.push(row);
                }
                Ok(Rows(rows))
            }
        }
        from.deserialize_map(InOrder)
    }
}

pub(super) fn read(text: &str) -> Result<Record, RecordError> {
    let (file, cut_short) = parse(text)?;
    let mut parameters = Vec::with_capacity(file.tune_params_keys.len());
    let mut values = file.tune_params;
    for name in file.tune_params_keys {
        let Some(values) = values.remove(&name) else {
            return Err(RecordError::NoValues(name));
        };
        parameters.push(Parameter { name, values });
    }
    let keys = Keys::new(&parameters);
    let mut entries = Vec::with_capacity(file.cache.0.len());
    for (key, row) in file.cache.0 {
        entries.push(entry(&keys, key, row)?);
    }
    let about = (file.device_name, file.kernel_name, file.problem_size);
    Record::new(parameters, entries, about, cut_short)
}

/// A file that a crash cut short lacks its end, or has a comma or part of a configuration there instead.
fn parse(text: &str) -> Result<(File, bool), RecordError> {
    let problem = match serde_json::from_str(text) {
        Ok(file) => return Ok((file, false)),
        Err(problem) => problem,
    };
    let whole = text.trim_end().trim_end_matches(',');
    let mut ends = vec![whole];
    ends.extend(text.rfind('}').map(|last| &text[..=last]));
    for end in ends.into_iter().filter(|_| problem.is_eof()) {
        for supplied in ["}}", "}"] {
            if let Ok(file) = serde_json::from_str(&format!("{end}{supplied}")) {
                return Ok((file, true));
            }
        }
    }
    Err(RecordError::Form {
        format: "cache file of Kernel Tuner",
        problem,
    })
}

/// Configurations by what they are called.
struct Keys {
    places: Vec<HashMap<String, u16>>,
    names: String,
}

impl Keys {
    fn new(parameters: &[Parameter]) -> Self {
        let places = parameters.iter().map(|parameter| {
            let values = parameter.values.iter().map(Value::to_string);
            values.zip(0..=u16::MAX).collect()
        });
        let names: Vec<&str> = parameters.iter().map(|p| p.name.as_str()).collect();
        Self {
            places: places.collect(),
            names: names.join(","),
        }
    }

    fn find(&self, key: &str) -> Option<Configuration> {
        let mut parts = key.split(',');
        let places = self
            .places
            .iter()
            .map(|places| places.get(parts.next()?).copied());
        let places = places.collect::<Option<Box<[u16]>>>()?;
        parts.next().is_none().then(|| Configuration::new(places))
    }
}

fn entry(keys: &Keys, key: String, row: Row) -> Result<Entry, RecordError> {
    let Some(configuration) = keys.find(&key) else {
        let names = keys.names.clone();
        return Err(RecordError::Configuration { key, names });
    };
    let result = match row.time {
        Time::Measured(time) if time >= NO_TIME => Err(Failure::Run),
        Time::Measured(time) => Ok(seconds(&key, time, MS)?),
        Time::Failed(why) => Err(Failure::from_kernel_tuner(&why)),
    };
    let part =
        |time: Option<f64>| time.filter(|time| time.is_finite()).unwrap_or(0.0).max(0.0) * MS;
    Ok(Entry {
        configuration,
        result,
        samples: row.times.iter().map(|time| time * MS).collect(),
        cost: Cost {
            compile: part(row.compile_time),
            verify: part(row.verification_time),
            benchmark: part(row.benchmark_time),
            framework: part(row.framework_time),
        },
    })
}

impl Failure {
    fn from_kernel_tuner(word: &str) -> Self {
        match word {
            "CompilationFailedConfig" => Self::Compile,
            "InvalidConfig" => Self::Forbidden,
            // The one Kernel Tuner has for all that goes wrong while running.
            _ => Self::Run,
        }
    }

    fn to_kernel_tuner(self) -> &'static str {
        match self {
            Self::Compile => "CompilationFailedConfig",
            Self::Forbidden => "InvalidConfig",
            Self::Run | Self::Timeout | Self::Wrong => "RuntimeFailedConfig",
        }
    }
}

pub(super) fn write(record: &Record, to: impl Write) -> Result<(), RecordError> {
    let space = &record.space;
    let names: Vec<&str> = space.parameters().iter().map(|p| p.name.as_str()).collect();
    let values: Map<String, Json> = space
        .parameters()
        .iter()
        .map(|parameter| (parameter.name.clone(), json!(parameter.values)))
        .collect();
    let mut cache = Map::new();
    for entry in &record.entries {
        let key: Vec<String> = space
            .values(&entry.configuration)
            .map(Value::to_string)
            .collect();
        let mut row = Map::new();
        for (name, value) in names.iter().zip(space.values(&entry.configuration)) {
            row.insert((*name).to_owned(), json!(value));
        }
        match entry.result {
            Ok(time) => {
                row.insert("time".into(), json!(time / MS));
                let samples: Vec<f64> = entry.samples.iter().map(|time| time / MS).collect();
                row.insert("times".into(), json!(samples));
            }
            Err(failure) => {
                row.insert("time".into(), json!(failure.to_kernel_tuner()));
            }
        }
        row.insert("compile_time".into(), json!(entry.cost.compile / MS));
        row.insert("verification_time".into(), json!(entry.cost.verify / MS));
        row.insert("benchmark_time".into(), json!(entry.cost.benchmark / MS));
        row.insert("strategy_time".into(), json!(0));
        row.insert("framework_time".into(), json!(entry.cost.framework / MS));
        cache.insert(key.join(","), Json::Object(row));
    }
    let file = json!({
        "device_name": record.device,
        "kernel_name": record.kernel,
        "problem_size": record.problem,
        "tune_params_keys": names,
        "tune_params": values,
        "objective": "time",
        "cache": cache,
    });
    serde_json::to_writer(to, &file).map_err(|problem| RecordError::Form {
        format: "cache file of Kernel Tuner",
        problem,
    })
}
