//! The one strategy: prices from a device family, corrected by what was measured.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kernelwise_types::units::{Nanos, Share};
use kernelwise_types::{Backend, Interval, SystemState, Workload};

use super::TuningStrategy;
use super::beliefs::{Belief, Beliefs};
use super::constraints::Constraints;
use super::metrics::{Event, Log, Metrics};
use super::priced::{Choice, Infeasible, Limit, Origin, Price, Priced};
use super::recommendation::{
    Evidence, Feedback, Kept, Outcome, Prediction, Ranked, Recommendation, TuneError,
};
use super::situation::Situation;
use crate::surrogate::gain::below;

/// Alternatives that a recommendation lists.
const ALTERNATIVES: usize = 8;
/// A normal distribution has 90 % within so many standard deviations.
const NINETY: f64 = 1.645;
/// Three quarters of a normal distribution lie below so many.
const THREE_QUARTERS: f64 = 0.674;
/// The factor that confidence is about.
const NEAR: f64 = 1.2;

/// A strategy over the prices of a device family. One cost model serves all of it: what is expected of a recommendation is
/// what [`predict`](TuningStrategy::predict) says of its choice.
#[derive(Debug)]
pub struct Strategy<P> {
    priced: P,
    learned: Mutex<Learned>,
}

#[derive(Debug, Default)]
struct Learned {
    beliefs: Beliefs,
    log: Log,
    revision: u64,
}

impl<P: Priced> Strategy<P> {
    /// Nothing measured yet.
    pub fn new(priced: P) -> Self {
        Self {
            priced,
            learned: Mutex::default(),
        }
    }

    /// What the device family knows.
    pub fn priced(&self) -> &P {
        &self.priced
    }

    /// Begins from times that were measured earlier and kept: as if each had been told by
    /// [`feedback`](TuningStrategy::feedback), in place of what was.
    pub fn recall(
        &self,
        workload: &Workload,
        choice: &Choice,
        kept: &Kept,
    ) -> Result<(), TuneError> {
        let price = self.price(workload, choice)?;
        let time = Nanos::new(kept.mean_ln.exp()).ok();
        let time = time.filter(|time| time.get() > 0.0);
        let sound = kept.samples > 0 && kept.sd_ln.is_finite() && kept.sd_ln >= 0.0;
        if time.is_none() || !sound {
            let time = time.unwrap_or(Nanos::from_u64(0));
            return Err(TuneError::NoTime { time });
        }
        let mut learned = self.learned();
        learned.beliefs.recall(workload, choice, &price, kept);
        learned.revision += 1;
        Ok(())
    }

    /// Nothing that runs under this lock is anybody else's code, so what a panic leaves behind is whole.
    fn learned(&self) -> MutexGuard<'_, Learned> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn price(&self, workload: &Workload, choice: &Choice) -> Result<Price, TuneError> {
        let price = self.priced.price(workload, choice)?;
        let (time_ns, spread_ln) = (price.time_ns.get(), price.spread_ln);
        if time_ns > 0.0 && spread_ln.is_finite() && spread_ln > 0.0 {
            Ok(price)
        } else {
            Err(TuneError::Price {
                choice: choice.clone(),
                time_ns,
                spread_ln,
            })
        }
    }

    /// Everything that may run and keeps the limits, best first; and how many choices were considered.
    fn considered(
        &self,
        workload: &Workload,
        situation: &Situation,
        constraints: &Constraints,
    ) -> Result<(Vec<Ranked>, usize), TuneError> {
        let choices = self
            .priced
            .settings(workload, situation, constraints.numerics)?;
        let considered = choices.len();
        let mut refused = Refusals::default();
        let mut priced = Vec::with_capacity(considered);
        for choice in choices {
            match self.price(workload, &choice) {
                Ok(price) => priced.push((choice, price)),
                Err(TuneError::Infeasible(why)) => refused.add(vec![why]),
                Err(fault) => return Err(fault),
            }
        }
        let host = self.priced.backend() == Backend::Cpu;
        let learned = self.learned();
        let mut kept = Vec::with_capacity(priced.len());
        // Choices of a kernel come together.
        let mut outlook = None;
        for (choice, price) in priced {
            let known = outlook
                .take()
                .filter(|(kernel, _)| *kernel == choice.kernel);
            let (_, outlook) = outlook.insert(known.unwrap_or_else(|| {
                let kernel = choice.kernel.clone();
                let outlook = learned.beliefs.of(workload, kernel.as_ref());
                (kernel, outlook)
            }));
            let belief = outlook.of(&choice, &price);
            if belief.failed {
                let why = format!("{choice} failed on it before");
                refused.add(vec![Infeasible::new(Limit::Failures, why)]);
                continue;
            }
            let expected = prediction(&choice, price, &belief)?;
            let broken = constraints.broken(&expected, situation, host);
            match broken.is_empty() {
                true => kept.push(Ranked { choice, expected }),
                false => refused.add(broken),
            }
        }
        drop(outlook);
        drop(learned);
        if kept.is_empty() {
            return Err(refused.verdict(workload, self.priced.device()).into());
        }
        // What a call takes on the average, by as much worse as its time is likely not to be.
        let likely = |Ranked { expected, .. }: &Ranked| {
            let worse = expected.likely_ns.get() / expected.time_ns.get();
            expected.per_call_ns(constraints.calls) * worse
        };
        // Stable: among equals the order of the device family counts, which begins with defaults.
        kept.sort_by(|a, b| likely(a).total_cmp(&likely(b)));
        let patience = situation.patience(self.priced.backend());
        let most = likely(&kept[0]) * patience;
        let near = kept.iter().enumerate();
        let near = near.take_while(|(_, ranked)| likely(ranked) <= most);
        let thrifty = near.min_by_key(|(place, ranked)| (ranked.expected.units, *place));
        if let Some((place, _)) = thrifty.filter(|_| patience > 1.0) {
            let thrifty = kept.remove(place);
            kept.insert(0, thrifty);
        }
        Ok((kept, considered))
    }
}

