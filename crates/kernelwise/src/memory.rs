//! What earlier runs learned on this machine, and where this one keeps what it learns.
//!
//! A [`Memory`] stands between a selector, which knows kernels and workloads, and a store, which knows neither:
//!
//! - **Before**: [`recall`](Memory::recall) gives what was measured on this kind of machine, and what others measured; layers of
//!   [wisdom](kernelwise_store::Wisdom) files of the system, the user and the project count as well, and none is ever written.
//! - **While it runs**: it is an [`Observer`]. Every time that is learned from is handed to the store's background writer.
//! - **After**: models that were fitted are kept with a digest of the times they were fitted to, so that they need not be fitted
//!   again while nothing is new.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use kernelwise_backend::HostKernel;
use kernelwise_select::belief::Tally;
use kernelwise_select::forecast::Forecast;
use kernelwise_select::problem::kind;
use kernelwise_select::{
    BuildError, Evidence, Mode, Observed, Observer, Quarantine, Remembered, Selector,
};
use kernelwise_store::{
    Export, Happened, Here, Known, Options, Place, Recalled, Sample, SeriesKey, Slot, Store,
    StoreError, Trust, WallClock, Wisdom,
};
use kernelwise_types::units::Nanos;
use kernelwise_types::{
    Calibration, Candidate, Conditions, Fingerprint, Machine, Numerics, SystemState,
};
use serde::{Deserialize, Serialize};

pub use self::raced::Raced;
use self::raced::Races;

mod raced;

/// The form in which models are kept; another is fitted anew.
const FORMAT: u32 = 2;
/// Samples that a race leaves of a candidate at the most.
const MOST_OF_A_RACE: u64 = 64;
/// The note in which paces are kept.
const PACES: &str = "paces";
/// Workloads whose paces are kept, at most.
const MOST_PACES: usize = 10_000;
/// Why series are set aside, besides what [`Recalled::ignored`] says.
const NO_TIMES: &str = "no run of it succeeded";
const UNREADABLE: &str = "its workload, kernel or parameters cannot be read here";
const NOT_CALIBRATED: &str = "its machine was not calibrated";

/// The memory of a program on this machine. All threads may use it at once.
#[derive(Debug)]
pub struct Memory {
    /// `None` where nothing is kept.
    store: Option<Arc<Store>>,
    /// What layers know, besides the store.
    layers: Wisdom,
    machine: Machine,
    fingerprint: Fingerprint,
    place: Arc<Place>,
    clock: WallClock,
    /// Whether nothing may change: nothing is kept, and what is old does not weigh less.
    frozen: bool,
    /// Where the times of each candidate on each workload go.
    slots: Mutex<HashMap<(u64, usize), Slot>>,
    /// What the machine does at the moment, as far as anybody looked.
    conditions: Mutex<Conditions>,
    /// Kinds whose models on record cannot be used, and of which that was said.
    told: Mutex<BTreeSet<String>>,
}

/// What is on record.
#[derive(Debug, Default)]
pub struct Recollection {
    /// Times of this kind of machine. Those of other software, or of another version of the kernel, are
    /// [stale](kernelwise_select::belief::Tally::is_stale): little more than a guess, and only there where nothing better is.
    pub here: Vec<Remembered>,
    /// What times of other machines say about this one: evidence for models, never a time.
    pub elsewhere: Vec<Evidence>,
    /// Series that say nothing here.
    pub set_aside: usize,
    /// The same by reason.
    pub ignored: BTreeMap<&'static str, u64>,
}

impl Recollection {
    fn ignore(&mut self, why: &'static str, series: usize) {
        if series > 0 {
            self.set_aside = self.set_aside.saturating_add(series);
            *self.ignored.entry(why).or_default() += series as u64;
        }
    }
}

/// Models of one kind, as they are kept.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    format: u32,
    digest: u64,
    forecast: Forecast,
}

