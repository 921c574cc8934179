//! What one workload's calls teach: who serves from now on, what is tried next, and whether something changed.
//!
//! All of it is arithmetic on samples that are handed in, with the time they were taken and a source of random numbers: no
//! clock, no threads, no kernels. The same samples and seed give the same choices.
//!
//! # Two kinds of slow
//!
//! A sample that lies far from what its kernel used to take says that something changed, not what: the kernel, or the
//! machine under all kernels. A sum of such distances (CUSUM) tells change from noise. Then the next call goes to a
//! witness: the best candidate that runs on another number of threads, because whoever takes a processor away slows all that
//! need as many. If the witness is slower by as much, the machine changed: that is kept apart from what is known of the
//! kernels, and nobody is replaced. If it is not, the kernel changed: what was known of it counts no more, and the choice is
//! made anew. The others with as many threads are under suspicion then: one slow sample convicts them.
//!
//! What made a kernel slow may pass, and often does within milliseconds when it was another program. So it is asked again after
//! a few calls, and if it is still slow, after waits that grow by half each time. The answer of one counts for all that run on
//! as many threads. Once a kernel is what it was, all that was known of it counts again.
//!
//! Slowness that strikes single calls is no change, and counts all the same: choices go by what calls took lately on the average.

use kernelwise_types::Reason;
use rand::Rng;

use self::change::{Cusum, Retry};
use self::lately::Lately;
use crate::belief::{Belief, Expected, Tally, below, chance_within};
use crate::budget::{Budget, Ledger};
use crate::policy::{Choice, Contender, Policy};

mod change;
mod lately;

/// How learning is done, the same for all workloads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// How choices are made.
    pub policy: Policy,
    /// Candidates closer than this are as good as each other, in ln t.
    pub zone: f64,
    /// What trials may cost.
    pub budget: Budget,
    /// After this time, measurements weigh half; in nanoseconds.
    pub half_life_ns: f64,
    /// What timing one call costs, in nanoseconds.
    pub timing_ns: f64,
}

/// How far apart kernels of one workload are when nothing is known of them, in ln t: a factor of e.
const UNKNOWN_SD: f64 = 1.0;
/// How far apart candidates may be that the same thing slows, beyond what they were before, in ln t.
const SLOWED_SD: f64 = 0.1;
/// Samples a kernel must have before its changes are noticed.
const SETTLED: f64 = 3.0;
/// A trial is two calls: the first finds caches cold, the second is timed.
const CALLS_OF_A_TRIAL: f64 = 2.0;
/// Samples after which a trial that nobody told the time of is given up.
const PATIENCE: u32 = 64;
/// Share of a call's time that timing it may take on average.
const TIMING_SHARE: f64 = 0.01;
/// At least one call in so many is timed: what is seldom looked at changes unnoticed.
pub(crate) const LONGEST_PERIOD: u32 = 8;

/// What is fixed about a candidate on this workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Facts {
    /// What is expected of it before it runs; if nothing is, it is taken to be like those that ran.
    pub expected: Option<Expected>,
    /// What a trained model says.
    pub modelled: Option<Expected>,
    /// How it compares with the others on this workload by what their authors say, in ln t from anywhere; counts where nothing
    /// better is known.
    pub hinted: f64,
    /// Scratch memory it needs, in bytes.
    pub workspace: u64,
    /// Share of the roofline it is said to reach, where known.
    pub efficiency: Option<f64>,
    /// Threads it runs on. Candidates with as many are slowed by the same things, such as a program that takes a processor.
    pub threads: u32,
    /// Whether `expected` is for a busy machine: what one candidate takes longer than was expected, those with as many threads
    /// are taken to take longer too.
    pub busy: bool,
}

/// What the experience with other workloads says of a candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Foreseen {
    /// What is to be expected, all in all.
    pub(crate) expected: Expected,
    /// What the model of its times says; `None` while there is none.
    pub(crate) modelled: Option<Expected>,
}

impl Foreseen {
    pub(crate) fn put_into(self, facts: &mut Facts) {
        facts.expected = Some(self.expected);
        facts.modelled = self.modelled;
    }
}

