//! How the program ends: one exit code per kind of failure, and the message on standard error.

use std::io;
use std::process::ExitCode;

use crate::output;

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was tried and did not work: exit code 1.
    Failed(anyhow::Error),
    /// What was typed makes no sense: exit code 2.
    Usage(anyhow::Error),
    /// A threshold that was named is exceeded; what was measured has been printed: exit code 3.
    Exceeded(anyhow::Error),
    /// Nothing is called that: exit code 4.
    NotFound(anyhow::Error),
    /// A kernel or a library computed something wrong; what was measured has been printed: exit code 5.
    Wrong(anyhow::Error),
    /// Records that are in use or of a newer version; nothing was touched: exit code 6.
    Records(anyhow::Error),
    /// The user pressed Ctrl-C: exit code 130.
    Interrupted,
}

impl Failure {
    /// The same failure, with what it is about in front.
    pub(crate) fn about(self, what: &'static str) -> Self {
        match self {
            Self::Failed(error) => Self::Failed(error.context(what)),
            Self::Usage(error) => Self::Usage(error.context(what)),
            Self::Exceeded(error) => Self::Exceeded(error.context(what)),
            Self::NotFound(error) => Self::NotFound(error.context(what)),
            Self::Wrong(error) => Self::Wrong(error.context(what)),
            Self::Records(error) => Self::Records(error.context(what)),
            Self::Interrupted => Self::Interrupted,
        }
    }

    /// What went wrong, for one of several things that were tried.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Failed(error)
            | Self::Usage(error)
            | Self::Exceeded(error)
            | Self::NotFound(error)
            | Self::Wrong(error)
            | Self::Records(error) => told(error),
            Self::Interrupted => "interrupted".to_owned(),
        }
    }

    /// Says what went wrong and gives the exit code. A reader that closed the pipe (`… | head`) has
    /// what it wanted: that is silence and success.
    pub(crate) fn report(self) -> ExitCode {
        let (code, error) = match self {
            Self::Failed(error) if is_closed_pipe(&error) => return ExitCode::SUCCESS,
            Self::Failed(error) => (1, error),
            Self::Usage(error) => (2, error),
            Self::Exceeded(error) => (3, error),
            Self::NotFound(error) => (4, error),
            Self::Wrong(error) => (5, error),
            Self::Records(error) => (6, error),
            Self::Interrupted => (130, anyhow::anyhow!("interrupted")),
        };
        output::note(&told(&error));
        ExitCode::from(code)
    }
}

/// The error and its causes, each once: some repeat in their own words what caused them.
fn told(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io_kind = |cause: &(dyn std::error::Error + 'static)| {
        let json = cause
            .downcast_ref::<serde_json::Error>()
            .and_then(serde_json::Error::io_error_kind);
        cause
            .downcast_ref::<io::Error>()
            .map(io::Error::kind)
            .or(json)
    };
    error
        .chain()
        .filter_map(io_kind)
        .any(|kind| kind == io::ErrorKind::BrokenPipe)
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}