impl Memory {
    /// Opens the store of a directory; see [`Store::open`] for what may be wrong with one.
    pub fn open(dir: &Path, machine: &Machine, clock: WallClock) -> Result<Self, StoreError> {
        Self::open_with(dir, machine, Options::new(clock))
    }

    /// The same with options of your own: what a power cut may cost, and how much is kept.
    pub fn open_with(dir: &Path, machine: &Machine, options: Options) -> Result<Self, StoreError> {
        let clock = options.clock.clone();
        let store = Store::open(dir, options)?;
        Ok(Self {
            store: Some(Arc::new(store)),
            ..Self::nowhere(machine, clock)
        })
    }

    /// A memory that keeps nothing, and knows what it is [told](Self::with_wisdom).
    pub fn nowhere(machine: &Machine, clock: WallClock) -> Self {
        Self {
            store: None,
            layers: Wisdom::default(),
            machine: machine.clone(),
            fingerprint: Fingerprint::of(machine),
            place: Arc::new(Place::of(machine, env!("CARGO_PKG_VERSION"))),
            clock,
            frozen: false,
            slots: Mutex::default(),
            conditions: Mutex::default(),
            told: Mutex::default(),
        }
    }

    /// The same with what others know: files of [layers](kernelwise_store::Layered), or bytes compiled into the program.
    #[must_use]
    pub fn with_wisdom(mut self, wisdom: Wisdom) -> Self {
        self.layers.merge(wisdom);
        self
    }

    /// The same with everything taken as it stands, however old it is, and nothing kept: the same records give the same answers for
    /// ever.
    #[must_use]
    pub fn frozen(mut self) -> Self {
        self.frozen = true;
        self
    }

    /// Where things are kept, if they may be.
    fn keeping(&self) -> Option<&Arc<Store>> {
        self.store.as_ref().filter(|_| !self.frozen)
    }

    /// The store itself, where there is one.
    pub fn store(&self) -> Option<&Arc<Store>> {
        self.store.as_ref()
    }

    /// This machine, as records are compared with it.
    pub fn here(&self) -> Result<Here, StoreError> {
        Ok(Here {
            place: (*self.place).clone(),
            machine: self.machine.clone(),
            calibration: self.calibration()?,
        })
    }

    /// How fast this kind of machine can be, as it was measured before, if it was.
    pub fn calibration(&self) -> Result<Option<Calibration>, StoreError> {
        self.calibration_of(&self.fingerprint)
    }

    fn calibration_of(&self, place: &Fingerprint) -> Result<Option<Calibration>, StoreError> {
        let kept = self.store.as_ref().map(|store| store.calibrations());
        let kept = kept.transpose()?.unwrap_or_default().into_iter();
        let mut known = kept.chain(self.layers.calibrations());
        let found = known.find(|(one, _)| one == place);
        Ok(found.map(|(_, calibration)| calibration))
    }

    fn machine_of(&self, place: &Fingerprint) -> Result<Option<Machine>, StoreError> {
        let kept = self.store.as_ref().map(|store| store.machines());
        let kept = kept.transpose()?.unwrap_or_default().into_iter();
        let mut known = kept.chain(self.layers.machines());
        let found = known.find(|(one, _)| one == place);
        Ok(found.map(|(_, machine)| machine))
    }

    /// Keeps what this machine is like: without that, its records say nothing to other machines.
    pub fn keep_machine(&self) {
        if let Some(store) = self.keeping() {
            store.describe(&self.machine);
        }
    }

    /// Keeps how fast this kind of machine can be, and what it is like.
    pub fn keep_calibration(&self, calibration: &Calibration) {
        self.keep_machine();
        if let Some(store) = self.keeping() {
            store.calibrated(&self.fingerprint, calibration);
        }
    }

    /// What is known of these kernels. Who raced is held against each other as in [the race](Self::keep_race).
    pub fn recall(
        &self,
        kernels: &[Arc<dyn HostKernel>],
        calibration: Option<&Calibration>,
    ) -> Result<Recollection, StoreError> {
        self.recall_with(kernels, calibration, &self.races())
    }