/// One candidate: what is known of it.
#[derive(Debug, Clone)]
struct Track {
    facts: Facts,
    tally: Tally,
    lately: Lately,
    slower: Cusum,
    faster: Cusum,
    barred: bool,
    /// If it became slower: when it is asked whether it still is.
    retry: Option<Retry>,
}

/// A candidate that seems to have changed, until the runner-up has told.
#[derive(Debug, Clone, Copy)]
struct Suspect {
    candidate: usize,
    witness: usize,
    /// How much slower it is, in ln t.
    by: f64,
}

/// A call that is to go to another candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// Who is tried.
    pub candidate: usize,
    /// Whether it is asked because another one changed.
    pub witness: bool,
    /// Tells it from others.
    pub serial: u16,
    /// What is set aside for it.
    cost_ns: f64,
}

/// A call that was timed.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Who ran.
    pub candidate: usize,
    /// How long it took, in nanoseconds.
    pub time_ns: f64,
    /// Calls it stands for: itself, and those before it that were not timed. Zero if they were counted already.
    pub calls: u32,
    /// The number of the trial it was.
    pub trial: Option<u16>,
    /// When, in nanoseconds of the injected clock.
    pub at_ns: u64,
}

/// Something worth telling.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Another candidate serves.
    Switched {
        /// Who served.
        from: usize,
        /// Who serves now.
        to: usize,
    },
    /// One candidate became slower or faster.
    Changed {
        /// Which.
        candidate: usize,
        /// By this factor.
        factor: f64,
    },
    /// All became slower or faster together.
    Common {
        /// By this factor.
        factor: f64,
    },
}

/// What is known of one workload.
#[derive(Debug, Clone)]
pub struct Learned {
    tracks: Vec<Track>,
    /// How much slower the machine is than it was when most was measured, in ln t: all that is known is without it.
    machine: f64,
    choice: Option<Choice>,
    trial: Option<Trial>,
    /// Samples that came since the trial was asked for, and were not it.
    waiting: u32,
    /// Trials so far.
    serial: u16,
    suspect: Option<Suspect>,
    source: Source,
}

/// Where what is known comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Nothing was measured.
    Nowhere,
    /// All of it was measured before, and remembered.
    Before,
    /// Some of it was measured here.
    Here,
}

impl Learned {
    /// Nothing was measured yet.
    pub fn new(facts: impl IntoIterator<Item = Facts>, rules: &Rules) -> Self {
        let track = |facts| Track {
            facts,
            tally: Tally::default(),
            lately: Lately::default(),
            slower: Cusum::default(),
            faster: Cusum::default(),
            barred: false,
            retry: None,
        };
        let mut learned = Self {
            tracks: facts.into_iter().map(track).collect(),
            machine: 0.0,
            choice: None,
            trial: None,
            waiting: 0,
            serial: 0,
            suspect: None,
            source: Source::Nowhere,
        };
        learned.decide(rules);
        learned
    }

    /// Who serves and why; `None` if all are barred.
    pub fn choice(&self) -> Option<Choice> {
        let is_suspect = |choice: Choice| {
            let suspect = self.suspect;
            suspect.is_some_and(|suspect| suspect.candidate == choice.serves)
        };
        self.choice.map(|choice| match choice.reason {
            _ if is_suspect(choice) => Choice {
                reason: Reason::Checking,
                ..choice
            },
            Reason::Best | Reason::NearTie if self.source == Source::Before => Choice {
                reason: Reason::Remembered,
                ..choice
            },
            _ => choice,
        })
    }

    /// Who is to be tried by the next call.
    pub fn trial(&self) -> Option<Trial> {
        self.trial
            .filter(|trial| !self.tracks[trial.candidate].barred)
    }

    /// What is believed of each candidate on the machine as it is now, barred ones too.
    pub fn beliefs(&self) -> Vec<Belief> {
        (0..self.tracks.len()).map(|i| self.now(i)).collect()
    }

    /// What is believed of a candidate on the machine as it is now.
    fn now(&self, number: usize) -> Belief {
        let belief = self.belief(number);
        Belief {
            mean: belief.mean + self.machine,
            ..belief
        }
    }

