//! Completion scripts and the manual page, made from the argument definitions.

use clap::CommandFactory;

use crate::args::Args;
use crate::exit::Failure;
use crate::output;

/// Prints a completion script.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    // Into memory first: the generator panics when its writer fails, as a closed pipe does.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "kernelwise", &mut script);
    output::styled(&String::from_utf8_lossy(&script))
}

/// Prints the manual: the page of the program, then those of its verbs.
pub(crate) fn man() -> Result<(), Failure> {
    let mut page = Vec::new();
    let mut program = Args::command();
    program.build();
    clap_mangen::Man::new(program.clone()).render(&mut page)?;
    for verb in program
        .get_subcommands()
        .filter(|verb| verb.get_name() != "help")
    {
        clap_mangen::Man::new(verb.clone()).render(&mut page)?;
    }
    output::styled(&String::from_utf8_lossy(&page))
}
