//! Which candidate serves, given what is believed of each.
//!
//! Policies differ in what they look at; they share what keeps choices calm. Candidates closer than the indifference zone
//! are as good as each other, and the one in use stays. And a candidate that was never timed does not serve while
//! one that was is there: it gets in by a trial, whose cost the budget knows.

use std::fmt;
use std::str::FromStr;

use kernelwise_types::Reason;
use serde::{Deserialize, Serialize};

use crate::belief::{Belief, Expected};

/// How choices are made.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Policy {
    /// The lowest expected time, and trials by Thompson sampling within the budget.
    #[default]
    Bandit,
    /// The best score of time, memory, history and the cost of changing.
    Score(Weights),
    /// What the trained model predicts, whatever was measured of the candidate itself.
    Model,
    /// The model where it is sure and no measurement contradicts it, scores elsewhere.
    Hybrid {
        /// How sure the model must be: the largest standard deviation of ln t.
        surer_than: f64,
        /// For the scores.
        weights: Weights,
    },
    /// Every candidate so many times, then the fastest for ever; the budget is not asked.
    Exhaustive {
        /// Samples of each.
        samples: u32,
    },
}

/// What a score is made of. All parts are in units of ln t, so a weight of time of 1 and one of memory of 0.1 mean: ten
/// times the memory may cost 23 % of the time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Weights {
    /// Of ln of the expected time.
    pub time: f64,
    /// Of ln of (1 + workspace in MiB).
    pub memory: f64,
    /// Of the share of the calibrated machine that is left unused, declared or measured.
    pub efficiency: f64,
    /// Of the uncertainty: what was seldom measured is worth less.
    pub history: f64,
    /// Against changing the candidate in use.
    pub switching: f64,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            time: 1.0,
            memory: 0.01,
            efficiency: 0.05,
            history: 0.1,
            switching: 0.02,
        }
    }
}

/// A setting that no policy can have.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidPolicy {
    /// A number out of its range.
    #[error("the policy's {what} is a number from {least} up, not {value}")]
    Number {
        /// Which one.
        what: &'static str,
        /// The least it can be.
        least: f64,
        /// What it was.
        value: f64,
    },
    /// No policy has this name.
    #[error("unknown policy `{0}`: there are bandit, score, model, hybrid and exhaustive")]
    Name(String),
}

impl Policy {
    /// The names, the default first.
    pub const NAMES: [&'static str; 5] = ["bandit", "score", "model", "hybrid", "exhaustive"];

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Bandit => "bandit",
            Self::Score(_) => "score",
            Self::Model => "model",
            Self::Hybrid { .. } => "hybrid",
            Self::Exhaustive { .. } => "exhaustive",
        }
    }

    pub(crate) fn check(&self) -> Result<(), InvalidPolicy> {
        let number = |what, value: f64, least: f64| {
            if value.is_finite() && value >= least {
                Ok(())
            } else {
                Err(InvalidPolicy::Number { what, least, value })
            }
        };
        match self {
            Self::Bandit | Self::Model => Ok(()),
            Self::Exhaustive { samples } => number("samples", f64::from(*samples), 1.0),
            Self::Score(weights) | Self::Hybrid { weights, .. } => {
                if let Self::Hybrid { surer_than, .. } = self {
                    number("surer_than", *surer_than, 0.0)?;
                }
                number("weight of time", weights.time, 0.0)?;
                number("weight of memory", weights.memory, 0.0)?;
                number("weight of efficiency", weights.efficiency, 0.0)?;
                number("weight of history", weights.history, 0.0)?;
                number("weight of switching", weights.switching, 0.0)
            }
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = InvalidPolicy;

    /// By its name, with the settings it usually has.
    fn from_str(name: &str) -> Result<Self, InvalidPolicy> {
        let weights = Weights::default();
        match name {
            "bandit" => Ok(Self::Bandit),
            "score" => Ok(Self::Score(weights)),
            "model" => Ok(Self::Model),
            "hybrid" => Ok(Self::Hybrid {
                surer_than: 0.25,
                weights,
            }),
            "exhaustive" => Ok(Self::Exhaustive { samples: 3 }),
            other => Err(InvalidPolicy::Name(other.to_owned())),
        }
    }
}

/// One candidate as a policy sees it.
#[derive(Debug, Clone, Copy)]
pub struct Contender {
    /// What is believed of it.
    pub belief: Belief,
    /// Samples it has, ever.
    pub samples: u64,
    /// What a trained model says of it.
    pub modelled: Option<Expected>,
    /// Scratch memory it needs, in bytes.
    pub workspace: u64,
    /// Share of the roofline it reaches or is said to reach, where that is known.
    pub efficiency: Option<f64>,
    /// Whether it may serve at all: it failed, or somebody took it out.
    pub barred: bool,
}

/// What a policy says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Which candidate serves.
    pub serves: usize,
    /// Why.
    pub reason: Reason,
}

