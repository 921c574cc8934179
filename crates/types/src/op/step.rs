//! The steps of an element-wise chain: what each takes, where it is defined and what it costs.

use std::fmt;

use super::activation::{ActivationKind, Slope};
use super::variant::variants;
use super::{Work, WorkloadError, legal, require};
use crate::dtype::{DType, DTypeClass};

const NAME: &str = "elementwise";

variants! {
    /// A step that takes nothing but the result so far.
    Unary {
        /// −x.
        Neg = "neg",
        /// Distance from zero.
        Abs = "abs",
        /// Square root.
        Sqrt = "sqrt",
        /// 1/x.
        Recip = "recip",
        /// Exponential function.
        Exp = "exp",
        /// Natural logarithm.
        Log = "log",
        /// Sine.
        Sin = "sin",
        /// Cosine.
        Cos = "cos",
        /// x·x.
        Square = "square",
    }
}

variants! {
    /// A step that takes the result so far and one more operand.
    Binary {
        /// Sum.
        Add = "add",
        /// Difference.
        Sub = "sub",
        /// Product.
        Mul = "mul",
        /// Quotient; of integers, rounded towards zero.
        Div = "div",
        /// The smaller of the two.
        Min = "min",
        /// The larger of the two.
        Max = "max",
        /// The result so far to the power of the operand.
        Pow = "pow",
    }
}

variants! {
    /// How the further operand of a binary step is spread over the shape.
    Broadcast {
        /// It has the full shape.
        Full = "",
        /// It is a vector along the last axis, as a bias is.
        Row = "row",
        /// It is one element.
        Scalar = "scalar",
    }
}

/// One step of a chain.
///
/// Work per element, counted in one fixed form each; a complex function by its real parts:
///
/// | step | real | complex z = x + iy |
/// |---|---|---|
/// | `neg` | 1 | 2 |
/// | `abs` | 1 | not defined: the result is real |
/// | `sqrt` | 1 | 11: √((\|z\| ± x)/2) with the sign of y |
/// | `recip` | 1 | 6: conj(z) / (x² + y²) |
/// | `exp` | 1 transcendental | 2 and 3 transcendentals: exp(x)·(cos y, sin y) |
/// | `log` | 1 transcendental | 4 and 2 transcendentals: ½·log(x² + y²), atan2(y, x) |
/// | `sin` | 1 transcendental | 2 and 4 transcendentals: sin x·cosh y, cos x·sinh y |
/// | `cos` | 1 transcendental | 3 and 4 transcendentals: cos x·cosh y, −sin x·sinh y |
/// | `square` | 1 | 6, a product |
/// | `add`, `sub` | 1 | 2 |
/// | `mul` | 1 | 6 |
/// | `div` | 1 | 11: a product with the conjugate, the norm, two divisions |
/// | `min`, `max` | 1 | not defined |
/// | `pow` | 1 transcendental | not defined |
///
/// Activation functions cost what their own table says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Nothing but the result so far.
    Unary(Unary),
    /// The result so far and one more operand.
    Binary(Binary, Broadcast),
    /// An activation function of the result so far.
    Activation(ActivationKind),
}

const KINDS: [&[&str]; 3] = [Unary::WORDS, Binary::WORDS, ActivationKind::WORDS];

/// All words that begin a step, for hints.
const WORDS: [&str; KINDS[0].len() + KINDS[1].len() + KINDS[2].len()] = {
    let mut words = [""; KINDS[0].len() + KINDS[1].len() + KINDS[2].len()];
    let (mut kind, mut filled) = (0, 0);
    while kind < KINDS.len() {
        let mut word = 0;
        while word < KINDS[kind].len() {
            words[filled] = KINDS[kind][word];
            filled += 1;
            word += 1;
        }
        kind += 1;
    }
    words
};

impl Unary {
    const fn work(self, dtype: DType) -> Work {
        let (flops, transcendentals) = match (self, dtype.is_complex()) {
            (Self::Neg | Self::Abs | Self::Sqrt | Self::Recip, false) => (1, 0),
            (Self::Exp | Self::Log | Self::Sin | Self::Cos, false) => (0, 1),
            (Self::Neg | Self::Abs, true) => (2, 0),
            (Self::Sqrt, true) => (11, 0),
            (Self::Recip, true) => (6, 0),
            (Self::Exp, true) => (2, 3),
            (Self::Log, true) => (4, 2),
            (Self::Sin, true) => (2, 4),
            (Self::Cos, true) => (3, 4),
            (Self::Square, _) => (dtype.mul_flops(), 0),
        };
        Work {
            flops,
            transcendentals,
            comparisons: 0,
        }
    }

    fn check(self, dtype: DType) -> Result<(), WorkloadError> {
        use DTypeClass::{Complex, Float, Signed};
        let class = dtype.class();
        let (ok, allowed) = match self {
            Self::Neg => (
                matches!(class, Float | Signed | Complex),
                "numbers with a sign",
            ),
            Self::Abs => (matches!(class, Float | Signed), "real numbers with a sign"),
            Self::Square => (dtype.is_numeric(), "numbers, not truth values"),
            _ => (
                matches!(class, Float | Complex),
                "real or complex floating point",
            ),
        };
        require(ok, self.name(), dtype, allowed)
    }
}

