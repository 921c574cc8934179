//! The report as one table in long form: a line for each number, with its unit and how it is known.
//!
//! Cells of text that a spreadsheet would take for a formula are led by an apostrophe, and control characters are made
//! visible. Numbers are written as they are, to the last digit.

use kernelwise_types::Reading;

use super::ExportError;
use crate::facts::{Gain, KnownBy, Ratio};
use crate::summary::{Accuracy, Foretold, Summary};
use crate::text::visible;

const HEADINGS: [&str; 12] = [
    "section",
    "subject",
    "kernel",
    "parameters",
    "quantity",
    "unit",
    "value",
    "low",
    "high",
    "samples",
    "known_by",
    "words",
];

/// One line.
#[derive(Default)]
struct Line<'a> {
    section: &'a str,
    subject: &'a str,
    kernel: &'a str,
    parameters: &'a str,
    quantity: &'a str,
    unit: &'a str,
    value: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    samples: Option<u64>,
    known_by: &'a str,
    words: &'a str,
}

/// A cell that stays text wherever it is opened.
fn text(cell: &str) -> String {
    let shown = visible(cell);
    // White space before a formula does not keep spreadsheets from it.
    let first = shown.trim_start().chars().next();
    let formula =
        matches!(first, Some('=' | '+' | '-' | '@' | '|' | '%')) || cell.starts_with(['\t', '\r']);
    if formula { format!("'{shown}") } else { shown }
}

fn number(value: Option<f64>) -> String {
    value
        .filter(|value| value.is_finite())
        .map_or_else(String::new, |value| value.to_string())
}

struct Table(::csv::Writer<Vec<u8>>);

impl Table {
    fn add(&mut self, line: &Line<'_>) -> Result<(), ExportError> {
        let texts = [
            line.section,
            line.subject,
            line.kernel,
            line.parameters,
            line.quantity,
            line.unit,
        ]
        .map(text);
        let numbers = [line.value, line.low, line.high].map(number);
        let samples = line.samples.map_or_else(String::new, |n| n.to_string());
        let rest = [samples, line.known_by.to_owned(), text(line.words)];
        Ok(self
            .0
            .write_record(texts.iter().chain(&numbers).chain(&rest))?)
    }

    fn gain(
        &mut self,
        subject: &str,
        gain: &Gain,
        known_by: KnownBy,
        words: &str,
    ) -> Result<(), ExportError> {
        let ratios = [
            ("single_best_over_choice", gain.over_single()),
            ("static_rule_over_choice", gain.over_rule()),
        ];
        for (quantity, ratio) in ratios {
            let known_by = if ratio.is_some() {
                known_by
            } else {
                KnownBy::Unknown
            };
            self.add(&Line {
                section: "gain",
                subject,
                quantity,
                unit: "ratio",
                value: ratio.map(|ratio: Ratio| ratio.mean),
                low: ratio.and_then(|ratio| ratio.low),
                high: ratio.and_then(|ratio| ratio.high),
                samples: Some(gain.shapes as u64),
                known_by: known_by.word(),
                words,
                ..Line::default()
            })?;
        }
        Ok(())
    }

    fn accuracy(&mut self, subject: &str, accuracy: &Accuracy) -> Result<(), ExportError> {
        let figures = [
            ("median_error", "factor", accuracy.median_error_factor),
            ("p90_error", "factor", accuracy.p90_error_factor),
            ("in_interval", "share", accuracy.in_interval_share),
        ];
        for (quantity, unit, value) in figures {
            self.add(&Line {
                section: "model_error",
                subject,
                quantity,
                unit,
                value: Some(value),
                samples: Some(accuracy.times as u64),
                known_by: KnownBy::Measured.word(),
                ..Line::default()
            })?;
        }
        Ok(())
    }

    /// Says that a part is absent, and why.
    fn absent<T>(&mut self, section: &str, reading: &Reading<T>) -> Result<(), ExportError> {
        let Some(words) = reading.reason() else {
            return Ok(());
        };
        self.add(&Line {
            section,
            known_by: KnownBy::Unknown.word(),
            words,
            ..Line::default()
        })
    }
}

