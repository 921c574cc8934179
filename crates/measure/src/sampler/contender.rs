//! One body in a race, and what became of it.

use std::any::Any;
use std::fmt;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;

/// A named body to be timed.
pub struct Contender<'a> {
    name: String,
    /// Runs the body so many times. The loop lies inside, so that the cost of calling through a
    /// pointer falls on the sample and not on every call in it.
    batch: Box<dyn FnMut(u64) -> Result<(), String> + 'a>,
}

impl<'a> Contender<'a> {
    /// A body under the name it has in the results.
    ///
    /// What the body returns is hidden from the optimiser, which therefore has to compute it; work
    /// whose result is *not* returned may be removed. An error, in words, ends this contender's race.
    pub fn new<T, E: fmt::Display>(
        name: impl Into<String>,
        mut body: impl FnMut() -> Result<T, E> + 'a,
    ) -> Self {
        let batch = move |calls| {
            for _ in 0..calls {
                black_box(body().map_err(|error| error.to_string())?);
            }
            Ok(())
        };
        Self {
            name: name.into(),
            batch: Box::new(batch),
        }
    }

    pub(super) fn into_name(self) -> String {
        self.name
    }

    /// Runs the body `calls` times. A panic is an ending like an error: the contender is not called
    /// again, so nobody sees the state the panic may have left in it.
    pub(super) fn run(&mut self, calls: u64) -> Result<(), Ending> {
        match catch_unwind(AssertUnwindSafe(|| (self.batch)(calls))) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Ending::Failed { error }),
            Err(payload) => Err(Ending::Panicked {
                message: panic_message(payload.as_ref()),
            }),
        }
    }
}

impl fmt::Debug for Contender<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contender")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The text a panic carried; panics may carry any value, and then there is none.
fn panic_message(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

/// What became of a contender.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Ending {
    /// It ran as long as the race did.
    Measured,
    /// It returned an error and was called no more.
    Failed {
        /// The error in words.
        error: String,
    },
    /// It panicked and was called no more.
    Panicked {
        /// What the panic said.
        message: String,
    },
    /// One of its samples took too long, and it was called no more. A running body cannot be
    /// stopped from outside, so the sample was waited for.
    TimedOut {
        /// How long the sample took.
        took_ns: u64,
        /// How long it might have taken.
        limit_ns: u64,
    },
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = kernelwise_types::units::Nanos::from_u64;
        match self {
            Self::Measured => f.write_str("measured"),
            Self::Failed { error } => write!(f, "failed: {error}"),
            Self::Panicked { message } => write!(f, "panicked: {message}"),
            Self::TimedOut { took_ns, limit_ns } => write!(
                f,
                "timed out: one sample took {}, the limit is {}",
                nanos(*took_ns),
                nanos(*limit_ns)
            ),
        }
    }
}
