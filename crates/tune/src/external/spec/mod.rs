//! What to tune: a TOML file that names parameters and says how to build, run, time and check a program.
//!
//! Everything that can be found wrong without running anything is found here, and said with the line it stands in: a
//! search that fails after an hour because of a mistyped placeholder is an hour lost.

mod problem;
mod reader;
mod template;
mod values;
mod written;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use regex_lite::Regex;

use crate::search::{Budget, Knowledge, Strategy};
use crate::space::{Configuration, Space};

pub use problem::{SpecError, SpecProblem};
pub use template::PlaceholderError;
pub(crate) use template::Template;
pub(crate) use values::argument;

use reader::Reader;
use written::Written;

/// Where what was built is found; the folder of the evaluation.
pub(crate) const WORK: &str = "work";
/// The folder of the specification.
pub(crate) const SPEC_DIR: &str = "spec_dir";
/// What the program printed, as a file; only in the command that checks it.
pub(crate) const OUTPUT: &str = "output";

/// A command, its environment and how long it may take.
#[derive(Debug, Clone)]
pub(crate) struct Command {
    pub(crate) arguments: Vec<Template>,
    pub(crate) environment: Vec<(String, Template)>,
    pub(crate) timeout: Duration,
}

impl Command {
    fn templates(&self) -> impl Iterator<Item = &Template> {
        let environment = self.environment.iter().map(|(_, value)| value);
        self.arguments.iter().chain(environment)
    }
}

/// How the time of a run is known.
#[derive(Debug, Clone)]
pub(crate) enum Time {
    /// From start to end.
    Clock,
    /// The program prints it; the first group of the pattern, in units of so many seconds.
    Pattern(Regex, f64),
    /// The program prints JSON; the way to the member, in units of so many seconds.
    Field(Vec<String>, f64),
}

/// What has to hold of a run beyond its exit code.
#[derive(Debug, Clone, Default)]
pub(crate) struct Check {
    pub(crate) pattern: Option<Regex>,
    pub(crate) text: Option<String>,
    pub(crate) command: Option<Command>,
}

/// What a candidate may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) output: u64,
    pub(crate) disk: u64,
    pub(crate) memory: Option<u64>,
    pub(crate) processes: u64,
}

/// A program to tune.
///
/// ```
/// use std::path::Path;
/// use kernelwise_tune::external::Spec;
///
/// let spec = Spec::parse(
///     r#"
///     name = "count"
///     restrictions = ["threads * block <= 64"]
///
///     [parameters]
///     threads = [1, 2, 4]
///     block = { from = 8, to = 64, times = 2 }
///
///     [run]
///     command = ["sh", "-c", "echo took {block} us on {threads}"]
///
///     [time]
///     from = "output"
///     pattern = 'took ([0-9]+) us'
///     unit = "us"
///     "#,
///     Path::new("spec.toml"),
/// )?;
/// assert_eq!(spec.space().configurations().count(), 4 + 3 + 2);
/// assert_eq!(spec.space().describe(spec.default_configuration()), "threads=1, block=8");
/// # Ok::<(), kernelwise_tune::external::SpecError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Spec {
    /// What it is called.
    pub name: String,
    /// What may be spent, finals included.
    pub budget: Budget,
    /// How to search.
    pub strategy: Strategy,
    /// Where the chances of the search come from.
    pub seed: u64,
    /// What the search knows beforehand: records of other machines or sizes, and how often the program will run.
    pub knowledge: Knowledge,
    pub(crate) folder: PathBuf,
    pub(crate) compile: Option<Command>,
    pub(crate) run: Command,
    pub(crate) warm_up: u32,
    pub(crate) runs: u32,
    pub(crate) time: Time,
    pub(crate) check: Check,
    pub(crate) limits: Limits,
    pub(crate) fingerprint: String,
    path: PathBuf,
    space: Arc<Space>,
    first: Configuration,
}

impl Spec {
    /// Reads a file.
    pub fn open(path: &Path) -> Result<Self, SpecError> {
        let file = |problem| SpecError::File {
            path: path.to_owned(),
            problem,
        };
        let text = fs::read_to_string(path).map_err(file)?;
        Self::parse(&text, path)
    }

    /// Reads a text that stands, or would stand, in this file.
    pub fn parse(text: &str, path: &Path) -> Result<Self, SpecError> {
        let reader = Reader { text, path };
        let written: Written = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            reader.error(at, SpecProblem::Form(error.message().to_owned()))
        })?;
        reader.spec(written)
    }

    /// Its parameters and restrictions.
    pub fn space(&self) -> &Arc<Space> {
        &self.space
    }

    /// What gains are told against: the first value of every parameter, or the first allowed combination after it.
    pub fn default_configuration(&self) -> &Configuration {
        &self.first
    }

    /// The session file if nobody names another: beside the specification.
    pub fn session(&self) -> PathBuf {
        self.path.with_extension("session")
    }
}