/// The whole report.
pub(crate) fn csv(summary: &Summary<'_>) -> Result<String, ExportError> {
    let facts = summary.facts;
    let mut table = Table(::csv::Writer::from_writer(Vec::new()));
    table.0.write_record(HEADINGS)?;
    for words in &summary.words {
        table.add(&Line {
            section: "summary",
            words,
            ..Line::default()
        })?;
    }
    for row in &summary.rows {
        table.add(&Line {
            section: "time",
            subject: &row.workload,
            kernel: row.kernel,
            parameters: &row.parameters,
            quantity: "time",
            unit: "ns",
            value: row.time_ns,
            low: row.low_ns,
            high: row.high_ns,
            samples: row.samples,
            known_by: row.known_by.word(),
            words: row.source.unwrap_or_default(),
        })?;
    }
    for cell in &summary.winners.cells {
        let subject = format!("{} {} from 1e{} B", cell.operation, cell.dtype, cell.decade);
        table.add(&Line {
            section: "winner",
            subject: &subject,
            kernel: &cell.kernel,
            quantity: "wins",
            unit: "workloads",
            value: Some(cell.wins as f64),
            samples: Some(cell.workloads as u64),
            known_by: cell.known_by.word(),
            words: if cell.near_tie { "near tie" } else { "" },
            ..Line::default()
        })?;
    }
    table.absent("gain", &facts.gains)?;
    if let Reading::Known(gains) = &facts.gains {
        for (subject, gain) in gains
            .all
            .iter()
            .map(|all| ("all", all))
            .chain(gains.operations.iter().map(|(o, g)| (o.as_str(), g)))
        {
            table.gain(subject, gain, gains.known_by, &gains.judged_on)?;
        }
    }
    table.absent("model_error", &summary.errors)?;
    if let Reading::Known(errors) = &summary.errors {
        table.accuracy("all", &errors.all)?;
        for (operation, accuracy) in &errors.operations {
            table.accuracy(operation, accuracy)?;
        }
        for (decade, accuracy) in &errors.decades {
            table.accuracy(&format!("from 1e{decade} B"), accuracy)?;
        }
    }
    predictions(&mut table, summary)?;
    observed(&mut table, summary)?;
    let bytes = table
        .0
        .into_inner()
        .map_err(|error| ::csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn predictions(table: &mut Table, summary: &Summary<'_>) -> Result<(), ExportError> {
    let list = &summary.facts.predictions;
    table.absent("prediction", list)?;
    for one in list.known().into_iter().flatten() {
        let told = Foretold::from(one);
        let line = |quantity, known_by: KnownBy| Line {
            section: "prediction",
            subject: &told.workload,
            kernel: told.kernel,
            parameters: &told.parameters,
            quantity,
            unit: "ns",
            known_by: known_by.word(),
            ..Line::default()
        };
        table.add(&Line {
            value: Some(told.modelled_ns),
            low: Some(told.modelled_low_ns),
            high: Some(told.modelled_high_ns),
            ..line("predicted_time", KnownBy::Modelled)
        })?;
        table.add(&Line {
            value: Some(told.measured_ns),
            ..line("time", KnownBy::Measured)
        })?;
    }
    Ok(())
}

/// What happened while programs ran.
fn observed(table: &mut Table, summary: &Summary<'_>) -> Result<(), ExportError> {
    let facts = summary.facts;
    table.absent("regret", &facts.regret)?;
    if let Some(regret) = facts.regret.known() {
        for point in &regret.points {
            let subject = format!("after {} calls", point.calls);
            for (quantity, value, known_by) in [
                ("excess", point.excess_s, regret.known_by.word()),
                ("budget", point.budget_s, "setting"),
                ("regret", point.regret_s, regret.known_by.word()),
            ] {
                let (subject, words) = (subject.as_str(), regret.source.as_str());
                let value = Some(value);
                table.add(&Line {
                    section: "regret",
                    subject,
                    quantity,
                    unit: "s",
                    value,
                    known_by,
                    words,
                    ..Line::default()
                })?;
            }
        }
    }
    table.absent("event", &facts.events)?;
    for event in facts.events.known().into_iter().flatten() {
        let words = match event.during.as_str() {
            "" => event.words.clone(),
            during => format!("{} (during `{during}`)", event.words),
        };
        table.add(&Line {
            section: "event",
            subject: event.kind.word(),
            quantity: event.severity.word(),
            unit: "s since 1970",
            value: Some(event.at_s as f64),
            known_by: KnownBy::Measured.word(),
            words: &words,
            ..Line::default()
        })?;
    }
    table.absent("quarantine", &facts.quarantines)?;
    for one in facts.quarantines.known().into_iter().flatten() {
        table.add(&Line {
            section: "quarantine",
            subject: &one.case,
            kernel: &one.kernel,
            quantity: if one.lifted { "lifted" } else { "kept away" },
            unit: "version",
            value: Some(f64::from(one.version)),
            words: &one.evidence,
            ..Line::default()
        })?;
    }
    table.absent("load_demo", &facts.load_demo)?;
    if let Some(demo) = facts.load_demo.known() {
        for phase in &demo.phases {
            let subject = format!("{}, {}", phase.stream, phase.phase);
            let rates = [
                ("best_fixed", phase.best_fixed_calls_per_s),
                ("library_default", phase.library_default_calls_per_s),
                ("kernelwise", phase.kernelwise_calls_per_s),
            ];
            for (quantity, value) in rates {
                let known_by = if value.is_some() {
                    demo.known_by
                } else {
                    KnownBy::Unknown
                };
                let (subject, known_by) = (subject.as_str(), known_by.word());
                table.add(&Line {
                    section: "load_demo",
                    subject,
                    quantity,
                    unit: "calls/s",
                    value,
                    known_by,
                    ..Line::default()
                })?;
            }
        }
    }
    for (section, list) in [
        ("warning", &facts.warnings),
        ("condition", &facts.conditions),
        ("command", &facts.commands),
    ] {
        for words in list {
            table.add(&Line {
                section,
                words,
                ..Line::default()
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn formulas_stay_text() {
        for hostile in [
            "=cmd|' /C calc'!A0",
            "+1",
            "-1",
            "@SUM(A1)",
            " =1",
            "\t=1",
            "\r=1",
            "|x",
            "%x",
        ] {
            assert!(text(hostile).starts_with('\''), "{hostile:?}");
        }
        assert_eq!(text("matmul f32 8x8x8"), "matmul f32 8x8x8");
        assert_eq!(text("a=1"), "a=1");
        assert_eq!(text("a\0b"), "a\u{fffd}b");
    }
}
