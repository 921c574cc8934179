//! The finals: is the best really the best, and better than what one would have had without looking?
//!
//! The best of many noisy times is in part the luckiest. So the few best and the default run once more, in turn, many rounds:
//! what disturbs the machine meets all of them, and the comparison is made of pairs. Nothing from the search counts here.

use kernelwise_measure::stats::{location, location_precision};
use kernelwise_measure::{Comparison, Indifference, RatioInterval, Verdict, ratio_interval};

use super::bench::{Bench, Stage};
use super::journal::Round;
use super::outcome::{Abandoned, Evaluated, Failed};
use crate::recorded::Cost;
use crate::space::Configuration;

/// Who takes part, beside the default.
const FINALISTS: usize = 3;
/// Rounds; enough that a tie can be seen, and an interval needs nine.
pub(crate) const ROUNDS: usize = 15;
/// How often intervals hold what they promise.
const CONFIDENCE: f64 = 0.9;

/// The best few of a search and the default, if it has a time; the best first.
pub(crate) fn finalists(evaluations: &[Evaluated], default: &Configuration) -> Vec<Configuration> {
    let mut order: Vec<(f64, &Configuration)> = evaluations
        .iter()
        .filter_map(|one| Some((*one.result.as_ref().ok()?, &one.configuration)))
        .collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(b.1)));
    let chosen = order
        .iter()
        .enumerate()
        .filter(|(place, (_, configuration))| *place < FINALISTS || *configuration == default);
    chosen
        .map(|(_, (_, configuration))| (*configuration).clone())
        .collect()
}

/// Plays one round after another until there are enough; `keep` is given each. Returns why it ended early.
pub(crate) fn play<E: From<Abandoned>>(
    bench: &mut Bench<'_>,
    finalists: &[Configuration],
    played: usize,
    keep: &mut dyn FnMut(Round) -> Result<(), E>,
) -> Result<(), E> {
    if played >= ROUNDS || finalists.len() < 2 {
        return Ok(());
    }
    let mut stages: Vec<Result<Stage, Failed>> = Vec::with_capacity(finalists.len());
    let mut ended = Ok(());
    for finalist in finalists {
        match bench.stage(finalist) {
            Ok(stage) => stages.push(stage),
            Err(abandoned) => {
                ended = Err(abandoned.into());
                break;
            }
        }
    }
    // One round that does not count: what was built just now is not in memory yet.
    for round in played..=ROUNDS {
        if ended.is_err() {
            break;
        }
        ended = match one(bench, finalists, &mut stages, round) {
            Ok(_) if round == played => Ok(()),
            Ok(round) => keep(round),
            Err(abandoned) => Err(abandoned.into()),
        };
    }
    for stage in stages.into_iter().flatten() {
        bench.strike(stage);
    }
    ended
}

/// Everyone once, beginning with another one each time. Who fails once is out.
fn one(
    bench: &Bench<'_>,
    finalists: &[Configuration],
    stages: &mut [Result<Stage, Failed>],
    round: usize,
) -> Result<Round, Abandoned> {
    let begin = bench.runner.clock.now();
    let count = stages.len();
    let mut times: Vec<Option<Result<f64, Failed>>> = vec![None; count];
    for turn in 0..count {
        let place = (turn + round) % count;
        let time = match &stages[place] {
            Ok(stage) => bench.once(stage, false, &mut Cost::default())?,
            Err(failed) => Err(failed.clone()),
        };
        if let (Err(failed), Ok(_)) = (&time, &stages[place])
            && let Ok(stage) = std::mem::replace(&mut stages[place], Err(failed.clone()))
        {
            bench.strike(stage);
        }
        times[place] = Some(time);
    }
    Ok(Round {
        finalists: finalists.to_vec(),
        times: times.into_iter().flatten().collect(),
        seconds: bench.runner.clock.now().saturating_sub(begin) as f64 * 1e-9,
    })
}

/// What the finals say.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Standing {
    /// Finalists that never failed, the best first: time in seconds, and its interval where rounds were enough.
    pub(crate) order: Vec<Place>,
    /// How many times as long the default takes as the best.
    pub(crate) gain: Option<Comparison>,
}

