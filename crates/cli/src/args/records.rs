//! What is on record: shown, thinned out, carried and shared.

use std::path::PathBuf;

use clap::{ArgGroup, Args as ClapArgs, Subcommand};

use super::Format;

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

    /// The latest single runs of each series instead of its sums: when, how long, what had been predicted, and how busy the machine was
    #[arg(long)]
    pub(crate) samples: bool,

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
#[command(group = ArgGroup::new("what").args(["older_than_days", "other_machines", "most_series"]).required(true).multiple(true))]
pub(crate) struct CachePrune {
    /// What was not measured for so many days
    #[arg(long, value_name = "DAYS")]
    pub(crate) older_than_days: Option<u32>,

    /// What was measured on other kinds of machine
    #[arg(long)]
    pub(crate) other_machines: bool,

    /// All but so many series and decisions, those heard of last
    #[arg(long, value_name = "N")]
    pub(crate) most_series: Option<u64>,
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
