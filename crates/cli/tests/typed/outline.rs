//! What an answer looks like, whatever was measured and wherever: words, columns, fields and units stay; numbers, kernels, settings, paths and
//! the names of the machine become placeholders.

use std::collections::BTreeMap;

use serde_json::Value;

/// Numbers that are words of ours.
const WORDS: [&str; 6] = [
    "90 % interval",
    "in 90 %",
    "over 5 %",
    "within 5 %",
    "1 min",
    "RwLock<HashMap>",
];

/// A text for people with placeholders; what is left out of it is named.
pub(crate) struct Outline {
    lines: Vec<String>,
}

impl Outline {
    pub(crate) fn of(text: &str) -> Self {
        let processor = kernelwise_probe::machine().cpu.model;
        let processor = processor.known().cloned().unwrap_or_default();
        let line = |line: &str| {
            let named = match processor.is_empty() {
                true => line.to_owned(),
                false => line.replace(&processor, "<processor>"),
            };
            redacted(&named)
        };
        Self {
            lines: text.lines().map(line).collect(),
        }
    }

    /// Without lines that begin so: whether they are there depends on the machine.
    pub(crate) fn without(mut self, beginnings: &[&str]) -> Self {
        let left_out = |line: &String| beginnings.iter().any(|b| line.trim().starts_with(b));
        self.lines.retain(|line| !left_out(line));
        self
    }

    /// Only the beginnings of lines that begin so: what follows is in another order every time.
    pub(crate) fn cut(mut self, beginnings: &[&str]) -> Self {
        for line in &mut self.lines {
            let begins = |b: &&&str| line.trim().starts_with(**b);
            if let Some(beginning) = beginnings.iter().find(begins) {
                let indent = line.len() - line.trim_start().len();
                *line = format!("{}{beginning} …", " ".repeat(indent));
            }
        }
        self
    }

    /// Of the rows under the heading that begins so, the first with so many cells: others come and go with kernels and sizes.
    pub(crate) fn first_row(mut self, heading: &str, cells: usize) -> Self {
        let found = self
            .lines
            .iter()
            .position(|line| line.trim().starts_with(heading));
        let Some(at) = found else {
            panic!("no heading {heading} in {:#?}", self.lines);
        };
        let indent = |line: &str| line.len() - line.trim_start().len();
        let depth = indent(&self.lines[at]).min(2);
        let rows = self.lines[at + 1..].iter();
        let rows = rows
            .take_while(|line| !line.is_empty() && indent(line) >= depth)
            .count();
        assert!(rows > 0, "no row under {heading} in {:#?}", self.lines);
        let first: Vec<&str> = self.lines[at + 1].trim().split("  ").take(cells).collect();
        let first = format!("{}{} …", " ".repeat(depth), first.join("  "));
        self.lines.splice(at + 1..=at + rows, [first]);
        self
    }
}

