//! Better parameters than the usual ones, and parameters for devices that are not here.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use kernelwise_types::DType;

use super::Format;
use super::values::{above_zero, seconds, seconds_or_none};

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

    /// Records of the same parameters to begin from, from other machines or for other sizes: cache files of Kernel Tuner or T4 results;
    /// besides what the file with --spec names, and besides this machine's searches for other sizes
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "queue")]
    pub(crate) warm: Vec<PathBuf>,

    /// With --kernel: write all that was evaluated to this file, a cache file of Kernel Tuner, for `replay space` and for --warm elsewhere
    #[arg(long, value_name = "FILE", requires = "kernel", conflicts_with_all = ["spec", "queue"])]
    pub(crate) export: Option<PathBuf>,

    /// How often it will run once it is tuned: the search ends when one more evaluation would cost more than it could gain
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) runs: Option<u64>,

    /// With --spec: the file that keeps what was evaluated; beside the specification by default
    #[arg(long, value_name = "FILE", requires = "spec", conflicts_with_all = ["op", "queue"])]
    pub(crate) session: Option<PathBuf>,

    /// Kernels of the processor only: let workers measure, through jobs on the server of KERNELWISE_DATABASE_URL, and search by what they find; --time-budget is then that of
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
What was evaluated is kept, so that an interrupted search goes on where it ended; every run has its own seconds, and evaluations of all \
runs add up. A search for another size begins from there. The best settings then race the usual ones, all in turn: \
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

    /// The device: `host`; one that is described, such as `a100`, `rtx-4090`, `apple-m2` or `webgpu-default`; or a file of that form that ends
    /// in .json. Several, separated by commas, are held against each other, moving operands there and back included
    #[arg(
        long,
        value_name = "DEVICE",
        default_value = "host",
        value_delimiter = ','
    )]
    pub(crate) device: Vec<String>,

    #[command(flatten)]
    pub(crate) limits: RecommendLimits,

    /// Gigabytes per second between host and a device with memory of its own; 25 by default, what PCIe 4.0 x16 carries in practice
    #[arg(long, value_name = "GB/S", value_parser = above_zero, allow_negative_numbers = true)]
    pub(crate) link: Option<f64>,

    /// Allow results of reduced precision: half precision and matrix units for wider elements
    #[arg(long)]
    pub(crate) allow_reduced: bool,

    /// With `host`: seconds of racing its kernels on this workload, if that was never timed here; 0 for none
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds_or_none, allow_negative_numbers = true)]
    pub(crate) time_budget: f64,

    /// Seed of models that are fitted, and of operands
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

/// Limits that a recommendation has to keep, or to refuse.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Limits")]
pub(crate) struct RecommendLimits {
    /// Bytes of memory a call may use there
    #[arg(long, value_name = "BYTES", alias = "memory-limit")]
    pub(crate) max_memory: Option<u64>,

    /// Longest time expected of a warm call, in microseconds
    #[arg(long, value_name = "MICROSECONDS", allow_negative_numbers = true)]
    pub(crate) max_latency: Option<f64>,

    /// Most power while it runs, in watts; devices whose power is unknown are refused
    #[arg(long, value_name = "WATTS", allow_negative_numbers = true)]
    pub(crate) max_power: Option<f64>,

    /// Highest temperature of the processor now, in degrees Celsius
    #[arg(long, value_name = "CELSIUS", allow_negative_numbers = true)]
    pub(crate) max_temperature: Option<f64>,

    /// Most energy of a call, in joules; devices whose power is unknown are refused
    #[arg(long, value_name = "JOULES", allow_negative_numbers = true)]
    pub(crate) max_energy: Option<f64>,

    /// Fewest calls per second, one after the other
    #[arg(long, value_name = "CALLS", allow_negative_numbers = true)]
    pub(crate) min_throughput: Option<f64>,

    /// A call comes every so many microseconds, and has to be done before the next
    #[arg(long, value_name = "MICROSECONDS", allow_negative_numbers = true)]
    pub(crate) period: Option<f64>,

    /// With --period: a call has to be done so many microseconds after it began
    #[arg(
        long,
        value_name = "MICROSECONDS",
        requires = "period",
        allow_negative_numbers = true
    )]
    pub(crate) deadline: Option<f64>,

    /// Calls that are expected: compiling is shared out among them
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) calls: u64,
}

impl RecommendLimits {
    /// Whether there is any beyond memory, which every device keeps by itself.
    pub(crate) fn need_a_time(&self) -> bool {
        let numbers = [
            self.max_latency,
            self.max_power,
            self.max_temperature,
            self.max_energy,
            self.min_throughput,
            self.period,
        ];
        numbers.iter().any(Option::is_some) || self.calls != 1
    }
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
