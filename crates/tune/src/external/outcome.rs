//! What came of an evaluation, and why not.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::process::{End, Ran};
use crate::recorded;
use crate::space::Configuration;

/// Characters of a program's own words that are kept.
const MOST_WORDS: usize = 300;

/// Why a configuration has no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FailureKind {
    /// It did not compile.
    Compile,
    /// Compiling took too long.
    CompileTimeout,
    /// The program could not be started.
    Start,
    /// The program said that it failed.
    Exit,
    /// The program crashed.
    Crash,
    /// The program took too long.
    Timeout,
    /// It printed too much.
    Output,
    /// It wrote too much.
    Disk,
    /// It became too many processes.
    Processes,
    /// The result is wrong.
    Wrong,
    /// It did not tell its time, or told something that is none.
    NoTime,
}

impl FailureKind {
    /// Its name, as session files have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compile => "compile",
            Self::CompileTimeout => "compile-timeout",
            Self::Start => "start",
            Self::Exit => "exit",
            Self::Crash => "crash",
            Self::Timeout => "timeout",
            Self::Output => "output",
            Self::Disk => "disk",
            Self::Processes => "processes",
            Self::Wrong => "wrong",
            Self::NoTime => "no-time",
        }
    }

    /// The nearest word that other tuners have.
    pub(crate) fn recorded(self) -> recorded::Failure {
        match self {
            Self::Compile | Self::CompileTimeout => recorded::Failure::Compile,
            Self::Timeout => recorded::Failure::Timeout,
            Self::Wrong => recorded::Failure::Wrong,
            _ => recorded::Failure::Run,
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A failure, with what the program itself said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// What kind.
    pub kind: FailureKind,
    /// In words.
    pub message: String,
}

/// What came of one configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluated {
    /// The configuration.
    pub configuration: Configuration,
    /// Its time in seconds, or why it has none.
    pub result: Result<f64, Failed>,
    /// The times of its runs, in seconds, in order.
    pub samples: Vec<f64>,
    /// What it cost, in seconds.
    pub cost: recorded::Cost,
}

/// Why an evaluation has no end: nothing to do with the configuration.
#[derive(Debug)]
pub(crate) enum Abandoned {
    Cancelled,
    Deadline,
    Work(std::io::Error),
}

impl From<std::io::Error> for Abandoned {
    fn from(error: std::io::Error) -> Self {
        Self::Work(error)
    }
}

/// Which of the commands a process was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Compile,
    Run,
    Check,
}

/// Judges the end of a process: all but an exit with 0 is a failure, or the end of the evaluation.
pub(crate) fn judge(ran: &Ran, part: Part) -> Result<Result<(), Failed>, Abandoned> {
    let (kind, what) = match &ran.end {
        End::Exit(0) => return Ok(Ok(())),
        End::Cancelled => return Err(Abandoned::Cancelled),
        End::Deadline => return Err(Abandoned::Deadline),
        End::Exit(code) => (FailureKind::Exit, format!("exit code {code}")),
        End::Signal(signal) => (FailureKind::Crash, format!("killed by signal {signal}")),
        End::Timeout => (
            FailureKind::Timeout,
            format!("no end after {:.1} s", ran.seconds),
        ),
        End::Output => (
            FailureKind::Output,
            "printed more than `limits.output` allows".into(),
        ),
        End::Disk => (
            FailureKind::Disk,
            "wrote more than `limits.disk` allows".into(),
        ),
        End::Processes => (
            FailureKind::Processes,
            "became more processes than `limits.processes` allows".into(),
        ),
        End::NotStarted(why) => (FailureKind::Start, why.clone()),
    };
    let kind = match (part, kind) {
        (Part::Compile, FailureKind::Timeout) => FailureKind::CompileTimeout,
        (Part::Compile, _) => FailureKind::Compile,
        // A check that says no, and does so by itself, has found a wrong result.
        (Part::Check, FailureKind::Exit) => FailureKind::Wrong,
        (_, kind) => kind,
    };
    let what = match part {
        Part::Check => format!("the check: {what}"),
        _ => what,
    };
    let words = words(ran);
    let message = match words.is_empty() {
        true => what,
        false => format!("{what}: {words}"),
    };
    Ok(Err(Failed { kind, message }))
}

/// The line that most likely tells what is wrong.
fn words(ran: &Ran) -> String {
    for text in [&ran.stderr, &ran.stdout] {
        let text = String::from_utf8_lossy(text);
        let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
        let telling = lines().find(|line| line.to_lowercase().contains("error"));
        if let Some(line) = telling.or_else(|| lines().next()) {
            return shown(line);
        }
    }
    String::new()
}

/// Words of others as they can be shown: short, and nothing that steers a terminal.
pub(crate) fn shown(text: &str) -> String {
    let plain = text.chars().filter(|c| !c.is_control());
    let mut kept: String = plain.take(MOST_WORDS).collect();
    if text.chars().count() > MOST_WORDS {
        kept.push('…');
    }
    kept
}
