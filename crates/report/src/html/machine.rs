//! The machine, how it was doing, and what raises doubts.

use kernelwise_types::machine::Cache;
use kernelwise_types::units::Share;
use kernelwise_types::{Calibration, Reading, SystemState};
use maud::{Markup, html};

use super::parts::{chip, folded, known, number, or_absent, prose, section, source, table, words};
use crate::facts::{Facts, KnownBy};
use crate::summary::Summary;
use crate::text::{bytes_per_s, flops, nanos};

pub(super) fn show(summary: &Summary<'_>) -> Markup {
    let facts = summary.facts;
    let lead = "Figures hold for this machine under these conditions, and for no other.";
    let body = html! {
        (notes("Warnings", &facts.warnings, "No warnings were recorded."))
        (notes("Conditions", &facts.conditions, "No conditions were recorded."))
        div.columns {
            div { h3 { "Machine" } (pairs(&machine(facts))) }
            div { h3 { "State when the report was made" } (or_absent(&facts.state, |state| pairs(&self::state(state)))) }
        }
        h3 { "Calibration" }
        (or_absent(&facts.calibration, calibration))
        (commands(&facts.commands))
    };
    section("machine", "Machine, conditions, warnings", lead, body)
}

fn pairs(list: &[(&str, Reading<String>)]) -> Markup {
    html! {
        dl {
            @for (name, value) in list {
                dt { (name) }
                dd { @match value {
                    Reading::Known(value) => (value),
                    Reading::Unknown(why) => { (chip(KnownBy::Unknown)) " " (why) },
                } }
            }
        }
    }
}

fn text<T: ToString + Clone>(reading: &Reading<T>) -> Reading<String> {
    reading.clone().map(|value| value.to_string())
}

fn cache(cache: &Cache) -> String {
    format!("L{} {}", cache.level, cache.size_bytes)
}

fn machine(facts: &Facts) -> Vec<(&'static str, Reading<String>)> {
    let machine = &facts.machine;
    let isa: Vec<&str> = machine.cpu.isa.iter().map(|isa| isa.name()).collect();
    let caches = machine
        .caches
        .clone()
        .map(|caches| caches.iter().map(cache).collect::<Vec<_>>().join(", "));
    vec![
        ("processor", text(&machine.cpu.model)),
        ("architecture", Reading::Known(machine.cpu.arch.clone())),
        ("signature", text(&machine.cpu.signature)),
        (
            "usable threads",
            Reading::Known(machine.usable_threads().to_string()),
        ),
        ("cores", text(&machine.cpu.cores)),
        ("instruction sets", Reading::Known(isa.join(", "))),
        ("caches", caches),
        ("memory", text(&machine.memory)),
        ("hypervisor", text(&machine.hypervisor)),
        ("system", Reading::Known(machine.os.clone())),
        ("system release", text(&machine.kernel)),
    ]
}

fn state(state: &SystemState) -> Vec<(&'static str, Reading<String>)> {
    let share = |reading: &Reading<Share>| text(reading);
    vec![
        ("processors busy", share(&state.cpu_utilisation)),
        ("time given to other guests", share(&state.steal)),
        (
            "load over a minute",
            state.load_1min.clone().map(|load| format!("{load:.2}")),
        ),
        ("tasks waited for a processor", share(&state.cpu_pressure)),
        ("tasks waited for memory", share(&state.memory_pressure)),
        ("memory to be had", text(&state.memory_available)),
        ("clock", text(&state.frequency)),
        (
            "temperature",
            state
                .temperature
                .clone()
                .map(|celsius| format!("{:.0} °C", celsius.get())),
        ),
        (
            "throttling",
            state
                .throttling
                .clone()
                .map(|yes| if yes { "yes" } else { "no" }.to_owned()),
        ),
        (
            "power mode",
            state.power_mode.clone().map(|mode| mode.name().to_owned()),
        ),
    ]
}

fn notes(title: &str, list: &[String], none: &str) -> Markup {
    html! {
        h3 { (title) }
        @if list.is_empty() { p { (none) } } @else { ul.notes { @for one in list { li { (prose(one)) } } } }
    }
}

fn calibration(calibration: &Calibration) -> Markup {
    let peaks = calibration.peaks.iter().map(|peak| {
        let isa = peak.isa.map_or("portable", |isa| isa.name());
        let rate = peak.rate.value.get();
        (
            format!("peak of {}, {isa}", peak.dtype),
            Some(peak.threads),
            rate,
            flops(rate),
            peak.rate.spread(),
            peak.rate.samples,
        )
    });
    let bandwidths = calibration.bandwidths.iter().map(|one| {
        let rate = one.rate.value.get();
        (
            format!("{} of {}", one.pattern, one.place),
            Some(one.threads),
            rate,
            bytes_per_s(rate),
            one.rate.spread(),
            one.rate.samples,
        )
    });
    let joins = calibration.fork_joins.iter().map(|one| {
        let cost = one.cost.value.get();
        (
            "fork and join".to_owned(),
            Some(one.threads),
            cost,
            nanos(cost),
            one.cost.spread(),
            one.cost.samples,
        )
    });
    let timer = &calibration.timer;
    let timer = (
        "reading the clock".to_owned(),
        None,
        timer.value.get(),
        nanos(timer.value.get()),
        timer.spread(),
        timer.samples,
    );
    let rows = peaks.chain(bandwidths).chain(joins).chain([timer]).map(
        |(name, threads, key, shown, spread, samples)| {
            vec![
                words(name),
                number(
                    threads.map(f64::from),
                    threads.map_or_else(String::new, |threads| threads.to_string()),
                ),
                known(key, shown),
                number(spread, format!("{:.1} %", 100.0 * spread)),
                number(f64::from(samples), samples.to_string()),
                source(KnownBy::Measured),
            ]
        },
    );
    let columns = [
        "what",
        "#threads",
        "#figure",
        "#quartiles apart",
        "#samples",
        "known by",
    ];
    let rows: Vec<_> = rows.collect();
    let count = rows.len();
    let list = table(
        "calibration-list",
        "What this machine can do at most",
        &columns,
        rows,
    );
    html! {
        (folded("All figures", count, list))
        @for skipped in &calibration.skipped { p.note { "Not calibrated: " (skipped) } }
    }
}

fn commands(list: &[String]) -> Markup {
    html! {
        h3 { "Where the figures come from" }
        @if list.is_empty() { p { "No command left a record." } } @else { @for one in list { pre tabindex="0" { code { (one) } } } }
    }
}
