//! `kernelwise tune --spec FILE`: better parameters for any program that can be built and run by commands.

#[cfg(unix)]
use std::path::Path;

#[cfg(unix)]
use anyhow::anyhow;
#[cfg(unix)]
use kernelwise_measure::TscClock;
#[cfg(unix)]
use kernelwise_tune::external::{Ended, Progress, SessionError, Spec, TuneError, Tuned, tune};

use crate::args;
#[cfg(unix)]
use crate::args::Format;
use crate::exit::Failure;
#[cfg(unix)]
use crate::{interrupt, output, progress};

/// Elsewhere processes cannot be kept apart.
#[cfg(not(unix))]
pub(super) fn run(_: &args::Tune, _: &std::path::Path) -> Result<(), Failure> {
    Err(Failure::Usage(anyhow::anyhow!(
        "programs can be tuned on Unix only"
    )))
}

#[cfg(unix)]
pub(super) fn run(args: &args::Tune, path: &Path) -> Result<(), Failure> {
    let mut spec = Spec::open(path).map_err(|error| match path.exists() {
        true => Failure::Usage(error.into()),
        false => Failure::NotFound(error.into()),
    })?;
    if let Some(strategy) = &args.strategy {
        let strategy = strategy.parse();
        spec.strategy = strategy.map_err(|error| Failure::Usage(anyhow!("{error}")))?;
    }
    if args.budget.is_some() {
        spec.budget.evaluations = args.budget;
    }
    if args.time_budget.is_some() {
        spec.budget.seconds = args.time_budget;
    }
    spec.seed = args.seed.unwrap_or(spec.seed);
    if args.runs.is_some() {
        spec.knowledge.runs = args.runs.map(|runs| runs as f64);
    }
    spec.knowledge
        .records
        .extend(super::tune::warm(&args.warm, &[spec.space()])?);
    let session = args.session.clone().unwrap_or_else(|| spec.session());
    let cancel = interrupt::flag()?;
    let bar = progress::counted();
    let mut tell = |at: &Progress<'_>| match at {
        Progress::Resumed { evaluations } => {
            output::note(&format!("{evaluations} evaluations are known from before"));
        }
        Progress::Evaluated {
            number, of, best, ..
        } => {
            bar.set_length(of.unwrap_or(*number));
            bar.set_position(*number);
            if let Some(best) = best {
                bar.set_message(format!("best {}", time(*best)));
            }
        }
        Progress::Round { number, of } => {
            bar.set_message(format!("finalists, round {number} of {of}"));
        }
        _ => {}
    };
    let tuned = tune(&spec, &session, &TscClock::new(), cancel, &mut tell);
    bar.finish_and_clear();
    let tuned = tuned.map_err(|error| match &error {
        TuneError::Session(SessionError::Busy(_)) => Failure::Records(error.into()),
        TuneError::Session(SessionError::Other(_) | SessionError::NotOurs(_))
        | TuneError::NotOurs(_)
        | TuneError::Budget(_) => Failure::Usage(error.into()),
        _ => Failure::Failed(error.into()),
    })?;
    match args.format {
        Format::Json => output::json("kernelwise.tune_external/1", &tuned)?,
        Format::Table => output::text(&text(&tuned, &spec))?,
    }
    match tuned.ended {
        Ended::Cancelled => Err(Failure::Interrupted),
        _ => Ok(()),
    }
}

/// Seconds, for people.
#[cfg(unix)]
fn time(seconds: f64) -> String {
    let nanos = kernelwise_types::units::Nanos::new(1e9 * seconds);
    nanos.map_or("-".to_owned(), |nanos| nanos.to_string())
}

#[cfg(unix)]
fn text(tuned: &Tuned, spec: &Spec) -> String {
    let mut text = String::new();
    for (name, timed) in [("best", &tuned.best), ("default", &tuned.default)] {
        if let Some(timed) = timed {
            let range = timed
                .interval
                .map(|(low, high)| format!(" (90 % interval {} to {})", time(low), time(high)));
            text += &format!(
                "{name:8} {}: {}{}\n",
                spec.space().describe(&timed.configuration),
                time(timed.time),
                range.unwrap_or_default()
            );
        }
    }
    text += &format!("{}", tuned.conclusion);
    if let Some(gain) = &tuned.gain {
        text += &format!(
            ": the default takes {:.2}x as long (90 % interval {:.2} to {:.2})",
            gain.ratio, gain.low, gain.high
        );
    }
    text.push('\n');
    for timed in tuned.as_good.iter().take(3) {
        let values = spec.space().describe(&timed.configuration);
        text += &format!("as good  {values}: {}\n", time(timed.time));
    }
    for failure in &tuned.failures {
        text += &format!(
            "{} failed ({:?}), the first: {}\n",
            failure.count, failure.kind, failure.first
        );
    }
    text += &format!(
        "{} evaluations, {} of them from before, {:.1} s; it ended because {}; kept in {}\n",
        tuned.evaluations,
        tuned.resumed,
        tuned.seconds,
        tuned.ended,
        tuned.session.display()
    );
    if tuned.warm_records > 0 {
        let records = match tuned.warm_records {
            1 => "1 record".to_owned(),
            many => format!("{many} records"),
        };
        text += &format!("the search began from {records} of the same parameters\n");
    }
    text
}
