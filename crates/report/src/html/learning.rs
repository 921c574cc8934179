//! What learning cost while it went on: the cost of trials under the budget they may not exceed, and the regret of all calls.

use maud::{Markup, html};

use super::parts::{
    Data, Ruler, WIDTH, absent, across, chip, figure, folded, known, number, or_absent, place,
    round, section, short, source, table, upward_from, words,
};
use super::scale::Axis;
use super::spread;
use crate::facts::{Regret, RegretPoint};
use crate::summary::Summary;
use crate::text::{percent, seconds};

const HEIGHT: f64 = 500.0;
/// Left and right of both fields.
const SIDES: (f64, f64) = (70.0, WIDTH - 12.0);
/// Top and bottom of the field of trials, and of that of regret: one is often many times the other, so each has its own scale.
const TRIALS: (f64, f64) = (30.0, 200.0);
const REGRET: (f64, f64) = (262.0, HEIGHT - 52.0);
/// A line needs no more points than the page has places for them.
const MOST_POINTS: usize = 400;

pub(super) fn show(summary: &Summary<'_>, data: &mut Data) -> Markup {
    let lead = "A learner tries other kernels on real calls. Those trials cost time, within a budget; and until it knows the best kernel, \
        calls take longer than they could. Regret counts both: what all calls took longer than if the best kernel had served each of them.";
    let body = or_absent(&summary.facts.regret, |regret| {
        match regret.points.is_empty() {
            true => absent("no call was followed"),
            false => shown(regret, data),
        }
    });
    section("regret", "Regret over time", lead, body)
}

fn line(points: &[(f64, f64, usize)]) -> String {
    let step = |(i, (x, y, _)): (usize, &(f64, f64, usize))| {
        format!(
            "{}{} {}",
            if i == 0 { "M" } else { "L" },
            place(*x),
            place(*y)
        )
    };
    points.iter().enumerate().map(step).collect()
}

/// What lies between a line and the bottom of its field.
fn area(points: &[(f64, f64, usize)], bottom: f64) -> String {
    let ends = points.first().zip(points.last());
    let close = |((from, ..), (to, ..)): (&(f64, f64, usize), &(f64, f64, usize))| {
        let bottom = place(bottom);
        format!(
            "{}L{} {bottom}L{} {bottom}z",
            line(points),
            place(*to),
            place(*from)
        )
    };
    ends.map_or_else(String::new, close)
}

fn shown(regret: &Regret, data: &mut Data) -> Markup {
    let points: Vec<&RegretPoint> = spread(regret.points.len(), MOST_POINTS)
        .map(|i| &regret.points[i])
        .collect();
    let (left, right) = SIDES;
    let x = Axis::steps(points.iter().map(|point| point.calls as f64), SIDES);
    let up =
        |(top, bottom): (f64, f64), times: Vec<f64>| Axis::steps(times.into_iter(), (bottom, top));
    let trials = points
        .iter()
        .flat_map(|point| [point.excess_s, point.budget_s]);
    let trials = up(TRIALS, trials.collect());
    let behind = up(REGRET, points.iter().map(|point| point.regret_s).collect());
    let drawn = x.zip(trials).map(|(x, trials)| {
        let of = |y: &Axis, value: &dyn Fn(&RegretPoint) -> f64| -> Vec<(f64, f64, usize)> {
            let all = points.iter().enumerate();
            let finite = all.filter(|(_, point)| value(point).is_finite());
            finite
                .map(|(i, point)| (x.at(point.calls as f64), y.at(value(point)), i))
                .collect()
        };
        let excess = of(&trials, &|point| point.excess_s);
        let budget = of(&trials, &|point| point.budget_s);
        let regret_of_all = behind.as_ref().map(|y| of(y, &|point| point.regret_s));
        let regret_of_all = regret_of_all.unwrap_or_default();
        // Both curves can be pointed at, and tell the same row.
        let rows = excess.iter().chain(&regret_of_all);
        let rows = rows.map(|(x, y, row)| (*x, *y, *row, 0));
        data.points("regret", "regret-list", &rows.collect::<Vec<_>>());
        let label = |value: f64| round(&seconds(value));
        let upright = |y: &Axis, name: &str, (top, bottom): (f64, f64), across_name: &str| html! {
            (across(&Ruler { axis: &x, name: across_name, label: &short }, top, bottom))
            (upward_from(&Ruler { axis: y, name, label: &label }, left, right, top))
        };
        let svg = html! {
            (upright(&trials, "cost of trials", TRIALS, ""))
            path.area d=(area(&excess, TRIALS.1)) {}
            path.curve d=(line(&excess)) {}
            path.budget d=(line(&budget)) {}
            @if let Some(behind) = &behind {
                (upright(behind, "regret of all calls", REGRET, "calls"))
                path.area.behind d=(area(&regret_of_all, REGRET.1)) {}
                path.curve.behind d=(line(&regret_of_all)) {}
            }
        };
        let alternative = "Cost of trials under the line of the budget, and below it regret, over calls; the table below has the numbers.";
        let below = html! {
            ul.legend {
                li { span class="rule curve" {} " cost of trials " (chip(regret.known_by)) }
                li { span class="rule budget" {} " budget of trials, a setting" }
                li { span class="rule curve behind" {} " regret of all calls " (chip(regret.known_by)) }
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
            known(point.regret_s, seconds(point.regret_s)),
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
        "#cost of trials",
        "#budget, set",
        "#of budget",
        "#regret",
        "inside budget",
        "known by",
    ];
    html! {
        @if let Some(drawn) = drawn { (drawn) }
        p.note { (regret.source) "." }
        (folded("The same as a table", points.len(), table("regret-list", "Cost of trials, their budget and regret over calls", &columns, rows.collect())))
    }
}
