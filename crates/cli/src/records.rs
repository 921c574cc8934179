//! What earlier runs learned on this machine, and where this one keeps what it learns.
//!
//! The store is the memory of the program: `learn` writes to it, `select`, `explain` and `model` read from it. Where it cannot be
//! opened for want of a directory that may be written, the program goes on without; a file of a newer version ends it, with
//! nothing touched.

use std::sync::Arc;

use anyhow::anyhow;
use kernelwise_backend::HostKernel;
use kernelwise_measure::TscClock;
use kernelwise_probe::calibrate::{CalibrateError, CalibrateOptions, calibrate};
use kernelwise_select::belief::Tally;
use kernelwise_select::{Evidence, Measured, Remembered, Selector};
use kernelwise_store::{
    Here, Options, Place, Sample, SeriesKey, Store, StoreError, Trust, WallClock, Warning,
};
use kernelwise_types::units::Nanos;
use kernelwise_types::{Calibration, Candidate, Fingerprint, Machine};

use crate::exit::Failure;
use crate::{interrupt, output};

/// The name under which is kept how long the machine was calibrated.
const CALIBRATED_FOR: &str = "calibrated_for_s";

/// The memory of the program on this machine.
pub(crate) struct Records {
    /// `None` where no directory can be written or read.
    store: Option<Store>,
    machine: Machine,
    place: Arc<Place>,
    clock: WallClock,
    /// Whether nothing may change: what is on record is taken as it stands, whatever its age.
    frozen: bool,
}

/// What was found.
#[derive(Default)]
pub(crate) struct Found {
    /// Of kernels as they are here.
    pub(crate) remembered: Vec<Remembered>,
    /// Series of other machines, other versions or kernels that are not here.
    pub(crate) set_aside: usize,
}

/// The time of day, in seconds since 1970.
pub(crate) fn now_s() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

impl Records {
    /// Opens the store that the environment names, and says on standard error what a person should know of it.
    pub(crate) fn open(machine: &Machine) -> Result<Self, Failure> {
        let clock = WallClock::new(now_s);
        let dir = kernelwise_store::directory(|name| std::env::var_os(name));
        let store = match dir {
            Ok(dir) => match Store::open(&dir, Options::new(clock.clone())) {
                Ok(store) => Some(store),
                Err(error @ (StoreError::Newer { .. } | StoreError::Busy { .. })) => {
                    return Err(Failure::Records(error.into()));
                }
                Err(error) => {
                    output::note(&format!("nothing is remembered: {error}"));
                    None
                }
            },
            Err(error) => {
                output::note(&format!("nothing is remembered: {error}"));
                None
            }
        };
        for warning in store.iter().flat_map(Store::warnings) {
            output::note(&warning.to_string());
        }
        Ok(Self {
            store,
            place: Arc::new(Place::of(machine, env!("CARGO_PKG_VERSION"))),
            machine: machine.clone(),
            clock,
            frozen: std::env::var("KERNELWISE_MODE").is_ok_and(|mode| mode == "frozen"),
        })
    }

    /// The store itself, where there is one.
    pub(crate) fn store(&self) -> Result<&Store, Failure> {
        self.store.as_ref().ok_or_else(|| {
            Failure::Failed(anyhow!(
                "there is no place for records: set KERNELWISE_DIR to a directory"
            ))
        })
    }

    /// This machine, as records are compared with it.
    pub(crate) fn here(&self) -> Result<Here, Failure> {
        Ok(Here {
            place: (*self.place).clone(),
            machine: self.machine.clone(),
            calibration: self.calibration()?,
        })
    }

    /// The file.
    pub(crate) fn path(&self) -> String {
        let path = self.store.as_ref().map(Store::path);
        path.map_or("no file".to_owned(), |path| path.display().to_string())
    }

    /// How fast this machine can be, as it was measured before, if it was.
    pub(crate) fn calibration(&self) -> Result<Option<Calibration>, Failure> {
        let here = Fingerprint::of(&self.machine);
        let Some(store) = &self.store else {
            return Ok(None);
        };
        let known = store.calibrations()?.into_iter();
        let mut own = known.filter(|(place, _)| *place == here);
        Ok(own.next().map(|(_, calibration)| calibration))
    }

