//! What is believed of a kernel's time on one workload, and how firmly.
//!
//! Times are compared as y = ln t: a ratio is a difference, and a spike is only a few units long. A [`Tally`] holds what
//! was measured, as sums that fade; a [`Belief`] is that together with what was thought before: a normal
//! distribution of the mean of y, whose weight moves from the expectation to the measurements as they come in. How much
//! single measurements scatter is learned as well (an inverse gamma distribution of their variance), so that
//! three samples that agree count more than three that do not.

use serde::{Deserialize, Serialize};

/// Scatter of ln t from call to call that is assumed before any was seen: 5 %.
const USUAL_NOISE: f64 = 0.05;

/// How many samples that assumption is worth.
const NOISE_WEIGHT: f64 = 2.0;

/// How many median deviations above the middle a sample counts at most: a page fault or an interrupt says nothing of
/// a kernel. Cut at three standard deviations, up to one sample in nine may be far out before what is taken for noise grows with them.
const CLIP: f64 = 2.0;

/// How much first samples may mislead, in ln t: they find caches empty, pages new and threads asleep. Less with every sample.
const COLD: f64 = 0.3;

/// What an interruption adds to a call at the most, in nanoseconds: two time slices of another program.
const INTERRUPTION_NS: f64 = 8e6;

/// How much of what an interruption could have added to first samples, above what was expected, is taken to be in doubt. Less with every
/// sample.
const DOUBT: f64 = 0.5;

/// Up to so many samples, one that is faster by more than this, in ln t, replaces those before.
const YOUNG: f64 = 8.0;
const FAR: f64 = 0.4;

/// What is expected of a kernel before it ran: the middle of ln t, and its standard deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// Middle of ln t, in nanoseconds.
    pub mean: f64,
    /// Standard deviation of that: 0.1 is ten per cent.
    pub sd: f64,
}

/// Samples of ln t, summed up; what is old weighs less.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Sum of the weights.
    weight: f64,
    mean: f64,
    /// Weighted sum of squared distances from the mean.
    squares: f64,
    /// All samples that were ever added.
    samples: u64,
    /// When the weights were right, in nanoseconds of the injected clock.
    as_of_ns: u64,
    /// Whether all of them were measured under other circumstances.
    #[serde(default)]
    stale: bool,
}

impl Tally {
    /// Of samples that somebody else summed up: how many there were, how many of today they are worth, and mean and standard
    /// deviation of ln t. `None` of numbers that no samples have.
    pub fn of(samples: u64, weight: f64, mean: f64, sd: f64) -> Option<Self> {
        let sums = [weight, mean, sd];
        let sound = sums.iter().all(|sum| sum.is_finite()) && weight > 0.0 && sd >= 0.0;
        (sound && samples > 0).then_some(Self {
            weight,
            mean,
            squares: sd * sd * weight,
            samples,
            as_of_ns: 0,
            stale: false,
        })
    }

    /// The same of samples that were measured under other circumstances, such as another driver: a guess that the first sample
    /// of today begins to replace. Make it weigh little, so that a few samples settle it.
    #[must_use]
    pub fn stale(mut self) -> Self {
        self.stale = true;
        self
    }

    /// Whether nothing was added since to what was measured under [other circumstances](Self::stale).
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// The same, weighing what it weighs at this time of the clock.
    pub(crate) fn as_of(mut self, now_ns: u64) -> Self {
        self.as_of_ns = now_ns;
        self
    }

    /// Standard deviation of the samples themselves; zero of one.
    pub fn sd(&self) -> f64 {
        match self.weight > 0.0 {
            true => (self.squares / self.weight).max(0.0).sqrt(),
            false => 0.0,
        }
    }

    /// How many samples were added.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// How many samples of today they are worth.
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// The weighted mean of ln t; `None` without samples.
    pub fn mean(&self) -> Option<f64> {
        (self.weight > 0.0).then_some(self.mean)
    }

    /// Lets time pass: after each half-life everything weighs half. A clock that goes back changes nothing.
    pub fn fade(&mut self, now_ns: u64, half_life_ns: f64) {
        let passed = now_ns.saturating_sub(self.as_of_ns) as f64;
        self.as_of_ns = self.as_of_ns.max(now_ns);
        if self.weight > 0.0 && passed > 0.0 && half_life_ns > 0.0 {
            let keep = (-passed / half_life_ns).exp2();
            self.weight *= keep;
            self.squares *= keep;
        }
    }

