//! A benchmark run: what it needs, and one shape after the other.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kernelwise_backend::sample::{self, Arrangement, Values};
use kernelwise_backend::{Host, answer, prior};
use kernelwise_measure::selfcheck::{NullResult, null_comparison};
use kernelwise_measure::{Clock, ClockFacts, Indifference, Sampler, TscClock, Warning};
use kernelwise_probe::pin::{self, PinError, Pinned};
use kernelwise_probe::{StateReader, Tree};
use kernelwise_types::op::Operation;
use kernelwise_types::units::Bytes;
use kernelwise_types::{
    Calibration, Fingerprint, Machine, Reading, SystemState, ViewError, Workload,
};

use crate::contest::{self, Candidate, Contest};
use crate::entrant;
use crate::figures::{Conditions, Doubt, RefusedKernel, ShapeFigures};
use crate::judge::Ceiling;
use crate::ratios::{self, Evidence};
use crate::rivals::Rivals;
use crate::standings::{self, Raced, Standings};

/// How a benchmark is run.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Threads each contender may use, one by default. With one the measuring thread is pinned and timed by its processor
    /// time, with several by the wall clock.
    pub threads: u32,
    /// Time for the races of each shape, 2 s by default; with one thread of its processor time, so that a busy machine takes
    /// longer instead of telling less. Checking the results comes on top.
    pub budget: Duration,
    /// Seed of inputs, orders and intervals, 1 by default.
    pub seed: u64,
    /// Whether kernels of reduced precision count, no by default.
    pub allow_reduced: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: 1,
            budget: Duration::from_secs(2),
            seed: 1,
            allow_reduced: false,
        }
    }
}

/// Why a shape was not measured. The shape is "it" in the words: they are told beside it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// Several results would be right, so none can be checked.
    #[error("it has several right results: ask for a `stable` sort")]
    Ambiguous,
    /// Its operands would not leave room for anything else.
    #[error("it has operands of {needs}, a benchmark may use {allowed}: name a smaller shape")]
    Memory {
        /// Bytes of its operands.
        needs: Bytes,
        /// What may be used.
        allowed: Bytes,
    },
    /// There is neither a kernel nor a library for it.
    #[error("no kernel computes it")]
    NoKernel,
    /// There are kernels, but none may run.
    #[error("none of its {} kernels may run on it: {}", .refused.len(), reasons(.refused))]
    AllRefused {
        /// Why not, one by one.
        refused: Vec<RefusedKernel>,
    },
    /// Its tensors could not be made.
    #[error(transparent)]
    View(#[from] ViewError),
}

/// Each reason once: kernels of a family often have the same.
fn reasons(refused: &[RefusedKernel]) -> String {
    let mut reasons: Vec<&str> = refused
        .iter()
        .map(|kernel| kernel.reason.as_str())
        .collect();
    reasons.sort_unstable();
    reasons.dedup();
    reasons.join("; ")
}

/// Whether the operands of a workload leave room for everything else.
pub(crate) fn check_memory(workload: &Workload, machine: &Machine) -> Result<(), BenchError> {
    let operands = workload.inputs().iter().chain(workload.outputs());
    let needs = operands.fold(0u64, |sum, operand| sum.saturating_add(operand.bytes()));
    // Results are checked beside those that are timed, and there is scratch memory.
    let memory = machine.usable_memory();
    let allowed = memory.map_or(1 << 30, |memory| memory.0 / 4);
    if needs <= allowed {
        return Ok(());
    }
    Err(BenchError::Memory {
        needs: Bytes(needs),
        allowed: Bytes(allowed),
    })
}

/// A benchmark on this machine, on the thread that made it.
#[derive(Debug)]
pub struct Bench {
    pub(crate) host: Host,
    pub(crate) calibration: Calibration,
    pub(crate) rivals: Rivals,
    pub(crate) options: Options,
    pub(crate) wall: TscClock,
    reader: StateReader,
    before: SystemState,
    pinned: Result<Pinned, PinError>,
    null: NullResult,
}

