//! What every kernel reaches, against what this machine can do: arithmetic per second over arithmetic per byte, both in powers of
//! ten. Slanted lines are bandwidths, level ones peaks of arithmetic (Williams, Waterman and Patterson, 2009).

use std::collections::{BTreeMap, BTreeSet};

use kernelwise_types::calibration::{AccessPattern, MemoryPlace};
use kernelwise_types::{Calibration, DType, Reading};
use maud::{Markup, html};

use super::colour;
use super::parts::{
    Data, Ruler, WIDTH, absent, across, chip, dots, figure, place, section, short, upward,
};
use super::scale::Axis;
use crate::facts::KnownBy;
use crate::summary::{Summary, Timed};
use crate::text;

const HEIGHT: f64 = 430.0;
/// Left, right, top and bottom of the field.
const FIELD: (f64, f64, f64, f64) = (58.0, WIDTH - 12.0, 30.0, HEIGHT - 52.0);

/// One limit of the machine.
struct Ceiling {
    name: String,
    /// FLOP/s at one FLOP per byte, and everywhere.
    slanted: bool,
    rate: f64,
}

impl Ceiling {
    fn words(&self) -> String {
        match self.slanted {
            true => text::bytes_per_s(self.rate),
            false => text::flops(self.rate),
        }
    }
}

/// A row with a place on the figure.
struct Point {
    /// Of the rows of the summary.
    row: usize,
    /// Its line in the table of times, if it is there: details are read from that.
    line: Option<usize>,
    /// FLOP per byte.
    intensity: f64,
    /// FLOP per second.
    rate: f64,
}

/// Points that are drawn alike, in the order they are drawn: the fastest lie on top.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Layer {
    fastest: bool,
    operation: usize,
    variant: usize,
    measured: bool,
}

impl Layer {
    fn class(&self) -> String {
        let slow = if self.fastest { "" } else { " slow" };
        format!("{}{slow}", colour(self.variant))
    }
}

/// The limits that matter for these element types: the widest bandwidth of each level, and peaks of one thread and of all.
fn ceilings(calibration: &Calibration, dtypes: &BTreeSet<&str>) -> Vec<Ceiling> {
    let widest = |level: MemoryPlace| {
        let all = AccessPattern::ALL
            .into_iter()
            .filter_map(move |pattern| calibration.best_bandwidth(level, pattern));
        all.map(|one| one.rate.value.get()).max_by(f64::total_cmp)
    };
    let slanted = MemoryPlace::ALL.into_iter().filter_map(|level| {
        let name = level.name().to_owned();
        widest(level).map(|rate| Ceiling {
            name,
            slanted: true,
            rate,
        })
    });
    let mut level: BTreeMap<(DType, u32), f64> = BTreeMap::new();
    for peak in calibration
        .peaks
        .iter()
        .filter(|peak| dtypes.contains(peak.dtype.name()))
    {
        let rates: Vec<u32> = calibration
            .peaks
            .iter()
            .filter(|one| one.dtype == peak.dtype)
            .map(|one| one.threads)
            .collect();
        if Some(&peak.threads) == rates.iter().min() || Some(&peak.threads) == rates.iter().max() {
            level.insert((peak.dtype, peak.threads), peak.rate.value.get());
        }
    }
    let level = level.into_iter().map(|((dtype, threads), rate)| Ceiling {
        name: format!("{dtype}, {}", text::count(threads as usize, "thread")),
        slanted: false,
        rate,
    });
    slanted
        .chain(level)
        .filter(|ceiling| ceiling.rate > 0.0)
        .collect()
}

/// Draws every row that has a place; those `listed` in the table of times, in ascending order, also have details.
pub(super) fn show(summary: &Summary<'_>, listed: &[usize], data: &mut Data) -> Markup {
    let rows = &summary.rows;
    let point = |(i, row): (usize, &Timed<'_>)| {
        Some(Point {
            row: i,
            line: listed.binary_search(&i).ok(),
            intensity: row.intensity_flop_per_byte?,
            rate: row.rate_flop_per_s.filter(|rate| *rate > 0.0)?,
        })
    };
    let points: Vec<Point> = rows.iter().enumerate().filter_map(point).collect();
    let dtypes: BTreeSet<&str> = points.iter().map(|point| rows[point.row].dtype).collect();
    let calibration = &summary.facts.calibration;
    let ceilings = calibration
        .known()
        .map_or_else(Vec::new, |calibration| ceilings(calibration, &dtypes));
    let lead = "Arithmetic done each second against arithmetic done for each byte moved. The lines are what this machine can do at most.";
    let drawn =
        axes(&points, &ceilings).map(|(x, y)| drawn(summary, &points, &ceilings, (&x, &y), data));
    let left_out = rows.len() - points.len();
    let without_details = points.iter().filter(|point| point.line.is_none()).count();
    let body = html! {
        @match drawn {
            Some(drawn) => (drawn),
            None => (absent("no times of operations with arithmetic are on record")),
        }
        @if let Reading::Unknown(why) = calibration { (absent(&format!("the limits of this machine: {why}"))) }
        @if without_details > 0 {
            p.note {
                "All " (points.len()) " points are drawn. " (points.len() - without_details)
                " of them, the fastest of each workload and an even spread of the others, show details under the pointer and stand in the table of times."
            }
        }
        @if left_out > 0 {
            p.note { (text::count(left_out, "time")) " are of operations that do no arithmetic, or are unknown: these have no place here." }
        }
    };
    section("roofline", "Roofline", lead, body)
}

