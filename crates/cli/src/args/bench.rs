//! Races against other kernels and libraries, and what choosing and remembering cost.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args as ClapArgs, Subcommand};
use kernelwise_bench::{ChoicesOptions, Options as BenchOptions};
use kernelwise_model::ModelKind;
use kernelwise_probe::calibrate::CalibrateOptions;
use kernelwise_types::DType;

use super::Format;
use super::values::{seconds, seconds_or_none};

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Every kernel of an operation and the libraries that can do the same, shape by shape, with the
    /// shares of what the machine can do
    Ops(BenchOps),
    /// What a choice costs, beside a lock around a map
    Select(BenchSelect),
    /// How good the choices of a calibrated selector are, beside a rule written by hand and the best there is
    Choices(BenchChoices),
    /// How good recommended numbers of threads and tiles are, by prices alone and after a short race, beside the best that can be measured
    Recommend(BenchRecommend),
    /// What remembering costs: recording, writing, opening, and pushing to a server: that of KERNELWISE_DATABASE_URL, or one that is
    /// started for it where PostgreSQL is installed. What is pushed is deleted again
    Store(BenchStore),
    /// What models cost: seconds and memory of a fit to made-up rows, and the time of an answer
    Model(BenchModel),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BenchModel {
    /// Rows to fit a model to
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rows: u32,

    /// Features of each row
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) features: u16,

    /// The type of model
    #[arg(long, value_name = "TYPE", default_value = ModelKind::BoostedTrees.name(), value_parser = PossibleValuesParser::new(ModelKind::NAMES))]
    pub(crate) model: String,

    /// Seed of the rows and the model
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BenchStore {
    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = BENCH_NOTES)]
// As a group, so that a bare `bench ops` names all three.
#[command(group = ArgGroup::new("what").args(["op", "shape", "shapes"]).required(true).multiple(true))]
pub(crate) struct BenchOps {
    /// The operation, such as `matmul` or `reduce.sum`; its usual shapes unless others are named
    #[arg(long, value_name = "OPERATION")]
    pub(crate) op: Option<String>,

    /// A shape: a workload, or with --op only its fields, as in `--op matmul --shape 64x64x64`; may be repeated
    #[arg(long, value_name = "SHAPE")]
    pub(crate) shape: Vec<String>,

    /// A file of shapes: one workload per line, or DeepBench's lists of products and convolutions
    #[arg(long, value_name = "FILE")]
    pub(crate) shapes: Option<PathBuf>,

    /// Measure every shape in this element type
    #[arg(long)]
    pub(crate) dtype: Option<DType>,

    /// Only the first shapes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,

    /// Threads each contender may use; one is pinned to a processor
    #[arg(long, value_name = "N", default_value_t = BenchOptions::default().threads, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) threads: u32,

    /// Seconds of racing for each shape; with one thread of its processor time
    #[arg(long, value_name = "SECONDS", default_value_t = BenchOptions::default().budget.as_secs_f64(), value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) time_budget: f64,

    /// Seconds the calibration before it may take
    #[arg(long, value_name = "SECONDS", default_value_t = CalibrateOptions::default().budget.as_secs_f64(), value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) calibration_budget: f64,

    /// Let kernels of reduced precision count
    #[arg(long)]
    pub(crate) allow_reduced: bool,

    /// Seed of inputs, orders and intervals
    #[arg(long, default_value_t = BenchOptions::default().seed)]
    pub(crate) seed: u64,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

// One paragraph: clap breaks it where the terminal ends.
const BENCH_NOTES: &str = "\
Results are checked before anything is timed; a wrong one ends the program with code 5. \
Convolutions of reduced precision (Winograd and Fourier) are shown and marked, and count only with --allow-reduced. \
OpenBLAS and oneDNN take part where they are installed (KERNELWISE_OPENBLAS and KERNELWISE_ONEDNN name their files).";

#[derive(Debug, ClapArgs)]
#[command(after_help = CHOICES_NOTES)]
pub(crate) struct BenchChoices {
    /// Only shapes of this operation, such as `matmul` or `reduce.sum`; may be repeated
    #[arg(long, value_name = "OPERATION")]
    pub(crate) op: Vec<String>,

    /// A file of shapes besides the small ones that are built in: one workload per line, or DeepBench's lists
    /// of products and convolutions; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) shapes: Vec<PathBuf>,

    /// Only so many shapes, drawn from all
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,

    /// Threads a kernel may use at the most; all by default. On a busy machine one tells more: whether a second
    /// thread helps then changes from moment to moment
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) threads: Option<u32>,

    /// Seconds for each shape; those expected to take longer are skipped
    #[arg(long, value_name = "SECONDS", default_value_t = ChoicesOptions::default().budget.as_secs_f64(), value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) max_seconds_per_shape: f64,

    /// Seconds the calibration of the machine before it may take
    #[arg(long, value_name = "SECONDS", default_value_t = CalibrateOptions::default().budget.as_secs_f64(), value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) calibration_budget: f64,

    /// Allow results of reduced precision
    #[arg(long)]
    pub(crate) allow_reduced: bool,

    /// Seed of the order in which kernels are registered, of inputs and of orders
    #[arg(long, default_value_t = ChoicesOptions::default().seed)]
    pub(crate) seed: u64,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

// One paragraph: clap breaks it where the terminal ends.
const CHOICES_NOTES: &str = "\
A selector is calibrated on every shape. A judge then measures all candidates again; the fastest is the oracle. \
Goals: 95 % of the choices within 5 % of the oracle, a geometric slowdown of 1.03 at the most, and no worse than the rule. \
`judge's first half` is what noise alone costs: the fastest of its first rounds, on the times of the others.";

#[derive(Debug, ClapArgs)]
#[command(after_help = RECOMMEND_NOTES)]
pub(crate) struct BenchRecommend {
    /// Only shapes of this operation, such as `matmul` or `sort`; may be repeated
    #[arg(long, value_name = "OPERATION")]
    pub(crate) op: Vec<String>,

    /// A file of shapes instead of drawn ones: one workload per line, or DeepBench's lists of products and convolutions; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) shapes: Vec<PathBuf>,

    /// Shapes that are drawn for each operation
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) count: u16,

    /// Seconds of racing before the second recommendation for each shape; 0 for none
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds_or_none, allow_negative_numbers = true)]
    pub(crate) time_budget: f64,

    /// Seconds that the judge has for each shape
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) judge_budget: f64,

    /// Seconds the calibration of the machine before it may take
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) calibration_budget: f64,

    /// Seed of shapes, inputs and orders
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

// One paragraph: clap breaks it where the terminal ends.
const RECOMMEND_NOTES: &str = "\
Recommendations are those of `recommend --device host` with nothing on record. A judge then measures every kernel on every number of threads, and what was \
recommended. Goals: threads within 10 % of the best number of them, and tiles no slower than the usual ones. `judge's first half` is what noise alone costs: the \
number of threads that was best in its first rounds, on the times of the others.";

#[derive(Debug, ClapArgs)]
pub(crate) struct BenchSelect {
    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}
