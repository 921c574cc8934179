//! What can be set about a selector, checked when it is made.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use kernelwise_backend::{DuplicateKernel, Host, HostKernel};
use kernelwise_measure::{Clock, ClockFacts, TscClock};
use kernelwise_model::Regressor;
use kernelwise_types::{Calibration, Machine, Numerics};

use super::assumed::assumed;
use super::observe::{Observer, listener};
use super::{Quarantine, Selector, Shared, Turns, most_aligned};
use crate::budget::{Budget, InvalidBudget};
use crate::engine::{Engine, TakenIn};
use crate::forecast::Forecast;
use crate::learn::Rules;
use crate::own::Registry;
use crate::policy::{InvalidPolicy, Policy};

/// What is done with what calls teach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Choices follow what is learned.
    #[default]
    Learn,
    /// Nothing is learned and nothing tried: the same choice for the same call, always.
    Frozen,
    /// Everything is learned, and the first choice serves all the same.
    Shadow,
}

/// A word that is no mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown mode `{0}`: there are learn, frozen and shadow")]
pub struct UnknownMode(String);

impl std::str::FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(word: &str) -> Result<Self, UnknownMode> {
        match word {
            "learn" => Ok(Self::Learn),
            "frozen" => Ok(Self::Frozen),
            "shadow" => Ok(Self::Shadow),
            other => Err(UnknownMode(other.to_owned())),
        }
    }
}

