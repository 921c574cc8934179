//! Tuning any program: built and run as a [`Spec`] says, in processes of their own.
//!
//! 1. **[`Spec`]** is a TOML file: parameters, restrictions, how to compile and run, how the time and the right result are known.
//! 2. **[`tune`]** searches. Every evaluation has a folder of its own, and its processes are bounded in time, output, disk and number; a crash, a hang
//!    or garbage is a failed configuration. The same compile command is run once.
//! 3. **The session file** gets every evaluation at once; after a kill the search goes on as if there had been none.
//! 4. **The finals** run the few best and the default again, in turn, and say whether there is a difference.
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use kernelwise_measure::TscClock;
//! use kernelwise_tune::external::{Conclusion, Spec, tune};
//!
//! let folder = tempfile::tempdir()?;
//! let file = folder.path().join("spec.toml");
//! std::fs::write(&file, r#"
//!     name = "example"
//!     [parameters]
//!     size = [3, 1, 2]
//!     [run]
//!     command = ["echo", "took {size} ms"]
//!     [repeat]
//!     runs = 1
//!     [time]
//!     from = "output"
//!     pattern = 'took ([0-9]+) ms'
//!     unit = "ms"
//! "#)?;
//! let spec = Spec::open(&file)?;
//! let stop = AtomicBool::new(false);
//! let found = tune(&spec, &spec.session(), &TscClock::new(), &stop, &mut |_| {})?;
//! assert_eq!(found.best.map(|best| best.time), Some(1e-3));
//! assert_eq!(found.conclusion, Conclusion::Faster);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What is not promised: that a program which wants to do harm cannot. It runs as the user who tunes it.

mod bench;
mod finals;
mod folder;
mod journal;
mod kin;
mod outcome;
mod process;
mod reading;
mod results;
mod room;
mod spec;
mod tuned;

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use kernelwise_measure::Clock;

use crate::recorded::RecordError;
use crate::search::{Budget, BudgetError, Evaluation, Outcome, Search, Session, Step, Stopped};
use crate::space::Configuration;

pub use journal::SessionError;
pub use outcome::{Evaluated, Failed, FailureKind};
pub use spec::{PlaceholderError, Spec, SpecError, SpecProblem};
pub use tuned::{Conclusion, Ended, FailureCount, Timed, Tuned};

use bench::Bench;
use journal::{Journal, Past};
use outcome::Abandoned;
use process::Runner;
use room::Room;
use tuned::Measured;

/// The share of the seconds that the search may spend; the rest is for the finals.
const FOR_THE_SEARCH: f64 = 0.8;

/// Why tuning cannot begin or go on. Nothing a candidate does is among these.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// The session file.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The budget.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// The folder for builds and runs.
    #[error("the folder {} for builds and runs cannot be used: {problem}", path.display())]
    Work {
        /// The folder.
        path: PathBuf,
        /// Why not.
        problem: io::Error,
    },
    /// There is something else where the folder would be.
    #[error("{} was not made by an earlier session: move it away, or name another session file", .0.display())]
    NotOurs(PathBuf),
    /// What was found cannot be written.
    #[error("the results cannot be written to {}: {problem}", path.display())]
    Results {
        /// The file.
        path: PathBuf,
        /// Why not.
        problem: RecordError,
    },
}

/// What happens while tuning.
#[derive(Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// An earlier session goes on.
    Resumed {
        /// Evaluations it has.
        evaluations: u64,
    },
    /// A configuration was evaluated.
    Evaluated {
        /// How many there are now, those from before included.
        number: u64,
        /// How many there may be.
        of: Option<u64>,
        /// What came of it.
        evaluated: &'a Evaluated,
        /// The best time so far, in seconds.
        best: Option<f64>,
    },
    /// A round of the finals was played.
    Round {
        /// Which, counted from 1.
        number: usize,
        /// How many there will be.
        of: usize,
    },
}

