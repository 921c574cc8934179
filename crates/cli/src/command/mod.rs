//! One file per verb.

use crate::args::{Args, Bench, Command, Demo, Model, Replay};
use crate::exit::Failure;

mod asked;
mod bench;
mod cache;
mod calibration;
mod choices;
mod compare;
mod cost;
mod demo;
mod doctor;
mod explain;
mod external;
mod fits;
mod fleet;
mod followed;
mod generated;
mod hits;
mod kernels;
mod learn;
mod load;
mod model;
mod noise;
mod own_models;
mod probe;
mod recommend;
mod regret;
mod replay;
mod report;
mod run;
mod runs;
mod spaces;
mod standings;
mod tune;
mod watch;
mod worker;

/// Does what was asked for.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Learn(args) => learn::run(&args),
        Command::Probe(asked) if asked.watch => probe::watch::run(&asked),
        Command::Probe(asked) => probe::run(&asked),
        Command::Doctor(doctor) => doctor::run(&doctor),
        Command::Cost(cost) => cost::run(&cost),
        Command::Kernels(kernels) => kernels::run(&kernels),
        Command::Select(asked) => explain::select(&asked),
        Command::Explain(asked) => explain::explain(&asked),
        Command::Run(asked) => run::run(&asked),
        Command::Compare(asked) => compare::run(&asked),
        Command::Watch(asked) => watch::run(&asked),
        Command::Tune(asked) => tune::run(&asked),
        Command::Recommend(asked) => recommend::run(&asked),
        Command::Worker(asked) => worker::work(&asked),
        Command::Demo(Demo::Drift(drift)) => demo::drift(&drift),
        Command::Demo(Demo::Load(asked)) => load::run(&asked),
        Command::Demo(Demo::Burn) => load::burn(),
        Command::Replay(Replay::FindDb(record)) => replay::find_db(&record),
        Command::Replay(Replay::Space(spaces)) => spaces::replay(&spaces),
        Command::Model(Model::Evaluate(asked)) => model::evaluate_models(&asked),
        Command::Model(Model::Show(asked)) => own_models::show(&asked),
        Command::Model(Model::Train(asked)) => own_models::train(&asked),
        Command::Report(asked) => report::run(&asked),
        Command::Cache(asked) => cache::cache(&asked),
        Command::Export(asked) => cache::export(&asked),
        Command::Import(asked) => cache::import(&asked),
        Command::Merge(asked) => cache::merge(&asked),
        Command::Sync(asked) => fleet::sync(&asked),
        Command::Bench(Bench::Store(asked)) => fleet::bench(&asked),
        Command::Bench(Bench::Ops(ops)) => bench::run(&ops),
        Command::Bench(Bench::Select(select)) => hits::run(&select),
        Command::Bench(Bench::Model(asked)) => fits::run(&asked),
        Command::Bench(Bench::Choices(asked)) => choices::run(&asked),
        Command::Bench(Bench::Recommend(asked)) => followed::run(&asked),
        Command::Completions { shell } => generated::completions(shell),
        Command::Man => generated::man(),
    }
}
