//! What earlier runs learned on this machine, and where this one keeps what it learns.
//!
//! A [`Memory`] stands between a selector, which knows kernels and workloads, and a store, which knows neither:
//!
//! - **Before**: [`recall`](Memory::recall) gives what was measured on this kind of machine, and what others measured; layers of
//!   [wisdom](kernelwise_store::Wisdom) files of the system, the user and the project count as well, and none is ever written.
//! - **While it runs**: it is an [`Observer`]. Every time that is learned from is handed to the store's background writer.
//! - **After**: models that were fitted are kept with a digest of the times they were fitted to, so that they need not be fitted
//!   again while nothing is new.

use std::collections::{BTreeMap, HashMap};
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
    Export, Here, Known, Options, Place, Recalled, Sample, SeriesKey, Slot, Store, StoreError,
    Trust, WallClock, Wisdom,
};
use kernelwise_types::units::Nanos;
use kernelwise_types::{Calibration, Candidate, Fingerprint, Machine, Numerics};
use serde::{Deserialize, Serialize};

/// The form in which models are kept; another is fitted anew.
const FORMAT: u32 = 2;
/// Samples that a race leaves of a candidate at the most.
const MOST_OF_A_RACE: u64 = 64;
/// The note in which paces are kept.
const PACES: &str = "paces";

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
}

/// What is on record.
#[derive(Debug, Default)]
pub struct Recollection {
    /// Times of this kind of machine, of kernels as they are here. Those of other software weigh less.
    pub here: Vec<Remembered>,
    /// What times of other machines say about this one: evidence for models, never a time.
    pub elsewhere: Vec<Evidence>,
    /// Series of kernels, versions or machines that say nothing here.
    pub set_aside: usize,
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
        let store = Store::open(dir, Options::new(clock.clone()))?;
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

    /// Keeps how fast this kind of machine can be, and what it is like.
    pub fn keep_calibration(&self, calibration: &Calibration) {
        if let Some(store) = self.keeping() {
            store.describe(&self.machine);
            store.calibrated(&self.fingerprint, calibration);
        }
    }

    /// What is known of these kernels.
    pub fn recall(
        &self,
        kernels: &[Arc<dyn HostKernel>],
        calibration: Option<&Calibration>,
    ) -> Result<Recollection, StoreError> {
        let here = Here {
            place: (*self.place).clone(),
            machine: self.machine.clone(),
            calibration: calibration.cloned(),
        };
        let versions: HashMap<&str, u32> = kernels
            .iter()
            .map(|kernel| (kernel.spec().id.as_str(), kernel.spec().version))
            .collect();
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
        let ignored: u64 = ignored.values().sum();
        let mut found = Recollection {
            set_aside: usize::try_from(ignored).unwrap_or(usize::MAX),
            ..Recollection::default()
        };
        let mut others: BTreeMap<Fingerprint, (f64, Vec<Remembered>)> = BTreeMap::new();
        for (known, trust) in usable {
            let same_version = version_of(&known.key.kernel) == Some(known.key.version);
            let remembered = self.remembered(&known, trust.weight());
            match (remembered.filter(|_| same_version), trust) {
                (Some(one), Trust::Measured | Trust::Stale { .. }) => found.here.push(one),
                (Some(one), Trust::Prior { distance, .. }) => {
                    let place = known.key.place.fingerprint.clone();
                    let (_, list) = others.entry(place).or_insert((distance, Vec::new()));
                    list.push(one);
                }
                _ => found.set_aside += 1,
            }
        }
        heaviest_of_each(&mut found.here);
        for (place, (distance, mut times)) in others {
            heaviest_of_each(&mut times);
            let there = self.evidence_elsewhere(&place, distance, kernels, &times)?;
            found.set_aside += times.len() - there.len();
            found.elsewhere.extend(there);
        }
        Ok(found)
    }

    /// One series in the words of a selector; `None` if it has no times or names what is no workload or kernel.
    fn remembered(&self, known: &Known, trusted: f64) -> Option<Remembered> {
        let as_of = match self.frozen {
            false => self.clock.now_s(),
            true => known.statistics.last_s(),
        };
        let faded = known.statistics.faded(as_of)?;
        let tally = Tally::of(
            known.statistics.times().samples(),
            faded.weight * trusted,
            faded.mean_ln,
            faded.sd_ln,
        )?;
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

    /// What was measured on another machine beside what was to be expected there.
    fn evidence_elsewhere(
        &self,
        place: &Fingerprint,
        distance: f64,
        kernels: &[Arc<dyn HostKernel>],
        times: &[Remembered],
    ) -> Result<Vec<Evidence>, StoreError> {
        let there = self.machine_of(place)?.zip(self.calibration_of(place)?);
        let Some((machine, calibration)) = there else {
            return Ok(Vec::new());
        };
        // Kernels that cannot be put together here say nothing about there.
        let evidence = evidence(&machine, kernels, &calibration, times).unwrap_or_default();
        let from_afar = evidence.into_iter().map(|one| Evidence {
            away: Some(distance),
            ..one
        });
        Ok(from_afar.collect())
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

    /// Keeps times that were measured without a selector.
    pub fn keep(&self, workload: &str, candidate: &Candidate, version: u32, times_ns: &[f64]) {
        let Some(store) = self.keeping() else { return };
        let slot = self.slot(store, workload, candidate, version);
        for time in times_ns.iter().filter_map(|ns| Nanos::new(*ns).ok()) {
            store.record(slot, Sample::timed(time));
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

    /// What is kept of a kind; what another version wrote, or damaged, is not.
    fn kept(&self, kind: &str) -> Option<Kept> {
        let kept: Kept = serde_json::from_value(self.model(&name(kind))?).ok()?;
        (kept.format == FORMAT).then_some(kept)
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
        store.record(slot, Sample::timed(time));
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
    reader.recall(remembered);
    Ok(reader.evidence())
}

/// One candidate may have been measured under this software and under another: what weighs more counts.
fn heaviest_of_each(remembered: &mut Vec<Remembered>) {
    let place = |one: &Remembered| (one.workload.to_string(), one.candidate.to_string());
    remembered.sort_by_cached_key(|one| {
        // Weights are positive: their bits are in their order.
        (place(one), std::cmp::Reverse(one.tally.weight().to_bits()))
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