impl<P: Priced> TuningStrategy for Strategy<P> {
    fn backend(&self) -> Backend {
        self.priced.backend()
    }

    fn device(&self) -> &str {
        self.priced.device()
    }

    fn tune_for_workload(
        &self,
        workload: &Workload,
        state: &SystemState,
        constraints: &Constraints,
    ) -> Result<Recommendation, TuneError> {
        constraints.check()?;
        let situation = Situation::under(state, constraints);
        let (mut kept, considered) = self.considered(workload, &situation, constraints)?;
        let reasoning = reasoning(self.backend(), &kept, considered, &situation, constraints);
        kept.truncate(1 + ALTERNATIVES);
        let alternatives = kept.split_off(1);
        let Some(best) = kept.pop() else {
            let why = format!("nothing is left for {workload}");
            return Err(Infeasible::new(Limit::Operation, why).into());
        };
        self.learned().log.push(Event::Recommended {
            workload: workload.clone(),
            choice: best.choice.clone(),
            expected_ns: best.expected.time_ns,
        });
        Ok(Recommendation {
            backend: self.backend(),
            device: self.device().to_owned(),
            best,
            alternatives,
            considered,
            reasoning,
        })
    }

    fn ranked(
        &self,
        workload: &Workload,
        state: &SystemState,
        constraints: &Constraints,
    ) -> Result<Vec<Ranked>, TuneError> {
        constraints.check()?;
        let (kept, _) =
            self.considered(workload, &Situation::under(state, constraints), constraints)?;
        Ok(kept)
    }

    fn predict(&self, workload: &Workload, choice: &Choice) -> Result<Prediction, TuneError> {
        let price = self.price(workload, choice)?;
        let learned = self.learned();
        let outlook = learned.beliefs.of(workload, choice.kernel.as_ref());
        let belief = outlook.of(choice, &price);
        prediction(choice, price, &belief)
    }

    fn feedback(&self, feedback: &Feedback) -> Result<(), TuneError> {
        if feedback.backend != self.backend() || feedback.device != self.device() {
            return Err(TuneError::Elsewhere {
                backend: feedback.backend,
                device: feedback.device.clone(),
                here_backend: self.backend(),
                here: self.device().to_owned(),
            });
        }
        let Feedback {
            workload, choice, ..
        } = feedback;
        let price = self.price(workload, choice)?;
        let (workload, choice) = (workload.clone(), choice.clone());
        let mut learned = self.learned();
        let event = match feedback.outcome {
            Outcome::Failed { .. } => {
                learned.beliefs.failed(&workload, &choice, &price);
                Event::Failed { workload, choice }
            }
            Outcome::Ran { time_ns, power } => {
                if time_ns.get() <= 0.0 {
                    return Err(TuneError::NoTime { time: time_ns });
                }
                let outlook = learned.beliefs.of(&workload, choice.kernel.as_ref());
                let belief = outlook.of(&choice, &price);
                let expected = prediction(&choice, price.clone(), &belief)?;
                let (low, high) = (expected.interval_ns.low(), expected.interval_ns.high());
                let ln_time = time_ns.get().ln();
                learned
                    .beliefs
                    .ran(&workload, &choice, &price, ln_time, power);
                Event::Ran {
                    workload,
                    choice,
                    time_ns,
                    expected_ns: expected.time_ns,
                    within: low <= time_ns && time_ns <= high,
                }
            }
        };
        learned.revision += 1;
        learned.log.push(event);
        Ok(())
    }

    fn metrics(&self) -> Metrics {
        self.learned().log.metrics()
    }

    fn events(&self) -> Vec<Event> {
        self.learned().log.events()
    }

    fn revision(&self) -> u64 {
        self.learned().revision
    }
}

