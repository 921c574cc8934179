//! What is believed of each candidate: of its own calls, of those that the same things slow, and of the machine as it is now.
//!
//! What is known of kernels is kept without the machine's slowness and without waits, because both pass. They are added here,
//! in one place, to whatever is asked for: a belief without them is about a machine that nobody has at the moment.

use super::lately::above_each;
use super::{Facts, Learned};
use crate::belief::{Belief, Expected};

/// How far apart kernels of one workload are when nothing is known of them, in ln t: a factor of e.
const UNKNOWN_SD: f64 = 1.0;
/// How far apart candidates may be that the same thing slows, beyond what they were before, in ln t.
const SLOWED_SD: f64 = 0.1;

impl Learned {
    /// What is believed of each candidate on the machine as it is now, barred ones too.
    pub fn beliefs(&self) -> Vec<Belief> {
        let now = |belief: Belief| Belief {
            mean: belief.mean + self.machine,
            ..belief
        };
        self.each_belief().into_iter().map(now).collect()
    }

    /// What is believed of a candidate on the machine as it is now.
    pub(super) fn now(&self, number: usize) -> Belief {
        let belief = self.belief(number);
        Belief {
            mean: belief.mean + self.machine,
            ..belief
        }
    }

    /// The same, as it was seen lately if it is suspected to have changed.
    pub(super) fn present(&self, number: usize) -> Belief {
        let belief = self.now(number);
        let suspect = self.suspect.filter(|suspect| suspect.candidate == number);
        Belief {
            mean: belief.mean + suspect.map_or(0.0, |suspect| suspect.by),
            ..belief
        }
    }

    /// What the measurements of a candidate say by themselves, on the machine as it is now and on the average of its calls; `None`
    /// without any.
    pub fn measured(&self, candidate: usize) -> Option<Belief> {
        let usual = self.usual(candidate)?;
        let crowding = self.crowding(self.tracks[candidate].facts.threads);
        Some(Belief {
            mean: usual.mean + crowding + self.above(candidate),
            ..usual
        })
    }

    /// The same of a call that nothing interrupts and nobody slows but the machine.
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

    /// How much slower a candidate is than what is known of it, in ln t: what is the machine's, and what is that of all with as
    /// many threads.
    pub(super) fn slowness(&self, number: usize) -> f64 {
        self.machine + self.crowding(self.tracks[number].facts.threads)
    }

    /// How much longer than usual the calls of a candidate are on the average, in ln t.
    pub(super) fn above(&self, candidate: usize) -> f64 {
        let track = &self.tracks[candidate];
        let others = self.tracks.iter().enumerate();
        let others = others.filter(|(number, other)| {
            *number != candidate && other.facts.threads == track.facts.threads
        });
        track.lately.above(others.map(|(_, other)| &other.lately))
    }

    /// What is believed of a candidate's calls, on the average.
    fn belief(&self, number: usize) -> Belief {
        let usual = self.uninterrupted(number);
        let crowding = self.crowding(self.tracks[number].facts.threads);
        Belief {
            mean: usual.mean + crowding + self.above(number),
            ..usual
        }
    }

    /// The same of each candidate, for those who compare them: how often others wait is not summed up anew for every one.
    pub(super) fn each_belief(&self) -> Vec<Belief> {
        let lately = self.tracks.iter();
        let lately = lately.map(|track| (track.facts.threads, &track.lately));
        let each = above_each(lately).into_iter().enumerate();
        let belief = |(number, above)| {
            let usual = self.uninterrupted(number);
            let crowding = self.crowding(self.tracks[number].facts.threads);
            Belief {
                mean: usual.mean + crowding + above,
                ..usual
            }
        };
        each.map(belief).collect()
    }

    /// What is believed of a candidate's calls that nothing interrupts.
    fn uninterrupted(&self, number: usize) -> Belief {
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
        Belief::of(self.slowed(number, expected), &track.tally)
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
}
