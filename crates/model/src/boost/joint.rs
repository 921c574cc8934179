//! One model for all candidates of a choice.
//!
//! Candidates of a choice are asked about the same row, and what makes one of them slow mostly makes the others so: where
//! a question is worth asking for one, it is for the next. So the trees are grown for all of them at once. A question is worth
//! what it removes of the squared error of all, and a leaf has an answer for each. Who has no target in a row has no say in
//! it, and who has few in a leaf is pulled to its answer one question earlier: the question was not asked for its sake.
//!
//! A descent then serves every candidate, and the choices are no worse for it. On recorded times of convolutions (MIOpen's
//! find-db, four candidates each) 32 trees of depth 10 for all together choose as well as as many for each of them, 4.4 % and
//! 2.2 % behind the best on gfx906 and gfx803, and a candidate takes a quarter of the time.

use serde::{Deserialize, Serialize};

use super::flat::Paths;
use super::tree::{InvalidEnsemble, MOST_TREES, Tree};
use super::{Boosting, Follow};
use crate::regress::FitError;
use crate::table::{Choices, WidthMismatch};

/// Candidates that share trees; more of them are divided. A leaf of so many answers is half a line of the cache.
const MOST_TOGETHER: usize = 8;

/// A fitted model of a choice: what each of its candidates is expected to take.
///
/// It can be written with `serde` and read back; what does not hold together is refused there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Joint {
    width: usize,
    parts: Vec<Part>,
}

/// Candidates that share trees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Part {
    /// Of every candidate.
    base: Vec<f32>,
    trees: Vec<Tree<Vec<f32>>>,
}

/// A model as a file says it is.
#[derive(Deserialize)]
struct Unchecked {
    width: usize,
    parts: Vec<Part>,
}

impl TryFrom<Unchecked> for Joint {
    type Error = InvalidEnsemble;

    fn try_from(file: Unchecked) -> Result<Self, InvalidEnsemble> {
        let Unchecked { width, parts } = file;
        for (number, part) in parts.iter().enumerate() {
            part.check(width).map_err(InvalidEnsemble)?;
            let (candidates, is_last) = (part.base.len(), number + 1 == parts.len());
            if !is_last && candidates != MOST_TOGETHER {
                let fault = format!("{candidates} candidates share trees, and more follow");
                return Err(InvalidEnsemble(fault));
            }
        }
        Ok(Self { width, parts })
    }
}

impl Boosting {
    /// Grows trees for all candidates of a choice. Same rows, settings and seed: same trees.
    ///
    /// A candidate without any target is answered with 0.
    pub fn fit_joint(&self, choices: &Choices, seed: u64) -> Result<Joint, FitError> {
        let rows = choices.features();
        let crew = self.crew(rows)?;
        let firsts = (0..choices.candidates()).step_by(MOST_TOGETHER);
        let parts = firsts.map(|first| {
            let together = (choices.candidates() - first).min(MOST_TOGETHER);
            let grow = match together {
                1 => grow::<1>,
                2 => grow::<2>,
                3 => grow::<3>,
                4 => grow::<4>,
                5 => grow::<5>,
                6 => grow::<6>,
                7 => grow::<7>,
                _ => grow::<MOST_TOGETHER>,
            };
            grow(self, &crew, choices, first, seed)
        });
        Ok(Joint {
            width: rows.width(),
            parts: parts.collect(),
        })
    }
}

/// Trees for `K` candidates from `first` on.
fn grow<const K: usize>(
    settings: &Boosting,
    crew: &super::Crew,
    choices: &Choices,
    first: usize,
    seed: u64,
) -> Part {
    let lessons = choices.some::<K>(first);
    if lessons.targets.is_empty() {
        return Part {
            base: vec![0.0; K],
            trees: Vec::new(),
        };
    }
    let (base, trees) = settings.grow_with(
        crew,
        lessons.features(),
        &lessons.targets,
        &lessons.weights,
        seed,
        Follow::Remainder,
    );
    let trees = trees.into_iter().map(|tree| tree.map(|v| v.to_vec()));
    Part {
        base: base.to_vec(),
        trees: trees.collect(),
    }
}

impl Joint {
    /// The answers for a row, one per candidate. A feature that is NaN counts as the lowest value.
    pub fn predict(&self, features: &[f32]) -> Result<Vec<f32>, WidthMismatch> {
        WidthMismatch::check(self.width, features)?;
        let answers = self.parts.iter().flat_map(|part| part.at(features));
        Ok(answers.collect())
    }

