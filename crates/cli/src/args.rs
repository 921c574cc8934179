//! What can be typed: the verbs here, what each takes in `args/`.

use clap::{Parser, Subcommand, ValueEnum};

mod bench;
mod choice;
mod learning;
mod machine;
mod records;
mod replay;
mod tuning;
mod values;

pub(crate) use bench::{Bench, BenchChoices, BenchOps, BenchSelect, BenchStore};
pub(crate) use choice::{Compare, Explain, Run, Watch};
pub(crate) use learning::{Effort, Learn, Model, ModelEvaluate, ModelShow, Report, ReportFormat};
pub(crate) use machine::{Cost, Doctor, Kernels, Probe};
pub(crate) use records::{Cache, CacheList, CacheQuarantine, Export, Import, Merge, Sync};
pub(crate) use replay::{Demo, DemoDrift, DemoLoad, Replay, ReplayFindDb, ReplaySpace};
pub(crate) use tuning::{Recommend, Tune, Worker};

/// Which implementation of an operation is fastest for this input, on this machine, right now?
#[derive(Debug, Parser)]
#[command(name = "kernelwise", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 ok, 1 failed, 2 wrong usage, 3 a threshold exceeded, 4 nothing found, 5 a wrong result, 6 records in use or of a newer version, 130 interrupted.
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
    /// Learn which kernels are fastest here: race them over a spread of shapes and remember their times
    Learn(Learn),
    /// Show what this machine is, how busy it is and, with --calibrate, how fast it can be
    Probe(Probe),
    /// Check whether this machine can be measured on, and say what to do about what is in the way;
    /// findings are advice and do not change the exit code
    Doctor(Doctor),
    /// Count the arithmetic and the bytes of an operation: `kernelwise cost matmul f32 512x512x512`
    Cost(Cost),
    /// List the kernels of an operation: what they need, what can be set, and with --shape whether they may
    /// run on it or why not
    Kernels(Kernels),
    /// Say which kernel computes an input best: `kernelwise select matmul --shape 64x64x64`
    Select(Explain),
    /// The same with the reason, the alternatives and what would change the choice
    Explain(Explain),
    /// Compute an input on drawn data: what was predicted, and what it took
    Run(Run),
    /// Race the choice for an input against a kernel: `kernelwise compare matmul --shape 64x64x64 --baseline cpu-matmul-f32-gemm`
    Compare(Compare),
    /// Compute shapes in turn and show live what is learned: choices, what trials cost, what others do
    Watch(Watch),
    /// Find better parameters than the usual ones: of the kernels for an input, or with --spec of any program
    Tune(Tune),
    /// Say what to run on a device without measuring there: `kernelwise recommend matmul --shape 4096x4096x4096 --device a100`
    Recommend(Recommend),
    /// Measure what `tune --queue` put on the server of KERNELWISE_DATABASE_URL
    Worker(Worker),
    /// Show on scripted kernels how learning behaves
    #[command(subcommand)]
    Demo(Demo),
    /// Play recorded times back to the learner, and say how well it would have chosen
    #[command(subcommand)]
    Replay(Replay),
    /// Say how well models of times predict, and choose
    #[command(subcommand)]
    Model(Model),
    /// Make a page of what is on record: winners, gains, the roofline, predictions against measurements, regret, events
    Report(Report),
    /// Show, check, thin out or forget what is on record
    #[command(subcommand)]
    Cache(Cache),
    /// Write what is on record to a file that other machines and versions can read; it names no host, user or path
    Export(Export),
    /// Take over what files from `export` know; taking one over twice changes nothing
    Import(Import),
    /// Put files from `export` together into one; what stands in several counts once
    Merge(Merge),
    /// Exchange records with a PostgreSQL server: KERNELWISE_DATABASE_URL says which
    Sync(Sync),
    /// Race kernels against each other and against other libraries
    #[command(subcommand)]
    Bench(Bench),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
}
