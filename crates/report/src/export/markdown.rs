//! The report as Markdown: the words and the small tables, for a pull request or a terminal.

use std::fmt::Write;

use kernelwise_types::Reading;

use crate::facts::{KnownBy, Ratio};
use crate::summary::{Accuracy, Summary};
use crate::text::{self, count, decade, factor, per_second, percent, visible};

/// Text in which nothing is markup.
fn plain(text: &str) -> String {
    let mut safe = String::new();
    for c in visible(text).chars() {
        match c {
            '\n' => safe.push(' '),
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '&' => safe += "&amp;",
            '\\' | '`' | '*' | '[' | ']' | '|' | '#' | '!' | '~' | '$' => {
                safe.push('\\');
                safe.push(c);
            }
            '_' => safe += "\\_",
            c => safe.push(c),
        }
    }
    safe
}

struct Page(String);

impl Page {
    fn line(&mut self, line: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{line}");
    }

    fn section(&mut self, title: &str) {
        self.line(&format!("\n## {title}\n"));
    }

    /// A table; cells are made plain here and nowhere else.
    fn table(&mut self, headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
        self.line(&format!("| {} |", headings.join(" | ")));
        self.line(&format!("|{}", " --- |".repeat(headings.len())));
        for row in rows {
            let cells: Vec<String> = row.iter().map(|cell| plain(cell)).collect();
            self.line(&format!("| {} |", cells.join(" | ")));
        }
    }

    /// Says why a part is absent.
    fn absent<T>(&mut self, reading: &Reading<T>) {
        if let Some(why) = reading.reason() {
            self.line(&format!("Unknown: {}.", plain(why)));
        }
    }
}

fn ratio(ratio: Option<Ratio>, known_by: KnownBy) -> String {
    match ratio {
        Some(Ratio {
            mean,
            low: Some(low),
            high: Some(high),
        }) => {
            format!("{mean:.3} ({low:.3} to {high:.3}) {}", known_by.word())
        }
        Some(ratio) => format!("{:.3} {}", ratio.mean, known_by.word()),
        None => text::UNKNOWN.to_owned(),
    }
}

fn accuracy((name, one): (String, &Accuracy)) -> Vec<String> {
    vec![
        name,
        one.times.to_string(),
        factor(one.median_error_factor),
        factor(one.p90_error_factor),
        percent(one.in_interval_share),
    ]
}

/// The whole report.
pub(crate) fn markdown(summary: &Summary<'_>) -> String {
    let facts = summary.facts;
    let mut page = Page(String::new());
    page.line("# Kernelwise report\n");
    page.line(&format!("Made {}.\n", text::utc(facts.generated_at_s)));
    for words in &summary.words {
        page.line(&format!("- {}", plain(words)));
    }
    page.section("Which kernel wins where");
    match summary.winners.cells.is_empty() {
        true => page.line("Unknown: no times are on record."),
        false => page.table(
            &[
                "operation",
                "size from",
                "kernel",
                "wins",
                "near tie",
                "known by",
            ],
            summary.winners.cells.iter().map(|cell| {
                vec![
                    format!("{} {}", cell.operation, cell.dtype),
                    decade(cell.decade),
                    cell.kernel.clone(),
                    format!("{} of {}", cell.wins, cell.workloads),
                    if cell.near_tie { "yes" } else { "no" }.to_owned(),
                    cell.known_by.word().to_owned(),
                ]
            }),
        ),
    }
    page.section("What choosing is worth");
    page.absent(&facts.gains);
    if let Reading::Known(gains) = &facts.gains {
        page.line(&format!(
            "Time of a fixed choice ÷ time of the learned choice (geometric mean, 90 % interval); above 1 means choosing helps. {}.\n",
            plain(&gains.judged_on)
        ));
        let operations = gains.operations.iter();
        let operations = operations.map(|(name, gain)| (name.as_str(), gain));
        let lists = operations.chain(gains.all.iter().map(|all| ("all", all)));
        page.table(
            &[
                "operation",
                "shapes",
                "best single kernel",
                "rule written by hand",
            ],
            lists.map(|(name, gain)| {
                vec![
                    name.to_owned(),
                    gain.shapes.to_string(),
                    ratio(gain.over_single(), gains.known_by),
                    ratio(gain.over_rule(), gains.known_by),
                ]
            }),
        );
    }
    page.section("How good models are");
    page.absent(&summary.errors);
    if let Reading::Known(errors) = &summary.errors {
        page.line("Modelled times held against measured ones.\n");
        let operations = errors
            .operations
            .iter()
            .map(|(name, one)| (name.clone(), one));
        let sizes = errors
            .decades
            .iter()
            .map(|(power, one)| (format!("from {}", decade(*power)), one));
        let all = std::iter::once(("all".to_owned(), &errors.all));
        let headings = [
            "",
            "times",
            "half within",
            "nine in ten within",
            "in 90 % intervals",
        ];
        page.table(&headings, all.chain(operations).chain(sizes).map(accuracy));
    }
    observed(&mut page, summary);
    machine(&mut page, summary);
    page.0
}