impl Policy {
    /// Who serves; `None` if all are barred. `incumbent` serves now, `zone` is the indifference zone in ln t.
    pub fn choose(
        &self,
        contenders: &[Contender],
        incumbent: Option<usize>,
        zone: f64,
    ) -> Option<Choice> {
        let open: Vec<usize> = (0..contenders.len())
            .filter(|i| !contenders[*i].barred)
            .collect();
        if let [only] = open[..] {
            return Some(Choice {
                serves: only,
                reason: Reason::OnlyCandidate,
            });
        }
        let lowest = |among: &[usize], cost: &dyn Fn(usize) -> f64| {
            // Ties go to the one with fewer samples, then to the first, so that order of registration decides nothing
            // that matters.
            let least = |a: &usize, b: &usize| {
                let samples = |i: usize| contenders[i].samples;
                let by_cost = cost(*a).total_cmp(&cost(*b));
                by_cost.then_with(|| samples(*a).cmp(&samples(*b)))
            };
            among.iter().copied().min_by(least)
        };
        let timed: Vec<usize> = open
            .iter()
            .copied()
            .filter(|i| contenders[*i].samples > 0)
            .collect();
        // What was timed goes before what was not.
        let servable = if timed.is_empty() { &open } else { &timed };
        let time = |i: usize| contenders[i].belief.expected();
        let reason = match timed.is_empty() {
            true if open.iter().all(|i| contenders[*i].modelled.is_some()) => Reason::Modelled,
            true => Reason::Default,
            false => Reason::Best,
        };
        let calm = |best: usize, cost: &dyn Fn(usize) -> f64, zone: f64, reason: Reason| {
            // The one in use stays if it is as good.
            match incumbent {
                Some(old) if old == best => Choice {
                    serves: old,
                    reason,
                },
                Some(old) if servable.contains(&old) && cost(old) - cost(best) <= zone => Choice {
                    serves: old,
                    reason: Reason::NearTie,
                },
                _ => Choice {
                    serves: best,
                    reason,
                },
            }
        };
        let by_score = |weights: &Weights| {
            let cost = |i: usize| weights.cost(&contenders[i]);
            let best = lowest(servable, &cost)?;
            // The zone is in time; what switching costs comes on top.
            let zone = weights.time * zone + weights.switching;
            Some(calm(best, &cost, zone, reason))
        };
        match self {
            Self::Bandit | Self::Exhaustive { .. } => {
                Some(calm(lowest(servable, &time)?, &time, zone, reason))
            }
            Self::Score(weights) => by_score(weights),
            Self::Model => match modelled(&open, contenders, f64::INFINITY) {
                Some(best) => Some(Choice {
                    serves: best,
                    reason: Reason::Modelled,
                }),
                None => Some(calm(lowest(servable, &time)?, &time, zone, reason)),
            },
            Self::Hybrid {
                surer_than,
                weights,
            } => match modelled(&open, contenders, *surer_than) {
                Some(best) => Some(Choice {
                    serves: best,
                    reason: Reason::Modelled,
                }),
                None => by_score(weights),
            },
        }
    }
}

/// The lowest prediction, if every candidate has one that is sure enough: comparing some of them with nothing would prefer
/// what the model happens to know.
fn modelled(open: &[usize], contenders: &[Contender], surer_than: f64) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for &i in open {
        let predicted = contenders[i].modelled?;
        if predicted.sd > surer_than
            || (surer_than.is_finite() && contenders[i].contradicts(&predicted))
        {
            return None;
        }
        let expected = predicted.mean + predicted.sd * predicted.sd / 2.0;
        if best.is_none_or(|(_, least)| expected < least) {
            best = Some((i, expected));
        }
    }
    best.map(|(i, _)| i)
}

impl Contender {
    /// Whether its own measurements say that a model is wrong about it.
    fn contradicts(&self, predicted: &Expected) -> bool {
        const SAMPLES: u64 = 3;
        let away = (self.belief.mean - predicted.mean).abs();
        self.samples >= SAMPLES && away > 2.0 * predicted.sd.hypot(self.belief.sd)
    }
}

