//! What calls of a candidate took lately on the average, beside what one of them usually takes.
//!
//! A thread that has to wait for a processor makes its call several times as long. Of a kernel that says nothing, so what is
//! believed of kernels leaves such calls out as far as it can. But whoever calls has to wait, and beside another program it is
//! one call in six of those on all processors, seldom one of those on a single thread: 620 µs in the middle, 1,880 µs on the
//! average. Choices are about the average.
//!
//! What happened is forgotten within seconds, as other programs come and go, and the longest call is left out: one page fault
//! is no habit. Where few calls were seen lately, a candidate is taken to be like the others with as many threads, which
//! wait for the same processors; else whoever serves would look worse than those nobody looks at.

/// After this time what happened weighs half.
const HALF_LIFE_NS: f64 = 1e10;
/// Calls that have to be seen before a candidate's own count for more than those of all with as many threads. Waits are rare and long: where one
/// call in ten takes eight times as long, the average of 64 of them is known to 15 %, and whoever was unlucky is not tried again soon.
const ITS_OWN: f64 = 64.0;
/// Calls of all with as many threads that have to be seen before they are believed to wait at all.
const OF_ITS_LIKE: f64 = 8.0;
/// A call that was longer than so many usual ones counts as so many: a program that was stopped for a minute has no slow kernels.
const LONGEST: f64 = 100.0;

/// Calls, summed up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Calls {
    /// How many of today they are worth.
    weight: f64,
    /// How many usual calls they took.
    took: f64,
    /// What is in the usual time of them already, in ln t from what it was before.
    known: f64,
}

impl Calls {
    fn scaled(self, by: f64) -> Self {
        Self {
            weight: by * self.weight,
            took: by * self.took,
            known: by * self.known,
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            weight: self.weight + other.weight,
            took: self.took + other.took,
            known: self.known + other.known,
        }
    }

    /// How much longer than usual they were on the average, in ln t, drawn towards what is usual of their like, which is worth so many calls.
    fn above(self, usual: f64, worth: f64) -> f64 {
        // What was taken away may leave a trace of rounding.
        if self.weight < 1e-6 || self.took <= 0.0 {
            return usual;
        }
        let own = (self.took / self.weight).ln() - self.known / self.weight;
        let share = self.weight / (self.weight + worth);
        share * own.max(0.0) + (1.0 - share) * usual
    }

    /// The same of one of many, all of which are given.
    fn above_among(self, all: Self) -> f64 {
        self.above(all.above(0.0, OF_ITS_LIKE), ITS_OWN)
    }
}

/// The calls of a candidate, as far as they are not forgotten.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lately {
    all: Calls,
    longest: Calls,
    as_of_ns: u64,
}

impl Lately {
    /// Lets time pass. A clock that goes back changes nothing.
    pub(super) fn fade(&mut self, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.as_of_ns) as f64;
        self.as_of_ns = self.as_of_ns.max(now_ns);
        let keep = (-passed / HALF_LIFE_NS).exp2();
        self.all = self.all.scaled(keep);
        self.longest = self.longest.scaled(keep);
    }

    /// A call took `away` more than usual, in ln t, of which `known` goes into what is usual.
    pub(super) fn push(&mut self, away: f64, known: f64) {
        let took = away.exp().min(LONGEST);
        let call = Calls {
            weight: 1.0,
            took,
            known: known.min(took.ln()),
        };
        self.all = self.all.and(call);
        if call.took > self.longest.took {
            self.longest = call;
        }
    }

    fn but_the_longest(&self) -> Calls {
        self.all.and(self.longest.scaled(-1.0))
    }

    /// How much longer than usual calls are on the average, in ln t; never negative. `others` are those with as many threads.
    pub(super) fn above<'a>(&self, others: impl Iterator<Item = &'a Self>) -> f64 {
        let own = self.but_the_longest();
        let all = others.fold(own, |sum, other| sum.and(other.but_the_longest()));
        own.above_among(all)
    }
}