/// A price and what is believed of it, in units of time.
fn prediction(choice: &Choice, price: Price, belief: &Belief) -> Result<Prediction, TuneError> {
    let sd = belief.doubt.hypot(belief.noise);
    // A time that no number holds is the fault of whoever priced it.
    let fault = || TuneError::Price {
        choice: choice.clone(),
        time_ns: price.time_ns.get(),
        spread_ln: price.spread_ln,
    };
    let floor = price.floor_ns.map_or(0.0, Nanos::get);
    let nanos = |over: f64| {
        let time = Nanos::new((price.time_ns.get() * over.exp()).max(floor)).ok();
        time.filter(|time| time.get() > 0.0).ok_or_else(fault)
    };
    let time_ns = nanos(belief.over)?;
    let (low, high) = (
        nanos(belief.over - NINETY * sd)?,
        nanos(belief.over + NINETY * sd)?,
    );
    let confidence = (2.0 * below(NEAR.ln() / sd) - 1.0).clamp(0.0, 1.0);
    let corrected_by = belief.measured;
    let evidence = match (belief.samples, price.origin.clone()) {
        (0, Origin::Model(source)) => Evidence::Model {
            source,
            corrected_by,
        },
        (0, Origin::Prior(source)) => Evidence::Prior {
            source,
            corrected_by,
        },
        (samples, _) => Evidence::Measured { samples },
    };
    Ok(Prediction {
        time_ns,
        interval_ns: Interval::new(low, high).map_err(|_| fault())?,
        confidence: Share::new(confidence).map_err(|_| fault())?,
        evidence,
        compile_ns: price.compile_ns,
        memory: price.memory,
        power: belief.power.or(price.power),
        bound: price.bound,
        occupancy: price.occupancy,
        units: price.units,
        likely_ns: nanos(belief.over + THREE_QUARTERS * belief.doubt)?,
        words: price.words,
    })
}

/// Why choices were refused.
#[derive(Default)]
struct Refusals {
    choices: usize,
    /// By limit: how many choices, and the words of the first.
    limits: BTreeMap<Limit, (usize, String)>,
}

impl Refusals {
    fn add(&mut self, why: Vec<Infeasible>) {
        self.choices += 1;
        for Infeasible { limit, why } in why {
            self.limits.entry(limit).or_insert((0, why)).0 += 1;
        }
    }

    /// The limit that most choices break, and what the others broke.
    fn verdict(self, workload: &Workload, device: &str) -> Infeasible {
        let worst = self
            .limits
            .iter()
            .max_by_key(|(limit, (count, _))| (*count, std::cmp::Reverse(**limit)));
        let Some((&limit, (count, first))) = worst else {
            return Infeasible::new(
                Limit::Operation,
                format!("{device} offers nothing for {workload}"),
            );
        };
        let mut why = format!(
            "{count} of {} choices for {workload} on {device}: {first}",
            self.choices
        );
        for (other, (count, first)) in self.limits.iter().filter(|(other, _)| **other != limit) {
            why.push_str(&format!("; {other}, {count}: {first}"));
        }
        Infeasible { limit, why }
    }
}

/// In words: what is expected, on what it rests, what it was chosen over, and what the situation changed.
fn reasoning(
    backend: Backend,
    kept: &[Ranked],
    considered: usize,
    situation: &Situation,
    constraints: &Constraints,
) -> Vec<String> {
    let Some((best, others)) = kept.split_first() else {
        return Vec::new();
    };
    let expected = &best.expected;
    let mut words = vec![format!(
        "{} should take {} ({} to {} nine times in ten), by {}",
        best.choice,
        expected.time_ns,
        expected.interval_ns.low(),
        expected.interval_ns.high(),
        expected.evidence
    )];
    words.push(format!("it is bound by {}", expected.bound));
    words.extend(expected.words.iter().cloned());
    match others.first() {
        None => words.push(format!("the only one of {considered} choices that may run")),
        Some(next) => words.push(format!(
            "next of {considered} choices: {}, {} by {}",
            next.choice, next.expected.time_ns, next.expected.evidence
        )),
    }
    let compile = expected.compile_ns;
    if compile.get() > 0.0 {
        words.push(format!(
            "{compile} are paid once, for {} calls",
            constraints.calls
        ));
    }
    let host = backend == Backend::Cpu;
    if host && situation.busy_processors > 0 {
        words.push(format!(
            "{} processors are in use",
            situation.busy_processors
        ));
    }
    let causes = [
        (
            host && situation.throttling,
            "the processor throttles itself",
        ),
        (situation.on_battery, "the machine runs from its battery"),
        (situation.power_save, "power management saves power"),
    ];
    for (_, cause) in causes.into_iter().filter(|(holds, _)| *holds) {
        words.push(format!(
            "{cause}: up to {:.2}x the time is given for fewer units at work",
            situation.patience(backend)
        ));
    }
    words
}