    /// The same, corrected by what these races told.
    fn recall_with(
        &self,
        kernels: &[Arc<dyn HostKernel>],
        calibration: Option<&Calibration>,
        races: &Races,
    ) -> Result<Recollection, StoreError> {
        let here = Here {
            place: (*self.place).clone(),
            machine: self.machine.clone(),
            calibration: calibration.cloned(),
        };
        let versions = versions(kernels);
        let version_of = |id: &str| versions.get(id).copied();
        let Recalled { usable, ignored } = match &self.store {
            None => self.layers.recall(&here, self.clock.now_s(), version_of),
            Some(store) if self.layers.is_empty() => store.recall(&here, version_of)?,
            // Merged before they are judged: what stands in two places counts once.
            Some(store) => {
                let mut all = store.export(&Export::default())?;
                all.merge(self.layers.clone());
                all.recall(&here, self.clock.now_s(), version_of)
            }
        };
        let mut found = Recollection::default();
        for (why, series) in ignored {
            found.ignore(why, usize::try_from(series).unwrap_or(usize::MAX));
        }
        let mut others: BTreeMap<Fingerprint, (f64, Vec<Remembered>)> = BTreeMap::new();
        for (known, trust) in usable {
            let Some(one) = self.remembered(&known, trust, races) else {
                let has_times = known.statistics.times().samples() > 0;
                found.ignore(if has_times { UNREADABLE } else { NO_TIMES }, 1);
                continue;
            };
            match trust {
                Trust::Measured | Trust::Stale { .. } => found.here.push(one),
                Trust::Prior { distance, .. } => {
                    let place = known.key.place.fingerprint.clone();
                    let (_, list) = others.entry(place).or_insert((distance, Vec::new()));
                    list.push(one);
                }
                Trust::Ignored { why } => found.ignore(why, 1),
            }
        }
        best_of_each(&mut found.here, version_of);
        for (place, (distance, mut times)) in others {
            best_of_each(&mut times, version_of);
            let Some(there) = self.evidence_elsewhere(&place, distance, kernels, &times)? else {
                found.ignore(NOT_CALIBRATED, times.len());
                continue;
            };
            found.ignore(UNREADABLE, times.len().saturating_sub(there.len()));
            found.elsewhere.extend(there);
        }
        Ok(found)
    }

    /// One series in the words of a selector; `None` if it has no times or names what is no workload or kernel.
    fn remembered(&self, known: &Known, trust: Trust, races: &Races) -> Option<Remembered> {
        let as_of = match self.frozen {
            false => self.clock.now_s(),
            true => known.statistics.last_s(),
        };
        let faded = known.statistics.faded(as_of)?;
        let samples = known.statistics.times().samples();
        let correction = match trust {
            Trust::Measured => races.correction(&known.key, samples, &faded, as_of),
            Trust::Stale { .. } | Trust::Prior { .. } | Trust::Ignored { .. } => 0.0,
        };
        let tally = Tally::of(
            samples,
            trust.worth(faded.weight),
            faded.mean_ln + correction,
            faded.sd_ln,
        )?;
        let tally = match trust {
            Trust::Stale { .. } => tally.stale(),
            Trust::Measured | Trust::Prior { .. } | Trust::Ignored { .. } => tally,
        };
        let key = &known.key;
        Some(Remembered {
            workload: key.workload.parse().ok()?,
            candidate: Candidate {
                kernel: key.kernel.parse().ok()?,
                params: key.params.parse().ok()?,
            },
            version: key.version,
            tally,
        })
    }

