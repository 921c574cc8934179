//! `kernelwise learn`: the main job. Races the built-in kernels over a spread of shapes, keeps their times, and shows which wins
//! where, what choosing is worth, and how well times of other shapes can be told from these.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::anyhow;
use kernelwise_backend::HostKernel;
use kernelwise_bench::{SPREAD_OPERATIONS, default_shapes, spread_shapes};
use kernelwise_measure::{Clock, TscClock};
use kernelwise_probe::{Others, StateReader, Tree};
use kernelwise_report::{decade_name, utc};
use kernelwise_select::forecast::{Judged, judge};
use kernelwise_select::pace::Pace;
use kernelwise_select::{CalibrateError, Measured, Observer, RaceOptions, Selector};
use kernelwise_types::units::Share;
use kernelwise_types::{Candidate, DType, Machine, Numerics, Reading, Workload};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use super::asked::{self, Asked};
use super::noise::{self, Noise, Seen};
use super::own_models::zone;
use super::probe::state_now;
use super::runs::{self, Run};
use super::standings::{Gains, Mean, Winner, gains, raced, unsure, winners};
use super::{doctor, report, standings};
use crate::args::{self, Effort, Format};
use crate::exit::Failure;
use crate::records::{Records, now_s};
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
    /// Those of them that were raced again, to see whether the choices still hold.
    repeated: usize,
    /// Workloads on record before that another kernel serves now.
    changed_choices: Vec<String>,
    /// The same with who served and who serves.
    changes: Vec<Change>,
    /// What the run before this one noted; `null` if there was none.
    last_run: Option<Run>,
    /// Workloads measured now for the first time.
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
    /// The report that shows all this; `null` if it could not be written. In the table, a line after it says where it is.
    report: Option<String>,
}

/// A choice that changed.
#[derive(Debug, Serialize)]
struct Change {
    workload: String,
    /// Who served, with parameters.
    from: String,
    /// Who serves now.
    to: String,
    /// Both with what matters of their parameters.
    #[serde(skip)]
    brief: String,
}

/// Samples of every candidate: models learn from the slow ones too, and one sample alone may be somebody else's time.
const LEAST_SAMPLES: usize = 3;