impl Binary {
    const fn work(self, dtype: DType) -> Work {
        match self {
            Self::Add | Self::Sub => Work::flops(dtype.add_flops()),
            Self::Mul => Work::flops(dtype.mul_flops()),
            Self::Div if dtype.is_complex() => Work::flops(11),
            Self::Div | Self::Min | Self::Max => Work::flops(1),
            Self::Pow => Work {
                flops: 0,
                transcendentals: 1,
                comparisons: 0,
            },
        }
    }

    fn check(self, dtype: DType) -> Result<(), WorkloadError> {
        let (ok, allowed) = match self {
            Self::Add | Self::Sub | Self::Mul | Self::Div => {
                (dtype.is_numeric(), "numbers, not truth values")
            }
            Self::Min | Self::Max => (dtype.is_ordered(), "real numbers"),
            Self::Pow => (dtype.is_float(), "real floating point"),
        };
        require(ok, self.name(), dtype, allowed)
    }
}

impl Step {
    /// Work per element, as in the table above.
    pub(super) const fn work(self, dtype: DType) -> Work {
        match self {
            Self::Unary(function) => function.work(dtype),
            Self::Binary(function, _) => function.work(dtype),
            Self::Activation(function) => function.work(),
        }
    }

    /// Refuses element types the step is not defined on.
    pub(super) fn check(self, dtype: DType) -> Result<(), WorkloadError> {
        match self {
            Self::Unary(function) => function.check(dtype),
            Self::Binary(function, _) => function.check(dtype),
            Self::Activation(function) => function.check(function.name(), dtype),
        }
    }

    /// Reads `exp`, `add`, `add:row` or `leaky_relu:0.2`.
    fn parse(text: &str) -> Result<Self, WorkloadError> {
        let (word, argument) = match text.split_once(':') {
            Some((word, argument)) => (word, Some(argument)),
            None => (text, None),
        };
        let bad = |expected| WorkloadError::BadField {
            op: NAME,
            word: text.to_owned(),
            expected,
        };
        if let Ok(function) = Binary::parse(NAME, word) {
            let broadcast = match argument {
                None => Broadcast::Full,
                Some("") => return Err(bad("`row` or `scalar` after the colon")),
                Some(argument) => Broadcast::parse(NAME, argument)
                    .map_err(|_| bad("`row` or `scalar` after the colon"))?,
            };
            return Ok(Self::Binary(function, broadcast));
        }
        match (ActivationKind::named(word), argument) {
            (Some(ActivationKind::LeakyRelu(_)), Some(slope)) => {
                let slope = Slope::parse(NAME, slope)?;
                return Ok(Self::Activation(ActivationKind::LeakyRelu(slope)));
            }
            (Some(function), None) => return Ok(Self::Activation(function)),
            (Some(_), Some(_)) => return Err(bad("no colon: it takes no operand")),
            (None, _) => {}
        }
        match (Unary::parse(NAME, word), argument) {
            (Ok(function), None) => Ok(Self::Unary(function)),
            (Ok(_), Some(_)) => Err(bad("no colon: it takes no operand")),
            (Err(_), _) => Err(WorkloadError::UnknownVariant {
                op: NAME,
                word: word.to_owned(),
                known: &WORDS,
            }),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unary(function) => f.write_str(function.name()),
            Self::Binary(function, Broadcast::Full) => f.write_str(function.name()),
            Self::Binary(function, other) => write!(f, "{}:{}", function.name(), other.name()),
            Self::Activation(ActivationKind::LeakyRelu(slope)) => write!(f, "leaky_relu:{slope}"),
            Self::Activation(function) => f.write_str(function.name()),
        }
    }
}

/// The steps of one chain, first to last: at least one, at most [`Steps::MAX`]. They lie in place, so that
/// a chain can be copied and compared without touching the heap.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Steps {
    len: u8,
    /// Entries from `len` on are all the same filler, so that equality and hash may look at all of them.
    steps: [Step; Self::MAX],
}

impl Steps {
    /// The longest chain: more than any fusion in practice, and 8 bytes each in every key.
    pub const MAX: usize = 8;

    /// Takes steps in the order of their application.
    pub fn new(steps: &[Step]) -> Result<Self, WorkloadError> {
        legal((1..=Self::MAX).contains(&steps.len()), NAME, || {
            format!(
                "a chain has 1 to {} steps, not {}: split it",
                Self::MAX,
                steps.len()
            )
        })?;
        let mut all = [Step::Unary(Unary::Neg); Self::MAX];
        all[..steps.len()].copy_from_slice(steps);
        Ok(Self {
            len: steps.len() as u8,
            steps: all,
        })
    }

    /// The steps.
    pub fn as_slice(&self) -> &[Step] {
        &self.steps[..usize::from(self.len)]
    }

    /// Reads steps joined by `+`.
    pub(super) fn parse(text: &str) -> Result<Self, WorkloadError> {
        let steps: Vec<Step> = text.split('+').map(Step::parse).collect::<Result<_, _>>()?;
        Self::new(&steps)
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.as_slice().iter().enumerate() {
            f.write_str(if position == 0 { "" } else { "+" })?;
            step.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Steps({self})")
    }
}