    /// What was measured on another machine beside what was to be expected there; `None` if it was not calibrated.
    fn evidence_elsewhere(
        &self,
        place: &Fingerprint,
        distance: f64,
        kernels: &[Arc<dyn HostKernel>],
        times: &[Remembered],
    ) -> Result<Option<Vec<Evidence>>, StoreError> {
        let there = self.machine_of(place)?.zip(self.calibration_of(place)?);
        let Some((machine, calibration)) = there else {
            return Ok(None);
        };
        // Kernels that cannot be put together here say nothing about there.
        let evidence = evidence(&machine, kernels, &calibration, times).unwrap_or_default();
        let from_afar = evidence.into_iter().map(|one| Evidence {
            away: Some(distance),
            ..one
        });
        Ok(Some(from_afar.collect()))
    }

    /// Kernels that earlier runs had to keep away on this kind of machine.
    pub fn quarantined(&self) -> Result<Vec<Quarantine>, StoreError> {
        let kept = self.kept_quarantines()?.into_iter();
        let kept = kept.filter(|one| !one.lifted).filter_map(|one| {
            Some(Quarantine {
                kernel: one.kernel.parse().ok()?,
                version: one.version,
                workload: one.case,
                evidence: one.evidence,
            })
        });
        Ok(kept.collect())
    }

    fn kept_quarantines(&self) -> Result<Vec<kernelwise_store::Quarantine>, StoreError> {
        let store = self.store.as_ref();
        let kept = store.map(|store| store.quarantines(&self.fingerprint));
        let mut all = kept.transpose()?.unwrap_or_default();
        // What this machine decided itself holds over what it is told.
        for (place, told) in self.layers.quarantines() {
            let known = |one: &kernelwise_store::Quarantine| {
                one.kernel == told.kernel && one.version == told.version
            };
            if place == self.fingerprint && !all.iter().any(known) {
                all.push(told);
            }
        }
        Ok(all)
    }

    fn keep_quarantine(&self, quarantine: &kernelwise_store::Quarantine) {
        if let Some(store) = self.keeping() {
            store.quarantine(&self.fingerprint, quarantine);
        }
    }

    /// Lets a kernel back in, in later runs. Returns whether it was kept away.
    pub fn lift_quarantine(&self, kernel: &str) -> Result<bool, StoreError> {
        let mut found = false;
        for one in self.kept_quarantines()? {
            if one.kernel == kernel && !one.lifted {
                found = true;
                let lifted = kernelwise_store::Quarantine {
                    lifted: true,
                    ..one
                };
                self.keep_quarantine(&lifted);
            }
        }
        Ok(found)
    }

    /// Says what the machine does at the moment, if anybody looks: it is kept beside every single run.
    pub fn set_state(&self, state: &SystemState) {
        let mut conditions = self
            .conditions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *conditions = Conditions::from(state);
    }