    /// What the measurements of a candidate say by themselves, on the machine as it is now and on the average of its calls; `None`
    /// without any.
    pub fn measured(&self, candidate: usize) -> Option<Belief> {
        let usual = self.usual(candidate)?;
        Some(Belief {
            mean: usual.mean + self.above(candidate),
            ..usual
        })
    }

    /// The same of a call that nothing interrupts.
    pub(crate) fn usual(&self, candidate: usize) -> Option<Belief> {
        let track = self.tracks.get(candidate)?;
        let mean = track.tally.mean()?;
        let nothing = Expected { mean, sd: 1e6 };
        let measured = Belief::of(nothing, &track.tally);
        Some(Belief {
            mean: mean + self.machine,
            ..measured
        })
    }

    /// How much longer than usual the calls of a candidate are on the average, in ln t.
    fn above(&self, candidate: usize) -> f64 {
        let track = &self.tracks[candidate];
        let others = self.tracks.iter().enumerate();
        let others = others.filter(|(number, other)| {
            *number != candidate && other.facts.threads == track.facts.threads
        });
        track.lately.above(others.map(|(_, other)| &other.lately))
    }

    /// Takes what a model that was fitted since says of the candidates; `None` of those it does not know.
    pub(crate) fn expect(&mut self, foreseen: &[Option<Foreseen>], rules: &Rules) {
        for (track, foreseen) in self.tracks.iter_mut().zip(foreseen) {
            if let Some(foreseen) = foreseen {
                foreseen.put_into(&mut track.facts);
            }
        }
        self.decide(rules);
    }

    /// Takes over what was measured of a candidate before, unless something was measured since; tells whether it did. Nothing is
    /// decided before [`Learned::settle`].
    pub(crate) fn recall(&mut self, candidate: usize, tally: Tally) -> bool {
        let track = self.tracks.get_mut(candidate);
        let unknown = track.filter(|track| track.tally.samples() == 0);
        let taken = unknown.map(|track| track.tally = tally).is_some();
        if taken && self.source == Source::Nowhere {
            self.source = Source::Before;
        }
        taken
    }

    /// Lets time pass without a call: what happened lately is forgotten.
    pub(crate) fn wait_until(&mut self, now_ns: u64) {
        for track in &mut self.tracks {
            track.lately.fade(now_ns);
        }
    }

    /// Decides anew.
    pub(crate) fn settle(&mut self, rules: &Rules) {
        self.decide(rules);
    }

    /// What a model says of a candidate.
    pub fn modelled(&self, candidate: usize) -> Option<Expected> {
        self.tracks.get(candidate)?.facts.modelled
    }

    /// What was measured of a candidate.
    pub fn tally(&self, candidate: usize) -> Option<&Tally> {
        self.tracks.get(candidate).map(|track| &track.tally)
    }

    /// The same, as it was seen lately if it is suspected to have changed.
    fn present(&self, number: usize) -> Belief {
        let belief = self.now(number);
        let suspect = self.suspect.filter(|suspect| suspect.candidate == number);
        Belief {
            mean: belief.mean + suspect.map_or(0.0, |suspect| suspect.by),
            ..belief
        }
    }

    /// Whether a candidate may not serve.
    pub fn is_barred(&self, candidate: usize) -> bool {
        self.tracks.get(candidate).is_none_or(|track| track.barred)
    }

    /// The chance that who serves is within the zone of the best of those that may.
    pub fn confidence(&self, zone: f64) -> Option<f64> {
        let serves = self.choice?.serves;
        let open = |i: &usize| !self.tracks[*i].barred;
        let open: Vec<usize> = (0..self.tracks.len()).filter(open).collect();
        let place = open.iter().position(|i| *i == serves)?;
        let beliefs: Vec<Belief> = open.iter().map(|i| self.belief(*i)).collect();
        Some(chance_within(&beliefs, place, zone))
    }

    /// One call in so many is to be timed: more while little is known or something is suspected, fewer where timing would
    /// cost more than it is worth.
    pub fn period(&self, rules: &Rules) -> u32 {
        let Some(Choice { serves, .. }) = self.choice else {
            return 1;
        };
        let track = &self.tracks[serves];
        let settled = track.tally.weight() >= SETTLED && track.slower.sum == 0.0;
        if !settled || self.suspect.is_some() || self.trial.is_some() {
            return 1;
        }
        let calls = rules.timing_ns / (TIMING_SHARE * self.now(serves).mean.exp());
        // A power of two, so that callers need no division.
        (calls.clamp(1.0, f64::from(LONGEST_PERIOD)) as u32).next_power_of_two()
    }