/// What happened while programs ran.
fn observed(page: &mut Page, summary: &Summary<'_>) {
    let facts = summary.facts;
    page.section("What learning cost");
    page.absent(&facts.regret);
    if let Reading::Known(regret) = &facts.regret {
        page.line(&format!(
            "{} ({}), after the last call:\n",
            plain(&regret.source),
            regret.known_by.word()
        ));
        page.table(
            &["calls", "cost of trials", "budget of trials", "regret"],
            regret.points.last().map(|point| {
                let known = |s: f64| match s.is_finite() {
                    true => format!("{} {}", text::seconds(s), regret.known_by.word()),
                    false => text::UNKNOWN.to_owned(),
                };
                vec![
                    point.calls.to_string(),
                    known(point.excess_s),
                    format!("{} set", text::seconds(point.budget_s)),
                    known(point.regret_s),
                ]
            }),
        );
    }
    page.section("Drift, anomalies, trends, correlations");
    page.absent(&facts.events);
    if let Reading::Known(events) = &facts.events {
        match events.is_empty() {
            true => page.line("None was noticed."),
            false => page.table(
                &["when", "what", "severity", "in words", "during"],
                events.iter().map(|event| {
                    let words = [
                        event.kind.word(),
                        event.severity.word(),
                        &event.words,
                        &event.during,
                    ]
                    .map(str::to_owned);
                    [text::utc(event.at_s)].into_iter().chain(words).collect()
                }),
            ),
        }
    }
    page.section("Quarantines");
    page.absent(&facts.quarantines);
    if let Reading::Known(list) = &facts.quarantines {
        match list.is_empty() {
            true => page.line("None."),
            false => page.table(
                &["kernel", "version", "on", "evidence", "state"],
                list.iter().map(|one| {
                    let state = if one.lifted {
                        "let back in"
                    } else {
                        "kept away"
                    };
                    vec![
                        one.kernel.clone(),
                        one.version.to_string(),
                        one.case.clone(),
                        one.evidence.clone(),
                        state.to_owned(),
                    ]
                }),
            ),
        }
    }
    page.section("Under load");
    page.absent(&facts.load_demo);
    if let Reading::Known(demo) = &facts.load_demo {
        let rate = |rate: Option<f64>| {
            rate.map_or_else(
                || text::UNKNOWN.to_owned(),
                |r| format!("{} {}", per_second(r), demo.known_by.word()),
            )
        };
        page.table(
            &[
                "stream",
                "phase",
                "best fixed threads",
                "library default",
                "kernelwise",
            ],
            demo.phases.iter().map(|one| {
                vec![
                    one.stream.clone(),
                    one.phase.clone(),
                    rate(one.best_fixed_calls_per_s),
                    rate(one.library_default_calls_per_s),
                    rate(one.kernelwise_calls_per_s),
                ]
            }),
        );
    }
}

fn machine(page: &mut Page, summary: &Summary<'_>) {
    let facts = summary.facts;
    page.section("Machine, conditions, warnings");
    let cpu = &facts.machine.cpu;
    page.line(&format!(
        "- processor: {}, {}",
        plain(&cpu.model.to_string()),
        plain(&cpu.arch)
    ));
    page.line(&format!(
        "- threads: {}",
        count(facts.machine.usable_threads() as usize, "usable thread")
    ));
    page.line(&format!(
        "- system: {} {}",
        plain(&facts.machine.os),
        plain(&facts.machine.kernel.to_string())
    ));
    for (name, list) in [
        ("condition", &facts.conditions),
        ("warning", &facts.warnings),
        ("command", &facts.commands),
    ] {
        for words in list {
            page.line(&format!("- {name}: {}", plain(words)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn nothing_is_markup() {
        assert_eq!(plain("a|b\n# c"), "a\\|b \\# c");
        assert_eq!(
            plain("<img src=x onerror=1>"),
            "&lt;img src=x onerror=1&gt;"
        );
        assert_eq!(plain("[x](y) `z` *w*"), "\\[x\\](y) \\`z\\` \\*w\\*");
        assert_eq!(plain("a\u{1b}[31m"), "a\u{fffd}\\[31m");
    }
}
