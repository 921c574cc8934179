//! Learning, what models make of it, and the page that shows it.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use kernelwise_model::ModelKind;

use super::Format;
use super::values::seconds;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Effort {
    /// Fifteen seconds: a first idea
    Minimal,
    /// About a minute
    Balanced,
    /// Five minutes: models learn most of what they can
    Extensive,
    /// Half an hour
    Full,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Learn {
    /// Only shapes of this operation, such as `matmul`; may be repeated. Without it, those of the ten most used
    #[arg(long, value_name = "OPERATION")]
    pub(crate) op: Vec<String>,

    /// A file of shapes besides those that are built in: one workload per line, or DeepBench's lists; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) shapes: Vec<PathBuf>,

    /// How much is measured
    #[arg(long, value_enum, default_value_t = Effort::Balanced)]
    pub(crate) effort: Effort,

    /// Seconds it may take, instead of what the effort says
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) time_budget: Option<f64>,

    /// Allow results of reduced precision
    #[arg(long)]
    pub(crate) allow_reduced: bool,

    /// Seed of shapes, inputs and orders
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Model {
    /// Tell how good models are on what they have not seen: those of this machine's own records or, with --find-db, every type of
    /// model on recorded convolutions
    Evaluate(ModelEvaluate),
    /// Show what models of this machine's records there are, and what they rest on
    Show(ModelShow),
    /// Fit all models of this machine's records anew, and keep them for `select` and `explain`
    Train(ModelShow),
}

#[derive(Debug, ClapArgs)]
#[command(after_help = MODEL_EVALUATE_NOTES)]
pub(crate) struct ModelEvaluate {
    /// Recorded times of convolution algorithms instead of this machine's own: comma-separated, plain or compressed by gzip
    #[arg(long, value_name = "FILE")]
    pub(crate) find_db: Option<PathBuf>,

    /// Seed of the halves and the models
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Only so many problems of --find-db, both halves together
    #[arg(long, value_name = "N", requires = "find_db", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: Option<u32>,

    /// Types of models to compare: with --find-db all unless some are named, without it those named, beside the models in use
    #[arg(long, value_name = "TYPE", value_delimiter = ',', value_parser = PossibleValuesParser::new(ModelKind::NAMES))]
    pub(crate) models: Vec<String>,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ModelShow {
    /// Seed of the models
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

// One paragraph: clap breaks it where the terminal ends.
const MODEL_EVALUATE_NOTES: &str = "\
Of this machine's own records, workloads are dealt into five hands, and the times of each are forecast from the other four. With --find-db, a model per algorithm learns ln of the time over the work, with all times of one half of the problems known. The slowdown is that of its \
choices in the other half over the best recorded, a geometric mean. `in 90 %` is the share of times within their 90 % intervals; \
median and p90 are factors between predicted and recorded times. `with slowdowns` has a second model beside the first, as the selector has.";

#[derive(Debug, ClapArgs)]
pub(crate) struct Report {
    /// The file to write; `report.html` by default, or standard output for the other forms
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// The form
    #[arg(long, value_enum, default_value_t = ReportFormat::Html)]
    pub(crate) format: ReportFormat,

    /// Seed of how workloads are held out, and of the replay
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// The forms of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// One page that needs no network
    Html,
    /// For programs: one object with a `schema` field
    Json,
    /// For spreadsheets
    Csv,
    /// For reading and pasting
    Markdown,
}
