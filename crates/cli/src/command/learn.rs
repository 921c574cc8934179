//! `kernelwise learn`: the main job. Races the built-in kernels over a spread of shapes, keeps their times, and shows which wins
//! where, what choosing is worth, and how well times of other shapes can be told from these.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::anyhow;
use kernelwise_bench::{SPREAD_OPERATIONS, default_shapes, spread_shapes};
use kernelwise_measure::{Clock, TscClock};
use kernelwise_probe::{Others, StateReader, Tree};
use kernelwise_select::forecast::{Judged, judge};
use kernelwise_select::pace::Pace;
use kernelwise_select::{Measured, Observer, RaceOptions, Selector};
use kernelwise_types::units::Nanos;
use kernelwise_types::{DType, Machine, Numerics, Workload};
use serde::Serialize;

use super::asked::{self, Asked};
use super::noise::{self, Noise, Seen};
use super::own_models::zone;
use super::report;
use super::standings::{Gains, Mean, Winner, gains, raced, unsure, winners};
use crate::args::{self, Effort, Format};
use crate::exit::Failure;
use crate::records::Records;
use crate::{interrupt, output, progress};

impl Effort {
    fn seconds(self) -> f64 {
        match self {
            Self::Minimal => 15.0,
            Self::Balanced => 60.0,
            Self::Extensive => 300.0,
            Self::Full => 1800.0,
        }
    }

    /// Shapes drawn for each operation.
    fn drawn(self) -> usize {
        match self {
            Self::Minimal => 12,
            Self::Balanced => 48,
            Self::Extensive => 160,
            Self::Full => 640,
        }
    }
}

/// What a run learned.
#[derive(Debug, Serialize)]
struct Learned {
    /// Where it is kept.
    records: String,
    /// Workloads that were on record before.
    known_before: usize,
    /// Those of them that another kernel serves now.
    changed_choices: Vec<String>,
    /// Workloads measured now.
    measured: usize,
    /// Shapes that were not reached.
    left: usize,
    seconds: f64,
    /// Which kernel wins where.
    winners: Vec<Winner>,
    /// How many times as long others take as the choices made, on the times learned from.
    gains: BTreeMap<String, Gains>,
    /// Workloads whose choice may well not be within the indifference zone of the best.
    unsure: Vec<String>,
    /// Kernels that do not run any more.
    quarantined: Vec<String>,
    /// What the noise of this run allows to say.
    noise: Noise,
    /// How good models of times are on shapes they have not seen.
    models: Judged,
    interrupted: bool,
}

/// Samples of every candidate: models learn from the slow ones too, and one sample alone may be somebody else's time.
const LEAST_SAMPLES: usize = 3;

/// A workload is known while one of its candidates has so much weight: that of three samples for four days.
const FRESH: f64 = 2.0;
/// Most shapes are settled long before their share of the time is used up; the large ones may have theirs.
const LARGE: f64 = 4.0;

