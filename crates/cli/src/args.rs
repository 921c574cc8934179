//! What can be typed: the verbs here, what each takes in `args/`.

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

mod bench;
mod choice;
mod learning;
mod machine;
mod records;
mod replay;
mod tuning;
mod values;

pub(crate) use bench::{
    Bench, BenchChoices, BenchModel, BenchOps, BenchRecommend, BenchSelect, BenchStore,
};
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

impl Args {
    /// What was typed. Wrong words end the program here with exit code 2, `--help` and `--version` with 0.
    pub(crate) fn typed() -> Self {
        let matches = forgiving(Self::command()).get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

/// The same, where a negative number is a value and no option: whoever types `--seed -1` is told what is wrong with -1, and not that
/// there is no option of that name.
fn forgiving(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| match arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    });
    command.mut_subcommands(forgiving)
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
    /// Compute shapes in turn and show live what is learned: choices and how their times are known, what trials cost, what others do
    Watch(Watch),
    /// Find better parameters than the usual ones: of the kernels for an input, or with --spec of any program
    Tune(Tune),
    /// Say what to run on a device without measuring there: `kernelwise recommend matmul --shape 4096x4096x4096 --device a100`
    Recommend(Recommend),
    /// Measure what `tune --queue` put on the server of KERNELWISE_DATABASE_URL
    Worker(Worker),
    /// Show how learning behaves: on scripted kernels that change, on real ones while other programs come and go
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Args;

    /// The help of a verb and of those under it, in the order they are listed.
    fn helps(command: &mut clap::Command, path: &str, text: &mut String) {
        // Whoever runs the tests may sit at a terminal of any width.
        let mut sized = command.clone().term_width(100);
        let help = sized.render_long_help();
        *text += &format!("$ kernelwise {path} --help\n{help}\n");
        for verb in command.get_subcommands_mut() {
            let name = verb.get_name().to_owned();
            if name != "help" {
                helps(verb, &format!("{path} {name}"), text);
            }
        }
    }

    #[test]
    fn negative_numbers_are_values() {
        let said = |words: &[&str]| {
            let words = ["kernelwise"].iter().chain(words);
            let typed = super::forgiving(Args::command()).try_get_matches_from(words);
            typed.unwrap_err().to_string()
        };
        for (words, expected) in [
            (
                &["doctor", "--seed", "-1"][..],
                "invalid value '-1' for '--seed",
            ),
            (
                &["run", "copy", "--shape", "64", "--calls", "-5"],
                "-5 is not in 2..",
            ),
            (
                &["cache", "prune", "--older-than-days", "-3"],
                "invalid value '-3'",
            ),
            (&["doctor", "-1"], "unexpected argument '-1'"),
        ] {
            assert!(said(words).contains(expected), "{}", said(words));
        }
    }

    #[test]
    fn every_verb_has_help() {
        let mut program = Args::command();
        program.build();
        for verb in program.get_subcommands_mut() {
            let name = verb.get_name().to_owned();
            if name == "help" {
                continue;
            }
            let mut text = String::new();
            helps(verb, &name, &mut text);
            insta::assert_snapshot!(format!("help_{name}"), text);
        }
    }
}
