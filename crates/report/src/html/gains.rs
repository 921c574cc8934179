//! What choosing is worth: how many times as long fixed choices take, as points with ranges around one.

use kernelwise_types::Reading;
use maud::{Markup, html};

use super::parts::{
    Cell, Data, Ruler, WIDTH, across, chip, figure, known, number, or_absent, place, prose,
    section, source, table, words,
};
use super::scale::Axis;
use crate::facts::{Gain, Gains, KnownBy, Ratio};
use crate::summary::Summary;

const ROW: f64 = 34.0;
const TOP: f64 = 14.0;
const LEFT: f64 = 142.0;
/// The name of all operations together.
const ALL: &str = "all";

pub(super) fn show(summary: &Summary<'_>, data: &mut Data) -> Markup {
    let lead = "Time of a fixed choice ÷ time of the learned choice (geometric mean, 90 % interval). Above 1 means choosing helps.";
    let body = or_absent(&summary.facts.gains, |gains| shown(gains, data));
    section("gains", "What choosing is worth", lead, body)
}

/// By operation, then all together.
fn lists(gains: &Gains) -> Vec<(&str, &Gain)> {
    let all = gains.all.iter().map(|all| (ALL, all));
    let operations = gains.operations.iter();
    let operations = operations.map(|(name, gain)| (name.as_str(), gain));
    operations.chain(all).collect()
}

fn shown(gains: &Gains, data: &mut Data) -> Markup {
    let lists = lists(gains);
    let ratios = lists
        .iter()
        .flat_map(|(_, gain)| [gain.over_single(), gain.over_rule()]);
    let values = ratios
        .flatten()
        .flat_map(|ratio| [Some(ratio.mean), ratio.low, ratio.high])
        .flatten();
    let axis = Axis::ratios(values, (LEFT, WIDTH - 20.0));
    let bottom = TOP + ROW * lists.len() as f64;
    let drawn = axis.map(|axis| {
        let mut points = Vec::new();
        let svg = html! {
            (across(&Ruler { axis: &axis, name: "time of a fixed choice ÷ time of the learned choice", label: &|value| format!("{value}") }, TOP, bottom))
            path.one d={ "M" (place(axis.at(1.0))) " " (place(TOP)) "V" (place(bottom)) } {}
            @for (i, (name, gain)) in lists.iter().enumerate() {
                @let y = TOP + ROW * (i as f64 + 0.5);
                text class={ "row" (if *name == ALL { " all" } else { "" }) } x=(place(LEFT - 12.0)) y=(place(y + 4.0)) text-anchor="end" { (name) }
                (mark(&axis, gain.over_single(), y - 6.0, "single", i, &mut points))
                (mark(&axis, gain.over_rule(), y + 6.0, "by-rule", i, &mut points))
            }
        };
        data.points("gains", "gain-list", &points);
        let alternative = format!("Ratios of {} lists of shapes with their ranges; the table below has the numbers.", lists.len());
        let below = html! {
            ul.legend {
                li { span class="mark single" {} " the best single kernel of the operation" }
                li { span class="mark by-rule" {} " a rule written by hand" }
                li { "Bars: where the geometric mean lies nine times in ten." }
            }
        };
        figure("gains", &alternative, bottom + 54.0, svg, below)
    });
    let rows = lists.iter().map(|(name, gain)| {
        vec![
            words(name),
            number(gain.shapes as f64, gain.shapes.to_string()),
            cell(gain.over_single()),
            cell(gain.over_rule()),
            source(gains.known_by),
        ]
    });
    let columns = [
        "operation",
        "#shapes",
        "#best single kernel ÷ learned",
        "#rule by hand ÷ learned",
        "known by",
    ];
    html! {
        @if let Some(drawn) = drawn { (drawn) }
        (table("gain-list", "Time of a fixed choice ÷ time of the learned choice: geometric mean and 90 % interval", &columns, rows.collect()))
        p.note { (chip(gains.known_by)) " " (prose(&gains.judged_on)) "." }
    }
}

fn cell(ratio: Option<Ratio>) -> Cell {
    let shown = ratio.map_or_else(String::new, |ratio| match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => format!("{:.3} ({low:.3} to {high:.3})", ratio.mean),
        _ => format!("{:.3}", ratio.mean),
    });
    known(ratio.map(|ratio| ratio.mean), shown)
}

/// One ratio with its range.
fn mark(
    axis: &Axis,
    ratio: Option<Ratio>,
    y: f64,
    class: &str,
    row: usize,
    points: &mut Vec<(f64, f64, usize, usize)>,
) -> Markup {
    let Some(ratio) = ratio else {
        return html! {};
    };
    let x = axis.at(ratio.mean);
    points.push((x, y, row, 0));
    let shape = match class {
        "single" => format!(
            "M{} {}m-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
            place(x),
            place(y)
        ),
        _ => format!(
            "M{} {}l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
            place(x),
            place(y - 5.5)
        ),
    };
    html! {
        @if let (Some(low), Some(high)) = (ratio.low, ratio.high) {
            path class={ "whisker " (class) } d={ "M" (place(axis.at(low))) " " (place(y)) "H" (place(axis.at(high))) } {}
        }
        path class={ "mean " (class) } d=(shape) {}
    }
}

/// A figure in large letters for the head of the page, or why there is none.
pub(super) fn headline(
    gains: &Reading<Gains>,
    of: impl Fn(&Gain) -> Option<Ratio>,
) -> (Option<String>, KnownBy) {
    let known = gains
        .known()
        .and_then(|gains| Some((of(gains.all.as_ref()?)?, gains.known_by)));
    match known {
        Some((ratio, known_by)) => (Some(format!("×{:.2}", ratio.mean)), known_by),
        None => (None, KnownBy::Unknown),
    }
}
