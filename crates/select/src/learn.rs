//! What one workload's calls teach: who serves from now on, what is tried next, and whether something changed.
//!
//! All of it is arithmetic on samples that are handed in, with the time they were taken and a source of random numbers: no
//! clock, no threads, no kernels. The same samples and seed give the same choices.
//!
//! # Three kinds of slow
//!
//! A sample that lies far from what its kernel used to take says that something changed, not what: the kernel, all that run on as
//! many threads, because another program took a processor from them, or the machine under all kernels. A sum of such distances
//! (CUSUM) tells change from noise. Then witnesses run. The first is the best of the others with as many threads. If it is not slower,
//! the kernel is, or was for a moment: its next call tells which. If it is, the best on another number of threads runs. If that
//! is slower too, the machine changed; if not, all with as many threads did: a crowd. Calls that wait for a processor look like either, so that is
//! heard three times where somebody else might take over and can be asked at all. What is the machine's or theirs is kept apart from
//! what is known of the kernels and is lost when it is over; nobody is replaced but by who is better on it.
//!
//! What made something slow may pass, and often does within milliseconds when it was another program. So it is asked again: how soon
//! depends on what asking costs, on what is lost meanwhile, and on how long it has lasted. Of all on as many threads one tells, and who
//! serves tells unasked. It is over when the odds say so: at one call where the change was plain, at a few where calls differ by as much. Once a kernel
//! is what it was, all that was known of it counts again.
//!
//! Slowness that strikes single calls is no change, and counts all the same: choices go by what calls took lately on the average.

use kernelwise_types::Reason;
use rand::Rng;

use self::change::{Caution, Crowd, Cusum, Retry};
use self::lately::Lately;
use self::suspicion::Suspect;
pub use self::trials::Trial;
use self::trials::{CALLS_OF_A_TRIAL, PATIENCE};
use crate::belief::{Belief, Expected, Tally, chance_within};
use crate::budget::{Budget, Ledger};
use crate::policy::{Choice, Contender, Policy};

mod believed;
mod change;
mod lately;
mod suspicion;
mod trials;

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

/// Samples a kernel must have before its changes are noticed.
const SETTLED: f64 = 3.0;
/// Share of a call's time that timing it and learning from it may take on average.
const TIMING_SHARE: f64 = 0.01;
/// What learning from a sample takes, on whatever processor, in nanoseconds.
const LEARNING_NS: f64 = 1_000.0;
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

impl Track {
    /// Lets time pass.
    fn fade(&mut self, now_ns: u64, rules: &Rules) {
        self.tally.fade(now_ns, rules.half_life_ns);
        self.lately.fade(now_ns);
    }
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
    /// All that run on so many threads became slower or faster together.
    Crowded {
        /// So many.
        threads: u32,
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
    /// The same of those that run on as many threads.
    crowds: Vec<Crowd>,
    choice: Option<Choice>,
    trial: Option<Trial>,
    /// Samples that came since the trial was asked for, and were not it.
    waiting: u32,
    /// Trials so far.
    serial: u16,
    suspect: Option<Suspect>,
    /// What witnesses of a moment that passed are still to be charged.
    owed_ns: f64,
    caution: Caution,
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
            crowds: Vec::new(),
            choice: None,
            trial: None,
            waiting: 0,
            serial: 0,
            suspect: None,
            owed_ns: 0.0,
            caution: Caution::default(),
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
        let each = self.each_belief();
        let beliefs: Vec<Belief> = open.iter().map(|i| each[*i]).collect();
        Some(chance_within(&beliefs, place, zone))
    }

    /// One call in so many is to be timed: more while little is known or something is suspected, fewer where timing would
    /// cost more than it is worth.
    pub fn period(&self, rules: &Rules) -> u32 {
        let Some(Choice { serves, .. }) = self.choice else {
            return 1;
        };
        if self.is_open() || self.tracks[serves].slower.sum > 0.0 {
            return 1;
        }
        let costs_ns = rules.timing_ns + LEARNING_NS;
        let calls = costs_ns / (TIMING_SHARE * self.now(serves).mean.exp());
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
        let mut events = self.note(sample, rules, ledger);
        events.extend(self.conclude(sample.at_ns, rules, ledger, random));
        events
    }

