//! The text form of workloads: words, numbers and hints for mistyped ones.
//!
//! A workload reads `operation[.variant] dtype field field …`. A field is a shape (`64x32`), a key with
//! its number (`stride2`, or `stride2x1` where the dimensions differ), a key with a list (`perm1,0`) or
//! a bare flag (`ta`). Operations take the fields they know; what is left over is an error.

use std::num::ParseIntError;
use std::str::FromStr;

use crate::op::WorkloadError;
use crate::shape::Shape;

/// Reads a whole number written in digits only: no sign, no blanks.
pub(crate) fn number<N: FromStr<Err = ParseIntError>>(word: &str) -> Result<N, ParseIntError> {
    let digits = if word.bytes().all(|b| b.is_ascii_digit()) {
        word
    } else {
        ""
    };
    digits.parse()
}

/// `; did you mean …?` when one of the known words is close to the given one, else the whole list.
pub(crate) fn hint<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let nearest = known
        .iter()
        .min_by_key(|candidate| strsim::damerau_levenshtein(word, candidate));
    match nearest {
        // Up to a third of the word may be wrong; more than that is another word.
        Some(nearest)
            if strsim::damerau_levenshtein(word, nearest) * 3 <= word.chars().count().max(3) =>
        {
            format!("; did you mean `{nearest}`?")
        }
        _ => format!("; known: {}", known.join(", ")),
    }
}

/// The fields of one workload text, taken one by one by the operation that reads them.
pub(crate) struct Fields<'a> {
    op: &'static str,
    words: Vec<&'a str>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(op: &'static str, words: impl Iterator<Item = &'a str>) -> Self {
        Self {
            op,
            words: words.collect(),
        }
    }

    /// Takes the first word that begins with a digit, or `scalar`.
    fn take_sizes(&mut self) -> Result<&'a str, WorkloadError> {
        let position = self
            .words
            .iter()
            .position(|word| *word == "scalar" || word.starts_with(|c: char| c.is_ascii_digit()));
        let word = position.map(|position| self.words.remove(position));
        word.ok_or(WorkloadError::Missing {
            op: self.op,
            field: "a shape such as 128x256",
        })
    }

    /// Takes the shape.
    pub(crate) fn shape(&mut self) -> Result<Shape, WorkloadError> {
        Ok(self.take_sizes()?.parse::<Shape>()?)
    }

    /// Takes sizes joined by `x` that are not the shape of one tensor, so that their product may be
    /// larger than any.
    pub(crate) fn sizes(&mut self) -> Result<Vec<usize>, WorkloadError> {
        let word = self.take_sizes()?;
        let sizes: Result<_, _> = word.split('x').map(number).collect();
        sizes.map_err(|_| self.bad("", word, "sizes joined by x"))
    }

    /// Takes `key` followed by a digit and returns what follows the key.
    pub(crate) fn take(&mut self, key: &str) -> Option<&'a str> {
        let position = self.words.iter().position(|word| {
            word.strip_prefix(key)
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })?;
        self.words.remove(position).strip_prefix(key)
    }

    /// Takes `key3` if it is there.
    pub(crate) fn number<N: FromStr<Err = ParseIntError>>(
        &mut self,
        key: &'static str,
    ) -> Result<Option<N>, WorkloadError> {
        self.take(key)
            .map(|value| number(value).map_err(|_| self.bad(key, value, "a whole number")))
            .transpose()
    }

    /// Takes `key3`, which must be there.
    pub(crate) fn required(&mut self, key: &'static str) -> Result<usize, WorkloadError> {
        self.number(key)?.ok_or(WorkloadError::Missing {
            op: self.op,
            field: key,
        })
    }

    /// Takes `key2` (the same in all `N` dimensions) or `key2x1`.
    pub(crate) fn each<const N: usize>(
        &mut self,
        key: &'static str,
    ) -> Result<Option<[usize; N]>, WorkloadError> {
        let Some(value) = self.take(key) else {
            return Ok(None);
        };
        let wrong = || self.bad(key, value, "one number, or one per dimension joined by x");
        let numbers: Vec<usize> = value
            .split('x')
            .map(number)
            .collect::<Result<_, _>>()
            .map_err(|_| wrong())?;
        match numbers.as_slice() {
            [one] => Ok(Some([*one; N])),
            many => many.try_into().map(Some).map_err(|_| wrong()),
        }
    }

    /// Takes `key1,0` if it is there.
    pub(crate) fn list(&mut self, key: &'static str) -> Result<Option<Vec<usize>>, WorkloadError> {
        let Some(value) = self.take(key) else {
            return Ok(None);
        };
        let numbers: Result<_, _> = value.split(',').map(number).collect();
        numbers
            .map(Some)
            .map_err(|_| self.bad(key, value, "numbers joined by commas"))
    }

    /// Takes `key=word` if it is there.
    pub(crate) fn value(&mut self, key: &str) -> Option<&'a str> {
        let found = |word: &&str| {
            word.strip_prefix(key)
                .is_some_and(|rest| rest.starts_with('='))
        };
        let position = self.words.iter().position(found)?;
        self.words.remove(position).get(key.len() + 1..)
    }

    /// Takes a bare word if it is there.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let position = self.words.iter().position(|word| *word == name);
        position
            .map(|position| self.words.remove(position))
            .is_some()
    }

    /// Checks that nothing is left over.
    pub(crate) fn finish(self) -> Result<(), WorkloadError> {
        match self.words.first() {
            None => Ok(()),
            Some(word) => Err(WorkloadError::UnexpectedField {
                op: self.op,
                word: (*word).to_owned(),
            }),
        }
    }

    fn bad(&self, key: &'static str, value: &str, expected: &'static str) -> WorkloadError {
        WorkloadError::BadField {
            op: self.op,
            word: format!("{key}{value}"),
            expected,
        }
    }
}

/// Writes a per-dimension setting: `stride2` when all agree, `stride2x1` otherwise.
pub(crate) fn write_each(
    f: &mut std::fmt::Formatter<'_>,
    key: &str,
    values: &[usize],
) -> std::fmt::Result {
    let uniform = values.windows(2).all(|pair| pair[0] == pair[1]);
    let shown = if uniform { 1 } else { values.len() };
    write_list(f, key, values.iter().take(shown), "x")
}

/// Writes a key and its numbers: `perm1,0`.
pub(crate) fn write_list<N: std::fmt::Display>(
    f: &mut std::fmt::Formatter<'_>,
    key: &str,
    numbers: impl IntoIterator<Item = N>,
    separator: &str,
) -> std::fmt::Result {
    let words: Vec<_> = numbers
        .into_iter()
        .map(|number| number.to_string())
        .collect();
    write!(f, " {key}{}", words.join(separator))
}
