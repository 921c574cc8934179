//! What does not leave the machine.
//!
//! Numbers and names of kernels, workloads and processors travel. Free text does not: what an error said, why a fact could not be
//! read, why a kernel was refused. Such sentences name files, users and hosts, and nothing is decided by them.

use serde_json::{Value, json};

use crate::note::{Note, NoteKind};
use crate::place::numbers;

/// The note without free text.
pub(crate) fn portable(mut note: Note) -> Note {
    match note.kind {
        NoteKind::Machine => {
            without_reasons(&mut note.body);
            if let Some(release) = note.body.pointer_mut("/kernel/value")
                && let Some(text) = release.as_str()
            {
                *release = numbers(text).map_or(json!("0"), Value::from);
            }
        }
        NoteKind::Calibration => replace(&mut note.body, "skipped", json!([])),
        NoteKind::Decision => replace(&mut note.body, "refused", json!([])),
        NoteKind::Quarantine => replace(&mut note.body, "evidence", json!("")),
        // Numbers, by the contract of `Store::keep_model`.
        NoteKind::Model => {}
    }
    note
}

fn replace(body: &mut Value, field: &str, value: Value) {
    if let Some(there) = body.get_mut(field) {
        *there = value;
    }
}

/// Why a fact is unknown is a sentence.
fn without_reasons(body: &mut Value) {
    match body {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(reason) if name == "reason" => reason.clear(),
                    value => without_reasons(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_reasons),
        _ => {}
    }
}
