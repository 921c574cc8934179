//! The two ways results are printed.

use std::io::{IsTerminal, Write};

use anyhow::Context;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use serde::Serialize;

use crate::exit::Failure;

/// Says something beside the data, on standard error.
pub(crate) fn note(text: &str) {
    // Nobody is left to tell if this fails.
    let _ = writeln!(anstream::stderr(), "kernelwise: {}", printable(text));
}

/// Prints one JSON object, indented, its `schema` first.
pub(crate) fn json(schema: &'static str, data: &impl Serialize) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &Document { schema, data }).context(UNWRITABLE)?;
    writeln!(out).context(UNWRITABLE)?;
    Ok(())
}

/// Prints one JSON object on one line, for streams.
pub(crate) fn json_line(schema: &'static str, data: &impl Serialize) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, &Document { schema, data }).context(UNWRITABLE)?;
    let written = writeln!(out).and_then(|()| out.flush());
    Ok(written.context(UNWRITABLE)?)
}

#[derive(Serialize)]
struct Document<'a, T> {
    schema: &'static str,
    #[serde(flatten)]
    data: &'a T,
}

/// Prints text for people. On a terminal, lines that are longer than it is wide are broken between words.
pub(crate) fn text(text: &str) -> Result<(), Failure> {
    let text = printable(text);
    match width() {
        Some(width) => styled(&folded(&text, width)),
        None => styled(&text),
    }
}

/// Prints text that programs read as it is, on a terminal too.
pub(crate) fn verbatim(text: &str) -> Result<(), Failure> {
    styled(&printable(text))
}

/// Prints text as it is, colours and all; without them where nobody wants them.
pub(crate) fn styled(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    Ok(written.context(UNWRITABLE)?)
}

/// What a full disk is told as.
const UNWRITABLE: &str = "standard output cannot be written";

/// A heading with name and value pairs under it, values aligned.
pub(crate) fn section(title: &str, rows: &[(String, String)]) -> String {
    sectioned(title, rows, width())
}

/// Columns that a value has at least, if it is to stand beside its name.
const ROOM: usize = 20;

/// Values stand beside their names, in several lines if need be; below them where there is too little room.
fn sectioned(title: &str, rows: &[(String, String)], width: Option<usize>) -> String {
    let names = rows.iter().map(|(name, _)| length(name)).max().unwrap_or(0);
    let beside = names + 4;
    let line = |(name, value): &(String, String)| match width {
        Some(width) if beside + length(value) > width => {
            let below = width < beside + ROOM;
            let (first, indent) = match below {
                true => (format!("  {name}\n"), 4),
                false => (format!("  {name:names$}  "), beside),
            };
            let lines = broken(value, width.saturating_sub(indent));
            let gap = " ".repeat(indent);
            let value = lines.join(&format!("\n{gap}"));
            match below {
                true => format!("{first}{gap}{value}\n"),
                false => format!("{first}{value}\n"),
            }
        }
        _ => format!("  {name:names$}  {value}\n"),
    };
    let lines: String = rows.iter().map(line).collect();
    format!("{title}\n{lines}")
}

/// The text with no line longer than this where words allow it. What is broken goes on below, four columns further in, so that
/// the next line is not taken for a part of it.
fn folded(text: &str, width: usize) -> String {
    let fold = |line: &str| {
        if length(line) <= width {
            return line.to_owned();
        }
        let body = line.trim_start();
        let depth = (line.len() - body.len()).min(width / 2);
        let (indent, deeper) = (" ".repeat(depth), " ".repeat((depth + 4).min(width / 2)));
        // The first line has the room of the others: one that is four columns short is no harm.
        let lines = broken(body, width - deeper.len());
        indent + &lines.join(&format!("\n{deeper}"))
    };
    let lines: Vec<String> = text.split('\n').map(fold).collect();
    lines.join("\n")
}