    /// How many seconds that was given; none if nobody said.
    fn calibrated_for_s(&self) -> f64 {
        let here = Fingerprint::of(&self.machine);
        let kept = self
            .store
            .as_ref()
            .map(|store| store.model(&here, CALIBRATED_FOR));
        let kept = kept.and_then(Result::ok).flatten();
        kept.and_then(|seconds| seconds.as_f64()).unwrap_or(0.0)
    }

    /// The same, measured now if there is none or if more time is given to it than then, and kept.
    pub(crate) fn calibrated(&self, options: &CalibrateOptions) -> Result<Calibration, Failure> {
        let asked_s = options.budget.as_secs_f64();
        let enough = self.frozen || asked_s <= self.calibrated_for_s();
        if let Some(known) = self.calibration()?.filter(|_| enough) {
            return Ok(known);
        }
        let cancel = interrupt::flag()?;
        let made = calibrate(
            &self.machine,
            &TscClock::new(),
            options,
            &mut |_| (),
            cancel,
        );
        let made = made.map_err(|error| match error {
            CalibrateError::Cancelled => Failure::Interrupted,
            other => other.into(),
        })?;
        if let Some(store) = &self.store {
            store.describe(&self.machine);
            let here = Fingerprint::of(&self.machine);
            store.calibrated(&here, &made);
            store.keep_model(&here, CALIBRATED_FOR, serde_json::json!(asked_s));
        }
        Ok(made)
    }

    /// What is known of these kernels on this machine. Times measured under other software weigh less.
    pub(crate) fn found(
        &self,
        kernels: &[Arc<dyn HostKernel>],
        calibration: Option<&Calibration>,
    ) -> Result<Found, Failure> {
        let here = Here {
            place: (*self.place).clone(),
            machine: self.machine.clone(),
            calibration: calibration.cloned(),
        };
        let version_of = |id: &str| {
            let mut specs = kernels.iter().map(|kernel| kernel.spec());
            specs
                .find(|spec| spec.id.as_str() == id)
                .map(|spec| spec.version)
        };
        let Some(store) = &self.store else {
            return Ok(Found::default());
        };
        let recalled = store.recall(&here, version_of)?;
        let ignored: u64 = recalled.ignored.values().sum();
        let mut found = Found {
            remembered: Vec::new(),
            set_aside: usize::try_from(ignored).unwrap_or(usize::MAX),
        };
        let now = self.clock.now_s();
        for (known, trust) in recalled.usable {
            let weight = match trust {
                Trust::Measured | Trust::Stale { .. } => trust.weight(),
                // What another machine took is no time of this one.
                Trust::Prior { .. } | Trust::Ignored { .. } => 0.0,
            };
            let times = known.statistics.times();
            let as_of = if self.frozen {
                known.statistics.last_s()
            } else {
                now
            };
            let tally = known.statistics.faded(as_of).and_then(|faded| {
                Tally::of(
                    times.samples(),
                    faded.weight * weight,
                    faded.mean_ln,
                    faded.sd_ln,
                )
            });
            let key = &known.key;
            if version_of(&key.kernel) != Some(key.version) {
                found.set_aside += 1;
                continue;
            }
            let candidate = key.kernel.parse().ok().zip(key.params.parse().ok());
            let whole = (key.workload.parse().ok(), candidate, tally);
            match whole {
                (Some(workload), Some((kernel, params)), Some(tally)) => {
                    found.remembered.push(Remembered {
                        workload,
                        candidate: Candidate { kernel, params },
                        version: key.version,
                        tally,
                    });
                }
                _ => found.set_aside += 1,
            }
        }
        // One candidate may have been measured under this software and under another: what weighs more counts.
        let place = |one: &Remembered| {
            let Candidate { kernel, params } = &one.candidate;
            (
                one.workload.to_string(),
                kernel.to_string(),
                params.to_string(),
            )
        };
        let remembered = &mut found.remembered;
        remembered.sort_by(|a, b| {
            let heavier = b.tally.weight().total_cmp(&a.tally.weight());
            place(a).cmp(&place(b)).then(heavier)
        });
        remembered.dedup_by(|later, first| place(later) == place(first));
        Ok(found)
    }

