//! The summary in other forms than a page.

mod csv;
mod json;
mod markdown;

pub(crate) use self::csv::csv;
pub(crate) use self::json::{in_script, json};
pub(crate) use self::markdown::markdown;

/// Why a form could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The facts could not be written as JSON.
    #[error("cannot write the report as JSON")]
    Json(#[from] serde_json::Error),
    /// The facts could not be written as CSV.
    #[error("cannot write the report as CSV")]
    Csv(#[from] ::csv::Error),
}
