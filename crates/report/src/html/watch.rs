//! What was noticed over time, and what was kept away.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::parts::{
    Data, Ruler, WIDTH, across, figure, number, or_absent, place, prose, section, source, table,
    words,
};
use super::scale::Axis;
use crate::facts::{Event, EventKind, KnownBy, Quarantined, Severity};
use crate::summary::Summary;
use crate::text::{count, utc};

const LEFT: f64 = 92.0;
const TOP: f64 = 12.0;
const LANE: f64 = 40.0;

pub(super) fn show(summary: &Summary<'_>, data: &mut Data) -> Markup {
    let lead = "What was out of the ordinary in the times of runs. Drift: a kernel takes longer or less for good. Anomaly: a single run \
        out of line. Trend: a slow creep. Correlation: a reading of the machine that goes along with how long runs take.";
    let body = or_absent(&summary.facts.events, |events| match events.is_empty() {
        true => html! { p { "Runs were watched, and nothing was noticed." } },
        false => timeline(events, data),
    });
    section("events", "Drift, anomalies, correlations", lead, body)
}

/// The place, form and colour of an event: lanes are kinds, forms and sizes are severities.
fn mark(severity: Severity, x: f64, y: f64) -> Markup {
    let (x, y0) = (place(x), y);
    let shape = match severity {
        Severity::Minor => format!(
            "M{x} {}m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
            place(y0)
        ),
        Severity::Major => format!("M{x} {}l6.5 6.5l-6.5 6.5l-6.5 -6.5z", place(y0 - 6.5)),
        Severity::Critical => format!("M{x} {}l8.5 15l-17 0z", place(y0 - 9.0)),
    };
    html! { path class={ "event " (severity.word()) } d=(shape) {} }
}

fn timeline(events: &[Event], data: &mut Data) -> Markup {
    let bottom = TOP + LANE * EventKind::ALL.len() as f64;
    let axis = Axis::times(events.iter().map(|event| event.at_s), (LEFT, WIDTH - 34.0));
    let lane = |kind: EventKind| {
        let i = EventKind::ALL
            .iter()
            .position(|one| *one == kind)
            .unwrap_or(0);
        TOP + LANE * (i as f64 + 0.5)
    };
    let drawn = axis.map(|axis| {
        let label = |value: f64| {
            let (day, time) = (utc(value as u64), value % 86_400.0 != 0.0);
            day.chars().skip(5).take(if time { 11 } else { 5 }).collect()
        };
        let points = events.iter().enumerate().map(|(i, event)| (axis.at(event.at_s as f64), lane(event.kind), i, 0));
        data.points("events", "event-list", &points.collect::<Vec<_>>());
        let svg = html! {
            (across(&Ruler { axis: &axis, name: "UTC", label: &label }, TOP, bottom))
            @for kind in EventKind::ALL {
                path.lane d={ "M" (place(LEFT)) " " (place(lane(kind))) "H" (place(WIDTH - 34.0)) } {}
                text.row x=(place(LEFT - 10.0)) y=(place(lane(kind) + 4.0)) text-anchor="end" { (kind.word()) }
            }
            @for event in events { (mark(event.severity, axis.at(event.at_s as f64), lane(event.kind))) }
        };
        let alternative = format!("Timeline of {}; the table below has them all.", count(events.len(), "event"));
        let below = html! {
            ul.legend {
                @for severity in [Severity::Minor, Severity::Major, Severity::Critical] {
                    li { svg.glyph viewBox="0 0 20 20" aria-hidden="true" { (mark(severity, 10.0, 11.0)) } " " (severity.word()) }
                }
            }
        };
        figure("events", &alternative, bottom + 54.0, svg, below)
    });
    let rows = events.iter().map(|event| {
        vec![
            number(event.at_s as f64, utc(event.at_s)),
            words(event.kind.word()),
            number(event.severity as u8 as f64, event.severity.word()),
            words(&event.words),
            source(KnownBy::Measured),
        ]
    });
    let columns = ["@when", "what", "@severity", "in words", "known by"];
    let during: BTreeSet<&str> = events.iter().map(|event| event.during.as_str()).collect();
    let during: Vec<String> = during
        .into_iter()
        .filter(|command| !command.is_empty())
        .map(|command| format!("`{command}`"))
        .collect();
    html! {
        @if let Some(drawn) = drawn { (drawn) }
        @if !during.is_empty() { p.note { "Noticed while " (prose(&during.join(" and "))) " ran. Other programs keep no events." } }
        (table("event-list", "Events in the order they were noticed", &columns, rows.collect()))
    }
}

/// Kernels that do not run any more.
pub(super) fn quarantines(summary: &Summary<'_>) -> Markup {
    let lead = "Kernels that failed, answered wrongly or took far too long are not asked again in that version.";
    let body = or_absent(&summary.facts.quarantines, |list| match list.is_empty() {
        true => html! { p { "None is on record." } },
        false => listed(list),
    });
    section("quarantines", "Quarantines", lead, body)
}

fn listed(list: &[Quarantined]) -> Markup {
    let rows = list.iter().map(|one| {
        vec![
            words(&one.kernel),
            number(f64::from(one.version), one.version.to_string()),
            words(&one.case),
            words(&one.evidence),
            words(if one.lifted {
                "let back in"
            } else {
                "kept away"
            }),
        ]
    });
    let columns = ["kernel", "#version", "on", "evidence", "state"];
    table(
        "quarantine-list",
        "Quarantined kernels with the evidence",
        &columns,
        rows.collect(),
    )
}
