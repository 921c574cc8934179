//! Who is dropped from a race, and when its order is settled.
//!
//! A candidate is dropped on the shortest time it was seen to take, beside the shortest of the best: interference only
//! ever adds time, so the shortest tells most while there are few. After one sample it may take 1.5 times as long, after
//! three 1.15 times. The two fastest always stay: a best without anybody beside it would be a claim without evidence.
//!
//! The order is settled when nobody left is too noisy to be told from the best: each is slower by more than the indifference
//! zone, or as good within it. Who is slower is not measured further.

use kernelwise_measure::stats::{location, quantile, ratio_interval};
use kernelwise_measure::{Comparison, Indifference, Verdict};
use kernelwise_types::Interval;
use kernelwise_types::units::Nanos;

use super::{AWAKE_NS, Ended, LED_IN_NS, SHORTEST_CALL_NS};

/// Samples a candidate has at the least, and how many times the time of the best it may take then.
const DROPPED_AT: [(usize, f64); 2] = [(3, 1.15), (1, 1.5)];
/// Candidates that are never dropped.
const SURVIVORS: usize = 2;
/// Of intervals.
const CONFIDENCE: f64 = 0.9;
/// How far out 90 % of a normal distribution lies, in standard deviations.
const Z_90: f64 = 1.645;

/// A sample may lie so many times as far above the middle as the shortest lies below it, and still be what the kernel takes.
const CALM: f64 = 2.0;
/// The shortest lies so far below it at the least, as a share of the middle.
const CALM_SHARE: f64 = 0.02;

/// One candidate in the race.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    /// Its number in the case.
    pub(super) candidate: usize,
    /// Threads it runs on.
    pub(super) threads: u32,
    /// What it was expected to take before, in nanoseconds.
    pub(super) expected_ns: Option<f64>,
    /// Calls of a sample.
    pub(super) batch: u64,
    /// The shortest time of a call, in samples and in what led to them.
    pub(super) least_ns: f64,
    /// Times of a call, round by round.
    pub(super) samples_ns: Vec<f64>,
    /// Why it left the race.
    pub(super) ended: Option<Ended>,
    /// Whether its place is known, so that it need not run further.
    rests: bool,
}

impl Lane {
    pub(super) fn new(
        candidate: usize,
        threads: u32,
        expected_ns: Option<f64>,
        ended: Option<Ended>,
    ) -> Self {
        Self {
            candidate,
            threads,
            expected_ns,
            batch: 1,
            least_ns: f64::INFINITY,
            samples_ns: Vec::new(),
            ended,
            rests: false,
        }
    }

    /// Calls before a sample that are not timed.
    pub(super) fn led_in(&self) -> u64 {
        match self.threads {
            _ if self.least_ns >= LED_IN_NS => 0,
            0 | 1 => 1,
            _ => (AWAKE_NS / self.least_ns.max(SHORTEST_CALL_NS)).ceil() as u64,
        }
    }

    /// Whether it takes its turn in the next round.
    pub(super) fn runs(&self) -> bool {
        self.is_in() && !self.rests
    }

    /// Whether it began and was not dropped.
    fn is_in(&self) -> bool {
        self.ended.is_none() && !self.samples_ns.is_empty()
    }

    /// What became of it, once the race is over.
    pub(super) fn ending(&self) -> Ended {
        match &self.ended {
            Some(ended) => ended.clone(),
            None if self.samples_ns.is_empty() => Ended::NotReached,
            None => Ended::Finished,
        }
    }

    pub(super) fn median_ns(&self) -> Option<Nanos> {
        Nanos::new(quantile(&self.samples_ns, 0.5)?).ok()
    }

    /// Between the samples whose ranks lie as far from the middle one as chance takes it nine times in ten.
    pub(super) fn interval_ns(&self) -> Option<Interval> {
        let reach = Z_90 * 0.5 / (self.samples_ns.len() as f64).sqrt();
        let end = |q: f64| Nanos::new(quantile(&self.samples_ns, q)?).ok();
        Interval::new(end(0.5 - reach)?, end(0.5 + reach)?).ok()
    }

    /// The samples, with those brought down that lie far above the middle: one disturbed sample is no change of the kernel.
    /// What disturbs adds time and never takes any, so how far the others lie below the middle says what is far.
    pub(super) fn calm_samples(&self) -> Vec<f64> {
        let mut sorted = self.samples_ns.clone();
        sorted.sort_by(f64::total_cmp);
        // Of two, the lower one.
        let Some(middle) = sorted.get(sorted.len().saturating_sub(1) / 2) else {
            return sorted;
        };
        let most = middle + CALM * (middle - sorted[0]).max(CALM_SHARE * middle);
        let samples = self.samples_ns.iter();
        samples.map(|sample| sample.min(most)).collect()
    }
}

