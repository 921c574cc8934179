//! What learning cost while it went on, under the line it may not cross.

use maud::{Markup, html};

use super::parts::{
    Data, Ruler, WIDTH, absent, across, chip, figure, folded, known, number, or_absent, place,
    round, section, short, source, table, upward, words,
};
use super::scale::Axis;
use super::spread;
use crate::facts::{Regret, RegretPoint};
use crate::summary::Summary;
use crate::text::{percent, seconds};

const HEIGHT: f64 = 320.0;
/// Left, right, top and bottom of the field.
const FIELD: (f64, f64, f64, f64) = (70.0, WIDTH - 12.0, 30.0, HEIGHT - 52.0);
/// A line needs no more points than the page has places for them.
const MOST_POINTS: usize = 400;

pub(super) fn show(summary: &Summary<'_>, data: &mut Data) -> Markup {
    let lead = "What trying other kernels cost over the calls that learning needed them for, against the budget it was given.";
    let body = or_absent(&summary.facts.regret, |regret| {
        match regret.points.is_empty() {
            true => absent("no call was followed"),
            false => shown(regret, data),
        }
    });
    section("regret", "Regret over time", lead, body)
}

fn line(points: &[(f64, f64)]) -> String {
    let step = |(i, (x, y)): (usize, &(f64, f64))| {
        format!(
            "{}{} {}",
            if i == 0 { "M" } else { "L" },
            place(*x),
            place(*y)
        )
    };
    points.iter().enumerate().map(step).collect()
}

fn shown(regret: &Regret, data: &mut Data) -> Markup {
    let points: Vec<&RegretPoint> = spread(regret.points.len(), MOST_POINTS)
        .map(|i| &regret.points[i])
        .collect();
    let (left, right, top, bottom) = FIELD;
    let x = Axis::steps(points.iter().map(|point| point.calls as f64), (left, right));
    let y = Axis::steps(
        points
            .iter()
            .flat_map(|point| [point.excess_s, point.budget_s]),
        (bottom, top),
    );
    let drawn = x.zip(y).map(|(x, y)| {
        let of = |value: &dyn Fn(&RegretPoint) -> f64| -> Vec<(f64, f64)> {
            let finite = points.iter().filter(|point| value(point).is_finite());
            finite.map(|point| (x.at(point.calls as f64), y.at(value(point)))).collect()
        };
        let (excess, budget) = (of(&|point| point.excess_s), of(&|point| point.budget_s));
        let ends = excess.first().zip(excess.last());
        let area = ends.map(|((from, _), (to, _))| format!("{}L{} {}L{} {}z", line(&excess), place(*to), place(bottom), place(*from), place(bottom)));
        let rows = points.iter().enumerate().filter(|(_, point)| point.excess_s.is_finite());
        let rows = rows.map(|(i, point)| (x.at(point.calls as f64), y.at(point.excess_s), i, 0));
        data.points("regret", "regret-list", &rows.collect::<Vec<_>>());
        let label = |value: f64| round(&seconds(value));
        let svg = html! {
            (across(&Ruler { axis: &x, name: "calls", label: &short }, top, bottom))
            (upward(&Ruler { axis: &y, name: "excess time", label: &label }, left, right))
            @if let Some(area) = area { path.area d=(area) {} }
            path.curve d=(line(&excess)) {}
            path.budget d=(line(&budget)) {}
        };
        let alternative = "Excess time over calls, under the line of the budget; the table below has the numbers.";
        let below = html! {
            ul.legend {
                li { span class="rule curve" {} " excess " (chip(regret.known_by)) }
                li { span class="rule budget" {} " budget, a setting" }
            }
        };
        figure("regret", alternative, HEIGHT, svg, below)
    });
    let rows = points.iter().map(|point| {
        let share = point.excess_s / point.budget_s;
        vec![
            number(point.calls as f64, point.calls.to_string()),
            known(point.excess_s, seconds(point.excess_s)),
            number(point.budget_s, seconds(point.budget_s)),
            number(share, percent(share)),
            words(if point.excess_s <= point.budget_s {
                "yes"
            } else {
                "no"
            }),
            source(regret.known_by),
        ]
    });
    let columns = [
        "#calls",
        "#excess",
        "#budget, set",
        "#of budget",
        "inside",
        "known by",
    ];
    html! {
        @if let Some(drawn) = drawn { (drawn) }
        p.note { (regret.source) "." }
        (folded("The same as a table", table("regret-list", "Excess time and budget over calls", &columns, rows.collect())))
    }
}
