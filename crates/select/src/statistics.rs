//! What a selector did, from what was measured; what was not is unknown.

use std::collections::BTreeMap;

use kernelwise_types::KernelId;
use serde::Serialize;

/// Counts and times since the selector was made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statistics {
    /// Workloads that are remembered now.
    pub workloads: usize,
    /// Calls of theirs. A thread adds its own every few hundred calls and when it ends.
    pub calls: u64,
    /// Those after the first of each workload.
    pub hits: u64,
    /// Calls that were trials.
    pub trials: u64,
    /// Time of all calls, those that were not timed taken as long as those that were.
    pub served_ns: f64,
    /// What trials took longer than the calls they replaced.
    pub trials_excess_ns: f64,
    /// Results that were held against the reference.
    pub verified: u64,
    /// How long that took. A kernel's very first run is in no figure: it loads and plans, and the next one is timed.
    pub verification_ns: u64,
    /// Kernels that do not run any more.
    pub quarantined: usize,
    /// Samples that found the learner too far behind.
    pub samples_dropped: u64,
    /// Workloads that made room for others.
    pub workloads_evicted: u64,
    /// How good the choices are, by operation; only of workloads whose choice has a measured alternative.
    pub quality: BTreeMap<String, Quality>,
    /// The same by who serves.
    pub quality_by_kernel: BTreeMap<String, Quality>,
    /// Calls of the workloads that each kernel serves now, most first, then by name.
    pub popular: Vec<(KernelId, u64)>,
}

/// How good choices are, of workloads with at least two measured candidates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quality {
    /// Such workloads.
    pub workloads: usize,
    /// Geometric mean of the time of who serves over that of the fastest measured.
    pub slowdown: f64,
    /// Where that lies about nine times in ten for workloads like these; `None` of fewer than five.
    pub slowdown_interval: Option<[f64; 2]>,
    /// Share whose choice is at most 5 % slower than the fastest measured.
    pub share_within_5pct: f64,
    /// The same for it.
    pub share_interval: [f64; 2],
}

/// Workloads from which on the scatter of slowdowns is known well enough to tell a range.
const ENOUGH: usize = 5;

/// Of a normal distribution, 90 % lie within so many standard deviations.
const NINETY: f64 = 1.645;

/// Slowdowns of one operation, to be summed up.
#[derive(Debug, Default)]
pub(crate) struct Slowdowns {
    logarithms: Vec<f64>,
}

impl Slowdowns {
    /// One workload: ln of the slowdown against the fastest measured.
    pub(crate) fn push(&mut self, ln: f64) {
        self.logarithms.push(ln);
    }

    pub(crate) fn quality(&self) -> Option<Quality> {
        let (workloads, count) = (self.logarithms.len(), self.logarithms.len() as f64);
        let mean = self.logarithms.iter().sum::<f64>() / count;
        let within = self.logarithms.iter().filter(|ln| **ln <= 1.05f64.ln());
        let share = within.count() as f64 / count;
        let squares = self.logarithms.iter().map(|ln| (ln - mean) * (ln - mean));
        let deviation = (squares.sum::<f64>() / (count - 1.0) / count).sqrt();
        let ends = [-NINETY, NINETY].map(|z| (mean + z * deviation).exp().max(1.0));
        (workloads > 0).then(|| Quality {
            workloads,
            slowdown: mean.exp(),
            slowdown_interval: (workloads >= ENOUGH).then_some(ends),
            share_within_5pct: share,
            share_interval: share_interval(share, count),
        })
    }
}

/// Where the share lies that so many were drawn from (Wilson's interval).
fn share_interval(share: f64, count: f64) -> [f64; 2] {
    let z = NINETY * NINETY / count;
    let middle = share + z / 2.0;
    let reach = NINETY * ((share * (1.0 - share) + z / 4.0) / count).sqrt();
    [middle - reach, middle + reach].map(|end| (end / (1.0 + z)).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdowns_are_summed_up_and_nothing_is_unknown() {
        assert_eq!(Slowdowns::default().quality(), None);
        let mut slowdowns = Slowdowns::default();
        for factor in [1.0f64, 1.04, 1.2, 1.0] {
            slowdowns.push(factor.ln());
        }
        assert_eq!(slowdowns.quality().unwrap().slowdown_interval, None);
        let quality = slowdowns.quality().unwrap();
        assert_eq!((quality.workloads, quality.share_within_5pct), (4, 0.75));
        assert!((quality.slowdown - (1.04f64 * 1.2).powf(0.25)).abs() < 1e-12);
        let mut more = slowdowns;
        more.push(1.02f64.ln());
        let of_five = more.quality().unwrap();
        let [low, high] = of_five.slowdown_interval.unwrap();
        assert!(low >= 1.0 && low < of_five.slowdown && of_five.slowdown < high && high < 1.2);
        // Three of four: Wilson's interval at 90 %.
        let [low, high] = quality.share_interval;
        assert!(
            (low - 0.356).abs() < 0.001 && (high - 0.942).abs() < 0.001,
            "{low} {high}"
        );
        let mut one = Slowdowns::default();
        one.push(0.0);
        let one = one.quality().unwrap();
        assert_eq!((one.slowdown_interval, one.slowdown), (None, 1.0));
        assert!(one.share_interval[0] < 0.5 && one.share_interval[1] == 1.0);
    }
}