    /// The kernels that no earlier run had to keep away, in this version.
    pub(crate) fn sound(
        &self,
        mut kernels: Vec<Arc<dyn HostKernel>>,
    ) -> Result<Vec<Arc<dyn HostKernel>>, Failure> {
        let Some(store) = &self.store else {
            return Ok(kernels);
        };
        let kept = store.quarantines(&Fingerprint::of(&self.machine))?;
        for known in kept.iter().filter(|known| !known.lifted) {
            let before = kernels.len();
            kernels.retain(|kernel| {
                let spec = kernel.spec();
                spec.id.as_str() != known.kernel || spec.version != known.version
            });
            if kernels.len() < before {
                let (kernel, case) = (&known.kernel, &known.case);
                let evidence = &known.evidence;
                output::note(&format!("{kernel} is kept away: on {case}, {evidence}"));
            }
        }
        Ok(kernels)
    }

    /// Keeps kernels away from later runs.
    pub(crate) fn keep_away(
        &self,
        quarantined: &[kernelwise_select::Quarantine],
        kernels: &[Arc<dyn HostKernel>],
    ) {
        let Some(store) = &self.store else { return };
        for one in quarantined {
            let spec = kernels.iter().map(|kernel| kernel.spec());
            let Some(spec) = spec.into_iter().find(|spec| spec.id == one.kernel) else {
                continue;
            };
            let note = kernelwise_store::Quarantine {
                kernel: one.kernel.to_string(),
                version: spec.version,
                case: one.workload.clone(),
                evidence: one.evidence.clone(),
                lifted: false,
            };
            store.quarantine(&Fingerprint::of(&self.machine), &note);
        }
    }

    /// Keeps the times of a race. Written in the background; [`Records::close`] waits for it.
    pub(crate) fn keep(&self, measured: &[Measured], kernels: &[Arc<dyn HostKernel>]) {
        let Some(store) = &self.store else { return };
        for one in measured {
            let Candidate { kernel, params } = &one.candidate;
            let spec = kernels.iter().map(|kernel| kernel.spec());
            let Some(spec) = spec.into_iter().find(|spec| spec.id == *kernel) else {
                continue;
            };
            let key = SeriesKey::new(
                Arc::clone(&self.place),
                &one.workload,
                kernel,
                spec.version,
                params,
            );
            let slot = store.slot(&key);
            for time in one.learned_ns.iter().filter_map(|ns| Nanos::new(*ns).ok()) {
                store.record(slot, Sample::timed(time));
            }
        }
    }

    /// Waits until all is written.
    pub(crate) fn close(self) -> Result<(), Failure> {
        let Some(store) = &self.store else {
            return Ok(());
        };
        // Whoever may only read was told so when the file was opened.
        let read_only = |warning: &Warning| matches!(warning, Warning::ReadOnly { .. });
        if store.warnings().iter().any(read_only) {
            return Ok(());
        }
        let written = store.flush();
        if store.dropped() > 0 {
            let dropped = store.dropped();
            output::note(&format!(
                "{dropped} times were not kept: the disk is too slow or may not be written"
            ));
        }
        written.map_err(|error| {
            Failure::Failed(anyhow!(error).context("what was learned could not be kept"))
        })
    }
}

/// Evidence for models, of what is remembered: what was expected of each candidate is made anew.
pub(crate) fn evidence(
    machine: &Machine,
    kernels: &[Arc<dyn HostKernel>],
    calibration: &Calibration,
    remembered: &[Remembered],
) -> Result<Vec<Evidence>, Failure> {
    let reader = Selector::builder(machine.clone(), kernels.to_vec())
        .calibration(calibration.clone())
        .numerics(kernelwise_types::Numerics::ReducedPrecision)
        .mode(kernelwise_select::Mode::Frozen)
        .background(false)
        .build()?;
    reader.recall(remembered);
    Ok(reader.evidence())
}
