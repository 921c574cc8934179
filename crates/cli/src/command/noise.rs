//! What the noise of a run allows to say: how small a difference its races can tell, how many shapes stay undecided for it, and whether
//! the machine changed meanwhile. Everything is from the samples of this run; what was not seen is not told.

use kernelwise_measure::stats::quantile;
use kernelwise_select::{Ended, Measured};
use kernelwise_types::Reading;
use kernelwise_types::units::Hertz;
use serde::Serialize;

use crate::output;

/// What a run has seen so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Half of the interval of each candidate, in ln t.
    half_widths: Vec<f64>,
    /// The difference that would have told the two fastest of a shape apart, in ln t.
    smallest: Vec<f64>,
    apart: usize,
    alike: usize,
    undecided: Vec<String>,
    untold: usize,
    /// What a fixed piece of work took beside each race, in the order of the races.
    paces_ns: Vec<f64>,
    races: usize,
    beside_others: usize,
    clocks_hz: Vec<f64>,
    no_clock: Option<String>,
}

/// What can be told of it.
#[derive(Debug, Serialize)]
pub(super) struct Noise {
    /// Candidates with samples enough for an interval.
    candidates: usize,
    /// Half the width of their 90 % intervals, as a share of the time; `null` of none.
    half_width_share: Option<Spread>,
    /// What the two fastest of a shape have to differ by to be told apart, as a share of the time; `null` of none.
    smallest_difference_share: Option<Spread>,
    /// Differences up to this share of the time do not matter.
    indifference_share: f64,
    /// Shapes of which one candidate is certainly the fastest.
    shapes_apart: usize,
    /// Shapes whose fastest candidates differ by less than what matters.
    shapes_alike: usize,
    /// Shapes of which noise hides whether a difference matters.
    shapes_undecided: Vec<String>,
    /// Shapes of which no candidate has samples enough for an interval.
    shapes_with_few_samples: usize,
    /// A fixed piece of work in slow moments over quick ones: of its times, the ninth decile over the first. `null` of fewer than ten races.
    pace_p90_over_p10: Option<f64>,
    /// Its median in the second half of the races over that in the first. `null` of fewer than ten races.
    pace_second_half_over_first: Option<f64>,
    /// The core clock, lowest and highest, if the machine tells it.
    core_clock_hz: Reading<[f64; 2]>,
    /// Races that were finished, and those during which others kept a processor busy.
    races: usize,
    races_beside_others: usize,
}

/// Half are below the median, nine in ten below the other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Spread {
    median: f64,
    p90: f64,
}

/// Races from which it can be told whether the pace changed.
const ENOUGH_RACES: usize = 10;
/// A change of pace that is worth words: what a race calls as good as each other differs by less.
const CHANGED: f64 = 1.05;

impl Seen {
    /// A race that is over: its candidates, and what the fixed piece of work took beside it. Differences up to `zone`, in ln t, do not matter.
    pub(super) fn race(&mut self, candidates: &[Measured], pace_ns: f64, zone: f64) {
        self.races += 1;
        self.paces_ns.push(pace_ns);
        let mut known: Vec<(f64, f64)> = candidates.iter().filter_map(known).collect();
        known.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.half_widths.extend(known.iter().map(|(_, half)| half));
        let (Some(&(best, best_half)), Some(one)) = (known.first(), candidates.first()) else {
            self.untold += 1;
            return;
        };
        // Independent errors add in squares. Candidates take turns and share their disturbances, so this is rather too large.
        let others = known[1..].iter();
        let others = others.map(|(time, half)| (time - best, best_half.hypot(*half)));
        let others: Vec<(f64, f64)> = others.collect();
        self.smallest
            .extend(others.first().map(|(_, smallest)| smallest));
        let hidden = |(difference, smallest): &(f64, f64)| {
            difference <= smallest && difference + smallest > zone
        };
        if others.iter().any(hidden) {
            self.undecided.push(one.workload.to_string());
        } else if candidates.iter().any(is_open) {
            // Of somebody who may be the fastest it is not known well enough how long it takes.
            self.untold += 1;
        } else if others.iter().all(|(difference, least)| difference > least) {
            self.apart += 1;
        } else {
            self.alike += 1;
        }
    }

