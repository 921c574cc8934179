//! `kernelwise probe --watch`: the live state, look after look.

use std::sync::atomic::Ordering;
use std::time::Duration;

use kernelwise_probe::{Sampler, SamplerOptions};
use kernelwise_types::units::Nanos;
use kernelwise_types::{Reading, SystemState};
use serde::Serialize;

use crate::args::{self, Format};
use crate::exit::Failure;
use crate::{interrupt, output};

/// How often Ctrl-C is looked for while waiting.
const PATIENCE: Duration = Duration::from_millis(100);

#[derive(Serialize)]
struct Row<'a> {
    look: u64,
    elapsed_s: f64,
    state: &'a SystemState,
}

/// One column of the table: heading and value.
type Column = (&'static str, fn(&SystemState) -> String);

/// What is shown on every machine.
const ALWAYS: [Column; 7] = [
    ("utilisation", |s| short(&s.cpu_utilisation)),
    ("cpu wait", |s| short(&s.cpu_pressure)),
    ("mem wait", |s| short(&s.memory_pressure)),
    ("run queue", |s| short(&s.run_queue)),
    ("load 1min", |s| short(&s.load_1min)),
    ("steal", |s| short(&s.steal)),
    ("mem avail", |s| short(&s.memory_available)),
];

/// What is shown where the machine tells it.
const WHERE_KNOWN: [Column; 3] = [
    ("temp", |s| short(&s.temperature)),
    ("power", |s| short(&s.power)),
    ("clock", |s| short(&s.frequency)),
];

fn short<T: std::fmt::Display>(reading: &Reading<T>) -> String {
    reading.known().map_or("?".to_owned(), T::to_string)
}

/// Shows the state until Ctrl-C, or until the count is reached. A reader that is slower than the
/// looks misses some; each row says which look it shows.
pub(crate) fn run(args: &args::Probe) -> Result<(), Failure> {
    let stop = interrupt::flag()?;
    let sampler = Sampler::start(SamplerOptions {
        period: Duration::from_secs_f64(args.interval),
        ..SamplerOptions::default()
    })?;
    let mut columns: Vec<Column> = ALWAYS.to_vec();
    let next = |number| loop {
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        if sampler.wait_for_looks(number, PATIENCE) {
            return Ok(sampler.look());
        }
    };
    // The first look has no interval for its shares to cover; showing begins with the one after it.
    let first = next(1)?;
    let mut number = first.number;
    for shown in 1.. {
        let look = next(number + 1)?;
        number = look.number;
        let elapsed_s = Nanos::from_u64(look.at_ns.saturating_sub(first.at_ns)).seconds();
        let state = &look.state;
        match args.format {
            Format::Json => {
                let row = Row {
                    look: number,
                    elapsed_s,
                    state,
                };
                output::json_line("kernelwise.state/1", &row)?;
            }
            Format::Table => {
                if shown == 1 {
                    columns.extend(WHERE_KNOWN.iter().filter(|(_, value)| value(state) != "?"));
                    columns.truncate(fitting(output::width()));
                    let headings: Vec<String> =
                        columns.iter().map(|(name, _)| (*name).to_owned()).collect();
                    output::text(&line("seconds".to_owned(), &headings))?;
                }
                let values: Vec<String> = columns.iter().map(|(_, value)| value(state)).collect();
                output::text(&line(format!("{elapsed_s:.1}"), &values))?;
            }
        }
        if args.count.is_some_and(|count| shown >= count) {
            break;
        }
    }
    Ok(())
}

/// Characters of the first column, and of each of the others.
const FIRST: usize = 8;
const OTHERS: usize = 12;

/// How many columns fit beside the first: a line that the terminal breaks cannot be read as a row. One is there in any case. What
/// is left out is what comes last, and is shown by `kernelwise probe` and in JSON.
fn fitting(width: Option<usize>) -> usize {
    width.map_or(usize::MAX, |width| {
        (width.saturating_sub(FIRST) / OTHERS).max(1)
    })
}

fn line(first: String, rest: &[String]) -> String {
    let cells: String = rest.iter().map(|cell| format!("{cell:>OTHERS$}")).collect();
    format!("{first:>FIRST$}{cells}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_do_not_fit_are_left_out() {
        assert_eq!(fitting(None), usize::MAX);
        assert_eq!(fitting(Some(1)), 1);
        for width in [20, 31, 32, 60, 92, 93, 200] {
            let cells = vec!["x".to_owned(); fitting(Some(width))];
            let line = line("seconds".to_owned(), &cells);
            assert!(line.trim_end().len() <= width, "{width}: {line}");
        }
    }
}