impl Weights {
    /// What a candidate costs, in units of ln t: lower is better.
    fn cost(&self, contender: &Contender) -> f64 {
        let mebibytes = contender.workspace as f64 / f64::from(1 << 20);
        let unused = contender
            .efficiency
            .map_or(0.5, |share| 1.0 - share.clamp(0.0, 1.0));
        self.time * contender.belief.expected()
            + self.memory * mebibytes.ln_1p()
            + self.efficiency * unused
            + self.history * contender.belief.sd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(mean: f64, sd: f64, samples: u64) -> Contender {
        Contender {
            belief: Belief {
                mean,
                sd,
                weight: samples as f64,
            },
            samples,
            modelled: None,
            workspace: 0,
            efficiency: None,
            barred: false,
        }
    }

    fn serves(policy: &str, contenders: &[Contender], incumbent: Option<usize>) -> Choice {
        let policy: Policy = policy.parse().unwrap();
        policy.choose(contenders, incumbent, 0.02).unwrap()
    }

    #[test]
    fn the_fastest_that_was_timed_serves_and_near_ties_change_nothing() {
        let all = [
            contender(5.0, 0.01, 9),
            contender(4.99, 0.01, 9),
            contender(1.0, 1.0, 0),
        ];
        for policy in ["bandit", "exhaustive"] {
            assert_eq!(serves(policy, &all, None).serves, 1, "{policy}");
            let kept = serves(policy, &all, Some(0));
            assert_eq!((kept.serves, kept.reason), (0, Reason::NearTie));
            assert_eq!(serves(policy, &all, Some(1)).reason, Reason::Best);
        }
        let far = [contender(5.0, 0.01, 9), contender(4.9, 0.01, 9)];
        assert_eq!(serves("bandit", &far, Some(0)).serves, 1);
        // Nothing was timed: the expectation decides, and says so.
        let cold = [contender(5.0, 1.0, 0), contender(4.0, 1.0, 0)];
        let first = serves("bandit", &cold, None);
        assert_eq!((first.serves, first.reason), (1, Reason::Default));
    }

    #[test]
    fn what_is_barred_never_serves() {
        let mut all = [contender(1.0, 0.1, 3), contender(2.0, 0.1, 3)];
        all[0].barred = true;
        for policy in Policy::NAMES {
            let choice = serves(policy, &all, Some(0));
            assert_eq!((choice.serves, choice.reason), (1, Reason::OnlyCandidate));
        }
        all[1].barred = true;
        assert_eq!(Policy::Bandit.choose(&all, None, 0.02), None);
    }

    #[test]
    fn every_weight_of_a_score_can_decide() {
        let choose = |weights: Weights, contenders: &[Contender], incumbent| {
            let choice = Policy::Score(weights).choose(contenders, incumbent, 0.0);
            choice.unwrap().serves
        };
        let none = Weights {
            time: 0.0,
            memory: 0.0,
            efficiency: 0.0,
            history: 0.0,
            switching: 0.0,
        };
        let (slow, fast) = (contender(2.0, 0.1, 3), contender(1.0, 0.1, 3));
        assert_eq!(
            choose(Weights { time: 1.0, ..none }, &[slow, fast], None),
            1
        );
        let mut large = fast;
        large.workspace = 64 << 20;
        let memory = Weights {
            time: 0.1,
            memory: 1.0,
            ..none
        };
        assert_eq!(choose(memory, &[slow, large], None), 0);
        let (mut idle, mut busy) = (slow, slow);
        (idle.efficiency, busy.efficiency) = (Some(0.1), Some(0.9));
        let efficiency = Weights {
            efficiency: 1.0,
            ..none
        };
        assert_eq!(choose(efficiency, &[idle, busy], None), 1);
        let sure = contender(2.0, 0.01, 3);
        let history = Weights {
            history: 1.0,
            ..none
        };
        assert_eq!(choose(history, &[slow, sure], None), 1);
        let switching = |switching| Weights {
            time: 1.0,
            switching,
            ..none
        };
        assert_eq!(choose(switching(0.5), &[slow, fast], Some(0)), 1);
        assert_eq!(choose(switching(1.5), &[slow, fast], Some(0)), 0);
    }

    #[test]
    fn a_hybrid_follows_the_model_only_where_it_is_sure() {
        let mut all = [contender(1.0, 0.1, 1), contender(2.0, 0.1, 1)];
        assert_eq!(serves("model", &all, None).serves, 0);
        for (i, mean) in [(0, 9.0), (1, 8.0)] {
            all[i].modelled = Some(Expected { mean, sd: 0.2 });
        }
        for policy in ["model", "hybrid"] {
            let choice = serves(policy, &all, None);
            assert_eq!((choice.serves, choice.reason), (1, Reason::Modelled));
        }
        // What was measured often says otherwise.
        (all[0].samples, all[1].samples) = (3, 3);
        let contradicted = serves("hybrid", &all, None);
        assert_eq!(
            (contradicted.serves, contradicted.reason),
            (0, Reason::Best)
        );
        assert_eq!(serves("model", &all, None).serves, 1);
        all[0].modelled = Some(Expected { mean: 9.0, sd: 0.3 });
        assert_eq!(serves("model", &all, None).serves, 1);
        let unsure = serves("hybrid", &all, None);
        assert_eq!((unsure.serves, unsure.reason), (0, Reason::Best));
        all[0].modelled = None;
        assert_eq!(serves("model", &all, None).serves, 0);
    }

    #[test]
    fn names_and_numbers_are_checked() {
        for name in Policy::NAMES {
            let policy: Policy = name.parse().unwrap();
            assert_eq!((policy.name(), policy.check()), (name, Ok(())));
        }
        let error = "greedy".parse::<Policy>().unwrap_err().to_string();
        assert!(error.contains("greedy") && error.contains("bandit"));
        let negative = Policy::Score(Weights {
            history: -1.0,
            ..Weights::default()
        });
        let error = negative.check().unwrap_err().to_string();
        assert_eq!(
            error,
            "the policy's weight of history is a number from 0 up, not -1"
        );
        assert!(Policy::Exhaustive { samples: 0 }.check().is_err());
    }
}