    fn conditions(&self) -> Conditions {
        *self
            .conditions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps times that were measured without a selector.
    pub fn keep(&self, workload: &str, candidate: &Candidate, version: u32, times_ns: &[f64]) {
        let Some(store) = self.keeping() else { return };
        let slot = self.slot(store, workload, candidate, version);
        for time in times_ns.iter().filter_map(|ns| Nanos::new(*ns).ok()) {
            let sample = Sample {
                conditions: self.conditions(),
                ..Sample::timed(time)
            };
            store.record(slot, sample);
        }
    }

    /// The key that times of a candidate are kept under.
    pub fn key(&self, workload: &str, candidate: &Candidate, version: u32) -> SeriesKey {
        let Candidate { kernel, params } = candidate;
        SeriesKey::new(Arc::clone(&self.place), workload, kernel, version, params)
    }

    fn slot(&self, store: &Store, workload: &str, candidate: &Candidate, version: u32) -> Slot {
        store.slot(&self.key(workload, candidate, version))
    }

    /// Keeps how long the [fixed work](kernelwise_select::pace) took beside the race of each of these workloads, in nanoseconds.
    pub fn keep_paces(&self, paces: &BTreeMap<String, f64>) {
        let mut all = self.paces();
        all.extend(paces.iter().map(|(name, ns)| (name.clone(), *ns)));
        // Nobody knows how old the others are.
        while all.len() > MOST_PACES.max(paces.len()) {
            let other = all.keys().find(|name| !paces.contains_key(*name)).cloned();
            let Some(other) = other else { break };
            all.remove(&other);
        }
        if let (Some(store), Ok(kept)) = (self.keeping(), serde_json::to_value(&all)) {
            store.keep_model(&self.fingerprint, PACES, kept);
        }
    }

    fn paces(&self) -> BTreeMap<String, f64> {
        self.model(PACES)
            .and_then(|kept| serde_json::from_value(kept).ok())
            .unwrap_or_default()
    }

    /// Evidence of this machine with how much slower than usual it was meanwhile, as far as that was looked at: before, or by these
    /// looks. What is usual is the middle of all looks.
    pub fn with_paces(
        &self,
        mut evidence: Vec<Evidence>,
        looks: &BTreeMap<String, f64>,
    ) -> Vec<Evidence> {
        let mut paces = self.paces();
        paces.extend(looks.iter().map(|(name, ns)| (name.clone(), *ns)));
        let mut all: Vec<f64> = paces.values().copied().filter(|ns| *ns > 0.0).collect();
        all.sort_by(f64::total_cmp);
        let Some(usual) = all.get(all.len() / 2) else {
            return evidence;
        };
        for one in evidence.iter_mut().filter(|one| one.away.is_none()) {
            // What many calls of other moments told is no matter of this one.
            let of_the_race = one.of.tally.samples() <= MOST_OF_A_RACE;
            let look = paces.get(&one.of.workload.to_string());
            let look = look.filter(|_| of_the_race);
            one.slower = look.map(|ns| (ns / usual).ln()).filter(|ln| ln.is_finite());
        }
        evidence
    }

    /// Models that were fitted to exactly this evidence before. Kinds of which there are none, or others, are left out.
    pub fn kept_models(&self, evidence: &[Evidence], seed: u64) -> Forecast {
        let mut all = Forecast::default();
        for (kind, evidence) in by_kind(evidence) {
            let same = |kept: &Kept| kept.digest == digest(&evidence, seed);
            if let Some(kept) = self.kept(&kind).filter(same) {
                all = all.with(kept.forecast);
            }
        }
        all
    }

    /// The models that were kept last of these kinds, whatever was measured since: what a program begins with that has no time to fit
    /// new ones.
    pub fn latest_models(&self, evidence: &[Evidence]) -> Forecast {
        let kinds = by_kind(evidence).into_keys();
        let kept = kinds.filter_map(|kind| self.kept(&kind));
        kept.fold(Forecast::default(), |all, kept| all.with(kept.forecast))
    }

    /// What is kept of a kind; what another version wrote, or is damaged, is not used, and that is said once.
    fn kept(&self, kind: &str) -> Option<Kept> {
        let note = self.model(&name(kind))?;
        let format = note.get("format").and_then(serde_json::Value::as_u64);
        if format.is_some_and(|format| format != u64::from(FORMAT)) {
            if self.is_told_first(kind) {
                tracing::warn!(
                    kind,
                    format,
                    known = FORMAT,
                    "models on record are of another version and are fitted anew"
                );
            }
            return None;
        }
        let read = serde_json::from_value(note);
        if let Err(error) = &read
            && self.is_told_first(kind)
        {
            tracing::warn!(kind, %error, "models on record are damaged and are fitted anew");
        }
        read.ok()
    }

    fn is_told_first(&self, kind: &str) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(kind.to_owned())
    }

    /// A note of models, from the store or from what it was told.
    fn model(&self, name: &str) -> Option<serde_json::Value> {
        let store = self.store.as_ref();
        let kept = store.and_then(|store| store.model(&self.fingerprint, name).ok().flatten());
        kept.or_else(|| self.layers.model(&self.fingerprint, name).cloned())
    }

