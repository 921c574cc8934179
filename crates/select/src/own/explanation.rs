//! What was learned about an operation, for people to read.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use kernelwise_types::units::Share;
use kernelwise_types::{Estimate, Reason};

use super::{CallError, Features, Operation, Quarantined, REFERENCE};
use crate::engine::{Case, Seat};
use crate::selector::{Known, estimate};

/// A variant and what is known of its time.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    /// The variant.
    pub variant: String,
    /// What is known of its time.
    pub estimate: Estimate,
}

/// The choice for one case of a user's operation, with what it was made from.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// The operation.
    pub operation: String,
    /// The features.
    pub case: String,
    /// Calls so far. A thread adds its own every few hundred calls and when it ends.
    pub calls: u64,
    /// Who computes it.
    pub chosen: Ranked,
    /// Why.
    pub reason: Reason,
    /// Probability that the choice is within the indifference zone of the best.
    pub confidence: Option<Share>,
    /// The others that may, fastest first; those never timed come last.
    pub alternatives: Vec<Ranked>,
    /// Those that may not, and why.
    pub quarantined: Vec<Quarantined>,
}

/// The choice in words.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ranked { variant, estimate } = &self.chosen;
        writeln!(f, "{}: {}", self.operation, self.case)?;
        writeln!(f, "  runs {variant}: {}", self.reason.words())?;
        writeln!(f, "    {estimate}")?;
        match self.confidence {
            Some(confidence) => writeln!(f, "    confidence {confidence}")?,
            None => writeln!(f, "    confidence unknown")?,
        }
        for Ranked { variant, estimate } in &self.alternatives {
            writeln!(f, "  over {variant}: {estimate}")?;
        }
        for quarantined in &self.quarantined {
            let Quarantined {
                variant,
                case,
                evidence,
            } = quarantined;
            writeln!(f, "  not {variant}: {evidence}, on {case}")?;
        }
        Ok(())
    }
}

impl<I: ?Sized, R> Operation<I, R> {
    /// Who computes such inputs, and everything that was decided from. Learns from what waits first.
    pub fn explain(&self, input: &I) -> Result<Explanation, CallError> {
        let features = self.features_of(input)?;
        let made = |(): &()| Ok::<_, Infallible>(self.of.case(&features));
        let case = |(): &mut (), seat: &Seat| Arc::clone(&seat.case);
        let key = self.key(&features);
        let Ok(case) = self.shared.engine.at_seat(key, &mut (), made, case);
        self.shared.take_in_all();
        Ok(self.explanation(&case, features))
    }

    /// The same for every case that was met and is not forgotten, in the order of their features.
    pub fn learned(&self) -> Vec<Explanation> {
        self.shared.take_in_all();
        let mut cases: Vec<(Features, Arc<Case>)> = self
            .cases_of_it()
            .filter_map(|case| Some((case.own()?.features, case)))
            .collect();
        cases.sort_by_key(|(features, _)| *features);
        let explained = cases.into_iter();
        explained
            .map(|(features, case)| self.explanation(&case, features))
            .collect()
    }

    fn explanation(&self, case: &Case, features: Features) -> Explanation {
        let learned = self.shared.engine.learned(case);
        let choice = learned.choice();
        let serves = choice.map_or(REFERENCE, |choice| choice.serves);
        let known = |variant: usize| Known {
            foretold: None,
            alike: case.kin.as_ref().and_then(|kin| kin.alike(variant)),
            expected: &Estimate::Unknown,
        };
        let ranked = |variant: usize| Ranked {
            variant: self.of.variants[variant].clone(),
            estimate: estimate(&learned, variant, known(variant)),
        };
        let others = (0..self.of.variants.len()).filter(|i| *i != serves && !learned.is_barred(*i));
        let mut alternatives: Vec<Ranked> = others.map(ranked).collect();
        let time = |ranked: &Ranked| {
            ranked
                .estimate
                .time()
                .map_or(f64::INFINITY, |time| time.get())
        };
        alternatives.sort_by(|a, b| time(a).total_cmp(&time(b)));
        let zone = self.shared.engine.rules.zone;
        Explanation {
            operation: self.of.name.clone(),
            case: features.to_string(),
            calls: case.calls(),
            chosen: ranked(serves),
            reason: match (self.of.forced, choice) {
                (Some(forced), Some(_)) if forced == serves => Reason::Forced,
                (_, Some(choice)) => choice.reason,
                (_, None) => Reason::OnlyCandidate,
            },
            confidence: learned
                .confidence(zone)
                .and_then(|chance| Share::new(chance).ok()),
            alternatives,
            quarantined: self.quarantined(),
        }
    }
}