    /// Bars a candidate or lets it back in.
    pub fn bar(&mut self, candidate: usize, barred: bool, rules: &Rules) {
        if let Some(track) = self.tracks.get_mut(candidate) {
            track.barred = barred;
        }
        self.suspect = self
            .suspect
            .filter(|suspect| suspect.candidate != candidate && suspect.witness != candidate);
        self.decide(rules);
    }

    /// Takes a sample, decides anew, and says what happened.
    pub fn learn(
        &mut self,
        sample: &Sample,
        rules: &Rules,
        ledger: &mut Ledger,
        random: &mut impl Rng,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        let number = sample.candidate;
        if number >= self.tracks.len() || !sample.time_ns.is_finite() || sample.time_ns < 0.0 {
            return events;
        }
        // A reading of zero means shorter than the clock's tick.
        let time_ns = sample.time_ns.max(0.01);
        let y = time_ns.ln();
        let before = self.choice.map(|choice| choice.serves);
        let usual = before.map(|serves| self.present(serves).mean.exp());
        match (sample.trial, usual) {
            (Some(_), Some(usual)) => {
                // Waits are charged as they come on the average, like those of who serves: a single one of milliseconds would
                // use up a budget for seconds.
                let counts = self.tracks[number].tally.cut(y - self.machine) + self.machine;
                let counts = counts + self.above(number);
                ledger.charge(CALLS_OF_A_TRIAL * (counts.exp() - usual));
                ledger.serve(CALLS_OF_A_TRIAL * usual);
            }
            _ => ledger.serve(time_ns * f64::from(sample.calls)),
        }
        for track in &mut self.tracks {
            track.tally.fade(sample.at_ns, rules.half_life_ns);
            track.lately.fade(sample.at_ns);
        }
        self.waiting += 1;
        if let Some(trial) = self.trial {
            let told = sample.trial == Some(trial.serial);
            if told || self.waiting > PATIENCE || self.tracks[trial.candidate].barred {
                ledger.release(trial.cost_ns);
                (self.trial, self.waiting) = (None, 0);
                if !told {
                    // A witness that never came tells nothing.
                    self.suspect = None;
                }
            }
        }
        let suspected = self.suspect;
        let without_machine = y - self.machine;
        if !self.recovered(number, without_machine, sample.at_ns, &mut events) {
            self.watch(number, without_machine, sample.at_ns, &mut events);
        }
        // What was just found to be the machine's is not the kernel's.
        let y = y - self.machine;
        let track = &mut self.tracks[number];
        if let Some(usual) = track.tally.mean() {
            track.lately.push(y - usual, track.tally.cut(y) - usual);
        }
        track.tally.push(y);
        self.source = Source::Here;
        if let (Some(suspect), None) = (self.suspect, suspected)
            && !self.ask(suspect.witness, true, rules, ledger)
        {
            // Asking would cost too much: believe what is seen.
            self.suspect = None;
            self.believe(suspect.candidate, sample.at_ns, &mut events);
        }
        self.decide(rules);
        let after = self.choice.map(|choice| choice.serves);
        if let (Some(from), Some(to)) = (before, after)
            && from != to
        {
            events.push(Event::Switched { from, to });
        }
        if self.trial.is_none()
            && !self.ask_again(sample.at_ns, rules, ledger)
            && let Some(candidate) = self.next_trial(rules, random)
        {
            let free = matches!(rules.policy, Policy::Exhaustive { .. });
            let rules = Rules {
                budget: match free {
                    true => Budget::UNLIMITED,
                    false => rules.budget,
                },
                ..*rules
            };
            self.ask(candidate, false, &rules, ledger);
        }
        events
    }