impl std::fmt::Display for Outline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut before = None;
        // Rows that look alike count once.
        for line in self
            .lines
            .iter()
            .filter(|line| before.replace(*line) != Some(*line))
        {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

/// One line with placeholders.
fn redacted(line: &str) -> String {
    // A heading over a column without a name begins where that column ends.
    let indent = (line.len() - line.trim_start().len()).min(4);
    let mut text = line.trim().to_owned();
    for (i, words) in WORDS.iter().enumerate() {
        text = text.replace(words, &format!("\u{1}{}\u{1}", (b'a' + i as u8) as char));
    }
    // Columns are as wide as what was measured.
    let gaps: Vec<&str> = text
        .split("  ")
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
        .collect();
    let cells: Vec<String> = gaps.iter().map(|cell| cell_outline(cell)).collect();
    let mut text = cells.join("  ");
    for (i, words) in WORDS.iter().enumerate() {
        text = text.replace(&format!("\u{1}{}\u{1}", (b'a' + i as u8) as char), words);
    }
    format!("{}{text}", " ".repeat(indent))
}

fn cell_outline(cell: &str) -> String {
    let words: Vec<String> = cell.split(' ').map(word).collect();
    let mut text = words.join(" ");
    for (units, name) in [
        (&["ns", "µs", "ms"][..], "<time>"),
        (&["B", "KiB", "MiB", "GiB", "kB", "MB", "GB"], "<bytes>"),
        (&["GFLOP/s", "MFLOP/s", "TFLOP/s"], "<flop rate>"),
        (&["GB/s", "MB/s"], "<byte rate>"),
    ] {
        for unit in units {
            text = with_unit(&text, unit, name);
        }
    }
    for setting in [" (<setting>)", " <setting>"] {
        text = text.replace(&format!("<kernel>{setting}"), "<kernel>");
    }
    text
}

/// `# ns` becomes `<time>`, but `# nodes` stays.
fn with_unit(text: &str, unit: &str, name: &str) -> String {
    let wanted = format!("# {unit}");
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(&wanted) {
        let after = &rest[at + wanted.len()..];
        let whole = after
            .chars()
            .next()
            .is_none_or(|c| !c.is_alphanumeric() && c != '/');
        result.push_str(&rest[..at]);
        result.push_str(if whole { name } else { &wanted });
        rest = after;
    }
    result + rest
}

/// One word: brackets and marks around it stay.
fn word(word: &str) -> String {
    let open = |c: char| "([`,".contains(c);
    let close = |c: char| ")],;:.`".contains(c);
    let inner = word.trim_start_matches(open);
    let front = &word[..word.len() - inner.len()];
    let core = inner.trim_end_matches(close);
    let back = &inner[core.len()..];
    let placeholder = match core {
        _ if core.starts_with("cpu-") => "<kernel>".to_owned(),
        _ if core.contains('=') && core.len() > 2 => "<setting>".to_owned(),
        _ if core.starts_with('/') && core.len() > 1 => "<path>".to_owned(),
        _ if core.len() == 16 && core.chars().all(|c| c.is_ascii_hexdigit()) => {
            "<machine>".to_owned()
        }
        _ => number(core).unwrap_or_else(|| core.to_owned()),
    };
    format!("{front}{placeholder}{back}")
}

/// `1.5`, `x1.5`, `1.5x`, `±1.5`, `12.3%`: the mark stays.
fn number(core: &str) -> Option<String> {
    let bare = core.trim_start_matches(['x', '×', '±', '-']);
    let front = &core[..core.len() - bare.len()];
    let digits = bare.trim_end_matches(['x', '%', 's']);
    let back = &bare[digits.len()..];
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit())
        && digits
            .chars()
            .all(|c| c.is_ascii_digit() || ".,e-+:".contains(c));
    is_number.then(|| format!("{front}#{back}"))
}

/// The fields of an object for programs with their types, by path.
pub(crate) struct Fields<'a> {
    json: &'a Value,
    keyed: &'a [&'a str],
    varies: &'a [&'a str],
}

impl<'a> Fields<'a> {
    pub(crate) fn of(json: &'a Value) -> Self {
        Self {
            json,
            keyed: &[],
            varies: &[],
        }
    }

    /// Objects whose keys are data, such as names of operations.
    pub(crate) fn keyed(self, keyed: &'a [&'a str]) -> Self {
        Self { keyed, ..self }
    }

    /// Fields whose type or presence depends on the machine or on what was measured: they are named, not described.
    pub(crate) fn varies(self, varies: &'a [&'a str]) -> Self {
        Self { varies, ..self }
    }

    fn walk(&self, value: &Value, path: &str, found: &mut BTreeMap<String, Vec<String>>) {
        let mut note = |what: &str| {
            let types = found.entry(path.to_owned()).or_default();
            if !types.iter().any(|one| one == what) {
                types.push(what.to_owned());
                types.sort();
            }
        };
        if self.varies.contains(&path) {
            return note("varies");
        }
        let below = |name: &str| match path {
            "" => name.to_owned(),
            _ => format!("{path}.{name}"),
        };
        match value {
            Value::Null => note("null"),
            Value::Bool(_) => note("bool"),
            Value::Number(_) => note("number"),
            // What is fixed is the contract; everything else is a text.
            Value::String(text) if path == "schema" => note(text),
            Value::String(_) => note("string"),
            Value::Array(items) => {
                if items.is_empty() {
                    note("list");
                }
                items
                    .iter()
                    .for_each(|item| self.walk(item, &format!("{path}[]"), found));
            }
            // What a machine may not tell: a value, or none and the reason.
            Value::Object(fields)
                if fields.contains_key("value")
                    && fields.keys().all(|key| key == "value" || key == "reason") =>
            {
                note("reading");
            }
            Value::Object(fields) => {
                if fields.is_empty() {
                    note("object");
                }
                let keyed = self.keyed.contains(&path);
                for (name, inner) in fields {
                    self.walk(inner, &below(if keyed { "*" } else { name }), found);
                }
            }
        }
    }
}

impl std::fmt::Display for Fields<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Whether they are there depends as well.
        let varies = self.varies.iter();
        let varies = varies.map(|path| ((*path).to_owned(), vec!["varies".to_owned()]));
        let mut found: BTreeMap<String, Vec<String>> = varies.collect();
        self.walk(self.json, "", &mut found);
        for (path, types) in found {
            writeln!(f, "{path}: {}", types.join(" | "))?;
        }
        Ok(())
    }
}