    /// Whether others kept processors busy during the last race.
    pub(super) fn others(&mut self, busy: Option<u32>) {
        self.beside_others += usize::from(busy.is_some_and(|busy| busy > 0));
    }

    /// The core clock before a race.
    pub(super) fn clock(&mut self, clock: &Reading<Hertz>) {
        match clock {
            Reading::Known(clock) => self.clocks_hz.push(clock.get()),
            Reading::Unknown(why) => self.no_clock = Some(why.to_string()),
        }
    }

    /// What all that allows to say.
    pub(super) fn noise(self, zone: f64) -> Noise {
        let halves = self.paces_ns.split_at(self.paces_ns.len() / 2);
        let enough = self.paces_ns.len() >= ENOUGH_RACES;
        let pace = |q: f64| quantile(&self.paces_ns, q).filter(|_| enough);
        let half = |times: &[f64]| quantile(times, 0.5).filter(|_| enough);
        let ratio = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a / b);
        let range = |q: f64| quantile(&self.clocks_hz, q);
        let core_clock_hz = match range(0.0).zip(range(1.0)) {
            Some((low, high)) => Reading::Known([low, high]),
            None => Reading::unknown(self.no_clock.unwrap_or("no race was run".to_owned())),
        };
        Noise {
            candidates: self.half_widths.len(),
            half_width_share: spread(&self.half_widths),
            smallest_difference_share: spread(&self.smallest),
            indifference_share: zone.exp_m1(),
            shapes_apart: self.apart,
            shapes_alike: self.alike,
            shapes_undecided: self.undecided,
            shapes_with_few_samples: self.untold,
            pace_p90_over_p10: ratio(pace(0.9), pace(0.1)),
            pace_second_half_over_first: ratio(half(halves.1), half(halves.0)),
            core_clock_hz,
            races: self.races,
            races_beside_others: self.beside_others,
        }
    }
}

/// Median and half of the interval, in ln t.
fn known(one: &Measured) -> Option<(f64, f64)> {
    let (median, interval) = (one.median_ns?.get(), one.interval_ns?);
    let (low, high) = (interval.low().get(), interval.high().get());
    (low > 0.0).then(|| (median.ln(), (high / low).ln() / 2.0))
}

/// Whether a candidate that nobody found to be far behind was measured too seldom.
fn is_open(one: &Measured) -> bool {
    matches!(one.ended, Ended::Finished | Ended::NotReached) && known(one).is_none()
}

/// Of differences in ln t, as shares.
fn spread(ln: &[f64]) -> Option<Spread> {
    Some(Spread {
        median: quantile(ln, 0.5)?.exp_m1(),
        p90: quantile(ln, 0.9)?.exp_m1(),
    })
}

/// The same in words.
pub(super) fn text(noise: &Noise) -> String {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let mut rows = Vec::new();
    if let Some(Spread { median, p90 }) = noise.half_width_share {
        rows.push((
            "times are known to",
            format!(
                "±{} for half of {} candidates, ±{} for nine in ten",
                percent(median),
                noise.candidates,
                percent(p90)
            ),
        ));
    }
    if let Some(Spread { median, p90 }) = noise.smallest_difference_share {
        rows.push((
            "told apart from",
            format!(
                "{} on for half of the shapes, {} for nine in ten",
                percent(median),
                percent(p90)
            ),
        ));
    }
    rows.push((
        "shapes",
        format!(
            "{} have one fastest kernel, {} several within {}, {} are undecided because of noise, {} have too few samples to tell",
            noise.shapes_apart,
            noise.shapes_alike,
            percent(noise.indifference_share),
            noise.shapes_undecided.len(),
            noise.shapes_with_few_samples
        ),
    ));
    let pace = noise
        .pace_p90_over_p10
        .zip(noise.pace_second_half_over_first);
    rows.push((
        "pace",
        match pace {
            Some((range, trend)) => format!(
                "the same work took {range:.2}x as long in slow moments as in quick ones, {}",
                match trend {
                    over if over > CHANGED => format!("and the machine became {over:.2}x slower"),
                    over if over < 1.0 / CHANGED =>
                        format!("and the machine became {:.2}x faster", 1.0 / over),
                    _ => "and no more in the second half than in the first".to_owned(),
                }
            ),
            None => format!("unknown (fewer than {ENOUGH_RACES} races)"),
        },
    ));
    rows.push((
        "core clock",
        match &noise.core_clock_hz {
            Reading::Known([low, high]) => {
                format!("{:.2} to {:.2} GHz", low / 1e9, high / 1e9)
            }
            Reading::Unknown(why) => format!("unknown ({why})"),
        },
    ));
    let (beside, races) = (noise.races_beside_others, noise.races);
    let busy = match 10 * beside > races {
        true => ": alone, times would be shorter",
        false => "",
    };
    rows.push((
        "others",
        format!("kept processors busy during {beside} of {races} races{busy}"),
    ));
    let rows: Vec<(String, String)> = rows
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    output::section("what noise allows to say", &rows)
}

