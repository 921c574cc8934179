//! What this machine is, and what an operation and its kernels are.

use clap::Args as ClapArgs;
use kernelwise_probe::calibrate::CalibrateOptions;
use kernelwise_types::{DType, Technique};

use super::Format;
use super::values::{seconds, technique};

#[derive(Debug, ClapArgs)]
pub(crate) struct Probe {
    /// Measure peak arithmetic, bandwidth, fork-join and timer cost (some seconds)
    #[arg(long, conflicts_with = "watch")]
    pub(crate) calibrate: bool,

    /// Seconds the calibration may take; with few of them it may miss the machine's best moments
    #[arg(long, value_name = "SECONDS", default_value_t = CalibrateOptions::default().budget.as_secs_f64(), value_parser = seconds, allow_negative_numbers = true, requires = "calibrate")]
    pub(crate) budget: f64,

    /// Show the live state again and again, until Ctrl-C
    #[arg(long)]
    pub(crate) watch: bool,

    /// Seconds between two looks with --watch
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds, allow_negative_numbers = true, requires = "watch")]
    pub(crate) interval: f64,

    /// Stop --watch after this many looks
    #[arg(long, value_name = "N", requires = "watch", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Doctor {
    /// Seed of the order and the resampling in the self-check
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = cost_examples())]
pub(crate) struct Cost {
    /// The workload: operation, element type, sizes; in one argument or several
    #[arg(required = true, value_name = "WORKLOAD")]
    pub(crate) words: Vec<String>,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Kernels {
    /// Only kernels of this operation, such as `matmul` or `reduce.sum`
    #[arg(long, value_name = "OPERATION")]
    pub(crate) op: Option<String>,

    /// The input to judge them on: a workload, or with --op only its fields: `--op matmul --shape 64x64x64`
    #[arg(long, value_name = "SHAPE")]
    pub(crate) shape: Option<String>,

    /// Only kernels of this element type; that of a --shape that names none, there f32 by default
    #[arg(long)]
    pub(crate) dtype: Option<DType>,

    /// Only kernels of this technique
    #[arg(long, value_parser = technique())]
    pub(crate) technique: Option<Technique>,

    /// With --shape: allow results of reduced precision
    #[arg(long, requires = "shape")]
    pub(crate) allow_reduced: bool,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

/// One example for each operation, so that the syntax can be found where it is needed.
fn cost_examples() -> String {
    let examples = kernelwise_types::op::Operation::EXAMPLES.join("\n  ");
    format!(
        "Workloads, one of each kind:\n  {examples}\nEvery field is explained in docs/workloads.md."
    )
}