impl Bench {
    /// Binds the calling thread to a processor (with one thread) and lets the instrument measure itself. The calibration must
    /// be of the host's machine, from before.
    pub fn new(host: Host, calibration: Calibration, rivals: Rivals, options: Options) -> Self {
        let wall = TscClock::new();
        let mut reader = StateReader::new(Tree::system());
        let before = reader.look(wall.now());
        // The last one: the first has most of the interrupts.
        let pinned = match options.threads {
            1 => pin::allowed().and_then(|cpus| {
                let last = cpus.last().copied().unwrap_or_default();
                pin::current_thread_to(last)
            }),
            _ => Err(PinError::NotAvailable),
        };
        let null = null(&options, &wall);
        Self {
            host,
            calibration,
            rivals,
            options,
            wall,
            reader,
            before,
            pinned,
            null,
        }
    }

    /// Under what conditions the shapes so far were measured.
    pub fn conditions(&mut self) -> Conditions {
        let after = self.reader.look(self.wall.now());
        let machine = self.host.machine();
        let threads = self.options.threads;
        let mut warnings: Vec<Doubt> =
            Warning::from_states(&self.before, &after, threads, machine.cpu.logical)
                .iter()
                .map(Doubt::from)
                .collect();
        warnings.extend(self.null.warnings.iter().map(Doubt::from));
        if !self.null.is_trustworthy() {
            warnings.push(Doubt {
                finding: self.null.to_string(),
                advice: "end other programs or wait, then ask again; until then believe only large differences".to_owned(),
            });
        }
        if cfg!(debug_assertions) {
            warnings.push(Doubt {
                finding: "this program was built without optimisation".to_owned(),
                advice: "build it with --release".to_owned(),
            });
        }
        Conditions {
            machine: Fingerprint::of(machine),
            processor: machine.cpu.model.to_string(),
            threads,
            pinned_to_cpu: match (&self.pinned, threads) {
                (Ok(pinned), _) => Reading::Known(pinned.cpu()),
                (Err(error), 1) => Reading::unknown(error.to_string()),
                (Err(_), _) => Reading::unknown("several threads are left to the scheduler"),
            },
            clock: ClockFacts::of(contest::clock(threads, &self.wall)),
            optimised_build: !cfg!(debug_assertions),
            time_budget_s: self.options.budget.as_secs_f64(),
            seed: self.options.seed,
            allow_reduced: self.options.allow_reduced,
            null_comparison: self.null.clone(),
            warnings,
        }
    }

    /// What the libraries are that an operation is compared with.
    pub fn rivals(&self) -> &Rivals {
        &self.rivals
    }

