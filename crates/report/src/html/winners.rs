//! The map of winners: a table, coloured by kernel, so that it is its own text alternative.

use maud::{Markup, html};

use super::colour;
use super::parts::{absent, folded, number, section, source, table, words};
use crate::summary::{Cell, Summary, WinnerMap};
use crate::text::{count, decade, percent};

/// A letter for each variant of the legend: colour alone tells too little.
fn letter(place: usize) -> String {
    let of = |i: usize| char::from(b'A' + (i % 26) as u8);
    match place / 26 {
        0 => of(place).to_string(),
        more => format!("{}{}", of(more - 1), of(place)),
    }
}

pub(super) fn show(summary: &Summary<'_>) -> Markup {
    let map = &summary.winners;
    let lead = "The kernel that is fastest on most workloads of each field. Size is the bytes that one call must move.";
    let body = match map.cells.is_empty() {
        true => absent("no times are on record"),
        false => html! {
            (drawn(map))
            (legend(map))
            (folded("The same as a table", map.cells.len(), list(map)))
        },
    };
    section("winners", "Which kernel wins where", lead, body)
}

fn drawn(map: &WinnerMap) -> Markup {
    let decades = map.decades();
    html! {
        div.scroll.map tabindex="0" role="region" aria-label="Map of winners. Arrow keys walk through the fields." {
            table {
                caption.hidden { "Fastest kernel by operation and size; letters are explained in the legend below" }
                thead {
                    tr {
                        th scope="col" { span.hidden { "Operation" } }
                        @for power in &decades { th scope="col" { (decade(*power)) } }
                    }
                }
                tbody {
                    @for line in map.lines() {
                        tr {
                            th scope="row" { (line.0) " " small { (line.1) } }
                            @for power in &decades { (field(map, map.cell(line, *power))) }
                        }
                    }
                }
            }
        }
    }
}

fn field(map: &WinnerMap, cell: Option<&Cell>) -> Markup {
    let Some(cell) = cell else {
        return html! { td.none { span.hidden { "unknown" } } };
    };
    let place = map.place(&cell.variant).unwrap_or(usize::MAX);
    let tie = if cell.near_tie { " tie" } else { "" };
    let mut tip = format!(
        "{}\n{} {}, from {} to {}\nfastest on {} of {}, {}\nnear ties: {}",
        cell.kernel,
        cell.operation,
        cell.dtype,
        decade(cell.decade),
        decade(cell.decade + 1),
        cell.wins,
        count(cell.workloads, "workload"),
        cell.known_by.word(),
        cell.near_ties,
    );
    for (kernel, wins) in &cell.others {
        tip += &format!("\n{wins} × {kernel}");
    }
    html! {
        td class={ "field " (colour(place)) (tie) } data-tip=(tip) {
            b { (letter(place)) } span.share { (cell.wins) "/" (cell.workloads) }
            @if cell.near_tie { span.hidden { " near tie" } }
        }
    }
}

fn legend(map: &WinnerMap) -> Markup {
    let named = map.variants.iter().enumerate();
    let named = named.filter(|(_, variant)| map.cells.iter().any(|cell| cell.variant == **variant));
    html! {
        ul.legend aria-label="Legend" {
            @for (i, variant) in named { li { span class={ "key " (colour(i)) } { (letter(i)) } " " (variant) } }
            li { span class="key tie" { } " hatched: on half of the workloads or more, another kernel is within 2 %" }
        }
        p.note {
            (map.near_ties) " of " (count(map.workloads, "workload")) " (" (percent(map.near_ties as f64 / map.workloads as f64))
            ") are near ties. Under each letter: workloads on which that kernel wins, of all in the field."
        }
    }
}

fn list(map: &WinnerMap) -> Markup {
    let rows = map.cells.iter().map(|cell| {
        let others: Vec<String> = cell
            .others
            .iter()
            .map(|(kernel, wins)| format!("{kernel} {wins}"))
            .collect();
        vec![
            words(format!("{} {}", cell.operation, cell.dtype)),
            number(f64::from(cell.decade), decade(cell.decade)),
            words(&cell.kernel),
            number(
                cell.wins as f64,
                format!("{} of {}", cell.wins, cell.workloads),
            ),
            number(cell.near_ties as f64, cell.near_ties.to_string()),
            words(others.join(", ")),
            source(cell.known_by),
        ]
    });
    let columns = [
        "operation",
        "#size from",
        "kernel",
        "#wins",
        "#near ties",
        "others that win",
        "known by",
    ];
    table(
        "winner-list",
        "Fastest kernels by operation and size",
        &columns,
        rows.collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::letter;

    #[test]
    fn letters_go_on_after_z() {
        assert_eq!([0, 25, 26, 53].map(letter), ["A", "Z", "AA", "BB"]);
    }
}