fn axes(points: &[Point], ceilings: &[Ceiling]) -> Option<(Axis, Axis)> {
    let (left, right, top, bottom) = FIELD;
    let peaks = || {
        ceilings
            .iter()
            .filter(|one| !one.slanted)
            .map(|one| one.rate)
    };
    let ridge = peaks().max_by(f64::total_cmp).zip(
        ceilings
            .iter()
            .filter(|one| one.slanted)
            .map(|one| one.rate)
            .min_by(f64::total_cmp),
    );
    let intensities = points
        .iter()
        .map(|point| point.intensity)
        .chain(ridge.map(|(peak, narrow)| peak / narrow));
    let x = Axis::powers(intensities, (left, right))?;
    let y = Axis::powers(
        points.iter().map(|point| point.rate).chain(peaks()),
        (bottom, top),
    )?;
    (!points.is_empty()).then_some((x, y))
}

fn drawn(
    summary: &Summary<'_>,
    points: &[Point],
    ceilings: &[Ceiling],
    (x, y): (&Axis, &Axis),
    data: &mut Data,
) -> Markup {
    let (left, right, top, bottom) = FIELD;
    let operations: BTreeSet<&str> = points
        .iter()
        .map(|point| summary.rows[point.row].operation.as_str())
        .collect();
    let operations: Vec<&str> = operations.into_iter().collect();
    let group = |i: usize| {
        operations
            .iter()
            .position(|name| *name == summary.rows[i].operation)
            .unwrap_or(0)
    };
    let place = |point: &Point| (x.at(point.intensity), y.at(point.rate));
    let places = points.iter().filter_map(|point| {
        let (at_x, at_y) = place(point);
        Some((at_x, at_y, point.line?, group(point.row)))
    });
    data.points("roofline", "times", &places.collect::<Vec<_>>());
    let mut layers: BTreeMap<Layer, Vec<(f64, f64)>> = BTreeMap::new();
    for point in points {
        let row = &summary.rows[point.row];
        let layer = Layer {
            fastest: row.fastest,
            operation: group(point.row),
            variant: summary.winners.place(row.variant).unwrap_or(usize::MAX),
            measured: row.known_by == KnownBy::Measured,
        };
        layers.entry(layer).or_default().push(place(point));
    }
    let drawn_ceilings: Vec<(Markup, Markup)> = ceilings
        .iter()
        .enumerate()
        .map(|(i, ceiling)| line(ceiling, ceilings, (x, y), i))
        .collect();
    let svg = html! {
        (across(&Ruler { axis: x, name: "FLOP per byte", label: &short }, top, bottom))
        (upward(&Ruler { axis: y, name: "FLOP per second", label: &short }, left, right))
        @for (line, _) in &drawn_ceilings { (line) }
        @for (layer, places) in &layers {
            g data-group=(layer.operation) {
                (dots(&layer.class(), places))
                @if !layer.measured { (dots("hole", places)) }
            }
        }
        // Names last: points would hide them.
        @for (_, name) in &drawn_ceilings { (name) }
    };
    let alternative = format!(
        "Roofline with {} of {}; the table of times has their numbers.",
        text::count(points.len(), "point"),
        text::count(operations.len(), "operation")
    );
    let below = html! {
        ul.legend {
            @for ceiling in ceilings {
                li { span class={ "rule " (if ceiling.slanted { "slanted" } else { "level" }) } {} " " (ceiling.name) " " (ceiling.words()) " " (chip(KnownBy::Measured)) }
            }
        }
        p.note { "Solid points are the fastest of their workload, faint ones the others; colours are those of the map above. Points with a hole are modelled or prior." }
    };
    html! {
        p.pick.scripted {
            label for="roofline-operation" { "Operation " }
            select id="roofline-operation" data-filters="roofline" {
                option value="" { "all" }
                @for (i, name) in operations.iter().enumerate() { option value=(i) { (name) } }
            }
        }
        (figure("roofline", &alternative, HEIGHT, svg, below))
    }
}

/// A limit as a line, and its name: a bandwidth ends where it meets the highest peak.
fn line(ceiling: &Ceiling, all: &[Ceiling], (x, y): (&Axis, &Axis), i: usize) -> (Markup, Markup) {
    let peak = all
        .iter()
        .filter(|one| !one.slanted)
        .map(|one| one.rate)
        .max_by(f64::total_cmp)
        .unwrap_or(y.high());
    let slowest = all
        .iter()
        .filter(|one| one.slanted)
        .map(|one| one.rate)
        .max_by(f64::total_cmp);
    let (from, to) = match ceiling.slanted {
        true => (
            x.low().max(y.low() / ceiling.rate),
            (peak / ceiling.rate).min(x.high()),
        ),
        // A peak begins where the widest bandwidth allows it.
        false => (
            slowest.map_or(x.low(), |wide| (ceiling.rate / wide).max(x.low())),
            x.high(),
        ),
    };
    let rate = |at: f64| {
        if ceiling.slanted {
            ceiling.rate * at
        } else {
            ceiling.rate
        }
    };
    if from >= to {
        return (html! {}, html! {});
    }
    let (x0, y0, x1, y1) = (x.at(from), y.at(rate(from)), x.at(to), y.at(rate(to)));
    let id = format!("limit-{i}");
    let class = if ceiling.slanted { "slanted" } else { "level" };
    let drawn = html! {
        path id=(id) class={ "limit " (class) } d={ "M" (place(x0)) " " (place(y0)) "L" (place(x1)) " " (place(y1)) } {}
    };
    let name = html! {
        @if ceiling.slanted {
            // By turns further along: lines may lie so close that their names would cover each other.
            @let along = if i.is_multiple_of(2) { "3%" } else { "14%" };
            text.limit-name dy="-5" { textPath href={ "#" (id) } startOffset=(along) { (ceiling.name) } }
        } @else {
            text.limit-name x=(place(x1)) y=(place(y1 - 5.0)) text-anchor="end" { (ceiling.name) }
        }
    };
    (drawn, name)
}
