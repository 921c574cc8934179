//! Who changed: one kernel, all that run on as many threads, or the machine under all of them; and whether what became slow is
//! what it was again.
//!
//! A sample says that something is slower, not what. So whoever seems slower is only suspected until witnesses have run, and
//! nothing is forgotten before they have told: the reasons are in the [module above](super).

use super::change::{Caution, Crowd, Retry, SLACK, Stakes, Wait};
use super::lately::Lately;
use super::trials::CALLS_OF_A_TRIAL;
use super::{Event, Learned, SETTLED};

/// How often it must be told that a suspect is slow while a witness is not. Where one call in six waits, a single time would convict one
/// suspect in seven that only waited.
const TIMES_TOLD: u32 = 3;

/// A candidate that seems to have changed, until witnesses have told; the last one is itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Suspect {
    pub(super) candidate: usize,
    /// Who is to run.
    pub(super) witness: usize,
    /// One with as many threads that ran and is slower as well: it is not the kernel then.
    pub(super) alike: Option<usize>,
    /// How much slower the candidate is, in ln t.
    pub(super) by: f64,
    /// How often that was told while a witness was not slow.
    pub(super) told: u32,
    /// What witnesses took longer than it usually does, beyond what was charged: they were held against what it seems to take.
    pub(super) unpaid_ns: f64,
}

impl Learned {
    /// How much slower all on so many threads are, in ln t.
    pub(super) fn crowding(&self, threads: u32) -> f64 {
        let crowds = self.crowds.iter();
        let crowds = crowds.filter(|crowd| crowd.threads == threads);
        crowds.map(|crowd| crowd.by).sum()
    }

    /// Whether this sample shows that those with as many threads are what they were. If not, one is asked again later.
    pub(super) fn dispersed(&mut self, number: usize, y: f64, at_ns: u64, events: &mut Vec<Event>) {
        let track = &self.tracks[number];
        let threads = track.facts.threads;
        let place = self
            .crowds
            .iter()
            .position(|crowd| crowd.threads == threads);
        // Who became slow by itself says nothing of the others.
        let (Some(place), Some(usual), None) = (place, track.tally.mean(), track.retry) else {
            return;
        };
        let noise = track.tally.noise();
        let crowd = &mut self.crowds[place];
        if crowd.wait.is_ended_by(y, usual, crowd.by, noise) {
            let Crowd { by, wait, .. } = self.crowds.swap_remove(place);
            let factor = (-by).exp();
            let call_ns = self.now(number).mean.exp();
            self.caution.learn(wait.lasted_ns(at_ns), call_ns);
            self.forget_signs(Some(threads));
            events.push(Event::Crowded { threads, factor });
        } else if crowd.wait.is_due(at_ns) {
            let by = crowd.by;
            let stakes = self.stakes(number, by);
            self.crowds[place].wait.put_off(at_ns, &stakes);
        }
    }

    /// Whether this sample shows that a candidate which became slower is what it was. If not, it is asked again later.
    pub(super) fn recovered(
        &mut self,
        number: usize,
        y: f64,
        at_ns: u64,
        events: &mut Vec<Event>,
    ) -> bool {
        let track = &mut self.tracks[number];
        let Some(retry) = &mut track.retry else {
            return false;
        };
        let Some((then, now)) = retry.before.mean().zip(track.tally.mean()) else {
            track.retry = None;
            return false;
        };
        let noise = retry.before.noise();
        // By as much as was found, or as it is by now if that is less and still worth the name.
        let by = match now - then > noise {
            true => retry.by.min(now - then),
            false => retry.by,
        };
        if retry.wait.is_ended_by(y, then, by, noise) {
            // Going back and forth is a way of being interrupted.
            let lasted_ns = retry.wait.lasted_ns(at_ns);
            self.caution.learn(lasted_ns, (then + self.machine).exp());
            (track.tally, track.lately) = (retry.before, retry.lately);
            track.lately.fade(at_ns);
            track.retry = None;
            self.forget_signs_of(number);
            events.push(Event::Changed {
                candidate: number,
                factor: (-by).exp(),
            });
            return true;
        }
        if retry.wait.is_due(at_ns) {
            let stakes = self.stakes(number, now - then);
            if let Some(retry) = &mut self.tracks[number].retry {
                retry.wait.put_off(at_ns, &stakes);
            }
        }
        false
    }

