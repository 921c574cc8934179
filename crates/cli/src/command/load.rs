//! `kernelwise demo load`: what choosing is worth on a machine that is shared.
//!
//! A product and a convolution by turns, as in a small network, while other programs come and go. Contenders take turns of a quarter of a
//! second, so that all of them meet the same moments; who is held against whom is held so in each round, and rounds far out do not count. Whoever fixes the number of threads has to do so for all of them.

use std::ops::ControlFlow;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kernelwise::Kernelwise;
use kernelwise_backend::sample::{self, Arrangement, Tensor, Values};
use kernelwise_backend::{
    Call, Host, HostKernel, Scratch, Setting, Terms, prior, run as run_kernel,
};
use kernelwise_measure::{Clock, TscClock};
use kernelwise_rivals::OpenBlas;
use kernelwise_select::{Measured, RaceOptions};
use kernelwise_types::op::Operation;
use kernelwise_types::{Candidate, Fingerprint, Machine, Technique, Workload};
use serde::Serialize;

use super::standings;
use crate::args::{self, Format};
use crate::exit::Failure;
use crate::records::Records;
use crate::{interrupt, output, progress};

/// What is computed, by turns.
const STREAM: [&str; 2] = [
    "matmul f32 384x384x384",
    "conv2d f32 n1 c32 h48 w48 k64 r3 s3 pad1",
];

/// The note in which the last result is kept, for the report.
pub(super) const KEPT: &str = "demo load";

const KERNELWISE: &str = "kernelwise";

/// A library that is left to itself.
const LIBRARY: &str = "library default";

/// How long a contender runs before the next has its turn, in seconds.
const TURN_S: f64 = 0.25;

/// How long it is looked whether threads of this process still compute after a turn, and how often at the most.
const LOOK: Duration = Duration::from_millis(10);
#[cfg(unix)]
const MOST_LOOKS: u32 = 50;

#[derive(Debug, Serialize)]
struct Told {
    /// Processors of this machine, and programs that came and went.
    processors: u32,
    others: u32,
    stream: Vec<&'static str>,
    contenders: Vec<Fixed>,
    phases: Vec<Phase>,
    /// The number of threads that served most calls over all phases.
    best_fixed: String,
    /// Calls of Kernelwise over those of that number of threads, while others ran; `null` where nobody had a turn.
    kernelwise_over_best_fixed: Option<f64>,
    /// The same over the library's default.
    kernelwise_over_library_default: Option<f64>,
    /// The same over the best contender of all, while nobody else ran.
    kernelwise_over_best_idle: Option<f64>,
    /// The same over the best number of threads, over all phases.
    kernelwise_over_best_fixed_overall: Option<f64>,
    /// Where each of these lies nine times in ten; `null` of fewer than five rounds.
    intervals_90: Intervals,
}

#[derive(Debug, Serialize)]
struct Intervals {
    kernelwise_over_best_fixed: Option<[f64; 2]>,
    kernelwise_over_library_default: Option<[f64; 2]>,
    kernelwise_over_best_idle: Option<[f64; 2]>,
    kernelwise_over_best_fixed_overall: Option<[f64; 2]>,
}

/// A contender that changes nothing, whoever else runs.
#[derive(Debug, Serialize)]
struct Fixed {
    name: String,
    /// Who computes each part of the stream.
    kernels: Vec<String>,
    /// Whether each of them is a library's; a part that no library here computes is left to the fastest kernel.
    of_a_library: Vec<bool>,
}

#[derive(Debug, Serialize)]
struct Phase {
    others: u32,
    /// Calls per second, by contender: the mean over the middle half of its turns. Neighbours on a shared host halve the speed of single turns,
    /// whoever has them.
    calls_per_s: Vec<(String, f64)>,
    /// The same in its slowest and in its fastest turn.
    turns_calls_per_s: Vec<(String, f64, f64)>,
    /// The same in each turn, one after the other.
    #[serde(skip)]
    turns: Vec<Turns>,
    /// Processors that Kernelwise took to be in use by others, in the end.
    load_seen: Option<u32>,
    /// Who computes each part of the stream for Kernelwise, in the end.
    serves: Vec<String>,
    /// Calls of Kernelwise that were trials, and what they took longer than those they replaced, as a share of all its time.
    trials: u64,
    trials_excess_share: f64,
    /// Time in which results of Kernelwise were held against the reference, as a share of all its time.
    verification_share: f64,
}

