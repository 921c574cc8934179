//! What can go wrong with a library of others: it is not there, or it refuses a call.

use kernelwise_types::op::WorkloadError;
use thiserror::Error;

/// Why a library could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No candidate could be opened.
    #[error(
        "{library} could not be loaded ({tried}); install it with `{remedy}`, or name its file in {variable}"
    )]
    Absent {
        /// Which library.
        library: &'static str,
        /// The candidates, each with the loader's complaint.
        tried: String,
        /// The command that installs it.
        remedy: &'static str,
        /// The environment variable that names its file.
        variable: &'static str,
    },
    /// The file is a library, but lacks a function.
    #[error(
        "{file} has no function `{symbol}`, so it is not the {library} wanted; `{remedy}` installs one that is"
    )]
    Symbol {
        /// Which library.
        library: &'static str,
        /// The file, or the name under which the loader found it.
        file: String,
        /// The function that is missing.
        symbol: String,
        /// The command that installs a fitting one.
        remedy: &'static str,
    },
    /// The library is the one wanted, in a build that cannot be used.
    #[error("{file} is {found}, but {wanted} is needed; `{remedy}` installs one")]
    Build {
        /// The file, or the name under which the loader found it.
        file: String,
        /// What was found.
        found: String,
        /// What is needed.
        wanted: &'static str,
        /// The command that installs a fitting one.
        remedy: &'static str,
    },
}

/// Why a loaded library did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CallError {
    /// A slice does not hold what the sizes say.
    #[error("{what} holds {got} elements, the sizes ask for {needed}")]
    Length {
        /// The operand.
        what: &'static str,
        /// Elements wanted.
        needed: usize,
        /// Elements given.
        got: usize,
    },
    /// A size is beyond the integers that the library takes.
    #[error("{what} is {value}, the library takes 0 to {max}")]
    Size {
        /// Which size.
        what: &'static str,
        /// Its value.
        value: usize,
        /// The largest that fits.
        max: usize,
    },
    /// The number of threads is not one the library can be told.
    #[error("{0} threads were asked for, the library takes 1 to {max}", max = i32::MAX)]
    Threads(usize),
    /// There is not enough memory for a tensor in the library's layout.
    #[error("no memory for {0} bytes of a tensor in the library's layout")]
    Memory(usize),
    /// The convolution itself is not legal.
    #[error(transparent)]
    Problem(#[from] WorkloadError),
    /// The library answered with a failure.
    #[error("{function} failed: {meaning} (status {status})")]
    Status {
        /// The function called.
        function: &'static str,
        /// The status in words, as the library's documentation has them.
        meaning: &'static str,
        /// The status.
        status: i32,
    },
}

/// Refuses a slice that does not hold exactly what the sizes say.
pub(crate) fn check_length(what: &'static str, needed: usize, got: usize) -> Result<(), CallError> {
    if needed == got {
        Ok(())
    } else {
        Err(CallError::Length { what, needed, got })
    }
}

/// The number of threads as the C interfaces take it.
pub(crate) fn thread_count(threads: usize) -> Result<i32, CallError> {
    match i32::try_from(threads) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(CallError::Threads(threads)),
    }
}

#[cfg(test)]
mod tests {
    use super::{CallError, thread_count};

    #[test]
    fn threads_fit_a_c_int_and_are_not_none() {
        assert_eq!(thread_count(3), Ok(3));
        for refused in [0, 1 << 31, usize::MAX] {
            assert_eq!(thread_count(refused), Err(CallError::Threads(refused)));
        }
    }
}