/// A finalist.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Place {
    pub(crate) configuration: Configuration,
    pub(crate) time: f64,
    pub(crate) interval: Option<(f64, f64)>,
    /// Whether it is shown to be slower than the best; the best itself is not.
    pub(crate) slower: bool,
}

/// Ranks those who took part.
pub(crate) fn standing(
    finalists: &[Configuration],
    rounds: &[Round],
    default: &Configuration,
    seed: u64,
) -> Standing {
    let mut order: Vec<(Place, Vec<f64>)> = Vec::new();
    for (place, configuration) in finalists.iter().enumerate() {
        let times = rounds
            .iter()
            .map(|round| round.times.get(place)?.as_ref().ok().copied());
        let Some(times) = times.collect::<Option<Vec<f64>>>() else {
            continue;
        };
        let Some(time) = location(&times) else {
            continue;
        };
        let interval =
            location_precision(&times).map(|share| (time * (1.0 - share), time * (1.0 + share)));
        let place = Place {
            configuration: configuration.clone(),
            time,
            interval,
            slower: false,
        };
        order.push((place, times));
    }
    order.sort_by(|a, b| a.0.time.total_cmp(&b.0.time));
    let compare = |a: &[f64], b: &[f64]| -> Option<Comparison> {
        let interval: RatioInterval = ratio_interval(a, b, CONFIDENCE, seed)?;
        Some(Comparison::new(interval, Indifference::default()))
    };
    let mut gain = None;
    if let Some((best, others)) = order.split_first_mut() {
        for (place, times) in others {
            let compared = compare(times, &best.1);
            place.slower = compared.is_some_and(|compared| compared.verdict == Verdict::Slower);
            if place.configuration == *default {
                gain = compared;
            }
        }
    }
    Standing {
        order: order.into_iter().map(|(place, _)| place).collect(),
        gain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(place: u16) -> Configuration {
        Configuration::new([place])
    }

    fn rounds(times: &[&dyn Fn(usize) -> f64], count: usize) -> Vec<Round> {
        let finalists: Vec<Configuration> = (0..times.len() as u16).map(configuration).collect();
        let round = |round: usize| Round {
            finalists: finalists.clone(),
            times: times.iter().map(|time| Ok(time(round))).collect(),
            seconds: 1.0,
        };
        (0..count).map(round).collect()
    }

    #[test]
    fn a_lucky_one_is_found_out_and_a_tie_is_called_one() {
        let noise = |round: usize| 1.0 + 0.01 * ((round * 7) % 5) as f64;
        let finalists: Vec<Configuration> = (0..3).map(configuration).collect();
        let played = rounds(
            &[&|r| 2.0 * noise(r), &|r| 1.0 * noise(r), &|r| {
                1.001 * noise(r)
            }],
            15,
        );
        let standing = standing(&finalists, &played, &configuration(0), 1);
        let order: Vec<u16> = standing
            .order
            .iter()
            .map(|place| place.configuration.places()[0])
            .collect();
        assert_eq!(order, [1, 2, 0]);
        assert_eq!(
            standing
                .order
                .iter()
                .map(|place| place.slower)
                .collect::<Vec<_>>(),
            [false, false, true]
        );
        let gain = standing.gain.unwrap();
        assert!((gain.interval.ratio - 2.0).abs() < 0.05, "{gain}");
        let (low, high) = standing.order[0].interval.unwrap();
        assert!(low <= standing.order[0].time && standing.order[0].time <= high);
    }

    #[test]
    fn few_rounds_show_nothing_and_who_fails_is_out() {
        let finalists: Vec<Configuration> = (0..2).map(configuration).collect();
        let mut played = rounds(&[&|_| 2.0, &|_| 1.0], 8);
        let few = standing(&finalists, &played, &configuration(0), 1);
        assert_eq!(few.gain, None);
        assert_eq!((few.order[0].time, few.order[0].interval), (1.0, None));
        assert!(!few.order[1].slower);
        played[7].times[1] = Err(Failed {
            kind: super::super::FailureKind::Wrong,
            message: "wrong".into(),
        });
        let one_out = standing(&finalists, &played, &configuration(0), 1);
        assert_eq!(one_out.order.len(), 1);
        assert_eq!(one_out.order[0].configuration, configuration(0));
    }
}
