//! The two ways results are printed.

use std::io::Write;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::exit::Failure;

/// Says something beside the data, on standard error.
pub(crate) fn note(text: &str) {
    // Nobody is left to tell if this fails.
    let _ = writeln!(anstream::stderr(), "kernelwise: {text}");
}

/// Prints one JSON object, indented, its `schema` first.
pub(crate) fn json(schema: &'static str, data: &impl Serialize) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &Document { schema, data })?;
    writeln!(out)?;
    Ok(())
}

/// Prints one JSON object on one line, for streams.
pub(crate) fn json_line(schema: &'static str, data: &impl Serialize) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, &Document { schema, data })?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

#[derive(Serialize)]
struct Document<'a, T> {
    schema: &'static str,
    #[serde(flatten)]
    data: &'a T,
}

/// Prints text as it is.
pub(crate) fn text(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// A heading with name and value pairs under it, values aligned.
pub(crate) fn section(title: &str, rows: &[(String, String)]) -> String {
    let width = rows
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0);
    let lines: String = rows
        .iter()
        .map(|(name, value)| format!("  {name:width$}  {value}\n"))
        .collect();
    format!("{title}\n{lines}")
}

/// Columns under headings; `right` names the columns that hold numbers.
pub(crate) fn columns(headings: &[&str], right: &[usize], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(headings)
        .add_rows(rows);
    for &column in right {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines = table.lines().map(|line| format!(" {}\n", line.trim_end()));
    lines.collect()
}