/// Learns and shows it.
pub(crate) fn run(args: &args::Learn) -> Result<(), Failure> {
    let machine = kernelwise_probe::machine();
    let cancel = interrupt::flag()?;
    let clock = TscClock::new();
    let began = clock.now();
    let spent_s = || clock.now().saturating_sub(began) as f64 / 1e9;
    let all_s = args.time_budget.unwrap_or(args.effort.seconds());
    // What was mistyped is said before anything is measured.
    let (asked, named) = asked(args)?;
    let records = Records::open(&machine)?;
    records.must_learn("learn")?;
    let calibration = records.calibrated(Duration::from_secs_f64((0.1 * all_s).min(6.0)))?;
    let kernels = kernelwise_cpu::kernels()?;
    let found = records.found(&kernels, Some(&calibration))?;
    let numerics = match args.allow_reduced {
        true => Numerics::ReducedPrecision,
        false => Numerics::Reordered,
    };
    let selector = Selector::builder(machine.clone(), kernels.clone())
        .calibration(calibration.clone())
        .numerics(numerics)
        .seed(args.seed)
        .quarantined(records.quarantined()?)
        .observer(Arc::clone(records.memory()) as Arc<dyn Observer>)
        .background(false)
        .build()?;
    selector.recall(&found.here);
    records.note_ignored(&found);
    // What fades or was measured under other software is to be measured again.
    let is_fresh =
        |one: &&kernelwise_select::Remembered| one.tally.weight() >= FRESH && !one.tally.is_stale();
    let fresh = found.here.iter().filter(is_fresh);
    let known: BTreeSet<String> = fresh.map(|one| one.workload.to_string()).collect();
    if !known.is_empty() {
        let count = known.len();
        output::note(&format!(
            "{count} workloads are known from before ({}): going on from there",
            records.path()
        ));
    }
    let shapes = shapes(args, &asked, &named, &machine, &known);
    if shapes.is_empty() && known.is_empty() {
        let drawn = SPREAD_OPERATIONS.join(", ");
        return Err(Failure::NotFound(anyhow!(
            "there are no shapes to learn from: shapes are drawn for {drawn}, others can be named with --shapes"
        )));
    }
    let bar = progress::steps(shapes.len());
    let (mut measured, mut skipped) = (0, 0);
    let (mut pace, mut paces) = (Pace::new(), BTreeMap::new());
    let (mut others, mut seen) = (Others::new(Tree::system()), Seen::default());
    let mut state = StateReader::new(Tree::system());
    let before = choices(&selector, &known);
    for (done, shape) in shapes.iter().enumerate() {
        if cancel.load(Ordering::Relaxed) || spent_s() > all_s {
            break;
        }
        bar.set_position(done as u64);
        let left_s = (all_s - spent_s()).max(0.0);
        // The time may end before the shapes, or the shapes before the time.
        let pace_s = bar.eta().as_secs_f64();
        let at_most_s = if done < 3 { left_s } else { pace_s.min(left_s) };
        bar.set_message(format!("{at_most_s:.0} s left, racing {shape}"));
        let share_s = LARGE * left_s / (shapes.len() - done) as f64;
        let now = state.look(clock.now());
        selector.set_state(&now);
        seen.clock(&now.frequency);
        let mut looks = Looks::new(&mut pace, &clock);
        match race(&selector, shape, share_s, args.seed, &mut looks, cancel) {
            Ok(candidates) => {
                measured += 1;
                let pace_ns = looks.mean_ns();
                seen.race(&candidates, pace_ns, zone());
                seen.others(others.look());
                paces.insert(shape.to_string(), pace_ns);
            }
            Err(why) => {
                bar.suspend(|| output::note(&why.to_string()));
                skipped += 1;
            }
        }
    }
    bar.finish_and_clear();
    records.memory().keep_paces(&paces);
    let evidence = records.memory().with_paces(selector.evidence(), &paces);
    let raced = raced(&selector, &evidence);
    let after = choices(&selector, &known);
    let changed = before
        .iter()
        .filter(|(name, chosen)| after.get(*name) != Some(chosen));
    let bar = progress::uncounted(report::FORECASTING);
    let models = judge(&evidence, zone(), args.seed);
    bar.finish_and_clear();
    let learned = Learned {
        records: records.path(),
        known_before: known.len(),
        changed_choices: changed.map(|(name, _)| name.clone()).collect(),
        measured,
        left: shapes.len() - measured - skipped,
        winners: winners(&raced),
        gains: gains(&raced, &machine),
        unsure: unsure(&raced),
        quarantined: selector
            .quarantined()
            .iter()
            .map(|one| format!("{} on {}: {}", one.kernel, one.workload, one.evidence))
            .collect(),
        noise: seen.noise(zone()),
        models,
        seconds: spent_s(),
        interrupted: cancel.load(Ordering::Relaxed),
    };
    // Whoever closed the pipe has what he wanted, and what was found is kept all the same.
    let told = match args.format {
        Format::Json => output::json("kernelwise.learn/1", &learned),
        Format::Table => output::text(&text(&learned)),
    };
    // The next one who asks need not fit models first.
    let bar = progress::uncounted("fitting models");
    records.memory().models(&evidence, args.seed);
    bar.finish_and_clear();
    report::keep_events(&records, &machine, &selector.noticed(0), clock.now());
    if let Some(page) = report::beside(&records, &evidence, &learned.models, args.seed)? {
        output::note(&format!("the report is {}", page.display()));
    }
    // What was found is told even if it cannot be kept.
    records.close()?;
    match cancel.load(Ordering::Relaxed) {
        true => Err(Failure::Interrupted),
        false => told,
    }
}

