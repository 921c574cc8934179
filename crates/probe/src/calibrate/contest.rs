//! Several ways to reach one ceiling: all are tried, the fastest gives the figure.
//!
//! Which instruction set or kind of store wins is not known beforehand: wide vectors may lower the
//! clock, and string instructions beat vector stores on some processors. The first visit therefore
//! gives every contender its share of the time, later visits only those that can still win.

use kernelwise_measure::Summary;
use kernelwise_types::Measured;
use kernelwise_types::units::Nanos;

use super::CalibrateError;

/// Contenders below this share of the best are not measured again. The clock of a busy machine wanders
/// by some per cent between two visits, so a smaller distance settles nothing.
const STILL_IN: f64 = 0.9;

/// The contenders of one ceiling, and their rates so far.
#[derive(Debug)]
pub(super) struct Contest<C> {
    contenders: Vec<(C, Vec<f64>)>,
}

impl<C: Copy> Contest<C> {
    pub(super) fn new(contenders: impl IntoIterator<Item = C>) -> Self {
        Self {
            contenders: contenders.into_iter().map(|c| (c, Vec::new())).collect(),
        }
    }

    /// Lets every contender that can still win run: `run(contender, deadline)` returns the work per
    /// sample and the nanoseconds of its samples. The time from `now` until `deadline` is shared
    /// equally; samples in which the clock did not move are dropped.
    pub(super) fn visit(
        &mut self,
        now: u64,
        deadline: u64,
        mut run: impl FnMut(C, u64) -> Result<(u64, Vec<u64>), CalibrateError>,
    ) -> Result<(), CalibrateError> {
        let bar = STILL_IN * self.contenders.iter().filter_map(best).fold(0.0, f64::max);
        let mut running: Vec<_> = self
            .contenders
            .iter_mut()
            .filter(|contender| best(contender).is_none_or(|rate| rate >= bar))
            .collect();
        let share = deadline.saturating_sub(now) / running.len().max(1) as u64;
        for (turn, (contender, rates)) in (1..).zip(&mut running) {
            let (work, samples) = run(*contender, now.saturating_add(turn * share))?;
            rates.extend(
                samples
                    .into_iter()
                    .filter(|nanos| *nanos > 0)
                    .map(|nanos| work as f64 / Nanos::from_u64(nanos).seconds()),
            );
        }
        Ok(())
    }

    /// The contender with the best sample, and its figure; `None` if nobody has one.
    pub(super) fn winner<T: TryFrom<f64>>(&self) -> Option<(C, Measured<T>)> {
        let (contender, rates) = self
            .contenders
            .iter()
            .max_by(|a, b| best(a).unwrap_or(0.0).total_cmp(&best(b).unwrap_or(0.0)))?;
        let summary = Summary::of(rates)?;
        Some((*contender, figure(&summary, summary.max)?))
    }
}

fn best<C>((_, rates): &(C, Vec<f64>)) -> Option<f64> {
    rates.iter().copied().max_by(f64::total_cmp)
}

/// A cost from its samples: the median and its quartiles.
pub(super) fn cost(samples: &[f64]) -> Option<Measured<Nanos>> {
    let summary = Summary::of(samples)?;
    figure(&summary, summary.median)
}

fn figure<T: TryFrom<f64>>(summary: &Summary, value: f64) -> Option<Measured<T>> {
    Some(Measured {
        value: T::try_from(value).ok()?,
        low: T::try_from(summary.q1).ok()?,
        high: T::try_from(summary.q3).ok()?,
        samples: u32::try_from(summary.n).unwrap_or(u32::MAX),
    })
}

#[cfg(test)]
mod tests {
    use kernelwise_types::units::ByteRate;

    use super::*;

    #[test]
    fn losers_leave_and_the_best_sample_is_the_figure() {
        let mut contest = Contest::new(["slow", "fast", "close"]);
        let mut visited = Vec::new();
        for round in 0..2u64 {
            contest
                .visit(1000 * round, 1000 * round + 600, |name, deadline| {
                    visited.push((name, deadline));
                    Ok(match name {
                        "slow" => (1000, vec![2000, 2100]),
                        // The best sample comes late, and one sample took no time at all.
                        "fast" => (1000, vec![1000 - 100 * round, 0, 1500, 1600]),
                        _ => (1000, vec![1050]),
                    })
                })
                .unwrap();
        }
        assert_eq!(
            visited,
            [
                ("slow", 200),
                ("fast", 400),
                ("close", 600),
                ("fast", 1300),
                ("close", 1600)
            ]
        );
        let (name, measured) = contest.winner::<ByteRate>().unwrap();
        assert_eq!((name, measured.samples), ("fast", 6));
        assert!((measured.value.get() - 1000.0 / 900e-9).abs() < 1.0);
        assert!(measured.low < measured.high && measured.high < measured.value);
    }

    #[test]
    fn without_samples_there_is_no_figure() {
        let mut contest = Contest::new([()]);
        assert!(contest.winner::<ByteRate>().is_none());
        contest.visit(0, 1, |(), _| Ok((1, vec![0]))).unwrap();
        assert!(contest.winner::<ByteRate>().is_none());
        assert!(cost(&[]).is_none());
    }

    #[test]
    fn a_cost_is_a_median_with_quartiles() {
        let cost = cost(&[5.0, 1.0, 2.0, 3.0, 4.0]).unwrap();
        let numbers = (cost.low.get(), cost.value.get(), cost.high.get());
        assert_eq!((numbers, cost.samples), ((2.0, 3.0, 4.0), 5));
    }
}