/// How many are in the race.
pub(super) fn racing(lanes: &[Lane]) -> usize {
    lanes.iter().filter(|lane| lane.is_in()).count()
}

/// How many have been measured at all.
pub(super) fn begun(lanes: &[Lane]) -> usize {
    let begun = |lane: &&Lane| !lane.samples_ns.is_empty();
    lanes.iter().filter(begun).count()
}

/// The shortest time of those in the race.
fn best_ns(lanes: &[Lane]) -> Option<f64> {
    let times = lanes.iter().filter(|lane| lane.is_in());
    times.map(|lane| lane.least_ns).min_by(f64::total_cmp)
}

/// How many times the best time a candidate is expected to take, if that is more than `most`.
pub(super) fn hopeless(lanes: &[Lane], number: usize, most: f64) -> Option<f64> {
    let times = lanes[number].expected_ns? / best_ns(lanes)?;
    (times > most).then_some(times)
}

/// Whether this is more than `most` times the best time; nothing is while there is no other.
pub(super) fn is_far_behind(lanes: &[Lane], time_ns: f64, most: f64) -> bool {
    best_ns(lanes).is_some_and(|best| time_ns > most * best)
}

/// Drops who is behind and has so many samples, the slowest first, while more than two are left.
pub(super) fn drop_behind(lanes: &mut [Lane], least_samples: usize) {
    let Some(best) = best_ns(lanes).filter(|best| *best > 0.0) else {
        return;
    };
    let mut order: Vec<usize> = (0..lanes.len()).filter(|i| lanes[*i].is_in()).collect();
    order.sort_by(|a, b| lanes[*b].least_ns.total_cmp(&lanes[*a].least_ns));
    let droppable = order.len().saturating_sub(SURVIVORS);
    for number in order.into_iter().take(droppable) {
        let lane = &mut lanes[number];
        let times = lane.least_ns / best;
        let samples = lane.samples_ns.len();
        let rule = DROPPED_AT.iter().find(|(least, _)| samples >= *least);
        let rule = rule.filter(|_| samples >= least_samples);
        if rule.is_some_and(|(_, most)| times > *most) {
            lane.ended = Some(Ended::Behind { times });
        }
    }
}

/// Whether the order is looked at before this round. Resampling takes longer than a round of short kernels, so it is done less
/// and less often.
pub(super) fn is_time_to_judge(round: usize) -> bool {
    const FIRST: usize = kernelwise_measure::stats::MIN_SAMPLES;
    let mut at = FIRST;
    while at < round {
        at += at / 3;
    }
    at == round
}

