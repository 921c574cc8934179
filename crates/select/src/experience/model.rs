//! One model of all arms.
//!
//! What is asked of one arm is asked of all of them, so they [share trees](Boosting::fit_joint): a descent answers for each. Most
//! problems ran on one arm only, and who is missing is pulled to what the same rows say of it one question earlier. With
//! that, choices on recorded times (MIOpen's find-db, three orders, budgets of 10 % and 2 %) are those of a model for every arm:
//! 5.2 % and 6.3 % behind the best on gfx906 where they were 5.3 % and 6.4 %, 3.0 % and 3.8 % on gfx803 as before. Without, in
//! the first of the orders, they were 7.0 % and 4.8 % behind on the small budget.

use kernelwise_model::{Boosting, Choices, FlatJoint};

/// What is expected of every arm. Of those without a target nothing is.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    trees: Option<FlatJoint>,
    /// Arms that it has seen a target of, in their order; others are answered with a number that means nothing.
    known: Vec<bool>,
}

impl Model {
    /// Fits it to rows of features and the targets of the arms that ran; arms that were added since have none.
    pub(super) fn fit<'a, T>(
        settings: &Boosting,
        rows: impl Iterator<Item = (&'a [f32], T)>,
        width: usize,
        arms: usize,
        seed: u64,
    ) -> Self
    where
        T: Iterator<Item = Option<f32>>,
    {
        let mut choices = Choices::new(width, arms);
        let mut known = vec![false; arms];
        let mut targets = Vec::with_capacity(arms);
        for (features, of_arms) in rows {
            targets.clear();
            targets.extend(of_arms);
            targets.resize(arms, None);
            if targets.iter().all(Option::is_none) {
                continue;
            }
            // A row of another width is of no use to this table; there is none but by mistake.
            if choices.push(features, &targets).is_ok() {
                for (known, target) in known.iter_mut().zip(&targets) {
                    *known |= target.is_some();
                }
            }
        }
        let trees = settings.fit_joint(&choices, seed).ok();
        Self {
            trees: trees.map(|trees| trees.flatten()),
            known,
        }
    }

    /// The answers for so many arms, some of which may have come after the fit.
    pub(super) fn ask(&self, features: &[f32], arms: usize) -> Vec<Option<f64>> {
        let mut answers = vec![0.0; self.known.len()];
        let asked = self
            .trees
            .as_ref()
            .map(|trees| trees.predict(features, &mut answers));
        let is_answered = matches!(asked, Some(Ok(())));
        let answer = |(answer, known): (f32, &bool)| {
            let says = *known && is_answered && answer.is_finite();
            says.then(|| f64::from(answer))
        };
        let mut all: Vec<Option<f64>> = answers.into_iter().zip(&self.known).map(answer).collect();
        all.resize(arms, None);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(rows: &[(f32, &[Option<f32>])], arms: usize) -> Model {
        let rows = rows.iter();
        let rows = rows.map(|(x, targets)| (std::slice::from_ref(x), targets.iter().copied()));
        Model::fit(&Boosting::default(), rows, 1, arms, 1)
    }

    #[test]
    fn an_arm_without_a_target_stays_unknown() {
        let two = [Some(1.0), None];
        // The second row is of a time when there was one arm; of the third nothing is known.
        let model = fit(&[(1.0, &two), (2.0, &two[..1]), (3.0, &[None, None])], 3);
        let answers = model.ask(&[1.0], 4);
        assert!((answers[0].unwrap() - 1.0).abs() < 1e-6);
        assert_eq!(answers[1..], [None; 3]);
    }

    #[test]
    fn nothing_seen_and_rows_of_another_width_are_not_answered() {
        assert_eq!(Model::default().ask(&[1.0], 2), [None; 2]);
        assert_eq!(fit(&[], 2).ask(&[1.0], 2), [None; 2]);
        assert_eq!(fit(&[(1.0, &[Some(1.0)])], 1).ask(&[1.0, 2.0], 1), [None]);
    }

    #[test]
    fn more_arms_than_share_trees_keep_their_places() {
        let targets: Vec<Option<f32>> = (0..19u8).map(|k| (k != 9).then(|| f32::from(k))).collect();
        let rows: Vec<(f32, &[Option<f32>])> =
            (0..9u8).map(|x| (f32::from(x), &targets[..])).collect();
        let answers = fit(&rows, 19).ask(&[4.0], 19);
        for (k, answer) in answers.into_iter().enumerate() {
            let expected = (k != 9).then_some(k as f64);
            assert_eq!(answer.map(|y| (y * 1e4).round() / 1e4), expected);
        }
    }
}
