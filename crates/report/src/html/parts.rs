//! What sections are made of: figures with details, tables that sort, words for what is absent.

use std::collections::BTreeSet;
use std::fmt::Display;

use kernelwise_types::Reading;
use maud::{Markup, PreEscaped, html};
use serde_json::{Map, Value, json};

use super::scale::Axis;
use crate::facts::KnownBy;
use crate::text::count;

/// Width of figures, in their own units.
pub(super) const WIDTH: f64 = 640.0;

/// The data that the script reads: for every figure, where its points are and which row of which table each belongs to.
#[derive(Debug, Default)]
pub(super) struct Data(Map<String, Value>);

impl Data {
    /// Notes the points of a figure: place, row of the table behind it, group.
    pub(super) fn points(
        &mut self,
        figure: &str,
        table: &str,
        points: &[(f64, f64, usize, usize)],
    ) {
        let tenth = |place: f64| (place * 10.0).round() / 10.0;
        let points = points
            .iter()
            .map(|(x, y, row, group)| json!([tenth(*x), tenth(*y), row, group]));
        let points: Vec<Value> = points.collect();
        self.0.insert(
            figure.to_owned(),
            json!({ "table": table, "points": points }),
        );
    }

    pub(super) fn value(self) -> Value {
        Value::Object(self.0)
    }
}

/// The word for how a figure is known, as a mark beside it.
pub(super) fn chip(known_by: KnownBy) -> Markup {
    let word = known_by.word();
    html! { span class={ "chip " (word) } { (word) } }
}

/// Text in which commands stand between backticks, as they do in the other forms.
pub(super) fn prose(text: &str) -> Markup {
    let parts: Vec<&str> = text.split('`').collect();
    // One that has no partner is a character like others.
    let paired = parts.len() % 2 == 1;
    html! {
        @if paired {
            @for (i, part) in parts.iter().enumerate() {
                @if i % 2 == 1 { code { (part) } } @else { (part) }
            }
        } @else { (text) }
    }
}

/// Says that a part is absent, and why.
pub(super) fn absent(why: &str) -> Markup {
    html! { p.absent { (chip(KnownBy::Unknown)) " " (prose(why)) "." } }
}

/// A section, or the reason why it is empty.
pub(super) fn section(id: &str, title: &str, lead: &str, body: Markup) -> Markup {
    html! {
        section id=(id) aria-labelledby={ (id) "-title" } {
            h2 id={ (id) "-title" } { (title) }
            p.lead { (lead) }
            (body)
        }
    }
}

/// What a reading shows, or why there is nothing to show.
pub(super) fn or_absent<T>(reading: &Reading<T>, show: impl FnOnce(&T) -> Markup) -> Markup {
    match reading {
        Reading::Known(value) => show(value),
        Reading::Unknown(why) => absent(why),
    }
}

/// One cell: what is shown, and the number it is sorted by if it is one.
pub(super) struct Cell {
    shown: Markup,
    key: Option<f64>,
}

/// A cell of text, sorted by its letters.
pub(super) fn words(text: impl AsRef<str>) -> Cell {
    Cell {
        shown: html! { (text.as_ref()) },
        key: None,
    }
}

/// A cell that says how the numbers of its row are known.
pub(super) fn source(known_by: KnownBy) -> Cell {
    Cell {
        shown: chip(known_by),
        key: None,
    }
}

/// A cell with a number.
pub(super) fn number(key: impl Into<Option<f64>>, shown: impl AsRef<str>) -> Cell {
    let key = key.into().filter(|key| key.is_finite());
    Cell {
        shown: html! { (shown.as_ref()) },
        key,
    }
}

/// A cell with a number, or the word that there is none.
pub(super) fn known(key: impl Into<Option<f64>>, shown: impl AsRef<str>) -> Cell {
    let key = key.into().filter(|key| key.is_finite());
    Cell {
        shown: match key {
            Some(_) => html! { (shown.as_ref()) },
            None => chip(KnownBy::Unknown),
        },
        key,
    }
}

/// A table that the script sorts by the headings. Columns named with a leading `#` are numbers; those with `@` are words that
/// have an order of their own.
pub(super) fn table(id: &str, caption: &str, columns: &[&str], rows: Vec<Vec<Cell>>) -> Markup {
    let is_number: Vec<bool> = columns.iter().map(|name| name.starts_with('#')).collect();
    html! {
        div.scroll tabindex="0" role="region" aria-label=(caption) {
            table.sorts id=(id) {
                caption { (caption) }
                thead { tr {
                    @for (name, is_number) in columns.iter().zip(&is_number) {
                        th scope="col" aria-sort="none" class=[is_number.then_some("n")] data-keyed[name.starts_with(['#', '@'])] {
                            button type="button" { (name.trim_start_matches(['#', '@'])) }
                        }
                    }
                } }
                tbody {
                    @for row in rows {
                        tr { @for (cell, is_number) in row.into_iter().zip(&is_number) {
                            td class=[is_number.then_some("n")] data-v=[cell.key] { (cell.shown) }
                        } }
                    }
                }
            }
        }
    }
}

/// Rows beyond which a folded table is left out on paper, unless the reader unfolds it first.
const LONG: usize = 60;

/// A table of so many rows behind a line that opens it.
pub(super) fn folded(summary: &str, rows: usize, body: Markup) -> Markup {
    html! { details.long[rows > LONG] { summary { (summary) " (" (count(rows, "row")) ")" } (body) } }
}

