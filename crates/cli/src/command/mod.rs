//! One file per verb.

use crate::args::{Args, Bench, Command, Demo, Model, Replay};
use crate::exit::Failure;

mod asked;
mod bench;
mod calibration;
mod choices;
mod cost;
mod demo;
mod doctor;
mod explain;
mod generated;
mod hits;
mod kernels;
mod learn;
mod model;
mod probe;
mod replay;
mod watch;

/// Does what was asked for.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Learn(args) => learn::run(&args),
        Command::Probe(probe) if probe.watch => watch::run(&probe),
        Command::Probe(probe) => probe::run(&probe),
        Command::Doctor(doctor) => doctor::run(&doctor),
        Command::Cost(cost) => cost::run(&cost),
        Command::Kernels(kernels) => kernels::run(&kernels),
        Command::Select(asked) => explain::select(&asked),
        Command::Explain(asked) => explain::explain(&asked),
        Command::Demo(Demo::Drift(drift)) => demo::drift(&drift),
        Command::Replay(Replay::FindDb(record)) => replay::find_db(&record),
        Command::Model(Model::Evaluate(asked)) => model::evaluate_models(&asked),
        Command::Bench(Bench::Ops(ops)) => bench::run(&ops),
        Command::Bench(Bench::Select(select)) => hits::run(&select),
        Command::Bench(Bench::Choices(asked)) => choices::run(&asked),
        Command::Completions { shell } => generated::completions(shell),
        Command::Man => generated::man(),
    }
}
