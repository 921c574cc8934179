//! What can be typed.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args as ClapArgs, Parser, Subcommand, ValueEnum};
use kernelwise_bench::{ChoicesOptions, Options as BenchOptions};
use kernelwise_model::ModelKind;
use kernelwise_probe::calibrate::CalibrateOptions;
use kernelwise_select::Policy;
use kernelwise_types::{DType, Technique};

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

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Every kernel of an operation and the libraries that can do the same, shape by shape, with the
    /// shares of what the machine can do
    Ops(BenchOps),
    /// What a choice costs, beside a lock around a map
    Select(BenchSelect),
    /// How good the choices of a calibrated selector are, beside a rule written by hand and the best there is
    Choices(BenchChoices),
    /// What remembering costs: recording, writing, opening; with KERNELWISE_DATABASE_URL also pushing to that server, where the
    /// records stay
    Store(BenchStore),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BenchStore {
    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

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

#[derive(Debug, Subcommand)]
pub(crate) enum Cache {
    /// Print the file that records are kept in
    Path,
    /// Count what is on record
    Stats(CacheStats),
    /// List what is on record: workload, kernel, parameters, time and runs
    List(CacheList),
    /// List kernels that are kept away because they failed, or let one back in
    Quarantine(CacheQuarantine),
    /// Check the file; exit code 1 if it is or was damaged
    Verify,
    /// Let go of what is old or from elsewhere
    Prune(CachePrune),
    /// Forget everything
    Clear(CacheClear),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CacheStats {
    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CacheList {
    /// Only workloads of this operation, such as `matmul` or `reduce.sum`
    #[arg(long, value_name = "OPERATION")]
    pub(crate) op: Option<String>,

    /// Only what was measured on this kind of machine
    #[arg(long)]
    pub(crate) this_machine: bool,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CacheQuarantine {
    /// Let this kernel take part again
    #[arg(long, value_name = "KERNEL")]
    pub(crate) lift: Option<String>,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("what").args(["older_than_days", "other_machines"]).required(true).multiple(true))]
pub(crate) struct CachePrune {
    /// What was not measured for so many days
    #[arg(long, value_name = "DAYS")]
    pub(crate) older_than_days: Option<u32>,

    /// What was measured on other kinds of machine
    #[arg(long)]
    pub(crate) other_machines: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CacheClear {
    /// Yes, everything
    #[arg(long, required = true)]
    pub(crate) yes: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Export {
    /// The file to write; standard output if none is named. A name that ends in `.gz` is compressed
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Only what was measured on this kind of machine
    #[arg(long)]
    pub(crate) this_machine: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Import {
    /// The files; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Only say what would be taken over
    #[arg(long)]
    pub(crate) preview: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Merge {
    /// The files; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// The file to write. A name that ends in `.gz` is compressed
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Sync {
    /// Only say what would leave this machine, and what would come
    #[arg(long)]
    pub(crate) preview: bool,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

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

    /// Put the settings as jobs on the server of KERNELWISE_DATABASE_URL, for workers to measure, and wait for them
    #[arg(long, conflicts_with = "spec")]
    pub(crate) queue: bool,

    /// With --queue: do not wait
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
those times are put on record, and `select`, `explain` and programs that remember use them.";

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
    /// End when there is nothing left to measure; by default it waits for more, until Ctrl-C
    #[arg(long)]
    pub(crate) until_empty: bool,

    /// Seconds for which a job is this worker's before another may take it, unless renewed
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) lease: f64,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

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
pub(crate) struct BenchSelect {
    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

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

    /// How to search
    #[arg(long, default_value = "default")]
    pub(crate) strategy: String,

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
stands what random search without replacement has, exactly.";

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

    /// Types of models for --find-db, by default all
    #[arg(long, value_delimiter = ',', default_values = ModelKind::NAMES, value_parser = PossibleValuesParser::new(ModelKind::NAMES))]
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
median and p90 are factors between predicted and recorded times. `with slowdowns` has a second model beside the first, as the selector has, \
and is shown if it chooses better.";

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

    /// How often it is computed
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
    #[arg(long, value_name = "SHARE", value_parser = percent)]
    pub(crate) fail_above: Option<f64>,

    /// Seconds the race may take
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) seconds: f64,
}

const EXPLAIN_NOTES: &str = "\
What `kernelwise learn` put on record is used: times that were measured, and models of them for inputs that were not. Where there is \
nothing, the machine is calibrated and the input computed again and again on drawn data, as by a program that uses the selector. \
KERNELWISE_FORCE=operation=kernel forces a kernel; KERNELWISE_MODE=frozen|shadow learns nothing, or does not follow it.";

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

/// The name of a technique.
fn technique() -> impl TypedValueParser<Value = Technique> {
    let names = Technique::ALL.map(Technique::name);
    PossibleValuesParser::new(names).map(|name| {
        let named = |technique: &Technique| technique.name() == name;
        let found = Technique::ALL.into_iter().find(named);
        found.unwrap_or(Technique::Custom)
    })
}

/// A positive number of seconds that a clock can wait for.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds from 0.01 to 3600".to_owned()),
    }
}

/// A share: `5%` or `0.05`.
fn percent(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number.trim(), 0.01),
        None => (text, 1.0),
    };
    match number.parse::<f64>() {
        Ok(share) if share.is_finite() && share >= 0.0 => Ok(unit * share),
        _ => Err("expected a share such as 5% or 0.05".to_owned()),
    }
}

/// Seconds, or 0.
fn seconds_or_none(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(0.0) => Ok(0.0),
        _ => seconds(text).map_err(|error| format!("{error}, or 0")),
    }
}

/// One example for each operation, so that the syntax can be found where it is needed.
fn cost_examples() -> String {
    let examples = kernelwise_types::op::Operation::EXAMPLES.join("\n  ");
    format!(
        "Workloads, one of each kind:\n  {examples}\nEvery field is explained in docs/workloads.md."
    )
}
