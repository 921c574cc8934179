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
    Here, Options, Place, Sample, SeriesKey, Store, StoreError, Trust, WallClock,
};
use kernelwise_types::units::Nanos;
use kernelwise_types::{Calibration, Candidate, Fingerprint, Machine};

use crate::exit::Failure;
use crate::{interrupt, output};

/// The memory of the program on this machine.
pub(crate) struct Records {
    /// `None` where no directory can be written or read.
    store: Option<Store>,
    machine: Machine,
    place: Arc<Place>,
    clock: WallClock,
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

    /// The same, measured now if need be, and kept.
    pub(crate) fn calibrated(&self, options: &CalibrateOptions) -> Result<Calibration, Failure> {
        if let Some(known) = self.calibration()? {
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
            store.calibrated(&Fingerprint::of(&self.machine), &made);
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
            let tally = known.statistics.faded(now).and_then(|faded| {
                Tally::of(
                    times.samples(),
                    faded.weight * weight,
                    faded.mean_ln,
                    faded.sd_ln,
                )
            });
            let key = &known.key;
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
        Ok(found)
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
