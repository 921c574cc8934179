//! The `kernelwise` program. The only crate that prints: data on standard output, everything else on
//! standard error.

use std::process::ExitCode;

mod allocations;
mod args;
mod ceilings;
mod command;
mod environment;
mod exit;
mod interrupt;
mod output;
mod progress;
mod records;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

fn main() -> ExitCode {
    let args = args::Args::typed();
    environment::start_log();
    match command::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
