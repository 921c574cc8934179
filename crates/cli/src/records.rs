//! What earlier runs learned on this machine, for the program: [`Memory`] with words for people.
//!
//! Verbs that measure write to it, all read from it. Where it cannot be opened for want of a directory that may be written, the
//! program goes on without; a file of a newer version ends it, with nothing touched.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::anyhow;
use kernelwise::memory::{Memory, Recollection};
use kernelwise_backend::HostKernel;
use kernelwise_select::{Evidence, Mode, Quarantine};
use kernelwise_store::{Layered, Store, StoreError, WallClock, Warning, search_path};
use kernelwise_types::{Calibration, Fingerprint, Machine};

use crate::exit::Failure;
use crate::{ceilings, environment, output};

/// The name under which is kept how long the machine was calibrated.
const CALIBRATED_FOR: &str = "calibrated_for_s";

/// The memory of the program on this machine.
pub(crate) struct Records {
    memory: Arc<Memory>,
    machine: Machine,
    /// Whether nothing may change: what is on record is taken as it stands, whatever its age.
    frozen: bool,
    /// What was said of the file.
    noted: Mutex<Vec<Warning>>,
}

/// The time of day, in seconds since 1970.
pub(crate) fn now_s() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

impl Records {
    /// Opens the store that the environment names, reads the layers of wisdom, and says on standard error what a person should
    /// know of them.
    pub(crate) fn open(machine: &Machine) -> Result<Self, Failure> {
        let frozen = environment::mode()? == Mode::Frozen;
        let clock = WallClock::new(now_s);
        let nothing = |why: &dyn std::fmt::Display| {
            output::note(&format!("nothing is remembered: {why}"));
            Memory::nowhere(machine, clock.clone())
        };
        let dir = kernelwise_store::directory(|name| std::env::var_os(name));
        let memory = match dir {
            // Nothing is made where nothing may change.
            Ok(dir) if frozen && !dir.exists() => {
                let path = dir.display();
                nothing(&format!(
                    "{path} is not there, and in frozen mode nothing is made"
                ))
            }
            Ok(dir) => match Memory::open(&dir, machine, clock.clone()) {
                Ok(memory) => memory,
                Err(error @ (StoreError::Newer { .. } | StoreError::Busy { .. })) => {
                    return Err(Failure::Records(error.into()));
                }
                Err(error) => nothing(&error),
            },
            Err(error) => nothing(&error),
        };
        let path = search_path(|name| std::env::var_os(name), Path::new("."));
        let layers = Layered::load(&path);
        for file in &layers.files {
            let (path, left_out) = (file.path.display(), &file.result);
            match left_out {
                Ok(lines) if lines.is_empty() => {}
                Ok(lines) => output::note(&format!("{path}: {} lines left out", lines.len())),
                Err(error) => output::note(&format!("{path} is left out: {error}")),
            }
        }
        let memory = memory.with_wisdom(layers.wisdom);
        let memory = match frozen {
            true => memory.frozen(),
            false => memory,
        };
        let records = Self {
            memory: Arc::new(memory),
            machine: machine.clone(),
            frozen,
            noted: Mutex::default(),
        };
        records.note_warnings();
        Ok(records)
    }

