//! What can be set, and what the environment may set.

use std::ffi::OsString;
#[cfg(feature = "records")]
use std::path::PathBuf;
use std::sync::Arc;
#[cfg(feature = "records")]
use std::sync::Weak;
use std::time::Duration;

use kernelwise_backend::HostKernel;
use kernelwise_measure::Clock;
use kernelwise_model::Regressor;
use kernelwise_select::{Budget, BuildError, Mode, Policy, Selector, UnknownMode};
#[cfg(feature = "records")]
use kernelwise_select::{Observer, Quarantine};
#[cfg(feature = "postgres")]
use kernelwise_store::fleet::{BackgroundSync, FleetOptions};
#[cfg(feature = "records")]
use kernelwise_store::{Options, StoreError, WallClock, Wisdom};
use kernelwise_types::{Calibration, InvalidKernelId, Numerics};
#[cfg(feature = "records")]
use kernelwise_types::{Machine, SystemState};

use crate::Kernelwise;
#[cfg(feature = "records")]
use crate::memory::{Memory, Recollection, evidence};

/// What is done with what calls teach: `learn`, `frozen` or `shadow`.
const MODE: &str = "KERNELWISE_MODE";
/// Who serves, whatever is known: `operation=kernel`, several separated by commas.
const FORCE: &str = "KERNELWISE_FORCE";
/// Where records are kept.
#[cfg(feature = "records")]
const DIR: &str = "KERNELWISE_DIR";
/// Of models that are fitted to what is on record; the program's own default.
#[cfg(feature = "records")]
const SEED: u64 = 1;

