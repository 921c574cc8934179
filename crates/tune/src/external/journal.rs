//! The session file: one line of JSON for everything that was measured, written as soon as it is known.
//!
//! A line is written at once or, if we are killed while writing, in part; such a part has no end of line, is
//! left out when the file is read, and cut off before the next line is written. The first line says what was
//! measured: a session does not go on with another program. While a session is under way the file is locked.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::outcome::{Evaluated, Failed};
use super::spec::Spec;
use crate::recorded::Cost;
use crate::space::{Configuration, Space, Value};

const VERSION: u32 = 1;

/// Why a session file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The file itself.
    #[error("the session file {} cannot be read or written: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        problem: io::Error,
    },
    /// Somebody else is at it.
    #[error("the session {} is under way elsewhere: wait for it, or name another session file", .0.display())]
    Busy(PathBuf),
    /// A line that is none.
    #[error("{}:{line}: not a line of a session: {problem}; name another session file, or remove this one", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// A file of somebody else; it stays as it is.
    #[error(
        "{} is not a session file: move it away, or name another session file", .0.display()
    )]
    NotOurs(PathBuf),
    /// Measured with other commands, parameters or sources.
    #[error(
        "the session {} is of another program: parameters, commands or files have changed since; name another session file, or remove this one",
        .0.display()
    )]
    Other(PathBuf),
}

/// One round of the finals.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Round {
    /// Who took part.
    pub(crate) finalists: Vec<Configuration>,
    /// Their times in seconds, or why they have none.
    pub(crate) times: Vec<Result<f64, Failed>>,
    /// What the round cost, in seconds.
    pub(crate) seconds: f64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Session {
        version: u32,
        name: String,
        fingerprint: String,
    },
    Evaluation(WrittenEvaluation),
    Round {
        runs: Vec<WrittenRun>,
        seconds: f64,
    },
}

/// Values by the names of the parameters.
type Named = BTreeMap<String, Value>;

#[derive(Serialize, Deserialize)]
struct WrittenEvaluation {
    #[serde(flatten)]
    run: WrittenRun,
    #[serde(default)]
    samples: Vec<f64>,
    compile: f64,
    verify: f64,
    benchmark: f64,
    framework: f64,
}

#[derive(Serialize, Deserialize)]
struct WrittenRun {
    configuration: Named,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<Failed>,
}

/// An open session file.
#[derive(Debug)]
pub(crate) struct Journal<'a> {
    file: File,
    path: &'a Path,
    space: &'a Space,
}

impl Drop for Journal<'_> {
    /// Closing would do, were it not for children that other threads are just starting: until they become other programs, they have
    /// the file open, too.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// What a session file has.
#[derive(Debug, Default)]
pub(crate) struct Past {
    pub(crate) evaluations: Vec<Evaluated>,
    pub(crate) rounds: Vec<Round>,
}