    /// Says what happened to the file, unless that was said: some damage shows only when it is read.
    fn note_warnings(&self) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let store = self.memory.store();
        for warning in store.iter().flat_map(|store| store.warnings()) {
            if !noted.contains(&warning) {
                output::note(&warning.to_string());
                noted.push(warning);
            }
        }
    }

    /// Says how much of what is on record does not count on this machine, and why.
    pub(crate) fn note_ignored(&self, found: &Recollection) {
        if found.set_aside > 0 {
            let reasons = found.ignored.iter();
            let reasons: Vec<String> = reasons.map(|(why, n)| format!("{n}: {why}")).collect();
            output::note(&format!(
                "{} series on record say nothing here ({})",
                found.set_aside,
                reasons.join("; ")
            ));
        }
    }

    /// The memory itself: what a selector tells what it learns.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The store, where there is one.
    pub(crate) fn store(&self) -> Result<&Store, Failure> {
        let store = self.memory.store();
        store.map(AsRef::as_ref).ok_or_else(|| {
            Failure::Failed(anyhow!(
                "there is no place for records: set KERNELWISE_DIR to a directory"
            ))
        })
    }

    /// The file.
    pub(crate) fn path(&self) -> String {
        let Some(store) = self.memory.store() else {
            return "no file".to_owned();
        };
        let read_only = |warning: &Warning| matches!(warning, Warning::ReadOnly { .. });
        let path = store.path().display().to_string();
        match store.warnings().iter().any(read_only) {
            true => format!("no file: {path} may only be read"),
            false => path,
        }
    }

    /// How many seconds the calibration on record was given; none if nobody said.
    fn calibrated_for_s(&self) -> f64 {
        let here = Fingerprint::of(&self.machine);
        let store = self.memory.store();
        let kept = store.map(|store| store.model(&here, CALIBRATED_FOR));
        let kept = kept.and_then(Result::ok).flatten();
        kept.and_then(|seconds| seconds.as_f64()).unwrap_or(0.0)
    }

    /// How fast this machine can be: as on record, or measured now if there is nothing or if more time is given to it than then, and
    /// kept.
    pub(crate) fn calibrated(&self, budget: Duration) -> Result<Calibration, Failure> {
        let asked_s = budget.as_secs_f64();
        let enough = self.frozen || asked_s <= self.calibrated_for_s();
        if let Some(known) = self.memory.calibration()?.filter(|_| enough) {
            return Ok(known);
        }
        let made = ceilings::measured(&self.machine, budget)?;
        self.memory.keep_calibration(&made);
        if let (Some(store), false) = (self.memory.store(), self.frozen) {
            let here = Fingerprint::of(&self.machine);
            store.keep_model(&here, CALIBRATED_FOR, serde_json::json!(asked_s));
        }
        Ok(made)
    }

    /// What is known of these kernels.
    pub(crate) fn found(
        &self,
        kernels: &[Arc<dyn HostKernel>],
        calibration: Option<&Calibration>,
    ) -> Result<Recollection, Failure> {
        let found = self.memory.recall(kernels, calibration);
        self.note_warnings();
        Ok(found?)
    }

    /// The same as evidence for models, times of other machines among it.
    pub(crate) fn evidence(
        &self,
        kernels: &[Arc<dyn HostKernel>],
        calibration: &Calibration,
        found: &Recollection,
    ) -> Result<Vec<Evidence>, Failure> {
        let here = kernelwise::memory::evidence(&self.machine, kernels, calibration, &found.here)?;
        let here = self.memory.with_paces(here, &BTreeMap::new());
        Ok([here, found.elsewhere.clone()].concat())
    }

    /// Kernels that earlier runs had to keep away; a person is told.
    pub(crate) fn quarantined(&self) -> Result<Vec<Quarantine>, Failure> {
        let kept = self.memory.quarantined()?;
        for one in &kept {
            let Quarantine {
                kernel, evidence, ..
            } = one;
            let workload = &one.workload;
            output::note(&format!(
                "{kernel} is kept away: on {workload}, {evidence} (`kernelwise cache quarantine` lets it back in)"
            ));
        }
        Ok(kept)
    }

    /// For verbs whose work is to learn: in frozen mode there is none.
    pub(crate) fn must_learn(&self, verb: &str) -> Result<(), Failure> {
        match self.frozen {
            true => Err(Failure::Usage(anyhow!(
                "KERNELWISE_MODE is frozen, and `{verb}` learns: unset it"
            ))),
            false => Ok(()),
        }
    }

    /// Whether nothing may change.
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Waits until all is written, for answers that do not depend on it: what cannot be kept is said.
    pub(crate) fn close_or_note(self) {
        if let Err(Failure::Failed(error)) = self.close() {
            output::note(&format!("{error:#}"));
        }
    }

    /// Waits until all is written.
    pub(crate) fn close(self) -> Result<(), Failure> {
        let Some(store) = self.memory.store() else {
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
