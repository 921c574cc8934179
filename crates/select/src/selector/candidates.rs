//! Who may compute a workload, with which settings, and what is expected of each before it runs.

use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use arc_swap::ArcSwapOption;
use kernelwise_backend::{Fault, Host, HostKernel, Setting, Terms, admit, prior};
use kernelwise_types::{Estimate, KernelId, Machine, Params, Technique, Workload};

use super::{Entry, HostCase, Mode, SelectError, Shared, UNCHECKED};
use crate::belief::Expected;
use crate::engine::{NewCase, lock};
use crate::forecast::Foretold;
use crate::kinds::Likeness;
use crate::learn::{Facts, Foreseen};
use crate::problem::{Problem, kind};

/// How far off an expectation under load may be, in ln t: who gets a processor when is for the system to say.
const LOADED_SD: f64 = 0.3;
/// How far off an expectation from the roofline may be, in ln t: a factor of e.
const EXPECTED_SD: f64 = 1.0;

impl Entry {
    /// The same on every workload of a kind: the kernel in its version, and the threads. Other parameters are the kernel's own
    /// choice for the sizes at hand; where they were tuned, it is another arm.
    fn arm(&self, workload: &Workload, machine: &Machine) -> String {
        let spec = self.kernel.spec();
        let arm = arm(&spec.id, spec.version, self.threads(workload, machine));
        match settings(self.kernel.as_ref(), workload, machine).contains(&self.setting) {
            true => arm,
            false => format!("{arm} {}", self.params),
        }
    }

    fn threads(&self, workload: &Workload, machine: &Machine) -> u32 {
        prior::threads(&self.kernel.space(workload, machine), &self.setting)
    }
}

/// A kernel with its threads, by a name that is the same on every workload.
pub(crate) fn arm(kernel: &KernelId, version: u32, threads: u32) -> String {
    format!("{kernel} {version} threads={threads}")
}

impl Shared {
    /// The threads that a candidate runs on.
    pub(super) fn threads(&self, entry: &Entry, workload: &Workload) -> u32 {
        entry.threads(workload, self.host.load().machine())
    }