    /// Whether this sample shows that a candidate which became slower is what it was. If not, it is asked again later.
    fn recovered(&mut self, number: usize, y: f64, at_ns: u64, events: &mut Vec<Event>) -> bool {
        let track = &mut self.tracks[number];
        let Some(retry) = &mut track.retry else {
            return false;
        };
        let Some((then, now)) = retry.before.mean().zip(track.tally.mean()) else {
            track.retry = None;
            return false;
        };
        if y <= (then + now) / 2.0 {
            // Going back and forth is a way of being interrupted.
            (track.tally, track.lately) = (retry.before, retry.lately);
            track.lately.fade(at_ns);
            track.retry = None;
            (track.slower, track.faster) = Default::default();
            events.push(Event::Changed {
                candidate: number,
                factor: (then - now).exp(),
            });
            return true;
        }
        if at_ns >= retry.due_ns {
            retry.put_off(at_ns);
            let (answer, threads) = (*retry, track.facts.threads);
            let alike = self.tracks.iter_mut();
            let alike = alike.filter(|track| track.facts.threads == threads);
            for retry in alike.filter_map(|track| track.retry.as_mut()) {
                retry.learn_from(&answer);
            }
        }
        false
    }

    /// Whether this sample shows that something changed.
    fn watch(&mut self, number: usize, y: f64, at_ns: u64, events: &mut Vec<Event>) {
        let track = &mut self.tracks[number];
        let Some(usual) = track.tally.mean() else {
            return;
        };
        let away = y - usual;
        if let Some(suspect) = self.suspect
            && suspect.witness == number
        {
            self.suspect = None;
            // Slower by at least half as much: the machine, not the kernel.
            if away >= suspect.by / 2.0 {
                let track = &mut self.tracks[suspect.candidate];
                (track.tally, track.lately) = (track.slower.before, Lately::default());
                self.machine += suspect.by;
                for track in &mut self.tracks {
                    (track.slower, track.faster) = Default::default();
                }
                events.push(Event::Common {
                    factor: suspect.by.exp(),
                });
            } else {
                self.believe(suspect.candidate, at_ns, events);
            }
            return;
        }
        if track.tally.weight() < SETTLED {
            return;
        }
        let distance = away / track.tally.noise();
        let known = track.tally;
        if track.faster.push(-distance, y, &known) {
            // A machine that was slow is the first to become faster; the rest is the kernel's.
            let by = -track.faster.by();
            let machines = by.min(self.machine).max(0.0);
            let own = by - machines;
            let mut since = track.faster.since();
            since.shift(machines);
            let of_the_machine = own <= 2.0 * known.noise();
            track.tally = match of_the_machine {
                true => track.faster.before,
                false => since,
            };
            (track.slower, track.faster) = Default::default();
            self.machine -= machines;
            if of_the_machine {
                events.push(Event::Common {
                    factor: (-machines).exp(),
                });
                return;
            }
            // What others do now is less sure than it was.
            for (i, other) in self.tracks.iter_mut().enumerate() {
                if i != number {
                    other.tally.widen(1.0);
                }
            }
            events.push(Event::Changed {
                candidate: number,
                factor: (-own).exp(),
            });
            return;
        }
        if !track.slower.push(distance, y, &known) || self.suspect.is_some() {
            return;
        }
        let by = track.slower.by();
        match self.witness(number) {
            Some(witness) if self.tracks[witness].tally.mean().is_some() => {
                self.suspect = Some(Suspect {
                    candidate: number,
                    witness,
                    by,
                });
            }
            // Nobody can tell.
            _ => self.believe(number, at_ns, events),
        }
    }

    /// Takes what a candidate did lately for what it does from now on.
    fn believe(&mut self, number: usize, at_ns: u64, events: &mut Vec<Event>) {
        let machine = self.machine;
        let track = &mut self.tracks[number];
        let factor = track.slower.by().exp();
        let since = track.slower.since();
        let call_ns = since.mean().map_or(0.0, |mean| (mean + machine).exp());
        let lately = std::mem::take(&mut track.lately);
        track.retry = Some(Retry::new(track.slower.before, lately, call_ns, at_ns));
        track.tally = since;
        (track.slower, track.faster) = Default::default();
        let threads = track.facts.threads;
        for (other, track) in self.tracks.iter_mut().enumerate() {
            track.slower.primed |= other != number && track.facts.threads == threads;
        }
        events.push(Event::Changed {
            candidate: number,
            factor,
        });
    }

