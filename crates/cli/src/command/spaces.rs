//! `kernelwise replay space`: how soon a search would have found the best parameters, on spaces that were measured in full.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use kernelwise_measure::ThreadCpuClock;
use kernelwise_tune::recorded::Record;
use kernelwise_tune::replay::{Figures, Fraction, Recorded, Settings, replay as replayed};
use kernelwise_tune::search::Strategy;

use crate::args::{self, Format};
use crate::exit::Failure;
use crate::{output, progress};

/// Replays and prints.
pub(crate) fn replay(args: &args::ReplaySpace) -> Result<(), Failure> {
    let strategy: Strategy = args
        .strategy
        .parse()
        .map_err(|error| Failure::Usage(anyhow::Error::new(error)))?;
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    let settings = Settings {
        strategy,
        budgets: args.budget.clone(),
        repeats: args.repeats as usize,
        seed: args.seed,
        warm: read(&args.warm)?,
        threads,
    };
    let spaces = read(&args.files)?;
    let searches = settings.repeats * spaces.len();
    let bar = progress::uncounted(&format!("replaying {searches} searches"));
    let figures = replayed(&spaces, &settings, &ThreadCpuClock);
    bar.finish_and_clear();
    let figures = figures.map_err(|error| Failure::Usage(error.into()))?;
    match args.format {
        Format::Json => output::json("kernelwise.replay_space/1", &figures),
        Format::Table => output::text(&table(&figures)),
    }
}

/// The records in files, named by them.
fn read(files: &[PathBuf]) -> Result<Vec<Recorded>, Failure> {
    let mut all = Vec::new();
    for path in files {
        let name = path.file_name().map_or_else(
            || path.display().to_string(),
            |name| name.to_string_lossy().into_owned(),
        );
        if !path.exists() {
            let missing = anyhow!("{}: there is no such file", path.display());
            return Err(Failure::NotFound(missing));
        }
        let record = Record::open(path).with_context(|| path.display().to_string())?;
        all.push(Recorded {
            name,
            record: Arc::new(record),
        });
    }
    Ok(all)
}

fn table(figures: &Figures) -> String {
    let budgets: Vec<String> = figures.mean.keys().map(u64::to_string).collect();
    let mut headings = vec!["space", "of", "first"];
    headings.extend(budgets.iter().map(String::as_str));
    headings.push("\u{b5}s per evaluation");
    let cell = |one: &Fraction| format!("{:.3} ({:.3})", one.fraction_of_optimum, one.random_exact);
    let mut rows: Vec<Vec<String>> = Vec::new();
    for space in &figures.spaces {
        let mut row = vec![
            space.name.clone(),
            space.configurations.to_string(),
            format!("{:.3}", space.first),
        ];
        row.extend(space.budgets.values().map(cell));
        row.push(format!("{:.0}", space.cpu_us_per_eval));
        rows.push(row);
    }
    let mut mean = vec![
        "mean".to_owned(),
        String::new(),
        format!("{:.3}", figures.first),
    ];
    mean.extend(figures.mean.values().map(cell));
    mean.push(format!("{:.0}", figures.cpu_us_per_eval));
    rows.push(mean);
    let right: Vec<usize> = (1..headings.len()).collect();
    let mut text = format!(
        "best time over best found by {} after so many evaluations, mean of {} searches (random search in brackets)\n",
        figures.strategy.name(),
        figures.repeats
    );
    text += &output::columns(&headings, &right, rows);
    text
}
