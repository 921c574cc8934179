//! Searches: which configuration to measure next.
//!
//! A [`Search`] is asked for configurations and told what came of them. It has no clock and does not run anything, so that
//! whoever drives it may evaluate here or elsewhere, one at a time or many, and go on after a kill. [`Session`] keeps
//! its books: the budget, what is known already, what has to be measured again because of noise. [`run`] is a session
//! with one evaluator.
//!
//! | strategy | how it searches |
//! |---|---|
//! | `default` | models of time and validity, neighbours of the best, records of other devices: [`Strategy::Default`] |
//! | `model` | trees and expected improvement over random candidates |
//! | `random`, `exhaustive` | as their names say |
//! | `genetic`, `evolution` | populations: crossing and mutating, or differences between members |
//! | `annealing`, `local` | one place at a time: worse ones at first accepted, or never |
//! | `halving` | many local searches, of which ever fewer go on |
//!
//! Same space, same seed, same answers: same questions.

mod annealing;
mod evolution;
mod exhaustive;
mod genetic;
mod guided;
mod halving;
mod local;
mod random;
mod session;
mod tried;
mod warm;

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::nearest;
use crate::recorded::Record;
use crate::space::{Configuration, Space};

pub(crate) use warm::fits;

pub use session::{Budget, BudgetError, Report, Session, Step, Stopped, run};

/// What came of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The time in seconds; none if the configuration failed.
    pub time: Option<f64>,
    /// How sure the time is: its standard error, as a share of it. Zero if times are exact.
    #[serde(default)]
    pub spread: f64,
    /// What the evaluation cost in seconds, compiling included; none if the driver's clock shall tell.
    #[serde(default)]
    pub cost: Option<f64>,
}

impl Outcome {
    /// An exact time, in seconds.
    pub fn measured(time: f64) -> Self {
        Self {
            time: Some(time),
            spread: 0.0,
            cost: None,
        }
    }

    /// It failed.
    pub fn failed() -> Self {
        Self {
            time: None,
            spread: 0.0,
            cost: None,
        }
    }

    /// With what it cost, in seconds.
    pub fn costing(self, seconds: f64) -> Self {
        Self {
            cost: Some(seconds),
            ..self
        }
    }

    /// The time if it can be used: finite and above zero.
    pub(crate) fn usable(&self) -> Option<f64> {
        self.time.filter(|time| time.is_finite() && *time > 0.0)
    }
}

/// A configuration and what came of it: what has to be kept to go on later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The configuration.
    pub configuration: Configuration,
    /// What came of it.
    pub outcome: Outcome,
}

/// Something that decides what to measure next.
///
/// Several configurations may be asked for before any is told, and more may be told than were asked for: what is known from elsewhere.
pub trait Search: fmt::Debug + Send {
    /// The name, as [`Strategy`] reads it.
    fn name(&self) -> &'static str;

    /// The next configuration. None if nothing is left or worth it, or, as long as some are not told, if those have to be known first.
    fn ask(&mut self) -> Option<Configuration>;

    /// What came of one. A second answer for the same configuration takes the place of the first.
    fn tell(&mut self, configuration: &Configuration, outcome: &Outcome);

    /// Whether it had nothing more to ask because no gain was worth its price, rather than because all is known.
    fn has_had_enough(&self) -> bool {
        false
    }
}

/// Ways to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Strategy {
    /// A few configurations far apart; then the best expected gain among neighbours of the best and random ones, by two models of ln t and one of
    /// failure; from the start with what other devices' records say, if there are any.
    #[default]
    Default,
    /// Trees and expected improvement, without the rest.
    Model,
    /// At random.
    Random,
    /// All, in order.
    Exhaustive,
    /// A population whose members are crossed and mutated.
    Genetic,
    /// From neighbour to neighbour, ever less often to worse ones.
    Annealing,
    /// A population that moves by differences between its members.
    Evolution,
    /// From neighbour to better neighbour; from elsewhere when there is none.
    Local,
    /// Many local searches, of which the better half goes on.
    Halving,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Default,
        Self::Model,
        Self::Random,
        Self::Exhaustive,
        Self::Genetic,
        Self::Annealing,
        Self::Evolution,
        Self::Local,
        Self::Halving,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Model => "model",
            Self::Random => "random",
            Self::Exhaustive => "exhaustive",
            Self::Genetic => "genetic",
            Self::Annealing => "annealing",
            Self::Evolution => "evolution",
            Self::Local => "local",
            Self::Halving => "halving",
        }
    }

    /// Whether it makes use of [`Knowledge`].
    pub fn uses_knowledge(self) -> bool {
        self == Self::Default
    }

    /// A search of this kind.
    pub fn search(self, space: &Arc<Space>, seed: u64, knowledge: &Knowledge) -> Box<dyn Search> {
        let space = Arc::clone(space);
        match self {
            Self::Default => Box::new(guided::Guided::new(space, seed, knowledge)),
            Self::Model => Box::new(guided::Guided::plain(space, seed)),
            Self::Random => Box::new(random::Random::new(space, seed)),
            Self::Exhaustive => Box::new(exhaustive::Exhaustive::new(space, seed)),
            Self::Genetic => Box::new(genetic::Genetic::new(space, seed)),
            Self::Annealing => Box::new(annealing::Annealing::new(space, seed)),
            Self::Evolution => Box::new(evolution::Evolution::new(space, seed)),
            Self::Local => Box::new(local::Local::new(space, seed)),
            Self::Halving => Box::new(halving::Halving::new(space, seed)),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A strategy nobody knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no strategy is called `{name}`{hint} There are {}", Strategy::ALL.map(Strategy::name).join(", "))]
pub struct UnknownStrategy {
    name: String,
    hint: String,
}

impl FromStr for Strategy {
    type Err = UnknownStrategy;

    fn from_str(name: &str) -> Result<Self, UnknownStrategy> {
        let found = Self::ALL
            .into_iter()
            .find(|strategy| strategy.name() == name);
        found.ok_or_else(|| {
            let hint = nearest::hint(name, Self::ALL.map(Self::name));
            UnknownStrategy {
                name: name.to_owned(),
                hint: if hint.is_empty() {
                    ".".to_owned()
                } else {
                    hint
                },
            }
        })
    }
}

/// What the default search may know beforehand. By default nothing.
#[derive(Debug, Clone, Default)]
pub struct Knowledge {
    /// Records of the same kernel on other devices or for other sizes. Those whose parameters have other names are left out.
    pub records: Vec<Arc<Record>>,
    /// The device searched on, as records name devices; may be empty. Before anything is measured, devices of the same maker weigh more.
    pub device: String,
    /// How often the kernel will run once it is tuned. The search ends when that many runs would gain less than an evaluation costs;
    /// if not known, it goes on as long as the budget lasts.
    pub runs: Option<f64>,
}

impl Knowledge {
    /// The records that say something about this space: those with the same parameters and a configuration that works.
    pub fn about<'a>(&'a self, space: &'a Space) -> impl Iterator<Item = &'a Arc<Record>> {
        let telling = |record: &Record| fits(space, record) && record.best().is_some();
        self.records.iter().filter(move |record| telling(record))
    }
}
