//! Predictions against measurements, and how far off they were by size.

use kernelwise_types::Reading;
use maud::{Markup, PreEscaped, html};

use super::parts::{
    Data, Ruler, WIDTH, absent, across, chip, dots, figure, folded, known, number, or_absent,
    place, round, section, source, table, upward, words,
};
use super::scale::Axis;
use super::{MOST_ROWS, spread};
use crate::facts::{KnownBy, Prediction};
use crate::summary::{Accuracy, Errors, Foretold, Summary};
use crate::text::{count, decade, factor, nanos, percent};

const HEIGHT: f64 = 430.0;
/// Left, right, top and bottom of the field.
const FIELD: (f64, f64, f64, f64) = (70.0, WIDTH - 12.0, 30.0, HEIGHT - 52.0);

pub(super) fn show(summary: &Summary<'_>, data: &mut Data) -> Markup {
    let lead = "Times that a model told before it had seen the workload, against what was then measured. On the diagonal it was right.";
    let body = or_absent(&summary.facts.predictions, |list| match list.is_empty() {
        true => absent("there were no predictions to judge"),
        false => shown(list, data),
    });
    section("predictions", "Prediction against measurement", lead, body)
}

fn shown(list: &[Prediction], data: &mut Data) -> Markup {
    let told: Vec<Foretold<'_>> = spread(list.len(), MOST_ROWS)
        .map(|i| Foretold::from(&list[i]))
        .collect();
    let (left, right, top, bottom) = FIELD;
    let times = || {
        told.iter()
            .flat_map(|one| [one.modelled_ns, one.measured_ns])
    };
    let axes = Axis::powers(times(), (left, right)).zip(Axis::powers(times(), (bottom, top)));
    let drawn = axes.map(|(x, y)| {
        let at = |one: &Foretold<'_>| (x.at(one.measured_ns), y.at(one.modelled_ns));
        let (inside, outside): (Vec<&Foretold<'_>>, Vec<&Foretold<'_>>) = told.iter().partition(|one| one.in_interval);
        let places = |list: &[&Foretold<'_>]| list.iter().map(|one| at(one)).collect::<Vec<_>>();
        let ranges: String = told
            .iter()
            .map(|one| {
                let (low, high) = (y.at(one.modelled_low_ns), y.at(one.modelled_high_ns));
                format!("M{} {}V{}", place(x.at(one.measured_ns)), place(low), place(high))
            })
            .collect();
        let points = told.iter().enumerate().map(|(i, one)| (at(one).0, at(one).1, i, 0));
        data.points("predictions", "prediction-list", &points.collect::<Vec<_>>());
        let label = |value: f64| round(&nanos(value));
        let svg = html! {
            (across(&Ruler { axis: &x, name: "measured", label: &label }, top, bottom))
            (upward(&Ruler { axis: &y, name: "modelled", label: &label }, left, right))
            path.one d={ "M" (place(left)) " " (place(bottom)) "L" (place(right)) " " (place(top)) } {}
            path.ranges d=(PreEscaped(ranges)) {}
            (dots("held", &places(&inside)))
            (dots("missed", &places(&outside)))
            (dots("hole", &places(&outside)))
        };
        let alternative = format!(
            "{} against measurements, {} of them outside their intervals; the table below has the numbers.",
            count(told.len(), "prediction"),
            outside.len()
        );
        let below = html! {
            ul.legend {
                li { span class="mark held" {} " inside the interval that promises 90 % " }
                li { span class="mark missed" {} " outside" }
                li { "Upright lines are the intervals." }
            }
        };
        figure("predictions", &alternative, HEIGHT, svg, below)
    });
    let rows = told.iter().map(|one| {
        let interval = format!(
            "{} to {}",
            nanos(one.modelled_low_ns),
            nanos(one.modelled_high_ns)
        );
        vec![
            words(&one.workload),
            words(one.kernel),
            words(&one.parameters),
            number(one.modelled_ns, nanos(one.modelled_ns)),
            number(one.modelled_low_ns, interval),
            number(one.measured_ns, nanos(one.measured_ns)),
            number(
                one.measured_ns / one.modelled_ns,
                factor(one.measured_ns / one.modelled_ns),
            ),
            words(if one.in_interval { "yes" } else { "no" }),
        ]
    });
    let columns = [
        "workload",
        "kernel",
        "parameters",
        "#time, modelled",
        "#90 % interval, modelled",
        "#time, measured",
        "#measured over modelled",
        "in interval",
    ];
    let list_of = table(
        "prediction-list",
        "Modelled times against measured ones",
        &columns,
        rows.collect(),
    );
    html! {
        @if let Some(drawn) = drawn { (drawn) }
        @if told.len() < list.len() { p.note { "Shown are " (told.len()) " of " (list.len()) " predictions, evenly picked; CSV and JSON have all." } }
        (folded("The same as a table", told.len(), list_of))
    }
}

/// How far off predictions were, by size and by operation.
pub(super) fn errors(summary: &Summary<'_>, data: &mut Data) -> Markup {
    let lead = "By which factor predictions were off, up or down: the point is the middle one, and nine in ten lie within the bar. Size is the bytes that one call must move.";
    let body = or_absent(&summary.errors, |errors| by_size(errors, data));
    section("errors", "Model error by size", lead, body)
}

const ROW: f64 = 30.0;
const TOP: f64 = 10.0;
const LEFT: f64 = 96.0;

fn by_size(errors: &Errors, data: &mut Data) -> Markup {
    let sizes: Vec<(String, &Accuracy)> = errors
        .decades
        .iter()
        .map(|(power, one)| (decade(*power), one))
        .collect();
    let axis = Axis::ratios(
        sizes.iter().map(|(_, one)| one.p90_error_factor),
        (LEFT, WIDTH - 20.0),
    );
    let bottom = TOP + ROW * sizes.len() as f64;
    let drawn = axis.map(|axis| {
        let mut points = Vec::new();
        let svg = html! {
            (across(&Ruler { axis: &axis, name: "factor between measured and modelled", label: &|value| format!("×{value}") }, TOP, bottom))
            path.one d={ "M" (place(axis.at(1.0))) " " (place(TOP)) "V" (place(bottom)) } {}
            @for (i, (name, one)) in sizes.iter().enumerate() {
                @let y = TOP + ROW * (i as f64 + 0.5);
                @let x = axis.at(one.median_error_factor);
                ({ points.push((x, y, i + 1, 0)); "" })
                text.row x=(place(LEFT - 12.0)) y=(place(y + 4.0)) text-anchor="end" { (name) }
                path.span d={ "M" (place(axis.at(1.0))) " " (place(y)) "H" (place(axis.at(one.p90_error_factor))) } {}
                (dots("held large", &[(x, y)]))
            }
        };
        data.points("errors", "error-list", &points);
        let alternative = format!("Error factors of {} sizes; the table below has the numbers.", sizes.len());
        figure("errors", &alternative, bottom + 54.0, svg, html! {})
    });
    let all = std::iter::once(("all".to_owned(), &errors.all));
    let operations = errors
        .operations
        .iter()
        .map(|(name, one)| (name.clone(), one));
    let rows = all
        .chain(
            sizes
                .iter()
                .map(|(size, one)| (format!("from {size}"), *one)),
        )
        .chain(operations)
        .map(|(name, one)| {
            vec![
                words(name),
                number(one.times as f64, one.times.to_string()),
                known(one.median_error_factor, factor(one.median_error_factor)),
                known(one.p90_error_factor, factor(one.p90_error_factor)),
                known(one.in_interval_share, percent(one.in_interval_share)),
                source(KnownBy::Measured),
            ]
        });
    let columns = [
        "group",
        "#times",
        "#half within",
        "#nine in ten within",
        "#in 90 % intervals",
        "known by",
    ];
    html! {
        @if let Some(drawn) = drawn { (drawn) }
        (table("error-list", "Errors of modelled times, by size and operation", &columns, rows.collect()))
        p.note { (chip(KnownBy::Modelled)) " times held against " (chip(KnownBy::Measured)) " ones." }
    }
}

/// A figure in large letters for the head of the page.
pub(super) fn headline(errors: &Reading<Errors>) -> (Option<String>, KnownBy) {
    match errors {
        Reading::Known(errors) => (
            Some(factor(errors.all.median_error_factor)),
            KnownBy::Measured,
        ),
        Reading::Unknown(_) => (None, KnownBy::Unknown),
    }
}