/// A figure that can be walked through by arrow keys, with the text that stands for it.
pub(super) fn figure(
    id: &str,
    alternative: &str,
    height: f64,
    drawn: Markup,
    below: Markup,
) -> Markup {
    html! {
        figure {
            div.canvas data-figure=(id) tabindex="0" role="group" aria-label={ (alternative) " Arrow keys walk through the points." } {
                svg role="img" aria-label=(alternative) viewBox={ "0 0 " (WIDTH) " " (height) } {
                    (drawn)
                    // Around the point whose details are shown.
                    circle.halo.off r="8" {}
                }
            }
            figcaption { (below) }
        }
    }
}

/// A line of an axis: its name, its direction, how its ticks read.
pub(super) struct Ruler<'a> {
    pub(super) axis: &'a Axis,
    pub(super) name: &'a str,
    pub(super) label: &'a dyn Fn(f64) -> String,
}

/// The horizontal axis at the bottom of a field that begins at `top`, with lines up through it.
pub(super) fn across(ruler: &Ruler<'_>, top: f64, bottom: f64) -> Markup {
    html! {
        g.axis {
            @for (value, rare) in ruler.axis.ticks() {
                @let x = place(ruler.axis.at(value));
                path.grid d={ "M" (x) " " (place(top)) "V" (place(bottom)) } {}
                text class=[rare.then_some("rare")] x=(x) y=(place(bottom + 20.0)) text-anchor="middle" { ((ruler.label)(value)) }
            }
            text.name x=(place(ruler.axis.at(ruler.axis.high()))) y=(place(bottom + 42.0)) text-anchor="end" { (ruler.name) }
        }
    }
}

/// The vertical axis at the left of the only field of a figure.
pub(super) fn upward(ruler: &Ruler<'_>, left: f64, right: f64) -> Markup {
    upward_from(ruler, left, right, 30.0)
}

/// The vertical axis at the left of a field that begins at `top`, with its name above.
pub(super) fn upward_from(ruler: &Ruler<'_>, left: f64, right: f64, top: f64) -> Markup {
    html! {
        g.axis {
            @for (value, rare) in ruler.axis.ticks() {
                @let y = ruler.axis.at(value);
                path.grid d={ "M" (place(left)) " " (place(y)) "H" (place(right)) } {}
                text class=[rare.then_some("rare")] x=(place(left - 8.0)) y=(place(y + 4.0)) text-anchor="end" { ((ruler.label)(value)) }
            }
            text.name x=(place(left)) y=(place(top - 12.0)) text-anchor="start" { (ruler.name) }
        }
    }
}

/// A place, to a tenth.
pub(super) fn place(value: f64) -> impl Display + maud::Render {
    format!("{}", (value * 10.0).round() / 10.0)
}

/// Dots at places, as one path: thousands of them are one element. Those in the same place, to a tenth, are drawn once.
pub(super) fn dots(class: &str, places: &[(f64, f64)]) -> Markup {
    let mut seen = BTreeSet::new();
    let steps: String = places
        .iter()
        .map(|(x, y)| format!("M{} {}h0", place(*x), place(*y)))
        .filter(|step| seen.insert(step.clone()))
        .collect();
    html! { @if !places.is_empty() { path class={ "dot " (class) } d=(PreEscaped(steps)) {} } }
}

/// A power of ten in few letters: `0.01`, `100`, `1k`, `10M`.
pub(super) fn short(value: f64) -> String {
    match value {
        v if v >= 0.999e12 => format!("{}T", tidy(v / 1e12)),
        v if v >= 0.999e9 => format!("{}G", tidy(v / 1e9)),
        v if v >= 0.999e6 => format!("{}M", tidy(v / 1e6)),
        v if v >= 0.999e3 => format!("{}k", tidy(v / 1e3)),
        v => tidy(v).to_string(),
    }
}

/// A quantity that is a round number, without the digits that only precision needs.
pub(super) fn round(quantity: &str) -> String {
    match quantity.strip_prefix("0 ") {
        Some(_) => "0".to_owned(),
        None => quantity.replace(".00", "").replace(".0 ", " "),
    }
}

/// Six digits after the point at the most, without what floating point adds.
fn tidy(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_read_short() {
        let quantities = ["10.0 ns", "1.00 µs", "100 ms", "0 ns", "2.50 s"].map(round);
        assert_eq!(quantities, ["10 ns", "1 µs", "100 ms", "0", "2.50 s"]);
        let read: Vec<String> = [0.01, 0.3, 100.0, 1e3, 2.5e6, 1e10, 1e12].map(short).into();
        assert_eq!(read, ["0.01", "0.3", "100", "1k", "2.5M", "10G", "1T"]);
    }

    #[test]
    fn commands_are_set_apart() {
        let shown = |text: &str| prose(text).into_string();
        assert_eq!(
            shown("run `kernelwise learn` <now>"),
            "run <code>kernelwise learn</code> &lt;now&gt;"
        );
        assert_eq!(shown("one ` alone"), "one ` alone");
    }

    #[test]
    fn dots_in_one_place_are_one() {
        let drawn = dots("k0", &[(1.0, 2.0), (1.01, 2.0), (3.0, 4.0)]).into_string();
        assert!(drawn.contains("d=\"M1 2h0M3 4h0\""), "{drawn}");
        assert_eq!(dots("k0", &[]).into_string(), "");
    }

    #[test]
    fn what_has_no_number_is_unknown() {
        assert!(known(None, "").shown.into_string().contains("unknown"));
        assert!(
            known(f64::NAN, "NaN")
                .shown
                .into_string()
                .contains("unknown")
        );
        assert_eq!(known(2.0, "2 s").shown.into_string(), "2 s");
    }
}