impl<'a> Journal<'a> {
    /// Opens or begins a session file.
    pub(crate) fn open(path: &'a Path, spec: &'a Spec) -> Result<(Self, Past), SessionError> {
        let problem = |problem| SessionError::File {
            path: path.to_owned(),
            problem,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(problem)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(SessionError::Busy(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(problem(error)),
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(problem)?;
        let whole = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |last| last + 1);
        let mut journal = Self {
            file,
            path,
            space: spec.space(),
        };
        let first = Line::Session {
            version: VERSION,
            name: spec.name.clone(),
            fingerprint: spec.fingerprint.clone(),
        };
        // What was being begun when it was killed may begin anew; whatever else has no line of ours is somebody else's.
        let begun = serde_json::to_vec(&first).map_err(|error| problem(error.into()))?;
        if whole == 0 && !begun.starts_with(&bytes) {
            return Err(SessionError::NotOurs(path.to_owned()));
        }
        let past = journal.read(&bytes[..whole], &spec.fingerprint)?;
        journal.file.set_len(whole as u64).map_err(problem)?;
        journal.file.seek(SeekFrom::End(0)).map_err(problem)?;
        if whole == 0 {
            journal.write(&first)?;
        }
        Ok((journal, past))
    }

    fn read(&self, bytes: &[u8], wanted: &str) -> Result<Past, SessionError> {
        let mut past = Past::default();
        let lines = bytes.split(|byte| *byte == b'\n').enumerate();
        // After the last end of line comes nothing.
        for (number, line) in lines.filter(|(number, line)| *number == 0 || !line.is_empty()) {
            if bytes.is_empty() {
                break;
            }
            let problem = |problem: String| SessionError::Line {
                path: self.path.to_owned(),
                line: number + 1,
                problem,
            };
            let line: Line = match serde_json::from_slice(line) {
                Ok(line) => line,
                Err(_) if number == 0 => return Err(SessionError::NotOurs(self.path.to_owned())),
                Err(error) => return Err(problem(error.to_string())),
            };
            let strange = || problem("it has values that no parameter has".to_owned());
            match line {
                Line::Session {
                    version,
                    fingerprint,
                    ..
                } if number == 0 => {
                    if (version, fingerprint.as_str()) != (VERSION, wanted) {
                        return Err(SessionError::Other(self.path.to_owned()));
                    }
                }
                _ if number == 0 => return Err(problem("a session begins otherwise".to_owned())),
                Line::Session { .. } => {
                    return Err(problem("a session begins only once".to_owned()));
                }
                Line::Evaluation(written) => {
                    let (configuration, result) = self.result(written.run).ok_or_else(strange)?;
                    past.evaluations.push(Evaluated {
                        configuration,
                        result,
                        samples: written.samples,
                        cost: Cost {
                            compile: written.compile,
                            verify: written.verify,
                            benchmark: written.benchmark,
                            framework: written.framework,
                        },
                    });
                }
                Line::Round { runs, seconds } => {
                    let runs = runs.into_iter().map(|run| self.result(run));
                    let runs = runs.collect::<Option<Vec<_>>>().ok_or_else(strange)?;
                    let (finalists, times) = runs.into_iter().unzip();
                    past.rounds.push(Round {
                        finalists,
                        times,
                        seconds,
                    });
                }
            }
        }
        Ok(past)
    }

    fn result(&self, run: WrittenRun) -> Option<(Configuration, Result<f64, Failed>)> {
        let names = self.space.parameters().iter();
        let values = names.map(|parameter| run.configuration.get(&parameter.name).cloned());
        let values = values.collect::<Option<Vec<Value>>>()?;
        let configuration = self.space.configuration(&values)?;
        let result = match (run.time, run.failed) {
            (Some(time), None) => Ok(time),
            (None, Some(failed)) => Err(failed),
            _ => return None,
        };
        Some((configuration, result))
    }

    fn run(&self, configuration: &Configuration, result: &Result<f64, Failed>) -> WrittenRun {
        WrittenRun {
            configuration: named(self.space, configuration),
            time: result.as_ref().ok().copied(),
            failed: result.as_ref().err().cloned(),
        }
    }

    /// Keeps an evaluation.
    pub(crate) fn evaluation(&mut self, evaluated: &Evaluated) -> Result<(), SessionError> {
        let written = WrittenEvaluation {
            run: self.run(&evaluated.configuration, &evaluated.result),
            samples: evaluated.samples.clone(),
            compile: evaluated.cost.compile,
            verify: evaluated.cost.verify,
            benchmark: evaluated.cost.benchmark,
            framework: evaluated.cost.framework,
        };
        self.write(&Line::Evaluation(written))
    }

    /// Keeps a round.
    pub(crate) fn round(&mut self, round: &Round) -> Result<(), SessionError> {
        let runs = round.finalists.iter().zip(&round.times);
        let runs = runs
            .map(|(configuration, result)| self.run(configuration, result))
            .collect();
        let seconds = round.seconds;
        self.write(&Line::Round { runs, seconds })
    }

    fn write(&mut self, line: &Line) -> Result<(), SessionError> {
        let written = serde_json::to_vec(line).map_err(io::Error::from);
        let written = written.and_then(|mut text| {
            text.push(b'\n');
            self.file.write_all(&text)
        });
        written.map_err(|problem| SessionError::File {
            path: self.path.to_owned(),
            problem,
        })
    }
}

/// The values of a configuration by the names of the parameters.
pub(crate) fn named(space: &Space, configuration: &Configuration) -> Named {
    let pairs = space.parameters().iter().zip(space.values(configuration));
    pairs
        .map(|(parameter, value)| (parameter.name.clone(), value.clone()))
        .collect()
}
