//! Makes pages of records: what was measured, which kernel wins where, what choosing is worth, and what is not known.
//!
//! Whoever has the records fills in [`Facts`]; [`Report::of`] works out what they amount to, and shows it as one HTML file, as
//! JSON, as CSV or as Markdown. Nothing is measured here, no clock is read, and the same facts make the same page.
//!
//! # The page
//!
//! [`Report::html`] is one file that needs no network: style, script and figures are inside, and a content security policy
//! refuses everything else. It reads without the script, which adds sorting, details under the pointer, a choice of theme.
//! Figures are drawn as SVG, with a table behind each of them.
//!
//! # Rules
//!
//! - No number without its source: figures say *measured*, *modelled*, *prior* or *unknown*. Counts and settings are what
//!   they are.
//! - What is absent is a [`Reading`](kernelwise_types::Reading) with the reason, and the page says the reason.
//! - Records may hold any text. It is escaped for the format at hand in one place each: HTML by [`maud`], the data of the script
//!   as JSON without `<`, cells of CSV against formulas, Markdown against markup; and characters that hide or turn round
//!   others are shown as such.
//! - A page is written beside the old one and takes its place when it is whole ([`write()`]).
//!
//! # Limits
//!
//! The table of times has at most [`MOST_ROWS`] rows: the fastest of each workload, and of the others an even spread; the page says how
//! many it left out, and the other formats have all. The roofline draws every point, with details of those in the table. Operations that do no arithmetic have no place on a roofline, and the page says how many those are.
#![forbid(unsafe_code)]

mod export;
mod facts;
mod html;
mod summary;
mod text;
mod write;

pub use export::ExportError;
pub use facts::{
    Event, EventKind, Facts, Gain, Gains, KnownBy, LoadDemo, LoadPhase, Prediction, Quarantined,
    Ratio, Regret, RegretPoint, Row, Severity,
};
pub use html::MOST_ROWS;
pub use summary::{decade, size_bytes};
pub use text::{decade as decade_name, utc};
pub use write::{WriteError, write};

use summary::Summary;

/// What the JSON form says it is.
pub const SCHEMA: &str = "kernelwise.report/1";

/// What facts amount to, ready to be shown.
#[derive(Debug)]
pub struct Report<'a> {
    summary: Summary<'a>,
}

impl<'a> Report<'a> {
    /// Works out what these facts amount to.
    pub fn of(facts: &'a Facts) -> Self {
        Self {
            summary: Summary::of(facts),
        }
    }

    /// The summary in plain words, the most important sentence first.
    pub fn words(&self) -> &[String] {
        &self.summary.words
    }

    /// One self-contained page.
    pub fn html(&self) -> String {
        html::page(&self.summary)
    }

    /// One object under the schema [`SCHEMA`], with units in its field names.
    pub fn json(&self) -> Result<String, ExportError> {
        export::json(&self.summary)
    }

    /// One table in long form: a line for every number, with its unit and how it is known.
    pub fn csv(&self) -> Result<String, ExportError> {
        export::csv(&self.summary)
    }

    /// The summary and its tables, without the rows.
    pub fn markdown(&self) -> String {
        export::markdown(&self.summary)
    }
}