    /// Models of all kinds that there is enough evidence of: those that were kept, and where times were added since new ones, if
    /// they are [no worse](Forecast::renewed). What is used is kept.
    pub fn models(&self, evidence: &[Evidence], seed: u64) -> Forecast {
        let mut all = self.kept_models(evidence, seed);
        let known: Vec<String> = all.kinds().map(|scope| scope.kind).collect();
        for (kind, evidence) in by_kind(evidence) {
            if !known.contains(&kind) {
                let before = self.kept(&kind).map(|kept| kept.forecast);
                let renewed = before.unwrap_or_default().renewed(&evidence, None, seed);
                all = all.with(self.keep_models(&kind, &evidence, renewed.forecast, seed));
            }
        }
        all
    }

    /// Fits models to all of the evidence, whatever is kept, and keeps them: the same records and seed give the same models.
    pub fn train(&self, evidence: &[Evidence], seed: u64) -> Forecast {
        let kinds = by_kind(evidence).into_iter();
        kinds.fold(Forecast::default(), |all, (kind, evidence)| {
            let fitted = Forecast::fit(&evidence, seed);
            all.with(self.keep_models(&kind, &evidence, fitted, seed))
        })
    }

    /// Fits models of the kinds that none are kept of, on a thread of its own, and keeps them: a program that has no time to fit
    /// any begins with them the next time. So a program that never learned by itself has the use of what other machines did.
    pub fn fit_beside(self: &Arc<Self>, evidence: &[Evidence], seed: u64) {
        let lacking: Vec<_> = by_kind(evidence)
            .into_iter()
            .filter(|(kind, _)| self.kept(kind).is_none())
            .collect();
        if lacking.is_empty() || self.keeping().is_none() {
            return;
        }
        let memory = Arc::downgrade(self);
        let work = move || {
            for (kind, evidence) in lacking {
                let fitted = Forecast::fit(&evidence, seed);
                // Whoever ended the program does not wait for it.
                let Some(memory) = memory.upgrade() else {
                    return;
                };
                memory.keep_models(&kind, &evidence, fitted, seed);
            }
        };
        let thread = std::thread::Builder::new().name("kernelwise-fit".to_owned());
        if let Err(error) = thread.spawn(work) {
            tracing::warn!(%error, "no thread to fit models on");
        }
    }

    /// Keeps the models of a kind as those to use while there is no other evidence than this.
    fn keep_models(
        &self,
        kind: &str,
        evidence: &[Evidence],
        forecast: Forecast,
        seed: u64,
    ) -> Forecast {
        if forecast.kinds().next().is_some() {
            let kept = Kept {
                format: FORMAT,
                digest: digest(evidence, seed),
                forecast: forecast.clone(),
            };
            if let (Some(store), Ok(kept)) = (self.keeping(), serde_json::to_value(&kept)) {
                store.keep_model(&self.fingerprint, &name(kind), kept);
            }
        }
        forecast
    }
}

impl Observer for Memory {
    fn failed(&self, workload: &str, candidate: &Candidate, version: u32) {
        if let Some(store) = self.keeping() {
            let slot = self.slot(store, workload, candidate, version);
            store.record(slot, Happened::Failed.into());
        }
    }

    fn observed(&self, observed: &Observed<'_>) {
        let (Some(store), Ok(time)) = (self.keeping(), Nanos::new(observed.time_ns())) else {
            return;
        };
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = *slots.entry(observed.place()).or_insert_with(|| {
            let workload = observed.workload().to_string();
            self.slot(store, &workload, &observed.candidate(), observed.version())
        });
        drop(slots);
        let predicted = observed.predicted_ns();
        let sample = Sample {
            happened: Happened::Timed(time),
            predicted: predicted.and_then(|ns| Nanos::new(ns).ok()),
            conditions: self.conditions(),
        };
        store.record(slot, sample);
    }

