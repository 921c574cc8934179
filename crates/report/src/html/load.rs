//! Calls per second while a background load comes and goes, as bars that need no script.

use maud::{Markup, html};

use super::parts::{absent, known, number, or_absent, section, source, table, words};
use crate::facts::{KnownBy, LoadDemo, LoadPhase};
use crate::summary::Summary;
use crate::text::{factor, per_second};

pub(super) fn show(summary: &Summary<'_>) -> Markup {
    let lead = "The same stream of calls, served three ways while others come and go on this machine. Bars compare within one phase.";
    let body = or_absent(&summary.facts.load_demo, |demo| {
        match demo.phases.is_empty() {
            true => absent("the load demonstration has no phases"),
            false => shown(demo),
        }
    });
    section("load", "Under load", lead, body)
}

fn rates(phase: &LoadPhase) -> [(&'static str, &'static str, Option<f64>); 3] {
    [
        ("best fixed threads", "fixed", phase.best_fixed_calls_per_s),
        (
            "library default",
            "library",
            phase.library_default_calls_per_s,
        ),
        ("kernelwise", "kernelwise", phase.kernelwise_calls_per_s),
    ]
}

fn shown(demo: &LoadDemo) -> Markup {
    let rate = |rate: Option<f64>| known(rate, per_second(rate.unwrap_or(f64::NAN)));
    let ratio = |ratio: Option<f64>| known(ratio, factor(ratio.unwrap_or(f64::NAN)));
    let rows = demo.phases.iter().enumerate().map(|(i, phase)| {
        vec![
            number(i as f64, (i + 1).to_string()),
            words(&phase.stream),
            words(&phase.phase),
            rate(phase.best_fixed_calls_per_s),
            rate(phase.library_default_calls_per_s),
            rate(phase.kernelwise_calls_per_s),
            ratio(phase.over(phase.best_fixed_calls_per_s)),
            ratio(phase.over(phase.library_default_calls_per_s)),
            source(demo.known_by),
        ]
    });
    let columns = [
        "@phase",
        "stream",
        "meanwhile",
        "#best fixed",
        "#library",
        "#kernelwise",
        "#÷ best fixed",
        "#÷ library",
        "known by",
    ];
    let first = demo.phases.first().map(|phase| phase.stream.as_str());
    let same = first.filter(|first| demo.phases.iter().all(|phase| phase.stream == *first));
    html! {
        @if let Some(stream) = same { p { "Calls of " (stream) "." } }
        div.bars {
            @for (i, phase) in demo.phases.iter().enumerate() {
                @let title = match same {
                    Some(_) => format!("{}. {}", i + 1, phase.phase),
                    None => format!("{}. {}, {}", i + 1, phase.stream, phase.phase),
                };
                (bars(&title, phase, demo.known_by))
            }
        }
        (table("load-list", "Calls per second by phase", &columns, rows.collect()))
    }
}

fn bars(title: &str, phase: &LoadPhase, known_by: KnownBy) -> Markup {
    let rates = rates(phase);
    let most = rates
        .iter()
        .filter_map(|(_, _, rate)| rate.filter(|rate| rate.is_finite()))
        .fold(0.0, f64::max);
    html! {
        div.phase {
            h3 { (title) }
            @for (name, class, rate) in rates {
                @let rate = rate.filter(|rate| rate.is_finite() && *rate >= 0.0);
                p.bar {
                    span.who { (name) }
                    span.track { @if let Some(rate) = rate.filter(|_| most > 0.0) { span class={ "fill " (class) } style={ "width:" (format!("{:.1}", 100.0 * (rate / most))) "%" } {} } }
                    span.value { @match rate { Some(rate) => { (per_second(rate)) " " (known_by.word()) }, None => "unknown" } }
                }
            }
        }
    }
}
