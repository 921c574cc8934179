//! Intervals: how far off the answer of a model may be.
//!
//! Split conformal prediction (Vovk and others; Lei and others, 2018): the errors on rows that the model has not seen, in order of
//! size, say how wide an interval has to be to hold a given share of further rows. It holds for any model and any
//! distribution, as long as the rows kept back are like those to come.
//!
//! One width for all rows is right on the whole and wrong in most places: too wide where the model knows, too narrow where
//! it does not. So a second model learns from half of the rows kept back how large errors are where; the other half is
//! then calibrated in units of what it says. That is kept if it makes the intervals shorter by a tenth, in the mean;
//! otherwise one width stays, calibrated on all.

use crate::boost::{Boosting, Flat};
use crate::regress::Predict;
use crate::table::{Table, WidthMismatch};

/// The share of rows that intervals hold by default.
const USUAL_SHARE: f64 = 0.9;
/// Rows kept back with which a model of errors is worth a try.
const ENOUGH_FOR_A_MODEL: usize = 100;
/// How much shorter it has to make intervals.
const WORTH_IT: f64 = 0.9;
/// Small trees: errors are mostly noise.
const ERROR_MODEL: Boosting = Boosting {
    trees: 100,
    depth: 3,
    shrinkage: 0.1,
    row_share: 0.8,
    feature_share: 0.8,
    bins: 64,
    leaf_weight: 20.0,
    ridge: 1.0,
};
/// Errors as small as this share of the mean one are as good as none; it has a logarithm.
const AS_GOOD_AS_NONE: f64 = 0.05;
/// Of the error model's seed: intervals follow from the table alone.
const SEED: u64 = 1;

/// Where the target is expected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Interval {
    /// Whether a target lies in it; its ends belong to it.
    pub fn holds(&self, target: f64) -> bool {
        self.low <= target && target <= self.high
    }

    /// Distance of its ends.
    pub fn width(&self) -> f64 {
        self.high - self.low
    }
}

/// Why no interval can be told.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// The errors seen are too few for the share.
    #[error(
        "{rows} rows are too few for intervals that hold {share} of all: keep at least {least} back"
    )]
    TooFew {
        /// Rows kept back.
        rows: usize,
        /// Rows needed.
        least: usize,
        /// The share asked for.
        share: f64,
    },
    /// The share is not one.
    #[error("intervals hold a share between 0 and 1, not {0}")]
    Share(f64),
    /// Rows of another width than the model's.
    #[error(transparent)]
    Width(#[from] WidthMismatch),
}

/// Intervals around the answers of a model.
#[derive(Debug, Clone)]
pub struct Conformal {
    /// Half a width, in units of the error that is expected.
    reach: f64,
    /// ln of the error expected of a row; one width for all if there is none.
    errors: Option<Flat>,
}

impl Conformal {
    /// Intervals that hold nine targets in ten.
    pub fn calibrate(model: &dyn Predict, kept_back: &Table) -> Result<Self, CalibrateError> {
        Self::calibrate_to(model, kept_back, USUAL_SHARE)
    }

    /// Intervals that hold this share of targets, between 0 and 1, from rows the model has not seen.
    pub fn calibrate_to(
        model: &dyn Predict,
        kept_back: &Table,
        share: f64,
    ) -> Result<Self, CalibrateError> {
        if !(share > 0.0 && share < 1.0) {
            return Err(CalibrateError::Share(share));
        }
        let mut errors = Vec::with_capacity(kept_back.len());
        for (features, target, _) in kept_back.rows() {
            let error = f64::from(target) - f64::from(model.predict(features)?);
            errors.push(error.abs());
        }
        let uniform = Self {
            reach: reach(errors.clone(), share)?,
            errors: None,
        };
        let scaled = Self::scaled(kept_back, &errors, share);
        Ok(scaled.unwrap_or(uniform))
    }

    /// Intervals by a model of errors, if that is worth it.
    fn scaled(kept_back: &Table, errors: &[f64], share: f64) -> Option<Self> {
        if errors.len() < ENOUGH_FOR_A_MODEL {
            return None;
        }
        let least = AS_GOOD_AS_NONE * errors.iter().sum::<f64>() / errors.len() as f64;
        let mut seen = Table::new(kept_back.width());
        let mut unseen = Vec::new();
        // Every other row: tables may be in some order.
        for (row, ((features, ..), error)) in kept_back.rows().zip(errors).enumerate() {
            if row.is_multiple_of(2) {
                seen.push(features, (error + least).ln() as f32).ok()?;
            } else {
                unseen.push((features, *error));
            }
        }
        let model = ERROR_MODEL.fit(&seen, SEED).ok()?.flatten();
        let expected = unseen
            .iter()
            .map(|(features, _)| expected(&model, features));
        let expected = expected.collect::<Result<Vec<f64>, _>>().ok()?;
        let ratios = unseen.iter().zip(&expected);
        let reach_scaled = reach(
            ratios.map(|((_, error), scale)| error / scale).collect(),
            share,
        );
        let reach_uniform = reach(unseen.iter().map(|(_, error)| *error).collect(), share);
        let (reach, uniform) = (reach_scaled.ok()?, reach_uniform.ok()?);
        let mean = reach * expected.iter().sum::<f64>() / expected.len() as f64;
        (mean < WORTH_IT * uniform).then_some(Self {
            reach,
            errors: Some(model),
        })
    }

    /// Where the target of a row is expected, of which the model said `answer`.
    pub fn around(&self, features: &[f32], answer: f32) -> Result<Interval, WidthMismatch> {
        let half = match &self.errors {
            Some(model) => self.reach * expected(model, features)?,
            None => self.reach,
        };
        let answer = f64::from(answer);
        Ok(Interval {
            low: answer - half,
            high: answer + half,
        })
    }