    fn quarantined(&self, quarantine: &Quarantine) {
        let note = kernelwise_store::Quarantine {
            kernel: quarantine.kernel.to_string(),
            version: quarantine.version,
            case: quarantine.workload.clone(),
            evidence: quarantine.evidence.clone(),
            lifted: false,
        };
        self.keep_quarantine(&note);
    }
}

/// Evidence for models, of what is remembered of a machine: what was expected of each candidate is made anew.
pub fn evidence(
    machine: &Machine,
    kernels: &[Arc<dyn HostKernel>],
    calibration: &Calibration,
    remembered: &[Remembered],
) -> Result<Vec<Evidence>, BuildError> {
    let reader = Selector::builder(machine.clone(), kernels.to_vec())
        .calibration(calibration.clone())
        .numerics(Numerics::ReducedPrecision)
        .mode(Mode::Frozen)
        .background(false)
        .build()?;
    // What another version of a kernel took says nothing about this one's models. What was measured under other software does: it
    // was measured, even if a selector had better verify it.
    let versions = versions(kernels);
    let of_this_version = remembered
        .iter()
        .filter(|one| versions.get(one.candidate.kernel.as_str()) == Some(&one.version));
    let measured = of_this_version.filter_map(|one| {
        let Remembered { tally, .. } = one;
        let (samples, weight) = (tally.samples(), tally.weight());
        Some(Remembered {
            tally: Tally::of(samples, weight, tally.mean()?, tally.sd())?,
            ..one.clone()
        })
    });
    reader.recall(&measured.collect::<Vec<_>>());
    Ok(reader.evidence())
}

/// The versions that kernels have here.
fn versions(kernels: &[Arc<dyn HostKernel>]) -> HashMap<&str, u32> {
    let specs = kernels.iter().map(|kernel| kernel.spec());
    specs.map(|spec| (spec.id.as_str(), spec.version)).collect()
}

/// One candidate may have been measured under this software and under others, and in several versions. What was measured as things
/// are now counts, however little that is; else what comes from this version of the kernel; else what weighs most.
fn best_of_each(remembered: &mut Vec<Remembered>, version_of: impl Fn(&str) -> Option<u32>) {
    let place = |one: &Remembered| (one.workload.to_string(), one.candidate.to_string());
    remembered.sort_by_cached_key(|one| {
        let other_version = version_of(one.candidate.kernel.as_str()) != Some(one.version);
        // Weights are positive: their bits are in their order.
        let weight = std::cmp::Reverse(one.tally.weight().to_bits());
        (place(one), one.tally.is_stale(), other_version, weight)
    });
    remembered.dedup_by(|later, first| place(later) == place(first));
}

fn by_kind(evidence: &[Evidence]) -> BTreeMap<String, Vec<Evidence>> {
    let mut kinds: BTreeMap<String, Vec<Evidence>> = BTreeMap::new();
    for one in evidence {
        let kind = kind(&one.of.workload);
        kinds.entry(kind).or_default().push(one.clone());
    }
    kinds
}

/// The note that models of a kind are kept in.
fn name(kind: &str) -> String {
    format!("forecast {kind}")
}

/// Changes when anything does that models are fitted to. Weights are left out: they fade from second to second, all alike.
fn digest(evidence: &[Evidence], seed: u64) -> u64 {
    let rounded = |value: Option<f64>| (1e6 * value.unwrap_or(-1.0)).round() as i64;
    let mut parts: Vec<_> = evidence
        .iter()
        .map(|one| {
            (
                one.of.workload.to_string(),
                format!("{} {}", one.of.candidate, one.of.version),
                (one.of.tally.samples(), one.threads),
                rounded(one.of.tally.mean()),
                rounded(one.expected_ns.map(|ns| ns.max(0.01).ln())),
                (rounded(one.away), rounded(one.slower)),
            )
        })
        .collect();
    parts.sort();
    let mut hasher = DefaultHasher::new();
    (parts, seed).hash(&mut hasher);
    hasher.finish()
}
