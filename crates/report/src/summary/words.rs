//! The summary in plain words. Each sentence follows from figures of the report and says how they are known; small gains and
//! what is not known are said as plainly as the rest.

use std::collections::BTreeSet;

use kernelwise_types::Reading;

use super::{NEAR_TIE, Summary};
use crate::facts::{Gains, KnownBy, Quarantined, Ratio, Regret, RegretPoint};
use crate::text::{count, factor, percent, seconds};

/// All sentences, the most important first.
pub(super) fn words(summary: &Summary<'_>) -> Vec<String> {
    let mut words = vec![measured(summary)];
    words.extend(winners(summary));
    match &summary.facts.gains {
        Reading::Known(gains) => words.push(gain(gains)),
        Reading::Unknown(why) => words.push(format!("What choosing is worth is unknown: {why}.")),
    }
    match &summary.errors {
        Reading::Known(errors) => words.push(format!(
            "Times of inputs that were never measured are told by models: half of {} within {}, nine in ten within {}; {} lay in \
             intervals that promise 90 % (modelled, held against measured).",
            errors.all.times,
            factor(errors.all.median_error_factor),
            factor(errors.all.p90_error_factor),
            percent(errors.all.in_interval_share),
        )),
        Reading::Unknown(why) => words.push(format!("How good models are is unknown: {why}.")),
    }
    if let Reading::Known(regret) = &summary.facts.regret {
        words.extend(learning(regret));
    }
    words.push(events(summary));
    words.push(quarantines(&summary.facts.quarantines));
    if !summary.facts.warnings.is_empty() {
        words.push(match summary.facts.warnings.as_slice() {
            [only] => format!("1 warning about the measurements: {only}."),
            all => format!(
                "{} warnings about the measurements are listed under the machine.",
                all.len()
            ),
        });
    }
    words
}

fn measured(summary: &Summary<'_>) -> String {
    let rows = summary
        .rows
        .iter()
        .filter(|row| row.known_by == KnownBy::Measured);
    let operations: BTreeSet<&str> = rows.clone().map(|row| row.operation.as_str()).collect();
    let kernels: BTreeSet<&str> = rows.clone().map(|row| row.kernel).collect();
    let machine = &summary.facts.machine;
    let cpu = machine
        .cpu
        .model
        .known()
        .map_or("a processor that does not tell its name", String::as_str);
    let threads = count(machine.usable_threads() as usize, "usable thread");
    match summary.measured {
        0 => format!("Nothing was measured yet on {cpu} with {threads}: run `kernelwise learn`."),
        _ => format!(
            "On {cpu} with {threads}, {} of {} were measured with {}.",
            count(summary.measured, "workload"),
            count(operations.len(), "operation"),
            count(kernels.len(), "kernel"),
        ),
    }
}

fn winners(summary: &Summary<'_>) -> Option<String> {
    let map = &summary.winners;
    let who = match map.winning_kernels {
        0 => return None,
        1 => "One kernel is fastest everywhere".to_owned(),
        n => format!("No kernel is fastest everywhere: {n} win somewhere"),
    };
    let zone = percent(NEAR_TIE);
    Some(match map.near_ties {
        0 => format!("{who}; nowhere is a second one within {zone} of the first."),
        ties => format!(
            "{who}; on {} of the workloads a second one is within {zone} of the first, so the choice matters little there.",
            percent(ties as f64 / map.workloads as f64)
        ),
    })
}

/// A ratio with its range.
fn range(ratio: &Ratio) -> String {
    match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => format!(
            "{:.3} times as long (90 % interval {low:.3} to {high:.3})",
            ratio.mean
        ),
        _ => format!(
            "{:.3} times as long (too few shapes for an interval)",
            ratio.mean
        ),
    }
}

/// What to make of a ratio.
fn verdict(ratio: &Ratio) -> &'static str {
    match ratio {
        Ratio {
            high: Some(high), ..
        } if *high < 1.0 => "so choosing loses here",
        Ratio { low, .. } if low.is_none_or(|low| low <= 1.0) => {
            "which cannot be told from no gain"
        }
        Ratio { mean, .. } if *mean < 1.0 + NEAR_TIE => "a small gain",
        Ratio { mean, .. } if *mean < 1.1 => "a moderate gain",
        _ => "a clear gain",
    }
}