    /// Whether widths differ from row to row.
    pub fn is_scaled(&self) -> bool {
        self.errors.is_some()
    }
}

fn expected(model: &Flat, features: &[f32]) -> Result<f64, WidthMismatch> {
    Ok(f64::from(model.predict(features)?).exp())
}

/// The error that a share of further rows will not exceed: one more row is as likely to be at any place among these.
fn reach(mut errors: Vec<f64>, share: f64) -> Result<f64, CalibrateError> {
    let rows = errors.len();
    let place = (share * (rows + 1) as f64).ceil() as usize;
    errors.sort_by(f64::total_cmp);
    errors
        .get(place.saturating_sub(1))
        .copied()
        .ok_or_else(|| CalibrateError::TooFew {
            rows,
            least: (share / (1.0 - share) - 1e-9).ceil() as usize,
            share,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    /// Says the first feature.
    #[derive(Debug)]
    struct First;

    impl Predict for First {
        fn predict(&self, features: &[f32]) -> Result<f32, WidthMismatch> {
            WidthMismatch::check(2, features)?;
            Ok(features[0])
        }

        fn width(&self) -> usize {
            2
        }
    }

    /// The first feature is the truth; noise grows with the second by this much.
    fn noisy(rows: usize, growth: f32, seed: u64) -> Table {
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut table = Table::new(2);
        for _ in 0..rows {
            let (x, z): (f32, f32) = (rng.random(), rng.random());
            let noise = (0.1 + growth * z) * (2.0 * rng.random::<f32>() - 1.0);
            table.push(&[x, z], x + noise).unwrap();
        }
        table
    }

    /// The share of rows whose second feature is in a range that intervals hold, and their mean width.
    fn coverage(intervals: &Conformal, unseen: &Table, z: std::ops::Range<f32>) -> (f64, f64) {
        let (mut held, mut width, mut count) = (0, 0.0, 0);
        for (row, target, _) in unseen.rows().filter(|(row, ..)| z.contains(&row[1])) {
            let interval = intervals.around(row, First.predict(row).unwrap()).unwrap();
            held += usize::from(interval.holds(target.into()));
            width += interval.width();
            count += 1;
        }
        (
            f64::from(held as u32) / f64::from(count),
            width / f64::from(count),
        )
    }

    #[test]
    fn nine_in_ten_lie_within_also_where_noise_differs() {
        let unseen = noisy(4000, 2.0, 2);
        let (mut quiet, mut loud) = ((0.0, 0.0), (0.0, 0.0));
        for seed in 10..20 {
            let intervals = Conformal::calibrate(&First, &noisy(2000, 2.0, seed)).unwrap();
            assert!(intervals.is_scaled());
            let (all, _) = coverage(&intervals, &unseen, 0.0..1.0);
            assert!((0.86..=0.94).contains(&all), "{all}");
            for (sums, z) in [(&mut quiet, 0.0..0.2), (&mut loud, 0.8..1.0)] {
                let (held, width) = coverage(&intervals, &unseen, z);
                *sums = (sums.0 + held / 10.0, sums.1 + width / 10.0);
            }
        }
        // One width for all holds every quiet row, and four in five loud ones.
        assert!((0.85..=0.98).contains(&quiet.0), "{quiet:?}");
        assert!((0.84..=0.96).contains(&loud.0), "{loud:?}");
        assert!(loud.1 > 3.0 * quiet.1, "{quiet:?} {loud:?}");
    }

    #[test]
    fn one_width_stays_where_noise_is_the_same_everywhere() {
        let unseen = noisy(4000, 0.0, 2);
        let intervals = Conformal::calibrate(&First, &noisy(2000, 0.0, 1)).unwrap();
        assert!(!intervals.is_scaled());
        let (all, width) = coverage(&intervals, &unseen, 0.0..1.0);
        assert!((0.87..=0.93).contains(&all), "{all}");
        assert!((width - 0.18).abs() < 0.01, "{width}");
    }

    #[test]
    fn other_shares_and_the_fewest_rows() {
        let half = Conformal::calibrate_to(&First, &noisy(999, 0.0, 1), 0.5).unwrap();
        let (all, _) = coverage(&half, &noisy(4000, 0.0, 2), 0.0..1.0);
        assert!((0.46..=0.54).contains(&all), "{all}");
        assert!(Conformal::calibrate(&First, &noisy(9, 0.0, 1)).is_ok());
        let few = Conformal::calibrate(&First, &noisy(8, 0.0, 1)).unwrap_err();
        assert!(
            matches!(
                few,
                CalibrateError::TooFew {
                    rows: 8,
                    least: 9,
                    ..
                }
            ),
            "{few}"
        );
        let none = Conformal::calibrate(&First, &Table::new(2));
        assert!(matches!(none, Err(CalibrateError::TooFew { rows: 0, .. })));
        for share in [0.0, 1.0, f64::NAN] {
            let refused = Conformal::calibrate_to(&First, &noisy(99, 0.0, 1), share);
            assert!(matches!(refused, Err(CalibrateError::Share(_))));
        }
        let other_width = Conformal::calibrate(&First, &{
            let mut table = Table::new(1);
            table.push(&[1.0], 1.0).unwrap();
            table
        });
        assert!(matches!(other_width, Err(CalibrateError::Width(_))));
    }

    #[test]
    fn a_model_without_errors_has_intervals_without_width() {
        let mut exact = Table::new(2);
        for row in noisy(300, 0.0, 3).rows() {
            exact.push(row.0, row.0[0]).unwrap();
        }
        let intervals = Conformal::calibrate(&First, &exact).unwrap();
        assert_eq!(intervals.around(&[0.5, 0.5], 0.5).unwrap().width(), 0.0);
    }
}
