//! A tree and the values of names to an answer, as Python computes it.

use std::cmp::Ordering;

use crate::space::Value;

/// Why an expression has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ComputeError {
    /// A divisor is zero, or a negative power of zero is taken.
    #[error("a division by zero")]
    DivisionByZero,
    /// Arithmetic or an order of things that have none.
    #[error("`{0}` between a word and a number, or of words")]
    Words(&'static str),
}

/// A value on its way; words are borrowed, since nothing makes new ones.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scalar<'a> {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a str),
}

impl Scalar<'_> {
    pub(crate) fn is_true(self) -> bool {
        match self {
            Self::Bool(yes) => yes,
            Self::Int(number) => number != 0,
            Self::Float(number) => number != 0.0,
            Self::Text(text) => !text.is_empty(),
        }
    }

    fn whole(self) -> Option<i64> {
        match self {
            Self::Bool(yes) => Some(i64::from(yes)),
            Self::Int(number) => Some(number),
            Self::Float(_) | Self::Text(_) => None,
        }
    }

    fn number(self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(number),
            other => other.whole().map(|number| number as f64),
        }
    }

    fn compare(self, other: Self) -> Option<Ordering> {
        if let (Some(a), Some(b)) = (self.whole(), other.whole()) {
            return Some(a.cmp(&b));
        }
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            _ => self.number()?.partial_cmp(&other.number()?),
        }
    }

    fn is_text(self) -> bool {
        matches!(self, Self::Text(_))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    DivideDown,
    Rest,
    Power,
}

impl Arithmetic {
    pub(super) fn of(sign: &str) -> Self {
        match sign {
            "+" => Self::Add,
            "-" => Self::Subtract,
            "*" => Self::Multiply,
            "/" => Self::Divide,
            "//" => Self::DivideDown,
            "%" => Self::Rest,
            _ => Self::Power,
        }
    }

    fn sign(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::DivideDown => "//",
            Self::Rest => "%",
            Self::Power => "**",
        }
    }

    fn apply<'a>(self, a: Scalar<'a>, b: Scalar<'a>) -> Result<Scalar<'a>, ComputeError> {
        let (Some(x), Some(y)) = (a.number(), b.number()) else {
            return Err(ComputeError::Words(self.sign()));
        };
        let divides = matches!(self, Self::Divide | Self::DivideDown | Self::Rest);
        if divides && y == 0.0 {
            return Err(ComputeError::DivisionByZero);
        }
        if let (Some(x), Some(y)) = (a.whole(), b.whole())
            && let Some(whole) = self.whole(x, y)
        {
            return Ok(Scalar::Int(whole));
        }
        Ok(Scalar::Float(match self {
            Self::Add => x + y,
            Self::Subtract => x - y,
            Self::Multiply => x * y,
            Self::Divide => x / y,
            Self::DivideDown => divided(x, y).0,
            Self::Rest => divided(x, y).1,
            Self::Power if x == 0.0 && y < 0.0 => return Err(ComputeError::DivisionByZero),
            Self::Power => x.powf(y),
        }))
    }

    /// In whole numbers, if the result is one and fits.
    fn whole(self, x: i64, y: i64) -> Option<i64> {
        match self {
            Self::Add => x.checked_add(y),
            Self::Subtract => x.checked_sub(y),
            Self::Multiply => x.checked_mul(y),
            Self::Divide => None,
            // Rust rounds towards zero, Python down.
            Self::DivideDown => {
                let down = x.checked_rem(y)? != 0 && (x < 0) != (y < 0);
                Some(x.checked_div(y)? - i64::from(down))
            }
            Self::Rest => {
                let rest = x.checked_rem(y)?;
                let down = rest != 0 && (rest < 0) != (y < 0);
                Some(if down { rest + y } else { rest })
            }
            Self::Power => x.checked_pow(u32::try_from(y).ok()?),
        }
    }
}