    fn terms<'a>(&self, host: &'a Host) -> Terms<'a> {
        Terms {
            numerics: self.numerics,
            ..Terms::usual(host.machine())
        }
    }

    /// The case of a workload: every kernel that may compute it.
    pub(super) fn case(
        &self,
        workload: &Workload,
        alignment: Option<usize>,
        load: u32,
    ) -> Result<NewCase, SelectError> {
        let host = self.host.load_full();
        let terms = self.terms(&host);
        let operation = workload.operation();
        let full = operation.to_string();
        let forced = self
            .forced
            .get(&full)
            .or_else(|| self.forced.get(operation.name()));
        let (mut entries, mut refused) = (Vec::new(), Vec::new());
        let mut words = Vec::new();
        let mut last = None;
        let further = lock(&self.further).get(&workload.to_string()).cloned();
        let further = further.unwrap_or_default();
        for kernel in host.kernels_for(workload) {
            let id = kernel.spec().id.clone();
            if forced.is_some_and(|forced| id.as_str() != forced) {
                continue;
            }
            if kernel.spec().technique == Technique::Reference && forced.is_none() {
                last = Some(kernel);
                continue;
            }
            let mut settings = settings(kernel.as_ref(), workload, host.machine());
            let space = kernel.space(workload, host.machine());
            for setting in further.iter().filter(|(known, _)| *known == id) {
                // What was kept by another version may not be a setting any more.
                let setting = space.setting(&setting.1).ok();
                settings.extend(setting.filter(|setting| !settings.contains(setting)));
            }
            for setting in settings {
                match admit(kernel.as_ref(), workload, alignment, &setting, &terms) {
                    Ok(()) => entries.extend(self.entry(&kernel, setting, workload, &host)),
                    Err(Fault::Refused { refusal, .. }) => {
                        // Told once, whatever the number of threads.
                        if words.last().is_none_or(|(known, _)| *known != id) {
                            words.push((id.clone(), refusal.to_string()));
                            refused.push((id.clone(), refusal));
                        }
                    }
                    Err(other) => words.push((id.clone(), other.to_string())),
                }
            }
        }
        // A kernel that may run with one number of threads is not refused.
        let entered = |id: &KernelId| entries.iter().any(|e: &Entry| e.kernel.spec().id == *id);
        refused.retain(|(id, _)| !entered(id));
        if let (Some(kernel), true) = (forced, entries.is_empty()) {
            let reason = words.into_iter().map(|(_, why)| why).next();
            return Err(SelectError::Forced {
                kernel: kernel.clone(),
                workload: workload.to_string(),
                reason: reason.unwrap_or_else(|| "there is no such kernel for it".to_owned()),
            });
        }
        // The reference computes what nobody else does.
        if let (true, Some(reference)) = (entries.is_empty(), last) {
            entries.extend(self.entry(&reference, Setting::NONE, workload, &host));
        }
        if entries.is_empty() {
            return Err(SelectError::NoKernel {
                workload: workload.to_string(),
                refused: words,
            });
        }
        let quarantined = lock(&self.quarantined);
        let barred = entries.iter().map(|entry: &Entry| {
            let spec = entry.kernel.spec();
            quarantined.contains_key(&(spec.id.clone(), spec.version))
        });
        let barred = barred.collect();
        drop(quarantined);
        let facts = entries
            .iter()
            .map(|entry| self.facts(entry, workload, &host));
        let mut facts: Vec<Facts> = facts.collect();
        if load > 0 {
            self.under_load(load, workload, alignment, &entries, &mut facts);
        }
        let likeness = Likeness {
            kind: kind(workload),
            problem: Problem::of(workload),
            arms: entries
                .iter()
                .map(|entry| entry.arm(workload, host.machine()))
                .collect(),
        };
        Ok(NewCase {
            name: match load {
                0 => workload.to_string(),
                busy => format!("{workload}, {busy} processors busy"),
            },
            // Who learns nothing has nothing to compare with, and what is slow for want of processors is no example.
            likeness: (self.mode != Mode::Frozen && load == 0).then_some(likeness),
            facts,
            barred,
            payload: Box::new(HostCase {
                workload: workload.clone(),
                entries,
                refused,
                forced: forced.is_some(),
                load,
            }),
        })
    }

    fn entry(
        &self,
        kernel: &Arc<dyn HostKernel>,
        setting: Setting,
        workload: &Workload,
        host: &Host,
    ) -> Option<Entry> {
        let space = kernel.space(workload, host.machine());
        let expected = match &self.calibration {
            Some(calibration) => prior::estimate(
                kernel.as_ref(),
                workload,
                &setting,
                host.machine(),
                calibration,
            ),
            None => Estimate::Unknown,
        };
        let entry = Entry {
            params: space.params(&setting).ok()?,
            foretold: ArcSwapOption::empty(),
            kernel: Arc::clone(kernel),
            setting,
            expected,
            checked: AtomicU8::new(UNCHECKED),
        };
        let foretold = self.foretell(&entry, workload, host.machine());
        entry.foretold.store(foretold.map(Arc::new));
        Some(entry)
    }

    /// What the models in use say of a candidate.
    fn foretell(&self, entry: &Entry, workload: &Workload, machine: &Machine) -> Option<Foretold> {
        let version = entry.kernel.spec().version;
        let threads = entry.threads(workload, machine);
        let time_ns = entry.expected.time().map(|time| time.get());
        let models = self.forecast.load();
        models.of_candidate(workload, &entry.candidate(), version, threads, time_ns)
    }

    /// Models were fitted: what they say of candidates that were never timed is what is expected of those from now on. Under load,
    /// what is expected comes from elsewhere.
    pub(super) fn foretell_anew(&self) {
        let host = self.host.load();
        for case in self.engine.cases() {
            let Some(of_host) = case.host().filter(|host| host.load == 0) else {
                continue;
            };
            let learned = self.engine.learned(&case);
            let foreseen = |(i, entry): (usize, &Entry)| {
                if learned.tally(i).is_some_and(|tally| tally.samples() > 0) {
                    return None;
                }
                let foretold = self.foretell(entry, &of_host.workload, host.machine())?;
                let expected = foretold.expected();
                entry.foretold.store(Some(Arc::new(foretold)));
                if let Some(kin) = &case.kin {
                    kin.set_foretold(i);
                }
                Some(Foreseen {
                    expected,
                    modelled: Some(expected),
                })
            };
            let entries = of_host.entries.iter().enumerate();
            let foreseen: Vec<Option<Foreseen>> = entries.map(foreseen).collect();
            if foreseen.iter().any(Option::is_some) {
                self.engine.expect(&case, &foreseen);
            }
        }
    }

    /// What is to be expected while others keep processors busy: what it takes otherwise, and longer by what its threads have to share.
    fn under_load(
        &self,
        load: u32,
        workload: &Workload,
        alignment: Option<usize>,
        entries: &[Entry],
        facts: &mut [Facts],
    ) {
        let idle = self.engine.case(self.key(workload, alignment, 0));
        let idle = idle.as_ref().and_then(|case| Some((case, case.host()?)));
        let host = self.host.load();
        let all = host.machine().usable_threads();
        for (entry, facts) in entries.iter().zip(facts) {
            let threads = entry.threads(workload, host.machine());
            // Processors are shared among all that want one, and pieces of a call are taken by whoever runs: nobody waits for the thread whose
            // processor has most to do.
            let wanted = f64::from(threads + load.min(all)) / f64::from(all.max(1));
            let shared = wanted.max(1.0).ln();
            let measured = idle.and_then(|(case, idle)| {
                let place = idle
                    .entries
                    .iter()
                    .position(|other| other.candidate() == entry.candidate())?;
                // Waits that were met already are what the load does.
                self.engine.learned(case).usual(place)
            });
            let before = measured.map(|belief| belief.mean);
            let before = before.or(facts.expected.map(|expected| expected.mean));
            if let Some(before) = before {
                let expected = Expected {
                    mean: before + shared,
                    sd: LOADED_SD,
                };
                (facts.expected, facts.modelled) = (Some(expected), None);
            }
            facts.hinted += shared;
            // Who was faster with as many threads still is, more or less: they wait for the same processors.
            facts.busy = true;
        }
    }

    fn facts(&self, entry: &Entry, workload: &Workload, host: &Host) -> Facts {
        let expected_ns = entry.expected.time().map(|time| time.get().max(0.01));
        let threads = entry.threads(workload, host.machine());
        let bound = self.calibration.as_ref().and_then(|calibration| {
            prior::roofline(workload, threads, host.machine(), calibration)
        });
        let on_assumed = prior::estimate(
            entry.kernel.as_ref(),
            workload,
            &entry.setting,
            host.machine(),
            &self.assumed,
        );
        let foretold = entry.foretold.load();
        let foretold = foretold.as_ref().map(|foretold| foretold.expected());
        let hinted_ns = on_assumed.time().map_or(1.0, |time| time.get().max(0.01));
        Facts {
            expected: foretold.or(expected_ns.map(|time_ns| Expected {
                mean: time_ns.ln(),
                sd: EXPECTED_SD,
            })),
            modelled: foretold,
            hinted: hinted_ns.ln(),
            workspace: entry.kernel.workspace(workload, &entry.setting).0,
            efficiency: bound
                .zip(expected_ns)
                .map(|(bound, time_ns)| bound.get() / time_ns),
            threads,
            busy: false,
        }
    }
}

