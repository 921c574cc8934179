//! `kernelwise replay`: how well the learner would have chosen, on times that were recorded elsewhere.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use kernelwise_replay::{
    Figures, FindDb, ReadError, Setup, SetupError, StaticOrder, first_in_bucket, oracle, order,
    replay_watched,
};
use kernelwise_select::learn::Rules;
use kernelwise_select::{Budget, Policy};
use serde::Serialize;

use crate::args::{self, Format};
use crate::exit::Failure;
use crate::{interrupt, output, progress};

/// How many times smaller the budget of the second run is.
const LESS: f64 = 5.0;

#[derive(Debug, Serialize)]
struct Played {
    algorithms: Vec<String>,
    policy: String,
    budget_share: f64,
    seed: u64,
    noise: f64,
    #[serde(flatten)]
    figures: Figures,
    /// The same record under other ways of choosing.
    comparisons: Vec<Comparison>,
}

#[derive(Debug, Serialize)]
struct Comparison {
    name: String,
    #[serde(flatten)]
    figures: Figures,
}

/// Plays a record of convolutions.
pub(crate) fn find_db(args: &args::ReplayFindDb) -> Result<(), Failure> {
    let policy: Policy = args.policy.parse().map_err(usage)?;
    let budget = Budget {
        share: args.budget,
        ..Budget::default()
    };
    budget.check().map_err(usage)?;
    let setup = |share: f64| Setup {
        rules: Rules {
            policy,
            budget: Budget { share, ..budget },
            ..Rules::default()
        },
        seed: args.seed,
        limit: args.limit.map_or(usize::MAX, |limit| limit as usize),
        noise: args.noise,
    };
    let record = FindDb::open(&args.file).map_err(|error| {
        let is_missing =
            matches!(&error, ReadError::File(file) if file.kind() == std::io::ErrorKind::NotFound);
        let error = anyhow::Error::new(error).context(args.file.display().to_string());
        if is_missing {
            Failure::NotFound(error)
        } else {
            Failure::Failed(error)
        }
    })?;
    let cancel = interrupt::flag()?;
    let whole = play(&record, &setup(args.budget), "learning", cancel)?;
    let comparison = |name: String, figures| Comparison { name, figures };
    let mut comparisons = Vec::new();
    // Who runs everything asks no budget.
    if !matches!(policy, Policy::Exhaustive { .. }) {
        let less = args.budget / LESS;
        let figures = play(&record, &setup(less), "learning on less", cancel)?;
        comparisons.push(comparison(format!("{policy}, budget {less}"), figures));
    }
    let order = order(&record, &setup(args.budget));
    let fixed = StaticOrder::best(&record, &order);
    let names = fixed.order.iter().map(|i| record.algorithms[*i].as_str());
    let names: Vec<&str> = names.collect();
    comparisons.extend([
        comparison(format!("static order {}", names.join(" > ")), fixed.figures),
        comparison(
            "first in bucket".to_owned(),
            first_in_bucket(&record, &order),
        ),
        comparison("oracle".to_owned(), oracle(&record, &order)),
    ]);
    let played = Played {
        algorithms: record.algorithms,
        policy: policy.to_string(),
        budget_share: args.budget,
        seed: args.seed,
        noise: args.noise,
        figures: whole,
        comparisons,
    };
    match args.format {
        Format::Json => output::json("kernelwise.replay/1", &played),
        Format::Table => output::text(&table(&played)),
    }
}

fn usage(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Failure::Usage(error.into())
}

fn play(
    record: &FindDb,
    setup: &Setup,
    what: &'static str,
    cancel: &AtomicBool,
) -> Result<Figures, Failure> {
    /// Problems between two moves of the bar.
    const STEP: usize = 256;
    let bar = progress::counted();
    bar.set_length(order(record, setup).len() as u64);
    bar.set_message(what);
    let figures = replay_watched(record, setup, &mut |done| {
        if done.is_multiple_of(STEP) {
            bar.set_position(done as u64);
        }
        match cancel.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    bar.finish_and_clear();
    if cancel.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    figures.map_err(|error| match error {
        SetupError::Noise(_) => usage(error),
        other => other.into(),
    })
}

fn table(played: &Played) -> String {
    let row = |name: &str, figures: &Figures| {
        vec![
            name.to_owned(),
            format!("{:.3}", figures.geo_slowdown),
            format!("{:.3}", figures.total_over_oracle),
            format!("{:.1} %", 100.0 * figures.share_over_5pct),
            format!("{:.1} %", 100.0 * figures.trial_share),
            figures.trials.to_string(),
        ]
    };
    let this = format!("{}, budget {}", played.policy, played.budget_share);
    let others = played.comparisons.iter();
    let rows = std::iter::once(row(&this, &played.figures))
        .chain(others.map(|other| row(&other.name, &other.figures)));
    let headings = ["", "slowdown", "total", "over 5 %", "trials cost", "trials"];
    let mut text = format!("{} problems, each met once\n", played.figures.problems);
    text += &output::columns(&headings, &[1, 2, 3, 4, 5], rows.collect());
    let Figures {
        invalid_picks,
        budget_overruns,
        trials_cut,
        ..
    } = played.figures;
    text += &format!(
        " {invalid_picks} picks without a recorded time, {budget_overruns} moments over the budget, {trials_cut} trials stopped at its end\n"
    );
    text
}