/// Why a selector cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The policy.
    #[error(transparent)]
    Policy(#[from] InvalidPolicy),
    /// The budget.
    #[error(transparent)]
    Budget(#[from] InvalidBudget),
    /// Two kernels of one name.
    #[error(transparent)]
    Duplicate(#[from] DuplicateKernel),
    /// A number out of its range.
    #[error("the {what} is a number above zero, not {value}")]
    Number {
        /// Which one.
        what: &'static str,
        /// What it was.
        value: f64,
    },
    /// A forced choice that is none.
    #[error(
        "`{0}` does not force a kernel: write operation=kernel, as in matmul=cpu-matmul-f32-gemm"
    )]
    Force(String),
    /// The learner could not be started.
    #[error("the learner's thread did not start: {0}")]
    Thread(#[from] std::io::Error),
}

/// A selector before it is made.
pub struct Builder {
    machine: Machine,
    kernels: Vec<Arc<dyn HostKernel>>,
    calibration: Option<Calibration>,
    rules: Rules,
    numerics: Numerics,
    mode: Mode,
    forced: BTreeMap<String, String>,
    clock: Option<Arc<dyn Clock + Send + Sync>>,
    seed: u64,
    capacity: usize,
    verify_one_in: u32,
    background: bool,
    calibrations: usize,
    forecast: Forecast,
    regressor: Option<Arc<dyn Regressor>>,
    retrain_after: u64,
    observer: Option<Arc<dyn Observer>>,
    quarantined: Vec<Quarantine>,
}

impl Builder {
    /// What the machine can do at the best, as a first expectation of every kernel.
    #[must_use]
    pub fn calibration(mut self, calibration: Calibration) -> Self {
        self.calibration = Some(calibration);
        self
    }

    /// What is to be expected of workloads that were not measured, from those that were.
    #[must_use]
    pub fn forecast(mut self, forecast: Forecast) -> Self {
        self.forecast = forecast;
        self
    }

    /// The type of model that is fitted to times instead of the usual ones, whenever models are
    /// [fitted anew](Self::retrain_after): one of [`ModelKind`](kernelwise_model::ModelKind), or somebody's own. It takes the place of
    /// the models in use where it is no worse than they are; see [`Forecast::fit_with`].
    #[must_use]
    pub fn regressor(mut self, regressor: Arc<dyn Regressor>) -> Self {
        self.regressor = Some(regressor);
        self
    }

    /// After how many candidates that were timed for the first time models of times are fitted anew, in the background; 200 by
    /// default, 0 for never. [`Selector::trainings`] tells when that was.
    #[must_use]
    pub fn retrain_after(mut self, times: u64) -> Self {
        self.retrain_after = times;
        self
    }

    /// Kernels that were kept away before, in the versions they failed in.
    #[must_use]
    pub fn quarantined(mut self, quarantined: impl IntoIterator<Item = Quarantine>) -> Self {
        self.quarantined.extend(quarantined);
        self
    }

    /// Who hears of every time that is learned from, and of kernels that fail.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// How choices are made; a bandit by default.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.rules.policy = policy;
        self
    }

    /// What learning may cost.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.rules.budget = budget;
        self
    }

    /// Candidates that differ by less are as good as each other: 0.02 (2 %) by default.
    #[must_use]
    pub fn indifference(mut self, share: f64) -> Self {
        self.rules.zone = share.ln_1p();
        self
    }

    /// After this time a measurement weighs half; a week by default.
    #[must_use]
    pub fn half_life(mut self, time: Duration) -> Self {
        self.rules.half_life_ns = time.as_nanos() as f64;
        self
    }

    /// How exact results must be at the least; sums in another order are fine by default.
    #[must_use]
    pub fn numerics(mut self, numerics: Numerics) -> Self {
        self.numerics = numerics;
        self
    }

    /// What is done with what calls teach.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The kernel that serves an operation, whatever is known of others.
    #[must_use]
    pub fn force(mut self, operation: &str, kernel: &str) -> Self {
        self.forced.insert(operation.to_owned(), kernel.to_owned());
        self
    }

    /// The same from text: `operation=kernel`, several separated by commas.
    pub fn force_from(mut self, text: &str) -> Result<Self, BuildError> {
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let Some((operation, kernel)) = part.split_once('=') else {
                return Err(BuildError::Force(part.to_owned()));
            };
            self = self.force(operation.trim(), kernel.trim());
        }
        Ok(self)
    }

    /// Where times come from.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock + Send + Sync>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Of the random numbers that trials are drawn with.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// How many workloads are remembered; those used longest ago make room. 100,000 by default.
    #[must_use]
    pub fn capacity(mut self, workloads: usize) -> Self {
        self.capacity = workloads;
        self
    }

    /// One in so many timed calls is held against the reference, besides a kernel's first use; 0 for those alone. 256 by default.
    /// All of it together may take one per cent of the time served, but for the very first use of a kernel.
    #[must_use]
    pub fn verify_one_in(mut self, calls: u32) -> Self {
        self.verify_one_in = calls;
        self
    }

    /// Whether a thread of its own learns, yes by default. Without, somebody has to call [`Selector::settle`].
    #[must_use]
    pub fn background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }

    /// How many calls of [`Selector::calibrate`] measure at once; others wait. One by default, and at the least.
    #[must_use]
    pub fn calibrations_at_once(mut self, calibrations: usize) -> Self {
        self.calibrations = calibrations;
        self
    }

    /// Makes it.
    pub fn build(self) -> Result<Selector, BuildError> {
        self.rules.policy.check()?;
        self.rules.budget.check()?;
        let numbers = [
            ("indifference zone", self.rules.zone),
            ("half-life", self.rules.half_life_ns),
        ];
        for (what, value) in numbers {
            if !value.is_finite() || value <= 0.0 {
                return Err(BuildError::Number { what, value });
            }
        }
        let clock = self.clock.unwrap_or_else(|| Arc::new(TscClock::new()));
        let rules = Rules {
            timing_ns: 2.0 * ClockFacts::of(&*clock).cost_ns,
            ..self.rules
        };
        let assumed = assumed(&self.machine);
        let host = Host::new(self.machine, self.kernels.iter().cloned())?;
        let shadow = self.mode == Mode::Shadow;
        let mut engine = Engine::new(rules, clock, self.seed, self.capacity, shadow);
        engine.listener = self.observer.clone().map(listener);
        let quarantined = self.quarantined.into_iter();
        let quarantined = quarantined.map(|one| ((one.kernel.clone(), one.version), one));
        let background = self.background && self.mode != Mode::Frozen;
        let shared = Arc::new(Shared {
            engine,
            host: ArcSwap::from_pointee(host),
            alignment: AtomicUsize::new(most_aligned(&self.kernels)),
            kernels: Mutex::new(self.kernels),
            calibration: self.calibration,
            forecast: ArcSwap::from_pointee(self.forecast),
            trainer: Mutex::default(),
            fitting: Mutex::default(),
            regressor: self.regressor,
            training: AtomicBool::new(false),
            training_thread: Mutex::default(),
            retrain_after: self.retrain_after,
            seed: self.seed,
            further: Mutex::default(),
            assumed,
            numerics: self.numerics,
            mode: self.mode,
            forced: self.forced,
            verify_one_in: self.verify_one_in,
            quarantined: Mutex::new(quarantined.collect()),
            observer: self.observer,
            load: AtomicU32::new(0),
            background,
            own: Registry::default(),
            verified: AtomicU64::new(0),
            verification_ns: AtomicU64::new(0),
            proven: Mutex::default(),
            turns: Turns::new(self.calibrations),
            stop: AtomicBool::new(false),
        });
        let learner = match background {
            true => Some(learner(Arc::clone(&shared))?),
            false => None,
        };
        Ok(Selector { shared, learner })
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("kernels", &self.kernels.len())
            .field("rules", &self.rules)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl Selector {
    /// A selector of these kernels on this machine, with the usual settings.
    pub fn builder(machine: Machine, kernels: Vec<Arc<dyn HostKernel>>) -> Builder {
        Builder {
            machine,
            kernels,
            calibration: None,
            rules: Rules::default(),
            numerics: Numerics::Reordered,
            mode: Mode::default(),
            forced: BTreeMap::new(),
            clock: None,
            seed: 1,
            capacity: 100_000,
            verify_one_in: 256,
            background: true,
            calibrations: 1,
            forecast: Forecast::default(),
            regressor: None,
            retrain_after: 200,
            observer: None,
            quarantined: Vec::new(),
        }
    }
}

/// How long the learner rests between two looks at what waits: longer where nothing is asked about, as its waking takes a processor from whoever
/// computes on all of them, and while nothing comes. Whoever finds its queue full learns from it on the spot.
const SHORTEST_REST: Duration = Duration::from_millis(1);
const USUAL_REST: Duration = Duration::from_millis(16);
const LONGEST_REST: Duration = Duration::from_millis(64);

fn learner(shared: Arc<Shared>) -> Result<JoinHandle<()>, std::io::Error> {
    let work = move || {
        let mut rest = SHORTEST_REST;
        while !shared.stop.load(Ordering::Acquire) {
            let taken = shared.engine.take_in();
            shared.engine.study();
            shared.train_beside();
            rest = match taken {
                TakenIn { samples: 0, .. } => (2 * rest).min(LONGEST_REST),
                TakenIn { open: true, .. } => SHORTEST_REST,
                TakenIn { open: false, .. } => USUAL_REST,
            };
            std::thread::park_timeout(rest);
        }
    };
    std::thread::Builder::new()
        .name("kernelwise-learn".to_owned())
        .spawn(work)
}
