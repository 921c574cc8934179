//! A chain of element-by-element steps in one pass: what is fused moves its operands once.

use std::fmt;

use super::step::{Broadcast, Step, Steps};
use super::{Operand, Parse, Problem, Work, WorkloadError, legal};
use crate::dtype::DType;
use crate::shape::Shape;
use crate::text::Fields;

const NAME: &str = "elementwise";

/// Names of the operands: the first, and one for each binary step.
const OPERANDS: [&str; Steps::MAX + 1] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];

/// A chain of element-by-element steps.
///
/// Text: `elementwise.add f32 1024x1024`; steps are joined by `+`, as in `elementwise.add:row+gelu f32 128x768`. The
/// chain starts from the first operand. A binary step takes one more: of the full shape, or after a
/// colon `row` (a vector along the last axis, such as a bias) or `scalar` (one element).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Elementwise {
    /// The steps, first to last.
    pub steps: Steps,
    /// The shape of the first operand and of the result.
    pub shape: Shape,
}

impl Elementwise {
    /// Checks that the operands are as many as the steps take, each of the shape its step says.
    ///
    /// ```
    /// use kernelwise_types::op::{ActivationKind, Binary, Broadcast, Elementwise, Step};
    /// use kernelwise_types::{DType, Workload};
    ///
    /// let steps = [
    ///     Step::Binary(Binary::Add, Broadcast::Row),
    ///     Step::Activation(ActivationKind::Gelu),
    /// ];
    /// let chain = Elementwise::infer(&steps, &["128x768".parse()?, "768".parse()?])?;
    /// let workload = Workload::new(chain, DType::F32)?;
    /// assert_eq!(workload.to_string(), "elementwise.add:row+gelu f32 128x768");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn infer(steps: &[Step], operands: &[Shape]) -> Result<Self, WorkloadError> {
        let steps = Steps::new(steps)?;
        let shape = operands.first().copied().unwrap_or(Shape::SCALAR);
        let chain = Self { steps, shape };
        let (takes, got) = (chain.modes().count(), operands.len());
        legal(takes == got, NAME, || {
            format!("{steps} takes {takes} operands, got {got}")
        })?;
        for ((name, expected), given) in chain.operands()?.iter().zip(operands) {
            legal(expected == given, NAME, || {
                format!("operand `{name}` of {steps} on {shape} has shape {expected}, not {given}")
            })?;
        }
        Ok(chain)
    }

    /// How each operand is spread: the first, then one for each binary step.
    fn modes(&self) -> impl Iterator<Item = Broadcast> {
        let further = self.steps.as_slice().iter().filter_map(|step| match step {
            Step::Binary(_, broadcast) => Some(*broadcast),
            _ => None,
        });
        std::iter::once(Broadcast::Full).chain(further)
    }

    /// Names and shapes of the operands in the order the steps take them.
    fn operands(&self) -> Result<Vec<(&'static str, Shape)>, WorkloadError> {
        OPERANDS
            .into_iter()
            .zip(self.modes())
            .map(|(name, mode)| {
                let shape = match mode {
                    Broadcast::Full => self.shape,
                    Broadcast::Row => {
                        let last = self.shape.dims().last().copied();
                        Shape::new(last.as_slice())?
                    }
                    Broadcast::Scalar => Shape::SCALAR,
                };
                // One problem has one name: `:row` on a vector would be another word for nothing.
                legal(mode == Broadcast::Full || shape != self.shape, NAME, || {
                    format!(
                        "`:{}` on {} is the full shape: leave it out",
                        mode.name(),
                        self.shape
                    )
                })?;
                Ok((name, shape))
            })
            .collect()
    }
}

impl Problem for Elementwise {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, dtype: DType) -> Result<(), WorkloadError> {
        self.steps
            .as_slice()
            .iter()
            .try_for_each(|step| step.check(dtype))?;
        // One problem has one name, or what is learned of it would be kept in two places.
        if let [Step::Activation(kind)] = self.steps.as_slice() {
            return Err(WorkloadError::Illegal {
                op: NAME,
                detail: format!("a single activation is written activation.{}", kind.name()),
            });
        }
        self.operands().map(drop)
    }

    fn inputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        let operands = self.operands()?.into_iter();
        Ok(operands
            .map(|(name, shape)| Operand::of(name, dtype, shape))
            .collect())
    }

    fn outputs(&self, dtype: DType) -> Result<Vec<Operand>, WorkloadError> {
        Ok(vec![Operand::of("out", dtype, self.shape)])
    }

    /// Elements times the sum over the steps of their rows in the table of [`Step`].
    fn work(&self, dtype: DType) -> Option<Work> {
        let mut each = Work::default();
        for step in self.steps.as_slice() {
            let work = step.work(dtype);
            // At most eight steps of at most eleven operations.
            each.flops += work.flops;
            each.transcendentals += work.transcendentals;
        }
        each.times(self.shape.dims())
    }

    fn write_variant(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ".{}", self.steps)
    }

    fn write_fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}", self.shape)
    }
}

