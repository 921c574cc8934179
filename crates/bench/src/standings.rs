//! How the contenders of a shape stand to each other: right, believable, how fast, and against the winner.

use kernelwise_measure::stats::{location, location_precision};
use kernelwise_measure::{Ending, Indifference, Race, Verdict, Warning};

use crate::contest::{Candidate, Checked};
use crate::figures::{Doubt, Outcome, Source, Standing, Times};
use crate::judge::Ceiling;
use crate::ratios::CONFIDENCE;

/// What was measured on a shape.
pub(crate) struct Raced {
    /// Threads that libraries were told to use.
    pub(crate) threads: u32,
    /// By candidate.
    pub(crate) checked: Vec<Checked>,
    /// The short race of all.
    pub(crate) heats: Race,
    /// The long race of the foremost.
    pub(crate) race: Race,
}

/// The outcome of a shape.
pub(crate) struct Standings {
    pub(crate) all: Vec<Standing>,
    pub(crate) winner: Option<String>,
    pub(crate) tie_class: Vec<String>,
}

/// Judges everyone: right, believable, how fast, and against the winner.
pub(crate) fn standings(
    candidates: &[Candidate<'_>],
    raced: &Raced,
    ceiling: &Ceiling,
    prior_ns: &dyn Fn(&Candidate<'_>) -> Option<f64>,
) -> Standings {
    let mut all: Vec<Standing> = candidates
        .iter()
        .zip(&raced.checked)
        .map(|(candidate, checked)| standing(candidate, checked, raced, ceiling, prior_ns))
        .collect();
    let counted = all.iter().filter_map(|standing| {
        let time = standing.counted_ns()?;
        Some((time, standing.name.clone()))
    });
    let winner = counted.min_by(|(a, _), (b, _)| a.total_cmp(b));
    if let Some((time, name)) = &winner {
        for standing in &mut all {
            place(standing, name, *time, &raced.race);
        }
    }
    let time = |standing: &Standing| standing.times.map_or(f64::INFINITY, |times| times.time_ns);
    all.sort_by(|a, b| time(a).total_cmp(&time(b)));
    let ties = all.iter().filter(|standing| {
        matches!(standing.verdict, Outcome::Winner | Outcome::Tie) && !standing.opt_in
    });
    Standings {
        tie_class: ties.map(|standing| standing.name.clone()).collect(),
        winner: winner.map(|(_, name)| name),
        all,
    }
}

fn standing(
    candidate: &Candidate<'_>,
    checked: &Checked,
    raced: &Raced,
    ceiling: &Ceiling,
    prior_ns: &dyn Fn(&Candidate<'_>) -> Option<f64>,
) -> Standing {
    let name = candidate.name();
    let entries = [&raced.race, &raced.heats].map(|race| (race, race.entry(&name)));
    let ran = entries
        .iter()
        .find_map(|(race, entry)| Some((*race, entry.filter(|e| !e.samples_ns.is_empty())?)));
    let failed = entries.iter().find_map(|(_, entry)| {
        let ending = &entry.as_ref()?.ending;
        (*ending != Ending::Measured).then(|| ending.to_string())
    });
    let (samples, warnings): (Vec<f64>, _) = match (ran, checked) {
        (Some((race, entry)), _) => (
            entry.samples_ns.clone(),
            Warning::from_entry(entry, &race.clock),
        ),
        (None, Checked::Right { call_ns }) => (vec![*call_ns], Vec::new()),
        _ => (Vec::new(), Vec::new()),
    };
    let times = location(&samples).map(|time_ns| {
        let reach = location_precision(&samples).map(|relative| relative * time_ns);
        Times {
            time_ns,
            low_ns: reach.map(|reach| time_ns - reach),
            high_ns: reach.map(|reach| time_ns + reach),
            samples: samples.len(),
            gflops: ceiling.gflops(time_ns),
            gbps: ceiling.gbps(time_ns),
            peak_share: ceiling.peak_share(time_ns),
            bandwidth_share: ceiling.bandwidth_share(time_ns),
            over_winner: None,
        }
    });
    let above = times.and_then(|t| ceiling.disbelief(candidate.technique(), t.time_ns));
    let (verdict, detail) = match (checked, failed, above) {
        (Checked::Wrong(what), _, _) => (Outcome::Wrong, format!("wrong: {what}")),
        (Checked::Failed(error), _, _) => (Outcome::Failed, format!("failed: {error}")),
        (Checked::Helped(how), _, _) => (Outcome::NotBelieved, format!("not believed: {how}")),
        (_, Some(ending), _) => (Outcome::Failed, ending),
        (_, _, Some(above)) => (Outcome::NotBelieved, above),
        (Checked::Right { .. }, None, None) => (Outcome::TooNoisy, "was not compared".to_owned()),
    };
    let prior = prior_ns(candidate);
    let in_last_race = raced.race.entry(&name).is_some();
    let (source, setting, threads, workspace, opt_in) = match candidate {
        Candidate::Kernel(entrant) => (
            entrant.source(),
            Some(entrant.params.clone()),
            entrant.threads,
            Some(entrant.workspace.0),
            entrant.opt_in,
        ),
        Candidate::Rival(_) => (Source::Rival, None, raced.threads, None, false),
    };
    Standing {
        name,
        source,
        technique: candidate.technique(),
        numerics: candidate.numerics(),
        opt_in,
        setting,
        threads,
        workspace_bytes: workspace,
        verdict,
        detail,
        times,
        prior_ns: prior,
        measured_over_prior: times.zip(prior).map(|(times, prior)| times.time_ns / prior),
        // A contender that was left out of the last race has few samples on purpose.
        warnings: warnings
            .iter()
            .filter(|_| in_last_race)
            .map(Doubt::from)
            .collect(),
    }
}

/// How a contender that was timed stands to the winner.
fn place(standing: &mut Standing, winner: &str, winner_ns: f64, race: &Race) {
    let Some(times) = &mut standing.times else {
        return;
    };
    let over = times.time_ns / winner_ns;
    times.over_winner = Some(over);
    if matches!(
        standing.verdict,
        Outcome::NotBelieved | Outcome::Wrong | Outcome::Failed
    ) {
        return;
    }
    if standing.name == winner {
        (standing.verdict, standing.detail) = (Outcome::Winner, "winner".to_owned());
        return;
    }
    let compared = race.compare(&standing.name, winner, CONFIDENCE, Indifference::default());
    (standing.verdict, standing.detail) = match compared {
        Some(comparison) => {
            let verdict = match comparison.verdict {
                Verdict::Tie => Outcome::Tie,
                Verdict::Slower => Outcome::Slower,
                // The winner is the fastest of those that count; among them this can only be noise.
                Verdict::Faster if standing.opt_in => Outcome::Faster,
                Verdict::Faster | Verdict::TooNoisy => Outcome::TooNoisy,
            };
            (verdict, comparison.to_string())
        }
        None if race.entry(&standing.name).is_some() => {
            (Outcome::TooNoisy, "too few rounds to tell".to_owned())
        }
        None => (
            Outcome::Slower,
            format!("{over:.2}x slower (in a short race)"),
        ),
    };
}