    /// Takes a sample, and says whether something changed. Who serves and who is tried stays as it is until
    /// [`Learned::conclude`], which takes ten times as long: of many samples that come at once, all are noted and one conclusion is drawn.
    pub(crate) fn note(
        &mut self,
        sample: &Sample,
        rules: &Rules,
        ledger: &mut Ledger,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        let number = sample.candidate;
        if number >= self.tracks.len() || !sample.time_ns.is_finite() || sample.time_ns < 0.0 {
            return events;
        }
        // A reading of zero means shorter than the clock's tick.
        let time_ns = sample.time_ns.max(0.01);
        let y = time_ns.ln();
        let serves = self.choice.map(|choice| choice.serves);
        match (sample.trial, serves) {
            (Some(_), Some(serves)) => {
                // Waits are charged as they come on the average, like those of who serves: a single one of milliseconds would
                // use up a budget for seconds.
                let slowness = self.slowness(number);
                let usual = self.tracks[number].tally.cut(y - slowness) + slowness;
                let counts = usual + self.above(number);
                let serving = self.present(serves).mean.exp();
                let charged = CALLS_OF_A_TRIAL * (counts.exp() - serving).max(0.0);
                ledger.charge(charged);
                ledger.serve(CALLS_OF_A_TRIAL * serving);
                self.owe(number, usual.exp(), charged);
            }
            _ => ledger.serve(time_ns * f64::from(sample.calls)),
        }
        self.tracks[number].fade(sample.at_ns, rules);
        self.caution.fade();
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
        self.dispersed(number, y - self.machine, sample.at_ns, &mut events);
        let as_known = y - self.slowness(number);
        if !self.recovered(number, as_known, sample.at_ns, &mut events) {
            self.watch(number, as_known, sample.at_ns, &mut events);
        }
        ledger.charge_more(std::mem::take(&mut self.owed_ns));
        // What was just found to be the machine's, or that of all on as many threads, is not the kernel's; nor is what is slow
        // with another one until it is known why.
        let suspect = self.suspect;
        if suspect.is_none_or(|suspect| suspect.alike != Some(number)) {
            let y = y - self.slowness(number);
            let track = &mut self.tracks[number];
            if let Some(usual) = track.tally.mean() {
                track.lately.push(y - usual, track.tally.cut(y) - usual);
            }
            track.tally.push(y);
        }
        self.source = Source::Here;
        events
    }

    /// Decides anew who serves and who is tried, on all that was noted, at this time of the clock.
    pub(crate) fn conclude(
        &mut self,
        at_ns: u64,
        rules: &Rules,
        ledger: &mut Ledger,
        random: &mut impl Rng,
    ) -> Vec<Event> {
        for track in &mut self.tracks {
            track.fade(at_ns, rules);
        }
        let mut events = Vec::new();
        let before = self.choice.map(|choice| choice.serves);
        let is_asked = |suspect: &Suspect| {
            let trial = self.trial.filter(|trial| trial.witness);
            trial.is_some_and(|trial| trial.candidate == suspect.witness)
        };
        if let Some(suspect) = self.suspect
            // Who serves tells unasked.
            && before != Some(suspect.witness)
            && !is_asked(&suspect)
            && !self.ask(suspect.witness, true, rules, ledger)
        {
            // Asking would cost too much: believe what is seen.
            self.suspect = None;
            self.convict(&suspect, at_ns, &mut events);
        }
        let beliefs = self.each_belief();
        self.decide_by(&beliefs, rules);
        let after = self.choice.map(|choice| choice.serves);
        // Who was to tell unasked serves no more.
        let is_lost = |suspect: &Suspect| self.trial.is_none() && after != Some(suspect.witness);
        self.suspect = self.suspect.filter(|suspect| !is_lost(suspect));
        if self.trial.is_none()
            && self.suspect.is_none()
            && !self.ask_again(at_ns, rules, ledger)
            && let Some(candidate) = self.next_trial(&beliefs, rules, random)
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
        if let (Some(from), Some(to)) = (before, after)
            && from != to
        {
            events.push(Event::Switched { from, to });
        }
        events
    }

    /// Whether the next samples should not have to wait: somebody is being tried or suspected, or little is known of who serves.
    pub(crate) fn is_open(&self) -> bool {
        self.trial.is_some() || self.suspect.is_some() || !self.is_settled()
    }

    /// Whether enough is known of who serves.
    fn is_settled(&self) -> bool {
        self.choice
            .is_some_and(|choice| self.tracks[choice.serves].tally.weight() >= SETTLED)
    }

    fn contenders(&self, beliefs: &[Belief]) -> Vec<Contender> {
        let contender = |(track, belief): (&Track, &Belief)| Contender {
            belief: *belief,
            samples: track.tally.samples(),
            modelled: track.facts.modelled,
            workspace: track.facts.workspace,
            efficiency: track.facts.efficiency,
            barred: track.barred,
        };
        self.tracks.iter().zip(beliefs).map(contender).collect()
    }

    fn decide(&mut self, rules: &Rules) {
        self.decide_by(&self.each_belief(), rules);
    }

    /// Decides on what is believed of each.
    fn decide_by(&mut self, beliefs: &[Belief], rules: &Rules) {
        // While a suspect waits for its witness nobody is replaced.
        let serves = self.choice.map(|choice| choice.serves);
        if let (Some(suspect), Some(serves)) = (self.suspect, serves)
            && suspect.candidate == serves
            && !self.tracks[serves].barred
        {
            return;
        }
        let contenders = self.contenders(beliefs);
        self.choice = rules.policy.choose(&contenders, serves, rules.zone);
    }
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