impl Phase {
    fn of(&self, name: &str) -> f64 {
        let found = self.calls_per_s.iter().find(|(known, _)| known == name);
        found.map_or(0.0, |(_, calls)| *calls)
    }

    /// Calls of Kernelwise over those of another in each round of turns, as logarithms. What both of them meet in a round cancels.
    fn kernelwise_over(&self, name: &str) -> Vec<f64> {
        let turns = |name: &str| self.turns.iter().find(|one| one.name == name);
        let (Some(mine), Some(theirs)) = (turns(KERNELWISE), turns(name)) else {
            return Vec::new();
        };
        let rounds = mine.rates.iter().zip(&theirs.rates);
        rounds.map(|(mine, theirs)| (mine / theirs).ln()).collect()
    }
}

/// Keeps a processor busy until whoever started it ends.
pub(crate) fn burn() -> Result<(), Failure> {
    let over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&over);
    std::thread::spawn(move || {
        // The end of the input, or any trouble with it, is the end.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        told.store(true, Ordering::Relaxed);
    });
    let mut x = 1.0_f64;
    while !over.load(Ordering::Relaxed) {
        for _ in 0..10_000 {
            x = std::hint::black_box(x * 1.000_000_1 + 1e-9);
        }
    }
    Ok(())
}

/// Other programs; they end when this is dropped.
struct Others(Vec<Child>);