/// Whether it is known who is best and who is as good. Those that are slower rest from now on.
pub(super) fn is_settled(lanes: &mut [Lane], zone: Indifference, seed: u64) -> bool {
    let place = |lane: &Lane| location(&lane.samples_ns).unwrap_or(f64::INFINITY);
    let running: Vec<usize> = (0..lanes.len()).filter(|i| lanes[*i].runs()).collect();
    let best = running.iter().copied();
    let Some(best) = best.min_by(|a, b| place(&lanes[*a]).total_cmp(&place(&lanes[*b]))) else {
        return true;
    };
    let mut settled = true;
    let mut slower = Vec::new();
    for &other in running.iter().filter(|other| **other != best) {
        let (a, b) = (&lanes[other].samples_ns, &lanes[best].samples_ns);
        let interval = ratio_interval(a, b, CONFIDENCE, seed);
        let verdict = interval.map(|interval| Comparison::new(interval, zone).verdict);
        match verdict {
            Some(Verdict::Slower) => slower.push(other),
            Some(Verdict::Tie) => {}
            // Faster than the best cannot be; noise can.
            Some(Verdict::Faster | Verdict::TooNoisy) | None => settled = false,
        }
    }
    for other in slower {
        lanes[other].rests = true;
    }
    settled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_awake_when_a_sample_begins() {
        let led_in = |threads: u32, least_ns: f64| {
            let lane = Lane {
                least_ns,
                ..Lane::new(0, threads, None, None)
            };
            lane.led_in()
        };
        assert_eq!([1e2, 5e3, 1e6, 3e6].map(|ns| led_in(1, ns)), [1, 1, 1, 0]);
        assert_eq!(
            [1e2, 5e3, 1e6, 3e6].map(|ns| led_in(2, ns)),
            [500, 10, 1, 0]
        );
    }

    fn lane(candidate: usize, samples: &[f64]) -> Lane {
        Lane {
            samples_ns: samples.to_vec(),
            least_ns: samples.iter().copied().fold(f64::INFINITY, f64::min),
            ..Lane::new(candidate, 1, None, None)
        }
    }

    fn left(lanes: &[Lane]) -> Vec<usize> {
        let is_in = lanes.iter().filter(|lane| lane.is_in());
        is_in.map(|lane| lane.candidate).collect()
    }

    #[test]
    fn who_is_behind_is_dropped_by_the_samples_it_has() {
        let mut lanes: Vec<Lane> = [100.0, 120.0, 149.0, 151.0]
            .iter()
            .enumerate()
            .map(|(i, time)| lane(i, &[*time]))
            .collect();
        drop_behind(&mut lanes, 1);
        assert_eq!(left(&lanes), [0, 1, 2]);
        assert_eq!(lanes[3].ending(), Ended::Behind { times: 1.51 });
        // The shortest of three counts: one of them was disturbed.
        lanes[1] = lane(1, &[114.0, 900.0, 120.0]);
        lanes[2] = lane(2, &[149.0, 116.0, 149.0]);
        drop_behind(&mut lanes, 1);
        assert_eq!(left(&lanes), [0, 1]);
    }

    #[test]
    fn two_always_stay() {
        let mut lanes = vec![
            lane(0, &[900.0]),
            lane(1, &[100.0]),
            lane(2, &[700.0]),
            lane(3, &[]),
        ];
        drop_behind(&mut lanes, 1);
        assert_eq!(left(&lanes), [1, 2]);
        drop_behind(&mut lanes, 1);
        assert_eq!(left(&lanes), [1, 2]);
        assert_eq!(lanes[3].ending(), Ended::NotReached);
    }

    #[test]
    fn a_run_is_far_behind_the_best_only() {
        assert!(!is_far_behind(&[lane(0, &[])], 400.0, 3.0));
        let two = [lane(0, &[100.0]), lane(1, &[200.0])];
        assert!(is_far_behind(&two, 301.0, 3.0));
        assert!(!is_far_behind(&two, 300.0, 3.0));
    }

    #[test]
    fn a_settled_order_is_ties_and_differences() {
        let zone = Indifference::default();
        let steady = |time: f64| [time; 9];
        let mut lanes = vec![
            lane(0, &steady(100.0)),
            lane(1, &steady(101.0)),
            lane(2, &steady(110.0)),
        ];
        assert!(is_settled(&mut lanes, zone, 1));
        assert!(lanes[1].runs() && !lanes[2].runs() && lanes[2].is_in());
        // Nine samples that scatter around the edge of the zone tell nothing.
        let wild: Vec<f64> = (0..9).map(|i| 95.0 + 3.0 * f64::from(i)).collect();
        lanes[1] = lane(1, &wild);
        assert!(!is_settled(&mut lanes, zone, 1));
        // Neither do eight.
        lanes[1] = lane(1, &[150.0; 8]);
        assert!(!is_settled(&mut lanes, zone, 1));
    }

    #[test]
    fn the_order_is_judged_less_and_less_often() {
        let judged: Vec<usize> = (0..60).filter(|round| is_time_to_judge(*round)).collect();
        assert_eq!(judged, [9, 12, 16, 21, 28, 37, 49]);
    }

    #[test]
    fn medians_have_intervals_from_three_samples_on() {
        let few = lane(0, &[3.0, 1.0]);
        assert_eq!(
            (few.median_ns().unwrap().get(), few.interval_ns()),
            (2.0, None)
        );
        let many: Vec<f64> = (1..=101).map(f64::from).collect();
        let interval = lane(0, &many).interval_ns().unwrap();
        let (low, high) = (interval.low().get(), interval.high().get());
        // 1.645 times half the root of 101 is 8.3 % of the ranks.
        assert!((low - 42.8).abs() < 0.1 && (high - 59.2).abs() < 0.1);
        assert_eq!(lane(0, &[]).median_ns(), None);
    }

    #[test]
    fn what_is_learned_has_no_spikes() {
        let calm = |samples: &[f64]| lane(0, samples).calm_samples();
        assert_eq!(
            calm(&[10.0, 9000.0, 12.0, 13.0, 11.0]),
            [10.0, 16.0, 12.0, 13.0, 11.0]
        );
        // Of two, one may have been disturbed.
        assert_eq!(calm(&[200.0, 100.0]), [104.0, 100.0]);
        assert_eq!(calm(&[500.0]), [500.0]);
        assert!(calm(&[]).is_empty());
    }

    #[test]
    fn nobody_is_dropped_before_the_samples_asked_for() {
        let mut lanes = vec![
            lane(0, &[100.0; 2]),
            lane(1, &[110.0; 2]),
            lane(2, &[900.0; 2]),
        ];
        drop_behind(&mut lanes, 3);
        assert_eq!(left(&lanes), [0, 1, 2]);
        drop_behind(&mut lanes, 2);
        assert_eq!(left(&lanes), [0, 1]);
    }
}