/// The settings a kernel takes part with: its own choice, with every number of threads it can use. What else there is
/// to set is for tuning.
fn settings(kernel: &dyn HostKernel, workload: &Workload, machine: &Machine) -> Vec<Setting> {
    let space = kernel.space(workload, machine);
    let usual = space.default_setting();
    let mut settings = vec![usual];
    let axis = space.axes().find(|(name, _)| *name == "threads");
    for threads in axis.map_or(&[][..], |(_, axis)| axis.values()) {
        // What is not named has its default.
        let other = Params::new().with("threads", (*threads).into());
        let other = other.ok().and_then(|params| space.setting(&params).ok());
        if let Some(other) = other
            && !settings.contains(&other)
        {
            settings.push(other);
        }
    }
    settings
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use kernelwise_backend::OwnKernel;
    use kernelwise_types::{KernelSpec, Needs, Numerics};

    use super::*;
    use crate::selector::{Selector, Went};

    /// Calls waited for a processor before anybody said that the machine is busy. Once it is said, what threads have to share is added to
    /// what a call takes that does not wait: the load is counted once.
    #[test]
    fn what_is_expected_under_load_begins_from_calls_that_did_not_wait() {
        let spec = KernelSpec {
            id: "cpu-copy-f32-test".parse().unwrap(),
            version: 1,
            technique: Technique::Custom,
            numerics: Numerics::BitIdentical,
            needs: Needs::default(),
        };
        let kernel: Arc<dyn HostKernel> = Arc::new(OwnKernel::new(spec, |_, _, _| Ok(())));
        let machine = kernelwise_probe::machine().with_threads(2);
        let clock = Arc::new(kernelwise_measure::ScriptedClock::new());
        let selector = Selector::builder(machine, vec![kernel])
            .background(false)
            .clock(Arc::clone(&clock) as _)
            .build()
            .unwrap();
        let workload: Workload = "copy f32 4".parse().unwrap();
        for call in 0..60 {
            let time_ns = if call % 6 == 5 { 7e6 } else { 1e6 };
            clock.advance(time_ns as u64);
            let ticket = selector.select(&workload).unwrap();
            selector.report(ticket, &Went::Well { time_ns }).unwrap();
            selector.settle();
        }
        let shared = selector.shared();
        let learned = |load: u32| {
            let case = shared.engine.case(shared.key(&workload, None, load));
            shared.engine.learned(&case.unwrap())
        };
        let idle = learned(0);
        let (usual, average) = (idle.usual(0).unwrap(), idle.measured(0).unwrap());
        assert!(average.mean > usual.mean + 0.4);
        // One thread of two processors, of which others keep one busy and then both.
        for (load, shared) in [(1, 0.0), (2, 1.5f64.ln())] {
            selector.set_load(load);
            let _unreported = selector.select(&workload).unwrap();
            let expected = learned(load).beliefs()[0];
            assert!((expected.mean - (usual.mean + shared)).abs() < 1e-9);
            assert_eq!(expected.weight, 0.0, "it never ran under this load");
        }
    }
}