    /// What there is to win and to lose by asking a candidate that became slower by so much, in ln t.
    pub(super) fn stakes(&self, number: usize, by: f64) -> Stakes {
        let slow = self.now(number).mean.exp();
        let serving = self
            .choice
            .map(|choice| self.present(choice.serves).mean.exp());
        Stakes {
            serving: serving.unwrap_or(slow),
            slow,
            was: slow * (-by).exp(),
        }
    }

    /// Whether this sample shows that something changed.
    pub(super) fn watch(&mut self, number: usize, y: f64, at_ns: u64, events: &mut Vec<Event>) {
        let track = &mut self.tracks[number];
        let Some(usual) = track.tally.mean() else {
            return;
        };
        let away = y - usual;
        if let Some(suspect) = self.suspect
            && suspect.witness == number
        {
            let was = match number == suspect.candidate {
                true => track.slower.before.mean().unwrap_or(usual),
                false => usual,
            };
            // Slower by at least half as much.
            let too = y - was >= suspect.by / 2.0;
            self.hear(suspect, too, at_ns, events);
            return;
        }
        if track.tally.weight() < SETTLED {
            return;
        }
        let distance = away / track.tally.noise();
        let known = track.tally;
        if track.faster.push(-distance, y, &known, Caution::default()) {
            // What was slow is the first to become faster, those with as many threads before the machine; the rest is the kernel's.
            let by = -track.faster.by();
            let threads = track.facts.threads;
            let crowd = self
                .crowds
                .iter_mut()
                .find(|crowd| crowd.threads == threads);
            let crowds = crowd.map_or(0.0, |crowd| {
                let crowds = by.min(crowd.by).max(0.0);
                crowd.by -= crowds;
                crowds
            });
            let noise = track.faster.before.noise();
            // What is left of it must be worth asking about.
            let is_left = |crowd: &Crowd| crowd.threads != threads || crowd.by > noise;
            self.crowds.retain(is_left);
            let machines = (by - crowds).min(self.machine).max(0.0);
            let own = by - crowds - machines;
            let mut since = track.faster.since();
            since.shift(crowds + machines);
            let of_the_machine = crowds + machines > 0.0 && own <= 2.0 * noise;
            // What it took beside what was usual says nothing beside what is usual now.
            (track.tally, track.lately) = match of_the_machine {
                true => (track.faster.before, track.lately),
                false => (since, Lately::default()),
            };
            track.retry = None;
            self.forget_signs_of(number);
            self.machine -= machines;
            if crowds > 0.0 {
                let factor = (-crowds).exp();
                events.push(Event::Crowded { threads, factor });
            }
            if of_the_machine {
                if machines > 0.0 {
                    events.push(Event::Common {
                        factor: (-machines).exp(),
                    });
                }
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
        let is_slower = track.slower.push(distance, y, &known, self.caution);
        let is_worth_asking = track.slower.is_worth_asking();
        // A call that is as it used to be raises no suspicion, whatever those before it lost.
        if !is_slower || !is_worth_asking || distance <= SLACK || self.suspect.is_some() {
            return;
        }
        let by = track.slower.by();
        match self.anybody(number) {
            Some(witness) => {
                self.suspect = Some(Suspect {
                    candidate: number,
                    witness,
                    alike: None,
                    by,
                    told: 0,
                    unpaid_ns: 0.0,
                });
            }
            // Nobody can tell.
            None => self.believe(number, at_ns, events),
        }
    }

    /// A witness took so long, and was charged for what it took longer than the suspect seems to take. If that was a moment only, what it
    /// took longer than the suspect usually does is what it cost.
    pub(super) fn owe(&mut self, number: usize, time_ns: f64, charged_ns: f64) {
        let Some(mut suspect) = self.suspect.filter(|suspect| suspect.witness == number) else {
            return;
        };
        let was = self.tracks[suspect.candidate].slower.before.mean();
        if let Some(was) = was {
            let was = (was + self.slowness(suspect.candidate)).exp();
            let cost = CALLS_OF_A_TRIAL * (time_ns - was);
            suspect.unpaid_ns += (cost - charged_ns).max(0.0);
            self.suspect = Some(suspect);
        }
    }

    /// A witness ran, and was slower too or not.
    fn hear(&mut self, suspect: Suspect, too: bool, at_ns: u64, events: &mut Vec<Event>) {
        self.suspect = None;
        let threads = self.tracks[suspect.candidate].facts.threads;
        let is_alike = self.tracks[suspect.witness].facts.threads == threads;
        if suspect.witness == suspect.candidate {
            if too {
                return self.tell(suspect, at_ns, events);
            }
            // It was a moment. That such moments come is remembered beside what is usual.
            self.owed_ns = suspect.unpaid_ns;
            self.caution.learn(0.0, 1.0);
            let track = &mut self.tracks[suspect.candidate];
            track.tally = track.slower.before;
            self.forget_signs_of(suspect.candidate);
            return;
        }
        match (is_alike, too) {
            // It is not the kernel; whether it is the machine, one with another number of threads knows. Nobody is asked who would not
            // serve instead, whatever came of it: those with as many threads are slower, and that is all that matters.
            (true, true) => match self.witness(suspect.candidate, false) {
                Some(witness) if !self.may_serve_instead(witness, &suspect) => {
                    let alike = Some(suspect.witness);
                    self.convict(&Suspect { alike, ..suspect }, at_ns, events);
                }
                // What was told of the kernel alone was not told of all with as many threads.
                Some(witness) => {
                    self.suspect = Some(Suspect {
                        witness,
                        alike: Some(suspect.witness),
                        told: 0,
                        ..suspect
                    });
                }
                None if self
                    .tracks
                    .iter()
                    .all(|track| track.facts.threads == threads) =>
                {
                    self.slow_down(&suspect, events);
                }
                // There is one, of which nothing was measured yet: what is expected of it stands.
                None => {
                    let alike = Some(suspect.witness);
                    self.convict(&Suspect { alike, ..suspect }, at_ns, events);
                }
            },
            (false, true) => self.slow_down(&suspect, events),
            (false, false) if suspect.alike.is_some() => self.tell(suspect, at_ns, events),
            // Either it is the kernel, or what it was is over: it tells by itself.
            (_, false) => {
                let witness = suspect.candidate;
                self.suspect = Some(Suspect { witness, ..suspect });
            }
        }
    }

    /// It was told once more that a suspect is slow, or all with as many threads, while a witness is not: that is believed, or heard again.
    fn tell(&mut self, suspect: Suspect, at_ns: u64, events: &mut Vec<Event>) {
        let told = suspect.told + 1;
        // Another kernel may have been lucky once; the others on as many threads are slow already, so the suspect itself tells.
        let next = match suspect.alike {
            None => self.anybody(suspect.candidate),
            Some(_) => Some(suspect.candidate),
        };
        match next.filter(|_| told < TIMES_TOLD) {
            Some(witness) => {
                self.suspect = Some(Suspect {
                    witness,
                    told,
                    ..suspect
                });
            }
            None => self.convict(&suspect, at_ns, events),
        }
    }

    /// Nobody with another number of threads is slower, or can be asked: it is those with as many if one of them is, else the
    /// kernel.
    pub(super) fn convict(&mut self, suspect: &Suspect, at_ns: u64, events: &mut Vec<Event>) {
        if suspect.alike.is_none() {
            return self.believe(suspect.candidate, at_ns, events);
        }
        let track = &mut self.tracks[suspect.candidate];
        (track.tally, track.lately) = (track.slower.before, Lately::default());
        let threads = track.facts.threads;
        let by = self.crowding(threads) + suspect.by;
        self.crowds.retain(|crowd| crowd.threads != threads);
        // Who takes over is not known yet; the first wait is the shortest.
        let wait = Wait::new(at_ns, &self.stakes(suspect.candidate, 0.0));
        self.crowds.push(Crowd { threads, by, wait });
        self.forget_signs(Some(threads));
        let factor = suspect.by.exp();
        events.push(Event::Crowded { threads, factor });
    }

    /// The machine became slower, and the suspect with it.
    fn slow_down(&mut self, suspect: &Suspect, events: &mut Vec<Event>) {
        let track = &mut self.tracks[suspect.candidate];
        (track.tally, track.lately) = (track.slower.before, Lately::default());
        self.machine += suspect.by;
        self.forget_signs(None);
        events.push(Event::Common {
            factor: suspect.by.exp(),
        });
    }

    /// Whether a witness would be better than a suspect that stays as slow as it is.
    fn may_serve_instead(&self, witness: usize, suspect: &Suspect) -> bool {
        let slow = self.now(suspect.candidate).mean + suspect.by;
        self.now(witness).mean < slow
    }

    /// What pointed to a change is explained, for those on so many threads or for all.
    fn forget_signs(&mut self, threads: Option<u32>) {
        let explained = self.tracks.iter_mut();
        let explained =
            explained.filter(|track| threads.is_none_or(|threads| track.facts.threads == threads));
        for track in explained {
            (track.slower, track.faster) = Default::default();
        }
        let still = |suspect: &Suspect| {
            let suspected = self.tracks[suspect.candidate].facts.threads;
            threads.is_some_and(|threads| threads != suspected)
        };
        self.suspect = self.suspect.filter(still);
    }

    /// What pointed to a change of this candidate is explained.
    fn forget_signs_of(&mut self, number: usize) {
        let track = &mut self.tracks[number];
        (track.slower, track.faster) = Default::default();
        self.suspect = (self.suspect).filter(|suspect| suspect.candidate != number);
    }

    /// Takes what a candidate did lately for what it does from now on.
    fn believe(&mut self, number: usize, at_ns: u64, events: &mut Vec<Event>) {
        let stakes = self.stakes(number, 0.0);
        let track = &mut self.tracks[number];
        let factor = track.slower.by().exp();
        let since = track.slower.since();
        // One that was slow already and became slower still: what it was before that is what it may be again.
        let was = track.retry.map(|retry| (retry.before, retry.lately));
        let latest = (track.slower.before, std::mem::take(&mut track.lately));
        let (before, lately) = was.unwrap_or(latest);
        let ends = since.mean().zip(before.mean());
        track.retry = Some(Retry {
            before,
            by: ends.map_or(0.0, |(since, before)| since - before),
            lately,
            wait: Wait::new(at_ns, &stakes),
        });
        track.tally = since;
        self.forget_signs_of(number);
        events.push(Event::Changed {
            candidate: number,
            factor,
        });
    }

    /// Who tells first whether a candidate became slow by itself: one with as many threads if there is any.
    fn anybody(&self, suspect: usize) -> Option<usize> {
        self.witness(suspect, true)
            .or_else(|| self.witness(suspect, false))
    }

    /// Who tells whether a candidate became slow by itself: the best of those with as many threads, which the same things slow; or
    /// of those with another number. It must have been measured, and not be slow by itself.
    fn witness(&self, suspect: usize, same_threads: bool) -> Option<usize> {
        let threads = self.tracks[suspect].facts.threads;
        let fits = |i: &usize| {
            let track = &self.tracks[*i];
            let is_known = track.tally.mean().is_some() && track.retry.is_none();
            let is_open = *i != suspect && !track.barred;
            is_open && is_known && (track.facts.threads == threads) == same_threads
        };
        let beliefs = self.each_belief();
        let fit = (0..self.tracks.len()).filter(fits);
        fit.min_by(|a, b| {
            let expected = |i: &usize| beliefs[*i].expected();
            expected(a).total_cmp(&expected(b))
        })
    }
}