/// A workload is known while one of its candidates has so much weight: that of three samples for four days.
const FRESH: f64 = 2.0;
/// Most shapes are settled long before their share of the time is used up; the large ones may have theirs.
const LARGE: f64 = 4.0;
/// Share of the time in which known shapes are raced again: what has changed since is found in a sample of them.
const AGAIN: f64 = 0.05;
/// Of what is left of that time, one race may take so much, so that there are some however long they take; and not less than so many
/// seconds, in which small shapes are told.
const AGAIN_SHARE: f64 = 0.25;
const AGAIN_LEAST_S: f64 = 0.02;
/// Changed choices that are named.
const MOST_CHANGES: usize = 5;

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
    // Before this program itself keeps the machine busy.
    let (mut around, before_all) = state_now(&clock);
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
    let mut lines = progress::Lines::instead_of(&bar);
    let (mut measured, mut skipped, mut repeated) = (0, 0, 0);
    let mut races = Races::new(&selector, &machine, &clock, args.seed, cancel);
    // Also of those that have faded, which are measured as if they were new.
    let on_record: BTreeSet<String> = found
        .here
        .iter()
        .map(|one| one.workload.to_string())
        .collect();
    let before = choices(&selector, &on_record);
    let again_until_s = spent_s() + AGAIN * all_s;
    for shape in again(&asked, &known, args.seed) {
        let left_s = again_until_s - spent_s();
        if cancel.load(Ordering::Relaxed) || left_s <= 0.0 {
            break;
        }
        let budget_left_s = (all_s - spent_s()).max(0.0);
        bar.set_message(format!("{budget_left_s:.0} s left, racing {shape} again"));
        match races.race(&shape, (AGAIN_SHARE * left_s).max(AGAIN_LEAST_S)) {
            Ok(()) => repeated += 1,
            Err(why) => bar.suspend(|| output::note(&why.to_string())),
        }
    }
    for (done, shape) in shapes.iter().enumerate() {
        if cancel.load(Ordering::Relaxed) || spent_s() > all_s {
            break;
        }
        bar.set_position(done as u64);
        lines.tell(spent_s(), || {
            let to_go_s = (all_s - spent_s()).max(0.0);
            format!(
                "{measured} of {} shapes measured after {:.0} s, at most {to_go_s:.0} s to go",
                shapes.len(),
                spent_s()
            )
        });
        let left_s = (all_s - spent_s()).max(0.0);
        // The time may end before the shapes, or the shapes before the time.
        let pace_s = bar.eta().as_secs_f64();
        let at_most_s = if done < 3 { left_s } else { pace_s.min(left_s) };
        bar.set_message(format!("{at_most_s:.0} s left, racing {shape}"));
        let share_s = LARGE * left_s / (shapes.len() - done) as f64;
        match races.race(shape, share_s) {
            Ok(()) => measured += 1,
            Err(why) => {
                bar.suspend(|| output::note(&why.to_string()));
                skipped += 1;
            }
        }
    }
    bar.finish_and_clear();
    let Races { seen, paces, .. } = races;
    let after_all = around.look(clock.now());
    records.memory().keep_paces(&paces);
    let evidence = records.memory().with_paces(selector.evidence(), &paces);
    let raced = raced(&selector, &evidence);
    let changes = changes(&before, &choices(&selector, &on_record));
    let bar = progress::step(report::FORECASTING);
    let models = judge(&evidence, zone(), args.seed);
    bar.finish_and_clear();
    let mut runs = runs::kept(&records, &machine);
    let mut learned = Learned {
        records: records.path(),
        known_before: known.len(),
        repeated,
        changed_choices: changes.iter().map(|one| one.workload.clone()).collect(),
        changes,
        last_run: runs.last().cloned(),
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
        report: None,
    };
    // A person need not wait for the rest. Whoever closed the pipe has what he wanted, and what was found is kept all the same.
    let mut told = match args.format {
        Format::Json => Ok(()),
        Format::Table => output::text(&text(&learned)),
    };
    // The next one who asks need not fit models first.
    let bar = progress::step("fitting models");
    records.memory().models(&evidence, args.seed);
    bar.finish_and_clear();
    let mut warnings = noise::warnings(&learned.noise);
    warnings.extend(doctor::disturbed(&machine, &before_all, &after_all));
    runs.push(noted(args, &machine, &kernels, &learned, warnings));
    runs::keep(&records, &machine, &runs);
    let noticed = selector.noticed(0);
    let page = report::beside(&report::Material {
        records: &records,
        machine: &machine,
        calibration: Some(&calibration),
        evidence: &evidence,
        judged: &learned.models,
        runs: &runs,
        events: Some(report::keep_events(
            &records,
            &machine,
            &noticed,
            clock.now(),
        )),
        seed: args.seed,
        command: None,
    })?;
    if let Some(page) = page {
        output::note(&format!("the report is {}", page.display()));
        learned.report = Some(page.display().to_string());
    }
    if matches!(args.format, Format::Json) {
        told = output::json("kernelwise.learn/1", &learned);
    }
    // What was found is told even if it cannot be kept.
    records.close()?;
    match cancel.load(Ordering::Relaxed) {
        true => Err(Failure::Interrupted),
        false => told,
    }
}

/// Who serves each of these workloads.
fn choices(selector: &Selector, workloads: &BTreeSet<String>) -> BTreeMap<String, Candidate> {
    let choices = workloads.iter().filter_map(|name| {
        let decision = selector.explain(&name.parse().ok()?).ok()?;
        Some((name.clone(), decision.chosen.candidate))
    });
    choices.collect()
}

/// What is served by another than before.
fn changes(
    before: &BTreeMap<String, Candidate>,
    after: &BTreeMap<String, Candidate>,
) -> Vec<Change> {
    let changes = before.iter().filter_map(|(workload, from)| {
        let to = after.get(workload).filter(|to| *to != from)?;
        let brief = [from, to].map(standings::name);
        Some(Change {
            workload: workload.clone(),
            from: from.to_string(),
            to: to.to_string(),
            brief: match brief[0] == brief[1] {
                true => format!("{}, other parameters", brief[0]),
                false => brief.join(" -> "),
            },
        })
    });
    changes.collect()
}

