//! What one problem has in common with others.
//!
//! Workloads that were never measured are expected to behave like those that were. For that a workload is seen as numbers: its
//! sizes, the work that follows from them, and how often two goes into them. Problems of one [kind](kind()) have
//! the same words and other numbers, so their numbers can be held against each other.

use std::hash::{Hash, Hasher};

use kernelwise_types::Workload;

use crate::key::Key;

/// Sizes count as alike within this factor, in ln: three doublings.
const DECADE: f64 = 2.08;

/// A workload as numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    features: Vec<f32>,
    ln_work: f64,
    cell: u64,
    lines: Vec<Line>,
}

/// A row of problems that are equal but for one dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// The same for all problems on it.
    pub name: u64,
    /// Where on it the problem lies: distances of 0.7 are a factor of two.
    pub place: f32,
}

impl Problem {
    /// Of features that a model can ask about, and how much work it is. Features that are no numbers count as zero.
    pub fn new(features: Vec<f32>, work: f64) -> Self {
        let finite = |value: f32| if value.is_finite() { value } else { 0.0 };
        let ln_work = if work > 1.0 { work.ln() } else { 0.0 };
        Self {
            features: features.into_iter().map(finite).collect(),
            ln_work: if ln_work.is_finite() { ln_work } else { 0.0 },
            cell: 0,
            lines: Vec::new(),
        }
    }

    /// Says which problems are much like it: those of the same category, with about as much work and memory.
    #[must_use]
    pub fn alike(mut self, category: &impl Hash, moved: f64) -> Self {
        let step = |ln: f64| (ln / DECADE) as i64;
        let sizes = (step(self.ln_work), step(moved.max(1.0).ln()));
        self.cell = name(&(Key::of(category), sizes));
        self
    }

    /// Says that it lies on a line with those that have the same `rest`.
    #[must_use]
    pub fn on_line(mut self, rest: &impl Hash, place: f64) -> Self {
        self.lines.push(Line {
            name: name(rest),
            place: place as f32,
        });
        self
    }

    /// A workload's numbers.
    pub fn of(workload: &Workload) -> Self {
        let (numbers, words) = (numbers(&workload.to_string()), kind(workload));
        let cost = workload.cost();
        let elements = workload.elements() as f64;
        let work = cost.map_or(elements, |cost| (cost.flops.0 as f64).max(elements));
        let moved = cost.map_or(elements, |cost| cost.bytes().0 as f64);
        let mut features: Vec<f32> = numbers.iter().map(|n| *n as f32).collect();
        features.extend(numbers.iter().map(|n| n.trailing_zeros().min(10) as f32));
        features.extend([
            work.max(1.0).ln() as f32,
            moved.max(1.0).ln() as f32,
            (work.max(1.0).ln() - moved.max(1.0).ln()) as f32,
        ]);
        let mut problem = Self::new(features, work).alike(&words, moved);
        for (left_out, number) in numbers.iter().enumerate() {
            let mut rest = numbers.clone();
            rest[left_out] = 0;
            problem = problem.on_line(&(left_out, rest), (*number as f64).max(0.5).ln());
        }
        problem
    }

    /// What a model may ask about.
    pub fn features(&self) -> &[f32] {
        &self.features
    }

    /// ln of the work.
    pub fn ln_work(&self) -> f64 {
        self.ln_work
    }

    pub(crate) fn cell(&self) -> u64 {
        self.cell
    }

    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }
}

/// The words of a workload without its numbers: `matmul f32 #x#x#`.
pub fn kind(workload: &Workload) -> String {
    let text = workload.to_string();
    let mut words = text.split_whitespace();
    let mut kind = String::new();
    // The element type has a number in its name.
    for word in words.by_ref().take(2) {
        kind.push_str(word);
        kind.push(' ');
    }
    for word in words {
        let mut in_number = false;
        for letter in word.chars() {
            if !letter.is_ascii_digit() {
                kind.push(letter);
            } else if !in_number {
                kind.push('#');
            }
            in_number = letter.is_ascii_digit();
        }
        kind.push(' ');
    }
    kind.truncate(kind.trim_end().len());
    kind
}

/// The sizes in a workload's text, in order.
pub(crate) fn sizes(workload: &Workload) -> Vec<u64> {
    numbers(&workload.to_string())
}

/// The numbers of a workload's text, in order; those in the first two words are part of names.
fn numbers(text: &str) -> Vec<u64> {
    let sizes = text.split_whitespace().skip(2);
    let parts = sizes.flat_map(|word| word.split(|letter: char| !letter.is_ascii_digit()));
    parts.filter_map(|digits| digits.parse().ok()).collect()
}

fn name(of: &impl Hash) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    Key::of(of).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(text: &str) -> Workload {
        text.parse().unwrap()
    }

    #[test]
    fn a_kind_is_the_words_and_a_problem_the_numbers() {
        let small = workload("matmul f32 16x32x64");
        let large = workload("matmul f32 512x512x512");
        assert_eq!(kind(&small), "matmul f32 #x#x#");
        assert_eq!(kind(&small), kind(&large));
        for other in [
            "matmul f64 16x32x64",
            "matmul f32 16x32x64 ta",
            "copy f32 16x32x64",
        ] {
            assert_ne!(kind(&workload(other)), kind(&small), "{other}");
        }
        let problem = Problem::of(&small);
        assert_eq!(problem.features()[..6], [16.0, 32.0, 64.0, 4.0, 5.0, 6.0]);
        assert!((problem.ln_work() - (2.0 * 16.0 * 32.0 * 64.0f64).ln()).abs() < 1e-9);
        assert_eq!(
            problem.features().len(),
            Problem::of(&large).features().len()
        );
    }

    #[test]
    fn problems_on_a_line_differ_in_one_number() {
        let at = |text: &str| Problem::of(&workload(text));
        let shared = |a: &Problem, b: &Problem| {
            let names = |line: &Line| b.lines().iter().any(|other| other.name == line.name);
            a.lines().iter().filter(|line| names(line)).count()
        };
        let here = at("matmul f32 64x64x64");
        assert_eq!(shared(&here, &at("matmul f32 64x64x128")), 1);
        assert_eq!(shared(&here, &at("matmul f32 64x128x64")), 1);
        assert_eq!(shared(&here, &at("matmul f32 32x64x128")), 0);
        assert_eq!(shared(&here, &here), 3);
        // Near sizes are of one cell, far ones are not.
        assert_eq!(here.cell(), at("matmul f32 64x64x66").cell());
        assert_ne!(here.cell(), at("matmul f32 64x64x4096").cell());
    }

    #[test]
    fn what_is_no_number_does_no_harm() {
        let odd = Problem::new(vec![f32::NAN, f32::INFINITY, 3.0], f64::NAN);
        assert_eq!((odd.features(), odd.ln_work()), (&[0.0, 0.0, 3.0][..], 0.0));
        assert_eq!(Problem::new(vec![], f64::INFINITY).ln_work(), 0.0);
    }
}