/// What [`Lately::above`] says of each candidate, all given with the threads they run on. Only those seen lately are summed up, in
/// the order it is done for one alone: who is like another comes out alike to the last bit, and ties stay ties.
pub(super) fn above_each<'a>(all: impl Iterator<Item = (u32, &'a Lately)>) -> Vec<f64> {
    let all: Vec<(u32, Calls)> = all
        .map(|(threads, lately)| (threads, lately.but_the_longest()))
        .collect();
    let numbered = all.iter().copied().enumerate();
    let seen = numbered
        .clone()
        .filter(|(_, (_, calls))| *calls != Calls::default());
    let seen: Vec<(usize, (u32, Calls))> = seen.collect();
    let above = numbered.map(|(number, (threads, calls))| {
        let others = seen
            .iter()
            .filter(|(other, (with, _))| *other != number && *with == threads);
        let all = others.fold(calls, |sum, (_, (_, calls))| sum.and(*calls));
        calls.above_among(all)
    });
    above.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Calls one after the other, a millisecond apart; each took so many usual ones.
    fn lately(calls: &[f64]) -> Lately {
        let mut lately = Lately::default();
        for (number, took) in calls.iter().enumerate() {
            let away: f64 = took.ln();
            lately.fade(1_000_000 * number as u64);
            lately.push(away, away.min(0.2));
        }
        lately
    }

    fn alone(lately: &Lately) -> f64 {
        lately.above(std::iter::empty())
    }

    #[test]
    fn the_longest_call_is_forgiven_and_the_next_ones_are_not() {
        let mut calls = vec![1.0; 40];
        calls[20] = 50.0;
        assert!(alone(&lately(&calls)) < 1e-9);
        calls[30] = 50.0;
        // 39 calls took as long as 88.
        let own = (88.0_f64 / 39.0).ln() - 0.2 / 39.0;
        let believed = own * 39.0 / 47.0;
        let drawn = (39.0 * own + 64.0 * believed) / 103.0;
        assert!((alone(&lately(&calls)) - drawn).abs() < 0.01);
        // However long.
        calls[30] = 1e9;
        calls[20] = 2e9;
        assert!(alone(&lately(&calls)) < 1.2);
    }

    #[test]
    fn what_happened_is_forgotten() {
        let mut calls = lately(&[1.0, 9.0, 9.0, 9.0, 1.0, 9.0]);
        let before = alone(&calls);
        assert!(before > 0.5);
        calls.fade(100_000_000_000);
        let after = alone(&calls);
        assert!(after < before / 20.0);
        calls.fade(0);
        assert_eq!(
            alone(&calls),
            after,
            "a clock that goes back changes nothing"
        );
    }

    #[test]
    fn whoever_was_not_seen_is_like_the_others_and_whoever_was_is_not() {
        let waits: Vec<f64> = (0..60)
            .map(|i| if i % 6 == 0 { 8.0 } else { 1.0 })
            .collect();
        let waits = lately(&waits);
        let unseen = Lately::default().above([&waits].into_iter());
        assert!((0.5..alone(&waits)).contains(&unseen));
        // Little by little: a few calls without waits may have been lucky.
        let smooth = |calls: usize| lately(&vec![1.0; calls]).above([&waits].into_iter());
        assert!(smooth(5) > 0.8 * unseen && smooth(100) < unseen / 3.0);
    }

    proptest! {
        /// Some were seen often, some once, some never, some long ago.
        #[test]
        fn all_at_once_are_what_each_is_alone(
            all in prop::collection::vec(
                (1u32..4, prop::collection::vec(0.5f64..30.0, 0..12), 0u64..1_000_000_000_000),
                0..12,
            ),
        ) {
            let all: Vec<(u32, Lately)> = all
                .into_iter()
                .map(|(threads, calls, now_ns)| {
                    let mut lately = lately(&calls);
                    lately.fade(now_ns);
                    (threads, lately)
                })
                .collect();
            let at_once = above_each(all.iter().map(|(threads, lately)| (*threads, lately)));
            prop_assert_eq!(at_once.len(), all.len());
            for (number, (threads, lately)) in all.iter().enumerate() {
                let others = all.iter().enumerate();
                let others = others.filter(|(i, (with, _))| *i != number && with == threads);
                let alone = lately.above(others.map(|(_, (_, other))| other));
                prop_assert_eq!(at_once[number].to_bits(), alone.to_bits());
            }
        }
    }

    /// A first call that nothing could be cut of, a million times as long, is not held against later waits: it is known for as much
    /// as it counts.
    #[test]
    fn what_is_usual_of_a_call_is_no_more_than_it_counts() {
        let after_a_first = |took: f64| {
            let mut calls = Lately::default();
            calls.push(took.ln(), took.ln());
            for number in 1..=40 {
                let away = if number % 4 == 0 { 101f64.ln() } else { 0.0 };
                // Time passes, so that another one is the longest by now.
                calls.fade(1_000_000 * number);
                calls.push(away, away.min(0.2));
            }
            alone(&calls)
        };
        assert!(after_a_first(1e6) > 2.0);
        assert_eq!(after_a_first(1e6), after_a_first(LONGEST));
    }
}