/// Tunes a program, or goes on with it where a session file has something.
///
/// Setting `cancel` ends it within moments, without a trace of what was under way; the session can go on later. Timeouts and
/// the budget in seconds are told by `clock`, which has to run.
pub fn tune(
    spec: &Spec,
    session: &Path,
    clock: &dyn Clock,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Tuned, TuneError> {
    let session = std::path::absolute(session).unwrap_or_else(|_| session.to_owned());
    let (mut journal, past) = Journal::open(&session, spec)?;
    // Locked: whatever a folder of this name holds, nobody is at it.
    let room = Room::make(beside(&session, ".work"))?;
    let measured = measure(spec, &room, &mut journal, past, clock, cancel, progress)?;
    let standing = finals::standing(
        &measured.finalists,
        &measured.rounds,
        spec.default_configuration(),
        spec.seed,
    );
    let mut tuned = Tuned::new(spec, &measured, &standing, session.clone());
    results::write(spec, &measured.evaluations, &mut tuned)?;
    room.clear()?;
    Ok(tuned)
}

/// A file or folder that belongs to a session. No two sessions share one, so the whole name of the session is part of it.
fn beside(session: &Path, what: &str) -> PathBuf {
    let mut name = session.as_os_str().to_owned();
    name.push(what);
    PathBuf::from(name)
}

/// Why measuring ended, if not at its end.
#[derive(Debug)]
enum Halt {
    Error(TuneError),
    /// Something with the folder.
    Work(io::Error),
    Ended(Ended),
}

impl From<SessionError> for Halt {
    fn from(error: SessionError) -> Self {
        Self::Error(error.into())
    }
}

/// Searches and plays the finals.
fn measure(
    spec: &Spec,
    room: &Room,
    journal: &mut Journal<'_>,
    past: Past,
    clock: &dyn Clock,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Measured, TuneError> {
    let resumed = past.evaluations.len();
    if resumed > 0 {
        let evaluations = resumed as u64;
        progress(&Progress::Resumed { evaluations });
    }
    let spent: f64 = past.evaluations.iter().map(|one| one.cost.total()).sum();
    let mut seconds = spent + past.rounds.iter().map(|round| round.seconds).sum::<f64>();
    let runner = Runner {
        clock,
        cancel,
        limits: spec.limits,
        kin: room.kin.clone(),
        // What was spent before is not counted: a session that goes on has seconds of its own.
        deadline: spec
            .budget
            .seconds
            .map(|seconds| clock.now().saturating_add((seconds * 1e9) as u64)),
    };
    let mut bench = Bench::new(spec, &room.path, runner);
    let mut evaluations = past.evaluations;
    let halted = search(
        spec,
        &mut bench,
        &mut evaluations,
        |evaluated, number, best| {
            journal.evaluation(evaluated)?;
            seconds += evaluated.cost.total();
            let of = spec.budget.evaluations;
            progress(&Progress::Evaluated {
                number,
                of,
                evaluated,
                best,
            });
            Ok(())
        },
    );
    let mut ended = match halted.or_else(|halt| halt.ended(room))? {
        ended @ Ended::Cancelled => {
            return Ok(Measured {
                finalists: finals::finalists(&evaluations, spec.default_configuration()),
                evaluations,
                resumed,
                rounds: Vec::new(),
                seconds,
                ended,
            });
        }
        ended => ended,
    };
    let finalists = finals::finalists(&evaluations, spec.default_configuration());
    let mut rounds: Vec<_> = past
        .rounds
        .into_iter()
        .filter(|round| round.finalists == finalists)
        .collect();
    rounds.truncate(finals::ROUNDS);
    let played = rounds.len();
    let halted = finals::play(&mut bench, &finalists, played, &mut |round| {
        journal.round(&round)?;
        seconds += round.seconds;
        rounds.push(round);
        progress(&Progress::Round {
            number: rounds.len(),
            of: finals::ROUNDS,
        });
        Ok::<(), Halt>(())
    });
    if let Err(halt) = halted {
        ended = halt.ended(room)?;
    }
    Ok(Measured {
        evaluations,
        resumed,
        finalists,
        rounds,
        seconds,
        ended,
    })
}

/// Searches until the budget of the search is spent.
fn search(
    spec: &Spec,
    bench: &mut Bench<'_>,
    evaluations: &mut Vec<Evaluated>,
    mut keep: impl FnMut(&Evaluated, u64, Option<f64>) -> Result<(), Halt>,
) -> Result<Ended, Halt> {
    let mut searching = DefaultFirst {
        default: Some(spec.default_configuration().clone()),
        then: spec
            .strategy
            .search(spec.space(), spec.seed, &spec.knowledge),
    };
    let budget = Budget {
        evaluations: spec.budget.evaluations,
        seconds: spec.budget.seconds.map(|all| all * FOR_THE_SEARCH),
    };
    let past: Vec<Evaluation> = evaluations
        .iter()
        .map(|one| Evaluation {
            configuration: one.configuration.clone(),
            outcome: outcome(one),
        })
        .collect();
    let mut session =
        Session::new(&mut searching, budget, &past).map_err(|error| Halt::Error(error.into()))?;
    loop {
        let next = match session.step() {
            Step::Evaluate(next) => next,
            Step::Done(Stopped::Evaluations) => return Ok(Ended::Evaluations),
            Step::Done(Stopped::Seconds) => return Ok(Ended::Seconds),
            // With one evaluator nothing is ever waited for.
            Step::Done(Stopped::Nothing) | Step::Wait => return Ok(Ended::Nothing),
            Step::Done(Stopped::NotWorth) => return Ok(Ended::NotWorth),
        };
        if bench.runner.cancel.load(Ordering::Relaxed) {
            return Ok(Ended::Cancelled);
        }
        let evaluated = bench.evaluate(&next)?;
        session.record(&next, outcome(&evaluated));
        let best = session.best().map(|(_, time)| time);
        keep(&evaluated, evaluations.len() as u64 + 1, best)?;
        evaluations.push(evaluated);
    }
}

impl Halt {
    /// The end of measuring, or the error with the folder it happened in.
    fn ended(self, room: &Room) -> Result<Ended, TuneError> {
        match self {
            Self::Ended(ended) => Ok(ended),
            Self::Work(problem) => Err(room.problem(problem)),
            Self::Error(error) => Err(error),
        }
    }
}

impl From<Abandoned> for Halt {
    fn from(abandoned: Abandoned) -> Self {
        match abandoned {
            Abandoned::Cancelled => Self::Ended(Ended::Cancelled),
            Abandoned::Deadline => Self::Ended(Ended::Seconds),
            Abandoned::Work(problem) => Self::Work(problem),
        }
    }
}

/// As a search is told it. The finals see to the noise, so times are given as if they were exact.
fn outcome(evaluated: &Evaluated) -> Outcome {
    let outcome = match &evaluated.result {
        Ok(time) => Outcome::measured(*time),
        Err(_) => Outcome::failed(),
    };
    outcome.costing(evaluated.cost.total())
}

/// A search that begins with the default: what is gained is told against it, so it has to be known.
#[derive(Debug)]
struct DefaultFirst {
    default: Option<Configuration>,
    then: Box<dyn Search>,
}

impl Search for DefaultFirst {
    fn name(&self) -> &'static str {
        self.then.name()
    }

    fn ask(&mut self) -> Option<Configuration> {
        self.default.take().or_else(|| self.then.ask())
    }

    fn tell(&mut self, configuration: &Configuration, outcome: &Outcome) {
        self.then.tell(configuration, outcome);
    }

    fn has_had_enough(&self) -> bool {
        self.then.has_had_enough()
    }
}
