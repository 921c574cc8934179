//! How good choices were.

use serde::Serialize;

/// Choices held against the best that was recorded.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Problems that were served.
    pub problems: usize,
    /// Geometric mean of the time of the choice over the best.
    pub geo_slowdown: f64,
    /// Time of all choices together over that of the best.
    pub total_over_oracle: f64,
    /// Share of choices more than 5 % slower than the best.
    pub share_over_5pct: f64,
    /// Time of further runs over the time of the choices.
    pub trial_share: f64,
    /// Further runs.
    pub trials: u64,
    /// Those that were stopped because the budget was used up.
    pub trials_cut: u64,
    /// Choices of an algorithm that has no recorded time.
    pub invalid_picks: u64,
    /// Moments at which further runs had cost more than the budget allows.
    pub budget_overruns: u64,
}

/// Sums up choices as they are made.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    problems: usize,
    logarithms: f64,
    chosen: f64,
    best: f64,
    slow: usize,
    pub(crate) trials_time: f64,
    pub(crate) trials: u64,
    pub(crate) trials_cut: u64,
    pub(crate) invalid_picks: u64,
    pub(crate) budget_overruns: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, chosen: f64, best: f64) {
        self.problems += 1;
        self.logarithms += (chosen / best).ln();
        self.chosen += chosen;
        self.best += best;
        self.slow += usize::from(chosen > 1.05 * best);
    }

    pub(crate) fn figures(&self) -> Figures {
        let count = self.problems.max(1) as f64;
        Figures {
            problems: self.problems,
            geo_slowdown: (self.logarithms / count).exp(),
            total_over_oracle: self.chosen / self.best,
            share_over_5pct: self.slow as f64 / count,
            trial_share: self.trials_time / self.chosen,
            trials: self.trials,
            trials_cut: self.trials_cut,
            invalid_picks: self.invalid_picks,
            budget_overruns: self.budget_overruns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_geometric_and_totals_are_not() {
        let mut tally = Tally::default();
        tally.add(2.0, 1.0);
        tally.add(100.0, 100.0);
        tally.trials_time = 10.2;
        let figures = tally.figures();
        assert!((figures.geo_slowdown - 2f64.sqrt()).abs() < 1e-12);
        assert!((figures.total_over_oracle - 102.0 / 101.0).abs() < 1e-12);
        assert_eq!((figures.share_over_5pct, figures.problems), (0.5, 2));
        assert!((figures.trial_share - 0.1).abs() < 1e-12);
    }
}
