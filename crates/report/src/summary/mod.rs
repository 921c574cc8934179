//! The value that every format shows, worked out once from the facts.

mod errors;
mod rows;
mod winners;
mod words;

pub(crate) use errors::{Accuracy, Errors};
pub(crate) use rows::{Foretold, Timed};
pub use rows::{decade, size_bytes};
pub(crate) use winners::{Cell, NEAR_TIE, WinnerMap};

use std::collections::BTreeSet;

use kernelwise_types::Reading;

use crate::facts::{Facts, KnownBy};

/// What the facts amount to.
#[derive(Debug)]
pub(crate) struct Summary<'a> {
    pub(crate) facts: &'a Facts,
    /// Every row with what follows from it, in the order of the facts.
    pub(crate) rows: Vec<Timed<'a>>,
    pub(crate) winners: WinnerMap,
    /// Workloads of which something was measured.
    pub(crate) measured: usize,
    pub(crate) errors: Reading<Errors>,
    /// In plain words, the most important first.
    pub(crate) words: Vec<String>,
}

impl<'a> Summary<'a> {
    pub(crate) fn of(facts: &'a Facts) -> Self {
        let mut rows: Vec<Timed<'a>> = facts.rows.iter().map(Timed::of).collect();
        let winners = WinnerMap::of(&mut rows);
        let errors = match &facts.predictions {
            Reading::Known(list) => Errors::of(list).map_or_else(
                || Reading::unknown("there were no predictions to judge"),
                Reading::Known,
            ),
            Reading::Unknown(why) => Reading::Unknown(why.clone()),
        };
        let measured = rows.iter().filter(|row| row.known_by == KnownBy::Measured);
        let measured: BTreeSet<&str> = measured.map(|row| row.workload.as_str()).collect();
        let mut summary = Self {
            facts,
            measured: measured.len(),
            rows,
            winners,
            errors,
            words: Vec::new(),
        };
        summary.words = words::words(&summary);
        summary
    }
}