/// Shares and factors from which what was seen is a warning and not only a figure.
const OFTEN: f64 = 0.1;
const UNSTEADY: f64 = 1.25;
const VAGUE: f64 = 0.25;

/// What of it raises doubts about the times, for the report.
pub(super) fn warnings(noise: &Noise) -> Vec<String> {
    let races = noise.races;
    let often = |count: usize| count as f64 > OFTEN * races as f64;
    let mut warnings = Vec::new();
    if often(noise.races_beside_others) {
        let beside = noise.races_beside_others;
        warnings.push(format!(
            "others kept processors busy during {beside} of {races} races: alone, times would be shorter"
        ));
    }
    if let Some(range) = noise.pace_p90_over_p10.filter(|range| *range > UNSTEADY) {
        warnings.push(format!(
            "the same work took {range:.2}x as long in slow moments as in quick ones"
        ));
    }
    match noise.pace_second_half_over_first {
        Some(over) if over > CHANGED => {
            warnings.push(format!("the machine became {over:.2}x slower meanwhile"));
        }
        Some(over) if over < 1.0 / CHANGED => {
            let times = 1.0 / over;
            warnings.push(format!("the machine became {times:.2}x faster meanwhile"));
        }
        _ => {}
    }
    if let Reading::Known([low, high]) = noise.core_clock_hz
        && high > CHANGED * low
    {
        warnings.push(format!(
            "the core clock moved between {:.2} and {:.2} GHz",
            low / 1e9,
            high / 1e9
        ));
    }
    if let Some(wide) = noise.half_width_share.filter(|wide| wide.p90 > VAGUE) {
        warnings.push(format!(
            "times of one candidate in ten are known to no better than ±{:.0} %",
            100.0 * wide.p90
        ));
    }
    let undecided = noise.shapes_undecided.len();
    if often(undecided) {
        warnings.push(format!(
            "noise hides which kernel is fastest on {undecided} of {races} shapes"
        ));
    }
    if often(noise.shapes_with_few_samples) {
        let few = noise.shapes_with_few_samples;
        warnings.push(format!(
            "{few} of {races} shapes have too few samples to tell which kernel is fastest: more time would help"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use kernelwise_types::units::Nanos;
    use kernelwise_types::{Candidate, Interval, Params};

    use super::*;

    const ZONE: f64 = 0.02;

    /// A candidate whose median is known to this share, up and down.
    fn took(median_ns: f64, share: f64) -> Measured {
        let ns = |ns: f64| Nanos::new(ns).unwrap();
        let ends = (ns(median_ns / (1.0 + share)), ns(median_ns * (1.0 + share)));
        Measured {
            workload: "copy f32 1000".parse().unwrap(),
            candidate: Candidate {
                kernel: "cpu-copy-f32-memcpy".parse().unwrap(),
                params: Params::default(),
            },
            median_ns: Some(ns(median_ns)),
            interval_ns: Some(Interval::new(ends.0, ends.1).unwrap()),
            samples: 9,
            learned_ns: Vec::new(),
            ended: Ended::Finished,
        }
    }

    #[test]
    fn noise_decides_what_can_be_told_apart() {
        let mut seen = Seen::default();
        // Ten per cent apart, known to one; half a per cent apart, known to a tenth; three per cent apart, known to five.
        seen.race(&[took(110.0, 0.01), took(100.0, 0.01)], 10.0, ZONE);
        seen.race(&[took(100.0, 0.001), took(100.1, 0.001)], 10.0, ZONE);
        seen.race(&[took(100.0, 0.05), took(103.0, 0.05)], 10.0, ZONE);
        // Timed too seldom.
        let once = Measured {
            interval_ns: None,
            samples: 1,
            ..took(100.0, 0.01)
        };
        seen.race(std::slice::from_ref(&once), 10.0, ZONE);
        // Beside one that was hardly measured nobody is the fastest; beside one that fell behind early somebody is.
        let behind = Measured {
            ended: Ended::Behind { times: 4.0 },
            ..once.clone()
        };
        seen.race(&[took(100.0, 0.01), once], 10.0, ZONE);
        seen.race(&[took(100.0, 0.01), behind], 10.0, ZONE);
        seen.others(Some(1));
        seen.others(Some(0));
        seen.others(None);
        let noise = seen.noise(ZONE);
        assert_eq!((noise.shapes_apart, noise.shapes_alike), (2, 1));
        assert_eq!(noise.shapes_undecided, ["copy f32 1000"]);
        assert_eq!(noise.candidates, 8);
        let half = noise.half_width_share.unwrap();
        assert!((half.median - 0.01).abs() < 1e-9 && (half.p90 - 0.05).abs() < 1e-9);
        let smallest = noise.smallest_difference_share.unwrap();
        // Of two that are known to a share each, by the root of two of it.
        let expected = (2f64.sqrt() * 1.01f64.ln()).exp_m1();
        assert!((smallest.median - expected).abs() < 1e-9);
        assert_eq!(noise.shapes_with_few_samples, 2);
        assert_eq!((noise.races, noise.races_beside_others), (6, 1));
        let words = text(&noise);
        assert!(
            words.contains("2 have one fastest kernel, 1 several within 2.0 %, 1 are undecided"),
            "{words}"
        );
        assert!(words.contains("fewer than 10 races"), "{words}");
        let warned = warnings(&noise);
        assert_eq!(warned.len(), 3, "{warned:?}");
        assert!(
            warned[0].starts_with("others kept processors busy during 1 of 6 races"),
            "{warned:?}"
        );
        assert!(warned[1].contains("fastest on 1 of 6 shapes"), "{warned:?}");
        assert!(warned[2].contains("2 of 6 shapes"), "{warned:?}");
    }

    #[test]
    fn a_machine_that_changes_is_told() {
        let told = |paces: &[f64]| {
            let mut seen = Seen::default();
            for pace in paces {
                seen.race(&[took(100.0, 0.01)], *pace, ZONE);
            }
            seen.clock(&Reading::Known(Hertz::new(3e9).unwrap()));
            seen.clock(&Reading::Known(Hertz::new(2e9).unwrap()));
            seen.noise(ZONE)
        };
        let slower = told(&[[10.0; 6], [13.0; 6]].concat());
        assert_eq!(slower.pace_second_half_over_first, Some(1.3));
        assert_eq!(slower.pace_p90_over_p10, Some(1.3));
        assert!(text(&slower).contains("became 1.30x slower"));
        assert!(text(&slower).contains("2.00 to 3.00 GHz"));
        let warned = warnings(&slower).join("\n");
        for part in [
            "took 1.30x as long",
            "became 1.30x slower",
            "2.00 and 3.00 GHz",
        ] {
            assert!(warned.contains(part), "{part} in {warned}");
        }
        let steady = told(&[10.0; 12]);
        assert!(text(&steady).contains("no more in the second half"));
        assert_eq!(told(&[10.0; 9]).pace_p90_over_p10, None);
    }
}