    /// Adds a sample of ln t, cut where it lies far above what was seen.
    pub fn push(&mut self, y: f64) {
        if std::mem::take(&mut self.stale) {
            // What was only a guess is counted no longer.
            self.samples = 0;
        }
        if self.weight < YOUNG && y < self.mean - FAR {
            // Whatever interrupts a call makes it longer: those before were interrupted.
            (self.weight, self.squares) = (0.0, 0.0);
        }
        let y = self.cut(y);
        self.weight += 1.0;
        self.samples += 1;
        let before = y - self.mean;
        self.mean += before / self.weight;
        self.squares += before * (y - self.mean);
    }

    /// A sample of ln t as far as it counts: what lies far above what was seen says more about the moment than about the kernel.
    pub(crate) fn cut(&self, y: f64) -> f64 {
        match self.weight >= 2.0 {
            // 1.48 median deviations are a standard deviation.
            true => y.min(self.mean + CLIP * 1.48 * self.noise()),
            false => y,
        }
    }

    /// Standard deviation of single samples, drawn towards the usual one while there are few.
    pub fn noise(&self) -> f64 {
        let usual = NOISE_WEIGHT * USUAL_NOISE * USUAL_NOISE;
        let freedom = NOISE_WEIGHT + (self.weight - 1.0).max(0.0);
        ((usual + self.squares) / freedom).sqrt()
    }

    /// Forgets all but these, which count in full: something changed, and they came after.
    pub fn restart(&mut self, samples: &[f64]) {
        let weight = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / weight.max(1.0);
        let squares = samples.iter().map(|y| (y - mean) * (y - mean)).sum();
        (self.weight, self.mean, self.squares) = (weight, mean, squares);
        self.stale = false;
    }

    /// Makes everything measured so far weigh at most so many samples: what changed must be learned anew, and what was
    /// known is no more than an expectation.
    pub fn widen(&mut self, most: f64) {
        if self.weight > most && most >= 0.0 {
            self.squares *= most / self.weight;
            self.weight = most;
        }
    }

    /// Moves all that was measured by so much: the machine became slower or faster, not the kernel.
    pub fn shift(&mut self, by: f64) {
        self.mean += by;
    }
}

/// What is believed of the mean of ln t.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Belief {
    /// Its middle.
    pub mean: f64,
    /// Its standard deviation.
    pub sd: f64,
    /// Samples behind it, in those of today.
    pub weight: f64,
}

impl Belief {
    /// Of something that nothing is known of.
    pub(crate) const NOTHING: Self = Self {
        mean: 0.0,
        sd: f64::INFINITY,
        weight: 0.0,
    };

    /// What follows from an expectation and measurements: the one weighs by its precision, the others by theirs.
    pub fn of(expected: Expected, tally: &Tally) -> Self {
        let Some(measured) = tally.mean() else {
            return Self {
                mean: expected.mean,
                sd: expected.sd,
                weight: 0.0,
            };
        };
        let (noise, cold) = (tally.noise(), COLD / tally.weight());
        let at_least = (measured.exp() - INTERRUPTION_NS).max(0.0).ln();
        let added = measured - at_least.max(expected.mean).min(measured);
        let doubt = DOUBT * added / tally.weight();
        let before = 1.0 / (expected.sd * expected.sd);
        let since = 1.0 / (noise * noise / tally.weight() + cold * cold + doubt * doubt);
        Self {
            mean: (expected.mean * before + measured * since) / (before + since),
            sd: (1.0 / (before + since)).sqrt(),
            weight: tally.weight(),
        }
    }

    /// ln of the expected time: of a lognormal distribution the mean lies above the middle, so what is uncertain must be
    /// better to be worth as much.
    pub fn expected(&self) -> f64 {
        self.mean + self.sd * self.sd / 2.0
    }
}