/// What is noted of this run, for the next one and for the report.
fn noted(
    args: &args::Learn,
    machine: &Machine,
    kernels: &[Arc<dyn HostKernel>],
    learned: &Learned,
    warnings: Vec<String>,
) -> Run {
    let all = learned.gains.get(ALL);
    let mean = |of: fn(&Gains) -> &Option<Mean>| Some(of(all?).as_ref()?.geometric);
    let openblas = |kernel: &Arc<dyn HostKernel>| kernel.spec().id.variant() == "openblas";
    Run {
        at_s: now_s(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: runs::command(args),
        seed: args.seed,
        threads: machine.usable_threads(),
        openblas: kernels.iter().any(openblas),
        measured: learned.measured,
        repeated: learned.repeated,
        single_best_over_choice: mean(|gains| &gains.single_best_over_choice),
        static_rule_over_choice: mean(|gains| &gains.static_rule_over_choice),
        median_error_factor: learned
            .models
            .all
            .as_ref()
            .map(|all| all.median_error_factor),
        warnings,
    }
}

/// All operations together, in the list of gains.
const ALL: &str = "all";

fn text(learned: &Learned) -> String {
    let rows = learned.winners.iter().map(|winner| {
        let others = winner.others.iter().take(2);
        let others: Vec<String> = others
            .map(|(name, wins)| format!("{name} {wins}"))
            .collect();
        vec![
            winner.operation.clone(),
            decade_name(winner.decade),
            format!("{} of {}", winner.wins, winner.shapes),
            winner.kernel.clone(),
            others.join(", "),
        ]
    });
    let mut text =
        "which kernel wins where; size is the bytes that one call must move\n".to_owned();
    let headings = ["operation", "size from", "wins", "kernel", "others"];
    text += &output::columns(&headings, &[1, 2], rows.collect());
    text += "time of a fixed choice ÷ time of the learned choice (geometric mean, 90 % interval); above 1 means choosing helps\n";
    let range = |mean: &Option<Mean>| match mean {
        Some(Mean {
            geometric,
            low: Some(low),
            high: Some(high),
        }) => format!("{geometric:.3} ({low:.3} to {high:.3})"),
        Some(mean) => format!("{:.3}", mean.geometric),
        None => "-".to_owned(),
    };
    let (all, operations): (Vec<_>, Vec<_>) =
        learned.gains.iter().partition(|(name, _)| *name == ALL);
    let rows = operations.into_iter().chain(all).map(|(operation, gains)| {
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
    text + &since(learned)
}

/// What has changed since the last run; nothing if this is the first.
fn since(learned: &Learned) -> String {
    let mut text = String::new();
    if learned.known_before > 0 {
        text += &format!(
            "of the {} known before, {} were raced again; choices that changed, of all on record: {}\n",
            learned.known_before,
            learned.repeated,
            learned.changes.len()
        );
    }
    for change in learned.changes.iter().take(MOST_CHANGES) {
        text += &format!("  {}: {}\n", change.workload, change.brief);
    }
    if let Some(more) = learned.changes.len().checked_sub(MOST_CHANGES + 1) {
        text += &format!("  … and {} more\n", more + 1);
    }
    let Some(last) = &learned.last_run else {
        return text;
    };
    let all = learned.gains.get(ALL);
    let gain = |of: fn(&Gains) -> &Option<Mean>| all.and_then(|all| of(all).as_ref());
    let gain = |of| gain(of).map(|mean| mean.geometric);
    let error = learned.models.all.as_ref();
    let pairs = [
        (
            "best single kernel ÷ learned",
            "",
            last.single_best_over_choice,
            gain(|all| &all.single_best_over_choice),
        ),
        (
            "rule written by hand ÷ learned",
            "",
            last.static_rule_over_choice,
            gain(|all| &all.static_rule_over_choice),
        ),
        (
            "half of the foretold times within",
            "x",
            last.median_error_factor,
            error.map(|all| all.median_error_factor),
        ),
    ];
    let pairs = pairs
        .iter()
        .filter_map(|(name, x, then, now)| Some((name, x, (*then)?, (*now)?)));
    let pairs: Vec<String> = pairs
        .map(|(name, x, then, now)| format!("{name} {x}{then:.3} -> {x}{now:.3}"))
        .collect();
    if !pairs.is_empty() {
        let when = utc(last.at_s);
        text += &format!("since the run of {when}: {}\n", pairs.join(", "));
    }
    text
}

/// The races of a run, with what is seen beside them.
struct Races<'a> {
    selector: &'a Selector,
    machine: &'a Machine,
    clock: &'a TscClock,
    seed: u64,
    cancel: &'a AtomicBool,
    state: StateReader,
    others: Others,
    /// Processors that others kept busy during the last race, if that is known.
    busy: Option<u32>,
    pace: Pace,
    /// The pace beside each race, by workload.
    paces: BTreeMap<String, f64>,
    seen: Seen,
}

impl<'a> Races<'a> {
    fn new(
        selector: &'a Selector,
        machine: &'a Machine,
        clock: &'a TscClock,
        seed: u64,
        cancel: &'a AtomicBool,
    ) -> Self {
        Self {
            selector,
            machine,
            clock,
            seed,
            cancel,
            state: StateReader::new(Tree::system()),
            others: Others::new(Tree::system()),
            busy: None,
            pace: Pace::new(),
            paces: BTreeMap::new(),
            seen: Seen::default(),
        }
    }

    /// Races the candidates of one shape for so many seconds at the most.
    fn race(&mut self, shape: &Workload, seconds: f64) -> Result<(), CalibrateError> {
        let mut now = self.state.look(self.clock.now());
        // This program keeps processors busy itself, which explains nothing.
        let all = f64::from(self.machine.cpu.logical.max(1));
        let busy = self
            .busy
            .map(|busy| Share::new((f64::from(busy) / all).min(1.0)));
        now.cpu_utilisation = match busy {
            Some(Ok(share)) => Reading::Known(share),
            _ => Reading::unknown("nobody knows what others do"),
        };
        self.selector.set_state(&now);
        self.seen.clock(&now.frequency);
        let mut looks = Looks::new(&mut self.pace, self.clock);
        let raced = race(
            self.selector,
            shape,
            seconds,
            self.seed,
            &mut looks,
            self.cancel,
        )?;
        let pace_ns = looks.mean_ns();
        self.busy = self.others.look();
        self.seen.race(&raced, pace_ns, zone());
        self.seen.others(self.busy);
        self.paces.insert(shape.to_string(), pace_ns);
        Ok(())
    }
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
) -> Result<Vec<Measured>, CalibrateError> {
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

/// Known shapes of the operations asked for, in a random order, operation after operation in turn: a sample however soon it ends. The
/// seed decides, and how many there are, so that the next run takes others.
fn again(asked: &[Asked], known: &BTreeSet<String>, seed: u64) -> Vec<Workload> {
    let mut random = Pcg64Mcg::seed_from_u64(seed.wrapping_add(known.len() as u64));
    let mut turns: BTreeMap<&str, Vec<Workload>> = BTreeMap::new();
    let shapes: Vec<Workload> = known.iter().filter_map(|name| name.parse().ok()).collect();
    for shape in &shapes {
        if asked.is_empty() || asked.iter().any(|asked| asked.is(shape)) {
            let operation = shape.operation().name();
            turns.entry(operation).or_default().push(shape.clone());
        }
    }
    let mut turns: Vec<Vec<Workload>> = turns.into_values().collect();
    for list in &mut turns {
        list.shuffle(&mut random);
    }
    in_turn(&turns).cloned().collect()
}

/// The first of each list, then the second of each, and so on.
fn in_turn(turns: &[Vec<Workload>]) -> impl Iterator<Item = &Workload> {
    let longest = turns.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|i| turns.iter().filter_map(move |list| list.get(i)))
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
    let mut seen = BTreeSet::new();
    let all = named.iter().chain(in_turn(&turns));
    let mut all: Vec<Workload> = all
        .filter(|shape| seen.insert(shape.to_string()))
        .cloned()
        .collect();
    if !asked.is_empty() {
        all.retain(|shape| asked.iter().any(|asked| asked.is(shape)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(shapes: &[&str]) -> BTreeSet<String> {
        shapes.iter().map(|shape| (*shape).to_owned()).collect()
    }

    #[test]
    fn known_shapes_come_again_by_turns_of_operations() {
        let copies: Vec<String> = (1..30).map(|n| format!("copy f32 {n}")).collect();
        let copies: Vec<&str> = copies.iter().map(String::as_str).collect();
        let both = known(&[&copies[..], &["matmul f32 2x3x4", "matmul f32 4x3x2"]].concat());
        let first = again(&[], &both, 1);
        assert_eq!(first.len(), 31);
        let operations: Vec<&str> = first.iter().map(|one| one.operation().name()).collect();
        assert_eq!(
            operations[..5],
            ["copy", "matmul", "copy", "matmul", "copy"]
        );
        assert_eq!(again(&[], &both, 1), first, "the seed decides");
        assert_ne!(again(&[], &both, 2), first);
        let asked = [Asked::parse("matmul").unwrap()];
        assert_eq!(again(&asked, &both, 1).len(), 2);
        assert!(again(&[], &BTreeSet::new(), 1).is_empty());
    }

    #[test]
    fn changes_are_of_what_both_know() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, Candidate> {
            let candidate = |variant: &str| Candidate {
                kernel: format!("cpu-copy-f32-{variant}").parse().unwrap(),
                params: "block=4,threads=2".parse().unwrap(),
            };
            let pairs = pairs.iter().map(|(a, b)| ((*a).to_owned(), candidate(b)));
            pairs.collect()
        };
        let before = map(&[("w1", "a"), ("w2", "a"), ("gone", "a")]);
        let after = map(&[("w1", "a"), ("w2", "b"), ("new", "c")]);
        let changes = changes(&before, &after);
        let told: Vec<[&str; 3]> = changes
            .iter()
            .map(|one| [one.workload.as_str(), one.to.as_str(), one.brief.as_str()])
            .collect();
        let brief = "cpu-copy-f32-a (threads=2) -> cpu-copy-f32-b (threads=2)";
        assert_eq!(told, [["w2", "cpu-copy-f32-b (block=4,threads=2)", brief]]);
    }
}