/// Who serves each of these workloads.
fn choices(selector: &Selector, workloads: &BTreeSet<String>) -> BTreeMap<String, String> {
    let choices = workloads.iter().filter_map(|name| {
        let decision = selector.explain(&name.parse().ok()?).ok()?;
        Some((name.clone(), decision.chosen.candidate.to_string()))
    });
    choices.collect()
}

fn text(learned: &Learned) -> String {
    let rows = learned.winners.iter().map(|winner| {
        let others = winner.others.iter().take(2);
        let others: Vec<String> = others
            .map(|(name, wins)| format!("{name} {wins}"))
            .collect();
        vec![
            winner.operation.clone(),
            Nanos::new(winner.from_ns).map_or_else(|_| "-".to_owned(), |from| from.to_string()),
            format!("{} of {}", winner.wins, winner.shapes),
            winner.kernel.clone(),
            others.join(", "),
        ]
    });
    let mut text = "which kernel wins where; times are those of the best\n".to_owned();
    let headings = ["operation", "from", "wins", "kernel", "others"];
    text += &output::columns(&headings, &[1, 2], rows.collect());
    text += "what a fixed choice takes over the learned one, geometric mean and where it lies nine times in ten\n";
    let range = |mean: &Option<Mean>| match mean {
        Some(Mean {
            geometric,
            low: Some(low),
            high: Some(high),
        }) => format!("{geometric:.3} ({low:.3} to {high:.3})"),
        Some(mean) => format!("{:.3}", mean.geometric),
        None => "-".to_owned(),
    };
    let rows = learned.gains.iter().map(|(operation, gains)| {
        vec![
            operation.clone(),
            gains.shapes.to_string(),
            range(&gains.single_best_over_choice),
            range(&gains.static_rule_over_choice),
        ]
    });
    let headings = ["", "shapes", "best single kernel", "rule written by hand"];
    text += &output::columns(&headings, &[1], rows.collect());
    text +=
        " (on the times that were learned from; `kernelwise bench choices` judges on fresh ones)\n";
    if let Some(all) = &learned.models.all {
        text += &format!(
            "times of shapes never measured, at the pace of the moment: half within x{:.2}, nine in ten within x{:.2}; {:.0} % in their 90 % intervals\n",
            all.median_error_factor,
            all.p90_error_factor,
            100.0 * all.coverage_90
        );
    }
    if !learned.unsure.is_empty() {
        text += &format!(
            "unsure: {} of the choices, such as {}\n",
            learned.unsure.len(),
            learned
                .unsure
                .iter()
                .take(3)
                .cloned()
                .collect::<Vec<_>>()
                .join("; ")
        );
    }
    if learned.measured > 0 {
        text += &noise::text(&learned.noise);
    }
    for one in &learned.quarantined {
        text += &format!("quarantined: {one}\n");
    }
    text += &format!(
        "{} workloads measured in {:.0} s, {} known before, {} not reached; kept in {}\n",
        learned.measured, learned.seconds, learned.known_before, learned.left, learned.records
    );
    if learned.known_before > 0 {
        text += &format!(
            "of those known before, {} are served by another kernel now\n",
            learned.changed_choices.len()
        );
    }
    text
}

/// Looks at how fast the machine is while a race goes on.
struct Looks<'a> {
    pace: &'a mut Pace,
    clock: &'a TscClock,
    last: u64,
    sum_ln: f64,
    count: f64,
}

/// Between two looks, in nanoseconds: one takes some ten microseconds.
const LOOK_EVERY_NS: u64 = 3_000_000;

