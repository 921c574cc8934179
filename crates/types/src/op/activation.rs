//! Activation functions, element by element; the same functions are steps of an
//! [`Elementwise`](super::Elementwise) chain.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::variant::write_word;
use super::{Operand, Parse, Problem, Work, WorkloadError, legal, require};
use crate::dtype::{DType, DTypeClass};
use crate::shape::Shape;
use crate::text::Fields;

const NAME: &str = "activation";

/// What a leaky rectifier multiplies negative numbers by: finite and not negative, so that it can be part
/// of a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slope(f32);

impl Slope {
    /// 0.01, as in the literature.
    pub const DEFAULT: Self = Self(0.01);

    /// Accepts a finite number that is not negative.
    pub fn new(value: f32) -> Result<Self, WorkloadError> {
        legal(value.is_finite() && value >= 0.0, NAME, || {
            format!("a slope is finite and not negative, unlike {value}")
        })?;
        // Adding zero turns −0 into 0: equal slopes have equal bits.
        Ok(Self(value + 0.0))
    }

    /// The number.
    pub const fn get(self) -> f32 {
        self.0
    }

    /// Reads digits with at most one point among them.
    pub(super) fn parse(op: &'static str, word: &str) -> Result<Self, WorkloadError> {
        let plain = word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let value: Option<f32> = plain.then(|| word.parse().ok()).flatten();
        value
            .and_then(|value| Self::new(value).ok())
            .ok_or_else(|| WorkloadError::BadField {
                op,
                word: word.to_owned(),
                expected: "a slope such as 0.01",
            })
    }
}

// Not a number and −0 are excluded, so equality is reflexive and agrees with the bits.
impl Eq for Slope {}

impl Hash for Slope {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl fmt::Display for Slope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An activation function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ActivationKind {
    /// Negative numbers become zero.
    Relu,
    /// Negative numbers become smaller.
    LeakyRelu(Slope),
    /// The logistic function.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// x times its logistic function, also called swish.
    Silu,
    /// x times the normal distribution function, by the error function.
    Gelu,
    /// The approximation of the same by tanh.
    GeluTanh,
    /// A smooth rectifier.
    Softplus,
    /// Negative numbers approach −1 exponentially.
    Elu,
    /// The approximation of `silu` by straight lines.
    HardSwish,
}

impl ActivationKind {
    /// Every function, the leaky rectifier with its default slope.
    pub const ALL: &[Self] = &[
        Self::Relu,
        Self::LeakyRelu(Slope::DEFAULT),
        Self::Sigmoid,
        Self::Tanh,
        Self::Silu,
        Self::Gelu,
        Self::GeluTanh,
        Self::Softplus,
        Self::Elu,
        Self::HardSwish,
    ];

    /// The names of [`ALL`](Self::ALL).
    pub(super) const WORDS: &[&str] = &[
        "relu",
        "leaky_relu",
        "sigmoid",
        "tanh",
        "silu",
        "gelu",
        "gelu_tanh",
        "softplus",
        "elu",
        "hard_swish",
    ];

    /// The word for it in workload text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Relu => "relu",
            Self::LeakyRelu(_) => "leaky_relu",
            Self::Sigmoid => "sigmoid",
            Self::Tanh => "tanh",
            Self::Silu => "silu",
            Self::Gelu => "gelu",
            Self::GeluTanh => "gelu_tanh",
            Self::Softplus => "softplus",
            Self::Elu => "elu",
            Self::HardSwish => "hard_swish",
        }
    }

    /// The function of this name, the leaky rectifier with its default slope.
    pub(super) fn named(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == word)
    }

    /// Work per element, as in the table above.
    pub(super) const fn work(self) -> Work {
        let (flops, transcendentals) = match self {
            Self::Relu => (1, 0),
            Self::LeakyRelu(_) => (3, 0),
            Self::Sigmoid | Self::Silu => (3, 1),
            Self::Tanh => (0, 1),
            Self::Gelu => (4, 1),
            Self::GeluTanh => (7, 1),
            Self::Softplus => (4, 2),
            Self::Elu => (2, 1),
            Self::HardSwish => (5, 0),
        };
        Work {
            flops,
            transcendentals,
            comparisons: 0,
        }
    }

    /// Refuses element types the function is not defined on; `op` is who asks.
    pub(super) fn check(self, op: &'static str, dtype: DType) -> Result<(), WorkloadError> {
        let (ok, allowed) = match self {
            Self::Relu => (
                matches!(dtype.class(), DTypeClass::Float | DTypeClass::Signed),
                "real floating point or signed integers",
            ),
            _ => (dtype.is_float(), "real floating point"),
        };
        require(ok, op, dtype, allowed)
    }
}

/// An activation function over a tensor.
///
/// Text: `activation.gelu f32 128x768`; `activation.leaky_relu f32 128x768 slope0.01`, where 0.01 is also meant
/// when nothing is written.
///
/// Each function is counted in one fixed form, negation and absolute value as one operation each:
///
/// | function | form | flops | transcendentals |
/// |---|---|---|---|
/// | `relu` | max(x, 0) | 1 | 0 |
/// | `leaky_relu` | x if x > 0, else slope·x | 3 | 0 |
/// | `sigmoid` | 1 / (1 + exp(−x)) | 3 | 1 |
/// | `tanh` | tanh(x) | 0 | 1 |
/// | `silu` | x / (1 + exp(−x)) | 3 | 1 |
/// | `gelu` | 0.5·x · (1 + erf(x·√½)) | 4 | 1 |
/// | `gelu_tanh` | 0.5·x · (1 + tanh(x·(α + β·x²))) with α = √(2/π), β = 0.044715·α | 7 | 1 |
/// | `softplus` | max(x, 0) + log1p(exp(−\|x\|)) | 4 | 2 |
/// | `elu` | x if x > 0, else expm1(x) | 2 | 1 |
/// | `hard_swish` | x · min(max(x + 3, 0), 6) · ⅙ | 5 | 0 |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Activation {
    /// The function.
    pub kind: ActivationKind,
    /// The shape of what it is applied to.
    pub shape: Shape,
}

