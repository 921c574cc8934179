//! What `learn` notes of its runs besides times: the next run says what has changed since, and the report says under what conditions
//! the times were taken and what may have disturbed them.
//!
//! Notes may leave the machine with the records, so they name no file.

use clap::ValueEnum;
use kernelwise_types::{Fingerprint, Machine};
use serde::{Deserialize, Serialize};

use crate::args::{self, Effort};
use crate::records::Records;

/// The name of the note.
const KEPT: &str = "learn runs";
/// Runs that are kept, the latest.
const MOST: usize = 20;

/// One run of `learn`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    /// When it ended, in seconds since 1970.
    pub(super) at_s: u64,
    /// The version of this program.
    pub(super) version: String,
    /// As it was typed, without what is usual.
    pub(super) command: String,
    pub(super) seed: u64,
    /// Threads that might be used.
    pub(super) threads: u32,
    /// Whether OpenBLAS was found and took part.
    pub(super) openblas: bool,
    /// Workloads measured for the first time, and again.
    pub(super) measured: usize,
    pub(super) repeated: usize,
    /// What choosing is worth over all operations, on all that is on record.
    pub(super) single_best_over_choice: Option<f64>,
    pub(super) static_rule_over_choice: Option<f64>,
    /// Half of the times that models tell of shapes they have not seen are within this factor.
    pub(super) median_error_factor: Option<f64>,
    /// What may have disturbed it, in words.
    pub(super) warnings: Vec<String>,
}

/// The runs on record here, the latest last. What another version wrote and this one cannot read counts as none.
pub(super) fn kept(records: &Records, machine: &Machine) -> Vec<Run> {
    let store = records.memory().store();
    let kept = store.and_then(|store| store.model(&Fingerprint::of(machine), KEPT).ok()?);
    let kept = kept.and_then(|kept| serde_json::from_value(kept).ok());
    kept.unwrap_or_default()
}

/// Keeps the latest of these runs.
pub(super) fn keep(records: &Records, machine: &Machine, runs: &[Run]) {
    let latest = &runs[runs.len().saturating_sub(MOST)..];
    if let (Some(store), Ok(latest)) = (records.memory().store(), serde_json::to_value(latest)) {
        store.keep_model(&Fingerprint::of(machine), KEPT, latest);
    }
}

/// What was typed, without what is usual. Files are not named.
pub(super) fn command(args: &args::Learn) -> String {
    let mut words = vec!["kernelwise learn".to_owned()];
    words.extend(args.op.iter().map(|op| format!("--op {op}")));
    words.extend(args.shapes.iter().map(|_| "--shapes FILE".to_owned()));
    let effort = args.effort.to_possible_value();
    if let Some(effort) = effort.filter(|_| args.effort != Effort::Balanced) {
        words.push(format!("--effort {}", effort.get_name()));
    }
    let budget = args.time_budget;
    words.extend(budget.map(|seconds| format!("--time-budget {seconds}")));
    words.extend(args.allow_reduced.then(|| "--allow-reduced".to_owned()));
    words.extend((args.seed != 1).then(|| format!("--seed {}", args.seed)));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use crate::args::Format;

    use super::*;

    #[test]
    fn commands_are_told_as_typed_and_name_no_file() {
        let usual = args::Learn {
            op: Vec::new(),
            shapes: Vec::new(),
            effort: Effort::Balanced,
            time_budget: None,
            allow_reduced: false,
            seed: 1,
            format: Format::Json,
        };
        assert_eq!(command(&usual), "kernelwise learn");
        let asked = args::Learn {
            op: vec!["matmul".into(), "copy".into()],
            shapes: vec!["/home/me/mine.csv".into()],
            effort: Effort::Minimal,
            time_budget: Some(2.5),
            allow_reduced: true,
            seed: 7,
            ..usual
        };
        assert_eq!(
            command(&asked),
            "kernelwise learn --op matmul --op copy --shapes FILE --effort minimal --time-budget 2.5 --allow-reduced --seed 7"
        );
    }
}
