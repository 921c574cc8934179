//! Which kernel computes an input: chosen, explained, run, compared, watched.

use clap::Args as ClapArgs;
use clap::builder::PossibleValuesParser;
use kernelwise_probe::calibrate::CalibrateOptions;
use kernelwise_types::DType;

use super::Format;
use super::values::{percent, seconds, seconds_or_none};

#[derive(Debug, ClapArgs)]
#[command(after_help = EXPLAIN_NOTES)]
pub(crate) struct Explain {
    /// The operation, such as `matmul` or `reduce.sum`
    #[arg(value_name = "OPERATION")]
    pub(crate) op: String,

    /// Its sizes, or a whole workload
    #[arg(long, value_name = "SHAPE")]
    pub(crate) shape: String,

    /// The element type of a --shape that names none, f32 by default
    #[arg(long)]
    pub(crate) dtype: Option<DType>,

    /// How the choice is made
    #[arg(long, default_value = "bandit", value_parser = PossibleValuesParser::new(kernelwise_select::Policy::NAMES))]
    pub(crate) policy: String,

    /// Seconds of calls to learn from; by default none if it or ten workloads like it are on record, else one
    #[arg(long, value_name = "SECONDS", value_parser = seconds_or_none, allow_negative_numbers = true)]
    pub(crate) time_budget: Option<f64>,

    /// Seconds the calibration before it may take
    #[arg(long, value_name = "SECONDS", default_value_t = CalibrateOptions::default().budget.as_secs_f64(), value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) calibration_budget: f64,

    /// Allow results of reduced precision
    #[arg(long)]
    pub(crate) allow_reduced: bool,

    /// Seed of inputs and trials
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) what: Explain,

    /// How often it is timed; calls that are too short for the clock are timed in batches
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) calls: u32,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Watch {
    /// A workload to compute; may be repeated. A few usual ones by default
    #[arg(long, value_name = "WORKLOAD")]
    pub(crate) shape: Vec<String>,

    /// Seconds between two views
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) interval: f64,

    /// End after this many views
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

    /// Seed of inputs
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// How results are printed; JSON is one object a line
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Compare {
    #[command(flatten)]
    pub(crate) what: Explain,

    /// The kernel to compare with, with its usual setting; `kernelwise kernels` lists them
    #[arg(long, value_name = "KERNEL")]
    pub(crate) baseline: String,

    /// End with code 3 if the choice is certainly slower by more than this, such as `5%`
    #[arg(long, value_name = "SHARE", value_parser = percent, allow_hyphen_values = true)]
    pub(crate) fail_above: Option<f64>,

    /// Seconds the race may take
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) seconds: f64,
}

const EXPLAIN_NOTES: &str = "\
What `kernelwise learn` put on record is used: times that were measured, and models of them for inputs that were not. Where there is \
nothing, the machine is calibrated and the input computed again and again on drawn data, as by a program that uses the selector. \
KERNELWISE_FORCE=operation=kernel forces a kernel; KERNELWISE_MODE=frozen|shadow learns nothing, or does not follow it.";