/// Why there is no [`Kernelwise`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A kernel that comes with the program has no proper name: a mistake in the program.
    #[error(transparent)]
    Kernel(#[from] InvalidKernelId),
    /// A setting.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A mode in the environment that is none.
    #[error("KERNELWISE_MODE: {0}")]
    Mode(#[source] UnknownMode),
    /// A kernel forced by the environment in words that say nothing.
    #[error("KERNELWISE_FORCE: {0}")]
    Force(#[source] BuildError),
    /// Records that cannot be used, and were not touched: of a newer version, or in use.
    #[cfg(feature = "records")]
    #[error(transparent)]
    Records(#[from] StoreError),
    /// Wisdom compiled into the program that is none.
    #[cfg(feature = "records")]
    #[error("the wisdom in the program: {0}")]
    Wisdom(#[from] kernelwise_store::WisdomError),
    /// A thread could not be started.
    #[error("a background thread did not start: {0}")]
    Thread(#[from] std::io::Error),
    /// A variable that is no text.
    #[error("{variable} is not readable as text: unset it, or write it anew")]
    NotText {
        /// The variable.
        variable: &'static str,
    },
}

/// A [`Kernelwise`] before it is made.
#[derive(Debug)]
#[must_use = "it is made by `build`"]
pub struct Builder {
    selector: Result<kernelwise_select::Builder, InvalidKernelId>,
    watches_load: bool,
    frozen: bool,
    #[cfg(feature = "records")]
    remember: Remember,
}

/// What is remembered, and where.
#[cfg(feature = "records")]
#[derive(Debug, Default)]
struct Remember {
    dir: Option<PathBuf>,
    /// How the directory is kept, if not as usual.
    options: Option<Options>,
    wisdom: Wisdom,
    /// What the caller measured of this machine.
    calibrated: Option<Calibration>,
    #[cfg(feature = "postgres")]
    server: Option<(FleetOptions, Duration)>,
}

/// Settings of the selector, by their own words.
macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*);)*) => { $(
        $(#[$doc])*
        pub fn $name(mut self, $($argument: $type),*) -> Self {
            self.selector = self.selector.map(|selector| selector.$name($($argument),*));
            self
        }
    )* };
}

impl Builder {
    /// Every kernel this processor can run, with the usual settings; the machine is looked at, which takes about a
    /// millisecond.
    pub(crate) fn new() -> Self {
        let kernels = kernelwise_cpu::kernels();
        let builder = |kernels: Vec<Arc<dyn HostKernel>>| {
            Selector::builder(kernelwise_probe::machine(), kernels)
        };
        Self {
            selector: kernels.map(builder),
            watches_load: true,
            frozen: false,
            #[cfg(feature = "records")]
            remember: Remember::default(),
        }
    }

    settings! {
        /// How choices are made; a bandit by default.
        policy(policy: Policy);
        /// What learning may cost; one per cent of the time served by default.
        budget(budget: Budget);
        /// Candidates that differ by less are as good as each other: 0.02 (2 %) by default.
        indifference(share: f64);
        /// After this time a measurement of this run weighs half; a week by default. What is on record fades by half each week,
        /// whatever is set here.
        half_life(time: Duration);
        /// How exact results must be at the least; sums in another order are fine by default.
        numerics(numerics: Numerics);
        /// The kernel, or the variant of a user's own operation, that serves an operation, whatever is known of others.
        force(operation: &str, kernel: &str);
        /// Where times come from; the processor's counter by default.
        clock(clock: Arc<dyn Clock + Send + Sync>);
        /// Of the random numbers that trials are drawn with.
        seed(seed: u64);
        /// How many workloads are remembered; 100,000 by default.
        capacity(workloads: usize);
        /// The type of model that is fitted to times instead of the usual ones: one of [`model::ModelKind`](kernelwise_model::ModelKind), or
        /// your own. It takes the place of those in use, also of those on record, where it is no worse than they are.
        regressor(regressor: Arc<dyn Regressor>);
        /// One in so many timed calls is held against the reference, besides first uses; 256 by default, 0 for those alone.
        verify_one_in(calls: u32);
    }

    /// Whether threads of its own learn and look at what others do on this machine, yes by default. Without, somebody has to call
    /// [`Selector::settle`](kernelwise_select::Selector::settle) and [`Selector::set_load`](kernelwise_select::Selector::set_load).
    pub fn background(mut self, background: bool) -> Self {
        self.watches_load = background;
        self.selector = self
            .selector
            .map(|selector| selector.background(background));
        self
    }

    /// What the machine can do at the best, as a first expectation of every kernel; without it the first calls of a
    /// workload find out, unless it is on record. It comes from [`probe::calibrate`](kernelwise_probe::calibrate). Where a directory is
    /// remembered in, it is kept: other machines can use times of this one only if they know how fast it can be.
    pub fn calibration(mut self, calibration: Calibration) -> Self {
        #[cfg(feature = "records")]
        {
            self.remember.calibrated = Some(calibration.clone());
        }
        self.selector = self
            .selector
            .map(|selector| selector.calibration(calibration));
        self
    }

    /// What is done with what calls teach; choices follow it by default.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.frozen = mode == Mode::Frozen;
        self.selector = self.selector.map(|selector| selector.mode(mode));
        self
    }

    /// Begins with what earlier runs learned on this kind of machine, and keeps what this one learns, in a directory: that of
    /// `kernelwise learn`, if it is [that of the program](kernelwise_store::directory). Any number of processes may share one. A
    /// directory that may not be written is read. Nothing is remembered by default: a library does not write where nobody asked it to.
    #[cfg(feature = "records")]
    pub fn remember(mut self, dir: impl Into<PathBuf>) -> Self {
        self.remember.dir = Some(dir.into());
        self
    }

    /// The same with options of your own: what a power cut may cost, how many series are kept, and the time of day.
    ///
    /// ```
    /// use kernelwise::Kernelwise;
    /// use kernelwise::store::{Durability, Options, WallClock};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path();
    /// let now_s = || std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    /// let mut options = Options::new(WallClock::new(now_s));
    /// options.durability = Durability::PowerCut;
    /// options.most_series = 10_000;
    /// let kw = Kernelwise::builder().remember_with(dir, options).build()?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "records")]
    pub fn remember_with(mut self, dir: impl Into<PathBuf>, options: Options) -> Self {
        self.remember.options = Some(options);
        self.remember(dir)
    }

    /// What others measured, as `kernelwise export` writes it: for instance `include_bytes!` of a file, for the same choices
    /// everywhere with [`Mode::Frozen`]. Needs no directory.
    #[cfg(feature = "records")]
    pub fn wisdom(mut self, bytes: &[u8]) -> Result<Self, SetupError> {
        let (wisdom, _) = Wisdom::from_bytes(bytes)?;
        self.remember.wisdom.merge(wisdom);
        Ok(self)
    }

    /// Exchanges what is [remembered](Self::remember) with a PostgreSQL server, in the background: at once, then every so often.
    /// A server that is away costs nothing but a warning in the log. Its certificate is verified by the authorities in the PEM file
    /// that `KERNELWISE_DATABASE_CA` names, or else by the operating system's.
    #[cfg(feature = "postgres")]
    pub fn sync_with(self, url: &str, every: Duration) -> Self {
        self.sync_by(FleetOptions::new(url), every)
    }

    /// The same with authorities and time limits of your own.
    #[cfg(feature = "postgres")]
    pub fn sync_by(mut self, options: FleetOptions, every: Duration) -> Self {
        self.remember.server = Some((options, every));
        self
    }

    /// Lets the environment have its say, over what was set before: `KERNELWISE_MODE` (`learn`, `frozen`, `shadow`),
    /// `KERNELWISE_FORCE` (`operation=kernel`, several separated by commas) and `KERNELWISE_DIR`, a directory to
    /// [remember](Self::remember) in. What is unset or empty changes nothing.
    pub fn from_env(self) -> Result<Self, SetupError> {
        self.with_variables(|name| std::env::var_os(name))
    }

    fn with_variables(
        self,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, SetupError> {
        let text = |name: &'static str| match variable(name).map(OsString::into_string) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
            Some(Err(_)) => Err(SetupError::NotText { variable: name }),
        };
        let mut with = self;
        if let Some(mode) = text(MODE)? {
            with = with.mode(mode.parse().map_err(SetupError::Mode)?);
        }
        if let Some(forced) = text(FORCE)? {
            let selector = with.selector?.force_from(&forced);
            with.selector = Ok(selector.map_err(SetupError::Force)?);
        }
        #[cfg(feature = "records")]
        if let Some(dir) = variable(DIR).filter(|dir| !dir.is_empty()) {
            with = with.remember(PathBuf::from(dir));
        }
        Ok(with)
    }

    /// Whether anybody looks at what others do: in frozen mode the same call has the same choice, whatever they do.
    fn looks(&self) -> bool {
        self.watches_load && !self.frozen
    }

    /// Makes it.
    #[cfg(not(feature = "records"))]
    pub fn build(self) -> Result<Kernelwise, SetupError> {
        let looks = self.looks();
        Kernelwise::of(self.selector?.build()?, looks, |_| {})
    }

    /// Makes it. What is on record is read first, which takes some ten milliseconds for thousands of workloads.
    #[cfg(feature = "records")]
    pub fn build(self) -> Result<Kernelwise, SetupError> {
        let (looks, frozen) = (self.looks(), self.frozen);
        let (selector, remember) = (self.selector?, self.remember);
        let machine = kernelwise_probe::machine();
        let usual = || Options::new(WallClock::new(now_s));
        let options = remember.options.clone().unwrap_or_else(usual);
        let clock = options.clock.clone();
        let memory = match &remember.dir {
            // Nothing is made where nothing may change.
            Some(dir) if frozen && !dir.exists() => Memory::nowhere(&machine, clock.clone()),
            Some(dir) => match Memory::open_with(dir, &machine, options) {
                Ok(memory) => memory,
                Err(error) => {
                    goes_on_without(error)?;
                    Memory::nowhere(&machine, clock.clone())
                }
            },
            None if remember.wisdom.is_empty() => {
                return Kernelwise::of(selector.build()?, looks, |_| {});
            }
            None => Memory::nowhere(&machine, clock.clone()),
        };
        let complete = |memory: Memory| {
            let memory = memory.with_wisdom(remember.wisdom.clone());
            match frozen {
                true => memory.frozen(),
                false => memory,
            }
        };
        let kernels = kernelwise_cpu::kernels()?;
        let mut memory = complete(memory);
        let read = match Read::from(&memory, &kernels) {
            Ok(read) => read,
            Err(error) => {
                goes_on_without(error)?;
                memory = complete(Memory::nowhere(&machine, clock));
                Read::from(&memory, &kernels)?
            }
        };
        let made = remembering(selector, memory, read, &machine, &remember, frozen)?;
        let kept = made.memory.as_ref().map(Arc::downgrade);
        let tell = move |state: &SystemState| {
            if let Some(memory) = kept.as_ref().and_then(Weak::upgrade) {
                memory.set_state(state);
            }
        };
        Ok(Kernelwise {
            memory: made.memory,
            #[cfg(feature = "postgres")]
            sync: made.sync,
            ..Kernelwise::of(made.selector, looks, tell)?
        })
    }
}

/// A program goes on without records that cannot be used, unless somebody else can use them.
#[cfg(feature = "records")]
fn goes_on_without(error: StoreError) -> Result<(), SetupError> {
    match error {
        StoreError::Newer { .. } | StoreError::Busy { .. } => Err(error.into()),
        error => {
            tracing::warn!(%error, "nothing is remembered");
            Ok(())
        }
    }
}

/// What a start needs of what is on record.
#[cfg(feature = "records")]
struct Read {
    calibration: Option<Calibration>,
    found: Recollection,
    quarantined: Vec<Quarantine>,
}

#[cfg(feature = "records")]
impl Read {
    fn from(memory: &Memory, kernels: &[Arc<dyn HostKernel>]) -> Result<Self, StoreError> {
        let calibration = memory.calibration()?;
        Ok(Self {
            found: memory.recall(kernels, calibration.as_ref())?,
            quarantined: memory.quarantined()?,
            calibration,
        })
    }
}

/// A selector that begins with what is on record, and keeps what it learns.
#[cfg(feature = "records")]
fn remembering(
    selector: kernelwise_select::Builder,
    memory: Memory,
    read: Read,
    machine: &Machine,
    remember: &Remember,
    frozen: bool,
) -> Result<Remembering, SetupError> {
    let Read {
        calibration,
        found,
        quarantined,
    } = read;
    let mut selector = selector.quarantined(quarantined);
    let memory = Arc::new(memory);
    // What the caller measured is newer than what is on record, and models are of what was expected by that.
    match (&remember.calibrated, calibration) {
        (Some(new), _) => memory.keep_calibration(new),
        (None, Some(calibration)) => {
            let kernels = kernelwise_cpu::kernels()?;
            let evidence = evidence(machine, &kernels, &calibration, &found.here)?;
            let evidence = memory.with_paces(evidence, &Default::default());
            let all = [evidence, found.elsewhere].concat();
            selector = selector.forecast(memory.latest_models(&all));
            selector = selector.calibration(calibration);
            memory.fit_beside(&all, SEED);
        }
        (None, None) => {}
    }
    memory.keep_machine();
    if !frozen {
        selector = selector.observer(Arc::clone(&memory) as Arc<dyn Observer>);
    }
    let selector = selector.build()?;
    selector.recall(&found.here);
    #[cfg(feature = "postgres")]
    let sync = match (&remember.server, memory.store()) {
        (Some((options, every)), Some(store)) if !frozen => {
            store.describe(machine);
            let (store, here) = (Arc::clone(store), memory.here()?);
            Some(BackgroundSync::start(store, here, options.clone(), *every)?)
        }
        _ => None,
    };
    Ok(Remembering {
        selector,
        #[cfg(feature = "postgres")]
        sync,
        memory: Some(memory),
    })
}

/// What comes of it.
#[cfg(feature = "records")]
struct Remembering {
    selector: Selector,
    #[cfg(feature = "postgres")]
    sync: Option<BackgroundSync>,
    memory: Option<Arc<Memory>>,
}

/// Whole seconds since 1970.
#[cfg(feature = "records")]
fn now_s() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Result<Builder, SetupError> {
        Builder::new().with_variables(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn the_environment_has_its_say() {
        let kw = from(&[(MODE, "frozen"), (FORCE, "doubling=shift")]);
        let kw = kw.unwrap().build().unwrap();
        let doubling = kw
            .operation("doubling")
            .variant("add", |x: &mut u32| *x + *x)
            .variant("shift", |x: &mut u32| *x << 1)
            .build()
            .unwrap();
        assert_eq!(doubling.run(&mut 21), Ok(42));
        assert_eq!(doubling.explain(&21).unwrap().chosen.variant, "shift");
        assert!(format!("{kw:?}").contains("Frozen"), "{kw:?}");
        assert!(from(&[(MODE, ""), (FORCE, "")]).is_ok());
    }

    #[test]
    fn what_it_says_must_make_sense() {
        let words = |variables: &[(&str, &str)]| from(variables).unwrap_err().to_string();
        assert_eq!(
            words(&[(MODE, "forzen")]),
            "KERNELWISE_MODE: unknown mode `forzen`: there are learn, frozen and shadow"
        );
        let error = words(&[(FORCE, "cpu-matmul-f32-gemm")]);
        assert!(
            error.starts_with("KERNELWISE_FORCE: `cpu-matmul-f32-gemm` does not force a kernel")
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_variable_that_is_no_text_is_named() {
        use std::os::unix::ffi::OsStringExt;
        let error = Builder::new().with_variables(|_| Some(OsString::from_vec(vec![0xff])));
        assert_eq!(
            error.unwrap_err().to_string(),
            "KERNELWISE_MODE is not readable as text: unset it, or write it anew"
        );
    }

    #[test]
    fn settings_reach_the_selector() {
        let error = Builder::new().indifference(-1.0).build().unwrap_err();
        assert!(
            matches!(error, SetupError::Build(BuildError::Number { .. })),
            "{error}"
        );
    }
}
