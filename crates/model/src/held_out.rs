//! How wrong a model is about rows it did not see.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::regress::{FitError, Predict, Regressor};
use crate::table::{Table, WidthMismatch};

/// The error of a model on rows it was not fitted to, in the unit of the target. Where targets are logarithms
/// of times, `exp` of a figure is an error factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeldOut {
    /// How many rows were asked about; the figures of none are 0.
    pub rows: usize,
    /// The mean of prediction minus target, by weight: which way the model leans.
    pub bias: f64,
    /// The root of the mean squared error, by weight: what the fit minimises.
    pub rms: f64,
    /// Half of the rows are predicted no worse than this.
    pub median: f64,
    /// Nine rows in ten are predicted no worse than this.
    pub p90: f64,
}

impl HeldOut {
    /// Asks the model about every row of a table it has not seen.
    pub fn of(model: &dyn Predict, unseen: &Table) -> Result<Self, WidthMismatch> {
        let (mut sizes, mut sum, mut squares, mut total) = (Vec::new(), 0.0, 0.0, 0.0);
        for (features, target, weight) in unseen.rows() {
            let error = f64::from(model.predict(features)?) - f64::from(target);
            let weight = f64::from(weight);
            sizes.push(error.abs());
            sum += weight * error;
            squares += weight * error * error;
            total += weight;
        }
        sizes.sort_by(f64::total_cmp);
        let rows = sizes.len();
        let at_most = |share: f64| {
            let last = (share * rows as f64).ceil() as usize;
            sizes.get(last.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        let mean = |sum: f64| if rows == 0 { 0.0 } else { sum / total };
        Ok(Self {
            rows,
            bias: mean(sum),
            rms: mean(squares).sqrt(),
            median: at_most(0.5),
            p90: at_most(0.9),
        })
    }

    /// Keeps about this share of the rows back, drawn by the seed, fits the rest and asks about what was kept.
    /// A share outside 0 to 1 is brought into it; one that leaves nothing to fit is [`FitError::Empty`].
    pub fn split(
        settings: &dyn Regressor,
        table: &Table,
        share: f64,
        seed: u64,
    ) -> Result<Self, FitError> {
        let mut rng = Pcg64::seed_from_u64(seed);
        let (mut seen, mut unseen) = (Table::new(table.width()), Table::new(table.width()));
        for (features, target, weight) in table.rows() {
            let part = if rng.random::<f64>() < share {
                &mut unseen
            } else {
                &mut seen
            };
            part.push_weighted(features, target, weight)?;
        }
        Ok(Self::of(settings.train(&seen, seed)?.as_ref(), &unseen)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boost::Boosting;

    #[test]
    fn figures_of_a_model_that_always_says_two() {
        let mut twos = Table::new(1);
        twos.push(&[0.0], 2.0).unwrap();
        let model = Boosting::default().fit(&twos, 0).unwrap();
        let mut unseen = Table::new(1);
        for target in [2.0, 1.0, 5.0] {
            unseen.push(&[0.0], target).unwrap();
        }
        unseen.push_weighted(&[0.0], 2.0, 2.0).unwrap();
        let error = HeldOut::of(&model, &unseen).unwrap();
        let expected = HeldOut {
            rows: 4,
            bias: (1.0 - 3.0) / 5.0,
            rms: f64::sqrt((1.0 + 9.0) / 5.0),
            median: 0.0,
            p90: 3.0,
        };
        assert_eq!(error, expected);
    }

    #[test]
    fn rows_kept_back_show_that_noise_was_not_learned() {
        let mut rng = Pcg64::seed_from_u64(5);
        let mut noise = Table::new(1);
        for row in 0..2000 {
            noise.push(&[row as f32], rng.random::<f32>()).unwrap();
        }
        let error = HeldOut::split(&Boosting::default(), &noise, 0.25, 1).unwrap();
        assert!((400..600).contains(&error.rows), "{error:?}");
        // The deviation of uniform numbers is 0.289: nobody can do better, and overfitting does worse.
        assert!((0.27..0.36).contains(&error.rms), "{error:?}");
        let all = HeldOut::split(&Boosting::default(), &noise, 1.0, 1);
        assert_eq!(all, Err(FitError::Empty));
        let none = HeldOut::split(&Boosting::default(), &noise, 0.0, 1).unwrap();
        assert_eq!((none.rows, none.rms), (0, 0.0));
    }
}
