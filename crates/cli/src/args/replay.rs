//! Learning on recorded times and on scripted kernels.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args as ClapArgs, Subcommand};
use kernelwise_select::Policy;

use super::Format;
use super::values::seconds;

#[derive(Debug, Subcommand)]
pub(crate) enum Replay {
    /// Times of convolution algorithms: one row per problem, a column `ms_…` per algorithm
    FindDb(ReplayFindDb),
    /// Spaces of kernel parameters that were measured in full, as Kernel Tuner's cache files have them: how soon a search finds the
    /// best of each
    Space(ReplaySpace),
}

#[derive(Debug, ClapArgs)]
#[command(after_help = REPLAY_SPACE_NOTES)]
pub(crate) struct ReplaySpace {
    /// Cache files of Kernel Tuner, plain or compressed by gzip
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// How to search; or `described`: what the model of the GPU recommends without measuring
    #[arg(long, default_value = "default")]
    pub(crate) strategy: String,

    /// With `--strategy described`: the device of records that do not name theirs
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,

    /// Evaluations after which the best found is looked at
    #[arg(long, value_delimiter = ',', default_values_t = [25, 50, 100, 200, 400])]
    pub(crate) budget: Vec<u64>,

    /// Searches in each space
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeats: u32,

    /// Records of the same kernels on other devices, to begin from; may be repeated, and may name files that are replayed: nobody
    /// begins from his own
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) warm: Vec<PathBuf>,

    /// Seed of the first search; the others follow
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

const REPLAY_SPACE_NOTES: &str = "\
The figure is the best time there is over the best found, in the mean. Failed configurations count as evaluations, repeats do not. Beside it \
stands what random search without replacement has, exactly. With `--strategy described` nothing is searched: the figure is that of the \
one configuration that the model of the device puts first, beside that of the median configuration.";

#[derive(Debug, ClapArgs)]
#[command(after_help = REPLAY_NOTES)]
pub(crate) struct ReplayFindDb {
    /// The record, comma-separated, plain or compressed by gzip
    pub(crate) file: PathBuf,

    /// How choices are made
    #[arg(long, default_value = "bandit", value_parser = PossibleValuesParser::new(Policy::NAMES))]
    pub(crate) policy: String,

    /// Share of the time served that further runs may take
    #[arg(long, default_value_t = 0.1)]
    pub(crate) budget: f64,

    /// Seed of the order, the noise and the models
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Only so many problems
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: Option<u32>,

    /// Scatter of the times the learner sees: the standard deviation of ln t. With any, one run in 200 is
    /// disturbed besides
    #[arg(long, default_value_t = 0.0)]
    pub(crate) noise: f64,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

const REPLAY_NOTES: &str = "\
Every problem comes once, in a random order. The learner sees what it is like and the times of what it
chooses to run. Beside it: the same with a fifth of the budget, the best fixed order of preference in
hindsight, a tuner that runs everything once per bucket of sizes, and the best there is.";

#[derive(Debug, Subcommand)]
pub(crate) enum Demo {
    /// One kernel becomes ten times slower and is left; then all become twice as slow together, and nobody is
    Drift(DemoDrift),
    /// Products and convolutions while another program comes and goes: calls per second with fixed threads, with a library's default, and
    /// with Kernelwise
    Load(DemoLoad),
    /// Keeps one processor busy until its input ends
    #[command(hide = true)]
    Burn,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DemoLoad {
    /// Seconds for each of the three phases: alone, beside others, alone again
    #[arg(long, value_name = "SECONDS", default_value_t = 12.0, value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) seconds: f64,

    /// Programs that come and go, each of which keeps one processor busy; by default half as many as there are processors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) others: Option<u32>,

    /// Seed of inputs
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DemoDrift {
    /// Seed of the noise and the trials
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}