    /// The same model, laid out for the call path.
    pub fn flatten(&self) -> FlatJoint {
        FlatJoint {
            width: self.width,
            candidates: self.parts.iter().map(|part| part.base.len()).sum(),
            parts: self.parts.iter().map(FlatPart::new).collect(),
        }
    }
}

impl Part {
    fn at(&self, features: &[f32]) -> Vec<f32> {
        let mut sums = self.base.clone();
        for tree in &self.trees {
            for (sum, answer) in sums.iter_mut().zip(tree.at(features)) {
                *sum += answer;
            }
        }
        sums
    }

    fn check(&self, width: usize) -> Result<(), String> {
        let candidates = self.base.len();
        if !(1..=MOST_TOGETHER).contains(&candidates) {
            return Err(format!("{candidates} candidates share trees"));
        }
        if self.trees.len() > MOST_TREES {
            return Err(format!("it has {} trees", self.trees.len()));
        }
        let size = |values: &Vec<f32>| values.iter().fold(0.0, |most: f32, v| most.max(v.abs()));
        let sound =
            |values: &Vec<f32>| values.len() == candidates && values.iter().all(|v| v.is_finite());
        if !sound(&self.base) {
            return Err("its base is no number".to_owned());
        }
        let mut largest = f64::from(size(&self.base));
        for (index, tree) in self.trees.iter().enumerate() {
            tree.check(width, sound)
                .map_err(|fault| format!("tree {index} {fault}"))?;
            largest += tree.largest(size);
        }
        if largest >= f32::MAX.into() {
            return Err("its trees add up to no number".to_owned());
        }
        Ok(())
    }
}

/// A model of a choice for the call path: the same answers as its [`Joint`], one descent for all candidates.
#[derive(Debug, Clone, PartialEq)]
pub struct FlatJoint {
    width: usize,
    candidates: usize,
    parts: Vec<FlatPart>,
}

/// How many candidates share the trees is known to the compiler: their sums then stay in registers.
#[derive(Debug, Clone, PartialEq)]
enum FlatPart {
    Of1(Paths<1>),
    Of2(Paths<2>),
    Of3(Paths<3>),
    Of4(Paths<4>),
    Of5(Paths<5>),
    Of6(Paths<6>),
    Of7(Paths<7>),
    Of8(Paths<MOST_TOGETHER>),
}

impl FlatPart {
    fn new(part: &Part) -> Self {
        match part.base.len() {
            1 => Self::Of1(part.paths()),
            2 => Self::Of2(part.paths()),
            3 => Self::Of3(part.paths()),
            4 => Self::Of4(part.paths()),
            5 => Self::Of5(part.paths()),
            6 => Self::Of6(part.paths()),
            7 => Self::Of7(part.paths()),
            _ => Self::Of8(part.paths()),
        }
    }

    #[inline]
    fn answers_to(&self, features: &[f32], into: &mut [f32]) {
        match self {
            Self::Of1(paths) => into.copy_from_slice(&paths.answers(features)),
            Self::Of2(paths) => into.copy_from_slice(&paths.answers(features)),
            Self::Of3(paths) => into.copy_from_slice(&paths.answers(features)),
            Self::Of4(paths) => into.copy_from_slice(&paths.answers(features)),
            Self::Of5(paths) => into.copy_from_slice(&paths.answers(features)),
            Self::Of6(paths) => into.copy_from_slice(&paths.answers(features)),
            Self::Of7(paths) => into.copy_from_slice(&paths.answers(features)),
            Self::Of8(paths) => into.copy_from_slice(&paths.answers(features)),
        }
    }
}

impl Part {
    fn paths<const K: usize>(&self) -> Paths<K> {
        let answer =
            |values: &Vec<f32>| std::array::from_fn(|k| values.get(k).copied().unwrap_or(0.0));
        Paths::new(answer(&self.base), &self.trees, answer)
    }
}

impl FlatJoint {
    /// The answers for a row, one per candidate, in their order; `answers` has room for exactly as many. A feature that is
    /// NaN counts as the lowest value.
    #[inline]
    pub fn predict(&self, features: &[f32], answers: &mut [f32]) -> Result<(), WidthMismatch> {
        WidthMismatch::check(self.width, features)?;
        WidthMismatch::check(self.candidates, answers)?;
        for (part, answers) in self.parts.iter().zip(answers.chunks_mut(MOST_TOGETHER)) {
            part.answers_to(features, answers);
        }
        Ok(())
    }