impl Activation {
    /// The function over a tensor of this shape; every shape will do.
    pub const fn new(kind: ActivationKind, shape: Shape) -> Self {
        Self { kind, shape }
    }
}

impl Problem for Activation {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, dtype: DType) -> Result<(), WorkloadError> {
        self.kind.check(self.kind.name(), dtype)
    }

    fn inputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        Ok(vec![Operand::of("x", dtype, self.shape)])
    }

    fn outputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        Ok(vec![Operand::of("out", dtype, self.shape)])
    }

    /// Elements times the function's row in the table above.
    fn work(&self, _dtype: DType) -> Option<Work> {
        self.kind.work().times(self.shape.dims())
    }

    fn write_variant(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_word(f, self.kind.name())
    }

    fn write_fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}", self.shape)?;
        match self.kind {
            ActivationKind::LeakyRelu(slope) => write!(f, " slope{slope}"),
            _ => Ok(()),
        }
    }
}

impl Parse for Activation {
    fn parse(variant: &str, fields: &mut Fields<'_>) -> Result<Self, WorkloadError> {
        let mut kind =
            ActivationKind::named(variant).ok_or_else(|| WorkloadError::UnknownVariant {
                op: NAME,
                word: variant.to_owned(),
                known: ActivationKind::WORDS,
            })?;
        if let ActivationKind::LeakyRelu(slope) = &mut kind
            && let Some(word) = fields.take("slope")
        {
            *slope = Slope::parse(NAME, word)?;
        }
        Ok(Self {
            kind,
            shape: fields.shape()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;

    #[test]
    fn cost_per_element_is_that_of_the_table() {
        let documented: Vec<(String, u64, u64)> = include_str!("activation.rs")
            .lines()
            .filter_map(|line| line.strip_prefix("/// | `"))
            .map(|row| {
                let cells: Vec<&str> = row.rsplit('|').map(str::trim).collect();
                let name = row.split('`').next().unwrap().to_owned();
                (name, cells[2].parse().unwrap(), cells[1].parse().unwrap())
            })
            .collect();
        let counted: Vec<(String, u64, u64)> = ActivationKind::ALL
            .iter()
            .map(|&kind| {
                let activation = Activation::new(kind, "2x5".parse().unwrap());
                let w = Workload::new(activation, DType::F32).unwrap();
                let cost = w.cost().unwrap();
                assert_eq!((cost.bytes_read.0, cost.bytes_written.0), (40, 40));
                let name = kind.name().to_owned();
                (name, cost.flops.0 / 10, cost.transcendentals / 10)
            })
            .collect();
        assert_eq!(counted, documented);
    }

    #[test]
    fn names_stand_in_the_order_of_the_functions() {
        let names: Vec<&str> = ActivationKind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names, ActivationKind::WORDS);
    }

    #[test]
    fn slopes_round_trip_and_stay_numbers() {
        for (text, canonical) in [
            (
                "activation.leaky_relu f32 8",
                "activation.leaky_relu f32 8 slope0.01",
            ),
            (
                "activation.leaky_relu f32 slope0.20 8",
                "activation.leaky_relu f32 8 slope0.2",
            ),
            (
                "activation.leaky_relu f16 8 slope3",
                "activation.leaky_relu f16 8 slope3",
            ),
        ] {
            let w: Workload = text.parse().unwrap();
            assert_eq!(w.to_string(), canonical);
            assert_eq!(canonical.parse::<Workload>().unwrap(), w);
        }
        for bad in [f32::NAN, f32::INFINITY, -0.5] {
            assert!(Slope::new(bad).is_err());
        }
        assert_eq!(Slope::new(-0.0).unwrap().get().to_bits(), 0);
        let error = |text: &str| text.parse::<Workload>().unwrap_err().to_string();
        assert_eq!(
            error("activation.leaky_relu f32 8 slope1e3"),
            "activation: `1e3` is not readable: expected a slope such as 0.01"
        );
        assert_eq!(
            error("activation.relu f32 8 slope1"),
            "activation has no use for `slope1`: remove it, or check its spelling, as in `activation.gelu f32 128x768`"
        );
    }

    #[test]
    fn only_the_rectifier_takes_integers() {
        assert!("activation.relu i8 8".parse::<Workload>().is_ok());
        let error = |text: &str| text.parse::<Workload>().unwrap_err().to_string();
        assert_eq!(
            error("activation.relu u8 8"),
            "relu is not defined on u8: it takes real floating point or signed integers"
        );
        assert_eq!(
            error("activation.gelu i8 8"),
            "gelu is not defined on i8: it takes real floating point"
        );
        assert_eq!(
            error("activation.glu f32 8"),
            "activation has no variant `glu`; did you mean `gelu`?"
        );
    }
}
