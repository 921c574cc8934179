//! Every time that is known, in one table: what the roofline shows, and what all else follows from.

use maud::{Markup, html};

use super::parts::{absent, number, section, table, words};
use super::{MOST_ROWS, spread};
use crate::summary::Summary;
use crate::text::{count, flops, nanos};

/// The rows that a page shows, in the order of the facts: the fastest of each workload, and of the others an even spread over all of
/// them, as far as there is room.
pub(super) fn picked(summary: &Summary<'_>) -> Vec<usize> {
    let (fastest, others): (Vec<usize>, Vec<usize>) =
        (0..summary.rows.len()).partition(|i| summary.rows[*i].fastest);
    let mut picked: Vec<usize> = spread(fastest.len(), MOST_ROWS)
        .map(|i| fastest[i])
        .collect();
    let room = MOST_ROWS - picked.len();
    picked.extend(spread(others.len(), room).map(|i| others[i]));
    picked.sort_unstable();
    picked
}

pub(super) fn show(summary: &Summary<'_>, picked: &[usize]) -> Markup {
    let lead = "What is known of every kernel on every workload.";
    let body = match picked.is_empty() {
        true => absent("no times are on record"),
        false => shown(summary, picked),
    };
    section("all-times", "All times", lead, body)
}

fn shown(summary: &Summary<'_>, picked: &[usize]) -> Markup {
    let rows = picked.iter().map(|i| {
        let row = &summary.rows[*i];
        let range = row.low_ns.zip(row.high_ns);
        vec![
            words(&row.workload),
            words(row.kernel),
            words(&row.parameters),
            number(
                row.time_ns,
                row.time_ns.map_or_else(|| "unknown".to_owned(), nanos),
            ),
            number(
                range.map(|(low, _)| low),
                range.map_or_else(
                    || "unknown".to_owned(),
                    |(low, high)| format!("{} to {}", nanos(low), nanos(high)),
                ),
            ),
            number(
                row.samples.map(|n| n as f64),
                row.samples.map_or_else(String::new, |n| n.to_string()),
            ),
            words(match row.source {
                Some(source) => format!("{}: {source}", row.known_by.word()),
                None => row.known_by.word().to_owned(),
            }),
            number(
                row.rate_flop_per_s,
                row.rate_flop_per_s.map_or_else(String::new, flops),
            ),
            words(if row.fastest { "yes" } else { "" }),
        ]
    });
    let columns = [
        "workload",
        "kernel",
        "parameters",
        "#time",
        "#interval",
        "#samples",
        "known by",
        "#rate",
        "fastest",
    ];
    let left_out = summary.rows.len() - picked.len();
    html! {
        @if left_out > 0 {
            p.note {
                "Shown are " (picked.len()) " of " (summary.rows.len()) " times: the fastest of each workload, and an even spread of the others. "
                code { "kernelwise report --format csv" } " has all."
            }
        }
        details #times-fold.long {
            summary { "Table of " (count(picked.len(), "time")) }
            p.pick.scripted {
                label for="times-filter" { "Show rows with " }
                input id="times-filter" type="search" data-filters-rows="times" placeholder="matmul openblas";
                " " output for="times-filter" {}
            }
            (table("times", "Times by workload and kernel", &columns, rows.collect()))
        }
    }
}
