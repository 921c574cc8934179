//! The page: one file with everything inside, in the order a reader asks.

mod gains;
mod learning;
mod load;
mod machine;
mod models;
mod parts;
mod roofline;
mod scale;
mod times;
mod watch;
mod winners;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

use crate::export::in_script;
use crate::facts::KnownBy;
use crate::summary::Summary;
use crate::text::{count, utc, visible};
use parts::{Data, chip, prose};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Times, and predictions, that a page shows at most: with so many of each it stays below three megabytes.
pub const MOST_ROWS: usize = 3000;

/// Kernels with a colour of their own; the others share one, and have letters.
const COLOURS: usize = 14;

/// The class that colours the variant at this place of the legend.
fn colour(place: usize) -> String {
    format!("k{}", place.min(COLOURS))
}

/// At most `most` of `all` places, evenly picked, the first and the last among them.
fn spread(all: usize, most: usize) -> impl Iterator<Item = usize> {
    let picked = all.min(most);
    let last = (picked.max(2) - 1) as u128;
    (0..picked).map(move |i| (i as u128 * (all - 1) as u128 / last) as usize)
}

/// The sections, by id and name in the list of contents.
const CONTENTS: [(&str, &str); 12] = [
    ("summary", "Summary"),
    ("winners", "Winners"),
    ("roofline", "Roofline"),
    ("gains", "Gains"),
    ("regret", "Regret"),
    ("predictions", "Predictions"),
    ("errors", "Model error"),
    ("events", "Drift"),
    ("quarantines", "Quarantines"),
    ("load", "Under load"),
    ("machine", "Machine"),
    ("all-times", "All times"),
];

/// Only what is in the page may act in it: its style, and the one script with this digest.
fn policy() -> String {
    let digest = STANDARD.encode(Sha256::digest(SCRIPT));
    format!(
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
}

/// The whole page.
pub(crate) fn page(summary: &Summary<'_>) -> String {
    let mut data = Data::default();
    let picked = times::picked(summary);
    let sections = html! {
        (overview(summary))
        (winners::show(summary))
        (roofline::show(summary, &picked, &mut data))
        (gains::show(summary, &mut data))
        (learning::show(summary, &mut data))
        (models::show(summary, &mut data))
        (models::errors(summary, &mut data))
        (watch::show(summary, &mut data))
        (watch::quarantines(summary))
        (load::show(summary))
        (machine::show(summary))
        (times::show(summary, &picked))
    };
    let made = utc(summary.facts.generated_at_s);
    let cpu = summary
        .facts
        .machine
        .cpu
        .model
        .known()
        .map_or("unknown processor", String::as_str);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy());
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Kernelwise report, " (cpu) }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#main" { "Skip to the report" }
                header {
                    div.title {
                        h1 { "Kernelwise report" }
                        p { (cpu) ", " (count(summary.facts.machine.usable_threads() as usize, "usable thread")) " · made " (made) }
                    }
                    button #theme.scripted type="button" { "Dark theme" }
                }
                nav aria-label="Contents" { ul { @for (id, name) in CONTENTS { li { a href={ "#" (id) } { (name) } } } } }
                main #main tabindex="-1" { (sections) }
                footer {
                    p { "Made by Kernelwise " (env!("CARGO_PKG_VERSION")) ". This page holds everything it shows and asks nobody for more." }
                }
                p #said.hidden role="status" {}
                script #data type="application/json" { (PreEscaped(in_script(&data.value()))) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    visible(&page.into_string())
}

fn overview(summary: &Summary<'_>) -> Markup {
    let gains = &summary.facts.gains;
    let workloads = match summary.measured {
        0 => (None, KnownBy::Unknown),
        n => (Some(n.to_string()), KnownBy::Measured),
    };
    let tiles = [
        (
            gains::headline(gains, |gain| gain.over_single()),
            "time of the best single kernel ÷ time of the learned choice",
        ),
        (
            gains::headline(gains, |gain| gain.over_rule()),
            "time of a rule written by hand ÷ time of the learned choice",
        ),
        (
            models::headline(&summary.errors),
            "half of all predicted times are within this factor",
        ),
        (workloads, "workloads timed on this machine"),
    ];
    html! {
        section #summary aria-labelledby="summary-title" {
            h2 #summary-title { "In short" }
            ul.tiles {
                @for ((figure, known_by), words) in tiles {
                    li { strong { @match figure { Some(figure) => (figure), None => "–" } } span { (words) } (chip(known_by)) }
                }
            }
            ul.words { @for words in &summary.words { li { (prose(words)) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_of_many_are_spread_evenly() {
        assert_eq!(spread(5, 10).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(spread(100, 3).collect::<Vec<_>>(), [0, 49, 99]);
        assert_eq!(spread(1, 1).collect::<Vec<_>>(), [0]);
        assert_eq!(spread(0, 9).count(), 0);
    }

    #[test]
    fn colours_end_and_letters_go_on() {
        assert_eq!(
            (colour(0), colour(13), colour(14), colour(usize::MAX)),
            ("k0".into(), "k13".into(), "k14".into(), "k14".into())
        );
    }

    #[test]
    fn the_page_asks_nobody() {
        for part in [STYLE, SCRIPT] {
            for outside in [
                "http:",
                "https:",
                "@import",
                "url(",
                "fetch(",
                "XMLHttp",
                "localStorage",
                "sessionStorage",
                "</",
            ] {
                assert!(!part.contains(outside), "{outside}");
            }
        }
    }
}