impl Parse for Elementwise {
    fn parse(variant: &str, fields: &mut Fields<'_>) -> Result<Self, WorkloadError> {
        Ok(Self {
            steps: Steps::parse(variant)?,
            shape: fields.shape()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;
    use crate::op::{ActivationKind, Binary, Unary};

    fn parse(text: &str) -> Workload {
        text.parse().unwrap()
    }

    fn error(text: &str) -> String {
        text.parse::<Workload>().unwrap_err().to_string()
    }

    #[test]
    fn a_fused_chain_moves_each_operand_once() {
        let w = parse("elementwise.add:row+gelu+mul+div:scalar f32 6x8");
        let inputs: Vec<_> = w
            .inputs()
            .iter()
            .map(|operand| format!("{} {}", operand.name, operand.shape))
            .collect();
        assert_eq!(inputs, ["a 6x8", "b 8", "c 6x8", "d scalar"]);
        let cost = w.cost().unwrap();
        assert_eq!(cost.flops.0, 48 * (1 + 4 + 1 + 1));
        assert_eq!(cost.transcendentals, 48);
        assert_eq!(cost.bytes_read.0, 4 * (48 + 8 + 48 + 1));
        assert_eq!(cost.bytes_written.0, 4 * 48);
    }

    #[test]
    fn cost_per_element_is_that_of_the_table() {
        // Step, real flops and transcendentals, the same for complex numbers where defined.
        #[rustfmt::skip]
        let table = [
            ("neg", (1, 0), Some((2, 0))), ("abs", (1, 0), None),
            ("sqrt", (1, 0), Some((11, 0))), ("recip", (1, 0), Some((6, 0))),
            ("exp", (0, 1), Some((2, 3))), ("log", (0, 1), Some((4, 2))),
            ("sin", (0, 1), Some((2, 4))), ("cos", (0, 1), Some((3, 4))),
            ("square", (1, 0), Some((6, 0))),
            ("add", (1, 0), Some((2, 0))), ("sub", (1, 0), Some((2, 0))),
            ("mul", (1, 0), Some((6, 0))), ("div", (1, 0), Some((11, 0))),
            ("min", (1, 0), None), ("max", (1, 0), None), ("pow", (0, 1), None),
        ];
        assert_eq!(table.len(), Unary::ALL.len() + Binary::ALL.len());
        for (step, real, complex) in table {
            let per_element = |dtype: &str| {
                let w = format!("elementwise.{step} {dtype} 10").parse::<Workload>();
                let w = w.ok()?;
                let cost = w.cost().unwrap();
                Some((cost.flops.0 / 10, cost.transcendentals / 10))
            };
            assert_eq!(per_element("f32"), Some(real), "{step}");
            assert_eq!(per_element("complex64"), complex, "{step}");
        }
    }

    #[test]
    fn chains_round_trip() {
        for text in [
            "elementwise.mul+add f64 32",
            "elementwise.add:row+leaky_relu:0.2 f32 2x3",
            "elementwise.leaky_relu:0.01+neg+abs+sqrt+recip+exp+log+sin bf16 scalar",
            "elementwise.pow:scalar f16 1x1",
        ] {
            assert_eq!(parse(text).to_string(), text);
        }
        assert_eq!(
            parse("elementwise.neg+leaky_relu f32 4").to_string(),
            "elementwise.neg+leaky_relu:0.01 f32 4"
        );
    }

    #[test]
    fn steps_are_defined_where_mathematics_defines_them() {
        assert_eq!(
            error("elementwise.add+exp i32 8"),
            "exp is not defined on i32: it takes real or complex floating point"
        );
        assert_eq!(
            error("elementwise.max complex64 8"),
            "max is not defined on complex64: it takes real numbers"
        );
        assert_eq!(
            error("elementwise.neg u32 8"),
            "neg is not defined on u32: it takes numbers with a sign"
        );
        assert_eq!(
            error("elementwise.pow i32 8"),
            "pow is not defined on i32: it takes real floating point"
        );
        for step in Unary::ALL.iter().map(|f| f.name()).chain(
            Binary::ALL
                .iter()
                .map(|f| f.name())
                .chain(ActivationKind::ALL.iter().map(|f| f.name())),
        ) {
            assert!(
                error(&format!("elementwise.{step} bool 8"))
                    .starts_with(&format!("{step} is not defined on bool")),
            );
        }
    }

    #[test]
    fn mistyped_steps_are_named() {
        assert_eq!(
            error("elementwise.add+gellu f32 8"),
            "elementwise has no variant `gellu`; did you mean `gelu`?"
        );
        assert_eq!(
            error("elementwise.add:column f32 8x8"),
            "elementwise: `add:column` is not readable: expected `row` or `scalar` after the colon"
        );
        assert_eq!(
            error("elementwise.add: f32 8x8"),
            "elementwise: `add:` is not readable: expected `row` or `scalar` after the colon"
        );
        for text in ["elementwise.exp:row f32 8x8", "elementwise.gelu:1 f32 8x8"] {
            assert!(error(text).ends_with("expected no colon: it takes no operand"));
        }
        assert_eq!(
            error("elementwise.neg+neg+neg+neg+neg+neg+neg+neg+neg f32 8"),
            "elementwise: a chain has 1 to 8 steps, not 9: split it"
        );
        assert_eq!(
            error("elementwise.leaky_relu:0.2 f32 8"),
            "elementwise: a single activation is written activation.leaky_relu"
        );
        assert_eq!(
            error("elementwise.add:row f32 8"),
            "elementwise: `:row` on 8 is the full shape: leave it out"
        );
        assert!(error("elementwise f32 8").starts_with("elementwise needs a variant"));
        assert!(Steps::new(&[]).is_err());
    }

    #[test]
    fn operands_must_match_their_steps() {
        let steps = [Step::Binary(Binary::Add, Broadcast::Row)];
        let shape = |text: &str| text.parse::<Shape>().unwrap();
        let infer = |shapes: &[Shape]| Elementwise::infer(&steps, shapes).unwrap_err().to_string();
        assert_eq!(
            infer(&[shape("4x8"), shape("4")]),
            "elementwise: operand `b` of add:row on 4x8 has shape 8, not 4"
        );
        assert_eq!(
            infer(&[shape("4x8")]),
            "elementwise: add:row takes 2 operands, got 1"
        );
    }
}