/// A text in lines of at most so many characters, broken between words only: a word that is longer stands alone.
pub(crate) fn broken(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.trim().is_empty() && length(&line) + 1 + length(word) > width {
            lines.push(std::mem::take(&mut line).trim_end().to_owned());
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// Columns under headings; `right` names the columns that hold numbers.
pub(crate) fn columns(headings: &[&str], right: &[usize], rows: Vec<Vec<String>>) -> String {
    laid_out(headings, right, rows, width())
}

/// How wide the terminal is that standard output is; `None` for files and pipes, which may be as wide as they like.
pub(crate) fn width() -> Option<usize> {
    let stdout = std::io::stdout();
    let stated = || std::env::var("COLUMNS").ok()?.parse().ok();
    let asked = || terminal_size::terminal_size_of(&stdout).map(|(width, _)| width.0.into());
    let width: Option<usize> = stdout.is_terminal().then(|| stated().or_else(asked))?;
    width.filter(|width| *width > 0)
}

/// Beside each other where that fits, with cells of several lines if need be; under each other where not even their words fit.
fn laid_out(
    headings: &[&str],
    right: &[usize],
    rows: Vec<Vec<String>>,
    width: Option<usize>,
) -> String {
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|row| row.iter().map(|cell| printable(cell)).collect())
        .collect();
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(headings)
        .add_rows(&rows);
    for &column in right {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines = |table: &Table| -> Vec<String> {
        let lines = table.lines();
        lines.map(|line| format!(" {}", line.trim_end())).collect()
    };
    let mut text = lines(&table);
    let fits = |text: &[String], width: usize| text.iter().all(|line| length(line) <= width);
    if let Some(width) = width.filter(|width| !fits(&text, *width)) {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(u16::try_from(width - 1).unwrap_or(u16::MAX));
        for (column, heading) in headings.iter().enumerate() {
            let cells = rows.iter().filter_map(|row| row.get(column));
            let words = cells
                .flat_map(|cell| cell.split(' '))
                .chain(heading.split(' '));
            let longest = words.map(length).max().unwrap_or(0);
            let least = Width::Fixed(u16::try_from(longest + PADDING).unwrap_or(u16::MAX));
            if let Some(column) = table.column_mut(column) {
                column.set_constraint(ColumnConstraint::LowerBoundary(least));
            }
        }
        text = lines(&table);
        if !fits(&text, width) {
            return stacked(headings, &rows, width);
        }
    }
    text.iter().map(|line| format!("{line}\n")).collect()
}

/// Around each cell.
const PADDING: usize = 2;

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Each row as a block of its own: its first cell, and under it the others with their headings.
fn stacked(headings: &[&str], rows: &[Vec<String>], width: usize) -> String {
    let blocks = rows.iter().map(|row| {
        let (first, others) = match row.split_first() {
            Some((first, others)) => (first.as_str(), others),
            None => ("", &[][..]),
        };
        let others = headings.iter().skip(1).zip(others);
        let others = others.filter(|(_, cell)| !cell.is_empty());
        let others: Vec<(String, String)> = others
            .map(|(heading, cell)| ((*heading).to_owned(), cell.clone()))
            .collect();
        let room = width.saturating_sub(2);
        let block = sectioned(&format!("  {first}"), &others, Some(room));
        block.replace("\n  ", "\n    ")
    });
    blocks.collect()
}

/// With what would move the cursor or change the terminal written out: records and files are from elsewhere, too.
fn printable(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() && c != '\n' && c != '\t' {
            true => result.extend(c.escape_default()),
            false => result.push(c),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(width: Option<usize>) -> String {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = vec![
            row([
                "copy f32 1000",
                "cpu-copy-f32-memcpy and another one",
                "1.5 µs",
            ]),
            row(["copy f32 2", "cpu-copy-f32-strided", "12 ns"]),
        ];
        laid_out(&["workload", "kernel", "time"], &[2], rows, width)
    }

    #[test]
    fn tables_are_as_wide_as_they_may_be() {
        let wide = "  workload       kernel                                 time\n  \
            copy f32 1000  cpu-copy-f32-memcpy and another one  1.5 µs\n  \
            copy f32 2     cpu-copy-f32-strided                  12 ns\n";
        assert_eq!(table(None), wide);
        assert_eq!(table(Some(80)), wide);
        // Cells of several lines, but no word is broken.
        let narrower = table(Some(50));
        assert!(narrower.lines().count() > 3, "{narrower}");
        assert!(
            narrower.lines().all(|line| length(line) <= 50),
            "{narrower}"
        );
        for word in [
            "workload",
            "cpu-copy-f32-memcpy",
            "cpu-copy-f32-strided",
            "another",
        ] {
            assert!(narrower.contains(word), "{narrower}");
        }
        let narrow = "  copy f32 1000\n    kernel\n      cpu-copy-f32-memcpy\n      and another one\n    time    1.5 µs\n  \
            copy f32 2\n    kernel\n      cpu-copy-f32-strided\n    time    12 ns\n";
        assert_eq!(table(Some(28)), narrow);
    }

    #[test]
    fn values_are_as_wide_as_they_may_be() {
        let row = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let rows = [
            row("clock", "unknown (/sys/cpufreq: not found)"),
            row("run queue", "1"),
        ];
        let wide = "state\n  clock      unknown (/sys/cpufreq: not found)\n  run queue  1\n";
        assert_eq!(sectioned("state", &rows, None), wide);
        assert_eq!(sectioned("state", &rows, Some(80)), wide);
        let narrower =
            "state\n  clock      unknown (/sys/cpufreq:\n             not found)\n  run queue  1\n";
        assert_eq!(sectioned("state", &rows, Some(38)), narrower);
        let narrow = "state\n  clock\n    unknown (/sys/cpufreq:\n    not found)\n  run queue  1\n";
        assert_eq!(sectioned("state", &rows, Some(29)), narrow);
    }

    #[test]
    fn long_lines_are_broken_between_words() {
        let text = "one\n  over cpu-copy-f32-memcpy: 12 ns measured, n = 3\nend\n";
        assert_eq!(folded(text, 80), text);
        let narrow = "one\n  over cpu-copy-f32-memcpy:\n      12 ns measured, n = 3\nend\n";
        assert_eq!(folded(text, 33), narrow);
        // No word is broken, however little room there is.
        let words = |text: &str| {
            let words = text.split_whitespace();
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        for width in 1..40 {
            assert_eq!(words(&folded(text, width)), words(text), "{width}");
        }
    }

    #[test]
    fn what_moves_the_cursor_is_written_out() {
        assert_eq!(printable("a\u{1b}[2J\tb\r\n"), "a\\u{1b}[2J\tb\\r\n");
        let rows = vec![vec!["\u{1b}]0;mine\u{7}".to_owned()]];
        assert!(!laid_out(&["x"], &[], rows, None).contains('\u{1b}'));
    }
}