/// The chance that `chosen` is at most `zone` (in ln t) slower than the best of all beliefs, which are taken as independent.
pub fn chance_within(beliefs: &[Belief], chosen: usize, zone: f64) -> f64 {
    /// Points on each side of the middle; ten per standard deviation is far finer than the answer.
    const SIDE: i32 = 40;
    const STEP: f64 = 0.1;
    let Some(mine) = beliefs.get(chosen) else {
        return 0.0;
    };
    let (mut sum, mut all) = (0.0, 0.0);
    for point in -SIDE..=SIDE {
        let z = f64::from(point) * STEP;
        let density = (-z * z / 2.0).exp();
        let time = mine.mean + z * mine.sd;
        let others = beliefs.iter().enumerate().filter(|(i, _)| *i != chosen);
        let none_faster: f64 = others
            .map(|(_, other)| 1.0 - below(time - zone, other))
            .product();
        sum += density * none_faster;
        all += density;
    }
    (sum / all).clamp(0.0, 1.0)
}

/// The chance that a belief's mean lies below a value.
pub fn below(value: f64, belief: &Belief) -> f64 {
    if belief.sd <= 0.0 {
        return if belief.mean < value { 1.0 } else { 0.0 };
    }
    normal((value - belief.mean) / belief.sd)
}

