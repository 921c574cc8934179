//! Restrictions: which combinations of values are allowed.
//!
//! A small language without side effects, which reads what Kernel Tuner's users write in Python: names of parameters, numbers,
//! words in quotes, `True` and `False`; `or`, `and`, `not`, comparisons, which may be chained, `in (…)`; `+ - * / // % **`;
//! `min`, `max` and `abs`. It computes as Python does: `/` gives a fraction, `//` and `%` round down, yes counts as 1.
//! Whole numbers that no longer fit into 64 bits go on as fractions.
//!
//! Length and nesting are limited, so that no text can exhaust the stack.

mod evaluate;
mod parse;
mod scan;

#[cfg(test)]
mod tests;

pub use evaluate::ComputeError;
pub(crate) use evaluate::Scalar;

use evaluate::Node;

/// Where and why a text is no expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at character {} of `{text}`", at + 1)]
pub struct ExpressionError {
    /// The whole text.
    pub text: String,
    /// Where the trouble is: characters before it.
    pub at: usize,
    /// What it is, with the remedy if there is one.
    pub problem: String,
}

/// A restriction that was understood.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    text: String,
    root: Node,
    slots: Vec<usize>,
}

impl Expression {
    /// Reads a text in which these names may occur.
    pub fn parse(text: &str, names: &[&str]) -> Result<Self, ExpressionError> {
        let root = parse::parse(text, names)?;
        let mut slots = Vec::new();
        root.names(&mut slots);
        slots.sort_unstable();
        slots.dedup();
        Ok(Self {
            text: text.to_owned(),
            root,
            slots,
        })
    }

    /// The text it was read from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Places of the names that occur in it, in ascending order.
    pub fn slots(&self) -> &[usize] {
        &self.slots
    }

    /// Whether it holds; `value` tells what the name in a place stands for.
    pub fn holds<'a>(
        &'a self,
        value: impl Fn(usize) -> &'a super::Value,
    ) -> Result<bool, ComputeError> {
        let scalar = |slot: usize| Scalar::from(value(slot));
        Ok(self.root.evaluate(&scalar)?.is_true())
    }
}