    /// Asks for a trial if what it is expected to cost can be set aside. One that was asked for before gives way to a witness.
    fn ask(&mut self, candidate: usize, witness: bool, rules: &Rules, ledger: &mut Ledger) -> bool {
        if let Some(before) = self.trial.take() {
            ledger.release(before.cost_ns);
        }
        let Some(Choice { serves, .. }) = self.choice else {
            return false;
        };
        let serving = self.present(serves);
        let tried = self.now(candidate);
        let mut cost_ns = CALLS_OF_A_TRIAL * excess(&tried, &serving);
        // What was measured of it, here or while nobody else ran.
        let known = tried.weight > 0.0 || self.tracks[candidate].facts.busy;
        if (witness || known) && tried.expected() < serving.mean {
            // On what is known it is the better choice now, and no trial at all.
            cost_ns = 0.0;
        } else if !ledger.reserve(cost_ns, &rules.budget) {
            return false;
        }
        self.serial = self.serial.wrapping_add(1);
        self.waiting = 0;
        self.trial = Some(Trial {
            candidate,
            witness,
            serial: self.serial,
            cost_ns,
        });
        true
    }

    /// Who tells whether a candidate became slow or the machine did: the best of those with another number of threads, or where
    /// all have the same, of the others. Those that were measured come first.
    fn witness(&self, suspect: usize) -> Option<usize> {
        let threads = |i: usize| self.tracks[i].facts.threads;
        let open = |i: &usize| *i != suspect && !self.tracks[*i].barred;
        let others: Vec<usize> = (0..self.tracks.len()).filter(open).collect();
        let varied = others.iter().any(|i| threads(*i) != threads(suspect));
        let fit = others
            .into_iter()
            .filter(|i| !varied || threads(*i) != threads(suspect));
        fit.min_by(|a, b| {
            let key = |i: usize| {
                let unknown = self.tracks[i].tally.mean().is_none();
                (unknown, self.belief(i).expected())
            };
            let (a, b) = (key(*a), key(*b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        })
    }

    /// What is believed of a candidate's calls, on the average.
    fn belief(&self, number: usize) -> Belief {
        let track = &self.tracks[number];
        let expected = track.facts.expected.or(track.facts.modelled);
        let expected = expected.unwrap_or_else(|| {
            // Like those that ran or of which something is expected, but for what is said of them.
            let open = self.tracks.iter().filter(|track| !track.barred);
            let means = open.filter_map(|track| {
                let expected = track.facts.expected.map(|expected| expected.mean);
                Some(track.tally.mean().or(expected)? - track.facts.hinted)
            });
            let (sum, count) = means.fold((0.0, 0.0), |(sum, n), mean| (sum + mean, n + 1.0));
            Expected {
                mean: sum / f64::max(count, 1.0) + track.facts.hinted,
                sd: UNKNOWN_SD,
            }
        });
        let usual = Belief::of(self.slowed(number, expected), &track.tally);
        Belief {
            mean: usual.mean + self.above(number),
            ..usual
        }
    }

    /// An expectation, corrected by what those that the same thing slows took.
    fn slowed(&self, number: usize, expected: Expected) -> Expected {
        let Facts { threads, busy, .. } = self.tracks[number].facts;
        if !busy {
            return expected;
        }
        // How much longer they take is uncertain by what the expectation is; each that ran says it up to its own error.
        let mut precision = 1.0 / (expected.sd * expected.sd);
        let mut sum = 0.0;
        for (other, track) in self.tracks.iter().enumerate() {
            if other == number || track.facts.threads != threads {
                continue;
            }
            if let Some((expected, measured)) = track.facts.expected.zip(track.tally.mean()) {
                let noise = track.tally.noise() / track.tally.weight().sqrt();
                let weight = 1.0 / (SLOWED_SD * SLOWED_SD + noise * noise);
                sum += weight * (measured - expected.mean);
                precision += weight;
            }
        }
        Expected {
            mean: expected.mean + sum / precision,
            sd: SLOWED_SD.hypot((1.0 / precision).sqrt()),
        }
    }

    fn contenders(&self) -> Vec<Contender> {
        let contender = |(number, track): (usize, &Track)| Contender {
            belief: self.belief(number),
            samples: track.tally.samples(),
            modelled: track.facts.modelled,
            workspace: track.facts.workspace,
            efficiency: track.facts.efficiency,
            barred: track.barred,
        };
        self.tracks.iter().enumerate().map(contender).collect()
    }

    fn decide(&mut self, rules: &Rules) {
        // While a suspect waits for its witness nobody is replaced.
        let serves = self.choice.map(|choice| choice.serves);
        if let (Some(suspect), Some(serves)) = (self.suspect, serves)
            && suspect.candidate == serves
            && !self.tracks[serves].barred
        {
            return;
        }
        self.choice = rules.policy.choose(&self.contenders(), serves, rules.zone);
    }

    /// Asks who became slower whether it still is, if it is time and can be paid. What cannot be is put off: others are to get
    /// their trials meanwhile.
    fn ask_again(&mut self, at_ns: u64, rules: &Rules, ledger: &mut Ledger) -> bool {
        let serves = self.choice.map(|choice| choice.serves);
        let is_due = |i: &usize| {
            let track = &self.tracks[*i];
            let due = track.retry.is_some_and(|retry| retry.due_ns <= at_ns);
            due && !track.barred && serves != Some(*i)
        };
        // Who was the fastest is asked first: its answer counts for those like it.
        let before = |i: &usize| {
            let retry = self.tracks[*i].retry;
            retry
                .and_then(|retry| retry.before.mean())
                .unwrap_or(f64::INFINITY)
        };
        let due = (0..self.tracks.len()).filter(is_due);
        let Some(due) = due.min_by(|a, b| before(a).total_cmp(&before(b))) else {
            return false;
        };
        let asked = self.ask(due, false, rules, ledger);
        if let (false, Some(retry)) = (asked, &mut self.tracks[due].retry) {
            retry.put_off(at_ns);
        }
        asked
    }

    /// Whom to try next, if anybody is worth it.
    fn next_trial(&self, rules: &Rules, random: &mut impl Rng) -> Option<usize> {
        let serves = self.choice?.serves;
        let open = || (0..self.tracks.len()).filter(|i| *i != serves && !self.tracks[*i].barred);
        if let Policy::Exhaustive { samples } = rules.policy {
            let fewest = open().min_by_key(|i| self.tracks[*i].tally.samples())?;
            let wanting = self.tracks[fewest].tally.samples() < u64::from(samples);
            return wanting.then_some(fewest);
        }
        // Thompson: each candidate is as fast as a draw from what is believed of it; the fastest is tried.
        let mut draw = |i: usize| {
            let belief = self.belief(i);
            belief.mean + belief.sd * gaussian(random)
        };
        let bar = draw(serves) - rules.zone;
        let draws = open().map(|i| (i, draw(i)));
        let best = draws.min_by(|a, b| a.1.total_cmp(&b.1))?;
        (best.1 < bar).then_some(best.0)
    }
}

/// What a trial is expected to take longer than the one it replaces, in nanoseconds: the mean of what lies above, over the
/// distribution of its time.
fn excess(tried: &Belief, serving: &Belief) -> f64 {
    let usual = serving.mean.exp();
    // E[(t - u)+] of a lognormal t: E[t] P(above, one deviation on) - u P(above).
    let above = 1.0 - below(serving.mean, tried);
    let shifted = Belief {
        mean: tried.mean + tried.sd * tried.sd,
        ..*tried
    };
    let mean_above = tried.expected().exp() * (1.0 - below(serving.mean, &shifted));
    (mean_above - usual * above).max(0.0)
}

/// A number drawn from the standard normal distribution (Box and Muller).
fn gaussian(random: &mut impl Rng) -> f64 {
    let unit = |bits: u64| ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    let (a, b) = (unit(random.next_u64()), unit(random.next_u64()));
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

impl Default for Rules {
    /// Bandit, 2 %, the usual budget, a week.
    fn default() -> Self {
        Self {
            policy: Policy::Bandit,
            zone: 1.02f64.ln(),
            budget: Budget::default(),
            half_life_ns: 7.0 * 86_400e9,
            timing_ns: 50.0,
        }
    }
}

#[cfg(test)]
mod tests;
