//! How much time learning may cost.
//!
//! A trial is a call that goes to another kernel than the best one known, in order to learn. What it takes longer is
//! charged here, and no trial is begun unless the whole of what it may cost fits: a share of the time served so far, and a
//! few runs to begin with. So whatever kernels turn out to be like, a program that learns is slower by no more than that on
//! the average; a call that waits for a processor is charged what such calls wait on the average, not what this one did.

use serde::{Deserialize, Serialize};

/// The limits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Share of the time served that trials may take on top.
    pub share: f64,
    /// Runs of the first kernel served that are allowed from the start.
    pub first_runs: f64,
}

impl Default for Budget {
    /// One per cent, and three runs.
    fn default() -> Self {
        Self {
            share: 0.01,
            first_runs: 3.0,
        }
    }
}

/// A limit that is no limit.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("a budget's {what} is a number from zero up, not {value}")]
pub struct InvalidBudget {
    /// Which one.
    what: &'static str,
    value: f64,
}

impl Budget {
    /// Nothing is ever tried.
    pub const NONE: Self = Self {
        share: 0.0,
        first_runs: 0.0,
    };

    /// Whatever it takes.
    pub(crate) const UNLIMITED: Self = Self {
        share: 0.0,
        first_runs: f64::INFINITY,
    };

    /// Whether both are numbers from zero up.
    pub fn check(&self) -> Result<(), InvalidBudget> {
        for (what, value) in [("share", self.share), ("first_runs", self.first_runs)] {
            if !value.is_finite() || value < 0.0 {
                return Err(InvalidBudget { what, value });
            }
        }
        Ok(())
    }
}

/// What was served, and what trials cost.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Ledger {
    served_ns: f64,
    first_ns: f64,
    spent_ns: f64,
    /// What trials that are under way are expected to cost.
    reserved_ns: f64,
    trials: u64,
}

impl Ledger {
    /// Time of all calls that were served, as far as it is known.
    pub fn served_ns(&self) -> f64 {
        self.served_ns
    }

    /// What trials took longer than the calls they replaced.
    pub fn spent_ns(&self) -> f64 {
        self.spent_ns
    }

    /// How many trials there were.
    pub fn trials(&self) -> u64 {
        self.trials
    }

    /// Takes note of calls that were served in this time.
    pub fn serve(&mut self, time_ns: f64) {
        if self.first_ns == 0.0 {
            self.first_ns = time_ns;
        }
        self.served_ns += time_ns;
    }

    /// What a trial may cost now.
    pub fn left(&self, budget: &Budget) -> f64 {
        let allowed = budget.share * self.served_ns + budget.first_runs * self.first_ns;
        allowed - self.spent_ns - self.reserved_ns
    }

    /// Sets aside what a trial is expected to cost; false if that is more than is left.
    pub fn reserve(&mut self, cost_ns: f64, budget: &Budget) -> bool {
        let fits = cost_ns <= self.left(budget);
        if fits {
            self.reserved_ns += cost_ns;
        }
        fits
    }

    /// Gives back what was set aside for a trial that is over.
    pub fn release(&mut self, cost_ns: f64) {
        self.reserved_ns = (self.reserved_ns - cost_ns).max(0.0);
    }

    /// Takes note of a trial that took so much longer. One that was faster costs nothing, and earns nothing.
    pub fn charge(&mut self, excess_ns: f64) {
        self.trials += 1;
        self.charge_more(excess_ns);
    }

    /// Trials that were charged already took longer by so much.
    pub fn charge_more(&mut self, excess_ns: f64) {
        self.spent_ns += excess_ns.max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_what_was_served_and_a_few_runs() {
        let budget = Budget::default();
        let mut ledger = Ledger::default();
        assert_eq!(ledger.left(&budget), 0.0);
        ledger.serve(100.0);
        assert_eq!(ledger.left(&budget), 301.0);
        ledger.charge(300.0);
        ledger.charge(-50.0);
        assert!((ledger.left(&budget) - 1.0).abs() < 1e-9);
        ledger.serve(900.0);
        assert!((ledger.left(&budget) - 10.0).abs() < 1e-9);
        assert_eq!((ledger.trials(), ledger.spent_ns()), (2, 300.0));
        // What is set aside is not there for others.
        assert!(ledger.reserve(8.0, &budget) && !ledger.reserve(8.0, &budget));
        ledger.release(8.0);
        assert!(ledger.reserve(8.0, &budget));
        assert_eq!(Ledger::default().left(&Budget::NONE), 0.0);
    }

    #[test]
    fn limits_are_numbers() {
        assert!(Budget::default().check().is_ok());
        for share in [f64::NAN, -0.1, f64::INFINITY] {
            let budget = Budget {
                share,
                ..Budget::default()
            };
            assert!(budget.check().is_err());
        }
    }
}
