//! Better parameters than the usual ones, and parameters for devices that are not here.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use kernelwise_types::DType;

use super::Format;
use super::values::seconds;

#[derive(Debug, ClapArgs)]
#[command(after_help = TUNE_NOTES)]
pub(crate) struct Tune {
    /// The operation, such as `matmul` or `reduce.sum`
    #[arg(
        value_name = "OPERATION",
        required_unless_present = "spec",
        requires = "shape",
        conflicts_with = "spec"
    )]
    pub(crate) op: Option<String>,

    /// Its sizes, or a whole workload
    #[arg(long, value_name = "SHAPE")]
    pub(crate) shape: Option<String>,

    /// The element type of a --shape that names none, f32 by default
    #[arg(long)]
    pub(crate) dtype: Option<DType>,

    /// Only this kernel; by default those within a factor of two of the best that have something to set
    #[arg(long, value_name = "KERNEL")]
    pub(crate) kernel: Option<String>,

    /// A file that says how to compile and run a program, and what can be set: see docs/tuning.md
    #[arg(long, value_name = "FILE")]
    pub(crate) spec: Option<PathBuf>,

    /// How to search; that of the file with --spec
    #[arg(long)]
    pub(crate) strategy: Option<String>,

    /// Settings to evaluate, of each kernel; 100 by default, or what the file says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) budget: Option<u64>,

    /// Seconds it may take; 30 by default, or what the file says
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) time_budget: Option<f64>,

    /// Let workers measure, through jobs on the server of KERNELWISE_DATABASE_URL, and search by what they find; --time-budget is then that of
    /// the first race
    #[arg(long, conflicts_with = "spec")]
    pub(crate) queue: bool,

    /// With --queue: do not wait; settings are drawn at random
    #[arg(long, requires = "queue")]
    pub(crate) detach: bool,

    /// Allow results of reduced precision
    #[arg(long)]
    pub(crate) allow_reduced: bool,

    /// Seed of inputs and of the search; that of the file with --spec
    #[arg(long)]
    pub(crate) seed: Option<u64>,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

const TUNE_NOTES: &str = "\
What was evaluated is kept, so that an interrupted search goes on where it ended. The best settings then race the usual ones, all in turn: \
those times are put on record, and `select`, `explain` and programs that remember use them. With --queue nothing races in the end, and \
`kernelwise sync` brings what workers measured.";

#[derive(Debug, ClapArgs)]
pub(crate) struct Recommend {
    /// The operation, such as `matmul` or `reduce.sum`
    #[arg(value_name = "OPERATION")]
    pub(crate) op: String,

    /// Its sizes, or a whole workload
    #[arg(long, value_name = "SHAPE")]
    pub(crate) shape: String,

    /// The element type of a --shape that names none, f32 by default
    #[arg(long)]
    pub(crate) dtype: Option<DType>,

    /// The device: `host`, or one that is described, such as `a100`, `rtx-4090`, `apple-m2` or `webgpu-default`
    #[arg(long, value_name = "DEVICE", default_value = "host")]
    pub(crate) device: String,

    /// Bytes of memory a call may use there
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory_limit: Option<u64>,

    /// Allow results of reduced precision: half precision and matrix units for wider elements
    #[arg(long)]
    pub(crate) allow_reduced: bool,

    /// Seed of models that are fitted
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Worker {
    /// End when there was nothing to measure for two seconds; by default it waits for more, until Ctrl-C
    #[arg(long)]
    pub(crate) until_empty: bool,

    /// Seconds for which a job is this worker's before another may take it, unless renewed
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) lease: f64,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}