/// The standard normal distribution function (Abramowitz and Stegun 7.1.26; error below 2e-7).
fn normal(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let tail = [
        1.061_405_429,
        -1.453_152_027,
        1.421_413_741,
        -0.284_496_736,
        0.254_829_592,
    ];
    let polynomial = tail.iter().fold(0.0, |sum, c| sum * t + c) * t;
    let erf = 1.0 - polynomial * (-x * x).exp();
    if z >= 0.0 {
        (1.0 + erf) / 2.0
    } else {
        (1.0 - erf) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UNKNOWN: Expected = Expected { mean: 5.0, sd: 1.0 };

    fn tally(samples: &[f64]) -> Tally {
        let mut tally = Tally::default();
        samples.iter().for_each(|y| tally.push(*y));
        tally
    }

    #[test]
    fn a_stale_tally_is_a_guess_until_something_is_measured() {
        let mut tally = Tally::of(500, 2.0, 9.0, 0.1).unwrap().stale();
        assert!(tally.is_stale());
        for count in 1..=20 {
            tally.push(7.0);
            assert!(!tally.is_stale());
            assert_eq!(tally.samples(), count);
        }
        let mean = tally.mean().unwrap();
        assert!(
            (7.0..7.3).contains(&mean),
            "a few samples settle it: {mean}"
        );
    }

    #[test]
    fn measurements_outweigh_the_expectation_and_agreement_outweighs_scatter() {
        let nothing = Belief::of(UNKNOWN, &Tally::default());
        assert_eq!((nothing.mean, nothing.sd, nothing.weight), (5.0, 1.0, 0.0));
        let one = Belief::of(UNKNOWN, &tally(&[3.0]));
        assert!((one.mean - 3.0).abs() < 0.2 && (0.25..0.35).contains(&one.sd));
        let agreeing = Belief::of(UNKNOWN, &tally(&[3.0, 3.01, 2.99, 3.0]));
        let scattered = Belief::of(UNKNOWN, &tally(&[3.0, 3.4, 2.6, 3.0]));
        assert!(agreeing.sd < one.sd / 3.0 && agreeing.sd < scattered.sd / 1.5);
        assert!(agreeing.expected() > agreeing.mean);
    }

    /// 8 ms may be one of 1 ms that was interrupted, 30 ms cannot; the second sample tells.
    #[test]
    fn what_an_interruption_may_have_added_is_in_doubt_at_first() {
        let expected = Expected {
            mean: 1e6f64.ln(),
            sd: 1.0,
        };
        let of = |times: &[f64]| {
            let samples: Vec<f64> = times.iter().map(|time| time.ln()).collect();
            Belief::of(expected, &tally(&samples))
        };
        let (doubted, sure) = (of(&[8e6]), of(&[30e6]));
        assert!(doubted.mean.exp() < 4e6 && doubted.sd > 0.6);
        assert!(sure.mean.exp() > 20e6 && sure.sd < 0.4);
        assert!(of(&[8e6, 8e6, 8e6]).mean.exp() > 5.5e6);
        // It was interrupted, and says no more.
        let told = of(&[8e6, 1e6]);
        assert!((told.mean - 1e6f64.ln()).abs() < 1e-9 && told.weight == 1.0);
        // What is well known is not thrown away for one fast call, of which the sums know.
        let mut known = tally(&[2.0; 8]);
        known.push(1.0);
        assert_eq!(known.weight(), 9.0);
    }

    #[test]
    fn half_a_life_is_half_the_weight() {
        let mut tally = tally(&[1.0, 1.1, 0.9, 1.0]);
        let (mean, noise) = (tally.mean(), tally.noise());
        tally.fade(1_000, 1_000.0);
        assert!((tally.weight() - 2.0).abs() < 1e-9);
        assert_eq!(tally.mean(), mean);
        assert!((tally.noise() - noise).abs() < 0.02);
        assert_eq!(tally.samples(), 4);
        // Backwards and standing clocks change nothing.
        tally.fade(500, 1_000.0);
        tally.fade(1_000, 1_000.0);
        assert!((tally.weight() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_spike_is_cut_and_a_fast_sample_is_not() {
        let mut spiked = tally(&[1.0; 10]);
        spiked.push(9.0);
        assert!(spiked.mean().unwrap() < 1.02);
        let mut fast = tally(&[1.0; 10]);
        fast.push(-7.0);
        assert!(fast.mean().unwrap() < 0.3);
    }

    #[test]
    fn what_is_widened_is_soon_outvoted() {
        let mut widened = tally(&[1.0; 50]);
        widened.widen(1.0);
        assert_eq!((widened.weight(), widened.mean()), (1.0, Some(1.0)));
        let before = widened;
        widened.widen(5.0);
        assert_eq!(widened, before);
        widened.shift(0.5);
        assert_eq!(widened.mean(), Some(1.5));
        // What came after a change is not cut by what was before.
        widened.restart(&[7.0, 7.2, 7.1]);
        assert!((widened.mean().unwrap() - 7.1).abs() < 1e-9);
        assert_eq!((widened.weight(), widened.samples()), (3.0, 50));
        assert!(widened.noise() < 0.1);
    }

    #[test]
    fn chances_are_those_of_normal_distributions() {
        let belief = |mean, sd| Belief {
            mean,
            sd,
            weight: 1.0,
        };
        let even = [belief(1.0, 0.1), belief(1.0, 0.1)];
        assert!((chance_within(&even, 0, 0.0) - 0.5).abs() < 1e-3);
        // Two standard deviations of the difference: 0.9772.
        let ahead = [belief(1.0, 0.1), belief(1.0 + 0.2 * 2f64.sqrt(), 0.1)];
        assert!((chance_within(&ahead, 0, 0.0) - 0.977_2).abs() < 1e-3);
        assert!((chance_within(&ahead, 1, 0.0) - 0.022_8).abs() < 1e-3);
        assert!(chance_within(&even, 0, 0.5) > 0.999);
        assert_eq!(chance_within(&even[..1], 0, 0.0), 1.0);
        assert_eq!(chance_within(&even, 2, 0.0), 0.0);
        assert_eq!(below(1.0, &belief(0.5, 0.0)), 1.0);
        assert!((normal(1.0) - 0.841_345).abs() < 1e-6 && (normal(-1.0) - 0.158_655).abs() < 1e-6);
    }

    proptest! {
        #[test]
        fn beliefs_stay_finite_and_between(samples in prop::collection::vec(-5.0f64..25.0, 1..40)) {
            let tally = tally(&samples);
            let belief = Belief::of(UNKNOWN, &tally);
            prop_assert!(belief.mean.is_finite() && belief.sd > 0.0);
            let low = samples.iter().copied().fold(UNKNOWN.mean, f64::min);
            let high = samples.iter().copied().fold(UNKNOWN.mean, f64::max);
            prop_assert!(belief.mean >= low - 1e-9 && belief.mean <= high + 1e-9);
        }

        #[test]
        fn slower_samples_never_lower_the_belief(
            samples in prop::collection::vec(2.0f64..4.0, 1..20),
            extra in 0.01f64..3.0,
        ) {
            let before = Belief::of(UNKNOWN, &tally(&samples));
            let slower: Vec<f64> = samples.iter().map(|y| y + extra).collect();
            prop_assert!(Belief::of(UNKNOWN, &tally(&slower)).mean >= before.mean - 1e-9);
        }
    }
}
