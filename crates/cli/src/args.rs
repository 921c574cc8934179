//! What can be typed.

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use kernelwise_probe::calibrate::CalibrateOptions;

/// Which implementation of an operation is fastest for this input, on this machine, right now?
#[derive(Debug, Parser)]
#[command(name = "kernelwise", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 ok, 1 failed, 2 wrong usage, 130 interrupted.
Results go to standard output, everything else to standard error. NO_COLOR is honoured.
KERNELWISE_LOG filters log messages (error, warn, info, debug, trace).";

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// For programs: one object with a `schema` field
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Learn which kernels are fastest here (says what the program can do until kernels are built in)
    Learn,
    /// Show what this machine is, how busy it is and, with --calibrate, how fast it can be
    Probe(Probe),
    /// Check whether this machine can be measured on, and say what to do about what is in the way;
    /// findings are advice and do not change the exit code
    Doctor(Doctor),
    /// Count the arithmetic and the bytes of an operation: `kernelwise cost matmul f32 512x512x512`
    Cost(Cost),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
}

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

/// A positive number of seconds that a clock can wait for.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds from 0.01 to 3600".to_owned()),
    }
}

/// One example for each operation, so that the syntax can be found where it is needed.
fn cost_examples() -> String {
    let examples = kernelwise_types::op::Operation::EXAMPLES.join("\n  ");
    format!(
        "Workloads, one of each kind:\n  {examples}\nEvery field is explained in docs/workloads.md."
    )
}
