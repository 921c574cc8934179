//! `kernelwise replay space`: how soon a search would have found the best parameters, on spaces that were measured in full.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use kernelwise_measure::ThreadCpuClock;
use kernelwise_tune::gpu::{Judgement, judge};
use kernelwise_tune::recorded::Record;
use kernelwise_tune::replay::{Figures, Fraction, Recorded, Settings, replay as replayed};
use kernelwise_tune::search::Strategy;
use serde::Serialize;

use crate::args::{self, Format};
use crate::exit::Failure;
use crate::{output, progress};

/// What nobody searches.
const DESCRIBED: &str = "described";

#[derive(Debug, Serialize)]
struct Described {
    strategy: &'static str,
    /// Means over the spaces that could be judged.
    fraction_of_optimum: f64,
    median_fraction: f64,
    judged: usize,
    spaces: Vec<DescribedSpace>,
}

#[derive(Debug, Serialize)]
struct DescribedSpace {
    name: String,
    configurations: usize,
    cut_short: bool,
    #[serde(flatten)]
    judgement: Option<Judgement>,
    /// Why there is none.
    why: Option<String>,
}

/// What the model of each device recommends unmeasured, and what became of that.
fn described(args: &args::ReplaySpace) -> Result<(), Failure> {
    let spaces = read(&args.files)?
        .into_iter()
        .map(|Recorded { name, record }| {
            let named = args.device.as_deref().filter(|_| record.device.is_empty());
            let judged = judge(&record, named);
            DescribedSpace {
                name,
                configurations: record.entries.len(),
                cut_short: record.cut_short,
                why: judged.as_ref().err().map(ToString::to_string),
                judgement: judged.ok(),
            }
        });
    let spaces: Vec<DescribedSpace> = spaces.collect();
    let judged: Vec<&Judgement> = spaces
        .iter()
        .filter_map(|one| one.judgement.as_ref())
        .collect();
    if judged.is_empty() {
        let why = spaces
            .iter()
            .filter_map(|one| Some(format!("{}: {}", one.name, one.why.as_ref()?)));
        let why: Vec<String> = why.collect();
        return Err(Failure::Usage(anyhow!(
            "{}; --device names the device of records that do not",
            why.join("; ")
        )));
    }
    let mean = |of: fn(&Judgement) -> f64| {
        judged.iter().map(|one| of(one)).sum::<f64>() / judged.len() as f64
    };
    let told = Described {
        strategy: DESCRIBED,
        fraction_of_optimum: mean(|one| one.fraction_of_optimum),
        median_fraction: mean(|one| one.median_fraction),
        judged: judged.len(),
        spaces,
    };
    match args.format {
        Format::Json => output::json("kernelwise.replay_described/1", &told),
        Format::Table => output::text(&described_table(&told)),
    }
}

fn described_table(told: &Described) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for space in &told.spaces {
        let mut row = vec![space.name.clone(), space.configurations.to_string()];
        match (&space.judgement, &space.why) {
            (Some(judged), _) => row.extend([
                judged.device.clone(),
                format!("{:.3}", judged.fraction_of_optimum),
                format!("{:.3}", judged.median_fraction),
                judged.recommended.clone(),
            ]),
            (None, why) => row.extend([
                "-".to_owned(),
                "-".to_owned(),
                "-".to_owned(),
                why.clone().unwrap_or_default(),
            ]),
        }
        rows.push(row);
    }
    rows.push(vec![
        "mean".to_owned(),
        String::new(),
        String::new(),
        format!("{:.3}", told.fraction_of_optimum),
        format!("{:.3}", told.median_fraction),
        String::new(),
    ]);
    let mut text = "best time over that of the configuration that is recommended without measuring, and of the median configuration\n".to_owned();
    text += &output::columns(
        &[
            "space",
            "of",
            "device",
            "recommended",
            "median",
            "configuration",
        ],
        &[1, 3, 4],
        rows,
    );
    text
}

/// Replays and prints.
pub(crate) fn replay(args: &args::ReplaySpace) -> Result<(), Failure> {
    if args.strategy == DESCRIBED {
        return described(args);
    }
    if args.device.is_some() {
        let why = "--device is for --strategy described: a search does not ask what the device is";
        return Err(Failure::Usage(anyhow!(why)));
    }
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
        if record.cut_short {
            output::note(&format!(
                "{name} was cut short: the {} configurations before the cut are used",
                record.entries.len()
            ));
        }
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