    /// How many features a row has.
    pub fn width(&self) -> usize {
        self.width
    }

    /// How many candidates it answers for.
    pub fn candidates(&self) -> usize {
        self.candidates
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::RowError;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    /// Two numbers per row; every candidate has its own law, and one in three times is missing.
    fn choices(rows: usize, candidates: usize, seed: u64) -> Choices {
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut choices = Choices::new(2, candidates);
        for _ in 0..rows {
            let row: [f32; 2] = rng.random();
            let law = |k: usize| row[0] * k as f32 - row[1];
            let targets: Vec<Option<f32>> = (0..candidates)
                .map(|k| (!rng.random_ratio(1, 3)).then(|| law(k)))
                .collect();
            choices.push(&row, &targets).unwrap();
        }
        choices
    }

    #[test]
    fn every_candidate_is_answered_by_its_own_law() {
        // More than share trees.
        let model = Boosting::default()
            .fit_joint(&choices(3000, 11, 1), 1)
            .unwrap();
        let answers = model.predict(&[0.6, 0.25]).unwrap();
        assert_eq!(answers.len(), 11);
        for (k, answer) in answers.into_iter().enumerate() {
            let expected = 0.6 * k as f32 - 0.25;
            assert!((answer - expected).abs() < 0.3, "{k}: {answer}, {expected}");
        }
    }

    #[test]
    fn one_candidate_has_the_trees_it_would_have_alone() {
        let mut alone = crate::Table::new(2);
        let mut together = Choices::new(2, 1);
        for i in 0..500_u16 {
            let row = [f32::from(i % 23), f32::from(i % 7)];
            let target = row[0] * row[1];
            alone.push(&row, target).unwrap();
            together.push(&row, &[Some(target)]).unwrap();
        }
        let alone = Boosting::default().fit(&alone, 3).unwrap();
        let together = Boosting::default().fit_joint(&together, 3).unwrap();
        for row in [[0.0, 0.0], [22.0, 3.0], [7.5, 6.0]] {
            assert_eq!(
                together.predict(&row).unwrap(),
                [alone.predict(&row).unwrap()]
            );
        }
    }

    /// Questions that are worth asking for one candidate leave the other without rows in most leaves: what it does around there stands
    /// in, not its mean over everything.
    #[test]
    fn who_has_few_rows_is_answered_by_what_is_known_of_more() {
        let mut choices = Choices::new(1, 2);
        for i in 0..200_u16 {
            let x = f32::from(i);
            let half = if i < 100 { 10.0 } else { 0.0 };
            let seldom = (i % 10 == 0).then_some(half);
            choices
                .push(&[x], &[Some(f32::from(i * 37 % 101)), seldom])
                .unwrap();
        }
        let settings = Boosting {
            leaf_weight: 1.0,
            ..Boosting::default()
        };
        let model = settings.fit_joint(&choices, 1).unwrap();
        for (x, expected) in [(23.0, 10.0), (67.0, 10.0), (141.0, 0.0), (176.0, 0.0)] {
            let answer = model.predict(&[x]).unwrap()[1];
            assert!((answer - expected).abs() < 1.5, "{x}: {answer}");
        }
    }

    #[test]
    fn who_has_no_target_has_no_say_and_no_rows_are_an_error() {
        let with = |others: Option<f32>| {
            let mut choices = Choices::new(1, 2);
            for i in 0..100_u8 {
                let x = f32::from(i);
                let other = others.filter(|_| i % 10 == 0);
                choices.push(&[x], &[Some(x), other]).unwrap();
            }
            let settings = Boosting {
                row_share: 1.0,
                ridge: 0.0,
                ..Boosting::default()
            };
            settings
                .fit_joint(&choices, 0)
                .unwrap()
                .predict(&[40.0])
                .unwrap()
        };
        // Nothing is known of the second; then, one number.
        assert_eq!(with(None)[1], 0.0);
        assert_eq!(with(Some(5.0))[1], 5.0);
        assert!((with(None)[0] - 40.0).abs() < 2.0);
        let none = Boosting::default().fit_joint(&Choices::new(1, 2), 0);
        assert_eq!(none, Err(FitError::Empty));
    }

    #[test]
    fn same_seed_same_model_on_any_number_of_threads() {
        let seen = choices(2000, 5, 2);
        let fit = |seed| Boosting::default().fit_joint(&seen, seed).unwrap();
        assert_eq!(fit(1), fit(1));
        assert_ne!(fit(1), fit(2));
        let grow = |threads| {
            let crew = super::super::Crew::of(threads, 500);
            grow::<5>(&Boosting::default(), &crew, &seen, 0, 1)
        };
        assert_eq!(grow(1), grow(4));
    }

    #[test]
    fn rows_that_do_not_fit_are_refused() {
        let mut choices = Choices::new(1, 2);
        let short = RowError::Candidates {
            expected: 2,
            given: 1,
        };
        assert_eq!(choices.push(&[1.0], &[Some(1.0)]), Err(short));
        assert!(choices.push(&[f32::NAN], &[None, None]).is_err());
        let infinite = choices.push(&[1.0], &[None, Some(f32::INFINITY)]);
        assert_eq!(infinite, Err(RowError::Target(f32::INFINITY)));
        assert!(choices.is_empty());

        choices.push(&[1.0], &[Some(1.0), None]).unwrap();
        let flat = Boosting::default()
            .fit_joint(&choices, 0)
            .unwrap()
            .flatten();
        assert_eq!((flat.width(), flat.candidates()), (1, 2));
        assert!(flat.predict(&[1.0, 2.0], &mut [0.0; 2]).is_err());
        assert!(flat.predict(&[1.0], &mut [0.0; 3]).is_err());
        let mut answers = [9.0; 2];
        assert_eq!(flat.predict(&[f32::NAN], &mut answers), Ok(()));
        assert_eq!(answers, [1.0, 0.0]);
    }

    #[test]
    fn a_model_survives_its_file_and_a_broken_file_is_refused() {
        let model = Boosting::default()
            .fit_joint(&choices(200, 9, 4), 1)
            .unwrap();
        let text = serde_json::to_string(&model).unwrap();
        assert_eq!(serde_json::from_str::<Joint>(&text).unwrap(), model);
        let refused = |parts: &str| {
            let text = format!(r#"{{"width":1,"parts":[{parts}]}}"#);
            serde_json::from_str::<Joint>(&text)
                .unwrap_err()
                .to_string()
        };
        let leaf = r#"{"leaf":{"value":[1.0,2.0]}}"#;
        let part = |base: &str| format!(r#"{{"base":[{base}],"trees":[[{leaf}]]}}"#);
        assert!(refused(&part("")).contains("0 candidates share trees"));
        assert!(refused(&part("1.0")).contains("has no answer at node 0"));
        assert!(refused(&part("3.4028235e38,0")).contains("add up to no number"));
        let two = format!("{0},{0}", part("0,0"));
        assert!(refused(&two).contains("and more follow"));
        let asks = r#"{"split":{"feature":1,"threshold":1.0,"low":1,"high":2}}"#;
        let tree = format!(r#"{{"base":[0,0],"trees":[[{asks},{leaf},{leaf}]]}}"#);
        assert!(refused(&tree).contains("asks for feature 1 of 1"));
    }

    proptest! {
        /// Any rows, any settings: the flat form gives the answers of the trees, bit for bit, also for what is no number.
        #[test]
        fn both_forms_agree_to_the_last_bit(
            candidates in 1_usize..12,
            rows in 1_usize..80,
            trees in 1_usize..20,
            depth in 1_usize..11,
            seed: u64,
            asked in prop::collection::vec(prop::array::uniform2(prop::num::f32::ANY), 1..20),
        ) {
            let settings = Boosting { trees, depth, leaf_weight: 1.0, ..Boosting::default() };
            let model = settings.fit_joint(&choices(rows, candidates, seed), seed).unwrap();
            let flat = model.flatten();
            let mut fast = vec![0.0; candidates];
            for row in asked {
                flat.predict(&row, &mut fast).unwrap();
                let bits = |answers: &[f32]| -> Vec<u32> {
                    answers.iter().map(|answer| answer.to_bits()).collect()
                };
                prop_assert_eq!(bits(&model.predict(&row).unwrap()), bits(&fast));
            }
        }
    }
}