/// `x // y` and `x % y` as CPython's `divmod` has them: the rest is exact and has the sign of the divisor, and the quotient follows from it. So
/// `1.0 // 0.1` is 9.0, because the 0.1 that a float holds is a little more than a tenth.
fn divided(x: f64, y: f64) -> (f64, f64) {
    let mut rest = x % y;
    let mut quotient = (x - rest) / y;
    if rest == 0.0 {
        rest = 0.0_f64.copysign(y);
    } else if (y < 0.0) != (rest < 0.0) {
        rest += y;
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return (0.0_f64.copysign(x / y), rest);
    }
    let down = quotient.floor();
    match quotient - down > 0.5 {
        true => (down + 1.0, rest),
        false => (down, rest),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    pub(super) fn of(sign: &str) -> Self {
        match sign {
            "==" => Self::Equal,
            "!=" => Self::NotEqual,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            _ => Self::GreaterOrEqual,
        }
    }

    fn holds(self, a: Scalar<'_>, b: Scalar<'_>) -> Result<bool, ComputeError> {
        let order = a.compare(b);
        let ordered = |is: fn(Ordering) -> bool| match order {
            Some(order) => Ok(is(order)),
            None if a.is_text() || b.is_text() => Err(ComputeError::Words("<")),
            // Not a number: every order is wrong.
            None => Ok(false),
        };
        match self {
            Self::Equal => Ok(order == Some(Ordering::Equal)),
            Self::NotEqual => Ok(order != Some(Ordering::Equal)),
            Self::Less => ordered(Ordering::is_lt),
            Self::LessOrEqual => ordered(Ordering::is_le),
            Self::Greater => ordered(Ordering::is_gt),
            Self::GreaterOrEqual => ordered(Ordering::is_ge),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Least,
    Most,
    Size,
}

impl Function {
    pub(super) const NAMES: [&'static str; 3] = ["min", "max", "abs"];

    pub(super) fn of(word: &str) -> Option<Self> {
        match word {
            "min" => Some(Self::Least),
            "max" => Some(Self::Most),
            "abs" => Some(Self::Size),
            _ => None,
        }
    }

    pub(super) fn takes(self, arguments: usize) -> bool {
        match self {
            Self::Least | Self::Most => arguments >= 1,
            Self::Size => arguments == 1,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Literal(Value),
    Name(usize),
    Negative(Box<Node>),
    Not(Box<Node>),
    Compute(Arithmetic, Box<(Node, Node)>),
    Compare(Box<Node>, Vec<(Comparison, Node)>),
    Among(Box<Node>, Vec<Node>),
    All(Vec<Node>),
    Any(Vec<Node>),
    Call(Function, Vec<Node>),
}

impl Node {
    pub(super) fn names(&self, slots: &mut Vec<usize>) {
        match self {
            Self::Literal(_) => {}
            Self::Name(slot) => slots.push(*slot),
            Self::Negative(inner) | Self::Not(inner) => inner.names(slots),
            Self::Compute(_, pair) => {
                pair.0.names(slots);
                pair.1.names(slots);
            }
            Self::Compare(first, rest) => {
                first.names(slots);
                rest.iter().for_each(|(_, node)| node.names(slots));
            }
            Self::Among(first, rest) => {
                first.names(slots);
                rest.iter().for_each(|node| node.names(slots));
            }
            Self::All(nodes) | Self::Any(nodes) | Self::Call(_, nodes) => {
                nodes.iter().for_each(|node| node.names(slots));
            }
        }
    }

    pub(super) fn evaluate<'a>(
        &'a self,
        value: &impl Fn(usize) -> Scalar<'a>,
    ) -> Result<Scalar<'a>, ComputeError> {
        Ok(match self {
            Self::Literal(literal) => literal.into(),
            Self::Name(slot) => value(*slot),
            Self::Negative(inner) => {
                Arithmetic::Subtract.apply(Scalar::Int(0), inner.evaluate(value)?)?
            }
            Self::Not(inner) => Scalar::Bool(!inner.evaluate(value)?.is_true()),
            Self::Compute(arithmetic, pair) => {
                arithmetic.apply(pair.0.evaluate(value)?, pair.1.evaluate(value)?)?
            }
            Self::Compare(first, rest) => {
                let mut left = first.evaluate(value)?;
                for (comparison, node) in rest {
                    let right = node.evaluate(value)?;
                    if !comparison.holds(left, right)? {
                        return Ok(Scalar::Bool(false));
                    }
                    left = right;
                }
                Scalar::Bool(true)
            }
            Self::Among(wanted, nodes) => {
                let wanted = wanted.evaluate(value)?;
                for node in nodes {
                    if Comparison::Equal.holds(wanted, node.evaluate(value)?)? {
                        return Ok(Scalar::Bool(true));
                    }
                }
                Scalar::Bool(false)
            }
            // Python answers with the last value looked at, not with yes or no.
            Self::All(nodes) => ends_at(nodes, value, false)?,
            Self::Any(nodes) => ends_at(nodes, value, true)?,
            Self::Call(Function::Size, nodes) => {
                let inner = ends_at(nodes, value, true)?;
                match inner.compare(Scalar::Int(0)) {
                    Some(Ordering::Less) => Arithmetic::Subtract.apply(Scalar::Int(0), inner)?,
                    _ => inner,
                }
            }
            Self::Call(function, nodes) => extreme(*function, nodes, value)?,
        })
    }
}

/// The first value that is true or not, as wanted; otherwise the last.
fn ends_at<'a>(
    nodes: &'a [Node],
    value: &impl Fn(usize) -> Scalar<'a>,
    wanted: bool,
) -> Result<Scalar<'a>, ComputeError> {
    let mut last = Scalar::Bool(!wanted);
    for node in nodes {
        last = node.evaluate(value)?;
        if last.is_true() == wanted {
            break;
        }
    }
    Ok(last)
}

fn extreme<'a>(
    function: Function,
    nodes: &'a [Node],
    value: &impl Fn(usize) -> Scalar<'a>,
) -> Result<Scalar<'a>, ComputeError> {
    let better = match function {
        Function::Least => Comparison::Less,
        Function::Most | Function::Size => Comparison::Greater,
    };
    let mut best: Option<Scalar<'a>> = None;
    for node in nodes {
        let next = node.evaluate(value)?;
        best = Some(match best {
            Some(best) if !better.holds(next, best)? => best,
            _ => next,
        });
    }
    Ok(best.unwrap_or(Scalar::Bool(false)))
}
