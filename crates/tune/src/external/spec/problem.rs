//! What can be wrong with a specification.

use std::io;
use std::path::PathBuf;

use super::template::PlaceholderError;
use super::values::MOST_OF_A_RANGE;
use super::{OUTPUT, SPEC_DIR, WORK};
use crate::recorded::RecordError;
use crate::search::UnknownStrategy;
use crate::space::{NoneAllowed, SpaceError};

/// Why a specification cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The file itself.
    #[error("{}: the specification cannot be read: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        problem: io::Error,
    },
    /// Something in it.
    #[error("{}:{line}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong there.
        problem: SpecProblem,
    },
}

/// What can be wrong in a line of a specification.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecProblem {
    /// Not TOML, or not of this form.
    #[error("{0}")]
    Form(String),
    /// No space.
    #[error("{0}")]
    Space(#[from] SpaceError),
    /// Nothing that could be evaluated.
    #[error("{0}")]
    NoneAllowed(#[from] NoneAllowed),
    /// A placeholder.
    #[error("{0}")]
    Placeholder(#[from] PlaceholderError),
    /// A pattern.
    #[error("`{text}` is not a pattern: {problem}")]
    Pattern {
        /// The pattern.
        text: String,
        /// What the reader says.
        problem: regex_lite::Error,
    },
    /// A pattern for a time has to say where in it the time is.
    #[error("`{0}` does not say where the time is: put parentheses around it")]
    NoGroup(String),
    /// Values that are none.
    #[error(
        "parameter `{0}` needs a list of values, or a range: {{ from = 1, to = 8, step = 1 }} or {{ from = 1, to = 8, times = 2 }}"
    )]
    Values(String),
    /// A range that does not end, or has too many values.
    #[error(
        "the range of parameter `{0}` is not one: `from` up to `to`, with a `step` above 0 or `times` above 1 and `from` above 0; at most {MOST_OF_A_RANGE} values"
    )]
    Range(String),
    /// A name that cannot stand between braces or in a restriction.
    #[error(
        "a parameter cannot be called `{0}`: use letters, digits and _, and not {SPEC_DIR}, {WORK} or {OUTPUT}"
    )]
    Name(String),
    /// A parameter that nothing depends on.
    #[error("parameter `{0}` has no effect: put {{{0}}} into a command or its environment")]
    Unused(String),
    /// No strategy of this name.
    #[error("{0}")]
    Strategy(#[from] UnknownStrategy),
    /// A command without a program.
    #[error("a command needs at least the name of a program")]
    NoCommand,
    /// A program that is not there.
    #[error("there is no program `{0}`: install it, or give its path")]
    NoProgram(String),
    /// A file that is not there.
    #[error("the file `{name}` cannot be read: {problem}; names are relative to the specification")]
    NoFile {
        /// Its name.
        name: String,
        /// Why.
        problem: io::Error,
    },
    /// A record or description that cannot be read.
    #[error("`{name}`: {problem}; names are relative to the specification")]
    Record {
        /// Its name.
        name: String,
        /// Why.
        problem: RecordError,
    },
    /// A record of something else.
    #[error(
        "the record `{0}` has other parameters: a search can begin only from records with parameters of the same names"
    )]
    OtherParameters(String),
    /// Nothing to vary.
    #[error("there is nothing to tune: give `[parameters]`, or a T1 description with `space`")]
    NoSpace,
    /// Two of them.
    #[error("`space` and `[parameters]` both say what to tune: leave one out")]
    TwoSpaces,
    /// A number outside of what makes sense.
    #[error("`{0}` has to be above zero")]
    NotAboveZero(&'static str),
    /// How the time is known.
    #[error("{0}")]
    Time(String),
    /// A limit that this system cannot hold.
    #[error("this system cannot limit `{0}`: leave it out")]
    NoLimit(&'static str),
}