impl<'a> Looks<'a> {
    fn new(pace: &'a mut Pace, clock: &'a TscClock) -> Self {
        let mut looks = Self {
            pace,
            clock,
            last: 0,
            sum_ln: 0.0,
            count: 0.0,
        };
        looks.look();
        looks
    }

    fn look(&mut self) {
        self.sum_ln += self.pace.look(self.clock).ln();
        self.count += 1.0;
        self.last = self.clock.now();
    }

    fn look_if_due(&mut self) {
        if self.clock.now().saturating_sub(self.last) >= LOOK_EVERY_NS {
            self.look();
        }
    }

    /// The geometric mean, with one more look.
    fn mean_ns(&mut self) -> f64 {
        self.look();
        (self.sum_ln / self.count).exp()
    }
}

/// Measures one shape.
fn race(
    selector: &Selector,
    shape: &Workload,
    seconds: f64,
    seed: u64,
    looks: &mut Looks<'_>,
    cancel: &AtomicBool,
) -> Result<Vec<Measured>, kernelwise_select::CalibrateError> {
    let options = RaceOptions {
        budget: Duration::from_secs_f64(seconds),
        least_samples: LEAST_SAMPLES,
        seed,
        ..RaceOptions::default()
    };
    let mut watch = |_: kernelwise_select::Progress<'_>| {
        looks.look_if_due();
        match cancel.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    selector.calibrate(std::slice::from_ref(shape), &options, &mut watch)
}

/// The operations asked for, and the shapes in files.
fn asked(args: &args::Learn) -> Result<(Vec<Asked>, Vec<Workload>), Failure> {
    let asked: Result<Vec<Asked>, Failure> = args.op.iter().map(|op| Asked::parse(op)).collect();
    let mut named = Vec::new();
    for path in &args.shapes {
        named.extend(asked::shapes_in(path, DType::F32)?);
    }
    Ok((asked?, named))
}

/// Those of the files, the usual ones and drawn ones that are not on record yet, operation after operation in turn, so that
/// whoever ends early has some of each.
fn shapes(
    args: &args::Learn,
    asked: &[Asked],
    named: &[Workload],
    machine: &Machine,
    known: &BTreeSet<String>,
) -> Vec<Workload> {
    let is_new = |shape: &Workload| !known.contains(&shape.to_string());
    let mut turns: Vec<Vec<Workload>> = Vec::new();
    // Others than those have only their usual shapes.
    let named_only = asked.iter().map(Asked::as_str);
    let named_only = named_only.filter(|name| {
        let operation = name.split('.').next().unwrap_or(name);
        !SPREAD_OPERATIONS.contains(&operation)
    });
    for operation in SPREAD_OPERATIONS.into_iter().chain(named_only) {
        // The same seed draws the same shapes, so those that come next are new ones.
        let before = known.iter().filter(|name| name.starts_with(operation));
        let drawn = spread_shapes(operation, before.count() + args.effort.drawn(), args.seed);
        let drawn = drawn.into_iter().filter(is_new).take(args.effort.drawn());
        let usual = default_shapes(operation, machine)
            .into_iter()
            .filter(is_new);
        let usual = usual.take(args.effort.drawn() / 2);
        let mut both: Vec<Workload> = Vec::new();
        let (mut drawn, mut usual) = (drawn.fuse(), usual.fuse());
        loop {
            let next = [drawn.next(), usual.next()];
            if next.iter().all(Option::is_none) {
                break;
            }
            both.extend(next.into_iter().flatten());
        }
        turns.push(both);
    }
    let longest = turns.iter().map(Vec::len).max().unwrap_or(0);
    let in_turn = (0..longest).flat_map(|i| turns.iter().filter_map(move |list| list.get(i)));
    let mut seen = BTreeSet::new();
    let all = named.iter().chain(in_turn);
    let mut all: Vec<Workload> = all
        .filter(|shape| seen.insert(shape.to_string()))
        .cloned()
        .collect();
    if !asked.is_empty() {
        all.retain(|shape| asked.iter().any(|asked| asked.is(shape)));
    }
    all
}