fn gain(gains: &Gains) -> String {
    let Some(all) = &gains.all else {
        return "What choosing is worth was worked out for single operations only.".to_owned();
    };
    let known_by = gains.known_by.word();
    let single = match all.over_single() {
        Some(ratio) => format!(
            "The best single kernel of each operation takes {}, {}",
            range(&ratio),
            verdict(&ratio)
        ),
        None => "No single kernel computes nearly everything".to_owned(),
    };
    let rule = match all.over_rule() {
        Some(ratio) => format!(
            "a rule written by hand takes {}, {}",
            range(&ratio),
            verdict(&ratio)
        ),
        None => "there is no rule written by hand to compare with".to_owned(),
    };
    format!(
        "{single}; {rule} ({known_by}, over {}).",
        count(all.shapes, "shape")
    )
}

fn learning(regret: &Regret) -> Option<String> {
    let told = |point: &&RegretPoint| point.excess_s.is_finite() && point.budget_s.is_finite();
    let points: Vec<&RegretPoint> = regret.points.iter().filter(told).collect();
    let last = *points.last()?;
    let over = |point: &RegretPoint| point.excess_s > point.budget_s;
    let kept = match (over(last), points.iter().any(|point| over(point))) {
        (true, _) => "more than",
        (false, true) => "by now within, though not all the way,",
        (false, false) => "never more than",
    };
    let behind = match last.regret_s.is_finite() {
        true => seconds(last.regret_s),
        false => "an unknown time".to_owned(),
    };
    Some(format!(
        "In {} calls, trials of other kernels cost {}, {kept} their budget of {}; all calls together took {behind} longer than if the \
         best kernel had always served ({}).",
        last.calls,
        seconds(last.excess_s),
        seconds(last.budget_s),
        regret.known_by.word(),
    ))
}

fn events(summary: &Summary<'_>) -> String {
    match &summary.facts.events {
        Reading::Known(events) if events.is_empty() => {
            "No drift, anomaly, trend or correlation was noticed.".to_owned()
        }
        Reading::Known(events) => {
            let worst = events.iter().map(|event| event.severity).max();
            let worst = worst.map_or("minor", |worst| worst.word());
            let noticed = match events.len() {
                1 => "1 change was noticed".to_owned(),
                n => format!("{n} changes were noticed"),
            };
            format!("{noticed} while watching, the worst of them {worst}.")
        }
        Reading::Unknown(why) => format!("Whether the machine drifted is unknown: {why}."),
    }
}

fn quarantines(quarantines: &Reading<Vec<Quarantined>>) -> String {
    match quarantines {
        Reading::Known(list) => match list.iter().filter(|one| !one.lifted).count() {
            0 => "No kernel is quarantined.".to_owned(),
            1 => "1 kernel is quarantined and does not run.".to_owned(),
            n => format!("{n} kernels are quarantined and do not run."),
        },
        Reading::Unknown(why) => format!("Whether kernels are quarantined is unknown: {why}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_was_broken_on_the_way_is_told() {
        let of = |excess: [f64; 2]| {
            let point = |excess_s| RegretPoint {
                calls: 9,
                excess_s,
                budget_s: 1.0,
                regret_s: 3.0,
            };
            let (known_by, source) = (KnownBy::Measured, String::new());
            learning(&Regret {
                known_by,
                source,
                points: excess.map(point).into(),
            })
            .unwrap()
        };
        assert!(of([0.1, 0.2]).contains("cost 200 ms, never more than their budget of 1.00 s"));
        assert!(of([1.1, 0.2]).contains("by now within, though not all the way, their budget"));
        assert!(of([0.1, 1.2]).contains("cost 1.20 s, more than their budget"));
        assert!(of([0.1, 0.2]).contains("took 3.00 s longer than if the best kernel"));
    }

    #[test]
    fn gains_are_called_what_they_are() {
        let of = |mean: f64, low: f64, high: f64| {
            verdict(&Ratio {
                mean,
                low: Some(low),
                high: Some(high),
            })
        };
        assert_eq!(of(1.3, 1.2, 1.4), "a clear gain");
        assert_eq!(of(1.05, 1.03, 1.07), "a moderate gain");
        assert_eq!(of(1.01, 1.005, 1.02), "a small gain");
        assert_eq!(of(1.3, 0.9, 1.9), "which cannot be told from no gain");
        assert_eq!(of(0.9, 0.85, 0.95), "so choosing loses here");
        let alone = Ratio {
            mean: 2.0,
            low: None,
            high: None,
        };
        assert_eq!(verdict(&alone), "which cannot be told from no gain");
        assert!(range(&alone).contains("too few"));
    }
}
