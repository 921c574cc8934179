//! One file per verb.

use crate::args::{Args, Bench, Command};
use crate::exit::Failure;

mod asked;
mod bench;
mod calibration;
mod cost;
mod doctor;
mod generated;
mod kernels;
mod learn;
mod probe;
mod watch;

/// Does what was asked for.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Learn => learn::run(),
        Command::Probe(probe) if probe.watch => watch::run(&probe),
        Command::Probe(probe) => probe::run(&probe),
        Command::Doctor(doctor) => doctor::run(&doctor),
        Command::Cost(cost) => cost::run(&cost),
        Command::Kernels(kernels) => kernels::run(&kernels),
        Command::Bench(Bench::Ops(ops)) => bench::run(&ops),
        Command::Completions { shell } => generated::completions(shell),
        Command::Man => generated::man(),
    }
}