impl Others {
    fn start(count: u32) -> std::io::Result<Self> {
        let program = std::env::current_exe()?;
        let mut others = Self(Vec::new());
        for _ in 0..count {
            let child = Command::new(&program)
                .args(["demo", "burn"])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            others.0.push(child);
        }
        Ok(others)
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that ended already needs no telling.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Who computes a part of the stream for somebody who changes nothing.
enum Means {
    /// This kernel with this setting.
    Kernel(Arc<dyn HostKernel>, Setting),
    /// OpenBLAS on so many threads of its own, as a program has it that links it.
    OpenBlas(OpenBlas, usize),
}

impl Means {
    /// Whether a library computes.
    fn is_library(&self) -> bool {
        match self {
            Self::Kernel(kernel, _) => kernel.spec().technique == Technique::Library,
            Self::OpenBlas(..) => true,
        }
    }

    fn words(&self, workload: &Workload, machine: &Machine) -> String {
        match self {
            Self::Kernel(kernel, setting) => {
                let space = kernel.space(workload, machine);
                let params = space.params(setting).unwrap_or_default();
                Candidate {
                    kernel: kernel.spec().id.clone(),
                    params,
                }
                .to_string()
            }
            Self::OpenBlas(_, threads) => format!("OpenBLAS on {threads} threads of its own"),
        }
    }

    fn run(
        &self,
        call: &mut Call<'_, '_>,
        scratch: &mut Scratch,
        terms: &Terms<'_>,
    ) -> Result<(), Failure> {
        match self {
            Self::Kernel(kernel, setting) => {
                Ok(run_kernel(kernel.as_ref(), call, setting, scratch, terms)?)
            }
            Self::OpenBlas(blas, threads) => {
                let (workload, inputs, outputs) = call.parts();
                let (Operation::Matmul(product), [a, b], [c]) =
                    (workload.operation(), inputs, outputs)
                else {
                    return Err(Failure::Failed(anyhow::anyhow!(
                        "OpenBLAS computes matrix products only"
                    )));
                };
                let (m, n, k) = (product.m, product.n, product.k);
                let (a, b, c) = (a.as_slice()?, b.as_slice()?, c.as_mut_slice()?);
                blas.set_threads(*threads)?;
                Ok(blas.sgemm(m, n, k, a, product.trans_a, b, product.trans_b, c)?)
            }
        }
    }
}

/// Who computes the stream.
enum Contender {
    /// By these means, one for each part of the stream.
    Fixed(String, Vec<Means>),
    Kernelwise,
}

impl Contender {
    /// What there is to say of one that is fixed, on the parts of the stream.
    fn fixed(&self, workloads: &[Workload], machine: &Machine) -> Option<Fixed> {
        let Self::Fixed(name, means) = self else {
            return None;
        };
        Some(Fixed {
            name: name.clone(),
            of_a_library: means.iter().map(Means::is_library).collect(),
            kernels: (means.iter().zip(workloads))
                .map(|(means, workload)| means.words(workload, machine))
                .collect(),
        })
    }

    fn name(&self) -> &str {
        match self {
            Self::Fixed(name, _) => name,
            Self::Kernelwise => KERNELWISE,
        }
    }
}

/// One part of the stream, with its operands.
struct Part {
    workload: Workload,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
}

impl Part {
    fn new(text: &str, seed: u64) -> Result<Self, Failure> {
        let workload: Workload = text.parse()?;
        let draw = (Arrangement::Contiguous, Values::Typical, seed);
        Ok(Self {
            inputs: sample::inputs(&workload, draw.0, draw.1, draw.2)?,
            outputs: sample::outputs(&workload, draw.0, draw.1, draw.2)?,
            workload,
        })
    }

    fn call(
        &mut self,
        body: &mut dyn FnMut(&mut Call<'_, '_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let inputs: Result<Vec<_>, _> = self.inputs.iter().map(Tensor::view).collect();
        let outputs: Result<Vec<_>, _> = self.outputs.iter_mut().map(Tensor::view_mut).collect();
        let (inputs, mut outputs) = (inputs?, outputs?);
        body(&mut Call::new(&self.workload, &inputs, &mut outputs)?)
    }
}

/// Runs all phases and tells.
pub(crate) fn run(args: &args::DemoLoad) -> Result<(), Failure> {
    let cancel = interrupt::flag()?;
    let machine = kernelwise_probe::machine();
    let records = Records::open(&machine)?;
    let processors = machine.usable_threads();
    let others = args.others.unwrap_or((processors / 2).max(1));
    let parts: Result<Vec<Part>, Failure> = STREAM
        .iter()
        .map(|text| Part::new(text, args.seed))
        .collect();
    let mut parts = parts?;
    let kw = Kernelwise::builder().build()?;
    let workloads: Vec<Workload> = parts.iter().map(|part| part.workload.clone()).collect();
    let mut go_on = |_: kernelwise_select::Progress<'_>| match cancel.load(Ordering::Relaxed) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let bar = progress::uncounted("racing the kernels of the stream");
    let raced = kw
        .selector()
        .calibrate(&workloads, &RaceOptions::default(), &mut go_on)?;
    bar.finish_and_clear();
    if cancel.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    let contenders = contenders(&raced, &workloads, &machine)?;
    let mut phases = Vec::new();
    let plan = [0, others, 0];
    let bar = progress::timed(plan.len() as f64 * args.seconds, "");
    for (number, others) in plan.into_iter().enumerate() {
        bar.set_message(beside(others));
        let mut tell = |seconds: f64| {
            bar.set_position(progress::millis(number as f64 * args.seconds + seconds));
        };
        let started = Others::start(others)?;
        let before = kw.selector().statistics();
        let turns = phase(
            &kw,
            &contenders,
            &mut parts,
            args.seconds,
            &machine,
            cancel,
            &mut tell,
        )?;
        let after = kw.selector().statistics();
        let served_ns = after.served_ns - before.served_ns;
        let serves = workloads.iter().map(|workload| {
            let decision = kw.selector().explain(workload);
            decision.map(|decision| decision.chosen.candidate.to_string())
        });
        phases.push(Phase {
            others,
            calls_per_s: turns.iter().map(Turns::middle).collect(),
            turns_calls_per_s: turns.iter().map(Turns::ends).collect(),
            turns,
            load_seen: kw.load(),
            serves: serves.collect::<Result<_, _>>()?,
            trials: after.trials - before.trials,
            trials_excess_share: (after.trials_excess_ns - before.trials_excess_ns)
                / served_ns.max(1.0),
            verification_share: (after.verification_ns - before.verification_ns) as f64
                / served_ns.max(1.0),
        });
        drop(started);
    }
    bar.finish_and_clear();
    let fixed = contenders.iter();
    let fixed = fixed.filter_map(|one| one.fixed(&workloads, &machine));
    let told = told(phases, processors, others, fixed.collect());
    match args.format {
        Format::Json => output::json("kernelwise.demo_load/1", &told)?,
        Format::Table => output::text(&text(&told))?,
    }
    let kept = (records.memory().store(), serde_json::to_value(&told));
    if let (Some(store), Ok(kept), false) = (kept.0, kept.1, records.is_frozen()) {
        store.keep_model(&Fingerprint::of(&machine), KEPT, kept);
    }
    records.close_or_note();
    Ok(())
}

/// Fixed numbers of threads, each with the kernels that are fastest with them; a library as it comes; and Kernelwise.
fn contenders(
    raced: &[Measured],
    workloads: &[Workload],
    machine: &Machine,
) -> Result<Vec<Contender>, Failure> {
    let host = Host::new(machine.clone(), kernelwise_cpu::kernels()?)?;
    let find = |one: &Measured| {
        let kernels = host.kernels_for(&one.workload);
        let kernel = kernels
            .into_iter()
            .find(|kernel| kernel.spec().id == one.candidate.kernel)?;
        let space = kernel.space(&one.workload, machine);
        let setting = space.setting(&one.candidate.params).ok()?;
        let threads = prior::threads(&space, &setting);
        Some((kernel, setting, threads, one.median_ns?.get()))
    };
    let fastest = |workload: &Workload, fits: &dyn Fn(&dyn HostKernel, u32) -> bool| {
        let timed = raced.iter().filter(|one| one.workload == *workload);
        let timed = timed.filter_map(find);
        let timed = timed.filter(|(kernel, _, threads, _)| fits(kernel.as_ref(), *threads));
        let best = timed.min_by(|a, b| a.3.total_cmp(&b.3));
        best.map(|(kernel, setting, ..)| Means::Kernel(kernel, setting))
    };
    let all = machine.usable_threads();
    let mut contenders = Vec::new();
    for threads in 1..=all {
        let fits = |_: &dyn HostKernel, count: u32| count == threads;
        let kernels: Option<Vec<_>> = workloads.iter().map(|one| fastest(one, &fits)).collect();
        if let Some(kernels) = kernels {
            let plural = if threads == 1 { "" } else { "s" };
            contenders.push(Contender::Fixed(
                format!("{threads} thread{plural}"),
                kernels,
            ));
        }
    }
    // A library uses all processors unless it is told otherwise; where none computes a part, the fastest kernel that does so.
    let openblas = OpenBlas::load().ok();
    let library = |workload: &Workload| {
        if let (Some(blas), Operation::Matmul(_)) = (&openblas, workload.operation()) {
            return Some(Means::OpenBlas(blas.clone(), all as usize));
        }
        let wrapped = |kernel: &dyn HostKernel, count: u32| {
            count == all && kernel.spec().technique == Technique::Library
        };
        fastest(workload, &wrapped).or_else(|| fastest(workload, &|_, count| count == all))
    };
    let kernels: Option<Vec<_>> = workloads.iter().map(library).collect();
    if let Some(kernels) = kernels {
        contenders.push(Contender::Fixed(LIBRARY.to_owned(), kernels));
    }
    contenders.push(Contender::Kernelwise);
    Ok(contenders)
}

/// Calls per second in each turn of a contender, one after the other.
#[derive(Debug)]
struct Turns {
    name: String,
    rates: Vec<f64>,
}

impl Turns {
    fn sorted(&self) -> Vec<f64> {
        let mut rates = self.rates.clone();
        rates.sort_by(f64::total_cmp);
        rates
    }

    /// The mean without the slowest and the fastest quarter.
    fn middle(&self) -> (String, f64) {
        let rates = self.sorted();
        let quarter = rates.len() / 4;
        let middle = &rates[quarter..rates.len() - quarter];
        let mean = middle.iter().sum::<f64>() / middle.len().max(1) as f64;
        (self.name.clone(), mean)
    }

    fn ends(&self) -> (String, f64, f64) {
        let rates = self.sorted();
        let end = |rate: Option<&f64>| rate.copied().unwrap_or(0.0);
        (self.name.clone(), end(rates.first()), end(rates.last()))
    }
}

/// Waits until no thread of this process computes any more. Those of OpenBLAS keep turning for a tenth of a second after its last product, which
/// is not the next one's to pay.
#[cfg(unix)]
fn come_to_rest() {
    use kernelwise_measure::ProcessCpuClock;
    for _ in 0..MOST_LOOKS {
        let before = ProcessCpuClock.now();
        std::thread::sleep(LOOK);
        // Who looks around now and then takes a fraction of a millisecond.
        if ProcessCpuClock.now() - before < LOOK.as_nanos() as u64 / 10 {
            return;
        }
    }
}

/// Waits for longer than that.
#[cfg(not(unix))]
fn come_to_rest() {
    std::thread::sleep(15 * LOOK);
}

/// Turns of all contenders until the time is over.
fn phase(
    kw: &Kernelwise,
    contenders: &[Contender],
    parts: &mut [Part],
    seconds: f64,
    machine: &Machine,
    cancel: &AtomicBool,
    tell: &mut dyn FnMut(f64),
) -> Result<Vec<Turns>, Failure> {
    let clock = TscClock::new();
    let began = clock.now();
    let since = |start: u64| clock.now().saturating_sub(start) as f64 / 1e9;
    let mut rates = vec![Vec::new(); contenders.len()];
    let mut scratch = Scratch::new();
    let terms = Terms::usual(machine);
    // Whoever comes next finds the caches and the clock as the one before left them, so they come forwards and backwards by turns.
    // Kernelwise is the last at first: what it takes to notice that others came or went, half a second, is not in the figures.
    let mut order: Vec<usize> = (0..contenders.len()).collect();
    while since(began) < seconds {
        for place in order.iter().copied() {
            let (contender, mut calls) = (&contenders[place], 0_u64);
            let start = clock.now();
            while since(start) < TURN_S {
                for (number, part) in parts.iter_mut().enumerate() {
                    part.call(&mut |call| {
                        match contender {
                            Contender::Kernelwise => kw.run(call)?,
                            Contender::Fixed(_, means) => {
                                means[number].run(call, &mut scratch, &terms)?;
                            }
                        }
                        Ok(())
                    })?;
                    calls += 1;
                }
                if cancel.load(Ordering::Relaxed) {
                    return Err(Failure::Interrupted);
                }
            }
            rates[place].push(calls as f64 / since(start).max(1e-9));
            come_to_rest();
            tell(since(began).min(seconds));
        }
        order.reverse();
    }
    let turns = contenders.iter().zip(rates);
    Ok(turns
        .map(|(one, rates)| Turns {
            name: one.name().to_owned(),
            rates,
        })
        .collect())
}

fn told(phases: Vec<Phase>, processors: u32, others: u32, contenders: Vec<Fixed>) -> Told {
    let fixed: Vec<String> = phases
        .first()
        .map(|phase| phase.calls_per_s.iter().map(|(name, _)| name.clone()))
        .into_iter()
        .flatten()
        .filter(|name| name.contains("thread"))
        .collect();
    let overall = |name: &str| phases.iter().map(|phase| phase.of(name)).sum::<f64>();
    let best = fixed
        .iter()
        .max_by(|a, b| overall(a).total_cmp(&overall(b)))
        .cloned()
        .unwrap_or_default();
    // The best of all while nobody else runs need not be a number of threads.
    let idle = |name: &str| {
        let alone = phases.iter().filter(|phase| phase.others == 0);
        alone.map(|phase| phase.of(name)).sum::<f64>()
    };
    let names = contenders.iter().map(|one| one.name.clone());
    let best_idle = names
        .max_by(|a, b| idle(a).total_cmp(&idle(b)))
        .unwrap_or_default();
    let over = |name: &str, counts: &dyn Fn(&Phase) -> bool| {
        let chosen = phases.iter().filter(|phase| counts(phase));
        let rounds: Vec<f64> = chosen
            .flat_map(|phase| phase.kernelwise_over(name))
            .collect();
        let mean = standings::middle(&rounds);
        let interval = mean.and_then(|mean| Some([mean.low?, mean.high?]));
        (mean.map(|mean| mean.geometric), interval)
    };
    let best_fixed = over(&best, &|phase| phase.others > 0);
    let default = over(LIBRARY, &|phase| phase.others > 0);
    let best_of_all = over(&best_idle, &|phase| phase.others == 0);
    let overall = over(&best, &|_| true);
    Told {
        processors,
        others,
        stream: STREAM.to_vec(),
        contenders,
        kernelwise_over_best_fixed: best_fixed.0,
        kernelwise_over_library_default: default.0,
        kernelwise_over_best_idle: best_of_all.0,
        kernelwise_over_best_fixed_overall: overall.0,
        intervals_90: Intervals {
            kernelwise_over_best_fixed: best_fixed.1,
            kernelwise_over_library_default: default.1,
            kernelwise_over_best_idle: best_of_all.1,
            kernelwise_over_best_fixed_overall: overall.1,
        },
        best_fixed: best,
        phases,
    }
}

/// In words, who else runs.
fn beside(others: u32) -> String {
    match others {
        0 => "alone".to_owned(),
        1 => "beside 1 other".to_owned(),
        count => format!("beside {count} others"),
    }
}

fn text(told: &Told) -> String {
    let mut text = format!(
        "{} processors; {} by turns; calls per second\n",
        told.processors,
        told.stream.join(" and ")
    );
    let mut headings = vec![""];
    let names: Vec<&str> = told
        .phases
        .first()
        .map(|phase| phase.calls_per_s.iter().map(|(name, _)| name.as_str()))
        .into_iter()
        .flatten()
        .collect();
    headings.extend(&names);
    let rows = told.phases.iter().map(|phase| {
        let mut row = vec![beside(phase.others)];
        row.extend(names.iter().map(|name| format!("{:.0}", phase.of(name))));
        row
    });
    let right: Vec<usize> = (1..headings.len()).collect();
    text += &output::columns(&headings, &right, rows.collect());
    for contender in &told.contenders {
        text += &format!("{}: {}\n", contender.name, contender.kernels.join(" and "));
        if contender.name == LIBRARY && contender.of_a_library.contains(&false) {
            text += "  where no library computes a part, the fastest kernel on all processors stands in\n";
        }
    }
    let Intervals {
        kernelwise_over_best_fixed: fixed,
        kernelwise_over_library_default: default,
        kernelwise_over_best_idle: idle,
        kernelwise_over_best_fixed_overall: overall,
    } = &told.intervals_90;
    text += &format!(
        "beside others, Kernelwise serves {} the calls of the best fixed number ({}) and {} those of the library's default\n",
        times(told.kernelwise_over_best_fixed, fixed),
        told.best_fixed,
        times(told.kernelwise_over_library_default, default)
    );
    text += &format!(
        "alone, {} those of the best contender; over all phases {} those of the best fixed number\n",
        times(told.kernelwise_over_best_idle, idle),
        times(told.kernelwise_over_best_fixed_overall, overall)
    );
    text
}

/// A ratio with where it lies nine times in ten.
fn times(ratio: Option<f64>, interval: &Option<[f64; 2]>) -> String {
    match (ratio, interval) {
        (Some(ratio), Some([low, high])) => format!("{ratio:.2}x ({low:.2} to {high:.2})"),
        (Some(ratio), None) => format!("{ratio:.2}x"),
        (None, _) => "an unknown number of times".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(others: u32, rates: [(&str, &[f64]); 4]) -> Phase {
        let turns = rates.map(|(name, rates)| Turns {
            name: name.to_owned(),
            rates: rates.to_vec(),
        });
        Phase {
            others,
            calls_per_s: turns.iter().map(Turns::middle).collect(),
            turns_calls_per_s: turns.iter().map(Turns::ends).collect(),
            turns: turns.into(),
            load_seen: None,
            serves: Vec::new(),
            trials: 0,
            trials_excess_share: 0.0,
            verification_share: 0.0,
        }
    }

    #[test]
    fn who_is_held_against_whom_is_held_so_in_each_round() {
        // Rounds of different speed, in one of which a neighbour halved what Kernelwise could do.
        let rounds = [
            100.0, 50.0, 200.0, 80.0, 120.0, 90.0, 110.0, 100.0, 95.0, 105.0,
        ];
        let times = |by: f64| rounds.map(|rate| by * rate);
        let mut mine = times(1.1);
        mine[3] /= 2.0;
        let alone = [
            ("1 thread", &times(0.5)[..]),
            ("2 threads", &times(1.0)[..]),
            (LIBRARY, &times(1.25)[..]),
            (KERNELWISE, &mine[..]),
        ];
        let beside = [
            ("1 thread", &times(0.9)[..]),
            ("2 threads", &times(1.0)[..]),
            (LIBRARY, &times(0.2)[..]),
            (KERNELWISE, &times(1.1)[..]),
        ];
        let fixed = ["1 thread", "2 threads", LIBRARY].map(|name| Fixed {
            name: name.to_owned(),
            kernels: Vec::new(),
            of_a_library: Vec::new(),
        });
        let told = told(vec![phase(0, alone), phase(1, beside)], 2, 1, fixed.into());
        assert_eq!(told.best_fixed, "2 threads");
        let close = |a: Option<f64>, b: f64| assert!((a.unwrap() - b).abs() < 1e-9, "{a:?} {b}");
        close(told.kernelwise_over_best_fixed, 1.1);
        close(told.kernelwise_over_library_default, 5.5);
        close(told.kernelwise_over_best_idle, 1.1 / 1.25);
        let [low, high] = told
            .intervals_90
            .kernelwise_over_best_fixed_overall
            .unwrap();
        assert!(low <= 1.1 && (1.1..1.2).contains(&high), "{low} {high}");
        assert!(
            text(&told).contains("5.50x (5.50 to 5.50)"),
            "{}",
            text(&told)
        );
    }
}