    /// Measures one shape. `None` if `cancel` was set before there was anything to tell.
    pub fn shape(
        &self,
        workload: &Workload,
        cancel: &AtomicBool,
    ) -> Result<Option<ShapeFigures>, BenchError> {
        if !answer::is_unique(workload.operation()) {
            return Err(BenchError::Ambiguous);
        }
        check_memory(workload, self.host.machine())?;
        let inputs = sample::inputs(
            workload,
            Arrangement::Contiguous,
            Values::Typical,
            self.options.seed,
        )?;
        let before = sample::outputs(
            workload,
            Arrangement::Contiguous,
            Values::Typical,
            self.options.seed,
        )?;
        let (entrants, refused) = entrant::enter(&self.host, workload, &self.options);
        let (rivals, absent) = self.rivals.enter(workload, &inputs);
        if entrants.is_empty() && rivals.is_empty() {
            return Err(match refused.as_slice() {
                [] => BenchError::NoKernel,
                _ => BenchError::AllRefused { refused },
            });
        }
        let mut contest = Contest {
            workload,
            inputs: &inputs,
            before: &before,
            terms: entrant::terms(&self.host, workload, &self.options),
            options: &self.options,
            wall: &self.wall,
            cancel,
            candidates: candidates(entrants, rivals),
        };
        let checked = contest.check();
        let Some(raced) = contest.race(&checked.results) else {
            return Ok(None);
        };
        let ceiling = Ceiling::of(
            workload,
            self.options.threads,
            self.host.machine(),
            &self.calibration,
        );
        let standings = self.standings(&contest, &raced, workload, &ceiling);
        let (ratios, thresholds) = ratios::of(&Evidence {
            workload,
            ceiling: &ceiling,
            standings: &standings.all,
            race: &raced.race,
            absent: &absent,
        });
        let rate = |value: Option<f64>, what: &str| match value {
            Some(value) => Reading::Known(value / 1e9),
            None => Reading::unknown(format!("{what} was not calibrated")),
        };
        let cost = workload.cost();
        Ok(Some(ShapeFigures {
            workload: workload.clone(),
            flops: cost.map_or(0, |cost| cost.flops.0),
            moved_bytes: cost.map_or(0, |cost| cost.bytes().0),
            place: ceiling.place,
            by_arithmetic: ceiling.is_arithmetic(workload.operation()),
            peak_gflops: rate(
                ceiling.peak.as_ref().map(|peak| peak.rate.value.get()),
                "the peak of this element type and number of threads",
            ),
            bandwidth_gbps: rate(
                ceiling.bandwidth.as_ref().map(|b| b.rate.value.get()),
                "the bandwidth of this place and number of threads",
            ),
            inside_taps_share: matches!(workload.operation(), Operation::Conv2d(_))
                .then_some(ceiling.inside_taps),
            checked_against: checked.against,
            stop: raced.race.stop,
            rounds: raced.race.rounds,
            contenders: standings.all,
            refused,
            winner: standings.winner,
            tie_class: standings.tie_class,
            ratios,
            thresholds,
        }))
    }

    /// What was expected of a kernel, in nanoseconds.
    pub(crate) fn prior_ns(&self, candidate: &Candidate<'_>, workload: &Workload) -> Option<f64> {
        let Candidate::Kernel(entrant) = candidate else {
            return None;
        };
        let estimate = prior::estimate(
            entrant.kernel.as_ref(),
            workload,
            &entrant.setting,
            self.host.machine(),
            &self.calibration,
        );
        estimate.time().map(|time| time.get())
    }

    fn standings(
        &self,
        contest: &Contest<'_>,
        raced: &Raced,
        workload: &Workload,
        ceiling: &Ceiling,
    ) -> Standings {
        let prior = |candidate: &Candidate<'_>| self.prior_ns(candidate, workload);
        standings::standings(&contest.candidates, raced, ceiling, &prior)
    }
}

fn candidates<'a>(
    entrants: Vec<entrant::Entrant>,
    rivals: Vec<Box<dyn crate::rivals::Rival + 'a>>,
) -> Vec<Candidate<'a>> {
    let kernels = entrants.into_iter().map(Candidate::Kernel);
    kernels
        .chain(rivals.into_iter().map(Candidate::Rival))
        .collect()
}

/// Races a sum of numbers against itself on the clock of the run, for a quarter of a shape's time at most.
fn null(options: &Options, wall: &TscClock) -> NullResult {
    let numbers: Vec<f32> = (0..4096).map(|i| i as f32).collect();
    let clock = contest::clock(options.threads, wall);
    let sampler = Sampler::new(clock)
        .budget(options.budget.div_f64(4.0).min(Duration::from_secs(1)))
        .seed(options.seed);
    null_comparison(&sampler, Indifference::default(), || {
        let numbers = std::hint::black_box(&numbers);
        Ok::<_, std::convert::Infallible>(numbers.iter().sum::<f32>())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_several_kernels_have_is_told_once() {
        let refused = |id: &str, reason: &str| RefusedKernel {
            kernel: id.parse().unwrap(),
            reason: reason.to_owned(),
        };
        let error = BenchError::AllRefused {
            refused: vec![
                refused("cpu-copy-f32-a", "needs gaps"),
                refused("cpu-copy-f32-b", "needs a full moon"),
                refused("cpu-copy-f32-c", "needs gaps"),
            ],
        };
        assert_eq!(
            error.to_string(),
            "none of its 3 kernels may run on it: needs a full moon; needs gaps"
        );
    }
}
